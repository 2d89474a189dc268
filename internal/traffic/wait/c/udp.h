/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Requests by UDP: a request and its answer have the same peer. */

#define SECOND	1000000000ULL

static __always_inline struct dgram *dgram_of(const struct peer *p)
{
	struct dgram *d = &dgrams[slot_of_peer(p) & (SLOTS - 1)];

	return same_peer(&d->peer, p) ? d : 0;
}

/* A datagram of a service is in the stack. */
static __always_inline void udp_arrives(struct cpu *cpu, struct header *h, struct arrival *a, __u32 netns)
{
	struct peer p = {.remote_port = h->source, .local_port = bpf_ntohs(h->dest)};
	int service = service_of(netns, PROTO_UDP, p.local_port, h->to);
	struct dgram *d;
	__u32 slot;

	if (service < 0)
		return; /* on its way to another namespace */
	a->skb = 0;
	__builtin_memcpy(p.addr, h->from, sizeof(p.addr));
	slot = slot_of_peer(&p) & (SLOTS - 1);
	d = &dgrams[slot];
	if (state_of(&d->now) != IDLE) {
		int same = same_peer(&d->peer, &p);

		if (a->stack - d->now.stack < SECOND) {
			if (same) {
				count(service, pipelined);
				if (d->now.state == ARRIVED)
					return;
			} else {
				count(d->now.service & (SERVICES - 1), lost);
			}
		} else {
			count(d->now.service & (SERVICES - 1), unpaired);
		}
	}
	d->now.state = IDLE;
	d->peer = p;
	begin(&d->now, a, service, 0);
	cpu->dgram = slot + 1;
	count(service, seen);
}

/* Linux 6.3: the datagram that this processor has in the stack is in the socket. */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(wait_sk_data_ready, struct sock *sk)
{
	struct cpu *cpu;
	struct dgram *d;

	if (sk->sk_protocol != PROTO_UDP || !is_service(PROTO_UDP, sk->__sk_common.skc_num))
		return 0;
	cpu = this_cpu();
	if (!cpu || !cpu->dgram)
		return 0;
	d = &dgrams[(cpu->dgram - 1) & (SLOTS - 1)];
	cpu->dgram = 0;
	if (state_of(&d->now) == ARRIVED && d->peer.local_port == sk->__sk_common.skc_num)
		d->now.sock = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void udp_read(const struct peer *p)
{
	struct dgram *d = dgram_of(p);

	if (!d || state_of(&d->now) != ARRIVED)
		return;
	d->now.read = bpf_ktime_get_ns();
	d->now.state = READ;
	tell_ran(&d->now, SOCKET_TO_APP, d->now.sock ? d->now.sock : d->now.stack, d->now.read);
	read_by(d->now.service, &d->reader);
}

/* recvmsg has copied a datagram and tells the application its sender. */
SEC("cgroup/recvmsg4")
int wait_recvmsg4(struct bpf_sock_addr *ctx)
{
	struct peer p = {.addr = {0, 0, V4_MAPPED, ctx->user_ip4}, .remote_port = ctx->user_port};

	if (ctx->protocol != PROTO_UDP || !ctx->sk)
		return 1;
	p.local_port = ctx->sk->src_port;
	if (is_service(PROTO_UDP, p.local_port))
		udp_read(&p);
	return 1;
}

SEC("cgroup/recvmsg6")
int wait_recvmsg6(struct bpf_sock_addr *ctx)
{
	struct peer p = {.addr = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]},
			 .remote_port = ctx->user_port};

	if (ctx->protocol != PROTO_UDP || !ctx->sk)
		return 1;
	p.local_port = ctx->sk->src_port;
	if (is_service(PROTO_UDP, p.local_port))
		udp_read(&p);
	return 1;
}

/* Linux 6.3: the end of recvmsg. For connected sockets, which do not ask for the sender. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(wait_sock_recv_length, struct sock *sk, int ret)
{
	struct peer p = {.addr = {0, 0, V4_MAPPED, sk->__sk_common.skc_daddr}};

	if (ret < 0 || sk->sk_protocol != PROTO_UDP || !is_service(PROTO_UDP, sk->__sk_common.skc_num) ||
	    !sk->__sk_common.skc_dport)
		return 0;
	if (sk->__sk_common.skc_family != 2) /* AF_INET */
		BPF_CORE_READ_INTO(&p.addr, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr32);
	p.remote_port = sk->__sk_common.skc_dport;
	p.local_port = sk->__sk_common.skc_num;
	udp_read(&p);
	return 0;
}
