/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * talk.h: does everything still work between two endpoints? One side asks, the other serves; the traffic that
 * the asking side wants goes by every way: messages of all protocols there and back, then a put and a get.
 *
 * A request has the address of the asking side, so a process that the server does not know may ask too. Header only.
 */
#ifndef TALK_H
#define TALK_H

#include "multi.h"
#include "rma.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

#define TALK_MAX ((size_t)1 << 20)
#define TALK_FRIENDS 64

enum { TALK_ASK = 0x7A1, TALK_BODY, TALK_ECHO };
enum talk_what { TALK_MESSAGE, TALK_REGION, TALK_STOP };

struct talk_request {
	uint64_t what, size;
	char name[MT_NAME_SIZE];
};

struct talk {
	struct mt_ep ep;
	struct fid_mr *mr;
	struct rma_place region;
	uint8_t *memory; /* registered: two halves of TALK_MAX bytes */
	int half;	 /* of the other's memory: two may ask at the same time */
	uint8_t *out, *in;
	uint64_t seed;
	struct mt_op ask; /* serving: the next request */
	struct talk_request request;
	struct {
		char name[MT_NAME_SIZE];
		fi_addr_t addr;
	} friends[TALK_FRIENDS];
	int friend_count;
};

static inline void *talk_alloc(size_t size)
{
	void *memory = calloc(1, size);

	mt_require(memory, "no memory");
	return memory;
}

static inline void talk_open(struct talk *talk, const struct mt_open *open)
{
	struct mt_open wanted = open ? *open : (struct mt_open){ 0 };

	memset(talk, 0, sizeof(*talk));
	wanted.caps |= FI_RMA;
	mt_open(&talk->ep, &wanted);
	talk->memory = talk_alloc(2 * TALK_MAX);
	talk->out = talk_alloc(TALK_MAX);
	talk->in = talk_alloc(TALK_MAX);
	talk->mr = rma_register(&talk->ep, talk->memory, 2 * TALK_MAX, FI_REMOTE_READ | FI_REMOTE_WRITE,
				&talk->region);
}

/* Private memory goes, whatever the state of the objects. */
static inline void talk_free(struct talk *talk)
{
	free(talk->memory);
	free(talk->out);
	free(talk->in);
}

static inline void talk_close(struct talk *talk)
{
	rma_unregister(&talk->ep, talk->mr);
	mt_close(&talk->ep);
	talk_free(talk);
}

/* The address of that name, inserted once. */
static inline fi_addr_t talk_friend(struct talk *talk, const char *name)
{
	int i;

	for (i = 0; i < talk->friend_count; i++)
		if (!strcmp(talk->friends[i].name, name))
			return talk->friends[i].addr;
	mt_require(i < TALK_FRIENDS, "too many names");
	memcpy(talk->friends[i].name, name, MT_NAME_SIZE);
	talk->friends[i].addr = mt_insert(&talk->ep, name);
	talk->friend_count++;
	return talk->friends[i].addr;
}

/* The file of the endpoint with that name. */
static inline const char *talk_file(const char *name, char *path, size_t size)
{
	snprintf(path, size, "/dev/shm/shmcma%s", strchr(name, '-'));
	return path;
}

static inline bool talk_has_file(const char *name)
{
	char path[MT_NAME_SIZE];

	return access(talk_file(name, path, sizeof(path)), F_OK) == 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static inline void talk_request(struct talk *talk, fi_addr_t peer, enum talk_what what, size_t size)
{
	struct talk_request request = { .what = what, .size = size };
	struct mt_op op = { 0 };

	memcpy(request.name, talk->ep.name, talk->ep.name_len);
	mt_tsend(&talk->ep, &op, &request, sizeof(request), peer, TALK_ASK);
	mt_wait(&talk->ep, &op);
}

static inline void talk_message(struct talk *talk, fi_addr_t peer, size_t size)
{
	struct mt_op send = { 0 }, recv = { 0 };
	uint64_t seed = ++talk->seed;

	pattern_fill(talk->out, 0, size, seed);
	memset(talk->in, 0x5A, size);
	talk_request(talk, peer, TALK_MESSAGE, size);
	mt_trecv(&talk->ep, &recv, talk->in, TALK_MAX, FI_ADDR_UNSPEC, TALK_ECHO);
	mt_tsend(&talk->ep, &send, talk->out, size, peer, TALK_BODY);
	mt_wait(&talk->ep, &send);
	mt_wait(&talk->ep, &recv);
	mt_require(recv.len == size, "an echo of %zu bytes, not %zu", recv.len, size);
	mt_require(pattern_differs(talk->in, 0, size, seed) < 0, "%zu bytes came back wrong", size);
}

static inline void talk_rma(struct talk *talk, struct mt_op *op, bool write, fi_addr_t peer,
			    const struct rma_place *region, void *memory, size_t size)
{
	struct rma_request request = { .write = write, .peer = peer, .key = region->key };

	request.local_count = request.remote_count = 1;
	request.local[0] = (struct iovec){ memory, size };
	request.remote[0] =
		(struct fi_rma_iov){ region->addr + (uint64_t)talk->half * TALK_MAX, size, region->key };
	rma_post(&talk->ep, op, &request);
}

static inline void talk_one_sided(struct talk *talk, fi_addr_t peer, const struct rma_place *region,
				  size_t size)
{
	struct mt_op op = { 0 };
	uint64_t seed = ++talk->seed;

	pattern_fill(talk->out, 0, size, seed);
	memset(talk->in, 0x5A, size);
	talk_rma(talk, &op, true, peer, region, talk->out, size);
	mt_wait(&talk->ep, &op);
	talk_rma(talk, &op, false, peer, region, talk->in, size);
	mt_wait(&talk->ep, &op);
	mt_require(pattern_differs(talk->in, 0, size, seed) < 0, "%zu bytes were put, or got back, wrong",
		   size);
}

/* Everything once. The other side serves. */
static inline void talk_all(struct talk *talk, fi_addr_t peer)
{
	static const size_t sizes[] = { 0, 1, 100, 2000, 20000, 40000, 200000, TALK_MAX };
	struct rma_place region;
	struct mt_op recv = { 0 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		talk_message(talk, peer, sizes[i]);
	talk_request(talk, peer, TALK_REGION, 0);
	mt_trecv(&talk->ep, &recv, &region, sizeof(region), FI_ADDR_UNSPEC, TALK_ECHO);
	mt_wait(&talk->ep, &recv);
	for (size_t i = 1; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		talk_one_sided(talk, peer, &region, sizes[i]);
}

static inline void talk_stop(struct talk *talk, fi_addr_t peer)
{
	talk_request(talk, peer, TALK_STOP, 0);
}

/* ---- serving --------------------------------------------------------------------------------- */

static inline void talk_listen(struct talk *talk)
{
	mt_trecv(&talk->ep, &talk->ask, &talk->request, sizeof(talk->request), FI_ADDR_UNSPEC, TALK_ASK);
}

static inline void talk_answer(struct talk *talk, fi_addr_t peer)
{
	struct mt_op recv = { 0 }, send = { 0 };
	const void *answer = &talk->region;
	size_t size = sizeof(talk->region);

	if (talk->request.what == TALK_MESSAGE) {
		answer = talk->in;
		size = talk->request.size;
		mt_trecv(&talk->ep, &recv, talk->in, TALK_MAX, peer, TALK_BODY);
		mt_wait(&talk->ep, &recv);
		mt_require(recv.len == size, "%zu bytes came, not %zu", recv.len, size);
	}
	mt_tsend(&talk->ep, &send, answer, size, peer, TALK_ECHO);
	mt_wait(&talk->ep, &send);
}

/* One look for a request, answered if there is one, after talk_listen(). False: it was to stop. */
static inline bool talk_serve_one(struct talk *talk)
{
	mt_poll(&talk->ep);
	if (!talk->ask.done)
		return true;
	mt_require(talk->ask.err == 0, "a request: %s", fi_strerror(talk->ask.err));
	if (talk->request.what == TALK_STOP)
		return false;
	talk_answer(talk, talk_friend(talk, talk->request.name));
	talk_listen(talk);
	return true;
}

static inline void talk_serve(struct talk *talk)
{
	mt_doing("serving");
	talk_listen(talk);
	while (talk_serve_one(talk))
		;
}

#endif
