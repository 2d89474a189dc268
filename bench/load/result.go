// SPDX-License-Identifier: Apache-2.0

package load

import "github.com/niclane/niclane/bench/stats"

// Result of a run. Counts and histograms cover requests whose intended time
// lies after the warm-up. Times are in ns.
type Result struct {
	// StartMono is CLOCK_MONOTONIC at the first counted intended time.
	StartMono int64 `json:"startMonoNs"`
	// Duration counted.
	Duration int64 `json:"durationNs"`

	Intended   int64 `json:"intended"`   // requests that were due
	Sent       int64 `json:"sent"`       // handed to TCP
	Completed  int64 `json:"completed"`  // answered, hit or miss
	Hits       int64 `json:"hits"`       // with the right key and value
	Misses     int64 `json:"misses"`     //
	Errors     int64 `json:"errors"`     // error replies, wrong keys or values
	TimedOut   int64 `json:"timedOut"`   // answered later than the timeout
	Unanswered int64 `json:"unanswered"` // never answered; in Latency with the time waited

	ConnectionsLost int    `json:"connectionsLost,omitempty"`
	FirstError      string `json:"firstError,omitempty"`

	// OfferedRate is Intended and AchievedRate Completed per second of Duration.
	OfferedRate  float64 `json:"offeredRatePerSecond"`
	AchievedRate float64 `json:"achievedRatePerSecond"`

	// Latency from the intended send time to the complete response.
	Latency *stats.Histogram `json:"latency"`
	// Uncorrected latency from the actual send; it hides stalls and is here to
	// show by how much. Answered requests only.
	Uncorrected *stats.Histogram `json:"uncorrected"`
	// Lateness is actual minus intended send time, whatever the reason.
	Lateness *stats.Histogram `json:"lateness"`
	// Wakeup is the time from intended send until the generator's thread
	// noticed that it was due: the generator's own share of Lateness.
	Wakeup *stats.Histogram `json:"wakeup"`

	Retransmits uint64 `json:"retransmits"` // TCP_INFO, all connections, with warm-up
	RTT         int64  `json:"rttNs"`       // mean of the smoothed RTTs at the end
	CPUTime     int64  `json:"cpuTimeNs"`   // of the generator's thread, counted time

	// Warnings are reasons to doubt the result.
	Warnings []string `json:"warnings,omitempty"`
}
