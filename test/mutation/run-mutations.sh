#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-mutations.sh [NAME...]           - for each mutant of the library a unit test must fail
# run-mutations.sh --of src/FILE...    - the mutants of functions that are in these files
#
# The file `mutations` says which function each mutant changes and which tests must notice; README.md tells its
# format. One build holds all of them. The tests must pass without any mutant. "Caught" is a test that fails in a
# check, by a signal or by its own alarm.
#
# Prints "PASS ..." or "FAIL ..." for each, and last "N mutants, N caught". Exit: 0, 1, or 77 (skipped).
#
#   --list           prints "NAME PROGRAM PATTERN FILES" of those mutants, and on standard error all that do not fit
#                    the sources (exit status 1); runs nothing
#   --untouched      prints the functions of src/ that no mutant changes, and runs nothing
#   --file=FILE      other mutants than those in the file `mutations`
#   --keep           keeps the build, and says how to run a mutant there
#
#   CC               the compiler, cc
#   LIMIT            seconds that one test may take, 100
#   JOBS             tests at a time, one more than there are processors
#   SHMCMA_NO_SKIP   if set, a missing program is a failure
here=$(cd "$(dirname "$0")" && pwd) || exit 99
cc=${CC:-cc}
for program in perl "${cc%% *}"; do
	if ! command -v "$program" >/dev/null; then
		echo "SKIP: no $program"
		[ -z "${SHMCMA_NO_SKIP:-}" ] && exit 77
		exit 1
	fi
done
exec perl "$here/run.pl" "$@"
