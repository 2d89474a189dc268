// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sockclass"
	"github.com/niclane/niclane/lane/device"
)

// undo restores the state from before the application entered the lane, and then removes the
// record. It skips objects that no longer exist. If a part cannot be undone, the record stays.
func (s *Store) undo(r *Record) error {
	errs := []error{r.stopKeeper(), r.releaseListeners(), r.stopBusyPoll(), r.removeClass()}
	left, failed := r.goHome()
	errs = append(errs, failed...)
	errs = append(errs, r.widen(left), r.restoreThreads(), r.restoreFiles())
	// Remove the groups in reverse order of creation.
	for _, g := range slices.Backward(r.Groups) {
		errs = append(errs, g.remove())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", r.ID, err)
	}
	return s.Remove(r)
}

// goHome moves the application's processes back to their former groups. If a former group no longer
// exists, they go to its nearest parent that does. Processes may start meanwhile, so goHome repeats
// this until none is left. left are the PIDs of all processes that it moved.
func (r *Record) goHome() (left []int, errs []error) {
	for _, g := range r.Groups {
		if !g.Made && r.Kept {
			continue // its processes were never moved
		}
		home := Group{Hierarchy: g.Hierarchy, Root: g.Root, Path: hierarchy{controller: g.Hierarchy}.of(r.Home)}
		for home.Path != "/" && home.Path != "" && !home.exists() {
			home.Path = parent(home.Path)
		}
		if home.Path == "" || home.Path == g.Path {
			continue
		}
		for range 100 {
			pids, err := g.leavers(r)
			if err != nil {
				errs = append(errs, err)
				break
			}
			if len(pids) == 0 {
				break
			}
			failed := error(nil)
			for _, pid := range pids {
				if !slices.Contains(left, pid) {
					left = append(left, pid)
				}
				if err := home.join(pid); err != nil && !gone(err) {
					failed = err
				}
			}
			if failed != nil {
				errs = append(errs, failed)
				break
			}
		}
	}
	return left, errs
}

// widen restores the affinity of threads that inherited the lane's affinity from niclane run: they
// get the affinity that niclane run had before. If a thread has another affinity than the lane's,
// the application has set it, and widen keeps it.
func (r *Record) widen(pids []int) error {
	if len(r.Was) == 0 {
		return nil
	}
	var errs []error
	for _, pid := range pids {
		for _, tid := range threads(pid) {
			on, err := affinity(tid)
			if err == nil && slices.Equal(on, slices.Sorted(slices.Values(r.CPUs))) {
				err = setAffinity(tid, r.Was)
			}
			if err != nil && !gone(err) {
				errs = append(errs, fmt.Errorf("thread %d back to processors %s: %w", tid, device.FormatCPUList(r.Was),
					err))
			}
		}
	}
	return errors.Join(errs...)
}

// leavers returns the processes that goHome must move out of a group: all processes if niclane made
// the group, otherwise only the application's.
func (g Group) leavers(r *Record) ([]int, error) {
	pids, err := g.processes()
	if err != nil || g.Made {
		return pids, err
	}
	if !r.Process.Alive() {
		return nil, nil
	}
	family, err := descendants(r.Process.PID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return !slices.Contains(family, pid) }), nil
}

func parent(group string) string {
	i := strings.LastIndexByte(group, '/')
	if i <= 0 {
		return "/"
	}
	return group[:i]
}

// restoreThreads gives each thread in the record its former affinity.
func (r *Record) restoreThreads() error {
	var errs []error
	for _, t := range r.Threads {
		if !t.Alive() {
			continue
		}
		if err := setAffinity(t.PID, t.Was); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("thread %d back to processors %s: %w", t.PID, device.FormatCPUList(t.Was),
				err))
		}
	}
	return errors.Join(errs...)
}

// restoreFiles restores the settings in Files. If another program has changed a setting since, it
// keeps the new value.
func (r *Record) restoreFiles() error {
	var errs []error
	for _, f := range slices.Backward(r.Files) {
		now, err := os.ReadFile(f.Path)
		if errors.Is(err, fs.ErrNotExist) || gone(err) {
			continue
		}
		if err == nil && strings.TrimSpace(string(now)) == f.New {
			err = os.WriteFile(f.Path, []byte(f.Old+"\n"), 0)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s back to %q: %w", f.Path, f.Old, err))
		}
	}
	return errors.Join(errs...)
}

// removeClass removes the class that niclane gave a group that it did not make.
func (r *Record) removeClass() error {
	if r.Class == nil {
		return nil
	}
	c, err := findGroups()
	if err != nil {
		return err
	}
	client, err := sockclass.Open(c.V2)
	if err != nil {
		return err
	}
	now, err := client.Read(*r.Class)
	if err != nil || now == nil {
		return err
	}
	err = client.Write(now, nil)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// sweep undoes the records of applications that have ended. It deletes the records of earlier
// boots.
func (s *Store) sweep() error {
	all, err := s.all()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		if !r.SameBoot(s.here) {
			errs = append(errs, s.Remove(r)) // the kernel's state ended with that boot
			continue
		}
		if over, err := r.over(); err != nil || !over {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, s.undo(r))
	}
	return errors.Join(errs...)
}

// over reports whether the application has ended. If niclane or a manager made its group for it,
// the application has ended when the group is empty. Otherwise, it has ended when its first process
// has.
func (r *Record) over() (bool, error) {
	if r.Process.Alive() {
		return false, nil
	}
	if len(r.Groups) == 0 || !r.Groups[0].Made && !r.Kept {
		return true, nil
	}
	pids, err := r.Groups[0].processes()
	return len(pids) == 0, err
}

// Sweep undoes the records of applications that have ended without a keeper, because the keeper was
// killed.
func Sweep(runDir string) error {
	s, err := Open(runDir)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.sweep()
}
