// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"slices"
)

// A Stage is one part of a request's time in this host.
type Stage int

// The stages. Each begins where the one before it ends, so the waits of a request from CardToStack
// to SocketToCard add up to Host.
const (
	// CardToStack: from the card to the packet in netif_receive_skb. It begins at the card's own
	// timestamp where the card gives one (Service.Stamped): moderation, the turn of the softirq or of the
	// NAPI's thread, and polls before the packet's. Else it begins at the interrupt, or in the backlog of
	// netif_rx or RPS. Then it is an upper bound without the moderation: the packet may have come after
	// the interrupt. Behind native XDP with a cpumap, it begins where XDP puts the packet into the
	// cpumap's queue.
	CardToStack Stage = iota
	// StackToSocket: to the data in the socket, which is readable from then on.
	StackToSocket
	// SocketToApp: to the read that takes the data: wake-up, run queue, or an application that is
	// busy with other requests.
	SocketToApp
	// App is the service's own time: from the read to the first write after it.
	App
	// SocketToCard: from the write to the packet's hand-over to the driver: TCP's small queues and
	// pacing, qdisc, departure time.
	SocketToCard
	// Card: from the driver to the transmit completion. It is after the request's end, and no part of
	// Host.
	Card
	// Host is the whole time of a request in this host: from the start of CardToStack to the end of
	// SocketToCard.
	Host
	Stages // the number of stages
)

var stageNames = [Stages]string{"card-to-stack", "stack-to-socket", "socket-to-app", "app", "socket-to-card", "card",
	"host"}

// String returns the stage's name in output and JSON, such as "card-to-stack".
func (s Stage) String() string {
	if s < 0 || s >= Stages {
		return fmt.Sprintf("stage %d", int(s))
	}
	return stageNames[s]
}

// MarshalText writes the stage's name.
func (s Stage) MarshalText() ([]byte, error) {
	if s < 0 || s >= Stages {
		return nil, fmt.Errorf("stage %d: want 0 to %d", int(s), Stages-1)
	}
	return []byte(stageNames[s]), nil
}

// UnmarshalText reads a stage's name.
func (s *Stage) UnmarshalText(b []byte) error {
	i := slices.Index(stageNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("stage %q: want one of %v", b, stageNames)
	}
	*s = Stage(i)
	return nil
}
