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

static __always_inline struct ring *ring_at(__u64 key)
{
	return &rings[((key * 0x9E3779B97F4A7C15ULL) >> 54) & (RINGS - 1)];
}

/* The ring with this key. Another at its place loses its own times. */
static __always_inline struct ring *ring_of(__u64 key)
{
	struct ring *r = ring_at(key);

	if (r->key != key || r->epoch != epoch) {
		r->raised = r->empty = r->packets = 0;
		r->key = key;
		r->epoch = epoch;
	}
	return r;
}

/* A packet that is polled from a ring now is there since this time, or a shorter time; 0: not known. */
static __always_inline __u64 since(__u64 key, struct cpu *cpu)
{
	struct ring *r = ring_at(key);
	__u64 at;

	if (r->key != key || r->epoch != epoch)
		return 0;
	/* Without a call that was seen, the poll is by softirq, or does not end (busy polling). */
	at = r->raised ? r->raised : cpu->raised;
	return r->empty > at ? r->empty : at;
}

/* NAPIs without an ID, such as the backlog, are not followed. */
static __always_inline int scheduled(__u32 napi_id)
{
	struct ring *r;

	if (!napi_id)
		return 0;
	r = ring_of(napi_id);
	if (!r->raised)
		r->raised = bpf_ktime_get_ns();
	return 0;
}

/* An interrupt, or a driver's timer, asks for a poll: by softirq, or by the NAPI's thread. */
SEC("fentry/__napi_schedule")
int BPF_PROG(wait_napi_schedule, struct napi_struct *napi)
{
	return scheduled(napi->napi_id);
}

SEC("fentry/__napi_schedule_irqoff")
int BPF_PROG(wait_napi_schedule_irqoff, struct napi_struct *napi)
{
	return scheduled(napi->napi_id);
}

/* In place of the two, where there is no fentry: a NAPI's thread is woken. Its data is the NAPI. Before
 * Linux 5.17, the thread does not lead there. */
SEC("tp_btf/sched_waking")
int BPF_PROG(wait_sched_waking, struct task_struct *p)
{
	struct napi_struct *napi;

	if (!bpf_core_field_exists(p->worker_private))
		return 0;
	if (p->comm[0] != 'n' || p->comm[1] != 'a' || p->comm[2] != 'p' || p->comm[3] != 'i' || p->comm[4] != '/')
		return 0;
	napi = BPF_CORE_READ((struct kthread *)p->worker_private, data);
	return scheduled(BPF_CORE_READ(napi, napi_id));
}

/* The kernel runs this after every poll of a NAPI, also by its thread and by busy polling. A poll
 * that returns less than its budget has found the ring empty. It then gave the stack its last
 * packets, which GRO had held back, so the ring was empty when the last of them reached the stack.
 * If the NAPI was scheduled during the poll, this was before now, so raised can be forgotten. */
SEC("tp_btf/napi_poll")
int BPF_PROG(wait_napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct cpu *cpu = this_cpu();
	struct ring *r;

	if (!cpu)
		return 0;
	if (work < budget && napi->napi_id) {
		r = ring_of(napi->napi_id);
		r->empty = cpu->packet ? cpu->packet : bpf_ktime_get_ns();
		r->raised = 0;
	}
	cpu->packet = 0;
	return 0;
}

#define CPUMAP_BATCH	8	/* kernel/bpf/cpumap.c: a thread takes at most as many packets at once */

static __always_inline __u64 cpumap_key(int map, int cpu)
{
	return (__u64)(map + 1) << 32 | (__u32)cpu;
}

/* XDP has put packets into a cpumap's queue to another processor. The time before, from the
 * interrupt on, is not known here: a packet has no NAPI then. */
SEC("tp_btf/xdp_cpumap_enqueue")
int BPF_PROG(wait_xdp_cpumap_enqueue, int map, unsigned int processed, unsigned int drops, int to)
{
	struct ring *r = ring_of(cpumap_key(map, to));

	if (processed <= drops) /* generic XDP does not count a dropped packet as processed */
		return 0;
	if (!r->raised)
		r->raised = bpf_ktime_get_ns();
	__sync_fetch_and_add(&r->packets, processed - drops);
	return 0;
}

/* The cpumap's thread has taken packets. With less than a batch, the queue is empty. Packets of
 * generic XDP were in the stack before. */
SEC("tp_btf/xdp_cpumap_kthread")
int BPF_PROG(wait_xdp_cpumap_kthread, int map, unsigned int n)
{
	struct cpu *cpu = this_cpu();
	struct ring *r;

	if (!cpu)
		return 0;
	cpu->thread = bpf_get_current_pid_tgid();
	cpu->key = cpumap_key(map, bpf_get_smp_processor_id());
	r = ring_of(cpu->key);
	cpu->taken = r->raised ? r->raised : r->empty;
	__sync_fetch_and_add(&r->packets, -(int)n);
	if (n < CPUMAP_BATCH || r->packets <= 0) {
		r->empty = bpf_ktime_get_ns();
		r->raised = 0;
	}
	if (n < CPUMAP_BATCH)
		r->packets = 0;
	return 0;
}

/* When the packet was at the card, as early as it is known without the card's own timestamp. */
static __always_inline __u64 at_card(struct sk_buff *skb, struct cpu *cpu, __u64 now)
{
	__u64 at = 0, stamp;

	if (skb->napi_id)
		at = since(skb->napi_id, cpu);
	if (!at && !cpu->runs && cpu->thread && cpu->thread == bpf_get_current_pid_tgid())
		at = taken_first ? cpu->taken : since(cpu->key, cpu);
	/* The kernel stamps a packet where a driver gives it to the stack: before the backlog of
	 * netif_rx and of RPS (net.core.netdev_tstamp_prequeue), else just before this. */
	if (skb->tstamp) {
		stamp = skb->tstamp - real_offset;
		if (now - stamp < 10 * SECOND && (at ? stamp < at : now - stamp > 2000))
			at = stamp;
	}
	if (!at)
		at = cpu->raised;
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
		a->card = card_stamp(skb, cpu, netns, now);
		a->stamped = a->card != 0;
		if (!a->stamped)
			a->card = at_card(skb, cpu, now);
		a->stack = now;
		a->seq = h.seq;
		a->epoch = epoch;
		a->cpu = bpf_get_smp_processor_id();
		a->skb = id;
		if (now - a->card > slow_arrival) {
			service = service_of(netns, h.protocol, bpf_ntohs(h.dest), h.to);
			if (service >= 0 && is_slow(service, CARD_TO_STACK, a->card, now))
				tell(in_front(past, a->card, now), service, CARD_TO_STACK, a->card, now,
				     skb->dev->ifindex, skb->queue_mapping);
		}
	}
	if (h.protocol == PROTO_UDP)
		udp_arrives(cpu, &h, a, netns);
out:
	remember_packet(past, &h, now, skb->queue_mapping);
	return 0;
}
