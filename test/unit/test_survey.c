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

#include <pwd.h>
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
	assert_int_equal(found.uid, geteuid());
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
	uint32_t lent;
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
	assert_int_equal(sc_survey_lent(&found, &lent), 0);
	assert_int_equal(lent, 0);
	found.cookie++;
	assert_int_equal(sc_survey_counters(&found, &now), -ESRCH);
	assert_int_equal(sc_survey_lent(&found, &lent), -ESRCH);
	found.cookie--;
	found.bufs = 1; /* more came meanwhile */
	assert_int_equal(sc_survey_lent(&found, &lent), 0);
	assert_int_equal(lent, 0);
	found.free_bufs_offset = 0;
	assert_int_equal(sc_survey_lent(&found, &lent), -EPROTO);
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
	struct sc_ep_attr attr = end_attr();
	uint64_t seed = 4711;
	struct end end;
	int fd;

	(void)state;
	sc_process_fini(); /* the thread, which scans: it would remove the file, which nobody has locked */
	attr.config.scan = false;
	end_open(&end, &attr);
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
	static const char *const commands[] = { "ps",  "top",	"stats", "doctor",
						"run", "bench", "reap",	 "tune" };
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

/* Arguments that are no number of the range, or that an int does not hold: the command says which range it is. */
static void test_command_numbers(void **state)
{
	static const char *const refused[][2] = {
		/* the command ends at a pipe that closes, should it go on for ever */
		{ "top -n 2.5 -d 0.05", "top: 2.5 is not a whole number from 1 to 2147483647" },
		{ "top -n 0", "top: 0 is not a whole number from 1 to" },
		{ "top -1 -d 0", "top: 0 is not a number from 0.05 to 86400" },
		{ "top -1 -s colour", "top: there is no column colour" },
		{ "bench -t nan", "bench: nan is not a number from 1 to 3600" },
		{ "doctor -n 1025", "doctor: 1025 is not a whole number from 1 to 1024" },
		{ "doctor -n 2.5", "doctor: 2.5 is not a whole number from 1 to 1024" },
		{ "doctor -n ''", "doctor:  is not a whole number" },
	};
	char line[128], text[COMMAND_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		snprintf(line, sizeof(line), "{ shmcma %s 2>&1; echo status $?; } | head -n 4",
			 refused[i][0]);
		(void)run_command(line, text);
		says(text, refused[i][1]);
		says(text, "status 2\n");
	}
}

/* A number that becomes a pid only when its upper bits are cut off. */
static void test_command_pids(void **state)
{
	char line[128], text[COMMAND_TEXT];
	long long number = 1LL << 32;
	struct child child;
	int rounds = 0;

	(void)state;
	assert_true(child_start(&child, receive, &rounds));
	number += child.pid;
	snprintf(line, sizeof(line), "shmcma stats %lld 2>&1", number);
	assert_int_equal(run_command(line, text), 2);
	snprintf(line, sizeof(line), "shmcma stats: %lld is not a whole number from 1 to", number);
	says(text, line);
	snprintf(line, sizeof(line), "LD_LIBRARY_PATH=/nowhere shmcma doctor %lld 2>&1", number);
	assert_int_equal(run_command(line, text), 2);
	snprintf(line, sizeof(line), "shmcma doctor: %lld is not a whole number from 1 to", number);
	says(text, line);
	child_kill(&child);
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
	assert_true(is_json("shmcma reap --list --json"));
	assert_int_equal(run_command("shmcma reap --list --json", text), 0);
	says(text, "\"state\": \"dead\"");
	assert_int_equal(run_command("shmcma reap -v 2>&1", text), 0);
	says(text, "removed /dev/shm/");
	assert_true(is_json("shmcma reap --list --json"));
	assert_int_equal(run_command("shmcma ps 2>/dev/null", text), 1);
}

/* Returns the line of that endpoint. */
static const char *line_of(char *text, const char *address)
{
	char *end = strstr(text, address), *line;

	assert_non_null(end);
	*end = '\0';
	line = strrchr(text, '\n');
	assert_non_null(line);
	return line + 1;
}

static void be_named(struct child *self, void *name)
{
	struct end end;

	prctl(PR_SET_NAME, name);
	end_open(&end, NULL);
	child_tell(self, sc_ep_address(end.ep));
	child_wait(self);
	end_close(&end);
}

/* The name of a program is one word of the line, whatever the program is called. */
static void test_command_program(void **state)
{
	static const char *const names[][2] = { { "", "-" }, { "  ", "??" }, { "a b", "a?b" } };
	char text[COMMAND_TEXT], program[32], state_of[32];
	struct child child;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_true(child_start(&child, be_named, (void *)names[i][0]));
		assert_int_equal(run_command("shmcma ps", text), 0);
		assert_int_equal(sscanf(line_of(text, child.line), "%*d %*s %31s %31s", program, state_of),
				 2);
		assert_string_equal(program, names[i][1]);
		assert_string_equal(state_of, "live");
		assert_int_equal(child_end(&child), 0);
	}
}

/* A file that is not opened: nobody knows whether it has an owner. */
static void test_command_unopened(void **state)
{
	char text[COMMAND_TEXT], path[SC_SHMFILE_PATH_MAX], address[SC_ADDR_SIZE];
	struct sc_addr parts;
	struct child child;
	int rounds = 0;

	(void)state;
	assert_true(child_start(&child, receive, &rounds));
	assert_int_equal(sc_addr_parse(child.line, &parts), 0);
	parts.ep = 999;
	sc_addr_format(&parts, address);
	core_path(address, 0, path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_true(find(strrchr(path, '/') + 1));
	assert_int_equal(found.state, SC_SURVEY_UNKNOWN);
	(void)run_command("shmcma ps", text);
	says(line_of(text, path), "  unknown  ");
	(void)run_command("shmcma ps", text);
	says(text, "it is not a regular file of this user with mode 0600\n");
	unlink(path);
	child_kill(&child);
}

/* The name of this user, or its number, as the command shows it. */
static void user_name(char name[64])
{
	const struct passwd *user = getpwuid(geteuid());

	if (user)
		snprintf(name, 64, "%s", user->pw_name);
	else
		snprintf(name, 64, "%u", geteuid());
}

/* Five messages of a line and one of a buffer, which the peer has not taken in yet, in the columns of both ends. */
static void check_columns(pid_t receiver, const char *to, const char *from, uint32_t lent)
{
	char text[COMMAND_TEXT], name[64], cut[9], user[9], on_loan[8], ways[6][8];
	unsigned int peers, slots, bufs, bufs_max, unread, ring;
	int pid;

	assert_int_equal(run_command("shmcma ps", text), 0);
	assert_int_equal(sscanf(line_of(text, to), "%d %8s %*s %*s %*s %u/%u %*s %u/%u %u %u%% %7s", &pid,
				user, &peers, &slots, &bufs, &bufs_max, &unread, &ring, ways[0]),
			 9);
	assert_int_equal(pid, receiver);
	user_name(name);
	snprintf(cut, sizeof(cut), "%.8s", name); /* as wide as the column */
	assert_string_equal(user, cut);
	assert_true(peers == 1 && slots == 16 && bufs_max == 88 && unread == 6);
	assert_int_equal(ring, 6 * 100 / SC_ABI_RING_LINES);
	assert_string_equal(ways[0], cma_allowed() ? "0" : "-");
	assert_int_equal(run_command("shmcma ps", text), 0);
	assert_int_equal(sscanf(line_of(text, from),
				"%d %*s %*s %*s %*s %*u/%*u %7s %*u/%*u %*u %*u%% %7s %7s %7s %7s %7s %7s",
				&pid, on_loan, ways[0], ways[1], ways[2], ways[3], ways[4], ways[5]),
			 8);
	assert_int_equal(pid, getpid());
	if (!cma_allowed())
		return;
	assert_int_equal(atoi(on_loan), lent);
	assert_string_equal(ways[0], "5");
	assert_string_equal(ways[1], "1");
	assert_string_equal(ways[2], "0");
	assert_string_equal(ways[3], "3040");
	assert_string_equal(ways[4], "0");
	assert_string_equal(ways[5], "0");
}

static void test_command_columns(void **state)
{
	static const char large[3000];
	char address[SC_ADDR_SIZE], text[COMMAND_TEXT], name[64], part[96];
	struct sc_peer *peer;
	struct child child;
	int rounds = 0;
	struct end end;
	uint32_t lent;

	(void)state;
	assert_true(child_start(&child, receive, &rounds));
	memcpy(address, child.line, sizeof(address));
	end_open(&end, NULL);
	assert_int_equal(sc_peer_get(end.ep, address, &peer), 0);
	assert_int_equal(send_all(&end, peer, 5), 5);
	assert_int_equal(end_send(&end, peer, (char *)large, sizeof(large), 3, 0), 0);
	lent = end.ep->pool.have - end.ep->pool.free_count;
	assert_true(lent > 0);
	check_columns(child.pid, address, sc_ep_address(end.ep), lent);
	assert_int_equal(run_command("shmcma ps --json", text), 0);
	snprintf(part, sizeof(part), "\"uid\": %u,", (unsigned int)geteuid());
	says(text, part);
	user_name(name);
	snprintf(part, sizeof(part), "\"user\": \"%s\",", name);
	says(text, part);
	says(text, "\"ring_percent\": 5,");
	snprintf(part, sizeof(part), "\"buffers_lent\": %u,", lent);
	if (cma_allowed()) {
		says(text, "\"tx_inline\": 5,");
		says(text, part);
	}
	sc_peer_put(peer);
	end_close(&end);
	child_kill(&child);
}

/* The child's status shows whether the command names the cause. */
static void stats_without_cma(struct child *self, void *arg)
{
	char line[64], text[COMMAND_TEXT];
	const pid_t *pid = arg;

	(void)self;
	child_on_its_own();
	if (!forbid_cma(EPERM, 0))
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
		cmocka_unit_test(test_stats_seccomp),
		cmocka_unit_test(test_command_columns),
		cmocka_unit_test(test_command_numbers),
		cmocka_unit_test(test_command_pids),
		cmocka_unit_test(test_command_unopened),
		cmocka_unit_test(test_command_program),
	};

	alone = child_private_shm("size=64m,mode=1777");
	return cmocka_run_group_tests(tests, pair_setup, NULL);
}
