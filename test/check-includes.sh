#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Which file may include or call which:
#  - a file of src/ or prov/ what is in its own room and in lower ones; and no two modules need each other;
#  - a file of src/ no libfabric;
#  - a file of prov/ shmcma/core.h, libfabric and prov/, nothing of src/ and not shmcma/abi.h;
#  - a command of util/ shmcma/core.h, and what lies beside it; util/libfabric.c and util/pair.c alone libfabric;
#  - a test of the public interface (test/fabric, test/multi) nothing of the core at all.
#
# A module is <name>.c and <name>.h. Calls are seen where make has left the objects: a symbol that one object needs and
# another one defines.
build=$(pwd)
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

# The rooms, of each tree the lowest first; docs/ARCHITECTURE.md says what each owns.
rooms='
src/base
src/os
src/shm
src/proc
src/link
src/msg
src/rma
src/ep
prov/base
prov/wait
prov/obj
prov/op
prov/coll
prov/ep
prov/fabric
'

status=0

complain()
{
	echo "$*"
	status=1
}

# includes FILE...: lines "FILE name", of what they include, quotes and brackets kept
includes()
{
	awk '/^[ \t]*#[ \t]*include[ \t]*[<"]/ && match($0, /[<"][^>"]*[>"]/) { print FILENAME, substr($0, RSTART, RLENGTH) }' "$@"
}

# plain NAME: the name without quotes, in $header
plain()
{
	header=${1#\"}
	header=${header%\"}
}

# judge HOW: the lines of $needs, "tree/room/module tree/room/module", of which the first needs the second. Not behind a
# pipe: it sets the status.
judge()
{
	upward=$(awk -v rooms="$rooms" -v how="$1" 'BEGIN { for (n = split(rooms, room, " "); n; n--) floor[room[n]] = n }
		{
			from = to = $0
			sub("/[^/]* .*", "", from)
			sub(".* ", "", to)
			sub("/[^/]*$", "", to)
			if (!(from in floor) || !(to in floor))
				print $1 " " how " " $2 ": that is in no room"
			else if (floor[to] > floor[from])
				print $1 " " how " " $2 ", which is in a higher room"
		}' "$needs")
	[ -z "$upward" ] || complain "$upward"
	loop=$(tsort "$needs" 2>&1 >/dev/null | tr '\n' ' ')
	[ -z "$loop" ] || complain "modules that need each other (one $1 the other): $loop"
}

# symbols TREE: lines "module nm's line" of its objects
symbols()
{
	(cd "$build" && find "$1" \( -name '*_a-*.o' -o -name '*_so-*.o' \) -exec nm -A {} +) |
		sed 's|^\([^:]*\):|\1 |; s|/[^/]*_\(a\|so\)-\([^/]*\)\.o |/\2 |'
}

needs=$(mktemp) || exit 99
included=$(mktemp) || exit 99
trap 'rm -f "$needs" "$included"' EXIT
trap 'exit 1' HUP INT TERM

for tree in src prov; do
	includes "$tree"/*/*.[ch] >"$included"
	while read -r file name; do
		case $tree:$name in
		src:'<shmcma/abi.h>' | *:'<shmcma/core.h>' | prov:'<rdma/'*) ;;
		src:*rdma/*) complain "$file includes $name: the core knows nothing of libfabric" ;;
		prov:*shmcma/*) complain "$file includes $name: of the core, shmcma/core.h alone" ;;
		src:'<'*shmcma*) complain "$file includes $name: not a header of the core" ;;
		*:'<'*) ;;
		*)
			plain "$name"
			[ -f "$tree/$header" ] ||
				complain "$file includes $name: headers of $tree/ go by their room and name"
			;;
		esac
	done <"$included"
	sed -n "s|^\(.*\)\.[ch] \"\(.*\)\.h\"\$|\1 $tree/\2|p" "$included" | awk '$1 != $2' | sort -u >"$needs"
	judge includes
	symbols "$tree" | awk '$(NF - 1) == "U" { wants[$1 " " $NF] }
		$(NF - 1) ~ /^[A-TV-Z]$/ { has[$NF] = $1 }
		END {
			for (pair in wants) {
				split(pair, word, " ")
				if (word[2] in has && has[word[2]] != word[1])
					print word[1], has[word[2]]
			}
		}' | sort -u >"$needs"
	judge calls
done

includes util/*.[ch] >"$included"
while read -r file name; do
	case $name in
	'<shmcma/core.h>') ;;
	'<rdma/'*)
		case $file in
		util/libfabric.c | util/pair.c) ;;
		*) complain "$file includes $name: util/libfabric.c and util/pair.c alone" ;;
		esac
		;;
	*shmcma/*) complain "$file includes $name: of the core, shmcma/core.h alone" ;;
	'"'*)
		plain "$name"
		[ -f "util/$header" ] || complain "$file includes $name: not found beside it"
		;;
	esac
done <"$included"

includes test/fabric/*.[ch] test/multi/*.[ch] >"$included"
while read -r file name; do
	case $name in
	*shmcma/abi.h* | *shmcma/core.h*)
		complain "$file includes $name: it tests the public interface" ;;
	'<'*) ;;
	*)
		plain "$name"
		[ -f "${file%/*}/$header" ] || complain "$file includes $name: not found beside it"
		;;
	esac
done <"$included"

exit $status
