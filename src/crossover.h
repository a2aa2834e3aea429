/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * crossover.h: how large a message to one peer may be and still go through bounce buffers, learned from what
 * the copies into them cost.
 *
 * The sender writes lines that the receiver has read. What that costs depends on how far apart the two
 * processors are, and on little else, so it belongs to the pair and not to the machine; it changes when the
 * scheduler, or the host of a virtual machine, moves one of them. What a rendezvous costs hardly does.
 * Measured by two processes on a 2-processor Zen 4 virtual machine, whose host moves its processors within
 * seconds, microseconds:
 *
 *   a line    copied into buffers   out of them     one way, buffers          rendezvous, both copy
 *   one way   16 KiB   32 KiB       16     32       4     8     16    32      4     8     16    32
 *   0.025      0.4      0.7         0.3    0.7      1.2   0.6   0.9   1.4     2.4   2.4   2.9   3.6
 *   0.06       0.7      4.0         0.3    1.0      1.2   1.0   2.1   4.2     2.6   2.7   3.0   3.7
 *   0.26       2.6     16           0.9    3.1      2.0   3.2   6.2  12       3.0   3.2   3.9   5.2
 *
 * No one size serves: it would be from 8 KiB in the last row to beyond 64 KiB in the first. Nor does one that
 * is measured once for the machine. So a sender times some of its copies and compares. Everything here is the
 * sender's own: no peer has a say in it, and nothing is shared.
 *
 * A copy that was interrupted looks dear, none looks cheaper than it is: what is dearer than was expected
 * counts a quarter, and never as more than four times that. While messages go by rendezvous no copy is seen;
 * so one goes through buffers now and then, the larger it is the less often, as it costs more if it should
 * have gone the other way.
 *
 * One thread at a time, that of the endpoint.
 */
#ifndef SC_CROSSOVER_H
#define SC_CROSSOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <shmcma/core.h>

struct sc_crossover {
	uint32_t eager_max; /* as it is now, bytes */
	uint32_t limit;	    /* never more, bytes; 0: eager_max is for good */
	uint32_t per_kib;   /* into bounce buffers, nanoseconds; 0: not known */
	uint32_t passed;    /* messages by rendezvous since a copy was timed last */
	uint32_t copies;    /* into bounce buffers, that could have been timed */
};

/* Bytes. Smaller messages are not worth a rendezvous; larger ones would take the pool from the others. */
#define SC_CROSSOVER_MIN 4096u
#define SC_CROSSOVER_MAX 65536u

/* A copy of so many is timed: two looks at the clock, 0.05 us together. */
#define SC_CROSSOVER_COPIES 8

/* Begin with `eager_max`; it may become anything up to `limit`, 0: it stays. */
void sc_crossover_init(struct sc_crossover *crossover, uint32_t eager_max, uint32_t limit);

/* A message of that size is larger than eager_max: is it to show what the copy costs today? */
bool sc_crossover_tries(struct sc_crossover *crossover, uint64_t size);

/* Is the copy of so many bytes, now to be made, to be timed? */
static inline bool sc_crossover_wants(struct sc_crossover *crossover, uint32_t size)
{
	return crossover->limit && size >= SC_CROSSOVER_MIN && !(crossover->copies++ % SC_CROSSOVER_COPIES);
}

/* It has taken so many nanoseconds, whatever the clock says; a rendezvous would take that. */
void sc_crossover_learn(struct sc_crossover *crossover, const struct sc_cost *rendezvous,
			uint32_t size, int64_t ns);

#endif
