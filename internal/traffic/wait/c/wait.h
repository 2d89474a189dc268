/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the programs keep: requests, by socket and by packet; histograms; what was in
 * front of slow requests. All times are of CLOCK_MONOTONIC, in nanoseconds; 0 is
 * "unknown".
 */
#ifndef NICLANE_WAIT_H
#define NICLANE_WAIT_H

#include "kernel.h"

#define SERVICES	64	/* most services */
#define SLOTS		16384	/* packets on their way, by direct mapping; a power of 2 */

/* The histogram's buckets; live/waits/histogram.go describes them. */
#define SUB_BITS	7
#define HALF		(1 << (SUB_BITS - 1))
#define MAX_BITS	36
#define BUCKETS		((MAX_BITS - SUB_BITS) * HALF + 2 * HALF)

/* Stages, in the order of waits.Stage. */
enum stage { CARD_TO_STACK, STACK_TO_SOCKET, SOCKET_TO_APP, APP, SOCKET_TO_CARD, CARD, HOST, STAGES };

/* A request, and where it is. */
struct request {
	__u64	card, stack, sock, read, write;
	__u64	queue;		/* the answer is in the qdisc */
	__u32	answer;		/* TCP: the answer's first sequence number */
	__u32	epoch;
	__u8	service;
	__u8	state;
	__u16	cpu;		/* on which the stack had the packet */
	__u8	stamped;	/* card is the card's own timestamp */
};

enum state { IDLE, ARRIVED, READ, WRITTEN };

/* Of a TCP socket of a service. */
struct conn {
	struct request	now;	/* the present request */
	struct request	next;	/* state ARRIVED: its data came before the answer to the present one */
	__u32		reader;		/* thread group that took the last request */
	__u32		epoch;		/* when the socket became known */
	__u8		service;
};

/* Counters of a service, for each processor. */
struct counts {
	__u64	seen, requests, stamped, pipelined, unpaired, retransmits, drops, lost;
};

/* A packet of a service on its way from the card to its socket. */
struct arrival {
	__u64	skb, card, stack;
	__u32	seq;
	__u32	epoch;
	__u16	cpu;
	__u8	stamped;
};

/* An answer on its way to the card. */
struct departure {
	__u64		skb;
	struct request	req;
	__u64		xmit;	/* 0: not handed to the driver yet */
};

struct peer {
	__u32	addr[4];	/* IPv4 as ::ffff:0:0/96 */
	__be16	remote_port;
	__u16	local_port;
};

#define PEER_WORDS (sizeof(struct peer) / sizeof(__u32))

/* The present request of a UDP peer, by direct mapping. */
struct dgram {
	struct peer	peer;
	struct request	now;
	__u32		reader;
};

struct reader {
	__u32	service, tgid;
};

struct service_key {
	__u32	prefixlen;	/* in bits, of what follows */
	__u32	netns;
	__u16	protocol, port;
	__u32	addr[4];
};

#define KEY_BITS	64	/* of service_key before addr */

/* Of a processor. */
struct cpu {
	__u64	raised;		/* the NET_RX softirq is pending or runs, and was first raised then */
	__u64	again;		/* it was raised while it ran */
	__u32	runs;
	__u64	packet;		/* the last packet of this poll reached the stack */
	__u64	thread;		/* the cpumap's thread here, as bpf_get_current_pid_tgid */
	__u64	key;		/* of its queue */
	__u64	taken;		/* what it took last was in the queue since then */
	struct {
		__u32	napi, jumps;
		__s64	last;	/* the card's timestamp of its last packet */
	} stamps[16];
	__u32	epoch;
	__u32	dgram;		/* index of the datagram that is in the stack, plus 1 */
};

/* Where received packets wait for a poll: the ring of a NAPI, or a cpumap's queue. An interrupt and
 * the thread that polls can have different processors, so all processors share these. */
struct ring {
	__u64	key;
	__u64	raised;	/* a poll was asked for then, and has not left the ring empty since */
	__u64	empty;	/* when a poll last left the ring empty */
	__u32	epoch;
	__s32	packets; /* in a cpumap's queue, as far as known */
} __attribute__((aligned(64)));

#define RINGS		1024	/* by direct mapping; a power of 2 */

/* Set by user space, at any time. */
__u8 ports[2][65536];		/* 1: local port of a service; TCP, UDP */
/* The programs are attached for a part of the time. What they remember from an earlier epoch
 * is void, because they have not seen what happened since. */
__u32 epoch = 1;
__u32 accepting;		/* requests that arrive are followed; 0: only those that have arrived */
__s64 real_offset;		/* CLOCK_REALTIME - CLOCK_MONOTONIC */
__u64 slow[SERVICES][STAGES];	/* a longer wait is a slow one; 0: none is */
__u64 slow_arrival = ~0ULL;	/* the least of CARD_TO_STACK */

/* Set before loading. */
volatile const __u32 device;	/* ifindex: only requests by this device; 0: all */
volatile const __u32 device_netns;
volatile const __u32 shards;	/* of the histograms; a power of 2 */
volatile const __u32 by_address;	/* 1: wait_conns is a hash */
volatile const __u32 taken_first;	/* 1: xdp_cpumap_kthread comes before the packets are in the stack */

struct arrival arrivals[SLOTS];
struct departure departures[SLOTS];
struct dgram dgrams[SLOTS];
struct ring rings[RINGS];

/* Before Linux 5.11, tracing programs have no storage of sockets. User space then replaces it by an
 * LRU hash by the socket's address. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct conn);
} wait_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct service_key);
	__type(value, __u32);
} wait_services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVICES);
	__type(key, __u32);
	__type(value, struct counts);
} wait_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} wait_cpus SEC(".maps");

/* The processes that took requests. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct reader);
	__type(value, __u8);
} wait_readers SEC(".maps");

/* Index: (service * STAGES + stage) * shards + shard. User space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[BUCKETS]);
} wait_times SEC(".maps");

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;
	struct cpu *cpu = bpf_map_lookup_elem(&wait_cpus, &zero);

	if (cpu && cpu->epoch != epoch) {
		cpu->raised = cpu->again = cpu->packet = cpu->thread = 0;
		cpu->runs = 0;
		cpu->dgram = 0;
		cpu->epoch = epoch;
	}
	return cpu;
}

static __always_inline struct counts *counts_of(__u32 service)
{
	return bpf_map_lookup_elem(&wait_counts, &service);
}

#define count(service, what) do {				\
	struct counts *counts__ = counts_of(service);		\
	if (counts__)						\
		counts__->what++;				\
} while (0)

/* A pointer among a program's arguments as a number. The verifier allows no arithmetic on
 * the pointer itself. */
static __always_inline __u64 number(unsigned long long *arg)
{
	__u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), arg);
	return v;
}

static __always_inline __u32 slot_of(__u64 skb)
{
	return (skb * 0x9E3779B97F4A7C15ULL) >> 50;	/* 14 bits: SLOTS */
}

static __always_inline struct arrival *arrival_of(__u64 skb)
{
	return &arrivals[slot_of(skb) & (SLOTS - 1)];
}

static __always_inline __u32 slot_of_peer(const struct peer *p)
{
	const __u32 *w = (const void *)p;
	__u64 h = 0;
	__u32 i;

#pragma unroll
	for (i = 0; i < PEER_WORDS; i++)
		h = (h ^ w[i]) * 0x9E3779B97F4A7C15ULL;
	return h >> 50;
}

static __always_inline int same_peer(const struct peer *a, const struct peer *b)
{
	return a->addr[0] == b->addr[0] && a->addr[1] == b->addr[1] && a->addr[2] == b->addr[2] &&
	       a->addr[3] == b->addr[3] && a->remote_port == b->remote_port && a->local_port == b->local_port;
}

static __always_inline struct departure *departure_of(__u64 skb)
{
	return &departures[slot_of(skb) & (SLOTS - 1)];
}

/* The running process takes a request of a service. */
static __always_inline void read_by(__u32 service, __u32 *last)
{
	struct reader r = {service, bpf_get_current_pid_tgid() >> 32};
	__u8 one = 1;

	if (*last == r.tgid)
		return;
	*last = r.tgid;
	bpf_map_update_elem(&wait_readers, &r, &one, BPF_ANY);
}

static __always_inline __u32 bits_of(__u64 v)
{
	__u32 n = 0;

	if (v >> 32) { n += 32; v >>= 32; }
	if (v >> 16) { n += 16; v >>= 16; }
	if (v >> 8) { n += 8; v >>= 8; }
	if (v >> 4) { n += 4; v >>= 4; }
	if (v >> 2) { n += 2; v >>= 2; }
	if (v >> 1) { n += 1; v >>= 1; }
	return n + v;
}

static __always_inline __u32 bucket_of(__u64 v)
{
	__u32 n;

	if (v >> MAX_BITS)
		return BUCKETS - 1;
	n = bits_of(v);
	n = n > SUB_BITS ? n - SUB_BITS : 0;
	return n * HALF + (__u32)(v >> n);
}

/* Counts a wait from one time to another; nothing, if one is unknown. */
static __always_inline void record(__u32 service, enum stage stage, __u64 from, __u64 to)
{
	__u32 index = (service * STAGES + stage) * shards + (bpf_get_smp_processor_id() & (shards - 1));
	__u64 *times, wait = to - from;
	__u32 b;

	if (!from || !to)
		return;
	if ((__s64)wait < 0)	/* clocks of two processors */
		wait = 0;
	times = bpf_map_lookup_elem(&wait_times, &index);
	if (!times)
		return;
	b = bucket_of(wait);
	barrier_var(b); /* the compiler knows that b is in range, the verifier does not */
	if (b < BUCKETS)
		__sync_fetch_and_add(&times[b], 1);
}

/* The state of a request; IDLE if it is void. */
static __always_inline enum state state_of(const struct request *r)
{
	return r->epoch == epoch ? r->state : IDLE;
}

static __always_inline void begin(struct request *r, const struct arrival *a, __u8 service, __u64 sock)
{
	r->card = a->card;
	r->stack = a->stack;
	r->sock = sock;
	r->read = r->write = r->queue = 0;
	r->cpu = a->cpu;
	r->stamped = a->stamped;
	r->service = service;
	r->epoch = epoch;
	r->state = ARRIVED;
}

/* The headers of a packet that the programs use. */
struct header {
	__u8	v6, protocol;
	__be16	source, dest;
	__u32	seq;		/* TCP */
	__u32	from[4], to[4];	/* in network byte order; IPv4 as ::ffff:0:0/96 */
};

#define V4_MAPPED	bpf_htonl(0xffff)

/* Fills in h from the bytes at an IP header. Returns 0 if that is no TCP or UDP, or a later
 * fragment, or has options or extension headers. */
static __always_inline int parse(struct header *h, const void *at)
{
	/* Behind a packet's data is at least its skb_shared_info, so this is the kernel's memory. */
	union {
		__u8	b[64];
		__be16	h[32];
		__u32	w[16];
	} p;
	__u32 l4;

	if (bpf_probe_read_kernel(&p, sizeof(p), at))
		return 0;
	if (p.b[0] >> 4 == 4) {
		l4 = (p.b[0] & 15) * 4;
		h->v6 = 0;
		h->protocol = p.b[9];
		if (l4 != 20 || p.h[3] & bpf_htons(0x1fff))
			return 0;
		h->from[0] = h->from[1] = h->to[0] = h->to[1] = 0;
		h->from[2] = h->to[2] = V4_MAPPED;
		h->from[3] = p.w[3];
		h->to[3] = p.w[4];
		h->source = p.h[10];
		h->dest = p.h[11];
		h->seq = bpf_ntohl(p.w[6]);
	} else {
		if (p.b[0] >> 4 != 6)
			return 0;
		h->v6 = 1;
		h->protocol = p.b[6];
		__builtin_memcpy(h->from, &p.w[2], 16);
		__builtin_memcpy(h->to, &p.w[6], 16);
		h->source = p.h[20];
		h->dest = p.h[21];
		h->seq = bpf_ntohl(p.w[11]);
	}
	return h->protocol == PROTO_TCP || h->protocol == PROTO_UDP;
}

static __always_inline int is_service(__u8 protocol, __u32 port)
{
	barrier_var(port);	/* the verifier before 6.13 does not know the range of a swapped value */
	port &= 0xffff;
	return ports[protocol == PROTO_UDP][port];
}

static __always_inline int on_device(struct net_device *dev)
{
	return !device || (dev->ifindex == device && BPF_CORE_READ(dev, nd_net.net, ns.inum) == device_netns);
}

/* The service with this local address and port; less than 0: none. */
static __always_inline int service_of(__u32 netns, __u16 protocol, __u16 port, const __u32 addr[4])
{
	struct service_key key = {.prefixlen = KEY_BITS + 128, .netns = netns, .protocol = protocol, .port = port};
	__u32 *service;

	__builtin_memcpy(key.addr, addr, 16);
	service = bpf_map_lookup_elem(&wait_services, &key);
	return service && *service < SERVICES ? (int)*service : -1;
}

#endif
