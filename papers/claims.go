// SPDX-License-Identifier: Apache-2.0

// Package papers compares the claims of five published papers with niclane's measurements. From the
// results of the experiments that repeat the papers, it makes one page. It adds no claims of its
// own. One table has each claim and where the paper makes it. Measured values come only from
// result.json. If a run failed, or a sample is too small for a figure, the page says so.
package papers

// What a claim is about.
const (
	Percentile = "percentile" // percentile of the latency
	Mean       = "mean"
	FirstByte  = "first-byte" // percentile of the latency to the first byte
	Rate       = "rate"       // requests per second
	RateInSLA  = "rate-in-sla"
	LinkShare  = "link-share" // rate of payload as a share of the link's rate
)

// A Claim is one figure of a paper.
type Claim struct {
	Measure string
	P       float64 // percentile, 0 to 100; 0 if the Measure has none
	Text    string  // the claim in the paper's words
	// Paper is the ratio that the paper states: its value with, divided by that without. For
	// LinkShare, it is the share itself.
	Paper float64
}

// A Study is an experiment that repeats a paper, and the paper's claims.
type Study struct {
	Experiment string // name of the experiment's file
	// Hosts says that the study runs only with a hosts file, not in the lab.
	Hosts  bool
	Paper  string
	Claims []Claim
	// Lane is the variant that corresponds to the paper's "with". Bases are the variants with which it
	// is compared. The first is the paper's "without", the second a well-tuned host without lanes.
	Lane  string
	Bases []string
	// WhyInLab explains the result in the lab from the counters; "" if they do not explain it.
	WhyInLab string
	// Differences say how the experiment differs from the paper's, other than by the machine's size.
	// DifferencesInLab are further differences that exist only in the lab.
	Differences, DifferencesInLab []string
}

var (
	webCache = []string{
		"the paper names no other traffic; here noise takes 30 % of the link in each direction, except in “idle” " +
			"and “idle-lane”",
		"arrivals are a Poisson process; vegeta sends at equal intervals",
		"times to the first byte are measured; vegeta does not measure them, so how the paper got them is not known",
	}
	memcached = []string{
		"the paper's baseline had busy polling, NAPI IDs and symmetric queues on and lacked only the traffic class " +
			"and the filter: its “off” lies between our “off” and “tuned”",
	}
	delivery = []string{
		"the paper has no lanes: it claims the throughput and the watts of a server, so only the share of the link " +
			"can be compared",
	}
	deliveryInLab = []string{
		"the lab's link is thousands of times slower than the paper's, its disk and processors are not: a share of " +
			"the link shows that nothing broke; it says nothing about a large server",
		"watts are not measured in the lab: there is no sensor",
	}
)

// Studies are in the order of the page.
var Studies = []Study{
	{
		Experiment: "memcached-connections", Paper: "ADQ with memcached (Intel, 2020)", Lane: "lane",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{
			{Percentile, 99, "P99 more than half to 60 % lower above 550 connections", 0.40},
			{Percentile, 50, "P50 49 to 60 % lower above 550 connections", 0.51},
			{Rate, 0, "throughput more than 70 % higher from 440 connections on", 1.70},
			{RateInSLA, 0, "throughput within the SLA 142 % higher", 2.42},
		},
		WhyInLab: "Seen on a quiet machine of two processors (docs/papers.md): receive queues and steering cost " +
			"nothing. The first cost is transmit: the lab's card can rank lanes only by HTB in front of all its " +
			"queues, under one lock, and packets then come in smaller batches. The second cost is the pollers' " +
			"threads: they have no processor of their own and run before the server. Without other traffic the lane " +
			"has nothing to overtake, so both costs are pure loss.",
		Differences: append(memcached,
			"no noise, as in the paper: the lane has no other traffic to keep away, it only steers and polls"),
	},
	{
		Experiment: "memcached-shared-link", Paper: "ADQ in Kubernetes (Intel, 2022)", Lane: "lane",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{
			{RateInSLA, 0, "three times the rate, 35,000 to 100,000 per second", 3.0},
			{Percentile, 99.9, "P99.9 within 1 ms in both", 0},
		},
		Differences: []string{
			"an open loop; the paper's generator was a closed loop, so its “three times” is the ratio of mean " +
				"latencies",
			"4:1 gets to sets over the keys of the file, proven by the server; the paper's generator ignored its " +
				"file and measured misses",
			"no Kubernetes: this measures the lane, not how a pod gets one",
		},
	},
	{
		Experiment: "kubernetes-memcached", Hosts: true, Paper: "ADQ in Kubernetes (Intel, 2022), in a cluster",
		Lane: "lane", Bases: []string{"off"},
		Claims: []Claim{
			{RateInSLA, 0, "three times the rate, 35,000 to 100,000 per second", 3.0},
			{Percentile, 99.9, "P99.9 within 1 ms in both", 0},
		},
		Differences: []string{
			"an open loop, and the mix that the paper's file asks for, as in memcached-shared-link",
			"one pod at a time, a new one for each window; the paper ran both at the same time",
			"clients are outside the cluster and use the pod's address; the paper's were pods of another node and " +
				"used a service",
		},
	},
	{
		Experiment: "memcached-client-lane", Paper: "Aerospike with ADQ (Intel, 2020), its outlook", Lane: "both",
		Bases: []string{"off", "tuned", "lane"},
		Claims: []Claim{{Percentile, 99, "a further gain from a lane on the clients is expected, without " +
			"a figure", 0}, {Rate, 0, "the same for throughput", 0}},
		DifferencesInLab: []string{"only the load leaves the lab's client, so its lane has no other traffic to " +
			"keep away"},
	},
	{
		Experiment: "redis-mixed", Lane: "lane",
		Paper: "none: a single-threaded server; the papers say that such servers need no change",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{{Percentile, 99, "P99; they give no figure", 0},
			{Percentile, 99.9, "P99.9, likewise", 0}, {Rate, 0, "throughput, likewise", 0}},
	},
	{
		Experiment: "web-cache-small", Paper: "ADQ with Apache Traffic Server (Intel, 2022)", Lane: "lane",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{
			{Mean, 0, "10 KB: mean 52 % lower", 0.48}, {Percentile, 99, "10 KB: P99 83 % lower", 0.17},
			{Percentile, 99.5, "10 KB: P99.5 69 % lower", 0.31},
			{FirstByte, 99, "time to first byte: P99 83 % lower", 0.17}, {FirstByte, 99.5,
				"time to first byte: P99.5 70 % lower", 0.30},
		},
		Differences: webCache,
	},
	{
		Experiment: "web-cache-small-tls", Paper: "the same under TLS; it gives no separate figures",
		Lane: "lane", Bases: []string{"off", "tuned"},
		Claims: []Claim{{Mean, 0, "10 KB: mean 52 % lower", 0.48}, {Percentile, 99, "10 KB: P99 83 % lower", 0.17},
			{FirstByte, 99, "time to first byte: P99 83 % lower", 0.17}},
		Differences: webCache,
	},
	{
		Experiment: "web-cache-video", Paper: "ADQ with Apache Traffic Server (Intel, 2022)", Lane: "lane",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{{Mean, 0, "4 MB: mean 13 % lower", 0.87}, {Percentile, 99, "4 MB: P99 37 % lower", 0.63},
			{Percentile, 99.5, "4 MB: P99.5 35 % lower", 0.65}},
		Differences: append(webCache, "the paper gives no rate for these objects"),
	},
	{
		Experiment: "web-cache-video-tls", Paper: "the same under TLS; it gives no separate figures",
		Lane: "lane", Bases: []string{"off", "tuned"},
		Claims:      []Claim{{Mean, 0, "4 MB: mean 13 % lower", 0.87}, {Percentile, 99, "4 MB: P99 37 % lower", 0.63}},
		Differences: webCache,
	},
	{
		Experiment: "aerospike-read", Paper: "Aerospike with ADQ (Intel, 2020)", Lane: "lane",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{
			{Percentile, 99, "P99 under 320 µs instead of 600 µs", 0.533},
			{Mean, 0, "weighted mean of buckets 18.8 % lower", 0.812}, {Rate, 0,
				"15.3 instead of 8.6 million transactions per second", 1.78},
		},
		Differences: []string{"the mean is that of all requests; the paper's comes from buckets of 40 µs, ± 20 µs"},
	},
	{
		Experiment: "live-linear", Paper: "Varnish on Xeon 6 (Varnish Software, 2024)", Lane: "lane",
		Bases:            []string{"off", "tuned"},
		Claims:           []Claim{{LinkShare, 0, "live: 1,556.67 Gbit/s, 97.3 % of the link", 0.973}},
		Differences:      append(delivery, "a separate process, hitch, does TLS; the paper's Varnish has TLS built in"),
		DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "live-linear-nginx", Paper: "the same, TLS inside the server", Lane: "lane",
		Bases:  []string{"off", "tuned"},
		Claims: []Claim{{LinkShare, 0, "live: 1,556.67 Gbit/s, 97.3 % of the link", 0.973}}, Differences: delivery,
		DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "live-linear-ats", Paper: "the same, TLS inside the server", Lane: "lane",
		Bases:  []string{"off", "tuned"},
		Claims: []Claim{{LinkShare, 0, "live: 1,556.67 Gbit/s, 97.3 % of the link", 0.973}}, Differences: delivery,
		DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "live-linear-ktls", Paper: "the same, TLS by the kernel", Lane: "kernel", Bases: []string{"off"},
		Claims: []Claim{{LinkShare, 0, "live: 1,556.67 Gbit/s, 97.3 % of the link", 0.973}}, Differences: delivery,
		DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "vod", Paper: "Varnish on Xeon 6 (Varnish Software, 2024)", Lane: "lane",
		Bases:  []string{"off", "tuned"},
		Claims: []Claim{{LinkShare, 0, "VoD: 838.93 Gbit/s from NVMe, 52 to 70 % of the link", 0.70}},
		Differences: append(delivery, "Traffic Server without a cache in memory replaces Varnish Enterprise and its "+
			"own store"), DifferencesInLab: deliveryInLab,
	},
}
