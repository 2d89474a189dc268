// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/sched"
)

// HelperCommand is the argument that makes niclane act as the helper, which enters a host and
// becomes a command: niclane HelperCommand SPEC ARG...
const HelperCommand = "internal-nsexec"

// Options describe how a process on a host runs.
type Options struct {
	// Nice is the nice value, -20 to 19.
	Nice int
	// Cgroup puts the process into the control group of the SUT's application.
	Cgroup bool
	// Niclane is the path of the niclane program that acts as the helper. Default: this process's own
	// program.
	Niclane string
}

// A spec tells the helper which host to enter and how.
type spec struct {
	Netns  string `json:"netns"`
	Cgroup string `json:"cgroupDir,omitempty"`
	CPUs   []int  `json:"cpus"` // the processors that the command may use
	Nice   int    `json:"nice"`
}

// Command returns a command that runs argv on a host. There, /sys shows the host's devices. The
// command has a session of its own: otherwise the scheduler's autogroup would make it share CPUs
// with the caller's session. If ctx ends, the command is killed.
func (l *Lab) Command(ctx context.Context, host string, o Options, argv ...string) (*exec.Cmd, error) {
	switch {
	case len(argv) == 0:
		return nil, errors.New("lab: no command")
	case host != Switch && number(host) == 0:
		return nil, fmt.Errorf("lab %s has no host %q: want sut, client, noise or switch", l.Config.Name, host)
	case o.Nice < -20 || o.Nice > 19:
		return nil, fmt.Errorf("lab: nice %d: want -20 to 19", o.Nice)
	}
	s := spec{Netns: netnsPath(l.Config.Netns(host)), CPUs: l.Config.OtherCPUs, Nice: o.Nice}
	if host == SUT {
		s.CPUs = l.Config.SUTCPUs
	}
	if o.Cgroup {
		if l.CgroupDir == "" {
			return nil, fmt.Errorf("lab %s: no control group: no hierarchy has the cpuset controller", l.Config.Name)
		}
		s.Cgroup = l.CgroupDir
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	self := o.Niclane
	if self == "" {
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, self, append([]string{HelperCommand, string(b)}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

// ExecMain is the helper. args are the arguments after HelperCommand. The process becomes the
// command (execve), so ExecMain returns only on an error.
func ExecMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%s: want SPEC and a command", HelperCommand)
	}
	var s spec
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return fmt.Errorf("%s: %w", HelperCommand, err)
	}
	// Namespaces, CPUs and scheduling belong to a thread. When a thread calls execve, the new program
	// has those of that thread.
	runtime.LockOSThread()
	if err := s.enter(); err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, unix.Exec(path, args[1:], os.Environ()))
}

func (s spec) enter() error {
	if s.Cgroup != "" {
		// A write to cgroup.procs moves the whole process (cgroups(7)), also the thread that calls
		// execve.
		if err := os.WriteFile(filepath.Join(s.Cgroup, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())),
			0); err != nil {
			return err
		}
	}
	ns, err := netns.GetFromPath(s.Netns)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Netns, err)
	}
	defer ns.Close()
	if err := enter(int(ns)); err != nil {
		return err
	}
	if err := sched.SetAffinity(0, s.CPUs); err != nil {
		return err
	}
	if s.Nice != 0 {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, s.Nice); err != nil {
			return fmt.Errorf("nice %d: %w", s.Nice, err)
		}
		// With autogroups, a nice value compares processes of one session only. So set the nice value of
		// the whole session too (sched(7)). Some kernels have no autogroups.
		if err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(s.Nice)), 0); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("autogroup nice %d: %w", s.Nice, err)
		}
	}
	return nil
}
