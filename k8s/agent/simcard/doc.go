// SPDX-License-Identifier: Apache-2.0

// Package simcard tests pods' lanes on the simulated card (test/simcard), in a
// guest: from a policy and a pod as the runtime tells of it to packets in the
// queues that they belong to, as the card itself counts them. It is in this module
// because niclane's own has nothing of Kubernetes. go run ./test/simcard/run
// -suites pods runs it.
package simcard
