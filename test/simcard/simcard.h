/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A simulated Ethernet card with several queues.
 *
 * Locks: configuration calls hold rtnl and, on kernels that have one, the device's
 * own lock. steer_lock protects the data of the receive path, tx_lock the data of
 * the transmit scheduler. No code takes one of these two while it holds the other.
 */
#ifndef SIMCARD_H
#define SIMCARD_H

#include <linux/cpumask.h>
#include <linux/dcbnl.h>
#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/if_vlan.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/ptp_clock_kernel.h>
#include <linux/skbuff.h>
#include <linux/smp.h>
#include <linux/u64_stats_sync.h>
#include <net/flow_offload.h>
#include <net/pkt_cls.h>
#include <net/pkt_sched.h>

#include "compat.h"

#define SIMCARD_MAX_QUEUES	256
#define SIMCARD_MAX_INDIR	2048
#define SIMCARD_MAX_CONTEXTS	64	/* number of contexts, with the default one */
#define SIMCARD_MAX_TC		16
#define SIMCARD_KEY_SIZE	52	/* as ice and i40e */
#define SIMCARD_MIN_RING	64
#define SIMCARD_MAX_RING	4096

/* Values of the module parameters, read when a card is made (params.c). */
struct simcard_params {
	char driver[32];
	unsigned int queues;
	unsigned int channels;
	unsigned int indir;		/* table size; follows the channels if indir_follows */
	bool indir_follows;
	unsigned int contexts;
	unsigned int rules;
	unsigned int speed;		/* Mbit/s */
	bool any_location;
	bool rules_v4_only;
	bool flower_or_rules;
	bool rx_classes;
	bool pow2;
	bool no_min_rate;
	bool htb_shares;
	bool shaper;
	bool dcb;
	bool clock;
	bool clock_precise;
	long clock_offset;		/* ns to CLOCK_REALTIME */
	int clock_drift;		/* ppb */
};

/* A rate limit (GCRA): a frame may be sent at time next or later. */
struct simcard_bucket {
	u64 rate;			/* bytes per second; 0: no limit */
	u64 next;			/* ns of CLOCK_MONOTONIC */
};

#define SIMCARD_RANKS 3	/* see struct choice in sched.c */

/* Something that has rates: a queue, a traffic class, an HTB class... */
struct simcard_node {
	struct simcard_node *parent;
	struct simcard_bucket max;
	struct simcard_bucket min;
	u32 weight;
	u32 prio;			/* order for sharing the rest; lower sends first */
	u64 vtime[SIMCARD_RANKS];	/* virtual time of this node among its siblings */
	u64 time[SIMCARD_RANKS];	/* virtual time of this node's members */
};

/* A queue has up to one node in each layer. Its frames obey these nodes and their parents. */
enum simcard_layer {
	SIMCARD_MAXRATE,		/* tx_maxrate */
	SIMCARD_SHAPER,			/* net-shaper, scope queue */
	SIMCARD_GROUP,			/* net-shaper, scope node */
	SIMCARD_CLASS,			/* mqprio's traffic class or HTB's class */
	SIMCARD_NETDEV,			/* net-shaper, scope netdev */
	SIMCARD_LAYERS,
};

struct simcard_coalesce {
	u32 rx_usecs;
	u32 tx_usecs;
	u32 rx_frames;
	bool adaptive_rx;
	bool adaptive_tx;
};

/* A queue pair with its vector, which has one interrupt and one NAPI. */
struct simcard_queue {
	struct simcard *card;
	u16 index;
	struct napi_struct napi;

	/* interrupt (irq.c) */
	unsigned long state;
#define SIMCARD_Q_UP		0
#define SIMCARD_Q_MASKED	1
	int irq;
	unsigned int cpu;
	call_single_data_t csd;
	struct hrtimer moderation;
	struct simcard_coalesce coalesce;
	u32 last_poll;			/* number of frames that the last poll took */
	struct simcard_queue *leader;	/* the queue whose NAPI polls this queue */
	char irq_name[IFNAMSIZ + 48];

	struct sk_buff_head rx;		/* received frames, for NAPI */

	/* protected by tx_lock (sched.c) */
	struct sk_buff_head tx;		/* frames for the scheduler */
	struct sk_buff_head sent;	/* sent frames, for NAPI to complete */
	u64 vtime[SIMCARD_RANKS];
	struct simcard_node *node[SIMCARD_LAYERS];
	struct simcard_node maxrate;
	struct simcard_node shaper;

	struct u64_stats_sync sync;	/* for the counters, which NAPI writes */
	u64 rx_packets, rx_bytes, tx_packets, tx_bytes;
	atomic64_t rx_dropped, tx_stops, interrupts;
};

/* The header fields that the card's parser finds in a frame. */
struct simcard_flow {
	u8 dmac[ETH_ALEN], smac[ETH_ALEN];
	__be16 proto;			/* protocol after the VLAN tag */
	u16 vlan_tci;
	bool vlan;
	bool ports;			/* whether there are ports; fragments have none */
	u8 ip_proto;
	u8 tos;
	__be32 src[4], dst[4];		/* an IPv4 address is in the first word */
	__be16 sport, dport;
} __aligned(8);

/* Says which header fields must match: the bits of value that are set in mask. */
struct simcard_match {
	struct simcard_flow value;
	struct simcard_flow mask;
};

/* Sets the value and the mask of one field. */
#define TAKE(match, field, v, m) do {		\
		(match)->value.field = (v);	\
		(match)->mask.field = (m);	\
	} while (0)

struct simcard_rss {
	u32 indir[SIMCARD_MAX_INDIR];
	u8 key[SIMCARD_KEY_SIZE];
};

/* An ntuple rule. */
struct simcard_rule {
	struct list_head list;		/* list of rules, in the order of locations */
	struct ethtool_rx_flow_spec spec;
	u32 context;			/* context to which the rule leads; 0 without FLOW_RSS */
	struct simcard_match match;
	atomic64_t hits;
};

/* A flower filter. */
struct simcard_filter {
	struct list_head list;		/* list of filters, in the order of priorities */
	unsigned long cookie;
	u32 prio;
	enum { SIMCARD_TO_TC, SIMCARD_TO_QUEUE, SIMCARD_DROP } action;
	u32 target;
	struct simcard_match match;
	u64 packets, bytes;
};

struct simcard_htb {
	struct list_head list;
	struct simcard_node node;
	u64 rate;			/* the rate that the user requested */
	u16 classid;
	int qid;			/* the class's queue; -1 for inner classes */
};

struct simcard_inline {
	u32 hash;
	u16 queue;
};

#define SIMCARD_INLINE_SLOTS	1024

/* Settings of a traffic class that devlink's parameters change. */
struct simcard_poller {
	bool inline_fd;
	u8 qps;
	u32 timeout;
};

struct simcard {
	struct platform_device *pdev;
	struct devlink *devlink;
	struct ieee_ets ets;		/* protected by rtnl (dcb.c) */
	struct net_device *dev;
	struct net_device *wire;
	struct simcard_params p;
	struct simcard_queue *queue;
	int irq_base;
	u32 rx_ring, tx_ring;
	u32 priv_flags;

	/* protected by steer_lock */
	spinlock_t steer_lock;
	struct simcard_rss rss;
	struct simcard_rss *context[SIMCARD_MAX_CONTEXTS];
	u32 hash_fields[4];		/* RXH_* flags for tcp4, udp4, tcp6, udp6 */
	struct list_head rules;
	u32 n_rules;
	struct list_head filters;
	u32 n_filters;
	u8 num_tc;			/* 0 without mqprio */
	u16 tc_offset[SIMCARD_MAX_TC], tc_count[SIMCARD_MAX_TC];
	struct simcard_poller poller[SIMCARD_MAX_TC];
	struct simcard_inline *inline_fd;

	/* protected by tx_lock */
	spinlock_t tx_lock;
	struct simcard_bucket link;
	struct hrtimer tx_timer;
	struct simcard_node tc_node[SIMCARD_MAX_TC];
	struct simcard_node netdev_node;
	struct list_head htb;
	struct simcard_node htb_root;
	bool htb_on;
	u16 htb_major, htb_default;
	struct xarray groups;		/* nodes of net-shaper, by id */

	atomic64_t tx_dropped, rx_filtered;

	struct ptp_clock *clock;	/* NULL: the card has none (clock.c) */
	struct ptp_clock_info clock_info;
	bool stamps_rx;

	/* protected by clock_lock, which no code holds while it takes another lock */
	spinlock_t clock_lock;
	s64 clock_base;			/* the clock's time at clock_raw */
	u64 clock_raw;			/* ns of CLOCK_MONOTONIC_RAW */
	long clock_adj;			/* ppm, with a fraction of 16 bits */
};

/* params.c */
u32 simcard_indir_of(const struct simcard_params *p, unsigned int n);
int simcard_params_init(struct simcard_params *p);
extern unsigned int simcard_contexts;
extern bool simcard_no_shrink;
extern bool simcard_forgets;
extern bool simcard_channel_is_dcb;
extern bool simcard_mqprio_takes_rules;
extern bool simcard_mqprio_resizes;
u64 simcard_burst_ns(void);
int simcard_call(struct simcard *card, const char *what);

/* netdev.c */
int simcard_netdev_create(struct simcard *card, int id);
void simcard_netdev_destroy(struct simcard *card);
void simcard_down(struct simcard *card);
int simcard_up(struct simcard *card);
int simcard_restart(struct simcard *card);
int simcard_set_channels(struct simcard *card, unsigned int n);
struct sk_buff *simcard_dma(struct net_device *to, struct sk_buff *skb);
void simcard_receive(struct simcard *card, struct sk_buff *skb);
void simcard_link_update(struct simcard *card);

/* wire.c */
int simcard_wire_create(struct simcard *card, int id);
int simcard_wire_register(struct simcard *card);
void simcard_wire_unregister(struct simcard *card);
void simcard_wire_destroy(struct simcard *card);

/* irq.c */
int simcard_irq_create(struct simcard *card);
void simcard_irq_destroy(struct simcard *card);
int simcard_irq_request(struct simcard_queue *q);
void simcard_irq_free(struct simcard_queue *q);
void simcard_irq_event(struct simcard_queue *q, u32 usecs, bool now);
void simcard_rx_event(struct simcard_queue *q);
void simcard_tx_event(struct simcard_queue *q);

/* clock.c */
int simcard_clock_create(struct simcard *card);
void simcard_clock_destroy(struct simcard *card);
void simcard_stamp(struct simcard *card, struct sk_buff *skb);
int simcard_get_ts_info(struct net_device *dev, simcard_ts_info *info);
#if SIMCARD_HAS_HWTSTAMP_OPS
int simcard_hwtstamp_get(struct net_device *dev, struct kernel_hwtstamp_config *config);
int simcard_hwtstamp_set(struct net_device *dev, struct kernel_hwtstamp_config *config, struct netlink_ext_ack *extack);
#else
int simcard_ioctl(struct net_device *dev, struct ifreq *ifr, int cmd);
#endif

/* dcb.c */
void simcard_dcb_init(struct simcard *card);

/* sched.c */
void simcard_sched_init(struct simcard *card);
netdev_tx_t simcard_xmit(struct sk_buff *skb, struct net_device *dev);
void simcard_transmit(struct simcard *card);
void simcard_kick(struct simcard *card);
void simcard_node_init(struct simcard_node *node);
int simcard_set_tx_maxrate(struct net_device *dev, int queue, u32 maxrate);
int simcard_tx_complete(struct simcard_queue *q, int budget);
void simcard_tx_purge(struct simcard_queue *q);

/* shaper.c */
#if SIMCARD_HAS_NET_SHAPER
extern const struct net_shaper_ops simcard_shaper_ops;
#endif
void simcard_shaper_forget(struct simcard *card);

/* parse.c */
void simcard_parse(struct sk_buff *skb, struct simcard_flow *flow);
bool simcard_matches(const struct simcard_match *match, const struct simcard_flow *flow);

/* rss.c */
void simcard_rss_init(struct simcard *card);
void simcard_rss_default(struct simcard *card);
u32 simcard_hash(struct simcard *card, const u8 *key, const struct simcard_flow *flow, bool *l4);
int simcard_get_hash_fields(struct simcard *card, u32 flow_type, u64 *data);
int simcard_set_hash_fields(struct simcard *card, u32 flow_type, u64 data);
void simcard_rss_forget(struct simcard *card);

/* steer.c */
int simcard_steer(struct simcard *card, struct sk_buff *skb);
void simcard_inline_learn(struct simcard *card, struct sk_buff *skb);

/* rules.c */
int simcard_get_rxnfc(struct net_device *dev, struct ethtool_rxnfc *info, u32 *locations);
int simcard_set_rxnfc(struct net_device *dev, struct ethtool_rxnfc *info);
void simcard_rules_forget(struct simcard *card);

/* tc.c */
int simcard_setup_tc(struct net_device *dev, enum tc_setup_type type, void *type_data);
void simcard_filters_forget(struct simcard *card, bool to_classes);

/* htb.c */
int simcard_setup_htb(struct simcard *card, struct tc_htb_qopt_offload *htb);
u16 simcard_select_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev);

/* ethtool.c, rss.c */
extern struct ethtool_ops simcard_ethtool_ops;
void simcard_ethtool_rss(struct ethtool_ops *ops);

/* devlink.c */
struct simcard *simcard_alloc(struct platform_device *pdev);
void simcard_free(struct simcard *card);
int simcard_devlink_create(struct simcard *card);
void simcard_devlink_destroy(struct simcard *card);
void simcard_pollers_apply(struct simcard *card);

static inline struct simcard *simcard_of(struct net_device *dev)
{
	return *(struct simcard **)netdev_priv(dev);
}

#endif
