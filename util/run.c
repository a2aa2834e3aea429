/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.c: shmcma run starts a command so that MPI and OpenSHMEM libraries take shmcma, and tells at its end what carried
 * the traffic. shmcma(1).
 *
 * The processes of the job write what their endpoints have carried into files of a directory of this process
 * (FI_SHMCMA_STATS), which it adds up. It gets the orphans of the job as its children, so it knows whether some still
 * run when the command has ended.
 */
#define _GNU_SOURCE 1
#include "command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <shmcma/core.h>
#include "json.h"
#include "libfabric.h"
#include "program.h"
#include "settings.h"
#include "traffic.h"

#define STATS "FI_SHMCMA_STATS"

struct job {
	pid_t pid;
	int status;			   /* as of waitpid(2) */
	bool is_running;		   /* processes of it, when the command has ended */
	char dir[PATH_MAX];		   /* of its reports; empty: none */
	unsigned int processes, endpoints; /* that have reported */
	struct sc_counters sum;
	int removed; /* files of dead processes */
};

/* ---- the environment ------------------------------------------------------------------------- */

static void set(const char *name, const char *value)
{
	const char *former = getenv(name);

	if (!former)
		(void)setenv(name, value, 1);
	else if (strcmp(former, value) != 0)
		fprintf(stderr, "%s: %s=%s is set already and stays; shmcma needs %s\n", command_name,
			name, former, value);
}

static void set_all(const struct setting *settings)
{
	for (; settings->name; settings++)
		set(settings->name, settings->value);
}

static bool is_launcher(const char *program)
{
	static const char *const names[] = { "mpirun",	"mpiexec", "orterun",
					     "prterun", "oshrun",  "shmemrun" };
	const char *slash = strrchr(program, '/');

	program = slash ? slash + 1 : program;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(program, names[i], strlen(names[i])))
			return true;
	return false;
}

/* The directory of the reports. Without one the job runs all the same. */
static void set_stats(struct job *job)
{
	const char *tmp = getenv("TMPDIR");
	char path[PATH_MAX + 16];

	if (getenv(STATS)) {
		fprintf(stderr, "%s: " STATS "=%s is set already, and the reports go there\n",
			command_name, getenv(STATS));
		return;
	}
	snprintf(job->dir, sizeof(job->dir), "%s/shmcma-run.XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
	if (!mkdtemp(job->dir)) {
		fprintf(stderr, "%s: no report: cannot make %s: %s\n", command_name, job->dir,
			strerror(errno));
		*job->dir = '\0';
		return;
	}
	snprintf(path, sizeof(path), "%s/stats", job->dir);
	(void)setenv(STATS, path, 1);
}

static void prepare(struct job *job, const char *program)
{
	const char *launcher = is_launcher(program) ? program : "mpirun";
	int version = settings_openmpi_version(launcher);

	set_all(settings_of_all);
	if (version < 0)
		fprintf(stderr,
			"%s: %s --version tells no version for %d s; no variables are set for windows of "
			"Open MPI\n",
			command_name, launcher, SETTINGS_PATIENCE);
	else if (version)
		set_all(version < 5 ? settings_of_openmpi_4 : settings_of_openmpi_5);
	libfabric_set_path();
	set_stats(job);
}

/* ---- the job --------------------------------------------------------------------------------- */

static void block_signals(sigset_t *blocked, sigset_t *former)
{
	static const int numbers[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

	sigemptyset(blocked);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(blocked, numbers[i]);
	signal(SIGCHLD, SIG_DFL); /* if it was ignored, the kernel would keep no status */
	sigprocmask(SIG_BLOCK, blocked, former);
}

/* Takes the status of each child that has ended, of orphans too. True: the command is among them. */
static bool has_ended(struct job *job)
{
	bool ended = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != job->pid)
			continue;
		job->status = status;
		ended = true;
	}
	job->is_running = pid == 0;
	return ended;
}

/* A signal of the terminal reaches the command without help; one that a process has sent is handed on. */
static void wait_for(struct job *job, const sigset_t *signals)
{
	siginfo_t info;

	while (!has_ended(job))
		if (sigwaitinfo(signals, &info) > 0 && info.si_signo != SIGCHLD && info.si_code <= 0)
			(void)kill(job->pid, info.si_signo);
}

static bool start(struct job *job, char **argv)
{
	sigset_t signals, former;

	block_signals(&signals, &former);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	job->pid = fork();
	if (!job->pid) {
		sigprocmask(SIG_SETMASK, &former, NULL);
		execvp(argv[0], argv);
		fprintf(stderr, "%s: %s: %s\n", command_name, argv[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	if (job->pid < 0)
		fprintf(stderr, "%s: cannot start a process: %s\n", command_name, strerror(errno));
	else
		wait_for(job, &signals);
	sigprocmask(SIG_SETMASK, &former, NULL);
	return job->pid > 0;
}

/* ---- its reports ----------------------------------------------------------------------------- */

static void add(struct sc_counters *sum, const struct sc_counter *counter, uint64_t value)
{
	value += sc_counter_value(sum, counter);
	memcpy((char *)sum + counter->offset, &value, sizeof(value));
}

/*
 * A block for each endpoint: its address, then a line of number and words for each counter that is not 0, in the order
 * of the names. Two counters have the same words, so the search goes on behind the one that was found last.
 */
static void read_report(FILE *file, struct job *job)
{
	size_t next = 0;
	char line[256];

	while (fgets(line, sizeof(line), file)) {
		char *words;
		uint64_t value = strtoull(line, &words, 10);

		line[strcspn(line, "\n")] = '\0';
		if (words == line) {
			job->endpoints++;
			next = 0;
			continue;
		}
		words += strspn(words, " ");
		while (next < SC_COUNTERS && strcmp(words, sc_counter_names[next].words) != 0)
			next++;
		if (next < SC_COUNTERS)
			add(&job->sum, &sc_counter_names[next++], value);
	}
}

/* Reads and removes the reports. */
static void read_reports(struct job *job)
{
	DIR *dir = *job->dir ? opendir(job->dir) : NULL;
	struct dirent *each;

	while (dir && (each = readdir(dir))) {
		int fd = openat(dirfd(dir), each->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		FILE *file = *each->d_name != '.' && fd >= 0 ? fdopen(fd, "r") : NULL;

		if (file) {
			job->processes++;
			read_report(file, job);
			fclose(file);
			(void)unlinkat(dirfd(dir), each->d_name, 0);
		} else if (fd >= 0) {
			close(fd);
		}
	}
	if (dir)
		closedir(dir);
	if (*job->dir && !job->is_running)
		(void)rmdir(job->dir);
}

/* ---- what is told ---------------------------------------------------------------------------- */

/* Bytes by their way. The counters have those of rendezvous; the rest of the messages went the other ways. */
struct bytes {
	uint64_t rendezvous, eager;
};

static struct bytes bytes_of(const struct sc_counters *sum)
{
	struct bytes bytes = { .rendezvous = traffic_rendezvous(sum) };

	bytes.eager = sum->tx_bytes > bytes.rendezvous ? sum->tx_bytes - bytes.rendezvous : 0;
	return bytes;
}

static void print_part(const char *words, uint64_t bytes)
{
	char text[SC_SIZE_TEXT];

	if (bytes)
		printf("  %12s  %10s    %s\n", "", sc_size_text(bytes, text), words);
}

static void print_way(const char *words, uint64_t messages)
{
	if (messages)
		printf("  %12" PRIu64 "  %10s  %s\n", messages, "", words);
}

static void print_ways(const struct sc_counters *sum)
{
	struct bytes bytes = bytes_of(sum);

	printf("  %12s  %10s  way\n", "number", "bytes");
	print_way("messages inside their record", sum->tx_inline);
	print_way("messages through bounce buffers", sum->tx_bounce);
	print_part("in both", bytes.eager);
	print_way("messages by rendezvous", sum->tx_rdv);
	print_part("copied by the receiver with process_vm_readv", sum->rx_cma_bytes);
	print_part("copied by the sender", sum->shared_bytes);
	print_part("through bounce buffers", sum->rx_pulled_bytes);
	print_part("inside a process", sum->rx_local_bytes);
	print_way("one-sided operations", sum->rma_ops);
	print_part("copied by the initiator", sum->rma_direct_bytes);
	print_way("  of them requested from the target", sum->rma_requests);
	print_way("  of them small, done by the target", sum->rma_delegated_taken);
	print_way("peers that died", sum->deaths);
}

static void tell(const struct job *job, char **argv)
{
	char text[SC_SIZE_TEXT];

	(void)argv;
	if (!job->endpoints && *job->dir)
		printf("%s: no process has told that it used shmcma: it took another way, or has not "
		       "closed its "
		       "endpoint; shmcma doctor looks for reasons\n",
		       command_name);
	if (job->endpoints) {
		printf("%s: endpoints of %u processes have sent %" PRIu64 " messages, %s, over shmcma\n",
		       command_name, job->processes, job->sum.tx_msgs,
		       sc_size_text(job->sum.tx_bytes, text));
		print_ways(&job->sum);
	}
	if (job->is_running)
		printf("%s: processes of the job still run\n", command_name);
	if (job->removed > 0)
		printf("%s: removed files that dead processes had left in /dev/shm: %d\n", command_name,
		       job->removed);
}

static void tell_json(const struct job *job, char **argv)
{
	struct bytes bytes = bytes_of(&job->sum);

	json_open_object(NULL);
	json_open_array("command");
	while (*argv)
		json_string(NULL, *argv++);
	json_close_array();
	if (WIFSIGNALED(job->status))
		json_number("signal", WTERMSIG(job->status));
	else
		json_number("status", WEXITSTATUS(job->status));
	json_number("is_running", job->is_running);
	json_count("processes", job->processes);
	json_count("endpoints", job->endpoints);
	json_open_object("bytes");
	json_count("eager", bytes.eager);
	json_count("rendezvous", bytes.rendezvous);
	json_close_object();
	program_json_counters("counters", &job->sum);
	json_number("removed_files", job->removed);
	json_close_object();
}

static const char *output;

/* Before the job, which may take long: a report that has no place is told now. The job may write to the same file. */
static bool open_output(int *fd)
{
	*fd = output ? open(output, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666)
		     : STDERR_FILENO;
	if (*fd < 0)
		fprintf(stderr, "%s: cannot write to %s: %s\n", command_name, output, strerror(errno));
	return *fd >= 0;
}

/* After the job has ended, the command writes its report to the standard output, which this makes the file `fd`. */
static bool redirect(int fd)
{
	bool done = dup2(fd, STDOUT_FILENO) >= 0;

	if (!done)
		fprintf(stderr, "%s: cannot write the report: %s\n", command_name, strerror(errno));
	return done;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The way of the command is this process's: its status, or the signal that has ended it. */
static int end_as(int status)
{
	static const struct rlimit no_core = { 0, 0 };

	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	(void)setrlimit(RLIMIT_CORE, &no_core);
	signal(WTERMSIG(status), SIG_DFL);
	raise(WTERMSIG(status));
	return 128 + WTERMSIG(status);
}

static int run(int argc, char **argv)
{
	static struct job job;
	int status, report;

	if (!argc)
		return command_misused();
	if (!open_output(&report))
		return COMMAND_FAULT;
	prepare(&job, argv[0]);
	if (!start(&job, argv))
		return COMMAND_FAULT;
	read_reports(&job);
	job.removed = sc_reap_scan();
	if (job.removed < 0)
		job.removed = 0; /* the log has the error */
	status = redirect(report) ? COMMAND_OK : COMMAND_FAULT;
	if (status == COMMAND_OK)
		(command_json ? tell_json : tell)(&job, argv);
	status = command_end(status);
	return job.status ? end_as(job.status) : status;
}

static bool take(int letter, const char *argument)
{
	(void)letter;
	output = argument;
	return true;
}

static const struct command_option options[] = {
	{ "output", 'o', true, "FILE", "write the report there; default: standard error" },
	COMMAND_JSON,
	{ 0 },
};

const struct command run_command = {
	.name = "run",
	.full = "shmcma run",
	.arguments = "COMMAND [ARGUMENT...]",
	.words = "run an MPI or OpenSHMEM job over the provider, and tell what carried its traffic",
	.about = "Sets the variables by which Open MPI, MPICH and Sandia OpenSHMEM take shmcma, runs the "
		 "command, and tells\n"
		 "at its end which messages and bytes went over shmcma, and how. A variable that is set "
		 "already stays.\n"
		 "It removes the files that dead processes of this user have left.",
	.status = "that of the command; 1 if it cannot be started or the report cannot be written; 126 or "
		  "127 if there is\n"
		  "no such command",
	.options = options,
	.runs_command = true,
	.take = take,
	.run = run,
};
