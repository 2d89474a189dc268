// SPDX-License-Identifier: Apache-2.0

// Command release builds what users of niclane in Kubernetes install, into a directory: the
// container image for several architectures, its list of contents (SBOM), the chart, the plain
// manifests and checksums. With -push, it also pushes them to a registry. The same sources give the
// same files, byte by byte. Run it in this module: go run ./release DIRECTORY.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/niclane/niclane/k8s/dist/oci"
)

func main() {
	describe := flag.String("version", "", "version, as git describe prints it: v1.2.3")
	registry := flag.String("registry", "localhost", "registry of the image: HOST[:PORT][/PATH]")
	arches := flag.String("arch", "amd64,arm64", "GOARCH of each image in the index, separated by commas")
	push := flag.Bool("push", false, "push image, chart and SBOM to the registry")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "release: want a directory to write to")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *describe, *registry, strings.Split(*arches, ","), *push); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(dir, describe, registry string, arches []string, push bool) error {
	version, err := semantic(describe)
	if err != nil {
		return fmt.Errorf("-version: %w", err)
	}
	r := release{dir: dir, version: version, registry: strings.TrimSuffix(registry, "/")}
	if err := r.build(arches); err != nil {
		return err
	}
	fmt.Println(dir)
	if !push {
		return nil
	}
	return oci.Push(filepath.Join(dir, layoutName), r.registry, func(ref string) { fmt.Println(ref) })
}
