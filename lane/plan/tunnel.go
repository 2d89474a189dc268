// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// wantTunnels makes the program with the given key look into the file's tunnels.
func (f *fit) wantTunnels(program string, part device.Part) {
	if len(f.in.Group.Tunnels) == 0 {
		return
	}
	f.want(f.tunnels(program), part, "globals.tunnels",
		"packets of no lane: the addresses inside these tunnels are looked up, among members with addrs")
}

func (f *fit) tunnels(program string) device.Tunnels {
	t := device.Tunnels{Filter: program}
	for _, one := range f.in.Group.Tunnels {
		t.Tunnels = append(t.Tunnels, device.Tunnel(one))
	}
	return t
}

// checkTunnels refuses lanes that name addresses inside tunnels if the card steers to the lanes. A
// card compares outer headers.
func (f *fit) checkTunnels(lanes []*deviceLane) {
	how := f.choice[device.PartSteering].Mechanism
	if len(f.in.Group.Tunnels) == 0 || how != ByRules && how != ByFlower {
		return
	}
	var names []string
	for _, l := range lanes {
		for i := range l.Members {
			if len(l.Members[i].Addrs) > 0 {
				names = append(names, l.Name)
				break
			}
		}
	}
	if len(names) == 0 {
		return
	}
	other := ""
	for _, xdp := range []struct{ name, mode string }{{ByCpumap, "native"}, {ByCpumapGeneric, "generic"}} {
		if ok, _ := cpumap(xdp.mode)(f.st, f.dev); ok {
			other = fmt.Sprintf(", or %s, to steer received packets in software", xdp.name)
			break
		}
	}
	f.failf("globals.force.queue-set", "%s steers by %s, which compare outer headers, and lanes name addresses (%s) "+
		"that can be inside tunnels (%s): want %s, for lanes on transmit alone%s", f.dev.Name,
		map[string]string{ByRules: "rules of the card", ByFlower: "filters of the card"}[how],
		strings.Join(names, ", "), f.tunnels("").Brief(), ByShared, other)
}

// noteTunnels adds a note about packets of tunnels that are larger than the MTU: only the first fragment
// has the inner headers, and all fragments must go the same way.
func (f *fit) noteTunnels() {
	if len(f.in.Group.Tunnels) > 0 {
		f.notef("tunnels: fragments of outer packets larger than the MTU hide the packet inside, and belong to the " +
			"default lane")
	}
}
