// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/app/sockiter"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/lab"
)

// TestMemcached tests Debian's memcached without changes. With memcached's option -N, each worker
// must get the connections of one of the lane's queues. Without -N, connections go to the workers
// in turn, so each worker has connections of both queues.
func TestMemcached(t *testing.T) {
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("no memcached here")
	}
	for _, c := range []struct {
		name string
		args []string
		want int // how many NAPIs each worker's connections have
	}{
		{"by NAPI", []string{"-N", "2"}, 1},
		{"in turn", nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBed(t, func(b *bed) {
				argv := append([]string{path, "-u", "nobody", "-l", "10.77.0.1", "-p", fmt.Sprint(port), "-t", "2"},
					c.args...)
				cmd := b.startUntil(func() error { _, err := request("version"); return err }, argv...)
				if _, err := app.Attach(b.lane, b.options, app.Target{PID: cmd.Process.Pid}); err != nil {
					t.Error(err)
					return
				}
				napis := map[app.Worker]map[uint32]int{} // numbers of connections, by worker and NAPI
				seen := map[uint32]bool{}
				for s, w := range b.workers(32) {
					if napis[w] == nil {
						napis[w] = map[uint32]int{}
					}
					napis[w][s.NAPI]++
					seen[s.NAPI] = true
				}
				if len(napis) != 2 || len(seen) != 2 {
					t.Fatalf("%v: want connections of 2 NAPIs at 2 workers", napis)
				}
				for w, n := range napis {
					if len(n) != c.want {
						t.Errorf("thread %d has connections of NAPIs %v: want %d NAPIs", w.TID, n, c.want)
					}
				}
				stats, err := request("stats")
				if err != nil || !strings.Contains(stats, "STAT unexpected_napi_ids 0\r\n") {
					t.Errorf("%v, %s: want no unexpected_napi_ids", err, stats)
				}
			})
		})
	}
}

// workers opens n connections from the client and returns which worker has each.
func (b *bed) workers(n int) map[sockiter.Socket]app.Worker {
	b.Helper()
	var open []net.Conn
	ports := map[uint16]bool{}
	labtest.OnHost(b.TB, b.lab, lab.Client, func(t testing.TB) {
		for range n {
			c, err := connect()
			if err == nil {
				open = append(open, c)
				ports[uint16(c.LocalAddr().(*net.TCPAddr).Port)] = true
				_, err = say(c, "version")
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	all, err := sockiter.List(sockiter.Filter{Ports: []uint16{port}, Connections: true})
	must.Do(b, err)
	var socks []sockiter.Socket
	var inodes []uint64
	for _, s := range all {
		if s.Local.Port() == port && ports[s.Remote.Port()] {
			socks, inodes = append(socks, s), append(inodes, s.Inode)
		}
	}
	by, err := app.Workers(inodes)
	must.Do(b, err)
	out := map[sockiter.Socket]app.Worker{}
	for _, s := range socks {
		w, ok := by[s.Inode]
		if !ok || s.NAPI == 0 || w.Comm != "memcached" {
			b.Errorf("connection from %s: NAPI %d, %+v", s.Remote, s.NAPI, w)
		}
		out[s] = w
	}
	if len(out) != n {
		b.Fatalf("%d of %d connections were found", len(out), n)
	}
	return out
}

// request sends memcached a request on a new connection.
func request(line string) (string, error) {
	c, err := connect()
	if err != nil {
		return "", err
	}
	defer c.Close()
	return say(c, line)
}

// say sends a line of memcached's protocol and returns the answer: one line, or statistics up to
// END.
func say(c net.Conn, line string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, line+"\r\n"); err != nil {
		return "", err
	}
	var text strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		if err != nil {
			return "", fmt.Errorf("answer %q: %w", text.String(), err)
		}
		text.Write(b[:n])
		if s := text.String(); strings.HasSuffix(s, "\r\n") &&
			(!strings.HasPrefix(s, "STAT") || strings.HasSuffix(s, "END\r\n")) {
			return s, nil
		}
	}
}
