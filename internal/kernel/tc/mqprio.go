// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/device"
)

// struct tc_mqprio_qopt of linux/pkt_sched.h: num_tc, prio_tc_map, hw, and from offset 18 two
// arrays of 16-bit numbers.
const (
	mqprioClasses   = 16 // TC_QOPT_MAX_QUEUE
	mqprioMap       = 1
	mqprioHW        = 17
	mqprioCount     = 18
	mqprioOffset    = mqprioCount + 2*mqprioClasses
	sizeofMqprio    = mqprioOffset + 2*mqprioClasses
	mqprioAttrs     = sizeofMqprio + 2 // with padding
	mqprioQueueForm = "COUNT@FIRST for each traffic class"
)

// Attributes that follow struct tc_mqprio_qopt (linux/pkt_sched.h), and their values.
const (
	mqprioMode        = 1
	mqprioShaper      = 2
	mqprioMinRate     = 3
	mqprioMaxRate     = 4
	mqprioModeDCB     = 0
	mqprioModeChannel = 1
	mqprioShaperRates = 1 // TC_MQPRIO_SHAPER_BW_RATE
)

// encodeMqprio returns the options of an mqprio. They are padded, because the kernel looks for
// attributes after the structure (mqprio_parse_opt).
func encodeMqprio(q device.Qdisc) ([]byte, error) {
	b := make([]byte, mqprioAttrs)
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
		return nil, fmt.Errorf("%w: map %q: want the traffic classes of %d priorities", unix.EINVAL, q.Map,
			mqprioClasses)
	}
	for i, text := range classes {
		class, err := strconv.ParseUint(text, 10, 8)
		if err != nil || int(class) >= len(queues) {
			return nil, fmt.Errorf("%w: map %q: want traffic classes 0 to %d", unix.EINVAL, q.Map, len(queues)-1)
		}
		b[mqprioMap+i] = byte(class)
	}
	if q.Mode == "" {
		if q.MinRates != "" || q.MaxRates != "" {
			return nil, fmt.Errorf("%w: only a card's mqprio keeps rates", unix.EINVAL)
		}
		return b, nil
	}
	attrs, err := encodeChannel(q, len(queues))
	b[mqprioHW] = 1
	return append(b, attrs...), err
}

// encodeChannel returns the attributes of an mqprio that a card implements.
func encodeChannel(q device.Qdisc, classes int) ([]byte, error) {
	if q.Mode != device.ModeChannel {
		return nil, fmt.Errorf("%w: mode %q: niclane makes only %s", unix.EINVAL, q.Mode, device.ModeChannel)
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint16(mqprioMode, mqprioModeChannel)
	if q.MinRates != "" || q.MaxRates != "" {
		ae.Uint16(mqprioShaper, mqprioShaperRates)
	}
	for _, r := range []struct {
		attr uint16
		text string
	}{{mqprioMinRate, q.MinRates}, {mqprioMaxRate, q.MaxRates}} {
		rates := strings.Fields(r.text)
		if len(rates) == 0 {
			continue
		}
		if len(rates) != classes {
			return nil, fmt.Errorf("%w: rates %q of %d classes", unix.EINVAL, r.text, classes)
		}
		ae.Nested(r.attr, func(ae *netlink.AttributeEncoder) error {
			for _, text := range rates {
				bits, err := strconv.ParseUint(text, 10, 64)
				if err != nil {
					return fmt.Errorf("%w: rate %q", unix.EINVAL, text)
				}
				ae.Uint64(r.attr, bits/8)
			}
			return nil
		})
	}
	return ae.Encode()
}

// decodeMqprio is the inverse of encodeMqprio.
func decodeMqprio(q *device.Qdisc, b []byte) error {
	if len(b) < sizeofMqprio || int(b[0]) > mqprioClasses {
		return errors.Join(unix.EBADMSG, fmt.Errorf("%d bytes", len(b)))
	}
	classes, queues := make([]string, mqprioClasses), make([]string, b[0])
	for i := range classes {
		classes[i] = strconv.Itoa(int(b[mqprioMap+i]))
	}
	for i := range queues {
		queues[i] = fmt.Sprintf("%d@%d", binary.NativeEndian.Uint16(b[mqprioCount+2*i:]),
			binary.NativeEndian.Uint16(b[mqprioOffset+2*i:]))
	}
	q.Map, q.Queues = strings.Join(classes, " "), strings.Join(queues, " ")
	if b[mqprioHW] == 0 {
		return nil
	}
	q.Mode = device.ModeDCB // the kernel's default
	if len(b) <= mqprioAttrs {
		return nil
	}
	ad, err := netlink.NewAttributeDecoder(b[mqprioAttrs:])
	if err != nil {
		return err
	}
	for ad.Next() {
		switch ad.Type() {
		case mqprioMode:
			if ad.Uint16() == mqprioModeChannel {
				q.Mode = device.ModeChannel
			}
		case mqprioMinRate:
			ad.Nested(decodeRates(&q.MinRates))
		case mqprioMaxRate:
			ad.Nested(decodeRates(&q.MaxRates))
		}
	}
	return ad.Err()
}

// decodeRates reads the rates of the classes, which the kernel gives in bytes per second.
func decodeRates(dst *string) func(*netlink.AttributeDecoder) error {
	return func(ad *netlink.AttributeDecoder) error {
		var rates []string
		for ad.Next() {
			rates = append(rates, strconv.FormatUint(ad.Uint64()*8, 10))
		}
		*dst = strings.Join(rates, " ")
		return ad.Err()
	}
}
