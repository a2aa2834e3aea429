/* SPDX-License-Identifier: BSD-2-Clause */
/* settings.c: see settings.h. README.md has the same settings, with their reasons. */
#define _GNU_SOURCE 1
#include "settings.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "finding.h"
#include "libfabric.h"

#define PML "OMPI_MCA_pml"
#define MTL "OMPI_MCA_mtl"
#define BTL "OMPI_MCA_btl"
#define INCLUDE "OMPI_MCA_opal_common_ofi_provider_include"
#define FILES "OMPI_MCA_mca_base_param_files"
#define REMOTE_COMM "FI_SHMCMA_REMOTE_COMM"
#define NOLOCAL "MPIR_CVAR_NOLOCAL"

const struct setting settings_of_all[] = {
	{ "FI_PROVIDER", "shmcma" },
	{ PML, "cm" }, /* Open MPI: messages by libfabric */
	{ MTL, "ofi" },
	{ INCLUDE, "shmcma" },
	{ "OMPI_MCA_btl_base_warn_component_unused", "0" },
	{ NOLOCAL, "1" }, /* MPICH: not its own shared memory */
	{ "SHMEM_OFI_PROVIDER", "shmcma" },
	/* Sandia OpenSHMEM after 1.5.3 binds counters too late otherwise */
	{ "SHMEM_OFI_DISABLE_SINGLE_EP", "1" },
	{ NULL, NULL },
};
/*
 * One-sided operations: osc sm for memory that MPI allocates, since no call of libfabric is as fast as a store. For other
 * memory: Open MPI 5 has no osc pt2pt, and MPI_Compare_and_swap crashes in the btl ofi of Open MPI 4.
 */
const struct setting settings_of_openmpi_4[] = { { "OMPI_MCA_osc", "sm,pt2pt" }, { NULL, NULL } };
const struct setting settings_of_openmpi_5[] = { { "OMPI_MCA_osc", "sm,rdma" },
						 { "OMPI_MCA_btl", "self,ofi" },
						 { "OMPI_MCA_osc_rdma_btls", "ofi" },
						 { NULL, NULL } };

/* ---- the launcher ---------------------------------------------------------------------------- */

static pid_t start_launcher(const char *launcher, int output)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	(void)dup2(output, STDOUT_FILENO);
	(void)dup2(output, STDERR_FILENO);
	execlp(launcher, launcher, "--version", (char *)NULL);
	_exit(127);
}

static int milliseconds_until(const struct timespec *end)
{
	struct timespec now;
	int64_t left;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left = (end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
	return left > 0 ? (int)left : 0;
}

/* Returns the version in the text. 0: the text has no whole line with a version. */
static int find_version(const char *text)
{
	const char *mark = strstr(text, "(Open MPI) ");

	if (!mark)
		mark = strstr(text, "(OpenRTE) ");
	return mark && strchr(mark, '\n') ? atoi(strchr(mark, ')') + 1) : 0;
}

/* Reads until a line tells a version, until the output ends or until patience is over: then the result is -1. */
static int read_version(int output)
{
	struct pollfd readable = { output, POLLIN, 0 };
	struct timespec end;
	char text[4096] = "";
	int version = 0;
	size_t len = 0;
	ssize_t got = 1;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += SETTINGS_PATIENCE;
	while (got > 0 && !version && len < sizeof(text) - 1) {
		int ready = poll(&readable, 1, milliseconds_until(&end));

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return -1;
		got = read(output, text + len, sizeof(text) - 1 - len);
		len += got > 0 ? (size_t)got : 0;
		text[len] = '\0';
		version = find_version(text);
	}
	return version;
}

int settings_openmpi_version(const char *launcher)
{
	int fds[2], version = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return 0;
	fflush(stdout);
	pid = start_launcher(launcher, fds[1]);
	close(fds[1]);
	if (pid > 0) {
		version = read_version(fds[0]);
		(void)kill(pid, SIGKILL); /* it may print more, or wait for ever */
		(void)waitpid(pid, NULL, 0);
	}
	close(fds[0]);
	return version;
}

/* ---- Open MPI -------------------------------------------------------------------------------- */

/* Each warning is a finding of its own. */
struct warnings {
	struct finding finding;
	bool shown;
};

static void warn_of(struct warnings *warnings, const char *name, const char *value)
{
	finding_init(&warnings->finding, warnings->finding.check);
	warnings->finding.level = FINDING_WARNING;
	finding_what(&warnings->finding, "%s=%s", name, value);
	warnings->shown = true;
}

/* A setting of the environment that leads messages elsewhere. lnx is a provider that joins this one with others. */
static void check_openmpi_value(struct warnings *warnings, const char *name, const char *right)
{
	const char *value = getenv(name);

	if (!value || !strcmp(value, right))
		return;
	if (!strcmp(name, INCLUDE) && (strstr(value, right) || strstr(value, "lnx")))
		return;
	warn_of(warnings, name, value);
	finding_why(&warnings->finding, "shmcma needs %s", right);
	finding_remedy(&warnings->finding, "unset it, or export %s=%s", name, right);
	finding_show(&warnings->finding);
}

/* Is the word one of the list, which has commas? A ^ before the list excludes all of it. */
static bool is_in_list(const char *list, const char *word)
{
	size_t len;

	for (; list && *list && *list != '^'; list += len + (list[len] == ',')) {
		len = strcspn(list, ",");
		if (len == strlen(word) && !strncmp(list, word, len))
			return true;
	}
	return false;
}

/* The other way over libfabric, with which Open MPI 5.0.7 makes windows. It has no mtl. */
static bool goes_by_btl(void)
{
	const char *pml = getenv(PML);

	return pml && !strcmp(pml, "ob1") && is_in_list(getenv(BTL), "ofi");
}

/* The provider in the parameter files. */
struct parameters {
	bool includes; /* libfabric's provider is this one */
	bool names;    /* the environment of the job has FI_PROVIDER, or FI_SHMCMA_REMOTE_COMM */
};

static bool begins_with(const char *line, const char *name)
{
	return !strncmp(line, name, strlen(name));
}

static void read_openmpi_file(struct parameters *parameters, FILE *file)
{
	char *line = NULL;
	size_t size = 0;

	while (getline(&line, &size, file) >= 0) {
		const char *start = line + strspn(line, " \t");

		if (begins_with(start, "opal_common_ofi_provider_include"))
			parameters->includes |= strstr(start, "shmcma") != NULL;
		else if (begins_with(start, "mca_base_env_list"))
			parameters->names |= strstr(start, "FI_PROVIDER") || strstr(start, REMOTE_COMM);
	}
	free(line);
	fclose(file);
}

/* The list has commas. Open MPI does not tell that it cannot read a file. */
static struct parameters read_openmpi_files(struct warnings *warnings, const char *list)
{
	struct parameters parameters = { .includes = false };
	char path[FINDING_TEXT];

	for (size_t len; list && *list; list += len + (list[len] == ',')) {
		FILE *file;

		len = strcspn(list, ",");
		snprintf(path, sizeof(path), "%.*s", (int)len, list);
		file = len ? fopen(path, "re") : NULL;
		if (file)
			read_openmpi_file(&parameters, file);
		if (file || !len)
			continue;
		warn_of(warnings, FILES, path);
		finding_why(&warnings->finding, "it cannot be read: %s", strerror(errno));
		finding_remedy(&warnings->finding,
			       "export " FILES "=" SHMCMA_DATA_DIR "/openmpi-mca-params.conf");
		finding_show(&warnings->finding);
	}
	return parameters;
}

/* Open MPI asks for a capability that the provider has only if it is named. A parameter file may name it. */
static void check_openmpi_provider(struct warnings *warnings, const struct parameters *parameters)
{
	const char *list = getenv("FI_PROVIDER"), *include = getenv(INCLUDE);
	bool includes = include ? !strcmp(include, "shmcma") : parameters->includes;

	if (libfabric_excludes(list)) {
		warn_of(warnings, "FI_PROVIDER", list);
		finding_why(&warnings->finding, "it leaves shmcma out");
	} else if (!list && includes && !parameters->names && !getenv(REMOTE_COMM)) {
		warn_of(warnings, INCLUDE, "shmcma");
		finding_why(&warnings->finding, "FI_PROVIDER is not set, so shmcma has no FI_REMOTE_COMM, "
						"and Open MPI does not take it");
	} else {
		return;
	}
	finding_remedy(&warnings->finding, "export FI_PROVIDER=shmcma");
	finding_show(&warnings->finding);
}

static void advise(struct finding *finding)
{
	finding_remedy(finding, "shmcma run mpirun ..., or export " FILES "=" SHMCMA_DATA_DIR
				"/openmpi-mca-params.conf");
}

static void tell_openmpi(struct finding *finding, const struct parameters *parameters, const char *files)
{
	int version = settings_openmpi_version("mpirun");
	char name[48] = "there is no mpirun of it";

	if (version > 0)
		snprintf(name, sizeof(name), "mpirun is of Open MPI %d", version);
	else if (version < 0)
		snprintf(name, sizeof(name), "mpirun tells no version");
	if (goes_by_btl()) {
		finding_what(finding, "%s; messages and windows go by btl ofi, which needs btl_ofi_mode=2",
			     name);
		if (!getenv(INCLUDE) && !parameters->includes)
			finding_remedy(finding, "export " INCLUDE "=shmcma");
	} else if (getenv(PML) && getenv(MTL) && getenv(INCLUDE)) {
		finding_what(finding, "%s; the environment leads its messages over shmcma", name);
	} else if (parameters->includes) {
		finding_what(finding, "%s; its parameters are in %s", name, files);
	} else if (files) {
		finding_what(finding, "%s; its parameters in %s do not name shmcma", name, files);
		advise(finding);
	} else {
		finding_what(finding, "%s; no variable keeps it from shmcma, and none leads it there",
			     name);
		advise(finding);
	}
	finding_show(finding);
}

void settings_check_openmpi(void)
{
	const char *files = getenv(FILES);
	struct warnings warnings = { .shown = false };
	struct parameters parameters;

	if (files && !strcmp(files, "none"))
		files = NULL;
	finding_init(&warnings.finding, "Open MPI");
	if (!goes_by_btl()) {
		check_openmpi_value(&warnings, PML, "cm");
		check_openmpi_value(&warnings, MTL, "ofi");
	}
	check_openmpi_value(&warnings, INCLUDE, "shmcma");
	parameters = read_openmpi_files(&warnings, files);
	check_openmpi_provider(&warnings, &parameters);
	if (!warnings.shown)
		tell_openmpi(&warnings.finding, &parameters, files);
}

/* ---- MPICH ----------------------------------------------------------------------------------- */

/* Variables that must not be switched on, and what MPICH 4.0 does then. */
static const struct setting mpich_refused[] = {
	{ "MPIR_CVAR_CH4_OFI_ENABLE_SHARED_CONTEXTS",
	  "MPICH closes its objects in an order that libfabric does not allow" },
	{ "MPIR_CVAR_CH4_OFI_MAX_RMA_SEP_CTX",
	  "MPICH closes its objects in an order that libfabric does not allow" },
	{ "MPIR_CVAR_CH4_OFI_ENABLE_DATA_AUTO_PROGRESS", "MPICH finds no provider" },
};

static bool is_on(const char *value)
{
	static const char *const off[] = { "", "0", "-1", "no", "off", "false" };

	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		if (!strcasecmp(value, off[i]))
			return false;
	return true;
}

void settings_check_mpich(void)
{
	const char *local = getenv(NOLOCAL);
	struct warnings warnings = { .shown = false };

	finding_init(&warnings.finding, "MPICH");
	for (size_t i = 0; i < sizeof(mpich_refused) / sizeof(mpich_refused[0]); i++) {
		const char *value = getenv(mpich_refused[i].name);

		if (!value || !is_on(value))
			continue;
		warn_of(&warnings, mpich_refused[i].name, value);
		finding_why(&warnings.finding, "%s", mpich_refused[i].value);
		finding_remedy(&warnings.finding, "unset it");
		finding_show(&warnings.finding);
	}
	if (local && !is_on(local)) {
		warn_of(&warnings, NOLOCAL, local);
		finding_why(&warnings.finding,
			    "MPICH then uses its own shared memory between processes of one machine");
		finding_remedy(&warnings.finding, "export " NOLOCAL "=1");
		finding_show(&warnings.finding);
	}
	if (warnings.shown)
		return;
	finding_what(&warnings.finding, "no variable keeps it from shmcma%s",
		     local ? "" : ", and none leads it there");
	if (!local)
		finding_remedy(&warnings.finding,
			       "shmcma run mpiexec ..., or export " NOLOCAL "=1 FI_PROVIDER=shmcma");
	finding_show(&warnings.finding);
}
