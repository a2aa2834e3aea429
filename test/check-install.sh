#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-install.sh [--yes | --aside] [BUILD] - what configure and `make install` promise, on this very system. BUILD,
# by default ./build, has been made before.
#
# 0. configure says where the provider goes, and what makes libfabric look there. It goes on without cmocka.
# 1. Into a prefix of its own: nothing is written outside of it, and the line that make prints makes libfabric find shmcma.
# 2. Into the directory of the system's libfabric: with no environment variable set libfabric finds shmcma and sends
#    messages through it, and no provider is stacked on it.
#
# After `make uninstall` the tree of files and directories is the one before.
#
# No part of make check, for it changes the system for a while: it runs as root only, and only with --yes or
# in a machine of continuous integration, which sets CI. With --aside it sees /etc, /opt and /usr in a mount namespace in
# which a file system in memory takes what is written there, and the system stays as it is.
#
# Exit: 0; 1 failed; 77 such mounts are not permitted (1 if SHMCMA_NO_SKIP is set).
set -u
cd "$(dirname "$0")/.." || exit 1

fail()
{
	echo "check-install: $*" >&2
	exit 1
}

run()
{
	printf '+ %s\n' "$*"
	"$@"
}

# aside ARGUMENT...: this script again, with those arguments, in the mount namespace
aside()
{
	above=$(mktemp -d) || exit 1
	unshare --mount --propagation private sh -c '
		above=$1
		shift
		mount -t tmpfs shmcma-test "$above" || exit 77
		for dir in etc opt usr; do
			mkdir "$above/$dir" "$above/$dir.work" &&
				mount -t overlay -o "lowerdir=/$dir,upperdir=$above/$dir,workdir=$above/$dir.work" overlay "/$dir" ||
				exit 77
		done
		touch /usr/shmcma-test || exit 77
		rm /usr/shmcma-test
		exec sh test/check-install.sh --yes "$@"' aside "$above" "$@"
	status=$?
	rmdir "$above"
	[ $status = 77 ] || exit $status
	[ -z "${SHMCMA_NO_SKIP:-}" ] || fail "mounts are not permitted, but SHMCMA_NO_SKIP is set"
	echo "SKIP: mounts are not permitted"
	exit 77
}

if [ "${1:-}" = --aside ]; then
	shift
	[ "$(id -u)" = 0 ] || fail "this installs: run it as root"
	aside "$@"
fi
agreed=${CI:-}
if [ "${1:-}" = --yes ]; then
	agreed=yes
	shift
fi
build=${1:-build}
[ "$(id -u)" = 0 ] || fail "this installs on the system: run it as root"
[ -n "$agreed" ] || fail "this installs on the system and takes it away again; say --yes if that is meant, or --aside"
[ -f "$build/Makefile" ] || fail "no build in $build"

# No variable of libfabric or of the linker may help.
for name in $(env | sed -n 's/^\(FI_[A-Za-z0-9_]*\)=.*/\1/p'); do
	unset "$name"
done
unset LD_LIBRARY_PATH LD_PRELOAD

# value NAME: of a variable of the Makefile
value()
{
	printf 'include Makefile\nvalue-of:\n\t@echo "$(%s)"\n' "$1" | make -s -C "$build" -f - value-of
}

system=$(value system_providerdir)
[ -n "$system" ] || fail "$build/Makefile does not tell the directory of the system's providers"
[ ! -e "$system/libshmcma-fi.so" ] || fail "shmcma is installed already; first: make uninstall"

work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-install.XXXXXX") || exit 1
installed=''
into=''
. test/pingpong.sh

cleanup()
{
	[ -z "$server" ] || kill "$server" 2>/dev/null
	# shellcheck disable=SC2086
	[ -z "$installed" ] || make -s -C "$build" uninstall $installed
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# All that an installation could touch. Programs that run beside this one write elsewhere.
files()
{
	find /etc /opt /usr "$work/own" -path '*/__pycache__' -prune -o -print 2>/dev/null | sort
}

# configure_with OPTION...: as on a system without cmocka
configure_with()
{
	run "$top/configure" -q -n --cache-file=cache --prefix="$work/own" MPICC= PKG_CONFIG_LIBDIR="$work/pkgconfig" \
		"$@" >"$work/said" 2>&1
	status=$?
	cat "$work/said"
	return $status
}

# shown NAME WORDS: the summary of configure has that line
shown()
{
	sed -n 's/^ *\([a-zA-Z ]*[a-zA-Z]\)   *\([^ ].*\)$/\1: \2/p' "$work/said" | grep -qxF "$1: $2" ||
		fail "the summary of configure does not say: $1 $2"
}

check_configure()
{
	top=$(pwd)
	mkdir "$work/configured" "$work/pkgconfig" || exit 1
	cp "$(pkg-config --variable=pcfiledir libfabric)/libfabric.pc" "$work/pkgconfig/" || exit 1
	cd "$work/configured" || exit 1
	configure_with || fail "configure failed"
	shown "provider goes to" "$work/own/lib/libfabric"
	shown "to use it there" "export FI_PROVIDER_PATH=$work/own/lib/libfabric"
	shown "tests" "no: cmocka is missing (Debian: libcmocka-dev)"
	configure_with --disable-tests --with-provider-dir=system || fail "configure failed"
	shown "provider goes to" "$system"
	shown "to use it there" "not needed"
	shown "tests" "no"
	! configure_with --enable-tests || fail "configure --enable-tests goes on without cmocka"
	grep -q 'cmocka is missing' "$work/said" || fail "configure --enable-tests does not say that cmocka is missing"
	cd "$top" || exit 1
}

# check_info: libfabric finds shmcma, and nothing stands on top of it
check_info()
{
	run fi_info -p shmcma >"$work/info" || fail "fi_info -p shmcma: libfabric does not find it"
	grep -qx 'provider: shmcma' "$work/info" || fail "fi_info -p shmcma shows another provider"
	run fi_info >"$work/all" || fail "fi_info failed"
	grep -qx 'provider: shmcma' "$work/all" || fail "fi_info without arguments does not show shmcma"
	! grep 'shmcma;' "$work/all" || fail "fi_info shows another provider on top of shmcma"
}

# install_with ASSIGNMENT...: as if configure had been told so
install_with()
{
	installed="$*"
	run make -s -C "$build" install "$@" >"$work/said" || fail "make install failed"
	cat "$work/said"
	! grep LD_LIBRARY_PATH "$work/said" || fail "make install speaks of LD_LIBRARY_PATH"
	grep -q 'fi_info -p shmcma' "$work/said" || fail "make install does not say how to check it"
}

uninstall_with()
{
	run make -s -C "$build" uninstall "$@" || fail "make uninstall failed"
	installed=''
	files >"$work/after"
	diff "$work/before" "$work/after" || fail "the files after uninstall are not those before install"
}

# A tree that has been configured in place cannot be configured for another build.
[ -f config.status ] || check_configure

# Empty directories that are there before stay as well.
mkdir -p "$work/own/bin" "$work/own/share/man/man1" || exit 1
files >"$work/before"

# whatever this build was configured with
# shellcheck disable=SC2016
below='providerdir=$(libdir)/libfabric'
install_with "prefix=$work/own" "$below"
files | grep -v "^$work/own" >"$work/outside"
grep -v "^$work/own" "$work/before" | diff - "$work/outside" || fail "make install wrote outside of the prefix"
line=$(sed -n 's/^To use it: \(export FI_PROVIDER_PATH=.*\)/\1/p' "$work/said")
[ -n "$line" ] || fail "make install does not say how libfabric finds the provider"
(eval "$line" && check_info) || exit 1
for command in "shmcma ps" "shmcma reap -l" "shmcma-reap -l" "shmcma-tune"; do
	run "$work/own/bin/"$command >"$work/said" 2>&1
	[ $? -lt 2 ] || fail "$command fails"
done
(eval "$line" && run "$work/own/bin/shmcma" doctor) | grep -q "finds shmcma .* in $work/own" || fail "shmcma doctor does not find it"
dropin=$(find "$work/own" -name libshm-fi.so)
[ -f "$dropin" ] && [ "$(dirname "$dropin")" != "$(dirname "$(find "$work/own" -name libshmcma-fi.so)")" ] ||
	fail "libshm-fi.so is to be in a directory of its own"
FI_PROVIDER_PATH=$(dirname "$dropin") run fi_info -p shm >"$work/said" || fail "libfabric does not take $dropin"
! grep FI_PROTO_SHM "$work/said" || fail "libfabric prefers its own shm to $dropin"
provider=$(find "$work/own" -name libshmcma-fi.so)
! readelf -S "$provider" | grep -q '\.debug_info' || fail "$provider has what a debugger reads"
uninstall_with "prefix=$work/own" "$below"

install_with "providerdir=$system"
[ -f "$system/libshmcma-fi.so" ] || fail "no $system/libshmcma-fi.so"
check_info
cat "$work/info"
run fi_info -p shm | grep -q FI_PROTO_SHM || fail "an installation takes the place of libfabric's shm unasked"
first=$((20000 + $$ % 20000))
pingpong $first
pingpong $((first + 100)) -m tagged
uninstall_with "providerdir=$system"
echo "installed, found, used, and gone without a trace"
