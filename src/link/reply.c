/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reply.c: answers to a peer: the end of an operation, or a request for its payload.
 *
 * An answer that finds the peer's ring full waits in sc_peer.reply.waiting, in the order of the calls; polls write it
 * as soon as the ring has space. A peer always reads its ring, so answers of two sides never wait for each other.
 * Private memory, for the thread that uses the endpoint; peer.c drops the answers of a lost peer. If this process dies,
 * waiting answers are lost, and the operations that they are for fail with their peer.
 */
#include "link/reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "link/connect.h"
#include "link/peer.h"
#include "link/record.h"

static int reply_write(struct sc_peer *peer, enum sc_abi_kind kind, const uint64_t words[7])
{
	int ret = sc_record_room(peer, 1);

	if (!ret)
		sc_record_put(peer, kind, 0, 0, words);
	return ret;
}

void sc_reply(struct sc_peer *peer, enum sc_abi_kind kind, const uint64_t words[7])
{
	struct sc_reply *reply;
	char why[128];

	if (!sc_peer_can_answer(peer))
		return; /* no process waits for it */
	if (sc_list_empty(&peer->reply.waiting) && reply_write(peer, kind, words) != -EAGAIN)
		return;
	reply = peer->reply.count < SC_REPLIES_MAX ? malloc(sizeof(*reply)) : NULL;
	if (!reply) {
		snprintf(
			why, sizeof(why),
			"it does not read its ring: %u answers to it wait, and this process keeps no more",
			peer->reply.count);
		sc_peer_quarantine(peer, -ENOMEM, why);
		return;
	}
	reply->kind = kind;
	memcpy(reply->words, words, sizeof(reply->words));
	sc_list_append(&peer->reply.waiting, &reply->of_peer);
	sc_peer_begin(peer, SC_WORK_REPLYING);
	peer->reply.count++;
}

void sc_reply_end(struct sc_peer *peer, enum sc_abi_kind kind, sc_abi_op op, uint64_t moved, int error)
{
	uint64_t words[7] = { 0 };
	struct sc_abi_ack *record = (struct sc_abi_ack *)words;

	record->op = op;
	record->moved = moved;
	record->status = -error;
	sc_reply(peer, kind, words);
}

int sc_replies_progress(struct sc_peer *peer)
{
	int written = 0;

	while (!sc_list_empty(&peer->reply.waiting)) {
		struct sc_reply *reply = sc_list_entry(peer->reply.waiting.next, struct sc_reply, of_peer);

		if (reply_write(peer, reply->kind, reply->words))
			break;
		sc_list_remove(&reply->of_peer);
		free(reply);
		peer->reply.count--;
		written++;
	}
	if (sc_list_empty(&peer->reply.waiting))
		sc_list_remove(&peer->work[SC_WORK_REPLYING]);
	return written;
}
