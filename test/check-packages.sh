#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-packages.sh [-d DIR] SUITE BUILD - the packages of the distribution of BUILD (make dist, make mpi-programs), in two
# roots with Debian's SUITE, which test/chroot.sh makes:
#
#  - build: dpkg-buildpackage, lintian without errors and warnings, autopkgtest; rpmbuild makes an RPM of the same files.
#  - user, which has libfabric and Open MPI and no compiler: apt-get installs the package; fi_info, fi_pingpong,
#    shmcma doctor and plain mpirun with the installed parameter file work; after apt-get purge all files are those before.
#
# The environment module of an installation into a prefix of its own does the same as the package, by Environment Modules in
# the one and by Lmod in the other: Debian has them both, but not in one system.
#
# The roots are in a temporary directory; with -d in DIR, where they stay for the next time. They need root, and 1.2 GB on
# the disk.
#
# Exit: 0; 1 failed; 77 the roots cannot be made here, the last line says why (1 if SHMCMA_NO_SKIP is set).
set -u
cd "$(dirname "$0")/.." || exit 1
. test/chroot.sh

build_packages=debhelper,pkgconf,libfabric-dev,libfabric-bin,lintian,autopkgtest,openmpi-bin,libopenmpi-dev,rpm
build_packages=$build_packages,environment-modules
user_packages=libfabric-bin,openmpi-bin,lmod

# in_build COMMAND: of the shell, in the root that builds, in the sources
in_build()
{
	printf '+ %s\n' "$1"
	chroot "$roots/build" sh -ec "cd /tmp/shmcma; $1" >"$work/said" 2>&1 || {
		tail -n 100 "$work/said"
		fail "this failed: $1"
	}
}

in_user()
{
	run chroot "$roots/user" "$@" || fail "this failed: $*"
}

# doctor FILE: a line of the shell that succeeds if shmcma doctor finds no fault, and the provider in that file
doctor()
{
	printf 'said=$(shmcma doctor) || { echo "$said"; exit 1; }; echo "$said" | grep "^ok  *provider: libfabric finds shmcma .* in %s$" || exit 1' "$1"
}

# files: of the user's root all that is there, with types, modes, owners, targets of links and checksums, but for what apt
# and dpkg write down of each installation
files()
{
	(cd "$roots/user" && find . -xdev \( -path ./var/log -o -path ./var/cache/apt -o -path ./var/lib/apt -o \
		-name status-old \) -prune -o -printf '%p %y %m %U %G %l\n' -type f -exec sha256sum {} +) | sort
}

check_deb()
{
	in_build 'dpkg-buildpackage -us -uc -b'
	# The project has no public address before its first release.
	in_build 'lintian --allow-root --fail-on error,warning \
		--suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog ../*.changes'
	cat "$work/said"
	! grep '^[EW]:' "$work/said" || fail "lintian has errors or warnings"
	deb=$(cd "$roots/build" && ls tmp/shmcma_*.deb)
	dpkg-deb -c "$roots/build/$deb" | awk '!/^d/ { print $6 }' | sed 's|^\.||' | grep -v '^/usr/share/doc/' >"$work/deb"
}

# The same files as those of the Debian package. The provider is where the system has its libfabric; the drop-in module is
# where packages of the kind have libraries; lists of documents differ.
check_rpm()
{
	in_build 'rpmbuild --define "_topdir /tmp/rpm" --nodeps -tb ../shmcma-*.tar.gz'
	in_build 'rpm -qlp $(find /tmp/rpm/RPMS -name "shmcma-[0-9]*.rpm")'
	sed -E '/^\/usr\/share\/(doc|licenses)\//d; /build-id/d; s|^/usr/lib[^/]*/shmcma/|LIB/|; s|\.gz$||' "$work/said" >"$work/rpm"
	sed -E 's|^/usr/lib/[^/]*/shmcma/|LIB/|; s|\.gz$||' "$work/deb" >"$work/deb.rpm"
	for file in $(cat "$work/deb.rpm"); do
		grep -qxF "$file" "$work/rpm" || fail "the RPM lacks $file"
	done
}

# by_module ROOT INIT: the module alone makes libfabric find the provider, and plain mpirun take it
by_module()
{
	cat >"$1/tmp/by-module" <<-end
		if fi_info -p shmcma; then exit 1; fi
		. $2
		module use /tmp/own/share/shmcma/modulefiles
		module load shmcma
		$(doctor /tmp/own/lib/libfabric/libshmcma-fi.so)
		fi_info -p shmcma
		AUTOPKGTEST_TMP=\$(mktemp -d)
		export AUTOPKGTEST_TMP
		/tmp/shmcma/debian/tests/openmpi /tmp/p2p
		module unload shmcma
		if fi_info -p shmcma; then exit 1; fi
	end
	run chroot "$1" sh -ec '. /tmp/by-module' || fail "the environment module does not work with $2"
}

# The package is not there.
check_module()
{
	cp "$build/test/mpi/p2p" "$roots/build/tmp/" || exit 1
	in_build 'make -s install prefix=/tmp/own providerdir=/tmp/own/lib/libfabric'
	by_module "$roots/build" /usr/share/modules/init/sh
	cp -a "$roots/build/tmp/own" "$roots/user/tmp/" || exit 1
	by_module "$roots/user" /usr/share/lmod/lmod/init/sh
	in_build 'make -s uninstall prefix=/tmp/own providerdir=/tmp/own/lib/libfabric; ! test -e /tmp/own'
}

check_autopkgtest()
{
	in_build 'autopkgtest --no-built-binaries ../shmcma_*.deb . -- null'
	grep -E '^(fi-pingpong|openmpi) +PASS' "$work/said" | sort -u # autopkgtest tells each twice
	[ "$(grep -E '^(fi-pingpong|openmpi) +PASS' "$work/said" | sort -u | wc -l)" = 2 ] || fail "autopkgtest has not run both tests"
	in_build 'apt-get purge -q -y shmcma' # autopkgtest leaves it in the root, which may be used again
}

check_user()
{
	mkdir -p "$roots/user/tmp/shmcma/debian" "$roots/user/tmp/shmcma/test" &&
		cp "$roots/build/$deb" "$build/test/mpi/p2p" "$roots/user/tmp/" &&
		cp -r debian/tests "$roots/user/tmp/shmcma/debian/" &&
		cp test/pingpong.sh "$roots/user/tmp/shmcma/test/" || exit 1
	export AUTOPKGTEST_TMP=/tmp DEBIAN_FRONTEND=noninteractive
	files >"$work/before"
	in_user apt-get install -q -y --no-install-recommends -o APT::Sandbox::User=root "/${deb}"
	in_user fi_info -p shmcma
	in_user sh -c 'cd /tmp/shmcma && debian/tests/fi-pingpong && debian/tests/openmpi /tmp/p2p'
	in_user sh -c "$(doctor '/usr/lib/[^ ]*/libfabric/libshmcma-fi.so')"
	in_user apt-get purge -q -y shmcma
	files >"$work/after"
	diff "$work/before" "$work/after" || fail "the files after purge are not those before installation"
}

inside()
{
	trap 'exit 1' HUP INT TERM # the first process of a namespace ignores what it does not ask for
	make_chroot "$roots/build" "$suite" "$build_packages" --variant=buildd
	furnish_chroot "$roots/build"
	make_chroot "$roots/user" "$suite" "$user_packages" --variant=apt
	furnish_chroot "$roots/user"
	clean_environment
	cp "$work"/shmcma-*.tar.gz "$roots/build/tmp/" && tar -C "$roots/build/tmp" -xf "$work"/shmcma-*.tar.gz &&
		mv "$roots/build/tmp"/shmcma-*/ "$roots/build/tmp/shmcma" || exit 1
	check_deb
	check_rpm
	check_user
	check_module
	check_autopkgtest
	echo "the packages of $suite are built, installed, used, and gone without a trace"
}

if [ "${1:-}" = --inside ]; then
	roots=$2
	work=$3
	suite=$4
	build=$5
	inside
	exit
fi
roots=
if [ "${1:-}" = -d ]; then
	mkdir -p "$2" || exit 1
	roots=$(cd "$2" && pwd) || exit 1
	shift 2
fi
suite=${1:?SUITE BUILD}
build=${2:?SUITE BUILD}
[ -x "$build/test/mpi/p2p" ] || fail "no $build/test/mpi/p2p: make -C $build mpi-programs first"
work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-packages.XXXXXX") || exit 1
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' HUP INT TERM
needs_root
rm -f "$build"/shmcma-*.tar.gz
run make -s -C "$build" dist || fail "make dist"
cp "$build"/shmcma-*.tar.gz "$work/" || exit 1
in_namespaces --inside "${roots:-$work}" "$work" "$suite" "$build"
