// SPDX-License-Identifier: Apache-2.0

package result

import (
	"errors"

	"github.com/niclane/niclane/bench/power"
)

// Traffic is all traffic of the SUT's device, by the device's own counters. It includes load and
// noise, headers, and the warm-up.
type Traffic struct {
	Device string `json:"device"`
	Source string `json:"source,omitempty"`
	// Received, Sent and Both are in bit/s.
	Received float64 `json:"receivedBitsPerSecond"`
	Sent     float64 `json:"sentBitsPerSecond"`
	Both     float64 `json:"bothBitsPerSecond"`
	Drops    uint64  `json:"drops"`
}

// carried returns the bytes that the device received and sent in a window, and its drops.
func (w *Window) carried() (received, sent, drops uint64) {
	if w.Machine == nil || w.Machine.Device == nil {
		return 0, 0, 0
	}
	for _, q := range w.Machine.Device.Rx {
		received += q.Bytes
		drops += q.Drops
	}
	for _, q := range w.Machine.Device.Tx {
		sent += q.Bytes
		drops += q.Drops
	}
	return received, sent, drops
}

func traffic(windows map[int]*Window) *Traffic {
	var t *Traffic
	var duration int64
	for _, i := range rounds(windows) {
		w := windows[i]
		if w.Machine == nil || w.Machine.Device == nil {
			continue
		}
		if t == nil {
			t = &Traffic{Device: w.Machine.Device.Name, Source: w.Machine.Device.Source}
		}
		received, sent, drops := w.carried()
		duration += w.Machine.Duration
		t.Received += float64(received) * 8e9
		t.Sent += float64(sent) * 8e9
		t.Drops += drops
	}
	if t == nil || duration == 0 || t.Received+t.Sent == 0 {
		return nil // this device does not count bytes
	}
	t.Received /= float64(duration)
	t.Sent /= float64(duration)
	t.Both = t.Received + t.Sent
	return t
}

// A PowerSummary is what one power source measured, over all windows of a variant.
type PowerSummary struct {
	Provenance power.Provenance `json:"provenance"`
	Windows    int              `json:"windows"` // number of windows in which the source measured
	// Power is the mean power in W. Its bounds come from the sums of the windows' bounds.
	Power *power.Interval `json:"powerW,omitempty"`
	// Derived is the work per energy, and the energy per work.
	Derived *power.Derived `json:"derived,omitempty"`
	// Missing is the reason why a value is missing.
	Missing string `json:"missing,omitempty"`
}

// powers returns the power of a variant for each source, in the order of the experiment.
func powers(windows map[int]*Window) (out []PowerSummary) {
	most := 0
	for _, w := range windows {
		most = max(most, len(w.Power))
	}
	for source := range most {
		out = append(out, powerOf(windows, source))
	}
	return out
}

func powerOf(windows map[int]*Window, source int) (s PowerSummary) {
	sum := power.Result{Estimate: &power.Estimate{}}
	work := power.Work{BytesFrom: "the SUT's device"}
	var skipped error
	for _, i := range rounds(windows) {
		w := windows[i]
		if source >= len(w.Power) {
			continue
		}
		p := w.Power[source]
		s.Provenance = p.Provenance
		if p.Estimate == nil {
			s.Missing = p.NotMeasured
			continue
		}
		s.Windows++
		sum.Duration += p.Duration
		sum.Energy.Value += p.Energy.Value
		sum.Energy.Low += p.Energy.Low
		sum.Energy.High += p.Energy.High
		if w.Machine == nil {
			skipped = errors.New("a window has no counters of the SUT")
			continue
		}
		received, sent, _ := w.carried()
		work.Duration += w.Machine.Duration
		work.Bytes += received + sent
		work.Requests += uint64(max(0, w.sent()-w.Load.Work.Unanswered))
	}
	if s.Windows == 0 {
		return s
	}
	seconds := float64(sum.Duration) / 1e9
	sum.Power = power.Interval{Value: sum.Energy.Value / seconds, Low: sum.Energy.Low / seconds,
		High: sum.Energy.High / seconds}
	s.Power = &sum.Power
	// Derive refuses work and energy of windows that differ in length.
	d, err := sum.Derive(work)
	if err = errors.Join(skipped, err); err != nil {
		s.Missing = err.Error()
		return s
	}
	s.Derived = &d
	return s
}
