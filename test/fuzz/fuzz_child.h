/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_child.h: a process whose memory stands for a peer's in fuzz targets that have all endpoints in one
 * process: it is read by process_vm_readv(2) and written to, and never does anything.
 */
#ifndef FUZZ_CHILD_H
#define FUZZ_CHILD_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "os/cma.h"

#define CHECK(condition)                                                                                  \
	do {                                                                                              \
		if (!(condition)) {                                                                       \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
			abort();                                                                          \
		}                                                                                         \
	} while (0)

/* There is memory at PLACE. */
#define PLACE ((void *)0x10000000)
#define PLACE_SIZE (1u << 20)

static uint64_t unread = 0x756e72656164; /* a cookie for reads of the child */
static pid_t child;			 /* the peer's memory is that of this process */

/* It waits to be read from, and dies with this process. */
static inline void start_child(void)
{
	int ready[2];
	char byte;

	CHECK(!pipe(ready));
	child = fork();
	CHECK(child >= 0);
	if (child) {
		close(ready[1]);
		CHECK(read(ready[0], &byte, 1) == 1);
		close(ready[0]);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)mmap(PLACE, PLACE_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_FIXED_NOREPLACE, -1, 0);
	if (write(ready[1], "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* The child as it was made: an input may have written anything anywhere in it. */
static inline void set_up_child(void)
{
	struct sc_cma cma = { child, (uintptr_t)&unread, unread };

	if (child && !sc_cma_read(&cma, &(struct sc_cma_copy){ 0 }))
		return;
	if (child) {
		kill(child, SIGKILL);
		(void)waitpid(child, NULL, 0);
	}
	start_child();
}

#endif
