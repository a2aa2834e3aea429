/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_PROBE_H
#define SC_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/*
 * Knowledge of `count` pages, from page number `first` on: a byte each, 0 or a mark that the page could be read, or written.
 * Several threads may use it at a time.
 */
struct sc_probe {
	uintptr_t first;
	size_t count;
	uint8_t *known;
};

/*
 * Makes a place for knowledge of all pages of the vector; nothing is known yet. It has no pages if some of the memory is
 * not mapped, or if the vector spans more than SC_PROBE_PAGES pages. The caller frees it with free(). NULL: no memory.
 */
#define SC_PROBE_PAGES ((size_t)1 << 26)
struct sc_probe *sc_probe_new(const struct iovec *iov, size_t count);

/* Knowledge for a short time, of the block of so many pages that an address is in. All 0: of none. */
#define SC_PROBE_AROUND 64
struct sc_probe_brief {
	struct sc_probe memory;
	uint32_t poll;
	uint8_t known[SC_PROBE_AROUND];
};

/* Returns the knowledge of the block that the address is in. Forgets that of another poll, and that of another block. */
struct sc_probe *sc_probe_around(struct sc_probe_brief *brief, const void *at, uint32_t poll);

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
