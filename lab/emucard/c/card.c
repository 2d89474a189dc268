/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The steering hardware of the emulated card, on the wire side of the SUT's
 * veth port.
 *
 * A veth gives a packet to the receive queue that has the number of the sender's
 * transmit queue. So card_rx, at clsact egress of the wire side, does what a card
 * does before DMA: it sets skb->queue_mapping. A rule gives the queue or context;
 * without a rule, it is the default context. The packet's Toeplitz hash selects an
 * entry of the context's indirection table.
 *
 * card_driver does the work of the card's driver in the SUT.
 *
 * card_tx counts the SUT's packets by transmit queue and gives them to the
 * device with the card's transmit arbiter, which has one HTB class per queue.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define MAX_QUEUES	128
#define MAX_CONTEXTS	16
#define TABLE_SIZE	128
#define MAX_PATTERNS	16
#define MAX_RULES	1024
#define HASH_BYTES	36	/* two IPv6 addresses and two ports */

#define PACKET		struct __sk_buff
#define load_far	bpf_skb_load_bytes
/* Like most cards, the parser does not look behind IPv6 extension headers: packets
 * with such headers have addresses but no ports. */
#define MAX_EXTENSIONS	0

#include <niclane/packet.h>

struct pattern {
	struct flow	mask;
	__u32		used;
	__u32		pad;
};

/* Where a rule leads: to the context, or to the queue if context is 0. */
struct rule {
	__u32	location;
	__u16	context;
	__u16	queue;
};

struct context {
	__u16	used;
	__u16	configured;
	__u16	table[TABLE_SIZE];
};

struct counter {
	__u64	packets;	/* as they are on the wire: segments, not GSO units */
	__u64	bytes;		/* with the Ethernet header, without the checksum */
};

/* No program uses this; package emucard reads it. */
struct info {
	__u32	version;
	__u32	queues;
	__u32	rules;
	__u32	contexts;
	__u64	rate;		/* of the link, in bit/s */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct info);
} card_info SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CONTEXTS);
	__type(key, __u32);
	__type(value, struct context);
} card_contexts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PATTERNS);
	__type(key, __u32);
	__type(value, struct pattern);
} card_patterns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_RULES);
	__type(key, struct flow_key);
	__type(value, struct rule);
} card_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, struct counter);
} card_rx_queues SEC(".maps"), card_tx_queues SEC(".maps");

/* toeplitz[i][v] is the hash of byte v at position i. The hash is linear, so a packet's
 * hash is the exclusive or of the hashes of its bytes. */
const volatile __u32 toeplitz[HASH_BYTES][256];
const volatile __u32 arbiter;	/* ifindex of the device with the transmit arbiter */
const volatile __u32 queues;

/* A model of processors, in ns. Each receive queue has one, which takes packet_cost for
 * a packet, and wakeup_cost before the first one if it slept. A packet arrives at the end
 * of the link after link_delay. */
const volatile __u64 packet_cost, wakeup_cost, link_delay;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u64);	/* when the processor has nothing more to do, by CLOCK_MONOTONIC */
} card_processors SEC(".maps");

/* Says when a packet of a queue is processed. fq holds it until then. */
static __always_inline void process(struct __sk_buff *skb, __u32 queue)
{
	__u64 *done = bpf_map_lookup_elem(&card_processors, &queue);
	__u64 arrival = bpf_ktime_get_ns() + link_delay;

	if (!done)
		return;
	if (*done < arrival)
		*done = arrival + wakeup_cost;
	*done += packet_cost;
	skb->tstamp = *done;
}

/* Sets f for a packet that the SUT receives. Returns the offset of the transport
 * header, 0 if there are no ports. For packets that the SUT sends, only this offset
 * is of use: local and remote are the wrong way round. */
static __always_inline __u32 read_flow(struct __sk_buff *skb, struct flow *f)
{
	int tagged = skb->vlan_present, transport;

	if (tagged)
		f->vlan = skb->vlan_tci & VLAN_ID;
	transport = parse_frame(skb, tagged, f, 1, NULL);
	return transport > 0 && parse_ports(skb, transport, f, 1) > 0 ? transport : 0;
}

static __always_inline __u32 hash_word(__u32 at, __u32 v)
{
	return toeplitz[at][v & 0xff] ^ toeplitz[at + 1][v >> 8 & 0xff] ^
	       toeplitz[at + 2][v >> 16 & 0xff] ^ toeplitz[at + 3][v >> 24];
}

/* Hashes source address, destination address, source port and destination port, as
 * RSS does. For protocols other than TCP and UDP, it hashes the addresses only. */
static __always_inline __u32 hash(const struct flow *f)
{
	__u32 h = 0, at = 0, ports;

	if (f->family == 4) {
		h = hash_word(0, f->remote[0]) ^ hash_word(4, f->local[0]);
		at = 8;
	} else if (f->family == 6) {
#pragma unroll
		for (int i = 0; i < 4; i++)
			h ^= hash_word(4 * i, f->remote[i]) ^ hash_word(16 + 4 * i, f->local[i]);
		at = 32;
	} else {
		return 0;
	}
	/* on a little-endian machine, the low half comes first in memory */
	ports = (__u32)f->remote_port | (__u32)f->local_port << 16;
	if (at == 8)
		h ^= hash_word(8, ports);
	else
		h ^= hash_word(32, ports);
	return h;
}

static __always_inline void count(void *map, __u32 q, struct __sk_buff *skb, const struct flow *f, __u32 l4)
{
	struct counter *c = bpf_map_lookup_elem(map, &q);
	int header = 0;
	__u32 segments = skb->gso_segs;

	if (!c)
		return;
	if (segments > 1 && l4) {
		header = parse_payload(skb, l4, f);
		if (header < 0)
			header = l4;
	}
	if (!segments)
		segments = 1;
	c->packets += segments;
	c->bytes += skb->len + (__u64)(segments - 1) * header;
}

SEC("tc")
int card_rx(struct __sk_buff *skb)
{
	__u32 i, context = 0, best = ~0u, queue = ~0u;
	struct flow f = {};
	struct context *c;
	__u32 l4 = read_flow(skb, &f);

	for (i = 0; f.family && i < MAX_PATTERNS; i++) {
		struct flow_key key = {};
		struct pattern *p;
		struct rule *r;
		__u32 index = i;

		p = bpf_map_lookup_elem(&card_patterns, &index);
		if (!p || !p->used)
			continue;
		mask_flow(&key.flow, &f, &p->mask);
		key.pattern = i;
		r = bpf_map_lookup_elem(&card_rules, &key);
		if (r && r->location < best) {
			best = r->location;
			context = r->context;
			queue = context ? ~0u : r->queue;
		}
	}
	if (queue == ~0u) {
		c = bpf_map_lookup_elem(&card_contexts, &context);
		queue = c ? c->table[hash(&f) & (TABLE_SIZE - 1)] : 0;
	}
	if (queue >= queues)
		queue = 0;
	count(&card_rx_queues, queue, skb, &f, l4);
	/* skb_tx_hash sends on the recorded receive queue, which is this value minus
	 * one. XPS or a queue cached in the sending socket would come first, but the
	 * wire side has no XPS, and the switch removes the socket. */
	skb->queue_mapping = queue + 1;
	if (packet_cost || wakeup_cost)
		process(skb, queue);
	return TC_ACT_OK;
}

SEC("tc")
int card_tx(struct __sk_buff *skb)
{
	/* veth leaves the number of the transmit queue here, because it records no
	 * receive queue (47e550e0105b "veth: Do not record rx queue hint in veth_xmit") */
	__u32 queue = skb->queue_mapping;
	struct flow f = {};
	__u32 l4 = read_flow(skb, &f);

	if (queue >= queues)
		queue = 0;
	count(&card_tx_queues, queue, skb, &f, l4);
	skb->priority = 1 << 16 | (queue + 1);
	/* if arbiter is 0, a bridge forwards the packet to the arbiter's device */
	return arbiter ? bpf_redirect(arbiter, 0) : TC_ACT_OK;
}

/* The driver's part, at clsact ingress of the port. Drivers record the receive queue
 * plus one (skb_record_rx_queue), for sockets and for XPS by receive queue. veth leaves
 * the queue's number without adding one. Queue 3 would be read as queue 2, and queue 0
 * as no queue. */
SEC("tc")
int card_driver(struct __sk_buff *skb)
{
	__u32 queue = skb->queue_mapping;

	if (queue < queues)
		skb->queue_mapping = queue + 1;
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
