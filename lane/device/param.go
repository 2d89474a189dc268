// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"strconv"
	"strings"
)

// A DriverParam is a devlink parameter of the device's card, in runtime mode. Its value is a
// number, "true" or "false".
type DriverParam struct {
	Dev   string `json:"dev"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Kind implements Object.
func (DriverParam) Kind() string { return "driver-param" }

// Key implements Object.
func (p DriverParam) Key() string { return "param/" + p.Dev + "/" + p.Name }

// Brief implements Object.
func (p DriverParam) Brief() string { return p.Value }

// Default returns the parameter with the value that it has in a new traffic class: "0" or "false".
func (p DriverParam) Default() DriverParam {
	p.Value = "0"
	if strings.HasSuffix(p.Name, "_inline_fd") {
		p.Value = "false"
	}
	return p
}

func (p DriverParam) commands(c Change) []string {
	if c.New == nil { // only the driver removes it, with the class
		p = p.Default()
	}
	return one(fmt.Sprintf("devlink dev param set <card of %s> name %s value %s cmode runtime", p.Dev, p.Name, p.Value))
}

// InspectFlag returns the name of the private flag channel-pkt-inspect-optimize, as the device's
// driver spells it, or "" if the driver has none. Only Intel's own ice driver has it (ice_ethtool.c:
// ice_gstrings_priv_flags); old releases write "packet".
func (d *Device) InspectFlag() string {
	for _, name := range []string{"channel-pkt-inspect-optimize", "channel-packet-inspect-optimize"} {
		if _, ok := d.PrivFlags[name]; ok {
			return name
		}
	}
	return ""
}

// ClassParam reports whether the driver will make the parameter tcN_name with traffic class N.
// Intel's own ice driver registers these parameters only while it has classes (ice_devlink.c:
// ice_devlink_tc_params_register; release 2.6.6). Releases with a private flag for inline_fd have
// no such parameter.
func (d *Device) ClassParam(name string) bool {
	if d.InspectFlag() == "" {
		return false
	}
	for flag := range d.PrivFlags {
		if name == "inline_fd" && strings.HasPrefix(flag, "channel-inline-flow-director") {
			return false
		}
	}
	return true
}

// A DriverPoller is a poller of the driver: a NAPI that polls several queues of a traffic class.
type DriverPoller struct {
	Queues  []int `json:"queues"`         // ascending; the first one's NAPI polls them all
	Timeout int   `json:"timeoutJiffies"` // time without packets after which it stops
}

// DriverPoller returns the driver's poller of a queue, nil if the driver does not poll it
// (ice.h: ice_vector_ind_poller).
func (d *Device) DriverPoller(queue int) *DriverPoller {
	for _, q := range d.Qdiscs {
		if q.Parent != "root" || q.Mode != ModeChannel {
			continue
		}
		for class, of := range strings.Fields(q.Queues) {
			var n, first int
			if _, err := fmt.Sscanf(of, "%d@%d", &n, &first); err != nil || queue < first || queue >= first+n {
				continue
			}
			each, timeout := d.classParam(class, "qps_per_poller"), d.classParam(class, "poller_timeout")
			if each == 0 || timeout == 0 {
				return nil
			}
			p := &DriverPoller{Timeout: timeout}
			lead := queue - (queue-first)%each
			for i := lead; i < min(lead+each, first+n); i++ {
				p.Queues = append(p.Queues, i)
			}
			return p
		}
	}
	return nil
}

// classParam returns the value of a number among the parameters of a traffic class, 0 if it has none.
func (d *Device) classParam(class int, name string) int {
	for _, p := range d.DriverParams {
		if p.Name == fmt.Sprintf("tc%d_%s", class, name) {
			n, _ := strconv.Atoi(p.Value)
			return n
		}
	}
	return 0
}
