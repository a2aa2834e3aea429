/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * object.h: open objects, and what a child of fork(2) may do with those that it has inherited (object.c).
 */
#ifndef SHMCMA_OBJECT_H
#define SHMCMA_OBJECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
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
	/* In a child of fork(2): it gets operations of which all but fi_close() are refused. NULL: it has none. */
	void (*forked)(struct fid *fid);
};

/* Hold the lock. False: `tries` are used up, and another call holds it. */
bool shmcma_fork_hold(pthread_mutex_t *lock, unsigned int *tries);
/* In the child: it can be taken again, whether it was held or another thread had it, which is not there to let it go. */
void shmcma_fork_renew(pthread_mutex_t *lock, bool held);

/*
 * The lock of the process's lists: of objects, and of the threads of automatic progress. fork(2) holds it, so the child
 * finds the lists whole. Its owner handles no signal. Nothing that may wait for
 * another thread is done under it.
 */
void shmcma_lists_lock(void);
void shmcma_lists_unlock(void);
/* The open objects, oldest first. */
struct shmcma_object *shmcma_objects_locked(void);

/* The object is open: the last step of opening, and the first of closing. Without any lock. */
void shmcma_object_add(struct shmcma_object *object, struct fid *fid, pthread_mutex_t *lock,
		       void (*forked)(struct fid *fid));
void shmcma_object_del(struct shmcma_object *object);

/* The operations of inherited objects, by class; `close` is the class's own. A child of fork(2) fills them in. */
#define SHMCMA_CLASSES (FI_CLASS_AV_SET + 1)
extern struct fi_ops shmcma_forked_ops[SHMCMA_CLASSES];
/* In a child: a lock was missed when it was made, or when an ancestor was. */
extern bool shmcma_torn;

/* Has the process inherited it? */
bool shmcma_is_forked(const struct fid *fid);

/* Is it to be left as it is when it is closed? Then so is registered memory of this domain. */
bool shmcma_is_torn(const struct fid *fid);

/* SHMCMA_FORKED, and the first time in a process a line in the log. */
int shmcma_forked(void);

/* The call that takes the place of that one in a child of fork(2). */
#define SHMCMA_FORKED_CALL(type, name, ...)                                                               \
	static type forked_##name(__VA_ARGS__)                                                            \
	{                                                                                                 \
		return shmcma_forked();                                                                   \
	}
/* A call of an object, of which the body follows, with the one that takes its place. */
#define SHMCMA_CALL(type, name, ...)                                                                      \
	SHMCMA_FORKED_CALL(type, name, __VA_ARGS__)                                                       \
	static type name(__VA_ARGS__)

/* Room for one more element: the array, larger if need be; NULL: no memory, and the array is as it was. */
void *shmcma_grow(void *array, size_t count, size_t *capacity, size_t size);

/* Operations that an object does not have, for the op tables. */
int shmcma_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
ssize_t shmcma_no_cancel(fid_t fid, void *context);
int shmcma_no_control(struct fid *fid, int command, void *arg);
int shmcma_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
int shmcma_no_ops_set(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
/* fi_tostr of any object. */
int shmcma_tostr(const struct fid *fid, char *buf, size_t len);

/* The operations that every object's fid has: these three, its name, and none of the rest. */
#define SHMCMA_FID_OPS(close_, bind_, control_)                                                           \
	{                                                                                                 \
		.size = sizeof(struct fi_ops), .close = close_, .bind = bind_, .control = control_,       \
		.ops_open = shmcma_no_ops_open, .tostr = shmcma_tostr, .ops_set = shmcma_no_ops_set       \
	}

#endif
