// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
)

// contenders are names of processes (proc_pid_comm(5), 15 bytes) that write settings of network
// devices.
var contenders = []string{"irqbalance", "NetworkManager", "tuned", "systemd-network", "cilium-agent", "calico-node",
	"flanneld", "antrea-agent", "kube-router"}

// A processTable has what /proc says of processes.
type processTable struct {
	fs procfs.FS
	// holders are the processes that hold a socket, by inode number, ascending.
	holders    map[uint64][]int
	contenders []Contender
	// foreign has the other network namespaces, by inode number.
	foreign map[uint64]foreign
	// denied counts the processes whose descriptors could not be read.
	denied int
	// manager is the PID of systemd as the service manager: 1, or 0 if process 1 is something else.
	manager int
}

// A foreign is another network namespace: one of its processes, and what listens there.
type foreign struct {
	pid   int
	socks []socket
}

// processes looks for the holders of sockets among the processes that this one sees. To wanted it adds
// what listens in other network namespaces.
func processes(ctx context.Context, wanted map[uint64]bool) (*processTable, error) {
	t := &processTable{holders: map[uint64][]int{}, foreign: map[uint64]foreign{}}
	var err error
	if t.fs, err = procfs.NewDefaultFS(); err != nil {
		return nil, err
	}
	own, err := namespace("thread-self")
	if err != nil {
		return nil, err
	}
	all, err := t.fs.AllProcs()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b procfs.Proc) int { return a.PID - b.PID })
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name, err := p.Comm()
		if err != nil {
			continue // it has ended
		}
		if p.PID == 1 && name == "systemd" {
			t.manager = 1
		}
		if slices.Contains(contenders, name) {
			t.contenders = append(t.contenders, Contender{name, p.PID})
		}
		if ns, err := namespace(strconv.Itoa(p.PID)); err == nil && ns != own {
			line, _ := p.CmdLine() // none: a thread of the kernel
			if _, seen := t.foreign[ns]; !seen && len(line) > 0 {
				socks := listeningOf(p.PID)
				t.foreign[ns] = foreign{p.PID, socks}
				maps.Copy(wanted, inodes(socks, nil))
			}
		}
	}
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		targets, err := p.FileDescriptorTargets()
		if errors.Is(err, fs.ErrPermission) {
			t.denied++
		}
		for _, target := range targets {
			if inode, ok := socketInode(target); ok && wanted[inode] && !slices.Contains(t.holders[inode], p.PID) {
				t.holders[inode] = append(t.holders[inode], p.PID)
			}
		}
	}
	slices.SortFunc(t.contenders, func(a, b Contender) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.PID-b.PID)
	})
	return t, nil
}

// managed reports whether systemd itself is among the holders of a socket.
func (t *processTable) managed(pids []int) bool {
	return t.manager != 0 && slices.Contains(pids, t.manager)
}

// socketInode returns the inode number from the link of a socket's descriptor, "socket:[1234]".
func socketInode(link string) (uint64, bool) {
	s, ok := strings.CutPrefix(link, "socket:[")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	return n, err == nil
}

// namespace returns the inode number of a process's network namespace.
func namespace(pid string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/"+pid+"/ns/net", &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: "/proc/" + pid + "/ns/net", Err: err}
	}
	return st.Ino, nil
}

func (t *processTable) process(pid int) Process {
	p := Process{PID: pid}
	if proc, err := t.fs.Proc(pid); err == nil {
		p.Name, _ = proc.Comm()
	}
	if cpus, err := sched.Affinity(pid); err == nil {
		p.CPUs = cpus
	}
	return p
}

// An owner is whom sockets belong to. key is "" if neither a unit nor a container owns them.
type owner struct{ key, name, unit, container, runtime, cgroup string }

// owner returns the owner of sockets that some processes hold: that of the first process.
func (t *processTable) owner(pids []int) owner {
	if len(pids) == 0 && t.denied == 0 {
		return owner{name: Kernel}
	}
	if len(pids) == 0 {
		return owner{name: Unknown}
	}
	o := owner{}
	p, err := t.fs.Proc(pids[0])
	if err == nil {
		o.name, _ = p.Comm()
	}
	groups, err := p.Cgroups()
	if err != nil || pids[0] == t.manager {
		return o
	}
	path, usable := groupOf(groups)
	if usable && !strings.HasPrefix(path, "/..") { // not outside of this control group namespace
		o.cgroup = path
	}
	o.runtime, o.container = containerOf(path)
	o.unit = unitOf(path)
	switch {
	case o.container != "" && (o.runtime == "nspawn" || o.runtime == "lxc"): // with a systemd of its own
		o.key = "container:" + path
		if o.unit != "" && !strings.HasPrefix(o.unit, "systemd-nspawn@") {
			o.name = strings.TrimSuffix(o.unit, ".service")
		}
		o.unit = ""
	case o.container != "":
		o.key, o.unit = "container:"+o.container, ""
	case o.unit != "":
		o.key, o.name = "unit:"+path, strings.TrimSuffix(o.unit, ".service")
	}
	return o
}

// groupOf returns a process's control group in the hierarchy that tells most: the unified one if the
// group is not the root there, else cpuset's, systemd's or another one of version 1. usable says that
// a lanes file can name the group: it is in the unified hierarchy or in cpuset's, and not the root.
func groupOf(groups []procfs.Cgroup) (path string, usable bool) {
	rank := func(g procfs.Cgroup) int {
		switch {
		case g.Path == "/" || g.Path == "":
			return 9
		case g.HierarchyID == 0:
			return 0
		case slices.Contains(g.Controllers, "cpuset"):
			return 1
		case slices.Contains(g.Controllers, "name=systemd"):
			return 2
		}
		return 3
	}
	if len(groups) == 0 {
		return "/", false
	}
	g := slices.MinFunc(groups, func(a, b procfs.Cgroup) int { return rank(a) - rank(b) })
	return g.Path, rank(g) <= 1
}

// elsewhere returns the services in other network namespaces.
func (t *processTable) elsewhere() []Namespace {
	var out []Namespace
	for id, f := range t.foreign {
		for _, s := range group(f.socks, t, nil) {
			n := Namespace{ID: id, Container: s.Container, Unit: s.Unit}
			for _, p := range s.Processes {
				n.PIDs = append(n.PIDs, p.PID)
			}
			if len(s.Processes) > 0 {
				n.Process = s.Processes[0]
			} else {
				n.Process = t.process(f.pid)
			}
			for i := range s.Endpoints {
				n.Listening = append(n.Listening, s.Endpoints[i].Of())
			}
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Namespace) int {
		return cmp.Or(a.Process.PID-b.Process.PID, cmp.Compare(a.ID, b.ID), slices.Compare(a.Listening, b.Listening))
	})
	return out
}

// listeningOf returns what listens in a process's network namespace on other addresses than loopback;
// nothing if it cannot be entered.
func listeningOf(pid int) []socket {
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		return nil
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil
	}
	defer h.Close()
	socks, err := listeners(h)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(socks, func(s socket) bool {
		client := s.protocol == "udp" && ephemeral(s.local.Port())
		return s.local.Addr().IsLoopback() || client
	})
}
