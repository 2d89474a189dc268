// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app/reuseport"
	"github.com/niclane/niclane/internal/kernel/cgroup"
	"github.com/niclane/niclane/internal/kernel/sockclass"
	"github.com/niclane/niclane/lane/device"
)

// A Target names the application to attach. Exactly one field is set.
type Target struct {
	PID       int
	Unit      string // systemd unit: "nginx.service"
	Container string // container ID, or its first 12 or more characters
	Tap       string // tap or macvtap of a virtual machine: "vnet0"
}

// Attach brings a running application into a lane: its processes, the processes that they start
// later, and its sockets. The Result says what Attach has done, and what it could not do. On an
// error, Attach has undone its changes.
func Attach(l Lane, o Options, t Target) (_ *Result, err error) {
	s, err := Open(o.RunDir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.sweep(); err != nil {
		return nil, err
	}
	c, err := findGroups()
	if err != nil {
		return nil, err
	}
	a := &attachment{store: s, lane: l, options: o, groups: c}
	if err := a.begin(t); err != nil {
		return nil, err
	}
	if err := s.Save(a.record); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.undo(a.record))
		}
	}()
	for _, step := range []func() error{a.record.addGroups, a.keepThreads, a.move, a.confine, a.classify, a.busyPoll,
		a.listen, a.follow} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &Result{Record: a.record, Notes: a.notes}, nil
}

// A Result is the record of an application in a lane, with notes for the user.
type Result struct {
	*Record
	// Notes are facts that the user should know.
	Notes []string `json:"notes,omitempty"`
}

type attachment struct {
	store   *Store
	lane    Lane
	options Options
	groups  device.Cgroup
	record  *Record
	pids    []int
	machine *machine // nil if the application is no virtual machine
	notes   []string
}

func (a *attachment) notef(format string, args ...any) {
	a.notes = append(a.notes, fmt.Sprintf(format, args...))
}

// begin finds the application, begins its record and chooses its control groups.
func (a *attachment) begin(t Target) error {
	pid, managed, err := a.find(t)
	if err != nil {
		return err
	}
	if pid == os.Getpid() {
		return fmt.Errorf("process %d is niclane itself", pid)
	}
	if t.Container != "" {
		err = a.contained(pid)
	} else {
		err = sameNetns(pid)
	}
	if err != nil {
		return err
	}
	if a.record, err = a.store.begin(a.lane, pid); err != nil {
		return err
	}
	r := a.record
	r.Attached, r.Unit, r.Container, r.Tap, r.Kept = true, t.Unit, t.Container, t.Tap, managed != nil
	r.Command = commandOf(pid)
	if r.Home, err = membership(pid); err != nil {
		return err
	}
	r.BusyPoll = a.options.BusyPoll
	r.CPUs, r.Mems = a.lane.confine(a.options.State)
	if a.machine != nil {
		if err := a.guest(a.machine); err != nil {
			return err
		}
	}
	hs := hierarchies(a.groups, a.lane)
	name, err := a.options.group(a.lane)
	switch {
	case err != nil:
		return err
	case managed != nil:
		// A unit or container stays in the control groups that its manager chose. If its manager chose no
		// group in a hierarchy, niclane makes one there.
		for _, h := range hs {
			g := Group{Hierarchy: h.controller, Root: h.root, Path: h.of(r.Home)}
			if !managed(g.Path) {
				g.Path, g.Made = "/niclane-"+r.ID, true
			}
			r.Groups = append(r.Groups, g)
		}
		slices.SortStableFunc(r.Groups, func(a, b Group) int { return truth(a.Made) - truth(b.Made) })
	case name != "":
		if r.Groups, err = given(hs, name); err != nil {
			return err
		}
	default:
		r.Groups = own(hs, "/niclane-"+r.ID)
	}
	if r.Listeners = a.options.Listeners; r.Listeners != nil {
		r.Queues = queueCPUs(a.lane, a.options.State)
		return a.store.checkListeners(r)
	}
	return nil
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// find returns the application's first process. For a unit or container, function managed reports
// whether a control group belongs to its manager. Otherwise managed is nil.
func (a *attachment) find(t Target) (pid int, managed func(path string) bool, err error) {
	if t.PID != 0 {
		a.pids, err = descendants(t.PID)
		return t.PID, nil, err
	}
	if t.Tap != "" {
		return a.findMachine(t.Tap)
	}
	what, want := "container "+t.Container, func(base string) bool { return cgroup.NamesContainer(base, t.Container) }
	if t.Unit != "" {
		name := t.Unit
		if !strings.Contains(name, ".") {
			name += ".service"
		}
		what, want = "unit "+name, func(base string) bool { return base == name }
	}
	g, err := a.search(what, want)
	if err != nil {
		return 0, nil, err
	}
	if a.pids, err = g.processes(); err != nil {
		return 0, nil, err
	}
	if len(a.pids) == 0 {
		return 0, nil, fmt.Errorf("%s has no process: it does not run", what)
	}
	return oldest(a.pids), within(want), nil
}

// within returns a function that gets the path of a control group. It reports whether want accepts
// the name of that group, or of one of the groups above it.
func within(want func(base string) bool) func(path string) bool {
	return func(path string) bool { return slices.ContainsFunc(strings.Split(path, "/"), want) }
}

// findMachine does what find does, for a virtual machine. If no manager owns the machine's control
// groups, managed is nil.
func (a *attachment) findMachine(tap string) (pid int, managed func(path string) bool, err error) {
	if a.machine, err = findMachine(tap); err != nil {
		return 0, nil, err
	}
	pid, a.pids = a.machine.pid, []int{a.machine.pid}
	groups, err := membership(pid)
	if err != nil {
		return 0, nil, err
	}
	for _, g := range groups {
		if managed := within(managedMachine); managed(g) {
			return pid, managed, nil
		}
	}
	return pid, nil, nil
}

// search returns the control group whose name want accepts. If there is no such group or more than
// one, it returns an error.
func (a *attachment) search(what string, want func(base string) bool) (Group, error) {
	root, found, err := cgroup.Search(a.groups, want)
	switch {
	case err != nil:
		return Group{}, err
	case len(found) == 0:
		return Group{}, fmt.Errorf("no control group of %s below %s: it does not run", what,
			strings.Join(cgroup.Roots(a.groups), ", "))
	case len(found) > 1:
		return Group{}, fmt.Errorf("%s has control groups %s: want one: give more of its name, or --pid", what,
			strings.Join(found, " and "))
	}
	return Group{Root: root, Path: found[0]}, nil
}

// oldest returns the PID of the process that started first.
func oldest(pids []int) int {
	best, start := pids[0], ^uint64(0)
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil && st.start < start {
			best, start = pid, st.start
		}
	}
	return best
}

// sameNetns returns an error if the application is in another network namespace. The lane of this
// namespace does not reach the application's sockets there.
func sameNetns(pid int) error {
	var here, there unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return err
	}
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &there); err != nil {
		if gone(err) {
			return fmt.Errorf("no process %d: %w", pid, unix.ESRCH)
		}
		return err
	}
	if here.Ino != there.Ino {
		return fmt.Errorf("process %d is in another network namespace than the lane (net:[%d], not net:[%d]): "+
			"attach it by --container, or from there", pid, there.Ino, here.Ino)
	}
	return nil
}

// keepThreads records the affinity of each thread. This is needed because the affinity may become
// wider when a process moves into a cpuset (always before Linux 6.2).
func (a *attachment) keepThreads() error {
	if len(a.record.CPUs) == 0 {
		return nil
	}
	for _, pid := range a.pids {
		tids := threads(pid)
		if a.machine != nil {
			movers, err := vhost(pid)
			if err != nil {
				return err
			}
			tids = append(tids, movers...)
		}
		for _, tid := range tids {
			was, err := affinity(tid)
			p, perr := FindProcess(tid)
			if err != nil || perr != nil {
				continue // the thread ended
			}
			a.record.Threads = append(a.record.Threads, Thread{Process: p, Was: was})
		}
	}
	return a.store.Save(a.record)
}

// move moves the application's processes into its groups. It also moves the processes that they
// start meanwhile.
func (a *attachment) move() error {
	r := a.record
	moved := map[int]bool{}
	for range 100 {
		left := slices.DeleteFunc(slices.Clone(a.pids), func(pid int) bool { return moved[pid] })
		if len(left) == 0 {
			break
		}
		for _, pid := range left {
			moved[pid] = true
			for _, g := range r.Groups {
				if !g.Made && r.Kept {
					continue
				}
				if err := g.join(pid); err != nil && !gone(err) {
					return err
				}
			}
		}
		var err error
		if a.pids, err = descendants(r.Process.PID); err != nil {
			return err
		}
	}
	if !r.Process.Alive() {
		return fmt.Errorf("process %d ended meanwhile: %w", r.Process.PID, unix.ESRCH)
	}
	return nil
}

// confine restricts the application to the processors in its record.
func (a *attachment) confine() error {
	r := a.record
	if len(r.CPUs) == 0 {
		return nil
	}
	way, err := cpusets(a.groups)
	if err != nil {
		return err
	}
	for _, g := range r.Groups {
		if !g.Made && r.Kept && g.Hierarchy == map[cpuset]string{cpusetV1: "cpuset"}[way] {
			if err := a.confineGroup(g); err != nil {
				return err
			}
		}
	}
	// A thread keeps those processors of its affinity that belong to the lane. If there are none, it
	// gets all of the lane's. Without a cpuset, this affinity is the only confinement.
	for _, t := range r.Threads {
		both := slices.DeleteFunc(slices.Clone(t.Was), func(cpu int) bool { return !slices.Contains(r.CPUs, cpu) })
		if len(both) == 0 {
			both = r.CPUs
		}
		if err := setAffinity(t.PID, both); err != nil && !gone(err) {
			return fmt.Errorf("thread %d to processors %s: %w", t.PID, device.FormatCPUList(both), err)
		}
	}
	if way == cpusetNone {
		a.notef("no cpuset controller for groups below the root (cgroup.subtree_control): instead, niclane sets "+
			"each thread's affinity to processors %s. The application can change it, and its memory stays where it is",
			device.FormatCPUList(r.CPUs))
	}
	return nil
}

// confineGroup sets the cpuset of a control group that the application's manager made.
func (a *attachment) confineGroup(g Group) error {
	for _, f := range []struct {
		name string
		set  []int
	}{{"cpuset.cpus", a.record.CPUs}, {"cpuset.mems", a.record.Mems}} {
		name := filepath.Join(g.Dir(), f.name)
		old, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			a.notef("%s has no %s: only each thread's affinity is set", g.Path, f.name)
			continue
		}
		if err != nil {
			return err
		}
		x := Setting{Path: name, Old: strings.TrimSpace(string(old)), New: device.FormatCPUList(f.set)}
		if x.Old == x.New {
			continue
		}
		a.record.Files = append(a.record.Files, x)
		if err := a.store.Save(a.record); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(x.New), 0); err != nil {
			return fmt.Errorf("%s to %q: %w", name, x.New, err)
		}
	}
	return nil
}

// classify gives the application's sockets the lane's priority, if the lane classifies packets by
// control group. It does so for the sockets that exist now and for later ones.
func (a *attachment) classify() error {
	if a.lane.Class == "" {
		return nil
	}
	r := a.record
	class := device.CgroupClass{Cgroup: r.Groups[0].Path, Priority: a.lane.Class}
	client, err := sockclass.Open(a.groups.V2)
	if err != nil {
		return err
	}
	now, err := client.Read(class)
	if err != nil {
		return err
	}
	if now == nil {
		r.Class = &class
		if err := a.store.Save(r); err != nil {
			return err
		}
	} else if !device.Equal(now, class) {
		return fmt.Errorf("%s has another class already: %+v", class.Cgroup, now)
	}
	// Write the class again: this sets the priority of the sockets that the processes already have.
	if err := client.Write(now, class); err != nil {
		return err
	}
	if !r.Kept {
		a.notef("connections that an older listener accepts have no class: they keep the control group in which the " +
			"listener was made. Restart the application, or start it with niclane run")
	}
	return nil
}

// listen assigns connections to listeners for the first time. Later the keeper does it.
func (a *attachment) listen() error {
	r := a.record
	if r.Listeners == nil {
		return nil
	}
	ld := &leader{record: r, queues: r.Queues, set: map[uint64]reuseport.Tables{}, keep: func(t Thread) error {
		r.add(t)
		return a.store.Save(r)
	}}
	groups, err := ld.look()
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		a.notef("it has no listener at TCP port %s yet; niclane looks for new ones", list(r.Listeners.Ports, ", "))
	}
	for _, g := range groups {
		a.notes = append(a.notes, g.Lines()...)
	}
	return nil
}

// follow starts the keeper, the process that follows the application.
func (a *attachment) follow() error { return a.store.startKeeper(a.record, a.options.Keeper) }

// commandOf returns a process's command line.
func commandOf(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}

// A Choice selects the applications to detach. Its zero value selects none.
type Choice struct {
	Lane      string
	PID       int
	Unit      string
	Container string
	Tap       string
	// All selects every application of Lane. If Lane is "", it selects every application of all lanes.
	All bool
}

func (c Choice) wants(r *Record) bool {
	if c.Lane != "" && r.Lane.Name != c.Lane {
		return false
	}
	return c.All || c.PID != 0 && r.Process.PID == c.PID ||
		c.Unit != "" && (r.Unit == c.Unit || r.Unit == c.Unit+".service") ||
		c.Container != "" && r.Container != "" && strings.HasPrefix(r.Container, c.Container) ||
		c.Tap != "" && r.Tap == c.Tap
}

// Detach takes the chosen applications out of their lanes and returns their records. The
// applications keep running. They get back the processors and control groups that they had before.
func Detach(runDir string, c Choice) ([]*Record, error) {
	s, err := Open(runDir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	all, err := s.Here()
	if err != nil {
		return nil, err
	}
	var done []*Record
	for _, r := range all {
		if !c.wants(r) {
			continue
		}
		if err := s.undo(r); err != nil {
			return done, err
		}
		done = append(done, r)
	}
	return done, nil
}

// List returns the records of the applications that are in lanes of this network namespace.
func List(runDir string) ([]*Record, error) {
	if _, err := os.Stat(filepath.Join(runDir, "apps")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s, err := Open(runDir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	all, err := s.Here()
	return slices.DeleteFunc(all, func(r *Record) bool {
		over, err := r.over()
		return err == nil && over
	}), err
}
