/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * inject.h: points at which a test lets this process die, stop, or see a system call fail.
 *
 * SC_INJECT("seg.linkat") stands after a store to shared memory or before a system call; as an
 * expression it is 0, or the errno to fail with:
 *
 *	err = SC_INJECT("seg.linkat");
 *	if (!err && linkat(...)) ...
 *
 * SHMCMA_INJECT=point:kill|stop|<errno number>[:nth] arms one point. Without --enable-fault-injection
 * the points compile to nothing.
 */
#ifndef SC_INJECT_H
#define SC_INJECT_H

#ifdef SC_FAULT_INJECTION
int sc_inject(const char *point);
#define SC_INJECT(point) sc_inject(point)
#else
#define SC_INJECT(point) 0
#endif

#endif
