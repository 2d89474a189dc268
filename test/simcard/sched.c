// SPDX-License-Identifier: GPL-2.0-only
/*
 * The card's transmit scheduler: it chooses the queue that sends the next frame.
 *
 * A frame has to wait for several rates: those of its queue, its traffic class and
 * the class's parents, the device, and the link. Of the queues that may send,
 * those below their own guaranteed rate come first, then those whose parents are
 * below theirs. What is left is shared by weight.
 */
#include <linux/math64.h>

#include "simcard.h"

#define ETH_OVERHEAD 24	/* preamble, check sequence, gap: counted on the link only */

void simcard_node_init(struct simcard_node *node)
{
	memset(node, 0, sizeof(*node));
	node->weight = 1;
}

static void bucket_charge(struct simcard_bucket *b, u64 now, unsigned int len)
{
	u64 burst = simcard_burst_ns();

	if (!b->rate)
		return;
	b->next = max(b->next, now > burst ? now - burst : 0) + div64_u64((u64)len * NSEC_PER_SEC, b->rate);
}

/*
 * Queues, and groups of queues, take turns by virtual time: the amount that each
 * has sent, divided by its weight. There is one virtual time for each rank,
 * because guarantees and the rest of the link are shared separately. So a queue
 * that has used its guarantee competes for the rest like all others.
 *
 * A queue that paused, or had to wait for a rate, may catch up by this amount. With
 * a smaller amount, queues that get new frames late would lose their share.
 */
#define CATCH_UP ((u64)32768 << 10)

static void advance(u64 *mine, u64 *all, unsigned int len, u32 weight)
{
	u64 start = max(*mine, *all > CATCH_UP ? *all - CATCH_UP : 0);

	*all = max(*all, start);
	*mine = start + div_u64((u64)len << 10, weight ?: 1);
}

struct choice {
	struct simcard_queue *q;
	int rank;	/* 0: the queue's own guarantee; 1: a parent's; 2: the rest */
	u32 prio;
};

/* Returns the virtual time with which a queue, or its group, competes with others. */
static u64 outside_time(const struct choice *c)
{
	struct simcard_node *group = c->q->node[SIMCARD_GROUP];

	return group ? group->vtime[c->rank] : c->q->vtime[c->rank];
}

/* Returns whether queue a sends before queue b. */
static bool goes_before(const struct choice *a, const struct choice *b)
{
	if (!b->q || a->rank != b->rank)
		return !b->q || a->rank < b->rank;
	if (a->rank == 2 && a->prio != b->prio)
		return a->prio < b->prio;
	if (a->q->node[SIMCARD_GROUP] && a->q->node[SIMCARD_GROUP] == b->q->node[SIMCARD_GROUP])
		return a->q->vtime[a->rank] < b->q->vtime[b->rank];
	return outside_time(a) < outside_time(b);
}

/* Finds a queue's rank and prio. Returns the time when the queue may send; 0: now. */
static u64 consider(struct simcard_queue *q, u64 now, struct choice *c)
{
	struct simcard_node *n;
	u64 wait = 0;
	int l;

	*c = (struct choice){ .q = q, .rank = 2 };
	for (l = 0; l < SIMCARD_LAYERS; l++) {
		for (n = q->node[l]; n; n = n->parent) {
			if (n->max.rate && n->max.next > now)
				wait = max(wait, n->max.next);
			if (n->min.rate && n->min.next <= now)
				c->rank = min(c->rank, n == q->node[l] ? 0 : 1);
			if (n == q->node[l])
				c->prio = max(c->prio, n->prio);
		}
	}
	return wait;
}

/*
 * Counts a sent frame as a queue's turn: by the queue's weight, or by its class's
 * share if the card has shares (percent). With a share of EVEN_SHARE percent, a
 * queue may catch up by as much as a queue without a share.
 */
#define EVEN_SHARE 25

static void take_turn(struct simcard_queue *q, int rank, u64 *all, unsigned int len)
{
	const struct simcard_node *class = q->node[SIMCARD_CLASS];

	if (q->card->p.htb_shares && q->card->htb_on && class)
		advance(&q->vtime[rank], all, len * EVEN_SHARE, class->weight);
	else
		advance(&q->vtime[rank], all, len, q->shaper.weight);
}

static void charge(const struct choice *c, u64 now, unsigned int len)
{
	struct simcard_queue *q = c->q;
	struct simcard *card = q->card;
	struct simcard_node *all = &card->netdev_node, *group = q->node[SIMCARD_GROUP], *n;
	int l;

	bucket_charge(&card->link, now, len + ETH_OVERHEAD);
	for (l = 0; l < SIMCARD_LAYERS; l++) {
		for (n = q->node[l]; n; n = n->parent) {
			bucket_charge(&n->max, now, len);
			/* Frames that are sent beyond the guarantee do not count for it. */
			if (n->min.next <= now)
				bucket_charge(&n->min, now, len);
		}
	}
	take_turn(q, c->rank, &(group ?: all)->time[c->rank], len);
	if (group)
		advance(&group->vtime[c->rank], &all->time[c->rank], len, group->weight);
}

/* Sends the frames that may go now; soft interrupts are off. */
void simcard_transmit(struct simcard *card)
{
	struct net_device *dev = card->dev;
	DECLARE_BITMAP(sent, SIMCARD_MAX_QUEUES);
	struct sk_buff_head out;
	struct sk_buff *skb;
	unsigned int i;

	__skb_queue_head_init(&out);
	bitmap_zero(sent, SIMCARD_MAX_QUEUES);
	spin_lock(&card->tx_lock);
	for (;;) {
		u64 now = ktime_get_ns(), wake = U64_MAX;
		struct choice best = {}, c;

		for (i = 0; i < dev->real_num_tx_queues; i++) {
			struct simcard_queue *q = &card->queue[i];
			u64 wait;

			if (skb_queue_empty(&q->tx))
				continue;
			wait = max(consider(q, now, &c), card->link.next > now ? card->link.next : 0);
			if (wait)
				wake = min(wake, wait);
			else if (goes_before(&c, &best))
				best = c;
		}
		if (!best.q) {
			if (wake != U64_MAX)
				hrtimer_start(&card->tx_timer, ns_to_ktime(wake), HRTIMER_MODE_ABS_SOFT);
			break;
		}
		skb = __skb_dequeue(&best.q->tx);
		charge(&best, now, skb->len);
		if (netif_carrier_ok(dev)) {
			struct sk_buff *copy = skb->len <= card->wire->mtu + VLAN_ETH_HLEN ? simcard_dma(card->wire, skb) : NULL;

			if (copy) {
				skb_record_rx_queue(copy, best.q->index);
				__skb_queue_tail(&out, copy);
			} else {
				atomic64_inc(&card->tx_dropped);
			}
		}
		/* This queue needs its own lock, because NAPI reads it without tx_lock. */
		skb_queue_tail(&best.q->sent, skb);
		__set_bit(best.q->index, sent);
	}
	spin_unlock(&card->tx_lock);

	while ((skb = __skb_dequeue(&out))) {
		dev_sw_netstats_rx_add(card->wire, skb->len + ETH_HLEN);
		netif_rx(skb);
	}
	for_each_set_bit(i, sent, SIMCARD_MAX_QUEUES)
		simcard_tx_event(&card->queue[i]);
}

/* Sends frames that may go now because rates have changed. */
void simcard_kick(struct simcard *card)
{
	local_bh_disable();
	simcard_transmit(card);
	local_bh_enable();
}

static enum hrtimer_restart simcard_tx_timer(struct hrtimer *timer)
{
	simcard_transmit(container_of(timer, struct simcard, tx_timer));
	return HRTIMER_NORESTART;
}

/* Returns the number of frames in the ring: in tx and in sent. */
static u32 ring_used(struct simcard_queue *q)
{
	return skb_queue_len_lockless(&q->tx) + skb_queue_len_lockless(&q->sent);
}

netdev_tx_t simcard_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct simcard *card = simcard_of(dev);
	u16 n = skb_get_queue_mapping(skb);
	struct simcard_queue *q = &card->queue[n];
	struct netdev_queue *txq = netdev_get_tx_queue(dev, n);
	bool more = netdev_xmit_more();
	u32 ring = READ_ONCE(card->tx_ring);

	if (unlikely(ring_used(q) >= ring)) {
		netif_tx_stop_queue(txq);
		return NETDEV_TX_BUSY;
	}
	if (skb_put_padto(skb, ETH_ZLEN))
		return NETDEV_TX_OK;
	simcard_inline_learn(card, skb);
	skb_tx_timestamp(skb);
	more = !__netdev_tx_sent_queue(txq, skb->len, more);
	spin_lock(&card->tx_lock);
	__skb_queue_tail(&q->tx, skb);
	spin_unlock(&card->tx_lock);
	if (ring_used(q) >= ring) {
		netif_tx_stop_queue(txq);
		atomic64_inc(&q->tx_stops);
		smp_mb();	/* pairs with simcard_tx_complete() */
		if (ring_used(q) < ring)
			netif_tx_start_queue(txq);
		more = false;
	}
	if (!more)
		simcard_transmit(card);
	return NETDEV_TX_OK;
}

/* Frees sent frames. Called by NAPI. */
int simcard_tx_complete(struct simcard_queue *q, int budget)
{
	struct netdev_queue *txq = netdev_get_tx_queue(q->card->dev, q->index);
	unsigned int packets = 0, bytes = 0;
	struct sk_buff_head done;
	struct sk_buff *skb;

	__skb_queue_head_init(&done);
	spin_lock_bh(&q->sent.lock);
	skb_queue_splice_init(&q->sent, &done);
	spin_unlock_bh(&q->sent.lock);
	if (skb_queue_empty(&done))
		return 0;
	while ((skb = __skb_dequeue(&done))) {
		packets++;
		bytes += skb->len;
		napi_consume_skb(skb, budget);
	}
	u64_stats_update_begin(&q->sync);
	q->tx_packets += packets;
	q->tx_bytes += bytes;
	u64_stats_update_end(&q->sync);
	netdev_tx_completed_queue(txq, packets, bytes);
	smp_mb();	/* First free the room, then check for a stopped queue; pairs with simcard_xmit(). */
	if (netif_tx_queue_stopped(txq) && ring_used(q) < READ_ONCE(q->card->tx_ring) / 2 + 1)
		netif_tx_wake_queue(txq);
	return packets;
}

void simcard_tx_purge(struct simcard_queue *q)
{
	spin_lock_bh(&q->card->tx_lock);
	__skb_queue_purge(&q->tx);
	spin_unlock_bh(&q->card->tx_lock);
	skb_queue_purge(&q->sent);
	netdev_tx_reset_queue(netdev_get_tx_queue(q->card->dev, q->index));
}

int simcard_set_tx_maxrate(struct net_device *dev, int queue, u32 maxrate)
{
	struct simcard *card = simcard_of(dev);
	struct simcard_queue *q = &card->queue[queue];
	int err = simcard_call(card, "tx_maxrate");

	if (err)
		return err;
	if (maxrate > card->p.speed) {
		netdev_err(dev, "invalid maximum rate %u Mbit/s for queue %d, link %u\n", maxrate, queue, card->p.speed);
		return -EINVAL;
	}
	spin_lock_bh(&card->tx_lock);
	q->maxrate.max.rate = (u64)maxrate * 125000;
	q->maxrate.max.next = 0;
	spin_unlock_bh(&card->tx_lock);
	simcard_kick(card);
	return 0;
}

void simcard_sched_init(struct simcard *card)
{
	unsigned int i;

	spin_lock_init(&card->tx_lock);
	simcard_hrtimer_setup(&card->tx_timer, simcard_tx_timer, HRTIMER_MODE_ABS_SOFT);
	card->link.rate = (u64)card->p.speed * 125000;
	simcard_node_init(&card->netdev_node);
	simcard_node_init(&card->htb_root);
	INIT_LIST_HEAD(&card->htb);
	xa_init(&card->groups);
	for (i = 0; i < SIMCARD_MAX_TC; i++)
		simcard_node_init(&card->tc_node[i]);
	for (i = 0; i < card->p.queues; i++) {
		struct simcard_queue *q = &card->queue[i];

		__skb_queue_head_init(&q->tx);
		skb_queue_head_init(&q->sent);
		simcard_node_init(&q->maxrate);
		simcard_node_init(&q->shaper);
		q->node[SIMCARD_MAXRATE] = &q->maxrate;
		q->node[SIMCARD_SHAPER] = &q->shaper;
		q->node[SIMCARD_NETDEV] = &card->netdev_node;
	}
}
