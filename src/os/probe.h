/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PROBE_H
#define SC_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Pages that were there a moment ago. All 0: none. */
#define SC_PROBE_SEEN 16
struct sc_probe {
	uint64_t now;
	struct {
		uint64_t when;
		uintptr_t page; /* address, with flags in its low bits */
	} seen[SC_PROBE_SEEN];
};

/* Ends the moment: asks anew for all pages. */
static inline void sc_probe_forget(struct sc_probe *memory)
{
	memory->now++;
}

/*
 * Checks whether this process can read or write all memory of the vector. Makes the pages present, but leaves their
 * content alone. With `memory`, it does not ask again for known pages. -EIO: it cannot; -ENOSYS: this system cannot
 * tell.
 */
int sc_probe_check(struct sc_probe *memory, const struct iovec *iov, size_t count, bool write);

/*
 * Checks the first and the last page of each element. For large memory that this process copies, while no copy has
 * failed: two system calls for each element find memory that is not mapped at all, or not writable.
 */
int sc_probe_check_ends(const struct iovec *iov, size_t count, bool write);

/*
 * Tells whether shared memory is there to read or write, as far as this system can tell. An address without memory gets
 * some, if there is any left.
 */
bool sc_probe_is_there(const void *at, size_t size);

/*
 * A copy inside this process. One side may not be there: `to` in sc_probe_write(), `from` in sc_probe_read(). -EIO: it
 * is not, and some bytes may have been copied. Each side has fewer than SC_CMA_IOV elements.
 */
struct sc_probe_copy {
	const struct iovec *to, *from;
	size_t to_count, from_count;
	size_t len;
};
int sc_probe_write(struct sc_probe *memory, const struct sc_probe_copy *copy);
int sc_probe_read(struct sc_probe *memory, const struct sc_probe_copy *copy);

#endif
