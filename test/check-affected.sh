#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The table from files to the parts of the full tests that can see a change of them (test/affected): each file of the
# project has a row, each row a file; each part is one of test/parts.sh, and each of those that ./runtests full has
# is in some row, or in the list below. CONTRIBUTING.md has a limit for each tier of tests: the budgets of the tier's
# parts add up to no more. It also names the parts that CI never takes. A model is selected by the files that its top
# comment names. Where there is git, what test/affected.sh takes for the change is seen in a repository made for
# that.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1
top=$(pwd)
# What CI has for every change, and what it has for none: what takes too long, and clang without sanitizers.
always="quickstart build clang asan tsan distribution install soak"
# Other parts of the full tests have these in them: rounds, rounds, points.
within="tests fuzz once"
status=0

complain()
{
	echo "$*"
	status=1
}

# In a checkout what is tracked or could be; else all but what autogen.sh, configure and make have made.
files()
{
	if [ -e .git ] && git ls-files --cached --others --exclude-standard 2>/dev/null; then
		return
	fi
	find . \( -name 'build*' -o -name autom4te.cache -o -name .deps -o -name _build \
		-o -name _inst -o -name _sub \) -prune -o -type f \( -name '*.[chp]*' -o -name '*.[1-9]' -o -name '*.sh' \) -print |
		sed 's|^\./||'
}

rows()
{
	grep '^[^# ][^ ]*:' test/affected
}

# list NAME: the parts of that tier in runtests, besides those for what has changed
list()
{
	sed -n "/^	$1)/,/;;/s/.*parts=\"\$parts \(.*\)\"/\1/p" runtests | tr ' ' '\n' | grep -vxE 'changed(-models)?'
}

# ---- files and rows ----

eval "has_row() { case \$1 in $(rows | sed 's/:.*//' | paste -sd '|' -)) ;; *) return 1 ;; esac; }"
lost=$(files | grep -v "^test/fuzz/corpus/" | while IFS= read -r file; do
	has_row "$file" || [ ! -e "$file" ] || echo "$file"
done)
[ -z "$lost" ] || complain "these have no row in test/affected:" "$lost"
stale=$(rows | while IFS= read -r row; do
	for file in ${row%%:*}; do
		[ -e "$file" ] || echo "${row%%:*}"
		break
	done
done)
[ -z "$stale" ] || complain "rows of test/affected that no file has:" "$stale"

# ---- parts ----

listed=$(awk '$1 == "part" { print $2 }' test/affected)
used=$(rows | sed 's/^[^:]*://' | tr ' \t' '\n\n' | sed 's/:@$//' | awk -F : '/^-?$/ { next }
	NF < 2 { print }
	NF == 2 { split($2, word, ","); for (i in word) print $1 ":" word[i] }' | sort -u)
for part in $used; do
	[ "$part" = models ] || echo "$listed" | grep -qxF "$part" || complain "test/affected tells no cost of $part"
done
for part in $listed; do
	grep -q "^part_$(echo "${part%%:*}" | tr - _)()" test/parts.sh || complain "there is no part ${part%%:*} in test/parts.sh"
	echo "$used" | grep -qxF "$part" || complain "no row of test/affected has $part"
done
for part in $(list full); do
	case " $always " in
	*" $part "*) ;;
	*)
		echo "$listed" | grep -qE "^$part(:|\$)" || complain "./runtests full has $part, which no row of test/affected has"
		;;
	esac
done
for part in $(grep -o '^part_[a-z0-9_]*' test/parts.sh | sed 's/^part_//' | tr _ -); do
	sed -n "/^budgets='/,/^'/p" test/parts.sh | grep -q "^$part [0-9]*\$" || complain "test/parts.sh has no budget of $part"
	{ list full && echo "$within" | tr ' ' '\n'; } | sed 's/:.*//' | grep -qx "$part" ||
		complain "./runtests full lacks $part"
done

# ---- tiers ----

# fits LIMIT SECONDS PART...: the seconds and the budgets of the parts are within the limit that stands beside it
fits()
{
	limit=$(awk -F ' [|] ' -v row="| \`$1\`" '$1 == row { print $NF + 0 }' CONTRIBUTING.md)
	sum=$(
		. test/parts.sh
		total=$2
		shift 2
		for part; do total=$((total + $(budget "$part"))); done
		echo "$total"
	)
	[ "$sum" -le $((${limit:-0} * 60)) ] || complain "the parts of $1 may take $sum s, of ${limit:-0} min in CONTRIBUTING.md"
	grep -q "^| \`$1\` .* at most $limit minutes" README.md || complain "README.md has another limit of $1"
}

extra=$(sed -n 's/.*SHMCMA_EXTRA:-\([0-9]*\)}.*/\1/p' test/affected.sh)
fits ./runtests 60 build tests # the seconds are those of six models
# the lists are to be split
# shellcheck disable=SC2046
fits .ci/run "$extra" $(list ci)
# shellcheck disable=SC2046
fits "./runtests full" 0 $(list full)

# Parts that cost more than CI has for all of them
never=$(awk -v extra="$extra" '$1 == "part" && $3 > extra { sub(/:.*/, "", $2); if (!seen[$2]++) printf "%s`%s`", sep, $2; sep = ", " }' \
	test/affected)
tr '\n' ' ' <CONTRIBUTING.md | grep -qF "so that CI never takes it: $never. " ||
	complain "CONTRIBUTING.md does not say that CI never takes $never"

# ---- models ----

for model in models/*.pml; do
	name=$(basename "$model" .pml)
	for file in "$model" $(awk '/^#/ { exit } { print }' "$model" | grep -oE '(src|prov)/[a-z_/]+\.[ch]' | sort -u); do
		sh test/affected.sh -m "$file" 2>/dev/null | grep -qE "^models:(.*,)?$name(,|\$)" ||
			complain "a change of $file does not select models:$name, which describes it"
	done
done

# ---- what the change is ----

work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# commit FILE TIME
commit()
{
	mkdir -p "$(dirname "$1")" && echo "$2" >>"$1" && git add -A &&
		GIT_COMMITTER_DATE="$2 +0000" git -c user.name=test -c user.email=test@example.org -c commit.gpgsign=false \
			commit -q --date="$2 +0000" -m "$1"
}

# expect WORDS OUTPUT
expect()
{
	[ "$(echo "$2" | tr '\n' ' ')" = "$1 " ] || complain "$3: affected.sh says \"$2\", not \"$1\""
}

if git --version >/dev/null 2>&1; then
	mkdir "$work/test" && cp test/affected.sh test/affected "$work/test/" && cd "$work" && git init -q . || exit 99
	unset SHMCMA_BASE SHMCMA_EXTRA
	commit models/mr.pml 1000000000
	commit models/wait.pml 1000080000
	commit models/ring.pml 1000085000
	commit README.md 1000090000
	expect models:ring,wait "$(sh test/affected.sh 2>/dev/null)" "the last four hours"
	expect models:ring "$(SHMCMA_BASE=HEAD~2 sh test/affected.sh 2>/dev/null)" "SHMCMA_BASE"
	git update-ref refs/remotes/origin/main HEAD~1
	expect "" "$(sh test/affected.sh 2>/dev/null)" "since origin/main"
	echo x >models/hold.pml
	expect models:hold "$(sh test/affected.sh 2>/dev/null)" "not committed"
	rm models/hold.pml
	git update-ref refs/remotes/origin/main HEAD
	expect models:ring,wait "$(sh test/affected.sh 2>/dev/null)" "all of it landed"
	SHMCMA_EXTRA=10
	export SHMCMA_EXTRA
	expect models:ring "$(sh test/affected.sh 2>"$work/left")" "a budget for one"
	grep -qx 'left to ./runtests full: models:wait' "$work/left" || complain "what a budget leaves out is not said"
	unset SHMCMA_EXTRA
	expect "models:mr,ring,wait" "$(SHMCMA_BASE=nothing sh test/affected.sh -m 2>/dev/null)" "no base"
	cd "$top" || exit 99
fi
exit $status
