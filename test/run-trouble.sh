#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-trouble.sh - rows of README's table of troubles that the programs of libfabric meet: fi_info, fi_pingpong. Each row
# makes the symptom, and shows that the remedy cures it. test/fabric/test_trouble.c has the rows of an application's
# calls, test/mpi/run-trouble.sh those of MPI jobs; test/check-readme.sh compares all with README.
#
# /dev/shm is a tmpfs of this test's own. Exit: 0, 1, or 77 (skipped).
#
#   abs_top_builddir   has lib/libshmcma-fi.so and util/shmcma
#   SHMCMA_NO_SKIP     if set, what cannot be run has failed
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 99
build=${abs_top_builddir:-$(cd "$here/.." && pwd)}

skip()
{
	if [ -n "${SHMCMA_NO_SKIP:-}" ]; then
		echo "FAIL: $*, but SHMCMA_NO_SKIP is set"
		exit 1
	fi
	echo "SKIP: $*"
	exit 77
}

for program in fi_info fi_pingpong unshare setpriv timeout; do
	command -v $program >/dev/null || skip "no $program"
done
if [ -z "${TROUBLE_ALONE:-}" ]; then
	unshare -m mount -t tmpfs shmcma-test /dev/shm 2>/dev/null || skip "no mounts of its own are permitted"
	TROUBLE_ALONE=1 exec unshare -m sh -c 'mount -t tmpfs -o mode=1777 shmcma-test /dev/shm && exec sh "$0"' "$0"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-trouble.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"
. "$here/rows.sh"
. "$here/pingpong.sh"

unset FI_PROVIDER
export FI_PROVIDER_PATH="$build/lib" FI_LOG_LEVEL=warn FI_LOG_PROV=shmcma
limit=600 # seconds, the last resort
first=$((20000 + $$ % 20000))

# run COMMAND...: its output in $work/out, its status in $status
run()
{
	timeout -k 10 $limit "$@" >"$work/out" 2>&1
	status=$?
}

# works COMMAND..., breaks COMMAND...
works()
{
	run "$@"
	[ $status = 0 ] || fail "status $status: $*"
}

breaks()
{
	run "$@"
	[ $status != 0 ] || fail "this works: $*"
	[ $status != 124 ] || fail "no end after $limit s: $*"
}

# both SERVER CLIENT: the two sides of fi_pingpong, each behind these words, of which there may be none
both()
{
	port=$first
	while is_listening "$port"; do
		port=$((port + 1))
	done
	pingpong="timeout -k 10 $limit fi_pingpong -p shmcma -e rdm -I 10 -S 65536 -c"
	# shellcheck disable=SC2086
	$1 $pingpong -B "$port" >"$work/server" 2>&1 &
	server=$!
	until is_listening "$port" || ! kill -0 "$server" 2>/dev/null; do
		sleep 0.1
	done
	# shellcheck disable=SC2086
	$2 $pingpong -P "$port" 127.0.0.1 >"$work/client" 2>&1
	client=$?
	[ $client = 0 ] || kill "$server" 2>/dev/null
	wait "$server"
	status=$?
	cat "$work/server" "$work/client" >"$work/out"
}

both_work()
{
	both "$@"
	[ $client = 0 ] && [ $status = 0 ] || fail "fi_pingpong: client $client, server $status"
}

both_break()
{
	both "$@"
	[ $client != 0 ] || fail "fi_pingpong works"
}

# ---- the provider is not found ----

not_found()
{
	mkdir "$work/empty"
	breaks env FI_PROVIDER_PATH="$work/empty" fi_info -p shmcma
	works fi_info -p shmcma
	says "provider: shmcma"
}

# The handler that hangs may be of a library that is not here: the program is ended once it has said enough.
truncated()
{
	mkdir "$work/cut"
	head -c 200000 "$build/lib/libshmcma-fi.so" >"$work/cut/libshmcma-fi.so"
	(
		unset IPATH_NO_BACKTRACE HFI_NO_BACKTRACE
		cd "$work" || exit 1 # the handler writes a file there
		FI_PROVIDER_PATH=$work/cut timeout -k 10 $limit fi_info -p shmcma >"$work/out" 2>&1 &
		program=$!
		while kill -0 $program 2>/dev/null && ! grep -q 'terminated with signal 7' "$work/out"; do
			sleep 0.1
		done
		kill $program 2>/dev/null && exit 0 # it hangs
		wait $program
		status=$?
		[ $status = 135 ] || [ $status = 7 ] || grep -q 'terminated with signal 7' "$work/out"
	) || fail "a truncated provider makes no bus error"
	FI_PROVIDER_PATH=$work/cut run "$build/util/shmcma" doctor
	says "$work/cut/libshmcma-fi.so"
	cp "$build/lib/libshmcma-fi.so" "$work/cut/"
	works env FI_PROVIDER_PATH="$work/cut" fi_info -p shmcma
}

read_only()
{
	mount -o remount,ro /dev/shm
	breaks fi_info -p shmcma
	says "no endpoint can be made in /dev/shm"
	mount -o remount,rw /dev/shm
	works fi_info -p shmcma
}

refused()
{
	breaks env FI_LOG_LEVEL=info fi_info -p shmcma -t FI_EP_MSG
	says "refused: ep_attr->type: asked for FI_EP_MSG, offered FI_EP_RDM"
	works fi_info -p shmcma -t FI_EP_RDM
}

misspelt()
{
	works env FI_SHMCMA_EAGR_MAX=1k fi_info -p shmcma
	says "FI_SHMCMA_EAGR_MAX is no parameter and is ignored; did you mean FI_SHMCMA_EAGER_MAX?"
	works env FI_SHMCMA_EAGER_MAX=1k fi_info -p shmcma
	says_not "is no parameter"
}

# ---- two processes that are apart ----

# Two user namespaces, which is the one cause that a test can make without a filter or a module of the kernel. That filters
# have the same effect, test/multi/test_namespaces.c shows.
no_cma()
{
	unshare -U --map-current-user true 2>/dev/null || { echo "     no user namespace is permitted here" && exit 0; }
	both_work "unshare -U --map-current-user" ""
	says "Operation not permitted; large messages from it go through shared memory"
	both_work "" ""
	says_not "Operation not permitted"
}

other_pids()
{
	both_work "unshare -p -f --kill-child --mount-proc" ""
	says "not visible in this pid namespace"
	both_work "" ""
	says_not "not visible"
}

other_shm()
{
	printf 'mount -t tmpfs shmcma-test /dev/shm && exec "$@"\n' >"$work/elsewhere"
	both_break "" "unshare -m sh $work/elsewhere"
	says "is of another machine, another boot of this one, or another /dev/shm"
	both_work "" ""
}

other_user()
{
	both_break "setpriv --reuid=43210 --clear-groups" ""
	# the process that connects first is refused, and says it
	grep -aqE 'it belongs to uid (0, and this process is uid 43210|43210, and this process is uid 0)' "$work/out" ||
		fail "the output does not name both users"
	both_work "setpriv --reuid=43210 --clear-groups" "setpriv --reuid=43210 --clear-groups"
}

# A file of another program has taken the space.
full()
{
	mount -o remount,size=64k /dev/shm
	head -c 1000000 /dev/zero >/dev/shm/other 2>/dev/null
	both_break "" ""
	says "/dev/shm is full"
	mount -o remount,size=64m /dev/shm
	both_work "" ""
	rm /dev/shm/other
}

row '`fi_info -p shmcma` finds nothing' not_found
row '`fi_info` prints `terminated with signal 7` and hangs, or dies of a bus error' truncated
row '`fi_getinfo` offers nothing; log: `no endpoint can be made in /dev/shm`' read_only
row '`fi_getinfo` offers nothing; log at `info`: `refused: ...`' refused
row 'log: `FI_SHMCMA_... is no parameter and is ignored; did you mean ...?`' misspelt
row 'log: `process_vm_readv of pid N: Operation not permitted`' no_cma
row 'log: `not visible in this pid namespace`' other_pids
row '`FI_EHOSTUNREACH`; log: `is of another machine, another boot of this one, or another /dev/shm`' other_shm
row '`FI_EACCES`; log: `it belongs to uid N, and this process is uid M`' other_user
row '`FI_ENOSPC`; log: `/dev/shm is full`' full
no_row 'a job with more ranks than processors is slow' \
	"no test asserts a time; test/multi/test_oversub.c shows that such a job ends in each mode of FI_SHMCMA_YIELD"
end_of_rows
