/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor.c: shmcma doctor looks for the reasons why the provider is not found, fails or is slow. shmcma(1).
 *
 * Each check prints one line or more. It makes processes of its own, and changes nothing that others see.
 */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include <shmcma/core.h>
#include "access.h"
#include "finding.h"
#include "libfabric.h"

#define DIR_NAME "/dev/shm"
#define FILES_NEEDED 64	 /* libfabric, an MPI library and an endpoint open about as many */
#define FILES_WANTED 256 /* one more for each peer, as long as they are at most a quarter */

static const char usage[] =
	"usage: shmcma doctor [--json] [PID...]\n"
	"Looks for the reasons why libfabric's provider shmcma is not found, fails or is slow. With PID: also for\n"
	"the reasons why this process may not read the memory of that one.\n"
	"\n"
	"      --json     print one JSON document\n"
	"  -h, --help     this\n"
	"      --version\n"
	"\n"
	"Exit status: 0; 1 if a fault was found; 2 for wrong arguments.\n";

/* Returns the largest number of endpoints, each connected with all others, that fit into that many bytes. */
static uint32_t endpoints_in(uint64_t bytes)
{
	struct sc_config config;
	uint32_t count = 0;

	sc_config_init(&config);
	while (count < config.slots && (count + 1) * sc_ep_memory(&config, count) <= bytes)
		count++;
	return count;
}

static void check_room(struct finding *finding)
{
	struct statvfs fs;
	uint64_t size, room;
	uint32_t count;

	if (statvfs(DIR_NAME, &fs)) {
		finding->level = FINDING_FAULT;
		finding_what(finding, "the size of " DIR_NAME " is not known: %s", strerror(errno));
		return;
	}
	size = (uint64_t)fs.f_blocks * fs.f_frsize;
	room = (uint64_t)fs.f_bavail * fs.f_frsize;
	count = endpoints_in(room);
	finding_what(finding,
		     "%" PRIu64 " KiB of %" PRIu64 " KiB are free, for %" PRIu32
		     "%s endpoints that all have all their buffers and connections",
		     room / 1024, size / 1024, count, count == 1024 ? " or more" : "");
	if (count >= 2)
		return;
	finding->level = FINDING_FAULT;
	finding_why(finding, "two endpoints need more");
	finding_remedy(finding, "free space there (shmcma reap), or as root: mount -o remount,size=1g " DIR_NAME
				" (docker: --shm-size=1g)");
}

static void check_shm(void)
{
	struct finding finding;
	struct statfs fs;
	int err = sc_host_check();

	finding_init(&finding, "shared memory");
	if (err) {
		finding.level = FINDING_FAULT;
		finding_what(&finding, "no endpoint can be made in " DIR_NAME);
		finding_why(&finding, "%s", strerror(-err));
		finding_remedy(&finding, "as root: mount -t tmpfs -o mode=1777 tmpfs " DIR_NAME);
	} else {
		check_room(&finding);
	}
	if (finding.level == FINDING_OK && !statfs(DIR_NAME, &fs) && fs.f_type != TMPFS_MAGIC) {
		finding.level = FINDING_WARNING;
		finding_why(&finding, "it is no tmpfs, so shared memory may be written to a disk");
		finding_remedy(&finding, "as root: mount -t tmpfs -o mode=1777 tmpfs " DIR_NAME);
	}
	finding_show(&finding);
}

static void check_access(void)
{
	struct finding finding;

	finding_init(&finding, "cross memory attach");
	access_check_siblings(&finding);
	finding_show(&finding);
}

static void check_files(void)
{
	struct finding finding;
	struct rlimit limit;

	finding_init(&finding, "open files");
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	finding_what(&finding, "a process may have %llu open files", (unsigned long long)limit.rlim_cur);
	if (limit.rlim_cur < FILES_WANTED) {
		finding.level = limit.rlim_cur < FILES_NEEDED ? FINDING_FAULT : FINDING_WARNING;
		finding_why(&finding, limit.rlim_cur < FILES_NEEDED ? "an endpoint and its libraries need about 64"
								    : "many peers then cost more system calls");
		finding_remedy(&finding, "ulimit -n 1024");
	}
	finding_show(&finding);
}

struct left {
	unsigned int files;
	uint64_t bytes;
};

static void count_left(const struct sc_reap_file *file, void *arg)
{
	struct left *left = arg;

	left->files += file->dead;
	left->bytes += file->dead ? file->bytes : 0;
}

static void check_left(void)
{
	struct left left = { 0 };
	struct finding finding;
	int err = sc_reap_list(count_left, &left);

	finding_init(&finding, "left-overs");
	if (err) {
		finding.level = FINDING_WARNING;
		finding_what(&finding, "the files in " DIR_NAME " cannot be listed: %s", strerror(-err));
	} else if (left.files) {
		finding.level = FINDING_WARNING;
		finding_what(&finding, "files that dead processes have left: %u, with %" PRIu64 " KiB", left.files,
			     left.bytes / 1024);
		finding_remedy(&finding, "shmcma reap");
	} else {
		finding_what(&finding, "dead processes have left nothing");
	}
	finding_show(&finding);
}

static void check_process(pid_t pid)
{
	struct finding finding;

	finding_init(&finding, "process");
	access_check_process(&finding, pid);
	finding_show(&finding);
}

static bool is_number(const char *text)
{
	return *text && !text[strspn(text, "0123456789")] && atoi(text) > 0;
}

int doctor_run(int argc, char **argv)
{
	bool json = false;
	int status = command_options(argc, argv, usage, &json);

	if (status >= 0)
		return status;
	for (int i = optind; i < argc; i++)
		if (!is_number(argv[i]))
			return command_misused(usage);
	findings_begin(json);
	libfabric_check();
	check_shm();
	check_access();
	check_files();
	check_left();
	for (int i = optind; i < argc; i++)
		check_process(atoi(argv[i]));
	return command_end(findings_end() == FINDING_FAULT ? COMMAND_FAULT : COMMAND_OK);
}
