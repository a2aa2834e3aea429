#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Every source, header, test and script is in one of the lists of Makefile.am, so that none is forgotten by
# the build, by make check or by the distribution.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1
status=0

for file in include/*/*.h src/*/*.[ch] prov/*/*.[ch] util/*.[ch] man/*.[1-9] test/*.sh test/*/*.[ch] test/*/*.sh test/*/*.py test/*.md *.md docs/*.md; do
	[ -f "$file" ] || continue
	# tests are listed without their suffix
	if ! grep -qE "(^|[[:space:]])(${file%.*}|$file)([[:space:]]|\$)" Makefile.am; then
		echo "$file is in no list of Makefile.am"
		status=1
	fi
done
exit $status
