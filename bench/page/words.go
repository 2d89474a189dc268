// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// headline returns the result in one sentence, for the highest load. It is about the percentile
// that the experiment names, so that it is not chosen after the numbers are known. If a variant's
// sample cannot support this percentile, it takes the next lower one that all can support.
func (v *view) headline() (out []string) {
	if v.Partial != nil || len(v.Summary.Points) == 0 {
		return nil
	}
	if t := v.Summary.Trial; t != nil {
		for _, x := range t.Verdicts {
			text := x.String()
			out = append(out, strings.ToUpper(text[:1])+text[1:]+".")
		}
		return out
	}
	p := v.Summary.Points[len(v.Summary.Points)-1]
	named := named(v.Experiment)
	for i := len(v.Summary.Percentiles) - 1; i >= 0; i-- {
		if v.Summary.Percentiles[i] > named {
			continue
		}
		var parts []string
		whole := true
		var same []string
		for _, s := range p.Variants {
			c := s.Percentiles[i]
			whole = whole && c.Estimate != nil
			if s.Name == p.Base || !whole {
				continue
			}
			if c.Ratio == nil || !narrowed(*c.Ratio) {
				whole = false
				break
			}
			text := fmt.Sprintf("%s ×%s (%s to %s)", s.Name, times(c.Ratio.Estimate), times(c.Ratio.Low),
				times(c.Ratio.High))
			if c.Difference != nil && c.Difference.Text == stats.Same {
				same = append(same, s.Name)
			}
			parts = append(parts, text)
		}
		if !whole || len(parts) == 0 {
			continue
		}
		text := fmt.Sprintf("%s beside that of %s: %s", result.PercentileText(v.Summary.Percentiles[i]), p.Base,
			strings.Join(parts, ", "))
		if len(v.Summary.Points) > 1 {
			text = "At " + grouped(p.Name) + ", " + text
		}
		return []string{text + sameText(same) + "."}
	}
	return nil
}

// sameText returns a sentence with the variants whose difference noise may explain.
func sameText(names []string) string {
	if len(names) == 0 {
		return ""
	}
	who := strings.Join(names, ", ")
	if i := strings.LastIndex(who, ", "); i >= 0 {
		who = who[:i] + " and" + who[i+1:]
	}
	return "; for " + who + ", noise may explain it"
}

// named returns the percentile that the experiment names: in its SLA, else the highest in its
// goals, else in repeats; 99 if it names none.
func named(e *experiment.Experiment) float64 {
	if e.SLA != nil {
		return e.SLA.Percentile
	}
	highest := 0.0
	for _, g := range e.Goals {
		if g.Measure == experiment.MeasureLatency {
			highest = max(highest, g.Percentile)
		}
	}
	if highest == 0 && e.Repeats.Until != nil {
		highest = e.Repeats.Until.Percentile
	}
	return cmp.Or(highest, 99)
}

// lead returns sentences that say what was measured, how and where.
func (v *view) lead() (out []string) {
	e := v.Experiment
	if v.Trial != nil {
		out = trialLead(v.Result)
	} else {
		out = append(out, serverLine(v.Result), loadLine(e))
	}
	if len(e.Noise) > 0 {
		var parts []string
		for _, n := range e.Noise {
			parts = append(parts, noiseText(n))
		}
		out = append(out, "Noise: "+strings.Join(parts, "; "))
	}
	n := v.Environment.Network
	if n.LinkRate > 0 {
		text := "Link of " + result.BitsText(float64(n.LinkRate)) + " in each direction"
		if n.SwitchBuffer > 0 {
			text += ", " + result.BytesText(float64(n.SwitchBuffer)) + " of buffer at the switch"
		}
		if n.PacketCost > 0 || n.WakeupCost > 0 {
			text += "; " + result.CostText(n.PacketCost, n.WakeupCost)
		}
		if n.Lab != "" {
			text += "; a lab of network namespaces on one machine"
		}
		out = append(out, text)
	}
	h := v.Environment
	release, _, _ := strings.Cut(h.Kernel, " ")
	host := fmt.Sprintf("%s, %d processors, kernel %s", cmp.Or(h.CPUModel, "unknown processor"), h.CPUs, release)
	if h.Virtualisation != "" {
		host += ", " + h.Virtualisation
		if !strings.HasPrefix(h.Virtualisation, "virtual machine") {
			host += " (virtual machine)"
		}
	}
	return append(out, host+"; "+v.Started.UTC().Format("2 January 2006, 15:04 MST"))
}

func serverLine(r *result.Result) string {
	s := cmp.Or(r.Server.Version, r.Server.Kind, r.Experiment.Server.Kind)
	if r.Server.Kind != "" && !strings.Contains(strings.ToLower(s), r.Server.Kind) &&
		r.Server.Kind != experiment.KindCommand {
		s = r.Server.Kind + " " + s
	}
	if r.Server.Version == "" && len(r.Server.Command) > 0 {
		s = r.Server.Command[0]
	}
	w := r.Experiment.Workload
	if len(w.Objects) > 0 {
		var sizes []string
		for _, o := range w.Objects {
			sizes = append(sizes, result.BytesText(float64(o.Bytes)))
		}
		return fmt.Sprintf("%s; objects of %s over %s", s, strings.Join(sizes, ", "), w.Protocol)
	}
	text := fmt.Sprintf("%s; %s keys of %d bytes, values of %s", s, count(int64(w.Keys)), w.KeyBytes,
		result.BytesText(float64(w.ValueBytes)))
	if w.Sets > 0 {
		return text + fmt.Sprintf(", %d gets to %d sets", w.Gets, w.Sets)
	}
	return text + ", gets only"
}

func loadLine(e *experiment.Experiment) string {
	l := e.Load
	window := result.DurationText(float64(l.Window))
	if l.Mode == experiment.Closed {
		return fmt.Sprintf("Closed loop: each connection sends when it has its answer; windows of %s", window)
	}
	arrivals := "evenly spaced"
	if l.Arrivals == "poisson" {
		arrivals = "Poisson"
	}
	return fmt.Sprintf("Open loop: %s arrivals, latency from the intended send time; windows of %s", arrivals, window)
}

func noiseText(n experiment.Noise) string {
	rate := result.BitsText(float64(n.BitsPerSecond))
	if n.BitsPerSecond == 0 {
		rate = tickShare(float64(n.Share)/1000) + " of the link"
	}
	flows := "1 flow"
	if n.Flows > 1 {
		flows = fmt.Sprintf("%d flows", n.Flows)
	}
	return fmt.Sprintf("%s %s, %s of %s", rate, result.Way(n.Direction), flows, strings.ToUpper(n.Protocol))
}

// A claim is a goal with its verdict.
type claim struct {
	What, Where, Verdict, Class, Reason string
}

func (v *view) claims() (out []claim) {
	out = v.trialClaims()
	for _, p := range v.Summary.Points {
		for _, g := range p.Goals {
			c := claim{What: g.Text, Verdict: "not judged", Class: "noisy", Reason: g.Missing}
			if len(v.Summary.Points) > 1 {
				c.Where = grouped(p.Name)
			}
			if j := g.Judgement; j != nil {
				c.Verdict, c.Reason = string(j.Verdict), j.Reason
				c.Class = map[stats.Verdict]string{stats.Met: "met", stats.Missed: "missed",
					stats.TooNoisy: "noisy"}[j.Verdict]
			}
			out = append(out, c)
		}
	}
	return out
}

// variantView is a variant with its own settings, for the page.
type variantView struct {
	result.Variant
	Key key
}

func (v *view) variants() (out []variantView) {
	for i, x := range v.Result.Variants {
		out = append(out, variantView{x, v.Keys[i]})
	}
	return out
}

// A fact is one line about the machine or its settings.
type fact struct {
	Name, Value string
	Code        bool
}

func facts(r *result.Result) (out []fact) {
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{Name: name, Value: value})
		}
	}
	e := r.Environment
	add("niclane", r.Niclane)
	add("kernel", strings.TrimSuffix(e.Kernel+", "+e.Distribution, ", "))
	if e.VirtualSeed > 0 {
		add("seed of virtual time", strconv.FormatUint(e.VirtualSeed, 10))
	}
	processors := fmt.Sprintf("%d × %s", e.CPUs, cmp.Or(e.CPUModel, "unknown"))
	if e.SocketCount() > 0 {
		processors += ", " + socketsText(e.SocketCount())
	}
	if e.Governor != "" {
		processors += ", governor " + e.Governor
	}
	add("processors", processors)
	add("virtual machine", e.Virtualisation)
	if e.Memory > 0 {
		add("memory", result.BytesText(float64(e.Memory)))
	}
	if e.Hardware != nil {
		for _, line := range e.Hardware.Text() {
			name, value, _ := strings.Cut(line, ": ")
			add(name, value)
		}
	}
	add("server", strings.Join(slices.DeleteFunc([]string{r.Server.Kind, r.Server.Version},
		func(s string) bool { return s == "" }), ", "))
	add("server's command", strings.Join(r.Server.Command, " "))
	add("server's instances", instancesText(r))
	add("workload proven by", r.Server.Proof)
	n := e.Network
	network := n.Device
	if n.Card != "" {
		network += ", card " + n.Card
	}
	if n.Queues > 0 {
		network += fmt.Sprintf(", %d queues", n.Queues)
	}
	if n.MTU > 0 {
		network += fmt.Sprintf(", MTU %d", n.MTU)
	}
	add("device", network)
	for _, h := range e.Hosts {
		text := fmt.Sprintf("%s: %s, %d × %s, kernel %s", h.Role, cmp.Or(h.Hostname, h.Name), h.CPUs,
			cmp.Or(h.CPUModel, "unknown"), h.Kernel)
		if h.ClockUncertainty > 0 {
			text += "; its clock is known to " + result.DurationText(float64(h.ClockUncertainty))
		}
		if h.Late > 0 {
			text += "; it woke a thread " + result.DurationText(float64(h.Late)) + " late"
		}
		add("host "+h.Name, text)
	}
	for _, c := range e.Cards {
		text := strings.TrimSpace(c.Driver + " " + c.Version)
		if c.Firmware != "" {
			text += ", firmware " + c.Firmware
		}
		if c.Bus != "" {
			text += ", " + c.Bus
		}
		if c.Speed > 0 {
			text += ", " + result.BitsText(float64(c.Speed))
		}
		add(c.Host+" "+c.Device, text)
	}
	for _, p := range e.Placement {
		text := "processors " + ints(p.CPUs)
		if len(p.CPUs) == 0 {
			text = "any processor"
		}
		if p.Class != "" {
			text += ", " + p.Class
		}
		add(p.What, text)
	}
	add("go", e.Go)
	for _, k := range slices.Sorted(maps.Keys(e.Versions)) {
		add(k, e.Versions[k])
	}
	for _, m := range []map[string]string{e.Sysctls, e.Mitigations} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			out = append(out, fact{k, m[k], true})
		}
	}
	return out
}

func ints(list []int) string {
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprint(n))
	}
	return strings.Join(out, ", ")
}
