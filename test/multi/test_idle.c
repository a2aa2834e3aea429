/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_idle: what a process with 16 peers costs that does nothing: it has talked to all of them and now
 * sleeps, and so do they. Printed are the figures of /proc for all its threads. Judged is not the time but what makes
 * it: how often a thread other than ours wakes up. Nothing happens, so nothing has to wake it but the look twice a second
 * for processes that have ended, and a tick that guards against what cannot be waited for.
 *
 * TEST_IDLE_SECONDS: how long, 3. The figure of record is that of a minute.
 */
#define _GNU_SOURCE 1
#include "multi.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PEERS 16
#define FLAG_OVER 0

static unsigned seconds(void)
{
	const char *text = getenv("TEST_IDLE_SECONDS");

	return text && atoi(text) > 0 ? (unsigned)atoi(text) : 3;
}

/* Of all threads but the main one, but for `cpu_ticks`: of all. */
struct usage {
	unsigned threads;
	uint64_t cpu_ticks, cpu_ns;
	uint64_t switches; /* voluntary: it had gone to sleep */
};

static bool read_task(const char *task, const char *file, char *text, size_t size)
{
	char path[64];
	FILE *stream;
	size_t len;

	snprintf(path, sizeof(path), "/proc/self/task/%.16s/%s", task, file);
	stream = fopen(path, "re");
	if (!stream)
		return false;
	len = fread(text, 1, size - 1, stream);
	text[len] = '\0';
	fclose(stream);
	return true;
}

/* Fields 14 and 15 of stat; the name in field 2 may hold anything. */
static uint64_t cpu_ticks(const char *stat)
{
	unsigned long user = 0, system = 0;
	const char *at = strrchr(stat, ')');

	mt_require(at && sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
				&system) == 2,
		   "/proc/self/task/*/stat is not as expected: %s", stat);
	return user + system;
}

static void add_task(struct usage *usage, const char *task)
{
	char text[4096], *at;

	if (!read_task(task, "stat", text, sizeof(text)))
		return; /* it has ended */
	usage->cpu_ticks += cpu_ticks(text);
	if (read_task(task, "schedstat", text, sizeof(text)))
		usage->cpu_ns += strtoull(text, NULL, 10);
	if (atoi(task) == getpid() || !read_task(task, "status", text, sizeof(text)))
		return;
	at = strstr(text, "\nvoluntary_ctxt_switches:");
	mt_require(at, "/proc/self/task/*/status has no voluntary_ctxt_switches");
	usage->switches += strtoull(at + 25, NULL, 10);
	usage->threads++;
}

static struct usage look(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct usage usage = { 0 };
	struct dirent *entry;

	mt_require(dir, "/proc/self/task: %s", strerror(errno));
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			add_task(&usage, entry->d_name);
	closedir(dir);
	return usage;
}

static void measure(void)
{
	struct usage before, after;
	double begin, elapsed;
	uint64_t woken;

	/* as soon as what has begun is over */
	do {
		begin = mt_now();
		before = look();
		sleep(seconds());
		after = look();
		elapsed = mt_now() - begin;
		woken = after.switches - before.switches;
	} while ((double)woken > 2 * elapsed + 3);
	printf("  %.1f s, %d peers: %llu ticks of user and system time (%.3f ms of processor), %u threads "
	       "of the "
	       "library, woken %llu times\n",
	       elapsed, PEERS, (unsigned long long)(after.cpu_ticks - before.cpu_ticks),
	       (double)(after.cpu_ns - before.cpu_ns) / 1e6, after.threads, (unsigned long long)woken);
	fflush(stdout);
}

/* Both directions, so that each has the other's memory. */
static void greet(struct mt_ep *ep, fi_addr_t peer)
{
	uint64_t out = 1, in = 0;
	struct mt_op send = { 0 }, recv = { 0 };

	mt_trecv(ep, &recv, &in, sizeof(in), peer, 1);
	mt_tsend(ep, &send, &out, sizeof(out), peer, 1);
	mt_wait(ep, &send);
	mt_wait(ep, &recv);
}

static void idle_rank(const void *arg)
{
	fi_addr_t peers[PEERS + 1];
	struct mt_ep ep;

	(void)arg;
	if (MT_SANITIZED)
		mt_skip("a sanitizer has threads of its own, which wake up");
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	mt_doing("greeting");
	for (int i = 1; mt_rank == 0 && i <= PEERS; i++)
		greet(&ep, peers[i]);
	if (mt_rank)
		greet(&ep, peers[0]);
	mt_barrier(&ep);
	mt_doing("sleeping");
	if (mt_rank == 0) {
		measure();
		atomic_store(mt_flag(FLAG_OVER), 1);
	}
	while (!atomic_load(mt_flag(FLAG_OVER)))
		usleep(20000);
	mt_barrier(&ep);
	mt_close(&ep);
}

int main(void)
{
	mt_init("test_idle");
	mt_run(&(struct mt_case){
		.name = "idle-16", .ranks = PEERS + 1, .deadline = 60 + seconds(), .rank = idle_rank });
	return mt_end();
}
