/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ATTACH_H
#define SC_ATTACH_H

#include "shm/seg.h"

/* Registers the fork handler, once. False: that failed, so forks go unnoticed. */
bool sc_attach_init(void);

/*
 * Maps the segment of the endpoint with this address (endpoint form). File type, owner, mode, links and size are
 * checked, then the geometry, before anything else in the file is believed. Outcomes: -EINVAL no address; -EHOSTUNREACH
 * other host; -ECONNREFUSED no such file or dead owner; -EACCES wrong file type, owner or mode; -EPROTO not a segment,
 * or another layout or version; -EMFILE, -ENOMEM.
 */
int sc_seg_attach(const char *addr, struct sc_seg **seg);

/*
 * The same for an endpoint that is gone: its life lock is free, or it has closed with messages unread
 * (sc_seg.keep_name). When the caller has read them, it calls sc_seg_leave() if the endpoint has closed, and
 * sc_reap_name() if it has died.
 */
int sc_seg_attach_left(const char *addr, struct sc_seg **seg);

/* One of the peers for which a closed segment keeps its name needs it no more; the last one removes the name. */
void sc_seg_leave(struct sc_seg *seg);

void sc_seg_detach(struct sc_seg *seg);

/*
 * Returns the next attached segment after `after` (NULL: the first) whose owner has not yet answered an endpoint of
 * this process with that ticket. The caller detaches it; `after` is detached here.
 */
struct sc_seg *sc_seg_next_claimed(struct sc_seg *after, uint64_t ticket);

/* Tells whether sc_seg_next_claimed() finds all attached segments. False: memory was short for some. */
bool sc_seg_finds_all(void);

/* Tells whether sc_seg_attach() would find a live segment: same outcomes, but maps nothing. */
int sc_seg_find(const char *addr);

#endif
