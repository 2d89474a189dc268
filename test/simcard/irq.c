// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts of the card. Each has a number, a name, counts and an effective
 * affinity: its handler runs on the processor that the affinity names, which gets
 * an inter-processor interrupt for it.
 *
 * Like MSI-X on real cards, an interrupt masks itself. NAPI unmasks it when NAPI
 * has no more work. Moderation delays the interrupt.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/topology.h>

#include "simcard.h"

static int simcard_irq_set_affinity(struct irq_data *d, const struct cpumask *mask, bool force)
{
	struct simcard_queue *q = irq_data_get_irq_chip_data(d);
	unsigned int cpu = cpumask_any_and(mask, cpu_online_mask);

	if (cpu >= nr_cpu_ids)
		return -EINVAL;
	WRITE_ONCE(q->cpu, cpu);
	irq_data_update_effective_affinity(d, cpumask_of(cpu));
	return IRQ_SET_MASK_OK;
}

static void simcard_irq_noop(struct irq_data *d)
{
}

static struct irq_chip simcard_chip = {
	.name = "simcard",
	.irq_mask = simcard_irq_noop,
	.irq_unmask = simcard_irq_noop,
	.irq_set_affinity = simcard_irq_set_affinity,
};

static irqreturn_t simcard_irq_handler(int irq, void *arg)
{
	struct simcard_queue *q = arg;

	atomic64_inc(&q->interrupts);
	napi_schedule_irqoff(&q->napi);
	return IRQ_HANDLED;
}

/* Runs on the interrupt's processor, with interrupts off. */
static void simcard_irq_arrives(void *arg)
{
	struct simcard_queue *q = arg;

	generic_handle_irq_safe(q->irq);
}

static void simcard_irq_raise(struct simcard_queue *q)
{
	if (!test_bit(SIMCARD_Q_UP, &q->state) || test_and_set_bit(SIMCARD_Q_MASKED, &q->state))
		return;
	/* The result may be -EBUSY: then an interrupt is on its way already. */
	smp_call_function_single_async(READ_ONCE(q->cpu), &q->csd);
}

static enum hrtimer_restart simcard_irq_moderated(struct hrtimer *timer)
{
	simcard_irq_raise(container_of(timer, struct simcard_queue, moderation));
	return HRTIMER_NORESTART;
}

/* The queue has work for NAPI, which must look at it within usecs. */
void simcard_irq_event(struct simcard_queue *q, u32 usecs, bool now)
{
	ktime_t at;

	smp_mb();	/* First add to the queue, then read the mask; pairs with simcard_poll(). */
	if (!test_bit(SIMCARD_Q_UP, &q->state) || test_bit(SIMCARD_Q_MASKED, &q->state))
		return;
	if (now || !usecs) {
		/* The time starts again with the next event. */
		hrtimer_try_to_cancel(&q->moderation);
		simcard_irq_raise(q);
		return;
	}
	at = ktime_add_us(ktime_get(), usecs);
	if (!hrtimer_is_queued(&q->moderation) || ktime_before(at, hrtimer_get_expires(&q->moderation)))
		hrtimer_start(&q->moderation, at, HRTIMER_MODE_ABS);
}

/* Adaptive moderation: interrupts of a busy queue are delayed, others come at once. */
#define ADAPTIVE_USECS	50
#define ADAPTIVE_FRAMES	16

static u32 adaptive(const struct simcard_queue *q)
{
	return READ_ONCE(q->last_poll) >= ADAPTIVE_FRAMES ? ADAPTIVE_USECS : 0;
}

void simcard_rx_event(struct simcard_queue *q)
{
	struct simcard_queue *l = READ_ONCE(q->leader);
	const struct simcard_coalesce *c = &q->coalesce;

	simcard_irq_event(l, c->adaptive_rx ? adaptive(l) : c->rx_usecs,
			  c->rx_frames && skb_queue_len_lockless(&q->rx) >= c->rx_frames);
}

void simcard_tx_event(struct simcard_queue *q)
{
	struct simcard_queue *l = READ_ONCE(q->leader);
	const struct simcard_coalesce *c = &q->coalesce;

	/* A stopped queue waits for room in the ring, so do not delay its interrupt. */
	simcard_irq_event(l, c->adaptive_tx ? adaptive(l) : c->tx_usecs,
			  netif_xmit_stopped(netdev_get_tx_queue(q->card->dev, q->index)));
}

int simcard_irq_create(struct simcard *card)
{
	unsigned int i;

	card->queue = kvcalloc(card->p.queues, sizeof(*card->queue), GFP_KERNEL);
	if (!card->queue)
		return -ENOMEM;
	/* The owner is NULL, so that an interrupt in use does not keep the module loaded. */
	card->irq_base = __irq_alloc_descs(-1, 1, card->p.queues, NUMA_NO_NODE, NULL, NULL);
	if (card->irq_base < 0) {
		kvfree(card->queue);
		return card->irq_base;
	}
	for (i = 0; i < card->p.queues; i++) {
		struct simcard_queue *q = &card->queue[i];

		q->card = card;
		q->index = i;
		q->leader = q;
		q->irq = card->irq_base + i;
		q->cpu = cpumask_local_spread(i, NUMA_NO_NODE);
		INIT_CSD(&q->csd, simcard_irq_arrives, q);
		simcard_hrtimer_setup(&q->moderation, simcard_irq_moderated, HRTIMER_MODE_ABS);
		irq_set_chip_and_handler(q->irq, &simcard_chip, handle_simple_irq);
		irq_set_chip_data(q->irq, q);
		irq_modify_status(q->irq, IRQ_NOREQUEST | IRQ_NOAUTOEN, IRQ_NOPROBE);
		simcard_irq_movable(q->irq);
	}
	return 0;
}

static void simcard_irq_flush(void *unused)
{
}

void simcard_irq_destroy(struct simcard *card)
{
	/* After this call, no interrupt is on its way to another processor. */
	on_each_cpu(simcard_irq_flush, NULL, 1);
	irq_free_descs(card->irq_base, card->p.queues);
	kvfree(card->queue);
}

/* Requests the interrupt. Drivers choose their own names; ice, i40e and iavf use this form. */
int simcard_irq_request(struct simcard_queue *q)
{
	struct simcard *card = q->card;
	int err;

	snprintf(q->irq_name, sizeof(q->irq_name), "%s-%s-TxRx-%u", card->p.driver, card->dev->name, q->index);
	err = request_irq(q->irq, simcard_irq_handler, 0, q->irq_name, q);
	if (err)
		return err;
	irq_set_affinity_and_hint(q->irq, cpumask_of(cpumask_local_spread(q->index, NUMA_NO_NODE)));
	return 0;
}

void simcard_irq_free(struct simcard_queue *q)
{
	irq_update_affinity_hint(q->irq, NULL);
	free_irq(q->irq, q);
}
