/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CALIBRATION_H
#define SC_CALIBRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>

/*
 * The calibration in the file, if it is of this boot, kernel and processor, and is possible. -ESTALE: of another;
 * -EPROTO.
 */
int sc_calibration_parse(const struct sc_abi_calibration *file, struct sc_calibration *calibration);

/* -ERANGE: no machine is like that. */
int sc_calibration_format(const struct sc_calibration *calibration, struct sc_abi_calibration *file);

/* Copies of these sizes, bytes, and the nanoseconds that they have taken. */
#define SC_CALIBRATION_SMALL 4096u
#define SC_CALIBRATION_LARGE 65536u
#define SC_CALIBRATION_BOUNCE 16384u
struct sc_calibration_times {
	int64_t small, large; /* by cross memory attach */
	int64_t near, far;    /* into bounce buffers and out again, of SC_CALIBRATION_BOUNCE */
};

/* All but the time of day. -ERANGE */
int sc_calibration_judge(const struct sc_calibration_times *times, struct sc_calibration *calibration);

/*
 * Nanoseconds that CMA takes to copy so many bytes, of so many fragments, 1 or more; `together`: so many such copies in
 * one call, 1 or more. 0: this process does not know what CMA costs here.
 */
uint64_t sc_calibration_cma_ns(size_t size, size_t fragments, uint32_t together);

#endif
