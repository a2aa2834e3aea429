/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * route.c: decides which way an operation goes. It has no state; no thread, process or death matters.
 *
 * The peer does each put and get where this process may not touch the peer's memory. For the others sc_route() tries the
 * ways in the order of enum sc_way. A message that no other way takes goes by rendezvous. No caller asks for the way of
 * an atomic operation: the peer does each, because CMA cannot.
 */
#include "link/route.h"

#include <shmcma/core.h>
#include "shm/fill.h"

/* The thresholds; the sections are those of docs/MEASUREMENTS.md. */
enum {
	/* "Delegated operations": bytes; above, a copy from here is faster, wherever the peer runs. */
	DELEGATED_PUT_MAX = 32768,
	DELEGATED_GET_MAX = 16384,
	/* "Delegated operations": nanoseconds that a delegated operation takes, besides its bytes, more than a copy by CMA. */
	DELEGATED_NS = 300,
	/* "Assisted operations": bytes of a put, or of one of a stream, that are worth the record; of a single get. */
	COOPERATIVE_MIN = 131072,
	COOPERATIVE_GET_MIN = 65536,
	/* "Assisted operations": nanoseconds of the whole copy by one side; half of it is worth the wait. */
	COOPERATIVE_PUT_NS = 2 * 8000,
	COOPERATIVE_GET_NS = 2 * 3600,
	/* "Batches of direct operations": bytes; one call does not take two larger ones. */
	LATER_MAX = SC_ROUTE_TOGETHER / 2,
	/* "Eager or rendezvous": nanoseconds of a rendezvous besides its copy. */
	RENDEZVOUS_NS = 200,
	/* "Eager or rendezvous": the same in a stream. How the value was found is not recorded. */
	RENDEZVOUS_STREAM_NS = 100,
};

static bool has(uint32_t facts, uint32_t all, uint32_t none)
{
	return (facts & (all | none)) == all;
}

/*
 * Tells whether the peer does it sooner than this process by CMA. The cost of buffers is known after some large ones have
 * been filled for this peer. Until then the peer does each put, which fills some, and a get if it is sooner at the cost of
 * memory.
 */
static bool is_sooner_delegated(bool put, size_t size, const struct sc_route_costs *costs)
{
	uint64_t by_memory_ns = size * 2 * SC_FILL_FROM_MEMORY / 1000;
	uint64_t buffers_ns = costs->buffers_ns ? costs->buffers_ns : by_memory_ns;

	if (!costs->cma_ns || (put && !costs->buffers_ns))
		return put;
	return costs->cma_ns >= buffers_ns + DELEGATED_NS;
}

/*
 * Above SC_ROUTE_SMALL bytes, no operation of a stream is delegated, and others if that is sooner. But behind delegated
 * operations that have not ended each is: the peer will take those soon, and this process would have to withdraw them. Of
 * a stream these are only puts: gets of a stream could take all buffers that the peer may lend, and messages behind
 * them would wait until this process polls.
 */
static bool is_delegated(bool put, size_t size, uint32_t facts, const struct sc_route_costs *costs)
{
	if (!has(facts, SC_FACT_DELEGABLE | SC_FACT_ONE_RANGE, 0))
		return false;
	if (size <= SC_ROUTE_SMALL)
		return true;
	if (size > (put ? DELEGATED_PUT_MAX : DELEGATED_GET_MAX))
		return false;
	if (facts & SC_FACT_DELEGATED && (put || !(facts & SC_FACT_STREAM)))
		return true;
	return has(facts, 0, SC_FACT_STREAM | SC_FACT_LIKELY) && is_sooner_delegated(put, size, costs);
}

/* Tells whether half of the copy is worth the record and the wait for the peer. */
static bool is_cooperative(bool put, size_t size, uint32_t facts, const struct sc_route_costs *costs)
{
	return has(facts, SC_FACT_COPIES | SC_FACT_LOOSE | SC_FACT_ONE_RANGE | SC_FACT_ONE_PIECE, 0) &&
	       size >= (put || facts & SC_FACT_STREAM ? COOPERATIVE_MIN : COOPERATIVE_GET_MIN) &&
	       (!costs->cma_ns || costs->cma_ns >= (put ? COOPERATIVE_PUT_NS : COOPERATIVE_GET_NS));
}

/*
 * Tells whether a rendezvous with one copy by the receiver is faster than buffers, by more than an eighth. Both sides
 * copy large messages, which is faster still. No message of up to SC_INJECT_MAX bytes is compared:
 * docs/MEASUREMENTS.md, "Eager or rendezvous".
 */
static bool favours_cma(uint32_t facts, const struct sc_route_costs *costs)
{
	uint64_t rendezvous = facts & SC_FACT_STREAM ? RENDEZVOUS_STREAM_NS : RENDEZVOUS_NS;

	return costs->cma_ns && costs->buffers_ns * 8 / 9 > costs->cma_ns + rendezvous;
}

static enum sc_way way_of_message(size_t size, uint32_t facts, const struct sc_route_costs *costs)
{
	if (facts & SC_FACT_RECORD)
		return facts & SC_FACT_BUFFER && sc_route_prefers_buffer(size, facts & SC_FACT_BEHIND)
			       ? SC_WAY_BOUNCE
			       : SC_WAY_INLINE;
	return facts & SC_FACT_BUFFERS && (size <= SC_INJECT_MAX || !favours_cma(facts, costs))
		       ? SC_WAY_BOUNCE
		       : SC_WAY_RENDEZVOUS;
}

enum sc_way sc_route(enum sc_route_op op, size_t size, uint32_t facts, const struct sc_route_costs *costs)
{
	bool put = op == SC_ROUTE_PUT;

	if (op == SC_ROUTE_MESSAGE)
		return way_of_message(size, facts, costs);
	if (!(facts & SC_FACT_DIRECT))
		return SC_WAY_TARGET;
	if (is_delegated(put, size, facts, costs))
		return SC_WAY_DELEGATED;
	if (is_cooperative(put, size, facts, costs))
		return SC_WAY_COOPERATIVE;
	if (size && size <= LATER_MAX &&
	    has(facts, SC_FACT_STREAM | SC_FACT_LOOSE | SC_FACT_ONE_RANGE, SC_FACT_INJECTED))
		return SC_WAY_CMA_LATER;
	return SC_WAY_CMA;
}

uint32_t sc_route_together(size_t size)
{
	if (size > LATER_MAX)
		return 1;
	return size * SC_REMOTE_MAX <= SC_ROUTE_TOGETHER ? SC_REMOTE_MAX
							 : (uint32_t)((SC_ROUTE_TOGETHER + size - 1) / size);
}
