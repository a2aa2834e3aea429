/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_REQUEST_H
#define SC_REQUEST_H

#include <stdbool.h>
#include "link/state.h"

/* Queues an operation behind the others, and counts it as pending. Requests that have space are written at once. */
void sc_request_queue(struct sc_rma_op *op);

/*
 * Tells whether a put to `count` ranges may be queued that needs no later call, while no other request is queued: all its
 * records can be written at once, or the endpoint has too few bounce buffers for that although the peer has returned its
 * own. False: not now, or the peer has been given up.
 */
bool sc_request_fits(struct sc_peer *peer, const struct sc_remote *remote, size_t count);

/* The operation is done, and the peer's application must hear of it: it becomes a note. It is in a list of the peer. */
void sc_request_note(struct sc_rma_op *op);

/* Tells whether an atomic of `size` bytes is one record, and no other request must be written before it. */
bool sc_request_is_one(const struct sc_peer *peer, const struct sc_atomic *atomic, size_t size);

/*
 * Writes the one record of an atomic. `op` waits for the answer, and is counted as pending; NULL: there is no answer, and
 * the caller completes the operation. -EAGAIN: no space; else the error of the peer. An error leaves `op` to the caller.
 */
int sc_request_one(struct sc_peer *peer, const struct sc_atomic *atomic, size_t size,
		   struct sc_rma_op *op);

/* Takes an answer of the target. -EPROTO: it answers no request; *why may say more. */
int sc_request_take(struct sc_peer *peer, uint64_t ctl, const char **why);

/* Writes records of operations that wait for space. Returns their number. */
int sc_request_progress(struct sc_peer *peer);

#endif
