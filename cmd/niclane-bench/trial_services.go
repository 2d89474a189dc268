// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
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
	var lanes []intent.Lane
	for _, f := range t.lanes.files {
		lanes = append(lanes, f.Lanes...)
	}
	t.targets = waits.OfLanes(lanes)
	has := func(name, protocol string) bool {
		return slices.ContainsFunc(t.targets, func(x waits.Target) bool {
			return x.Name == name && x.Protocol == protocol
		})
	}
	for _, l := range lanes {
		if l.Name == intent.DefaultLane ||
			!slices.ContainsFunc(l.Members, func(m intent.Member) bool { return len(m.Ports) == 0 }) {
			continue
		}
		found, err := listening(ctx, l)
		if err != nil {
			return err
		}
		t.targets = append(t.targets, slices.DeleteFunc(found, func(x waits.Target) bool {
			return has(x.Name, x.Protocol)
		})...)
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
		t.targets = append(t.targets, waits.Target{Name: "port " + port + "/" + protocol, Protocol: protocol,
			Ports: []uint16{uint16(n)}})
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
