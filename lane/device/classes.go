// SPDX-License-Identifier: Apache-2.0

package device

// ClassLimits are what a driver makes of `mqprio hw 1 mode channel`: it cannot
// be tried without replacing the root qdisc, and most of what it refuses it
// refuses without a word to the caller.
type ClassLimits struct {
	Driver string // as ethtool -i names it
	// Classes is how many there can be, the default one included.
	Classes int
	// Receive says that the classes own receive queues too, to which flower
	// filters lead (hw_tc); otherwise they only send.
	Receive bool
	// PowerOfTwo: the numbers of queues are powers of two, but for one value
	// that is the largest.
	PowerOfTwo bool
	// FirstPowerOfTwo: that of the default class is, whatever the others.
	FirstPowerOfTwo bool
	// Guarantee says that classes can have a minimum rate.
	Guarantee bool
	// RateUnit is what rates are multiples of, bit/s.
	RateUnit uint64
	// All: the classes must have all of the channels.
	All bool
	// Resizes: the channels become those of the classes, and when the classes
	// go as many as the driver likes.
	Resizes bool
	// TakesRules: all steering rules go with the classes.
	TakesRules bool
	// WholeFields: filters compare whole addresses, and need a local port.
	WholeFields bool
	// FiltersOrRules: filters and steering rules exclude each other.
	FiltersOrRules bool
	Source         string
}

// classLimits by driver.
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

// FindClassLimits returns what a driver makes of mqprio's classes, false if it
// is not known to make any.
func FindClassLimits(driver string) (ClassLimits, bool) {
	for _, l := range classLimits {
		if l.Driver == driver {
			return l, true
		}
	}
	return ClassLimits{}, false
}
