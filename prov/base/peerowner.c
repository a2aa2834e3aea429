/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peerowner.c: the structures of fi_peer(3), by which providers call each other, in the layout of the libfabric that
 * runs. Any thread.
 *
 * fi_peer(3) calls them developmental: they change between versions. So this file has copies of the three layouts that
 * there have been, chosen by fi_version(), and refuses a version that it does not know. A layout of the headers that
 * this file is compiled with is compared with them at compile time.
 *
 *   libfabric      an entry                                        get_msg, get_tag        foreach_unspec_addr
 *   1.17, 1.18     two links, head, tail                           (address, size or tag)  no
 *   1.19 to 1.22   two links, head, data, tail                     (address, size or tag)  yes
 *   2.0 to 2.2     two links, head, data, tail                     (attributes)            yes
 *   2.3 to 2.6     head, data, tail                                (attributes)            yes
 */
#include "base/peerowner.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include "base/provider.h"

#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION < 19
#include <rdma/fi_ext.h>
#else
#include <rdma/providers/fi_peer.h>
#endif

/* ---- structures ------------------------------------------------------------------------------ */

struct shmcma_cq_owner_ops {
	size_t size;
	ssize_t (*write)(struct shmcma_cq_owner *cq, void *context, uint64_t flags, size_t len, void *buf,
			 uint64_t data, uint64_t tag, fi_addr_t source);
	ssize_t (*writeerr)(struct shmcma_cq_owner *cq, const struct fi_cq_err_entry *entry);
};

struct shmcma_cntr_owner_ops {
	size_t size;
	void (*inc)(struct shmcma_cntr_owner *cntr);
	void (*incerr)(struct shmcma_cntr_owner *cntr);
};

/* The parts of an entry. */
struct head {
	struct shmcma_srx_owner *srx;
	fi_addr_t source;
	size_t size;
	uint64_t tag;
};

struct tail {
	uint64_t flags;
	void *context;
	size_t count;
	void **desc;
	void *peer_context, *owner_context;
	struct iovec *iov;
};

struct attributes {
	fi_addr_t source;
	size_t size;
	uint64_t tag;
};

typedef int get_entry(struct shmcma_srx_owner *srx, fi_addr_t source, uint64_t size_or_tag,
		      struct shmcma_rx_entry **entry);
typedef int get_entry_2(struct shmcma_srx_owner *srx, struct attributes *attributes,
			struct shmcma_rx_entry **entry);
typedef int use_entry(struct shmcma_rx_entry *entry);
typedef void free_entry(struct shmcma_rx_entry *entry);
typedef void name_entries(struct shmcma_srx_owner *srx, fi_addr_t (*get)(struct shmcma_rx_entry *entry));

struct ops_17 {
	size_t size;
	get_entry *get_msg, *get_tag;
	use_entry *queue_msg, *queue_tag;
	free_entry *free;
};

struct ops_19 {
	size_t size;
	get_entry *get_msg, *get_tag;
	use_entry *queue_msg, *queue_tag;
	name_entries *name;
	free_entry *free;
};

struct ops_20 {
	size_t size;
	get_entry_2 *get_msg, *get_tag;
	use_entry *queue_msg, *queue_tag;
	name_entries *name;
	free_entry *free;
};

/* The functions of all three begin the same way. */
struct ops {
	size_t size;
	union {
		get_entry *get_msg;
		get_entry_2 *get_msg_2;
	};
	union {
		get_entry *get_tag;
		get_entry_2 *get_tag_2;
	};
	use_entry *queue_msg, *queue_tag;
};

#define LINKS (2 * sizeof(void *))

/* Bytes from the beginning of an entry, of the table of the owner's functions. */
struct layout {
	uint32_t first, last;	   /* versions of libfabric */
	uint16_t head, data, tail; /* data 0: an entry has none */
	bool takes_attributes;
	uint16_t name, free; /* name 0: there is no such function */
	uint16_t ops_size;
};

static const struct layout layouts[] = {
	{ FI_VERSION(1, 17), FI_VERSION(1, 18), LINKS, 0, LINKS + sizeof(struct head), false, 0,
	  offsetof(struct ops_17, free), sizeof(struct ops_17) },
	{ FI_VERSION(1, 19), FI_VERSION(1, 22), LINKS, LINKS + sizeof(struct head),
	  LINKS + sizeof(struct head) + sizeof(uint64_t), false, offsetof(struct ops_19, name),
	  offsetof(struct ops_19, free), sizeof(struct ops_19) },
	{ FI_VERSION(2, 0), FI_VERSION(2, 2), LINKS, LINKS + sizeof(struct head),
	  LINKS + sizeof(struct head) + sizeof(uint64_t), true, offsetof(struct ops_20, name),
	  offsetof(struct ops_20, free), sizeof(struct ops_20) },
	{ FI_VERSION(2, 3), FI_VERSION(2, 6), 0, sizeof(struct head),
	  sizeof(struct head) + sizeof(uint64_t), true, offsetof(struct ops_20, name),
	  offsetof(struct ops_20, free), sizeof(struct ops_20) },
};

/* Fields of the headers that this file is compiled with. */
#define SAME(theirs, field, ours)                                                                         \
	_Static_assert(offsetof(struct theirs, field) == (ours), #theirs "." #field)
#define SIZE(theirs, ours) _Static_assert(sizeof(struct theirs) == (ours), #theirs)

#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION < 19
#define HEAD LINKS
#define TAIL (LINKS + sizeof(struct head))
SAME(fi_peer_rx_entry, size, HEAD + offsetof(struct head, size));
SIZE(fi_ops_srx_owner, sizeof(struct ops_17));
SAME(fi_ops_srx_owner, free_entry, offsetof(struct ops_17, free));
#elif FI_MAJOR_VERSION == 1
#define HEAD LINKS
#define TAIL (LINKS + sizeof(struct head) + sizeof(uint64_t))
SAME(fi_peer_rx_entry, size, HEAD + offsetof(struct head, size));
SAME(fi_peer_rx_entry, cq_data, HEAD + sizeof(struct head));
SIZE(fi_ops_srx_owner, sizeof(struct ops_19));
SAME(fi_ops_srx_owner, foreach_unspec_addr, offsetof(struct ops_19, name));
SAME(fi_ops_srx_owner, free_entry, offsetof(struct ops_19, free));
#else
#define HEAD (FI_MINOR_VERSION < 3 ? LINKS : 0)
#define TAIL (HEAD + sizeof(struct head) + sizeof(uint64_t))
SAME(fi_peer_rx_entry, msg_size, HEAD + offsetof(struct head, size));
SAME(fi_peer_rx_entry, cq_data, HEAD + sizeof(struct head));
SIZE(fi_peer_match_attr, sizeof(struct attributes));
SAME(fi_peer_match_attr, msg_size, offsetof(struct attributes, size));
SAME(fi_peer_match_attr, tag, offsetof(struct attributes, tag));
SIZE(fi_ops_srx_owner, sizeof(struct ops_20));
SAME(fi_ops_srx_owner, foreach_unspec_addr, offsetof(struct ops_20, name));
SAME(fi_ops_srx_owner, free_entry, offsetof(struct ops_20, free));
#endif
#if FI_MAJOR_VERSION > 1 || FI_MINOR_VERSION >= 19
SIZE(fid_peer_cntr, sizeof(struct shmcma_cntr_owner));
SIZE(fi_ops_cntr_owner, sizeof(struct shmcma_cntr_owner_ops));
SAME(fi_ops_cntr_owner, incerr, offsetof(struct shmcma_cntr_owner_ops, incerr));
#endif
SIZE(fi_peer_rx_entry, TAIL + sizeof(struct tail));
SAME(fi_peer_rx_entry, srx, HEAD + offsetof(struct head, srx));
SAME(fi_peer_rx_entry, addr, HEAD + offsetof(struct head, source));
SAME(fi_peer_rx_entry, tag, HEAD + offsetof(struct head, tag));
SAME(fi_peer_rx_entry, flags, TAIL + offsetof(struct tail, flags));
SAME(fi_peer_rx_entry, context, TAIL + offsetof(struct tail, context));
SAME(fi_peer_rx_entry, count, TAIL + offsetof(struct tail, count));
SAME(fi_peer_rx_entry, peer_context, TAIL + offsetof(struct tail, peer_context));
SAME(fi_peer_rx_entry, iov, TAIL + offsetof(struct tail, iov));
SAME(fi_ops_srx_owner, get_msg, offsetof(struct ops, get_msg));
SAME(fi_ops_srx_owner, get_tag, offsetof(struct ops, get_tag));
SAME(fi_ops_srx_owner, queue_msg, offsetof(struct ops, queue_msg));
SAME(fi_ops_srx_owner, queue_tag, offsetof(struct ops, queue_tag));
SIZE(fi_ops_srx_peer, sizeof(struct shmcma_srx_peer_ops));
SAME(fi_ops_srx_peer, discard_tag, offsetof(struct shmcma_srx_peer_ops, discard_tag));
SIZE(fid_peer_srx, sizeof(struct shmcma_srx_owner));
SAME(fid_peer_srx, owner_ops, offsetof(struct shmcma_srx_owner, ops));
SAME(fid_peer_srx, peer_ops, offsetof(struct shmcma_srx_owner, peer_ops));
SIZE(fi_peer_srx_context, sizeof(struct shmcma_owner_context));
SIZE(fid_peer_cq, sizeof(struct shmcma_cq_owner));
SAME(fid_peer_cq, owner_ops, offsetof(struct shmcma_cq_owner, ops));
SIZE(fi_ops_cq_owner, sizeof(struct shmcma_cq_owner_ops));
SAME(fi_ops_cq_owner, writeerr, offsetof(struct shmcma_cq_owner_ops, writeerr));
SIZE(fi_peer_cq_context, sizeof(struct shmcma_owner_context));

/* ---- the version that runs --------------------------------------------------------------------- */

/* Set once; NULL: the version is unknown. */
static const struct layout *layout;

static void choose(void)
{
	uint32_t version = fi_version();

	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (version >= layouts[i].first && version <= layouts[i].last)
			layout = &layouts[i];
	if (!layout)
		shmcma_warn(
			FI_LOG_CORE,
			"FI_PEER: libfabric %u.%u may have other structures for providers that use each "
			"other; shmcma knows those of 1.17 to 1.22 and 2.0 to 2.6, use one of these\n",
			FI_MAJOR(version), FI_MINOR(version));
}

bool shmcma_owner_is_known(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, choose);
	return layout;
}

bool shmcma_owner_lends(const struct shmcma_owner_context *context)
{
	return shmcma_owner_is_known() && layout->first == FI_VERSION(1, 19) && context && !context->size;
}

void *shmcma_owner_object(const char *call, const struct shmcma_owner_context *context)
{
	if (!shmcma_owner_is_known())
		return NULL;
	if (context && (context->size >= sizeof(*context) || shmcma_owner_lends(context)) &&
	    context->object)
		return context->object;
	shmcma_warn(FI_LOG_CORE, "%s: FI_PEER without an object of the other provider in its context\n",
		    call);
	return NULL;
}

bool shmcma_owner_matches(const struct shmcma_srx_owner *owner)
{
	const struct ops *ops = owner->ops;

	if (ops && ops->size >= layout->ops_size)
		return true;
	shmcma_warn(FI_LOG_CORE, "fi_srx_context: FI_PEER with a table of functions that is too short\n");
	return false;
}

/* ---- completion queue, counter ------------------------------------------------------------------ */

ssize_t shmcma_owner_write(struct shmcma_cq_owner *owner, const struct fi_cq_tagged_entry *entry,
			   fi_addr_t source)
{
	return owner->ops->write(owner, entry->op_context, entry->flags, entry->len, entry->buf,
				 entry->data, entry->tag, source);
}

ssize_t shmcma_owner_write_error(struct shmcma_cq_owner *owner, const union shmcma_any_err_entry *error)
{
	return owner->ops->writeerr(owner, &error->entry);
}

void shmcma_owner_count(struct shmcma_cntr_owner *owner, bool error)
{
	if (error)
		owner->ops->incerr(owner);
	else
		owner->ops->inc(owner);
}

/* ---- receive context ---------------------------------------------------------------------------- */

static struct head *head_of(struct shmcma_rx_entry *entry)
{
	return (struct head *)((char *)entry + layout->head);
}

static struct tail *tail_of(const struct shmcma_rx_entry *entry)
{
	return (struct tail *)((char *)entry + layout->tail);
}

int shmcma_owner_get(struct shmcma_srx_owner *owner, bool tagged, fi_addr_t source, size_t size,
		     uint64_t tag, struct shmcma_rx_entry **entry)
{
	struct attributes attributes = { .source = source, .size = size, .tag = tag };
	const struct ops *ops = owner->ops;

	if (layout->takes_attributes)
		return tagged ? ops->get_tag_2(owner, &attributes, entry)
			      : ops->get_msg_2(owner, &attributes, entry);
	return tagged ? ops->get_tag(owner, source, tag, entry) : ops->get_msg(owner, source, size, entry);
}

int shmcma_owner_queue(struct shmcma_srx_owner *owner, bool tagged, struct shmcma_rx_entry *entry,
		       void *message)
{
	const struct ops *ops = owner->ops;

	tail_of(entry)->peer_context = message;
	return tagged ? ops->queue_tag(entry) : ops->queue_msg(entry);
}

void shmcma_owner_free(struct shmcma_srx_owner *owner, struct shmcma_rx_entry *entry)
{
	free_entry *call;

	memcpy(&call, (const char *)owner->ops + layout->free, sizeof(call));
	call(entry);
}

void shmcma_owner_name(struct shmcma_srx_owner *owner, fi_addr_t (*get)(struct shmcma_rx_entry *entry))
{
	name_entries *call;

	if (!layout->name)
		return;
	memcpy(&call, (const char *)owner->ops + layout->name, sizeof(call));
	if (call)
		call(owner, get);
}

void *shmcma_entry_message(const struct shmcma_rx_entry *entry)
{
	return tail_of(entry)->peer_context;
}

void *shmcma_entry_context(const struct shmcma_rx_entry *entry)
{
	return tail_of(entry)->context;
}

uint64_t shmcma_entry_flags(const struct shmcma_rx_entry *entry)
{
	return tail_of(entry)->flags;
}

const struct iovec *shmcma_entry_iov(const struct shmcma_rx_entry *entry, size_t *count)
{
	*count = tail_of(entry)->count;
	return tail_of(entry)->iov;
}

void shmcma_entry_describe(struct shmcma_rx_entry *entry, size_t size, bool has_data, uint64_t data)
{
	head_of(entry)->size = size;
	if (!has_data)
		return;
	tail_of(entry)->flags |= FI_REMOTE_CQ_DATA;
	if (layout->data)
		memcpy((char *)entry + layout->data, &data, sizeof(data));
}
