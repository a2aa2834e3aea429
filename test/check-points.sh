#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The points of fault injection (src/inject.h): each name is given once, and begins with its file's.
# Prints how many there are.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

status=0
# lines "file macro name"; inject.h itself shows examples
points=$(for file in $(ls src/*.[ch] | grep -v '^src/inject\.'); do
	grep -oE 'SC_(INJECT|FAIL|TRY|TRY_PTR|CALL)\("[a-z_.]*"' "$file" | sed "s|^|$file |; s|(\"| |; s|\"\$||"
done)

twice=$(echo "$points" | cut -d' ' -f3 | sort | uniq -d)
if [ -n "$twice" ]; then
	echo "points of the same name:" $twice
	status=1
fi
strange=$(echo "$points" | awk '{
	file = $1
	sub(/.*\//, "", file)
	sub(/\.[ch]$/, "", file)
	if (index($3, file ".") != 1 || $3 ~ /\.done$/)
		print $1 ": " $3
}')
if [ -n "$strange" ]; then
	echo "points that are not named after their file:"
	echo "$strange"
	status=1
fi
count=$(echo "$points" | awk '{ count += $2 ~ /TRY|CALL/ ? 2 : 1 } END { print count }')
echo "$count points"
if [ "$count" -lt 150 ]; then
	echo "there were 150 at least"
	status=1
fi
exit $status
