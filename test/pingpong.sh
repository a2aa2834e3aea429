# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# pingpong.sh - both sides of fi_pingpong on this machine; read in by scripts that have fail() and set
#
#   work     a directory for what the two sides print
#   into     words to put before each command, as chroot's; may be empty
#   pinged   the provider, by default shmcma
#   server   set here: the process of the server while it runs, to be killed by whoever leaves meanwhile

server=''

# The server listens on that TCP port, over which the two sides of fi_pingpong find each other.
is_listening()
{
	cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
		grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") [0-9A-F:]+ 0A"
}

# pingpong PORT OPTION...: all sizes, data checked, on the first free port from that
pingpong()
{
	port=$1
	shift
	while is_listening "$port"; do
		port=$((port + 1))
	done
	# shellcheck disable=SC2086
	set -- timeout 600 ${into:-} fi_pingpong -p "${pinged:-shmcma}" -e rdm -S all -c "$@"
	printf '+ %s -B %s &\n' "$*" "$port"
	"$@" -B "$port" >"$work/server" 2>&1 &
	server=$!
	until is_listening "$port" || ! kill -0 "$server" 2>/dev/null; do
		sleep 0.2
	done
	printf '+ %s -P %s 127.0.0.1\n' "$*" "$port"
	"$@" -P "$port" 127.0.0.1 >"$work/client" 2>&1
	client=$?
	[ "$client" = 0 ] || kill "$server" 2>/dev/null
	wait "$server"
	status=$?
	server=
	tail -n 3 "$work/client"
	if [ "$client" != 0 ] || [ "$status" != 0 ]; then
		sed 's/^/  server: /' "$work/server"
		sed 's/^/  client: /' "$work/client"
		fail "$*: client $client, server $status"
	fi
}
