/* SPDX-License-Identifier: BSD-2-Clause */
/* fork.h: fork(2) (fork.c). */
#ifndef SHMCMA_FORK_H
#define SHMCMA_FORK_H

#include <stdbool.h>

/* Once, when the provider is loaded. */
void shmcma_fork_init(void);
/* Has this process loaded the provider, or been made by a fork(2) that fork.c was told of? */
bool shmcma_fork_is_known(void);

#endif
