// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/soak"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/poller"
)

// watch starts a watch of a lane with a busy poller. It returns the processes of the watch and of
// the poller.
func (b *bed) watch() []*soak.Process {
	file := b.lanes("watched", vethtest.Dev, ", poller: busy, pollers: 1, force: {queue-set: shared}")
	b.ends = append(b.ends, func() { b.do("watched", "rollback", file) })
	cmd := b.begin(b.command("watched", "watch", file))
	run := filepath.Join(b.dir, "watched", "run")
	health := func() error {
		found, err := filepath.Glob(run + "/watch-*.sock")
		if err != nil || len(found) != 1 {
			return fmt.Errorf("sockets of its health: %v, %w", found, err)
		}
		c, err := net.Dial("unix", found[0])
		if err != nil {
			return err
		}
		return get(c, &http.Transport{}, "http://niclane/healthz", http.StatusOK)
	}
	b.eventually("the watch keeps the lanes", health)
	ask := func() (device.PollerState, error) {
		all, err := poller.List(run)
		if err != nil || len(all) != 1 {
			return device.PollerState{}, fmt.Errorf("pollers: %+v, %w", all, err)
		}
		if all[0].Doing == device.PollerHung {
			return all[0], fmt.Errorf("the poller hangs")
		}
		return all[0], nil
	}
	first, err := ask()
	must.Do(b, err)
	return []*soak.Process{
		{Name: "watch", PID: cmd.Process.Pid, Ask: health},
		{Name: "poller", PID: first.PID, Ask: func() error {
			now, err := ask()
			if err == nil && now.PID != first.PID {
				err = fmt.Errorf("process %d answers, not %d", now.PID, first.PID)
			}
			return err
		}},
	}
}

// keeper attaches an application to the watched lane and returns the application's keeper process.
func (b *bed) keeper() *soak.Process {
	application := b.begin(exec.Command("sleep", "1000000"))
	pid := strconv.Itoa(application.Process.Pid)
	b.do("watched", "attach", "--lane", "web", "--pid", pid)
	b.ends = append(b.ends, func() { b.do("watched", "detach", "--pid", pid) })
	var record struct {
		Keeper struct {
			PID int `json:"pid"`
		} `json:"keeper"`
	}
	found, err := filepath.Glob(filepath.Join(b.dir, "watched", "run", "apps", "*.json"))
	if err != nil || len(found) != 1 {
		b.Fatalf("records of applications: %v, %v", found, err)
	}
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err != nil || record.Keeper.PID == 0 {
		b.Fatalf("%s: %v: no keeper in %s", found[0], err, text)
	}
	return &soak.Process{Name: "keeper", PID: record.Keeper.PID,
		Ask: func() error { return unix.Kill(record.Keeper.PID, 0) }}
}

// guard applies a change to the veth's other end and does not confirm it. It returns the guard
// process.
func (b *bed) guard() *soak.Process {
	file := b.lanes("guarded", vethtest.Peer, "")
	b.do("guarded", "apply", "--confirm-within", "1000h", file)
	b.ends = append(b.ends, func() {
		b.do("guarded", "confirm")
		b.do("guarded", "rollback", file)
	})
	run := filepath.Join(b.dir, "guarded", "run")
	pid := 0
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Do(b, err)
	for _, path := range cmdlines {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), apply.GuardArg) &&
			strings.Contains(string(text), run) {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	if pid == 0 {
		b.Fatal("there is no guard")
	}
	return &soak.Process{Name: "guard", PID: pid, Ask: func() error {
		if err := apply.CheckPending(run); err == nil || !strings.Contains(err.Error(), "waits to be confirmed") {
			return fmt.Errorf("what waits: %w", err)
		}
		return nil
	}}
}

// serve starts an agent, niclane bench serve. The test sends it requests over TLS.
func (b *bed) serve() *soak.Process {
	pki := filepath.Join(b.dir, "pki")
	b.do("serving", "bench", "certs", pki, "--hosts", "127.0.0.1", "--client", "me")
	cmd := b.begin(b.command("serving", "bench", "serve", "--listen", "127.0.0.1:7411", "--cert", pki+"/127.0.0.1.pem",
		"--key", pki+"/127.0.0.1.key", "--ca", pki+"/ca.pem", "--client", "me", "--dir",
		filepath.Join(b.dir, "serving", "agent")))
	own, err := tls.LoadX509KeyPair(pki+"/me.pem", pki+"/me.key")
	must.Do(b, err)
	pool := x509.NewCertPool()
	if text, err := os.ReadFile(pki + "/ca.pem"); err != nil || !pool.AppendCertsFromPEM(text) {
		b.Fatalf("%s/ca.pem: %v", pki, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, MinVersion: tls.VersionTLS13}
	ask := func() error {
		c, err := connect([4]byte{127, 0, 0, 1}, 7411)
		if err != nil {
			return err
		}
		// Without a version in the request, the agent refuses it. That counts as an answer.
		return get(c, &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}, "https://127.0.0.1:7411/clock",
			http.StatusUpgradeRequired)
	}
	b.eventually("the agent listens", ask)
	return &soak.Process{Name: "bench serve", PID: cmd.Process.Pid, Ask: ask}
}

// connect opens a connection from the network namespace of the calling thread. net.Dialer would use
// other threads.
func connect(to [4]byte, port int) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to, Port: port}); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// get sends an HTTP request on connection c and then closes c. The status must be want.
func get(c net.Conn, over *http.Transport, url string, want int) error {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	over.DialContext = func(context.Context, string, string) (net.Conn, error) { return c, nil }
	defer over.CloseIdleConnections()
	r, err := (&http.Client{Transport: over}).Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != want {
		err = fmt.Errorf("%s: %s: %s", url, r.Status, text)
	}
	return err
}
