#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The limits of CONTRIBUTING.md: a file of src/ or prov/ has at most 700 lines and a function at most 60; a function of
# src/ has at most 5 parameters; no file of src/ has the name of one of prov/. Each line of the output is a breach.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

breaches=$(
	awk '
	# judge: the function that ends in this line
	function judge(params) {
		params = signature
		sub(/^[^(]*\(/, "", params)
		while (gsub(/\([^()]*\)/, "", params)) # parameters that are functions
			;
		if (FNR - start + 1 > 60)
			printf "%s:%d: a function of %d lines\n", FILENAME, start, FNR - start + 1
		if (FILENAME ~ /^src\// && gsub(/,/, ",", params) > 4)
			printf "%s:%d: a function with more than 5 parameters\n", FILENAME, start
	}
	FNR == 1 && last { size() }
	function size() { if (lines > 700) printf "%s: %d lines\n", last, lines }
	{ last = FILENAME; lines = FNR }
	/^[A-Za-z_].*\(/ && !/;$/ { start = FNR; signature = "" }
	/^[A-Za-z_]/ || /^\t/ || /^ / { if (start && !body) signature = signature $0 }
	/^{/ { body = start }
	/^}/ { if (body) judge(); start = body = 0 }
	/^[A-Za-z_].*;$/ { start = body = 0 }
	END { size() }
	' src/*/*.[ch] prov/*/*.[ch]
	for file in prov/*/*.[ch]; do
		for twin in src/*/"${file##*/}"; do
			[ ! -e "$twin" ] || echo "$file: $twin has the same name"
		done
	done
)
[ -z "$breaches" ] || { echo "$breaches" && exit 1; }
