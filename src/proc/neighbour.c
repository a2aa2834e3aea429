/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * neighbour.c: how the processes of a user that have nothing to do with each other come to watch each other,
 * so that any process that lives on removes at once the files that another one leaves in /dev/shm.
 *
 * They are on a ring, which is ordered by a hash of the pid in the name, so that it is the same for all, and each
 * watches those that come next to it, SC_NEIGHBOURS of them that live. Of any number that die, a living process watches
 * the first one that comes next to it on the ring; it then removes the names of all the dead and looks for new
 * neighbours. One would do; but a process that is stopped, or has no thread, notices nothing, and the more are watched
 * the more of those it takes that nobody does. Where each of a job watches all others that costs as much as half of
 * their connections: a look at 64 names where 64 processes begin together, an open file and a knock for each, and 64
 * threads that wake for each end.
 *
 * A new process knocks at the doors (doorbell.c) of its neighbours before it has a name, and they look through the
 * names in /dev/shm a while later, when it has its name. The new process itself looks as late as they do:
 *
 *	new process	knock -> segment gets its name -> door shown -> as after a knock that it hears
 *	old process	hears a knock -> a while later (daemon.c) a look; a neighbour ends: a look, and another later
 *
 * So of two processes that come at the same time either looks when both have their names: one that has no door yet when
 * the other looks for it shows its door after that, and looks that while later.
 *
 * Before it has a name, the new process also removes the files of the dead, if there is a name whose pid no process
 * has. Its thread removes those under a pid that a living process has by now, when it has settled, unless the memory is
 * needed at once.
 *
 * Of many processes that come at a time only the first has to knock: a process that has heard a knock shows that in its
 * presence (SC_ABI_DOOR_HEARD), and takes that back a while before it looks. So it looks for a process that finds the
 * mark as if that had knocked. A new process shows the mark, too: of a job that begins together few write to another's
 * door.
 *
 * If the new process dies once it has its name, the look finds the name: a look finds the dead as well. A process that
 * gets its name so late that the look may have come first (SC_NEIGHBOURS_LOOK_MS) knocks again. If it is stopped for so
 * long before its name, and dies between its name and that second knock, the next look of a neighbour finds it, at last
 * the look of every 30 seconds. The same holds if it dies in the middle of knocking, has no descriptor for it, or loses
 * its only name while it makes the next one, for which it knocks only then. A process without a thread does not look
 * itself.
 *
 * Not watched are processes whose pid is not visible from here, in another pid namespace; not knocked at are
 * those without thread, and those whose descriptors may not be looked at. They and we find each other's dead
 * every 30 seconds.
 *
 * All that is read here was written by others: names, headers, presences. A false one costs an open(2) or a
 * byte in a pipe that is not there. The proof comes from the kernel: the holder of the life lock.
 */
#define _GNU_SOURCE 1
#include "proc/neighbour.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <shmcma/core.h>
#include "os/addr.h"
#include "os/doorbell.h"
#include "os/host.h"
#include "base/fault.h"
#include "os/lifelock.h"
#include "os/shmfile.h"
#include "os/pidfd.h"
#include "proc/reap.h"

/* ---- the ring -------------------------------------------------------------------------------- */

/* A name of somebody's endpoint. */
struct name {
	struct sc_neighbour neighbour; /* its process: the distance is from here to it, one way round */
	uint32_t pid;
	char file[SC_ADDR_NAME_MAX];
};

struct names {
	struct name *names;
	size_t count, room;
	uint64_t here; /* our own place */
	int err;
};

/* Any fixed function will do; neighbours on the machine are not to be neighbours on the ring. */
static uint64_t place_on_ring(uint32_t pid)
{
	return pid * 0x9e3779b97f4a7c15ULL;
}

static bool has_room(struct names *names)
{
	size_t room = names->room ? names->room * 2 : 64;
	struct name *more;

	if (names->count < names->room)
		return true;
	more = SC_TRY_PTR("neighbour.names", NULL, realloc(names->names, room * sizeof(names->names[0])));
	if (!more) {
		names->err = -ENOMEM;
		return false;
	}
	names->names = more;
	names->room = room;
	return true;
}

static void add_name(const char *file, void *arg)
{
	struct names *names = arg;
	struct sc_addr parts;
	struct name *name;

	if (sc_addr_parse_file(file, &parts) || !has_room(names))
		return; /* a service: its endpoint has a name of its own */
	name = &names->names[names->count++];
	name->pid = parts.pid;
	name->neighbour.distance = place_on_ring(parts.pid) - names->here;
	memcpy(&name->neighbour.name, parts.nonce, sizeof(name->neighbour.name));
	strcpy(name->file, file); /* which has been parsed */
}

static int by_distance(const void *a, const void *b)
{
	uint64_t x = ((const struct name *)a)->neighbour.distance;
	uint64_t y = ((const struct name *)b)->neighbour.distance;

	return (x > y) - (x < y);
}

/* All there are, in the order in which they come next to us. `names->names` is to be freed. */
static int list_names(struct names *names)
{
	const struct sc_host *host;
	int err = sc_host_get(&host);

	*names = (struct names){ 0 };
	if (err)
		return err;
	names->here = place_on_ring((uint32_t)host->pid);
	err = sc_reap_names(add_name, names);
	if (names->count)
		qsort(names->names, names->count, sizeof(names->names[0]), by_distance);
	return err ? err : names->err;
}

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

/* Does whoever this is look for us? */
static bool knock(int fd, pid_t pid)
{
	struct sc_abi_presence presence;

	return read_presence(fd, &presence) &&
	       (presence.door & SC_ABI_DOOR_HEARD || !sc_doorbell_knock(pid, &presence));
}

static bool knock_at(const char *file)
{
	struct stat st;
	pid_t pid;
	bool hears;
	int fd = sc_shmfile_open_peer(file, &st);

	if (fd < 0)
		return false;
	hears = sc_lifelock_check(fd, &pid) == 1 && pid && knock(fd, pid);
	sc_shmfile_close_other(fd);
	return hears;
}

/* At as many as would watch us, backwards from here. A process may have many names: one of them is enough. */
static void knock_at_names(const struct names *names)
{
	uint64_t last = 0;

	for (size_t i = names->count, heard = 0; i-- && heard < SC_NEIGHBOURS;) {
		const struct name *name = &names->names[i];

		if (heard && name->neighbour.distance == last)
			continue;
		if (!knock_at(name->file))
			continue;
		last = name->neighbour.distance;
		heard++;
	}
}

/*
 * Does no process with memory have that pid? Then whose it was has ended, or is of another pid namespace. A zombie has
 * none: to read it is an error before the kernel checks any right of the reader. A fifth of the time of a look at a
 * file.
 */
static bool is_nobodys(uint32_t pid)
{
	uint8_t byte;
	struct iovec here = { &byte, sizeof(byte) }, nowhere = { NULL, sizeof(byte) };

	if (!pid || pid > INT32_MAX)
		return false;
	if (SC_TRY("neighbour.kill", kill((pid_t)pid, 0)))
		return errno == ESRCH;
	return SC_TRY("neighbour.zombie", process_vm_readv((pid_t)pid, &here, 1, &nowhere, 1, 0)) < 0 &&
	       errno == ESRCH;
}

/*
 * With many that come at a time each would open the files of all, if it were not for this. Names of one process lie side
 * by side: it is asked for once.
 */
static bool has_ended(const struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		if ((!i || names->names[i].pid != names->names[i - 1].pid) &&
		    is_nobodys(names->names[i].pid))
			return true;
	return false;
}

bool sc_neighbours_come(void)
{
	struct names names;
	bool ended;

	(void)list_names(&names);
	knock_at_names(&names);
	ended = has_ended(&names);
	free(names.names);
	return ended;
}

void sc_neighbours_named(int64_t came)
{
	struct names names;

	if (sc_clock_ns() - came < SC_NEIGHBOURS_LOOK_MS * INT64_C(1000000))
		return;
	(void)list_names(&names);
	knock_at_names(&names);
	free(names.names);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* The kinds of process under a name. */
enum found { FOUND_NONE, FOUND_DEAD, FOUND_NEIGHBOUR };

static enum found watch(const struct name *name, uint32_t look)
{
	enum found found = FOUND_NONE;
	struct stat st;
	pid_t pid = 0;
	int fd, live;

	if (sc_neighbour_find(&name->neighbour, look))
		return FOUND_NEIGHBOUR;
	fd = sc_shmfile_open_peer(name->file, &st);
	if (fd < 0)
		return FOUND_NONE;
	live = sc_lifelock_check(fd, &pid);
	if (live == 1 && pid)
		found = sc_neighbour_add(&name->neighbour, pid, fd, look) ? FOUND_NEIGHBOUR : FOUND_DEAD;
	else if (live == 0)
		found = FOUND_DEAD;
	sc_shmfile_close_other(fd);
	return found;
}

/* Was anybody dead? */
static bool watch_names(const struct names *names, uint32_t look)
{
	uint64_t last = 0;
	bool dead = false;

	for (size_t i = 0, neighbours = 0; i < names->count && neighbours < SC_NEIGHBOURS; i++) {
		const struct name *name = &names->names[i];
		enum found found = watch(name, look);

		dead |= found == FOUND_DEAD;
		if (found != FOUND_NEIGHBOUR || (neighbours && name->neighbour.distance == last))
			continue;
		last = name->neighbour.distance;
		neighbours++;
	}
	return dead;
}

bool sc_neighbours_look(void)
{
	static uint32_t number;
	struct names names;
	bool whole = !list_names(&names), dead;

	number++;
	dead = watch_names(&names, number);
	if (whole)
		sc_neighbours_sweep(number);
	free(names.names);
	return dead;
}
