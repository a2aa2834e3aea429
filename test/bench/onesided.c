/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided.c: put and get until each is complete at the target (FI_DELIVERY_COMPLETE), one at a time and in
 * windows; fetch-add, compare-swap and sum of a 64-bit word, likewise. The first process measures; the
 * second one is the target. The kind "styles" posts puts as programs and MPI libraries do: it injects those
 * that fit, sends remote data with them, plays ping-pong, and lets both processes post at once. The kind
 * "scattered" puts and sums words at random places of a memory, as hash tables and graphs do.
 *
 * The target first polls its completion queue; then it computes and does not call libfabric. Beside the second figure
 * stands that of the kernel alone (CMA) for the same copy. An operation that makes no progress for GIVE_UP seconds
 * gives no figure, and is not tried with larger sizes; it completes when the target polls again.
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
	ssize_t (*post)(struct onesided *o, int slot); /* the operation to measure */
	size_t size;
	int width; /* so many at once */
	pid_t pid; /* the peer's, for CMA alone: which way, and where its memory is */
	bool writes;
	uint64_t memory;
	bool data;     /* style: each put has remote data */
	uint8_t round; /* ping-pong of memory: the last byte of each put */
	uint64_t places, random; /* scattered: so many words, the last one chosen */
};

/* Returns where the next word goes. */
static uint64_t place(struct onesided *o)
{
	if (!o->places)
		return o->there;
	o->random = o->random * 6364136223846793005 + 1442695040888963407;
	return o->there + (o->random >> 32) % o->places * sizeof(uint64_t);
}

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

/* Complete when the target is sure to do it, as an application has it that asks for nothing more. */
static ssize_t post_sum(struct onesided *o, int slot)
{
	static uint64_t one = 1;
	struct fi_ioc operand = { &one, 1 };
	struct fi_rma_ioc remote = { place(o), 1, o->key };
	struct fi_msg_atomic msg = { .msg_iov = &operand,
				     .iov_count = 1,
				     .addr = o->endpoint.peer,
				     .rma_iov = &remote,
				     .rma_iov_count = 1,
				     .datatype = FI_UINT64,
				     .op = FI_SUM,
				     .context = &o->contexts[slot] };

	return fi_atomicmsg(o->endpoint.ep, &msg, FI_TRANSMIT_COMPLETE);
}

static ssize_t post_data(struct onesided *o, int slot)
{
	return fi_writedata(o->endpoint.ep, o->local, o->size, NULL, 1, o->endpoint.peer, o->there, o->key,
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

/* Until the provider takes it; false: it has not taken it for GIVE_UP seconds. */
static bool taken(struct onesided *o, ssize_t (*what)(struct onesided *o, int slot), int slot)
{
	unsigned polls = 0;
	double since = 0;
	ssize_t ret;

	while ((ret = what(o, slot)) == -FI_EAGAIN) {
		endpoint_poll(&o->endpoint);
		if (++polls % 4096 && cpus.count > 1)
			continue;
		if (!since)
			since = now();
		else if (now() - since > GIVE_UP)
			return false;
	}
	must("one-sided operation", ret);
	return true;
}

static bool post(struct onesided *o, int slot)
{
	if (!taken(o, o->post, slot))
		return false;
	o->endpoint.to_send++;
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

/* The first process gets the seconds for one operation, with `width` outstanding; NAN: there is no figure. */
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

/* Tells both processes whether the first one has its figure. */
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

/* A get returns the bytes that a put has written. */
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
				finish(FAILED, "put and get", "the get did not return the bytes that were put");
	}
	endpoint_barrier(&o->endpoint);
}

/* False: there is no figure with this target. */
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
		  : o->post == post_sum
			  ? fi_atomicvalid(o->endpoint.ep, FI_UINT64, FI_SUM, &count)
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
	o.post = post_sum;
	measure_atomic(&o, SUM_LATENCY, SUM_RATE);
	close_onesided(&o);
}

/* ---- styles ------------------------------------------------------------------------------------ */

static bool is_injected(const struct onesided *o)
{
	return o->size <= o->endpoint.info->tx_attr->inject_size;
}

static ssize_t post_injected(struct onesided *o, int slot)
{
	(void)slot;
	if (o->data)
		return fi_inject_writedata(o->endpoint.ep, o->local, o->size, 1, o->endpoint.peer,
					   o->there, o->key);
	return fi_inject_write(o->endpoint.ep, o->local, o->size, o->endpoint.peer, place(o), o->key);
}

/* Posts a put that completes. False: it is not taken. */
static bool put_that_completes(struct onesided *o)
{
	o->post = o->data ? post_data : post_put;
	return post(o, 0);
}

/* Posts a put as messages are: injected if it fits. */
static bool put_in_style(struct onesided *o)
{
	return is_injected(o) ? taken(o, post_injected, 0) : put_that_completes(o);
}

static void wait_put(struct onesided *o)
{
	const volatile uint8_t *last = (uint8_t *)o->remote + o->size - 1;

	if (o->data)
		endpoint_wait_received(&o->endpoint, 0);
	else
		while (*last != o->round)
			endpoint_poll(&o->endpoint);
}

/* The one who gets a put sees the last byte change, or reads its remote data; then it puts back. */
static bool pingpong(void *arg, long count)
{
	struct onesided *o = arg;

	while (count--) {
		((uint8_t *)o->local)[o->size - 1] = ++o->round;
		o->endpoint.to_receive += o->data;
		if (me.rank)
			wait_put(o);
		while (!put_in_style(o))
			;
		if (!me.rank)
			wait_put(o);
		endpoint_wait_sent(&o->endpoint);
	}
	return true;
}

/* All but the last put of a window are injected; the last one tells when they are done. */
static bool injected_windows(void *arg, long count)
{
	struct onesided *o = arg;

	while (count--) {
		for (int slot = 1; slot < o->width; slot++)
			if (!put_in_style(o))
				return false;
		if (!put_that_completes(o) || !wait_complete(o, o->endpoint.to_send))
			return false;
	}
	return true;
}

/* Seconds of a round that both take part in. */
static double measure_both(struct onesided *o, bool (*rounds)(void *arg, long count), int width)
{
	struct repeat repeat = {
		.rounds = rounds, .arg = o, .idle = endpoint_idle, .idle_arg = &o->endpoint
	};
	double seconds;

	o->width = width;
	o->round = 0;
	o->endpoint.to_receive = o->endpoint.received; /* windows with data have no count of these */
	memset(o->remote, 0, o->size);
	endpoint_barrier(&o->endpoint);
	seconds = repeat_time(&repeat).seconds;
	endpoint_barrier(&o->endpoint);
	return seconds;
}

static void measure_pingpongs(struct onesided *o)
{
	for (int data = 0; data < 2; data++) {
		double seconds;

		o->data = data;
		seconds = measure_both(o, pingpong, 1) / 2;
		if (!me.rank)
			group_sample(data ? PUT_DATA_PINGPONG : PUT_PINGPONG, (double)o->size, seconds);
	}
}

static void measure_windows(struct onesided *o)
{
	static const struct {
		int target, figure;
		bool data;
	} styles[] = { { POLLS, PUT_INJECTED_RATE, false },
		       { COMPUTES, PUT_INJECTED_RATE_PASSIVE, false },
		       { POLLS, PUT_DATA_RATE, true } };

	for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++) {
		double seconds;

		if (!styles[i].data && !is_injected(o))
			continue;
		o->data = styles[i].data;
		seconds = measure(o, injected_windows, styles[i].target, window_of(o->size));
		if (!me.rank)
			group_sample(styles[i].figure, (double)o->size, 1 / seconds);
	}
}

/*
 * The first process gets the seconds from the return of the last of a window of injected puts until its bytes are
 * there, while neither process calls libfabric; NAN: there is no figure.
 */
static double landing(struct onesided *o)
{
	const volatile uint8_t *last = (uint8_t *)o->remote + o->size - 1;
	double since;

	group_set_flag(0);
	endpoint_barrier(&o->endpoint);
	o->round++;
	if (me.rank) {
		since = now();
		while (*last != o->round && now() - since < GIVE_UP)
			;
		group_seat(1)->seconds = *last == o->round ? now() : NAN;
		group_set_flag(1);
	} else {
		for (int slot = 1; slot <= o->width; slot++) {
			((uint8_t *)o->local)[o->size - 1] = slot < o->width ? 0 : o->round;
			if (!put_in_style(o))
				break;
		}
		since = now();
		while (!group_flag())
			;
	}
	endpoint_barrier(&o->endpoint);
	if (me.rank || isnan(group_seat(1)->seconds))
		return group_seat(1)->seconds;
	return fmax(group_seat(1)->seconds - since, 0);
}

static void measure_landing(struct onesided *o)
{
	double seconds;

	if (!is_injected(o))
		return;
	o->data = false;
	o->round = 0;
	o->width = window_of(o->size);
	memset(o->remote, 0, o->size);
	seconds = landing(o);
	if (!me.rank)
		group_sample(PUT_INJECTED_LANDING, (double)o->size, seconds);
}

static void measure_both_ways(struct onesided *o)
{
	int width = window_of(o->size);

	for (int get = 0; get < 2; get++) {
		double seconds;

		o->post = get ? post_get : post_put;
		seconds = measure_both(o, windows, width);
		if (!me.rank)
			group_sample(get ? GET_BOTH_WAYS : PUT_BOTH_WAYS, (double)o->size,
				     2 * (double)o->size * width / seconds);
	}
}

void onesided_styles(const struct task *task)
{
	static struct onesided o;

	open_onesided(&o, task, largest_of(task->sizes));
	for (size_t i = 0; i < task->sizes->count; i++) {
		o.size = task->sizes->bytes[i];
		if (!o.size)
			continue;
		measure_pingpongs(&o);
		measure_windows(&o);
		measure_landing(&o);
		measure_both_ways(&o);
	}
	close_onesided(&o);
}

/* ---- scattered --------------------------------------------------------------------------------- */

/* The first put to a page may cost more: the figures are of those that follow. */
static void visit_pages(struct onesided *o, size_t memory)
{
	const uint64_t there = o->there;

	o->places = 0;
	if (!me.rank)
		for (; o->there - there < memory; o->there += (uint64_t)getpagesize())
			run_once(o, post_put);
	o->there = there;
	endpoint_barrier(&o->endpoint);
}

void onesided_scattered(const struct task *task)
{
	static const size_t memories[] = { 128 << 10, 1 << 20, 64 << 20 };
	static struct onesided o;

	open_onesided(&o, task, memories[2]);
	memset(o.remote, 0, memories[2]);
	o.size = sizeof(uint64_t);
	for (size_t i = 0; i < sizeof(memories) / sizeof(memories[0]); i++) {
		double seconds;

		visit_pages(&o, memories[i]);
		o.places = memories[i] / sizeof(uint64_t);
		if (is_injected(&o)) {
			seconds = measure(&o, injected_windows, POLLS, WINDOW);
			if (!me.rank)
				group_sample(PUT_SCATTERED_RATE, (double)memories[i], 1 / seconds);
		}
		o.post = post_sum;
		if (has_atomic(&o)) {
			seconds = measure(&o, windows, POLLS, WINDOW);
			if (!me.rank)
				group_sample(SUM_SCATTERED_RATE, (double)memories[i], 1 / seconds);
		}
	}
	close_onesided(&o);
}
