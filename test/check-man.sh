#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# mandoc finds nothing to complain about in the manual pages. Which other pages are installed here does not matter: a
# reference to a page that is missing is no fault. fi_shmcma(7) begins with the sections of libfabric's provider pages, in
# their order.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

order="NAME, OVERVIEW, SUPPORTED FEATURES, LIMITATIONS, RUNTIME PARAMETERS, "
is=$(sed -n 's/^\.Sh \(.*\)/\1, /p' man/fi_shmcma.7 | head -n 5 | tr -d '\n')
if [ "$is" != "$order" ]; then
	echo "FAIL: fi_shmcma(7) begins with the sections $is and not with $order"
	exit 1
fi

if ! command -v mandoc >/dev/null; then
	if [ -n "${SHMCMA_NO_SKIP:-}" ]; then
		echo "FAIL: no mandoc, but SHMCMA_NO_SKIP is set"
		exit 1
	fi
	echo "SKIP: no mandoc (Debian: mandoc)"
	exit 77
fi
! mandoc -T lint -W style man/*.[1-9] 2>/dev/null | grep -v 'STYLE: referenced manual not found: '
