// SPDX-License-Identifier: Apache-2.0

package waits_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/live/waits"
)

const loadRole = "test-load" // bench's generator: the configuration is its argument, it prints the result

func generate(args []string) error {
	var c load.Config
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	r, err := load.Run(ctx, c)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// TestDemo measures the demo's server, memcached, by the waits and by the demo's generator at once. Without
// a fault, what the generator measures beyond the time in the host is the client's and the network's. With
// memcached's processor busy, the waits explain the rest of the generator's latency.
func TestDemo(t *testing.T) {
	vethtest.NeedProgram(t, "memcached")
	b := newBed(t, lab.Config{})
	cpu := strconv.Itoa(b.Config.SUTCPUs[0])
	cmd, err := b.Command(t.Context(), lab.SUT, lab.Options{}, "taskset", "-c", cpu, "memcached", "-u", "root", "-t", "1",
		"-l", b.addr.String(), "-p", strconv.Itoa(port))
	must.Do(t, err)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		must.Do(t, cmd.Process.Signal(unix.SIGTERM))
		_ = cmd.Wait()
	})
	vethtest.Until(t, "memcached listens", func() bool {
		return b.Do(lab.Client, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			must.Do(t, err)
			defer unix.Close(fd)
			return unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: b.addr.As4()})
		}) == nil
	})
	c := b.open(t, "tcp")
	run := func() (generator load.Result, host waits.Service) {
		before, err := c.Snapshot()
		must.Do(t, err)
		config, err := json.Marshal(load.Config{Address: netip.AddrPortFrom(b.addr, port).String(), Rate: 500, Connections: 16,
			Pipeline: 1, Duration: 4e9})
		must.Do(t, err)
		self, err := os.Executable()
		must.Do(t, err)
		client, err := b.Command(t.Context(), lab.Client, lab.Options{Nice: -20}, self, loadRole, string(config))
		must.Do(t, err)
		client.Stderr = os.Stderr
		out, err := client.Output()
		must.Do(t, err)
		must.Do(t, json.Unmarshal(out, &generator))
		vethtest.Until(t, "the requests are counted", func() bool {
			s, err := c.Snapshot()
			must.Do(t, err)
			host = s.Sub(before).Services[0]
			return host.Requests >= uint64(generator.Completed)*9/10
		})
		return generator, host
	}
	var wrong []string
	for range tries {
		wrong = nil
		generator, host := run()
		network := generator.Uncorrected.Mean() - host.Waits[waits.Host].Mean()
		stop := b.start(t, burnRole, "-cpu", cpu, "-for", "50ms")
		generator, host = run()
		stop(nil)
		var sum float64
		for st := range waits.Card {
			sum += host.Waits[st].Mean()
		}
		for _, x := range []struct {
			what      string
			got, want float64
		}{
			{"mean", sum, generator.Uncorrected.Mean() - network},
			{"P99", float64(host.Waits[waits.Host].ValueAt(99)), float64(generator.Uncorrected.ValueAt(99)) - network},
		} {
			text := fmt.Sprintf("%s of the waits %v, of the generator less %v %v", x.what, time.Duration(x.got),
				time.Duration(network), time.Duration(x.want))
			t.Log(text)
			if math.Abs(x.got-x.want) > 0.05*x.want {
				wrong = append(wrong, text)
			}
		}
		if len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "; "))
}
