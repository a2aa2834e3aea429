#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The mutants of test/mutation: each names functions of src/ that are there, and text that they have, and a unit test.
# Prints how many there are.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

if ! command -v perl >/dev/null; then
	echo "SKIP: no perl"
	exit 77
fi
list=$(test/mutation/run-mutations.sh --list) || exit 1
echo "$(echo "$list" | grep -c .) mutants"
