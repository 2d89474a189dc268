// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/intent"
)

type (
	attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute
	capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity
)

// Devices returns the devices that a node publishes, sorted by name.
func Devices(s *inventory.Snapshot) []resourceapi.Device {
	var out []resourceapi.Device
	for i := range s.Classes {
		c := &s.Classes[i]
		switch {
		case c.OfferedAs != v1alpha1.OfferedAsClaim:
		case c.Mode == intent.Shared:
			if d := shared(s, c); d != nil {
				out = append(out, *d)
			}
		default:
			for _, u := range c.Units {
				if u.Unhealthy == "" {
					out = append(out, exclusive(s, c, &u))
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b resourceapi.Device) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// exclusive returns the device of a queue set of an exclusive class. One claim gets the whole
// device. A claim can ask for a least value of each capacity.
func exclusive(s *inventory.Snapshot, c *inventory.Class, u *inventory.Unit) resourceapi.Device {
	of := capacity{"queues": whole(c.Queues)}
	if c.Guarantee > 0 {
		of["guarantee"] = rate(c.Guarantee)
	}
	if c.Ceiling > 0 {
		of["ceiling"] = rate(c.Ceiling)
	}
	return resourceapi.Device{Name: u.ID, Attributes: attributesOf(s, c), Capacity: of}
}

// shared returns the device of a shared class. Each claim takes some of the class's places. shared
// returns nil if all places are unhealthy.
func shared(s *inventory.Snapshot, c *inventory.Class) *resourceapi.Device {
	places := 0
	for _, u := range c.Units {
		if u.Unhealthy == "" {
			places++
		}
	}
	if places == 0 {
		return nil
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	pods := whole(places)
	pods.RequestPolicy = &resourceapi.CapacityRequestPolicy{
		Default:    &one,
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: &one, Step: &one},
	}
	at := attributesOf(s, c)
	at["queues"] = number(int64(c.Queues)) // not a capacity: a claim does not use up queues
	return &resourceapi.Device{
		Name: c.Name, Attributes: at, AllowMultipleAllocations: ptr.To(true), Capacity: capacity{"pods": pods},
	}
}

// attributesOf returns the attributes of a class's devices. Claims select devices by them, in CEL.
func attributesOf(s *inventory.Snapshot, c *inventory.Class) attributes {
	mode := v1alpha1.Exclusive
	if c.Mode == intent.Shared {
		mode = v1alpha1.Shared
	}
	at := attributes{
		"class": text(c.Name), "mode": text(mode), "poller": text(c.Poller), "rank": number(int64(c.Rank)),
	}
	if r := c.Mechanisms["queue-set"]; r != "" {
		at["mechanism"] = text(r)
	}
	d := s.Device
	if d == nil {
		return at
	}
	at["ifName"], at["driver"] = text(d.Name), text(d.Driver)
	if d.NUMA >= 0 {
		at["numaNode"] = number(int64(d.NUMA))
	}
	if d.Speed > 0 {
		at["speed"] = number(int64(d.Speed / 1e6)) // Mbit/s, as in ethtool
	}
	// All drivers use these names for the PCI bus and root. With them, a claim can ask for devices of
	// two drivers that are on the same card or PCIe root.
	if bus, err := deviceattribute.GetPCIBusIDAttribute(d.PCI); err == nil {
		at[bus.Name] = bus.Value
		if root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(d.PCI); err == nil {
			at[root.Name] = root.Value
		}
	}
	return at
}

// text returns a string attribute, cut to the limit of 64 bytes.
func text(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: ptr.To(s[:min(len(s), resourceapi.DeviceAttributeMaxValueLength)])}
}

func number(n int64) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{IntValue: ptr.To(n)}
}

func whole(n int) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

func rate(bits uint64) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(bits), resource.DecimalSI)}
}
