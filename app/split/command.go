// SPDX-License-Identifier: Apache-2.0

package split

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A word stands for a value of an instance. In a command line, a word is in braces: {node}. In the
// instance's environment, the value has a name in capitals: NICLANE_NODE.
type word struct {
	name, doc string
	// of returns the value. It returns false if the instance has no such value.
	of func(d *division, x *Instance) (string, bool)
}

// words returns all words.
func words() []word {
	return []word{
		{"node", "the NUMA node", func(_ *division, x *Instance) (string, bool) { return itoa(x.Node), true }},
		{"index", "the instance's number, from 0", func(_ *division, x *Instance) (string, bool) {
			return itoa(x.Index),
				true
		}},
		{"instances", "the number of instances",
			func(d *division, _ *Instance) (string, bool) { return itoa(len(d.instances)), true }},
		{"cpus", "the instance's processors, as a list (0-7,16)",
			func(_ *division, x *Instance) (string, bool) { return device.FormatCPUList(x.CPUs), true }},
		{"ncpus", "the number of its processors", func(_ *division, x *Instance) (string, bool) {
			return itoa(len(x.CPUs)),
				true
		}},
		{"mems", "the NUMA node of its memory",
			func(_ *division, x *Instance) (string, bool) { return device.FormatCPUList(x.Mems), true }},
		{"addr", "its address (shard only)", func(_ *division, x *Instance) (string, bool) {
			if len(x.Addrs) == 0 {
				return "", false
			}
			return x.Addrs[0].String(), true
		}},
		{"storage", "its first --storage path", func(_ *division, x *Instance) (string, bool) {
			if len(x.Storage) == 0 {
				return "", false
			}
			return x.Storage[0], true
		}},
		{"storages", "all its --storage paths, separated by commas", func(_ *division, x *Instance) (string, bool) {
			return strings.Join(x.Storage, ","), len(x.Storage) > 0
		}},
	}
}

// Words returns the words that a command line can contain in braces, each with its description.
func Words() [][2]string {
	var out [][2]string
	for _, w := range words() {
		out = append(out, [2]string{w.name, w.doc})
	}
	return out
}

// commands sets the command line and the environment of each instance. It replaces words in braces.
// Other text in braces stays as it is.
func (d *division) commands() error {
	if len(d.Command) == 0 {
		return Error{"", "no command"}
	}
	ws := words()
	var names []string
	for _, w := range ws {
		names = append(names, w.name)
	}
	braces := regexp.MustCompile(`\{(` + strings.Join(names, "|") + `)\}`)
	for i := range d.instances {
		x := &d.instances[i]
		values := map[string]string{}
		for _, w := range ws {
			if v, ok := w.of(d, x); ok {
				values[w.name] = v
				x.Env = append(x.Env, "NICLANE_"+strings.ToUpper(w.name)+"="+v)
			}
		}
		x.Values = values
		var missing []string
		for _, arg := range d.Command {
			x.Command = append(x.Command, braces.ReplaceAllStringFunc(arg, func(s string) string {
				name := s[1 : len(s)-1]
				v, ok := values[name]
				if !ok && !slices.Contains(missing, s) {
					missing = append(missing, s)
				}
				return v
			}))
		}
		if len(missing) > 0 {
			return Error{"", fmt.Sprintf("%s in the command: node %d's instance has no such "+
				"value", strings.Join(missing, ", "),
				x.Node)}
		}
	}
	return nil
}
