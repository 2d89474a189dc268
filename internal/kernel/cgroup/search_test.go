// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"slices"
	"testing"

	"github.com/niclane/niclane/lane/device"
)

const id = "4f1d8e6b2c9a7053e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8"

func TestNamesContainer(t *testing.T) {
	for base, want := range map[string]bool{
		id: true, "docker-" + id + ".scope": true, "libpod-" + id + ".scope": true,
		"cri-containerd-" + id + ".scope": true,
		"crio-" + id:                      true, "libpod-" + id: true, "crun-" + id + ".scope": true,
		"kubepods-burstable-pod0a1b_2c3d.slice:cri-containerd:" + id: true, "system.slice:docker:" + id: true,
		"libpod-conmon-" + id + ".scope": false, "crio-conmon-" + id + ".scope": false, "crio-conmon-" + id: false,
		"docker.service": false, "4f1d8e6b2c9a": false, "kubepods.slice:cri-containerd:" + id[1:] + "0": false,
	} {
		for _, given := range []string{id, id[:12]} {
			if got := NamesContainer(base, given); got != (want || base == given) {
				t.Errorf("%s, by %s: %v", base, given, got)
			}
		}
	}
	if NamesContainer(id, id[:8]) || NamesContainer(id, "") || !NamesContainer("web", "web") ||
		!NamesContainer("my-web", "my-web") || NamesContainer("my-web", "web") {
		t.Error("short IDs")
	}
}

// TestSearch finds a container's group in each place where kubelet and the runtime may put it:
// below the roots of kind, below --cgroup-root, and with containerd without SystemdCgroup.
func TestSearch(t *testing.T) {
	for _, where := range []string{
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c3d.slice/cri-containerd-" + id +
			".scope",
		"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod0a1b_2c3d.slice/cri-containerd-" + id + ".scope",
		"/container.slice/container-kubepods.slice/container-kubepods-pod0a1b_2c3d.slice/crio-" + id + ".scope",
		"/system.slice/containerd.service/kubepods-burstable-pod0a1b_2c3d.slice:cri-containerd:" + id,
		"/kubepods/burstable/pod0a1b-2c3d/" + id,
	} {
		v1, v2 := t.TempDir(), t.TempDir()
		for _, dir := range []string{v1 + where, v1 + where + "/" + id, v2 + "/other"} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		c := device.Cgroup{V2: v2, V1: map[string]string{"net_prio": v1}}
		root, got, err := Search(c, func(base string) bool { return NamesContainer(base, id) })
		if root != v1 || !slices.Equal(got, []string{where}) || err != nil {
			t.Errorf("found %q in %s, %v, want %s", got, root, err, where)
		}
		if root, got, err := Search(c, func(base string) bool { return base == "nowhere" }); root != "" || got != nil ||
			err != nil {
			t.Errorf("nowhere: %q in %s, %v", got, root, err)
		}
	}
}
