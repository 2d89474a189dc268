// SPDX-License-Identifier: Apache-2.0

// Package selftest tries lanes on a device that carries real traffic, with a
// second host at the other end, and makes one record of it: which mechanisms
// the device takes, whether the lanes' packets and no others arrived in the
// lanes' queues, what that cost in link flaps and connections, whether
// everything was put back, and what latency did.
//
// Each case applies one lanes file while connections of the lane and of others
// are open, watches their packets, rolls back, and compares every object that a
// plan can write with what it was. Nothing is ever confirmed: a case that is
// killed undoes itself by apply's guardian. The peer is an agent of package
// bench/agent, which runs generators, and nothing else.
//
// It says "unproven" where no packet showed it, and never "ok" for what it has
// not seen. docs/selftest.schema.json describes the record.
package selftest

//go:generate go test . -run SchemaIsCurrent -update
