// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/niclane/niclane/internal/testing/vethtest"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/policy"
)

// BenchmarkPod measures the time to add or remove one pod in a lane with 0, 9 or 109 other pods.
// Before each change it calls Look, as the keeper does between pods that come one by one.
func BenchmarkPod(b *testing.B) {
	dev := vethtest.Uplink(b)
	spec := &v1alpha1.LanePolicySpec{
		Uplink: v1alpha1.Uplink{LinkRate: "1G", Force: map[string]string{"queue-set": "shared"}},
		Classes: []v1alpha1.Class{
			{Name: "redis", Queues: 1, Capacity: 2, Tuning: v1alpha1.Tuning{Guarantee: "10%"}},
			{Name: "web", Mode: v1alpha1.Shared, Queues: 1, Capacity: 120},
		},
	}
	c := newApplier(b)
	member := func(i int) *policy.Member {
		return &policy.Member{
			Name: fmt.Sprintf("default-pod-%d", i), Lane: "web", Protocol: "tcp", Ports: []string{"80"},
			Addrs: []netip.Prefix{
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 98, 0, byte(i + 1)}), 32),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)}), 128),
			},
		}
	}
	all := make([]*policy.Member, 110)
	for i := range all {
		all[i] = member(i)
	}
	with := func(n int) *policy.File {
		f, err := policy.Make(c.Config, spec, policy.Node{Device: dev, Members: all[:n]})
		if err != nil {
			b.Fatal(err)
		}
		return f
	}
	took := map[int]time.Duration{}
	for _, n := range []int{1, 10, 110} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			apply := func(n int) time.Duration {
				if _, err := c.Look(b.Context()); err != nil {
					b.Fatal(err)
				}
				begin := time.Now()
				if _, err := c.Apply(b.Context(), with(n)); err != nil {
					b.Fatal(err)
				}
				return time.Since(begin)
			}
			apply(n)
			var sum time.Duration
			for b.Loop() {
				sum += apply(n - 1)
				all[n-1] = member(n - 1) // a new pod with the same name
				sum += apply(n)
			}
			took[n] = sum / time.Duration(2*b.N)
			b.ReportMetric(float64(took[n].Nanoseconds()), "ns/op")
			if took[1] > 0 {
				b.ReportMetric(float64(took[n])/float64(took[1]), "of-one")
			}
		})
	}
	if err := c.Remove(b.Context()); err != nil {
		b.Fatal(err)
	}
}
