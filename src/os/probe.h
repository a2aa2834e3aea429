/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PROBE_H
#define SC_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Pages that were there when they were asked for. All 0: none. */
#define SC_PROBE_SEEN 64
struct sc_probe {
	uint64_t polls, now;
	struct {
		uint64_t when;
		uintptr_t page; /* address, with flags in its low bits */
	} seen[SC_PROBE_SEEN];
};

/* Begins a poll: asks anew for the pages that are known for one poll. */
static inline void sc_probe_forget(struct sc_probe *memory)
{
	memory->polls++;
}

/*
 * Chooses how long pages stay known that are asked for from now on: for `name`, which names one registration, whenever it
 * is chosen; with 0 for one poll.
 */
static inline void sc_probe_choose(struct sc_probe *memory, uint64_t name)
{
	memory->now = name ? name << 1 | 1 : (memory->polls + 1) << 1;
}

/* Tells whether these bytes are in one page, which is known to be readable, or writable. */
bool sc_probe_knows(const struct sc_probe *memory, const void *at, size_t len, bool write);

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

/* Tells whether all memory of the vector is mapped, whatever may be done with it. Makes no page present. */
bool sc_probe_is_mapped(const struct iovec *iov, size_t count);

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
