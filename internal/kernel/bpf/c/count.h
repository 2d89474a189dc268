/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counters by row and queue, in per-CPU maps with one entry for each row.
 */
#ifndef NICLANE_COUNT_H
#define NICLANE_COUNT_H

#define MAX_QUEUES	64	/* number of counters; the last one also counts all higher queues */
#define NO_QUEUE	(-1U)	/* the queue is not known: the last counter counts it */

struct counter {
	__u64	packets;
	__u64	bytes;
};

struct counters {
	struct counter	queue[MAX_QUEUES];
};

static __always_inline void count(void *map, __u32 row, __u32 queue, __u64 packets, __u64 bytes)
{
	struct counters *c = bpf_map_lookup_elem(map, &row);

	if (!c)
		return;
	if (queue >= MAX_QUEUES)
		queue = MAX_QUEUES - 1;
	/* Hide the bound from the compiler: it would drop the mask, which the verifier needs. */
	asm volatile("" : "+r"(queue));
	queue &= MAX_QUEUES - 1;
	c->queue[queue].packets += packets;
	c->queue[queue].bytes += bytes;
}

#endif
