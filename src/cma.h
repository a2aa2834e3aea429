/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CMA_H
#define SC_CMA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define SC_CMA_IOV 17 /* remote elements: SC_ABI_RDV_SEGMENTS and the cookie */

/* Whose memory: a process, and 8 bytes in it that nobody else has. */
struct sc_cma {
	pid_t pid;
	uint64_t cookie_addr, cookie; /* address 0: the caller proves it afterwards */
};

/*
 * Read `len` bytes of the process's memory, remote -> local, both vectors that long and of fewer than
 * SC_CMA_IOV elements. The cookie is read after them in the same call, which proves whose bytes they are,
 * and those of all earlier reads from that process: a pid does not come back.
 * Returns 0, or: -EFAULT an address of the other side is not mapped; -ESRCH no such process, or no longer
 * the same; -EPERM, -ENOSYS, -ENOMEM: not possible between these two processes. On failure the
 * destination's content is undefined.
 */
int sc_cma_read(const struct sc_cma *cma, const struct iovec *local, size_t local_count,
		const struct iovec *remote, size_t remote_count, size_t len);

/*
 * One element more on the other side's vector takes as long as so many bytes more, of those copied by the same call. On
 * a 2-processor Xeon 45 ns for each, while a KiB takes 31 (elements of less than a page longer); on a Zen 5 160 to 200,
 * and 65. On this side's hardly anything.
 */
#define SC_CMA_ELEMENT 2048

/* A copy has failed with EFAULT: -EFAULT, or -ESRCH if the process is no longer the same. */
int sc_cma_fault(const struct sc_cma *cma);

/*
 * Write `len` bytes to the process's memory, local -> remote, both vectors of fewer than SC_CMA_IOV
 * elements. Nothing proves whose memory it is: the caller has just seen that the process lives. *moved: bytes
 * written, also when it fails. Errors as sc_cma_read(), but -EFAULT may be of another process: sc_cma_fault().
 */
int sc_cma_write(pid_t pid, const struct iovec *local, size_t local_count, const struct iovec *remote,
		 size_t remote_count, size_t len, size_t *moved);

#endif
