#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# util/bash-completion/shmcma offers the subcommands that the manual describes, and no others; the options of each
# subcommand; and processes where the subcommand takes them.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1
PATH="${abs_top_builddir:-.}/util:$PATH"
export PATH

if ! command -v bash >/dev/null; then
	echo "SKIP: no bash"
	exit 77
fi
if ! command -v shmcma >/dev/null; then
	echo "there is no util/shmcma: make first"
	exit 1
fi
status=0

# offered WORD...: what bash offers for the last word of that command line
offered()
{
	bash -c '
		. util/bash-completion/shmcma || exit
		# One process, and what belongs to an endpoint without one.
		other() {
			if [ "$1" = ps ]; then
				printf "    PID PROGRAM\n   4711 a.out\n      0 -\n"
			else
				command shmcma "$@"
			fi
		}
		COMP_WORDS=("$@")
		COMP_CWORD=$(($# - 1))
		_shmcma "$1"
		echo ${COMPREPLY[*]}' bash "$@"
}

# expect WORDS WORD...
expect()
{
	words=$1
	shift
	got=$(offered "$@")
	if [ "$got" != "$words" ]; then
		echo "\"$*\" is completed to \"$got\", not \"$words\""
		status=1
	fi
}

commands=$(sed -n 's/^\.Ss shmcma //p' man/shmcma.1 | sort | tr '\n' ' ')
expect "${commands% }" shmcma ""
expect "doctor" shmcma d
expect "--help --version" shmcma -
expect "--dry-run" shmcma reap --d
expect "--dry-run --help --json --list --verbose --version -h -l -n -v" shmcma reap -
expect "4711" other stats 4
expect "--json" other doctor --j
expect "" other tune ""
expect "" shmcma nonsense ""
# the argument of an option is no process, and the options of a job are not those of the command
expect "" other doctor -n ""
expect "" other doctor --ranks ""
expect "4711" other doctor --json ""
expect "--output" shmcma run --o
expect "--json" shmcma run -o file --j
expect "" shmcma run mpirun --o
expect "" shmcma run --output file --json mpirun --h
for command in $commands; do
	case " $(offered shmcma "$command" --) " in
	*" --help "*) ;;
	*)
		echo "--help is not offered to shmcma $command"
		status=1
		;;
	esac
done
exit $status
