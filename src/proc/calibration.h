/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CALIBRATION_H
#define SC_CALIBRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>

/*
 * Reads a calibration from the bytes of its file. -ESTALE: it is of another boot, kernel or processor; -EPROTO: the
 * file is damaged, or its costs are impossible.
 */
int sc_calibration_parse(const struct sc_abi_calibration *file, struct sc_calibration *calibration);

/* Fills in the bytes of the file. -ERANGE: the costs are impossible. */
int sc_calibration_format(const struct sc_calibration *calibration, struct sc_abi_calibration *file);

/* Sizes of the measured copies, bytes, and the times that these have taken, nanoseconds. */
#define SC_CALIBRATION_SMALL 4096u
#define SC_CALIBRATION_LARGE 65536u
#define SC_CALIBRATION_BOUNCE 16384u
struct sc_calibration_times {
	int64_t small, large; /* by cross memory attach */
	int64_t near, far;    /* SC_CALIBRATION_BOUNCE through a bounce buffer: cached, streamed */
};

/* Derives the calibration from the times, except the time of day. -ERANGE: the costs are impossible. */
int sc_calibration_judge(const struct sc_calibration_times *times, struct sc_calibration *calibration);

/* Makes `calibration` the least of both. */
void sc_calibration_merge(struct sc_calibration *calibration, const struct sc_calibration *other);

/*
 * Returns the nanoseconds that CMA takes to copy `size` bytes in `fragments` fragments, where one call does `together`
 * such copies; both are 1 or more. 0: this process has no calibration.
 */
uint64_t sc_calibration_cma_ns(size_t size, size_t fragments, uint32_t together);

#endif
