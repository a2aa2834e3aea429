/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * param.h: the parameters of the environment, FI_SHMCMA_*. libfabric is told of them, so that fi_info(1) lists them. A
 * parameter that is not set, or is empty, has its default. A value that is no good, or a name that is no parameter's, is
 * logged at level warn, and the default is used.
 */
#ifndef SHMCMA_PARAM_H
#define SHMCMA_PARAM_H

#include <stdbool.h>
#include <shmcma/core.h>

/* The provider's parameters. */
struct shmcma_env {
	size_t tx_size, rx_size;      /* of a queue without hints */
	struct sc_config config;      /* FI_SHMCMA_CMA, RMA, and the sizes */
	int remote_comm;	      /* FI_SHMCMA_REMOTE_COMM */
	bool calibrated;	      /* FI_SHMCMA_CALIBRATE, and FI_SHMCMA_EAGER_MAX is not given */
	const char *stats;	      /* FI_SHMCMA_STATS; NULL: it is not set */
};
extern struct shmcma_env shmcma_env;

/* Reads the parameters. Called once, before any other call of this provider. */
void shmcma_env_read(void);

/* Puts the measured costs of this machine into the parameters. Called once, before the first endpoint. */
void shmcma_calibrate(void);

#endif
