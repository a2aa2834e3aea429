/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * survey.c: describes the segments of this user for the command shmcma, and reads the counters of their owners.
 *
 * It reads and changes nothing: it opens a segment, asks for the holder of the life lock, and reads by pread(2), which
 * gives no memory to the holes of a file and cannot fault. Each word is read once, into private memory, and checked
 * before use; a word that a peer changes meanwhile gives another number, nothing worse. The counters are private memory
 * of the owner, read by process_vm_readv(2) together with the owner's cookie (cma.c): so they belong to that process.
 *
 * Any thread. It describes no endpoint of the calling process: sc_otherfile_open() refuses own files.
 * If an owner dies at any step, its segment is described as of a dead process, or left out once its name has gone.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include <shmcma/core.h>
#include "base/fault.h"
#include "os/addr.h"
#include "os/cma.h"
#include "os/host.h"
#include "os/lifelock.h"
#include "os/otherfile.h"
#include "proc/owner.h"
#include "proc/reap.h"
#include "shm/header.h"

/* ---- rings ----------------------------------------------------------------------------------- */

/* A position in a ring, of a reader that takes nothing. */
struct place {
	uint32_t lines, index, lap;
};

/* Finds the line number `head`. False: the reader is not in the ring, or has never been at a place like this. */
static bool find_place(const struct sc_abi_consumer *consumer, struct place *place)
{
	uint32_t lines = consumer->place ? SC_ABI_PLACE_LINES(consumer->place) : SC_ABI_RING_FIRST;
	uint32_t base = SC_ABI_PLACE_BASE(consumer->place), at;

	if ((lines != SC_ABI_RING_FIRST && lines != SC_ABI_RING_LINES) || base >= 2 * lines)
		return false;
	at = (uint32_t)((consumer->head % (2 * lines) + 2 * lines - base) % (2 * lines));
	*place = (struct place){ lines, at % lines, 1 + at / lines };
	return true;
}

static void advance(struct place *place, uint32_t lines)
{
	place->index += lines;
	if (place->index >= place->lines) {
		place->index -= place->lines;
		place->lap = 3 - place->lap;
	}
}

/* Counts the records from the reader's head on, at most as many as the ring has lines. */
static void count_records(const struct sc_abi_slot *slot, struct sc_survey_seg *seg)
{
	struct place place;
	uint32_t seen = 0;

	if (!find_place(&slot->consumer, &place)) {
		seg->overflows += slot->consumer.place == SC_ABI_PLACE_BUFFER;
		return;
	}
	while (seen < place.lines) {
		uint64_t ctl = slot->ring[place.index].ctl;
		uint32_t lines = (uint8_t)(ctl >> SC_ABI_CTL_LINES_SHIFT);
		bool leads_on = (uint8_t)(ctl >> SC_ABI_CTL_KIND_SHIFT) == SC_ABI_CONTINUE;

		if (ctl >> SC_ABI_CTL_LAP_SHIFT != place.lap || !lines || lines > SC_ABI_RECORD_LINES)
			break;
		seen += lines;
		seg->records += !leads_on;
		if (leads_on && (uint32_t)ctl != SC_ABI_IN_RING) {
			seg->overflows++;
			break;
		}
		if (leads_on)
			place.lines = SC_ABI_RING_LINES;
		advance(&place, lines);
	}
	seg->record_lines += seen < SC_ABI_RING_LINES ? seen : SC_ABI_RING_LINES;
}

static void survey_slot(int fd, const struct sc_abi_header *header, uint32_t index, struct sc_survey_seg *seg)
{
	off_t at = (off_t)(header->slots_offset + (uint64_t)index * SC_ABI_SLOT_SIZE);
	struct sc_abi_slot slot;

	if (SC_TRY("survey.slot", pread(fd, &slot, sizeof(slot), at)) == (ssize_t)sizeof(slot))
		count_records(&slot, seg);
}

/* ---- segments -------------------------------------------------------------------------------- */

static void survey_claims(int fd, const struct sc_abi_header *header, struct sc_survey_seg *seg)
{
	uint64_t claims[SC_ABI_SLOTS_MAX];
	size_t size = header->slot_count * sizeof(claims[0]);

	if (SC_TRY("survey.claims", pread(fd, claims, size, (off_t)header->claims_offset)) != (ssize_t)size)
		return;
	for (uint32_t i = 0; i < header->slot_count; i++) {
		uint64_t state = claims[i] & SC_ABI_CLAIM_STATE;

		if (state == SC_ABI_PUBLISHED && claims[i] & SC_ABI_CLAIM_REFUSED)
			continue;
		seg->peers += state == SC_ABI_PUBLISHED;
		if (state == SC_ABI_PUBLISHED || state == SC_ABI_DEPARTED)
			survey_slot(fd, header, i, seg);
	}
}

/* Returns the seconds since the owner's process began; -1: not known. */
static int64_t age_of(const struct sc_abi_owner *owner)
{
	const struct sc_host *host;
	struct timespec now;
	uint64_t began = owner->start_time / (uint64_t)sysconf(_SC_CLK_TCK);

	if (sc_host_get(&host) || memcmp(owner->boot_id, host->boot_id, sizeof(host->boot_id)) ||
	    clock_gettime(CLOCK_BOOTTIME, &now) || began > (uint64_t)now.tv_sec)
		return -1;
	return (int64_t)((uint64_t)now.tv_sec - began);
}

/* Tells whether a pid of the owner names the same process here. */
static bool is_near(const struct sc_abi_owner *owner)
{
	const struct sc_host *host;

	return !sc_host_get(&host) && owner->pid_ns == host->pid_ns;
}

static void survey_header(const struct sc_abi_header *header, struct sc_survey_seg *seg)
{
	memcpy(seg->address, header->address, sizeof(seg->address));
	seg->age = age_of(&header->owner);
	seg->slots = header->slot_count;
	seg->bufs_max = header->buf_count;
	seg->buf_size = header->buf_size;
	seg->ring_lines = header->ring_lines;
	seg->tid = is_near(&header->owner) ? header->owner.cma_tid : 0;
	if (!seg->pid && is_near(&header->owner))
		seg->pid = header->owner.pid;
	seg->cookie_addr = header->owner.cookie_addr;
	seg->cookie = header->owner.cookie;
	seg->counters_addr = header->counters_addr;
	seg->counters_size = header->counters_size;
	seg->free_bufs_offset = header->free_bufs_offset;
}

static const char *read_header(int fd, const char *name, struct sc_abi_header *header)
{
	const struct sc_host *host;
	char addr[SC_ADDR_SIZE];
	struct sc_addr parts;
	struct stat st;

	if (sc_host_get(&host) || sc_addr_parse_file(name, &parts))
		return "the identity of this machine is not known";
	parts.host = host->id;
	sc_addr_format(&parts, addr);
	if (SC_TRY("survey.stat", fstat(fd, &st)) ||
	    SC_TRY("survey.header", pread(fd, header, sizeof(*header), 0)) != (ssize_t)sizeof(*header))
		return "it is too short";
	return sc_header_fault(header, (uint64_t)st.st_size, addr);
}

static enum sc_survey_state state_of(const struct sc_survey_seg *seg, int fd, int held)
{
	if (held > 0 || sc_owner_may_live(seg->name, fd))
		return seg->pid && sc_host_is_stopped(seg->pid) ? SC_SURVEY_STOPPED : SC_SURVEY_LIVE;
	return seg->closed ? SC_SURVEY_CLOSED : SC_SURVEY_DEAD;
}

/* The caller has called sc_otherfiles_hold(). */
static void survey_file(int fd, struct sc_survey_seg *seg)
{
	struct sc_abi_presence presence;
	struct sc_abi_header header;
	int held = sc_lifelock_check(fd, &seg->pid);

	seg->fault = read_header(fd, seg->name, &header);
	if (!seg->fault && SC_TRY("survey.presence", pread(fd, &presence, sizeof(presence), SC_ABI_PRESENCE)) !=
				   (ssize_t)sizeof(presence))
		seg->fault = "it is too short";
	if (!seg->fault) {
		survey_header(&header, seg);
		seg->closed = presence.state == SC_ABI_CLOSED;
		seg->bufs = presence.buf_count < header.buf_count ? presence.buf_count : header.buf_count;
		survey_claims(fd, &header, seg);
	}
	seg->state = state_of(seg, fd, held);
}

/* Returns why sc_otherfile_open() refuses a file. */
static const char *open_fault(int err)
{
	switch (err) {
	case EACCES:
		return "it is not a regular file of this user with mode 0600";
	case ENODEV:
		return "/proc must be mounted";
	default:
		return strerror(err);
	}
}

struct survey {
	void (*show)(const struct sc_survey_seg *seg, void *arg);
	void *arg;
};

static void survey_name(const char *name, void *arg)
{
	struct sc_survey_seg seg = { .name = name, .age = -1, .uid = UINT32_MAX };
	const struct survey *survey = arg;
	struct sc_addr parts;
	struct stat st;
	int fd;

	if (sc_addr_parse_file(name, &parts))
		return;
	sc_otherfiles_hold();
	fd = sc_otherfile_open(name, &st);
	if (fd >= 0) {
		seg.uid = st.st_uid;
		seg.bytes = (uint64_t)st.st_blocks * 512;
		survey_file(fd, &seg);
		SC_CALL("survey.close", close(fd));
	}
	sc_otherfiles_release();
	if (fd < 0)
		seg.fault = open_fault(-fd);
	if (fd != -ENOENT)
		survey->show(&seg, survey->arg);
}

int sc_survey_list(void (*show)(const struct sc_survey_seg *seg, void *arg), void *arg)
{
	struct survey survey = { .show = show, .arg = arg };

	return sc_reap_names(survey_name, &survey);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* Bytes of the owner's private memory: `len` of them, `offset` from its counters on. */
struct place_there {
	int64_t offset;
	void *to;
	size_t len;
};

static int read_by(const struct sc_survey_seg *seg, pid_t pid, const struct place_there *place)
{
	uint64_t from = seg->counters_addr + (uint64_t)place->offset;
	const struct iovec local = { place->to, place->len };
	const struct iovec remote = { (void *)(uintptr_t)from, place->len };
	const struct sc_cma cma = { pid, seg->cookie_addr, seg->cookie };
	const struct sc_cma_copy copy = { &local, 1, &remote, 1, place->len };

	return sc_cma_read(&cma, &copy);
}

/* The thread in the header may have ended before the others: then the process itself is asked. */
static int read_private(const struct sc_survey_seg *seg, const struct place_there *place)
{
	int err = -ESRCH;

	if (seg->fault || !seg->counters_addr || seg->counters_size != sizeof(struct sc_counters))
		return -EPROTO;
	if (seg->state != SC_SURVEY_LIVE && seg->state != SC_SURVEY_STOPPED)
		return -ESRCH;
	if (seg->tid)
		err = read_by(seg, seg->tid, place);
	if (err == -ESRCH && seg->pid)
		err = read_by(seg, seg->pid, place);
	return err;
}

int sc_survey_counters(const struct sc_survey_seg *seg, struct sc_counters *counters)
{
	return read_private(seg, &(struct place_there){ 0, counters, sizeof(*counters) });
}

int sc_survey_lent(const struct sc_survey_seg *seg, uint32_t *lent)
{
	uint32_t left;
	int err;

	if (!seg->free_bufs_offset)
		return -EPROTO;
	err = read_private(seg, &(struct place_there){ seg->free_bufs_offset, &left, sizeof(left) });
	if (!err)
		*lent = left < seg->bufs ? seg->bufs - left : 0;
	return err;
}
