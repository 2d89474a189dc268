// SPDX-License-Identifier: GPL-2.0-only
/*
 * The other end of the wire: a plain interface without rings, which stands for the
 * rest of the network. Frames that it sends reach the card at once. A frame from
 * the card has the number of the card's transmit queue as its receive queue.
 */
#include <linux/etherdevice.h>

#include "simcard.h"

static netdev_tx_t wire_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct simcard *card = simcard_of(dev);
	struct sk_buff *copy;

	if (!netif_running(card->dev) || skb->len > card->dev->mtu + VLAN_ETH_HLEN)
		goto drop;
	skb_tx_timestamp(skb);
	copy = simcard_dma(card->dev, skb);
	if (!copy)
		goto drop;
	dev_sw_netstats_tx_add(dev, 1, skb->len);
	consume_skb(skb);
	simcard_receive(card, copy);
	return NETDEV_TX_OK;

drop:
	DEV_STATS_INC(dev, tx_dropped);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

static void link_update(struct simcard *card)
{
	simcard_lock_ops(card->dev);
	simcard_link_update(card);
	simcard_unlock_ops(card->dev);
}

static int wire_open(struct net_device *dev)
{
	netif_tx_start_all_queues(dev);
	link_update(simcard_of(dev));
	return 0;
}

static int wire_stop(struct net_device *dev)
{
	netif_tx_stop_all_queues(dev);
	link_update(simcard_of(dev));
	return 0;
}

static const struct net_device_ops wire_ops = {
	.ndo_open = wire_open,
	.ndo_stop = wire_stop,
	.ndo_start_xmit = wire_xmit,
	.ndo_get_stats64 = dev_get_tstats64,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static void wire_get_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "simcard-wire", sizeof(info->driver));
}

static const struct ethtool_ops wire_ethtool_ops = {
	.get_drvinfo = wire_get_drvinfo,
	.get_link = ethtool_op_get_link,
};

int simcard_wire_create(struct simcard *card, int id)
{
	u8 mac[ETH_ALEN] = { 0x02, 0x6e, 0x6c, 0x00, id, 0x02 };
	struct net_device *dev;

	dev = alloc_netdev_mqs(sizeof(struct simcard *), "wire%d", NET_NAME_ENUM, ether_setup,
			       card->p.queues, card->p.queues);
	if (!dev)
		return -ENOMEM;
	*(struct simcard **)netdev_priv(dev) = card;
	card->wire = dev;
	dev->netdev_ops = &wire_ops;
	dev->ethtool_ops = &wire_ethtool_ops;
	dev->max_mtu = ETH_MAX_MTU;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_RXCSUM;
	dev->features = dev->hw_features;
	eth_hw_addr_set(dev, mac);
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	return 0;
}

/* Registers the wire's interface. The card's interface is registered already. */
int simcard_wire_register(struct simcard *card)
{
	return register_netdev(card->wire);
}

void simcard_wire_unregister(struct simcard *card)
{
	unregister_netdev(card->wire);
}

void simcard_wire_destroy(struct simcard *card)
{
	free_netdev(card->wire);
}
