// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A job is a process of a session.
type job struct {
	what   string
	cmd    *exec.Cmd
	stdout limitedWriter
	log    tail
	done   chan struct{} // closed when it has ended
	err    error         // how it ended, once done
	part   bool
}

// limitedWriter keeps what is written to it. It refuses more than maxResult bytes, and more than
// maxResults bytes in all results of the session.
type limitedWriter struct {
	buf  bytes.Buffer // not embedded: Buffer.ReadFrom would ignore the limits
	all  *atomic.Int64
	over bool
}

func (l *limitedWriter) Write(b []byte) (int, error) {
	if l.over || l.buf.Len()+len(b) > maxResult || l.all.Add(int64(len(b))) > maxResults {
		l.over = true
		return 0, errOver
	}
	return l.buf.Write(b)
}

var errOver = errors.New("a result that is too large")

// tail keeps the last maxLog bytes of what is written. It informs readers that wait for more.
type tail struct {
	mu      sync.Mutex
	b       []byte
	written int64 // number of bytes in all
	more    chan struct{}
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	t.written += int64(len(b))
	if extra := len(t.b) - maxLog; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	if t.more != nil {
		close(t.more)
		t.more = nil
	}
	return len(b), nil
}

// since returns the bytes written after the first n, as far as they are still kept. It also
// returns the number of bytes written in all, and a channel that is closed when more are written.
func (t *tail) since(n int64) ([]byte, int64, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.more == nil {
		t.more = make(chan struct{})
	}
	keep := min(t.written-n, int64(len(t.b)))
	return bytes.Clone(t.b[int64(len(t.b))-keep:]), t.written, t.more
}

func (t *tail) String() string {
	b, _, _ := t.since(0)
	return string(b)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// A spawner starts processes from one thread that lives as long as the agent. Jobs are to be
// killed when the agent dies. The kernel does that as soon as the thread that started the job
// ends (prctl(2), PR_SET_PDEATHSIG).
type spawner struct{ do chan func() }

func newSpawner() *spawner {
	s := &spawner{do: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.do {
			f()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	err := make(chan error)
	s.do <- func() { err <- cmd.Start() }
	return <-err
}

func (s *spawner) close() { close(s.do) }

// start starts the process of r. The caller holds the session's lock.
func (s *session) start(r Request) (*job, error) {
	a := s.agent
	at := spec{Agent: os.Getpid(), CPUs: r.CPUs, Mems: r.Mems, FIFO: r.FIFO, MayFIFO: r.MayFIFO, Drop: a.drop,
		User: a.uid, Group: a.gid}
	argv := r.Command
	j := &job{what: r.What, done: make(chan struct{}), part: r.Part != "", stdout: limitedWriter{all: &s.results}}
	if at.Part = j.part; j.part {
		argv = []string{a.Self, "internal-" + r.Part}
		if r.Part == PartTune {
			if err := s.mayTune(r); err != nil {
				return nil, err
			}
			at.Drop = false
		}
		if r.Part == PartLed {
			if err := s.mayLead(); err != nil {
				return nil, err
			}
			at.Drop = false
		}
	} else {
		path, err := a.allowed(argv[0])
		if err != nil {
			return nil, err
		}
		argv = append([]string{path}, argv[1:]...)
	}
	if r.Member {
		var err error
		if at.Cgroups, err = s.group.of(r); err != nil {
			return nil, err
		}
		if len(at.Cgroups) == 0 {
			return nil, errors.New("this agent has no control group for members: it was started without --lanes, or " +
				"there is no hierarchy")
		}
	}
	text, err := json.Marshal(at)
	if err != nil {
		return nil, err
	}
	j.cmd = exec.Command(a.Self, append([]string{JobCommand, string(text)}, argv...)...)
	j.cmd.Dir = s.files()
	j.cmd.Env = append([]string{"PATH=" + commandPath, "LANG=C.UTF-8", marker + "=" + s.id}, r.Environment...)
	if r.Part == PartTune {
		j.cmd.Env = append(j.cmd.Env, TuneVariable+"="+tunePath(a.Dir))
	}
	if r.Part == PartLed {
		j.cmd.Env = append(j.cmd.Env, GroupVariable+"="+s.group.Path)
	}
	// The job gets a Unix session of its own. Otherwise the scheduler's autogroup would put the
	// job into one group with the agent.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	j.cmd.Stderr = &j.log
	if j.part {
		j.cmd.Stdin, j.cmd.Stdout = bytes.NewReader(r.Config), &j.stdout
	} else {
		j.cmd.Stdout = &j.log
	}
	// Wait waits only this long for the pipes to close after the job has ended: processes that
	// the job left behind may hold them open.
	j.cmd.WaitDelay = time.Second
	if err := a.spawner.start(j.cmd); err != nil {
		return nil, err
	}
	go func() {
		j.err = j.cmd.Wait()
		close(j.done)
	}()
	return j, nil
}

// commandPath lists the directories in which agent and jobs look for programs.
const commandPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// end returns the result of a job that has ended.
func (j *job) end() End {
	e := End{Log: j.log.String()}
	switch {
	case j.stdout.over:
		e.Error = fmt.Sprintf("its result is larger than %d bytes, or all results together are larger than "+
			"%d", maxResult,
			maxResults)
	case j.err != nil:
		e.Error = j.err.Error()
		if line := lastLine(e.Log); line != "" {
			e.Error += ": " + line
		}
	case j.part:
		if e.Result = json.RawMessage(j.stdout.buf.Bytes()); !json.Valid(e.Result) {
			e.Result, e.Error = nil, "its result is not JSON"
		}
	}
	return e
}

// stopTime is how long a job may take to end when asked. With 1 % of a processor, a job takes 2 s.
const stopTime = 10 * time.Second

// stop asks the job to end, and kills it after stopTime.
func (j *job) stop() error { return j.endWithin(stopTime) }

func (j *job) endWithin(patience time.Duration) error {
	select {
	case <-j.done:
		return nil
	default:
	}
	_ = j.cmd.Process.Signal(unix.SIGTERM)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-j.done:
		return nil
	case <-timer.C:
	}
	_ = unix.Kill(-j.cmd.Process.Pid, unix.SIGKILL)
	<-j.done
	return fmt.Errorf("%s: did not end when asked", j.what)
}
