// SPDX-License-Identifier: Apache-2.0

package load

import "github.com/niclane/niclane/bench/stats"

// Result is the measurement of a run. Counts and histograms cover the requests whose intended time is
// after the warm-up. In a closed loop, the intended time is that of the send. Times are in ns.
type Result struct {
	// Mode is Config.Mode.
	Mode string `json:"mode,omitempty"`
	// StartMono is CLOCK_MONOTONIC at the first counted intended time.
	StartMono int64 `json:"startMonoNs"`
	// Duration is the counted time. It is the same for all generators of a run.
	Duration int64 `json:"durationNs"`

	Intended   int64 `json:"intended"`   // requests that were due
	Sent       int64 `json:"sent"`       // handed to TCP
	Completed  int64 `json:"completed"`  // answered, with any reply
	Hits       int64 `json:"hits"`       // as asked: right key and value, stored, wanted status and size
	Misses     int64 `json:"misses"`     //
	Errors     int64 `json:"errors"`     // error replies, wrong keys, values, statuses or sizes
	TimedOut   int64 `json:"timedOut"`   // answered later than the timeout
	Unanswered int64 `json:"unanswered"` // never answered; in Latency with the time waited, at least the timeout

	ConnectionsLost int    `json:"connectionsLost,omitempty"` // by an error or the timeout
	Reconnects      int    `json:"reconnects,omitempty"`      // opened again, after a loss or "Connection: close"
	ConnectErrors   int    `json:"connectErrors,omitempty"`   // failed attempts to open a connection again
	FirstError      string `json:"firstError,omitempty"`

	// Statuses counts HTTP responses by status code.
	Statuses map[int]int64 `json:"statuses,omitempty"`
	// Ciphers counts the connections that were open at the end, by protocol and cipher suite
	// ("TLS 1.3 TLS_AES_128_GCM_SHA256") or "plain".
	Ciphers map[string]int64 `json:"ciphers,omitempty"`
	// Payload is the bytes of values and bodies that were received.
	Payload int64 `json:"payloadBytes,omitempty"`

	// OfferedRate is Intended per second of Duration. AchievedRate is Completed per second.
	OfferedRate  float64 `json:"offeredRatePerSecond"`
	AchievedRate float64 `json:"achievedRatePerSecond"`

	// Latency is the time from the intended send to the last byte of the response.
	Latency *stats.Histogram `json:"latency"`
	// Series is Latency by the time at which requests were completed, in windows from StartMono
	// on. Requests that were never answered are in the last window.
	Series *stats.Series `json:"series,omitempty"`
	// FirstByte is the time from the intended send to the first byte of the response.
	// FirstByteSeries is its series, as Series is that of Latency. HTTP only.
	FirstByte       *stats.Histogram `json:"firstByte,omitempty"`
	FirstByteSeries *stats.Series    `json:"firstByteSeries,omitempty"`
	// Uncorrected is the latency from the actual send, of answered requests only. It hides
	// stalls; the difference to Latency shows by how much. In a closed loop, Latency differs
	// from it only by the requests that were never answered.
	Uncorrected *stats.Histogram `json:"uncorrected"`
	// Lateness is the time from the intended to the actual send. It has two causes: the
	// generator (Wakeup) and the server (Waiting). Open loop only.
	Lateness *stats.Histogram `json:"lateness"`
	// Wakeup is the time from the intended send until the generator came to the request. It then
	// sent the request or found no connection free. Wakeup is the generator's own share of
	// Lateness. Open loop only.
	Wakeup *stats.Histogram `json:"wakeup"`
	// Waiting is the time from the end of Wakeup to the send, of requests that found no connection
	// free. It is the cost of a slow server. Open loop only.
	Waiting *stats.Histogram `json:"waiting,omitempty"`

	// Hiccups are turns of a spinning generator's loop that had nothing to do but took longer
	// than 5 µs: the host had taken the thread's processor. They are recorded only while the
	// generator spins.
	Hiccups *stats.Histogram `json:"hiccups,omitempty"`

	// Away is the time, from the warm-up on, in which the threads of a spinning generator had
	// no processor. A thread slept until Config.Spin before a send, waited for a processor, or
	// the hypervisor had taken the processor. If the hypervisor reports steal time, Linux
	// subtracts it from a thread's processor time (kernel/sched/core.c: update_rq_clock_task).
	Away int64 `json:"awayNs,omitempty"`

	// Stalls are periods of at least 100 µs of the counted time in which a generator's thread
	// made no progress. It slept too long, or took 100 µs or more between two readings of its
	// clock, which usually takes a few µs. Mostly, the thread had lost its processor. Decrypting
	// large objects can take as long. Stalls has the 256 longest ones of each thread, in order of
	// time. StallsLeft is how many more there were.
	Stalls     []Stall `json:"stalls,omitempty"`
	StallsLeft int64   `json:"stallsLeftOut,omitempty"`

	// Gaps are the times between the moments at which a thread came to one request and to the
	// next, even if it could not send them. Sends is how many requests it came to in each whole
	// window of Series. Both show the real arrival process. Threads and generators are merged:
	// Gaps belong to one thread's share of the rate, Sends to the whole rate. Open loop only.
	Gaps  *stats.Histogram `json:"gaps,omitempty"`
	Sends []int64          `json:"sendsPerWindow,omitempty"`

	Retransmits uint64 `json:"retransmits"` // TCP_INFO, open connections, since they were opened
	RTT         int64  `json:"rttNs"`       // mean of the smoothed RTTs at the end
	CPUTime     int64  `json:"cpuTimeNs"`   // of the generator's threads, counted time

	// Work is everything that was requested from the server, prefill and warm-up included: the
	// server's own counters can confirm it.
	Work Work `json:"work"`

	// Steps has the result of each step of a ramp. The other fields are then for all steps.
	Steps []Result `json:"steps,omitempty"`
	// Partial is set when the run ended early.
	Partial bool `json:"partial,omitempty"`
	// Warnings are reasons to doubt the result.
	Warnings []string `json:"warnings,omitempty"`
}

// A Stall is a period in which a thread of a generator made no progress.
type Stall struct {
	AtMono int64 `json:"atMonoNs"` // CLOCK_MONOTONIC when it began
	Ns     int64 `json:"ns"`
}

// Work counts all requests of a generator to a server, prefill and warm-up included.
type Work struct {
	Gets       int64 `json:"gets"`       // sent, also those of HTTP
	Sets       int64 `json:"sets"`       // sent, with Prefilled
	Prefilled  int64 `json:"prefilled"`  //
	GetHits    int64 `json:"getHits"`    // answered with a value
	GetMisses  int64 `json:"getMisses"`  //
	Stored     int64 `json:"stored"`     // sets that the server confirmed
	Unanswered int64 `json:"unanswered"` // of Gets and Sets; the server may or may not have received them
	SentBytes  int64 `json:"sentBytes"`  // in TCP's payload
	GotBytes   int64 `json:"gotBytes"`   //
}

func (w *Work) add(o Work) {
	w.Gets += o.Gets
	w.Sets += o.Sets
	w.Prefilled += o.Prefilled
	w.GetHits += o.GetHits
	w.GetMisses += o.GetMisses
	w.Stored += o.Stored
	w.Unanswered += o.Unanswered
	w.SentBytes += o.SentBytes
	w.GotBytes += o.GotBytes
}
