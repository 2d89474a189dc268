// SPDX-License-Identifier: GPL-2.0-only
/*
 * Chooses a frame's receive queue. Like the E810, it first looks at flower
 * filters, then at ntuple rules, then at the default RSS table
 * (Documentation/networking/tc-queue-filters.rst).
 */
#include <linux/jhash.h>

#include "simcard.h"

/* Returns a hash that is the same for both directions of a connection. */
static u32 both_ways(const struct simcard_flow *flow)
{
	u32 words[6];
	int i;

	for (i = 0; i < 4; i++)
		words[i] = (__force u32)(flow->src[i] ^ flow->dst[i]);
	words[4] = (__force u32)(flow->sport ^ flow->dport);
	words[5] = flow->ip_proto;
	return jhash2(words, ARRAY_SIZE(words), 0);
}

/* Remembers a frame's transmit queue. In a traffic class with inline flow
 * direction, the card receives a connection on the queue on which it last sent.
 */
void simcard_inline_learn(struct simcard *card, struct sk_buff *skb)
{
	u16 n = skb_get_queue_mapping(skb);
	struct simcard_inline *slot;
	struct simcard_flow flow;
	int tc, found = -1;
	u32 hash;

	for (tc = 1; tc < READ_ONCE(card->num_tc); tc++)
		if (card->poller[tc].inline_fd && n >= card->tc_offset[tc] && n < card->tc_offset[tc] + card->tc_count[tc])
			found = tc;
	if (found < 0)
		return;
	simcard_parse(skb, &flow);
	if (!flow.ports)
		return;
	hash = both_ways(&flow);
	spin_lock(&card->steer_lock);
	slot = &card->inline_fd[hash % SIMCARD_INLINE_SLOTS];
	slot->hash = hash;
	slot->queue = n;
	spin_unlock(&card->steer_lock);
}

static int in_class(struct simcard *card, u8 tc, const struct simcard_flow *flow, u32 hash)
{
	u16 offset = card->tc_offset[tc], count = card->tc_count[tc];

	if (card->poller[tc].inline_fd && flow->ports) {
		u32 sym = both_ways(flow);
		struct simcard_inline *slot = &card->inline_fd[sym % SIMCARD_INLINE_SLOTS];

		if (slot->hash == sym && slot->queue >= offset && slot->queue < offset + count)
			return slot->queue;
	}
	return offset + hash % count;
}

/* Returns the frame's receive queue, or -1 if the card drops the frame. */
int simcard_steer(struct simcard *card, struct sk_buff *skb)
{
	struct simcard_filter *f;
	struct simcard_rule *r;
	struct simcard_flow flow;
	u32 hash, entry;
	bool l4;
	int n;

	simcard_parse(skb, &flow);
	spin_lock(&card->steer_lock);
	hash = simcard_hash(card, card->rss.key, &flow, &l4);
	list_for_each_entry(f, &card->filters, list) {
		if (!simcard_matches(&f->match, &flow))
			continue;
		f->packets++;
		f->bytes += skb->len + ETH_HLEN;
		if (f->action == SIMCARD_DROP)
			n = -1;
		else if (f->action == SIMCARD_TO_QUEUE)
			n = f->target;
		else if (f->target < card->num_tc)
			n = in_class(card, f->target, &flow, hash);
		else
			continue;
		goto out;
	}
	list_for_each_entry(r, &card->rules, list) {
		if (!simcard_matches(&r->match, &flow))
			continue;
		atomic64_inc(&r->hits);
		if (r->spec.ring_cookie == RX_CLS_FLOW_DISC) {
			n = -1;
		} else if (r->spec.flow_type & FLOW_RSS && r->context) {
			struct simcard_rss *rss = card->context[r->context];

			hash = simcard_hash(card, rss->key, &flow, &l4);
			n = rss->indir[hash % card->p.indir];
		} else if (r->spec.flow_type & FLOW_RSS) {
			n = card->rss.indir[hash % card->p.indir];
		} else {
			n = r->spec.ring_cookie;
		}
		goto out;
	}
	entry = card->rss.indir[hash % card->p.indir];
	if (card->num_tc && card->p.rx_classes)	/* as ice shows it in ethtool -x */
		n = card->tc_offset[0] + entry % card->tc_count[0];
	else
		n = entry;
out:
	spin_unlock(&card->steer_lock);
	if (card->dev->features & NETIF_F_RXHASH && hash)
		skb_set_hash(skb, hash, l4 ? PKT_HASH_TYPE_L4 : PKT_HASH_TYPE_L3);
	return n;
}
