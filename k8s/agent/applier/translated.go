// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"errors"

	"github.com/niclane/niclane/internal/kernel/bpf"
	"github.com/niclane/niclane/internal/kernel/tc"
)

// SeeTranslated makes the classifier on these devices recognise packets by the addresses that they
// had before this host translated them. It reports whether the kernel allows this, as
// bpf.Client.SeeTranslated does.
func SeeTranslated(devices []string) (sees bool, err error) {
	t, err := tc.Open()
	if err != nil {
		return false, err
	}
	c := bpf.New(t)
	defer func() { err = errors.Join(err, c.Close(), t.Close()) }()
	return c.SeeTranslated(devices...)
}
