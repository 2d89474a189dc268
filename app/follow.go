// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/niclane/niclane/app/reuseport"
	"github.com/niclane/niclane/lane/observe"
)

// Intervals of the follower. Every lookAgain it looks for changed thread affinities; every
// observeAgain it looks for queues that moved to other processors.
const (
	lookAgain    = 5 * time.Second
	observeAgain = 30 * time.Second
)

// A follower keeps an application's connections on the right listeners while processes and
// listeners start and end.
type follower struct {
	leader
	store   *Store
	diag    *diag
	pids    []int
	cookies []uint64
	settled bool
	// looked is when the follower last looked at the listeners. observed is when it last looked at the
	// queues.
	looked, observed time.Time
}

func newFollower(s *Store, r *Record, queues []QueueCPU) *follower {
	f := &follower{leader: leader{record: r, queues: queues, set: map[uint64]reuseport.Tables{}}, store: s,
		observed: time.Now()}
	f.leader.keep = f.keep
	return f
}

func (f *follower) close() {
	if f.diag != nil {
		_ = f.diag.close()
	}
}

// tick looks at the listeners if something has changed or lookAgain has passed. After an error, it
// writes a report, and the next tick tries again. Until then, the kernel's hash chooses the
// listeners of connections.
func (f *follower) tick(ctx context.Context) {
	if !f.changed() && f.settled && time.Since(f.looked) < lookAgain {
		return
	}
	if time.Since(f.observed) > observeAgain {
		st, err := observe.Observe(ctx, observe.Options{Devices: f.record.Lane.Devices(), NoProbes: true})
		if err == nil {
			f.queues = queueCPUs(f.record.Lane, st)
		}
		f.observed = time.Now()
	}
	f.looked = time.Now()
	groups, err := f.look()
	f.settled = err == nil && !slices.ContainsFunc(groups, func(g ListenGroup) bool {
		return slices.ContainsFunc(g.Listeners, func(l Listening) bool { return l.CPU == unknown && l.Home == "" })
	})
	report := Report{Groups: groups}
	if err != nil {
		report.Error = err.Error()
	}
	_ = f.store.report(f.record.ID, report)
}

// changed reports whether the processes or the listeners are others than at the last look.
func (f *follower) changed() bool {
	var err error
	if f.diag == nil {
		if f.diag, err = openDiag(); err != nil {
			return true
		}
	}
	cookies, err := f.diag.listeners(f.record.Listeners.Ports)
	if err != nil {
		return true
	}
	pids, err := f.record.Groups[0].processes()
	if err != nil {
		return true
	}
	same := slices.Equal(cookies, f.cookies) && slices.Equal(pids, f.pids)
	f.cookies, f.pids = cookies, pids
	return !same
}

// keep records a thread before the leader pins it, so that undo can restore its affinity.
func (f *follower) keep(t Thread) error {
	s, err := Open(strings.TrimSuffix(f.store.dir, "/apps"))
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := s.Read(f.record.ID)
	if err != nil {
		return err
	}
	r.Threads = slices.DeleteFunc(r.Threads, func(t Thread) bool { return !t.Alive() })
	r.add(t)
	return s.Save(r)
}

// add records a thread. If the record has the thread already, add does nothing, because the record
// has the affinity from before niclane.
func (r *Record) add(t Thread) {
	if !slices.ContainsFunc(r.Threads, func(x Thread) bool { return x.Process == t.Process }) {
		r.Threads = append(r.Threads, t)
	}
}

// A Report is what the follower found when it last looked at an application's listeners.
type Report struct {
	Groups []ListenGroup `json:"groups,omitempty"`
	Error  string        `json:"error,omitempty"`
}

func (s *Store) reportPath(id string) string {
	return strings.TrimSuffix(s.path(id), ".json") + ".report"
}

func (s *Store) report(id string, r Report) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return replace(s.reportPath(id), b)
}

// Report returns the follower's last report about an application, or an empty Report if there is
// none.
func (s *Store) Report(id string) (Report, error) {
	var r Report
	b, err := os.ReadFile(s.reportPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}
