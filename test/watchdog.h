/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * watchdog.h: ends a test that hangs, and never one that only waits for a processor.
 *
 * A process that calls watchdog_start() ends with exit code WATCHDOG_EXIT
 *  - when it has used that many seconds of processor time since (RLIMIT_CPU): it turns in circles;
 *  - when WATCHDOG_WALL seconds have passed since, the last resort: it sleeps and nothing wakes it.
 * A busy machine slows both the process and its processor time, so load alone does not end a test. A test of
 * unusual length calls watchdog_start() again, or watchdog_progress() after each of its steps.
 *
 * The watchdog writes to stderr: the test, the limit that has passed, the condition of watchdog_await() that the
 * process waits for and its place, and the calls that lead there.
 *
 * A child of fork() has the limit of processor time of its parent, counted from 0, and no last resort of its
 * own: it dies with its parent (PR_SET_PDEATHSIG), or calls watchdog_start(). A program that execve() starts
 * keeps the limit, and ends by SIGXCPU.
 *
 * SIGXCPU is the watchdog's; SIGALRM is free for tests. With sanitizers there is four times the processor time;
 * TEST_DEADLINE_SCALE is another factor, TEST_WATCHDOG_SECONDS another last resort. This is a header only, so that a test program is one file.
 */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#endif

#define WATCHDOG_PROCESSOR 120 /* seconds of processor time, where a test names no other limit */
#define WATCHDOG_WALL 600      /* seconds */
#define WATCHDOG_EXIT 124      /* as of timeout(1) */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WATCHDOG_SCALE 4
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WATCHDOG_SCALE 4
#endif
#endif
#ifndef WATCHDOG_SCALE
#define WATCHDOG_SCALE 1
#endif

/* The condition that a thread waits for. */
struct watchdog_wait {
	const char *file, *condition;
	int line;
};

/* One for the process, whichever of its files start and use it. */
struct watchdog {
	pid_t owner; /* the process that has made the timer: its children have none */
	timer_t timer;
	unsigned int seconds; /* of processor time */
	char test[64];
	const struct watchdog_wait *wait; /* of the thread that began last; NULL: none. Atomic. */
};
__attribute__((weak)) struct watchdog watchdog;

static inline unsigned int watchdog_number(const char *variable, unsigned int usual)
{
	const char *text = getenv(variable);
	unsigned int number = text ? (unsigned int)strtoul(text, NULL, 10) : 0;

	return number ? number : usual;
}

static inline unsigned int watchdog_scale(void)
{
	return watchdog_number("TEST_DEADLINE_SCALE", WATCHDOG_SCALE);
}

/* The last resort, in seconds. */
static inline unsigned int watchdog_wall(void)
{
	return watchdog_number("TEST_WATCHDOG_SECONDS", WATCHDOG_WALL);
}

/* ---- the report ------------------------------------------------------------------------------ */

extern const char __executable_start[] __attribute__((weak));
extern char **environ;

/* The functions and lines of these addresses of the program, if addr2line(1) is here. */
static inline void watchdog_print_lines(void *const *calls, int count)
{
	bool is_relocated = ((const Elf64_Ehdr *)__executable_start)->e_type == ET_DYN;
	char text[32][24], program[512] = "";
	char *args[32 + 6] = { "addr2line", "-f", "-p", "-s", "-e", program };
	int next = 6;
	pid_t pid;

	if (readlink("/proc/self/exe", program, sizeof(program) - 1) <= 0)
		return;
	for (int i = 0; i < count && i < 31; i++) {
		uintptr_t call = (uintptr_t)calls[i] - (is_relocated ? (uintptr_t)__executable_start : 0);

		snprintf(text[i], sizeof(text[i]), "%#zx", call);
		args[next++] = text[i];
	}
	if (!posix_spawnp(&pid, args[0], NULL, NULL, args, environ))
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
}

static inline void watchdog_print_calls(void)
{
#if __has_include(<execinfo.h>)
	void *calls[31];
	int count = backtrace(calls, sizeof(calls) / sizeof(calls[0]));

	backtrace_symbols_fd(calls, count, STDERR_FILENO);
	if (__executable_start)
		watchdog_print_lines(calls, count);
#endif
}

/* The process ends here: what is not allowed in a signal handler can do no more harm than to end it without a report. */
static inline void watchdog_bites(int number, siginfo_t *info, void *context)
{
	const struct watchdog_wait *wait = __atomic_load_n(&watchdog.wait, __ATOMIC_RELAXED);
	bool wall = info->si_code == SI_TIMER;
	char text[512];
	int length;

	(void)context;
	signal(number, SIG_DFL);
	length = snprintf(text, sizeof(text), "watchdog: %s (pid %d): %u s of %s have passed",
			  watchdog.test, (int)getpid(), wall ? watchdog_wall() : watchdog.seconds,
			  wall ? "time" : "processor time");
	if (wait)
		length += snprintf(text + length, sizeof(text) - (size_t)length,
				   "; it waits at %s:%d for: %s", wait->file, wait->line, wait->condition);
	if (length > (int)sizeof(text) - 2)
		length = sizeof(text) - 2;
	text[length++] = '\n';
	(void)!write(STDERR_FILENO, text, (size_t)length);
	watchdog_print_calls();
	_exit(WATCHDOG_EXIT);
}

/* ---- its life -------------------------------------------------------------------------------- */

static inline void watchdog_limit_processor(unsigned int seconds)
{
	struct timespec used;
	struct rlimit limit;

	/* the system call: a test may have a clock_gettime() of its own */
	if (syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &used) || getrlimit(RLIMIT_CPU, &limit))
		abort();
	limit.rlim_cur = (rlim_t)used.tv_sec + 1 + seconds;
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_CPU, &limit))
		abort();
}

static inline void watchdog_limit_wall(unsigned int seconds)
{
	struct itimerspec once = { .it_value.tv_sec = seconds };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGXCPU };

	if (watchdog.owner != getpid()) {
		if (timer_create(CLOCK_MONOTONIC, &event, &watchdog.timer))
			abort();
		watchdog.owner = getpid();
	}
	if (timer_settime(watchdog.timer, 0, &once, NULL))
		abort();
}

/* Both limits begin anew. */
static inline void watchdog_progress(void)
{
	watchdog_limit_processor(watchdog.seconds);
	watchdog_limit_wall(watchdog_wall());
}

/* `test`: what the report calls it, NULL: the program. `seconds` of processor time, 0: WATCHDOG_PROCESSOR. Again: for another test. */
static inline void watchdog_start(const char *test, unsigned int seconds)
{
	struct sigaction action = { .sa_sigaction = watchdog_bites, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigset_t set;

#if __has_include(<execinfo.h>)
	void *first[1];

	backtrace(first, 1); /* loads its library now: the handler of the signal must not */
#endif
	if (test)
		snprintf(watchdog.test, sizeof(watchdog.test), "%s", test);
	else
		prctl(PR_GET_NAME, watchdog.test);
	watchdog.seconds = (seconds ? seconds : WATCHDOG_PROCESSOR) * watchdog_scale();
	__atomic_store_n(&watchdog.wait, NULL, __ATOMIC_RELAXED);
	if (sigaction(SIGXCPU, &action, NULL))
		abort();
	sigemptyset(&set);
	sigaddset(&set, SIGXCPU);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	watchdog_progress();
}

/* For a process that lives as long as others need it: no last resort. */
static inline void watchdog_stop(void)
{
	watchdog_limit_wall(0);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static inline void watchdog_nap(void)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

/* Waits for another process or thread: looks at the condition, and naps, until it holds. */
#define watchdog_await(awaited) watchdog_await_by(awaited, watchdog_nap())

/* The same with `step` in place of the nap. */
#define watchdog_await_by(awaited, step)                                                                  \
	do {                                                                                              \
		static const struct watchdog_wait watchdog_this = { __FILE__, #awaited, __LINE__ };       \
		const struct watchdog_wait *watchdog_former =                                             \
			__atomic_exchange_n(&watchdog.wait, &watchdog_this, __ATOMIC_RELAXED);            \
                                                                                                          \
		while (!(awaited))                                                                        \
			step;                                                                             \
		__atomic_store_n(&watchdog.wait, watchdog_former, __ATOMIC_RELAXED);                      \
	} while (0)

#endif
