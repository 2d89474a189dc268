/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Parser of the packet inside a tunnel over UDP: VXLAN (RFC 7348, also with the next
 * protocol of VXLAN-GPE) and Geneve (RFC 8926). Include packet.h before it.
 */
#ifndef NICLANE_TUNNEL_H
#define NICLANE_TUNNEL_H

#define MAX_TUNNELS	4

/* A port is the UDP destination port in all packets of a tunnel; 0: no tunnel. */
struct tunnels {
	struct {
		__be16	port;
		__u16	kind;
	} of[MAX_TUNNELS];
};

#define TUNNEL_VXLAN	1
#define TUNNEL_GENEVE	2

#define UDP_LENGTH	8
#define TUNNEL_LENGTH	8	/* of both headers, without Geneve's options */

/* The first word of a VXLAN header. */
#define VXLAN_I		0x08000000	/* valid */
#define VXLAN_P		0x04000000	/* VXLAN-GPE: the last byte is the next protocol */
#define VXLAN_NEXT	0xff

/* The first word of a Geneve header; the lower half is the inner EtherType. */
#define GENEVE_VERSION(word)	((word) >> 30)
#define GENEVE_OPTIONS(word)	(((word) >> 24 & 0x3f) * 4)	/* bytes */

/* Returns the kind of the tunnel that has the UDP destination port, else 0. */
static __always_inline __u32 tunnel_kind(const volatile struct tunnels *tunnels, __be16 port)
{
	__u32 kind = 0;
	int i;

#pragma unroll
	for (i = 0; i < MAX_TUNNELS; i++)
		if (tunnels->of[i].port == port)
			kind = tunnels->of[i].kind;
	return kind;
}

/* Fills in the flow f of the packet inside a tunnel, as parse does. udp is the offset of
 * the outer UDP header. Before, f is zero, except that it has the VLAN ID of the outer
 * packet: that is the one on the wire. */
static __always_inline int parse_inner(PACKET *ctx, __u32 udp, __u32 kind, struct flow *f, const int arrives,
				       __u32 *end)
{
	__be16 protocol = bpf_htons(ETH_P_TEB);
	__u32 off = udp + UDP_LENGTH, word;

	if (load(ctx, off, &word, sizeof(word)) < 0)
		return CUT_OFF;
	word = bpf_ntohl(word);
	off += TUNNEL_LENGTH;
	if (kind == TUNNEL_GENEVE) {
		if (GENEVE_VERSION(word))
			return NOT_IP;
		off += GENEVE_OPTIONS(word);
		protocol = bpf_htons((__u16)word);
	} else if (!(word & VXLAN_I)) {
		return NOT_IP;
	} else if (word & VXLAN_P) {
		switch (word & VXLAN_NEXT) {
		case 1:
			protocol = bpf_htons(ETH_P_IP);
			break;
		case 2:
			protocol = bpf_htons(ETH_P_IPV6);
			break;
		case 3:
			break;
		default:
			return NOT_IP;
		}
	}
	if (protocol == bpf_htons(ETH_P_TEB)) {
		if (load(ctx, off + __builtin_offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) < 0)
			return CUT_OFF;
		off += ETH_HLEN;
	}
	return parse(ctx, off, protocol, 1, f, arrives, end);
}

#endif
