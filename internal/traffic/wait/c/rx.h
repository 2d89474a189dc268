/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From the card to the stack. */

SEC("tp_btf/softirq_raise")
int BPF_PROG(wait_softirq_raise, unsigned int nr)
{
	struct cpu *cpu;

	if (nr != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	if (!cpu->raised)
		cpu->raised = bpf_ktime_get_ns();
	else if (cpu->runs && !cpu->again)
		cpu->again = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(wait_softirq_entry, unsigned int nr)
{
	struct cpu *cpu;

	if (nr != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (cpu)
		cpu->runs = 1;
	softirq(1);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(wait_softirq_exit, unsigned int nr)
{
	struct cpu *cpu;

	if (nr != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	cpu->raised = cpu->again;
	cpu->again = 0;
	cpu->runs = 0;
	softirq(0);
	return 0;
}

/* The kernel runs this after every poll of a NAPI. A poll that returns less than its
 * budget has found the ring empty. It then gave the stack its last packets, which GRO had
 * held back, so the ring was empty when the last of them reached the stack. */
SEC("tp_btf/napi_poll")
int BPF_PROG(wait_napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct cpu *cpu = this_cpu();
	__u32 id = napi->napi_id, i = id & 15;

	if (!cpu)
		return 0;
	if (work < budget) {
		cpu->polls[i].napi = id;
		cpu->polls[i].empty = cpu->packet ? cpu->packet : bpf_ktime_get_ns();
	}
	cpu->packet = 0;
	return 0;
}

/* When the packet was at the card, as early as it is known. The card's own timestamp is not
 * used: it is of another clock. */
static __always_inline __u64 at_card(struct sk_buff *skb, struct cpu *cpu, __u64 now)
{
	__s64 stamp;
	__u64 at;
	__u32 i;

	/* The kernel stamps a packet where a driver gives it to the stack: before the backlog of
	 * netif_rx and of RPS (net.core.netdev_tstamp_prequeue), else just before this. */
	stamp = skb->tstamp;
	if (stamp) {
		at = now - (stamp - real_offset);
		if (at > 2000 && at < 10000000000)
			return now - at;
	}
	at = cpu->raised;
	i = skb->napi_id & 15;
	if (cpu->polls[i].napi == skb->napi_id && cpu->polls[i].empty > at)
		at = cpu->polls[i].empty;
	return at ? at : now;
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(wait_netif_receive_skb, struct sk_buff *skb)
{
	__u64 id = number(&ctx[0]);
	struct arrival *a = arrival_of(id);
	struct history *past;
	struct header h;
	struct cpu *cpu;
	__u32 netns;
	__u64 now;

	cpu = this_cpu();
	past = received();
	if (!cpu || !past)
		return 0;
	cpu->dgram = 0;
	if (!parse(&h, skb->data + (skb->protocol == bpf_htons(ETH_P_8021Q) ? 4 : 0)))
		return 0;
	now = cpu->packet = bpf_ktime_get_ns();
	if (!accepting || !is_service(h.protocol, bpf_ntohs(h.dest)))
		goto out;
	netns = skb->dev->nd_net.net->ns.inum;
	/* A packet to another namespace passes here twice: its first time counts. */
	if (a->skb != id || a->epoch != epoch || a->seq != h.seq || now - a->stack > SECOND) {
		int service;

		if (!on_device(skb->dev))
			goto out;
		a->card = at_card(skb, cpu, now);
		a->stack = now;
		a->seq = h.seq;
		a->epoch = epoch;
		a->cpu = bpf_get_smp_processor_id();
		a->skb = id;
		if (now - a->card > slow_arrival) {
			service = service_of(netns, h.protocol, bpf_ntohs(h.dest), h.to);
			if (service >= 0 && is_slow(service, CARD_TO_STACK, a->card, now))
				tell(past, service, CARD_TO_STACK, a->card, now, skb->dev->ifindex,
				     skb->queue_mapping);
		}
	}
	if (h.protocol == PROTO_UDP)
		udp_arrives(cpu, &h, a, netns);
out:
	remember_packet(past, &h, now, skb->queue_mapping);
	return 0;
}
