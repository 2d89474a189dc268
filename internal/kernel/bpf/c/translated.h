/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Finds the address that a packet had before netfilter's connection tracking on this
 * host translated it: the address of a masqueraded pod, or of a pod behind a node
 * port. skb->_nfct points to the packet's connection, which holds both addresses.
 */
#ifndef NICLANE_TRANSLATED_H
#define NICLANE_TRANSLATED_H

/* Offsets in the running kernel, from its BTF: see the Go code. */
struct translation {
	__u32	nfct;		/* sk_buff._nfct; 0: not known, untranslate does nothing */
	__u32	tuple;		/* nf_conn.tuplehash[0].tuple */
	__u32	stride;		/* distance from tuple to tuplehash[1].tuple */
};

/* A map of one entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct translation);
} nl_translation SEC(".maps");

/* Set to 1 before loading if the kernel lets programs read its memory. With 0, the
 * helper's calls are unreachable; otherwise such a kernel would refuse the program. */
const volatile __u32 nl_reads_kernel = 0;

#define NFCT_INFOMASK	7UL	/* lower bits of _nfct: enum ip_conntrack_info */
#define IP_CT_IS_REPLY	3	/* and higher values: the packet is a reply */

/* struct nf_conntrack_tuple; the Go code compares it with the kernel's. */
struct tuple {
	__be32	source[4];
	__be16	source_port;
	__u16	family;
	__be32	destination[4];
	__be16	destination_port;
	__u8	protocol;
	__u8	direction;
};

/* Gives the flow the local address and port that the packet had before this host's
 * connection tracking. Returns 1 if this changes the flow. The remote address and port
 * stay as on the wire. skb is also the kernel's pointer to its own struct sk_buff, but
 * a program may read that struct's fields only by bpf_probe_read_kernel. */
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
	/* The flow of a fragment has no ports: see packet.h. */
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
