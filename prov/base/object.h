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

/* How often one fork(2) tries locks that other calls hold, at most; then it goes on without these locks. */
#define SHMCMA_FORK_TRIES 2500

/* In a process that has inherited an object by fork(2), every call on it but fi_close() returns this. */
#define SHMCMA_FORKED (-FI_EPERM)

/* An entry in the list of open objects, embedded in each object; registered memory and groups have none. */
struct shmcma_object {
	struct shmcma_object *next, **link; /* oldest first */
	struct fid *fid;
	pthread_mutex_t *lock; /* guards the object; NULL: no lock of its own */
	bool held;	       /* fork(2) holds `lock` */
	/* Called in a child of fork(2): makes all operations but fi_close() fail. NULL: the object has none. */
	void (*forked)(struct fid *fid);
};

/* Takes the lock. False: another call holds it, and `tries` are used up. */
bool shmcma_fork_hold(pthread_mutex_t *lock, unsigned int *tries);
/* For the child: makes the lock free again, whether fork(2) or a thread that does not exist here held it. */
void shmcma_fork_renew(pthread_mutex_t *lock, bool held);

/*
 * The lock of the process's lists: of objects, and of the threads of automatic progress. fork(2) holds it, so the child
 * finds the lists whole. Its owner handles no signal, and does nothing that may wait for another thread.
 */
void shmcma_lists_lock(void);
void shmcma_lists_unlock(void);
/* Returns the first open object; oldest first. */
struct shmcma_object *shmcma_objects_locked(void);

/* Adds the object as the last step of opening; removes it as the first step of closing. The caller holds no lock. */
void shmcma_object_add(struct shmcma_object *object, struct fid *fid, pthread_mutex_t *lock,
		       void (*forked)(struct fid *fid));
void shmcma_object_del(struct shmcma_object *object);

/* The operations of inherited objects, by class, with the class's own `close`. A child of fork(2) fills them in. */
#define SHMCMA_CLASSES (FI_CLASS_AV_SET + 1)
extern struct fi_ops shmcma_forked_ops[SHMCMA_CLASSES];
/* In a child: a fork(2), of this process or of an ancestor, went on without a lock. */
extern bool shmcma_torn;

/* Tells whether the process has inherited the object. */
bool shmcma_is_forked(const struct fid *fid);

/* Tells whether fi_close() leaves the object as it is. For a domain, its registered memory and groups are left too. */
bool shmcma_is_torn(const struct fid *fid);

/* Returns SHMCMA_FORKED, and logs a line the first time in a process. */
int shmcma_forked(void);

/* Defines the call that replaces `name` in a child of fork(2). */
#define SHMCMA_FORKED_CALL(type, name, ...)                                                               \
	static type forked_##name(__VA_ARGS__)                                                            \
	{                                                                                                 \
		return shmcma_forked();                                                                   \
	}
/* The same, and the head of the call itself; its body follows. */
#define SHMCMA_CALL(type, name, ...)                                                                      \
	SHMCMA_FORKED_CALL(type, name, __VA_ARGS__)                                                       \
	static type name(__VA_ARGS__)

/* Defines a call that an object does not have, in the file that needs it. */
#define SHMCMA_NO(type, name, error, ...)                                                                 \
	static type name(__VA_ARGS__)                                                                     \
	{                                                                                                 \
		return error;                                                                             \
	}

/* The same, and the call that replaces it in a child of fork(2). */
#define SHMCMA_UNABLE(name, error, ...)                                                                   \
	SHMCMA_FORKED_CALL(int, name, __VA_ARGS__)                                                        \
	SHMCMA_NO(int, name, error, __VA_ARGS__)

/*
 * Makes room for one more element. Returns the array, enlarged if needed; NULL: no memory, and the array is unchanged.
 */
void *shmcma_grow(void *array, size_t count, size_t *capacity, size_t size);

/* For operation tables: operations that an object does not have. */
int shmcma_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
ssize_t shmcma_no_cancel(fid_t fid, void *context);
int shmcma_no_control(struct fid *fid, int command, void *arg);
int shmcma_no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
int shmcma_no_ops_set(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
int shmcma_no_export(struct fid *fid, uint64_t flags, void *xpu);
/* fi_tostr() of any object. */
int shmcma_tostr(const struct fid *fid, char *buf, size_t len);

/* The operations in the fid of every object: these three, its name, and no others. */
#define SHMCMA_FID_OPS(close_, bind_, control_)                                                           \
	{                                                                                                 \
		.size = sizeof(struct fi_ops), .close = close_, .bind = bind_, .control = control_,       \
		.ops_open = shmcma_no_ops_open, .tostr = shmcma_tostr, .ops_set = shmcma_no_ops_set       \
	}

#endif
