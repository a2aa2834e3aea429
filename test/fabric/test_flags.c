/* SPDX-License-Identifier: BSD-2-Clause */
/* test_flags.c: the flags of data calls, of fi_cq(3), fi_msg(3), fi_tagged(3) and fi_endpoint(3), on both kinds. */
#include "pair.h"

#define LARGE 100000 /* rendezvous */

static const size_t lens[] = { 0, 8, 40, 200, 4000, 30000, LARGE };
#define LENS (sizeof(lens) / sizeof(lens[0]))

static uint8_t out[LARGE], in[LARGE];

static struct kind_msg to_peer(struct side *side, size_t len, void *context)
{
	return (struct kind_msg){
		.iov = { { out, len } }, .iov_count = 1, .addr = side->peer, .data = 77, .context = context
	};
}

static struct kind_msg from_anybody(size_t len, void *context)
{
	return (struct kind_msg){
		.iov = { { in, len } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = context
	};
}

/* Post a receive at b; the completion is taken by receive_done(). */
static void receive(struct pair *pair, bool tagged)
{
	gives(kind_recv(tagged, &pair->b, in, LARGE, FI_ADDR_UNSPEC, in), 0);
}

static struct done receive_done(struct pair *pair)
{
	struct done done = pair_done(pair, &pair->b);

	must(done.entry.op_context == in);
	return done;
}

/* ---- FI_COMPLETION --------------------------------------------------------------------------- */

static void completion_of_sends(bool tagged, uint64_t bind, uint64_t op_flags)
{
	struct pair_want want = { .tx_bind = bind, .tx_op_flags = op_flags };
	struct pair pair;

	pair_open(&pair, &want);
	for (size_t i = 0; i < LENS; i++) {
		struct kind_msg msg = to_peer(&pair.a, lens[i], out);
		bool selective = bind & FI_SELECTIVE_COMPLETION;

		/* fi_send by the endpoint's flags, fi_sendmsg by its own */
		receive(&pair, tagged);
		post(&pair, kind_send(tagged, &pair.a, out, lens[i], pair.a.peer, out));
		receive_done(&pair);
		if (!selective || op_flags & FI_COMPLETION)
			must(pair_done(&pair, &pair.a).entry.op_context == out);
		receive(&pair, tagged);
		post(&pair, kind_sendmsg(tagged, &pair.a, &msg, FI_COMPLETION));
		receive_done(&pair);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
		receive(&pair, tagged);
		post(&pair, kind_sendmsg(tagged, &pair.a, &msg, 0));
		receive_done(&pair);
		if (!selective)
			must(pair_done(&pair, &pair.a).entry.op_context == out);
		if (lens[i] <= 4096) {
			receive(&pair, tagged);
			post(&pair, kind_inject(tagged, &pair.a, out, lens[i], pair.a.peer));
			receive_done(&pair);
		}
		pair_quiet(&pair, &pair.a);
	}
	pair_close(&pair);
}

static void completion_of_receives(bool tagged, uint64_t bind, uint64_t op_flags)
{
	struct pair_want want = { .rx_bind = bind, .rx_op_flags = op_flags };
	struct pair pair;

	pair_open(&pair, &want);
	for (size_t i = 0; i < LENS; i++) {
		bool selective = bind & FI_SELECTIVE_COMPLETION;

		for (int way = 0; way < 3; way++) {
			struct kind_msg msg = from_anybody(LARGE, in);

			if (way == 0)
				receive(&pair, tagged);
			else
				gives(kind_recvmsg(tagged, &pair.b, &msg, way == 1 ? FI_COMPLETION : 0),
				      0);
			post(&pair, kind_send(tagged, &pair.a, out, lens[i], pair.a.peer, NULL));
			pair_done(&pair, &pair.a);
			if (!selective || way == 1 || (way == 0 && op_flags & FI_COMPLETION))
				receive_done(&pair);
			pair_quiet(&pair, &pair.b);
		}
	}
	pair_close(&pair);
}

static void completion(void)
{
	for (int tagged = 0; tagged < 2; tagged++) {
		completion_of_sends(tagged, 0, 0);
		completion_of_sends(tagged, 0, FI_COMPLETION);
		completion_of_sends(tagged, FI_SELECTIVE_COMPLETION, 0);
		completion_of_sends(tagged, FI_SELECTIVE_COMPLETION, FI_COMPLETION);
		completion_of_receives(tagged, 0, 0);
		completion_of_receives(tagged, FI_SELECTIVE_COMPLETION, 0);
		completion_of_receives(tagged, FI_SELECTIVE_COMPLETION, FI_COMPLETION);
	}
}

/* A failed operation completes, also without FI_COMPLETION. */
static void failure_completes(void)
{
	struct pair_want want = { .rx_bind = FI_SELECTIVE_COMPLETION };
	struct fi_cq_err_entry error;
	struct pair pair;

	pair_open(&pair, &want);
	for (int tagged = 0; tagged < 2; tagged++) {
		gives(kind_recv(tagged, &pair.b, in, 4, FI_ADDR_UNSPEC, in), 0);
		post(&pair, kind_inject(tagged, &pair.a, out, 8, pair.a.peer));
		error = pair_error(&pair, &pair.b);
		gives(error.err, FI_ETRUNC);
		gives(error.olen, 4);
		gives(kind_recv(tagged, &pair.b, in, 4, FI_ADDR_UNSPEC, in), 0);
		gives(fi_cancel(&pair.b.ep->fid, in), 0);
		gives(pair_error(&pair, &pair.b).err, FI_ECANCELED);
	}
	pair_close(&pair);
}

/* ---- when a send completes ------------------------------------------------------------------- */

/*
 * The buffer is scribbled over as soon as the flags allow it: on return (FI_INJECT), or at the completion.
 * The receiver gets what was sent.
 */
static void buffer_reuse(bool tagged, uint64_t flags)
{
	struct fi_cq_tagged_entry entry;
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < 2 * LENS; i++) {
		size_t len = lens[i / 2];
		struct kind_msg msg = to_peer(&pair.a, len, out);
		bool expected = i & 1, completed = false;

		if (flags & FI_INJECT && len > 4096) {
			gives(kind_sendmsg(tagged, &pair.a, &msg, flags), -FI_EMSGSIZE);
			continue;
		}
		pattern_fill(out, 0, len, 5);
		if (expected)
			receive(&pair, tagged);
		post(&pair, kind_sendmsg(tagged, &pair.a, &msg, flags));
		if (flags & FI_INJECT)
			memset(out, 0xff, len);
		for (int j = 0; j < 50 && !completed; j++) {
			side_progress(&pair.b);
			completed = fi_cq_read(pair.a.cq, &entry, 1) == 1;
		}
		if (completed)
			memset(out, 0xff, len);
		if (!expected)
			receive(&pair, tagged);
		receive_done(&pair);
		if (!completed)
			pair_done(&pair, &pair.a);
		must(pattern_is(in, 0, len, 5));
		pair_quiet(&pair, &pair.a);
	}
	pair_close(&pair);
}

static void inject_and_transmit_complete(void)
{
	for (int tagged = 0; tagged < 2; tagged++) {
		buffer_reuse(tagged, 0);
		buffer_reuse(tagged, FI_INJECT);
		buffer_reuse(tagged, FI_INJECT_COMPLETE);
		buffer_reuse(tagged, FI_TRANSMIT_COMPLETE);
		buffer_reuse(tagged, FI_INJECT | FI_TRANSMIT_COMPLETE);
	}
}

/* Nothing completes at a while b does nothing. */
static void quiet_alone(struct side *side)
{
	struct fi_cq_tagged_entry entry;

	for (int i = 0; i < 200; i++)
		gives(fi_cq_read(side->cq, &entry, 1), -FI_EAGAIN);
}

/* At the completion the payload is in the receiver's buffer, before it has read any completion. */
static void delivery(bool tagged, uint64_t op_flags, uint64_t flags)
{
	struct pair_want want = { .tx_op_flags = op_flags };
	struct pair pair;

	pair_open(&pair, &want);
	for (size_t i = 0; i < LENS; i++) {
		struct kind_msg msg = to_peer(&pair.a, lens[i], out);

		if (flags & FI_INJECT && lens[i] > 4096)
			continue;
		pattern_fill(out, 0, lens[i], (unsigned int)i);
		memset(in, 0, lens[i]);
		receive(&pair, tagged);
		if (op_flags)
			post(&pair, kind_send(tagged, &pair.a, out, lens[i], pair.a.peer, out));
		else
			gives(kind_sendmsg(tagged, &pair.a, &msg, flags), 0);
		quiet_alone(&pair.a);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
		must(pattern_is(in, 0, lens[i], (unsigned int)i));
		receive_done(&pair);
	}
	pair_close(&pair);
}

static void delivery_complete(void)
{
	for (int tagged = 0; tagged < 2; tagged++) {
		delivery(tagged, 0, FI_DELIVERY_COMPLETE);
		delivery(tagged, 0, FI_DELIVERY_COMPLETE | FI_INJECT);
		delivery(tagged, FI_DELIVERY_COMPLETE, 0);
	}
}

/* It takes a receive, or somebody who throws the message away. */
static void match(bool tagged)
{
	struct kind_msg discard = from_anybody(0, in);
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < LENS; i++) {
		struct kind_msg msg = to_peer(&pair.a, lens[i], out);

		gives(kind_sendmsg(tagged, &pair.a, &msg, FI_MATCH_COMPLETE), 0);
		pair_quiet(&pair, &pair.a);
		receive(&pair, tagged);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
		receive_done(&pair);

		gives(kind_sendmsg(tagged, &pair.a, &msg, FI_MATCH_COMPLETE), 0);
		pair_quiet(&pair, &pair.a);
		gives(kind_recvmsg(tagged, &pair.b, &discard, FI_PEEK | FI_DISCARD), 0);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
		gives(receive_done(&pair).entry.len, lens[i]);
	}
	pair_close(&pair);
}

static void match_complete(void)
{
	match(false);
	match(true);
}

/* Levels and silence together: the operation is still followed to its end. */
static void silent_delivery(void)
{
	struct pair_want want = { .tx_bind = FI_SELECTIVE_COMPLETION, .tx_size = 4 };
	struct pair pair;

	pair_open(&pair, &want);
	for (int i = 0; i < 20; i++) {
		struct kind_msg msg = to_peer(&pair.a, 8, out);

		receive(&pair, true);
		post(&pair, kind_sendmsg(true, &pair.a, &msg, FI_DELIVERY_COMPLETE));
		receive_done(&pair);
	}
	pair_quiet(&pair, &pair.a);
	gives(pair.a.ep->ops->tx_size_left(pair.a.ep), 4);
	pair_close(&pair);
}

/* ---- FI_FENCE -------------------------------------------------------------------------------- */

/* Not before all earlier operations to the same peer are complete; others do not wait for it. */
static void fence_of(bool tagged, size_t len, uint64_t earlier_flags)
{
	struct kind_msg earlier, fenced;
	struct pair pair;

	pair_open(&pair, NULL);
	earlier = to_peer(&pair.a, len, out);
	fenced = to_peer(&pair.a, 8, in);
	gives(kind_sendmsg(tagged, &pair.a, &earlier, earlier_flags), 0);
	for (int i = 0; i < 50; i++) {
		gives(kind_sendmsg(tagged, &pair.a, &fenced, FI_FENCE), -FI_EAGAIN);
		pair_progress(&pair);
	}
	fenced.addr = pair.a.self;
	gives(kind_sendmsg(tagged, &pair.a, &fenced, FI_FENCE), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == in);
	fenced.addr = pair.a.peer;

	receive(&pair, tagged);
	must(pair_done(&pair, &pair.a).entry.op_context == out);
	gives(kind_sendmsg(tagged, &pair.a, &fenced, FI_FENCE | FI_DELIVERY_COMPLETE), 0);
	gives(receive_done(&pair).entry.len, len);
	receive(&pair, tagged);
	gives(receive_done(&pair).entry.len, 8);
	must(pair_done(&pair, &pair.a).entry.op_context == in);
	/* with nothing outstanding it is a send like any other */
	receive(&pair, tagged);
	gives(kind_sendmsg(tagged, &pair.a, &fenced, FI_FENCE), 0);
	receive_done(&pair);
	pair_close(&pair);
}

static void fence(void)
{
	for (int tagged = 0; tagged < 2; tagged++) {
		fence_of(tagged, LARGE, 0);
		fence_of(tagged, 64, FI_MATCH_COMPLETE);
		fence_of(tagged, 4000, FI_DELIVERY_COMPLETE);
	}
}

/* ---- others ---------------------------------------------------------------------------------- */

/* A hint that more will come; if none does, the message goes all the same. */
static void more(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (int tagged = 0; tagged < 2; tagged++)
		for (size_t i = 0; i < LENS; i++) {
			struct kind_msg send = to_peer(&pair.a, lens[i], out),
					recv = from_anybody(LARGE, in);

			gives(kind_recvmsg(tagged, &pair.b, &recv, FI_MORE), 0);
			gives(kind_sendmsg(tagged, &pair.a, &send, FI_MORE), 0);
			gives(receive_done(&pair).entry.len, lens[i]);
			pair_done(&pair, &pair.a);
		}
	pair_close(&pair);
}

static void remote_cq_data(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (int tagged = 0; tagged < 2; tagged++)
		for (size_t i = 0; i < LENS; i++) {
			struct kind_msg send = to_peer(&pair.a, lens[i], out);
			struct done done;

			receive(&pair, tagged);
			gives(kind_sendmsg(tagged, &pair.a, &send, FI_REMOTE_CQ_DATA), 0);
			done = receive_done(&pair);
			gives(done.entry.flags, kind_cq_flags(tagged, FI_RECV) | FI_REMOTE_CQ_DATA);
			gives(done.entry.data, 77);
			receive(&pair, tagged);
			gives(kind_sendmsg(tagged, &pair.a, &send, 0), 0);
			gives(receive_done(&pair).entry.flags, kind_cq_flags(tagged, FI_RECV));
			pair_done(&pair, &pair.a);
			pair_done(&pair, &pair.a);
		}
	pair_close(&pair);
}

/* FI_INJECT as a default: for fi_send and its like, not where flags are given. */
static void inject_by_default(void)
{
	struct pair_want want = { .tx_op_flags = FI_INJECT };
	struct pair pair;

	pair_open(&pair, &want);
	for (int tagged = 0; tagged < 2; tagged++) {
		struct kind_msg large = to_peer(&pair.a, LARGE, out);

		pattern_fill(out, 0, 4096, 3);
		gives(kind_send(tagged, &pair.a, out, 4096, pair.a.peer, out), 0);
		memset(out, 0xff, 4096);
		receive(&pair, tagged);
		receive_done(&pair);
		must(pattern_is(in, 0, 4096, 3));
		pair_done(&pair, &pair.a); /* it completes, unlike fi_inject */
		gives(kind_send(tagged, &pair.a, out, 4097, pair.a.peer, out), -FI_EMSGSIZE);
		receive(&pair, tagged);
		gives(kind_sendmsg(tagged, &pair.a, &large, 0), 0);
		receive_done(&pair);
		pair_done(&pair, &pair.a);
	}
	pair_close(&pair);
}

static void unknown_flags(void)
{
	static const uint64_t never[] = {
		FI_MULTICAST,
		FI_COMMIT_COMPLETE,
		FI_PRIORITY,
		FI_READ,
		FI_XPU_TRIGGER,
		FI_HMEM_HOST_ALLOC,
		FI_PEER_TRANSFER,
		1ULL << 40,
		1ULL << 63,
		1,
	};
	static const uint64_t not_sent[] = { FI_PEEK, FI_CLAIM, FI_DISCARD, FI_MULTI_RECV };
	static const uint64_t not_received[] = {
		FI_REMOTE_CQ_DATA,    FI_INJECT,	 FI_INJECT_COMPLETE,
		FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE, FI_FENCE,
	};
	struct pair pair;

	pair_open(&pair, NULL);
	for (int tagged = 0; tagged < 2; tagged++) {
		struct kind_msg send = to_peer(&pair.a, 8, out), recv = from_anybody(8, in);

		for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
			gives(kind_sendmsg(tagged, &pair.a, &send, never[i]), -FI_EBADFLAGS);
			gives(kind_sendmsg(tagged, &pair.a, &send, never[i] | FI_COMPLETION),
			      -FI_EBADFLAGS);
			gives(kind_recvmsg(tagged, &pair.b, &recv, never[i]), -FI_EBADFLAGS);
		}
		for (size_t i = 0; i < sizeof(not_sent) / sizeof(not_sent[0]); i++)
			gives(kind_sendmsg(tagged, &pair.a, &send, not_sent[i]), -FI_EBADFLAGS);
		for (size_t i = 0; i < sizeof(not_received) / sizeof(not_received[0]); i++)
			gives(kind_recvmsg(tagged, &pair.b, &recv, not_received[i]), -FI_EBADFLAGS);
		gives(kind_recvmsg(tagged, &pair.b, &recv, FI_TRANSMIT_COMPLETE), 0);
		gives(fi_cancel(&pair.b.ep->fid, in), 0);
		pair_error(&pair, &pair.b);
	}
	pair_quiet(&pair, &pair.b);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(completion),
		ALONE(failure_completes),
		ALONE(inject_and_transmit_complete),
		ALONE(delivery_complete),
		ALONE(match_complete),
		ALONE(silent_delivery),
		ALONE(fence),
		ALONE(more),
		ALONE(remote_cq_data),
		ALONE(inject_by_default),
		ALONE(unknown_flags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
