/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_names: other programs change the names in /dev/shm. Only processes that come later miss a name that was
 * removed. Any kind of file may stand in the place of a name: the library refuses it with an error that says
 * so, does not follow it, change it or remove it. The names of a killed job go, if any other process lives.
 */
#define _GNU_SOURCE 1
#include "talk.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ASKS 0
#define SERVES 1
#define LATE 2
#define PATIENCE MT_FOREVER
#define SHM_SIZE (64 << 20)

static struct talk own;

/* ---- the name is removed --------------------------------------------------------------------- */

static void remove_file(const char *name)
{
	char path[MT_NAME_SIZE];

	mt_require(unlink(talk_file(name, path, sizeof(path))) == 0, "%s: %s", path, strerror(errno));
}

/* More than the table has memory for: it grows in a file without name. */
static void register_many(void)
{
	static struct fid_mr *mrs[3000];
	static char bytes[3000];

	for (int i = 0; i < 3000; i++)
		mt_must(fi_mr_reg(own.ep.domain, &bytes[i], 1, FI_REMOTE_WRITE, 0, (uint64_t)i + 1000, 0,
				  &mrs[i], NULL));
	for (int i = 0; i < 3000; i++)
		mt_must(fi_close(&mrs[i]->fid));
}

/* Nobody who has that address can come any more; it says so in the insertion. */
static void late_rank(void)
{
	fi_addr_t addr;
	struct mt_ep ep;

	mt_flag_wait(NULL, 0, 3); /* both names are gone */
	mt_open(&ep, NULL);
	for (int i = ASKS; i <= SERVES; i++)
		mt_require(fi_av_insert(ep.av, mt_published(NULL, i), 1, &addr, 0, NULL) == 0,
			   "an address whose name is gone was inserted");
	mt_close(&ep);
	atomic_store(mt_flag(1), 1);
}

static void removed_rank(const void *arg)
{
	const bool *dies = arg;
	struct mt_op recv = { 0 };
	fi_addr_t peer;
	char file[MT_NAME_SIZE];

	if (mt_rank == LATE) {
		late_rank();
		return;
	}
	if (*dies)
		mt_expect_death(SERVES);
	talk_open(&own, NULL);
	mt_publish(&own.ep, mt_rank);
	peer = talk_friend(&own, mt_published(&own.ep, !mt_rank));
	if (mt_rank == SERVES) {
		talk_listen(&own);
		while (atomic_load(mt_flag(0)) < 1)
			talk_serve_one(&own);
		remove_file(own.ep.name);
		atomic_fetch_add(mt_flag(0), 1);
		register_many();
		while (talk_serve_one(&own))
			;
		if (*dies)
			kill(getpid(), SIGKILL);
		talk_close(&own);
		return;
	}
	talk_all(&own, peer);
	atomic_fetch_add(mt_flag(0), 1);
	mt_flag_wait(&own.ep, 0, 2);
	snprintf(file, sizeof(file), "%s", own.ep.name);
	if (talk_has_file(file))
		remove_file(file);
	atomic_fetch_add(mt_flag(0), 1);
	for (int i = 0; i < 3; i++) {
		talk_all(&own, peer);
		mt_poll_for(&own.ep, 0.1); /* looks whether it lives */
	}
	register_many();
	mt_flag_wait(&own.ep, 1, 1);
	talk_all(&own, peer);
	mt_trecv(&own.ep, &recv, own.in, 1, peer, 77);
	talk_stop(&own, peer);
	mt_doing("waiting to be told that the peer has gone");
	for (;;) {
		int rc = mt_send_outcome(&own.ep, own.out, 1, peer, 78, PATIENCE);

		if (!rc)
			continue;
		mt_require(rc == -FI_ECONNRESET, "%s", fi_strerror(-rc));
		mt_wait_any(&own.ep, &recv);
		mt_require(recv.err == FI_ECONNRESET, "a receive from it: %s", fi_strerror(recv.err));
		talk_close(&own);
		mt_require(!talk_has_file(file), "the name is back");
		return;
	}
}

/* ---- a job is killed ------------------------------------------------------------------------- */

#define SURVIVOR 0
#define JOB 8
#define THERE 0
#define TALKING 1

/* It neither polls nor knows anybody of the job. */
static void survive(bool comes_first)
{
	struct mt_ep ep;

	if (comes_first)
		mt_open(&ep, NULL);
	atomic_store(mt_flag(THERE), 1);
	mt_flag_wait(NULL, TALKING, JOB / 2);
	if (!comes_first)
		mt_open(&ep, NULL);
	for (int i = 1; i <= JOB; i++)
		mt_require(talk_has_file(mt_published(NULL, i)), "rank %d has no name", i);
	mt_doing("waiting for the names of the killed to go");
	for (int i = 1; i <= JOB; i++) { /* none sees the other of its pair die */
		mt_require(kill(mt_pid(i), SIGSTOP) == 0, "kill");
		mt_await_stop(i);
	}
	for (int i = 1; i <= JOB; i++)
		kill(mt_pid(i), SIGKILL);
	for (int i = 1; i <= JOB; i++)
		watchdog_await(!talk_has_file(mt_published(NULL, i)));
	mt_require(talk_has_file(ep.name), "the survivor's name is gone");
	mt_close(&ep);
}

/* In pairs, until it is killed. */
static void killed_rank(const void *arg)
{
	int other = (mt_rank - 1) % 2 ? mt_rank - 1 : mt_rank + 1;
	fi_addr_t peer;

	for (int i = 1; i <= JOB; i++)
		mt_expect_death(i);
	if (mt_rank == SURVIVOR) {
		survive(*(const bool *)arg);
		return;
	}
	mt_flag_wait(NULL, THERE, 1);
	talk_open(&own, NULL);
	mt_publish(&own.ep, mt_rank);
	peer = talk_friend(&own, mt_published(&own.ep, other));
	if (other < mt_rank) {
		talk_listen(&own);
		while (talk_serve_one(&own))
			;
		mt_fail("it was told to stop");
	}
	talk_all(&own, peer);
	atomic_fetch_add(mt_flag(TALKING), 1);
	for (;;)
		talk_all(&own, peer);
}

/* ---- something else in its place ------------------------------------------------------------- */

struct squatter {
	const char *name;
	void (*put)(const char *path, const char *victim);
	int code; /* of the insertion; 0: any but success */
};

static void must_be(int rc, const char *path)
{
	mt_require(rc >= 0, "%s: %s", path, strerror(errno));
}

static void put_file(const char *path, size_t size, mode_t mode, bool garbage)
{
	static char bytes[1 << 20];
	struct mt_random random = { 5 };
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR, mode);

	must_be(fd, path);
	must_be(fchmod(fd, mode), path);
	for (size_t i = 0; garbage && i < size; i++)
		bytes[i] = (char)mt_random(&random);
	must_be(write(fd, bytes, size) == (ssize_t)size ? 0 : -1, path);
	close(fd);
}

static void put_symlink(const char *path, const char *victim)
{
	must_be(symlink(victim, path), path);
}

static void put_dangling(const char *path, const char *victim)
{
	(void)victim;
	must_be(symlink("/dev/shm/nothing-here", path), path);
}

static void put_hardlink(const char *path, const char *victim)
{
	must_be(link(victim, path), path);
}

static void put_directory(const char *path, const char *victim)
{
	(void)victim;
	must_be(mkdir(path, 0600), path);
}

static void put_fifo(const char *path, const char *victim)
{
	(void)victim;
	must_be(mkfifo(path, 0600), path);
}

static void put_socket(const char *path, const char *victim)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)victim;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	must_be(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), path);
	close(fd);
}

static void put_empty(const char *path, const char *victim)
{
	(void)victim;
	put_file(path, 0, 0600, false);
}

static void put_short(const char *path, const char *victim)
{
	(void)victim;
	put_file(path, 100, 0600, true);
}

static void put_garbage(const char *path, const char *victim)
{
	(void)victim;
	put_file(path, 1 << 20, 0600, true);
}

static void put_zeros(const char *path, const char *victim)
{
	(void)victim;
	put_file(path, 1 << 20, 0600, false);
}

static void put_readable(const char *path, const char *victim)
{
	(void)victim;
	put_file(path, 1 << 20, 0644, true);
}

/* Another's as soon as it has the name: one of ours, which nobody holds, may be reaped at once. */
static void put_foreign(const char *path, const char *victim)
{
	char aside[PATH_MAX];

	(void)victim;
	snprintf(aside, sizeof(aside), "%s.aside", path);
	put_file(aside, 1 << 20, 0600, true);
	if (chown(aside, 12345, 12345)) {
		unlink(aside);
		mt_skip("only root gives files away");
	}
	must_be(rename(aside, path), path);
}

static const struct squatter squatters[] = {
	{ "a symbolic link to a live endpoint's file", put_symlink, FI_EACCES },
	{ "a symbolic link to nowhere", put_dangling, FI_EACCES },
	{ "a second name of a live endpoint's file", put_hardlink, 0 },
	{ "a directory", put_directory, FI_EACCES },
	{ "a pipe", put_fifo, FI_EACCES },
	{ "a socket", put_socket, FI_EACCES },
	{ "a file that others may read", put_readable, FI_EACCES },
	{ "another user's file", put_foreign, FI_EACCES },
	{ "an empty file", put_empty, 0 },
	{ "a short file", put_short, 0 },
	{ "zeros", put_zeros, 0 },
	{ "garbage", put_garbage, 0 },
};
#define SQUATTERS (sizeof(squatters) / sizeof(squatters[0]))

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_mode == b->st_mode && a->st_uid == b->st_uid &&
	       a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The codes that say "refused": nobody is there, or what is there is none of ours. */
static bool is_clear(int rc)
{
	return rc == -FI_ECONNREFUSED || rc == -FI_EACCES || rc == -FI_ECONNABORTED;
}

/* Inserted with one entry wrong, fi_av_insert tells its error with FI_SYNC_ERR. */
static int insert_error(struct mt_ep *ep, const char *name)
{
	fi_addr_t addr;
	int err = 0;
	int rc = fi_av_insert(ep->av, name, 1, &addr, FI_SYNC_ERR, &err);

	mt_require(rc == 0 && err, "inserted, though what is there is %s", "no endpoint");
	return err;
}

/* False: it has gone. A file that a dead process of ours might have left goes as soon as any process looks around. */
static bool is_there(const struct squatter *squatter, const char *path, struct stat *st)
{
	if (!lstat(path, st))
		return true;
	mt_require(!squatter->code && errno == ENOENT, "%s: %s", path, strerror(errno));
	return false;
}

static void take_away(const struct squatter *squatter, const char *path)
{
	if (remove(path))
		mt_require(!squatter->code && errno == ENOENT, "%s: %s", path, strerror(errno));
}

static void squat(const struct squatter *squatter, struct mt_ep *ep, fi_addr_t known, const char *name,
		  const char *victim)
{
	char path[MT_NAME_SIZE];
	struct stat before, after;
	bool there;
	int err, rc;

	mt_doing("%s", squatter->name);
	squatter->put(talk_file(name, path, sizeof(path)), victim);
	there = is_there(squatter, path, &before);
	err = insert_error(ep, name);
	mt_require(squatter->code ? err == squatter->code : is_clear(-err), "inserting %s: %s",
		   squatter->name, fi_strerror(err));
	/* inserted when it was there, connected to now */
	rc = mt_send_outcome(ep, own.out, 1, known, 1, PATIENCE);
	mt_require(is_clear(rc), "sending to %s: %s", squatter->name, fi_strerror(-rc));
	if (is_there(squatter, path, &after))
		mt_require(there && same(&before, &after), "%s was changed", squatter->name);
	take_away(squatter, path);
}

/* Endpoints that close when their address has been inserted: their names are free for anything. */
static void squatted_rank(const void *arg)
{
	const struct squatter *squatter = arg;
	struct mt_ep ep, gone;
	char name[MT_NAME_SIZE], victim[MT_NAME_SIZE];
	fi_addr_t known;

	talk_open(&own, NULL);
	mt_open(&ep, NULL);
	mt_open(&gone, NULL);
	snprintf(name, sizeof(name), "%s", gone.name);
	known = mt_insert(&ep, name);
	mt_close(&gone);
	squat(squatter, &ep, known, name, talk_file(own.ep.name, victim, sizeof(victim)));
	mt_insert(&ep, own.ep.name); /* the victim is well */
	mt_close(&ep);
	talk_close(&own);
}

/* The name of a service is known beforehand. A file may go only if a dead process of ours might have left it. */
static void service_rank(const void *arg)
{
	const struct squatter *squatter = arg;
	char service[32], path[MT_NAME_SIZE], victim[MT_NAME_SIZE];
	struct mt_open open = { .service = service, .flags = FI_SOURCE };
	struct stat before, after;
	struct mt_ep ep;
	int rc;

	talk_open(&own, NULL);
	snprintf(service, sizeof(service), "names.%d", (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm/shmcma.service-%u-%s", (unsigned)geteuid(), service);
	squatter->put(path, talk_file(own.ep.name, victim, sizeof(victim)));
	(void)is_there(squatter, path, &before);
	mt_doing("taking the name of %s", squatter->name);
	rc = mt_try_open(&ep, &open);
	if (squatter->code == FI_EACCES) {
		mt_require(rc == -FI_EACCES, "%s: %s", squatter->name, fi_strerror(-rc));
		must_be(lstat(path, &after), path);
		mt_require(same(&before, &after), "%s was changed", squatter->name);
		must_be(remove(path), path);
	} else if (rc == 0) {
		mt_close(&ep);
	} else {
		mt_require(rc == -FI_EADDRINUSE, "%s: %s", squatter->name, fi_strerror(-rc));
		take_away(squatter, path);
	}
	mt_require(talk_has_file(own.ep.name), "the victim's name has gone");
	rc = mt_try_open(&ep, &open);
	mt_require(rc == 0, "once it is free: %s", fi_strerror(-rc));
	mt_close(&ep);
	talk_close(&own);
}

int main(void)
{
	static const bool closes = false, dies = true, first = true, later = false;
	char name[128];

	/* a process of another job would remove files that some cases leave */
	(void)mt_private_shm(SHM_SIZE);
	mt_init("test_names");
	mt_run(&(struct mt_case){ .name = "removed",
				  .ranks = 3,
				  .rank = removed_rank,
				  .arg = &closes,
				  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	mt_run(&(struct mt_case){ .name = "removed-dies",
				  .ranks = 3,
				  .rank = removed_rank,
				  .arg = &dies,
				  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	mt_run(&(struct mt_case){ .name = "killed-job",
				  .ranks = 1 + JOB,
				  .rank = killed_rank,
				  .arg = &first,
				  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	mt_run(&(struct mt_case){ .name = "killed-job-before",
				  .ranks = 1 + JOB,
				  .rank = killed_rank,
				  .arg = &later,
				  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	for (size_t i = 0; i < SQUATTERS; i++) {
		snprintf(name, sizeof(name), "endpoint: %s", squatters[i].name);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = 1,
					  .rank = squatted_rank,
					  .arg = &squatters[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		snprintf(name, sizeof(name), "service: %s", squatters[i].name);
		mt_run(&(struct mt_case){ .name = name,
					  .ranks = 1,
					  .rank = service_rank,
					  .arg = &squatters[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	}
	return mt_end();
}
