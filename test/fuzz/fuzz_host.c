/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_host: /proc/<pid>/stat, in which a process may give itself any name: parentheses, spaces, digits, line
 * ends, what looks like the fields behind it.
 *
 * Input: the name. The kernel puts it there; this process is found alive, running, and begun when it was.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "os/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct sc_host *host;
	char name[16] = "";

	memcpy(name, data, size < sizeof(name) - 1 ? size : sizeof(name) - 1);
	if (sc_host_get(&host) || prctl(PR_SET_NAME, name))
		abort();
	if (!host->start_time || sc_host_is_stopped(getpid()) || sc_host_has_ended(getpid(), 0) ||
	    !sc_host_runs(getpid(), host->start_time, 0) ||
	    sc_host_runs(getpid(), host->start_time + 1, 0))
		abort();
	return 0;
}
