// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/niclane/niclane/k8s/api/params"
)

// parametersOf returns the parameters for a request: those of the claim, or else those of the
// device class, or nil. It returns an error if the claim, or the class, has several for it.
func parametersOf(configs []resourceapi.DeviceAllocationConfiguration, request string) (*params.Parameters, error) {
	found := map[resourceapi.AllocationConfigSource]int{}
	for i, c := range configs {
		if c.Opaque == nil || c.Opaque.Driver != DriverName || !concerns(c.Requests, request) {
			continue
		}
		if other, ok := found[c.Source]; ok {
			return nil, fmt.Errorf("allocation.devices.config[%d] and [%d]: both have parameters of %s for request "+
				"%q (source %s), want one", other, i, DriverName, request, c.Source)
		}
		found[c.Source] = i
	}
	for _, source := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClaim,
		resourceapi.AllocationConfigSourceClass} {
		i, ok := found[source]
		if !ok {
			continue
		}
		p, err := params.Decode(configs[i].Opaque.Parameters.Raw)
		if err != nil {
			return nil, fmt.Errorf("allocation.devices.config[%d]: %w", i, err)
		}
		return p, nil
	}
	return nil, nil
}

// concerns reports whether a configuration applies to a request. requests are the names in the
// configuration; an empty list means all requests. The request may be MAIN/SUBREQUEST.
func concerns(requests []string, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, main)
}
