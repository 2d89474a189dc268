// SPDX-License-Identifier: Apache-2.0

// Package part holds the tasks that a host runs in an experiment. Each is a process of
// niclane-bench (see Parts in bench/agent). They share the packages sock, thread and ready.
package part
