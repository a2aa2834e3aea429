/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_errors: what an operator reads when something fails. Each failure leaves a line at FI_LOG_LEVEL=warn
 * that names the peer and the cause, and an error code that is not the same for all.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define PATIENCE MT_FOREVER
#define LINE 2000

/*
 * The newest line of that level that names `peer` must contain one of the causes (up to NULL) apart from
 * the name itself.
 */
static void check_line(const char *level, const char *peer, const char *const *causes)
{
	const char *words[] = { level, peer, NULL };
	char line[LINE], rest[LINE];
	char *at;

	mt_require(mt_logged(line, sizeof(line), words), "no %s line names %s", level, peer);
	snprintf(rest, sizeof(rest), "%s", line);
	while ((at = strstr(rest, peer)))
		memmove(at, at + strlen(peer), strlen(at + strlen(peer)) + 1);
	for (; *causes; causes++)
		if (strcasestr(rest, *causes))
			return;
	mt_fail("no cause is named in: %s", line);
}

static void check_warning(const char *peer, const char *const *causes)
{
	check_line("<warn>", peer, causes);
}

static void check_code(int rc)
{
	mt_require(rc != 0, "success");
	mt_require(rc != -FI_EAGAIN, "no error ever came");
	mt_require(rc != -FI_EIO && rc != -FI_EOTHER, "the code says nothing: %s", fi_strerror(-rc));
}

/* ---- no place -------------------------------------------------------------------------------- */

#define FLAG_FIRST 0 /* the first client is in */
#define FLAG_OVER 1  /* the second one was refused */

static void refused_rank(const void *arg)
{
	static const char *const causes[] = { "full", "peers", "slot", "place", "room", NULL };
	struct mt_op op = { 0 };
	uint64_t word = 0;
	fi_addr_t server;
	struct mt_ep ep;
	int rc;

	(void)arg;
	if (mt_rank == 0)
		setenv("FI_SHMCMA_PEERS", "1", 1);
	mt_open(&ep, NULL);
	mt_publish(&ep, mt_rank);
	server = mt_lookup(&ep, 0);
	if (mt_rank == 0) {
		mt_trecv(&ep, &op, &word, sizeof(word), FI_ADDR_UNSPEC, 1);
		mt_wait(&ep, &op);
		atomic_store(mt_flag(FLAG_FIRST), 1);
		mt_flag_wait(&ep, FLAG_OVER, 1);
	} else if (mt_rank == 1) {
		rc = mt_send_outcome(&ep, &word, sizeof(word), server, 1, PATIENCE);
		mt_require(rc == 0, "the first client: %s", fi_strerror(-rc));
		mt_flag_wait(&ep, FLAG_OVER, 1);
	} else {
		mt_flag_wait(&ep, FLAG_FIRST, 1);
		mt_doing("connecting to a server without a place");
		check_code(mt_send_outcome(&ep, &word, sizeof(word), server, 1, PATIENCE));
		check_warning(mt_published(&ep, 0), causes);
		atomic_store(mt_flag(FLAG_OVER), 1);
	}
	mt_close(&ep);
}

/* ---- gone ------------------------------------------------------------------------------------ */

static const char *const gone_causes[] = { "closed",  "gone",	 "departed", "has left",  "dead", "reset",
					   "refused", "no such", "ended",    "not alive", NULL };

/* A peer talks and closes: the next send to it says so. */
static void departed_rank(const void *arg)
{
	struct mt_op op = { 0 };
	fi_addr_t peers[2];
	uint64_t word = 0;
	struct mt_ep ep;
	int rc = 0;

	(void)arg;
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	if (mt_rank == 1) {
		mt_trecv(&ep, &op, &word, sizeof(word), peers[0], 1);
		mt_wait(&ep, &op);
		mt_close(&ep);
		atomic_store(mt_flag(FLAG_OVER), 1);
		return;
	}
	mt_tsend(&ep, &op, &word, sizeof(word), peers[1], 1);
	mt_wait(&ep, &op);
	mt_flag_wait(&ep, FLAG_OVER, 1);
	mt_doing("sending to a peer that has closed");
	/* the first ones may be on their way before it is noticed */
	for (int i = 0; i < 10000 && rc == 0; i++) {
		rc = mt_send_outcome(&ep, &word, sizeof(word), peers[1], 1, PATIENCE);
		mt_poll(&ep);
	}
	check_code(rc);
	check_warning(mt_published(&ep, 1), gone_causes);
	mt_close(&ep);
}

/* The address of somebody who is not there any more: refused when inserted, or when first sent to. */
static void insert_or_send(struct mt_ep *ep, const char *name)
{
	uint64_t word = 0;
	fi_addr_t addr;
	int rc = fi_av_insert(ep->av, name, 1, &addr, 0, NULL);

	mt_require(rc == 0 || rc == 1 || rc < -1, "fi_av_insert: %d", rc);
	if (rc == 1)
		check_code(mt_send_outcome(ep, &word, sizeof(word), addr, 1, PATIENCE));
}

static void stale_rank(const void *arg)
{
	struct mt_ep ep;
	char name[MT_NAME_SIZE];

	(void)arg;
	mt_open(&ep, NULL);
	if (mt_rank == 1) {
		mt_publish(&ep, 1);
		mt_close(&ep);
		atomic_store(mt_flag(FLAG_OVER), 1);
		return;
	}
	mt_flag_wait(&ep, FLAG_OVER, 1);
	snprintf(name, sizeof(name), "%s", mt_published(&ep, 1));
	mt_doing("using the address of an endpoint that was closed");
	insert_or_send(&ep, name);
	check_line("shmcma", name, gone_causes);
	mt_close(&ep);
}

/* The same address on another machine. */
static void foreign_rank(const void *arg)
{
	static const char *const causes[] = { "machine", "host", "boot", NULL };
	struct mt_ep ep;
	char name[MT_NAME_SIZE];
	char *host;

	(void)arg;
	mt_open(&ep, NULL);
	snprintf(name, sizeof(name), "%s", ep.name);
	host = strstr(name, "://");
	mt_require(host && isxdigit(host[3]), "address %s", name);
	host[3] = host[3] == '0' ? '1' : '0';
	mt_doing("using the address of another machine");
	insert_or_send(&ep, name);
	check_line("shmcma", name, causes);
	mt_close(&ep);
}

/* ---- memory that is not there ---------------------------------------------------------------- */

#define LARGE ((size_t)1 << 20)
#define FLAG_WORD 2

/* Only where the receiver reads the sender's memory; otherwise the sender itself would touch it. */
static void require_cma(void)
{
	static uint64_t word = 0x5AFE;
	uint64_t got = 0;
	struct iovec local = { &got, sizeof(got) }, remote = { &word, sizeof(word) };

	if (mt_rank == 1)
		atomic_store(mt_flag(FLAG_WORD), (uint64_t)(uintptr_t)&word);
	mt_barrier(NULL);
	remote.iov_base = (void *)(uintptr_t)atomic_load(mt_flag(FLAG_WORD));
	if (mt_rank == 0 && process_vm_readv(mt_pid(1), &local, 1, &remote, 1, 0) != (ssize_t)sizeof(got))
		mt_skip("process_vm_readv is not permitted here: %s", strerror(errno));
	mt_barrier(NULL);
}

static void unmapped_rank(const void *arg)
{
	static const char *const causes[] = { "Bad address", "EFAULT", "not mapped", "unmapped", NULL };
	struct mt_op op = { 0 };
	fi_addr_t peers[2];
	struct mt_ep ep;
	void *buf;

	(void)arg;
	require_cma();
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	buf = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mt_require(buf != MAP_FAILED, "no memory");
	if (mt_rank == 1) {
		mt_tsend(&ep, &op, buf, LARGE, peers[0], 1);
		munmap(buf, LARGE);
		mt_barrier(&ep);
		mt_doing("waiting for a send from memory that is not there");
		mt_wait_any(&ep, &op);
		check_code(-op.err);
	} else {
		mt_barrier(&ep);
		mt_doing("receiving from memory that is not there");
		mt_trecv(&ep, &op, buf, LARGE, peers[1], 1);
		mt_wait_any(&ep, &op);
		check_code(-op.err);
		check_warning(mt_published(&ep, 1), causes);
		munmap(buf, LARGE);
	}
	/* the pair goes on */
	mt_barrier(&ep);
	buf = calloc(1, LARGE);
	mt_require(buf, "no memory");
	mt_doing("exchanging after the failure");
	if (mt_rank == 1) {
		pattern_fill(buf, 0, LARGE, 5);
		mt_tsend(&ep, &op, buf, LARGE, peers[0], 2);
		mt_wait(&ep, &op);
	} else {
		mt_trecv(&ep, &op, buf, LARGE, peers[1], 2);
		mt_wait(&ep, &op);
		mt_require(pattern_differs(buf, 0, LARGE, 5) < 0, "wrong message");
	}
	mt_barrier(&ep);
	mt_close(&ep);
	free(buf);
}

/* ---- a name that is taken -------------------------------------------------------------------- */

static void taken_rank(const void *arg)
{
	static const char *const causes[] = { "in use", "taken", "live", NULL };
	char service[32];
	struct mt_open open = { .service = service, .flags = FI_SOURCE };
	struct mt_ep ep;
	int rc;

	(void)arg;
	snprintf(service, sizeof(service), "errors.%d", (int)mt_pid(0));
	if (mt_rank == 0) {
		mt_open(&ep, &open);
		mt_barrier(&ep);
		mt_barrier(&ep);
		mt_close(&ep);
		return;
	}
	mt_barrier(NULL);
	rc = mt_try_open(&ep, &open);
	mt_require(rc == -FI_EADDRINUSE, "%s", rc ? fi_strerror(-rc) : "success");
	check_warning(service, causes);
	mt_barrier(NULL);
}

/* ---- no memory ------------------------------------------------------------------------------- */

static void full_rank(const void *arg)
{
	static const char *const causes[] = { "full", "No space", NULL };
	struct mt_ep ep;
	int rc;

	(void)arg;
	rc = mt_try_open(&ep, NULL);
	mt_require(rc == -FI_ENOSPC, "%s", rc ? fi_strerror(-rc) : "success");
	check_warning("/dev/shm", causes);
}

static int full_main(void)
{
	return mt_run(&(struct mt_case){
		.name = "full", .ranks = 1, .rank = full_rank, .flags = MT_CASE_SHMCMA });
}

int main(void)
{
	static const struct mt_case cases[] = {
		{ .name = "refused",
		  .ranks = 3,
		  .rank = refused_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "departed",
		  .ranks = 2,
		  .rank = departed_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "stale",
		  .ranks = 2,
		  .rank = stale_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "foreign",
		  .ranks = 1,
		  .rank = foreign_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "unmapped",
		  .ranks = 2,
		  .rank = unmapped_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
		{ .name = "taken",
		  .ranks = 2,
		  .rank = taken_rank,
		  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY },
	};

	mt_init("test_errors");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mt_run(&cases[i]);
	/* one page is not enough for anything */
	if (mt_with_shm(4096, full_main) == MT_SKIP)
		printf("test_errors full ... skipped: no mount namespace, or not for this provider\n");
	return mt_end();
}
