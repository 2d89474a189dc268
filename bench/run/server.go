// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/httpserver"
	"github.com/niclane/niclane/bench/part/memserver"
	"github.com/niclane/niclane/bench/part/ready"
	"github.com/niclane/niclane/bench/part/thread"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lab"
)

// proofs says, by protocol, which counters of the server prove the workload.
var proofs = map[string]string{
	experiment.ProtocolMemcached: "memcached's stats", experiment.ProtocolRESP: "INFO",
	experiment.ProtocolAerospike: "statistics of the namespace",
}

// StartServer stops the running server. It starts that of the variant and the additional processes,
// and waits until the server answers.
func (m *measurement) StartServer(ctx context.Context, v experiment.Variant) (result.Server, error) {
	if err := m.stopServers(); err != nil {
		return result.Server{}, err
	}
	if err := m.setLanePolicy(ctx, v); err != nil {
		return result.Server{}, m.because(err)
	}
	m.variant = v.Server
	r, err := m.serve(ctx)
	return r, m.because(err)
}

func (m *measurement) serve(ctx context.Context) (result.Server, error) {
	r := result.Server{Kind: m.e.Server.Kind, Address: m.address(), Proof: "none: no counters of this server are known"}
	if err := m.divide(ctx, &r); err != nil {
		return r, err
	}
	if err := m.writeFiles(ctx); err != nil {
		return r, err
	}
	if err := m.startBeside(ctx); err != nil {
		return r, err
	}
	for _, x := range m.instances {
		if err := m.start(ctx, &r, x); err != nil {
			return r, err
		}
	}
	if err := m.each(ctx, func(x *instance) error { return m.answers(ctx, x) }); err != nil {
		return r, err
	}
	if err := m.startProbes(ctx); err != nil {
		return r, err
	}
	if kind, ok := proofs[m.e.Workload.Protocol]; ok {
		r.Proof, m.counts = kind, true
	}
	return r, nil
}

// answers waits until an instance answers at each of its addresses.
func (m *measurement) answers(ctx context.Context, x *instance) error {
	by := m.e.Server.Ready
	for i, address := range m.serverAddresses() {
		if x.card != nil && address != m.addressOf(x) {
			continue
		}
		host := cmp.Or(m.e.Workload.HostHeader, address)
		from := lab.Client
		if i > 0 { // each address is asked by the client whose load goes there
			from = m.on.seats(i + 1)[i].host
		}
		ask := func(ctx context.Context) error {
			return m.on.ask(ctx, from, address, ready.Question{Protocol: by.Protocol, Host: host, Path: by.Path})
		}
		if err := until(ctx, by.Protocol+" at "+address, ask, time.Duration(by.Timeout), m.alive); err != nil {
			return err
		}
	}
	return nil
}

// filesPerThread is how much the limit of connections (-c) is raised for each thread of memcached.
// memcached uses this limit as its limit of open files (memcached.c, RLIMIT_NOFILE), and its threads
// have files open too.
const filesPerThread = 8

// hashPower returns the number of bits of memcached's hash table with which the table does not grow
// for so many keys. memcached has 16 bits by default, and doubles the table at 1.5 items per bucket
// (assoc.c: assoc_start_expand). A thread that wakes each second does this, and runs for 90 ms at
// 500,000 keys. After filling, this would be in the first window. With SCHED_FIFO, no request is
// served in that time.
func hashPower(keys int) int {
	return max(16, bits.Len(uint((keys-1)*2/3)))
}

func (m *measurement) start(ctx context.Context, r *result.Server, one *instance) error {
	x := m.e.Server
	if r.Kind == experiment.KindPod {
		return m.startPod(ctx, r, one)
	}
	var err error
	host, port := m.listen(), strconv.Itoa(x.Port)
	if one.card != nil {
		host = one.card.Address
	}
	l := m.placed(launch{what: "the server", host: lab.SUT, member: true}, one)
	if r.Kind == experiment.KindMemcached {
		var path string
		if path, r.Version, err = m.on.find(ctx, lab.SUT, "memcached"); err != nil {
			if x.Fallback == "" {
				return err
			}
			r.Kind = x.Fallback
		}
		l.argv = []string{path, "-u", "nobody", "-l", host, "-p", port, "-U", "0", "-t",
			strconv.Itoa(m.threadsOf(one)), "-c", strconv.Itoa(x.Connections + filesPerThread*m.threadsOf(one)), "-m",
			strconv.FormatInt(max(1, x.Memory>>20), 10)}
		if m.e.Workload.Prefill {
			l.argv = append(l.argv, "-o", fmt.Sprintf("hashpower=%d", hashPower(m.e.Workload.Keys)))
		}
		if m.variant != nil {
			more, _, err := m.expanded(lab.SUT, one, m.variant.Arguments, nil)
			if err != nil {
				return err
			}
			l.argv = append(l.argv, more...)
		}
	}
	switch r.Kind {
	case experiment.KindRunning:
		return nil
	case experiment.KindNiclane:
		r.Version = "niclane's own"
		l.part, l.argv = "server", nil
		l.config = memserver.Config{Address: net.JoinHostPort(host, port), Threads: m.threads(),
			MaxConnections: x.Connections, MaxMemory: x.Memory,
			Setup: thread.Setup{CPUs: l.CPUs, FIFO: l.FIFO}}
	case experiment.KindCommand:
		command := x.Command
		if m.variant != nil {
			command = slices.Concat(command, m.variant.Arguments)
		}
		if l.argv, l.env, err = m.expanded(lab.SUT, one, command, x.Environment); err != nil {
			return err
		}
		if l.argv[0], r.Version, err = m.on.find(ctx, lab.SUT, l.argv[0]); err != nil {
			return err
		}
	}
	if one.Index == 0 {
		r.Command = l.argv
	}
	if one.server, err = m.on.launch(ctx, l); err == nil && len(m.instances) > 1 {
		r.Instances = append(r.Instances, result.Instance{Node: one.Node, Device: one.device(), CPUs: one.CPUs,
			Mems: one.Mems, Command: l.argv})
	}
	return err
}

// threads returns the number of serving threads of the variant.
func (m *measurement) threads() int { return m.e.ThreadsOf(&experiment.Variant{Server: m.variant}) }

// listen returns the address on which the server listens, without a port.
func (m *measurement) listen() string {
	return cmp.Or(m.e.Server.Address, m.podAddress(), experiment.Listen(m.on.addresses()))
}

// address returns the server's address, HOST:PORT: on the first card, if the SUT has several.
func (m *measurement) address() string { return m.serverAddresses()[0] }

// serverAddresses returns the server's addresses, HOST:PORT.
func (m *measurement) serverAddresses() (out []string) {
	ips := m.on.addresses()
	if own := cmp.Or(m.e.Server.Address, m.podAddress()); own != "" {
		ips = []string{own}
	}
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip, strconv.Itoa(m.e.Server.Port)))
	}
	return out
}

// values returns the values of $address, $port and the other names. They are used in lanes, and in
// commands and files that belong to no instance.
func (m *measurement) values(host string) map[string]string {
	ip, _, _ := net.SplitHostPort(m.address())
	values := m.e.Known(&experiment.Variant{Server: m.variant})
	maps.Copy(values, map[string]string{
		experiment.NameAddress: ip, experiment.NameListen: m.listen(),
		experiment.NameScratch: m.on.scratchOf(host), experiment.NameStorage: m.on.scratchOf(host),
		experiment.NameNode: "0", experiment.NameIndex: "0",
		experiment.NameInstances: strconv.Itoa(max(1, len(m.instances))),
		experiment.NameSUT:       m.on.addressOf(lab.SUT), experiment.NameClient: m.on.addressOf(lab.Client),
		experiment.NameNoise: m.on.addressOf(lab.Noise),
	})
	maps.Copy(values, m.on.names())
	return values
}

// expanded returns a command and its environment, with the names replaced by their values. x is the
// instance to which the command belongs; nil: none.
func (m *measurement) expanded(host string, x *instance, argv []string, environment map[string]string) (out,
	env []string, err error) {
	values := m.valuesOf(host, x)
	for _, a := range argv {
		x, err := experiment.Expand(a, values)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, x)
	}
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		x, err := experiment.Expand(environment[name], values)
		if err != nil {
			return nil, nil, err
		}
		env = append(env, name+"="+x)
	}
	return out, env, nil
}

// startBeside starts the additional processes in order. It waits until a process with a port listens
// before it starts the next one.
func (m *measurement) startBeside(ctx context.Context) error {
	for _, b := range m.e.Server.Beside {
		of := []*instance{nil}
		if b.Host == lab.SUT && !b.Origin {
			of = m.instances
		}
		for _, x := range of {
			l, err := m.besides(ctx, b, x)
			if err != nil {
				return fmt.Errorf("%s: %w", b.Name, err)
			}
			t, err := m.on.launch(ctx, l)
			if err != nil {
				return err
			}
			m.beside = append(m.beside, t)
		}
		if b.Port == 0 {
			continue
		}
		address := net.JoinHostPort(m.on.addressOf(b.Host), strconv.Itoa(b.Port))
		ask := func(ctx context.Context) error {
			return m.on.ask(ctx, b.Host, address, ready.Question{Protocol: experiment.ProtocolTCP})
		}
		if err := until(ctx, "tcp at "+address, ask, time.Duration(m.e.Server.Ready.Timeout), m.alive); err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
	}
	return nil
}

// besides returns how to start the additional process b for instance x; nil: for all instances.
func (m *measurement) besides(ctx context.Context, b experiment.Process, x *instance) (l launch, err error) {
	l = launch{what: b.Name, host: b.Host}
	if b.Origin {
		l.part, l.config = "http", httpserver.Config{Address: net.JoinHostPort(m.on.addressOf(b.Host),
			strconv.Itoa(b.Port)), Origin: true}
		return l, nil
	}
	if l.argv, l.env, err = m.expanded(b.Host, x, b.Command, nil); err != nil {
		return l, err
	}
	// Processes on the server's host have the server's processors and lane.
	if b.Host == lab.SUT {
		l.member = true
		l = m.placed(l, x)
		l.argv[0], _, err = m.on.find(ctx, lab.SUT, l.argv[0])
	}
	return l, err
}

// alive returns how the server or an additional process has ended, or which host is lost. It returns
// nil if all of them still run.
func (m *measurement) alive() error {
	if err := m.on.gone(); err != nil {
		return err
	}
	var errs []error
	for _, t := range append(m.servers(), m.beside...) {
		errs = append(errs, t.ended())
	}
	return errors.Join(errs...)
}

// reportTime is how long an agent's report that a process has ended may take. An error that the end causes can
// come before it.
const reportTime = 500 * time.Millisecond

// because replaces an error by its cause, if the server or an additional process has ended or a host
// is lost.
func (m *measurement) because(err error) error {
	if err == nil {
		return nil
	}
	for began := time.Now(); ; time.Sleep(reportTime / 50) {
		if gone := m.alive(); gone != nil {
			return gone
		}
		if time.Since(began) > reportTime {
			return err
		}
	}
}

// stopServers ends the server and then its additional processes, in reverse order.
func (m *measurement) stopServers() error {
	var errs []error
	for _, t := range m.servers() {
		errs = append(errs, t.stop())
	}
	for _, t := range slices.Backward(m.beside) {
		errs = append(errs, t.stop())
	}
	m.instances, m.beside = nil, nil
	return errors.Join(errs...)
}

// Logs ends the server and its additional processes, and returns the end of their output.
func (m *measurement) Logs() map[string]string {
	out := map[string]string{}
	for _, t := range append(m.servers(), m.beside...) {
		switch p := t.(type) {
		case *agentTask:
			_ = p.stop() // Down reports an error
			if end, err := p.End(); err == nil && end.Log != "" {
				out[p.What] = end.Log
			}
		case *podTask:
			if text, err := p.Log(context.Background()); err == nil && text != "" {
				out["the server"] = text
			}
		}
	}
	return out
}
