/* SPDX-License-Identifier: BSD-2-Clause */
/* older.h: names in libfabric's headers of 1.17 that later ones no longer have, and that older programs use. */
#ifndef OLDER_H
#define OLDER_H

#include <rdma/fabric.h>

#ifndef FI_PROV_SPECIFIC
#define FI_PROV_SPECIFIC (1U << 31)
#endif
#ifndef FI_PRIORITY
#define FI_PRIORITY (1ULL << 22)
#endif
#ifndef FI_XPU_TRIGGER
#define FI_XPU_TRIGGER (1ULL << 44)
#endif

#endif
