// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"os"
	"slices"
)

// isCard reports whether a device is hardware, or a virtual machine's: such a device completes its
// transmissions.
func isCard(device string) bool {
	_, err := os.Stat("/sys/class/net/" + device + "/device")
	return err == nil
}

// missing returns the stages that this kernel and device cannot show of the targets' requests, and notes on
// what else they cannot. has are the kernel's tracepoints.
func missing(has []string, cgroupRoot string, completions bool, o Options) (out map[Stage]string, notes []string) {
	out = map[Stage]string{}
	no := func(tracepoint string) bool { return !slices.Contains(has, tracepoint) }
	uses := func(protocol string) bool {
		return slices.ContainsFunc(o.Targets, func(t Target) bool { return t.Protocol == protocol })
	}
	if uses("udp") && no("sk_data_ready") {
		out[StackToSocket] = "udp: part of socket-to-app, because Linux before 6.3 does not show when the socket has it"
	}
	if uses("tcp") && no("sock_send_length") {
		out[SocketToCard] = "tcp: from the qdisc on, because Linux before 6.3 does not show the write; what waits " +
			"for TCP's pacing or window counts as app"
	}
	if uses("udp") && cgroupRoot == "" {
		out[SocketToApp] = "udp: no control groups of version 2 are mounted, so reads are not seen and no request " +
			"is followed"
	}
	if !completions {
		out[Card] = o.Device + " is a virtual device without transmit completions"
	}
	if no("kfree_skb") {
		notes = append(notes, "drops are not counted, because Linux before 5.17 frees other packets in the same way")
	}
	return out, notes
}
