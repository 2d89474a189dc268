// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrCommand is the error if the command cannot be executed. It wraps exec.ErrNotFound or the
// kernel's error.
type ErrCommand struct{ error }

// Unwrap returns the cause.
func (e ErrCommand) Unwrap() error { return e.error }

// Run starts the command argv in a lane. The calling process becomes the command (execve), so no
// process of niclane is between the application and its parent. Run returns only on an error, after
// it has undone its changes.
func Run(l Lane, o Options, argv []string) error {
	// Affinity and memory policy belong to a thread. When a thread calls execve, the new program has
	// those of that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return ErrCommand{err}
	}
	r, err := prepare(l, o, argv)
	if err != nil {
		return err
	}
	err = ErrCommand{fmt.Errorf("%s: %w", path, unix.Exec(path, argv, os.Environ()))}
	return errors.Join(err, abandon(o.RunDir, r))
}

// prepare puts the calling process into the lane.
func prepare(l Lane, o Options, argv []string) (_ *Record, err error) {
	s, err := Open(o.RunDir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.sweep(); err != nil {
		return nil, err
	}
	r, err := s.begin(l, os.Getpid())
	if err != nil {
		return nil, err
	}
	r.Command = argv
	if r.Home, err = membership(os.Getpid()); err != nil {
		return nil, err
	}
	c, err := findGroups()
	if err != nil {
		return nil, err
	}
	name, err := o.group(l)
	if err != nil {
		return nil, err
	}
	if name != "" {
		if r.Groups, err = given(hierarchies(c, l), name); err != nil {
			return nil, err
		}
	} else {
		r.Groups = own(hierarchies(c, l), "/niclane-"+r.ID)
	}
	r.CPUs, r.Mems = l.confine(o.State)
	if o.CPUs != nil {
		r.CPUs, r.Mems = o.CPUs, o.Mems
	}
	if r.Was, err = affinity(0); err != nil {
		return nil, err
	}
	r.BusyPoll = o.BusyPoll
	if r.Listeners = o.Listeners; r.Listeners != nil {
		r.Queues = queueCPUs(l, o.State)
		if err := s.checkListeners(r); err != nil {
			return nil, err
		}
	}
	if err := s.Save(r); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.undo(r))
		}
	}()
	if err := r.addGroups(); err != nil {
		return nil, err
	}
	if name == "" || r.followed() {
		if err := s.startKeeper(r, o.Keeper); err != nil {
			return nil, err
		}
	}
	for _, g := range r.Groups {
		if err := g.join(os.Getpid()); err != nil {
			return nil, err
		}
	}
	if len(r.CPUs) == 0 {
		return r, nil
	}
	if err := setAffinity(0, r.CPUs); err != nil {
		return nil, fmt.Errorf("processors %v: %w", r.CPUs, err)
	}
	way, err := cpusets(c)
	if err != nil || way != cpusetNone || len(r.Mems) == 0 {
		return r, err
	}
	return r, bind(r.Mems)
}

// begin returns a new record for a process. It returns an error if the process is in a lane
// already.
func (s *Store) begin(l Lane, pid int) (*Record, error) {
	p, err := FindProcess(pid)
	if err != nil {
		return nil, err
	}
	all, err := s.all()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.Process == p {
			return nil, fmt.Errorf("process %d is in lane %s already: niclane detach --pid %d first", pid, r.Lane.Name,
				pid)
		}
	}
	return &Record{ID: fmt.Sprintf("%s-%d", l.Name, pid), Host: s.here, Lane: l, Process: p}, nil
}

// addGroups makes those groups of the record that are marked Made.
func (r *Record) addGroups() error {
	for _, g := range r.Groups {
		if !g.Made {
			continue
		}
		if err := g.add(r.CPUs, r.Mems); err != nil {
			return err
		}
	}
	return nil
}

// abandon undoes prepare. It is called if the command cannot be executed.
func abandon(runDir string, r *Record) error {
	s, err := Open(runDir)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.undo(r)
}
