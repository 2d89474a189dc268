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

	"github.com/niclane/niclane/internal/privatedir"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/journal"
)

// A Record describes one application in a lane: the objects that niclane made for it, and the state
// before.
type Record struct {
	// ID consists of the lane's name and the PID: LANE-PID.
	ID string `json:"id"`
	journal.Host
	Lane Lane `json:"lane"`
	// Process is the process that niclane run became, or the first process that was attached.
	Process Process  `json:"process"`
	Command []string `json:"command,omitempty"`
	// Attached is true if niclane attach has brought the application into the lane, and false if
	// niclane run started it. If the user named a unit, a container or a tap, the field of that name
	// has it.
	Attached  bool   `json:"attached,omitempty"`
	Unit      string `json:"unit,omitempty"`
	Container string `json:"container,omitempty"`
	Tap       string `json:"tap,omitempty"`
	// Kept is true if the application stays in the control groups that its manager made. The manager
	// is systemd, libvirt or that of a container.
	Kept bool `json:"kept,omitempty"`
	// Groups are the application's control groups. The first one lists its processes.
	Groups []Group `json:"groups"`
	// CPUs and Mems are the processors and NUMA nodes to which the application is confined; nil: all.
	CPUs []int `json:"cpus,omitempty"`
	Mems []int `json:"mems,omitempty"`
	// Home has the application's former group in each hierarchy. Its processes return there in the
	// end.
	Home map[string]string `json:"home,omitempty"`
	// Was is the affinity that niclane run had before it entered the lane.
	Was []int `json:"was,omitempty"`
	// Threads are threads whose affinity niclane changes, with their former affinity.
	Threads []Thread `json:"threads,omitempty"`
	// Class is set if niclane has given a class to a control group that it did not make.
	Class *device.CgroupClass `json:"class,omitempty"`
	// Files are settings that niclane has changed in control groups that it did not make.
	Files     []Setting  `json:"files,omitempty"`
	Listeners *Listeners `json:"listeners,omitempty"`
	// Queues are the lane's queues with their processors, if Listeners is set.
	Queues []QueueCPU `json:"queues,omitempty"`
	// BusyPoll is the application's busy polling; nil: unchanged.
	BusyPoll *BusyPoll `json:"busyPoll,omitempty"`
	// Keeper is the process that follows the application, nil if none does.
	Keeper *Process `json:"keeper,omitempty"`
}

// A Thread is a thread whose affinity niclane sets.
type Thread struct {
	Process // thread ID and start time
	// Was is the thread's affinity before niclane set it.
	Was []int `json:"was"`
}

// A Setting is a file of a control group that niclane has written, with the value before and after.
type Setting struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Listeners says how niclane distributes connections over listeners.
type Listeners struct {
	// Ports are TCP ports.
	Ports []uint16 `json:"ports"`
	// Pin is true if niclane pins each thread that serves a listener to a processor of the lane.
	Pin bool `json:"pin,omitempty"`
	// CPUs has the processors of the listeners if the user gave them: one for each listener of a port,
	// in the order in which the listeners were created. nil: niclane finds the processors.
	CPUs []int `json:"cpus,omitempty"`
}

// Left reports whether the application runs, but not in its group: another program moved it, or
// removed the group.
func (r *Record) Left() bool {
	if !r.Process.Alive() || len(r.Groups) == 0 {
		return false
	}
	pids, err := r.Groups[0].processes()
	return err == nil && len(pids) == 0
}

// A Store is the directory of the records, below the run directory. Each record is a file. While a
// process has a Store open, it holds the lock.
type Store struct {
	dir  string
	lock *os.File
	here journal.Host
}

// Open opens the directory of the records below runDir. It waits until it gets the lock.
func Open(runDir string) (*Store, error) {
	here, err := journal.Here()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(runDir, "apps")
	for _, d := range []string{runDir, dir} {
		if err := privatedir.Make(d); err != nil {
			return nil, fmt.Errorf("records of applications: %w", err)
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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

// Close releases the lock.
func (s *Store) Close() error { return s.lock.Close() }

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+".json") }

// Save writes a record. A reader sees the old file or the new one, never a part.
func (s *Store) Save(r *Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replace(s.path(r.ID), b)
}

// replace writes a new file and renames it to path.
func replace(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Remove deletes a record.
func (s *Store) Remove(r *Record) error {
	for _, path := range []string{s.reportPath(r.ID), s.path(r.ID)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Read returns a record. If there is none with that ID, the error is fs.ErrNotExist.
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

// Here returns the records of this boot and network namespace.
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
