// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
	"github.com/niclane/niclane/lane/device"
)

// classConflicts says, by the index of a policy, why the policy is refused: an older policy has a
// class of the same name that means something else. Pods ask for a class by its name on any node.
// Policies that cannot be read, or are refused themselves, refuse no others.
func classConflicts(all []Candidate) map[int]string {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareAge(all[a].LanePolicy, all[b].LanePolicy) })
	type owned struct {
		*v1alpha1.Class
		policy string
	}
	first, out := map[string]owned{}, map[int]string{}
	for _, i := range order {
		if all[i].Err != nil {
			continue
		}
		classes := all[i].Spec.Classes
		for j := range classes {
			c := &classes[j]
			old, found := first[c.Name]
			if !found {
				continue
			}
			if diff := classDiff(c, old.Class); diff != "" {
				out[i] = fmt.Sprintf("class %s has %s as in the older policy %s. A class means the same on every "+
					"node: make them equal, or choose another name", c.Name, diff, old.policy)
				break
			}
		}
		if out[i] != "" {
			continue
		}
		for j := range classes {
			if c := &classes[j]; first[c.Name].Class == nil {
				first[c.Name] = owned{c, all[i].Name}
			}
		}
	}
	return out
}

// classDiff names the values of a class that pods count on and that differ, "" if there are none.
// How a node divides its card (capacity, processors, polling threads, moderation) may differ.
func classDiff(c, old *v1alpha1.Class) string {
	var out []string
	differ := func(field string, now, was any) {
		if a, b := fmt.Sprint(now), fmt.Sprint(was); a != b {
			out = append(out, fmt.Sprintf("%s %s, not %s", field, cmp.Or(a, "none"), cmp.Or(b, "none")))
		}
	}
	differ("mode", modeOf(c), modeOf(old))
	differ("offeredAs", Offered(c), Offered(old))
	if Offered(c) == v1alpha1.OfferedAsResource && Offered(old) == v1alpha1.OfferedAsResource {
		differ("resourceName", ResourceName(c), ResourceName(old))
	}
	differ("queues", c.Queues, old.Queues)
	for _, r := range []struct {
		field    string
		now, was v1alpha1.Rate
	}{{"guarantee", c.Guarantee, old.Guarantee}, {"ceiling", c.Ceiling, old.Ceiling}} {
		a, aerr := readRate(r.now)
		b, berr := readRate(r.was)
		if a != b || aerr != nil || berr != nil { // 1000M is 1G
			differ(r.field, r.now, r.was)
		}
	}
	differ("rank", cmp.Or(c.Rank, 1), cmp.Or(old.Rank, 1))
	differ("dscp", dscpOf(c), dscpOf(old))
	differ("aligned", c.Aligned, old.Aligned)
	differ("hostNetwork", c.HostNetwork, old.HostNetwork)
	differ("poller", cmp.Or(c.Poller, v1alpha1.PollerAuto), cmp.Or(old.Poller, v1alpha1.PollerAuto))
	return strings.Join(out, ", ")
}

// dscpOf returns the DSCP of a class, "" for none. Equal values give equal texts: 46 is ef.
func dscpOf(c *v1alpha1.Class) string {
	if c.DSCP == nil {
		return ""
	}
	text := strings.ToLower(c.DSCP.String())
	if n, err := device.ParseDSCP(text); err == nil {
		return strings.ToUpper(device.FormatDSCP(n))
	}
	return text
}
