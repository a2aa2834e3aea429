#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-libfabric2.sh [-d DIR] [BUILD] - the binaries of BUILD, by default ./build, which were built against
# libfabric 1.17 and Open MPI 4, run as they are on Debian 13, in a chroot with libfabric 2.x and Open MPI 5:
#  - fi_info finds shmcma, with nothing stacked on it;
#  - fi_pingpong moves plain and tagged messages of all sizes, data checked;
#  - MPI programs that check what they receive, of 2 and 4 ranks, go by shmcma: Open MPI takes another
#    transport without a word, so each rank has to have printed counters above zero when its endpoint closed.
#
# mmdebstrap makes the chroot, from the mirror that this system's apt uses, in a temporary directory; with -d
# in DIR, where it stays for the next time. It needs root, and 350 MB on the disk. Mounts and processes,
# mmdebstrap's too, live in namespaces that end with this script; in the chroot /dev/shm is its own.
#
# Exit: 0; 1 failed; 77 the chroot cannot be made here, the last line says why (1 if SHMCMA_NO_SKIP is set).
set -u
cd "$(dirname "$0")/.." || exit 1

suite=trixie
packages=base-files,dash,libfabric-bin,openmpi-bin # dash is the sh that keeps apart what ranks print
programs="p2p coll types comm osc"

fail()
{
	echo "check-libfabric2: $*" >&2
	exit 1
}

skip()
{
	[ -z "${SHMCMA_NO_SKIP:-}" ] || fail "$*, but SHMCMA_NO_SKIP is set"
	echo "SKIP: $*"
	exit 77
}

run()
{
	printf '+ %s\n' "$*"
	"$@"
}

# ---- before the namespaces -------------------------------------------------------------------------

# What the build has to have is not skipped: whoever asks for this check has to have made it.
check_build()
{
	[ -f "$build/.libs/libshmcma-fi.so" ] || fail "no provider in $build: make first"
	for program in $programs; do
		[ -x "$build/test/mpi/$program" ] ||
			fail "no $build/test/mpi/$program: make -C $build mpi-programs first"
	done
}

check_system()
{
	[ "$(id -u)" = 0 ] || skip "a chroot needs root"
	for program in mmdebstrap apt-get unshare chroot; do
		command -v $program >/dev/null || skip "no $program"
	done
	unshare --mount --pid --fork --mount-proc true || skip "namespaces or mounts are not permitted"
}

# Again in namespaces, as their first process: with it all others end.
outside()
{
	check_build
	check_system
	work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-libfabric2.XXXXXX") || exit 1
	trap 'rm -rf --one-file-system "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	chmod 755 "$work" # apt downloads as another user
	root=${root:-$work/root}
	unshare --mount --pid --fork --kill-child --mount-proc \
		sh test/check-libfabric2.sh --inside "$root" "$work" "$build" $((20000 + $$ % 20000))
}

# ---- the chroot ------------------------------------------------------------------------------------

# Where this system has its own Debian from.
mirror()
{
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' |
		head -n 1
}

# A chroot that is there is used if it was made of this.
make_chroot()
{
	made="$suite $packages"
	if [ -e "$root/.shmcma" ]; then
		[ "$(cat "$root/.shmcma")" = "$made" ] || fail "$root was made of other packages: remove it"
		echo "$root is there"
		return
	fi
	[ -z "$(ls "$root" 2>/dev/null)" ] || fail "$root is no chroot of this script"
	uri=$(mirror)
	[ -n "$uri" ] || skip "apt knows no mirror of Debian; maybe after: apt-get update"
	apt-config dump | grep -E '^Acquire::(https?|Check|Retries)' >"$work/apt.conf"
	# Packages are unpacked, not configured: nothing here needs more.
	run timeout -k 10 600 mmdebstrap --mode=root --variant=extract --include=$packages \
		--aptopt="$work/apt.conf" $suite "$root" "$uri" 2>&1 || {
		rm -rf --one-file-system "$root"
		skip "mmdebstrap cannot make a chroot of Debian's $suite, see above"
	}
	echo "$made" >"$root/.shmcma"
}

# Our files are in its /tmp, in memory: the tree stays as it was made.
furnish_chroot()
{
	mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp" &&
		mount -t proc proc "$root/proc" &&
		mount --rbind /sys "$root/sys" &&
		mount --rbind /dev "$root/dev" &&
		mount -t tmpfs tmpfs "$root/dev/shm" &&
		mount -t tmpfs tmpfs "$root/tmp" || skip "mounts are not permitted"
	cp "$build/.libs/libshmcma-fi.so" "$root/tmp/" || fail "the provider cannot be copied"
	for program in $programs; do
		cp "$build/test/mpi/$program" "$root/tmp/" || fail "$program cannot be copied"
	done
}

# ---- in the chroot ---------------------------------------------------------------------------------

into_chroot()
{
	# No variable that is set here may help, or mislead.
	for name in $(env | sed -nE 's/^((FI|OMPI|PMIX|PRTE|UCX|LD)_[A-Za-z0-9_]*|TMPDIR)=.*/\1/p'); do
		unset "$name"
	done
	export HOME=/tmp FI_PROVIDER_PATH=/tmp
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

inside()
{
	trap 'exit 1' HUP INT TERM # the first process of a namespace ignores what it does not ask for
	make_chroot
	furnish_chroot
	into_chroot
	check_info
	. test/pingpong.sh
	pingpong "$first"
	pingpong $((first + 100)) -m tagged
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
root=
if [ "${1:-}" = -d ]; then
	mkdir -p "$2" || exit 1
	root=$(cd "$2" && pwd) || exit 1
	shift 2
fi
build=${1:-build}
outside
