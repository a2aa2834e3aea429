/* SPDX-License-Identifier: BSD-2-Clause */
/* hold.c: see hold.h for the rules. */
#include "link/hold.h"

#include <string.h>
#include "base/log.h"
#include "shm/guard.h"

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
