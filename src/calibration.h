/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_CALIBRATION_H
#define SC_CALIBRATION_H

#include <stdint.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>

/* What the file says, if it is of this boot and this kernel, and can be. -ESTALE: another boot; -EPROTO. */
int sc_calibration_parse(const struct sc_abi_calibration *file, struct sc_calibration *calibration);

/* -ERANGE: the machine cannot be like that. */
int sc_calibration_format(const struct sc_calibration *calibration, struct sc_abi_calibration *file);

/* From the times that copies of these sizes, bytes, have taken, nanoseconds. -ERANGE */
#define SC_CALIBRATION_SMALL 4096u
#define SC_CALIBRATION_LARGE 65536u
int sc_calibration_judge(int64_t small, int64_t large, struct sc_cost *cma);

#endif
