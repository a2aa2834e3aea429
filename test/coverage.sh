#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# coverage.sh [-v] [FILE...] - branch coverage of the files that decide about life, death and validity, by
# their unit tests, with gcov. FILE: of src/, without .c; by default all of them.
#
# Builds the core with --coverage, fault injection on and assertions off, in a directory of its own, runs the
# unit tests, and prints for each file the branches that
# were taken, and with -v those that were not, with their lines. A branch that cannot be taken, and why,
# is in test/coverage.md.
#
#   CC, GCOV       gcc and its gcov
#   COVERAGE_DIR   where to build, kept; else a temporary directory
#   COVERAGE_TESTS unit tests to run, by name, instead of all
set -u
cd "$(dirname "$0")/.." || exit 1

verbose=
if [ "${1:-}" = -v ]; then
	verbose=1
	shift
fi
cc=${CC:-gcc}
gcov=${GCOV:-gcov}
dir=${COVERAGE_DIR:-}
if [ -z "$dir" ]; then
	dir=$(mktemp -d "${TMPDIR:-/tmp}/shmcma-coverage.XXXXXX") || exit 1
	trap 'rm -rf "$dir"' EXIT
fi
mkdir -p "$dir/o" "$dir/t" "$dir/g"
ln -sfn "$PWD/src" "$dir/g/src" # where gcov looks for the sources
ln -sfn "$PWD/include" "$dir/g/include"
files=${*:-live reap host own daemon peer seg header addr service regtab reg record}

# The flags of configure --enable-fault-injection; -O0: a branch of the source is one of the program.
flags="-std=gnu11 -O0 -g -DNDEBUG -DSC_FAULT_INJECTION -Iinclude -fPIC -pthread"

for source in src/*.c; do
	object=$dir/o/$(basename "$source" .c).o
	# shellcheck disable=SC2086
	$cc $flags --coverage -c "$source" -o "$object" || exit 1
done
rm -f "$dir/libcore.a"
ar rcs "$dir/libcore.a" "$dir"/o/*.o || exit 1 # a test may have some of its own in place of ours
find "$dir/o" -name '*.gcda' -delete

# A process that ends by _exit(2), or kills itself, has its counts written before.
cat >"$dir/t/dump.c" <<'END' || exit 1
#include <sys/types.h>
#include <unistd.h>
void __gcov_dump(void);
void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status);
int __real_kill(pid_t pid, int signal);
int __wrap_kill(pid_t pid, int signal);
void __wrap__exit(int status)
{
	__gcov_dump();
	__real__exit(status);
}
int __wrap_kill(pid_t pid, int signal)
{
	if (pid == getpid())
		__gcov_dump();
	return __real_kill(pid, signal);
}
END
# shellcheck disable=SC2086
$cc $flags -c "$dir/t/dump.c" -o "$dir/t/dump.o" || exit 1

tests=${COVERAGE_TESTS:-$(cd test/unit && ls test_*.c | sed 's/\.c$//')}
for test in $tests; do
	# shellcheck disable=SC2086
	$cc $flags -Isrc -Itest/unit -o "$dir/t/$test" "test/unit/$test.c" "$dir/t/dump.o" "$dir/libcore.a" \
		--coverage -Wl,--wrap=_exit,--wrap=kill -lcmocka -lpthread || exit 1
	timeout 300 "$dir/t/$test" >"$dir/t/$test.log" 2>&1 ||
		echo "coverage: $test ended with status $?: $(tail -n 1 "$dir/t/$test.log")"
done

status=0
for file in $files; do
	[ -f "src/$file.c" ] || continue
	(cd "$dir/g" && $gcov -b -c -o ../o "$file.o" >/dev/null 2>&1)
	awk -v file="$file.c" -v verbose="$verbose" '
		/^ *(-|#####|=====|[0-9]+\*?): *[0-9]+:/ {
			split($0, part, ":")
			line = part[2] + 0
			text = substr($0, index($0, part[2] ":") + length(part[2]) + 1)
			next
		}
		/^branch/ {
			all++
			if (/never executed/ || /taken 0( |$)/)
				missing[++count] = sprintf("  %s:%d%s\t%s", file, line,
					/never executed/ ? " (not reached)" : "", text)
			else
				taken++
		}
		END {
			printf "%-12s %4d of %4d branches, %.1f %%\n", file, taken, all,
				all ? 100 * taken / all : 100
			for (i = 1; verbose && i <= count; i++)
				if (missing[i] != missing[i - 1])
					print missing[i]
		}' "$dir/g/$file.c.gcov" || status=1
done
exit $status
