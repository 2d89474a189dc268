/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Shared by the programs: lookup of a packet's flow by patterns of compared
 * fields. A program defines, before it includes this:
 *
 *	PACKET, load_far	see packet.h
 *	outer_tag(ctx, f)	1 if the packet has a VLAN tag outside its data, else 0
 *	ARRIVES			1 if this host is the packets' destination
 *	made_here(ctx)		1 if this host has made the packet, or takes it
 *	struct target		the value of a flow in the flow table
 */
#ifndef NICLANE_FLOW_H
#define NICLANE_FLOW_H

#define MAX_PATTERNS	16
#define MAX_FLOWS	65536

#include <niclane/packet.h>
#include <niclane/tunnel.h>

struct pattern {
	struct flow	mask;
	__u32		used;	/* at least the number of flows with this pattern: see the Go code */
	__u32		rank;	/* if several patterns match, the highest rank wins */
};

/* Result of the lookups so far. */
struct found {
	__u32		rank;	/* rank of the pattern plus one; 0 if nothing matched */
	__u32		addressed; /* 1: use only patterns that compare local addresses, or no protocol */
	struct target	target;
};

/* A map of one entry. Bit i: pattern i may be in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} nl_in_use SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PATTERNS);
	__type(key, __u32);
	__type(value, struct pattern);
} nl_patterns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow_key);
	__type(value, struct target);
} nl_flows SEC(".maps");

/* A map of one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tunnels);
} nl_tunnels SEC(".maps");

/* If the packet is IP, fills in f (zero before) and returns the offset of the transport
 * header, NO_PORTS in a fragment; else returns less than 0. */
static __always_inline int read_flow(PACKET *ctx, struct flow *f)
{
	int transport = parse_frame(ctx, outer_tag(ctx, f), f, ARRIVES, NULL);

	if (transport >= 0)
		parse_ports(ctx, transport, f, ARRIVES);	/* or it goes by its addresses */
	return transport;
}

/* Not static: see niclane_extension. */
__noinline int niclane_inner(PACKET *ctx, __u32 udp, __u32 kind, struct flow *f)
{
	struct flow inner = {};
	int transport;

	if (!f)
		return 0;
	inner.vlan = f->vlan;
	transport = parse_inner(ctx, udp, kind, &inner, ARRIVES, NULL);
	if (transport < 0)
		return 0;
	parse_ports(ctx, transport, &inner, ARRIVES);
	*f = inner;
	return 1;
}

/* If the packet is of a tunnel, replaces f by the flow of the packet inside and returns
 * 1; else returns 0. transport is the result of read_flow. A forwarded packet does not
 * count: anyone who can send to a tunnel's port could choose its inner addresses. */
static __always_inline int inner_flow(PACKET *ctx, int transport, struct flow *f)
{
	struct tunnels *tunnels;
	__u32 zero = 0, kind;

	if (f->protocol != PROTO_UDP || !made_here(ctx))
		return 0;
	tunnels = bpf_map_lookup_elem(&nl_tunnels, &zero);
	if (!tunnels)
		return 0;
	kind = tunnel_kind(tunnels, ARRIVES ? f->local_port : f->remote_port);
	return kind ? niclane_inner(ctx, transport, kind, f) : 0;
}

/* Looks up the flow by one pattern. Stores the result in best if the pattern ranks
 * above the best match so far. Not static, like niclane_extension: if the compiler
 * inlined it, the program would take two to five times as long to load. */
__noinline int niclane_lookup(const struct flow *f, __u32 index, struct found *best)
{
	struct flow_key key;
	struct pattern *p;
	struct target *t;

	if (!f || !best)
		return 0;
	p = bpf_map_lookup_elem(&nl_patterns, &index);
	if (!p || !p->used || p->rank < best->rank)
		return 0;
	if (best->addressed && !p->mask.local[0] && p->mask.protocol)
		return 0;
	mask_flow(&key.flow, f, &p->mask);
	key.pattern = index;
	t = bpf_map_lookup_elem(&nl_flows, &key);
	if (!t)
		return 0;
	best->rank = p->rank + 1;
	best->target = *t;
	return 1;
}

static __always_inline __u32 in_use(void)
{
	__u32 zero = 0, *bits = bpf_map_lookup_elem(&nl_in_use, &zero);

	return bits ? *bits : 0;
}

/* Looks up the flow by all patterns in use: bit i of patterns stands for pattern i. */
static __always_inline void lookup(const struct flow *f, __u32 patterns, struct found *best)
{
	__u32 i;

	for (i = 0; i < MAX_PATTERNS; i++) {
		if (!(patterns >> i))
			break;
		if (patterns >> i & 1)
			niclane_lookup(f, i, best);
	}
}

/*
 * Hash of addresses, ports and protocol, the same for both directions of a
 * connection. Fibonacci hashing: the factor is 2^64 divided by the golden ratio,
 * and the upper half of the product is well mixed.
 */
#define GOLDEN	0x9e3779b97f4a7c15ULL

static __always_inline __u32 flow_hash(const struct flow *f)
{
	const __u64 *w = (const __u64 *)f;
	struct flow first = *f;
	__u64 h;
	__u32 i;

	first.vlan = 0;
	h = *(__u64 *)&first * GOLDEN;
#pragma unroll
	for (i = 1; i < FLOW_WORDS; i++) {
		h ^= h >> 32;
		h = (h ^ w[i]) * GOLDEN;
	}
	h ^= h >> 32;
	return h * GOLDEN >> 32;
}

/* Maps the hash to a number from 0 to n-1. */
static __always_inline __u32 choose(__u32 hash, __u32 n)
{
	return (__u64)hash * n >> 32;
}

#endif
