// SPDX-License-Identifier: Apache-2.0

// Package waits measures where requests to this host's services spend their time inside the host,
// from live traffic: a distribution for each wait between the card and the transmit
// completion, and what was in front of the slow ones. It needs no change of the service and no
// generator. Programs of eBPF are attached while a Collector is open, and end with the process
// (internal/traffic/wait).
//
// A request begins with the first data that arrives at a socket after the socket's previous answer,
// and ends with the first data that the service writes after it read the request. The package
// refuses to guess: a stage that this kernel or card cannot show is in Missing, with the reason; a
// request that it could not follow is counted as Lost. It changes no setting of the host.
package waits
