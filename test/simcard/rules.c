// SPDX-License-Identifier: GPL-2.0-only
/*
 * ntuple rules: ethtool -N, -U and -n. The matching rule with the lowest
 * location wins.
 */
#include <linux/etherdevice.h>

#include "simcard.h"

static void match_proto(struct simcard_match *match, u16 ethertype)
{
	match->value.proto = htons(ethertype);
	match->mask.proto = htons(0xffff);
}

static void match_ip_proto(struct simcard_match *match, u8 proto)
{
	match->value.ip_proto = proto;
	match->mask.ip_proto = 0xff;
}

static void match_ports(struct simcard_match *match, __be16 sport, __be16 sport_mask, __be16 dport, __be16 dport_mask)
{
	TAKE(match, sport, sport, sport_mask);
	TAKE(match, dport, dport, dport_mask);
	if (sport_mask || dport_mask) {
		match->value.ports = true;
		match->mask.ports = true;
	}
}

static void match_v6(struct simcard_match *match, const __be32 *src, const __be32 *src_mask,
		     const __be32 *dst, const __be32 *dst_mask)
{
	memcpy(match->value.src, src, sizeof(match->value.src));
	memcpy(match->mask.src, src_mask, sizeof(match->mask.src));
	memcpy(match->value.dst, dst, sizeof(match->value.dst));
	memcpy(match->mask.dst, dst_mask, sizeof(match->mask.dst));
}

/* Sets the fields that a rule compares. The bits that are set in the mask are
 * compared: the ethtool command has already inverted the mask that the user gave.
 */
static int rule_match(struct simcard *card, const struct ethtool_rx_flow_spec *s, struct simcard_match *match)
{
	const union ethtool_flow_union *v = &s->h_u, *m = &s->m_u;
	u32 type = s->flow_type & ~(FLOW_EXT | FLOW_MAC_EXT | FLOW_RSS);

	memset(match, 0, sizeof(*match));
	switch (type) {
	case TCP_V4_FLOW:
	case UDP_V4_FLOW:
	case SCTP_V4_FLOW:
		match_proto(match, ETH_P_IP);
		match_ip_proto(match, type == TCP_V4_FLOW ? IPPROTO_TCP : type == UDP_V4_FLOW ? IPPROTO_UDP : IPPROTO_SCTP);
		TAKE(match, src[0], v->tcp_ip4_spec.ip4src, m->tcp_ip4_spec.ip4src);
		TAKE(match, dst[0], v->tcp_ip4_spec.ip4dst, m->tcp_ip4_spec.ip4dst);
		TAKE(match, tos, v->tcp_ip4_spec.tos, m->tcp_ip4_spec.tos);
		match_ports(match, v->tcp_ip4_spec.psrc, m->tcp_ip4_spec.psrc, v->tcp_ip4_spec.pdst, m->tcp_ip4_spec.pdst);
		break;
	case TCP_V6_FLOW:
	case UDP_V6_FLOW:
	case SCTP_V6_FLOW:
		match_proto(match, ETH_P_IPV6);
		match_ip_proto(match, type == TCP_V6_FLOW ? IPPROTO_TCP : type == UDP_V6_FLOW ? IPPROTO_UDP : IPPROTO_SCTP);
		match_v6(match, v->tcp_ip6_spec.ip6src, m->tcp_ip6_spec.ip6src, v->tcp_ip6_spec.ip6dst, m->tcp_ip6_spec.ip6dst);
		TAKE(match, tos, v->tcp_ip6_spec.tclass, m->tcp_ip6_spec.tclass);
		match_ports(match, v->tcp_ip6_spec.psrc, m->tcp_ip6_spec.psrc, v->tcp_ip6_spec.pdst, m->tcp_ip6_spec.pdst);
		break;
	case IP_USER_FLOW:
		if (m->usr_ip4_spec.l4_4_bytes || v->usr_ip4_spec.ip_ver != ETH_RX_NFC_IP4)
			return -EOPNOTSUPP;
		match_proto(match, ETH_P_IP);
		TAKE(match, src[0], v->usr_ip4_spec.ip4src, m->usr_ip4_spec.ip4src);
		TAKE(match, dst[0], v->usr_ip4_spec.ip4dst, m->usr_ip4_spec.ip4dst);
		TAKE(match, tos, v->usr_ip4_spec.tos, m->usr_ip4_spec.tos);
		TAKE(match, ip_proto, v->usr_ip4_spec.proto, m->usr_ip4_spec.proto);
		break;
	case IPV6_USER_FLOW:
		if (m->usr_ip6_spec.l4_4_bytes)
			return -EOPNOTSUPP;
		match_proto(match, ETH_P_IPV6);
		match_v6(match, v->usr_ip6_spec.ip6src, m->usr_ip6_spec.ip6src, v->usr_ip6_spec.ip6dst, m->usr_ip6_spec.ip6dst);
		TAKE(match, tos, v->usr_ip6_spec.tclass, m->usr_ip6_spec.tclass);
		TAKE(match, ip_proto, v->usr_ip6_spec.l4_proto, m->usr_ip6_spec.l4_proto);
		break;
	case ETHER_FLOW:
		ether_addr_copy(match->value.dmac, v->ether_spec.h_dest);
		ether_addr_copy(match->mask.dmac, m->ether_spec.h_dest);
		ether_addr_copy(match->value.smac, v->ether_spec.h_source);
		ether_addr_copy(match->mask.smac, m->ether_spec.h_source);
		TAKE(match, proto, v->ether_spec.h_proto, m->ether_spec.h_proto);
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (card->p.rules_v4_only && match->value.proto == htons(ETH_P_IPV6))
		return -EOPNOTSUPP;
	if (s->flow_type & FLOW_MAC_EXT) {
		ether_addr_copy(match->value.dmac, s->h_ext.h_dest);
		ether_addr_copy(match->mask.dmac, s->m_ext.h_dest);
	}
	if (s->flow_type & FLOW_EXT) {
		if (s->m_ext.data[0] || s->m_ext.data[1] || s->m_ext.vlan_etype)
			return -EOPNOTSUPP;
		match->value.vlan = true;
		match->mask.vlan = true;
		TAKE(match, vlan_tci, ntohs(s->h_ext.vlan_tci), ntohs(s->m_ext.vlan_tci));
	}
	return 0;
}

static struct simcard_rule *rule_at(struct simcard *card, u32 location)
{
	struct simcard_rule *r;

	list_for_each_entry(r, &card->rules, list)
		if (r->spec.location == location)
			return r;
	return NULL;
}

static void unlink_rule(struct simcard *card, struct simcard_rule *r)
{
	spin_lock_bh(&card->steer_lock);
	list_del(&r->list);
	card->n_rules--;
	spin_unlock_bh(&card->steer_lock);
	kfree(r);
}

static int check_target(struct simcard *card, const struct ethtool_rxnfc *info)
{
	const struct ethtool_rx_flow_spec *s = &info->fs;

	if (s->ring_cookie == RX_CLS_FLOW_DISC)
		return 0;
	if (s->flow_type & FLOW_RSS) {
		if (s->ring_cookie)
			return -EINVAL;
		if (info->rss_context && (info->rss_context >= card->p.contexts || !card->context[info->rss_context]))
			return -EINVAL;
		return simcard_contexts > 1 ? 0 : -EINVAL;	/* as ice */
	}
	if (ethtool_get_flow_spec_ring_vf(s->ring_cookie))
		return -EINVAL;
	return ethtool_get_flow_spec_ring(s->ring_cookie) < card->dev->real_num_rx_queues ? 0 : -EINVAL;
}

static int place(struct simcard *card, u32 *location)
{
	u32 i;

	if (card->p.any_location) {
		if (*location != RX_CLS_LOC_ANY)
			return -EINVAL;
		for (i = 0; i < card->p.rules; i++) {
			if (!rule_at(card, i)) {
				*location = i;
				return 0;
			}
		}
		return -ENOSPC;
	}
	if (*location & RX_CLS_LOC_SPECIAL)
		return -EINVAL;
	if (*location >= card->p.rules) {
		netdev_err(card->dev, "The number of ntuple filters or provided location exceed max %u.\n", card->p.rules);
		return -ENOSPC;
	}
	return 0;
}

static int insert(struct simcard *card, struct ethtool_rxnfc *info)
{
	struct list_head *after = &card->rules;
	struct simcard_rule *r, *old, *x;
	int err;

	if (!(card->dev->features & NETIF_F_NTUPLE))
		return -EOPNOTSUPP;
	if (card->p.flower_or_rules && card->n_filters)
		return -EOPNOTSUPP;
	r = kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return -ENOMEM;
	r->spec = info->fs;
	r->context = info->rss_context;
	err = rule_match(card, &r->spec, &r->match);
	err = err ?: check_target(card, info);
	if (err)
		goto free;
	list_for_each_entry(x, &card->rules, list) {
		if (x->spec.location != r->spec.location && !memcmp(&x->match, &r->match, sizeof(x->match))) {
			err = -EEXIST;
			goto free;
		}
	}
	err = place(card, &r->spec.location);
	if (err)
		goto free;
	info->fs.location = r->spec.location;
	old = rule_at(card, r->spec.location);
	spin_lock_bh(&card->steer_lock);
	if (old) {
		list_del(&old->list);
		card->n_rules--;
	}
	list_for_each_entry(x, &card->rules, list) {
		if (x->spec.location > r->spec.location)
			break;
		after = &x->list;
	}
	list_add(&r->list, after);
	card->n_rules++;
	spin_unlock_bh(&card->steer_lock);
	kfree(old);
	return 0;

free:
	kfree(r);
	return err;
}

int simcard_set_rxnfc(struct net_device *dev, struct ethtool_rxnfc *info)
{
	struct simcard *card = simcard_of(dev);
	struct simcard_rule *r;
	int err;

	switch (info->cmd) {
	case ETHTOOL_SRXCLSRLINS:
		if (!card->p.rules)
			return -EOPNOTSUPP;
		err = simcard_call(card, "insert rule");
		return err ?: insert(card, info);
	case ETHTOOL_SRXCLSRLDEL:
		r = rule_at(card, info->fs.location);
		if (!r)
			return -ENOENT;
		err = simcard_call(card, "delete rule");
		if (!err)
			unlink_rule(card, r);
		return err;
	case ETHTOOL_SRXFH:
		return simcard_set_hash_fields(card, info->flow_type, info->data);
	}
	return -EOPNOTSUPP;
}

int simcard_get_rxnfc(struct net_device *dev, struct ethtool_rxnfc *info, u32 *locations)
{
	struct simcard *card = simcard_of(dev);
	struct simcard_rule *r;
	u32 n = 0;

	switch (info->cmd) {
	case ETHTOOL_GRXRINGS:
		info->data = dev->real_num_rx_queues;
		return 0;
	case ETHTOOL_GRXFH:
		return simcard_get_hash_fields(card, info->flow_type, &info->data);
	}
	if (!card->p.rules)
		return -EOPNOTSUPP;
	switch (info->cmd) {
	case ETHTOOL_GRXCLSRLCNT:
		info->rule_cnt = card->n_rules;
		info->data = card->p.rules | (card->p.any_location ? RX_CLS_LOC_SPECIAL : 0);
		return 0;
	case ETHTOOL_GRXCLSRULE:
		r = rule_at(card, info->fs.location);
		if (!r)
			return -ENOENT;
		info->fs = r->spec;
		info->rss_context = r->context;
		return 0;
	case ETHTOOL_GRXCLSRLALL:
		list_for_each_entry(r, &card->rules, list) {
			if (n == info->rule_cnt)
				return -EMSGSIZE;
			locations[n++] = r->spec.location;
		}
		info->rule_cnt = n;
		info->data = card->p.rules;
		return 0;
	}
	return -EOPNOTSUPP;
}

void simcard_rules_forget(struct simcard *card)
{
	struct simcard_rule *r, *next;

	list_for_each_entry_safe(r, next, &card->rules, list)
		unlink_rule(card, r);
}
