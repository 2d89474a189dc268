// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/niclane/niclane/internal/traffic/flow"
)

// TestHashSpreads checks how evenly the hash spreads the connections of one client over
// CPUs. The flowHash function is tested against the program in ingress_test.go.
func TestHashSpreads(t *testing.T) {
	for _, cpus := range []int{2, 3, 8, 64} {
		for name, step := range map[string]int{"ports in a row": 1, "even ports": 2, "every 64th port": 64} {
			by := make([]int, cpus)
			const flows = 65536 / 64
			for i := range flows {
				f := flow.Flow{Family: 4, Protocol: flow.TCP, LocalPort: [2]byte{0x2b, 0xcb},
					Local: [16]byte{10, 9, 0, 1}, Remote: [16]byte{10, 9, 0, 2}}
				binary.BigEndian.PutUint16(f.RemotePort[:], uint16(i*step))
				by[uint64(flowHash(f))*uint64(cpus)>>32]++
			}
			// With a random choice, each count would be within 5 standard deviations of the mean.
			mean := float64(flows) / float64(cpus)
			for cpu, n := range by {
				if off := math.Abs(float64(n) - mean); off > 5*math.Sqrt(mean) {
					t.Errorf("%s: CPU %d of %d has %d flows of %d", name, cpu, cpus, n, flows)
				}
			}
		}
	}
}
