/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PIDFD_H
#define SC_PIDFD_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "os/self.h"

/* The pidfds of this process. These functions lock nothing: each caller holds one mutex, which is the same for all. */

#define SC_NO_PIDFD -1

/* Returns a place with a new pidfd of a peer's process, to be polled; SC_NO_PIDFD: there is none. */
int sc_pidfd_get(pid_t pid);
void sc_pidfd_put(int place);
/* False: the application has closed the pidfd. */
bool sc_pidfd_is_open(int place);

/* Fills `polls` with the pidfds to poll, an entry for each place of the table. Returns the number of entries. */
nfds_t sc_pidfds_arrange(struct pollfd polls[SC_PIDFDS_MAX]);
/* Tells whether the place has an event and still is what was polled. */
bool sc_pidfd_has_event(int place, const struct pollfd polls[SC_PIDFDS_MAX]);

/* In a forked child: closes all pidfds, which belong to its parent. */
void sc_pidfds_inherited(void);

#endif
