#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The module exports fi_prov_ini and nothing else, and brings along what it needs.
module=${abs_top_builddir:-.}/.libs/libshmcma-fi.so
nm=${NM:-nm}
status=0

if [ ! -f "$module" ]; then
	echo "$module is missing: make first"
	exit 1
fi

exported=$($nm -D --defined-only "$module" | awk '{ print $NF }' | sort)
if [ "$exported" != fi_prov_ini ]; then
	echo "exported symbols are to be fi_prov_ini alone, but are:"
	echo "$exported"
	status=1
fi

# libfabric opens the module with RTLD_NOW, in processes that may not have libfabric in global scope.
dynamic=$(LC_ALL=C readelf -d "$module")
case $dynamic in
*'[libfabric.so.'*) ;;
*) echo "the module does not name libfabric among what it needs"; status=1 ;;
esac
case $dynamic in
*NODELETE*) ;;
*) echo "the module can be unloaded: -z nodelete is missing"; status=1 ;;
esac
exit $status
