/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stream.c: windows of messages from one buffer into one buffer, one way (each window is answered by an
 * empty message), both ways, and by several pairs of processes at once.
 *
 * The sender is one window ahead: it sends the next before it waits for the answer to the last one, for which
 * receives have been posted. So a stream does not stop at the end of a window, as that of ucx_perftest does not,
 * and is as fast as the slower of the two, not as both one after the other.
 */
#include <string.h>

#include "endpoint.h"
#include "group.h"
#include "kinds.h"
#include "repeat.h"

#define RATE_MAX_BYTES 4096 /* larger messages have a bandwidth */

struct stream {
	struct endpoint endpoint;
	struct fi_context2 send_contexts[WINDOW], recv_contexts[2][WINDOW];
	void *send_buf, *recv_buf;
	size_t size;
	int window, turn; /* turn: which contexts the next window's receives have */
	bool sends, receives;
};

static void send_window(struct stream *s)
{
	for (int i = 0; i < s->window; i++) {
		struct message message = { .buf = s->send_buf,
					   .size = s->size,
					   .tag = 1,
					   .context = &s->send_contexts[i] };

		endpoint_send(&s->endpoint, &message);
	}
}

static void recv_window(struct stream *s)
{
	for (int i = 0; i < s->window; i++) {
		struct message message = { .buf = s->recv_buf,
					   .size = s->size,
					   .tag = 1,
					   .context = &s->recv_contexts[s->turn][i] };

		endpoint_recv(&s->endpoint, &message);
	}
	s->turn = !s->turn;
}

/* An empty message to or from the other. Two may be on their way. */
static const struct message *answer(void)
{
	static struct fi_context2 contexts[2];
	static struct message messages[2] = { { .tag = 2, .context = &contexts[0] },
					      { .tag = 2, .context = &contexts[1] } };
	static int turn;

	turn = !turn;
	return &messages[turn];
}

static void one_way(struct stream *s)
{
	if (s->sends) {
		endpoint_recv(&s->endpoint, answer());
		send_window(s);
		endpoint_wait_sent(&s->endpoint);
		endpoint_wait_received(&s->endpoint, 1);
	} else {
		endpoint_wait_received(&s->endpoint, s->window);
		recv_window(s);
		endpoint_send(&s->endpoint, answer());
		endpoint_wait_sent(&s->endpoint);
	}
}

static void both_ways(struct stream *s)
{
	send_window(s);
	endpoint_wait_received(&s->endpoint, s->window);
	endpoint_wait_sent(&s->endpoint);
	recv_window(s);
}

static bool rounds(void *arg, long count)
{
	struct stream *s = arg;

	while (count--) {
		if (s->sends && s->receives)
			both_ways(s);
		else
			one_way(s);
	}
	return true;
}

/* The times of one window. A receiver has two windows posted ahead, also after the last round. */
static struct repeat_time measure(struct stream *s, size_t size)
{
	struct repeat repeat = {
		.rounds = rounds, .arg = s, .idle = endpoint_idle, .idle_arg = &s->endpoint
	};
	struct repeat_time time;

	s->size = size;
	s->window = window_of(size);
	for (int ahead = 0; ahead < 2 && s->receives; ahead++)
		recv_window(s);
	time = repeat_time(&repeat);
	for (int ahead = 0; ahead < 2 && s->sends; ahead++)
		send_window(s);
	endpoint_wait_sent(&s->endpoint);
	endpoint_wait_received(&s->endpoint, 0);
	endpoint_barrier(&s->endpoint);
	return time;
}

static void open_stream(struct stream *s, const struct task *task, size_t largest)
{
	s->send_buf = buffer(largest);
	s->recv_buf = buffer(largest);
	endpoint_find(&s->endpoint,
		      &(struct wanted){ task->subject, FI_MSG | FI_TAGGED, FI_THREAD_DOMAIN, 0 });
	endpoint_open(&s->endpoint, (size_t)me.processes);
	endpoint_connect(&s->endpoint, me.rank ^ 1);
}

static void close_stream(struct stream *s)
{
	endpoint_barrier(&s->endpoint);
	endpoint_close(&s->endpoint);
}

void stream_one_way(const struct task *task)
{
	static struct stream s;

	s.sends = me.rank == 0;
	s.receives = !s.sends;
	open_stream(&s, task, largest_of(task->sizes));
	for (size_t i = 0; i < task->sizes->count; i++) {
		size_t size = task->sizes->bytes[i];
		struct repeat_time time = measure(&s, size);

		if (me.rank)
			continue;
		if (size)
			group_sample(BANDWIDTH, (double)size, (double)size * s.window / time.seconds);
		if (size <= RATE_MAX_BYTES)
			group_sample(RATE, (double)size, s.window / time.seconds);
		group_sample(STREAM_CPU, (double)size, time.cpu / s.window);
	}
	close_stream(&s);
}

void stream_both_ways(const struct task *task)
{
	static struct stream s;

	s.sends = s.receives = true;
	open_stream(&s, task, largest_of(task->sizes));
	for (size_t i = 0; i < task->sizes->count; i++) {
		size_t size = task->sizes->bytes[i];
		double seconds;

		if (!size)
			continue;
		seconds = measure(&s, size).seconds;
		if (me.rank == 0)
			group_sample(BIDIRECTIONAL, (double)size, 2 * (double)size * s.window / seconds);
	}
	close_stream(&s);
}

/* The messages and bytes that all pairs move in a second, by the time of the slowest pair. */
void stream_pairs(const struct task *task)
{
	static struct stream s;
	double rate, bandwidth;
	int pairs = me.processes / 2;

	s.sends = me.rank % 2 == 0;
	s.receives = !s.sends;
	open_stream(&s, task, 65536);
	rate = pairs * WINDOW / measure(&s, 64).seconds;
	bandwidth = pairs * WINDOW * 65536.0 / measure(&s, 65536).seconds;
	if (me.rank == 0) {
		group_sample(PAIRS_RATE, me.processes, rate);
		group_sample(PAIRS_BANDWIDTH, me.processes, bandwidth);
	}
	close_stream(&s);
}
