/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_shm_defects.c: what other shared-memory providers have been seen to do wrong in messages and
 * endpoints, each as a test: truncated receives, wildcards mixed with directed receives, names of live
 * endpoints, the price of unexpected messages, flags and bindings that are accepted and ignored.
 */
#include "pair.h"

#include <signal.h>

/* ---- truncated receives, on every path ------------------------------------------------------- */

static const size_t truncated_lens[] = { 1, 39, 100, 200, 600, 4096, 8193, 32768, 32769, 300000, 5000000 };
#define TRUNCATED_LENS (sizeof(truncated_lens) / sizeof(truncated_lens[0]))
#define TRUNCATED_WAYS 5

/* How long the receive is that a message of `len` bytes meets. */
static size_t room_of(size_t len, int way)
{
	const size_t rooms[TRUNCATED_WAYS] = { 0, 1, len / 3, len / 2, len - 1 };

	return rooms[way] < len ? rooms[way] : 0;
}

static void truncated_recv(struct side *side, bool tagged, uint8_t *buf, size_t room)
{
	struct kind_msg msg = { .iov_count = 3, .addr = FI_ADDR_UNSPEC, .context = buf };

	/* in pieces, the second one empty */
	msg.iov[0] = (struct iovec){ buf, room / 2 };
	msg.iov[1] = (struct iovec){ NULL, 0 };
	msg.iov[2] = (struct iovec){ buf + room / 2, room - room / 2 };
	gives(kind_recvmsg(tagged, side, &msg, 0), 0);
}

static void truncated_check(struct pair *pair, struct side *side, bool tagged, uint8_t *buf, size_t room,
			    size_t len)
{
	struct fi_cq_err_entry error = pair_error(pair, side);

	gives(error.err, FI_ETRUNC);
	must(error.op_context == buf);
	gives(error.flags, kind_cq_flags(tagged, FI_RECV));
	gives(error.len, room);
	gives(error.olen, len - room);
	must(pattern_is(buf, 0, room, 2));
	must(guarded_intact(buf, room));
}

static void truncated_in_one_process(void)
{
	struct counters counters;
	struct pair pair;
	const char *line;

	counters_begin(&counters);
	pair_open(&pair, NULL);
	for (size_t i = 0; i < TRUNCATED_LENS * TRUNCATED_WAYS * 4; i++) {
		size_t len = truncated_lens[i % TRUNCATED_LENS];
		size_t room = room_of(len, i / TRUNCATED_LENS % TRUNCATED_WAYS);
		bool tagged = i / TRUNCATED_LENS / TRUNCATED_WAYS & 1,
		     expected = i / TRUNCATED_LENS / TRUNCATED_WAYS & 2;
		uint8_t *from = malloc(len), *to = guarded_alloc(room);

		pattern_fill(from, 0, len, 2);
		if (expected)
			truncated_recv(&pair.b, tagged, to, room);
		post(&pair, kind_send(tagged, &pair.a, from, len, pair.a.peer, from));
		for (int j = 0; j < 5; j++)
			pair_progress(&pair);
		if (!expected)
			truncated_recv(&pair.b, tagged, to, room);
		truncated_check(&pair, &pair.b, tagged, to, room, len);
		must(pair_done(&pair, &pair.a).entry.op_context == from); /* no error for the sender */
		free(from);
		guarded_free(to);
	}
	gives(fi_close(&pair.b.ep->fid), 0);
	pair.b.ep = NULL;
	line = counters_end(&counters);
	must(counter(line, "rx_local_bytes") > 0);
	pair_close(&pair);
}

static void truncated_sender(struct pair *pair)
{
	uint8_t *from = malloc(truncated_lens[TRUNCATED_LENS - 1]);
	const char *line;

	pattern_fill(from, 0, truncated_lens[TRUNCATED_LENS - 1], 2);
	for (size_t i = 0; i < TRUNCATED_LENS * TRUNCATED_WAYS * 2; i++) {
		pair_meet(pair);
		post(pair, kind_send(i & 1, &pair->a, from, truncated_lens[i % TRUNCATED_LENS],
				     pair->a.peer, from));
		must(pair_done(pair, &pair->a).entry.op_context == from);
	}
	free(from);
	gives(fi_close(&pair->a.ep->fid), 0);
	pair->a.ep = NULL;
	line = counters_end(&pair_counters);
	must(counter(line, "tx_inline") > 0);
	must(counter(line, "tx_bounce") > 0);
	must(counter(line, "tx_rdv") > 0);
}

static void truncated_receiver(struct pair *pair, const char *path)
{
	const char *line;

	for (size_t i = 0; i < TRUNCATED_LENS * TRUNCATED_WAYS * 2; i++) {
		size_t len = truncated_lens[i % TRUNCATED_LENS];
		size_t room = room_of(len, i / TRUNCATED_LENS % TRUNCATED_WAYS);
		uint8_t *to = guarded_alloc(room);

		if (i % 3)
			truncated_recv(&pair->a, i & 1, to, room);
		pair_meet(pair);
		for (int j = 0; j < 100; j++)
			side_progress(&pair->a);
		if (!(i % 3))
			truncated_recv(&pair->a, i & 1, to, room);
		truncated_check(pair, &pair->a, i & 1, to, room, len);
		guarded_free(to);
	}
	gives(fi_close(&pair->a.ep->fid), 0);
	pair->a.ep = NULL;
	line = counters_end(&pair_counters);
	must(counter(line, path) > 0);
}

static void truncated_by_cma(struct pair *pair)
{
	truncated_receiver(pair, "rx_cma_bytes");
}

static void truncated_by_pieces(struct pair *pair)
{
	truncated_receiver(pair, "rx_pulled_bytes");
}

/* ---- wildcards and directed receives, against a plain list ------------------------------------ */

#define SENDERS 3
#define ANY SENDERS

struct thing {
	bool live;
	unsigned int source; /* a receive: ANY or one */
	uint64_t tag, ignore, id;
};

struct list {
	struct thing things[512];
	size_t used;
};

static bool fits(const struct thing *recv, const struct thing *msg)
{
	return (recv->source == ANY || recv->source == msg->source) &&
	       !((recv->tag ^ msg->tag) & ~recv->ignore);
}

/* The oldest that fits, taken out; or NULL. */
static const struct thing *take(struct list *list, const struct thing *other, bool list_is_receives)
{
	for (size_t i = 0; i < list->used; i++) {
		struct thing *here = &list->things[i];

		if (!here->live || !(list_is_receives ? fits(here, other) : fits(other, here)))
			continue;
		here->live = false;
		return here;
	}
	return NULL;
}

static void add(struct list *list, const struct thing *thing)
{
	size_t kept = 0;

	for (size_t i = 0; i < list->used; i++)
		if (list->things[i].live)
			list->things[kept++] = list->things[i];
	list->used = kept;
	must(kept < 512);
	list->things[list->used++] = *thing;
}

static size_t live(const struct list *list)
{
	size_t count = 0;

	for (size_t i = 0; i < list->used; i++)
		count += list->things[i].live;
	return count;
}

struct crowd {
	struct pair pairs[2]; /* a and b of the first and a of the second send to b of the first */
	struct side *receiver, *senders[SENDERS];
	fi_addr_t addrs[SENDERS], to[SENDERS];
};

static void crowd_open(struct crowd *crowd)
{
	struct pair_want want = { .strangers = true };

	for (int i = 0; i < 2; i++)
		pair_open(&crowd->pairs[i], &want);
	crowd->receiver = &crowd->pairs[0].b;
	crowd->senders[0] = &crowd->pairs[0].a;
	crowd->senders[1] = &crowd->pairs[0].b;
	crowd->senders[2] = &crowd->pairs[1].a;
	for (int i = 0; i < SENDERS; i++)
		crowd->addrs[i] = pair_insert(crowd->receiver->av, crowd->senders[i]->name);
	for (int i = 0; i < SENDERS; i++)
		crowd->to[i] = i == 1 ? crowd->addrs[1]
				      : pair_insert(crowd->senders[i]->av, crowd->receiver->name);
}

static uint8_t crowd_buf[512][8192], crowd_out[8192];

static void crowd_send(struct crowd *crowd, bool tagged, const struct thing *msg)
{
	struct side *from = crowd->senders[msg->source];
	size_t len = msg->id % 5 ? 8 : 8192;
	ssize_t ret;

	ret = tagged ? fi_tinjectdata(from->ep, crowd_out, len > 4096 ? 4096 : len, msg->id,
				      crowd->to[msg->source], msg->tag)
		     : fi_injectdata(from->ep, crowd_out, len > 4096 ? 4096 : len, msg->id,
				     crowd->to[msg->source]);
	gives(ret, 0);
	for (int i = 0; i < 3; i++)
		side_progress(crowd->receiver);
}

static void crowd_recv(struct crowd *crowd, bool tagged, const struct thing *recv)
{
	fi_addr_t source = recv->source == ANY ? FI_ADDR_UNSPEC : crowd->addrs[recv->source];
	void *context = (void *)(uintptr_t)recv->id;
	uint8_t *buf = crowd_buf[recv->id % 512];

	gives(tagged ? fi_trecv(crowd->receiver->ep, buf, 8192, NULL, source, recv->tag, recv->ignore,
				context)
		     : fi_recv(crowd->receiver->ep, buf, 8192, NULL, source, context),
	      0);
}

/* The provider does as the lists say: this receive takes that message; or nothing happens. */
static void crowd_expect(struct crowd *crowd, const struct thing *recv, const struct thing *msg)
{
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;

	if (recv && msg) {
		gives(fi_cq_readfrom(crowd->receiver->cq, &entry, 1, &source), 1);
		must(entry.op_context == (void *)(uintptr_t)recv->id);
		gives(entry.data, msg->id);
		gives(source, crowd->addrs[msg->source]);
	}
	gives(fi_cq_read(crowd->receiver->cq, &entry, 1), -FI_EAGAIN);
}

static void wildcards_mixed(bool tagged)
{
	static const uint64_t masks[] = { 0, 0, 1, 3, 2, UINT64_MAX };
	static struct list receives, messages;
	struct crowd crowd;

	srand(12345);
	crowd_open(&crowd);
	for (uint64_t id = 1; id < 30000; id++) {
		struct thing thing = { .live = true, .id = id, .tag = tagged ? (uint64_t)rand() % 4 : 0 };
		const struct thing *other;

		/* the lists stay short enough to be crossed often, and long enough to have an order */
		if (rand() % 200 + live(&messages) / 2 > 99 + live(&receives) / 2) {
			thing.source = (unsigned int)rand() % (SENDERS + 1);
			thing.ignore = tagged ? masks[rand() % 6] : 0;
			other = take(&messages, &thing, false);
			crowd_recv(&crowd, tagged, &thing);
			crowd_expect(&crowd, &thing, other);
			if (!other)
				add(&receives, &thing);
		} else {
			thing.source = (unsigned int)rand() % SENDERS;
			other = take(&receives, &thing, true);
			crowd_send(&crowd, tagged, &thing);
			crowd_expect(&crowd, other, &thing);
			if (!other)
				add(&messages, &thing);
		}
	}
	for (int i = 0; i < 2; i++)
		pair_close(&crowd.pairs[i]);
}

static void wildcards_mixed_msg(void)
{
	wildcards_mixed(false);
}

static void wildcards_mixed_tagged(void)
{
	wildcards_mixed(true);
}

/* ---- names of live endpoints ----------------------------------------------------------------- */

static void named_ep(struct pair *pair, struct side *side, const char *service)
{
	side->av = pair_open_av(pair);
	side->cq = pair_open_cq(pair);
	side->ep = pair_open_ep(pair);
	gives(fi_setname(&side->ep->fid, (void *)service, strlen(service) + 1), 0);
	pair_bind(side->ep, side->cq, side->av);
}

/* In another process: opens the name, says so, echoes one message, and stays until it is killed. */
static void name_owner(const char *service, int fd)
{
	static char buf[8];
	struct pair pair;

	pair_open_domain(&pair, NULL);
	named_ep(&pair, &pair.a, service);
	gives(fi_enable(pair.a.ep), 0);
	gives(fi_recv(pair.a.ep, buf, 8, NULL, FI_ADDR_UNSPEC, buf), 0);
	gives(write(fd, "x", 1), 1);
	pair_done(&pair, &pair.a);
	gives(write(fd, buf, 8), 8);
	for (;;)
		side_progress(&pair.a);
}

/* Refused again and again while the owner lives, and the owner gets its messages; granted after its death. */
static void name_of_a_live_endpoint(void)
{
	char service[64], byte, buf[8];
	int fds[2];
	pid_t owner;
	struct pair pair;

	snprintf(service, sizeof(service), "fi_shmcma://test_shm_defects.%d", (int)getpid());
	gives(pipe(fds), 0);
	owner = fork();
	must(owner >= 0);
	if (!owner) {
		pair_end_with_parent();
		name_owner(service, fds[1]);
	}
	gives(read(fds[0], &byte, 1), 1);
	pair_open_domain(&pair, NULL);
	side_open(&pair, &pair.b);
	named_ep(&pair, &pair.a, service);
	for (int i = 0; i < 5; i++)
		gives(fi_enable(pair.a.ep), -FI_EADDRINUSE);
	gives(fi_inject(pair.b.ep, "message", 8, pair_insert(pair.b.av, service)), 0);
	gives(read(fds[0], buf, 8), 8);
	gives(strcmp(buf, "message"), 0);
	gives(fi_enable(pair.a.ep), -FI_EADDRINUSE);

	gives(kill(owner, SIGKILL), 0);
	gives(waitpid(owner, NULL, 0), owner);
	gives(fi_enable(pair.a.ep), 0);
	gives(fi_recv(pair.a.ep, buf, 8, NULL, FI_ADDR_UNSPEC, buf), 0);
	gives(fi_inject(pair.b.ep, "another", 8, pair_insert(pair.b.av, service)), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == buf);
	gives(strcmp(buf, "another"), 0);
	pair_close(&pair);
}

/* ---- unexpected messages --------------------------------------------------------------------- */

static size_t resident(void)
{
	unsigned long all, pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	must(file);
	gives(fscanf(file, "%lu %lu", &all, &pages), 2);
	fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Ten thousand that nobody has asked for cost little more than their payload, and all can be had. */
static void many_unexpected(void)
{
	enum { MESSAGES = 10000, LEN = 64 };
	uint8_t buf[LEN];
	struct pair pair;
	size_t before;

	pair_open(&pair, NULL);
	post(&pair, fi_tinject(pair.a.ep, buf, LEN, pair.a.peer, MESSAGES));
	pair_progress(&pair);
	before = resident();
	for (uint64_t i = 0; i < MESSAGES; i++) {
		pattern_fill(buf, 0, LEN, (unsigned int)i);
		post(&pair, fi_tinject(pair.a.ep, buf, LEN, pair.a.peer, i));
		side_progress(&pair.b);
	}
	if (!SANITIZED)
		must(resident() - before < MESSAGES * 1024UL);
	for (uint64_t i = MESSAGES; i-- > 0;) {
		gives(fi_trecv(pair.b.ep, buf, LEN, NULL, FI_ADDR_UNSPEC, i, 0, NULL), 0);
		gives(pair_done(&pair, &pair.b).entry.tag, i);
		must(pattern_is(buf, 0, LEN, (unsigned int)i));
	}
	pair_close(&pair);
}

/*
 * A flood ends in -FI_EAGAIN, not in the receiver's memory; another peer is not affected. The window bounds the
 * memory of both sides together, which here are one process.
 */
static void flood(void)
{
	static uint8_t buf[4096];
	struct pair pair;
	size_t before, sent = 0;

	pair_open(&pair, NULL);
	before = resident();
	for (int stuck = 0; stuck < 100;) {
		ssize_t ret = fi_inject(pair.a.ep, buf, sizeof(buf), pair.a.peer);

		if (ret)
			gives(ret, -FI_EAGAIN);
		stuck += ret != 0;
		sent += !ret;
		must(sent < 100000);
		pair_progress(&pair);
	}
	if (!SANITIZED)
		must(resident() - before < 128UL << 20);
	gives(fi_inject(pair.b.ep, buf, sizeof(buf), pair.b.self), 0);
	gives(fi_recv(pair.b.ep, buf, sizeof(buf), NULL, pair.b.self, buf), 0);
	must(pair_done(&pair, &pair.b).entry.op_context == buf);
	for (; sent; sent--) {
		gives(fi_recv(pair.b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		gives(pair_done(&pair, &pair.b).source, pair.b.peer);
	}
	pair_close(&pair);
}

/* ---- accepted and ignored -------------------------------------------------------------------- */

/* FI_MORE promises more to come; the message does not wait for it. */
static void more_is_not_held_back(void)
{
	char text[8] = "message", buf[8];
	struct pair pair;

	pair_open(&pair, NULL);
	for (int tagged = 0; tagged < 2; tagged++) {
		struct kind_msg msg = { .iov = { { text, 8 } }, .iov_count = 1, .addr = pair.a.peer };

		gives(kind_sendmsg(tagged, &pair.a, &msg, FI_MORE | FI_INJECT), 0);
		gives(kind_recv(tagged, &pair.b, buf, 8, FI_ADDR_UNSPEC, buf), 0);
		must(pair_done(&pair, &pair.b).entry.op_context == buf);
	}
	pair_close(&pair);
}

/* A fenced message is not sent before a large one to the same peer has completed. */
static void fence_waits(void)
{
	static uint8_t large[1 << 20];
	struct kind_msg fenced = { .iov_count = 0 };
	struct pair pair;

	pair_open(&pair, NULL);
	fenced.addr = pair.a.peer;
	gives(kind_send(true, &pair.a, large, sizeof(large), pair.a.peer, large), 0);
	for (int i = 0; i < 100; i++) {
		pair_progress(&pair);
		gives(kind_sendmsg(true, &pair.a, &fenced, FI_FENCE), -FI_EAGAIN);
	}
	gives(kind_recv(true, &pair.b, large, sizeof(large), FI_ADDR_UNSPEC, NULL), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == large);
	gives(kind_sendmsg(true, &pair.a, &fenced, FI_FENCE), 0);
	pair_close(&pair);
}

/* A bound event queue is in use; test_cq.c (overrun) tests its events. */
static void eq_is_bound(void)
{
	struct pair pair;
	struct fid_ep *ep;
	struct fid_eq *eq;

	pair_open(&pair, NULL);
	eq = pair_open_eq(&pair);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &eq->fid, 0), 0);
	gives(fi_ep_bind(ep, &eq->fid, 0), -FI_EINVAL);
	gives(fi_close(&eq->fid), -FI_EBUSY);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&eq->fid), 0);
	pair_close(&pair);
}

/* A peek at plain messages neither posts a receive nor finds nothing. */
static void peek_of_plain_messages(void)
{
	struct kind_msg peek = { .addr = FI_ADDR_UNSPEC, .context = &peek };
	char buf[8];
	struct pair pair;

	pair_open(&pair, NULL);
	gives(kind_recvmsg(false, &pair.b, &peek, FI_PEEK), 0);
	gives(pair_error(&pair, &pair.b).err, FI_ENOMSG);
	post(&pair, fi_inject(pair.a.ep, "message", 8, pair.a.peer));
	gives(kind_recvmsg(false, &pair.b, &peek, FI_PEEK), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 8);
	gives(fi_recv(pair.b.ep, buf, 8, NULL, FI_ADDR_UNSPEC, buf), 0);
	gives(pair_done(&pair, &pair.b).entry.len, 8);
	gives(strcmp(buf, "message"), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(truncated_in_one_process),
		BOTH_ENV(truncated_sender, truncated_by_cma, "FI_LOG_LEVEL=info"),
		BOTH_ENV(truncated_sender, truncated_by_pieces, "FI_LOG_LEVEL=info FI_SHMCMA_CMA=0"),
		ALONE(wildcards_mixed_msg),
		ALONE(wildcards_mixed_tagged),
		ALONE(name_of_a_live_endpoint),
		ALONE(many_unexpected),
		ALONE(flood),
		ALONE(more_is_not_held_back),
		ALONE(fence_waits),
		ALONE(eq_is_bound),
		ALONE(peek_of_plain_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
