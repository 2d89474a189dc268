// SPDX-License-Identifier: GPL-2.0-only
/* ethtool's requests and settings; hashing is in rss.c, rules are in rules.c. */
#include <linux/ethtool.h>

#include "simcard.h"

static void get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct simcard *card = simcard_of(dev);

	strscpy(info->driver, card->p.driver, sizeof(info->driver));
	strscpy(info->fw_version, "simulated", sizeof(info->fw_version));
	strscpy(info->bus_info, dev_name(&card->pdev->dev), sizeof(info->bus_info));
}

static int get_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *k)
{
	bool up = netif_carrier_ok(dev);

	k->base.speed = up ? simcard_of(dev)->p.speed : SPEED_UNKNOWN;
	k->base.duplex = up ? DUPLEX_FULL : DUPLEX_UNKNOWN;
	k->base.port = PORT_OTHER;
	k->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static void get_channels(struct net_device *dev, struct ethtool_channels *c)
{
	c->max_combined = simcard_of(dev)->p.queues;
	c->combined_count = dev->real_num_rx_queues;
}

/* Refuses n channels if a context, a rule or a filter uses a queue from n on. Newer
 * kernels check this, too, but in any case the card must not use missing queues.
 */
static int in_use(struct simcard *card, u32 n)
{
	struct simcard_filter *f;
	struct simcard_rule *r;
	u32 i, c;

	for (c = 1; c < card->p.contexts; c++)
		for (i = 0; card->context[c] && i < card->p.indir; i++)
			if (card->context[c]->indir[i] >= n) {
				netdev_err(card->dev, "RSS context %u uses queue %u\n", c, card->context[c]->indir[i]);
				return -EINVAL;
			}
	list_for_each_entry(r, &card->rules, list)
		if (!(r->spec.flow_type & FLOW_RSS) && r->spec.ring_cookie != RX_CLS_FLOW_DISC && r->spec.ring_cookie >= n) {
			netdev_err(card->dev, "rule %u uses queue %llu\n", r->spec.location, r->spec.ring_cookie);
			return -EINVAL;
		}
	list_for_each_entry(f, &card->filters, list)
		if (f->action == SIMCARD_TO_QUEUE && f->target >= n) {
			netdev_err(card->dev, "a flower filter uses queue %u\n", f->target);
			return -EINVAL;
		}
	return 0;
}

/*
 * Checks a change of the table's size. The messages are those of mlx5, some of
 * them combined (en_ethtool.c: mlx5e_ethtool_set_channels).
 */
static int resizes(struct simcard *card, u32 n)
{
	u32 size = simcard_indir_of(&card->p, n) ?: card->p.indir, c;
	bool set = netif_is_rxfh_configured(card->dev);

	for (c = 1; c < card->p.contexts; c++)
		set = set || card->context[c];
	if (size == card->p.indir || !set)
		return 0;
	netdev_err(card->dev, "cannot resize RSS table (%u -> %u); reset indirection table to allow this change\n", card->p.indir, size);
	return -EINVAL;
}

static int set_channels(struct net_device *dev, struct ethtool_channels *c)
{
	struct simcard *card = simcard_of(dev);
	int err = simcard_call(card, "set_channels");

	if (err)
		return err;
	if (c->rx_count || c->tx_count || c->other_count || !c->combined_count)
		return -EINVAL;
	if (dev->num_tc) {
		netdev_err(dev, "Cannot set channels with ADQ configured.\n");	/* as ice */
		return -EOPNOTSUPP;
	}
	if (card->htb_on) {
		netdev_err(dev, "HTB offload is active, cannot change the number of channels\n");	/* as mlx5 */
		return -EINVAL;
	}
	if (simcard_no_shrink && c->combined_count < dev->real_num_rx_queues) {
		netdev_err(dev, "cannot reduce channels\n");
		return -EBUSY;
	}
	err = in_use(card, c->combined_count) ?: resizes(card, c->combined_count);
	if (err || c->combined_count == dev->real_num_rx_queues)
		return err;
	return simcard_set_channels(card, c->combined_count);
}

static void get_ringparam(struct net_device *dev, struct ethtool_ringparam *r,
			  struct kernel_ethtool_ringparam *kernel, struct netlink_ext_ack *extack)
{
	struct simcard *card = simcard_of(dev);

	r->rx_max_pending = SIMCARD_MAX_RING;
	r->tx_max_pending = SIMCARD_MAX_RING;
	r->rx_pending = card->rx_ring;
	r->tx_pending = card->tx_ring;
}

static int set_ringparam(struct net_device *dev, struct ethtool_ringparam *r,
			 struct kernel_ethtool_ringparam *kernel, struct netlink_ext_ack *extack)
{
	struct simcard *card = simcard_of(dev);
	int err = simcard_call(card, "set_ringparam");

	if (err)
		return err;
	if (r->rx_mini_pending || r->rx_jumbo_pending)
		return -EINVAL;
	if (r->rx_pending < SIMCARD_MIN_RING || r->tx_pending < SIMCARD_MIN_RING) {
		NL_SET_ERR_MSG_MOD(extack, "Descriptors requested out of range");
		return -EINVAL;
	}
	if (netif_running(dev))
		simcard_down(card);
	/* The sizes are multiples of 32, as on Intel's cards. */
	card->rx_ring = ALIGN(r->rx_pending, 32);
	card->tx_ring = ALIGN(r->tx_pending, 32);
	return netif_running(dev) ? simcard_up(card) : 0;
}

#define MAX_USECS	8160	/* as ice */

static void read_coalesce(const struct simcard_coalesce *c, struct ethtool_coalesce *ec)
{
	ec->rx_coalesce_usecs = c->rx_usecs;
	ec->tx_coalesce_usecs = c->tx_usecs;
	ec->rx_max_coalesced_frames = c->rx_frames;
	ec->use_adaptive_rx_coalesce = c->adaptive_rx;
	ec->use_adaptive_tx_coalesce = c->adaptive_tx;
}

static int check_coalesce(struct simcard *card, const struct simcard_coalesce *old, const struct ethtool_coalesce *ec)
{
	if (ec->rx_coalesce_usecs > MAX_USECS || ec->tx_coalesce_usecs > MAX_USECS) {
		netdev_err(card->dev, "usecs range is 0-%d\n", MAX_USECS);
		return -EINVAL;
	}
	if ((ec->use_adaptive_rx_coalesce && ec->rx_coalesce_usecs != old->rx_usecs) ||
	    (ec->use_adaptive_tx_coalesce && ec->tx_coalesce_usecs != old->tx_usecs)) {
		netdev_err(card->dev, "interrupt throttling cannot be changed if adaptive is enabled\n");
		return -EINVAL;
	}
	return 0;
}

static void write_coalesce(struct simcard_coalesce *c, const struct ethtool_coalesce *ec)
{
	c->rx_usecs = ec->rx_coalesce_usecs;
	c->tx_usecs = ec->tx_coalesce_usecs;
	c->rx_frames = ec->rx_max_coalesced_frames;
	c->adaptive_rx = ec->use_adaptive_rx_coalesce;
	c->adaptive_tx = ec->use_adaptive_tx_coalesce;
}

static int get_coalesce(struct net_device *dev, struct ethtool_coalesce *ec,
			struct kernel_ethtool_coalesce *kernel, struct netlink_ext_ack *extack)
{
	read_coalesce(&simcard_of(dev)->queue[0].coalesce, ec);
	return 0;
}

static int set_coalesce(struct net_device *dev, struct ethtool_coalesce *ec,
			struct kernel_ethtool_coalesce *kernel, struct netlink_ext_ack *extack)
{
	struct simcard *card = simcard_of(dev);
	int i, err = simcard_call(card, "set_coalesce");

	err = err ?: check_coalesce(card, &card->queue[0].coalesce, ec);
	if (err)
		return err;
	for (i = 0; i < card->p.queues; i++)
		write_coalesce(&card->queue[i].coalesce, ec);
	return 0;
}

static int get_per_queue_coalesce(struct net_device *dev, u32 queue, struct ethtool_coalesce *ec)
{
	if (queue >= dev->real_num_rx_queues)
		return -EINVAL;
	read_coalesce(&simcard_of(dev)->queue[queue].coalesce, ec);
	return 0;
}

static int set_per_queue_coalesce(struct net_device *dev, u32 queue, struct ethtool_coalesce *ec)
{
	struct simcard *card = simcard_of(dev);
	int err = simcard_call(card, "set_per_queue_coalesce");

	if (err)
		return err;
	if (queue >= dev->real_num_rx_queues)
		return -EINVAL;
	err = check_coalesce(card, &card->queue[queue].coalesce, ec);
	if (!err)
		write_coalesce(&card->queue[queue].coalesce, ec);
	return err;
}

/*
 * Names from Intel's out-of-tree ice and adqsetup. The flags are stored but
 * have no effect.
 */
static const char priv_flags[][ETH_GSTRING_LEN] = {
	"link-down-on-close",
	"fw-lldp-agent",
	"channel-inline-flow-director",
	"channel-pkt-inspect-optimize",
	"channel-pkt-clean-bp-stop",
	"channel-pkt-clean-bp-stop-cfg",
};

static u32 get_priv_flags(struct net_device *dev)
{
	return simcard_of(dev)->priv_flags;
}

static int set_priv_flags(struct net_device *dev, u32 flags)
{
	struct simcard *card = simcard_of(dev);
	int err = simcard_call(card, "set_priv_flags");

	if (!err)
		card->priv_flags = flags;
	return err;
}

/* Every possible queue has these counters, as in ice and i40e. */
static const char *const queue_stats[] = {
	"tx_queue_%u_packets", "tx_queue_%u_bytes", "tx_queue_%u_stops",
	"rx_queue_%u_packets", "rx_queue_%u_bytes", "rx_queue_%u_drops", "queue_%u_interrupts",
};

static const char global_stats[][ETH_GSTRING_LEN] = { "tx_dropped", "rx_filtered", "rules_hit", "flower_hit" };

static int get_sset_count(struct net_device *dev, int set)
{
	switch (set) {
	case ETH_SS_STATS:
		return ARRAY_SIZE(global_stats) + simcard_of(dev)->p.queues * ARRAY_SIZE(queue_stats);
	case ETH_SS_PRIV_FLAGS:
		return ARRAY_SIZE(priv_flags);
	}
	return -EOPNOTSUPP;
}

static void get_strings(struct net_device *dev, u32 set, u8 *to)
{
	int i, k;

	if (set == ETH_SS_PRIV_FLAGS)
		memcpy(to, priv_flags, sizeof(priv_flags));
	if (set != ETH_SS_STATS)
		return;
	memcpy(to, global_stats, sizeof(global_stats));
	to += sizeof(global_stats);
	for (i = 0; i < simcard_of(dev)->p.queues; i++) {
		for (k = 0; k < ARRAY_SIZE(queue_stats); k++) {
			snprintf(to, ETH_GSTRING_LEN, queue_stats[k], i);
			to += ETH_GSTRING_LEN;
		}
	}
}

static void get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *to)
{
	struct simcard *card = simcard_of(dev);
	u64 rules = 0, filters = 0;
	struct simcard_filter *f;
	struct simcard_rule *r;
	int i;

	spin_lock_bh(&card->steer_lock);
	list_for_each_entry(r, &card->rules, list)
		rules += atomic64_read(&r->hits);
	list_for_each_entry(f, &card->filters, list)
		filters += f->packets;
	spin_unlock_bh(&card->steer_lock);
	*to++ = atomic64_read(&card->tx_dropped);
	*to++ = atomic64_read(&card->rx_filtered);
	*to++ = rules;
	*to++ = filters;
	for (i = 0; i < card->p.queues; i++) {
		struct simcard_queue *q = &card->queue[i];

		*to++ = q->tx_packets;
		*to++ = q->tx_bytes;
		*to++ = atomic64_read(&q->tx_stops);
		*to++ = q->rx_packets;
		*to++ = q->rx_bytes;
		*to++ = atomic64_read(&q->rx_dropped);
		*to++ = atomic64_read(&q->interrupts);
	}
}

#if SIMCARD_SINCE(7, 0)
static u32 get_rx_ring_count(struct net_device *dev)
{
	return dev->real_num_rx_queues;
}
#endif

/* simcard_ethtool_rss() adds the hashing operations when the module is loaded,
 * because a card without contexts lacks the operations for contexts.
 */
struct ethtool_ops simcard_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_USECS | ETHTOOL_COALESCE_RX_MAX_FRAMES | ETHTOOL_COALESCE_USE_ADAPTIVE,
#if SIMCARD_SINCE(7, 0)
	.op_needs_rtnl = ~0,
	.get_rx_ring_count = get_rx_ring_count,
#endif
	.get_drvinfo = get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = get_link_ksettings,
	.get_channels = get_channels,
	.set_channels = set_channels,
	.get_ringparam = get_ringparam,
	.set_ringparam = set_ringparam,
	.get_coalesce = get_coalesce,
	.set_coalesce = set_coalesce,
	.get_per_queue_coalesce = get_per_queue_coalesce,
	.set_per_queue_coalesce = set_per_queue_coalesce,
	.get_priv_flags = get_priv_flags,
	.set_priv_flags = set_priv_flags,
	.get_sset_count = get_sset_count,
	.get_strings = get_strings,
	.get_ethtool_stats = get_ethtool_stats,
	.get_rxnfc = simcard_get_rxnfc,
	.get_ts_info = simcard_get_ts_info,
	.set_rxnfc = simcard_set_rxnfc,
};
