// SPDX-License-Identifier: Apache-2.0

package hostif

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

const ifName = "eth0"

// TestHostIf checks that the host's end of a pod's veth pair is found, and no other interface.
func TestHostIf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	pod, other := process(t), process(t)
	if got := OfProcess(pod, ifName); got != "" {
		t.Errorf("a pod without an interface has %q", got)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "hostif-host"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: ifName,
		PeerNamespace: netlink.NsPid(pod)}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, name := range []string{"hostif-host", "hostif-second"} {
			if l, err := netlink.LinkByName(name); err == nil {
				_ = netlink.LinkDel(l)
			}
		}
	}()
	if got := OfProcess(pod, ifName); got != "hostif-host" {
		t.Errorf("got %q", got)
	}
	if got := OfPath(fmt.Sprintf("/proc/%d/ns/net", pod), ifName); got != "hostif-host" {
		t.Errorf("by path: %q", got)
	}
	if got := OfPath("/nowhere", ifName); got != "" {
		t.Errorf("by a path that is not there: %q", got)
	}
	// The ends of this pair are in two namespaces, neither of them the host's. The host has a device
	// with the same index as one end, and a second pair leads to the host. Neither must be taken.
	elsewhere := process(t)
	host, err := netlink.LinkByName("hostif-host")
	if err != nil {
		t.Fatal(err)
	}
	second := netlink.NewLinkAttrs()
	second.Name = "hostif-second"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: second, PeerName: "second",
		PeerNamespace: netlink.NsPid(elsewhere)}); err != nil {
		t.Fatal(err)
	}
	// This call also makes the kernel give the host's namespace an ID in the pod's namespace.
	if got := OfProcess(elsewhere, "second"); got != "hostif-second" {
		t.Errorf("got %q", got)
	}
	attrs.Name, attrs.Index, attrs.Namespace = "other", host.Attrs().Index, netlink.NsPid(other)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: ifName,
		PeerNamespace: netlink.NsPid(elsewhere)}); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{elsewhere, 0, os.Getpid(), 1 << 30} {
		if got := OfProcess(pid, ifName); got != "" {
			t.Errorf("process %d has %q", pid, got)
		}
	}
}

// process starts a process in its own network namespace, like a pod's.
func process(t *testing.T) (pid int) {
	t.Helper()
	p := exec.Command("sleep", "600")
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatalf("no network namespace: %v", err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p.Process.Pid
}
