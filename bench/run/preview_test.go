// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"testing"
)

// TestPapersNumbers: the dry run of each paper's experiment, on the paper's hosts, prints the numbers
// of the paper.
func TestPapersNumbers(t *testing.T) {
	ats := []string{
		"values: $threads 112, $queues 26 on each of 4 cards, $pollers 4\n",
		"clients: 4 hosts with 4 generators in all\n",
		"ens801f0 at 192.168.150.125, polled by 36-43",
		"variant: paper-on: without noise, lane ats with 26 queues, 4 pollers, interrupts each 100 us, " +
			"processors 0-7, on ens801f0 36-43, on ens802f0 36-43; tuned by hand: governor performance; " +
			"energy preference performance; stopped: irqbalance, firewalld; net.core.netdev_max_backlog 250000; ",
		"variant: paper-off: without noise, no lanes; tuned by hand: channels: 36; interrupts on processors: node; ",
	}
	varnish := []string{
		"values: $threads 288, $queues 16 on each of 8 cards, $pollers 16\n",
		"load point: 768 connections", "load point: 1600 connections", "load point: 12800 connections",
		"bond0 of them at 10.9.0.1",
	}
	for name, x := range map[string]struct {
		hosts string
		want  []string
	}{
		"memcached-connections": {"memcached", []string{
			"values: $threads 110, $queues 110, $pollers 110\n", "sut: 110 processors 2-111, ",
			"clients: 10 hosts with 100 generators in all\n",
			"variant: lane: without noise, lane memcached with 110 queues, aligned; server: -N 110\n",
			"variant: paper-on: without noise, lane memcached with 110 queues, poller application, aligned, " +
				"interrupts each 500 us; server: -N 110; tuned by hand: stopped: irqbalance\n",
			"variant: paper-off: without noise, no lanes; server: -N 110; tuned by hand: each transmit queue ",
		}},
		"memcached-client-lane": {"memcached", []string{"lane memcached with 110 queues"}},
		"aerospike-read": {"aerospike", []string{
			"generators: 15300000/s takes 219 at 70000/s each: 37, each with a processor, on each of 6 clients; " +
				"the run has 216, ",
			"values: $threads 56 for each of 2 instances, $queues 28 on each of 2 cards",
			"clients: 6 hosts with 216 generators in all\n",
			"variant: paper-off: without noise, no lanes; tuned by hand: channels: cores; ",
			"load point: 2556 connections", "lane aerospike with 28 queues, poller application, aligned",
		}},
		"web-cache-small": {"ats", append([]string{"load point: 180000/s, 400 connections\n"}, ats...)},
		"web-cache-video": {"ats", ats}, "web-cache-small-tls": {"ats", ats}, "web-cache-video-tls": {"ats", ats},
		"kubernetes-memcached": {"kubernetes", []string{
			"load point: 10000/s, 8 connections\n",
			"adqtc1: 4 queues, adqtc2: 4 queues, adqtc3: 4 queues, adqtc4: 4 queues, adqtc5: 32 queues, " +
				"default: 16 queues; tuned by hand: governor performance; energy preference performance; " +
				"stopped: irqbalance\n",
		}},
		"memcached-shared-link": {"kubernetes", []string{"lane memcached with 4 queues, aligned; server: -N 4\n"}},
		"vod":                   {"varnish", varnish}, "live-linear": {"varnish", varnish},
		"live-linear-ats": {"varnish", varnish}, "live-linear-nginx": {"varnish", varnish},
		"live-linear-ktls": {"varnish", varnish},
	} {
		h, err := ReadHosts("../../experiments/hosts/" + x.hosts + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		f, _, err := ReadOn("../../experiments/"+name+".yaml", h)
		if err != nil {
			t.Error(err)
			continue
		}
		var b strings.Builder
		if err := Describe(&b, f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range x.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", name, want, b.String())
			}
		}
	}
}
