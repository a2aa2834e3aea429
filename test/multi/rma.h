/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rma.h: registered memory and one-sided operations for tests over multi.h. Header only.
 *
 * A rank tells the others where its memory is through words that all see (struct rma_place); the provider under
 * test sends none of it.
 */
#ifndef RMA_H
#define RMA_H

#include "multi.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define RMA_PIECES 4 /* at most that many in a vector */

/* Memory of another rank, as its operations are to name it. */
struct rma_place {
	uint64_t key, addr;
};

/* A mode of the provider that the cases run in. */
struct rma_mode {
	const char *name;
	const char *env[2]; /* NAME=value */
	bool automatic;	    /* progress */
	bool served;	    /* the target moves the bytes */
	bool to_self;	    /* the case also has operations of a rank on itself */
};

static inline void rma_open(struct mt_ep *ep, const struct rma_mode *mode)
{
	struct mt_open open = { .caps = FI_RMA | FI_ATOMIC, .automatic = mode->automatic };

	for (size_t i = 0; i < 2 && mode->env[i]; i++)
		putenv((char *)mode->env[i]);
	mt_open(ep, &open);
}

/* Memory that all ranks see, made before they are; zeroed. */
static inline void *rma_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("shared memory of the test");
		exit(MT_FAIL);
	}
	return memory;
}

static inline struct fid_mr *rma_register(struct mt_ep *ep, void *memory, size_t len, uint64_t access,
					  struct rma_place *place)
{
	static uint64_t requested; /* for a provider that leaves the choice of keys to us */
	int mode = ep->info->domain_attr->mr_mode;
	struct fid_mr *mr;

	mt_must(fi_mr_reg(ep->domain, memory, len, access, 0, ++requested, 0, &mr, NULL));
	place->key = fi_mr_key(mr);
	place->addr = mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)memory : 0;
	return mr;
}

/* Until no peer copies any more; -FI_EBUSY is not an error of ours but is not expected for ever. */
static inline void rma_unregister(struct mt_ep *ep, struct fid_mr *mr)
{
	int rc;

	while ((rc = fi_close(&mr->fid)) == -FI_EBUSY)
		mt_poll(ep);
	mt_require(rc == 0, "fi_close of registered memory: %s", fi_strerror(-rc));
}

struct rma_request {
	bool write;
	fi_addr_t peer;
	uint64_t key;
	size_t local_count, remote_count;
	struct iovec local[RMA_PIECES];
	struct fi_rma_iov remote[RMA_PIECES];
};

static inline size_t rma_pieces_max(const struct mt_ep *ep, bool remote)
{
	size_t limit = remote ? ep->info->tx_attr->rma_iov_limit : ep->info->tx_attr->iov_limit;

	return limit < RMA_PIECES ? limit : RMA_PIECES;
}

/* One attempt: libfabric's result. */
static inline ssize_t rma_try(struct mt_ep *ep, struct mt_op *op, const struct rma_request *request)
{
	struct fi_msg_rma msg = {
		.msg_iov = request->local,
		.iov_count = request->local_count,
		.addr = request->peer,
		.rma_iov = request->remote,
		.rma_iov_count = request->remote_count,
		.context = op,
	};
	ssize_t rc;

	mt_require(!op->pending, "operation is pending already");
	memset(op, 0, sizeof(*op));
	op->pending = true;
	if (request->write)
		rc = fi_writemsg(ep->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
	else
		rc = fi_readmsg(ep->ep, &msg, FI_COMPLETION);
	if (rc)
		op->pending = false;
	return rc;
}

static inline void rma_post(struct mt_ep *ep, struct mt_op *op, const struct rma_request *request)
{
	ssize_t rc;

	while ((rc = rma_try(ep, op, request)) == -FI_EAGAIN)
		mt_poll(ep);
	mt_require(rc == 0, "%s: %s", request->write ? "put" : "get", fi_strerror((int)-rc));
}

/* One piece on each side, at `at` of the place. */
static inline void rma_move(struct mt_ep *ep, struct mt_op *op, bool write, void *local, size_t len,
			    fi_addr_t peer, const struct rma_place *place, size_t at)
{
	struct rma_request request = {
		.write = write,
		.peer = peer,
		.local_count = 1,
		.remote_count = 1,
		.local = { { local, len } },
		.remote = { { .addr = place->addr + at, .len = len, .key = place->key } },
	};

	rma_post(ep, op, &request);
}

/* An atomic on one 64-bit word, until it is done: former value into *result if that is not NULL. */
static inline void rma_atomic(struct mt_ep *ep, struct mt_op *op, enum fi_op code, const uint64_t *operand,
			      uint64_t *result, fi_addr_t peer, const struct rma_place *place, size_t at)
{
	uint64_t addr = place->addr + at;
	struct fi_ioc ioc = { (void *)operand, 1 };
	struct fi_rma_ioc remote = { addr, 1, place->key };
	const struct fi_msg_atomic msg = { .msg_iov = &ioc,
					   .iov_count = 1,
					   .addr = peer,
					   .rma_iov = &remote,
					   .rma_iov_count = 1,
					   .datatype = FI_UINT64,
					   .op = code,
					   .context = op };
	ssize_t rc;

	do {
		mt_require(!op->pending, "operation is pending already");
		memset(op, 0, sizeof(*op));
		op->pending = true;
		if (result)
			rc = fi_fetch_atomic(ep->ep, operand, 1, NULL, result, NULL, peer, addr,
					     place->key, FI_UINT64, code, op);
		else
			rc = fi_atomicmsg(ep->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
		if (rc)
			op->pending = false;
		if (rc == -FI_EAGAIN)
			mt_poll(ep);
	} while (rc == -FI_EAGAIN);
	mt_require(rc == 0, "atomic: %s", fi_strerror((int)-rc));
}

/* For cases whose argument begins with a struct rma_mode: the bytes went the way that the mode means. */
static inline bool rma_judge(const struct mt_counters *counters, int ranks, const void *arg)
{
	const struct rma_mode *mode = arg;
	uint64_t ops = 0, direct = 0, served = 0;
	bool fine = true;

	for (int i = 0; i < ranks; i++) {
		ops += counters[i].rma_ops;
		direct += counters[i].rma_direct_bytes;
		served += counters[i].rma_served;
	}
	if (!ops) {
		printf("  no rank made a one-sided operation over shmcma\n");
		fine = false;
	}
	if (mode->served ? direct && !mode->to_self : !direct) {
		printf("  %llu bytes were copied by those who asked for it\n", (unsigned long long)direct);
		fine = false;
	}
	if (mode->served && !served) {
		printf("  nobody served another\n");
		fine = false;
	}
	return fine;
}

#endif
