// SPDX-License-Identifier: Apache-2.0

package waits

import "time"

// A Snapshot is what a Collector has seen since it was opened, or, from Sub, in a window.
type Snapshot struct {
	// At is when the snapshot was taken, Duration the time that it covers.
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"duration"` // ns
	// Followed is the part of Duration in which requests were followed, in ns.
	Followed time.Duration `json:"followed"`
	Services []Service     `json:"services"`
	// Lost counts requests and samples that the programs had no room for. Their waits are in no
	// histogram.
	Lost uint64 `json:"lost"`
	// SampleRate is the share of the time in which requests are followed now, 0 to 1. The Collector
	// lowers it so that the cost stays below Options.MaxCost. All counts and histograms are of followed
	// requests.
	SampleRate float64 `json:"sampleRate"`
	Cost       Cost    `json:"cost"`
	// Missing has the stages that cannot be measured here, with the reason.
	Missing map[Stage]string `json:"missing,omitempty"`
	// Notes say how well the stages are measured here.
	Notes []string `json:"notes,omitempty"`
}

// Cost is the collector's own use of processors.
type Cost struct {
	// CPU is the processor time of the eBPF programs, Runs how often they ran. Both are 0 if Unknown
	// is not empty: the reason why the kernel does not count them.
	CPU     time.Duration `json:"cpu"` // ns
	Runs    uint64        `json:"runs"`
	Unknown string        `json:"unknown,omitempty"`
	// Share is CPU divided by the processor time of the services' processes, 0 if that is 0.
	Share float64 `json:"share"`
}

// A Service is what a Collector has seen of one target.
type Service struct {
	Target
	// Requests counts requests that were followed from their first data to the hand-over of the
	// answer to the driver; Seen those whose first data was seen.
	Requests uint64 `json:"requests"`
	Seen     uint64 `json:"seen"`
	// Stamped counts those of Requests whose CardToStack begins at the card's own timestamp.
	Stamped uint64 `json:"stamped"`
	// Waits are the distributions, by stage. A stage in Missing is empty. The histogram of stage App
	// is the service's own time, that of stage Host the whole time in this host.
	Waits [Stages]*Histogram `json:"waits"`
	// Retransmits counts retransmitted TCP segments of the service's sockets. Drops counts packets of
	// the service's ports that this kernel dropped.
	Retransmits uint64 `json:"retransmits"`
	Drops       uint64 `json:"drops"`
	// Pipelined counts requests that arrived before the previous answer was written. They are
	// measured as one with it. Unpaired counts requests without an answer and answers without a request.
	Pipelined uint64 `json:"pipelined"`
	Unpaired  uint64 `json:"unpaired"`
	// Unfinished counts the other requests without an end: those under way, those that were never answered, and
	// those that were cut off because the programs were detached. No histogram has them.
	Unfinished uint64 `json:"unfinished"`
	// CPU is the processor time of the service's processes, user and system, since they were first
	// seen. Processes are their IDs. A process is seen when it takes a request.
	CPU       time.Duration `json:"cpu"` // ns
	Processes []int         `json:"processes,omitempty"`
	// Culprits lists what was in front of slow requests, by stage, largest share first.
	Culprits map[Stage][]Culprit `json:"culprits,omitempty"`

	fronts [Stages]front
}

// A Culprit is traffic or a process that kept slow requests of a service waiting.
type Culprit struct {
	// Share is the part of the time of requests above the threshold that this was in front, 0 to 1.
	Share float64 `json:"share"`
	// Above is the threshold: the wait's 99th percentile, as far as it was known, in ns.
	Above int64 `json:"above"`
	// What was in front: a lane, "port 9100/tcp", or a process, "stress (4711)"; and where: "receive
	// queue 3 of eth0", "qdisc of eth0, transmit queue 3", "processor 3".
	What  string `json:"what"`
	Where string `json:"where"`
}

// Sub returns what happened after an earlier snapshot of the same Collector. Services are matched
// by Target.Name.
func (s Snapshot) Sub(earlier Snapshot) Snapshot {
	d := s
	d.Duration, d.Followed = s.Duration-earlier.Duration, s.Followed-earlier.Followed
	d.Lost = s.Lost - min(s.Lost, earlier.Lost)
	d.Cost.CPU -= earlier.Cost.CPU
	d.Cost.Runs -= min(s.Cost.Runs, earlier.Cost.Runs)
	d.Services = make([]Service, len(s.Services))
	before := map[string]Service{}
	for _, x := range earlier.Services {
		before[x.Name] = x
	}
	var cpu time.Duration
	for i, x := range s.Services {
		d.Services[i] = x.sub(before[x.Name])
		cpu += d.Services[i].CPU
	}
	d.Cost.Share = share(d.Cost.CPU, cpu)
	return d
}

func (x Service) sub(y Service) Service {
	x.Requests -= min(x.Requests, y.Requests)
	x.Seen -= min(x.Seen, y.Seen)
	x.Stamped -= min(x.Stamped, y.Stamped)
	x.Retransmits -= min(x.Retransmits, y.Retransmits)
	x.Drops -= min(x.Drops, y.Drops)
	x.Pipelined -= min(x.Pipelined, y.Pipelined)
	x.Unpaired -= min(x.Unpaired, y.Unpaired)
	x.Unfinished -= min(x.Unfinished, y.Unfinished)
	x.CPU = max(x.CPU-y.CPU, 0)
	for i := range x.Waits {
		x.Waits[i] = x.Waits[i].Sub(y.Waits[i])
		x.fronts[i] = x.fronts[i].sub(y.fronts[i])
	}
	if x.Culprits != nil {
		x.Culprits = x.culprits()
	}
	return x
}

func share(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
