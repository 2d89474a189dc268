/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Gives a packet that leaves a DSCP, and its VLAN tag a priority.
 */
#ifndef NICLANE_MARK_H
#define NICLANE_MARK_H

#include <niclane/dscp.h>

/*
 * Writes the DSCP into the outermost IP header, if the packet has another one. The ECN bits
 * stay. bpf_skb_store_bytes first copies a header that the packet shares with a clone. A GSO
 * packet has one header, which the kernel or the card copies into each segment.
 * Not static, like niclane_extension.
 */
__noinline int niclane_mark(struct __sk_buff *skb, __u32 dscp)
{
	struct ip_start ip;
	__be16 now;

	if (!find_ip(skb, &ip))
		return 0;
	now = with_dscp(&ip, dscp);
	if (now == ip.word)
		return 0;
	/* RFC 1624. The sum of header and checksum stays the same, so that skb->csum does too. */
	if (ip.version == 4 && bpf_l3_csum_replace(skb, ip.off + __builtin_offsetof(struct ipv4_header, check),
						   ip.word, now, sizeof(now)))
		return 0;
	bpf_skb_store_bytes(skb, ip.off, &now, sizeof(now), ip.version == 4 ? 0 : BPF_F_RECOMPUTE_CSUM);
	return 1;
}

#define PCP_SHIFT	13	/* IEEE 802.1Q: PCP, drop eligible bit, ID */

static __always_inline __u16 with_pcp(__u16 tci, __u32 pcp)
{
	return (tci & ((1 << PCP_SHIFT) - 1)) | (pcp & 7) << PCP_SHIFT;
}

/*
 * Writes the PCP into the outermost VLAN tag, if the packet has one with another PCP. A tag
 * beside the data, as a VLAN device makes it, is taken off and put back: tc programs cannot write
 * vlan_tci. If a second tag is in the data, both helpers move it, and need memory. Returns less
 * than 0 if they have failed: the packet then lacks its tag, and must not leave.
 * Not static, like niclane_extension.
 */
__noinline int niclane_retag(struct __sk_buff *skb, __u32 pcp)
{
	__be16 protocol, now, is;

	if (skb->vlan_present) {
		__u16 tci = skb->vlan_tci;

		protocol = skb->vlan_proto;
		if (with_pcp(tci, pcp) == tci)
			return 0;
		return bpf_skb_vlan_pop(skb) || bpf_skb_vlan_push(skb, protocol, with_pcp(tci, pcp)) ? -1 : 1;
	}
	if (load(skb, __builtin_offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) < 0 ||
	    !is_vlan(protocol) || load(skb, ETH_HLEN, &is, sizeof(is)) < 0)
		return 0;
	now = bpf_htons(with_pcp(bpf_ntohs(is), pcp));
	if (now == is)
		return 0;
	bpf_skb_store_bytes(skb, ETH_HLEN, &now, sizeof(now), 0);
	return 1;
}

#endif
