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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sc_route_op { SC_ROUTE_GET, SC_ROUTE_PUT, SC_ROUTE_ATOMIC, SC_ROUTE_MESSAGE };

enum sc_way {
	SC_WAY_DELEGATED, /* the peer does it, which polls; or this process, if the peer has not come to it */
	SC_WAY_COOPERATIVE, /* both copy, by CMA */
	SC_WAY_CMA_LATER,   /* this process copies it by CMA, together with others */
	SC_WAY_CMA,	    /* this process copies it by CMA, at once */
	SC_WAY_TARGET,	    /* the peer does it, and answers */
	SC_WAY_INLINE,	    /* the payload of a message is in its record, */
	SC_WAY_BOUNCE,	    /* or in bounce buffers, */
	SC_WAY_RENDEZVOUS,  /* or where it is; the receiver copies it, or asks for it */
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
/* Of a message, with SC_FACT_STREAM. */
#define SC_FACT_RECORD (1u << 10)  /* a record has room for its payload, */
#define SC_FACT_BUFFER (1u << 11)  /* and there is a buffer for it as well; */
#define SC_FACT_BUFFERS (1u << 12) /* it is small enough for buffers, and there are as many as it takes */
#define SC_FACT_BEHIND (1u << 13)  /* the receiver has more than the last message to read */

/* Bytes: of what is not larger and not of a stream, only DIRECT, DELEGABLE, ONE_RANGE and INJECTED matter. */
#define SC_ROUTE_SMALL 4096

/* The cost of a copy of more than SC_ROUTE_SMALL bytes, or of a message: by CMA, or through buffers. Nanoseconds; 0: not known. */
struct sc_route_costs {
	uint64_t cma_ns, buffers_ns;
};

/*
 * Bytes that are better in a buffer than in a record, also for two that answer each other in the same buffer (hold.h);
 * and for a receiver that is behind, which has fewer lines of the ring to read: docs/MEASUREMENTS.md, "Inline or bounce
 * buffer".
 */
#define SC_ROUTE_BUFFER_MIN 320
#define SC_ROUTE_BUFFER_MIN_BEHIND 128

/* Of what a record and a buffer could hold: does the receiver have it sooner in the buffer? `behind`: see SC_FACT_BEHIND. */
static inline bool sc_route_prefers_buffer(size_t size, bool behind)
{
	return size >= (behind ? SC_ROUTE_BUFFER_MIN_BEHIND : SC_ROUTE_BUFFER_MIN);
}

/* Bytes that are copied in one call at most. */
#define SC_ROUTE_TOGETHER ((size_t)512 << 10)

/* `facts`: SC_FACT_*, of which those that do not matter may be missing; `costs`: of what is not small. */
enum sc_way sc_route(enum sc_route_op op, size_t size, uint32_t facts, const struct sc_route_costs *costs);

/* So many operations of that size are copied in one call. */
uint32_t sc_route_together(size_t size);

#endif
