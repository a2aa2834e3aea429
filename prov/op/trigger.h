/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * trigger.h: operations that wait for a counter (trigger.c).
 *
 * A data call with SHMCMA_TRIGGER among its flags passes its operation to one of these functions. They copy all that it
 * points to, except payload that is not injected. An operation whose counter has reached the threshold is posted at
 * once.
 */
#ifndef SHMCMA_TRIGGER_H
#define SHMCMA_TRIGGER_H

#include "wait/objects.h"

/* FI_TRIGGER as a flag of an operation; the core never sees it. */
#define SHMCMA_TRIGGER (1u << 31)

/*
 * `context` is the application's struct fi_triggered_context. -FI_EOPNOTSUPP: the endpoint does not have FI_TRIGGER;
 * -FI_ENOSYS: not a threshold; -FI_EINVAL: no such counter or peer; -FI_EAGAIN: no memory.
 */
ssize_t shmcma_trigger_send(struct shmcma_ep_fid *fid, fi_addr_t dest, const struct sc_send *send);
ssize_t shmcma_trigger_recv(struct shmcma_ep_fid *fid, fi_addr_t source, const struct sc_recv *recv);
ssize_t shmcma_trigger_rma(struct shmcma_ep_fid *fid, fi_addr_t peer, const struct sc_rma *rma);
ssize_t shmcma_trigger_atomic(struct shmcma_ep_fid *fid, fi_addr_t peer, const struct sc_atomic *atomic);

/* fi_control() of a domain: FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK. -FI_ENOSYS: another command. */
int shmcma_trigger_control(struct fid *fid, int command, void *arg);

#endif
