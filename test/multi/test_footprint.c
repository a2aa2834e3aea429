/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_footprint: what endpoints take of /dev/shm: at rest, for each connected peer, 64 of them connected
 * all-to-all in 64 MiB; and that a full /dev/shm is an error, never SIGBUS.
 */
#define _GNU_SOURCE 1
#include "kernels.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define SHM "/dev/shm"
#define AT_REST ((size_t)64 << 10)
#define POOL ((size_t)256 << 10) /* whole, after messages that need it */
#define PER_PEER ((size_t)16 << 10)
#define SLOT ((size_t)4 << 10) /* of a connection whose ring has not grown */

/* ---- looking --------------------------------------------------------------------------------- */

/* Bytes that the files of a process (0: of all) take, and how many they are. */
static size_t shm_used(pid_t pid, int *files)
{
	struct dirent *entry;
	DIR *dir = opendir(SHM);
	char prefix[32];
	size_t sum = 0;

	if (pid)
		snprintf(prefix, sizeof(prefix), "shmcma-%08x-%08x-", (unsigned)geteuid(), (unsigned)pid);
	else
		snprintf(prefix, sizeof(prefix), "shmcma-");
	*files = 0;
	mt_require(dir, "%s: %s", SHM, strerror(errno));
	while ((entry = readdir(dir))) {
		struct stat st;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) ||
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		sum += (size_t)st.st_blocks * 512;
		(*files)++;
	}
	closedir(dir);
	return sum;
}

static size_t shm_free(void)
{
	struct statvfs fs;

	mt_require(statvfs(SHM, &fs) == 0, "%s: %s", SHM, strerror(errno));
	return (size_t)fs.f_bavail * fs.f_bsize;
}

/* Two messages of that size, tagged, there and back. */
static void ping_pong(struct mt_ep *ep, fi_addr_t peer, uint8_t *buf, size_t size, bool first,
		      uint64_t tag)
{
	struct mt_op send = { 0 }, recv = { 0 };

	for (int turn = 0; turn < 2; turn++)
		if (first == (turn == 0)) {
			pattern_fill(buf, 0, size, tag + (uint64_t)turn);
			mt_tsend(ep, &send, buf, size, peer, tag);
			mt_wait(ep, &send);
		} else {
			mt_trecv(ep, &recv, buf, size, peer, tag);
			mt_wait(ep, &recv);
			mt_require(recv.len == size &&
					   pattern_differs(buf, 0, size, tag + (uint64_t)turn) < 0,
				   "wrong message");
		}
}

/* ---- at rest, and for each peer -------------------------------------------------------------- */

#define REST_RANKS 17
#define REST_LARGEST ((size_t)1 << 20)

static void rest_talk(struct mt_ep *ep, const fi_addr_t *peers, uint8_t *buf)
{
	static const size_t sizes[] = { 8, 5000, 30000, REST_LARGEST };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		mt_doing("exchanging %zu bytes", sizes[i]);
		if (mt_rank)
			ping_pong(ep, peers[0], buf, sizes[i], true, (uint64_t)mt_rank);
		for (int k = 1; k < mt_ranks && !mt_rank; k++)
			ping_pong(ep, peers[k], buf, sizes[i], false, (uint64_t)k);
		mt_barrier(ep);
	}
}

static void rest_rank(const void *arg)
{
	uint8_t *buf = malloc(REST_LARGEST);
	size_t rest, now, peers_here = mt_rank ? 1 : REST_RANKS - 1;
	fi_addr_t peers[REST_RANKS];
	struct mt_ep ep;
	int files;

	(void)arg;
	mt_require(buf, "no memory");
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	rest = shm_used(getpid(), &files);
	mt_require(files == 1, "%d files of one endpoint", files);
	mt_require(rest > 0 && rest <= AT_REST, "an endpoint at rest takes %zu bytes", rest);
	mt_barrier(&ep);
	rest_talk(&ep, peers, buf);
	now = shm_used(getpid(), &files);
	mt_require(now <= rest + POOL + peers_here * PER_PEER, "%zu bytes at rest, %zu with %zu peers",
		   rest, now, peers_here);
	if (mt_rank == 0) {
		atomic_store(mt_flag(0), rest);
		atomic_store(mt_flag(1), (now - rest) >> 10);
	}
	mt_barrier(&ep);
	mt_close(&ep);
	mt_require(shm_used(getpid(), &files) == 0 && files == 0, "%d files remain after the end", files);
	free(buf);
}

static bool rest_judge(const struct mt_counters *c, int ranks, const void *arg)
{
	(void)c;
	(void)ranks;
	(void)arg;
	printf("  an endpoint at rest takes %llu KiB, %llu KiB more with %d peers and messages of all "
	       "sizes\n",
	       (unsigned long long)atomic_load(mt_flag(0)) >> 10,
	       (unsigned long long)atomic_load(mt_flag(1)), REST_RANKS - 1);
	return true;
}

/* ---- 64 in 64 MiB ---------------------------------------------------------------------------- */

#define CROWD 64
#define CROWD_SHM ((size_t)64 << 20)
#define CROWD_LARGEST ((size_t)65536)

/* One message of that size to and from each other rank. */
static void crowd_round(struct mt_ep *ep, const fi_addr_t *peers, uint8_t *in, uint8_t *out, size_t size)
{
	struct mt_op recv[CROWD], send[CROWD];

	memset(recv, 0, sizeof(recv));
	memset(send, 0, sizeof(send));
	pattern_fill(out, 0, size, (uint64_t)mt_rank + size);
	for (int i = 0; i < CROWD; i++)
		mt_trecv(ep, &recv[i], in + (size_t)i * CROWD_LARGEST, size, peers[i], size);
	for (int k = 0; k < CROWD; k++) {
		int to = (mt_rank + k) % CROWD;

		mt_doing("sending %zu bytes to rank %d", size, to);
		mt_tsend(ep, &send[to], out, size, peers[to], size);
	}
	for (int k = 0; k < CROWD; k++) {
		int from = (mt_rank + CROWD - k) % CROWD;

		mt_doing("%zu bytes from rank %d", size, from);
		mt_wait(ep, &recv[from]);
		mt_require(recv[from].len == size && pattern_differs(in + (size_t)from * CROWD_LARGEST, 0,
								     size, (uint64_t)from + size) < 0,
			   "wrong message from rank %d", from);
	}
	mt_doing("completing sends of %zu bytes", size);
	for (int i = 0; i < CROWD; i++)
		mt_wait(ep, &send[i]);
	mt_doing("done with %zu bytes", size);
	mt_barrier(ep);
}

static void crowd_rank(const void *arg)
{
	static const size_t sizes[] = { 8, 1000, 4096, 20000, CROWD_LARGEST };
	uint8_t *in = malloc(CROWD * CROWD_LARGEST), *out = malloc(CROWD_LARGEST);
	fi_addr_t peers[CROWD];
	struct mt_ep ep;

	(void)arg;
	mt_require(in && out, "no memory");
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	for (int again = 0; again < 2; again++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			crowd_round(&ep, peers, in, out, sizes[i]);
			if (mt_rank == 0)
				atomic_store(mt_flag(again || i), shm_free());
			mt_barrier(&ep);
		}
	mt_barrier(&ep);
	mt_close(&ep);
	free(in);
	free(out);
}

static bool crowd_judge(const struct mt_counters *c, int ranks, const void *arg)
{
	size_t first = CROWD_SHM - atomic_load(mt_flag(0)), all = CROWD_SHM - atomic_load(mt_flag(1));

	(void)arg;
	printf("  %d processes all-to-all: %zu KiB of %zu KiB used for messages of 8 bytes, %zu KiB for "
	       "all sizes\n",
	       ranks, first >> 10, CROWD_SHM >> 10, all >> 10);
	if (first > (size_t)ranks * (AT_REST + (size_t)ranks * SLOT)) {
		printf("  that is too much for messages of 8 bytes\n");
		return false;
	}
	for (int i = 0; i < ranks; i++)
		if (c[i].connects + c[i].accepts < (uint64_t)ranks - 1) {
			printf("  rank %d: %llu connections made, %llu accepted\n", i,
			       (unsigned long long)c[i].connects, (unsigned long long)c[i].accepts);
			return false;
		}
	return true;
}

static int crowd_main(void)
{
	return mt_run(&(struct mt_case){ .name = "64-in-64MiB",
					 .ranks = CROWD,
					 .deadline = 120,
					 .rank = crowd_rank,
					 .judge = crowd_judge,
					 .flags = MT_CASE_SHMCMA });
}

/* ---- full ------------------------------------------------------------------------------------ */

#define FULL_SHM ((size_t)4 << 20)

/* Take all but `left` bytes of /dev/shm. */
static void shm_fill(int fd, size_t left)
{
	size_t size;

	mt_require(ftruncate(fd, 0) == 0, "ftruncate: %s", strerror(errno));
	size = shm_free();
	if (size > left)
		mt_require(fallocate(fd, 0, 0, (off_t)(size - left)) == 0, "fallocate: %s",
			   strerror(errno));
}

static int filler_open(void)
{
	int fd = open(SHM "/filler", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	mt_require(fd >= 0, "%s/filler: %s", SHM, strerror(errno));
	return fd;
}

static void self_message(struct mt_ep *ep, size_t size)
{
	static uint8_t out[20000], in[20000];
	struct mt_op send = { 0 }, recv = { 0 };
	fi_addr_t self = mt_insert(ep, ep->name);

	pattern_fill(out, 0, size, size);
	mt_trecv(ep, &recv, in, size, self, 1);
	mt_tsend(ep, &send, out, size, self, 1);
	mt_wait(ep, &send);
	mt_wait(ep, &recv);
	mt_require(pattern_differs(in, 0, size, size) < 0, "wrong message");
}

/* With less and less memory: a working endpoint (with fewer buffers), then the right error. */
static void full_open_rank(const void *arg)
{
	int fd = filler_open(), files, opened = 0, refused = 0;

	(void)arg;
	for (size_t left = (size_t)3 << 20;;
	     left = left > 8192 ? left - left / 16 / 4096 * 4096 - 4096 : 0) {
		struct mt_ep ep;
		int rc;

		shm_fill(fd, left);
		rc = mt_try_open(&ep, NULL);
		mt_doing("using an endpoint made with %zu bytes left", left);
		mt_require(rc == 0 || rc == -FI_ENOSPC, "with %zu bytes left: %s", left, fi_strerror(-rc));
		mt_require(rc == 0 || left < AT_REST + PER_PEER, "%zu bytes left are not enough", left);
		mt_require(rc || left, "an endpoint out of nothing");
		if (rc == 0) {
			opened++;
			/* to talk needs memory for a peer more */
			shm_fill(fd, 1 << 20);
			self_message(&ep, 100);
			self_message(&ep, 20000);
			mt_close(&ep);
		} else {
			refused++;
		}
		shm_used(0, &files);
		mt_require(files == 0, "%d files remain of an endpoint (%s)", files, fi_strerror(-rc));
		if (!left)
			break;
	}
	mt_require(opened && refused, "%d times opened, %d times refused", opened, refused);
	close(fd);
	unlink(SHM "/filler");
}

/* Full when a peer wants to connect: an error for the sender, and a later one fares better. */
static void full_connect_rank(const void *arg)
{
	uint64_t word = 4711, got = 0;
	struct mt_op recv = { 0 };
	fi_addr_t peers[2];
	struct mt_ep ep;
	int fd, rc;

	(void)arg;
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	if (mt_rank == 0) {
		mt_trecv(&ep, &recv, &got, sizeof(got), FI_ADDR_UNSPEC, 1);
		mt_doing("being sent to");
		mt_wait(&ep, &recv);
		mt_require(got == word, "wrong message");
		mt_barrier(&ep);
		mt_close(&ep);
		return;
	}
	fd = filler_open();
	shm_fill(fd, 0);
	mt_doing("connecting while %s is full", SHM);
	rc = mt_send_outcome(&ep, &word, sizeof(word), peers[0], 1, 2);
	mt_require(rc == -FI_ENOSPC || rc == -FI_EAGAIN || rc == -FI_ENOMEM, "sending with %s full: %s",
		   SHM, rc ? fi_strerror(-rc) : "success");
	close(fd);
	unlink(SHM "/filler");
	mt_close(&ep);
	mt_open(&ep, NULL);
	mt_doing("connecting while there is room");
	rc = mt_send_outcome(&ep, &word, sizeof(word), mt_lookup(&ep, 0), 1, MT_FOREVER);
	mt_require(rc == 0, "sending with room in %s: %s", SHM, fi_strerror(-rc));
	mt_barrier(&ep);
	mt_close(&ep);
}

static int full_main(void)
{
	int open = mt_run(&(struct mt_case){
		.name = "full-open", .ranks = 1, .rank = full_open_rank, .flags = MT_CASE_SHMCMA });
	int connect = mt_run(&(struct mt_case){ .name = "full-connect",
						.ranks = 2,
						.rank = full_connect_rank,
						.flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });

	return open == MT_OK ? connect : open;
}

int main(void)
{
	mt_init("test_footprint");
	mt_run(&(struct mt_case){ .name = "at-rest",
				  .ranks = REST_RANKS,
				  .rank = rest_rank,
				  .judge = rest_judge,
				  .flags = MT_CASE_SHMCMA });
	if (mt_with_shm(CROWD_SHM, crowd_main) == MT_SKIP)
		printf("test_footprint 64-in-64MiB ... skipped: no mount namespace, or not for this "
		       "provider\n");
	if (mt_with_shm(FULL_SHM, full_main) == MT_SKIP)
		printf("test_footprint full ... skipped: no mount namespace, or not for this provider\n");
	return mt_end();
}
