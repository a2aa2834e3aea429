#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-trouble.sh - rows of README's table of troubles that jobs of Open MPI meet. Each row makes the symptom, and shows that
# the remedy cures it. test/run-trouble.sh says where the other rows are. Exit: 0, 1, or 77 (skipped).
#
#   abs_top_builddir     has lib/libshmcma-fi.so and test/mpi/faults, which is compiled if it is not there
#   MPICC, MPIRUN, PYTHON  tried before the usual names
#   SHMCMA_NO_SKIP       if set, what cannot be run has failed
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 99
build=${abs_top_builddir:-$(cd "$here/../.." && pwd)}
limit=600 # seconds for each run, the last resort

. "$here/openmpi.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-trouble.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
. "$here/../rows.sh"

faults=$build/test/mpi/faults
if [ ! -x "$faults" ]; then
	faults=$work/faults
	"$mpicc" -std=c11 -O2 -o "$faults" "$here/faults.c" || exit 1
fi
interpreter=$(python)
[ -n "$interpreter" ] || skip "no Python with mpi4py for Open MPI"

# The recipe of README without and with what makes shmcma offer FI_REMOTE_COMM.
unset FI_PROVIDER
export FI_PROVIDER_PATH="$build/lib" FI_LOG_LEVEL=info FI_LOG_PROV=shmcma
include="--mca opal_common_ofi_provider_include shmcma"
unnamed="--mca pml cm --mca mtl ofi $include"
recipe="$unnamed -x FI_PROVIDER=shmcma"
rdma="--mca btl self,ofi --mca osc rdma --mca osc_rdma_btls ofi"

# job OPTIONS COMMAND...: two ranks
job()
{
	options=$1
	shift
	# shellcheck disable=SC2086
	timeout --foreground -k 10 "$limit" "$mpirun" $launch $options -n 2 "$@" </dev/null >"$work/out" 2>&1
	status=$?
	[ $status != 124 ] || fail "no end after $limit s"
}

works()
{
	job "$@"
	[ $status = 0 ] || fail "status $status"
}

breaks()
{
	job "$@"
	[ $status != 0 ] || fail "this works"
}

carried()
{
	[ "$(grep -ac 'shmcma: counters: tx_msgs=[1-9]' "$work/out")" -ge 2 ] || fail "shmcma has not carried the messages of both ranks"
}

with_file()
{
	(
		export OMPI_MCA_mca_base_param_files="$here/../../etc/openmpi-mca-params.conf"
		works "" "$faults" issend-probe
		carried
	)
}

not_named()
{
	breaks "$unnamed" "$faults" issend-probe
	says "PML cm cannot be selected"
	works "$recipe" "$faults" issend-probe
	carried
	with_file
}

other_way()
{
	works "-x FI_PROVIDER=shmcma" "$faults" issend-probe
	says_not "shmcma: counters:"
	works "$recipe" "$faults" issend-probe
	carried
	with_file
}

# A crash, of which mpirun says the signal.
crashes()
{
	breaks "$@"
	says "exited on signal"
}

swap()
{
	crashes "$recipe $rdma" "$faults" swap
	works "$recipe --mca osc pt2pt" "$faults" swap
	carried
}

cat >"$work/window.py" <<'END'
import sys
import mpi4py
if len(sys.argv) > 1:
    mpi4py.rc.thread_level = sys.argv[1]
from mpi4py import MPI
window = MPI.Win.Allocate(64, 1, comm=MPI.COMM_WORLD)
window.Fence()
window.Free()
END

window()
{
	breaks "$recipe --mca osc pt2pt" "$interpreter" "$work/window.py"
	works "$recipe --mca osc pt2pt" "$interpreter" "$work/window.py" funneled
	works "$recipe --mca osc sm,pt2pt" "$interpreter" "$work/window.py"
}

cat >"$work/issend.py" <<'END'
from mpi4py import MPI
world = MPI.COMM_WORLD
request = world.issend("text", dest=1, tag=1) if world.rank == 0 else None
if world.rank == 1:
    assert world.recv(source=0, tag=1) == "text"
complete = False
for _ in range(200):
    world.Sendrecv(b"x", 1 - world.rank, 2, bytearray(1), 1 - world.rank, 2)
    complete = complete or bool(request and request.Test())
if world.rank == 0 and not complete:
    print("the synchronous send is not complete", flush=True)
    world.Abort(3)
END

mprobe()
{
	breaks "$recipe" "$faults" issend-mprobe
	says "the synchronous send is not complete"
	works "$recipe" "$faults" issend-probe
	breaks "$recipe" "$interpreter" "$work/issend.py"
	says "the synchronous send is not complete"
	works "$recipe -x MPI4PY_RC_RECV_MPROBE=0" "$interpreter" "$work/issend.py"
}

cancel()
{
	crashes "$recipe" "$faults" cancel
	works "$recipe" "$faults" keep
}

row 'Open MPI finds no provider (`PML cm cannot be selected`)' not_named
row 'the job runs, but shmcma logs no counters at `info`' other_way
row 'a crash in `MPI_Compare_and_swap` with `osc rdma`, Open MPI 4.1' swap
row 'mpi4py makes no windows with `osc pt2pt`' window
row '`MPI_Issend` never completes if the receiver takes the message by `MPI_Mprobe`; mpi4py does so in `recv`' mprobe
row '`MPI_Cancel` of a send crashes' cancel
end_of_rows
