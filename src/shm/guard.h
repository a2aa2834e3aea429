/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_GUARD_H
#define SC_GUARD_H

#include "shm/seg.h"

/* Attached: its bounce buffers are to be written to. -ENOMEM: too many mappings. */
int sc_seg_pool_open(struct sc_seg *seg);

/*
 * Attached: make read-only what is not to be written to from here, but for what is opened before or after. To be called
 * when there is time for it, any number of times.
 */
void sc_seg_guard(struct sc_seg *seg);

/* Attached: that slot has been claimed, for an endpoint of this process, and is to be written to / has it been? */
int sc_guard_open_slot(struct sc_seg *seg, uint32_t slot);
bool sc_guard_has_slot(const struct sc_seg *seg, uint32_t slot);

/* In a forked child, which is alone. */
void sc_guard_fork_child(void);

#endif
