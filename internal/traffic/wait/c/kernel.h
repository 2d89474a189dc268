/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The required fields of the kernel's structures. CO-RE finds their offsets in the
 * kernel's BTF.
 */
#ifndef NICLANE_WAIT_KERNEL_H
#define NICLANE_WAIT_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define ETH_P_IP	0x0800
#define ETH_P_IPV6	0x86DD
#define ETH_P_8021Q	0x8100
#define PROTO_TCP	6
#define PROTO_UDP	17
#define NET_RX_SOFTIRQ	3	/* enum in include/linux/interrupt.h, unchanged since 2.6.24 */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct device {
	struct device *parent;
};

struct net_device {
	int ifindex;
	possible_net_t nd_net;
	struct device dev;
};

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
};

struct tcp_sock {
	__u32 rcv_nxt;
	__u32 write_seq;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
};

struct skb_shared_hwtstamps {
	__s64 hwtstamp;
};

struct skb_shared_info {
	__u8 tx_flags;
	struct skb_shared_hwtstamps hwtstamps;
};

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	__s64 tstamp;
	char cb[48];
	unsigned int len;
	unsigned int data_len;
	__u16 queue_mapping;
	__be16 protocol;
	__u16 transport_header;
	__u16 network_header;
	unsigned int napi_id;
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
};

struct napi_struct {
	unsigned int napi_id;
};

struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	void *worker_private;
};

struct kthread {
	void *data;
};

enum skb_drop_reason {
	SKB_DROP_REASON_NOT_SPECIFIED = 2,
};

#pragma clang attribute pop

#endif
