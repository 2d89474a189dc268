// SPDX-License-Identifier: Apache-2.0

package card

import (
	"errors"

	"github.com/niclane/niclane/internal/bpf"
	"github.com/niclane/niclane/internal/tc"
)

// SeesTranslated reports whether what leaves some devices is known by the addresses
// that it had before this host translated them: bpf.Client.SeesTranslated.
func SeesTranslated(devices []string) (sees bool, err error) {
	t, err := tc.Open()
	if err != nil {
		return false, err
	}
	c := bpf.New(t)
	defer func() { err = errors.Join(err, c.Close(), t.Close()) }()
	return c.SeesTranslated(devices...)
}
