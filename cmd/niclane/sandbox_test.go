// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// sandbox UNIT COMMAND ARG... executes a command with the seccomp filters that the unit's
// SystemCallFilter and RestrictAddressFamilies describe. It ignores all other lines of the unit.
func sandbox() {
	if err := intoSandbox(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
}

func intoSandbox(unit string, argv []string) error {
	text, err := os.ReadFile(unit)
	if err != nil {
		return err
	}
	here, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	denied := map[string]bool{}
	var families seccomp.ArgumentConditions
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "SystemCallFilter":
			list, deny := strings.CutPrefix(value, "~")
			for _, name := range strings.Fields(list) {
				calls, err := systemCalls(name)
				if err != nil {
					return err
				}
				for _, c := range calls {
					denied[c] = deny
				}
			}
		case "RestrictAddressFamilies":
			for _, name := range strings.Fields(value) {
				n, ok := map[string]uint64{"AF_UNIX": unix.AF_UNIX, "AF_NETLINK": unix.AF_NETLINK,
					"AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6}[name]
				if !ok {
					return fmt.Errorf("address family %s is not known here", name)
				}
				families = append(families, seccomp.Condition{Argument: 0, Operation: seccomp.NotEqual, Value: n})
			}
		}
	}
	var names []string
	for c, deny := range denied {
		if _, known := here.SyscallNames[c]; deny && known {
			names = append(names, c)
		}
	}
	slices.Sort(names)
	if !slices.Contains(names, "mount") || len(families) == 0 {
		return fmt.Errorf("%s has no filter", unit)
	}
	err = seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: seccomp.Policy{
		DefaultAction: seccomp.ActionAllow,
		Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionErrno, Names: names}, // fails with EPERM
			{Action: seccomp.ActionErrno | seccomp.Action(unix.EAFNOSUPPORT),
				NamesWithCondtions: []seccomp.NameWithConditions{{Name: "socket", Conditions: families}}},
		},
	}})
	if err != nil {
		return err
	}
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, os.Environ())
}

// systemCalls returns the system calls in a systemd set, including nested sets.
func systemCalls(name string) ([]string, error) {
	if !strings.HasPrefix(name, "@") {
		return []string{name}, nil
	}
	out, err := exec.Command("systemd-analyze", "syscall-filter", name).Output()
	if err != nil {
		return nil, fmt.Errorf("system calls %s: %w", name, err)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" || line == name || line[0] == '#' {
			continue
		}
		calls, err := systemCalls(line)
		if err != nil {
			return nil, err
		}
		all = append(all, calls...)
	}
	return all, nil
}
