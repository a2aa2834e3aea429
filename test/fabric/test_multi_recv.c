/* SPDX-License-Identifier: BSD-2-Clause */
/* test_multi_recv.c: one buffer for many messages: FI_MULTI_RECV of fi_msg(3), fi_cq(3), fi_endpoint(3). */
#include "pair.h"

#define ROOM (1 << 20)

static uint8_t out[ROOM];

static void set_min(struct side *side, size_t min)
{
	gives(fi_setopt(&side->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)), 0);
}

static ssize_t post_multi(struct side *side, void *buf, size_t len, uint64_t flags)
{
	struct kind_msg msg = {
		.iov = { { buf, len } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buf
	};

	return kind_recvmsg(false, side, &msg, FI_MULTI_RECV | flags);
}

/*
 * Messages of the given lengths into one buffer of `room` bytes that is given back when fewer than `min`
 * are left; the last length is the one that does it. They lie one behind the other, wherever, and whole.
 */
static void fill_buffer(const size_t *lens, size_t count, size_t room, size_t min, bool expected)
{
	uint8_t *buf = guarded_alloc(room), *end = buf;
	struct pair pair;

	pair_open(&pair, NULL);
	set_min(&pair.b, min);
	if (expected)
		gives(post_multi(&pair.b, buf, room, 0), 0);
	for (size_t i = 0; i < count; i++) {
		uint8_t *own = malloc(lens[i] + 1);

		pattern_fill(own, 0, lens[i], (unsigned int)i);
		post(&pair, fi_send(pair.a.ep, own, lens[i], NULL, pair.a.peer, own));
	}
	if (!expected) {
		for (int i = 0; i < 20; i++)
			pair_progress(&pair);
		gives(post_multi(&pair.b, buf, room, 0), 0);
	}
	for (size_t i = 0; i < count; i++) {
		struct done done = pair_done(&pair, &pair.b);
		uint8_t *at = done.entry.buf;

		must(done.entry.op_context == buf);
		gives(done.source, pair.b.peer);
		gives(done.entry.len, lens[i]);
		must(at >= end && at + lens[i] <= buf + room);
		must(pattern_is(at, 0, lens[i], (unsigned int)i));
		end = at + lens[i];
		gives(done.entry.flags, FI_RECV | FI_MSG | (i + 1 == count ? FI_MULTI_RECV : 0));
	}
	for (size_t i = 0; i < count; i++)
		free(pair_done(&pair, &pair.a).entry.op_context);
	must(guarded_intact(buf, room));
	/* it is the application's again: nothing goes there any more */
	memset(buf, 0x77, room);
	post(&pair, fi_inject(pair.a.ep, out, 8, pair.a.peer));
	pair_quiet(&pair, &pair.b);
	for (size_t i = 0; i < room; i++)
		gives(buf[i], 0x77);
	guarded_free(buf);
	pair_close(&pair);
}

static void packed(void)
{
	static const size_t small[] = { 100, 1, 0, 7, 200, 64, 300, 0, 280 };
	static const size_t full[] = { 100, 400, 500 };
	static const size_t large[] = { 100000, 5000, 300000, 8, 40000, 500000 };
	static const size_t one[] = { 960 };

	for (int expected = 0; expected < 2; expected++) {
		fill_buffer(small, 9, 1000, 64, expected);
		fill_buffer(full, 3, 1000, 64, expected);
		fill_buffer(full, 3, 1000, 1, expected);
		fill_buffer(full, 3, 1000, 0, expected); /* none left is too few in any case */
		fill_buffer(large, 6, ROOM, 200000, expected);
		fill_buffer(one, 1, 1000, 64, expected);
		fill_buffer(one, 1, 1000, 41, expected);
	}
}

/* The option counts from the next buffer on; a buffer with just enough left stays. */
static void minimum(void)
{
	uint8_t buf[1000];
	struct done done;
	struct pair pair;

	pair_open(&pair, NULL);
	set_min(&pair.b, 500);
	gives(post_multi(&pair.b, buf, 1000, 0), 0);
	set_min(&pair.b, 999);
	post(&pair, fi_inject(pair.a.ep, out, 500, pair.a.peer));
	gives(pair_done(&pair, &pair.b).entry.flags, FI_RECV | FI_MSG);
	post(&pair, fi_inject(pair.a.ep, out, 1, pair.a.peer));
	gives(pair_done(&pair, &pair.b).entry.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
	gives(post_multi(&pair.b, buf, 1000, 0), 0);
	post(&pair, fi_inject(pair.a.ep, out, 2, pair.a.peer));
	done = pair_done(&pair, &pair.b);
	gives(done.entry.flags, FI_RECV | FI_MSG | FI_MULTI_RECV);
	must(done.entry.buf == buf);
	pair_close(&pair);
}

/* The second buffer is used when the first is given back. */
static void two_buffers(void)
{
	uint8_t buf[2][256];
	struct pair pair;

	pair_open(&pair, NULL);
	set_min(&pair.b, 100);
	for (int i = 0; i < 2; i++)
		gives(post_multi(&pair.b, buf[i], 256, 0), 0);
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++) {
			struct done done;

			post(&pair, fi_inject(pair.a.ep, out, 80, pair.a.peer));
			done = pair_done(&pair, &pair.b);
			must(done.entry.op_context == buf[i]);
			gives(done.entry.flags & FI_MULTI_RECV, j ? FI_MULTI_RECV : 0);
		}
	pair_close(&pair);
}

/* That the buffer is free again is always told, even if completions are not asked for. */
static void selective(void)
{
	struct pair_want want = { .rx_bind = FI_SELECTIVE_COMPLETION };
	uint8_t buf[256];
	struct pair pair;
	struct done done;

	pair_open(&pair, &want);
	set_min(&pair.b, 100);
	gives(post_multi(&pair.b, buf, 256, 0), 0);
	post(&pair, fi_inject(pair.a.ep, out, 80, pair.a.peer));
	pair_quiet(&pair, &pair.b);
	post(&pair, fi_inject(pair.a.ep, out, 80, pair.a.peer));
	done = pair_done(&pair, &pair.b);
	must(done.entry.op_context == buf);
	must(done.entry.flags & FI_MULTI_RECV);
	/* asked for: all of them */
	gives(post_multi(&pair.b, buf, 256, FI_COMPLETION), 0);
	for (int i = 0; i < 2; i++) {
		post(&pair, fi_inject(pair.a.ep, out, 80, pair.a.peer));
		pair_done(&pair, &pair.b);
	}
	pair_close(&pair);
}

/* As a default flag: of fi_recv, while tagged receives stay what they are. */
static void by_default(void)
{
	struct pair_want want = { .rx_op_flags = FI_MULTI_RECV };
	struct iovec iov[2];
	uint8_t buf[256];
	struct pair pair;

	pair_open(&pair, &want);
	set_min(&pair.b, 100);
	iov[0] = (struct iovec){ buf, 128 };
	iov[1] = (struct iovec){ buf + 128, 128 };
	gives(fi_recvv(pair.b.ep, iov, NULL, 2, FI_ADDR_UNSPEC, buf), -FI_EINVAL);
	gives(fi_recv(pair.b.ep, buf, 256, NULL, FI_ADDR_UNSPEC, buf), 0);
	for (int i = 0; i < 2; i++) {
		struct done done;

		post(&pair, fi_injectdata(pair.a.ep, out, 80, 5, pair.a.peer));
		done = pair_done(&pair, &pair.b);
		must(done.entry.buf == buf + 80 * i);
		gives(done.entry.data, 5);
		gives(done.entry.flags, FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA | (i ? FI_MULTI_RECV : 0));
	}
	gives(fi_trecv(pair.b.ep, buf, 256, NULL, FI_ADDR_UNSPEC, 7, 0, buf), 0);
	post(&pair, fi_tinject(pair.a.ep, out, 80, pair.a.peer, 7));
	gives(pair_done(&pair, &pair.b).entry.flags, FI_RECV | FI_TAGGED);
	pair_close(&pair);
}

static void bad_arguments(void)
{
	struct kind_msg msg = { .iov_count = 2, .addr = FI_ADDR_UNSPEC, .context = &msg };
	uint8_t buf[256];
	struct pair pair;

	pair_open(&pair, NULL);
	msg.iov[0] = (struct iovec){ buf, 128 };
	msg.iov[1] = (struct iovec){ buf + 128, 128 };
	gives(kind_recvmsg(false, &pair.b, &msg, FI_MULTI_RECV), -FI_EINVAL);
	msg.iov_count = 0;
	gives(kind_recvmsg(false, &pair.b, &msg, FI_MULTI_RECV), -FI_EINVAL);
	msg.iov_count = 1;
	gives(kind_recvmsg(true, &pair.b, &msg, FI_MULTI_RECV), -FI_EBADFLAGS);
	gives(kind_recvmsg(false, &pair.b, &msg, FI_MULTI_RECV | FI_PEEK), -FI_EINVAL);
	gives(kind_recvmsg(false, &pair.b, &msg, FI_MULTI_RECV | FI_CLAIM), -FI_EINVAL);
	gives(kind_recvmsg(false, &pair.b, &msg, FI_MULTI_RECV | FI_DISCARD), -FI_EINVAL);
	pair_close(&pair);
}

/* A message that is longer than the rest of the buffer is truncated there, and the buffer is used up. */
static void truncated(size_t len)
{
	uint8_t *buf = guarded_alloc(256);
	struct fi_cq_err_entry error;
	struct pair pair;

	pair_open(&pair, NULL);
	set_min(&pair.b, 100);
	pattern_fill(out, 0, len, 3);
	gives(post_multi(&pair.b, buf, 256, 0), 0);
	post(&pair, fi_inject(pair.a.ep, out, 56, pair.a.peer));
	gives(pair_done(&pair, &pair.b).entry.flags, FI_RECV | FI_MSG);
	post(&pair, fi_send(pair.a.ep, out, len, NULL, pair.a.peer, NULL));
	error = pair_error(&pair, &pair.b);
	gives(error.err, FI_ETRUNC);
	gives(error.len, 200);
	gives(error.olen, len - 200);
	must(error.op_context == buf);
	must(error.buf == buf + 56);
	must(error.flags & FI_MULTI_RECV);
	must(pattern_is(buf + 56, 0, 200, 3));
	must(guarded_intact(buf, 256));
	guarded_free(buf);
	pair_close(&pair);
}

static void truncated_on_every_way(void)
{
	truncated(201);
	truncated(873);
	truncated(5000);
	truncated(500000);
}

/* Withdrawn: the error entry says that the buffer is free. */
static void canceled(void)
{
	uint8_t buf[256];
	struct fi_cq_err_entry error;
	struct pair pair;

	pair_open(&pair, NULL);
	for (int used = 0; used < 2; used++) {
		gives(post_multi(&pair.b, buf, 256, 0), 0);
		if (used) {
			post(&pair, fi_inject(pair.a.ep, out, 8, pair.a.peer));
			pair_done(&pair, &pair.b);
		}
		gives(fi_cancel(&pair.b.ep->fid, buf), 0);
		error = pair_error(&pair, &pair.b);
		gives(error.err, FI_ECANCELED);
		must(error.op_context == buf);
		must(error.flags & FI_MULTI_RECV);
		gives(fi_cancel(&pair.b.ep->fid, buf), -FI_ENOENT);
	}
	pair_close(&pair);
}

/* ---- a stream between two processes ---------------------------------------------------------- */

enum { STREAM = 3000, STREAM_BUFFERS = 4, STREAM_ROOM = 400000, STREAM_MIN = 120000 };
static const size_t stream_lens[] = { 8, 100000, 300, 5000, 40000, 0, 64, 70001 };

static void stream_sender(struct pair *pair)
{
	uint8_t *from = malloc(STREAM_MIN);
	struct fi_cq_tagged_entry entry;
	int completed = 0;

	pattern_fill(from, 0, STREAM_MIN, 4);
	for (int i = 0; i < STREAM; i++) {
		ssize_t ret;

		while ((ret = fi_send(pair->a.ep, from, stream_lens[i % 8], NULL, pair->a.peer, NULL)) ==
		       -FI_EAGAIN) {
			completed += fi_cq_read(pair->a.cq, &entry, 1) == 1;
			pair_progress(pair);
		}
		gives(ret, 0);
	}
	for (; completed < STREAM; completed++)
		pair_done(pair, &pair->a);
	free(from);
}

/* Large messages may complete after small ones behind them, but each whole and at a place of its own. */
static void stream_receiver(struct pair *pair)
{
	static uint8_t *bufs[STREAM_BUFFERS]; /* posted until the endpoint is closed */
	size_t total = 0, wanted = 0;

	set_min(&pair->a, STREAM_MIN);
	for (int i = 0; i < STREAM_BUFFERS; i++) {
		bufs[i] = guarded_alloc(STREAM_ROOM);
		gives(post_multi(&pair->a, bufs[i], STREAM_ROOM, 0), 0);
	}
	for (int i = 0; i < STREAM; i++) {
		struct done done = pair_done(pair, &pair->a);

		must(pattern_is(done.entry.buf, 0, done.entry.len, 4));
		total += done.entry.len;
		wanted += stream_lens[i % 8];
		if (done.entry.flags & FI_MULTI_RECV) {
			must(guarded_intact(done.entry.op_context, STREAM_ROOM));
			memset(done.entry.op_context, 0, STREAM_ROOM);
			gives(post_multi(&pair->a, done.entry.op_context, STREAM_ROOM, 0), 0);
		}
	}
	gives(total, wanted);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(packed),
		ALONE(minimum),
		ALONE(two_buffers),
		ALONE(selective),
		ALONE(by_default),
		ALONE(bad_arguments),
		ALONE(truncated_on_every_way),
		ALONE(canceled),
		BOTH(stream_sender, stream_receiver),
		BOTH_ENV(stream_sender, stream_receiver, "FI_SHMCMA_CMA=0"),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
