// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/niclane/niclane/k8s/dist/image"
)

// Image is the name of the image of the tests' pods (program app). Sandbox is another name of the
// same image, which containerd uses for pods' sandboxes.
const (
	Image   = "localhost/app:1"
	Sandbox = "localhost/pause:1"
)

// appImage builds the image of the tests' pods in dir, and returns the path of its archive.
func appImage(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "app")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program,
		"github.com/niclane/niclane/k8s/test/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program + ".tar", writeImage(program+".tar", Image, program)
}

func writeImage(archive, name, program string) error {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	err = image.Write(f, image.Config{Name: name, Arch: runtime.GOARCH, Programs: []string{program},
		Entrypoint: "/" + filepath.Base(program)})
	if err != nil {
		return err
	}
	return f.Close()
}
