/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SHMCMA_REPORT_H
#define SHMCMA_REPORT_H

struct sc_ep;

/*
 * Tells what an endpoint that closes has carried: in one line of the log at level info, and where FI_SHMCMA_STATS says.
 * A file that cannot be written is a warning, once in a process.
 */
void shmcma_report(const struct sc_ep *ep);

#endif
