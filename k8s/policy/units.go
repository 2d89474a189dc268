// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// IsShared reports whether the class's pods share one queue set.
func IsShared(c *v1alpha1.Class) bool { return c.Mode == v1alpha1.Shared }

// Offered returns how the class is offered to the scheduler.
func Offered(c *v1alpha1.Class) string {
	return cmp.Or(c.OfferedAs, v1alpha1.OfferedAsClaim)
}

// ResourceName returns the name of the extended resource of a class.
func ResourceName(c *v1alpha1.Class) string {
	if c.ResourceName == "" {
		return v1alpha1.Group + "/" + c.Name
	}
	return c.ResourceName
}

// Size returns the number of the class's units. A unit is a queue set of an exclusive class, or a
// place for a pod in a shared class.
func Size(c *v1alpha1.Class) int {
	if IsShared(c) {
		return cmp.Or(c.Capacity, v1alpha1.DefaultPlaces)
	}
	return cmp.Or(c.Capacity, 1)
}

// UnitID returns the ID of the class's unit number n. The first unit has number 0.
func UnitID(class string, n int) string { return fmt.Sprintf("%s-%d", class, n) }

// UnitNumber returns the number of the unit with this ID, -1 if it is no ID of the class's units.
func UnitNumber(class, id string) int {
	text, ok := strings.CutPrefix(id, class+"-")
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 || UnitID(class, n) != id {
		return -1
	}
	return n
}

// LaneOf returns the name of a unit's lane. All units of a shared class have one lane, with the
// class's name. Each unit of an exclusive class has its own.
func LaneOf(c *v1alpha1.Class, id string) string {
	if IsShared(c) {
		return c.Name
	}
	return id
}

// A Joining is one lane that consists of several units of an exclusive class. One container has all
// of them. The lane has the sum of their queues, guarantees, ceilings and pollers.
type Joining struct {
	Class string
	// First is the number of the first unit, Count the number of consecutive units.
	First, Count int
}

// Join returns the lane that the units with these IDs become. It returns an error if the units are
// not consecutive: the units between them belong to other pods, whose queues would move.
func Join(class string, ids []string) (Joining, error) {
	numbers := make([]int, len(ids))
	for i, id := range ids {
		if numbers[i] = UnitNumber(class, id); numbers[i] < 0 {
			return Joining{}, fmt.Errorf("%q is no unit of class %s", id, class)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if n != numbers[0]+i {
			return Joining{}, fmt.Errorf("units %s of class %s are not consecutive, so they cannot "+
				"become one lane: other pods have the units between them; delete the pod, and a new pod may get others",
				strings.Join(ids, ", "), class)
		}
	}
	return Joining{Class: class, First: numbers[0], Count: len(ids)}, nil
}

// Leader returns the name of the lane that a unit belongs to. A joined unit belongs to the lane of
// the first joined unit. Any other unit has its own lane.
func Leader(joined []Joining, class, id string) string {
	n := UnitNumber(class, id)
	for _, j := range joined {
		if j.Class == class && n >= j.First && n < j.First+j.Count {
			return UnitID(class, j.First)
		}
	}
	return id
}
