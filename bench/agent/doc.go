// SPDX-License-Identifier: Apache-2.0

// Package agent is the other hosts' side of an experiment, "niclane bench
// serve", and the client that an orchestrator talks to it with.
//
// Both sides prove who they are: TLS 1.3 with certificates that one authority
// vouches for, and of the clients only those that are named. The protocol is
// HTTP/2 with JSON. One orchestrator at a time holds a session, which is one
// request that lasts as long: both sides say every second that they are there.
// A session ends when its orchestrator says so, is silent for longer than the
// lease, or loses its connection; the agent then ends every process that it
// started, rolls back the lanes and removes its files. If the agent itself is
// killed a keeper, a process of its own session, does that in its place.
//
// It starts niclane's own parts (generator, noise, servers), as a user without
// rights, and other programs only if it was told which. No shell reads
// anything. It refuses another version of niclane, a second orchestrator, and
// whatever is larger or longer than its bounds.
package agent
