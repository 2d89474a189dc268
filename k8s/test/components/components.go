// SPDX-License-Identifier: Apache-2.0

// Package components builds the programs of a Kubernetes cluster, unmodified, from their published
// Go modules. Each component has a directory with a go.mod and go.sum that pin the versions. The
// build takes minutes. The built programs are kept in the user's cache directory, outside the
// repository.
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

// A Component is a set of programs that are built together.
type Component struct {
	// Name is the name of the component's directory, which is in the directory of this file.
	Name string
	// ModFile is the name of the go.mod file for the build. "" means go.mod.
	ModFile string
	// Module is the path of the module whose version is the component's version.
	Module string
	// Stamp is the name of the Go variable that the linker sets to the version, "" for none.
	Stamp string
	// Tags are the build tags.
	Tags string
	// Packages are the packages to build.
	Packages []string
	// Output is the program's name, if there is one package. "" means the package's name.
	Output string
	// Links are further names of the program, which become symbolic links.
	Links []string
}

var (
	// Kubernetes136 is the newest supported Kubernetes.
	Kubernetes136 = kubernetes("")
	// Kubernetes134 is the oldest supported Kubernetes.
	Kubernetes134 = kubernetes("go-1.34.mod")
	// Containerd is containerd 2. Debian 12 has only 1.6.
	Containerd = Component{
		Name: "containerd", Module: "github.com/containerd/containerd/v2",
		// These tags leave out storage drivers that the tests do not use.
		Tags: "no_btrfs,no_devmapper,no_zfs", Packages: []string{"tool"},
	}
	// Etcd stores the cluster's objects.
	Etcd = Component{Name: "etcd", Module: "go.etcd.io/etcd/server/v3",
		Packages: []string{"go.etcd.io/etcd/server/v3"}, Output: "etcd"}
	// Kubectl is the command line client.
	Kubectl = Component{
		Name: "kubectl", Module: "k8s.io/kubectl", Stamp: "k8s.io/component-base/version.gitVersion",
		Packages: []string{"."}, Output: "kubectl",
	}
	// Helm installs charts.
	Helm = Component{
		Name: "helm", Module: "helm.sh/helm/v4", Stamp: "helm.sh/helm/v4/internal/version.version",
		Packages: []string{"helm.sh/helm/v4/cmd/helm"}, Output: "helm",
	}
	// Cilium is a pod network: its agent (program daemon), which compiles its eBPF programs with clang, and
	// its CNI plugin.
	Cilium = Component{Name: "cilium", Module: "github.com/cilium/cilium", Packages: []string{"tool"}}
	// Plugins are the CNI reference plugins and cnitool.
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

// Programs returns the directory of the component's programs. If the cache does not have them, it
// builds them first. The present directory must be in this module.
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

// Source returns the directory of the component's source code, which must not be changed.
func (c Component) Source(ctx context.Context) (string, error) {
	module, err := run(ctx, ".", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	return run(ctx, filepath.Join(module, "components", c.Name), "list", "-m", "-f", "{{.Dir}}", c.Module)
}

// build builds the programs into dir. It builds them elsewhere and renames the directory at the
// end, so that dir is always complete.
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

// version returns the component's version, for example "v1.2.3".
func (c Component) version(ctx context.Context, source string) (string, error) {
	args := []string{"list", "-m", "-f", "{{.Version}}"}
	if c.ModFile != "" {
		args = append(args, "-modfile", c.ModFile)
	}
	return run(ctx, source, append(args, c.Module)...)
}

// key returns a hash of everything that the build depends on: the component, the files of its
// directory and the Go version.
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

// run runs the command go in a directory, and returns its output. It turns off cgo, which no
// program here needs.
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
