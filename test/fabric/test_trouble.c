/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_trouble: rows of README's table of troubles that an application meets in calls of libfabric. Each case produces
 * the symptom, and shows that the remedy cures it. test/trouble.sh has the rows that programs and MPI jobs meet;
 * test/check-readme.sh compares the rows with those of README.
 */
#include "pair.h"

#include <sys/resource.h>
#include <rdma/fi_collective.h>

/* A case, whose name is the cell of README's table. */
#define TROUBLE(f, symptom) TROUBLE_ENV(f, symptom, NULL)
#define TROUBLE_ENV(f, symptom, e)                                                                        \
	{                                                                                                 \
		.name = symptom, .test_func = pair_alone, .initial_state = &(struct pair_test)            \
		{                                                                                         \
			.alone = f, .env = e                                                              \
		}                                                                                         \
	}

enum { POLLS = 1000, NOBODY = 43210 };

static uint64_t out = 1, landing;

/* A message from one side to the other arrives. */
static void talk(struct pair *pair, struct side *from, struct side *to)
{
	landing = 0;
	out = 7;
	post(pair, fi_trecv(to->ep, &landing, sizeof(landing), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	post(pair, fi_tsend(from->ep, &out, sizeof(out), NULL, from->peer, 1, NULL));
	pair_done(pair, to);
	pair_done(pair, from);
	must(landing == 7);
}

/* Sends to its peer until one ends with an error, in the call or in its completion. */
static int outcome(struct pair *pair, struct side *from)
{
	for (;;) {
		struct fi_cq_err_entry error = { .err = 0 };
		struct fi_cq_tagged_entry entry;
		ssize_t ret = fi_tsend(from->ep, &out, sizeof(out), NULL, from->peer, 1, NULL);

		if (ret && ret != -FI_EAGAIN)
			return (int)-ret;
		pair_progress(pair);
		if (fi_cq_read(from->cq, &entry, 1) != -FI_EAVAIL)
			continue;
		gives(fi_cq_readerr(from->cq, &error, 0), 1);
		return error.err;
	}
}

static bool log_has(const char *words)
{
	char *text = pair_log_read(STDERR_FILENO, 0);
	bool has = strstr(text, words);

	free(text);
	return has;
}

static void reopen(struct pair *pair, struct side *side)
{
	memset(side, 0, sizeof(*side));
	side_open(pair, side);
}

/* ---- peers that are not there ---------------------------------------------------------------- */

static void peer_closed(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	talk(&pair, &pair.a, &pair.b);
	side_close(&pair.b);
	memset(&pair.b, 0, sizeof(pair.b));
	gives(outcome(&pair, &pair.a), FI_ECONNRESET);

	reopen(&pair, &pair.b);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	talk(&pair, &pair.a, &pair.b);
	pair_close(&pair);
}

static void nobody_there(void)
{
	struct pair pair;
	char name[64];
	int error = 0;

	pair_open(&pair, NULL);
	memcpy(name, pair.b.name, sizeof(name));
	side_close(&pair.b);
	memset(&pair.b, 0, sizeof(pair.b));
	gives(fi_av_insert(pair.a.av, name, 1, &pair.a.peer, FI_SYNC_ERR, &error), 0);
	gives(error, FI_ECONNREFUSED);

	reopen(&pair, &pair.b);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	talk(&pair, &pair.a, &pair.b);
	pair_close(&pair);
}

/* A third endpoint, and what its message to b ends with when b is connected to a. */
static void with_third(int expected)
{
	struct side third;
	struct pair pair;

	pair_open(&pair, NULL);
	talk(&pair, &pair.a, &pair.b);
	side_open(&pair, &third);
	third.peer = pair_insert(third.av, pair.b.name);
	if (expected)
		gives(outcome(&pair, &third), expected);
	else
		talk(&pair, &third, &pair.b);
	side_close(&third);
	pair_close(&pair);
}

static void peer_full(void)
{
	with_third(FI_EBUSY);
}

static void peer_has_room(void)
{
	with_third(0);
}

/* ---- a group with a member that is full ------------------------------------------------------ */

enum { CROWD = 4 };

/* Endpoints that know each other in this order, and the event queue of all. */
struct crowd {
	struct pair pair;
	struct side sides[CROWD];
	struct fid_mc *mc[3 * CROWD];
	struct fid_eq *eq;
	int count, joins, ended;
};

static void crowd_open(struct crowd *crowd, int count)
{
	struct pair_want want = { .caps = FI_TAGGED | FI_COLLECTIVE };

	memset(crowd, 0, sizeof(*crowd));
	crowd->count = count;
	pair_open_domain(&crowd->pair, &want);
	crowd->eq = pair_open_eq(&crowd->pair);
	gives(fi_domain_bind(crowd->pair.domain, &crowd->eq->fid, 0), 0);
	for (int i = 0; i < count; i++)
		side_open(&crowd->pair, &crowd->sides[i]);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			pair_insert(crowd->sides[i].av, crowd->sides[j].name);
}

static void crowd_close(struct crowd *crowd)
{
	for (int i = 0; i < crowd->count; i++)
		side_close(&crowd->sides[i]);
	for (int i = 0; i < crowd->joins; i++)
		gives(fi_close(&crowd->mc[i]->fid), 0);
	gives(fi_close(&crowd->pair.domain->fid), 0);
	gives(fi_close(&crowd->eq->fid), 0);
	gives(fi_close(&crowd->pair.fabric->fid), 0);
	fi_freeinfo(crowd->pair.info);
}

/* Each of the sides in `callers`, a bit for each, joins the group of those in `members`. */
static void crowd_join_some(struct crowd *crowd, unsigned int members, unsigned int callers)
{
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	struct fid_av_set *set;

	for (int i = 0; i < crowd->count; i++) {
		if (!(callers >> i & 1))
			continue;
		gives(fi_av_set(crowd->sides[i].av, &attr, &set, NULL), 0);
		for (int j = 0; j < crowd->count; j++)
			if (members >> j & 1)
				gives(fi_av_set_insert(set, (fi_addr_t)j), 0);
		gives(fi_join_collective(crowd->sides[i].ep, FI_ADDR_NOTAVAIL, set, 0,
					 &crowd->mc[crowd->joins++], &crowd->sides[i]),
		      0);
		gives(fi_close(&set->fid), 0);
	}
}

static void crowd_join(struct crowd *crowd, unsigned int members)
{
	crowd_join_some(crowd, members, members);
}

/* Waits until all joins have ended. Returns how many ended with FI_EBUSY; others ended with `other`. */
static int crowd_await(struct crowd *crowd, int other)
{
	int busy = 0;

	for (; crowd->ended < crowd->joins; crowd->ended++) {
		struct fi_eq_err_entry error = { .err = 0 };
		struct fi_eq_entry entry;
		uint32_t event;
		ssize_t ret;

		while ((ret = fi_eq_read(crowd->eq, &event, &entry, sizeof(entry), 0)) == -FI_EAGAIN)
			;
		if (ret == -FI_EAVAIL)
			gives(fi_eq_readerr(crowd->eq, &error, 0), sizeof(error));
		if (error.err == FI_EBUSY)
			busy++;
		else
			gives(error.err, other);
	}
	return busy;
}

/* That side closes, and the others see that they have space again. */
static void crowd_leave(struct crowd *crowd, int which)
{
	side_close(&crowd->sides[which]);
	memset(&crowd->sides[which], 0, sizeof(crowd->sides[which]));
	for (int i = 0; i < POLLS; i++)
		side_progress(&crowd->sides[0]);
}

/* Each of three members may have one peer: a join ends with the same error as a send. */
static void group_full(void)
{
	struct crowd crowd;

	crowd_open(&crowd, 3);
	crowd_join(&crowd, 7);
	must(crowd_await(&crowd, FI_ECONNRESET) > 0);
	crowd_close(&crowd);
}

/* The fourth is connected to the first, which has space for the second then, and none for the third. */
static void group_full_for_one(void)
{
	struct crowd crowd;

	crowd_open(&crowd, 4);
	crowd_join(&crowd, 9);
	gives(crowd_await(&crowd, 0), 0);
	crowd_join(&crowd, 7);
	must(crowd_await(&crowd, FI_ECONNRESET) > 0);

	crowd_leave(&crowd, 3);
	crowd_join(&crowd, 7);
	gives(crowd_await(&crowd, 0), 0);
	crowd_close(&crowd);
}

/*
 * The first is full when the second joins, and has space when it joins itself: its join ends, too, and what was never sent
 * for it does not spoil the next one.
 */
static void group_full_at_first(void)
{
	struct crowd crowd;

	crowd_open(&crowd, 3);
	crowd_join(&crowd, 5);
	gives(crowd_await(&crowd, 0), 0);
	crowd_join_some(&crowd, 3, 2);
	gives(crowd_await(&crowd, 0), 1);
	crowd_leave(&crowd, 2);
	crowd_join_some(&crowd, 3, 1);
	gives(crowd_await(&crowd, FI_ECONNRESET), 0);
	for (int i = 0; i < 2; i++) {
		crowd_join(&crowd, 3);
		gives(crowd_await(&crowd, 0), 0);
	}
	crowd_close(&crowd);
}

/* The third is connected to the first, which has no space for the second. No other member can tell the first. */
static void group_full_of_two(void)
{
	struct crowd crowd;

	crowd_open(&crowd, 3);
	crowd_join(&crowd, 5);
	gives(crowd_await(&crowd, 0), 0);
	crowd_join(&crowd, 3);
	gives(crowd_await(&crowd, 0), 2);

	crowd_leave(&crowd, 2);
	crowd_join(&crowd, 3);
	gives(crowd_await(&crowd, 0), 0);
	crowd_close(&crowd);
}

/* ---- shared memory that is written over ------------------------------------------------------ */

/* All of a side's segment but its header becomes what cannot be. */
static void write_over(const struct side *side)
{
	char path[128], bytes[4096];
	off_t size;
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/shmcma-%s", strchr(side->name + strlen("fi_shmcma://"), '-') + 1);
	fd = open(path, O_RDWR | O_CLOEXEC);
	must(fd >= 0);
	size = lseek(fd, 0, SEEK_END);
	memset(bytes, 0xff, sizeof(bytes));
	for (off_t at = sizeof(bytes); at < size; at += (off_t)sizeof(bytes))
		must(pwrite(fd, bytes, sizeof(bytes), at) == sizeof(bytes));
	/* no close: it would drop the lock by which others see that this process lives */
}

static void written_over(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	talk(&pair, &pair.a, &pair.b);
	write_over(&pair.b);
	gives(outcome(&pair, &pair.a), FI_ECONNABORTED);
	must(log_has("nothing more is taken from it or sent to it"));
	pair_close(&pair);

	pair_open(&pair, NULL);
	talk(&pair, &pair.a, &pair.b);
	pair_close(&pair);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* The thread of automatic progress writes there meanwhile, and nothing orders a look behind that. */
__attribute__((no_sanitize_thread)) static bool has_landed(void)
{
	return *(volatile uint64_t *)&landing;
}

static void receiver_is_idle(void)
{
	struct pair_want automatic = { .progress = FI_PROGRESS_AUTO };
	struct pair pair;

	pair_open(&pair, NULL);
	landing = 0;
	gives(fi_trecv(pair.b.ep, &landing, sizeof(landing), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
	gives(fi_tsend(pair.a.ep, &out, sizeof(out), NULL, pair.a.peer, 1, NULL), 0);
	for (int i = 0; i < POLLS; i++)
		side_progress(&pair.a);
	must(!landing);
	pair_done(&pair, &pair.b);
	must(landing);
	pair_done(&pair, &pair.a);
	pair_close(&pair);

	pair_open(&pair, &automatic);
	landing = 0;
	gives(fi_trecv(pair.b.ep, &landing, sizeof(landing), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
	gives(fi_tsend(pair.a.ep, &out, sizeof(out), NULL, pair.a.peer, 1, NULL), 0);
	while (!has_landed())
		sched_yield();
	pair_done(&pair, &pair.b);
	pair_done(&pair, &pair.a);
	pair_close(&pair);
}

/* Takes the completions that are there; how many. */
static unsigned long drain(struct side *side)
{
	struct fi_cq_tagged_entry entry;
	unsigned long count = 0;

	for (; fi_cq_read(side->cq, &entry, 1) == 1; count++)
		pair_saw(&entry);
	return count;
}

/* The peer makes no progress, so each of the sender's polls is in vain; a poll of the peer makes room. */
static void peer_is_idle(void)
{
	unsigned long sent = 0, done = 0, vain = 0;
	struct pair pair;

	pair_open(&pair, NULL);
	while (vain < POLLS) {
		ssize_t ret = fi_tsend(pair.a.ep, &out, sizeof(out), NULL, pair.a.peer, 1, NULL);

		must(!ret || ret == -FI_EAGAIN);
		sent += !ret;
		vain = ret ? vain + 1 : 0;
		done += drain(&pair.a);
	}
	post(&pair, fi_tsend(pair.a.ep, &out, sizeof(out), NULL, pair.a.peer, 1, NULL));
	for (unsigned long left = sent + 1; left; left--) {
		gives(fi_trecv(pair.b.ep, &landing, sizeof(landing), NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
		pair_done(&pair, &pair.b);
		done += drain(&pair.a);
	}
	while (done < sent + 1) {
		pair_progress(&pair);
		done += drain(&pair.a);
	}
	pair_close(&pair);
}

/* ---- processes and their limits -------------------------------------------------------------- */

static void forked(void)
{
	struct pair pair;
	int status;
	pid_t pid;

	pair_open(&pair, NULL);
	talk(&pair, &pair.a, &pair.b);
	pid = fork();
	must(pid >= 0);
	if (!pid) {
		struct pair own;

		pair_end_with_parent();
		gives(fi_tsend(pair.a.ep, &out, sizeof(out), NULL, pair.a.peer, 1, NULL), -FI_EPERM);
		pair_open(&own, NULL);
		talk(&own, &own.a, &own.b);
		pair_close(&own);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && !status);
	pair_close(&pair);
}

static rlim_t set_limit(__rlimit_resource_t which, rlim_t value)
{
	struct rlimit limit;
	rlim_t before;

	must(!getrlimit(which, &limit));
	before = limit.rlim_cur;
	limit.rlim_cur = value < limit.rlim_max ? value : limit.rlim_max;
	must(!setrlimit(which, &limit));
	return before;
}

static void no_descriptor(void)
{
	struct pair pair;
	struct fid_ep *ep;
	rlim_t before;
	int lowest;

	pair_open(&pair, NULL);
	lowest = dup(STDERR_FILENO);
	must(lowest >= 0);
	close(lowest);
	before = set_limit(RLIMIT_NOFILE, (rlim_t)lowest);
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), 0);
	pair_bind(ep, pair.a.cq, pair.a.av);
	must(fi_enable(ep) < 0);
	gives(fi_close(&ep->fid), 0);
	must(log_has("raise the limit of open files (ulimit -n)"));

	set_limit(RLIMIT_NOFILE, before);
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), 0);
	pair_bind(ep, pair.a.cq, pair.a.av);
	gives(fi_enable(ep), 0);
	gives(fi_close(&ep->fid), 0);
	talk(&pair, &pair.a, &pair.b);
	pair_close(&pair);
}

/* The superuser has no limit of processes. */
static void become_nobody(void)
{
	if (!geteuid() && setresuid(NOBODY, NOBODY, NOBODY))
		_exit(PAIR_SKIP);
}

static void talk_as_nobody(bool warned)
{
	struct pair pair;

	pair_open(&pair, NULL);
	talk(&pair, &pair.a, &pair.b);
	must(log_has("no thread to watch other processes") == warned);
	pair_close(&pair);
}

static void no_thread(void)
{
	rlim_t before;

	become_nobody();
	before = set_limit(RLIMIT_NPROC, 0);
	talk_as_nobody(true);
	set_limit(RLIMIT_NPROC, before); /* a sanitizer starts a thread at the end */
}

static void with_thread(void)
{
	become_nobody();
	set_limit(RLIMIT_NPROC, RLIM_INFINITY);
	talk_as_nobody(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TROUBLE(peer_closed, "`FI_ECONNRESET`"),
		TROUBLE(nobody_there, "`FI_ECONNREFUSED`"),
		TROUBLE_ENV(peer_full, "`FI_EBUSY` from an operation", "FI_SHMCMA_PEERS=1"),
		ALONE_ENV(peer_has_room, "FI_SHMCMA_PEERS=2"),
		ALONE_ENV(group_full, "FI_SHMCMA_PEERS=1"),
		ALONE_ENV(group_full_for_one, "FI_SHMCMA_PEERS=2"),
		ALONE_ENV(group_full_at_first, "FI_SHMCMA_PEERS=1"),
		ALONE_ENV(group_full_of_two, "FI_SHMCMA_PEERS=1"),
		TROUBLE(written_over,
			"`FI_ECONNABORTED`; log: `nothing more is taken from it or sent to it`"),
		TROUBLE(receiver_is_idle, "a message never comes"),
		TROUBLE(peer_is_idle, "sends return `FI_EAGAIN`"),
		TROUBLE(forked, "`FI_EPERM` after `fork`"),
		TROUBLE(no_descriptor, "log: `raise the limit of open files (ulimit -n)`"),
		TROUBLE(no_thread, "log: `no thread to watch other processes`"),
		ALONE(with_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
