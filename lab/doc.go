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
// The lab records each object before it makes it, so that Down cleans up after a kill at any
// point. It does not change the host's own interfaces, sysctls or namespaces, and refuses a
// second lab with the same name. docs/lab.md describes what is emulated and what is real.
package lab
