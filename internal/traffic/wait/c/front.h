/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What was in front of slow requests: the last packets that each processor received and
 * that each queue of a device sent, and the last threads that each processor ran.
 */
#ifndef NICLANE_WAIT_FRONT_H
#define NICLANE_WAIT_FRONT_H

#define PAST	128	/* remembered entries; a power of 2 */
#define COPIED	64	/* at most copied for a slow request */
#define QUEUES	256	/* of devices, by direct mapping; a power of 2 */

/* From the time at until that of the next entry, this had the processor or the queue. */
struct past {
	__u64	at;
	__u32	id;		/* packet: source and destination port; thread: thread group */
	__u16	protocol, queue;	/* packet */
	char	comm[16];	/* thread; "softirq" with id 0 */
};

struct history {
	__u64	dev;		/* address of the device */
	__u32	n;		/* entries ever written */
	__u16	queue;
	__u32	epoch;
	struct past past[PAST];
};

/* What user space gets. */
struct sample {
	__u64	from, to;	/* the wait, or its part in the queue */
	__u32	service, stage;
	__u32	ifindex;
	__u16	queue, cpu;
	__u32	n;
	__u32	tgid;		/* of the service's thread, where it waited for a processor */
	struct past past[COPIED];	/* the newest first */
};

__u64 lost_samples;
__u32 threads;	/* 0: what the processors run is not remembered now; else another number each time */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct history);
} wait_received SEC(".maps"), wait_ran SEC(".maps");

/* No variable: Linux 5.10 refuses a map's value of more than 4 MB (KMALLOC_MAX_SIZE), and all
 * variables together are one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, struct history);
} wait_sent SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} wait_samples SEC(".maps");

static __always_inline struct past *next_past(struct history *h)
{
	return &h->past[h->n++ & (PAST - 1)];
}

/* Forgets what h has from an earlier time. */
static __always_inline struct history *of_epoch(struct history *h, __u32 now)
{
	if (h && h->epoch != now) {
		h->n = 0;
		h->epoch = now;
	}
	return h;
}

static __always_inline int is_slow(__u32 service, enum stage stage, __u64 from, __u64 to)
{
	__u64 limit;

	if (service >= SERVICES || !from || to < from)
		return 0;
	limit = slow[service][stage];
	return limit && to - from > limit;
}

/* Gives user space what h remembers of a wait. */
static __always_inline void tell(struct history *h, __u32 service, enum stage stage, __u64 from, __u64 to,
				 __u32 ifindex, __u16 queue)
{
	struct sample *s = bpf_ringbuf_reserve(&wait_samples, sizeof(*s), 0);
	__u32 i, n = h->n;

	if (!s) {
		__sync_fetch_and_add(&lost_samples, 1);
		return;
	}
	s->from = from;
	s->to = to;
	s->service = service;
	s->stage = stage;
	s->ifindex = ifindex;
	s->queue = queue;
	s->cpu = bpf_get_smp_processor_id();
	s->tgid = bpf_get_current_pid_tgid() >> 32;
	for (i = 0; i < COPIED; i++) {
		struct past *p = &h->past[(n - 1 - i) & (PAST - 1)];

		if (i >= n || !p->at)
			break;
		s->past[i] = *p;
		if (p->at < from) {
			i++;
			break;
		}
	}
	s->n = i;
	bpf_ringbuf_submit(s, 0);
}

static __always_inline void remember_packet(struct history *h, const struct header *p, __u64 now, __u16 queue)
{
	struct past *e = next_past(h);

	e->at = now;
	e->id = (__u32)bpf_ntohs(p->source) << 16 | bpf_ntohs(p->dest);
	e->protocol = p->protocol;
	e->queue = queue;
}

static __always_inline struct history *received(void)
{
	__u32 zero = 0;

	return of_epoch(bpf_map_lookup_elem(&wait_received, &zero), epoch);
}

static __always_inline struct history *ran(void)
{
	__u32 zero = 0;

	return of_epoch(bpf_map_lookup_elem(&wait_ran, &zero), threads);
}

/* What was in front of a packet: other packets; or, if a thread gives it to the stack and had the
 * processor in less than half of the time, what this processor ran. */
static __always_inline struct history *in_front(struct history *packets, __u64 from, __u64 to)
{
	struct history *h = threads ? ran() : 0;
	struct past *last;

	if (!h || !h->n)
		return packets;
	last = &h->past[(h->n - 1) & (PAST - 1)];
	return last->id && last->at > from && last->at - from > to - last->at ? h : packets;
}

/* The history of a device's transmit queue. Another queue at its place loses its own. */
static __always_inline struct history *sent_by(__u64 dev, __u16 queue)
{
	__u32 slot = (slot_of(dev) + queue) & (QUEUES - 1);
	struct history *h = bpf_map_lookup_elem(&wait_sent, &slot);

	if (h && (h->dev != dev || h->queue != queue)) {
		h->n = 0;
		h->dev = dev;
		h->queue = queue;
	}
	return of_epoch(h, epoch);
}

/* A service's thread takes a request, or has answered it: what had its processor? */
static __always_inline void tell_ran(struct request *r, enum stage stage, __u64 from, __u64 to)
{
	struct history *h;

	if (!threads || !is_slow(r->service, stage, from, to))
		return;
	h = ran();
	if (h)
		tell(h, r->service, stage, from, to, 0, 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(wait_sched_switch, int preempt, struct task_struct *prev, struct task_struct *next)
{
	struct history *h = ran();
	struct past *e;

	if (!h)
		return 0;
	e = next_past(h);
	e->at = bpf_ktime_get_ns();
	e->id = next->tgid;
	bpf_probe_read_kernel(e->comm, sizeof(e->comm), next->comm);
	return 0;
}

static __always_inline void softirq(int begins)
{
	struct history *h = threads ? ran() : 0;
	struct past *e;

	if (!h)
		return;
	e = next_past(h);
	e->at = bpf_ktime_get_ns();
	if (begins) {
		e->id = 0;
		__builtin_memcpy(e->comm, "softirq net_rx\0", 16);
	} else {
		e->id = bpf_get_current_pid_tgid() >> 32;
		bpf_get_current_comm(e->comm, sizeof(e->comm));
	}
}

#endif
