#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# report.sh [-s] [BUILD] - about the tests that have run in the directory BUILD, by default this one:
#
#   -s   the ten that took longest, with their seconds, and the sum of all
#
# and last, in each case, what was skipped there, and why: programs, and cases in them.
slowest=
if [ "${1:-}" = -s ]; then
	slowest=1
	shift
fi
cd "${1:-.}" || exit 1

if [ -n "$slowest" ] && [ -s tests.seconds ]; then
	awk '{ seconds += $1; cpu += $2 }
		END { printf "%d tests: %d s one after the other, %d s of processor time\n", NR, seconds, cpu }' \
		tests.seconds
	echo "the slowest (seconds, of processor time):"
	sort -rn tests.seconds | head -n 10 | awk '{ printf "  %6.1f %6.1f  %s\n", $1, $2, $4 }'
fi

# Of the log of each test that has just run: by cases, a line for each reason; by scripts, their own lines.
cut -d ' ' -f 4 tests.seconds 2>/dev/null | sort -u | while read -r test; do
	log=${test%.sh}.log
	[ -f "$log" ] || continue
	awk -v test="$test" '
		/^\[ RUN / { why = "it says no reason" }
		/^needs / { why = $0 }
		/^\[  SKIPPED \] [a-z]/ && !($4 in seen) { seen[$4]; cases[why] = cases[why] " " $4 }
		/\.\.\. skipped|^SKIP: |: skipped$| left out$/ && !($0 in seen) { seen[$0]; print "skipped: " test ": " $0 }
		END { for (why in cases) print "skipped: " test ":" cases[why] " (" why ")" }' "$log"
done
