// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/niclane/niclane/k8s/api/v1alpha1"
)

// LimitsSince is the first release of Kubernetes that serves limits by claims (DRAExtendedResource).
const LimitsSince = "1.36"

// Claims says how a cluster serves classes that are offered as claims. The zero value: in all ways.
type Claims struct {
	// Off is true if niclane does not offer them.
	Off bool
	// Older is the release of an API server that is older than LimitsSince ("1.34"), "" if it is not.
	Older string
}

// serve returns the reason and the message of the condition Accepted for a policy with these
// classes.
func (c Claims) serve(classes []v1alpha1.Class) (reason, message string) {
	const read = "the policy can be read"
	var names []string
	shared := ""
	for i := range classes {
		if Offered(&classes[i]) != v1alpha1.OfferedAsClaim {
			continue
		}
		names = append(names, classes[i].Name)
		if IsShared(&classes[i]) {
			shared = ". Shared classes have room for more than one claim only with the feature gate " +
				"DRAConsumableCapacity"
		}
	}
	list := strings.Join(names, ", ")
	switch {
	case len(names) == 0 || c == Claims{}:
		return v1alpha1.ReasonAccepted, read
	case c.Off:
		return v1alpha1.ReasonClaimsOff, fmt.Sprintf("%s, but no pod can get these classes: %s. They are offered as "+
			"claims, and niclane was installed with dra.enabled=false: set it to true, or give the classes offeredAs: "+
			"Resource", read, list)
	}
	return v1alpha1.ReasonClaimsOnly, fmt.Sprintf("%s. Pods get these classes by resource claims only: %s. For "+
		"limits, Kubernetes %s is needed (this is %s), or offeredAs: Resource%s", read, list, LimitsSince, c.Older,
		shared)
}
