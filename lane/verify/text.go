// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// WriteText prints findings for people: first drift, then unknown, then ok.
func WriteText(w io.Writer, fs []Finding) {
	for _, s := range []Severity{Drift, Unknown, OK} {
		for _, f := range fs {
			if f.Severity == s {
				writeFinding(w, f)
			}
		}
	}
}

func writeFinding(w io.Writer, f Finding) {
	if f.Severity == OK || f.Key == "" && f.Want == "" && f.Repair == "" {
		fmt.Fprintf(w, "%-8s %s: %s\n", f.Severity, f.Where(), f.Meaning)
		return
	}
	fmt.Fprintf(w, "%-8s %s", f.Severity, f.Where())
	if f.Key != "" {
		fmt.Fprintf(w, ": %s", f.Key)
	}
	fmt.Fprintln(w)
	line := func(name, v string) {
		if v != "" {
			fmt.Fprintf(w, "         %-8s %s\n", name, v)
		}
	}
	line("want", f.Want)
	line("found", f.Found)
	line("means", f.Meaning)
	line("repair", f.Repair)
	if n := len(f.With); n > 0 {
		line("also", objects(n)+" gone with it: "+some(f.With))
	}
}

// Where returns lane, device and part of the finding as text.
func (f Finding) Where() string {
	s := "lane " + f.Lane
	if f.Lane == "" {
		s = "all lanes"
	}
	if f.Device != "" {
		s += " on " + f.Device
	}
	if f.Part != "" {
		s += ", " + string(f.Part)
	}
	return s
}

// some returns text with the first three names.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + ", ..."
}

// text returns the value of o in a few words. If the same words describe other, it returns the
// value as JSON.
func text(o, other device.Object) string {
	s := brief(o)
	if o == nil || other == nil || s != brief(other) {
		return s
	}
	b, err := json.Marshal(o)
	if err != nil {
		return s
	}
	return string(b)
}

func brief(o device.Object) string {
	f, ok := o.(device.File)
	if !ok {
		return plan.Brief(o)
	}
	ids, what, ok := listed(f)
	switch {
	case !ok:
		return fmt.Sprintf("%q", f.Value)
	case len(ids) == 0:
		return fmt.Sprintf("%q, no %s", f.Value, what)
	}
	return fmt.Sprintf("%q, %s %s", f.Value, what, device.FormatCPUList(ids))
}

// listed returns the IDs in a file, and what they are: processors, receive queues or NUMA nodes.
func listed(f device.File) (ids []int, what string, ok bool) {
	what = "CPUs"
	if strings.HasSuffix(f.Path, "/xps_rxqs") {
		what = "receive queues"
	}
	if strings.HasSuffix(f.Path, "/cpuset.mems") {
		what = "nodes"
	}
	var err error
	switch f.Format {
	case device.FileCPUMask:
		ids, err = device.ParseMask(strings.TrimSpace(f.Value))
	case device.FileCPUList:
		ids, err = device.ParseCPUList(strings.TrimSpace(f.Value))
	default:
		return nil, "", false
	}
	return ids, what, err == nil
}
