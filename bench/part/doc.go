// SPDX-License-Identifier: Apache-2.0

// Package part holds what a host is told to do in an experiment, each a process of
// niclane-bench (bench/agent, Part*), with what these processes share: sock,
// thread and ready.
package part
