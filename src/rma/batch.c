/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * batch.c: direct puts and gets that are posted one after the other, several of them copied in one call.
 *
 * A process_vm_readv or writev takes 0.6 to 3 microseconds before it copies anything, as long as for 4 to 16 KiB. An
 * application that has posted some without a poll between is likely to post more, and sees no completion before the
 * next poll; so from then on they are put off until there are as many as fit one copy, until the next poll, or until
 * another operation needs the peer's memory. The first ones are over when the call returns. (A read of a queue that has
 * completions does without a poll most times: an application that reads one behind each post posts without a poll,
 * too.)
 *
 * Order: they are done in the order in which they were posted, and before any one-sided operation that is posted
 * later. Messages do not wait for them: an endpoint that asks for that order has none put off.
 *
 * An operation that is put off behaves as if it were posted when it is done: its key is checked then (direct.c). If the
 * copy of several fails, those that it has not come to the end of are done each by itself, to learn which one it is.
 * None that is over is done again: the peer may have seen its bytes, and gone on from there.
 *
 * Private memory only. If this process dies, operations that are put off are not done; if the peer dies, they fail with
 * it. An endpoint that closes does them first.
 */
#include "rma/batch.h"

#include <errno.h>
#include <string.h>
#include "rma/direct.h"
#include "link/peer.h"
#include "rma/rmaop.h"

/*
 * They are put off until they are so many bytes, and none larger than a half of that. As many are copied in one call as
 * a hazard line has words. Windows of 64 puts, the target computes, on a 2-processor Zen 4, GB/s, each by itself and
 * together; gets likewise:
 *
 *       64 B           4 KiB        16 KiB       64 KiB        256 KiB
 *   0.039 0.095      2.3  5.6     6.1  10.9    10.9  13.4    12.3  12.6
 */
#define BYTES_MAX ((size_t)512 << 10)
#define SIZE_MAX_EACH (BYTES_MAX / 2)

/*
 * An application that injects may never poll again; an operation that the peer has to hear of has its own record behind
 * its bytes.
 */
static bool is_suited(const struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	return size && size <= SIZE_MAX_EACH && rma->remote_count == 1 &&
	       !(rma->flags & SC_RMA_WRITE && rma->flags & SC_SEND_INJECT) && !sc_rma_wants_data(rma) &&
	       !peer->seg->local && !(peer->ep->order & SC_ORDER_SEND) &&
	       !(peer->seg->header.capabilities & SC_ABI_CAP_EVENTS);
}

/* Those at the head of the list that fit one copy, all puts or all gets. */
struct batch {
	size_t size;
	struct sc_rma rma; /* one remote range of each */
	struct iovec iov[SC_IOV_MAX];
	struct sc_remote remote[SC_REMOTE_MAX];
};

static bool batch_add(struct batch *batch, const struct sc_rma_op *op)
{
	struct sc_rma *rma = &batch->rma;
	uint32_t write = op->flags & SC_RMA_WRITE;

	if (rma->remote_count && (write != rma->flags || rma->remote_count == SC_REMOTE_MAX ||
				  rma->iov_count + op->iov_count > SC_IOV_MAX))
		return false;
	memcpy(batch->iov + rma->iov_count, op->iov, op->iov_count * sizeof(op->iov[0]));
	batch->remote[rma->remote_count] = op->remote[0];
	rma->iov_count += op->iov_count;
	rma->remote_count++;
	rma->flags = write;
	batch->size += op->size;
	return true;
}

static void batch_gather(struct batch *batch, const struct sc_peer *peer)
{
	batch->size = 0;
	batch->rma = (struct sc_rma){ .iov = batch->iov, .remote = batch->remote };
	sc_list_for (entry, &peer->batch)
		if (!batch_add(batch, sc_list_entry(entry, struct sc_rma_op, of_peer)))
			return;
}

static struct sc_rma_op *oldest(const struct sc_peer *peer)
{
	return sc_list_entry(peer->batch.next, struct sc_rma_op, of_peer);
}

/* The oldest, in one copy or one after the other. -EAGAIN: not now. */
static int do_some(struct sc_peer *peer)
{
	int outcomes[SC_REMOTE_MAX];
	struct batch batch;
	uint32_t over = 0;

	batch_gather(&batch, peer);
	if (batch.rma.remote_count > 1 && sc_direct_may(peer))
		over = sc_direct_copy(peer, &batch.rma, batch.size, outcomes);
	for (uint32_t i = 0; i < batch.rma.remote_count; i++) {
		struct sc_rma_op *op = oldest(peer);
		size_t size = op->size;
		int ret = 0;

		if (i < over)
			sc_rmaop_end(op, outcomes[i]);
		else
			ret = sc_direct_do(op);
		if (ret)
			return ret;
		peer->batch_count--;
		peer->batch_bytes -= size;
		if (peer->link == SC_LINK_DOWN)
			return peer->error;
	}
	return 0;
}

int sc_batch_settle_slow(struct sc_peer *peer)
{
	while (!sc_list_empty(&peer->batch)) {
		int ret = do_some(peer);

		if (ret)
			return ret;
	}
	sc_list_remove(&peer->batching);
	return 0;
}

uint32_t sc_batch_together(size_t size)
{
	if (size > SIZE_MAX_EACH)
		return 1;
	return size * SC_REMOTE_MAX <= BYTES_MAX ? SC_REMOTE_MAX
						 : (uint32_t)((BYTES_MAX + size - 1) / size);
}

int sc_batch_post(struct sc_peer *peer, const struct sc_rma *rma, size_t size)
{
	bool write = rma->flags & SC_RMA_WRITE;
	struct sc_rma_op *op;

	if (!is_suited(peer, rma, size))
		return -EOPNOTSUPP;
	op = sc_rmaop_get(peer, write ? SC_RMA_PUT : SC_RMA_GET, rma);
	if (!op)
		return -EAGAIN;
	if (sc_list_empty(&peer->batch)) {
		sc_ep_begin(peer->ep, SC_WORK_BATCHING, &peer->batching);
	}
	sc_list_append(&peer->batch, &op->of_peer);
	peer->rma_pending++;
	peer->batch_bytes += size;
	peer->ep->counters.rma_batched++;
	if (++peer->batch_count >= SC_REMOTE_MAX || peer->batch_bytes >= BYTES_MAX)
		(void)sc_batch_settle_slow(
			peer); /* a later poll does the rest, or it ends with the peer */
	return 0;
}

int sc_batch_progress(struct sc_ep *ep)
{
	int done = 0;

	sc_list_for_safe (entry, next, &ep->work[SC_WORK_BATCHING]) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, batching);
		uint32_t before = peer->rma_pending;

		if (peer->link != SC_LINK_DOWN)
			(void)sc_batch_settle_slow(peer);
		done += (int)(before - peer->rma_pending);
	}
	return done;
}

void sc_batch_fini(struct sc_ep *ep)
{
	if (sc_seg_is_here(ep->seg)) /* else a forked child's: its parent's are done there */
		(void)sc_batch_progress(ep);
}
