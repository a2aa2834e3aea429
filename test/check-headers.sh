#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Every header compiles alone, twice in one file, in strict C11 without a warning (other than that not all
# of it is used).
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1
cc=${CC:-cc}
fabric=$(pkg-config --cflags libfabric 2>/dev/null)
status=0
count=0

# compile FLAGS HEADER
compile()
{
	count=$((count + 1))
	if ! printf '#include "%s"\n#include "%s"\n' "$2" "$2" |
		$cc -std=c11 -Wall -Wextra -Wno-unused -Werror -fsyntax-only $1 -I. -x c -; then
		echo "$2 does not compile alone"
		status=1
	fi
}

for header in include/shmcma/*.h src/*/*.h; do
	compile "-Iinclude -Isrc" "$header"
done
for header in prov/*/*.h; do
	compile "-Iinclude -Iprov $fabric" "$header"
done
echo "$count headers"
exit $status
