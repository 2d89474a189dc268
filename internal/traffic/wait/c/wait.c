/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Follows requests through this host, from the card to the service and its answer back to
 * the card, by tracepoints.
 */
#include "wait.h"
#include "front.h"
#include "tcp.h"
#include "udp.h"
#include "stamp.h"
#include "rx.h"
#include "tx.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
