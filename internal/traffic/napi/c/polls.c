/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How often the NAPIs of one device are polled, and what for.
 *
 * One program at the tracepoint napi_poll, which the kernel passes after every
 * poll of a NAPI: in softirq, in the NAPI's own thread, or by a thread that
 * waits for its packets (net/core/dev.c: net_rx_action, napi_threaded_poll,
 * __napi_busy_loop).
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* Of the kernel's structures, the fields that are read; where they are, the
 * kernel's BTF says (CO-RE). */
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

/* include/linux/netdevice.h, whose enum has no name for CO-RE to find it by; in
 * this place since Linux 4.11, which polls_test.go holds against the kernel's
 * BTF. */
#define NAPI_STATE_IN_BUSY_POLL	6

struct count {
	__u64	polls;
	__u64	packets;	/* the work that polls reported */
	__u64	empty;		/* polls that found nothing */
	__u64	full;		/* that used up their budget */
	__u64	thread;		/* by the NAPI's own thread */
	__u64	busy;		/* by a thread that waited for packets */
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

	/* The backlogs of processors belong to no device. */
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
	/* Per processor, and nothing of the kind interrupts this: a NAPI is
	 * polled by one at a time, with bottom halves off. */
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
