/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_limits: too little of something, at each step: shared memory, descriptors, address space. Every level
 * between nothing and enough is tried, so that each allocation fails once. A call that fails says why, nothing crashes
 * (SIGBUS least of all), nothing is left behind, and once there is enough the call works.
 *
 * Two ranks: one tries, the other serves and lacks the same shared memory.
 */
#define _GNU_SOURCE 1
#include "talk.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <rdma/fi_eq.h>

#define TRIES 0
#define SERVES 1
#define PATIENCE MT_FOREVER
#define FILLER "/dev/shm/filler"
#define SHM_SIZE ((size_t)4 << 20)

/* ---- all steps, one after the other ---------------------------------------------------------- */

enum step {
	FABRIC,
	DOMAIN,
	EVENTS,
	QUEUE,
	VECTOR,
	ENDPOINT,
	ENABLE,
	INSERT,
	SEND,
	REGISTER,
	SHARED,
	STEPS
};

static const char *const step_names[] = { "fi_fabric",	"fi_domain",   "fi_eq_open", "fi_cq_open",
					  "fi_av_open", "fi_endpoint", "fi_enable",  "fi_av_insert",
					  "first send", "fi_mr_reg",   "fi_mr_regv" };

#define REGIONS 300
#define VECTORS 120
#define PIECES 3

struct attempt {
	struct mt_ep ep;
	struct fid_eq *eq;
	struct fid_mr *mrs[REGIONS + VECTORS];
	int mr_count;
	fi_addr_t server;
	int at; /* the step to be done next */
};

static char bytes[REGIONS + VECTORS * PIECES];
static struct fi_info *info;
static const char *server_name, *service;

static int insert_server(struct attempt *a)
{
	int err = 0;
	int rc = fi_av_insert(a->ep.av, server_name, 1, &a->server, FI_SYNC_ERR, &err);

	return rc == 1 ? 0 : rc < 0 ? rc : -err;
}

static int register_vector(struct attempt *a, int i)
{
	struct iovec iov[PIECES];

	for (int k = 0; k < PIECES; k++)
		iov[k] = (struct iovec){ &bytes[REGIONS + i * PIECES + k], 1 };
	return fi_mr_regv(a->ep.domain, iov, PIECES, FI_REMOTE_READ, 0, (uint64_t)(REGIONS + i), 0,
			  &a->mrs[a->mr_count], NULL);
}

static int register_all(struct attempt *a, int count)
{
	while (a->mr_count < count) {
		int i = a->mr_count;
		int rc = i < REGIONS ? fi_mr_reg(a->ep.domain, &bytes[i], 1, FI_REMOTE_READ, 0,
						 (uint64_t)i, 0, &a->mrs[i], NULL)
				     : register_vector(a, i - REGIONS);

		if (rc)
			return rc;
		a->mr_count++;
	}
	return 0;
}

static int enable(struct attempt *a)
{
	int rc = fi_ep_bind(a->ep.ep, &a->ep.av->fid, 0);

	if (!rc)
		rc = fi_ep_bind(a->ep.ep, &a->ep.cq->fid, FI_TRANSMIT | FI_RECV);
	if (!rc)
		rc = fi_enable(a->ep.ep);
	return rc;
}

/* As it is in the library: may be tried again as it is, but for fi_enable after its binding. */
static int step(struct attempt *a)
{
	struct fi_eq_attr eq = { .wait_obj = FI_WAIT_FD };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av = { .type = FI_AV_TABLE };

	switch (a->at) {
	case FABRIC:
		return fi_fabric(info->fabric_attr, &a->ep.fabric, NULL);
	case DOMAIN:
		return fi_domain(a->ep.fabric, info, &a->ep.domain, NULL);
	case EVENTS:
		return fi_eq_open(a->ep.fabric, &eq, &a->eq, NULL);
	case QUEUE:
		return fi_cq_open(a->ep.domain, &cq, &a->ep.cq, NULL);
	case VECTOR:
		return fi_av_open(a->ep.domain, &av, &a->ep.av, NULL);
	case ENDPOINT:
		return fi_endpoint(a->ep.domain, info, &a->ep.ep, NULL);
	case ENABLE:
		return a->ep.name_len++ ? fi_enable(a->ep.ep) : enable(a);
	case INSERT:
		return insert_server(a);
	case SEND:
		return mt_send_outcome(&a->ep, bytes, 1, a->server, 1, PATIENCE);
	case REGISTER:
		return register_all(a, REGIONS);
	default:
		return register_all(a, REGIONS + VECTORS);
	}
}

static int steps_until(struct attempt *a, int end)
{
	int rc = 0;

	for (; a->at < end; a->at++) {
		rc = step(a);
		if (rc)
			return rc;
	}
	return rc;
}

static void close_fid(struct fid *fid)
{
	if (fid)
		mt_must(fi_close(fid));
}

#define CLOSE(object) close_fid((object) ? &(object)->fid : NULL)

static void attempt_close(struct attempt *a)
{
	while (a->mr_count--)
		CLOSE(a->mrs[a->mr_count]);
	CLOSE(a->ep.ep);
	CLOSE(a->ep.cq);
	CLOSE(a->ep.av);
	CLOSE(a->ep.domain);
	CLOSE(a->eq);
	CLOSE(a->ep.fabric);
	memset(a, 0, sizeof(*a));
}

/* ---- the ranks ------------------------------------------------------------------------------- */

static struct talk own;
static void space_body(void);

/* Takes in what comes from one client after the other. */
static void serve_sink(void)
{
	uint64_t word;
	struct mt_op op = { 0 };

	talk_listen(&own);
	mt_trecv(&own.ep, &op, &word, sizeof(word), FI_ADDR_UNSPEC, 1);
	while (talk_serve_one(&own)) {
		if (!op.done)
			continue;
		mt_require(op.err == 0, "receive: %s", fi_strerror(op.err));
		mt_trecv(&own.ep, &op, &word, sizeof(word), FI_ADDR_UNSPEC, 1);
	}
	mt_must(fi_cancel(&own.ep.ep->fid, &op));
	mt_wait_any(&own.ep, &op);
}

/* Both have an endpoint that is there all the time, and talk in the end. */
static void limits_rank(const void *arg)
{
	void (*const *body)(void) = arg;
	fi_addr_t peer;

	if (MT_SANITIZED && *body == space_body)
		mt_skip("sanitizers need address space themselves");
	talk_open(&own, NULL);
	mt_publish(&own.ep, mt_rank);
	peer = talk_friend(&own, mt_published(&own.ep, !mt_rank));
	if (mt_rank == SERVES) {
		serve_sink();
	} else {
		if (*body != space_body) /* it is mapped once for all of a process */
			talk_all(&own, peer);
		server_name = mt_published(NULL, SERVES);
		info = fi_dupinfo(own.ep.info);
		(*body)();
		fi_freeinfo(info);
		talk_all(&own, peer);
		talk_stop(&own, peer);
	}
	mt_barrier(&own.ep);
	talk_close(&own);
}

/* ---- shared memory --------------------------------------------------------------------------- */

static int filler = -1;

static unsigned long free_pages(void)
{
	struct statvfs fs;

	mt_require(!statvfs("/dev/shm", &fs), "statvfs: %s", strerror(errno));
	return fs.f_bavail;
}

/* The memory of an attempt is free again only when the server has unmapped it as well, which takes a moment. */
static void wait_for_free(unsigned long pages)
{
	mt_doing("waiting for all that was closed to be free, %lu pages", pages);
	watchdog_await_by(free_pages() >= pages, sched_yield());
}

static void leave_pages(unsigned long pages)
{
	unsigned long fill;

	if (filler >= 0)
		close(filler);
	unlink(FILLER);
	filler = -1;
	if (pages == ULONG_MAX)
		return;
	filler = open(FILLER, O_CREAT | O_RDWR, 0600);
	mt_require(filler >= 0, "%s: %s", FILLER, strerror(errno));
	fill = free_pages();
	mt_require(fill > pages, "too small a /dev/shm for this test");
	mt_require(!fallocate(filler, 0, 0, (off_t)((fill - pages) * (size_t)sysconf(_SC_PAGESIZE))),
		   "fallocate: %s", strerror(errno));
}

/* From that step on with so many pages free; then with enough. Returns the step that failed, or STEPS. */
static int fill_at(int from, unsigned long pages)
{
	static struct attempt a;
	int failed, rc;

	mt_must(steps_until(&a, from));
	leave_pages(pages);
	mt_doing("%s and further with %lu pages free", step_names[from], pages);
	rc = steps_until(&a, STEPS);
	failed = a.at;
	mt_require(!rc || rc == -FI_ENOSPC, "%s with %lu pages free: %s", step_names[failed], pages,
		   fi_strerror(-rc));
	leave_pages(ULONG_MAX);
	rc = steps_until(&a, STEPS);
	mt_require(!rc, "%s with enough memory, after it had failed: %s", step_names[a.at],
		   fi_strerror(-rc));
	attempt_close(&a);
	return failed;
}

static void memory_body(void)
{
	static const int from[] = { FABRIC, ENABLE, SEND, REGISTER, SHARED };
	int failures[STEPS + 1] = { 0 };
	unsigned long before = free_pages();

	for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++)
		for (unsigned long pages = 0, enough = 0; pages < 200 && enough < 2;
		     pages += pages < 24 ? 1 : 20) {
			int failed;

			wait_for_free(before);
			failed = fill_at(from[i], pages);
			failures[failed]++;
			enough += failed == STEPS;
		}
	mt_require(failures[ENABLE] && failures[SEND] && failures[REGISTER] && failures[SHARED],
		   "failures: %d of fi_enable, %d of the connection, %d and %d of registrations",
		   failures[ENABLE], failures[SEND], failures[REGISTER], failures[SHARED]);
	mt_require(failures[STEPS], "it never went well");
}

/* The same for the name of a service. */
static void service_body(void)
{
	char *plain = info->src_addr, named[64];
	static struct attempt a;
	unsigned long before = free_pages();
	int failures = 0;

	snprintf(named, sizeof(named), "fi_shmcma://limits.%d", (int)getpid());
	service = named;
	info->src_addr = strdup(named);
	info->src_addrlen = strlen(named) + 1;
	for (unsigned long pages = 0; pages < 80; pages++) {
		int rc;

		wait_for_free(before);
		leave_pages(pages);
		rc = steps_until(&a, STEPS);
		failures += rc != 0;
		mt_require(!rc || rc == -FI_ENOSPC, "%s with %lu pages free: %s", step_names[a.at], pages,
			   fi_strerror(-rc));
		leave_pages(ULONG_MAX);
		mt_must(steps_until(&a, STEPS));
		attempt_close(&a);
	}
	mt_require(failures, "it never failed");
	free(info->src_addr);
	info->src_addr = plain;
}

static void (*body)(void);

static int in_small_shm(void)
{
	static void (*const bodies[])(void) = { memory_body, service_body };
	static const char *const names[] = { "memory", "memory-service" };
	int worst = MT_OK;

	for (int i = 0; i < 2; i++) {
		int result;

		body = bodies[i];
		result = mt_run(&(struct mt_case){ .name = names[i],
						   .ranks = 2,
						   .rank = limits_rank,
						   .arg = &body,
						   .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		worst = result == MT_FAIL ? result : worst;
	}
	return worst;
}

/* ---- descriptors, address space -------------------------------------------------------------- */

static bool is_short(int rc)
{
	return rc == -FI_EMFILE || rc == -FI_ENOMEM;
}

static void set_limit(int which, rlim_t value)
{
	struct rlimit limit;

	mt_require(!getrlimit(which, &limit), "getrlimit");
	limit.rlim_cur = value > limit.rlim_max ? limit.rlim_max : value;
	mt_require(!setrlimit(which, &limit), "setrlimit: %s", strerror(errno));
}

/* Under the limit; and again when it is lifted, from where it stopped. */
static int limit_at(int which, rlim_t value)
{
	static struct attempt a;
	struct rlimit before;
	int failed, rc;

	mt_require(!getrlimit(which, &before), "getrlimit");
	set_limit(which, value);
	rc = steps_until(&a, STEPS);
	set_limit(which, before.rlim_cur);
	failed = a.at;
	mt_require(!rc || is_short(rc), "%s under a limit of %llu: %s", step_names[failed],
		   (unsigned long long)value, fi_strerror(-rc));
	rc = steps_until(&a, STEPS);
	mt_require(!rc, "%s without the limit, after it had failed: %s", step_names[a.at],
		   fi_strerror(-rc));
	attempt_close(&a);
	return failed;
}

static void descriptors_body(void)
{
	int failures[STEPS + 1] = { 0 };

	for (rlim_t limit = 1; limit < 80; limit++) {
		mt_doing("with a limit of %d descriptors", (int)limit);
		failures[limit_at(RLIMIT_NOFILE, limit)]++;
	}
	mt_require(failures[EVENTS] && failures[STEPS], "failures: %d of fi_eq_open, %d of none",
		   failures[EVENTS], failures[STEPS]);
	/* without an event queue the endpoint is the first to fail */
	for (rlim_t limit = 1; limit < 40; limit++) {
		static struct attempt a;
		struct rlimit before;
		int rc;

		getrlimit(RLIMIT_NOFILE, &before);
		mt_must(steps_until(&a, ENABLE));
		set_limit(RLIMIT_NOFILE, limit);
		rc = steps_until(&a, STEPS);
		failures[a.at]++;
		set_limit(RLIMIT_NOFILE, before.rlim_cur);
		mt_require(!rc || is_short(rc), "%s with %d descriptors: %s", step_names[a.at], (int)limit,
			   fi_strerror(-rc));
		mt_must(steps_until(&a, STEPS));
		attempt_close(&a);
	}
	mt_require(failures[ENABLE] && failures[INSERT], "failures: %d of fi_enable, %d of fi_av_insert",
		   failures[ENABLE], failures[INSERT]);
}

/* The mapped memory of the process, bytes. */
static rlim_t mapped(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	mt_require(file && fscanf(file, "%lu", &pages) == 1, "/proc/self/statm");
	fclose(file);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void space_body(void)
{
	int failures[STEPS + 1] = { 0 };

	for (rlim_t more = 0; more < (rlim_t)64 << 20; more += more < 1 << 20 ? 64 << 10 : 1 << 20) {
		mt_doing("with %llu KiB of address space more", (unsigned long long)more >> 10);
		/* asked for each time: the first malloc(3) of a thread takes a lot, and may come at any time */
		failures[limit_at(RLIMIT_AS, mapped() + more)]++;
	}
	mt_require(failures[ENABLE] && failures[SEND] && failures[STEPS],
		   "failures: %d of fi_enable, %d of the connection, %d of none", failures[ENABLE],
		   failures[SEND], failures[STEPS]);
}

int main(void)
{
	static void (*const descriptors)(void) = descriptors_body, (*const space)(void) = space_body;
	const struct mt_case cases[] = {
		{ .name = "descriptors", .arg = &descriptors },
		{ .name = "address-space", .arg = &space },
	};

	setenv("FI_SHMCMA_CALIBRATE", "no", 1); /* its file would take a page while free ones are counted */
	mt_init("test_limits");
	if (mt_with_shm(SHM_SIZE, in_small_shm) == MT_SKIP)
		printf("test_limits memory ... skipped: no mount namespace\n");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mt_case test = cases[i];

		test.ranks = 2;
		test.rank = limits_rank;
		test.flags = MT_CASE_SHMCMA | MT_CASE_LOSSY;
		mt_run(&test);
	}
	return mt_end();
}
