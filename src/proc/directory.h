/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DIRECTORY_H
#define SC_DIRECTORY_H

/* All that is called of it is in core.h. */
#include <shmcma/core.h>

#endif
