// SPDX-License-Identifier: GPL-2.0-only
/*
 * HTB offload like mlx5 (mellanox/mlx5/core/en/htb.c): each leaf has its own
 * transmit queue, after those of the channels.
 */
#include "simcard.h"

static struct simcard_htb *class_by_id(struct simcard *card, u16 classid)
{
	struct simcard_htb *c;

	list_for_each_entry(c, &card->htb, list)
		if (c->classid == classid)
			return c;
	return NULL;
}

static unsigned int leaves(struct simcard *card)
{
	struct simcard_htb *c;
	unsigned int n = 0;

	list_for_each_entry(c, &card->htb, list)
		n += c->qid >= 0;
	return n;
}

#define MBIT 125000ULL	/* bytes */

/*
 * Returns a class's share of its parent's limit for the case that all classes
 * send, like mlx5e_htb_convert_rate().
 */
static u32 share_of(const struct simcard_htb *c)
{
	const struct simcard_node *p = c->node.parent;

	while (p && !p->max.rate)
		p = p->parent;
	return p ? clamp_t(u64, div64_u64(c->rate * 100, p->max.rate), 1, 100) : 1;
}

static void set_rates(struct simcard *card, struct simcard_htb *c, u64 rate, u64 ceil)
{
	struct simcard_htb *child;

	c->rate = rate;
	if (!card->p.htb_shares) {
		c->node.min = (struct simcard_bucket){ .rate = rate };
		c->node.max = (struct simcard_bucket){ .rate = ceil };
		return;
	}
	c->node.max = (struct simcard_bucket){ .rate = max(div64_u64(ceil, MBIT), 1) * MBIT };
	c->node.weight = share_of(c);
	list_for_each_entry(child, &card->htb, list)
		if (child->node.parent == &c->node)
			child->node.weight = share_of(child);
}

/* Refuses settings that the kernel itself does not refuse. */
static int check_class(struct simcard *card, struct tc_htb_qopt_offload *o)
{
#if SIMCARD_SINCE(6, 7)
	if (card->p.htb_shares && (o->prio || o->quantum)) {
		NL_SET_ERR_MSG_MOD(o->extack, "prio and quantum parameters are not supported by device with HTB offload enabled.");
		return -EOPNOTSUPP;
	}
#endif
	return 0;
}

static void set_prio(struct simcard_htb *c, const struct tc_htb_qopt_offload *o)
{
#if SIMCARD_SINCE(6, 7)
	c->node.prio = o->prio;
#endif
}

/* Adds a class that sends on queue qid. The caller holds no lock of the card. */
static struct simcard_htb *add_class(struct simcard *card, const struct tc_htb_qopt_offload *o,
				     struct simcard_node *parent, int qid)
{
	struct simcard_htb *c = kzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return NULL;
	simcard_node_init(&c->node);
	c->node.parent = parent;
	c->classid = o->classid;
	c->qid = qid;
	set_prio(c, o);
	spin_lock_bh(&card->tx_lock);
	set_rates(card, c, o->rate, o->ceil);
	list_add_tail(&c->list, &card->htb);
	card->queue[qid].node[SIMCARD_CLASS] = &c->node;
	spin_unlock_bh(&card->tx_lock);
	return c;
}

static void del_class(struct simcard *card, struct simcard_htb *c)
{
	spin_lock_bh(&card->tx_lock);
	if (c->qid >= 0)
		card->queue[c->qid].node[SIMCARD_CLASS] = NULL;
	list_del(&c->list);
	spin_unlock_bh(&card->tx_lock);
	kfree(c);
}

/* Drops the frames of a queue whose class is removed: another class must not send them. */
static void empty_queue(struct simcard *card, u16 qid)
{
	struct netdev_queue *txq = netdev_get_tx_queue(card->dev, qid);

	__netif_tx_lock_bh(txq);
	simcard_tx_purge(&card->queue[qid]);
	__netif_tx_unlock_bh(txq);
}

static int alloc_leaf(struct simcard *card, struct tc_htb_qopt_offload *o)
{
	unsigned int qid = card->dev->real_num_rx_queues + leaves(card);
	struct simcard_node *parent = &card->htb_root;
	struct simcard_htb *p;
	int err;

	if (qid >= card->p.queues) {
		NL_SET_ERR_MSG_MOD(o->extack, "Maximum amount of leaf classes is reached.");
		return -ENOSPC;
	}
	if (o->parent_classid != TC_HTB_CLASSID_ROOT) {
		p = class_by_id(card, o->parent_classid);
		if (!p)
			return -EINVAL;
		parent = &p->node;
	}
	if (!add_class(card, o, parent, qid))
		return -ENOMEM;
	err = netif_set_real_num_tx_queues(card->dev, qid + 1);
	if (err) {
		del_class(card, class_by_id(card, o->classid));
		return err;
	}
	if (netif_running(card->dev))
		netif_tx_start_queue(netdev_get_tx_queue(card->dev, qid));
	o->qid = qid;
	return 0;
}

static int leaf_to_inner(struct simcard *card, struct tc_htb_qopt_offload *o)
{
	struct simcard_htb *p = class_by_id(card, o->parent_classid);
	int qid;

	if (!p)
		return -ENOENT;
	qid = p->qid;
	if (!add_class(card, o, &p->node, qid))
		return -ENOMEM;
	WRITE_ONCE(p->qid, -1);
	return 0;
}

static int del_leaf(struct simcard *card, struct tc_htb_qopt_offload *o)
{
	struct simcard_htb *c = class_by_id(card, o->classid), *last;
	int qid, end;

	if (!c)
		return -ENOENT;
	qid = c->qid;
	end = card->dev->real_num_rx_queues + leaves(card) - 1;
	del_class(card, c);
	empty_queue(card, qid);
	if (qid != end) {	/* no gaps between queues: the last queue moves here */
		list_for_each_entry(last, &card->htb, list)
			if (last->qid == end)
				break;
		spin_lock_bh(&card->tx_lock);
		card->queue[end].node[SIMCARD_CLASS] = NULL;
		card->queue[qid].node[SIMCARD_CLASS] = &last->node;
		WRITE_ONCE(last->qid, qid);
		spin_unlock_bh(&card->tx_lock);
		empty_queue(card, end);
		o->classid = last->classid;
	}
	return netif_set_real_num_tx_queues(card->dev, end);
}

static int del_last(struct simcard *card, struct tc_htb_qopt_offload *o)
{
	struct simcard_htb *c = class_by_id(card, o->classid), *p;
	int qid;

	if (!c)
		return -ENOENT;
	list_for_each_entry(p, &card->htb, list)
		if (&p->node == c->node.parent)
			break;
	if (list_entry_is_head(p, &card->htb, list))
		return -EINVAL;
	qid = c->qid;
	del_class(card, c);
	empty_queue(card, qid);
	spin_lock_bh(&card->tx_lock);
	WRITE_ONCE(p->qid, qid);
	card->queue[qid].node[SIMCARD_CLASS] = &p->node;
	spin_unlock_bh(&card->tx_lock);
	return 0;
}

static void destroy_all(struct simcard *card)
{
	struct simcard_htb *c, *next;

	list_for_each_entry_safe_reverse(c, next, &card->htb, list)
		del_class(card, c);
	card->htb_on = false;
	netif_set_real_num_tx_queues(card->dev, card->dev->real_num_rx_queues);
}

int simcard_setup_htb(struct simcard *card, struct tc_htb_qopt_offload *o)
{
	struct simcard_htb *c;
	int err;

	switch (o->command) {
	case TC_HTB_DESTROY:
		destroy_all(card);
		return 0;
	case TC_HTB_LEAF_QUERY_QUEUE:
		c = class_by_id(card, o->classid);
		if (!c || c->qid < 0)
			return -ENOENT;
		o->qid = c->qid;
		return 0;
	case TC_HTB_LEAF_DEL_LAST_FORCE:
		return del_last(card, o);
	default:
		break;
	}
	err = simcard_call(card, "HTB") ?: check_class(card, o);
	if (err)
		return err;
	switch (o->command) {
	case TC_HTB_CREATE:
		if (card->num_tc || card->dev->num_tc)
			return -EBUSY;
		card->htb_major = o->parent_classid;
		card->htb_default = o->classid;
		card->htb_on = true;
		return 0;
	case TC_HTB_LEAF_ALLOC_QUEUE:
		return alloc_leaf(card, o);
	case TC_HTB_LEAF_TO_INNER:
		return leaf_to_inner(card, o);
	case TC_HTB_LEAF_DEL:
		return del_leaf(card, o);
	case TC_HTB_LEAF_DEL_LAST:
		return del_last(card, o);
	case TC_HTB_NODE_MODIFY:
		c = class_by_id(card, o->classid);
		if (!c)
			return -ENOENT;
		spin_lock_bh(&card->tx_lock);
		set_rates(card, c, o->rate, o->ceil);
		set_prio(c, o);
		spin_unlock_bh(&card->tx_lock);
		simcard_kick(card);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

/*
 * Returns the transmit queue of a frame. With HTB, the frame's priority selects a
 * class. Frames without a class use the queues of the channels.
 */
u16 simcard_select_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev)
{
	struct simcard *card = simcard_of(dev);
	unsigned int channels = dev->real_num_rx_queues;
	struct simcard_htb *c = NULL;
	int qid = -1;
	u16 n;

	if (likely(!READ_ONCE(card->htb_on)))
		return netdev_pick_tx(dev, skb, sb_dev);
	spin_lock(&card->tx_lock);
	if (TC_H_MAJ(skb->priority) >> 16 == card->htb_major)
		c = class_by_id(card, TC_H_MIN(skb->priority));
	if (!c || c->qid < 0)
		c = class_by_id(card, card->htb_default);
	if (c)
		qid = c->qid;
	spin_unlock(&card->tx_lock);
	if (qid >= 0)
		return qid;
	n = netdev_pick_tx(dev, skb, sb_dev);
	return n < channels ? n : n % channels;
}
