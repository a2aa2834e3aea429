# shellcheck shell=sh
# SPDX-License-Identifier: BSD-2-Clause
#
# chroot.sh - roots with Debian, which mmdebstrap makes from the mirror that this system's apt uses; read in by scripts
# of test/ that set work, a directory for logs. They have to be at the top of the tree.

fail()
{
	echo "$(basename "$0" .sh): $*" >&2
	exit 1
}

skip()
{
	[ -z "${SHMCMA_NO_SKIP:-}" ] || fail "$*, but SHMCMA_NO_SKIP is set"
	echo "SKIP: $*"
	exit 77
}

run()
{
	printf '+ %s\n' "$*"
	"$@"
}

# parse_arguments [-d DIR] [BUILD]: sets root, empty or a directory that stays, and build
parse_arguments()
{
	root=
	if [ "${1:-}" = -d ]; then
		mkdir -p "$2" || exit 1
		root=$(cd "$2" && pwd) || exit 1
		shift 2
	fi
	build=${1:-build}
}

# needs_root: a root can be made here, or the script is skipped
needs_root()
{
	[ "$(id -u)" = 0 ] || skip "a chroot needs root"
	for program in mmdebstrap apt-get unshare chroot; do
		command -v $program >/dev/null || skip "no $program"
	done
	unshare --mount --pid --fork --mount-proc true || skip "namespaces or mounts are not permitted"
}

# in_namespaces ARGUMENT...: this script again, with those arguments, as the first process of namespaces of its own: its
# mounts and all its processes, mmdebstrap's too, end with it.
in_namespaces()
{
	chmod 755 "$work" # apt downloads as another user
	unshare --mount --pid --fork --kill-child --mount-proc sh "test/$(basename "$0")" "$@"
}

# Where this system has its own Debian from.
mirror()
{
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' |
		head -n 1
}

# make_chroot ROOT SUITE PACKAGES OPTION...: OPTION of mmdebstrap. A root that is there is used if it was made of this.
make_chroot()
{
	root=$1
	shift
	made="$*"
	suite=$1
	packages=$2
	shift 2
	if [ -e "$root/.shmcma" ]; then
		[ "$(cat "$root/.shmcma")" = "$made" ] || fail "$root was made of other packages: remove it"
		echo "$root is there"
		return
	fi
	[ -z "$(ls "$root" 2>/dev/null)" ] || fail "$root is no chroot of this script"
	uri=$(mirror)
	[ -n "$uri" ] || skip "apt knows no mirror of Debian; maybe after: apt-get update"
	apt-config dump | grep -E '^Acquire::(https?|Check|Retries)' >"$work/apt.conf"
	set -- timeout -k 10 900 mmdebstrap --mode=root --include="$packages" --aptopt="$work/apt.conf" "$@" "$suite" \
		"$root" "$uri"
	printf '+ %s\n' "$*"
	"$@" >"$work/mmdebstrap" 2>&1 || {
		rm -rf --one-file-system "$root"
		cat "$work/mmdebstrap"
		skip "mmdebstrap cannot make a chroot of Debian's $suite, see above"
	}
	echo "$made" >"$root/.shmcma"
}

# furnish_chroot ROOT: what a running system has; /tmp and /dev/shm are memory, the root stays as it was made.
furnish_chroot()
{
	mkdir -p "$1/proc" "$1/sys" "$1/dev" "$1/tmp" &&
		mount -t proc proc "$1/proc" &&
		mount --rbind /sys "$1/sys" &&
		mount --rbind /dev "$1/dev" &&
		mount -t tmpfs tmpfs "$1/dev/shm" &&
		mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" || skip "mounts are not permitted"
}

# clean_environment: no variable that is set here may help, or mislead.
clean_environment()
{
	for name in $(env | sed -nE 's/^((FI|OMPI|PMIX|PRTE|UCX|LD)_[A-Za-z0-9_]*|TMPDIR)=.*/\1/p'); do
		unset "$name"
	done
	export HOME=/tmp
}
