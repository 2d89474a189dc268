// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/devlink"
	"github.com/niclane/niclane/lane/device"
)

// classParam matches the names that Intel's own ice driver gives to parameters of traffic classes
// (ice_devlink.c).
var classParam = regexp.MustCompile(`^tc[0-9]+_`)

// params reads the devlink parameters of traffic classes.
func (o *observer) params(opts Options) error {
	c := devlink.Open()
	defer c.Close()
	for i := range o.state.Devices {
		d := &o.state.Devices[i]
		all, err := c.Params(d.Name)
		if err != nil && !tolerable(err) {
			return err
		}
		for name, value := range all {
			if classParam.MatchString(name) {
				d.DriverParams = append(d.DriverParams, device.DriverParam{Dev: d.Name, Name: name, Value: value})
			}
		}
		slices.SortFunc(d.DriverParams, func(a, b device.DriverParam) int { return strings.Compare(a.Name, b.Name) })
		if opts.NoProbes {
			continue
		}
		d.Capabilities[device.CapDriverPollers] = driverPollers(d, all, err)
	}
	return nil
}

// driverPollers returns the finding for pollers of the driver. all are the card's parameters, or err
// the error of reading them.
func driverPollers(d *device.Device, all map[string]string, err error) device.Finding {
	_, has := all["tc1_qps_per_poller"]
	switch {
	case has:
		return yes("devlink has tc1_qps_per_poller")
	case d.ClassParam("qps_per_poller"):
		return yes("by the private flag %s: Intel's own driver makes tc1_qps_per_poller with the traffic classes",
			d.InspectFlag())
	case err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, fs.ErrNotExist):
		return no("devlink has no tc1_qps_per_poller for it: no driver in Linux has one, Intel's own ice has")
	}
	return unanswered(err)
}
