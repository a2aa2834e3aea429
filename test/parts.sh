# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# shellcheck disable=SC2034,SC2154
#
# parts.sh - the parts that the three tiers of tests are made of; read in by ./runtests, which tells how they are
# named. A part is a function part_NAME, with the words behind the colon of NAME:WORDS as its arguments, and a line
# in the table of budgets. It returns 0, 1 (failed) or 77 (skipped).
#
#   build    the directory of the plain build
#   passed, failed, skipped   counts of tests, kept here
#   lost          lines that say what has failed, kept here
#   skips         lines that say what was skipped, kept here
#   strict        if set, a warning of the compiler has failed, and a test that the plain build skips

# The seconds that each part may take on a slow machine with two processors; a part that takes
# longer is a warning, never a failure. The build, the tests and a few
# models add up to 6 minutes, the parts of CI, with what test/affected adds, to 20.
budgets='
build 120
tests 200
models 120
quickstart 90
install 15
clang 45
asan 220
tsan 220
once 190
distribution 60
mutants 200
rounds 600
fuzz 40
nth 120
points 400
mpi 240
bench 90
debian13 120
musl 60
coverage 240
asan-multi 300
soak 660
warnings 200
'

passed=0 failed=0 skipped=0

budget()
{
	echo "$budgets" | awk -v part="${1%%:*}" '$1 == part { print $2 }'
}

run()
{
	printf '+ %s\n' "$*"
	"$@"
}

# quietly LOG COMMAND...: its output only if it fails
quietly()
{
	log=$1
	shift
	printf '+ %s >%s\n' "$*" "$log"
	"$@" >"$log" 2>&1 && return
	tail -n 200 "$log"
	echo "runtests: this failed: $*" >&2
	return 1
}

# configure_in BUILD OPTION...: once for each set of options
configure_in()
{
	dir=$1
	shift
	[ -x configure ] || quietly autogen.log ./autogen.sh || return 1
	mkdir -p "$dir" || return 1
	if [ -f "$dir/config.status" ] && { [ $# = 0 ] || [ "$(cat "$dir/config.options" 2>/dev/null)" = "$*" ]; }; then
		return
	fi
	printf '+ cd %s && %s/configure -q %s\n' "$dir" "$(pwd)" "$*"
	top=$(pwd)
	(cd "$dir" && "$top/configure" -q "$@") || return 1
	echo "$*" >"$dir/config.options"
}

# programs TEST...: of those, what is compiled
programs()
{
	for test; do
		case $test in
		*.sh) ;;
		*) printf '%s ' "$test" ;;
		esac
	done
}

# without_warnings LOG...: of compiler or linker, where that is asked for
without_warnings()
{
	! grep -i 'warning' "$@" || [ -z "${strict:-}" ]
}

# build_in BUILD [TEST...]: the library, and the programs of those tests, or of all
build_in()
{
	dir=$1
	shift
	[ -f "$dir/config.status" ] || configure_in "$dir" || return 1
	quietly "$dir/make.log" make -s -C "$dir" -j"$(nproc)" all || return 1
	if [ $# = 0 ]; then
		set --
	else
		set -- check_PROGRAMS="$(programs "$@")"
	fi
	quietly "$dir/check-programs.log" make -s -C "$dir" -j"$(nproc)" check TESTS= "$@" || return 1
	without_warnings "$dir/make.log" "$dir/check-programs.log"
}

# check BUILD [TEST...]: builds and runs those tests, or all of make check; counts them
check()
{
	dir=$1
	shift
	build_in "$dir" "$@" || return 1
	find "$dir/test" -name '*.trs' -delete
	rm -f "$dir/tests.seconds"
	# Which tests run beside others, test/in-turn.sh says: many keep several processors busy.
	jobs=1
	command -v flock >/dev/null && jobs=$(($(nproc) + 1))
	no_skip=${SHMCMA_NO_SKIP:-}
	[ -z "${strict:-}" ] || [ "$dir" != "$build" ] || no_skip=1
	[ $# = 0 ] || set -- TESTS="$*" check_PROGRAMS="$(programs "$@")"
	run env SHMCMA_NO_SKIP="$no_skip" make -s -C "$dir" -j"$jobs" check VERBOSE=1 REPORT=: "$@"
	status=$?
	results=$(find "$dir/test" -name '*.trs' -exec grep -h '^:test-result:' {} +)
	bad=$(echo "$results" | grep -cE ' (FAIL|XPASS|ERROR)')
	good=$(echo "$results" | grep -cE ' (PASS|XFAIL)')
	passed=$((passed + good))
	failed=$((failed + bad))
	skipped=$((skipped + $(echo "$results" | grep -c ' SKIP')))
	counted=1 # runtests asks
	lost="$lost$(find "$dir/test" -name '*.trs' -exec grep -lE '^:test-result: (FAIL|XPASS|ERROR)' {} + |
		sed "s|\.trs\$||; s|^$dir/|failed: |; s|\$| ($dir)|")
"
	sh test/report.sh -s "$dir" >"$dir/tests.report"
	grep -v '^skipped: ' "$dir/tests.report"
	skips="$skips$(grep '^skipped: ' "$dir/tests.report" | sed "s|\$| ($dir)|")
"
	# nothing has run, or make has failed in something that is no test
	if [ "$((good + bad))" = 0 ] || { [ $status != 0 ] && [ "$bad" = 0 ]; }; then
		failed=$((failed + 1))
		return 1
	fi
	return $status
}

# names FILE...: the programs made of those
names()
{
	printf '%s\n' "$@" | sed -n 's/\.c$//p' | tr '\n' ' '
}

# ---- the quick tests -------------------------------------------------------------------------------

part_build()
{
	configure_in "$build" "$@" || return 1
	# Without an MPI compiler make check does not even know of the MPI tests.
	if [ -n "${SHMCMA_NO_SKIP:-}${strict:-}" ] && ! grep -qx 'sc_cv_mpicc=yes' "$build/config.log"; then
		echo "runtests: no MPI compiler, but nothing may be skipped; ./quickstart installs what is needed" >&2
		return 1
	fi
	# shellcheck disable=SC2086
	build_in "$build" ${TESTS:-}
}

part_tests()
{
	# shellcheck disable=SC2086
	check "$build" ${TESTS:-}
}

# ---- more of the plain build -----------------------------------------------------------------------

part_models()
{
	SHMCMA_MODELS=$* check "$build" test/model/run-models.sh
}

part_mutants()
{
	check "$build" test/mutation/run-mutations.sh
}

# All changes of each input
part_fuzz()
{
	# shellcheck disable=SC2046
	part_rounds $(names test/fuzz/fuzz_*.c)
}

part_nth()
{
	check "$build" test/fault/test_nth
}

part_mpi()
{
	check "$build" test/mpi/run-mpi.sh test/mpi/run-kill.sh
}

part_bench()
{
	check "$build" test/bench/run-quick.sh
}

# All rounds and all sizes, of those tests, or of all
part_rounds()
{
	SHMCMA_TEST_FULL=1
	export SHMCMA_TEST_FULL
	check "$build" "$@"
	status=$?
	unset SHMCMA_TEST_FULL
	return $status
}

part_soak()
{
	build_in "$build" test/multi/test_kill || return 1
	run make -s -C "$build" soak SECONDS="${1:-600}"
}

part_debian13()
{
	build_in "$build" || return 1
	run make -s -C "$build" -j"$(nproc)" mpi-programs || return 1
	run sh test/check-libfabric2.sh "$build"
}

part_musl()
{
	run sh test/check-musl.sh
}

part_coverage()
{
	for program in gcov python3; do
		command -v $program >/dev/null && continue
		echo "SKIP: no $program"
		return 77
	done
	run sh test/coverage.sh
}

# ---- what CI does with it --------------------------------------------------------------------------

part_quickstart()
{
	{
		run ./quickstart short 2>&1
		echo $? >quickstart.status
	} | tee quickstart.log
	read -r status <quickstart.status
	rm -f quickstart.status
	[ "$status" = 0 ] && without_warnings quickstart.log
}

part_install()
{
	if [ "$(id -u)" != 0 ] || [ -z "${strict:-}${CI:-}" ]; then
		echo "SKIP: this installs on the system for a while: as root, and only if CI is set"
		return 77
	fi
	build_in "$build" || return 1
	run sh test/check-install.sh --yes "$build"
}

# ---- other builds ----------------------------------------------------------------------------------

part_clang()
{
	configure_in build-clang CC=clang --enable-werror MPICC= || return 1
	# all of them run as clang compiles them with the sanitizers; here what its optimization could break first
	check build-clang test/unit/test_ring test/unit/test_tx test/unit/test_rx test/unit/test_hold test/fuzz/fuzz_record
}

# What the sanitizers see is worth more with assertions on; configure optimizes the library a little.
sanitized()
{
	dir=$1
	shift
	UBSAN_OPTIONS=print_stacktrace=1
	export UBSAN_OPTIONS
	configure_in "$dir" CC=clang CFLAGS=-gline-tables-only --enable-debug --enable-werror "$@"
}

# With injection points, so that the unit tests reach them.
asan()
{
	sanitized build-asan --enable-sanitizer=address,undefined --enable-fault-injection
}

part_asan()
{
	asan || return 1
	# shellcheck disable=SC2046
	check build-asan $(names test/unit/test_*.c test/fabric/test_*.c test/fuzz/fuzz_*.c)
}

part_asan_multi()
{
	asan || return 1
	# shellcheck disable=SC2046
	check build-asan $(names test/multi/test_*.c) test/fault/test_nth
}

# Where there is a second thread: of the test's own, or the core's, which peers that come, end or sleep concern.
part_tsan()
{
	sanitized build-tsan --enable-sanitizer=thread || return 1
	# shellcheck disable=SC2046
	check build-tsan $(names $(grep -lE 'pthread_create|thread\.h|daemon' test/unit/test_*.c) test/fabric/test_*.c) \
		$(for name in alive collective death depart errors fork idle kill names random reopen scribble wait; do
			echo test/multi/test_$name
		done)
}

part_once()
{
	FAULT_POINTS=once
	export FAULT_POINTS
	part_points
	status=$?
	unset FAULT_POINTS
	return $status
}

# All points by each action, in each schedule
part_points()
{
	configure_in build-fault CC=gcc --enable-debug --enable-werror --enable-fault-injection MPICC= || return 1
	check build-fault test/fault/test_points
}

# gcc sees some faults of test programs only where it optimizes.
part_warnings()
{
	configure_in build-warnings CC=gcc CFLAGS="-O2 -g" --enable-werror || return 1
	build_in build-warnings
}

# Of the tests one: all are compiled elsewhere, and test/check-lists.sh sees that what they need is distributed.
part_distribution()
{
	run make -s -C "$build" -j"$(nproc)" distcheck TESTS=test/unit/test_ep check_PROGRAMS=test/unit/test_ep \
		DISTCHECK_CONFIGURE_FLAGS="CC=gcc CFLAGS=-O0 --enable-werror"
}
