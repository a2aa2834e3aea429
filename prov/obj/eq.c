/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * eq.c: event queues. Any thread; an event queue has its own lock, which is taken after all others.
 *
 * There are two lists, as in fi_eq(3): events in order, and errors "out of band". While there is an error, fi_eq_read()
 * returns only -FI_EAVAIL. An event that is lost, without memory or at the limit, makes the queue overrun: the
 * events that it holds can be read, but no later ones.
 *
 * With FI_WAIT_FD or FI_WAIT_POLLFD the descriptor is readable while the queue has something to read. It changes under
 * the lock, so no thread that polls it misses an event. Sometimes it stays readable a moment longer.
 *
 * fi_join reports here. So a read of an empty queue makes progress for each fi_join under way, and their messages wake
 * a thread that sleeps on the queue: then the descriptor is readable although the queue may be empty.
 */
#include "obj/eq.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "wait/polled.h"
#include "wait/wait.h"

/* Default limit of the events in a queue; an application may ask for more. */
#define EVENTS_MAX ((size_t)1 << 20)
/* Rounds of progress that bring nothing to read, before fi_trywait() returns -FI_EAGAIN. */
#define TRY_ROUNDS 64

struct event {
	struct event *next;
	uint32_t type;
	struct fi_eq_err_entry error; /* only in the list of errors */
	size_t len;
	char data[];
};

struct event_list {
	struct event *first;
	struct event **last;
};

struct shmcma_eq {
	struct fid_eq fid;
	struct shmcma_object object;
	struct shmcma_fabric *fabric;
	shmcma_refs refs;
	pthread_mutex_t lock;
	struct event_list events, errors;
	size_t count, limit;
	bool overrun;
	bool writable; /* opened with FI_WRITE */
	struct shmcma_joining *joining;
	struct shmcma_wait wait; /* signalled without `lock` */
};

static void list_init(struct event_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

static void list_append(struct event_list *list, struct event *event)
{
	event->next = NULL;
	*list->last = event;
	list->last = &event->next;
}

static void list_remove_first(struct event_list *list)
{
	struct event *event = list->first;

	list->first = event->next;
	if (!list->first)
		list->last = &list->first;
	free(event);
}

static bool has_something_locked(const struct shmcma_eq *eq)
{
	return eq->events.first || eq->errors.first || eq->overrun;
}

static void update_pipe_locked(struct shmcma_eq *eq)
{
	if (!shmcma_wait_has_pipe(&eq->wait))
		return;
	if (has_something_locked(eq))
		shmcma_pipe_raise(&eq->wait.pipe);
	else
		shmcma_pipe_lower(&eq->wait.pipe);
}

static bool has_something(struct shmcma_eq *eq)
{
	bool has;

	pthread_mutex_lock(&eq->lock);
	has = has_something_locked(eq);
	update_pipe_locked(eq);
	pthread_mutex_unlock(&eq->lock);
	return has;
}

static void wake(struct shmcma_eq *eq)
{
	if (eq->wait.obj != FI_WAIT_NONE)
		shmcma_wait_signal(&eq->wait);
}

static struct event *event_create(uint32_t type, const void *data, size_t len)
{
	struct event *event = malloc(sizeof(*event) + len);

	if (!event)
		return NULL;
	event->type = type;
	event->len = len;
	if (len)
		memcpy(event->data, data, len);
	return event;
}

/*
 * Adds the event to the list. Without an event (no memory) or without space the queue is overrun, unless the caller may
 * try again (`again`).
 */
static int add(struct shmcma_eq *eq, struct event_list *list, struct event *event, bool again)
{
	int ret = 0;

	pthread_mutex_lock(&eq->lock);
	if (eq->overrun) {
		ret = -FI_EOVERRUN;
	} else if (again && eq->count == eq->limit) {
		ret = -FI_EAGAIN;
	} else if (!event || eq->count == eq->limit) {
		eq->overrun = true;
		ret = event ? -FI_EOVERRUN : -FI_ENOMEM;
		shmcma_warn(FI_LOG_EQ,
			    "event queue overrun at %zu events (limit %zu, or no memory): read it more "
			    "often or open it with a larger size\n",
			    eq->count, eq->limit);
	} else {
		list_append(list, event);
		eq->count++;
	}
	update_pipe_locked(eq);
	pthread_mutex_unlock(&eq->lock);
	if (ret)
		free(event);
	return ret;
}

static int put(struct shmcma_eq *eq, struct event_list *list, struct event *event)
{
	int ret = add(eq, list, event, false);

	wake(eq);
	return ret;
}

int shmcma_eq_put(struct shmcma_eq *eq, uint32_t event, const struct fi_eq_entry *entry)
{
	return put(eq, &eq->events, event_create(event, entry, sizeof(*entry)));
}

static struct event *error_create(const struct fi_eq_err_entry *entry)
{
	struct event *event = event_create(0, NULL, 0);

	if (event) {
		event->error = *entry;
		event->error.err_data = NULL;
		event->error.err_data_size = 0;
	}
	return event;
}

int shmcma_eq_put_err(struct shmcma_eq *eq, const struct fi_eq_err_entry *entry)
{
	return put(eq, &eq->errors, error_create(entry));
}

void shmcma_eq_put_err_locked(struct shmcma_eq *eq, const struct fi_eq_err_entry *entry,
			      struct shmcma_wait **owed)
{
	(void)add(eq, &eq->errors, error_create(entry), false);
	if (eq->wait.obj != FI_WAIT_NONE)
		shmcma_wait_owe_locked(&eq->wait, owed);
}

/* ---- fi_join --------------------------------------------------------------------------------- */

int shmcma_eq_join_begin(struct shmcma_eq *eq, struct shmcma_coll *coll, struct shmcma_joining *joining)
{
	if (eq->wait.obj != FI_WAIT_NONE && shmcma_wait_join_locked(&eq->wait, coll))
		return -FI_EAGAIN;
	/* A domain without locks was opened without FI_COLLECTIVE: only the thread that uses it makes progress. */
	if (!coll->ep->domain->locks.common.taken)
		return 0;
	joining->domain = coll->ep->domain;
	pthread_mutex_lock(&eq->lock);
	joining->next = eq->joining;
	eq->joining = joining;
	pthread_mutex_unlock(&eq->lock);
	return 0;
}

void shmcma_eq_join_report(struct shmcma_eq *eq, struct shmcma_coll *coll,
			   const struct fi_eq_err_entry *entry)
{
	const struct fi_eq_entry joined = { .fid = entry->fid, .context = entry->context };

	if (entry->err)
		(void)add(eq, &eq->errors, error_create(entry), false);
	else
		(void)add(eq, &eq->events, event_create(FI_JOIN_COMPLETE, &joined, sizeof(joined)), false);
	if (eq->wait.obj != FI_WAIT_NONE)
		shmcma_wait_joined_locked(&eq->wait, coll);
}

void shmcma_eq_join_end(struct shmcma_eq *eq, struct shmcma_joining *joining)
{
	pthread_mutex_lock(&eq->lock);
	shmcma_list_remove(eq->joining, joining, next);
	pthread_mutex_unlock(&eq->lock);
	joining->domain = NULL;
}

/* Returns the domain of the n-th fi_join under way, locked; it is not freed before leave(). NULL: there are fewer. */
static struct shmcma_domain *visit(struct shmcma_eq *eq, size_t n)
{
	struct shmcma_domain *domain;
	struct shmcma_joining *joining;

	pthread_mutex_lock(&eq->lock);
	for (joining = eq->joining; joining && n; n--)
		joining = joining->next;
	domain = joining ? joining->domain : NULL;
	if (domain)
		atomic_fetch_add(&domain->visitors, 1);
	pthread_mutex_unlock(&eq->lock);
	if (domain)
		shmcma_lock(domain);
	return domain;
}

static void leave(struct shmcma_domain *domain)
{
	shmcma_unlock(domain);
	atomic_fetch_sub(&domain->visitors, 1);
}

/* False: no fi_join is under way. */
static bool progress(struct shmcma_eq *eq)
{
	struct shmcma_domain *domain;
	size_t n = 0;

	for (; (domain = visit(eq, n)); n++) {
		(void)shmcma_coll_progress_locked(domain);
		leave(domain);
	}
	return n;
}

/*
 * Called when the queue is empty. 0: a thread may sleep until *limit; -FI_ENOMEM: only in a call, since no watcher signals;
 * -FI_EAGAIN: it makes progress, and looks.
 */
static int rest(struct shmcma_eq *eq, int64_t *limit)
{
	struct shmcma_domain *domain;
	int ret = 0;

	for (size_t n = 0; !ret && (domain = visit(eq, n)); n++) {
		ret = shmcma_wait_rest_joins_locked(&eq->wait, eq, domain, limit);
		leave(domain);
	}
	return ret;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static ssize_t take(struct shmcma_eq *eq, uint32_t *type, void *buf, size_t len, uint64_t flags)
{
	struct event *event;
	ssize_t ret;

	pthread_mutex_lock(&eq->lock);
	event = eq->events.first;
	if (eq->errors.first) {
		ret = -FI_EAVAIL;
	} else if (!event) {
		ret = eq->overrun ? -FI_EOVERRUN : -FI_EAGAIN;
		update_pipe_locked(eq);
	} else if (len && len < event->len) {
		ret = -FI_ETOOSMALL;
	} else {
		/* without a buffer the caller asks only for the type of the event */
		ret = (ssize_t)(len ? event->len : 0);
		*type = event->type;
		if (len)
			memcpy(buf, event->data, event->len);
		if (!(flags & FI_PEEK)) {
			list_remove_first(&eq->events);
			eq->count--;
			update_pipe_locked(eq);
		}
	}
	pthread_mutex_unlock(&eq->lock);
	return ret;
}

SHMCMA_CALL(ssize_t, eq_read, struct fid_eq *fid, uint32_t *type, void *buf, size_t len, uint64_t flags)
{
	struct shmcma_eq *eq = container_of(fid, struct shmcma_eq, fid);
	ssize_t ret;

	if (flags & ~FI_PEEK)
		return -FI_EBADFLAGS;
	ret = take(eq, type, buf, len, flags);
	return ret == -FI_EAGAIN && progress(eq) ? take(eq, type, buf, len, flags) : ret;
}

/* No error has data of its own: a buffer for it stays as it is. */
static void fill_error(struct fi_eq_err_entry *entry, const struct fi_eq_err_entry *error)
{
	entry->fid = error->fid;
	entry->context = error->context;
	entry->data = error->data;
	entry->err = error->err;
	entry->prov_errno = error->prov_errno;
	if (!entry->err_data_size)
		entry->err_data = NULL;
	entry->err_data_size = 0;
}

SHMCMA_CALL(ssize_t, eq_readerr, struct fid_eq *fid, struct fi_eq_err_entry *entry, uint64_t flags)
{
	struct shmcma_eq *eq = container_of(fid, struct shmcma_eq, fid);
	ssize_t ret = sizeof(*entry);

	if (flags & ~FI_PEEK)
		return -FI_EBADFLAGS;
	pthread_mutex_lock(&eq->lock);
	if (eq->errors.first) {
		fill_error(entry, &eq->errors.first->error);
		if (!(flags & FI_PEEK)) {
			list_remove_first(&eq->errors);
			eq->count--;
			update_pipe_locked(eq);
		}
	} else if (eq->overrun && !eq->events.first) {
		fill_error(entry, &(struct fi_eq_err_entry){ .fid = &eq->fid.fid,
							     .err = FI_EOVERRUN,
							     .prov_errno = FI_EOVERRUN });
	} else {
		ret = -FI_EAGAIN;
	}
	pthread_mutex_unlock(&eq->lock);
	return ret;
}

SHMCMA_CALL(ssize_t, eq_write, struct fid_eq *fid, uint32_t type, const void *buf, size_t len, uint64_t flags)
{
	struct shmcma_eq *eq = container_of(fid, struct shmcma_eq, fid);
	struct event *event;
	ssize_t ret;

	if (!eq->writable)
		return -FI_ENOSYS;
	if (flags)
		return -FI_EBADFLAGS;
	if (len > SSIZE_MAX / 2 || (len && !buf))
		return -FI_EINVAL;
	event = event_create(type, buf, len);
	if (!event)
		return -FI_ENOMEM;
	ret = add(eq, &eq->events, event, true);
	wake(eq);
	return ret ? ret : (ssize_t)len;
}

/* Sleeps until there is something to read, until the time is over, or, without a time-out, until a signal comes. */
SHMCMA_CALL(ssize_t, eq_sread, struct fid_eq *fid, uint32_t *type, void *buf, size_t len, int timeout, uint64_t flags)
{
	struct shmcma_eq *eq = container_of(fid, struct shmcma_eq, fid);
	int64_t end = shmcma_wait_end(timeout);

	if (eq->wait.obj == FI_WAIT_NONE || eq->wait.obj == FI_WAIT_SET)
		return -FI_EINVAL;
	for (;;) {
		struct sc_sleep sleep = { &eq->wait.futex,
					  __atomic_load_n(&eq->wait.futex, __ATOMIC_ACQUIRE) };
		ssize_t ret = eq_read(fid, type, buf, len, flags);
		int64_t limit = end;

		if (ret != -FI_EAGAIN || (end != INT64_MAX && sc_clock_ns() >= end))
			return ret;
		if (rest(eq, &limit) != -FI_EAGAIN && sc_sleep(&sleep, 1, limit) == -EINTR &&
		    end == INT64_MAX)
			return -FI_EAGAIN;
	}
}

static const char *eq_strerror(struct fid_eq *fid, int prov_errno, const void *err_data, char *buf,
			       size_t len)
{
	const char *text = fi_strerror(prov_errno < 0 ? -prov_errno : prov_errno);

	if (buf && len)
		snprintf(buf, len, "%s", text);
	return text;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	struct shmcma_eq *eq = container_of(fid, struct shmcma_eq, fid.fid);

	return shmcma_wait_control(&eq->wait, command, arg);
}

static int eq_close(struct fid *fid)
{
	struct shmcma_eq *eq = container_of(fid, struct shmcma_eq, fid.fid);

	if (atomic_load(&eq->refs))
		return -FI_EBUSY;
	shmcma_object_del(&eq->object);
	shmcma_wait_fini(&eq->wait);
	while (eq->events.first)
		list_remove_first(&eq->events);
	while (eq->errors.first)
		list_remove_first(&eq->errors);
	pthread_mutex_destroy(&eq->lock);
	atomic_fetch_sub(&eq->fabric->refs, 1);
	free(eq);
	return 0;
}

static struct fi_ops eq_fid_ops = SHMCMA_FID_OPS(eq_close, shmcma_no_bind, eq_control);

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_eq), .read = way##eq_read, .readerr = way##eq_readerr,       \
		.write = way##eq_write, .sread = way##eq_sread, .strerror = eq_strerror,                  \
	}
static struct fi_ops_eq eq_ops = OPS(), forked_ops = OPS(forked_);

struct shmcma_eq *shmcma_eq_get(struct fid *fid)
{
	struct shmcma_eq *eq;

	if (!fid || fid->fclass != FI_CLASS_EQ || fid->ops != &eq_fid_ops)
		return NULL;
	eq = container_of(fid, struct shmcma_eq, fid.fid);
	atomic_fetch_add(&eq->refs, 1);
	return eq;
}

void shmcma_eq_put_ref(struct shmcma_eq *eq)
{
	atomic_fetch_sub(&eq->refs, 1);
}

struct shmcma_wait *shmcma_eq_wait(struct fid *fid)
{
	return &container_of(fid, struct shmcma_eq, fid.fid)->wait;
}

static int eq_try(struct shmcma_wait *wait, bool alone)
{
	struct shmcma_eq *eq = container_of(wait, struct shmcma_eq, wait);
	int64_t limit = INT64_MAX;
	int ret = -FI_EAGAIN;

	for (int round = 0; ret && round < TRY_ROUNDS; round++) {
		if (has_something(eq))
			return -FI_EAGAIN;
		(void)progress(eq);
		if (has_something(eq))
			return -FI_EAGAIN;
		ret = rest(eq, &limit);
	}
	return ret ? -FI_EAGAIN : 0;
}

static const struct shmcma_wait_ops wait_ops = { .try = eq_try };

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_eq, fid)->ops = &forked_ops;
	shmcma_wait_forked(shmcma_eq_wait(fid));
}

static int check_attr(const struct shmcma_fabric *fabric, const struct fi_eq_attr *attr)
{
	if (!attr)
		return -FI_EINVAL;
	if (attr->flags & ~(FI_WRITE | FI_AFFINITY))
		return -FI_EBADFLAGS;
	return shmcma_wait_check(fabric, attr->wait_obj, attr->wait_set);
}

int shmcma_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq, void *context)
{
	struct shmcma_eq *opened;
	int ret = check_attr(container_of(fabric, struct shmcma_fabric, fid), attr);

	if (ret)
		return ret;
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -FI_ENOMEM;
	ret = shmcma_wait_init(&opened->wait, attr->wait_obj, attr->wait_set, &wait_ops);
	if (ret) {
		free(opened);
		return ret;
	}
	opened->fid.fid = (struct fid){ .fclass = FI_CLASS_EQ, .context = context, .ops = &eq_fid_ops };
	opened->fid.ops = &eq_ops;
	opened->fabric = container_of(fabric, struct shmcma_fabric, fid);
	opened->writable = attr->flags & FI_WRITE;
	opened->limit = attr->size > EVENTS_MAX ? attr->size : EVENTS_MAX;
	list_init(&opened->events);
	list_init(&opened->errors);
	opened->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	atomic_fetch_add(&opened->fabric->refs, 1);
	shmcma_object_add(&opened->object, &opened->fid.fid, &opened->lock, forked);
	shmcma_wait_join(&opened->wait);
	*eq = &opened->fid;
	return 0;
}
