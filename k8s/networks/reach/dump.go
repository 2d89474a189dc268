// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumps is the most attempts to list while the list changes.
const dumps = 100

// dump asks the kernel for a list until it is complete. An object that changes during the
// dump may be missing (NLM_F_DUMP_INTR, netlink(7)); links change often on a node that starts
// many pods.
func dump[T any](list func() (T, error)) (all T, err error) {
	for range dumps {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
