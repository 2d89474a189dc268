// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"encoding/binary"
	"fmt"

	"github.com/niclane/niclane/lane/device"
)

// Tunnels is struct tunnels of internal/kernel/bpf/c/include/niclane/tunnel.h.
type Tunnels [4]struct {
	Port [2]byte // in network byte order; 0: no tunnel
	Kind uint16
}

// protocols are the names of TUNNEL_VXLAN and TUNNEL_GENEVE, by number.
var protocols = [...]string{1: "vxlan", 2: "geneve"}

// EncodeTunnels returns tunnels as the programs compare them.
func EncodeTunnels(all []device.Tunnel) (out Tunnels, err error) {
	if len(all) < 1 || len(all) > len(out) {
		return out, fmt.Errorf("%d tunnels: want 1 to %d", len(all), len(out))
	}
	for i, t := range all {
		for kind, name := range protocols {
			if name != "" && name == t.Protocol {
				out[i].Kind = uint16(kind)
			}
		}
		if out[i].Kind == 0 || t.Port == 0 {
			return out, fmt.Errorf("tunnel %s: want vxlan or geneve, and a port", t)
		}
		binary.BigEndian.PutUint16(out[i].Port[:], t.Port)
	}
	return out, nil
}

// Decode is the inverse of EncodeTunnels. It leaves out kinds that it does not know.
func (t Tunnels) Decode() (all []device.Tunnel) {
	for _, one := range t {
		if k := int(one.Kind); k > 0 && k < len(protocols) {
			all = append(all, device.Tunnel{Protocol: protocols[k], Port: binary.BigEndian.Uint16(one.Port[:])})
		}
	}
	return all
}
