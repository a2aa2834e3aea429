/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kernel_random.c: random traffic all-to-all against a reference matcher.
 *
 * The messages follow from the seed alone: message `index` from src to dst in a phase is the same
 * structure wherever it is computed (spec_make). So a receiver knows all messages that will come, though not
 * how the streams of different senders interleave.
 *
 * In a phase a rank posts random receives (wildcards and directed, any mask, some too short) and, after
 * them, for every message that will come one that takes anything. So no message is left over, however
 * messages and receives match; in the end the receives left over are cancelled.
 *
 * The reference: matching was right if and only if there is an order of arrival that explains it. Such an
 * order must keep the order of each sender; and if an earlier receive r1 could have taken the message
 * that a later one r2 got, then r1 had been taken by a message that arrived before:
 *
 *     r1 < r2 and r1 matches M(r2)   =>   M(r1) arrived before M(r2)
 *
 * The same rule covers posted and unexpected messages. It is right if these demands have no cycle
 * (order_check). An r1 that stayed empty breaks it at once.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <string.h>
#include <sys/mman.h>

#define PIECES 8
#define GAP 16		 /* untouched bytes around each piece of a receive */
#define SEND_SLOTS 24	 /* sends of a rank that may be pending */
#define RECEIVES_MAX 900 /* less than the size of the receive queue */

struct spec {
	int src, dst, index;
	uint64_t id; /* names it within the run; never 0 */
	bool tagged, data;
	enum mt_call call;
	uint64_t flags, tag;
	size_t size, pieces;
};

/* A receive, in posting order. */
struct receive {
	struct mt_op op;
	bool tagged, catch_all;
	int source; /* -1: any */
	uint64_t tag, ignore;
	size_t room, pieces;
	struct iovec iov[PIECES];
	uint8_t *slot;
	struct spec got; /* got.id 0: nothing */
};

struct sender {
	struct mt_op op;
	struct spec spec;
	bool busy;
	uint8_t *buf;
	struct iovec iov[PIECES];
	size_t extent; /* bytes of buf that the pieces span */
};

struct phase {
	struct mt_ep *ep;
	fi_addr_t *peers;
	const struct random_params *params;
	int number;
	uint64_t seed;
	struct mt_random random; /* this rank's own choices */
	size_t inject, tx_iov, rx_iov;

	int *next; /* [mt_ranks]: index of the next message to that rank */
	struct sender *senders;
	int sent, to_send;

	struct receive *receives;
	int receive_count, posted, completed, expected, judged;
	uint8_t *send_memory, *recv_memory;
	size_t send_size, recv_stride;
	bool *seen; /* [src * messages + index] */
};

/* ---- what is sent ---------------------------------------------------------------------------- */

static size_t spec_size(struct mt_random *random, size_t max)
{
	static const size_t edges[] = { 40, 64, 96, 152, 208, 256, 880, 4096, 8192, 16384, 65536 };
	uint64_t kind = mt_below(random, 100);
	size_t bound = kind < 45 ? 200 : kind < 75 ? 5000 : kind < 92 ? 40000 : max;

	if (kind % 10 == 0)
		return edges[mt_below(random, sizeof(edges) / sizeof(edges[0]))] - 1 + mt_below(random, 3);
	return mt_below(random, (bound < max ? bound : max) + 1);
}

/* Few tags, so that receives compete; some bits high up, so that all of the mask counts. */
static uint64_t spec_tag(struct mt_random *random)
{
	uint64_t tag = mt_below(random, 4);

	if (mt_below(random, 3) == 0)
		tag |= 1ULL << 63;
	if (mt_below(random, 3) == 0)
		tag |= 1ULL << 31;
	return tag;
}

static void spec_call(const struct phase *p, struct spec *spec, struct mt_random *random)
{
	static const uint64_t levels[] = { 0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
					   FI_DELIVERY_COMPLETE };
	bool small = spec->size <= p->inject;

	spec->call = (enum mt_call)mt_below(random, 6);
	if (!small && (spec->call == MT_INJECT || spec->call == MT_INJECTDATA))
		spec->call = MT_SEND;
	/* a message that is too short for its id carries the id in its data */
	if (spec->size < 8)
		spec->call = small && spec->call % 2 ? MT_INJECTDATA : MT_DATA;
	if (spec->call == MT_SENDV || spec->call == MT_SENDMSG)
		spec->pieces = 1 + mt_below(random, PIECES);
	if (spec->call == MT_SENDMSG) {
		spec->flags = levels[mt_below(random, mt_is_shmcma() ? 4 : 3)];
		if (mt_below(random, 2))
			spec->flags |= FI_REMOTE_CQ_DATA;
		if (small && mt_below(random, 4) == 0)
			spec->flags = (spec->flags & FI_REMOTE_CQ_DATA) | FI_INJECT;
	}
	spec->data =
		spec->call == MT_DATA || spec->call == MT_INJECTDATA || (spec->flags & FI_REMOTE_CQ_DATA);
}

static void spec_make(const struct phase *p, int src, int dst, int index, struct spec *spec)
{
	struct mt_random random;

	memset(spec, 0, sizeof(*spec));
	spec->src = src;
	spec->dst = dst;
	spec->index = index;
	spec->id = ((uint64_t)p->number + 1) << 48 | (uint64_t)src << 32 | (uint64_t)dst << 16 |
		   (uint64_t)index;
	random.state = mt_hash(p->seed ^ mt_hash(spec->id));
	spec->tagged = mt_below(&random, 10) < 7;
	if (spec->tagged)
		spec->tag = spec_tag(&random);
	spec->size = spec_size(&random, p->params->max);
	spec->pieces = 1;
	spec_call(p, spec, &random);
}

/* Byte `at` of the payload on: the id first, then a pattern of the id. */
static void payload_fill(uint8_t *buf, size_t len, const struct spec *spec, size_t at)
{
	size_t i = 0;

	for (; spec->size >= 8 && i < len && at + i < 8; i++)
		buf[i] = (uint8_t)(spec->id >> ((at + i) * 8));
	pattern_fill(buf + i, at + i, len - i, spec->id);
}

static ssize_t payload_verify(const uint8_t *buf, size_t len, const struct spec *spec, size_t at)
{
	size_t i = 0;
	ssize_t bad;

	for (; spec->size >= 8 && i < len && at + i < 8; i++)
		if (buf[i] != (uint8_t)(spec->id >> ((at + i) * 8)))
			return (ssize_t)i;
	bad = pattern_differs(buf + i, at + i, len - i, spec->id);
	return bad < 0 ? bad : bad + (ssize_t)i;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void sender_lay_out(struct phase *p, struct sender *s)
{
	size_t left = s->spec.size, at = 0, done = 0, pieces = s->spec.pieces;

	if (pieces > p->tx_iov)
		pieces = p->tx_iov;
	for (size_t i = 0; i < pieces; i++) {
		size_t len = i + 1 == pieces ? left : mt_below(&p->random, left + 1);

		s->iov[i].iov_base = s->buf + at;
		s->iov[i].iov_len = len;
		payload_fill(s->buf + at, len, &s->spec, done);
		done += len;
		left -= len;
		at += len + (i + 1 == pieces ? 0 : 1 + mt_below(&p->random, 9));
	}
	s->spec.pieces = pieces;
	s->extent = at;
}

static bool sender_try(struct phase *p, struct sender *s)
{
	struct mt_message m = {
		.tagged = s->spec.tagged,
		.call = s->spec.call,
		.iov = s->iov,
		.pieces = s->spec.pieces,
		.peer = p->peers[s->spec.dst],
		.tag = s->spec.tag,
		.data = s->spec.id,
		.flags = s->spec.flags,
	};
	ssize_t rc = mt_try_send(p->ep, &s->op, &m);

	if (rc == -FI_EAGAIN)
		return false;
	mt_require(rc == 0, "send of %zu bytes to rank %d: %s", s->spec.size, s->spec.dst,
		   fi_strerror((int)-rc));
	if (s->op.done || (s->spec.flags & FI_INJECT))
		memset(s->buf, 0x5A, s->extent); /* ours again */
	s->busy = true;
	p->next[s->spec.dst]++;
	p->sent++;
	return true;
}

/* Start the next message to some rank that has one left. */
static void send_some(struct phase *p)
{
	int dst = (int)mt_below(&p->random, (uint64_t)mt_ranks);
	struct sender *s = NULL;

	for (int i = 0; i < mt_ranks && p->next[dst] == p->params->messages; i++)
		dst = (dst + 1) % mt_ranks;
	for (int i = 0; i < SEND_SLOTS && !s; i++)
		if (!p->senders[i].busy)
			s = &p->senders[i];
	if (!s)
		return;
	spec_make(p, mt_rank, dst, p->next[dst], &s->spec);
	sender_lay_out(p, s);
	sender_try(p, s);
}

static bool senders_busy(struct phase *p)
{
	bool busy = false;

	for (int i = 0; i < SEND_SLOTS; i++) {
		struct sender *s = &p->senders[i];

		if (s->busy && s->op.done) {
			mt_require(s->op.err == 0, "send of %zu bytes to rank %d completed with: %s",
				   s->spec.size, s->spec.dst, fi_strerror(s->op.err));
			s->busy = false;
		}
		busy |= s->busy;
	}
	return busy;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A place of its own for each, all zero before it is posted. */
static void receive_lay_out(struct phase *p, struct receive *r, int number)
{
	size_t at = GAP, left = r->room;

	r->slot = p->recv_memory + (size_t)number * p->recv_stride;
	if (r->pieces > p->rx_iov)
		r->pieces = p->rx_iov;
	for (size_t i = 0; i < r->pieces; i++) {
		size_t len = i + 1 == r->pieces ? left : mt_below(&p->random, left / 2 + 1);

		r->iov[i].iov_base = r->slot + at;
		r->iov[i].iov_len = len;
		at += len + GAP;
		left -= len;
	}
}

static void receive_choose(struct phase *p, struct receive *r)
{
	static const uint64_t masks[] = { 0, 0, 1, 3, 1ULL << 63, 1ULL << 63 | 1ULL << 31, ~1ULL, ~0ULL };
	struct spec like;

	/* made for one that will come, so that it has a chance */
	spec_make(p, (int)mt_below(&p->random, (uint64_t)mt_ranks), mt_rank,
		  (int)mt_below(&p->random, (uint64_t)p->params->messages), &like);
	r->tagged = like.tagged;
	r->tag = like.tag;
	r->ignore = like.tagged ? masks[mt_below(&p->random, sizeof(masks) / sizeof(masks[0]))] : 0;
	/* ignored bits may be anything */
	r->tag ^= mt_random(&p->random) & r->ignore;
	r->source = mt_below(&p->random, 2) ? like.src : -1;
	r->room = p->params->max;
	if (mt_is_shmcma() && mt_below(&p->random, 8) == 0)
		r->room = 8 + mt_below(&p->random, 3000);
	r->pieces = mt_below(&p->random, 2) ? 1 : 1 + mt_below(&p->random, PIECES);
}

static void receive_add(struct phase *p, const struct receive *r)
{
	mt_require(p->receive_count < RECEIVES_MAX, "too many receives in a phase");
	p->receives[p->receive_count] = *r;
	receive_lay_out(p, &p->receives[p->receive_count], p->receive_count);
	p->receive_count++;
}

static void receives_plan(struct phase *p)
{
	int coming[2] = { 0, 0 };
	struct receive r;
	struct spec spec;

	for (int src = 0; src < mt_ranks; src++)
		for (int i = 0; i < p->params->messages; i++) {
			spec_make(p, src, mt_rank, i, &spec);
			coming[spec.tagged]++;
		}
	p->expected = coming[0] + coming[1];
	for (int i = 0; i < p->expected * 2 / 3; i++) {
		memset(&r, 0, sizeof(r));
		receive_choose(p, &r);
		receive_add(p, &r);
	}
	for (int tagged = 0; tagged < 2; tagged++)
		for (int i = 0; i < coming[tagged]; i++) {
			memset(&r, 0, sizeof(r));
			r.catch_all = true;
			r.tagged = tagged;
			r.ignore = tagged ? ~0ULL : 0;
			r.source = -1;
			r.room = p->params->max;
			r.pieces = 1 + (size_t)i % 2;
			receive_add(p, &r);
		}
}

static void receive_post(struct phase *p)
{
	struct receive *r = &p->receives[p->posted];
	struct mt_message m = {
		.tagged = r->tagged,
		.call = p->posted % 5 == 0 ? MT_SENDMSG
			: r->pieces == 1   ? MT_SEND
					   : MT_SENDV,
		.iov = r->iov,
		.pieces = r->pieces,
		.peer = r->source < 0 ? FI_ADDR_UNSPEC : p->peers[r->source],
		.tag = r->tag,
		.ignore = r->ignore,
	};
	ssize_t rc = mt_try_recv(p->ep, &r->op, &m);

	if (rc == -FI_EAGAIN)
		return;
	mt_require(rc == 0, "receive: %s", fi_strerror((int)-rc));
	p->posted++;
}

static bool receive_matches(const struct receive *r, const struct spec *spec)
{
	return r->tagged == spec->tagged && (r->source < 0 || r->source == spec->src) &&
	       (!spec->tagged || ((r->tag ^ spec->tag) & ~r->ignore) == 0);
}

/* Which message is it? By its data, or by the id that its payload begins with. */
static void receive_identify(struct phase *p, struct receive *r)
{
	uint64_t id = 0;
	int src, dst, index;
	uint8_t head[8];
	size_t n = 0;

	if (r->op.flags & FI_REMOTE_CQ_DATA) {
		id = r->op.data;
	} else {
		mt_require(r->op.len >= 8, "a message of %zu bytes without data was never sent",
			   r->op.len);
		for (size_t i = 0; i < r->pieces && n < 8; i++)
			for (size_t k = 0; k < r->iov[i].iov_len && n < 8; k++)
				head[n++] = ((uint8_t *)r->iov[i].iov_base)[k];
		for (int i = 7; i >= 0; i--)
			id = id << 8 | head[i];
	}
	src = (int)(id >> 32 & 0xFFFF);
	dst = (int)(id >> 16 & 0xFFFF);
	index = (int)(id & 0xFFFF);
	mt_require(id >> 48 == (uint64_t)p->number + 1 && dst == mt_rank && src < mt_ranks &&
			   index < p->params->messages,
		   "a message that was never sent to this rank, id %#llx", (unsigned long long)id);
	mt_require(!p->seen[src * p->params->messages + index], "message %d of rank %d came twice", index,
		   src);
	p->seen[src * p->params->messages + index] = true;
	spec_make(p, src, dst, index, &r->got);
}

static void receive_check_bytes(struct receive *r)
{
	size_t len = r->op.len, done = 0, at = 0, end;
	ssize_t bad;

	for (size_t i = 0; i < r->pieces; i++) {
		size_t start = (size_t)((uint8_t *)r->iov[i].iov_base - r->slot);
		size_t n = r->iov[i].iov_len < len - done ? r->iov[i].iov_len : len - done;

		bad = mt_verify_byte(r->slot + at, start - at < 4096 ? start - at : 4096, 0);
		mt_require(bad < 0, "byte %zu of the slot was written, outside the message",
			   at + (size_t)bad);
		bad = payload_verify(r->iov[i].iov_base, n, &r->got, done);
		mt_require(bad < 0, "byte %zu of message %d of rank %d (%zu bytes) is wrong",
			   done + (size_t)bad, r->got.index, r->got.src, r->got.size);
		memset(r->iov[i].iov_base, 0, n);
		done += n;
		at = start + n;
	}
	end = (size_t)((uint8_t *)r->iov[r->pieces - 1].iov_base - r->slot) +
	      r->iov[r->pieces - 1].iov_len + GAP;
	bad = mt_verify_byte(r->slot + at, end - at < 4096 ? end - at : 4096, 0);
	mt_require(bad < 0, "byte %zu of the slot was written, outside the message", at + (size_t)bad);
}

static void receive_judge(struct phase *p, struct receive *r)
{
	const struct spec *got = &r->got;
	bool cut;

	mt_require(r->op.err == 0 || r->op.err == FI_ETRUNC, "a receive completed with: %s",
		   fi_strerror(r->op.err));
	receive_identify(p, r);
	cut = got->size > r->room;
	mt_require(receive_matches(r, got),
		   "receive (source %d, tag %#llx, ignore %#llx, %s) got message %d of rank %d with tag "
		   "%#llx, %s",
		   r->source, (unsigned long long)r->tag, (unsigned long long)r->ignore,
		   r->tagged ? "tagged" : "msg", got->index, got->src, (unsigned long long)got->tag,
		   got->tagged ? "tagged" : "msg");
	mt_require(r->op.err == (cut ? FI_ETRUNC : 0) && r->op.len == (cut ? r->room : got->size),
		   "%zu bytes into %zu: len %zu, %s", got->size, r->room, r->op.len,
		   fi_strerror(r->op.err));
	mt_require(!cut || r->op.olen == got->size - r->room, "olen %zu", r->op.olen);
	mt_require(!got->tagged || r->op.tag == got->tag, "tag of the completion is %#llx, sent was %#llx",
		   (unsigned long long)r->op.tag, (unsigned long long)got->tag);
	mt_require(got->data == !!(r->op.flags & FI_REMOTE_CQ_DATA),
		   "flags %#llx of message %d of rank %d", (unsigned long long)r->op.flags, got->index,
		   got->src);
	mt_require(cut || r->op.source == p->peers[got->src], "source %#llx of a message of rank %d",
		   (unsigned long long)r->op.source, got->src);
	receive_check_bytes(r);
}

/* Those that have completed since the last time. */
static void receives_collect(struct phase *p)
{
	for (int i = 0; i < p->posted; i++) {
		struct receive *r = &p->receives[i];

		if (r->op.done && !r->got.id) {
			receive_judge(p, r);
			p->completed++;
		}
	}
}

static void receives_cancel(struct phase *p)
{
	for (int i = 0; i < p->receive_count; i++) {
		struct receive *r = &p->receives[i];

		if (r->got.id)
			continue;
		mt_doing("phase %d: cancelling receive %d, which got nothing", p->number, i);
		mt_must(fi_cancel(&p->ep->ep->fid, &r->op));
		mt_wait_any(p->ep, &r->op);
		mt_require(r->op.err == FI_ECANCELED, "a cancelled receive completed with %d (%s)",
			   r->op.err, fi_strerror(r->op.err));
		mt_require(mt_verify_byte(r->slot, 64 + GAP, 0) < 0,
			   "a receive that got nothing was written");
	}
}

/* ---- the reference --------------------------------------------------------------------------- */

struct demand {
	uint8_t *before; /* [a * count + b]: message of receive a arrived before that of receive b */
	const struct receive **nodes;
	int *waits; /* how many must come before */
	int count;
	char why[300]; /* the error found */
};

static void demand_add(struct demand *d, int a, int b)
{
	uint8_t *edge = &d->before[(size_t)a * (size_t)d->count + (size_t)b];

	if (*edge)
		return;
	*edge = 1;
	d->waits[b]++;
}

/* False: these two alone contradict the rules. */
static bool demand_matching(struct demand *d, int first, int second)
{
	const struct receive *r1 = d->nodes[first], *r2 = d->nodes[second];

	if (!r2->got.id || !receive_matches(r1, &r2->got))
		return true;
	if (!r1->got.id) {
		snprintf(d->why, sizeof(d->why),
			 "receive %d stayed empty, but message %d of rank %d, which it matches, went to "
			 "receive"
			 " %d, posted later",
			 first, r2->got.index, r2->got.src, second);
		return false;
	}
	if (r1->got.src == r2->got.src && r1->got.index > r2->got.index) {
		snprintf(d->why, sizeof(d->why),
			 "receive %d got message %d of rank %d and receive %d, posted later, message %d "
			 "of it,"
			 " which the first matches too",
			 first, r1->got.index, r1->got.src, second, r2->got.index);
		return false;
	}
	demand_add(d, first, second);
	return true;
}

static void demand_sender_order(struct demand *d)
{
	for (int a = 0; a < d->count; a++)
		for (int b = 0; b < d->count; b++)
			if (d->nodes[a]->got.id && d->nodes[b]->got.id &&
			    d->nodes[a]->got.src == d->nodes[b]->got.src &&
			    d->nodes[a]->got.index < d->nodes[b]->got.index)
				demand_add(d, a, b);
}

/* Take away messages that nothing has to come before, as long as there are any. */
static bool demand_sort(struct demand *d)
{
	int taken = 0, wanted = 0;
	bool again = true;

	for (int i = 0; i < d->count; i++)
		wanted += d->nodes[i]->got.id != 0;
	while (again) {
		again = false;
		for (int a = 0; a < d->count; a++) {
			if (!d->nodes[a]->got.id || d->waits[a])
				continue;
			d->waits[a] = -1;
			taken++;
			again = true;
			for (int b = 0; b < d->count; b++)
				d->waits[b] -= d->before[(size_t)a * (size_t)d->count + (size_t)b];
		}
	}
	snprintf(d->why, sizeof(d->why), "no order of arrival explains it: %d messages are in circles",
		 wanted - taken);
	return taken == wanted;
}

static bool demand_check(struct demand *d)
{
	for (int second = 1; second < d->count; second++)
		for (int first = 0; first < second; first++)
			if (!demand_matching(d, first, second))
				return false;
	demand_sender_order(d);
	return demand_sort(d);
}

/* Was the matching of that queue right? If not, why[] says what is wrong. */
static bool order_check(struct phase *p, bool tagged, char *why, size_t size)
{
	size_t n = (size_t)p->receive_count;
	struct demand d = { .nodes = calloc(n, sizeof(*d.nodes)), .waits = calloc(n, sizeof(*d.waits)) };
	bool right;

	mt_require(d.nodes && d.waits, "no memory");
	for (int i = 0; i < p->receive_count; i++)
		if (p->receives[i].tagged == tagged)
			d.nodes[d.count++] = &p->receives[i];
	d.before = calloc((size_t)d.count * (size_t)d.count + 1, 1);
	mt_require(d.before, "no memory");
	right = demand_check(&d);
	snprintf(why, size, "%s", d.why);
	free(d.before);
	free(d.nodes);
	free(d.waits);
	return right;
}

/* ---- a phase --------------------------------------------------------------------------------- */

static void phase_start(struct phase *p, int number)
{
	p->number = number;
	p->seed = mt_hash(p->params->seed) + (uint64_t)number;
	p->random.state = mt_hash(p->seed ^ ((uint64_t)mt_rank << 40));
	p->sent = p->posted = p->completed = p->receive_count = 0;
	p->to_send = mt_ranks * p->params->messages;
	memset(p->next, 0, sizeof(*p->next) * (size_t)mt_ranks);
	memset(p->seen, 0, (size_t)(mt_ranks * p->params->messages));
	memset(p->receives, 0, sizeof(*p->receives) * RECEIVES_MAX);
	receives_plan(p);
}

static void phase_run(struct phase *p)
{
	/* some ranks receive early, some late */
	uint64_t eager = 1 + mt_below(&p->random, 8);
	bool busy = true;

	while (busy || p->completed < p->expected || p->sent < p->to_send) {
		uint64_t choice = mt_below(&p->random, 12);

		if (choice < eager && p->posted < p->receive_count)
			receive_post(p);
		else if (choice < 10 && p->sent < p->to_send)
			send_some(p);
		else
			mt_poll(p->ep);
		busy = senders_busy(p);
		receives_collect(p);
		if (choice == 0)
			mt_doing("phase %d of seed %llu: %d of %d sent%s, %d of %d receives posted, %d of "
				 "%d got",
				 p->number, (unsigned long long)p->params->seed, p->sent, p->to_send,
				 busy ? " (some pending)" : "", p->posted, p->receive_count, p->completed,
				 p->expected);
	}
}

/* A receive that is not posted by now never will be. */
static void phase_finish(struct phase *p)
{
	char why[300];

	p->receive_count = p->posted;
	receives_cancel(p);
	mt_doing("phase %d of seed %llu: checking the order", p->number,
		 (unsigned long long)p->params->seed);
	for (int tagged = 0; tagged < 2; tagged++)
		mt_require(order_check(p, tagged, why, sizeof(why)), "%s matching was wrong: %s",
			   tagged ? "tagged" : "msg", why);
	mt_doing("phase %d of seed %llu: done, waiting for the others", p->number,
		 (unsigned long long)p->params->seed);
	mt_barrier(p->ep);
}

static void *memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		       0);

	mt_require(p != MAP_FAILED, "no memory for %zu bytes", size);
	return p;
}

static void phase_init(struct phase *p, struct mt_ep *ep, const struct random_params *params)
{
	size_t ranks = (size_t)mt_ranks;

	memset(p, 0, sizeof(*p));
	p->ep = ep;
	p->params = params;
	p->inject = ep->info->tx_attr->inject_size;
	p->tx_iov = ep->info->tx_attr->iov_limit;
	p->rx_iov = ep->info->rx_attr->iov_limit;
	p->send_size = params->max + PIECES * 16;
	p->recv_stride = params->max + (PIECES + 2) * GAP + 4096;
	if (p->inject > 4096)
		p->inject = 4096;
	p->send_memory = memory(p->send_size * SEND_SLOTS);
	p->recv_memory = memory(p->recv_stride * RECEIVES_MAX);
	p->peers = calloc(ranks, sizeof(*p->peers));
	p->next = calloc(ranks, sizeof(*p->next));
	p->seen = calloc(ranks * (size_t)params->messages, sizeof(*p->seen));
	p->senders = calloc(SEND_SLOTS, sizeof(*p->senders));
	p->receives = calloc(RECEIVES_MAX, sizeof(*p->receives));
	mt_require(p->peers && p->next && p->seen && p->senders && p->receives, "no memory");
	for (size_t i = 0; i < SEND_SLOTS; i++)
		p->senders[i].buf = p->send_memory + i * p->send_size;
}

static void phase_fini(struct phase *p)
{
	munmap(p->send_memory, p->send_size * SEND_SLOTS);
	munmap(p->recv_memory, p->recv_stride * RECEIVES_MAX);
	free(p->peers);
	free(p->next);
	free(p->seen);
	free(p->senders);
	free(p->receives);
}

void random_run(struct mt_ep *ep, const struct random_params *params)
{
	struct phase p;

	phase_init(&p, ep, params);
	mt_join(ep, p.peers);
	for (int i = 0; i < params->phases; i++) {
		phase_start(&p, i);
		phase_run(&p);
		phase_finish(&p);
	}
	phase_fini(&p);
}

void random_rank(const void *arg)
{
	const struct random_params *params = arg;
	struct mt_ep ep;

	if (params->prepare)
		params->prepare(params);
	mt_open(&ep, NULL);
	random_run(&ep, params);
	mt_barrier(&ep);
	mt_close(&ep);
}

/* ---- the reference itself -------------------------------------------------------------------- */

/* Matching engines to judge: one right, the others with mistakes that have been made. */
enum engine { RIGHT, DIRECTED_FIRST, EXACT_FIRST, NEWEST_FIRST, OVERTAKING, ENGINES };

/* The receive that takes a message now, or NULL. */
static struct receive *engine_take(struct phase *p, enum engine engine, const struct spec *spec)
{
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < p->posted; i++) {
			struct receive *r = &p->receives[i];
			bool second = (engine == DIRECTED_FIRST && r->source < 0) ||
				      (engine == EXACT_FIRST && r->ignore);

			if (!r->got.id && receive_matches(r, spec) && second == pass)
				return r;
		}
	return NULL;
}

/* The waiting message that a receive takes now, or -1. */
static int engine_find(enum engine engine, const struct receive *r, const struct spec *waiting, int count)
{
	int found = -1;

	for (int i = 0; i < count; i++)
		if (waiting[i].id && receive_matches(r, &waiting[i])) {
			found = i;
			if (engine != NEWEST_FIRST)
				break;
		}
	return found;
}

static void engine_arrive(struct phase *p, enum engine engine, int src, struct spec *waiting, int *count)
{
	struct receive *r;
	struct spec spec;
	int index = p->next[src]++;

	/* each pair of messages swapped */
	if (engine == OVERTAKING && (index ^ 1) < p->params->messages)
		index ^= 1;
	spec_make(p, src, mt_rank, index, &spec);
	r = engine_take(p, engine, &spec);
	if (r)
		r->got = spec;
	else
		waiting[(*count)++] = spec;
}

static void engine_post(struct phase *p, enum engine engine, struct spec *waiting, int count)
{
	struct receive *r = &p->receives[p->posted++];
	int found = engine_find(engine, r, waiting, count);

	if (found < 0)
		return;
	r->got = waiting[found];
	waiting[found].id = 0;
}

/* One phase of the engine; was it judged right? */
static bool engine_run(struct phase *p, enum engine engine, int number)
{
	struct spec *waiting;
	int count = 0, src;
	char why[300];
	bool right;

	phase_start(p, number);
	waiting = calloc((size_t)p->expected, sizeof(*waiting));
	mt_require(waiting, "no memory");
	for (int arrived = 0; p->posted < p->receive_count || arrived < p->expected;) {
		if (p->posted < p->receive_count && (mt_below(&p->random, 2) || arrived == p->expected)) {
			engine_post(p, engine, waiting, count);
			continue;
		}
		src = (int)mt_below(&p->random, (uint64_t)mt_ranks);
		if (p->next[src] == p->params->messages)
			continue;
		engine_arrive(p, engine, src, waiting, &count);
		arrived++;
	}
	free(waiting);
	right = order_check(p, false, why, sizeof(why));
	return order_check(p, true, why, sizeof(why)) && right;
}

void random_reference_rank(const void *arg)
{
	static const char *const names[] = { "right", "directed first", "exact first", "newest first",
					     "overtaking" };
	struct mt_ep ep = { .info = fi_allocinfo() };
	struct phase p;

	mt_require(ep.info, "no memory");
	ep.info->tx_attr->iov_limit = ep.info->rx_attr->iov_limit = PIECES;
	phase_init(&p, &ep, arg);
	for (int engine = 0; engine < ENGINES; engine++) {
		int refused = 0;

		for (int i = 0; i < p.params->phases; i++)
			refused += !engine_run(&p, (enum engine)engine, i);
		/* a wrong one may be lucky at times */
		mt_require(engine == RIGHT ? refused == 0 : refused > p.params->phases / 4,
			   "an engine that is %s was refused %d times of %d", names[engine], refused,
			   p.params->phases);
	}
	phase_fini(&p);
	fi_freeinfo(ep.info);
}
