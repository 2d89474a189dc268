// SPDX-License-Identifier: Apache-2.0

// Command images builds niclane's container image for each architecture. Each image is the archive
// of an OCI layout: ctr and nerdctl can import it, skopeo and crane can push it. Run it in this
// module: go run ./images DIRECTORY.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/niclane/niclane/k8s/dist/image"
)

// programs are the programs in the image. The last one is of the main module: people look at lanes
// and undo them with it, by kubectl exec.
var programs = []string{"niclane-agent", "niclane-controller", "niclane-cni", "niclane-cni-install", command}

const command = "niclane"

func main() {
	name := flag.String("name", "localhost/niclane-agent:0.1.0", "name of the image: REPOSITORY:TAG")
	version := flag.String("version", "unknown", "version that the programs print")
	arches := flag.String("arch", runtime.GOARCH, "GOARCH of each image, separated by commas")
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
	config := image.Config{
		Name: name, Arch: arch, Entrypoint: "/" + programs[0],
		Labels: map[string]string{"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version": version},
	}
	for _, p := range programs {
		out := filepath.Join(bin, p)
		link := "-s -w -X main.version=" + version
		if p == "niclane-cni" {
			link = "-s -w -X main.build=" + version
		}
		// grpcnotrace is grpc's build tag that leaves out golang.org/x/net/trace. Templates of that
		// package call methods by name, so the linker would keep all methods. These would be a third of
		// the agent, on disk and in memory.
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags",
			link, "-o", out, "./cmd/"+p)
		if build.Dir = ".."; p == command { // the module k8s, or the main module
			build.Dir = "../.."
		}
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build %s: %w", p, err)
		}
		config.Programs = append(config.Programs, out)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s.tar", programs[0], arch))
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
