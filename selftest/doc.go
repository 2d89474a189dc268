// SPDX-License-Identifier: Apache-2.0

// Package selftest tries lanes on a device with real traffic from a second host, and records
// the results. The record has the mechanisms that the device accepts, and whether exactly the
// lanes' packets arrived in the lanes' queues. It also has the lost links and connections,
// whether everything was restored, and the latency.
//
// Each case opens connections of the lane and others, applies one lanes file, watches the
// packets, rolls back, and compares every object that a plan can write with its earlier state.
// No apply is confirmed: apply's guard process undoes a case that is killed. The peer is an
// agent of package bench/agent and runs only generators.
//
// The outcome is "unproven" if no packet showed a result. It is never "ok" for what the package
// has not observed. docs/selftest.schema.json describes the record.
package selftest

//go:generate go test . -run SchemaIsCurrent -update
