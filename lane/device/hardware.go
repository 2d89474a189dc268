// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Hardware describes a machine as the tables of papers do: what a reader needs to judge or repeat a
// measurement. A field that could not be read is empty, and Unknown says why.
type Hardware struct {
	// Sockets, Cores and Threads (logical processors) count those that are online.
	Sockets int `json:"sockets,omitempty"`
	Cores   int `json:"cores,omitempty"`
	Threads int `json:"threads,omitempty"`
	// SMT is the kernel's word (on, off, forceoff, notsupported, notimplemented). Turbo is on or off.
	SMT       string `json:"smt,omitempty"`
	Turbo     string `json:"turbo,omitempty"`
	Microcode string `json:"microcode,omitempty"`
	// System is the maker and model, BIOS its maker, version and date.
	System string `json:"system,omitempty"`
	BIOS   string `json:"bios,omitempty"`
	// Nodes is the number of NUMA nodes with processors. More nodes than sockets come from sub-NUMA
	// clustering (SNC) or from NPS in the BIOS.
	Nodes int `json:"numaNodes,omitempty"`
	// DIMMs are the memory modules, equal ones as one text: "16 × 32 GiB DDR5, 4800 MT/s, MAKER PART".
	DIMMs []string `json:"dimms,omitempty"`
	// Drives are block devices with hardware of their own: "nvme0n1: MODEL, 3840 GB".
	Drives []string `json:"drives,omitempty"`
	// PCIe is the link of each network card: "16.0 GT/s PCIe x16, of at most 16.0 GT/s PCIe x16".
	PCIe map[string]string `json:"pcie,omitempty"`
	// Idle is the driver of idle states and the states: "intel_idle: POLL, C1, C1E, C6 (off)".
	Idle string `json:"idleStates,omitempty"`
	// Governor and Energy are cpufreq's governor and the energy preference, of all processors.
	Governor string `json:"governor,omitempty"`
	Energy   string `json:"energy,omitempty"`
	// Tuned is tuned's profile or "none". Irqbalance is "running" or "not running".
	Tuned      string `json:"tuned,omitempty"`
	Irqbalance string `json:"irqbalance,omitempty"`
	// Firewall lists what filters packets in the network namespace, or is "none".
	Firewall string `json:"firewall,omitempty"`
	// Unknown has the reason by the JSON name of each field that could not be read.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// Text returns one line for each part of the machine, with the reason for what is unknown.
func (h *Hardware) Text() []string {
	var out []string
	say := func(name, key, value string) {
		if why := h.Unknown[key]; value == "" && why != "" {
			value = "unknown: " + why
		}
		if value != "" {
			out = append(out, name+": "+value)
		}
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	say("system", "system", h.System)
	say("BIOS", "bios", h.BIOS)
	say("sockets", "sockets", number(h.Sockets))
	say("cores", "cores", number(h.Cores))
	say("threads", "threads", number(h.Threads))
	say("SMT", "smt", h.SMT)
	say("turbo", "turbo", h.Turbo)
	say("microcode", "microcode", h.Microcode)
	nodes := number(h.Nodes)
	if h.Sockets > 0 && h.Nodes > h.Sockets {
		nodes += fmt.Sprintf(", %d for each socket (SNC or NPS)", h.Nodes/h.Sockets)
	}
	say("NUMA nodes", "numaNodes", nodes)
	say("DIMMs", "dimms", strings.Join(h.DIMMs, "; "))
	say("drives", "drives", strings.Join(h.Drives, "; "))
	for _, dev := range slices.Sorted(maps.Keys(h.PCIe)) {
		say("PCIe of "+dev, "", h.PCIe[dev])
	}
	say("idle states", "idleStates", h.Idle)
	say("governor", "governor", h.Governor)
	say("energy preference", "energy", h.Energy)
	say("tuned", "tuned", h.Tuned)
	say("irqbalance", "irqbalance", h.Irqbalance)
	say("firewall", "firewall", h.Firewall)
	return out
}
