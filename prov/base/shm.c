/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shm.c: the module libshm-fi.so: the provider under the name of libfabric's shm, in its place. It does not speak with
 * libfabric's shm: all processes of a job load the same one of the two.
 *
 * The calls that only shm has are answered as shm answers them: any text is a name, FI_REMOTE_COMM is never granted by
 * the name alone, and the parameters of shm that have a meaning here are read, as libfabric reads them.
 */
#define _GNU_SOURCE 1
#include "base/provider.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/param.h"

#define PREFIX "FI_SHM_"

struct fi_provider shmcma_provider = {
	.name = "shm",
};

const struct shmcma_module shmcma_module = {
	.names_are_free = true,
	.is_shm = true,
	.text_size = SHMCMA_TEXT_MAX,
	.control_progress = FI_PROGRESS_AUTO,
	.mr_modes = FI_MR_VIRT_ADDR,
};

static const struct {
	const char *name, *help;
	enum fi_param_type type;
} params[] = {
	{ "tx_size", "Size of a transmit queue without hints, up to 65536 (default: 1024)",
	  FI_PARAM_SIZE_T },
	{ "rx_size", "Size of a receive queue without hints, up to 65536 (default: 1024)",
	  FI_PARAM_SIZE_T },
	{ "disable_cma", "Copy through shared buffers only, like FI_SHMCMA_CMA=no (default: no)",
	  FI_PARAM_BOOL },
};
enum { TX_SIZE, RX_SIZE, DISABLE_CMA, PARAMS };

static void read_size(int param, size_t *size)
{
	size_t given;

	if (fi_param_get_size_t(&shmcma_provider, params[param].name, &given))
		return;
	if (given && given <= SHMCMA_MAX_SIZE)
		*size = given;
	else
		shmcma_warn(FI_LOG_CORE, PREFIX "%s=%zu is not from 1 to %d: using %zu\n",
			    param == TX_SIZE ? "TX_SIZE" : "RX_SIZE", given, SHMCMA_MAX_SIZE, *size);
}

static void check_name(const char *variable)
{
	size_t len = strcspn(variable, "=");

	for (int i = 0; i < PARAMS; i++)
		if (len == strlen(params[i].name) && !strncasecmp(variable, params[i].name, len))
			return;
	shmcma_warn(FI_LOG_CORE,
		    PREFIX
		    "%.*s is ignored: of the parameters of libfabric's shm, shmcma in its place has "
		    "TX_SIZE, RX_SIZE and DISABLE_CMA; fi_shmcma(7) lists its own\n",
		    (int)len, variable);
}

/* A version above that of the shm in this libfabric: of two providers of one name libfabric takes the newer one. */
static uint32_t version(void)
{
	uint32_t library = fi_version();

	return FI_VERSION(FI_MAJOR(library) * 100 + FI_MINOR(library), 1000);
}

void shmcma_module_init(struct shmcma_env *env)
{
	int disabled;

	shmcma_provider.version = version();
	for (int i = 0; i < PARAMS; i++)
		fi_param_define(&shmcma_provider, params[i].name, params[i].type, "%s", params[i].help);
	read_size(TX_SIZE, &env->tx_size);
	read_size(RX_SIZE, &env->rx_size);
	if (!fi_param_get_bool(&shmcma_provider, params[DISABLE_CMA].name, &disabled))
		env->config.cma = !disabled;
	for (char **variable = environ; variable && *variable; variable++)
		if (!strncmp(*variable, PREFIX, strlen(PREFIX)))
			check_name(*variable + strlen(PREFIX));
}
