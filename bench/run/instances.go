// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strconv"

	"github.com/niclane/niclane/app/led"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// An instance is one of the server's: the only one, or that of a NUMA node.
type instance struct {
	split.Instance
	// dir of its files below $scratch, "" of the only one.
	dir    string
	server task // nil where somebody else has started it
}

// file is where one of its files is below $scratch.
func (x *instance) file(name string) string {
	if x == nil {
		return name
	}
	return path.Join(x.dir, name)
}

// of names what is the instance's.
func (x *instance) of(what string) string {
	if x == nil || x.dir == "" {
		return what
	}
	return fmt.Sprintf("%s on node %d", what, x.Node)
}

// because says whose error it is.
func (x *instance) because(err error) error {
	if x.dir == "" {
		return err
	}
	return fmt.Errorf("instance on node %d: %w", x.Node, err)
}

// servers are the instances' processes.
func (m *measurement) servers() (out []task) {
	for _, x := range m.instances {
		if x.server != nil {
			out = append(out, x.server)
		}
	}
	return out
}

// serverName is the server's process in what is counted, of all instances.
const serverName = "server"

// processes are the instances' by the names that they are counted by.
func (m *measurement) processes() map[string]task {
	out := map[string]task{}
	for _, x := range m.instances {
		if x.server != nil {
			out[x.of(serverName)] = x.server
		}
	}
	return out
}

// tellInstances takes each instance's process out of a window's, and has their
// sum in the place.
func (m *measurement) tellInstances(w *result.Window) {
	if len(m.instances) < 2 {
		return
	}
	sum := machine.Process{Name: serverName}
	rest := w.Machine.Processes[:0:0]
	own := map[string]machine.Process{}
	for _, x := range m.instances {
		own[x.of(serverName)] = machine.Process{}
	}
	for _, p := range w.Machine.Processes {
		if _, ok := own[p.Name]; ok {
			own[p.Name] = p
			sum = sum.Plus(p)
		} else {
			rest = append(rest, p)
		}
	}
	w.Machine.Processes = append(rest, sum)
	for _, x := range m.instances {
		w.Instances = append(w.Instances, result.InstanceWindow{Node: x.Node, Process: own[x.of(serverName)]})
	}
}

// placed puts a process where an instance is, or, with none, the server.
func (m *measurement) placed(l launch, x *instance) launch {
	l.Place = m.e.Placement.Server
	if x != nil && x.dir != "" {
		l.what, l.CPUs, l.mems, l.group = x.of(l.what), x.CPUs, x.Mems, x.dir
	}
	return l
}

// valuesOf are the names' in an instance's command and files.
func (m *measurement) valuesOf(host string, x *instance) map[string]string {
	values := m.values(host)
	if x == nil || host != lab.SUT {
		return values
	}
	if x.dir != "" {
		values[experiment.NameScratch] = filepath.Join(m.on.scratchOf(host), x.dir)
		n := len(m.instances)
		values[experiment.NameThreads] = strconv.Itoa((m.threads() + n - 1) / n)
		for name, word := range map[string]string{experiment.NameNode: "node", experiment.NameIndex: "index",
			experiment.NameInstances: "instances"} {
			values[name] = x.Values[word]
		}
	}
	values[experiment.NameStorage] = values[experiment.NameScratch]
	if len(x.Storage) > 0 {
		values[experiment.NameStorage] = x.Storage[0]
	}
	return values
}

// lead has connections go to one instance, or, with none, each to that of the
// node where it arrives.
func (m *measurement) lead(ctx context.Context, only *instance) (r led.Result, err error) {
	d := m.division
	c := led.Config{Port: uint16(m.e.Server.Port), Nodes: d.arrival, Others: d.others,
		Patience: m.e.Server.Ready.Timeout}
	if only != nil {
		c.Only = only.Index + 1
	}
	ctx, done := m.watch(ctx)
	defer done()
	err = outcome(ctx, m.on, launch{what: "connections to instances", host: lab.SUT, part: "led", config: c}, &r)
	return r, m.because(err)
}

// each does something with each instance, to which all connections go
// meanwhile; then they go where they arrive.
func (m *measurement) each(ctx context.Context, do func(*instance) error) error {
	if len(m.instances) == 1 {
		return do(m.instances[0])
	}
	for _, x := range m.instances {
		if _, err := m.lead(ctx, x); err != nil {
			return x.because(err)
		}
		if err := do(x); err != nil {
			return x.because(err)
		}
	}
	_, err := m.lead(ctx, nil)
	return err
}

// fetchEach fills each instance, and has it proven by the instances' caches that
// it was this one.
func (m *measurement) fetchEach(ctx context.Context) error {
	return m.each(ctx, func(x *instance) error {
		if len(m.instances) == 1 {
			_, err := m.fetchAll(ctx)
			return err
		}
		before, err := m.readCaches(ctx)
		if err != nil {
			return err
		}
		fetched, err := m.fetchAll(ctx)
		if err != nil {
			return err
		}
		after, err := m.readCaches(ctx)
		if err != nil {
			return err
		}
		for i := range after {
			had, want := after[i].Requests-before[i].Requests, int64(0)
			if i == x.Index {
				want = fetched
			}
			if had != want {
				return unproven(fmt.Errorf("while it was filled by %d requests, the cache of the instance on node "+
					"%d counted %d, want %d", fetched, m.instances[i].Node, had, want))
			}
		}
		return nil
	})
}

// arrivals count how connections came to instances; nil where there is one.
type arrivals struct{ *led.Result }

func (m *measurement) arrived(ctx context.Context) (a arrivals, err error) {
	if len(m.instances) < 2 {
		return a, nil
	}
	a.Result = &led.Result{}
	return a, outcome(ctx, m.on, launch{what: "connections of instances", host: lab.SUT, part: "led",
		config: led.Config{Port: uint16(m.e.Server.Port), Count: true}}, a.Result)
}

// since is the growth, put into a window, with what is doubtful about it.
func (a arrivals) since(before arrivals, w *result.Window) {
	if a.Result == nil || before.Result == nil {
		return
	}
	x := result.Arrival{Node: a.Arrival - before.Arrival, Hash: a.Hash - before.Hash}
	w.Arrival = &x
	if x.Hash > 0 {
		w.Warnings = append(w.Warnings, fmt.Sprintf("%d of %d connections went to an instance by the kernel's hash, "+
			"and not to that of the node where they arrived", x.Hash, x.Hash+x.Node))
	}
	for _, i := range w.Instances {
		if i.Cache != nil && i.Cache.Requests == 0 {
			w.Warnings = append(w.Warnings, fmt.Sprintf("the instance on node %d had no request: no connection "+
				"arrived there", i.Node))
		}
	}
}
