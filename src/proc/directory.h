/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_DIRECTORY_H
#define SC_DIRECTORY_H

/* core.h declares all functions of directory.c. */
#include <shmcma/core.h>

#endif
