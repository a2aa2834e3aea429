/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PIDFD_H
#define SC_PIDFD_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The pidfds of this process. Any thread. */

#define SC_PIDFDS_MAX 256
#define SC_NEIGHBOURS 8 /* processes that one watches which are no peers */
#define SC_NO_PIDFD -1

/*
 * For a peer's process, to be polled: a place in the table, which it may share with a neighbour; SC_NO_PIDFD:
 * there is none. A pidfd that was there already may be of a process that had the pid before, and has ended:
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

/*
 * A neighbour is a process that is no peer, to be watched all the same; those with the smallest `distance`
 * are kept, as many as there is room for. `name`: one by which it is known, of several.
 */
struct sc_neighbour {
	uint64_t distance, name;
};
/* Watch any from now on / forget them, and watch none. */
void sc_neighbours_want(bool wanted);
/* Is it watched, or is there no room for it? It has been seen in the look of that number, if it is. */
bool sc_neighbour_find(const struct sc_neighbour *neighbour, uint32_t look);
/* Watch the owner of the life lock of `fd`, which is that pid. False: it does not live any more. */
bool sc_neighbour_add(const struct sc_neighbour *neighbour, pid_t pid, int fd, uint32_t look);
/* Forget those that the look has not seen. */
void sc_neighbours_sweep(uint32_t look);
/* Forget those whose descriptors the application has closed. */
void sc_neighbours_check(void);
/* Forget those who have ended. Were there any? */
bool sc_neighbours_bury(const struct pollfd polls[SC_PIDFDS_MAX]);

#endif
