#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# README says what is so: each row of its table of troubles is one that a test executes, or one for which a test says why
# it cannot, and the other way round; its table of results and its plots are those of the file with the measurements.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1
status=0
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The first cells of the table in the section.
sed -n '/^## Troubleshooting/,/^## [^T]/p' README.md | sed -n 's/^| \(.*\)/\1/p' | sed 's/ | .*//' |
	grep -vxE 'symptom|-+.*' | sort >"$work/readme"
# row 'SYMPTOM' FUNCTION, no_row 'SYMPTOM' ..., TROUBLE(FUNCTION, "SYMPTOM")
{
	sed -nE "s/^(no_)?row '([^']*)'.*/\2/p" test/run-trouble.sh test/mpi/run-trouble.sh
	tr -s '\t\n' ' ' <test/fabric/test_trouble.c | grep -oE ' TROUBLE(_ENV)?\([a-z_]+, "[^"]*"' |
		sed 's/^[^"]*"//; s/"$//'
} | sort >"$work/tests"
if [ ! -s "$work/readme" ] || ! diff "$work/readme" "$work/tests" >"$work/diff"; then
	echo "rows of README's table of troubles (<) that are not those of the tests (>):"
	grep '^[<>]' "$work/diff"
	status=1
fi

if command -v python3 >/dev/null; then
	python3 test/bench/plot.py --check docs/results/messages.csv README.md || status=1
elif [ $status = 0 ]; then
	echo "SKIP: no python3, which draws the plots"
	exit 77
fi
exit $status
