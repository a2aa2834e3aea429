/* SPDX-License-Identifier: BSD-2-Clause */
/* thread.h: for unit tests of the core's own thread: is there one, and does it sleep? After cmocka.h. */
#ifndef THREAD_H
#define THREAD_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/atomic.h"
#include "../watchdog.h"

/* Returns how many threads of this process have the name of the core's thread; `tid`: the last of them. */
static inline int thread_find(char tid[static 300])
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[300], text[64] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fgets(text, sizeof(text), file) && !strcmp(text, "shmcma-daemon\n")) {
			snprintf(tid, 300, "%s", entry->d_name);
			count++;
		}
		fclose(file);
	}
	closedir(dir);
	return count;
}

/* Waits until there are so many: the thread gives itself its name, after its start. */
static inline void thread_await(int count)
{
	char tid[300];

	watchdog_await(thread_find(tid) == count);
}

static inline uint64_t thread_memory_at(uint64_t address)
{
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	uint64_t word = 0;

	assert_return_code(fd, errno);
	(void)!pread(fd, &word, sizeof(word), (off_t)address); /* of one that has gone meanwhile: 0 */
	close(fd);
	return word;
}

/* Reads the first line of a file of the core's thread, see proc(5). */
static inline void thread_read(const char *name, char text[static 256])
{
	char tid[300], path[400];
	FILE *file;

	assert_int_equal(thread_find(tid), 1);
	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", tid, name);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(text, 256, file));
	fclose(file);
}

/*
 * Is it asleep until its tick, or until it has settled? All else that it waits for by itself is within a second. Where
 * it looks for what others have left (config.scan) it never is.
 */
static inline bool thread_sleeps_to_its_tick(void)
{
	char text[256], later[256];
	unsigned long call = 0, timeout = 0;

	thread_read("stat", text);
	if (!strstr(text, ") S "))
		return false; /* the next file shows the system call of a thread that is about to leave it, too */
	thread_read("syscall", text); /* "running", or the number and the arguments */
	(void)sscanf(text, "%lu %*x %*x %lx", &call, &timeout);
#ifdef SYS_poll
	if (call == SYS_poll)
		return timeout > 1000;
#endif
	if (call != SYS_ppoll || thread_memory_at(timeout) <= 1) /* tv_sec */
		return false;
	thread_read("syscall", later); /* it was its time if it still sleeps */
	return !strcmp(text, later);
}

static inline void thread_await_sleep(void)
{
	watchdog_await(thread_sleeps_to_its_tick());
}

#endif
