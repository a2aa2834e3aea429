/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_namespaces: peers that see each other by other pids, or not at all, or may not read each other: other
 * pid and user namespaces that share one /dev/shm, a seccomp filter that forbids to copy between processes.
 * Traffic goes both ways; a death is noticed, and no living process is taken for dead. Last, clone3(2) gives a dead
 * peer's pid to another process: no byte reaches that process, or comes from it.
 */
#define _GNU_SOURCE 1
#include "talk.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int unshare(int flags);

/* In a pid namespace without a /proc of its own the leak sanitizer does not find itself. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

#define ASKS 0
#define SERVES 1
#define CLEANS 2
#define FLAG_DEAD 10
#define FLAG_CLEAN 11
#define PATIENCE MT_FOREVER

static struct talk own;

static fi_addr_t open_both(void)
{
	talk_open(&own, NULL);
	mt_publish(&own.ep, mt_rank);
	return talk_friend(&own, mt_published(&own.ep, !mt_rank));
}

/* Until a send says so; it must be the one error of the dead. */
static void await_death(fi_addr_t peer)
{
	mt_doing("waiting to be told that the peer has died");
	for (;;) {
		int rc = mt_send_outcome(&own.ep, own.out, 1, peer, 78, PATIENCE);

		if (!rc)
			continue;
		mt_require(rc == -FI_ECONNRESET, "%s", fi_strerror(-rc));
		return;
	}
}

/* ---- namespaces ------------------------------------------------------------------------------ */

struct apart {
	const char *name;
	int flags[2]; /* CLONE_NEW*, by rank */
};

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	mt_require(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s: %s", path,
		   strerror(errno));
	close(fd);
}

static void enter(int flags)
{
	char map[64];
	unsigned uid = geteuid(), gid = getegid();

	if (flags && unshare(flags))
		mt_skip("no such namespaces here: %s", strerror(errno));
	if (!(flags & CLONE_NEWUSER))
		return;
	write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	write_file("/proc/self/uid_map", map);
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	write_file("/proc/self/gid_map", map);
}

static void apart_body(void)
{
	fi_addr_t peer = open_both();

	if (mt_rank == SERVES) {
		talk_serve(&own);
		kill(getpid(), SIGKILL);
		pause();
	}
	for (int i = 0; i < 3; i++) {
		talk_all(&own, peer);
		mt_poll_for(&own.ep, 0.1); /* looks whether it lives */
	}
	talk_stop(&own, peer);
	await_death(peer);
	atomic_store(mt_flag(FLAG_DEAD), 1);
	mt_flag_wait(&own.ep, FLAG_CLEAN, 1);
	mt_require(talk_has_file(own.ep.name), "the name of the living has gone");
	talk_close(&own);
}

/* When a process starts, the file of the dead one goes, and no other: after a moment if a process here has its pid. */
static void clean(int name)
{
	mt_flag_wait(NULL, FLAG_DEAD, 1);
	talk_open(&own, NULL);
	watchdog_await(!talk_has_file(mt_published(NULL, name)));
	talk_close(&own);
	atomic_store(mt_flag(FLAG_CLEAN), 1);
}

/* The child of the rank is in the namespaces; the serving one kills itself in the end, so it must not be the first. */
static void apart_rank(const void *arg)
{
	const struct apart *apart = arg;
	int status;
	pid_t pid;

	if (mt_rank == CLEANS) {
		clean(SERVES);
		return;
	}
	enter(apart->flags[mt_rank]);
	pid = fork();
	mt_require(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		pid_t inner;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* the first process of a pid namespace ignores its own SIGKILL */
		inner = fork();
		if (!inner) {
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody stays behind a case that is skipped */
			apart_body();
			exit(0);
		}
		mt_require(waitpid(inner, &status, 0) == inner, "waitpid");
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status) == SIGKILL ? 99 : 98);
	}
	mt_require(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "waitpid: %#x", status);
	if (WEXITSTATUS(status) == MT_FAIL || WEXITSTATUS(status) == MT_SKIP)
		_exit(WEXITSTATUS(status));
	mt_require(WEXITSTATUS(status) == (mt_rank == SERVES ? 99 : 0), "status %d", WEXITSTATUS(status));
}

/* ---- seccomp --------------------------------------------------------------------------------- */

struct forbidden {
	const char *name;
	unsigned ranks; /* a bit each */
	int error;
	bool late; /* when they know each other */
};

static void forbid(int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		mt_skip("no seccomp filters here: %s", strerror(errno));
}

/* One warning for all that is forbidden, and none where nothing is. */
static void check_told(bool forbidden)
{
	const char *const words[] = { "<warn>", "process_vm_", NULL };
	char line[400];
	unsigned lines = mt_logged(line, sizeof(line), words);

	mt_require(lines == forbidden, "%u warnings that copies are forbidden: %s", lines,
		   lines ? line : "");
}

static void forbidden_rank(const void *arg)
{
	const struct forbidden *forbidden = arg;
	bool mine = forbidden->ranks & 1u << mt_rank;
	fi_addr_t peer;

	if (mine && !forbidden->late)
		forbid(forbidden->error);
	peer = open_both();
	if (mt_rank == SERVES) {
		talk_listen(&own);
		while (talk_serve_one(&own))
			;
		if (mine && forbidden->late)
			forbid(forbidden->error);
		mt_barrier(&own.ep);
		talk_serve(&own);
	} else {
		if (forbidden->late)
			talk_all(&own, peer);
		talk_stop(&own, peer);
		if (mine && forbidden->late)
			forbid(forbidden->error);
		mt_barrier(&own.ep);
		for (int i = 0; i < 3; i++)
			talk_all(&own, peer);
		talk_stop(&own, peer);
	}
	mt_barrier(&own.ep);
	check_told(mine);
	talk_close(&own);
}

static bool judge_forbidden(const struct mt_counters *c, int ranks, const void *arg)
{
	const struct forbidden *forbidden = arg;
	bool fine = true;

	for (int i = 0; i < ranks; i++) {
		if (forbidden->late || !(forbidden->ranks & 1u << i))
			continue;
		if (c[i].rx_cma_bytes || c[i].shared_bytes || c[i].rma_direct_bytes) {
			printf("  rank %d has copied between processes\n", i);
			fine = false;
		}
	}
	return fine;
}

/* ---- reuse of a pid -------------------------------------------------------------------------- */

#define PID 4711
#define FLAG_LIVES 0
#define FLAG_SWAP 1 /* the victim is to die, another to take its pid */
#define FLAG_SWAPPED 2
#define FLAG_OVER 3
#define NAME_VICTIM 5
#define NAME_HEIR 6
#define TAG_LEFT 55
#define CANARY 0xC7

static uint8_t *arena; /* at one address in all of them */

/* With that pid; of this process, which has nothing of libfabric. */
static pid_t clone_as(pid_t pid)
{
	pid_t tids[] = { pid };
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)tids, .set_tid_size = 1 };

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static void victim_body(void)
{
	struct mt_op op = { 0 };
	fi_addr_t asker;

	talk_open(&own, NULL);
	/* the registered memory lies at an address at which the heir has other data */
	rma_unregister(&own.ep, own.mr);
	free(own.memory);
	own.memory = arena;
	own.mr = rma_register(&own.ep, arena, TALK_MAX * 2, FI_REMOTE_READ | FI_REMOTE_WRITE, &own.region);
	mt_publish(&own.ep, NAME_VICTIM);
	asker = talk_friend(&own, mt_published(&own.ep, ASKS));
	talk_serve(&own);
	mt_tsend(&own.ep, &op, arena, TALK_MAX, asker, TAG_LEFT);
	atomic_store(mt_flag(FLAG_LIVES), 1);
	for (;;)
		pause();
}

static void heir_body(const bool *plain)
{
	if (*plain) {
		while (!atomic_load(mt_flag(FLAG_OVER)))
			mt_poll(NULL);
	} else {
		talk_open(&own, NULL);
		mt_publish(&own.ep, NAME_HEIR);
		talk_serve(&own);
		talk_close(&own);
	}
	mt_require(mt_verify_byte(arena, 2 * TALK_MAX, CANARY) < 0,
		   "a process that has a dead peer's pid was written to");
	exit(0);
}

/* Makes victim and heir. */
static void keeper_body(const bool *plain)
{
	pid_t pid = clone_as(PID);
	int status;

	if (pid < 0)
		mt_skip("clone3 with a pid of our choice: %s", strerror(errno));
	if (!pid)
		victim_body();
	mt_flag_wait(NULL, FLAG_SWAP, 1);
	kill(pid, SIGKILL);
	mt_require(waitpid(pid, &status, 0) == pid, "waitpid");
	memset(arena, CANARY, 2 * TALK_MAX);
	pid = clone_as(PID);
	mt_require(pid >= 0, "clone3: %s", strerror(errno));
	if (!pid)
		heir_body(plain);
	mt_require(pid == PID, "pid %d", (int)pid);
	atomic_store(mt_flag(FLAG_SWAPPED), 1);
	mt_require(waitpid(pid, &status, 0) == pid && status == 0, "the heir: status %#x", status);
	exit(0);
}

static void check_failed(struct mt_op *op, const char *what)
{
	mt_doing("waiting for the end of %s", what);
	mt_wait_any(&own.ep, op);
	mt_require(op->err, "%s went well with a dead peer", what);
}

/* An operation refused at once has failed as well. */
static void one_sided(fi_addr_t peer, const struct rma_place *region, bool write)
{
	struct rma_request request = {
		.write = write, .peer = peer, .key = region->key, .local_count = 1, .remote_count = 1
	};
	struct mt_op op = { 0 };

	request.local[0] = (struct iovec){ own.in, TALK_MAX };
	request.remote[0] = (struct fi_rma_iov){ region->addr, TALK_MAX, region->key };
	if (!rma_try(&own.ep, &op, &request))
		check_failed(&op, write ? "a put" : "a get");
}

static void survivor_body(const bool *plain)
{
	struct mt_op send = { 0 }, left = { 0 }, ask = { 0 };
	struct rma_place region;
	fi_addr_t victim;

	talk_open(&own, NULL);
	mt_publish(&own.ep, ASKS);
	victim = talk_friend(&own, mt_published(&own.ep, NAME_VICTIM));
	talk_all(&own, victim);
	talk_request(&own, victim, TALK_REGION, 0);
	mt_trecv(&own.ep, &ask, &region, sizeof(region), FI_ADDR_UNSPEC, TALK_ECHO);
	mt_wait(&own.ep, &ask);
	talk_stop(&own, victim);
	mt_flag_wait(&own.ep, FLAG_LIVES, 1);
	mt_poll_for(&own.ep, 0.05); /* its last message is here, its payload not */
	mt_tsend(&own.ep, &send, own.out, TALK_MAX, victim, 1);

	atomic_store(mt_flag(FLAG_SWAP), 1);
	mt_doing("waiting for the heir");
	mt_flag_wait(NULL, FLAG_SWAPPED, 1); /* no look at the peer meanwhile */
	mt_doing("using a pid that is another's");
	one_sided(victim, &region, true);
	one_sided(victim, &region, false);
	memset(own.in, 0, TALK_MAX);
	mt_trecv(&own.ep, &left, own.in, TALK_MAX, victim, TAG_LEFT);
	check_failed(&left, "a receive of what the dead has left");
	mt_require(own.in[0] != CANARY || own.in[TALK_MAX - 1] != CANARY || left.err,
		   "bytes of another process");
	check_failed(&send, "a send");
	await_death(victim);
	if (!*plain) {
		fi_addr_t heir = talk_friend(&own, mt_published(&own.ep, NAME_HEIR));

		/* its memory is its own again: what is put there is not the arena */
		talk_all(&own, heir);
		talk_stop(&own, heir);
	}
	atomic_store(mt_flag(FLAG_DEAD), 1);
	mt_flag_wait(&own.ep, FLAG_CLEAN, 1);
	atomic_store(mt_flag(FLAG_OVER), 1); /* its pid was another's all the time */
	talk_close(&own);
	exit(0);
}

static void exit_as(int status)
{
	if (WIFEXITED(status) && WEXITSTATUS(status))
		_exit(WEXITSTATUS(status));
	mt_require(status == 0, "status %#x", status);
}

/* In a pid namespace of their own, where the pid is free: this rank starts and waits. */
static void reuse_rank(const void *arg)
{
	int status;
	pid_t pid;

	if (mt_rank == CLEANS)
		clean(NAME_VICTIM);
	if (mt_rank != ASKS)
		return;
	arena = mmap(NULL, 2 * TALK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mt_require(arena != MAP_FAILED, "no memory");
	enter(CLONE_NEWPID);
	pid = fork();
	mt_require(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) { /* the namespace's first */
		pid_t keeper, survivor;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		keeper = fork();
		if (!keeper)
			keeper_body(arg);
		survivor = fork();
		if (!survivor)
			survivor_body(arg);
		for (int i = 0; i < 2; i++) {
			mt_require(wait(&status) > 0, "wait");
			exit_as(status);
		}
		_exit(0);
	}
	mt_require(waitpid(pid, &status, 0) == pid, "waitpid");
	exit_as(status);
}

int main(void)
{
	static const struct apart aparts[] = {
		{ "pid-asking", { CLONE_NEWPID, 0 } },
		{ "pid-serving", { 0, CLONE_NEWPID } },
		{ "pid-both", { CLONE_NEWPID, CLONE_NEWPID } },
		{ "user-asking", { CLONE_NEWUSER, 0 } },
		{ "user-serving", { 0, CLONE_NEWUSER } },
		{ "user-both", { CLONE_NEWUSER, CLONE_NEWUSER } },
		{ "user-pid-asking", { CLONE_NEWUSER | CLONE_NEWPID, 0 } },
		{ "user-pid-serving", { 0, CLONE_NEWUSER | CLONE_NEWPID } },
		{ "user-pid-both", { CLONE_NEWUSER | CLONE_NEWPID, CLONE_NEWUSER | CLONE_NEWPID } },
	};
	static const struct forbidden forbiddens[] = {
		{ "seccomp-EPERM-asking", 1, EPERM, false },
		{ "seccomp-EPERM-serving", 2, EPERM, false },
		{ "seccomp-EPERM-both", 3, EPERM, false },
		{ "seccomp-ENOSYS-asking", 1, ENOSYS, false },
		{ "seccomp-ENOSYS-serving", 2, ENOSYS, false },
		{ "seccomp-ENOSYS-both", 3, ENOSYS, false },
		{ "seccomp-EPERM-late", 3, EPERM, true },
		{ "seccomp-ENOSYS-late", 3, ENOSYS, true },
		{ "seccomp-EPERM-late-asking", 1, EPERM, true },
		{ "seccomp-EPERM-late-serving", 2, EPERM, true },
	};
	static const bool plain = true, heir = false;

	mt_init("test_namespaces");
	for (size_t i = 0; i < sizeof(aparts) / sizeof(aparts[0]); i++)
		mt_run(&(struct mt_case){ .name = aparts[i].name,
					  .ranks = 3,
					  .rank = apart_rank,
					  .arg = &aparts[i],
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	for (size_t i = 0; i < sizeof(forbiddens) / sizeof(forbiddens[0]); i++)
		mt_run(&(struct mt_case){ .name = forbiddens[i].name,
					  .ranks = 2,
					  .rank = forbidden_rank,
					  .arg = &forbiddens[i],
					  .judge = judge_forbidden,
					  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	mt_run(&(struct mt_case){ .name = "pid-reused",
				  .ranks = 3,
				  .rank = reuse_rank,
				  .arg = &plain,
				  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	mt_run(&(struct mt_case){ .name = "pid-reused-by-a-peer",
				  .ranks = 3,
				  .rank = reuse_rank,
				  .arg = &heir,
				  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
	return mt_end();
}
