/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Gives a packet that leaves a DSCP.
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

#endif
