/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_exit: a sender ends right after its last completed send, in every way in which a process can end. The receiver
 * gets each message whose send has completed, and then learns by an error that the source is gone: nothing is lost in
 * silence, and no receive waits for ever.
 *
 * Rank 0 receives. Rank 1 makes one sender for each round, a process of its own, and tells when it has ended. A round
 * is one size and one way of the receiver to spend its time; TEST_EXIT_ROUNDS says how many there are of each ending,
 * default one of each kind, and 1,000 in the full tests.
 */
#define _GNU_SOURCE 1
#include "multi.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../rounds.h"

/* One line, several lines, one bounce buffer, several, as many as are eager at most, rendezvous, a large one. */
static const size_t sizes[] = { 8, 0, 200, 870, 3000, 20000, 32768, 60000, 1 << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)1 << 20)
#define EAGER_MOST 32768 /* FI_SHMCMA_EAGER_MAX: a larger message needs the receiver to complete */

/* How the receiver spends the time until the sender has ended. */
enum meanwhile {
	AWAY,	     /* it calls nothing, and the sender is new to it */
	READS,	     /* it has posted a receive, and reads its completion queue */
	AWAY_KNOWN,  /* as before, but the two have talked */
	READS_KNOWN,
	MEANWHILES
};

enum ending {
	BY_EXIT,
	BY__EXIT,
	BY_RETURN,	/* from main */
	BY_THREAD,	/* exit(3) by another thread, while the first one is in the library */
	BY_KILL,	/* SIGKILL */
	BY_LAST_THREAD, /* exit(3) when the first thread has ended */
	BY_QUICK_EXIT,
	BY_ABORT,
	BY_EXEC,
	BY_LATE, /* exit(3), and it sends once more when libfabric has had its end */
};

#define MESSAGES 2 /* of a round */
#define SENDER 2   /* the sender's mt_rank */
#define REOPEN 256 /* rounds of one endpoint of the receiver's */

struct run {
	enum ending ending;
	bool daemon;
};

/* The three processes tell each other how far they are. Rounds are numbered from 1 on. */
static struct board {
	_Atomic uint64_t ready, named, met, known, ended; /* rounds for which that has been reached, in this order */
	_Atomic uint64_t posted, completed, refused;	   /* sends of this round */
	char receiver[MT_NAME_SIZE], sender[MT_NAME_SIZE];
} *board;

static uint64_t rounds;
static jmp_buf in_main;

static size_t size_of(uint64_t round)
{
	return sizes[round % SIZES];
}

static enum meanwhile meanwhile_of(uint64_t round)
{
	return (enum meanwhile)(round / SIZES % MEANWHILES);
}

static bool is_known(uint64_t round)
{
	return meanwhile_of(round) == AWAY_KNOWN || meanwhile_of(round) == READS_KNOWN;
}

static bool reads(uint64_t round)
{
	return meanwhile_of(round) == READS || meanwhile_of(round) == READS_KNOWN;
}

/* Do its sends complete before the receiver comes? */
static bool completes(uint64_t round)
{
	return reads(round) || size_of(round) <= EAGER_MOST;
}

/* Of those that do not there is one under way. */
static uint64_t messages_of(uint64_t round)
{
	return completes(round) ? MESSAGES : 1;
}

static void prepare(const struct run *run)
{
	setenv("FI_SHMCMA_DAEMON", run->daemon ? "1" : "0", 1);
}

/* ---- the sender ------------------------------------------------------------------------------ */

/* Static: they are used until the process is no more. */
static struct mt_ep sender_ep;
static struct mt_op sender_op;
static uint8_t sender_buf[LARGEST];
static fi_addr_t sender_to;
static uint64_t sender_round;
static bool sender_is_late;

/* One message; false: it was refused. Waits for the completion, if there will be one. */
static bool send_one(void)
{
	uint64_t number = atomic_load(&board->posted);
	size_t size = size_of(sender_round);
	struct iovec iov = { sender_buf, size };
	struct mt_message message = {
		.tagged = true, .call = MT_SEND, .iov = &iov, .pieces = 1, .peer = sender_to, .tag = number
	};
	ssize_t rc;

	mt_doing("sending message %d of round %d", (int)number, (int)sender_round);
	pattern_fill(sender_buf, 0, size, sender_round * MESSAGES + number);
	while ((rc = mt_try_send(&sender_ep, &sender_op, &message)) == -FI_EAGAIN)
		mt_progress(&sender_ep);
	if (rc)
		return false;
	atomic_store(&board->posted, number + 1);
	if (!completes(sender_round))
		return true;
	mt_wait(&sender_ep, &sender_op);
	atomic_fetch_add(&board->completed, 1);
	return true;
}

static void send_late(int status, void *arg)
{
	(void)status;
	(void)arg;
	if (completes(sender_round) && !send_one())
		atomic_fetch_add(&board->refused, 1);
}

/* A function that is given to on_exit(3) in a destructor is called after the destructors of all libraries. */
__attribute__((destructor)) static void come_back(void)
{
	if (sender_is_late)
		on_exit(send_late, NULL);
}

static void *exit_soon(void *unused)
{
	(void)unused;
	while (!atomic_load(&board->posted) || (completes(sender_round) && !atomic_load(&board->completed)))
		sched_yield();
	exit(0);
}

static void *exit_last(void *main_thread)
{
	pthread_join(*(pthread_t *)main_thread, NULL);
	exit(0);
}

/* Another thread ends the process meanwhile. A thread inside libfabric is no reason for exit(3) to wait. */
static void send_until_the_end(void)
{
	pthread_t thread;

	mt_require(!pthread_create(&thread, NULL, exit_soon, NULL), "no thread");
	for (;;) {
		if (!completes(sender_round) && atomic_load(&board->posted))
			mt_progress(&sender_ep);
		else if (!send_one())
			atomic_store(&board->refused, 1);
	}
}

static void leave(enum ending ending)
{
	static pthread_t main_thread, last;

	mt_doing("ending");
	switch (ending) {
	case BY_EXIT:
		exit(0);
	case BY_LATE:
		sender_is_late = true;
		exit(0);
	case BY_RETURN:
		longjmp(in_main, 1);
	case BY_KILL:
		kill(getpid(), SIGKILL);
		break;
	case BY_LAST_THREAD:
		main_thread = pthread_self();
		mt_require(!pthread_create(&last, NULL, exit_last, &main_thread), "no thread");
		pthread_exit(NULL);
	case BY_QUICK_EXIT:
		quick_exit(0);
	case BY_ABORT:
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		abort();
	case BY_EXEC:
		execl("/bin/true", "true", (char *)NULL);
		break;
	default:
		break;
	}
	_exit(0);
}

static void await_round(struct mt_ep *ep, _Atomic uint64_t *word, uint64_t round)
{
	while (atomic_load(word) < round)
		mt_poll(ep);
}

static void sender_main(const struct run *run, uint64_t round)
{
	struct mt_op hello = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	mt_rank = SENDER;
	sender_round = round;
	mt_open(&sender_ep, NULL);
	memcpy(board->sender, sender_ep.name, sizeof(board->sender));
	sender_to = mt_insert(&sender_ep, board->receiver);
	if (is_known(round))
		mt_trecv(&sender_ep, &hello, NULL, 0, sender_to, UINT64_MAX);
	atomic_store(&board->named, round);
	mt_doing("meeting the receiver");
	await_round(&sender_ep, &board->met, round);
	if (is_known(round)) {
		mt_wait(&sender_ep, &hello);
		mt_tsend(&sender_ep, &hello, NULL, 0, sender_to, UINT64_MAX);
		mt_wait(&sender_ep, &hello);
		await_round(&sender_ep, &board->known, round);
	}
	if (run->ending == BY_THREAD)
		send_until_the_end();
	for (uint64_t i = 0; i < messages_of(round); i++)
		mt_require(send_one(), "a send was refused");
	leave(run->ending);
}

/* ---- who makes the senders ------------------------------------------------------------------- */

static bool has_ended_well(enum ending ending, int status)
{
	int signal = ending == BY_KILL ? SIGKILL : ending == BY_ABORT ? SIGABRT : 0;

	return signal ? WIFSIGNALED(status) && WTERMSIG(status) == signal : status == 0;
}

static void maker_rank(const struct run *run)
{
	for (uint64_t round = 1; round <= rounds; round++) {
		int status;
		pid_t pid;

		mt_doing("round %d", (int)round);
		await_round(NULL, &board->ready, round);
		pid = fork();
		mt_require(pid >= 0, "fork");
		if (!pid)
			sender_main(run, round);
		while (waitpid(pid, &status, 0) < 0)
			mt_require(errno == EINTR, "waitpid");
		mt_require(has_ended_well(run->ending, status), "round %d: the sender has ended with status %#x: %s while %s",
			   (int)round, status, mt_failure(SENDER), mt_deed(SENDER));
		atomic_store(&board->ended, round);
	}
}

/* ---- the receiver ---------------------------------------------------------------------------- */

static uint8_t receiver_buf[LARGEST];

/* Posted, or refused with an error. */
static int post(struct mt_ep *ep, struct mt_op *op, fi_addr_t from, uint64_t tag, size_t size)
{
	struct iovec iov = { receiver_buf, size };
	struct mt_message message = {
		.tagged = true, .call = MT_SEND, .iov = &iov, .pieces = 1, .peer = from, .tag = tag
	};
	ssize_t rc;

	while ((rc = mt_try_recv(ep, op, &message)) == -FI_EAGAIN)
		mt_poll(ep);
	return (int)-rc;
}

/* One after the other until a receive ends with an error: that many have come. */
static uint64_t receive_all(struct mt_ep *ep, fi_addr_t from, uint64_t round)
{
	size_t size = size_of(round);

	for (uint64_t number = 0;; number++) {
		struct mt_op op = { 0 };
		int err = post(ep, &op, from, number, size);

		mt_doing("receiving message %d of %zu bytes, round %d", (int)number, size, (int)round);
		if (!err) {
			mt_wait_any(ep, &op);
			err = op.err;
		}
		if (err) {
			mt_require(err == FI_ECONNRESET, "round %d: %s", (int)round, fi_strerror(err));
			return number;
		}
		mt_require(op.len == size &&
				   pattern_differs(receiver_buf, 0, size, round * MESSAGES + number) < 0,
			   "round %d: message %d is wrong", (int)round, (int)number);
	}
}

static void get_to_know(struct mt_ep *ep, fi_addr_t sender, uint64_t round)
{
	struct mt_op hello = { 0 }, send = { 0 };

	mt_doing("talking with the sender of round %d", (int)round);
	mt_trecv(ep, &hello, NULL, 0, sender, UINT64_MAX);
	mt_tsend(ep, &send, NULL, 0, sender, UINT64_MAX);
	mt_wait(ep, &send);
	mt_wait(ep, &hello);
	atomic_store(&board->known, round);
}

static void receive_round(struct mt_ep *ep, const struct run *run, uint64_t round)
{
	uint64_t came, completed, all = completes(round) ? messages_of(round) : 0;
	fi_addr_t sender;

	mt_doing("waiting for the sender of round %d", (int)round);
	await_round(ep, &board->named, round);
	sender = mt_insert(ep, board->sender);
	atomic_store(&board->met, round);
	if (is_known(round))
		get_to_know(ep, sender, round);
	if (!reads(round))
		await_round(NULL, &board->ended, round);
	came = receive_all(ep, sender, round);
	completed = atomic_load(&board->completed);
	if (run->ending == BY_LATE && all && !atomic_load(&board->refused))
		all++;
	if (run->ending == BY_THREAD)
		all = 0; /* however many */
	mt_require(came >= completed, "round %d: %d messages of %zu bytes were sent and completed, %d came", (int)round,
		   (int)completed, size_of(round), (int)came);
	mt_require(completed >= all, "round %d: only %d sends completed", (int)round, (int)completed);
	mt_require(run->ending != BY_LATE || !is_known(round) || !atomic_load(&board->refused),
		   "round %d: a send to a peer that is connected was refused", (int)round);
	mt_must(fi_av_remove(ep->av, &sender, 1, 0));
}

static void receiver_rank(const struct run *run)
{
	struct mt_ep ep = { 0 };

	for (uint64_t round = 1; round <= rounds; round++) {
		if (round % REOPEN == 1) {
			if (ep.ep)
				mt_close(&ep);
			mt_open(&ep, NULL);
		}
		memcpy(board->receiver, ep.name, sizeof(board->receiver));
		atomic_store(&board->posted, 0);
		atomic_store(&board->completed, 0);
		atomic_store(&board->refused, 0);
		atomic_store(&board->ready, round);
		receive_round(&ep, run, round);
	}
	mt_close(&ep);
}

static void rank_main(const void *arg)
{
	const struct run *run = arg;

	prepare(run);
	if (mt_rank)
		maker_rank(run);
	else
		receiver_rank(run);
}

static void run_all(void)
{
	static const char *const names[] = {
		[BY_EXIT] = "exit",	[BY__EXIT] = "_exit",	      [BY_RETURN] = "return",
		[BY_THREAD] = "thread", [BY_KILL] = "kill",	      [BY_LAST_THREAD] = "last-thread",
		[BY_QUICK_EXIT] = "quick_exit", [BY_ABORT] = "abort", [BY_EXEC] = "exec",
		[BY_LATE] = "late",
	};

	for (size_t i = 0; i < 2 * sizeof(names) / sizeof(names[0]); i++) {
		struct run run = { .ending = (enum ending)(i / 2), .daemon = i % 2 == 0 };
		struct mt_case test = {
			.ranks = 2,
			.rank = rank_main,
			.arg = &run,
			.deadline = 60 + (unsigned)(rounds / 10),
			.flags = MT_CASE_SHMCMA | MT_CASE_LOSSY,
		};
		char name[64];

		snprintf(name, sizeof(name), "%s%s", names[run.ending], run.daemon ? "" : "-no-daemon");
		test.name = name;
		memset(board, 0, sizeof(*board));
		mt_run(&test);
	}
}

int main(void)
{
	const char *count = getenv("TEST_EXIT_ROUNDS");

	if (setjmp(in_main))
		return 0;
	mt_init("test_exit");
	rounds = count ? strtoull(count, NULL, 10) : rounds_of(1000, SIZES * MEANWHILES);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED) {
		perror("memory for the ranks");
		return MT_FAIL;
	}
	run_all();
	return mt_end();
}
