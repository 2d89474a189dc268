// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// ownPrefix begins the names of niclane's BPF programs.
const ownPrefix = "niclane_"

// contention says what a process writes that lanes need (docs/how-to/boot.md).
func contention(name string) string {
	switch name {
	case "irqbalance":
		return "it moves interrupts every 10 s: ban the lanes' interrupts or processors there (docs/how-to/boot.md)"
	case "NetworkManager":
		return "a connection with tc or ethtool settings writes qdiscs, channels, rings and coalescing: remove " +
			"them there (docs/how-to/boot.md)"
	case "tuned":
		return "its profile can write RPS, RFS, channels, rings and coalescing: remove what the lanes set " +
			"(docs/how-to/boot.md)"
	case "systemd-network":
		return "a .network file with a qdisc section and a .link file with channels or rings write them: remove " +
			"them there (docs/how-to/boot.md)"
	}
	return "a container network plugin attaches programs to devices: niclane plan says which mechanisms it leaves " +
		"(docs/kubernetes.md)"
}

func (c *chooser) conflictf(format string, args ...any) {
	c.Conflicts = append(c.Conflicts, fmt.Sprintf(format, args...))
}

// conflicts names other programs that write what lanes need.
func (c *chooser) conflicts() {
	for _, x := range c.Inventory.Contenders {
		c.conflictf("%s (process %d): %s",
			strings.Replace(x.Name, "systemd-network", "systemd-networkd", 1), x.PID, contention(x.Name))
	}
	d := c.State.Device(c.target.device)
	if d == nil {
		return
	}
	ours := false
	for _, a := range c.Applied {
		if c.target.among(a.Devices) {
			ours = true
			c.conflictf("the lanes of %s are applied to %s: put the lanes below into that file. Planned as it is, "+
				"this file would take their place", a.File, c.target.name())
		}
	}
	for _, p := range d.Programs {
		if !strings.HasPrefix(p.Name, ownPrefix) {
			c.conflictf("the BPF program %s (%d) of another owner is at %s of %s, and keeps its place: lanes get "+
				"a mechanism beside it", cmp.Or(p.Name, "without a name"), p.ID, p.Attach, d.Name)
		}
	}
	for _, f := range d.Filters {
		if !strings.HasPrefix(f.Name, ownPrefix) && f.Parent == "egress" {
			c.conflictf("a tc filter of another owner (%s, preference %d) is at egress of %s: one with preference "+
				"1 comes before niclane's classifier", cmp.Or(f.Name, f.Type), f.Pref, d.Name)
		}
	}
	for _, q := range d.Qdiscs {
		if q.Parent == "root" && q.Handle != "0:" && !d.PlainRoot(q.Qdisc) && !ours {
			c.conflictf("the root qdisc %s %s of %s was made by another owner: lanes that share the link need its "+
				"place (niclane plan says so)", q.Named(), q.Handle, d.Name)
		}
	}
	if on := steered(c.State, d); on != "" {
		c.Conflicts = append(c.Conflicts, on)
	}
}

// steered says that packet steering is on for queues of the device.
func steered(st *device.State, d *device.Device) string {
	n := 0
	for path, f := range st.Files {
		if strings.HasPrefix(path, "/sys/class/net/"+d.Name+"/queues/rx-") && strings.HasSuffix(path, "/rps_cpus") &&
			strings.Trim(f.Value, "0,") != "" {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("RPS is on for %s of %s: plan turns it off for the lanes' queues, and what has set it may "+
		"set it again",
		times(n, "receive queue"), d.Name)
}
