// SPDX-License-Identifier: Apache-2.0

package main

// skips lists the tests that some of the kernels cannot run or need not run.
var skips = []skip{
	{suite: "internal/kernel/netdev", test: "TestNAPIConfigRoundTrip", before: "6.8", said: "no netdev-genl",
		why: "napi-get is new in 6.8"},
	{suite: "internal/kernel/netdev", test: "TestNAPIConfigRoundTrip", since: "6.8", before: "6.13",
		said: "no napi-set", why: "napi-set is new in 6.13"},
	{suite: "internal/kernel/netdev", test: "TestThreadRoundTrip", before: "6.8", said: "no netdev-genl",
		why: "napi-get is new in 6.8"},
	{suite: "internal/kernel/netdev", test: "TestThreadRoundTrip", since: "6.8", before: "6.17",
		said: "takes no threaded", why: "threads by NAPI are new in 6.17"},
	{suite: "internal/kernel/netdev", test: "TestAbsent", before: "6.8", said: "no netdev-genl",
		why: "napi-get is new in 6.8"},
	{suite: "internal/kernel/netdev", test: "TestMapDown", before: "6.8", said: "no netdev-genl",
		why: "queue-get is new in 6.8"},
	{suite: "internal/kernel/netdev", test: "TestXDPFeatures", before: "6.8", said: "no netdev-genl",
		why: "netdev is opened for napi-get, new in 6.8"},
	{suite: "poller", test: "TestBusyThread", before: "6.19", said: "no threaded busy poll", why: "it is new in 6.19"},
	{suite: cardSuite, test: "TestNetShaper", before: "6.13", said: "not in this kernel",
		why: "net-shaper is new in 6.13"},
	{suite: cardSuite, test: "TestRSSByNetlink", before: "6.17", said: "not in this kernel",
		why: "RSS contexts by netlink are new in 6.17"},
	{suite: cardSuite, test: "TestQueueToNAPI", before: "6.8", said: "not in this kernel",
		why: "queue-get is new in 6.8"},
	{suite: cardSuite, test: "TestQueueStats", before: "6.10", said: "not in this kernel",
		why: "qstats-get is new in 6.10"},
	{suite: cardSuite, test: "TestFlowerToQueue", before: "6.2", said: "not in this kernel",
		why: "skbedit queue_mapping on receive is new in 6.2"},
	{suite: lanesSuite, test: "TestShaper", before: "6.13", said: "not in this kernel",
		why: "net-shaper is new in 6.13"},
	{suite: lanesSuite, test: "TestPapers", before: "7.0", said: "run on the newest kernel",
		why: "it takes a minute, and needs nothing new"},
	{suite: lanesSuite, test: "TestAdqsetup", before: "7.0", said: "run on the newest kernel",
		why: "it takes a minute, and needs nothing new"},
	{suite: "internal/traffic/wait", test: "TestDatagrams/connected", before: "6.3", said: "does not show reads",
		why: "sock_recv_length is new in 6.3"},
	{suite: "live/waits", test: "TestDrops", before: "5.17", said: "drops are not counted",
		why: "the reason of kfree_skb is new in 5.17"},
	{suite: "lane/observe", test: "TestQueueToNAPI", before: "6.8", said: "netdev-genl",
		why: "queue-get is new in 6.8"},
}

// A defect is a suite that fails on some kernels for a known reason. If the suite passes on one of
// them, the entry must be removed.
type defect struct {
	suite         string
	since, before string // as in skip
	why           string
}

// defects lists the known defects; at present there are none.
var defects []defect
