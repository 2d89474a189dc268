// SPDX-License-Identifier: Apache-2.0

// Package components builds the programs that a Kubernetes cluster consists of,
// unmodified, from their published Go modules. What they are built from is
// pinned in the go.mod and go.sum of a directory each. They take minutes to
// build and are kept outside the repository, in the user's cache directory.
package components

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A Component is some programs of one module.
type Component struct {
	// Name is the directory beside this file.
	Name string
	// ModFile is the go.mod to build with, "" for that of the directory.
	ModFile string
	// Module that gives the version.
	Module string
	// Stamp is the variable that the linker sets to the version, if any.
	Stamp string
	// Tags of the build.
	Tags string
	// Packages to build.
	Packages []string
	// Output names the program where there is one package; "": the package's.
	Output string
	// Links are further names of the program.
	Links []string
}

var (
	// Kubernetes136 has what the newest supported cluster runs.
	Kubernetes136 = kubernetes("")
	// Kubernetes134 has what the oldest supported cluster runs.
	Kubernetes134 = kubernetes("go-1.34.mod")
	// Containerd 2. Debian 12 has 1.6.
	Containerd = Component{
		Name: "containerd", Module: "github.com/containerd/containerd/v2",
		// storage that nobody here has
		Tags: "no_btrfs,no_devmapper,no_zfs", Packages: []string{"tool"},
	}
	// Etcd keeps the cluster's objects.
	Etcd = Component{Name: "etcd", Module: "go.etcd.io/etcd/server/v3",
		Packages: []string{"go.etcd.io/etcd/server/v3"}, Output: "etcd"}
	// Kubectl is what people type.
	Kubectl = Component{
		Name: "kubectl", Module: "k8s.io/kubectl", Stamp: "k8s.io/component-base/version.gitVersion",
		Packages: []string{"."}, Output: "kubectl",
	}
	// Helm installs charts.
	Helm = Component{
		Name: "helm", Module: "helm.sh/helm/v4", Stamp: "helm.sh/helm/v4/internal/version.version",
		Packages: []string{"helm.sh/helm/v4/cmd/helm"}, Output: "helm",
	}
	// Plugins are CNI's, and cnitool.
	Plugins = Component{Name: "plugins", Module: "github.com/containernetworking/plugins", Packages: []string{"tool"}}
)

func kubernetes(mod string) Component {
	return Component{
		Name: "kubernetes", ModFile: mod, Module: "k8s.io/kubernetes",
		Stamp:    "k8s.io/component-base/version.gitVersion",
		Packages: []string{"."}, Output: "kubelet",
		Links: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"},
	}
}

// Programs builds the component, unless the cache has it, and returns the
// directory of its programs. It is called from anywhere in this module.
func (c Component) Programs(ctx context.Context) (string, error) {
	dir, err := c.programs(ctx)
	if err != nil {
		return "", fmt.Errorf("component %s: %w", c.Name, err)
	}
	return dir, nil
}

func (c Component) programs(ctx context.Context) (string, error) {
	module, err := run(ctx, ".", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	source := filepath.Join(module, "components", c.Name)
	version, err := c.version(ctx, source)
	if err != nil {
		return "", err
	}
	key, err := c.key(source)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "niclane", "k8s", fmt.Sprintf("%s-%s-%s", c.Name, version, key))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, c.build(ctx, source, version, dir)
}

// build has dir exist only when it is complete.
func (c Component) build(ctx context.Context, source, version, dir string) error {
	partial, err := os.MkdirTemp(filepath.Dir(dir), "partial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	if err := os.Chmod(partial, 0o755); err != nil {
		return err
	}
	link := "-s -w"
	if c.Stamp != "" {
		link += " -X " + c.Stamp + "=" + version
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", link, "-tags", c.Tags, "-o",
		filepath.Join(partial, c.Output)}
	if c.Output == "" {
		args[len(args)-1] += "/"
	}
	if c.ModFile != "" {
		args = append(args, "-modfile", c.ModFile)
	}
	if _, err := run(ctx, source, append(args, c.Packages...)...); err != nil {
		return err
	}
	for _, name := range c.Links {
		if err := os.Symlink(c.Output, filepath.Join(partial, name)); err != nil {
			return err
		}
	}
	return os.Rename(partial, dir)
}

// Version is the component's, as v1.2.3.
func (c Component) version(ctx context.Context, source string) (string, error) {
	args := []string{"list", "-m", "-f", "{{.Version}}"}
	if c.ModFile != "" {
		args = append(args, "-modfile", c.ModFile)
	}
	return run(ctx, source, append(args, c.Module)...)
}

// key tells builds apart: by their recipe, their sources and the compiler.
func (c Component) key(source string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%+v %s %s\n", c, runtime.Version(), runtime.GOARCH)
	files, err := os.ReadDir(source)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(source, f.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", f.Name(), len(text), text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6]), nil
}

// run starts go, without C, which none of the programs needs.
func run(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	var errors strings.Builder
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, errors.String())
	}
	return strings.TrimSpace(string(out)), nil
}
