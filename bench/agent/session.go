// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/power"
	"github.com/niclane/niclane/internal/traffic/napi"
	"github.com/niclane/niclane/lab/virtual"
)

// A session is the state of one orchestrator's use of the agent.
type session struct {
	agent   *Agent
	id      string
	owner   string // name in the orchestrator's certificate
	remote  string
	purpose string
	began   time.Time
	group   group
	storage []string // the session's own directories
	cards   int      // number of further devices
	keeper  *os.File
	latency *os.File // keeps the processors awake while it is open

	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc

	mu        sync.Mutex // protects the following fields
	closed    bool
	jobs      map[int]*job
	countings map[int]*counting
	meters    map[int]power.Meter
	last      int   // last number of a job, a counting or a meter
	bytes     int64 // size of the files
	results   atomic.Int64

	lanes sync.Mutex // held while niclane runs
}

type counting struct {
	config machine.Config
	before *machine.Snapshot
}

// close ends the counting of polls.
func (c *counting) close() error {
	var errs []error
	for _, p := range c.config.Polls {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// String says which client has the session, since when and for what.
func (s *session) String() string {
	return fmt.Sprintf("%s at %s, since %s, for %q", s.owner, s.remote, s.began.UTC().Format(time.RFC3339), s.purpose)
}

func (s *session) files() string { return filepath.Join(s.agent.Dir, "files") }

// open prepares the host for a session. Before it changes the host, it writes a record of all that
// it will make.
func (a *Agent) open(owner, remote string, o Opening) (*session, []string, error) {
	s := &session{
		agent: a, id: rand.Text(), owner: owner, remote: remote, purpose: o.Purpose, began: time.Now(),
		cards: len(o.Cards),
		jobs:  map[int]*job{}, countings: map[int]*counting{}, meters: map[int]power.Meter{},
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session != nil {
		return nil, nil, &heldError{a.session.String()}
	}
	if a.broken != nil {
		if a.broken = restore(a.Dir); a.broken != nil {
			return nil, nil, fmt.Errorf("the previous session could not be undone: %w", a.broken)
		}
	}
	var warnings []string
	var err error
	if s.storage, err = a.planStorage(s.id, o.Storage); err != nil {
		return nil, nil, err
	}
	if len(a.Devices) > 0 {
		if s.group, err = planGroup(s.id); err != nil {
			return nil, nil, err
		}
		if len(s.group.Dirs) == 0 {
			warnings = append(warnings, "no control group: there is no hierarchy")
		}
	}
	r := record{Session: s.id, StateDir: a.StateDir, RunDir: a.RunDir, Files: s.files(),
		Storage: s.storage, Group: s.group}
	if len(a.Devices) > 0 {
		r.Lanes, r.Cards = s.lanesFile(), s.cards
	}
	if err := r.write(a.Dir); err != nil {
		return nil, nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, nil, errors.Join(err, restore(a.Dir))
	}
	if s.latency, err = holdLatency(); err != nil && !virtual.Here() {
		warnings = append(warnings, fmt.Sprintf("processors may sleep deeply: %v", err))
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	a.session = s
	return s, warnings, nil
}

func (s *session) lanesFile() string { return filepath.Join(s.agent.Dir, "lanes.yaml") }

func (s *session) prepare() (err error) {
	if s.keeper, err = startKeeper(s.agent.Dir, s.agent.Self); err != nil {
		return err
	}
	for _, dir := range append([]string{s.files()}, s.storage...) {
		if err == nil {
			err = s.agent.makeDir(dir)
		}
	}
	if err == nil {
		err = s.group.make()
	}
	if err != nil {
		s.keeper.Close()
	}
	return err
}

// holdLatency keeps the processors out of deep sleep states as long as the returned file is open
// (Documentation/power/pm_qos_interface.rst), as tuned's latency-performance profile does.
// In virtual time a wake-up costs nothing, and there is nothing to hold.
func holdLatency() (*os.File, error) {
	if virtual.Here() {
		return os.Open(os.DevNull)
	}
	f, err := os.OpenFile("/dev/cpu_dma_latency", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, 4)); err != nil { // 0 µs
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// close ends the session and restores the host.
func (s *session) close(why error) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(why)
	s.lanes.Lock() // waits until niclane has ended
	defer s.lanes.Unlock()
	err := restore(s.agent.Dir)
	s.mu.Lock()
	jobs := slices.Collect(maps.Values(s.jobs))
	for _, c := range s.countings { // countings that the client has not ended
		err = errors.Join(err, c.close())
	}
	clear(s.countings)
	for _, m := range s.meters {
		m.Stop(s.ctx)
	}
	clear(s.meters)
	s.mu.Unlock()
	for _, j := range jobs {
		if err == nil { // otherwise a job may not have ended
			<-j.done
		}
	}
	if s.latency != nil {
		err = errors.Join(err, s.latency.Close())
	}
	// Tell the keeper only now that it is not needed. If the agent is killed before this point, the
	// keeper must restore the host.
	_, _ = s.keeper.Write([]byte("done")) // an error means that the keeper was killed
	err = errors.Join(err, s.keeper.Close())
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	s.agent.session, s.agent.broken = nil, err
	return err
}

// errClosed is the answer to requests after the session's end.
var errClosed = errors.New("the session has ended")

// add starts a job and returns its number.
func (s *session) add(r Request) (int, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, errClosed
	}
	if len(s.jobs) >= maxJobs {
		return 0, fmt.Errorf("%d jobs at once, want at most %d", len(s.jobs)+1, maxJobs)
	}
	j, err := s.start(r)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", r.What, err)
	}
	s.last++
	s.jobs[s.last] = j
	return s.last, nil
}

func (s *session) job(id int) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[id]
	if j == nil {
		return nil, fmt.Errorf("no job %d", id)
	}
	return j, nil
}

// forget drops a job that has ended and whose end was reported.
func (s *session) forget(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[id]; j != nil {
		s.results.Add(-int64(j.stdout.buf.Len()))
		delete(s.jobs, id)
	}
}

// put writes a file below the session's directory. Only the jobs' user can read a private file.
func (s *session) put(name string, private bool, text []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if s.bytes += int64(len(text)); s.bytes > maxFiles {
		return fmt.Errorf("file %s: more than %d bytes of files in one session", name, maxFiles)
	}
	// Jobs can write to the directory. A symbolic link that they make must not lead out of it.
	root, err := os.OpenRoot(s.files())
	if err != nil {
		return err
	}
	defer root.Close()
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		// Jobs own the subdirectories, so that they can write next to their files there too.
		for ; s.agent.drop && dir != "."; dir = filepath.Dir(dir) {
			if err := root.Lchown(dir, s.agent.uid, s.agent.gid); err != nil {
				return err
			}
		}
	}
	mode := os.FileMode(0o644)
	if private {
		mode = 0o600
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if private && s.agent.drop && err == nil {
		err = f.Chown(s.agent.uid, s.agent.gid)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, root.Remove(name))
	}
	return nil
}

// maxCountings is the largest number of active countings.
const maxCountings = 16

// count starts a counting and returns its number. counted ends the counting.
func (s *session) count(c Counting) (int, error) {
	counted := &counting{config: machine.Config{Device: c.Device, Cards: c.Cards, Processes: map[string]int{}}}
	config := &counted.config
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, id := range c.Jobs {
		j := s.jobs[id]
		if j == nil || len(name) > 32 {
			return 0, fmt.Errorf("%.40q: no job %d", name, id)
		}
		config.Processes[name] = j.cmd.Process.Pid
	}
	if len(s.countings) >= maxCountings {
		return 0, fmt.Errorf("more than %d countings under way", maxCountings)
	}
	for _, dev := range append([]string{c.Device}, c.Cards...) {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			continue
		}
		// NAPI polls cannot be counted without privileges or on an old kernel. The counting is then
		// without polls.
		if polls, err := napi.Open(link.Index); err == nil {
			config.Polls = append(config.Polls, polls)
		}
	}
	var err error
	if counted.before, err = machine.Take(*config); err != nil {
		return 0, errors.Join(err, counted.close())
	}
	s.last++
	s.countings[s.last] = counted
	return s.last, nil
}

func (s *session) counted(id int) (machine.Diff, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.countings[id]
	if c == nil {
		return machine.Diff{}, fmt.Errorf("no counting %d", id)
	}
	delete(s.countings, id)
	after, err := machine.Take(c.config)
	if err = errors.Join(err, c.close()); err != nil {
		return machine.Diff{}, err
	}
	return after.Since(c.before)
}
