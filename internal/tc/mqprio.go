// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/device"
)

// struct tc_mqprio_qopt of linux/pkt_sched.h: num_tc, prio_tc_map, hw, and from
// offset 18 two arrays of 16 bits.
const (
	mqprioClasses   = 16 // TC_QOPT_MAX_QUEUE
	mqprioMap       = 1
	mqprioHW        = 17
	mqprioCount     = 18
	mqprioOffset    = mqprioCount + 2*mqprioClasses
	sizeofMqprio    = mqprioOffset + 2*mqprioClasses
	mqprioQueueForm = "COUNT@FIRST for each traffic class"
)

// encodeMqprio gives the options of a software mqprio (hw 0). They are padded:
// the kernel looks for attributes behind (mqprio_parse_opt).
func encodeMqprio(q device.Qdisc) ([]byte, error) {
	b := make([]byte, sizeofMqprio+2)
	queues := strings.Fields(q.Queues)
	if len(queues) == 0 || len(queues) > mqprioClasses {
		return nil, fmt.Errorf("%w: queues %q: want %s, 1 to %d", unix.EINVAL, q.Queues, mqprioQueueForm, mqprioClasses)
	}
	b[0] = byte(len(queues))
	for i, text := range queues {
		count, first, ok := strings.Cut(text, "@")
		n, err1 := strconv.ParseUint(count, 10, 16)
		at, err2 := strconv.ParseUint(first, 10, 16)
		if !ok || err1 != nil || err2 != nil || n == 0 {
			return nil, fmt.Errorf("%w: queues %q: want %s", unix.EINVAL, q.Queues, mqprioQueueForm)
		}
		binary.NativeEndian.PutUint16(b[mqprioCount+2*i:], uint16(n))
		binary.NativeEndian.PutUint16(b[mqprioOffset+2*i:], uint16(at))
	}
	classes := strings.Fields(q.Map)
	if len(classes) != mqprioClasses {
		return nil, fmt.Errorf("%w: map %q: want the traffic classes of %d priorities", unix.EINVAL, q.Map, mqprioClasses)
	}
	for i, text := range classes {
		class, err := strconv.ParseUint(text, 10, 8)
		if err != nil || int(class) >= len(queues) {
			return nil, fmt.Errorf("%w: map %q: want traffic classes 0 to %d", unix.EINVAL, q.Map, len(queues)-1)
		}
		b[mqprioMap+i] = byte(class)
	}
	return b, nil
}

// decodeMqprio is the inverse of encodeMqprio. An mqprio of the card's (hw 1)
// is read too, but is none that encodeMqprio makes.
func decodeMqprio(q *device.Qdisc, b []byte) error {
	if len(b) < sizeofMqprio || int(b[0]) > mqprioClasses {
		return errors.Join(unix.EBADMSG, fmt.Errorf("%d bytes", len(b)))
	}
	classes, queues := make([]string, mqprioClasses), make([]string, b[0])
	for i := range classes {
		classes[i] = strconv.Itoa(int(b[mqprioMap+i]))
	}
	for i := range queues {
		queues[i] = fmt.Sprintf("%d@%d", binary.NativeEndian.Uint16(b[mqprioCount+2*i:]), binary.NativeEndian.Uint16(b[mqprioOffset+2*i:]))
	}
	q.Map, q.Queues = strings.Join(classes, " "), strings.Join(queues, " ")
	if b[mqprioHW] != 0 {
		q.Queues += fmt.Sprintf(" hw %d", b[mqprioHW])
	}
	return nil
}
