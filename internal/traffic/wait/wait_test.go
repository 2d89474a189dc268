// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/internal/traffic/wait"
)

func TestMain(m *testing.M) { os.Exit(vethtest.Isolate(m)) }

func TestTry(t *testing.T) {
	vethtest.SetUp(t, "lo", true)
	var ns unix.Stat_t
	must.Do(t, unix.Stat("/proc/thread-self/ns/net", &ns))
	l, err := net.Listen("tcp", "127.0.0.1:11211")
	must.Do(t, err)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b := make([]byte, 100)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			time.Sleep(2 * time.Millisecond)
			c.Write(b[:n])
		}
	}()
	p, err := wait.Open(wait.Options{Services: []wait.Service{{NetNS: uint32(ns.Ino), Protocol: 6, Ports: []uint16{11211}}}})
	must.Do(t, err)
	defer p.Close()
	t.Log(p.Has)
	must.Do(t, p.Attach(true))
	c, err := net.Dial("tcp", "127.0.0.1:11211")
	must.Do(t, err)
	b := make([]byte, 10)
	for range 100 {
		c.Write(b)
		io.ReadFull(c, b)
	}
	r, err := p.Read(1)
	must.Do(t, err)
	t.Logf("%+v", r[0].Counts)
	for s, h := range r[0].Times {
		n, sum := uint64(0), uint64(0)
		for b, x := range h {
			n += x
			if x > 0 {
				k := max(b/64-1, 0)
				sum += x * (uint64(b-k*64) << k)
			}
		}
		if n > 0 {
			t.Log(s, n, sum/n)
		}
	}
}
