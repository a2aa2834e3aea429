/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_command: shmcma top, on a terminal and without one; shmcma run, of commands of the shell; and that the commands
 * that show endpoints change nothing in their files.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include "command.h"
#include "core_pair.h"

static bool alone; /* in a /dev/shm of our own */

static void have_endpoint(struct child *self, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, NULL);
	child_tell(self, sc_ep_address(end.ep));
	child_wait(self);
	end_close(&end);
}

/* ---- nothing changes ------------------------------------------------------------------------- */

/* A file, as one look finds it. */
struct image {
	struct stat st;
	uint8_t *bytes;
};

static struct image image_of(const char *address)
{
	char path[SC_SHMFILE_PATH_MAX];
	struct image image;
	int fd;

	core_path(address, 0, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &image.st), 0);
	image.bytes = malloc((size_t)image.st.st_size);
	assert_non_null(image.bytes);
	assert_int_equal(pread(fd, image.bytes, (size_t)image.st.st_size, 0), image.st.st_size);
	close(fd);
	return image;
}

/* The owner is stopped, so that a change would be the command's. */
static void test_reads_only(void **state)
{
	static const char *const lines[] = { "shmcma ps", "shmcma stats", "shmcma top -1 -d 0.1",
					     "shmcma doctor" };
	char line[512], text[COMMAND_TEXT];
	struct child child;

	(void)state;
	assert_true(child_start(&child, have_endpoint, NULL));
	assert_int_equal(kill(child.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct image before = image_of(child.line), after;

		snprintf(line, sizeof(line), "%s %s", lines[i],
			 strstr(lines[i], "stats") ? child.line : "");
		(void)run_command(line, text);
		after = image_of(child.line);
		assert_int_equal(before.st.st_size, after.st.st_size);
		assert_int_equal(before.st.st_blocks, after.st.st_blocks);
		assert_int_equal(before.st.st_nlink, after.st.st_nlink);
		assert_memory_equal(before.bytes, after.bytes, (size_t)before.st.st_size);
		free(before.bytes);
		free(after.bytes);
	}
	child_kill(&child);
}

/* ---- top ------------------------------------------------------------------------------------- */

static void test_top_lines(void **state)
{
	char text[COMMAND_TEXT];
	struct child child;

	(void)state;
	assert_true(child_start(&child, have_endpoint, NULL));
	assert_int_equal(run_command("shmcma top -n 2 -d 0.1", text), 0);
	says(text, "PID  USER");
	says(text, child.line);
	says(strstr(text, child.line), "PID  USER");
	assert_null(strchr(text, '\033'));
	assert_int_equal(run_command("shmcma top --once --interval 0.1 --sort memory", text), 0);
	says(text, "STATE       AGE  PEERS");
	says(text, "BYTE/s  RDVB/s   RMA/s");
	says(text, "live");
	assert_true(is_json("shmcma top --json --interval 0.1 --count 2"));
	assert_int_equal(run_command("shmcma top --json --interval 0.1", text), 0);
	says(text, "\"memory_bytes\": ");
	says(text, "\"ring_percent\": 0,");
	says(text, "\"age_seconds\": ");
	if (cma_allowed()) {
		says(text, "\"per_second\": {");
		says(text, "\"tx_msgs\": 0");
	}
	assert_int_equal(run_command("shmcma top --sort colour 2>/dev/null", text), 2);
	assert_int_equal(run_command("shmcma top --count 0 2>/dev/null", text), 2);
	assert_int_equal(run_command("shmcma top --once --interval never 2>/dev/null", text), 2);
	assert_int_equal(run_command("shmcma top --once now 2>/dev/null", text), 2);
	/* a reader that takes one line and goes */
	assert_int_equal(run_command("shmcma top -d 0.1 2>/dev/null | head -n 1", text), 0);
	says(text, "PID  USER");
	assert_int_equal(child_end(&child), 0);
}

/*
 * A terminal, and the command on it. This process has the terminal open too, as a user's shell does: a terminal that
 * its last process closes may lose the last output, and takes its former state by itself.
 */
struct terminal {
	int master, slave;
	int alive; /* a pipe that the command has open for writing until it ends */
	pid_t pid;
	char text[COMMAND_TEXT];
	size_t used;
};

static void be_top(const char *path, const char *name)
{
	int slave;

	setsid();
	slave = open(name, O_RDWR);
	if (slave < 0)
		_exit(3);
	(void)ioctl(slave, TIOCSCTTY, 0);
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(slave, fd);
	execl(path, "shmcma", "top", "-d", "0.1", (char *)NULL);
	_exit(4);
}

static void terminal_open(struct terminal *terminal)
{
	struct winsize size = { .ws_row = 8, .ws_col = 60 };
	char path[512];
	int ends[2];

	command_path(path, sizeof(path));
	terminal->used = 0;
	terminal->master = posix_openpt(O_RDWR | O_NOCTTY);
	assert_true(terminal->master >= 0);
	assert_int_equal(grantpt(terminal->master), 0);
	assert_int_equal(unlockpt(terminal->master), 0);
	assert_int_equal(ioctl(terminal->master, TIOCSWINSZ, &size), 0);
	terminal->slave = open(ptsname(terminal->master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	assert_true(terminal->slave >= 0);
	assert_int_equal(pipe(ends), 0);
	terminal->pid = fork();
	if (!terminal->pid)
		be_top(path, ptsname(terminal->master));
	assert_true(terminal->pid > 0);
	close(ends[1]);
	terminal->alive = ends[0];
}

static void terminal_close(struct terminal *terminal)
{
	close(terminal->alive);
	close(terminal->slave);
	close(terminal->master);
}

static int terminal_reap(struct terminal *terminal)
{
	int status;

	assert_int_equal(waitpid(terminal->pid, &status, 0), terminal->pid);
	return status;
}

/* Waits until there is something to read. False: the command has ended, and all that it has written is read. */
static bool terminal_has_more(const struct terminal *terminal)
{
	struct pollfd polls[] = { { .fd = terminal->master, .events = POLLIN },
				  { .fd = terminal->alive } };

	assert_true(poll(polls, 2, -1) > 0);
	if (!polls[0].revents) /* the command has ended after a look at the terminal */
		assert_true(poll(polls, 1, 0) >= 0);
	return polls[0].revents & POLLIN;
}

/* Reads until that text comes. False: the command has ended without it. */
static bool terminal_awaits(struct terminal *terminal, const char *part)
{
	for (;;) {
		size_t room = COMMAND_TEXT - 1 - terminal->used;
		ssize_t got;

		terminal->text[terminal->used] = '\0';
		if (strstr(terminal->text, part))
			return true;
		if (room < 1024) { /* pictures that nobody needs any more */
			memmove(terminal->text, terminal->text + 16384, terminal->used - 16384);
			terminal->used -= 16384;
			continue;
		}
		if (!terminal_has_more(terminal))
			return false;
		got = read(terminal->master, terminal->text + terminal->used, room);
		assert_true(got > 0);
		terminal->used += (size_t)got;
	}
}

static bool terminal_is_raw(const struct terminal *terminal)
{
	struct termios state;

	assert_int_equal(tcgetattr(terminal->master, &state), 0);
	return (state.c_lflag & (ICANON | ECHO | NOFLSH)) == NOFLSH;
}

#define ENTERED "\033[?1049h"
#define LEFT "\033[?1049l"

static void terminal_forget(struct terminal *terminal)
{
	terminal->used = 0;
}

/* The command ends by a key or by a signal: the terminal has its former state again. */
static void end_top(const char *key, int number)
{
	struct terminal terminal;
	int status;

	terminal_open(&terminal);
	assert_true(terminal_awaits(&terminal, ENTERED));
	assert_true(terminal_awaits(&terminal, "PID  USER"));
	assert_true(terminal_is_raw(&terminal));
	assert_int_equal(write(terminal.master, "m", 1), 1);
	assert_true(terminal_awaits(&terminal, "by memory"));
	if (key)
		assert_int_equal(write(terminal.master, key, 1), 1);
	else
		assert_int_equal(kill(terminal.pid, number), 0);
	status = terminal_reap(&terminal);
	assert_true(terminal_awaits(&terminal, LEFT));
	assert_false(terminal_is_raw(&terminal));
	if (number)
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == number);
	else
		assert_int_equal(status, 0);
	terminal_close(&terminal);
}

static void test_top_ends(void **state)
{
	(void)state;
	end_top("q", 0);
	end_top("\003", SIGINT); /* the terminal makes a signal of it */
	end_top(NULL, SIGTERM);
	end_top(NULL, SIGHUP);
	end_top(NULL, SIGQUIT);
}

/* A process that is stopped has given the terminal back, and takes it again when it goes on. */
static void test_top_stops(void **state)
{
	struct terminal terminal;
	int status;

	(void)state;
	terminal_open(&terminal);
	assert_true(terminal_awaits(&terminal, "PID  USER"));
	assert_int_equal(kill(terminal.pid, SIGTSTP), 0);
	assert_int_equal(waitpid(terminal.pid, &status, WUNTRACED), terminal.pid);
	assert_true(WIFSTOPPED(status));
	assert_true(terminal_awaits(&terminal, LEFT));
	assert_false(terminal_is_raw(&terminal));
	terminal_forget(&terminal);
	assert_int_equal(kill(terminal.pid, SIGCONT), 0);
	assert_true(terminal_awaits(&terminal, ENTERED));
	assert_true(terminal_awaits(&terminal, "PID  USER"));
	assert_true(terminal_is_raw(&terminal));
	assert_int_equal(write(terminal.master, "q", 1), 1);
	assert_int_equal(terminal_reap(&terminal), 0);
	terminal_close(&terminal);
}

/* ---- run ------------------------------------------------------------------------------------- */

static void test_run_status(void **state)
{
	char text[COMMAND_TEXT];

	(void)state;
	assert_int_equal(run_command("shmcma run true 2>/dev/null", text), 0);
	assert_int_equal(run_command("shmcma run -- sh -c 'exit 7' 2>/dev/null", text), 7);
	assert_int_equal(run_command("shmcma run sh -c 'kill -9 $$' 2>/dev/null", text), 128 + SIGKILL);
	assert_int_equal(run_command("shmcma run /nowhere/nothing 2>/dev/null", text), 127);
	assert_int_equal(run_command("shmcma run / 2>/dev/null", text), 126);
	assert_int_equal(run_command("shmcma run 2>/dev/null", text), 2);
	/* a report that has no place: the job does not begin */
	assert_int_equal(run_command("shmcma run -o /nowhere/report echo begun 2>&1", text), 1);
	says(text, "shmcma run: cannot write to /nowhere/report: No such file or directory");
	assert_null(strstr(text, "begun"));
	/* a report behind what the job has written to its file */
	assert_int_equal(
		run_command("f=$(mktemp); shmcma run -o $f sh -c \"echo begun >>$f\"; cat $f; rm $f",
			    text),
		0);
	assert_string_equal(strtok(text, "\n"), "begun");
	says(strtok(NULL, "\n"), "no process has told that it used shmcma");
	assert_int_equal(run_command("shmcma run sh -c 'exit 7' 2>&1", text), 7);
	says(text, "no process has told that it used shmcma");
	/* the options behind the command are its own */
	assert_int_equal(run_command("shmcma run echo --json 2>/dev/null", text), 0);
	assert_string_equal(text, "--json\n");
}

static void test_run_environment(void **state)
{
	char text[COMMAND_TEXT];

	(void)state;
	assert_int_equal(run_command("unset FI_PROVIDER; shmcma run env 2>/dev/null", text), 0);
	says(text, "FI_PROVIDER=shmcma\n");
	says(text, "OMPI_MCA_pml=cm\n");
	says(text, "OMPI_MCA_mtl=ofi\n");
	says(text, "OMPI_MCA_opal_common_ofi_provider_include=shmcma\n");
	says(text, "MPIR_CVAR_NOLOCAL=1\n");
	says(text, "SHMEM_OFI_PROVIDER=shmcma\n");
	says(text, "FI_SHMCMA_STATS=/");
	assert_int_equal(run_command("OMPI_MCA_pml=ob1 shmcma run env 2>&1", text), 0);
	says(text, "OMPI_MCA_pml=ob1 is set already and stays");
	says(text, "\nOMPI_MCA_pml=ob1\n");
	/* launchers that say which version of Open MPI they are */
	assert_int_equal(run_command("d=$(mktemp -d) && printf '#!/bin/sh\\n[ \"$1\" = --version ] && "
				     "echo \"mpirun (Open "
				     "MPI) 5.0.7\" || env\\n' >$d/mpirun && chmod +x $d/mpirun && shmcma "
				     "run $d/mpirun -n 4; "
				     "rm -r $d",
				     text),
			 0);
	says(text, "OMPI_MCA_osc=sm,rdma\n");
	assert_int_equal(run_command("d=$(mktemp -d) && printf '#!/bin/sh\\n[ \"$1\" = --version ] && "
				     "echo \"mpirun (Open "
				     "MPI) 4.1.4\" || env\\n' >$d/mpirun && chmod +x $d/mpirun && shmcma "
				     "run $d/mpirun -n 4; "
				     "rm -r $d",
				     text),
			 0);
	says(text, "OMPI_MCA_osc=sm,pt2pt\n");
}

/* Reports as the provider writes them: of two processes, one with two endpoints. And nothing is left of them. */
static void test_run_report(void **state)
{
	static const char job[] =
		"shmcma run%s sh -c '"
		"printf \"fi_shmcma://a\\n%%16d  messages sent\\n%%16d  messages received\\n"
		"%%16d  bytes in them\\nfi_shmcma://b\\n%%16d  messages sent\\n%%16d  bytes in them\\n\" "
		"1 2 300 4 5000 >$FI_SHMCMA_STATS.1; "
		"printf \"fi_shmcma://c\\n%%16d  messages sent\\n%%16d  nonsense\\n\" 10 99 "
		">$FI_SHMCMA_STATS.2; "
		"echo $FI_SHMCMA_STATS' 2>&1";
	char line[1024], text[COMMAND_TEXT], path[256];

	(void)state;
	snprintf(line, sizeof(line), job, "");
	assert_int_equal(run_command(line, text), 0);
	says(text, "endpoints of 2 processes have sent 15 messages, 5 kB, over shmcma");
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(text, "\n"), text);
	*strrchr(path, '/') = '\0';
	assert_int_equal(access(path, F_OK), -1);
	snprintf(line, sizeof(line), job, " --json -o /dev/stdout");
	assert_int_equal(run_command(line, text), 0);
	says(text, "\"processes\": 2,");
	says(text, "\"endpoints\": 3,");
	says(text, "\"tx_bytes\": 5000,");
	says(text, "\"rx_bytes\": 300,");
	assert_true(is_json("shmcma run --json true 2>&1"));
}

/* A signal that another process sends to the command reaches the job, whose answer is the status. */
static void test_run_signal(void **state)
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
	char path[512], byte;

	(void)state;
	command_path(path, sizeof(path));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		int fds[2], status;
		pid_t pid;

		assert_int_equal(pipe(fds), 0);
		pid = fork();
		if (!pid) {
			(void)dup2(fds[1], STDOUT_FILENO);
			(void)dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
			execl(path, "shmcma", "run", "sh", "-c",
			      "trap 'exit 42' TERM INT HUP QUIT USR1 USR2; echo; while :; do sleep 0.1; "
			      "done",
			      (char *)NULL);
			_exit(1);
		}
		close(fds[1]);
		assert_int_equal(read(fds[0], &byte, 1), 1);
		assert_int_equal(kill(pid, numbers[i]), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
		close(fds[0]);
	}
}

/* The job has been killed: what it left in /dev/shm goes. A process of it that still runs is named. */
static void test_run_leaves(void **state)
{
	char line[256], text[COMMAND_TEXT], path[SC_SHMFILE_PATH_MAX];
	struct child child;

	(void)state;
	if (!alone)
		skip();
	assert_true(child_start(&child, have_endpoint, NULL));
	core_path(child.line, 0, path);
	assert_int_equal(access(path, F_OK), 0);
	snprintf(line, sizeof(line), "shmcma run kill -9 %d 2>&1", (int)child.pid);
	assert_int_equal(run_command(line, text), 0);
	(void)child_reap(&child);
	assert_int_equal(run_command("shmcma run true 2>&1", text),
			 0); /* the first may have been too early */
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(
		run_command("TMPDIR=/dev/shm shmcma run sh -c 'sleep 600 >/dev/null 2>&1 & echo $!' "
			    "2>&1",
			    text),
		0);
	says(text, "processes of the job still run");
	assert_int_equal(kill(atoi(text), SIGKILL), 0);
}

/* ---- reap ------------------------------------------------------------------------------------ */

/* There is no /dev/shm: one line says so. */
static void reap_without_shm(struct child *self, void *arg)
{
	static const char *const lines[] = { "shmcma reap 2>&1", "shmcma reap --json 2>&1",
					     "shmcma reap --list 2>&1" };
	char text[COMMAND_TEXT];

	(void)self;
	(void)arg;
	child_on_its_own();
	if (!child_private_shm("size=1m,mode=1777") || run_command("mount -t tmpfs tmpfs /dev", text))
		_exit(CHILD_SKIPS);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_int_equal(run_command(lines[i], text), 1);
		says(text, "shmcma reap: cannot look at /dev/shm: No such file or directory; ");
		assert_null(strstr(strstr(text, "cannot look") + 1, "cannot look"));
	}
}

static void test_reap_without_shm(void **state)
{
	int status = child_run(reap_without_shm, NULL);

	(void)state;
	CHILD_ASSERT(status);
}

/* There is no /proc: one line says so, however many files there are. */
static void reap_without_proc(struct child *self, void *arg)
{
	static const char *const lines[] = { "shmcma reap 2>&1", "shmcma reap --list 2>&1" };
	char line[256], text[COMMAND_TEXT];

	(void)self;
	(void)arg;
	child_on_its_own();
	if (!child_private_shm("size=1m,mode=1777"))
		_exit(CHILD_SKIPS);
	snprintf(line, sizeof(line),
		 "umask 077; for i in 1 2 3; do : >/dev/shm/shmcma-%08x-0000000$i-0123456789abcdef-0000; "
		 "done",
		 (unsigned int)geteuid());
	assert_int_equal(run_command(line, text), 0);
	/* without /proc a sanitizer writes lines of its own */
	if (CHILD_SANITIZED || mount("shmcma-test", "/proc", "tmpfs", 0, NULL))
		_exit(CHILD_SKIPS);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_int_equal(run_command(lines[i], text), 1);
		says(text, "; /proc must be mounted\n");
		assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	}
}

static void test_reap_without_proc(void **state)
{
	int status = child_run(reap_without_proc, NULL);

	(void)state;
	CHILD_ASSERT(status);
}

/* ---- files of limited size ------------------------------------------------------------------- */

/* Each command says why the file is not complete, and how it could be; the signal of the kernel does not end it. */
static void test_file_limit(void **state)
{
	static const char *const commands[] = { "--help", "run --version", "ps --json",
						"tune",	  "doctor",	   "run -o $f true" };
	char line[256], text[COMMAND_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		snprintf(line, sizeof(line),
			 "f=$(mktemp); (ulimit -f 0; shmcma %s >$f) 2>&1; status=$?; rm $f; exit $status",
			 commands[i]);
		assert_int_equal(run_command(line, text), 1);
		says(text, "raise the limit of the size of files (ulimit -f)");
	}
	/* a job has the answer to the signal that the command found */
	assert_int_equal(run_command("trap '' XFSZ; shmcma run sh -c 'kill -XFSZ $$'", text), 0);
	assert_int_equal(run_command("shmcma run sh -c 'kill -XFSZ $$' 2>/dev/null", text), 128 + SIGXFSZ);
}

/* ---- bench ----------------------------------------------------------------------------------- */

/* The command ends when shmcma cannot be measured: nobody asks how fast shm is then. */
static void test_bench_fails(void **state)
{
	char text[COMMAND_TEXT];

	(void)state;
	assert_int_equal(run_command("d=$(mktemp -d); : >$d/libfabric.so.1; LD_LIBRARY_PATH=$d shmcma "
				     "bench --time 1 2>&1; "
				     "status=$?; rm -r $d; exit $status",
				     text),
			 1);
	says(text, "shmcma bench: shmcma cannot be measured: ");
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

int main(void)
{
	/* First those that expect files of dead processes: an endpoint of this process starts a thread that removes them. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_run_leaves),	  cmocka_unit_test(test_run_status),
		cmocka_unit_test(test_run_environment),	  cmocka_unit_test(test_run_report),
		cmocka_unit_test(test_run_signal),	  cmocka_unit_test(test_reads_only),
		cmocka_unit_test(test_top_lines),	  cmocka_unit_test(test_top_ends),
		cmocka_unit_test(test_top_stops),	  cmocka_unit_test(test_reap_without_shm),
		cmocka_unit_test(test_reap_without_proc), cmocka_unit_test(test_bench_fails),
		cmocka_unit_test(test_file_limit),
	};

	alone = child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
