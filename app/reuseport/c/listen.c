/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * niclane_listen: picks the listener of a SO_REUSEPORT group for a connection by
 * the receive queue and processor of the connection's first packet.
 *
 * An array (BPF_MAP_TYPE_REUSEPORT_SOCKARRAY) has the listeners, because their
 * positions in the group shift when one closes. A socket leaves the array when it
 * stops listening. In these cases, the kernel's hash chooses in the whole group:
 * packets of other devices (all local packets come from one processor), queues
 * and processors without a table, and closed listeners.
 *
 * The program never refuses a connection.
 *
 * Its type is SELECT_OR_MIGRATE: if a listener closes, its waiting connections are
 * not reset but move to another listener, by the kernel's hash (Linux 5.14).
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define MAX_SOCKETS	1024
#define MAX_PLACES	65536
#define TRIES		4

/* Those fields of kernel types that are needed; CO-RE finds their offsets. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net_device {
	int	ifindex;
};
struct sk_buff {
	struct net_device	*dev;
	__u16			queue_mapping;
};
struct sk_reuseport_kern {
	struct sk_buff	*skb;
};
#pragma clang attribute pop

struct table {
	__u32	first;	/* index into niclane_places */
	__u32	count;	/* entries; 0: no table */
	__s32	cpu;	/* processor on which the queue's packets are expected */
};

struct queue {
	__u32	ifindex;
	__u32	queue;
};

enum { BY_QUEUE, BY_CPU, BY_HASH, COUNTS };

struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, MAX_SOCKETS);
	__type(key, __u32);
	__type(value, __u64);
} niclane_socks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PLACES);
	__type(key, __u32);
	__type(value, __u32);	/* slot in niclane_socks */
} niclane_places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct queue);
	__type(value, struct table);
} niclane_queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct table);
} niclane_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);	/* ifindex */
	__type(value, __u32);
} niclane_devs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} niclane_picks SEC(".maps");

static __always_inline void count(__u32 how)
{
	__u64 *n = bpf_map_lookup_elem(&niclane_picks, &how);

	if (n)
		*n += 1;
}

/* pick selects the listener at the hash in the table, or a next one that still listens. */
static __always_inline int pick(struct sk_reuseport_md *md, const struct table *t)
{
	__u32 place, *slot, tried;

	if (!t->count)
		return 0;
	for (tried = 0; tried < TRIES && tried < t->count; tried++) {
		place = t->first + (md->hash + tried) % t->count;
		slot = bpf_map_lookup_elem(&niclane_places, &place);
		if (slot && !bpf_sk_select_reuseport(md, &niclane_socks, slot, 0))
			return 1;
	}
	return 0;
}

SEC("sk_reuseport/migrate")
int niclane_listen(struct sk_reuseport_md *md)
{
	struct sk_reuseport_kern *kern = (void *)md;
	__u32 cpu = bpf_get_smp_processor_id();
	struct sk_buff *skb = 0;
	struct net_device *dev = 0;
	struct queue q = {};
	struct table *t;
	__u16 mapping = 0;

	bpf_core_read(&skb, sizeof(skb), &kern->skb);
	if (!skb)
		goto hash;
	bpf_core_read(&dev, sizeof(dev), &skb->dev);
	if (!dev)
		goto hash;
	bpf_core_read(&q.ifindex, sizeof(q.ifindex), &dev->ifindex);
	if (!bpf_map_lookup_elem(&niclane_devs, &q.ifindex))
		goto hash;
	/* queue_mapping is the receive queue plus one, or 0 if not recorded (skb_get_rx_queue). */
	bpf_core_read(&mapping, sizeof(mapping), &skb->queue_mapping);
	if (mapping) {
		q.queue = mapping - 1;
		t = bpf_map_lookup_elem(&niclane_queues, &q);
		if (t && t->cpu == cpu && pick(md, t)) {
			count(BY_QUEUE);
			return SK_PASS;
		}
	}
	t = bpf_map_lookup_elem(&niclane_cpus, &cpu);
	if (t && pick(md, t)) {
		count(BY_CPU);
		return SK_PASS;
	}
hash:
	count(BY_HASH);
	return SK_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
