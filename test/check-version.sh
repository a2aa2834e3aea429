#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The version is that of AC_INIT in configure.ac. All files that have to repeat it agree.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1
status=0

# expect VERSION FILE EXPRESSION: what sed finds in the file, and prints, is that version
expect()
{
	found=$(sed -nE "$3" "$2" | head -n 1)
	if [ "$found" != "$1" ]; then
		echo "$2 has version \"$found\", configure.ac has $version: \"$1\" is expected"
		status=1
	fi
}

version=$(sed -nE 's/^AC_INIT\(\[shmcma\], \[([0-9]+\.[0-9]+\.[0-9]+)\]\)$/\1/p' configure.ac)
if [ -z "$version" ]; then
	echo "configure.ac has no version of three numbers in AC_INIT"
	exit 1
fi
expect "$version" CHANGELOG.md 's/^## (Unreleased: )?([0-9.]+).*/\2/p'
expect "$version" debian/changelog '1s/^shmcma \(([^)]*)\).*/\1/p'
expect "$version" packaging/rpm/shmcma.spec 's/^Version: *//p'
expect "$version" packaging/spack/packages/shmcma/package.py 's/^ *version\("([^"]*)".*/\1/p'
# libfabric has two numbers.
expect "${version%.*}" prov/base/shmcma.c 's/^\t\.version = FI_VERSION\(([0-9]+), ([0-9]+)\),$/\1.\2/p'

# CHANGELOG.md and debian/changelog call the same version unreleased.
unreleased=$(sed -nE '/^## /{s/^## Unreleased: .*/UNRELEASED/p;q}' CHANGELOG.md)
debian=$(sed -nE '1s/.*\) (UNRELEASED);.*/\1/p' debian/changelog)
if [ "$unreleased" != "$debian" ]; then
	echo "only one of CHANGELOG.md and debian/changelog says that $version is unreleased"
	status=1
fi
exit $status
