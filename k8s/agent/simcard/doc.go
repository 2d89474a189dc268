// SPDX-License-Identifier: Apache-2.0

// Package simcard tests pods' lanes on the simulated card (test/simcard), in a guest. The
// input is a policy and a pod as the runtime reports it; the output is the packets in their
// queues, as the card counts them. It is in this module because niclane's own module does not
// depend on Kubernetes. Run it with go run ./test/simcard/run -suites pods.
package simcard
