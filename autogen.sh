#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Makes ./configure from configure.ac and Makefile.am.
set -e
cd "$(dirname "$0")"

missing=
command -v autoreconf >/dev/null || missing="$missing autoconf"
command -v automake >/dev/null || missing="$missing automake"
command -v pkg-config >/dev/null || missing="$missing pkg-config"
if [ -n "$missing" ]; then
	echo "autogen.sh: these are missing; on Debian: apt-get install$missing" >&2
	exit 1
fi

autoreconf --install --force
