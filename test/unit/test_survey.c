/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_survey: survey.c and the command shmcma, on endpoints of other processes: one that receives and looks only when
 * it is told to, one that is stopped, one that is dead, and files full of rubbish.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include "command.h"
#include "core_pair.h"

static bool alone; /* in a /dev/shm of our own */

/* ---- the other process ----------------------------------------------------------------------- */

/* Takes in all that has come, each time that it is let go; then tells how many messages it has received. */
static void receive(struct child *self, void *arg)
{
	const int *rounds = arg;
	struct end end;

	prctl(PR_SET_NAME, "a\"\\\x01\xff");
	end_open(&end, NULL);
	child_tell(self, sc_ep_address(end.ep));
	for (int i = 0; i < *rounds; i++) {
		char text[32];

		child_wait(self);
		ends_settle(&end, 1);
		snprintf(text, sizeof(text), "%llu", (unsigned long long)sc_ep_counters(end.ep)->rx_unexpected);
		child_tell(self, text);
	}
	child_wait(self);
	end_close(&end);
}

/* Lets it go; returns how many messages it has taken in so far. */
static unsigned long take_in(struct child *child)
{
	assert_int_equal(send(child->down, "", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(read(child->up, child->line, sizeof(child->line)), sizeof(child->line));
	return strtoul(child->line, NULL, 10);
}

/* The segment that the last survey found. */
static struct sc_survey_seg found;
static char found_fault[64];

static void keep(const struct sc_survey_seg *seg, void *arg)
{
	if (seg->fault ? !strstr(seg->name, arg) : strcmp(seg->address, arg) != 0)
		return;
	found = *seg;
	snprintf(found_fault, sizeof(found_fault), "%s", seg->fault ? seg->fault : "");
}

static bool find(const char *address)
{
	memset(&found, 0, sizeof(found));
	assert_int_equal(sc_survey_list(keep, (void *)address), 0);
	return found.name != NULL;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void test_live(void **state)
{
	struct child child;
	int rounds = 0;

	(void)state;
	assert_true(child_start(&child, receive, &rounds));
	assert_true(find(child.line));
	assert_int_equal(found.state, SC_SURVEY_LIVE);
	assert_int_equal(found.pid, child.pid);
	assert_int_equal(found.peers, 0);
	assert_int_equal(found.slots, 16);
	assert_int_equal(found.bufs, 8);
	assert_int_equal(found.bufs_max, 88);
	assert_int_equal(found.buf_size, 4096);
	assert_int_equal(found.records, 0);
	assert_true(found.bytes >= 8 * 4096 && found.age >= 0 && found.age < 100);
	assert_int_equal(child_end(&child), 0);
	assert_false(find(child.line));
}

static void test_stopped_and_dead(void **state)
{
	char address[SC_ADDR_SIZE];
	struct sc_counters now;
	struct child child;
	int rounds = 0;

	(void)state;
	assert_true(child_start(&child, receive, &rounds));
	memcpy(address, child.line, sizeof(address));
	assert_int_equal(kill(child.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
	assert_true(find(address));
	assert_int_equal(found.state, SC_SURVEY_STOPPED);
	child_kill(&child);
	if (find(address)) { /* other processes may have removed it already */
		assert_int_equal(found.state, SC_SURVEY_DEAD);
		assert_int_equal(sc_survey_counters(&found, &now), -ESRCH);
	} else {
		assert_false(alone);
	}
	assert_true(sc_reap_scan() >= 0);
	assert_false(find(address));
}

#define REFUSALS 10000 /* more than it takes until the ring overflows */

/* It sends a message that its peer has to read in its segment, and closes before the peer has heard of it. */
static void leave_unread(struct child *self, void *arg)
{
	static char large[3000];
	struct sc_peer *peer;
	struct end end;

	child_on_its_own();
	end_open(&end, NULL);
	assert_int_equal(sc_peer_get(end.ep, arg, &peer), 0);
	assert_int_equal(end_send(&end, peer, large, sizeof(large), 3, 0), 0);
	child_tell(self, sc_ep_address(end.ep));
	child_wait(self);
	end_close(&end);
	child_tell(self, "");
	child_wait(self);
}

static void test_closed(void **state)
{
	char address[SC_ADDR_SIZE], own[SC_ADDR_SIZE];
	struct child child;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	memcpy(own, sc_ep_address(end.ep), sizeof(own));
	assert_true(child_start(&child, leave_unread, own));
	memcpy(address, child.line, sizeof(address));
	(void)take_in(&child);
	assert_true(find(address));
	assert_int_equal(found.state, SC_SURVEY_CLOSED);
	ends_settle(&end, 1);
	assert_false(find(address));
	end_close(&end);
	assert_int_equal(child_end(&child), 0);
}

/* Messages of one line, until the peer takes no more. Returns how many. */
static unsigned long send_all(struct end *end, struct sc_peer *peer, unsigned long most)
{
	unsigned long sent = 0;

	for (int refused = 0; sent < most && refused < REFUSALS;) {
		bool done = !end_send(end, peer, "12345678", 8, 7, SC_SILENT);

		sent += done;
		refused = done ? 0 : refused + 1;
	}
	return sent;
}

static void take_in_all(struct child *child, struct end *end, unsigned long all)
{
	while (take_in(child) < all)
		ends_settle(end, 1);
	ends_settle(end, 1);
}

/*
 * The records of a peer that does not look: first lines, a ring that has grown, one that has overflowed, and the same
 * again from another place, once the peer has read.
 */
static void test_unread(void **state)
{
	char address[SC_ADDR_SIZE];
	struct sc_peer *peer;
	unsigned long all = 0;
	struct child child;
	int rounds = 100;
	struct end end;

	(void)state;
	assert_true(child_start(&child, receive, &rounds));
	memcpy(address, child.line, sizeof(address));
	end_open(&end, NULL);
	assert_int_equal(sc_peer_get(end.ep, address, &peer), 0);
	all += send_all(&end, peer, 20);
	assert_int_equal(all, 20);
	assert_true(find(address));
	assert_int_equal(found.peers, 1);
	assert_int_equal(found.records, 20);
	assert_int_equal(found.record_lines, 20);
	assert_int_equal(found.overflows, 0);
	assert_int_equal(take_in(&child), all);
	for (int i = 0; i < 2; i++) {
		uint32_t before;

		ends_settle(&end, 1);
		assert_true(find(address));
		assert_true(found.records < 20); /* read, but not reported yet */
		before = found.records;
		all += send_all(&end, peer, 30);
		assert_true(find(address));
		assert_int_equal(found.records, before + 30);
		all += send_all(&end, peer, 1000);
		assert_true(find(address));
		assert_true(found.records > 50 && found.records < SC_ABI_RING_LINES);
		assert_int_equal(found.overflows, 1);
		take_in_all(&child, &end, all);
		assert_true(find(address));
		assert_int_equal(found.overflows, 1); /* the reader is in a buffer, and has taken all */
		assert_int_equal(found.records, 0);
		all += send_all(&end, peer, 30); /* the first of them leads back to the ring */
		take_in_all(&child, &end, all);
		assert_true(find(address));
		assert_int_equal(found.overflows, 0);
		assert_true(found.records < SC_ABI_RING_LINES);
	}
	sc_peer_put(peer);
	end_close(&end);
	child_kill(&child);
	assert_true(sc_reap_scan() >= 0);
}

static void test_counters(void **state)
{
	char address[SC_ADDR_SIZE];
	struct sc_counters now;
	struct sc_peer *peer;
	struct child child;
	int rounds = 1;
	struct end end;

	(void)state;
	if (!cma_allowed())
		skip();
	assert_true(child_start(&child, receive, &rounds));
	memcpy(address, child.line, sizeof(address));
	end_open(&end, NULL);
	assert_int_equal(sc_peer_get(end.ep, address, &peer), 0);
	assert_int_equal(send_all(&end, peer, 5), 5);
	assert_int_equal(take_in(&child), 5);
	assert_true(find(address));
	assert_int_equal(sc_survey_counters(&found, &now), 0);
	assert_int_equal(now.rx_unexpected, 5);
	assert_int_equal(now.accepts, 1);
	assert_int_equal(now.tx_msgs, 0);
	found.cookie++;
	assert_int_equal(sc_survey_counters(&found, &now), -ESRCH);
	found.cookie--;
	found.counters_addr = 8;
	assert_true(sc_survey_counters(&found, &now) < 0);
	found.counters_size--;
	assert_int_equal(sc_survey_counters(&found, &now), -EPROTO);
	sc_peer_put(peer);
	end_close(&end);
	assert_int_equal(child_end(&child), 0);
}

/* ---- rubbish --------------------------------------------------------------------------------- */

#define RUBBISH_SLOTS 16
#define RUBBISH_ROUNDS 300

/* A file with the name of a segment, by nobody. */
static int make_file(const char *like, char address[SC_ADDR_SIZE], char path[SC_SHMFILE_PATH_MAX])
{
	struct sc_addr parts;
	int fd;

	assert_int_equal(sc_addr_parse(like, &parts), 0);
	parts.ep = 999;
	sc_addr_format(&parts, address);
	core_path(address, 0, path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	return fd;
}

/* Random words, among them those that mean something. */
static void fill_with_rubbish(void *bytes, size_t size, uint64_t *seed)
{
	static const uint64_t words[] = { 0, 1, 2, 54, 55, 56, 118, 119, SC_ABI_PLACE(119, 3), SC_ABI_PLACE(55, 200),
					  UINT64_MAX, 0x0101000100000000, 0x0201000100000000, 0x0111000100000000,
					  0x01110001ffffffff, 0x01010010ffffffff, 0x02ff00ffffffffff };
	uint64_t word;

	for (size_t at = 0; at + sizeof(word) <= size; at += sizeof(word)) {
		word = pair_random(seed);
		if (word % 4)
			word = words[word / 4 % (sizeof(words) / sizeof(words[0]))];
		memcpy((char *)bytes + at, &word, sizeof(word));
	}
}

/* A header that is good, and rubbish behind it; then rubbish in the header too. */
static void test_rubbish(void **state)
{
	static uint8_t bytes[1 << 18];
	char address[SC_ADDR_SIZE], path[SC_SHMFILE_PATH_MAX];
	struct sc_abi_header header;
	uint64_t seed = 4711;
	struct end end;
	int fd;

	(void)state;
	end_open(&end, NULL);
	fd = make_file(sc_ep_address(end.ep), address, path);
	header = end.ep->seg->header;
	memcpy(header.address, address, sizeof(header.address));
	assert_int_equal(ftruncate(fd, (off_t)header.length), 0);
	for (int i = 0; i < RUBBISH_ROUNDS; i++) {
		fill_with_rubbish(bytes, sizeof(bytes), &seed);
		if (i % 3)
			memcpy(bytes, &header, sizeof(header));
		assert_int_equal(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
		assert_true(find(i % 3 ? address : strrchr(path, '/') + 1));
		assert_true(i % 3 ? !*found_fault : *found_fault);
		assert_true(found.peers <= RUBBISH_SLOTS && found.bufs <= 88);
		assert_true(found.record_lines <= RUBBISH_SLOTS * SC_ABI_RING_LINES);
	}
	for (off_t size = 4096; size; size /= 2) {
		assert_int_equal(ftruncate(fd, size), 0);
		assert_true(find(strrchr(path, '/') + 1));
		assert_true(*found_fault);
	}
	close(fd);
	unlink(path);
	end_close(&end);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void test_command_usage(void **state)
{
	static const char *const commands[] = { "ps", "stats", "doctor", "reap", "tune" };
	char line[128], text[COMMAND_TEXT];

	(void)state;
	assert_int_equal(run_command("shmcma --help", text), 0);
	says(text, "usage: shmcma COMMAND");
	assert_int_equal(run_command("shmcma 2>/dev/null", text), 2);
	assert_int_equal(run_command("shmcma sp 2>&1", text), 2);
	says(text, "there is no command sp");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		snprintf(line, sizeof(line), "shmcma %s --help", commands[i]);
		assert_int_equal(run_command(line, text), 0);
		snprintf(line, sizeof(line), "usage: shmcma %s", commands[i]);
		says(text, line);
		snprintf(line, sizeof(line), "shmcma %s --nonsense 2>/dev/null", commands[i]);
		assert_int_equal(run_command(line, text), 2);
		snprintf(line, sizeof(line), "shmcma %s --help >/dev/full 2>/dev/null", commands[i]);
		assert_int_equal(run_command(line, text), 1);
	}
	assert_int_equal(run_command("shmcma-reap --version", text), 0);
	says(text, "shmcma-reap 0");
	assert_int_equal(run_command("shmcma stats 2>/dev/null", text), 2);
	assert_int_equal(run_command("shmcma doctor ten 2>/dev/null", text), 2);
}

/* Does the output of the command parse, if there is Python to tell? */
static bool is_json(const char *command)
{
	char line[256], text[COMMAND_TEXT];

	if (run_command("command -v python3", text))
		return true;
	snprintf(line, sizeof(line), "%s | python3 -m json.tool", command);
	return !run_command(line, text);
}

static void test_command_segments(void **state)
{
	char line[256], text[COMMAND_TEXT], address[SC_ADDR_SIZE];
	struct child child;
	int rounds = 0;

	(void)state;
	if (!alone)
		skip();
	assert_int_equal(run_command("shmcma ps 2>&1", text), 1);
	says(text, "no endpoint");
	assert_true(is_json("shmcma ps --json 2>/dev/null"));
	assert_true(child_start(&child, receive, &rounds));
	memcpy(address, child.line, sizeof(address));
	assert_int_equal(run_command("shmcma ps", text), 0);
	says(text, "live");
	says(text, address);
	assert_true(is_json("shmcma ps --json"));
	snprintf(line, sizeof(line), "shmcma stats --json %d", (int)child.pid);
	if (cma_allowed()) {
		assert_true(is_json(line));
		assert_int_equal(run_command(line, text), 0);
		says(text, "\"tx_msgs\": 0");
		snprintf(line, sizeof(line), "shmcma stats %s", address);
		assert_int_equal(run_command(line, text), 0);
		says(text, "0  peers that died\n");
	}
	child_kill(&child);
	assert_int_equal(run_command("shmcma ps", text), 0);
	says(text, "dead");
	snprintf(line, sizeof(line), "shmcma stats %s 2>&1", address);
	assert_int_equal(run_command(line, text), 1);
	says(text, "has ended");
	assert_int_equal(run_command("shmcma stats 1 2>&1", text), 1);
	says(text, "no endpoint 1");
	assert_int_equal(run_command("shmcma reap -v 2>&1", text), 0);
	says(text, "removed /dev/shm/");
	assert_int_equal(run_command("shmcma ps 2>/dev/null", text), 1);
}

/* From now on process_vm_readv() fails in this process and in its children. */
static bool forbid_cma(int err)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* The child's status shows whether the command names that cause. */
static void doctor_without_cma(struct child *self, void *arg)
{
	const int *err = arg;
	char text[COMMAND_TEXT];

	(void)self;
	child_on_its_own();
	if (!forbid_cma(*err))
		_exit(CHILD_SKIPS);
	(void)run_command("shmcma doctor", text);
	says(text, "warning  cross memory attach");
	says(text, "a seccomp filter forbids process_vm_readv");
}

/* The same of the counters of an endpoint. */
static void stats_without_cma(struct child *self, void *arg)
{
	char line[64], text[COMMAND_TEXT];
	const pid_t *pid = arg;

	(void)self;
	child_on_its_own();
	if (!forbid_cma(EPERM))
		_exit(CHILD_SKIPS);
	snprintf(line, sizeof(line), "shmcma stats %d 2>&1", (int)*pid);
	if (run_command(line, text) != 1)
		_exit(2);
	says(text, "cannot read the counters of /dev/shm/shmcma-");
	says(text, "a seccomp filter forbids process_vm_readv");
}

static void test_stats_seccomp(void **state)
{
	struct child child;
	int rounds = 0, status;

	(void)state;
	assert_true(child_start(&child, receive, &rounds));
	status = child_run(stats_without_cma, &child.pid);
	assert_int_equal(child_end(&child), 0);
	CHILD_ASSERT(status);
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
	says(text, "left-overs: ");
	assert_int_equal(run_command("FI_PROVIDER_PATH=/nowhere shmcma doctor", text), 1);
	says(text, "FI_PROVIDER_PATH=/nowhere has no libshmcma-fi.so");
	assert_int_equal(run_command("FI_PROVIDER=^shmcma shmcma doctor", text), 1);
	says(text, "FI_PROVIDER=^shmcma leaves it out");
	assert_int_equal(run_command("ulimit -n 32; shmcma doctor", text), 1);
	says(text, "fault    open files: a process may have 32");
	assert_int_equal(run_command("shmcma doctor 999999999", text), 1);
	says(text, "there is no process 999999999");
}

/* A /dev/shm that is too small for two endpoints, and one that cannot be written. */
static void doctor_without_room(struct child *self, void *arg)
{
	const bool *written = arg;
	char text[COMMAND_TEXT];

	(void)self;
	child_on_its_own();
	if (!child_private_shm("size=256k,mode=1777"))
		_exit(CHILD_SKIPS);
	if (!*written && mount("none", "/dev/shm", NULL, MS_REMOUNT | MS_RDONLY, NULL))
		_exit(CHILD_SKIPS);
	if (run_command("shmcma doctor", text) != 1)
		_exit(2);
	says(text, "fault    shared memory: ");
	says(text, *written ? "two endpoints need more" : "Read-only file system");
}

static void test_doctor_shm(void **state)
{
	(void)state;
	for (int written = 0; written < 2; written++) {
		int status = child_run(doctor_without_room, &(bool){ written });

		CHILD_ASSERT(status);
	}
}

/* A copy of the provider that lacks its end: the process that loads it crashes. */
static void test_doctor_damaged(void **state)
{
	char dir[] = "/tmp/test_survey.XXXXXX", line[512], text[COMMAND_TEXT];
	const char *path = getenv("FI_PROVIDER_PATH");

	(void)state;
	if (!path || !mkdtemp(dir))
		skip();
	snprintf(line, sizeof(line),
		 "head -c 200000 %s/libshmcma-fi.so >%s/libshmcma-fi.so; FI_PROVIDER_PATH=%s shmcma doctor", path, dir,
		 dir);
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
	snprintf(line, sizeof(line), "shmcma doctor %d", (int)child.pid);
	(void)run_command(line, text);
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

	snprintf(line, sizeof(line), "shmcma doctor %d", (int)pid);
	(void)run_command(line, text);
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
	/* First those that expect files of dead processes: an endpoint of this process starts a thread that removes them. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_live),
		cmocka_unit_test(test_stopped_and_dead),
		cmocka_unit_test(test_command_usage),
		cmocka_unit_test(test_command_segments),
		cmocka_unit_test(test_closed),
		cmocka_unit_test(test_unread),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_rubbish),
		cmocka_unit_test(test_doctor),
		cmocka_unit_test(test_doctor_seccomp),
		cmocka_unit_test(test_stats_seccomp),
		cmocka_unit_test(test_doctor_shm),
		cmocka_unit_test(test_doctor_damaged),
		cmocka_unit_test(test_doctor_elsewhere),
		cmocka_unit_test(test_doctor_process),
		cmocka_unit_test(test_doctor_user_namespace),
	};

	alone = child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
