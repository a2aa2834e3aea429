/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * crossover.c: see crossover.h.
 */
#include "crossover.h"

/* One of size / TRY_BYTES messages is tried: one in 64 of 16 KiB. */
#define TRY_BYTES 256
#define COPY_MAX 100000000 /* nanoseconds, of one copy: it was interrupted, to say the least */

void sc_crossover_init(struct sc_crossover *crossover, uint32_t eager_max, uint32_t limit)
{
	*crossover = (struct sc_crossover){ .eager_max = eager_max,
					    .limit = limit < SC_CROSSOVER_MAX ? limit : SC_CROSSOVER_MAX };
}

bool sc_crossover_tries(struct sc_crossover *crossover, uint64_t size)
{
	if (size > crossover->limit || ++crossover->passed < size / TRY_BYTES)
		return false;
	crossover->passed = 0;
	crossover->copies = 0; /* so it is timed */
	return true;
}

/*
 * Where both ways take as long. The receiver copies out what is on its way to its cache already, with the
 * processor's prefetching: for a quarter of what the copy into the buffers took, or less.
 */
static uint32_t meeting(const struct sc_crossover *crossover, const struct sc_cost *rendezvous)
{
	uint64_t bounce = (uint64_t)crossover->per_kib + crossover->per_kib / 4, size;

	if (bounce <= rendezvous->per_kib)
		return crossover->limit;
	size = (uint64_t)rendezvous->start * 1024 / (bounce - rendezvous->per_kib);
	size = size < SC_CROSSOVER_MIN ? SC_CROSSOVER_MIN : size;
	return size < crossover->limit ? (uint32_t)size : crossover->limit;
}

/* The estimate, 0 if there is none yet, after that has been seen. */
static uint32_t estimate(uint32_t known, uint32_t seen)
{
	if (!known)
		return seen;
	if (seen <= known)
		return (known + seen) / 2;
	if (seen / 4 > known)
		seen = 4 * known;
	return known + (seen - known + 3) / 4;
}

void sc_crossover_learn(struct sc_crossover *crossover, const struct sc_cost *rendezvous, uint32_t size,
			int64_t ns)
{
	int64_t seen = (ns < 0 ? 0 : ns < COPY_MAX ? ns : COPY_MAX) * 1024 / size;

	seen = seen < 1 ? 1 : seen;
	crossover->per_kib = estimate(crossover->per_kib, (uint32_t)seen);
	crossover->eager_max = meeting(crossover, rendezvous);
}
