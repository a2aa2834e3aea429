/* SPDX-License-Identifier: BSD-2-Clause */
/* traffic.c: see traffic.h. */
#include "traffic.h"

#include <stdio.h>
#include <string.h>

const char *traffic_number(uint64_t number, char text[TRAFFIC_TEXT])
{
	static const char units[] = " kMGTPE";
	double value = (double)number;
	size_t unit = 0;

	for (; value >= 9999.5; value /= 1000)
		unit++;
	snprintf(text, TRAFFIC_TEXT, "%.0f%c", value, units[unit]);
	return text;
}

uint64_t traffic_rendezvous(const struct sc_counters *counters)
{
	return counters->rx_cma_bytes + counters->rx_pulled_bytes + counters->rx_local_bytes +
	       counters->shared_bytes;
}

uint32_t traffic_ring_percent(const struct sc_survey_seg *seg)
{
	uint64_t lines = (uint64_t)seg->ring_lines * (seg->peers ? seg->peers : 1);
	uint64_t percent = lines ? (uint64_t)seg->record_lines * 100 / lines : 0;

	/* peers that have departed may have left records too */
	return percent < 100 ? (uint32_t)percent : 100;
}

const char *traffic_lent(const struct sc_survey_seg *seg, char text[TRAFFIC_TEXT])
{
	uint32_t lent;

	if (sc_survey_lent(seg, &lent))
		strcpy(text, "-");
	else
		traffic_number(lent, text);
	return text;
}
