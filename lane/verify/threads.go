// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/niclane/niclane/lane/device"
	"github.com/niclane/niclane/lane/plan"
)

// threadsOf checks that each thread of a lane's application serves connections of only one NAPI,
// as memcached -N and similar options promise. If a thread has connections of two NAPIs, it works
// on two queues, and another thread has no work.
func threadsOf(l plan.FittedLane, conns []Connection) Finding {
	f := Finding{Lane: l.Name, Device: l.Device, Part: device.PartSteering, Key: "threads"}
	napis := map[int][]uint32{} // by thread
	count := map[int]int{}
	process := map[int]string{}
	known := 0
	for _, c := range conns {
		if c.Thread == 0 {
			continue
		}
		known++
		count[c.Thread]++
		process[c.Thread] = c.Process
		if !slices.Contains(napis[c.Thread], c.NAPI) {
			napis[c.Thread] = append(napis[c.Thread], c.NAPI)
		}
	}
	if known == 0 {
		f.Severity = Unknown
		f.Meaning = fmt.Sprintf("it is not known which threads serve %s of the lane: none of them waits at an epoll "+
			"instance of one thread", connections(len(conns)))
		return f
	}
	rest := ""
	if n := len(conns) - known; n > 0 {
		rest = fmt.Sprintf("; not known for %s", connections(n))
	}
	var good, mixed []string
	for _, tid := range slices.Sorted(maps.Keys(napis)) {
		slices.Sort(napis[tid])
		text := fmt.Sprintf("thread %d of %s: %s of NAPI %s", tid, process[tid], connections(count[tid]),
			ids(napis[tid]))
		if len(napis[tid]) > 1 {
			mixed = append(mixed, text)
		} else {
			good = append(good, text)
		}
	}
	if len(mixed) == 0 {
		f.Severity = OK
		f.Meaning = "each thread has connections of one NAPI: " + some(good) + rest
		return f
	}
	f.Severity = Drift
	f.Want = "each thread with connections of one NAPI (aligned)"
	f.Found = some(mixed) + rest
	f.Meaning = "the application does not place them by NAPI ID: one thread answers packets of several queues, on " +
		"the processor where it happens to run"
	f.Repair = fmt.Sprintf("niclane advise --lane %s; connections made before NAPI IDs changed stay where they are "+
		"until they are closed", l.Name)
	return f
}

func ids(napis []uint32) string {
	s := make([]string, len(napis))
	for i, id := range napis {
		s[i] = fmt.Sprint(id)
	}
	return strings.Join(s, ", ")
}
