/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counts the polls of one device's NAPIs, by kind and result.
 *
 * One program at the tracepoint napi_poll. The kernel runs it after every poll of
 * a NAPI: in softirq, in the NAPI's own thread, or in a thread that busy-polls
 * (net/core/dev.c: net_rx_action, napi_threaded_poll,
 * __napi_busy_loop).
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The required fields of the kernel's structures. CO-RE finds their offsets in the
 * kernel's BTF. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct task_struct;

struct napi_struct {
	unsigned long state;
	struct net_device *dev;
	struct task_struct *thread;
	unsigned int napi_id;
};

#pragma clang attribute pop

/* A bit number of an enum in include/linux/netdevice.h. CO-RE cannot find it, because
 * the enum has no name. The number is the same since Linux 4.11; polls_test.go compares
 * it with the kernel's BTF. */
#define NAPI_STATE_IN_BUSY_POLL	6

struct count {
	__u64	polls;
	__u64	packets;	/* packets that polls reported as their work */
	__u64	empty;		/* polls that found no packets */
	__u64	full;		/* polls that used up their budget */
	__u64	thread;		/* polls by the NAPI's own thread */
	__u64	busy;		/* polls by a thread that busy-polls */
};

volatile const __u32 ifindex;
volatile const __u32 netns;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);		/* NAPI ID */
	__type(value, struct count);
} polls_counts SEC(".maps");

SEC("raw_tracepoint/napi_poll")
int polls_napi(struct bpf_raw_tracepoint_args *ctx)
{
	struct napi_struct *napi = (void *)ctx->args[0];
	int work = (int)ctx->args[1], budget = (int)ctx->args[2];
	struct net_device *dev = BPF_CORE_READ(napi, dev);
	struct count *c;
	__u32 id;

	/* The per-CPU backlogs belong to no device. */
	if (!dev || BPF_CORE_READ(dev, ifindex) != ifindex ||
	    BPF_CORE_READ(dev, nd_net.net, ns.inum) != netns)
		return 0;
	id = BPF_CORE_READ(napi, napi_id);
	c = bpf_map_lookup_elem(&polls_counts, &id);
	if (!c) {
		struct count none = {};

		bpf_map_update_elem(&polls_counts, &id, &none, BPF_NOEXIST);
		c = bpf_map_lookup_elem(&polls_counts, &id);
		if (!c)
			return 0;
	}
	/* The entry is per CPU, and no other poll interrupts this one: a NAPI is polled
	 * by one task at a time, with bottom halves off. */
	c->polls++;
	if (work > 0)
		c->packets += work;
	else
		c->empty++;
	if (work >= budget)
		c->full++;
	if (BPF_CORE_READ(napi, state) & (1UL << NAPI_STATE_IN_BUSY_POLL))
		c->busy++;
	else if (BPF_CORE_READ(napi, thread) == (void *)bpf_get_current_task())
		c->thread++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
