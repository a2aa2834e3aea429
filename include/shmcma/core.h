/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core.h: the interface of the core for prov/, test/ and util/.
 *
 * The core knows endpoints, peers, messages, registered memory, completion queues and counters; it knows
 * nothing of libfabric.
 * Functions return 0 or a negative errno unless they say otherwise.
 *
 * Threads: an endpoint, its receive queue and the completion queues and counters bound to it are used by one
 * thread at a time; the caller serializes. Endpoints that share none of these are independent. While a thread creates
 * or destroys an endpoint with a registration table, or ends a registration, no other thread uses the table or any of
 * its endpoints; while a thread registers memory, no other thread does any of these (but see sc_reg_wants_all()).
 */
#ifndef SHMCMA_CORE_H
#define SHMCMA_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct sc_ep;
struct sc_peer;
struct sc_rxq;

/* ---- log ------------------------------------------------------------------------------------- */

enum sc_log_level { SC_LOG_WARN, SC_LOG_INFO };

/* Where the core's messages go: one line without newline. NULL: nowhere (the default). */
void sc_log_set(void (*sink)(enum sc_log_level level, const char *line));

/* ---- time and threads ------------------------------------------------------------------------ */

/* Nanoseconds of CLOCK_MONOTONIC, which nobody can set. */
int64_t sc_clock_ns(void);

/*
 * Start a thread in which all signals are blocked: they are the application's. `stack`: bytes, 0: as many as the
 * application's threads have. Negative errno, as of pthread_create(3).
 */
int sc_thread_start(pthread_t *thread, size_t stack, void *(*body)(void *), void *arg);

/* ---- process --------------------------------------------------------------------------------- */

/*
 * Tells whether this process may make files in shared memory, as each endpoint does. Returns 0, or a negative errno; the
 * first failure of a process is a warning in the log.
 */
int sc_host_check(void);

/*
 * Remove what dead processes of this user have left in shared memory (segments and service names).
 * Returns the number of names removed. Never touches a live process's.
 */
int sc_reap_scan(void);

/*
 * The same of files whose names do not tell the user: those of earlier versions, and of services in user namespaces. It
 * looks at each name of that kind, other users' too, so that only a person asks for it, not each endpoint.
 */
int sc_reap_scan_unsure(void);

/* A file of this user's, and of this library's or an earlier version, in shared memory. */
struct sc_reap_file {
	const char *name; /* in /dev/shm */
	bool dead;	  /* sc_reap_scan() would remove it */
	int pid;	  /* the owner's, while it lives; 0: not visible from here */
	uint64_t bytes;	  /* of memory */
};

/* Show each of them, and remove none. 0, or -errno: the directory cannot be read. */
int sc_reap_list(void (*show)(const struct sc_reap_file *file, void *arg), void *arg);

/*
 * The end of a process: end the core's thread, and remove the names of segments that were not closed. Not in a
 * forked child.
 */
void sc_process_fini(void);

/*
 * Are the processes of this user that have endpoints, and may run on a processor of this process's affinity mask, more
 * than the processors of that mask? The answer is at most a second old; once a second the call reads the names in
 * /dev/shm (0.3 us each), else it takes 30 ns. False when that cannot be told. Any thread.
 */
bool sc_oversub_is_here(void);

/*
 * How many of these bytes of this process can be read, from the first on: for what may be no address at all. Fewer
 * where that cannot be found out.
 */
size_t sc_probe_readable(const void *at, size_t len);

/* ---- addresses ------------------------------------------------------------------------------- */

/*
 * An endpoint's address, 63 characters and NUL:
 *   fi_shmcma://<host 11 hex>-<uid 8 hex>-<pid 8 hex>-<nonce 16 hex>-<endpoint 4 hex>
 * or, shorter, that of a service: fi_shmcma://<service>, 1 to 51 characters of [A-Za-z0-9._:@+-] that
 * are not of the first form. `host` names the boot of the machine and its /dev/shm.
 */
#define SC_ADDR_SIZE 64
#define SC_ADDR_PREFIX "fi_shmcma://"

/*
 * Several endpoints can go by one name, see struct sc_ep_name: their addresses differ in the last number
 * alone, and agree in so many characters. Others' do not.
 */
#define SC_ADDR_STEM 58

enum sc_addr_kind { SC_ADDR_INVALID, SC_ADDR_ENDPOINT, SC_ADDR_SERVICE };

/* Which of the two forms the string has, reading at most SC_ADDR_SIZE bytes. */
enum sc_addr_kind sc_addr_kind(const char *addr);

/* Write the address of a service into addr[SC_ADDR_SIZE]; -EINVAL: not a possible name. */
int sc_addr_service(const char *service, char *addr);

/* The address, out[SC_ADDR_SIZE], of the `index`th behind that one (endpoint form) under its name. -EINVAL. */
int sc_addr_context(const char *addr, uint16_t index, char *out);

/* The address, out[SC_ADDR_SIZE], of the first under that one's name: the one that others insert. -EINVAL. */
int sc_addr_first(const char *addr, char *out);

/*
 * Find the live endpoint that an address of either form means; out[SC_ADDR_SIZE] gets its endpoint
 * form. -EINVAL: no address; -EHOSTUNREACH: of another machine, boot or /dev/shm; -ECONNREFUSED: nobody
 * has that name, or its owner is dead; -EACCES, -EPROTO: the file in its place is not an endpoint's.
 */
int sc_addr_resolve(const char *addr, char *out);

/* ---- directories ----------------------------------------------------------------------------- */

/*
 * Addresses by number, under a name of the same kind as a service's: one process writes, others of this user
 * read. A reader keeps what there is when the writer has ended.
 */
struct sc_directory;

#define SC_DIRECTORY_MAX 65536

/* -EINVAL: no possible name, or capacity; -EADDRINUSE: a live process has it; -ENOSPC, -ENOMEM... */
int sc_directory_create(const char *name, uint32_t capacity, struct sc_directory **directory);
/* To read. -ENOENT: there is none, or its writer has ended; -EPROTO: of another version; others as above. */
int sc_directory_open(const char *name, struct sc_directory **directory);
void sc_directory_close(struct sc_directory *directory);

/* By the writer. Each number below the capacity gets an address once, and can lose it; others: -ENOSPC. */
uint32_t sc_directory_capacity(const struct sc_directory *directory);
int sc_directory_put(struct sc_directory *directory, uint32_t number, const char *addr);
void sc_directory_del(struct sc_directory *directory, uint32_t number);

/* Numbers below this may have an address; false: this one has none. addr[SC_ADDR_SIZE] is one that can be. */
uint32_t sc_directory_count(const struct sc_directory *directory);
bool sc_directory_get(const struct sc_directory *directory, uint32_t number, char *addr);

/* The numbers as the file has them: UINT64_MAX where there is no address. */
const uint64_t *sc_directory_numbers(const struct sc_directory *directory);

/* ---- completion queue ------------------------------------------------------------------------ */

/*
 * A completion. err is 0 or a positive errno: EMSGSIZE a message was truncated (len delivered, olen lost),
 * ECANCELED withdrawn by sc_rx_cancel(), ENOMSG nothing to peek at, ECONNRESET the peer closed or died,
 * EFAULT the sender's buffer could not be read, SC_EFAULT_RECEIVER the receiver's could not be written, EPROTO the
 * peer broke the protocol. One-sided operations: EKEYREJECTED no such key, or it was closed before or while it was
 * used; EACCES the key does not allow it; EINVAL not within the registered memory; EIO registered memory that is not
 * mapped, or not writable, SC_EIO_INITIATOR a local buffer that is so; then olen is the bytes that are known to have
 * been moved.
 */
#define SC_EFAULT_RECEIVER 4001 /* EFAULT and EIO of the other side's memory: no codes of errno(3), of either side */
#define SC_EIO_INITIATOR 4002
struct sc_comp {
	void *context;
	size_t len;    /* bytes received (receive operations), or size of the message (peek) */
	void *buf;     /* multi-receive: where the message begins; else NULL or the buffer */
	uint64_t data; /* with SC_COMP_DATA */
	uint64_t tag;
	struct sc_peer *source; /* receive operations: the sender; SC_COMP_WRITTEN: the writer */
	size_t olen; /* with err alone; of a receive: bytes that did not fit, 0 but for EMSGSIZE */
	union {
		struct {
			uint32_t cq_flags; /* as the operation was posted with: opaque to the core */
			uint16_t err;
			uint16_t flags; /* SC_COMP_* */
		};
		uint64_t said; /* these three, see comp_ring.h */
	};
};

#define SC_COMP_MULTI_DONE (1u << 0) /* the multi-receive buffer is the application's again */
#define SC_COMP_DATA (1u << 1)	     /* `data` is valid */
#define SC_COMP_RECV (1u << 2)	     /* a receive operation: `source` is valid */
#define SC_COMP_WRITTEN (1u << 3)    /* no operation: a peer wrote to registered memory, with `data` */

/* The part of a completion that a reader mostly needs: of a receive that has ended well, without data. */
struct sc_entry {
	void *context;
	uint64_t cq_flags;
	size_t len;
	void *buf;
	uint64_t data, tag;
};

/*
 * A first-in first-out queue of completions, private memory, single thread. Grows as needed; when
 * memory for that cannot be had it is overrun: the completions that it holds can still be read, then nothing ever.
 */
struct sc_comp_ring {
	struct sc_comp *ring;
	size_t mask;	   /* entries - 1; entries is a power of two */
	size_t head, tail; /* monotonic; tail - head are queued */
	size_t limit;	   /* sends that would add to so many queued are pushed back; receives are not */
	size_t room;	   /* entries; 0: overrun */
	struct sc_entry *direct, *direct_end; /* see sc_comp_ring_by_pass() */
};

/* `entries` is where it begins and its limit, which may be changed. */
int sc_comp_ring_init(struct sc_comp_ring *cq, size_t entries);
void sc_comp_ring_fini(struct sc_comp_ring *cq);
/* Add one; the core's way in, also for the provider's own (deferred work). */
void sc_comp_ring_put_slow(struct sc_comp_ring *cq, const struct sc_comp *comp);

/*
 * For one poll, of a queue that is empty: completions that such entries tell all of are put there, as long as there is
 * room and no other has been queued, instead of into the queue. Ends with sc_comp_ring_by_passed(), which returns how many.
 */
static inline void sc_comp_ring_by_pass(struct sc_comp_ring *cq, struct sc_entry *entries, size_t count)
{
	cq->direct = entries;
	cq->direct_end = entries + count;
}

static inline size_t sc_comp_ring_by_passed(struct sc_comp_ring *cq, const struct sc_entry *entries)
{
	size_t count = (size_t)(cq->direct - entries);

	cq->direct = cq->direct_end;
	return count;
}

static inline bool sc_comp_ring_is_empty(const struct sc_comp_ring *cq)
{
	return cq->head == cq->tail;
}

/* The oldest of a queue that is not empty. It stays valid until it is released. */
static inline struct sc_comp *sc_comp_ring_first(struct sc_comp_ring *cq)
{
	return &cq->ring[cq->head & cq->mask];
}

/* That, or NULL. */
static inline struct sc_comp *sc_comp_ring_peek(struct sc_comp_ring *cq)
{
	return sc_comp_ring_is_empty(cq) ? NULL : sc_comp_ring_first(cq);
}

/* Completions were lost, and all that come will be. */
static inline bool sc_comp_ring_is_overrun(const struct sc_comp_ring *cq)
{
	return !cq->room;
}

static inline void sc_comp_ring_release(struct sc_comp_ring *cq)
{
	cq->head++;
}

/* ---- counters -------------------------------------------------------------------------------- */

/*
 * Operations of one kind that have ended, well and badly. The core adds to it, serialized as the endpoint is; others
 * may read it at any time, each word by an atomic load.
 */
struct sc_cntr {
	uint64_t value, errors;
};

/*
 * Adds to one word of a counter; the caller is serialized as above. Release: a reader of the word finds the data of the
 * counted operations.
 */
static inline void sc_cntr_add(uint64_t *word, uint64_t more)
{
	__atomic_store_n(word, *word + more, __ATOMIC_RELEASE); /* pairs with sc_cntr_read() */
}

static inline uint64_t sc_cntr_read(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE); /* pairs with sc_cntr_add() */
}

/* The events that an endpoint counts. A fetching atomic is a read, others are writes. */
enum sc_event {
	SC_EVENT_SEND,
	SC_EVENT_RECV,
	SC_EVENT_READ,
	SC_EVENT_WRITE,
	SC_EVENT_REMOTE_READ, /* by peers, of registered memory, through this endpoint */
	SC_EVENT_REMOTE_WRITE,
	SC_EVENTS
};

/* ---- registered memory ----------------------------------------------------------------------- */

/*
 * The registrations of a domain: memory that peers may read and write, through each of the endpoints that were created
 * with this table. Threads: see above.
 */
struct sc_regtab;
struct sc_reg;

int sc_regtab_create(struct sc_regtab **regtab);
/* No endpoint uses it and nothing is registered any more. */
void sc_regtab_destroy(struct sc_regtab *regtab);

#define SC_REG_READ (1u << 0)	 /* peers may read it */
#define SC_REG_WRITE (1u << 1)	 /* peers may write it */
#define SC_REG_EVENT (1u << 2)	 /* accesses of peers are counted */
#define SC_REG_KEY (1u << 3)	 /* attr.key is to be its key */
#define SC_REG_VIRTUAL (1u << 4) /* named by the address of its first byte, else from 0 on */

#define SC_REG_RANGES_MAX 1024

struct sc_reg_attr {
	const struct iovec *ranges; /* up to SC_REG_RANGES_MAX; copied */
	size_t range_count;
	uint64_t key; /* with SC_REG_KEY */
	uint32_t flags;
	struct sc_cntr *reads, *writes; /* with SC_REG_EVENT, each may be NULL */
};

/*
 * Register memory. Several ranges are one behind the other for those who name them by offset; with
 * SC_REG_VIRTUAL too, from the first one's address on. Nothing is done to the memory itself.
 * -ENOKEY: the key is taken; -EINVAL: more ranges, or more bytes than there are; -ENOMEM; -ENOSPC: no
 * shared memory, or as many registrations as there may be; -EPERM: this is a forked child of the process that made the
 * table.
 */
int sc_reg_open(struct sc_regtab *regtab, const struct sc_reg_attr *attr, struct sc_reg **reg);

/* Is nobody to use the table's endpoints while the next with these flags is registered? Now and then it is so. */
bool sc_reg_wants_all(const struct sc_regtab *regtab, uint32_t flags);

uint64_t sc_reg_key(const struct sc_reg *reg);

/* The counters for accesses of peers to it from now on; each may be NULL. */
void sc_reg_set_cntrs(struct sc_reg *reg, struct sc_cntr *reads, struct sc_cntr *writes);

/*
 * End the registration: peers that use the key from now on get EKEYREJECTED; returns when none copies under
 * it any more. A dead peer counts as none. -EBUSY: one of them is stopped in the middle of a copy, or has
 * not come to its end for 5 seconds; the key is of no use any more, the memory is not the caller's yet;
 * call again.
 */
int sc_reg_close(struct sc_reg *reg);

/* ---- endpoint -------------------------------------------------------------------------------- */

/* How bounce buffers are filled, see fill.h. */
enum sc_fill_way {
	SC_FILL_CACHED,
	SC_FILL_STREAMED,
	SC_FILL_WAYS,
	SC_FILL_TRIED = SC_FILL_WAYS
};

struct sc_config {
	uint32_t slots;	       /* peers that may connect to an endpoint, 1 to 1024 */
	uint32_t buf_size;     /* a bounce buffer, bytes, a multiple of 64 */
	uint32_t buf_count;    /* bounce buffers of an endpoint; fewer are taken when memory is short */
	uint32_t inline_max;   /* largest payload in a record, bytes */
	uint32_t eager_max;    /* largest payload through bounce buffers without rendezvous, bytes */
	bool eager_adapts;     /* less of that goes through them to peers where a copy by CMA is found faster */
	uint64_t window;       /* units (SC_ABI_UNITS) that a peer may leave unmatched here */
	uint32_t share_min;    /* smallest rendezvous that both sides copy, bytes; UINT32_MAX: none */
	enum sc_fill_way fill; /* SC_FILL_TRIED: trials find the best for each peer */
	bool cma;	       /* this process may copy by process_vm_readv(2) */
	bool daemon;	       /* a thread of this process watches those of peers, see daemon.c */
	bool calibrate;	       /* that thread measures what is the machine's, unless it is known */
	bool scan;	       /* that thread looks through shared memory now and then, without a reason */
	bool strict;	       /* peers do not touch registered memory; this process does it for them */
};

/* The defaults, overridden by nothing. */
void sc_config_init(struct sc_config *config);

/*
 * A name for several endpoints of this process, which their senders can tell from each other: the contexts of one that
 * is scalable. To receivers they are one source.
 */
struct sc_ep_name {
	uint64_t nonce[2];
};

/* -EIO and others: no random numbers. */
int sc_ep_name_init(struct sc_ep_name *name);

/*
 * Operations of one kind to one peer are done in the order in which they are posted, but for reads and writes
 * against atomics. Any further order has a cost for the endpoint that asks for it: an operation may have to wait, in
 * the peer's ring or with -EAGAIN, for one before it that could not be done at once.
 */
#define SC_ORDER_MEMORY (1u << 0)     /* reads and writes, and atomics, against each other */
#define SC_ORDER_AFTER_SEND (1u << 1) /* these, when the peer has taken in what was sent before */
#define SC_ORDER_SEND (1u << 2)	      /* messages, when those posted before are done */
/* Completions of sends and one-sided operations to one peer come in the order in which these were posted. */
#define SC_ORDER_COMPLETE (1u << 3)
/* Those of receives come in the order in which the messages of one peer have been matched. */
#define SC_ORDER_RECEIVE (1u << 4)

/*
 * An index is had again once its endpoint is destroyed: its peers that send there find the new one. But the new one
 * is not to send before they have, as they may still have messages of the last one's; so an index that has sent
 * messages is better left alone.
 */
struct sc_ep_attr {
	struct sc_config config;
	const struct sc_ep_name *name; /* NULL: one of its own */
	uint16_t index;		       /* under that name, each one's alone, see below */
	const char *service;	       /* also be found under this service name; NULL: none */
	struct sc_comp_ring *tx_cq;	       /* completions of sends go here; NULL: sends complete silently */
	struct sc_comp_ring *rx_cq;
	struct sc_cntr *cntrs[SC_EVENTS]; /* NULL: not counted */
	struct sc_regtab *regtab;	  /* memory that peers may access through it; NULL: none */
	size_t tx_size;	    /* operations that may be outstanding; more are taken as memory allows */
	size_t rx_size;	    /* receives that may be posted; likewise */
	struct sc_rxq *rxq; /* shared with other endpoints, rx_size is its own; NULL: one for itself */
	bool rx_report;	    /* shared: receives that are SC_SILENT are not, here */
	uint32_t order;	    /* SC_ORDER_* */
	/*
	 * Does the caller know that address (endpoint form, of any endpoint of its name)? As long as it does, what is known of
	 * a peer that has gone is kept. NULL: no. Called, with knows_arg, where the endpoint is used.
	 */
	bool (*knows)(void *arg, const char *addr);
	void *knows_arg;
};

/*
 * Create the endpoint and its segment. -EADDRINUSE: the service, or the index, has a live owner; -ENOSPC: shared memory
 * is full; -ENAMETOOLONG/-EINVAL: bad service name; others from the system.
 */
int sc_ep_create(const struct sc_ep_attr *attr, struct sc_ep **ep);

/*
 * Departs: peers get what was published, then see it closed. Pending operations end without completion.
 * Waits for peers that copy registered memory through it, as sc_reg_close() does; one that is stopped has 5
 * seconds.
 */
void sc_ep_destroy(struct sc_ep *ep);

/* Its address, in the endpoint form. */
const char *sc_ep_address(const struct sc_ep *ep);

/*
 * Make progress: take in what peers have sent, go on with what is pending. Completions go to the bound
 * queues. Returns the number of records and steps done; 0: nothing to do.
 */
int sc_ep_poll(struct sc_ep *ep);

/* ---- calibration ----------------------------------------------------------------------------- */

/*
 * Costs of copies on this machine, measured once for each boot and user, and kept in a file in /dev/shm. Nanoseconds.
 */
struct sc_calibration {
	/* a copy by process_vm_readv(2): to begin with, and for each KiB */
	uint32_t cma_start, cma_per_kib;
	/* into a bounce buffer and out again: within one core's cache, and between two that share none */
	uint32_t near_per_kib, far_per_kib;
	int64_t time; /* when it was measured, seconds since 1970 */
};

/*
 * Measure it, by this thread: a millisecond or less. -ERANGE: not to be believed; -ENOTSUP: this processor has no
 * stores past its caches; -EPERM, -ENOSYS: no cross memory attach; -ENOMEM.
 */
int sc_calibration_measure(struct sc_calibration *calibration);

/*
 * Reads the calibration that is kept. -ENOENT: there is none; -ESTALE: of another boot or machine; -EPROTO, -EACCES: no
 * file of this library's.
 */
int sc_calibration_load(struct sc_calibration *calibration);

/* Keep it in place of the last one. -EEXIST: another process has just kept its own; -ENOSPC, -EPERM... */
int sc_calibration_store(const struct sc_calibration *calibration);

/* Unless it is there, measure and keep it. Errors are logged. */
void sc_calibration_make(void);

/* Where it is kept. */
#define SC_CALIBRATION_PATH_MAX 112
void sc_calibration_path(char path[SC_CALIBRATION_PATH_MAX]);

/*
 * How large eager messages are to be at least, because up to there bounce buffers are faster wherever two processes
 * run, and at most, because beyond a rendezvous is. Bytes.
 */
void sc_calibration_limits(const struct sc_calibration *calibration, uint32_t *least, uint32_t *most);

/* Set what follows from it. */
void sc_calibration_apply(const struct sc_calibration *calibration, struct sc_config *config);

/* ---- sleep ----------------------------------------------------------------------------------- */

/* A futex, and the value that says that nothing has happened yet. */
struct sc_sleep {
	uint32_t *futex;
	uint32_t seen;
};
#define SC_SLEEPS_MAX 128

#define SC_REST_FOREVER INT64_MAX

/*
 * There is nothing to do for the endpoint, says the caller, which has just polled it: from now on a process or thread
 * that gives it something to do wakes the threads that sleep on *sleep. Afterwards either -EAGAIN: there is something,
 * poll; or 0: it may be slept on until *limit at most (nanoseconds of CLOCK_MONOTONIC; lowered, if need be). A thread
 * that has slept polls, and asks again.
 */
int sc_ep_rest(struct sc_ep *ep, struct sc_sleep *sleep, int64_t *limit);

/* The same for one that polls and sends nothing of its own: a refused send does not concern it. */
int sc_ep_rest_poller(struct sc_ep *ep, struct sc_sleep *sleep, int64_t *limit);

/*
 * Has nothing been begun since the last poll that goes on with polls? If so, the sleeping thread has to poll: it may be
 * another thread than the one that has posted.
 */
bool sc_ep_is_idle(const struct sc_ep *ep);

/*
 * Has a send been refused for want of room since this was last asked? A thread that sleeps then is woken when there is
 * room, although room is no completion.
 */
bool sc_ep_was_refused(struct sc_ep *ep);

/* None of this process's threads sleeps on it: nobody need wake one. */
void sc_ep_rise(struct sc_ep *ep);

/* Wake all who sleep on it; any thread. */
void sc_ep_wake(const struct sc_ep *ep);

/* The same, but it adds no wake to the count: a thread that counts wakes looks at something else. As sc_ep_rest(). */
void sc_ep_stir(struct sc_ep *ep);

/*
 * The words to sleep on, as they are now; any thread. The upper 16 bits of `seen` have changed once some thread has
 * woken the endpoint.
 */
struct sc_sleep sc_ep_sleep(const struct sc_ep *ep);

/*
 * Sleep until one of them has changed, or until `end` (CLOCK_MONOTONIC, ns; INT64_MAX: no end). 0: look; -EINTR,
 * -ETIMEDOUT; -ENOSYS: the kernel cannot wait for that many at once (one is always possible).
 */
int sc_sleep(const struct sc_sleep *sleeps, int count, int64_t end);

/* Change a futex of this process's own, and wake those who sleep on it. Any thread. */
void sc_sleep_bump(uint32_t *futex);

/* Bytes below which sc_tx_send() accepts SC_SEND_INJECT whatever the state of the receiver. */
#define SC_INJECT_MAX 4096
/* Bytes of a message. */
#define SC_MESSAGE_MAX (SIZE_MAX / 2)
#define SC_IOV_MAX 16

/* Whole life of the endpoint, for reports and tests. */
struct sc_counters {
	uint64_t tx_msgs, tx_bytes, tx_inline, tx_bounce, tx_rdv;
	uint64_t tx_overflows; /* buffers that rings without room have overflowed into */
	uint64_t rx_msgs, rx_bytes, rx_unexpected;
	uint64_t rx_cma_bytes;		    /* copied by process_vm_readv(2) */
	uint64_t rx_pulled_bytes;	    /* rendezvous payload through bounce buffers */
	uint64_t rx_local_bytes;	    /* rendezvous payload inside this process */
	uint64_t shared_bytes;		    /* of rendezvous payload: copied by the sending side, here */
	uint64_t rma_ops, rma_direct_bytes; /* one-sided, begun here; moved by CMA or memcpy() here */
	uint64_t rma_requests, rma_served;  /* asked of others; done for others */
	uint64_t rma_delegated, rma_delegated_taken; /* small ones that others may do; that they did */
	uint64_t rma_batched;		       /* put off, to be copied with others */
	uint64_t rma_assisted;		       /* large ones that their target has copied along */
	uint64_t connects, accepts, refusals, quarantines, departures, deaths;
};
const struct sc_counters *sc_ep_counters(const struct sc_ep *ep);

/* ---- peer ------------------------------------------------------------------------------------ */

/*
 * The peer with that address (endpoint form); made on first use, without touching shared memory. Valid
 * until sc_peer_put(), once for each time, or sc_ep_destroy(). -ENOMEM, -EINVAL. A peer that a completion names is valid
 * as long as that is in its queue.
 */
int sc_peer_get(struct sc_ep *ep, const char *addr, struct sc_peer **peer);
void sc_peer_put(struct sc_peer *peer);

/* The caller knows that address no more, see struct sc_ep_attr. */
void sc_peers_unknown(struct sc_ep *ep, const char *addr);

/* How many are known of. */
size_t sc_peers_count(const struct sc_ep *ep);

/*
 * Has an endpoint with that address (of a scalable one: any context of it) come to this one, be it gone since? Of
 * those that have been forgotten the last SC_DEPARTED_MAX are known.
 */
#define SC_DEPARTED_MAX 256
bool sc_peers_have_heard(const struct sc_ep *ep, const char *addr);

const char *sc_peer_address(const struct sc_peer *peer);

/* The endpoint that it is a peer of. */
struct sc_ep *sc_peer_ep(const struct sc_peer *peer);

/* A word of the caller's with each peer, UINT64_MAX at first. */
uint64_t sc_peer_user(const struct sc_peer *peer);
void sc_peer_set_user(struct sc_peer *peer, uint64_t user);

/* ---- receive queues --------------------------------------------------------------------------- */

/*
 * Where receives are posted, and messages wait for them: that of one endpoint, or shared by several, whose
 * messages it matches in the order in which they are taken in. Receives that end without a message (peek,
 * cancel) are reported by the endpoint that joined first, or by nobody if there is none.
 */
int sc_rxq_create(size_t size, struct sc_rxq **rxq);
/* No endpoint has it any more. Posted receives are forgotten. */
void sc_rxq_destroy(struct sc_rxq *rxq);

/* That of the endpoint, be it its own or shared. */
struct sc_rxq *sc_ep_rxq(struct sc_ep *ep);

/* ---- messages -------------------------------------------------------------------------------- */

/* Both directions: which matching queue. */
#define SC_TAGGED (1u << 0)
/* No completion when it succeeds. */
#define SC_SILENT (1u << 2)
/*
 * Every operation may have a counter of its own, `cntr`: it is counted there too or, if it is SC_SILENT,
 * there instead of where the endpoint counts. NULL: where the endpoint counts.
 */

/* Of an operation, by value: one register. */
struct sc_op_flags {
	uint32_t flags;	   /* SC_TAGGED, SC_SILENT and its kind's */
	uint32_t cq_flags; /* value for its completion: opaque to the core */
};

#define SC_SEND_DATA (1u << 1)	   /* `data` goes with the message */
#define SC_SEND_INJECT (1u << 3)   /* the buffer is the caller's again on return; at most SC_INJECT_MAX */
#define SC_SEND_DELIVERY (1u << 4) /* complete when the payload is in the receiver's buffer */
#define SC_SEND_MATCH (1u << 5)	   /* complete when it is matched or discarded */
#define SC_SEND_FENCE (1u << 6)	   /* after all earlier operations to this peer have completed */

struct sc_send {
	const struct iovec *iov; /* up to SC_IOV_MAX */
	size_t iov_count;
	uint64_t tag;
	uint64_t data;
	void *context;
	uint32_t cq_flags;
	uint32_t flags;
	struct sc_cntr *cntr;
};

/*
 * Send a message. The payload must stay untouched until it completes. -EAGAIN: no room just now (ring,
 * window, fence, memory): call sc_ep_poll() and try again; -EMSGSIZE: more than SC_MESSAGE_MAX, or than
 * SC_INJECT_MAX; -ECONNREFUSED, -ECONNRESET, -EHOSTUNREACH...: the peer cannot be had (the log says why), now
 * and later; nothing was sent.
 */
int sc_tx_send(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send);

/* Of a message, by value: two registers. */
struct sc_tag_data {
	uint64_t tag, data;
};

/* The same of one buffer, without a counter of its own: what most messages are, in registers as far as they go. */
int sc_tx_send_buf(struct sc_peer *peer, struct iovec payload, struct sc_tag_data word, struct sc_op_flags flags,
		   void *context);

/* The free part of tx_size. */
size_t sc_tx_room(const struct sc_ep *ep);

#define SC_RECV_MULTI (1u << 1)	  /* one buffer (iov_count 1) for many messages */
#define SC_RECV_PEEK (1u << 3)	  /* report a waiting message: completes now, with err ENOMSG if none */
#define SC_RECV_CLAIM (1u << 4)	  /* with PEEK: set it aside for `context`; alone: receive that one */
#define SC_RECV_DISCARD (1u << 5) /* with PEEK or CLAIM: drop it */

struct sc_recv {
	const struct iovec *iov; /* up to SC_IOV_MAX; iov_count 0: a buffer of 0 bytes */
	size_t iov_count;
	struct sc_peer *source; /* NULL: any; else all of its name, whichever endpoint's it is */
	uint64_t tag;		/* matches send tags equal to it outside `ignore`; 0 if not SC_TAGGED */
	uint64_t ignore;
	void *context;
	uint32_t cq_flags;
	size_t multi_min; /* SC_RECV_MULTI: give the buffer back when fewer bytes are left */
	uint32_t flags;
	struct sc_cntr *cntr;
};

/*
 * Post a receive. -EAGAIN: no memory just now; -EINVAL: CLAIM of a message that was not claimed
 * with this context; -ECONNRESET and others: `source` has been lost, and left no message that fits, or
 * nobody has its address (-ECONNREFUSED). The first receive from a source that has not come connects to it. A waiting
 * message is received in this call (up to one piece of a large one). A receive from a source that is lost later
 * completes with that error, after what the source had sent.
 */
int sc_rxq_recv(struct sc_rxq *rxq, const struct sc_recv *recv);
/* The same of one buffer, with no flags but SC_TAGGED and SC_SILENT, without a counter of its own. */
int sc_rxq_recv_buf(struct sc_rxq *rxq, struct sc_peer *source, void *buf, size_t size, uint64_t tag,
		    uint64_t ignore, struct sc_op_flags flags, void *context);
int sc_rx_recv(struct sc_ep *ep, const struct sc_recv *recv);

/*
 * Withdraw the newest receive posted with this context: it completes with err ECANCELED.
 * -ENOENT: none is waiting (matched already, or never posted).
 */
int sc_rxq_cancel(struct sc_rxq *rxq, const void *context);
int sc_rx_cancel(struct sc_ep *ep, const void *context);

/* The free part of rx_size. */
size_t sc_rxq_room(const struct sc_rxq *rxq);
size_t sc_rx_room(const struct sc_ep *ep);

/* ---- one-sided ------------------------------------------------------------------------------- */

/* Memory of a peer. */
struct sc_remote {
	uint64_t addr; /* as the registration has it, see SC_REG_VIRTUAL */
	uint64_t len;  /* bytes */
	uint64_t key;
};
#define SC_REMOTE_MAX 8

#define SC_RMA_WRITE (1u << 7) /* to the peer; else from it */

/*
 * The flags are SC_RMA_WRITE, SC_SILENT, SC_SEND_DELIVERY (which is how all complete), _FENCE; of writes
 * _DATA and _INJECT too, which mean nothing to others.
 */
struct sc_rma {
	const struct iovec *iov; /* up to SC_IOV_MAX, as many bytes as the remote side */
	size_t iov_count;
	const struct sc_remote *remote; /* up to SC_REMOTE_MAX */
	size_t remote_count;
	uint64_t data; /* with SC_SEND_DATA, writes: a completion there, once the bytes are */
	void *context;
	uint32_t cq_flags;
	uint32_t flags;
	struct sc_cntr *cntr;
};

/*
 * Read or write registered memory of a peer. An error of the remote side is the completion's error; errors of the call
 * as sc_tx_send(), and -EINVAL: unequal lengths.
 */
int sc_rma_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_rma *rma);

enum sc_atomic_kind { SC_ATOMIC_BASE, SC_ATOMIC_FETCH, SC_ATOMIC_COMPARE };

/* In the order of libfabric's enum fi_datatype and enum fi_op. */
enum sc_atomic_type {
	SC_INT8,
	SC_UINT8,
	SC_INT16,
	SC_UINT16,
	SC_INT32,
	SC_UINT32,
	SC_INT64,
	SC_UINT64,
	SC_FLOAT,
	SC_DOUBLE,
	SC_FLOAT_COMPLEX,
	SC_DOUBLE_COMPLEX,
	SC_LONG_DOUBLE,
	SC_LONG_DOUBLE_COMPLEX,
	SC_INT128,
	SC_UINT128,
	SC_ATOMIC_TYPES
};

enum sc_atomic_code {
	SC_MIN,
	SC_MAX,
	SC_SUM,
	SC_PROD,
	SC_LOR,
	SC_LAND,
	SC_BOR,
	SC_BAND,
	SC_LXOR,
	SC_BXOR,
	SC_ATOMIC_READ,
	SC_ATOMIC_WRITE,
	SC_CSWAP,
	SC_CSWAP_NE,
	SC_CSWAP_LE,
	SC_CSWAP_LT,
	SC_CSWAP_GE,
	SC_CSWAP_GT,
	SC_MSWAP,
	SC_ATOMIC_CODES
};

/* Bytes of one element, 0: no such type. */
size_t sc_atomic_size(enum sc_atomic_type type);
/* Is there such an operation? Any values may be asked for. */
bool sc_atomic_valid(enum sc_atomic_kind kind, enum sc_atomic_type type, enum sc_atomic_code code);

/*
 * Leaves in target[0..count) the result of base operations of that code with each operand on the element in its place,
 * for memory that no other thread uses meanwhile: not atomic, any alignment. -EOPNOTSUPP.
 */
int sc_atomic_reduce(enum sc_atomic_type type, enum sc_atomic_code code, void *target,
		     const void *operands, size_t count);

/* Bytes of operands in one operation. */
#define SC_ATOMIC_MAX 4096

/* Lengths are in bytes, whole elements. The flags are those of struct sc_rma. */
struct sc_atomic {
	enum sc_atomic_kind kind;
	enum sc_atomic_type type;
	enum sc_atomic_code code;
	const struct iovec *iov; /* operands; copied before the call returns. SC_ATOMIC_READ: none */
	size_t iov_count;
	const struct iovec *compare; /* SC_ATOMIC_COMPARE; copied before the call returns */
	size_t compare_count;
	const struct iovec *result; /* FETCH and COMPARE: former values; up to SC_IOV_MAX */
	size_t result_count;
	const struct sc_remote *remote;
	size_t remote_count;
	void *context;
	uint32_t cq_flags;
	uint32_t flags;
	struct sc_cntr *cntr;
};

/* Done by the peer's processor when it makes progress. Errors as sc_rma_post(); -EOPNOTSUPP: no such one. */
int sc_atomic_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_atomic *atomic);

#endif
