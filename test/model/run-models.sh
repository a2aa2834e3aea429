#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-models.sh - the protocols of models/*.pml, searched exhaustively by Spin; and their mutants, each of
# which must break an assertion, or the model would not notice what it is there for.
#
# Prints "PASS ..." or "FAIL ..." for each, and last "N passed, M failed". Exit: 0, 1, or 77 (skipped).
#
#   SPIN, CC         tried before the usual names
#   SHMCMA_NO_SKIP   if set, a missing Spin is a failure

set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 99
models=$here/../../models
spin=${SPIN:-spin}
cc=${CC:-cc}
passed=0
failed=0

if ! command -v "$spin" >/dev/null; then
	if [ -n "${SHMCMA_NO_SKIP:-}" ]; then
		echo "FAIL: no spin, but SHMCMA_NO_SKIP is set"
		exit 1
	fi
	echo "SKIP: no spin"
	exit 77
fi

work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 99

# search MODEL DEFINE...: into pan.log; fails if that cannot be done
search()
{
	model=$models/$1.pml
	shift
	rm -f pan pan.* ./*.trail
	{
		"$spin" -a "$@" "$model" &&
			$cc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c &&
			./pan -m100000 -n
	} >pan.log 2>&1
}

# complete: every state has been seen
complete()
{
	! grep -qE 'max search depth too small|out of memory|Search not completed' pan.log
}

report()
{
	if [ "$1" = ok ]; then
		passed=$((passed + 1))
		echo "PASS $2"
	else
		failed=$((failed + 1))
		echo "FAIL $2"
		tail -n 30 pan.log | sed 's/^/     /'
	fi
}

holds()
{
	if search "$@" && complete && grep -q 'errors: 0$' pan.log; then
		report ok "$* ($(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log) states)"
	else
		report bad "$*"
	fi
}

breaks()
{
	search "$@"
	if grep -q 'assertion violated' pan.log && grep -q 'errors: 1$' pan.log; then
		report ok "$* breaks"
	else
		report bad "$* should break"
	fi
}

holds mr
holds mr -DAPPKEY
holds mr -DNI=1 -DROUNDS=2 -DGENS=3
holds mr -DNI=1 -DROUNDS=2 -DGENS=3 -DAPPKEY
breaks mr -DFI=0
breaks mr -DFT=0
breaks mr -DDEATH=2
breaks mr -DSTOP=2
breaks mr -DCHECK=0
breaks mr -DORDER=2
breaks mr -DREUSE=2
holds mr -DSTRICT
holds mr -DSTRICT -DAPPKEY
breaks mr -DSTRICT -DONCE
breaks mr -DSTRICT -DUNLOCKED
breaks mr -DSTRICT -DAPPKEY -DANYTAG

holds reap
breaks reap -DMUT=1
breaks reap -DMUT=2
breaks reap -DMUT=3

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
