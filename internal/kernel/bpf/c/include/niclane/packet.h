/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Parser of a packet's flow, for all programs that need one. A program defines,
 * before it includes this:
 *
 *	PACKET			type of the context that holds a packet
 *	load_far(ctx, off, to, len)	if PACKET has data and data_end: copies bytes
 *				that are not in the linear part; less than 0 if
 *				the packet is shorter
 *	load(ctx, off, to, len)	if PACKET has no data: copies; less than 0 if it cannot
 *	MAX_EXTENSIONS		how many IPv6 extension headers the parser steps
 *				over; 6 if not defined
 */
#ifndef NICLANE_PACKET_H
#define NICLANE_PACKET_H

#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#ifndef MAX_EXTENSIONS
#define MAX_EXTENSIONS	6
#endif

#define PROTO_TCP		6
#define PROTO_UDP		17

#define NEXTHDR_HOP		0
#define NEXTHDR_ROUTING		43
#define NEXTHDR_FRAGMENT	44
#define NEXTHDR_AUTH		51
#define NEXTHDR_DEST		60

#define VLAN_ID		0xfff

/* A flow as this host sees it; flow.Flow in Go. Addresses and ports are in
 * network byte order; an IPv4 address is in the first word. */
struct flow {
	__u8	family;		/* 4 or 6 */
	__u8	protocol;
	__u16	vlan;		/* ID of the outermost tag, 0 for none */
	__be16	local_port;	/* both ports are 0 in fragments, and if not TCP or UDP */
	__be16	remote_port;
	__be32	local[4];
	__be32	remote[4];
} __attribute__((aligned(8)));	/* compared word by word */

#define FLOW_WORDS (sizeof(struct flow) / sizeof(__u64))

struct flow_key {
	__u64		pattern;	/* index of the pattern */
	struct flow	flow;		/* masked by the pattern */
};

static __always_inline void mask_flow(struct flow *to, const struct flow *from, const struct flow *mask)
{
	__u32 w;

#pragma unroll
	for (w = 0; w < FLOW_WORDS; w++)
		((__u64 *)to)[w] = ((const __u64 *)from)[w] & ((const __u64 *)mask)[w];
}

struct vlan_tag {
	__be16	tci;
	__be16	protocol;
};

struct ipv4_header {
	__u8	version_ihl;
	__u8	tos;
	__be16	length;
	__be16	id;
	__be16	fragment;
	__u8	ttl;
	__u8	protocol;
	__be16	check;
	__be32	source;
	__be32	destination;
};

struct ipv6_header {
	__u8	head[4];
	__be16	length;		/* of what follows the header */
	__u8	next;
	__u8	hops;
	__be32	source[4];
	__be32	destination[4];
};

struct extension {
	__u8	next;
	__u8	length;		/* reserved in a fragment header */
	__be16	fragment;	/* offset and flags of a fragment header */
};

struct ports {
	__be16	source;
	__be16	destination;
};

static __always_inline int is_vlan(__be16 protocol)
{
	return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

#ifdef load_far
/* Headers are nearly always in the linear part. To read them there costs a comparison;
 * to read them by the helper costs a call. With the helper alone, niclane_egress would
 * take 132 ns per packet, not 88 ns, and niclane_ingress 152 ns, not 90 ns. */
#define MAX_OFFSET	0x3fff

static __always_inline int load(PACKET *ctx, __u32 off, void *to, const __u32 len)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 i;

	if (off > MAX_OFFSET)
		return -1;
	/* Hide the bound from the compiler: it would drop the mask, which the verifier needs. */
	asm volatile("" : "+r"(off));
	off &= MAX_OFFSET;
	if (data + off + len > end)
		return load_far(ctx, off, to, len);
	/* Not memcpy, which copies byte by byte if the alignment is unknown. On CPUs that
	 * need no alignment, the verifier allows unaligned reads. */
	if (len == sizeof(__u16)) {
		*(__u16 *)to = *(__u16 *)(data + off);
		return 0;
	}
#pragma unroll
	for (i = 0; i < len / sizeof(__u32); i++)
		((__u32 *)to)[i] = ((__u32 *)(data + off))[i];
	return 0;
}
#endif

/* A parser returns the offset of the transport header, or one of these. */
#define NO_PORTS	0	/* a fragment */
#define NOT_IP		(-1)
#define CUT_OFF		(-2)	/* a header is not there, or load cannot read it */

/* Fills in the flow. arrives: this host is the destination. If end is not NULL and the
 * header states the length, *end becomes the offset of the IP packet's end. */
static __always_inline int parse_ipv4(PACKET *ctx, __u32 off, struct flow *f, const int arrives, __u32 *end)
{
	struct ipv4_header ip;

	if (load(ctx, off, &ip, sizeof(ip)) < 0)
		return CUT_OFF;
	if (ip.version_ihl >> 4 != 4 || (ip.version_ihl & 15) < 5)
		return NOT_IP;
	f->family = 4;
	f->protocol = ip.protocol;
	f->local[0] = arrives ? ip.destination : ip.source;
	f->remote[0] = arrives ? ip.source : ip.destination;
	if (end && ip.length)
		*end = off + bpf_ntohs(ip.length);
	/* A fragment: more follow, or its offset is not 0. Only the first one has ports,
	 * and all fragments of a packet must go the same way. */
	if (ip.fragment & bpf_htons(0x3fff))
		return NO_PORTS;
	return off + (ip.version_ihl & 15) * 4;
}

/* The result of a step over one extension header: the next header's offset and protocol
 * number. One of the top bits is set after the last step. */
#define STEP(off, next)	((__u64)(off) << 8 | (next))
#define STEP_LAST	(1ULL << 62)	/* the header is no extension */
#define STEP_FRAGMENT	(1ULL << 61)	/* the packet is a fragment */
#define STEP_BAD	(1ULL << 60)	/* cut off */

#if MAX_EXTENSIONS
/*
 * Not static, so that the verifier checks this function once. It checks an inlined
 * function once for each path that leads to it. A call costs 2 ns. The name begins
 * with niclane_ because the kernel shows it.
 */
__noinline __u64 niclane_extension(PACKET *ctx, __u64 step)
{
	__u32 off = step >> 8;
	__u8 next = step;
	struct extension ext;

	if (next != NEXTHDR_HOP && next != NEXTHDR_ROUTING && next != NEXTHDR_FRAGMENT &&
	    next != NEXTHDR_AUTH && next != NEXTHDR_DEST)
		return step | STEP_LAST;
	if (load(ctx, off, &ext, sizeof(ext)) < 0)
		return STEP_BAD;
	if (next == NEXTHDR_FRAGMENT) {
			/* An atomic fragment (RFC 6946) is a whole packet. In all
			 * fragments of one packet, ext.next is the same. */
		if (ext.fragment & bpf_htons(0xfff9))
			return STEP(0, ext.next) | STEP_FRAGMENT;
		off += 8;
	} else if (next == NEXTHDR_AUTH) {
		off += (ext.length + 2) * 4;
	} else {
		off += (ext.length + 1) * 8;
	}
	return STEP(off, ext.next);
}
#endif

static __always_inline int parse_ipv6(PACKET *ctx, __u32 off, struct flow *f, const int arrives, __u32 *end)
{
	struct ipv6_header ip;
	__u64 step;

	if (load(ctx, off, &ip, sizeof(ip)) < 0)
		return CUT_OFF;
	if (ip.head[0] >> 4 != 6)
		return NOT_IP;
	f->family = 6;
	__builtin_memcpy(f->local, arrives ? ip.destination : ip.source, sizeof(f->local));
	__builtin_memcpy(f->remote, arrives ? ip.source : ip.destination, sizeof(f->remote));
	if (end && ip.length)
		*end = off + sizeof(ip) + bpf_ntohs(ip.length);
	step = STEP(off + sizeof(ip), ip.next);
#if MAX_EXTENSIONS
#pragma unroll
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		step = niclane_extension(ctx, step);
		if (step & (STEP_LAST | STEP_FRAGMENT | STEP_BAD))
			break;
	}
#endif
	if (step & STEP_BAD)
		return CUT_OFF;
	f->protocol = (__u8)step;
	return step & STEP_FRAGMENT ? NO_PORTS : (int)((step & ~STEP_LAST) >> 8);
}

/*
 * Fills in the flow f from the header at off, whose EtherType is protocol. Before, f
 * is zero, except that with tagged it has the ID of a VLAN tag outside the data. Steps
 * over at most two tags in the data.
 */
static __always_inline int parse(PACKET *ctx, __u32 off, __be16 protocol, int tagged, struct flow *f,
				 const int arrives, __u32 *end)
{
	struct vlan_tag tag;
	int i;

#pragma unroll
	for (i = 0; i < 2; i++) {
		if (!is_vlan(protocol))
			break;
		if (load(ctx, off, &tag, sizeof(tag)) < 0)
			return CUT_OFF;
		if (!tagged)
			f->vlan = bpf_ntohs(tag.tci) & VLAN_ID;
		tagged = 1;
		protocol = tag.protocol;
		off += sizeof(tag);
	}
	if (protocol == bpf_htons(ETH_P_IP))
		return parse_ipv4(ctx, off, f, arrives, end);
	if (protocol == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(ctx, off, f, arrives, end);
	return NOT_IP;
}

/* Does the same as parse, from the Ethernet header on. */
static __always_inline int parse_frame(PACKET *ctx, int tagged, struct flow *f, const int arrives, __u32 *end)
{
	__be16 protocol;

	if (load(ctx, __builtin_offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) < 0)
		return CUT_OFF;
	return parse(ctx, ETH_HLEN, protocol, tagged, f, arrives, end);
}

/* Fills in the ports from the transport header. Returns 1 if the flow has ports, 0 if
 * it has none, CUT_OFF if the header cannot be read. */
static __always_inline int parse_ports(PACKET *ctx, int transport, struct flow *f, const int arrives)
{
	struct ports ports;

	if (transport == NO_PORTS || (f->protocol != PROTO_TCP && f->protocol != PROTO_UDP))
		return 0;
	if (load(ctx, transport, &ports, sizeof(ports)) < 0)
		return CUT_OFF;
	f->local_port = arrives ? ports.destination : ports.source;
	f->remote_port = arrives ? ports.source : ports.destination;
	return 1;
}

/* Returns the offset of the payload behind the transport header of a flow with ports. */
static __always_inline int parse_payload(PACKET *ctx, int transport, const struct flow *f)
{
	__u8 words[2];	/* header length in words: the upper half of the first byte */

	if (f->protocol == PROTO_UDP)
		return transport + 8;
	if (load(ctx, transport + 12, words, sizeof(words)) < 0)
		return CUT_OFF;
	return transport + (words[0] >> 4) * 4;
}

#endif
