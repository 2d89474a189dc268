/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Addresses as they were before netfilter's connection tracking translated them
 * on the way to this device: a masqueraded pod's own, or that behind a port of the
 * node. The packet leads to its connection (skb->_nfct), which has both.
 */
#ifndef NICLANE_TRANSLATED_H
#define NICLANE_TRANSLATED_H

/* Where the kernel that runs keeps it, from its BTF: see Go. */
struct translation {
	__u32	nfct;		/* sk_buff._nfct; 0: not known, nothing is looked at */
	__u32	tuple;		/* nf_conn.tuplehash[0].tuple */
	__u32	stride;		/* from there to tuplehash[1].tuple */
};

/* The one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct translation);
} nl_translation SEC(".maps");

/* Set before loading, where the kernel lets programs read its memory: otherwise
 * it refuses those that name the helper, unless they cannot come there. */
const volatile __u32 nl_reads_kernel = 0;

#define NFCT_INFOMASK	7UL	/* lower bits of _nfct: enum ip_conntrack_info */
#define IP_CT_IS_REPLY	3	/* and above: the packet is an answer */

/* struct nf_conntrack_tuple; Go compares it with the kernel's. */
struct tuple {
	__be32	source[4];
	__be16	source_port;
	__u16	family;
	__be32	destination[4];
	__be16	destination_port;
	__u8	protocol;
	__u8	direction;
};

/* Gives the flow the local address and port that the packet had when it came to
 * this host's tracking; whether these are others. The remote ones stay those on
 * the wire. The pointer to a packet that programs are given is the kernel's to its
 * struct sk_buff, although they may read no fields of it through it. */
static __always_inline int untranslate(struct __sk_buff *skb, struct flow *f)
{
	struct translation *at;
	struct tuple tuple;
	__u32 zero = 0;
	__u64 nfct;
	int words = f->family == 4 ? 1 : 4, i, same;

	if (!nl_reads_kernel)
		return 0;
	at = bpf_map_lookup_elem(&nl_translation, &zero);
	if (!at || !at->nfct || bpf_probe_read_kernel(&nfct, sizeof(nfct), (void *)skb + at->nfct))
		return 0;
	if (!(nfct & ~NFCT_INFOMASK))
		return 0;
	if (bpf_probe_read_kernel(&tuple, sizeof(tuple), (void *)(nfct & ~NFCT_INFOMASK) + at->tuple +
				  ((nfct & NFCT_INFOMASK) >= IP_CT_IS_REPLY ? at->stride : 0)))
		return 0;
	/* Fragments have no ports here, as packet.h has it. */
	same = !f->local_port || f->local_port == tuple.source_port;
#pragma unroll
	for (i = 0; i < 4; i++) {
		if (i < words && f->local[i] != tuple.source[i]) {
			f->local[i] = tuple.source[i];
			same = 0;
		}
	}
	if (f->local_port)
		f->local_port = tuple.source_port;
	return !same;
}

#endif
