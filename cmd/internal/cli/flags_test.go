// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// TestFlags: options accept values as a lanes file writes them, and still accept the plain numbers
// of versions before v0.2.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		option, text string
		time         time.Duration
		rate         uint64
		size         int
		err          string
	}{
		{option: "time", text: "0"},
		{option: "time", text: "500ms", time: 500 * time.Millisecond},
		{option: "time", text: "5min", time: 5 * time.Minute},
		{option: "time", text: "1m30s", time: 90 * time.Second},
		{option: "time", text: "1.5h", time: 90 * time.Minute},
		{option: "time", text: "5", err: "found 5, a number without a unit"},
		{option: "time", text: "-1s", err: `found "-1s", want a time`},
		{option: "rate", text: "1gbit", rate: 1e9},
		{option: "rate", text: "2.5Gbit", rate: 25e8},
		{option: "rate", text: "500000000", rate: 5e8},
		{option: "rate", text: "20%", err: "want a rate"},
		{option: "rate", text: "1mbps", err: "as bytes per second"},
		{option: "size", text: "512KiB", size: 512 << 10},
		{option: "size", text: "4096", size: 4096},
		{option: "size", text: "1MB", size: 1_000_000},
	} {
		var got struct {
			time time.Duration
			rate uint64
			size int
		}
		f := pflag.NewFlagSet("t", pflag.ContinueOnError)
		TimeVar(f, &got.time, "time", "")
		RateVar(f, &got.rate, "rate", "")
		SizeVar(f, &got.size, "size", "")
		err := f.Parse([]string{"--" + c.option, c.text})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %s: %v, want %q", c.option, c.text, err, c.err)
			}
			continue
		}
		if err != nil || got.time != c.time || got.rate != c.rate || got.size != c.size {
			t.Errorf("%s %s: %+v, %v", c.option, c.text, got, err)
			continue
		}
		// The option's own text for the value must parse to the same value again.
		said := f.Lookup(c.option).Value.String()
		if err := f.Set(c.option, said); said != "" && (err != nil || got.time != c.time || got.rate != c.rate ||
			got.size != c.size) {
			t.Errorf("%s %s: says %s, which is %+v, %v", c.option, c.text, said, got, err)
		}
	}
}
