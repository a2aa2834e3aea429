/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * counters.c: the names of the counters of an endpoint, for reports and commands, and numbers of bytes as text. Constant.
 */
#include <shmcma/core.h>

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTER(name) #name, offsetof(struct sc_counters, name)

const struct sc_counter sc_counter_names[SC_COUNTERS] = {
	{ COUNTER(tx_msgs), "messages sent" },
	{ COUNTER(tx_bytes), "bytes in them" },
	{ COUNTER(tx_inline), "messages sent inside their record" },
	{ COUNTER(tx_bounce), "messages sent through bounce buffers" },
	{ COUNTER(tx_rdv), "messages sent by rendezvous" },
	{ COUNTER(tx_overflows), "bounce buffers that took the overflow of full rings" },
	{ COUNTER(rx_msgs), "messages received" },
	{ COUNTER(rx_bytes), "bytes in them" },
	{ COUNTER(rx_unexpected), "messages that came before their receive" },
	{ COUNTER(rx_cma_bytes), "rendezvous bytes received by process_vm_readv" },
	{ COUNTER(rx_pulled_bytes), "rendezvous bytes received through bounce buffers" },
	{ COUNTER(rx_local_bytes), "rendezvous bytes received inside the process" },
	{ COUNTER(shared_bytes), "rendezvous bytes that this side copied as the sender" },
	{ COUNTER(rma_ops), "one-sided operations begun" },
	{ COUNTER(rma_direct_bytes), "bytes of them that this side moved by itself" },
	{ COUNTER(rma_requests), "requests sent to targets" },
	{ COUNTER(rma_served), "requests done for initiators" },
	{ COUNTER(rma_delegated), "small operations that the target might do" },
	{ COUNTER(rma_delegated_taken), "small operations that the target did" },
	{ COUNTER(rma_rescued), "small operations that the daemon did" },
	{ COUNTER(rma_batched), "operations copied together with others" },
	{ COUNTER(rma_assisted), "large operations that the target copied along" },
	{ COUNTER(connects), "connections to peers" },
	{ COUNTER(accepts), "connections of peers" },
	{ COUNTER(refusals), "connections of peers refused" },
	{ COUNTER(quarantines), "peers cut off because they broke the protocol" },
	{ COUNTER(departures), "peers that departed" },
	{ COUNTER(deaths), "peers that died" },
};

uint64_t sc_counter_value(const struct sc_counters *counters, const struct sc_counter *counter)
{
	uint64_t value;

	memcpy(&value, (const char *)counters + counter->offset, sizeof(value));
	return value;
}

const char *sc_size_text(uint64_t bytes, char text[SC_SIZE_TEXT])
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	double value = (double)bytes;
	size_t unit = 0;

	for (; value >= 999.5; value /= 1000)
		unit++;
	snprintf(text, SC_SIZE_TEXT, "%.3g %s", value, units[unit]);
	return text;
}

/* Returns the bytes of a unit; 0: the letter names none. */
static uint64_t unit_of(int letter)
{
	switch (tolower(letter)) {
	case 'k':
		return 1u << 10;
	case 'm':
		return 1u << 20;
	case 'g':
		return 1u << 30;
	default:
		return 0;
	}
}

bool sc_size_parse(const char *text, uint64_t *bytes)
{
	uint64_t unit;
	char *end;

	text += strspn(text, " \t");
	*bytes = strtoumax(text, &end, 0);
	unit = unit_of((unsigned char)*end);
	if (unit) {
		*bytes = *bytes <= UINT64_MAX / unit ? *bytes * unit : UINT64_MAX;
		end++;
	}
	return isdigit((unsigned char)*text) && !end[strspn(end, " \t")];
}
