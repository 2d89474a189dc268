// SPDX-License-Identifier: Apache-2.0

// Package machine makes hosts out of namespaces: a root directory, network,
// processes and control groups of their own, on a kernel that they share.
// A machine has a disk, which outlives a reboot, and everything else, which
// does not. It ends with all its processes when it is halted, or when the
// process that booted it ends in whatever way.
//
// Its programs are the host's (/usr, read only); its configuration, state and
// sockets are its own. It is for tests: it confines nobody who wants out.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config says what a machine is made of.
type Config struct {
	// Name is its host name, and that of its control groups.
	Name string
	// Disk is a directory of the host: the machine's /etc, /var and /opt.
	Disk string
	// Programs are directories of the host that the machine has at the same
	// path, read only.
	Programs []string
	// Sysctls are files below /proc/sys, "vm/overcommit_memory", and what is in
	// them when the machine boots. Its programs read and write them, and the
	// kernel, which the machine shares with the host, hears nothing of it. Of
	// all others only those below net/ can be written.
	Sysctls map[string]string
}

// onDisk are the directories that outlive a reboot.
var onDisk = []string{"etc", "opt", "var"}

// A Machine runs until it is halted.
type Machine struct {
	Config
	*session
}

// Boot starts a machine on which nothing runs yet, with lo up. The program
// that calls it must call Main before anything else.
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

// Halt ends everything that runs on the machine, at once as a power failure
// does, and removes what it had but its disk.
func (m *Machine) Halt() error {
	m.init.Kill()
	<-m.gone
	return removeCgroups(m.Name)
}

// Reboot halts the machine and boots it again. Nobody else may use it
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

// OnDisk is the host's path of a file below the machine's /etc, /var or /opt,
// whether the machine runs or not.
func (m *Machine) OnDisk(inside string) string { return filepath.Join(m.Disk, inside) }

// Path is the host's path of any file of the machine while it runs.
func (m *Machine) Path(inside string) string {
	return filepath.Join("/proc", fmt.Sprint(m.init.Pid), "root", inside)
}

// NetNS is the host's path of the machine's network namespace while it runs.
func (m *Machine) NetNS() string {
	return filepath.Join("/proc", fmt.Sprint(m.init.Pid), "ns/net")
}
