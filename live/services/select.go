// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/internal/kernel/cgroup"
)

// A Query names services: by one of the fields Unit, PID, Port and Container. The zero value names all.
type Query struct {
	Unit string // systemd's service or socket; without a suffix: a service
	PID  int
	// Port is a port, Protocol "tcp" or "udp"; "" means both.
	Port      uint16
	Protocol  string
	Container string // its ID, or the first 12 or more digits
}

// Accepts reports whether an endpoint of a service is meant.
func (q Query) Accepts(s *Service, e *Endpoint) bool {
	switch {
	case q.Unit != "":
		return s.Unit == q.unit() || s.Socket == q.unit()
	case q.PID != 0:
		return slices.ContainsFunc(s.Processes, func(p Process) bool { return p.PID == q.PID })
	case q.Container != "":
		return s.Container != "" && cgroup.NamesContainer(s.Container, q.Container)
	case q.Port != 0:
		return e.Port == q.Port && (q.Protocol == "" || e.Protocol == q.Protocol)
	}
	return true
}

func (q Query) unit() string {
	if path.Ext(q.Unit) == "" {
		return q.Unit + ".service"
	}
	return q.Unit
}

// ErrNoListener says that no process listens at the port of a query.
var ErrNoListener = errors.New("nothing listens")

// Check returns an error if the query names nothing in the inventory. The error says what is there
// instead.
func (inv *Inventory) Check(q Query) error {
	for i := range inv.Services {
		for j := range inv.Services[i].Endpoints {
			if q.Accepts(&inv.Services[i], &inv.Services[i].Endpoints[j]) {
				return nil
			}
		}
	}
	err := inv.absent(q)
	if len(inv.Notes) > 0 && os.Geteuid() != 0 && q.Port == 0 {
		err = fmt.Errorf("%w; %s", err, inv.Notes[0])
	}
	return err
}

func (inv *Inventory) absent(q Query) error {
	const away = "listens in a network namespace of its own: ask there (ip netns exec, nsenter -n), or see " +
		"docs/how-to/containers-and-vms.md"
	for _, n := range inv.Elsewhere {
		if q.Unit != "" && n.Unit == q.unit() {
			return fmt.Errorf("unit %s %s", q.unit(), away)
		}
		if q.Container != "" && n.Container != "" && cgroup.NamesContainer(n.Container, q.Container) {
			return fmt.Errorf("container %s %s", q.Container, away)
		}
	}
	switch {
	case q.Unit != "":
		if there, err := inGroups(func(base string) bool { return base == q.unit() }); err != nil || there {
			return errors.Join(err, fmt.Errorf("unit %s runs, but none of its processes listens here", q.unit()))
		}
		return fmt.Errorf("no unit %s runs here", q.unit())
	case q.Container != "":
		there, err := inGroups(func(base string) bool { return cgroup.NamesContainer(base, q.Container) })
		if err != nil || there {
			return errors.Join(err, fmt.Errorf("container %s runs, but none of its processes listens here",
				q.Container))
		}
		return fmt.Errorf("no container %s runs here: want its complete ID, or the first 12 digits or more",
			q.Container)
	case q.PID != 0:
		name, err := os.ReadFile("/proc/" + strconv.Itoa(q.PID) + "/comm")
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("no process %d", q.PID)
		}
		what := fmt.Sprintf("process %d (%s)", q.PID, strings.TrimSpace(string(name)))
		own, err1 := namespace("thread-self")
		its, err2 := namespace(strconv.Itoa(q.PID))
		if errors.Join(err1, err2) == nil && own != its {
			return fmt.Errorf("%s is in another network namespace: ask there (nsenter -n -t %d)", what, q.PID)
		}
		return fmt.Errorf("%s has no listening socket", what)
	}
	protocol := q.Protocol
	if protocol == "" {
		protocol = "tcp or udp"
	}
	return fmt.Errorf("%w at %s port %d here", ErrNoListener, protocol, q.Port)
}

// inGroups reports whether a control group has a name that want accepts.
func inGroups(want func(base string) bool) (bool, error) {
	c, err := cgroup.Find(nil)
	if err != nil {
		return false, err
	}
	_, groups, err := cgroup.Search(c, want)
	return len(groups) > 0, err
}
