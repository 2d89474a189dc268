// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/niclane/niclane/k8s/api/params"
)

// parametersOf returns the driver's parameters for a request: the claim's, or else the device
// class's; nil if neither has any. It returns an error for two from the same source, because
// it cannot know which one is meant.
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

// concerns reports whether a configuration for requests applies to this request, which may be
// MAIN/SUBREQUEST. A configuration without requests applies to all.
func concerns(requests []string, request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(requests) == 0 || slices.Contains(requests, request) || slices.Contains(requests, main)
}
