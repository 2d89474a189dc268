// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/agent/applier"
	"github.com/niclane/niclane/k8s/agent/attach"
	"github.com/niclane/niclane/k8s/agent/attach/attachtest"
	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/k8s/api/params"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/cni"
	"github.com/niclane/niclane/k8s/networks/reach"
	lanepods "github.com/niclane/niclane/k8s/pods"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/poller"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == poller.Command {
		if err := poller.Main(os.Args[2]); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(vethtest.Isolate(m))
}

// within runs f on a thread in the named network namespace, and waits for its end.
func within(t *testing.T, name string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		h, err := netns.GetFromName(name)
		if err == nil {
			err = netns.Set(h)
			_ = h.Close()
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

// send sends n UDP datagrams from one address and port to another.
func send(from, to string, n int) error { return sendEach(from, to, n, make([]byte, 100)) }

// sendEach does the same with the given payload.
func sendEach(from, to string, n int, payload []byte) error {
	local, err := net.ResolveUDPAddr("udp", from)
	if err != nil {
		return err
	}
	remote, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		return err
	}
	c, err := net.DialUDP("udp", local, remote)
	if err != nil {
		return err
	}
	defer c.Close()
	for sent := 0; sent < n; {
		switch _, err := c.Write(payload); {
		case err == nil:
			sent++
		case !errors.Is(err, unix.ECONNREFUSED): // an earlier datagram was answered by ICMP port unreachable
			return err
		}
	}
	return nil
}

// echo receives UDP datagrams at an address of a network namespace and sends them back. It ends
// when stop is called.
func echo(t *testing.T, in, addr string) (stop func()) {
	t.Helper()
	var c net.PacketConn
	within(t, in, func() (err error) { c, err = net.ListenPacket("udp", addr); return err })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, err = c.WriteTo(b[:n], from)
			}
			if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				t.Error(err)
			}
		}
	}()
	return func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	}
}

func nft(t *testing.T, rules string) {
	t.Helper()
	if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v: %s", rules, err, out)
	}
}

// podNetwork makes the uplink up0 to the network namespace wire, and two pods with routed addresses: the
// namespaces redis and plain.
func podNetwork(t *testing.T) {
	t.Helper()
	vethtest.IP(t, `link set lo up
		link add up0 numtxqueues 8 numrxqueues 8 type veth peer name wire0 numtxqueues 8 numrxqueues 8
		netns add wire
		link set wire0 netns wire
		link set up0 up
		addr add 192.0.2.1/24 dev up0
		addr add 2001:db8::1/64 dev up0 nodad
		-n wire link set lo up
		-n wire link set wire0 up
		-n wire addr add 192.0.2.2/24 dev wire0
		-n wire addr add 2001:db8::2/64 dev wire0 nodad
		-n wire route add 10.244.0.0/24 via 192.0.2.1
		-n wire route add fd00::/64 via 2001:db8::1`)
	t.Cleanup(func() { vethtest.IP(t, "link del up0\nnetns del wire") })
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(file, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, pod := range []string{"redis", "plain"} {
		n := i + 5
		vethtest.IP(t, fmt.Sprintf(`netns add %[1]s
			link add veth%[1]s type veth peer name eth0 netns %[1]s
			link set veth%[1]s up
			addr add 10.244.0.1/32 dev veth%[1]s
			addr add fd00::1/128 dev veth%[1]s nodad
			-n %[1]s link set eth0 up
			-n %[1]s addr add 10.244.0.%[2]d/32 dev eth0
			-n %[1]s addr add fd00::%[2]d/128 dev eth0 nodad
			-n %[1]s route add 10.244.0.1 dev eth0
			-n %[1]s route add default via 10.244.0.1
			-n %[1]s route add fd00::1 dev eth0
			-n %[1]s route add default via fd00::1
			route add 10.244.0.%[2]d dev veth%[1]s
			route add fd00::%[2]d dev veth%[1]s`, pod, n))
		t.Cleanup(func() { vethtest.IP(t, "link del veth"+pod+"\nnetns del "+pod) })
	}
}

// manager returns a running manager of the lanes on up0, and the path of its lanes file.
func manager(t *testing.T) (m *lanes.Manager, file string) {
	t.Helper()
	dir := t.TempDir()
	c := applier.New(filepath.Join(dir, "state"), filepath.Join(dir, "run"), filepath.Join(dir, "k.yaml"))
	if err := os.Mkdir(c.Engine.RunDir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := lanes.New(lanes.Options{
		Name: "n", Path: filepath.Join(dir, "state.json"), RunDir: dir, Config: c.Config, Boot: "b", Applier: c,
		Device: func() (string, error) { return applier.DeviceOf("192.0.2.1") },
		Log:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return m, c.Config
}

// burst is how many packets a test sends at one time.
const burst = 50

// expect calls send, which sends burst packets over up0, and checks that they are in the given lane and in
// no other.
func expect(t *testing.T, m *lanes.Manager, what, lane string, send func()) {
	t.Helper()
	counts := func() map[string]uint64 {
		now, err := observe.Counters("up0")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]uint64{}
		for _, l := range m.Lanes() {
			for _, cl := range now.Classes {
				if cl.ID == l.Class {
					out[l.Name] = cl.Packets
				}
			}
		}
		return out
	}
	before := counts()
	send()
	after := counts()
	for deadline := time.After(10 * time.Second); after[lane]-before[lane] < burst; after = counts() {
		select {
		case <-deadline:
			t.Errorf("%s: %d of %d packets in lane %s", what, after[lane]-before[lane], burst, lane)
			return
		case <-time.After(time.Millisecond):
		}
	}
	for name := range after {
		if got := after[name] - before[name]; name != lane && got >= burst/2 {
			t.Errorf("%s: %d of %d packets in lane %s, want them in %s", what, got, burst, name, lane)
		}
	}
}

// TestTraffic sends packets of pods in network namespaces over a veth uplink, and checks by
// counters which lane they take. It covers IPv4 and IPv6, a declared and an undeclared port, a pod
// without a lane, a pod in the host's network, and a lane that ends.
func TestTraffic(t *testing.T) {
	vethtest.NeedRoot(t)
	podNetwork(t)
	n, _ := manager(t)
	p := &v1alpha1.LanePolicy{}
	p.Name = "p"
	p.Spec.Uplink.LinkRate = "1G"
	p.Spec.Classes = []v1alpha1.Class{
		{Name: "redis", OfferedAs: v1alpha1.OfferedAsResource, Queues: 1,
			Tuning: v1alpha1.Tuning{Rank: 1, Poller: "Interrupt"}},
		{Name: "host", OfferedAs: v1alpha1.OfferedAsResource, Queues: 1, HostNetwork: true,
			Tuning: v1alpha1.Tuning{Rank: 2, Poller: "Interrupt"}},
	}
	n.SetPolicy(t.Context(), p, nil)
	if s := n.Status(); !s.Applied || s.Devices[0] != "up0" {
		t.Fatalf("%+v", s)
	}
	addrs := []netip.Addr{netip.MustParseAddr("10.244.0.5"), netip.MustParseAddr("fd00::5")}
	g := attachtest.NewGiven()
	g.Run("redis", "redis", "redis-0", 5000, addrs...)
	a := &attach.Attacher{Lanes: n, Addrs: func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	}, Kubelet: g, Pods: g, Reachable: reach.OnDevice, Event: func(_, _, _, _, message string) {
		t.Log(message)
	}, Services: func(p *corev1.Pod) []lanepods.Service {
		if p.Name != "redis" {
			return nil
		}
		return []lanepods.Service{{Target: 5000, Frontend: lanepods.Frontend{Ports: params.Ports{Protocol: "udp",
			First: 30500, Last: 30500}}}}
	}, Log: slog.New(slog.DiscardHandler)}
	request := &cni.Request{
		Version: cni.Version, Command: cni.Add, Sandbox: "sb", IfName: "eth0", HostIf: "vethredis",
		Namespace: "default", Pod: "redis", UID: "u-redis", Addrs: addrs,
	}
	began := time.Now()
	if got := a.Handle(t.Context(), request, func() {}); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	t.Logf("put into its lane in %v", time.Since(began))
	// sends checks the lane of packets from a network namespace ("" means the host's).
	sends := func(what, in, from, to, lane string) {
		t.Helper()
		expect(t, n, what, lane, func() {
			if in != "" {
				within(t, in, func() error { return send(from, to, burst) })
			} else if err := send(from, to, burst); err != nil {
				t.Fatal(err)
			}
		})
	}
	sends("the pod's port", "redis", "10.244.0.5:5000", "192.0.2.2:9", "redis-0")
	sends("the pod's port, IPv6", "redis", "[fd00::5]:5000", "[2001:db8::2]:9", "redis-0")
	sends("another port of the pod", "redis", "10.244.0.5:5001", "192.0.2.2:9", "default")
	sends("a pod without a lane", "plain", "10.244.0.6:5000", "192.0.2.2:9", "default")
	sends("the host", "", "192.0.2.1:5000", "192.0.2.2:9", "default")

	if _, err := exec.LookPath("nft"); err != nil {
		t.Log("no nft: what the node translates is not sent")
	} else {
		nft(t, `table ip t {
			chain pre { type nat hook prerouting priority dstnat;
				udp dport { 30500, 30501 } dnat to 10.244.0.5:5000;
			}
			chain post { type nat hook postrouting priority srcnat;
				ip saddr 10.244.0.0/24 udp dport 10 masquerade;
			}
		}`)
		translated := "redis-0"
		if sees, err := applier.SeeTranslated([]string{"up0"}); err != nil {
			t.Fatal(err)
		} else if !sees {
			if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err == nil {
				t.Error("the classifier does not see what addresses were before, though the kernel has BTF")
			}
			translated = "default"
		}
		sends("what the node masquerades", "redis", "10.244.0.5:5000", "192.0.2.2:10", translated)
		sends("another port, masqueraded", "redis", "10.244.0.5:5001", "192.0.2.2:10", "default")
		stop := echo(t, "redis", "10.244.0.5:5000")
		sends("a node port that the lane knows", "wire", "192.0.2.2:7000", "192.0.2.1:30500", "redis-0")
		sends("a node port that it does not know", "wire", "192.0.2.2:7001", "192.0.2.1:30501", translated)
		stop()
		nft(t, "delete table ip t")
	}

	g.Run("hostpod", "host", "host-0", 5000, netip.MustParseAddr("192.0.2.1")).Spec.HostNetwork = true
	if err := a.Sweep(t.Context(), g.Here(), func(*corev1.Pod, string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	sends("a pod of the host's network", "", "192.0.2.1:5000", "192.0.2.2:9", "host-0")
	sends("the first pod still", "redis", "10.244.0.5:5000", "192.0.2.2:9", "redis-0")

	if got := a.Handle(t.Context(), &cni.Request{Version: cni.Version, Command: cni.Del, Sandbox: "sb",
		IfName: "eth0"}, func() {}); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	sends("after the pod's end", "redis", "10.244.0.5:5000", "192.0.2.2:9", "default")
	n.SetPolicy(t.Context(), nil, nil)
	if s := n.Status(); s.Applied { // the host's pod is still in its lane
		t.Errorf("the class of a pod that runs was taken away: %+v", s)
	}
	if err := a.Lanes.Keep(t.Context(), func(lanes.Attachment) bool { return false }); err != nil {
		t.Fatal(err)
	}
	n.SetPolicy(t.Context(), nil, nil)
	if out := vethtest.Qdiscs(t, "up0"); strings.Contains(out, "htb") || strings.Contains(out, "clsact") {
		t.Errorf("left behind: %s", out)
	}
}
