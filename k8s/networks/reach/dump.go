// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// dumps bounds how often a list is asked for that changes while it is given.
const dumps = 100

// dump asks the kernel for a list until it is whole: what changes while the kernel
// gives it, as links do on a node that starts many pods, may be left out of it
// (NLM_F_DUMP_INTR, netlink(7)).
func dump[T any](list func() (T, error)) (all T, err error) {
	for range dumps {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
