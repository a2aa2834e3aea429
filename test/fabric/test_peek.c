/* SPDX-License-Identifier: BSD-2-Clause */
/* test_peek.c: FI_PEEK, FI_CLAIM and FI_DISCARD of fi_tagged(3), on both kinds of message. */
#include "pair.h"

#define LARGE 100000 /* rendezvous */

static const size_t lens[] = { 0, 8, 300, 5000, LARGE };
#define LENS (sizeof(lens) / sizeof(lens[0]))

static uint8_t out[LARGE], in[LARGE];
static struct fi_context first, second;

static ssize_t peek(bool tagged, struct side *side, uint64_t flags, void *context)
{
	struct kind_msg msg = { .addr = FI_ADDR_UNSPEC, .context = context };

	return kind_recvmsg(tagged, side, &msg, FI_PEEK | flags);
}

static ssize_t claim(bool tagged, struct side *side, uint64_t flags, void *context)
{
	struct kind_msg msg = {
		.iov = { { in, LARGE } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = context
	};

	return kind_recvmsg(tagged, side, &msg, FI_CLAIM | flags);
}

/* A message of `len` bytes from a waits at b. */
static void send_waiting(struct pair *pair, bool tagged, size_t len, unsigned int seed, uint64_t flags)
{
	struct kind_msg msg = {
		.iov = { { out, len } }, .iov_count = 1, .addr = pair->a.peer, .data = 55, .context = out
	};

	pattern_fill(out, 0, len, seed);
	post(pair, kind_sendmsg(tagged, &pair->a, &msg, flags));
	for (int i = 0; i < 5; i++)
		pair_progress(pair);
}

static void expect_none(struct pair *pair, bool tagged, void *context)
{
	struct fi_cq_err_entry error = pair_error(pair, &pair->b);

	gives(error.err, FI_ENOMSG);
	must(error.op_context == context);
	gives(error.flags, kind_cq_flags(tagged, FI_RECV));
	if (tagged)
		gives(error.tag, 7);
}

static void expect_found(struct pair *pair, bool tagged, void *context, size_t len)
{
	struct done done = pair_done(pair, &pair->b);

	must(done.entry.op_context == context);
	gives(done.entry.len, len);
	gives(done.entry.flags, kind_cq_flags(tagged, FI_RECV) | FI_REMOTE_CQ_DATA);
	gives(done.entry.data, 55);
	gives(done.source, pair->b.peer);
	if (tagged)
		gives(done.entry.tag, 7);
}

static void receive(struct pair *pair, bool tagged, size_t len, unsigned int seed)
{
	struct done done;

	memset(in, 0, len);
	gives(kind_recv(tagged, &pair->b, in, LARGE, FI_ADDR_UNSPEC, in), 0);
	done = pair_done(pair, &pair->b);
	must(done.entry.op_context == in);
	gives(done.entry.len, len);
	must(pattern_is(in, 0, len, seed));
}

/* ---- peek ------------------------------------------------------------------------------------ */

static void none(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	gives(peek(tagged, &pair.b, 0, &first), 0);
	expect_none(&pair, tagged, &first);
	gives(peek(tagged, &pair.b, FI_CLAIM, &first), 0);
	expect_none(&pair, tagged, &first);
	gives(peek(tagged, &pair.b, FI_DISCARD, &first), 0);
	expect_none(&pair, tagged, &first);
	gives(claim(tagged, &pair.b, 0, &first), -FI_EINVAL);
	gives(pair.b.ep->ops->rx_size_left(pair.b.ep),
	      pair.info->rx_attr->size); /* nothing stays posted */
	pair_close(&pair);
}

/* It is told of, as often as asked, and still received as a whole. */
static void found(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < LENS; i++) {
		send_waiting(&pair, tagged, lens[i], (unsigned int)i, FI_REMOTE_CQ_DATA);
		for (int times = 0; times < 3; times++) {
			gives(peek(tagged, &pair.b, 0, &first), 0);
			expect_found(&pair, tagged, &first, lens[i]);
		}
		receive(&pair, tagged, lens[i], (unsigned int)i);
		pair_done(&pair, &pair.a);
		gives(peek(tagged, &pair.b, 0, &first), 0);
		expect_none(&pair, tagged, &first);
	}
	pair_close(&pair);
}

/* With a buffer: data may be given at once, and then the entry says where; the message is received later. */
static void with_buffer(bool tagged)
{
	struct kind_msg msg = {
		.iov = { { in, 8 } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &first
	};
	struct pair pair;
	struct done done;

	pair_open(&pair, NULL);
	send_waiting(&pair, tagged, 300, 1, 0);
	memset(in, 0, sizeof(in));
	gives(kind_recvmsg(tagged, &pair.b, &msg, FI_PEEK), 0);
	done = pair_done(&pair, &pair.b);
	gives(done.entry.len, 300);
	must(!done.entry.buf || (done.entry.buf == in && pattern_is(in, 0, 8, 1)));
	gives(in[8], 0);
	receive(&pair, tagged, 300, 1);
	pair_close(&pair);
}

/* An endpoint that only peeks sees a message come, also the first one of a new peer. */
static void peeking_makes_progress(bool tagged)
{
	struct fi_cq_err_entry error;
	struct fi_cq_tagged_entry entry;
	struct pair pair;
	ssize_t ret;

	pair_open(&pair, NULL);
	post(&pair, kind_inject(tagged, &pair.a, out, 8, pair.a.peer));
	for (int tries = 0;; tries++) {
		must(tries < 1000);
		gives(peek(tagged, &pair.b, 0, &first), 0);
		ret = fi_cq_read(pair.b.cq, &entry, 1);
		if (ret == 1)
			break;
		gives(ret, -FI_EAVAIL);
		gives(fi_cq_readerr(pair.b.cq, &error, 0), 1);
		gives(error.err, FI_ENOMSG);
	}
	gives(entry.len, 8);
	pair_close(&pair);
}

/* It always completes: there is no other result. */
static void selective(bool tagged)
{
	struct pair_want want = { .rx_bind = FI_SELECTIVE_COMPLETION };
	struct pair pair;

	pair_open(&pair, &want);
	gives(peek(tagged, &pair.b, 0, &first), 0);
	expect_none(&pair, tagged, &first);
	send_waiting(&pair, tagged, 8, 1, FI_REMOTE_CQ_DATA);
	gives(peek(tagged, &pair.b, 0, &first), 0);
	expect_found(&pair, tagged, &first, 8);
	gives(peek(tagged, &pair.b, FI_COMPLETION, &first), 0);
	expect_found(&pair, tagged, &first, 8);
	pair_close(&pair);
}

/* A claim has told of its message already: what becomes of it is reported as any receive is. */
static void selective_claim(bool tagged)
{
	struct pair_want want = { .rx_bind = FI_SELECTIVE_COMPLETION };
	struct pair pair;

	pair_open(&pair, &want);
	for (int i = 0; i < 4; i++) {
		uint64_t discard = i & 1 ? FI_DISCARD : 0, report = i & 2 ? FI_COMPLETION : 0;

		send_waiting(&pair, tagged, 8, 1, FI_REMOTE_CQ_DATA);
		pair_done(&pair, &pair.a);
		gives(peek(tagged, &pair.b, FI_CLAIM, &first), 0);
		expect_found(&pair, tagged, &first, 8);
		gives(claim(tagged, &pair.b, discard | report, &first), 0);
		if (report)
			expect_found(&pair, tagged, &first, 8);
		pair_quiet(&pair, &pair.b);
		gives(claim(tagged, &pair.b, 0, &first), -FI_EINVAL); /* it is gone */
	}
	pair_close(&pair);
}

/* Posted receives come first: a message that goes to one is not seen. */
static void not_what_is_posted_for(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	gives(kind_recv(tagged, &pair.b, in, LARGE, FI_ADDR_UNSPEC, in), 0);
	send_waiting(&pair, tagged, 8, 1, 0);
	must(pair_done(&pair, &pair.b).entry.op_context == in);
	gives(peek(tagged, &pair.b, 0, &first), 0);
	expect_none(&pair, tagged, &first);
	pair_close(&pair);
}

/* ---- claim and discard ----------------------------------------------------------------------- */

/* A claimed message is for its claimant alone. */
static void claimed(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < LENS; i++) {
		struct done done;

		send_waiting(&pair, tagged, lens[i], (unsigned int)i, FI_REMOTE_CQ_DATA);
		gives(peek(tagged, &pair.b, FI_CLAIM, &first), 0);
		expect_found(&pair, tagged, &first, lens[i]);
		gives(peek(tagged, &pair.b, 0, &second), 0);
		expect_none(&pair, tagged, &second);
		gives(kind_recv(tagged, &pair.b, out, 1, FI_ADDR_UNSPEC, &second), 0);
		pair_quiet(&pair, &pair.b);
		gives(claim(tagged, &pair.b, 0, &second), -FI_EINVAL);
		memset(in, 0, LARGE);
		gives(claim(tagged, &pair.b, 0, &first), 0);
		done = pair_done(&pair, &pair.b);
		must(done.entry.op_context == &first);
		gives(done.entry.len, lens[i]);
		gives(done.entry.data, 55);
		must(pattern_is(in, 0, lens[i], (unsigned int)i));
		pair_done(&pair, &pair.a);
		gives(claim(tagged, &pair.b, 0, &first), -FI_EINVAL); /* once */
		gives(fi_cancel(&pair.b.ep->fid, &second), 0);
		pair_error(&pair, &pair.b);
	}
	pair_close(&pair);
}

/* Two claims at a time, received in the other order, with an unclaimed message between. */
static void claims_in_any_order(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (unsigned int i = 0; i < 3; i++) {
		uint8_t own[300];

		pattern_fill(own, 0, sizeof(own), i);
		post(&pair, kind_inject(tagged, &pair.a, own, 100 + i, pair.a.peer));
	}
	gives(peek(tagged, &pair.b, FI_CLAIM, &first), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 100);
	gives(peek(tagged, &pair.b, FI_CLAIM, &second), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 101);
	receive(&pair, tagged, 102, 2);
	gives(claim(tagged, &pair.b, 0, &second), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 101);
	must(pattern_is(in, 0, 101, 1));
	gives(claim(tagged, &pair.b, 0, &first), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 100);
	must(pattern_is(in, 0, 100, 0));
	pair_close(&pair);
}

/* Claimed and received into too small a buffer: truncated as any other. */
static void claimed_and_truncated(bool tagged)
{
	struct kind_msg msg = {
		.iov = { { in, 100 } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &first
	};
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 2; i < LENS; i++) {
		struct fi_cq_err_entry error;

		send_waiting(&pair, tagged, lens[i], 6, 0);
		gives(peek(tagged, &pair.b, FI_CLAIM, &first), 0);
		pair_done(&pair, &pair.b);
		memset(in, 0, LARGE);
		gives(kind_recvmsg(tagged, &pair.b, &msg, FI_CLAIM), 0);
		error = pair_error(&pair, &pair.b);
		gives(error.err, FI_ETRUNC);
		gives(error.len, 100);
		gives(error.olen, lens[i] - 100);
		must(pattern_is(in, 0, 100, 6));
		gives(in[100], 0);
		pair_done(&pair, &pair.a);
	}
	pair_close(&pair);
}

/* Dropped, at once or after a claim; its sender's operation ends, and the next message is untouched. */
static void discarded(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < LENS; i++)
		for (int after_claim = 0; after_claim < 2; after_claim++) {
			send_waiting(&pair, tagged, lens[i], 1, FI_REMOTE_CQ_DATA | FI_MATCH_COMPLETE);
			post(&pair, kind_inject(tagged, &pair.a, "next", 5, pair.a.peer));
			pair_quiet(&pair, &pair.a);
			gives(peek(tagged, &pair.b, after_claim ? FI_CLAIM : FI_DISCARD, &first), 0);
			expect_found(&pair, tagged, &first, lens[i]);
			if (after_claim) {
				pair_quiet(&pair, &pair.a);
				gives(claim(tagged, &pair.b, FI_DISCARD, &first), 0);
				must(pair_done(&pair, &pair.b).entry.op_context == &first);
				gives(claim(tagged, &pair.b, 0, &first), -FI_EINVAL);
			}
			must(pair_done(&pair, &pair.a).entry.op_context == out);
			gives(kind_recv(tagged, &pair.b, in, 5, FI_ADDR_UNSPEC, in), 0);
			gives(pair_done(&pair, &pair.b).entry.len, 5);
			gives(strcmp((char *)in, "next"), 0);
		}
	pair_quiet(&pair, &pair.b);
	pair_close(&pair);
}

static void bad_arguments(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	send_waiting(&pair, tagged, 8, 1, 0);
	pair_done(&pair, &pair.a);
	gives(claim(tagged, &pair.b, FI_PEEK, NULL), -FI_EINVAL); /* nothing to claim it with */
	gives(claim(tagged, &pair.b, 0, NULL), -FI_EINVAL);
	gives(peek(tagged, &pair.b, FI_CLAIM | FI_DISCARD, &first), -FI_EINVAL);
	gives(claim(tagged, &pair.b, 0, &first), -FI_EINVAL);
	{
		struct kind_msg msg = { .addr = FI_ADDR_UNSPEC, .context = &first };

		gives(kind_recvmsg(tagged, &pair.b, &msg, FI_DISCARD), -FI_EINVAL);
	}
	pair_quiet(&pair, &pair.b);
	receive(&pair, tagged, 8, 1);
	pair_close(&pair);
}

/* Claimed and discarded messages go with their endpoint. */
static void closed_with_claims(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < LENS; i++) {
		send_waiting(&pair, tagged, lens[i], 1, 0);
		gives(peek(tagged, &pair.b, FI_CLAIM, &first), 0);
		pair_done(&pair, &pair.b);
		send_waiting(&pair, tagged, lens[i], 1, 0);
	}
	pair_close(&pair);
}

/* ---- by tag and source ----------------------------------------------------------------------- */

static void by_tag(void)
{
	static const uint64_t tags[] = { 10, 21, 12, 23 };
	struct kind_msg msg = { .addr = FI_ADDR_UNSPEC, .context = &first };
	struct pair pair;

	pair_open(&pair, NULL);
	for (int i = 0; i < 4; i++)
		post(&pair, fi_tinject(pair.a.ep, out, 100 + (size_t)i, pair.a.peer, tags[i]));
	msg.tag = 12;
	gives(kind_recvmsg(true, &pair.b, &msg, FI_PEEK), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 102);
	msg.tag = 20;
	msg.ignore = 7;
	gives(kind_recvmsg(true, &pair.b, &msg, FI_PEEK | FI_CLAIM), 0);
	gives(pair_done(&pair, &pair.b).entry.tag, 21);
	gives(kind_recvmsg(true, &pair.b, &msg, FI_PEEK | FI_DISCARD), 0);
	gives(pair_done(&pair, &pair.b).entry.tag, 23);
	gives(kind_recvmsg(true, &pair.b, &msg, FI_PEEK), 0);
	gives(pair_error(&pair, &pair.b).err, FI_ENOMSG);
	msg.ignore = UINT64_MAX;
	gives(kind_recvmsg(true, &pair.b, &msg, FI_PEEK), 0);
	gives(pair_done(&pair, &pair.b).entry.tag, 10);
	gives(claim(true, &pair.b, 0, &first), 0);
	gives(pair_done(&pair, &pair.b).entry.tag, 21);
	pair_close(&pair);
}

static void by_source(bool tagged)
{
	struct kind_msg msg = { .context = &first };
	struct pair pair;

	pair_open(&pair, NULL);
	post(&pair, kind_inject(tagged, &pair.a, out, 100, pair.a.peer));
	post(&pair, kind_inject(tagged, &pair.b, out, 101, pair.b.self));
	msg.addr = pair.b.self;
	gives(kind_recvmsg(tagged, &pair.b, &msg, FI_PEEK), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 101);
	msg.addr = pair.b.peer;
	gives(kind_recvmsg(tagged, &pair.b, &msg, FI_PEEK | FI_DISCARD), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 100);
	gives(kind_recvmsg(tagged, &pair.b, &msg, FI_PEEK), 0);
	gives(pair_error(&pair, &pair.b).err, FI_ENOMSG);
	msg.addr = 12345;
	gives(kind_recvmsg(tagged, &pair.b, &msg, FI_PEEK), -FI_EINVAL);
	pair_close(&pair);
}

/* ---- either kind, and between processes ------------------------------------------------------ */

#define EITHER(f)                                                                                         \
	static void f##_msg(void)                                                                         \
	{                                                                                                 \
		f(false);                                                                                 \
	}                                                                                                 \
	static void f##_tagged(void)                                                                      \
	{                                                                                                 \
		f(true);                                                                                  \
	}
EITHER(none)
EITHER(found)
EITHER(with_buffer)
EITHER(peeking_makes_progress)
EITHER(selective)
EITHER(selective_claim)
EITHER(not_what_is_posted_for)
EITHER(claimed)
EITHER(claims_in_any_order)
EITHER(claimed_and_truncated)
EITHER(discarded)
EITHER(bad_arguments)
EITHER(closed_with_claims)
EITHER(by_source)

/* Large ones, claimed and then copied from the other process; every third is thrown away. */
static void claim_sender(struct pair *pair)
{
	pattern_fill(out, 0, LARGE, 8);
	for (int i = 0; i < 60; i++) {
		post(pair, kind_send(i & 1, &pair->a, out, LARGE, pair->a.peer, NULL));
		pair_done(pair, &pair->a);
	}
}

static void claim_receiver(struct pair *pair)
{
	for (int i = 0; i < 60; i++) {
		struct fi_cq_err_entry error;
		struct fi_cq_tagged_entry entry;
		uint64_t flags = i % 3 ? FI_CLAIM : FI_DISCARD;

		do {
			ssize_t ret;

			gives(peek(i & 1, &pair->a, flags, &first), 0);
			ret = fi_cq_read(pair->a.cq, &entry, 1);
			if (ret == 1)
				break;
			gives(ret, -FI_EAVAIL);
			gives(fi_cq_readerr(pair->a.cq, &error, 0), 1);
			gives(error.err, FI_ENOMSG);
		} while (true);
		gives(entry.len, LARGE);
		if (flags == FI_DISCARD)
			continue;
		memset(in, 0, LARGE);
		gives(claim(i & 1, &pair->a, 0, &first), 0);
		gives(pair_done(pair, &pair->a).entry.len, LARGE);
		must(pattern_is(in, 0, LARGE, 8));
	}
}

/* ---- a side that only peeks ------------------------------------------------------------------- */

/* The error of a receive with that context is found by peeks alone: fi_cq_readerr(3) makes no progress. */
static int error_by_peeks(struct side *side, const void *context)
{
	struct fi_cq_err_entry error;

	for (int tries = 0; tries < 1000; tries++) {
		gives(peek(true, side, 0, &first), 0);
		while (fi_cq_readerr(side->cq, &error, 0) == 1)
			if (error.op_context == context)
				return error.err;
			else
				gives(error.err, FI_ENOMSG);
	}
	return 0;
}

/* It sees that the source of a receive closes. */
static void peeks_see_the_end(void)
{
	const struct pair_want want = { .caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV };
	struct pair pair;

	pair_open(&pair, &want);
	send_waiting(&pair, true, 8, 1, 0);
	gives(pair_done(&pair, &pair.a).entry.flags & FI_SEND, FI_SEND);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, pair.b.peer, 99, 0, &second), 0);
	side_close(&pair.a);
	pair.a = (struct side){ 0 };
	gives(error_by_peeks(&pair.b, &second), FI_ECONNRESET);
	pair_close(&pair);
}

int main(void)
{
#define BOTH_KINDS(f) ALONE(f##_msg), ALONE(f##_tagged)
	const struct CMUnitTest tests[] = {
		BOTH_KINDS(none),
		BOTH_KINDS(found),
		BOTH_KINDS(with_buffer),
		BOTH_KINDS(peeking_makes_progress),
		BOTH_KINDS(selective),
		BOTH_KINDS(selective_claim),
		BOTH_KINDS(not_what_is_posted_for),
		BOTH_KINDS(claimed),
		BOTH_KINDS(claims_in_any_order),
		BOTH_KINDS(claimed_and_truncated),
		BOTH_KINDS(discarded),
		BOTH_KINDS(bad_arguments),
		BOTH_KINDS(closed_with_claims),
		BOTH_KINDS(by_source),
		ALONE(by_tag),
		ALONE(peeks_see_the_end),
		BOTH(claim_sender, claim_receiver),
		BOTH_ENV(claim_sender, claim_receiver, "FI_SHMCMA_CMA=0"),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
