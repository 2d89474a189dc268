// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"

	"github.com/niclane/niclane/poller"
)

// pollers adds niclane's own pollers to their devices.
func (o *observer) pollers(runDir string) error {
	all, err := poller.List(runDir)
	if err != nil {
		return fmt.Errorf("pollers: %w", err)
	}
	for _, s := range all {
		if d := o.state.Device(s.Dev); d != nil {
			d.Pollers = append(d.Pollers, s)
		}
	}
	return nil
}
