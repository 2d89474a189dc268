// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// nobody is the user and group of what needs none (Linux's overflow IDs).
const nobody = 65534

// allowed are the system calls of a poller that is set up. Go's own are those
// of its runtime at work, without those of its start.
var allowed = []string{
	// polling
	"io_uring_enter", "io_uring_register", "sched_yield",
	// looking NAPIs up, and answering
	"sendto", "sendmsg", "recvfrom", "recvmsg", "getsockopt", "getsockname", "accept4", "read", "write", "close",
	"shutdown", "fcntl",
	"epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_ctl", "eventfd2",
	// Go's runtime
	"clock_gettime", "nanosleep", "clock_nanosleep", "futex", "mmap", "munmap", "madvise", "mprotect",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "tgkill", "gettid", "getpid",
	"timer_create", "timer_settime", "timer_delete", "exit", "exit_group", "getrandom", "rseq", "set_robust_list",
	"sched_getaffinity",
}

// confine gives up, for all threads and for good, what a poller that is set up
// does not need: its user, groups, capabilities, and all other system calls,
// which then fail with EPERM. A thread may be made, a process not: clone3, whose
// flags a filter cannot see, is as in a kernel without it, and clone instead.
func confine() error {
	// Of all threads; with the user root the capabilities go (capabilities(7)).
	// Where this process may not (CAP_SETUID, CAP_SETGID), or there is no such user
	// in its user namespace (EINVAL), it stays who it is, without them.
	stays := func(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) }
	if err := syscall.Setgroups(nil); err != nil && !stays(err) {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(nobody, nobody, nobody); err != nil && !stays(err) {
		return fmt.Errorf("setresgid: %w", err)
	}
	err := syscall.Setresuid(nobody, nobody, nobody)
	if err != nil && stays(err) {
		err = dropCapabilities()
	}
	if err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	thread := seccomp.NameWithConditions{Name: "clone", Conditions: seccomp.ArgumentConditions{{
		Argument: 0, Operation: seccomp.BitsSet, Value: unix.CLONE_THREAD,
	}}}
	here, err := arch.GetInfo("")
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	names := slices.DeleteFunc(slices.Clone(allowed), func(name string) bool {
		_, known := here.SyscallNames[name]
		return !known
	})
	// no_new_privs is the calling thread's, of which the filter that follows has to be
	// (seccomp(2), EACCES).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := seccomp.LoadFilter(seccomp.Filter{
		NoNewPrivs: true,
		Flag:       seccomp.FilterFlagTSync,
		Policy: seccomp.Policy{
			DefaultAction: seccomp.ActionErrno,
			Syscalls: []seccomp.SyscallGroup{
				{Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), Names: []string{"clone3"}},
				{Action: seccomp.ActionAllow, Names: names, NamesWithCondtions: []seccomp.NameWithConditions{thread}},
			},
		},
	}); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return nil
}

// dropCapabilities takes all capabilities from all threads. A build that links C, as
// no package of niclane's is, cannot do it to threads of C's: there they stay, behind
// the filter.
func dropCapabilities() error {
	none := [2]unix.CapUserData{}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)),
		uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 && errno != unix.ENOTSUP {
		return fmt.Errorf("capset: %w", errno)
	}
	return nil
}
