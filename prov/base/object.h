/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork.h: the objects in a child of fork(2): see fork.c.
 */
#ifndef SHMCMA_FORK_H
#define SHMCMA_FORK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <rdma/fabric.h>

/* One fork(2) looks so many times in all for locks that other calls hold, and then goes on without them. */
#define SHMCMA_FORK_TRIES 2500

/* The return value of every call but fi_close() for an object that the process has inherited by fork(2). */
#define SHMCMA_FORKED (-FI_EPERM)

/* One of all open objects but registered memory; embedded in each. */
struct shmcma_object {
	struct shmcma_object *next, **link; /* oldest first */
	struct fid *fid;
	pthread_mutex_t *lock; /* of what the object holds, NULL: none of its own */
	bool held;	       /* around fork(2) */
};

/* Hold the lock. False: `tries` are used up, and another call holds it. */
bool shmcma_fork_hold(pthread_mutex_t *lock, unsigned int *tries);
/* In the child: it can be taken again, whether it was held or another thread had it, which is not there to let it go. */
void shmcma_fork_renew(pthread_mutex_t *lock, bool held);

/* Once, when the provider is loaded. */
void shmcma_fork_init(void);

/*
 * The lock of the process's lists: of objects, and of the threads of automatic progress. fork(2) holds it, so the child
 * finds the lists whole. Its owner handles no signal. Nothing that may wait for
 * another thread is done under it.
 */
void shmcma_lists_lock(void);
void shmcma_lists_unlock(void);

/* The object is open: the last step of opening, and the first of closing. Without any lock. */
void shmcma_object_add(struct shmcma_object *object, struct fid *fid, pthread_mutex_t *lock);
void shmcma_object_del(struct shmcma_object *object);

/*
 * The first object that is open in this process for which `match` says true, oldest first; NULL: none. `match` runs
 * under a lock: it must not open or close anything.
 */
struct fid *shmcma_object_find(size_t fclass, bool (*match)(const struct fid *fid, const void *arg),
			       const void *arg);

/* Has the process inherited it? */
bool shmcma_is_forked(const struct fid *fid);

/* Is it to be left as it is when it is closed? Then so is registered memory of this domain. */
bool shmcma_is_torn(const struct fid *fid);

/* SHMCMA_FORKED, and the first time in a process a line in the log. */
int shmcma_forked(void);

#endif
