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

# The seconds that each part may take on a slow machine with two processors; a part that takes longer is a warning, never
# a failure. The limits of the three tiers stand in CONTRIBUTING.md, and test/check-affected.sh adds the budgets up.
# The budgets of CI are 1.2 to 1.5 times what its parts took on a machine with two processors and little other load.
budgets='
build 55
tests 230
models 200
quickstart 65
quickstart:full 240
install 25
clang 40
asan 200
tsan 250
once 125
distribution 30
mutants 60
rounds 600
fuzz 15
nth 120
points 400
mpi 240
bench 90
debian13 120
lnx 400
musl 60
arm64 200
packages 300
coverage 240
asan-multi 300
soak 660
warnings 200
'

passed=0 failed=0 skipped=0

budget()
{
	echo "$budgets" | awk -v piece="$1" -v part="${1%%:*}" '
		$1 == piece { own = $2 }
		$1 == part { whole = $2 }
		END { print own ? own : whole }'
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

# A checkout has no configure.
sources()
{
	[ -x configure ] || quietly autogen.log ./autogen.sh
}

# configure_in BUILD OPTION...: once for each set of options
configure_in()
{
	dir=$1
	shift
	sources || return 1
	mkdir -p "$dir" || return 1
	if [ -f "$dir/config.status" ] && { [ $# = 0 ] || [ "$(cat "$dir/config.options" 2>/dev/null)" = "$*" ]; }; then
		return
	fi
	printf '+ cd %s && %s/configure -q %s\n' "$dir" "$(pwd)" "$*"
	top=$(pwd)
	# objects of other options are not made anew by themselves
	[ ! -f "$dir/config.options" ] || make -s -C "$dir" clean >"$dir/clean.log" 2>&1 || return 1
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
	no_skip=${SHMCMA_NO_SKIP:-}
	[ -z "${strict:-}" ] || [ "$dir" != "$build" ] || no_skip=1
	[ $# = 0 ] || set -- TESTS="$*" check_PROGRAMS="$(programs "$@")"
	# A job for each test: test/in-turn.sh lets only some of them run, by flock(1).
	jobs=
	command -v flock >/dev/null || jobs=1
	run env SHMCMA_NO_SKIP="$no_skip" make -s -C "$dir" -j$jobs check VERBOSE=1 REPORT=: "$@"
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
	check "$build" test/mpi/run-mpi.sh test/mpi/run-kill.sh test/mpi/run-screens.sh test/mpi/run-trouble.sh
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

# Over the libfabric in SHMCMA_LIBFABRIC, and fabtests of the one in SHMCMA_FABTESTS, too
part_lnx()
{
	build_in "$build" || return 1
	run make -s -C "$build" -j"$(nproc)" mpi-programs || return 1
	run sh test/check-lnx.sh "$build"
}

part_musl()
{
	sources || return 1
	run sh test/check-musl.sh
}

part_arm64()
{
	sources || return 1
	run sh test/check-arm64.sh
}

# On those releases of Debian, or on both
part_packages()
{
	configure_in "$build" || return 1
	run make -s -C "$build" -j"$(nproc)" mpi-programs || return 1
	for suite in ${*:-bookworm trixie}; do
		run sh test/check-packages.sh "$suite" "$build" || return
	done
}

part_coverage()
{
	for program in gcov python3; do
		command -v $program >/dev/null && continue
		echo "SKIP: no $program"
		return 77
	done
	configure_fault && build_in build-fault || return 1
	run env abs_top_builddir="$PWD/build-fault" sh test/coverage.sh
}

# ---- what a user does with it ----------------------------------------------------------------------

# may_install: this machine is CI's
may_install()
{
	[ -n "${strict:-}${CI:-}" ]
}

# It prints less than 100 lines, and a verdict as the last one; and the build in its log is without a warning. The short one,
# or the full one.
part_quickstart()
{
	missing=$(./quickstart missing)
	if [ -n "$missing" ] && ! may_install; then
		echo "SKIP: quickstart would install packages, which only CI does unasked: $missing"
		return 77
	fi
	words=short
	[ "${1:-}" != full ] || words=
	{
		# no word is no argument
		# shellcheck disable=SC2086
		run ./quickstart $words 2>&1
		echo $? >quickstart.status
	} | tee quickstart.said
	read -r status <quickstart.status
	lines=$(wc -l <quickstart.said)
	verdict=$(tail -n 1 quickstart.said)
	rm -f quickstart.status quickstart.said
	[ "$status" = 0 ] || return 1
	if [ "$lines" -ge 100 ]; then
		echo "quickstart printed $lines lines"
		return 1
	fi
	case $verdict in
	"quickstart: EVERYTHING WORKS"*) ;;
	*)
		echo "the last line of quickstart is no verdict: $verdict"
		return 1
		;;
	esac
	sed -n '/^==== build/,/^==== libfabric/p' "$build/quickstart.log" >"$build/quickstart-build.log"
	without_warnings "$build/quickstart-build.log"
}

# On CI's machine on the system itself; on any other the system stays as it is.
part_install()
{
	if [ "$(id -u)" != 0 ]; then
		echo "SKIP: an installation needs root"
		return 77
	fi
	build_in "$build" || return 1
	where=--aside
	may_install && where=--yes
	run sh test/check-install.sh $where "$build"
}

# ---- other builds ----------------------------------------------------------------------------------

part_clang()
{
	configure_in build-clang CC=clang --enable-werror MPICC= || return 1
	# the builds with sanitizers are by clang and see its warnings; here is what its optimization could break first
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
configure_fault()
{
	configure_in build-fault CC=gcc --enable-debug --enable-werror --enable-fault-injection MPICC=
}

part_points()
{
	configure_fault || return 1
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
