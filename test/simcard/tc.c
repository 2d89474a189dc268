// SPDX-License-Identifier: GPL-2.0-only
/* The offloads of tc: mqprio, flower filters on ingress, and HTB (htb.c). */
#include <linux/etherdevice.h>
#include <linux/log2.h>

#include "simcard.h"

static LIST_HEAD(simcard_blocks);

/* Checks the queues of mqprio's classes, with the messages of ice_validate_mqprio_qopt(). */
static int check_counts(struct simcard *card, const struct tc_mqprio_qopt_offload *m)
{
	const struct tc_mqprio_qopt *q = &m->qopt;
	unsigned int sum = 0, i, largest = 0, odd = 0;

	if (q->num_tc > SIMCARD_MAX_TC || q->offset[0])
		return -EINVAL;
	for (i = 0; i < q->num_tc; i++) {
		if (!q->count[i] || q->offset[i] != sum)
			return -EINVAL;
		sum += q->count[i];
		largest = max_t(unsigned int, largest, q->count[i]);
		if (card->p.pow2 && !is_power_of_2(q->count[i])) {
			if (odd && odd != q->count[i]) {
				netdev_err(card->dev, "Only one non power of 2 qcount allowed[%u,%u]\n", odd, q->count[i]);
				return -EINVAL;
			}
			odd = q->count[i];
		}
	}
	if (odd && odd < largest) {
		netdev_err(card->dev, "non power of 2 qcount[%u] cannot be less than other qcount[%u]\n", odd, largest);
		return -EINVAL;
	}
	return sum > card->dev->real_num_rx_queues ? -EINVAL : 0;
}

static int check_rates(struct simcard *card, const struct tc_mqprio_qopt_offload *m)
{
	u64 link = (u64)card->p.speed * 125000, sum = 0;
	int i;

	if (m->shaper != TC_MQPRIO_SHAPER_BW_RATE)
		return 0;
	for (i = 0; i < m->qopt.num_tc; i++) {
		u64 min = m->min_rate[i], max = m->max_rate[i];

		if (min && card->p.no_min_rate) {
			netdev_err(card->dev, "Invalid min tx rate (greater than 0) specified\n");
			return -EINVAL;
		}
		if (max > link) {
			netdev_err(card->dev, "TC%d: max_rate(%llu Kbps) > link speed of %u Kbps\n", i, max / 125, card->p.speed * 1000);
			return -EINVAL;
		}
		if (max && min > max) {
			netdev_err(card->dev, "min_rate %llu Kbps can't be more than max_rate %llu Kbps\n", min / 125, max / 125);
			return -EINVAL;
		}
		sum += min;
	}
	if (sum > link) {
		netdev_err(card->dev, "Invalid min Tx rate(%llu) Kbps > speed (%u) Kbps specified\n", sum / 125, card->p.speed * 1000);
		return -EINVAL;
	}
	return 0;
}

static void set_classes(struct simcard *card, const struct tc_mqprio_qopt_offload *m, u8 num_tc, bool rates)
{
	int tc, i;

	spin_lock_bh(&card->tx_lock);
	for (i = 0; i < card->p.queues; i++)
		card->queue[i].node[SIMCARD_CLASS] = NULL;
	for (tc = 0; tc < num_tc; tc++) {
		struct simcard_node *node = &card->tc_node[tc];

		simcard_node_init(node);
		if (rates) {
			node->max.rate = m->max_rate[tc];
			node->min.rate = m->min_rate[tc];
		}
		for (i = 0; i < card->tc_count[tc]; i++)
			card->queue[card->tc_offset[tc] + i].node[SIMCARD_CLASS] = node;
	}
	spin_unlock_bh(&card->tx_lock);
}

/* Sets the queues' leaders again, because the classes' queues have moved. */
static int regroup_pollers(struct simcard *card)
{
	int i;

	for (i = 1; i < SIMCARD_MAX_TC; i++)
		if (card->poller[i].qps > 1)
			return simcard_restart(card);
	return 0;
}

static int remove_mqprio(struct simcard *card)
{
	spin_lock_bh(&card->steer_lock);
	card->num_tc = 0;
	spin_unlock_bh(&card->steer_lock);
	set_classes(card, NULL, 0, false);
	netdev_reset_tc(card->dev);
	if (card->dev->reg_state == NETREG_REGISTERED)
		regroup_pollers(card);
	simcard_filters_forget(card, true);
	if (simcard_mqprio_takes_rules)
		simcard_rules_forget(card);
	/* Do not start the queues of a card that is being removed. */
	if (simcard_mqprio_resizes && card->dev->reg_state == NETREG_REGISTERED)
		simcard_set_channels(card, min(card->p.queues, num_online_cpus()));
	simcard_kick(card);
	return 0;
}

static int setup_mqprio(struct simcard *card, struct tc_mqprio_qopt_offload *m)
{
	struct tc_mqprio_qopt *q = &m->qopt;
	bool dcb = m->mode != TC_MQPRIO_MODE_CHANNEL || simcard_channel_is_dcb;
	struct net_device *dev = card->dev;
	unsigned int each, sum = 0;
	int i, err = simcard_call(card, q->num_tc ? "mqprio" : "mqprio's removal");

	if (!q->num_tc)
		return remove_mqprio(card);	/* the core ignores the return value */
	if (err)
		return err;
	if (card->htb_on)
		return -EBUSY;
	if (q->num_tc > SIMCARD_MAX_TC || q->num_tc > dev->real_num_tx_queues)
		return -EINVAL;
	if (!dcb) {
		err = check_counts(card, m);
		err = err ?: check_rates(card, m);
		if (err)
			return err;
		for (i = 0; i < q->num_tc; i++)
			sum += q->count[i];
		if (simcard_mqprio_resizes) {
			err = simcard_set_channels(card, sum);
			if (err)
				return err;
		}
	}
	q->hw = TC_MQPRIO_HW_OFFLOAD_TCS;
	netdev_set_num_tc(dev, q->num_tc);
	each = dev->real_num_tx_queues / q->num_tc;
	spin_lock_bh(&card->steer_lock);
	for (i = 0; i < q->num_tc; i++) {
		card->tc_offset[i] = dcb ? i * each : q->offset[i];
		card->tc_count[i] = dcb ? each : q->count[i];
	}
	card->num_tc = dcb ? 0 : q->num_tc;	/* DCB's classes apply only to transmit */
	spin_unlock_bh(&card->steer_lock);
	for (i = 0; i < q->num_tc; i++)
		netdev_set_tc_queue(dev, i, card->tc_count[i], card->tc_offset[i]);
	set_classes(card, m, q->num_tc, !dcb && m->shaper == TC_MQPRIO_SHAPER_BW_RATE);
	err = regroup_pollers(card);
	simcard_kick(card);
	return err;
}

#define KEYS (BIT_ULL(FLOW_DISSECTOR_KEY_CONTROL) | BIT_ULL(FLOW_DISSECTOR_KEY_BASIC) |		\
	      BIT_ULL(FLOW_DISSECTOR_KEY_ETH_ADDRS) | BIT_ULL(FLOW_DISSECTOR_KEY_VLAN) |	\
	      BIT_ULL(FLOW_DISSECTOR_KEY_IPV4_ADDRS) | BIT_ULL(FLOW_DISSECTOR_KEY_IPV6_ADDRS) |	\
	      BIT_ULL(FLOW_DISSECTOR_KEY_PORTS) | BIT_ULL(FLOW_DISSECTOR_KEY_IP))

static int filter_match(struct flow_rule *rule, struct simcard_match *match, struct netlink_ext_ack *extack)
{
	u16 addr_type = 0;

	if (rule->match.dissector->used_keys & ~KEYS) {
		NL_SET_ERR_MSG_MOD(extack, "Unsupported key used");
		return -EOPNOTSUPP;
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_CONTROL)) {
		struct flow_match_control m;

		flow_rule_match_control(rule, &m);
		addr_type = m.key->addr_type;
		if (m.mask->flags) {
			NL_SET_ERR_MSG_MOD(extack, "Unsupported key used");
			return -EOPNOTSUPP;
		}
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_BASIC)) {
		struct flow_match_basic m;

		flow_rule_match_basic(rule, &m);
		TAKE(match, proto, m.key->n_proto, m.mask->n_proto);
		TAKE(match, ip_proto, m.key->ip_proto, m.mask->ip_proto);
		if (m.key->n_proto == htons(ETH_P_ALL))
			match->mask.proto = 0;
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_ETH_ADDRS)) {
		struct flow_match_eth_addrs m;

		flow_rule_match_eth_addrs(rule, &m);
		ether_addr_copy(match->value.dmac, m.key->dst);
		ether_addr_copy(match->mask.dmac, m.mask->dst);
		ether_addr_copy(match->value.smac, m.key->src);
		ether_addr_copy(match->mask.smac, m.mask->src);
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_VLAN)) {
		struct flow_match_vlan m;

		flow_rule_match_vlan(rule, &m);
		TAKE(match, vlan, true, true);
		TAKE(match, vlan_tci, m.key->vlan_id | m.key->vlan_priority << VLAN_PRIO_SHIFT,
			   m.mask->vlan_id | m.mask->vlan_priority << VLAN_PRIO_SHIFT);
	}
	if (addr_type == FLOW_DISSECTOR_KEY_IPV4_ADDRS) {
		struct flow_match_ipv4_addrs m;

		flow_rule_match_ipv4_addrs(rule, &m);
		TAKE(match, src[0], m.key->src, m.mask->src);
		TAKE(match, dst[0], m.key->dst, m.mask->dst);
	} else if (addr_type == FLOW_DISSECTOR_KEY_IPV6_ADDRS) {
		struct flow_match_ipv6_addrs m;

		flow_rule_match_ipv6_addrs(rule, &m);
		memcpy(match->value.src, &m.key->src, sizeof(match->value.src));
		memcpy(match->mask.src, &m.mask->src, sizeof(match->mask.src));
		memcpy(match->value.dst, &m.key->dst, sizeof(match->value.dst));
		memcpy(match->mask.dst, &m.mask->dst, sizeof(match->mask.dst));
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_PORTS)) {
		struct flow_match_ports m;

		flow_rule_match_ports(rule, &m);
		TAKE(match, sport, m.key->src, m.mask->src);
		TAKE(match, dport, m.key->dst, m.mask->dst);
		TAKE(match, ports, true, true);
	}
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_IP)) {
		struct flow_match_ip m;

		flow_rule_match_ip(rule, &m);
		if (m.mask->ttl) {
			NL_SET_ERR_MSG_MOD(extack, "Unsupported key used");
			return -EOPNOTSUPP;
		}
		TAKE(match, tos, m.key->tos, m.mask->tos);
	}
	return 0;
}

static int filter_action(struct simcard *card, struct flow_cls_offload *cls, struct simcard_filter *f,
			 struct netlink_ext_ack *extack)
{
	const struct flow_action_entry *act;
	int tc;

	if (cls->classid) {
		tc = tc_classid_to_hwtc(card->dev, cls->classid);
		if (tc < 0 || tc >= card->num_tc || !card->p.rx_classes) {
			NL_SET_ERR_MSG_MOD(extack, "Unable to add filter because of non-existence destination");
			return -EINVAL;
		}
		if (!tc) {	/* as ice */
			NL_SET_ERR_MSG_MOD(extack, "Unable to add filter because of unsupported destination");
			return -EOPNOTSUPP;
		}
		f->action = SIMCARD_TO_TC;
		f->target = tc;
		return 0;
	}
	if (cls->rule->action.num_entries != 1) {
		NL_SET_ERR_MSG_MOD(extack, "Exactly one action or hw_tc is supported");
		return -EOPNOTSUPP;
	}
	act = &cls->rule->action.entries[0];
	switch (act->id) {
	case FLOW_ACTION_DROP:
		f->action = SIMCARD_DROP;
		return 0;
#if SIMCARD_SINCE(6, 2)
	case FLOW_ACTION_RX_QUEUE_MAPPING:
		if (act->rx_queue >= card->dev->real_num_rx_queues) {
			NL_SET_ERR_MSG_MOD(extack, "Unable to add filter because specified queue is invalid");
			return -EINVAL;
		}
		f->action = SIMCARD_TO_QUEUE;
		f->target = act->rx_queue;
		return 0;
#endif
	default:
		NL_SET_ERR_MSG_MOD(extack, "Unsupported action");
		return -EOPNOTSUPP;
	}
}

static void unlink_filter(struct simcard *card, struct simcard_filter *f)
{
	spin_lock_bh(&card->steer_lock);
	list_del(&f->list);
	card->n_filters--;
	spin_unlock_bh(&card->steer_lock);
	kfree(f);
}

static struct simcard_filter *filter_by_cookie(struct simcard *card, unsigned long cookie)
{
	struct simcard_filter *f;

	list_for_each_entry(f, &card->filters, list)
		if (f->cookie == cookie)
			return f;
	return NULL;
}

static int add_filter(struct simcard *card, struct flow_cls_offload *cls)
{
	struct netlink_ext_ack *extack = cls->common.extack;
	struct list_head *after = &card->filters;
	struct simcard_filter *f, *x, *old = filter_by_cookie(card, cls->cookie);
	int err = simcard_call(card, "add flower filter");

	if (err)
		return err;
	if (card->p.flower_or_rules && card->n_rules) {
		NL_SET_ERR_MSG_MOD(extack, "Flow Director Sideband filters exists, turn ntuple off to configure cloud filters");
		return -EINVAL;
	}
	f = kzalloc(sizeof(*f), GFP_KERNEL);
	if (!f)
		return -ENOMEM;
	f->cookie = cls->cookie;
	f->prio = cls->common.prio;
	err = filter_match(cls->rule, &f->match, extack);
	err = err ?: filter_action(card, cls, f, extack);
	if (err)
		goto free;
	list_for_each_entry(x, &card->filters, list) {
		if (x != old && !memcmp(&x->match, &f->match, sizeof(f->match))) {
			NL_SET_ERR_MSG_MOD(extack, "Unable to add filter because it already exist");
			err = -EEXIST;
			goto free;
		}
	}
	spin_lock_bh(&card->steer_lock);
	if (old) {
		list_del(&old->list);
		card->n_filters--;
	}
	list_for_each_entry(x, &card->filters, list) {
		if (x->prio > f->prio)
			break;
		after = &x->list;
	}
	list_add(&f->list, after);
	card->n_filters++;
	spin_unlock_bh(&card->steer_lock);
	kfree(old);
	return 0;

free:
	kfree(f);
	return err;
}

static int setup_flower(struct simcard *card, struct flow_cls_offload *cls)
{
	struct simcard_filter *f;

	switch (cls->command) {
	case FLOW_CLS_REPLACE:
		return add_filter(card, cls);
	case FLOW_CLS_DESTROY:
		simcard_call(card, "delete flower filter");	/* the core ignores the return value */
		f = filter_by_cookie(card, cls->cookie);
		if (!f)
			return -ENOENT;
		unlink_filter(card, f);
		return 0;
	default:
		return -EINVAL;	/* also for statistics, like ice: ethtool -S has them */
	}
}

/* Removes filters from the card: all, or only those that lead to classes. tc still
 * shows the removed filters as in_hw.
 */
void simcard_filters_forget(struct simcard *card, bool to_classes)
{
	struct simcard_filter *f, *next;

	list_for_each_entry_safe(f, next, &card->filters, list)
		if (!to_classes || f->action == SIMCARD_TO_TC)
			unlink_filter(card, f);
}

static int simcard_block_cb(enum tc_setup_type type, void *type_data, void *cb_priv)
{
	struct simcard *card = cb_priv;
	struct flow_cls_offload *cls = type_data;

	if (type != TC_SETUP_CLSFLOWER)
		return -EOPNOTSUPP;
	if (!(card->dev->features & NETIF_F_HW_TC)) {
		NL_SET_ERR_MSG_MOD(cls->common.extack, "can't apply TC flower filters, turn ON hw-tc-offload and try again");
		return -EINVAL;
	}
	if (cls->common.chain_index) {
		NL_SET_ERR_MSG_MOD(cls->common.extack, "Only chain 0 is supported");
		return -EOPNOTSUPP;
	}
	return setup_flower(card, cls);
}

int simcard_setup_tc(struct net_device *dev, enum tc_setup_type type, void *type_data)
{
	struct simcard *card = simcard_of(dev);

	switch (type) {
	case TC_SETUP_BLOCK:
		return flow_block_cb_setup_simple(type_data, &simcard_blocks, simcard_block_cb, card, card, true);
	case TC_SETUP_QDISC_MQPRIO:
		return setup_mqprio(card, type_data);
	case TC_SETUP_QDISC_HTB:
		return simcard_setup_htb(card, type_data);
	default:
		return -EOPNOTSUPP;
	}
}
