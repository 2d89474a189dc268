// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// Use has, by class, the units that pods have.
type Use map[string][]UsedUnit

// A UsedUnit is the ID of a unit that a pod has, and the pod's name, "" if not known.
type UsedUnit struct{ ID, Pod string }

// Keep returns the part of a wanted policy that can be applied now. While pods are in a class, the
// class stays, with its mode, offeredAs, resource name, queues, alignment and the units in use. Its
// rates, rank, poller and moderation change at once. The device does not change while any pod is in
// any lane. held has, by class, the reason why it differs from the wanted policy. Its key "" stands
// for the device.
func Keep(applied, wanted *v1alpha1.LanePolicySpec, use Use) (spec *v1alpha1.LanePolicySpec, held map[string]string) {
	held = map[string]string{}
	out := *wanted
	out.Classes = slices.Clone(wanted.Classes)
	if applied == nil || len(use) == 0 {
		return &out, held
	}
	if a, w := applied.Uplink, wanted.Uplink; a.Dev != w.Dev || a.Bond != w.Bond || !slices.Equal(a.VLANs, w.VLANs) {
		held[""] = fmt.Sprintf("its device stays %s as long as pods are in its lanes: %s", deviceOf(&a), pods(use))
		out.Uplink = a
	}
	for i := range applied.Classes {
		was := &applied.Classes[i]
		used := use[was.Name]
		if len(used) == 0 {
			continue
		}
		at := slices.IndexFunc(out.Classes, func(c v1alpha1.Class) bool { return c.Name == was.Name })
		if at < 0 {
			out.Classes = append(out.Classes, *was)
			held[was.Name] = fmt.Sprintf("the policy no longer has it; it stays as long as pods are in it: "+
				"%s", who(used))
			continue
		}
		if why := keepClass(was, &out.Classes[at], used); why != "" {
			held[was.Name] = why
		}
	}
	return &out, held
}

// keepClass changes the wanted class (is): values that must not change while pods are in the class
// become those of the applied class (was). It returns a text with these values and the pods, "" if
// nothing had to be changed.
func keepClass(was, is *v1alpha1.Class, used []UsedUnit) string {
	var kept []string
	keep := func(what, old, next string) { kept = append(kept, fmt.Sprintf("%s %s, not %s", what, old, next)) }
	if IsShared(was) != IsShared(is) {
		keep("mode", modeOf(was), modeOf(is))
		is.Mode, is.Capacity = was.Mode, was.Capacity
	}
	if Offered(was) != Offered(is) {
		keep("offeredAs", Offered(was), Offered(is))
		is.OfferedAs = was.OfferedAs
	}
	if ResourceName(was) != ResourceName(is) {
		keep("resourceName", ResourceName(was), ResourceName(is))
		is.ResourceName = was.ResourceName
	}
	if was.Queues != is.Queues {
		keep("queues", fmt.Sprint(was.Queues), fmt.Sprint(is.Queues))
		is.Queues = was.Queues
	}
	if was.Aligned != is.Aligned {
		keep("aligned", fmt.Sprint(was.Aligned), fmt.Sprint(is.Aligned))
		is.Aligned = was.Aligned
	}
	least := 0
	for _, u := range used {
		least = max(least, UnitNumber(was.Name, u.ID)+1)
	}
	if Size(is) < least {
		keep("capacity", fmt.Sprint(least), fmt.Sprint(Size(is)))
		is.Capacity = least
	}
	if len(kept) == 0 {
		return ""
	}
	return fmt.Sprintf("keeps %s as long as pods are in it: %s", strings.Join(kept, ", "), who(used))
}

func modeOf(c *v1alpha1.Class) string {
	if IsShared(c) {
		return v1alpha1.Shared
	}
	return v1alpha1.Exclusive
}

func deviceOf(u *v1alpha1.Uplink) string {
	switch {
	case u.Bond != "":
		return u.Bond
	case u.Dev != "":
		return u.Dev
	}
	return "that with the node's address"
}

func pods(use Use) string {
	var all []UsedUnit
	for _, u := range use {
		all = append(all, u...)
	}
	return who(all)
}

// who names the pods that have units, at most three, and counts the others.
func who(used []UsedUnit) string {
	var names []string
	for _, u := range used {
		name := u.Pod
		if name == "" {
			name = "the pod that got unit " + u.ID
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}
