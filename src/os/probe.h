/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PROBE_H
#define SC_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Pages that were seen to be there a moment ago. All 0: none. */
#define SC_PROBE_SEEN 16
struct sc_probe {
	uint64_t now;
	struct {
		uint64_t when;
		uintptr_t page; /* address, and in its low bits what is known of it */
	} seen[SC_PROBE_SEEN];
};

/* The moment is over. */
static inline void sc_probe_forget(struct sc_probe *memory)
{
	memory->now++;
}

/*
 * Is all of the vector there, to be read or written? Pages are made present for it, their content is not
 * touched. With `memory`, pages that are known are not asked for again. -EIO: it is not; -ENOSYS: this system
 * cannot tell.
 */
int sc_probe_check(struct sc_probe *memory, const struct iovec *iov, size_t count, bool write);

/*
 * Is the first and the last page of each element there? For large memory that this process copies and nothing has
 * been wrong with so far: two system calls for an element find what is not mapped at all, or not to be written to.
 */
int sc_probe_check_ends(const struct iovec *iov, size_t count, bool write);

/*
 * Of shared memory: is it there, to be read or written, as far as this system can tell? An address without memory gets
 * some, if there is any left.
 */
bool sc_probe_is_there(const void *at, size_t size);

/*
 * A copy inside this process, of which one side may not be there: `to` (write), or `from` (read). -EIO, and
 * some may have been copied. Fewer than SC_CMA_IOV elements on each side.
 */
struct sc_probe_copy {
	const struct iovec *to, *from;
	size_t to_count, from_count;
	size_t len;
};
int sc_probe_write(struct sc_probe *memory, const struct sc_probe_copy *copy);
int sc_probe_read(struct sc_probe *memory, const struct sc_probe_copy *copy);

#endif
