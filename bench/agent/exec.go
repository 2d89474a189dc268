// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/app"
	"github.com/niclane/niclane/internal/kernel/sched"
)

// JobCommand is the argument that makes niclane-bench a job's process. The process first sets
// itself up and then executes the job: niclane-bench JobCommand SPEC PROGRAM ARG...
const JobCommand = "internal-bench-job"

// spec says how a job's process sets itself up: SPEC of JobCommand, as JSON.
type spec struct {
	Agent   int      `json:"agent"` // PID of the agent; the job dies with it
	CPUs    []int    `json:"cpus,omitempty"`
	Mems    []int    `json:"mems,omitempty"`
	FIFO    int      `json:"fifo,omitempty"`
	MayFIFO int      `json:"mayFIFO,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"` // directories
	Part    bool     `json:"part,omitempty"`    // the job is a part of niclane
	// User and Group are the IDs of the job's user and group, if Drop is set.
	Drop  bool `json:"drop,omitempty"`
	User  int  `json:"user,omitempty"`
	Group int  `json:"group,omitempty"`
}

// JobMain is the main function of a job's process; args are the arguments after JobCommand. It
// replaces the process by the job, and returns only on an error.
func JobMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%s: want SPEC and a command", JobCommand)
	}
	var s spec
	if err := json.Unmarshal([]byte(args[0]), &s); err != nil {
		return fmt.Errorf("%s: %w", JobCommand, err)
	}
	// Scheduling and capabilities belong to the thread, and execve keeps those of the calling
	// thread.
	runtime.LockOSThread()
	if err := s.become(); err != nil {
		return err
	}
	path := args[1]
	err := unix.Exec(path, args[1:], os.Environ())
	if s.Part && errors.Is(err, unix.EACCES) {
		// The job's user may have no access to niclane's directory. This process runs the same
		// program, so execute that.
		err = unix.Exec("/proc/self/exe", args[1:], os.Environ())
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (s spec) become() error {
	for _, dir := range s.Cgroups {
		// Move the whole process, because it already has several threads.
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return err
		}
	}
	if len(s.CPUs) > 0 {
		if err := sched.SetAffinity(0, s.CPUs); err != nil {
			return err
		}
	}
	if len(s.Mems) > 0 {
		if err := app.Place(s.CPUs, s.Mems); err != nil {
			return fmt.Errorf("processors %v, memory of nodes %v: %w", s.CPUs, s.Mems, err)
		}
	}
	nice := false
	if p := max(s.FIFO, s.MayFIFO); p > 0 {
		err := raiseFIFO(p)
		if err != nil && (!capable(capNice) || s.MayFIFO > 0 && !s.Part) {
			return err
		}
		// In many containers, root may not raise limits. niclane's own parts, which set their
		// priority themselves, then keep CAP_SYS_NICE. Other programs do not.
		nice = err != nil && s.MayFIFO > 0 && s.Part && s.Drop
	}
	if s.FIFO > 0 {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: uint32(s.FIFO)}
		if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
			return fmt.Errorf("SCHED_FIFO priority %d: %w (a cpu control group without real-time share refuses it)",
				s.FIFO, err)
		}
	}
	if nice {
		if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("keep CAP_SYS_NICE: %w", err)
		}
	}
	if s.Drop {
		// Raw system calls change this thread only. It is the one that execve keeps.
		if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
			return fmt.Errorf("setgroups: %w", e)
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(s.Group), uintptr(s.Group),
			uintptr(s.Group)); e != 0 {
			return fmt.Errorf("setresgid %d: %w", s.Group, e)
		}
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(s.User), uintptr(s.User), uintptr(s.User)); e != 0 {
			return fmt.Errorf("setresuid %d: %w", s.User, e)
		}
	}
	if nice {
		if err := keepNice(); err != nil {
			return fmt.Errorf("keep CAP_SYS_NICE: %w", err)
		}
	}
	// A program with set-user-ID must not gain privileges that the agent did not give.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// This comes after the change of users, which would clear the signal.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("signal at the agent's death: %w", err)
	}
	if os.Getppid() != s.Agent {
		return errors.New("the agent has ended")
	}
	return nil
}

// raiseFIFO sets RLIMIT_RTPRIO to p, so that this process may use SCHED_FIFO priorities up to p
// without a capability.
func raiseFIFO(p int) error {
	var have unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_RTPRIO, nil, &have); err != nil {
		return fmt.Errorf("RLIMIT_RTPRIO: %w", err)
	}
	want := unix.Rlimit{Cur: uint64(p), Max: max(uint64(p), have.Max)}
	if err := unix.Prlimit(0, unix.RLIMIT_RTPRIO, &want, nil); err != nil {
		return fmt.Errorf("SCHED_FIFO priority %d: RLIMIT_RTPRIO of this agent is %d: %w", p, have.Max, err)
	}
	return nil
}

// capNice is CAP_SYS_NICE as a set of capabilities. The set's bits are the first 32 capabilities.
const capNice = 1 << unix.CAP_SYS_NICE

// capable reports whether this thread has the capabilities of set.
func capable(set uint32) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&set == set
}

// keepNice drops all capabilities except CAP_SYS_NICE. It makes that one ambient, so that execve
// keeps it (capabilities(7)).
func keepNice() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: capNice, Permitted: capNice, Inheritable: capNice}}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_NICE, 0, 0)
}
