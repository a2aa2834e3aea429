/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * protocols.h: the protocols between two processes under the schedules of schedule.h. Each of the two must find
 * in the end, also if the other dies:
 *
 *   - each operation that was accepted completes exactly once, each receive that was posted too (or it is
 *     withdrawn); an operation that was refused never completes;
 *   - all messages that the other has published arrive, whole;
 *   - after the other's death later posts are refused;
 *   - all bounce buffers are back; after the close no descriptor, no mapping and no name is left.
 *
 * A process whose own calls fail may achieve less, but must not hang, crash or leak. A side that breaks one of these
 * rules on purpose (enum sabotage) shows that the test finds each breach.
 *
 * To be included once, after schedule.h.
 */
#ifndef FAULT_PROTOCOLS_H
#define FAULT_PROTOCOLS_H

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <sys/resource.h>
#include <shmcma/core.h>
#include "os/addr.h"
#include "link/peer.h"
#include "os/otherfile.h"
#include "proc/leftover.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "link/state.h"
#include "../pattern.h"
#include "../unit/pidfds.h"

#define OPS_MAX 512
#define SERVICE "fault-service"
/* After the last sign of the other: as many polls as it takes to see that it is dead, several times. */
#define QUIET_POLLS 2500
#define PAYLOAD_MAX ((size_t)1 << 20)
#define MEMORY ((size_t)256 << 10)

enum {
	NO_CMA = 1 << 0,   /* nobody reads another's memory */
	STRICT = 1 << 1,   /* registered memory is served by its owner */
	UNSHARED = 1 << 2, /* the receiver copies alone */
	LATE = 1 << 3,	   /* receives are posted when the messages are there */
	MULTI = 1 << 4,	   /* one buffer for all of them */
	BACK = 1 << 5,	   /* both sides send */
	EVENTS = 1 << 6,   /* the target counts */
	SERVED = 1 << 7,   /* side 0 has a service name */
	FIRST_0 = 1 << 8,  /* side 0 closes first, and the other sees it go; else both at once, */
	FIRST_1 = 1 << 9,  /* with both flags without waiting for the messages */
	NO_INPUT = 1 << 10, /* both have no standard input */
};

struct message {
	size_t size;
	int pieces; /* of the sender's vector */
	uint32_t flags;
};

struct side;
struct protocol {
	const char *name;
	const char *roles[2];
	unsigned flags;
	void (*work[2])(struct side *side);
	const struct message *messages; /* size 0 and no pieces: the end */
	struct {
		int side;
		const char *point; /* NULL: none */
		enum action action;
		int err;
	} given; /* something else that happens in each schedule of this one */
};

enum op_kind { OP_FREE, OP_SEND, OP_RECV, OP_MULTI, OP_RMA };
struct op {
	enum op_kind kind;
	int completions;
	int err;
	uint64_t seed;
	size_t size;
	uint8_t *buf;
	bool checks; /* buf is to hold the pattern of `seed` in the end */
};

struct side {
	const struct protocol *protocol;
	int index;
	struct side_state *me, *other;
	struct sc_comp_ring tx, rx;
	struct sc_regtab *regtab;
	struct sc_ep *ep;
	struct sc_peer *peer;
	struct op ops[OPS_MAX];
	int op_count;
	unsigned received, received_well;
	int fds;       /* open at the beginning */
	int tolerated; /* an error that operations may end with */
};

/* Does this schedule have an injection with that action? */
static bool has_action(enum action action)
{
	for (int i = 0; i < INJECTIONS; i++)
		if (control->injections[i].action == action)
			return true;
	return false;
}

static bool is_to_die(int side)
{
	for (int i = 0; i < INJECTIONS; i++)
		if (control->injections[i].action == KILL && control->injections[i].side == side)
			return true;
	return false;
}

static bool has_fired_any(void)
{
	for (int i = 0; i < INJECTIONS; i++)
		if (control->injections[i].fired)
			return true;
	return false;
}

/* Calls may fail: less is promised. */
static bool may_fail(void)
{
	return has_action(FAIL);
}

/* Is this side to do that wrong? */
static bool is_to(const struct side *side, enum sabotage sabotage)
{
	return control->sabotage == sabotage && control->saboteur == side->index;
}

static void at(struct side *side, const char *where)
{
	snprintf(side->me->where, sizeof(side->me->where), "%s", where);
}

/* It does nothing more in this protocol. */
static bool other_is_done(const struct side *side)
{
	return side->other->finished || side->other->leaving || side->other->gone;
}

static bool other_is_dead(const struct side *side)
{
	return side->other->gone && side->other->killed;
}

/* It closes before the other does, and waits for nothing. */
static bool goes_first(const struct side *side)
{
	return side->protocol->flags & (side->index ? FIRST_1 : FIRST_0);
}

static bool stays(const struct side *side)
{
	return !goes_first(side) && side->protocol->flags & (side->index ? FIRST_0 : FIRST_1);
}

/* ---- payload --------------------------------------------------------------------------------- */

/* Tags: the sender of a message, and its number. */
static uint64_t seed_of(int sender, int number)
{
	return (uint64_t)sender << 32 | (unsigned)number;
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct op *op_new(struct side *side, enum op_kind kind, uint64_t seed, size_t size)
{
	struct op *op = &side->ops[side->op_count++];

	if (side->op_count > OPS_MAX)
		complain("the test has too few operations");
	*op = (struct op){ .kind = kind, .seed = seed, .size = size, .buf = calloc(1, size + 1) };
	if (!op->buf)
		complain("no memory");
	return op;
}

static void check_error(const struct side *side, int err)
{
	if (!err || err == side->tolerated || may_fail())
		return;
	if (err == ECONNRESET && (has_action(KILL) || side->other->leaving))
		return;
	complain("an operation ended with %s", strerror(err));
}

static void completed(struct side *side, const struct sc_comp *comp)
{
	struct op *op = comp->context;

	if (comp->flags & SC_COMP_WRITTEN)
		return;
	if (is_to(side, SPOILS_MESSAGE) && op->kind == OP_RECV && op->size)
		op->buf[op->size - 1] ^= 1;
	if (op < side->ops || op >= side->ops + side->op_count)
		complain("a completion of nothing");
	if (comp->err != ECANCELED)
		check_error(side, comp->err);
	if (op->kind == OP_MULTI) {
		op->completions += (comp->flags & SC_COMP_MULTI_DONE) != 0;
		if (comp->err == ECANCELED)
			return;
		side->received++;
		side->received_well += !comp->err;
		if (!comp->err && !pattern_is(comp->buf, 0, comp->len, comp->tag))
			complain("a message of %zu bytes in a multi-receive is not what was sent",
				 comp->len);
		return;
	}
	if (op->completions++)
		complain("an operation (kind %d, %zu bytes) completed twice: %s, then %s", op->kind,
			 op->size, strerror(op->err), strerror(comp->err));
	if (is_to(side, COMPLETES_NEVER) && op->kind == OP_RECV)
		op->completions = 0;
	op->err = comp->err;
	if (op->kind == OP_RECV && comp->err != ECANCELED) {
		side->received++;
		side->received_well += !comp->err && !is_to(side, LOSES_MESSAGE);
		if (!comp->err && (comp->len != op->size || !pattern_is(op->buf, 0, op->size, op->seed)))
			complain("a message of %zu bytes is not what was sent", op->size);
	}
	if (op->kind == OP_RMA && op->checks && !comp->err && !pattern_is(op->buf, 0, op->size, op->seed))
		complain("a get of %zu bytes has brought something else", op->size);
}

static void drain(struct side *side, struct sc_comp_ring *cq)
{
	struct sc_comp *comp;

	while ((comp = sc_comp_ring_peek(cq))) {
		completed(side, comp);
		if (is_to(side, COMPLETES_TWICE))
			completed(side, comp);
		sc_comp_ring_release(cq);
	}
}

static void progress(struct side *side)
{
	unsigned long polls;

	if (!side->ep)
		return;
	(void)sc_ep_poll(side->ep);
	drain(side, &side->tx);
	drain(side, &side->rx);
	polls = atomic_fetch_add(&side->me->polls, 1);
	if (polls % 64 == 0)
		sched_yield(); /* the other may have to have this processor */
}

static bool is_over(int ret)
{
	return ret != -EAGAIN;
}

/* Until the call is taken or refused for good. One that fails for want of something is not repeated. */
#define UNTIL_TAKEN(side, call)                                                                           \
	__extension__({                                                                                   \
		int ret_;                                                                                 \
		while (!is_over(ret_ = (call)))                                                           \
			progress(side);                                                                   \
		ret_;                                                                                     \
	})

static void check_refusal(const struct side *side, int ret)
{
	if (!ret || may_fail())
		return;
	if (has_action(KILL) || side->other->leaving)
		return;
	complain("a post was refused: %s", strerror(-ret));
}

static void op_refuse(struct side *side, struct op *op, int ret)
{
	check_refusal(side, ret);
	op->kind = OP_FREE;
}

static void send_one(struct side *side, int number, const struct message *message)
{
	uint64_t seed = seed_of(side->index, number);
	struct op *op = op_new(side, OP_SEND, seed, message->size);
	struct iovec iov[SC_IOV_MAX];
	size_t part = message->pieces ? message->size / (size_t)message->pieces : 0, at_byte = 0;
	struct sc_send send = {
		.iov = iov, .tag = seed, .context = op, .flags = message->flags | SC_TAGGED
	};
	int ret;

	pattern_fill(op->buf, 0, op->size, seed);
	for (int i = 0; i < message->pieces; i++) {
		size_t here = i + 1 == message->pieces ? message->size - at_byte : part;

		iov[send.iov_count++] = (struct iovec){ op->buf + at_byte, here };
		at_byte += here;
	}
	atomic_fetch_add(&side->me->begun, 1);
	ret = UNTIL_TAKEN(side, sc_tx_send(side->ep, side->peer, &send));
	if (ret) {
		op_refuse(side, op, ret);
		return;
	}
	atomic_fetch_add(&side->me->returned, 1);
	if (message->size <= side->ep->config.eager_max && side->ep->counters.tx_rdv == 0)
		atomic_fetch_add(&side->me->eager, 1);
}

static void recv_one(struct side *side, int number, const struct message *message)
{
	uint64_t seed = seed_of(!side->index, number);
	struct op *op = op_new(side, OP_RECV, seed, message->size);
	struct iovec iov = { op->buf, message->size };
	struct sc_recv recv = {
		.iov = &iov, .iov_count = 1, .tag = seed, .context = op, .flags = SC_TAGGED
	};
	int ret = UNTIL_TAKEN(side, sc_rx_recv(side->ep, &recv));

	if (ret)
		complain("a receive was refused: %s", strerror(-ret));
}

static bool is_last(const struct message *message)
{
	return !message->size && !message->pieces;
}

/* ---- the way of all protocols ---------------------------------------------------------------- */

/* Until the other has come to that stage of its work; false: it has gone. */
static bool wait_stage(struct side *side, unsigned stage)
{
	while (side->other->stage < stage) {
		if ((side->other->gone || side->other->leaving) && side->other->stage < stage)
			return false;
		progress(side);
		if (!side->ep)
			sched_yield();
	}
	return true;
}

static void go_on(struct side *side, unsigned stage)
{
	atomic_store(&side->me->stage, stage);
}

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static bool has_mapping(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (maps && !found && fgets(line, sizeof(line), maps))
		found = strstr(line, "/dev/shm/") && !strstr(line, " /dev/shm/ (");
	if (maps)
		fclose(maps);
	return found;
}

static int ep_open(struct side *side, const char *service, struct sc_ep **ep)
{
	unsigned flags = side->protocol->flags;
	struct sc_ep_attr attr = { .tx_size = 256,
				   .rx_size = 256,
				   .service = service,
				   .tx_cq = &side->tx,
				   .rx_cq = &side->rx,
				   .regtab = side->regtab };

	sc_config_init(&attr.config);
	attr.config.slots = 4;
	attr.config.cma = !(flags & NO_CMA);
	attr.config.strict = flags & STRICT;
	if (flags & UNSHARED)
		attr.config.share_min = UINT32_MAX;
	return sc_ep_create(&attr, ep);
}

/* A side that cannot even begin says so and is done with. */
static bool side_open(struct side *side)
{
	int ret;

	at(side, "open");
	if (side->protocol->flags & NO_INPUT)
		close(STDIN_FILENO);
	side->fds = count_fds();
	if (sc_comp_ring_init(&side->tx, 256) || sc_comp_ring_init(&side->rx, 256))
		complain("no memory");
	ret = sc_regtab_create(&side->regtab);
	if (!ret)
		ret = ep_open(side, side->protocol->flags & SERVED && !side->index ? SERVICE : NULL,
			      &side->ep);
	if (ret) {
		if (!may_fail())
			complain("no endpoint: %s", strerror(-ret));
		return false;
	}
	memcpy(side->me->address, sc_ep_address(side->ep), SC_ADDR_SIZE);
	go_on(side, 1);
	return true;
}

static bool side_meet(struct side *side)
{
	at(side, "meet");
	if (!wait_stage(side, 1))
		return false;
	return !sc_peer_get(side->ep, side->other->address, &side->peer);
}

static bool all_completed(const struct side *side)
{
	for (int i = 0; i < side->op_count; i++)
		if ((side->ops[i].kind == OP_SEND || side->ops[i].kind == OP_RMA) &&
		    !side->ops[i].completions)
			return false;
	return true;
}

/* Is anybody still attached, or to be read? */
static bool knows_anybody(const struct side *side)
{
	sc_list_for (entry, &side->ep->peers) {
		const struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		if (peer->seg || (peer->feed != SC_FEED_NONE && peer->feed != SC_FEED_DONE))
			return true;
	}
	return false;
}

/* All that the other has sent has come. */
static bool all_received(const struct side *side)
{
	return side->received >= side->other->returned;
}

/* The other sends nothing more, and all its messages are in place, or have failed. */
static bool other_has_settled(const struct side *side)
{
	return side->other->settled || other_is_done(side);
}

static void settle(struct side *side)
{
	unsigned long since = 0;

	at(side, "settle: own operations");
	while (!all_completed(side))
		progress(side);
	atomic_store(&side->me->settled, true);
	at(side, "settle: messages");
	/* a message of the other does not come if its send was accepted and failed later */
	while (!all_received(side) && !(may_fail() && other_has_settled(side) && since++ > QUIET_POLLS))
		progress(side);
	atomic_store(&side->me->finished, true);
	at(side, "settle: the other");
	while (!other_is_done(side))
		progress(side);
	while (!all_received(side) && !(may_fail() && since++ > QUIET_POLLS))
		progress(side);
}

/* The other has been killed: it must be seen, and all that was to do with it must be over. */
static void survive(struct side *side)
{
	uint8_t byte = 0;
	struct iovec iov = { &byte, 1 };
	struct sc_send send = { .iov = &iov, .iov_count = 1, .flags = SC_TAGGED | SC_SILENT };
	unsigned long last;
	int ret;

	at(side, "survive: take in what there is");
	last = side->me->polls + QUIET_POLLS;
	while (side->me->polls < last)
		progress(side);
	at(side, "survive: the other's end");
	while (knows_anybody(side))
		progress(side);
	if (!side->peer)
		return;
	at(side, "survive: refusal");
	ret = UNTIL_TAKEN(side, sc_tx_send(side->ep, side->peer, &send));
	if (!ret)
		complain("a message to the dead was taken");
	if (side->peer->link != SC_LINK_DOWN && !may_fail())
		complain("a message to the dead was refused (%s), but not for good", strerror(-ret));
}

/* The other has closed: that must be seen. */
static void see_off(struct side *side)
{
	at(side, "see off");
	while (!side->other->closed && !side->other->gone)
		progress(side);
	if (other_is_dead(side)) {
		survive(side);
		return;
	}
	while (knows_anybody(side))
		progress(side);
}

static void withdraw(struct side *side)
{
	if (goes_first(side))
		return; /* the close ends its operations without completion */
	at(side, "withdraw");
	for (int i = 0; i < side->op_count; i++) {
		struct op *op = &side->ops[i];

		if ((op->kind != OP_RECV && op->kind != OP_MULTI) || op->completions)
			continue;
		if (sc_rx_cancel(side->ep, op))
			complain("a receive is neither completed nor posted");
	}
	drain(side, &side->tx);
	drain(side, &side->rx);
}

static void check_ops(const struct side *side)
{
	const struct sc_counters *counters = sc_ep_counters(side->ep);

	for (int i = 0; i < side->op_count; i++) {
		const struct op *op = &side->ops[i];

		if (op->completions != (op->kind != OP_FREE) && !(goes_first(side) && !op->completions))
			complain("an operation (kind %d, %zu bytes) completed %d times", op->kind,
				 op->size, op->completions);
	}
	if (side->received > side->other->begun)
		complain("%u messages came of %u that were sent", side->received, side->other->begun);
	if (may_fail())
		return;
	if (!goes_first(side) && side->received_well < side->other->eager)
		complain("%u messages came of %u that were published", side->received_well,
			 side->other->eager);
	if (counters->quarantines)
		complain("a peer was quarantined");
	if (counters->deaths && !side->other->killed && !has_action(KILL))
		complain("a live peer was declared dead");
}

static void side_close(struct side *side)
{
	at(side, "close");
	atomic_store(&side->me->leaving, true);
	if (side->ep) {
		withdraw(side);
		check_ops(side);
		sc_ep_destroy(side->ep);
		side->ep = NULL;
	}
	atomic_store(&side->me->closed, true);
	if (side->regtab)
		sc_regtab_destroy(side->regtab);
	sc_comp_ring_fini(&side->tx);
	sc_comp_ring_fini(&side->rx);
	sc_process_fini();
}

static uint32_t lent_to(const struct sc_loans *loans, const struct sc_pool *pool)
{
	uint32_t count = 0;

	for (uint16_t buf = loans->first; count < loans->count && buf < pool->count; buf = pool->next[buf])
		count++;
	return count;
}

/*
 * All buffers that were lent to a peer that is gone are back. A connected peer gives buffers back by a word that this
 * side reads only when buffers are short: the buffers that the peer holds are in the ledger.
 */
static void check_pool(struct side *side)
{
	struct sc_pool *pool = &side->ep->pool;
	static struct sc_loans forgotten;
	uint32_t lent = 0;

	at(side, "check the pool");
	if (is_to(side, KEEPS_BUFFER))
		(void)sc_pool_lend(pool, &forgotten, 0);
	sc_list_for (entry, &side->ep->peers) {
		const struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		if (peer->link == SC_LINK_UP)
			lent += lent_to(&peer->bounce.loans, pool);
		else if (peer->bounce.loans.count && !may_fail())
			complain("%u bounce buffers are lent to one that is gone",
				 peer->bounce.loans.count);
		else
			lent += peer->bounce.loans.count;
		lent += lent_to(&peer->taker.answers, pool);
		if (peer->taker.answers.count && peer->feed != SC_FEED_UP && !may_fail())
			complain("%u answers are kept for one that is gone", peer->taker.answers.count);
	}
	if (pool->free_count + lent != pool->have)
		complain("%u bounce buffers of %u are lent to nobody",
			 pool->have - pool->free_count - lent, pool->have);
}

static void keep(enum sabotage what)
{
	int fd = what == KEEPS_DESCRIPTOR ? dup(STDERR_FILENO)
		 : what == KEEPS_NAME ? open("/dev/shm/shmcma-kept", O_CREAT | O_RDWR | O_CLOEXEC, 0600)
				      : open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 ||
	    (what == KEEPS_MAPPING &&
	     (ftruncate(fd, 4096) || mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)))
		complain("nothing to keep: %s", strerror(errno));
	if (what != KEEPS_DESCRIPTOR)
		close(fd);
}

static void check_left(const struct side *side)
{
	int fds = count_fds();

	if (fds != side->fds)
		complain("%d descriptors more than before", fds - side->fds);
	if (has_mapping())
		complain("a mapping is left");
}

static void side_run(void *arg, int index)
{
	static struct side side;

	side.protocol = arg;
	side.index = index;
	side.me = &control->sides[index];
	side.other = &control->sides[!index];
	if (side_open(&side)) {
		if (is_to(&side, DIES))
			raise(SIGKILL);
		while (is_to(&side, HANGS))
			progress(&side);
		if (side_meet(&side)) {
			at(&side, "work");
			side.protocol->work[index](&side);
		}
		if (!goes_first(&side))
			settle(&side);
		else if (index)
			while (!side.received && !other_is_done(&side))
				progress(&side);
		if (other_is_dead(&side))
			survive(&side);
		else if (stays(&side))
			see_off(&side);
		check_pool(&side);
	}
	side_close(&side);
	for (enum sabotage what = KEEPS_DESCRIPTOR; what <= KEEPS_NAME; what++)
		if (is_to(&side, what))
			keep(what);
	check_left(&side);
	at(&side, "scan");
	/* a side that dies in its own scan locks the file that it is about to remove: the survivor scans after it */
	while (!side.other->gone && (!side.other->closed || (is_to_die(!index) && !is_to_die(index))))
		sched_yield();
	for (int i = 0; i < 2; i++) /* a call of the first may fail */
		(void)sc_reap_scan();
	check_left(&side);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void messages_send(struct side *side)
{
	for (int i = 0; !is_last(&side->protocol->messages[i]); i++)
		send_one(side, i, &side->protocol->messages[i]);
}

static size_t messages_size(const struct protocol *protocol)
{
	size_t size = 0;

	for (int i = 0; !is_last(&protocol->messages[i]); i++)
		size += protocol->messages[i].size;
	return size;
}

static void messages_recv_multi(struct side *side)
{
	size_t size = messages_size(side->protocol);
	struct op *op = op_new(side, OP_MULTI, 0, size);
	struct iovec iov = { op->buf, size };
	struct sc_recv recv = { .iov = &iov,
				.iov_count = 1,
				.ignore = UINT64_MAX,
				.context = op,
				.multi_min = 1,
				.flags = SC_TAGGED | SC_RECV_MULTI };

	if (UNTIL_TAKEN(side, sc_rx_recv(side->ep, &recv)))
		complain("a multi-receive was refused");
}

static void messages_recv(struct side *side)
{
	unsigned long patience = QUIET_POLLS;

	at(side, "work: messages that nobody has posted a receive for");
	if (side->protocol->flags & LATE)
		while (side->other->stage < 2 && !side->other->gone)
			progress(side);
	if (side->protocol->flags & LATE)
		while (side->ep->counters.rx_unexpected < side->other->returned &&
		       (!may_fail() || patience--))
			progress(side);
	if (side->protocol->flags & MULTI) {
		messages_recv_multi(side);
		return;
	}
	for (int i = 0; !is_last(&side->protocol->messages[i]); i++)
		recv_one(side, i, &side->protocol->messages[i]);
}

static void work_sender(struct side *side)
{
	if (side->protocol->flags & BACK)
		messages_recv(side);
	messages_send(side);
	go_on(side, 2);
}

static void work_receiver(struct side *side)
{
	messages_recv(side);
	if (side->protocol->flags & BACK)
		messages_send(side);
}

/* Messages of two lines: more than a ring holds, and one of the buffers that it overflows into; and some behind them. */
#define OVERFLOWING 95
#define BEHIND 4
static const struct message overflow_message = { 100, 1, 0 };

/* The other does not look until the ring has overflowed; then it resumes. */
static void work_overflowing(struct side *side)
{
	for (int i = 0; i < OVERFLOWING; i++)
		send_one(side, i, &overflow_message);
	go_on(side, 2);
	if (goes_first(side) || !wait_stage(side, 3))
		return;
	for (int i = 0; i < BEHIND; i++)
		send_one(side, OVERFLOWING + i, &overflow_message);
}

/* As wait_stage(), but it does something else meanwhile. */
static bool look_away(struct side *side, unsigned stage)
{
	while (side->other->stage < stage && !other_is_done(side)) {
		atomic_fetch_add(&side->me->polls, 1);
		sched_yield();
	}
	return side->other->stage >= stage;
}

static void work_overlooking(struct side *side)
{
	(void)look_away(side, 2);
	for (int i = 0; i < OVERFLOWING + BEHIND; i++)
		recv_one(side, i, &overflow_message);
	for (unsigned long patience = QUIET_POLLS; side->received < side->other->returned &&
						   !other_is_done(side) && (!may_fail() || patience--);)
		progress(side);
	go_on(side, 3);
}

/*
 * The sides send in turn, each when the other's last message has come, or will not: each message is written into the
 * buffer that the last was read from. No side polls while the other writes, because polls give buffers back.
 */
static void work_dialogue(struct side *side)
{
	const struct message *messages = side->protocol->messages;

	for (int i = 0; !is_last(&messages[i]); i++) {
		unsigned stage = 2 + (unsigned)i;
		bool first = side->index == 0;

		if (first)
			send_one(side, i, &messages[i]);
		recv_one(side, i, &messages[i]);
		if (first)
			go_on(side, stage);
		if (!look_away(side, stage))
			return;
		for (unsigned long patience = QUIET_POLLS; side->received < side->other->returned &&
							   !side->other->gone &&
							   (!may_fail() || patience--);)
			progress(side);
		if (!first) {
			send_one(side, i, &messages[i]);
			go_on(side, stage);
		}
	}
}

static const struct message dialogue_messages[] = {
	{ 8, 1, 0 },	{ 1000, 1, 0 }, { 4096, 1, 0 }, { 320, 1, 0 },
	{ 3000, 1, 0 }, { 300, 2, 0 },	{ 2000, 1, 0 }, { 10000, 1, 0 },
	{ 8192, 2, 0 }, { 5000, 1, 0 }, { 0 },
};
static const struct message inline_messages[] = {
	{ 8, 1, 0 },   { 100, 1, 0 }, { 200, 3, 0 }, { 150, 1, 0 }, { 200, 1, 0 },
	{ 200, 1, 0 }, { 200, 1, 0 }, { 32, 1, 0 },  { 0 },
};
/* no trial of the ways to fill buffers keeps these from coming back */
static const struct message returning_messages[] = { { 500, 1, 0 }, { 500, 1, 0 }, { 0 } };
static const struct message bounce_messages[] = {
	{ 873, 1, 0 }, { 4096, 1, 0 }, { 3000, 2, 0 }, { 4096, 1, 0 }, { 0 },
};
static const struct message buffers_messages[] = {
	{ 20000, 3, 0 }, { 32768, 1, 0 }, { 32768, 1, 0 }, { 9000, 1, 0 }, { 0 },
};
static const struct message rdv_messages[] = {
	{ 40000, 1, 0 },
	{ 100000, 5, 0 },
	{ 70000, 2, 0 },
	{ 0 },
};
static const struct message share_messages[] = {
	{ 600000, 1, 0 },
	{ 300000, 3, 0 },
	{ 100000, 1, 0 },
	{ 0 },
};
static const struct message ack_messages[] = {
	{ 100, 1, SC_SEND_DELIVERY },
	{ 4000, 1, SC_SEND_DELIVERY },
	{ 50, 1, SC_SEND_DELIVERY | SC_SEND_FENCE },
	{ 5000, 1, SC_SEND_MATCH },
	{ 50000, 1, SC_SEND_DELIVERY | SC_SEND_FENCE },
	{ 0 },
};
static const struct message mixed_messages[] = {
	{ 64, 1, 0 },	 { 5000, 1, 0 }, { 50000, 1, 0 }, { 200, 1, SC_SEND_DELIVERY },
	{ 60000, 2, 0 }, { 0 },
};
static const struct message full_messages[] = {
	/* more lines than a ring has, and more buffers than there are */
	{ 32768, 1, 0 }, { 32768, 1, 0 }, { 32768, 1, 0 }, { 32768, 1, 0 }, { 32768, 1, 0 },
	{ 32768, 1, 0 }, { 32768, 1, 0 }, { 32768, 1, 0 }, { 32768, 1, 0 }, { 32768, 1, 0 },
	{ 32768, 1, 0 }, { 32768, 1, 0 }, { 200, 1, 0 },   { 200, 1, 0 },   { 200, 1, 0 },
	{ 200, 1, 0 },	 { 200, 1, 0 },	  { 200, 1, 0 },   { 200, 1, 0 },   { 200, 1, 0 },
	{ 200, 1, 0 },	 { 200, 1, 0 },	  { 200, 1, 0 },   { 200, 1, 0 },   { 200, 1, 0 },
	{ 200, 1, 0 },	 { 200, 1, 0 },	  { 200, 1, 0 },   { 200, 1, 0 },   { 200, 1, 0 },
	{ 200, 1, 0 },	 { 200, 1, 0 },	  { 200, 1, 0 },   { 200, 1, 0 },   { 200, 1, 0 },
	{ 200, 1, 0 },	 { 200, 1, 0 },	  { 200, 1, 0 },   { 200, 1, 0 },   { 200, 1, 0 },
	{ 200, 1, 0 },	 { 200, 1, 0 },	  { 0 },
};

/* ---- one-sided ------------------------------------------------------------------------------- */

static void rma_one(struct side *side, const struct sc_remote *remote, size_t count, uint32_t flags)
{
	size_t size = 0;
	struct op *op;
	struct iovec iov;
	struct sc_rma rma = { .iov = &iov,
			      .iov_count = 1,
			      .remote = remote,
			      .remote_count = count,
			      .data = 42,
			      .flags = flags };
	int ret;

	for (size_t i = 0; i < count; i++)
		size += remote[i].len;
	op = op_new(side, OP_RMA, 7, size);
	iov = (struct iovec){ op->buf, size };
	if (flags & SC_RMA_WRITE)
		pattern_fill(op->buf, 0, size, 7);
	op->checks = !(flags & SC_RMA_WRITE) && count == 1 &&
		     (remote->key == side->other->keys[0] || !may_fail());
	rma.context = op;
	ret = UNTIL_TAKEN(side, sc_rma_post(side->ep, side->peer, &rma));
	if (ret)
		op_refuse(side, op, ret);
}

static void rma_settle(struct side *side)
{
	while (!all_completed(side))
		progress(side);
}

/* Puts, then gets of the same bytes, of memory in one range and of memory in three. */
static void work_initiator(struct side *side)
{
	uint64_t whole = side->other->keys[0], parts = side->other->keys[1];
	struct sc_remote small = { 0, 100, whole }, middle = { 0, 4000, whole },
			 large = { 0, 100000, whole };
	struct sc_remote split = { 0, 30000, parts };
	struct sc_remote both[2] = { { 110000, 500, whole }, { 31000, 4000, parts } };

	if (!wait_stage(side, 2))
		return;
	whole = small.key = middle.key = large.key = both[0].key = side->other->keys[0];
	split.key = both[1].key = side->other->keys[1];
	rma_one(side, &large, 1, SC_RMA_WRITE);
	rma_one(side, &small, 1, SC_RMA_WRITE | SC_SEND_DATA);
	rma_one(side, &split, 1, SC_RMA_WRITE);
	rma_one(side, both, 2, SC_RMA_WRITE);
	rma_one(side, &middle, 1, SC_RMA_WRITE | SC_SEND_INJECT);
	rma_settle(side);
	rma_one(side, &large, 1, SC_RMA_WRITE | SC_SEND_DATA | SC_SEND_FENCE);
	rma_settle(side);
	rma_one(side, &small, 1, 0);
	rma_one(side, &large, 1, 0);
	rma_one(side, &split, 1, 0);
	rma_one(side, both, 2, 0);
	rma_settle(side);
	go_on(side, 3);
}

static struct sc_reg *reg_open(struct side *side, const struct iovec *ranges, size_t count, uint64_t key,
			       uint32_t flags)
{
	struct sc_reg_attr attr = { .ranges = ranges,
				    .range_count = count,
				    .key = key,
				    .flags = SC_REG_READ | SC_REG_WRITE | flags };
	struct sc_reg *reg = NULL;
	int ret = sc_reg_open(side->regtab, &attr, &reg);

	if (ret && !may_fail())
		complain("a registration failed: %s", strerror(-ret));
	return ret ? NULL : reg;
}

static void reg_close(struct side *side, struct sc_reg *reg)
{
	int ret;

	at(side, "close a registration");
	while (reg && (ret = sc_reg_close(reg))) {
		if (ret != -EBUSY)
			complain("the close of a registration failed: %s", strerror(-ret));
		progress(side);
	}
	at(side, "work");
}

static void work_target(struct side *side)
{
	static uint8_t memory[MEMORY] __attribute__((aligned(64)));
	struct iovec one = { memory, sizeof(memory) / 2 };
	struct iovec three[3] = { { memory + 131072, 10000 },
				  { memory + 150000, 10000 },
				  { memory + 170000, 20000 } };
	struct sc_reg *whole, *parts;

	pattern_fill(memory, 0, sizeof(memory), 7);
	whole = reg_open(side, &one, 1, 0, side->protocol->flags & EVENTS ? SC_REG_EVENT : 0);
	parts = reg_open(side, three, 3, 0x1234, SC_REG_KEY);
	side->me->keys[0] = whole ? sc_reg_key(whole) : 0;
	side->me->keys[1] = parts ? sc_reg_key(parts) : 0;
	go_on(side, 2);
	(void)wait_stage(side, 3);
	if (whole)
		sc_reg_set_cntrs(whole, NULL, NULL);
	reg_close(side, parts);
	reg_close(side, whole);
	if (side->protocol->work[0] == work_initiator && !may_fail() && !has_action(KILL) &&
	    !pattern_is(memory, 0, 100000, 7))
		complain("the memory is not what was put there");
}

/* Without a poll of our own, until the other has come to that stage, or has polled so often. */
static void wait_unpolled(const struct side *side, unsigned stage, unsigned long polls)
{
	unsigned long begin = side->other->polls;

	while (side->other->stage < stage && side->other->polls - begin < polls && !other_is_done(side))
		sched_yield();
}

static void wait_accepted(struct side *side)
{
	while (side->peer->link == SC_LINK_UP && !other_is_done(side) &&
	       sc_load_relaxed_32(&side->peer->tx.consumer->answer) == SC_ABI_PENDING)
		progress(side);
}

/* No registration has it. */
#define NO_KEY 998

/* Small ones, which either side may do, in step: those that the target comes to, and those that it does not. */
static void work_offering_initiator(struct side *side)
{
	struct sc_remote small = { 0, 100, 0 }, middle = { 0, 4000, 0 }, refused = { 0, 100, NO_KEY };

	if (!wait_stage(side, 2))
		return;
	small.key = middle.key = side->other->keys[0];
	rma_one(side, &small, 1, SC_RMA_WRITE);
	rma_settle(side);
	wait_accepted(side);
	side->tolerated = EKEYREJECTED;
	rma_one(side, &refused, 1, SC_RMA_WRITE);
	wait_unpolled(side, UINT_MAX, 3);
	rma_settle(side);
	side->tolerated = 0;
	for (int i = 0; i < 3; i++) {
		rma_one(side, &small, 1, SC_RMA_WRITE | (i ? SC_SEND_DATA : 0));
		rma_one(side, &middle, 1, SC_RMA_WRITE);
		wait_unpolled(side, UINT_MAX, 3);
		rma_settle(side);
		rma_one(side, &small, 1, 0);
		rma_one(side, &middle, 1, 0);
		wait_unpolled(side, UINT_MAX, 3);
		rma_settle(side);
	}
	go_on(side, 3);
	wait_unpolled(side, 3, ULONG_MAX);
	for (int i = 0; i < 4; i++) {
		rma_one(side, &small, 1, i % 2 ? 0 : SC_RMA_WRITE);
		rma_one(side, &middle, 1, i % 2 ? 0 : SC_RMA_WRITE);
		rma_settle(side);
	}
	go_on(side, 4);
}

/* Waits until the daemon's thread has done the puts that are delegated, or can do none, or the target polls. */
static void wait_rescued(const struct side *side)
{
	const struct sc_rescue *rescue = side->peer->delegate.rescue;
	unsigned long begin = side->other->polls;

	while (rescue && side->peer->link == SC_LINK_UP && !other_is_done(side) &&
	       side->other->polls - begin < QUIET_POLLS &&
	       sc_load_acquire_32(&rescue->keeper) != SC_RESCUE_RESTS)
		sched_yield();
}

/* Injected puts that nobody polls for: the daemon's thread does them. */
static void work_injecting_initiator(struct side *side)
{
	struct sc_remote small = { 0, 8, 0 }, middle = { 0, 200, 0 }, large = { 0, 4096, 0 };

	if (!wait_stage(side, 2))
		return;
	small.key = middle.key = large.key = side->other->keys[0];
	rma_one(side, &small, 1, SC_RMA_WRITE);
	rma_settle(side);
	wait_accepted(side);
	go_on(side, 3);
	wait_unpolled(side, 3, ULONG_MAX);
	for (int i = 0; i < 3; i++) {
		side->peer->delegate.pause = 0;
		rma_one(side, &small, 1, SC_RMA_WRITE | SC_SEND_INJECT);
		rma_one(side, i ? &large : &middle, 1, SC_RMA_WRITE | SC_SEND_INJECT);
		if (sc_peer_has_delegated(side->peer))
			wait_rescued(side);
		rma_settle(side);
	}
	go_on(side, 4);
}

/* Registers memory, and tells the other of its key. */
static struct sc_reg *memory_open(struct side *side)
{
	static uint8_t memory[MEMORY] __attribute__((aligned(64)));
	struct iovec one = { memory, sizeof(memory) / 2 };
	struct sc_reg *reg = reg_open(side, &one, 1, 0, 0);

	pattern_fill(memory, 0, sizeof(memory), 7);
	side->me->keys[0] = reg ? sc_reg_key(reg) : 0;
	go_on(side, 2);
	return reg;
}

static void work_offered_target(struct side *side)
{
	struct sc_reg *reg = memory_open(side);

	if (wait_stage(side, 3)) {
		go_on(side, 3);
		wait_unpolled(side, 4, QUIET_POLLS);
		(void)wait_stage(side, 4); /* for the operations that need the polls of this side */
	}
	reg_close(side, reg);
}

/* The message of that number, in a buffer of the target that this side then holds; without it, the put is as others. */
static void recv_held(struct side *side, int number)
{
	recv_one(side, number, &side->protocol->messages[number]);
	for (int i = 0; i < QUIET_POLLS && (int)side->received <= number && !other_is_done(side); i++)
		progress(side);
}

/* Injected puts in a buffer of the target: the daemon's thread does the first, the target takes the second. */
static void work_returning_initiator(struct side *side)
{
	struct sc_remote remote = { 0, 500, 0 };

	if (!wait_stage(side, 2))
		return;
	remote.key = side->other->keys[0];
	rma_one(side, &remote, 1, SC_RMA_WRITE);
	rma_settle(side);
	wait_accepted(side);
	go_on(side, 3);
	for (int i = 0; i < 2; i++) {
		if (!wait_stage(side, (unsigned)i + 3))
			break;
		recv_held(side, i);
		side->peer->delegate.pause = 0;
		rma_one(side, &remote, 1, SC_RMA_WRITE | SC_SEND_INJECT);
		if (!i && sc_peer_has_delegated(side->peer))
			wait_rescued(side);
		rma_settle(side);
		go_on(side, (unsigned)i + 4);
	}
}

static void work_lending_target(struct side *side)
{
	struct sc_reg *reg = memory_open(side);

	if (wait_stage(side, 3)) {
		send_one(side, 0, &side->protocol->messages[0]);
		go_on(side, 3);
		wait_unpolled(side, 4, QUIET_POLLS);
	}
	if (wait_stage(side, 4)) {
		send_one(side, 1, &side->protocol->messages[1]);
		go_on(side, 4);
		(void)wait_stage(side, 5);
	}
	reg_close(side, reg);
}

/* Large ones, which the target copies along as it polls; the second of two waits for the first. */
static void work_assisted_initiator(struct side *side)
{
	struct sc_remote small = { 0, 100, 0 }, all = { 0, MEMORY, 0 };

	if (!wait_stage(side, 2))
		return;
	small.key = all.key = side->other->keys[0];
	rma_one(side, &small, 1, SC_RMA_WRITE);
	rma_settle(side);
	wait_accepted(side);
	for (int i = 0; i < 8; i++) {
		rma_one(side, &all, 1, SC_RMA_WRITE);
		rma_one(side, &all, 1, 0);
		if (i % 2)
			rma_settle(side);
	}
	rma_settle(side);
	go_on(side, 3);
}

static void work_assisting_target(struct side *side)
{
	static uint8_t memory[MEMORY] __attribute__((aligned(64)));
	struct iovec one = { memory, sizeof(memory) };
	struct sc_reg *reg = reg_open(side, &one, 1, 0, 0);

	pattern_fill(memory, 0, sizeof(memory), 7);
	side->me->keys[0] = reg ? sc_reg_key(reg) : 0;
	go_on(side, 2);
	(void)wait_stage(side, 3);
	reg_close(side, reg);
}

/* Registrations that are closed while the peer copies under them. */
static void work_closing_target(struct side *side)
{
	struct sc_reg *reg = memory_open(side);

	(void)wait_stage(side, 2);
	while (side->other->hits[point_named("direct.hazard")] == 0 && !side->other->gone &&
	       side->other->stage < 3)
		progress(side);
	reg_close(side, reg);
	go_on(side, 3);
}

static void work_hasty_initiator(struct side *side)
{
	struct sc_remote large = { 0, 100000, 0 };

	if (!wait_stage(side, 2))
		return;
	large.key = side->other->keys[0];
	go_on(side, 2);
	side->tolerated = EKEYREJECTED; /* as soon as it is closed */
	for (int i = 0; i < 8 && side->other->stage < 3 && !side->other->gone; i++) {
		rma_one(side, &large, 1, 0);
		rma_settle(side);
	}
	go_on(side, 3);
}

/* `size` in bytes */
static void atomic_one(struct side *side, enum sc_atomic_kind kind, enum sc_atomic_code code,
		       enum sc_atomic_type type, size_t size)
{
	static uint64_t operands[64], compare[64];
	struct op *op = op_new(side, OP_RMA, 0, size);
	struct iovec iov = { operands, size }, other = { compare, size }, result = { op->buf, size };
	struct sc_remote remote = { 0, size, side->other->keys[0] };
	struct sc_atomic atomic = { .kind = kind,
				    .type = type,
				    .code = code,
				    .iov = &iov,
				    .iov_count = code != SC_ATOMIC_READ,
				    .compare = &other,
				    .compare_count = kind == SC_ATOMIC_COMPARE,
				    .result = &result,
				    .result_count = kind != SC_ATOMIC_BASE,
				    .remote = &remote,
				    .remote_count = 1,
				    .context = op };
	int ret;

	for (size_t i = 0; i < size / sizeof(*operands); i++)
		operands[i] = 1;
	ret = UNTIL_TAKEN(side, sc_atomic_post(side->ep, side->peer, &atomic));
	if (ret)
		op_refuse(side, op, ret);
}

static void work_atomic_initiator(struct side *side)
{
	if (!wait_stage(side, 2))
		return;
	atomic_one(side, SC_ATOMIC_BASE, SC_SUM, SC_UINT64, 8);
	atomic_one(side, SC_ATOMIC_BASE, SC_SUM, SC_UINT64, 320);
	atomic_one(side, SC_ATOMIC_FETCH, SC_SUM, SC_UINT64, 8);
	atomic_one(side, SC_ATOMIC_FETCH, SC_SUM, SC_UINT64, 480);
	atomic_one(side, SC_ATOMIC_FETCH, SC_ATOMIC_READ, SC_UINT64, 400);
	atomic_one(side, SC_ATOMIC_COMPARE, SC_CSWAP, SC_UINT64, 160);
	atomic_one(side, SC_ATOMIC_FETCH, SC_SUM, SC_UINT128, 64); /* under a lock */
	rma_settle(side);
	go_on(side, 3);
}

/* Of memory that its owner cannot read either. */
#define NOWHERE_KEY 999

/* More registrations than there are buckets, while a peer looks one up. */
#define REGS 1100
static void work_registrar(struct side *side)
{
	static uint8_t memory[MEMORY] __attribute__((aligned(64)));
	static struct sc_reg *regs[REGS];
	struct iovec ranges[2] = { { memory, 65536 }, { memory + 131072, 65536 } };
	void *nowhere = mmap(NULL, MEMORY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec unreadable = { nowhere, MEMORY };
	struct sc_reg *none =
		nowhere == MAP_FAILED ? NULL : reg_open(side, &unreadable, 1, NOWHERE_KEY, SC_REG_KEY);

	pattern_fill(memory, 0, sizeof(memory), 7);
	regs[0] = reg_open(side, ranges, 1, 1000, SC_REG_KEY);
	side->me->keys[0] = 1000;
	go_on(side, 2);
	for (int i = 1; i < REGS; i++) {
		regs[i] = reg_open(side, ranges, i % 8 ? 1 : 2, 1000 + (unsigned)i, SC_REG_KEY);
		if (i % 100 == 0)
			progress(side);
	}
	for (int i = 1; i < REGS; i++)
		reg_close(side, regs[i]);
	(void)wait_stage(side, 3);
	reg_close(side, regs[0]);
	reg_close(side, none);
	if (none)
		munmap(nowhere, MEMORY);
}

static void work_reader(struct side *side)
{
	struct sc_remote small = { 0, 1000, 1000 }, unreadable = { 0, 100000, NOWHERE_KEY };

	if (!wait_stage(side, 2))
		return;
	side->tolerated = EIO;
	rma_one(side, &unreadable, 1, 0);
	rma_settle(side);
	side->tolerated = 0;
	for (int i = 0; i < 20; i++) {
		rma_one(side, &small, 1, 0);
		rma_settle(side);
	}
	go_on(side, 3);
}

/* Until the other has been let in; if it has come to the end of its messages, it may not be. */
static void wait_accept(struct side *side)
{
	unsigned patience = QUIET_POLLS, count = 0;

	while (!is_last(&side->protocol->messages[count]))
		count++;
	while (patience && side->ep->counters.accepts == 0 && !side->other->gone) {
		patience -= side->other->begun == count || other_has_settled(side);
		progress(side);
	}
}

/* ---- coming and going ------------------------------------------------------------------------ */

/* Messages in bounce buffers for one that has not looked yet, then the end. */
static void work_leaver(struct side *side)
{
	messages_send(side);
}

static void work_latecomer(struct side *side)
{
	at(side, "wait for the other to leave");
	while (!side->other->closed && !side->other->gone)
		sched_yield();
	if (sc_reap_scan() < 0 && !may_fail()) /* this side has unread messages in the segment: it stays */
		complain("a scan failed");
	messages_recv(side);
}

/* It closes at the same time, and has not looked at the messages. */
static void work_other_leaver(struct side *side)
{
	at(side, "wait until the other leaves");
	while (!side->other->leaving && !side->other->gone)
		sched_yield();
}

/* Polls until the endpoint has looked whether the other lives, after which it protects that one's segment (guard.c). */
static void watch_other(struct side *side)
{
	if (!side->ep)
		return;
	side->ep->watch_mask = 1023; /* that of an endpoint without the thread: it looks sooner */
	for (int polls = 0; polls < QUIET_POLLS; polls++)
		progress(side);
}

/*
 * A second endpoint of the same process connects too, to a segment that is protected by then; and a fifth that finds no
 * slot (of 4).
 */
static void work_crowd(struct side *side)
{
	struct sc_ep *more[4] = { NULL };
	uint8_t byte = 0;
	struct iovec iov = { &byte, 1 };
	struct sc_send send = { .iov = &iov, .iov_count = 1, .flags = SC_SILENT };

	messages_send(side);
	watch_other(side);
	for (int i = 0; i < 4; i++) {
		struct sc_peer *peer;
		int ret = ep_open(side, NULL, &more[i]);

		if (!ret)
			ret = sc_peer_get(more[i], side->other->address, &peer);
		if (!ret)
			ret = sc_tx_send(more[i], peer, &send);
		if (!ret && i == 3 && !may_fail())
			complain("a fifth peer was let into four slots");
		progress(side);
	}
	for (int i = 0; i < 4; i++)
		if (more[i])
			sc_ep_destroy(more[i]);
}

/* One wants a service name that another has, then finds that one by it. */
static void work_client(struct side *side)
{
	char address[SC_ADDR_SIZE];
	struct sc_ep *rival = NULL;
	int ret;

	if (!wait_stage(side, 1))
		return;
	ret = ep_open(side, SERVICE, &rival);
	if (!ret && !side->other->gone && !side->other->closed && !has_action(KILL) && !may_fail())
		complain("a service was taken from a live process");
	if (rival)
		sc_ep_destroy(rival);
	ret = sc_addr_resolve(SC_ADDR_PREFIX SERVICE, address);
	if (ret)
		check_refusal(side, ret);
	else if (strcmp(address, side->other->address))
		complain("the service is of another");
	messages_send(side); /* to what has just been found */
	watch_other(side);
}

#define DIRECTORY "fault-directory"
#define ADDRESSES 8

/* As the library's warning asks, if unlink(2) fails; the name of a live process is reaped by no other. */
static void remove_by_hand(const char *directory)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];

	if (sc_addr_directory_file(directory, name))
		complain("no name of a directory");
	sc_shmfile_path(name, path);
	(void)unlink(path);
}

/* Writes a list of addresses while the other process reads it. */
static void work_lister(struct side *side)
{
	struct sc_directory *directory;
	int ret = sc_directory_create(DIRECTORY, ADDRESSES, &directory);

	if (ret && !may_fail())
		complain("no directory: %s", strerror(-ret));
	go_on(side, 2);
	if (ret)
		return;
	for (uint32_t i = 0; i < ADDRESSES; i++) {
		if (sc_directory_put(directory, i, side->me->address))
			complain("an address does not fit into the directory");
		progress(side);
	}
	sc_directory_del(directory, 0);
	go_on(side, 3);
	(void)wait_stage(side, 3);
	sc_directory_close(directory);
	if (may_fail())
		remove_by_hand(DIRECTORY);
}

/* Returns how many addresses the directory has. Each is whole. */
static uint32_t addresses_check(const struct side *side, const struct sc_directory *directory)
{
	uint32_t end = sc_directory_count(directory), count = 0;
	char address[SC_ADDR_SIZE];

	for (uint32_t i = 0; i < end; i++) {
		if (!sc_directory_get(directory, i, address))
			continue;
		if (strcmp(address, side->other->address))
			complain("an address in the directory is not the one that was written");
		count++;
	}
	return count;
}

static void work_list_reader(struct side *side)
{
	struct sc_directory *directory;
	int ret;

	if (!wait_stage(side, 2))
		return;
	ret = sc_directory_open(DIRECTORY, &directory);
	if (ret) {
		check_refusal(side, ret);
		go_on(side, 3);
		return;
	}
	while (side->other->stage < 3 && !other_is_done(side)) {
		(void)addresses_check(side, directory);
		progress(side);
	}
	if (addresses_check(side, directory) != ADDRESSES - 1 && side->other->stage == 3)
		complain("the directory does not have the addresses that are left");
	sc_directory_close(directory);
	go_on(side, 3);
}

/* Two have claimed a slot of ours, and no more. That of the one that has ended is free again. */
static void reclaim_from(struct side *side, pid_t ended)
{
	uint64_t *dead = sc_seg_claims(side->ep->seg) + side->ep->seg->header.slot_count - 1;
	uint64_t *alive = dead - 1, claim = SC_ABI_TICKET(getpid(), 0) | SC_ABI_CLAIMED;

	sc_store_release_64(alive, claim);
	sc_store_release_64(dead, SC_ABI_TICKET(ended, 0) | SC_ABI_CLAIMED);
	sc_add_acq_rel_32(&side->ep->bell.rung, 1);
	for (int i = 0; i < QUIET_POLLS && sc_load_acquire_64(dead); i++)
		progress(side);
	if (sc_load_acquire_64(dead) && !may_fail())
		complain("the slot of a dead process is lost: claim %" PRIx64
			 ", pid %d, which has %sended",
			 sc_load_acquire_64(dead), (int)ended, sc_host_has_ended(ended, 0) ? "" : "not ");
	if (sc_load_acquire_64(alive) != claim && !may_fail())
		complain("the slot of a live process was taken from it");
	sc_store_release_64(alive, 0);
}

static void pass_over(const struct sc_reap_file *file, void *arg)
{
	(void)file, (void)arg;
}

static const char *left_service(const struct side *side)
{
	return side->index ? "fault-left-1" : "fault-left-0";
}

/* A process that makes an endpoint with a service, and dies. It stays a zombie until it is waited for. */
static pid_t leave_endpoint(struct side *side, void (*last)(struct side *side, const struct sc_ep *ep))
{
	siginfo_t info = { 0 };
	int index = my_side;
	pid_t child;

	my_side = -1; /* for the child, which begins with what the library does at fork(2) */
	child = fork();
	if (child < 0)
		complain("fork");
	if (!child) {
		struct sc_ep_attr attr = { .tx_size = 16, .rx_size = 16, .service = left_service(side) };
		struct sc_ep *ep;

		sc_config_init(&attr.config);
		if (sc_ep_create(&attr, &ep))
			_exit(1);
		if (last)
			last(side, ep);
		_exit(0);
	}
	my_side = index;
	while (waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) && errno == EINTR)
		;
	if (info.si_status)
		complain("a child has made no endpoint");
	return child;
}

static void survey(const struct sc_survey_seg *seg, void *arg)
{
	struct sc_counters counters;

	(void)arg;
	(void)sc_survey_counters(seg, &counters);
}

/* Both sides remove the files of a dead process. */
static void work_reaper(struct side *side)
{
	pid_t child = leave_endpoint(side, NULL);
	struct sc_leftovers leftovers = { 0 };

	reclaim_from(side, child);
	(void)sc_reap_list(pass_over, NULL);
	/* the daemon's thread looks twice a second, and few schedules take so long */
	(void)sc_leftover_look(&leftovers);
	sc_leftover_fini(&leftovers);
	/* the library itself asks only if sc_config.crowd says so */
	(void)sc_oversub_is_here();
	messages_send(side);
	/* a reader can read the segment of a peer that it has not let in only as long as that has its name */
	wait_accept(side);
	(void)sc_survey_list(survey, NULL);
	at(side, "reap");
	if (sc_reap_scan() < 0 && !may_fail())
		complain("a scan failed");
	at(side, "work");
	for (int i = 0; !is_last(&side->protocol->messages[i]); i++)
		recv_one(side, i, &side->protocol->messages[i]);
	(void)waitpid(child, NULL, 0);
}

static void segment_path(const char *address, char path[SC_SHMFILE_PATH_MAX])
{
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;

	if (sc_addr_parse(address, &parts))
		complain("an endpoint without address");
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
}

static void service_path(const char *service, char path[SC_SHMFILE_PATH_MAX])
{
	char name[SC_ADDR_NAME_MAX];

	sc_addr_service_file(service, name);
	sc_shmfile_path(name, path);
}

static void own_name(const struct side *side, char path[SC_SHMFILE_PATH_MAX])
{
	segment_path(sc_ep_address(side->ep), path);
}

/* Names that the library does not look at; should one be left, the next run takes it. */
#define ASIDE_SEGMENT "/dev/shm/fault-aside-segment"
#define ASIDE_SERVICE "/dev/shm/fault-aside-service"

/* The last thing a process does: nobody finds its files until the other side's reaper holds the lock of one. */
static void put_aside(struct side *side, const struct sc_ep *ep)
{
	char segment[SC_SHMFILE_PATH_MAX], service[SC_SHMFILE_PATH_MAX];

	memcpy(side->me->left, ep->seg->header.address, sizeof(side->me->left));
	segment_path(side->me->left, segment);
	service_path(left_service(side), service);
	if (rename(segment, ASIDE_SEGMENT) || rename(service, ASIDE_SERVICE))
		_exit(1);
}

/* As a reaper takes it; one that had found the file by its first name may have it for a moment. */
static int hold_lock(const char *path)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SC_ABI_LIFE_BYTE, .l_len = 1
	};
	int fd = open(path, O_RDWR | O_CLOEXEC);

	while (fd >= 0 && fcntl(fd, F_SETLKW, &lock))
		if (errno != EINTR)
			complain("no lock: %s", strerror(errno));
	if (fd < 0)
		complain("no file to hold: %s", strerror(errno));
	return fd;
}

/*
 * The file is another process's, and this one has it open without a lock: so it may be opened once more, unless the thread
 * of the other side, which looks twice a second, has removed it meanwhile.
 */
static void open_twice(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC), again;
	struct stat st;

	again = sc_otherfile_open(strrchr(path, '/') + 1, &st);
	if (again >= 0)
		close(again);
	else if (!access(path, F_OK) && !may_fail())
		complain("a file that has been opened cannot be opened again: %s", strerror(-again));
	close(fd);
}

/* A reaper has taken the lock of a dead process's segment, and is slow: the other looks at the files of the dead. */
static void work_slow_reaper(struct side *side)
{
	char segment[SC_SHMFILE_PATH_MAX], service[SC_SHMFILE_PATH_MAX];
	pid_t child = leave_endpoint(side, put_aside);
	int fd;

	segment_path(side->me->left, segment);
	service_path(left_service(side), service);
	sc_otherfiles_hold(); /* as every reaper: its lock goes with any descriptor of the file */
	fd = hold_lock(ASIDE_SEGMENT);
	if (rename(ASIDE_SEGMENT, segment) || rename(ASIDE_SERVICE, service))
		complain("the names of the dead cannot be restored: %s", strerror(errno));
	open_twice(service);
	go_on(side, 2);
	while (side->other->stage < 3 && !other_is_done(side))
		sched_yield();
	if (access(segment, F_OK))
		complain("another removed a file that a reaper holds");
	close(fd);
	sc_otherfiles_release();
	(void)waitpid(child, NULL, 0);
}

/* The lock is held, and yet its owner is dead; the service, whose lock is free, goes, the segment stays. */
static void work_second_reaper(struct side *side)
{
	char service[SC_SHMFILE_PATH_MAX], address[SC_ADDR_SIZE];

	if (!wait_stage(side, 2))
		return;
	if (!sc_owner_left(side->other->left) && !has_action(KILL) && !may_fail())
		complain("a dead process is taken for alive, as a reaper holds its lock");
	if (sc_addr_resolve(side->other->left, address) != -ECONNREFUSED && !may_fail())
		complain("the address of a dead process is not refused");
	if (sc_reap_scan() < 0 && !may_fail())
		complain("a scan failed");
	service_path("fault-left-0", service);
	if (!access(service, F_OK) && !may_fail())
		complain("the service of a dead process is left, as a reaper holds its lock");
	go_on(side, 3);
}

/* Closes the read end of the thread's pipe, as closefrom(3) does first: it must end all the same, without SIGPIPE. */
static void close_pipe(void)
{
	for (int fd = 3; fd < 64; fd++) {
		char path[32], target[16] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		/* a pipe of the process that has started the test has no FD_CLOEXEC */
		if (readlink(path, target, sizeof(target) - 1) > 0 && !strncmp(target, "pipe:", 5) &&
		    fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
			close(fd);
	}
}

/* Two processes measure and store the cost of copies; if one dies meanwhile, the next one does it. */
static bool calibration_is_known(void)
{
	struct sc_calibration calibration;
	int ret = sc_calibration_load(&calibration);

	if (ret && ret != -ENOENT && !may_fail())
		complain("the calibration cannot be read: %s", strerror(-ret));
	return !ret;
}

static void work_calibrate(struct side *side)
{
	static const struct sc_calibration some = { 1000, 100, 50, 150, 0, SC_CALIBRATION_ROUNDS };
	int ret;

	at(side, "calibrate");
	(void)sc_calibration_make();
	(void)calibration_is_known();
	ret = sc_calibration_store(&some);
	if (ret && ret != -EEXIST && !may_fail())
		complain("the calibration cannot be written: %s", strerror(-ret));
	go_on(side, 2);
	at(side, "end calibration");
	(void)wait_stage(side, 2);
	(void)sc_calibration_make();
	if (!calibration_is_known() && !may_fail())
		complain("nobody can calibrate any more");
}

/* A process that has lost its life lock by a slip of the application's is not reaped. */
static void work_careless(struct side *side)
{
	char path[SC_SHMFILE_PATH_MAX];

	messages_send(side);
	own_name(side, path);
	if (!wait_stage(side, 2))
		return;
	close(open(path, O_RDONLY | O_CLOEXEC));
	go_on(side, 2);
	(void)wait_stage(side, 3);
	if (side->other->stage >= 3 && access(path, F_OK) && !may_fail())
		complain("the name of a live process was removed");
	/* and one whose descriptor is gone finds the file by its name */
	close(side->ep->seg->file.fd);
	(void)sc_shmfile_keep_all();
	close_pipe();
}

static void work_careful(struct side *side)
{
	unsigned long until;

	messages_recv(side);
	wait_accept(side);
	go_on(side, 2);
	if (!wait_stage(side, 2))
		return;
	if (sc_reap_scan() > 0 && !has_action(KILL) && !may_fail())
		complain("the name of a live process was removed");
	until = side->me->polls + QUIET_POLLS;
	while (side->me->polls < until)
		progress(side);
	go_on(side, 3);
}

/* One whose name is gone (logind's RemoveIPC), and whose segment is known by it alone. */
static void work_nameless(struct side *side)
{
	char path[SC_SHMFILE_PATH_MAX];

	messages_send(side);
	own_name(side, path);
	if (!wait_stage(side, 2))
		return;
	unlink(path);
	go_on(side, 2);
	(void)wait_stage(side, 3);
}

static void work_without_descriptor(struct side *side)
{
	unsigned long until;

	messages_recv(side);
	wait_accept(side);
	go_on(side, 2);
	/* now only the process itself tells that it lives, and whatever call fails, it does not count as dead */
	if (wait_stage(side, 2) && side->peer->seg && sc_peer_is_dead(side->peer) && !has_action(KILL))
		complain("a live peer without a name is taken for dead");
	until = side->me->polls + QUIET_POLLS;
	while (side->me->polls < until)
		progress(side);
	go_on(side, 3);
}

/* ---- sleep ----------------------------------------------------------------------------------- */

#define NAP_NS 100000000 /* at most: after calls that fail there may be no process to wake it */

/*
 * Sleeps as a process that waits for a message does, on its endpoint alone or on another futex too. The other side is
 * told when it may write.
 */
static void sleep_until_woken(struct side *side, int count, unsigned stage)
{
	static uint32_t another;
	struct sc_sleep sleeps[2] = { { NULL, 0 }, { &another, 0 } };
	struct timespec now;
	int64_t limit;

	do {
		progress(side);
		clock_gettime(CLOCK_MONOTONIC, &now);
		limit = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + NAP_NS;
	} while (sc_ep_rest(side->ep, &sleeps[0], &limit));
	go_on(side, stage);
	(void)sc_sleep(sleeps, count, limit);
	sc_ep_rise(side->ep);
	progress(side);
}

static void work_sleeper(struct side *side)
{
	messages_recv(side);
	for (int i = 0; !is_last(&side->protocol->messages[i]); i++)
		sleep_until_woken(side, 1 + i % 2, 2 + (unsigned)i);
}

/* Until this process's thread watches the other, which is some time after they connect; or an injection has fired. */
static void be_watching(struct side *side)
{
	while (!has_fired_any() && !pidfds_count(0, 0) && !other_is_done(side)) {
		atomic_fetch_add(&side->me->polls, 1);
		usleep(1000);
	}
}

static void work_waker(struct side *side)
{
	for (int i = 0; !is_last(&side->protocol->messages[i]); i++) {
		if (!wait_stage(side, 2 + (unsigned)i))
			return;
		send_one(side, i, &side->protocol->messages[i]);
		if (!i)
			be_watching(side);
	}
}

static const struct message waking_messages[] = {
	{ 8, 1, 0 }, { 5000, 1, 0 }, { 50000, 1, 0 }, { 8, 1, 0 }, { 0 },
};

/* ---- the list -------------------------------------------------------------------------------- */

#define MESSAGES                                                                                          \
	{                                                                                                 \
		"sender", "receiver"                                                                      \
	}
#define TRAFFIC                                                                                           \
	{                                                                                                 \
		work_sender, work_receiver                                                                \
	}

static const struct protocol protocols[] = {
	{ "inline", MESSAGES, 0, TRAFFIC, inline_messages, { 0 } },
	{ "inline, no standard input", MESSAGES, NO_INPUT, TRAFFIC, inline_messages, { 0 } },
	{ "bounce", MESSAGES, FIRST_0, TRAFFIC, bounce_messages, { 0 } },
	{ "dialogue", { "one", "other" }, 0, { work_dialogue, work_dialogue }, dialogue_messages, { 0 } },
	{ "several buffers", MESSAGES, FIRST_1, TRAFFIC, buffers_messages, { 0 } },
	{ "full ring and pool", MESSAGES, 0, TRAFFIC, full_messages, { 0 } },
	{ "overflow", MESSAGES, 0, { work_overflowing, work_overlooking }, NULL, { 0 } },
	{ "overflow, sender first",
	  MESSAGES,
	  FIRST_0,
	  { work_overflowing, work_overlooking },
	  NULL,
	  { 0 } },
	{ "rendezvous", MESSAGES, UNSHARED, TRAFFIC, rdv_messages, { 0 } },
	{ "shared rendezvous", MESSAGES, 0, TRAFFIC, share_messages, { 0 } },
	/* however the system schedules the two, the sender gets its share */
	{ "shared rendezvous, receiver slow",
	  MESSAGES,
	  0,
	  TRAFFIC,
	  share_messages,
	  { 1, "xfer.taken", STOP, 0 } },
	{ "pulled rendezvous", MESSAGES, NO_CMA, TRAFFIC, rdv_messages, { 0 } },
	{ "acknowledged", MESSAGES, UNSHARED, TRAFFIC, ack_messages, { 0 } },
	{ "multi-receive", MESSAGES, UNSHARED | MULTI, TRAFFIC, mixed_messages, { 0 } },
	{ "unexpected", MESSAGES, UNSHARED | LATE, TRAFFIC, mixed_messages, { 0 } },
	{ "exchange", { "one", "other" }, BACK, TRAFFIC, mixed_messages, { 0 } },
	{ "one-sided", { "initiator", "target" }, 0, { work_initiator, work_target }, NULL, { 0 } },
	{ "one-sided, counted",
	  { "initiator", "target" },
	  EVENTS,
	  { work_initiator, work_target },
	  NULL,
	  { 0 } },
	{ "one-sided, strict",
	  { "initiator", "target" },
	  STRICT,
	  { work_initiator, work_target },
	  NULL,
	  { 0 } },
	{ "one-sided, no CMA",
	  { "initiator", "target" },
	  NO_CMA,
	  { work_initiator, work_target },
	  NULL,
	  { 0 } },
	{ "atomics", { "initiator", "target" }, 0, { work_atomic_initiator, work_target }, NULL, { 0 } },
	{ "closed under a copy",
	  { "initiator", "target" },
	  0,
	  { work_hasty_initiator, work_closing_target },
	  NULL,
	  { 0 } },
	{ "dead in a copy",
	  { "initiator", "target" },
	  0,
	  { work_hasty_initiator, work_closing_target },
	  NULL,
	  { 0, "direct.hazard", KILL, 0 } },
	/* stopped when it has accepted, it does not come to what is offered */
	{ "one-sided, target slow",
	  { "initiator", "target" },
	  0,
	  { work_initiator, work_target },
	  NULL,
	  { 1, "peer.answered", STOP, 0 } },
	{ "one-sided, offered",
	  { "initiator", "target" },
	  0,
	  { work_offering_initiator, work_offered_target },
	  NULL,
	  { 0 } },
	{ "one-sided, injected",
	  { "initiator", "target" },
	  0,
	  { work_injecting_initiator, work_offered_target },
	  NULL,
	  { 0 } },
	{ "one-sided, in the target's buffer",
	  { "initiator", "target" },
	  0,
	  { work_returning_initiator, work_lending_target },
	  returning_messages,
	  { 0 } },
	{ "one-sided, assisted",
	  { "initiator", "target" },
	  0,
	  { work_assisted_initiator, work_assisting_target },
	  NULL,
	  { 0 } },
	{ "registrations", { "reader", "registrar" }, 0, { work_reader, work_registrar }, NULL, { 0 } },
	{ "close with messages unread",
	  { "leaver", "latecomer" },
	  FIRST_0,
	  { work_leaver, work_latecomer },
	  bounce_messages,
	  { 0 } },
	/* the other has closed before the leaver says that messages are unread */
	{ "both close with messages unread",
	  { "leaver", "other leaver" },
	  FIRST_0 | FIRST_1,
	  { work_leaver, work_other_leaver },
	  bounce_messages,
	  { 0, "peer.closed", STOP, 0 } },
	{ "more peers than slots",
	  { "connecting", "accepting" },
	  0,
	  { work_crowd, work_receiver },
	  inline_messages,
	  { 0 } },
	{ "service",
	  { "holder", "client" },
	  SERVED,
	  { work_receiver, work_client },
	  inline_messages,
	  { 0 } },
	{ "directory", { "lister", "reader" }, 0, { work_lister, work_list_reader }, NULL, { 0 } },
	{ "asleep", { "waker", "sleeper" }, 0, { work_waker, work_sleeper }, waking_messages, { 0 } },
	{ "reaping", { "one", "other" }, 0, { work_reaper, work_reaper }, bounce_messages, { 0 } },
	{ "reaping what another reaps",
	  { "slow reaper", "second reaper" },
	  0,
	  { work_slow_reaper, work_second_reaper },
	  NULL,
	  { 0 } },
	{ "calibration", { "one", "other" }, 0, { work_calibrate, work_calibrate }, NULL, { 0 } },
	{ "lost lock",
	  { "careless", "reaper" },
	  0,
	  { work_careless, work_careful },
	  bounce_messages,
	  { 0 } },
	{ "lost name",
	  { "nameless", "without descriptor" },
	  0,
	  { work_nameless, work_without_descriptor },
	  bounce_messages,
	  { 1, "seg.limit", FAIL, EINVAL } },
};
#define PROTOCOLS (sizeof(protocols) / sizeof(protocols[0]))

#endif
