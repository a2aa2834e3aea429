/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric.h: whether libfabric finds the provider, and what the provider says of its parameters. */
#ifndef UTIL_LIBFABRIC_H
#define UTIL_LIBFABRIC_H

#include <stdbool.h>

/* Shows the findings: libfabric, the provider, parameters. True: libfabric finds the provider. */
bool libfabric_check(void);

/* Tells whether that value of FI_PROVIDER keeps libfabric from using the provider. NULL does not. */
bool libfabric_excludes(const char *list);

/* Sets FI_PROVIDER_PATH, if libfabric would not find the installed provider without it. */
void libfabric_set_path(void);

/* For a process that will load libfabric: libraries of other providers handle no signals. */
void libfabric_quiet(void);

#endif
