// SPDX-License-Identifier: Apache-2.0

// Package listeners tests that a new connection goes to the listener on the processor of its
// receive queue. It also tests that no connection is lost under load when applications are
// attached, detached and reloaded, or when niclane is killed.
package listeners

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/testing/labtest"
	"github.com/niclane/niclane/internal/testing/must"
	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/lab"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/plan"
)

// serverArg is the argument with which the test's executable runs as a server with several
// listeners.
const serverArg = "test-server"

func TestMain(m *testing.M) {
	vethtest.Main(m, vethtest.Isolate, map[string]func([]string) error{app.KeeperArg: app.RunKeeper, serverArg: serve})
}

const port = 8080

// lanes is a lanes file. Its lane has two queues, each on a processor of its own.
const lanes = `
version: 1
globals:
  dev: lane0
lanes:
  web:
    queues: 2
    poller: thread
    cpus: 0-1
    ports: [8080]
    addrs: [10.77.0.1]
`

// A bed is a lab with a lane. The test's thread is in the namespace of the system under test.
type bed struct {
	testing.TB
	lab     *lab.Lab
	lane    app.Lane
	options app.Options
}

// onBed runs f in a lab of two processors, after the lane was applied.
func onBed(t testing.TB, f func(b *bed)) {
	vethtest.NeedRoot(t)
	var online unix.CPUSet
	if err := unix.SchedGetaffinity(0, &online); err != nil || !online.IsSet(0) || !online.IsSet(1) {
		t.Skip("needs processors 0 and 1")
	}
	l := labtest.Up(t, lab.Config{Name: fmt.Sprintf("listen-%d", os.Getpid()), Queues: 4,
		SUTCPUs: []int{0, 1}, OtherCPUs: []int{0, 1}})
	labtest.OnHost(t, l, lab.SUT, func(t testing.TB) {
		k, err := apply.NewKernel("")
		if err != nil {
			t.Error(err)
			return
		}
		defer k.Close()
		b := &bed{TB: t, lab: l}
		j, st, err := b.apply(k)
		if err != nil {
			t.Error(err)
			return
		}
		b.options = app.Options{RunDir: filepath.Join(t.TempDir(), "run"),
			State: st, Keeper: []string{"/proc/self/exe", app.KeeperArg}}
		if b.lane, err = app.Find([]*journal.Journal{j}, "web", ""); err != nil {
			t.Error(err)
			return
		}
		f(b)
		if _, err := app.Detach(b.options.RunDir, app.Choice{All: true}); err != nil {
			t.Error(err)
		}
	})
}

// apply applies the lanes file.
func (b *bed) apply(k *apply.System) (*journal.Journal, *device.State, error) {
	f, err := config.ParseFile("lanes.yaml", []byte(lanes))
	if err != nil {
		return nil, nil, err
	}
	see := func() (*device.State, error) {
		return observe.Observe(b.Context(), observe.Options{Devices: []string{lab.Port}})
	}
	st, err := see()
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Make(f.Intent, st, plan.Owned{})
	if err != nil {
		return nil, nil, err
	}
	here, err := journal.Here()
	if err != nil {
		return nil, nil, err
	}
	j := journal.New(journal.Head{Host: here, Config: "/lanes.yaml", ConfigText: lanes, Devices: p.Devices, Plan: p})
	if _, err := apply.Run(b.Context(), k, p, j, apply.Options{}); err != nil {
		return nil, nil, err
	}
	st, err = see()
	return j, st, err
}

// listening returns the options to attach an application with listeners on the lane's port.
func (b *bed) listening(l app.Listeners) app.Options {
	o := b.options
	l.Ports = []uint16{port}
	o.Listeners = &l
	return o
}

// start starts an HTTP server on the system under test.
func (b *bed) start(argv ...string) *exec.Cmd {
	b.Helper()
	return b.startUntil(b.answers, argv...)
}

// startUntil starts a server on the system under test, and waits until it answers.
func (b *bed) startUntil(answers func() error, argv ...string) *exec.Cmd {
	b.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	must.Do(b, cmd.Start())
	b.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // minus: the whole process group, with the children
		_ = cmd.Wait()
	})
	b.until("the server answers", func() bool { return answers() == nil })
	return cmd
}

func (b *bed) answers() error {
	_, err := ask(nil)
	return err
}

// until waits until a condition is true.
func (b *bed) until(what string, cond func() bool) {
	b.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			b.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

var server = unix.SockaddrInet4{Port: port, Addr: [4]byte{10, 77, 0, 1}}

// connect opens a connection from the network namespace of the calling thread.
func connect() (net.Conn, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(s), "client")
	defer f.Close()
	if err := unix.Connect(s, &server); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return net.FileConn(f)
}

// ask sends a request on a new connection. The answer is the ID of the server's process. If keep is
// not nil, the connection stays open and is added to it.
func ask(keep *[]net.Conn) (string, error) {
	c, err := connect()
	if err != nil {
		return "", err
	}
	if keep == nil {
		defer c.Close()
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	version := "1.0"
	if keep != nil {
		version = "1.1\r\nHost: x"
		*keep = append(*keep, c)
	}
	if _, err := io.WriteString(c, "GET / HTTP/"+version+"\r\n\r\n"); err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	var text strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		text.Write(b[:n])
		if _, body, ok := strings.Cut(text.String(), "\r\n\r\n"); ok && strings.HasSuffix(body, "\n") {
			return strings.TrimSpace(body), nil
		}
		if err != nil {
			return "", fmt.Errorf("answer %q: %w", text.String(), err)
		}
	}
}

// report returns the last report of the keeper.
func (b *bed) report() (app.Report, *app.Record) {
	b.Helper()
	rs, err := app.List(b.options.RunDir)
	if err != nil || len(rs) != 1 {
		b.Fatalf("%d applications: %v", len(rs), err)
	}
	s, err := app.Open(b.options.RunDir)
	must.Do(b, err)
	defer s.Close()
	r, err := s.Report(rs[0].ID)
	must.Do(b, err)
	return r, rs[0]
}

// led waits until connections are led to n listeners, and the processor of each listener is known.
func (b *bed) led(n int) {
	b.Helper()
	var last app.Report
	b.until(fmt.Sprintf("connections are led to %d listeners", n), func() bool {
		last, _ = b.report()
		if len(last.Groups) != 1 || !last.Groups[0].Led || len(last.Groups[0].Listeners) != n {
			return false
		}
		for _, l := range last.Groups[0].Listeners {
			if l.CPU < 0 {
				return false
			}
		}
		return true
	})
}
