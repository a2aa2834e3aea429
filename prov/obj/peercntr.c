/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peercntr.c: a counter that belongs to another provider, its owner: FI_PEER, see fi_peer(3).
 *
 * The core counts as for any counter. The owner calls fi_cntr_read(): the call polls, and then counts in the owner's
 * counter, by the owner's functions, all that is new since the last one. No other call does. The application reads the
 * owner's counter. For locks see peercq.c.
 */
#include "obj/peercntr.h"

#include "base/newer.h"
#include "base/peerowner.h"
#include "obj/cntr.h"
#include "obj/peercq.h"
#include "wait/polled.h"

static struct shmcma_cntr *cntr_of(struct fid_cntr *fid)
{
	return container_of(fid, struct shmcma_cntr, fid);
}

static void give(struct shmcma_cntr *cntr, uint64_t *seen, const uint64_t *word, bool error)
{
	for (uint64_t now = sc_cntr_read(word); *seen != now; ++*seen)
		shmcma_owner_count(cntr->owner, error);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	struct shmcma_cntr *cntr = cntr_of(fid);
	bool all = shmcma_cntr_enter(cntr);

	shmcma_progress_locked(cntr->domain, shmcma_cntr_polled(cntr));
	give(cntr, &cntr->seen.value, &cntr->count.value, false);
	give(cntr, &cntr->seen.errors, &cntr->count.errors, true);
	shmcma_cntr_leave(cntr, all);
	return 0;
}

/* The application uses the owner's counter. */
SHMCMA_NO(uint64_t, no_read, 0, struct fid_cntr *cntr)
SHMCMA_NO(int, no_change, -FI_ENOSYS, struct fid_cntr *cntr, uint64_t value)
SHMCMA_NO(int, no_wait, -FI_ENOSYS, struct fid_cntr *cntr, uint64_t threshold, int timeout)

static union shmcma_ops_cntr peer_ops = {
	.size = sizeof(union shmcma_ops_cntr),
	.read = cntr_read,
	.readerr = no_read,
	.add = no_change,
	.set = no_change,
	.wait = no_wait,
	.adderr = no_change,
	.seterr = no_change,
	.export_xpu = shmcma_no_export,
};

int shmcma_peercntr_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out,
			 void *context)
{
	struct shmcma_cntr_owner *owner = shmcma_peer_object("fi_cntr_open", fid, attr->wait_obj, context);
	struct fi_cntr_attr plain = { .events = attr->events,
				      .wait_obj = FI_WAIT_NONE,
				      .flags = attr->flags & ~FI_PEER };
	int ret;

	if (!owner)
		return -FI_EINVAL;
	ret = shmcma_cntr_open(fid, &plain, out, NULL);
	if (ret)
		return ret;
	cntr_of(*out)->owner = owner;
	(*out)->ops = &peer_ops.ops;
	return 0;
}
