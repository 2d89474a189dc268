// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/bench/stats"
)

// Limits of the gates.
const (
	mostSteal    = 0.01 // share of a processor's time, taken by the hypervisor
	mostCPU      = 0.95 // share of its processor time that a generator or an origin may use
	mostWakeup   = 0.25 // P99 of the generators' delay, as a share of P99 of the latency
	leastLink    = 0.97 // bytes that the SUT's device sent, as a share of the bodies' bytes
	leastDisk    = 0.90 // bytes read from disks, as a share of the bodies' bytes, for the disk tier
	mostDisk     = 0.05 // the same, for the memory tier
	hitsOff      = 0.001
	hitsDraws    = 4.0 // standard deviations of the random choice of objects
	leastPayload = 1 << 20
)

// gated checks a window against the gates of the experiment. It adds the texts of gates that
// only warn to the window's warnings.
func gated(e *experiment.Experiment, w *result.Window) error {
	if e.Gates == nil {
		return nil
	}
	var errs []error
	for _, gate := range experiment.Gates {
		reason := gates[gate](e, w)
		if reason == "" {
			continue
		}
		text := "gate " + gate + ": " + reason
		if e.Gates.Warns(gate) {
			w.Warnings = append(w.Warnings, text)
		} else {
			errs = append(errs, errors.New(text))
		}
	}
	return errors.Join(errs...)
}

// gates are the checks by name. Each returns why a window does not pass, "" if it passes or if
// that is not known.
var gates = map[string]func(*experiment.Experiment, *result.Window) string{
	experiment.GateHits: hitsGate, experiment.GateTier: tierGate, experiment.GateReclaim: reclaimGate,
	experiment.GateClient: clientGate, experiment.GateLate: lateGate,
	experiment.GateOrigin: originGate, experiment.GateTLS: tlsGate, experiment.GateProcessors: processorsGate,
	experiment.GateLink: linkGate,
}

func hitsGate(e *experiment.Experiment, w *result.Window) string {
	if e.Gates.Hits == 0 {
		return ""
	}
	c := w.Cache
	if c == nil || c.Requests <= 0 {
		return "the cache has counted no requests"
	}
	// The cache counts answers and the generators count requests. A request may have no answer.
	asked, unanswered := w.Load.Work.Gets, w.Load.Work.Unanswered
	if off := asked - c.Requests; off > unanswered+asked/100+2 || -off > asked/100+2 {
		return fmt.Sprintf("the cache counted %d requests, the generators asked for %d", c.Requests, asked)
	}
	want := float64(e.Gates.Hits) / 1000
	have := float64(c.Hits) / float64(c.Requests)
	if allowed := hitsOff + hitsDraws*math.Sqrt(want*(1-want)/float64(c.Requests)); math.Abs(have-want) > allowed {
		return fmt.Sprintf("wrong hit ratio: %.2f %% of %d requests, want %.1f %% ± %.2f %%", 100*have, c.Requests,
			100*want, 100*allowed)
	}
	return ""
}

func tierGate(e *experiment.Experiment, w *result.Window) string {
	if e.Gates.Tier == "" || w.Machine == nil || w.Load.Work.GotBytes < leastPayload {
		return ""
	}
	read := w.Machine.Memory.DiskRead // includes other processes' reads if the server's are not known
	for _, p := range w.Machine.Processes {
		if p.Name == "server" {
			read = p.DiskRead
		}
	}
	share := float64(read) / float64(w.Load.Work.GotBytes)
	switch {
	case e.Gates.Tier == experiment.TierDisk && share < leastDisk:
		return fmt.Sprintf("wrong storage tier: %.0f %% of the delivered bytes were read from disks, want at least "+
			"%.0f %%", 100*share, 100*leastDisk)
	case e.Gates.Tier == experiment.TierMemory && share > mostDisk:
		return fmt.Sprintf("wrong storage tier: %.0f %% of the delivered bytes were read from disks, "+
			"want at most %.0f %%", 100*share, 100*mostDisk)
	}
	return ""
}

func reclaimGate(_ *experiment.Experiment, w *result.Window) string {
	if w.Machine == nil {
		return ""
	}
	if m := w.Machine.Memory; m.Scanned > 0 || m.Stalls > 0 {
		return fmt.Sprintf("page reclaim during the window: %d pages scanned, %d allocations had to wait", m.Scanned,
			m.Stalls)
	}
	return ""
}

func clientGate(e *experiment.Experiment, w *result.Window) string {
	l := &w.Load
	if n := max(1, e.Load.Generators); l.Duration > 0 {
		if use := float64(l.CPUTime) / float64(l.Duration) / float64(n); use > mostCPU {
			return fmt.Sprintf("saturated client: its generators used %.0f %% of a processor each", 100*use)
		}
	}
	return ""
}

// lateGate checks the generators' delay. The delay is part of the latency, so it can make a
// fast variant look slower, but never faster.
func lateGate(_ *experiment.Experiment, w *result.Window) string {
	l := &w.Load
	if l.Mode == experiment.Open && l.Wakeup != nil && l.Latency != nil {
		late, err1 := stats.Percentile(l.Wakeup, 99)
		latency, err2 := stats.Percentile(l.Latency, 99)
		if err1 == nil && err2 == nil && latency > 0 && float64(late) > mostWakeup*float64(latency) {
			return fmt.Sprintf("the generators are %s late at P99, P99 of the latency is %s",
				result.DurationText(float64(late)), result.DurationText(float64(latency)))
		}
	}
	return ""
}

func originGate(_ *experiment.Experiment, w *result.Window) string {
	o := w.Origin
	if o == nil || w.Machine == nil || w.Machine.Duration <= 0 || o.Processors == 0 {
		return ""
	}
	if use := float64(o.CPU) / float64(w.Machine.Duration) / float64(o.Processors); use > mostCPU {
		return fmt.Sprintf("saturated origin: it used %.0f %% of its %d processors", 100*use, o.Processors)
	}
	return ""
}

func tlsGate(e *experiment.Experiment, w *result.Window) string {
	t := e.Workload.TLS
	if t == nil || e.Workload.Protocol != experiment.ProtocolHTTPS {
		return ""
	}
	protected, all := int64(0), int64(0)
	for cipher, n := range w.Load.Ciphers {
		all += n
		if strings.HasPrefix(cipher, "TLS "+t.Version+" ") {
			protected += n
		}
	}
	if all == 0 || protected < all {
		return fmt.Sprintf("TLS not at 100 %%: %d of %d connections have TLS %s", protected, all, t.Version)
	}
	i := slices.IndexFunc(e.Variants, func(v experiment.Variant) bool { return v.Name == w.Variant })
	if i < 0 || e.Variants[i].Server == nil || !e.Variants[i].Server.KernelTLS || w.Machine == nil {
		return ""
	}
	k := w.Machine.KernelTLS
	if k == nil {
		return "the server's kernel has no TLS, want the module tls loaded"
	}
	if by := int64(k.Software + k.Device); by < all {
		return fmt.Sprintf("TLS by the server and not by the kernel: the kernel encrypts %d of %d connections", by, all)
	}
	return ""
}

func processorsGate(_ *experiment.Experiment, w *result.Window) string {
	if w.Machine == nil || w.Machine.Duration <= 0 {
		return ""
	}
	for _, c := range w.Machine.CPUs {
		if share := float64(c.Steal) / float64(w.Machine.Duration); share > mostSteal {
			return fmt.Sprintf("disturbed processors: the hypervisor took %.1f %% of processor %d", 100*share, c.CPU)
		}
	}
	return ""
}

func linkGate(_ *experiment.Experiment, w *result.Window) string {
	if w.Machine == nil || w.Machine.Device == nil || len(w.Machine.Device.Tx) == 0 ||
		w.Load.Work.GotBytes < leastPayload {
		return ""
	}
	sent := uint64(0)
	for _, q := range w.Machine.Device.Tx {
		sent += q.Bytes
	}
	if share := float64(sent) / float64(w.Load.Work.GotBytes); share < leastLink {
		return fmt.Sprintf("loopback instead of the link: device %s sent %.0f %% of what the generators received",
			w.Machine.Device.Name, 100*share)
	}
	return ""
}

// tried returns the warning for the result of a trial; "": e is no trial.
func tried(e *experiment.Experiment) string {
	if !e.Trial() {
		return ""
	}
	return "a trial: one short window of each variant, to see that everything starts; its figures mean nothing"
}

// warnsOnly returns a warning that names the gates that only warn; "": none.
func warnsOnly(e *experiment.Experiment) string {
	if e.Gates == nil || len(e.Gates.Warn) == 0 {
		return ""
	}
	all := slices.Clone(e.Gates.Warn)
	slices.Sort(all)
	return "gates that only warn here: " + strings.Join(all, ", ")
}
