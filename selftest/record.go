// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"time"

	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// Schema is the version of Record. The number changes whenever the meaning of a field changes.
const Schema = "niclane.selftest/1"

// A Record is the result of one selftest of one device. Times are in ns. Unless Identified is set,
// it has no addresses, MAC addresses or host names: "$own" and "$peer" replace the two hosts'
// addresses.
type Record struct {
	Schema  string    `json:"schema"`
	Niclane string    `json:"niclane"` // version of niclane
	Started time.Time `json:"started"`
	Took    int64     `json:"tookNs"`
	// Identified is true if the record contains addresses and names.
	Identified bool `json:"identified,omitempty"`
	// Partial is the reason why the selftest ended early; "" if it did not.
	Partial string `json:"partial,omitempty"`

	System System `json:"system"`
	Device Device `json:"device"`
	// Choices are the mechanisms that the planner chooses if the lanes file forces none, with its
	// reasons against better ones.
	Choices []plan.Choice `json:"choices"`

	Cases   []Case   `json:"cases"`
	Latency *Latency `json:"latency,omitempty"`
	// Left lists objects whose states before the first case and after the last case differ. It is
	// empty if everything was restored.
	Left     []Difference `json:"left,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
}

// System describes the machine under test.
type System struct {
	Kernel         string `json:"kernel"`
	Distribution   string `json:"distribution,omitempty"`
	CPUModel       string `json:"cpuModel,omitempty"`
	CPUs           int    `json:"cpus"`
	Virtualisation string `json:"virtualisation,omitempty"`
}

// Device describes the card under test.
type Device struct {
	Driver   string `json:"driver,omitempty"`
	Type     string `json:"type,omitempty"` // link kind in rtnetlink; "" for hardware
	Version  string `json:"version,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Bus      string `json:"bus,omitempty"` // PCI address
	// Emulated is true if the device is the lab's emulated card.
	Emulated    bool             `json:"emulated,omitempty"`
	Speed       uint64           `json:"speedBitsPerSecond,omitempty"`
	MTU         int              `json:"mtu"`
	RxQueues    int              `json:"rxQueues"`
	TxQueues    int              `json:"txQueues"`
	Channels    *device.Channels `json:"channels,omitempty"`
	MaxChannels *device.Channels `json:"maxChannels,omitempty"`
	// RuleCapacity and MaxContexts are what the device reports; 0 if it reports nothing.
	RuleCapacity int `json:"ruleCapacity,omitempty"`
	MaxContexts  int `json:"maxContexts,omitempty"`
	// Capabilities are the probed capabilities of the device, by name.
	Capabilities device.Capabilities `json:"capabilities,omitempty"`
}

// An Outcome is the result of a case.
type Outcome string

// Values of Outcome.
const (
	OK       Outcome = "ok"       // traffic showed that the lane works, and everything was restored
	Refused  Outcome = "refused"  // the planner refused, before any change
	Unproven Outcome = "unproven" // nothing failed, but traffic did not show everything
	Failed   Outcome = "failed"
	Skipped  Outcome = "skipped" // not tried, because the selftest had ended
)

// A Case is one lanes file that was tried.
type Case struct {
	Name string `json:"name"`
	// Kind is the kind of rule that steers the traffic into the lane.
	Kind string `json:"kind"`
	// Force are the mechanisms that the lanes file forces, by part.
	Force map[string]string `json:"force,omitempty"`
	// Lanes is the text of the lanes file.
	Lanes   string  `json:"lanes"`
	Outcome Outcome `json:"outcome"`
	// Reasons say why the outcome is not OK.
	Reasons []string `json:"reasons,omitempty"`

	// Made are the mechanisms that the plan uses, by part. Steps is the number of the plan's steps.
	Made  map[device.Part]string `json:"made,omitempty"`
	Steps int                    `json:"steps,omitempty"`
	// Disruptive has the reasons of those steps that can lose packets.
	Disruptive []string `json:"disruptive,omitempty"`
	// ApplyTook and RollbackTook are how long each took, including the time to read the objects back.
	ApplyTook    int64 `json:"applyNs,omitempty"`
	RollbackTook int64 `json:"rollbackNs,omitempty"`
	// LinkDowns is how often the link lost its carrier; absent if it is not counted.
	LinkDowns *int `json:"linkDowns,omitempty"`

	// Queues are the lane's queues. Received and Sent are the packets that were watched, by lane and
	// queue.
	Queues   []int            `json:"queues,omitempty"`
	Received []Cell           `json:"received,omitempty"`
	Sent     []Cell           `json:"sent,omitempty"`
	Findings []verify.Finding `json:"findings,omitempty"`
	// Connections were opened before apply and closed after rollback.
	Connections []Connections `json:"connections,omitempty"`
	// Differences are objects that rollback did not restore.
	Differences []Difference `json:"differences,omitempty"`
}

// A Cell is the number of packets of one lane in one queue. Lane is "" for packets that match no
// lane.
type Cell struct {
	Lane    string `json:"lane,omitempty"`
	Queue   int    `json:"queue"`
	Packets uint64 `json:"packets"`
}

// Connections are the connections of one case to the lane's port, or to the other port.
type Connections struct {
	// Whose is "lane" or "others".
	Whose string `json:"whose"`
	// Asked is how many connections were opened, Lost how many of them ended early.
	Asked int `json:"asked"`
	Lost  int `json:"lost"`
	// Answered and Unanswered count requests.
	Answered   int64 `json:"answered"`
	Unanswered int64 `json:"unanswered"`
	// Longest is the longest wait for an answer. It shows interruptions of the traffic.
	Longest int64 `json:"longestNs"`
	// Error is the first error of these connections.
	Error string `json:"error,omitempty"`
}

// Values of Connections.Whose.
const (
	Lanes  = "lane"
	Others = "others"
)

// A Difference is an object whose state differs from its state before.
type Difference struct {
	Key    string `json:"key"`
	Before string `json:"before"` // "": the object was absent
	After  string `json:"after"`  // "": the object is absent
}

// Latency is the latency of the lane's port, with and without the lane.
type Latency struct {
	// Lanes is the text of the lanes file that the variant with the lane uses.
	Lanes string `json:"lanes"`
	// Rate is the requested rate over all Connections together.
	Rate        float64 `json:"ratePerSecond"`
	Connections int     `json:"connections"`
	// Window is the length of each measurement. Noise is the requested rate of bulk traffic toward
	// this host.
	Window int64 `json:"windowNs"`
	Noise  int64 `json:"noiseBitsPerSecond,omitempty"`
	// Rounds is how many rounds were measured. Each round measures both variants, one after the other.
	Rounds      int          `json:"rounds"`
	Percentiles []Percentile `json:"percentiles"`
	Warnings    []string     `json:"warnings,omitempty"`
}

// A Percentile is one percentile in both variants. If the sample is too small for a value, the
// value is absent, and Missing has the reason.
type Percentile struct {
	P       float64         `json:"p"`
	Without *stats.Estimate `json:"without,omitempty"`
	With    *stats.Estimate `json:"with,omitempty"`
	// Ratio is with divided by without. It compares the two windows of each round.
	Ratio   *stats.Ratio `json:"ratio,omitempty"`
	Missing []string     `json:"missing,omitempty"`
}

// Count returns the number of cases with outcome o.
func (r *Record) Count(o Outcome) int {
	n := 0
	for _, c := range r.Cases {
		if c.Outcome == o {
			n++
		}
	}
	return n
}

// LinkDowns returns how often the link lost its carrier in all cases together.
func (r *Record) LinkDowns() (n int) {
	for _, c := range r.Cases {
		if c.LinkDowns != nil {
			n += *c.LinkDowns
		}
	}
	return n
}

// Lost returns how many connections were lost in all cases together: those to the lane's port, and
// others.
func (r *Record) Lost() (lane, others int) {
	for _, c := range r.Cases {
		for _, x := range c.Connections {
			if x.Whose == Others {
				others += x.Lost
			} else {
				lane += x.Lost
			}
		}
	}
	return lane, others
}
