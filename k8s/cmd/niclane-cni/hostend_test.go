// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
)

// TestHostEnd checks which of the interfaces that different plugins list is taken as the host's
// end.
func TestHostEnd(t *testing.T) {
	pod := &current.Interface{Name: "eth0", Sandbox: "/nowhere"}
	for want, outside := range map[string][]string{
		"eni0123456789a": {"eni0123456789a"}, "azv0123456": {"azv0123456"}, "cali9": {"cali9"},
		"": {"cni0", "veth77"},
	} {
		all := []*current.Interface{pod}
		for _, name := range outside {
			all = append(all, &current.Interface{Name: name})
		}
		if got := hostEnd(all, "/nowhere", "eth0"); got != want {
			t.Errorf("%q: %q, want %q", outside, got, want)
		}
	}
}

// TestHostEndByPeer checks that the host's end is found as the peer of the pod's interface, also if
// the plugins' list does not have it.
func TestHostEndByPeer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	p := exec.Command("sleep", "600")
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatalf("no network namespace: %v", err)
	}
	defer func() { _ = p.Process.Kill(); _ = p.Wait() }()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "hostend-test"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0",
		PeerNamespace: netlink.NsPid(p.Process.Pid)}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if l, err := netlink.LinkByName(attrs.Name); err == nil {
			_ = netlink.LinkDel(l)
		}
	}()
	netns := fmt.Sprintf("/proc/%d/ns/net", p.Process.Pid)
	for _, all := range [][]*current.Interface{nil, {{Name: "veth1"}, {Name: "eth0", Sandbox: netns}}} {
		if got := hostEnd(all, netns, "eth0"); got != attrs.Name {
			t.Errorf("%d interfaces: %q, want %q", len(all), got, attrs.Name)
		}
	}
}
