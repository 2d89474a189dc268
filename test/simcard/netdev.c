// SPDX-License-Identifier: GPL-2.0-only
/* The network interface: up and down, NAPI, reception, counters. */
#include <linux/etherdevice.h>

#include "simcard.h"

/* Returns a copy of the frame as the receiver gets it: the card reads the sender's
 * memory, fills in an offloaded checksum, and writes to the receiver's memory.
 */
struct sk_buff *simcard_dma(struct net_device *to, struct sk_buff *skb)
{
	struct sk_buff *copy = netdev_alloc_skb_ip_align(to, skb->len);

	if (!copy)
		return NULL;
	skb_copy_and_csum_dev(skb, skb_put(copy, skb->len));
	copy->protocol = eth_type_trans(copy, to);
	if (skb_vlan_tag_present(skb)) {
		__vlan_hwaccel_put_tag(copy, skb->vlan_proto, skb_vlan_tag_get(skb));
	} else if (eth_type_vlan(copy->protocol) && to->features & NETIF_F_HW_VLAN_CTAG_RX) {
		copy = skb_vlan_untag(copy);
		if (!copy)
			return NULL;
	}
	skb_reset_network_header(copy);
	if (to->features & NETIF_F_RXCSUM && skb->ip_summed != CHECKSUM_NONE)
		copy->ip_summed = CHECKSUM_UNNECESSARY;
	return copy;
}

/* Receives a frame from the wire. The caller has soft interrupts off. */
void simcard_receive(struct simcard *card, struct sk_buff *skb)
{
	struct net_device *dev = card->dev;
	struct simcard_queue *q;
	int n;

	if (skb->pkt_type == PACKET_OTHERHOST && !(dev->flags & IFF_PROMISC)) {
		atomic64_inc(&card->rx_filtered);
		goto drop;
	}
	n = simcard_steer(card, skb);
	if (n < 0) {
		atomic64_inc(&card->rx_filtered);
		goto drop;
	}
	q = &card->queue[n];
	if (!test_bit(SIMCARD_Q_UP, &q->state) || skb_queue_len_lockless(&q->rx) >= READ_ONCE(card->rx_ring)) {
		atomic64_inc(&q->rx_dropped);
		goto drop;
	}
	simcard_stamp(card, skb);
	skb_record_rx_queue(skb, n);
	skb_queue_tail(&q->rx, skb);
	simcard_rx_event(q);
	return;

drop:
	kfree_skb(skb);
}

static int simcard_rx_poll(struct simcard_queue *q, struct napi_struct *napi, int budget)
{
	u64 bytes = 0;
	int done = 0;

	while (done < budget) {
		struct sk_buff *skb = skb_dequeue(&q->rx);

		if (!skb)
			break;
		done++;
		bytes += skb->len + ETH_HLEN;
		napi_gro_receive(napi, skb);
	}
	u64_stats_update_begin(&q->sync);
	q->rx_packets += done;
	q->rx_bytes += bytes;
	u64_stats_update_end(&q->sync);
	return done;
}

/* Returns the queue after q that leader's NAPI polls: leader itself, or a queue that it leads. */
static struct simcard_queue *next_led(struct simcard_queue *leader, struct simcard_queue *q)
{
	struct simcard *card = leader->card;
	unsigned int i;

	for (i = q ? q->index + 1 : leader->index; i < card->p.queues; i++)
		if (READ_ONCE(card->queue[i].leader) == leader)
			return &card->queue[i];
	return NULL;
}

static int simcard_poll(struct napi_struct *napi, int budget)
{
	struct simcard_queue *leader = container_of(napi, struct simcard_queue, napi);
	struct simcard_queue *q;
	int done = 0;

	for (q = next_led(leader, NULL); q; q = next_led(leader, q)) {
		simcard_tx_complete(q, budget);
		done += simcard_rx_poll(q, napi, budget - done);
	}
	WRITE_ONCE(leader->last_poll, done);
	if (done >= budget || !napi_complete_done(napi, done))
		return min(done, budget);

	clear_bit(SIMCARD_Q_MASKED, &leader->state);
	smp_mb__after_atomic();	/* pairs with simcard_irq_event() */
	for (q = next_led(leader, NULL); q; q = next_led(leader, q)) {
		if (!skb_queue_empty_lockless(&q->rx))
			simcard_rx_event(q);
		if (!skb_queue_empty_lockless(&q->sent))
			simcard_tx_event(q);
	}
	return done;
}

/* Stops rings and interrupts. The carrier stays on. */
void simcard_down(struct simcard *card)
{
	struct net_device *dev = card->dev;
	unsigned int i, n = dev->real_num_rx_queues;

	netif_tx_disable(dev);
	for (i = 0; i < n; i++)
		clear_bit(SIMCARD_Q_UP, &card->queue[i].state);
	synchronize_net();	/* after this, no frame is received and no interrupt comes */
	for (i = 0; i < n; i++) {
		struct simcard_queue *q = &card->queue[i];

		hrtimer_cancel(&q->moderation);
		simcard_irq_free(q);
		simcard_queue_set_napi(dev, i, NULL);
		simcard_napi_disable(&q->napi);
		simcard_napi_del(&q->napi);
		skb_queue_purge(&q->rx);
	}
	/* Stop the timer again: a completion may have woken a queue, whose frames started it. */
	netif_tx_disable(dev);
	hrtimer_cancel(&card->tx_timer);
	for (i = 0; i < card->p.queues; i++)	/* also HTB's queues, which come after the channels' */
		simcard_tx_purge(&card->queue[i]);
	synchronize_net();	/* for simcard_napi_del() */
}

int simcard_up(struct simcard *card)
{
	struct net_device *dev = card->dev;
	unsigned int i, n = dev->real_num_rx_queues;
	int err;

	simcard_pollers_apply(card);
	for (i = 0; i < n; i++) {
		err = simcard_irq_request(&card->queue[i]);
		if (err)
			goto free;
	}
	for (i = 0; i < n; i++) {
		struct simcard_queue *q = &card->queue[i];

		simcard_napi_add(dev, &q->napi, simcard_poll, i, q->irq);
		simcard_napi_enable(&q->napi);
		simcard_queue_set_napi(dev, i, &q->napi);
		q->state = 0;
		set_bit(SIMCARD_Q_UP, &q->state);
	}
	netif_tx_wake_all_queues(dev);	/* the qdiscs may have frames to send */
	return 0;

free:
	while (i--)
		simcard_irq_free(&card->queue[i]);
	netdev_err(dev, "no interrupt: %d\n", err);
	return err;
}

int simcard_restart(struct simcard *card)
{
	if (!netif_running(card->dev))
		return 0;
	simcard_down(card);
	return simcard_up(card);
}

/* Like real cards, the card goes down and up again. This loses the frames in the rings. */
int simcard_set_channels(struct simcard *card, unsigned int n)
{
	struct net_device *dev = card->dev;
	bool running = netif_running(dev);
	unsigned int old = dev->real_num_rx_queues;
	int err, again;

	if (running)
		simcard_down(card);
	err = netif_set_real_num_queues(dev, n, n);
	if (!err && n != old) {
		spin_lock_bh(&card->steer_lock);
		card->p.indir = simcard_indir_of(&card->p, n) ?: card->p.indir;
		spin_unlock_bh(&card->steer_lock);
		simcard_rss_default(card);
	}
	if (running) {
		again = simcard_up(card);
		err = err ?: again;
	}
	return err;
}

static int simcard_open(struct net_device *dev)
{
	struct simcard *card = simcard_of(dev);
	int err = simcard_up(card);

	if (!err)
		simcard_link_update(card);
	return err;
}

static int simcard_stop(struct net_device *dev)
{
	struct simcard *card = simcard_of(dev);

	simcard_link_update(card);
	simcard_down(card);
	return 0;
}

/* Sets the carrier: on while both ends are up. The caller holds rtnl and the card's lock. */
void simcard_link_update(struct simcard *card)
{
	bool up = netif_running(card->dev) && netif_running(card->wire);

	if (up == netif_carrier_ok(card->dev))
		return;
	if (up) {
		netif_carrier_on(card->dev);
		netif_carrier_on(card->wire);
		return;
	}
	netif_carrier_off(card->dev);
	netif_carrier_off(card->wire);
	if (simcard_forgets) {
		netdev_info(card->dev, "forgetting what was programmed\n");
		simcard_rules_forget(card);
		simcard_filters_forget(card, false);
		simcard_rss_forget(card);
		simcard_shaper_forget(card);
	}
}

static void simcard_get_stats64(struct net_device *dev, struct rtnl_link_stats64 *s)
{
	struct simcard *card = simcard_of(dev);
	unsigned int i, start;

	for (i = 0; i < card->p.queues; i++) {
		struct simcard_queue *q = &card->queue[i];
		u64 rxp, rxb, txp, txb;

		do {
			start = u64_stats_fetch_begin(&q->sync);
			rxp = q->rx_packets;
			rxb = q->rx_bytes;
			txp = q->tx_packets;
			txb = q->tx_bytes;
		} while (u64_stats_fetch_retry(&q->sync, start));
		s->rx_packets += rxp;
		s->rx_bytes += rxb;
		s->tx_packets += txp;
		s->tx_bytes += txb;
		s->rx_dropped += atomic64_read(&q->rx_dropped);
	}
	s->tx_dropped = atomic64_read(&card->tx_dropped);
}

#if SIMCARD_HAS_QSTATS
static void simcard_qstats_rx(struct net_device *dev, int i, struct netdev_queue_stats_rx *s)
{
	struct simcard_queue *q = &simcard_of(dev)->queue[i];
	unsigned int start;

	do {
		start = u64_stats_fetch_begin(&q->sync);
		s->packets = q->rx_packets;
		s->bytes = q->rx_bytes;
	} while (u64_stats_fetch_retry(&q->sync, start));
	s->hw_drop_overruns = atomic64_read(&q->rx_dropped);
}

static void simcard_qstats_tx(struct net_device *dev, int i, struct netdev_queue_stats_tx *s)
{
	struct simcard_queue *q = &simcard_of(dev)->queue[i];
	unsigned int start;

	do {
		start = u64_stats_fetch_begin(&q->sync);
		s->packets = q->tx_packets;
		s->bytes = q->tx_bytes;
	} while (u64_stats_fetch_retry(&q->sync, start));
	s->stop = atomic64_read(&q->tx_stops);
}

/* The base is 0, because a queue that is not in use keeps its own counts. */
static void simcard_qstats_base(struct net_device *dev, struct netdev_queue_stats_rx *rx, struct netdev_queue_stats_tx *tx)
{
	struct simcard *card = simcard_of(dev);
	unsigned int i;

	rx->packets = 0;
	rx->bytes = 0;
	tx->packets = 0;
	tx->bytes = 0;
	for (i = dev->real_num_rx_queues; i < card->p.queues; i++) {
		rx->packets += card->queue[i].rx_packets;
		rx->bytes += card->queue[i].rx_bytes;
		tx->packets += card->queue[i].tx_packets;
		tx->bytes += card->queue[i].tx_bytes;
	}
}

static const struct netdev_stat_ops simcard_stat_ops = {
	.get_queue_stats_rx = simcard_qstats_rx,
	.get_queue_stats_tx = simcard_qstats_tx,
	.get_base_stats = simcard_qstats_base,
};
#endif

static int simcard_set_features(struct net_device *dev, netdev_features_t features)
{
	struct simcard *card = simcard_of(dev);
	netdev_features_t changed = dev->features ^ features;

	if (changed & NETIF_F_HW_TC && !(features & NETIF_F_HW_TC) && (card->n_filters || card->num_tc)) {
		netdev_err(dev, "ADQ is active, can't turn hw_tc_offload off\n");	/* as ice */
		return -EACCES;
	}
	if (changed & NETIF_F_HW_TC && !(features & NETIF_F_HW_TC) && card->htb_on) {
		netdev_err(dev, "Active HTB offload, can't turn hw_tc_offload off\n");	/* as mlx5 */
		return -EINVAL;
	}
	if (changed & NETIF_F_NTUPLE && !(features & NETIF_F_NTUPLE))
		simcard_rules_forget(card);	/* as ice and i40e */
	return 0;
}

static const struct net_device_ops simcard_ops = {
	.ndo_open = simcard_open,
	.ndo_stop = simcard_stop,
	.ndo_start_xmit = simcard_xmit,
	.ndo_select_queue = simcard_select_queue,
	.ndo_get_stats64 = simcard_get_stats64,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_features = simcard_set_features,
	.ndo_setup_tc = simcard_setup_tc,
	.ndo_set_tx_maxrate = simcard_set_tx_maxrate,
#if SIMCARD_HAS_HWTSTAMP_OPS
	.ndo_hwtstamp_get = simcard_hwtstamp_get,
	.ndo_hwtstamp_set = simcard_hwtstamp_set,
#else
	.ndo_eth_ioctl = simcard_ioctl,
#endif
#if SIMCARD_HAS_NET_SHAPER
	.net_shaper_ops = &simcard_shaper_ops,
#endif
};

static const struct net_device_ops *ops_of(const struct simcard *card)
{
#if SIMCARD_HAS_NET_SHAPER
	static struct net_device_ops without;

	if (!card->p.shaper) {
		without = simcard_ops;
		without.net_shaper_ops = NULL;
		return &without;
	}
#endif
	return &simcard_ops;
}

int simcard_netdev_create(struct simcard *card, int id)
{
	u8 mac[ETH_ALEN] = { 0x02, 0x6e, 0x6c, 0x00, id, 0x01 };
	struct net_device *dev;
	unsigned int i;
	int err;

	dev = alloc_netdev_mqs(sizeof(struct simcard *), "sim%d", NET_NAME_ENUM, ether_setup,
			       card->p.queues, card->p.queues);
	if (!dev)
		return -ENOMEM;
	*(struct simcard **)netdev_priv(dev) = card;
	card->dev = dev;
	SET_NETDEV_DEV(dev, &card->pdev->dev);
	eth_hw_addr_set(dev, mac);
	dev->netdev_ops = ops_of(card);
	dev->ethtool_ops = &simcard_ethtool_ops;
#if SIMCARD_HAS_QSTATS
	dev->stat_ops = &simcard_stat_ops;
#endif
	simcard_dcb_init(card);
	dev->max_mtu = 9000;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_RXCSUM | NETIF_F_RXHASH | NETIF_F_HW_TC |
			   NETIF_F_HW_VLAN_CTAG_RX;
	if (card->p.rules)
		dev->hw_features |= NETIF_F_NTUPLE;
	/* Like ice: ntuple rules on, flower off by default. */
	dev->features = (dev->hw_features & ~NETIF_F_HW_TC) | NETIF_F_HW_VLAN_CTAG_TX;
	dev->vlan_features = NETIF_F_SG | NETIF_F_HW_CSUM;

	card->rx_ring = 512;
	card->tx_ring = 256;
	spin_lock_init(&card->steer_lock);
	INIT_LIST_HEAD(&card->rules);
	INIT_LIST_HEAD(&card->filters);
	for (i = 0; i < card->p.queues; i++) {
		struct simcard_queue *q = &card->queue[i];

		skb_queue_head_init(&q->rx);
		u64_stats_init(&q->sync);
		q->coalesce.rx_usecs = 0;
	}
	simcard_sched_init(card);
	err = netif_set_real_num_tx_queues(dev, card->p.channels);
	err = err ?: netif_set_real_num_rx_queues(dev, card->p.channels);
	if (err)
		goto free;
	simcard_rss_init(card);
	netif_carrier_off(dev);
	err = register_netdev(dev);
	if (err)
		goto free;
	return 0;

free:
	free_netdev(dev);
	return err;
}

void simcard_netdev_destroy(struct simcard *card)
{
	unregister_netdev(card->dev);
	simcard_rules_forget(card);
	simcard_filters_forget(card, false);
	simcard_rss_forget(card);
	simcard_shaper_forget(card);
	free_netdev(card->dev);
}
