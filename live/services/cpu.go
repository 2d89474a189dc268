// SPDX-License-Identifier: Apache-2.0

package services

import "github.com/prometheus/procfs"

// processorTime returns the processor time of each service's processes, in seconds, by PID.
func (inv *Inventory) processorTime() []map[int]float64 {
	out := make([]map[int]float64, len(inv.Services))
	for i := range inv.Services {
		out[i] = inv.processorTimeOf(&inv.Services[i])
	}
	return out
}

// processorTimeOf leaves out processes that have ended.
func (inv *Inventory) processorTimeOf(s *Service) map[int]float64 {
	out := map[int]float64{}
	for _, p := range s.Processes {
		proc, err := procfs.NewProc(p.PID)
		if err != nil {
			continue
		}
		if st, err := proc.Stat(); err == nil {
			out[p.PID] = st.CPUTime()
		}
	}
	return out
}
