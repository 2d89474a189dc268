// SPDX-License-Identifier: Apache-2.0

package experiment_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/power"
)

// A mapping has keys and values in order. It leaves out zero values, which are the defaults.
type mapping yaml.MapSlice

func (m *mapping) put(key string, value any, given bool) {
	if given {
		*m = append(*m, yaml.MapItem{Key: key, Value: value})
	}
}

func (m *mapping) text(key, value string)       { m.put(key, value, value != "") }
func (m *mapping) number(key string, value int) { m.put(key, value, value != 0) }
func (m *mapping) size(key string, value int64) { m.put(key, value, value != 0) }
func (m *mapping) rate(key string, bits uint64) { m.put(key, fmt.Sprintf("%dbit", bits), bits != 0) }
func (m *mapping) nested(key string, n mapping) { m.put(key, yaml.MapSlice(n), true) }
func (m *mapping) list(key string, n []mapping) { m.put(key, n, len(n) > 0) }
func (m *mapping) numbers(key string, n []int)  { m.put(key, n, len(n) > 0) }
func (m *mapping) time(key string, ns int64)    { m.put(key, times(ns), true) }
func (m *mapping) share(key string, permille int) {
	m.put(key, shares(permille), permille != 0)
}

func times(ns int64) string      { return fmt.Sprintf("%d.%03dus", ns/1000, ns%1000) }
func shares(permille int) string { return fmt.Sprintf("%d.%d%%", permille/10, permille%10) }

// MarshalYAML implements yaml.InterfaceMarshaler.
func (m mapping) MarshalYAML() (any, error) { return yaml.MapSlice(m), nil }

func each[T any](xs []T, f func(T) mapping) []mapping {
	out := make([]mapping, len(xs))
	for i, x := range xs {
		out[i] = f(x)
	}
	return out
}

// write returns the text of a file for an experiment. Each value has only one way to be written.
func write(t testing.TB, e *experiment.Experiment) []byte {
	t.Helper()
	m := mapping{}
	m.number("version", 1)
	m.text("title", e.Title)
	if e.Lab != nil {
		m.nested("lab", writeLab(e.Lab))
	}
	m.nested("server", writeServer(&e.Server))
	m.nested("workload", writeWorkload(&e.Workload))
	m.nested("load", writeLoad(&e.Load))
	m.list("probes", each(e.Probes, writeProbe))
	m.list("noise", each(e.Noise, writeNoise))
	places := mapping{}
	places.nested("server", writePlace(e.Placement.Server))
	places.nested("generator", writePlace(e.Placement.Generator))
	places.nested("noise", writePlace(e.Placement.Noise))
	places.nested("sut-noise", writePlace(e.Placement.SUTNoise))
	m.nested("placement", places)
	m.list("variants", each(e.Variants, writeVariant))
	m.text("base", e.Base)
	m.nested("repeats", writeRepeats(e.Repeats))
	m.list("sla", each(e.SLAs(), func(s experiment.SLA) (n mapping) {
		n.put("percentile", s.Percentile, true)
		n.time("at", s.At)
		return n
	}))
	if s := e.Search; s != nil {
		m.nested("search", writeSearch(s))
	}
	if s := e.Sweep; s != nil {
		n := mapping{}
		n.put("variants", s.Variants, true)
		n.put("noise", permilles(s.Noise), true)
		n.put("switch-buffer", s.SwitchBuffers, len(s.SwitchBuffers) > 0)
		n.time("window", s.Window)
		m.nested("sweep", n)
	}
	m.list("goals", each(e.Goals, writeGoal))
	m.list("power", each(e.Power, writePower))
	h := mapping{}
	h.time("window", e.HostNoise.Window)
	h.put("percentile", e.HostNoise.Percentile, true)
	h.put("at-most", times(e.HostNoise.AtMost), e.HostNoise.AtMost > 0)
	h.put("otherwise", "refuse", e.HostNoise.Refuse)
	m.nested("host-noise", h)
	if g := e.Gates; g != nil {
		n := mapping{}
		n.share("hits", g.Hits)
		n.text("tier", g.Tier)
		n.put("warn", g.Warn, len(g.Warn) > 0)
		m.nested("gates", n)
	}
	m.time("time-limit", e.TimeLimit)
	// JSON style quotes strings: without quotes, a text such as 1.2 would be read as a number.
	text, err := yaml.MarshalWithOptions(m, yaml.Indent(2), yaml.UseJSONMarshaler(), yaml.JSON())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func permilles(xs []int) []string {
	out := make([]string, len(xs))
	for i, x := range xs {
		out[i] = shares(x)
	}
	return out
}

func writeLab(l *experiment.Lab) (m mapping) {
	m.text("name", l.Name)
	m.text("card", l.Card)
	m.number("queues", l.Queues)
	m.rate("link-rate", l.LinkRate)
	m.number("link-burst", l.LinkBurst)
	m.number("switch-buffer", l.SwitchBuffer)
	m.number("switch-mark", l.SwitchMark)
	m.put("switch-first", l.SwitchFirst, len(l.SwitchFirst) > 0)
	if l.Delay > 0 {
		m.time("delay", l.Delay)
	}
	if l.PacketCost > 0 {
		m.time("packet-cost", l.PacketCost)
	}
	if l.WakeupCost > 0 {
		m.time("wakeup-cost", l.WakeupCost)
	}
	m.number("ring", l.Ring)
	m.number("rules", l.Rules)
	m.number("contexts", l.Contexts)
	m.number("mtu", l.MTU)
	m.put("frames", "on", l.Frames)
	m.put("addresses", l.Addresses, len(l.Addresses) > 0)
	m.number("noise-segment", l.NoiseSegment)
	m.numbers("sut-cpus", l.SUTCPUs)
	m.numbers("other-cpus", l.OtherCPUs)
	return m
}

// hostsText returns the text of a hosts file.
func hostsText(t testing.TB, h *experiment.Hosts) []byte {
	t.Helper()
	m := mapping{}
	m.number("version", 1)
	text, err := yaml.Marshal(append(m, writeHosts(h)...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func writeHosts(h *experiment.Hosts) (m mapping) {
	m.nested("sut", writeHost(h.SUT))
	m.list("clients", each(h.Clients, writeHost))
	m.list("power", each(h.Power, writePower))
	if h.Noise != nil {
		m.nested("noise", writeHost(*h.Noise))
	}
	m.rate("link-rate", h.LinkRate)
	m.text("authority", h.Authority)
	m.text("certificate", h.Certificate)
	m.text("key", h.Key)
	return m
}

func writeHost(h experiment.Host) (m mapping) {
	m.text("name", h.Name)
	m.text("agent", h.Agent)
	m.text("server-name", h.ServerName)
	m.put("address", h.Address, len(h.Cards) == 0 || h.Bond != "")
	m.put("device", h.Device, h.Device != "" && len(h.Cards) == 0)
	m.numbers("cpus", h.CPUs)
	m.numbers("noise-cpus", h.NoiseCPUs)
	m.list("cards", each(h.Cards, func(c experiment.Card) (m mapping) {
		m.text("device", c.Device)
		m.put("address", c.Address, h.Bond == "")
		m.numbers("cpus", c.CPUs)
		return m
	}))
	m.text("bond", h.Bond)
	m.number("threads", h.Threads)
	m.number("queues", h.Queues)
	m.number("pollers", h.Pollers)
	m.number("generators", h.Generators)
	m.put("storage", h.Storage, len(h.Storage) > 0)
	return m
}

func writeServer(s *experiment.Server) (m mapping) {
	running := s.Kind == experiment.KindRunning
	m.text("kind", s.Kind)
	m.text("fallback", s.Fallback)
	m.put("command", s.Command, len(s.Command) > 0)
	m.put("environment", s.Environment, len(s.Environment) > 0)
	m.put("files", s.Files, len(s.Files) > 0)
	m.text("manifest", s.Manifest)
	m.put("certificate", "on", s.Certificate)
	m.list("beside", each(s.Beside, func(p experiment.Process) (m mapping) {
		m.text("name", p.Name)
		m.text("host", p.Host)
		m.number("port", p.Port)
		m.put("command", p.Command, len(p.Command) > 0)
		m.put("origin", "on", p.Origin)
		return m
	}))
	m.text("address", s.Address)
	m.number("port", s.Port)
	m.put("threads", s.Threads, !running)
	m.number("queues", s.Queues)
	m.number("pollers", s.Pollers)
	m.size("memory", s.Memory)
	m.put("connections", s.Connections, s.Connections != 0 && !running)
	m.text("user", s.User)
	m.text("split", s.Split)
	if c := s.Cache; c != nil {
		n := mapping{}
		n.text("kind", c.Kind)
		n.put("at", c.At, true)
		n.text("address", c.Address)
		m.nested("cache", n)
	}
	r := mapping{}
	r.text("protocol", s.Ready.Protocol)
	r.text("path", s.Ready.Path)
	r.time("timeout", s.Ready.Timeout)
	m.nested("ready", r)
	return m
}

func writeWorkload(w *experiment.Workload) (m mapping) {
	http := w.Protocol == experiment.ProtocolHTTP || w.Protocol == experiment.ProtocolHTTPS
	m.text("protocol", w.Protocol)
	m.number("keys", w.Keys)
	m.number("key-bytes", w.KeyBytes)
	m.number("value-bytes", w.ValueBytes)
	m.put("get-set", fmt.Sprintf("%d:%d", w.Gets, w.Sets), !http)
	m.text("distribution", w.Distribution)
	m.put("prefill", fmt.Sprint(w.Prefill), true)
	m.text("namespace", w.Namespace)
	m.list("objects", each(w.Objects, func(o experiment.Object) (m mapping) {
		m.text("path", o.Path)
		m.number("copies", o.Copies)
		m.put("bytes", o.Bytes, true)
		m.number("weight", o.Weight)
		m.put("cacheable", "off", o.Uncached)
		return m
	}))
	m.text("host-header", w.HostHeader)
	if w.TLS != nil {
		t := mapping{}
		t.text("version", w.TLS.Version)
		t.text("authority", w.TLS.Authority)
		t.text("server-name", w.TLS.ServerName)
		m.nested("tls", t)
	}
	m.put("keep-alive", fmt.Sprint(w.KeepAlive), http)
	m.share("least-hits", w.LeastHits)
	return m
}

func writeLoad(l *experiment.Load) (m mapping) {
	m.text("mode", l.Mode)
	m.numbers("rates", l.Rates)
	m.text("arrivals", l.Arrivals)
	if len(l.ConnectionsPerClient) > 0 {
		m.numbers("connections-per-client", l.ConnectionsPerClient)
	} else {
		m.numbers("connections", l.Connections)
	}
	m.number("expect", l.Expect)
	m.number("pipeline", l.Pipeline)
	m.number("generators", l.Generators)
	m.put("spin", times(l.Spin), l.Spin > 0)
	m.time("warmup", l.Warmup)
	m.time("window", l.Window)
	m.time("timeout", l.Timeout)
	m.put("connect-timeout", times(l.ConnectTimeout), l.ConnectTimeout > 0)
	m.number("connect-rate", l.ConnectRate)
	m.put("tcp-nodelay", "off", l.Nagle)
	return m
}

func writeProbe(p experiment.Probe) (m mapping) {
	m.text("name", p.Name)
	m.text("address", p.Address)
	m.number("port", p.Port)
	m.number("rate", p.Rate)
	m.share("bulk", p.Bulk)
	return m
}

func writeNoise(n experiment.Noise) (m mapping) {
	m.text("direction", n.Direction)
	m.text("protocol", n.Protocol)
	m.rate("rate", n.BitsPerSecond)
	m.share("rate", n.Share)
	m.number("flows", n.Flows)
	m.number("port", n.Port)
	m.number("segment", n.Segment)
	m.text("congestion", n.Congestion)
	return m
}

func writePlace(p experiment.Place) (m mapping) {
	m.numbers("cpus", p.CPUs)
	m.number("fifo", p.FIFO)
	return m
}

func writeVariant(v experiment.Variant) (m mapping) {
	m.text("name", v.Name)
	m.text("title", v.Title)
	m.put("noise", fmt.Sprint(v.Noise), true)
	m.text("lanes", v.Lanes)
	m.text("lanes-file", v.LanesFile)
	m.put("force", v.Force, len(v.Force) > 0)
	m.text("client-lanes", v.ClientLanes)
	m.text("lane-policy", v.LanePolicy)
	if s := v.Server; s != nil {
		n := mapping{}
		n.number("threads", s.Threads)
		n.put("arguments", s.Arguments, len(s.Arguments) > 0)
		n.put("files", s.Files, len(s.Files) > 0)
		n.put("kernel-tls", "on", s.KernelTLS)
		n.put("limits", s.Limits, len(s.Limits) > 0)
		m.nested("server", n)
	}
	if t := v.Tune; t != nil {
		n := mapping{}
		n.put("sysctls", t.Sysctls, len(t.Sysctls) > 0)
		n.put("symmetric-queues", "on", t.Symmetric)
		n.put("napi-threads", "on", t.NAPIThreads)
		if c, err := strconv.Atoi(t.Channels); err == nil {
			n.number("channels", c)
		} else {
			n.put("channels", t.Channels, t.Channels != "")
		}
		n.number("rxring", t.RxRing)
		n.number("txring", t.TxRing)
		for key, x := range map[string]*int{"rxusecs": t.RxUsecs, "txusecs": t.TxUsecs} {
			if x != nil {
				n.put(key, *x, true)
			}
		}
		for key, x := range map[string]*bool{"rxadapt": t.RxAdapt, "txadapt": t.TxAdapt} {
			if x != nil {
				n.put(key, *x, true)
			}
		}
		n.put("interrupts", t.Interrupts, t.Interrupts != "")
		n.put("xps-cpus", "on", t.SendByProcessor)
		n.put("governor", t.Governor, t.Governor != "")
		n.put("energy", t.Energy, t.Energy != "")
		n.put("stop-services", t.Stop, len(t.Stop) > 0)
		m.nested("tune", n)
	}
	return m
}

func writeRepeats(r experiment.Repeats) (m mapping) {
	m.number("min", r.Min)
	m.number("max", r.Max)
	if r.Until != nil {
		u := mapping{}
		u.put("percentile", r.Until.Percentile, true)
		u.share("width", r.Until.Width)
		m.nested("until", u)
	}
	return m
}

func writeSearch(s *experiment.Search) (m mapping) {
	b := mapping{}
	b.number("from", s.From)
	b.number("to", s.To)
	b.share("resolution", s.Resolution)
	m.nested("max-rate", b)
	m.put("five-percent-rule", fmt.Sprint(s.FivePercentRule), true)
	m.put("latency-at", permilles(s.LatencyAt), true)
	m.put("variants", s.Variants, len(s.Variants) > 0)
	return m
}

func writeGoal(g experiment.Goal) (m mapping) {
	m.text("measure", g.Measure)
	m.put("percentile", g.Percentile, g.Percentile > 0)
	m.text("variant", g.Variant)
	m.text("base", g.Base)
	m.put("at-most", g.AtMost, g.AtMost > 0)
	m.put("at-least", g.AtLeast, g.AtLeast > 0)
	return m
}

func writePower(c power.Config) (m mapping) {
	m.text("source", c.Source)
	m.put("interval", times(c.Interval), c.Interval > 0)
	m.put("timeout", times(c.Timeout), c.Timeout > 0)
	m.put("update-interval", times(c.UpdateInterval), c.UpdateInterval > 0)
	m.put("accuracy", shares(int(c.AccuracyPercent*10+0.5)), c.AccuracyPercent > 0)
	m.put("domains", c.Domains, len(c.Domains) > 0)
	m.text("chip", c.Chip)
	m.put("sensors", c.Sensors, len(c.Sensors) > 0)
	m.text("address", c.Address)
	m.text("device", c.Device)
	m.text("url", c.URL)
	m.text("credentials", c.Credentials)
	m.number("cipher-suite", c.CipherSuite)
	m.text("privilege", c.Privilege)
	m.text("ca-file", c.CAFile)
	m.put("skip-verify", c.SkipVerify, c.SkipVerify)
	m.put("chassis", c.Chassis, len(c.Chassis) > 0)
	m.text("version", c.Version)
	m.text("auth", c.Auth)
	m.text("privacy", c.Privacy)
	m.number("pdu", c.PDU)
	m.put("inlets", c.Inlets, len(c.Inlets) > 0)
	m.put("outlets", c.Outlets, len(c.Outlets) > 0)
	m.text("model", c.Model)
	m.list("oids", each(c.OIDs, func(o power.OID) (n mapping) {
		n.text("oid", o.OID)
		n.text("unit", o.Unit)
		n.put("scale", o.Scale, o.Scale != 0)
		return n
	}))
	return m
}
