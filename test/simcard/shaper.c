// SPDX-License-Identifier: GPL-2.0-only
/* net-shaper: rates of queues, of groups of queues, and of the device. */
#include "simcard.h"

#if SIMCARD_HAS_NET_SHAPER

static void set_node(struct simcard_node *node, const struct net_shaper *s)
{
	/* The kernel's rates are in bits per second, the card's in bytes per second. */
	node->max = (struct simcard_bucket){ .rate = s ? s->bw_max / 8 : 0 };
	node->min = (struct simcard_bucket){ .rate = s ? s->bw_min / 8 : 0 };
	node->weight = s && s->weight ? s->weight : 1;
}

/* Moves a queue to another group. It starts at the group's virtual time. */
static void join(struct simcard_queue *q, struct simcard_node *group)
{
	if (q->node[SIMCARD_GROUP] == group)
		return;
	q->node[SIMCARD_GROUP] = group;
	memcpy(q->vtime, (group ?: &q->card->netdev_node)->time, sizeof(q->vtime));
}

static int shaper_set(struct net_shaper_binding *binding, const struct net_shaper *s, struct netlink_ext_ack *extack)
{
	struct simcard *card = simcard_of(binding->netdev);
	struct simcard_node *node = NULL;
	int err = simcard_call(card, "net-shaper set");

	if (err)
		return err;
	if (s->bw_min > (u64)card->p.speed * 1000000 || (s->bw_max && s->bw_min > s->bw_max)) {
		NL_SET_ERR_MSG_MOD(extack, "bw-min exceeds bw-max or the link's speed");
		return -EINVAL;
	}
	spin_lock_bh(&card->tx_lock);
	switch (s->handle.scope) {
	case NET_SHAPER_SCOPE_NETDEV:
		node = &card->netdev_node;
		break;
	case NET_SHAPER_SCOPE_QUEUE:
		if (s->handle.id < card->p.queues)
			node = &card->queue[s->handle.id].shaper;
		break;
	case NET_SHAPER_SCOPE_NODE:
		node = xa_load(&card->groups, s->handle.id);
		break;
	default:
		break;
	}
	if (node)
		set_node(node, s);
	spin_unlock_bh(&card->tx_lock);
	if (!node)
		return -ENOENT;
	simcard_kick(card);
	return 0;
}

static int shaper_group(struct net_shaper_binding *binding, int n, const struct net_shaper *leaves,
			const struct net_shaper *s, struct netlink_ext_ack *extack)
{
	struct simcard *card = simcard_of(binding->netdev);
	struct simcard_node *node = NULL;
	int i, err = simcard_call(card, "net-shaper group");

	if (err)
		return err;
	for (i = 0; i < n; i++)
		if (leaves[i].handle.id >= card->p.queues)
			return -EINVAL;
	if (s->handle.scope == NET_SHAPER_SCOPE_NODE) {
		if (s->parent.scope == NET_SHAPER_SCOPE_NODE) {
			NL_SET_ERR_MSG_MOD(extack, "groups of groups are not supported");
			return -EOPNOTSUPP;
		}
		node = xa_load(&card->groups, s->handle.id);
		if (!node) {
			node = kzalloc(sizeof(*node), GFP_KERNEL);
			if (!node)
				return -ENOMEM;
			simcard_node_init(node);
			err = xa_err(xa_store(&card->groups, s->handle.id, node, GFP_KERNEL));
			if (err) {
				kfree(node);
				return err;
			}
		}
	}
	spin_lock_bh(&card->tx_lock);
	set_node(node ?: &card->netdev_node, s);
	for (i = 0; i < n; i++) {
		struct simcard_queue *q = &card->queue[leaves[i].handle.id];

		set_node(&q->shaper, &leaves[i]);
		join(q, node);
	}
	spin_unlock_bh(&card->tx_lock);
	simcard_kick(card);
	return 0;
}

static int shaper_delete(struct net_shaper_binding *binding, const struct net_shaper_handle *h,
			 struct netlink_ext_ack *extack)
{
	struct simcard *card = simcard_of(binding->netdev);
	struct simcard_node *node = NULL;
	int i, err = simcard_call(card, "net-shaper delete");

	if (err)
		return err;
	if (h->scope == NET_SHAPER_SCOPE_NODE)
		node = xa_erase(&card->groups, h->id);
	spin_lock_bh(&card->tx_lock);
	if (h->scope == NET_SHAPER_SCOPE_NETDEV) {
		set_node(&card->netdev_node, NULL);
	} else if (h->scope == NET_SHAPER_SCOPE_QUEUE && h->id < card->p.queues) {
		set_node(&card->queue[h->id].shaper, NULL);
		join(&card->queue[h->id], NULL);
	} else if (node) {
		for (i = 0; i < card->p.queues; i++)
			if (card->queue[i].node[SIMCARD_GROUP] == node)
				join(&card->queue[i], NULL);
	}
	spin_unlock_bh(&card->tx_lock);
	kfree(node);
	simcard_kick(card);
	return 0;
}

static void shaper_capabilities(struct net_shaper_binding *binding, enum net_shaper_scope scope, unsigned long *cap)
{
	if (scope != NET_SHAPER_SCOPE_NETDEV && scope != NET_SHAPER_SCOPE_QUEUE && scope != NET_SHAPER_SCOPE_NODE)
		return;
	*cap = BIT(NET_SHAPER_A_CAPS_SUPPORT_METRIC_BPS) | BIT(NET_SHAPER_A_CAPS_SUPPORT_BW_MAX);
	if (scope != NET_SHAPER_SCOPE_NETDEV)
		*cap |= BIT(NET_SHAPER_A_CAPS_SUPPORT_BW_MIN) | BIT(NET_SHAPER_A_CAPS_SUPPORT_WEIGHT);
	if (scope == NET_SHAPER_SCOPE_QUEUE)
		*cap |= BIT(NET_SHAPER_A_CAPS_SUPPORT_NESTING);
}

const struct net_shaper_ops simcard_shaper_ops = {
	.set = shaper_set,
	.group = shaper_group,
	.delete = shaper_delete,
	.capabilities = shaper_capabilities,
};

#endif

void simcard_shaper_forget(struct simcard *card)
{
	struct simcard_node *node;
	unsigned long id;
	unsigned int i;

	spin_lock_bh(&card->tx_lock);
	simcard_node_init(&card->netdev_node);
	for (i = 0; i < card->p.queues; i++) {
		simcard_node_init(&card->queue[i].shaper);
		card->queue[i].node[SIMCARD_GROUP] = NULL;
	}
	spin_unlock_bh(&card->tx_lock);
	xa_for_each(&card->groups, id, node) {
		xa_erase(&card->groups, id);
		kfree(node);
	}
}
