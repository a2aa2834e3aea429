/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_progress.c: progress (fi_domain(3)). With FI_PROGRESS_AUTO data moves though the application makes no call;
 * with FI_PROGRESS_MANUAL it also moves for an endpoint that no queue and no counter is bound to.
 */
#include "onesided.h"
#include "refuse.h"
#include "../rounds.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_trigger.h>

static const struct pair_want automatic = { .progress = FI_PROGRESS_AUTO };
static const struct pair_want automatic_domain = { .progress = FI_PROGRESS_AUTO,
						   .threading = FI_THREAD_DOMAIN };
static const struct pair_want automatic_trigger = { .progress = FI_PROGRESS_AUTO,
						    .caps = PAIR_CAPS | FI_TRIGGER };
static const struct pair_want automatic_onesided = { .progress = FI_PROGRESS_AUTO,
						     .caps = ONESIDED_CAPS,
						     .mr_mode = ONESIDED_MODE };
static const struct pair_want automatic_onesided_domain = { .progress = FI_PROGRESS_AUTO,
							    .threading = FI_THREAD_DOMAIN,
							    .caps = ONESIDED_CAPS,
							    .mr_mode = ONESIDED_MODE };

/* ---- the thread ------------------------------------------------------------------------------ */

/* Threads of this process that are the provider's; `blocked`: the signals that each of them blocks. */
static int threads(uint64_t *blocked)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	must(dir);
	*blocked = UINT64_MAX;
	while ((entry = readdir(dir))) {
		char path[300], line[128];
		bool ours = false;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (file && fgets(line, sizeof(line), file)) {
			ours |= !strcmp(line, "Name:\tshmcma\n");
			if (ours && !strncmp(line, "SigBlk:", 7))
				*blocked &= strtoull(line + 7, NULL, 16);
		}
		count += ours;
		if (file)
			fclose(file);
	}
	closedir(dir);
	return count;
}

/* It has its name a moment after it was made. */
static void wait_for_threads(int count, uint64_t *blocked)
{
	watchdog_await(threads(blocked) == count);
}

static void one_thread_per_domain(void)
{
	const int signals[] = { SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGIO, SIGPROF };
	struct pair manual, first, second;
	uint64_t blocked;

	pair_open(&manual, NULL);
	gives(manual.info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
	gives(threads(&blocked), 0);
	pair_open_domain(&first, &automatic);
	gives(first.info->domain_attr->data_progress, FI_PROGRESS_AUTO);
	gives(threads(&blocked), 0);
	side_open(&first, &first.a);
	wait_for_threads(1, &blocked);
	side_open(&first, &first.b);
	gives(threads(&blocked), 1);
	pair_open(&second, &automatic);
	wait_for_threads(2, &blocked);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		must(blocked & 1ULL << (signals[i] - 1));
	pair_close(&second);
	wait_for_threads(1, &blocked);
	pair_close(&first);
	wait_for_threads(0, &blocked);
	pair_close(&manual);
}

/* Domains come and go, with traffic until the last moment. */
static void open_and_close(void)
{
	char buf[8];

	for (int i = 0; i < 100; i++) {
		struct pair pair;

		pair_open(&pair, i % 2 ? &automatic : &automatic_domain);
		gives(fi_recv(pair.b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		gives(fi_send(pair.a.ep, "message", 8, NULL, pair.a.peer, NULL), 0);
		pair_close(&pair);
	}
}

/* A process that ends without closing anything: nothing to see but that it ends. */
static void exit_without_close(void)
{
	static struct pair pair;

	pair_open(&pair, &automatic);
	gives(fi_send(pair.a.ep, "message", 8, NULL, pair.a.peer, NULL), 0);
}

/* ---- fork ------------------------------------------------------------------------------------ */

/* A child closes what it has inherited; the parent goes on. The thread may be anywhere at the fork. */
static void fork_and_close(void)
{
	char in[8], out[8] = "message";
	struct pair pair;

	pair_open(&pair, &automatic);
	for (int i = 0; i < 50; i++) {
		int status;
		pid_t pid;

		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
		gives(fi_send(pair.a.ep, out, sizeof(out), NULL, pair.a.peer, out), 0);
		pid = fork();
		must(pid >= 0);
		if (!pid) {
			watchdog_start("a child of fork_and_close", 0);
			if (i % 2)
				pair_close(&pair);
			exit(0);
		}
		gives(waitpid(pid, &status, 0), pid);
		gives(status, 0);
		must(pair_done(&pair, &pair.b).entry.op_context == in);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
	}
	pair_close(&pair);
}

static atomic_bool raises, stalled, goes_on;
static _Thread_local bool stalls;
static int handled;

/* In its place, so that a signal comes, or time passes, while the provider starts a thread. */
__attribute__((visibility("default"))) int pthread_attr_init(pthread_attr_t *attr)
{
	int (*init)(pthread_attr_t *);

	*(void **)&init = dlsym(RTLD_NEXT, "pthread_attr_init");
	if (raises)
		raise(SIGUSR1);
	if (stalls)
		stalled = true;
	while (stalls && !goes_on)
		sched_yield();
	return init(attr);
}

static void fork_in_handler(int signal)
{
	pid_t pid = fork();

	(void)signal;
	if (!pid)
		_exit(0);
	if (waitpid(pid, NULL, 0) == pid)
		handled++;
}

/* The signal is handled as soon as the provider lets it in again: whatever is held there, fork(2) comes to an end. */
static void fork_at_the_start(void)
{
	struct pair pair;

	must(signal(SIGUSR1, fork_in_handler) != SIG_ERR);
	raises = true;
	pair_open(&pair, &automatic);
	raises = false;
	must(handled > 0);
	pair_close(&pair);
	must(signal(SIGUSR1, SIG_DFL) == fork_in_handler);
}

static void *start_slowly(void *arg)
{
	stalls = true;
	pair_open(arg, &automatic);
	stalls = false;
	return NULL;
}

/* Another thread does not come to an end with it: the child is there all the same, and closes what is its parent's. */
static void fork_beside_a_start(void)
{
	struct pair pair, other;
	pthread_t thread;
	int status;
	pid_t pid;

	pair_open(&pair, &automatic);
	gives(pthread_create(&thread, NULL, start_slowly, &other), 0);
	while (!stalled)
		sched_yield();
	pid = fork();
	must(pid >= 0);
	if (!pid) {
		watchdog_start("the child of fork_beside_a_start", 0);
		pair_close(&pair);
		exit(0);
	}
	gives(waitpid(pid, &status, 0), pid);
	gives(status, 0);
	goes_on = true;
	gives(pthread_join(thread, NULL), 0);
	pair_close(&other);
	pair_close(&pair);
}

/* ---- a passive target ------------------------------------------------------------------------- */

#define LARGE_SIZE ((4 << 20) + 1)

/* A pair of its own with automatic progress, between the two processes of a test. */
static void own_open(struct pair *pair, struct pair *own, const struct pair_want *want)
{
	char name[64];

	pair_open_domain(own, want);
	side_open(own, &own->a);
	pair_exchange(pair->link, own->a.name, name, sizeof(name));
	own->a.peer = pair_insert(own->a.av, name);
}

/* Reads memory that a thread of the provider may be writing just now. */
__attribute__((no_sanitize_thread)) static char look(const void *at)
{
	return *(const volatile char *)at;
}

__attribute__((no_sanitize_thread)) static uint64_t look_word(const void *at)
{
	return *(const volatile uint64_t *)at;
}

/* A byte to the other process, or from it: no call of libfabric meanwhile. */
static void tell(struct pair *pair)
{
	gives(write(pair->link, "t", 1), 1);
}

static void listen_to(struct pair *pair)
{
	char byte;

	gives(read(pair->link, &byte, 1), 1);
}

static void passive_target(struct pair *pair)
{
	static uint8_t to[LARGE_SIZE];
	struct fi_cq_tagged_entry entry;
	struct pair own;

	own_open(pair, &own, &automatic);
	for (unsigned int i = 0; i < 3; i++) {
		gives(fi_trecv(own.a.ep, to, sizeof(to), NULL, own.a.peer, 7, 0, to), 0);
		tell(pair);
		listen_to(pair); /* until it has completed there */
		gives(fi_cq_read(own.a.cq, &entry, 1), 1);
		must(entry.op_context == to);
		must(pattern_is(to, 0, sizeof(to), i));
		pair_saw(&entry);
	}
	tell(pair);
	pair_close(&own);
}

static void active_sender(struct pair *pair)
{
	static uint8_t from[LARGE_SIZE];
	struct pair own;

	own_open(pair, &own, NULL);
	for (unsigned int i = 0; i < 3; i++) {
		pattern_fill(from, 0, sizeof(from), i);
		listen_to(pair);
		gives(fi_tsend(own.a.ep, from, sizeof(from), NULL, own.a.peer, 7, from), 0);
		must(pair_done(&own, &own.a).entry.op_context == from);
		tell(pair);
	}
	listen_to(pair);
	pair_close(&own);
}

/* The sender calls nothing either: the payload arrives, which the receiver looks at in its memory. */
static void passive_sender(struct pair *pair)
{
	static uint8_t from[LARGE_SIZE];
	struct fi_cq_tagged_entry entry;
	struct pair own;

	own_open(pair, &own, &automatic);
	memset(from, 1, sizeof(from));
	gives(fi_tsend(own.a.ep, from, sizeof(from), NULL, own.a.peer, 7, from), 0);
	listen_to(pair);
	while (fi_cq_read(own.a.cq, &entry, 1) == -FI_EAGAIN)
		;
	must(entry.op_context == from);
	pair_close(&own);
}

static void looking_receiver(struct pair *pair)
{
	static uint8_t to[LARGE_SIZE];
	struct pair own;

	own_open(pair, &own, &automatic);
	gives(fi_trecv(own.a.ep, to, sizeof(to), NULL, own.a.peer, 7, 0, to), 0);
	while (!look(&to[LARGE_SIZE - 1]))
		sched_yield();
	gives(pair_done(&own, &own.a).entry.len, sizeof(to));
	tell(pair);
	pair_close(&own);
}

/* ---- asleep ---------------------------------------------------------------------------------- */

/* The work of the provider's threads for progress so far. */
struct usage {
	uint64_t switches, run_ns;
	bool asleep; /* all of them, just now */
};

static FILE *task_open(const char *task, const char *file)
{
	char path[320];

	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", task, file);
	return fopen(path, "r");
}

static void usage_add(struct usage *usage, const char *task)
{
	FILE *status = task_open(task, "status"), *schedstat = task_open(task, "schedstat");
	unsigned long long value;
	char line[128];
	bool ours = false;

	while (status && fgets(line, sizeof(line), status)) {
		char state;

		ours |= !strcmp(line, "Name:\tshmcma\n");
		if (ours && sscanf(line, "State: %c", &state) == 1)
			usage->asleep &= state == 'S';
		if (ours && (sscanf(line, "voluntary_ctxt_switches: %llu", &value) == 1 ||
			     sscanf(line, "nonvoluntary_ctxt_switches: %llu", &value) == 1))
			usage->switches += value;
	}
	if (ours && schedstat && fscanf(schedstat, "%llu", &value) == 1)
		usage->run_ns += value;
	if (status)
		fclose(status);
	if (schedstat)
		fclose(schedstat);
}

static struct usage usage(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct usage usage = { .asleep = true };
	struct dirent *entry;

	must(dir);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			usage_add(&usage, entry->d_name);
	closedir(dir);
	return usage;
}

/* No call of libfabric meanwhile. For longer than any nap of theirs (NAP in prov/wait/progress.c). */
static void wait_until_asleep(void)
{
	struct usage before, after = usage();

	do {
		before = after;
		usleep(3000);
		after = usage();
	} while (!before.asleep || !after.asleep || before.switches != after.switches);
}

/*
 * In a quarter of a second that nothing happens in: far fewer switches than a look every few milliseconds would make,
 * and next to no time on a processor.
 */
#define REST_US 250000
#define SWITCHES 5
#define RUN_NS 12500000

static bool thread_rests(void)
{
	struct usage before = usage(), after;

	usleep(REST_US);
	after = usage();
	return after.switches - before.switches < SWITCHES && after.run_ns - before.run_ns < RUN_NS;
}

/* Waits until the threads rest: they do as soon as all operations are over. */
static void expect_rest(void)
{
	watchdog_await_by(thread_rests(), (void)0);
}

static void without_barrier(void)
{
	refuse(SYS_membarrier);
	gives(syscall(SYS_membarrier, 0, 0, 0), -1);
}

/* ---- a target that sleeps and computes ---------------------------------------------------------- */

#define WORDS 512
#define SERVED_ROUNDS 20
#define RANDOM_ROUNDS (SANITIZED ? 600 : rounds_of(3000, 900))

/* A target: its objects, and the memory that others use. */
struct served {
	struct pair own;
	struct region region;
	uint64_t words[WORDS];
	char inbox[SERVED_ROUNDS][8];
};

static void served_open(struct served *served, struct pair *pair, const struct pair_want *want)
{
	struct remote own, none;

	memset(served, 0, sizeof(*served));
	own_open(pair, &served->own, want);
	region_open(&served->own, &served->region, served->words, sizeof(served->words),
		    FI_REMOTE_READ | FI_REMOTE_WRITE);
	own = served->region.remote;
	pair_exchange(pair->link, &own, &none, sizeof(none));
}

static void served_close(struct served *served)
{
	region_close(&served->region);
	pair_close(&served->own);
}

struct user {
	struct pair own;
	struct remote remote;
	uint64_t value, result;
};

static void user_open(struct user *user, struct pair *pair)
{
	static const struct remote none;

	memset(user, 0, sizeof(*user));
	own_open(pair, &user->own, &onesided_usual);
	pair_exchange(pair->link, &none, &user->remote, sizeof(none));
}

static void use_get(struct user *user)
{
	struct side *side = &user->own.a;

	post(&user->own, fi_read(side->ep, &user->result, sizeof(user->result), NULL, side->peer,
				 user->remote.addr + 8, user->remote.key, user));
	must(pair_done(&user->own, side).entry.op_context == user);
}

static void use_put(struct user *user)
{
	struct side *side = &user->own.a;

	post(&user->own, fi_write(side->ep, &user->value, sizeof(user->value), NULL, side->peer,
				  user->remote.addr + 8, user->remote.key, user));
	must(pair_done(&user->own, side).entry.op_context == user);
}

static void use_add(struct user *user)
{
	struct side *side = &user->own.a;
	uint64_t one = 1;

	post(&user->own, fi_fetch_atomic(side->ep, &one, 1, NULL, &user->result, NULL, side->peer,
					 user->remote.addr, user->remote.key, FI_UINT64, FI_SUM, user));
	must(pair_done(&user->own, side).entry.op_context == user);
}

/* Each round begins when the target's thread sleeps. */
static void using_sleeper(struct pair *pair)
{
	struct user user;

	user_open(&user, pair);
	for (uint64_t i = 0; i < SERVED_ROUNDS; i++) {
		listen_to(pair);
		gives(fi_inject(user.own.a.ep, "message", 8, user.own.a.peer), 0);
		tell(pair);
		listen_to(pair);
		use_add(&user);
		gives(user.result, i);
		tell(pair);
		listen_to(pair);
		user.value = ~i;
		use_put(&user);
		tell(pair);
		listen_to(pair);
		use_get(&user);
		gives(user.result, ~i);
		tell(pair);
	}
	listen_to(pair);
	pair_close(&user.own);
}

/* The other takes its turn while this one sleeps. */
static void let_use(struct pair *pair)
{
	wait_until_asleep();
	tell(pair);
	listen_to(pair);
}

static void sleeping_target(struct pair *pair)
{
	static struct served served;
	struct side *side = &served.own.a;

	served_open(&served, pair, &automatic_onesided);
	for (uint64_t i = 0; i < SERVED_ROUNDS; i++)
		gives(fi_recv(side->ep, served.inbox[i], 8, NULL, FI_ADDR_UNSPEC, served.inbox[i]), 0);
	for (uint64_t i = 0; i < SERVED_ROUNDS; i++) {
		let_use(pair);
		while (!look(&served.inbox[i][6])) /* it was only sent */
			sched_yield();
		for (int turn = 0; turn < 3; turn++)
			let_use(pair);
		gives(look_word(&served.words[0]), i + 1);
		gives(look_word(&served.words[1]), ~i);
	}
	expect_rest();
	for (uint64_t i = 0; i < SERVED_ROUNDS; i++)
		must(pair_done(&served.own, side).entry.op_context == served.inbox[i]);
	tell(pair);
	served_close(&served);
}

/* Of one process; the same in each run, with the scheduler's help never the same. */
static unsigned int draw(unsigned int below)
{
	static uint32_t state = 2463534242;

	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % below;
}

/* From none to a few times what the thread polls for before it sleeps, which depends on the machine. */
static void idle_a_while(void)
{
	int64_t ns = draw(2) ? draw(100000) : draw(1500000);
	struct timespec from, now;

	if (draw(2)) {
		nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000LL + now.tv_nsec - from.tv_nsec < ns);
}

/* A wake-up that is lost is waited for without end. */
static void using_at_random(struct pair *pair)
{
	uint64_t added = 0, value = 0;
	struct user user;

	user_open(&user, pair);
	for (unsigned int i = 0; i < RANDOM_ROUNDS; i++) {
		idle_a_while();
		switch (draw(3)) {
		case 0:
			use_add(&user);
			gives(user.result, added++);
			break;
		case 1:
			user.value = value = i;
			use_put(&user);
			break;
		default:
			use_get(&user);
			gives(user.result, value);
		}
	}
	tell(pair);
	listen_to(pair);
	pair_close(&user.own);
}

static void computing_target(struct pair *pair)
{
	static struct served served;

	served_open(&served, pair, &automatic_onesided);
	listen_to(pair);
	expect_rest();
	tell(pair);
	served_close(&served);
}

/* It polls now and then: the thread keeps out of its way, and takes over. */
static void restless_target(struct pair *pair)
{
	struct pollfd other = { .fd = pair->link, .events = POLLIN };
	static struct served served;

	served_open(&served, pair, &automatic_onesided_domain);
	while (!poll(&other, 1, 0)) {
		for (unsigned int polls = draw(2) * draw(1000); polls; polls--)
			gives(fi_cq_read(served.own.a.cq, NULL, 0), -FI_EAGAIN);
		idle_a_while();
	}
	listen_to(pair);
	tell(pair);
	served_close(&served);
}

/* ---- what the application begins while the thread sleeps ------------------------------------------ */

#define BEGUN_ROUNDS 500
#define BEGUN_SIZE 200001 /* by rendezvous */

/* One message, which nobody polls for until it has arrived. */
static void begin_one(struct pair *pair, uint8_t *to, const uint8_t *from)
{
	to[BEGUN_SIZE - 1] = 0;
	gives(fi_recv(pair->b.ep, to, BEGUN_SIZE, NULL, FI_ADDR_UNSPEC, to), 0);
	gives(fi_send(pair->a.ep, from, BEGUN_SIZE, NULL, pair->a.peer, NULL), 0);
	while (!look((const char *)&to[BEGUN_SIZE - 1]))
		sched_yield();
	must(pair_done(pair, &pair->b).entry.op_context == to);
	(void)pair_done(pair, &pair->a);
}

static void begun_with(const struct pair_want *want)
{
	static uint8_t from[BEGUN_SIZE], to[BEGUN_SIZE];
	struct pair pair;

	memset(from, 1, sizeof(from));
	pair_open(&pair, want);
	for (int i = 0; i < BEGUN_ROUNDS; i++) {
		idle_a_while();
		begin_one(&pair, to, from);
	}
	for (int i = 0; i < 5; i++) {
		wait_until_asleep();
		begin_one(&pair, to, from);
	}
	expect_rest();
	pair_close(&pair);
}

static void begun_asleep(void)
{
	begun_with(&automatic);
}

static void begun_asleep_domain(void)
{
	begun_with(&automatic_domain);
}

static void begun_without_barrier(void)
{
	without_barrier();
	begun_with(&automatic);
}

static void begun_without_waitv(void)
{
	without_waitv();
	begun_with(&automatic);
}

/* Endpoints come and go while it sleeps on others; on the new one, too, it is woken. */
static void come_and_go(void)
{
	struct pair pair;

	pair_open(&pair, &automatic);
	for (int i = 0; i < 200; i++) {
		char in[8] = "";
		struct side side;

		if (i < 10)
			wait_until_asleep();
		else
			idle_a_while();
		side_open(&pair, &side);
		gives(fi_recv(side.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
		idle_a_while();
		gives(fi_inject(pair.a.ep, "message", 8, pair_insert(pair.a.av, side.name)), 0);
		while (!look(&in[6]))
			sched_yield();
		must(pair_done(&pair, &side).entry.op_context == in);
		if (i < 10)
			wait_until_asleep();
		else
			idle_a_while();
		side_close(&side);
	}
	pair_close(&pair);
}

/* An operation waits for a counter that a data call raises, which no poll follows. */
static void triggered_asleep(void)
{
	struct fid_cntr *sends;
	struct pair pair;

	pair_open(&pair, &automatic_trigger);
	gives(fi_cntr_open(pair.domain, NULL, &sends, NULL), 0);
	for (uint64_t i = 0; i < 20; i++) {
		struct fi_triggered_context context = { .event_type = FI_TRIGGER_THRESHOLD };
		char first[8] = "", second[8] = "", out[8] = "trigger";
		struct iovec iov = { out, sizeof(out) };
		struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = &context };
		struct fid_av *av = pair_open_av(&pair);
		struct fid_ep *ep = pair_open_ep(&pair);

		gives(fi_ep_bind(ep, &av->fid, 0), 0);
		gives(fi_ep_bind(ep, &sends->fid, FI_SEND), 0);
		gives(fi_ep_bind(ep, &pair.b.cq->fid, FI_RECV), 0);
		gives(fi_enable(ep), 0);
		msg.addr = pair_insert(av, pair.b.name);
		context.trigger.threshold = (struct fi_trigger_threshold){ sends, 2 * i + 1 };
		gives(fi_recv(pair.b.ep, first, sizeof(first), NULL, FI_ADDR_UNSPEC, first), 0);
		gives(fi_recv(pair.b.ep, second, sizeof(second), NULL, FI_ADDR_UNSPEC, second), 0);
		gives(fi_sendmsg(ep, &msg, FI_TRIGGER | FI_COMPLETION), 0);
		wait_until_asleep();
		gives(fi_inject(ep, "message", 8, msg.addr), 0);
		while (!look(&second[6]))
			sched_yield();
		must(pair_done(&pair, &pair.b).entry.op_context == first);
		must(pair_done(&pair, &pair.b).entry.op_context == second);
		must(!strcmp(first, "message") && !strcmp(second, "trigger"));
		gives(fi_cntr_wait(sends, 2 * i + 2, -1), 0);
		gives(fi_close(&ep->fid), 0);
		gives(fi_close(&av->fid), 0);
	}
	gives(fi_close(&sends->fid), 0);
	pair_close(&pair);
}

/* A peer dies: what only it could have ended is over before anybody polls. */
static void mortal(struct pair *pair)
{
	struct pair own;

	own_open(pair, &own, NULL);
	gives(fi_inject(own.a.ep, "message", 8, own.a.peer), 0);
	listen_to(pair);
	tell(pair);
	pair_close(&own);
}

static void survivor(struct pair *pair)
{
	struct fi_cq_err_entry error = { .err = 0 };
	char in[8], never[8];
	struct pair own;

	own_open(pair, &own, &automatic);
	gives(fi_recv(own.a.ep, in, sizeof(in), NULL, own.a.peer, in), 0);
	must(pair_done(&own, &own.a).entry.op_context == in);
	gives(fi_recv(own.a.ep, never, sizeof(never), NULL, own.a.peer, never), 0);
	wait_until_asleep();
	tell(pair);
	listen_to(pair);
	while (fi_cq_readerr(own.a.cq, &error, 0) == -FI_EAGAIN) /* which polls nothing */
		sched_yield();
	must(error.op_context == never);
	gives(error.err, FI_ECONNRESET);
	expect_rest();
	pair_close(&own);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* A message arrives and is counted while nobody asks: its payload is all that is looked at. */
static void counted_unread(void)
{
	struct fid_cntr *recvs;
	struct pair pair;
	struct fid_ep *ep;
	struct fid_av *av;
	fi_addr_t addr;
	char name[64], in[8] = "";
	size_t len = sizeof(name);

	pair_open(&pair, &automatic);
	gives(fi_cntr_open(pair.domain, NULL, &recvs, NULL), 0);
	av = pair_open_av(&pair);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &av->fid, 0), 0);
	gives(fi_ep_bind(ep, &recvs->fid, FI_SEND | FI_RECV), 0);
	gives(fi_enable(ep), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	addr = pair_insert(pair.a.av, name);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_inject(pair.a.ep, "message", 8, addr), 0);
	while (!look(&in[6]))
		sched_yield();
	gives(fi_cntr_wait(recvs, 1, -1), 0);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&recvs->fid), 0);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
}

/* ---- an endpoint without queue and counter ----------------------------------------------------- */

/* A domain with an endpoint that is a target and nothing else; and queue, counter and poll set of other endpoints. */
struct target {
	struct pair pair;
	struct fid_ep *silent, *counted;
	struct fid_cntr *cntr;
	struct fid_poll *set;
	struct fid_mr *mr;
	uint64_t word;
	char name[64];
};

static void read_queue(struct target *target)
{
	gives(fi_cq_read(target->pair.a.cq, NULL, 0), -FI_EAGAIN);
}

static void read_counter(struct target *target)
{
	gives(fi_cntr_read(target->cntr), 0);
}

static void wait_for_counter(struct target *target)
{
	gives(fi_cntr_wait(target->cntr, 1, 0), -FI_ETIMEDOUT);
}

static void poll_set(struct target *target)
{
	void *context;

	gives(fi_poll(target->set, &context, 1), 0);
}

static void target_open(struct target *target, const struct pair_want *want)
{
	struct fi_poll_attr none = { .flags = 0 };
	size_t len = sizeof(target->name);

	pair_open(&target->pair, want);
	gives(fi_cntr_open(target->pair.domain, NULL, &target->cntr, NULL), 0);
	target->counted = pair_open_ep(&target->pair);
	gives(fi_ep_bind(target->counted, &target->pair.a.av->fid, 0), 0);
	gives(fi_ep_bind(target->counted, &target->cntr->fid, FI_READ | FI_WRITE), 0);
	gives(fi_enable(target->counted), 0);
	gives(fi_poll_open(target->pair.domain, &none, &target->set), 0);
	gives(fi_poll_add(target->set, &target->pair.b.cq->fid, 0), 0);
	target->silent = pair_open_ep(&target->pair);
	gives(fi_ep_bind(target->silent, &target->pair.a.av->fid, 0), 0);
	gives(fi_enable(target->silent), 0);
	gives(fi_getname(&target->silent->fid, target->name, &len), 0);
	target->word = 0;
	gives(fi_mr_reg(target->pair.domain, &target->word, sizeof(target->word), FI_REMOTE_WRITE, 0, 77,
			0, &target->mr, NULL),
	      0);
}

static void target_close(struct target *target)
{
	gives(fi_close(&target->mr->fid), 0);
	gives(fi_close(&target->silent->fid), 0);
	read_queue(target);
	read_counter(target);
	gives(fi_close(&target->counted->fid), 0);
	gives(fi_poll_del(target->set, &target->pair.b.cq->fid, 0), 0);
	gives(fi_close(&target->set->fid), 0);
	gives(fi_close(&target->cntr->fid), 0);
	pair_close(&target->pair);
}

/* Each call that reads from an object of the domain makes progress for operations on the silent endpoint. */
static void silent_endpoint(void)
{
	void (*const ways[])(struct target * target) = { read_queue, read_counter, wait_for_counter,
							 poll_set };
	struct pair_want want = { .caps = FI_RMA | FI_ATOMIC, .tx_op_flags = FI_DELIVERY_COMPLETE };
	struct fi_cq_tagged_entry entry;
	struct target target;
	struct pair pair;
	uint64_t more = 5;
	fi_addr_t to;

	pair_open(&pair, &want);
	target_open(&target, &want);
	to = pair_insert(pair.a.av, target.name);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		ssize_t ret;

		post(&pair, fi_atomic(pair.a.ep, &more, 1, NULL, to, 0, fi_mr_key(target.mr), FI_UINT64,
				      FI_SUM, &more));
		while ((ret = fi_cq_read(pair.a.cq, &entry, 1)) == -FI_EAGAIN)
			ways[i](&target);
		gives(ret, 1);
		must(entry.op_context == &more);
		pair_saw(&entry);
		gives(target.word, (i + 1) * more);
	}
	target_close(&target);
	pair_close(&pair);
}

/* ---- threads of the application beside it ------------------------------------------------------ */

#define MESSAGES 20000

static void *receive_all(void *arg)
{
	struct side *side = arg;
	struct fi_cq_tagged_entry entry;
	char buf[8];

	for (int i = 0; i < MESSAGES; i++) {
		ssize_t ret;

		gives(fi_recv(side->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL), 0);
		while ((ret = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
			sched_yield();
		gives(ret, 1);
	}
	return NULL;
}

static void beside_other_threads(void)
{
	struct fi_cq_tagged_entry entry;
	struct pair pair;
	pthread_t thread;
	int sent = 0, completed = 0;

	pair_open(&pair, &automatic);
	gives(pthread_create(&thread, NULL, receive_all, &pair.b), 0);
	while (completed < MESSAGES) {
		ssize_t ret = sent < MESSAGES ? fi_send(pair.a.ep, "message", 8, NULL, pair.a.peer, NULL)
					      : -FI_EAGAIN;

		sent += !ret;
		must(!ret || ret == -FI_EAGAIN);
		ret = fi_cq_read(pair.a.cq, &entry, 1);
		completed += ret == 1;
		must(ret == 1 || ret == -FI_EAGAIN);
	}
	gives(pthread_join(thread, NULL), 0);
	pair_close(&pair);
}

/* With FI_THREAD_DOMAIN the application has one thread, and this is the second. */
static void thread_domain(void)
{
	char in[8], out[8] = "message";
	struct pair pair;

	pair_open(&pair, &automatic_domain);
	for (int i = 0; i < 5000; i++) {
		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
		gives(fi_send(pair.a.ep, out, sizeof(out), NULL, pair.a.peer, out), 0);
		must(pair_done(&pair, &pair.b).entry.op_context == in);
		must(pair_done(&pair, &pair.a).entry.op_context == out);
	}
	pair_close(&pair);
}

#define NAMED(f, g, label, environment, prepare)                                                          \
	{                                                                                                 \
		.name = #f label, .test_func = pair_both, .initial_state = &(struct pair_test)            \
		{                                                                                         \
			.first = f, .second = g, .before = prepare, .env = environment                    \
		}                                                                                         \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(one_thread_per_domain),
		ALONE(open_and_close),
		ALONE(exit_without_close),
		ALONE(fork_and_close),
		ALONE(fork_at_the_start),
		ALONE(fork_beside_a_start),
		BOTH(active_sender, passive_target),
		BOTH_ENV(active_sender, passive_target, "FI_SHMCMA_CMA=0"),
		BOTH(passive_sender, looking_receiver),
		BOTH_ENV(passive_sender, looking_receiver, "FI_SHMCMA_CMA=0"),
		BOTH(using_sleeper, sleeping_target),
		BOTH_ENV(using_sleeper, sleeping_target, "FI_SHMCMA_RMA=strict"),
		BOTH_ENV(using_sleeper, sleeping_target, "FI_SHMCMA_CMA=0"),
		BOTH_ENV(using_sleeper, sleeping_target, "FI_SHMCMA_DAEMON=0"),
		NAMED(using_sleeper, sleeping_target, " without barrier", NULL, without_barrier),
		NAMED(using_sleeper, sleeping_target, " without futex_waitv", NULL, without_waitv),
		BOTH(using_at_random, computing_target),
		BOTH_ENV(using_at_random, computing_target, "FI_SHMCMA_RMA=strict"),
		BOTH_ENV(using_at_random, computing_target, "FI_SHMCMA_CMA=0"),
		NAMED(using_at_random, computing_target, " without barrier", NULL, without_barrier),
		NAMED(using_at_random, restless_target, " restless", NULL, NULL),
		NAMED(using_at_random, restless_target, " restless strict", "FI_SHMCMA_RMA=strict", NULL),
		ALONE(begun_asleep),
		ALONE(begun_asleep_domain),
		ALONE(begun_without_barrier),
		ALONE(begun_without_waitv),
		ALONE(come_and_go),
		ALONE(triggered_asleep),
		BOTH(mortal, survivor),
		ALONE(counted_unread),
		ALONE(silent_endpoint),
		ALONE(beside_other_threads),
		ALONE(thread_domain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
