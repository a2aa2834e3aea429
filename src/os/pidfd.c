/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pidfd.c: the pidfds that the daemon's thread polls: one for each process, whether peers belong to it, it is
 * a neighbour, or both.
 *
 * There are at most SC_PIDFDS_MAX, and no more than a quarter of what the process may open (the segments' own
 * descriptors may be another quarter); neighbours have up to half of that, at most SC_NEIGHBOURS, and give way to peers:
 * the farthest first.
 *
 * Any thread may call; the mutex is the last to be taken. They are in a table, not in their users' structures,
 * for a forked child, whose copies of lists may be half changed. The application may close descriptors and use their numbers again:
 * nothing is closed that does not say that it is the pidfd it was.
 *
 * Nothing is shared with other processes. A place belongs to the first process that had the pid; one that ends
 * is readable from then on, so an owner that shares the place by mistake hears of it at the next poll, and looks.
 */
#define _GNU_SOURCE 1
#include "os/pidfd.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include "os/host.h"
#include "base/fault.h"
#include "os/lifelock.h"

struct place {
	bool used, polled; /* polled: since it was opened */
	bool is_neighbour;
	int fd;
	pid_t pid;
	uint64_t ino;	/* 0: not known */
	uint32_t users; /* processes of peers */
	uint32_t seen;	/* neighbour: in which look */
	struct sc_neighbour neighbour;
};

static pthread_mutex_t pidfds_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct place places[SC_PIDFDS_MAX];
static int places_used, neighbours;
static bool wanted;

static int most(void)
{
	struct rlimit limit;
	rlim_t quarter = SC_TRY("pidfd.limit", getrlimit(RLIMIT_NOFILE, &limit)) ? 0 : limit.rlim_cur / 4;

	return quarter < SC_PIDFDS_MAX ? (int)quarter : SC_PIDFDS_MAX;
}

static bool is_open(const struct place *place)
{
	return sc_host_is_pidfd(place->fd, place->pid, place->ino);
}

static void place_close(struct place *place)
{
	bool open = is_open(place);

	place->used = false; /* first: a child that is forked now does not close what may be another's */
	places_used--;
	if (open)
		SC_CALL("pidfd.close", close(place->fd));
}

static void place_close_unused(struct place *place)
{
	if (!place->users && !place->is_neighbour)
		place_close(place);
}

static int place_find(pid_t pid)
{
	for (int i = 0; i < SC_PIDFDS_MAX; i++)
		if (places[i].used && places[i].pid == pid)
			return i;
	return SC_NO_PIDFD;
}

static int place_open(pid_t pid)
{
	int fd, i = 0;

	if (places_used >= most())
		return SC_NO_PIDFD;
	fd = SC_TRY("pidfd.open", sc_host_open_pidfd(pid));
	if (fd < 0)
		return SC_NO_PIDFD;
	while (places[i].used) /* there is one: most() is not more than there are */
		i++;
	places[i] = (struct place){ .used = true, .fd = fd, .pid = pid, .ino = sc_host_pidfd_inode(fd) };
	places_used++;
	return i;
}

static void neighbour_forget(int place)
{
	places[place].is_neighbour = false;
	neighbours--;
	place_close_unused(&places[place]);
}

/* The farthest neighbour; SC_NO_PIDFD: there is none. */
static int farthest(void)
{
	int far = SC_NO_PIDFD;

	for (int i = 0; i < SC_PIDFDS_MAX; i++)
		if (places[i].used && places[i].is_neighbour &&
		    (far == SC_NO_PIDFD || places[i].neighbour.distance > places[far].neighbour.distance))
			far = i;
	return far;
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void make_room(void)
{
	int limit = most();

	while (neighbours && places_used >= limit)
		neighbour_forget(farthest());
}

int sc_pidfd_get(pid_t pid)
{
	int place;

	pthread_mutex_lock(&pidfds_mutex);
	place = place_find(pid);
	if (place == SC_NO_PIDFD) {
		make_room();
		place = place_open(pid);
	}
	if (place != SC_NO_PIDFD)
		places[place].users++;
	pthread_mutex_unlock(&pidfds_mutex);
	return place;
}

void sc_pidfd_put(int place)
{
	pthread_mutex_lock(&pidfds_mutex);
	places[place].users--;
	place_close_unused(&places[place]);
	pthread_mutex_unlock(&pidfds_mutex);
}

bool sc_pidfd_is_open(int place)
{
	bool open;

	pthread_mutex_lock(&pidfds_mutex);
	open = is_open(&places[place]);
	pthread_mutex_unlock(&pidfds_mutex);
	return open;
}

nfds_t sc_pidfds_arrange(struct pollfd polls[SC_PIDFDS_MAX])
{
	nfds_t count = 0;

	pthread_mutex_lock(&pidfds_mutex);
	for (int i = 0; i < SC_PIDFDS_MAX; i++) {
		struct place *place = &places[i];

		place->polled = place->used;
		polls[i] = (struct pollfd){ .fd = place->used ? place->fd : -1, .events = POLLIN };
		if (place->used)
			count = (nfds_t)i + 1;
	}
	pthread_mutex_unlock(&pidfds_mutex);
	return count;
}

static bool has_event(int place, const struct pollfd polls[SC_PIDFDS_MAX])
{
	return places[place].used && places[place].polled && polls[place].revents;
}

bool sc_pidfd_has_event(int place, const struct pollfd polls[SC_PIDFDS_MAX])
{
	bool has;

	pthread_mutex_lock(&pidfds_mutex);
	has = has_event(place, polls);
	pthread_mutex_unlock(&pidfds_mutex);
	return has;
}

/* The child is alone: no other thread can hold the mutex. */
void sc_pidfds_inherited(void)
{
	pidfds_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (int i = 0; i < SC_PIDFDS_MAX; i++)
		if (places[i].used)
			place_close(&places[i]);
	places_used = neighbours = 0;
	wanted = false;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

void sc_neighbours_want(bool want)
{
	pthread_mutex_lock(&pidfds_mutex);
	wanted = want;
	for (int i = 0; i < SC_PIDFDS_MAX && !want; i++)
		if (places[i].used && places[i].is_neighbour)
			neighbour_forget(i);
	pthread_mutex_unlock(&pidfds_mutex);
}

static int most_neighbours(void)
{
	int half = most() / 2;

	return half < SC_NEIGHBOURS ? half : SC_NEIGHBOURS;
}

static bool has_room(uint64_t distance)
{
	int limit = wanted ? most_neighbours() : 0;

	return limit && (neighbours < limit || places[farthest()].neighbour.distance > distance);
}

static bool find_locked(const struct sc_neighbour *neighbour, uint32_t look)
{
	for (int i = 0; i < SC_PIDFDS_MAX; i++) {
		struct place *place = &places[i];

		if (place->used && place->is_neighbour && place->neighbour.name == neighbour->name &&
		    place->neighbour.distance == neighbour->distance) {
			place->seen = look;
			return true;
		}
	}
	return !has_room(neighbour->distance);
}

bool sc_neighbour_find(const struct sc_neighbour *neighbour, uint32_t look)
{
	bool found;

	pthread_mutex_lock(&pidfds_mutex);
	found = find_locked(neighbour, look);
	pthread_mutex_unlock(&pidfds_mutex);
	return found;
}

/* The place with its pidfd, that of a peer too, or SC_NO_PIDFD. */
static int place_for(uint64_t distance, pid_t pid)
{
	int place = place_find(pid);

	if (place != SC_NO_PIDFD && places[place].is_neighbour)
		return place; /* by another name */
	if (!has_room(distance))
		return SC_NO_PIDFD;
	while (neighbours && neighbours >= most_neighbours()) /* now and then the limit changes */
		neighbour_forget(farthest());
	place = place_find(pid);
	return place != SC_NO_PIDFD ? place : place_open(pid);
}

/* It is seen alive after its pidfd was opened, so that is its. */
static bool add_locked(const struct sc_neighbour *neighbour, pid_t pid, int fd, uint32_t look)
{
	int at = place_for(neighbour->distance, pid);
	pid_t again = 0;
	bool lives = sc_lifelock_check(fd, &again) == 1 && again == pid;

	if (at == SC_NO_PIDFD)
		return lives;
	if (!places[at].is_neighbour) {
		places[at].is_neighbour = true;
		places[at].neighbour = *neighbour;
		neighbours++;
	}
	places[at].seen = look;
	if (!lives)
		neighbour_forget(at);
	return lives;
}

bool sc_neighbour_add(const struct sc_neighbour *neighbour, pid_t pid, int fd, uint32_t look)
{
	bool lives;

	pthread_mutex_lock(&pidfds_mutex);
	lives = add_locked(neighbour, pid, fd, look);
	pthread_mutex_unlock(&pidfds_mutex);
	return lives;
}

void sc_neighbours_sweep(uint32_t look)
{
	pthread_mutex_lock(&pidfds_mutex);
	for (int i = 0; i < SC_PIDFDS_MAX; i++)
		if (places[i].used && places[i].is_neighbour && places[i].seen != look)
			neighbour_forget(i);
	pthread_mutex_unlock(&pidfds_mutex);
}

void sc_neighbours_check(void)
{
	pthread_mutex_lock(&pidfds_mutex);
	for (int i = 0; i < SC_PIDFDS_MAX; i++)
		if (places[i].used && places[i].is_neighbour && !is_open(&places[i]))
			neighbour_forget(i);
	pthread_mutex_unlock(&pidfds_mutex);
}

bool sc_neighbours_bury(const struct pollfd polls[SC_PIDFDS_MAX])
{
	bool any = false;

	pthread_mutex_lock(&pidfds_mutex);
	for (int i = 0; i < SC_PIDFDS_MAX; i++) {
		if (!places[i].is_neighbour || !has_event(i, polls))
			continue;
		neighbour_forget(i);
		any = true;
	}
	pthread_mutex_unlock(&pidfds_mutex);
	return any;
}
