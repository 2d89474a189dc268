// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/device"
	"github.com/niclane/niclane/lab"
)

// laneFile is the lane of the comparison, as a user would write it.
func laneFile(globals string, port int, cpu int, cgroup string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# The lane of "niclane bench first-lane".
version: 1
globals:
%slanes:
  memcached:
    rank: 1          # first on the wire
    guarantee: 20%%
    queues: 2
    cpus: %d
    protocol: tcp
    ports: [%d]
`, globals, cpu, port)
	if cgroup != "" {
		fmt.Fprintf(&b, "    cgroup: %s\n", cgroup)
	}
	return b.String()
}

// globals are the file's keys for the device and the host.
func (h *labHosts) globals(o Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  dev: %s\n", lab.Port)
	if h.Config.Card == lab.CardNone {
		// The port says nothing true of the link, and the processors
		// outside are not the server's host's.
		fmt.Fprintf(&b, "  link-rate: %dmbit\n  cpus: %s\n", h.linkRate()/1e6, device.FormatCPUList(inside))
	}
	if len(o.Force) > 0 {
		b.WriteString("  force:\n")
	}
	for _, part := range slices.Sorted(maps.Keys(o.Force)) {
		fmt.Fprintf(&b, "    %s: %s\n", part, o.Force[part])
	}
	return b.String()
}
