// SPDX-License-Identifier: Apache-2.0

// Command release builds what users of niclane in Kubernetes install, into a directory: the
// container image for several architectures, its list of contents (SBOM), the chart, the plain
// manifests and checksums. The same sources give the same files, byte by byte. With -push, the
// command builds nothing, and pushes what the directory has. Run it in this module: go run ./release
// DIRECTORY.
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
	registry := flag.String("registry", nowhere, "registry of the image and the chart: HOST[:PORT][/PATH]")
	arches := flag.String("arch", "amd64,arm64", "GOARCH of each image in the index, separated by commas")
	pushes := flag.Bool("push", false, "push a release to the registry that it was built for")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "release: want a directory")
		os.Exit(2)
	}
	do := func(dir string) error { return build(dir, *describe, *registry, strings.Split(*arches, ",")) }
	if *pushes {
		do = push
	}
	if err := do(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func build(dir, describe, registry string, arches []string) error {
	version, err := semantic(describe)
	if err != nil {
		return fmt.Errorf("-version: %w", err)
	}
	r := release{dir: dir, version: version, registry: strings.TrimSuffix(registry, "/")}
	if err := r.build(arches); err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

func push(dir string) error {
	return oci.Push(filepath.Join(dir, layoutName), func(ref string) { fmt.Println(ref) })
}
