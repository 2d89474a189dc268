// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/niclane/niclane/k8s/agent/lanes"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
	"github.com/niclane/niclane/lane/status"
	"github.com/niclane/niclane/watch/metrics"
)

// read returns the lanes, and the state and counters of their devices.
func (a *Agent) read(ctx context.Context) (metrics.Reading, error) {
	r := metrics.Reading{Moment: status.Moment{Counters: map[string]device.Counters{}}}
	var devices []string
	for _, d := range a.lanes.Status().Devices {
		if _, err := net.InterfaceByName(d); err == nil {
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 {
		return r, nil
	}
	for _, l := range a.lanes.Lanes() {
		for _, d := range devices {
			if l.Device == d {
				r.Lanes = append(r.Lanes, l)
			}
		}
	}
	var err error
	if r.State, err = observe.Observe(ctx,
		observe.Options{Devices: devices, RunDir: a.o.RunDir, NoProbes: true}); err != nil {
		return r, err
	}
	for _, d := range devices {
		if r.Moment.Counters[d], err = observe.Counters(d); err != nil {
			return r, err
		}
	}
	return r, nil
}

// pods exports which pod is in which lane, and the counters of the pod's interface. The label lane
// has the same value as in lane_info and in the lane's own metrics. The interface's counters
// include the pod's packets that are in no lane.
type pods struct {
	lanes                      *lanes.Manager
	inLane, units, used, wrong *prometheus.Desc
	packets, bytes             *prometheus.Desc
}

func newPods(m *lanes.Manager) *pods {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("niclane_"+name, help, labels, nil)
	}
	return &pods{
		lanes: m,
		inLane: d("pod_lane", "1 for each lane that a container of a pod is in.", "namespace", "pod", "container",
			"class", "lane"),
		packets: d("pod_packets_total", "Packets at the pod's interface, in lanes or not.", "namespace", "pod",
			"direction"),
		bytes: d("pod_bytes_total", "Bytes at the pod's interface, in lanes or not.", "namespace", "pod", "direction"),
		units: d("class_units", "Units of a class: queue sets, or places for pods.", "class", "mode"),
		used:  d("class_units_used", "Units of a class that pods have.", "class", "mode"),
		wrong: d("class_units_unhealthy", "Units of a class that cannot be given now.", "class", "mode"),
	}
}

// newTook returns the histogram of the time in seconds that the runtime's requests take in the
// agent. A starting pod waits for this time, and for the plugin's process.
func newTook() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "niclane_request_seconds",
		Help:    "Time that the runtime's requests took in the agent, by niclane-cni or NRI.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	}, []string{"command", "lane"})
}

// Describe implements prometheus.Collector.
func (p *pods) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.inLane, p.packets, p.bytes, p.units, p.used, p.wrong} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (p *pods) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, c := range p.lanes.Now().Classes {
		used, wrong := 0, 0
		for _, u := range c.Units {
			if u.Holder != nil {
				used++
			}
			if u.Unhealthy != "" {
				wrong++
			}
		}
		gauge(p.units, float64(len(c.Units)), c.Name, string(c.Mode))
		gauge(p.used, float64(used), c.Name, string(c.Mode))
		gauge(p.wrong, float64(wrong), c.Name, string(c.Mode))
	}
	for _, a := range p.lanes.Attachments() {
		seen := map[string]bool{}
		for _, g := range a.Grants {
			if key := g.Container + " " + g.Lane; !seen[key] {
				seen[key] = true
				gauge(p.inLane, 1, a.Namespace, a.Pod, g.Container, g.Class, g.Lane)
			}
		}
		// Directions are the pod's: a packet that the host's end receives was sent by the pod.
		for _, c := range []struct {
			file, direction string
			desc            *prometheus.Desc
		}{{"rx_packets", "tx", p.packets}, {"tx_packets", "rx", p.packets}, {"rx_bytes", "tx", p.bytes},
			{"tx_bytes", "rx", p.bytes}} {
			if v, ok := counter(a.HostIf, c.file); ok {
				out <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, v, a.Namespace, a.Pod,
					c.direction)
			}
		}
	}
}

func counter(link, file string) (float64, bool) {
	if link == "" || strings.ContainsAny(link, "/") {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join("/sys/class/net", link, "statistics", file))
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return float64(v), err == nil
}
