// SPDX-License-Identifier: Apache-2.0

// Package agent has the agent, "niclane bench serve", that runs on each host of an experiment,
// and the client with which an orchestrator controls it.
//
// Both sides authenticate: TLS 1.3 with certificates of one authority. The agent accepts only
// the clients that it was given by name. The protocol is HTTP/2 with JSON. One orchestrator at
// a time has a session. A session is one long HTTP request, on which both sides send a heartbeat
// every second. A session ends when its orchestrator ends it, is silent for longer than the
// lease, or loses its connection. The agent then ends every process that it started, rolls back
// the lanes, restores what was tuned and removes the session's files. If the agent itself is killed, its keeper, a
// separate process, does that instead.
//
// The agent starts niclane's own parts (generator, noise, servers) as an unprivileged user. It
// starts other programs only if its configuration allows them. It uses no shell. It refuses
// another version of niclane, a second orchestrator, and requests beyond its limits of size and
// time.
package agent
