/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* From the socket to the card. */

static __always_inline void depart(__u64 skb, struct request *r)
{
	struct departure *d = departure_of(skb);

	d->req = *r;
	d->xmit = 0;
	d->skb = skb;
}

static __always_inline int queue_tcp(struct sock *sk, struct sk_buff *skb, __u64 id)
{
	struct conn *c = conn_of(sk);
	struct request *r;
	__u32 seq, end;
	__u8 tcp[16];

	if (!c)
		return 0;
	r = &c->now;
	if (state_of(r) != READ && state_of(r) != WRITTEN)
		return 0;
	if (bpf_probe_read_kernel(tcp, sizeof(tcp), skb->head + skb->transport_header))
		return 0;
	seq = bpf_ntohl(*(__u32 *)(tcp + 4));
	end = seq + skb->len - (__u32)(skb->head + skb->transport_header - skb->data) - (tcp[12] >> 4) * 4;
	if (end == seq || (__s32)(end - r->answer) <= 0)
		return 0; /* an acknowledgement, or an older packet again */
	r->queue = bpf_ktime_get_ns();
	if (r->state == READ) {
		r->write = r->queue; /* in sendmsg */
		tell_ran(r, APP, r->read, r->write);
	}
	depart(id, r);
	*r = c->next;
	if (state_of(r) != IDLE)
		count(c->service, seen);
	c->next.state = IDLE;
	return 0;
}

static __always_inline int queue_udp(struct sock *sk, struct sk_buff *skb, __u64 id)
{
	struct header h;
	struct peer p;
	struct dgram *d;

	if (!is_service(PROTO_UDP, sk->__sk_common.skc_num) || !parse(&h, skb->head + skb->network_header))
		return 0;
	__builtin_memcpy(p.addr, h.to, sizeof(p.addr));
	p.remote_port = h.dest;
	p.local_port = bpf_ntohs(h.source);
	d = dgram_of(&p);
	if (!d || state_of(&d->now) != READ)
		return 0;
	d->now.write = d->now.queue = bpf_ktime_get_ns();
	d->now.state = IDLE;
	tell_ran(&d->now, APP, d->now.read, d->now.write);
	depart(id, &d->now);
	return 0;
}

/* Linux gives a packet to the qdisc of a device. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(wait_net_dev_queue, struct sk_buff *skb)
{
	struct sock *sk = skb->sk;

	if (!sk)
		return 0;
	if (sk->sk_protocol == PROTO_TCP)
		return queue_tcp(sk, skb, number(&ctx[0]));
	if (sk->sk_protocol == PROTO_UDP)
		return queue_udp(sk, skb, number(&ctx[0]));
	return 0;
}

static __always_inline void finish(struct request *r, __u64 now)
{
	__u32 s = r->service;

	if (s >= SERVICES)
		return;
	record(s, CARD_TO_STACK, r->card, r->stack);
	record(s, STACK_TO_SOCKET, r->stack, r->sock);
	record(s, SOCKET_TO_APP, r->sock ? r->sock : r->stack, r->read);
	record(s, APP, r->read, r->write);
	record(s, SOCKET_TO_CARD, r->write, now);
	record(s, HOST, r->card, now);
	count(s, requests);
	if (r->stamped)
		count(s, stamped);
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(wait_net_dev_start_xmit, struct sk_buff *skb, struct net_device *dev)
{
	__u64 id = number(&ctx[0]), now;
	struct departure *d = departure_of(id);
	struct history *past = 0;
	struct header h;

	if (on_device(dev)) {
		past = sent_by(number(&ctx[1]), skb->queue_mapping);
		if (!parse(&h, skb->head + skb->network_header))
			past = 0;
	}
	now = bpf_ktime_get_ns();
	if (d->skb != id || d->req.epoch != epoch || d->xmit)
		goto out;
	if (!on_device(dev))
		goto out;
	finish(&d->req, now);
	if (past && is_slow(d->req.service, SOCKET_TO_CARD, d->req.write, now))
		tell(past, d->req.service, SOCKET_TO_CARD, d->req.write, now, dev->ifindex, skb->queue_mapping);
	if (dev->dev.parent)
		d->xmit = now; /* a card: it completes */
	else
		d->skb = 0;
out:
	if (past)
		remember_packet(past, &h, now, skb->queue_mapping);
	return 0;
}

static __always_inline int completed(__u64 id)
{
	struct departure *d = departure_of(id);

	if (d->skb != id || d->req.epoch != epoch || !d->xmit)
		return 0;
	d->skb = 0;
	if (d->req.service < SERVICES)
		record(d->req.service, CARD, d->xmit, bpf_ktime_get_ns());
	return 0;
}

/* A card's driver frees what was sent. */
SEC("tp_btf/consume_skb")
int BPF_PROG(wait_consume_skb, struct sk_buff *skb)
{
	return completed(number(&ctx[0]));
}

/* Newer kernels leave this to the processor that made the packet, which may do it much later
 * (net/core/skbuff.c: napi_consume_skb). */
SEC("fentry/skb_attempt_defer_free")
int BPF_PROG(wait_skb_attempt_defer_free, struct sk_buff *skb)
{
	return completed(number(&ctx[0]));
}

/* A packet of a service is dropped. Before Linux 6.2, the kernel frees some packets without a
 * reason that it did not drop. */
SEC("tp_btf/kfree_skb")
int BPF_PROG(wait_kfree_skb, struct sk_buff *skb, void *location, int reason)
{
	struct sock *sk = BPF_CORE_READ(skb, sk);
	struct header h;
	__u32 netns;
	int service;

	if (reason == bpf_core_enum_value(enum skb_drop_reason, SKB_DROP_REASON_NOT_SPECIFIED))
		return 0;
	if (!parse(&h, skb->head + skb->network_header))
		return 0;
	netns = sk ? BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) :
		     BPF_CORE_READ(skb, dev, nd_net.net, ns.inum);
	if (is_service(h.protocol, bpf_ntohs(h.dest)))
		service = service_of(netns, h.protocol, bpf_ntohs(h.dest), h.to);
	else if (is_service(h.protocol, bpf_ntohs(h.source)))
		service = service_of(netns, h.protocol, bpf_ntohs(h.source), h.from);
	else
		return 0;
	if (service >= 0)
		count(service, drops);
	return 0;
}
