/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * init.c: where libfabric comes in and goes out.
 *
 * libfabric calls fi_prov_ini() once, under its own lock, before anything else here, and cleanup() in
 * its destructor. A forked child runs that destructor too: by then only what it has opened itself is left of
 * what there is to clean up (fork.c).
 */
#include "fabric/fabric.h"
#include "base/param.h"
#include "wait/fork.h"
#include "wait/progress.h"

struct fi_provider *fi_prov_ini(void);

static void log_line(enum sc_log_level level, const char *line)
{
	if (level == SC_LOG_WARN)
		shmcma_warn(FI_LOG_CORE, "%s\n", line);
	else
		shmcma_info(FI_LOG_CORE, "%s\n", line);
}

/* In a child that fork.c was not told of, all that there is is its parent's. */
static void cleanup(void)
{
	if (!shmcma_fork_is_known())
		return;
	shmcma_progress_stop_all();
	sc_process_fini();
}

FI_EXT_INI
{
	if (shmcma_provider.cleanup)
		return &shmcma_provider;
	shmcma_fork_init();
	shmcma_provider.getinfo = shmcma_getinfo;
	shmcma_provider.fabric = shmcma_fabric_open;
	shmcma_provider.cleanup = cleanup;
	/* the library's own: it passes over a provider that is older than what an application asks for */
	shmcma_provider.fi_version = fi_version();
	sc_log_set(log_line);
	shmcma_env_read();
	return &shmcma_provider;
}
