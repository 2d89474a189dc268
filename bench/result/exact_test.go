// SPDX-License-Identifier: Apache-2.0

package result

import (
	"bytes"
	"testing"

	"github.com/niclane/niclane/internal/testing/must"
)

// TestExact: the machine of "measured" has too few requests for what virtual time has exactly.
func TestExact(t *testing.T) {
	measured, exact := fixture(), fixture()
	measured.Windows = measured.Windows[:6]
	measured.Points[0].Rounds = 2
	exact.Virtual = true
	few := Summarize(measured)
	p90 := few.Points[0].Variants[1].percentile(90).Estimate
	p90.High = 3 * p90.Low // repeats that differ
	var b bytes.Buffer
	must.Do(t, WriteExact(&b, few, Summarize(exact)))
	golden(t, "exact.golden", b.Bytes())
	without := Summarize(exact)
	without.Points = nil
	if err := WriteExact(&b, Summarize(measured), without); err == nil {
		t.Error("no load point: no error")
	}
}
