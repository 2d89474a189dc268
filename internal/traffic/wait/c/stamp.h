/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The card's own timestamps of received packets, which are of the card's clock. */

#define STAMP_VALID	500000000	/* ns; how long a relation is used without a new one */
#define STAMP_OLD	10000000000	/* ns; an older timestamp is none of this packet */
#define STAMP_DISORDER	1000000		/* ns; by how much a NAPI's packets, and GRO's, are out of order */
#define SKBTX_HW_TSTAMP_NETDEV	(1 << 5)	/* enum in linux/skbuff.h: hwtstamps has an address, not a time */

/* How a card's clock and CLOCK_MONOTONIC relate: internal/kernel/phc has the meaning. */
struct card_clock {
	__s64	card;
	__u64	mono;
	__s64	slope;
	__s64	error;
	__u64	jumps;
};

/* By ifindex. User space replaces entries at any time, and removes those that do not hold. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);	/* a reader never sees half of an entry */
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct card_clock);
} wait_card_clocks SEC(".maps");

__u32 card_clocks;	/* 1: there may be entries */

/* When the packet was at the card by the card's own timestamp; 0: there is none, or it cannot
 * be true. */
static __always_inline __u64 card_stamp(struct sk_buff *skb, struct cpu *cpu, __u32 netns, __u64 now)
{
	struct skb_shared_info *info;
	struct card_clock *c;
	__u32 dev, i;
	__s64 stamp, since, wait, last;

	if (!card_clocks || netns != device_netns)
		return 0;
	dev = skb->dev->ifindex;
	c = bpf_map_lookup_elem(&wait_card_clocks, &dev);
	if (!c || (__s64)(now - c->mono) > STAMP_VALID)
		return 0;
	info = (void *)(skb->head + skb->end);
	stamp = BPF_CORE_READ(info, hwtstamps.hwtstamp);
	if (!stamp || BPF_CORE_READ(info, tx_flags) & SKBTX_HW_TSTAMP_NETDEV)
		return 0;
	/* If the clock has jumped back since user space looked, packets seem to have come before those
	 * that came before them. */
	i = skb->napi_id & 15;
	last = cpu->stamps[i].napi == skb->napi_id && cpu->stamps[i].jumps == (__u32)c->jumps ? cpu->stamps[i].last : stamp;
	cpu->stamps[i].napi = skb->napi_id;
	cpu->stamps[i].jumps = c->jumps;
	cpu->stamps[i].last = stamp;
	if (last - stamp > STAMP_DISORDER) {
		c->mono = 0;	/* until the next relation */
		return 0;
	}
	since = stamp - c->card;
	if (since < -STAMP_OLD || since > STAMP_OLD)
		return 0;
	wait = now - (c->mono + since + (since * c->slope >> 32));
	if (wait < -c->error || wait > STAMP_OLD)
		return 0;
	return wait < 0 ? now : now - wait;
}
