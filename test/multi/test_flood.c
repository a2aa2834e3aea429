/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_flood: a sender that sends more than its receiver takes is told to wait (-FI_EAGAIN) before much
 * memory is gone, others who talk to the same receiver do not notice, and in the end everything arrives,
 * whole and in order. And floods in a circle do not lock up.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <string.h>
#include <unistd.h>

#define FLOOD_TAG 7
#define STEPS 1024   /* message i carries the pattern from byte (i % STEPS) * 8 on */
#define OPS 131072   /* more than may be outstanding */
#define IN_FLIGHT 32 /* receives posted at a time when draining */
#define SEED 99
#define PATIENCE 0.2	    /* seconds of nothing but -FI_EAGAIN: it is meant */
#define ACCEPTED_MAX 400000 /* messages */
#define RECEIVER_GROWTH ((size_t)48 << 20)
#define SENDER_GROWTH ((size_t)320 << 20) /* injected payload is the provider's to keep */
#define MORE 3000			  /* messages after the first refusal */

struct kind {
	const char *name;
	bool tagged, inject;
	size_t size;
	uint64_t limit; /* so many are enough, refused or not: nothing of them is kept anywhere */
	bool brief;	/* not in all shapes */
};

static const struct kind kinds[] = {
	{ .name = "8", .tagged = true, .size = 8 },
	{ .name = "0-msg", .inject = true, .brief = true },
	{ .name = "inject-4096", .tagged = true, .inject = true, .size = 4096 },
	{ .name = "inject-4096-msg", .inject = true, .size = 4096, .brief = true },
	{ .name = "16K", .tagged = true, .size = 16384 },
	{ .name = "256K", .tagged = true, .size = 256 << 10, .limit = 3000, .brief = true },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Messages 0, 1, 2... of one kind to one peer. */
struct flood {
	struct mt_ep *ep;
	fi_addr_t peer;
	const struct kind *kind;
	uint8_t *payload;
	struct mt_op *ops;
	unsigned free_op; /* search from here */
	uint64_t sent;
};

static size_t resident(void)
{
	size_t pages = 0, whole;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file && fscanf(file, "%zu %zu", &whole, &pages) != 2)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void check_growth(size_t before, size_t bound, const char *who, int flag)
{
	size_t after = resident();

	atomic_store(mt_flag(flag), after > before ? after - before : 0);
	if (!MT_SANITIZED)
		mt_require(after < before + bound, "the %s grew from %zu to %zu KiB", who, before >> 10,
			   after >> 10);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void flood_init(struct flood *f, struct mt_ep *ep, fi_addr_t peer, const struct kind *kind)
{
	memset(f, 0, sizeof(*f));
	f->ep = ep;
	f->peer = peer;
	f->kind = kind;
	f->payload = malloc(kind->size + STEPS * 8);
	f->ops = calloc(OPS, sizeof(*f->ops));
	mt_require(f->payload && f->ops, "no memory");
	pattern_fill(f->payload, 0, kind->size + STEPS * 8, SEED);
}

static void flood_fini(struct flood *f)
{
	free(f->payload);
	free(f->ops);
}

/* The lowest that is free, as long as few are pending: memory is not touched for nothing. */
static struct mt_op *flood_op(struct flood *f)
{
	for (unsigned i = 0; i < OPS; i++) {
		if (f->free_op >= OPS || (i == 0 && !f->ops[0].pending))
			f->free_op = 0;
		if (!f->ops[f->free_op].pending)
			return &f->ops[f->free_op];
		f->free_op++;
	}
	mt_fail("%d sends are pending and none was ever refused", OPS);
}

/* One attempt; false: not now. */
static bool flood_try(struct flood *f)
{
	struct iovec iov = { f->payload + f->sent % STEPS * 8, f->kind->size };
	struct mt_message m = {
		.tagged = f->kind->tagged,
		.call = f->kind->inject ? MT_INJECTDATA : MT_DATA,
		.iov = &iov,
		.pieces = 1,
		.peer = f->peer,
		.tag = FLOOD_TAG,
		.data = f->sent,
	};
	ssize_t rc = mt_try_send(f->ep, flood_op(f), &m);

	if (rc == -FI_EAGAIN)
		return false;
	mt_require(rc == 0, "message %llu of the flood: %s", (unsigned long long)f->sent,
		   fi_strerror((int)-rc));
	f->sent++;
	return true;
}

/* Send until nothing is taken any more. */
static void flood_fill(struct flood *f)
{
	double refused = 0;

	while (!refused || mt_now() - refused < PATIENCE) {
		if (flood_try(f)) {
			refused = 0;
			mt_require(f->sent < ACCEPTED_MAX, "%llu messages accepted and not one refused",
				   (unsigned long long)f->sent);
			if (f->kind->limit && f->sent >= f->kind->limit)
				return;
			continue;
		}
		if (!refused)
			refused = mt_now();
		mt_poll(f->ep);
	}
}

static void flood_settle(struct flood *f)
{
	for (int i = 0; i < OPS; i++) {
		while (f->ops[i].pending)
			mt_poll(f->ep);
		mt_require(f->ops[i].err == 0, "a send of the flood completed with: %s",
			   fi_strerror(f->ops[i].err));
	}
}

/* ---- draining -------------------------------------------------------------------------------- */

struct drain {
	struct mt_ep *ep;
	fi_addr_t peer;
	const struct kind *kind;
	uint8_t *buf;
	struct mt_op ops[IN_FLIGHT];
	uint64_t posted, got;
};

static void drain_init(struct drain *d, struct mt_ep *ep, fi_addr_t peer, const struct kind *kind)
{
	memset(d, 0, sizeof(*d));
	d->ep = ep;
	d->peer = peer;
	d->kind = kind;
	d->buf = malloc((kind->size + 8) * IN_FLIGHT);
	mt_require(d->buf, "no memory");
}

static void drain_post(struct drain *d)
{
	unsigned slot = d->posted % IN_FLIGHT;
	struct iovec iov = { d->buf + slot * (d->kind->size + 8), d->kind->size };
	struct mt_message m = {
		.tagged = d->kind->tagged,
		.iov = &iov,
		.pieces = 1,
		.peer = d->posted % 2 ? d->peer : FI_ADDR_UNSPEC,
		.tag = FLOOD_TAG,
	};

	mt_post_recv(d->ep, &d->ops[slot], &m);
	d->posted++;
}

/* The oldest receive must have got the next message. */
static void drain_check(struct drain *d)
{
	unsigned slot = d->got % IN_FLIGHT;
	const struct mt_op *op = &d->ops[slot];
	ssize_t bad = pattern_differs(d->buf + slot * (d->kind->size + 8), d->got % STEPS * 8,
				      d->kind->size, SEED);

	mt_require(op->err == 0, "receive %llu: %s", (unsigned long long)d->got, fi_strerror(op->err));
	mt_require(op->len == d->kind->size && op->source == d->peer, "len %zu, source %#llx", op->len,
		   (unsigned long long)op->source);
	mt_require((op->flags & FI_REMOTE_CQ_DATA) && op->data == d->got,
		   "message %llu came in place of %llu", (unsigned long long)op->data,
		   (unsigned long long)d->got);
	mt_require(bad < 0, "byte %zd of message %llu is wrong", bad, (unsigned long long)d->got);
	d->got++;
}

/* One step on; true: all of them have come. */
static bool drain_step(struct drain *d, uint64_t total)
{
	while (d->posted < total && d->posted < d->got + IN_FLIGHT)
		drain_post(d);
	while (d->got < d->posted && d->ops[d->got % IN_FLIGHT].done)
		drain_check(d);
	return d->got == total;
}

/* ---- one floods, another is served ----------------------------------------------------------- */

#define FLAG_TOTAL 0  /* messages of the flood, once it has been refused */
#define FLAG_GROWTH 8 /* bytes: the receiver's, the sender's */
#define FLAG_ACCEPTED 10
#define TALKS 400

static size_t talk_size(int i)
{
	static const size_t sizes[] = { 8, 100, 4096, 0, 20000, 100000 };

	return sizes[(size_t)i % (sizeof(sizes) / sizeof(sizes[0]))];
}

/* The receiver's part and the second sender's. */
static void talk(struct mt_ep *ep, fi_addr_t peer, bool asks)
{
	uint8_t *buf = malloc(100000);
	struct mt_op send = { 0 }, recv = { 0 };

	mt_require(buf, "no memory");
	for (int i = 0; i < TALKS; i++)
		for (int turn = 0; turn < 2; turn++)
			if (asks == (turn == 0)) {
				mt_doing("talk %d: sending %zu bytes", i, talk_size(i));
				pattern_fill(buf, 0, talk_size(i), (uint64_t)(i * 2 + turn));
				mt_tsend(ep, &send, buf, talk_size(i), peer, 9);
				mt_wait(ep, &send);
			} else {
				mt_doing("talk %d: receiving %zu bytes", i, talk_size(i));
				mt_trecv(ep, &recv, buf, 100000, peer, 9);
				mt_wait(ep, &recv);
				mt_require(recv.len == talk_size(i) &&
						   pattern_differs(buf, 0, recv.len,
								   (uint64_t)(i * 2 + turn)) < 0,
					   "talk %d: wrong message", i);
			}
	free(buf);
}

static void served_receiver(struct mt_ep *ep, const fi_addr_t *peers, const struct kind *kind)
{
	size_t before = resident();
	struct drain d;

	mt_doing("being flooded");
	mt_flag_wait(ep, FLAG_TOTAL, 1);
	talk(ep, peers[2], false);
	check_growth(before, RECEIVER_GROWTH, "flooded receiver", FLAG_GROWTH);
	drain_init(&d, ep, peers[1], kind);
	while (!drain_step(&d, atomic_load(mt_flag(FLAG_TOTAL)))) {
		mt_doing("draining: %llu of %llu", (unsigned long long)d.got,
			 (unsigned long long)atomic_load(mt_flag(FLAG_TOTAL)));
		mt_poll(ep);
	}
	free(d.buf);
}

static void served_flooder(struct mt_ep *ep, fi_addr_t peer, const struct kind *kind)
{
	size_t before = resident();
	struct flood f;
	uint64_t total;

	flood_init(&f, ep, peer, kind);
	mt_doing("flooding");
	flood_fill(&f);
	check_growth(before, SENDER_GROWTH, "flooding sender", FLAG_GROWTH + 1);
	atomic_store(mt_flag(FLAG_ACCEPTED), f.sent);
	total = f.sent + MORE;
	atomic_store(mt_flag(FLAG_TOTAL), total);
	/* on with it, while the other one talks and while the receiver drains */
	while (f.sent < total) {
		if (!flood_try(&f))
			mt_poll(ep);
		if (f.sent % 64 == 0)
			mt_doing("flooding on, %llu of %llu", (unsigned long long)f.sent,
				 (unsigned long long)total);
	}
	mt_doing("completing the flood");
	flood_settle(&f);
	flood_fini(&f);
}

static void served_rank(const void *arg)
{
	const struct kind *kind = arg;
	fi_addr_t peers[3];
	struct mt_ep ep;

	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	if (mt_rank == 0) {
		served_receiver(&ep, peers, kind);
	} else if (mt_rank == 1) {
		served_flooder(&ep, peers[0], kind);
	} else {
		mt_flag_wait(&ep, FLAG_TOTAL, 1);
		talk(&ep, peers[0], true);
	}
	mt_doing("done, waiting for the others");
	mt_barrier(&ep);
	mt_close(&ep);
}

static bool served_judge(const struct mt_counters *c, int ranks, const void *arg)
{
	(void)c;
	(void)ranks;
	(void)arg;
	printf("  refused after %llu messages; the receiver had grown by %llu KiB, the sender by %llu "
	       "KiB\n",
	       (unsigned long long)atomic_load(mt_flag(FLAG_ACCEPTED)),
	       (unsigned long long)atomic_load(mt_flag(FLAG_GROWTH)) >> 10,
	       (unsigned long long)atomic_load(mt_flag(FLAG_GROWTH + 1)) >> 10);
	return true;
}

/* ---- circles --------------------------------------------------------------------------------- */

/* A floods B; B waits for C, C waits for what A sends after the flood. */
static void cycle_rank(const void *arg)
{
	const struct kind *kind = arg;
	struct mt_op op = { 0 };
	uint64_t word = 0;
	fi_addr_t peers[3];
	struct mt_ep ep;

	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	if (mt_rank == 0) {
		struct flood f;

		flood_init(&f, &ep, peers[1], kind);
		mt_doing("flooding B");
		flood_fill(&f);
		atomic_store(mt_flag(FLAG_TOTAL), f.sent);
		mt_doing("sending to C after the flood");
		mt_tsend(&ep, &op, &word, sizeof(word), peers[2], 8);
		mt_wait(&ep, &op);
		mt_doing("completing the flood");
		flood_settle(&f);
		flood_fini(&f);
	} else if (mt_rank == 1) {
		struct drain d;

		mt_doing("waiting for C, flooded by A");
		mt_trecv(&ep, &op, &word, sizeof(word), peers[2], 9);
		mt_wait(&ep, &op);
		drain_init(&d, &ep, peers[0], kind);
		mt_doing("draining");
		while (!drain_step(&d, atomic_load(mt_flag(FLAG_TOTAL))))
			mt_poll(&ep);
		free(d.buf);
	} else {
		mt_doing("waiting for A");
		mt_trecv(&ep, &op, &word, sizeof(word), peers[0], 8);
		mt_wait(&ep, &op);
		mt_doing("sending to B");
		mt_tsend(&ep, &op, &word, sizeof(word), peers[1], 9);
		mt_wait(&ep, &op);
	}
	mt_doing("done, waiting for the others");
	mt_barrier(&ep);
	mt_close(&ep);
}

/* Every rank floods the next one (itself, if it is alone) before anybody receives. */
static void ring_rank(const void *arg)
{
	const struct kind *kind = arg;
	int to = (mt_rank + 1) % mt_ranks, from = (mt_rank + mt_ranks - 1) % mt_ranks;
	fi_addr_t peers[4];
	struct mt_ep ep;
	struct flood f;
	struct drain d;
	uint64_t total;

	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	flood_init(&f, &ep, peers[to], kind);
	drain_init(&d, &ep, peers[from], kind);
	mt_doing("flooding rank %d", to);
	flood_fill(&f);
	total = f.sent + MORE;
	atomic_store(mt_flag(FLAG_TOTAL + mt_rank), total);
	mt_barrier(&ep);
	while (!drain_step(&d, atomic_load(mt_flag(FLAG_TOTAL + from))) || f.sent < total) {
		if (f.sent == total || !flood_try(&f))
			mt_poll(&ep);
		if (d.got % 64 == 0)
			mt_doing("draining rank %d: %llu; %llu of %llu sent", from,
				 (unsigned long long)d.got, (unsigned long long)f.sent,
				 (unsigned long long)total);
	}
	mt_doing("completing the flood");
	flood_settle(&f);
	flood_fini(&f);
	free(d.buf);
	mt_doing("done, waiting for the others");
	mt_barrier(&ep);
	mt_close(&ep);
}

static void run_kinds(const char *name, int ranks, void (*rank)(const void *))
{
	bool served = rank == served_rank;

	for (size_t i = 0; i < KINDS; i++) {
		char full[64];
		struct mt_case test = { .name = full,
					.ranks = ranks,
					.rank = rank,
					.arg = &kinds[i],
					.judge = served ? served_judge : NULL };

		snprintf(full, sizeof(full), "%s-%s", name, kinds[i].name);
		if (served || !kinds[i].brief)
			mt_run(&test);
	}
}

int main(void)
{
	mt_init("test_flood");
	run_kinds("served", 3, served_rank);
	run_kinds("cycle", 3, cycle_rank);
	run_kinds("self", 1, ring_rank);
	run_kinds("mutual", 2, ring_rank);
	run_kinds("ring", 4, ring_rank);
	return mt_end();
}
