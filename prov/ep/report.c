/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report.c: tells what an endpoint has carried, so that a user sees which provider carried the data. The log has two
 * lines: all counters, for programs, and a sentence.
 *
 * With FI_SHMCMA_STATS each endpoint adds a block to the standard error or to a file of the process: the address, then a
 * line for each counter that is not 0. A block is one write(2), so the blocks of threads do not mix.
 */
#include "ep/report.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/param.h"
#include "base/provider.h"

#define BLOCK_MAX (SC_ADDR_SIZE + SC_COUNTERS * 90)

static void log_counters(const struct sc_counters *counters)
{
	char text[SC_COUNTERS * 40];
	size_t used = 0;

	for (size_t i = 0; i < SC_COUNTERS; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, " %s=%" PRIu64,
					 sc_counter_names[i].name,
					 sc_counter_value(counters, &sc_counter_names[i]));
	shmcma_info(FI_LOG_EP_CTRL, "shmcma: counters:%s\n", text);
}

/* Logs the counters that most users ask for. One-sided operations and deaths are rare: the line names them if there are any. */
static void log_words(const struct sc_counters *counters)
{
	char sent[SC_SIZE_TEXT], received[SC_SIZE_TEXT], onesided[64] = "", deaths[64] = "";

	if (counters->rma_ops)
		snprintf(onesided, sizeof(onesided), "; began %" PRIu64 " one-sided operations",
			 counters->rma_ops);
	if (counters->deaths)
		snprintf(deaths, sizeof(deaths), "; peers that died: %" PRIu64, counters->deaths);
	shmcma_info(FI_LOG_EP_CTRL,
		    "shmcma: sent %" PRIu64 " messages (%" PRIu64 " in records, %" PRIu64
		    " in bounce buffers, %" PRIu64 " by rendezvous), %s; received %" PRIu64
		    " messages, %s%s%s\n",
		    counters->tx_msgs, counters->tx_inline, counters->tx_bounce, counters->tx_rdv,
		    sc_size_text(counters->tx_bytes, sent), counters->rx_msgs,
		    sc_size_text(counters->rx_bytes, received), onesided, deaths);
}

/* Returns the bytes of the block. */
static size_t write_block(char block[BLOCK_MAX], const struct sc_ep *ep)
{
	const struct sc_counters *counters = sc_ep_counters(ep);
	size_t used = (size_t)snprintf(block, BLOCK_MAX, "%s\n", sc_ep_address(ep));

	for (size_t i = 0; i < SC_COUNTERS; i++) {
		uint64_t value = sc_counter_value(counters, &sc_counter_names[i]);

		if (value)
			used += (size_t)snprintf(block + used, BLOCK_MAX - used, "%16" PRIu64 "  %s\n",
						 value, sc_counter_names[i].words);
	}
	return used;
}

/* Returns a descriptor of the file of this process, PATH.PID; -1 with errno. */
static int open_file(void)
{
	char path[4096];
	int len = snprintf(path, sizeof(path), "%s.%d", shmcma_env.stats, (int)getpid());

	if (len >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

static void warn_once(int err)
{
	static atomic_bool warned;

	if (!atomic_exchange(&warned, true))
		shmcma_warn(FI_LOG_EP_CTRL, "FI_SHMCMA_STATS=%s: cannot write to %s.%d: %s\n",
			    shmcma_env.stats, shmcma_env.stats, (int)getpid(), strerror(err));
}

void shmcma_report(const struct sc_ep *ep)
{
	char block[BLOCK_MAX];
	size_t size;
	int fd;

	log_counters(sc_ep_counters(ep));
	log_words(sc_ep_counters(ep));
	if (!shmcma_env.stats)
		return;
	size = write_block(block, ep);
	if (!strcmp(shmcma_env.stats, "stderr")) {
		(void)!write(STDERR_FILENO, block, size);
		return;
	}
	fd = open_file();
	if (fd < 0 || write(fd, block, size) != (ssize_t)size)
		warn_once(errno);
	if (fd >= 0)
		close(fd);
}
