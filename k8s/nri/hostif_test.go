// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestHostIf finds the host's end of a pod's veth pair, and takes nothing else for it.
func TestHostIf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	pod, other := process(t), process(t)
	if got := hostIf(pod); got != "" {
		t.Errorf("a pod without an interface has %q", got)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "nri-host"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: ifName, PeerNamespace: netlink.NsPid(pod)}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if l, err := netlink.LinkByName("nri-host"); err == nil {
			_ = netlink.LinkDel(l)
		}
	}()
	if got := hostIf(pod); got != "nri-host" {
		t.Errorf("got %q", got)
	}
	// A pair whose other end is not the host's, although the host has that index too.
	elsewhere := process(t)
	attrs.Name = ifName
	attrs.Namespace = netlink.NsPid(elsewhere)
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "other", PeerNamespace: netlink.NsPid(other)}); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{elsewhere, 0, os.Getpid(), 1 << 30} {
		if got := hostIf(pid); got != "" {
			t.Errorf("process %d has %q", pid, got)
		}
	}
}

// process is one in a network namespace of its own, as a pod's are.
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
