#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# in-turn.sh LIMIT COMMAND... - a test, whose name is the last word, when it is its turn: so that make -j check
# is right, with any number of jobs. Ends as the test does; one that writes nothing for LIMIT seconds is ended.
#
# A test in the list BESIDE_TESTS keeps one processor busy at most, and many sleep most of their time: one more of these
# runs at a time than there are processors. Two of IN_TURN_TESTS at a time run beside them; one if SHMCMA_TEST_FULL is set,
# for some take much memory then. Any other test runs alone.
#
# Whose turn it is, is a lock on files of the directory of the build, held for as long as the test runs, and not by what
# the test leaves behind. Without flock(1) nobody waits.
limit=$1
shift
for test; do :; done
test=test/${test##*test/}
set -- sh "$(dirname "$0")/unless-silent.sh" "$limit" "$@"

command -v flock >/dev/null || exec "$@"

# lane NAMES LANES: which of the lanes this test waits for, if it is one of those names
lane()
{
	place=0
	for each in $1; do
		[ "$each" != "$test" ] || break
		place=$((place + 1))
	done
	echo $((place % $2))
}

case " $BESIDE_TESTS " in
*" $test "*) exec flock -o -s tests.lock flock -o "tests.lock.$(lane "$BESIDE_TESTS" $(($(nproc) + 1)))" "$@" ;;
esac
lanes=2
[ -z "${SHMCMA_TEST_FULL:-}" ] || lanes=1
case " $IN_TURN_TESTS " in
*" $test "*) exec flock -o -s tests.lock flock -o "tests.lock.turn.$(lane "$IN_TURN_TESTS" $lanes)" "$@" ;;
esac
exec flock -o tests.lock "$@"
