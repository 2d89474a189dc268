// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/traffic/count"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/verify"
)

// watching counts the traffic of all devices with lanes at the same time.
type watching []*deviceWatch

// A deviceWatch counts the traffic of one device of a lanes file.
type deviceWatch struct {
	result  int // index of the lanes file's result
	applied verify.Applied
	device  string
	lanes   []string // lane number N of the watcher is lanes[N-1]; then fragments, and unshaped packets
	watcher *count.Watcher
	err     error
	last    verify.Watched // set after the end
}

// begin starts to count the traffic of a lanes file, on those of its devices that exist.
func (ws *watching) begin(result int, a verify.Applied, now *device.State) {
	var done []string
	for _, l := range a.Lanes {
		d := now.Device(l.Device)
		if d == nil || slices.Contains(done, l.Device) {
			continue
		}
		done = append(done, l.Device)
		w := &deviceWatch{result: result, applied: a, device: l.Device}
		w.open(d, count.Open)
		*ws = append(*ws, w)
	}
}

// open starts to count the device's traffic. Its argument open is the function that attaches the
// counting programs.
func (w *deviceWatch) open(d *device.Device, open func(*device.Device, []count.Lane) (*count.Watcher, error)) {
	var lanes []count.Lane
	matches, named := verify.Matches(w.applied, w.device), verify.Named(w.applied, w.device)
	for _, l := range w.applied.Lanes {
		if l.Device != w.device {
			continue
		}
		lane := count.Lane{Class: priority(l.Class), Matches: matches[l.Name], Marks: l.DSCP != "" || l.PCP != ""}
		if p := named[l.Name]; p != "" {
			lane.Class, lane.ByClass = priority(p), true
		}
		w.lanes = append(w.lanes, l.Name)
		lanes = append(lanes, lane)
	}
	lanes = append(lanes, count.Lane{Fragments: true, Matches: slices.Concat(slices.Collect(maps.Values(matches))...)})
	lanes = append(lanes, count.Lane{SentOnly: true, Matches: verify.Unshaped(w.applied, w.device)})
	w.watcher, w.err = open(d, lanes)
}

// priority converts a class ("1:10", hexadecimal) to skb->priority.
func priority(class string) uint32 {
	major, minor, ok := strings.Cut(class, ":")
	if !ok {
		return 0
	}
	hi, err1 := strconv.ParseUint(major, 16, 16)
	lo, err2 := strconv.ParseUint(minor, 16, 16)
	if err1 != nil || err2 != nil {
		return 0
	}
	return uint32(hi<<16 | lo)
}

// end waits until the time during has passed since began, and then ends the watch. It returns the
// findings. Keys are the indexes of the lanes files' results.
func (ws watching) end(ctx context.Context, began time.Time, during time.Duration) map[int][]verify.Finding {
	out := map[int][]verify.Finding{}
	if len(ws) == 0 {
		return out
	}
	longer := time.Since(began) > during // the probes waited longer for answers
	select {
	case <-time.After(during - time.Since(began)):
	case <-ctx.Done():
	}
	if longer || ctx.Err() != nil {
		during = time.Since(began).Round(time.Millisecond)
	}
	ws.drain()
	for _, w := range ws {
		out[w.result] = append(out[w.result], w.findings(during)...)
	}
	return out
}

// close ends the watch without findings.
func (ws watching) close() error {
	var errs []error
	for _, w := range ws {
		if w.err == nil {
			errs = append(errs, w.watcher.Close())
		}
	}
	return errors.Join(errs...)
}

// Time limits of drain. It waits for packets in a cpumap as long as some leave it. It gives up if
// none has left for drainTime, and after drainMost in any case. Packets that are missing then were
// dropped on their way into the cpumap. The cpumap's thread needs only microseconds for each of a
// few thousand packets. But it may have to wait for its processor, as in an emulated guest.
const (
	drainTime = time.Second
	drainMost = 20 * time.Second
)

// drain waits until other processors have received all packets that the cpumap was given.
func (ws watching) drain() {
	for _, w := range ws {
		if w.err == nil && len(verify.CPULanes(w.applied, w.device)) > 0 {
			w.err = w.watcher.Drain()
		}
	}
	began := time.Now()
	var came uint64
	for last := began; time.Since(last) < drainTime && time.Since(began) < drainMost; time.Sleep(time.Millisecond) {
		waiting, now := false, uint64(0)
		for _, w := range ws {
			if w.err != nil {
				continue
			}
			counts, err := w.watcher.Counts()
			waiting = waiting || err == nil && !verify.Arrived(w.applied, w.seen(counts))
			for _, c := range counts.Handed {
				now += c.Packets
			}
		}
		if !waiting {
			return
		}
		if now != came {
			came, last = now, time.Now()
		}
	}
}

func (w *deviceWatch) findings(during time.Duration) []verify.Finding {
	var counts count.Counts
	if w.err == nil {
		counts, w.err = w.watcher.Counts()
		w.err = errors.Join(w.err, w.watcher.Close())
	}
	if w.err != nil {
		return []verify.Finding{{
			Severity: verify.Unknown, Device: w.device, Key: "traffic", Found: w.err.Error(),
			Meaning: "the traffic could not be watched, so nothing is known of it", Repair: cannotWatch(w.err),
		}}
	}
	w.last = w.seen(counts)
	w.last.For = during
	return verify.Traffic(w.applied, w.last)
}

// seen returns the watcher's counts so far, in the form of package verify.
func (w *deviceWatch) seen(counts count.Counts) verify.Watched {
	var fragments uint64
	for _, c := range slices.Concat(counts.Received, counts.Sent) {
		if c.Lane == len(w.lanes)+1 {
			fragments += c.Packets
		}
	}
	return verify.Watched{
		Device: w.device, Missed: counts.Missed, Fragments: fragments,
		Received: w.cells(counts.Received, false), Sent: w.cells(counts.Sent, false),
		Classed: w.cells(counts.Classed, true), Marked: w.marks(counts.Marked), Tagged: w.tags(counts.Tagged),
		Direct: w.cells(counts.Direct, false), Handed: w.cells(counts.Handed, false),
	}
}

func cannotWatch(err error) string {
	if errors.Is(err, unix.EPERM) {
		return "run it with CAP_BPF and CAP_PERFMON"
	}
	return "it needs a kernel with BTF (/sys/kernel/btf/vmlinux)"
}

// name returns the name of the lane that has number i in the watcher. For packets that match no
// lane, it returns "".
func (w *deviceWatch) name(i int) string {
	switch {
	case i == count.Unread:
		return verify.LaneUnread
	case i == len(w.lanes)+2:
		return verify.LaneUnshaped
	case i == 0 || i > len(w.lanes):
		return ""
	}
	return w.lanes[i-1]
}

func (w *deviceWatch) marks(cs []count.Cell) []verify.Mark {
	out := make([]verify.Mark, len(cs))
	for i, c := range cs {
		out[i] = verify.Mark{Lane: w.name(c.Lane), DSCP: device.FormatDSCP(c.Column), Packets: c.Packets}
	}
	return out
}

func (w *deviceWatch) tags(cs []count.Cell) []verify.Tag {
	out := make([]verify.Tag, len(cs))
	for i, c := range cs {
		out[i] = verify.Tag{Lane: w.name(c.Lane), PCP: device.FormatPCP(c.Column), Packets: c.Packets}
	}
	return out
}

func (w *deviceWatch) cells(cs []count.Cell, classes bool) []verify.Cell {
	out := make([]verify.Cell, len(cs))
	for i, c := range cs {
		out[i] = verify.Cell{Lane: w.name(c.Lane), Queue: c.Column, Packets: c.Packets, Bare: c.Bare}
		if classes {
			out[i].Queue, out[i].Class = 0, w.name(c.Column)
		}
	}
	return out
}
