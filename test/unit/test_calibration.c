/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_calibration: the file in which the costs of this machine are kept: what is believed of it, who
 * writes it, and what is left by who dies over it; and what follows from what it says. The figures are
 * made up.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "calibration.h"
#include "core_pair.h"
#include "live.h"
#include "reap.h"

static bool alone; /* with a /dev/shm of our own */
static char path[SC_CALIBRATION_PATH_MAX];
static const struct sc_calibration usual = { .cma = { .start = 1700, .per_kib = 80 }, .time = 1234567890 };

/* FNV-1a of all but the checksum itself. */
static void sign(struct sc_abi_calibration *file)
{
	const uint8_t *bytes = (const uint8_t *)file;

	file->checksum = 0xcbf29ce484222325u;
	for (size_t i = 0; i < 56; i++)
		file->checksum = (file->checksum ^ bytes[i]) * 0x100000001b3u;
}

static struct sc_abi_calibration formatted(void)
{
	struct sc_abi_calibration file;

	assert_int_equal(sc_calibration_format(&usual, &file), 0);
	return file;
}

static void is_usual(const struct sc_calibration *calibration)
{
	assert_int_equal(calibration->cma.start, usual.cma.start);
	assert_int_equal(calibration->cma.per_kib, usual.cma.per_kib);
	assert_int_equal(calibration->time, usual.time);
}

/* ---- the bytes ------------------------------------------------------------------------------- */

static void test_format_and_parse(void **state)
{
	struct sc_abi_calibration file = formatted(), same = file;
	struct sc_calibration calibration;

	(void)state;
	assert_int_equal(sc_calibration_parse(&file, &calibration), 0);
	is_usual(&calibration);
	sign(&same);
	assert_int_equal(same.checksum, file.checksum);
	for (size_t bit = 0; bit < 8 * sizeof(file); bit++) {
		file = formatted();
		((uint8_t *)&file)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(sc_calibration_parse(&file, &calibration), -EPROTO);
	}
}

/* Well formed, and yet not for here. */
static void test_parse_other(void **state)
{
	static const uint32_t strange[][2] = { { 0, 80 }, { 19, 80 }, { 100001, 80 }, { UINT32_MAX, 80 },
					       { 1700, 0 }, { 1700, 1 }, { 1700, 10001 }, { 1700, UINT32_MAX } };
	struct sc_calibration calibration;
	struct sc_abi_calibration file = formatted();

	(void)state;
	file.boot_id[1]++;
	sign(&file);
	assert_int_equal(sc_calibration_parse(&file, &calibration), -ESTALE);
	file = formatted();
	file.kernel++;
	sign(&file);
	assert_int_equal(sc_calibration_parse(&file, &calibration), -ESTALE);
	file = formatted();
	file.magic++;
	sign(&file);
	assert_int_equal(sc_calibration_parse(&file, &calibration), -EPROTO);
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		struct sc_calibration no = { .cma = { strange[i][0], strange[i][1] } };

		file = formatted();
		file.cma_start = strange[i][0];
		file.cma_per_kib = strange[i][1];
		sign(&file);
		assert_int_equal(sc_calibration_parse(&file, &calibration), -EPROTO);
		assert_int_equal(sc_calibration_format(&no, &file), -ERANGE);
	}
}

static void test_judge(void **state)
{
	static const int64_t strange[][2] = { { 0, 5000 },	{ -5, 5000 },	    { 2000, 2000 },
					      { 2000, 1999 },	{ 2000, 2059 },	    { 4, 60004 },
					      { 2000, INT64_MAX }, { INT64_MIN, 1 }, { 2000, 1000000 } };
	struct sc_cost cma;

	(void)state;
	assert_int_equal(sc_calibration_judge(2000, 6800, &cma), 0);
	assert_int_equal(cma.per_kib, 80);
	assert_int_equal(cma.start, 2000 - 4 * 80);
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++)
		assert_int_equal(sc_calibration_judge(strange[i][0], strange[i][1], &cma), -ERANGE);
}

static void test_apply(void **state)
{
	struct sc_config config;

	(void)state;
	sc_config_init(&config);
	sc_calibration_apply(&usual, &config);
	assert_int_equal(config.rendezvous.start, 2200);
	assert_int_equal(config.rendezvous.per_kib, 40);
}

static void test_measure(void **state)
{
	struct sc_calibration calibration;
	struct sc_abi_calibration file;

	(void)state;
	if (!cma_allowed())
		skip();
	assert_int_equal(sc_calibration_measure(&calibration), 0);
	assert_int_equal(sc_calibration_format(&calibration, &file), 0);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void put_bytes(const void *bytes, size_t size, mode_t mode)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void test_store_and_load(void **state)
{
	struct sc_calibration calibration, other = usual;
	struct stat st;

	(void)state;
	if (!alone)
		skip();
	assert_int_equal(sc_calibration_load(&calibration), -ENOENT);
	assert_int_equal(sc_calibration_remove(), -ENOENT);
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	is_usual(&calibration);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, sizeof(struct sc_abi_calibration));
	assert_int_equal(st.st_mode & 07777, 0600);
	other.cma.start = 600;
	assert_int_equal(sc_calibration_store(&other), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	assert_int_equal(calibration.cma.start, 600);
	/* what is known is not measured again */
	assert_int_equal(sc_calibration_make(), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	assert_int_equal(calibration.cma.start, 600);
	assert_int_equal(sc_calibration_remove(), 0);
	assert_int_equal(sc_calibration_load(&calibration), -ENOENT);
}

/* Not a word of it is believed, and nothing of another's is changed. */
static void test_files_of_others(void **state)
{
	struct sc_abi_calibration file = formatted();
	struct sc_calibration calibration;
	struct stat st;

	(void)state;
	if (!alone)
		skip();
	put_bytes(&file, sizeof(file), 0644);
	assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	assert_int_equal(sc_calibration_store(&usual), -EACCES);
	assert_int_equal(sc_calibration_make(), -EACCES);
	unlink(path);
	if (!geteuid()) {
		put_bytes(&file, sizeof(file), 0600);
		assert_int_equal(chown(path, 12345, 12345), 0);
		assert_int_equal(sc_calibration_load(&calibration), -EACCES);
		assert_int_equal(sc_calibration_make(), -EACCES);
		unlink(path);
	}
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	assert_int_equal(sc_calibration_make(), -EACCES);
	unlink(path);
	assert_int_equal(symlink("/dev/shm/elsewhere", path), 0);
	assert_int_equal(sc_calibration_load(&calibration), -EACCES);
	assert_int_equal(sc_calibration_make(), -EACCES);
	assert_int_equal(lstat("/dev/shm/elsewhere", &st), -1);
	unlink(path);
}

/* As somebody has left it who died: whoever comes next measures. */
static void test_half_made(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 56, 63 };
	struct sc_abi_calibration file = formatted();
	struct sc_calibration calibration;

	(void)state;
	if (!alone || !cma_allowed())
		skip();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		put_bytes(&file, sizes[i], 0600);
		assert_int_equal(sc_calibration_load(&calibration), sizes[i] ? -EPROTO : -ENOENT);
		assert_int_equal(sc_calibration_make(), 0);
		assert_int_equal(sc_calibration_load(&calibration), 0);
		assert_true(calibration.time != usual.time);
		unlink(path);
	}
	file.boot_id[0]++;
	sign(&file);
	put_bytes(&file, sizeof(file), 0600);
	assert_int_equal(sc_calibration_load(&calibration), -ESTALE);
	assert_int_equal(sc_calibration_make(), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

/* Has the file, and is about to measure. */
static void hold_lock(struct child *child, void *unused)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	(void)unused;
	if (fd < 0 || sc_live_lock(fd))
		_exit(1);
	child_tell(child, "locked");
	child_wait(child);
}

static void test_one_measures(void **state)
{
	struct sc_calibration calibration;
	struct child child;
	struct stat st;

	(void)state;
	if (!alone || !cma_allowed())
		skip();
	assert_true(child_start(&child, hold_lock, NULL));
	assert_int_equal(sc_calibration_make(), -EAGAIN);
	assert_int_equal(sc_calibration_store(&usual), -EAGAIN);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 0);
	child_kill(&child);
	assert_int_equal(sc_calibration_make(), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

#define STARTS 64

static void test_many_start(void **state)
{
	struct sc_calibration calibration;
	pid_t pids[STARTS];
	int gate[2], made = 0;

	(void)state;
	if (!alone || !cma_allowed())
		skip();
	assert_int_equal(pipe(gate), 0);
	for (int i = 0; i < STARTS; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			char byte;
			int ret;

			close(gate[1]);
			(void)!read(gate[0], &byte, 1); /* the end: all begin at once */
			ret = sc_calibration_make();
			_exit(ret == 0 ? 0 : ret == -EAGAIN ? 1 : 2);
		}
		assert_true(pids[i] > 0);
	}
	close(gate[0]);
	close(gate[1]);
	for (int i = 0; i < STARTS; i++) {
		int status;

		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
		made += !WEXITSTATUS(status);
	}
	assert_true(made > 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

/* ---- no room --------------------------------------------------------------------------------- */

static void without_room(struct child *child, void *unused)
{
	struct sc_calibration calibration;
	char fill[4096] = { 1 };
	int fd;

	(void)unused;
	(void)child;
	child_on_its_own();
	if (!child_private_shm("size=8k,mode=1777"))
		return;
	fd = open("/dev/shm/filler", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, fill, sizeof(fill)) > 0)
		;
	assert_int_equal(sc_calibration_make(), -ENOSPC);
	assert_int_equal(sc_calibration_load(&calibration), -ENOENT);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(sc_calibration_make(), 0);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
	close(fd);
	/* and where nothing may be written */
	assert_int_equal(mount(NULL, "/dev/shm", NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(sc_calibration_make(), -EROFS);
	assert_int_equal(sc_calibration_load(&calibration), -ENOENT);
}

static void test_no_room(void **state)
{
	(void)state;
	if (!alone || !cma_allowed())
		skip();
	assert_int_equal(child_run(without_room, NULL), 0);
}

/* ---- others ---------------------------------------------------------------------------------- */

static void no_file(const struct sc_reap_file *file, void *arg)
{
	(void)arg;
	fail_msg("%s is listed", file->name);
}

static void test_not_reaped(void **state)
{
	struct sc_calibration calibration;

	(void)state;
	if (!alone)
		skip();
	assert_int_equal(sc_calibration_store(&usual), 0);
	assert_int_equal(sc_reap_list(no_file, NULL), 0);
	assert_int_equal(sc_reap_scan(), 0);
	assert_int_equal(sc_reap_name(strrchr(path, '/') + 1), -EACCES);
	assert_int_equal(sc_calibration_load(&calibration), 0);
	unlink(path);
}

/* The daemon's thread does it, for the next ones; alarm(2) ends what never comes. */
static void test_daemon(void **state)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_calibration calibration;
	struct end end;

	(void)state;
	if (!alone || !cma_allowed())
		skip();
	attr.config.calibrate = true;
	end_open(&end, &attr);
	while (sc_calibration_load(&calibration))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	assert_int_equal(end.ep->config.rendezvous.start, attr.config.rendezvous.start);
	end_close(&end);
	sc_process_fini();
	assert_int_equal(sc_calibration_remove(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format_and_parse),
		cmocka_unit_test(test_parse_other),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_apply),
		cmocka_unit_test(test_measure),
		cmocka_unit_test(test_store_and_load),
		cmocka_unit_test(test_files_of_others),
		cmocka_unit_test(test_half_made),
		cmocka_unit_test(test_one_measures),
		cmocka_unit_test(test_many_start),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_not_reaped),
		cmocka_unit_test(test_daemon),
	};

	alone = child_private_shm("size=64m,mode=1777");
	sc_calibration_path(path);
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
