// SPDX-License-Identifier: GPL-2.0-only
/* Module entry and exit: they create and remove the cards. */
#include <linux/module.h>

#include "simcard.h"

static unsigned int cards = 1;
module_param(cards, uint, 0444);
MODULE_PARM_DESC(cards, "number of cards, each with its wire (default 1)");

#define MAX_CARDS 16

static struct platform_device *simcard_pdev[MAX_CARDS];

static int simcard_probe(struct platform_device *pdev)
{
	struct simcard *card = simcard_alloc(pdev);
	int err;

	if (!card)
		return -ENOMEM;
	err = simcard_params_init(&card->p);
	if (err)
		goto free;
	err = simcard_irq_create(card);
	if (err)
		goto free;
	err = simcard_clock_create(card);
	if (err)
		goto irq;
	err = simcard_wire_create(card, pdev->id);
	if (err)
		goto clock;
	err = simcard_netdev_create(card, pdev->id);
	if (err)
		goto wire;
	err = simcard_wire_register(card);
	if (err)
		goto netdev;
	err = simcard_devlink_create(card);
	if (err)
		goto registered;
	platform_set_drvdata(pdev, card);
	return 0;

registered:
	simcard_wire_unregister(card);
netdev:
	simcard_netdev_destroy(card);
wire:
	simcard_wire_destroy(card);
clock:
	simcard_clock_destroy(card);
irq:
	simcard_irq_destroy(card);
free:
	simcard_free(card);
	return err;
}

static void simcard_unplug(struct platform_device *pdev)
{
	struct simcard *card = platform_get_drvdata(pdev);

	simcard_devlink_destroy(card);
	/* Unregister the wire first, so that no more frames arrive. */
	simcard_wire_unregister(card);
	simcard_netdev_destroy(card);
	simcard_wire_destroy(card);
	simcard_clock_destroy(card);
	simcard_irq_destroy(card);
	simcard_free(card);
}

#if SIMCARD_SINCE(6, 11)
#define simcard_remove simcard_unplug
#else
static int simcard_remove(struct platform_device *pdev)
{
	simcard_unplug(pdev);
	return 0;
}
#endif

static struct platform_driver simcard_driver = {
	.driver.name = "simcard",
	.probe = simcard_probe,
	.remove = simcard_remove,
};

static void simcard_unregister(void)
{
	int i;

	for (i = 0; i < MAX_CARDS; i++)
		platform_device_unregister(simcard_pdev[i]);
	platform_driver_unregister(&simcard_driver);
}

static int __init simcard_init(void)
{
	struct simcard_params p;
	int err, i;

	if (cards > MAX_CARDS) {
		pr_err("simcard: cards=%u: at most %u\n", cards, MAX_CARDS);
		return -EINVAL;
	}
	err = simcard_params_init(&p);
	if (err)
		return err;
	simcard_ethtool_rss(&simcard_ethtool_ops);
	err = platform_driver_register(&simcard_driver);
	if (err)
		return err;
	for (i = 0; i < cards; i++) {
		struct platform_device *pdev = platform_device_register_simple("simcard", i, NULL, 0);

		err = PTR_ERR_OR_ZERO(pdev);
		if (err)
			goto unregister;
		simcard_pdev[i] = pdev;
		if (!platform_get_drvdata(pdev)) {	/* the log has the probe's error */
			err = -ENODEV;
			goto unregister;
		}
	}
	return 0;

unregister:
	simcard_unregister();
	return err;
}
module_init(simcard_init);

static void __exit simcard_exit(void)
{
	simcard_unregister();
}
module_exit(simcard_exit);

MODULE_DESCRIPTION("Simulated multi-queue Ethernet card");
MODULE_LICENSE("GPL");
