// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	y "github.com/niclane/niclane/internal/strictyaml"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/intent"
)

// ThreadsOf returns the number of the server's threads in a variant.
func (e *Experiment) ThreadsOf(v *Variant) int {
	if v != nil && v.Server != nil && v.Server.Threads > 0 {
		return v.Server.Threads
	}
	return e.Server.Threads
}

// Known returns the values of names that the experiment's and the hosts file decide, for a variant.
// Names that only a run knows, such as $scratch and the lab's $address, are not in it.
func (e *Experiment) Known(v *Variant) map[string]string {
	s := &e.Server
	out := map[string]string{
		NamePort: strconv.Itoa(s.Port), NameThreads: strconv.Itoa(e.ThreadsOf(v)), NameQueues: strconv.Itoa(s.Queues),
		NamePollers: strconv.Itoa(s.Pollers), NameConnections: strconv.Itoa(s.Connections), NamePollCPUs: "auto",
	}
	if c := e.Placement.Server.CPUs; len(c) > 0 {
		out[NameCPUs] = CPUsText(c)
	}
	h := e.Hosts
	if h == nil {
		return out
	}
	out[NameSUT] = h.SUT.Address
	out[NameAddress] = cmp.Or(s.Address, h.SUT.Address)
	out[NameListen] = cmp.Or(s.Address, Listen(h.SUT.Addresses()))
	if len(h.Clients) > 0 {
		out[NameClient] = h.Clients[0].Address
	}
	if h.Noise != nil {
		out[NameNoise] = h.Noise.Address
	}
	if h.LinkRate > 0 {
		out[NameLink] = y.BitsText(h.LinkRate)
	}
	maps.Copy(out, h.SUT.Ports()[0].Names())
	return out
}

// CPUsText returns processors as a list of YAML: [2-5, 8].
func CPUsText(cpus []int) string {
	return "[" + strings.ReplaceAll(device.FormatCPUList(cpus), ",", ", ") + "]"
}

// Listen returns the address on which a server listens that all the addresses reach: the only one, or
// the address of all interfaces.
func Listen(addresses []string) string {
	switch a, err := netip.ParseAddr(addresses[0]); {
	case len(addresses) == 1:
		return addresses[0]
	case err == nil && a.Is6():
		return "::"
	}
	return "0.0.0.0"
}

// IntentOf returns the lanes of a variant on the SUT's card with number i, with sample values for
// names that only a run knows. It returns nil for a variant whose lanes are not in the experiment.
func (e *Experiment) IntentOf(v *Variant, i int) (*intent.Intent, error) {
	if v.Lanes == "" {
		return nil, nil
	}
	values := samples(laneNames)
	maps.Copy(values, e.Known(v))
	text := v.Lanes
	if e.Hosts != nil {
		maps.Copy(values, e.Hosts.SUT.Ports()[i].Names())
		text = e.Hosts.SUT.Bonded(text)
	}
	expanded, err := Expand(text, values)
	if err != nil {
		return nil, err
	}
	return config.Parse("lanes of "+v.Name, []byte(expanded))
}

// ServerLane returns the lane with the server's port; nil: there is none.
func ServerLane(in *intent.Intent, port int) *intent.Lane {
	if in == nil {
		return nil
	}
	for i, l := range in.Lanes {
		for _, m := range l.Members {
			for _, p := range m.Ports {
				if int(p) == port {
					return &in.Lanes[i]
				}
			}
		}
	}
	return nil
}
