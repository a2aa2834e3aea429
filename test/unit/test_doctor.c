/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_doctor: shmcma doctor names the true cause in set-ups that the test has broken: of libfabric and the provider,
 * of /dev/shm, of limits, and of all that forbids a process to read another one's memory.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/stat.h>
#include "command.h"
#include "core_pair.h"

static bool alone; /* in a /dev/shm of our own */

/*
 * Most tests are not about libfabric, and to ask it takes long on a busy machine: a directory with an empty
 * libfabric.so.1, which cannot be loaded.
 */
static char no_libfabric[] = "/tmp/test_doctor.XXXXXX";

static void make_no_libfabric(void)
{
	char path[64];
	int fd;

	if (!mkdtemp(no_libfabric))
		abort();
	snprintf(path, sizeof(path), "%s/libfabric.so.1", no_libfabric);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || chmod(no_libfabric, 0755))
		abort();
	close(fd);
}

static void remove_no_libfabric(void)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/libfabric.so.1", no_libfabric);
	(void)unlink(path);
	(void)rmdir(no_libfabric);
}

/* Runs the doctor without libfabric. */
static void ask_doctor(const char *arguments, char text[COMMAND_TEXT])
{
	char line[128];

	snprintf(line, sizeof(line), "LD_LIBRARY_PATH=%s shmcma doctor %s", no_libfabric, arguments);
	assert_int_equal(run_command(line, text), 1);
	says(text, "fault    libfabric: libfabric.so.1 cannot be loaded");
}

/* The child's status shows whether the command names that cause. */
static void doctor_without_cma(struct child *self, void *arg)
{
	const int *err = arg;
	char text[COMMAND_TEXT];

	(void)self;
	child_on_its_own();
	if (!forbid_cma(*err, 0))
		_exit(CHILD_SKIPS);
	ask_doctor("", text);
	says(text, "warning  cross memory attach");
	says(text, "a seccomp filter forbids process_vm_readv");
}

static void test_doctor_seccomp(void **state)
{
	static const int errs[] = { EPERM, ENOSYS };

	(void)state;
	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		int status = child_run(doctor_without_cma, (void *)&errs[i]);

		CHILD_ASSERT(status);
	}
}

static void test_doctor(void **state)
{
	char text[COMMAND_TEXT];

	(void)state;
	assert_true(is_json("shmcma doctor --json"));
	(void)run_command("FI_SHMCMA_PEARS=7 shmcma doctor", text);
	says(text, "provider: libfabric finds shmcma 0");
	says(text, "libshmcma-fi.so");
	says(text, "FI_SHMCMA_PEARS is no parameter");
	says(text, "shared memory: ");
	says(text, "ok       proc: ");
	says(text, "left-overs: ");
	says(text, "ok       messages: messages of 8 B, 4 KiB and 1 MiB arrive, the last also without "
		   "cross memory");
	if (strstr(text, "can read each other's memory")) {
		(void)run_command("trap '' CHLD; shmcma doctor", text);
		says(text, "can read each other's memory");
	}
	assert_int_equal(run_command("FI_PROVIDER_PATH=/nowhere shmcma doctor", text), 1);
	says(text, "FI_PROVIDER_PATH=/nowhere has no libshmcma-fi.so");
	assert_int_equal(run_command("FI_PROVIDER_PATH=/no+where shmcma doctor", text), 1);
	says(text, "FI_PROVIDER_PATH=/no+where has no libshmcma-fi.so");
	assert_int_equal(run_command("FI_PROVIDER_PATH=+/nowhere/libshmcma-fi.so shmcma doctor", text), 1);
	says(text, "FI_PROVIDER_PATH=+/nowhere/libshmcma-fi.so ");
	assert_null(strstr(text, "messages: "));
	assert_int_equal(run_command("FI_PROVIDER=^shmcma shmcma doctor", text), 1);
	says(text, "FI_PROVIDER=^shmcma leaves it out");
	assert_int_equal(run_command("ulimit -n 32; shmcma doctor", text), 1);
	says(text, "fault    open files: a process may have 32");
	assert_int_equal(run_command("shmcma doctor 999999999", text), 1);
	says(text, "there is no process 999999999");
}

/* Runs the doctor without libfabric and with those variables. */
static void ask_with(const char *variables, char text[COMMAND_TEXT])
{
	char line[384];

	snprintf(line, sizeof(line), "LD_LIBRARY_PATH=%s %s shmcma doctor", no_libfabric, variables);
	assert_int_equal(run_command(line, text), 1);
}

/* The variables of the user's environment that the doctor looks at. */
static void unset_mpi(void)
{
	static const char *const names[] = { "FI_PROVIDER",
					     "FI_SHMCMA_REMOTE_COMM",
					     "OMPI_MCA_pml",
					     "OMPI_MCA_mtl",
					     "OMPI_MCA_btl",
					     "OMPI_MCA_opal_common_ofi_provider_include",
					     "OMPI_MCA_mca_base_param_files",
					     "MPIR_CVAR_NOLOCAL",
					     "MPIR_CVAR_CH4_OFI_ENABLE_SHARED_CONTEXTS",
					     "MPIR_CVAR_CH4_OFI_MAX_RMA_SEP_CTX",
					     "MPIR_CVAR_CH4_OFI_ENABLE_DATA_AUTO_PROGRESS" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

static void test_doctor_openmpi(void **state)
{
	char text[COMMAND_TEXT];

	(void)state;
	ask_with("", text);
	says(text, "ok       Open MPI: ");
	says(text, "no variable keeps it from shmcma, and none leads it there; shmcma run mpirun ..., or "
		   "export OMPI_");
	ask_with("OMPI_MCA_pml=ob1 OMPI_MCA_mtl=psm2 OMPI_MCA_opal_common_ofi_provider_include=tcp "
		 "FI_PROVIDER=^shmcma",
		 text);
	says(text, "warning  Open MPI: OMPI_MCA_pml=ob1: shmcma needs cm; unset it, or export "
		   "OMPI_MCA_pml=cm\n");
	says(text, "warning  Open MPI: OMPI_MCA_mtl=psm2: shmcma needs ofi; ");
	says(text,
	     "warning  Open MPI: OMPI_MCA_opal_common_ofi_provider_include=tcp: shmcma needs shmcma; ");
	says(text, "warning  Open MPI: FI_PROVIDER=^shmcma: it leaves shmcma out; ");
	ask_with("OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_opal_common_ofi_provider_include=tcp,shmcma",
		 text);
	says(text, "ok       Open MPI: ");
	says(text, "the environment leads its messages over shmcma\n");
	ask_with("OMPI_MCA_opal_common_ofi_provider_include=shmcma", text);
	says(text, "FI_PROVIDER is not set, so shmcma has no FI_REMOTE_COMM");
	ask_with("OMPI_MCA_mca_base_param_files=/etc/passwd,/nowhere/file", text);
	says(text, "warning  Open MPI: OMPI_MCA_mca_base_param_files=/nowhere/file: it cannot be read: No "
		   "such file or dir");
	assert_null(strstr(text, "/etc/passwd"));
	ask_with("OMPI_MCA_mca_base_param_files=/etc/passwd", text);
	says(text, "; its parameters in /etc/passwd do not name shmcma; shmcma run mpirun ..., or export");
	ask_with("OMPI_MCA_mca_base_param_files=none", text);
	says(text, "no variable keeps it from shmcma, and none leads it there; ");
}

/* Runs the doctor with a parameter file of that text. */
static void ask_with_file(const char *parameters, const char *variables, char text[COMMAND_TEXT])
{
	char path[] = "/tmp/test_doctor.XXXXXX", line[256];
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, parameters, strlen(parameters)), strlen(parameters));
	close(fd);
	snprintf(line, sizeof(line), "OMPI_MCA_mca_base_param_files=/etc/passwd,%s %s", path, variables);
	ask_with(line, text);
	unlink(path);
}

/* Parameter files that name the provider, that name it only in a comment, and that say nothing of FI_PROVIDER. */
static void test_doctor_parameters(void **state)
{
	static const char include[] = "OMPI_MCA_opal_common_ofi_provider_include=shmcma";
	static const char warning[] = "FI_PROVIDER is not set, so shmcma has no FI_REMOTE_COMM";
	char text[COMMAND_TEXT];

	(void)state;
	ask_with_file("pml = cm\n\topal_common_ofi_provider_include = shmcma\n"
		      "mca_base_env_list = FI_PROVIDER=shmcma\n",
		      "", text);
	says(text, "ok       Open MPI: ");
	says(text, "; its parameters are in /etc/passwd,/tmp/test_doctor.");
	ask_with_file("#opal_common_ofi_provider_include = shmcma\n", "", text);
	says(text, " do not name shmcma; ");
	ask_with_file("opal_common_ofi_provider_include = shmcma\n", "", text);
	says(text, warning);
	ask_with_file("opal_common_ofi_provider_include = shmcma\n", "FI_PROVIDER=shmcma", text);
	says(text, "; its parameters are in ");
	ask_with_file("pml = cm\n# mca_base_env_list = FI_PROVIDER=shmcma\n", include, text);
	says(text, warning);
	ask_with_file("mca_base_env_list = FI_SHMCMA_REMOTE_COMM=1\n", include, text);
	assert_null(strstr(text, warning));
	says(text, " do not name shmcma; ");
}

/* All of it by btl ofi, which pml ob1 takes, and settings that keep ob1 from it. */
static void test_doctor_btl(void **state)
{
	static const char *const others[] = { "", "OMPI_MCA_btl=self,sm", "OMPI_MCA_btl=^ofi,sm",
					      "OMPI_MCA_btl=self,ofi2" };
	char line[64], text[COMMAND_TEXT];

	(void)state;
	ask_with("OMPI_MCA_pml=ob1 OMPI_MCA_mtl=psm2 OMPI_MCA_btl=self,ofi FI_PROVIDER=shmcma "
		 "OMPI_MCA_opal_common_ofi_provider_include=shmcma",
		 text);
	says(text, "ok       Open MPI: ");
	says(text, "; messages and windows go by btl ofi, which needs btl_ofi_mode=2\n");
	ask_with("OMPI_MCA_pml=ob1 OMPI_MCA_btl=ofi,self", text);
	says(text, "; messages and windows go by btl ofi, which needs btl_ofi_mode=2; export "
		   "OMPI_MCA_opal_common_ofi_provider_include=shmcma\n");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		snprintf(line, sizeof(line), "OMPI_MCA_pml=ob1 %s", others[i]);
		ask_with(line, text);
		says(text, "warning  Open MPI: OMPI_MCA_pml=ob1: shmcma needs cm; ");
	}
}

/*
 * Launchers that tell a version of Open MPI, and one that tells another name. A wrapper prints other lines first, and does
 * not end; one closes its output and does not end.
 */
static void test_doctor_launcher(void **state)
{
	static const char line[] =
		"d=$(mktemp -d); printf '#!/bin/sh\n%s\n' >$d/mpirun; chmod +x $d/mpirun; "
		"PATH=$d:$PATH shmcma doctor | grep 'Open MPI: '; rm -r $d";
	char whole[384], text[COMMAND_TEXT];

	(void)state;
	setenv("LD_LIBRARY_PATH", no_libfabric, 1);
	snprintf(whole, sizeof(whole), line, "echo mpirun \"(Open MPI)\" 5.0.7");
	assert_int_equal(run_command(whole, text), 0);
	says(text, "Open MPI: mpirun is of Open MPI 5; ");
	snprintf(whole, sizeof(whole), line, "echo HYDRA build details");
	assert_int_equal(run_command(whole, text), 0);
	says(text, "Open MPI: there is no mpirun of it; ");
	snprintf(whole, sizeof(whole), line,
		 "uname; echo a module; echo mpirun \"(Open MPI)\" 4.1.4; exec sleep 1000");
	assert_int_equal(run_command(whole, text), 0);
	says(text, "Open MPI: mpirun is of Open MPI 4; ");
	snprintf(whole, sizeof(whole), line, "echo HYDRA; exec sleep 1000 >/dev/null 2>&1");
	assert_int_equal(run_command(whole, text), 0);
	says(text, "Open MPI: there is no mpirun of it; ");
	unsetenv("LD_LIBRARY_PATH");
}

static void test_doctor_mpich(void **state)
{
	char text[COMMAND_TEXT];

	(void)state;
	ask_with("MPIR_CVAR_CH4_OFI_ENABLE_SHARED_CONTEXTS=0 MPIR_CVAR_CH4_OFI_MAX_RMA_SEP_CTX=0", text);
	says(text, "ok       MPICH: no variable keeps it from shmcma, and none leads it there; shmcma run "
		   "mpiexec ...");
	ask_with("MPIR_CVAR_NOLOCAL=1", text);
	says(text, "ok       MPICH: no variable keeps it from shmcma\n");
	ask_with("MPIR_CVAR_NOLOCAL=0 MPIR_CVAR_CH4_OFI_ENABLE_SHARED_CONTEXTS=1 "
		 "MPIR_CVAR_CH4_OFI_MAX_RMA_SEP_CTX=4 "
		 "MPIR_CVAR_CH4_OFI_ENABLE_DATA_AUTO_PROGRESS=yes",
		 text);
	says(text, "warning  MPICH: MPIR_CVAR_NOLOCAL=0: MPICH then uses its own shared memory");
	says(text, "warning  MPICH: MPIR_CVAR_CH4_OFI_ENABLE_SHARED_CONTEXTS=1: ");
	says(text, "warning  MPICH: MPIR_CVAR_CH4_OFI_MAX_RMA_SEP_CTX=4: ");
	says(text, "warning  MPICH: MPIR_CVAR_CH4_OFI_ENABLE_DATA_AUTO_PROGRESS=yes: MPICH finds no "
		   "provider; unset it");
}

/* This child goes on in a /dev/shm of its own, mounted with those options; or ends as one that cannot do so here. */
static void live_in(const char *options)
{
	child_on_its_own();
	if (!child_private_shm(options))
		_exit(CHILD_SKIPS);
}

/* Messages that do not arrive: there is no room for an endpoint; a process dies on one way. */
static void doctor_without_messages(struct child *self, void *arg)
{
	char text[COMMAND_TEXT];

	(void)self;
	(void)arg;
	live_in("size=16k,mode=1777"); /* in 64 KiB, two endpoints that take turns may just fit */
	assert_int_equal(run_command("shmcma doctor", text), 1);
	says(text, "fault    messages: a message of 8 B between two processes does not arrive: ");
	says(text, "No space left on device");
}

static void test_doctor_messages(void **state)
{
	int status = child_run(doctor_without_messages, NULL);

	(void)state;
	CHILD_ASSERT(status);
#ifdef SC_FAULT_INJECTION
	char text[COMMAND_TEXT];

	assert_int_equal(run_command("SHMCMA_FAULT=tx.inline:kill shmcma doctor", text), 1);
	says(text, "fault    messages: a message of 8 B between two processes does not arrive: ");
	assert_int_equal(run_command("SHMCMA_FAULT=bounce.record:kill shmcma doctor", text), 1);
	says(text, "fault    messages: a message of 4 KiB between two processes does not arrive: ");
	assert_int_equal(run_command("SHMCMA_FAULT=txop.rdv:kill shmcma doctor", text), 1);
	says(text, "fault    messages: a message of 1 MiB between two processes does not arrive: ");
#endif
}

/* A /dev/shm in which there is no room, and what the doctor says of it. */
struct shm {
	const char *options, *prepare, *arguments, *cause;
};

static const struct shm shms[] = {
	{ "size=256k,mode=1777", ":", "", "2 endpoints need " },
	{ "size=4m,mode=1777", "head -c 4000000 /dev/zero >/dev/shm/full", "", "2 endpoints need " },
	{ "size=1m,mode=1777", ":", "--ranks 32", "32 endpoints need " },
	{ "size=4m,mode=1777", "mount -o remount,ro /dev/shm", "", "Read-only file system" },
};

static void doctor_without_room(struct child *self, void *arg)
{
	const struct shm *shm = arg;
	char text[COMMAND_TEXT];

	(void)self;
	live_in(shm->options);
	if (run_command(shm->prepare, text))
		_exit(CHILD_SKIPS);
	ask_doctor(shm->arguments, text);
	says(text, "fault    shared memory: ");
	says(text, shm->cause);
}

static void test_doctor_shm(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(shms) / sizeof(shms[0]); i++) {
		int status = child_run(doctor_without_room, (void *)&shms[i]);

		CHILD_ASSERT(status);
	}
}

/* The same size is enough for fewer. */
static void doctor_with_room(struct child *self, void *arg)
{
	char text[COMMAND_TEXT];

	(void)self;
	(void)arg;
	live_in("size=1m,mode=1777");
	ask_doctor("", text);
	says(text, "ok       shared memory: ");
}

static void test_doctor_room(void **state)
{
	int status = child_run(doctor_with_room, NULL);

	(void)state;
	CHILD_ASSERT(status);
}

/* Endpoints find room once they have fewer or smaller buffers, in values that the provider takes. */
static void doctor_with_buffers(struct child *self, void *arg)
{
	static const char *const enough[] = { "FI_SHMCMA_BOUNCE_COUNT=8", "FI_SHMCMA_BOUNCE_COUNT=' 0x8 '",
					      "FI_SHMCMA_BOUNCE_SIZE=256" };
	static const char *const no_good[] = { "", "FI_SHMCMA_BOUNCE_COUNT=1",
					       "FI_SHMCMA_BOUNCE_COUNT=few", "FI_SHMCMA_BOUNCE_COUNT=8k",
					       "FI_SHMCMA_BOUNCE_SIZE=320" };
	char line[128], text[COMMAND_TEXT];

	(void)self;
	(void)arg;
	live_in("size=1m,mode=1777");
	setenv("LD_LIBRARY_PATH", no_libfabric, 1);
	for (size_t i = 0; i < sizeof(enough) / sizeof(enough[0]); i++) {
		snprintf(line, sizeof(line), "%s shmcma doctor --ranks 4", enough[i]);
		(void)run_command(line, text);
		says(text, "ok       shared memory: ");
	}
	for (size_t i = 0; i < sizeof(no_good) / sizeof(no_good[0]); i++) {
		snprintf(line, sizeof(line), "%s shmcma doctor --ranks 4", no_good[i]);
		(void)run_command(line, text);
		says(text, "fault    shared memory: ");
		says(text, "4 endpoints need ");
	}
}

static void test_doctor_buffers(void **state)
{
	int status = child_run(doctor_with_buffers, NULL);

	(void)state;
	CHILD_ASSERT(status);
}

/* Without /proc no endpoint can be made, and checks that read there say nothing. */
static void doctor_without_proc(struct child *self, void *arg)
{
	static const char *const unknown[] = { "left-overs: ", "pid namespace: ", "process: ",
					       "messages: " };
	char text[COMMAND_TEXT];

	(void)self;
	(void)arg;
	live_in("size=8m,mode=1777");
	if (mount("shmcma-test", "/proc", "tmpfs", 0, NULL))
		_exit(CHILD_SKIPS);
	assert_int_equal(run_command("shmcma doctor 1", text), 1);
	says(text,
	     "fault    proc: /proc/sys/kernel/random/boot_id cannot be read: No such file or directory; ");
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		assert_null(strstr(text, unknown[i]));
}

static void test_doctor_proc(void **state)
{
	int status = child_run(doctor_without_proc, NULL);

	(void)state;
	CHILD_ASSERT(status);
}

/* Runs the doctor with a libfabric that is compiled from that source. Returns the exit status. */
static int ask_with_libfabric(const char *source, char text[COMMAND_TEXT])
{
	static const char make[] =
		"${CC:-cc} $(pkg-config --cflags libfabric) -shared -fPIC -o %s/libfabric.so.1 %s/fake.c "
		"&& LD_LIBRARY_PATH=%s shmcma doctor; status=$?; rm -r %s; exit $status";
	char dir[] = "/tmp/test_doctor.XXXXXX", line[512];
	FILE *file;

	if (!mkdtemp(dir))
		skip();
	snprintf(line, sizeof(line), "%s/fake.c", dir);
	file = fopen(line, "we");
	assert_non_null(file);
	assert_true(fputs(source, file) >= 0);
	assert_int_equal(fclose(file), 0);
	snprintf(line, sizeof(line), make, dir, dir, dir, dir);
	return run_command(line, text);
}

/* A libfabric that says it is older than 1.17. */
static void test_doctor_old_libfabric(void **state)
{
	char text[COMMAND_TEXT];

	(void)state;
	assert_int_equal(ask_with_libfabric("unsigned fi_version(void) { return 1 << 16 | 16; }", text),
			 1);
	says(text, "fault    libfabric: libfabric 1.16: it is too old");
}

/* A libfabric that finds a provider of another version than the command's. */
static void test_doctor_other_version(void **state)
{
	static const char source[] =
		"#include <rdma/fabric.h>\n"
		"static struct fi_fabric_attr fabric = { .prov_version = FI_VERSION(99, 7) };\n"
		"static struct fi_info own = { .fabric_attr = &fabric };\n"
		"uint32_t fi_version(void) { return FI_VERSION(1, 17); }\n"
		"struct fi_info *fi_dupinfo(const struct fi_info *info) { return &own; }\n"
		"int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,\n"
		"	       const struct fi_info *hints, struct fi_info **info)\n"
		"{ *info = &own; return 0; }\n";
	char text[COMMAND_TEXT];

	(void)state;
	(void)ask_with_libfabric(source, text);
	says(text, "ok       libfabric: libfabric 1.17");
	says(text, "warning  provider: libfabric finds shmcma 99.7 in a file that is not known: "
		   "this command is of version 0.");
	says(text, "install both from one version, or set FI_PROVIDER_PATH");
}

/* ---- Yama ------------------------------------------------------------------------------------ */

#define KERNEL "/proc/sys/kernel"

/* Yama forbids to read other processes; the command may read itself. */
static void be_doctor(int output)
{
	const char *build = getenv("abs_top_builddir");
	char path[512];

	snprintf(path, sizeof(path), "%s/util/shmcma", build ? build : ".");
	if (!forbid_cma(EPERM, getpid()))
		_exit(CHILD_SKIPS);
	setenv("LD_LIBRARY_PATH", no_libfabric, 1);
	(void)dup2(output, STDOUT_FILENO);
	execl(path, "shmcma", "doctor", (char *)NULL);
	_exit(CHILD_SKIPS);
}

/*
 * As if the kernel had Yama with that value, for it may have none: a /proc/sys/kernel with its file. A filter forbids
 * what Yama would forbid.
 */
static bool have_yama(const char *scope)
{
	char line[256], text[COMMAND_TEXT];

	snprintf(line, sizeof(line),
		 "id=$(cat " KERNEL "/random/boot_id) && mount -t tmpfs tmpfs " KERNEL " && cd " KERNEL
		 " && mkdir random yama && echo $id >random/boot_id && echo %s >yama/ptrace_scope",
		 scope);
	return child_private_shm("size=16m,mode=1777") && !run_command(line, text);
}

static void doctor_with_yama(struct child *self, void *arg)
{
	const char *scope = arg;
	char text[COMMAND_TEXT], cause[128];
	int fds[2];
	size_t got = 0;
	ssize_t ret;
	pid_t pid;

	(void)self;
	child_on_its_own();
	if (!have_yama(scope) || pipe(fds))
		_exit(CHILD_SKIPS);
	pid = fork();
	if (!pid)
		be_doctor(fds[1]);
	close(fds[1]);
	while ((ret = read(fds[0], text + got, COMMAND_TEXT - 1 - got)) > 0)
		got += (size_t)ret;
	text[got] = '\0';
	(void)waitpid(pid, NULL, 0);
	snprintf(cause, sizeof(cause), "Yama forbids it: " KERNEL "/yama/ptrace_scope is %s", scope);
	says(text, *scope == '0' ? "a security module forbids it" : cause);
	says(text, *scope == '0' ? "AppArmor or SELinux" : "sysctl kernel.yama.ptrace_scope=0");
	if (*scope == '3')
		says(text, "boot again");
}

static void test_doctor_yama(void **state)
{
	static const char *const scopes[] = { "0", "1", "2", "3" };

	(void)state;
	if (!cma_allowed())
		skip();
	for (size_t i = 0; i < sizeof(scopes) / sizeof(scopes[0]); i++) {
		int status = child_run(doctor_with_yama, (void *)scopes[i]);

		CHILD_ASSERT(status);
	}
}

/* A copy of the provider that lacks its end: the process that loads it crashes. */
static void test_doctor_damaged(void **state)
{
	char dir[] = "/tmp/test_doctor.XXXXXX", line[512], text[COMMAND_TEXT];
	const char *path = getenv("FI_PROVIDER_PATH");

	(void)state;
	if (!path || !mkdtemp(dir))
		skip();
	snprintf(
		line, sizeof(line),
		"head -c 200000 %s/libshmcma-fi.so >%s/libshmcma-fi.so; FI_PROVIDER_PATH=%s shmcma doctor",
		path, dir, dir);
	assert_int_equal(run_command(line, text), 1);
	says(text, "fault    ");
	says(text, dir);
	snprintf(line, sizeof(line), "FI_PROVIDER_PATH=@/nowhere:%s shmcma doctor", dir);
	assert_int_equal(run_command(line, text), 1);
	says(text, "fault    ");
	says(text, dir);
	snprintf(line, sizeof(line), "rm -r %s", dir);
	assert_int_equal(run_command(line, text), 0);
}

/* ---- other processes ------------------------------------------------------------------------- */

static void be_elsewhere(struct child *self, void *arg)
{
	(void)arg;
	if (!child_private_shm("size=1m,mode=1777"))
		_exit(CHILD_SKIPS);
	child_tell(self, "");
	child_wait(self);
}

static void test_doctor_elsewhere(void **state)
{
	char line[64], text[COMMAND_TEXT];
	struct child child;

	(void)state;
	if (!cma_allowed())
		skip();
	if (!child_start(&child, be_elsewhere, NULL)) {
		child_kill(&child);
		skip();
	}
	snprintf(line, sizeof(line), "%d", (int)child.pid);
	ask_doctor(line, text);
	assert_int_equal(child_end(&child), 0);
	if (!alone || geteuid()) /* it may be in a user namespace of its own: then that is the cause */
		skip();
	says(text, "has another /dev/shm");
}

/* This process takes that user and group for good. */
static void become(unsigned int id)
{
	if (setgid(id) || setuid(id))
		_exit(CHILD_SKIPS);
}

/* A process of another user, dumpable or not. */
static void be_other(struct child *self, void *dumpable)
{
	become(4711);
	prctl(PR_SET_DUMPABLE, *(const bool *)dumpable);
	child_tell(self, "");
	child_wait(self);
}

/* The doctor names the cause for that process. */
static void doctor_says(pid_t pid, const char *cause)
{
	char line[64], text[COMMAND_TEXT];

	snprintf(line, sizeof(line), "%d", (int)pid);
	ask_doctor(line, text);
	says(text, cause);
}

static void look_at_undumpable(struct child *self, void *pid)
{
	(void)self;
	child_on_its_own();
	become(4711);
	doctor_says(*(const pid_t *)pid, "the process is not dumpable");
}

static void look_as_other(struct child *self, void *pid)
{
	(void)self;
	child_on_its_own();
	become(4712);
	doctor_says(*(const pid_t *)pid, "other user numbers");
}

static void look_from_namespace(struct child *self, void *pid)
{
	(void)self;
	child_on_its_own();
	become(4711);
	prctl(PR_SET_DUMPABLE, 1);
	if (unshare(CLONE_NEWUSER))
		_exit(CHILD_SKIPS);
	child_write_file("/proc/self/setgroups", "deny");
	child_write_file("/proc/self/uid_map", "4711 4711 1");
	child_write_file("/proc/self/gid_map", "4711 4711 1");
	doctor_says(*(const pid_t *)pid, "the process is in another user namespace");
}

/* A process of that user with another group. */
static void be_of_other_group(struct child *self, void *arg)
{
	(void)arg;
	if (setgid(4712) || setuid(4711))
		_exit(CHILD_SKIPS);
	prctl(PR_SET_DUMPABLE, 1);
	child_tell(self, "");
	child_wait(self);
}

static void look_from_group(struct child *self, void *pid)
{
	(void)self;
	child_on_its_own();
	become(4711);
	doctor_says(*(const pid_t *)pid, "other group numbers");
}

/* A process of this user with all capabilities. */
static void be_capable(struct child *self, void *arg)
{
	(void)arg;
	child_tell(self, "");
	child_wait(self);
}

/* The command starts without capabilities, although it is root's. */
static void look_without_capabilities(struct child *self, void *pid)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	(void)self;
	child_on_its_own();
	if (geteuid() || prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED) ||
	    syscall(SYS_capset, &header, data))
		_exit(CHILD_SKIPS);
	doctor_says(*(const pid_t *)pid, "the process has capabilities that this one lacks");
}

static void look_from_pid_namespace(struct child *self, void *arg)
{
	char text[COMMAND_TEXT];

	(void)self;
	(void)arg;
	child_on_its_own();
	if (unshare(CLONE_NEWPID))
		_exit(CHILD_SKIPS);
	ask_doctor("4000000", text);
	says(text, "pid namespace: endpoints of processes that are not visible from here: ");
	says(text, "they are in another pid namespace");
	says(text, "it has ended, or is in another pid namespace");
}

/* The test looks at a process that runs `body` from another one that runs `look`. */
static void look_at(child_body *body, child_body *look)
{
	struct child child;
	int status;

	if (!child_start(&child, body, NULL)) {
		child_kill(&child);
		skip();
	}
	status = child_run(look, &child.pid);
	(void)child_end(&child);
	CHILD_ASSERT(status);
}

static void test_doctor_group(void **state)
{
	(void)state;
	look_at(be_of_other_group, look_from_group);
}

static void test_doctor_capabilities(void **state)
{
	(void)state;
	if (!cma_allowed())
		skip();
	look_at(be_capable, look_without_capabilities);
}

static void have_endpoint(struct child *self, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, NULL);
	child_tell(self, "");
	child_wait(self);
	end_close(&end);
}

static void test_doctor_pid_namespace(void **state)
{
	(void)state;
	look_at(have_endpoint, look_from_pid_namespace);
}

static void test_doctor_user_namespace(void **state)
{
	struct child child;
	int status;

	(void)state;
	if (!child_start(&child, be_other, &(bool){ true })) {
		child_kill(&child);
		skip();
	}
	status = child_run(look_from_namespace, &child.pid);
	child_kill(&child);
	CHILD_ASSERT(status);
}

static void test_doctor_process(void **state)
{
	struct child child;
	int status;

	(void)state;
	if (!child_start(&child, be_other, &(bool){ false })) {
		child_kill(&child);
		skip();
	}
	status = child_run(look_at_undumpable, &child.pid);
	if (!status)
		status = child_run(look_as_other, &child.pid);
	child_kill(&child);
	CHILD_ASSERT(status);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_doctor_seccomp),
		cmocka_unit_test(test_doctor),
		cmocka_unit_test(test_doctor_messages),
		cmocka_unit_test(test_doctor_openmpi),
		cmocka_unit_test(test_doctor_btl),
		cmocka_unit_test(test_doctor_parameters),
		cmocka_unit_test(test_doctor_launcher),
		cmocka_unit_test(test_doctor_mpich),
		cmocka_unit_test(test_doctor_shm),
		cmocka_unit_test(test_doctor_room),
		cmocka_unit_test(test_doctor_proc),
		cmocka_unit_test(test_doctor_buffers),
		cmocka_unit_test(test_doctor_old_libfabric),
		cmocka_unit_test(test_doctor_other_version),
		cmocka_unit_test(test_doctor_yama),
		cmocka_unit_test(test_doctor_damaged),
		cmocka_unit_test(test_doctor_elsewhere),
		cmocka_unit_test(test_doctor_group),
		cmocka_unit_test(test_doctor_capabilities),
		cmocka_unit_test(test_doctor_pid_namespace),
		cmocka_unit_test(test_doctor_user_namespace),
		cmocka_unit_test(test_doctor_process),
	};

	int failed;

	unset_mpi();
	alone = child_private_shm("size=64m,mode=1777");
	make_no_libfabric();
	failed = cmocka_run_group_tests(tests, pair_setup, NULL);
	remove_no_libfabric();
	return failed;
}
