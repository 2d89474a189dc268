/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counts the packets of one device by queue and lane.
 *
 * Two programs at raw tracepoints. They see every packet of the host and count those
 * of one device: watch_receive when the stack takes a packet from the driver,
 * watch_transmit when the stack gives a packet to the driver. They change nothing, are
 * not part of a chain of filters, and end with the process that loaded them.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define MAX_PATTERNS	64

/* The required fields of the kernel's structures. CO-RE finds their offsets in the
 * kernel's BTF. */
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
	int skb_iif;
	__u8 redirected : 1;
};

/* sk_buff before Linux 6.2 (354259fa73e2 "net: remove skb->vlan_present"). */
struct sk_buff___present {
	__u8 vlan_present : 1;
};

struct skb_shared_info {
	unsigned short gso_segs;
};

#pragma clang attribute pop

/* A packet. data begins after the Ethernet header if the packet is received, else with
 * it. The struct has no padding, which the verifier would treat as uninitialised. */
struct packet {
	const unsigned char *data;
	__u32	linear;		/* bytes at data */
	__u32	len;		/* of the whole packet */
	__u32	end;		/* end of the IP packet, 0 if it is not known (too long) */
	int	bare;		/* 1: TCP without data */
};

/* Copies bytes of the packet. Returns less than 0 if they are not in the linear part. */
static __always_inline int load(const struct packet *p, __u32 off, void *to, __u32 len)
{
	/* In a function that is not static, the verifier assumes that p may be NULL. */
	if (!p || off + len > p->linear)
		return -1;
	return bpf_probe_read_kernel(to, len, p->data + off);
}

#define PACKET	struct packet
#include <niclane/packet.h>
#include <niclane/tunnel.h>
#include <niclane/dscp.h>

/* The first pattern that matches the flow wins. The first ones, up to sent_only, hold only for
 * packets that leave. */
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

/* The lane of an HTB class or an mqprio priority, by skb->priority. */
#define ALONE	(1U << 31)	/* only the class identifies the lane's packets */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);		/* set by Go */
	__type(key, __u32);
	__type(value, __u32);
} watch_classes SEC(".maps");

struct count {
	__u64	packets;	/* segments, not GSO units */
	__u64	bytes;
	__u64	bare;		/* TCP packets without data */
};

/* By (direction * lanes + lane) * columns + column, see count(). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);		/* set by Go */
	__type(key, __u32);
	__type(value, struct count);
} watch_counts SEC(".maps");

/* Packets that leave, by lane * (DSCP_MASK + 1) + DSCP of the outermost IP header. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);		/* set by Go */
	__type(key, __u32);
	__type(value, __u64);
} watch_dscp SEC(".maps");

/* Those of them that have a VLAN tag, by lane * PCPS + PCP of the outermost tag. */
#define PCPS		8
#define PCP_SHIFT	13	/* IEEE 802.1Q: PCP, drop eligible bit, ID */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);		/* set by Go */
	__type(key, __u32);
	__type(value, __u64);
} watch_pcp SEC(".maps");

#define RECEIVED	0	/* column: receive queue */
#define SENT		1	/* column: transmit queue */
#define CLASSED		2	/* column: lane of the packet's class */
#define DIRECT		3	/* column: CPU that received the packet from the driver */
#define HANDED		4	/* column: CPU that received the packet from a cpumap */

const volatile __u32 ifindex;
const volatile __u32 netns;		/* inode of the namespace */
const volatile __u32 patterns;		/* number of patterns in use */
const volatile __u32 marks;		/* not 0: count by DSCP and PCP too */
const volatile __u32 sent_only;		/* number of patterns only for packets that leave */
const volatile __u32 lanes;		/* rows: 0 for no lane, the lanes, the last one for unreadable packets */
const volatile __u32 columns;		/* number of columns; the last one is for queues out of range */
/* queue_mapping minus this is the receive queue: 1, because drivers record the queue plus
 * one (skb_record_rx_queue); 0 for veth, which leaves the sender's transmit queue there. */
const volatile __u32 recorded;
const volatile struct tunnels tunnels;
const volatile __u32 xdp;		/* the XDP mode, 0 for none, or: */
#define NATIVE		1
#define GENERIC		2

/* 1: count no new packets from the driver, but still those on their way through a cpumap. */
__u32 draining;

struct search {
	struct flow	flow;
	__u32		first;	/* pattern to begin with */
	__u32		lane;
	__u32		addressed;	/* 1: use only patterns that compare local addresses, or no protocol */
};

static long look_up(__u32 index, void *ctx)
{
	struct search *s = ctx;
	struct flow_key key = {};
	struct flow *pattern;
	__u32 *lane;

	index += s->first;
	key.pattern = index;
	if (index >= patterns)
		return 1;
	pattern = bpf_map_lookup_elem(&watch_patterns, &index);
	if (!pattern)
		return 1;
	if (s->addressed && !pattern->local[0] && pattern->protocol)
		return 0;
	mask_flow(&key.flow, &s->flow, pattern);
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

/* Counts a packet that leaves by its DSCP. */
static __always_inline void count_dscp(struct packet *p, __u32 lane, __u32 segments)
{
	struct ip_start ip;
	__u64 *n;
	__u32 i;

	if (!marks || lane >= lanes || !find_ip(p, &ip))
		return;
	i = lane * (DSCP_MASK + 1) + dscp_of(&ip);
	n = bpf_map_lookup_elem(&watch_dscp, &i);
	if (n)
		*n += segments;
}

/* Counts a packet that leaves by the PCP of its tag. tag is the tag beside the data, if tagged. */
static __always_inline void count_pcp(struct packet *p, int tagged, __u16 tag, __u32 lane, __u32 segments)
{
	__be16 protocol, tci;
	__u64 *n;
	__u32 i;

	if (!marks || lane >= lanes)
		return;
	if (!tagged) {
		if (load(p, __builtin_offsetof(struct ethhdr, h_proto), &protocol, sizeof(protocol)) < 0 ||
		    !is_vlan(protocol) || load(p, ETH_HLEN, &tci, sizeof(tci)) < 0)
			return;
		tag = bpf_ntohs(tci);
	}
	i = lane * PCPS + (tag >> PCP_SHIFT);
	n = bpf_map_lookup_elem(&watch_pcp, &i);
	if (n)
		*n += segments;
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

/* Whether a cpumap's thread gives the packet to the stack. In generic mode, the packet
 * then passes this tracepoint for the second time, and cpu_map_generic_redirect has
 * marked it after the first time. In native mode, the thread has made the skb, and no
 * NAPI has received it. */
static __always_inline int handed(const struct sk_buff *skb)
{
	if (xdp == GENERIC)
		return BPF_CORE_READ_BITFIELD_PROBED(skb, redirected);
	return xdp == NATIVE && skb->napi_id == 0;
}

/* Fills in the ports, and whether the packet is bare. Returns less than 0 if the
 * transport header cannot be read. */
static __always_inline int read_transport(struct packet *p, int transport, struct flow *f, const int receive)
{
	int ports = parse_ports(p, transport, f, receive), payload;

	if (ports <= 0 || f->protocol != PROTO_TCP)
		return ports;
	payload = parse_payload(p, transport, f);
	if (payload < 0)
		return CUT_OFF;
	p->bare = p->end && p->end <= payload;
	return 0;
}

/* If the packet is IP, fills in f (zero before) and returns the offset of the transport
 * header, NO_PORTS in a fragment; else returns NOT_IP or CUT_OFF. */
static __always_inline int read_flow(struct packet *p, const struct sk_buff *skb, struct flow *f, const int receive)
{
	int tag = tagged(skb), transport;

	if (tag)
		f->vlan = skb->vlan_tci & VLAN_ID;
	if (receive)
		transport = parse(p, 0, skb->protocol, tag, f, 1, &p->end);
	else
		transport = parse_frame(p, tag, f, 0, &p->end);
	if (transport >= 0 && read_transport(p, transport, f, receive) < 0)
		return CUT_OFF;
	return transport;
}

/* Replaces f by the flow of the packet inside a tunnel. Returns 0, NOT_IP or CUT_OFF.
 * Not static: see niclane_extension. */
__noinline int watch_inner(struct packet *p, __u32 udp, __u32 kind, struct flow *f, int receive)
{
	struct flow inner = {};
	int transport;

	if (!p || !f)
		return NOT_IP;
	inner.vlan = f->vlan;
	transport = parse_inner(p, udp, kind, &inner, receive, &p->end);
	if (transport < 0)
		return transport;
	*f = inner;
	return read_transport(p, transport, f, receive) < 0 ? CUT_OFF : 0;
}

/* Does what inner_flow of niclane's programs does: a sent packet must be this host's. */
static __always_inline int read_inner(struct packet *p, const struct sk_buff *skb, int transport, struct flow *f,
				      const int receive)
{
	__u32 kind;

	if (f->protocol != PROTO_UDP || (!receive && skb->skb_iif))
		return NOT_IP;
	kind = tunnel_kind(&tunnels, receive ? f->local_port : f->remote_port);
	return kind ? watch_inner(p, transport, kind, f, receive) : NOT_IP;
}

static __always_inline void packet(const struct sk_buff *skb, int receive)
{
	struct packet p = {};
	struct search s = {};
	struct skb_shared_info *shared;
	__u32 queue = skb->queue_mapping, segments, priority, *class;
	unsigned short gso = 0;
	int got;

	p.data = skb->data;
	p.len = skb->len;
	p.linear = p.len - skb->data_len;
	shared = (void *)(skb->head + skb->end);
	bpf_core_read(&gso, sizeof(gso), &shared->gso_segs);
	segments = gso ? gso : 1;

	if (receive)
		s.first = sent_only;
	got = read_flow(&p, skb, &s.flow, receive);
	if (got == CUT_OFF)
		s.lane = lanes - 1;
	else if (got != NOT_IP)
		bpf_loop(MAX_PATTERNS, look_up, &s, 0);
	if (got >= 0 && !s.lane) {
		got = read_inner(&p, skb, got, &s.flow, receive);
		s.addressed = 1;
		if (got == CUT_OFF)
			s.lane = lanes - 1;
		else if (got == 0)
			bpf_loop(MAX_PATTERNS, look_up, &s, 0);
	}
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
	count_dscp(&p, s.lane, segments);
	count_pcp(&p, tagged(skb), skb->vlan_tci, s.lane, segments);
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
