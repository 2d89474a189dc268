/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_ingress: steers what arrives, on a card that cannot.
 *
 * An XDP program. It looks the packet's flow up as niclane_egress does, chooses
 * one of the processors of the flow's lane by a hash of the flow, and redirects
 * the packet to that processor's queue in a cpumap, whose kernel thread hands it
 * to the stack. What no lane matches, and what has no queue to go to, passes; no
 * packet is dropped or changed here.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define PACKET		struct xdp_md
#define ARRIVES		1
#define load_far	bpf_xdp_load_bytes
/* A tag that the card has removed is not to be seen here: see niclane's
 * documentation on rxvlan. */
#define outer_tag(ctx, f)	0

#define MAX_LANES	64	/* lane 0 is what no lane matches */
#define MAX_CPUS	64	/* of one lane */

struct target {
	__u32	lane;
};

#include "flow.h"
#include "count.h"

struct lane {
	__u32	count;		/* of CPUs; 0: the lane does not exist */
	__u32	cpus[MAX_CPUS];	/* all filled in, repeating: see Go */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LANES);
	__type(key, __u32);
	__type(value, struct lane);
} nl_lanes SEC(".maps");

/* By CPU; the loader lowers max_entries to the number of possible ones. Sizes
 * rather than types: a cpumap refuses BTF, and only after the 10 ms or so that
 * the kernel takes to free the map again does the loader try without. */
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

/* Set before loading: whether to count, and whether packets may be in several
 * buffers. The verifier removes what is not needed. */
const volatile __u32 nl_count = 1;
const volatile __u32 nl_frags = 0;

SEC("xdp")	/* BPF_F_XDP_HAS_FRAGS, where it helps: see Go */
int niclane_ingress(struct xdp_md *ctx)
{
	__u32 patterns = in_use(), lane, i;
	struct found best = {};
	struct flow f = {};
	struct lane *l;

	if (patterns && read_flow(ctx, &f))
		lookup(&f, patterns, &best);
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
	/* The last argument is what is returned if that CPU has no queue. */
	return bpf_redirect_map(&nl_cpus, l->cpus[i], XDP_PASS);
}

char _license[] SEC("license") = "Dual BSD/GPL";
