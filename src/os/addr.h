/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_ADDR_H
#define SC_ADDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shmcma/core.h>
#include "os/host.h"

#define SC_ADDR_NONCE 8 /* bytes of the nonce that an address carries */

/*
 * The parts of an endpoint's address. The user is part of it, so that a look through all names leaves out those of other
 * users by the name alone. A process in a user namespace cannot tell by which number others know its user: `uid` is
 * SC_ADDR_ANY_UID then, and others look at the owner of the file. That decides, not the name.
 */
#define SC_ADDR_ANY_UID UINT32_MAX /* -1: no user has it */
struct sc_addr {
	uint64_t host; /* SC_HOST_ID_BITS */
	uint32_t uid;
	uint32_t pid;
	uint8_t nonce[SC_ADDR_NONCE];
	uint16_t ep;
};

/* The user's number in the names of that process, which is this one. */
uint32_t sc_addr_uid(const struct sc_host *host);

/* -EINVAL: not exactly the endpoint form. Reads at most SC_ADDR_SIZE bytes. */
int sc_addr_parse(const char *text, struct sc_addr *addr);
void sc_addr_format(const struct sc_addr *addr, char text[SC_ADDR_SIZE]);

#define SC_ADDR_NAME_MAX 96
/* The file name (no directory) of an endpoint's segment, of a service. */
void sc_addr_file(const struct sc_addr *addr, char name[SC_ADDR_NAME_MAX]);
void sc_addr_service_file(const char *service, char name[SC_ADDR_NAME_MAX]);
/* Likewise of a directory; -EINVAL: not a possible name, which are those of services. */
int sc_addr_directory_file(const char *directory, char name[SC_ADDR_NAME_MAX]);

/* Likewise of this user's calibration. */
void sc_addr_calibration_file(char name[SC_ADDR_NAME_MAX]);

/* The way back. -EINVAL: not the name of a segment, of whatever user. The host, which the name does not tell, is 0. */
int sc_addr_parse_file(const char *name, struct sc_addr *addr);
/* Is it the name that an earlier version gave a segment? Its names do not tell the user. */
bool sc_addr_is_old_file(const char *name);
/* Is it the name of a calibration, of whatever user? */
bool sc_addr_is_calibration_file(const char *name);
/* Is it the name of a file of a service, or of a directory, of this user? */
bool sc_addr_is_service_file(const char *name);
/* May it, by its text alone, be a segment's, a service's or a directory's of that user? No system call. */
bool sc_addr_is_file_of(const char *name, uint32_t uid);
/* Is it a service's or a directory's of a user of another number? Another user namespace may have given it. */
bool sc_addr_is_foreign_service_file(const char *name, uint32_t uid);

/* Of the first `len` characters of an address (FNV-1a), for tables of them: its nonce is random. */
static inline uint32_t sc_addr_hash(const char *addr, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)addr[i]) * 16777619u;
	return hash;
}

#endif
