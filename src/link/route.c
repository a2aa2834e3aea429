/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * route.c: decides which way an operation goes. Private, without state: no thread, process or death matters.
 *
 * A way of a one-sided operation comes before another in the order of enum sc_way. A put or a get that no other way takes
 * is done by the peer, as is each atomic operation, which CMA cannot do. A message that no other way takes goes by
 * rendezvous.
 */
#include "link/route.h"

#include <shmcma/core.h>

/* The thresholds. The figures are in docs/MEASUREMENTS.md. */
enum {
	DELEGATED_PUT_MAX = 32768, /* bytes: sooner from here beyond that, wherever the peer runs */
	DELEGATED_GET_MAX = 16384,
	DELEGATED_NS = 600,	     /* the time of a delegated put besides its bytes */
	COOPERATIVE_MIN = 131072,    /* bytes that are worth the record, of a put or of a stream, */
	COOPERATIVE_GET_MIN = 65536, /* and of a get alone */
	COOPERATIVE_PUT_NS =
		2 * 8000, /* if their copy takes so long alone: half of it is worth the wait */
	COOPERATIVE_GET_NS = 2 * 3600,
	LATER_MAX = SC_ROUTE_TOGETHER / 2, /* bytes: of larger ones there are not two in a call */
	RENDEZVOUS_NS = 200,		   /* the time of a rendezvous besides its copy, */
	RENDEZVOUS_STREAM_NS = 100,	   /* and of one of a stream */
};

static bool has(uint32_t facts, uint32_t all, uint32_t none)
{
	return (facts & (all | none)) == all;
}

/*
 * Of more than SC_ROUTE_SMALL bytes no get is delegated, nor any of a stream, and a put if that is sooner for this peer;
 * behind delegated ones that are not over, each is: the peer is about to take them, and they would have to be taken back.
 * The cost of buffers is known when some large ones have been filled for this peer; until then a put is delegated, which
 * fills some.
 */
static bool is_delegated(bool put, size_t size, uint32_t facts, const struct sc_route_costs *costs)
{
	if (!has(facts, SC_FACT_DELEGABLE | SC_FACT_ONE_RANGE, SC_FACT_INJECTED))
		return false;
	if (size <= SC_ROUTE_SMALL)
		return true;
	if (size > (put ? DELEGATED_PUT_MAX : DELEGATED_GET_MAX))
		return false;
	if (facts & SC_FACT_DELEGATED)
		return true;
	return put && has(facts, 0, SC_FACT_STREAM | SC_FACT_LIKELY) &&
	       (!costs->cma_ns || !costs->buffers_ns || costs->cma_ns >= costs->buffers_ns + DELEGATED_NS);
}

/* Is a half of it worth the record and the wait for the peer? */
static bool is_cooperative(bool put, size_t size, uint32_t facts, const struct sc_route_costs *costs)
{
	return has(facts, SC_FACT_COPIES | SC_FACT_LOOSE | SC_FACT_ONE_RANGE | SC_FACT_ONE_PIECE, 0) &&
	       size >= (put || facts & SC_FACT_STREAM ? COOPERATIVE_MIN : COOPERATIVE_GET_MIN) &&
	       (!costs->cma_ns || costs->cma_ns >= (put ? COOPERATIVE_PUT_NS : COOPERATIVE_GET_NS));
}

/*
 * Is a rendezvous sooner than the buffers? By more than an eighth; with one copy by the receiver: where both copy, which
 * they do of large ones, it is better still.
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
	if (op == SC_ROUTE_ATOMIC || !(facts & SC_FACT_DIRECT))
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
