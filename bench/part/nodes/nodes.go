// SPDX-License-Identifier: Apache-2.0

// Package nodes lists the NUMA nodes of a host, and says on which nodes its network card and its
// drives are. By this, package split divides a server. Package nodes decides nothing.
package nodes

import (
	"context"
	"fmt"
	"slices"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
)

// Config says what Run looks up.
type Config struct {
	// Device of the measured network, such as a bond; "": none.
	Device string `json:"device,omitempty"`
	// Cards are further devices beside Device, which is then no bond.
	Cards []string `json:"cards,omitempty"`
	// Storage are paths. Run looks up on which node the drive of each path is.
	Storage []string `json:"storage,omitempty"`
}

// A Machine lists the nodes, network devices and drives of a host.
type Machine struct {
	Nodes   []numa.Node    `json:"nodes"`
	Devices []numa.Device  `json:"devices,omitempty"`
	Storage []numa.Storage `json:"storage,omitempty"`
}

// Run reads the nodes, and looks up what c names.
func Run(ctx context.Context, c Config) (m Machine, err error) {
	sys := numa.Sys("/")
	if m.Nodes, err = sys.Nodes(); err != nil {
		return m, err
	}
	if c.Device != "" {
		st, err := observe.Observe(ctx, observe.Options{Devices: append([]string{c.Device}, c.Cards...),
			NoProbes: true})
		if err != nil {
			return m, err
		}
		bond := ""
		if slices.ContainsFunc(st.Devices, func(d device.Device) bool { return d.Master == c.Device }) {
			bond = c.Device
		}
		m.Devices = numa.Cards(st, bond)
	}
	for _, path := range c.Storage {
		node, err := sys.Storage(path)
		if err != nil {
			return m, fmt.Errorf("storage: %w", err)
		}
		m.Storage = append(m.Storage, numa.Storage{Path: path, Node: node})
	}
	return m, nil
}
