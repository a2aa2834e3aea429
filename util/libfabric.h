/* SPDX-License-Identifier: BSD-2-Clause */
/* libfabric.h: whether libfabric finds the provider, and what the provider says of its parameters. */
#ifndef UTIL_LIBFABRIC_H
#define UTIL_LIBFABRIC_H

/* Shows the findings: libfabric, the provider, parameters. */
void libfabric_check(void);

#endif
