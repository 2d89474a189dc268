/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What passes each queue of one device, lane by lane.
 *
 * Two programs at raw tracepoints, which see every packet of the host and
 * count those of one device: watch_receive where the stack takes a packet from
 * the driver, watch_transmit where a driver gets one. They change nothing, are
 * in nobody's chain of filters, and end with the process that loaded them.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define MAX_PATTERNS	64
#define MAX_EXTENSIONS	6

#define PROTO_TCP		6
#define PROTO_UDP		17

#define NEXTHDR_HOP		0
#define NEXTHDR_ROUTING		43
#define NEXTHDR_FRAGMENT	44
#define NEXTHDR_AUTH		51
#define NEXTHDR_DEST		60

/* Of the kernel's structures, the fields that are read; where they are, the
 * kernel's BTF says (CO-RE). */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct sk_buff {
	struct net_device *dev;
	unsigned int len, data_len;
	__u16 queue_mapping;
	__u32 priority;
	__be16 protocol;
	__u32 vlan_all;
	__u16 vlan_tci;
	unsigned char *head, *data;
	__u32 end;
	unsigned int napi_id;
	__u8 redirected : 1;
};

/* Before Linux 6.2 (354259fa73e2 "net: remove skb->vlan_present"). */
struct sk_buff___present {
	__u8 vlan_present : 1;
};

struct skb_shared_info {
	unsigned short gso_segs;
};

#pragma clang attribute pop

/* As in package tuple. Local is this host's side. */
struct flow {
	__u8	family;
	__u8	protocol;
	__u16	vlan;
	__be16	local_port;
	__be16	remote_port;
	__be32	local[4];
	__be32	remote[4];
} __attribute__((aligned(8)));

#define FLOW_WORDS (sizeof(struct flow) / sizeof(__u64))

struct flow_key {
	__u64		pattern;
	struct flow	flow;
};

/* The first pattern that has the flow wins. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PATTERNS);
	__type(key, __u32);
	__type(value, struct flow);
} watch_patterns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);		/* set by Go */
	__type(key, struct flow_key);
	__type(value, __u32);		/* lane, from 1 */
} watch_flows SEC(".maps");

/* The lane of an HTB class, or of one of mqprio's priorities, by skb->priority. */
#define ALONE	(1U << 31)	/* nothing else tells the lane's packets */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);		/* set by Go */
	__type(key, __u32);
	__type(value, __u32);
} watch_classes SEC(".maps");

struct count {
	__u64	packets;	/* segments, not GSO units */
	__u64	bytes;
	__u64	bare;		/* of the packets, TCP without data */
};

/* (direction * lanes + lane) * columns + column, see cell(). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);		/* set by Go */
	__type(key, __u32);
	__type(value, struct count);
} watch_counts SEC(".maps");

#define RECEIVED	0	/* column: receive queue */
#define SENT		1	/* column: transmit queue */
#define CLASSED		2	/* column: lane of the packet's class */
#define DIRECT		3	/* column: processor that received it from the driver */
#define HANDED		4	/* column: processor that received it from a cpumap */

const volatile __u32 ifindex;
const volatile __u32 netns;		/* inode */
const volatile __u32 patterns;		/* in use */
const volatile __u32 lanes;		/* rows: 0 none, ..., the last unreadable */
const volatile __u32 columns;		/* the last for queues out of range */
/* What a receive queue's number is too high by: drivers record it plus one
 * (skb_record_rx_queue), veth leaves the sender's, plain. */
const volatile __u32 recorded;
const volatile __u32 xdp;		/* in no mode, or in: */
#define NATIVE		1
#define GENERIC		2

/* No more packets from the driver are counted: those under way can arrive. */
__u32 draining;

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

struct vlan_tag {
	__be16	tci;
	__be16	protocol;
};

struct extension {
	__u8	next;
	__u8	length;
	__be16	fragment;
};

/* A packet's linear part, and how far it was read. */
struct packet {
	const unsigned char *data;
	__u32	linear;		/* bytes at data */
	__u32	off;
	__u32	len;		/* of the whole, from data */
	__u32	end;		/* of the IP packet, 0 if it is too long to say */
	int	bare;
};

static __always_inline int load(const struct packet *p, __u32 off, void *to, __u32 len)
{
	if (off + len > p->linear)
		return -1;
	return bpf_probe_read_kernel(to, len, p->data + off);
}

#define READ_NOT	(-1)	/* the headers are not in the linear part */
#define READ_OTHER	0	/* not IP */
#define READ_IP		1

static __always_inline void ends(struct flow *f, const __be32 *source, const __be32 *destination, int words, int receive)
{
	const __be32 *local = receive ? destination : source;
	const __be32 *remote = receive ? source : destination;
	int i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		if (i >= words)
			break;
		f->local[i] = local[i];
		f->remote[i] = remote[i];
	}
}

/* Reads the flow, from a network header of the given protocol on. */
static __always_inline int parse(struct packet *p, __be16 protocol, struct flow *f, int tagged, int receive)
{
	__be16 ports[2];
	int i, fragment = 0;
	__u8 next;

#pragma unroll
	for (i = 0; i < 2; i++) {
		struct vlan_tag tag;

		if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
			break;
		if (load(p, p->off, &tag, sizeof(tag)) < 0)
			return READ_NOT;
		if (!tagged)
			f->vlan = bpf_ntohs(tag.tci) & 0xfff;
		tagged = 1;
		protocol = tag.protocol;
		p->off += sizeof(tag);
	}
	if (protocol == bpf_htons(ETH_P_IP)) {
		struct ipv4_header ip;

		if (load(p, p->off, &ip, sizeof(ip)) < 0)
			return READ_NOT;
		f->family = 4;
		next = ip.protocol;
		ends(f, &ip.source, &ip.destination, 1, receive);
		fragment = !!(ip.fragment & bpf_htons(0x3fff));
		if (ip.length)
			p->end = p->off + bpf_ntohs(ip.length);
		p->off += (ip.version_ihl & 15) * 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6_header ip;

		if (load(p, p->off, &ip, sizeof(ip)) < 0)
			return READ_NOT;
		f->family = 6;
		next = ip.next;
		ends(f, ip.source, ip.destination, 4, receive);
		p->off += sizeof(ip);
		if (ip.length)
			p->end = p->off + bpf_ntohs(ip.length);
#pragma unroll
		for (i = 0; i < MAX_EXTENSIONS; i++) {
			struct extension ext;

			if (next != NEXTHDR_HOP && next != NEXTHDR_ROUTING && next != NEXTHDR_FRAGMENT &&
			    next != NEXTHDR_AUTH && next != NEXTHDR_DEST)
				break;
			if (load(p, p->off, &ext, sizeof(ext)) < 0)
				return READ_NOT;
			if (next == NEXTHDR_FRAGMENT) {
				fragment |= !!(ext.fragment & bpf_htons(0xfff9));
				p->off += 8;
			} else if (next == NEXTHDR_AUTH) {
				p->off += (ext.length + 2) * 4;
			} else {
				p->off += (ext.length + 1) * 8;
			}
			next = ext.next;
			if (fragment)
				break;
		}
	} else {
		return READ_OTHER;
	}
	f->protocol = next;
	if (fragment || (next != PROTO_TCP && next != PROTO_UDP))
		return READ_IP;
	if (load(p, p->off, ports, sizeof(ports)) < 0)
		return READ_NOT;
	f->local_port = receive ? ports[1] : ports[0];
	f->remote_port = receive ? ports[0] : ports[1];
	if (next == PROTO_TCP) {
		__u8 words;

		if (load(p, p->off + 12, &words, 1) < 0)
			return READ_NOT;
		p->bare = p->end && p->end <= p->off + (words >> 4) * 4;
	}
	return READ_IP;
}

struct search {
	struct flow	flow;
	__u32		lane;
};

static long look_up(__u32 index, void *ctx)
{
	struct search *s = ctx;
	struct flow_key key = { .pattern = index };
	const __u64 *from = (const __u64 *)&s->flow, *mask;
	__u64 *to = (__u64 *)&key.flow;
	struct flow *pattern;
	__u32 *lane, w;

	if (index >= patterns)
		return 1;
	pattern = bpf_map_lookup_elem(&watch_patterns, &index);
	if (!pattern)
		return 1;
	mask = (const __u64 *)pattern;
#pragma unroll
	for (w = 0; w < FLOW_WORDS; w++)
		to[w] = from[w] & mask[w];
	lane = bpf_map_lookup_elem(&watch_flows, &key);
	if (!lane)
		return 0;
	s->lane = *lane;
	return 1;
}

static __always_inline void count(__u32 direction, __u32 lane, __u32 column, __u32 segments, const struct packet *p)
{
	struct count *c;
	__u32 i;

	if (lane >= lanes)
		lane = lanes - 1;
	if (column >= columns)
		column = columns - 1;
	i = (direction * lanes + lane) * columns + column;
	c = bpf_map_lookup_elem(&watch_counts, &i);
	if (!c)
		return;
	c->packets += segments;
	c->bytes += p->len;
	if (p->bare)
		c->bare += segments;
}

static __always_inline int ours(const struct net_device *dev)
{
	return dev->ifindex == ifindex && dev->nd_net.net->ns.inum == netns;
}

static __always_inline int tagged(const struct sk_buff *skb)
{
	const struct sk_buff___present *old = (const void *)skb;

	if (bpf_core_field_exists(skb->vlan_all))
		return skb->vlan_all != 0;
	if (bpf_core_field_exists(old->vlan_present))
		return BPF_CORE_READ_BITFIELD_PROBED(old, vlan_present);
	return 0;
}

/* Whether a cpumap's thread hands the packet to the stack. In generic mode it
 * is the second time that the packet comes by, marked by the first
 * (cpu_map_generic_redirect); in native mode the packet was made by the thread,
 * and no NAPI has received it. */
static __always_inline int handed(const struct sk_buff *skb)
{
	if (xdp == GENERIC)
		return BPF_CORE_READ_BITFIELD_PROBED(skb, redirected);
	return xdp == NATIVE && skb->napi_id == 0;
}

static __always_inline void packet(const struct sk_buff *skb, int receive)
{
	struct packet p = {};
	struct search s = {};
	struct skb_shared_info *shared;
	__u32 queue = skb->queue_mapping, segments, priority, *class;
	unsigned short gso = 0;
	__be16 protocol;
	int got, tag;

	p.data = skb->data;
	p.len = skb->len;
	p.linear = p.len - skb->data_len;
	shared = (void *)(skb->head + skb->end);
	bpf_core_read(&gso, sizeof(gso), &shared->gso_segs);
	segments = gso ? gso : 1;

	tag = tagged(skb);
	if (tag)
		s.flow.vlan = skb->vlan_tci & 0xfff;
	if (receive) {
		protocol = skb->protocol;	/* data is behind the Ethernet header */
	} else {
		p.off = ETH_HLEN;
		if (load(&p, __builtin_offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) < 0) {
			count(SENT, lanes - 1, queue, segments, &p);
			return;
		}
	}
	got = parse(&p, protocol, &s.flow, tag, receive);
	if (got == READ_IP)
		bpf_loop(MAX_PATTERNS, look_up, &s, 0);
	else if (got == READ_NOT)
		s.lane = lanes - 1;
	if (receive) {
		__u32 cpu = bpf_get_smp_processor_id();

		if (handed(skb)) {
			count(HANDED, s.lane, cpu, segments, &p);
		} else if (!draining) {
			count(DIRECT, s.lane, cpu, segments, &p);
			count(RECEIVED, s.lane, queue - recorded, segments, &p);
		}
		return;
	}
	priority = skb->priority;
	class = bpf_map_lookup_elem(&watch_classes, &priority);
	if (class && *class & ALONE && !s.lane)
		s.lane = *class & ~ALONE;
	count(SENT, s.lane, queue, segments, &p);
	if (s.lane != lanes - 1)
		count(CLASSED, s.lane, class ? *class & ~ALONE : 0, segments, &p);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(watch_receive, struct sk_buff *skb)
{
	if (ours(skb->dev))
		packet(skb, 1);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(watch_transmit, struct sk_buff *skb, struct net_device *dev)
{
	if (ours(dev))
		packet(skb, 0);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
