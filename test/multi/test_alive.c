/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_alive: what looks like death and is none, or looks like life and is none: a process that is stopped,
 * that has lost its first thread or all its descriptors, that runs another program by now; two copies of the
 * library in one process; a clock that jumps.
 */
#define _GNU_SOURCE 1
#include "talk.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <time.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <rdma/providers/fi_prov.h>

#define ASKS 0
#define SERVES 1
#define PATIENCE MT_FOREVER
#define LARGE TALK_MAX

static struct talk own;

static fi_addr_t open_both(void)
{
	talk_open(&own, NULL);
	mt_publish(&own.ep, mt_rank);
	return talk_friend(&own, mt_published(&own.ep, !mt_rank));
}

/* ---- a clock that jumps ---------------------------------------------------------------------- */

static _Atomic bool jumping;
static _Atomic unsigned clock_calls;

/* An hour to and fro. */
static time_t jump(void)
{
	static _Atomic unsigned calls;

	if (!atomic_load(&jumping))
		return 0;
	return atomic_fetch_add(&calls, 1) % 2 ? 3600 : -3600;
}

#define IN_PLACE_OF_LIBC __attribute__((visibility("default")))

/* In the place of libc's, also for the provider. The monotonic clocks are never set, so these do not jump. */
IN_PLACE_OF_LIBC int clock_gettime(clockid_t clock, struct timespec *now)
{
	int ret = (int)syscall(SYS_clock_gettime, clock, now);

	if (atomic_load(&jumping))
		atomic_fetch_add(&clock_calls, 1);
	if (!ret && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += jump();
	return ret;
}

IN_PLACE_OF_LIBC int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int ret = (int)syscall(SYS_gettimeofday, now, zone);

	if (!ret)
		now->tv_sec += jump();
	return ret;
}

IN_PLACE_OF_LIBC time_t time(time_t *out)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}

static void wait_in_vain(void)
{
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_entry entry;
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	uint32_t event;

	mt_must(fi_cntr_open(own.ep.domain, &attr, &cntr, NULL));
	mt_must(fi_eq_open(own.ep.fabric, &eq_attr, &eq, NULL));
	mt_require(fi_cntr_wait(cntr, 1, 20) == -FI_ETIMEDOUT, "fi_cntr_wait");
	mt_require(fi_eq_sread(eq, &event, &entry, sizeof(entry), 20, 0) == -FI_EAGAIN, "fi_eq_sread");
	mt_must(fi_close(&cntr->fid));
	mt_must(fi_close(&eq->fid));
}

static void clock_rank(const void *arg)
{
	fi_addr_t peer;

	(void)arg;
	atomic_store(&jumping, true);
	peer = open_both();
	wait_in_vain();
	mt_require(atomic_load(&clock_calls) > 0, "the provider asks another clock");
	if (mt_rank == ASKS) {
		for (int i = 0; i < 3; i++)
			talk_all(&own, peer);
		talk_stop(&own, peer);
	} else {
		talk_serve(&own);
	}
	mt_barrier(&own.ep);
	talk_close(&own);
}

/* ---- stopped --------------------------------------------------------------------------------- */

#define STOPPED 0.15 /* seconds; thousands of looks at whether it lives */

static void stop_peer(bool stop)
{
	mt_require(kill(mt_pid(SERVES), stop ? SIGSTOP : SIGCONT) == 0, "kill");
}

/* As talk_message(); the other side is stopped after so many polls. */
static void talk_across_a_stop(fi_addr_t peer, size_t size, int polls)
{
	struct mt_op send = { 0 }, recv = { 0 };
	uint64_t seed = ++own.seed;

	mt_doing("%zu bytes to a peer that is stopped after %d polls", size, polls);
	pattern_fill(own.out, 0, size, seed);
	talk_request(&own, peer, TALK_MESSAGE, size);
	mt_trecv(&own.ep, &recv, own.in, TALK_MAX, FI_ADDR_UNSPEC, TALK_ECHO);
	if (!polls)
		stop_peer(true);
	mt_tsend(&own.ep, &send, own.out, size, peer, TALK_BODY);
	for (int i = 0; i < polls; i++)
		mt_progress(&own.ep);
	if (polls)
		stop_peer(true);
	mt_poll_for(&own.ep, STOPPED);
	mt_require(!send.err && !recv.err, "an operation failed since the peer is stopped");
	mt_require(polls || !recv.done, "an answer from a process that is stopped");
	stop_peer(false);
	mt_wait(&own.ep, &send);
	mt_wait(&own.ep, &recv);
	mt_require(recv.len == size && pattern_differs(own.in, 0, size, seed) < 0, "wrong echo");
}

static void stopped_rank(const void *arg)
{
	static const size_t sizes[] = { 1, 2000, 30000, 40000, LARGE };
	static const int polls[] = { 0, 1, 5, 40 };
	fi_addr_t peer = open_both();

	(void)arg;
	if (mt_rank == SERVES) {
		talk_serve(&own);
	} else {
		talk_all(&own, peer);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t k = 0; k < sizeof(polls) / sizeof(polls[0]); k++)
				talk_across_a_stop(peer, sizes[i], polls[k]);
		talk_all(&own, peer);
		talk_stop(&own, peer);
	}
	mt_barrier(&own.ep);
	talk_close(&own);
}

/* The server is stopped before any peer connects to it; a peer that connects meanwhile waits, and is served later. */
static void stopped_before_rank(const void *arg)
{
	struct mt_op send = { 0 };
	uint64_t word = 1;
	fi_addr_t peer;

	(void)arg;
	peer = open_both();
	if (mt_rank == SERVES) {
		mt_barrier(NULL);
		talk_serve(&own);
	} else {
		mt_barrier(NULL);
		stop_peer(true);
		mt_tsend(&own.ep, &send, &word, sizeof(word), peer, 99);
		mt_poll_for(&own.ep, STOPPED);
		mt_require(!send.err, "a send failed since the peer is stopped");
		stop_peer(false);
		mt_wait(&own.ep, &send);
		talk_all(&own, peer);
		talk_stop(&own, peer);
	}
	mt_barrier(&own.ep);
	talk_close(&own);
}

/* ---- the first thread has ended -------------------------------------------------------------- */

static void *serve_without_leader(void *arg)
{
	char path[64], state[64] = "";
	FILE *file;

	(void)arg;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)getpid());
	do {
		file = fopen(path, "r");
		mt_require(file && fscanf(file, "%*d (%*[^)]) %63s", state) == 1, "%s", path);
		fclose(file);
		mt_poll_for(NULL, 0.001);
	} while (*state != 'Z');
	mt_publish(&own.ep, 2 + mt_rank); /* tells that it is so far */
	if (mt_rank == SERVES) {
		talk_serve(&own);
	} else {
		fi_addr_t peer = talk_friend(&own, mt_published(&own.ep, SERVES));

		for (int i = 0; i < 3; i++) {
			talk_all(&own, peer);
			mt_poll_for(&own.ep, 0.1);
		}
		talk_stop(&own, peer);
	}
	mt_barrier(&own.ep);
	talk_close(&own);
	if (MT_SANITIZED)
		_exit(0); /* memory that only the first thread's stack points to is a leak to the sanitizer */
	exit(0);
}

/* The thread that opened everything ends, before or after the first message. */
static void leader_rank(const void *arg)
{
	const int *who = arg;
	fi_addr_t peer = open_both();
	pthread_t thread;

	mt_barrier(&own.ep);
	if (*who == mt_rank) {
		mt_require(pthread_create(&thread, NULL, serve_without_leader, NULL) == 0, "no thread");
		pthread_exit(NULL);
	}
	mt_published(&own.ep, 2 + *who);
	if (mt_rank == SERVES) {
		talk_serve(&own);
	} else {
		for (int i = 0; i < 3; i++) {
			talk_all(&own, peer);
			mt_poll_for(&own.ep, 0.1);
		}
		talk_stop(&own, peer);
	}
	mt_barrier(&own.ep);
	talk_close(&own);
}

/* ---- exec ------------------------------------------------------------------------------------ */

/* The pid lives after an exec, but the program that had the endpoint is gone. */
static void exec_rank(const void *arg)
{
	static const size_t sizes[] = { 20000, LARGE };
	struct mt_op send[2] = { 0 }, recv = { 0 }, get = { 0 };
	struct rma_place region;
	struct mt_op ask = { 0 };
	fi_addr_t peer = open_both();
	int rc;

	(void)arg;
	mt_expect_death(SERVES);
	if (mt_rank == SERVES) {
		talk_listen(&own);
		while (talk_serve_one(&own))
			;
		execlp("sleep", "sleep", "infinity", NULL);
		mt_fail("exec: %s", strerror(errno));
	}
	talk_all(&own, peer);
	talk_request(&own, peer, TALK_REGION, 0);
	mt_trecv(&own.ep, &ask, &region, sizeof(region), FI_ADDR_UNSPEC, TALK_ECHO);
	mt_wait(&own.ep, &ask);
	mt_trecv(&own.ep, &recv, own.in, TALK_MAX, peer, TALK_BODY);
	talk_stop(&own, peer);
	for (int i = 0; i < 2; i++)
		mt_tsend(&own.ep, &send[i], own.out, sizes[i], peer, TALK_BODY);
	mt_doing("waiting for the end of what was under way to a process that runs another program");
	mt_wait_any(&own.ep, &send[1]);
	mt_require(send[1].err == FI_ECONNRESET, "the send ended with %s", fi_strerror(send[1].err));
	mt_require(kill(mt_pid(SERVES), 0) == 0, "the pid is not there any more");
	rc = mt_send_outcome(&own.ep, own.out, 1, peer, TALK_BODY, PATIENCE);
	mt_require(rc && rc != -FI_EAGAIN, "a send later on: %d", rc);
	/* a get from where the memory was */
	{
		struct rma_request request = {
			.peer = peer, .key = region.key, .local_count = 1, .remote_count = 1
		};

		request.local[0] = (struct iovec){ own.in, 100 };
		request.remote[0] = (struct fi_rma_iov){ region.addr, 100, region.key };
		rc = (int)rma_try(&own.ep, &get, &request);
		if (!rc) {
			mt_wait_any(&own.ep, &get);
			rc = -get.err;
		}
		mt_require(rc, "a get from a program that is none of ours");
	}
	mt_doing("waiting for the end of a receive from it");
	mt_wait_any(&own.ep, &recv);
	mt_require(recv.err == FI_ECONNRESET, "the receive ended with %s", fi_strerror(recv.err));
	kill(mt_pid(SERVES), SIGKILL);
	talk_close(&own);
	/* cleared away at the next start; this is one */
	talk_open(&own, NULL);
	talk_close(&own);
}

/* ---- closefrom ------------------------------------------------------------------------------- */

#define JUNK 60

/* Files of the application where the library had its own. */
static void fill_descriptors(int fds[JUNK], ino_t *ino)
{
	struct stat st;

	for (int i = 0; i < JUNK; i++) {
		fds[i] = memfd_create("junk", 0);
		mt_require(fds[i] >= 0 && fstat(fds[i], &st) == 0, "memfd");
		ino[i] = st.st_ino;
	}
}

static void check_descriptors(const int fds[JUNK], const ino_t *ino)
{
	struct stat st;

	for (int i = 0; i < JUNK; i++) {
		mt_require(fstat(fds[i], &st) == 0 && st.st_ino == ino[i],
			   "a descriptor of the application was closed");
		close(fds[i]);
	}
}

static void closefrom_rank(const void *arg)
{
	const int *who = arg;
	fi_addr_t peer = open_both();
	char name[MT_NAME_SIZE];
	int fds[JUNK];
	ino_t ino[JUNK];

	if (mt_rank == ASKS)
		talk_message(&own, peer, LARGE);
	else
		talk_listen(&own);
	while (mt_rank == SERVES && !atomic_load(mt_flag(0)))
		talk_serve_one(&own);
	if (mt_rank == ASKS)
		atomic_store(mt_flag(0), 1);
	mt_barrier(&own.ep);
	if (*who == mt_rank || *who < 0) {
		closefrom(3);
		fill_descriptors(fds, ino);
	}
	mt_barrier(&own.ep);
	if (mt_rank == SERVES) {
		while (talk_serve_one(&own))
			;
	} else {
		for (int i = 0; i < 5; i++) {
			talk_all(&own, peer);
			mt_poll_for(&own.ep, 0.1); /* looks whether it lives */
		}
		talk_stop(&own, peer);
	}
	mt_barrier(&own.ep);
	snprintf(name, sizeof(name), "%s", own.ep.name);
	mt_require(talk_has_file(name), "its name has gone");
	talk_close(&own);
	mt_require(!talk_has_file(name), "the name has stayed");
	if (*who == mt_rank || *who < 0)
		check_descriptors(fds, ino);
}

/* ---- two copies of the library --------------------------------------------------------------- */

static void module_path(char *path, size_t size)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[PATH_MAX + 200];

	mt_require(maps, "/proc/self/maps");
	*path = '\0';
	while (!*path && fgets(line, sizeof(line), maps)) {
		char *at = strchr(line, '/');

		if (at && strstr(at, "libshmcma-fi.so")) {
			at[strcspn(at, "\n")] = '\0';
			snprintf(path, size, "%s", at);
		}
	}
	fclose(maps);
	mt_require(*path, "where is the provider?");
}

static void copy_file(const char *from, int to)
{
	char buf[65536];
	int fd = open(from, O_RDONLY);
	ssize_t got;

	mt_require(fd >= 0, "%s: %s", from, strerror(errno));
	while ((got = read(fd, buf, sizeof(buf))) > 0)
		mt_require(write(to, buf, (size_t)got) == got, "copying %s", from);
	close(fd);
}

/* Another copy, with variables of its own. */
static struct fi_provider *load_twin(void)
{
	char path[PATH_MAX], copy[] = "/tmp/shmcma-twin-XXXXXX";
	struct fi_provider *(*ini)(void);
	void *module;
	int fd;

	module_path(path, sizeof(path));
	fd = mkstemp(copy);
	mt_require(fd >= 0, "mkstemp");
	copy_file(path, fd);
	close(fd);
	module = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
	unlink(copy);
	mt_require(module, "%s", dlerror());
	ini = (struct fi_provider * (*)(void)) dlsym(module, "fi_prov_ini");
	mt_require(ini, "fi_prov_ini");
	return ini();
}

/* As mt_open(), with the other copy's objects. */
static void open_twin(struct mt_ep *twin, struct fi_provider *provider, struct fi_info *like)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED };

	memset(twin, 0, sizeof(*twin));
	twin->silent = true;
	twin->info = fi_dupinfo(like);
	mt_must(provider->fabric(twin->info->fabric_attr, &twin->fabric, NULL));
	twin->fabric->api_version = FI_VERSION(1, 17);
	mt_must(fi_domain(twin->fabric, twin->info, &twin->domain, NULL));
	mt_must(fi_av_open(twin->domain, &av, &twin->av, NULL));
	mt_must(fi_cq_open(twin->domain, &cq, &twin->cq, NULL));
	mt_must(fi_endpoint(twin->domain, twin->info, &twin->ep, NULL));
	mt_must(fi_ep_bind(twin->ep, &twin->av->fid, 0));
	mt_must(fi_ep_bind(twin->ep, &twin->cq->fid, FI_TRANSMIT | FI_RECV));
	mt_must(fi_enable(twin->ep));
	twin->name_len = sizeof(twin->name);
	mt_must(fi_getname(&twin->ep->fid, twin->name, &twin->name_len));
}

static void close_twin(struct mt_ep *twin)
{
	mt_must(fi_close(&twin->ep->fid));
	mt_must(fi_close(&twin->cq->fid));
	mt_must(fi_close(&twin->av->fid));
	mt_must(fi_close(&twin->domain->fid));
	mt_must(fi_close(&twin->fabric->fid));
	fi_freeinfo(twin->info);
}

/* Neither takes the other's names for those of the dead, nor drops the other's life locks. */
static void twins_rank(const void *arg)
{
	fi_addr_t peer = open_both(), addr;
	struct fi_provider *provider;
	struct talk twin = { 0 };

	(void)arg;
	if (mt_rank == SERVES) {
		talk_serve(&own);
		mt_barrier(&own.ep);
		talk_close(&own);
		return;
	}
	provider = load_twin();
	twin.out = own.out;
	twin.in = own.in;
	for (int i = 0; i < 3; i++) {
		open_twin(&twin.ep, provider, own.ep.info);
		mt_require(talk_has_file(own.ep.name) && talk_has_file(twin.ep.name), "a name has gone");
		/* the one way that there is not: in this process, but by another copy */
		mt_require(fi_av_insert(twin.ep.av, own.ep.name, 1, &addr, 0, NULL) == 0 &&
				   fi_av_insert(own.ep.av, twin.ep.name, 1, &addr, 0, NULL) == 0,
			   "the copies take each other for processes");
		twin.friend_count = 0;
		talk_message(&own, peer, LARGE);
		talk_message(&twin, talk_friend(&twin, mt_published(NULL, SERVES)), LARGE);
		talk_message(&own, peer, LARGE);
		close_twin(&twin.ep);
		mt_require(talk_has_file(own.ep.name), "a name has gone");
		mt_poll_for(&own.ep, 0.1);
		talk_all(&own, peer);
	}
	talk_stop(&own, peer);
	mt_barrier(&own.ep);
	talk_close(&own);
}

int main(void)
{
	static const int asks = ASKS, serves = SERVES, both = -1;
	static const struct mt_case cases[] = {
		{ .name = "stopped", .ranks = 2, .rank = stopped_rank },
		{ .name = "stopped-before", .ranks = 2, .rank = stopped_before_rank },
		{ .name = "leader-ended-asking", .ranks = 2, .rank = leader_rank, .arg = &asks },
		{ .name = "leader-ended-serving", .ranks = 2, .rank = leader_rank, .arg = &serves },
		{ .name = "exec", .ranks = 2, .rank = exec_rank },
		{ .name = "closefrom-asking", .ranks = 2, .rank = closefrom_rank, .arg = &asks },
		{ .name = "closefrom-serving", .ranks = 2, .rank = closefrom_rank, .arg = &serves },
		{ .name = "closefrom-both", .ranks = 2, .rank = closefrom_rank, .arg = &both },
		{ .name = "twins", .ranks = 2, .rank = twins_rank },
		{ .name = "clock", .ranks = 2, .rank = clock_rank },
	};

	mt_init("test_alive");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct mt_case test = cases[i];

		test.flags = MT_CASE_SHMCMA | MT_CASE_LOSSY;
		mt_run(&test);
	}
	return mt_end();
}
