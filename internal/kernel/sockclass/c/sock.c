/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_sock and niclane_sockops: give sockets of a control group a priority
 * that names an HTB class, unless they have another priority already.
 *
 * niclane_sock runs when a socket is created. That is enough for UDP, and for
 * packets of a TCP socket before it is connected. An accepted socket starts
 * with priority 0, not the listener's (sk_clone). Therefore niclane_sockops
 * sets the priority when the connection is made.
 *
 * Both return 1 (allow): other programs of this group and of the groups above
 * still run. Neither writes sk_ops->reply, which all programs share.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define SOL_SOCKET	1
#define SO_PRIORITY	12

enum {
	MADE,		/* a writer is giving existing sockets the priority */
	SETTLED,
	REMOVED,	/* the programs do nothing */
};

struct class {
	__u64	netns;		/* cookie; the programs ignore sockets of other namespaces */
	__u32	priority;
	__u32	previous;	/* the old priority while a writer changes it, else 0 */
	__u32	state;
	__u32	pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_RDONLY_PROG);
	__type(key, __u32);
	__type(value, struct class);
} niclane_class SEC(".maps");

static __always_inline const struct class *class_of(__u64 netns)
{
	__u32 zero = 0;
	const struct class *c = bpf_map_lookup_elem(&niclane_class, &zero);

	if (!c || c->state == REMOVED || c->netns != netns)
		return 0;
	return c;
}

static __always_inline int unset(const struct class *c, __u32 priority)
{
	return !priority || priority == c->previous;
}

SEC("cgroup/sock_create")
int niclane_sock(struct bpf_sock *sk)
{
	const struct class *c = class_of(bpf_get_netns_cookie(sk));

	/* An earlier program, or one of a group below, may have set a priority. */
	if (c && unset(c, sk->priority))
		sk->priority = c->priority;
	return 1;
}

SEC("sockops")
int niclane_sockops(struct bpf_sock_ops *ops)
{
	const struct class *c;
	struct bpf_sock *sk;
	int priority;

	switch (ops->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		break;
	default:
		return 1;
	}
	sk = ops->sk;
	if (!sk)
		return 1;
	c = class_of(bpf_get_netns_cookie(ops));
	if (!c || !unset(c, sk->priority))
		return 1;
	priority = c->priority;
	bpf_setsockopt(ops, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority));
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
