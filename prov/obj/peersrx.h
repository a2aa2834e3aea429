/* SPDX-License-Identifier: BSD-2-Clause */
/* peersrx.h: receives that another provider posts (peersrx.c). */
#ifndef SHMCMA_PEERSRX_H
#define SHMCMA_PEERSRX_H

#include "obj/avtable.h"

/*
 * Makes the receive queue of a shared receive context whose owner is another provider, before another thread knows the
 * context.
 */
int shmcma_peersrx_init(struct shmcma_ep *srx, struct shmcma_srx_owner *owner);

/* An insertion has given names to senders: owners learn the names. With all locks of the domain. */
void shmcma_peersrx_name_locked(struct shmcma_av *av);

#endif
