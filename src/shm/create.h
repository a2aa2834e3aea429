/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CREATE_H
#define SC_CREATE_H

#include <shmcma/core.h>
#include "shm/seg.h"

/* The contents of a new segment; see struct sc_config. */
struct sc_seg_geometry {
	uint32_t slots;
	uint32_t buf_size, buf_count;
	uint32_t bufs_first; /* of them to have memory from the start; 0: all */
	uint64_t window;
	uint32_t capabilities;
	uint32_t regs, ranges;	       /* limits of the registration table; 0: none */
	const struct sc_ep_name *name; /* that it is to have, NULL: a new one; */
	uint16_t index;		       /* under it */
};

/*
 * Create, fill, lock and name this process's segment: a named segment whose life lock is free is dead
 * by construction. With too little shared memory fewer buffers are given it (half, down to 2).
 * -EINVAL: no possible geometry; -EADDRINUSE: there is one of that name and index; -ENOSPC, -EMFILE, -ENOMEM, -EACCES...
 */
int sc_seg_create(const struct sc_seg_geometry *geometry, struct sc_seg **seg);

/* Unlink, unlock, unmap. In a forked child: nothing of the parent's is touched. */
void sc_seg_destroy(struct sc_seg *seg);

#endif
