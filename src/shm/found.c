/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * found.c: segments of peers that have been found and are not attached yet.
 *
 * When an address vector asks for an endpoint, it is likely to be attached soon. So its descriptor and the checked
 * header are kept here. Attaching only checks that the file is the same and that the owner lives (a header does not
 * change). A descriptor keeps the memory of a file whose owner dies. So they are few, count like those of attached
 * segments, and are closed soon: FOUND_MS later in a process that polls, else when a process has died, at the daemon's
 * next tick, or when a segment of this process is closed.
 *
 * Any thread calls these. Nothing is shared with other processes.
 */
#define _GNU_SOURCE 1
#include "shm/found.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "os/lifelock.h"
#include "os/otherfile.h"

/*
 * A segment is in one of FOUND_PLACES places of sc_segs.found, from the place of its address on. One store fills or
 * empties a place, so a forked child, in which the state of the mutex means nothing, can close the segments.
 */
#define FOUND_PLACES 4
#define FOUND_MS 1000

static int64_t now_ms(void)
{
	return sc_clock_ns() / 1000000;
}

void sc_found_discard(struct sc_seg *seg)
{
	sc_seg_drop_descriptor(seg);
	free(seg);
}

static struct sc_seg *found_remove(uint32_t place)
{
	struct sc_seg *seg = atomic_exchange(&sc_segs.found[place], NULL);

	if (seg)
		atomic_fetch_sub(&sc_segs.found_count, 1);
	return seg;
}

static bool found_add_locked(struct sc_seg *seg)
{
	uint32_t first = sc_seg_hash(seg->header.address) % SC_FOUND_MAX;

	for (uint32_t i = first; i < first + FOUND_PLACES; i++) {
		if (sc_segs.found[i % SC_FOUND_MAX])
			continue;
		if (!atomic_fetch_add(&sc_segs.found_count, 1))
			sc_segs.found_since = now_ms();
		sc_segs.found[i % SC_FOUND_MAX] = seg;
		return true;
	}
	return false;
}

void sc_found_add(struct sc_seg *seg)
{
	bool added;

	pthread_mutex_lock(&sc_segs.found_mutex);
	added = found_add_locked(seg);
	pthread_mutex_unlock(&sc_segs.found_mutex);
	if (!added)
		sc_found_discard(seg);
}

static struct sc_seg *found_take_locked(const char *addr)
{
	uint32_t first = sc_seg_hash(addr) % SC_FOUND_MAX;

	for (uint32_t i = first; i < first + FOUND_PLACES; i++) {
		struct sc_seg *seg = sc_segs.found[i % SC_FOUND_MAX];

		if (seg && sc_seg_is_here(seg) && !strcmp(seg->header.address, addr))
			return found_remove(i % SC_FOUND_MAX);
	}
	return NULL;
}

/* Tells whether the file is still the one that was checked, and whether its owner lives. */
static bool is_as_found(const struct sc_seg *seg)
{
	struct stat as = {
		.st_dev = seg->dev, .st_ino = seg->ino, .st_size = (off_t)seg->header.length, .st_nlink = 1
	};
	pid_t holder = 0;

	return sc_lifelock_check(seg->fd, &holder) == 1 && holder == seg->cma_pid &&
	       sc_otherfile_is_unchanged(seg->fd, &as);
}

struct sc_seg *sc_found_take(const char *addr)
{
	struct sc_seg *seg;

	if (!atomic_load(&sc_segs.found_count))
		return NULL;
	pthread_mutex_lock(&sc_segs.found_mutex);
	seg = found_take_locked(addr);
	pthread_mutex_unlock(&sc_segs.found_mutex);
	if (!seg || is_as_found(seg))
		return seg;
	sc_found_discard(seg);
	return NULL;
}

void sc_found_forget(void)
{
	for (uint32_t i = 0; i < SC_FOUND_MAX && atomic_load(&sc_segs.found_count); i++) {
		struct sc_seg *seg;

		pthread_mutex_lock(&sc_segs.found_mutex);
		seg = found_remove(i);
		pthread_mutex_unlock(&sc_segs.found_mutex);
		if (seg)
			sc_found_discard(seg);
	}
}

void sc_found_forget_slow(void)
{
	bool late;

	pthread_mutex_lock(&sc_segs.found_mutex);
	late = now_ms() >= sc_segs.found_since + FOUND_MS;
	pthread_mutex_unlock(&sc_segs.found_mutex);
	if (late)
		sc_found_forget();
}
