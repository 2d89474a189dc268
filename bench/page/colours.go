// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"slices"

	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
)

// A key says how a variant is drawn: with a class of the style sheet, and with a shape for readers
// who cannot see the colour.
type key struct {
	Name, Title, Class string
	shape              int
}

// Classes by kind of variant, so that a lane has the same colour on every page. quiet: no lanes, no
// noise. noisy: noise, no lanes. laned: lanes.
var (
	quiet = []string{"grey", "brown", "olive"}
	noisy = []string{"orange", "pink", "red"}
	laned = []string{"blue", "purple", "green"}
	alone = []string{"teal", "grey"} // lanes without noise, if other variants have noise
	// spare are for further variants of any kind.
	spare = []string{"teal", "olive", "brown", "pink", "red", "grey", "orange", "green", "purple", "blue"}
)

// keys returns the keys of all variants, in the variants' order. Two variants share a colour only
// if there are more variants than colours.
func keys(r *result.Result) []key {
	meant := map[string]experiment.Variant{}
	anyNoise := false
	for _, v := range r.Experiment.Variants {
		meant[v.Name] = v
		anyNoise = anyNoise || v.Noise && len(r.Experiment.Noise) > 0
	}
	used := map[string]bool{}
	take := func(classes []string) string {
		i := slices.IndexFunc(classes, func(c string) bool { return !used[c] })
		if i < 0 {
			return ""
		}
		used[classes[i]] = true
		return classes[i]
	}
	var out []key
	for i, v := range r.Variants {
		classes := noisy
		switch m := meant[v.Name]; {
		case (v.Lanes != "" || m.Lanes != "" || m.LanesFile != "") && anyNoise && !m.Noise:
			classes = alone
		case v.Lanes != "" || m.Lanes != "" || m.LanesFile != "":
			classes = laned
		case anyNoise && !m.Noise:
			classes = quiet
		}
		out = append(out, key{v.Name, v.Title, take(classes), i})
	}
	for i := range out {
		if out[i].Class == "" {
			out[i].Class = cmp.Or(take(spare), spare[i%len(spare)])
		}
	}
	return out
}

func keyOf(all []key, name string) key {
	for _, k := range all {
		if k.Name == name {
			return k
		}
	}
	return key{Name: name, Class: "grey"}
}
