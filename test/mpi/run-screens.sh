#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-screens.sh [-w] - what each subcommand of shmcma prints, beside an MPI job that runs, compared with the page
# docs/COMMAND.md. With -w: prints the page. To make it anew:
#
#	abs_top_builddir=build test/mpi/run-screens.sh -w >page && mv page docs/COMMAND.md
#
# The comparison is of the commands, and of what each prints without its figures: numbers, states and the length of bars
# are left out, and of lines that then are equal one is left.
#
# Exit: 0, 1, or 77 (skipped: no Open MPI, or no /dev/shm of its own).

set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 99
build=$(cd "${abs_top_builddir:-$here/../..}" && pwd) || exit 99

# In a /dev/shm of its own no other process has endpoints.
if [ -z "${SCREENS_ALONE:-}" ]; then
	if ! unshare -m mount -t tmpfs shmcma-test /dev/shm 2>/dev/null; then
		echo "SKIP: no /dev/shm of its own"
		exit 77
	fi
	export SCREENS_ALONE=1
	exec unshare -m sh -c 'mount -t tmpfs -o mode=1777,size=1g shmcma-test /dev/shm && exec sh "$0" "$@"' "$0" "$@"
fi

. "$here/openmpi.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-screens.XXXXXX") || exit 99
job=
trap 'end_job; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Ranks are killed as a job that goes wrong would be, so that reap has something to do.
end_job()
{
	[ -z "$job" ] || kill -KILL $job 2>/dev/null
	job=
}

PATH=$build/util:$PATH
FI_PROVIDER_PATH=$build/lib
export PATH FI_PROVIDER_PATH
unset FI_PROVIDER FI_SHMCMA_CALIBRATE

# The paths of this machine are no part of the page.
clean()
{
	sed "s|$build/test/mpi/||g; s|$work/||g; s|$build/lib|/usr/lib/x86_64-linux-gnu/libfabric|g; s|$build/||g; s|mpirun.openmpi|mpirun|g
		s|[[:space:]]*\$||"
}

# screen COMMAND...: as a user types it, and both of its outputs
screen()
{
	printf '\n    $ %s\n' "$*" | clean
	sh -c "$*" 2>&1 | clean | sed 's/^\(.\)/    \1/'
}

page()
{
	cat <<-'END'
		<!-- SPDX-License-Identifier: BSD-2-Clause -->
		# The command shmcma, in pictures

		`test/mpi/run-screens.sh -w` writes this page, on a machine with other work: its figures are examples, not results. The manual
		is `man shmcma`. The first pictures show an MPI job of four ranks, which runs meanwhile.

		## All commands
	END
	screen shmcma --help
	printf '\n## Which endpoints are there?\n'
	screen shmcma ps
	printf '\n## What do they carry?\n'
	screen shmcma top --once --interval 1 --sort sent
	printf '\n## What has one process carried?\n'
	screen "shmcma stats $1"
	printf '\n## Programs read JSON\n'
	screen "shmcma stats --json $1 | head -n 12"
	end_job
	while shmcma ps 2>/dev/null | grep -q ' live '; do sleep 0.1; done
	printf '\n## The job has been killed: what has it left?\n'
	screen shmcma ps
	screen shmcma reap --verbose
	printf '\n## Why is it not found, or slow?\n'
	screen shmcma doctor
	screen FI_SHMCMA_PEARS=7 shmcma doctor --ranks 400
	printf '\n## An MPI job over shmcma\n'
	screen shmcma run "$mpirun" -np 4 --oversubscribe "$(program coll)"
	printf '\n## How fast is it here?\n'
	screen shmcma bench
	printf '\n## What do copies cost here?\n'
	screen shmcma tune --measure
}

# Without figures
structure()
{
	sed -E 's/#+//g; s/fi_shmcma:[^ ]*/ADDRESS/g; s/shmcma[.-][a-z0-9.-]*[0-9a-f-]{6,}/FILE/g; s/-?\b[0-9][0-9a-zA-Z.:+*]*/N/g
		s/\b(ok|warning|fault|live|stopped)\b/STATE/g; s/^( *STATE *[A-Za-z ]+):.*/\1/; s/\(N-N\)/N/g; s/[[:space:]-]+/ /g
		s/N [kMGT]?B\b/N/g; s/ \([a-z, ]*core[a-z, ]*\)//; /WARNING/d; /^ *$/d; s/ *N */N/g; s/NN+/N/g' |
		sed -E '/^ *N?(messages|copied|through|inside|in both|of them|one.sided|requests|bytes|connections|peers|rendezvous|small|large|operations|bounce)/d' |
		uniq
}

# program NAME: its path, if need be compiled now
program()
{
	if [ -x "$build/test/mpi/$1" ]; then
		echo "$build/test/mpi/$1"
	elif "$mpicc" -std=gnu11 -O2 -o "$work/$1" "$here/$1.c" -lm >&2; then
		echo "$work/$1"
	fi
}

: >"$work/out"
"$mpirun" $launch --mca pml cm --mca mtl ofi --mca opal_common_ofi_provider_include shmcma -x FI_PROVIDER=shmcma \
	-n 4 "$(program job)" talk >"$work/out" 2>"$work/out.err" &
mpirun_pid=$!
while [ "$(grep -c ' runs$' "$work/out")" -lt 4 ]; do
	if ! kill -0 "$mpirun_pid" 2>/dev/null; then
		echo "the job has not begun:"
		cat "$work/out.err"
		exit 1
	fi
	sleep 0.1
done
ranks=$(sed -n 's/.* pid \([0-9]*\) runs$/\1/p' "$work/out" | sort -n | tr '\n' ' ')
job="$mpirun_pid $ranks"
page "${ranks%% *}" >"$work/page"
if [ "${1:-}" = -w ]; then
	cat "$work/page"
	exit
fi
structure <"$here/../../docs/COMMAND.md" >"$work/is"
structure <"$work/page" >"$work/new"
diff -u "$work/is" "$work/new" || {
	echo "the commands print something else than docs/COMMAND.md: make it anew with test/mpi/run-screens.sh -w"
	exit 1
}
