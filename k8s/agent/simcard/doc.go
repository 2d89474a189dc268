// SPDX-License-Identifier: Apache-2.0

// Package simcard tests pods' lanes on the simulated card (test/simcard), in a guest. A test gives
// the agent a policy and pods, sends packets, and checks by the card's counters which queues they
// took. The package is in this module because niclane's own module does not depend on Kubernetes.
// Run it with go run ./test/simcard/run -suites pods.
package simcard
