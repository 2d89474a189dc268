// SPDX-License-Identifier: Apache-2.0

// Package nodes says which NUMA nodes a host has, and on which its card and its
// drives are: what package split divides a server over. It decides nothing.
package nodes

import (
	"context"
	"fmt"
	"slices"

	"github.com/niclane/niclane/app/numa"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/observe"
)

// Config is what Run looks at.
type Config struct {
	// Device of the measured network, a bond for instance; "": none.
	Device string `json:"device,omitempty"`
	// Storage are paths.
	Storage []string `json:"storage,omitempty"`
}

// A Machine is what there is.
type Machine struct {
	Nodes   []numa.Node    `json:"nodes"`
	Devices []numa.Device  `json:"devices,omitempty"`
	Storage []numa.Storage `json:"storage,omitempty"`
}

// Run looks.
func Run(ctx context.Context, c Config) (m Machine, err error) {
	sys := numa.Sys("/")
	if m.Nodes, err = sys.Nodes(); err != nil {
		return m, err
	}
	if c.Device != "" {
		st, err := observe.Observe(ctx, observe.Options{Devices: []string{c.Device}, NoProbes: true})
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
