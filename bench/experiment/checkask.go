// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/intent"
)

// ownProtocols are the protocols that niclane's own server supports.
var ownProtocols = []string{ProtocolMemcached}

func (r *reader) checkServer() {
	s := &r.e.Server
	if !r.fine("server.kind") || s.Kind == "" {
		return
	}
	kind := "kind: " + s.Kind
	if s.Kind == KindCommand {
		if !r.Given("server.command") {
			r.Failf("server", "command is missing, want %s", command().Want)
		}
	} else {
		r.refuse(kind+", want kind: command", "server.command", "server.environment", "server.user")
	}
	if s.Kind == KindRunning {
		r.refuse(kind+", which gets no files from the run", "server.files", "server.certificate")
	}
	for _, name := range []string{"certificate.pem", "key.pem", "bundle.pem"} {
		if _, both := s.Files[name]; both && s.Certificate && r.fine("server.files") {
			r.Failf(y.Join("server.files", name), "found beside certificate: on (line %d), which makes this file",
				r.Line("server.certificate"))
		}
	}
	if s.Kind != KindMemcached {
		r.refuse(kind+", want kind: memcached", "server.fallback")
	}
	if s.Kind != KindMemcached && s.Kind != KindNiclane {
		r.refuse(kind+", whose memory niclane does not set", "server.memory")
	}
	if s.Kind == KindRunning {
		r.refuse(kind+", which another program has started", "server.threads", "server.connections", "server.beside")
		if r.on == nil {
			r.Failf("server.kind",
				"found running in a lab, which is raised for this run only; want a run with --hosts, or another kind")
		}
	}
	if p := r.e.Workload.Protocol; p != "" && r.fine("workload.protocol") {
		switch {
		case s.Kind == KindMemcached && p != ProtocolMemcached:
			r.Failf("server.kind", "found memcached with protocol: %s (line %d), want protocol: memcached, or "+
				"another server", p, r.Line("workload.protocol"))
		case s.Kind == KindNiclane && !slices.Contains(ownProtocols, p):
			r.Failf("server.kind",
				"found niclane with protocol: %s (line %d), want %s, which its server speaks, or another server", p,
				r.Line("workload.protocol"), y.OneOf(ownProtocols))
		}
	}
	r.checkPod()
	for i, p := range s.Beside {
		path := fmt.Sprintf("server.beside[%d]", i)
		for j, o := range s.Beside[:i] {
			if o.Name == p.Name && p.Name != "" {
				r.Failf(path+".name", "found %s a second time, first in line %d", y.Quote(p.Name),
					r.Line(fmt.Sprintf("server.beside[%d].name", j)))
			}
		}
		if (len(p.Command) > 0) == p.Origin && r.fine(path) {
			r.Failf(path, "want command, or origin: on, one of the two")
		}
		if p.Origin && p.Port == 0 && r.fine(path) {
			r.Failf(path, "port is missing, want the port on which the origin listens")
		}
		if p.Host == "noise" && r.e.Hosts != nil && r.e.Hosts.Noise == nil {
			r.Failf(path+".host", "found noise, want a host that the hosts file has")
		}
	}
	r.checkSplit()
	if !isHTTP(s.Ready.Protocol) {
		r.refuse("protocol: "+s.Ready.Protocol+", which has no paths", "server.ready.path")
	} else if s.Ready.Path == "" && r.fine("workload", "server.ready") {
		r.Failf("server.ready", "path is missing, want %s", httpPath(nil).Want)
	}
	if l := r.e.Load; r.Given("server.connections") && len(l.Connections) > 0 &&
		r.fine("server.connections", "load.connections") {
		if most := slices.Max(l.Connections); s.Connections < most {
			r.Failf("server.connections", "found %d, want at least the load's %d (line %d)", s.Connections, most,
				r.Line("load.connections"))
		}
	}
	w := r.e.Workload
	if items := int64(w.Keys) * int64(w.KeyBytes+w.ValueBytes); s.Memory > 0 && w.Prefill &&
		r.fine("workload", "server.memory") && items > s.Memory {
		r.Failf("server.memory", "found %s, want more than the keys and values alone: %d bytes", y.SizeText(s.Memory),
			items)
	}
}

func (r *reader) checkWorkload() {
	w := &r.e.Workload
	if w.Protocol == "" || !r.fine("workload.protocol") {
		return
	}
	protocol := "protocol: " + w.Protocol
	in := func(names ...string) []string {
		for i := range names {
			names[i] = "workload." + names[i]
		}
		return names
	}
	if isHTTP(w.Protocol) {
		r.refuse(protocol+", want objects", in("keys", "key-bytes", "value-bytes", "get-set", "distribution")...)
		if !r.Given("workload.objects") {
			r.Failf("workload", "objects is missing, want %s", "a list of objects, each with path and bytes")
		}
	} else {
		r.refuse(protocol+", want protocol: http or https", in("objects", "host-header", "keep-alive")...)
	}
	if w.Protocol != ProtocolHTTPS {
		r.refuse(protocol+", want protocol: https", "workload.tls")
	}
	if w.Protocol != ProtocolAerospike {
		r.refuse(protocol+", want protocol: aerospike", "workload.namespace")
	}
	for i, o := range w.Objects {
		path := fmt.Sprintf("workload.objects[%d]", i)
		if !r.fine(path) {
			continue
		}
		numbered, _ := Expand(o.Path, samples(objectNames))
		plain, _ := Expand(o.Path, map[string]string{NameNumber: ""})
		switch uses := numbered != plain; {
		case uses && o.Copies == 1:
			r.Failf(path+".path", "found %s, want copies above 1, or a path without $n", y.Quote(o.Path))
		case !uses && o.Copies > 1:
			r.Failf(path+".copies", "found %d of one path, want $n in the path for the number of the copy", o.Copies)
		}
		for j, x := range w.Objects[:i] {
			if x.Path == o.Path {
				r.Failf(path+".path", "found %s a second time, first in line %d", y.Quote(o.Path),
					r.Line(fmt.Sprintf("workload.objects[%d].path", j)))
			}
		}
	}
	if s := &r.e.Server; s.Certificate && r.fine("server.certificate") {
		if w.Protocol != ProtocolHTTPS {
			r.Failf("server.certificate", "found on with %s, want protocol: https", protocol)
		}
		r.refuse("server.certificate (line "+strconv.Itoa(r.Line("server.certificate"))+
			"), which generators take instead", "workload.tls.authority", "workload.tls.server-name")
	} else if t := w.TLS; t != nil && t.Authority == "" {
		r.refuse("a certificate that generators do not check; want authority", "workload.tls.server-name")
	}
}

func (r *reader) checkLoad() {
	l := &r.e.Load
	if !r.Given("load") || !r.fine("load.mode") {
		return
	}
	switch l.Mode {
	case Open:
		r.refuse("mode: open, whose rates are known", "load.expect")
		if !r.Given("load.rates") && !r.Given("search") {
			r.Failf("load", "rates is missing, want requests per second; or search, or mode: closed")
		}
		if len(l.Connections) > 1 && r.fine("load.connections") {
			r.Failf("load.connections", "found %d numbers with mode: open, want one: the rates are the load points",
				len(l.Connections))
		}
	case Closed:
		r.refuse("mode: closed, whose connections decide the rate", "load.rates", "load.arrivals", "load.spin")
		if !r.Given("load.connections") && !r.Given("load.connections-per-client") {
			r.Failf("load", "connections is missing, want one number of them, a list, or {from: , to: , step: }")
		}
	}
	if p := r.e.Workload.Protocol; (isHTTP(p) || p == ProtocolAerospike) && l.Pipeline > 1 && r.fine("load.pipeline") {
		r.Failf("load.pipeline", "found %d with protocol: %s (line %d), want 1, or it left out", l.Pipeline, p,
			r.Line("workload.protocol"))
	}
	if r.e.Workload.Protocol == ProtocolAerospike {
		r.refuse("protocol: aerospike, whose client opens its connections itself", "load.connect-rate",
			"load.tcp-nodelay")
	}
	if r.Given("workload.keep-alive") && !r.e.Workload.KeepAlive {
		r.refuse("keep-alive: off, where each request opens a connection", "load.connect-rate")
	}
	if r.fine("load.generators", "load.connections") && len(l.Connections) > 0 && l.Generators > l.Connections[0] {
		r.Failf("load.generators", "found %d, want at most the connections: %d", l.Generators, l.Connections[0])
	}
	if r.fine("load.generators", "load.rates") && len(l.Rates) > 0 && l.Generators > l.Rates[0] {
		r.Failf("load.generators", "found %d, want at most one for each request per second: %d", l.Generators,
			l.Rates[0])
	}
}

// streams counts the entries of noise in a direction.
func (r *reader) streams(direction string) int {
	n := 0
	for _, x := range r.e.Noise {
		if x.Direction == direction {
			n++
		}
	}
	return n
}

// link returns the link's rate in bit/s; 0 if it becomes known only during the run.
func (r *reader) link() uint64 {
	switch {
	case r.e.Lab != nil:
		return r.e.Lab.LinkRate
	case r.e.Hosts != nil:
		return r.e.Hosts.LinkRate * uint64(len(r.e.Hosts.SUT.Ports()))
	}
	return 0
}

// mostNoise is the most that noise may ask for in a direction, in rates of the link. TCP shares what
// the link has.
const mostNoise = 2

func (r *reader) checkNoise() {
	if !r.fine("noise") {
		return
	}
	permille, bits, link := map[string]int{}, map[string]uint64{}, r.link()
	for i, n := range r.e.Noise {
		path := fmt.Sprintf("noise[%d]", i)
		if n.Protocol == "udp" {
			r.refuse("protocol: udp, which has no congestion control", path+".congestion")
		} else if n.Segment > 32767 { // MAX_TCP_WINDOW of Linux, include/net/tcp.h
			r.Failf(path+".segment", "found %d with protocol: tcp, want at most 32767", n.Segment)
		}
		permille[n.Direction] += n.Share
		if bits[n.Direction] += n.BitsPerSecond; n.BitsPerSecond == 0 {
			bits[n.Direction] += intent.Rate{Permille: n.Share}.Of(link)
		}
		if permille[n.Direction] > 1000*mostNoise {
			r.Failf(path+".rate", "found %s, which brings the noise %s to %s, want at most %d00%%",
				y.PermilleText(n.Share), n.Direction, y.PermilleText(permille[n.Direction]), mostNoise)
		} else if link > 0 && bits[n.Direction] > mostNoise*link {
			r.Failf(path+".rate", "brings the noise %s to %s, want at most %d times the link-rate of %s", n.Direction,
				y.BitsText(bits[n.Direction]), mostNoise, y.BitsText(link))
		}
		if n.Direction == ToSUT && n.Protocol == "tcp" && n.Port == r.e.Server.Port && r.fine("server.port") {
			r.Failf(path+".port", "found the server's port %d, want another", n.Port)
		}
		for j, o := range r.e.Noise[:i] {
			if o.Port == n.Port && o.Direction == n.Direction && o.Protocol == n.Protocol {
				r.Failf(path+".port", "found port %d, which noise[%d] has (line %d)", n.Port, j,
					r.Line(fmt.Sprintf("noise[%d]", j)))
			}
		}
	}
	if len(r.e.Noise) > 0 && r.fine("variants") && len(r.e.Variants) > 0 &&
		!slices.ContainsFunc(r.e.Variants, func(v Variant) bool { return v.Noise }) {
		r.Failf("noise", "found, but every variant has noise: off; want noise: on in one variant, or no noise")
	}
}

// noLanes reports whether a variant has no lanes.
func (v *Variant) noLanes() bool { return strings.TrimSpace(v.Lanes) == "" && v.LanesFile == "" }
