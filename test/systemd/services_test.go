// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/niclane/niclane/internal/testing/must"
)

// echo is a server that systemd starts with its listening socket as descriptor 3. It answers each line
// of its connections, one connection at a time.
const echo = `#!/usr/bin/perl
$| = 1;
open(my $socket, "+<&=3") or die $!;
while (accept(my $connection, $socket)) {
	while (defined(my $line = readline($connection))) { syswrite($connection, $line) or last; }
}
die $!;
`

// The units of socket-activated services: busy is started by its client, idle is never started, each
// has an instance for each connection (Accept=yes), and datagrams is UDP. local is at the port of busy, at
// another address.
var socketUnits = map[string]string{
	"busy.socket":       "[Socket]\nListenStream=10.99.0.1:7001\n",
	"busy.service":      "[Service]\nExecStart=/root/echo\n",
	"local.socket":      "[Socket]\nListenStream=127.0.0.1:7001\n",
	"local.service":     "[Service]\nExecStart=/root/echo\n",
	"idle.socket":       "[Socket]\nListenStream=10.99.0.1:7002\nListenStream=7003\n",
	"idle.service":      "[Service]\nExecStart=/root/echo\n",
	"each.socket":       "[Socket]\nListenStream=10.99.0.1:7004\nAccept=yes\n",
	"each@.service":     "[Service]\nExecStart=/bin/cat\nStandardInput=socket\n",
	"datagrams.socket":  "[Socket]\nListenDatagram=10.99.0.1:7005\n",
	"datagrams.service": "[Service]\nExecStart=/bin/sleep infinity\n",
}

// suggests checks that suggest finds socket-activated services, started or not, with their units.
func (g *guest) suggests(dev string) {
	t := g.t
	t.Helper()
	g.installs(socketUnits)
	client := g.client(7001)
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"--for 3s --unit busy", []string{"  busy:", "    # busy.service (systemd's busy.socket holds the socket): about ",
			"    # tcp/7001 listens at 10.99.0.1", "    ports: 7001", `    cgroup: "/system.slice/busy.service"`}},
		{"--for 0 --unit busy.socket", []string{"  busy:", "    ports: 7001"}},
		{"--for 0 --unit idle", []string{"  idle:", "    # idle.service (systemd's idle.socket holds the socket)",
			"    ports: [7002, 7003]"}},
		{"--for 0 --unit idle.socket", []string{"  idle:", "    ports: [7002, 7003]"}},
		{"--for 0 --unit each.socket", []string{"  each:", "    ports: 7004"}},
		{"--for 0 --unit datagrams", []string{"  datagrams:", "    protocol: udp", "    ports: 7005"}},
	} {
		out := g.do("niclane suggest " + c.query + " " + dev + " | tee /root/suggested.yaml")
		t.Logf("niclane suggest %s\n%s", c.query, out)
		for _, want := range c.want {
			if !strings.Contains("\n"+out+"\n", "\n"+want) {
				t.Errorf("suggest %s has no line %q", c.query, want)
			}
		}
		if n := strings.Count(out, "# asked for, although "); n > 1 {
			t.Errorf("suggest %s says %d times that it was asked for", c.query, n)
		}
		if _, code := g.ask("niclane check /root/suggested.yaml && niclane plan /root/suggested.yaml"); code != 3 {
			t.Errorf("plan of %s: exit code %d, want 3", c.query, code)
		}
	}
	out, code := g.ask("niclane suggest --for 0 --unit local " + dev)
	if want := "no lane for local (tcp/7001): only this host reaches it, by 127.0.0.1"; code != 1 ||
		!strings.Contains(out, want) {
		t.Errorf("suggest --unit local: exit code %d, want 1 and %q:\n%s", code, want, out)
	}
	// Without a selection, only the one with requests.
	out = g.do("niclane suggest --for 3s " + dev)
	for _, want := range []string{"\n  busy:\n", "\n# - idle (tcp/7002, tcp/7003): idle"} {
		if !strings.Contains(out, want) {
			t.Errorf("suggest has no %q:\n%s", want, out)
		}
	}
	if out := g.do("systemctl is-active idle.service datagrams.service || true"); out != "inactive\ninactive" {
		t.Errorf("suggest has started a service: %s", out)
	}
	client.stop()
	g.do("rm /root/suggested.yaml")
	g.removes(socketUnits)
}

// installs writes units and the program of their services, and starts their sockets.
func (g *guest) installs(units map[string]string) {
	g.t.Helper()
	script := "cat >/root/echo <<'END'\n" + echo + "END\nchmod 755 /root/echo\n"
	for name, text := range units {
		script += "cat >/run/systemd/system/" + name + " <<'END'\n" + text + "END\n"
	}
	g.do(script + "systemctl daemon-reload && systemctl start " + sockets(units))
}

func (g *guest) removes(units map[string]string) {
	g.t.Helper()
	names := slices.Collect(maps.Keys(units))
	g.do("systemctl stop " + sockets(units) + "; systemctl stop busy.service; cd /run/systemd/system && rm /root/echo " +
		strings.Join(names, " ") + " && systemctl daemon-reload")
}

// sockets returns the names of the sockets among units.
func sockets(units map[string]string) (names string) {
	for name := range units {
		if strings.HasSuffix(name, ".socket") {
			names += " " + name
		}
	}
	return names
}

// measures checks that a watch with --waits has histograms of the requests to its lane at port 80.
func (s *service) measures() {
	s.g.t.Helper()
	units := map[string]string{"busy.socket": "[Socket]\nListenStream=10.99.0.1:80\n",
		"busy.service": socketUnits["busy.service"]}
	s.g.installs(units)
	client := s.g.client(80)
	s.g.eventually("curl -s --fail --unix-socket /run/niclane/watch-" + s.dev + ".sock http://niclane/metrics >/run/metrics" +
		" && grep '^niclane_waits_failing 0$' /run/metrics && grep -E '^niclane_request_wait_seconds_count" +
		`\{lane="web",part="host",protocol="tcp"\} [1-9]' /run/metrics`)
	s.g.t.Log(s.g.do("grep -E '^niclane_(request_wait_seconds_(sum|count)|requests|waits)' /run/metrics"))
	client.stop()
	s.g.removes(units)
}

// A client sends requests to the guest from the machine's end of the wire.
type client struct {
	t     *testing.T
	end   context.CancelFunc
	ended chan error
}

// client begins to send lines of text to a port of the guest's card, 10 ms after each answer, until stop. It
// waits for the first answer.
func (g *guest) client(port int) *client {
	g.t.Helper()
	conn := g.dial(port)
	ctx, end := context.WithCancel(context.Background())
	c := &client{g.t, end, make(chan error, 1)}
	g.t.Cleanup(end)
	request := func() error {
		if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte(strings.Repeat("x", 63) + "\n")); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 64))
		return err
	}
	must.Do(g.t, request())
	go func() {
		defer conn.Close()
		pause := time.NewTicker(10 * time.Millisecond)
		defer pause.Stop()
		for ctx.Err() == nil {
			if err := request(); err != nil {
				c.ended <- err
				return
			}
			<-pause.C
		}
		c.ended <- nil
	}()
	return c
}

// stop ends the client. It fails the test if a request got no answer.
func (c *client) stop() {
	c.t.Helper()
	c.end()
	if err := <-c.ended; err != nil {
		c.t.Error(err)
	}
}

// dial connects to a port of the guest's card, from the namespace of the other end of the wire.
func (g *guest) dial(port int) net.Conn {
	g.t.Helper()
	// The thread must not end: it may be the one that started QEMU (Pdeathsig).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	must.Do(g.t, err)
	defer own.Close()
	wire, err := netns.GetFromPid(g.qemu)
	must.Do(g.t, err)
	defer wire.Close()
	must.Do(g.t, netns.Set(wire))
	c, err := net.DialTimeout("tcp", fmt.Sprintf("10.99.0.1:%d", port), within)
	must.Do(g.t, netns.Set(own))
	must.Do(g.t, err)
	return c
}
