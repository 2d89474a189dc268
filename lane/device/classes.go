// SPDX-License-Identifier: Apache-2.0

package device

// ClassLimits are the limits of a driver's `mqprio hw 1 mode channel`. A probe would have to
// replace the root qdisc, and most drivers refuse without a message, so the limits are listed
// here.
type ClassLimits struct {
	Driver string // as ethtool -i names it
	// Classes is the largest number of classes, the default class included.
	Classes int
	// Receive says that each class also has receive queues. Flower filters (hw_tc) steer packets to
	// them. Otherwise a class has only transmit queues.
	Receive bool
	// PowerOfTwo: each class's number of queues must be a power of two. Only the largest of these
	// numbers may be any number.
	PowerOfTwo bool
	// FirstPowerOfTwo: the default class's number of queues must be a power of two, even if it is
	// the largest.
	FirstPowerOfTwo bool
	// Guarantee says that classes can have a minimum rate.
	Guarantee bool
	// RateUnit is the unit of rates in bit/s: every rate must be a multiple of it.
	RateUnit uint64
	// All: the classes together must use all channels.
	All bool
	// Resizes: the driver sets the number of channels to what the classes use. When the classes are
	// removed, the driver chooses the number.
	Resizes bool
	// TakesRules: the driver deletes all steering rules when the classes are removed.
	TakesRules bool
	// WholeFields: flower filters compare whole addresses, not prefixes, and need a local port.
	WholeFields bool
	// FiltersOrRules: the card takes flower filters or steering rules, but not both at a time.
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

// FindClassLimits returns the limits of a driver's traffic classes. It returns false if the
// driver is not in the list.
func FindClassLimits(driver string) (ClassLimits, bool) {
	for _, l := range classLimits {
		if l.Driver == driver {
			return l, true
		}
	}
	return ClassLimits{}, false
}
