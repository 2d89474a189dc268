// SPDX-License-Identifier: GPL-2.0-only
/* Parses the headers of frames, and compares them with rules. */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/etherdevice.h>
#include <net/flow_dissector.h>

#include "simcard.h"

static u8 type_of_service(struct sk_buff *skb, __be16 proto)
{
	int offset = skb_network_offset(skb);
	u8 first[2], *p;

	p = skb_header_pointer(skb, offset, sizeof(first), first);
	if (!p || skb->protocol != proto)	/* proto comes after a VLAN tag in the frame */
		return 0;
	if (proto == htons(ETH_P_IP))
		return p[1];
	return proto == htons(ETH_P_IPV6) ? (p[0] << 4) | (p[1] >> 4) : 0;
}

void simcard_parse(struct sk_buff *skb, struct simcard_flow *flow)
{
	struct flow_keys keys;

	memset(flow, 0, sizeof(*flow));
	ether_addr_copy(flow->dmac, eth_hdr(skb)->h_dest);
	ether_addr_copy(flow->smac, eth_hdr(skb)->h_source);
	flow->proto = skb->protocol;
	if (!skb_flow_dissect_flow_keys(skb, &keys, FLOW_DISSECTOR_F_STOP_AT_ENCAP) && !keys.basic.n_proto)
		return;
	flow->proto = keys.basic.n_proto;
	flow->ip_proto = keys.basic.ip_proto;
	if (skb_vlan_tag_present(skb)) {
		flow->vlan = true;
		flow->vlan_tci = skb_vlan_tag_get(skb);
	} else if (eth_type_vlan(skb->protocol)) {
		flow->vlan = true;
		flow->vlan_tci = keys.vlan.vlan_id | keys.vlan.vlan_priority << VLAN_PRIO_SHIFT;
	}
	if (keys.control.addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS) {
		flow->src[0] = keys.addrs.v4addrs.src;
		flow->dst[0] = keys.addrs.v4addrs.dst;
	} else if (keys.control.addr_type == FLOW_DISSECTOR_KEY_IPV6_ADDRS) {
		memcpy(flow->src, &keys.addrs.v6addrs.src, sizeof(flow->src));
		memcpy(flow->dst, &keys.addrs.v6addrs.dst, sizeof(flow->dst));
	}
	flow->tos = type_of_service(skb, flow->proto);
	if (keys.control.flags & FLOW_DIS_IS_FRAGMENT)
		return;
	switch (flow->ip_proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
		flow->ports = true;
		flow->sport = keys.ports.src;
		flow->dport = keys.ports.dst;
	}
}

bool simcard_matches(const struct simcard_match *match, const struct simcard_flow *flow)
{
	const u64 *v = (const u64 *)&match->value, *m = (const u64 *)&match->mask, *f = (const u64 *)flow;
	int i;

	BUILD_BUG_ON(sizeof(*flow) % sizeof(u64));
	for (i = 0; i < sizeof(*flow) / sizeof(u64); i++)
		if ((v[i] ^ f[i]) & m[i])
			return false;
	return true;
}
