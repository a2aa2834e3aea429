/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_NEIGHBOUR_H
#define SC_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A process that hears a knock, or shows that it needs none, or shows another door, looks so much later, or later
 * still.
 */
#define SC_NEIGHBOURS_LOOK_MS 50

/*
 * This process comes. Before it gets its first name: knock at the doors of those processes of this user that are to
 * watch it. True: there is a name whose pid no process has, so files of the dead are to be removed. Any thread.
 */
bool sc_neighbours_come(void);

/*
 * It has its name, and shows its door if it has one. Knock again if those who look by now may not have seen the name;
 * `came`: sc_clock_ns() before sc_neighbours_come(), 0: that has not been called, as there was another name. Any thread.
 */
void sc_neighbours_named(int64_t came);

/*
 * Look through the names for neighbours that are not watched yet, and have them watched; forget those who are
 * not there any more. True: there is a name that seems to be a dead process's. One thread at a time.
 */
bool sc_neighbours_look(void);

#endif
