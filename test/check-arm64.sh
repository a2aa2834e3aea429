#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-arm64.sh [-d DIR] - the sources on arm64: core, provider and command are compiled by the cross compiler of Debian
# without a warning. The command and those unit tests that make no processes run under qemu, which emulates the processor
# and hands system calls to the kernel. Libraries and headers are those of a root of Debian for arm64 (test/chroot.sh).
#
# The emulated processor reorders no more than the real one does: these tests find code that does not compile, and wrong
# sizes and alignment, not missing fences.
#
# The root is in a temporary directory; with -d in DIR, where it stays for the next time.
#
# Exit: 0; 1 failed; 77 a program is missing or the root cannot be made (1 if SHMCMA_NO_SKIP is set).
set -u
cd "$(dirname "$0")/.." || exit 1
. test/chroot.sh
top=$PWD
suite=bookworm
packages=libc6-dev,linux-libc-dev,libgcc-12-dev,libfabric-dev,libcmocka-dev

# one_process: the unit tests that make no other. qemu emulates no process_vm_readv(2), and one of its assertions fails
# in a child of a process that has threads: TEST_ONE_PROCESS skips single cases. One test of test_regtab.c faults there,
# and the cause is not known.
one_process()
{
	grep -LE '\<fork\(|child_start|child\.h|core_pair\.h|in_child' test/unit/test_*.c | sed '/test_regtab/d; s/\.c$//'
}

inside()
{
	trap 'exit 1' HUP INT TERM # the first process of a namespace ignores what it does not ask for
	make_chroot "$root" $suite $packages --variant=extract --architectures=arm64
	mount -t tmpfs tmpfs /dev/shm || skip "mounts are not permitted"
	clean_environment
	tests=$(one_process)
	[ -n "$tests" ] || fail "there are no tests"
	mkdir "$work/build" && cd "$work/build" || exit 1
	export PKG_CONFIG_LIBDIR="$root/usr/lib/aarch64-linux-gnu/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
	"$top/configure" -q --host=aarch64-linux-gnu --enable-werror --enable-tests MPICC= CFLAGS=-O1 \
		CC="aarch64-linux-gnu-gcc --sysroot=$root" >configure.log 2>&1 || { cat configure.log; fail "configure"; }
	# shellcheck disable=SC2086
	make -s -j"$(nproc)" libshmcma-core.a lib/libshmcma-fi.so util/shmcma $tests >make.log 2>&1 || {
		cat make.log
		fail "make"
	}
	# Of the root qemu has to see the libraries and nothing else: it would find another /dev/shm in there.
	mkdir -p "$work/libraries/usr" && ln -s "$root/lib" "$work/libraries/lib" && ln -s "$root/usr/lib" "$work/libraries/usr/lib"
	qemu="qemu-aarch64 -L $work/libraries"
	run $qemu util/shmcma --version || fail "shmcma does not run"
	passed=0
	failed=
	for test in $tests; do
		if TEST_ONE_PROCESS=1 run timeout 600 $qemu "$test" >test.log 2>&1; then
			passed=$((passed + 1))
		else
			cat test.log
			failed="$failed $test"
		fi
	done
	[ -z "$failed" ] || fail "these failed:$failed"
	echo "arm64: core, provider and command compile, $passed unit tests pass under qemu"
}

if [ "${1:-}" = --inside ]; then
	root=$2
	work=$3
	inside
	exit
fi
parse_arguments "$@"
needs_root
for program in aarch64-linux-gnu-gcc qemu-aarch64; do
	command -v $program >/dev/null || skip "no $program; on Debian: apt-get install gcc-aarch64-linux-gnu qemu-user"
done
work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-arm64.XXXXXX") || exit 1
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' HUP INT TERM
in_namespaces --inside "${root:-$work/root}" "$work"
