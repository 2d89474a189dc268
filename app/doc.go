// SPDX-License-Identifier: Apache-2.0

// Package app brings applications into lanes that are applied: it starts one
// in its lane, or takes in one that runs, with its control groups, processors,
// memory and the priority that the lane's classifier gives by control group,
// and has connections go to the listener whose thread sits on their queue's
// processor.
//
// It changes no application, writes no file of theirs, and replaces no program
// that somebody else attached to their sockets. Which thread serves a listener
// is found from the kernel or told, never guessed; what is not known is left to
// the kernel's hash.
//
// What it made is recorded below the run directory before it is made, so that
// whatever kills it, Detach and Sweep find it.
package app
