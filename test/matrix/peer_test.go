// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestFlow checks that a flow counts its answers, and those that are missing or overtaken.
func TestFlow(t *testing.T) {
	for _, tt := range []struct {
		name            string
		lose, hold      uint64 // numbers of the questions that are lost or held back
		lost, overtaken uint64
	}{
		{name: "all come back"},
		{name: "one is lost", lose: 5, lost: 1},
		{name: "one is overtaken", hold: 7, overtaken: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, err := net.ListenPacket("udp4", "127.0.0.1:0")
			must.Do(t, err)
			defer server.Close()
			enough := make(chan struct{})
			go func() {
				b := make([]byte, messageSize)
				held := make([]byte, messageSize)
				for {
					_, from, err := server.ReadFrom(b)
					if err != nil {
						return // the connection is closed
					}
					n := binary.NativeEndian.Uint64(b)
					switch n {
					case tt.lose:
						continue
					case tt.hold:
						copy(held, b)
						continue
					}
					_, _ = server.WriteTo(b, from)
					if tt.hold > 0 && n == tt.hold+1 {
						_, _ = server.WriteTo(held, from)
					}
					if n == 20 {
						close(enough)
					}
				}
			}()
			c, err := net.Dial("udp4", server.LocalAddr().String())
			must.Do(t, err)
			defer c.Close()
			f := startFlow(c, 2*time.Second)
			<-enough
			x := f.end()
			if x.Sent < 20 || x.Sent-x.Answered != tt.lost || x.Overtaken != tt.overtaken {
				t.Errorf("got %+v, want at least 20 sent, %d lost, %d overtaken", x, tt.lost, tt.overtaken)
			}
		})
	}
}
