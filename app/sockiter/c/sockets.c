/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_sockets lists data about TCP sockets that socket diagnostics lack: the
 * NAPI, processor and receive queue of the last packet, the control group, and for
 * listeners the SO_REUSEPORT group and the program that chooses in it.
 *
 * It is a TCP iterator: a read of its file runs the program for every TCP socket of
 * the reader's network namespace. It changes no socket.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define AF_INET6	10
#define TCP_LISTEN	10
#define MAX_PORTS	64

/* Those fields of kernel types that are needed; CO-RE finds their offsets. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct in6_addr {
	union {
		__u8	u6_addr8[16];
	} in6_u;
};
struct sock_common {
	__u32		skc_daddr;
	__u32		skc_rcv_saddr;
	__u16		skc_dport;
	__u16		skc_num;
	__u16		skc_family;
	unsigned char	skc_state;
	struct in6_addr	skc_v6_daddr;
	struct in6_addr	skc_v6_rcv_saddr;
	int		skc_incoming_cpu;
	__u16		skc_rx_queue_mapping;
};
struct inode {
	unsigned long	i_ino;
};
struct file {
	struct inode	*f_inode;
};
struct socket {
	struct file	*file;
};
struct kernfs_node {
	__u64	id;
};
struct cgroup {
	struct kernfs_node	*kn;
};
struct sock_cgroup_data {
	struct cgroup	*cgroup;
};
struct bpf_prog_aux {
	__u32	id;
};
struct bpf_prog {
	struct bpf_prog_aux	*aux;
};
struct sock_reuseport {
	struct bpf_prog	*prog;
};
struct sock {
	struct sock_common	__sk_common;
	struct socket		*sk_socket;
	struct sock_reuseport	*sk_reuseport_cb;
	struct sock_cgroup_data	sk_cgrp_data;
	unsigned int		sk_napi_id;
	__u32			sk_priority;
};
struct inet_sock {
	struct sock	sk;
};
struct inet_connection_sock {
	struct inet_sock	icsk_inet;
};
struct tcp_sock {
	struct inet_connection_sock	inet_conn;
	__u32				segs_in;
	__u32				srtt_us;
};
struct seq_file;
struct bpf_iter_meta {
	struct seq_file	*seq;
};
struct bpf_iter__tcp {
	struct bpf_iter_meta	*meta;
	struct sock_common	*sk_common;
};
#pragma clang attribute pop

const volatile __u16 ports[MAX_PORTS];	/* wanted local ports */
const volatile __u32 nports;		/* 0: all */
const volatile __u32 listeners;		/* 1: listening sockets only, 2: all others */

/* record has the same layout as type record in sockiter.go. */
struct record {
	__u64	cookie;
	__u64	inode;
	__u64	cgroup;
	__u64	group;		/* SO_REUSEPORT group, 0: none */
	__u32	program;	/* ID of the program that chooses in the group */
	__u32	picked;		/* 1: the group has a program */
	__u32	napi;
	__s32	cpu;
	__u32	priority;
	__u16	queue;		/* 0xffff: not known */
	__u16	family;
	__u16	local_port;
	__u16	remote_port;
	__u8	state;
	__u8	pad[3];
	__u32	received;
	__u32	rtt;		/* us; 0: not known */
	__u8	local[16];
	__u8	remote[16];
};

static __always_inline int wanted(__u16 port)
{
	if (!nports)
		return 1;
	for (__u32 i = 0; i < MAX_PORTS && i < nports; i++)
		if (ports[i] == port)
			return 1;
	return 0;
}

SEC("iter/tcp")
int niclane_sockets(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct sock_reuseport *group;
	struct record r = {};
	struct tcp_sock *tp;
	struct bpf_prog *prog;
	struct sock *sk;

	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	sk = &tp->inet_conn.icsk_inet.sk;
	r.state = sk->__sk_common.skc_state;
	r.local_port = sk->__sk_common.skc_num;
	if (listeners && (r.state == TCP_LISTEN) != (listeners == 1))
		return 0;
	if (!wanted(r.local_port))
		return 0;
	r.cookie = bpf_get_socket_cookie(tp);
	r.inode = BPF_CORE_READ(sk, sk_socket, file, f_inode, i_ino);
	r.cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup, kn, id);
	group = BPF_CORE_READ(sk, sk_reuseport_cb);
	if (group) {
		r.group = (__u64)group;
		prog = BPF_CORE_READ(group, prog);
		if (prog) {
			r.picked = 1;
			r.program = BPF_CORE_READ(prog, aux, id);
		}
	}
	if (bpf_core_field_exists(sk->sk_napi_id))
		r.napi = sk->sk_napi_id;
	r.cpu = sk->__sk_common.skc_incoming_cpu;
	r.priority = sk->sk_priority;
	r.received = tp->segs_in;
	r.rtt = tp->srtt_us >> 3; /* tcp_rtt_estimator keeps eight times the value */
	r.queue = 0xffff;
	if (bpf_core_field_exists(sk->__sk_common.skc_rx_queue_mapping))
		r.queue = sk->__sk_common.skc_rx_queue_mapping;
	r.family = sk->__sk_common.skc_family;
	r.remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (r.family == AF_INET6) {
		bpf_core_read(r.local, 16, &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_core_read(r.remote, 16, &sk->__sk_common.skc_v6_daddr);
	} else {
		bpf_core_read(r.local, 4, &sk->__sk_common.skc_rcv_saddr);
		bpf_core_read(r.remote, 4, &sk->__sk_common.skc_daddr);
	}
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
