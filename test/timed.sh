#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# timed.sh COMMAND... - runs a test, whose name is the last word, and adds a line to the file tests.seconds of the
# directory of the build: its seconds, the seconds of processor time that it and its children took, its status, its
# name. test/report.sh reads them. Ends as the test does.
for test; do :; done
begin=$(date +%s%N)
"$@"
status=$?
end=$(date +%s%N)
# In a file, for a subshell would tell of its own children. Its second line is that of the children:
# "1m2.345s 0m0.678s".
times >"tests.times.$$"
echo "$begin $end $status test/${test##*test/}" |
	awk 'NR == 2 { gsub(/[ms]/, " "); $0 = $0; cpu = 60 * $1 + $2 + 60 * $3 + $4 }
		FILENAME == "-" { printf "%.1f %.1f %d %s\n", ($2 - $1) / 1e9, cpu, $3, $4 }' "tests.times.$$" - >>tests.seconds
rm -f "tests.times.$$"
exit $status
