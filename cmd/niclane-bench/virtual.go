// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/cmd/internal/cli"
)

// inGuest runs this command again, in virtual time.
func (b *bench) inGuest(ctx context.Context, f *experiment.File) error {
	if f.Experiment.Hosts != nil {
		return cli.Usagef("%s: --virtual has a lab, not hosts: leave --hosts out", b.name)
	}
	return b.guest.Again(ctx, &b.App, b.out)
}
