/* SPDX-License-Identifier: BSD-2-Clause */
/* meminfo.h: is there room for two buffers of more than 4 GiB, as the largest messages, puts and gets need? */
#ifndef MEMINFO_H
#define MEMINFO_H

#include <stdbool.h>
#include <stdio.h>

/* Less than 12 GiB: the two, and what else the machine does (proc(5)). */
static inline bool memory_is_short(void)
{
	unsigned long kilobytes = 0;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "r");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %lu", &kilobytes) == 1)
			break;
	if (file)
		fclose(file);
	return kilobytes < 12UL << 20;
}

#endif
