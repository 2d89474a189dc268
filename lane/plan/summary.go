// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

func (f *fit) receives(l *deviceLane) Place {
	switch {
	case f.reserves():
		return InQueues
	case f.redirects() && !l.isDefault:
		return OnProcessors
	}
	return InShared
}

func (f *fit) sends() Place {
	if f.sharedQueues || f.uses(device.PartMapper, ByShared) {
		return InShared
	}
	return InQueues
}

// WriteSummary prints what each lane has on each device after the plan is applied, and the
// mechanism for each part. If better mechanisms are not possible, it prints only the best of
// these.
func WriteSummary(w io.Writer, p *Plan) error {
	var table strings.Builder
	tw := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "DEVICE\tLANE\tRECEIVES IN\tSENDS BY\tSHARE OF THE LINK\tPOLLED BY\tCPUS")
	for _, l := range p.Lanes {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Device, l.Name, l.place(l.Receives), l.place(l.Sends),
			l.share(), l.polledBy(), cpuList(l.CPUs))
	}
	for _, dev := range p.Devices {
		fmt.Fprintf(tw, "\n%s\tMADE BY\tNOT BY\n", dev)
		for _, c := range p.Choices {
			switch {
			case c.Device != dev || c.Mechanism == "":
			case c.Part == device.PartBandwidth && !p.limits(dev):
				fmt.Fprintf(tw, "%s\tnothing\t%s: no lane asks for a share of the link\n", c.Part, c.Mechanism)
			default:
				fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Part, c.Mechanism, c.better())
			}
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) { // an empty last cell leaves spaces at the end of the line
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// limits reports whether a lane of a device has a share of the link.
func (p *Plan) limits(dev string) bool {
	return slices.ContainsFunc(p.Lanes, func(l FittedLane) bool {
		return l.Device == dev && (l.Guarantee > 0 || l.Ceiling > 0 || l.ranked())
	})
}

// better returns the best of the rejected mechanisms, and the reason. It skips mechanisms that
// are only incompatible with another part's mechanism. For softirq it returns why there are no
// threads, because the mechanisms that are better than threads have to be asked for.
func (c *Choice) better() string {
	for _, r := range c.Rejected {
		if c.Mechanism == BySoftirq && r.Mechanism != ByNAPIThread {
			continue
		}
		if !strings.HasPrefix(r.Why, goesWith) {
			return r.Mechanism + ": " + r.Why
		}
	}
	return ""
}

func (l *FittedLane) place(p Place) string {
	switch p {
	case InQueues:
		return "queues " + device.FormatCPUList(l.Queues)
	case OnProcessors:
		return "shared queues, to its CPUs by XDP"
	}
	return "shared queues"
}

func (l *FittedLane) share() string {
	var parts []string
	switch {
	case l.Guarantee > 0:
		parts = append(parts, "at least "+device.RateText(l.Guarantee))
	case l.Name == intent.DefaultLane && l.ranked():
		parts = append(parts, "the rest")
	}
	if l.Ceiling > 0 {
		parts = append(parts, "at most "+device.RateText(l.Ceiling))
	}
	if l.ranked() {
		parts = append(parts, fmt.Sprintf("rank %d", l.Rank))
	}
	if len(parts) == 0 {
		parts = append(parts, "not limited")
	}
	if marks := marksText(l.DSCP, l.PCP); marks != "" {
		parts = append(parts, marks)
	}
	return strings.Join(parts, ", ")
}

// ranked reports whether the lane has a rank in software.
func (l *FittedLane) ranked() bool { return l.Class != "" || l.Departs }

func (l *FittedLane) polledBy() string {
	switch l.Poller {
	case intent.PollerThread:
		return "kernel threads"
	case intent.PollerBusy:
		return "busy pollers"
	case intent.PollerApplication:
		return "the application"
	}
	return "interrupts"
}

func cpuList(ids []int) string {
	if len(ids) == 0 {
		return "-"
	}
	return device.FormatCPUList(ids)
}
