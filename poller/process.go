// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/device"
)

// Command is the first argument of a poller's process. Client starts that process from its own
// executable. The second argument is the argument of Main.
const Command = "internal-poller"

// Descriptors that the process inherits.
const (
	fdListener = 3 // the listening socket
	fdReady    = 4 // a pipe, to which the process writes one line: "ready" or an error
	fdTie      = 5 // only if tied: a pipe; the poller ends when it reads the end of file
)

// maxConns is the largest number of open connections of a poller. A further connection closes the
// oldest one. An active client has its answer by then, and a silent client needs none. Together
// with answerWithin, this limits the work that clients can cause.
const maxConns = 16

// argument is the argument of Main, as JSON. It has the poller, and how it was started.
type argument struct {
	device.Poller
	// Tied is true if fdTie is open. If it is false, another descriptor of the process may have that
	// number.
	Tied bool `json:"tied,omitempty"`
}

// Main runs a poller in this process. It returns when the poller was told to stop, or on an error.
func Main(arg string) error {
	ready := os.NewFile(fdReady, "ready")
	p, err := start(arg)
	if err != nil {
		fmt.Fprintln(ready, err)
		return err
	}
	fmt.Fprintln(ready, "ready")
	ready.Close()
	return p.run()
}

// process is a running poller with its parts.
type process struct {
	argument
	listener *net.UnixListener
	queues   *queues
	count    *counters
	thread   *thread

	ended chan error // gets one value when the polling thread ends
}

func start(arg string) (*process, error) {
	// Switch garbage collection off. It would wait for the polling thread, which does not return to
	// the Go scheduler. And the poller makes almost no garbage.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(64 << 20)
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGINT, unix.SIGQUIT)
	p := &process{ended: make(chan error, 1)}
	if err := json.Unmarshal([]byte(arg), &p.argument); err != nil {
		return nil, fmt.Errorf("poller: %w", err)
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	// Call listen again. Clients then see the credentials of this process (unix_listen), and not of
	// the process that started it.
	if err := unix.Listen(fdListener, unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	f := os.NewFile(fdListener, "listener")
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listener: %w", err)
	}
	f.Close()
	p.listener = l.(*net.UnixListener)
	// If the process is in the control group of a login session, leave it, because the poller must not
	// end with the session. If the process cannot leave it, it polls all the same.
	_ = cgroup.Leave(cgroup.IsLogin)
	if p.queues, err = openQueues(p.Dev, p.Queues); err != nil {
		return nil, err
	}
	if p.count, err = openCounters(); err != nil {
		return nil, err
	}
	if p.thread, err = startThread(p); err != nil {
		return nil, err
	}
	if err := confine(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) check() error {
	switch {
	case len(p.Queues) == 0 || len(p.Queues) > maxNAPIs:
		return fmt.Errorf("found %d queues, want 1 to %d", len(p.Queues), maxNAPIs)
	case len(p.CPUs) == 0:
		return errors.New("found no processor, want at least one")
	case p.Timeout == 0:
		return errors.New("found a timeout of 0, want more")
	}
	return nil
}

// run answers requests on the socket until the poller is told to stop or the polling thread ends.
func (p *process) run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer cancel()
	if p.Tied {
		go func() {
			tie := os.NewFile(fdTie, "tie")
			if _, err := tie.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				cancel()
			}
		}()
	}
	asks := make(chan *net.UnixConn)
	go func() {
		for {
			c, err := p.listener.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // one failed connection, or no memory: the listener itself still works
				time.Sleep(lookAgain / 10)
				continue
			}
			asks <- c
		}
	}()
	p.thread.begin()
	stopped := make(chan net.Conn, 1)
	var last [maxConns]*net.UnixConn // the latest connections; most of them are closed already
	for n := 0; ; {
		select {
		case c := <-asks:
			if oldest := last[n%maxConns]; oldest != nil {
				oldest.Close()
			}
			last[n%maxConns] = c
			n++
			go p.answer(c, stopped)
		case c := <-stopped:
			err := p.end()
			fmt.Fprintln(c, "stopped") // fails if the client has ended
			return err
		case <-ctx.Done():
			return p.end()
		case err := <-p.ended:
			p.listener.Close()
			return err
		}
	}
}

// end stops the polling thread and waits until it has ended. That thread must complete the NAPIs'
// polls.
func (p *process) end() error {
	p.listener.Close()
	p.thread.stop()
	return <-p.ended
}

// answer serves one connection. A request is one line: "status" or "stop".
func (p *process) answer(c *net.UnixConn, stopped chan<- net.Conn) {
	cred, err := peer(c)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(answerWithin))
	}
	if err != nil || cred.Uid != 0 {
		c.Close()
		return
	}
	var word [16]byte
	for {
		n, err := c.Read(word[:])
		if err != nil {
			c.Close()
			return
		}
		switch string(word[:n]) {
		case "status\n":
			err = json.NewEncoder(c).Encode(p.state())
		case "stop\n":
			stopped <- c
			return // the connection closes when the process ends
		default:
			err = errors.New("not understood")
		}
		if err != nil {
			c.Close()
			return
		}
	}
}

func (p *process) state() device.PollerState {
	s := device.PollerState{Poller: p.Poller, PID: os.Getpid(), Thread: p.thread.id}
	s.Polls, s.Packets, s.OthersPolls, s.OthersPackets = p.count.sum()
	t := p.thread
	s.Sleeps, s.Resolved, s.NAPIs = t.sleeps.Load(), t.resolved.Load(), *t.napis.Load()
	s.Doing = device.PollerPolling
	switch {
	case len(s.NAPIs) == 0:
		s.Doing = device.PollerIdle
	case p.count.asleep.Load() != 0:
		s.Doing = device.PollerAsleep
	}
	return s
}
