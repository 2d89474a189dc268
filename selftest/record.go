// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"time"

	"github.com/niclane/niclane/bench/stats"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
	"github.com/niclane/niclane/lane/verify"
)

// Schema of Record. It changes with every change of meaning.
const Schema = "niclane.selftest/1"

// A Record is one selftest of one device. It has no addresses, MAC addresses
// or host names unless Identified is set: "$own" and "$peer" stand for the two
// hosts' addresses. Times are in ns.
type Record struct {
	Schema  string    `json:"schema"`
	Niclane string    `json:"niclane"` // version
	Started time.Time `json:"started"`
	Took    int64     `json:"tookNs"`
	// Identified says that addresses and names were left in.
	Identified bool `json:"identified,omitempty"`
	// Partial is why the selftest ended early, "" if it did not.
	Partial string `json:"partial,omitempty"`

	System System `json:"system"`
	Device Device `json:"device"`
	// Choices are what the planner takes for a lane without wishes, and why
	// better mechanisms are out.
	Choices []plan.Choice `json:"choices"`

	Cases   []Case   `json:"cases"`
	Latency *Latency `json:"latency,omitempty"`
	// Left is what differs, after all cases, from before the first: nothing,
	// if everything was put back.
	Left     []Difference `json:"left,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
}

// System is the machine under test.
type System struct {
	Kernel         string `json:"kernel"`
	Distribution   string `json:"distribution,omitempty"`
	CPUModel       string `json:"cpuModel,omitempty"`
	CPUs           int    `json:"cpus"`
	Virtualisation string `json:"virtualisation,omitempty"`
}

// Device is the card under test.
type Device struct {
	Driver   string `json:"driver,omitempty"`
	Type     string `json:"type,omitempty"` // rtnl link kind, "" for hardware
	Version  string `json:"version,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	Bus      string `json:"bus,omitempty"` // PCI address
	// Emulated says that it is the lab's card.
	Emulated    bool             `json:"emulated,omitempty"`
	Speed       uint64           `json:"speedBitsPerSecond,omitempty"`
	MTU         int              `json:"mtu"`
	RxQueues    int              `json:"rxQueues"`
	TxQueues    int              `json:"txQueues"`
	Channels    *device.Channels `json:"channels,omitempty"`
	MaxChannels *device.Channels `json:"maxChannels,omitempty"`
	// RuleCapacity and MaxContexts as the device says, 0: it does not.
	RuleCapacity int `json:"ruleCapacity,omitempty"`
	MaxContexts  int `json:"maxContexts,omitempty"`
	// Capabilities are what was probed of the device, by name.
	Capabilities device.Capabilities `json:"capabilities,omitempty"`
}

// An Outcome of a case.
type Outcome string

// The outcomes.
const (
	OK       Outcome = "ok"       // seen from traffic, and put back
	Refused  Outcome = "refused"  // by the planner, before anything was changed
	Unproven Outcome = "unproven" // nothing wrong, but not everything was seen
	Failed   Outcome = "failed"
	Skipped  Outcome = "skipped" // the selftest had ended
)

// A Case is one lanes file, tried.
type Case struct {
	Name string `json:"name"`
	// Kind of rule that leads the traffic into the lane.
	Kind string `json:"kind"`
	// Force is the mechanism that is forced, by part.
	Force map[string]string `json:"force,omitempty"`
	// Lanes is the file.
	Lanes   string  `json:"lanes"`
	Outcome Outcome `json:"outcome"`
	// Reasons for every outcome but OK.
	Reasons []string `json:"reasons,omitempty"`

	// Made are the mechanisms by part, and Steps what they took.
	Made  map[device.Part]string `json:"made,omitempty"`
	Steps int                    `json:"steps,omitempty"`
	// Disruptive are the reasons of those steps that can lose packets.
	Disruptive []string `json:"disruptive,omitempty"`
	// ApplyTook and RollbackTook are from start to end, reading back included.
	ApplyTook    int64 `json:"applyNs,omitempty"`
	RollbackTook int64 `json:"rollbackNs,omitempty"`
	// LinkDowns is how often the carrier was lost, absent if not counted.
	LinkDowns *int `json:"linkDowns,omitempty"`

	// Queues are the lane's, and Received and Sent the packets by lane and
	// queue while they were watched.
	Queues   []int            `json:"queues,omitempty"`
	Received []Cell           `json:"received,omitempty"`
	Sent     []Cell           `json:"sent,omitempty"`
	Findings []verify.Finding `json:"findings,omitempty"`
	// Connections are open from before apply until after rollback.
	Connections []Connections `json:"connections,omitempty"`
	// Differences are what rollback did not put back.
	Differences []Difference `json:"differences,omitempty"`
}

// A Cell counts the packets of one lane in one queue; Lane is "" for those of
// no lane.
type Cell struct {
	Lane    string `json:"lane,omitempty"`
	Queue   int    `json:"queue"`
	Packets uint64 `json:"packets"`
}

// Connections are those of one kind through a case.
type Connections struct {
	// Whose: "lane" or "others".
	Whose string `json:"whose"`
	// Asked is how many were opened, Lost how many of them ended.
	Asked int `json:"asked"`
	Lost  int `json:"lost"`
	// Requests that were answered, and those never answered.
	Answered   int64 `json:"answered"`
	Unanswered int64 `json:"unanswered"`
	// Longest wait for an answer: what a gap in the traffic cost.
	Longest int64 `json:"longestNs"`
	// Error is the first one.
	Error string `json:"error,omitempty"`
}

// Whose connections.
const (
	Lanes  = "lane"
	Others = "others"
)

// A Difference is an object that is not as before.
type Difference struct {
	Key    string `json:"key"`
	Before string `json:"before"` // "" for absent
	After  string `json:"after"`  // "" for absent
}

// Latency is that of the lane's port, with the lane and without.
type Latency struct {
	// Lanes is the lanes file of the variant with.
	Lanes string `json:"lanes"`
	// Rate of requests asked for, over so many connections.
	Rate        float64 `json:"ratePerSecond"`
	Connections int     `json:"connections"`
	// Window is how long each repeat was counted, and Noise what bulk traffic
	// toward the host was asked for beside it.
	Window int64 `json:"windowNs"`
	Noise  int64 `json:"noiseBitsPerSecond,omitempty"`
	// Rounds measured, each with both variants next to each other.
	Rounds      int          `json:"rounds"`
	Percentiles []Percentile `json:"percentiles"`
	Warnings    []string     `json:"warnings,omitempty"`
}

// A Percentile of both variants. What the sample does not carry is absent,
// with the reason in Missing.
type Percentile struct {
	P       float64         `json:"p"`
	Without *stats.Estimate `json:"without,omitempty"`
	With    *stats.Estimate `json:"with,omitempty"`
	// Ratio is with over without, paired by round.
	Ratio   *stats.Ratio `json:"ratio,omitempty"`
	Missing []string     `json:"missing,omitempty"`
}

// Count gives how many cases have an outcome.
func (r *Record) Count(o Outcome) int {
	n := 0
	for _, c := range r.Cases {
		if c.Outcome == o {
			n++
		}
	}
	return n
}

// LinkDowns and Lost are the sums over all cases.
func (r *Record) LinkDowns() (n int) {
	for _, c := range r.Cases {
		if c.LinkDowns != nil {
			n += *c.LinkDowns
		}
	}
	return n
}

// Lost is how many connections were lost in all cases.
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
