// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/niclane/niclane/k8s/api/params"
)

// parametersOf are the driver's parameters for a request: the claim's, or the
// device class's where the claim has none; nil if neither has. Two of the same
// source are refused: which of them was meant, nobody can tell.
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

// concerns says whether a configuration for requests is for this one, which may
// be MAIN/SUBREQUEST. One for none in particular is for all.
func concerns(requests []string, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, main)
}
