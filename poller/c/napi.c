/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counts the polls and packets of one poller's NAPIs at the tracepoint napi_poll.
 * The tracepoint fires after every poll of every NAPI of the host: by the poller's
 * busy loop, by softirq, or by a NAPI's own thread. The poller reads the counters
 * in memory that it shares with this program. When the poller sleeps, the program
 * wakes it at the next packet.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define MAX_NAPIS	64

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct napi_struct {
	unsigned int napi_id;
};

#pragma clang attribute pop

struct napi {
	__u32 id;
	__u32 pad;
	/* polls and packets by the poller's thread; other_...: by all others */
	__u64 polls, packets;
	__u64 other_polls, other_packets;
};

struct shared {
	__u64 pidns_dev, pidns_ino;	/* the PID namespace of the thread */
	__u32 thread;			/* the polling thread */
	__u32 asleep;
	__u32 napis;
	__u32 pad;
	struct napi napi[MAX_NAPIS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shared);
} shared SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} alarm SEC(".maps");

static __always_inline bool is_poller(struct shared *s)
{
	struct bpf_pidns_info me;

	return !bpf_get_ns_current_pid_tgid(s->pidns_dev, s->pidns_ino, &me, sizeof(me)) &&
	       me.pid == s->thread;
}

SEC("tp_btf/napi_poll")
int BPF_PROG(napi_polled, struct napi_struct *napi, int work, int budget)
{
	__u32 zero = 0, id = napi->napi_id;
	struct shared *s = bpf_map_lookup_elem(&shared, &zero);
	struct napi *n = NULL;

	if (!s)
		return 0;
	for (__u32 i = 0; i < MAX_NAPIS; i++) {
		if (i >= s->napis)
			return 0;
		if (s->napi[i].id == id) {
			n = &s->napi[i];
			break;
		}
	}
	if (!n)
		return 0;
	/* Add atomically: when one processor still writes the counters of
	 * a poll, another may already begin the NAPI's next poll. */
	if (!s->asleep && is_poller(s)) {
		__sync_fetch_and_add(&n->polls, 1);
		__sync_fetch_and_add(&n->packets, work);
		return 0;
	}
	__sync_fetch_and_add(&n->other_polls, 1);
	__sync_fetch_and_add(&n->other_packets, work);
	if (work > 0 && s->asleep && __sync_lock_test_and_set(&s->asleep, 0))
		bpf_ringbuf_output(&alarm, &id, sizeof(id), BPF_RB_FORCE_WAKEUP);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
