// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"runtime"

	"github.com/niclane/niclane/bench/machine"
	"github.com/niclane/niclane/bench/report"
)

// environment is what somebody needs to judge or repeat the result.
func environment(version string) report.Environment {
	h := machine.Describe()
	return report.Environment{
		Niclane: version,
		Kernel:  h.Kernel, Distribution: h.Distribution, CPUModel: h.CPUModel, CPUs: h.CPUs, Memory: h.Memory,
		Virtualisation: h.Virtualisation, Governor: h.Governor, Mitigations: h.Mitigations, Sysctls: h.Sysctls,
		Versions: map[string]string{"go": runtime.Version()},
	}
}
