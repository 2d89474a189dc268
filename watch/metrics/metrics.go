// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/status"
)

// A Reading holds the counters of one moment. A counter that a device does not have is no metric.
type Reading struct {
	Lanes  []plan.FittedLane
	State  *device.State
	Moment status.Moment
}

// series are descriptions of the metrics. A counter starts at 0 when its device, qdisc or thread is
// created, and again when it is created anew. Prometheus's rate() can handle this.
type series struct {
	queuePackets, queueBytes, queueDrops, interrupts, classPackets, classBytes, classDrops, classBacklog, waited,
	waitSeconds, marked, dropped, xdpPackets,
	xdpBytes, sentPackets, sentBytes *prometheus.Desc
	pollerCPU, pollerSwitch, pollerPolls, pollerTaken, pollerSleeps, pollerState,
	laneInfo *prometheus.Desc
	driftNow, waiting, drifts, repairs, failures, looks, events, lastLook,
	lookError *prometheus.Desc
	all []*prometheus.Desc
}

// newSeries makes the descriptions of the metrics. It is called only when a server needs them, so
// niclane's other commands start faster.
func newSeries() *series {
	var all []*prometheus.Desc
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc("niclane_"+name, help, labels, nil)
		all = append(all, d)
		return d
	}
	s := &series{
		queuePackets: desc("queue_packets_total", "Packets of a queue, as the device counts them.", "device", "lane",
			"queue", "direction"),
		queueBytes: desc("queue_bytes_total", "Bytes of a queue, as the device counts them.", "device", "lane",
			"queue", "direction"),
		queueDrops: desc("queue_drops_total", "Packets that a queue dropped, as the device counts them.", "device",
			"lane", "queue", "direction"),
		interrupts: desc("queue_interrupts_total", "Interrupts of a queue's vectors.", "device", "lane", "queue"),
		classPackets: desc("class_packets_total", "Packets that the lane's HTB class has sent.", "device", "lane",
			"class"),
		classBytes: desc("class_bytes_total", "Bytes that the lane's HTB class has sent.", "device", "lane", "class"),
		classDrops: desc("class_drops_total", "Packets that the lane's HTB class dropped.", "device", "lane",
			"class"),
		waited: desc("waited_packets_total", "Packets that waited for their departure time. GSO packets count as "+
			"one.", "device", "lane"),
		waitSeconds: desc("wait_seconds_total", "How long these packets waited, together.", "device", "lane"),
		marked:      desc("marked_packets_total", "Packets with an ECN mark for their long wait.", "device", "lane"),
		dropped: desc("dropped_packets_total", "Packets that would have waited too long for their departure time.",
			"device", "lane"),
		classBacklog: desc("class_backlog_bytes", "Bytes that wait in the lane's HTB class.", "device", "lane",
			"class"),
		xdpPackets: desc("lane_received_packets_total",
			"The lane's packets by receive queue, as niclane's XDP program counts them.", "device", "lane", "queue"),
		sentPackets: desc("lane_sent_packets_total", "The lane's packets by transmit queue, as niclane's "+
			"classifier counts them; queue \"any\" if the classifier does not know it.", "device", "lane", "queue"),
		sentBytes: desc("lane_sent_bytes_total",
			"The lane's bytes by transmit queue, as niclane's classifier counts them.", "device", "lane", "queue"),
		xdpBytes: desc("lane_received_bytes_total",
			"The lane's bytes by receive queue, as niclane's XDP program counts them.", "device", "lane", "queue"),
		pollerCPU: desc("poller_cpu_seconds_total", "Processor time of the thread that polls a queue, or, for "+
			"kind cpumap, of the thread that handles packets on a processor.", "device", "lane", "queue", "kind"),
		pollerSwitch: desc("poller_context_switches_total", "Context switches of the thread that polls a queue.",
			"device", "lane", "queue", "kind", "voluntary"),
		pollerPolls: desc("poller_polls_total", "Polls by niclane's own poller, of its queues together.", "device",
			"lane", "queue"),
		pollerTaken: desc("poller_packets_total", "Packets of a poller's queues, by what took them: the poller, or "+
			"others while it slept or had no processor.", "device", "lane", "queue", "by"),
		pollerSleeps: desc("poller_sleeps_total",
			"How often niclane's own poller went to sleep because no packet came.", "device", "lane", "queue"),
		pollerState: desc("poller_state", "1 for what niclane's own poller does now.", "device", "lane", "queue",
			"state"),
		laneInfo: desc("lane_info", "1 for each lane that is applied.", "device", "lane", "rank", "queues", "cpus"),
		driftNow: desc("drift_objects",
			"Objects that are not as niclane left them, by whether the watch has stopped repairing "+
				"them.", "config", "left"),
		waiting: desc("device_waiting",
			"1 while nothing can be repaired on the device: absent, down or without carrier.", "config", "device"),
		drifts:    desc("watch_drifts_total", "Drifts that the watch has found."),
		repairs:   desc("watch_repairs_total", "Drifts that the watch has repaired."),
		failures:  desc("watch_failures_total", "Repairs that failed."),
		looks:     desc("watch_looks_total", "How often the watch has compared the lanes with the kernel."),
		events:    desc("watch_notifications_total", "Notifications of the kernel about the lanes' devices."),
		lastLook:  desc("watch_last_look_timestamp_seconds", "When the lanes were last compared with the kernel."),
		lookError: desc("watch_failing", "1 while the lanes cannot be looked at."),
	}
	s.all = all
	return s
}

// A collector reads the counters when Prometheus asks for them.
type collector struct {
	*series
	keeper Keeper
	read   func(context.Context) (Reading, error)
	one    sync.Mutex // guards Collect
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.all {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.one.Lock()
	defer c.one.Unlock()
	w := writer{c.series, out}
	c.watch(w)
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout/2)
	defer cancel()
	r, err := c.read(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(c.laneInfo, err)
		return
	}
	for _, l := range r.Lanes {
		w.count(w.laneInfo, prometheus.GaugeValue, 1, l.Device, l.Name, strconv.Itoa(l.Rank),
			device.FormatCPUList(l.Queues), device.FormatCPUList(l.CPUs))
		w.queues(r, l)
		w.class(r, l)
		w.departures(r, l)
		w.xdp(r, l)
		w.sent(r, l)
		w.pollers(r, l)
	}
}

// A writer sends values of the metrics to out.
type writer struct {
	*series
	out chan<- prometheus.Metric
}

func (w writer) count(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	w.out <- m
}

func (w writer) counter(d *prometheus.Desc, v uint64, labels ...string) {
	w.count(d, prometheus.CounterValue, float64(v), labels...)
}

func (c *collector) watch(w writer) {
	conditions, n, failing := c.keeper.State()
	for _, x := range conditions {
		w.count(w.driftNow, prometheus.GaugeValue, float64(len(x.Drifts)), x.Config, "false")
		w.count(w.driftNow, prometheus.GaugeValue, float64(len(x.Left)), x.Config, "true")
		for dev := range x.Waits {
			w.count(w.waiting, prometheus.GaugeValue, 1, x.Config, dev)
		}
	}
	w.counter(w.drifts, n.Drifts)
	w.counter(w.repairs, n.Repairs)
	w.counter(w.failures, n.Failures)
	w.counter(w.looks, n.Looks)
	w.counter(w.events, n.Events)
	w.count(w.lastLook, prometheus.GaugeValue, float64(n.LastLook.UnixNano())/1e9)
	bad := 0.0
	if failing != "" {
		bad = 1
	}
	w.count(w.lookError, prometheus.GaugeValue, bad)
}

func (w writer) queues(r Reading, l plan.FittedLane) {
	counters := r.Moment.Counters[l.Device]
	for _, side := range []struct {
		direction string
		counters  []device.QueueCounter
	}{{"rx", counters.Rx}, {"tx", counters.Tx}} {
		for _, q := range side.counters {
			if !slices.Contains(l.Queues, q.Queue) {
				continue
			}
			labels := []string{l.Device, l.Name, strconv.Itoa(q.Queue), side.direction}
			w.counter(w.queuePackets, q.Packets, labels...)
			w.counter(w.queueBytes, q.Bytes, labels...)
			w.counter(w.queueDrops, q.Drops, labels...)
		}
	}
	d := r.State.Device(l.Device)
	if d == nil {
		return
	}
	sums := map[int]uint64{}
	for _, i := range d.IRQs {
		if n, ok := r.Moment.Interrupts[i.Number]; ok && slices.Contains(l.Queues, i.Queue) {
			sums[i.Queue] += n
		}
	}
	for q, n := range sums {
		w.counter(w.interrupts, n, l.Device, l.Name, strconv.Itoa(q))
	}
}

func (w writer) departures(r Reading, l plan.FittedLane) {
	for _, d := range r.Moment.Counters[l.Device].Departures {
		if l.Departs && d.Lane == l.Context {
			w.counter(w.waited, d.Waited, l.Device, l.Name)
			w.count(w.waitSeconds, prometheus.CounterValue, float64(d.WaitNs)/1e9, l.Device, l.Name)
			w.counter(w.marked, d.Marked, l.Device, l.Name)
			w.counter(w.dropped, d.Dropped, l.Device, l.Name)
		}
	}
}

func (w writer) class(r Reading, l plan.FittedLane) {
	for _, c := range r.Moment.Counters[l.Device].Classes {
		if l.Class == "" || c.ID != l.Class {
			continue
		}
		w.counter(w.classPackets, c.Packets, l.Device, l.Name, c.ID)
		w.counter(w.classBytes, c.Bytes, l.Device, l.Name, c.ID)
		w.counter(w.classDrops, c.Drops, l.Device, l.Name, c.ID)
		w.count(w.classBacklog, prometheus.GaugeValue, float64(c.Backlog), l.Device, l.Name, c.ID)
	}
}

func (w writer) xdp(r Reading, l plan.FittedLane) {
	for at, c := range r.Moment.Received[l.Device] {
		if at.Lane == l.Name {
			w.counter(w.xdpPackets, c.Packets, l.Device, l.Name, strconv.Itoa(at.Queue))
			w.counter(w.xdpBytes, c.Bytes, l.Device, l.Name, strconv.Itoa(at.Queue))
		}
	}
}

func (w writer) sent(r Reading, l plan.FittedLane) {
	for at, c := range r.Moment.Sent[l.Device] {
		if at.Lane != l.Name {
			continue
		}
		queue := "any"
		if at.Queue != status.AnyQueue {
			queue = strconv.Itoa(at.Queue)
		}
		w.counter(w.sentPackets, c.Packets, l.Device, l.Name, queue)
		w.counter(w.sentBytes, c.Bytes, l.Device, l.Name, queue)
	}
}

// The kinds of polling threads, as values of a label.
const (
	kindThread = "napi-thread"
	kindPoller = "poller"
	kindCPUMap = "cpumap"
)

func (w writer) pollers(r Reading, l plan.FittedLane) {
	d := r.State.Device(l.Device)
	if d == nil {
		return
	}
	for _, n := range d.NAPIs {
		if n.PID != 0 && slices.Contains(l.Queues, n.Config.Queue) {
			w.thread(r, l, n.PID, n.Config.Queue, kindThread)
		}
	}
	for _, p := range d.Pollers {
		if len(p.Queues) == 0 || !slices.Contains(l.Queues, p.Queues[0]) {
			continue
		}
		w.thread(r, l, p.Thread, p.Queues[0], kindPoller)
		labels := []string{l.Device, l.Name, strconv.Itoa(p.Queues[0])}
		w.counter(w.pollerPolls, p.Polls, labels...)
		w.counter(w.pollerSleeps, p.Sleeps, labels...)
		w.counter(w.pollerTaken, p.Packets, append(labels, "poller")...)
		w.counter(w.pollerTaken, p.OthersPackets, append(labels, "others")...)
		w.count(w.pollerState, prometheus.GaugeValue, 1, append(labels, p.Doing)...)
	}
	for _, cpu := range l.CPUs {
		if pid, ok := r.Moment.Handlers[l.Device][cpu]; ok {
			w.thread(r, l, pid, cpu, kindCPUMap)
		}
	}
}

func (w writer) thread(r Reading, l plan.FittedLane, pid, queue int, kind string) {
	t, ok := r.Moment.Threads[pid]
	if !ok {
		return
	}
	labels := []string{l.Device, l.Name, strconv.Itoa(queue), kind}
	w.count(w.pollerCPU, prometheus.CounterValue, float64(t.CPU)/1e9, labels...)
	w.counter(w.pollerSwitch, t.Voluntary, append(labels, "true")...)
	w.counter(w.pollerSwitch, t.Involuntary, append(labels, "false")...)
}
