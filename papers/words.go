// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/bench/result"
)

// headline says which studies were measured, in which form, and which were not.
func (v *view) headline() string {
	var not, early []string
	forms := map[string]int{}
	measured := 0
	for _, s := range v.Studies {
		switch {
		case s.At == "":
			not = append(not, s.Experiment)
			continue
		case s.Failure != "":
			early = append(early, s.Experiment)
		}
		measured++
		forms[form(s.Result)]++
	}
	if measured == 0 {
		return fmt.Sprintf("None of these %d experiments was measured: this page has only the papers' claims.",
			len(v.Studies))
	}
	var parts []string
	for _, f := range []string{fullSize, labForm, quickForm, trialForm} {
		if n := forms[f]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, f))
		}
	}
	text := fmt.Sprintf("This page puts claims of five published papers beside measurements with niclane. %d of %d "+
		"experiments were measured: %s.", measured, len(v.Studies), strings.Join(parts, ", "))
	if len(early) > 0 {
		text += " Ended early: " + strings.Join(early, ", ") + "."
	}
	if len(not) > 0 {
		text += " Not measured: " + strings.Join(not, ", ") + "; each says why."
	}
	return text
}

// Forms of an experiment.
const (
	fullSize  = "at full size"
	labForm   = "in the lab's form"
	quickForm = "in quick form"
	trialForm = "as a trial"
)

// form says which of the file's sizes the run used.
func form(r *result.Result) string {
	switch n := len(r.Experiment.Sized); {
	case r.Experiment.Trial():
		return trialForm
	case n > 0 && strings.HasSuffix(r.Experiment.Sized[n-1], "quick"):
		return quickForm
	case n > 0:
		return labForm
	}
	return fullSize
}

// sized says what the form of a run is good for.
func sized(r *result.Result) string {
	switch f := form(r); f {
	case trialForm:
		return f + ": to see that everything starts; its figures mean nothing"
	case quickForm:
		return f + ": shows that it runs, and rough figures; too short for a claim"
	default:
		return f
	}
}

// most is the largest number of warnings that the page shows per run.
const most = 8

// warnings returns the warnings of a run. Of the warnings of its windows, it returns each kind
// once.
func warnings(r *result.Result) []string {
	out := slices.Clone(r.Warnings)
	seen := map[string]int{}
	var order []string
	first := map[string]string{}
	for _, w := range r.Windows {
		for _, text := range w.Warnings {
			kind, _, _ := strings.Cut(text, ":")
			if gate, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(gate, "gate ") {
				word, _, _ := strings.Cut(rest, ":")
				kind = gate + word
			}
			if seen[kind]++; seen[kind] == 1 {
				order = append(order, kind)
				first[kind] = text
			}
		}
	}
	for _, kind := range order {
		text := first[kind]
		if n := seen[kind]; n > 1 {
			text += fmt.Sprintf(" (and in %d more windows)", n-1)
		}
		out = append(out, text)
	}
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("%d more in the report", len(out)-most))
	}
	return out
}
