/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * matching.c: time for one message of eight bytes among 10 to 10,000 that wait, in the order of posting and
 * against it.
 *
 *	posted		n receives wait; n messages come. From the first send to the last completion.
 *	unexpected	n messages wait; n receives are posted. From the first receive to the last completion.
 *
 * Every message has a tag of its own, which is also what it carries, and is checked.
 */
#include <stdint.h>
#include <stdio.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "endpoint.h"
#include "group.h"
#include "kinds.h"
#include "repeat.h"

#define ENTRIES_MAX 10000
#define ROUNDS_MAX 20000
#define TAG_END (1ULL << 32)
#define GIVE_UP 2.0 /* seconds without one that is taken */

enum { IN_ORDER, REVERSE, ORDERS };

struct matching {
	struct endpoint endpoint;
	struct fi_context2 contexts[ENTRIES_MAX], end_context;
	uint64_t values[ENTRIES_MAX];
	int entries;
	int order; /* of what comes second */
	double spent;
};

static uint64_t nth_tag(const struct matching *m, int i, bool second)
{
	return (uint64_t)(second && m->order == REVERSE ? m->entries - 1 - i : i);
}

/* The provider has room for fewer messages than these: ends the measurement, and says for how many there is room. */
static void no_room(const struct matching *m, int before)
{
	char why[64];

	snprintf(why, sizeof(why), "no room for %d, only for %d", m->entries, before);
	finish(UNAVAILABLE, me.rank ? "receives" : "messages", why);
}

/* It may have room again when it has made progress; after GIVE_UP, it has not. */
static void try_again(struct matching *m, double *since, int before)
{
	endpoint_idle(&m->endpoint);
	*since = *since ? *since : now();
	if (now() - *since > GIVE_UP)
		no_room(m, before);
}

/* The receive of an index has the tag of that index or, second in reverse, its mirror. */
static void post_all(struct matching *m, bool second)
{
	for (int i = 0; i < m->entries; i++) {
		uint64_t tag = nth_tag(m, i, second);
		double since = 0;
		ssize_t ret;

		while ((ret = fi_trecv(m->endpoint.ep, &m->values[tag], sizeof(m->values[0]), NULL,
				       m->endpoint.peer, tag, 0, &m->contexts[i])) == -FI_EAGAIN)
			try_again(m, &since, i);
		if (ret == -FI_ENOMEM) /* the answer of libfabric 1.17's shm when it is full */
			no_room(m, i);
		must("fi_trecv", ret);
		m->endpoint.to_receive++;
	}
}

static void send_one(struct matching *m, uint64_t tag, int before)
{
	double since = 0;
	ssize_t ret;

	while ((ret = fi_tinject(m->endpoint.ep, &tag, sizeof(tag), m->endpoint.peer, tag)) == -FI_EAGAIN)
		try_again(m, &since, before);
	must("fi_tinject", ret);
}

static void send_all(struct matching *m, bool second)
{
	for (int i = 0; i < m->entries; i++)
		send_one(m, nth_tag(m, i, second), i);
}

static void check_values(struct matching *m)
{
	for (int i = 0; i < m->entries; i++) {
		if (m->values[i] != (uint64_t)i)
			finish(FAILED, "received data", "a message of another tag");
		m->values[i] = UINT64_MAX;
	}
}

/* Seconds, to the second process. */
static double posted_round(struct matching *m)
{
	double end = 0;

	if (me.rank)
		post_all(m, false);
	endpoint_barrier(&m->endpoint);
	if (me.rank) {
		endpoint_wait_received(&m->endpoint, 0);
		end = now();
		check_values(m);
	} else {
		group_seat(0)->seconds = now();
		send_all(m, true);
	}
	endpoint_barrier(&m->endpoint);
	return end - group_seat(0)->seconds;
}

/* An empty message behind them tells that they are all there. */
static double unexpected_round(struct matching *m)
{
	struct message end = { .tag = TAG_END, .context = &m->end_context };
	double start = 0, time = 0;

	if (me.rank) {
		endpoint_recv(&m->endpoint, &end);
		endpoint_wait_received(&m->endpoint, 0);
		start = now();
		post_all(m, true);
		endpoint_wait_received(&m->endpoint, 0);
		time = now() - start;
		check_values(m);
	} else {
		send_all(m, false);
		endpoint_send(&m->endpoint, &end);
	}
	endpoint_barrier(&m->endpoint);
	return time;
}

static bool goes_on(struct matching *m, int round)
{
	bool more;

	if (me.rank)
		group_seat(1)->words[0] = round < 3 || (m->spent < repeat_budget && round < ROUNDS_MAX);
	endpoint_barrier(&m->endpoint);
	more = group_seat(1)->words[0];
	endpoint_barrier(&m->endpoint);
	return more;
}

/* Of one message; the first two rounds warm up. */
static double measure(struct matching *m, double (*round)(struct matching *m))
{
	int count = 0;

	for (int i = 0; i < 2; i++)
		round(m);
	for (m->spent = 0; goes_on(m, count); count++)
		m->spent += round(m);
	group_seat(me.rank)->seconds = m->spent / count / m->entries;
	endpoint_barrier(&m->endpoint);
	return group_seat(1)->seconds;
}

static void measure_all(const struct task *task, double (*round)(struct matching *m), int figure)
{
	static const int counts[] = { 10, 100, 1000, ENTRIES_MAX };
	struct wanted wanted = { task->subject, FI_MSG | FI_TAGGED, .receives = ENTRIES_MAX + 1 };
	static struct matching m;

	endpoint_find(&m.endpoint, &wanted);
	if (m.endpoint.info->tx_attr->inject_size < sizeof(m.values[0]))
		finish(UNAVAILABLE, "inject_size", "too small");
	endpoint_open(&m.endpoint, 2);
	endpoint_connect(&m.endpoint, !me.rank);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		for (m.order = IN_ORDER; m.order < ORDERS; m.order++) {
			double seconds;

			m.entries = counts[i];
			seconds = measure(&m, round);
			if (me.rank == 0)
				group_sample(figure + m.order, m.entries, seconds);
		}
	endpoint_barrier(&m.endpoint);
	endpoint_close(&m.endpoint);
}

void matching_posted(const struct task *task)
{
	measure_all(task, posted_round, POSTED_IN_ORDER);
}

void matching_unexpected(const struct task *task)
{
	measure_all(task, unexpected_round, UNEXPECTED_IN_ORDER);
}
