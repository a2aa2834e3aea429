/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PIDFD_H
#define SC_PIDFD_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "os/self.h"

/* The pidfds of this process. Any thread. */

#define SC_NO_PIDFD -1

/*
 * For a peer's process, to be polled: a place in the table; SC_NO_PIDFD: there is none. A pidfd that was there already may be of a process that had the pid before, and has ended:
 * it says so at the next poll.
 */
int sc_pidfd_get(pid_t pid);
void sc_pidfd_put(int place);
/* False: the application has closed it. */
bool sc_pidfd_is_open(int place);

/* Fills `polls` with the pidfds to poll, a place for each in the table. Returns the number of places. */
nfds_t sc_pidfds_arrange(struct pollfd polls[SC_PIDFDS_MAX]);
/* Has it an event, and is it still what was polled? */
bool sc_pidfd_has_event(int place, const struct pollfd polls[SC_PIDFDS_MAX]);

/* A forked child: they are all its parent's. */
void sc_pidfds_inherited(void);

#endif
