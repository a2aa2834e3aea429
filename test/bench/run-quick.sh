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

# without tcp, of which it takes as long as of all others
BENCH_QUICK=1 BENCH_PROVIDERS="shmcma shm" "$here/bench.py" "$build" || fail "bench.py: status $?"
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
if [ "$(nproc)" -gt 1 ]; then
	grep -qE '^(tagged_latency|bandwidth|rate),shmcma,[0-9]*,0,[^,]*,[0-9]' "$BENCH_OUT/samples.csv" ||
		fail "nobody looked how far the processors are apart"
fi
PYTHONPATH=$here python3 -B - <<END || fail "ratios are not of samples that were taken alike"
from figures import Results, Sample
near, far, nan = 40e-9, 150e-9, float("nan")
samples = [("ours", value, near) for value in (1, 1, 1)] + [("ours", 4, far)]
samples += [("theirs", value, near) for value in (2, 2)] + [("theirs", 8, far)] * 3 + [("blind", 2, nan)]
results = Results(Sample("time", subject, 8, 0, value, line) for subject, value, line in samples)
assert results.ratio("time", "ours", "theirs", 8) == (0.5, True)  # of the medians it is 0.125
assert results.ratio("time", "ours", "blind", 8) == (0.5, False)  # of the medians
assert results.ratio("time", "blind", "blind", 8) == (1, True)
assert results.ratio("time", "ours", "nobody", 8) is None
END
grep -q '^| 8 B tagged ping-pong' "$BENCH_OUT/report.md" || fail "the page has no figures to reach"
echo "all figures are there"
