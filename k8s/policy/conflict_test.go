// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// aged returns a policy with one class, which is older the smaller age is.
func aged(name string, age int, change func(*v1alpha1.Class)) Candidate {
	p := named(name, 0, nil)
	p.CreationTimestamp = metav1.NewTime(now.Add(time.Duration(age) * time.Second))
	p.Spec.Classes = []v1alpha1.Class{{Name: "other-" + name, Queues: 1},
		{Name: "redis", OfferedAs: v1alpha1.OfferedAsResource, Queues: 1, Tuning: v1alpha1.Tuning{Ceiling: "1G"}}}
	if change != nil {
		change(&p.Spec.Classes[1])
	}
	return NewCandidate(p, nil)
}

// TestClassConflicts changes each value of a class in the younger of two policies.
func TestClassConflicts(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.Class){
		"mode Shared, not Exclusive":                        func(c *v1alpha1.Class) { c.Mode = v1alpha1.Shared },
		"offeredAs Claim, not Resource":                     func(c *v1alpha1.Class) { c.OfferedAs = "" },
		"resourceName niclane.dev/x, not niclane.dev/redis": func(c *v1alpha1.Class) { c.ResourceName = "niclane.dev/x" },
		"queues 2, not 1":                                   func(c *v1alpha1.Class) { c.Queues = 2 },
		"guarantee 10%, not none":                           func(c *v1alpha1.Class) { c.Guarantee = "10%" },
		"ceiling none, not 1G":                              func(c *v1alpha1.Class) { c.Ceiling = "" },
		"rank 2, not 1":                                     func(c *v1alpha1.Class) { c.Rank = 2 },
		"dscp EF, not none":                                 func(c *v1alpha1.Class) { c.DSCP = ptr.To(intstr.FromInt32(46)) },
		"aligned true, not false":                           func(c *v1alpha1.Class) { c.Aligned = true },
		"hostNetwork true, not false":                       func(c *v1alpha1.Class) { c.HostNetwork = true },
		"poller Busy, not Auto":                             func(c *v1alpha1.Class) { c.Poller = v1alpha1.PollerBusy },
		"queues 2, not 1, rank 3, not 1":                    func(c *v1alpha1.Class) { c.Queues, c.Rank = 2, 3 },
		"": func(c *v1alpha1.Class) { // equal, or a matter of the node
			c.Mode, c.Rank, c.Poller, c.Ceiling = v1alpha1.Exclusive, 1, v1alpha1.PollerAuto, "1000M"
			c.Capacity, c.CPUs, c.NUMA, c.Pollers = 9, "2-3", ptr.To(intstr.FromInt32(1)), 1
			c.PollerTimeout, c.PollerPriority, c.CoalesceRx, c.NUMAHint = "1ms", 5, "50us", new(bool)
		},
	} {
		got := classConflicts([]Candidate{aged("b", 2, change), aged("a", 1, nil)})
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 ||
			!strings.HasPrefix(got[0], "class redis has "+want+" as in the older policy a.")) {
			t.Errorf("got %v, want %s", got, want)
		}
	}
}

// TestSameDSCP: a DSCP's name and its number mean the same.
func TestSameDSCP(t *testing.T) {
	with := func(v intstr.IntOrString) func(*v1alpha1.Class) {
		return func(c *v1alpha1.Class) { c.DSCP = &v }
	}
	for v, conflicts := range map[intstr.IntOrString]int{intstr.FromString("AF41"): 0, intstr.FromInt32(34): 0,
		intstr.FromInt32(35): 1} {
		got := classConflicts([]Candidate{aged("b", 2, with(v)), aged("a", 1, with(intstr.FromString("AF41")))})
		if len(got) != conflicts {
			t.Errorf("%s beside AF41: %v", v.String(), got)
		}
	}
}

// TestClassConflictsOfThree: policies that are refused or cannot be read refuse no others.
func TestClassConflictsOfThree(t *testing.T) {
	two := func(c *v1alpha1.Class) { c.Queues = 2 }
	unread := aged("unread", 0, two)
	unread.Err = errors.New("it cannot be read")
	all := []Candidate{aged("d", 4, two), unread, aged("c", 3, nil), aged("b", 2, two), aged("a", 1, nil)}
	got := classConflicts(all)
	if text := fmt.Sprint(len(got), got[0], got[3]); len(got) != 2 || strings.Count(text, "in the older policy a.") != 2 {
		t.Errorf("got %v", got)
	}
}
