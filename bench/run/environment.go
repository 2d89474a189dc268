// SPDX-License-Identifier: Apache-2.0

package run

import (
	"runtime"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/result"
)

// environment returns what a reader must know about the host to judge or repeat the result.
func environment(h machine.Host) result.Environment {
	return result.Environment{
		Kernel: h.Kernel, Distribution: h.Distribution, CPUModel: h.CPUModel, CPUs: h.CPUs, Memory: h.Memory,
		Virtualisation: h.Virtualisation, Governor: h.Governor, Mitigations: h.Mitigations,
		Sysctls: h.Sysctls, Go: runtime.Version(), Hardware: h.Hardware,
	}
}
