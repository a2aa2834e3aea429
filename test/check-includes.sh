#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Who may include whom:
#  - a file of src/ its own header and those of lower layers, no libfabric;
#  - a file of prov/ shmcma/core.h, libfabric and prov/, nothing of src/ and not shmcma/abi.h;
#  - a command of util/ shmcma/core.h, and what lies beside it;
#  - a test of the public interface (test/fabric, test/multi) nothing of the core at all.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

# The layers, one a line, lowest first. A module is <name>.c and <name>.h.
layers="
inject
atomic clock log list thread copy
host iov slab wake fill
addr ring pool match cq atomicop
live cma header
own memory share
door regtab
seg
reap pidfd calibration
neighbour crowd
service daemon
directory
state
rxq turn hold fence heard
peer
forget
reg record
tx
deliver rmaop
plain request
direct
batch
assist
offer
waiting serve rma
rx
recv
sleep
ep
peek
"

status=0

complain()
{
	echo "$*"
	status=1
}

# layer MODULE: its number, nothing if it has none
layer()
{
	echo "$layers" | awk -v module="$1" '{ for (i = 1; i <= NF; i++) if ($i == module) print NR }'
}

# includes FILE: what it includes, quotes and brackets kept
includes()
{
	sed -n 's/^[ \t]*#[ \t]*include[ \t]*\([<"][^>"]*[>"]\).*/\1/p' "$1"
}

for file in src/*.[ch]; do
	module=$(basename "${file%.[ch]}")
	own=$(layer "$module")
	[ -n "$own" ] || complain "$file: '$module' belongs to no layer: add it to the list in $0"
	for name in $(includes "$file"); do
		case $name in
		'<shmcma/abi.h>' | '<shmcma/core.h>') ;;
		*rdma/*) complain "$file includes $name: the core knows nothing of libfabric" ;;
		'<'*shmcma*) complain "$file includes $name: not a header of the core" ;;
		'<'*) ;;
		*/*) complain "$file includes $name: headers of src/ go by their plain name" ;;
		*)
			other=$(echo "$name" | sed 's/^"\(.*\)\.h"$/\1/')
			its=$(layer "$other")
			if [ -z "$its" ]; then
				complain "$file includes $name, which is in no layer"
			elif [ "$other" != "$module" ] && [ -n "$own" ] && [ "$its" -ge "$own" ]; then
				complain "$file (layer $own) includes $name (layer $its)"
			fi
			;;
		esac
	done
done

for file in prov/*.[ch]; do
	for name in $(includes "$file"); do
		case $name in
		'<shmcma/core.h>' | '<rdma/'*) ;;
		*shmcma/*) complain "$file includes $name: of the core, shmcma/core.h alone" ;;
		'<'*) ;;
		*/*) complain "$file includes $name: headers of prov/ go by their plain name" ;;
		*)
			header=$(echo "$name" | tr -d '"')
			[ -f "prov/$header" ] || complain "$file includes $name: not a header of prov/"
			;;
		esac
	done
done

for file in util/*.[ch]; do
	for name in $(includes "$file"); do
		case $name in
		'<shmcma/core.h>') ;;
		*shmcma/* | '<rdma/'*) complain "$file includes $name: of the core, shmcma/core.h alone" ;;
		'"'*)
			[ -f "util/$(echo "$name" | tr -d '"')" ] ||
				complain "$file includes $name: not found beside it"
			;;
		esac
	done
done

for file in test/fabric/*.[ch] test/multi/*.[ch]; do
	[ -f "$file" ] || continue
	for name in $(includes "$file"); do
		case $name in
		*shmcma/abi.h* | *shmcma/core.h*)
			complain "$file includes $name: it tests the public interface" ;;
		'<'*) ;;
		*)
			header=$(echo "$name" | tr -d '"')
			[ -f "$(dirname "$file")/$header" ] ||
				complain "$file includes $name: not found beside it"
			;;
		esac
	done
done

exit $status
