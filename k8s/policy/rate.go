// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// A rate is a share of the link's rate in 1/1000, or a rate in bit/s. Both 0: none is given.
type rate struct {
	permille int
	bits     uint64
}

// String returns the rate in the form of lanes files: "12.5%" or "2000000000bit".
func (r rate) String() string {
	switch {
	case r.permille > 0:
		return strconv.FormatFloat(float64(r.permille)/10, 'f', -1, 64) + "%"
	case r.bits > 0:
		return strconv.FormatUint(r.bits, 10) + "bit"
	}
	return ""
}

// of returns the rate in bit/s, 0 if it is a share of a link whose rate is not known (0).
func (r rate) of(link uint64) uint64 {
	if r.permille > 0 {
		return uint64(float64(r.permille) / 1000 * float64(link))
	}
	return r.bits
}

// times multiplies a rate by n. A share becomes at most 100%.
func (r rate) times(n int) rate {
	return rate{min(r.permille*n, 1000), r.bits * uint64(n)}
}

// Limits of a rate in bit/s, as in lanes files.
const (
	leastRate = 1e3
	mostRate  = 1e13
)

const (
	wantRate     = "a quantity of bit/s from 1k to 10T (10G, 500M, 2500k)"
	wantShare    = "a share of the link's rate from 0.1% to 100% in steps of 0.1% (20%), or " + wantRate
	wantDuration = "a time of at most 1s with its unit us, ms or s (50us, 10ms)"
)

// readRate reads a rate. Its error says what was found and what is wanted.
func readRate(r v1alpha1.Rate) (rate, error) {
	text, isShare := strings.CutSuffix(string(r), "%")
	switch {
	case r == "":
		return rate{}, nil
	case isShare:
		v, err := strconv.ParseFloat(text, 64)
		permille := math.Round(v * 10)
		if err != nil || permille < 1 || permille > 1000 || math.Abs(permille-v*10) > 1e-6 {
			return rate{}, fmt.Errorf("found %q, want %s", r, wantShare)
		}
		return rate{permille: int(permille)}, nil
	}
	q, err := resource.ParseQuantity(text)
	if bits := q.Value(); err == nil && bits >= leastRate && bits <= mostRate {
		return rate{bits: uint64(bits)}, nil
	}
	return rate{}, fmt.Errorf("found %q, want %s", r, wantShare)
}

// Bits converts a rate to bit/s. It returns 0 if the rate is not given or cannot be read, and for a
// share if the link's rate is not known (0).
func Bits(r v1alpha1.Rate, link uint64) uint64 {
	v, err := readRate(r)
	if err != nil {
		return 0
	}
	return v.of(link)
}

// readDuration reads a duration that is given. The result is in µs.
func readDuration(d v1alpha1.Duration) (int, error) {
	v, err := time.ParseDuration(string(d))
	for _, unit := range []string{"us", "ms", "s"} {
		digits, ok := strings.CutSuffix(string(d), unit)
		if _, whole := strconv.ParseUint(digits, 10, 32); ok && whole == nil && err == nil && v <= time.Second {
			return int(v / time.Microsecond), nil
		}
	}
	return 0, fmt.Errorf("found %q, want %s", d, wantDuration)
}
