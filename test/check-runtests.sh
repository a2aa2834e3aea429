#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The output of ./runtests, ./quickstart and test/report.sh: a part that takes longer than its budget is a warning behind
# the table of parts, the list of skipped tests comes before it, a part that fails is named, of a list of tests the ten
# slowest are shown, and a word that means nothing is refused before anything runs. The parts here are made up: runtests
# runs in a directory of its own, with another test/parts.sh.
top=$(cd "${abs_top_srcdir:-$(dirname "$0")/..}" && pwd) || exit 1
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
status=0

complain()
{
	echo "$*"
	status=1
}

# says LINE: the output has a line that this pattern fits
says()
{
	grep -qxE -e "$1" "$work/out" || {
		complain "this line is missing: $1"
		sed 's/^/  | /' "$work/out"
	}
}

# line PATTERN: the number of the first line that has it, or 0
line()
{
	{ grep -nE -m 1 -e "$1" "$work/out" || echo 0; } | cut -d : -f 1
}

# ---- runtests ----

mkdir "$work/test" "$work/build" && cp "$top/runtests" "$work/" && cp "$top/test/parts.sh" "$work/test/" || exit 99
cat >>"$work/test/parts.sh" <<'END'
budgets='
build 10000
long 0
short 10000
skipping 10000
failing 10000
'
part_build() { :; }
part_long() { until [ "$(date +%s)" -gt "$begin" ]; do sleep 0.1; done; }
part_short() { skips="${skips}skipped: test/unit/test_x: one_case (it needs what is not here)
"; }
part_skipping() { return 77; }
part_failing() { return 1; }
END

# run STATUS PART...
run()
{
	expected=$1
	shift
	BUILD='' sh "$work/runtests" "$@" >"$work/out" 2>&1
	got=$?
	[ $got = "$expected" ] || complain "runtests $*: status $got"
}

run 0 long short skipping
says ' *[0-9]+ s  \(budget 0\)  ok       long'
says ' *[0-9]+ s  \(budget 10000\)  ok       short'
says ' *[0-9]+ s  \(budget 10000\)  skipped  skipping'
says 'skipped: test/unit/test_x: one_case \(it needs what is not here\)'
says 'warning: long took [0-9]+ s, of 0 that it may take'
[ "$(grep -c '^warning: ' "$work/out")" = 1 ] || complain "a part within its budget is a warning"
[ "$(line '^ *[0-9]+ s in all')" -lt "$(line '^skipped: ')" ] && [ "$(line '^skipped: ')" -lt "$(line '^warning: ')" ] ||
	complain "the order is not: parts, what was skipped, warnings"
[ "$(tail -n 1 "$work/out")" = "2 passed, 0 failed, 1 skipped" ] || complain "last line: $(tail -n 1 "$work/out")"

run 1 short failing
says ' *[0-9]+ s  \(budget 10000\)  FAILED   failing'
says 'failed: failing'
[ "$(tail -n 1 "$work/out")" = "1 passed, 1 failed, 0 skipped" ] || complain "last line: $(tail -n 1 "$work/out")"

run 2 short nothing
says 'runtests: there is no part nothing; ./runtests --help says more'
grep -q '^####' "$work/out" && complain "a part ran although another does not exist"

run 0 --help
says '	\./runtests \[PART\.\.\.\] \[options of configure\]'
grep -q '^####' "$work/out" && complain "runtests --help runs a part"

# ---- quickstart ----

# asks STATUS WORD LINE: quickstart answers WORD with that status, says LINE, and makes nothing
asks()
{
	(cd "$work" && rm -rf build && sh ./quickstart "$2") >"$work/out" 2>&1
	got=$?
	[ $got = "$1" ] || complain "quickstart $2: status $got"
	says "$3"
	[ ! -e "$work/build" ] || complain "quickstart $2 makes a build directory"
}

cp "$top/quickstart" "$work/" || exit 99
asks 0 --help '	\./quickstart packages    .*'
asks 2 sohrt 'quickstart: it does not know "sohrt"'

# ---- report.sh ----

mkdir -p "$work/build/test/unit" && for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	echo "$i.5 0.5 0 test/unit/test_$i"
done >"$work/build/tests.seconds"
cat >"$work/build/test/unit/test_3.log" <<'END'
[ RUN      ] test_of_root
needs root
[  SKIPPED ] test_of_root
[ RUN      ] test_of_all
[       OK ] test_of_all
END
sh "$top/test/report.sh" -s "$work/build" >"$work/out" 2>&1 || complain "report.sh: status $?"
says '12 tests: 84 s one after the other, 6 s of processor time'
says ' +12\.5 +0\.5  test/unit/test_12'
says ' +3\.5 +0\.5  test/unit/test_3'
[ "$(grep -cE '^ +[0-9.]+ +0\.5  test/' "$work/out")" = 10 ] || complain "not ten of the tests are listed"
[ "$(line 'test_12$')" -lt "$(line 'test_11$')" ] || complain "the slowest test is not the first"
[ "$(tail -n 1 "$work/out")" = "skipped: test/unit/test_3: test_of_root (needs root)" ] ||
	complain "last line: $(tail -n 1 "$work/out")"
exit $status
