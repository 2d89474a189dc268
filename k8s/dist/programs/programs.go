// SPDX-License-Identifier: Apache-2.0

// Package programs builds the programs of niclane's container image. The present directory must be
// that of this module.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/niclane/niclane/k8s/dist/image"
)

// Local is the image's name in the checkout's chart and manifests. No registry has it: people
// import it on the nodes.
const Local = "localhost/niclane-agent:dev"

// names are the programs in the image. The first one is what a container starts. The last one is of
// the main module: people look at lanes and undo them with it, by kubectl exec.
var names = []string{"niclane-agent", "niclane-controller", "niclane-cni", "niclane-cni-install", command}

const command = "niclane"

// Build builds the programs for a GOARCH into dir, and returns the description of the image with
// them. All programs print the version. The same sources give the same programs, byte by byte.
func Build(dir, version, arch string) (image.Config, error) {
	c := image.Config{Name: Local, Arch: arch, Entrypoint: "/" + names[0], Labels: map[string]string{
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.version": version}}
	for _, name := range names {
		out := filepath.Join(dir, name)
		link := "-s -w -X main.version=" + version
		if name == "niclane-cni" {
			link = "-s -w -X main.build=" + version
		}
		// grpcnotrace is grpc's build tag that leaves out golang.org/x/net/trace. Templates of that
		// package call methods by name, so the linker would keep all methods. These would be a third of
		// the agent, on disk and in memory.
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags",
			link, "-o", out, "./cmd/"+name)
		if build.Dir = ".."; name == command { // the module k8s, or the main module
			build.Dir = "../.."
		}
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return c, fmt.Errorf("build %s for %s: %w", name, arch, err)
		}
		c.Programs = append(c.Programs, out)
	}
	return c, nil
}
