#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# in-turn.sh LIMIT COMMAND... - a test, whose name is the last word, when it is its turn: so that make check
# -j is right. A test in the list BESIDE_TESTS keeps one processor busy at most, and runs beside others of that list;
# any other test runs alone. Ends as the test does; one that writes nothing for LIMIT seconds is ended.
#
# Whose turn it is, is a lock on the file tests.lock of the directory of the build, held for as long as the
# test runs, and not by what the test leaves behind. Without flock(1) nobody waits.
limit=$1
shift
for test; do :; done
set -- sh "$(dirname "$0")/unless-silent.sh" "$limit" "$@"

command -v flock >/dev/null || exec "$@"
case " $BESIDE_TESTS " in
*" test/${test##*test/} "*) exec flock -o -s tests.lock "$@" ;;
*) exec flock -o -x tests.lock "$@" ;;
esac
