#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# shmcma beside libfabric's own shm, both from the same run; other providers may be named.
#
#	test/bench/compare.sh [-b build directory] [options and providers of fabric_bench]
#
# With -o first: one-sided operations, of shmcma as it is, of shmcma where the target does all itself, and of
# shm.
cd "$(dirname "$0")/../.." || exit 1
build=build
[ -x "$build/test/bench/fabric_bench" ] || build=.
if [ "$1" = -b ]; then
	build=$2
	shift 2
fi
if [ ! -x "$build/test/bench/fabric_bench" ]; then
	echo "compare.sh: no test/bench/fabric_bench in $build: make first" >&2
	exit 1
fi

# Options alone: the usual two providers.
usual="shmcma shm"
[ "${1:-}" != -o ] || usual="shmcma shmcma:strict:auto shm"
case ${1:--} in
-*)
	last=-
	for word; do
		last=$word
	done
	# shellcheck disable=SC2086
	case $last in
	- | -o | [0-9]*) set -- "$@" $usual ;;
	esac
	;;
esac
FI_PROVIDER_PATH=$(cd "$build" && pwd)/.libs
export FI_PROVIDER_PATH
exec "$build/test/bench/fabric_bench" "$@"
