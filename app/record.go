// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
)

// A Record is one application in a lane: what was made for it, and what there
// was before.
type Record struct {
	// ID is LANE-PID.
	ID string `json:"id"`
	journal.Host
	Lane Lane `json:"lane"`
	// Process is the one that was started, or named when attaching.
	Process Process  `json:"process"`
	Command []string `json:"command,omitempty"`
	// Attached is false for what niclane run started. Unit, Container and Tap
	// say by what name it was found.
	Attached  bool   `json:"attached,omitempty"`
	Unit      string `json:"unit,omitempty"`
	Container string `json:"container,omitempty"`
	Tap       string `json:"tap,omitempty"`
	// Kept is what stays in the control groups that its manager has put it
	// in: a unit, a container, a machine of libvirt's.
	Kept bool `json:"kept,omitempty"`
	// Groups are the application's, the first of which tells its processes.
	Groups []Group `json:"groups"`
	// CPUs and Mems are what the application is confined to; nil: nothing.
	CPUs []int `json:"cpus,omitempty"`
	Mems []int `json:"mems,omitempty"`
	// Home are the groups, by hierarchy, that its processes go back to.
	Home map[string]string `json:"home,omitempty"`
	// Was are the processors that niclane run had before it took the lane's.
	Was []int `json:"was,omitempty"`
	// Threads are those that had processors of their own before.
	Threads []Thread `json:"threads,omitempty"`
	// Class is what niclane gave a group that is not its own.
	Class *device.CgroupClass `json:"class,omitempty"`
	// Files are settings of groups that are not niclane's.
	Files     []Setting  `json:"files,omitempty"`
	Listeners *Listeners `json:"listeners,omitempty"`
	// Queues are the lane's, where Listeners are led to.
	Queues []QueueCPU `json:"queues,omitempty"`
	// BusyPoll is how it polls itself; nil: as it does.
	BusyPoll *BusyPoll `json:"busyPoll,omitempty"`
	// Keeper follows the application, nil if nothing needs it.
	Keeper *Process `json:"keeper,omitempty"`
}

// A Thread is one that had its processors set.
type Thread struct {
	Process // its own ID and start
	// Was are the processors that it had.
	Was []int `json:"was"`
}

// A Setting is a file of a group's, before and after.
type Setting struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Listeners say how connections are led to listeners.
type Listeners struct {
	// Ports of TCP.
	Ports []uint16 `json:"ports"`
	// Pin keeps each thread that serves one to a processor of the lane.
	Pin bool `json:"pin,omitempty"`
	// CPUs were told: the processor of each listener of a port, in the order
	// in which they were made; nil: found.
	CPUs []int `json:"cpus,omitempty"`
}

// Left reports whether the application runs, but no longer where niclane put
// it: somebody has moved it, or removed its control group.
func (r *Record) Left() bool {
	if !r.Process.Alive() || len(r.Groups) == 0 {
		return false
	}
	pids, err := r.Groups[0].processes()
	return err == nil && len(pids) == 0
}

// A Store is where records are kept: one file each, below the run directory.
// Nobody else changes them while it is open.
type Store struct {
	dir  string
	lock *os.File
	here journal.Host
}

// Open opens the records below runDir, waiting for whoever has them open.
func Open(runDir string) (*Store, error) {
	here, err := journal.Here()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(runDir, "apps")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		if err == nil {
			return &Store{dir: dir, lock: lock, here: here}, nil
		}
		if err != unix.EINTR {
			lock.Close()
			return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
	}
}

// Close lets others in.
func (s *Store) Close() error { return s.lock.Close() }

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+".json") }

// Save writes a record, whole or not at all.
func (s *Store) Save(r *Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replace(s.path(r.ID), b)
}

// replace writes a file whole or not at all.
func replace(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Remove forgets a record.
func (s *Store) Remove(r *Record) error {
	for _, path := range []string{s.reportPath(r.ID), s.path(r.ID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Read returns a record; fs.ErrNotExist if there is none of that ID.
func (s *Store) Read(id string) (*Record, error) {
	b, err := os.ReadFile(s.path(id))
	if err != nil {
		return nil, err
	}
	r := new(Record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(id), err)
	}
	return r, nil
}

// Here returns the records of this boot and network namespace, by ID.
func (s *Store) Here() ([]*Record, error) {
	all, err := s.all()
	return slices.DeleteFunc(all, func(r *Record) bool { return !r.SameNetns(s.here) }), err
}

func (s *Store) all() ([]*Record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []*Record
	var errs []error
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		r, err := s.Read(id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}
