// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/bench/result"
	"github.com/niclane/niclane/lane/device"
)

// instancesText describes the instances of a split server, with each instance's share of all
// answered requests. It returns "" for a server with one instance.
func instancesText(r *result.Result) string {
	requests, all := make([]int64, len(r.Server.Instances)), int64(0)
	for _, w := range r.Windows {
		for i, x := range w.Instances {
			if x.Cache != nil && i < len(requests) {
				requests[i], all = requests[i]+x.Cache.Requests, all+x.Cache.Requests
			}
		}
	}
	var out []string
	for i, x := range r.Server.Instances {
		s := ""
		if x.Device != "" {
			s = x.Device + ", "
		}
		s += fmt.Sprintf("node %d: processors %s, memory of node %s", x.Node, device.FormatCPUList(x.CPUs),
			device.FormatCPUList(x.Mems))
		if all > 0 {
			s += fmt.Sprintf(", %.0f %% of the requests", 100*float64(requests[i])/float64(all))
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}
