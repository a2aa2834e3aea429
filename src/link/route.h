/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * route.h: decides which way an operation goes, by its kind, its size and what is known of the peer.
 *
 * sc_route() is a pure function: it asks no process, and changes nothing. The caller collects the facts, without a
 * system call. If a fact costs something to find out, such as space in the peer's ring, the caller first assumes it; if
 * the way that needs it is not open, the caller takes the fact back and asks again.
 */
#ifndef SC_ROUTE_H
#define SC_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sc_route_op { SC_ROUTE_GET, SC_ROUTE_PUT, SC_ROUTE_MESSAGE };

enum sc_way {
	SC_WAY_DELEGATED,   /* the peer does it when it polls, or else this process */
	SC_WAY_COOPERATIVE, /* both sides copy, by CMA */
	SC_WAY_CMA_LATER,   /* this process copies by CMA, several operations in one call */
	SC_WAY_CMA,	    /* this process copies by CMA, at once */
	SC_WAY_TARGET,	    /* the peer does it, and answers */
	SC_WAY_INLINE,	    /* the payload of a message is in its record, */
	SC_WAY_BOUNCE,	    /* or in bounce buffers, */
	SC_WAY_RENDEZVOUS,  /* or stays where it is; the receiver copies it, or asks for it */
};

/* Facts of the peer. */
#define SC_FACT_DIRECT (1u << 0)    /* the peer's memory may be touched; no unread record comes first */
#define SC_FACT_DELEGABLE (1u << 1) /* another process, which polls; a record holds the operation */
#define SC_FACT_DELEGATED (1u << 2) /* an operation that is delegated to the peer has not ended */
#define SC_FACT_COPIES (1u << 3)    /* another process, which polls and can copy from and to our memory */
/* Facts of the operation. */
#define SC_FACT_STREAM (1u << 4)    /* others have been posted since the last poll, */
#define SC_FACT_LIKELY (1u << 5)    /* or others are likely to follow */
#define SC_FACT_ONE_RANGE (1u << 6) /* it names one range of the peer's memory, */
#define SC_FACT_ONE_PIECE (1u << 7) /* and one of ours */
#define SC_FACT_INJECTED (1u << 8)  /* a put that may not be put off, as no poll may follow */
#define SC_FACT_LOOSE (1u << 9)	    /* no message has to follow it */
/* Facts of a message, besides SC_FACT_STREAM. */
#define SC_FACT_RECORD (1u << 10)  /* a record has space for its payload, */
#define SC_FACT_BUFFER (1u << 11)  /* and so has a buffer */
#define SC_FACT_BUFFERS (1u << 12) /* it is small enough for buffers, and enough of them are there */
#define SC_FACT_BEHIND (1u << 13)  /* the receiver has more than the last message to read */

/*
 * The largest delegated put, in bytes, whose payload is in its record; the payload of a larger one is in buffers
 * (docs/MEASUREMENTS.md, "Delegated operations").
 */
#define SC_ROUTE_RECORD 256
/*
 * The size of the largest small operation, in bytes (docs/MEASUREMENTS.md, "Delegated operations"). The way of a small
 * operation depends on no other facts than DIRECT, DELEGABLE and ONE_RANGE, unless it is one of a stream and lacks
 * DELEGABLE or ONE_RANGE.
 */
#define SC_ROUTE_SMALL 4096

/*
 * The cost of a payload by each way, nanoseconds; 0: unknown. sc_route() reads them for a message, and for an operation of
 * more than SC_ROUTE_SMALL bytes.
 */
struct sc_route_costs {
	uint64_t cma_ns, buffers_ns;
};

/*
 * From this many bytes on, a payload is faster in a buffer than in a record, also between two processes that answer
 * each other in one buffer (hold.h). For a receiver that is behind, this begins with fewer bytes, because it then has
 * fewer lines of the ring to read: docs/MEASUREMENTS.md, "Inline or bounce buffer".
 */
#define SC_ROUTE_BUFFER_MIN 320
#define SC_ROUTE_BUFFER_MIN_BEHIND 128

/* Tells whether a payload that fits a record and a buffer is faster in the buffer. `behind`: see SC_FACT_BEHIND. */
static inline bool sc_route_prefers_buffer(size_t size, bool behind)
{
	return size >= (behind ? SC_ROUTE_BUFFER_MIN_BEHIND : SC_ROUTE_BUFFER_MIN);
}

/*
 * Operations that have this many bytes together are copied in one call, and put off no longer: docs/MEASUREMENTS.md,
 * "Batches of direct operations".
 */
#define SC_ROUTE_TOGETHER ((size_t)512 << 10)

/* `facts`: SC_FACT_*; those that do not matter may be missing. `costs`: of operations that are not small. */
enum sc_way sc_route(enum sc_route_op op, size_t size, uint32_t facts, const struct sc_route_costs *costs);

/* Returns how many operations of that size are copied in one call. */
uint32_t sc_route_together(size_t size);

#endif
