#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# check-lnx.sh [-d DIR] [BUILD] - checks Open MPI 5 on two hosts, where libfabric's lnx joins shmcma with tcp. The binaries
# of BUILD, by default ./build, run in a chroot with Debian 13, like those of check-libfabric2.sh.
#
# Namespaces of this machine are the hosts `one` and `two`: each host has its own host name, /dev/shm, /tmp, System V IPC,
# process ids, and network with an address on eth0. A bridge joins them with a third one, `head`, where mpirun runs. It
# starts its daemons by an agent that enters the namespaces. SHMCMA_PER_HOST ranks on each host, at least 2, by default 4:
#  - the program `ways` sends messages between local pairs alone, then between remote pairs alone. shmcma counts exactly
#    the local messages, and none of the remote ones; the network interfaces carry the bytes of the remote messages, and
#    not those of the local ones;
#  - MPI programs that check what they receive, and mpi4py;
#  - a rank is killed, on either host: the job ends, or the others get errors; then `shmcma reap` leaves /dev/shm of both
#    hosts clean;
#  - both hosts have one host name, by which lnx takes all peers for local ones: the job ends with an error, and a line says
#    what to do; with FI_LNX_DISABLE_SHM=1 it ends well.
#
# The jobs run with Debian's libfabric 2.1 over shm+tcp and the drop-in module: lnx of that version accepts no provider but
# one that is named shm inside a host. With SHMCMA_LIBFABRIC, the prefix of an installed libfabric 2.2 to 2.5, they also run over
# shmcma+tcp and shm+tcp of that one. lnx of 2.6 refuses FI_MSG, which the mtl ofi of Debian's Open MPI asks for.
#
# With SHMCMA_FABTESTS, the prefix of an installed libfabric 2.2 to 2.6 with its fabtests, those for tagged messages run
# first, on one host and across both: over shmcma+tcp, over shm+tcp with the drop-in module, and over shm+tcp of libfabric
# alone. The script prints how many pass, and fails if one fails that passes with libfabric's own shm. The first one also
# runs between hosts of one name.
#
# The script leaves out sections that no local provider of lnx passes, libfabric's shm neither: MPI_Cancel (lnx asks its providers
# to cancel a receive that it keeps itself), and MPI_Probe with 2.1 (lnx crashes). Two of `comm` take too long.
#
# The chroot is in a temporary directory, see test/chroot.sh; with -d in DIR, where it stays for the next time. It needs
# root, and 400 MB on the disk.
#
# Exit: 0; 1 failed; 77 this cannot run here, the last line says why (1 if SHMCMA_NO_SKIP is set).
set -u
cd "$(dirname "$0")/.." || exit 1

suite=trixie
packages=base-files,coreutils,dash,iproute2,libfabric-bin,openmpi-bin,python3-mpi4py,util-linux
programs="p2p coll types comm job ways"
hosts="one two"
per_host=${SHMCMA_PER_HOST:-4}
limit=600 # seconds, for whatever is waited for
oob=3000  # the port by which both sides of a program of fabtests find each other
as=	  # the command before a program of fabtests

. test/chroot.sh

# ---- before the namespaces -------------------------------------------------------------------------

check_build()
{
	for file in lib/libshmcma-fi.so dropin/libshm-fi.so util/shmcma; do
		[ -f "$build/$file" ] || fail "no $build/$file: make first"
	done
	for program in $programs; do
		[ -x "$build/test/mpi/$program" ] ||
			fail "no $build/test/mpi/$program: make -C $build mpi-programs first"
	done
}

# check_libfabric PREFIX LAST: of version 2.2 to 2.LAST
check_libfabric()
{
	[ -n "$1" ] || return
	[ -e "$1/lib/libfabric.so.1" ] && [ -x "$1/bin/fi_info" ] || fail "no libfabric in $1"
	case $(LD_LIBRARY_PATH=$1/lib "$1/bin/fi_info" --version | sed -n 's/^libfabric api: //p') in
	2.[2-$2]) ;;
	*) fail "libfabric in $1 is not of version 2.2 to 2.$2" ;;
	esac
}

check_fabtests()
{
	[ -z "$fabtests" ] || [ -x "$fabtests/bin/fi_rdm_tagged_pingpong" ] || fail "no fabtests in $fabtests"
}

outside()
{
	check_build
	check_libfabric "$libfabric" 5
	check_libfabric "$fabtests" 6
	check_fabtests
	needs_root
	for program in ip nsenter; do
		command -v $program >/dev/null || skip "no $program"
	done
	unshare --net ip link add name br0 type bridge || skip "no network of its own, or no bridge"
	unshare --net ip link add name one type veth peer name two || skip "no virtual network devices (veth)"
	work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-lnx.XXXXXX") || exit 1
	trap 'rm -rf --one-file-system "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	in_namespaces --inside "${root:-$work/root}" "$work" "$build" "$libfabric" "$fabtests"
}

# ---- the chroot ------------------------------------------------------------------------------------

# copy_prefix PREFIX NAME: what is installed there, to /shared/NAME
copy_prefix()
{
	[ -n "$1" ] || return
	mkdir "$shared/$2" && cp -a "$1/lib" "$1/bin" "$shared/$2/" || fail "$1 cannot be copied"
}

# What the hosts share is in /shared, in memory.
fill_chroot()
{
	shared=$root/shared
	mkdir -p "$shared" "$root/etc" && mount -t tmpfs -o mode=755 tmpfs "$shared" || skip "mounts are not permitted"
	copy_prefix "$libfabric" libfabric
	copy_prefix "$fabtests" fabtests
	cp "$build/lib/libshmcma-fi.so" "$build/dropin/libshm-fi.so" "$build/util/shmcma" "$shared/" ||
		fail "the build cannot be copied"
	for program in $programs; do
		cp "$build/test/mpi/$program" "$shared/" || fail "$program cannot be copied"
	done
	echo "root:x:0:0:root:/tmp:/bin/sh" >"$root/etc/passwd"
	{
		echo "127.0.0.1 localhost"
		echo "10.77.0.1 one"
		echo "10.77.0.2 two"
		echo "10.77.0.3 head"
	} >"$root/etc/hosts"
}

inside()
{
	trap 'exit 1' HUP INT TERM # the first process of a namespace ignores what it does not ask for
	# Packages are unpacked, not configured: nothing here needs more.
	make_chroot "$root" $suite $packages --variant=extract
	furnish_chroot "$root"
	fill_chroot
	exec unshare --net --uts --ipc sh "test/$(basename "$0")" --head "$root" "$work" "$libfabric" "$fabtests"
}

# ---- the hosts -------------------------------------------------------------------------------------

# The first process of a host: it tells its pid, as seen by the head, and lives as long as the host.
host()
{
	read -r pid _ </proc/self/stat
	echo "$name" >/proc/sys/kernel/hostname &&
		mount -t proc proc "$root/proc" &&
		mount -t tmpfs tmpfs "$root/dev/shm" &&
		mount -t tmpfs -o mode=1777 tmpfs "$root/tmp" &&
		echo "$pid" >"$work/up" || exit
	sleep infinity &
	wait # and take up the processes that have lost their parent
}

# enter HOST COMMAND...: on that host, in the chroot
enter()
{
	eval "set -- \"\$pid_$1\" \"\$@\""
	first=$1
	shift 2
	nsenter --target "$first" --mount --uts --ipc --net --pid chroot "$root" "$@"
}

# begin_host HOST ADDRESS
begin_host()
{
	unshare --mount --uts --ipc --net --pid --fork --kill-child sh "test/$(basename "$0")" --host "$1" "$root" "$work" &
	read -r pid <"$work/up" || fail "host $1 does not come up"
	eval "pid_$1=$pid"
	ip link add name "$1" type veth peer name eth0 netns "$pid" &&
		ip link set dev "$1" master br0 up &&
		enter "$1" ip link set dev lo up &&
		enter "$1" ip addr add "$2/24" dev eth0 &&
		enter "$1" ip link set dev eth0 up || fail "host $1 has no network"
	echo "exec nsenter --target $pid --mount --uts --ipc --net --pid chroot $root sh -c \"\$*\"" >"$shared/enter.$1"
}

# The agent has the name of the host, and a command for its shell, as ssh has. What `same` runs has one host name everywhere.
begin_hosts()
{
	echo head >/proc/sys/kernel/hostname || fail "the head cannot have a name"
	mkfifo "$work/up" || exit 1
	ip link set dev lo up && ip link add name br0 type bridge && ip addr add 10.77.0.3/24 dev br0 &&
		ip link set dev br0 up || fail "no network"
	begin_host one 10.77.0.1
	begin_host two 10.77.0.2
	cat >"$shared/agent" <<-'EOF'
		#!/bin/sh
		host=$1
		shift
		. "/shared/enter.$host"
	EOF
	cat >"$shared/same" <<-'EOF'
		#!/bin/sh
		exec unshare --uts sh -c 'echo same >/proc/sys/kernel/hostname && exec "$0" "$@"' "$@"
	EOF
	chmod 755 "$shared/agent" "$shared/same"
	for host in $hosts; do
		echo "$host is a host"
	done
}

# ---- jobs ------------------------------------------------------------------------------------------

into_openmpi()
{
	clean_environment
	export SHELL=/bin/sh
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_av=table
	export OMPI_MCA_mpi_yield_when_idle=1 # there are more ranks than processors
	export FI_SHMCMA_STATS=stderr FI_SHMCMA_CALIBRATE=0 FI_LOG_LEVEL=warn
	export MPITEST_SKIP=
}

# over LINKS INCLUDE MODULE [PREFIX]: what follows goes over lnx with these links, and this name of Open MPI's for it
over()
{
	export FI_LNX_PROV_LINKS="$1" OMPI_MCA_opal_common_ofi_provider_include="$2" FI_PROVIDER_PATH="+/shared/$3"
	export LD_LIBRARY_PATH="${4:+$4/lib}"
	echo
	env | grep -E '^(FI|OMPI|LD)_' | sort | sed 's/^/+ export /'
}

# launch COMMAND...
launch()
{
	rm -f "$shared"/rank.*
	set -- timeout -k 10 $limit chroot "$root" mpirun.openmpi --prtemca plm_ssh_agent /shared/agent \
		--host one:$per_host,two:$per_host --bind-to none -x LD_LIBRARY_PATH -x FI_PROVIDER_PATH \
		-x FI_LNX_PROV_LINKS -x FI_LOG_LEVEL -x FI_SHMCMA_STATS -x FI_SHMCMA_CALIBRATE -x MPITEST_SKIP \
		sh -c 'exec "$0" "$@" 2>"/shared/rank.$OMPI_COMM_WORLD_RANK"' "$@"
	printf '+ %s\n' "$*"
	"$@" >"$work/mpirun" 2>&1 </dev/null
}

show_logs()
{
	for log in "$work/mpirun" "$shared"/rank.*; do
		[ -f "$log" ] || continue
		echo "  --- ${log##*/}"
		tail -n 25 "$log" | sed 's/^/  /'
	done
}

job_failed()
{
	show_logs
	fail "$*"
}

# counter RANK WORDS: of its endpoint when it closed; what is zero is not printed
counter()
{
	sed -n "s/^ *\([0-9][0-9]*\)  $2\$/\1/p" "$shared/rank.$1" | grep . || echo 0
}

ranks()
{
	seq 0 $((2 * per_host - 1))
}

# Each rank has closed an endpoint of shmcma, which then told what it had carried.
all_told()
{
	for rank in $(ranks); do
		grep -q '^fi_shmcma://' "$shared/rank.$rank" || job_failed "rank $rank has had no endpoint of shmcma"
	done
}

# carried INTERFACE: bytes, received and sent, of both hosts
carried()
{
	for host in $hosts; do
		eval "cat /proc/\$pid_$host/net/dev"
	done | sed 's/:/ /' | awk -v name="$1" '$1 == name { sum += $2 + $10 } END { printf "%.0f\n", sum }'
}

# sent_by RANK: "MESSAGES BYTES", as it says
sent_by()
{
	sed -n "s/^ways: rank $1: \([0-9]*\) messages, \([0-9]*\) bytes, .* passed\$/\1 \2/p" "$work/mpirun"
}

# ways local|remote: what has carried the messages
ways()
{
	eth0=$(carried eth0)
	lo=$(carried lo)
	launch /shared/ways "$1" $per_host || job_failed "ways $1: status $?"
	eth0=$(($(carried eth0) - eth0))
	lo=$(($(carried lo) - lo))
	all_told
	total=0
	for rank in $(ranks); do
		said=$(sent_by "$rank")
		[ -n "$said" ] || job_failed "ways $1: rank $rank does not say what it has sent"
		total=$((total + ${said#* }))
		[ "$1" = local ] || said="0 0"
		found="$(counter "$rank" "messages sent") $(sed -n '/messages sent$/,/bytes in them$/s/^ *\([0-9]*\)  bytes in them$/\1/p' \
			"$shared/rank.$rank" | grep . || echo 0)"
		[ "$found" = "$said" ] || job_failed "ways $1: rank $rank: shmcma has sent \"$found\", expected \"$said\""
		[ "$(counter "$rank" "messages received")" = "${said% *}" ] ||
			job_failed "ways $1: rank $rank: shmcma has not received ${said% *} messages"
	done
	echo "     $1 pairs: $total bytes of messages; eth0 $eth0, lo $lo bytes of both hosts; shmcma ${said% *} messages a rank"
	[ $lo -lt $((total / 10)) ] || job_failed "ways $1: lo has carried $lo bytes"
	if [ "$1" = local ]; then
		[ $eth0 -lt $((total / 10)) ] || job_failed "ways local: eth0 has carried $eth0 bytes"
	else
		# one host has sent each byte, and the other one has received it
		[ $eth0 -ge $((2 * total)) ] || job_failed "ways remote: eth0 has carried $eth0 bytes only"
	fi
}

# program PATTERN COMMAND...: it ends well, prints that line, and each rank has used shmcma
program()
{
	pattern=$1
	shift
	launch "$@" || job_failed "$*: status $?"
	grep "$pattern" "$work/mpirun" || job_failed "$*: no line of $pattern"
	all_told
	for rank in $(ranks); do
		[ "$(counter "$rank" "messages sent")" -gt 0 ] && [ "$(counter "$rank" "messages received")" -gt 0 ] ||
			job_failed "$*: shmcma has carried nothing for rank $rank"
	done
}

mpi4py()
{
	cat >"$shared/mpi4py_test.py" <<-'EOF'
		import array
		from mpi4py import MPI

		world = MPI.COMM_WORLD
		rank, size = world.rank, world.size
		for length in (0, 10, 5000, 300000):
		    objects = world.allgather({"rank": rank, "data": bytes([rank]) * length})
		    assert objects == [{"rank": i, "data": bytes([i]) * length} for i in range(size)]
		    sent = array.array("i", [rank * 7 + length] * (length + 1))
		    for step in range(1, size):
		        got = array.array("i", [0] * (length + 1))
		        world.Sendrecv(sent, (rank + step) % size, recvbuf=got, source=(rank - step) % size)
		        assert got == array.array("i", [(rank - step) % size * 7 + length] * (length + 1))
		assert world.allreduce(rank) == size * (size - 1) // 2
		if rank == 0:
		    print("mpi4py: all is right", flush=True)
	EOF
	program '^mpi4py: all is right$' /usr/bin/python3 /shared/mpi4py_test.py
}

# ---- a rank dies -----------------------------------------------------------------------------------

# Every 50 ms until it is true, or for too long.
await()
{
	tries=0
	until "$@"; do
		tries=$((tries + 1))
		[ $tries -le $((limit * 20)) ] || job_failed "in vain for $limit s: $*"
		sleep 0.05
	done
}

all_run()
{
	[ "$(grep -c ' runs$' "$work/mpirun" 2>/dev/null)" = $((2 * per_host)) ]
}

# Prints what is in /dev/shm of a host.
files_of()
{
	enter "$1" sh -c 'for file in /dev/shm/*; do [ ! -e "$file" ] || echo "$file"; done'
}

# dies HOST RANK MODE
dies()
{
	rm -f "$work/mpirun"
	launch /shared/job "$3" &
	launcher=$!
	await all_run
	victim=$(sed -n "s/^rank $2 pid \([0-9]*\) runs\$/\1/p" "$work/mpirun")
	enter "$1" sh -c "kill -9 $victim" || job_failed "rank $2 is not there on $1"
	began=$(date +%s)
	wait $launcher
	status=$?
	seconds=$(($(date +%s) - began))
	[ $status != 0 ] || job_failed "a rank was killed, and mpirun ends well"
	# mpirun itself ends with 137, as a rank killed by SIGKILL does, or with the status of timeout(1)
	[ $status != 124 ] && [ $seconds -lt $limit ] || job_failed "a rank was killed, and the job does not end"
	echo "     rank $2 on $1 killed: mpirun ends after $seconds s with status $status; $(grep -c 'got error' "$work/mpirun") ranks got errors before"
	for host in $hosts; do
		left=$(files_of $host | grep -c .)
		enter $host /shared/shmcma reap || fail "shmcma reap failed on $host"
		[ -z "$(files_of $host)" ] || fail "in /dev/shm of $host is left: $(files_of $host)"
		echo "     $host: $left files before shmcma reap, none after it"
	done
}

# ---- two hosts of one name -------------------------------------------------------------------------

remedy='give each machine or container its own host name, or set FI_LNX_DISABLE_SHM=1'

job_of_one_name()
{
	began=$(date +%s)
	launch /shared/same /usr/bin/python3 /shared/mpi4py_test.py
	status=$?
	seconds=$(($(date +%s) - began))
	grep -q 'exited on signal' "$work/mpirun" && job_failed "hosts of one name: a rank has crashed"
	case $status in
	0) job_failed "hosts of one name: mpirun ends well, which it cannot" ;;
	124 | 137) job_failed "hosts of one name: the job does not end" ;;
	esac
	grep -h "$remedy" "$shared"/rank.* | head -n 1 | grep . || job_failed "hosts of one name: no rank says what to do"
	launch env FI_LNX_DISABLE_SHM=1 /shared/same /usr/bin/python3 /shared/mpi4py_test.py ||
		job_failed "hosts of one name, FI_LNX_DISABLE_SHM=1: status $?"
	! grep -q ' messages sent$' "$shared"/rank.* || job_failed "hosts of one name, FI_LNX_DISABLE_SHM=1: shmcma carries messages"
	echo "     hosts of one name: mpirun ends after $seconds s with status $status; well with FI_LNX_DISABLE_SHM=1"
}

# ---- fabtests --------------------------------------------------------------------------------------

tagged_tests()
{
	cat <<-'EOF'
		fi_rdm_tagged_pingpong -v -S all -I 10
		fi_rdm_tagged_bw -v -S all -I 10 -W 8
		fi_rdm_tagged_peek
		fi_unexpected_msg -e rdm -I 10 -v
	EOF
}

# The server on host one waits for its client.
is_listening()
{
	eval "cat /proc/\$pid_one/net/tcp /proc/\$pid_one/net/tcp6" |
		grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X $oob) [0-9A-F:]+ 0A"
}

# fabtest HOST PROGRAM OPTION...: the server on host one, the client on HOST, both behind the command $as, if it is set; do
# both end well?
fabtest()
{
	client=$1
	program=/shared/fabtests/bin/$2
	shift 2
	rm -f "$work/server.ended"
	{
		enter one timeout -s KILL $limit $as "$program" -p lnx "$@" -E=$oob >"$work/server" 2>&1
		echo $? >"$work/server.ended"
	} &
	until is_listening || [ -e "$work/server.ended" ]; do
		sleep 0.05
	done
	enter "$client" timeout -s KILL $limit $as "$program" -p lnx "$@" -E=$oob 10.77.0.1 >"$work/client" 2>&1
	status=$?
	wait $!
	[ $status = 0 ] && [ "$(cat "$work/server.ended")" = 0 ]
}

# went NAME HOST: shmcma has carried the messages inside a host, and none of the others
went()
{
	expected=no
	[ "$1" = own ] || [ "$2" = two ] || expected=yes
	found=no
	! grep -qh ' messages received$' "$work/server" "$work/client" || found=yes
	[ $found = $expected ]
}

# fabtest_of_one_name NAME
fabtest_of_one_name()
{
	as=/shared/same
	began=$(date +%s)
	! fabtest two fi_rdm_tagged_pingpong -I 10 || fail "$1, hosts of one name: a test passes that cannot"
	seconds=$(($(date +%s) - began))
	cat "$work/server" "$work/client"
	# the tests end with the number of the error: EHOSTUNREACH
	status="$status $(cat "$work/server.ended")"
	[ "$status" = "113 113" ] || fail "$1, hosts of one name: status of client and server: $status"
	for side in server client; do
		grep -q "$remedy" "$work/$side" || fail "$1, hosts of one name: the $side does not say what to do"
	done
	export FI_LNX_DISABLE_SHM=1
	fabtest two fi_rdm_tagged_pingpong -I 10 || fail "$1, hosts of one name: FI_LNX_DISABLE_SHM=1 does not help"
	went "$1" two || fail "$1, hosts of one name: FI_LNX_DISABLE_SHM=1, and shmcma carries messages"
	unset FI_LNX_DISABLE_SHM
	as=
	echo "     $1, hosts of one name: FI_EHOSTUNREACH within $seconds s; passed with FI_LNX_DISABLE_SHM=1"
}

# fabtests_over NAME LINKS [MODULE]: writes the programs that fail to the file NAME
fabtests_over()
{
	export FI_LNX_PROV_LINKS="$2" LD_LIBRARY_PATH=/shared/fabtests/lib
	unset FI_PROVIDER_PATH
	[ -z "${3:-}" ] || export FI_PROVIDER_PATH="+/shared/$3"
	env | grep -E '^(FI|LD)_' | sort | sed 's/^/+ export /'
	: >"$work/failed.$1"
	for host in $hosts; do
		passed=0
		number=0
		while read -r test; do
			number=$((number + 1))
			# shellcheck disable=SC2086
			if fabtest $host $test </dev/null; then
				passed=$((passed + 1))
				went "$1" $host || fail "$test, $1, client on host $host: this has gone the wrong way"
			else
				echo "$test, client on host $host" >>"$work/failed.$1"
				tail -n 5 "$work/server" "$work/client"
			fi
		done <"$work/tagged_tests"
		eval "${1}_$host=\"$passed of $number\""
	done
	[ "$1" = own ] || fabtest_of_one_name "$1"
}

fabtests_beside_shm()
{
	tagged_tests >"$work/tagged_tests"
	enter one env LD_LIBRARY_PATH=/shared/fabtests/lib /shared/fabtests/bin/fi_info --version
	fabtests_over shmcma shmcma+tcp:eth0 libshmcma-fi.so
	fabtests_over dropin shm+tcp:eth0 libshm-fi.so
	fabtests_over own shm+tcp:eth0
	printf '     %-30s %10s %10s\n' "passed over lnx, with" "one host" "two hosts"
	printf '     %-30s %10s %10s\n' shmcma "$shmcma_one" "$shmcma_two"
	printf '     %-30s %10s %10s\n' "the drop-in module" "$dropin_one" "$dropin_two"
	printf '     %-30s %10s %10s\n' "libfabric's own shm" "$own_one" "$own_two"
	for name in shmcma dropin own; do
		sed "s/^/     $name fails: /" "$work/failed.$name"
	done
	case "$own_one, $own_two" in
	0* | *", 0"*) fail "lnx does not work here with libfabric's own shm either" ;;
	esac
	worse=$(sort -u "$work/failed.shmcma" "$work/failed.dropin" | grep -vxFf "$work/failed.own")
	[ -z "$worse" ] || fail "these pass with libfabric's own shm: $worse"
}

# ---- all -------------------------------------------------------------------------------------------

jobs()
{
	ways local
	ways remote
	MPITEST_SKIP=$1
	for name in p2p coll types comm; do
		program "^$name: [0-9]* checks passed\$" /shared/$name
	done
	mpi4py
	job_of_one_name
	dies one 1 talk
	dies two $((2 * per_host - 1)) talk
	dies two $per_host errors
	dies one 1 errors
}

no_cancel="cancel of unmatched receives|cancel against arrival|matching against a model"
too_long="200 communicators at once|come and go"

cluster()
{
	trap 'exit 1' HUP INT TERM
	shared=$root/shared
	begin_hosts
	into_openmpi
	[ -z "$fabtests" ] || fabtests_beside_shm
	over shm+tcp "shm+tcp;ofi_rxm:lnx" libshm-fi.so
	enter one fi_info --version
	jobs "$no_cancel|$too_long|messages to self|probes|matched probes"
	if [ -n "$libfabric" ]; then
		over shmcma+tcp:eth0 lnx libshmcma-fi.so /shared/libfabric
		enter one /shared/libfabric/bin/fi_info --version
		jobs "$no_cancel|$too_long"
		over shm+tcp:eth0 lnx libshm-fi.so /shared/libfabric
		jobs "$no_cancel|$too_long"
	fi
	echo "Open MPI 5 runs over lnx on two hosts"
}

case ${1:-} in
--inside)
	root=$2 work=$3 build=$4 libfabric=$5 fabtests=$6
	inside
	exit
	;;
--head)
	root=$2 work=$3 libfabric=$4 fabtests=$5
	cluster
	exit
	;;
--host)
	name=$2 root=$3 work=$4
	host
	exit
	;;
esac
parse_arguments "$@"
libfabric=${SHMCMA_LIBFABRIC:-}
fabtests=${SHMCMA_FABTESTS:-}
outside
