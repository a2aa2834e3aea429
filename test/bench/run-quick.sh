#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The benchmark runs: one quick turn of all that it measures, so that it does not rot. That every figure of
# shmcma's is there, in the samples and on the page, is asserted; what the figures are, is not.
#
#   abs_top_builddir   where the programs are
here=$(cd "$(dirname "$0")" && pwd) || exit 99
build=${abs_top_builddir:-$(cd "$here/../.." && pwd)}

skip()
{
	if [ -n "${SHMCMA_NO_SKIP:-}" ]; then
		echo "FAIL: $*, but SHMCMA_NO_SKIP is set"
		exit 1
	fi
	echo "SKIP: $*"
	exit 77
}

fail()
{
	echo "FAIL: $*"
	exit 1
}

command -v python3 >/dev/null || skip "no python3"
BENCH_OUT=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-bench.XXXXXX") || exit 99
export BENCH_OUT
trap 'rm -rf "$BENCH_OUT"' EXIT
trap 'exit 1' HUP INT TERM

# What depends on what is installed, or on the provider: MPI's; what no passive target has.
absent='^(mpi_|fetch_add_.*_passive|compare_swap_.*_passive)'

BENCH_QUICK=1 "$here/bench.py" "$build" || fail "bench.py: status $?"
"$here/report.py" "$build" || fail "report.py: status $?"
for figure in $("$build/test/bench/fabric_bench" -L | cut -d '|' -f 1 | grep -vE "$absent"); do
	grep -q "^$figure,shmcma,[0-9]*,0,[0-9]" "$BENCH_OUT/samples.csv" || fail "no $figure of shmcma"
done
for figure in $("$build/test/bench/floor_bench" -L | cut -d '|' -f 1); do
	grep -q "^$figure,machine," "$BENCH_OUT/samples.csv" || fail "no $figure of the machine"
done
if command -v objdump >/dev/null && FI_PROVIDER_PATH="$build/.libs" valgrind -q --tool=none \
	"$build/test/bench/call_bench" shmcma messages 2>/dev/null; then
	for figure in post send to_ring receive to_queue idle; do
		grep -q "^instructions_$figure,shmcma,8,0,[0-9]" "$BENCH_OUT/samples.csv" ||
			fail "no instructions_$figure of shmcma"
	done
fi
grep -q '^| 8 B tagged ping-pong' "$BENCH_OUT/report.md" || fail "the page has no figures to reach"
echo "all figures are there"
