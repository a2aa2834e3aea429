/* SPDX-License-Identifier: BSD-2-Clause */
/* pidfds.h: for the tests of what watches processes: which pidfds a process has. */
#ifndef PIDFDS_H
#define PIDFDS_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
#include "../watchdog.h"

/* How many descriptors of that process, 0: this one, are pidfds; `of`: of that one, 0: of any (also one that has ended). */
static inline int pidfds_count(pid_t owner, pid_t of)
{
	struct dirent *entry;
	int count = 0;
	char path[64] = "/proc/self/fdinfo"; /* of another pid namespace, too */
	DIR *dir;

	if (owner)
		snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)owner);
	dir = opendir(path);
	if (!dir) {
		perror(path);
		abort();
	}
	while ((entry = readdir(dir))) {
		char name[sizeof(path) + sizeof(entry->d_name) + 1], line[128];
		FILE *file;
		int pid;

		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		file = fopen(name, "re");
		while (file && fgets(line, sizeof(line), file))
			count += sscanf(line, "Pid: %d", &pid) == 1 && (!of || pid == of);
		if (file)
			fclose(file);
	}
	closedir(dir);
	return count;
}

/* So many of any: some time after a process has come. */
static inline void pidfds_await(pid_t owner, int count)
{
	watchdog_await(pidfds_count(owner, 0) == count);
}

#endif
