/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_HEADER_H
#define SC_HEADER_H

#include <stdint.h>
#include <shmcma/abi.h>

/*
 * Returns as text the error in the header of a file of `file_length` bytes that claims to be the segment of the
 * endpoint with that address; NULL: there is none, and every part that it names lies inside the file.
 */
const char *sc_header_fault(const struct sc_abi_header *header, uint64_t file_length, const char *addr);

#endif
