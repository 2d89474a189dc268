// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/tc"
	"github.com/niclane/niclane/lane/device"
)

// egressTarget is struct target of egress.c.
type egressTarget struct {
	Class  uint32 // HTB class or priority, 0 for none
	Queue  uint16 // first transmit queue
	Queues uint16 // number of queues, 0 for none
	DSCP   uint16 // plus one; 0 leaves it unchanged
	Lane   uint16 // row of the lane's share, 0 for none
	PCP    uint32 // as DSCP, of a VLAN tag
}

// ingressTarget is struct target of ingress.c.
type ingressTarget struct {
	Lane uint32
}

// maxQueue is the highest transmit queue that skb->queue_mapping can name: queue_mapping holds
// the queue's number plus one, and 65535 means none (NO_QUEUE_MAPPING).
const maxQueue = 65533

func encodeTarget(e device.FilterEntry) (egressTarget, error) {
	var t egressTarget
	none := e.Priority == "" && len(e.Queues) == 0 && e.Lane == 0 && e.DSCP == "" && e.PCP == ""
	if none != e.Unshaped() {
		return t, fmt.Errorf("%w: want priority, queues, lane, DSCP or PCP, and none of them without a protocol",
			unix.EINVAL)
	}
	if e.PCP != "" {
		pcp, err := device.ParsePCP(e.PCP)
		if err != nil {
			return t, fmt.Errorf("%w: %w", unix.EINVAL, err)
		}
		t.PCP = uint32(pcp) + 1
	}
	if e.Lane < 0 || e.Lane >= maxRows {
		return t, fmt.Errorf("%w: lane %d: want 0 to %d", unix.EINVAL, e.Lane, maxRows-1)
	}
	t.Lane = uint16(e.Lane)
	if e.DSCP != "" {
		dscp, err := device.ParseDSCP(e.DSCP)
		if err != nil {
			return t, fmt.Errorf("%w: %w", unix.EINVAL, err)
		}
		t.DSCP = uint16(dscp) + 1
	}
	if e.Priority != "" {
		class, err := tc.ParseHandle(e.Priority)
		if err != nil {
			return t, err
		}
		if class&0xffff == 0 {
			return t, fmt.Errorf("%w: priority %q names no class", unix.EINVAL, e.Priority)
		}
		t.Class = class
	}
	var err error
	t.Queue, t.Queues, err = encodeQueues(e.Queues)
	return t, err
}

// encodeQueues returns the first transmit queue and the number of queues.
func encodeQueues(queues []int) (first, n uint16, err error) {
	for i, q := range queues {
		if q < 0 || q > maxQueue || q != queues[0]+i {
			return 0, 0, fmt.Errorf("%w: queues %v: want 0 to %d, ascending without a gap", unix.EINVAL, queues,
				maxQueue)
		}
	}
	if len(queues) == 0 {
		return 0, 0, nil
	}
	return uint16(queues[0]), uint16(len(queues)), nil
}

func decodeQueues(first, n uint16) (queues []int) {
	for i := range int(n) {
		queues = append(queues, int(first)+i)
	}
	return queues
}

// decodeTarget is the inverse of encodeTarget. It returns e with the target filled in.
func decodeTarget(t egressTarget, e device.FilterEntry) device.FilterEntry {
	e.Priority, e.Queues, e.DSCP, e.PCP = "", decodeQueues(t.Queue, t.Queues), "", ""
	e.Lane = int(t.Lane)
	if t.PCP != 0 {
		e.PCP = device.FormatPCP(int(t.PCP) - 1)
	}
	if t.DSCP != 0 {
		e.DSCP = device.FormatDSCP(int(t.DSCP) - 1)
	}
	if t.Class != 0 {
		e.Priority = tc.FormatHandle(t.Class)
	}
	return e
}
