/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The lab's switch. A fixed table says at which port each address is; the switch
 * does not learn or flood. It drops packets to groups: no host needs them.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);	/* six bytes of MAC address, two bytes of zero */
	__type(value, __u32);	/* ifindex */
} lab_stations SEC(".maps");

const volatile __u32 card_port;	/* ifindex of the wire side of the SUT's port */
const volatile __u64 first;	/* the bits of DSCPs that go first at the port to the SUT */

/* Returns whether the packet's DSCP is one of those that go first. */
static __always_inline int goes_first(struct __sk_buff *skb)
{
	__u16 word = 0;	/* version, and traffic class or header length and DSCP */
	__u8 dscp;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &word, sizeof(word)) < 0)
		return 0;
	word = bpf_ntohs(word);
	if (skb->protocol == bpf_htons(ETH_P_IP))
		dscp = (word >> 2) & 63;
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		dscp = (word >> 6) & 63;
	else
		return 0;
	return (first >> dscp) & 1;
}

/*
 * Forwards a clone of the packet, because a clone has no socket. A sender on a real
 * link does not see the switch's queue. But veth keeps a packet's socket: TCP small
 * queues of the sender would count packets that wait in the switch, and the SUT's
 * wire side would cache its transmit queue, which is the SUT's receive queue, in
 * the sender's socket (netdev_pick_tx).
 */
SEC("tc")
int lab_switch(struct __sk_buff *skb)
{
	__u64 address = 0;
	__u32 *port;

	if (bpf_skb_load_bytes(skb, 0, &address, ETH_ALEN) < 0)
		return TC_ACT_SHOT;
	port = bpf_map_lookup_elem(&lab_stations, &address);
	if (!port || *port == skb->ifindex)
		return TC_ACT_SHOT;
	skb->priority = goes_first(skb);
	bpf_clone_redirect(skb, *port, 0);
	return TC_ACT_STOLEN;
}

/* Runs at the end of the link toward the SUT and gives packets to the port. */
SEC("tc")
int lab_deliver(struct __sk_buff *skb)
{
	return bpf_redirect(card_port, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
