/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_command: the command shmcma beside a job that runs. The figures of ps, stats and top agree with the counters
 * that each rank prints when its endpoint closes; a top that looks all the time disturbs no message; run reports the
 * traffic of the processes of a job; bench measures.
 */
#define _GNU_SOURCE 1
#include "multi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../rounds.h"
#include "rma.h"

#define TEXT_MAX (1 << 18)
#define RANKS_MAX 16
#define LARGEST (64 << 10)

/* Flags: how many ranks have no more to send; the command has looked; then the figures of each rank. */
#define DONE 0
#define LOOKED 1
#define FIGURES 2

/*
 * All counters: the words of stats, NULL if another counter has the same; the name in JSON; and where the judge finds the
 * same.
 */
struct figure {
	const char *words, *name;
	size_t offset;
};

#define FIGURE(words, name)                                                                               \
	{                                                                                                 \
		words, #name, offsetof(struct mt_counters, name)                                          \
	}
static const struct figure figures[] = {
	FIGURE("messages sent", tx_msgs),
	FIGURE(NULL, tx_bytes),
	FIGURE("messages sent inside their record", tx_inline),
	FIGURE("messages sent through bounce buffers", tx_bounce),
	FIGURE("messages sent by rendezvous", tx_rdv),
	FIGURE("bounce buffers that took the overflow of full rings", tx_overflows),
	FIGURE("messages received", rx_msgs),
	FIGURE(NULL, rx_bytes),
	FIGURE("messages that came before their receive", rx_unexpected),
	FIGURE("rendezvous bytes received by process_vm_readv", rx_cma_bytes),
	FIGURE("rendezvous bytes received through bounce buffers", rx_pulled_bytes),
	FIGURE("rendezvous bytes received inside the process", rx_local_bytes),
	FIGURE("rendezvous bytes that this side copied as the sender", shared_bytes),
	FIGURE("one-sided operations begun", rma_ops),
	FIGURE("bytes of them that this side moved by itself", rma_direct_bytes),
	FIGURE("requests sent to targets", rma_requests),
	FIGURE("requests done for initiators", rma_served),
	FIGURE("small operations that the target might do", rma_delegated),
	FIGURE("small operations that the target did", rma_delegated_taken),
	FIGURE("small operations that the daemon did", rma_rescued),
	FIGURE("operations copied together with others", rma_batched),
	FIGURE("large operations that the target copied along", rma_assisted),
	FIGURE("connections to peers", connects),
	FIGURE("connections of peers", accepts),
	FIGURE("connections of peers refused", refusals),
	FIGURE("peers cut off because they broke the protocol", quarantines),
	FIGURE("peers that departed", departures),
	FIGURE("peers that died", deaths),
};
#define FIGURES_COUNT ((int)(sizeof(figures) / sizeof(figures[0])))
_Static_assert(FIGURES + RANKS_MAX * sizeof(figures) / sizeof(figures[0]) <= MT_FLAGS_MAX, "more flags");

static const size_t sizes[] = { 8, 0, 2000, 30000, LARGEST };
#define SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

/* Runs a line of the shell with the command of this build in its path. Returns the exit status. */
static int command(const char *line, char text[TEXT_MAX])
{
	const char *build = getenv("abs_top_builddir");
	char whole[1024];
	size_t got;
	FILE *out;
	int status;

	snprintf(whole, sizeof(whole), "PATH=%s/util:$PATH; %s", build ? build : ".", line);
	out = popen(whole, "re");
	mt_require(out, "popen");
	got = fread(text, 1, TEXT_MAX - 1, out);
	text[got] = '\0';
	status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Each rank sends to each other, in turn, so that no one sends to a rank that sends to nobody. */
static void talk_all(struct mt_ep *ep, const fi_addr_t *peers, int round)
{
	static char out[LARGEST], in[LARGEST];
	size_t size = sizes[round % SIZES];

	for (int step = 1; step < mt_ranks; step++) {
		int to = (mt_rank + step) % mt_ranks, from = (mt_rank + mt_ranks - step) % mt_ranks;
		struct mt_op send = { 0 }, recv = { 0 };

		mt_doing("round %d, to %d and from %d", round, to, from);
		pattern_fill(out, 0, size, (uint64_t)(round * 100 + mt_rank));
		mt_trecv(ep, &recv, in, size, peers[from], (uint64_t)round);
		mt_tsend(ep, &send, out, size, peers[to], (uint64_t)round);
		mt_wait(ep, &send);
		mt_wait(ep, &recv);
		mt_require(pattern_differs(in, 0, size, (uint64_t)(round * 100 + from)) < 0,
			   "wrong bytes of rank %d", from);
	}
}

static struct rma_place *places; /* where each rank has memory for the others */

/* Each rank puts and gets pieces in the memory of the next one. */
static void move_all(struct mt_ep *ep, const fi_addr_t *peers)
{
	static char out[LARGEST], in[LARGEST], memory[LARGEST];
	struct fid_mr *mr =
		rma_register(ep, memory, LARGEST, FI_REMOTE_READ | FI_REMOTE_WRITE, &places[mt_rank]);
	int next = (mt_rank + 1) % mt_ranks;

	mt_barrier(ep);
	for (int i = 0; i < SIZES; i++) {
		struct mt_op put = { 0 }, get = { 0 };

		mt_doing("put and get of %zu bytes", sizes[i]);
		pattern_fill(out, 0, sizes[i], (uint64_t)(i * 100 + mt_rank));
		rma_move(ep, &put, true, out, sizes[i], peers[next], &places[next], 0);
		mt_wait(ep, &put);
		rma_move(ep, &get, false, in, sizes[i], peers[next], &places[next], 0);
		mt_wait(ep, &get);
		mt_require(pattern_differs(in, 0, sizes[i], (uint64_t)(i * 100 + mt_rank)) < 0,
			   "wrong bytes in rank %d", next);
	}
	mt_barrier(ep);
	rma_unregister(ep, mr);
}

/* ---- the look -------------------------------------------------------------------------------- */

/* The number in front of these words in what stats prints; 0 is printed, too. */
static uint64_t number_before(const char *text, const char *words)
{
	char line[128];
	const char *at;

	snprintf(line, sizeof(line), "  %s\n", words);
	at = strstr(text, line);
	mt_require(at, "stats has no line \"%s\": %s", words, text);
	while (at > text && at[-1] != '\n')
		at--;
	return strtoull(at, NULL, 10);
}

/* The number behind a name in JSON, from the object of that process on. */
static uint64_t number_of(const char *text, pid_t pid, const char *name)
{
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "\"pid\": %d,", (int)pid);
	at = strstr(text, key);
	mt_require(at, "no process %d in: %s", (int)pid, text);
	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = strstr(at, key);
	mt_require(at, "no %s of process %d", name, (int)pid);
	return strtoull(at + strlen(key), NULL, 10);
}

/* The command reads the counters in the memory of the ranks. */
static void require_cma(void)
{
	int got;
	struct iovec local = { &got, sizeof(got) }, remote = { &mt_rank, sizeof(mt_rank) };

	if (process_vm_readv(mt_pid(1), &local, 1, &remote, 1, 0) != (ssize_t)sizeof(got))
		mt_skip("process_vm_readv is not permitted here: %s", strerror(errno));
}

/* All endpoints are at rest: stats, top and ps tell the same of each. */
static void look(void)
{
	static char stats[TEXT_MAX], top[TEXT_MAX], ps[TEXT_MAX];
	char line[64];

	require_cma();
	mt_require(command("shmcma ps --json", ps) == 0, "ps fails: %s", ps);
	mt_require(command("shmcma top --once --interval 0.1 --json", top) == 0, "top fails: %s", top);
	for (int rank = 0; rank < mt_ranks; rank++) {
		pid_t pid = mt_pid(rank);

		mt_doing("look at rank %d", rank);
		snprintf(line, sizeof(line), "shmcma stats %d 2>&1", (int)pid);
		mt_require(command(line, stats) == 0, "stats fails: %s", stats);
		mt_require(number_of(ps, pid, "peers") == (uint64_t)mt_ranks - 1, "ps shows other peers");
		for (int i = 0; i < FIGURES_COUNT; i++) {
			uint64_t value = number_of(top, pid, figures[i].name);

			mt_require(!figures[i].words || number_before(stats, figures[i].words) == value,
				   "top and stats differ: %s", figures[i].name);
			atomic_store(mt_flag(FIGURES + rank * FIGURES_COUNT + i), value);
		}
	}
}

static void agree_rank(const void *arg)
{
	const struct mt_open open = { .caps = FI_RMA };
	fi_addr_t peers[RANKS_MAX];
	struct mt_ep ep;

	(void)arg;
	mt_open(&ep, &open);
	mt_join(&ep, peers);
	for (int round = 0; round < SIZES; round++)
		talk_all(&ep, peers, round);
	move_all(&ep, peers);
	mt_barrier(&ep);
	atomic_fetch_add(mt_flag(DONE), 1);
	mt_flag_wait(NULL, DONE, (uint64_t)mt_ranks);
	if (!mt_rank) {
		look();
		atomic_store(mt_flag(LOOKED), 1);
	}
	mt_flag_wait(NULL, LOOKED, 1);
	mt_close(&ep);
}

static bool agree_judge(const struct mt_counters *counters, int ranks, const void *arg)
{
	(void)arg;
	for (int rank = 0; rank < ranks; rank++)
		for (int i = 0; i < FIGURES_COUNT; i++) {
			uint64_t shown = atomic_load(mt_flag(FIGURES + rank * FIGURES_COUNT + i)), own;

			/* ranks that have closed before this one have departed from it */
			if (figures[i].offset == offsetof(struct mt_counters, departures))
				continue;
			memcpy(&own, (const char *)&counters[rank] + figures[i].offset, sizeof(own));
			if (shown == own)
				continue;
			printf("rank %d: %s: the command showed %llu, the endpoint printed %llu\n", rank,
			       figures[i].name, (unsigned long long)shown, (unsigned long long)own);
			return false;
		}
	return true;
}

/* ---- a look all the time --------------------------------------------------------------------- */

#define LAST 0	    /* flag: the number of the last round, once that is known */
#define PICTURES 20 /* of top, in which it has seen the traffic */

/* A top that looks twenty times a second. Returns what it prints. */
static int start_top(pid_t *pid)
{
	int fds[2];

	mt_require(!pipe2(fds, O_CLOEXEC | O_NONBLOCK), "pipe");
	*pid = mt_fork();
	if (!*pid) {
		(void)fcntl(fds[1], F_SETFL, 0);
		(void)dup2(fds[1], STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", "exec \"${abs_top_builddir:-.}/util/shmcma\" top -d 0.05",
		      (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	return fds[0];
}

/* Counts the pictures in what has come since the last call: each has a title, with the only K. */
static unsigned int count_pictures(int fd)
{
	unsigned int pictures = 0;
	char bytes[4096];
	ssize_t got;

	while ((got = read(fd, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < got; i++)
			pictures += bytes[i] == 'K';
	mt_require(got < 0 && errno == EAGAIN, "top has ended");
	return pictures;
}

static void end_top(pid_t pid, int fd)
{
	int status;

	mt_require(!kill(pid, SIGTERM) && waitpid(pid, &status, 0) == pid, "top cannot be ended");
	mt_require(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "top has ended early: %d", status);
	close(fd);
}

/*
 * Rank 0 has a top until it has printed enough pictures; talk_all() checks each byte. The last round is told before the
 * messages of the round before it, so that all ranks know it in time.
 */
static void watched_rank(const void *arg)
{
	unsigned int pictures = 0;
	fi_addr_t peers[RANKS_MAX];
	struct mt_ep ep;
	pid_t top = 0;
	int fd = -1;

	(void)arg;
	mt_open(&ep, NULL);
	mt_join(&ep, peers);
	if (!mt_rank)
		fd = start_top(&top);
	for (uint64_t round = 0, last = UINT64_MAX; round <= last; round++) {
		if (!mt_rank && last == UINT64_MAX) {
			pictures += count_pictures(fd);
			if (pictures >= PICTURES)
				atomic_store(mt_flag(LAST), round + 1);
		}
		talk_all(&ep, peers, (int)round);
		if (atomic_load(mt_flag(LAST)))
			last = atomic_load(mt_flag(LAST));
	}
	if (!mt_rank)
		end_top(top, fd);
	mt_close(&ep);
}

/* ---- run and bench --------------------------------------------------------------------------- */

static char text[TEXT_MAX];

/* The command runs this program, with one case; its ranks report. */
static const char *run_self(const char *program)
{
	char line[512];

	snprintf(line, sizeof(line), "TEST_ONLY==agree-2 shmcma run -o /dev/stdout %s 2>/dev/null",
		 program);
	if (command(line, text) != 0)
		return text;
	if (!strstr(text, "endpoints of 2 processes have sent 10 messages, 195 kB, over shmcma"))
		return text;
	return NULL;
}

static const char *run_bench(void)
{
	if (command("shmcma bench --time 1 --json 2>/dev/null", text) != 0)
		return text;
	if (!strstr(text, "\"processors\": ") || !strstr(text, "\"kind\": \"bandwidth\"") ||
	    !strstr(text, "\"shmcma\": {"))
		return text;
	/* bandwidths of five digits */
	if (command("shmcma bench --time 1 2>/dev/null", text) != 0 || strstr(text, "e+"))
		return text;
	if (command("shmcma bench --time 0 2>/dev/null", text) != 2)
		return "it takes a time of 0";
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct mt_case cases[] = {
		{ .name = "agree-2",
		  .ranks = 2,
		  .rank = agree_rank,
		  .judge = agree_judge,
		  .flags = MT_CASE_SHMCMA },
		{ .name = "agree-4",
		  .ranks = 4,
		  .rank = agree_rank,
		  .judge = agree_judge,
		  .flags = MT_CASE_SHMCMA },
		{ .name = "agree-16",
		  .ranks = 16,
		  .rank = agree_rank,
		  .judge = agree_judge,
		  .flags = MT_CASE_SHMCMA },
		{ .name = "watched", .ranks = 4, .rank = watched_rank, .flags = MT_CASE_SHMCMA },
	};

	(void)argc;
	mt_init("test_command");
	places = rma_shared(RANKS_MAX * sizeof(*places));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (cases[i].ranks < 16 || rounds_are_full())
			mt_run(&cases[i]);
	if (mt_is_shmcma() && !getenv("TEST_ONLY")) {
		const char *fault = run_self(argv[0]);

		mt_result("run", fault ? MT_FAIL : MT_OK, fault);
		fault = run_bench();
		mt_result("bench", fault ? MT_FAIL : MT_OK, fault);
	}
	return mt_end();
}
