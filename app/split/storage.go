// SPDX-License-Identifier: Apache-2.0

package split

import (
	"strings"

	"github.com/niclane/niclane/app/numa"
)

// store assigns each storage path to the instance on the node of its drive. If that node is unknown
// or has no instance, the path goes to the instance with the fewest paths.
func (d *division) store() {
	var rest []numa.Storage
	for _, s := range d.Storage {
		if x := d.at(s.Node); x != nil {
			x.Storage = append(x.Storage, s.Path)
		} else {
			rest = append(rest, s)
		}
	}
	for _, s := range rest {
		fewest := &d.instances[0]
		for i := range d.instances {
			if x := &d.instances[i]; len(x.Storage) < len(fewest.Storage) {
				fewest = x
			}
		}
		fewest.Storage = append(fewest.Storage, s.Path)
		switch {
		case s.Node < 0:
			d.notef("%s: not on a drive whose NUMA node is known: it goes to node %d's instance", s.Path,
				fewest.Node)
		default:
			d.notef("%s: its drive is on node %d, which has no instance: it goes to node %d's", s.Path, s.Node,
				fewest.Node)
		}
	}
	if len(d.Storage) == 0 {
		return
	}
	var without []string
	for _, x := range d.instances {
		if len(x.Storage) == 0 {
			without = append(without, itoa(x.Node))
		}
	}
	if len(without) > 0 {
		d.notef("no storage is on node %s: its instance has none", strings.Join(without, ", "))
	}
}

// at returns the instance on a node, nil if there is none.
func (d *division) at(node int) *Instance {
	for i := range d.instances {
		if d.instances[i].Node == node {
			return &d.instances[i]
		}
	}
	return nil
}
