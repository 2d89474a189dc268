/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_egress: which lane does a packet that leaves belong to?
 *
 * A clsact egress classifier in direct-action mode. It looks the packet's flow
 * up, once for each pattern of compared fields that is in use, and writes the
 * HTB class of its lane to skb->priority. It returns TC_ACT_UNSPEC, so that
 * filters of others after it still see the packet (cls_bpf_classify continues
 * with the next filter), and never drops, redirects or changes a packet.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

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

/* A flow as this host sees it: local is the source of what leaves. Addresses
 * and ports are in network byte order, an IPv4 address in the first word. */
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
	__type(value, __u32);
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

static __always_inline int is_vlan(__be16 protocol)
{
	return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

/*
 * The functions below that are not static have the verifier look at each of
 * them once, instead of once for each way that leads there: loading takes a
 * fraction of the time. Their names begin with niclane_ because the kernel
 * shows them.
 */

#define NOT_IP		(-1)
#define NO_PORTS	0

/* Fills in the flow; returns the offset of the transport header, NO_PORTS or
 * NOT_IP. */
__noinline int niclane_ipv4(struct __sk_buff *skb, __u32 off, struct flow *f)
{
	struct ipv4_header ip;

	if (!f || bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)) < 0)
		return NOT_IP;
	if (ip.version_ihl >> 4 != 4 || (ip.version_ihl & 15) < 5)
		return NOT_IP;
	f->family = 4;
	f->protocol = ip.protocol;
	f->local[0] = ip.source;
	f->remote[0] = ip.destination;
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

__noinline __u64 niclane_extension(struct __sk_buff *skb, __u64 step)
{
	__u32 off = step >> 8;
	__u8 next = step;
	struct extension ext;

	if (next != NEXTHDR_HOP && next != NEXTHDR_ROUTING && next != NEXTHDR_FRAGMENT &&
	    next != NEXTHDR_AUTH && next != NEXTHDR_DEST)
		return step | STEP_LAST;
	if (bpf_skb_load_bytes(skb, off, &ext, sizeof(ext)) < 0)
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

__noinline int niclane_ipv6(struct __sk_buff *skb, __u32 off, struct flow *f)
{
	struct ipv6_header ip;
	__u64 step;
	int i;

	if (!f || bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)) < 0)
		return NOT_IP;
	if (ip.head[0] >> 4 != 6)
		return NOT_IP;
	f->family = 6;
	__builtin_memcpy(f->local, ip.source, sizeof(f->local));
	__builtin_memcpy(f->remote, ip.destination, sizeof(f->remote));
	step = STEP(off + sizeof(ip), ip.next);
#pragma unroll
	for (i = 0; i < MAX_EXTENSIONS; i++) {
		step = niclane_extension(skb, step);
		if (step & (STEP_LAST | STEP_FRAGMENT | STEP_BAD))
			break;
	}
	if (step & STEP_BAD)
		return NOT_IP;
	f->protocol = (__u8)step;
	return step & STEP_FRAGMENT ? NO_PORTS : (int)((step & ~STEP_LAST) >> 8);
}

/* Returns whether the packet is IP and f was filled in. */
static __always_inline int parse(struct __sk_buff *skb, struct flow *f)
{
	struct vlan_tag tag;
	__u32 off = ETH_HLEN;
	__be16 protocol, ports[2];
	int tags = 0, transport = NOT_IP, i;

	if (bpf_skb_load_bytes(skb, __builtin_offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) < 0)
		return 0;
	/* A tag that the device inserts is outermost, and not in the data. */
	if (skb->vlan_present) {
		f->vlan = skb->vlan_tci & 0xfff;
		tags = 1;
	}
#pragma unroll
	for (i = 0; i < 2; i++) {
		if (!is_vlan(protocol))
			break;
		if (bpf_skb_load_bytes(skb, off, &tag, sizeof(tag)) < 0)
			return 0;
		if (tags++ == 0)
			f->vlan = bpf_ntohs(tag.tci) & 0xfff;
		protocol = tag.protocol;
		off += sizeof(tag);
	}
	if (protocol == bpf_htons(ETH_P_IP))
		transport = niclane_ipv4(skb, off, f);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		transport = niclane_ipv6(skb, off, f);
	if (transport == NOT_IP)
		return 0;
	if (transport != NO_PORTS && (f->protocol == PROTO_TCP || f->protocol == PROTO_UDP) &&
	    bpf_skb_load_bytes(skb, transport, ports, sizeof(ports)) == 0) {
		f->local_port = ports[0];
		f->remote_port = ports[1];
	}
	return 1;
}

/* Returns the class that the flow has by one pattern in the lower half and, in
 * the upper, one more than the pattern's rank; 0 for none. */
__noinline __u64 niclane_lookup(const struct flow *f, __u32 index)
{
	struct flow_key key = {};
	const __u64 *from = (const __u64 *)f, *mask;
	__u64 *to = (__u64 *)&key.flow;
	struct pattern *p;
	__u32 *class, w;

	if (!f)
		return 0;
	p = bpf_map_lookup_elem(&nl_patterns, &index);
	if (!p || !p->used)
		return 0;
	mask = (const __u64 *)&p->mask;
#pragma unroll
	for (w = 0; w < FLOW_WORDS; w++)
		to[w] = from[w] & mask[w];
	key.pattern = index;
	class = bpf_map_lookup_elem(&nl_flows, &key);
	return class ? ((__u64)p->rank + 1) << 32 | *class : 0;
}

SEC("tc")
int niclane_egress(struct __sk_buff *skb)
{
	struct flow f = {};
	__u64 best = 0, found;
	__u32 i;

	if (!parse(skb, &f))
		return TC_ACT_UNSPEC;
	for (i = 0; i < MAX_PATTERNS; i++) {
		found = niclane_lookup(&f, i);
		if (found >> 32 > best >> 32)
			best = found;
	}
	if (best)
		skb->priority = (__u32)best;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
