/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.c: fid_cq. The core puts completions into the queue (struct sc_comp_ring) while an endpoint is polled; this file
 * takes them out in the format that the application chose. If a read in the widest format finds the queue empty, the
 * core writes most completions directly into the application's entries (struct sc_entry).
 *
 * Any thread may call; each read holds the queue's lock (lock.h), if there is one. Only fi_cq_signal() takes no lock.
 *
 * Order: a read returns queued completions first. It polls the bound endpoints if the queue is empty, else rarely
 * (FULL_READS): a reader that takes one entry at a time does not pay for a poll each time, and completions stay in
 * order.
 */
#include "obj/cq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "obj/avtable.h"
#include "obj/eq.h"
#include "obj/peermap.h"
#include "wait/polled.h"
#include "wait/wait.h"

#define DEFAULT_SIZE 1024
/* Entries allocated at first: the part that is always in use then stays in the first-level cache. */
#define FIRST_ENTRIES 256

/* Each format begins with the one before it. */
#define SAME(type, field, ours) \
	_Static_assert(offsetof(struct fi_cq_tagged_entry, field) == offsetof(struct type, ours), #field)
SAME(fi_cq_entry, op_context, op_context);
SAME(fi_cq_msg_entry, flags, flags);
SAME(fi_cq_msg_entry, len, len);
SAME(fi_cq_data_entry, buf, buf);
SAME(fi_cq_data_entry, data, data);

/* Completions that name a peer. */
#define FROM_PEER (SC_COMP_RECV | SC_COMP_WRITTEN)

/* ---- who sent it ----------------------------------------------------------------------------- */

/* Returns the bound endpoint that has this peer; NULL: it is closed. */
static struct shmcma_ep *owner_of(const struct shmcma_cq *cq, const struct sc_peer *peer)
{
	for (size_t i = 0; i < cq->polled.count; i++)
		if (cq->polled.eps[i]->core == sc_peer_ep(peer))
			return cq->polled.eps[i];
	return NULL;
}

static fi_addr_t source_slow(struct shmcma_cq *cq, const struct sc_comp *comp)
{
	struct shmcma_ep *ep;

	if (!(comp->flags & FROM_PEER) || !comp->source)
		return FI_ADDR_NOTAVAIL;
	ep = owner_of(cq, comp->source);
	return ep ? shmcma_ep_source_slow(ep, comp->source) : FI_ADDR_NOTAVAIL;
}

static inline fi_addr_t source_of(struct shmcma_cq *cq, const struct sc_comp *comp)
{
	fi_addr_t source = FI_ADDR_NOTAVAIL;

	if (comp->flags & FROM_PEER && comp->source)
		source = sc_peer_user(comp->source);
	return source == FI_ADDR_NOTAVAIL ? source_slow(cq, comp) : source;
}

/* FI_SOURCE_ERR: a message from a sender that is in no address vector is reported as an error. */
static bool is_stranger(const struct shmcma_cq *cq, const struct sc_comp *comp)
{
	const struct shmcma_ep *ep;

	if (comp->err || !(comp->flags & FROM_PEER) || !comp->source)
		return false;
	ep = owner_of(cq, comp->source);
	if (!ep || !(ep->caps & FI_SOURCE_ERR))
		return false;
	/* an address in the vector may have no name yet: fi_av_set_user_id() */
	return shmcma_av_find(ep->av, sc_peer_address(comp->source)) == FI_ADDR_NOTAVAIL &&
	       !shmcma_av_has(ep->av, sc_peer_address(comp->source));
}

/* ---- read ------------------------------------------------------------------------------------ */

/* A peer wrote here; the completion belongs to no operation of this endpoint. */
#define WRITTEN (FI_RMA | FI_REMOTE_WRITE)

/* A released multi-receive buffer without a message has only the flag FI_MULTI_RECV. */
static inline uint64_t flags_of(const struct sc_comp *comp)
{
	uint64_t flags = comp->flags & SC_COMP_WRITTEN ? WRITTEN : comp->cq_flags;

	if (__builtin_expect(!(comp->flags & ~SC_COMP_RECV), 1))
		return flags;
	if (__builtin_expect((comp->flags & (SC_COMP_MULTI_DONE | SC_COMP_RECV)) == SC_COMP_MULTI_DONE, 0))
		return FI_MULTI_RECV | (comp->err ? comp->cq_flags : 0);
	return flags | (comp->flags & SC_COMP_DATA ? FI_REMOTE_CQ_DATA : 0) |
	       (comp->flags & SC_COMP_MULTI_DONE ? FI_MULTI_RECV : 0);
}

#define INLINE static inline __attribute__((always_inline))

INLINE size_t entry_size(enum fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_TAGGED:
		return sizeof(struct fi_cq_tagged_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	default:
		return sizeof(struct fi_cq_entry);
	}
}

/* Writes only the fields of the format. */
INLINE void put_entry(struct fi_cq_tagged_entry *entry, const struct sc_comp *comp,
		      enum fi_cq_format format)
{
	entry->op_context = comp->context;
	if (format >= FI_CQ_FORMAT_MSG) {
		entry->flags = flags_of(comp);
		entry->len = comp->len;
	}
	if (format >= FI_CQ_FORMAT_DATA) {
		entry->buf = comp->buf;
		entry->data = comp->data;
	}
	if (format >= FI_CQ_FORMAT_TAGGED)
		entry->tag = comp->tag;
}

/*
 * Takes entries `n` up to `count`, or up to the first error, or unknown source if sources are asked for. Returns the
 * new `n`.
 */
INLINE size_t take(struct shmcma_cq *cq, void *buf, size_t n, size_t count, fi_addr_t *source,
		   enum fi_cq_format format)
{
	for (; n < count && !sc_comp_ring_is_empty(&cq->queue); n++) {
		const struct sc_comp *comp = sc_comp_ring_first(&cq->queue);

		if (__builtin_expect(comp->err, 0))
			break;
		if (source) {
			source[n] = source_of(cq, comp);
			if (__builtin_expect(source[n] == FI_ADDR_NOTAVAIL, 0) && is_stranger(cq, comp))
				break;
		}
		put_entry((void *)((char *)buf + n * entry_size(format)), comp, format);
		sc_comp_ring_release(&cq->queue);
	}
	return n;
}

fi_addr_t shmcma_cq_put_entry(struct shmcma_cq *cq, struct fi_cq_tagged_entry *entry,
			      const struct sc_comp *comp)
{
	put_entry(entry, comp, FI_CQ_FORMAT_TAGGED);
	return source_of(cq, comp);
}

/*
 * Completions were lost; no more will come. Reports this once to the event queue of each endpoint. Releases the lock while
 * it gives the signals, because they may wait for a thread of the application that waits for the lock.
 */
static ssize_t overrun_slow(struct shmcma_cq *cq)
{
	struct shmcma_wait *owed = NULL;
	const struct fi_eq_err_entry entry = { .fid = &cq->fid.fid,
					       .context = cq->fid.fid.context,
					       .err = FI_EOVERRUN };

	if (cq->overrun_reported)
		return -FI_EAVAIL;
	cq->overrun_reported = true;
	shmcma_warn(FI_LOG_CQ,
		    "completion queue overrun: no memory to grow it, completions were lost; read it "
		    "more often or raise the memory limit\n");
	for (size_t i = 0; i < cq->polled.count; i++) {
		struct shmcma_eq *eq = shmcma_ep_eq(cq->polled.eps[i]);

		if (eq)
			shmcma_eq_put_err_locked(eq, &entry, &owed);
	}
	shmcma_lock_leave(&cq->locked);
	shmcma_wait_give(owed);
	shmcma_lock_enter(&cq->locked);
	return -FI_EAVAIL;
}

/* Returns the result of a read of up to `count` entries that got none. */
static inline ssize_t nothing(struct shmcma_cq *cq, size_t count)
{
	const struct sc_comp *comp = sc_comp_ring_peek(&cq->queue);

	if (comp)
		return comp->err || count ? -FI_EAVAIL : 0; /* 0: no entry was asked for */
	return __builtin_expect(sc_comp_ring_is_overrun(&cq->queue), 0) ? overrun_slow(cq) : -FI_EAGAIN;
}

/* Every FULL_READS-th read of a queue that is not empty polls anyway: operations under way must not wait for ever. */
#define FULL_READS 16

/* The core writes entries of this format; completions with more fields go through the queue. */
_Static_assert(sizeof(struct sc_entry) == sizeof(struct fi_cq_tagged_entry), "entry");
SAME(sc_entry, op_context, context);
SAME(sc_entry, flags, cq_flags);
SAME(sc_entry, len, len);
SAME(sc_entry, buf, buf);
SAME(sc_entry, data, data);
SAME(sc_entry, tag, tag);

/* Polls. Returns the number of entries, up to `count`, that the poll has written past the queue, if it may. */
INLINE size_t poll_into(struct shmcma_cq *cq, void *buf, size_t count, bool by_passes)
{
	if (!by_passes || !count || sc_comp_ring_is_overrun(&cq->queue)) {
		shmcma_progress_locked(cq->domain, &cq->polled);
		return 0;
	}
	sc_comp_ring_by_pass(&cq->queue, buf, count);
	shmcma_progress_locked(cq->domain, &cq->polled);
	return sc_comp_ring_by_passed(&cq->queue, buf);
}

INLINE bool is_to_poll(struct shmcma_cq *cq, size_t count)
{
	return sc_comp_ring_is_empty(&cq->queue) || !count || ++cq->full_reads % FULL_READS == 0;
}

static __attribute__((noinline)) void enter_slow(struct shmcma_cq *cq)
{
	shmcma_lock_enter(&cq->locked);
	shmcma_wait_rise(&cq->wait);
}

/* If the lock is idle, no thread waits for the queue. */
INLINE ssize_t read_as(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source,
		       enum fi_cq_format format)
{
	struct shmcma_cq *cq = container_of(fid, struct shmcma_cq, fid);
	bool idle = shmcma_lock_is_idle(&cq->locked), due;
	size_t n = 0;
	ssize_t ret;

	if (!idle)
		enter_slow(cq);
	if (is_to_poll(cq, count))
		n = poll_into(cq, buf, count, format == FI_CQ_FORMAT_TAGGED && !source);
	n = take(cq, buf, n, count, source, format);
	due = !n && shmcma_yield_is_due(&cq->wait.yield);
	ret = __builtin_expect(n != 0, 1) ? (ssize_t)n : nothing(cq, count);
	if (!idle)
		shmcma_lock_leave(&cq->locked);
	if (__builtin_expect(due, 0))
		shmcma_yield_slow(&cq->wait.yield);
	return ret;
}

/* ---- blocking read --------------------------------------------------------------------------- */

/*
 * Signals are counted. A wait remembers the newest signal for which a call had returned when the wait began, and ends
 * when there is a newer one. So one signal ends all waits that are under way, and no thread takes it from another. A
 * signal for which no call has returned ends the next wait: a thread that reads a flag of the application and then waits
 * misses none.
 */
static bool differs(const struct shmcma_wait *wait, const void *known)
{
	return atomic_load(&container_of(wait, struct shmcma_cq, wait)->signals) != *(const unsigned int *)known;
}

/* A call returns for all signals so far. Another thread may have heard newer ones. */
static bool hear(struct shmcma_cq *cq, unsigned int known)
{
	unsigned int now = atomic_load(&cq->signals), heard = atomic_load(&cq->heard);

	if (now == known)
		return false;
	while ((int)(now - heard) > 0 && !atomic_compare_exchange_weak(&cq->heard, &heard, now))
		;
	return true;
}

bool shmcma_cq_has_entry(const struct shmcma_cq *cq)
{
	return cq->queue.head != cq->queue.tail || sc_comp_ring_is_overrun(&cq->queue);
}

static bool has(const struct shmcma_wait *wait)
{
	const struct shmcma_cq *cq = container_of(wait, struct shmcma_cq, wait);

	return shmcma_cq_has_entry(cq) || atomic_load(&cq->signals) != atomic_load(&cq->heard);
}

static bool found(struct shmcma_wait *wait)
{
	struct shmcma_cq *cq = container_of(wait, struct shmcma_cq, wait);

	return hear(cq, atomic_load(&cq->heard)) || shmcma_cq_has_entry(cq);
}

static const struct shmcma_polled *polled(const struct shmcma_wait *wait)
{
	return &container_of(wait, struct shmcma_cq, wait)->polled;
}

static const struct shmcma_wait_ops wait_ops = { polled, has, found, differs, shmcma_wait_try };

/*
 * A wait condition is only a hint (fi_cq(3)): the first entry ends the wait. So do fi_cq_signal() and, once, a post that
 * was refused (armed.c). A signal to the thread ends only a wait without a time-out.
 */
SHMCMA_CALL(ssize_t, cq_sreadfrom, struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source, const void *cond,
	    int timeout)
{
	struct shmcma_cq *cq = container_of(fid, struct shmcma_cq, fid);
	unsigned int known = atomic_load(&cq->heard);
	int64_t end = shmcma_wait_end(timeout);
	struct shmcma_patience patience = { 0 };
	bool ends = false;

	if (cq->wait.obj == FI_WAIT_NONE || cq->wait.obj == FI_WAIT_SET)
		return -FI_ENOSYS;
	for (;;) {
		ssize_t ret = fid->ops->readfrom(fid, buf, count, source);

		if (ret != -FI_EAGAIN)
			return ret;
		if (hear(cq, known) || ends)
			return -FI_EAGAIN;
		if (end != INT64_MAX && sc_clock_ns() >= end)
			return -FI_EAGAIN;
		ret = shmcma_wait_rest(&cq->wait, &known, &patience, end);
		ends = ret == -FI_EAGAIN || (ret && end == INT64_MAX);
	}
}

SHMCMA_CALL(ssize_t, cq_sread, struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

SHMCMA_CALL(int, cq_signal, struct fid_cq *fid)
{
	struct shmcma_cq *cq = container_of(fid, struct shmcma_cq, fid);

	if (cq->wait.obj == FI_WAIT_NONE)
		return -FI_ENOSYS;
	atomic_fetch_add(&cq->signals, 1);
	shmcma_wait_signal_all(&cq->wait);
	return 0;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Reports a completion as an error because of its source. `entry` has the values that the application has passed. */
static void put_stranger(struct shmcma_cq *cq, struct fi_cq_err_entry *entry, const struct sc_comp *comp)
{
	bool sized = FI_VERSION_GE(cq->domain->api_version, FI_VERSION(1, 5));
	size_t room = sized ? entry->err_data_size : 0;

	entry->err = entry->prov_errno = FI_EADDRNOTAVAIL;
	if (sc_addr_first(sc_peer_address(comp->source), cq->stranger))
		return;
	if (room)
		memcpy(entry->err_data, cq->stranger, room < SC_ADDR_SIZE ? room : SC_ADDR_SIZE);
	else
		entry->err_data = cq->stranger;
	if (sized)
		entry->err_data_size = room && room < SC_ADDR_SIZE ? room : SC_ADDR_SIZE;
}

/*
 * Does not write fields that the application's version of the API does not have: err_data_size came with 1.5, src_addr
 * with 1.20; the latter is for authorization keys alone. The only provider specific data is an unknown sender's
 * address; else a buffer for it stays as it is.
 */
void shmcma_cq_put_error(struct shmcma_cq *cq, struct fi_cq_err_entry *entry, const struct sc_comp *comp)
{
	bool sized = FI_VERSION_GE(cq->domain->api_version, FI_VERSION(1, 5));

	if (FI_VERSION_GE(cq->domain->api_version, FI_VERSION(1, 20)))
		((struct shmcma_cq_err_entry *)entry)->src_addr = FI_ADDR_NOTAVAIL;
	entry->op_context = comp->context;
	entry->flags = flags_of(comp);
	entry->len = comp->len;
	entry->buf = comp->buf;
	entry->data = comp->flags & SC_COMP_DATA ? comp->data : 0;
	entry->tag = comp->tag;
	entry->olen = comp->err ? comp->olen : 0;
	entry->err =
		comp->err == EMSGSIZE && comp->cq_flags & FI_RECV ? FI_ETRUNC : -shmcma_error(-comp->err);
	entry->prov_errno = comp->err == SC_EFAULT_RECEIVER || comp->err == SC_EIO_INITIATOR ? comp->err
											      : entry->err;
	if (is_stranger(cq, comp)) {
		put_stranger(cq, entry, comp);
		return;
	}
	if (!sized || !entry->err_data_size)
		entry->err_data = NULL;
	if (sized)
		entry->err_data_size = 0;
}

SHMCMA_CALL(ssize_t, cq_readerr, struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags)
{
	struct shmcma_cq *cq = container_of(fid, struct shmcma_cq, fid);
	static const struct sc_comp lost = { .err = FI_EOVERRUN };
	const struct sc_comp *comp;
	ssize_t ret = 1;

	if (flags)
		return -FI_EBADFLAGS;
	shmcma_lock_enter(&cq->locked);
	comp = sc_comp_ring_peek(&cq->queue);
	if (comp && (comp->err || is_stranger(cq, comp))) {
		shmcma_cq_put_error(cq, entry, comp);
		sc_comp_ring_release(&cq->queue);
	} else if (!comp && sc_comp_ring_is_overrun(&cq->queue)) {
		overrun_slow(cq);
		shmcma_cq_put_error(cq, entry, &lost);
	} else {
		ret = -FI_EAGAIN;
	}
	shmcma_lock_leave(&cq->locked);
	return ret;
}

/*
 * Returns the failure and the remedy as text. prov_errno is the code in `err`, or also tells which side's memory
 * failed.
 */
static const char *text_of(int code)
{
	switch (code) {
	case FI_ETRUNC:
		return "Truncated: the message was longer than the buffer; len bytes were delivered, olen were not; "
		       "post larger buffers";
	case FI_EKEYREJECTED:
		return "Key rejected: the peer has no registration with this key, or closed it before the operation "
		       "was over; exchange keys anew, and close a registration after its last use";
	case FI_EACCES:
		return "Access denied: the registration does not allow it; register with FI_REMOTE_READ or "
		       "FI_REMOTE_WRITE as needed";
	case FI_EINVAL:
		return "Out of bounds: address and length are not within the registered memory; see whether the "
		       "peer's mr_mode has FI_MR_VIRT_ADDR (addresses) or not (offsets from 0)";
	case FI_EIO:
		return "Memory fault: the target's registered memory is not mapped, or not writable; olen bytes are "
		       "known to have been moved; close a registration before its memory is unmapped";
	case SC_EIO_INITIATOR:
		return "Memory fault: the initiator's local buffer is not mapped, or a get's is not writable; olen "
		       "bytes are known to have been moved; it has to stay until the operation completes";
	case FI_EFAULT:
		return "Bad address: the sender's buffer could not be read; it has to stay mapped until the send "
		       "completes";
	case SC_EFAULT_RECEIVER:
		return "Bad address: the receiver's buffer could not be written; it has to stay mapped and writable "
		       "until the receive completes";
	case FI_ECONNRESET:
		return "Connection reset: the peer closed its endpoint or ended; insert its new address if it comes "
		       "back";
	case FI_EBUSY:
		return "Full: as many peers are connected to the target, or to this endpoint, which it has to "
		       "answer, as FI_SHMCMA_PEERS allows there; the next operation tries again, or raise that limit";
	case FI_ECONNABORTED:
		return "Connection aborted: the peer broke the protocol or is of another version; use one version of "
		       "the provider everywhere";
	case FI_EADDRNOTAVAIL:
		return "Unknown source: the message has arrived whole; insert the sender's address, which is in "
		       "err_data, to have it by number from now on";
	case FI_EOVERRUN:
		return "Overrun: there was no memory for more completions; read the queue more often";
	default:
		return fi_strerror(code);
	}
}

const char *shmcma_cq_strerror(struct fid_cq *fid, int prov_errno, const void *err_data, char *buf,
			       size_t len)
{
	const char *text = text_of(prov_errno < 0 ? -prov_errno : prov_errno);

	if (!buf || !len)
		return text;
	strncpy(buf, text, len - 1);
	buf[len - 1] = '\0';
	return buf;
}

/* ---- one table per format -------------------------------------------------------------------- */

#define OPS(reads, way)                                                                                   \
	{                                                                                                 \
		.size = sizeof(union shmcma_ops_cq), .read = reads##_read, .readfrom = reads##_readfrom,  \
		.readerr = way##cq_readerr, .sread = way##cq_sread, .sreadfrom = way##cq_sreadfrom,       \
		.signal = way##cq_signal, .strerror = shmcma_cq_strerror, .export_xpu = shmcma_no_export, \
	}
#define FORMAT_OPS(name, format)                                                                          \
	static ssize_t name##_read(struct fid_cq *fid, void *buf, size_t count)                           \
	{                                                                                                 \
		return read_as(fid, buf, count, NULL, format);                                            \
	}                                                                                                 \
	static ssize_t name##_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *source)    \
	{                                                                                                 \
		return read_as(fid, buf, count, source, format);                                          \
	}                                                                                                 \
	static union shmcma_ops_cq name##_ops = OPS(name, );
FORMAT_OPS(context, FI_CQ_FORMAT_CONTEXT)
FORMAT_OPS(msg, FI_CQ_FORMAT_MSG)
FORMAT_OPS(data, FI_CQ_FORMAT_DATA)
FORMAT_OPS(tagged, FI_CQ_FORMAT_TAGGED)

SHMCMA_FORKED_CALL(ssize_t, cq_read, struct fid_cq *cq, void *buf, size_t count)
SHMCMA_FORKED_CALL(ssize_t, cq_readfrom, struct fid_cq *cq, void *buf, size_t count, fi_addr_t *source)
static union shmcma_ops_cq forked_ops = OPS(forked_cq, forked_);

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_cq, fid)->ops = &forked_ops.ops;
	shmcma_wait_forked(&container_of(fid, struct shmcma_cq, fid.fid)->wait);
}

/* ---- binding --------------------------------------------------------------------------------- */

void shmcma_cq_del_ep(struct shmcma_cq *cq, struct shmcma_ep *ep)
{
	for (size_t i = cq->queue.head; i != cq->queue.tail; i++) {
		struct sc_comp *comp = &cq->queue.ring[i & cq->queue.mask];

		if (comp->flags & FROM_PEER && comp->source && owner_of(cq, comp->source) == ep)
			comp->source = NULL;
	}
	shmcma_polled_del(&cq->polled, ep);
}

/* ---- open, close ----------------------------------------------------------------------------- */

static int cq_close(struct fid *fid)
{
	struct shmcma_cq *cq = container_of(fid, struct shmcma_cq, fid.fid);

	if (atomic_load(&cq->refs))
		return -FI_EBUSY;
	shmcma_object_del(&cq->object);
	shmcma_wait_fini(&cq->wait);
	shmcma_lock_quit(cq->domain, &cq->locked);
	sc_comp_ring_fini(&cq->queue);
	atomic_fetch_sub(&cq->domain->refs, 1);
	shmcma_polled_fini(&cq->polled);
	free(cq);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct shmcma_cq *cq = container_of(fid, struct shmcma_cq, fid.fid);

	return shmcma_wait_control(&cq->wait, command, arg);
}

static struct fi_ops cq_fid_ops = SHMCMA_FID_OPS(cq_close, shmcma_no_bind, cq_control);

/* Unspecified: the provider chooses, and its entries fit into any reader's buffer. */
static struct fi_ops_cq *const formats[] = {
	[FI_CQ_FORMAT_UNSPEC] = &context_ops.ops, [FI_CQ_FORMAT_CONTEXT] = &context_ops.ops,
	[FI_CQ_FORMAT_MSG] = &msg_ops.ops,	  [FI_CQ_FORMAT_DATA] = &data_ops.ops,
	[FI_CQ_FORMAT_TAGGED] = &tagged_ops.ops,
};

static int check_attr(const struct shmcma_fabric *fabric, const struct fi_cq_attr *attr)
{
	if (attr->flags & ~FI_AFFINITY) {
		shmcma_warn(FI_LOG_CQ, "completion queue flags 0x%llx: only FI_AFFINITY is known\n",
			    (unsigned long long)attr->flags);
		return -FI_EBADFLAGS;
	}
	if ((unsigned int)attr->format > FI_CQ_FORMAT_TAGGED) {
		shmcma_warn(FI_LOG_CQ, "completion queue format %d is unknown\n", (int)attr->format);
		return -FI_EINVAL;
	}
	if (attr->wait_obj != FI_WAIT_NONE && attr->wait_cond != FI_CQ_COND_NONE &&
	    attr->wait_cond != FI_CQ_COND_THRESHOLD) {
		shmcma_warn(FI_LOG_CQ, "wait condition %d is unknown\n", (int)attr->wait_cond);
		return -FI_EINVAL;
	}
	return shmcma_wait_check(fabric, attr->wait_obj, attr->wait_set);
}

int shmcma_cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	static const struct fi_cq_attr defaults;
	const struct fi_cq_attr *wanted = attr ? attr : &defaults;
	struct shmcma_cq *cq;
	int ret;

	ret = check_attr(container_of(fid, struct shmcma_domain, fid)->fabric, wanted);
	if (ret)
		return ret;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	ret = sc_comp_ring_init(&cq->queue, FIRST_ENTRIES);
	if (ret)
		goto no_queue;
	ret = shmcma_wait_init(&cq->wait, wanted->wait_obj, wanted->wait_set, &wait_ops);
	if (ret)
		goto no_wait;
	cq->queue.limit = wanted->size ? wanted->size : DEFAULT_SIZE;
	cq->fid.fid = (struct fid){ .fclass = FI_CLASS_CQ, .context = context, .ops = &cq_fid_ops };
	cq->fid.ops = formats[wanted->format];
	cq->domain = container_of(fid, struct shmcma_domain, fid);
	cq->format = wanted->format ? wanted->format : FI_CQ_FORMAT_CONTEXT;
	cq->wait.domain = cq->domain;
	cq->wait.locked = &cq->locked;
	shmcma_lock_join(cq->domain, &cq->locked, false);
	atomic_fetch_add(&cq->domain->refs, 1);
	shmcma_object_add(&cq->object, &cq->fid.fid, NULL, forked);
	shmcma_wait_join(&cq->wait);
	*out = &cq->fid;
	return 0;

no_wait:
	sc_comp_ring_fini(&cq->queue);
no_queue:
	free(cq);
	return ret;
}
