// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

func TestRate(t *testing.T) {
	for in, want := range map[v1alpha1.Rate]string{"": "", "20%": "20%", "0.1%": "0.1%", "12.5%": "12.5%",
		"100%": "100%", "2G": "2000000000bit", "2.5M": "2500000bit", "2500k": "2500000bit", "1Mi": "1048576bit",
		"1000": "1000bit", "10T": "10000000000000bit"} {
		if got, err := readRate(in); err != nil || got.String() != want {
			t.Errorf("%q: got %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []v1alpha1.Rate{"0%", "0.05%", "100.1%", "-1%", "%", "x%", "2gbit", "10 G", "999", "10.1T", "-2G",
		"5GB", "1e30"} {
		if got, err := readRate(in); err == nil || !strings.Contains(err.Error(), "a quantity of bit/s from 1k to 10T") {
			t.Errorf("%q: got %s, %v, want an error with what is wanted", in, got, err)
		}
	}
	for r, want := range map[v1alpha1.Rate]uint64{"": 0, "10%": 1e9, "2G": 2e9, "2gbit": 0} {
		if got := Bits(r, 1e10); got != want {
			t.Errorf("%s of 10G: got %d, want %d", r, got, want)
		}
	}
	if got := Bits("10%", 0); got != 0 {
		t.Errorf("10%% of a link whose rate is not known: got %d", got)
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[v1alpha1.Duration]int{"0us": 0, "50us": 50, "10ms": 10_000, "1s": 1_000_000} {
		if got, err := readDuration(in); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", in, got, err, want)
		}
	}
	for _, in := range []v1alpha1.Duration{"50", "0", "50µs", "1.5ms", "-1us", "1001ms", "1m", "1s1ms", "us", "10ns"} {
		if got, err := readDuration(in); err == nil {
			t.Errorf("%q: got %d, want an error", in, got)
		}
	}
}

// TestSpelling checks that errors about the lanes file have the policy's words: its paths, rates
// and enums.
func TestSpelling(t *testing.T) {
	nice := 1
	for name, c := range map[string]struct {
		uplink v1alpha1.Uplink
		tuning v1alpha1.Tuning
		want   string
	}{
		"a rate above the link's": {v1alpha1.Uplink{LinkRate: "500M"}, v1alpha1.Tuning{Ceiling: "1G"},
			"spec.classes[0].ceiling: found 1G, want at most the linkRate of 500M"},
		"a rate of a class": {v1alpha1.Uplink{}, v1alpha1.Tuning{Ceiling: "1gbit"},
			`spec.classes[0].ceiling: found "1gbit", want a share of the link's rate from 0.1% to 100%`},
		"a share as link's rate": {v1alpha1.Uplink{LinkRate: "10%"}, v1alpha1.Tuning{},
			`spec.uplink.linkRate: found "10%", want a quantity of bit/s`},
		"a time": {v1alpha1.Uplink{BusyPoll: "50"}, v1alpha1.Tuning{},
			`spec.uplink.busyPoll: found "50", want a time of at most 1s with its unit us, ms or s (50us, 10ms)`},
		"a poller": {v1alpha1.Uplink{}, v1alpha1.Tuning{Poller: v1alpha1.PollerInterrupt, Pollers: 1},
			"spec.classes[0].pollers: found with poller: Interrupt"},
		"a key": {v1alpha1.Uplink{}, v1alpha1.Tuning{PollerPriority: 1, PollerNice: &nice},
			"spec.classes[0].pollerNice: found beside pollerPriority"},
		"rings": {v1alpha1.Uplink{RxRing: new(int)}, v1alpha1.Tuning{}, "spec.uplink.rxRing: found 0"},
	} {
		spec := &v1alpha1.LanePolicySpec{Uplink: c.uplink,
			Classes: []v1alpha1.Class{{Name: "a", Queues: 1, Capacity: 2, Tuning: c.tuning}}}
		_, err := Make("k.yaml", spec, Node{Device: "eth0"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		} else if strings.Count(err.Error(), c.want) > 1 {
			t.Errorf("%s: said twice: %v", name, err)
		}
	}
}
