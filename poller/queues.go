// SPDX-License-Identifier: Apache-2.0

package poller

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/ethtool"
	"github.com/niclane/niclane/internal/kernel/netdev"
)

// queues finds the NAPIs of a device's receive queues. It identifies the device by its interface
// index, so it still works if the device is renamed.
type queues struct {
	links  *singleDevice
	client *netdev.Client
	dev    string
	queues []int
}

// openQueues finds the device called dev and opens the netlink connection.
func openQueues(dev string, of []int) (*queues, error) {
	e, err := ethtool.Open()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	q := &queues{links: &singleDevice{}, dev: dev, queues: of}
	if q.links.index, err = e.Index(dev); err != nil {
		return nil, fmt.Errorf("%s: %w", dev, err)
	}
	if q.links.driver, err = e.Driver(dev); err != nil {
		return nil, fmt.Errorf("%s: %w", dev, err)
	}
	if q.client, err = netdev.Open(q.links); err != nil {
		return nil, err
	}
	return q, nil
}

// singleDevice returns the same device for every name.
type singleDevice struct {
	index  int
	driver string
}

func (f *singleDevice) Index(string) (int, error)     { return f.index, nil }
func (f *singleDevice) Driver(string) (string, error) { return f.driver, nil }

// errGone means that the network namespace no longer has the device.
var errGone = errors.New("the device is gone")

// napis returns the IDs of the queues' NAPIs that the kernel lists, in the order of the queues,
// each once. A queue without a NAPI is skipped.
func (q *queues) napis() ([]uint32, error) {
	m, err := q.client.Map(q.dev)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%s: %w", q.dev, errGone)
	}
	if err != nil {
		return nil, err
	}
	listed := map[uint32]bool{}
	for _, n := range m.NAPIs {
		listed[n.ID] = true
	}
	ids := []uint32{}
	for _, queue := range q.queues {
		for _, have := range m.Queues {
			if have.Type == "rx" && have.ID == queue && listed[have.NAPI] {
				ids = append(ids, have.NAPI)
				delete(listed, have.NAPI) // several queues may share one NAPI
			}
		}
	}
	return ids, nil
}
