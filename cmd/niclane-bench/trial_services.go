// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/intent"
	"github.com/niclane/niclane/live/roundtrip"
	"github.com/niclane/niclane/live/services"
	"github.com/niclane/niclane/live/trial"
	"github.com/niclane/niclane/live/waits"
)

// listening returns the services that listen in the control groups of a lane's members without ports.
func listening(ctx context.Context, l intent.Lane) ([]waits.Target, error) {
	l.Members = slices.DeleteFunc(slices.Clone(l.Members), func(m intent.Member) bool { return len(m.Ports) > 0 })
	inv, err := services.Find(ctx)
	if err != nil {
		return nil, err
	}
	found, _, _ := waits.Targets(inv, []intent.Lane{l}, waits.Choice{Lane: l.Name}) // an error: nothing listens there
	for i := range found {
		found[i].Name = l.Name + ": " + found[i].Name
	}
	return found, nil
}

// findServices makes the targets: the services of the lanes, and those of --port.
func (t *trialRun) findServices(ctx context.Context) error {
	find := func(name, protocol string) *waits.Target {
		i := slices.IndexFunc(t.targets, func(x waits.Target) bool { return x.Name == name && x.Protocol == protocol })
		if i < 0 {
			t.targets = append(t.targets, waits.Target{Name: name, Protocol: protocol})
			i = len(t.targets) - 1
		}
		return &t.targets[i]
	}
	everywhere := map[string]bool{} // services with a member on all addresses
	for _, f := range t.lanes.files {
		for _, l := range f.Lanes {
			if l.Name == intent.DefaultLane {
				continue
			}
			if slices.ContainsFunc(l.Members, func(m intent.Member) bool { return len(m.Ports) == 0 }) {
				found, err := listening(ctx, l)
				if err != nil {
					return err
				}
				for _, x := range found {
					if find(x.Name, x.Protocol).Ports == nil {
						*find(x.Name, x.Protocol) = x
					}
				}
			}
			for _, m := range l.Members {
				if len(m.Ports) == 0 {
					continue
				}
				name := l.Name
				if m.Protocol == "udp" {
					name += "/udp"
				}
				x := find(name, m.Protocol)
				x.Lane = l.Name
				x.Ports = append(x.Ports, m.Ports...)
				x.Addrs = append(x.Addrs, m.Addrs...)
				everywhere[name] = everywhere[name] || len(m.Addrs) == 0
			}
		}
	}
	for i := range t.targets {
		x := &t.targets[i]
		slices.Sort(x.Ports)
		x.Ports = slices.Compact(x.Ports)
		slices.SortFunc(x.Addrs, netip.Prefix.Compare)
		if x.Addrs = slices.Compact(x.Addrs); everywhere[x.Name] {
			x.Addrs = nil
		}
	}
	laned := len(t.targets)
	for _, text := range t.ports {
		port, protocol, _ := strings.Cut(text, "/")
		n, err := strconv.ParseUint(port, 10, 16)
		if protocol == "" {
			protocol = "tcp"
		}
		if err != nil || n == 0 || protocol != "tcp" && protocol != "udp" {
			return cli.Usagef("trial: --port %s: want a port from 1 to 65535, or PORT/udp", text)
		}
		if slices.ContainsFunc(t.targets, func(x waits.Target) bool {
			return x.Protocol == protocol && slices.Contains(x.Ports, uint16(n))
		}) {
			continue
		}
		x := find("port "+port+"/"+protocol, protocol)
		x.Ports = []uint16{uint16(n)}
	}
	if len(t.targets) == 0 {
		return fmt.Errorf("no lane of %s names a port, and nothing listens in their control groups: --port PORT "+
			"says where the service listens",
			strings.Join(t.args, ", "))
	}
	for i, x := range t.targets {
		// Without a lane that names a port, those of --port are the lanes' services.
		t.services = append(t.services, trial.Service{Name: x.Name, Neighbour: i >= laned && laned > 0})
	}
	return nil
}

// device returns the device by which requests come, "" for any.
func (t *trialRun) device() string {
	if len(t.lanes.devices) != 1 {
		return ""
	}
	for _, f := range t.lanes.files {
		if f.Group.Bond != "" {
			return ""
		}
	}
	for dev := range t.lanes.devices {
		return dev
	}
	return ""
}

// connections returns the services whose connections have round trip times.
func (t *trialRun) connections() (out []roundtrip.Service) {
	for _, x := range t.targets {
		if x.Protocol == "tcp" {
			out = append(out, roundtrip.Service{Name: x.Name, Ports: x.Ports, Addrs: x.Addrs})
		}
	}
	return out
}
