# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# rows.sh - what the tests share that execute rows of README's table of troubles; read in by them. A row is a function
# that makes the symptom and then applies the remedy; it says by fail() what is not as the table says.
#
#   work     a directory, set by the script before; the last program's output is in $work/out
#   passed, failed   counts, kept here

passed=0
failed=0

# In the subshell of a row.
fail()
{
	echo "     $*"
	if [ -s "$work/out" ]; then
		tail -n 15 "$work/out" | cut -c 1-300 | sed 's/^/     | /'
	fi
	exit 1
}

# row SYMPTOM FUNCTION: the first cell of the row in README, word for word
row()
{
	if ("$2"); then
		passed=$((passed + 1))
		echo "PASS $1"
	else
		failed=$((failed + 1))
		echo "FAIL $1"
	fi
}

# no_row SYMPTOM REASON: why no test executes this row
no_row()
{
	echo "     not executed: $1: $2"
}

# says WORDS, says_not WORDS: of the last output
says()
{
	grep -aqF -e "$*" "$work/out" || fail "the output does not say: $*"
}

says_not()
{
	! grep -aqF -e "$*" "$work/out" || fail "the output says: $*"
}

end_of_rows()
{
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
