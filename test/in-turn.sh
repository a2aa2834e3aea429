#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# in-turn.sh LIMIT COMMAND... - a test, whose name is the last word, when it is its turn: so that make check
# -j is right. Unit and fuzz tests, and looks at the sources, keep one processor busy at most, and run beside
# each other; any other test runs alone. Ends as the test does; one that writes nothing for LIMIT seconds is ended.
#
# Whose turn it is, is a lock on the file tests.lock of the directory of the build, held for as long as the
# test runs, and not by what the test leaves behind. Without flock(1) nobody waits.
limit=$1
shift
for test; do :; done
set -- sh "$(dirname "$0")/unless-silent.sh" "$limit" "$@"

command -v flock >/dev/null || exec "$@"
case $test in
test/unit/* | test/fuzz/* | */check-*) exec flock -o -s tests.lock "$@" ;;
*) exec flock -o -x tests.lock "$@" ;;
esac
