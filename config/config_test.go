// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"
)

var comparePrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
