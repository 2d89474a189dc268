// SPDX-License-Identifier: GPL-2.0-only
/* Receive side scaling: Toeplitz hash, tables, contexts. */
#include <linux/ethtool.h>

#include "simcard.h"

/*
 * Computes the Toeplitz hash. For each bit of the input that is set, the hash is
 * XORed with the 32 bits of the key from the same position on.
 */
static u32 toeplitz(const u8 *key, const u8 *input, int n)
{
	u64 window = (u64)key[0] << 24 | key[1] << 16 | key[2] << 8 | key[3];
	u32 hash = 0;
	int i, bit;

	for (i = 0; i < n; i++) {
		window = window << 8 | key[i + 4];
		for (bit = 0; bit < 8; bit++)
			if (input[i] & (0x80 >> bit))
				hash ^= (u32)(window >> (8 - bit));
	}
	return hash;
}

/* Returns the index in hash_fields for a protocol; -1 if it has none. */
static int hash_class(__be16 proto, u8 ip_proto)
{
	int v6 = proto == htons(ETH_P_IPV6) ? 2 : 0;

	if (ip_proto == IPPROTO_TCP)
		return v6;
	return ip_proto == IPPROTO_UDP ? v6 + 1 : -1;
}

#define TWO_TUPLE	(RXH_IP_SRC | RXH_IP_DST)
#define FOUR_TUPLE	(TWO_TUPLE | RXH_L4_B_0_1 | RXH_L4_B_2_3)

/* Returns a frame's hash. For a frame that is not IP it is 0, the table's first entry. */
u32 simcard_hash(struct simcard *card, const u8 *key, const struct simcard_flow *flow, bool *l4)
{
	u8 input[2 * sizeof(struct in6_addr) + 4];
	int size, class, n;

	*l4 = false;
	if (flow->proto == htons(ETH_P_IP))
		size = 4;
	else if (flow->proto == htons(ETH_P_IPV6))
		size = 16;
	else
		return 0;
	memcpy(input, flow->src, size);
	memcpy(input + size, flow->dst, size);
	n = 2 * size;
	class = hash_class(flow->proto, flow->ip_proto);
	if (class >= 0 && flow->ports && card->hash_fields[class] == FOUR_TUPLE) {
		memcpy(input + n, &flow->sport, 2);
		memcpy(input + n + 2, &flow->dport, 2);
		n += 4;
		*l4 = true;
	}
	return toeplitz(key, input, n);
}

static int fields_class(u32 flow_type)
{
	switch (flow_type) {
	case TCP_V4_FLOW:
		return 0;
	case UDP_V4_FLOW:
		return 1;
	case TCP_V6_FLOW:
		return 2;
	case UDP_V6_FLOW:
		return 3;
	}
	return -1;
}

int simcard_get_hash_fields(struct simcard *card, u32 flow_type, u64 *data)
{
	int class = fields_class(flow_type);

	if (class >= 0) {
		*data = card->hash_fields[class];
		return 0;
	}
	switch (flow_type) {
	case IPV4_FLOW:
	case IPV6_FLOW:
	case SCTP_V4_FLOW:
	case SCTP_V6_FLOW:
		*data = TWO_TUPLE;
		return 0;
	}
	return -EINVAL;
}

int simcard_set_hash_fields(struct simcard *card, u32 flow_type, u64 data)
{
	int class = fields_class(flow_type), err = simcard_call(card, "set_rxfh_fields");

	if (err)
		return err;
	if (class < 0 || (data != TWO_TUPLE && data != FOUR_TUPLE))
		return -EINVAL;
	spin_lock_bh(&card->steer_lock);
	card->hash_fields[class] = data;
	spin_unlock_bh(&card->steer_lock);
	return 0;
}

static void fill_default(struct simcard *card, u32 *table)
{
	u32 i;

	for (i = 0; i < card->p.indir; i++)
		table[i] = ethtool_rxfh_indir_default(i, card->dev->real_num_rx_queues);
}

/* Fills the default table for the present channels, unless a user has set a table. */
void simcard_rss_default(struct simcard *card)
{
	if (netif_is_rxfh_configured(card->dev))
		return;
	spin_lock_bh(&card->steer_lock);
	fill_default(card, card->rss.indir);
	spin_unlock_bh(&card->steer_lock);
}

void simcard_rss_init(struct simcard *card)
{
	int i;

	netdev_rss_key_fill(card->rss.key, sizeof(card->rss.key));
	fill_default(card, card->rss.indir);
	for (i = 0; i < ARRAY_SIZE(card->hash_fields); i++)
		card->hash_fields[i] = FOUR_TUPLE;
}

/* Removes all contexts of the card. Kernels that track contexts are notified. */
void simcard_rss_forget(struct simcard *card)
{
	struct simcard_rss *lost[SIMCARD_MAX_CONTEXTS];
	int i;

	spin_lock_bh(&card->steer_lock);
	memcpy(lost, card->context, sizeof(lost));
	memset(card->context, 0, sizeof(card->context));
	if (card->dev->reg_state == NETREG_REGISTERED)	/* a card that is not registered has no queues */
		fill_default(card, card->rss.indir);
	spin_unlock_bh(&card->steer_lock);
	for (i = 1; i < SIMCARD_MAX_CONTEXTS; i++) {
		if (!lost[i])
			continue;
#if SIMCARD_HAS_RXFH_PARAM
		if (card->dev->reg_state == NETREG_REGISTERED)
			ethtool_rxfh_context_lost(card->dev, i);
#endif
		kfree(lost[i]);
	}
}

/* Refuses changes of RSS if traffic classes own the queues, as ice does. */
static int classes_own_queues(struct simcard *card)
{
	if (!card->num_tc || !card->p.rx_classes)
		return 0;
	netdev_err(card->dev, "Cannot change RSS params with ADQ configured.\n");
	return -EOPNOTSUPP;
}

static int check_hfunc(u8 hfunc)
{
	return hfunc == ETH_RSS_HASH_NO_CHANGE || hfunc == ETH_RSS_HASH_TOP ? 0 : -EOPNOTSUPP;
}

static void modify(struct simcard *card, struct simcard_rss *rss, const u32 *indir, const u8 *key)
{
	spin_lock_bh(&card->steer_lock);
	if (indir)
		memcpy(rss->indir, indir, card->p.indir * sizeof(*indir));
	if (key)
		memcpy(rss->key, key, sizeof(rss->key));
	spin_unlock_bh(&card->steer_lock);
}

static int set_default(struct simcard *card, const u32 *indir, const u8 *key, u8 hfunc)
{
	int err = simcard_call(card, "set_rxfh");

	err = err ?: check_hfunc(hfunc);
	err = err ?: classes_own_queues(card);
	if (!err)
		modify(card, &card->rss, indir, key);
	return err;
}

static int create(struct simcard *card, u32 id, const u32 *indir, const u8 *key, u8 hfunc)
{
	struct simcard_rss *rss;
	int err = simcard_call(card, "create_rxfh_context");

	err = err ?: check_hfunc(hfunc);
	err = err ?: classes_own_queues(card);
	if (err)
		return err;
	rss = kzalloc(sizeof(*rss), GFP_KERNEL);
	if (!rss)
		return -ENOMEM;
	fill_default(card, rss->indir);
	memcpy(rss->key, card->rss.key, sizeof(rss->key));
	modify(card, rss, indir, key);
	spin_lock_bh(&card->steer_lock);
	card->context[id] = rss;
	spin_unlock_bh(&card->steer_lock);
	return 0;
}

static int change(struct simcard *card, u32 id, const u32 *indir, const u8 *key, u8 hfunc)
{
	int err = simcard_call(card, "modify_rxfh_context");

	err = err ?: check_hfunc(hfunc);
	if (err)
		return err;
	if (!card->context[id])
		return -ENOENT;
	modify(card, card->context[id], indir, key);
	return 0;
}

static int destroy(struct simcard *card, u32 id)
{
	struct simcard_rss *rss = card->context[id];
	struct simcard_rule *r;
	int err = simcard_call(card, "remove_rxfh_context");

	if (err)
		return err;
	if (!rss)
		return -ENOENT;
	list_for_each_entry(r, &card->rules, list)
		if (r->spec.flow_type & FLOW_RSS && r->context == id)
			return -EBUSY;
	spin_lock_bh(&card->steer_lock);
	card->context[id] = NULL;
	spin_unlock_bh(&card->steer_lock);
	kfree(rss);
	return 0;
}

static u32 get_key_size(struct net_device *dev)
{
	return SIMCARD_KEY_SIZE;
}

static u32 get_indir_size(struct net_device *dev)
{
	return simcard_of(dev)->p.indir;
}

static void report(struct simcard *card, const struct simcard_rss *rss, u32 *indir, u8 *key, u8 *hfunc)
{
	u32 i;

	if (hfunc)
		*hfunc = ETH_RSS_HASH_TOP;
	if (key)
		memcpy(key, rss->key, sizeof(rss->key));
	if (!indir)
		return;
	for (i = 0; i < card->p.indir; i++) {
		indir[i] = rss->indir[i];
		if (rss == &card->rss && card->num_tc && card->p.rx_classes)
			indir[i] = card->tc_offset[0] + indir[i] % card->tc_count[0];
	}
}

#if SIMCARD_HAS_RXFH_PARAM

static int get_rxfh(struct net_device *dev, struct ethtool_rxfh_param *p)
{
	struct simcard *card = simcard_of(dev);

	report(card, &card->rss, p->indir, p->key, &p->hfunc);
	return 0;
}

static int set_rxfh(struct net_device *dev, struct ethtool_rxfh_param *p, struct netlink_ext_ack *extack)
{
	return set_default(simcard_of(dev), p->indir, p->key, p->hfunc);
}

/* Copies a context of the card to the copy that the kernel's core keeps. */
static void mirror(struct simcard *card, struct ethtool_rxfh_context *ctx, u32 id)
{
	memcpy(ethtool_rxfh_context_indir(ctx), card->context[id]->indir, card->p.indir * sizeof(u32));
	memcpy(ethtool_rxfh_context_key(ctx), card->context[id]->key, SIMCARD_KEY_SIZE);
	ctx->hfunc = ETH_RSS_HASH_TOP;
}

static int create_context(struct net_device *dev, struct ethtool_rxfh_context *ctx,
			  const struct ethtool_rxfh_param *p, struct netlink_ext_ack *extack)
{
	struct simcard *card = simcard_of(dev);
	u32 id = p->rss_context;
	int err;

	if (id >= card->p.contexts) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "Out of RSS contexts, maximum %u", card->p.contexts - 1);
		return -EINVAL;
	}
	err = create(card, id, p->indir, p->key, p->hfunc);
	if (!err)
		mirror(card, ctx, id);
	return err;
}

static int modify_context(struct net_device *dev, struct ethtool_rxfh_context *ctx,
			  const struct ethtool_rxfh_param *p, struct netlink_ext_ack *extack)
{
	return change(simcard_of(dev), p->rss_context, p->indir, p->key, p->hfunc);
}

static int remove_context(struct net_device *dev, struct ethtool_rxfh_context *ctx, u32 id,
			  struct netlink_ext_ack *extack)
{
	return destroy(simcard_of(dev), id);
}

static int get_fields(struct net_device *dev, struct ethtool_rxfh_fields *f)
{
	u64 data;
	int err = simcard_get_hash_fields(simcard_of(dev), f->flow_type, &data);

	if (!err)
		f->data = data;
	return err;
}

static int set_fields(struct net_device *dev, const struct ethtool_rxfh_fields *f, struct netlink_ext_ack *extack)
{
	return simcard_set_hash_fields(simcard_of(dev), f->flow_type, f->data);
}

#else

static int get_rxfh(struct net_device *dev, u32 *indir, u8 *key, u8 *hfunc)
{
	struct simcard *card = simcard_of(dev);

	report(card, &card->rss, indir, key, hfunc);
	return 0;
}

static int set_rxfh(struct net_device *dev, const u32 *indir, const u8 *key, const u8 hfunc)
{
	return set_default(simcard_of(dev), indir, key, hfunc);
}

static int get_context(struct net_device *dev, u32 *indir, u8 *key, u8 *hfunc, u32 id)
{
	struct simcard *card = simcard_of(dev);

	if (id >= card->p.contexts || !card->context[id])
		return -ENOENT;
	report(card, card->context[id], indir, key, hfunc);
	return 0;
}

static int set_context(struct net_device *dev, const u32 *indir, const u8 *key, const u8 hfunc, u32 *id, bool delete)
{
	struct simcard *card = simcard_of(dev);
	u32 i;

	if (*id == ETH_RXFH_CONTEXT_ALLOC) {
		int err;

		for (i = 1; i < card->p.contexts && card->context[i]; i++)
			;
		if (i >= card->p.contexts)
			return card->p.contexts > 1 ? -ENOSPC : -EOPNOTSUPP;
		err = create(card, i, indir, key, hfunc);
		if (!err)
			*id = i;
		return err;
	}
	if (*id >= card->p.contexts)
		return -ENOENT;
	return delete ? destroy(card, *id) : change(card, *id, indir, key, hfunc);
}

#endif

/* Sets the operations. Those for contexts are set only if the card has contexts. */
void simcard_ethtool_rss(struct ethtool_ops *ops)
{
	ops->get_rxfh_key_size = get_key_size;
	ops->get_rxfh_indir_size = get_indir_size;
	ops->get_rxfh = get_rxfh;
	ops->set_rxfh = set_rxfh;
#if SIMCARD_HAS_RXFH_PARAM
	ops->get_rxfh_fields = get_fields;
	ops->set_rxfh_fields = set_fields;
	ops->rxfh_per_ctx_key = 1;
	if (simcard_contexts > 1) {
		ops->create_rxfh_context = create_context;
		ops->modify_rxfh_context = modify_context;
		ops->remove_rxfh_context = remove_context;
		ops->rxfh_max_num_contexts = simcard_contexts;
	}
#else
	if (simcard_contexts > 1) {
		ops->get_rxfh_context = get_context;
		ops->set_rxfh_context = set_context;
	}
#endif
}
