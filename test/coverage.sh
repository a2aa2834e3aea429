#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# coverage.sh [-v] [FILE...] - branch coverage of the files that decide about life, death and validity, by
# their unit tests, with gcov. FILE: of src/; by default all of them, as coverage.md lists them.
#
# Builds the core with --coverage, fault injection on and assertions off, in a directory of its own, runs the
# unit tests, and has coverage.py compare the branches that were not taken with those that coverage.md explains;
# it prints those that are not, and with -v all. Fails if there are some, or a test fails.
#
#   abs_top_builddir a build with fault injection: some tests run its commands; the core gets the macros of its configure
#   CC, GCOV         gcc and its gcov
#   COVERAGE_DIR     where to build, kept; else a temporary directory
#   COVERAGE_TESTS   unit tests to run, by name, instead of all
set -u
cd "$(dirname "$0")/.." || exit 1

# Files of other processes would be found by the tests: they get a /dev/shm of their own, where that is permitted.
if [ -z "${COVERAGE_ALONE:-}" ] && unshare -m mount -t tmpfs shmcma-test /dev/shm 2>/dev/null; then
	# shellcheck disable=SC2016
	COVERAGE_ALONE=1 exec unshare -m sh -c 'mount -t tmpfs -o mode=1777 shmcma-test /dev/shm && exec sh "$0" "$@"' \
		"test/$(basename "$0")" "$@"
fi

verbose=
if [ "${1:-}" = -v ]; then
	verbose=1
	shift
fi
cc=${CC:-gcc}
dir=${COVERAGE_DIR:-}
if [ -z "$dir" ]; then
	dir=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-coverage.XXXXXX") || exit 1
	trap 'rm -rf "$dir"' EXIT
fi
mkdir -p "$dir/o" "$dir/t"
build=${abs_top_builddir:-$PWD}
if [ ! -x "$build/util/shmcma" ]; then
	echo "coverage: no util/shmcma in $build: build it, and name the build in abs_top_builddir" >&2
	exit 1
fi
defines=$(sed -n 's/^SC_DEFINES = //p' "$build/Makefile") || exit 1
case $defines in
*-DSC_FAULT_INJECTION*) ;;
*)
	echo "coverage: tests make the commands of $build fail: configure it with --enable-fault-injection" >&2
	exit 1
	;;
esac
files=${*:-owner.c reap.c host.c shmfile.c otherfile.c lifelock.c daemon.c bell.c watch.c pipe.c leftover.c pidfd.c
	peer.c peertable.c connect.c accept.c review.c departed.c seg.c attach.c create.c guard.c memory.c
	service.c addr.c header.c ring.c ring.h record.c regtab.c reg.c share.c rx.c probe.c
	assist.c delegate.c delegated.c target.c taker.c directory.c hold.c hold.h wake.c wake.h sleep.c}
sources=
for file in $files; do
	sources="$sources $(ls src/*/"$file")" || exit 1
done

# -O0: a branch of the source is one of the program.
flags="-std=gnu11 -O0 -g -DNDEBUG $defines -Iinclude -fPIC -pthread"

for source in src/*/*.c; do
	name=$(basename "$source" .c)
	counted=--coverage
	[ "$name" = fill ] && counted=-O2 # counts among streamed stores make them so slow that no calibration believes it
	# shellcheck disable=SC2086
	$cc $flags $counted -Isrc -c "$source" -o "$dir/o/$name.o" || exit 1
done
rm -f "$dir/libcore.a"
ar rcs "$dir/libcore.a" "$dir"/o/*.o || exit 1 # a test may have some of its own in place of ours
find "$dir/o" -name '*.gcda' -delete

# A process that ends by _exit(2), or kills itself, has its counts written before.
cat >"$dir/t/dump.c" <<'END' || exit 1
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>
void __gcov_dump(void);
void __gcov_reset(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status);
int __real_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal);
int __real_raise(int signal);
int __wrap_raise(int signal);
static void dump(void)
{
	__gcov_dump();
	__gcov_reset(); /* it may go on, and be written again */
}
void __wrap__exit(int status)
{
	dump();
	__real__exit(status);
}
int __wrap_kill(pid_t pid, int signal)
{
	if (signal && pid == getpid())
		dump();
	return __real_kill(pid, signal);
}
int __wrap_raise(int signal)
{
	dump();
	return __real_raise(signal);
}
END
# shellcheck disable=SC2086
$cc $flags -c "$dir/t/dump.c" -o "$dir/t/dump.o" || exit 1

status=0
seconds=600 # that a test may take
tests=${COVERAGE_TESTS:-$(cd test/unit && ls test_*.c | sed 's/\.c$//')}
for test in $tests; do
	# shellcheck disable=SC2086
	$cc $flags -Isrc -Itest/unit -o "$dir/t/$test" "test/unit/$test.c" test/pattern.c "$dir/t/dump.o" "$dir/libcore.a" \
		--coverage -Wl,--wrap=_exit,--wrap=kill,--wrap=raise -lcmocka -lpthread || exit 1
	abs_top_builddir=$build FI_PROVIDER_PATH=$build/lib FI_PROVIDER=shmcma FI_SHMCMA_CALIBRATE=0 \
		timeout "$seconds" "$dir/t/$test" >"$dir/t/$test.log" 2>&1
	ended=$?
	case $ended in
	0 | 77) continue ;;
	124) reason="it had not ended after $seconds s, in: $(grep ' RUN ' "$dir/t/$test.log" | tail -n 1)" ;;
	*) reason=$(grep '^\[  FAILED  \]' "$dir/t/$test.log" | tail -n 1) ;;
	esac
	echo "coverage: $test ended with status $ended: ${reason:-$(tail -n 1 "$dir/t/$test.log")}"
	status=1
done

# shellcheck disable=SC2086
python3 test/coverage.py ${verbose:+-v} "$dir/o" $sources || status=1
exit $status
