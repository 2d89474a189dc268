// SPDX-License-Identifier: Apache-2.0

package device

import "fmt"

// A DriverParam is a devlink parameter of the device's card, in runtime mode. Its value is a
// number, "true" or "false".
type DriverParam struct {
	Dev   string `json:"dev"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Kind implements Object.
func (DriverParam) Kind() string { return "driver-param" }

// Key implements Object.
func (p DriverParam) Key() string { return "param/" + p.Dev + "/" + p.Name }

// Brief implements Object.
func (p DriverParam) Brief() string { return p.Value }

func (p DriverParam) commands(_ Change) []string {
	return one(fmt.Sprintf("devlink dev param set <card of %s> name %s value %s cmode runtime", p.Dev, p.Name, p.Value))
}
