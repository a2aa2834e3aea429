/* SPDX-License-Identifier: BSD-2-Clause */
/* access.h: whether a process may read another one's memory (cross memory attach), and if not, what forbids it. */
#ifndef UTIL_ACCESS_H
#define UTIL_ACCESS_H

#include <sys/types.h>
#include "finding.h"

/* Checks it between two processes of this user, which it makes. */
void access_check_siblings(struct finding *finding);

/* Checks whether this process may read that one's memory, and whether both have the same /dev/shm. */
void access_check_process(struct finding *finding, pid_t pid);

#endif
