/* SPDX-License-Identifier: BSD-2-Clause */
/* fork.h: fork(2) (fork.c). */
#ifndef SHMCMA_FORK_H
#define SHMCMA_FORK_H

#include <stdbool.h>

/* Installs the handlers; once, when the provider is loaded. */
void shmcma_fork_init(void);
/* Tells whether this process loaded the provider, or is a child of a fork(2) that ran the handlers of fork.c. */
bool shmcma_fork_is_known(void);

#endif
