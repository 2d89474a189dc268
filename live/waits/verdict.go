// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"strings"
	"time"
)

// leastRequests is how many requests a verdict needs: with fewer, P99 is one of a few values.
const leastRequests = 1000

// stageWords names the stages in sentences.
var stageWords = [Stages]string{"between card and stack", "between stack and socket", "between socket and application",
	"in the application", "between socket and card", "in the card", "in this host"}

// Verdict says in sentences which wait has most of the service's slow requests' time, and whether a
// lane can shorten it, by which key of the lanes file.
func (x *Service) Verdict() []string {
	host := x.Waits[Host]
	if n := host.Count(); n < leastRequests {
		if n == 0 {
			return []string{"No request was seen."}
		}
		return []string{fmt.Sprintf("%d requests are too few to judge P99: want %d.", n, leastRequests)}
	}
	var sum int64
	largest := CardToStack
	for st := range Card {
		sum += x.Waits[st].ValueAt(99)
		if x.Waits[st].ValueAt(99) > x.Waits[largest].ValueAt(99) {
			largest = st
		}
	}
	if x.Waits[Card].ValueAt(99) > x.Waits[largest].ValueAt(99) {
		largest = Card
	}
	p99 := x.Waits[largest].ValueAt(99)
	share := float64(p99) / float64(max(sum, 1))
	first := fmt.Sprintf("Most of the P99 is %s: %s of the %s that the stages' P99 add up to.", stageWords[largest],
		Duration(p99), Duration(sum))
	if largest == Card {
		first = fmt.Sprintf("The longest P99 is in the card, after the answer was handed over: %s.", Duration(p99))
	} else if share < 0.5 {
		first = fmt.Sprintf("No wait has most of the P99. The longest is %s: %s of %s.", stageWords[largest],
			Duration(p99), Duration(sum))
	}
	return append([]string{first}, x.advice(largest)...)
}

// advice says what shortens a wait.
func (x *Service) advice(st Stage) []string {
	foreign, itself, idle, softirq, threads := x.shares(st)
	var out []string
	if c := x.Culprits[st]; len(c) > 0 {
		out = append(out, fmt.Sprintf("%.0f %% of the time above P99 was behind %s on %s.", c[0].Share*100, c[0].What,
			c[0].Where))
	}
	switch st {
	case CardToStack:
		switch {
		case threads+idle >= 0.3:
			return append(out, "The thread that polls waited for a processor. A lane shortens this: `poller: "+
				"busy` on `cpus` of its own, or `poller-priority`.")
		case foreign >= 0.3:
			return append(out, "A lane shortens this: own receive queues (`queues`) keep other traffic out.")
		case itself >= 0.5:
			return append(out, "The service's own packets wait for each other: more receive queues (`queues`) "+
				"help, if the card spreads its connections.")
		}
		return append(out, "A lane can shorten this: a busy poller (`poller: busy`) does not wait for an interrupt; "+
			"`rxUsecs: 0` lets the interrupt come at once.")
	case StackToSocket:
		return append(out, "This is the kernel's work for the packet. A lane with `aligned` members does it on the "+
			"application's processor; it shortens nothing else of it.")
	case SocketToApp:
		switch {
		case idle >= 0.5:
			return append(out, "The application slept, and its processor woke up late. A lane can shorten this: with "+
				"`poller: application`, the application polls and does not sleep.")
		case softirq >= 0.3:
			return append(out, "The application's processor handled received packets meanwhile. A lane can "+
				"shorten this: its `cpus` keep the application away from the processors of other traffic's queues.")
		case itself >= 0.5:
			return append(out, "The application was busy with other requests: a processor, not a card. A lane "+
				"does not shorten this; more threads or processors (`cpus`) do.")
		}
		return append(out, "The application waited for a processor, not for a card. A lane's `cpus` keep other "+
			"work away from it; its queues do not shorten this.")
	case App:
		if foreign >= 0.3 {
			return append(out, "Other threads ran on the application's processor meanwhile. If it did not "+
				"sleep, a lane's `cpus` keep them away; nothing else of a lane shortens this.")
		}
		return append(out, "This is the service's own time. A lane does not shorten it.")
	case SocketToCard:
		if foreign >= 0.3 {
			return append(out, "A lane shortens this: `rank` or a `guarantee` lets the service's packets go "+
				"before others in the qdisc.")
		}
		return append(out, "The service's own packets wait for the link, for TCP's pacing, or for a ceiling. A higher "+
			"`ceiling` helps if the lane has one.")
	}
	return append(out, "The card is busy with other queues, or signals completions late: own queues (`queues`) "+
		"and `txUsecs` shorten this.")
}

// shares returns which part of a stage's slow time other traffic or processes, the service itself,
// an idle processor, the handling of received packets and other threads had.
func (x *Service) shares(st Stage) (foreign, itself, idle, softirq, threads float64) {
	for _, c := range x.Culprits[st] {
		switch {
		case c.What == x.Name+itselfWord:
			itself += c.Share
		case c.What == idleWords:
			idle += c.Share
		case c.What == softirqWords:
			softirq += c.Share
		default:
			foreign += c.Share
			if strings.HasSuffix(c.What, ")") { // the process's number
				threads += c.Share
			}
		}
	}
	return foreign, itself, idle, softirq, threads
}

// Duration returns nanoseconds for people, in three digits.
func Duration(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d < 0:
		return "-" + Duration(-ns)
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", ns)
	case d < time.Millisecond:
		return three(float64(ns)/1e3) + " us"
	case d < time.Second:
		return three(float64(ns)/1e6) + " ms"
	}
	return three(float64(ns)/1e9) + " s"
}

func three(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	switch {
	case v < 9.995:
		s = fmt.Sprintf("%.2f", v)
	case v < 99.95:
		s = fmt.Sprintf("%.1f", v)
	}
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
