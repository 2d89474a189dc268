// SPDX-License-Identifier: Apache-2.0

package main

// skips are the tests that some of the kernels cannot run.
var skips = []skip{
	{suite: "internal/netdev", test: "TestNAPIConfigRoundTrip", before: "6.8", said: "no netdev-genl", why: "napi-get is new in 6.8"},
	{suite: "internal/netdev", test: "TestNAPIConfigRoundTrip", since: "6.8", before: "6.13", said: "no napi-set", why: "napi-set is new in 6.13"},
	{suite: "internal/netdev", test: "TestThreadRoundTrip", before: "6.8", said: "no netdev-genl", why: "napi-get is new in 6.8"},
	{suite: "internal/netdev", test: "TestThreadRoundTrip", since: "6.8", before: "6.17", said: "takes no threaded", why: "threads by NAPI are new in 6.17"},
	{suite: "internal/netdev", test: "TestAbsent", before: "6.8", said: "no netdev-genl", why: "napi-get is new in 6.8"},
	{suite: "internal/netdev", test: "TestMapDown", before: "6.8", said: "no netdev-genl", why: "queue-get is new in 6.8"},
	{suite: "internal/netdev", test: "TestXDPFeatures", before: "6.8", said: "no netdev-genl", why: "netdev is opened for napi-get, new in 6.8"},
	{suite: "poller", test: "TestBusyThread", before: "6.19", said: "no threaded busy poll", why: "it is new in 6.19"},
	{suite: "observe", test: "TestQueueToNAPI", before: "6.8", said: "netdev-genl", why: "queue-get is new in 6.8"},
}

// A defect is a suite that fails on some kernels for a reason that is known.
// Where it passes nevertheless is a problem: the entry has to go.
type defect struct {
	suite         string
	since, before string // as in skip
	why           string
}

// defects that are known.
var defects []defect
