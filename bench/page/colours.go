// SPDX-License-Identifier: Apache-2.0

package page

import (
	"github.com/niclane/niclane/bench/experiment"
	"github.com/niclane/niclane/bench/result"
)

// A key is how a variant is drawn: a class of the style sheet, and a shape for
// those who do not see the colour.
type key struct {
	Name, Title, Class string
	shape              int
}

// Classes by what a variant is, so that a lane has one colour on every page:
// nothing but the server, noise, lanes, lanes with nothing to keep out.
var (
	quiet = []string{"grey", "brown", "olive"}
	noisy = []string{"orange", "pink", "red"}
	laned = []string{"blue", "purple", "green"}
	alone = []string{"teal", "grey"} // lanes, and no noise although others have it
)

// keys of all variants, in their order.
func keys(r *result.Result) []key {
	meant := map[string]experiment.Variant{}
	anyNoise := false
	for _, v := range r.Experiment.Variants {
		meant[v.Name] = v
		anyNoise = anyNoise || v.Noise && len(r.Experiment.Noise) > 0
	}
	used := map[string]int{}
	var out []key
	for i, v := range r.Variants {
		kind, classes := "noisy", noisy
		switch m := meant[v.Name]; {
		case (v.Lanes != "" || m.Lanes != "" || m.LanesFile != "") && anyNoise && !m.Noise:
			kind, classes = "alone", alone
		case v.Lanes != "" || m.Lanes != "" || m.LanesFile != "":
			kind, classes = "laned", laned
		case anyNoise && !m.Noise:
			kind, classes = "quiet", quiet
		}
		out = append(out, key{v.Name, v.Title, classes[used[kind]%len(classes)], i})
		used[kind]++
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
