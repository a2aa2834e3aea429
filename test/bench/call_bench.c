/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * call_bench: the four calls of an 8 byte tagged message, for callgrind to count (calls.py).
 *
 *	call_bench SUBJECT messages|idle
 *
 * Two endpoints in one process, so that all that a message takes is counted. Each call is made in a function of its
 * own, CALLS times: those of a message, or those that look for one in vain (after one, so that they are connected).
 * Apart, as callgrind counts jumps wherever they are called from. Prints nothing.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <rdma/fi_tagged.h>

#include "endpoint.h"
#include "group.h"

enum { CALLS = 1000, TAG = 7 };

static struct endpoint ends[2];
static uint64_t sent, received;
static struct fi_context2 contexts[2];
static struct fi_cq_tagged_entry message, nothing; /* two, or a compiler makes one function of two */

static __attribute__((noinline)) ssize_t call_post(void)
{
	return fi_trecv(ends[1].ep, &received, sizeof(received), NULL, FI_ADDR_UNSPEC, TAG, 0,
			&contexts[1]);
}

static __attribute__((noinline)) ssize_t call_send(void)
{
	return fi_tsend(ends[0].ep, &sent, sizeof(sent), NULL, ends[0].peer, TAG, &contexts[0]);
}

static __attribute__((noinline)) ssize_t call_receive(void)
{
	return fi_cq_read(ends[1].cq, &message, 1);
}

static __attribute__((noinline)) ssize_t call_idle(void)
{
	return fi_cq_read(ends[1].cq, &nothing, 1);
}

static void send_one(void)
{
	ssize_t ret;

	must("fi_trecv", call_post());
	/* a provider that connects by messages needs its peer to look */
	while ((ret = call_send()) == -FI_EAGAIN)
		(void)fi_cq_read(ends[1].cq, NULL, 0);
	must("fi_tsend", ret);
	while ((ret = call_receive()) == -FI_EAGAIN)
		;
	must("fi_cq_read", ret < 0 ? ret : 0);
	while ((ret = fi_cq_read(ends[0].cq, &nothing, 1)) == -FI_EAGAIN)
		;
	must("fi_cq_read", ret < 0 ? ret : 0);
}

int main(int argc, char **argv)
{
	char name[NAME_MAX_BYTES];

	if (argc != 3 || (strcmp(argv[2], "messages") && strcmp(argv[2], "idle"))) {
		fputs("usage: call_bench SUBJECT messages|idle\n", stderr);
		return 2;
	}
	for (int i = 0; i < 2; i++) {
		struct wanted wanted = { argv[1], FI_MSG | FI_TAGGED, FI_THREAD_DOMAIN, 0 };

		endpoint_find(&ends[i], &wanted);
		endpoint_open(&ends[i], 2);
	}
	endpoint_get_name(ends[1].ep, name);
	ends[0].peer = endpoint_insert(&ends[0], name);
	send_one();
	for (int i = 1; i < CALLS; i++)
		if (!strcmp(argv[2], "messages"))
			send_one();
		else
			(void)call_idle();
	for (int i = 0; i < 2; i++)
		endpoint_close(&ends[i]);
	return 0;
}
