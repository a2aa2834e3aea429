#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# What the documents name is there: files of this tree, functions, constants; docs/ARCHITECTURE.md names each module of
# src/ and prov/; each section of docs/MEASUREMENTS.md that a comment names is one; and each row of its table of thresholds
# gives the value that the file has, and names a section that names the constant.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1
status=0

complain()
{
	echo "$*"
	status=1
}

# What the sources call or define, a line each; LC_ALL: sort and comm agree
LC_ALL=C
export LC_ALL
there=$(mktemp) || exit 99
trap 'rm -f "$there"' EXIT
trap 'exit 1' HUP INT TERM

grep -rhoE '\b(sc|shmcma)_[a-z0-9_]+\(' src prov include | tr -d '(' | sort -u >"$there"
for document in README.md CHANGELOG.md CONTRIBUTING.md docs/*.md test/mutation/README.md; do
	for file in $(grep -oE '\b(src|prov|util|test|models|include|docs|man)/[A-Za-z0-9_/-]+\.[A-Za-z0-9]+' "$document" | sort -u); do
		[ -e "$file" ] || complain "$document names $file, which is not there"
	done
	for name in $(grep -oE '\b(sc|shmcma)_[a-z0-9_]+\(\)' "$document" | tr -d '()' | sort -u | comm -23 - "$there"); do
		complain "$document names $name(), which is not there"
	done
	# "`name()` in `file`", "`NAME` in `file`", on one line or two
	tr '\n' ' ' <"$document" | grep -oE '`([a-z0-9_]+\(\)|[A-Z][A-Z0-9_]+)` in +`[a-z]+/[A-Za-z0-9_/.-]+`' |
		sed 's/`//g; s/()/(/; s/ in */ /' |
		while read -r name file; do
			case $name in
			*'(') grep -qE "\b${name%(}\(" "$file" ;;
			*) grep -qwF "$name" "$file" ;;
			esac || echo "$document says that $name is in $file"
		done | grep . && status=1
done
grep -rhowE '[A-Z][A-Z0-9]*_[A-Z0-9_]+' src prov include test configure.ac | sort -u >"$there"
for document in docs/*.md; do
	for name in $(grep -oE '`[A-Z][A-Z0-9]*_[A-Z0-9_]+`' "$document" | tr -d '`' | sort -u | comm -23 - "$there"); do
		complain "$document names $name, which is not there"
	done
done
# 'docs/MEASUREMENTS.md, "NAME"' in a comment, on one line or two
for file in $(grep -rlI 'docs/MEASUREMENTS\.md' src prov include util); do
	sed 's/^[[:space:]]*\*[[:space:]]*//' "$file" | tr '\n' ' ' | grep -oE 'docs/MEASUREMENTS\.md, +"[^"]+"' | sed 's/.*, *"//; s/"$//' |
		while IFS= read -r section; do
			grep -qxF "## $section" docs/MEASUREMENTS.md || echo "$file names a section of docs/MEASUREMENTS.md that is not there: $section"
		done | grep . && status=1
done
# Tells whether a file defines a constant, or sets the default of a field, with exactly this value.
has_value()
{
	awk -v name="$2" -v value="$3" '
		{ line = held $0; held = "" }
		line ~ /=$/ { held = line; next }
		{
			sub(/[ \t]*\/\*.*/, "", line); sub(/^[ \t]*(#define )?\.?/, "", line); sub(/,$/, "", line)
			word = line; sub(/[ \t].*/, "", word)
			rest = substr(line, length(word) + 1); sub(/^[ \t]+(=[ \t]*)?/, "", rest)
			if (word == name && rest == value) found = 1
		}
		END { exit !found }' "$1"
}

# Tells whether a section of docs/MEASUREMENTS.md names a constant.
section_names()
{
	awk -v head="## $1" -v name="$2" '
		/^##? / { here = $0 == head }
		here && $0 ~ "(^|[^A-Za-z0-9_])" name "($|[^A-Za-z0-9_])" { found = 1 }
		END { exit !found }' docs/MEASUREMENTS.md
}

# "| `NAME` | VALUE | `FILE` | *SECTION* |"
rows=$(sed -n '/^## Thresholds$/,/^# /p' docs/MEASUREMENTS.md | sed -n 's/`//g; s/^| \(.*\) |$/\1/p' | sed 1d)
[ -n "$rows" ] || complain "docs/MEASUREMENTS.md has no table of thresholds"
while IFS='|' read -r name value file section; do
	name=${name% } value=${value# } value=${value% } file=${file# } file=${file% } section=${section# }
	has_value "$file" "$name" "$value" || complain "docs/MEASUREMENTS.md: $file does not give $name the value $value"
	case $section in
	"not recorded") ;;
	*'*'*'*')
		section=${section#*\*} section=${section%\*}
		section_names "$section" "$name" ||
			complain "docs/MEASUREMENTS.md has no section $section that names $name of $file"
		;;
	*) complain "docs/MEASUREMENTS.md: no section for $name of $file" ;;
	esac
done <<END
$rows
END

for name in $(sed -nE 's/^\t([A-Z_]+) =.*/\1/p; s/^#define (SC_ROUTE_[A-Z_]+) .*/\1/p' src/link/route.c src/link/route.h); do
	echo "$rows" | grep -q "^$name |" || complain "the table of thresholds of docs/MEASUREMENTS.md lacks $name"
done

# each entry of the glossary names a file
sed 's/^- \*\*/\f&/; s/^## .*/\f/' docs/GLOSSARY.md | tr '\n\f' ' \n' | grep '^- \*\*' |
	grep -vE '`(src|prov|include|util)/[a-z0-9_/.]+`' | sed -E 's/^- \*\*([^*]*)\*\*.*/docs\/GLOSSARY.md names no file for: \1/' |
	grep . && status=1

# each kind of record has a row in both tables of kinds, and is in a diagram
sequences=$(sed -n '/^## Sequences$/,/^## Registrations/p' docs/PROTOCOL.md | sed -n '/^```$/,/^```$/p')
for kind in $(sed -nE 's/^\tSC_ABI_([A-Z_]+) = [0-9]+,.*/\1/p' include/shmcma/abi.h | sort -u); do
	[ "$(grep -cE "^\| [A-Z_, ]*\b$kind\b" docs/PROTOCOL.md)" -ge 2 ] || complain "a table of docs/PROTOCOL.md lacks $kind"
	echo "$sequences" | grep -qw "$kind" || complain "docs/PROTOCOL.md has no diagram with $kind"
done

for module in $(ls src/*/*.[ch] prov/*/*.c | sed 's/\.[ch]$//' | sort -u); do
	grep -qE "\`$module\.[ch]\`" docs/ARCHITECTURE.md || complain "docs/ARCHITECTURE.md does not name $module"
done
exit $status
