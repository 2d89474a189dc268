// SPDX-License-Identifier: Apache-2.0

package split

import (
	"fmt"
	"io"
	"strings"

	"github.com/niclane/niclane/lane/device"
)

// WriteText prints a divided lane as text: the instances, the notes and the lanes file.
func (s *Split) WriteText(w io.Writer) {
	for _, x := range s.Instances {
		by := "on the node of its card"
		if len(x.Polling) > 0 {
			by = "by " + device.FormatCPUList(x.Polling)
		}
		fmt.Fprintf(w, "instance %d on node %d: lane %s, processors %s, queues served %s, memory of node %s\n",
			x.Index, x.Node, x.Lane, device.FormatCPUList(x.CPUs), by, device.FormatCPUList(x.Mems))
		if len(x.Storage) > 0 {
			fmt.Fprintf(w, "  storage %s\n", strings.Join(x.Storage, " "))
		}
		fmt.Fprintf(w, "  %s\n", shellText(x.Command))
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	fmt.Fprintf(w, "lanes file:\n")
	for line := range strings.Lines(s.File) {
		fmt.Fprintf(w, "  %s", line)
	}
}

// shellText returns a command line that is quoted for a shell.
func shellText(argv []string) string {
	var out []string
	for _, a := range argv {
		const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"
		if a == "" || strings.Trim(a, plain) != "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}
