/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * filter.c: linked with a unit test. The program runs those of its tests that the pattern in TEST_FILTER names,
 * with the mutant whose number is in SC_MUTANT; 0 is none. See run.pl.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

int sc_mutant;

__attribute__((constructor(101))) static void choose(void)
{
	const char *mutant = getenv("SC_MUTANT");

	sc_mutant = mutant ? atoi(mutant) : 0;
	cmocka_set_test_filter(getenv("TEST_FILTER"));
}
