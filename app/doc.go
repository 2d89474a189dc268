// SPDX-License-Identifier: Apache-2.0

// Package app brings applications into applied lanes. It starts an application in its lane, or
// takes in a running one: control groups, processors, memory, and the priority that the lane's
// classifier gives by control group. It also leads each connection to the listener whose thread
// runs on the processor of the connection's queue.
//
// The package changes no application, writes no file of an application, and replaces no program
// that another owner attached to its sockets. It learns from the kernel or from the user which
// thread serves a listener, and never guesses. Where it does not know, the kernel's hash
// chooses.
//
// Every object is recorded below the run directory before it is made. Detach and Sweep
// therefore find it even if the process was killed.
package app
