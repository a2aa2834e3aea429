/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * owner.h: for tests, a provider that owns a completion queue, a counter and a receive context, and shares them with
 * the provider under test, as fi_peer(3) has it and as libfabric's lnx does. The shared structures of a receive
 * context have the layout of the libfabric that runs, by fi_version(3). Header only; one thread.
 */
#ifndef TEST_OWNER_H
#define TEST_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION < 19
#include <rdma/fi_ext.h>
#else
#include <rdma/providers/fi_peer.h>
#endif

#define OWNER_DONE_MAX 256
#define OWNER_IOV_MAX 4
#define OWNER_ERROR_SIZE 80 /* of struct fi_cq_err_entry in 1.17 */

/* A completion that the provider has given. */
struct owner_done {
	void *context, *buf;
	uint64_t flags, data, tag;
	size_t len, olen;
	fi_addr_t source;
	int err; /* positive */
};

/* ---- what is shared of a receive context -------------------------------------------------------- */

/* Since 1.17, 1.19, 2.0 and 2.3. */
enum owner_layout { OWNER_17, OWNER_19, OWNER_20, OWNER_23 };

static inline enum owner_layout owner_layout(void)
{
	uint32_t version = fi_version();

	if (version < FI_VERSION(1, 19))
		return OWNER_17;
	if (version < FI_VERSION(2, 0))
		return OWNER_19;
	return version < FI_VERSION(2, 3) ? OWNER_20 : OWNER_23;
}

struct owner_entry;

/* struct fi_ops_srx_peer */
struct owner_peer_ops {
	size_t size;
	int (*start_msg)(struct owner_entry *entry);
	int (*start_tag)(struct owner_entry *entry);
	int (*discard_msg)(struct owner_entry *entry);
	int (*discard_tag)(struct owner_entry *entry);
};

/* struct fid_peer_srx */
struct owner_srx {
	struct fid_ep ep;
	const void *ops; /* by layout */
	struct owner_peer_ops *peer_ops;
};

/* struct fi_peer_rx_entry, in parts */
struct owner_head {
	struct owner_srx *srx;
	fi_addr_t addr;
	size_t size;
	uint64_t tag;
};

struct owner_tail {
	uint64_t flags;
	void *context;
	size_t count;
	void **desc;
	void *peer_context, *owner_context;
	struct iovec *iov;
};

struct owner_entry_17 {
	void *next, *prev;
	struct owner_head head;
	struct owner_tail tail;
};

struct owner_entry_19 { /* and 2.0 */
	void *next, *prev;
	struct owner_head head;
	uint64_t data;
	struct owner_tail tail;
};

struct owner_entry_23 {
	struct owner_head head;
	uint64_t data;
	struct owner_tail tail;
};
_Static_assert(sizeof(struct owner_entry_17) == 104, "fi_peer_rx_entry of 1.17");
_Static_assert(sizeof(struct owner_entry_19) == 112, "fi_peer_rx_entry of 1.19");
_Static_assert(sizeof(struct owner_entry_23) == 96, "fi_peer_rx_entry of 2.3");

/* struct fi_peer_match_attr */
struct owner_attr {
	fi_addr_t addr;
	size_t size;
	uint64_t tag;
};

/* struct fi_ops_srx_owner */
struct owner_srx_ops_17 {
	size_t size;
	int (*get_msg)(struct owner_srx *srx, fi_addr_t addr, size_t size, struct owner_entry **entry);
	int (*get_tag)(struct owner_srx *srx, fi_addr_t addr, uint64_t tag, struct owner_entry **entry);
	int (*queue_msg)(struct owner_entry *entry);
	int (*queue_tag)(struct owner_entry *entry);
	void (*free_entry)(struct owner_entry *entry);
};

struct owner_srx_ops_19 {
	size_t size;
	int (*get_msg)(struct owner_srx *srx, fi_addr_t addr, size_t size, struct owner_entry **entry);
	int (*get_tag)(struct owner_srx *srx, fi_addr_t addr, uint64_t tag, struct owner_entry **entry);
	int (*queue_msg)(struct owner_entry *entry);
	int (*queue_tag)(struct owner_entry *entry);
	void (*foreach_unspec_addr)(struct owner_srx *srx, fi_addr_t (*get)(struct owner_entry *entry));
	void (*free_entry)(struct owner_entry *entry);
};

struct owner_srx_ops_20 { /* and 2.3 */
	size_t size;
	int (*get_msg)(struct owner_srx *srx, struct owner_attr *attr, struct owner_entry **entry);
	int (*get_tag)(struct owner_srx *srx, struct owner_attr *attr, struct owner_entry **entry);
	int (*queue_msg)(struct owner_entry *entry);
	int (*queue_tag)(struct owner_entry *entry);
	void (*foreach_unspec_addr)(struct owner_srx *srx, fi_addr_t (*get)(struct owner_entry *entry));
	void (*free_entry)(struct owner_entry *entry);
};

/* A receive, or a message that waits for one. */
struct owner_entry {
	union {
		struct owner_entry_17 v17;
		struct owner_entry_19 v19;
		struct owner_entry_23 v23;
	} shared; /* first: the provider has its address */
	struct owner_head *head;
	uint64_t *data; /* NULL: the layout has none */
	struct owner_tail *tail;
	struct owner_entry *next;
	uint64_t ignore;
	struct iovec iov[OWNER_IOV_MAX];
};

/* ---- the owner ----------------------------------------------------------------------------------- */

struct owner_queue {
	struct owner_entry *first;
};

/* Counters have their structures since 1.19 only; these are the same. */
struct owner_cntr;

struct owner_cntr_ops {
	size_t size;
	void (*inc)(struct owner_cntr *cntr);
	void (*incerr)(struct owner_cntr *cntr);
};

struct owner_cntr {
	struct fid fid;
	const struct owner_cntr_ops *ops;
	uint64_t value, errors;
};

struct owner {
	struct fid_peer_cq cq; /* first */
	struct owner_srx srx;
	struct owner_cntr cntr;
	struct owner_done done[OWNER_DONE_MAX];
	size_t done_count, done_read;
	struct owner_queue posted[2], waiting[2]; /* [tagged] */
	int entries;				  /* allocated, and not freed yet */
	unsigned calls;				  /* of all functions below */
	enum fi_wait_obj wait_obj;		  /* with which it opens queue and counter */
	bool refuses;				  /* takes no completion now */
	bool unfit;				  /* takes no waiting message now */
	void (*asked)(void); /* called when the provider asks for a receive; NULL: nothing is */
};

/* ---- called by the provider -------------------------------------------------------------------- */

static inline struct owner *owner_of_cq(struct fid_peer_cq *cq)
{
	return (struct owner *)cq;
}

static inline struct owner *owner_of_srx(struct owner_srx *srx)
{
	return srx->ep.fid.context; /* the provider may pass a copy */
}

static inline ssize_t owner_write(struct fid_peer_cq *cq, void *context, uint64_t flags, size_t len,
				  void *buf, uint64_t data, uint64_t tag, fi_addr_t source)
{
	struct owner *owner = owner_of_cq(cq);

	owner->calls++;
	if (owner->refuses || owner->done_count == OWNER_DONE_MAX)
		return -FI_EAGAIN;
	owner->done[owner->done_count++] = (struct owner_done){
		.context = context,
		.buf = buf,
		.flags = flags,
		.len = len,
		.data = data,
		.tag = tag,
		.source = source,
	};
	return 0;
}

static inline ssize_t owner_writeerr(struct fid_peer_cq *cq, const struct fi_cq_err_entry *error)
{
	struct owner *owner = owner_of_cq(cq);
	struct owner_done *done;

	owner->calls++;
	if (owner->refuses || owner->done_count == OWNER_DONE_MAX)
		return -FI_EAGAIN;
	done = &owner->done[owner->done_count++];
	*done = (struct owner_done){ .context = error->op_context,
				     .flags = error->flags,
				     .len = error->len,
				     .olen = error->olen,
				     .data = error->data,
				     .tag = error->tag,
				     .err = error->err };
	/* src_addr, since 1.20: an owner of that version reads it */
	memcpy(&done->source, (const char *)error + OWNER_ERROR_SIZE, sizeof(done->source));
	return 0;
}

static inline void owner_inc(struct owner_cntr *cntr)
{
	cntr->value++;
}

static inline void owner_incerr(struct owner_cntr *cntr)
{
	cntr->errors++;
}

static inline struct owner_entry *owner_entry_new(struct owner *owner)
{
	struct owner_entry *made = calloc(1, sizeof(*made));

	switch (owner_layout()) {
	case OWNER_17:
		made->head = &made->shared.v17.head;
		made->tail = &made->shared.v17.tail;
		break;
	case OWNER_19:
	case OWNER_20:
		made->head = &made->shared.v19.head;
		made->data = &made->shared.v19.data;
		made->tail = &made->shared.v19.tail;
		break;
	case OWNER_23:
		made->head = &made->shared.v23.head;
		made->data = &made->shared.v23.data;
		made->tail = &made->shared.v23.tail;
		break;
	}
	made->head->srx = &owner->srx;
	made->tail->iov = made->iov;
	owner->entries++;
	return made;
}

static inline void owner_append(struct owner_queue *queue, struct owner_entry *entry)
{
	struct owner_entry **link = &queue->first;

	while (*link)
		link = &(*link)->next;
	*link = entry;
	entry->next = NULL;
}

static inline void owner_remove(struct owner_queue *queue, struct owner_entry *entry)
{
	struct owner_entry **link = &queue->first;

	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
}

/* Does this receive take a message of that source and tag? */
static inline bool owner_fits(fi_addr_t wanted, uint64_t tag, uint64_t ignore, fi_addr_t source,
			      uint64_t its_tag)
{
	return (wanted == FI_ADDR_UNSPEC || wanted == source) && ((tag ^ its_tag) & ~ignore) == 0;
}

static inline int owner_get(struct owner_srx *srx, bool tagged, fi_addr_t source, uint64_t tag,
			    struct owner_entry **entry)
{
	struct owner *owner = owner_of_srx(srx);
	struct owner_entry *found = owner->posted[tagged].first;

	owner->calls++;
	if (owner->asked)
		owner->asked();
	while (found && !owner_fits(found->head->addr, found->head->tag, found->ignore, source, tag))
		found = found->next;
	if (found) {
		owner_remove(&owner->posted[tagged], found);
		found->head->srx = srx;
		*entry = found;
		return 0;
	}
	found = owner_entry_new(owner);
	found->head->srx = srx;
	found->head->addr = source;
	found->head->tag = tag;
	found->tail->flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG);
	*entry = found;
	return -FI_ENOENT;
}

static inline int owner_get_msg(struct owner_srx *srx, fi_addr_t source, size_t size,
				struct owner_entry **entry)
{
	(void)size;
	return owner_get(srx, false, source, 0, entry);
}

static inline int owner_get_tag(struct owner_srx *srx, fi_addr_t source, uint64_t tag,
				struct owner_entry **entry)
{
	return owner_get(srx, true, source, tag, entry);
}

static inline int owner_get_msg_2(struct owner_srx *srx, struct owner_attr *attr,
				  struct owner_entry **entry)
{
	return owner_get(srx, false, attr->addr, 0, entry);
}

static inline int owner_get_tag_2(struct owner_srx *srx, struct owner_attr *attr,
				  struct owner_entry **entry)
{
	return owner_get(srx, true, attr->addr, attr->tag, entry);
}

static inline int owner_queue(struct owner_entry *entry, bool tagged)
{
	struct owner *owner = owner_of_srx(entry->head->srx);

	owner->calls++;
	if (owner->unfit)
		return -FI_ENOMEM;
	owner_append(&owner->waiting[tagged], entry);
	return 0;
}

static inline int owner_queue_msg(struct owner_entry *entry)
{
	return owner_queue(entry, false);
}

static inline int owner_queue_tag(struct owner_entry *entry)
{
	return owner_queue(entry, true);
}

static inline void owner_free(struct owner_entry *entry)
{
	struct owner *owner = owner_of_srx(entry->head->srx);

	owner->calls++;
	owner->entries--;
	free(entry);
}

static inline void owner_name(struct owner_srx *srx, fi_addr_t (*get)(struct owner_entry *))
{
	struct owner *owner = owner_of_srx(srx);

	owner->calls++;
	for (int tagged = 0; tagged < 2; tagged++)
		for (struct owner_entry *at = owner->waiting[tagged].first; at; at = at->next)
			if (at->head->addr == FI_ADDR_UNSPEC)
				at->head->addr = get(at);
}

/* ---- for the test -------------------------------------------------------------------------------- */

static inline void owner_init(struct owner *owner)
{
	static struct fi_ops_cq_owner cq_ops = { .size = sizeof(cq_ops),
						 .write = owner_write,
						 .writeerr = owner_writeerr };
	static const struct owner_cntr_ops cntr_ops = { sizeof(cntr_ops), owner_inc, owner_incerr };
	static const struct owner_srx_ops_17 ops_17 = { sizeof(ops_17),	 owner_get_msg,	  owner_get_tag,
							owner_queue_msg, owner_queue_tag, owner_free };
	static const struct owner_srx_ops_19 ops_19 = { sizeof(ops_19),	 owner_get_msg,	  owner_get_tag,
							owner_queue_msg, owner_queue_tag, owner_name,
							owner_free };
	static const struct owner_srx_ops_20 ops_20 = { sizeof(ops_20),	 owner_get_msg_2, owner_get_tag_2,
							owner_queue_msg, owner_queue_tag, owner_name,
							owner_free };
	const void *const srx_ops[] = {
		[OWNER_17] = &ops_17, [OWNER_19] = &ops_19, [OWNER_20] = &ops_20, [OWNER_23] = &ops_20
	};

	memset(owner, 0, sizeof(*owner));
	owner->cq.owner_ops = &cq_ops;
	owner->cntr.ops = &cntr_ops;
	owner->srx.ep.fid.fclass = FI_CLASS_SRX_CTX;
	owner->srx.ep.fid.context = owner;
	owner->srx.ops = srx_ops[owner_layout()];
}

static inline int owner_open_cq(struct owner *owner, struct fid_domain *domain, struct fid_cq **cq)
{
	struct fi_peer_cq_context context = { sizeof(context), &owner->cq };
	struct fi_cq_attr attr = { .flags = FI_PEER, .wait_obj = owner->wait_obj };

	return fi_cq_open(domain, &attr, cq, &context);
}

static inline int owner_open_cntr(struct owner *owner, struct fid_domain *domain, struct fid_cntr **cntr)
{
	struct {
		size_t size;
		struct owner_cntr *cntr;
	} context = { sizeof(context), &owner->cntr };
	struct fi_cntr_attr attr = { .flags = FI_PEER, .wait_obj = owner->wait_obj };

	return fi_cntr_open(domain, &attr, cntr, &context);
}

struct owner_srx_context {
	size_t size;
	struct owner_srx *srx;
};

static inline int owner_open_srx(struct owner *owner, struct fid_domain *domain, struct fid_ep **srx)
{
	struct owner_srx_context context = { sizeof(context), &owner->srx };
	struct fi_rx_attr attr = { .op_flags = FI_PEER };

	return fi_srx_context(domain, &attr, srx, &context);
}

/*
 * As EFA of libfabric 1.19 to 1.22, which then binds the owner's own context, and has a table of functions there for its
 * own messages. The size in the context stays 0.
 */
static inline int owner_lend_srx(struct owner *owner, struct fid_domain *domain)
{
	static struct owner_peer_ops own_ops;
	struct owner_srx_context context = { .srx = &owner->srx };
	struct fi_rx_attr attr = { .op_flags = FI_PEER };
	struct fid_ep *unused;

	owner->srx.peer_ops = &own_ops;
	return fi_srx_context(domain, &attr, &unused, &context);
}

/* Makes the entry of a waiting message the one of this receive. */
static inline void owner_fill(struct owner_entry *entry, const struct iovec *iov, size_t count,
			      uint64_t flags, void *context)
{
	for (size_t i = 0; i < count; i++)
		entry->iov[i] = iov[i];
	entry->tail->count = count;
	entry->tail->context = context;
	entry->tail->flags |= flags;
}

/* Posts a receive: a waiting message gets it, or it is posted. The result of start_msg or start_tag; 1: it is posted. */
static inline int owner_recv(struct owner *owner, bool tagged, const struct iovec *iov, size_t count,
			     fi_addr_t source, uint64_t tag, uint64_t ignore, uint64_t flags,
			     void *context)
{
	struct owner_entry *entry = owner->waiting[tagged].first;

	while (entry && !owner_fits(source, tag, ignore, entry->head->addr, entry->head->tag))
		entry = entry->next;
	if (entry) {
		owner_remove(&owner->waiting[tagged], entry);
		owner_fill(entry, iov, count, flags, context);
		return (tagged ? entry->head->srx->peer_ops->start_tag
			       : entry->head->srx->peer_ops->start_msg)(entry);
	}
	entry = owner_entry_new(owner);
	entry->head->addr = source;
	entry->head->tag = tag;
	entry->ignore = ignore;
	owner_fill(entry, iov, count, flags | FI_RECV | (tagged ? FI_TAGGED : FI_MSG), context);
	owner_append(&owner->posted[tagged], entry);
	return 1;
}

/* Drops the oldest waiting message. */
static inline int owner_discard(struct owner *owner, bool tagged)
{
	struct owner_entry *entry = owner->waiting[tagged].first;
	int ret;

	owner_remove(&owner->waiting[tagged], entry);
	ret = (tagged ? entry->head->srx->peer_ops->discard_tag
		      : entry->head->srx->peer_ops->discard_msg)(entry);
	owner->entries--;
	free(entry);
	return ret;
}

#endif
