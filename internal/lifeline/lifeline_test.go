// SPDX-License-Identifier: Apache-2.0

package lifeline

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

func TestStacked(t *testing.T) {
	link := func(index, parent, master, ns int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: string(rune('a' + index)), Index: index, ParentIndex: parent,
			MasterIndex: master, NetNsID: ns}
	}
	links := []netlink.Link{
		&netlink.Bridge{LinkAttrs: link(9, 0, 0, -1)},
		&netlink.Vlan{LinkAttrs: link(8, 7, 9, -1)}, // in the bridge
		&netlink.Bond{LinkAttrs: link(7, 0, 0, -1)},
		&netlink.Device{LinkAttrs: link(1, 0, 7, -1)}, // in the bond
		&netlink.Device{LinkAttrs: link(2, 0, 0, -1)},
		&netlink.Veth{LinkAttrs: link(3, 2, 0, -1)},
		&netlink.Vlan{LinkAttrs: link(4, 2, 0, 0)}, // its parent is in another namespace
		&netlink.Macvlan{LinkAttrs: link(5, 2, 0, -1)},
	}
	for dev, want := range map[string][]int{
		"b": {1, 7, 8, 9},
		"c": {2, 5},
		"j": {9},
		"z": nil,
	} {
		got := slices.Sorted(maps.Keys(stacked(dev, links)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("on %s (-want +got):\n%s", dev, diff)
		}
	}
}

func TestDefaultRoute(t *testing.T) {
	for name, c := range map[string]struct {
		route string
		on    bool
	}{
		"none":             {"route add 10.9.0.0/16 via 10.8.0.2", false},
		"plain":            {"route add default via 10.8.0.2", true},
		"halves":           {"route add 0.0.0.0/1 via 10.8.0.2", true},
		"another table":    {"route add default via 10.8.0.2 table 77", true},
		"several hops":     {"route add default nexthop via 10.8.0.2 nexthop via 10.7.0.2", true},
		"another device":   {"route add default via 10.7.0.2", false},
		"a next hop by ID": {"nexthop add id 5 via 10.8.0.2 dev v0\nroute add default nhid 5", true},
		"of IPv6":          {"-6 route add default via fd08::2", true},
		"of IPv6, 2000::":  {"-6 route add 2000::/3 via fd08::2", true},
		"unreachable":      {"route add unreachable default", false},
	} {
		t.Run(name, func(t *testing.T) {
			vethtest.Run(t, 1, func(t *testing.T) {
				vethtest.IP(t, `link add other type veth peer name other1
link set other up
link set other1 up
addr add 10.8.0.1/24 dev v0
addr add fd08::1/64 dev v0 nodad
addr add 10.7.0.1/24 dev other
`+c.route)
				want := []string(nil)
				if c.on {
					want = []string{"the default route"}
				}
				if diff := cmp.Diff(want, On(vethtest.Dev)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestSessions: sessions finds the connection over which a command was started, from
// SSH_CONNECTION or from a socket of an ancestor process. It ignores sockets in other network
// namespaces.
func TestSessions(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"SSH_CONNECTION=192.0.2.7 50000 192.0.2.1 22"}
	must.Do(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	const login = "this login, from 192.0.2.7"
	own := fmt.Sprintf("the connection to 127.0.0.1 of lifeline.test (process %d), which started this command",
		os.Getpid())
	told := func(t *testing.T, connected bool) {
		var got []string
		for _, s := range sessions(cmd.Process.Pid) {
			got = append(got, s.String())
			if s.process == "" && s.local != netip.MustParseAddrPort("192.0.2.1:22") {
				t.Errorf("the login's own end is %s, want 192.0.2.1:22", s.local)
			}
		}
		if !slices.Contains(got, login) || slices.Contains(got, own) != connected {
			t.Errorf("got %q, want %q, and %q: %v", got, login, own, connected)
		}
	}
	vethtest.Run(t, 1, func(t *testing.T) {
		vethtest.IP(t, "link set lo up")
		told(t, false)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.Do(t, err)
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		must.Do(t, err)
		defer c.Close()
		told(t, true)
		vethtest.Run(t, 1, func(t *testing.T) { told(t, false) })
	})
}
