/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ATTACH_H
#define SC_ATTACH_H

#include "shm/seg.h"

/* Registers what a forked child does, once. False: it cannot be told of a fork. */
bool sc_attach_init(void);

/*
 * Map the segment of the endpoint with that address (endpoint form). File type, owner, mode, links and
 * size are checked against the geometry before anything in it is believed. The outcomes:
 * -EINVAL no address; -EHOSTUNREACH other host; -ECONNREFUSED no such file or dead owner; -EACCES wrong
 * file type, owner or mode; -EPROTO not a segment, or another layout or version; -EMFILE, -ENOMEM.
 */
int sc_seg_attach(const char *addr, struct sc_seg **seg);

/*
 * Map what an endpoint has left: as above, but nobody holds its life lock, or it has closed with messages
 * unread (sc_seg.keep_name). When they are read, sc_seg_leave() is to follow if it has closed, and
 * sc_reap_name() if it has died.
 */
int sc_seg_attach_left(const char *addr, struct sc_seg **seg);

/*
 * One of the peers for which a closed segment has kept its name has read it, or never will; the last removes the name.
 */
void sc_seg_leave(struct sc_seg *seg);

void sc_seg_detach(struct sc_seg *seg);

/*
 * The next attached segment after `after` (NULL: the first) whose owner has yet to let in an endpoint of that ticket,
 * which is one of this process's; it is the caller's to detach. `after` is detached.
 */
struct sc_seg *sc_seg_next_claimed(struct sc_seg *after, uint64_t ticket);

/* Does sc_seg_next_claimed() find all attached segments? False: for some there was no memory. */
bool sc_seg_finds_all(void);

/* Would sc_seg_attach() find a live segment? Same outcomes; nothing is mapped. */
int sc_seg_find(const char *addr);

/*
 * The same for one that is likely to be attached soon: the segment that has been found is kept, and only looked at
 * again when it is attached. As long as this process has a segment of its own, and no more than SC_FOUND_MAX (found.h).
 */
int sc_seg_find_ahead(const char *addr);

#endif
