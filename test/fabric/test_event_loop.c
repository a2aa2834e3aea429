/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_event_loop.c: the descriptor of a completion queue in somebody else's event loop: libevent's, as an
 * application would use it. Messages go back and forth between two processes, both in their loops, beside a timer
 * and a pipe of the application's own; nobody polls.
 *
 * libevent is loaded at run time, so that the tests need no header of it; without the library the test is
 * skipped.
 */
#include "pair.h"

#include <dlfcn.h>

#define ROUNDS 500

/* event2/event.h, what is used of it */
struct event_base;
struct event;
#define EV_READ 0x02
#define EV_PERSIST 0x10
static struct event_base *(*event_base_new)(void);
static void (*event_base_free)(struct event_base *base);
static struct event *(*event_new)(struct event_base *base, int fd, short what,
				  void (*call)(int fd, short what, void *arg), void *arg);
static void (*event_free)(struct event *event);
static int (*event_add)(struct event *event, const struct timeval *timeout);
static int (*event_base_loop)(struct event_base *base, int flags);
static int (*event_base_loopbreak)(struct event_base *base);

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	must(found);
	return found;
}

static void load(void)
{
	void *library = dlopen("libevent_core-2.1.so.7", RTLD_NOW);

	if (!library)
		library = dlopen("libevent-2.1.so.7", RTLD_NOW);
	if (!library)
		exit(PAIR_SKIP);
	*(void **)&event_base_new = symbol(library, "event_base_new");
	*(void **)&event_base_free = symbol(library, "event_base_free");
	*(void **)&event_new = symbol(library, "event_new");
	*(void **)&event_free = symbol(library, "event_free");
	*(void **)&event_add = symbol(library, "event_add");
	*(void **)&event_base_loop = symbol(library, "event_base_loop");
	*(void **)&event_base_loopbreak = symbol(library, "event_base_loopbreak");
}

struct loop {
	struct pair *pair;
	struct event_base *base;
	uint64_t number; /* of the last message that has come */
	uint64_t out, in;
	bool answers;
	int ticks, bytes;
};

static void expect_next(struct loop *loop)
{
	gives(fi_recv(loop->pair->a.ep, &loop->in, sizeof(loop->in), NULL, FI_ADDR_UNSPEC, &loop->in), 0);
}

static void say(struct loop *loop, uint64_t number)
{
	loop->out = number;
	gives(fi_inject(loop->pair->a.ep, &loop->out, sizeof(loop->out), loop->pair->a.peer), 0);
	pair_seen.sent++;
}

static void take(struct loop *loop)
{
	gives(loop->in, loop->number + 1);
	loop->number = loop->in;
	pair_seen.received++;
	if (loop->number < ROUNDS)
		expect_next(loop);
	if (loop->answers)
		say(loop, loop->number);
	else if (loop->number < ROUNDS)
		say(loop, loop->number + 1);
}

/* Until there is nothing to read and fi_trywait() says so: only then the loop may sleep. */
static void ready(int fd, short what, void *arg)
{
	struct loop *loop = arg;
	struct fid *fid = &loop->pair->a.cq->fid;
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	(void)fd, (void)what;
	do {
		while ((ret = fi_cq_read(loop->pair->a.cq, &entry, 1)) == 1)
			take(loop);
		gives(ret, -FI_EAGAIN);
	} while (fi_trywait(loop->pair->fabric, &fid, 1));
	if (loop->number == ROUNDS)
		event_base_loopbreak(loop->base);
}

static void tick(int fd, short what, void *arg)
{
	(void)fd, (void)what;
	((struct loop *)arg)->ticks++;
}

static void byte_came(int fd, short what, void *arg)
{
	char byte;

	(void)what;
	gives(read(fd, &byte, 1), 1);
	((struct loop *)arg)->bytes++;
}

static void run(struct pair *pair, bool answers)
{
	struct loop loop = { .pair = pair, .answers = answers };
	struct timeval often = { .tv_usec = 1000 };
	struct event *events[3];
	int fd, ends[2];

	load();
	loop.base = event_base_new();
	must(loop.base);
	gives(fi_control(&pair->a.cq->fid, FI_GETWAIT, &fd), 0);
	gives(pipe(ends), 0);
	events[0] = event_new(loop.base, fd, EV_READ | EV_PERSIST, ready, &loop);
	events[1] = event_new(loop.base, -1, EV_PERSIST, tick, &loop);
	events[2] = event_new(loop.base, ends[0], EV_READ | EV_PERSIST, byte_came, &loop);
	gives(event_add(events[0], NULL), 0);
	gives(event_add(events[1], &often), 0);
	gives(event_add(events[2], NULL), 0);
	gives(write(ends[1], "", 1), 1);
	expect_next(&loop);
	if (!answers)
		say(&loop, 1);
	ready(fd, 0, &loop); /* before the first sleep */
	if (loop.number < ROUNDS)
		(void)event_base_loop(loop.base, 0);
	gives(loop.number, ROUNDS);
	must(loop.bytes <= 1);
	for (int i = 0; i < 3; i++)
		event_free(events[i]);
	event_base_free(loop.base);
	close(ends[0]);
	close(ends[1]);
}

static void asks(struct pair *pair)
{
	run(pair, false);
}

static void answers(struct pair *pair)
{
	run(pair, true);
}

static const struct pair_want with_descriptor = { .wait_obj = FI_WAIT_FD };

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ .name = "libevent",
		  .test_func = pair_both,
		  .initial_state = &(
			  struct pair_test){ .first = asks, .second = answers, .want = &with_descriptor } },
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
