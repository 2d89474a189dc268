// SPDX-License-Identifier: Apache-2.0

// Package machine makes hosts from namespaces. Each has its own root directory, network,
// processes and control groups; all share the kernel. A machine's disk survives a reboot,
// everything else does not. A machine and all its processes end when it is halted, or when
// the process that booted it ends for any reason.
//
// A machine's programs are the host's (/usr, read-only). Its configuration, state and sockets
// are its own. The package is for tests: it does not confine hostile programs.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config describes a machine.
type Config struct {
	// Name is the host name, and the name of the machine's control groups.
	Name string
	// Disk is the host's directory with the machine's /etc, /var and /opt.
	Disk string
	// Programs are directories of the host that the machine has at the same path, read-only.
	Programs []string
	// Sysctls are files below /proc/sys, such as "vm/overcommit_memory", with their values at
	// boot. The machine's programs can read and write them; the kernel, which the machine
	// shares with the host, does not get the values. Of the other sysctls only those below
	// net/ can be written.
	Sysctls map[string]string
}

// onDisk are the directories that survive a reboot.
var onDisk = []string{"etc", "opt", "var"}

// A Machine runs until it is halted.
type Machine struct {
	Config
	*session
}

// Boot starts a machine on which nothing runs yet, with lo up. The calling program must call
// Main first.
func Boot(c Config) (*Machine, error) {
	for _, dir := range append([]string{"root"}, onDisk...) {
		if err := os.MkdirAll(filepath.Join(c.Disk, dir), 0o755); err != nil {
			return nil, err
		}
	}
	s, err := newSession(c)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", c.Name, err)
	}
	return &Machine{Config: c, session: s}, nil
}

// Halt ends all processes of the machine at once, like a power failure, and removes
// everything except its disk.
func (m *Machine) Halt() error {
	m.init.Kill()
	<-m.gone
	return removeCgroups(m.Name)
}

// Reboot halts the machine and boots it again. There must be no other users of the machine
// meanwhile. Processes, network, control groups, /run and /tmp are new.
func (m *Machine) Reboot() error {
	if err := m.Halt(); err != nil {
		return err
	}
	again, err := Boot(m.Config)
	if err != nil {
		return err
	}
	m.session = again.session
	return nil
}

// OnDisk returns the host's path of a file below the machine's /etc, /var or /opt. The
// machine need not run.
func (m *Machine) OnDisk(inside string) string { return filepath.Join(m.Disk, inside) }

// Path returns the host's path of any file of a running machine.
func (m *Machine) Path(inside string) string {
	return filepath.Join("/proc", fmt.Sprint(m.init.Pid), "root", inside)
}

// NetNS returns the host's path of a running machine's network namespace.
func (m *Machine) NetNS() string {
	return filepath.Join("/proc", fmt.Sprint(m.init.Pid), "ns/net")
}
