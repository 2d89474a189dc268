// SPDX-License-Identifier: Apache-2.0

// Package selftest tries lanes on a device with real traffic from a second host, and records the
// results. The record says which mechanisms the device accepts, and whether exactly the lanes'
// packets arrived in the lanes' queues. It also says how often the link and connections were lost,
// whether everything was restored, and what the latency was.
//
// Each case opens connections to the lane's port and to another port, applies a lanes file, watches
// the packets, and rolls back. Then it compares every object that a plan can write with its state
// before. No apply is confirmed, so if a case is killed, apply's guard process undoes it. The peer
// runs an agent of package bench/agent, and on it only generators.
//
// The outcome is "unproven" if no packet showed a result. It is never "ok" for something that the
// selftest has not observed. docs/selftest.schema.json describes the record.
package selftest

//go:generate go test . -run SchemaIsCurrent -update
