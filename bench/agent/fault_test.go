// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCertificatesThatDoNotVerify tries wrong certificates of agents and of clients. The TLS
// handshake refuses them all, with one exception. A client whose name is not allowed gets an
// answer that says so.
func TestCertificatesThatDoNotVerify(t *testing.T) {
	dir, other := pki(t), pki(t)
	old := certified(t, "127.0.0.1", DefaultClient, time.Now().Add(-3*time.Hour))
	// The agent's address is not in this certificate.
	named := certified(t, "agent.example", DefaultClient, time.Now())
	address, a := serve(t, configured(t, dir))
	at := func(dir, name string) string {
		c := configured(t, dir)
		c.Files = filesOf(dir, name)
		address, _ := serve(t, c)
		return address
	}
	files := func(f Files, name string) *tls.Config {
		c, err := f.Client()
		if err != nil {
			t.Fatal(err)
		}
		if name == "none" {
			c.Certificates = nil
		}
		return c
	}
	under := func(dir, authority string) Files { // a client of dir that trusts agents of authority
		f := filesOf(dir, DefaultClient)
		f.Authority = filepath.Join(authority, AuthorityFile)
		return f
	}
	mixed, stranger, expired := under(dir, other), under(other, dir), under(old, dir)
	asAgent := filesOf(dir, "127.0.0.1")
	second := certified(t, "127.0.0.1", "somebody", time.Now())
	refusal := func(address string, c *tls.Config) error {
		_, err := Open(t.Context(), Dial{Name: "sut", Address: address, TLS: c, Version: "v1",
			Opening: Opening{Purpose: "x", Limit: 1e9}})
		return err
	}
	for name, x := range map[string]struct {
		address string
		config  *tls.Config
		want    string
	}{
		"agent of another authority": {address, files(mixed, ""),
			"the agent's certificate does not verify: x509: certificate signed by unknown authority"},
		"agent's expired": {at(old, "127.0.0.1"), files(filesOf(old, DefaultClient), ""),
			"the agent's certificate does not verify: x509: certificate has expired"},
		"agent of another name": {at(named, "agent.example"), files(filesOf(named, DefaultClient), ""),
			"the agent's certificate does not verify: x509: cannot validate certificate for 127.0.0.1"},
		"no client's": {address, files(filesOf(dir, DefaultClient), "none"),
			"the agent refuses this side's certificate: remote error: tls: certificate required"},
		"client of another": {address, files(stranger, ""),
			"the agent refuses this side's certificate: remote error: tls: "},
		"client's expired": {at(old, "127.0.0.1"), files(expired, ""),
			"the agent's certificate does not verify"},
		"an agent's as client's": {address, files(asAgent, ""),
			"the agent refuses this side's certificate: remote error: tls: bad certificate"},
		"a name not allowed": {at(second, "127.0.0.1"), files(filesOf(second, "somebody"), ""),
			`the certificate is of ["somebody"], this agent allows ["niclane-bench"]`},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, refusal(x.address, x.config), "host sut (agent "+x.address+"): ", x.want)
		})
	}
	// The client's certificate has expired, but the agent trusts its authority.
	c := configured(t, dir)
	c.Files.Authority = filepath.Join(old, AuthorityFile)
	address2, _ := serve(t, c)
	wantError(t, refusal(address2, files(expired, "")), "host sut",
		"the agent refuses this side's certificate: remote error: tls: ")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != nil {
		t.Errorf("somebody has got a session: %s", a.session)
	}
}

func TestNoTLS(t *testing.T) {
	up()
	dir := pki(t)
	// A server without TLS is no agent.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	_, err = Open(t.Context(), dial(t, dir, l.Addr().String()))
	wantError(t, err, "host sut", "no agent there: it does not speak TLS")
	// An agent accepts no connection without TLS, or with TLS below 1.3.
	address, _ := serve(t, configured(t, dir))
	if r, err := http.Get("http://" + address + "/clock"); err == nil {
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != http.StatusBadRequest || strings.Contains(string(text), "mono") {
			t.Errorf("%s: %s", r.Status, text)
		}
	}
	c, err := filesOf(dir, DefaultClient).Client()
	if err != nil {
		t.Fatal(err)
	}
	c.MinVersion, c.MaxVersion, c.ServerName = tls.VersionTLS12, tls.VersionTLS12, "127.0.0.1"
	if conn, err := tls.Dial("tcp", address, c); err == nil {
		conn.Close()
		t.Error("TLS 1.2 was spoken")
	}
}

// A way is a TCP proxy between client and agent that a test can cut or stop.
type way struct {
	l     net.Listener
	to    string
	mu    sync.Mutex
	conns []net.Conn
	still chan struct{} // closed: nothing passes
	once  sync.Once
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{l: l, to: to, still: make(chan struct{})}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, c, d)
			w.mu.Unlock()
			go w.pass(c, d)
			go w.pass(d, c)
		}
	}()
	t.Cleanup(func() { l.Close(); w.cut() })
	return w
}

func (w *way) pass(from, to net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		select {
		case <-w.still:
			continue // dropped, until the connection is closed
		default:
		}
		if err == nil {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// stop drops all data without an error.
func (w *way) stop() { w.once.Do(func() { close(w.still) }) }

func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
}

func TestLost(t *testing.T) {
	for name, x := range map[string]struct {
		lose         func(*way)
		lease        time.Duration
		client, said string
	}{
		"cut":    {(*way).cut, MinLease, "the agent is lost: ", "its orchestrator is lost: "},
		"silent": {(*way).stop, MinLease, "the agent is lost: silent for 2s", "its orchestrator "},
		// Longer than MinLease: the connection's own timeouts must not end the session earlier.
		"a longer lease": {(*way).stop, 9 * time.Second, "the agent is lost: silent for 9s", "its orchestrator "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := pki(t)
			c := configured(t, dir)
			c.Any, c.Lease = true, x.lease
			r, w := io.Pipe()
			c.Log = w
			log := make(chan string, 100)
			go func() {
				for s := bufio.NewScanner(r); s.Scan(); {
					log <- s.Text()
				}
			}()
			address, a := serve(t, c)
			way := newWay(t, address)
			s := open(t, dial(t, dir, way.l.Addr().String()))
			j, sleep := asleep(t, s)
			x.lose(way)
			// Everything that the orchestrator waits for ends with an error.
			select {
			case <-s.Lost():
			case <-time.After(30 * time.Second):
				t.Fatal("the agent was not missed")
			}
			wantError(t, s.Err(), "host sut (agent ", x.client)
			<-j.Done()
			_, err := j.End()
			wantError(t, err, "host sut", "lost")
			_, err = s.Start(t.Context(), request("late", partConfig{}))
			wantError(t, err, "host sut", "lost")
			// The agent restores the host.
			waitFor(t, "restored", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.session == nil
			})
			noProcesses(t, sleep)
			absent(t, recordPath(a.Dir))
			for {
				text := <-log
				if strings.Contains(text, "session ended") {
					if !strings.Contains(text, x.said) || !strings.Contains(text, "the host is restored") {
						t.Errorf("the agent says %q", text)
					}
					break
				}
			}
			// A new orchestrator is accepted.
			open(t, dial(t, dir, address))
		})
	}
}

// TestAgentKilled: the keeper of a killed agent restores the host.
func TestAgentKilled(t *testing.T) {
	up()
	dir := pki(t)
	c := configured(t, dir)
	c.Any = true
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self(), "internal-agent", string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	d := dial(t, dir, strings.TrimSpace(address))
	d.Storage = drives(t, 1)
	s := open(t, d)
	_, sleep := asleep(t, s)
	put(t, s, "file", "text", false)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	<-s.Lost()
	wantError(t, s.Err(), "host sut", "the agent is lost: ")
	waitFor(t, "the keeper has restored the host", func() bool {
		_, err := os.Stat(recordPath(c.Dir))
		return errors.Is(err, os.ErrNotExist) && len(processes(sleep)) == 0
	})
	absent(t, filepath.Join(c.Dir, "files"))
	empty(t, d.Storage)
	waitFor(t, "the keeper has ended", func() bool { return len(processes(KeeperCommand+"\x00"+c.Dir)) == 0 })
}

// TestAgentEnds: an agent that is asked to end restores the host first.
func TestAgentEnds(t *testing.T) {
	up()
	dir := pki(t)
	c := configured(t, dir)
	c.Any = true
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Serve(ctx, l) }()
	s := open(t, dial(t, dir, l.Addr().String()))
	_, sleep := asleep(t, s)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	noProcesses(t, sleep)
	<-s.Lost()
	wantError(t, s.Err(), "host sut", "the agent has ended the session: the agent was told to end")
}
