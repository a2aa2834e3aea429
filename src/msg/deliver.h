/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DELIVER_H
#define SC_DELIVER_H

#include "msg/rxop.h"

/*
 * A message into a receive that matches it, which ends unless it is a multi-receive with room left, or waits
 * for others (SC_ORDER_RECEIVE); a rendezvous, or one in parts, is begun. -ENOMEM (multi-receive only): nothing has
 * changed.
 */
int sc_deliver_message(struct sc_rx_op *op, const struct sc_message *message);

/* Into the posted receive that matches. 1; 0: there is none; -ENOMEM: nothing has changed. */
int sc_deliver_to_posted(const struct sc_message *message);

/* The first `len` bytes of an eager message's payload into a vector. */
void sc_deliver_payload(const struct sc_message *message, const struct iovec *iov, size_t iov_count,
			size_t len);

#endif
