// SPDX-License-Identifier: Apache-2.0

package firstlane

import (
	"fmt"
	"strings"
)

// laneFile is the lane of the comparison, as a user would write it.
func laneFile(dev string, port int, cpu int, cgroup string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# The lane of "niclane bench first-lane".
version: 1
globals:
  dev: %s
lanes:
  memcached:
    rank: 1          # first on the wire
    guarantee: 20%%
    queues: 2
    cpus: %d
    protocol: tcp
    ports: [%d]
`, dev, cpu, port)
	if cgroup != "" {
		fmt.Fprintf(&b, "    cgroup: %s\n", cgroup)
	}
	return b.String()
}
