/* SPDX-License-Identifier: BSD-2-Clause */
/* filter.c: linked with a unit test, has it run what the pattern in TEST_FILTER names; see run-mutations.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void filter(void)
{
	cmocka_set_test_filter(getenv("TEST_FILTER"));
}
