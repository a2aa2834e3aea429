/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * self.c: the only instance of struct sc_self, and what a forked child changes in its copy.
 *
 * The child has one thread, so no other thread holds a mutex. The files of its parent are other processes' files for
 * it, and it has another identity. sc_pidfds_inherited() closes pidfds. No other process sees anything of this file.
 */
#define _GNU_SOURCE 1
#include "os/self.h"

#include <string.h>
#include "base/fault.h"

struct sc_self sc_self = { .begin_mutex = PTHREAD_MUTEX_INITIALIZER,
			   .host_mutex = PTHREAD_MUTEX_INITIALIZER,
			   .files_mutex = PTHREAD_MUTEX_INITIALIZER,
			   .others_mutex = PTHREAD_MUTEX_INITIALIZER };

static void atfork_child(void)
{
	if (sc_self.host)
		memset(sc_self.host, 0, sc_self.host_size);
	sc_self.begin_mutex = sc_self.host_mutex = sc_self.files_mutex = sc_self.others_mutex =
		(pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	sc_self.files = NULL;
	sc_self.misnamed = false;
}

/* A call that fails now may succeed later: the next caller tries again. */
bool sc_self_begin(void)
{
	bool begun;

	pthread_mutex_lock(&sc_self.begin_mutex);
	if (!sc_self.begun)
		sc_self.begun = !SC_TRY("self.atfork", pthread_atfork(NULL, NULL, atfork_child));
	begun = sc_self.begun;
	pthread_mutex_unlock(&sc_self.begin_mutex);
	return begun;
}
