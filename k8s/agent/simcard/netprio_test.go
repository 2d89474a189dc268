// SPDX-License-Identifier: Apache-2.0

package simcard

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/test/simcard/bed"
)

// TestNetPrio tests a policy that classifies packets by control group of version 1 (net_prio).
// Packets of a pod in the host's network leave in its lane; packets of other programs on the host
// do not. The kernel supports this only in the first network namespace (net/core/netprio_cgroup.c).
// The nodes of k8s/test have other namespaces, so they cannot test it.
func TestNetPrio(t *testing.T) {
	bed.Plug(t, kinds[0].params...)
	root := priorities(t)
	const group = "/kubepods/burstable/podu-hosts/c0ffee"
	w := &world{kind: &kinds[0], wire: &place{name: bed.Peer}, agent: newAgent(t)}
	host, pod := &place{}, &place{addr4: bed.CardAddr, addr6: bed.CardAddr6}
	confined(t, group)
	inGroup(t, root, group, func() { pod.listen(t, port) }) // the pod runs before it is in its lane
	pod.name = "hosts"
	host.listen(t, other)
	w.wire.listen(t, drain)

	p := w.kind.policy()
	p.Spec.Uplink.Force = map[string]string{"classifier": plan.ByNetPrio}
	for i := range p.Spec.Classes {
		p.Spec.Classes[i].HostNetwork = true
	}
	w.start(p)
	empty := bed.Dump(t)
	w.sent("the pod before it is in its lane", pod, port, "default")

	given := w.run(pod, "own", "own-1")
	given.Spec.HostNetwork = true
	sweep := func() {
		t.Helper()
		if err := w.attacher.Sweep(t.Context(), w.given.Here(), func(*corev1.Pod, string) string {
			return group
		}); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	lane := func(when, lane string) {
		t.Helper()
		w.sent(when+": the pod", pod, port, lane)
		w.received(when+": the pod", pod, port, lane)
		w.sent(when+": the host", host, other, "default")
	}
	lane("in its lane", "own-1")
	w.holds("in its lane")

	w.end()
	lane("without an agent", "own-1")
	w.start(p)
	lane("with an agent started anew", "own-1")

	// Another program removes the priority, and the keeper restores it.
	bed.Write(t, filepath.Join(root+group, priorityMap), bed.Dev+" 0")
	w.sent("the pod whose priority is gone", pod, port, "default")
	if views, err := w.applier.Look(t.Context()); err != nil || len(views) != 1 || len(views[0].Drifts) == 0 {
		t.Errorf("that the priority is gone is not seen: %+v, %v", views, err)
	}
	if _, err := w.applier.Repair(t.Context(), w.applier.Config, func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	lane("with its priority put back", "own-1")

	w.given.Forget(pod.name)
	sweep()
	lane("after its end", "default")
	same(t, "after the pod's end", empty)
	for line := range strings.Lines(bed.Read(t, filepath.Join(root+group, priorityMap))) {
		if f := strings.Fields(line); f[0] == bed.Dev && f[1] != "0" {
			t.Errorf("the group's priority is still %s", f[1])
		}
	}
}

// priorityMap is the controller's file in each group, with priorities by device.
const priorityMap = "net_prio.ifpriomap"

// priorities mounts the controller net_prio and returns the directory. After the unmount, the
// hierarchy stays in the kernel if it still has groups. This is harmless: the guest ends with the
// suite.
func priorities(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "cgroup", 0, "net_prio"); err != nil {
		t.Fatalf("mount net_prio of version 1: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil { // a client of the kernel still has it open
			t.Error(err)
		}
	})
	return dir
}

// confined makes a control group with the controller cpuset in the hierarchy of version 2. It has
// the same path as in version 1, as a container's groups have.
func confined(t *testing.T, group string) {
	t.Helper()
	const root = "/sys/fs/cgroup"
	at := root
	for name := range strings.SplitSeq(strings.TrimPrefix(group, "/"), "/") {
		bed.Write(t, filepath.Join(at, "cgroup.subtree_control"), "+cpuset")
		at = filepath.Join(at, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { removed(t, root, at) })
}

// inGroup makes a control group below root, and runs f on a thread that stays in the group. Sockets
// that f makes belong to the group. When a thread enters a group, all sockets that its process has
// then get into this group too (net/core/netprio_cgroup.c: net_prio_attach). So make sockets
// outside the group after inGroup.
func inGroup(t *testing.T, root, group string, f func()) {
	t.Helper()
	dir := root + group
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// If f ran on the process's first thread, this thread still exists and is in the group.
		for id := range strings.FieldsSeq(bed.Read(t, filepath.Join(dir, "tasks"))) {
			bed.Write(t, filepath.Join(root, "tasks"), id)
		}
		removed(t, root, dir)
	})
	done := make(chan error)
	go func() {
		var err error
		defer func() { done <- err }() // runs also if f fails the test, which ends this goroutine
		runtime.LockOSThread()         // never unlocked, so the thread ends with the goroutine
		if err = os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0); err == nil {
			f()
		}
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// removed removes a control group and its parents below root.
func removed(t *testing.T, root, dir string) {
	t.Helper()
	for ; dir != root; dir = filepath.Dir(dir) {
		if err := unix.Rmdir(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
