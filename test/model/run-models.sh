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
	if grep -qE 'assertion violated|invalid end state \(at' pan.log && grep -q 'errors: 1$' pan.log; then
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
holds reap -DTHREADS
breaks reap -DNAMED=0
breaks reap -DNAMED=2
breaks reap -DTAKE=0
breaks reap -DOPINION=0
breaks reap -DORDER=2
breaks reap -DORDER=3
breaks reap -DGOODBYE=2
breaks reap -DTHREADS -DHOLD=0

holds ring
holds ring -DNR=1 -DMSGS=7
breaks ring -DRECLAIM=0
breaks ring -DRECLAIM=2
for mutant in RELEASE=0 ACQUIRE=0 FIRST=1 LAPS=0 HEAD=2 ROOM=0 PUBLISH=3 CREDIT=2 RETURN=2 RECLAIM=3 DRAIN=0 \
	DRAIN=2; do
	breaks ring -DNR=1 -DMSGS=7 -D$mutant
done

holds connect
holds connect -DSLOTS=2
holds connect -DNP=2
breaks connect -DNP=2 -DUNDO=0
for mutant in COUNT=2 COUNT=0 INTRO=2 CLAIM=0 ANSWER=2 ANSWER=0 CLEAN=2 CLEAN=0 LATER=0 SEEN=2 WATCH=0 ASK=0; do
	breaks connect -D$mutant
done

holds close
holds close -DONEWAY
for mutant in LOOK=0 ENDED=0 DETACH=2; do
	breaks close -D$mutant
done
for mutant in KEEP=0 ANSWER=2 UNREAD=2 DRAIN=0 CLOSED=2 LEAVE=0 LEFT=0 SEEN=0 MARK=0 MARK=2; do
	breaks close -DONEWAY -D$mutant
done

holds offer
holds offer -DL=3
holds offer -DL=1 -DOFFERS=2
for mutant in TAKE=0 WITHDRAW=0 PASS=0 SETTLE=0 NEW=0 OTHER=0 HELD=0 ENDED=2 DONE=2 DEATH=2; do
	breaks offer -D$mutant
done
breaks offer -DL=3 -DREAD=2
breaks offer -DL=3 -DRETURN=0
holds wait
holds wait -DNW=1 -DMSGS=3
for mutant in BARRIER=0 ARM=2 SEEN=2 COUNT=0 CLEAR=2 CLEAR=3 ARMING=0 BELL=0; do
	breaks wait -D$mutant
done
holds wait -DWATCHER -DNW=1 -DMSGS=2
for mutant in BARRIER=0 ARM=2 LOWER=2 HEARD=2; do
	breaks wait -DWATCHER -DNW=1 -DMSGS=2 -D$mutant
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
