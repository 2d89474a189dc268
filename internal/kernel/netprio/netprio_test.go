// SPDX-License-Identifier: Apache-2.0

package netprio

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/count"
	"github.com/niclane/niclane/lane/device"
)

// senderArg is an argument of the test program: "senderArg ADDRESS" makes it send datagrams.
const senderArg = "test-sender"

func TestMain(m *testing.M) {
	vethtest.Main(m, (*testing.M).Run, map[string]func([]string) error{senderArg: sender})
}

// sender makes a socket. For each line on its standard input, it sends a datagram and then
// prints "ready".
func sender(args []string) error {
	c, err := net.Dial("udp4", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	var line string
	for {
		fmt.Println("ready")
		if _, err := fmt.Scanln(&line); err != nil {
			return nil // the test has ended
		}
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
	}
}

func TestParse(t *testing.T) {
	got, err := parse("lo 0\neth0 65552\nwlan:0 4294967295\n")
	if diff := cmp.Diff(map[string]uint32{"lo": 0, "eth0": 0x10010, "wlan:0": 0xffffffff}, got); err != nil ||
		diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	for _, bad := range []string{"lo", "lo x\n", "lo -1\n", "lo 4294967296\n", "lo 1 2\n"} {
		if got, err := parse(bad); err == nil {
			t.Errorf("parse(%q) = %v, want an error", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("lo 0\neth0 65552\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = parse(text) })
}

// hierarchy mounts net_prio and makes a group. The test unmounts it at the end.
func hierarchy(t *testing.T) (c *Client, dir, group string) {
	t.Helper()
	dir = t.TempDir()
	known, err := os.ReadFile("/proc/cgroups")
	must.Do(t, err)
	if !strings.Contains(string(known), "\nnet_prio\t") {
		t.Skip("/proc/cgroups has no net_prio")
	}
	if err := unix.Mount("none", dir, "cgroup", 0, "net_prio"); errors.Is(err, unix.EPERM) {
		t.Skipf("mount net_prio of cgroup v1: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	before := groups(t)
	group = fmt.Sprintf("/niclane-netprio-%d", os.Getpid())
	must.Do(t, os.Mkdir(dir+group, 0o755))
	t.Cleanup(func() {
		if err := os.Remove(dir + group); err != nil {
			t.Error(err)
		}
		// A hierarchy that still has a group, even a dying one, outlives its last mount
		// (kernel/cgroup/cgroup.c: cgroup_kill_sb).
		for deadline := time.Now().Add(time.Minute); groups(t) > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the group does not go")
			}
		}
	})
	c, err = Open(dir)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c, dir, group
}

// groups returns how many groups the hierarchy has.
func groups(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/cgroups")
	must.Do(t, err)
	for line := range strings.Lines(string(b)) {
		var hierarchy int
		if _, err := fmt.Sscanf(line, "net_prio %d %d", &hierarchy, &n); err == nil {
			return n
		}
	}
	t.Fatal("/proc/cgroups has no net_prio")
	return 0
}

func TestReadsBack(t *testing.T) {
	c, dir, group := hierarchy(t)
	if err := c.Reaches("lo"); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	p := device.CgroupPriority{Cgroup: group, Dev: "lo", Priority: "1:10"}
	vethtest.Absent(t, "at first", c, p)
	last := device.Object(nil)
	for _, priority := range []string{"1:10", "0:8", "ffff:ffff"} {
		p.Priority = priority
		must.Do(t, c.Write(last, p))
		last = p
		if v, err := c.Read(p); err != nil || !device.Equal(v, p) {
			t.Errorf("wrote %v, read %v, %v", p, v, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, group, mapFile)); err != nil ||
		!strings.Contains(string(text), "lo 4294967295\n") {
		t.Errorf("the file is %q, %v", text, err)
	}
	must.Do(t, c.Write(p, nil))
	vethtest.Absent(t, "at last", c, p)
	for _, x := range []struct {
		name string
		p    device.CgroupPriority
		want error
	}{
		{"a group that is not there", device.CgroupPriority{Cgroup: group + "x", Dev: "lo", Priority: "1:10"},
			os.ErrNotExist},
		{"a device that is not there", device.CgroupPriority{Cgroup: group, Dev: "none0", Priority: "1:10"},
			unix.ENODEV},
		{"no priority", device.CgroupPriority{Cgroup: group, Dev: "lo", Priority: "0:"}, unix.EINVAL},
	} {
		must.Refuse(t, x.name, c.Write(nil, x.p), x.want)
	}
	if err := c.Write(nil, device.CgroupPriority{Cgroup: "/../../../../etc", Dev: "lo", Priority: "1:10"}); err == nil {
		t.Error("a path out of the hierarchy was taken")
	}
	if has, err := c.Has(group); !has || err != nil {
		t.Errorf("Has(%s) = %v, %v", group, has, err)
	}
	if has, err := c.Has(group + "x"); has || err != nil {
		t.Errorf("Has of one that is not there = %v, %v", has, err)
	}
}

// TestOtherNamespace: the client refuses to work in another network namespace, where the names
// in the file would mean other devices.
func TestOtherNamespace(t *testing.T) {
	c, _, group := hierarchy(t)
	vethtest.OnOwnThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		p := device.CgroupPriority{Cgroup: group, Dev: "lo", Priority: "1:10"}
		if v, err := c.Read(p); !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("read %v, %v, want EOPNOTSUPP", v, err)
		}
		must.Refuse(t, "write", c.Write(nil, p), unix.EOPNOTSUPP)
	})
}

// TestOnTheWire: packets of an existing socket have the priority while it is set, and packets
// of other sockets do not.
func TestOnTheWire(t *testing.T) {
	c, dir, group := hierarchy(t)
	if err := c.Reaches("lo"); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip(err)
	}
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must.Do(t, err)
	defer server.Close()
	port := uint16(server.LocalAddr().(*net.UDPAddr).Port)
	lo := vethtest.Interface(t, "lo")
	w, err := count.Open(&device.Device{Name: "lo", Index: lo.Index, RxQueues: 1, TxQueues: 1},
		[]count.Lane{{Class: 0x10010, Matches: []device.Match{{Family: 4, Protocol: "udp", RemotePort: port}}}})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip(err) // the kernel has no BTF
	}
	must.Do(t, err)
	defer w.Close()
	in, out := startSender(t, server.LocalAddr().String()), startSender(t, server.LocalAddr().String())
	must.Do(t, os.WriteFile(dir+group+"/cgroup.procs", fmt.Append(nil, in.pid), 0))
	defer in.end()
	defer out.end()
	send := func(s *process) (classed uint64) {
		t.Helper()
		before := classedPackets(t, w)
		for range 10 {
			s.send(t)
		}
		return classedPackets(t, w) - before
	}
	p := device.CgroupPriority{Cgroup: group, Dev: "lo", Priority: "1:10"}
	if n := send(in); n != 0 {
		t.Errorf("before, %d of 10 packets were in the class", n)
	}
	must.Do(t, c.Write(nil, p))
	if n := send(in); n != 10 {
		t.Errorf("%d of 10 packets were in the class", n)
	}
	if n := send(out); n != 0 {
		t.Errorf("of another's, %d of 10 packets were in the class", n)
	}
	must.Do(t, c.Write(p, nil))
	if n := send(in); n != 0 {
		t.Errorf("afterwards, %d of 10 packets were in the class", n)
	}
}

func classedPackets(t *testing.T, w *count.Watcher) (n uint64) {
	t.Helper()
	counts, err := w.Counts()
	must.Do(t, err)
	for _, cell := range counts.Classed {
		if cell.Lane == 1 && cell.Column == 1 {
			n += cell.Packets
		}
	}
	return n
}

// A process sends datagrams by a socket that it opened at its start.
type process struct {
	pid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
}

func startSender(t *testing.T, address string) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", senderArg, address)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	p := &process{pid: cmd.Process.Pid, cmd: cmd, in: in, out: out}
	p.ready(t)
	return p
}

func (p *process) ready(t *testing.T) {
	t.Helper()
	b := make([]byte, 64)
	if n, err := p.out.Read(b); err != nil || string(b[:n]) != "ready\n" {
		t.Fatalf("the sender said %q, %v", b[:n], err)
	}
}

func (p *process) send(t *testing.T) {
	t.Helper()
	if _, err := p.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	p.ready(t)
}

func (p *process) end() {
	p.in.Close()
	_ = p.cmd.Wait()
}
