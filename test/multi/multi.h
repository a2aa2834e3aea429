/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * multi.h: tests of several processes over the public libfabric API.
 *
 * A test program is a list of cases. mt_run() forks the ranks of a case before anything of libfabric has
 * been called, so each rank is a process of its own with its own provider; it watches them, ends those that
 * hang, reports who failed or hung and what it was doing, and then judges the counters that the provider
 * printed when its endpoints closed: they prove that shmcma, and nothing else, carried what the ranks sent.
 * A rank hangs when it has used the deadline in processor time, or when the case is not over WATCHDOG_WALL
 * seconds after that (test/watchdog.h). The parent never calls libfabric, except for the names of errors.
 *
 * The environment: TEST_PROVIDER names the provider (default shmcma; with another the judgement of the
 * counters and what only shmcma promises is left out), TEST_ONLY runs the cases whose name contains it (=NAME: is it),
 * TEST_VERBOSE=1 prints what the ranks wrote to stderr, TEST_DEADLINE_SCALE multiplies the deadlines.
 *
 * Exit code of a program: 0 all passed, 1 something failed, 77 nothing could be run.
 */
#ifndef MULTI_H
#define MULTI_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include "../pattern.h"
#include "../watchdog.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MT_SANITIZED 1
#endif
#endif
#ifndef MT_SANITIZED
#define MT_SANITIZED 0
#endif

#define MT_OK 0
#define MT_FAIL 1
#define MT_SKIP 77

#define MT_RANKS_MAX 320
#define MT_NAMES_MAX 512
#define MT_NAME_SIZE 256
#define MT_FLAGS_MAX 512
#define MT_DEADLINE WATCHDOG_PROCESSOR
/* For what must come: the watchdog ends the rank if it does not, and says what the rank was doing. */
#define MT_FOREVER ((double)INFINITY)

/* ---- the parent ------------------------------------------------------------------------------ */

/* The provider's counters, summed over the endpoints that a rank closed. Names as it prints them. */
struct mt_counters {
	unsigned lines; /* endpoints that reported */
	uint64_t tx_msgs, tx_bytes, tx_inline, tx_bounce, tx_rdv, tx_overflows;
	uint64_t rx_msgs, rx_bytes, rx_unexpected;
	uint64_t rx_cma_bytes, rx_pulled_bytes, rx_local_bytes, shared_bytes;
	uint64_t rma_ops, rma_direct_bytes, rma_requests, rma_served;
	uint64_t rma_delegated, rma_delegated_taken, rma_rescued, rma_batched, rma_assisted;
	uint64_t connects, accepts, refusals, quarantines, departures, deaths;
};

struct mt_case {
	const char *name;
	int ranks;
	unsigned deadline;	       /* seconds of processor time of a rank, 0: MT_DEADLINE */
	void (*rank)(const void *arg); /* runs in each rank; returns when all is right */
	const void *arg;
	/* shmcma only: judge the ranks' counters; print the reason and return false if they are wrong */
	bool (*judge)(const struct mt_counters *counters, int ranks, const void *arg);
	unsigned flags; /* MT_CASE_* */
};

/* Ranks may send what is not delivered: do not compare the counters with what they posted. */
#define MT_CASE_LOSSY (1u << 0)
/* Only of shmcma: skipped with other providers. */
#define MT_CASE_SHMCMA (1u << 1)

/* Call first in main(). `name` is the program's. */
void mt_init(const char *name);
/* Run a case and print its result: MT_OK, MT_FAIL or MT_SKIP. */
int mt_run(const struct mt_case *test);
/* Note a result that was not mt_run()'s (`reason` may be NULL). */
int mt_result(const char *name, int result, const char *reason);
/* The exit code of main(). */
int mt_end(void);

/* For this process and its children: /dev/shm is a fresh tmpfs of that many bytes. False: that is not permitted. */
bool mt_private_shm(size_t bytes);

/*
 * Run fn() in a child with a mount namespace of its own, in which /dev/shm is a fresh tmpfs of that many
 * bytes. Returns fn()'s result, or MT_SKIP where that is not permitted.
 */
int mt_with_shm(size_t bytes, int (*fn)(void));

/* Use at most that many processors from now on (and in all ranks). */
void mt_confine(int cpus);

/* Is shmcma the provider under test? */
bool mt_is_shmcma(void);

/* ---- a rank ---------------------------------------------------------------------------------- */

extern int mt_rank, mt_ranks;

/* Sets the activity of this rank: shown when it fails or hangs. */
void mt_doing(const char *format, ...) __attribute__((format(printf, 1, 2)));
void mt_fail_at(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));
#define mt_fail(...) mt_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define mt_require(condition, ...)                                                                        \
	do {                                                                                              \
		if (!(condition))                                                                         \
			mt_fail(__VA_ARGS__);                                                             \
	} while (0)
/* A call of libfabric that must not fail. */
#define mt_must(call)                                                                                     \
	do {                                                                                              \
		long mt_must_rc = (long)(call);                                                           \
		if (mt_must_rc < 0)                                                                       \
			mt_fail("%s: %ld (%s)", #call, mt_must_rc, fi_strerror((int)-mt_must_rc));        \
	} while (0)
/* End the case as skipped. */
void mt_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

double mt_now(void);

/* The lines of this rank's stderr so far that contain all of these (up to NULL). Copies the newest one. */
unsigned mt_logged(char *line, size_t size, const char *const *words);

/* The rank will be, or is to be killed by another: its death is no failure. */
void mt_expect_death(int rank);
pid_t mt_pid(int rank);
/* Until a signal has stopped the rank. */
void mt_await_stop(int rank);

/*
 * For a rank that forks processes of its own, each of which takes an mt_rank from mt_ranks on: what such a
 * one failed with ("": nothing), and what it was doing.
 */
const char *mt_failure(int rank);
const char *mt_deed(int rank);

/* Words that all ranks see. */
_Atomic uint64_t *mt_flag(int index);

/* ---- payload --------------------------------------------------------------------------------- */

uint64_t mt_hash(uint64_t value);

/* A small generator: the same seed gives the same numbers everywhere. */
struct mt_random {
	uint64_t state;
};
uint64_t mt_random(struct mt_random *random);
/* 0 <= result < bound */
uint64_t mt_below(struct mt_random *random, uint64_t bound);

/* Index of the first byte that is not `value`, or -1. */
ssize_t mt_verify_byte(const void *buf, size_t len, uint8_t value);

/* ---- endpoint -------------------------------------------------------------------------------- */

struct mt_ep {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	char name[MT_NAME_SIZE]; /* fi_getname */
	size_t name_len;
	bool silent; /* do not count what it sends and receives */
};

/* An operation, reused once done. */
struct mt_op {
	struct fi_context2 context; /* first; the provider's while the operation is pending */
	bool pending, done;
	bool multi;	  /* a multi-receive buffer: pending until it is given back; */
	unsigned arrived; /* messages that came into it by then */
	int err;	  /* positive */
	uint64_t flags, data, tag;
	size_t len, olen;
	fi_addr_t source;
};

struct mt_open {
	const char *node, *service;
	uint64_t flags; /* of fi_getinfo */
	uint64_t caps;	/* besides messages */
	bool automatic; /* progress without calls of ours */
	enum fi_wait_obj wait_obj; /* of the completion queue */
	int rx_ctx_bits;	   /* of the address vector */
};

/*
 * Open fabric, domain, address vector, completion queue and endpoint and enable it. `open` may be NULL.
 * Returns what fi_endpoint or fi_enable failed with (everything is closed then), other failures end the
 * rank.
 */
int mt_try_open(struct mt_ep *ep, const struct mt_open *open);
/*
 * fork(2) while no other thread opens an endpoint. libfabric 1.17 holds a lock in fi_getinfo and fi_fabric (fi_ini()), and
 * a child that finds it locked waits there for ever, with each provider.
 */
pid_t mt_fork(void);
void mt_open(struct mt_ep *ep, const struct mt_open *open);
void mt_close(struct mt_ep *ep);

fi_addr_t mt_insert(struct mt_ep *ep, const void *name);
/* fi_getinfo's dest_addr for node and service, inserted. */
fi_addr_t mt_insert_service(struct mt_ep *ep, const char *node, const char *service);

/* Take in completions; returns how many. */
int mt_progress(struct mt_ep *ep);
/* The same (ep may be NULL), leaving the processor to others when there was nothing. */
void mt_poll(struct mt_ep *ep);
void mt_poll_for(struct mt_ep *ep, double seconds);

/* Wait until the operation is done, and if need be that it succeeded. */
void mt_wait_any(struct mt_ep *ep, struct mt_op *op);
void mt_wait(struct mt_ep *ep, struct mt_op *op);
/* The same with a bound; false: still pending. */
bool mt_wait_for(struct mt_ep *ep, struct mt_op *op, double seconds);

/* All ranks, making progress meanwhile (ep may be NULL). */
void mt_barrier(struct mt_ep *ep);
/* Wait until the flag is at least `value`. */
void mt_flag_wait(struct mt_ep *ep, int index, uint64_t value);

/* Publish the endpoint's name under a number; wait for a name and insert it. */
void mt_publish(struct mt_ep *ep, int slot);
fi_addr_t mt_lookup(struct mt_ep *ep, int slot);
/* The published name itself, zero terminated. */
const char *mt_published(struct mt_ep *ep, int slot);
/* One endpoint a rank: publish and look up all. peers[mt_ranks] */
void mt_join(struct mt_ep *ep, fi_addr_t *peers);

/* ---- messages -------------------------------------------------------------------------------- */

/* Which call of the family. For receives: MT_SEND, MT_SENDV, MT_SENDMSG stand for recv, recvv, recvmsg. */
enum mt_call { MT_SEND, MT_SENDV, MT_SENDMSG, MT_DATA, MT_INJECT, MT_INJECTDATA };

struct mt_message {
	bool tagged;
	enum mt_call call;
	const struct iovec *iov; /* one piece, except for MT_SENDV and MT_SENDMSG */
	size_t pieces;
	fi_addr_t peer;
	uint64_t tag, ignore, data, flags; /* flags: MT_SENDMSG only */
};

/* One attempt: libfabric's result. An inject is done when accepted. */
ssize_t mt_try_send(struct mt_ep *ep, struct mt_op *op, const struct mt_message *message);
ssize_t mt_try_recv(struct mt_ep *ep, struct mt_op *op, const struct mt_message *message);
/* Until accepted, making progress on -FI_EAGAIN. */
void mt_post_send(struct mt_ep *ep, struct mt_op *op, const struct mt_message *message);
void mt_post_recv(struct mt_ep *ep, struct mt_op *op, const struct mt_message *message);

/* The common cases: one piece, tagged. */
void mt_tsend(struct mt_ep *ep, struct mt_op *op, const void *buf, size_t len, fi_addr_t peer,
	      uint64_t tag);
void mt_trecv(struct mt_ep *ep, struct mt_op *op, void *buf, size_t len, fi_addr_t peer, uint64_t tag);

/*
 * Send with progress on -FI_EAGAIN, for at most that long. 0: accepted, -FI_EAGAIN: not so far, else what
 * the call or the completion failed with (negative).
 */
int mt_send_outcome(struct mt_ep *ep, const void *buf, size_t len, fi_addr_t peer, uint64_t tag,
		    double seconds);

#endif
