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

// RunGuard runs the guardian until it ends. arg comes from StartGuard. File descriptor 3 is the
// connection to the process that called StartGuard.
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
	link     *os.File // connection to the applier
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

// leave removes the socket and the pending file. Only the first call does so: later, the socket
// may belong to the next guardian.
func (g *guardian) leave() {
	if g.left {
		return
	}
	g.left = true
	os.Remove(pendingFile(g.RunDir))
	g.listener.Close()
	os.Remove(guardSocket(g.RunDir))
}

// start prepares everything that could fail later. After this, an undo needs only the journal.
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
	// The applier holds the lock and has checked that no guardian listens, so the socket is unused.
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

// arm sets the timer to the full time from now. The timer uses CLOCK_BOOTTIME, which continues
// while the machine is suspended.
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
	// An error means that the applier is gone. The guardian continues without it.
	_, _ = fmt.Fprintln(g.link, line)
}

// maxAskers is the largest number of connections. One more connection closes the oldest.
const maxAskers = 64

// A question is one line that came over the socket. It gets one line as the answer.
type question struct {
	word string
	conn net.Conn
}

// answer sends the answer. It ignores errors: the asker may be gone, but its question has taken
// effect.
func (q question) answer(line string) {
	_ = q.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintln(q.conn, line)
}

// watch waits for the applier, for questions and for the deadline. It does not poll.
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
	// The backstop is for the case that the timer cannot be read. It does not count the time while
	// the machine is suspended.
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
				return g.undo("apply died before it finished")
			case !ok:
				applier = nil
			}
		case q := <-g.questions:
			answer, done := g.reply(q.word)
			if done {
				g.leave() // before the answer, because the asker may then start the next change
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
			time.Sleep(undoPause) // no memory or no file descriptors: wait a moment
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

// reply returns the answer to a question. done says that the guardian has nothing left to do.
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
			return "apply has not finished yet", false
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

// undo undoes the change and writes a record of that.
func (g *guardian) undo(why string) error {
	go func() {
		for q := range g.questions {
			q.answer("too late, the change is being undone: " + why)
		}
	}()
	there, err := g.rollBack()
	for try := 1; again(err) && try <= undoTries; try++ {
		time.Sleep(min(time.Duration(try)*undoPause, time.Second))
		// Do not reuse a connection that has failed.
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

// undoTries is how often undo tries again. The pause before each try is undoPause times the
// number of the try, at most a second.
const (
	undoTries = 30
	undoPause = 10 * time.Millisecond
)

// backstopAfter is the time between the end of the timer and that of the backstop.
const backstopAfter = time.Second

// logWait is the longest time to wait for a system log that accepts no messages.
const logWait = 2 * time.Second

// again reports whether to try the undo again. It does not if only objects are left that other
// programs have changed.
func again(err error) bool {
	var left LeftError
	if !errors.As(err, &left) {
		return err != nil
	}
	return slices.ContainsFunc(left, func(l Left) bool { return !l.Foreign })
}

// rollBack undoes the change. there is false if the change was rolled back before.
func (g *guardian) rollBack() (there bool, err error) {
	if !g.ended {
		// The applier is dead or hangs. Kill it, so that it writes nothing more.
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

// record overwrites the pending file with the record of the undo and renames it, so that it needs
// no new disk space.
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
