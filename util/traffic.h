/* SPDX-License-Identifier: BSD-2-Clause */
/* traffic.h: what an endpoint has carried, in short. */
#ifndef UTIL_TRAFFIC_H
#define UTIL_TRAFFIC_H

#include <shmcma/core.h>

#define TRAFFIC_TEXT 8

/* Writes a number in at most five characters, with the units k, M, G of powers of 1000. */
const char *traffic_number(uint64_t number, char text[TRAFFIC_TEXT]);

/* Returns the bytes of rendezvous that this side has copied, whichever way. */
uint64_t traffic_rendezvous(const struct sc_counters *counters);

/* Returns how many of a hundred lines in the rings of all peers have unread records. */
uint32_t traffic_ring_percent(const struct sc_survey_seg *seg);

/* Writes the number of bounce buffers that are lent; "-": it cannot be read. */
const char *traffic_lent(const struct sc_survey_seg *seg, char text[TRAFFIC_TEXT]);

#endif
