/* SPDX-License-Identifier: BSD-2-Clause */
/* provider.c: the structure by which libfabric knows the provider. */
#include "base/provider.h"

#include <string.h>
#include <strings.h>

/* Writable: libfabric keeps its own state in `context`, and init.c puts in the calls. */
struct fi_provider shmcma_provider = {
	.version = SHMCMA_VERSION,
	.name = SHMCMA_NAME,
};

bool shmcma_is_listed(const char *list)
{
	while (*list) {
		size_t len = strcspn(list, ",;");

		if (len == strlen(SHMCMA_NAME) && !strncasecmp(list, SHMCMA_NAME, len))
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}
