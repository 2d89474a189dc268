// SPDX-License-Identifier: Apache-2.0

package device

// OffloadLimits are what a driver makes of an offloaded HTB: it cannot be tried
// without replacing the root qdisc, and what a card makes of rates is not read
// back.
type OffloadLimits struct {
	Driver string // as ethtool -i names it
	// Shares: a guarantee is so many parts of the parent's ceiling, rounded
	// down (0 is 1), and shares the link out among the classes that send; 0 if
	// it is the rate that it is given as.
	Shares uint64
	// CeilingUnit is what ceilings are multiples of, bit/s, rounded down.
	CeilingUnit uint64
	Source      string
}

// offloadLimits by driver. None of them has ranks: mlx5 refuses prio and quantum
// (mlx5e_htb_setup_tc), and the kernel does of every card, prio before Linux 6.5
// (12e7789ad5b4) and quantum before 6.6 (9fe63d5f1da9; net/sched/sch_htb.c:
// htb_change_class). octeontx2 has both, and airoha no classes below classes; what
// more they ask for is not written down here, so that they are made only where that
// is forced.
var offloadLimits = [...]OffloadLimits{
	{Driver: "mlx5_core", Shares: 100, CeilingUnit: 1e6,
		Source: "drivers/net/ethernet/mellanox/mlx5/core/en/htb.c: mlx5e_htb_convert_rate, mlx5e_htb_convert_ceil " +
			"(6.2; qos.c before)"},
}

// FindOffloadLimits returns what a driver makes of an offloaded HTB, false if it
// is not known to make any.
func FindOffloadLimits(driver string) (OffloadLimits, bool) {
	for _, l := range offloadLimits {
		if l.Driver == driver {
			return l, true
		}
	}
	return OffloadLimits{}, false
}
