/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_ingress: steers received packets if the card cannot do it.
 *
 * An XDP program. It looks up the packet's flow as niclane_egress does, chooses
 * one CPU of the flow's lane by a hash of the flow, and redirects the packet to
 * that CPU's queue in a cpumap. The cpumap's kernel thread gives it to the stack.
 * A packet passes if it belongs to no lane, or if the CPU has no queue. The
 * program drops and changes no packet.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define PACKET		struct xdp_md
#define ARRIVES		1
#define load_far	bpf_xdp_load_bytes
/* XDP does not see a tag that the card has removed: see niclane's documentation
 * of rxvlan. */
#define outer_tag(ctx, f)	0
#define made_here(ctx)	1

#define MAX_LANES	64	/* lane 0: packets that match no lane */
#define MAX_CPUS	64	/* of one lane */

struct target {
	__u32	lane;
};

#include "flow.h"
#include "count.h"

struct lane {
	__u32	count;		/* number of CPUs; 0: the lane does not exist */
	__u32	cpus[MAX_CPUS];	/* filled by repeating the CPUs: see the Go code */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LANES);
	__type(key, __u32);
	__type(value, struct lane);
} nl_lanes SEC(".maps");

/* By CPU; the loader lowers max_entries to the number of possible CPUs. Key and value
 * have sizes, not types, because a cpumap refuses BTF. With types, the loader would
 * try BTF first, and wait about 10 ms until the kernel has freed that map. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 8192);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_cpumap_val));
} nl_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_LANES);
	__type(key, __u32);
	__type(value, struct counters);
} nl_counters SEC(".maps");

/* Set before loading: whether to count; whether packets may have several buffers.
 * The verifier removes code that is not needed. */
const volatile __u32 nl_count = 1;
const volatile __u32 nl_frags = 0;

SEC("xdp")	/* in native mode also BPF_F_XDP_HAS_FRAGS: see load.go */
int niclane_ingress(struct xdp_md *ctx)
{
	__u32 patterns = in_use(), lane, i;
	struct found best = {};
	struct flow f = {};
	struct lane *l;
	int transport;

	if (patterns && (transport = read_flow(ctx, &f)) >= 0) {
		lookup(&f, patterns, &best);
		if (!best.rank && inner_flow(ctx, transport, &f)) {
			best.addressed = 1;
			lookup(&f, patterns, &best);
		}
	}
	lane = best.target.lane;
	if (nl_count)
		count(&nl_counters, lane, ctx->rx_queue_index, 1,
		      nl_frags ? bpf_xdp_get_buff_len(ctx) : ctx->data_end - ctx->data);
	if (!lane)
		return XDP_PASS;
	l = bpf_map_lookup_elem(&nl_lanes, &lane);
	if (!l || !l->count)
		return XDP_PASS;
	i = choose(flow_hash(&f), l->count);
	if (i >= MAX_CPUS)
		return XDP_PASS;
	/* The last argument is the result if that CPU has no queue. */
	return bpf_redirect_map(&nl_cpus, l->cpus[i], XDP_PASS);
}

char _license[] SEC("license") = "Dual BSD/GPL";
