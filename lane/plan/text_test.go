// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// TestFolded: WriteFolded prints the first of more than two similar steps with its number in the
// plan, and counts the others.
func TestFolded(t *testing.T) {
	file := func(queue int) plan.Step {
		f := device.File{Path: fmt.Sprintf("/sys/class/net/eth0/queues/tx-%d/xps_cpus", queue), Value: "1"}
		return plan.Step{New: f, Part: device.PartMapper, Cause: "globals", Reason: fmt.Sprintf("queue %d", queue)}
	}
	disruptive := file(13)
	disruptive.Disruptive = true
	other := file(5)
	other.Cause = "lanes.web"
	elsewhere := file(9)
	elsewhere.New = device.File{Path: "/sys/class/net/eth1/queues/tx-9/xps_cpus", Value: "1"}
	rule := plan.Step{New: device.File{Path: "/x", Value: "1"}, Part: device.PartSteering, Reason: "queue 1"}
	var got strings.Builder
	plan.WriteFolded(&got, []string{"eth0", "eth1"},
		[]plan.Step{file(9), rule, other, file(10), file(11), disruptive, disruptive, elsewhere})
	const want = `mapper
   1  queue 9  [globals]
      $ echo 1 > /sys/class/net/eth0/queues/tx-9/xps_cpus
      and 2 more steps of this kind
   3  queue 5  [lanes.web]
      $ echo 1 > /sys/class/net/eth0/queues/tx-5/xps_cpus
   6  queue 13  [globals]  (disruptive: packets in flight can be lost)
      $ echo 1 > /sys/class/net/eth0/queues/tx-13/xps_cpus
   7  queue 13  [globals]  (disruptive: packets in flight can be lost)
      $ echo 1 > /sys/class/net/eth0/queues/tx-13/xps_cpus
   8  queue 9  [globals]
      $ echo 1 > /sys/class/net/eth1/queues/tx-9/xps_cpus
steering
   2  queue 1  []
      $ echo 1 > /x
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
