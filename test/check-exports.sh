#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Each module exports fi_prov_ini and nothing else, and brings along what it needs.
nm=${NM:-nm}
status=0

complain()
{
	echo "$module: $*"
	status=1
}

for module in lib/libshmcma-fi.so dropin/libshm-fi.so; do
	module=${abs_top_builddir:-.}/$module
	if [ ! -f "$module" ]; then
		complain "missing: make first"
		continue
	fi
	exported=$($nm -D --defined-only "$module" | awk '{ print $NF }' | sort)
	[ "$exported" = fi_prov_ini ] || complain "exported symbols are to be fi_prov_ini alone, but are: $exported"

	# libfabric opens the module with RTLD_NOW, in processes that may not have libfabric in global scope.
	dynamic=$(LC_ALL=C readelf -d "$module")
	case $dynamic in
	*'[libfabric.so.'*) ;;
	*) complain "does not name libfabric among what it needs" ;;
	esac
	case $dynamic in
	*NODELETE*) ;;
	*) complain "can be unloaded: -z nodelete is missing" ;;
	esac
done
exit $status
