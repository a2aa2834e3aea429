#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Every file of the project names its license in one of its first lines. The corpus of the fuzzers is
# exempt: its bytes are the test. So are two files of the Debian package, whose formats have no comments.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

# files: in a checkout what is tracked or could be; in an unpacked distribution all that autogen.sh and
# configure have not made.
files()
{
	if [ -e .git ] && git ls-files --cached --others --exclude-standard 2>/dev/null; then
		return
	fi
	find . \( -name .git -o -name build-aux -o -name autom4te.cache \
		-o -name .deps -o -name _build -o -name _inst -o -name _sub -o -name 'build*' \) -prune -o \
		-type f ! -name '*.o' ! -name '*.a' ! -name '*.log' ! -name '*.trs' \
		! -name .dirstamp ! -perm -111 -print -o \
		-type f -perm -111 \( -name '*.sh' -o -name run -o -name quickstart -o -name runtests \) -print |
		sed 's|^\./||' |
		grep -vxE 'configure~?|aclocal\.m4|Makefile(\.in)?|config\.(status|log)'
}

missing=$(files | grep -vE '^(test/fuzz/corpus/|debian/changelog$|debian/source/format$)' | awk '{
		found = lines = 0
		while (!found && lines++ < 5 && (got = (getline line <$0)) > 0)
			found = line ~ /SPDX-License-Identifier: BSD-2-Clause/
		close($0)
		if (!found && (lines > 1 || got == 0)) # else it is not there: a file that is removed and not committed
			print
	}')

if [ -n "$missing" ]; then
	echo "no line 'SPDX-License-Identifier: BSD-2-Clause' near the top of:"
	echo "$missing"
	exit 1
fi
