// SPDX-License-Identifier: Apache-2.0

// Command images builds niclane's container image for each architecture. Each image is the archive
// of an OCI layout: ctr and nerdctl can import it, skopeo and crane can push it. Run it in this
// module: go run ./images DIRECTORY.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/niclane/niclane/k8s/dist/image"
	"github.com/niclane/niclane/k8s/dist/programs"
)

func main() {
	version := flag.String("version", "unknown", "version that the programs print")
	arches := flag.String("arch", runtime.GOARCH, "GOARCH of each image, separated by commas")
	name := flag.String("name", programs.Local, "name of the image: REPOSITORY:TAG")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "images: want a directory to write to")
		os.Exit(2)
	}
	for arch := range strings.SplitSeq(*arches, ",") {
		if err := build(flag.Arg(0), *name, *version, arch); err != nil {
			fmt.Fprintln(os.Stderr, "images:", err)
			os.Exit(1)
		}
	}
}

func build(dir, name, version, arch string) error {
	bin, err := os.MkdirTemp("", "images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)
	config, err := programs.Build(bin, version, arch)
	if err != nil {
		return err
	}
	config.Name = name
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, fmt.Sprintf("niclane-agent-%s.tar", arch))
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := image.Write(f, config); err != nil {
		return err
	}
	fmt.Println(path)
	return f.Close()
}
