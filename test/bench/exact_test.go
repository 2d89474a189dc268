// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/sock"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/internal/program"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
)

// BenchmarkIntended sends 50,000 gets a second to a server that never sleeps. It divides the time
// into short steps. For the steps in which the host did not disturb the generator, it reports the
// difference between intended and actual send times (load.Result.Wakeup). A step counts as
// undisturbed if three conditions are met. No interrupt came to the generator's processor, or to
// the server's, because the interrupted server may hold the lock of a socket. No idle turn of the
// generator's loop took longer than 10 µs (load.Result.Hiccups). The generator's thread, which
// spins with SCHED_FIFO, was without its processor for less than 20 µs (load.Result.Away).
//
// Idle turns alone are not enough: if an interrupt comes while the generator sends, no idle turn is
// long, but the sends are late. passed is the share of steps that are undisturbed. good is the
// share of these steps whose own P99 is at most 5 µs. all is the difference over all steps.
func BenchmarkIntended(b *testing.B) {
	vethtest.NeedRoot(b)
	niclane := filepath.Join(b.TempDir(), program.Bench)
	build(b, niclane)
	address := spinning(b)
	interrupted := interrupts(b, 0, serverCPU)
	for _, arrivals := range []string{load.Constant, load.Poisson} {
		b.Run(arrivals, func(b *testing.B) {
			for b.Loop() {
				c := load.Config{Address: address, Rate: 50_000, Arrivals: arrivals, Connections: spinningConns,
					Spin:   1e6,
					Warmup: 4 * step, Duration: step, Steps: make([]load.Step, 1000)}
				c.CPUs, c.FIFO = []int{0}, 50
				interrupted()
				r := generate(b, c, niclane)
				at := interrupted()
				var passed, all []*stats.Histogram
				good := 0
				for _, s := range r.Steps {
					all = append(all, s.Wakeup)
					if s.Hiccups.Max() <= 10_000 && s.Away < 20_000 &&
						!among(at, s.StartMono-settled, s.StartMono+step) {
						passed = append(passed, s.Wakeup)
						if s.Wakeup.ValueAt(99) <= 5_000 {
							good++
						}
					}
				}
				b.ReportMetric(100*float64(good)/float64(max(len(passed), 1)), "%-good")
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(100*float64(len(passed))/float64(len(all)), "%-passed")
				b.ReportMetric(float64(len(at)), "interrupts")
				for name, hs := range map[string][]*stats.Histogram{"all": all, "passed": passed} {
					h := stats.Merge(hs...)
					b.ReportMetric(float64(h.ValueAt(50))/1e3, "us-P50-"+name)
					b.ReportMetric(float64(h.ValueAt(99))/1e3, "us-P99-"+name)
				}
			}
		})
	}
}

const spinningConns = 4

// step is the length of a step, in ns. It is shorter than the time between the kernel's clock
// interrupts (4 ms at CONFIG_HZ=250), each of which takes 20 µs on some virtual machines. Each step
// has a warm-up of four times this length, after which the disturbance at its start is over.
const step = 1e6

// settled is the time in ns after which an interrupt and its delayed work are over.
const settled = 100_000

// spinning starts a server that never sleeps and answers each get with a miss. On loopback, the
// sender wakes a sleeping server with an interrupt to another processor. On a virtual machine, this
// took 15 µs in a tenth of the generator's send(2) calls. That would be an error of the hypervisor,
// not of the generator.
func spinning(b *testing.B) string {
	b.Helper()
	l, addr, err := sock.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	must.Do(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error)
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		unix.Close(l)
	})
	go func() {
		defer close(done)
		if err := (thread.Setup{CPUs: []int{serverCPU}}).Lock(); err != nil {
			done <- err
			return
		}
		var conns []int
		in, out := make([]byte, 64<<10), bytes.Repeat([]byte("END\r\n"), 4096)
		for turn := 0; ctx.Err() == nil; turn++ {
			if turn%1000 == 0 {
				if fd, _, err := unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
					conns = append(conns, fd)
				}
			}
			for i := 0; i < len(conns); i++ {
				n, err := unix.Read(conns[i], in)
				if n > 0 {
					_, err = unix.Write(conns[i], out[:5*bytes.Count(in[:n], []byte{'\n'})])
				}
				if err == unix.EAGAIN || err == nil && n > 0 {
					continue
				}
				unix.Close(conns[i])
				conns = slices.Delete(conns, i, i+1)
				i--
			}
		}
		for _, fd := range conns {
			unix.Close(fd)
		}
	}()
	return addr.String()
}

const (
	exactNetns = "niclane-exact"
	exactPeer  = "niclane-exact-peer"
)

// BenchmarkCapture measures 2,000 gets a second over a veth in two ways at the same time: by the
// generator, which spins, and by a packet socket on the generator's side (AF_PACKET with
// SO_TIMESTAMPING, software timestamps). The difference is the time that the generator's system
// calls and its socket take.
func BenchmarkCapture(b *testing.B) {
	vethtest.NeedRoot(b)
	niclane := filepath.Join(b.TempDir(), program.Bench)
	build(b, niclane)
	for _, name := range []string{exactNetns, exactPeer} {
		addNetns(b, name)
	}
	for _, line := range []string{
		"-n " + exactNetns + " link add exact0 type veth peer name exact1 netns " + exactPeer,
		"-n " + exactNetns + " addr add 10.9.1.1/24 dev exact0", "-n " + exactNetns + " link set exact0 up",
		"-n " + exactPeer + " addr add 10.9.1.2/24 dev exact1", "-n " + exactPeer + " link set exact1 up",
	} {
		run(b, exec.Command("ip", strings.Fields(line)...))
	}
	server := exec.Command("ip", "netns", "exec", exactPeer, "taskset", "-c", strconv.Itoa(serverCPU), "memcached",
		"-u", "nobody", "-l", "10.9.1.2", "-p", "11211", "-t", "1")
	if err := server.Start(); err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = server.Process.Signal(os.Interrupt); _ = server.Wait() })
	for deadline := time.Now().Add(10 * time.Second); exec.Command("ip", "netns", "exec", exactNetns, "bash", "-c",
		"</dev/tcp/10.9.1.2/11211").Run() != nil; {
		if time.Now().After(deadline) {
			b.Fatal("memcached does not listen")
		}
	}
	for b.Loop() {
		c := load.Config{Address: "10.9.1.2:11211", Rate: 2000, Prefill: true, Spin: 1e9, Duration: 3e9, Pipeline: 1}
		c.CPUs, c.FIFO = []int{0}, 50
		wire, stop := capture(b)
		r := generate(b, c, "ip", "netns", "exec", exactNetns, niclane)
		stop()
		h := <-wire
		if h.Count() < r.Completed {
			b.Fatalf("captured %d of %d requests", h.Count(), r.Completed)
		}
		for _, p := range []float64{50, 99} {
			own, theirs := float64(r.Uncorrected.ValueAt(p))/1e3, float64(h.ValueAt(p))/1e3
			b.ReportMetric(own, fmt.Sprintf("us-P%v-niclane", p))
			b.ReportMetric(theirs, fmt.Sprintf("us-P%v-wire", p))
			b.ReportMetric(own-theirs, fmt.Sprintf("us-P%v-beyond", p))
		}
		b.ReportMetric(0, "ns/op")
	}
}

// capture measures the time from each request (a packet to the server that contains "get ") to
// the server's next packet with data.
func capture(b *testing.B) (<-chan *stats.Histogram, func()) {
	b.Helper()
	leave := enter(b, exactNetns)
	defer leave()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC,
		int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})))
	must.Do(b, err)
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64 << 20},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE},
	} {
		must.Do(b, unix.SetsockoptInt(fd, o.level, o.name, o.value))
	}
	// With this timeout, the loop around recvmsg(2) checks done at least ten times a second.
	tv := unix.Timeval{Usec: 100_000}
	must.Do(b, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	done := make(chan struct{})
	result := make(chan *stats.Histogram, 1)
	go func() {
		defer unix.Close(fd)
		h := stats.NewHistogram()
		packet, control := make([]byte, 2048), make([]byte, 256)
		asked := int64(0)
		for {
			n, cn, _, from, err := unix.Recvmsg(fd, packet, control, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				select {
				case <-done:
					result <- h
					return
				default:
				}
				if errors.Is(err, unix.EAGAIN) {
					continue
				}
				result <- h
				return
			}
			at := stamp(control[:cn])
			data := payload(packet[:n])
			if at == 0 || len(data) == 0 {
				continue
			}
			if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
				if bytes.HasPrefix(data, []byte("get ")) {
					asked = at
				}
			} else if asked > 0 {
				h.Record(at - asked)
				asked = 0
			}
		}
	}()
	return result, func() { close(done) }
}

// stamp returns the software timestamp of a packet in ns; 0 if it has none.
func stamp(control []byte) int64 {
	ms, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range ms {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPING && len(m.Data) >= 16 {
			return int64(binary.NativeEndian.Uint64(m.Data))*1e9 + int64(binary.NativeEndian.Uint64(m.Data[8:]))
		}
	}
	return 0
}

// payload returns the payload of a TCP packet over IPv4.
func payload(p []byte) []byte {
	if len(p) < 40 || p[0]>>4 != 4 || p[9] != unix.IPPROTO_TCP {
		return nil
	}
	ip := int(p[0]&15) * 4
	total := min(int(binary.BigEndian.Uint16(p[2:])), len(p))
	if ip+20 > total {
		return nil
	}
	tcp := ip + int(p[ip+12]>>4)*4
	if tcp >= total {
		return nil
	}
	return p[tcp:total]
}
