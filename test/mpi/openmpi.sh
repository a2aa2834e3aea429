# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# openmpi.sh - what the tests with Open MPI share; read in by them: skip(), and Open MPI itself.
#
#   mpicc, mpirun, launch   set here: Open MPI's, and how ranks are started on one machine
#   python()                prints the Python that has mpi4py for Open MPI

skip()
{
	if [ -n "${SHMCMA_NO_SKIP:-}" ]; then
		echo "FAIL: $*, but SHMCMA_NO_SKIP is set"
		exit 1
	fi
	echo "SKIP: $*"
	exit 77
}

# The first of several names of a program that is Open MPI's; Debian's alternatives may make the
# plain name another MPI's.
openmpi()
{
	flag=$1
	shift
	for candidate; do
		[ -n "$candidate" ] || continue
		if "$candidate" "$flag" 2>/dev/null | grep -q 'Open MPI'; then
			echo "$candidate"
			return
		fi
	done
}

mpicc=$(openmpi --showme:version "${MPICC:-}" mpicc.openmpi mpicc)
mpirun=$(openmpi --version "${MPIRUN:-}" mpirun.openmpi mpirun)
[ -n "$mpicc" ] || skip "no mpicc of Open MPI"
[ -n "$mpirun" ] || skip "no mpirun of Open MPI"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# More ranks than processors: no binding, and ranks that wait make room for others.
launch="--oversubscribe --bind-to none --mca mpi_yield_when_idle 1"

# The first Python that has mpi4py for this MPI.
python()
{
	for candidate in "${PYTHON:-python3}" python3 /usr/bin/python3; do
		"$candidate" -c 'import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
raise SystemExit("Open MPI" not in MPI.Get_library_version())' 2>/dev/null || continue
		echo "$candidate"
		return
	done
}
