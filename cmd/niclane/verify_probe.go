// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/internal/traffic/probe"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/verify"
)

// A target is one of the addresses of --probe.
type target struct {
	addr netip.Addr
	port uint16 // 0: none given
	path probe.Path
}

// maxTargets is the largest number of --probe addresses. Each further address means more probe
// packets of the default lane.
const maxTargets = 8

func parseTargets(args []string) ([]target, error) {
	if len(args) > maxTargets {
		return nil, cli.Usagef("verify: --probe: %d addresses, want at most %d", len(args), maxTargets)
	}
	var out []target
	for _, s := range args {
		addr, port, err := probe.ParseTarget(s)
		t := target{addr: addr, port: port}
		if err != nil {
			return nil, cli.Usagef("verify: --probe %s: %w", s, err)
		}
		if i := slices.IndexFunc(out, func(o target) bool { return o.addr == t.addr }); i >= 0 {
			return nil, cli.Usagef("verify: --probe %s: the address was given already", s)
		}
		out = append(out, t)
	}
	return out, nil
}

// find finds the path to each target: device, VLAN and source address.
func find(targets []target) error {
	for i, t := range targets {
		path, err := probe.Find(t.addr)
		if err != nil {
			return cli.Usagef("verify: --probe %s: %w", t.addr, err)
		}
		targets[i].path = path
	}
	return nil
}

// probe sends probe packets for the watched lanes and adds the outcome to the results.
func (ws watching) probe(ctx context.Context, targets []target, results []verifyOutput) error {
	if err := ws.reached(targets); err != nil {
		return err
	}
	var all []verify.Probe
	for _, w := range ws {
		if w.err != nil {
			continue // verify would not see its packets
		}
		ps, fs := verify.Probes(w.applied, w.device, w.paths(targets))
		all = append(all, ps...)
		results[w.result].Findings = append(results[w.result].Findings, fs...)
	}
	all, fs := verify.Bound(all)
	if err := ws.send(ctx, all); err != nil {
		return err
	}
	fs = append(fs, verify.Answers(all)...)
	for _, w := range ws {
		for _, p := range all {
			if p.Device == w.device {
				results[w.result].Probes = append(results[w.result].Probes, p)
			}
		}
		for _, f := range fs {
			if f.Device == w.device {
				results[w.result].Findings = append(results[w.result].Findings, f)
			}
		}
	}
	return nil
}

// reached returns an error if packets to one of the targets would leave by a device without lanes.
func (ws watching) reached(targets []target) error {
	if len(ws) == 0 {
		return nil
	}
	for _, t := range targets {
		var devs []string
		found := false
		for _, w := range ws {
			_, ok := t.path.Through(w.device)
			found = found || ok
			devs = append(devs, w.device)
		}
		if !found {
			return cli.Usagef("verify: --probe %s: the route leads over %s: want an address that is reached by %s",
				t.addr, t.path.Device, strings.Join(devs, " or "))
		}
	}
	return nil
}

// paths returns the paths to those targets that packets reach through the device of w.
func (w *deviceWatch) paths(targets []target) []verify.Path {
	var out []verify.Path
	for _, t := range targets {
		if vlan, ok := t.path.Through(w.device); ok {
			out = append(out, verify.Path{Addr: t.addr, Port: t.port, Source: t.path.Source, Sources: t.path.Sources,
				VLAN: vlan})
		}
	}
	return out
}

// send sends the packets of all probes: first one packet of each probe, then a second one of each,
// and so on. It adds the answers to the probes.
func (ws watching) send(ctx context.Context, ps []verify.Probe) error {
	var attempts []probe.Attempt
	var owner []int
	for n, more := 0, true; more; n++ {
		more = false
		for i, p := range ps {
			if n >= p.Count {
				continue
			}
			more = true
			at := probe.Attempt{Protocol: p.Protocol, Local: p.Local, Remote: p.Remote}
			if n == 0 && p.Connect != 0 {
				at.Connect, at.Remote = true, netip.AddrPortFrom(p.Remote.Addr(), p.Connect)
			}
			attempts, owner = append(attempts, at), append(owner, i)
		}
	}
	got, err := probe.Send(ctx, attempts, func(i int, local, remote netip.AddrPort) bool {
		return ws.belongs(ps[owner[i]], local, remote)
	})
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("verify: --probe: %w", err)
	}
	if err != nil {
		return err
	}
	for i, r := range got {
		addResult(&ps[owner[i]], r)
	}
	return nil
}

// addResult adds the result of one probe packet to p.
func addResult(p *verify.Probe, r probe.Result) {
	if r.Sent() {
		p.Sent++
		if r.Answer != probe.Unawaited {
			p.Awaited++
		}
	}
	switch r.Answer {
	case probe.Accepted:
		p.Accepted++
	case probe.Refused:
		p.Refused++
	}
	if r.Err != nil && !slices.Contains(p.Errors, r.Err.Error()) {
		p.Errors = append(p.Errors, r.Err.Error())
	}
}

// belongs reports whether packets between two endpoints belong to a probe's lane, and not to a
// more specific lane.
func (ws watching) belongs(p verify.Probe, local, remote netip.AddrPort) bool {
	flow := device.Match{Family: 4, Protocol: p.Protocol, VLAN: p.VLAN,
		Local: whole(local.Addr()), LocalPort: local.Port(), Remote: whole(remote.Addr()), RemotePort: remote.Port()}
	if local.Addr().Is6() {
		flow.Family = 6
	}
	for _, w := range ws {
		if w.device != p.Device || w.err != nil {
			continue
		}
		n, err := w.watcher.LaneOf(flow)
		if err != nil {
			return false
		}
		return n == 0 && p.Match == nil || n > 0 && w.lanes[n-1] == p.Lane && p.Match != nil
	}
	return false
}

// whole returns the prefix that contains only the address a.
func whole(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }
