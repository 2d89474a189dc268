// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lab/emucard"
)

// Status is the state of a lab.
type Status struct {
	Config Config `json:"config"`
	// Ready is false if Up was interrupted or is still running.
	Ready  bool         `json:"ready"`
	Hosts  []HostStatus `json:"hosts"`
	Cgroup string       `json:"cgroup,omitempty"`
	// Card is the directory with the emulated card's state, "" if there is no card.
	Card string `json:"card,omitempty"`
}

// HostStatus is one host of a Status.
type HostStatus struct {
	Name   string `json:"name"`
	Netns  string `json:"netns"`
	Exists bool   `json:"exists"`
	// Device, MAC, IPv4 and IPv6 are those of the host's port. The switch has none.
	Device string     `json:"device,omitempty"`
	MAC    string     `json:"mac,omitempty"`
	IPv4   netip.Addr `json:"ipv4,omitzero"`
	IPv6   netip.Addr `json:"ipv6,omitzero"`
	// Processes are the processes that run on the host.
	Processes []Process `json:"processes,omitempty"`
}

// A Process is a process that runs on a host.
type Process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// ReadStatus returns the status of a lab. If no lab has that name, the error is fs.ErrNotExist. ""
// means the default name.
func ReadStatus(name string) (Status, error) {
	r, err := openRecord(name)
	if err != nil {
		return Status{}, err
	}
	s := Status{Config: r.Config, Ready: r.Ready, Cgroup: r.Cgroup.Path}
	if r.Config.Card != CardNone {
		s.Card = emucard.Dir(r.Config.MAC(SUT))
	}
	for _, host := range append(HostNames(), Switch) {
		h := HostStatus{Name: host, Netns: r.Config.Netns(host)}
		if host != Switch {
			h.Device, h.MAC = devOf(host), r.Config.MAC(host).String()
			h.IPv4, h.IPv6 = r.Config.IPv4(host), r.Config.IPv6(host)
		}
		n, err := openNode(r.Config, host)
		if errors.Is(err, os.ErrNotExist) || !named(netnsPath(h.Netns)) {
			if n != nil {
				n.close()
			}
			s.Hosts = append(s.Hosts, h)
			continue
		}
		if err != nil {
			return s, err
		}
		h.Exists = true
		pids, err := n.processes()
		n.close()
		if err != nil {
			return s, err
		}
		for _, pid := range pids {
			comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
			if err == nil { // otherwise the process has ended
				h.Processes = append(h.Processes, Process{pid, strings.TrimSpace(string(comm))})
			}
		}
		s.Hosts = append(s.Hosts, h)
	}
	return s, nil
}
