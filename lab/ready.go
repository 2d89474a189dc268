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

// readyTimeout bounds the wait for links. The kernel needs milliseconds for
// it, an emulated one that shares a busy machine a second.
const readyTimeout = 10 * time.Second

// awaitLinks waits until every device passes packets on. A device that was set
// up does not yet: until the kernel's link watch has seen its carrier it has the
// queueing discipline noop, which drops without an error (net/core/link_watch.c:
// linkwatch_do_dev, dev_activate), and a port of a bridge is disabled
// (net/bridge/br_if.c: br_port_carrier_check).
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

// forwarding is the state of a bridge's port that passes packets on
// (include/uapi/linux/if_bridge.h: BR_STATE_FORWARDING).
const forwarding = "3"

// notReady says which of the lab's devices does not pass packets on, and why; ""
// if all do. They are veths and bridges: the kernel makes tunnels (sit0, tunl0,
// gre0) in every new namespace where the host has them, and lo, which has no state.
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
			// Unknown is also what a new device is before its first event.
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
