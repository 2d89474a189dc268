/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_queued: sets the priority of existing TCP sockets once.
 *
 * It is a TCP iterator: when a process reads the iterator's file, the kernel runs
 * it for each TCP socket of the process's network namespace, and locks the socket.
 * It also finds connections that wait for accept(), for which no process has a
 * descriptor yet. Like niclane_sockops, it uses the socket's own control group.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define SOL_SOCKET	1
#define SO_PRIORITY	12
#define MAX_FROM	8
#define MAX_DEPTH	64

/* The required fields of the kernel's types; CO-RE finds their offsets. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kernfs_node {
	__u64	id;
};
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup			*cgroup;
	struct cgroup_subsys_state	*parent;
};
struct cgroup {
	struct cgroup_subsys_state	self;
	struct kernfs_node		*kn;
};
struct sock_cgroup_data {
	struct cgroup	*cgroup;
};
struct sock_common;
struct sock {
	__u32			sk_priority;
	struct sock_cgroup_data	sk_cgrp_data;
};
struct inet_sock {
	struct sock	sk;
};
struct inet_connection_sock {
	struct inet_sock	icsk_inet;
};
struct tcp_sock {
	struct inet_connection_sock	inet_conn;
};
struct bpf_iter__tcp {
	struct sock_common	*sk_common;
};
#pragma clang attribute pop

const volatile __u32 from[MAX_FROM];	/* the priorities to replace */
const volatile __u32 froms;
const volatile __u32 to;

/* By group ID: 1 = treat, 0 = leave alone. A missing group: as its parent. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} groups SEC(".maps");

static __always_inline int is_from(__u32 priority)
{
	for (__u32 i = 0; i < MAX_FROM && i < froms; i++)
		if (from[i] == priority)
			return 1;
	return 0;
}

static __always_inline int treated(struct cgroup *cg)
{
	struct cgroup_subsys_state *css;
	__u32 *is;
	__u64 id;

	for (int i = 0; i < MAX_DEPTH && cg; i++) {
		id = cg->kn->id;
		is = bpf_map_lookup_elem(&groups, &id);
		if (is)
			return *is;
		css = cg->self.parent;
		if (!css)
			return 0;
		cg = css->cgroup;
	}
	return 0;
}

SEC("iter/tcp")
int niclane_queued(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct tcp_sock *tp;
	struct sock *sk;
	int priority = to;

	if (!skc)
		return 0;
	tp = bpf_skc_to_tcp_sock(skc);
	if (!tp)
		return 0;
	sk = &tp->inet_conn.icsk_inet.sk;
	if (!is_from(sk->sk_priority) || !treated(sk->sk_cgrp_data.cgroup))
		return 0;
	bpf_setsockopt(tp, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority));
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
