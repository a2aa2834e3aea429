/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_order: message order between messages, RMA and atomics, and the order of completions, fi_endpoint(3), for
 * applications that ask for it. test_msg, test_rma and test_atomic test the order of messages of one kind.
 *
 * In one process, where the target makes progress only when the test says so; and between two, with operations
 * of all kinds in random order.
 */
#include "onesided.h"

#include <signal.h>
#include <rdma/fi_atomic.h>

#define MEMORY_ORDER (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)
#define MIXED_ORDER (FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW)
#define STRICT "FI_SHMCMA_RMA=strict"

#define LARGE ((size_t)16 << 20) /* takes a target several polls */

/* A target's memory, b's, as a may access it. */
struct target {
	struct pair pair;
	struct region region;
	uint8_t *memory;
	size_t len;
};

static uint64_t own[8]; /* a's */
static uint8_t message[64], received[64];

static void target_open(struct target *target, uint64_t order, size_t len)
{
	struct pair_want want = { .caps = ONESIDED_CAPS, .mr_mode = ONESIDED_MODE, .msg_order = order };

	pair_open(&target->pair, &want);
	gives(target->pair.info->tx_attr->msg_order & order, order);
	gives(target->pair.info->rx_attr->msg_order & order, order);
	target->memory = calloc(1, len);
	target->len = len;
	must(target->memory);
	region_open(&target->pair, &target->region, target->memory, len, FI_REMOTE_READ | FI_REMOTE_WRITE);
	/* so that they know each other */
	gives(fi_recv(target->pair.b.ep, received, sizeof(received), NULL, FI_ADDR_UNSPEC, received), 0);
	post(&target->pair, fi_inject(target->pair.a.ep, message, 8, target->pair.a.peer));
	pair_done(&target->pair, &target->pair.b);
}

static void target_close(struct target *target)
{
	region_close(&target->region);
	pair_close(&target->pair);
	free(target->memory);
}

static ssize_t write_to(struct target *target, const void *from, size_t len, size_t offset)
{
	return fi_write(target->pair.a.ep, from, len, NULL, target->pair.a.peer,
			target->region.remote.addr + offset, target->region.remote.key, (void *)from);
}

static ssize_t read_from(struct target *target, void *to, size_t len, size_t offset)
{
	return fi_read(target->pair.a.ep, to, len, NULL, target->pair.a.peer,
		       target->region.remote.addr + offset, target->region.remote.key, to);
}

static ssize_t add_to(struct target *target, const uint64_t *operand, size_t offset)
{
	return fi_atomic(target->pair.a.ep, operand, 1, NULL, target->pair.a.peer,
			 target->region.remote.addr + offset, target->region.remote.key, FI_UINT64, FI_SUM,
			 (void *)operand);
}

static uint64_t word_of(const struct target *target, size_t offset)
{
	uint64_t word;

	memcpy(&word, target->memory + offset, sizeof(word));
	return word;
}

/* Strict one-sided operations have a thread that makes progress for the target as well, now and then. */
static bool has_thread(void)
{
	const char *mode = getenv("FI_SHMCMA_RMA");

	return mode && !strcmp(mode, "strict");
}

/* The initiator makes progress and the target none: nothing completes, and the word there stays. */
static void stays(struct target *target, size_t offset, uint64_t word)
{
	struct fi_cq_tagged_entry entry;

	for (int i = 0; i < 2000; i++) {
		if (has_thread()) {
			side_progress(&target->pair.a);
			continue;
		}
		gives(fi_cq_read(target->pair.a.cq, &entry, 1), -FI_EAGAIN);
		gives(word_of(target, offset), word);
	}
}

/* ---- RMA behind messages --------------------------------------------------------------------- */

/* FI_ORDER_WAS: as long as the target has not looked at the message, a later write does not show. */
static void write_after_send(void)
{
	struct target target;
	struct done done;

	target_open(&target, FI_ORDER_WAS, 64);
	for (uint64_t round = 1; round <= 50; round++) {
		own[0] = round;
		post(&target.pair, fi_inject(target.pair.a.ep, message, 8, target.pair.a.peer));
		gives(write_to(&target, own, 8, 0), 0);
		stays(&target, 0, round - 1);
		gives(fi_recv(target.pair.b.ep, received, sizeof(received), NULL, FI_ADDR_UNSPEC,
			      received),
		      0);
		must(pair_done(&target.pair, &target.pair.b).entry.op_context == received);
		done = pair_done(&target.pair, &target.pair.a);
		must(done.entry.op_context == own);
		gives(word_of(&target, 0), round);
	}
	/* the target's answer has shown that it has seen them: it is needed no more */
	own[0] = 1000;
	gives(write_to(&target, own, 8, 0), 0);
	if (!has_thread()) {
		while (fi_cq_read(target.pair.a.cq, &done.entry, 1) == -FI_EAGAIN)
			;
		gives(word_of(&target, 0), 1000);
	} else {
		pair_done(&target.pair, &target.pair.a);
	}
	target_close(&target);
}

/* A write behind a message that the target has seen and not received does not wait for the receive. */
static void write_after_unmatched_send(void)
{
	uint8_t *large = calloc(1, LARGE), *to = malloc(LARGE);
	struct target target;

	target_open(&target, FI_ORDER_STRICT, 64);
	own[0] = 1;
	post(&target.pair, fi_send(target.pair.a.ep, large, LARGE, NULL, target.pair.a.peer, large));
	gives(write_to(&target, own, 8, 0), 0);
	stays(&target, 0, 0);
	while (!word_of(&target, 0))
		pair_progress(&target.pair);
	must(pair_done(&target.pair, &target.pair.a).entry.op_context == own);
	gives(fi_recv(target.pair.b.ep, to, LARGE, NULL, FI_ADDR_UNSPEC, to), 0);
	must(pair_done(&target.pair, &target.pair.b).entry.op_context == to);
	must(pair_done(&target.pair, &target.pair.a).entry.op_context == large);
	target_close(&target);
	free(large);
	free(to);
}

/* FI_ORDER_RAS: of memory that a message is received into. */
static void read_after_send(void)
{
	static const size_t lens[] = { 8, 64, 1000, 4096, 16000 };
	struct target target;

	target_open(&target, FI_ORDER_RAS, 16000);
	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint8_t from[16000], to[16000];
		bool seen[2] = { false, false };

		pattern_fill(from, 0, lens[i], i);
		memset(target.memory, 0xaa, target.len);
		gives(fi_recv(target.pair.b.ep, target.memory, target.len, NULL, FI_ADDR_UNSPEC, NULL), 0);
		post(&target.pair,
		     fi_send(target.pair.a.ep, from, lens[i], NULL, target.pair.a.peer, from));
		gives(read_from(&target, to, lens[i], 0), 0);
		for (int both = 0; both < 2; both++)
			seen[pair_done(&target.pair, &target.pair.a).entry.op_context == to] = true;
		must(seen[0] && seen[1] && pattern_is(to, 0, lens[i], i));
		pair_done(&target.pair, &target.pair.b);
	}
	target_close(&target);
}

/* ---- messages behind RMA --------------------------------------------------------------------- */

/* Sends `message` and returns when b has it; the completions of a stay in its queue. */
static void send_and_see(struct target *target)
{
	struct fi_cq_tagged_entry entry;

	gives(fi_recv(target->pair.b.ep, received, sizeof(received), NULL, FI_ADDR_UNSPEC, received), 0);
	post(&target->pair, fi_inject(target->pair.a.ep, message, 8, target->pair.a.peer));
	while (fi_cq_read(target->pair.b.cq, &entry, 1) == -FI_EAGAIN)
		side_progress(&target->pair.a);
	must(entry.op_context == received);
}

/* FI_ORDER_SAW: a receiver that has the message finds the earlier writes, though they had to wait for a read. */
static void send_after_write(void)
{
	uint8_t *to = malloc(LARGE);
	struct target target;

	target_open(&target, FI_ORDER_SAW, LARGE);
	for (uint64_t round = 1; round <= 20; round++) {
		own[0] = own[1] = round;
		gives(read_from(&target, to, LARGE, 0), 0);
		gives(write_to(&target, own, 8, 0), 0);
		gives(add_to(&target, own + 1, 8), 0);
		send_and_see(&target);
		gives(word_of(&target, 0), round);
		gives(word_of(&target, 8), round * (round + 1) / 2);
		for (int i = 0; i < 3; i++)
			pair_done(&target.pair, &target.pair.a);
	}
	target_close(&target);
	free(to);
}

/* FI_ORDER_SAR: the read does not see the changes that the receiver of the message makes to its memory. */
static void send_after_read(void)
{
	uint8_t *to = malloc(LARGE);
	struct target target;

	target_open(&target, FI_ORDER_SAR, LARGE);
	for (unsigned int round = 0; round < 5; round++) {
		pattern_fill(target.memory, 0, LARGE, round);
		gives(read_from(&target, to, LARGE, 0), 0);
		send_and_see(&target);
		memset(target.memory, 0x55, LARGE);
		must(pair_done(&target.pair, &target.pair.a).entry.op_context == to);
		must(pattern_is(to, 0, LARGE, round));
	}
	target_close(&target);
	free(to);
}

/* ---- RMA and atomics ------------------------------------------------------------------------- */

/* FI_ORDER_RAW, WAW: the target does the atomic when it makes progress, and nothing goes before it. */
static void memory_after_atomic(void)
{
	struct target target;

	target_open(&target, FI_ORDER_RAW | FI_ORDER_WAW, 64);
	for (uint64_t round = 1; round <= 50; round++) {
		own[0] = 1;
		own[1] = 100 * round;
		own[2] = own[3] = 0;
		gives(add_to(&target, own, 0), 0);
		gives(read_from(&target, own + 2, 8, 0), 0);
		gives(write_to(&target, own + 1, 8, 0), 0);
		gives(read_from(&target, own + 3, 8, 0), 0);
		stays(&target, 0, 100 * (round - 1));
		for (int i = 0; i < 4; i++)
			pair_done(&target.pair, &target.pair.a);
		gives(own[2], 100 * (round - 1) + 1);
		gives(own[3], 100 * round);
		gives(word_of(&target, 0), 100 * round);
	}
	target_close(&target);
}

/* FI_ORDER_WAR: a read that was posted before an atomic does not see its result. */
static void atomic_after_read(void)
{
	uint8_t *to = malloc(LARGE);
	struct target target;
	uint64_t last;

	target_open(&target, FI_ORDER_WAR, LARGE);
	own[0] = 1;
	for (uint64_t round = 0; round < 10; round++) {
		gives(read_from(&target, to, LARGE, 0), 0);
		post(&target.pair, add_to(&target, own, LARGE - 8));
		for (int i = 0; i < 2; i++)
			pair_done(&target.pair, &target.pair.a);
		memcpy(&last, to + LARGE - 8, 8);
		gives(last, round);
		gives(word_of(&target, LARGE - 8), round + 1);
	}
	target_close(&target);
	free(to);
}

/* A shared transmit context asks for all that use it. */
static void shared_context(void)
{
	struct fi_tx_attr attr;
	struct target target;
	struct fid_stx *stx;
	struct fid_ep *ep;
	struct fi_info *info;

	target_open(&target, 0, 64);
	info = fi_dupinfo(target.pair.info);
	info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	attr = *info->tx_attr;
	attr.msg_order |= FI_ORDER_RAW | FI_ORDER_WAW;
	gives(fi_stx_context(target.pair.domain, &attr, &stx, NULL), 0);
	must(attr.msg_order & FI_ORDER_WAW);
	gives(fi_endpoint(target.pair.domain, info, &ep, NULL), 0);
	pair_bind(ep, target.pair.a.cq, target.pair.a.av);
	gives(fi_ep_bind(ep, &stx->fid, 0), 0);
	gives(fi_enable(ep), 0);
	own[0] = 1;
	own[1] = 100;
	gives(fi_atomic(ep, own, 1, NULL, target.pair.a.peer, target.region.remote.addr,
			target.region.remote.key, FI_UINT64, FI_SUM, own),
	      0);
	gives(fi_write(ep, own + 1, 8, NULL, target.pair.a.peer, target.region.remote.addr,
		       target.region.remote.key, own + 1),
	      0);
	for (int i = 0; i < 2; i++)
		pair_done(&target.pair, &target.pair.a);
	gives(word_of(&target, 0), 100);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&stx->fid), 0);
	fi_freeinfo(info);
	target_close(&target);
}

/* ---- completions ----------------------------------------------------------------------------- */

enum { MANY = 600 };

static const struct pair_want in_order = { .caps = ONESIDED_CAPS,
					   .mr_mode = ONESIDED_MODE,
					   .tx_comp_order = FI_ORDER_STRICT,
					   .rx_comp_order = FI_ORDER_STRICT };

static void in_order_open(struct target *target)
{
	pair_open(&target->pair, &in_order);
	gives(target->pair.info->tx_attr->comp_order, FI_ORDER_STRICT);
	gives(target->pair.info->rx_attr->comp_order, FI_ORDER_STRICT);
	target->len = 4096;
	target->memory = calloc(1, target->len);
	region_open(&target->pair, &target->region, target->memory, target->len,
		    FI_REMOTE_READ | FI_REMOTE_WRITE);
}

static size_t length_of(unsigned int number)
{
	return number % 3 == 0 ? (size_t)1 << 20 : number % 3 == 1 ? 8 : 20000;
}

static ssize_t post_numbered(struct target *target, unsigned int kind, unsigned int number)
{
	static uint8_t bytes[1 << 20];
	void *context = (void *)(uintptr_t)number;
	struct fid_ep *ep = target->pair.a.ep;
	fi_addr_t peer = target->pair.a.peer;
	uint64_t addr = target->region.remote.addr, key = target->region.remote.key;

	switch (kind) {
	case 0:
		return fi_write(ep, bytes, 64, NULL, peer, addr, key, context);
	case 1:
		return fi_read(ep, bytes, 64, NULL, peer, addr, key, context);
	case 2:
		return fi_atomic(ep, bytes, 1, NULL, peer, addr, key, FI_UINT64, FI_SUM, context);
	case 3: /* not allowed: completes with an error */
		return fi_write(ep, bytes, 64, NULL, peer, addr, key ^ 1, context);
	default:
		return fi_send(ep, bytes, length_of(number), NULL, peer, context);
	}
}

/* The next completion of that side is this one's; errors among them. */
static void next_is(struct target *target, struct side *side, uintptr_t number)
{
	struct fi_cq_err_entry error = { .err = 0 };
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	while ((ret = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		pair_progress(&target->pair);
	if (ret == -FI_EAVAIL) {
		gives(fi_cq_readerr(side->cq, &error, 0), 1);
		entry.op_context = error.op_context;
	} else {
		gives(ret, 1);
		pair_saw(&entry);
	}
	gives((uintptr_t)entry.op_context, number);
}

/* Operations complete in the order in which they were posted, on each way and with each result. */
static void completions_sent(void)
{
	static uint8_t to[1 << 20];
	unsigned int seed = 3, next = 0, ended = 0, received = 0, sent = 0;
	struct target target;

	in_order_open(&target);
	while (ended < MANY) {
		unsigned int kind = (unsigned int)rand_r(&seed) % 8;

		for (int i = 0; i < 5 && next < MANY; i++) {
			ssize_t ret = post_numbered(&target, (kind + (unsigned int)i * 3) % 8, next);

			must(!ret || ret == -FI_EAGAIN);
			sent += !ret && (kind + (unsigned int)i * 3) % 8 > 3;
			next += !ret;
		}
		for (; received < sent; received++)
			gives(fi_recv(target.pair.b.ep, to, sizeof(to), NULL, FI_ADDR_UNSPEC, NULL), 0);
		if (kind == 0 || next == MANY)
			for (; ended < next; ended++)
				next_is(&target, &target.pair.a, ended);
	}
	target_close(&target);
}

/* Those to one peer, not to others; and those that are not to be told of hold nobody up. */
static void completions_apart(void)
{
	static uint8_t large[1 << 20], to[1 << 20];
	struct target target;
	struct fid_ep *a;

	in_order_open(&target);
	a = target.pair.a.ep;
	gives(fi_send(a, large, sizeof(large), NULL, target.pair.a.peer, large), 0);
	gives(fi_send(a, message, 8, NULL, target.pair.a.peer, message), 0);
	gives(fi_inject(a, message, 8, target.pair.a.peer), 0);
	gives(fi_send(a, message, 8, NULL, target.pair.a.self, own), 0);
	must(pair_done(&target.pair, &target.pair.a).entry.op_context == own);
	stays(&target, 0, 0);
	for (int i = 0; i < 3; i++)
		gives(fi_recv(target.pair.b.ep, to, sizeof(to), NULL, FI_ADDR_UNSPEC, to), 0);
	must(pair_done(&target.pair, &target.pair.a).entry.op_context == large);
	must(pair_done(&target.pair, &target.pair.a).entry.op_context == message);
	gives(fi_recv(a, to, sizeof(to), NULL, FI_ADDR_UNSPEC, to), 0);
	must(pair_done(&target.pair, &target.pair.a).entry.op_context == to);
	for (int i = 0; i < 3; i++)
		pair_done(&target.pair, &target.pair.b);
	pair_quiet(&target.pair, &target.pair.a);
	target_close(&target);
}

/* The peer closes: the operations that it has not done fail, all in the order in which they were posted. */
static void completions_of_the_lost(void)
{
	struct target target;

	in_order_open(&target);
	for (unsigned int i = 0; i < 12; i++)
		gives(post_numbered(&target, i % 2 ? 4 : 2, i), 0);
	gives(fi_close(&target.pair.b.ep->fid), 0);
	target.pair.b.ep = NULL;
	for (unsigned int i = 0; i < 12; i++)
		next_is(&target, &target.pair.a, i);
	pair_quiet(&target.pair, &target.pair.a);
	target_close(&target);
}

/* Small messages behind large ones, expected or not. */
static void completions_received(void)
{
	static uint8_t bytes[8];
	uint8_t *large = calloc(1, LARGE), *to[8];
	struct target target;

	in_order_open(&target);
	for (int expected = 0; expected < 2; expected++) {
		for (uintptr_t i = 0; i < 8; i++)
			to[i] = malloc(LARGE);
		for (uintptr_t i = 0; i < 8 && expected; i++)
			gives(fi_recv(target.pair.b.ep, to[i], LARGE, NULL, FI_ADDR_UNSPEC, (void *)i), 0);
		for (uintptr_t i = 0; i < 8; i++)
			post(&target.pair,
			     fi_send(target.pair.a.ep, i % 2 ? bytes : large, i % 2 ? 8 : LARGE, NULL,
				     target.pair.a.peer, (void *)i));
		for (int i = 0; i < 10 && !expected; i++)
			pair_progress(&target.pair);
		for (uintptr_t i = 0; i < 8 && !expected; i++)
			gives(fi_recv(target.pair.b.ep, to[i], LARGE, NULL, FI_ADDR_UNSPEC, (void *)i), 0);
		for (uintptr_t i = 0; i < 8; i++)
			next_is(&target, &target.pair.b, i);
		for (uintptr_t i = 0; i < 8; i++)
			next_is(&target, &target.pair.a, i);
		for (uintptr_t i = 0; i < 8; i++)
			free(to[i]);
	}
	target_close(&target);
	free(large);
}

/* Into one buffer: the last to be told of says that it is the application's again, and none comes after. */
static void completions_of_one_buffer(void)
{
	static const size_t lens[4] = { LARGE, 8, 3000, LARGE }; /* then there is less than the least */
	uint8_t *from = malloc(LARGE), *to = malloc(3 * LARGE);
	struct fi_msg msg = { .msg_iov = &(struct iovec){ to, 3 * LARGE - 4000 },
			      .iov_count = 1,
			      .addr = FI_ADDR_UNSPEC,
			      .context = to };
	struct target target;
	size_t at = 0, min = LARGE / 2 + LARGE - 8000;

	in_order_open(&target);
	gives(fi_setopt(&target.pair.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)),
	      0);
	pattern_fill(from, 0, LARGE, 1);
	gives(fi_recvmsg(target.pair.b.ep, &msg, FI_MULTI_RECV), 0);
	for (int i = 0; i < 4; i++)
		post(&target.pair,
		     fi_send(target.pair.a.ep, from, lens[i], NULL, target.pair.a.peer, NULL));
	for (int i = 0; i < 4; i++) {
		struct done done = pair_done(&target.pair, &target.pair.b);

		must(done.entry.op_context == to && done.entry.buf == to + at);
		gives(done.entry.len, lens[i]);
		gives(!!(done.entry.flags & FI_MULTI_RECV), i == 3);
		must(pattern_is(done.entry.buf, 0, lens[i], 1));
		at += lens[i];
	}
	pair_quiet(&target.pair, &target.pair.b);
	target_close(&target);
	free(from);
	free(to);
}

enum { LETTERS = 8 };

/* Sends large and small ones by turns, says so, and takes no part in their copying. */
static void sender_to_be_killed(int fd)
{
	uint8_t *large = calloc(1, LARGE);
	struct pair pair;
	char name[64];

	pair_open(&pair, &in_order);
	pair_exchange(fd, pair.a.name, name, sizeof(name));
	pair.a.peer = pair_insert(pair.a.av, name);
	for (uintptr_t i = 0; i < LETTERS; i++)
		post(&pair, fi_send(pair.a.ep, large, i % 2 ? 8 : LARGE, NULL, pair.a.peer, (void *)i));
	gives(write(fd, name, 1), 1);
	for (;;)
		pause();
}

/* The sender is killed: messages that it has left are received, others fail, all in the order of the matches. */
static void completions_of_the_dead(void)
{
	uint8_t *to = malloc(LARGE * LETTERS);
	struct target target;
	int fds[2], status;
	char name[64];
	pid_t child;

	gives(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	child = fork();
	if (!child) {
		pair_end_with_parent();
		sender_to_be_killed(fds[1]);
	}
	close(fds[1]);
	in_order_open(&target);
	pair_exchange(fds[0], target.pair.b.name, name, sizeof(name));
	pair_insert(target.pair.b.av, name);
	for (uintptr_t i = 0; i < LETTERS; i++)
		gives(fi_recv(target.pair.b.ep, to + i * LARGE, LARGE, NULL, FI_ADDR_UNSPEC, (void *)i),
		      0);
	gives(read(fds[0], name, 1), 1);
	next_is(&target, &target.pair.b, 0); /* and the small one behind it, which has waited */
	gives(kill(child, SIGKILL), 0);
	gives(waitpid(child, &status, 0), child);
	for (uintptr_t i = 1; i < LETTERS; i++)
		next_is(&target, &target.pair.b, i);
	pair_quiet(&target.pair, &target.pair.b);
	target_close(&target);
	free(to);
}

/* Between processes: a sends, b receives into whatever is posted. */
static void ordered_sender(struct pair *pair)
{
	static uint8_t bytes[1 << 20];

	for (unsigned int i = 0, ended = 0; ended < MANY;) {
		struct fi_cq_tagged_entry entry;
		ssize_t ret = -FI_EAGAIN;

		if (i < MANY)
			ret = fi_send(pair->a.ep, bytes, length_of(i), NULL, pair->a.peer,
				      (void *)(uintptr_t)i);
		must(!ret || ret == -FI_EAGAIN);
		i += !ret;
		ret = fi_cq_read(pair->a.cq, &entry, 1);
		if (ret == -FI_EAGAIN)
			continue;
		gives(ret, 1);
		pair_saw(&entry);
		gives((uintptr_t)entry.op_context, ended++);
	}
	pair_meet(pair);
}

static void ordered_receiver(struct pair *pair)
{
	static uint8_t to[1 << 20];

	for (unsigned int i = 0; i < MANY; i++)
		gives(fi_recv(pair->a.ep, to, sizeof(to), NULL, FI_ADDR_UNSPEC, (void *)(uintptr_t)i), 0);
	for (unsigned int i = 0; i < MANY; i++) {
		struct done done = pair_done(pair, &pair->a);

		gives((uintptr_t)done.entry.op_context, i);
		gives(done.entry.len, length_of(i));
	}
	pair_meet(pair);
}

/* ---- all kinds, two processes ---------------------------------------------------------------- */

/*
 * The target's memory: words that the initiator alone changes, then a block that the target fills with the number
 * of each message that it receives.
 */
enum { WORDS = 8, BLOCK_AT = 4096, BLOCK = 300000, STEPS = SANITIZED ? 1500 : 4000, DEPTH = 16 };
#define LAST UINT64_MAX

struct letter {
	uint64_t number, words[WORDS]; /* as they are to be when it is received */
};

static const struct pair_want all_orders = { .caps = ONESIDED_CAPS,
					     .mr_mode = ONESIDED_MODE,
					     .msg_order = MEMORY_ORDER | MIXED_ORDER };

/* An operation under way: where its bytes are, and what a read is to find. */
struct step {
	uint64_t value, expected;
	struct letter letter;
	enum { FREE, WRITE, ADD, FETCH, READ, READ_BLOCK, SEND } kind;
	uint8_t block[BLOCK];
	size_t len;
};
static struct step steps[DEPTH];

static void step_check(const struct step *step)
{
	if (step->kind == FETCH || step->kind == READ)
		gives(step->value, step->expected);
	if (step->kind == READ_BLOCK)
		for (size_t i = 0; i + 8 <= step->len; i += 8) {
			uint64_t number;

			memcpy(&number, step->block + i, 8);
			must(number <= step->expected);
		}
}

static struct step *step_free(struct pair *pair)
{
	for (;;) {
		struct step *step;

		for (step = steps; step < steps + DEPTH; step++)
			if (step->kind == FREE)
				return step;
		step = pair_done(pair, &pair->a).entry.op_context;
		step_check(step);
		step->kind = FREE;
	}
}

static ssize_t step_post(struct pair *pair, struct step *step, const struct remote *remote,
			 unsigned int word)
{
	static const uint64_t one = 1;
	uint64_t at = remote->addr + word * 8;
	struct fid_ep *ep = pair->a.ep;
	fi_addr_t peer = pair->a.peer;

	switch (step->kind) {
	case WRITE:
		return fi_write(ep, &step->value, 8, NULL, peer, at, remote->key, step);
	case ADD:
		return fi_atomic(ep, &one, 1, NULL, peer, at, remote->key, FI_UINT64, FI_SUM, step);
	case FETCH:
		return fi_fetch_atomic(ep, &one, 1, NULL, &step->value, NULL, peer, at, remote->key,
				       FI_UINT64, FI_SUM, step);
	case READ:
		return fi_read(ep, &step->value, 8, NULL, peer, at, remote->key, step);
	case READ_BLOCK:
		return fi_read(ep, step->block, step->len, NULL, peer, remote->addr + BLOCK_AT,
			       remote->key, step);
	default:
		return fi_send(ep, &step->letter, sizeof(step->letter), NULL, peer, step);
	}
}

static void mixed_initiator(struct pair *pair)
{
	struct remote remote = region_exchange(pair, NULL);
	uint64_t words[WORDS] = { 0 }, letters = 0;
	unsigned int seed = 1;

	for (unsigned int i = 0; i <= STEPS; i++) {
		struct step *step = step_free(pair);
		unsigned int word = (unsigned int)rand_r(&seed) % WORDS;

		step->kind = i == STEPS ? SEND : WRITE + (unsigned int)rand_r(&seed) % SEND;
		step->expected = step->kind == READ_BLOCK ? letters : words[word];
		if (step->kind == WRITE)
			words[word] = step->value = 1000 * i;
		if (step->kind == ADD || step->kind == FETCH)
			words[word]++;
		step->len = 8 + (unsigned int)rand_r(&seed) % (BLOCK - 8);
		step->letter.number = i == STEPS ? LAST : letters + 1;
		letters += step->kind == SEND;
		memcpy(step->letter.words, words, sizeof(words));
		post(pair, step_post(pair, step, &remote, word));
	}
	for (unsigned int i = 0; i < DEPTH; i++)
		while (steps[i].kind != FREE) {
			struct step *step = pair_done(pair, &pair->a).entry.op_context;

			step_check(step);
			step->kind = FREE;
		}
	pair_meet(pair);
}

static void mixed_target(struct pair *pair)
{
	uint8_t *memory = stage_map();
	struct letter letter = { .number = 0 };
	struct region region;
	uint64_t number = 0;

	memset(memory, 0, STAGE_LEN);
	region_open(pair, &region, memory, STAGE_LEN, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &region);
	while (letter.number != LAST) {
		gives(fi_recv(pair->a.ep, &letter, sizeof(letter), NULL, FI_ADDR_UNSPEC, NULL), 0);
		pair_done(pair, &pair->a);
		must(letter.number == ++number || letter.number == LAST);
		for (unsigned int i = 0; i < WORDS; i++) {
			uint64_t word = __atomic_load_n((uint64_t *)memory + i, __ATOMIC_RELAXED);

			/* writes behind the message may be there as well */
			must(word >= letter.words[i]);
		}
		for (size_t i = 0; i < BLOCK; i += 8)
			memcpy(memory + BLOCK_AT + i, &number, 8);
	}
	pair_meet(pair);
	region_close(&region);
}

#define TWO(f, g, label, wanted, environment)                                                             \
	{                                                                                                 \
		.name = #f label, .test_func = stage_both, .initial_state = &(struct pair_test)           \
		{                                                                                         \
			.first = f, .second = g, .want = wanted, .env = environment                       \
		}                                                                                         \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(write_after_send),
		ALONE_ENV(write_after_send, STRICT),
		ALONE(write_after_unmatched_send),
		ALONE_ENV(write_after_unmatched_send, STRICT),
		ALONE(read_after_send),
		ALONE_ENV(read_after_send, STRICT),
		ALONE(send_after_write),
		ALONE_ENV(send_after_write, STRICT),
		ALONE(send_after_read),
		ALONE_ENV(send_after_read, STRICT),
		ALONE(memory_after_atomic),
		ALONE_ENV(memory_after_atomic, STRICT),
		ALONE(atomic_after_read),
		ALONE_ENV(atomic_after_read, STRICT),
		ALONE(shared_context),
		ALONE(completions_sent),
		ALONE_ENV(completions_sent, STRICT),
		ALONE(completions_apart),
		ALONE(completions_of_the_lost),
		ALONE_ENV(completions_of_the_lost, STRICT),
		ALONE(completions_received),
		ALONE(completions_of_one_buffer),
		ALONE(completions_of_the_dead),
		TWO(ordered_sender, ordered_receiver, "", &in_order, NULL),
		TWO(ordered_sender, ordered_receiver, " CMA=0", &in_order, "FI_SHMCMA_CMA=0"),
		TWO(mixed_initiator, mixed_target, "", &all_orders, NULL),
		TWO(mixed_initiator, mixed_target, " CMA=0", &all_orders, "FI_SHMCMA_CMA=0"),
		TWO(mixed_initiator, mixed_target, " strict", &all_orders, STRICT),
		TWO(mixed_initiator, mixed_target, " strict CMA=0", &all_orders,
		    STRICT " FI_SHMCMA_CMA=0"),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
