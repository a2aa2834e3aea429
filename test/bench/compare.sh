#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# shmcma beside libfabric's own shm, both from the same run; other providers may be named.
#
#	test/bench/compare.sh [-b build directory] [options and providers of fabric_bench]
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
case ${1:--} in
-*)
	last=-
	for word; do
		last=$word
	done
	case $last in
	- | [0-9]*) set -- "$@" shmcma shm ;;
	esac
	;;
esac
FI_PROVIDER_PATH=$(cd "$build" && pwd)/.libs
export FI_PROVIDER_PATH
exec "$build/test/bench/fabric_bench" "$@"
