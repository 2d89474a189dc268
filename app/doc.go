// SPDX-License-Identifier: Apache-2.0

// Package app brings applications into applied lanes. It starts an application in its lane, or
// takes in a running one. It sets the application's control groups, processors and memory, and the
// priority that the lane's classifier gives by control group. It also leads each connection to the
// listener whose thread runs on the processor of the connection's queue.
//
// The package does not change an application or its files. It does not replace a program that
// another owner attached to an application's sockets. The kernel or the user tells it which thread
// serves a listener; it never guesses. If it does not know the thread, the kernel's hash chooses
// the listener.
//
// Before the package makes an object, it records the object below the run directory. So Detach and
// Sweep find every object, even if the process that made it was killed.
package app
