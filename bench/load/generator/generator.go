// SPDX-License-Identifier: Apache-2.0

// Package generator runs load with any protocol and reads the counters of its server. It
// combines packages load, load/aerospike and load/counters.
package generator

import (
	"context"

	"github.com/niclane/niclane/bench/load"
	"github.com/niclane/niclane/bench/load/aerospike"
	"github.com/niclane/niclane/bench/load/counters"
)

// Run does what load.Run does, for every protocol.
func Run(ctx context.Context, c load.Config) (load.Result, error) {
	if c.Protocol == load.Aerospike {
		return aerospike.Run(ctx, c)
	}
	return load.Run(ctx, c)
}

// Counters does what counters.Read does, for every protocol with known counters.
func Counters(ctx context.Context, c load.Config) (counters.Counters, error) {
	if c.Protocol == load.Aerospike {
		return aerospike.Counters(c)
	}
	return counters.Read(ctx, c)
}
