/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kernel_sizes.c: one message at a time, of every size that could meet a limit, between two ranks.
 *
 * A "shot" is one message with all its circumstances. Both ranks go through the same list of shots; the
 * one it comes from sends, the other receives. The receiver's arena is poisoned before each shot, and
 * afterwards everything in and around its pieces that the message had no business with must still be
 * poison.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <string.h>
#include <sys/mman.h>

#define POISON 0xEE
#define MARGIN 256	   /* bytes looked at before the first and after the last piece */
#define PIECES 8	   /* most on either side */
#define MANY_MAX 65536	   /* sizes up to this are tried in all ways, larger ones in a few */
#define ALL_FLAGS_MAX 1024 /* every completion level up to this size */

/* Each of these with one less and one more. Lines of a ring record end at 40 + 56 k and 32 + 56 k. */
static const size_t thresholds[] = {
	1,     8,     16,    32,     40,     64,     96,      128,     152,	 192,	200,   208,
	256,   264,   320,   376,    432,    488,    512,     544,     600,	 656,	712,   768,
	824,   872,   880,   936,    1024,   2048,   4096,    8192,    16384,	 24576, 32768, 40960,
	49152, 57344, 65536, 131072, 262144, 524288, 1 << 20, 4 << 20, 64 << 20,
};
#define THRESHOLDS (sizeof(thresholds) / sizeof(thresholds[0]))

struct shot {
	int from;
	bool tagged, unexpected;
	size_t size;
	size_t room; /* of the receive */
	enum mt_call call;
	uint64_t flags; /* MT_SENDMSG */
	size_t send_pieces, recv_pieces;
	uint64_t number;
};

struct range {
	struct mt_ep *ep;
	fi_addr_t peer;
	size_t max; /* largest size */
	uint8_t *out, *in;
	size_t arena; /* bytes of each */
	size_t iov_limit_tx, iov_limit_rx;
	size_t inject, truncate_max;
	uint64_t shots;
};

/* Lay `size` bytes out in pieces of odd sizes with gaps between; returns the end of the last. */
static size_t lay_out(struct iovec *iov, size_t pieces, uint8_t *arena, size_t size, uint64_t seed)
{
	struct mt_random random = { mt_hash(seed) };
	size_t at = MARGIN + mt_below(&random, 61), left = size;

	for (size_t i = 0; i < pieces; i++) {
		size_t len = i + 1 == pieces ? left : mt_below(&random, left / (pieces - i) * 2 + 2);

		if (len > left)
			len = left;
		iov[i].iov_base = arena + at;
		iov[i].iov_len = len;
		at += len + (i + 1 == pieces ? 0 : 16 + mt_below(&random, 64));
		left -= len;
	}
	return at;
}

static const char *shot_name(const struct shot *shot)
{
	static const char *const calls[] = {
		"send", "sendv", "sendmsg", "senddata", "inject", "injectdata"
	};
	static char text[200];

	snprintf(
		text, sizeof(text),
		"shot %llu: %s%s of %zu bytes from rank %d in %zu pieces into %zu bytes in %zu pieces, %s,"
		" flags %#llx",
		(unsigned long long)shot->number, shot->tagged ? "t" : "", calls[shot->call], shot->size,
		shot->from, shot->send_pieces, shot->room, shot->recv_pieces,
		shot->unexpected ? "unexpected" : "expected", (unsigned long long)shot->flags);
	return text;
}

static uint64_t shot_tag(const struct shot *shot)
{
	return shot->number * 0x100000001ULL;
}

static bool has_data(const struct shot *shot)
{
	return shot->call == MT_DATA || shot->call == MT_INJECTDATA || (shot->flags & FI_REMOTE_CQ_DATA);
}

static void shot_send(struct range *r, const struct shot *shot)
{
	struct iovec iov[PIECES];
	struct mt_op op = { 0 };
	struct mt_message m = {
		.tagged = shot->tagged,
		.call = shot->call,
		.iov = iov,
		.pieces = shot->send_pieces,
		.peer = r->peer,
		.tag = shot_tag(shot),
		.data = mt_hash(shot->number),
		.flags = shot->flags,
	};
	size_t done = 0, end;

	end = lay_out(iov, m.pieces, r->out, shot->size, shot->number * 2);
	for (size_t i = 0; i < m.pieces; done += iov[i++].iov_len)
		pattern_fill(iov[i].iov_base, done, iov[i].iov_len, shot->number);
	if (!shot->unexpected)
		mt_barrier(r->ep); /* the receive is posted */
	mt_post_send(r->ep, &op, &m);
	if (op.done || (shot->flags & FI_INJECT))
		memset(r->out, 0x11, end); /* ours again */
	if (shot->unexpected)
		mt_barrier(r->ep); /* sent */
	mt_wait(r->ep, &op);
	mt_barrier(r->ep);
}

static void check_poison(const struct range *r, size_t from, size_t to)
{
	ssize_t bad;

	if (from >= to)
		return;
	bad = mt_verify_byte(r->in + from, to - from, POISON);
	mt_require(bad < 0, "byte %zu of the arena was written, outside what was received",
		   from + (size_t)bad);
}

/* The payload in place, and nothing else changed. */
static void check_arena(const struct range *r, const struct shot *shot, const struct iovec *iov,
			size_t end)
{
	size_t left = shot->size < shot->room ? shot->size : shot->room, done = 0, clean = 0;

	for (size_t i = 0; i < shot->recv_pieces; i++) {
		size_t at = (size_t)((uint8_t *)iov[i].iov_base - r->in);
		size_t len = iov[i].iov_len < left ? iov[i].iov_len : left;
		ssize_t bad = pattern_differs(r->in + at, done, len, shot->number);

		mt_require(bad < 0, "byte %zu of the message is wrong", done + (size_t)bad);
		check_poison(r, clean, at);
		clean = at + len;
		done += len;
		left -= len;
	}
	check_poison(r, clean, end + MARGIN);
}

static void check_completion(const struct range *r, const struct shot *shot, const struct mt_op *op)
{
	bool cut = shot->size > shot->room;

	mt_require(op->err == (cut ? FI_ETRUNC : 0), "the receive ended with: %s", fi_strerror(op->err));
	mt_require(op->len == (cut ? shot->room : shot->size), "len %zu", op->len);
	if (cut && mt_is_shmcma())
		mt_require(op->olen == shot->size - shot->room, "olen %zu", op->olen);
	if (!cut)
		mt_require(op->source == r->peer, "source is %#llx", (unsigned long long)op->source);
	if (shot->tagged)
		mt_require(op->tag == shot_tag(shot), "tag is %#llx", (unsigned long long)op->tag);
	if (has_data(shot)) {
		mt_require(op->flags & FI_REMOTE_CQ_DATA, "flags %#llx lack FI_REMOTE_CQ_DATA",
			   (unsigned long long)op->flags);
		mt_require(op->data == mt_hash(shot->number), "data is %#llx",
			   (unsigned long long)op->data);
	}
}

static void shot_recv(struct range *r, const struct shot *shot)
{
	struct iovec iov[PIECES];
	struct mt_op op = { 0 };
	struct mt_message m = {
		.tagged = shot->tagged,
		.call = shot->number % 3 == 0	 ? MT_SENDMSG
			: shot->recv_pieces == 1 ? MT_SEND
						 : MT_SENDV,
		.iov = iov,
		.pieces = shot->recv_pieces,
		.peer = shot->number % 2 ? r->peer : FI_ADDR_UNSPEC,
		.tag = shot_tag(shot),
	};
	size_t end;

	end = lay_out(iov, m.pieces, r->in, shot->room, shot->number * 2 + 1);
	memset(r->in, POISON, end + MARGIN);
	if (shot->unexpected) {
		mt_barrier(r->ep); /* sent */
		for (int i = 0; i < 4; i++)
			mt_progress(r->ep);
	}
	mt_post_recv(r->ep, &op, &m);
	if (!shot->unexpected)
		mt_barrier(r->ep); /* posted */
	mt_wait_any(r->ep, &op);
	check_completion(r, shot, &op);
	check_arena(r, shot, iov, end);
	mt_barrier(r->ep);
}

static size_t at_most(size_t value, size_t limit)
{
	return value < limit ? value : limit;
}

static void fire(struct range *r, struct shot shot)
{
	shot.number = ++r->shots;
	shot.send_pieces = at_most(shot.send_pieces, r->iov_limit_tx);
	shot.recv_pieces = at_most(shot.recv_pieces, r->iov_limit_rx);
	if (shot.size > shot.room && shot.size > r->truncate_max)
		return;
	mt_doing("%s", shot_name(&shot));
	if (shot.from == mt_rank)
		shot_send(r, &shot);
	else
		shot_recv(r, &shot);
}

/* Through every call that can carry it. */
static void fire_calls(struct range *r, struct shot shot)
{
	shot.call = MT_SEND;
	fire(r, shot);
	shot.call = MT_DATA;
	shot.room += 1;
	fire(r, shot);
	if (shot.size > r->inject)
		return;
	shot.call = MT_INJECT;
	shot.room += 99;
	fire(r, shot);
	shot.call = MT_INJECTDATA;
	fire(r, shot);
}

static void fire_flags(struct range *r, struct shot shot)
{
	static const uint64_t levels[] = { FI_DELIVERY_COMPLETE,
					   FI_TRANSMIT_COMPLETE,
					   FI_INJECT_COMPLETE,
					   FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE,
					   FI_INJECT,
					   FI_INJECT | FI_REMOTE_CQ_DATA };
	size_t count = sizeof(levels) / sizeof(levels[0]);

	shot.call = MT_SENDMSG;
	for (size_t i = 0; i < count; i++) {
		if (shot.size > ALL_FLAGS_MAX && i != r->shots % count)
			continue;
		if ((levels[i] & FI_INJECT) && shot.size > r->inject)
			continue;
		/* shm and tcp lose some of these completions */
		if ((levels[i] & FI_DELIVERY_COMPLETE) && !mt_is_shmcma())
			continue;
		shot.flags = levels[i];
		fire(r, shot);
	}
}

static void fire_pieces(struct range *r, struct shot shot, size_t step)
{
	for (size_t pieces = 1; pieces <= PIECES; pieces += step) {
		shot.call = pieces % 2 ? MT_SENDV : MT_SENDMSG;
		shot.send_pieces = pieces;
		shot.recv_pieces = (pieces * 3 + shot.size + (size_t)shot.tagged) % PIECES + 1;
		fire(r, shot);
	}
}

static void fire_truncated(struct range *r, struct shot shot)
{
	const size_t rooms[] = { shot.size - 1, shot.size / 2, 0 };

	for (size_t i = 0; i < 3; i++) {
		if (i && rooms[i] == rooms[i - 1])
			continue;
		shot.room = rooms[i];
		shot.call = i == 0 ? MT_SEND : MT_DATA;
		fire(r, shot);
		shot.call = MT_SENDV;
		shot.send_pieces = 1 + shot.size % PIECES;
		shot.recv_pieces = 1 + (shot.size + i + 3) % PIECES;
		fire(r, shot);
		shot.send_pieces = shot.recv_pieces = 1;
	}
}

static void fire_all(struct range *r, const struct shot *shot)
{
	fire_calls(r, *shot);
	fire_flags(r, *shot);
	fire_pieces(r, *shot, 1);
	if (shot->size)
		fire_truncated(r, *shot);
}

/* A few, for sizes whose bytes take time to make and to check. */
static void fire_some(struct range *r, struct shot shot)
{
	fire(r, shot);
	shot.call = MT_SENDV;
	shot.send_pieces = 1 + (shot.size + (size_t)shot.unexpected) % PIECES;
	shot.recv_pieces = 1 + (shot.size + 2 + (size_t)shot.tagged) % PIECES;
	fire(r, shot);
	shot.room = shot.size - 1 - (shot.size / 3) * (size_t)shot.tagged;
	fire(r, shot);
}

static void fire_size(struct range *r, size_t size)
{
	for (int way = 0; way < 8; way++) {
		struct shot shot = {
			.from = way & 1,
			.tagged = way & 2,
			.unexpected = way & 4,
			.size = size,
			.room = size,
			.send_pieces = 1,
			.recv_pieces = 1,
		};

		if (size <= MANY_MAX)
			fire_all(r, &shot);
		else if (size <= (1 << 20) + 1 || way == 1 || way == 6)
			fire_some(r, shot);
		else if (size <= (4 << 20) + 1)
			fire(r, shot);
	}
}

static void *arena_map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mt_require(p != MAP_FAILED, "no memory for %zu bytes", size);
	return p;
}

void sizes_run(struct mt_ep *ep, const struct sizes_params *params)
{
	struct range r = {
		.ep = ep,
		.max = params->max,
		.arena = params->max + 4096,
		.iov_limit_tx = ep->info->tx_attr->iov_limit,
		.iov_limit_rx = ep->info->rx_attr->iov_limit,
		.inject = ep->info->tx_attr->inject_size,
		/* shm never ends some truncated receives, tcp breaks the connection */
		.truncate_max = mt_is_shmcma() ? SIZE_MAX : 0,
	};
	fi_addr_t peers[2];

	if (mt_is_shmcma())
		mt_require(r.iov_limit_tx >= PIECES && r.iov_limit_rx >= PIECES && r.inject >= 4096,
			   "iov_limit %zu, %zu, inject_size %zu", r.iov_limit_tx, r.iov_limit_rx,
			   r.inject);
	r.out = arena_map(r.arena);
	r.in = arena_map(r.arena);
	mt_join(ep, peers);
	r.peer = peers[1 - mt_rank];
	fire_size(&r, 0);
	for (size_t i = 0; i < THRESHOLDS; i++)
		for (size_t size = thresholds[i] - 1; size <= thresholds[i] + 1; size++)
			if (size && size <= r.max)
				fire_size(&r, size);
	munmap(r.out, r.arena);
	munmap(r.in, r.arena);
}

void sizes_rank(const void *arg)
{
	const struct sizes_params *params = arg;
	struct mt_ep ep;

	if (params->prepare)
		params->prepare(params);
	mt_open(&ep, NULL);
	sizes_run(&ep, params);
	mt_barrier(&ep);
	mt_close(&ep);
}
