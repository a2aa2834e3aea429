#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# unless-silent.sh LIMIT COMMAND... - runs the command, and ends it when it has written nothing for LIMIT seconds to its
# standard output, which is a file in make check. So a long test goes on while it tells of its progress, however slow
# the machine is. Ends as the command does. Where the output is no file, there is no limit.
limit=$1
shift
[ -f /proc/self/fd/1 ] || exec "$@"

# timeout(1) without a limit of its own: a group of processes, which ends as a whole
timeout -k 10 0 "$@" &
command=$!
trap 'kill "$command"' HUP INT TERM

exec 3>&1
(
	size=
	silent=0
	while sleep 5 && kill -0 "$command" 2>/dev/null; do
		now=$(stat -L -c %s /proc/self/fd/3)
		[ "$now" = "$size" ] && silent=$((silent + 5)) || silent=0
		size=$now
		[ "$silent" -lt "$limit" ] && continue
		echo "unless-silent.sh: nothing was written for $limit s: $*" >&2
		kill "$command"
		break
	done
) &
watcher=$!
wait "$command"
status=$?
kill "$watcher" 2>/dev/null
exit $status
