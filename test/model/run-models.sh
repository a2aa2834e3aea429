#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# run-models.sh - the protocols of models/*.pml, searched exhaustively by Spin; and their mutants, each of
# which must break an assertion, or the model would not notice what it is there for.
#
# Prints "PASS ..." or "FAIL ..." for each, and last "N passed, M failed". Exit: 0, 1, or 77 (skipped).
#
#   SPIN, CC         tried before the usual names
#   TCC              compiles what ends early in a tenth of the time; tcc, if there is one
#   JOBS             searches at a time, 2
#   SHMCMA_MODELS    names of models: these only
#   SHMCMA_NO_SKIP   if set, a missing Spin is a failure

set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 99
models=$here/../../models
spin=${SPIN:-spin}
cc=${CC:-cc}
tcc=${TCC:-tcc}
command -v "$tcc" >/dev/null || tcc="$cc -O0"
jobs=${JOBS:-2}

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

# search COMPILER BITS MODEL DEFINE...: into pan.log; fails if that cannot be done. Its table has 2^BITS places
# at first; of states mr has 1.2 GB.
search()
{
	compiler=$1
	bits=$2
	model=$models/$3.pml
	shift 3
	rm -f pan pan.* ./*.trail
	{
		"$spin" -a "$@" "$model" && $compiler -w -DSAFETY -o pan pan.c && ./pan -m100000 -w"$bits" -n
	} >pan.log 2>&1
}

# complete: every state has been seen
complete()
{
	! grep -qE 'max search depth too small|out of memory|Search not completed' pan.log
}

bad()
{
	echo "FAIL $*"
	tail -n 30 pan.log | sed 's/^/     /'
}

holds()
{
	if search "$cc -O1" 24 "$@" && complete && grep -q 'errors: 0$' pan.log; then
		echo "PASS $* ($(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log) states)"
	else
		bad "$*"
	fi
}

# The search ends early; to compile it takes longer than to run it.
breaks()
{
	search "$tcc" 20 "$@"
	if grep -qE 'assertion violated|invalid end state \(at' pan.log && grep -q 'errors: 1$' pan.log; then
		echo "PASS $* breaks"
	else
		bad "$* should break"
	fi
}

list()
{
	echo holds mr
	echo holds mr -DAPPKEY
	echo holds mr -DNI=1 -DROUNDS=2 -DGENS=3
	echo holds mr -DNI=1 -DROUNDS=2 -DGENS=3 -DAPPKEY
	echo breaks mr -DFI=0
	echo breaks mr -DFT=0
	echo breaks mr -DDEATH=2
	echo breaks mr -DSTOP=2
	echo breaks mr -DCHECK=0
	echo breaks mr -DORDER=2
	echo breaks mr -DREUSE=2
	echo holds mr -DSTRICT
	echo holds mr -DSTRICT -DAPPKEY
	echo breaks mr -DSTRICT -DONCE
	echo breaks mr -DSTRICT -DUNLOCKED
	echo breaks mr -DSTRICT -DAPPKEY -DANYTAG

	echo holds reap
	echo holds reap -DTHREADS
	echo breaks reap -DNAMED=0
	echo breaks reap -DNAMED=2
	echo breaks reap -DTAKE=0
	echo breaks reap -DOPINION=0
	echo breaks reap -DORDER=2
	echo breaks reap -DORDER=3
	echo breaks reap -DGOODBYE=2
	echo breaks reap -DTHREADS -DHOLD=0

	echo holds ring
	echo holds ring -DNR=1 -DMSGS=7
	echo breaks ring -DRECLAIM=0
	echo breaks ring -DRECLAIM=2
	for mutant in RELEASE=0 ACQUIRE=0 FIRST=1 LAPS=0 HEAD=2 ROOM=0 PUBLISH=3 CREDIT=2 RETURN=2 RECLAIM=3 DRAIN=0 \
		DRAIN=2; do
		echo breaks ring -DNR=1 -DMSGS=7 -D$mutant
	done

	echo holds connect
	echo holds connect -DSLOTS=2
	echo holds connect -DNP=2
	echo breaks connect -DNP=2 -DUNDO=0
	for mutant in COUNT=2 COUNT=0 INTRO=2 CLAIM=0 ANSWER=2 ANSWER=0 CLEAN=2 CLEAN=0 LATER=0 SEEN=2 WATCH=0 ASK=0; do
		echo breaks connect -D$mutant
	done

	echo holds close
	echo holds close -DONEWAY
	for mutant in LOOK=0 ENDED=0 DETACH=2; do
		echo breaks close -D$mutant
	done
	for mutant in KEEP=0 ANSWER=2 UNREAD=2 DRAIN=0 CLOSED=2 LEAVE=0 LEFT=0 SEEN=0 MARK=0 MARK=2; do
		echo breaks close -DONEWAY -D$mutant
	done

	echo holds delegate
	echo holds delegate -DL=3
	echo holds delegate -DL=1 -DOFFERS=2
	for mutant in TAKE=0 WITHDRAW=0 PASS=0 SETTLE=0 NEW=0 OTHER=0 HELD=0 ENDED=2 DONE=2 DEATH=2; do
		echo breaks delegate -D$mutant
	done
	echo breaks delegate -DL=3 -DREAD=2
	echo breaks delegate -DL=3 -DRETURN=0

	echo holds rescue
	for mutant in MORE=0 KEEPER=0 WAIT=0 ADDED=0 ENDED=0 RIGHT=0; do
		echo breaks rescue -D$mutant
	done
	echo holds rescue -DDIES=1 -DN=3 -DD=3
	for mutant in TOLD=0 BEFORE=0 AGAIN=0 HEIR=0; do
		echo breaks rescue -DDIES=1 -DN=3 -DD=3 -D$mutant
	done

	echo holds grow
	for mutant in ROOM=0 TELL=0 TELL=2 TELL=3 CLEAR=0 CLEAR=2 LATER=0; do
		echo breaks grow -D$mutant
	done

	echo holds overflow
	for mutant in CLEAR=0 CLEAR=2 RESUME=0 LEFT=0 BACK=0 LAP=0 PLACE=0 SINCE=2; do
		echo breaks overflow -D$mutant
	done

	echo holds putback
	for mutant in PIN=0 PIN=2 PASS=0 PEEK=0 HOLD=0 HEIR=0 TELL=0; do
		echo breaks putback -D$mutant
	done

	echo holds hold
	echo holds hold -DNB=2 -DL=3
	for mutant in PEEK=0 PEEK=2 PASS=2 PASS=3 ONE=0 FLAG=0 HELD=2 GIVE=0 TAKE=2 LAST=0 ORDER=2 ALONE=0 FIRST=1 \
		RELEASE=0 PUBLISH=0 READ=2 LEARN=2 SAID=2 BOTH=1 REST=0 DROP=0 DROP=2 KEEP=0 KEEP=2 KEEP=3 FORGET=0 \
		DRAIN=0; do
		echo breaks hold -D$mutant
	done

	echo holds wait
	echo holds wait -DNW=1 -DMSGS=3
	for mutant in BARRIER=0 ARM=2 SEEN=2 COUNT=0 CLEAR=2 CLEAR=3 ARMING=0 BELL=0; do
		echo breaks wait -D$mutant
	done
	echo holds wait -DWATCHER -DNW=1 -DMSGS=2
	for mutant in BARRIER=0 ARM=2 LOWER=2 HEARD=2; do
		echo breaks wait -DWATCHER -DNW=1 -DMSGS=2 -D$mutant
	done
}

# wanted: the lines of the list that SHMCMA_MODELS has
wanted()
{
	list | awk -v models=" ${SHMCMA_MODELS:-} " 'models ~ /^ *$/ || index(models, " " $2 " ")'
}

for model in ${SHMCMA_MODELS:-}; do
	if ! list | grep -q "^holds $model\( \|\$\)"; then
		echo "FAIL: there is no model $model"
		exit 1
	fi
done

# Some at a time: every job takes each jobs-th line of the list from its own on.
k=0
while [ "$k" -lt "$jobs" ]; do
	mkdir "$k"
	(
		cd "$k" || exit 1
		wanted | awk -v n="$jobs" -v k="$k" 'NR % n == k' | while read -r expectation search; do
			# the list is to be split
			# shellcheck disable=SC2086
			$expectation $search </dev/null
		done
	) >"out.$k" &
	k=$((k + 1))
done
wait
cat out.*
passed=$(cat out.* | grep -c '^PASS ')
failed=$(($(wanted | wc -l) - passed))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
