#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Which file may include or call which:
#  - a file of src/ what is in its own room and in lower ones, no libfabric; and no two modules need each other;
#  - a file of prov/ shmcma/core.h, libfabric and prov/, nothing of src/ and not shmcma/abi.h;
#  - a command of util/ shmcma/core.h, and what lies beside it;
#  - a test of the public interface (test/fabric, test/multi) nothing of the core at all.
#
# A module is <name>.c and <name>.h. Calls are seen where make has left the objects of src/: a symbol that one object
# needs and another one defines.
build=$(pwd)
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

# The rooms of src/, lowest first; docs/ARCHITECTURE.md says what each owns.
rooms="base os shm proc link msg rma ep"

status=0

complain()
{
	echo "$*"
	status=1
}

# includes FILE: what it includes, quotes and brackets kept
includes()
{
	sed -n 's/^[ \t]*#[ \t]*include[ \t]*\([<"][^>"]*[>"]\).*/\1/p' "$1"
}

# judge HOW: lines "room/module room/module", of which the first needs the second
judge()
{
	sort -u >"$needs"
	upward=$(awk -v rooms="$rooms" -v how="$1" 'BEGIN { for (n = split(rooms, room, " "); n; n--) floor[room[n]] = n }
		{
			split($1, from, "/")
			split($2, to, "/")
			if (!(from[1] in floor) || !(to[1] in floor))
				print "src/" $1 " " how " src/" $2 ": that is in no room"
			else if (floor[to[1]] > floor[from[1]])
				print "src/" $1 " " how " src/" $2 ", which is in a higher room"
		}' "$needs")
	[ -z "$upward" ] || complain "$upward"
	loop=$(tsort "$needs" 2>&1 >/dev/null | tr '\n' ' ')
	[ -z "$loop" ] || complain "modules of src/ that need each other (one $1 the other): $loop"
}

needs=$(mktemp) || exit 99
trap 'rm -f "$needs"' EXIT
trap 'exit 1' HUP INT TERM

for file in src/*/*.[ch]; do
	for name in $(includes "$file"); do
		case $name in
		'<shmcma/abi.h>' | '<shmcma/core.h>') ;;
		*rdma/*) complain "$file includes $name: the core knows nothing of libfabric" ;;
		'<'*shmcma*) complain "$file includes $name: not a header of the core" ;;
		'<'*) ;;
		*)
			[ -f "src/$(echo "$name" | tr -d '"')" ] ||
				complain "$file includes $name: headers of src/ go by their room and name"
			;;
		esac
	done
done
for file in src/*/*.[ch]; do
	includes "$file" | sed -n "s|^\"\(.*\)\.h\"\$|${file%.*} \1|p" | sed 's|^src/||' | awk '$1 != $2'
done | judge includes
if ls "$build"/src/*/*.o >/dev/null 2>&1; then
	for object in "$build"/src/*/libshmcma_core_la-*.o; do
		nm "$object" | sed "s|^|$(echo "$object" | sed 's|.*/\([^/]*\)/libshmcma_core_la-\(.*\)\.o$|\1/\2|') |"
	done | awk '$(NF - 1) == "U" { wants[$1 " " $NF] }
		$(NF - 1) ~ /^[A-TV-Z]$/ { has[$NF] = $1 }
		END {
			for (pair in wants) {
				split(pair, word, " ")
				if (word[2] in has && has[word[2]] != word[1])
					print word[1], has[word[2]]
			}
		}' | judge calls
fi

for file in prov/*/*.[ch]; do
	for name in $(includes "$file"); do
		case $name in
		'<shmcma/core.h>' | '<rdma/'*) ;;
		*shmcma/*) complain "$file includes $name: of the core, shmcma/core.h alone" ;;
		'<'*) ;;
		*)
			header=$(echo "$name" | tr -d '"')
			[ -f "prov/$header" ] ||
				complain "$file includes $name: headers of prov/ go by their room and name"
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
