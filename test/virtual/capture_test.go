// SPDX-License-Identifier: Apache-2.0

package virtual

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/test/simcard/bed"
)

// Arguments by which a test starts this program on a host of the lab. The server's address or the
// generator's configuration follows. The generator's result is on standard output.
const (
	serveCommand    = "internal-serve"
	generateCommand = "internal-generate"
)

// serveHere runs niclane's server until standard input ends.
func serveHere() error {
	s, err := memserver.Listen(memserver.Config{Address: os.Args[2]})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	_, err = s.Serve(ctx)
	return err
}

// generateHere runs niclane's generator.
func generateHere() error {
	var c load.Config
	if err := json.Unmarshal([]byte(os.Args[2]), &c); err != nil {
		return err
	}
	r, err := load.Run(context.Background(), c)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// onHostOf returns a command that runs this program on a host.
func onHostOf(t *testing.T, l *lab.Lab, host, command, argument string) *exec.Cmd {
	self, err := os.Executable()
	must.Do(t, err)
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", l.Config.Netns(host), self, command, argument)
	return cmd
}

// TestCapture compares the generator's latencies with a capture at the client's port of the switch:
// from the frame with a request to the last frame of its answer, by the kernel's timestamps. Answers of
// 20 KB take two thirds of the link, so that they wait for each other.
func TestCapture(t *testing.T) {
	if !inGuest(t) {
		return
	}
	l := labtest.Up(t, lab.Config{LinkRate: 100e6, LinkBurst: lab.LeastBurst(0), Frames: true})
	address := l.Config.IPv4(lab.SUT).String() + ":11211"
	server := onHostOf(t, l, lab.SUT, serveCommand, address)
	end, err := server.StdinPipe()
	must.Do(t, err)
	ready, err := server.StdoutPipe()
	must.Do(t, err)
	must.Do(t, server.Start())
	_, err = ready.Read(make([]byte, 16))
	must.Do(t, err)

	var wire int
	bed.Within(t, l.Config.Netns(lab.Switch), func() { wire = packetSocket(t, "p-client", unix.ETH_P_ALL) })
	must.Do(t, unix.SetsockoptInt(wire, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<30))
	must.Do(t, unix.SetsockoptInt(wire, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1))
	text, err := json.Marshal(load.Config{Address: address, Rate: 400, Arrivals: load.Poisson, Seed: 1, Connections: 64,
		Pipeline: 1, Keys: 100, ValueBytes: 20_000, Prefill: true, Warmup: 1e9, Duration: 4e9, Timeout: 5e9})
	must.Do(t, err)
	said, err := onHostOf(t, l, lab.Client, generateCommand, string(text)).Output()
	must.Do(t, err)
	must.Do(t, end.Close())
	must.Do(t, server.Wait())
	var r load.Result
	must.Do(t, json.Unmarshal(said, &r))

	captured := latencies(t, wire, int(r.Uncorrected.Count()))
	for _, p := range []float64{1, 50, 90, 99, 99.9, 100} {
		got, want := r.Uncorrected.ValueAt(p), captured[max(int(math.Round(p/100*float64(len(captured)))), 1)-1]
		t.Logf("P%g: generator %d ns, capture %d ns", p, got, want)
		if !near(got, want, want/500+100) {
			t.Errorf("P%g: generator %d ns, capture %d ns", p, got, want)
		}
	}
}

// latencies returns those of the last n requests of a capture, in order of length.
func latencies(t *testing.T, wire, n int) []int64 {
	type exchange struct {
		asked, answered int64
		end             uint32 // sequence number
	}
	var all []*exchange
	last := map[uint16]*exchange{} // by the client's port
	b, oob := make([]byte, 256), make([]byte, 64)
	for {
		length, oobn, _, _, err := unix.Recvmsg(wire, b, oob, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err == unix.EAGAIN {
			break
		}
		must.Do(t, err)
		const ip = 14
		tcp := ip + int(b[ip]&15)*4
		if length < tcp+20 || binary.BigEndian.Uint16(b[12:]) != unix.ETH_P_IP || b[ip+9] != unix.IPPROTO_TCP {
			continue
		}
		payload := tcp + int(b[tcp+12]>>4)*4
		if int(binary.BigEndian.Uint16(b[ip+2:]))+ip == payload {
			continue // an acknowledgement
		}
		from, to := binary.BigEndian.Uint16(b[tcp:]), binary.BigEndian.Uint16(b[tcp+2:])
		switch {
		case to == 11211 && bytes.HasPrefix(b[payload:], []byte("get ")):
			last[from] = &exchange{asked: timestamp(oob[:oobn])}
			all = append(all, last[from])
		case from == 11211 && last[to] != nil:
			// A segment that TCP sends again, although it has arrived, ends no answer.
			if x, seq := last[to], binary.BigEndian.Uint32(b[tcp+4:]); x.answered == 0 || int32(seq-x.end) > 0 {
				x.answered, x.end = timestamp(oob[:oobn]), seq
			}
		}
	}
	if len(all) < n {
		t.Fatalf("%d requests in the capture, want at least %d", len(all), n)
	}
	var out []int64
	for _, x := range all[len(all)-n:] {
		out = append(out, x.answered-x.asked)
	}
	slices.Sort(out)
	return out
}
