/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the programs share: reading a packet's flow, and looking it up by
 * patterns of compared fields. A program defines, before it includes this:
 *
 *	PACKET			struct of its context, with data and data_end
 *	load_far(ctx, off, to, len)	copies what is not in the linear part;
 *				less than 0 if the packet ends before
 *	outer_tag(ctx, f)	1 if a VLAN tag is beside the data, 0 if not
 *	LOCAL, REMOTE		the header's field that is this host's: source or
 *				destination
 *	struct target		what a flow leads to
 */
#ifndef NICLANE_FLOW_H
#define NICLANE_FLOW_H

#define MAX_PATTERNS	16
#define MAX_FLOWS	65536
#define MAX_EXTENSIONS	6

#define PROTO_TCP		6
#define PROTO_UDP		17

#define NEXTHDR_HOP		0
#define NEXTHDR_ROUTING		43
#define NEXTHDR_FRAGMENT	44
#define NEXTHDR_AUTH		51
#define NEXTHDR_DEST		60

#define VLAN_ID		0xfff

/* A flow as this host sees it. Addresses and ports are in network byte order,
 * an IPv4 address in the first word. */
struct flow {
	__u8	family;		/* 4 or 6 */
	__u8	protocol;
	__u16	vlan;		/* ID of the outermost tag, 0 for none */
	__be16	local_port;	/* 0 in fragments and other protocols */
	__be16	remote_port;
	__be32	local[4];
	__be32	remote[4];
} __attribute__((aligned(8)));	/* compared by words */

#define FLOW_WORDS (sizeof(struct flow) / sizeof(__u64))

struct flow_key {
	__u64		pattern;	/* index of the pattern */
	struct flow	flow;		/* masked by it */
};

struct pattern {
	struct flow	mask;
	__u32		used;	/* flows with this pattern, or more: see Go */
	__u32		rank;	/* among several that match the highest wins */
};

/* What the lookups found so far. */
struct found {
	__u32		rank;	/* the pattern's, plus one; 0 for nothing */
	__u32		addressed; /* only patterns that compare local addresses */
	struct target	target;
};

/* Bit i of the one entry: pattern i may be in use. */
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
	__u8	head[6];
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

/* Headers are nearly always in the linear part, where reading them costs a
 * comparison. The helper costs a call: by it alone niclane_egress takes 132 ns
 * for a packet instead of 88, niclane_ingress 152 instead of 90. */
#define MAX_OFFSET	0x3fff

static __always_inline int load(PACKET *ctx, __u32 off, void *to, const __u32 len)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 i;

	if (off > MAX_OFFSET)
		return -1;
	/* What the compiler knows from the comparison the verifier does not. */
	asm volatile("" : "+r"(off));
	off &= MAX_OFFSET;
	if (data + off + len > end)
		return load_far(ctx, off, to, len);
	/* Not memcpy, which copies bytes where it cannot know an alignment. The
	 * verifier wants none where the processor does not. */
	if (len == sizeof(__u16)) {
		*(__u16 *)to = *(__u16 *)(data + off);
		return 0;
	}
#pragma unroll
	for (i = 0; i < len / sizeof(__u32); i++)
		((__u32 *)to)[i] = ((__u32 *)(data + off))[i];
	return 0;
}

/*
 * Functions that are not static the verifier looks at once, instead of once for
 * each way that leads there; a call costs 2 ns. It is worth it for what is in a
 * loop: with niclane_lookup inline, loading takes two to five times as long.
 * Their names begin with niclane_ because the kernel shows them.
 */

#define NOT_IP		(-1)
#define NO_PORTS	0

/* Fills in the flow; returns the offset of the transport header, NO_PORTS or
 * NOT_IP. */
static __always_inline int parse_ipv4(PACKET *ctx, __u32 off, struct flow *f)
{
	struct ipv4_header ip;

	if (load(ctx, off, &ip, sizeof(ip)) < 0)
		return NOT_IP;
	if (ip.version_ihl >> 4 != 4 || (ip.version_ihl & 15) < 5)
		return NOT_IP;
	f->family = 4;
	f->protocol = ip.protocol;
	f->local[0] = ip.LOCAL;
	f->remote[0] = ip.REMOTE;
	/* More fragments, or an offset: all fragments of a packet go the same
	 * way, and only the first has ports. */
	if (ip.fragment & bpf_htons(0x3fff))
		return NO_PORTS;
	return off + (ip.version_ihl & 15) * 4;
}

/* Steps over one extension header. A step is the offset of what follows and
 * its number; the top bits say that nothing follows. */
#define STEP(off, next)	((__u64)(off) << 8 | (next))
#define STEP_LAST	(1ULL << 62)	/* a header that is no extension */
#define STEP_FRAGMENT	(1ULL << 61)	/* a fragment of a packet */
#define STEP_BAD	(1ULL << 60)	/* cut off */

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
		/* An atomic fragment (RFC 6946) is a whole packet. Of the
		 * others all have the same next header here. */
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

static __always_inline int parse_ipv6(PACKET *ctx, __u32 off, struct flow *f)
{
	struct ipv6_header ip;
	__u64 step;
	int i;

	if (load(ctx, off, &ip, sizeof(ip)) < 0)
		return NOT_IP;
	if (ip.head[0] >> 4 != 6)
		return NOT_IP;
	f->family = 6;
	__builtin_memcpy(f->local, ip.LOCAL, sizeof(f->local));
	__builtin_memcpy(f->remote, ip.REMOTE, sizeof(f->remote));
	step = STEP(off + sizeof(ip), ip.next);
#pragma unroll
	for (i = 0; i < MAX_EXTENSIONS; i++) {
		step = niclane_extension(ctx, step);
		if (step & (STEP_LAST | STEP_FRAGMENT | STEP_BAD))
			break;
	}
	if (step & STEP_BAD)
		return NOT_IP;
	f->protocol = (__u8)step;
	return step & STEP_FRAGMENT ? NO_PORTS : (int)((step & ~STEP_LAST) >> 8);
}

/* Returns whether the packet is IP and f, zero before, was filled in. */
static __always_inline int parse(PACKET *ctx, struct flow *f)
{
	struct vlan_tag tag;
	struct ports ports;
	__u32 off = ETH_HLEN;
	__be16 protocol;
	int tags, transport = NOT_IP, i;

	if (load(ctx, __builtin_offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) < 0)
		return 0;
	/* A tag that the device inserts or has removed is outermost, and not in
	 * the data. */
	tags = outer_tag(ctx, f);
#pragma unroll
	for (i = 0; i < 2; i++) {
		if (!is_vlan(protocol))
			break;
		if (load(ctx, off, &tag, sizeof(tag)) < 0)
			return 0;
		if (tags++ == 0)
			f->vlan = bpf_ntohs(tag.tci) & VLAN_ID;
		protocol = tag.protocol;
		off += sizeof(tag);
	}
	if (protocol == bpf_htons(ETH_P_IP))
		transport = parse_ipv4(ctx, off, f);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		transport = parse_ipv6(ctx, off, f);
	if (transport == NOT_IP)
		return 0;
	if (transport != NO_PORTS && (f->protocol == PROTO_TCP || f->protocol == PROTO_UDP) &&
	    load(ctx, transport, &ports, sizeof(ports)) == 0) {
		f->local_port = ports.LOCAL;
		f->remote_port = ports.REMOTE;
	}
	return 1;
}

/* Looks the flow up by one pattern, and keeps what it finds if that pattern
 * ranks above the one that found something before. */
__noinline int niclane_lookup(const struct flow *f, __u32 index, struct found *best)
{
	struct flow_key key;
	const __u64 *from = (const __u64 *)f, *mask;
	__u64 *to = (__u64 *)&key.flow;
	struct pattern *p;
	struct target *t;
	__u32 w;

	if (!f || !best)
		return 0;
	p = bpf_map_lookup_elem(&nl_patterns, &index);
	if (!p || !p->used || p->rank < best->rank)
		return 0;
	if (best->addressed && !p->mask.local[0])
		return 0;
	mask = (const __u64 *)&p->mask;
#pragma unroll
	for (w = 0; w < FLOW_WORDS; w++)
		to[w] = from[w] & mask[w];
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

/* Looks the flow up by the patterns in use, which are the first ones. */
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
 * The same for all packets of a connection, in either direction: addresses,
 * ports and protocol. Multiplication is Fibonacci hashing, 2^64 over the golden
 * ratio; the upper half is the good one.
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

/* One of n, as the hash decides. */
static __always_inline __u32 choose(__u32 hash, __u32 n)
{
	return (__u64)hash * n >> 32;
}

#endif
