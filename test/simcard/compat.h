/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between Debian's kernels 6.1, 6.12 and 7.2. Distributions
 * backport interfaces, so other kernels may need other limits here.
 */
#ifndef SIMCARD_COMPAT_H
#define SIMCARD_COMPAT_H

#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/irq.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/timekeeping.h>
#include <linux/version.h>

#define SIMCARD_SINCE(major, minor)	(LINUX_VERSION_CODE >= KERNEL_VERSION(major, minor, 0))

/* 6.8: struct ethtool_rxfh_param; 6.11: the core tracks contexts; 6.17:
 * rxfh_fields, also in Debian's 6.12.
 */
#define SIMCARD_HAS_RXFH_PARAM		SIMCARD_SINCE(6, 12)
/* 6.2 */
#define SIMCARD_HAS_APPTRUST		SIMCARD_SINCE(6, 2)
/* 6.8 */
#define SIMCARD_HAS_QUEUE_NAPI		SIMCARD_SINCE(6, 8)
/* 6.9 */
#define SIMCARD_HAS_QSTATS		SIMCARD_SINCE(6, 9)
/* 6.13; netdev_lock() protects the operations of a device that has net_shaper operations. */
#define SIMCARD_HAS_NET_SHAPER		SIMCARD_SINCE(6, 17)

/* 6.6: operations for the configuration of timestamps, in place of an ioctl */
#define SIMCARD_HAS_HWTSTAMP_OPS	SIMCARD_SINCE(6, 12)

#if SIMCARD_SINCE(6, 11)
typedef struct kernel_ethtool_ts_info simcard_ts_info;
#else
typedef struct ethtool_ts_info simcard_ts_info;
#endif

#if SIMCARD_HAS_QSTATS
#include <net/netdev_queues.h>
#endif
#if SIMCARD_HAS_NET_SHAPER
#include <net/netdev_lock.h>
#include <net/net_shaper.h>
#endif

/* Takes the device's own lock, if any. The caller holds rtnl, but not this lock. */
static inline void simcard_lock_ops(struct net_device *dev)
{
#if SIMCARD_HAS_NET_SHAPER
	netdev_lock_ops(dev);
#endif
}

static inline void simcard_unlock_ops(struct net_device *dev)
{
#if SIMCARD_HAS_NET_SHAPER
	netdev_unlock_ops(dev);
#endif
}

/* Takes the locks that the core holds when it calls a device's operations. */
static inline void simcard_lock(struct net_device *dev)
{
	rtnl_lock();
	simcard_lock_ops(dev);
}

static inline void simcard_unlock(struct net_device *dev)
{
	simcard_unlock_ops(dev);
	rtnl_unlock();
}

static inline void simcard_hrtimer_setup(struct hrtimer *timer,
					 enum hrtimer_restart (*function)(struct hrtimer *),
					 enum hrtimer_mode mode)
{
#if SIMCARD_SINCE(6, 13)
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, mode);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, mode);
	timer->function = function;
#endif
}

static inline void simcard_napi_add(struct net_device *dev, struct napi_struct *napi,
				    int (*poll)(struct napi_struct *, int), int index, int irq)
{
#if SIMCARD_HAS_NET_SHAPER
	netif_napi_add_config_locked(dev, napi, poll, index);
	netif_napi_set_irq_locked(napi, irq);
#else
	netif_napi_add(dev, napi, poll);
#if SIMCARD_HAS_QUEUE_NAPI
	netif_napi_set_irq(napi, irq);
#endif
#endif
}

static inline void simcard_napi_enable(struct napi_struct *napi)
{
#if SIMCARD_HAS_NET_SHAPER
	napi_enable_locked(napi);
#else
	napi_enable(napi);
#endif
}

static inline void simcard_napi_disable(struct napi_struct *napi)
{
#if SIMCARD_HAS_NET_SHAPER
	napi_disable_locked(napi);
#else
	napi_disable(napi);
#endif
}

/* Reads two of the host's clocks at the same time. */
static inline void simcard_snapshot(struct system_device_crosststamp *cts)
{
	struct system_time_snapshot snap;

#if SIMCARD_SINCE(7, 0)
	ktime_get_snapshot_id(cts->clock_id, &snap);
	cts->sys_systime = snap.systime;
	cts->sys_monoraw = snap.monoraw;
#else
	ktime_get_snapshot(&snap);
	cts->sys_realtime = snap.real;
	cts->sys_monoraw = snap.raw;
#endif
}

/* Deletes a NAPI. The caller must wait for the grace period before it frees it. */
static inline void simcard_napi_del(struct napi_struct *napi)
{
#if SIMCARD_HAS_NET_SHAPER
	__netif_napi_del_locked(napi);
#else
	__netif_napi_del(napi);
#endif
}

static inline void simcard_queue_set_napi(struct net_device *dev, unsigned int queue, struct napi_struct *napi)
{
#if SIMCARD_HAS_QUEUE_NAPI
	netif_queue_set_napi(dev, queue, NETDEV_QUEUE_TYPE_RX, napi);
	netif_queue_set_napi(dev, queue, NETDEV_QUEUE_TYPE_TX, napi);
#endif
}

/* Allows changes of an interrupt's affinity at any time, not only in its handler. */
static inline void simcard_irq_movable(unsigned int irq)
{
#if !SIMCARD_SINCE(6, 14)
	irq_set_status_flags(irq, IRQ_MOVE_PCNTXT);
#endif
}

#endif
