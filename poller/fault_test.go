// SPDX-License-Identifier: Apache-2.0

package poller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/iouring"
	"github.com/niclane/niclane/internal/kernel/netdev"
	"github.com/niclane/niclane/internal/kernel/sched"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/poller"
)

// begin starts a poller.
func begin(t testing.TB, p device.Poller) {
	t.Helper()
	must.Do(t, client.Write(nil, p))
}

func openNetdev(t testing.TB, et *ethtool.Client) *netdev.Client {
	t.Helper()
	nd, err := netdev.Open(et)
	must.Do(t, err)
	return nd
}

// frames sends frames from the other end of the veth and counts those that arrive.
type frames struct {
	t        testing.TB
	out, in  int
	received map[string]int
	sent     int
}

// etherType is one of the EtherTypes for experiments (IEEE 802).
const etherType = 0x88b5

// newFrames opens the sockets. It disables segmentation offload at the other end, because a veth
// gives packets to a NAPI only without it.
func newFrames(t testing.TB, et *ethtool.Client) *frames {
	t.Helper()
	for _, name := range []string{"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation",
		"tx-tcp-mangleid-segmentation", "tx-tcp-accecn-segmentation"} {
		if err := et.SetFeature(device.Feature{Dev: vethtest.Peer, Name: name}); err != nil &&
			!errors.Is(err, unix.EOPNOTSUPP) && !strings.Contains(err.Error(), "no feature") {
			t.Log(err)
		}
	}
	f := &frames{t: t, received: map[string]int{}}
	f.out = packetSocket(t, vethtest.Peer)
	f.listen()
	return f
}

// listen opens a new receiving socket, as an application does that restarts.
func (f *frames) listen() {
	if f.in > 0 {
		unix.Close(f.in)
	}
	f.in = packetSocket(f.t, vethtest.Dev)
	if err := unix.SetsockoptTimeval(f.in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		f.t.Error(err)
	}
}

func (f *frames) close() { unix.Close(f.in); unix.Close(f.out) }

func packetSocket(t testing.TB, dev string) int {
	t.Helper()
	link, err := net.InterfaceByName(dev)
	if err != nil {
		t.Error(err)
		return -1
	}
	big := uint16(etherType>>8 | etherType&0xff<<8)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(big))
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: big, Ifindex: link.Index})
	}
	if err != nil {
		t.Error(err)
	}
	return fd
}

// exchange sends n frames one after the other. It sends the next frame when the last one has
// arrived. It reports whether every frame has arrived exactly once.
func (f *frames) exchange(n int) bool {
	f.t.Helper()
	buf := make([]byte, 256)
	for range n {
		f.sent++
		text := fmt.Sprintf("frame %d", f.sent)
		frame := append([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5"), text...)
		frame = append(frame, make([]byte, 60-len(frame))...)
		if _, err := unix.Write(f.out, frame); err != nil {
			f.t.Errorf("send: %v", err)
			return false
		}
		got, err := unix.Read(f.in, buf)
		for err == unix.EINTR { // a signal: a child process has ended
			got, err = unix.Read(f.in, buf)
		}
		if err != nil {
			f.t.Errorf("%s does not arrive: %v", text, err)
			return false
		}
		if !strings.HasPrefix(string(buf[14:got]), text+"\x00") {
			f.t.Errorf("sent %s, got %q", text, buf[14:got])
			return false
		}
	}
	return true
}

// configure changes the NAPI configurations of a poller's queues and returns the earlier ones.
func configure(t testing.TB, et *ethtool.Client, p device.Poller, change func(*device.NAPIConfig)) []device.Object {
	t.Helper()
	nd := openNetdev(t, et)
	defer nd.Close()
	var before []device.Object
	for _, q := range p.Queues {
		was, err := nd.Read(device.NAPIConfig{Dev: p.Dev, Queue: q})
		cfg, ok := was.(device.NAPIConfig)
		if err != nil || !ok {
			t.Errorf("queue %d: %v, %v", q, was, err)
			return before
		}
		change(&cfg)
		if err := nd.Write(was, cfg); err != nil {
			t.Error(err)
		}
		before = append(before, was)
	}
	return before
}

// all returns a poller for all queues. A test cannot choose a frame's queue, because the veth does.
func all() device.Poller { return object(0, 1, 2, 3) }

// TestPackets: the poller takes packets, goes to sleep, and wakes when a packet arrives. It
// continues when the application restarts.
func TestPackets(t *testing.T) {
	run(t, func(t *testing.T, et *ethtool.Client) {
		p := all()
		p.Timeout = 50e6
		begin(t, p)
		// Defer interrupts. On a machine with one processor, the sender's softirq would otherwise take
		// every packet.
		configure(t, et, p, func(c *device.NAPIConfig) { c.DeferHardIRQs, c.GROFlushTimeout = 1, 20e6 })
		f := newFrames(t, et)
		defer f.close()
		eventually(t, "it sleeps", func() bool { return state(t, p).Doing == device.PollerAsleep })
		before := state(t, p)
		f.exchange(1)
		eventually(t, "a packet wakes it, and it sleeps again",
			func() bool { return state(t, p).Sleeps > before.Sleeps })
		if now := state(t, p); now.OthersPackets == before.OthersPackets {
			t.Errorf("the packet that woke it was taken by nobody else: %+v", now)
		}
		eventually(t, "it takes packets itself", func() bool { return f.exchange(20) && state(t, p).Packets > 0 })
		f.listen()
		f.exchange(20)
		// A packet can arrive before its poll has ended. It is counted at the end of the poll.
		eventually(t, fmt.Sprintf("all %d packets are counted", f.sent), func() bool {
			now := state(t, p)
			return now.Packets+now.OthersPackets >= uint64(f.sent)
		})
	})
}

// TestKilled: a poller is killed while interrupts are deferred. Packets still arrive, and the
// poller leaves nothing behind.
func TestKilled(t *testing.T) {
	run(t, func(t *testing.T, et *ethtool.Client) {
		p := all()
		begin(t, p)
		configure(t, et, p, func(c *device.NAPIConfig) { c.DeferHardIRQs, c.GROFlushTimeout = 1, 200_000 })
		f := newFrames(t, et)
		defer f.close()
		f.exchange(20)
		kill(t, state(t, p).PID, unix.SIGKILL)
		gone(t, p, "it is gone")
		f.exchange(200)
		begin(t, p)
		f.exchange(20)
	})
}

func kill(t testing.TB, pid int, s unix.Signal) {
	t.Helper()
	if pid <= 1 {
		t.Errorf("process %d", pid)
		return
	}
	if err := unix.Kill(pid, s); err != nil {
		t.Errorf("kill process %d: %v", pid, err)
	}
}

// TestHung: Write can end a poller that does not answer.
func TestHung(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p := object(0)
		begin(t, p)
		kill(t, state(t, p).PID, unix.SIGSTOP)
		eventually(t, "it does not answer", func() bool { return state(t, p).Doing == device.PollerHung })
		if err := client.Write(p, nil); err != nil {
			t.Error(err)
		}
		wantNone(t, p, "after the end")
	})
}

// TestNAPIsChange: when the kernel has removed the NAPIs and made new ones, the poller polls the
// new ones. When its device is deleted, the poller ends.
func TestNAPIsChange(t *testing.T) {
	run(t, func(t *testing.T, et *ethtool.Client) {
		p := object(0, 1)
		begin(t, p)
		f := newFrames(t, et)
		defer f.close()
		first := state(t, p).NAPIs
		gro(t, et, vethtest.Dev, false)
		eventually(t, "it has no NAPIs", func() bool { return state(t, p).Doing == device.PollerIdle })
		gro(t, et, vethtest.Dev, true)
		eventually(t, "it polls the new ones", func() bool {
			n := state(t, p).NAPIs
			return len(n) == 2 &&
				n[0] != first[0]
		})
		f.exchange(20)
		ip(t, "link", "set", p.Dev, "down")
		eventually(t, "it has none while the device is down",
			func() bool { return state(t, p).Doing == device.PollerIdle })
		ip(t, "link", "set", p.Dev, "up")
		eventually(t, "it has some again", func() bool { return len(state(t, p).NAPIs) == 2 })
		ip(t, "link", "set", p.Dev, "name", "other0")
		renamed := p
		renamed.Dev = "other0"
		before := state(t, renamed)
		for _, o := range []device.Poller{p, renamed} {
			if got, err := client.Read(o); !device.Equal(got, o) || err != nil {
				t.Errorf("after %s was renamed to %s: %+v, %v, want %+v", p.Dev, renamed.Dev, got, err, o)
			}
		}
		gro(t, et, "other0", false)
		gro(t, et, "other0", true)
		eventually(t, "it knows the device by its new name",
			func() bool { s := state(t, renamed); return s.Resolved > before.Resolved && len(s.NAPIs) == 2 })
		ip(t, "link", "del", "other0")
		gone(t, p, "it ends with the device")
	})
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %v: %v: %s", args, err, out)
	}
}

// TestTwo: niclane does not start a second poller for a queue. But a poller of another program may
// poll the same NAPI.
func TestTwo(t *testing.T) {
	run(t, func(t *testing.T, et *ethtool.Client) {
		p := all()
		begin(t, p)
		err := client.Write(nil, object(2))
		if want := fmt.Sprintf("poller/v0/2: queue 2 is polled by poller/v0/0 (process %d) already",
			state(t, p).PID); err == nil || err.Error() != want {
			t.Errorf("another poller for queue 2: %v, want %s", err, want)
		}
		if err := client.Write(nil, p); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("the same poller again: %v, want EADDRINUSE", err)
		}
		r, err := iouring.New(100 * time.Microsecond)
		must.Do(t, err)
		defer r.Close()
		for _, id := range state(t, p).NAPIs {
			if err := r.Add(id); err != nil {
				t.Error(err)
			}
		}
		stop, done := make(chan bool), make(chan error)
		go func() {
			var err error
			for err == nil {
				select {
				case <-stop:
					done <- nil
					return
				default:
					err = r.Poll()
				}
			}
			<-stop
			done <- err
		}()
		f := newFrames(t, et)
		defer f.close()
		f.exchange(100)
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestWrong: Write returns an error for a poller that cannot work, and leaves nothing behind.
func TestWrong(t *testing.T) {
	run(t, func(t *testing.T, et *ethtool.Client) {
		cpu, dev, policy := object(0), object(0), object(0)
		cpu.CPUs = []int{8191}
		dev.Dev = "none0"
		policy.Policy, policy.Priority = "fifo", 100
		for _, c := range []struct {
			p    device.Poller
			want string
		}{
			{object(3, 4), "poller/v0/3: the kernel lists a NAPI for 1 of v0's receive queues 3-4"},
			{cpu, "set affinity of thread"},
			{dev, "none0: "},
			{policy, "set scheduling of thread"},
			{device.Poller{Dev: "v0", CPUs: []int{0}, Policy: "other", Timeout: 1}, "0 queues, want 1 to 64"},
			{device.Poller{Dev: "v0", Queues: []int{0}, Policy: "other", Timeout: 1}, "no processor"},
		} {
			if err := client.Write(nil, c.p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, want %q", c.p, err, c.want)
			}
			if got, err := client.Read(c.p); got != nil || err != nil {
				t.Errorf("%+v: left %v, %v", c.p, got, err)
			}
		}
		gro(t, et, vethtest.Dev, false)
		if err := client.Write(nil, object(0)); err == nil || !strings.Contains(err.Error(),
			"a NAPI for 0 of v0's receive queues 0") {
			t.Errorf("without NAPIs: %v", err)
		}
	})
}

// starterArg makes the test binary start a poller and then wait.
const starterArg = "test-starter"

func starter(arg string) error {
	var a struct {
		RunDir string
		Poller device.Poller
	}
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	if err := (poller.Client{RunDir: a.RunDir, Tied: true}).Write(nil, a.Poller); err != nil {
		return err
	}
	fmt.Println("started")
	select {}
}

// TestTied: a tied poller ends together with the process that started it, even if that process is
// killed.
func TestTied(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p := object(0)
		arg, err := json.Marshal(map[string]any{"RunDir": client.RunDir, "Poller": p})
		must.Do(t, err)
		cmd := exec.Command("/proc/self/exe", starterArg, string(arg))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		must.Do(t, err)
		if n, err := out.Read(make([]byte, 16)); n == 0 {
			t.Errorf("it did not start: %v", err)
		}
		if state(t, p).PID == 0 {
			t.Error("there is no poller")
		}
		kill(t, cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
		gone(t, p, "it ends")
	})
}

// TestCollected: a poller that is not tied keeps all its descriptors when garbage is collected. It
// could lose one: without a tie, the number fdTie can be any descriptor, and an os.File for fdTie
// would close it.
func TestCollected(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p := object(0)
		must.Do(t, (poller.Client{RunDir: client.RunDir}).Write(nil, p))
		pid := state(t, p).PID
		before := descriptors(t, pid)
		for n := range 500 {
			if now := state(t, p).PID; now != pid {
				t.Errorf("answer %d is of process %d, want %d", n, now, pid)
				break
			}
		}
		if diff := cmp.Diff(before, descriptors(t, pid)); diff != "" {
			t.Errorf("descriptors of process %d (-want +got):\n%s", pid, diff)
		}
		kill(t, pid, unix.SIGKILL) // works even if the socket is gone
	})
}

// descriptors returns a process's descriptors: the link of each, by number. It leaves out sockets,
// because they open and close all the time.
func descriptors(t testing.TB, pid int) map[string]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	out := map[string]string{}
	for _, fd := range fds {
		if what, err := os.Readlink(dir + "/" + fd.Name()); err == nil && !strings.HasPrefix(what, "socket:") {
			out[fd.Name()] = what
		}
	}
	return out
}

// TestConfined: every thread of a poller runs as nobody, without capabilities and with a seccomp
// filter.
func TestConfined(t *testing.T) {
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p := object(0)
		begin(t, p)
		dir := fmt.Sprintf("/proc/%d/task", state(t, p).PID)
		threads, err := os.ReadDir(dir)
		if err != nil || len(threads) < 2 {
			t.Errorf("threads: %v, %v", threads, err)
		}
		for _, th := range threads {
			b, err := os.ReadFile(dir + "/" + th.Name() + "/status")
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			for _, want := range []string{
				"\nUid:\t65534\t65534\t65534\t65534\n", "\nGid:\t65534\t65534\t65534\t65534\n", "\nGroups:\t \n",
				"\nCapPrm:\t0000000000000000\n", "\nCapEff:\t0000000000000000\n", "\nCapAmb:\t0000000000000000\n",
				"\nNoNewPrivs:\t1\n", "\nSeccomp:\t2\n",
			} {
				if err != nil || !strings.Contains(string(b), want) {
					t.Errorf("thread %s: %v: no %q in\n%s", th.Name(), err, want, b)
				}
			}
		}
	})
}

// TestDisabled: if a sysctl forbids io_uring, the error names the sysctl.
func TestDisabled(t *testing.T) {
	const path = "/proc/sys/kernel/io_uring_disabled"
	if os.Getenv("NICLANE_GUEST") == "" {
		t.Skip("changes a sysctl of the whole machine: only in a guest")
	}
	run(t, func(t *testing.T, _ *ethtool.Client) {
		p, q := object(0), object(1)
		begin(t, q)
		before, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte("2"), 0)
		}
		must.Do(t, err)
		defer os.WriteFile(path, before, 0)
		want := "poller/v0/0: io_uring_setup: operation not permitted (sysctl kernel.io_uring_disabled)"
		if err := client.Write(nil, p); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		polls := state(t, q).Polls
		eventually(t, "one that has its ring goes on", func() bool {
			s := state(t, q)
			return s.PID != 0 && (s.Polls > polls || s.Doing == device.PollerAsleep)
		})
	})
}

// TestBusyThread: the kernel's own busy poller (Linux 6.19) is a kernel thread. It takes packets,
// and it ends when the configuration disables it.
func TestBusyThread(t *testing.T) {
	run(t, func(t *testing.T, et *ethtool.Client) {
		nd := openNetdev(t, et)
		defer nd.Close()
		if p, err := nd.Conn.SetPolicy(); err != nil || p.MaxThreaded < uint64(netdev.ThreadedBusy) {
			t.Skipf("no threaded busy poll in this kernel (%v)", err)
		}
		// The sender's processor chooses the queue of a frame (packet_pick_tx_queue).
		if err := sched.SetAffinity(unix.Gettid(), []int{0}); err != nil {
			t.Error(err)
		}
		p := object(0)
		before := configure(t, et, p, func(c *device.NAPIConfig) { c.Threaded = "busy" })
		f := newFrames(t, et)
		defer f.close()
		f.exchange(20)
		thread := device.Thread{Dev: p.Dev, Queue: 0, Policy: "other", Nice: 19, CPUs: []int{0}}
		now, err := nd.Read(thread)
		if err == nil {
			err = nd.Write(now, thread)
		}
		if now, rerr := nd.Read(thread); err != nil || rerr != nil || !device.Equal(now, thread) {
			t.Errorf("its thread: %v, want %v: %v, %v", now, thread, err, rerr)
		}
		f.exchange(20)
		configure(t, et, p, func(c *device.NAPIConfig) { *c = before[0].(device.NAPIConfig) })
		if got, err := nd.Read(thread); got != nil || err != nil {
			t.Errorf("its thread is left: %v, %v", got, err)
		}
		f.exchange(20)
	})
}
