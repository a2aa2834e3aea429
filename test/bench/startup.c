/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * startup.c: an endpoint, and its first message to each of so many peers: the time from fi_fabric until all
 * messages have been received, and the memory of the endpoint and of each peer.
 *
 * All peers are endpoints of the second process, which polls for them: as many processes as peers would
 * measure the scheduler. The time to open the peers is not counted, their memory in /dev/shm is.
 *
 * A job is as many processes as it says, each with an endpoint; each sends a message to each of the others.
 *
 * Memory in /dev/shm is what statvfs(3) says is used there: of everybody who uses it meanwhile. Resident
 * memory is the first process's, what it shares among it.
 */
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "endpoint.h"
#include "group.h"
#include "kinds.h"

#define PEERS_MAX 63

struct usage {
	double shm, rss; /* bytes */
};

static struct usage usage_now(void)
{
	struct usage usage = { 0, 0 };
	struct statvfs shm;
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	if (file && fscanf(file, "%*d %ld", &pages) == 1)
		usage.rss = (double)pages * (double)sysconf(_SC_PAGESIZE);
	if (file)
		fclose(file);
	if (statvfs("/dev/shm", &shm) == 0)
		usage.shm = (double)(shm.f_blocks - shm.f_bfree) * (double)shm.f_frsize;
	return usage;
}

/* ---- the second process: all peers ------------------------------------------------------------- */

static void open_peers(struct endpoint *endpoint, struct fid_ep **eps, int count)
{
	endpoint_open(endpoint, PEERS_MAX + 1);
	eps[0] = endpoint->ep;
	for (int i = 1; i < count; i++)
		eps[i] = endpoint_open_more(endpoint);
	for (int i = 0; i < count; i++)
		endpoint_get_name(eps[i], group_name(1 + i));
}

static void post_receives(struct endpoint *endpoint, struct fid_ep **eps, int count)
{
	static struct fi_context2 contexts[PEERS_MAX];
	static uint64_t values[PEERS_MAX];

	for (int i = 0; i < count; i++) {
		struct message message = { .buf = &values[i],
					   .size = sizeof(values[i]),
					   .context = &contexts[i] };

		endpoint->ep = eps[i];
		endpoint->peer = FI_ADDR_UNSPEC;
		endpoint_recv(endpoint, &message);
	}
}

static void serve(struct endpoint *endpoint, int count)
{
	struct fid_ep *eps[PEERS_MAX];

	group_barrier(NULL, NULL); /* the first process has opened its own */
	open_peers(endpoint, eps, count);
	endpoint_barrier(endpoint);
	endpoint_insert(endpoint, group_name(0));
	post_receives(endpoint, eps, count);
	endpoint_barrier(endpoint);
	endpoint_wait_received(endpoint, 0);
	group_seat(1)->seconds = now();
	group_set_flag(1);
	endpoint_barrier(endpoint);
	for (int i = 1; i < count; i++)
		must("fi_close(ep)", fi_close(&eps[i]->fid));
	endpoint->ep = eps[0];
	endpoint_close(endpoint);
}

/* ---- the first process ------------------------------------------------------------------------- */

static void send_first_messages(struct endpoint *endpoint, int count)
{
	static struct fi_context2 contexts[PEERS_MAX];
	static uint64_t value = 1;
	fi_addr_t peers[PEERS_MAX];

	for (int i = 0; i < count; i++)
		peers[i] = endpoint_insert(endpoint, group_name(1 + i));
	for (int i = 0; i < count; i++) {
		struct message message = { .buf = &value,
					   .size = sizeof(value),
					   .context = &contexts[i] };

		endpoint->peer = peers[i];
		endpoint_send(endpoint, &message);
	}
	while (!group_flag())
		endpoint_poll(endpoint);
	endpoint_wait_sent(endpoint);
}

static void open_and_send(struct endpoint *endpoint, int count)
{
	struct usage none = usage_now(), alone, before, after;
	double opening = now(), sending;

	endpoint_open(endpoint, PEERS_MAX + 1);
	endpoint_get_name(endpoint->ep, group_name(0));
	opening = now() - opening;
	alone = usage_now();
	group_barrier(NULL, NULL);
	endpoint_barrier(endpoint); /* the peers are open */
	before = usage_now();
	endpoint_barrier(endpoint);
	sending = now();
	send_first_messages(endpoint, count);
	sending = group_seat(1)->seconds - sending;
	after = usage_now();
	group_sample(STARTUP_TIME, count, opening + sending);
	group_sample(PEER_SHM, count, (after.shm - before.shm) / count);
	group_sample(PEER_RSS, count, (after.rss - before.rss) / count);
	group_sample(TOTAL_SHM, count, after.shm - none.shm);
	if (count == 1) {
		group_sample(ENDPOINT_TIME, 1, opening);
		group_sample(ENDPOINT_SHM, 1, alone.shm - none.shm);
		group_sample(ENDPOINT_RSS, 1, alone.rss - none.rss);
	}
	endpoint_barrier(endpoint);
	endpoint_close(endpoint);
}

void startup_with_peers(const struct task *task)
{
	static struct endpoint endpoint;

	endpoint_find(&endpoint,
		      &(struct wanted){ task->subject, FI_MSG | FI_TAGGED, FI_THREAD_DOMAIN, 0 });
	group_barrier(NULL, NULL);
	if (me.rank)
		serve(&endpoint, task->number);
	else
		open_and_send(&endpoint, task->number);
}

/* ---- a job: all to all ------------------------------------------------------------------------- */

static void talk_to_all(struct endpoint *endpoint)
{
	static struct fi_context2 contexts[2 * PROCESSES_MAX];
	static uint64_t values[PROCESSES_MAX], value = 1;
	fi_addr_t peers[PROCESSES_MAX];

	for (int i = 0; i < me.processes; i++)
		peers[i] = endpoint_insert(endpoint, group_name(i));
	for (int k = 1; k < me.processes; k++) {
		int i = (me.rank + k) % me.processes;
		struct message in = { .buf = &values[i],
				      .size = sizeof(values[i]),
				      .context = &contexts[i] };
		struct message out = { .buf = &value,
				       .size = sizeof(value),
				       .context = &contexts[PROCESSES_MAX + i] };

		endpoint->peer = FI_ADDR_UNSPEC;
		endpoint_recv(endpoint, &in);
		endpoint->peer = peers[i];
		endpoint_send(endpoint, &out);
	}
	endpoint_wait_sent(endpoint);
	endpoint_wait_received(endpoint, 0);
}

void startup_of_job(const struct task *task)
{
	static struct endpoint endpoint;
	struct usage before;
	double start, last = 0;

	endpoint_find(&endpoint,
		      &(struct wanted){ task->subject, FI_MSG | FI_TAGGED, FI_THREAD_DOMAIN, 0 });
	before = usage_now();
	group_barrier(NULL, NULL);
	start = now();
	endpoint_open(&endpoint, PROCESSES_MAX);
	endpoint_get_name(endpoint.ep, group_name(me.rank));
	endpoint_barrier(&endpoint);
	talk_to_all(&endpoint);
	group_seat(me.rank)->seconds = now() - start;
	endpoint_barrier(&endpoint);
	for (int i = 0; i < me.processes && !me.rank; i++)
		last = group_seat(i)->seconds > last ? group_seat(i)->seconds : last;
	if (!me.rank) {
		group_sample(JOB_TIME, me.processes, last);
		group_sample(JOB_SHM, me.processes, usage_now().shm - before.shm);
	}
	endpoint_barrier(&endpoint);
	endpoint_close(&endpoint);
}
