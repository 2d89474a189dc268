// SPDX-License-Identifier: Apache-2.0

package device

// OffloadLimits are a driver's limits for an offloaded HTB. They are listed because a probe would
// have to replace the root qdisc, and because the card's rounding of rates cannot be read back.
type OffloadLimits struct {
	Driver string // as ethtool -i names it
	// Shares is the number of parts into which the card divides the parent's ceiling. The card
	// rounds a guarantee down to whole parts, at least 1. Classes that send at the same time share
	// the link in proportion to their parts. 0: a guarantee is an absolute rate.
	Shares uint64
	// CeilingUnit is in bit/s. The card rounds ceilings down to a multiple of it.
	CeilingUnit uint64
	Source      string
}

// offloadLimits are the known limits by driver. No offload has ranks. mlx5 refuses prio and
// quantum (mlx5e_htb_setup_tc). The kernel refuses prio for every card before Linux 6.5
// (12e7789ad5b4), and quantum before 6.6 (9fe63d5f1da9; net/sched/sch_htb.c: htb_change_class).
// octeontx2 accepts both; airoha accepts only one level of classes. The other limits of these two
// are not listed here, so niclane uses their offload only if the file forces it.
var offloadLimits = [...]OffloadLimits{
	{Driver: "mlx5_core", Shares: 100, CeilingUnit: 1e6,
		Source: "drivers/net/ethernet/mellanox/mlx5/core/en/htb.c: mlx5e_htb_convert_rate, mlx5e_htb_convert_ceil " +
			"(6.2; qos.c before)"},
}

// FindOffloadLimits returns a driver's limits for an offloaded HTB. It returns false if the
// driver is not in the list.
func FindOffloadLimits(driver string) (OffloadLimits, bool) {
	for _, l := range offloadLimits {
		if l.Driver == driver {
			return l, true
		}
	}
	return OffloadLimits{}, false
}
