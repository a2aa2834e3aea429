/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pingpong.c: half a round trip between two processes, receives posted ahead.
 *
 * The latency of a wake-up is that of a message to a process that sleeps while it waits: each process computes for
 * WAKEUP_PAUSE before it answers, and that time is subtracted.
 *
 * Every size is checked for content once before it is timed.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "endpoint.h"
#include "group.h"
#include "kinds.h"
#include "repeat.h"

struct pingpong {
	struct endpoint endpoint;
	struct fi_context2 send_context, recv_context;
	struct message ping, pong; /* the message that we send, the one that we receive */
	double pause;		   /* before it is sent */
};

static void send_ping(struct pingpong *p)
{
	if (p->pause > 0)
		compute_for(p->pause);
	endpoint_send(&p->endpoint, &p->ping);
}

static void one_round(struct pingpong *p)
{
	if (me.rank == 0) {
		send_ping(p);
		endpoint_wait_received(&p->endpoint, 0);
		endpoint_wait_sent(&p->endpoint);
		endpoint_recv(&p->endpoint, &p->pong);
	} else {
		endpoint_wait_received(&p->endpoint, 0);
		endpoint_recv(&p->endpoint, &p->pong);
		send_ping(p);
		endpoint_wait_sent(&p->endpoint);
	}
}

static bool rounds(void *arg, long count)
{
	while (count--)
		one_round(arg);
	return true;
}

/* Every rank and size has a pattern of its own. */
static uint8_t pattern(size_t at, size_t size, int rank)
{
	return (uint8_t)(at * 7 + at / 251 + size + (size_t)rank * 101 + 57);
}

static void write_pattern(const struct message *message, int rank)
{
	struct iovec vector[FRAGMENTS_MAX];
	size_t count = message_vector(message, vector), at = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < vector[i].iov_len; k++)
			((uint8_t *)vector[i].iov_base)[k] = pattern(at++, message->size, rank);
}

static void check_pattern(const struct message *message, int rank)
{
	struct iovec vector[FRAGMENTS_MAX];
	size_t count = message_vector(message, vector), at = 0;
	char where[64];

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < vector[i].iov_len; k++, at++) {
			if (((uint8_t *)vector[i].iov_base)[k] == pattern(at, message->size, rank))
				continue;
			snprintf(where, sizeof(where), "byte %zu of %zu is wrong", at, message->size);
			finish(FAILED, "received data", where);
		}
}

static struct repeat_time measure(struct pingpong *p, size_t size)
{
	struct repeat repeat = {
		.rounds = rounds, .arg = p, .idle = endpoint_idle, .idle_arg = &p->endpoint
	};
	struct repeat_time time;

	p->ping.size = p->pong.size = size;
	write_pattern(&p->ping, me.rank);
	write_pattern(&p->pong, me.rank);
	endpoint_recv(&p->endpoint, &p->pong);
	endpoint_barrier(&p->endpoint);
	one_round(p);
	check_pattern(&p->pong, !me.rank);
	time = repeat_time(&repeat);
	/* Use up the receives that are still posted. */
	endpoint_send(&p->endpoint, &p->ping);
	endpoint_wait_sent(&p->endpoint);
	endpoint_wait_received(&p->endpoint, 0);
	return time;
}

static void open_pingpong(struct pingpong *p, const struct task *task, size_t largest)
{
	p->ping = (struct message){ .buf = buffer(largest), .context = &p->send_context };
	p->pong = (struct message){ .buf = buffer(largest), .context = &p->recv_context };
	endpoint_find(&p->endpoint,
		      &(struct wanted){ task->subject, FI_MSG | FI_TAGGED, FI_THREAD_DOMAIN, 0 });
}

static void close_pingpong(struct pingpong *p)
{
	endpoint_barrier(&p->endpoint);
	endpoint_close(&p->endpoint);
}

static void measure_sizes(const struct task *task, bool plain, int figure)
{
	static struct pingpong p;

	open_pingpong(&p, task, largest_of(task->sizes));
	p.endpoint.plain = plain;
	endpoint_open(&p.endpoint, 2);
	endpoint_connect(&p.endpoint, !me.rank);
	for (size_t i = 0; i < task->sizes->count; i++) {
		double seconds = measure(&p, task->sizes->bytes[i]).seconds / 2;

		if (me.rank == 0)
			group_sample(figure, (double)task->sizes->bytes[i], seconds);
	}
	close_pingpong(&p);
}

void pingpong_tagged(const struct task *task)
{
	measure_sizes(task, false, TAGGED_LATENCY);
}

void pingpong_plain(const struct task *task)
{
	measure_sizes(task, true, PLAIN_LATENCY);
}

/* A message of `largest` bytes or fewer in fragments, with as much between them as they are long. */
static struct message fragmented(size_t largest, int fragments, void *context)
{
	size_t stride = 2 * (largest / (size_t)fragments + 1);

	return (struct message){ .buf = buffer((size_t)fragments * stride),
				 .fragments = (size_t)fragments,
				 .stride = stride,
				 .context = context };
}

/* Sent, received, and both sent and received in so many fragments. */
void pingpong_fragments(const struct task *task)
{
	static struct pingpong p;
	size_t largest = largest_of(task->sizes);
	int first = task->number == 4 ? SENT_IN_4 : SENT_IN_8;

	open_pingpong(&p, task, largest);
	if ((size_t)task->number > p.endpoint.info->tx_attr->iov_limit)
		finish(UNAVAILABLE, "tx_attr->iov_limit", "vectors of fewer elements");
	endpoint_open(&p.endpoint, 2);
	endpoint_connect(&p.endpoint, !me.rank);
	for (int side = 0; side < 3; side++) {
		p.ping = fragmented(largest, side == 1 ? 1 : task->number, &p.send_context);
		p.pong = fragmented(largest, side == 0 ? 1 : task->number, &p.recv_context);
		for (size_t i = 0; i < task->sizes->count; i++) {
			double seconds = measure(&p, task->sizes->bytes[i]).seconds / 2;

			if (me.rank == 0)
				group_sample(first + side, (double)task->sizes->bytes[i], seconds);
		}
	}
	close_pingpong(&p);
}

/* Eight bytes; each waits asleep for the other. */
static void measure_wakeup(const struct task *task, enum idle idle, int latency, int cpu)
{
	static struct pingpong p;
	struct repeat_time time;

	open_pingpong(&p, task, 8);
	p.endpoint.idle = idle;
	p.pause = WAKEUP_PAUSE;
	endpoint_open(&p.endpoint, 2);
	endpoint_connect(&p.endpoint, !me.rank);
	time = measure(&p, 8);
	if (me.rank == 0) {
		group_sample(latency, 8, time.seconds / 2 - WAKEUP_PAUSE);
		group_sample(cpu, 8, time.cpu / 2 - WAKEUP_PAUSE);
	}
	close_pingpong(&p);
}

void pingpong_wakeup_fd(const struct task *task)
{
	measure_wakeup(task, SLEEPS, WAKEUP_FD, WAKEUP_FD_CPU);
}

void pingpong_wakeup_sread(const struct task *task)
{
	measure_wakeup(task, SREADS, WAKEUP_SREAD, WAKEUP_SREAD_CPU);
}
