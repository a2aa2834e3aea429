/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_NEIGHBOUR_H
#define SC_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Knock at the doors of those processes of this user that are to watch this one, which has come. To be called before it
 * gets its first name, and, if its thread does not look and knock, after it has that. True: there is a name whose pid
 * nobody has, so what the dead have left is to be removed. Any thread.
 */
bool sc_neighbours_knock(void);

/*
 * Look through the names for neighbours that are not watched yet, and have them watched; forget those who are
 * not there any more. `knocks`: likewise, once this process has a name and shows its door. True: there is a
 * name that seems to be a dead process's. One thread at a time.
 */
bool sc_neighbours_look(bool knocks);

#endif
