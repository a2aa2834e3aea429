/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_SERVICE_H
#define SC_SERVICE_H

#include <shmcma/core.h>
#include "os/shmfile.h"

/*
 * Holds the name for the endpoint with this address; reaps the file of a dead holder first. -EADDRINUSE: a live process
 * has the name, and keeps it, or a process that reaps the name is stopped.
 */
int sc_service_create(const char *service, const char *addr, struct sc_service **held);

/* Finds the address of a service, out[SC_ADDR_SIZE]. Returns the same errors as sc_addr_resolve(). */
int sc_service_find(const char *service, char *out);

/* Tells whether a living process announces that address, in endpoint form; see sc_service_announce(). */
bool sc_service_announces(const char *addr);

/*
 * Gives a filled file the name of a service or a directory, if the name is free or its owner is dead. -EADDRINUSE: as
 * above; -EACCES: another kind of file has the name.
 */
int sc_service_publish(struct sc_shmfile *file, const char *name);

#endif
