// SPDX-License-Identifier: Apache-2.0

// Package trial measures what lanes change for services under their own traffic. It makes the lanes
// of each variant and takes them away again, window by window, in a random and balanced order, and
// returns the windows as a result of package bench/result, which judges them.
//
// It knows neither a device nor a lanes file: a Switcher makes the lanes and a Meter measures, so
// that something other than this host, such as a pod's node, can do both. It refuses to go on when
// something else has changed the lanes, when a service was restarted, and when the traffic has
// ended. However a trial ends, it undoes what it made; against its own death the Switcher guards.
package trial
