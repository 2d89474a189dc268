// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/live/waits"
)

// BenchmarkWaits compares memcached's processor time for each request without niclane waits, while it
// follows every request and all threads, and at its default. Rounds have all three in turn; the metrics
// are medians of the ratios within rounds.
func BenchmarkWaits(b *testing.B) {
	vethtest.NeedRoot(b)
	vethtest.NeedProgram(b, "memcached")
	const memcached, window = 11311, 4 * time.Second
	l := labtest.Up(b, lab.Config{Name: "bench-waits"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	niclane := b.TempDir() + "/niclane"
	build(b, niclane)
	cmd, err := l.Command(ctx, lab.SUT, lab.Options{Niclane: niclane}, "memcached", "-u", "nobody", "-t", "1", "-p", fmt.Sprint(memcached))
	must.Do(b, err)
	must.Do(b, cmd.Start())
	defer func() { cancel(); _ = cmd.Wait() }()
	var requests atomic.Int64
	var clients sync.WaitGroup
	defer clients.Wait()
	for range 4 {
		var c net.Conn
		vethtest.Until(b, "memcached listens", func() bool {
			return l.Do(lab.Client, func() (err error) {
				c, err = net.Dial("tcp", netip.AddrPortFrom(l.Config.IPv4(lab.SUT), memcached).String())
				return err
			}) == nil
		})
		defer c.Close()
		clients.Go(func() {
			r := bufio.NewReader(c)
			for {
				if _, err := c.Write([]byte("get key\r\n")); err != nil {
					return
				}
				if _, err := r.ReadSlice('\n'); err != nil {
					return
				}
				requests.Add(1)
			}
		})
	}
	processor := func() (ns int64) {
		var t unix.Timespec
		must.Do(b, unix.ClockGettime(^int32(cmd.Process.Pid)<<3|2, &t))
		return t.Nano()
	}
	cost := func(o *waits.Options) (perRequest, share float64) {
		var c *waits.Collector
		if o != nil {
			must.Do(b, l.Do(lab.SUT, func() (err error) {
				c, err = waits.Open(ctx, *o)
				return err
			}))
			defer c.Close()
			time.Sleep(time.Second) // it chooses its pace
		}
		n, t := requests.Load(), processor()
		time.Sleep(window)
		perRequest = float64(processor()-t) / float64(requests.Load()-n)
		if c != nil {
			s, err := c.Snapshot()
			must.Do(b, err)
			share = s.Cost.Share
		}
		return perRequest, share
	}
	target := []waits.Target{{Name: "memcached", Protocol: "tcp", Ports: []uint16{memcached}}}
	for b.Loop() {
		var all, normal, shares []float64
		for range rounds {
			none, _ := cost(nil)
			every, _ := cost(&waits.Options{Device: lab.Port, Targets: target, FixedRate: true})
			def, share := cost(&waits.Options{Device: lab.Port, Targets: target})
			all, normal, shares = append(all, every/none), append(normal, def/none), append(shares, share)
			b.Logf("none %.0f ns, every request %.0f, default %.0f (own estimate %.3f)", none, every, def, share)
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(median(all), "every-request/none")
		b.ReportMetric(median(normal), "default/none")
		b.ReportMetric(median(shares), "own-estimate")
	}
}
