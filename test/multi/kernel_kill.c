/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * kernel_kill.c: a worker of test_kill: traffic of all kinds with every other worker, any of which may end
 * at any instruction, and be stopped for any time.
 *
 * The identity of a message (sender, incarnation, class, number) is its tag or its immediate data, and
 * gives its length, call and bytes, so the receiver can check all of it. Of one-sided operations:
 * - a get from the other's gallery must bring that incarnation's pattern;
 * - a put into our piece of the other's yard is read back and compared;
 * - a fetching add to our word in the other's yard must return one more than the last time.
 *
 * The test demands of the library, for each incarnation of each other worker:
 * - an operation fails, or is refused, only if the conductor has doomed the other (a false death else), and
 *   with one of a few errors;
 * - each operation that was accepted completes exactly once; an operation that was in flight when the other ended
 *   completes within the test's patience; counters count the same;
 * - once an operation has failed because the other ended, every later one is refused at once;
 * - messages whose sends had completed before the sender ended arrive, none twice; those of a sender that we
 *   had never sent anything to may be lost, if another removed its memory before we had seen it;
 * - descriptors and mappings stay in proportion to the number of living workers.
 */
#define _GNU_SOURCE 1
#include "kill.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define BUDGET_MAX 10000000 /* ns of processor time that are saved up */

#define SMALL_ROOM ((size_t)64 << 10)
#define LARGE_ROOM ((size_t)1 << 20)
#define SMALL_FLIGHTS 24
#define LARGE_FLIGHTS 3
#define IN_FLIGHT_MAX 10 /* to one peer, so that one that is stopped does not take all */

#define GALLERY ((size_t)1 << 20)
#define PIECE ((size_t)64 << 10)
#define PIECE_INCARNATIONS 8 /* in turn: what a dead one still has under way meets nobody's */
#define PIECES (KILL_SLOTS * PIECE_INCARNATIONS)
#define YARD_WORDS (PIECES * PIECE)
#define YARD (YARD_WORDS + PIECES * sizeof(uint64_t))

/* Of messages; all but the last are tagged. */
enum class {
	SMALL = 1, /* up to what goes through bounce buffers */
	LARGE,
	LATE,	  /* received after a while: mostly unexpected */
	DIRECTED, /* received from this peer only */
	PLAIN,	  /* into buffers for many */
	CLASSES
};
#define CLASS_SHIFT 60
#define SLOT_SHIFT 54
#define INCARNATION_SHIFT 30
#define WINDOW 4096 /* numbers of a class from one sender that may be apart */

#define SMALL_RECEIVES 12
#define LARGE_RECEIVES 3
#define LATE_RECEIVES 8
#define MULTI_RECEIVES 3
#define MULTI_ROOM ((size_t)512 << 10)

enum kind { SEND, PUT, READ_BACK, GET, ADD };

struct partner;

/* The context of an operation points to it. */
struct op {
	struct fi_context2 context; /* first */
	bool pending, receives;
};

struct flight {
	struct op op; /* first */
	struct flight *next;
	enum kind kind;
	struct partner *partner;
	uint64_t id, posted_at;
	size_t len, at; /* `at`: in the gallery */
	uint8_t *buf;
	bool large;
};

struct receive {
	struct op op; /* first */
	enum class class;
	uint8_t *buf;
	size_t room;
};

/* Messages of one incarnation of a slot. */
struct mail {
	uint64_t incarnation, count;
	uint64_t newest[CLASSES];
	uint64_t seen[CLASSES][WINDOW / 64];
};

/* One incarnation of another worker, from its insertion to its burial. */
struct partner {
	struct partner *next;
	int slot;
	uint64_t incarnation;
	fi_addr_t addr;
	struct kill_place gallery, yard;
	unsigned in_flight;
	uint64_t numbers[CLASSES];
	bool putting, adding, adds_known;
	uint64_t adds;
	struct receive directed;
	bool accepted, failed, refused; /* an operation to it */
	bool sampled;
	uint64_t error_at, error_posted_at;
	uint64_t error_polled_at; /* the last poll before it that had nothing */
	uint64_t ended_at;	  /* when that was seen here */
};

static struct worker {
	struct kill_board *board;
	struct kill_slot *own;
	int slot;
	uint64_t incarnation;
	struct mt_random random;

	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_cntr *sends, *reads, *writes;
	struct fid_ep *ep;
	uint64_t posted_sends, posted_reads, posted_writes, posted_injects, failed_injects;

	uint8_t *gallery, *yard;
	struct fid_mr *gallery_mr, *yard_mr;

	struct flight flights[SMALL_FLIGHTS + LARGE_FLIGHTS];
	struct flight *idle[2], **idle_end[2]; /* small, large: first in, first out */
	struct receive receives[SMALL_RECEIVES + LARGE_RECEIVES + LATE_RECEIVES + MULTI_RECEIVES];
	struct partner *partners;	     /* all that are not buried */
	struct partner *current[KILL_SLOTS]; /* the newest that we know */
	struct mail *mail;		     /* [KILL_SLOTS][KILL_KEPT] */
	unsigned idle_polls;
	int64_t budget;			/* of processor time, ns; see is_over_budget() */
	uint64_t budget_at, budget_cpu; /* at that time, with so much used */
	uint64_t polled_at;		/* when the last poll that had nothing began */
	int fds, maps;			/* before there were peers */
	long rss;
} w;

uint64_t kill_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t processor_time(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static uint64_t patience_ns(void)
{
	return (uint64_t)(w.board->patience * 1e9);
}

static void add(_Atomic uint64_t *word, uint64_t more)
{
	atomic_fetch_add_explicit(word, more, memory_order_relaxed);
}

static const char *partner_name(const struct partner *partner)
{
	static char text[40];

	snprintf(text, sizeof(text), "worker %d.%llu", partner->slot,
		 (unsigned long long)partner->incarnation);
	return text;
}

static bool is_doomed(const struct partner *partner)
{
	return atomic_load(&w.board->slots[partner->slot].doomed) >= partner->incarnation;
}

static bool has_ended(const struct partner *partner)
{
	return atomic_load(&w.board->slots[partner->slot].ended) >= partner->incarnation;
}

/* ---- what a message must be ------------------------------------------------------------------ */

static uint64_t message_id(int slot, uint64_t incarnation, enum class class, uint64_t number)
{
	return (uint64_t) class << CLASS_SHIFT | (uint64_t)slot << SLOT_SHIFT |
	       (incarnation & 0xffffff) << INCARNATION_SHIFT | (number & 0x3fffffff);
}

static enum class class_of(uint64_t id) { return (enum class)(id >> CLASS_SHIFT); }

static size_t message_size(uint64_t id)
{
	/* around what is inline, one bounce buffer, several, a rendezvous that one or both copy */
	static const size_t limits[] = { 1, 9, 201, 873, 4097, 32769, SMALL_ROOM };
	struct mt_random random = { id };

	if (class_of(id) == LARGE)
		return SMALL_ROOM + mt_below(&random, LARGE_ROOM - SMALL_ROOM + 1);
	return mt_below(&random, limits[mt_below(&random, sizeof(limits) / sizeof(limits[0]))]);
}

static uint64_t gallery_seed(int slot, uint64_t incarnation)
{
	return mt_hash((uint64_t)slot << 40 | incarnation);
}

/* ---- opening --------------------------------------------------------------------------------- */

static struct fi_info *get_info(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	mt_require(hints, "fi_allocinfo");
	hints->caps =
		FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->data_progress = w.board->automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup("shmcma");
	mt_must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	fi_freeinfo(hints);
	return info;
}

static struct fid_cntr *bind_counter(uint64_t events)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE };
	struct fid_cntr *cntr;

	mt_must(fi_cntr_open(w.domain, &attr, &cntr, NULL));
	mt_must(fi_ep_bind(w.ep, &cntr->fid, events));
	return cntr;
}

static void open_endpoint(void)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = KILL_SLOTS };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC, .size = 4096 };
	size_t multi_min = SMALL_ROOM;

	mt_doing("opening");
	w.info = get_info();
	mt_must(fi_fabric(w.info->fabric_attr, &w.fabric, NULL));
	mt_must(fi_domain(w.fabric, w.info, &w.domain, NULL));
	mt_must(fi_av_open(w.domain, &av, &w.av, NULL));
	mt_must(fi_cq_open(w.domain, &cq, &w.cq, NULL));
	mt_must(fi_endpoint(w.domain, w.info, &w.ep, NULL));
	mt_must(fi_ep_bind(w.ep, &w.av->fid, 0));
	mt_must(fi_ep_bind(w.ep, &w.cq->fid, FI_TRANSMIT | FI_RECV));
	w.sends = bind_counter(FI_SEND);
	w.reads = bind_counter(FI_READ);
	w.writes = bind_counter(FI_WRITE);
	mt_must(fi_setopt(&w.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &multi_min,
			  sizeof(multi_min)));
	mt_must(fi_enable(w.ep));
}

static struct fid_mr *expose(uint8_t *memory, size_t size, uint64_t access, struct kill_place *place)
{
	struct fid_mr *mr;

	mt_must(fi_mr_reg(w.domain, memory, size, access, 0, 0, 0, &mr, NULL));
	place->key = fi_mr_key(mr);
	place->addr = w.info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory : 0;
	return mr;
}

static void give_back(struct flight *flight)
{
	flight->next = NULL;
	flight->partner = NULL;
	*w.idle_end[flight->large] = flight;
	w.idle_end[flight->large] = &flight->next;
}

static struct flight *take_flight(bool large)
{
	struct flight *flight = w.idle[large];

	if (!flight)
		return NULL;
	w.idle[large] = flight->next;
	if (!flight->next)
		w.idle_end[large] = &w.idle[large];
	return flight;
}

static void make_flights(void)
{
	w.idle_end[0] = &w.idle[0];
	w.idle_end[1] = &w.idle[1];
	for (int i = 0; i < SMALL_FLIGHTS + LARGE_FLIGHTS; i++) {
		struct flight *flight = &w.flights[i];

		flight->large = i >= SMALL_FLIGHTS;
		flight->buf = malloc(flight->large ? LARGE_ROOM : SMALL_ROOM);
		mt_require(flight->buf, "no memory");
		give_back(flight);
	}
}

static void make_receives(void)
{
	for (size_t i = 0; i < sizeof(w.receives) / sizeof(w.receives[0]); i++) {
		struct receive *receive = &w.receives[i];

		receive->op.receives = true;
		receive->class = i < SMALL_RECEIVES				       ? SMALL
				 : i < SMALL_RECEIVES + LARGE_RECEIVES		       ? LARGE
				 : i < SMALL_RECEIVES + LARGE_RECEIVES + LATE_RECEIVES ? LATE
										       : PLAIN;
		receive->room = receive->class == LARGE	  ? LARGE_ROOM
				: receive->class == PLAIN ? MULTI_ROOM
							  : SMALL_ROOM;
		receive->buf = malloc(receive->room);
		mt_require(receive->buf, "no memory");
	}
}

/* Our address, for all to see. */
static void publish(void)
{
	size_t len = sizeof(w.own->address);

	atomic_store(&w.own->up, 0);
	for (int i = 0; i < KILL_SLOTS; i++)
		atomic_store(&w.own->sent[w.incarnation % KILL_KEPT][i], 0);
	mt_must(fi_getname(&w.ep->fid, w.own->address, &len));
	w.gallery_mr = expose(w.gallery, GALLERY, FI_REMOTE_READ, &w.own->gallery);
	w.yard_mr = expose(w.yard, YARD, FI_REMOTE_READ | FI_REMOTE_WRITE, &w.own->yard);
	atomic_store(&w.own->up, w.incarnation);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A receive from one peer ends with it; any other may lose the message that it was receiving. */
static bool may_end_receive(const struct receive *receive, int err)
{
	const struct partner *partner =
		(const void *)((const char *)receive - offsetof(struct partner, directed));

	if (receive->class == DIRECTED)
		return is_doomed(partner) && (err == FI_ECONNRESET || err == FI_ECONNREFUSED);
	return err == FI_ECONNRESET;
}

static void post_receive(struct receive *receive, fi_addr_t from)
{
	struct iovec iov = { receive->buf, receive->room };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = from, .context = receive };
	ssize_t rc;

	mt_require(!receive->op.pending, "the test: a receive posted twice");
	receive->op.pending = true;
	if (receive->class == PLAIN)
		rc = fi_recvmsg(w.ep, &msg, FI_MULTI_RECV);
	else
		rc = fi_trecv(w.ep, receive->buf, receive->room, NULL, from,
			      (uint64_t)receive->class << CLASS_SHIFT, ~0ULL >> (64 - CLASS_SHIFT),
			      receive);
	mt_require(rc == 0 || rc == -FI_EAGAIN || may_end_receive(receive, (int)-rc),
		   "receive of class %d: %s", receive->class, fi_strerror((int)-rc));
	if (rc)
		receive->op.pending = false;
}

static void post_receives(bool late)
{
	for (size_t i = 0; i < sizeof(w.receives) / sizeof(w.receives[0]); i++) {
		struct receive *receive = &w.receives[i];

		if (!receive->op.pending && (late || receive->class != LATE))
			post_receive(receive, FI_ADDR_UNSPEC);
	}
}

static struct mail *mail_of(int slot, uint64_t incarnation)
{
	struct mail *mail = &w.mail[slot * KILL_KEPT + (int)(incarnation % KILL_KEPT)];

	if (mail->incarnation != incarnation)
		*mail = (struct mail){ .incarnation = incarnation };
	return mail;
}

/* Has it not come before? Classes are received apart, so each has its numbers, which come in any order. */
static void note_number(struct mail *mail, uint64_t id)
{
	uint64_t number = id & 0x3fffffff, *seen = mail->seen[class_of(id)];
	uint64_t *newest = &mail->newest[class_of(id)];

	for (; *newest < number; ++*newest) /* these places are for newer ones now */
		seen[(*newest + 1) % WINDOW / 64] &= ~(1ULL << (*newest + 1) % 64);
	if (number + WINDOW <= *newest)
		return; /* too old to be told */
	mt_require(!(seen[number % WINDOW / 64] & 1ULL << number % 64), "message %#llx came twice",
		   (unsigned long long)id);
	seen[number % WINDOW / 64] |= 1ULL << number % 64;
}

static void take_message(enum class class, uint64_t id, const uint8_t *buf, size_t len)
{
	int slot = (int)(id >> SLOT_SHIFT & 0x3f);
	uint64_t incarnation = id >> INCARNATION_SHIFT & 0xffffff;
	struct mail *mail;

	mt_require(class_of(id) == class && slot < w.board->workers && slot != w.slot,
		   "class %d received message %#llx", class, (unsigned long long)id);
	mt_require(len == message_size(id), "message %#llx: %zu bytes, not %zu", (unsigned long long)id,
		   len, message_size(id));
	mt_require(pattern_differs(buf, 0, len, id) < 0, "message %#llx of %zu bytes: byte %zd is wrong",
		   (unsigned long long)id, len, pattern_differs(buf, 0, len, id));
	mail = mail_of(slot, incarnation);
	note_number(mail, id);
	mail->count++;
	add(&w.own->messages, 1);
	add(&w.own->bytes, len);
}

static void received(struct receive *receive, const struct fi_cq_tagged_entry *entry)
{
	mt_require(receive->op.pending, "a receive of class %d completed that was not posted",
		   receive->class);
	if (receive->class != PLAIN || entry->flags & FI_MULTI_RECV)
		receive->op.pending = false;
	if (!(entry->flags & FI_RECV))
		return; /* the end of a buffer for many */
	if (receive->class == PLAIN)
		take_message(PLAIN, entry->data, entry->buf, entry->len);
	else
		take_message(receive->class, entry->tag, receive->buf, entry->len);
}

/* ---- what may go wrong ----------------------------------------------------------------------- */

static void note_error(int err)
{
	add(&w.board->errors[err < KILL_ERRORS ? err : KILL_ERRORS - 1], 1);
}

static void receive_failed(struct receive *receive, const struct fi_cq_err_entry *entry)
{
	mt_require(receive->op.pending, "a receive of class %d failed that was not posted",
		   receive->class);
	if (receive->class != PLAIN || entry->flags & FI_MULTI_RECV)
		receive->op.pending = false;
	if (entry->err == FI_ECANCELED)
		return;
	note_error(entry->err);
	mt_require(may_end_receive(receive, entry->err), "a receive of class %d failed: %s",
		   receive->class, fi_strerror(entry->err));
}

/* Closing takes registrations away before the peer itself. */
static bool is_of_death(const struct flight *flight, int err)
{
	return err == FI_ECONNRESET || err == FI_ECONNREFUSED ||
	       (err == FI_EKEYREJECTED && flight->kind != SEND);
}

/* An injected message that waited for room has failed. Its error does not say which partner it was for. */
static void inject_failed(int err)
{
	bool doomed = false;

	for (const struct partner *partner = w.partners; partner; partner = partner->next)
		doomed |= is_doomed(partner);
	mt_require(doomed && err == FI_ECONNRESET, "an injected message failed%s: %s",
		   doomed ? "" : ", and nobody has ended", fi_strerror(err));
	mt_require(++w.failed_injects <= w.posted_injects, "an injected message failed twice");
	note_error(err);
}

static const char *const kind_names[] = { "send", "put", "get of what was put", "get", "fetching add" };

static void flight_failed(struct flight *flight, int err)
{
	struct partner *partner = flight->partner;

	mt_require(is_doomed(partner), "false death: a %s of %zu bytes to %s failed, which lives: %s",
		   kind_names[flight->kind], flight->len, partner_name(partner), fi_strerror(err));
	mt_require(is_of_death(flight, err),
		   "a %s to %s, which ends by way %d, failed with the wrong error: %s",
		   kind_names[flight->kind], partner_name(partner),
		   (int)atomic_load(&w.board->slots[partner->slot].order), fi_strerror(err));
	note_error(err);
	add(&w.own->failed_ops, 1);
	if (err != FI_EKEYREJECTED)
		partner->failed = true;
	if (!partner->error_at) {
		partner->error_at = kill_now();
		partner->error_posted_at = flight->posted_at;
		partner->error_polled_at = w.polled_at;
	}
}

/* Checks the return value of a call that posts; false: the operation was not accepted. */
static bool accepted(struct flight *flight, ssize_t rc)
{
	struct partner *partner = flight->partner;

	if (rc == 0) {
		mt_require(!partner->failed && !partner->refused,
			   "a %s to %s was accepted after one had %s", kind_names[flight->kind],
			   partner_name(partner), partner->failed ? "failed" : "been refused");
		partner->accepted = true;
		return true;
	}
	if (rc == -FI_EAGAIN) {
		mt_require(!partner->failed && !partner->refused,
			   "a %s to %s is to be tried again after one had %s", kind_names[flight->kind],
			   partner_name(partner), partner->failed ? "failed" : "been refused");
		return false;
	}
	mt_require(is_doomed(partner), "false death: a %s of %zu bytes to %s was refused, which lives: %s",
		   kind_names[flight->kind], flight->len, partner_name(partner), fi_strerror((int)-rc));
	mt_require(rc == -FI_ECONNRESET || rc == -FI_ECONNREFUSED || rc == -FI_EHOSTUNREACH,
		   "a %s to %s was refused with the wrong error: %s", kind_names[flight->kind],
		   partner_name(partner), fi_strerror((int)-rc));
	partner->refused = true;
	add(&w.own->refused_posts, 1);
	return false;
}

/* ---- posting --------------------------------------------------------------------------------- */

/* The word holds the incarnation that they went to, and how many. */
static void message_completed(const struct flight *flight)
{
	const struct partner *partner = flight->partner;
	int own = (int)(w.incarnation % KILL_KEPT), to = partner->slot;

	if (w.current[to] != partner)
		return; /* to one that is dead by now */
	atomic_store(&w.own->newest[own][to][atomic_load(&w.own->sent[own][to]) % KILL_NEWEST],
		     flight->id);
	add(&w.own->sent[own][to], 1);
}

/* The call is chosen by the message. */
static ssize_t call_send(struct flight *flight, bool *injected)
{
	struct partner *partner = flight->partner;
	struct iovec iov[2] = { { flight->buf, flight->len / 3 },
				{ flight->buf + flight->len / 3, flight->len - flight->len / 3 } };
	static const uint64_t ends[] = { 0, 0, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE };
	uint64_t choice = mt_hash(flight->id);
	uint64_t flags = ends[choice / 4 % 4] | FI_COMPLETION;
	struct fi_msg msg = { .msg_iov = iov,
			      .iov_count = 2,
			      .addr = partner->addr,
			      .context = flight,
			      .data = flight->id };
	struct fi_msg_tagged tagged = {
		.msg_iov = iov, .iov_count = 2, .addr = partner->addr, .tag = flight->id, .context = flight
	};

	*injected = choice % 4 == 0 && flight->len <= w.info->tx_attr->inject_size;
	if (class_of(flight->id) == PLAIN)
		return *injected ? fi_injectdata(w.ep, flight->buf, flight->len, flight->id, partner->addr)
				 : fi_sendmsg(w.ep, &msg, flags | FI_REMOTE_CQ_DATA);
	if (*injected)
		return fi_tinject(w.ep, flight->buf, flight->len, partner->addr, flight->id);
	if (choice % 4 == 1)
		return fi_tsend(w.ep, flight->buf, flight->len, NULL, partner->addr, flight->id, flight);
	return fi_tsendmsg(w.ep, &tagged, flags);
}

static bool post_send(struct flight *flight, enum class class)
{
	struct partner *partner = flight->partner;
	bool injected;

	flight->kind = SEND;
	flight->id = message_id(w.slot, w.incarnation, class, partner->numbers[class] + 1);
	flight->len = message_size(flight->id);
	pattern_fill(flight->buf, 0, flight->len, flight->id);
	if (!accepted(flight, call_send(flight, &injected)))
		return false;
	partner->numbers[class]++;
	w.posted_sends++;
	w.posted_injects += injected;
	return !injected; /* an injected message has no completion; it may still wait for room, unseen by us */
}

static size_t piece(void)
{
	return (size_t)w.slot * PIECE_INCARNATIONS + w.incarnation % PIECE_INCARNATIONS;
}

static bool post_put(struct flight *flight)
{
	struct partner *partner = flight->partner;

	flight->kind = PUT;
	flight->id = mt_random(&w.random);
	flight->len = mt_below(&w.random, (size_t)1 << (4 + mt_below(&w.random, 13))) + 1;
	pattern_fill(flight->buf, 0, flight->len, flight->id);
	if (!accepted(flight, fi_write(w.ep, flight->buf, flight->len, NULL, partner->addr,
				       partner->yard.addr + piece() * PIECE, partner->yard.key, flight)))
		return false;
	w.posted_writes++;
	partner->putting = true;
	return true;
}

static bool post_read_back(struct flight *flight)
{
	struct partner *partner = flight->partner;

	flight->kind = READ_BACK;
	memset(flight->buf, 0, flight->len);
	if (!accepted(flight, fi_read(w.ep, flight->buf, flight->len, NULL, partner->addr,
				      partner->yard.addr + piece() * PIECE, partner->yard.key, flight)))
		return false;
	w.posted_reads++;
	return true;
}

static bool post_get(struct flight *flight)
{
	struct partner *partner = flight->partner;
	size_t room = flight->large ? LARGE_ROOM : SMALL_ROOM;

	flight->kind = GET;
	flight->len = mt_below(&w.random, room) + 1;
	flight->at = mt_below(&w.random, GALLERY - flight->len + 1);
	if (!accepted(flight, fi_read(w.ep, flight->buf, flight->len, NULL, partner->addr,
				      partner->gallery.addr + flight->at, partner->gallery.key, flight)))
		return false;
	w.posted_reads++;
	return true;
}

static bool post_add(struct flight *flight)
{
	static const uint64_t one = 1;
	struct partner *partner = flight->partner;
	uint64_t at = partner->yard.addr + YARD_WORDS + piece() * sizeof(uint64_t);

	flight->kind = ADD;
	flight->len = sizeof(uint64_t);
	if (!accepted(flight, fi_fetch_atomic(w.ep, &one, 1, NULL, flight->buf, NULL, partner->addr, at,
					      partner->yard.key, FI_UINT64, FI_SUM, flight)))
		return false;
	w.posted_reads++; /* a fetching atomic */
	partner->adding = true;
	return true;
}

/* Anything; a message of a class of its own tells the other only once it is known to know us. */
static bool post_any(struct flight *flight)
{
	struct partner *partner = flight->partner;
	static const enum class classes[] = { SMALL, SMALL, LATE, PLAIN, PLAIN, DIRECTED };
	uint64_t choice = mt_below(&w.random, 10);
	enum class class;

	if (flight->large)
		return choice < 7 ? post_send(flight, LARGE) : post_get(flight);
	if (choice == 0 && !partner->putting)
		return post_put(flight);
	if (choice == 1)
		return post_get(flight);
	if (choice == 2 && !partner->adding)
		return post_add(flight);
	class = classes[mt_below(&w.random, sizeof(classes) / sizeof(classes[0]))];
	if (class == DIRECTED && !mail_of(partner->slot, partner->incarnation)->count)
		class = SMALL;
	return post_send(flight, class);
}

static void start(struct partner *partner, bool large, bool (*post)(struct flight *flight))
{
	struct flight *flight = partner->in_flight < IN_FLIGHT_MAX ? take_flight(large) : NULL;

	if (!flight)
		return;
	flight->partner = partner;
	flight->posted_at = kill_now();
	flight->op.pending = true;
	partner->in_flight++;
	if (post(flight))
		return;
	flight->op.pending = false;
	partner->in_flight--;
	give_back(flight);
}

/* ---- completions ----------------------------------------------------------------------------- */

static void check_read_back(const struct flight *flight)
{
	ssize_t bad = pattern_differs(flight->buf, 0, flight->len, flight->id);

	mt_require(bad < 0, "byte %zd of %zu that were put to %s is not there", bad, flight->len,
		   partner_name(flight->partner));
	add(&w.own->puts, 1);
}

static void check_get(const struct flight *flight)
{
	const struct partner *partner = flight->partner;
	ssize_t bad = pattern_differs(flight->buf, flight->at, flight->len,
				      gallery_seed(partner->slot, partner->incarnation));

	mt_require(bad < 0, "byte %zd of %zu that were read at %zu of %s is wrong", bad, flight->len,
		   flight->at, partner_name(partner));
	add(&w.own->gets, 1);
}

static void check_add(const struct flight *flight)
{
	struct partner *partner = flight->partner;
	uint64_t before;

	memcpy(&before, flight->buf, sizeof(before));
	mt_require(!partner->adds_known || before == partner->adds,
		   "a fetching add to %s returned %llu, not %llu", partner_name(partner),
		   (unsigned long long)before, (unsigned long long)partner->adds);
	partner->adds_known = true;
	partner->adds = before + 1;
	add(&w.own->atomics, 1);
}

/* False: another operation of it is under way. */
static bool flight_succeeded(struct flight *flight)
{
	switch (flight->kind) {
	case SEND:
		message_completed(flight);
		break;
	case PUT:
		flight->posted_at = kill_now();
		flight->op.pending = true;
		if (post_read_back(flight))
			return false;
		flight->op.pending = false;
		break;
	case READ_BACK:
		check_read_back(flight);
		break;
	case GET:
		check_get(flight);
		break;
	case ADD:
		check_add(flight);
	}
	return true;
}

static void flight_done(struct flight *flight, int err)
{
	struct partner *partner = flight->partner;
	enum kind kind = flight->kind;

	mt_require(flight->op.pending, "a %s completed that was not under way", kind_names[kind]);
	flight->op.pending = false;
	if (err)
		flight_failed(flight, err);
	else if (!flight_succeeded(flight))
		return;
	if (kind == PUT || kind == READ_BACK)
		partner->putting = false;
	if (kind == ADD)
		partner->adding = false;
	partner->in_flight--;
	give_back(flight);
}

static void take_error(void)
{
	struct fi_cq_err_entry entry = { 0 };
	ssize_t rc = fi_cq_readerr(w.cq, &entry, 0);
	struct op *op = entry.op_context;

	mt_require(rc == 1 && entry.err > 0, "fi_cq_readerr: %zd, err %d", rc, entry.err);
	if (!op)
		inject_failed(entry.err);
	else if (op->receives)
		receive_failed((struct receive *)op, &entry);
	else
		flight_done((struct flight *)op, entry.err);
}

static bool take_one(ssize_t rc, const struct fi_cq_tagged_entry *entry)
{
	struct op *op = entry->op_context;

	if (rc == -FI_EAGAIN)
		return false;
	if (rc == -FI_EAVAIL) {
		take_error();
		return true;
	}
	mt_require(rc == 1 && op, "reading the completion queue: %zd", rc);
	if (op->receives)
		received((struct receive *)op, entry);
	else
		flight_done((struct flight *)op, 0);
	return true;
}

static bool poll_once(void)
{
	struct fi_cq_tagged_entry entry = { 0 };
	uint64_t begin = kill_now();

	if (take_one(fi_cq_read(w.cq, &entry, 1), &entry))
		return true;
	w.polled_at = begin;
	return false;
}

/* Sleep for a moment, sometimes in the library. */
static void rest(void)
{
	struct fi_cq_tagged_entry entry = { 0 };

	if (mt_below(&w.random, 16))
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	else
		take_one(fi_cq_sread(w.cq, &entry, 1, NULL, 1), &entry);
}

static void poll_some(void)
{
	for (int i = 0; i < 16; i++)
		if (!poll_once()) {
			if (++w.idle_polls > 8)
				rest();
			return;
		}
	w.idle_polls = 0;
}

/* ---- partners -------------------------------------------------------------------------------- */

static void meet(int slot)
{
	struct kill_slot *from = &w.board->slots[slot];
	struct partner *partner;
	char address[MT_NAME_SIZE];
	uint64_t up = atomic_load(&from->up);

	if (!up || atomic_load(&from->ended) >= up ||
	    (w.current[slot] && w.current[slot]->incarnation >= up))
		return;
	partner = calloc(1, sizeof(*partner));
	mt_require(partner, "no memory");
	partner->slot = slot;
	partner->incarnation = up;
	memcpy(address, from->address, sizeof(address));
	partner->gallery = from->gallery;
	partner->yard = from->yard;
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load(&from->up) != up || has_ended(partner) ||
	    fi_av_insert(w.av, address, 1, &partner->addr, 0, NULL) != 1) {
		mt_require(is_doomed(partner) || atomic_load(&from->up) != up,
			   "false death: the address of %s, which lives, is refused",
			   partner_name(partner));
		free(partner);
		return;
	}
	/* counted anew for this incarnation */
	atomic_store(&w.own->sent[w.incarnation % KILL_KEPT][slot], up << 32);
	partner->directed = (struct receive){ .op.receives = true, .class = DIRECTED, .room = SMALL_ROOM };
	partner->directed.buf = malloc(SMALL_ROOM);
	mt_require(partner->directed.buf, "no memory");
	partner->next = w.partners;
	w.partners = partner;
	w.current[slot] = partner;
}

/* How long after its end its first error came: if that can be said, and we were not stopped since. */
static void sample(struct partner *partner)
{
	const struct kill_slot *slot = &w.board->slots[partner->slot];
	uint64_t ended_at = atomic_load(&slot->ended_at), at;

	if (partner->sampled)
		return;
	partner->sampled = true;
	/* an older one's moment has been overwritten by now */
	if (atomic_load(&slot->ended) != partner->incarnation || !ended_at || !partner->error_at ||
	    partner->error_posted_at > ended_at || atomic_load(&w.own->resumed_at) > ended_at)
		return;
	at = atomic_fetch_add(&w.board->sample_count, 1);
	if (at >= KILL_SAMPLES)
		return;
	w.board->samples[at].error = (int64_t)(partner->error_at - ended_at);
	w.board->samples[at].unseen =
		partner->error_polled_at > ended_at ? (int64_t)(partner->error_polled_at - ended_at) : 0;
}

/* Messages to us that it knew to be sent. */
static uint64_t sent_to_us(const struct partner *partner)
{
	const struct kill_slot *from = &w.board->slots[partner->slot];
	uint64_t sent = atomic_load(&from->sent[partner->incarnation % KILL_KEPT][w.slot]);

	return sent >> 32 == w.incarnation ? sent & UINT32_MAX : 0;
}

static bool post_probe(struct flight *flight)
{
	return post_send(flight, SMALL);
}

/* Of the newest messages that it knew to be sent, those that have not come. */
static const char *missing(const struct partner *partner)
{
	const struct kill_slot *from = &w.board->slots[partner->slot];
	const struct mail *mail = mail_of(partner->slot, partner->incarnation);
	static char text[KILL_NEWEST * 40];
	size_t at = 0;

	text[0] = '\0';
	for (int i = 0; i < KILL_NEWEST; i++) {
		uint64_t id = atomic_load(&from->newest[partner->incarnation % KILL_KEPT][w.slot][i]);
		uint64_t number = id & 0x3fffffff;

		if (id && !(mail->seen[class_of(id)][number % WINDOW / 64] & 1ULL << number % 64))
			at += (size_t)snprintf(text + at, sizeof(text) - at, " %d/%llu of %zu bytes",
					       class_of(id), (unsigned long long)number, message_size(id));
	}
	return text;
}

/* One step towards it; true: there is nothing more to do. */
static bool bury(struct partner *partner)
{
	struct mail *mail = mail_of(partner->slot, partner->incarnation);

	if (!partner->ended_at)
		partner->ended_at = kill_now();
	mt_require(
		kill_now() - partner->ended_at < patience_ns(),
		"%s ended %.0f s ago; %u operations to it are under way, posts are %s, %llu messages of "
		"%llu have come, not:%s",
		partner_name(partner), w.board->patience, partner->in_flight,
		partner->refused ? "refused" : "not refused", (unsigned long long)mail->count,
		(unsigned long long)sent_to_us(partner), missing(partner));
	if (!partner->refused)
		start(partner, false, post_probe);
	if (partner->error_at)
		sample(partner);
	if (partner->in_flight || !partner->refused ||
	    (partner->accepted && mail->count < sent_to_us(partner)))
		return false;
	if (!partner->directed.op.pending)
		return true;
	fi_cancel(&w.ep->fid, &partner->directed); /* -FI_ENOENT: it is completing */
	return false;
}

static void forget(struct partner **at)
{
	struct partner *partner = *at;

	if (mail_of(partner->slot, partner->incarnation)->count < sent_to_us(partner))
		add(&w.own->lost,
		    sent_to_us(partner) - mail_of(partner->slot, partner->incarnation)->count);
	/* refused again, whatever it is */
	start(partner, false, post_get);
	start(partner, false, post_probe);
	mt_must(fi_av_remove(w.av, &partner->addr, 1, 0));
	*at = partner->next;
	if (w.current[partner->slot] == partner)
		w.current[partner->slot] = NULL;
	add(&w.own->deaths_seen, 1);
	free(partner->directed.buf);
	free(partner);
}

/* Has it sent something that may be waiting? */
static bool is_missed(const struct partner *partner)
{
	return partner->in_flight ||
	       mail_of(partner->slot, partner->incarnation)->count < sent_to_us(partner);
}

static void look_around(void)
{
	for (int i = 0; i < w.board->workers; i++)
		if (i != w.slot)
			meet(i);
	for (struct partner **at = &w.partners; *at;) {
		struct partner *partner = *at;

		if (atomic_load(&w.board->slots[partner->slot].stopped) && !is_doomed(partner))
			add(&w.own->stopped_checks, 1);
		if (has_ended(partner) && bury(partner)) {
			forget(at);
			continue;
		}
		if (!partner->directed.op.pending && (!has_ended(partner) || is_missed(partner)))
			post_receive(&partner->directed, partner->addr);
		at = &partner->next;
	}
}

static struct partner *random_partner(void)
{
	struct partner *partner = w.current[mt_below(&w.random, (uint64_t)w.board->workers)];

	return partner && !partner->failed && !partner->refused && !has_ended(partner) ? partner : NULL;
}

/* No operation may hang: one that was accepted so long ago should have ended. */
static void check_patience(void)
{
	uint64_t now = kill_now();

	for (int i = 0; i < SMALL_FLIGHTS + LARGE_FLIGHTS; i++) {
		const struct flight *flight = &w.flights[i];

		mt_require(!flight->op.pending || now - flight->posted_at < 2 * patience_ns(),
			   "a %s of %zu bytes to %s does not end", kind_names[flight->kind], flight->len,
			   partner_name(flight->partner));
	}
}

/* ---- growth ---------------------------------------------------------------------------------- */

static int count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	mt_require(dir, "/proc/self/fd: %s", strerror(errno));
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 3; /* ".", ".." and its own */
}

/* Of files in shared memory. */
static int count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	mt_require(maps, "/proc/self/maps: %s", strerror(errno));
	while (fgets(line, sizeof(line), maps))
		count += strstr(line, " /dev/shm/") != NULL;
	fclose(maps);
	return count;
}

static long resident(void)
{
	FILE *status = fopen("/proc/self/statm", "re");
	long size, pages = 0;

	if (status && fscanf(status, "%ld %ld", &size, &pages) != 2)
		pages = 0;
	if (status)
		fclose(status);
	return pages * sysconf(_SC_PAGESIZE) / 1024;
}

/*
 * With all peers alive and connected: their segments, in up to six parts that differ in what may be written (header and
 * claims, a slot, bounce buffers, and what is between and behind), and what it takes to watch them. Dead
 * workers hold nothing, once their death has been noticed.
 */
static bool has_grown(int *fds, int *maps)
{
	*fds = count_descriptors() - w.fds;
	*maps = count_mappings() - w.maps;
	return *fds > 8 + 3 * (w.board->workers - 1) || *maps > 6 * (w.board->workers - 1);
}

static void check_growth(void)
{
	uint64_t end = kill_now() + patience_ns();
	int fds, maps;

	mt_doing("looking for what the dead have left");
	while (has_grown(&fds, &maps)) {
		mt_require(
			kill_now() < end,
			"%d descriptors and %d mappings more than before there were %d peers, after %llu "
			"deaths",
			fds, maps, w.board->workers - 1,
			(unsigned long long)atomic_load(&w.own->deaths_seen));
		poll_some();
	}
	fprintf(stderr,
		"worker %d: %llu deaths, %d descriptors and %d mappings for %d peers, %ld KiB more\n",
		w.slot, (unsigned long long)atomic_load(&w.own->deaths_seen), fds, maps,
		w.board->workers - 1, resident() - w.rss);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void close_mr(struct fid_mr *mr)
{
	int rc;

	while ((rc = fi_close(&mr->fid)) == -FI_EBUSY) /* a peer is stopped while it copies */
		poll_once();
	mt_must(rc);
}

static void close_endpoint(void)
{
	mt_doing("closing");
	if (mt_below(&w.random, 2)) {
		close_mr(w.gallery_mr);
		close_mr(w.yard_mr);
		mt_must(fi_close(&w.ep->fid));
	} else {
		mt_must(fi_close(&w.ep->fid));
		close_mr(w.gallery_mr);
		close_mr(w.yard_mr);
	}
	mt_must(fi_close(&w.sends->fid));
	mt_must(fi_close(&w.reads->fid));
	mt_must(fi_close(&w.writes->fid));
	mt_must(fi_close(&w.cq->fid));
	mt_must(fi_close(&w.av->fid));
	mt_must(fi_close(&w.domain->fid));
	mt_must(fi_close(&w.fabric->fid));
	fi_freeinfo(w.info);
}

static void obey(enum kill_way way)
{
	mt_doing("ending as ordered, way %d", way);
	switch (way) {
	case KILL_EXIT:
		exit(0);
	case KILL_ABRUPT:
		_exit(0);
	case KILL_EXEC:
		execl("/bin/sleep", "sleep", "0.02", (char *)NULL);
		mt_fail("exec: %s", strerror(errno));
	case KILL_CLOSE:
		close_endpoint();
		exit(0);
	default:
		return;
	}
}

static bool is_drained(void)
{
	for (const struct partner *partner = w.partners; partner; partner = partner->next)
		if (partner->in_flight || has_ended(partner))
			return false;
	return true;
}

static void cancel_all(void)
{
	bool left;

	mt_doing("cancelling receives");
	for (size_t i = 0; i < sizeof(w.receives) / sizeof(w.receives[0]); i++)
		if (w.receives[i].op.pending)
			fi_cancel(&w.ep->fid, &w.receives[i]);
	for (struct partner *partner = w.partners; partner; partner = partner->next)
		if (partner->directed.op.pending)
			fi_cancel(&w.ep->fid, &partner->directed);
	do {
		poll_once();
		left = false;
		for (size_t i = 0; i < sizeof(w.receives) / sizeof(w.receives[0]); i++)
			left |= w.receives[i].op.pending;
		for (struct partner *partner = w.partners; partner; partner = partner->next)
			left |= partner->directed.op.pending;
	} while (left);
	for (int i = 0; i < 1000; i++)
		mt_require(!poll_once(), "a completion of nothing");
}

static void check_counter(struct fid_cntr *cntr, uint64_t posted, const char *what)
{
	uint64_t value = fi_cntr_read(cntr), errors = fi_cntr_readerr(cntr);

	mt_require(value + errors == posted, "%llu %s were accepted; counted: %llu, and %llu errors",
		   (unsigned long long)posted, what, (unsigned long long)value,
		   (unsigned long long)errors);
}

static void leave(void)
{
	cancel_all();
	check_counter(w.sends, w.posted_sends, "sends");
	check_counter(w.reads, w.posted_reads, "reads");
	check_counter(w.writes, w.posted_writes, "writes");
	close_endpoint();
	while (w.partners) {
		struct partner *partner = w.partners;

		w.partners = partner->next;
		free(partner->directed.buf);
		free(partner);
	}
	for (int i = 0; i < SMALL_FLIGHTS + LARGE_FLIGHTS; i++)
		free(w.flights[i].buf);
	for (size_t i = 0; i < sizeof(w.receives) / sizeof(w.receives[0]); i++)
		free(w.receives[i].buf);
	free(w.gallery);
	free(w.yard);
	free(w.mail);
}

/* ---- a life ---------------------------------------------------------------------------------- */

static void begin(void)
{
	w.budget_at = kill_now();
	w.random.state = w.board->seed + (uint64_t)w.slot * 1000003 + w.incarnation * 7919;
	w.gallery = malloc(GALLERY);
	w.yard = calloc(1, YARD);
	w.mail = calloc(KILL_SLOTS * KILL_KEPT, sizeof(*w.mail));
	mt_require(w.gallery && w.yard && w.mail, "no memory");
	pattern_fill(w.gallery, 0, GALLERY, gallery_seed(w.slot, w.incarnation));
	make_flights();
	make_receives();
	open_endpoint();
	w.fds = count_descriptors();
	w.maps = count_mappings();
	w.rss = resident();
	post_receives(true);
	publish();
	mt_doing("working");
}

/* Has it used more than its share of a processor? Then it only receives, and sleeps in between. */
static bool is_over_budget(void)
{
	uint64_t now = kill_now(), cpu = processor_time();

	if (w.board->share == 0)
		return false;
	w.budget +=
		(int64_t)((double)(now - w.budget_at) * w.board->share) - (int64_t)(cpu - w.budget_cpu);
	w.budget = w.budget < BUDGET_MAX ? w.budget : BUDGET_MAX;
	w.budget_at = now;
	w.budget_cpu = cpu;
	return w.budget < 0;
}

static void step(bool posts)
{
	uint64_t steps = atomic_load_explicit(&w.own->steps, memory_order_relaxed) + 1;
	struct partner *partner;

	atomic_store_explicit(&w.own->steps, steps, memory_order_relaxed);
	look_around();
	if (posts && is_over_budget()) {
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
		posts = false;
	}
	for (int i = 0; posts && i < 2; i++)
		if ((partner = random_partner()))
			start(partner, mt_below(&w.random, 32) == 0, post_any);
	post_receives(!posts || mt_below(&w.random, 40) == 0);
	poll_some();
	if (steps % 1024 == 0)
		check_patience();
}

void kill_worker(struct kill_board *board, int slot, uint64_t incarnation)
{
	w.board = board;
	w.slot = slot;
	w.incarnation = incarnation;
	w.own = &board->slots[slot];
	begin();
	while (atomic_load(&board->phase) == KILL_RUN) {
		obey((enum kill_way)atomic_load(&w.own->order));
		step(true);
	}
	mt_doing("waiting for what is under way");
	while (atomic_load(&board->phase) == KILL_DRAIN) {
		step(false);
		if (atomic_load(&w.own->drained) != incarnation && is_drained()) {
			check_growth();
			atomic_store(&w.own->drained, incarnation);
		}
	}
	leave();
	mt_doing("leaving the process");
}
