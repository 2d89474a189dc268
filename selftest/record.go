// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"time"

	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// Schema is the version of Record. It changes with every change of meaning.
const Schema = "niclane.selftest/1"

// A Record is one selftest of one device. Unless Identified is set, it has no addresses, MAC
// addresses or host names: "$own" and "$peer" stand for the hosts' addresses. Times are in ns.
type Record struct {
	Schema  string    `json:"schema"`
	Niclane string    `json:"niclane"` // version
	Started time.Time `json:"started"`
	Took    int64     `json:"tookNs"`
	// Identified is true if the record contains addresses and names.
	Identified bool `json:"identified,omitempty"`
	// Partial is the reason why the selftest ended early, "" if it did not.
	Partial string `json:"partial,omitempty"`

	System System `json:"system"`
	Device Device `json:"device"`
	// Choices are the planner's choices for a lane without wishes, with the reasons against
	// better mechanisms.
	Choices []plan.Choice `json:"choices"`

	Cases   []Case   `json:"cases"`
	Latency *Latency `json:"latency,omitempty"`
	// Left are the differences between the states before the first and after the last case. It
	// is empty if everything was restored.
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
	Type     string `json:"type,omitempty"` // rtnl link kind, "" for hardware
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
	// RuleCapacity and MaxContexts are the device's own values, 0 if it reports none.
	RuleCapacity int `json:"ruleCapacity,omitempty"`
	MaxContexts  int `json:"maxContexts,omitempty"`
	// Capabilities are the probed capabilities of the device, by name.
	Capabilities device.Capabilities `json:"capabilities,omitempty"`
}

// An Outcome is the result of a case.
type Outcome string

// Values of Outcome.
const (
	OK       Outcome = "ok"       // shown by traffic, and restored
	Refused  Outcome = "refused"  // by the planner, before any change
	Unproven Outcome = "unproven" // no failure, but not everything was observed
	Failed   Outcome = "failed"
	Skipped  Outcome = "skipped" // the selftest had ended
)

// A Case is one tried lanes file.
type Case struct {
	Name string `json:"name"`
	// Kind is the kind of rule that leads the traffic into the lane.
	Kind string `json:"kind"`
	// Force are the forced mechanisms, by part.
	Force map[string]string `json:"force,omitempty"`
	// Lanes is the text of the lanes file.
	Lanes   string  `json:"lanes"`
	Outcome Outcome `json:"outcome"`
	// Reasons explain every outcome but OK.
	Reasons []string `json:"reasons,omitempty"`

	// Made are the mechanisms by part. Steps is the number of the plan's steps.
	Made  map[device.Part]string `json:"made,omitempty"`
	Steps int                    `json:"steps,omitempty"`
	// Disruptive are the reasons of the steps that can lose packets.
	Disruptive []string `json:"disruptive,omitempty"`
	// ApplyTook and RollbackTook are durations, with reading back.
	ApplyTook    int64 `json:"applyNs,omitempty"`
	RollbackTook int64 `json:"rollbackNs,omitempty"`
	// LinkDowns counts how often the link lost its carrier, absent if it is not counted.
	LinkDowns *int `json:"linkDowns,omitempty"`

	// Queues are the lane's queues. Received and Sent are the watched packets by lane and
	// queue.
	Queues   []int            `json:"queues,omitempty"`
	Received []Cell           `json:"received,omitempty"`
	Sent     []Cell           `json:"sent,omitempty"`
	Findings []verify.Finding `json:"findings,omitempty"`
	// Connections were open from before apply until after rollback.
	Connections []Connections `json:"connections,omitempty"`
	// Differences are the objects that rollback did not restore.
	Differences []Difference `json:"differences,omitempty"`
}

// A Cell counts the packets of one lane in one queue. Lane is "" for packets that match no
// lane.
type Cell struct {
	Lane    string `json:"lane,omitempty"`
	Queue   int    `json:"queue"`
	Packets uint64 `json:"packets"`
}

// Connections are the connections of the lane, or of others, in a case.
type Connections struct {
	// Whose is "lane" or "others".
	Whose string `json:"whose"`
	// Asked is the number of opened connections, Lost the number of those that ended.
	Asked int `json:"asked"`
	Lost  int `json:"lost"`
	// Answered and Unanswered count requests.
	Answered   int64 `json:"answered"`
	Unanswered int64 `json:"unanswered"`
	// Longest is the longest wait for an answer. It shows gaps in the traffic.
	Longest int64 `json:"longestNs"`
	// Error is the first error.
	Error string `json:"error,omitempty"`
}

// Values of Connections.Whose.
const (
	Lanes  = "lane"
	Others = "others"
)

// A Difference is an object that differs from its earlier state.
type Difference struct {
	Key    string `json:"key"`
	Before string `json:"before"` // "" for absent
	After  string `json:"after"`  // "" for absent
}

// Latency is the latency of the lane's port, with and without the lane.
type Latency struct {
	// Lanes is the lanes file of the variant with the lane.
	Lanes string `json:"lanes"`
	// Rate is the requested rate over all Connections.
	Rate        float64 `json:"ratePerSecond"`
	Connections int     `json:"connections"`
	// Window is the counted time of each repeat. Noise is the requested bulk traffic toward the
	// host.
	Window int64 `json:"windowNs"`
	Noise  int64 `json:"noiseBitsPerSecond,omitempty"`
	// Rounds is the number of measured rounds, each with both variants one after the other.
	Rounds      int          `json:"rounds"`
	Percentiles []Percentile `json:"percentiles"`
	Warnings    []string     `json:"warnings,omitempty"`
}

// A Percentile is one percentile of both variants. A value for which the sample is too small is
// absent, with the reason in Missing.
type Percentile struct {
	P       float64         `json:"p"`
	Without *stats.Estimate `json:"without,omitempty"`
	With    *stats.Estimate `json:"with,omitempty"`
	// Ratio is with divided by without, paired by round.
	Ratio   *stats.Ratio `json:"ratio,omitempty"`
	Missing []string     `json:"missing,omitempty"`
}

// Count returns the number of cases with an outcome.
func (r *Record) Count(o Outcome) int {
	n := 0
	for _, c := range r.Cases {
		if c.Outcome == o {
			n++
		}
	}
	return n
}

// LinkDowns returns the sum over all cases.
func (r *Record) LinkDowns() (n int) {
	for _, c := range r.Cases {
		if c.LinkDowns != nil {
			n += *c.LinkDowns
		}
	}
	return n
}

// Lost returns the numbers of lost connections over all cases.
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
