/* SPDX-License-Identifier: BSD-2-Clause */
/* shmcma.c: the module libshmcma-fi.so: the provider under its own name. */
#include "base/provider.h"

struct fi_provider shmcma_provider = {
	.version = FI_VERSION(0, 1),
	.name = "shmcma",
};

const struct shmcma_module shmcma_module = {
	.name_is_remote = true,
	.text_size = SC_ADDR_SIZE,
	.control_progress = FI_PROGRESS_MANUAL,
	.mr_modes = SHMCMA_MR_MODES,
};

void shmcma_module_init(struct shmcma_env *env)
{
}
