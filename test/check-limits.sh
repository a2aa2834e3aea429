#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
#
# The limits of CONTRIBUTING.md: a file of src/ or prov/ has at most 700 lines and a function at most 60; a function of
# src/ has at most 5 parameters; no file of src/ has the name of one of prov/. A variable that outlives calls is constant,
# or it is in the list below. Each line of the output is a breach.
cd "${abs_top_srcdir:-$(dirname "$0")/..}" || exit 1

# Variables that outlive calls: file, name, and the reason for each. Tables of operations are constants, but libfabric's
# pointers to them are not const. A new variable belongs into the structure of its room.
variables() {
	cat <<-'END'
	src/base/atomicop.c lock		the lock of this file; base does not know proc
	src/base/fault.c armed			fault injection
	src/base/fault.c sc_fault_hook		fault injection
	src/base/fault.h site_			fault injection
	src/base/log.c log_state		the structure of the log
	src/base/match.c sc_match_probes	a count of the tests
	src/os/probe.c here			the page that a probe touches
	src/os/probe.c known			an answer of the kernel: each thread finds the same
	src/os/probe.c nobody_waits		a futex without waiters
	src/os/probe.c size			the size of a page: each thread finds the same
	src/os/self.c sc_self			the structure of os
	src/os/wake.c sc_wake_nobody		a word without sleepers, always 0
	src/proc/process.c sc_process		the structure of proc
	src/shm/seg.c sc_segs			the structure of shm
	prov/base/object.c lists		the list of open objects, the lock of the lists and its owner's signal mask
	prov/base/object.c shmcma_torn		a child: objects of its parent may be half changed
	prov/base/object.c warned			the child that has warned
	prov/base/param.c known			the parameters that were read
	prov/base/param.c known_count		their number
	prov/base/param.c shmcma_env		the settings, read once
	prov/base/peerowner.c layout		an answer of libfabric, read once
	prov/base/peerowner.c once		for layout
	prov/base/shm.c shmcma_provider		a table that libfabric changes
	prov/base/shmcma.c shmcma_provider	a table that libfabric changes
	prov/ep/report.c warned			the log has told it
	prov/fabric/domain.c calibrated		the process calibrates once
	prov/obj/avset.c sets			the count of address vector sets
	prov/obj/peersrx.c asked		thread-local: the endpoint of the call in progress
	prov/wait/fork.c missed			of one fork, under shmcma_lists_lock()
	prov/wait/fork.c process		the process that the last known fork made
	prov/wait/fork.c warned_torn		the child has warned
	prov/wait/progress.c running_first	the list of progress threads, under shmcma_lists_lock()
	prov/wait/watcher.c warned		the log has told it
	END
}

breaches=$(
	awk '
	# judge: the function that ends in this line
	function judge(params) {
		params = signature
		sub(/^[^(]*\(/, "", params)
		while (gsub(/\([^()]*\)/, "", params)) # parameters that are functions
			;
		if (FNR - start + 1 > 60)
			printf "%s:%d: a function of %d lines\n", FILENAME, start, FNR - start + 1
		if (FILENAME ~ /^src\// && gsub(/,/, ",", params) > 4)
			printf "%s:%d: a function with more than 5 parameters\n", FILENAME, start
	}
	FNR == 1 && last { size() }
	function size() { if (lines > 700) printf "%s: %d lines\n", last, lines }
	{ last = FILENAME; lines = FNR }
	/^[A-Za-z_].*\(/ && !/;$/ { start = FNR; signature = "" }
	/^[A-Za-z_]/ || /^\t/ || /^ / { if (start && !body) signature = signature $0 }
	/^{/ { body = start }
	/^}/ { if (body) judge(); start = body = 0 }
	/^[A-Za-z_].*;$/ { start = body = 0 }
	END { size() }
	' src/*/*.[ch] prov/*/*.[ch]
	{
		variables
		awk '
		{ sub(/[ \t]*(\/\*.*)?$/, "") }
		/^(__extension__ )?typedef|^extern|(fi|shmcma)_[a-z_]*ops[a-z_]* / { next }
		/^\t+static / || /^[a-z_].*[ *][a-z_0-9]+(\[[^]]*\])*( =.*)?;$/ || /^[a-z_][^(]* =( .*)?$/ ||
		/^[a-z_][^()]*\(\*[^()]*\)\(.*\)( =.*)?;$/ || /^} [a-z_]+(\[[^]]*\])*( =.*)?;$/ {
			if (/^}/ ? !open : /\*/ ? /\*const / : /const /)
				next
			sub(/ =.*/, "")
			if (/\\$/ || /^(struct|union|enum) [a-z_]+;/ || (/^\t/ && /\(/))
				next
			sub(/\)\(.*/, "")
			gsub(/\[[^]]*\]|;/, "")
			sub(/.*[ *]/, "")
			print FILENAME, $0, "found"
		}
		/^static [a-z_ ]*(struct|union)( [a-z_]+)? {$/ { open = !/const/ }
		/^}/ { open = 0 }
		' src/*/*.[ch] prov/*/*.[ch]
	} | awk '
	$3 != "found" { listed[$1 " " $2] = 1; next }
	{ used[$1 " " $2] = 1 }
	END {
		for (each in used)
			if (!(each in listed))
				print each ": a variable that is not in the list of test/check-limits.sh"
		for (each in listed)
			if (!(each in used))
				print each ": the list of test/check-limits.sh has it, the file does not"
	}' | sort
	for file in prov/*/*.[ch]; do
		for twin in src/*/"${file##*/}"; do
			[ ! -e "$twin" ] || echo "$file: $twin has the same name"
		done
	done
)
[ -z "$breaches" ] || { echo "$breaches" && exit 1; }
