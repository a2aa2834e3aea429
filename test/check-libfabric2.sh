#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-libfabric2.sh [-d DIR] [BUILD] - the binaries of BUILD, by default ./build, which were built against
# libfabric 1.17 and Open MPI 4, run as they are on Debian 13, in a chroot with libfabric 2.x and Open MPI 5:
#  - fi_info finds shmcma, with nothing stacked on it;
#  - fi_pingpong moves plain and tagged messages of all sizes, data checked;
#  - test_newer, what libfabric has added since 1.17, asked for through that libfabric; test_owner, its structures that
#    providers share; test_dropin, beside its shm; test_trigger, deferred work, which the fi_rdm_deferred_wq of newer
#    fabtests cannot show (docs/MEASUREMENTS.md, "Faults that users could meet");
#  - the drop-in module is taken instead of libfabric's shm, and moves messages of all sizes;
#  - MPI programs that check what they receive, of 2 and 4 ranks, go by shmcma: Open MPI takes another
#    transport without a word, so each rank has to have printed counters above zero when its endpoint closed. With pml cm
#    Open MPI 5.0.7 makes no window.
#
# The chroot is in a temporary directory, see test/chroot.sh; with -d in DIR, where it stays for the next time. It needs
# root, and 350 MB on the disk.
#
# Exit: 0; 1 failed; 77 the chroot cannot be made here, the last line says why (1 if SHMCMA_NO_SKIP is set).
set -u
cd "$(dirname "$0")/.." || exit 1

suite=trixie
packages=base-files,dash,libfabric-bin,libfabric-dev,libcmocka0,openmpi-bin # dash is the sh that keeps apart what ranks print
programs="p2p coll types comm osc"
tests="test_newer test_owner test_dropin test_trigger"

. test/chroot.sh

# ---- before the namespaces -------------------------------------------------------------------------

# What the build has to have is not skipped: whoever asks for this check has to have made it.
check_build()
{
	[ -f "$build/dropin/libshm-fi.so" ] || fail "no drop-in module in $build: make first"
	for test in $tests; do
		[ -x "$build/test/fabric/$test" ] || fail "no $build/test/fabric/$test: make check TESTS= first"
	done
	[ -f "$build/lib/libshmcma-fi.so" ] || fail "no provider in $build: make first"
	for program in $programs; do
		[ -x "$build/test/mpi/$program" ] ||
			fail "no $build/test/mpi/$program: make -C $build mpi-programs first"
	done
}

outside()
{
	check_build
	needs_root
	work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-libfabric2.XXXXXX") || exit 1
	trap 'rm -rf --one-file-system "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	in_namespaces --inside "${root:-$work/root}" "$work" "$build" $((20000 + $$ % 20000))
}

# ---- its headers -----------------------------------------------------------------------------------

# Provider and tests compile with them, too. No code is made: the binaries that run there are those of the build.
check_headers()
{
	mkdir "$work/include" && ln -s "$root/usr/include/rdma" "$work/include/rdma" || exit 1
	for file in prov/*/*.c test/fabric/*.c; do
		run gcc -fsyntax-only -std=gnu11 -DSC_HAVE_SINGLE_THREADED -DSHMCMA_VERSION='"0"' -DSHMCMA_PROVIDER_DIR='"/"' \
			-I"$work/include" -Iinclude -Isrc -Iprov "$file" >>"$work/headers" 2>&1 || {
			grep error "$work/headers"
			fail "$file does not compile with the headers of Debian's $suite"
		}
	done
}

# ---- the chroot ------------------------------------------------------------------------------------

# Our files are in its /tmp, in memory, the modules as in a build.
fill_chroot()
{
	for module in lib/libshmcma-fi.so dropin/libshm-fi.so; do
		mkdir -p "$root/tmp/${module%/*}" && cp "$build/$module" "$root/tmp/$module" ||
			fail "$module cannot be copied"
	done
	for test in $tests; do
		cp "$build/test/fabric/$test" "$root/tmp/" || fail "$test cannot be copied"
	done
	for program in $programs; do
		cp "$build/test/mpi/$program" "$root/tmp/" || fail "$program cannot be copied"
	done
}

# ---- in the chroot ---------------------------------------------------------------------------------

into_chroot()
{
	clean_environment
	export FI_PROVIDER_PATH=/tmp/lib
	into="chroot $root"
	echo "+ export HOME=$HOME FI_PROVIDER_PATH=$FI_PROVIDER_PATH"
}

check_info()
{
	run $into fi_info --version >"$work/version" || fail "fi_info does not run"
	cat "$work/version"
	grep -q '^libfabric: 2\.' "$work/version" || fail "this is not libfabric 2.x"
	run $into fi_info -p shmcma >"$work/info" || fail "fi_info -p shmcma: libfabric does not find it"
	cat "$work/info"
	grep -qx 'provider: shmcma' "$work/info" || fail "fi_info -p shmcma shows another provider"
	run $into fi_info >"$work/all" || fail "fi_info failed"
	grep -qx 'provider: shmcma' "$work/all" || fail "fi_info without arguments does not show shmcma"
	! grep 'shmcma;' "$work/all" || fail "fi_info shows another provider on top of shmcma"
}

check_tests()
{
	for test in $tests; do
		run $into /tmp/$test >"$work/$test" 2>&1 || {
			cat "$work/$test"
			fail "$test failed"
		}
		tail -n 1 "$work/$test"
	done
}

# The drop-in instead of libfabric's shm; libfabric's own modules are found as ever.
check_dropin()
{
	FI_PROVIDER_PATH=+/tmp/dropin/libshm-fi.so
	echo "+ export FI_PROVIDER_PATH=$FI_PROVIDER_PATH"
	run $into fi_info -p shm >"$work/shm" || fail "fi_info -p shm: libfabric does not find it"
	cat "$work/shm"
	! grep FI_PROTO_SHM "$work/shm" || fail "libfabric prefers its own shm"
	pinged=shm
	pingpong $((first + 200)) -m tagged
	pinged=shmcma
	FI_PROVIDER_PATH=/tmp/lib
}

# Naming the provider is what makes it offer FI_REMOTE_COMM, which Open MPI insists on.
into_openmpi()
{
	export FI_PROVIDER=shmcma FI_LOG_LEVEL=info FI_LOG_PROV=shmcma
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_opal_common_ofi_provider_include=shmcma
	export OMPI_MCA_mpi_yield_when_idle=1 # there may be more ranks than processors
	env | grep -E '^(FI|OMPI)_' | sed 's/^/+ export /'
	$into ompi_info --version | head -n 1
}

# carried RANK: of its counters those that have to be above zero; fails if they are not
carried()
{
	sed -n 's/.*shmcma: counters: //p' "$root/tmp/rank.$1" | tr ' ' '\n' >"$work/counters"
	for counter in $counted; do
		grep "^$counter=[1-9]" "$work/counters" || return
	done
}

# judge RANKS STATUS: what each rank has carried; why the run is not good, to the file "reasons"
judge()
{
	[ "$2" = 0 ] || echo "mpirun ended with status $2" >>"$work/reasons"
	grep ': [0-9][0-9]* checks passed$' "$work/mpirun" ||
		echo "no rank says that its checks passed" >>"$work/reasons"
	rank=0
	while [ $rank -lt "$1" ]; do
		carried $rank >"$work/carried" ||
			echo "rank $rank has not made all of $counted go by shmcma" >>"$work/reasons"
		echo "     rank $rank:" $(cat "$work/carried")
		rank=$((rank + 1))
	done
}

show_logs()
{
	for log in "$work/mpirun" "$root"/tmp/rank.*; do
		[ -f "$log" ] || continue
		echo "  --- ${log##*/}"
		# libfabric's core logs whatever FI_LOG_PROV says
		sed '/^libfabric:/{/:shmcma:/!d}' "$log" | tail -n 25 | sed 's/^/  /'
	done
}

# mpi PROGRAM RANKS COUNTERS OPTION...
mpi()
{
	program=$1
	ranks=$2
	counted=$3
	shift 3
	rm -f "$root"/tmp/rank.* "$work/reasons"
	set -- timeout -k 10 600 $into mpirun.openmpi -n "$ranks" --map-by :OVERSUBSCRIBE --bind-to none "$@" \
		sh -c 'exec "$0" 2>"/tmp/rank.$OMPI_COMM_WORLD_RANK"' "/tmp/$program"
	printf '+ %s\n' "$*"
	"$@" >"$work/mpirun" 2>&1
	judge "$ranks" $?
	[ -f "$work/reasons" ] || return 0
	show_logs
	fail "$program with $ranks ranks: $(cat "$work/reasons")"
}

# no_window OPTION...: as README says of Open MPI 5.0.7 with pml cm
no_window()
{
	set -- timeout -k 10 600 $into mpirun.openmpi -n 2 --map-by :OVERSUBSCRIBE --bind-to none "$@" /tmp/osc
	printf '+ %s\n' "$*"
	! "$@" >"$work/mpirun" 2>&1 || fail "Open MPI makes windows with pml cm: README says that it does not"
	grep -a 'MPI_ERR_WIN' "$work/mpirun" || {
		show_logs
		fail "Open MPI does not say MPI_ERR_WIN"
	}
}

inside()
{
	trap 'exit 1' HUP INT TERM # the first process of a namespace ignores what it does not ask for
	# Packages are unpacked, not configured: nothing here needs more.
	make_chroot "$root" $suite $packages --variant=extract
	check_headers
	furnish_chroot "$root"
	fill_chroot
	into_chroot
	check_info
	. test/pingpong.sh
	pingpong "$first"
	pingpong $((first + 100)) -m tagged
	check_tests
	check_dropin
	into_openmpi
	for program in p2p coll types comm; do
		mpi $program 2 "tx_msgs rx_msgs"
	done
	for program in coll comm; do
		mpi $program 4 "tx_msgs rx_msgs"
	done
	# one-sided operations, and with them all messages, by btl ofi
	mpi osc 2 "tx_msgs rx_msgs rma_ops" --mca pml ob1 --mca btl self,ofi --mca btl_ofi_mode 2 \
		--mca osc rdma --mca osc_rdma_btls ofi
	no_window --mca btl self,ofi --mca osc rdma --mca osc_rdma_btls ofi
	echo "the binaries of $build run on Debian 13"
}

if [ "${1:-}" = --inside ]; then
	root=$2
	work=$3
	build=$4
	first=$5
	inside
	exit
fi
parse_arguments "$@"
outside
