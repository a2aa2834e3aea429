#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-install.sh [--yes] [BUILD] - what `make install` promises, on this very system: with no environment
# variable set the system's libfabric finds shmcma and sends messages through it, nothing is stacked on it,
# and after `make uninstall` every file is gone. BUILD, by default ./build, has been made before.
#
# No part of make check, for it changes the system for a while: it runs as root only, and only with --yes or
# in a machine of continuous integration, which sets CI.
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

agreed=${CI:-}
if [ "${1:-}" = --yes ]; then
	agreed=yes
	shift
fi
build=${1:-build}
[ "$(id -u)" = 0 ] || fail "this installs on the system: run it as root"
[ -n "$agreed" ] || fail "this installs on the system and takes it away again; say --yes if that is meant"
[ -f "$build/Makefile" ] || fail "no build in $build"

# No variable of libfabric or of the linker may help.
for name in $(env | sed -n 's/^\(FI_[A-Za-z0-9_]*\)=.*/\1/p'); do
	unset "$name"
done
unset LD_LIBRARY_PATH LD_PRELOAD

provider_dir=$(sed -n 's/^providerdir = //p' "$build/Makefile")
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
[ -n "$provider_dir" ] || fail "$build/Makefile does not tell the directory of the provider"
[ -n "$prefix" ] || fail "$build/Makefile does not tell the prefix"
[ ! -e "$provider_dir/libshmcma-fi.so" ] || fail "shmcma is installed already; first: make uninstall"
case $prefix in
/usr) manual=/usr/share/man ;; # much of the rest of /usr is not ours
*) manual=$prefix ;;
esac

work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-install.XXXXXX") || exit 1
installed=''
into=''
. test/pingpong.sh

cleanup()
{
	[ -z "$server" ] || kill "$server" 2>/dev/null
	[ -z "$installed" ] || make -s -C "$build" uninstall
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

files()
{
	find "$provider_dir" "$manual" 2>/dev/null | sort
}

files >"$work/before"
installed=yes
run make -s -C "$build" install || fail "make install failed"
[ -f "$provider_dir/libshmcma-fi.so" ] || fail "no $provider_dir/libshmcma-fi.so"

run fi_info -p shmcma >"$work/info" || fail "fi_info -p shmcma: libfabric does not find it"
cat "$work/info"
grep -qx 'provider: shmcma' "$work/info" || fail "fi_info -p shmcma shows another provider"
run fi_info >"$work/all" || fail "fi_info failed"
grep -qx 'provider: shmcma' "$work/all" || fail "fi_info without arguments does not show shmcma"
! grep 'shmcma;' "$work/all" || fail "fi_info shows another provider on top of shmcma"

first=$((20000 + $$ % 20000))
pingpong $first
pingpong $((first + 100)) -m tagged

run make -s -C "$build" uninstall || fail "make uninstall failed"
installed=
files >"$work/after"
diff "$work/before" "$work/after" || fail "the files after uninstall are not those before install"
echo "installed, found, used, and gone without a trace"
