#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# affected.sh [-m] [FILE...] - the parts of the full tests (test/parts.sh) that can see what has changed, one a
# line, by the table in test/affected. With -m only the models. FILE: what has changed, instead of asking git.
#
# What has changed since a commit is what git says, with what is not committed yet. The commit is
#
#   SHMCMA_BASE        if it is set;
#   the last one that origin/main has as well, if HEAD has more, as in a clone where somebody works;
#   the last one before the four hours that end with HEAD, in any other clone: what was merged last is a change.
#
# Where there is no git, or the history is too short, everything has changed.
#
# The parts are taken in the order of the table, while their costs are at most SHMCMA_EXTRA seconds together, by
# default 180; the others are named on the standard error output.
cd "$(dirname "$0")/.." || exit 1
table=test/affected
models=
if [ "${1:-}" = -m ]; then
	models=1
	shift
fi

base()
{
	if [ -n "${SHMCMA_BASE:-}" ]; then
		git rev-parse -q --verify "$SHMCMA_BASE^{commit}" ||
			echo "affected.sh: SHMCMA_BASE=$SHMCMA_BASE is no commit here: everything has changed" >&2
		return
	fi
	if landed=$(git merge-base HEAD origin/main 2>/dev/null) && [ "$landed" != "$(git rev-parse HEAD)" ]; then
		echo "$landed"
		return
	fi
	git rev-list -n 1 --first-parent --before="$(($(git log -1 --format=%ct) - 4 * 3600))" HEAD
}

changed()
{
	if [ -e .git ] && since=$(base) && [ -n "$since" ]; then
		echo "changed since $(git log -1 --format='%h of %ci' "$since"):" >&2
		git diff --name-only --no-renames "$since"
		git ls-files --others --exclude-standard
	else
		echo "no base to compare with: everything has changed" >&2
		git ls-files 2>/dev/null | grep . || sed -n 's/^\([^# ][^ ]*\):.*/\1/p' "$table"
	fi
}

# selected: the parts of the files that are read, by their rows
selected()
{
	awk -v table="$table" '
		BEGIN {
			while ((getline row <table) > 0)
				if (row ~ /^[^# ][^ ]*:/) {
					name = substr(row, 1, index(row, ":") - 1)
					gsub(/[.]/, "[.]", name)
					gsub(/[*]/, ".*", name)
					pattern[++rows] = "^" name "$"
					parts[rows] = substr(row, index(row, ":") + 1)
				}
		}
		{
			name = $0
			sub(".*/", "", name)
			sub("[.][^.]*$", "", name)
			for (i = 1; i <= rows; i++)
				if ($0 ~ pattern[i]) {
					count = split(parts[i], word, " ")
					for (j = 1; j <= count; j++) {
						sub("@", name, word[j])
						print word[j]
					}
				}
		}' | awk -F : 'NF < 2 && !/^-?$/
		NF == 2 { split($2, word, ","); for (i in word) print $1 ":" word[i] }' | sort -u
}

if [ $# = 0 ]; then
	changed
else
	printf '%s\n' "$@"
fi | selected | awk -v models="$models" -v room="${SHMCMA_EXTRA:-180}" -v table="$table" '
	{ wanted[$1] }
	END {
		while ((getline line <table) > 0) {
			if (split(line, word, " ") != 3 || word[1] != "part")
				continue
			part = word[2]
			name = part
			sub(/:.*/, "", name)
			if (!(part in wanted) || (models && name != "models"))
				continue
			if (word[3] > room) {
				left = left " " part
				continue
			}
			room -= word[3]
			if (!(name in words))
				order[++count] = name
			words[name] = words[name] (name in words ? "," : "") (part == name ? "" : substr(part, length(name) + 2))
		}
		for (i = 1; i <= count; i++) {
			list = words[order[i]]
			sub(/^,/, "", list)
			print order[i] (list == "" ? "" : ":" list)
		}
		if (left != "")
			print "left to ./runtests full:" left >"/dev/stderr"
	}'
