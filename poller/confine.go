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

// nobody is the ID of a user and of a group without rights (Linux's overflow ID).
const nobody = 65534

// allowed are the system calls that a poller may make after its set-up: its own, and those of the
// running Go runtime. Those that Go needs only at its start are not among them.
var allowed = []string{
	// polling
	"io_uring_enter", "io_uring_register", "sched_yield",
	// to look up NAPIs and to answer clients
	"sendto", "sendmsg", "recvfrom", "recvmsg", "getsockopt", "getsockname", "accept4", "read", "write", "close",
	"shutdown", "fcntl",
	"epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_ctl", "eventfd2",
	// Go's runtime
	"clock_gettime", "nanosleep", "clock_nanosleep", "futex", "mmap", "munmap", "madvise", "mprotect",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "tgkill", "gettid", "getpid",
	"timer_create", "timer_settime", "timer_delete", "exit", "exit_group", "getrandom", "rseq", "set_robust_list",
	"sched_getaffinity",
}

// confine takes away from all threads what a poller does not need after its set-up: user, groups,
// capabilities and most system calls. The process can never get them back. A system call that is
// not allowed fails with EPERM. The poller may create threads but no processes. A filter cannot
// check the flags of clone3, so clone3 fails with ENOSYS, and Go then uses clone.
func confine() error {
	// These calls act on all threads. When the user is no longer root, the kernel removes the
	// capabilities (capabilities(7)). The process may be unable to change its user: without CAP_SETUID
	// or CAP_SETGID, or if its user namespace has no such user (EINVAL). Then it keeps its user and
	// drops the capabilities itself.
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
	// no_new_privs acts on the calling thread only, so the same thread must load the filter
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

// dropCapabilities drops all capabilities of all threads. Go cannot do this in a build that links
// C. No package of niclane links C. In such a build, the process would keep its capabilities, and
// only the filter would restrict it.
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
