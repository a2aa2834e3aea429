/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * top.c: shmcma top shows the endpoints of this user again and again, with what they have carried per second between
 * two looks. shmcma(1).
 *
 * It only reads: see src/proc/survey.c. On a terminal (util/screen.c) it draws over the former picture and takes keys;
 * else it prints one table behind the other.
 */
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <shmcma/core.h>
#include "json.h"
#include "program.h"
#include "screen.h"
#include "traffic.h"

/* An endpoint, as one look has found it. */
struct entry {
	char file[NAME_MAX + 1];
	struct sc_survey_seg seg;    /* without its texts `name` and `fault` */
	struct sc_counters counters; /* `counted`: they could be read */
	bool counted;
	struct sc_counters rates; /* per second; `rated`: there was an earlier look */
	bool rated;
	char lent[TRAFFIC_TEXT]; /* bounce buffers; "-": not known */
};

struct look {
	struct entry *entries;
	size_t count, room;
	double time; /* seconds */
};

/* The number by which the endpoints are sorted, the largest first. The first letter of the name is the key. */
struct order {
	const char *name;
	uint64_t (*value)(const struct entry *entry);
};

static uint64_t pid_of(const struct entry *entry)
{
	return UINT64_MAX - (uint64_t)entry->seg.pid; /* the smallest first */
}

static uint64_t sent_of(const struct entry *entry)
{
	return entry->rates.tx_msgs;
}

static uint64_t received_of(const struct entry *entry)
{
	return entry->rates.rx_msgs;
}

static uint64_t bytes_of(const struct entry *entry)
{
	return entry->rates.tx_bytes + entry->rates.rx_bytes;
}

static uint64_t onesided_of(const struct entry *entry)
{
	return entry->rates.rma_ops;
}

static uint64_t unread_of(const struct entry *entry)
{
	return entry->seg.records;
}

static uint64_t memory_of(const struct entry *entry)
{
	return entry->seg.bytes;
}

static const struct order orders[] = {
	{ "pid", pid_of },	 { "sent", sent_of },	      { "received", received_of },
	{ "bytes", bytes_of },	 { "onesided", onesided_of }, { "unread", unread_of },
	{ "memory", memory_of },
};
#define ORDERS (sizeof(orders) / sizeof(orders[0]))

static const struct order *order = &orders[0];
static double interval = 2;
static int count; /* of pictures; 0: without end */

/* ---- one look -------------------------------------------------------------------------------- */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static struct entry *add_entry(struct look *look)
{
	size_t room = look->room ? 2 * look->room : 16;
	struct entry *entries = look->entries;

	if (look->count == look->room) {
		entries = realloc(entries, room * sizeof(*entries));
		if (!entries)
			return NULL;
		look->entries = entries;
		look->room = room;
	}
	memset(&entries[look->count], 0, sizeof(*entries));
	return &entries[look->count++];
}

static void note(const struct sc_survey_seg *seg, void *arg)
{
	struct entry *entry = seg->fault ? NULL : add_entry(arg);

	if (!entry)
		return;
	snprintf(entry->file, sizeof(entry->file), "%s", seg->name);
	entry->counted = !sc_survey_counters(seg, &entry->counters);
	traffic_lent(seg, entry->lent);
	entry->seg = *seg;
	entry->seg.name = NULL;
}

static const struct entry *find_entry(const struct look *look, const char *file)
{
	for (size_t i = 0; i < look->count; i++)
		if (!strcmp(look->entries[i].file, file))
			return &look->entries[i];
	return NULL;
}

/* The rates of each counter are in a structure of counters too. */
static void rate(struct entry *entry, const struct entry *former, double seconds)
{
	for (size_t i = 0; i < SC_COUNTERS; i++) {
		const struct sc_counter *counter = &sc_counter_names[i];
		uint64_t value = sc_counter_value(&entry->counters, counter);
		uint64_t before = sc_counter_value(&former->counters, counter);
		uint64_t rate = value > before ? (uint64_t)((double)(value - before) / seconds + 0.5) : 0;

		memcpy((char *)&entry->rates + counter->offset, &rate, sizeof(rate));
	}
	entry->rated = true;
}

static int compare(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	uint64_t one = order->value(a), other = order->value(b);

	if (one != other)
		return one > other ? -1 : 1;
	return strcmp(a->file, b->file);
}

static int take_look(struct look *look, const struct look *former)
{
	int err;

	look->count = 0;
	err = sc_survey_list(note, look);
	look->time = now();
	for (size_t i = 0; i < look->count; i++) {
		struct entry *entry = &look->entries[i];
		const struct entry *before = find_entry(former, entry->file);

		if (before && before->counted && entry->counted && look->time > former->time)
			rate(entry, before, look->time - former->time);
	}
	if (look->count)
		qsort(look->entries, look->count, sizeof(look->entries[0]), compare);
	return err;
}

/* ---- pictures -------------------------------------------------------------------------------- */

#define WIDTH_MAX 512

/* A rate of the entry; "-": not known. */
static const char *rate_text(const struct entry *entry, uint64_t rate, char text[TRAFFIC_TEXT])
{
	if (!entry->rated)
		return "-";
	return traffic_number(rate, text);
}

static void draw_entry(const struct entry *entry)
{
	char sent[TRAFFIC_TEXT], out[TRAFFIC_TEXT], received[TRAFFIC_TEXT], in[TRAFFIC_TEXT],
		rendezvous[TRAFFIC_TEXT], onesided[TRAFFIC_TEXT];
	char user[PROGRAM_MAX], program[PROGRAM_MAX], age[PROGRAM_AGE], line[WIDTH_MAX];

	program_user(entry->seg.uid, user);
	program_name(entry->seg.pid, program);
	program_age(entry->seg.age, age);
	snprintf(line, sizeof(line),
		 "%7d  %-8.8s  %-12.12s  %-7s  %6s  %5" PRIu32 "  %5s  %5" PRIu32 "%s %3" PRIu32
		 "%%  %6s  %6s  %6s  %6s  %6s  %6s  %7" PRIu64 "  %s",
		 entry->seg.pid, user, program, program_state(entry->seg.state), age, entry->seg.peers,
		 entry->lent, entry->seg.records, entry->seg.overflows ? "+" : " ",
		 traffic_ring_percent(&entry->seg), rate_text(entry, entry->rates.tx_msgs, sent),
		 rate_text(entry, entry->rates.tx_bytes, out),
		 rate_text(entry, entry->rates.rx_msgs, received),
		 rate_text(entry, entry->rates.rx_bytes, in),
		 rate_text(entry, traffic_rendezvous(&entry->rates), rendezvous),
		 rate_text(entry, entry->rates.rma_ops, onesided), entry->seg.bytes / 1024,
		 entry->seg.address);
	screen_line(line);
}

static void draw(const struct look *look, double seconds)
{
	char line[WIDTH_MAX];

	screen_begin();
	if (screen_is_used()) {
		snprintf(line, sizeof(line),
			 "%zu endpoints, per second over %.1f s, by %s;  sort: %s  q quit", look->count,
			 seconds, order->name, "p s r b o u m");
		screen_line(line);
	}
	snprintf(line, sizeof(line),
		 "%7s  %-8s  %-12s  %-7s  %6s  %5s  %5s  %5s %5s  %6s  %6s  %6s  %6s  %6s  %6s  %7s  %s",
		 "PID", "USER", "PROGRAM", "STATE", "AGE", "PEERS", "LENT", "UNRD", "RING", "SENT/s",
		 "BYTE/s", "RECV/s", "BYTE/s", "RDVB/s", "RMA/s", "KIB", "ADDRESS");
	screen_line(line);
	for (size_t i = 0; i < look->count; i++)
		draw_entry(&look->entries[i]);
	screen_end();
}

static void draw_json(const struct look *look, double seconds)
{
	json_open_object(NULL);
	json_real("seconds", seconds);
	json_open_array("endpoints");
	for (size_t i = 0; i < look->count; i++) {
		struct entry *entry = &look->entries[i];

		entry->seg.name = entry->file;
		json_open_object(NULL);
		program_json(&entry->seg);
		json_number("age_seconds", entry->seg.age);
		json_count("peers", entry->seg.peers);
		json_count("unread_records", entry->seg.records);
		json_count("ring_percent", traffic_ring_percent(&entry->seg));
		json_count("memory_bytes", entry->seg.bytes);
		if (entry->counted)
			program_json_counters("counters", &entry->counters);
		if (entry->rated)
			program_json_counters("per_second", &entry->rates);
		json_close_object();
	}
	json_close_array();
	json_close_object();
}

/* ---- again and again ------------------------------------------------------------------------- */

static bool set_order(const char *name, size_t length)
{
	for (size_t i = 0; i < ORDERS; i++)
		if (!strncmp(orders[i].name, name, length)) {
			order = &orders[i];
			return true;
		}
	return false;
}

/* Waits until the next look is due. False: the user wants no more. */
static bool rest(void)
{
	double end = now() + interval, left;

	while ((left = end - now()) > 0) {
		int key = screen_wait(left);

		if (key == SCREEN_QUIT || key == 'q')
			return false;
		if (key == SCREEN_REDRAW || (key > 0 && set_order(&(char){ (char)key }, 1)))
			return true;
	}
	return true;
}

/* Without a screen each picture has rates, so the first look is not shown. Returns 0 or -errno. */
static int watch(void)
{
	struct look looks[2] = { { 0 } };
	int err, turn = 0, pictures = 0;

	err = take_look(&looks[0], &looks[1]);
	if (screen_is_used() && !err)
		draw(&looks[0], 0);
	while (!err && rest()) {
		struct look *former = &looks[turn], *look = &looks[turn ^= 1];

		err = take_look(look, former);
		if (err)
			break;
		(command_json ? draw_json : draw)(look, look->time - former->time);
		if (ferror(stdout) || ++pictures == count)
			break;
	}
	free(looks[0].entries);
	free(looks[1].entries);
	return err;
}

static bool take(int letter, const char *argument)
{
	switch (letter) {
	case '1':
		count = 1;
		return true;
	case 'n':
		return command_count(argument, INT_MAX, &count);
	case 'd':
		return command_number(argument, 0.05, 86400, &interval);
	default:
		if (*argument && set_order(argument, strlen(argument)))
			return true;
		fprintf(stderr, "%s: there is no column %s\n", command_name, argument);
		return false;
	}
}

static int run(int argc, char **argv)
{
	int err, signal;

	(void)argv;
	if (argc)
		return command_misused();
	if (command_json) {
		count = count > 0 ? count : 1;
		json_open_object(NULL);
		json_open_array("looks");
	} else if (!count) {
		screen_init();
	}
	err = watch();
	signal = screen_fini();
	if (command_json) {
		json_close_array();
		json_close_object();
	}
	if (err)
		command_lacks_shm(-err);
	if (signal)
		raise(signal); /* its action is the default: the process ends */
	return command_end(err ? COMMAND_FAULT : COMMAND_OK);
}

static const struct command_option options[] = {
	{ "once", '1', true, NULL, "show one table and end" },
	{ "count", 'n', true, "N", "show N tables and end" },
	{ "interval", 'd', true, "SECONDS", "time between two looks; 2" },
	{ "sort", 's', true, "COLUMN", "pid, sent, received, bytes, onesided, unread or memory" },
	COMMAND_JSON,
	{ 0 },
};

const struct command top_command = {
	.name = "top",
	.full = "shmcma top",
	.arguments = "",
	.words = "show the endpoints again and again, and what they carry per second",
	.about = "Shows the endpoints of this user, and the messages, bytes and one-sided operations of "
		 "each, per second\n"
		 "between two looks. It changes nothing.\n"
		 "Keys: p, s, r, b, o, u, m sort by the column of that letter; q ends the command.",
	.status = "0; 1 if /dev/shm cannot be read",
	.options = options,
	.take = take,
	.run = run,
};
