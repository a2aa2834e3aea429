/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_GUARD_H
#define SC_GUARD_H

#include "shm/seg.h"

/* Attached: makes the bounce buffers writable. -ENOMEM: too many mappings. */
int sc_seg_pool_open(struct sc_seg *seg);

/*
 * Attached: makes read-only what this process must not write, except for parts opened before or later. The caller calls
 * it when it has time, any number of times.
 */
void sc_seg_guard(struct sc_seg *seg);

/* Attached: makes a slot writable that an endpoint of this process has claimed; tells whether this was done. */
int sc_guard_open_slot(struct sc_seg *seg, uint32_t slot);
bool sc_guard_has_slot(const struct sc_seg *seg, uint32_t slot);

#endif
