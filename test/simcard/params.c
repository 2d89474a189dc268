// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module parameters. A card's properties are read once, when it is created.
 * Quirks and faults can be changed at any time.
 */
#include <linux/atomic.h>
#include <linux/module.h>

#include "simcard.h"

static char *driver = "simcard";
module_param(driver, charp, 0444);
MODULE_PARM_DESC(driver, "name that ethtool -i and the interrupts show (default simcard)");

static unsigned int queues = 8;
module_param(queues, uint, 0444);
MODULE_PARM_DESC(queues, "most channels a card can have (default 8)");

static unsigned int channels;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "channels at the start (default: online processors)");

static unsigned int indir = 128;
module_param(indir, uint, 0444);
MODULE_PARM_DESC(indir, "entries of an RSS table, a power of two (default 128)");

static bool indir_follows;
module_param(indir_follows, bool, 0444);
MODULE_PARM_DESC(indir_follows, "RSS tables have four entries for each channel, rounded up, as on mlx5, instead of indir");

unsigned int simcard_contexts = 16;
module_param_named(contexts, simcard_contexts, uint, 0444);
MODULE_PARM_DESC(contexts, "number of RSS contexts, with the default one; 1: only the default one (default 16)");

static unsigned int rules = 256;
module_param(rules, uint, 0444);
MODULE_PARM_DESC(rules, "number of ntuple rules that fit; 0: the card has no rules (default 256)");

static unsigned int speed = 25000;
module_param(speed, uint, 0444);
MODULE_PARM_DESC(speed, "the link's speed in Mbit/s, which limits transmission (default 25000)");

static bool any_location;
module_param(any_location, bool, 0444);
MODULE_PARM_DESC(any_location, "the card picks rules' locations, as bnxt and sfc do");

static bool rules_v4_only;
module_param(rules_v4_only, bool, 0444);
MODULE_PARM_DESC(rules_v4_only, "no ntuple rules on IPv6, as ixgbe");

static bool flower_or_rules;
module_param(flower_or_rules, bool, 0444);
MODULE_PARM_DESC(flower_or_rules, "flower filters and ntuple rules exclude each other, as on i40e");

static bool rx_classes = true;
module_param(rx_classes, bool, 0444);
MODULE_PARM_DESC(rx_classes, "mqprio's traffic classes also have receive queues, as on ice; off: only transmit queues, as on mlx5 (default on)");

static bool pow2;
module_param(pow2, bool, 0444);
MODULE_PARM_DESC(pow2, "mqprio's queue counts are powers of two, except the largest, as on ice");

static bool no_min_rate;
module_param(no_min_rate, bool, 0444);
MODULE_PARM_DESC(no_min_rate, "mqprio's min_rate is refused, as on i40e and mlx5");

static bool htb_shares;
module_param(htb_shares, bool, 0444);
MODULE_PARM_DESC(htb_shares, "HTB's guarantees are shares of whole hundredths, its limits whole Mbit/s, and it takes neither prio nor quantum, as on mlx5");

static bool shaper = true;
module_param(shaper, bool, 0444);
MODULE_PARM_DESC(shaper, "the card is shaped by net-shaper, where the kernel has it (default on)");

static bool dcb;
module_param(dcb, bool, 0444);
MODULE_PARM_DESC(dcb, "the driver has dcbnl, and the card trusts DSCP, then PCP");

static bool clock = true;
module_param(clock, bool, 0444);
MODULE_PARM_DESC(clock, "the card has a clock, and can stamp received frames (default on)");

static bool clock_precise;
module_param(clock_precise, bool, 0444);
MODULE_PARM_DESC(clock_precise, "the card reads its clock and the host's at the same time, as cards with PTM do");

static long clock_offset;
module_param(clock_offset, long, 0444);
MODULE_PARM_DESC(clock_offset, "time by which the card's clock is ahead of CLOCK_REALTIME at the start, in ns (default 0)");

static int clock_drift;
module_param(clock_drift, int, 0444);
MODULE_PARM_DESC(clock_drift, "how much too fast the card's clock runs, in parts per 10^9 (default 0)");

bool simcard_no_shrink;
module_param_named(no_shrink, simcard_no_shrink, bool, 0644);
MODULE_PARM_DESC(no_shrink, "refuse to reduce channels");

bool simcard_forgets;
module_param_named(forgets, simcard_forgets, bool, 0644);
MODULE_PARM_DESC(forgets, "lose all settings when the link goes down");

bool simcard_channel_is_dcb;
module_param_named(channel_is_dcb, simcard_channel_is_dcb, bool, 0644);
MODULE_PARM_DESC(channel_is_dcb, "accept mqprio's mode channel and do DCB, as bnxt and ixgbe do");

bool simcard_mqprio_takes_rules;
module_param_named(mqprio_takes_rules, simcard_mqprio_takes_rules, bool, 0644);
MODULE_PARM_DESC(mqprio_takes_rules, "removing mqprio removes all ntuple rules, as on ice");

bool simcard_mqprio_resizes;
module_param_named(mqprio_resizes, simcard_mqprio_resizes, bool, 0644);
MODULE_PARM_DESC(mqprio_resizes, "mqprio sets the channels to the sum of its queues, and to the online processors when it goes, as on ice");

static unsigned int burst_us = 4000;
module_param(burst_us, uint, 0644);
MODULE_PARM_DESC(burst_us, "amount that a rate may send at once after a pause, in microseconds of that rate (default 4000)");

static int fail_errno = EIO;
module_param(fail_errno, int, 0644);
MODULE_PARM_DESC(fail_errno, "error of the call that fails (default 5, EIO)");

/* Each call that configures a card decrements this. At 1, the call fails; 0: none fails. */
static atomic_t fail_in = ATOMIC_INIT(0);
static atomic_t calls = ATOMIC_INIT(0);

static int set_atomic(const char *value, const struct kernel_param *kp)
{
	int n, err = kstrtoint(value, 0, &n);

	if (!err)
		atomic_set(kp->arg, n);
	return err;
}

static int get_atomic(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%d\n", atomic_read((atomic_t *)kp->arg));
}

static const struct kernel_param_ops atomic_ops = { .set = set_atomic, .get = get_atomic };

module_param_cb(fail_in, &atomic_ops, &fail_in, 0644);
MODULE_PARM_DESC(fail_in, "fail this configuring call, counted from now: 1 is the next; 0: none");
module_param_cb(calls, &atomic_ops, &calls, 0644);
MODULE_PARM_DESC(calls, "number of calls that have configured a card");

static int wrong(const char *name, unsigned int value, unsigned int low, unsigned int high)
{
	if (value >= low && value <= high)
		return 0;
	pr_err("simcard: %s=%u: must be %u to %u\n", name, value, low, high);
	return -EINVAL;
}

/* Returns the table size with n channels; 0 if the size is fixed. */
u32 simcard_indir_of(const struct simcard_params *p, unsigned int n)
{
	return p->indir_follows ? min_t(u32, roundup_pow_of_two(4 * n), SIMCARD_MAX_INDIR) : 0;
}

int simcard_params_init(struct simcard_params *p)
{
	unsigned int n = channels ?: min(queues, num_online_cpus());

	if (wrong("queues", queues, 1, SIMCARD_MAX_QUEUES) || wrong("channels", n, 1, queues) ||
	    wrong("indir", indir, 1, SIMCARD_MAX_INDIR) ||
	    wrong("contexts", simcard_contexts, 1, SIMCARD_MAX_CONTEXTS) ||
	    wrong("rules", rules, 0, 65536) || wrong("speed", speed, 1, 1000000))
		return -EINVAL;
	if (indir & (indir - 1)) {
		pr_err("simcard: indir=%u: must be a power of two\n", indir);
		return -EINVAL;
	}
	strscpy(p->driver, driver, sizeof(p->driver));
	p->queues = queues;
	p->channels = n;
	p->indir_follows = indir_follows;
	p->indir = simcard_indir_of(p, n) ?: indir;
	p->contexts = simcard_contexts;
	p->rules = rules;
	p->speed = speed;
	p->any_location = any_location;
	p->rules_v4_only = rules_v4_only;
	p->flower_or_rules = flower_or_rules;
	p->rx_classes = rx_classes;
	p->pow2 = pow2;
	p->no_min_rate = no_min_rate;
	p->htb_shares = htb_shares;
	p->shaper = shaper;
	p->dcb = dcb;
	p->clock = clock;
	p->clock_precise = clock_precise;
	p->clock_offset = clock_offset;
	p->clock_drift = clock_drift;
	return 0;
}

u64 simcard_burst_ns(void)
{
	return (u64)READ_ONCE(burst_us) * NSEC_PER_USEC;
}

/*
 * Every call that configures a card calls this function before it changes anything.
 * Returns 0, or the error with which the configuring call must fail.
 */
int simcard_call(struct simcard *card, const char *what)
{
	atomic_inc(&calls);
	if (atomic_read(&fail_in) > 0 && atomic_dec_return(&fail_in) == 0) {
		netdev_info(card->dev, "failing %s as asked\n", what);
		return -abs(fail_errno);
	}
	return 0;
}
