/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_egress: which lane does a packet that leaves belong to?
 *
 * A clsact egress classifier in direct-action mode. It looks the packet's flow
 * up, once for each pattern of compared fields that is in use, and writes the
 * HTB class of its lane, or its priority under mqprio, to skb->priority and one
 * of its transmit queues to skb->queue_mapping. What the kernel's connection
 * tracking has given another address on its way here is looked up by the one
 * that it had before, too, among lanes that name addresses. It returns TC_ACT_UNSPEC, so that filters of others after
 * it still see the packet (cls_bpf_classify continues with the next filter),
 * and never drops, redirects or changes a packet. It counts what it gives to
 * each lane.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define PACKET		struct __sk_buff
#define ARRIVES		0
#define load_far	bpf_skb_load_bytes
#define outer_tag(skb, f)	\
	((skb)->vlan_present ? ((f)->vlan = (skb)->vlan_tci & VLAN_ID, 1) : 0)

struct target {
	__u32	class;		/* HTB class or priority, 0 for none */
	__u16	queue;		/* the first of the transmit queues */
	__u16	queues;		/* how many, 0 for none */
};

#include "flow.h"
#include "count.h"
#include "translated.h"

/* Where packets go that no flow names. */
struct rest {
	__u16	queue;		/* as in struct target */
	__u16	queues;
	__u32	lanes;		/* mqprio's priorities of lanes: a bit for each */
};

/* The one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rest);
} nl_default SEC(".maps");

/* By the lower half of a lane's class or priority, which is its own on the
 * device; 0 is what no lane matches, or what has a queue instead of a class. */
#define MAX_ROWS	80	/* HTB's classes are 16 to 78: see Go */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROWS);
	__type(key, __u32);
	__type(value, struct counters);
} nl_sent SEC(".maps");

/* Set before loading: whether to count. */
const volatile __u32 nl_count = 1;

/*
 * The transmit queue is chosen later (netdev_core_pick_tx), but most of the time
 * it is known: this program chooses it, or the socket's receive queue does, where
 * XPS is by receive queue (get_xps_queue). Go knows whether it is.
 */
static __always_inline __u32 queue_of(struct __sk_buff *skb, const struct target *to, __u32 chosen)
{
	struct bpf_sock *sk = skb->sk;

	if (to->queues)
		return chosen;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	return sk ? (__u32)sk->rx_queue_mapping : NO_QUEUE;
}

#define PRIORITY	15	/* TC_PRIO_MAX: mqprio looks at these bits only */
#define LANE_PRIORITY	8	/* lanes' have this one, of the first eight lanes */

SEC("tc")
int niclane_egress(struct __sk_buff *skb)
{
	__u32 patterns = in_use(), zero = 0;
	struct rest *rest = bpf_map_lookup_elem(&nl_default, &zero);
	struct found best = {};
	struct flow f = {};
	struct target *to = &best.target;
	__u32 queue = 0, row;

	if (!patterns && (!rest || !(rest->queues | rest->lanes)))
		return TC_ACT_UNSPEC;
	if (read_flow(skb, &f)) {
		lookup(&f, patterns, &best);
		if (!best.rank && patterns && untranslate(skb, &f)) {
			/* A lane that names a port alone means this host's. */
			best.addressed = 1;
			lookup(&f, patterns, &best);
		}
	}
	if (!best.rank && rest) {
		to->queue = rest->queue;
		to->queues = rest->queues;
		/* A socket may have any priority (SO_PRIORITY, IP_TOS). */
		if (rest->lanes >> (skb->priority & PRIORITY) & 1)
			skb->priority &= ~LANE_PRIORITY;
		if (rest->lanes >> (skb->priority & PRIORITY) & 1)
			skb->priority &= ~PRIORITY;
	}
	if (to->class)
		skb->priority = to->class;
	/* Of a packet that leaves queue_mapping is read as the receive queue
	 * it came from, plus one, and used if neither XPS nor the socket has
	 * another opinion (netdev_pick_tx, skb_tx_hash). */
	if (to->queues) {
		queue = to->queue + choose(flow_hash(&f), to->queues);
		skb->queue_mapping = queue + 1;
	}
	if (nl_count) {
		row = to->class & 0xffff;
		if (row < MAX_ROWS)
			count(&nl_sent, row, queue_of(skb, to, queue), skb->gso_segs ? : 1, skb->len);
	}
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "Dual BSD/GPL";
