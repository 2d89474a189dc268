// SPDX-License-Identifier: GPL-2.0-only
/*
 * devlink parameters. They have the names of those in Intel's out-of-tree ice:
 * tcN_inline_fd, tcN_qps_per_poller and tcN_poller_timeout for classes 1 to 15.
 */
#include <net/devlink.h>

#include "simcard.h"

enum { INLINE_FD, QPS_PER_POLLER, POLLER_TIMEOUT, KINDS };

static const char *const kind_name[KINDS] = { "inline_fd", "qps_per_poller", "poller_timeout" };

#define N_PARAMS	((SIMCARD_MAX_TC - 1) * KINDS)
#define FIRST_ID	(DEVLINK_PARAM_GENERIC_ID_MAX + 1)

static char param_name[N_PARAMS][24];
static struct devlink_param params[N_PARAMS];

static struct simcard_poller *poller_of(struct devlink *devlink, u32 id, int *kind)
{
	struct simcard *card = *(struct simcard **)devlink_priv(devlink);

	*kind = (id - FIRST_ID) % KINDS;
	return &card->poller[1 + (id - FIRST_ID) / KINDS];
}

static int get(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx)
{
	int kind;
	struct simcard_poller *p = poller_of(devlink, id, &kind);

	switch (kind) {
	case INLINE_FD:
		ctx->val.vbool = p->inline_fd;
		break;
	case QPS_PER_POLLER:
		ctx->val.vu8 = p->qps;
		break;
	case POLLER_TIMEOUT:
		ctx->val.vu32 = p->timeout;
		break;
	}
	return 0;
}

static int set(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx)
{
	struct simcard *card = *(struct simcard **)devlink_priv(devlink);
	int kind, err = simcard_call(card, "devlink parameter");
	struct simcard_poller *p = poller_of(devlink, id, &kind);

	if (err)
		return err;
	switch (kind) {
	case INLINE_FD:
		WRITE_ONCE(p->inline_fd, ctx->val.vbool);
		break;
	case QPS_PER_POLLER:
		p->qps = ctx->val.vu8;
		simcard_lock(card->dev);
		err = simcard_restart(card);
		simcard_unlock(card->dev);
		break;
	case POLLER_TIMEOUT:
		p->timeout = ctx->val.vu32;
		break;
	}
	return err;
}

#if SIMCARD_SINCE(7, 0)
static int param_get(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx, struct netlink_ext_ack *extack)
{
	return get(devlink, id, ctx);
}
#else
#define param_get get
#endif

#if SIMCARD_SINCE(6, 8)
static int param_set(struct devlink *devlink, u32 id, struct devlink_param_gset_ctx *ctx, struct netlink_ext_ack *extack)
{
	return set(devlink, id, ctx);
}
#else
#define param_set set
#endif

#if SIMCARD_SINCE(7, 0)
#define PARAM_VALUE(v) (v)
static int validate(struct devlink *devlink, u32 id, union devlink_param_value *v, struct netlink_ext_ack *extack)
#else
#define PARAM_VALUE(v) (&(v))
static int validate(struct devlink *devlink, u32 id, union devlink_param_value v, struct netlink_ext_ack *extack)
#endif
{
	int kind;

	poller_of(devlink, id, &kind);
	if (kind == POLLER_TIMEOUT && !PARAM_VALUE(v)->vu32) {
		NL_SET_ERR_MSG_MOD(extack, "the timeout must not be zero");
		return -EINVAL;
	}
	return 0;
}

static const enum devlink_param_type kind_type[KINDS] = {
	DEVLINK_PARAM_TYPE_BOOL, DEVLINK_PARAM_TYPE_U8, DEVLINK_PARAM_TYPE_U32,
};

static void make_params(void)
{
	int i;

	for (i = 0; i < N_PARAMS; i++) {
		snprintf(param_name[i], sizeof(param_name[i]), "tc%d_%s", 1 + i / KINDS, kind_name[i % KINDS]);
		params[i] = (struct devlink_param)DEVLINK_PARAM_DRIVER(FIRST_ID + i, param_name[i], kind_type[i % KINDS],
			BIT(DEVLINK_PARAM_CMODE_RUNTIME), param_get, param_set, validate);
	}
}

/*
 * For each queue, sets the leader: the queue whose NAPI polls it. In a traffic
 * class, one NAPI polls qps_per_poller queues, and the first of them leads. HTB's
 * transmit queues come after the channels' queues, which lead them. Call only
 * while no NAPI runs, because two NAPIs must not poll one queue.
 */
void simcard_pollers_apply(struct simcard *card)
{
	unsigned int channels = card->dev->real_num_rx_queues, i, k, tc;

	for (i = 0; i < card->p.queues; i++)
		WRITE_ONCE(card->queue[i].leader, &card->queue[i < channels ? i : i % channels]);
	for (tc = 1; tc < card->num_tc; tc++) {
		unsigned int qps = card->poller[tc].qps, first = card->tc_offset[tc];

		for (k = 0; qps > 1 && k < card->tc_count[tc]; k++)
			WRITE_ONCE(card->queue[first + k].leader, &card->queue[first + k - k % qps]);
	}
}

static const struct devlink_ops simcard_devlink_ops = {};

struct simcard *simcard_alloc(struct platform_device *pdev)
{
	struct devlink *devlink;
	struct simcard *card;
	int i;

	card = kvzalloc(sizeof(*card), GFP_KERNEL);
	if (!card)
		return NULL;
	card->inline_fd = kvcalloc(SIMCARD_INLINE_SLOTS, sizeof(*card->inline_fd), GFP_KERNEL);
	devlink = devlink_alloc(&simcard_devlink_ops, sizeof(card), &pdev->dev);
	if (!devlink || !card->inline_fd) {
		if (devlink)
			devlink_free(devlink);
		kvfree(card->inline_fd);
		kvfree(card);
		return NULL;
	}
	*(struct simcard **)devlink_priv(devlink) = card;
	card->devlink = devlink;
	card->pdev = pdev;
	for (i = 0; i < SIMCARD_MAX_TC; i++)
		card->poller[i].timeout = 10000;	/* adqsetup's default */
	return card;
}

void simcard_free(struct simcard *card)
{
	devlink_free(card->devlink);
	kvfree(card->inline_fd);
	kvfree(card);
}

int simcard_devlink_create(struct simcard *card)
{
	int err;

	if (!params[0].name)
		make_params();
	err = devlink_params_register(card->devlink, params, N_PARAMS);
	if (!err)
		devlink_register(card->devlink);
	return err;
}

void simcard_devlink_destroy(struct simcard *card)
{
	devlink_unregister(card->devlink);
	devlink_params_unregister(card->devlink, params, N_PARAMS);
}
