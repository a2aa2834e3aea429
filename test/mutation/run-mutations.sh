#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-mutations.sh [NAME...] - for each guard of the protocol, the library without it: a unit test must fail.
#
# The file `mutations` says what is changed and which tests must notice. Those tests must pass with the
# sources as they are. "Caught" is a test that fails in a check, by a signal, or by its own alarm; one that
# is still running after LIMIT seconds is not.
#
# Prints "PASS ..." or "FAIL ..." for each, and last "N mutants, N caught". Exit: 0, 1, or 77 (skipped).
#
#   CC               tried before cc
#   JOBS             mutants at a time, 3: some sleep
#   SHMCMA_NO_SKIP   if set, a missing program is a failure

set -u

LIMIT=100
here=$(cd "$(dirname "$0")" && pwd) || exit 99
top=$(cd "$here/../.." && pwd) || exit 99
cc=${CC:-cc}
jobs=${JOBS:-3}
flags="-std=c11 -D_GNU_SOURCE=1 -O0 -w -DSC_FAULT_INJECTION -I$top/include"

for program in perl timeout "${cc%% *}"; do
	if ! command -v "$program" >/dev/null; then
		echo "SKIP: no $program"
		[ -z "${SHMCMA_NO_SKIP:-}" ] && exit 77
		exit 1
	fi
done

work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# objects SOURCES OBJECTS FILE...: and what each is made of, beside it
objects()
{
	sources=$1
	to=$2
	shift 2
	for file; do
		$cc $flags -MMD -I"$sources" -c "$sources/$file" -o "$to/${file%.c}.o" || return 1
	done
}

# compile_test SOURCES DIRECTORY PROGRAM: test/unit/PROGRAM.c, and what it is made of, there
compile_test()
{
	$cc $flags -MMD -I"$1" -I"$top/test/unit" -c "$top/test/unit/$3.c" -o "$2/$3.o"
}

# link_test OBJECTS PROGRAM OBJECT: as OBJECTS/PROGRAM
link_test()
{
	$cc -o "$1/$2" "$3" "$work/filter.o" "$1"/*.o -lcmocka -lpthread -Wl,--allow-multiple-definition
}

# run_test OBJECTS PROGRAM PATTERN: output and exit status in OBJECTS
run_test()
{
	TEST_FILTER=$3 timeout -k 5 "$LIMIT" "$1/$2" >"$1/out" 2>&1
	echo $? >"$1/status"
}

# one NAME: prints its line
one()
{
	dir=$work/m.$1
	mkdir -p "$dir/o" && cp -r "$top/src" "$dir/src" && cp "$work"/o/*.o "$dir/o" || return 1
	perl "$here/mutate.pl" "$here/mutations" "$1" "$dir/src" >"$dir/what" || return 1
	read -r _ program pattern <"$dir/what"
	# all that is made of the files that are changed
	changed=$(sed -n 's/^file //p' "$dir/what" | while read -r file; do
		(cd "$work/o" && grep -lE "/$file( |\$)" ./*.d | sed 's|.*/\(.*\)\.d$|\1.c|')
	done | sort -u)
	test=$work/p/$program.o
	if sed -n 's|^file |/|p' "$dir/what" | grep -qFf - "$work/p/$program.d"; then
		test=$dir/$program.o
		compile_test "$dir/src" "$dir" "$program" || return 1
	fi
	# the list is to be split
	# shellcheck disable=SC2086
	if ! objects "$dir/src" "$dir/o" $changed || ! link_test "$dir/o" "$program" "$test"; then
		echo "FAIL $1: does not compile"
		return 1
	fi
	run_test "$dir/o" "$program" "$pattern"
	status=$(cat "$dir/o/status")
	case $status in
	0 | 77) echo "FAIL $1: $program $pattern passes" ;;
	124 | 137) echo "FAIL $1: $program $pattern is still running after $LIMIT s" ;;
	142) echo "PASS $1: $program $pattern ends by its alarm" ;;
	129 | 1[3-9]?) echo "PASS $1: $program $pattern ends by signal $((status - 128))" ;;
	*) echo "PASS $1: $program: $(sed -n 's/^\[  FAILED  \] \([a-z_0-9]*\)$/\1/p' "$dir/o/out" |
		sort -u | tr '\n' ' ')" ;;
	esac
	rm -rf "$dir"
}

# sound PROGRAM PATTERN: the unmutated sources pass, and there is such a test
sound()
{
	dir=$work/t.$1.$(echo "$2" | tr '*|' '__')
	mkdir -p "$dir"
	cp "$work/o/$1" "$dir" || return 1
	run_test "$dir" "$1" "$2"
	if [ "$(cat "$dir/status")" != 0 ] || ! grep -q '^\[  PASSED  \] [1-9]' "$dir/out" ||
		grep -q '^\[  SKIPPED \] [1-9]' "$dir/out"; then
		echo "FAIL $1 $2 does not pass without any mutation"
		tail -n 20 "$dir/out" | sed 's/^/     /'
	fi
	rm -rf "$dir"
}

# Some at a time: every job takes each jobs-th line of the list from its own on.
share()
{
	awk -v n="$jobs" -v k="$1" 'NR % n == k' "$work/$2"
}

mkdir "$work/o" "$work/p" || exit 99
perl "$here/mutate.pl" "$here/mutations" >"$work/list" || exit 99
if [ $# -gt 0 ]; then
	printf '%s\n' "$@" | awk 'NR == FNR { wanted[$1]; next } $1 in wanted' - "$work/list" >"$work/wanted"
	mv "$work/wanted" "$work/list"
fi
cut -d' ' -f1 "$work/list" >"$work/names"
if [ $# -gt 0 ] && [ $# -ne "$(grep -c . "$work/names")" ]; then
	echo "there are not all of these: $*"
	exit 1
fi
cut -d' ' -f2- "$work/list" | sort -u >"$work/tests"

$cc $flags -c "$here/filter.c" -o "$work/filter.o" || exit 1
(cd "$top/src" && echo *.c) | tr ' ' '\n' >"$work/sources"
cut -d' ' -f1 "$work/tests" | sort -u >"$work/programs"

k=0
while [ "$k" -lt "$jobs" ]; do
	# shellcheck disable=SC2046
	objects "$top/src" "$work/o" $(share "$k" sources) &
	k=$((k + 1))
done
wait
k=0
while [ "$k" -lt "$jobs" ]; do
	share "$k" programs | while read -r program; do
		compile_test "$top/src" "$work/p" "$program" &&
			link_test "$work/o" "$program" "$work/p/$program.o"
	done &
	k=$((k + 1))
done
wait
k=0
while [ "$k" -lt "$jobs" ]; do
	share "$k" tests | while read -r program pattern; do sound "$program" "$pattern"; done >"$work/sound.$k" &
	k=$((k + 1))
done
wait
cat "$work"/sound.*
if grep -q . "$work"/sound.*; then
	echo "0 mutants, 0 caught"
	exit 1
fi
rm -f "$work"/o/test_* "$work"/o/out "$work"/o/status
k=0
while [ "$k" -lt "$jobs" ]; do
	share "$k" names | while read -r name; do one "$name" || echo "FAIL $name"; done >"$work/lines.$k" &
	k=$((k + 1))
done
wait
cat "$work"/lines.*
mutants=$(grep -c . "$work/names")
caught=$(cat "$work"/lines.* | grep -c '^PASS ')
echo "$mutants mutants, $caught caught"
[ "$mutants" -gt 0 ] && [ "$mutants" -eq "$caught" ]
