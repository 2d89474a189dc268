// SPDX-License-Identifier: Apache-2.0

// Package lab builds the hosts of an experiment in network namespaces: the system under test
// (sut), a client and a noise source. A switch joins them. The link between switch and SUT has a
// limited rate in each direction. The SUT's port is an emulated card (package lab/emucard).
//
//	client ── p-client ┐                ┌ downlink ═ downlink-end ┐
//	                   ├ switch (eBPF) ─┤  (TBF: link, buffer)    ├ p-sut ── lane0
//	noise ─── p-noise ─┘                └ uplink-end ═══ uplink ──┘  card
//	                                       (HTB: link, transmit arbiter)
//
// Before the lab makes an object, it records the object. So Down can remove everything, even if the
// lab was killed at any point. The lab does not change the host's own interfaces, sysctls or
// namespaces. It refuses a second lab with the same name. docs/lab.md describes what is emulated
// and what is real.
package lab
