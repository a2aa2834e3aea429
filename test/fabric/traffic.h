/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * traffic.h: what plain and tagged messages have in common, as tests of either kind (`tagged`): all sizes,
 * vectors, order, pressure, bad arguments. test_msg.c and test_tagged.c run them.
 */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "pair.h"
#include "../rounds.h"

#include <sys/mman.h>

/* ---- one process ----------------------------------------------------------------------------- */

static inline void traffic_check(const struct done *done, bool tagged, const uint8_t *buf, size_t len,
				 unsigned int seed)
{
	must(done->entry.op_context == buf);
	gives(done->entry.flags, kind_cq_flags(tagged, FI_RECV));
	gives(done->entry.len, len);
	if (tagged)
		gives(done->entry.tag, 7);
	must(pattern_is(buf, 0, len, seed));
	must(guarded_intact(buf, len));
}

/* Every size, with the receive posted before the message is there, or after. */
static inline void traffic_sizes(bool tagged, bool expected)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < PAIR_SIZES; i++) {
		size_t len = pair_sizes[i];
		uint8_t *from = guarded_alloc(len), *to = guarded_alloc(len);
		struct done done;

		pattern_fill(from, 0, len, (unsigned int)i);
		if (expected)
			gives(kind_recv(tagged, &pair.b, to, len, pair.b.peer, to), 0);
		post(&pair, kind_send(tagged, &pair.a, from, len, pair.a.peer, from));
		if (!expected) {
			for (int j = 0; j < 10; j++)
				pair_progress(&pair);
			gives(kind_recv(tagged, &pair.b, to, len, FI_ADDR_UNSPEC, to), 0);
		}
		done = pair_done(&pair, &pair.b);
		traffic_check(&done, tagged, to, len, (unsigned int)i);
		gives(done.source, pair.b.peer);
		done = pair_done(&pair, &pair.a);
		must(done.entry.op_context == from);
		gives(done.entry.flags, kind_cq_flags(tagged, FI_SEND));
		guarded_free(from);
		guarded_free(to);
	}
	pair_close(&pair);
}

/* An endpoint's messages to itself. */
static inline void traffic_self(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < PAIR_SIZES; i++) {
		size_t len = pair_sizes[i];
		uint8_t *from = guarded_alloc(len), *to = guarded_alloc(len);

		pattern_fill(from, 0, len, (unsigned int)i);
		post(&pair, kind_send(tagged, &pair.a, from, len, pair.a.self, from));
		gives(kind_recv(tagged, &pair.a, to, len, pair.a.self, to), 0);
		for (int both = 0; both < 2; both++) {
			struct done done = pair_done(&pair, &pair.a);

			if (done.entry.flags & FI_SEND) {
				must(done.entry.op_context == from);
				continue;
			}
			gives(done.source, pair.a.self);
			traffic_check(&done, tagged, to, len, (unsigned int)i);
		}
		guarded_free(from);
		guarded_free(to);
	}
	pair_close(&pair);
}

/* Cut a buffer into `count` pieces of uneven length, some of them empty. */
static inline void traffic_cut(struct iovec *iov, size_t count, uint8_t *buf, size_t len,
			       unsigned int seed)
{
	size_t at = 0;

	for (size_t i = 0; i < count; i++) {
		size_t left = len - at;
		size_t here = i + 1 == count ? left : (left * ((seed + i * 37) % 64)) / 100;

		iov[i] = (struct iovec){ buf + at, here };
		at += here;
	}
}

/* Every size, in pieces: 1 to 8 at either end. */
static inline void traffic_vectors(bool tagged)
{
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < PAIR_SIZES; i++) {
		size_t len = pair_sizes[i];
		uint8_t *from = guarded_alloc(len), *to = guarded_alloc(len);

		pattern_fill(from, 0, len, (unsigned int)i);
		for (unsigned int pieces = 0; pieces < 16; pieces++) {
			struct kind_msg send = { .iov_count = 1 + pieces % 8,
						 .addr = pair.a.peer,
						 .context = from };
			struct kind_msg recv = { .iov_count = 8 - pieces / 2,
						 .addr = FI_ADDR_UNSPEC,
						 .context = to };
			struct done done;

			memset(to, 0x11, len);
			traffic_cut(send.iov, send.iov_count, from, len, pieces);
			traffic_cut(recv.iov, recv.iov_count, to, len, pieces + 5);
			if (pieces & 1)
				gives(kind_recvmsg(tagged, &pair.b, &recv, 0), 0);
			post(&pair, kind_sendmsg(tagged, &pair.a, &send, 0));
			if (!(pieces & 1))
				gives(kind_recvmsg(tagged, &pair.b, &recv, 0), 0);
			done = pair_done(&pair, &pair.b);
			traffic_check(&done, tagged, to, len, (unsigned int)i);
			must(pair_done(&pair, &pair.a).entry.op_context == from);
		}
		guarded_free(from);
		guarded_free(to);
	}
	pair_close(&pair);
}

/* No buffers at all: a message and a receive of 0 bytes. */
static inline void traffic_nothing(bool tagged)
{
	struct kind_msg send = { .iov_count = 0, .context = &send };
	struct kind_msg recv = { .iov_count = 0, .addr = FI_ADDR_UNSPEC, .context = &recv };
	struct pair pair;

	pair_open(&pair, NULL);
	send.addr = pair.a.peer;
	gives(kind_recvmsg(tagged, &pair.b, &recv, 0), 0);
	gives(kind_sendmsg(tagged, &pair.a, &send, 0), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 0);
	gives(kind_recv(tagged, &pair.b, NULL, 0, FI_ADDR_UNSPEC, &recv), 0);
	gives(kind_send(tagged, &pair.a, NULL, 0, pair.a.peer, &send), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 0);
	pair_close(&pair);
}

/* Messages of a pair arrive in the order of the calls, whatever way each takes. */
static inline void traffic_order(bool tagged)
{
	enum { MESSAGES = 2000, LARGEST = 100000 };
	static const size_t lens[] = { 8, 5000, 64, LARGEST, 200, 40000, 1000 };
	uint8_t *to = malloc(LARGEST);
	struct pair pair;
	uint64_t number;

	pair_open(&pair, NULL);
	for (uint64_t sent = 0, received = 0; received < MESSAGES;) {
		size_t ahead = 1 + sent % 20 < MESSAGES - sent ? 1 + sent % 20 : MESSAGES - sent;

		for (size_t i = 0; i < ahead; i++, sent++) {
			uint64_t *own = calloc(1, lens[sent % 7]);

			*own = sent;
			post(&pair, kind_send(tagged, &pair.a, own, lens[sent % 7], pair.a.peer, own));
		}
		while (received < sent) {
			struct done done;

			gives(kind_recv(tagged, &pair.b, to, LARGEST, FI_ADDR_UNSPEC, to), 0);
			done = pair_done(&pair, &pair.b);
			gives(done.entry.len, lens[received % 7]);
			memcpy(&number, to, sizeof(number));
			gives(number, received);
			received++;
		}
		for (size_t i = 0; i < ahead; i++)
			free(pair_done(&pair, &pair.a).entry.op_context);
	}
	pair_close(&pair);
	free(to);
}

/*
 * A sender whose messages nobody takes is pushed back at last; when they are taken they are all there, in
 * order, and it can go on.
 */
static inline void traffic_back_pressure(bool tagged)
{
	enum { LIMIT = 3000000, LEN = 1024 };
	uint8_t from[LEN] = { 0 }, to[LEN];
	uint64_t sent = 0, number;
	struct pair pair;
	ssize_t ret;

	pair_open(&pair, NULL);
	for (int stuck = 0; stuck < 100; stuck += ret != 0) {
		memcpy(from, &sent, sizeof(sent));
		ret = kind_inject(tagged, &pair.a, from, LEN, pair.a.peer);
		if (!ret)
			sent++;
		else
			gives(ret, -FI_EAGAIN);
		pair_progress(&pair);
		must(sent < LIMIT);
	}
	for (uint64_t received = 0; received < sent; received++) {
		gives(kind_recv(tagged, &pair.b, to, LEN, FI_ADDR_UNSPEC, to), 0);
		gives(pair_done(&pair, &pair.b).entry.len, LEN);
		memcpy(&number, to, sizeof(number));
		gives(number, received);
	}
	gives(kind_recv(tagged, &pair.b, to, LEN, FI_ADDR_UNSPEC, to), 0);
	post(&pair, kind_inject(tagged, &pair.a, from, LEN, pair.a.peer));
	pair_done(&pair, &pair.b);
	pair_close(&pair);
}

/* At least as many as were asked for may be outstanding. */
static inline void traffic_queue_sizes(bool tagged)
{
	enum { SIZE = 300 };
	struct pair_want want = { .tx_size = SIZE, .rx_size = SIZE };
	size_t len = 1 << 16;
	uint8_t *buf = calloc(1, len);
	struct pair pair;

	pair_open(&pair, &want);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < SIZE; i++)
			gives(kind_recv(tagged, &pair.b, buf, len, FI_ADDR_UNSPEC, NULL), 0);
		/* rendezvous with somebody who looks only when the ring is full */
		for (int i = 0; i < SIZE; i++)
			post(&pair, kind_send(tagged, &pair.a, buf, len, pair.a.peer, NULL));
		for (int i = 0; i < SIZE; i++)
			pair_done(&pair, &pair.b);
		for (int i = 0; i < SIZE; i++)
			pair_done(&pair, &pair.a);
	}
	pair_close(&pair);
	free(buf);
}

/*
 * Completions of sends that nobody reads hold back sends, not beyond the size of the queue; receives are
 * never held back.
 */
static inline void traffic_unread_completions(bool tagged)
{
	enum { SIZE = 64 };
	struct pair_want want = { .cq_size = SIZE };
	char buf[8] = "";
	struct pair pair;

	pair_open(&pair, &want);
	for (int i = 0; i < SIZE; i++)
		post(&pair, kind_send(tagged, &pair.a, buf, 1, pair.a.peer, buf));
	gives(kind_send(tagged, &pair.a, buf, 1, pair.a.peer, buf), -FI_EAGAIN);
	gives(kind_inject(tagged, &pair.a, buf, 1, pair.a.peer), 0); /* has none */
	for (int i = 0; i < SIZE + 1; i++)
		gives(kind_recv(tagged, &pair.b, buf, 8, FI_ADDR_UNSPEC, buf), 0);
	for (int i = 0; i < SIZE + 1; i++)
		pair_done(&pair, &pair.b);
	pair_done(&pair, &pair.a);
	gives(kind_send(tagged, &pair.a, buf, 1, pair.a.peer, buf), 0);
	gives(kind_send(tagged, &pair.a, buf, 1, pair.a.peer, buf), -FI_EAGAIN);
	pair_close(&pair);
}

/* ---- every call -------------------------------------------------------------------------------- */

#define TRAFFIC_CALLS 6

/* One of the calls that send; those with data send 33, tagged ones the tag 7. */
static inline ssize_t traffic_send(bool tagged, struct side *side, int call, struct kind_msg *msg)
{
	struct fid_ep *ep = side->ep;
	uint8_t *buf = msg->iov[0].iov_base;
	fi_addr_t to = msg->addr;

	switch (call) {
	case 0:
		return kind_send(tagged, side, buf, 8, to, msg->context);
	case 1:
		return tagged ? fi_tsendv(ep, msg->iov, NULL, msg->iov_count, to, 7, msg->context)
			      : fi_sendv(ep, msg->iov, NULL, msg->iov_count, to, msg->context);
	case 2:
		return kind_sendmsg(tagged, side, msg, FI_REMOTE_CQ_DATA);
	case 3:
		return tagged ? fi_tsenddata(ep, buf, 8, NULL, 33, to, 7, msg->context)
			      : fi_senddata(ep, buf, 8, NULL, 33, to, msg->context);
	case 4:
		return kind_inject(tagged, side, buf, 8, to);
	default:
		return tagged ? fi_tinjectdata(ep, buf, 8, 33, to, 7) : fi_injectdata(ep, buf, 8, 33, to);
	}
}

static inline ssize_t traffic_recv(bool tagged, struct side *side, int call, struct kind_msg *msg)
{
	struct fid_ep *ep = side->ep;

	switch (call) {
	case 0:
		return kind_recv(tagged, side, msg->iov[0].iov_base, 64, msg->addr, msg->context);
	case 1:
		return tagged ? fi_trecvv(ep, msg->iov, NULL, msg->iov_count, msg->addr, 0, 7,
					  msg->context)
			      : fi_recvv(ep, msg->iov, NULL, msg->iov_count, msg->addr, msg->context);
	default:
		return kind_recvmsg(tagged, side, msg, 0);
	}
}

/* Every way to send meets every way to receive. */
static inline void traffic_calls(bool tagged)
{
	char out[64], in[64];
	struct kind_msg from = {
		.iov = { { out, 4 }, { out + 4, 4 } }, .iov_count = 2, .context = out, .data = 33
	};
	struct kind_msg to = {
		.iov = { { in, 2 }, { in + 2, 62 } }, .iov_count = 2, .addr = FI_ADDR_UNSPEC, .context = in
	};
	struct pair pair;
	struct done done;

	pair_open(&pair, NULL);
	from.addr = pair.a.peer;
	pattern_fill(out, 0, 8, 1);
	for (int call = 0; call < 3 * TRAFFIC_CALLS; call++) {
		int sent = call % TRAFFIC_CALLS;
		bool data = sent == 2 || sent == 3 || sent == 5, injected = sent >= 4;

		memset(in, 0, sizeof(in));
		gives(traffic_recv(tagged, &pair.b, call / TRAFFIC_CALLS, &to), 0);
		gives(traffic_send(tagged, &pair.a, sent, &from), 0);
		done = pair_done(&pair, &pair.b);
		must(done.entry.op_context == in);
		gives(done.entry.flags, kind_cq_flags(tagged, FI_RECV) | (data ? FI_REMOTE_CQ_DATA : 0));
		gives(done.entry.len, 8);
		if (data)
			gives(done.entry.data, 33);
		if (tagged)
			gives(done.entry.tag, 7);
		must(pattern_is(in, 0, 8, 1));
		if (!injected) {
			done = pair_done(&pair, &pair.a);
			must(done.entry.op_context == out);
			gives(done.entry.flags, kind_cq_flags(tagged, FI_SEND));
		}
		pair_quiet(&pair, &pair.a);
	}
	pair_close(&pair);
}

/* ---- bad arguments --------------------------------------------------------------------------- */

static inline void traffic_bad_address(bool tagged)
{
	struct kind_msg msg = { .iov_count = 1, .addr = 12345 };
	char buf[8];
	struct pair pair;

	pair_open(&pair, NULL);
	msg.iov[0] = (struct iovec){ buf, 1 };
	gives(kind_send(tagged, &pair.a, buf, 1, 12345, NULL), -FI_EINVAL);
	gives(kind_send(tagged, &pair.a, buf, 1, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	gives(kind_send(tagged, &pair.a, buf, 1, 1ULL << 40, NULL), -FI_EINVAL);
	gives(kind_inject(tagged, &pair.a, buf, 1, 12345), -FI_EINVAL);
	gives(kind_sendmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
	gives(kind_recv(tagged, &pair.a, buf, 1, 12345, NULL), -FI_EINVAL);
	gives(kind_recvmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);

	/* removed, by number; the same address inserted again works */
	gives(kind_send(tagged, &pair.a, buf, 1, pair.a.peer, NULL), 0);
	gives(fi_av_remove(pair.a.av, &pair.a.peer, 1, 0), 0);
	gives(kind_send(tagged, &pair.a, buf, 1, pair.a.peer, NULL), -FI_EINVAL);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	gives(kind_send(tagged, &pair.a, buf, 1, pair.a.peer, NULL), 0);
	pair_close(&pair);
}

/*
 * Bytes at a null pointer are refused by all calls, but for those with one buffer that a domain without locks is asked
 * for: of these only sends that are longer than a short message.
 */
static inline void traffic_null_buffer(bool tagged)
{
	static const enum fi_threading threadings[] = { FI_THREAD_SAFE, FI_THREAD_DOMAIN };
	static const size_t lens[] = { 1, 8, 64, 300, 5000, 100000, 1 << 20 };

	for (size_t i = 0; i < 14; i++) {
		struct pair_want want = { .threading = threadings[i / 7] };
		const size_t len = lens[i % 7];
		struct kind_msg msg = { .iov_count = 1 };
		char buf[8];
		struct pair pair;

		pair_open(&pair, &want);
		msg.addr = pair.a.peer;
		msg.iov[0] = (struct iovec){ NULL, len };
		gives(kind_sendmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
		gives(kind_recvmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
		msg.iov[1] = msg.iov[0];
		msg.iov[0] = (struct iovec){ buf, sizeof(buf) };
		msg.iov_count = 2;
		gives(kind_sendmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
		gives(kind_recvmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
		if (want.threading == FI_THREAD_SAFE || len >= 5000)
			gives(kind_send(tagged, &pair.a, NULL, len, pair.a.peer, NULL), -FI_EINVAL);
		if (want.threading == FI_THREAD_SAFE) {
			gives(kind_recv(tagged, &pair.a, NULL, len, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
			gives(kind_inject(tagged, &pair.a, NULL, len, pair.a.peer), -FI_EINVAL);
		}
		/* the next message is not hindered, nor is one without bytes */
		gives(kind_send(tagged, &pair.a, NULL, 0, pair.a.peer, NULL), 0);
		gives(kind_recv(tagged, &pair.b, NULL, 0, FI_ADDR_UNSPEC, NULL), 0);
		gives(pair_done(&pair, &pair.b).entry.len, 0);
		pair_done(&pair, &pair.a);
		pair_close(&pair);
	}
}

/* The number that an address had goes to another one: messages go to the new. */
static inline void traffic_reused_address(bool tagged)
{
	fi_addr_t addr;
	struct pair pair;
	char buf[8];

	pair_open(&pair, NULL);
	gives(kind_send(tagged, &pair.a, buf, 1, pair.a.peer, NULL), 0);
	gives(kind_recv(tagged, &pair.b, buf, 8, FI_ADDR_UNSPEC, NULL), 0);
	pair_done(&pair, &pair.b);
	pair_done(&pair, &pair.a);
	gives(fi_av_remove(pair.a.av, &pair.a.peer, 1, 0), 0);
	addr = pair_insert(pair.a.av, pair.a.name);
	gives(addr, pair.a.peer);
	gives(kind_recv(tagged, &pair.a, buf, 8, FI_ADDR_UNSPEC, buf), 0);
	gives(kind_inject(tagged, &pair.a, buf, 1, addr), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == buf);
	pair_quiet(&pair, &pair.b);
	pair_close(&pair);
}

static inline void traffic_bad_vectors(bool tagged)
{
	struct kind_msg msg = { .iov_count = 9 };
	char buf[16];
	struct pair pair;

	pair_open(&pair, NULL);
	gives(pair.info->tx_attr->iov_limit, 8);
	gives(pair.info->rx_attr->iov_limit, 8);
	for (int i = 0; i < 16; i++)
		msg.iov[i] = (struct iovec){ buf, 1 };
	msg.addr = pair.a.peer;
	gives(kind_sendmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
	gives(kind_recvmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
	msg.iov_count = SIZE_MAX;
	gives(kind_sendmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
	gives(kind_recvmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
	/* more bytes than there are */
	msg.iov_count = 2;
	msg.iov[1].iov_len = SIZE_MAX;
	gives(kind_recvmsg(tagged, &pair.a, &msg, 0), -FI_EINVAL);
	if (tagged)
		gives(fi_trecvv(pair.a.ep, msg.iov, NULL, 2, FI_ADDR_UNSPEC, 7, 0, NULL), -FI_EINVAL);
	else
		gives(fi_recvv(pair.a.ep, msg.iov, NULL, 2, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	if (tagged) {
		gives(fi_tsendv(pair.a.ep, msg.iov, NULL, 9, pair.a.peer, 7, NULL), -FI_EINVAL);
		gives(fi_tsendv(pair.a.ep, NULL, NULL, 1, pair.a.peer, 7, NULL), -FI_EINVAL);
		gives(fi_trecvv(pair.a.ep, msg.iov, NULL, 9, FI_ADDR_UNSPEC, 7, 0, NULL), -FI_EINVAL);
		gives(fi_trecvv(pair.a.ep, NULL, NULL, 1, FI_ADDR_UNSPEC, 7, 0, NULL), -FI_EINVAL);
	} else {
		gives(fi_sendv(pair.a.ep, msg.iov, NULL, 9, pair.a.peer, NULL), -FI_EINVAL);
		gives(fi_sendv(pair.a.ep, NULL, NULL, 1, pair.a.peer, NULL), -FI_EINVAL);
		gives(fi_recvv(pair.a.ep, msg.iov, NULL, 9, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
		gives(fi_recvv(pair.a.ep, NULL, NULL, 1, FI_ADDR_UNSPEC, NULL), -FI_EINVAL);
	}
	pair_quiet(&pair, &pair.a);
	pair_close(&pair);
}

/* ---- the limit ------------------------------------------------------------------------------- */

/* The longest message goes, as far as the receiver has a buffer; a longer one is refused, in parts as well. */
static inline void traffic_longest(bool tagged)
{
	struct kind_msg msg = { .iov_count = 2 };
	struct fi_cq_err_entry error;
	char from[64] = "begins so", to[64] = "";
	struct pair pair;
	size_t limit;

	pair_open(&pair, NULL);
	limit = pair.info->ep_attr->max_msg_size;
	msg.addr = pair.a.peer;
	gives(kind_recv(tagged, &pair.b, to, 0, FI_ADDR_UNSPEC, to), 0);
	post(&pair,
	     kind_inject(tagged, &pair.a, "", 0, pair.a.peer)); /* from here on they are connected */
	pair_done(&pair, &pair.b);
	gives(kind_recv(tagged, &pair.b, to, sizeof(to), FI_ADDR_UNSPEC, to), 0);
	gives(kind_send(tagged, &pair.a, from, limit + 1, pair.a.peer, NULL), -FI_EMSGSIZE);
	gives(kind_send(tagged, &pair.a, from, SIZE_MAX, pair.a.peer, NULL), -FI_EMSGSIZE);
	msg.iov[0] = (struct iovec){ from, limit };
	for (size_t more = 1; more < sizeof(from); more++) {
		msg.iov[1] = (struct iovec){ from, more };
		gives(kind_sendmsg(tagged, &pair.a, &msg, 0), -FI_EMSGSIZE);
	}
	/* lengths whose sum is no length */
	msg.iov[0].iov_len = SIZE_MAX;
	gives(kind_sendmsg(tagged, &pair.a, &msg, 0), -FI_EMSGSIZE);
	gives(kind_sendmsg(tagged, &pair.a, &msg, FI_INJECT), -FI_EMSGSIZE);
	pair_quiet(&pair, &pair.a);
	pair_quiet(&pair, &pair.b);
	gives(kind_send(tagged, &pair.a, from, limit, pair.a.peer, from), 0);
	error = pair_error(&pair, &pair.b);
	gives(error.err, FI_ETRUNC);
	gives(error.len, sizeof(to));
	gives(error.olen, limit - sizeof(to));
	must(!memcmp(from, to, sizeof(to)));
	must(pair_done(&pair, &pair.a).entry.op_context == from);
	pair_close(&pair);
}

/* ---- inject ---------------------------------------------------------------------------------- */

/* Up to inject_size, with the buffer used again at once, and no completion. */
static inline void traffic_inject(bool tagged)
{
	struct pair pair;
	size_t limit;
	uint8_t *from, *to;

	pair_open(&pair, NULL);
	limit = pair.info->tx_attr->inject_size;
	must(limit >= 4096);
	from = malloc(limit + 1);
	to = malloc(limit + 1);
	for (size_t len = 0; len <= limit; len = len < 300			  ? len + 1
						 : len * 2 > limit && len < limit ? limit
										  : len * 2) {
		pattern_fill(from, 0, len, (unsigned int)len);
		post(&pair, kind_inject(tagged, &pair.a, from, len, pair.a.peer));
		memset(from, 0xff, len);
		gives(kind_recv(tagged, &pair.b, to, limit, FI_ADDR_UNSPEC, to), 0);
		gives(pair_done(&pair, &pair.b).entry.len, len);
		must(pattern_is(to, 0, len, (unsigned int)len));
	}
	gives(kind_inject(tagged, &pair.a, from, limit + 1, pair.a.peer), -FI_EMSGSIZE);
	pair_quiet(&pair, &pair.a);
	pair_close(&pair);
	free(from);
	free(to);
}

/* Many injected at the largest size before the receiver looks at one. */
static inline void traffic_inject_many(bool tagged)
{
	enum { MESSAGES = 500, LEN = 4096 };
	uint8_t from[LEN], to[LEN];
	struct pair pair;

	pair_open(&pair, NULL);
	for (unsigned int i = 0; i < MESSAGES; i++) {
		pattern_fill(from, 0, LEN, i);
		post(&pair, kind_inject(tagged, &pair.a, from, LEN, pair.a.peer));
		memset(from, 0xff, LEN);
	}
	for (unsigned int i = 0; i < MESSAGES; i++) {
		gives(kind_recv(tagged, &pair.b, to, LEN, FI_ADDR_UNSPEC, to), 0);
		pair_done(&pair, &pair.b);
		must(pattern_is(to, 0, LEN, i));
	}
	pair_quiet(&pair, &pair.a);
	pair_close(&pair);
}

/* ---- two processes --------------------------------------------------------------------------- */

/* Every size twice: the receive posted first, the message posted first. */
static inline void traffic_sender(struct pair *pair, bool tagged)
{
	for (size_t i = 0; i < PAIR_SIZES; i++) {
		uint8_t *from = guarded_alloc(pair_sizes[i]);

		pattern_fill(from, 0, pair_sizes[i], (unsigned int)i);
		for (int expected = 1; expected >= 0; expected--) {
			if (expected)
				pair_meet(pair);
			post(pair, kind_send(tagged, &pair->a, from, pair_sizes[i], pair->a.peer, from));
			if (!expected)
				pair_meet(pair);
			must(pair_done(pair, &pair->a).entry.op_context == from);
		}
		guarded_free(from);
	}
}

static inline void traffic_receiver(struct pair *pair, bool tagged)
{
	for (size_t i = 0; i < PAIR_SIZES; i++) {
		size_t len = pair_sizes[i];

		for (int expected = 1; expected >= 0; expected--) {
			uint8_t *to = guarded_alloc(len);
			struct done done;

			if (!expected)
				pair_meet(pair);
			gives(kind_recv(tagged, &pair->a, to, len, FI_ADDR_UNSPEC, to), 0);
			if (expected)
				pair_meet(pair);
			done = pair_done(pair, &pair->a);
			traffic_check(&done, tagged, to, len, (unsigned int)i);
			gives(done.source, pair->a.peer);
			guarded_free(to);
		}
	}
}

/* Both at once, many outstanding, sizes mixed. */
#define EXCHANGE_LARGEST 300000
static const size_t exchange_lens[] = { 1, 300, EXCHANGE_LARGEST, 4096, 70000, 8, 33000 };

struct exchange_slot {
	uint8_t *buf;
	unsigned int number; /* of the receive and so of its message: both go by order */
	bool busy;
};

static inline void exchange_received(const struct fi_cq_tagged_entry *entry)
{
	struct exchange_slot *slot = entry->op_context;

	gives(entry->len, exchange_lens[slot->number % 7]);
	must(pattern_is(slot->buf, 0, entry->len, 3));
	slot->busy = false;
}

static inline void traffic_exchange(struct pair *pair, bool tagged)
{
	enum { MESSAGES = 1000, OUTSTANDING = 16 };
	struct exchange_slot slots[OUTSTANDING] = { { .buf = NULL } };
	unsigned int sent = 0, completed = 0, posted = 0, received = 0;
	uint8_t *from = malloc(EXCHANGE_LARGEST);
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	pattern_fill(from, 0, EXCHANGE_LARGEST, 3);
	for (int i = 0; i < OUTSTANDING; i++)
		slots[i].buf = malloc(EXCHANGE_LARGEST);
	while (completed < MESSAGES || received < MESSAGES) {
		for (int i = 0; i < OUTSTANDING && posted < MESSAGES; i++) {
			if (slots[i].busy)
				continue;
			slots[i].busy = true;
			slots[i].number = posted++;
			gives(kind_recv(tagged, &pair->a, slots[i].buf, EXCHANGE_LARGEST, FI_ADDR_UNSPEC,
					&slots[i]),
			      0);
		}
		while (sent < MESSAGES && sent - completed < OUTSTANDING) {
			ret = kind_send(tagged, &pair->a, from, exchange_lens[sent % 7], pair->a.peer,
					NULL);
			if (ret == -FI_EAGAIN)
				break;
			gives(ret, 0);
			sent++;
		}
		ret = fi_cq_read(pair->a.cq, &entry, 1);
		if (ret == -FI_EAGAIN) {
			pair_progress(pair);
			continue;
		}
		gives(ret, 1);
		if (entry.flags & FI_SEND) {
			completed++;
		} else {
			exchange_received(&entry);
			received++;
		}
	}
	for (int i = 0; i < OUTSTANDING; i++)
		free(slots[i].buf);
	free(from);
}

/* ---- more than 4 GiB ------------------------------------------------------------------------- */

#define LARGE ((4ULL << 30) + 4097)
#define LARGE_STEP ((1ULL << 20) + 64) /* a patterned line every so often, the rest is untouched zeros */

static inline void large_or_skip(void)
{
	if (SANITIZED || memory_is_short())
		exit(PAIR_SKIP);
	watchdog_start("a test of more than 4 GiB", WATCHDOG_WALL);
}

/* `advice` of madvise(2): a buffer that is written as a whole takes a million page faults otherwise. */
static inline uint8_t *large_alloc(int advice)
{
	uint8_t *buf = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	must(buf != MAP_FAILED);
	(void)madvise(buf, LARGE, advice);
	return buf;
}

static inline void large_mark(uint8_t *buf)
{
	for (uint64_t at = 0; at + 64 < LARGE; at += LARGE_STEP)
		pattern_fill(buf + at, at, 64, 9);
	pattern_fill(buf + (4ULL << 30) - 32, 0, 64, 10);
	pattern_fill(buf + LARGE - 64, 0, 64, 11);
}

static inline bool large_is_marked(const uint8_t *buf)
{
	for (uint64_t at = 0; at + 64 < LARGE - 4200; at += LARGE_STEP)
		if (!pattern_is(buf + at, at, 64, 9))
			return false;
	return pattern_is(buf + (4ULL << 30) - 32, 0, 64, 10) && pattern_is(buf + LARGE - 64, 0, 64, 11);
}

static inline void traffic_large(bool tagged)
{
	uint8_t *from, *to;
	struct pair pair;

	large_or_skip();
	from = large_alloc(MADV_NOHUGEPAGE);
	to = large_alloc(MADV_HUGEPAGE);
	large_mark(from);
	pair_open(&pair, NULL);
	must(pair.info->ep_attr->max_msg_size >= LARGE);
	gives(kind_recv(tagged, &pair.b, to, LARGE, FI_ADDR_UNSPEC, to), 0);
	gives(kind_send(tagged, &pair.a, from, LARGE, pair.a.peer, from), 0);
	gives(pair_done(&pair, &pair.b).entry.len, LARGE);
	pair_done(&pair, &pair.a);
	must(large_is_marked(to));
	pair_close(&pair);
}

static inline void traffic_large_sender(struct pair *pair, bool tagged)
{
	uint8_t *from;

	large_or_skip();
	from = large_alloc(MADV_NOHUGEPAGE);
	large_mark(from);
	gives(kind_send(tagged, &pair->a, from, LARGE, pair->a.peer, from), 0);
	must(pair_done(pair, &pair->a).entry.op_context == from);
}

static inline void traffic_large_receiver(struct pair *pair, bool tagged)
{
	uint8_t *to;

	large_or_skip();
	to = large_alloc(MADV_HUGEPAGE);
	gives(kind_recv(tagged, &pair->a, to, LARGE, FI_ADDR_UNSPEC, to), 0);
	gives(pair_done(pair, &pair->a).entry.len, LARGE);
	must(large_is_marked(to));
}

/* ---- as tests of one kind -------------------------------------------------------------------- */

/* In a test file: TRAFFIC(true) makes them, TRAFFIC_TESTS lists them, TRAFFIC_LARGE_TESTS those that take seconds. */
#define TRAFFIC_ALONE(name, call, kind)                                                                   \
	static void name(void)                                                                            \
	{                                                                                                 \
		const bool tagged = kind;                                                                 \
		call;                                                                                     \
	}
#define TRAFFIC_ROLE(name, call, kind)                                                                    \
	static void name(struct pair *pair)                                                               \
	{                                                                                                 \
		call(pair, kind);                                                                         \
	}
#define TRAFFIC(kind)                                                                                     \
	TRAFFIC_ALONE(calls, traffic_calls(tagged), kind)                                                 \
	TRAFFIC_ALONE(sizes_expected, traffic_sizes(tagged, true), kind)                                  \
	TRAFFIC_ALONE(sizes_unexpected, traffic_sizes(tagged, false), kind)                               \
	TRAFFIC_ALONE(to_oneself, traffic_self(tagged), kind)                                             \
	TRAFFIC_ALONE(vectors, traffic_vectors(tagged), kind)                                             \
	TRAFFIC_ALONE(nothing, traffic_nothing(tagged), kind)                                             \
	TRAFFIC_ALONE(order, traffic_order(tagged), kind)                                                 \
	TRAFFIC_ALONE(back_pressure, traffic_back_pressure(tagged), kind)                                 \
	TRAFFIC_ALONE(queue_sizes, traffic_queue_sizes(tagged), kind)                                     \
	TRAFFIC_ALONE(unread_completions, traffic_unread_completions(tagged), kind)                       \
	TRAFFIC_ALONE(bad_address, traffic_bad_address(tagged), kind)                                     \
	TRAFFIC_ALONE(null_buffer, traffic_null_buffer(tagged), kind)                                     \
	TRAFFIC_ALONE(reused_address, traffic_reused_address(tagged), kind)                               \
	TRAFFIC_ALONE(bad_vectors, traffic_bad_vectors(tagged), kind)                                     \
	TRAFFIC_ALONE(longest, traffic_longest(tagged), kind)                                             \
	TRAFFIC_ALONE(inject, traffic_inject(tagged), kind)                                               \
	TRAFFIC_ALONE(inject_many, traffic_inject_many(tagged), kind)                                     \
	TRAFFIC_ROLE(sender, traffic_sender, kind)                                                        \
	TRAFFIC_ROLE(receiver, traffic_receiver, kind)                                                    \
	TRAFFIC_ROLE(exchange, traffic_exchange, kind)                                                    \
	TRAFFIC_ALONE(large, traffic_large(tagged), kind)                                                 \
	TRAFFIC_ROLE(large_sender, traffic_large_sender, kind)                                            \
	TRAFFIC_ROLE(large_receiver, traffic_large_receiver, kind)

/* Inside one process, by CMA, and pulled through bounce buffers. */
#define TRAFFIC_TESTS                                                                                     \
	ALONE(calls), ALONE(sizes_expected), ALONE(sizes_unexpected), ALONE(to_oneself), ALONE(vectors),  \
		ALONE(nothing), ALONE(order), ALONE(back_pressure), ALONE(queue_sizes),                   \
		ALONE(unread_completions), ALONE(bad_address), ALONE(null_buffer), ALONE(reused_address), \
		ALONE(bad_vectors), ALONE(longest), ALONE(inject), ALONE(inject_many),                    \
		BOTH(sender, receiver), BOTH_ENV(sender, receiver, "FI_SHMCMA_CMA=0"),                    \
		BOTH(exchange, exchange), BOTH_ENV(exchange, exchange, "FI_SHMCMA_CMA=0")

/* More than 4 GiB */
#define TRAFFIC_LARGE_TESTS                                                                               \
	ALONE(large), BOTH(large_sender, large_receiver),                                                 \
		BOTH_ENV(large_sender, large_receiver, "FI_SHMCMA_CMA=0")

#endif
