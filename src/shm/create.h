/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CREATE_H
#define SC_CREATE_H

#include <shmcma/core.h>
#include "shm/seg.h"

/*
 * The sizes of a new segment, which struct sc_config explains. The endpoint that creates the segment keeps them within the
 * limits that header.c checks.
 */
struct sc_seg_geometry {
	uint32_t slots;
	uint32_t buf_size, buf_count;
	uint32_t bufs_first; /* buffers with memory from the start; 0: all */
	uint64_t window;
	uint32_t capabilities;
	uint32_t regs, ranges;	       /* limits of the registration table; 0: none */
	/* Counters of the endpoint, for the command shmcma; NULL: none. */
	const struct sc_counters *counters;
	const uint32_t *free_bufs;     /* sc_pool.free_count, within 2 GiB of `counters` */
	const struct sc_ep_name *name; /* name of the endpoint, NULL: a new one; */
	uint16_t index;		       /* its index under that name */
};

/*
 * Creates, fills, locks and names the segment of an endpoint, in this order: so a named segment whose life lock is free
 * is dead. If shared memory is short, fewer buffers get memory (half as many, down to 2). -EADDRINUSE: name and index
 * are taken; -ENOSPC, -EMFILE, -ENOMEM, -EACCES...
 */
int sc_seg_create(const struct sc_seg_geometry *geometry, struct sc_seg **seg);

/* Unlinks, unlocks, unmaps. A forked child touches nothing of its parent. */
void sc_seg_destroy(struct sc_seg *seg);

#endif
