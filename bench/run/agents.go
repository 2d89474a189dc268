// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/niclane/niclane/bench/agent"
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/part/hiccup"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/run/pod"
	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/lab"
)

// ReadHosts reads a hosts file. The paths in it are relative to its directory. ReadHosts makes them
// relative to the working directory.
func ReadHosts(path string) (*experiment.Hosts, error) {
	text, err := readLimited(path)
	if err != nil {
		return nil, err
	}
	h, err := experiment.ParseHosts(path, text)
	if err != nil {
		return nil, err
	}
	for _, p := range []*string{&h.Authority, &h.Certificate, &h.Key} {
		if !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	return h, nil
}

// agentSite is a Site on hosts with agents.
type agentSite struct {
	measurement
	h       *experiment.Hosts
	version string
	r       *result.Result // the run's result, for the hosts' descriptions

	// dialer opens connections to a host's agent; nil: as package agent does.
	dialer func(host string) func(ctx context.Context, network, address string) (net.Conn, error)

	agents  map[string]*agent.Client // by the name that the run uses for the host
	anyLost chan struct{}
	once    sync.Once
	lanes   map[string][]string // the lanes that are applied, by host: a text for each card
}

// HostsOptions are options for the hosts in addition to the hosts file.
type HostsOptions struct {
	// Kubectl creates pods.
	Kubectl pod.Kubectl
}

// OnHosts returns the site of an experiment that was read with a hosts file. version is the version
// of this niclane. The agents must have the same version.
func OnHosts(f *experiment.File, version string, o HostsOptions) Site {
	s := newAgentSite(f, f.Experiment.Hosts, version)
	s.pods.kubectl = o.Kubectl
	return s
}

func newAgentSite(f *experiment.File, h *experiment.Hosts, version string) *agentSite {
	s := &agentSite{h: h, version: version, agents: map[string]*agent.Client{}, lanes: map[string][]string{},
		anyLost: make(chan struct{})}
	s.measurement = measurement{f: f, e: f.Experiment, on: s}
	return s
}

// sessionMargin is how much longer than the experiment's time limit a session may last, to
// restore the hosts.
const sessionMargin = 5 * time.Minute

// clientName returns the name that a run uses for client i: lab.Client for the first one, "client
// NAME" for the others.
func clientName(i int, h experiment.Host) string {
	if i == 0 {
		return lab.Client
	}
	return "client " + h.Name
}

func (s *agentSite) Up(ctx context.Context, r *result.Result) error {
	if s.e.Server.Kind == experiment.KindPod {
		if err := s.pods.reach(ctx, r); err != nil {
			return err
		}
	}
	if err := s.connect(ctx, r); err != nil {
		return err
	}
	if err := s.power.open(ctx, s.e.Power, s.openPower, r); err != nil {
		return err
	}
	return s.describe(ctx, r)
}

// connect starts sessions with the agents of all hosts. It returns an error if the agents cannot do
// what the experiment needs.
func (s *agentSite) connect(ctx context.Context, r *result.Result) error {
	s.r = r
	files := agent.Files{Certificate: s.h.Certificate, Key: s.h.Key, Authority: s.h.Authority}
	config, err := files.Client()
	if err != nil {
		return err
	}
	hosts := map[string]experiment.Host{lab.SUT: s.h.SUT}
	for i, c := range s.h.Clients {
		hosts[clientName(i, c)] = c
	}
	if s.h.Noise != nil && len(s.e.Noise) > 0 || s.beside(lab.Noise) {
		hosts[lab.Noise] = *s.h.Noise
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for name, h := range hosts {
		wg.Go(func() {
			d := agent.Dial{
				Name: h.Name, Address: h.Agent, ServerName: h.ServerName, TLS: config, Version: s.version,
				Opening: agent.Opening{Purpose: s.e.Title, Limit: int64(sessionMargin) + s.e.TimeLimit,
					Device: h.Device, Cards: h.More(), Storage: s.storageOn(name)},
			}
			if s.dialer != nil {
				d.Connect = s.dialer(name)
			}
			c, err := agent.Open(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			s.agents[name] = c
			go func() {
				<-c.Lost()
				s.once.Do(func() { close(s.anyLost) })
			}()
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		return errors.Join(errs...)
	}
	return s.check()
}

// beside reports whether one of the server's additional processes runs on a host.
func (s *agentSite) beside(host string) bool {
	return slices.ContainsFunc(s.e.Server.Beside, func(b experiment.Process) bool { return b.Host == host })
}

// check returns an error if the agents cannot do what the experiment needs. At that time, nothing
// is started yet.
func (s *agentSite) check() error {
	var errs []error
	sut := s.agents[lab.SUT]
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("host %s (agent %s): %w", s.h.SUT.Name, s.h.SUT.Agent,
			fmt.Errorf(format, args...)))
	}
	for _, dev := range s.missing(lab.SUT) {
		bad("no device %s", dev)
	}
	for _, d := range s.devices(lab.SUT) {
		if cmp.Or(s.h.LinkRate, d.Speed) == 0 {
			bad("device %s does not say its speed, want link-rate in the hosts file", cmp.Or(d.Name, s.h.SUT.Device))
		}
	}
	for _, v := range s.e.Variants {
		if (v.Lanes != "" || v.LanesFile != "") && !sut.Host.Root {
			bad("variant %s has lanes, which need root there", v.Name)
		}
		if v.Tune != nil {
			c := tuning(v.Tune, s.h.SUT.Device)
			if s.e.Hosts == nil {
				c.Lab()
			}
			if err := agent.MayTune(c, sut.Host.Lanes, sut.Host.Tune); err != nil {
				bad("variant %s: %w", v.Name, err)
			}
		}
		if v.ClientLanes != "" {
			errs = append(errs, s.checkClients(v))
		}
	}
	return errors.Join(errs...)
}

// devices returns the devices of a host in the measured network, as its agent has described them.
func (s *agentSite) devices(host string) (out []agent.Device) {
	h := s.agents[host].Host
	if h.Device != nil {
		out = append(out, *h.Device)
	}
	return append(out, h.Cards...)
}

// missing returns the devices of the hosts file that a host does not have.
func (s *agentSite) missing(host string) (out []string) {
	has := s.devices(host)
	for i, c := range new(s.host(host)).Ports() {
		if i == 0 && s.agents[host].Host.Device != nil ||
			slices.ContainsFunc(has, func(d agent.Device) bool { return d.Name == c.Device }) {
			continue
		}
		out = append(out, c.Device)
	}
	return out
}

// checkClients returns an error if a client's agent cannot apply the client-lanes of a variant.
func (s *agentSite) checkClients(v experiment.Variant) error {
	var errs []error
	for i, h := range s.h.Clients {
		c := s.agents[clientName(i, h)]
		bad := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("host %s (agent %s): %w", h.Name, h.Agent, fmt.Errorf(format, args...)))
		}
		missing := s.missing(clientName(i, h))
		for _, dev := range missing {
			bad("no device %s", dev)
		}
		if len(missing) == 0 && !c.Host.Root {
			bad("variant %s has client-lanes, which need root there", v.Name)
		}
	}
	return errors.Join(errs...)
}

// describe puts the description of the hosts into r.
func (s *agentSite) describe(ctx context.Context, r *result.Result) error {
	sut := s.agents[lab.SUT].Host
	rate, mtu := s.link()
	versions := r.Environment.Versions
	r.Environment = environment(sut.Host)
	r.Environment.Versions = versions
	network := result.Network{Card: sut.Device.Driver, MTU: mtu, LinkRate: rate}
	var names []string
	for _, d := range s.devices(lab.SUT) {
		names = append(names, d.Name)
		network.Queues += d.Queues
	}
	network.Device = strings.Join(names, "+")
	r.Environment.Network = network
	clocks, err := s.clocks(ctx)
	if err != nil {
		return err
	}
	x, err := clocks(ctx)
	if err != nil {
		return err
	}
	for _, name := range s.hostNames() {
		c, h := s.agents[name], s.host(name)
		for _, w := range c.Warnings {
			r.Warnings = append(r.Warnings, fmt.Sprintf("host %s: %s", h.Name, w))
		}
		for _, d := range s.devices(name) {
			r.Environment.Cards = append(r.Environment.Cards, cardOf(h.Name, &d))
		}
		r.Environment.Hosts = append(r.Environment.Hosts, result.Host{
			Name: h.Name, Role: role(name), Hostname: c.Host.Hostname, Kernel: c.Host.Kernel, CPUModel: c.Host.CPUModel,
			CPUs: c.Host.CPUs, Hardware: c.Host.Hardware,
			ClockAhead: x.ahead[name], ClockUncertainty: x.uncertainty[name],
		})
	}
	s.placements(r)
	return nil
}

func role(name string) string {
	switch name {
	case lab.SUT, lab.Noise:
		return name
	}
	return lab.Client
}

func (s *agentSite) placements(r *result.Result) {
	add := func(what, host string, p experiment.Place) {
		x := result.Placement{What: what + " on " + s.host(host).Name, CPUs: p.CPUs, Class: classText(p)}
		if x.CPUs == nil {
			x.CPUs = s.agents[host].Host.Processors
		}
		r.Environment.Placement = append(r.Environment.Placement, x)
	}
	p := s.e.Placement
	if s.e.Server.Kind != experiment.KindPod { // for a pod, kubelet chooses the processors
		add("server", lab.SUT, p.Server)
	}
	for i, at := range s.seats(s.e.Load.Generators) {
		add(fmt.Sprintf("generator %d", i+1), at.host, experiment.Place{CPUs: at.CPUs, FIFO: at.FIFO})
	}
	if len(s.e.Noise) > 0 {
		add("noise", lab.SUT, p.SUTNoise)
		add("noise", lab.Noise, p.Noise)
	}
}

// hostNames returns the names of the hosts that have agents, the SUT first.
func (s *agentSite) hostNames() []string {
	out := []string{lab.SUT}
	for i, c := range s.h.Clients {
		out = append(out, clientName(i, c))
	}
	if s.agents[lab.Noise] != nil {
		out = append(out, lab.Noise)
	}
	return out
}

func (s *agentSite) host(name string) experiment.Host {
	switch name {
	case lab.SUT:
		return s.h.SUT
	case lab.Noise:
		if s.h.Noise != nil {
			return *s.h.Noise
		}
		return experiment.Host{}
	}
	for i, c := range s.h.Clients {
		if clientName(i, c) == name {
			return c
		}
	}
	return experiment.Host{}
}

// HostNoise measures the host noise of all hosts at the same time and returns that of the SUT. For
// each other host, the run's result gets only the value of the worst processor.
func (s *agentSite) HostNoise(ctx context.Context, ns int64) (hiccup.Result, error) {
	var tasks []task
	names := s.hostNames()
	for _, name := range names {
		t, err := s.launch(ctx, launch{what: "host noise", host: name, part: "hiccup",
			config: hiccup.Config{Duration: ns}})
		if err != nil {
			return hiccup.Result{}, s.because(err)
		}
		tasks = append(tasks, t)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(ns)+patience, errors.New("it did not end in time"))
	defer cancel()
	var sut hiccup.Result
	for i, t := range tasks {
		var r hiccup.Result
		if err := t.result(ctx, &r); err != nil {
			return r, s.because(err)
		}
		if names[i] == lab.SUT {
			sut = r // Run compares it with the limit
			continue
		}
		if err := s.judge(names[i], r); err != nil {
			return sut, err
		}
	}
	return sut, nil
}

// judge puts the noise of a host's worst processor into the run's result. Noise above the
// experiment's limit is a warning, or an error if the experiment says so.
func (s *agentSite) judge(name string, r hiccup.Result) error {
	h := s.e.HostNoise
	host := s.host(name).Name
	for _, c := range r.CPUs {
		late, err := stats.Percentile(c.Late, h.Percentile)
		if err != nil && h.AtMost == 0 {
			continue // no limit, and too few samples for the percentile
		}
		if err != nil {
			return fmt.Errorf("host %s: processor %d: %w", host, c.CPU, err)
		}
		for i := range s.r.Environment.Hosts {
			if x := &s.r.Environment.Hosts[i]; x.Name == host {
				x.Late = max(x.Late, late)
			}
		}
		if h.AtMost == 0 || late <= h.AtMost {
			continue
		}
		text := fmt.Sprintf("host %s: processor %d wakes a thread %v late at P%v, the experiment allows %v", host,
			c.CPU, time.Duration(late), h.Percentile, time.Duration(h.AtMost))
		if h.Refuse {
			return errors.New(text)
		}
		s.r.Warnings = append(s.r.Warnings, "host noise: "+text)
	}
	return nil
}

func (s *agentSite) SetSwitchBuffer(bytes int64) error {
	if bytes != 0 {
		return errors.New("the buffer can be set only on the lab's switch")
	}
	return nil
}

func (s *agentSite) Down(ctx context.Context) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	// Stop tuning and servers in order while the sessions still last. The end of a session stops
	// all processes at once, and a server would restart a worker that ends before the server.
	if s.gone() == nil {
		errs = append(errs, s.untune(), s.stopServers())
	}
	// Pods belong to no agent, so the end of a session does not remove them.
	errs = append(errs, s.stopPods(), s.dropLanePolicy(ctx))
	for _, c := range s.agents {
		wg.Go(func() {
			// The loss of an agent was reported before. The agent, or its keeper, restores the
			// host by itself.
			lost := c.Err() != nil
			if err := c.Close(ctx); err != nil && !lost {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
