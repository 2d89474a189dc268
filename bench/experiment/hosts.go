// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	y "github.com/niclane/niclane/internal/strictyaml"
)

const hostsWant = "version, sut, clients, authority, certificate and key"

// ParseHosts reads the content of a hosts file, which lists the machines on which experiments run.
// name is used in messages only. The error, if any, is an Errors with every problem of the file.
func ParseHosts(name string, data []byte) (*Hosts, error) {
	r := &reader{Reader: y.NewReader(name), e: Experiment{Hosts: &Hosts{}}}
	if root, ok := r.Document(data, hostsWant); ok {
		r.hosts(root)
	}
	if errs := r.Errors(); len(errs) > 0 {
		return nil, errs
	}
	return r.e.Hosts, nil
}

// fileKeys returns the keys of a hosts file, among them version.
func fileKeys() []y.Key[reader] {
	keys := []y.Key[reader]{versionKey()}
	for _, k := range hostsKeys() {
		read := k.Read
		keys = append(keys, y.Key[reader]{Name: k.Name, Want: k.Want, Preset: k.Preset, Doc: k.Doc, Schema: k.Schema,
			Read: func(v y.Value, r *reader) { read(v, r.e.Hosts) }})
	}
	return keys
}

// hosts reads the whole document of a hosts file.
func (r *reader) hosts(v y.Value) {
	if other, ok := otherVersion(v); ok {
		other.Wrong(fmt.Sprintf("%d, the only version that this niclane knows", version))
		return
	}
	if _, ok := y.Section(v, fileKeys(), hostsWant, r); !ok {
		return
	}
	for _, e := range r.Errors() {
		r.broken = append(r.broken, e.Path)
	}
	h := r.e.Hosts
	r.needOf(hostsSections(), "hosts", "")
	r.needOf(hostsSections(), "host", "sut")
	r.needOf(hostsSections(), "host", "noise")
	for i := range h.Clients {
		r.needOf(hostsSections(), "host", fmt.Sprintf("clients[%d]", i))
	}
	for i := range h.Clients {
		c := &h.Clients[i]
		c.Name = cmp.Or(c.Name, "client"+strconv.Itoa(i+1))
		c.Generators = cmp.Or(c.Generators, 1)
		c.completeCards()
	}
	r.needPower(hostsSections(), h.Power)
	r.checkPower(h.Power)
	h.SUT.completeCards()
	r.checkHosts()
}

// A hostAt is a host with its path in the file.
type hostAt struct {
	path string
	Host
}

func (r *reader) checkHosts() {
	h := r.e.Hosts
	if h.SUT.Device == "" && r.Given("sut") && r.fine("sut") {
		r.Failf("sut", "device is missing, want the name of the SUT's device in the measured network")
	}
	r.checkStorage()
	all := []hostAt{{"sut", h.SUT}}
	for i, c := range h.Clients {
		all = append(all, hostAt{fmt.Sprintf("clients[%d]", i), c})
	}
	if h.Noise != nil {
		all = append(all, hostAt{"noise", *h.Noise})
	}
	for i, a := range all {
		if !r.fine(a.path) {
			continue
		}
		if i > 0 {
			r.refuse("a host that is not the SUT: its noise runs on cpus", a.path+".noise-cpus")
			r.refuse("a host that is not the SUT: only the SUT has the server", a.path+".storage", a.path+".threads",
				a.path+".queues", a.path+".pollers")
		}
		if i > len(h.Clients) {
			r.refuse("a host that has no lanes, want it on the SUT and clients only", a.path+".device", a.path+".bond")
		}
		r.checkCards(a.path, &a.Host)
		if i == 0 || i > len(h.Clients) {
			r.refuse("a host that is not a client", a.path+".generators")
		}
		if n := len(a.CPUs); a.Generators > 1 && n > 0 && n < a.Generators {
			r.Failf(a.path+".cpus", "found %d for %d generators, want one for each", n, a.Generators)
		}
		for _, b := range all[:i] {
			switch {
			case a.Name == b.Name:
				r.Failf(a.path, "found the name %s a second time, first in line %d", y.Quote(a.Name), r.Line(b.path))
			case a.Agent == b.Agent:
				r.Failf(a.path+".agent", "found the agent of %s (line %d); each host has its own", b.Name,
					r.Line(b.path+".agent"))
			}
			for _, x := range a.Addresses() {
				if slices.ContainsFunc(b.Addresses(), func(o string) bool { return same(x, o) }) {
					r.Failf(a.path+".address", "found %s, an address of %s (line %d); each host has its own", x, b.Name,
						r.Line(b.path))
				}
			}
		}
	}
}

// checkStorage refuses storage if several NUMA nodes have the same directory.
func (r *reader) checkStorage() {
	if !r.fine("sut.storage") {
		return
	}
	dirs := r.e.Hosts.SUT.Storage
	if len(dirs) > maxStorage {
		r.Failf("sut.storage", "found %d nodes, want at most %d", len(dirs), maxStorage)
	}
	of := map[string]int{}
	for _, node := range slices.Sorted(maps.Keys(dirs)) {
		dir := dirs[node]
		if other, twice := of[dir]; twice {
			r.Failf(fmt.Sprintf("sut.storage.%d", node), "found the directory of node %d (line %d); each node has "+
				"its own", other, r.Line(fmt.Sprintf("sut.storage.%d", other)))
			continue
		}
		of[dir] = node
	}
}

// same reports whether two texts are the same IP address. It returns false for a text that is not
// an address; other checks report such texts.
func same(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	z, err2 := netip.ParseAddr(b)
	return err1 == nil && err2 == nil && x == z
}

// hostsSections returns the sections of a hosts file. The first section is the top level.
func hostsSections() []section {
	return []section{
		describe("hosts", "TOP LEVEL", "A file has these keys.", fileKeys(), "version", "sut", "clients", "authority",
			"certificate", "key"),
		describe("host", "A HOST", "`sut`, each of `clients`, and `noise` have these keys.", hostKeys(), "agent"),
		describe("card", "A CARD", "Each item of `cards` has these keys.", cardKeys(), "device"),
		powerSection(), oidSection(),
	}
}

// HostsSchema returns the JSON Schema of a hosts file, as Schema does.
func HostsSchema() []byte {
	all := hostsSections()
	top := all[0].object
	defs := y.Schema{}
	for _, s := range all[1:] {
		defs[s.ref] = s.object
	}
	top["$defs"] = defs
	return y.Encode(top, "niclane hosts")
}

// HostsReference returns the part of hosts.yaml(5) that lists every key.
func HostsReference() string {
	text := ""
	for _, s := range hostsSections() {
		text += s.part
	}
	return text
}

// settle gives an experiment the hosts in place of its lab. Then the hosts file says where
// processes run, how many generators there are, and what measures the SUT's power, if it says so.
// Hosts have no lab switch, so settle removes the sweep's switch buffers.
func (h *Hosts) settle(e *Experiment) {
	e.Lab, e.Hosts = nil, h
	if len(h.Power) > 0 {
		e.Power = h.Power
	}
	e.Load.Generators = 0
	for _, c := range h.Clients {
		e.Load.Generators += c.Generators
	}
	if e.Sweep != nil {
		e.Sweep.SwitchBuffers = nil
	}
	p := &e.Placement
	p.Server.CPUs, p.SUTNoise.CPUs, p.Generator.CPUs, p.Noise.CPUs = h.SUT.CPUs, h.SUT.NoiseCPUs, nil, nil
	if h.Noise != nil {
		p.Noise.CPUs = h.Noise.CPUs
	}
}
