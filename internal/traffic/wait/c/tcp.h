/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Requests of TCP sockets. The kernel runs all of these with the socket locked. */

/* The state of a socket; 0: it has none. With create, it gets one. */
static __always_inline struct conn *storage_of(struct sock *sk, int create)
{
	static const struct conn none;
	__u64 address = (__u64)sk;
	struct conn *c;

	if (!by_address)
		return bpf_sk_storage_get(&wait_conns, sk, 0, create ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	if (create)
		bpf_map_update_elem(&wait_conns, &address, &none, BPF_ANY);
	c = bpf_map_lookup_elem(&wait_conns, &address);
	/* wait_tcp_destroy_sock may not have seen the end of an earlier socket. */
	return c && (create || c->epoch == epoch) ? c : 0;
}

/* Where wait_conns is a hash: the next socket at this address is another one. */
SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(wait_tcp_destroy_sock, struct sock *sk)
{
	__u64 address = (__u64)sk;

	bpf_map_delete_elem(&wait_conns, &address);
	return 0;
}

/* The state of a service's socket; 0: the socket is of no service, or not known yet. */
static __always_inline struct conn *conn_of(struct sock *sk)
{
	if (!is_service(PROTO_TCP, sk->__sk_common.skc_num))
		return 0;
	return storage_of(sk, 0);
}

static __always_inline struct conn *new_conn(struct sock *sk)
{
	struct conn *c = storage_of(sk, 1);
	__u32 addr[4] = {0, 0, V4_MAPPED, sk->__sk_common.skc_rcv_saddr};
	int service;

	if (!c)
		return 0;
	if (sk->__sk_common.skc_family != 2) /* AF_INET */
		BPF_CORE_READ_INTO(&addr, sk, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32);
	service = service_of(sk->__sk_common.skc_net.net->ns.inum, PROTO_TCP, sk->__sk_common.skc_num, addr);
	c->service = service < 0 ? SERVICES : service;
	c->epoch = epoch;
	return c;
}

/* tcp_rcv_established begins with this. What comes in order is readable right after. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(wait_tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_skb_cb *cb = (void *)skb->cb;
	struct tcp_sock *tp;
	__u64 id = number(&ctx[1]);
	struct arrival *a = arrival_of(id);
	int followed = a->skb == id && a->epoch == epoch;
	struct request *r;
	struct conn *c;
	__u8 offset;

	if (!is_service(PROTO_TCP, sk->__sk_common.skc_num))
		return 0;
	if (followed)
		a->skb = 0; /* the next packet at this address is another one */
	/* skb->data is at the TCP header, with its length in units of 4 bytes. */
	if (bpf_probe_read_kernel(&offset, 1, skb->data + 12) || skb->len <= (offset >> 4) * 4)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || BPF_CORE_READ(cb, seq) != tp->rcv_nxt)
		return 0;
	c = storage_of(sk, 0);
	if (!c) {
		if (!followed)
			return 0;
		c = new_conn(sk);
	}
	if (!c || c->service >= SERVICES)
		return 0;
	r = &c->now;
	if (state_of(r) != IDLE) {
		count(c->service, pipelined);
		if (r->state == ARRIVED)
			return 0; /* more of it, or a request that is read along with it */
		r = &c->next;
		if (state_of(r) != IDLE)
			return 0;
	}
	if (!followed)
		return 0;
	begin(r, a, c->service, bpf_ktime_get_ns());
	if (r == &c->now)
		count(c->service, seen); /* the application may still take the next one along with it */
	return 0;
}

/* tcp_recvmsg has copied data of a packet to the application. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(wait_tcp_rcv_space_adjust, struct sock *sk)
{
	struct conn *c = conn_of(sk);
	struct tcp_sock *tp;

	if (!c)
		return 0;
	c->next.state = IDLE; /* the application takes it as a part of the present request */
	if (state_of(&c->now) != ARRIVED)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	c->now.read = bpf_ktime_get_ns();
	c->now.answer = tp->write_seq;
	c->now.state = READ;
	tell_ran(&c->now, SOCKET_TO_APP, c->now.sock, c->now.read);
	read_by(c->service, &c->reader);
	return 0;
}

static __always_inline void written(struct conn *c)
{
	if (state_of(&c->now) != READ)
		return;
	c->now.write = bpf_ktime_get_ns();
	c->now.state = WRITTEN;
	tell_ran(&c->now, APP, c->now.read, c->now.write);
}

/* Linux 6.16: the first of tcp_sendmsg, before it copies. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(wait_tcp_sendmsg_locked, struct sock *sk)
{
	struct conn *c = conn_of(sk);

	if (c)
		written(c);
	return 0;
}

/* Linux 6.3: the end of sendmsg. The packet may already be with the driver; then the state is
 * not READ. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(wait_sock_send_length, struct sock *sk, int ret)
{
	struct conn *c;

	if (sk->sk_protocol != PROTO_TCP || ret <= 0)
		return 0;
	c = conn_of(sk);
	if (c)
		written(c);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(wait_tcp_retransmit_skb, struct sock *sk)
{
	struct conn *c = conn_of(sk);

	if (c && c->service < SERVICES)
		count(c->service, retransmits);
	return 0;
}
