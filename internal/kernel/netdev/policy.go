// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
)

// Attributes of the generic netlink controller's policy dump (linux/genetlink.h,
// linux/netlink.h; Linux 5.10).
const (
	ctrlPolicy   = 8
	ctrlOpPolicy = 9

	ctrlPolicyDo = 1

	policyMaxU = 5
)

// A SetPolicy is the part of the kernel's policy for napi-set that niclane needs.
type SetPolicy struct {
	// Threaded is true if napi-set accepts the attribute threaded. MaxThreaded is the
	// attribute's highest value.
	Threaded    bool
	MaxThreaded uint64
}

// SetPolicy asks the kernel which attributes napi-set accepts. It changes nothing. ENOENT
// means that there is no napi-set (before Linux 6.13).
func (c *Conn) SetPolicy() (SetPolicy, error) {
	msgs, err := c.Policies(cmdNAPISet)
	if err != nil {
		return SetPolicy{}, fmt.Errorf("policy of napi-set: %w", err)
	}
	parts := make([][]byte, len(msgs))
	for i, m := range msgs {
		parts[i] = m.Data
	}
	p, err := decodeSetPolicy(parts)
	if err != nil {
		return SetPolicy{}, fmt.Errorf("policy of napi-set: %w", err)
	}
	return p, nil
}

// decodeSetPolicy decodes a policy dump. Some messages say which policy the command has. Each
// other message describes one attribute of one policy.
func decodeSetPolicy(msgs [][]byte) (SetPolicy, error) {
	type attr struct {
		policy, number uint16
	}
	maxima := map[attr]uint64{}
	policy, found := uint16(0), false
	for _, b := range msgs {
		err := each(b, func(typ uint16, b []byte) error {
			switch typ {
			case ctrlOpPolicy:
				return each(b, func(op uint16, b []byte) error {
					return each(b, func(direction uint16, b []byte) error {
						if op == cmdNAPISet && direction == ctrlPolicyDo && len(b) == 4 {
							policy, found = uint16(binary.NativeEndian.Uint32(b)), true
						}
						return nil
					})
				})
			case ctrlPolicy:
				return each(b, func(index uint16, b []byte) error {
					return each(b, func(number uint16, b []byte) error {
						a := attr{index, number}
						maxima[a] = max(maxima[a], 0)
						return each(b, func(what uint16, b []byte) error {
							if what == policyMaxU && len(b) == 8 {
								maxima[a] = binary.NativeEndian.Uint64(b)
							}
							return nil
						})
					})
				})
			}
			return nil
		})
		if err != nil {
			return SetPolicy{}, err
		}
	}
	if !found {
		return SetPolicy{}, errors.New("the dump names no policy")
	}
	most, ok := maxima[attr{policy, attrNAPIThreaded}]
	return SetPolicy{Threaded: ok, MaxThreaded: most}, nil
}

// each calls f for every attribute in b, with the flags removed from its type.
func each(b []byte, f func(typ uint16, data []byte) error) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for ad.Next() {
		if err := f(ad.Type(), ad.Bytes()); err != nil {
			return err
		}
	}
	return ad.Err()
}
