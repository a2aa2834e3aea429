/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_reopen: a receive context of a scalable endpoint that its owner closes and opens again, under the eyes of
 * several processes that send to it.
 *
 * Each sender numbers its messages over the whole run. The owner sees the numbers of each sender in their order, none
 * twice, over all openings. A message that was sent after an opening was announced arrives there. A message that its
 * sender knows to be delivered has been delivered.
 */
#define _GNU_SOURCE 1
#include "multi.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define SENDERS 3
#define RANKS (1 + SENDERS)
#define BITS 1
#define AGAIN 1 /* the context that is opened again; the other stays */
#define LARGEST ((size_t)100000)
#define POSTED 8  /* receives */
#define WINDOW 4  /* messages of a sender that are under way */
#define SURE 12	  /* of a sender, in each round */
#define ROUNDS (MT_SANITIZED ? 30 : 60)
#define OPENINGS 300 /* of the owner that does not wait for anybody */

enum {
	FLAG_OPENED, /* openings that have been told of */
	FLAG_CLOSED, /* and closings */
	FLAG_HERE,   /* senders that know its address */
	FLAG_GONE,   /* the owner is about to be killed */
	FLAG_DELIVERED,			    /* + rank: messages that a sender knows to have been delivered */
	FLAG_SEEN = FLAG_DELIVERED + RANKS, /* + rank: messages of that sender that the owner has received */
};

/* A tag: the sender's rank, the number of the message, and whether it must arrive. */
#define TAG(rank, number, sure) ((uint64_t)(rank) << 40 | (uint64_t)(number) << 1 | (sure))

static size_t size_of(uint64_t number)
{
	static const size_t sizes[] = { 8, 150, 3000, 20000, LARGEST };

	return sizes[number % 5];
}

/* ---- the owner ------------------------------------------------------------------------------- */

struct owner {
	struct mt_ep ep; /* with an endpoint that no process talks to */
	struct fid_ep *sep, *rx[2];
	struct mt_op ops[POSTED];
	uint8_t *bufs[POSTED];
	uint64_t last[RANKS], sure[RANKS];
};

static void owner_enable(struct owner *owner, int index)
{
	mt_must(fi_rx_context(owner->sep, index, NULL, &owner->rx[index], NULL));
	mt_must(fi_ep_bind(owner->rx[index], &owner->ep.cq->fid, FI_RECV));
	mt_must(fi_enable(owner->rx[index]));
}

static void owner_open(struct owner *owner)
{
	memset(owner, 0, sizeof(*owner));
	mt_open(&owner->ep, &(struct mt_open){ .caps = FI_NAMED_RX_CTX, .rx_ctx_bits = BITS });
	owner->ep.info->ep_attr->tx_ctx_cnt = 1;
	owner->ep.info->ep_attr->rx_ctx_cnt = 2;
	mt_must(fi_scalable_ep(owner->ep.domain, owner->ep.info, &owner->sep, NULL));
	mt_must(fi_scalable_ep_bind(owner->sep, &owner->ep.av->fid, 0));
	mt_must(fi_enable(owner->sep));
	owner_enable(owner, 0);
	owner->ep.name_len = sizeof(owner->ep.name);
	mt_must(fi_getname(&owner->sep->fid, owner->ep.name, &owner->ep.name_len));
	mt_publish(&owner->ep, 0);
	for (int i = 0; i < POSTED; i++) {
		owner->bufs[i] = malloc(LARGEST);
		mt_require(owner->bufs[i], "no memory");
	}
}

static void owner_close(struct owner *owner)
{
	mt_must(fi_close(&owner->rx[0]->fid));
	mt_must(fi_close(&owner->sep->fid));
	mt_close(&owner->ep);
	for (int i = 0; i < POSTED; i++)
		free(owner->bufs[i]);
}

static void owner_post(struct owner *owner, int i)
{
	struct iovec iov = { owner->bufs[i], LARGEST };
	ssize_t rc;

	owner->ops[i] = (struct mt_op){ .pending = true };
	while ((rc = fi_trecv(owner->rx[AGAIN], iov.iov_base, iov.iov_len, NULL, FI_ADDR_UNSPEC, 0, ~0ULL,
			      &owner->ops[i])) == -FI_EAGAIN)
		mt_poll(&owner->ep);
	mt_must(rc);
}

/* One that has come. */
static void owner_look(struct owner *owner, int i)
{
	const struct mt_op *op = &owner->ops[i];
	int rank = (int)(op->tag >> 40);
	uint64_t number = (op->tag & 0xFFFFFFFFFF) >> 1;

	if (op->err) { /* its sender has not lived, or we have closed, before it was whole */
		mt_require(op->err == FI_ECANCELED || op->err == FI_ECONNRESET, "a receive failed: %s",
			   fi_strerror(op->err));
		return;
	}
	mt_require(rank > 0 && rank < RANKS, "a message of rank %d", rank);
	mt_require(number > owner->last[rank], "message %llu of rank %d after its %lluth",
		   (unsigned long long)number, rank, (unsigned long long)owner->last[rank]);
	mt_require(op->len == size_of(number) && pattern_differs(owner->bufs[i], 0, op->len, op->tag) < 0,
		   "message %llu of rank %d is not what was sent", (unsigned long long)number, rank);
	owner->last[rank] = number;
	owner->sure[rank] += op->tag & 1;
	atomic_fetch_add(mt_flag(FLAG_SEEN + rank), 1);
}

/* Receives are posted in the order of their numbers, and so they are taken. */
static void owner_take(struct owner *owner, int *next, bool post)
{
	while (owner->ops[*next].done) {
		owner_look(owner, *next);
		if (post)
			owner_post(owner, *next);
		else
			owner->ops[*next] = (struct mt_op){ 0 };
		*next = (*next + 1) % POSTED;
	}
}

static bool owner_has_all(const struct owner *owner, uint64_t sure)
{
	for (int rank = 1; rank < RANKS; rank++)
		if (owner->sure[rank] < sure)
			return false;
	return true;
}

/* Open, receive all that is sure to come and so many polls more, and close. */
static void owner_round(struct owner *owner, uint64_t round, uint64_t sure, uint64_t polls)
{
	int next = 0;

	mt_doing("opening %llu", (unsigned long long)round);
	owner_enable(owner, AGAIN);
	for (int i = 0; i < POSTED; i++)
		owner_post(owner, i);
	atomic_store(mt_flag(FLAG_OPENED), round + 1);
	while (!owner_has_all(owner, sure) || polls--) {
		mt_poll(&owner->ep);
		owner_take(owner, &next, true);
	}
	mt_doing("closing %llu", (unsigned long long)round);
	mt_must(fi_close(&owner->rx[AGAIN]->fid));
	while (mt_progress(&owner->ep))
		;
	owner_take(owner, &next, false);
	atomic_store(mt_flag(FLAG_CLOSED), round + 1);
}

/* ---- the senders ----------------------------------------------------------------------------- */

struct sender {
	struct mt_ep ep;
	fi_addr_t to;
	uint64_t number;
	struct mt_op ops[WINDOW];
	uint8_t *bufs[WINDOW];
	int at;
};

static void sender_open(struct sender *sender)
{
	memset(sender, 0, sizeof(*sender));
	mt_open(&sender->ep, &(struct mt_open){ .caps = FI_NAMED_RX_CTX, .rx_ctx_bits = BITS });
	sender->to = fi_rx_addr(mt_lookup(&sender->ep, 0), AGAIN, BITS);
	for (int i = 0; i < WINDOW; i++) {
		sender->bufs[i] = malloc(LARGEST);
		mt_require(sender->bufs[i], "no memory");
	}
	atomic_fetch_add(mt_flag(FLAG_HERE), 1);
}

/* The oldest message has ended: was it delivered? */
static void sender_look(struct mt_op *op)
{
	if (!op->done)
		return;
	mt_require(!op->err || op->err == FI_ECONNRESET, "a send failed: %s", fi_strerror(op->err));
	if (!op->err)
		atomic_fetch_add(mt_flag(FLAG_DELIVERED + mt_rank), 1);
	op->done = false;
}

static void sender_close(struct sender *sender)
{
	for (int i = 0; i < WINDOW; i++) {
		if (sender->ops[i].pending)
			mt_wait_any(&sender->ep, &sender->ops[i]);
		sender_look(&sender->ops[i]);
		free(sender->bufs[i]);
	}
	mt_close(&sender->ep);
}

/* One more message, once there is a place for it. As libfabric says; -FI_EAGAIN: not now. */
static ssize_t sender_try(struct sender *sender, bool sure)
{
	struct mt_op *op = &sender->ops[sender->at];
	struct iovec iov = { sender->bufs[sender->at], size_of(sender->number + 1) };
	struct mt_message m = { .tagged = true,
				.call = MT_SENDMSG,
				.iov = &iov,
				.pieces = 1,
				.peer = sender->to,
				.tag = TAG(mt_rank, sender->number + 1, sure),
				.flags = FI_COMPLETION | FI_DELIVERY_COMPLETE };
	ssize_t rc;

	if (op->pending)
		mt_wait_any(&sender->ep, op);
	sender_look(op);
	if (iov.iov_len <= 150 && sender->number % 3 == 0 && sure) {
		m.call = MT_INJECT;
		m.flags = 0;
	}
	pattern_fill(iov.iov_base, 0, iov.iov_len, m.tag);
	rc = mt_try_send(&sender->ep, op, &m);
	if (rc)
		return rc;
	if (m.call == MT_INJECT)
		op->done = false;
	sender->number++;
	sender->at = (sender->at + 1) % WINDOW;
	return 0;
}

/* The context is open and will be until all this has come. */
static void sender_sure(struct sender *sender)
{
	for (int i = 0; i < SURE; i++) {
		ssize_t rc;

		mt_doing("sending message %d that must arrive", i);
		while ((rc = sender_try(sender, true)) == -FI_EAGAIN)
			mt_poll(&sender->ep);
		mt_must(rc);
	}
	for (int i = 0; i < WINDOW; i++) {
		if (sender->ops[i].pending)
			mt_wait(&sender->ep, &sender->ops[i]);
		sender_look(&sender->ops[i]);
	}
}

static bool is_closed(ssize_t rc)
{
	return rc == -FI_ECONNRESET || rc == -FI_ECONNREFUSED;
}

/* Send on until the context has been closed, or its owner is killed. */
static void sender_storm(struct sender *sender, uint64_t closed)
{
	mt_doing("sending what may arrive");
	while (atomic_load(mt_flag(FLAG_CLOSED)) < closed && !atomic_load(mt_flag(FLAG_GONE))) {
		ssize_t rc = sender_try(sender, false);

		mt_require(rc == 0 || rc == -FI_EAGAIN || is_closed(rc), "a send was refused: %s",
			   fi_strerror((int)-rc));
		if (rc)
			mt_poll(&sender->ep);
	}
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void rounds_owner(void)
{
	struct mt_random random = { 42 };
	struct owner owner;

	owner_open(&owner);
	for (uint64_t round = 0; round < ROUNDS; round++)
		owner_round(&owner, round, (round + 1) * SURE, mt_below(&random, 2000));
	mt_doing("done, waiting for the others");
	mt_barrier(&owner.ep);
	for (int rank = 1; rank < RANKS; rank++) {
		uint64_t seen = atomic_load(mt_flag(FLAG_SEEN + rank));
		uint64_t delivered = atomic_load(mt_flag(FLAG_DELIVERED + rank));

		mt_require(owner.sure[rank] == ROUNDS * SURE, "%llu messages of rank %d, %d were to come",
			   (unsigned long long)owner.sure[rank], rank, ROUNDS * SURE);
		mt_require(seen >= delivered, "%llu messages of rank %d, which knows of %llu that they came",
			   (unsigned long long)seen, rank, (unsigned long long)delivered);
	}
	owner_close(&owner);
}

static void rounds_rank(const void *arg)
{
	struct sender sender;

	(void)arg;
	if (mt_rank == 0) {
		rounds_owner();
		return;
	}
	sender_open(&sender);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		/* some see what happens to the context, some call nothing meanwhile */
		mt_doing("waiting for opening %llu", (unsigned long long)round);
		mt_flag_wait((round + (uint64_t)mt_rank) % 2 ? &sender.ep : NULL, FLAG_OPENED, round + 1);
		sender_sure(&sender);
		if ((round + (uint64_t)mt_rank) % 4)
			sender_storm(&sender, round + 1);
	}
	for (int i = 0; i < WINDOW; i++) {
		if (sender.ops[i].pending)
			mt_wait_any(&sender.ep, &sender.ops[i]);
		sender_look(&sender.ops[i]);
	}
	mt_doing("done, waiting for the others");
	mt_barrier(&sender.ep);
	sender_close(&sender);
}

/* ---- an owner that is killed ----------------------------------------------------------------- */

static void killed_owner(void)
{
	struct mt_random random = { 43 };
	struct owner owner;

	owner_open(&owner);
	mt_flag_wait(&owner.ep, FLAG_HERE, SENDERS);
	for (uint64_t round = 0; round < OPENINGS; round++)
		owner_round(&owner, round, 0, mt_below(&random, 300));
	owner_enable(&owner, AGAIN);
	mt_expect_death(mt_rank);
	atomic_store(mt_flag(FLAG_GONE), 1);
	raise(SIGKILL);
}

static void killed_rank(const void *arg)
{
	struct sender sender;

	(void)arg;
	if (mt_rank == 0) {
		killed_owner();
		return;
	}
	sender_open(&sender);
	while (!atomic_load(mt_flag(FLAG_GONE)))
		sender_storm(&sender, atomic_load(mt_flag(FLAG_CLOSED)) + 1);
	mt_doing("finding that the owner has been killed");
	for (int refused = 0; refused < 3;) {
		ssize_t rc = sender_try(&sender, false);

		mt_require(rc == 0 || rc == -FI_EAGAIN || is_closed(rc), "a send was refused: %s",
			   fi_strerror((int)-rc));
		refused += is_closed(rc);
		mt_poll(&sender.ep);
	}
	sender_close(&sender);
}

/* Nobody has been taken for one who breaks the rules. */
static bool judge(const struct mt_counters *c, int ranks, const void *arg)
{
	(void)arg;
	for (int rank = 0; rank < ranks; rank++)
		if (c[rank].quarantines) {
			printf("  rank %d has quarantined %llu\n", rank,
			       (unsigned long long)c[rank].quarantines);
			return false;
		}
	return true;
}

int main(void)
{
	static const struct mt_case cases[] = {
		{ .name = "rounds",
		  .ranks = RANKS,
		  .rank = rounds_rank,
		  .judge = judge,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "killed",
		  .ranks = RANKS,
		  .rank = killed_rank,
		  .judge = judge,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
	};

	mt_init("test_reopen");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mt_run(&cases[i]);
	return mt_end();
}
