// SPDX-License-Identifier: GPL-2.0-only
/*
 * Data Center Bridging (dcbnl), with the parameter dcb. The card stores what it is told
 * and sorts nothing by it: the kernel keeps the APP table.
 */
#include <net/dcbnl.h>

#include "simcard.h"

static int dcb_getets(struct net_device *dev, struct ieee_ets *ets)
{
	*ets = simcard_of(dev)->ets;
	return 0;
}

static int dcb_setets(struct net_device *dev, struct ieee_ets *ets)
{
	int i;

	for (i = 0; i < IEEE_8021QAZ_MAX_TCS; i++)
		if (ets->prio_tc[i] >= IEEE_8021QAZ_MAX_TCS)
			return -EINVAL;
	simcard_of(dev)->ets = *ets;
	return 0;
}

#if SIMCARD_HAS_APPTRUST
/* DSCP first, then PCP. */
static int dcb_getapptrust(struct net_device *dev, u8 *selectors, int *n)
{
	selectors[0] = IEEE_8021QAZ_APP_SEL_DSCP;
	selectors[1] = DCB_APP_SEL_PCP;
	*n = 2;
	return 0;
}
#endif

static const struct dcbnl_rtnl_ops dcb_ops = {
	.ieee_getets = dcb_getets,
	.ieee_setets = dcb_setets,
#if SIMCARD_HAS_APPTRUST
	.dcbnl_getapptrust = dcb_getapptrust,
#endif
};

void simcard_dcb_init(struct simcard *card)
{
	if (!card->p.dcb)
		return;
	card->ets.ets_cap = IEEE_8021QAZ_MAX_TCS;
	card->dev->dcbnl_ops = &dcb_ops;
}
