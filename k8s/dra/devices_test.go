// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/niclane/niclane/k8s/agent/inventory"
	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/k8s/dra"
	"github.com/niclane/niclane/lane/intent"
)

// node returns a node with an exclusive class of two queue sets, a shared class of three
// places, and a class that is not offered as a claim.
func node() inventory.Snapshot {
	return inventory.Snapshot{
		Node:   "n1",
		Device: &inventory.Device{Name: "eth1", Driver: "ice", PCI: "0000:3b:00.0", NUMA: 1, Speed: 100e9},
		Classes: []inventory.Class{
			{
				Name: "redis", Mode: intent.Exclusive, OfferedAs: v1alpha1.OfferedAsClaim, Queues: 4, Guarantee: 20e9,
				Rank: 2, Poller: "Busy",
				Mechanisms: map[string]string{"queue-set": "mqprio-channel"},
				Units: []inventory.Unit{
					{ID: "redis-0", Lane: "redis-0", Queues: []int{8, 9, 10, 11}},
					{ID: "redis-1", Lane: "redis-1", Queues: []int{12, 13, 14, 15}},
				},
			},
			{
				Name: "web", Mode: intent.Shared, OfferedAs: v1alpha1.OfferedAsClaim, Queues: 2, Rank: 3,
				Poller: "Auto",
				Units: []inventory.Unit{{ID: "web-0", Lane: "web", Queues: []int{16, 17}},
					{ID: "web-1", Lane: "web", Queues: []int{16, 17}},
					{ID: "web-2", Lane: "web", Queues: []int{16, 17}}},
			},
			{
				Name: "old", Mode: intent.Exclusive, OfferedAs: v1alpha1.OfferedAsResource, Queues: 1,
				Units: []inventory.Unit{{ID: "old-0", Lane: "old-0", Queues: []int{18}}},
			},
		},
	}
}

const published = `
- name: redis-0
  attributes:
    class: {string: redis}
    mode: {string: Exclusive}
    poller: {string: Busy}
    rank: {int: 2}
    mechanism: {string: mqprio-channel}
    ifName: {string: eth1}
    driver: {string: ice}
    numaNode: {int: 1}
    speed: {int: 100000}
    resource.kubernetes.io/pciBusID: {string: "0000:3b:00.0"}
  capacity:
    queues: {value: "4"}
    guarantee: {value: 20G}
- name: web
  allowMultipleAllocations: true
  attributes:
    class: {string: web}
    mode: {string: Shared}
    poller: {string: Auto}
    rank: {int: 3}
    queues: {int: 2}
    ifName: {string: eth1}
    driver: {string: ice}
    numaNode: {int: 1}
    speed: {int: 100000}
    resource.kubernetes.io/pciBusID: {string: "0000:3b:00.0"}
  capacity:
    pods: {value: "2", requestPolicy: {default: "1", validRange: {min: "1", step: "1"}}}
`

// TestDevices checks that Devices returns the healthy units of classes that are offered as claims,
// and no others.
func TestDevices(t *testing.T) {
	s := node()
	s.Classes[0].Units[1].Unhealthy = "the link is down"
	s.Classes[1].Units[0].Unhealthy = "its rule has gone"
	var want, got any
	if err := yaml.Unmarshal([]byte(published), &want); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(dra.Devices(&s))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestDevicesOfNothing tests classes whose units are all unhealthy, and a card that is not on a bus
// (veth).
func TestDevicesOfNothing(t *testing.T) {
	s := node()
	s.Device = &inventory.Device{Name: "veth0", Driver: "veth", NUMA: -1}
	for c := range s.Classes {
		for u := range s.Classes[c].Units {
			s.Classes[c].Units[u].Unhealthy = "the device has gone"
		}
	}
	if got := dra.Devices(&s); len(got) != 0 {
		t.Errorf("published: %v", got)
	}
	s = node()
	s.Device = &inventory.Device{Name: "veth0", Driver: "veth", NUMA: -1}
	for _, d := range dra.Devices(&s) {
		for _, name := range []string{"numaNode", "speed", "resource.kubernetes.io/pciBusID"} {
			for attribute := range d.Attributes {
				if string(attribute) == name {
					t.Errorf("%s says %s of a device that has none", d.Name, name)
				}
			}
		}
	}
}
