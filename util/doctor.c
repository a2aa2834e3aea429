/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * doctor.c: shmcma doctor looks for the reasons why the provider is not found, fails or is slow. shmcma(1).
 *
 * Each check prints one line or more. It makes processes of its own, and changes nothing that others see; but the last
 * check opens endpoints, and their processes remove files of dead ones as all do.
 */
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <linux/magic.h>
#include <shmcma/core.h>
#include "access.h"
#include "finding.h"
#include "libfabric.h"
#include "pair.h"
#include "settings.h"

#define DIR_NAME "/dev/shm"
#define FILES_NEEDED 64	 /* libfabric, an MPI library and an endpoint open about as many */
#define FILES_WANTED 256 /* one more for each peer, as long as they are at most a quarter */

static int ranks = 2; /* that are to find room */

/* Takes a parameter as the provider does, which keeps the default if the value is no good. */
static void take_parameter(const char *name, uint32_t least, uint32_t most, uint32_t *value)
{
	const char *text = getenv(name);
	uint64_t number;

	if (text && sc_size_parse(text, &number) && number >= least && number <= most)
		*value = (uint32_t)number;
}

/* The configuration of an endpoint, as far as its memory depends on the environment. */
static void configure(struct sc_config *config)
{
	uint32_t size = 0;

	sc_config_init(config);
	take_parameter("FI_SHMCMA_BOUNCE_COUNT", 2, 4096, &config->buf_count);
	take_parameter("FI_SHMCMA_BOUNCE_SIZE", 256, 1 << 20, &size);
	if (size && !(size & (size - 1)))
		config->buf_size = size;
}

/* Returns the bytes of that many endpoints, each connected with all others. */
static uint64_t memory_of(uint32_t count)
{
	struct sc_config config;

	configure(&config);
	return count * sc_ep_memory(&config, count - 1);
}

/* Returns the largest number of endpoints, each connected with all others, that fit into that many bytes. */
static uint32_t endpoints_in(uint64_t bytes)
{
	struct sc_config config;
	uint32_t count = 0;

	sc_config_init(&config);
	while (count < config.slots && memory_of(count + 1) <= bytes)
		count++;
	return count;
}

static void check_room(struct finding *finding)
{
	struct statvfs fs;
	uint64_t size, room;
	uint32_t count, needed = (uint32_t)ranks;

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
	if (count >= needed)
		return;
	finding->level = FINDING_FAULT;
	finding_why(finding, "%" PRIu32 " endpoints need %" PRIu64 " KiB", needed,
		    memory_of(needed) / 1024);
	finding_remedy(finding,
		       "free space there (shmcma reap), or as root: mount -o remount,size=1g " DIR_NAME
		       " (docker: --shm-size=1g), or set a lower FI_SHMCMA_BOUNCE_COUNT");
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

/* Tells whether there is a /proc. Without it no endpoint can be made, and what is left of dead ones is not known. */
static bool check_proc(void)
{
	static const char *const paths[] = { "/proc/sys/kernel/random/boot_id", "/proc/thread-self/fd" };
	struct finding finding;

	finding_init(&finding, "proc");
	finding_what(&finding, "/proc can be read");
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]) && finding.level == FINDING_OK; i++) {
		if (!access(paths[i], R_OK))
			continue;
		finding.level = FINDING_FAULT;
		finding_what(&finding, "%s cannot be read", paths[i]);
		finding_why(&finding, "%s", strerror(errno));
		finding_remedy(
			&finding,
			"as root: mount -t proc proc /proc; until then no endpoint can be made, and "
			"left-overs, other processes and messages are not checked");
	}
	finding_show(&finding);
	return finding.level == FINDING_OK;
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

static void count_hidden(const struct sc_survey_seg *seg, void *arg)
{
	unsigned int *hidden = arg;

	*hidden += !seg->fault && !seg->pid && seg->state == SC_SURVEY_LIVE;
}

/* Endpoints that this user has on this machine, and whose processes have no pid here. */
static void check_hidden(void)
{
	struct finding finding;
	unsigned int hidden = 0;

	finding_init(&finding, "pid namespace");
	if (sc_survey_list(count_hidden, &hidden) || !hidden) {
		finding_what(&finding, "the processes of all endpoints are visible from here");
	} else {
		finding.level = FINDING_WARNING;
		finding_what(&finding, "endpoints of processes that are not visible from here: %u",
			     hidden);
		finding_why(
			&finding,
			"they are in another pid namespace, so large messages to them go through shared "
			"memory");
		finding_remedy(&finding, "run all in one pid namespace (docker: --pid=container:NAME)");
	}
	finding_show(&finding);
}

/* ---- messages -------------------------------------------------------------------------------- */

#define PATIENCE 120 /* seconds without a result: a machine may be slow, or busy */

/* A message inside its record, one through a bounce buffer, one by rendezvous. */
static const struct pair_case ways[] = { { 8, false }, { 4 << 10, false }, { 1 << 20, false } };
static const char *const ways_words[] = { "8 B", "4 KiB", "1 MiB" };

/* Sends messages between two processes. False: a fault, which the finding tells. */
static bool ping(struct finding *finding, const struct pair_plan *plan, const char *where)
{
	struct pair_result result;

	pair_measure(plan, &result);
	if (!*result.fault)
		return true;
	finding->level = FINDING_FAULT;
	if (result.done < plan->count)
		finding_what(finding, "a message of %s between two processes%s does not arrive",
			     ways_words[plan->cases + result.done - ways], where);
	else
		finding_what(finding, "two processes%s do not end", where);
	finding_why(finding, "%s", result.fault);
	finding_remedy(finding, "see the findings above, and the log (FI_LOG_LEVEL=warn)");
	return false;
}

/* The last check, for it changes the environment. The processes write no reports where the user wants those of a job. */
static void check_messages(void)
{
	struct pair_plan plan = {
		.provider = "shmcma", .cpus = { -1, -1 }, .patience = PATIENCE, .cases = ways, .count = 3
	};
	struct finding finding;

	finding_init(&finding, "messages");
	finding_what(&finding,
		     "messages of 8 B, 4 KiB and 1 MiB arrive, the last also without cross memory "
		     "attach");
	(void)unsetenv("FI_SHMCMA_STATS");
	if (ping(&finding, &plan, "")) {
		(void)setenv("FI_SHMCMA_CMA", "0", 1);
		plan.cases = &ways[2];
		plan.count = 1;
		(void)ping(&finding, &plan, " without cross memory attach");
	}
	finding_show(&finding);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void check_process(pid_t pid)
{
	struct finding finding;

	finding_init(&finding, "process");
	access_check_process(&finding, pid);
	finding_show(&finding);
}

static int run(int argc, char **argv)
{
	bool is_found, has_proc;
	int pid;

	for (int i = 0; i < argc; i++)
		if (!command_count(argv[i], INT_MAX, &pid))
			return command_misused();
	signal(SIGCHLD, SIG_DFL); /* if it was ignored, the kernel would keep no status of a child */
	findings_begin(command_json);
	is_found = libfabric_check();
	check_shm();
	check_access();
	check_files();
	has_proc = check_proc();
	if (has_proc) {
		check_left();
		check_hidden();
	}
	for (int i = 0; i < argc && has_proc; i++)
		check_process(atoi(argv[i]));
	settings_check_openmpi();
	settings_check_mpich();
	if (is_found && has_proc)
		check_messages();
	return command_end(findings_end() == FINDING_FAULT ? COMMAND_FAULT : COMMAND_OK);
}

static bool take(int letter, const char *argument)
{
	(void)letter;
	return command_count(argument, 1024, &ranks);
}

static const struct command_option options[] = {
	{ "ranks", 'n', true, "N", "endpoints that must find room in /dev/shm; 2" },
	COMMAND_JSON,
	{ 0 },
};

const struct command doctor_command = {
	.name = "doctor",
	.full = "shmcma doctor",
	.arguments = "[PID...]",
	.words = "look for the reasons why the provider is not found, fails or is slow",
	.about = "Looks for the reasons why libfabric's provider shmcma is not found, fails or is slow. "
		 "With PID: also\n"
		 "for the reasons why this process may not read the memory of that one.",
	.status = "0; 1 if a fault was found",
	.options = options,
	.take = take,
	.run = run,
};
