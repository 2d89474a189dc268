// SPDX-License-Identifier: Apache-2.0

package roundtrip_test

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/live/roundtrip"
)

// TestTimes: connections with traffic have times, by service; silent ones and those of other ports have none.
func TestTimes(t *testing.T) {
	vethtest.NeedRoot(t)
	serve := func() (port uint16, request func()) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		must.Do(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go io.Copy(c, c)
			}
		}()
		c, err := net.Dial("tcp4", l.Addr().String())
		must.Do(t, err)
		t.Cleanup(func() { c.Close() })
		return netip.MustParseAddrPort(l.Addr().String()).Port(), func() {
			_, err := c.Write([]byte("x"))
			must.Do(t, err)
			_, err = io.ReadFull(c, make([]byte, 1))
			must.Do(t, err)
		}
	}
	busy, request := serve()
	silent, once := serve()
	other, noise := serve()
	once()
	s, err := roundtrip.Open(t.Context(), []roundtrip.Service{
		{Name: "busy", Ports: []uint16{busy}, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		{Name: "silent", Ports: []uint16{silent}},
		{Name: "elsewhere", Ports: []uint16{other}, Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}}})
	must.Do(t, err)
	deadline := time.Now().Add(20 * time.Second)
	for {
		request()
		noise()
		times, err := s.Times()
		must.Do(t, err)
		if n := times["busy"].Count(); n >= 3 {
			if v := times["busy"].ValueAt(50); v <= 0 || v > int64(time.Second) {
				t.Errorf("P50 is %v", time.Duration(v))
			}
			if times["silent"].Count() > 0 || times["elsewhere"].Count() > 0 {
				t.Errorf("%d times of silent connections, %d of another address", times["silent"].Count(),
					times["elsewhere"].Count())
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d samples", times["busy"].Count())
		}
	}
	must.Do(t, s.Close())
}
