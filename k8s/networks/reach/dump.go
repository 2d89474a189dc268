// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumps is the number of attempts to get a list that did not change meanwhile.
const dumps = 100

// dump asks the kernel for a list until the list is complete. If objects change during the dump,
// some may be missing (NLM_F_DUMP_INTR, netlink(7)). On a node that starts many pods, links change
// often.
func dump[T any](list func() (T, error)) (all T, err error) {
	for range dumps {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
