#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The points of fault injection (src/base/fault.h): each name is given once, and begins with its file's.
# Prints how many there are.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

status=0
sources=$(ls src/*/*.[ch] | grep -v '^src/base/fault\.') # fault.h shows examples
# lines "file macro name"; the list is to be split
# shellcheck disable=SC2086
points=$(grep -oE 'SC_(FAULT|FAIL|TRY|TRY_PTR|CALL)\("[a-z_.]*"' $sources | sed 's|:| |; s|("| |; s|"$||')

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
# what a process can die in, or see fail; what cannot fail, or not matter, has no points (fault.h)
calls='open|openat|close|pipe2?|read|write|p(read|write)|f?stat|fstatat|f?statfs|access|readlink|linkat|unlink|fchmod'
calls="$calls|fallocate|ftruncate|fcntl|p?poll|mmap|munmap|mprotect|madvise|kill|getrlimit|getrandom"
calls="$calls|process_vm_(read|write)v|opendir|readdir|closedir|fopen|fclose|pthread_atfork|syscall"
# each statement by itself, without comments; what stands in a point is left out
# shellcheck disable=SC2086
bare=$(perl -0777 -ne '
	BEGIN { $calls = shift }
	s|//.*||g; s|/\*.*?\*/||gs; s/\s+/ /g;
	for (split /(?<=[;{}])/) {
		next if /SC_(TRY|TRY_PTR|CALL|FAIL)\(|SYS_gettid|ret = fallocate/;
		print "$ARGV: $1\n" if /(?<![a-zA-Z0-9_.>])((?:$calls)\(.*)/;
	}' "$calls" $sources)
if [ -n "$bare" ]; then
	echo "system calls without points:"
	echo "$bare"
	status=1
fi
count=$(echo "$points" | awk '{ count += $2 ~ /TRY|CALL/ ? 2 : 1 } END { print count }')
echo "$count points"
if [ "$count" -lt 150 ]; then
	echo "there were 150 at least"
	status=1
fi
exit $status
