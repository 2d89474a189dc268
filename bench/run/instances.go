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

// An instance is the only instance of the server, or that of a NUMA node.
type instance struct {
	split.Instance
	// dir of its files below $scratch, "" for the only instance.
	dir    string
	server task // nil if another program has started it
}

// file returns the path of one of its files below $scratch.
func (x *instance) file(name string) string {
	if x == nil {
		return name
	}
	return path.Join(x.dir, name)
}

// of names something that belongs to the instance.
func (x *instance) of(what string) string {
	if x == nil || x.dir == "" {
		return what
	}
	return fmt.Sprintf("%s on node %d", what, x.Node)
}

// because adds the instance's name to an error.
func (x *instance) because(err error) error {
	if x.dir == "" {
		return err
	}
	return fmt.Errorf("instance on node %d: %w", x.Node, err)
}

// servers returns the instances' processes.
func (m *measurement) servers() (out []task) {
	for _, x := range m.instances {
		if x.server != nil {
			out = append(out, x.server)
		}
	}
	return out
}

// serverName is the name of the server's process in counts, summed over instances.
const serverName = "server"

// processes are the instances' processes, by their names in counts.
func (m *measurement) processes() map[string]task {
	out := map[string]task{}
	for _, x := range m.instances {
		if x.server != nil {
			out[x.of(serverName)] = x.server
		}
	}
	return out
}

// tellInstances moves each instance's process out of a window's processes, and puts their sum
// in place.
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

// placed puts a process where instance x is, or, without one, where the server is.
func (m *measurement) placed(l launch, x *instance) launch {
	l.Place = m.e.Placement.Server
	if x != nil && x.dir != "" {
		l.what, l.CPUs, l.mems, l.group = x.of(l.what), x.CPUs, x.Mems, x.dir
	}
	return l
}

// valuesOf returns the values of the names in an instance's command and files.
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

// lead directs all connections to one instance, or, without one, each connection to the
// instance of the node where it arrives.
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

// each calls do for each instance. Meanwhile all connections go to that instance; afterwards
// they go to the node where they arrive.
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

// fetchEach fills each instance, and proves by the instances' caches that it filled the right
// one.
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
				return unproven(fmt.Errorf("while %d requests filled one instance's cache, the cache of the "+
					"instance on node %d counted %d, want %d", fetched, m.instances[i].Node, had, want))
			}
		}
		return nil
	})
}

// arrivals count how connections were assigned to instances; nil if there is one.
type arrivals struct{ *led.Result }

func (m *measurement) arrived(ctx context.Context) (a arrivals, err error) {
	if len(m.instances) < 2 {
		return a, nil
	}
	a.Result = &led.Result{}
	return a, outcome(ctx, m.on, launch{what: "connections of instances", host: lab.SUT, part: "led",
		config: led.Config{Port: uint16(m.e.Server.Port), Count: true}}, a.Result)
}

// since puts the growth into a window, with warnings.
func (a arrivals) since(before arrivals, w *result.Window) {
	if a.Result == nil || before.Result == nil {
		return
	}
	x := result.Arrival{Node: a.Arrival - before.Arrival, Hash: a.Hash - before.Hash}
	w.Arrival = &x
	if x.Hash > 0 {
		w.Warnings = append(w.Warnings, fmt.Sprintf("the kernel's hash chose the instance of %d of %d connections, "+
			"not the node where they arrived", x.Hash, x.Hash+x.Node))
	}
	for _, i := range w.Instances {
		if i.Cache != nil && i.Cache.Requests == 0 {
			w.Warnings = append(w.Warnings, fmt.Sprintf("the instance on node %d had no request: no connection "+
				"arrived there", i.Node))
		}
	}
}
