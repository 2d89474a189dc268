// SPDX-License-Identifier: Apache-2.0

package card

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/niclane/niclane/internal/kernel/notify"
	"github.com/niclane/niclane/k8s/policy"
	"github.com/niclane/niclane/lane/apply"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/journal"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
	"github.com/niclane/niclane/watch"
	"github.com/niclane/niclane/watch/host"
)

// A Watcher is told what the kernel is to tell about: *notify.Source.
type Watcher interface {
	Watch(in notify.Interest) (grown bool, err error)
}

// Watch has Look keep w's interest.
func (c *Card) Watch(w Watcher) { c.watch = w }

// current returns the journal of the lanes that are applied, nil if there are none.
// close releases the store.
func (c *Card) current() (j *journal.Journal, close func(), err error) {
	store, _, err := c.open()
	if err != nil {
		return nil, nil, err
	}
	store.Use(&c.journals)
	js, err := store.Here()
	for _, j := range js {
		if j.Head().Config == c.Config {
			return j, func() { _ = store.Close() }, nil
		}
	}
	return nil, nil, errors.Join(err, store.Close())
}

// Look implements stay.Machine.
func (c *Card) Look(ctx context.Context) ([]stay.View, error) {
	for range 5 {
		views, grown, err := c.look(ctx)
		if err != nil || !grown {
			return views, err
		}
	}
	return nil, errors.New("devices change faster than they can be looked at")
}

func (c *Card) look(ctx context.Context) (views []stay.View, grown bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.known
	c.known = nil
	j, release, err := c.current()
	if j == nil || err != nil {
		c.disconnect()
		if c.watch != nil && err == nil { // what is applied later is journalled there
			grown, err = c.watch.Watch(notify.Interest{Dirs: []string{c.StateDir}})
		}
		return nil, grown, err
	}
	defer release()
	h := j.Head()
	groups := groupsOf(j)
	a, st, known, err := host.Look(ctx, c.RunDir, j, c.applied(h.Plan), groups)
	if err != nil {
		return nil, false, err
	}
	v := stay.View{Config: h.Config, Generation: c.generation, Ground: host.Basis(st), Waits: host.Waits(h.Devices, st, a.Displaced)}
	for _, f := range verify.State(a, st) {
		if f.Severity == verify.Drift {
			v.Drifts = append(v.Drifts, f)
		}
	}
	if known && len(v.Drifts) == 0 && len(v.Waits) == 0 {
		c.known = was.renewed(st, groups, j)
	}
	if c.watch != nil {
		grown, err = c.watch.Watch(c.interest(host.From{State: st, Devices: h.Devices, Known: known, Groups: groups, Owned: a.Owned}, a.Bond))
	}
	return []stay.View{v}, grown, err
}

// interest is what the kernel is to tell about. A bond says when slaves come and go.
func (c *Card) interest(from host.From, bond string) notify.Interest {
	in := c.names.Interest(from)
	in.Dirs = append(in.Dirs, c.StateDir)
	if bond != "" {
		in.Devices = append(in.Devices, bond)
	}
	return in
}

// groupsOf are the control groups that a journal's lanes name, and those that it
// records objects of. Few lanes name any, and reading a file of a hundred pods takes
// a while.
func groupsOf(j *journal.Journal) []string {
	h := j.Head()
	var named []string
	if strings.Contains(h.ConfigText, "cgroup:") {
		if f, err := config.ParseFile(h.Config, []byte(h.ConfigText)); err == nil {
			named = host.Groups(f.Intent)
		}
	}
	return host.GroupsOf(named, j)
}

// Hold implements stay.Machine.
func (c *Card) Hold(context.Context) (func(), error) { return host.Hold(c.RunDir) }

// Repair implements stay.Machine: the lanes as they were applied are applied anew, on
// what they stood on then.
func (c *Card) Repair(ctx context.Context, _ string, leave func(string) bool) (stay.Repair, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, release, err := c.current()
	if j == nil || err != nil {
		return stay.Repair{}, err
	}
	h, groups := j.Head(), groupsOf(j)
	text, applied := []byte(h.ConfigText), host.Applied(j, c.applied(h.Plan))
	release()
	parsed, err := config.ParseFile(c.Config, text)
	if err != nil {
		return stay.Repair{}, err
	}
	ground, err := host.Restore(ctx, c.RunDir, applied, h.Devices, groups, leave)
	if err != nil {
		return stay.Repair{Done: ground}, err
	}
	f := &policy.File{Text: text, Intent: parsed.Intent}
	r, err := c.apply(ctx, f, leave, func() error { return nil })
	var refused *RefusedError
	if errors.As(err, &refused) {
		pieces, perr := c.repairPieces(ctx, f, h.Plan, applied, leave)
		pieces.Done = append(ground, pieces.Done...)
		return pieces, errors.Join(err, perr)
	}
	if err != nil {
		return stay.Repair{Done: ground}, err
	}
	out := stay.Repair{Done: ground, Warnings: r.Warnings}
	for _, s := range r.Plan.Steps {
		out.Done = append(out.Done, s.Key())
	}
	return out, nil
}

// repairPieces makes of applied lanes what can be made where planning refuses them as a
// whole: each drift alone, so that one that fails keeps no other. What verify compares
// with stays what it is.
func (c *Card) repairPieces(ctx context.Context, f *policy.File, p *plan.Plan, applied verify.Applied, leave func(string) bool) (out stay.Repair, err error) {
	store, here, err := c.open()
	if err != nil {
		return out, err
	}
	defer store.Close()
	a, err := c.ask(f, store)
	if err != nil {
		return out, err
	}
	st, err := a.look(ctx, c.RunDir)
	if err != nil {
		return out, err
	}
	k, err := apply.NewKernel(c.RunDir)
	if err != nil {
		return out, err
	}
	defer k.Close()
	c.known = nil
	for _, steps := range host.Pieces(applied, st, leave) {
		piece := *p
		piece.Steps, piece.Forget, piece.Gone = steps, nil, nil
		k.Prepare(steps)
		who, when := journal.Self()
		j, jerr := store.Begin(journal.Head{
			Host: here, Config: c.Config, ConfigText: string(f.Text), Who: who, When: when, Devices: piece.Devices, Plan: &piece,
		})
		if jerr != nil {
			return out, errors.Join(err, jerr)
		}
		report, rerr := apply.Run(ctx, k, &piece, j, apply.Options{})
		out.Warnings = append(out.Warnings, report.Warnings...)
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		out.Done = append(out.Done, report.Done...)
	}
	return out, err
}

// Release implements stay.Machine.
func (c *Card) Release(_ context.Context, _ string, missing []verify.Finding) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
	j, release, err := c.current()
	if j == nil || err != nil {
		return nil, err
	}
	defer release()
	return host.Release(c.RunDir, j.Records(), missing)
}

// DeviceOf returns the device of this network namespace that has exactly this
// address, "" if none has. Uppers that have the same address as what is below
// them are not known: an address belongs to one device. It is asked for each pod
// that comes or goes: of the links of a hundred pods none is read.
func DeviceOf(addr string) (string, error) {
	want := net.ParseIP(addr)
	if want == nil {
		return "", fmt.Errorf("%q is no IP address", addr)
	}
	family := netlink.FAMILY_V6
	if want.To4() != nil {
		family = netlink.FAMILY_V4
	}
	addrs, err := netlink.AddrList(nil, family)
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 100; tries++ { // what has changed meanwhile may be missing
		addrs, err = netlink.AddrList(nil, family)
	}
	if err != nil {
		return "", fmt.Errorf("addresses of the node: %w", err)
	}
	for _, a := range addrs {
		if a.IPNet == nil || !a.IP.Equal(want) {
			continue
		}
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("the device with %s: %w", addr, err)
		}
		return link.Attrs().Name, nil
	}
	return "", nil
}
