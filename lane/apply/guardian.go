// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/syslog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/few"
	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/lane/journal"
)

// RunGuard is the guardian's whole life. arg comes from StartGuard, and file
// descriptor 3 leads to it.
func RunGuard(arg string) error {
	signal.Ignore(unix.SIGHUP, unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN,
		unix.SIGTTOU)
	g := &guardian{link: os.NewFile(3, "applier")}
	if err := json.Unmarshal([]byte(arg), &g.guardConfig); err != nil {
		return fmt.Errorf("guardian: %w", err)
	}
	if err := g.start(); err != nil {
		g.tell("error " + strings.ReplaceAll(err.Error(), "\n", "; "))
		return err
	}
	defer g.leave()
	g.tell("ready")
	return g.watch()
}

type guardian struct {
	guardConfig
	link     *os.File // to the applier
	applier  int      // pidfd
	listener net.Listener
	timer    *os.File
	here     journal.Host
	kernel   *System
	ended    bool
	left     bool
	due      time.Time

	questions chan question
}

// leave gives the socket up, once: a second time it may be the next guardian's.
func (g *guardian) leave() {
	if g.left {
		return
	}
	g.left = true
	os.Remove(pendingFile(g.RunDir))
	g.listener.Close()
	os.Remove(guardSocket(g.RunDir))
}

// start makes ready everything that could fail later: after this, undoing
// needs no more than the journal.
func (g *guardian) start() (err error) {
	if g.applier, err = unix.PidfdOpen(g.Applier, 0); err != nil {
		return fmt.Errorf("process %d: %w", g.Applier, err)
	}
	if g.here, err = journal.Here(); err != nil {
		return err
	}
	if g.kernel, err = NewKernel(g.RunDir); err != nil {
		return err
	}
	for _, err := range cgroup.Leave(nil) {
		g.tell("warning the guardian stays in a control group, and ends if that is killed: " + err.Error())
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	g.timer = os.NewFile(uintptr(fd), "timer")
	if err := g.arm(); err != nil {
		return err
	}
	// The applier holds the lock, and has checked that nobody listens.
	if err := os.Remove(guardSocket(g.RunDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(lastUndo(g.RunDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", guardSocket(g.RunDir))
	if err != nil {
		return err
	}
	g.listener = few.Listen(l, maxAskers, 0)
	b, err := padded(g.guardConfig)
	if err == nil {
		err = os.WriteFile(pendingFile(g.RunDir), b, 0o600)
	}
	if err != nil {
		g.leave()
	}
	return err
}

// arm sets the timer to the full time from now. CLOCK_BOOTTIME goes on while
// the machine is suspended.
func (g *guardian) arm() error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(g.Within.Nanoseconds(), 1))}
	fd := int(g.timer.Fd())
	g.due = time.Now().Add(g.Within)
	if err := unix.TimerfdSettime(fd, 0, &spec, nil); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	return unix.SetNonblock(fd, true)
}

func (g *guardian) tell(line string) {
	// The applier may be gone; the change is guarded all the same.
	_, _ = fmt.Fprintln(g.link, line)
}

// maxAskers is how many may be connected: for one more, the oldest goes.
const maxAskers = 64

// A question comes over the socket and wants one line.
type question struct {
	word string
	conn net.Conn
}

// answer replies. The asker may be gone by now; its word was heard.
func (q question) answer(line string) {
	_ = q.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintln(q.conn, line)
}

// watch waits, without polling, for the applier, for questions and for the
// deadline, whichever comes first.
func (g *guardian) watch() error {
	applier, late := make(chan string), make(chan error, 1)
	g.questions = make(chan question)
	go g.hear(applier)
	go g.serve(g.questions)
	go func() {
		var b [8]byte
		_, err := g.timer.Read(b[:])
		late <- err
	}()
	// If the timer is not heard: this one stands still while the machine does.
	backstop := time.NewTimer(g.Within + backstopAfter)
	defer backstop.Stop()
	for {
		select {
		case word, ok := <-applier:
			switch {
			case word == "cancel":
				g.tell("ok")
				return nil
			case word == "ended":
				g.ended = true
				backstop.Reset(g.Within + backstopAfter)
				if err := g.arm(); err != nil {
					g.tell(err.Error())
					return g.undo("the deadline cannot be set: " + err.Error())
				}
				g.tell("ok")
			case !ok && !g.ended:
				return g.undo("apply died before its end")
			case !ok:
				applier = nil
			}
		case q := <-g.questions:
			answer, done := g.reply(q.word)
			if done {
				g.leave() // before who asked goes on, to another change perhaps
			}
			q.answer(answer)
			if done {
				return nil
			}
		case <-backstop.C:
			return g.undo(fmt.Sprintf("not confirmed within %v", g.Within))
		case err := <-late:
			if err != nil {
				return g.undo("the deadline cannot be waited for: " + err.Error())
			}
			return g.undo(fmt.Sprintf("not confirmed within %v", g.Within))
		}
	}
}

func (g *guardian) hear(out chan<- string) {
	s := bufio.NewScanner(g.link)
	for s.Scan() {
		out <- s.Text()
	}
	close(out)
}

func (g *guardian) serve(out chan<- question) {
	for {
		c, err := g.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(undoPause) // without memory or descriptors
			continue
		}
		go func() {
			defer c.Close()
			s := bufio.NewScanner(c)
			for s.Scan() {
				out <- question{s.Text(), c}
			}
		}()
	}
}

// reply answers a question; done says that there is nothing more to guard.
func (g *guardian) reply(word string) (answer string, done bool) {
	switch word {
	case "status":
		if g.ended {
			if there, err := g.journalled(g.here); err == nil && !there {
				return nothing, true
			}
		}
		return fmt.Sprintf("the change of %s waits to be confirmed until %s", g.Config, g.due.Format(time.RFC3339)),
			false
	case "confirm":
		if !g.ended {
			return "apply has not ended yet", false
		}
		there, err := g.journalled(g.here)
		if err != nil {
			return err.Error(), false
		}
		if !there {
			return "the change was rolled back, or replaced, before it was confirmed", true
		}
		return "ok", true
	}
	return fmt.Sprintf("%q is not understood", word), false
}

// undo undoes the change and leaves word of it.
func (g *guardian) undo(why string) error {
	go func() {
		for q := range g.questions {
			q.answer("too late, the change is being undone: " + why)
		}
	}()
	there, err := g.rollBack()
	for try := 1; again(err) && try <= undoTries; try++ {
		time.Sleep(min(time.Duration(try)*undoPause, time.Second))
		// What has failed once is not used again.
		k, kerr := NewKernel(g.RunDir)
		if kerr != nil {
			continue
		}
		g.kernel.Close()
		g.kernel = k
		_, err = g.rollBack()
	}
	if !there {
		return nil
	}
	u := undoRecord{Config: g.Config, When: time.Now().UTC().Round(time.Second), Why: why}
	if err != nil {
		u.Error = fmt.Sprintf("%.2000s", err)
	}
	jerr := g.record(u)
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		if log, lerr := syslog.New(syslog.LOG_DAEMON|syslog.LOG_WARNING, "niclane"); lerr == nil {
			_ = log.Warning(u.String())
			log.Close()
		}
	}()
	select {
	case <-logged:
	case <-time.After(logWait):
	}
	return errors.Join(err, jerr)
}

// undoTries is how often what could not be undone is tried again, undoPause for how
// long nothing is tried before, times the number of the try.
const (
	undoTries = 30
	undoPause = 10 * time.Millisecond
)

// backstopAfter is how much later than the timer its substitute is.
const backstopAfter = time.Second

// logWait bounds the wait for a system log that takes nothing.
const logWait = 2 * time.Second

// again reports whether undoing is to be tried again: not what others have changed.
func again(err error) bool {
	var left LeftError
	if !errors.As(err, &left) {
		return err != nil
	}
	return slices.ContainsFunc(left, func(l Left) bool { return !l.Foreign })
}

// rollBack undoes the change, and reports whether it was there to be undone: somebody
// may have rolled it back meanwhile.
func (g *guardian) rollBack() (there bool, err error) {
	if !g.ended {
		// It is dead, or it hangs: then it must not write any more.
		if err := unix.PidfdSendSignal(g.applier, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
			return true, fmt.Errorf("kill process %d: %w", g.Applier, err)
		}
	}
	lock, err := WaitLock(context.Background(), g.RunDir)
	if err != nil {
		return true, err
	}
	defer lock.Unlock()
	j, s, err := g.journal(g.here)
	if j == nil || err != nil {
		return err != nil, err
	}
	defer s.Close()
	_, err = Undo(g.kernel, j, Options{})
	return true, err
}

// record turns the pending file into word of what was done, in the same room.
func (g *guardian) record(u undoRecord) error {
	b, err := padded(u)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(pendingFile(g.RunDir), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Truncate(int64(len(b))), f.Close()); err != nil {
		return err
	}
	return os.Rename(pendingFile(g.RunDir), lastUndo(g.RunDir))
}
