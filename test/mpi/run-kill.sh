#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-kill.sh - Open MPI jobs over shmcma that are killed, and what they leave in /dev/shm.
#
#   rank        one rank is killed: mpirun ends the others, and nothing is left after the reaping command
#   errors      one rank is killed and mpirun does not care: the others get errors of MPI_ERRORS_RETURN
#   job-next    the whole job is killed, mpirun included: the next process that opens an endpoint takes all away
#   job-reap    the same: shmcma-reap shows it with -n, and takes it away
#   job-alive   the same, while a process of another job, which knows nobody of it, sleeps in the kernel with an
#               endpoint open: its thread takes it away by itself; how soon is printed
#
# Prints "PASS name" or "FAIL name" for each, and last "N passed, M failed". Exit: 0, 1, or 77 (skipped).
#
#   abs_top_builddir     has lib/libshmcma-fi.so, util/shmcma-reap and test/mpi/job
#   MPICC, MPIRUN        tried before the usual names
#   SHMCMA_NO_SKIP       if set, a missing Open MPI is a failure
#   KILL_RANKS           of a job, 4

set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 99

# A process of somebody else's would take away what is to be found here: a /dev/shm of our own, where that can be had.
if [ -z "${KILL_ALONE:-}" ] && unshare -m mount -t tmpfs shmcma-test /dev/shm 2>/dev/null; then
	KILL_ALONE=1 exec unshare -m sh -c 'mount -t tmpfs -o mode=1777 shmcma-test /dev/shm && exec sh "$0"' "$0"
fi

build=${abs_top_builddir:-$(cd "$here/../.." && pwd)}
ranks=${KILL_RANKS:-4}
limit=600 # seconds, for whatever is waited for
passed=0
failed=0

. "$here/openmpi.sh"
command -v setsid >/dev/null || skip "no setsid"

reap=$build/util/shmcma-reap
for file in "$build/lib/libshmcma-fi.so" "$reap"; do
	if [ ! -e "$file" ]; then
		echo "FAIL: no $file"
		exit 1
	fi
done

work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-kill.XXXXXX") || exit 99
trap 'kill_all; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
sessions=

export FI_PROVIDER_PATH="$build/lib" FI_PROVIDER=shmcma
launch="$launch --mca pml cm --mca mtl ofi --mca osc pt2pt --mca opal_common_ofi_provider_include shmcma"

program=$build/test/mpi/job
if [ ! -x "$program" ]; then
	program=$work/job
	"$mpicc" -std=gnu11 -O2 -o "$program" "$here/job.c" || exit 1
fi

# ---- jobs: each is a session of its own, which its processes do not leave ----

# start NAME RANKS MODE [OPTION...]: returns when all ranks run
start()
{
	name=$1
	count=$2
	mode=$3
	shift 3
	# shellcheck disable=SC2086
	setsid "$mpirun" $launch "$@" -n "$count" "$program" "$mode" </dev/null >"$work/$name" 2>&1 &
	session=$!
	sessions="$sessions $session"
	await ranks_run "$name" "$count" || return 1
	sed -n 's/^rank [0-9]* pid \([0-9]*\) runs$/\1/p' "$work/$name" >"$work/$name.pids"
}

ranks_run()
{
	[ "$(grep -c ' runs$' "$work/$1")" -ge "$2" ]
}

# Every 50 ms until it is true, or for too long.
await()
{
	tries=0
	until "$@"; do
		tries=$((tries + 1))
		if [ $tries -gt $((limit * 20)) ]; then
			echo "     in vain for $limit s: $*"
			return 1
		fi
		sleep 0.05
	done
}

members()
{
	ps -o pid= --sid "$1"
}

is_over()
{
	[ -z "$(ps -o stat= --sid "$1" | grep -v '^Z')" ]
}

# All of a job at once, mpirun first, which would end the others in a kinder way.
kill_job()
{
	# shellcheck disable=SC2046
	kill -9 "$1" $(members "$1") 2>/dev/null
	# one may have been forked meanwhile
	while ! is_over "$1"; do
		# shellcheck disable=SC2046
		kill -9 $(members "$1") 2>/dev/null
		sleep 0.02
	done
	wait "$1" 2>/dev/null
}

kill_all()
{
	for session in $sessions; do
		kill_job "$session"
	done
	sessions=
}

# Names in /dev/shm of the ranks of a job.
names()
{
	while read -r pid; do
		# the uid before the pid; in a user namespace it is not told
		ls "/dev/shm/shmcma-$(printf %08x "$(id -u)")-$(printf %08x "$pid")"-* \
			"/dev/shm/shmcma-ffffffff-$(printf %08x "$pid")"-* 2>/dev/null
	done <"$work/$1.pids"
}

has_no_names()
{
	[ -z "$(names "$1")" ]
}

check()
{
	case_name=$1
	if "case_$2"; then
		passed=$((passed + 1))
		echo "PASS $case_name"
	else
		failed=$((failed + 1))
		echo "FAIL $case_name"
		for log in "$work"/*; do
			[ -f "$log" ] || continue
			case $log in *.pids | "$program") continue ;; esac
			sed "s|^|     ${log##*/}: |" "$log" | tail -n 15
		done
	fi
	kill_all
	rm -f "$work"/*.pids "$work/job-1" "$work/other"
	"$reap"
}

now_ms()
{
	echo $(($(date +%s%N) / 1000000))
}

# ---- the cases ----

case_rank()
{
	start job-1 "$ranks" talk || return 1
	kill -9 "$(sed -n 2p "$work/job-1.pids")"
	await is_over "$session" || return 1
	"$reap" || return 1
	has_no_names job-1
}

all_have_errors()
{
	[ "$(grep -c 'got error' "$work/job-1")" -ge $((ranks - 1)) ] || is_over "$session"
}

# With three ranks each is a neighbour of the one that dies.
case_errors()
{
	saved=$ranks
	ranks=3
	start job-1 3 errors --enable-recovery || return 1
	kill -9 "$(sed -n 2p "$work/job-1.pids")"
	await all_have_errors
	count=$(grep -c 'got error' "$work/job-1")
	ranks=$saved
	echo "     $count survivors of 2 have got their error"
	[ "$count" -eq 2 ]
}

# It has left something, or nothing would be proven.
killed_job()
{
	start job-1 "$ranks" talk || return 1
	kill_job "$session"
	echo "     $(names job-1 | grep -c .) names left by $ranks ranks"
	! has_no_names job-1
}

case_job_next()
{
	killed_job || return 1
	start other 1 sleep || return 1
	has_no_names job-1
}

case_job_reap()
{
	killed_job || return 1
	names job-1 | sort >"$work/left"
	"$reap" -n | sort >"$work/shown"
	if [ -n "$(comm -23 "$work/left" "$work/shown")" ]; then
		echo "     shmcma-reap -n does not show all that is left"
		return 1
	fi
	! has_no_names job-1 && "$reap" && has_no_names job-1
}

# The survivor has nothing to do with the job.
case_job_alive()
{
	start other 1 sleep || return 1
	start job-1 "$ranks" talk || return 1
	kill_job "$session"
	begin=$(now_ms)
	await has_no_names job-1 || return 1
	echo "     clean $(($(now_ms) - begin)) ms after the last process had ended"
	! has_no_names other || { echo "     and so is the survivor, which lives"; return 1; }
}

check rank rank
check errors errors
check job-next job_next
check job-reap job_reap
check job-alive job_alive

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
