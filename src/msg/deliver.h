/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DELIVER_H
#define SC_DELIVER_H

#include "msg/rxop.h"

/*
 * Delivers a message to a receive that matches it. The receive ends, unless it is a multi-receive with space left or
 * waits for earlier ones (SC_ORDER_RECEIVE). A rendezvous, or a message in parts, only begins. -ENOMEM (multi-receive
 * only): nothing has changed.
 */
int sc_deliver_message(struct sc_rx_op *op, const struct sc_message *message);

/* Delivers a message to the posted receive that matches. Returns 1; 0: there is none; -ENOMEM: nothing has changed. */
int sc_deliver_to_posted(const struct sc_message *message);

/* Copies the first `len` bytes of an eager message's payload to a vector. */
void sc_deliver_payload(const struct sc_message *message, const struct iovec *iov, size_t iov_count,
			size_t len);

#endif
