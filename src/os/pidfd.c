/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pidfd.c: the pidfds that the daemon's thread polls.
 *
 * There are at most SC_PIDFDS_MAX, and no more than a quarter of the descriptors that the process may open (the
 * segments' own descriptors may be another quarter).
 *
 * A table holds the pidfds, not the structures of the peers: a forked child may find lists half changed. The
 * application may close descriptors and reuse their numbers: this file closes a descriptor only if it still is the same
 * pidfd. Nothing is shared with other processes.
 */
#define _GNU_SOURCE 1
#include "os/pidfd.h"

#include <sys/resource.h>
#include <unistd.h>
#include "os/host.h"
#include "base/fault.h"
#include "os/self.h"

static int most(void)
{
	struct rlimit limit;
	rlim_t quarter = SC_TRY("pidfd.limit", getrlimit(RLIMIT_NOFILE, &limit)) ? 0 : limit.rlim_cur / 4;

	return quarter < SC_PIDFDS_MAX ? (int)quarter : SC_PIDFDS_MAX;
}

bool sc_pidfd_is_open(int place)
{
	const struct sc_pidfd *pidfd = &sc_self.pidfds[place];

	return sc_host_is_pidfd(pidfd->fd, pidfd->pid, pidfd->ino);
}

int sc_pidfd_get(pid_t pid)
{
	int fd, i = 0;

	if (sc_self.pidfds_used >= most())
		return SC_NO_PIDFD;
	fd = SC_TRY("pidfd.open", sc_host_open_pidfd(pid));
	if (fd < 0)
		return SC_NO_PIDFD;
	while (sc_self.pidfds[i].used) /* one is free: most() is not above the size of the table */
		i++;
	sc_self.pidfds[i] = (struct sc_pidfd){ .used = true, .fd = fd, .pid = pid, .ino = sc_host_pidfd_inode(fd) };
	sc_self.pidfds_used++;
	return i;
}

void sc_pidfd_put(int place)
{
	bool open = sc_pidfd_is_open(place);

	sc_self.pidfds[place].used =
		false; /* first: a child that is forked now does not close another's descriptor */
	sc_self.pidfds_used--;
	if (open)
		SC_CALL("pidfd.close", close(sc_self.pidfds[place].fd));
}

nfds_t sc_pidfds_arrange(struct pollfd polls[SC_PIDFDS_MAX])
{
	nfds_t count = 0;

	for (int left = sc_self.pidfds_used; left; count++) {
		struct sc_pidfd *place = &sc_self.pidfds[count];

		place->polled = place->used;
		polls[count] = (struct pollfd){ .fd = place->used ? place->fd : -1, .events = POLLIN };
		left -= place->used;
	}
	return count;
}

bool sc_pidfd_has_event(int place, const struct pollfd polls[SC_PIDFDS_MAX])
{
	return sc_self.pidfds[place].used && sc_self.pidfds[place].polled && polls[place].revents;
}

void sc_pidfds_inherited(void)
{
	for (int i = 0; i < SC_PIDFDS_MAX; i++)
		if (sc_self.pidfds[i].used)
			sc_pidfd_put(i);
	sc_self.pidfds_used = 0;
}
