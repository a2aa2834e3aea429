/* SPDX-License-Identifier: BSD-2-Clause */
/* provider.c: the provider's name. */
#include "base/provider.h"

#include <string.h>
#include <strings.h>

bool shmcma_is_listed(const char *list)
{
	const char *name = shmcma_provider.name;

	while (*list) {
		size_t len = strcspn(list, ",;");

		if (len == strlen(name) && !strncasecmp(list, name, len))
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}
