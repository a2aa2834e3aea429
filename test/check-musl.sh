#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-musl.sh [DIR] - the sources under musl, another C library than glibc: core, provider and unit tests
# compile without a warning, and the programs of the core, which need no library that is built for glibc,
# are linked and run. The build is in DIR, by default a temporary directory.
#
# The headers of the kernel, libfabric and cmocka come from the system; nothing of glibc's is looked at.
#
# Exit: 0; 1 failed; 77 there is no musl-gcc (Debian's musl-tools; 1 if SHMCMA_NO_SKIP is set).
set -u
cd "$(dirname "$0")/.." || exit 1
top=$PWD

if ! command -v musl-gcc >/dev/null; then
	echo "SKIP: no musl-gcc; on Debian: apt-get install musl-tools"
	[ -z "${SHMCMA_NO_SKIP:-}" ] || exit 1
	exit 77
fi

fail()
{
	echo "check-musl: $*" >&2
	exit 1
}

temporary=
dir=${1:-}
if [ -z "$dir" ]; then
	temporary=$(mktemp -d) || exit 1
	dir=$temporary
	trap 'rm -rf "$temporary"' EXIT
fi
mkdir -p "$dir/include" "$dir/build" || exit 1
dir=$(cd "$dir" && pwd)

# The system's headers that are no C library's, by themselves.
arch=$(gcc -print-multiarch)
for header in /usr/include/linux /usr/include/asm-generic "/usr/include/$arch/asm" /usr/include/cmocka*.h \
	"$(pkg-config --variable=includedir libfabric)/rdma"; do
	[ -e "$header" ] && ln -sfn "$header" "$dir/include/"
done

cd "$dir/build" || exit 1
"$top/configure" -q --enable-werror CC=musl-gcc MPICC= CPPFLAGS="-idirafter $dir/include" \
	--with-provider-dir="$dir/lib" >configure.log 2>&1 || { cat configure.log; fail "configure"; }
if grep -q 'DSC_HAVE_SINGLE_THREADED' Makefile; then
	fail "a header of glibc's has been found"
fi

programs="util/shmcma util/shmcma-reap util/shmcma-tune"
objects=
for source in "$top"/test/unit/test_*.c; do
	objects="$objects test/unit/$(basename "$source" .c).o"
done
for source in "$top"/prov/*/*.c; do
	case $source in
	*/base/shmcma.c) library=lib_libshmcma_fi_so ;;
	*/base/shm.c) library=dropin_libshm_fi_so ;;
	*) library=libshmcma_prov_a ;;
	esac
	objects="$objects prov/$(basename "$(dirname "$source")")/$library-$(basename "$source" .c).o"
done
make -s -j"$(nproc)" libshmcma-core.a $objects $programs >make.log 2>&1 || { cat make.log; fail "make"; }
for program in $programs; do
	"$program" --help >run.log 2>&1 || { cat run.log; fail "$program"; }
	ldd "$program" 2>/dev/null | grep -q 'libc.so.6' && fail "$program is linked with glibc"
done
echo "musl: core, provider and $(echo "$objects" | wc -w) objects compile; $programs run"
