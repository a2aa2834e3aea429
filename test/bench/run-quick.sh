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

# What depends on what is installed: MPI's. Atomics of a target that makes no calls, of which a ring takes only some.
absent='^(mpi_|(fetch_add|compare_swap|sum)_.*_passive)'

# without tcp, of which it takes as long as of all others
BENCH_QUICK=1 BENCH_PROVIDERS="shmcma shm" "$here/bench.py" "$build" || fail "bench.py: status $?"
"$here/report.py" "$build" || fail "report.py: status $?"
for figure in $("$build/test/bench/fabric_bench" -L | cut -d '|' -f 1 | grep -vE "$absent"); do
	grep -q "^$figure,shmcma,[0-9]*,0,[0-9]" "$BENCH_OUT/samples.csv" || fail "no $figure of shmcma"
done
for figure in $("$build/test/bench/floor_bench" -L | cut -d '|' -f 1); do
	grep -q "^$figure,machine," "$BENCH_OUT/samples.csv" || fail "no $figure of the machine"
done
if command -v objdump >/dev/null && FI_PROVIDER_PATH="$build/lib" valgrind -q --tool=none \
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
# What quickstart and README show: a table with its spread and a word on the load, and the same from a file.
printf '<!-- results -->\n<!-- end of results -->\n' >"$BENCH_OUT/page.md"
"$here/compare.py" -b "$build" -n 2 -t 0.5 -s 8,1024,4096,16384,65536,1048576,4194304 -o "$BENCH_OUT/messages.csv" \
	>"$BENCH_OUT/compared" || fail "compare.py: status $?"
cat "$BENCH_OUT/compared"
grep -qE '^the machine is (quiet|LOADED): others used [0-9]+% of ' "$BENCH_OUT/compared" || fail "no word on the load"
[ "$(grep -c 'times faster$' "$BENCH_OUT/compared")" = 2 ] || fail "not one column 'times faster' in each table"
[ "$(grep -cE '^ *[0-9]+( +[0-9.]+ \([0-9.]+ - [0-9.]+\)){2} +[0-9.]+\*?$' "$BENCH_OUT/compared")" = 14 ] ||
	fail "not each figure has its spread"
"$here/plot.py" "$BENCH_OUT/messages.csv" "$BENCH_OUT/page.md" || fail "plot.py: status $?"
"$here/plot.py" --check "$BENCH_OUT/messages.csv" "$BENCH_OUT/page.md" || fail "plot.py does not know its own page"
sed -i 's/^# load: .*/# load: LOADED: others used 50% of 2 processors/' "$BENCH_OUT/messages.csv"
! "$here/plot.py" --check "$BENCH_OUT/messages.csv" "$BENCH_OUT/page.md" || fail "plot.py does not see another file"
"$here/plot.py" "$BENCH_OUT/messages.csv" "$BENCH_OUT/page.md" || fail "plot.py: status $?"
for page in page.md latency.svg bandwidth.svg; do
	grep -q 'MACHINE LOADED' "$BENCH_OUT/$page" || fail "$page does not say that the machine was loaded"
done
PYTHONPATH=$here python3 -B - <<END || fail "load.py does not see the work of others"
import subprocess, sys
import load
spins = subprocess.Popen([sys.executable, "-c", "while True: pass"])
try:
    busy = load.Load(0.5)  # a child that has not ended counts as another's
finally:
    spins.kill()
    spins.wait()
assert busy.before > 0, busy.text()
assert load.is_loaded("LOADED: x") and not load.is_loaded("quiet: x")
END
grep -q '^| 8 B tagged ping-pong' "$BENCH_OUT/report.md" || fail "the page has no figures to reach"
echo "all figures are there"
