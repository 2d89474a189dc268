// SPDX-License-Identifier: Apache-2.0

// Package machine makes machines for tests from namespaces of the host. Each machine has its own
// root directory, network, processes and control groups; all share the kernel. A machine's disk
// survives a reboot, everything else does not. A machine and all its processes end when it is
// halted, or when the process that booted it ends.
//
// A machine uses the host's programs (/usr, read-only). Its configuration, state and sockets are
// its own. It is no protection against hostile programs.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config describes a machine.
type Config struct {
	// Name is the machine's host name. It is also part of the names of its control groups.
	Name string
	// Disk is the path on the host of a directory with the machine's /etc, /var and /opt.
	Disk string
	// Programs are directories of the host. The machine has them at the same paths, read-only.
	Programs []string
	// Sysctls maps files below /proc/sys, such as "vm/overcommit_memory", to their values at boot. The
	// machine's programs can read and write them, but the kernel does not get the values, because it
	// is also the host's kernel. Other sysctls are read-only, except those below net/.
	Sysctls map[string]string
}

// onDisk are the names of the directories that survive a reboot.
var onDisk = []string{"etc", "opt", "var"}

// A Machine runs until it is halted.
type Machine struct {
	Config
	*session
}

// Boot starts a machine. Its interface lo is up, and no program runs on it yet. The calling program
// must have called Main at its start.
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

// Halt ends all processes of the machine at once, like a power failure. It removes everything
// except the machine's disk.
func (m *Machine) Halt() error {
	m.init.Kill()
	<-m.gone
	return removeCgroups(m.Name)
}

// Reboot halts the machine and boots it again. Afterwards it has no processes, and a new network,
// control groups, /run and /tmp. Other goroutines must not use the machine meanwhile.
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

// OnDisk returns the path on the host of a file that is below /etc, /var or /opt on the machine.
// The machine need not run.
func (m *Machine) OnDisk(inside string) string { return filepath.Join(m.Disk, inside) }

// Path returns the path on the host of any file of the machine. The machine must run.
func (m *Machine) Path(inside string) string {
	return filepath.Join("/proc", fmt.Sprint(m.init.Pid), "root", inside)
}

// NetNS returns the path on the host of the machine's network namespace. The machine must run.
func (m *Machine) NetNS() string {
	return filepath.Join("/proc", fmt.Sprint(m.init.Pid), "ns/net")
}
