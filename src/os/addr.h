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
 * The parts of an endpoint's address. The user is one of them, so that a scan of all names skips the files of other
 * users by their names alone. A process in a user namespace does not know the number that others use for its user: then
 * `uid` is SC_ADDR_ANY_UID, and others look at the owner of the file. The owner decides, not the name.
 */
#define SC_ADDR_ANY_UID UINT32_MAX /* -1: no user has it */
struct sc_addr {
	uint64_t host; /* SC_HOST_ID_BITS */
	uint32_t uid;
	uint32_t pid;
	uint8_t nonce[SC_ADDR_NONCE];
	uint16_t ep;
};

/* Returns the user's number for the names of this process; `host` is its identity. */
uint32_t sc_addr_uid(const struct sc_host *host);

/* -EINVAL: not exactly the endpoint form. Reads at most SC_ADDR_SIZE bytes. */
int sc_addr_parse(const char *text, struct sc_addr *addr);
void sc_addr_format(const struct sc_addr *addr, char text[SC_ADDR_SIZE]);

#define SC_ADDR_NAME_MAX 96
/* Write the file name (no directory) of an endpoint's segment, and of a service. */
void sc_addr_file(const struct sc_addr *addr, char name[SC_ADDR_NAME_MAX]);
void sc_addr_service_file(const char *service, char name[SC_ADDR_NAME_MAX]);
/* The same for a directory; -EINVAL: not a valid name, for which the rules of a service hold. */
int sc_addr_directory_file(const char *directory, char name[SC_ADDR_NAME_MAX]);

/* The same for this user's calibration. */
void sc_addr_calibration_file(char name[SC_ADDR_NAME_MAX]);

/* Parses the name of a segment of any user. -EINVAL: no such name. The host, which the name lacks, becomes 0. */
int sc_addr_parse_file(const char *name, struct sc_addr *addr);
/* Parses the name of a service's file of this user that announces an address, see sc_service_announce(). -EINVAL: none. */
int sc_addr_parse_announcement(const char *name, struct sc_addr *addr);
/* Tells whether it is the name of a calibration, of any user. */
bool sc_addr_is_calibration_file(const char *name);
/* Tells whether it is the name of a file of a service or directory of this user. */
bool sc_addr_is_service_file(const char *name);
/* Tells whether this text can name a segment, service or directory of that user. No system call. */
bool sc_addr_is_file_of(const char *name, uint32_t uid);
/* Tells whether it names a service or directory of another user's number; another user namespace may have given it. */
bool sc_addr_is_foreign_service_file(const char *name, uint32_t uid);

/* Returns a hash (FNV-1a) of the first `len` characters of an address; the nonce in it is random. */
static inline uint32_t sc_addr_hash(const char *addr, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)addr[i]) * 16777619u;
	return hash;
}

#endif
