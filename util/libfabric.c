/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libfabric.c: see libfabric.h. A child loads libfabric and asks it for the provider, because a provider may hang or
 * crash in that, and starts threads. Its standard error goes to a pipe: the warnings of the provider come from there.
 * So the provider itself judges the names and values of its parameters (prov/base/param.c).
 *
 * The command is not linked with libfabric, so that it runs without one and can say so.
 */
#define _GNU_SOURCE 1
#include "libfabric.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <rdma/fabric.h>
#include "finding.h"

#define PROVIDER "shmcma"
#define FILE_NAME "libshmcma-fi.so"
#define OLDEST FI_VERSION(1, 17)
#define PREFERS FI_VERSION(1, 21) /* the first libfabric that takes files behind '+' in FI_PROVIDER_PATH */
#define PATIENCE 120 /* seconds: libraries that libfabric loads may take long, see pair.c */
#define PATH_LENGTH 400
#define LOG_MAX 16384

/* The child's answer, less than PIPE_BUF. */
struct answer {
	uint32_t version;	/* of libfabric; 0: not loaded */
	int err;		/* of fi_getinfo(), positive */
	uint32_t provider;	/* its version */
	char file[PATH_LENGTH]; /* of the provider, loaded or not; empty: there is none */
	char fault[PATH_LENGTH]; /* of the dynamic loader */
};

void libfabric_quiet(void)
{
	setenv("IPATH_NO_BACKTRACE", "1", 1);
	setenv("HFI_NO_BACKTRACE", "1", 1);
}

/* ---- the child ------------------------------------------------------------------------------- */

static void set_text(char text[PATH_LENGTH], const char *from)
{
	snprintf(text, PATH_LENGTH, "%s", from ? from : "");
}

static int find_loaded(struct dl_phdr_info *object, size_t size, void *arg)
{
	const char *slash = strrchr(object->dlpi_name, '/');

	(void)size;
	if (!slash || strcmp(slash + 1, FILE_NAME))
		return 0;
	set_text(arg, object->dlpi_name);
	return 1;
}

/* Names the file that a part of FI_PROVIDER_PATH stands for. False: it stands for no file of that name. */
static bool file_of(const char *part, size_t len, char file[PATH_LENGTH])
{
	const char *slash;

	if (*part != '+') {
		snprintf(file, PATH_LENGTH, "%.*s/" FILE_NAME, (int)len, part);
		return len > 0;
	}
	snprintf(file, PATH_LENGTH, "%.*s", (int)len - 1, part + 1);
	slash = strrchr(file, '/');
	return !strcmp(slash ? slash + 1 : file, FILE_NAME);
}

/* Tells whether a part of FI_PROVIDER_PATH is a file. The name of a directory may have a '+' too. */
static bool names_file(const char *path)
{
	path += *path == '@';
	return *path == '+' || strstr(path, ":+");
}

/* Finds the file by a list as FI_PROVIDER_PATH. Tells whether libfabric is done: the file is there, or it has looked. */
static bool find_in(const char *path, char file[PATH_LENGTH])
{
	bool directories = false;
	size_t len;

	for (path += *path == '@'; *path; path += len + (path[len] == ':')) {
		len = strcspn(path, ":");
		if (file_of(path, len, file) && !access(file, F_OK))
			return true;
		directories |= len && *path != '+';
	}
	*file = '\0';
	return directories;
}

/*
 * Finds the file where libfabric looks: by FI_PROVIDER_PATH, which has directories and, behind '+', files; and in its own
 * directory if it has no other (fabric(7)).
 */
static void find_file(char file[PATH_LENGTH])
{
	const char *path = getenv("FI_PROVIDER_PATH");

	if (!path || !find_in(path, file))
		(void)find_in(SHMCMA_SYSTEM_PROVIDER_DIR, file);
}

static void find_loader_fault(struct answer *answer)
{
	find_file(answer->file);
	if (*answer->file && !dlopen(answer->file, RTLD_NOW))
		set_text(answer->fault, dlerror());
}

static void ask_provider(void *library, struct answer *answer)
{
	struct fi_info *(*dup)(const struct fi_info *) = NULL;
	int (*get)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **) = NULL;
	struct fi_info *hints, *info = NULL;

	*(void **)&dup = dlsym(library, "fi_dupinfo");
	*(void **)&get = dlsym(library, "fi_getinfo");
	hints = dup ? dup(NULL) : NULL;
	answer->err = ENOMEM;
	if (!get || !hints)
		return;
	hints->fabric_attr->prov_name = strdup(PROVIDER);
	answer->err = -get(OLDEST, NULL, NULL, 0, hints, &info);
	if (!answer->err && info)
		answer->provider = info->fabric_attr->prov_version;
	(void)dl_iterate_phdr(find_loaded, answer->file);
}

static void ask(int fd)
{
	struct answer answer = { 0 };
	void *library = dlopen("libfabric.so.1", RTLD_NOW);
	uint32_t (*version)(void) = NULL;

	if (library)
		*(void **)&version = dlsym(library, "fi_version");
	if (version)
		answer.version = version();
	else
		set_text(answer.fault, dlerror());
	if (answer.version >= OLDEST)
		ask_provider(library, &answer);
	if (answer.err && !*answer.file)
		find_loader_fault(&answer);
	while (write(fd, &answer, sizeof(answer)) < 0 && errno == EINTR)
		;
}

static void be_child(int answer_fd, int log_fd)
{
	static const char *const silent[] = { "FI_LOG_PROV", "FI_LOG_SUBSYS" };

	for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
		unsetenv(silent[i]);
	setenv("FI_LOG_LEVEL", "warn", 1);
	libfabric_quiet();
	(void)dup2(log_fd, STDERR_FILENO);
	(void)dup2(log_fd, STDOUT_FILENO);
	ask(answer_fd);
	_exit(0);
}

/* ---- this process ---------------------------------------------------------------------------- */

/* The pipes from the child: their readable ends. */
struct child {
	pid_t pid;
	int answer_fd, log_fd;
};

static bool start(struct child *child)
{
	int answer[2], log[2];

	if (pipe(answer))
		return false;
	if (pipe(log)) {
		close(answer[0]);
		close(answer[1]);
		return false;
	}
	fflush(stdout);
	child->pid = fork();
	if (!child->pid)
		be_child(answer[1], log[1]);
	close(answer[1]);
	close(log[1]);
	child->answer_fd = answer[0];
	child->log_fd = log[0];
	return child->pid > 0;
}

/* Returns milliseconds until the child is out of time. */
static int time_left(const struct timespec *end)
{
	struct timespec now;
	int64_t left;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left = (int64_t)(end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
	return left > 0 ? (int)left : 0;
}

/* HEARD_END: the child has ended without an answer. */
enum heard { HEARD_NOTHING, HEARD_END, HEARD_ANSWER };

/* Reads both pipes until the child has ended, at most PATIENCE seconds. */
static enum heard listen_to(const struct child *child, struct answer *answer, char log[LOG_MAX])
{
	struct pollfd fds[2] = { { child->answer_fd, POLLIN, 0 }, { child->log_fd, POLLIN, 0 } };
	enum heard heard = HEARD_NOTHING;
	struct timespec end;
	size_t used = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += PATIENCE;
	while ((fds[0].fd >= 0 || fds[1].fd >= 0) && poll(fds, 2, time_left(&end)) > 0) {
		if (fds[0].revents) {
			heard = read(child->answer_fd, answer, sizeof(*answer)) == (ssize_t)sizeof(*answer)
					? HEARD_ANSWER
					: HEARD_END;
			fds[0].fd = -1;
		}
		if (fds[1].revents) {
			char spare[512];
			bool full = used + 1 == LOG_MAX;
			ssize_t got = full ? read(child->log_fd, spare, sizeof(spare))
					   : read(child->log_fd, log + used, LOG_MAX - 1 - used);

			used += got > 0 && !full ? (size_t)got : 0;
			fds[1].fd = got > 0 ? child->log_fd : -1;
		}
	}
	log[used] = '\0';
	return heard;
}

/* Returns the status as of waitpid(2). Kills a child that is out of time; one that has crashed has closed its pipes. */
static int end(const struct child *child, bool hangs)
{
	int status = 0;

	if (hangs)
		(void)kill(child->pid, SIGKILL);
	(void)waitpid(child->pid, &status, 0);
	close(child->answer_fd);
	close(child->log_fd);
	return status;
}

bool libfabric_excludes(const char *list)
{
	bool negated, listed = false;

	if (!list || !*list)
		return false;
	negated = *list == '^';
	for (list += negated; *list && !listed;) {
		size_t len = strcspn(list, ",;");

		listed = len == strlen(PROVIDER) && !strncasecmp(list, PROVIDER, len);
		list += len + (list[len] != '\0');
	}
	return listed == negated;
}

static void show_libfabric(const struct answer *answer)
{
	struct finding finding;

	finding_init(&finding, "libfabric");
	if (!answer->version) {
		finding.level = FINDING_FAULT;
		finding_what(&finding, "libfabric.so.1 cannot be loaded");
		finding_why(&finding, "%s", answer->fault);
		finding_remedy(&finding, "install libfabric 1.17 or newer, or set LD_LIBRARY_PATH to its directory");
	} else {
		finding_what(&finding, "libfabric %u.%u", FI_MAJOR(answer->version), FI_MINOR(answer->version));
	}
	if (answer->version && answer->version < OLDEST) {
		finding.level = FINDING_FAULT;
		finding_why(&finding, "it is too old for the provider");
		finding_remedy(&finding, "install libfabric 1.17 or newer");
	}
	finding_show(&finding);
}

/* Returns the text of the provider's next warning, or NULL; *log goes on behind it. */
static const char *next_warning(char **log)
{
	static const char mark[] = "<warn> ";

	while (**log) {
		char *line = *log, *end = line + strcspn(line, "\n"), *text;

		*log = end + (*end != '\0');
		*end = '\0';
		text = strstr(line, mark);
		if (text && strstr(line, ":" PROVIDER ":"))
			return text + strlen(mark);
	}
	return NULL;
}

static void explain_missing(struct finding *finding, const struct answer *answer)
{
	const char *list = getenv("FI_PROVIDER"), *path = getenv("FI_PROVIDER_PATH");

	if (libfabric_excludes(list)) {
		finding_why(finding, "FI_PROVIDER=%s leaves it out", list);
		finding_remedy(finding, "unset FI_PROVIDER, or add " PROVIDER);
	} else if (path && names_file(path) && answer->version < PREFERS) {
		finding_why(finding,
			    "FI_PROVIDER_PATH=%s names a file, and libfabric takes files from 1.21 on",
			    path);
		finding_remedy(finding, "set FI_PROVIDER_PATH to the directory of " FILE_NAME);
	} else if (!*answer->file) {
		finding_why(finding, "%s%s has no " FILE_NAME, path ? "FI_PROVIDER_PATH=" : "the directory ",
			    path ? path : SHMCMA_SYSTEM_PROVIDER_DIR);
		if (access(SHMCMA_PROVIDER_DIR "/" FILE_NAME, F_OK))
			finding_remedy(finding, "set FI_PROVIDER_PATH to the directory of " FILE_NAME);
		else
			finding_remedy(finding, "export FI_PROVIDER_PATH=" SHMCMA_PROVIDER_DIR);
	} else if (*answer->fault) {
		finding_why(finding, "%s", answer->fault);
		finding_remedy(finding, "install the provider again, for this libfabric");
	} else {
		finding_why(finding, "%s does not offer it (%s)", answer->file, strerror(answer->err));
		finding_remedy(finding, "see the warnings of the provider below");
	}
}

static void show_provider(const struct answer *answer)
{
	unsigned int major = 0, minor = 0;
	struct finding finding;

	finding_init(&finding, "provider");
	(void)sscanf(SHMCMA_VERSION, "%u.%u", &major, &minor);
	if (answer->err) {
		finding.level = FINDING_FAULT;
		finding_what(&finding, "libfabric does not find " PROVIDER);
		explain_missing(&finding, answer);
	} else {
		finding_what(&finding, "libfabric finds " PROVIDER " %u.%u in %s", FI_MAJOR(answer->provider),
			     FI_MINOR(answer->provider), *answer->file ? answer->file : "a file that is not known");
	}
	if (!answer->err && answer->provider != FI_VERSION(major, minor)) {
		finding.level = FINDING_WARNING;
		finding_why(&finding, "this command is of version " SHMCMA_VERSION);
		finding_remedy(&finding, "install both from one version, or set FI_PROVIDER_PATH");
	}
	finding_show(&finding);
}

static void show_parameters(char *log)
{
	struct finding finding;
	const char *warning;

	finding_init(&finding, "parameters");
	while ((warning = next_warning(&log))) {
		finding.level = FINDING_WARNING;
		finding_what(&finding, "%s", warning);
		finding_show(&finding);
	}
	if (finding.level != FINDING_OK)
		return;
	finding_what(&finding, "the provider has no complaint about the environment");
	finding_show(&finding);
}

/* The child has not been made, with errno, or has hung or crashed. */
static void show_silence(bool made, int status)
{
	char file[PATH_LENGTH];
	struct finding finding;

	finding_init(&finding, "libfabric");
	finding.level = FINDING_FAULT;
	if (!made) {
		finding_what(&finding, "libfabric was not asked for the provider");
		finding_why(&finding, "%s", strerror(errno));
		finding_show(&finding);
		return;
	}
	finding_what(&finding, "libfabric gives no answer");
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		finding_why(&finding, "a process that asks it for the provider crashes: %s",
			    strsignal(WTERMSIG(status)));
	else
		finding_why(&finding, "a process that asks it for the provider hangs or ends");
	find_file(file);
	if (*file)
		finding_remedy(&finding, "%s, or the file of another provider there, may be damaged: install it again",
			       file);
	finding_show(&finding);
}

bool libfabric_check(void)
{
	static char log[LOG_MAX];
	struct answer answer;
	enum heard heard;
	struct child child;
	int status;

	if (!start(&child)) {
		show_silence(false, 0);
		return false;
	}
	heard = listen_to(&child, &answer, log);
	status = end(&child, heard != HEARD_END);
	if (heard != HEARD_ANSWER) {
		show_silence(true, status);
		return false;
	}
	answer.file[PATH_LENGTH - 1] = answer.fault[PATH_LENGTH - 1] = '\0';
	show_libfabric(&answer);
	if (answer.version < OLDEST)
		return false;
	show_provider(&answer);
	if (*answer.file && !*answer.fault)
		show_parameters(log);
	return !answer.err;
}

void libfabric_set_path(void)
{
	if (strcmp(SHMCMA_PROVIDER_DIR, SHMCMA_SYSTEM_PROVIDER_DIR) != 0 &&
	    !access(SHMCMA_PROVIDER_DIR "/" FILE_NAME, F_OK))
		(void)setenv("FI_PROVIDER_PATH", SHMCMA_PROVIDER_DIR, 0);
}
