#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-smoke.sh - that MPI programs run over shmcma: five runs of run-mpi.sh, which has all others.
exec sh "$(dirname "$0")/run-mpi.sh" p2p-2 p2p-file-2 coll-4 osc-rdma-2 mpi4py-2
