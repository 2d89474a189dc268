// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"encoding/binary"
	"errors"
)

// decodePods decodes ListPodResourcesResponse and GetPodResourcesResponse, whose
// field 1 are pods (k8s.io/kubelet/pkg/apis/podresources/v1/api.proto).
func decodePods(b []byte) (out []Pod, err error) {
	err = fields(b, func(num uint64, v []byte) error {
		if num != 1 {
			return nil
		}
		var p Pod
		out = append(out, p)
		return fields(v, out[len(out)-1].field)
	})
	return out, err
}

func (p *Pod) field(num uint64, v []byte) error {
	switch num {
	case 1:
		p.Name = string(v)
	case 2:
		p.Namespace = string(v)
	case 3:
		p.Containers = append(p.Containers, Container{})
		return fields(v, p.Containers[len(p.Containers)-1].field)
	}
	return nil
}

func (c *Container) field(num uint64, v []byte) error {
	switch num {
	case 1:
		c.Name = string(v)
	case 2:
		var d Devices
		err := fields(v, func(num uint64, v []byte) error {
			switch num {
			case 1:
				d.Resource = string(v)
			case 2:
				d.IDs = append(d.IDs, string(v))
			}
			return nil
		})
		c.addDevices(d)
		return err
	case 5:
		var cl Claim
		err := fields(v, func(num uint64, v []byte) error {
			switch num {
			case 2:
				cl.Name = string(v)
			case 3:
				cl.Namespace = string(v)
			case 4:
				return fields(v, func(num uint64, v []byte) error {
					if num == 2 {
						cl.Drivers = append(cl.Drivers, string(v))
					}
					return nil
				})
			}
			return nil
		})
		c.Claims = append(c.Claims, cl)
		return err
	}
	return nil
}

// addDevices joins the devices of one resource: kubelet lists them by NUMA node.
func (c *Container) addDevices(d Devices) {
	for i := range c.Devices {
		if c.Devices[i].Resource == d.Resource {
			c.Devices[i].IDs = append(c.Devices[i].IDs, d.IDs...)
			return
		}
	}
	c.Devices = append(c.Devices, d)
}

// Types of fields (protobuf.dev/programming-guides/encoding).
const (
	varint      = 0
	fixed64     = 1
	lengthGiven = 2
	fixed32     = 5
)

var errMessage = errors.New("kubelet's pod resources: a message is cut off or malformed")

// fields calls f for each field that has a length; others are passed over.
func fields(b []byte, f func(num uint64, v []byte) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 {
			return errMessage
		}
		b = b[n:]
		var skip uint64
		switch tag & 7 {
		case varint:
			if _, n = binary.Uvarint(b); n <= 0 {
				return errMessage
			}
			skip = uint64(n)
		case fixed64:
			skip = 8
		case fixed32:
			skip = 4
		case lengthGiven:
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return errMessage
			}
			if err := f(tag>>3, b[n:n+int(length)]); err != nil {
				return err
			}
			skip = uint64(n) + length
		default:
			return errMessage
		}
		if skip > uint64(len(b)) {
			return errMessage
		}
		b = b[skip:]
	}
	return nil
}

func appendString(b []byte, num uint64, s string) []byte {
	b = binary.AppendUvarint(b, num<<3|lengthGiven)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
