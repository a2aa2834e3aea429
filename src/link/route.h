/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * route.h: decides which way an operation goes, by its kind, its size and what is known of the peer.
 *
 * The decision is a pure function: it asks nobody, and changes nothing. The caller collects the facts, without a system
 * call. A fact that costs something to find out, such as room in the peer's ring, is taken for true first; if the way
 * that needs it turns out not to be open, the caller takes the fact back and asks again.
 */
#ifndef SC_ROUTE_H
#define SC_ROUTE_H

#include <stddef.h>
#include <stdint.h>

enum sc_route_op { SC_ROUTE_GET, SC_ROUTE_PUT, SC_ROUTE_ATOMIC };

enum sc_way {
	SC_WAY_DELEGATED,   /* the peer does it, which polls; or this process, if the peer has not come to it */
	SC_WAY_COOPERATIVE, /* both copy, by CMA */
	SC_WAY_CMA_LATER,   /* this process copies it by CMA, together with others */
	SC_WAY_CMA,	    /* this process copies it by CMA, at once */
	SC_WAY_TARGET,	    /* the peer does it, and answers */
};

/* Of the peer. */
#define SC_FACT_DIRECT (1u << 0)    /* this process may touch its memory; nothing that it has not read comes before */
#define SC_FACT_DELEGABLE (1u << 1) /* it is another process, and polls; a record holds the operation */
#define SC_FACT_DELEGATED (1u << 2) /* something that is delegated to it is not over */
#define SC_FACT_COPIES (1u << 3)    /* another process, which polls and can copy from and to our memory */
/* Of the operation. */
#define SC_FACT_STREAM (1u << 4)    /* others have been posted since the last poll, */
#define SC_FACT_LIKELY (1u << 5)    /* or others are likely to follow */
#define SC_FACT_ONE_RANGE (1u << 6) /* of the peer's memory, */
#define SC_FACT_ONE_PIECE (1u << 7) /* and of ours */
#define SC_FACT_INJECTED (1u << 8)  /* a put that must not wait for a poll */
#define SC_FACT_LOOSE (1u << 9)	    /* the peer's application is not told of it, and no message has to follow it */

/* Bytes: of what is not larger and not of a stream, only DIRECT, DELEGABLE, ONE_RANGE and INJECTED matter. */
#define SC_ROUTE_SMALL 4096

/* The cost of a copy of more than SC_ROUTE_SMALL bytes: by CMA, or through buffers. Nanoseconds; 0: not known. */
struct sc_route_costs {
	uint64_t cma_ns, buffers_ns;
};

/* Bytes that are copied in one call at most. */
#define SC_ROUTE_TOGETHER ((size_t)512 << 10)

/* `facts`: SC_FACT_*, of which those that do not matter may be missing; `costs`: of what is not small. */
enum sc_way sc_route(enum sc_route_op op, size_t size, uint32_t facts, const struct sc_route_costs *costs);

/* So many operations of that size are copied in one call. */
uint32_t sc_route_together(size_t size);

#endif
