/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_egress: finds the lane of a packet that leaves.
 *
 * A clsact egress classifier in direct-action mode. It looks up the packet's
 * flow once for each pattern (set of compared fields) in use. It writes the lane's
 * HTB class (or mqprio priority) to skb->priority, and one of the lane's
 * transmit queues to skb->queue_mapping. If no lane matches, it also looks up the
 * addresses inside a tunnel, or from before connection tracking translated them,
 * among lanes that name addresses. It returns TC_ACT_UNSPEC, so that later filters of other
 * programs still see the packet (cls_bpf_classify continues with the next
 * filter). It never redirects a packet, and changes nothing in it but the DSCP and the tag's
 * priority of lanes that have one. It drops a packet if the kernel has no memory for the packet's
 * tag. It counts the packets of each lane. If the link is shared by departure times (depart.h), it
 * gives each packet one, and drops or marks those that would wait too long.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#define PACKET		struct __sk_buff
#define ARRIVES		0
#define load_far	bpf_skb_load_bytes
/* A tunnel of the kernel clears the mark of the device at which a packet arrived
 * (skb_scrub_packet). A forwarded packet keeps it. */
#define made_here(skb)	(!(skb)->ingress_ifindex)
#define outer_tag(skb, f)	\
	((skb)->vlan_present ? ((f)->vlan = (skb)->vlan_tci & VLAN_ID, 1) : 0)

struct target {
	__u32	class;		/* HTB class or priority, 0 for none */
	__u16	queue;		/* first transmit queue */
	__u16	queues;		/* number of transmit queues, 0 for none */
	__u16	dscp;		/* plus one; 0 leaves it unchanged */
	__u16	lane;		/* row of the lane's share of the link, 0 for none */
	__u32	pcp;		/* as dscp, of a VLAN tag */
};

/* The row is the lower half of a lane's class or priority, which is unique on the
 * device, or that of its share of the link. Row 0 counts packets of no lane, and of lanes
 * with queues but neither class nor share. */
#define MAX_ROWS	80	/* HTB classes are 16 to 78, see the Go code */

#include "flow.h"
#include "count.h"
#include "depart.h"
#include "mark.h"
#include "translated.h"

/* Target of packets that match no flow in the table. */
struct rest {
	__u16	queue;		/* as in struct target */
	__u16	queues;
	__u32	lanes;		/* mqprio priorities of lanes, one bit each */
};

/* A map of one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rest);
} nl_default SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROWS);
	__type(key, __u32);
	__type(value, struct counters);
} nl_sent SEC(".maps");

/* Set before loading: whether the program counts. */
const volatile __u32 nl_count = 1;

/*
 * Returns the transmit queue that this program has chosen. If it has chosen none,
 * returns the socket's receive queue, to which XPS may map a transmit queue
 * (get_xps_queue). The Go code knows whether XPS does.
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
#define LANE_PRIORITY	8	/* set in the priorities of the first eight lanes */

SEC("tc")
int niclane_egress(struct __sk_buff *skb)
{
	__u32 patterns = in_use(), zero = 0;
	struct rest *rest = bpf_map_lookup_elem(&nl_default, &zero);
	struct found best = {};
	struct flow f = {};
	struct target *to = &best.target;
	__u32 queue = 0, row;
	int transport;

	if (!patterns && (!rest || !(rest->queues | rest->lanes)))
		return TC_ACT_UNSPEC;
	transport = read_flow(skb, &f);
	if (transport >= 0) {
		lookup(&f, patterns, &best);
		if (!best.rank && patterns && (inner_flow(skb, transport, &f) || untranslate(skb, &f))) {
			/* This port may be a pod's. A lane without addresses means a port of the host. */
			best.addressed = 1;
			lookup(&f, patterns, &best);
		}
	}
	/* An entry without class and queues means packets of no lane, or that are only marked. */
	if (!to->class && !to->queues && rest) {
		to->queue = rest->queue;
		to->queues = rest->queues;
		/* A socket of no lane may have a lane's priority (SO_PRIORITY, IP_TOS): clear it. */
		if (rest->lanes >> (skb->priority & PRIORITY) & 1)
			skb->priority &= ~LANE_PRIORITY;
		if (rest->lanes >> (skb->priority & PRIORITY) & 1)
			skb->priority &= ~PRIORITY;
	}
	if (to->dscp)
		niclane_mark(skb, to->dscp - 1);
	if (to->pcp && niclane_retag(skb, to->pcp - 1) < 0)
		return TC_ACT_SHOT;
	if (to->class)
		skb->priority = to->class;
	/* On transmit, queue_mapping holds a queue number plus one. The kernel
	 * uses that queue if neither XPS nor the socket chooses another queue
	 * (netdev_pick_tx, skb_tx_hash). */
	if (to->queues) {
		queue = to->queue + choose(flow_hash(&f), to->queues);
		skb->queue_mapping = queue + 1;
	}
	row = to->lane ? : to->class & 0xffff;
	if (nl_count && row < MAX_ROWS)
		count(&nl_sent, row, queue_of(skb, to, queue), skb->gso_segs ? : 1, skb->len);
	return niclane_depart(skb, to->lane, &f) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
