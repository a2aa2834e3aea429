/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided.c: put and get until each is complete at the target (FI_DELIVERY_COMPLETE), one at a time and in
 * windows; fetch-add and compare-swap of a 64-bit word, likewise. The first process measures; the
 * second one is the target.
 *
 * Once with a target that polls its completion queue, once with one that computes and does not call
 * libfabric; and then, beside it, what the kernel does of the same alone (CMA). What makes no progress for GIVE_UP
 * seconds is not to be had then, and is not tried with larger sizes; it completes when the target polls again.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include "endpoint.h"
#include "group.h"
#include "kinds.h"
#include "repeat.h"

#define GIVE_UP 0.5 /* seconds */

enum { POLLS, COMPUTES, TARGETS };

struct onesided {
	struct endpoint endpoint;
	struct fi_context2 contexts[WINDOW];
	uint64_t results[WINDOW];
	void *local, *remote;
	struct fid_mr *mr;
	uint64_t there, key;			       /* the peer's */
	ssize_t (*post)(struct onesided *o, int slot); /* what is measured */
	size_t size;
	int width; /* so many at once */
	pid_t pid; /* the peer's, for CMA alone: which way, and where its memory is */
	bool writes;
	uint64_t memory;
};

/* ---- what is posted ---------------------------------------------------------------------------- */

static ssize_t post_put(struct onesided *o, int slot)
{
	return fi_write(o->endpoint.ep, o->local, o->size, NULL, o->endpoint.peer, o->there, o->key,
			&o->contexts[slot]);
}

static ssize_t post_get(struct onesided *o, int slot)
{
	return fi_read(o->endpoint.ep, o->local, o->size, NULL, o->endpoint.peer, o->there, o->key,
		       &o->contexts[slot]);
}

static ssize_t post_fetch_add(struct onesided *o, int slot)
{
	static const uint64_t one = 1;

	return fi_fetch_atomic(o->endpoint.ep, &one, 1, NULL, &o->results[slot], NULL, o->endpoint.peer,
			       o->there, o->key, FI_UINT64, FI_SUM, &o->contexts[slot]);
}

static ssize_t post_compare_swap(struct onesided *o, int slot)
{
	static const uint64_t one = 1, zero = 0;

	return fi_compare_atomic(o->endpoint.ep, &one, 1, NULL, &zero, NULL, &o->results[slot], NULL,
				 o->endpoint.peer, o->there, o->key, FI_UINT64, FI_CSWAP,
				 &o->contexts[slot]);
}

/* ---- rounds ------------------------------------------------------------------------------------ */

/* Until so many are complete; false: nothing has moved for GIVE_UP seconds. */
static bool wait_complete(struct onesided *o, uint64_t count)
{
	uint64_t before = o->endpoint.sent;
	unsigned polls = 0;
	double since = 0;

	while (o->endpoint.sent < count) {
		endpoint_poll(&o->endpoint);
		if (++polls % 4096 && cpus.count > 1)
			continue;
		if (!since || o->endpoint.sent != before)
			since = now();
		else if (now() - since > GIVE_UP)
			return false;
		before = o->endpoint.sent;
	}
	return true;
}

static bool post(struct onesided *o, int slot)
{
	struct endpoint *endpoint = &o->endpoint;
	ssize_t ret;

	while ((ret = o->post(o, slot)) == -FI_EAGAIN)
		if (endpoint->sent == endpoint->to_send)
			endpoint_poll(endpoint);
		else if (!wait_complete(o, endpoint->sent + 1))
			return false;
	must("one-sided operation", ret);
	endpoint->to_send++;
	return true;
}

static bool windows(void *arg, long count)
{
	struct onesided *o = arg;

	while (count--) {
		for (int slot = 0; slot < o->width; slot++)
			if (!post(o, slot))
				return false;
		if (!wait_complete(o, o->endpoint.to_send))
			return false;
	}
	return true;
}

/* The same without a library. False: it is not permitted. */
static bool cma_windows(void *arg, long count)
{
	struct onesided *o = arg;

	for (long i = 0; i < count * o->width; i++)
		if (!attach_memory(o->pid, o->local, o->memory, o->size, o->writes))
			return false;
	return true;
}

/* ---- both processes ---------------------------------------------------------------------------- */

/* Seconds for one, so many outstanding, to the first process; NAN: not to be had. */
static double measure(struct onesided *o, bool (*rounds)(void *arg, long count), int target, int width)
{
	struct repeat repeat = { .rounds = rounds, .arg = o, .alone = true };
	double seconds = NAN;

	o->width = width;
	group_set_flag(0);
	endpoint_barrier(&o->endpoint);
	if (me.rank && target == COMPUTES)
		group_compute();
	else if (!me.rank)
		seconds = repeat_time(&repeat).seconds / width;
	group_set_flag(1);
	endpoint_barrier(&o->endpoint);
	if (!me.rank)
		endpoint_wait_sent(&o->endpoint);
	endpoint_barrier(&o->endpoint);
	return seconds;
}

/* The same to both: whether it was to be had. */
static bool agree(struct onesided *o, bool mine)
{
	if (!me.rank)
		group_seat(0)->words[3] = mine;
	endpoint_barrier(&o->endpoint);
	return group_seat(0)->words[3];
}

static void exchange_keys(struct onesided *o)
{
	struct fi_info *info = o->endpoint.info;
	struct seat *mine = group_seat(me.rank), *theirs = group_seat(!me.rank);

	mine->words[0] = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)o->remote : 0;
	mine->words[1] = fi_mr_key(o->mr);
	mine->words[2] = (uint64_t)getpid();
	mine->words[3] = (uint64_t)(uintptr_t)o->remote;
	endpoint_barrier(&o->endpoint);
	o->there = theirs->words[0];
	o->key = theirs->words[1];
	o->pid = (pid_t)theirs->words[2];
	o->memory = theirs->words[3];
	endpoint_barrier(&o->endpoint);
}

static void open_onesided(struct onesided *o, const struct task *task, size_t size)
{
	o->local = buffer(size);
	o->remote = buffer(size);
	endpoint_find(&o->endpoint,
		      &(struct wanted){ task->subject, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC,
					FI_THREAD_DOMAIN, 0 });
	endpoint_open(&o->endpoint, 2);
	endpoint_connect(&o->endpoint, !me.rank);
	must("fi_mr_reg", endpoint_register(&o->endpoint, o->remote, size, &o->mr));
	exchange_keys(o);
}

static void close_onesided(struct onesided *o)
{
	endpoint_barrier(&o->endpoint);
	must("fi_close(mr)", fi_close(&o->mr->fid));
	endpoint_close(&o->endpoint);
}

/* ---- put and get ------------------------------------------------------------------------------- */

struct move {
	ssize_t (*post)(struct onesided *o, int slot);
	int latency, bandwidth; /* with a target that polls; the next figure: that computes */
	int cma;		/* bandwidth, with a target that computes */
	bool writes;
};

static void run_once(struct onesided *o, ssize_t (*what)(struct onesided *o, int slot))
{
	o->post = what;
	while (!post(o, 0))
		;
	endpoint_wait_sent(&o->endpoint);
}

/* What is put there comes back. */
static void check_moves(struct onesided *o)
{
	uint8_t *bytes = o->local;

	endpoint_barrier(&o->endpoint);
	if (!me.rank) {
		for (size_t i = 0; i < o->size; i++)
			bytes[i] = (uint8_t)(i * 7 + i / 251 + o->size);
		run_once(o, post_put);
		memset(bytes, 0, o->size);
		run_once(o, post_get);
		for (size_t i = 0; i < o->size; i++)
			if (bytes[i] != (uint8_t)(i * 7 + i / 251 + o->size))
				finish(FAILED, "put and get", "what came back is not what was put");
	}
	endpoint_barrier(&o->endpoint);
}

/* False: not to be had with this target. */
static bool measure_move(struct onesided *o, const struct move *move, int target)
{
	double seconds;
	bool done;

	o->post = move->post;
	seconds = measure(o, windows, target, 1);
	done = agree(o, !isnan(seconds));
	if (!me.rank)
		group_sample(move->latency + target, (double)o->size, seconds);
	if (!done)
		return false;
	seconds = measure(o, windows, target, window_of(o->size));
	if (!me.rank)
		group_sample(move->bandwidth + target, (double)o->size, (double)o->size / seconds);
	if (target != COMPUTES)
		return true;
	o->writes = move->writes;
	seconds = measure(o, cma_windows, target, window_of(o->size));
	if (!me.rank)
		group_sample(move->cma, (double)o->size, (double)o->size / seconds);
	return true;
}

void onesided_moves(const struct task *task)
{
	static const struct move moves[] = {
		{ post_put, PUT_LATENCY, PUT_BANDWIDTH, CMA_WRITE_BANDWIDTH, true },
		{ post_get, GET_LATENCY, GET_BANDWIDTH, CMA_READ_BANDWIDTH, false },
	};
	static struct onesided o;
	bool gone[2][TARGETS] = { { false } };

	open_onesided(&o, task, largest_of(task->sizes));
	for (size_t i = 0; i < task->sizes->count; i++) {
		o.size = task->sizes->bytes[i];
		if (!o.size)
			continue;
		check_moves(&o);
		for (int m = 0; m < 2; m++)
			for (int target = 0; target < TARGETS; target++)
				gone[m][target] = gone[m][target] || !measure_move(&o, &moves[m], target);
	}
	close_onesided(&o);
}

/* ---- atomics ----------------------------------------------------------------------------------- */

static bool has_atomic(struct onesided *o)
{
	size_t count = 0;
	int ret = o->post == post_fetch_add
			  ? fi_fetch_atomicvalid(o->endpoint.ep, FI_UINT64, FI_SUM, &count)
			  : fi_compare_atomicvalid(o->endpoint.ep, FI_UINT64, FI_CSWAP, &count);

	return ret == 0 && count;
}

static void measure_atomic(struct onesided *o, int latency, int rate)
{
	for (int target = 0; target < TARGETS; target++) {
		double seconds = NAN, each = NAN;

		if (has_atomic(o))
			seconds = measure(o, windows, target, 1);
		if (agree(o, !isnan(seconds)))
			each = measure(o, windows, target, WINDOW);
		if (me.rank)
			continue;
		group_sample(latency + target, 8, seconds);
		group_sample(rate + target, 8, 1 / each);
	}
}

void onesided_atomics(const struct task *task)
{
	static struct onesided o;

	open_onesided(&o, task, sizeof(uint64_t));
	o.post = post_fetch_add;
	measure_atomic(&o, FETCH_ADD_LATENCY, FETCH_ADD_RATE);
	o.post = post_compare_swap;
	measure_atomic(&o, COMPARE_SWAP_LATENCY, COMPARE_SWAP_RATE);
	close_onesided(&o);
}
