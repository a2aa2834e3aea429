/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_SERVICE_H
#define SC_SERVICE_H

#include <shmcma/core.h>
#include "os/shmfile.h"

/* A service name held by this process. */
struct sc_service;

/*
 * Hold the name for the endpoint with that address. A dead owner's is reaped first. -EADDRINUSE: a live
 * process has it, which is not harmed, or one that reaps it has stopped.
 */
int sc_service_create(const char *service, const char *addr, struct sc_service **held);
void sc_service_destroy(struct sc_service *held);

/* The address behind a service name, out[SC_ADDR_SIZE]. Outcomes as sc_addr_resolve(). */
int sc_service_find(const char *service, char *out);

/*
 * A filled file gets the name of a service or a directory, as soon as that is free or its owner is found dead.
 * -EADDRINUSE: it lives; -EACCES: something else is in the way.
 */
int sc_service_publish(struct sc_shmfile *file, const char *name);

#endif
