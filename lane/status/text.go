// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/niclane/niclane/lane/device"
)

// optional returns a function that writes the cell of a lane in a column that the table has only if a lane
// has a value there. For nil, the function writes the heading.
func optional(lanes []Lane, heading string, value func(Lane) string) func(*Lane) string {
	there := slices.ContainsFunc(lanes, func(l Lane) bool { return value(l) != "" })
	return func(l *Lane) string {
		switch {
		case !there:
			return ""
		case l == nil:
			return heading + "\t"
		}
		return cmp.Or(value(*l), "-") + "\t"
	}
}

// WriteText prints two tables for people: what each lane has, and its traffic.
func WriteText(w io.Writer, lanes []Lane) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	dscp := optional(lanes, "DSCP", func(l Lane) string { return l.DSCP })
	pcp := optional(lanes, "PCP", func(l Lane) string { return l.PCP })
	fmt.Fprintf(tw, "DEVICE\tLANE\tMEMBERS\tRANK\t%s%sQUEUES\tCPUS\tNAPIS\tPOLLED BY\n", dscp(nil), pcp(nil))
	for _, l := range lanes {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%s%s%s\t%s\t%s\t%s\n", l.Device, l.Name, members(l.Members), l.Rank,
			dscp(&l), pcp(&l),
			device.FormatCPUList(l.Queues), device.FormatCPUList(l.CPUs), ids(l.NAPIs), pollers(l.NAPIs))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	tw = tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "DEVICE\tLANE\t\tPACKETS\tBYTES\tDROPS\tPACKETS/S\tMBIT/S\tDROPS/S\t")
	for _, l := range lanes {
		row(tw, l, "rx", l.Rx)
		row(tw, l, "tx", l.Tx)
		row(tw, l, "class "+l.Class, l.ClassTx)
		for _, r := range l.Sent {
			fmt.Fprintf(tw, "%s\t%s\t%s\t-\t-\t-\t%.0f\t%.1f\t-\t\n", l.Device, l.Name, r.what(), r.Tx.Packets,
				r.Tx.Bytes*8/1e6)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if err := writePolled(w, lanes); err != nil {
		return err
	}
	return writeDepartures(w, lanes)
}

// writePolled prints the packets by what polled them, if the driver counts that.
func writePolled(w io.Writer, lanes []Lane) error {
	if !slices.ContainsFunc(lanes, func(l Lane) bool { return l.Polled != nil }) {
		return nil
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "DEVICE\tLANE\tBY A SOCKET'S BUSY POLL\tBY NAPI\t")
	for _, l := range lanes {
		if p := l.Polled; p != nil {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t\n", l.Device, l.Name, p.BusyPoll, p.NAPI)
		}
	}
	return tw.Flush()
}

// writeDepartures prints what waited for the link, if the lanes share it by departure times.
func writeDepartures(w io.Writer, lanes []Lane) error {
	if !slices.ContainsFunc(lanes, func(l Lane) bool { return l.Departures != nil }) {
		return nil
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "DEVICE\tLANE\tWAITED\tMARKED\tDROPPED\tWAITED/S\tMEAN WAIT US\tMARKED/S\tDROPPED/S\t")
	for _, l := range lanes {
		if d := l.Departures; d != nil {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%.0f\t%.1f\t%.0f\t%.0f\t\n", l.Device, l.Name, d.Waited, d.Marked,
				d.Dropped, d.WaitedPerSecond, d.MeanWaitNs/1e3, d.MarkedPerSecond, d.DroppedPerSecond)
		}
	}
	return tw.Flush()
}

func row(w io.Writer, l Lane, what string, t *Traffic) {
	if t == nil {
		return
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%.0f\t%.1f\t%.0f\t\n", l.Device, l.Name, what,
		t.Packets, t.Bytes, t.Drops, t.PacketsPerSecond, t.BytesPerSecond*8/1e6, t.DropsPerSecond)
}

func ids(ns []NAPI) string {
	s := make([]string, len(ns))
	for i, n := range ns {
		s[i] = fmt.Sprint(n.ID)
	}
	if len(s) == 0 {
		return "-"
	}
	return strings.Join(s, ",")
}

// poller describes niclane's own poller. It also says how many packets softirq took while the
// poller slept or waited for a processor.
func poller(p *device.PollerState) string {
	how := fmt.Sprintf("nice %d", p.Nice)
	if p.Policy == "fifo" {
		how = fmt.Sprintf("SCHED_FIFO %d", p.Priority)
	}
	return fmt.Sprintf("process %d (%s), %s, CPUs %s: %d polls, %d packets, %d by others, asleep %d times", p.PID,
		p.Doing, how,
		device.FormatCPUList(p.CPUs), p.Polls, p.Packets, p.OthersPackets, p.Sleeps)
}

// driver describes what runs the driver's poller whose NAPI is n.
func driver(n NAPI, how string) string {
	if n.Thread == nil {
		how = "in ksoftirqd"
	}
	return fmt.Sprintf("driver's poller of %d queues, %s, stops after %d jiffies", len(n.Driver.Queues), how,
		n.Driver.Timeout)
}

// pollers lists what polls the NAPIs, each only once.
func pollers(ns []NAPI) string {
	var ways []string
	seen := map[string]int{}
	for _, n := range ns {
		if n.Driver != nil && n.Queue != n.Driver.Queues[0] {
			continue // its NAPI is idle
		}
		way := "softirq"
		if p := n.Poller; p != nil {
			way = poller(p)
		} else if t := n.Thread; t != nil {
			way = fmt.Sprintf("thread, nice %d, CPUs %s", t.Nice, device.FormatCPUList(t.CPUs))
			if t.Policy == "fifo" {
				way = fmt.Sprintf("thread, SCHED_FIFO %d, CPUs %s", t.Priority, device.FormatCPUList(t.CPUs))
			}
		}
		if n.Driver != nil {
			way = driver(n, way)
		}
		if seen[way] == 0 {
			ways = append(ways, way)
		}
		seen[way]++
	}
	for i, way := range ways {
		if n := seen[way]; n > 1 {
			ways[i] = fmt.Sprintf("%d × %s", n, way)
		}
	}
	if len(ways) == 0 {
		return "-"
	}
	return strings.Join(ways, "; ")
}
