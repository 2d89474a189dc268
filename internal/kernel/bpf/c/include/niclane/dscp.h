/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The DSCP (RFC 2474) of a packet's outermost IP header. A program includes this after
 * packet.h.
 */
#ifndef NICLANE_DSCP_H
#define NICLANE_DSCP_H

/* The first two bytes of an IP header: version, header length and DSCP and ECN of IPv4;
 * version, DSCP, ECN and four bits of the flow label of IPv6. */
struct ip_start {
	__u32	off;
	__u8	version;	/* 4 or 6 */
	__be16	word;
};

/* Fills in ip from the header behind at most two VLAN tags. Returns 0 if that is not IP. */
static __always_inline int find_ip(PACKET *ctx, struct ip_start *ip)
{
	__be16 protocol;
	__u32 off = __builtin_offsetof(struct ethhdr, h_proto);
	int i;

	if (load(ctx, off, &protocol, sizeof(protocol)) < 0)
		return 0;
#pragma unroll
	for (i = 0; i < 2; i++) {
		if (!is_vlan(protocol))
			break;
		off += sizeof(struct vlan_tag);
		if (load(ctx, off, &protocol, sizeof(protocol)) < 0)
			return 0;
	}
	if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	ip->version = protocol == bpf_htons(ETH_P_IP) ? 4 : 6;
	ip->off = off + sizeof(protocol);
	if (load(ctx, ip->off, &ip->word, sizeof(ip->word)) < 0)
		return 0;
	return (bpf_ntohs(ip->word) >> 12) == ip->version;
}

/* Bit of the DSCP's lowest bit in the first word, read as a number. The two bits below are
 * ECN (RFC 3168). */
#define DSCP_SHIFT(version)	((version) == 4 ? 2 : 6)
#define DSCP_MASK		0x3f

static __always_inline __u32 dscp_of(const struct ip_start *ip)
{
	return bpf_ntohs(ip->word) >> DSCP_SHIFT(ip->version) & DSCP_MASK;
}

/* Returns the first word with another DSCP. */
static __always_inline __be16 with_dscp(const struct ip_start *ip, __u32 dscp)
{
	__u32 shift = DSCP_SHIFT(ip->version);

	return bpf_htons((bpf_ntohs(ip->word) & ~(DSCP_MASK << shift)) | (dscp & DSCP_MASK) << shift);
}

#endif
