#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# in-turn.sh LIMIT COMMAND... - a test, whose name is the last word, when it is its turn: so that make -j check
# is right, with any number of jobs. Ends as the test does; one that writes nothing for LIMIT seconds is ended.
#
# A test in the list BESIDE_TESTS keeps one processor busy at most: as many of these run at a time as there are processors.
# One of IN_TURN_TESTS at a time runs beside them. Any other test runs alone.
#
# Whose turn it is, is a lock on files of the directory of the build, held for as long as the test runs, and not by what
# the test leaves behind. Without flock(1) nobody waits.
limit=$1
shift
for test; do :; done
test=test/${test##*test/}
set -- sh "$(dirname "$0")/unless-silent.sh" "$limit" "$@"

command -v flock >/dev/null || exec "$@"
case " $BESIDE_TESTS " in
*" $test "*)
	turn=0
	for each in $BESIDE_TESTS; do
		[ "$each" != "$test" ] || break
		turn=$((turn + 1))
	done
	exec flock -o -s tests.lock flock -o "tests.lock.$((turn % $(nproc)))" "$@"
	;;
esac
case " $IN_TURN_TESTS " in
*" $test "*) exec flock -o -s tests.lock flock -o tests.lock.turn "$@" ;;
esac
exec flock -o tests.lock "$@"
