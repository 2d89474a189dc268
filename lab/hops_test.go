// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestHopNames: the hops are named after what is configured. They are in the order in which a
// request and its answer pass them.
func TestHopNames(t *testing.T) {
	l := raise(t, Config{Queues: 2})
	r, err := l.Hops()
	must.Do(t, err)
	defer r.Close()
	leaf := regexp.MustCompile("^sut qdisc (fq_codel|fq|pfifo_fast) at") // the kernel's choice
	check := func(sut ...string) {
		t.Helper()
		hops, err := r.Read()
		must.Do(t, err)
		var got []string
		for _, h := range hops {
			got = append(got, leaf.ReplaceAllString(h.Name, "sut qdisc KIND at"))
		}
		want := slices.Concat([]string{"switch to sut", "host backlog", "card rx rings"}, sut,
			[]string{"card tx ring 0", "card tx ring 1"})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("hops (-want +got):\n%s", diff)
		}
	}
	check("sut qdisc mq 8001:", "sut qdisc KIND at 8001:2", "sut qdisc KIND at 8001:1")
	for _, argv := range [][]string{
		{"tc", "qdisc", "replace", "dev", "lane0", "root", "handle", "1:", "htb", "default", "2"},
		{"tc", "class", "add", "dev", "lane0", "parent", "1:", "classid", "1:10", "htb", "rate", "1mbit"},
	} {
		run(t, l, SUT, Options{}, argv...)
	}
	check("sut qdisc htb 1:", "sut class 1:10")
}

// TestHops: if the link is too slow for the traffic, the switch's buffer becomes full and drops
// packets. The hops show this.
func TestHops(t *testing.T) {
	l := raise(t, Config{LinkRate: 1e6, LinkBurst: 2000, SwitchBuffer: 20000})
	r, err := l.Hops()
	must.Do(t, err)
	defer r.Close()
	client := datagrams(t, l, Client, "")
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.Config.IPv4(SUT), 9))
	flood := func() {
		t.Helper()
		for range 100 {
			if _, err := client.WriteTo(make([]byte, 1000), to); err != nil {
				t.Fatal(err)
			}
		}
	}
	flood()
	var hop Hop
	eventually(t, func() string {
		hops, err := r.Read()
		if err != nil {
			return err.Error()
		}
		if len(hops) != 4+2*l.Config.Queues || hops[0].Name != "switch to sut" || hops[1].Packets == 0 {
			return fmt.Sprintf("hops: %+v", hops)
		}
		if hop = hops[0]; hop.Drops == 0 || hop.Backlog == 0 {
			return fmt.Sprintf("100 datagrams of 1000 bytes on a link of 1 Mbit/s with 20000 bytes of buffer: %+v", hop)
		}
		return ""
	})
	if hop.Backlog > 20000 {
		t.Errorf("backlog %d bytes in a buffer of 20000", hop.Backlog)
	}
	must.Do(t, l.SetSwitchBuffer(40000))
	flood()
	eventually(t, func() string {
		hops, err := r.Read()
		if err != nil {
			return err.Error()
		}
		if hops[0].Backlog <= 20000 {
			return fmt.Sprintf("backlog %d after the buffer grew to 40000 bytes", hops[0].Backlog)
		}
		return ""
	})
}
