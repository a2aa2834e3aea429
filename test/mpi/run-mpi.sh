#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-mpi.sh [name...] - the MPI programs under Open MPI, carried by shmcma.
#
# Open MPI takes another transport without a word when a provider does not suit it. So a run
# counts only if each of its ranks has printed, when its endpoint closed, the line
# "shmcma: counters: tx_msgs=... rx_msgs=...", with both above zero; and in a run whose one-sided
# operations are to be libfabric's, rma_ops in each and rma_served in one of them.
#
# Ways in:
#   messages   pml cm over mtl ofi; one-sided operations are messages too, by osc pt2pt
#   rdma       osc rdma over btl ofi, which takes a BTL only if osc_rdma_btls names it. Messages go
#              by pml ob1 over the same BTL (btl_ofi_mode 2: both one- and two-sided)
#   mixed      osc rdma over btl ofi, messages by pml cm over mtl ofi: two endpoints in a process
#   file       what etc/openmpi-mca-params.conf says
#   windows    the same, of a program that moves large pieces by one-sided operations: the file makes messages of those on
#              memory that MPI has not allocated, so each rank has to have sent their bytes
#   env        the same by variables of the environment
#
# Prints "PASS name" or "FAIL name" for each run, and last "N passed, M failed". With names
# (p2p-2, coll-4, p2p-nocma-2, ...) makes these runs only. Exit: 0, 1, or 77 (skipped).
#
#   abs_top_builddir     has lib/libshmcma-fi.so and test/mpi/{p2p,coll,types,comm,osc}; programs
#                        that are not there are compiled to a temporary directory
#   MPICC, MPIRUN, PYTHON  tried before the usual names
#   MPI_TEST_TIMEOUT     seconds for each run, the last resort, 1200; a section of a program has 600
#   SHMCMA_NO_SKIP       if set, what cannot be run has failed: Open MPI or mpi4py is missing
#   MPI_TEST_PROVIDER    another libfabric provider, or "none" for Open MPI's own transport, to
#                        see if a failure is shmcma's; no counters are asked for then. libfabric's
#                        own shm can do the rdma runs alone

set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 99
build=${abs_top_builddir:-$(cd "$here/../.." && pwd)}
provider=${MPI_TEST_PROVIDER:-shmcma}
limit=${MPI_TEST_TIMEOUT:-1200}
wanted=" $* "
passed=0
failed=0

. "$here/openmpi.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-mpi.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# ---- what all runs share ----

case $provider in
none)
	# Open MPI 4.1's single copy writes behind the buffer of a truncated receive.
	messages="--mca btl_vader_single_copy_mechanism none --mca osc pt2pt"
	rdma='' # its own transport crashes in atomics
	mixed=''
	;;
*)
	[ "$provider" = shmcma ] || unset FI_PROVIDER FI_PROVIDER_PATH
	include="--mca opal_common_ofi_provider_include $provider"
	messages="--mca pml cm --mca mtl ofi --mca osc pt2pt $include"
	rdma="--mca pml ob1 --mca btl self,ofi --mca btl_ofi_mode 2"
	rdma="$rdma --mca osc rdma --mca osc_rdma_btls ofi $include"
	mixed="--mca pml cm --mca mtl ofi --mca btl self,ofi"
	mixed="$mixed --mca osc rdma --mca osc_rdma_btls ofi $include"
	;;
esac
case $provider in
shmcma)
	library=$build/lib/libshmcma-fi.so
	if [ ! -e "$library" ]; then
		echo "FAIL: no provider at $library"
		exit 1
	fi
	# Naming the provider is what makes it offer FI_REMOTE_COMM, which Open MPI insists on.
	export FI_PROVIDER_PATH="$build/lib" FI_PROVIDER=shmcma
	export FI_LOG_LEVEL=info FI_LOG_PROV=shmcma
	;;
shm)
	export FI_PROVIDER=shm # or libfabric keeps it to itself
	messages=''
	mixed=''
	;;
tcp)
	# In libfabric 1.17, tcp;ofi_rxm stalls behind a truncated receive.
	export MPITEST_SKIP=truncation
	;;
esac

# ---- one run ----

# The path of a program that make has built, or that is compiled now.
program()
{
	if [ -x "$build/test/mpi/$1" ]; then
		echo "$build/test/mpi/$1"
	elif [ -x "$work/$1" ] || "$mpicc" -std=c11 -O2 -o "$work/$1" "$here/$1.c" >&2; then
		echo "$work/$1"
	fi
}

# The counters of all ranks summed, in the order in which they are printed; or, with a status
# of 1, the first rank that does not show traffic.
counters()
{
	awk -v ranks="$1" -v onesided="$3" -v least="$4" '
		/shmcma: counters:/ {
			match(FILENAME, /rank\.[0-9]+/)
			rank = substr(FILENAME, RSTART + 5, RLENGTH - 5) + 0
			seen[rank]++
			sub(/.*shmcma: counters:/, "")
			for (i = 1; i <= NF; i++) {
				if (split($i, pair, "=") != 2)
					continue
				if (!(pair[1] in sum))
					names[++count] = pair[1]
				sum[pair[1]] += pair[2]
				own[rank, pair[1]] += pair[2]
			}
		}
		END {
			for (rank = 0; rank < ranks; rank++) {
				if (!seen[rank])
					complaint = "has not used shmcma"
				else if (own[rank, "tx_msgs"] <= 0 || own[rank, "rx_msgs"] <= 0)
					complaint = "has carried nothing over shmcma"
				else if (onesided && own[rank, "rma_ops"] <= 0)
					complaint = "has made no one-sided operation over shmcma"
				else if (own[rank, "tx_bytes"] < least)
					complaint = "has sent " own[rank, "tx_bytes"] " of at least " least " bytes over shmcma"
				else
					continue
				print "rank " rank " " complaint
				exit 1
			}
			if (onesided && sum["rma_served"] <= 0) {
				print "no rank has served another"
				exit 1
			}
			for (i = 1; i <= count; i++)
				printf "%s%s=%.0f", (i > 1 ? " " : ""), names[i], sum[names[i]]
			print ""
		}' "$2"/rank.*/stderr
}

# 0 if a finished run is good, with its counters in $work/sum; otherwise says why not.
judge()
{
	status=$1
	ranks=$2
	logs=$3
	mode=$4
	onesided=$5
	least=$6

	if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
		echo "no end after $limit s"
	elif [ "$status" -ne 0 ]; then
		echo "mpirun ended with status $status"
	elif ! grep -q ': [0-9][0-9]* checks passed$' "$logs/rank.0/stdout"; then
		echo "rank 0 has not said that its checks passed"
	elif [ "$provider" != shmcma ]; then
		return 0
	elif ! counters "$ranks" "$logs" "$onesided" "$least" >"$work/sum"; then
		cat "$work/sum"
	elif [ "$mode" = nocma ] && grep -q 'cma_bytes=[1-9]' "$work/sum"; then
		echo "bytes went by CMA although it was off: $(cat "$work/sum")"
	else
		return 0
	fi
	return 1
}

# What a mode changes for the provider.
enter()
{
	case $1 in
	nocma) export FI_SHMCMA_CMA=0 ;;
	strict) export FI_SHMCMA_RMA=strict ;;
	file)
		unset FI_PROVIDER # the file names it
		export OMPI_MCA_mca_base_param_files="$here/../../etc/openmpi-mca-params.conf"
		;;
	env) export OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_opal_common_ofi_provider_include=shmcma ;;
	esac
}

# run NAME RANKS WAY MODE COMMAND...: the name, with the number of ranks behind it, names the run.
run()
{
	name=$1-$2
	ranks=$2
	way=$3
	mode=$4
	logs=$work/$name
	shift 4

	case $wanted in
	"  " | *" $name "*) ;;
	*) return ;;
	esac
	onesided=1
	least=0
	case $way in
	messages)
		onesided=
		options=$messages
		;;
	rdma) options=$rdma ;;
	mixed) options=$mixed ;;
	file | windows)
		onesided=
		[ "$way" = file ] || least=$((32 << 20)) # 8 MiB put and got in two kinds of windows; osc sm has the third
		options="--mca orte_base_help_aggregate 1" # the file, or the environment, says all that matters
		;;
	esac
	[ -n "$options" ] || return
	# shellcheck disable=SC2086
	(
		enter "$mode"
		exec timeout --foreground -k 10 "$limit" "$mpirun" $launch $options -n "$ranks" \
			--output-filename "$logs:nojobid,nocopy" "$@"
	) </dev/null >"$work/mpirun" 2>&1
	status=$?

	if reason=$(judge "$status" "$ranks" "$logs" "$mode" "$onesided" "$least"); then
		passed=$((passed + 1))
		echo "PASS $name"
		sed -n 's/^/     /; / checks passed$/p' "$logs/rank.0/stdout"
		[ "$provider" != shmcma ] || sed 's/^/     /' "$work/sum"
	else
		failed=$((failed + 1))
		echo "FAIL $name"
		echo "     $reason"
		for log in "$work/mpirun" "$logs"/rank.*/std*; do
			[ -s "$log" ] || continue
			echo "     --- ${log#"$work/"}"
			# libfabric's core logs whatever FI_LOG_PROV says
			sed '/^libfabric:/{/:shmcma:/!d}' "$log" | tail -n 25 | sed 's/^/     /'
		done
	fi
	rm -rf "$logs"
}

# ---- the runs ----

for ranks in 2 4; do
	for name in p2p coll types comm; do
		run "$name" "$ranks" messages normal "$(program "$name")"
	done
	run osc-pt2pt "$ranks" messages normal "$(program osc)"
	run osc-rdma "$ranks" rdma normal "$(program osc)"
	run osc-mixed "$ranks" mixed normal "$(program osc)"
done
if [ "$provider" = shmcma ]; then
	run p2p-file 2 file file env MPITEST_ONLY="medium sizes in every mode" "$(program p2p)"
	run osc-file 2 windows file env MPITEST_ONLY="put and get, large" "$(program osc)"
	run p2p-env 2 file env "$(program p2p)"
	run p2p-nocma 2 messages nocma "$(program p2p)"
	run p2p-nocma 4 messages nocma "$(program p2p)"
	run osc-rdma-nocma 2 rdma nocma "$(program osc)"
	run osc-rdma-nocma 4 rdma nocma "$(program osc)"
	run osc-rdma-strict 2 rdma strict "$(program osc)"
	run osc-rdma-strict 4 rdma strict "$(program osc)"
fi
interpreter=$(python)
if [ -z "$interpreter" ] && [ -n "${SHMCMA_NO_SKIP:-}" ]; then
	failed=$((failed + 1))
	echo "FAIL mpi4py"
	echo "     there is no Python with mpi4py for Open MPI, but SHMCMA_NO_SKIP is set"
elif [ -n "$interpreter" ]; then
	for ranks in 2 4; do
		run mpi4py "$ranks" messages normal "$interpreter" "$here/test_mpi4py.py"
	done
	# One-sided, with arrays of numpy.
	if "$interpreter" -c 'import numpy' 2>/dev/null; then
		for ranks in 2 4; do
			run mpi4py-pt2pt "$ranks" messages normal "$interpreter" "$here/test_mpi4py_rma.py"
			run mpi4py-rdma "$ranks" rdma normal "$interpreter" "$here/test_mpi4py_rma.py"
		done
	elif [ -n "${SHMCMA_NO_SKIP:-}" ]; then
		failed=$((failed + 1))
		echo "FAIL mpi4py-rdma"
		echo "     $interpreter has no numpy, but SHMCMA_NO_SKIP is set"
	else
		echo "     no numpy: the one-sided runs of mpi4py are left out"
	fi
else
	echo "     no mpi4py: its runs are left out"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
