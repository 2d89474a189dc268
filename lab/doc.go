// SPDX-License-Identifier: Apache-2.0

// Package lab builds the hosts of an experiment in network namespaces: the
// system under test (sut), a client and a noise source, joined by a switch,
// with a link of finite rate to the SUT in each direction. The SUT's port is
// an emulated card (package lab/emucard).
//
//	client ── p-client ┐                ┌ downlink ═ downlink-end ┐
//	                   ├ switch (eBPF) ─┤  (TBF: link, buffer)    ├ p-sut ── lane0
//	noise ─── p-noise ─┘                └ uplink-end ═══ uplink ──┘  card
//	                                       (HTB: link, transmit arbiter)
//
// The lab records what it is about to make before it makes it, so that Down
// cleans up after a kill at any point. It makes no change to the host's own
// interfaces, sysctls or namespaces, and refuses to start twice under a name.
// docs/lab.md says what is emulated and what is real.
package lab
