/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DAEMON_H
#define SC_DAEMON_H

#include <stdbool.h>
#include <shmcma/core.h>

/*
 * Start the thread, unless it runs. Any thread. False: it does not run, now and maybe later (no thread, no
 * descriptor): an endpoint that polls looks after its peers by itself. Says why, once.
 */
bool sc_daemon_start(const struct sc_config *config);

#endif
