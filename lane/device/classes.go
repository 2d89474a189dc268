// SPDX-License-Identifier: Apache-2.0

package device

// ClassLimits are the limits of a driver's `mqprio hw 1 mode channel`. They
// cannot be probed without replacing the root qdisc, and drivers mostly refuse
// without a message.
type ClassLimits struct {
	Driver string // as ethtool -i names it
	// Classes is the most classes, including the default one.
	Classes int
	// Receive says that the classes also have receive queues, to which flower
	// filters lead (hw_tc). Otherwise they only send.
	Receive bool
	// PowerOfTwo: the numbers of queues must be powers of two, except one
	// number that is the largest.
	PowerOfTwo bool
	// FirstPowerOfTwo: the default class's number must be a power of two in any case.
	FirstPowerOfTwo bool
	// Guarantee says that classes can have a minimum rate.
	Guarantee bool
	// Rates are multiples of RateUnit, bit/s.
	RateUnit uint64
	// All: the classes must use all channels.
	All bool
	// Resizes: the driver changes the channels to those of the classes. When
	// the classes go, it chooses the number of channels.
	Resizes bool
	// TakesRules: the driver removes all steering rules with the classes.
	TakesRules bool
	// WholeFields: filters compare only whole addresses, and need a local port.
	WholeFields bool
	// FiltersOrRules: filters and steering rules exclude each other.
	FiltersOrRules bool
	Source         string
}

// classLimits are the known limits by driver.
var classLimits = [...]ClassLimits{
	{Driver: "i40e", Classes: 8, Receive: true, PowerOfTwo: true, FirstPowerOfTwo: true, RateUnit: 50e6,
		WholeFields: true, FiltersOrRules: true,
		Source: "drivers/net/ethernet/intel/i40e/i40e_main.c: i40e_validate_mqprio_qopt, i40e_parse_cls_flower (7.3)"},
	{Driver: "ice", Classes: 16, Receive: true, PowerOfTwo: true, Guarantee: true, RateUnit: 500e3, Resizes: true,
		TakesRules: true,
		Source: "drivers/net/ethernet/intel/ice/ice_main.c: ice_validate_mqprio_qopt, ice_setup_tc_mqprio_qdisc " +
			"(7.3)"},
	{Driver: "mlx5_core", Classes: 16, RateUnit: 1e6, All: true,
		Source: "drivers/net/ethernet/mellanox/mlx5/core/en_main.c: mlx5e_mqprio_channel_validate (7.3)"},
}

// FindClassLimits returns the limits of a driver's traffic classes, false if
// the driver is not known to make any.
func FindClassLimits(driver string) (ClassLimits, bool) {
	for _, l := range classLimits {
		if l.Driver == driver {
			return l, true
		}
	}
	return ClassLimits{}, false
}
