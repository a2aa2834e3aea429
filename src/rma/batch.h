/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_BATCH_H
#define SC_BATCH_H

#include "link/state.h"

/*
 * Put off a direct put or get, of `size` bytes, one of a stream, to be done with others. -EOPNOTSUPP: it is not one to
 * be put off, or not just now; nothing has been done. -EAGAIN: no memory.
 */
int sc_batch_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size);

/* Of so many bytes, so many are copied in one call. */
uint32_t sc_batch_together(size_t size);

int sc_batch_settle_slow(struct sc_peer *peer);

/* Before anything goes another way: do what has been put off. -EAGAIN: not now; else what has become of the peer. */
static inline int sc_batch_settle(struct sc_peer *peer)
{
	return __builtin_expect(sc_list_empty(&peer->batch), 1) ? 0 : sc_batch_settle_slow(peer);
}

/* Do what has been put off. Returns the operations done. */
int sc_batch_progress(struct sc_ep *ep);

/* The endpoint closes: operations that were put off are done. Before anything else of it ends. */
void sc_batch_fini(struct sc_ep *ep);

#endif
