#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# test/fabric/CONTRACT.md has a row for all that is in libfabric's headers, and the tests that it names are there;
# see contract.py. Skipped without python3.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

if ! python3 -c '' 2>/dev/null; then
	echo "no python3: skipped"
	exit 77
fi
include=$(pkg-config --variable=includedir libfabric 2>/dev/null)
include=${include:-/usr/include}/rdma
set --
for name in fabric fi_domain fi_endpoint fi_cm fi_eq fi_rma fi_tagged fi_atomic fi_trigger fi_collective fi_errno \
	fi_ext; do
	set -- "$@" "$include/$name.h"
done
exec python3 test/contract.py test/fabric/CONTRACT.md test "$@"
