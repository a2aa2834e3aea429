/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fault.h: points at which a test lets this process die, stop, or see a system call fail.
 *
 * 	(void)SC_FAULT("ring.committed");	after a store to shared memory: die, stop
 * 	fd = SC_TRY("otherfile.open", open(...));	a call that returns -1 and sets errno: fail with one, die, stop;
 * 						"otherfile.open.done" is the point after it
 * 	base = SC_TRY_PTR("seg.mmap", MAP_FAILED, mmap(...));	the same for a call that returns a pointer
 * 	SC_CALL("shmfile.close", close(fd));	a call that never fails: the points before and after it
 * 	err = SC_FAIL("memory.slot");		0, or the errno to fail with
 *
 * Every name, "file.what", stands at one place in the sources (test/check-points.sh); a point in an inline function is
 * one point. A call that neither fails nor is seen by another process (getpid, sched_yield, clock_gettime) has no
 * point. Without --enable-fault-injection only the calls remain.
 *
 * SHMCMA_FAULT=point:kill|stop|<errno number>[:nth] arms one point, see fault.c.
 */
#ifndef SC_FAULT_H
#define SC_FAULT_H

#ifdef SC_FAULT_INJECTION

#include <errno.h>
#include <stdbool.h>

/* Each object lists its points in a section. The linker joins the sections, so a test knows all points. */
struct sc_fault_site {
	const char *point;
	const char *call; /* text of the call; NULL: none */
	bool fails;	  /* the point may yield an errno */
	const char *file;
	int line;
};
#define SC_FAULT_SECTION "sc_fault_sites" /* of struct sc_fault_site * */

#define SC_FAULT_SITE(name, text, may_fail)                                                              \
	__extension__({                                                                                   \
		static struct sc_fault_site site_ = { name, text, may_fail, __FILE__, __LINE__ };        \
		static struct sc_fault_site *listed_ __attribute__((section(SC_FAULT_SECTION), used)) = \
			&site_;                                                                           \
		site_.point;                                                                              \
	})

/* Called when the point is reached: returns the errno to fail with, or 0. Leaves errno unchanged. */
int sc_fault(const char *point);
/* The same after a call; returns `result`. */
long sc_fault_done(const char *point, long result);
void *sc_fault_done_ptr(const char *point, void *result);

/* Conditions test the result of this function, so an injected and a real failure take one branch (test/coverage.md). */
static inline long sc_fault_result(long result)
{
	return result;
}

static inline void *sc_fault_result_ptr(void *result)
{
	return result;
}

/* A test's own sc_fault() in place of the environment; a test may set it at any time. */
extern int (*_Atomic sc_fault_hook)(const char *point);

#define SC_FAULT(point) sc_fault(SC_FAULT_SITE(point, (void *)0, false))
#define SC_FAIL(point) sc_fault(SC_FAULT_SITE(point, (void *)0, true))
#define SC_TRY(point, call)                                                                               \
	sc_fault_result((errno = sc_fault(SC_FAULT_SITE(point, #call, true)))                          \
				 ? -1                                                                     \
				 : sc_fault_done(SC_FAULT_SITE(point ".done", #call, false), (call)))
#define SC_TRY_PTR(point, failed, call)                                                                   \
	sc_fault_result_ptr(                                                                             \
		(errno = sc_fault(SC_FAULT_SITE(point, #call, true)))                                   \
			? (failed)                                                                        \
			: sc_fault_done_ptr(SC_FAULT_SITE(point ".done", #call, false), (call)))
#define SC_CALL(point, call)                                                                              \
	((void)sc_fault(SC_FAULT_SITE(point, #call, false)),                                            \
	 (void)sc_fault_done(SC_FAULT_SITE(point ".done", #call, false), (call)))

#else

#define SC_FAULT(point) 0
#define SC_FAIL(point) 0
#define SC_TRY(point, call) (call)
#define SC_TRY_PTR(point, failed, call) (call)
#define SC_CALL(point, call) ((void)(call))

#endif

#endif
