/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DAEMON_H
#define SC_DAEMON_H

#include <stdbool.h>
#include <shmcma/core.h>

/*
 * Starts the daemon's thread, unless it runs. Any thread. False: it does not run (no thread, no descriptor), and later
 * calls may fail too; an endpoint then finds the death of peers in its own polls. Logs the reason once.
 */
bool sc_daemon_start(const struct sc_config *config);

#endif
