// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// describeSize writes the values that the hosts file decides: of the names in lanes, arguments and
// files, and of the load.
func describeSize(w io.Writer, e *experiment.Experiment) {
	if h := e.Hosts; h != nil {
		var cards []string
		for _, c := range h.SUT.Ports() {
			text := c.Device
			if c.Address != "" {
				text += " at " + c.Address
			}
			if len(c.CPUs) > 0 {
				text += ", polled by " + device.FormatCPUList(c.CPUs)
			}
			cards = append(cards, text)
		}
		if h.SUT.Bond != "" {
			cards = append(cards, h.SUT.Bond+" of them at "+h.SUT.Address)
		}
		fmt.Fprintf(w, "sut: %s%s\n", cpusOf(h.SUT.CPUs), strings.Join(cards, "; "))
		fmt.Fprintf(w, "clients: %s with %s in all\n", amount(len(h.Clients), "host"),
			amount(e.Load.Generators, "generator"))
	}
	if l := e.Lab; l != nil && (l.LinkRate > 0 || l.Queues > 0) {
		var text []string
		if l.LinkRate > 0 {
			text = append(text, "link "+device.RateText(l.LinkRate))
		}
		if l.Queues > 0 {
			text = append(text, amount(l.Queues, "queue"))
		}
		fmt.Fprintf(w, "lab: %s\n", strings.Join(text, ", "))
	}
	if n, rate, each := experiment.GeneratorsFor(e); n > e.Load.Generators {
		fmt.Fprintf(w, "generators: %d/s takes %d at %d/s each", rate, n, each)
		if e.Hosts != nil {
			hosts := len(e.Hosts.Clients)
			fmt.Fprintf(w, ": %d, each with a processor, on each of %s", (n+hosts-1)/hosts, amount(hosts, "client"))
		}
		fmt.Fprintf(w, "; the run has %d, and measures what they can send\n", e.Load.Generators)
	}
	if e.Server.Kind == experiment.KindRunning {
		return
	}
	queues := fmt.Sprintf("$queues %d", e.Server.Queues)
	if n := cardsOf(e); n > 1 {
		queues += fmt.Sprintf(" on each of %d cards", n)
	}
	threads := fmt.Sprintf("$threads %d", e.Server.Threads)
	if n := cardsOf(e); e.Server.Split == experiment.SplitCard && n > 1 {
		threads = fmt.Sprintf("$threads %d for each of %d instances", (e.Server.Threads+n-1)/n, n)
	}
	fmt.Fprintf(w, "values: %s, %s, $pollers %d\n", threads, queues, e.Server.Pollers)
}

// cpusOf returns a host's processors for a list, "" if the hosts file does not name them.
func cpusOf(cpus []int) string {
	if len(cpus) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s, ", amount(len(cpus), "processor"), device.FormatCPUList(cpus))
}

func amount(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// cardsOf returns the number of the SUT's cards that have lanes of their own.
func cardsOf(e *experiment.Experiment) int {
	if e.Hosts == nil {
		return 1
	}
	return len(e.Hosts.SUT.Ports())
}

// variantText describes a variant: its noise, its lanes with their numbers, and its server's arguments.
func variantText(e *experiment.Experiment, v experiment.Variant) (string, error) {
	out := v.Name + ": without noise"
	if v.Noise {
		out = v.Name + ": with noise"
	}
	switch {
	case e.Server.Kind == experiment.KindPod:
		pod, err := podText(e, v)
		if err != nil {
			return "", err
		}
		out += ", " + pod
	case v.LanesFile != "":
		out += ", lanes of " + v.LanesFile
	case v.Lanes == "":
		out += ", no lanes"
	default:
		lanes, err := describeLanes(e, v)
		if err != nil {
			return "", err
		}
		out += ", " + lanes
	}
	if v.Server != nil && len(v.Server.Arguments) > 0 {
		out += "; server: " + strings.Join(argumentsOf(e, v), " ")
	}
	if v.Tune != nil {
		out += "; " + tuneText(v.Tune)
	}
	return out, nil
}

// describeLanes describes the lanes of a variant by their numbers. With several cards, these are the same on
// each, except for processors.
func describeLanes(e *experiment.Experiment, v experiment.Variant) (string, error) {
	var first, out []string
	for card := range cardsOf(e) {
		in, err := e.IntentOf(&v, card)
		if err != nil {
			return "", err
		}
		for i, l := range in.Lanes {
			cpus := device.FormatCPUList(l.CPUs)
			switch {
			case card == 0:
				first, out = append(first, cpus), append(out, laneText(l))
			case cpus != first[i] && cpus != "":
				out[i] += fmt.Sprintf(", on %s %s", e.Hosts.SUT.Ports()[card].Device, cpus)
			}
		}
	}
	return strings.Join(out, "; "), nil
}

// argumentsOf returns the arguments that a variant adds to the server's. A name whose value is known
// only at the start remains.
func argumentsOf(e *experiment.Experiment, v experiment.Variant) (out []string) {
	values := e.Known(&v)
	for _, a := range v.Server.Arguments {
		if text, err := experiment.Expand(a, values); err == nil {
			a = text
		}
		out = append(out, a)
	}
	return out
}

// laneText describes a lane by its numbers.
func laneText(l intent.Lane) string {
	parts := []string{fmt.Sprintf("lane %s with %s", l.Name, amount(l.Queues, "queue"))}
	switch p := l.Poller; {
	case p.Count > 0:
		parts = append(parts, amount(p.Count, "poller"))
	case p.Kind != intent.PollerAuto:
		parts = append(parts, "poller "+string(p.Kind))
	}
	if slices.ContainsFunc(l.Members, func(m intent.Member) bool { return m.Aligned }) {
		parts = append(parts, "aligned")
	}
	if u := l.Moderation.RxUsecs; u != nil {
		parts = append(parts, fmt.Sprintf("interrupts each %d us", *u))
	}
	if len(l.CPUs) > 0 {
		parts = append(parts, "processors "+device.FormatCPUList(l.CPUs))
	}
	return strings.Join(parts, ", ")
}
