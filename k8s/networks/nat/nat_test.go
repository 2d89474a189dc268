// SPDX-License-Identifier: Apache-2.0

package nat

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/networks/reach"
	"github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/k8s/policy"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

// within runs f on a thread in the named network namespace, and waits for its end.
func within(t *testing.T, name string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := netns.GetFromName(name)
		if err == nil {
			err = errors.Join(netns.Set(h), h.Close())
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in %s: %v", name, err)
	}
}

// send returns a function that sends one UDP datagram.
func send(from, to string) func() error {
	return func() error {
		c, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))}).Dial("udp", to)
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return errors.Join(err, c.Close())
	}
}

// redis returns a pod with lane l. The lane has the pod's UDP ports 4990 to 5000, packets to remote
// port 53, and the given frontends.
func redis(frontends ...string) lanes.Attachment {
	own := []netip.Prefix{netip.MustParsePrefix("10.244.0.5/32"), netip.MustParsePrefix("fd00::5/128")}
	a := lanes.Attachment{
		Namespace: "default", Pod: "redis", UID: "u", Addrs: []netip.Addr{own[0].Addr(), own[1].Addr()},
		Grants: []pods.Grant{{Container: "c", Lane: "l"}},
		Members: []policy.Member{
			{Name: "a", Lane: "l", Protocol: "udp", Addrs: own, Ports: []string{"4990-5000"}},
			{Name: "b", Lane: "l", Protocol: "udp", Addrs: own, RemotePorts: []string{"53"}},
		},
	}
	for _, s := range frontends {
		ap := netip.MustParseAddrPort(s)
		a.Members = append(a.Members, policy.Member{
			Name: pods.FrontendPrefix + s, Lane: "l", Protocol: "udp",
			Addrs: []netip.Prefix{netip.PrefixFrom(ap.Addr(), ap.Addr().BitLen())}, Ports: []string{"30500"},
		})
	}
	return a
}

// TestTranslated sends packets between a pod and a host, through a node that translates them by
// nftables or iptables. It checks that Find reports those that are outside the pod's lane.
func TestTranslated(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	for _, command := range []string{"nft", "iptables", "ip6tables"} {
		if _, err := exec.LookPath(command); err != nil {
			t.Skip(err)
		}
	}
	vethtest.IP(t, `link set lo up
		link add up0 type veth peer name wire0
		netns add wire
		netns add pod
		link set wire0 netns wire
		link set up0 up
		addr add 192.0.2.1/24 dev up0
		addr add 2001:db8::1/64 dev up0 nodad
		-n wire link set wire0 up
		-n wire addr add 192.0.2.2/24 dev wire0
		-n wire addr add 2001:db8::2/64 dev wire0 nodad
		-n wire route add 10.244.0.0/24 via 192.0.2.1
		-n wire route add fd00::/64 via 2001:db8::1
		link add veth0 type veth peer name eth0 netns pod
		link set veth0 up
		addr add 10.244.0.1/24 dev veth0
		addr add fd00::1/64 dev veth0 nodad
		-n pod link set eth0 up
		-n pod addr add 10.244.0.5/24 dev eth0
		-n pod addr add fd00::5/64 dev eth0 nodad
		-n pod route add default via 10.244.0.1
		-n pod route add default via fd00::1
		route add 10.245.0.0/24 dev veth0`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0\nlink del veth0\nnetns del wire\nnetns del pod") })
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(file, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	run := func(t *testing.T, line string) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	// The rules alone give no finding: the first case sends no packet.
	run(t, `nft 'table inet t {
		chain pre { type nat hook prerouting priority dstnat;
			udp dport 30500 dnat ip to 10.244.0.5:5000;
			udp dport 30600 dnat ip to 10.244.0.5:5999;
		}
		chain post { type nat hook postrouting priority srcnat;
			ip saddr 10.244.0.0/24 ip daddr { 192.0.2.2, 10.245.0.9 } masquerade;
		}
	}'`)
	uplink, err := reach.Through([]string{"up0"})
	if err != nil {
		t.Fatal(err)
	}
	masqueraded := Finding{Namespace: "default", Pod: "redis", UID: "u", Container: "c", Lane: "l", Protocol: "udp",
		Remote: netip.MustParseAddr("192.0.2.2")}
	behind := masqueraded
	behind.Frontend = netip.MustParseAddrPort("192.0.2.1:30500")
	masqueraded6 := masqueraded
	masqueraded6.Remote = netip.MustParseAddr("2001:db8::2")
	for _, c := range []struct {
		name  string
		rules string
		in    string
		send  func() error
		pod   lanes.Attachment
		want  []Finding
	}{
		{"nothing sent", "", "", nil, redis(), nil},
		{"another port of the pod", "", "pod", send("10.244.0.5:6000", "192.0.2.2:9"), redis(), nil},
		{"nft: masquerade", "", "pod", send("10.244.0.5:5000", "192.0.2.2:9"), redis(), []Finding{masqueraded}},
		{"by the other side's port", "", "pod", send("10.244.0.5:6001", "192.0.2.2:53"), redis(),
			[]Finding{masqueraded}},
		{"to the node itself", "", "pod", send("10.244.0.5:5000", "192.0.2.1:9"), redis(), nil},
		{"masquerade that does not leave by the card", "", "pod", send("10.244.0.5:5000", "10.245.0.9:9"), redis(),
			nil},
		{"not translated", "", "wire", send("192.0.2.2:7000", "10.244.0.5:5000"), redis(), nil},
		{"nft: a node port", "", "wire", send("192.0.2.2:7001", "192.0.2.1:30500"), redis(), []Finding{behind}},
		{"a frontend that the lane knows", "", "wire", send("192.0.2.2:7002", "192.0.2.1:30500"),
			redis("192.0.2.1:30500"), nil},
		{"a node port of no lane's", "", "wire", send("192.0.2.2:7003", "192.0.2.1:30600"), redis(), nil},
		{"iptables: masquerade",
			"nft delete table inet t; iptables -t nat -A POSTROUTING -s 10.244.0.0/24 -o up0 -j MASQUERADE", "pod",
			send("10.244.0.5:4999", "192.0.2.2:9"), redis(), []Finding{masqueraded}},
		{"ip6tables: masquerade", "ip6tables -t nat -A POSTROUTING -s fd00::/64 -o up0 -j MASQUERADE", "pod",
			send("[fd00::5]:5000", "[2001:db8::2]:9"), redis(), []Finding{masqueraded6}},
		{"iptables: a node port, masqueraded too",
			"iptables -t nat -A PREROUTING -p udp --dport 30500 -j DNAT --to 10.244.0.5:5000; iptables -t nat -A " +
				"POSTROUTING -d 10.244.0.5 -j MASQUERADE",
			"wire", send("192.0.2.2:7004", "192.0.2.1:30500"), redis(), []Finding{behind}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, "true; "+c.rules)
			if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
				t.Fatal(err)
			}
			if c.send != nil {
				within(t, c.in, c.send)
			}
			got, err := Find(Flows, []lanes.Attachment{c.pod}, uplink)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b netip.Addr) bool {
				return a == b
			}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestNone checks that the table of connections is skipped only if their count is known to be 0.
func TestNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "count")
	if none(file) {
		t.Error("a kernel that says nothing is taken for one that tracks nothing")
	}
	for text, want := range map[string]bool{"0\n": true, "1\n": false, "10\n": false, "": false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := none(file); got != want {
			t.Errorf("count %q: none %t", text, got)
		}
	}
}

func TestMessage(t *testing.T) {
	front := netip.MustParseAddrPort("[2001:db8::7]:53")
	for want, f := range map[string]Finding{
		"to 198.51.100.7 leave with the node's address": {Lane: "l", Remote: netip.MustParseAddr("198.51.100.7")},
		"the answers of 198.51.100.8 are not": {Lane: "l", Remote: netip.MustParseAddr("198.51.100.8"),
			Sent: true},
		"connections to [2001:db8::7]:53/UDP come to the pod, but they are not in its lane l, because": {Lane: "l",
			Protocol: "udp", Frontend: front},
		"only their answers are in its lane l, because": {Lane: "l", Protocol: "udp", Frontend: front, Sent: true},
		"set services.enabled=true in niclane's chart":  {Lane: "l", Protocol: "tcp", Frontend: front},
	} {
		if got := f.Message(false); !strings.Contains(got, want) {
			t.Errorf("got %s, want something with %s", got, want)
		}
	}
	f := Finding{Lane: "l", Protocol: "udp", Frontend: front}
	if got := f.Message(true); !strings.Contains(got, "Services that select the pod") ||
		strings.Contains(got, "services.enabled") {
		t.Errorf("where Services are read: %s", got)
	}
}

// TestOutside checks which packets are outside lanes. If the classifier sees addresses before
// translation, sent packets never are. Received packets are only if the lanes steer packets.
func TestOutside(t *testing.T) {
	found := []Finding{{Lane: "a"}, {Lane: "b", Frontend: netip.MustParseAddrPort("192.0.2.1:30379")}}
	half := slices.Clone(found)
	half[0].Sent, half[1].Sent = true, true
	for _, c := range []struct {
		sees, steered bool
		want          []Finding
	}{{false, false, found}, {false, true, found}, {true, true, half}, {true, false, nil}} {
		if got := Outside(found, c.sees, c.steered); !slices.Equal(got, c.want) {
			t.Errorf("sees %v, steered %v: %+v, want %+v", c.sees, c.steered, got, c.want)
		}
	}
	if found[0].Sent {
		t.Error("what was given is changed")
	}
}

// TestMemory checks that Add returns a finding only once, and that the finding stays for the time
// Remembered after it was last seen.
func TestMemory(t *testing.T) {
	var m Memory
	now := time.Unix(0, 0)
	f := Finding{Namespace: "default", Pod: "a", Lane: "l", Remote: netip.MustParseAddr("192.0.2.2")}
	other := f
	other.Remote = netip.MustParseAddr("192.0.2.3")
	for i, step := range []struct {
		after   time.Duration
		found   []Finding
		fresh   int
		changed bool
		text    string
	}{
		{0, nil, 0, false, ""},
		{time.Minute, []Finding{f}, 1, true, "pod default/a, lane l: its packets are masqueraded"},
		{time.Minute, []Finding{other}, 0, false, "pod default/a, lane l: its packets are masqueraded"},
		{Remembered, nil, 0, false, "pod default/a, lane l: its packets are masqueraded"},
		{time.Second, nil, 0, true, ""},
		{time.Minute, []Finding{f}, 1, true, "pod default/a, lane l: its packets are masqueraded"},
	} {
		now = now.Add(step.after)
		fresh, changed := m.Add(now, step.found)
		if len(fresh) != step.fresh || changed != step.changed || m.String() != step.text {
			t.Errorf("step %d: %d new, changed %v, %q; want %+v", i, len(fresh), changed, m.String(), step)
		}
	}
}

func FuzzDecode(f *testing.F) {
	ip := append(attr(1, []byte{192, 0, 2, 1}), attr(2, []byte{192, 0, 2, 2})...)
	proto := append(attr(1, []byte{17}), append(attr(2, []byte{0, 53}), attr(3, []byte{1, 0})...)...)
	f.Add(append(make([]byte, 4), append(attr(1|0x8000, append(attr(1|0x8000, ip), attr(2|0x8000, proto)...)),
		attr(3, []byte{0, 0, 0, 16})...)...))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _, _ = decode(b) })
}

// attr returns the bytes of a netlink attribute.
func attr(typ uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, typ), value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}
