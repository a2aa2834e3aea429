/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * neighbour.c: how the processes of a user that have nothing to do with each other come to watch each other,
 * so that what one leaves in /dev/shm is removed at once by any that lives on.
 *
 * Everybody has a pidfd of everybody, if there are few enough (pidfd.c): he who comes looks through the names
 * in /dev/shm and takes them, and knocks at the doors (door.c) of those he finds, so that they look, too. Of
 * two who come at the same time, the one that looks and knocks last finds the name and the door of the other:
 *
 *	he who comes	knock -> segment gets its name -> door shown -> a look of one's own, and knocks with it
 *	who is there	heard a knock -> a while later (daemon.c) a look; each end of a neighbour: a look
 *
 * Of many who come at a time only the first has to knock: he who is there shows in his presence that he has
 * heard (SC_ABI_DOOR_HEARD), and takes that back a while before he looks. So whoever finds it there is looked
 * for as if he had knocked. Each knock wakes a thread: 4,300 times without this, where 64 processes begin together.
 *
 * The first knock is for the case that he dies between name and second knock: then he is found by the look
 * that follows a while after the first one, and a look finds the dead as well. The look, and with it the second
 * knock, is the thread's, so that nobody waits for it; without a thread there is no look. Who is stopped there for
 * longer, and then dies, is found by the next look of anybody, at last by that of every 30 seconds. He may
 * die in the middle of knocking: the same.
 *
 * If there are more than a process may have pidfds of, each watches those that come next to it on a ring,
 * which is ordered by a hash of the pid in the name, so that it is the same for all. Of any number that die
 * the first one on the ring behind one who lives is watched by that one, who then removes the names of all
 * the dead that there are and looks for new neighbours. A process that is stopped notices nothing: behind it
 * only others who watch as far may.
 *
 * Not watched are processes whose pid is not visible from here, in another pid namespace; not knocked at are
 * those without thread, and those whose descriptors may not be looked at. They and we find each other's dead
 * every 30 seconds.
 *
 * All that is read here was written by others: names, headers, presences. A false one costs an open(2) or a
 * byte in a pipe that is not there. What counts comes from the kernel: the holder of the life lock.
 */
#define _GNU_SOURCE 1
#include "neighbour.h"

#include <string.h>
#include <unistd.h>
#include <shmcma/abi.h>
#include "addr.h"
#include "door.h"
#include "host.h"
#include "inject.h"
#include "live.h"
#include "own.h"
#include "pidfd.h"
#include "reap.h"

/* ---- knocking -------------------------------------------------------------------------------- */

/* False: no segment that we can read. */
static bool read_presence(int fd, struct sc_abi_presence *presence)
{
	uint8_t bytes[SC_ABI_PRESENCE + sizeof(*presence)];
	struct sc_abi_header header;

	if (SC_TRY("neighbour.presence", pread(fd, bytes, sizeof(bytes), 0)) != (ssize_t)sizeof(bytes))
		return false;
	memcpy(&header, bytes, sizeof(header));
	memcpy(presence, bytes + SC_ABI_PRESENCE, sizeof(*presence));
	return header.magic == SC_ABI_MAGIC && header.layout == SC_ABI_LAYOUT;
}

/* A process may have many names, which are likely to follow each other. */
static void knock(int fd, pid_t pid, pid_t *last)
{
	struct sc_abi_presence presence;

	if (pid == *last || !read_presence(fd, &presence))
		return;
	*last = pid;
	if (!(presence.door & SC_ABI_DOOR_HEARD))
		(void)sc_door_knock(pid, &presence);
}

static void knock_at(const char *name, void *last)
{
	struct sc_addr parts;
	struct stat st;
	pid_t pid;
	int fd;

	if (sc_addr_parse_file(name, &parts))
		return; /* a service: its endpoint has a name of its own */
	fd = sc_own_open_peer(name, &st);
	if (fd < 0)
		return;
	if (sc_live_check(fd, &pid) == 1 && pid)
		knock(fd, pid, last);
	sc_own_close_other(fd);
}

void sc_neighbours_knock(void)
{
	pid_t last = 0;

	(void)sc_reap_names(knock_at, &last);
}

/* ---- looking --------------------------------------------------------------------------------- */

struct look {
	uint32_t number;
	uint64_t here; /* our own place on the ring */
	bool knocks;
	pid_t last; /* whom it has knocked at */
	bool dead;  /* there is a name that seems to be a dead process's */
};

/* Any fixed function will do; neighbours on the machine are not to be neighbours on the ring. */
static uint64_t place_on_ring(uint32_t pid)
{
	return pid * 0x9e3779b97f4a7c15ULL;
}

static void look_at(const char *name, void *arg)
{
	struct sc_neighbour neighbour;
	struct look *look = arg;
	struct sc_addr parts;
	struct stat st;
	pid_t pid = 0;
	int fd, live;
	bool known;

	if (sc_addr_parse_file(name, &parts))
		return;
	neighbour.distance = place_on_ring(parts.pid) - look->here;
	memcpy(&neighbour.name, parts.nonce, sizeof(neighbour.name));
	known = sc_neighbour_find(&neighbour, look->number);
	if (known && !look->knocks)
		return;
	fd = sc_own_open_peer(name, &st);
	if (fd < 0)
		return;
	live = sc_live_check(fd, &pid);
	if (look->knocks && live == 1 && pid)
		knock(fd, pid, &look->last);
	if (live == 0 ||
	    (live == 1 && pid && !known && !sc_neighbour_add(&neighbour, pid, fd, look->number)))
		look->dead = true;
	sc_own_close_other(fd);
}

bool sc_neighbours_look(bool knocks)
{
	static uint32_t number;
	struct look look = { .number = ++number, .knocks = knocks };
	const struct sc_host *host;

	if (sc_host_get(&host))
		return false;
	look.here = place_on_ring((uint32_t)host->pid);
	if (!sc_reap_names(look_at, &look))
		sc_neighbours_sweep(look.number);
	return look.dead;
}
