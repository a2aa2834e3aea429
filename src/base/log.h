/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_LOG_H
#define SC_LOG_H

#include <shmcma/core.h>

/* Logs one line: the failure, the peer, the cause and the remedy. Keeps errno. */
void sc_log(enum sc_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * True: from now on this thread repeats an earlier attempt, and its warnings are logged as information. The setting
 * holds for one thread at a time, because a library that is loaded late has no thread-local memory.
 */
void sc_log_again(bool again);

/* Causes that the peers of a process have in common. */
enum sc_log_cause {
	SC_LOG_CMA_FORBIDDEN, /* the kernel refuses to copy between processes */
	SC_LOG_PID_NAMESPACE, /* the peer is in another pid namespace */
	SC_LOG_OTHER_HOST,    /* an address of another machine or another /dev/shm */
	SC_LOG_OTHER_USER,    /* an address of another user */
	SC_LOG_NO_DIR,	      /* no file can be made in /dev/shm */
};

/* Returns SC_LOG_WARN the first time that this process has the cause, and SC_LOG_INFO from then on. */
enum sc_log_level sc_log_first(enum sc_log_cause cause);

#define sc_warn(...) sc_log(SC_LOG_WARN, __VA_ARGS__)
#define sc_info(...) sc_log(SC_LOG_INFO, __VA_ARGS__)

#endif
