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
	MeetsSLA   = "meets-sla"  // whether "with" and "without" meet an SLA
	Beyond     = "beyond"     // share of requests that took longer than a time
	LinkShare  = "link-share" // what the server's device sent, as a share of the link's rate
	PerWatt    = "per-watt"   // what the server's device sent, in Gbit/s, divided by the power in W
)

// A Claim is one figure of a paper.
type Claim struct {
	Measure string
	P       float64 // percentile, 0 to 100; 0 if the Measure has none
	Text    string  // the claim in the paper's words
	// Paper is the ratio that the paper states: its value with, divided by that without. For LinkShare
	// and PerWatt, it is the value itself; for Beyond, the share without.
	Paper float64
	// SLA is the index of the SLA in the experiment, for RateInSLA and MeetsSLA. Both says that in the
	// paper "without" meets it too.
	SLA  int
	Both bool
	// Above is the number of connections, of the Of at most, above which the paper makes the claim at
	// every load; 0: the claim is about the highest load. A smaller form scales it.
	Above, Of int
	// Over is the time of Beyond, in ns.
	Over int64
	// Sockets and PerClient say for LinkShare and PerWatt on which server and with how many connections
	// of each client the paper has the figure.
	Sockets, PerClient int
}

// A Study is an experiment that repeats a paper, and the paper's claims.
type Study struct {
	Experiment string // name of the experiment's file
	// Hosts says that the study runs only with a hosts file, not in the lab.
	Hosts  bool
	Paper  string
	Claims []Claim
	// Lane is the variant that corresponds to the paper's "with". Bases are the variants with which it
	// is compared. The first is the paper's "without", the second a well-tuned host without lanes. A
	// paper without lanes has no Bases: Lane is then the variant that has the paper's conditions.
	Lane  string
	Bases []string
	// WhyInLab explains the result in the lab from the counters; "" if they do not explain it.
	WhyInLab string
	// Differences say how the experiment differs from the paper's, other than by the machine's size.
	// There are further differences: DifferencesInLab only in the lab, OfVariants of Lane and Bases, if
	// the paper's own columns were not measured, and OfOne of a server with one instance.
	Differences, DifferencesInLab, OfVariants, OfOne []string
}

var (
	webCacheVariants = []string{
		"the paper names no other traffic; here noise takes 30 % of the link in each direction, except in “idle” " +
			"and “idle-lane”",
	}
	webCache = []string{
		"arrivals are a Poisson process; vegeta sends at equal intervals",
		"times to the first byte are measured; vegeta does not measure them, so how the paper got them is not known",
	}
	// Latency is that to the last byte.
	small = []Claim{
		{Measure: Mean, Text: "10 KB: mean 52 % lower", Paper: 0.48},
		{Measure: Percentile, P: 99, Text: "10 KB: P99 83 % lower", Paper: 0.17},
		{Measure: Percentile, P: 99.5, Text: "10 KB: P99.5 69 % lower", Paper: 0.31},
		{Measure: FirstByte, P: 99, Text: "time to first byte: P99 83 % lower", Paper: 0.17},
		{Measure: FirstByte, P: 99.5, Text: "time to first byte: P99.5 70 % lower", Paper: 0.30},
		{Measure: Percentile, P: 99, Text: "time to last byte: P99 83 % lower", Paper: 0.17},
		{Measure: Percentile, P: 99.5, Text: "time to last byte: P99.5 69 % lower", Paper: 0.31},
	}
	video = []Claim{
		{Measure: Mean, Text: "4 MB: mean 13 % lower", Paper: 0.87},
		{Measure: Percentile, P: 99, Text: "4 MB: P99 37 % lower", Paper: 0.63},
		{Measure: Percentile, P: 99.5, Text: "4 MB: P99.5 35 % lower", Paper: 0.65},
	}
	delivery = []string{
		"the paper has no lanes and no other traffic: claims are held against the variant without both, by what the " +
			"SUT's device sent",
		"the paper claims what certain servers do: a share of the link or Gbit/s per W of another server is no " +
			"better or worse Varnish",
	}
	// live and vod are the figures that the paper names for its workloads: 2x 6780E, 1x 6780E, 1x 6766E
	// and 2x 6766E.
	live = []Claim{
		{Measure: LinkShare, Text: "live, two sockets: 1,556.67 Gbit/s of 1,600, 97.3 %", Paper: 1556.67 / 1600,
			Sockets: 2, PerClient: 100},
		{Measure: LinkShare, Text: "live, one socket: 786.47 Gbit/s of 800, 98.3 %", Paper: 786.47 / 800, Sockets: 1,
			PerClient: 48},
		{Measure: PerWatt, Text: "live, one socket: 1.57 Gbit/s per W", Paper: 1.57, Sockets: 1, PerClient: 48},
		{Measure: PerWatt, Text: "live, two sockets: 1.53 Gbit/s per W", Paper: 1.53, Sockets: 2, PerClient: 48},
		{Measure: PerWatt, Text: "live, two sockets, at 1,556.67 Gbit/s: 1.41 Gbit/s per W", Paper: 1.41, Sockets: 2,
			PerClient: 100},
	}
	vod = []Claim{
		{Measure: LinkShare, Text: "VoD from NVMe, two sockets: 838.93 Gbit/s of 1,600, 52.4 %", Paper: 838.93 / 1600,
			Sockets: 2, PerClient: 48},
		{Measure: LinkShare, Text: "VoD from NVMe, one socket: 555.27 Gbit/s of 800, 69.4 %", Paper: 555.27 / 800,
			Sockets: 1, PerClient: 800},
		{Measure: PerWatt, Text: "VoD, one socket: 0.93 Gbit/s per W", Paper: 0.93, Sockets: 1, PerClient: 48},
		{Measure: PerWatt, Text: "VoD, two sockets: 0.79 Gbit/s per W", Paper: 0.79, Sockets: 2, PerClient: 100},
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
			{Measure: Percentile, P: 99, Text: "P99 more than half to 60 % lower at every load above 550 connections",
				Paper: 0.50, Above: 550, Of: 4400},
			{Measure: Percentile, P: 50, Text: "P50 49 to 60 % lower at every load above 550 connections", Paper: 0.51,
				Above: 550, Of: 4400},
			{Measure: Rate, Text: "throughput more than 70 % higher from 440 connections on", Paper: 1.70, Above: 439,
				Of: 4400},
			{Measure: RateInSLA, Text: "throughput within the SLA 142 % higher", Paper: 2.42},
			{Measure: MeetsSLA, P: 99.9, Text: "P99.9 exceeds the SLA at 2,090 of 4,400 connections without, at none " +
				"with"},
			{Measure: MeetsSLA, P: 99.9, SLA: 1, Text: "with ADQ an SLA of hundreds of microseconds is possible"},
		},
		WhyInLab: "Seen on a quiet machine of two processors (docs/papers.md): receive queues and steering cost " +
			"nothing. The first cost is transmit: the lab's card can rank lanes only by HTB in front of all its " +
			"queues, under one lock, and packets then come in smaller batches. The second cost is the pollers' " +
			"threads: they have no processor of their own and run before the server. Without other traffic the lane " +
			"has nothing to overtake, so both costs are pure loss.",
		Differences: []string{
			"no noise, as in the paper: the lane has no other traffic to keep away, it only steers and polls"},
		OfVariants: []string{"the paper's baseline had busy polling, NAPI IDs and symmetric queues on and lacked " +
			"only the traffic class and the filter: its “off” lies between our “off” and “tuned”"},
	},
	{
		Experiment: "memcached-shared-link", Paper: "ADQ in Kubernetes (Intel, 2022)", Lane: "lane",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{
			{Measure: RateInSLA, Text: "three times the rate, 35,000 to 100,000 per second", Paper: 3.0},
			{Measure: MeetsSLA, P: 99.9, Both: true, Text: "P99.9 within 1 ms in both, at every rate"},
			{Measure: MeetsSLA, P: 99.99, SLA: 1, Text: "P99.99 within 1 ms only with, at every rate; without, not " +
				"even at 3,000 per second"},
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
			{Measure: RateInSLA, Text: "three times the rate, 35,000 to 100,000 per second", Paper: 3.0},
			{Measure: MeetsSLA, P: 99.9, Both: true, Text: "P99.9 within 1 ms in both, at every rate"},
			{Measure: MeetsSLA, P: 99.99, SLA: 1, Text: "P99.99 within 1 ms only with, at every rate; without, not " +
				"even at 3,000 per second"},
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
		Claims: []Claim{{Measure: Percentile, P: 99, Text: "a further gain from a lane on the clients is expected, " +
			"without a figure"}, {Measure: Rate, Text: "the same for throughput"}},
		DifferencesInLab: []string{"only the load leaves the lab's client, so its lane has no other traffic to " +
			"keep away"},
	},
	{
		Experiment: "redis-mixed", Lane: "lane",
		Paper: "none: a single-threaded server; the papers say that such servers need no change",
		Bases: []string{"off", "tuned"},
		Claims: []Claim{{Measure: Percentile, P: 99, Text: "P99; they give no figure"},
			{Measure: Percentile, P: 99.9, Text: "P99.9, likewise"},
			{Measure: Rate, Text: "throughput, likewise"}},
	},
	{
		Experiment: "web-cache-small", Paper: "ADQ with Apache Traffic Server (Intel, 2022)", Lane: "lane",
		Bases: []string{"off", "tuned"}, Claims: small, Differences: webCache, OfVariants: webCacheVariants,
	},
	{
		Experiment: "web-cache-small-tls", Paper: "the same under TLS; it gives no separate figures",
		Lane: "lane", Bases: []string{"off", "tuned"}, Claims: small, Differences: webCache,
		OfVariants: webCacheVariants,
	},
	{
		Experiment: "web-cache-video", Paper: "ADQ with Apache Traffic Server (Intel, 2022)", Lane: "lane",
		Bases: []string{"off", "tuned"}, Claims: video, OfVariants: webCacheVariants,
		Differences: append(webCache, "the paper gives no rate for these objects"),
	},
	{
		Experiment: "web-cache-video-tls", Paper: "the same under TLS; it gives no separate figures",
		Lane: "lane", Bases: []string{"off", "tuned"}, Claims: video, OfVariants: webCacheVariants,
		Differences: append(webCache, "the paper gives no rate for these objects"),
	},
	{
		Experiment: "aerospike-read", Paper: "Aerospike with ADQ (Intel, 2020)", Lane: "idle-lane",
		Bases: []string{"idle"},
		Claims: []Claim{
			{Measure: Percentile, P: 99, Text: "P99 under 320 µs instead of 600 µs", Paper: 0.533},
			{Measure: Mean, Text: "weighted mean of buckets 18.8 % lower", Paper: 0.812},
			{Measure: Beyond, Over: 360e3, Text: "11 % of the requests took longer than 360 µs without, none with",
				Paper: 0.11},
			{Measure: Rate, Text: "15.3 instead of 8.6 million transactions per second", Paper: 1.78},
		},
		Differences: []string{
			"the generator is Aerospike's Go client; the paper's is the asynchronous C benchmark, which takes less " +
				"processor time for a request",
			"the mean is that of all requests; the paper's comes from buckets of 40 µs, ± 20 µs",
		},
		OfVariants: []string{
			"claims are held against variants without noise, “idle-lane” and “idle”, as in the paper; the others " +
				"have noise on half of the link",
			"the paper's “without” pins threads to NUMA nodes (auto-pin numa); “idle” does not pin them, and is a " +
				"weaker baseline",
		},
		OfOne: []string{"one instance on one card; the paper has two instances on two cards"},
	},
	{
		Experiment: "live-linear", Paper: "Varnish on Xeon 6 (Varnish Software, 2024)", Lane: "idle", Claims: live,
		Differences:      append(delivery, "a separate process, hitch, does TLS; the paper's Varnish has TLS built in"),
		DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "live-linear-nginx", Paper: "the same, TLS inside the server", Lane: "idle", Claims: live,
		Differences: delivery, DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "live-linear-ats", Paper: "the same, TLS inside the server", Lane: "idle", Claims: live,
		Differences: delivery, DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "live-linear-ktls", Paper: "the same, TLS by the kernel", Lane: "idle-kernel", Claims: live,
		Differences: delivery, DifferencesInLab: deliveryInLab,
	},
	{
		Experiment: "vod", Paper: "Varnish on Xeon 6 (Varnish Software, 2024)", Lane: "idle", Claims: vod,
		Differences: append(delivery, "Traffic Server without a cache in memory replaces Varnish Enterprise and its "+
			"own store"), DifferencesInLab: deliveryInLab,
	},
}
