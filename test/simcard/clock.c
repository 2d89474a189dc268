// SPDX-License-Identifier: GPL-2.0-only
/*
 * The card's clock (a PTP hardware clock), and timestamps of received frames. The
 * clock runs freely, by its own drift, until a program sets or adjusts it.
 */
#include <linux/math64.h>
#include <linux/net_tstamp.h>
#include <linux/ptp_clock_kernel.h>
#include <linux/timekeeping.h>

#include "simcard.h"

/* Returns the clock's time at a time of CLOCK_MONOTONIC_RAW, both in ns. clock_lock is held. */
static s64 clock_at(struct simcard *card, u64 raw)
{
	s64 d = raw - card->clock_raw;
	s64 ppb = card->p.clock_drift + scaled_ppm_to_ppb(card->clock_adj);

	return card->clock_base + d + div_s64(div_s64(d, 1000) * ppb, 1000000);
}

/* Makes the clock go on from now, plus some ns. clock_lock is held. */
static void rebase(struct simcard *card, s64 plus)
{
	u64 raw = ktime_get_raw_ns();

	card->clock_base = clock_at(card, raw) + plus;
	card->clock_raw = raw;
}

static s64 clock_now(struct simcard *card)
{
	unsigned long flags;
	s64 now;

	spin_lock_irqsave(&card->clock_lock, flags);
	now = clock_at(card, ktime_get_raw_ns());
	spin_unlock_irqrestore(&card->clock_lock, flags);
	return now;
}

/* Stamps a frame that arrives from the wire, if a program has turned this on. */
void simcard_stamp(struct simcard *card, struct sk_buff *skb)
{
	if (READ_ONCE(card->stamps_rx))
		skb_hwtstamps(skb)->hwtstamp = ns_to_ktime(clock_now(card));
}

static int gettimex(struct ptp_clock_info *info, struct timespec64 *ts, struct ptp_system_timestamp *sts)
{
	struct simcard *card = container_of(info, struct simcard, clock_info);
	s64 now;

	ptp_read_system_prets(sts);
	now = clock_now(card);
	ptp_read_system_postts(sts);
	*ts = ns_to_timespec64(now);
	return 0;
}

static int settime(struct ptp_clock_info *info, const struct timespec64 *ts)
{
	struct simcard *card = container_of(info, struct simcard, clock_info);
	unsigned long flags;

	spin_lock_irqsave(&card->clock_lock, flags);
	card->clock_raw = ktime_get_raw_ns();
	card->clock_base = timespec64_to_ns(ts);
	spin_unlock_irqrestore(&card->clock_lock, flags);
	return 0;
}

static int adjtime(struct ptp_clock_info *info, s64 delta)
{
	struct simcard *card = container_of(info, struct simcard, clock_info);
	unsigned long flags;

	spin_lock_irqsave(&card->clock_lock, flags);
	rebase(card, delta);
	spin_unlock_irqrestore(&card->clock_lock, flags);
	return 0;
}

static int adjfine(struct ptp_clock_info *info, long scaled_ppm)
{
	struct simcard *card = container_of(info, struct simcard, clock_info);
	unsigned long flags;

	spin_lock_irqsave(&card->clock_lock, flags);
	rebase(card, 0);
	card->clock_adj = scaled_ppm;
	spin_unlock_irqrestore(&card->clock_lock, flags);
	return 0;
}

/* Reads the card's and the host's clocks at the same time, as cards with PTM do. */
static int getcrosststamp(struct ptp_clock_info *info, struct system_device_crosststamp *cts)
{
	struct simcard *card = container_of(info, struct simcard, clock_info);
	unsigned long flags;

	simcard_snapshot(cts);
	spin_lock_irqsave(&card->clock_lock, flags);
	cts->device = ns_to_ktime(clock_at(card, ktime_to_ns(cts->sys_monoraw)));
	spin_unlock_irqrestore(&card->clock_lock, flags);
	return 0;
}

int simcard_clock_create(struct simcard *card)
{
	spin_lock_init(&card->clock_lock);
	if (!card->p.clock)
		return 0;
	card->clock_raw = ktime_get_raw_ns();
	card->clock_base = ktime_get_real_ns() + card->p.clock_offset;
	card->clock_info = (struct ptp_clock_info) {
		.owner = THIS_MODULE,
		.name = "simcard",
		.max_adj = 1000000,	/* ppb */
		.gettimex64 = gettimex,
		.settime64 = settime,
		.adjtime = adjtime,
		.adjfine = adjfine,
		.getcrosststamp = card->p.clock_precise ? getcrosststamp : NULL,
	};
	card->clock = ptp_clock_register(&card->clock_info, &card->pdev->dev);
	return PTR_ERR_OR_ZERO(card->clock);
}

void simcard_clock_destroy(struct simcard *card)
{
	if (card->clock)
		ptp_clock_unregister(card->clock);
}

int simcard_get_ts_info(struct net_device *dev, simcard_ts_info *info)
{
	struct simcard *card = simcard_of(dev);

	if (!card->clock)
		return ethtool_op_get_ts_info(dev, info);
	info->so_timestamping = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |
				SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE;
	info->phc_index = ptp_clock_index(card->clock);
	info->tx_types = BIT(HWTSTAMP_TX_OFF);
	info->rx_filters = BIT(HWTSTAMP_FILTER_NONE) | BIT(HWTSTAMP_FILTER_ALL);
	return 0;
}

/* Like many cards, this one stamps all frames if it is to stamp some. */
static int set_filter(struct simcard *card, int tx_type, int *rx_filter)
{
	int err = simcard_call(card, "set_hwtstamp");

	if (err)
		return err;
	if (!card->clock)
		return -EOPNOTSUPP;
	if (tx_type != HWTSTAMP_TX_OFF)
		return -ERANGE;
	if (*rx_filter != HWTSTAMP_FILTER_NONE)
		*rx_filter = HWTSTAMP_FILTER_ALL;
	WRITE_ONCE(card->stamps_rx, *rx_filter == HWTSTAMP_FILTER_ALL);
	return 0;
}

static int filter_of(const struct simcard *card)
{
	return card->stamps_rx ? HWTSTAMP_FILTER_ALL : HWTSTAMP_FILTER_NONE;
}

#if SIMCARD_HAS_HWTSTAMP_OPS
int simcard_hwtstamp_get(struct net_device *dev, struct kernel_hwtstamp_config *config)
{
	if (!simcard_of(dev)->clock)
		return -EOPNOTSUPP;
	config->rx_filter = filter_of(simcard_of(dev));
	return 0;
}

int simcard_hwtstamp_set(struct net_device *dev, struct kernel_hwtstamp_config *config, struct netlink_ext_ack *extack)
{
	return set_filter(simcard_of(dev), config->tx_type, &config->rx_filter);
}
#else
int simcard_ioctl(struct net_device *dev, struct ifreq *ifr, int cmd)
{
	struct simcard *card = simcard_of(dev);
	struct hwtstamp_config config = {};
	int err;

	if (!card->clock || (cmd != SIOCGHWTSTAMP && cmd != SIOCSHWTSTAMP))
		return -EOPNOTSUPP;
	if (cmd == SIOCSHWTSTAMP) {
		if (copy_from_user(&config, ifr->ifr_data, sizeof(config)))
			return -EFAULT;
		err = set_filter(card, config.tx_type, &config.rx_filter);
		if (err)
			return err;
	} else {
		config.rx_filter = filter_of(card);
	}
	return copy_to_user(ifr->ifr_data, &config, sizeof(config)) ? -EFAULT : 0;
}
#endif
