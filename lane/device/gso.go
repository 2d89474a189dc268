// SPDX-License-Identifier: Apache-2.0

package device

import "fmt"

// A GSOLimit is the size in bytes of the largest packet that the stack gives a device whole, to be
// divided into frames there or right before (generic segmentation offload, IFLA_GSO_MAX_SIZE). Sockets
// read it when they connect.
type GSOLimit struct {
	Dev string `json:"dev"`
	Max uint32 `json:"max"`
	// MaxIPv4 is IFLA_GSO_IPV4_MAX_SIZE (Linux 6.3), 0 if the kernel does not have it.
	MaxIPv4 uint32 `json:"maxIPv4,omitempty"`
}

// Kind implements Object.
func (GSOLimit) Kind() string { return "gso-limit" }

// Key implements Object.
func (l GSOLimit) Key() string { return "gso/" + l.Dev }

// Brief implements Object.
func (l GSOLimit) Brief() string {
	if l.MaxIPv4 == 0 || l.MaxIPv4 == l.Max {
		return fmt.Sprintf("%d bytes", l.Max)
	}
	return fmt.Sprintf("%d bytes, IPv4 %d bytes", l.Max, l.MaxIPv4)
}

func (l GSOLimit) commands(_ Change) []string {
	line := fmt.Sprintf("ip link set dev %s gso_max_size %d", l.Dev, l.Max)
	if l.MaxIPv4 != 0 {
		line += fmt.Sprintf(" gso_ipv4_max_size %d", l.MaxIPv4)
	}
	return one(line)
}

func (d *Device) putGSOLimit(_ GSOLimit, next Object) {
	d.GSO = nil
	if now, ok := next.(GSOLimit); ok {
		d.GSO = &now
	}
}

func (d *Device) gsoLimits(yield func(Object)) {
	if d.GSO != nil {
		yield(*d.GSO)
	}
}
