/* SPDX-License-Identifier: BSD-2-Clause */
/* hold.c: see hold.h for the rules. */
#include "link/hold.h"

#include <string.h>
#include "base/copy.h"
#include "base/fault.h"
#include "base/log.h"
#include "shm/guard.h"

bool sc_hold_is_pinned(struct sc_peer *peer)
{
	struct sc_returnables *returnables = &peer->bounce.returnables;

	/* a peer that has delegated so many others has ended this one */
	if (returnables->pinned)
		returnables->pinned = peer->taker.seen - returnables->number <= SC_ABI_DELEGATED &&
				      !sc_rescue_has_done(sc_seg_slot(peer->ep->seg, peer->in_slot),
							  returnables->number);
	return returnables->pinned;
}

bool sc_hold_comes_back_slow(struct sc_peer *peer, uint16_t buf)
{
	const struct sc_returnables *returnables = &peer->bounce.returnables;

	for (uint32_t i = 0; i < returnables->count; i++)
		if (returnables->bufs[i] == buf) {
			sc_hold_returnables_drop(peer, i);
			return true;
		}
	return false;
}

bool sc_hold_may_slow(struct sc_peer *peer)
{
	int ret = sc_seg_pool_open(peer->seg);

	if (ret)
		sc_info("%s: its bounce buffers cannot be made writable: %s; answers to it take the "
			"longer way",
			peer->address, strerror(-ret));
	peer->can_return = ret ? SC_REACH_NO : SC_REACH_YES;
	return !ret;
}

void sc_hold_fill(const struct sc_peer *peer, uint16_t buf, struct sc_iov_walk part)
{
	uint8_t *to = sc_seg_buf(peer->seg, buf);
	uintptr_t from;
	size_t here;

	for (; sc_iov_next(&part, &from, &here); to += here)
		sc_copy_by_words(to, (const void *)from, here);
	(void)SC_FAULT("hold.filled");
}
