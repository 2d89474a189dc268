// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/niclane/niclane/k8s/dra"
)

// offerClaims runs the DRA driver until ctx ends, again 30 s after each failure. The agent works
// without it: a cluster without resource.k8s.io/v1 gets lanes by the device plugin.
func offerClaims(ctx context.Context, o dra.Options) {
	for {
		err := dra.Run(ctx, o)
		if ctx.Err() != nil {
			return
		}
		o.Log.Warn("lanes cannot be offered as claims", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(30 * time.Second):
		}
	}
}
