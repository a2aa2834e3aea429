/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * init.c: the start and the end of the provider.
 *
 * libfabric calls fi_prov_ini() once, under its own lock, before anything else here, and cleanup() in its destructor. A
 * forked child runs that destructor too; by then only what the child has opened is left (fork.c).
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

/* In a child that fork.c does not know of, everything belongs to the parent. */
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
	/*
	 * the version of the loaded libfabric: libfabric skips a provider that is older than the application asks for
	 */
	shmcma_provider.fi_version = fi_version();
	sc_log_set(log_line);
	shmcma_env_read();
	return &shmcma_provider;
}
