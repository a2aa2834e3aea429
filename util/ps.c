/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ps.c: shmcma ps shows the segments of this user on this machine. shmcma(1).
 *
 * It only reads: see src/proc/survey.c.
 */
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <shmcma/core.h>
#include "json.h"
#include "program.h"
#include "traffic.h"

static unsigned int shown;

static void show_json(const struct sc_survey_seg *seg, void *arg)
{
	struct sc_counters counters;
	char user[PROGRAM_MAX];
	uint32_t lent;

	(void)arg;
	shown++;
	program_user(seg->uid, user);
	json_open_object(NULL);
	program_json(seg);
	json_string("user", user);
	json_number("uid", seg->uid == UINT32_MAX ? -1 : (int64_t)seg->uid);
	json_string("fault", seg->fault);
	json_number("age_seconds", seg->age);
	json_count("peers", seg->peers);
	json_count("slots", seg->slots);
	json_count("buffers", seg->bufs);
	if (!sc_survey_lent(seg, &lent))
		json_count("buffers_lent", lent);
	json_count("buffers_max", seg->bufs_max);
	json_count("buffer_bytes", seg->buf_size);
	json_count("unread_records", seg->records);
	json_count("unread_lines", seg->record_lines);
	json_count("ring_lines", seg->ring_lines);
	json_count("ring_percent", traffic_ring_percent(seg));
	json_count("overflowed_rings", seg->overflows);
	json_count("memory_bytes", seg->bytes);
	if (!sc_survey_counters(seg, &counters))
		program_json_counters("counters", &counters);
	json_close_object();
}

/* The columns of messages sent by way, and of bytes. "-": the counters cannot be read. */
#define WAYS 6
static void format_ways(const struct sc_survey_seg *seg, char texts[WAYS][TRAFFIC_TEXT])
{
	struct sc_counters counters;

	if (sc_survey_counters(seg, &counters)) {
		for (int i = 0; i < WAYS; i++)
			strcpy(texts[i], "-");
		return;
	}
	traffic_number(counters.tx_inline, texts[0]);
	traffic_number(counters.tx_bounce, texts[1]);
	traffic_number(counters.tx_rdv, texts[2]);
	traffic_number(counters.tx_bytes, texts[3]);
	traffic_number(counters.rx_bytes, texts[4]);
	traffic_number(traffic_rendezvous(&counters), texts[5]);
}

#define HEAD "%7s  %-8s  %-12s  %-7s  %6s  %9s  %5s  %9s  %7s %4s  %6s  %6s  %6s  %6s  %6s  %6s  %8s  %s\n"
#define LINE                                                                                              \
	"%9s  %5s  %9s  %6" PRIu32 "%s %3" PRIu32 "%%  %6s  %6s  %6s  %6s  %6s  %6s  %8" PRIu64 "  %s\n"

/* A + behind the number of records: more are in bounce buffers. */
static void show_segment(const struct sc_survey_seg *seg)
{
	char ways[WAYS][TRAFFIC_TEXT], peers[24], bufs[24], lent[TRAFFIC_TEXT];

	format_ways(seg, ways);
	snprintf(peers, sizeof(peers), "%" PRIu32 "/%" PRIu32, seg->peers, seg->slots);
	snprintf(bufs, sizeof(bufs), "%" PRIu32 "/%" PRIu32, seg->bufs, seg->bufs_max);
	printf(LINE, peers, traffic_lent(seg, lent), bufs, seg->records, seg->overflows ? "+" : " ",
	       traffic_ring_percent(seg), ways[0], ways[1], ways[2], ways[3], ways[4], ways[5],
	       seg->bytes / 1024, seg->address);
}

static void show_line(const struct sc_survey_seg *seg, void *arg)
{
	char user[PROGRAM_MAX], program[PROGRAM_MAX], age[PROGRAM_AGE];

	(void)arg;
	if (!shown++)
		printf(HEAD, "PID", "USER", "PROGRAM", "STATE", "AGE", "PEERS", "LENT", "BUFFERS",
		       "UNREAD", "RING", "INLINE", "BOUNCE", "RDV", "SENT-B", "RECV-B", "RDV-B", "KIB",
		       "ADDRESS");
	program_user(seg->uid, user);
	program_name(seg->pid, program);
	program_age(seg->age, age);
	printf("%7d  %-8.8s  %-12.12s  %-7s  %6s  ", seg->pid, user, program, program_state(seg->state),
	       age);
	if (seg->fault)
		printf("/dev/shm/%s, %" PRIu64 " KiB: %s\n", seg->name, seg->bytes / 1024, seg->fault);
	else
		show_segment(seg);
}

static int run(int argc, char **argv)
{
	int err;

	(void)argv;
	if (argc)
		return command_misused();
	if (command_json) {
		json_open_object(NULL);
		json_open_array("endpoints");
	}
	err = sc_survey_list(command_json ? show_json : show_line, NULL);
	if (command_json) {
		json_close_array();
		json_close_object();
	}
	if (err)
		command_lacks_shm(-err);
	else if (!shown)
		fprintf(stderr, "%s: this user has no endpoint on this machine\n", command_name);
	return command_end(shown ? COMMAND_OK : COMMAND_FAULT);
}

static const struct command_option options[] = { COMMAND_JSON, { 0 } };

const struct command ps_command = {
	.name = "ps",
	.full = "shmcma ps",
	.arguments = "",
	.words = "show the endpoints: their processes, peers, memory, unread records and traffic",
	.about = "Shows the endpoints of this user on this machine, one a line, and changes nothing.",
	.status = "0; 1 if there is no endpoint, or /dev/shm cannot be read",
	.options = options,
	.run = run,
};
