// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/cmd/internal/cli"
)

// inGuest runs this command again, in virtual time.
func (b *bench) inGuest(ctx context.Context, f *experiment.File) error {
	switch e := f.Experiment; {
	case e.Hosts != nil:
		return cli.Usagef("%s: --virtual has a lab, not hosts: leave --hosts out", b.name)
	case len(e.Power) > 0:
		return cli.Usagef("%s: --virtual: virtual time has no power to measure: leave power out of %s", b.name,
			e.Source)
	}
	return b.guest.Again(ctx, &b.App, b.out)
}
