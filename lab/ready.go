// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// readyTimeout is the longest wait for the links. The kernel needs milliseconds, or about a second
// in an emulated machine on a busy host.
const readyTimeout = 10 * time.Second

// awaitLinks waits until every device forwards packets. A device that was just brought up does not
// forward yet, because the kernel's link watch must first see its carrier. Until then, its qdisc is
// noop, which drops packets without an error (net/core/link_watch.c: linkwatch_do_dev,
// dev_activate). A port of a bridge is disabled until then (net/bridge/br_if.c:
// br_port_carrier_check).
func (b *builder) awaitLinks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, host := range append(HostNames(), Switch) {
		for {
			why, err := b.nodes[host].notReady()
			if err != nil {
				return fmt.Errorf("links of %s: %w", host, err)
			}
			if why == "" {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s: %s: %w", host, why, context.Cause(ctx))
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}

// forwarding is the state of a bridge port that forwards packets (include/uapi/linux/if_bridge.h:
// BR_STATE_FORWARDING).
const forwarding = "3"

// notReady returns a device of the lab that does not forward packets, with the reason. If all do,
// it returns "". The lab's devices are veths and bridges. In every new namespace, the kernel also
// makes lo, which has no state, and tunnels (sit0, tunl0, gre0) if the host has them. These do not
// count.
func (n *node) notReady() (why string, err error) {
	links, err := n.nl.LinkList()
	if err != nil {
		return "", err
	}
	err = n.do(func() error {
		for _, l := range links {
			if l.Type() != "veth" && l.Type() != "bridge" {
				continue
			}
			a := l.Attrs()
			// Before its first event, a new device is in the state unknown.
			if a.OperState != netlink.OperUp {
				why = fmt.Sprintf("%s is %s, not up", a.Name, a.OperState)
				return nil
			}
			state, err := os.ReadFile("/sys/class/net/" + a.Name + "/brport/state")
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if s := strings.TrimSpace(string(state)); s != forwarding {
				why = fmt.Sprintf("%s, port of a bridge, is in state %s, not forwarding", a.Name, s)
				return nil
			}
		}
		return nil
	})
	return why, err
}
