/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h: two endpoints that talk to each other, for tests of data calls through libfabric's public API.
 *
 * Every test runs in a process of its own, made by fork before anything of libfabric is touched, so that
 * parameters (FI_SHMCMA_...) and open objects are a test's own:
 *
 *	ALONE(f)              one process, f opens a struct pair: both endpoints in it
 *	ALONE_ENV(f, env)     the same with environment variables, "NAME=value ..."
 *	BOTH(f, g)            two processes; f and g get a struct pair whose `a` is their own endpoint and
 *	BOTH_ENV(f, g, env)   talks to the other's
 *
 * A failed check ends the process that made it, and with it the test. The hints name the provider shmcma;
 * FI_PROVIDER_PATH says where it is. Every test proves that only shmcma has carried its messages: the operations
 * that completed are in the counters that its endpoints log when they are closed.
 *
 * The stderr of a process is shown when the process fails, and with TEST_VERBOSE in the environment. With
 * SHMCMA_NO_SKIP a test that is skipped fails, except with sanitizers or for lack of memory.
 */
#ifndef PAIR_H
#define PAIR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "../meminfo.h"
#include "../pattern.h"
#include "../watchdog.h"
#include "older.h"

/* ---- checks ---------------------------------------------------------------------------------- */

__attribute__((noreturn)) static inline void pair_fail(const char *file, int line, const char *what,
						       long long got, long long want)
{
	dprintf(STDERR_FILENO, "%s:%d: %s: %lld (%s), not %lld\n", file, line, what, got,
		got < 0 && got > -FI_ERRNO_MAX ? fi_strerror((int)-got) : "-", want);
	_exit(1);
}

#define must(condition)                                                                                   \
	do {                                                                                              \
		if (!(condition))                                                                         \
			pair_fail(__FILE__, __LINE__, #condition, 0, 1);                                  \
	} while (0)

#define gives(call, value)                                                                                \
	do {                                                                                              \
		long long got_ = (long long)(call), want_ = (long long)(value);                           \
		if (got_ != want_)                                                                        \
			pair_fail(__FILE__, __LINE__, #call, got_, want_);                                \
	} while (0)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Tells whether a thread of this process sleeps in the kernel. */
static inline bool pair_is_asleep(pid_t tid)
{
	char path[64], text[256] = "";
	const char *end;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	file = fopen(path, "r");
	if (!file)
		return false;
	must(fgets(text, sizeof(text), file));
	fclose(file);
	end = strrchr(text, ')');
	return end && !strncmp(end, ") S", 3);
}

/* ---- a process per test ---------------------------------------------------------------------- */

struct pair;
struct pair_want;

struct pair_test {
	void (*alone)(void);
	void (*first)(struct pair *pair);
	void (*second)(struct pair *pair);
	void (*before)(void); /* in each process of first and second, before anything is opened */
	const struct pair_want *want; /* first and second; NULL: the usual */
	const char *env;
};

/* In the processes of a test: the test. */
static const struct pair_test *pair_current;

static inline void pair_env(const char *env)
{
	static char copy[256];

	snprintf(copy, sizeof(copy), "%s", env ? env : "");
	for (char *each = strtok(copy, " "); each; each = strtok(NULL, " "))
		putenv(each);
}

#define PAIR_SKIP 77 /* exit code of a test that could not be made here */

/* One of a test's processes, as its parent sees it. */
struct pair_child {
	pid_t pid;
	int log; /* its stderr */
};

/*
 * The completions that the test has seen in this process; `peeks` counts the calls that complete like a receive and
 * are none: peeks and discards.
 */
static struct {
	unsigned long long sent, received, peeks, accesses;
} pair_seen;

/* To be called by a forked child that would not end by itself: it ends with its test, whatever that one ends by. */
static inline void pair_end_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	watchdog_start(NULL, 0);
}

static inline bool pair_start(struct pair_child *child)
{
	child->log = memfd_create("stderr", MFD_CLOEXEC);
	if (child->log < 0)
		fail_msg("memfd_create: %s", strerror(errno));
	fcntl(child->log, F_SETFL, O_APPEND);
	fflush(NULL);
	child->pid = fork();
	if (child->pid < 0)
		fail_msg("fork: %s", strerror(errno));
	if (child->pid)
		return false;
	pair_end_with_parent();
	dup2(child->log, STDERR_FILENO);
	setenv("FI_LOG_LEVEL", "info", 1);
	setenv("FI_LOG_PROV", "shmcma", 1);
	return true;
}

/* The end of a process that has done its test. */
__attribute__((noreturn)) static inline void pair_finish(void)
{
	unsigned long long received =
		pair_seen.received > pair_seen.peeks ? pair_seen.received - pair_seen.peeks : 0;

	dprintf(STDERR_FILENO, "pair: seen: tx_msgs=%llu rx_msgs=%llu rma_ops=%llu any=%d\n",
		pair_seen.sent, received, pair_seen.accesses, pair_seen.sent || pair_seen.received);
	exit(0);
}

static inline char *pair_log_read(int fd, off_t from)
{
	off_t end = lseek(fd, 0, SEEK_END);
	size_t size = end > from ? (size_t)(end - from) : 0;
	char *text = malloc(size + 1);
	ssize_t got;

	must(text);
	got = pread(fd, text, size, from);
	text[got > 0 ? got : 0] = '\0';
	return text;
}

/* The sum of that number in all lines that begin, after libfabric's prefix, with `line`. -1: there is none. */
static inline long long pair_log_sum(const char *text, const char *line, const char *name)
{
	long long sum = -1;

	for (const char *at = text; (at = strstr(at, line)); at++) {
		const char *value = strstr(at, name);

		must(value);
		sum = (sum < 0 ? 0 : sum) + atoll(value + strlen(name));
	}
	return sum;
}

/* Is everything that completed among what the provider counted? */
static inline bool pair_log_proves(const char *text)
{
	long long seen_tx = pair_log_sum(text, "pair: seen:", " tx_msgs=");
	long long seen_rx = pair_log_sum(text, "pair: seen:", " rx_msgs=");
	long long any = pair_log_sum(text, "pair: seen:", " any=");
	long long tx = pair_log_sum(text, "shmcma: counters:", " tx_msgs=");
	long long rx = pair_log_sum(text, "shmcma: counters:", " rx_msgs=");
	long long seen_rma = pair_log_sum(text, "pair: seen:", " rma_ops=");
	long long rma = pair_log_sum(text, "shmcma: counters:", " rma_ops=");

	if (any < 0) {
		fprintf(stderr, "the process left its test before the end\n");
		return false;
	}
	if (seen_rma && rma < seen_rma) {
		fprintf(stderr, "%lld one-sided operations completed, shmcma counted %lld\n", seen_rma, rma);
		return false;
	}
	if (!any || (tx >= seen_tx && rx >= seen_rx && tx + rx > 0))
		return true;
	fprintf(stderr, "%lld sends and %lld receives completed, shmcma counted %lld and %lld\n", seen_tx,
		seen_rx, tx, rx);
	return false;
}

/* Without what only a search for a fault needs. */
static inline void pair_log_print(char *text)
{
	bool all = getenv("TEST_VERBOSE");
	char *save;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (all || strncmp(line, "libfabric:", 10) || strstr(line, "<warn>"))
			fprintf(stderr, "  | %s\n", line);
}

/* Wait for a child: its exit code, or -1; a test that shmcma has not carried gives 1. */
static inline int pair_reap(const struct pair_child *child)
{
	int status, code;
	char *text;

	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		fprintf(stderr, "the process ended by signal %d\n", WTERMSIG(status));
	code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	text = pair_log_read(child->log, 0);
	if (!code && !pair_log_proves(text))
		code = 1;
	if ((code && code != PAIR_SKIP) || getenv("TEST_VERBOSE"))
		pair_log_print(text);
	free(text);
	close(child->log);
	return code;
}

static inline void pair_skipped(void)
{
	const char *no_skip = getenv("SHMCMA_NO_SKIP");

	if (no_skip && *no_skip && !SANITIZED && !memory_is_short())
		fail_msg("skipped, but SHMCMA_NO_SKIP is set");
	/* test/report.sh gives this line as the reason */
	print_message("needs %s\n", SANITIZED		? "a build without sanitizers"
				    : memory_is_short() ? "more memory"
							: "something that this system does not have");
	skip();
}

static inline void pair_alone(void **state)
{
	const struct pair_test *test = *state;
	struct pair_child child;
	int code;

	if (pair_start(&child)) {
		pair_current = test;
		pair_env(test->env);
		test->alone();
		pair_finish();
	}
	code = pair_reap(&child);
	if (code == PAIR_SKIP)
		pair_skipped();
	if (code)
		fail_msg("the process failed");
}

#define ALONE(f) ALONE_ENV(f, NULL)
#define ALONE_ENV(f, e)                                                                                   \
	{                                                                                                 \
		.name = #f, .test_func = pair_alone, .initial_state = &(struct pair_test)                 \
		{                                                                                         \
			.alone = f, .env = e                                                              \
		}                                                                                         \
	}

/* ---- objects --------------------------------------------------------------------------------- */

#define PAIR_CAPS (FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE | FI_FENCE)

/* The wishes of a test that differ from the usual; all 0: none. */
struct pair_want {
	uint64_t caps;
	uint32_t version;
	uint64_t flags;		  /* of fi_getinfo(3) */
	enum fi_cq_format format; /* usual: FI_CQ_FORMAT_TAGGED */
	enum fi_wait_obj wait_obj;
	enum fi_threading threading; /* usual: FI_THREAD_SAFE */
	enum fi_progress progress;   /* of data; usual: FI_PROGRESS_MANUAL */
	uint64_t tx_op_flags, rx_op_flags;
	uint64_t tx_bind, rx_bind; /* FI_SELECTIVE_COMPLETION */
	uint64_t msg_order, tx_comp_order, rx_comp_order;
	size_t tx_size, rx_size, cq_size;
	int mr_mode;
	bool strangers; /* the endpoints are not in each other's address vector */
};

struct side {
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t self, peer;
	char name[64];
};

struct pair {
	struct pair_want want;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct side a, b;
	int link; /* BOTH: to the other process */
};

static inline struct fi_info *pair_hints(const struct pair_want *want)
{
	struct fi_info *hints = fi_allocinfo();

	must(hints);
	hints->caps = want->caps ? want->caps : PAIR_CAPS;
	hints->fabric_attr->prov_name = strdup("shmcma");
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->op_flags = want->tx_op_flags;
	hints->rx_attr->op_flags = want->rx_op_flags;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = want->msg_order;
	hints->tx_attr->comp_order = want->tx_comp_order;
	hints->rx_attr->comp_order = want->rx_comp_order;
	hints->tx_attr->size = want->tx_size;
	hints->rx_attr->size = want->rx_size;
	hints->domain_attr->threading = want->threading;
	hints->domain_attr->mr_mode = want->mr_mode;
	hints->domain_attr->data_progress = want->progress;
	return hints;
}

/* A test of what a newer libfabric does defines these before it includes this header. */
#ifndef PAIR_GETINFO
#define PAIR_GETINFO fi_getinfo
#define PAIR_FABRIC fi_fabric
#define PAIR_HINTS pair_hints
#endif

static inline void pair_open_domain(struct pair *pair, const struct pair_want *want)
{
	struct fi_info *hints;

	memset(pair, 0, sizeof(*pair));
	if (want)
		pair->want = *want;
	pair->link = -1;
	hints = PAIR_HINTS(&pair->want);
	gives(PAIR_GETINFO(pair->want.version ? pair->want.version : FI_VERSION(1, 17), NULL, NULL,
			   pair->want.flags, hints, &pair->info),
	      0);
	fi_freeinfo(hints);
	if (pair->want.tx_size)
		pair->info->tx_attr->size = pair->want.tx_size;
	if (pair->want.rx_size)
		pair->info->rx_attr->size = pair->want.rx_size;
	gives(PAIR_FABRIC(pair->info->fabric_attr, &pair->fabric, NULL), 0);
	gives(fi_domain(pair->fabric, pair->info, &pair->domain, NULL), 0);
}

static inline struct fid_av *pair_open_av(struct pair *pair)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fid_av *av;

	gives(fi_av_open(pair->domain, &attr, &av, NULL), 0);
	return av;
}

static inline struct fid_cq *pair_open_cq(struct pair *pair)
{
	struct fi_cq_attr attr = {
		.size = pair->want.cq_size,
		.format = pair->want.format ? pair->want.format : FI_CQ_FORMAT_TAGGED,
		.wait_obj = pair->want.wait_obj,
	};
	struct fid_cq *cq;

	gives(fi_cq_open(pair->domain, &attr, &cq, NULL), 0);
	return cq;
}

static inline struct fid_eq *pair_open_eq(struct pair *pair)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fid_eq *eq;

	gives(fi_eq_open(pair->fabric, &attr, &eq, NULL), 0);
	return eq;
}

/* A further endpoint; not yet bound to anything. */
static inline struct fid_ep *pair_open_ep(struct pair *pair)
{
	struct fid_ep *ep;

	gives(fi_endpoint(pair->domain, pair->info, &ep, NULL), 0);
	return ep;
}

/* Binds the objects that an endpoint needs before it can be enabled, both directions to one queue. */
static inline void pair_bind(struct fid_ep *ep, struct fid_cq *cq, struct fid_av *av)
{
	gives(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
	gives(fi_ep_bind(ep, &av->fid, 0), 0);
}

static inline fi_addr_t pair_insert(struct fid_av *av, const char *name)
{
	fi_addr_t addr = FI_ADDR_NOTAVAIL;

	gives(fi_av_insert(av, name, 1, &addr, 0, NULL), 1);
	return addr;
}

/* An endpoint with its own address vector and completion queue, `context` its own. */
static inline void side_open(struct pair *pair, struct side *side)
{
	size_t len = sizeof(side->name);

	side->av = pair_open_av(pair);
	side->cq = pair_open_cq(pair);
	gives(fi_endpoint(pair->domain, pair->info, &side->ep, side), 0);
	gives(fi_ep_bind(side->ep, &side->av->fid, 0), 0);
	gives(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | pair->want.tx_bind), 0);
	gives(fi_ep_bind(side->ep, &side->cq->fid, FI_RECV | pair->want.rx_bind), 0);
	gives(fi_enable(side->ep), 0);
	gives(fi_getname(&side->ep->fid, side->name, &len), 0);
	side->self = side->peer = FI_ADDR_NOTAVAIL;
}

static inline void side_close(struct side *side)
{
	if (side->ep)
		gives(fi_close(&side->ep->fid), 0);
	if (side->cq)
		gives(fi_close(&side->cq->fid), 0);
	if (side->av)
		gives(fi_close(&side->av->fid), 0);
}

/* The two sides have different numbers for the same endpoint, so that a mix-up shows. */
static inline void pair_introduce(struct pair *pair)
{
	pair->a.self = pair_insert(pair->a.av, pair->a.name);
	pair->a.peer = pair_insert(pair->a.av, pair->b.name);
	pair->b.peer = pair_insert(pair->b.av, pair->a.name);
	pair->b.self = pair_insert(pair->b.av, pair->b.name);
}

/* `want` NULL: the usual. */
static inline void pair_open(struct pair *pair, const struct pair_want *want)
{
	pair_open_domain(pair, want);
	side_open(pair, &pair->a);
	side_open(pair, &pair->b);
	if (!pair->want.strangers)
		pair_introduce(pair);
}

static inline void pair_close(struct pair *pair)
{
	side_close(&pair->a);
	side_close(&pair->b);
	gives(fi_close(&pair->domain->fid), 0);
	gives(fi_close(&pair->fabric->fid), 0);
	fi_freeinfo(pair->info);
}

/* ---- progress and completions ---------------------------------------------------------------- */

static inline void side_progress(struct side *side)
{
	if (side->cq)
		fi_cq_read(side->cq, NULL, 0);
}

/*
 * The other process, if there is one, may be waiting for this processor. It gets it by a nap, as beside a busy process
 * each sched_yield(2) takes a whole time slice.
 */
static inline void pair_progress(struct pair *pair)
{
	static unsigned int calls;

	side_progress(&pair->a);
	side_progress(&pair->b);
	if (pair->link >= 0 && ++calls % 128 == 0)
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
}

/* Post until it is taken: `call` gives -FI_EAGAIN for a while. */
#define post(pair, call)                                                                                  \
	do {                                                                                              \
		ssize_t ret_;                                                                             \
		while ((ret_ = (call)) == -FI_EAGAIN)                                                     \
			pair_progress(pair);                                                              \
		gives(ret_, 0);                                                                           \
	} while (0)

struct done {
	struct fi_cq_tagged_entry entry; /* as much of it as the format has */
	fi_addr_t source;
};

/* A format that has no flags leaves them 0. */
static inline void pair_saw(const struct fi_cq_tagged_entry *entry)
{
	pair_seen.sent += !!(entry->flags & FI_SEND);
	pair_seen.received += !!(entry->flags & FI_RECV);
	pair_seen.accesses += entry->flags & (FI_RMA | FI_ATOMIC) && entry->flags & (FI_READ | FI_WRITE);
}

/* With API 1.20 and later the provider also writes what follows in newer versions of the structure. */
struct error_entry {
	struct fi_cq_err_entry entry;
	uint64_t newer;
};

/* The next completion of that side, which is no error. */
static inline struct done pair_done(struct pair *pair, struct side *side)
{
	struct done done = { .source = 0 };
	ssize_t ret;

	while ((ret = fi_cq_readfrom(side->cq, &done.entry, 1, &done.source)) == -FI_EAGAIN)
		pair_progress(pair);
	if (ret == -FI_EAVAIL) {
		struct error_entry error = { .newer = 0 };

		fi_cq_readerr(side->cq, &error.entry, 0);
		dprintf(STDERR_FILENO, "completion with error %d (%s)\n", error.entry.err,
			fi_strerror(error.entry.err));
	}
	gives(ret, 1);
	pair_saw(&done.entry);
	return done;
}

/* The next completion, which is an error. */
static inline struct fi_cq_err_entry pair_error(struct pair *pair, struct side *side)
{
	struct error_entry error = { .newer = 0 };
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	while ((ret = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		pair_progress(pair);
	gives(ret, -FI_EAVAIL);
	gives(fi_cq_readerr(side->cq, &error.entry, 0), 1);
	return error.entry;
}

/* Nothing completes on that side, however much progress is made. */
static inline void pair_quiet(struct pair *pair, struct side *side)
{
	struct fi_cq_tagged_entry entry;

	for (int i = 0; i < 200; i++) {
		pair_progress(pair);
		gives(fi_cq_read(side->cq, &entry, 1), -FI_EAGAIN);
	}
}

/* ---- either kind of message ------------------------------------------------------------------ */

static inline ssize_t kind_send(bool tagged, struct side *side, const void *buf, size_t len,
				fi_addr_t dest, void *context)
{
	return tagged ? fi_tsend(side->ep, buf, len, NULL, dest, 7, context)
		      : fi_send(side->ep, buf, len, NULL, dest, context);
}

static inline ssize_t kind_recv(bool tagged, struct side *side, void *buf, size_t len, fi_addr_t source,
				void *context)
{
	return tagged ? fi_trecv(side->ep, buf, len, NULL, source, 7, 0, context)
		      : fi_recv(side->ep, buf, len, NULL, source, context);
}

static inline ssize_t kind_inject(bool tagged, struct side *side, const void *buf, size_t len,
				  fi_addr_t dest)
{
	return tagged ? fi_tinject(side->ep, buf, len, dest, 7) : fi_inject(side->ep, buf, len, dest);
}

/* The arguments of fi_sendmsg and fi_recvmsg, of either kind; tag 7 unless set. */
struct kind_msg {
	struct iovec iov[16];
	size_t iov_count;
	fi_addr_t addr;
	uint64_t data, tag, ignore;
	void *context;
};

static inline struct fi_msg_tagged kind_full(const struct kind_msg *msg)
{
	return (struct fi_msg_tagged){
		.msg_iov = msg->iov,
		.iov_count = msg->iov_count,
		.addr = msg->addr,
		.tag = msg->tag ? msg->tag : 7,
		.ignore = msg->ignore,
		.context = msg->context,
		.data = msg->data,
	};
}

static inline struct fi_msg kind_plain(const struct kind_msg *msg)
{
	return (struct fi_msg){
		.msg_iov = msg->iov,
		.iov_count = msg->iov_count,
		.addr = msg->addr,
		.context = msg->context,
		.data = msg->data,
	};
}

static inline ssize_t kind_sendmsg(bool tagged, struct side *side, const struct kind_msg *msg,
				   uint64_t flags)
{
	struct fi_msg_tagged full = kind_full(msg);
	struct fi_msg plain = kind_plain(msg);

	return tagged ? fi_tsendmsg(side->ep, &full, flags) : fi_sendmsg(side->ep, &plain, flags);
}

static inline ssize_t kind_recvmsg(bool tagged, struct side *side, const struct kind_msg *msg,
				   uint64_t flags)
{
	struct fi_msg_tagged full = kind_full(msg);
	struct fi_msg plain = kind_plain(msg);

	pair_seen.peeks += !!(flags & (FI_PEEK | FI_DISCARD));
	return tagged ? fi_trecvmsg(side->ep, &full, flags) : fi_recvmsg(side->ep, &plain, flags);
}

static inline uint64_t kind_cq_flags(bool tagged, uint64_t direction)
{
	return direction | (tagged ? FI_TAGGED : FI_MSG);
}

/* ---- payload --------------------------------------------------------------------------------- */

/* Each of these bytes is `value`. */
static inline bool bytes_are(const uint8_t *bytes, size_t len, uint8_t value)
{
	return !len || (bytes[0] == value && !memcmp(bytes, bytes + 1, len - 1));
}

/* A buffer of len bytes with GUARD bytes of 0xee on both sides. */
#define GUARD 64

static inline uint8_t *guarded_alloc(size_t len)
{
	uint8_t *all = malloc(len + 2 * GUARD);

	must(all);
	memset(all, 0xee, len + 2 * GUARD);
	return all + GUARD;
}

static inline bool guarded_intact(const uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < GUARD; i++)
		if (buf[-1 - (ptrdiff_t)i] != 0xee || buf[len + i] != 0xee)
			return false;
	return true;
}

static inline void guarded_free(uint8_t *buf)
{
	free(buf - GUARD);
}

/* Sizes on both sides of every change of way that the defaults have, and of page and line. */
static const size_t pair_sizes[] = {
	0,
	1,
	7,
	8,
	31,
	32,
	33,
	39,
	40,
	41,
	63,
	64,
	65,
	95,
	96,
	97,
	151,
	152,
	153,
	199,
	200,
	201,
	207,
	208,
	209,
	255,
	256,
	257,
	511,
	512,
	513,
	871,
	872,
	873,
	879,
	880,
	881,
	1024,
	4095,
	4096,
	4097,
	8191,
	8192,
	8193,
	16384,
	16385,
	32767,
	32768,
	32769,
	65535,
	65536,
	65537,
	100000,
	1 << 20,
	(1 << 20) + 1,
	(4 << 20) + 3,
};
#define PAIR_SIZES (sizeof(pair_sizes) / sizeof(pair_sizes[0]))

/* ---- what the provider counted --------------------------------------------------------------- */

/*
 * Where the payload went is not told by libfabric's calls but by the line that each endpoint logs when it
 * is closed.
 */
struct counters {
	off_t from; /* in the process's log */
};

static inline void counters_begin(struct counters *counters)
{
	counters->from = lseek(STDERR_FILENO, 0, SEEK_END);
}

/* The line of the first endpoint closed since counters_begin(). */
static inline const char *counters_end(struct counters *counters)
{
	static char *text; /* until the next call */
	char *line;

	free(text);
	text = pair_log_read(STDERR_FILENO, counters->from);
	line = strstr(text, "shmcma: counters: ");
	must(line);
	*strchr(line, '\n') = '\0';
	return line;
}

static inline unsigned long long counter(const char *line, const char *name)
{
	char wanted[64];
	const char *at;

	snprintf(wanted, sizeof(wanted), " %s=", name);
	at = strstr(line, wanted);
	if (!at)
		pair_fail(__FILE__, __LINE__, name, 0, 1);
	return strtoull(at + strlen(wanted), NULL, 10);
}

/* ---- memory that the kernel copies for no other process -------------------------------------- */

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

/* This process alone can read and write it. Where there is no such memory the test is skipped. */
static inline uint8_t *secret_alloc(size_t len)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	void *map;

	if (fd < 0)
		_exit(PAIR_SKIP);
	gives(ftruncate(fd, (off_t)len), 0);
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED) /* as much of it as may be locked */
		_exit(PAIR_SKIP);
	return map;
}

/* ---- two processes --------------------------------------------------------------------------- */

/* Both processes come to this point; meanwhile progress is made, as the other may need it. */
static inline void pair_meet(struct pair *pair)
{
	struct pollfd ready = { .fd = pair->link, .events = POLLIN };
	char byte = 'm';

	gives(write(pair->link, &byte, 1), 1);
	while (poll(&ready, 1, 0) != 1)
		pair_progress(pair);
	gives(read(pair->link, &byte, 1), 1);
}

static inline void pair_exchange(int fd, const void *out, void *in, size_t len)
{
	gives(write(fd, out, len), len);
	gives(recv(fd, in, len, MSG_WAITALL), len);
}

/* A role may end them. */
static struct counters pair_counters;

static inline void pair_role(const struct pair_test *test, void (*role)(struct pair *pair), int fd)
{
	struct pair pair;
	char name[64];

	pair_current = test;
	pair_env(test->env);
	if (test->before)
		test->before();
	counters_begin(&pair_counters);
	pair_open_domain(&pair, test->want);
	pair.link = fd;
	side_open(&pair, &pair.a);
	pair_exchange(fd, pair.a.name, name, sizeof(name));
	pair.a.peer = pair_insert(pair.a.av, name);
	role(&pair);
	pair_meet(&pair);
	pair_close(&pair);
	pair_finish();
}

static inline void pair_both(void **state)
{
	const struct pair_test *test = *state;
	struct pair_child children[2];
	int fds[2], first, second;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		fail_msg("socketpair: %s", strerror(errno));
	if (pair_start(&children[0])) {
		close(fds[1]);
		pair_role(test, test->first, fds[0]);
	}
	if (pair_start(&children[1])) {
		close(fds[0]);
		pair_role(test, test->second, fds[1]);
	}
	close(fds[0]);
	close(fds[1]);
	first = pair_reap(&children[0]);
	second = pair_reap(&children[1]);
	if (first == PAIR_SKIP || second == PAIR_SKIP)
		pair_skipped();
	if (first || second)
		fail_msg("%s failed", !first	? "the second process"
				      : !second ? "the first process"
						: "both");
}

#define BOTH(f, g)                                                                                        \
	{                                                                                                 \
		.name = #f, .test_func = pair_both, .initial_state = &(struct pair_test)                  \
		{                                                                                         \
			.first = f, .second = g                                                           \
		}                                                                                         \
	}
#define BOTH_ENV(f, g, e)                                                                                 \
	{                                                                                                 \
		.name = #f " " e, .test_func = pair_both, .initial_state = &(struct pair_test)            \
		{                                                                                         \
			.first = f, .second = g, .env = e                                                 \
		}                                                                                         \
	}

#endif
