/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Shares the link by departure times: without a queue for the whole link, and without a lock.
 *
 * Each packet takes its time on the wire from clocks. A clock is the time at which all that was
 * taken from it is through. fq, the qdisc of each transmit queue, holds a packet until skb->tstamp.
 *
 * A rank has a clock at the link's rate. Packets of a rank move it and those of all later ranks:
 * a rank waits for what goes before it and for itself, and for nothing else. A guarantee is a
 * clock at its own rate. A packet leaves at the earlier of the two times. If it leaves by the
 * guarantee, it moves the clocks of all ranks. A ceiling is a clock too, but a packet waits for it
 * in any case. So guarantees hold at any rank, and all lanes can use the rate that others leave.
 *
 * A lane that sends little does not wait behind one of its rank that sends much. It has a part: its
 * guarantee, and an equal part of what no lane is guaranteed. A part has a clock that earlier ranks move
 * too. A packet that leaves by its part waits for earlier ranks only. If a lane has members, which are
 * flows or addresses, each has a clock for an equal part of the lane's part.
 *
 * The packets of a rank leave one after another. A packet that leaves earlier than its place among them
 * meets another one in the card, whose queues take that up. Two rules make this the exception. On a full
 * link, each packet moves the clocks of its part and its guarantee, whatever it leaves by, so a lane that
 * sends more than these leaves by rank. And a member's packet leaves earlier only if that at least halves
 * its wait.
 *
 * A time cannot be changed once it is given. Packets that wait already, and packets of a lane that
 * begins to send, therefore leave together for as long as the former wait: at most the horizon. The
 * card's queues take that up. It arbitrates among them, so that a lane does not wait behind others.
 */
#ifndef NICLANE_DEPART_H
#define NICLANE_DEPART_H

#define RANKS		8	/* 1 goes first */
#define COST_SHIFT	20
#define TABLES		16
#define FLOWS		256	/* in a table */
#define EPOCH_SHIFT	27	/* 134 ms */
#define PART_LAG	100000ULL	/* what a lane below its part may send at once, ns */
#define PART_IDLE	100000000ULL	/* see through(), ns */
#define FAR		10000000000ULL	/* fq's own horizon, ns */
#define WIRE		24	/* bytes of a frame that only the wire has: preamble, FCS and gap (IEEE 802.3) */

/* The link. A map of one entry. */
struct link {
	__u64	rate;		/* bit/s; 0: no packet waits */
	__u64	cost;		/* time of a byte, in 2^-COST_SHIFT ns */
	__u64	horizon;	/* a packet that would wait longer is dropped, ns */
	__u64	mark;		/* a packet that waits longer is marked (ECN), ns */
	__u64	ranks;		/* in use, one bit each */
};

struct rate {
	__u64	rate;		/* bit/s; 0: none */
	__u64	cost;		/* as in struct link */
	__u64	lag;		/* how far the clock may be behind: the burst, ns */
	__u64	burst;		/* bytes, for those who read the map: a ns can be several */
};

struct share {
	struct rate	guarantee;
	struct rate	ceiling;
	struct rate	part;		/* of the lane, or of all its members together */
	struct rate	flow;		/* what each flow always has */
	__u32		rank;		/* 1 goes first; 0: there is no share */
	__u32		lanes;		/* of this rank */
	__u16		table;		/* of flows and members, plus one; 0: none */
	__u16		by_address;	/* members are addresses, not flows */
	__u32		pad;
};

/* Clocks are written by all processors: each has a cache line. */
struct rank {
	__u64	clock;
	__u64	taken;		/* bytes of its packets that left by rank or part */
	__u64	pad[6];
};

/* A part is behind the ranks before it: earlier is what they had taken, together, when the clock was
 * set. */
struct part {
	__u64	clock;
	__u64	earlier;
};

struct clocks {
	__u64		guarantee;
	__u64		ceiling;
	struct part	part;
	__u64		last;	/* as in struct flow_clock, for a lane without members */
	__u64		pad[3];
};

/* Flows, and members, with the same hash are one. Processors do not exclude each other. */
struct flow_clock {
	__u64	clock;
	__u64	last;		/* latest time that a packet got: packets keep their order */
};

struct member {
	struct part	part;
	__u32		epoch;
	__u32		used;	/* time on the wire in this epoch, ns */
	__u32		before;	/* and in the one before */
	__u32		pad;
};

/* How many members send. */
struct active {
	__u32	epoch;
	__u32	now;		/* in this epoch */
	__u32	before;		/* in the one before */
	__u32	pad[13];
};

struct departed {
	__u64	waited;		/* packets that left later than they came */
	__u64	ns;		/* for how long, together */
	__u64	marked;
	__u64	dropped;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct link);
} nl_link SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ROWS);
	__type(key, __u32);
	__type(value, struct share);
} nl_shares SEC(".maps");

/* Mappable, because the kernel then begins the values at a page. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, RANKS + 1);
	__type(key, __u32);
	__type(value, struct rank);
} nl_ranks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_ROWS);
	__type(key, __u32);
	__type(value, struct clocks);
} nl_clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLES * FLOWS);
	__type(key, __u32);
	__type(value, struct flow_clock);
} nl_flow_clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLES * FLOWS);
	__type(key, __u32);
	__type(value, struct member);
} nl_members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLES);
	__type(key, __u32);
	__type(value, struct active);
} nl_active SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_ROWS);
	__type(key, __u32);
	__type(value, struct departed);
} nl_departed SEC(".maps");

/* 1 if the kernel has bpf_skb_set_tstamp (Linux 5.18). The loader sets it. */
const volatile __u32 nl_typed_times = 0;

/* Gives a packet its time, of CLOCK_MONOTONIC. fq of Linux 7.2 warns if a time does not say so
 * (fq_skb_tstamp_to_mono). The helper takes IP packets only. */
static __always_inline void set_time(struct __sk_buff *skb, __u64 at)
{
	if (!nl_typed_times || bpf_skb_set_tstamp(skb, at, BPF_SKB_TSTAMP_DELIVERY_MONO))
		skb->tstamp = at;
}

static __always_inline __u64 later(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

static __always_inline __u64 earlier(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* Returns the time ns before now. Soon after boot, now is less. */
static __always_inline __u64 ago(__u64 now, __u64 ns)
{
	return now > ns ? now - ns : 0;
}

/* Takes time from a clock, and returns when it begins. A clock that is more than lag behind starts
 * again. If several processors find it so, one of them sets it, and the others take after that. */
static __always_inline __u64 take(__u64 *clock, __u64 now, __u64 lag, __u64 cost)
{
	__u64 at = *(volatile __u64 *)clock, from = ago(now, lag);

	if (at < from && __sync_val_compare_and_swap(clock, at, from + cost) == at)
		return from;
	return later(__sync_fetch_and_add(clock, cost), from);
}

/* Moves a clock for a packet that leaves by another clock, at a given time. The clock stays near that
 * time. So it can be used again soon after. Without an atomic operation: if two processors do this at
 * once, one packet may not count. */
static __always_inline void charge(__u64 *clock, __u64 from, __u64 at, __u64 cost)
{
	*clock = earlier(later(*clock, from), at) + cost;
}

static __always_inline __u64 cost_of(__u64 len, __u64 cost)
{
	return len * cost >> COST_SHIFT;
}

/* The part of a limit that a member may use. The more of the link it had in the last two epochs, the
 * less: a full link drops packets of the member that has most. At least a quarter. */
static __always_inline __u64 limit_of(const struct member *member, __u64 limit, __u32 epoch)
{
	__u64 used = 0;

	if (!member)
		return limit;
	if (member->epoch == epoch)
		used = (__u64)member->used + member->before;
	else if (member->epoch + 1 == epoch)
		used = member->used;
	if (used > 2ULL << EPOCH_SHIFT)
		used = 2ULL << EPOCH_SHIFT;
	return limit - ((limit - limit / 4) * used >> (EPOCH_SHIFT + 1));
}

/* Counts what a member uses, and members. */
static __always_inline void note_use(struct member *member, struct active *active, __u32 epoch, __u64 cost)
{
	if (member->epoch != epoch) {
		member->before = member->epoch + 1 == epoch ? member->used : 0;
		member->used = 0;
		member->epoch = epoch;
		if (active->epoch != epoch) {
			active->before = active->epoch + 1 == epoch ? active->now : 0;
			active->now = 0;
			active->epoch = epoch;
		}
		__sync_fetch_and_add(&active->now, 1);
	}
	member->used += cost;
}

/* Among how many members a lane is divided, with this one. */
static __always_inline __u64 members_of(const struct member *member, const struct active *active, __u32 epoch)
{
	__u32 n = 0;

	if (active->epoch == epoch)
		n = active->now > active->before ? active->now : active->before;
	else if (active->epoch + 1 == epoch)
		n = active->now;
	if (member->epoch != epoch && member->epoch + 1 != epoch)
		n++;
	return n ? : 1;
}

static __always_inline __u32 member_hash(const struct share *share, const struct flow *f)
{
	struct flow address = { .family = f->family };

	if (!share->by_address)
		return flow_hash(f);
	__builtin_memcpy(address.local, f->local, sizeof(address.local));
	return flow_hash(&address);
}

/* Returns the last rank in use before the given one, 0 if there is none. Not static, like
 * niclane_extension. */
__noinline __u32 niclane_before(__u64 ranks, __u32 rank)
{
	__u32 i, last = 0;

	for (i = 1; i <= RANKS && i < rank; i++)
		if (ranks >> i & 1)
			last = i;
	return last;
}

/* Returns the bytes that all ranks before the given one have taken. Not static, like niclane_extension. */
__noinline __u64 niclane_taken(__u64 ranks, __u32 rank)
{
	__u64 taken = 0;
	struct rank *r;
	__u32 i;

	for (i = 1; i <= RANKS && i < rank; i++) {
		__u32 key = i;

		r = ranks >> i & 1 ? bpf_map_lookup_elem(&nl_ranks, &key) : NULL;
		if (r)
			taken += r->taken;
	}
	return taken;
}

/* Takes time from the clocks of all ranks in use from first on. Returns when it begins for the first. 0
 * means all ranks, for a packet that leaves by a guarantee. Not static, like niclane_extension. */
__noinline __u64 niclane_move(__u64 ranks, __u32 first, __u64 now, __u64 cost, __u64 len)
{
	__u64 at = 0, t;
	struct rank *r;
	__u32 i;

	for (i = first ? : 1; i <= RANKS; i++) {
		__u32 key = i;

		if (!(ranks >> i & 1))
			continue;
		r = bpf_map_lookup_elem(&nl_ranks, &key);
		if (!r)
			continue;
		t = take(&r->clock, now, 0, cost);
		if (i == first) {
			at = t;
			__sync_fetch_and_add(&r->taken, len);
		}
	}
	return at;
}

/* Returns when a part is through with what it has taken. before is the rank before it, or NULL. Each
 * packet, also one that is dropped, makes the part pay for what earlier ranks have sent. A part without
 * packets for some time does not. */
static __always_inline __u64 through(struct part *part, const struct rank *before, __u64 taken,
				     const struct share *share, __u64 now)
{
	__u64 at = part->clock;

	if (before) {
		if (at > ago(now, PART_IDLE))
			at += cost_of((taken - part->earlier) / (share->lanes ? : 1), share->part.cost);
		part->earlier = taken;
	}
	at = later(at, ago(now, PART_LAG));
	part->clock = at;
	return before ? later(at, before->clock) : at;
}

/* Gives a packet of the lane in a row its time. Returns 0 if it has to be dropped. Not static, like
 * niclane_extension. */
__noinline int niclane_depart(struct __sk_buff *skb, __u32 row, const struct flow *f)
{
	__u64 now, at, turn, cost, wire, len = skb->wire_len, own_time = skb->tstamp;
	__u64 latest = 0, last = 0, members = 1, pressed = 0;
	enum { BY_RANK, BY_PART, BY_GUARANTEE, BY_FLOW } by = BY_RANK;
	struct member *member = NULL;
	struct active *active = NULL;
	struct flow_clock *flow = NULL;
	__u32 zero = 0, i, table, rank, epoch;
	struct rank *mine, *before = NULL;
	struct departed *count;
	struct share *share;
	struct clocks *own;
	struct link *link;
	struct part *part;

	link = bpf_map_lookup_elem(&nl_link, &zero);
	share = bpf_map_lookup_elem(&nl_shares, &row);
	if (!link || !link->rate || !share || !share->rank || !f)
		return 1;
	now = bpf_ktime_get_ns();
	if (own_time > now + FAR)	/* of another clock (CLOCK_TAI): fq would drop it */
		skb->tstamp = own_time = 0;
	rank = share->rank;
	mine = bpf_map_lookup_elem(&nl_ranks, &rank);
	own = bpf_map_lookup_elem(&nl_clocks, &row);
	if (!mine || !own)
		return 1;
	wire = len + WIRE * (skb->gso_segs ? : 1);
	cost = cost_of(wire, link->cost);
	at = turn = later(now, mine->clock);
	part = &own->part;
	epoch = now >> EPOCH_SHIFT;
	if (share->table && (turn > now || share->ceiling.rate)) {
		table = share->table - 1;
		active = bpf_map_lookup_elem(&nl_active, &table);
		i = table * FLOWS + choose(flow_hash(f), FLOWS);
		flow = bpf_map_lookup_elem(&nl_flow_clocks, &i);
		i = table * FLOWS + choose(member_hash(share, f), FLOWS);
		member = bpf_map_lookup_elem(&nl_members, &i);
		if (!flow || !member || !active)
			return 1;
		part = &member->part;
		members = members_of(member, active, epoch);
	}
	if (turn > now) {
		i = niclane_before(link->ranks, rank);
		if (i)
			before = bpf_map_lookup_elem(&nl_ranks, &i);
		if (before)
			pressed = before->clock;
		/* A packet that could not leave before this leaves by rank. */
		latest = member ? turn - (turn - now) / 2 : turn;
		if (flow && share->flow.rate && later(flow->clock, now) <= latest) {
			at = flow->clock;
			by = BY_FLOW;
		}
		/* A part has the guarantee in it, as long as it is not behind earlier ranks. */
		if (share->guarantee.rate && (pressed > now || !share->part.rate) && own->guarantee < at &&
		    later(own->guarantee, now) <= latest) {
			at = own->guarantee;
			by = BY_GUARANTEE;
		}
		/* It moves the fewest clocks. */
		turn = through(part, before, before ? niclane_taken(link->ranks, rank) : 0, share, now);
		if (share->part.rate && turn <= at && later(turn, now) <= latest) {
			at = turn;
			by = BY_PART;
		}
	}
	/* Times can go back: another processor took from a clock first, or earlier ranks begin to wait. */
	last = flow ? flow->last : own->last;
	/* It leaves now if its time has passed: else charge() would give other clocks that time again. */
	at = later(later(at, last), now);
	if (share->ceiling.rate)
		at = later(at, own->ceiling);
	if (at > now + link->mark / 4) {	/* the least that limit_of returns: the horizon is longer */
		count = bpf_map_lookup_elem(&nl_departed, &row);
		if (at - now > limit_of(member, link->horizon, epoch)) {
			if (count)
				count->dropped++;
			return 0;
		}
		if (at - now > limit_of(member, link->mark, epoch) && bpf_skb_ecn_set_ce(skb) && count)
			count->marked++;
	}
	if (share->ceiling.rate)
		at = later(at, take(&own->ceiling, now, share->ceiling.lag, cost_of(len, share->ceiling.cost)));
	if (by == BY_PART)
		part->clock = turn;
	if (latest) {
		charge(&part->clock, 0, at, cost_of(wire, share->part.cost) * members);
		if (by != BY_GUARANTEE && share->guarantee.rate)
			charge(&own->guarantee, ago(now, share->guarantee.lag), at, cost_of(len, share->guarantee.cost));
		if (by != BY_FLOW && flow && share->flow.rate)
			charge(&flow->clock, ago(now, share->flow.lag), at, cost_of(len, share->flow.cost));
	}
	if (by == BY_GUARANTEE)
		at = later(at, take(&own->guarantee, now, share->guarantee.lag, cost_of(len, share->guarantee.cost)));
	else if (by == BY_FLOW && flow)
		at = later(at, take(&flow->clock, now, share->flow.lag, cost_of(len, share->flow.cost)));
	turn = niclane_move(link->ranks, by < BY_GUARANTEE ? rank : 0, now, cost, wire);
	if (by == BY_RANK)
		at = later(at, turn);
	if (member && active)
		note_use(member, active, epoch, cost);
	if (at <= now)
		return 1;
	if (flow)
		flow->last = at;
	else
		own->last = at;
	count = bpf_map_lookup_elem(&nl_departed, &row);
	if (count) {
		count->waited++;
		count->ns += at - now;
	}
	if (at > own_time)	/* a later time of the socket's own (SO_TXTIME, TCP's pacing) stays */
		set_time(skb, at);
	return 1;
}

#endif
