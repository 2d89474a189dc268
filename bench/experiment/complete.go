// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// complete fills in the defaults that depend on the values of other keys.
func (r *reader) complete() {
	e := &r.e
	r.checkPower(e.Power) // before the hosts replace it
	if r.on != nil {
		r.on.settle(e)
	}
	r.completeWorkload()
	r.completeLoad()
	r.completeCounts()
	s := &e.Server
	s.Port = cmp.Or(s.Port, serverPorts[e.Workload.Protocol])
	if s.Kind == KindMemcached || s.Kind == KindNiclane {
		s.Memory = cmp.Or(s.Memory, 64<<20)
	}
	s.Ready.Protocol = cmp.Or(s.Ready.Protocol, e.Workload.Protocol)
	if s.Ready.Path == "" && isHTTP(s.Ready.Protocol) && len(e.Workload.Objects) > 0 {
		s.Ready.Path = strings.ReplaceAll(e.Workload.Objects[0].Path, "$"+NameNumber, "1")
	}
	r.completePod()
	for i := range e.Noise {
		e.Noise[i].Port = cmp.Or(e.Noise[i].Port, noisePort+i)
	}
	if n := len(e.Load.Rates); n > 0 {
		for i := range e.Probes {
			e.Probes[i].Rate = cmp.Or(e.Probes[i].Rate, e.Load.Rates[n-1])
		}
	}
	for i := range e.Variants {
		v := &e.Variants[i]
		v.Title = cmp.Or(v.Title, v.Name)
		if !r.Given(fmt.Sprintf("variants[%d].noise", i)) {
			v.Noise = len(e.Noise) > 0
		}
	}
	if e.Base == "" && len(e.Variants) > 0 {
		e.Base = e.Variants[0].Name
	}
	if e.Repeats.Min == 0 {
		e.Repeats.Min = minRepeats
		if e.Repeats.Max > 0 {
			e.Repeats.Min = min(minRepeats, e.Repeats.Max)
		}
	}
	e.Repeats.Max = cmp.Or(e.Repeats.Max, e.Repeats.Min)
	for i := range e.Goals {
		e.Goals[i].Base = cmp.Or(e.Goals[i].Base, e.Base)
	}
}

func isHTTP(protocol string) bool { return protocol == ProtocolHTTP || protocol == ProtocolHTTPS }

func (r *reader) completeWorkload() {
	w := &r.e.Workload
	switch {
	case isHTTP(w.Protocol):
		if !r.Given("workload.keep-alive") {
			w.KeepAlive = true
		}
		if w.Protocol == ProtocolHTTPS && w.TLS == nil {
			t := newTLS()
			w.TLS = &t
		}
	case w.Protocol != "":
		w.Keys = cmp.Or(w.Keys, 1000)
		w.KeyBytes = cmp.Or(w.KeyBytes, 16)
		w.ValueBytes = cmp.Or(w.ValueBytes, 64)
		if w.Gets+w.Sets == 0 {
			w.Gets = 1
		}
		w.Distribution = cmp.Or(w.Distribution, "uniform")
		if !r.Given("workload.prefill") {
			w.Prefill = true
		}
		if w.Protocol == ProtocolAerospike {
			w.Namespace = cmp.Or(w.Namespace, "test")
		}
		if w.Prefill && w.Gets > 0 {
			w.LeastHits = cmp.Or(w.LeastHits, 1000)
		}
	}
}

func (r *reader) completeLoad() {
	l := &r.e.Load
	l.Generators = cmp.Or(l.Generators, 1)
	switch l.Mode {
	case Open:
		l.Arrivals = cmp.Or(l.Arrivals, "poisson")
		if !r.Given("load.connections") && l.ConnectionsPerClient == nil {
			l.Connections = []int{l.Generators}
		}
	case Closed:
		l.Pipeline = cmp.Or(l.Pipeline, 1)
	}
	if p := r.e.Workload.Protocol; isHTTP(p) || p == ProtocolAerospike {
		l.Pipeline = cmp.Or(l.Pipeline, 1)
	}
	if r.on != nil { // no more generators than connections, and than requests per second
		for _, most := range [][]int{l.Connections, l.Rates} {
			if len(most) > 0 {
				l.Generators = min(l.Generators, most[0])
			}
		}
	}
	s := &r.e.Server
	if n := len(l.Connections); n > 0 && (s.Kind == KindMemcached || s.Kind == KindNiclane || s.Kind == KindCommand) {
		// More than the load needs: the run also connects, to read the counters.
		s.Connections = cmp.Or(s.Connections, slices.Max(l.Connections)+64)
	}
}
