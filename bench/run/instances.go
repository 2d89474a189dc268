// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path"
	"path/filepath"
	"strconv"
	"time"

	"github.com/niclane/niclane/app/led"
	"github.com/niclane/niclane/app/split"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/part/cache"
	"github.com/niclane/niclane/bench/part/fetch"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// An instance is a process of the server: the only one, or the one for a NUMA node.
type instance struct {
	split.Instance
	// dir is the directory of the instance's files below $scratch; "": the only instance.
	dir string
	// card is the card of an instance that serves one: see experiment.SplitCard; nil: it serves all.
	card   *experiment.Card
	server task // nil if another program has started it
}

// file returns the path below $scratch of one of the instance's files.
func (x *instance) file(name string) string {
	if x == nil {
		return name
	}
	return path.Join(x.dir, name)
}

// of returns the name of something that belongs to the instance: "WHAT on node N" or "WHAT on DEVICE".
// For the only instance it returns what.
func (x *instance) of(what string) string {
	if x == nil || x.dir == "" {
		return what
	}
	if x.card != nil {
		return what + " on " + x.card.Device
	}
	return fmt.Sprintf("%s on node %d", what, x.Node)
}

// because adds the instance's name to an error.
func (x *instance) because(err error) error {
	if x.dir == "" {
		return err
	}
	return fmt.Errorf("%s: %w", x.of("instance"), err)
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

// serverName is the name of the server's process in the counts of processes. With several instances,
// it is the name of their sum.
const serverName = "server"

// processes returns the instances' processes by their names in counts.
func (m *measurement) processes() map[string]task {
	out := map[string]task{}
	for _, x := range m.instances {
		if x.server != nil {
			out[x.of(serverName)] = x.server
		}
	}
	return out
}

// tellInstances moves the counts of each instance's process from w.Machine.Processes to
// w.Instances. It puts the sum of the instances into w.Machine.Processes.
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
		w.Instances = append(w.Instances, result.InstanceWindow{Node: x.Node, Device: x.device(),
			Process: own[x.of(serverName)]})
	}
}

// placed returns l with the processors and memory of instance x. Without an instance of a divided
// server, it returns l with the server's processors.
func (m *measurement) placed(l launch, x *instance) launch {
	l.Place = m.e.Placement.Server
	if x != nil && x.dir != "" {
		l.what, l.CPUs, l.mems, l.group = x.of(l.what), x.CPUs, x.Mems, x.dir
	}
	return l
}

// threadsOf returns the number of threads of an instance: its part of the server's.
func (m *measurement) threadsOf(x *instance) int {
	if x == nil || x.dir == "" {
		return m.threads()
	}
	n := len(m.instances)
	return (m.threads() + n - 1) / n
}

// device returns the device of an instance's card, "" if it serves all cards.
func (x *instance) device() string {
	if x.card == nil {
		return ""
	}
	return x.card.Device
}

// addressOf returns the address of an instance, HOST:PORT.
func (m *measurement) addressOf(x *instance) string {
	if x == nil || x.card == nil {
		return m.address()
	}
	return net.JoinHostPort(x.card.Address, strconv.Itoa(m.e.Server.Port))
}

// contents returns the instances that have each to be filled and counted by themselves: those of cards.
// Otherwise the first one stands for all.
func (m *measurement) contents() []*instance {
	if len(m.instances) > 0 && m.instances[0].card != nil {
		return m.instances
	}
	return []*instance{nil}
}

// valuesOf returns the values of $scratch and the other names in an instance's command and files.
func (m *measurement) valuesOf(host string, x *instance) map[string]string {
	values := m.values(host)
	if x == nil || host != lab.SUT {
		return values
	}
	if x.dir != "" {
		values[experiment.NameScratch] = filepath.Join(m.on.scratchOf(host), x.dir)
		values[experiment.NameThreads] = strconv.Itoa(m.threadsOf(x))
		for name, word := range map[string]string{experiment.NameNode: "node", experiment.NameIndex: "index",
			experiment.NameInstances: "instances"} {
			values[name] = x.Values[word]
		}
	}
	if x.card != nil {
		maps.Copy(values, x.card.Names())
		values[experiment.NameListen] = x.card.Address
	}
	values[experiment.NameStorage] = values[experiment.NameScratch]
	if len(x.Storage) > 0 {
		values[experiment.NameStorage] = x.Storage[0]
	}
	return values
}

// lead directs all connections to one instance, which the argument only names. If only is nil, it
// directs each connection to the instance of the node where the connection arrives.
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

// each calls do for one instance after the other. If instances share an address, all connections go to
// that instance during a call. After the last call, each connection goes to the instance of the node where it arrives.
func (m *measurement) each(ctx context.Context, do func(*instance) error) error {
	if m.division == nil {
		for _, x := range m.instances {
			if err := do(x); err != nil {
				return x.because(err)
			}
		}
		return nil
	}
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

// fetchEach fills the cache of each instance. It proves by the counters of all caches that it
// filled the right one.
func (m *measurement) fetchEach(ctx context.Context) error {
	return m.each(ctx, func(x *instance) error {
		before, err := m.readCaches(ctx)
		if err != nil {
			return err
		}
		fetched, err := m.fetchAll(ctx, x)
		if err != nil || before == nil {
			return err
		}
		return m.filled(ctx, x, before, fetched)
	})
}

// countPatience is how long a cache may take to count the requests that filled it. The threads of some
// servers add up their counts only every few seconds.
const countPatience = 10 * time.Second

// filled waits until the cache of instance x has counted the requests that filled it. What is counted later
// would be in the first window. No other instance's cache may have counted any. Traffic Server counts the last
// answer of a connection as aborted, not as a hit, if the client closes the connection at once.
func (m *measurement) filled(ctx context.Context, x *instance, before []*cache.Counters, fetched int64) error {
	for deadline := time.Now().Add(countPatience); ; {
		after, err := m.readCaches(ctx)
		if err != nil {
			return err
		}
		var wrong error
		for i := range after {
			had, least, want := after[i].Requests-before[i].Requests, int64(0), int64(0)
			if i == x.Index {
				least, want = max(0, fetched-fetch.Connections), fetched
			}
			if (had < least || had > want) && wrong == nil {
				wrong = fmt.Errorf("while %d requests filled one instance's cache, the cache of the %s counted %d, "+
					"want %d", fetched, m.instances[i].of("instance"), had, want)
			}
		}
		if wrong == nil || time.Now().After(deadline) {
			return unproven(wrong)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// arrivals counts how connections were assigned to instances. Result is nil if there is only one
// instance.
type arrivals struct{ *led.Result }

func (m *measurement) arrived(ctx context.Context) (a arrivals, err error) {
	if len(m.instances) < 2 || m.division == nil {
		return a, nil
	}
	a.Result = &led.Result{}
	return a, outcome(ctx, m.on, launch{what: "connections of instances", host: lab.SUT, part: "led",
		config: led.Config{Port: uint16(m.e.Server.Port), Count: true}}, a.Result)
}

// since puts into a window how connections were assigned after before was counted. It warns about
// connections that did not go to their node, and about instances without requests.
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
