/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core.h: the interface of the core for prov/, test/ and util/.
 *
 * The core knows endpoints, peers, messages, registered memory, completion queues and counters; it knows nothing of
 * libfabric. Functions return 0 or a negative errno unless stated otherwise.
 *
 * Threads: one thread at a time uses an endpoint, its receive queue and the completion queues and counters bound to it;
 * the caller serializes. Endpoints that share none of these are independent. While a thread creates or destroys an
 * endpoint with a registration table, or ends a registration, no other thread uses the table or any of its endpoints.
 * While a thread registers memory, no other thread does any of these (but see sc_reg_wants_all()).
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
struct sc_rx_msg;
struct sc_rxq;

/* ---- log ------------------------------------------------------------------------------------- */

enum sc_log_level { SC_LOG_WARN, SC_LOG_INFO };

/* Sets the function that gets each line of the core's log, without newline. NULL (the default): no log. */
void sc_log_set(void (*sink)(enum sc_log_level level, const char *line));

/* ---- time and threads ------------------------------------------------------------------------ */

/* Returns nanoseconds of CLOCK_MONOTONIC. */
int64_t sc_clock_ns(void);

/*
 * Starts a thread with all signals blocked: they belong to the application. `stack`: bytes for its functions, without
 * its thread-local variables; 0: as the application's threads have. Negative errno, as of pthread_create(3).
 */
int sc_thread_start(pthread_t *thread, size_t stack, void *(*body)(void *), void *arg);

/* ---- process --------------------------------------------------------------------------------- */

/*
 * Tells whether this process may make files in shared memory, as each endpoint does. Returns 0, or a negative errno; the
 * first failure of a process is a warning in the log.
 */
int sc_host_check(void);

/*
 * Removes the files that dead processes of this user left in shared memory (segments and service names), never a live
 * process's. Returns the number of names removed.
 */
int sc_reap_scan(void);

/*
 * The same for files whose names do not tell the user: of services of user namespaces. It looks at each such name, also
 * of other users; so a person asks for it, not each endpoint.
 */
int sc_reap_scan_unsure(void);

/* A file in shared memory that this library has made for this user. */
struct sc_reap_file {
	const char *name; /* in /dev/shm */
	bool dead;	  /* sc_reap_scan() removes this file */
	int pid;	  /* the owner's, while it lives; 0: not visible from here */
	uint64_t bytes;	  /* of memory */
};

/* Calls show() for each such file. Returns 0, or -errno if the directory cannot be read. */
int sc_reap_list(void (*show)(const struct sc_reap_file *file, void *arg), void *arg);

/*
 * Ends the core's thread and removes the names of segments that are still open, at the end of a process. Not in a
 * forked child.
 */
void sc_process_fini(void);

/*
 * Tells whether this process has one thread. With glibc the answer stays no once there has been a second thread. Any
 * thread.
 */
bool sc_process_is_single_threaded(void);

/*
 * Tells whether more processes of this user with endpoints want to run on the processors of this process's affinity mask
 * than the mask has; a process that sleeps does not. The answer is at most a second old, and mostly some milliseconds after an
 * endpoint has met a peer: once a second the call reads the names in /dev/shm (0.3 us each) and, if there are more processes than
 * processors, looks whether their threads sleep (some us each); else it takes 30 ns. False if not known. Any thread.
 */
bool sc_oversub_is_here(void);

/* Whether processors are short for the processes that share them. */
enum sc_crowd {
	SC_CROWD_ASKED, /* sc_oversub_is_here() tells */
	SC_CROWD_NEVER,
	SC_CROWD_ALWAYS,
};

/*
 * Returns how many bytes, from the first one on, this process can read at `at`, which may be no address at all. Returns
 * fewer if the kernel cannot tell.
 */
size_t sc_probe_readable(const void *at, size_t len);

/* ---- addresses ------------------------------------------------------------------------------- */

/*
 * The address of an endpoint, 63 characters and NUL:
 *   fi_shmcma://<host 11 hex>-<uid 8 hex>-<pid 8 hex>-<nonce 16 hex>-<endpoint 4 hex>
 * or the shorter one of a service: fi_shmcma://<service>, 1 to 51 characters of [A-Za-z0-9._:@+-] that do not have the
 * first form. `host` names the boot of the machine and its /dev/shm.
 */
#define SC_ADDR_SIZE 64
#define SC_ADDR_PREFIX "fi_shmcma://"

/*
 * Endpoints that share one name (struct sc_ep_name) have addresses that differ only in the last number, behind these
 * first characters. All other addresses differ in them.
 */
#define SC_ADDR_STEM 58

enum sc_addr_kind { SC_ADDR_INVALID, SC_ADDR_ENDPOINT, SC_ADDR_SERVICE };

/* Returns the form of the string; reads at most SC_ADDR_SIZE bytes. */
enum sc_addr_kind sc_addr_kind(const char *addr);

/* Writes the address of a service into addr[SC_ADDR_SIZE]. -EINVAL: no valid name. */
int sc_addr_service(const char *service, char *addr);

/* Writes the address `index` numbers behind `addr` (endpoint form) into out[SC_ADDR_SIZE]. -EINVAL. */
int sc_addr_context(const char *addr, uint16_t index, char *out);

/* Writes the address of the first endpoint of that name into out[SC_ADDR_SIZE]: others insert it. -EINVAL. */
int sc_addr_first(const char *addr, char *out);

/*
 * Finds the live endpoint of an address of either form, and writes its endpoint form into out[SC_ADDR_SIZE]. -EINVAL:
 * no address; -EHOSTUNREACH: of another machine, boot or /dev/shm; -ECONNREFUSED: no endpoint has that name, or its
 * owner is dead; -EACCES, -EPROTO: the file of that name is not an endpoint's.
 */
int sc_addr_resolve(const char *addr, char *out);

/* ---- directories ----------------------------------------------------------------------------- */

/*
 * A list of addresses by number, under a name like that of a service. One process writes it, others of this user read
 * it. A reader keeps its entries when the writer has ended.
 */
struct sc_directory;

#define SC_DIRECTORY_MAX 65536

/* -EINVAL: no valid name or capacity; -EADDRINUSE: a live process has the name; -ENOSPC, -ENOMEM... */
int sc_directory_create(const char *name, uint32_t capacity, struct sc_directory **directory);
/*
 * Opens a directory to read. -ENOENT: there is none, or its writer has ended; -EPROTO: of another version; other errors
 * as above.
 */
int sc_directory_open(const char *name, struct sc_directory **directory);
void sc_directory_close(struct sc_directory *directory);

/* For the writer. A number below the capacity gets an address once, and can lose it. Other numbers: -ENOSPC. */
uint32_t sc_directory_capacity(const struct sc_directory *directory);
int sc_directory_put(struct sc_directory *directory, uint32_t number, const char *addr);
void sc_directory_del(struct sc_directory *directory, uint32_t number);

/*
 * Only numbers below sc_directory_count() can have an address. sc_directory_get() writes a well-formed one into
 * addr[SC_ADDR_SIZE], or returns false.
 */
uint32_t sc_directory_count(const struct sc_directory *directory);
bool sc_directory_get(const struct sc_directory *directory, uint32_t number, char *addr);

/* Returns the numbers as the file has them: UINT64_MAX where there is no address. */
const uint64_t *sc_directory_numbers(const struct sc_directory *directory);

/* ---- completion queue ------------------------------------------------------------------------ */

/*
 * A completion. err is 0 or a positive errno.
 * Any operation: ECONNRESET the peer closed or died, EPROTO the peer broke the protocol.
 * Messages: EMSGSIZE the message was truncated (len delivered, olen lost), ECANCELED sc_rx_cancel() withdrew it, ENOMSG
 * a peek found none, EFAULT the sender's buffer is not readable, SC_EFAULT_RECEIVER the receiver's is not writable.
 * One-sided operations: EKEYREJECTED no such key, or it was closed before or during the access; EACCES the key does not
 * allow it; EINVAL not within the registered memory; EIO the registered memory is not mapped or not writable,
 * SC_EIO_INITIATOR the same of a local buffer; olen is then the bytes that are known to have been moved.
 */
#define SC_EFAULT_RECEIVER 4001 /* EFAULT and EIO of the other side's memory: not values of errno(3) */
#define SC_EIO_INITIATOR 4002
struct sc_comp {
	void *context;
	size_t len;    /* bytes received (receive), or size of the message (peek) */
	void *buf;     /* multi-receive: start of the message; else NULL or the buffer */
	uint64_t data; /* with SC_COMP_DATA */
	uint64_t tag;
	struct sc_peer *source; /* receive operations: the sender; SC_COMP_WRITTEN: the writer */
	size_t olen; /* only with err; of a receive: bytes that did not fit, 0 unless EMSGSIZE */
	union {
		struct {
			uint32_t cq_flags; /* posted with the operation; opaque to the core */
			uint16_t err;
			uint16_t flags; /* SC_COMP_* */
		};
		uint64_t said; /* these three fields, see comp_ring.h */
	};
};

#define SC_COMP_MULTI_DONE (1u << 0) /* the multi-receive buffer belongs to the application again */
#define SC_COMP_DATA (1u << 1)	     /* `data` is valid */
#define SC_COMP_RECV (1u << 2)	     /* a receive: `source` is valid */
#define SC_COMP_WRITTEN (1u << 3)    /* not an operation: a peer wrote to registered memory, with `data` */

/* The fields that a reader usually needs: of a successful receive without data. */
struct sc_entry {
	void *context;
	uint64_t cq_flags;
	size_t len;
	void *buf;
	uint64_t data, tag;
};

/*
 * A FIFO queue of completions, private memory, single thread. It grows as needed. Without memory to grow it is overrun:
 * its completions can still be read, but it takes no more.
 */
struct sc_comp_ring {
	struct sc_comp *ring;
	size_t mask;	   /* entries - 1; entries is a power of two */
	size_t head, tail; /* only grow; tail - head completions are queued */
	size_t limit;	   /* a send that would add to this many is refused; a receive is not */
	size_t room;	   /* entries; 0: overrun */
	struct sc_entry *direct, *direct_end; /* see sc_comp_ring_by_pass() */
};

/* `entries` is the first size and the limit; the caller may change the limit. */
int sc_comp_ring_init(struct sc_comp_ring *cq, size_t entries);
void sc_comp_ring_fini(struct sc_comp_ring *cq);
/* Adds a completion of the core, or of the provider itself (deferred work). */
void sc_comp_ring_put_slow(struct sc_comp_ring *cq, const struct sc_comp *comp);

/*
 * For one poll of an empty queue: completions that a struct sc_entry describes fully go to `entries` instead of the
 * queue, until `entries` is full or the queue gets one. sc_comp_ring_by_passed() ends this and returns their number.
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

/* Returns the oldest completion of a non-empty queue; it stays valid until its release. */
static inline struct sc_comp *sc_comp_ring_first(struct sc_comp_ring *cq)
{
	return &cq->ring[cq->head & cq->mask];
}

/* Returns the oldest completion, or NULL. */
static inline struct sc_comp *sc_comp_ring_peek(struct sc_comp_ring *cq)
{
	return sc_comp_ring_is_empty(cq) ? NULL : sc_comp_ring_first(cq);
}

/* Tells whether the queue lost a completion; it then loses all later ones. */
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
 * Counts the ended operations of one kind, with success and with error. The core adds to it, serialized like the
 * endpoint. Others may read it at any time, each word by an atomic load.
 */
struct sc_cntr {
	uint64_t value, errors;
};

/*
 * Adds to one word of a counter; the caller is serialized as above. Release: a reader of the word sees the data of the
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

/* The events that an endpoint counts. A fetching atomic counts as a read, other atomics as writes. */
enum sc_event {
	SC_EVENT_SEND,
	SC_EVENT_RECV,
	SC_EVENT_READ,
	SC_EVENT_WRITE,
	SC_EVENT_REMOTE_READ, /* accesses of peers to registered memory, through this endpoint */
	SC_EVENT_REMOTE_WRITE,
	SC_EVENTS
};

/* ---- registered memory ----------------------------------------------------------------------- */

/* The registrations of a domain: memory that peers may read and write through each endpoint with this table. */
struct sc_regtab;
struct sc_reg;

int sc_regtab_create(struct sc_regtab **regtab);
/* The caller has closed all endpoints and registrations of this table. */
void sc_regtab_destroy(struct sc_regtab *regtab);

#define SC_REG_READ (1u << 0)	 /* peers may read it */
#define SC_REG_WRITE (1u << 1)	 /* peers may write it */
#define SC_REG_EVENT (1u << 2)	 /* the core counts accesses of peers */
#define SC_REG_KEY (1u << 3)	 /* attr.key becomes the key */
#define SC_REG_VIRTUAL (1u << 4) /* remote addresses begin at that of the first byte, else at 0 */

#define SC_REG_RANGES_MAX 1024

struct sc_reg_attr {
	const struct iovec *ranges; /* up to SC_REG_RANGES_MAX; copied */
	size_t range_count;
	uint64_t key; /* with SC_REG_KEY */
	uint32_t flags;
	struct sc_cntr *reads, *writes; /* with SC_REG_EVENT, each may be NULL */
};

/*
 * Registers memory. Several ranges lie one behind the other for peers, from 0 on or, with SC_REG_VIRTUAL, from the
 * address of the first range on. The memory itself is not touched.
 * -ENOKEY: the key is in use; -EINVAL: too many ranges, or more bytes than there are; -ENOMEM; -ENOSPC: no shared
 * memory, or too many registrations; -EPERM: this is a forked child of the process that made the table.
 */
int sc_reg_open(struct sc_regtab *regtab, const struct sc_reg_attr *attr, struct sc_reg **reg);

/*
 * Tells whether no thread may use the table's endpoints during the next sc_reg_open() with these flags. Usually false.
 */
bool sc_reg_wants_all(const struct sc_regtab *regtab, uint32_t flags);

uint64_t sc_reg_key(const struct sc_reg *reg);

/* Sets the counters for later accesses of peers; each may be NULL. */
void sc_reg_set_cntrs(struct sc_reg *reg, struct sc_cntr *reads, struct sc_cntr *writes);

/*
 * Ends the registration: peers that use the key from now on get EKEYREJECTED. Returns when no live peer copies under it
 * any more. -EBUSY: a peer is stopped in the middle of a copy, or has not ended its copy for 5 seconds; the key is
 * invalid, but the memory is not the caller's yet; call again.
 */
int sc_reg_close(struct sc_reg *reg);

/* ---- endpoint -------------------------------------------------------------------------------- */

/* How the core fills bounce buffers, see fill.h. */
enum sc_fill_way {
	SC_FILL_CACHED,
	SC_FILL_STREAMED,
	SC_FILL_WAYS,
	SC_FILL_TRIED = SC_FILL_WAYS
};

struct sc_config {
	uint32_t slots;	       /* peers that may connect to an endpoint, 1 to 1024 */
	uint32_t buf_size;     /* size of a bounce buffer, bytes, a multiple of 64 */
	uint32_t buf_count;    /* bounce buffers of an endpoint; fewer if memory is short */
	uint32_t inline_max;   /* largest payload in a record, bytes */
	uint32_t eager_max;    /* largest payload through bounce buffers without rendezvous, bytes */
	bool eager_adapts;     /* lower that limit for a peer where a copy by CMA is faster */
	uint64_t window;       /* units (SC_ABI_UNITS) that a peer may leave unmatched here */
	uint32_t share_min;    /* smallest rendezvous that both sides copy, bytes; UINT32_MAX: none */
	enum sc_crowd crowd;   /* if processors are short, one side copies alone; eager_adapts is off */
	enum sc_fill_way fill; /* SC_FILL_TRIED: trials find the best for each peer */
	bool cma;	       /* this process may copy by process_vm_readv(2) */
	bool daemon;	       /* a thread of this process watches the processes of peers, see daemon.c */
	bool calibrate;	       /* that thread measures the costs of copies, unless they are known */
	bool scan;	       /* that thread scans shared memory now and then, without a reason */
	bool strict;	       /* peers do not touch registered memory; this process copies for them */
};

/* Sets the defaults. */
void sc_config_init(struct sc_config *config);

/*
 * A name that several endpoints of this process share: the contexts of a scalable endpoint. Senders tell them apart;
 * receivers see one source.
 */
struct sc_ep_name {
	uint64_t nonce[2];
};

/* -EIO and others: the kernel gives no random numbers. */
int sc_ep_name_init(struct sc_ep_name *name);
/*
 * Writes the address that the endpoint of this process with that name and index 0 has, or will have, into
 * addr[SC_ADDR_SIZE]. Negative errno: this process cannot have an endpoint.
 */
int sc_ep_name_address(const struct sc_ep_name *name, char *addr);

/* A service name that this process holds, or an address that it announces. */
struct sc_service;
/*
 * Announces an address of this process (endpoint form) whose endpoint does not exist yet. Others find it by
 * sc_addr_resolve(); their operations to it, and receives from it, get -EAGAIN until the endpoint exists, or
 * -ECONNREFUSED if this process ends. Withdraw it before the endpoint is destroyed. Errors as sc_ep_create().
 */
int sc_service_announce(const char *addr, struct sc_service **held);
void sc_service_destroy(struct sc_service *held);

/*
 * Operations of one kind to one peer are done in the order of posting, except reads and writes against atomics. Each
 * further order has a cost for the endpoint that asks for it: an operation may wait, in the peer's ring or with
 * -EAGAIN, for an earlier one that could not be done at once.
 */
#define SC_ORDER_MEMORY (1u << 0)     /* reads and writes, against atomics */
#define SC_ORDER_AFTER_SEND (1u << 1) /* one-sided operations, after earlier messages were taken in */
#define SC_ORDER_SEND (1u << 2)	      /* messages, after earlier messages are done */
/* Completions of sends and one-sided operations to one peer come in the order of posting. */
#define SC_ORDER_COMPLETE (1u << 3)
/* Completions of receives come in the order in which the messages of one peer were matched. */
#define SC_ORDER_RECEIVE (1u << 4)

/*
 * The index of a destroyed endpoint is free again: peers that send to it find the new endpoint. The new endpoint must
 * not send before they have, because they may still have messages of the old one; so do not use an index again that has
 * sent messages.
 */
struct sc_ep_attr {
	struct sc_config config;
	const struct sc_ep_name *name; /* NULL: a name of its own */
	uint16_t index;		       /* under that name, different for each endpoint, see above */
	const char *service;	       /* a service name for this endpoint; NULL: none */
	struct sc_comp_ring *tx_cq;    /* completions of sends; NULL: sends complete silently */
	struct sc_comp_ring *rx_cq;
	struct sc_cntr *cntrs[SC_EVENTS]; /* NULL: not counted */
	struct sc_regtab *regtab;	  /* memory that peers may access through it; NULL: none */
	size_t tx_size;			  /* operations that may be outstanding; more if memory allows */
	size_t rx_size;	    /* receives that may be posted; likewise */
	struct sc_rxq *rxq; /* shared with other endpoints, with its own size; NULL: a private one */
	bool reopens;	    /* its name and index may be opened again: it leaves no file behind */
	bool rx_report;	    /* shared queue: receives with SC_SILENT do complete here */
	uint32_t order;	    /* SC_ORDER_* */
	/*
	 * A poll, or sc_peer_put() of another peer, calls this for a peer that has gone and has nothing under way, so
	 * that the core can free it. The caller gives up references to the peer, without sc_peer_put(), and returns
	 * their number. NULL: none. `arg` is release_arg.
	 */
	uint32_t (*release)(void *arg, struct sc_peer *peer);
	void *release_arg;
};

/*
 * Creates the endpoint and its segment. -EADDRINUSE: the service, or the index, has a live owner; -ENOSPC: shared
 * memory is full; -ENAMETOOLONG/-EINVAL: bad service name; other errors come from the system.
 */
int sc_ep_create(const struct sc_ep_attr *attr, struct sc_ep **ep);

/*
 * Closes the endpoint: peers receive what was published, then see it closed. Pending operations end without completion.
 * Waits for peers that copy registered memory through it, as sc_reg_close() does; for a stopped peer 5 seconds.
 */
void sc_ep_destroy(struct sc_ep *ep);

/* Returns the bytes of shared memory that an endpoint with that many peers has at most, without registrations. */
uint64_t sc_ep_memory(const struct sc_config *config, uint32_t peers);

/* Returns the address of the endpoint, in the endpoint form. */
const char *sc_ep_address(const struct sc_ep *ep);

/*
 * Makes progress: takes in what peers have sent, continues pending operations. Completions go to the bound queues.
 * Returns the number of records and steps done; 0: nothing to do.
 */
int sc_ep_poll(struct sc_ep *ep);

/* ---- calibration ----------------------------------------------------------------------------- */

/*
 * Costs of copies on this machine, nanoseconds: the least of SC_CALIBRATION_ROUNDS measurements for each boot and user, kept
 * in a file in /dev/shm.
 */
#define SC_CALIBRATION_ROUNDS 16
struct sc_calibration {
	/* a copy by process_vm_readv(2): its start, and each KiB */
	uint32_t cma_start, cma_per_kib;
	/* into a bounce buffer and out again: within one core's cache, and between two cores that share none */
	uint32_t near_per_kib, far_per_kib;
	int64_t time;	 /* of the last measurement, seconds since 1970 */
	uint32_t rounds; /* measurements */
};

/*
 * Measures the costs once in this thread, a millisecond or less. -ERANGE: not plausible; -ENOTSUP: this processor has no
 * non-temporal stores; -EPERM, -ENOSYS: no cross memory attach; -ENOMEM.
 */
int sc_calibration_measure(struct sc_calibration *calibration);

/*
 * Reads the stored calibration. -ENOENT: there is none; -ESTALE: of another boot or machine; -EPROTO, -EACCES: not a
 * file of this library.
 */
int sc_calibration_load(struct sc_calibration *calibration);

/* Stores it in place of the last one. -EEXIST: another process has just stored its own; -ENOSPC, -EPERM... */
int sc_calibration_store(const struct sc_calibration *calibration);

/*
 * Measures once, and stores the least of that and the stored calibration, unless that is complete. True: it is not complete
 * then; call again after a while. Logs errors.
 */
bool sc_calibration_make(void);

/* Writes the path of the stored calibration. */
#define SC_CALIBRATION_PATH_MAX 112
void sc_calibration_path(char path[SC_CALIBRATION_PATH_MAX]);

/*
 * Computes limits for the size of eager messages, bytes. Up to *least bounce buffers are faster wherever two processes
 * run; above *most a rendezvous is.
 */
void sc_calibration_limits(const struct sc_calibration *calibration, uint32_t *least, uint32_t *most);

/* Sets what depends on the calibration. */
void sc_calibration_apply(const struct sc_calibration *calibration, struct sc_config *config);

/* ---- sleep ----------------------------------------------------------------------------------- */

/* A futex, and its value while nothing has happened yet. */
struct sc_sleep {
	uint32_t *futex;
	uint32_t seen;
};
#define SC_SLEEPS_MAX 128

#define SC_REST_FOREVER INT64_MAX

/*
 * Arms the endpoint, which the caller has just polled in vain: from now on a process or thread that gives it something
 * to do wakes the threads that sleep on *sleep. -EAGAIN: there is something to do, poll; 0: a thread may sleep until
 * *limit at most (nanoseconds of CLOCK_MONOTONIC; lowered, if need be). After its sleep the thread polls, and calls
 * this again.
 */
int sc_ep_rest(struct sc_ep *ep, struct sc_sleep *sleep, int64_t *limit);

/*
 * The same after a refused post: also a peer that makes space wakes the thread. The space may have come before, so the
 * limit is ROOM_MS (sleep.c) at most.
 */
int sc_ep_rest_refused(struct sc_ep *ep, struct sc_sleep *sleep, int64_t *limit);

/*
 * Returns false once an operation that needs polls has begun since the last poll. The sleeping thread must then poll:
 * another thread may have posted it.
 */
bool sc_ep_is_idle(const struct sc_ep *ep);

/* Returns how many posts the endpoint has refused with -EAGAIN. */
uint64_t sc_ep_refusals(const struct sc_ep *ep);

/* Disarms the endpoint: no thread of this process sleeps on it any more. */
void sc_ep_rise(struct sc_ep *ep);

/* Wakes all threads that sleep on the endpoint. Any thread. */
void sc_ep_wake(const struct sc_ep *ep);

/* The same, but it adds no wake to the count, which some threads watch. Threads: as sc_ep_rest(). */
void sc_ep_stir(struct sc_ep *ep);

/*
 * Returns the word to sleep on, as it is now; any thread. The upper 16 bits of `seen` change when a thread wakes the
 * endpoint.
 */
struct sc_sleep sc_ep_sleep(const struct sc_ep *ep);

/*
 * Sleeps until one of the words changes, or until `end` (CLOCK_MONOTONIC, ns; INT64_MAX: no end). 0: look; -EINTR,
 * -ETIMEDOUT; -ENOSYS: the kernel cannot wait for that many at once (one is always possible).
 */
int sc_sleep(const struct sc_sleep *sleeps, int count, int64_t end);

/* Changes a futex of this process and wakes the threads that sleep on it. Any thread. */
void sc_sleep_bump(uint32_t *futex);

/* Up to this many bytes sc_tx_send() accepts SC_SEND_INJECT in any state of the receiver. */
#define SC_INJECT_MAX 4096
/* Largest message, bytes. */
#define SC_MESSAGE_MAX (SIZE_MAX / 2)
#define SC_IOV_MAX 16

/* Counts over the life of the endpoint, for reports and tests. */
struct sc_counters {
	uint64_t tx_msgs, tx_bytes, tx_inline, tx_bounce, tx_rdv;
	uint64_t tx_overflows; /* bounce buffers that took the overflow of full rings */
	uint64_t rx_msgs, rx_bytes, rx_unexpected;
	uint64_t rx_cma_bytes;		    /* copied by process_vm_readv(2) */
	uint64_t rx_pulled_bytes;	    /* of rendezvous payload, through bounce buffers */
	uint64_t rx_local_bytes;	    /* of rendezvous payload, inside this process */
	uint64_t shared_bytes;		    /* of rendezvous payload that this side, as sender, copied */
	uint64_t rma_ops, rma_direct_bytes; /* one-sided, begun here; moved here by CMA or memcpy() */
	uint64_t rma_requests, rma_served;  /* sent to targets; done for initiators */
	uint64_t rma_delegated, rma_delegated_taken; /* small ones that the target may do; that it did */
	uint64_t rma_rescued;			     /* and that the daemon's thread did */
	uint64_t rma_batched;			     /* put off, and copied together with others */
	uint64_t rma_assisted;			     /* large ones that the target copied along */
	uint64_t connects, accepts, refusals, quarantines, departures, deaths;
};
const struct sc_counters *sc_ep_counters(const struct sc_ep *ep);

#define SC_COUNTERS (sizeof(struct sc_counters) / sizeof(uint64_t))

/* A counter: its name, its place in struct sc_counters, and what it counts, in words. */
struct sc_counter {
	const char *name;
	size_t offset;
	const char *words;
};
extern const struct sc_counter sc_counter_names[SC_COUNTERS];
uint64_t sc_counter_value(const struct sc_counters *counters, const struct sc_counter *counter);

/* Writes a number of bytes with three digits, and a unit of powers of 1000. Returns `text`. */
#define SC_SIZE_TEXT 24
const char *sc_size_text(uint64_t bytes, char text[SC_SIZE_TEXT]);

/*
 * Reads a decimal, octal or hexadecimal (0x) number with a unit (k, m, g: powers of 1024) and blanks around, as values of
 * parameters are. UINT64_MAX: out of range. Returns whether the text is one.
 */
bool sc_size_parse(const char *text, uint64_t *bytes);

/* ---- survey ---------------------------------------------------------------------------------- */

/*
 * The owner's state. UNKNOWN: the file cannot be opened. CLOSED: the owner has closed the endpoint, and peers still have
 * messages to read in the segment.
 */
enum sc_survey_state {
	SC_SURVEY_UNKNOWN,
	SC_SURVEY_LIVE,
	SC_SURVEY_STOPPED,
	SC_SURVEY_CLOSED,
	SC_SURVEY_DEAD
};

/*
 * A segment of this user, as another process sees it. The numbers of records are of those that the owner has not
 * reported as read yet: it reports now and then, so it may have read some of them.
 */
struct sc_survey_seg {
	const char *name; /* in /dev/shm */
	/* Why it is no segment of this version; NULL: it is one, else the fields from `address` on are 0. */
	const char *fault;
	enum sc_survey_state state;
	bool closed;	/* the owner has closed it */
	int pid;	/* the owner's; 0: not visible from here */
	uint32_t uid;	/* of the file; UINT32_MAX: not known */
	uint64_t bytes; /* of memory */
	int64_t age;	/* seconds since the owner's process began; -1: not known */

	char address[SC_ADDR_SIZE];
	uint32_t slots, peers; /* peers that may be connected; that are */
	/* Bounce buffers that have memory; that may have it; bytes of one. */
	uint32_t bufs, bufs_max, buf_size;
	uint32_t records, record_lines; /* in the rings of all peers; their lines */
	uint32_t ring_lines;		/* of one ring, once it has grown */
	uint32_t overflows;		/* rings whose records go on in bounce buffers, not counted */

	/* for sc_survey_counters() and sc_survey_lent() */
	int tid;
	uint64_t cookie_addr, cookie, counters_addr;
	uint32_t counters_size;
	int32_t free_bufs_offset;
};

/* Calls show() for each segment. Changes nothing. Returns 0, or -errno if /dev/shm cannot be read. */
int sc_survey_list(void (*show)(const struct sc_survey_seg *seg, void *arg), void *arg);

/*
 * Reads the counters of the endpoint from its owner's memory. -ESRCH: the owner has ended; -EPROTO: a segment of
 * another version; -EPERM, -ENOSYS, -EFAULT: this process cannot read the memory of the owner.
 */
int sc_survey_counters(const struct sc_survey_seg *seg, struct sc_counters *counters);

/* Reads how many bounce buffers of the endpoint are lent to peers. Errors as of sc_survey_counters(). */
int sc_survey_lent(const struct sc_survey_seg *seg, uint32_t *lent);

/* ---- peer ------------------------------------------------------------------------------------ */

/*
 * Returns the peer with that address (endpoint form); makes it on first use, without touching shared memory. Valid
 * until as many calls of sc_peer_put(), or sc_ep_destroy(). -ENOMEM, -EINVAL. A peer that a completion names is valid
 * while that is in its queue.
 */
int sc_peer_get(struct sc_ep *ep, const char *addr, struct sc_peer **peer);
void sc_peer_put(struct sc_peer *peer);

/*
 * Tells whether an endpoint with that address (a scalable one: any of its contexts) has ever connected to this one. Of
 * the forgotten peers the core remembers the last SC_DEPARTED_MAX, also those that only this endpoint had connected to.
 */
#define SC_DEPARTED_MAX 256
bool sc_peers_have_heard(struct sc_ep *ep, const char *addr);

const char *sc_peer_address(const struct sc_peer *peer);

/*
 * Returns why the peer of an operation is lost, as a poll or a call has found: -ECONNRESET and others, see sc_tx_send(). 0:
 * it is not, or that is unknown.
 */
int sc_peer_error(const struct sc_peer *peer);

/*
 * Makes sure that there is a connection to a peer that is connected to this endpoint and waits for an answer. False: there
 * is none. The peer has gone and waits for no answer, but its records are still read; or it cannot be connected to: then
 * its own connection ends too, and with it the operations of both.
 */
bool sc_peer_can_answer(struct sc_peer *peer);

/* Returns the endpoint of this peer. */
struct sc_ep *sc_peer_ep(const struct sc_peer *peer);

/*
 * A word of the caller with each peer: UINT64_MAX until sc_peer_set_user(), and again after sc_peers_unset_users(), which
 * takes back the words of all peers of the endpoint.
 */
uint64_t sc_peer_user(const struct sc_peer *peer);
void sc_peer_set_user(struct sc_peer *peer, uint64_t user);
void sc_peers_unset_users(struct sc_ep *ep);

/* ---- receive queues --------------------------------------------------------------------------- */

/*
 * Posted receives and waiting messages, of one endpoint or shared by several: messages match in the order in which the
 * endpoints take them in. Receives that end without a message (peek, cancel) are reported by the endpoint that joined
 * first; without an endpoint there is no report.
 */
int sc_rxq_create(size_t size, struct sc_rxq **rxq);
/* The caller has destroyed all endpoints of the queue. Posted receives are dropped. */
void sc_rxq_destroy(struct sc_rxq *rxq);

/* Returns the receive queue of the endpoint, private or shared. */
struct sc_rxq *sc_ep_rxq(struct sc_ep *ep);

/* ---- messages -------------------------------------------------------------------------------- */

/* Send and receive: the matching queue. */
#define SC_TAGGED (1u << 0)
/* No completion if the operation succeeds. */
#define SC_SILENT (1u << 2)
/*
 * Each operation may have a counter of its own, `cntr`: it counts there too or, with SC_SILENT, there instead of at the
 * endpoint's counter. NULL: only at the endpoint's.
 */

/* Flags of an operation, passed by value in one register. */
struct sc_op_flags {
	uint32_t flags;	   /* SC_TAGGED, SC_SILENT and the flags of its kind */
	uint32_t cq_flags; /* value for its completion: opaque to the core */
};

#define SC_SEND_DATA (1u << 1)	   /* `data` goes with the message */
#define SC_SEND_INJECT (1u << 3)   /* the buffer is the caller's again on return; at most SC_INJECT_MAX */
#define SC_SEND_DELIVERY (1u << 4) /* complete when the payload is in the receiver's buffer */
#define SC_SEND_MATCH (1u << 5)	   /* complete when the message is matched or discarded */
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
 * Sends a message; the payload must not change until the completion. -EAGAIN: no space just now (ring, window, fence,
 * memory): call sc_ep_poll() and try again; -EMSGSIZE: more than SC_MESSAGE_MAX, or injected and more than
 * SC_INJECT_MAX; -ECONNREFUSED, -ECONNRESET, -EHOSTUNREACH...: the peer cannot be reached, now and later (the log says
 * why); nothing was sent.
 */
int sc_tx_send(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send);

/* Words of a message, passed by value in two registers. */
struct sc_tag_data {
	uint64_t tag, data;
};

/* The same for one buffer, without a counter of its own: the usual message, its arguments in registers. */
int sc_tx_send_buf(struct sc_peer *peer, struct iovec payload, struct sc_tag_data word, struct sc_op_flags flags,
		   void *context);

/* Returns the free part of tx_size. */
size_t sc_tx_room(const struct sc_ep *ep);

#define SC_RECV_MULTI (1u << 1)	  /* one buffer (iov_count 1) for many messages */
#define SC_RECV_PEEK (1u << 3)	  /* report a waiting message: completes now, with err ENOMSG if none */
#define SC_RECV_CLAIM (1u << 4)	  /* with PEEK: reserve it for `context`; alone: receive that one */
#define SC_RECV_DISCARD (1u << 5) /* with PEEK or CLAIM: drop it */

struct sc_recv {
	const struct iovec *iov; /* up to SC_IOV_MAX; iov_count 0: a buffer of 0 bytes */
	size_t iov_count;
	struct sc_peer *source; /* NULL: any; else this source, whichever endpoint of its name sends */
	uint64_t tag;		/* matches send tags equal to it outside `ignore`; 0 if not SC_TAGGED */
	uint64_t ignore;
	void *context;
	uint32_t cq_flags;
	size_t multi_min; /* SC_RECV_MULTI: give the buffer back when fewer bytes are left */
	uint32_t flags;
	struct sc_cntr *cntr;
};

/*
 * Posts a receive. -EAGAIN: no memory just now; -EINVAL: CLAIM of a message that was not claimed with this context;
 * -ECONNRESET and others: `source` is lost and left no message that fits, or no endpoint has its address
 * (-ECONNREFUSED). The first receive from a source that has not connected connects to it. This call receives a waiting
 * message (of a large one at most a piece). If the source is lost later, the receive completes with that error, after
 * all that the source had sent.
 */
int sc_rxq_recv(struct sc_rxq *rxq, const struct sc_recv *recv);

/* The tag of a receive, and its bits that do not matter. */
struct sc_tag_mask {
	uint64_t tag, ignore;
};

/* Flags and context of an operation, passed by value. */
struct sc_op_args {
	struct sc_op_flags flags;
	void *context;
};

/* The same for one buffer, with no flags but SC_TAGGED and SC_SILENT, without a counter of its own. */
int sc_rxq_recv_buf(struct sc_rxq *rxq, struct sc_peer *source, struct iovec buffer,
		    struct sc_tag_mask tag, struct sc_op_args args);
int sc_rx_recv(struct sc_ep *ep, const struct sc_recv *recv);

/*
 * Withdraws a receive posted with this context: it completes with err ECANCELED. If there are several, the first or the
 * last of the queue is the one, whichever is nearer to its end. -ENOENT: none is posted (matched already, or never
 * posted).
 */
int sc_rxq_cancel(struct sc_rxq *rxq, const void *context);
int sc_rx_cancel(struct sc_ep *ep, const void *context);

/* Returns the free part of rx_size. */
size_t sc_rxq_room(const struct sc_rxq *rxq);

/* ---- receives that are posted elsewhere ------------------------------------------------------- */

/* A message before it is received. */
struct sc_envelope {
	struct sc_peer *source;
	uint64_t tag, data;
	size_t size;
	uint32_t flags; /* SC_TAGGED, SC_SEND_DATA */
};

/*
 * The caller matches the messages of a receive queue: no receive is posted to the queue. sc_ep_poll() calls these
 * functions, no other call does, and they call nothing of the core but sc_peer_*().
 */
struct sc_matcher {
	/*
	 * Finds the receive of a message. 1: it is in *recv, whose vector stays valid until this function's next call,
	 * and it does not fail; flags are 0 or SC_SILENT. 0: there is none yet, and keep() follows. Negative errno: the
	 * message stays in the ring, and the next poll asks again.
	 */
	int (*match)(void *arg, const struct sc_envelope *envelope, struct sc_recv *recv);
	/*
	 * That message waits from now on as `msg`, until sc_waiting_receive() or sc_waiting_drop(). NULL: there is no
	 * memory for it; it stays in the ring, and the next poll asks again. Negative errno: as with NULL.
	 */
	int (*keep)(void *arg, struct sc_rx_msg *msg);
};

/* As sc_rxq_create(). The messages that wait in the queue at its end are dropped. */
int sc_rxq_create_matched(const struct sc_matcher *matcher, void *arg, struct sc_rxq **rxq);
void *sc_rxq_arg(const struct sc_rxq *rxq);

/*
 * Receives a message that waits. Its completion is as of any receive. -ENOMEM: nothing has changed; -ENOTCONN: the
 * endpoint of the message is destroyed, and the message is dropped.
 */
int sc_waiting_receive(struct sc_rx_msg *msg, const struct sc_recv *recv);
/* Drops it; for the sender it counts as received. */
void sc_waiting_drop(struct sc_rx_msg *msg);

/* Returns its queue. Any thread. */
struct sc_rxq *sc_waiting_rxq(const struct sc_rx_msg *msg);
/* Returns the sender of a message that waits in the queue. NULL: `msg` is no such message, or its endpoint is destroyed. */
struct sc_peer *sc_waiting_source(const struct sc_rxq *rxq, const void *msg);

/* ---- one-sided ------------------------------------------------------------------------------- */

/* Memory of a peer. */
struct sc_remote {
	uint64_t addr; /* as the registration has it, see SC_REG_VIRTUAL */
	uint64_t len;  /* bytes */
	uint64_t key;
};
#define SC_REMOTE_MAX 8

#define SC_RMA_WRITE (1u << 7) /* copy to the peer; else from it */

/*
 * The flags: SC_RMA_WRITE, SC_SILENT, SC_SEND_FENCE, SC_SEND_DELIVERY (all complete this way); writes take SC_SEND_DATA
 * and SC_SEND_INJECT too, others ignore these two.
 */
struct sc_rma {
	const struct iovec *iov; /* up to SC_IOV_MAX; as many bytes as the remote side */
	size_t iov_count;
	const struct sc_remote *remote; /* up to SC_REMOTE_MAX */
	size_t remote_count;
	uint64_t data; /* writes with SC_SEND_DATA: a completion at the peer, after the bytes */
	void *context;
	uint32_t cq_flags;
	uint32_t flags;
	struct sc_cntr *cntr;
};

/*
 * Reads or writes registered memory of a peer. The completion carries errors of the remote side. Errors of the call as
 * sc_tx_send(), and -EINVAL: unequal lengths.
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

/* Returns the bytes of one element; 0: no such type. */
size_t sc_atomic_size(enum sc_atomic_type type);
/* Tells whether there is such an operation; accepts any values. */
bool sc_atomic_valid(enum sc_atomic_kind kind, enum sc_atomic_type type, enum sc_atomic_code code);

/*
 * Applies base operations of that code to target[0..count) with the operands in the same places, for memory that no
 * other thread uses meanwhile: not atomic, any alignment. -EOPNOTSUPP.
 */
int sc_atomic_reduce(enum sc_atomic_type type, enum sc_atomic_code code, void *target,
		     const void *operands, size_t count);

/* Largest size of the operands of one operation, bytes. */
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
	const struct iovec *result; /* FETCH and COMPARE: old values; up to SC_IOV_MAX */
	size_t result_count;
	const struct sc_remote *remote;
	size_t remote_count;
	void *context;
	uint32_t cq_flags;
	uint32_t flags;
	struct sc_cntr *cntr;
};

/*
 * Posts an atomic operation; the target does it in a poll. One that brings nothing back may complete before that, unless
 * `flags` has SC_SEND_DELIVERY. Errors as sc_rma_post(); -EOPNOTSUPP: no such operation.
 */
int sc_atomic_post(struct sc_ep *ep, struct sc_peer *peer, const struct sc_atomic *atomic);

#endif
