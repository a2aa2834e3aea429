/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * core.h: what prov/, test/ and util/ may call of the core.
 *
 * The core knows endpoints, peers, messages and completion queues; it knows nothing of libfabric.
 * Functions return 0 or a negative errno unless they say otherwise.
 *
 * Threads: an endpoint and the completion queues bound to it are used by one thread at a time; the
 * caller serializes. Different endpoints with different queues are independent.
 */
#ifndef SHMCMA_CORE_H
#define SHMCMA_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct sc_ep;
struct sc_peer;

/* ---- log ------------------------------------------------------------------------------------- */

enum sc_log_level { SC_LOG_WARN, SC_LOG_INFO };

/* Where the core's messages go: one line without newline. NULL: nowhere (the default). */
void sc_log_set(void (*sink)(enum sc_log_level level, const char *line));

/* ---- process --------------------------------------------------------------------------------- */

/*
 * Remove what dead processes of this user have left in shared memory (segments and service names).
 * Returns the number of names removed. Never touches a live process's.
 */
int sc_reap_scan(void);

/* Remove the names of this process's own segments; for the end of a process that did not close them. */
void sc_process_fini(void);

/* ---- addresses ------------------------------------------------------------------------------- */

/*
 * An endpoint's address, 63 characters and NUL:
 *   fi_shmcma://<host 16 hex>-<pid 8 hex>-<nonce 20 hex>-<endpoint 4 hex>
 * or, shorter, that of a service: fi_shmcma://<service>, 1 to 51 characters of [A-Za-z0-9._:@+-] that
 * are not of the first form. `host` names the boot of the machine and its /dev/shm.
 */
#define SC_ADDR_SIZE 64
#define SC_ADDR_PREFIX "fi_shmcma://"

enum sc_addr_kind { SC_ADDR_INVALID, SC_ADDR_ENDPOINT, SC_ADDR_SERVICE };

/* Which of the two forms the string has, reading at most SC_ADDR_SIZE bytes. */
enum sc_addr_kind sc_addr_kind(const char *addr);

/* Write the address of a service into addr[SC_ADDR_SIZE]; -EINVAL: not a possible name. */
int sc_addr_service(const char *service, char *addr);

/*
 * Find the live endpoint that an address of either form means; out[SC_ADDR_SIZE] gets its endpoint
 * form. -EINVAL: no address; -EHOSTUNREACH: of another machine, boot or /dev/shm; -ECONNREFUSED: nobody
 * has that name, or its owner is dead; -EACCES, -EPROTO: the file in its place is not an endpoint's.
 */
int sc_addr_resolve(const char *addr, char *out);

/* ---- completion queue ------------------------------------------------------------------------ */

/*
 * A completion. err is 0 or a positive errno: EMSGSIZE a message was truncated (len delivered, olen lost),
 * ECANCELED withdrawn by sc_rx_cancel(), ENOMSG nothing to peek at, ECONNRESET the peer closed or died,
 * EFAULT the sender's buffer could not be read, EPROTO the peer broke the protocol.
 */
struct sc_comp {
	void *context;
	uint64_t cq_flags; /* as the operation was posted with: opaque to the core */
	size_t len;	   /* bytes received (receive operations), or size of the message (peek) */
	void *buf;	   /* multi-receive: where the message begins; else NULL or the buffer */
	uint64_t data;	   /* with SC_COMP_DATA */
	uint64_t tag;
	struct sc_peer *source; /* receive operations: who sent it */
	size_t olen;		/* truncated: bytes that did not fit */
	int err;
	uint32_t flags; /* SC_COMP_* */
};

#define SC_COMP_DATA (1u << 0)	     /* `data` is valid */
#define SC_COMP_MULTI_DONE (1u << 1) /* the multi-receive buffer is the application's again */
#define SC_COMP_RECV (1u << 2)	     /* a receive operation: `source` is valid */

/*
 * A first-in first-out queue of completions, private memory, single thread. Grows as needed; when
 * memory for that cannot be had it is overrun: what it holds can still be read, then nothing ever.
 */
struct sc_cq {
	struct sc_comp *ring;
	size_t mask; /* entries - 1; entries is a power of two */
	size_t head, tail; /* monotonic; tail - head are queued */
	size_t limit; /* sends that would add to so many queued are pushed back; receives are not */
	bool overrun;
};

/* `entries` is where it begins and its limit, which may be changed. */
int sc_cq_init(struct sc_cq *cq, size_t entries);
void sc_cq_fini(struct sc_cq *cq);
/* Add one; the core's way in, also for the provider's own (deferred work). */
void sc_cq_put_slow(struct sc_cq *cq, const struct sc_comp *comp);

/* The oldest, or NULL. It stays valid until it is released. */
static inline struct sc_comp *sc_cq_peek(struct sc_cq *cq)
{
	return cq->head == cq->tail ? NULL : &cq->ring[cq->head & cq->mask];
}

static inline void sc_cq_release(struct sc_cq *cq)
{
	cq->head++;
}

/* ---- endpoint -------------------------------------------------------------------------------- */

struct sc_config {
	uint32_t slots;	     /* peers that may connect to an endpoint, 1 to 1024 */
	uint32_t buf_size;   /* a bounce buffer, bytes, a multiple of 64 */
	uint32_t buf_count;  /* bounce buffers of an endpoint; fewer are taken when memory is short */
	uint32_t inline_max; /* largest payload in a record, bytes */
	uint32_t eager_max;  /* largest payload through bounce buffers without rendezvous, bytes */
	uint64_t window;     /* what one peer may leave unmatched here, in SC_ABI_UNITS */
	bool cma;	     /* this process may copy by process_vm_readv(2) */
};

/* The defaults, overridden by nothing. */
void sc_config_init(struct sc_config *config);

struct sc_ep_attr {
	struct sc_config config;
	const char *service; /* also be found under this service name; NULL: none */
	struct sc_cq *tx_cq; /* completions of sends go here; NULL: sends complete silently */
	struct sc_cq *rx_cq;
	size_t tx_size; /* operations that may be outstanding; more are taken as memory allows */
	size_t rx_size; /* receives that may be posted; likewise */
};

/*
 * Create the endpoint and its segment. -EADDRINUSE: the service has a live owner; -ENOSPC: shared memory
 * is full; -ENAMETOOLONG/-EINVAL: bad service name; others from the system.
 */
int sc_ep_create(const struct sc_ep_attr *attr, struct sc_ep **ep);

/* Departs: peers get what was published, then see it closed. Pending operations end without completion. */
void sc_ep_destroy(struct sc_ep *ep);

/* Its address, in the endpoint form. */
const char *sc_ep_address(const struct sc_ep *ep);

/*
 * Make progress: take in what peers have sent, go on with what is pending. Completions go to the bound
 * queues. Returns the number of records and steps done; 0: nothing to do.
 */
int sc_ep_poll(struct sc_ep *ep);

/* Bytes below which sc_tx_send() accepts SC_SEND_INJECT whatever the state of the receiver. */
#define SC_INJECT_MAX 4096
#define SC_IOV_MAX 16

/* Whole life of the endpoint, for reports and tests. */
struct sc_counters {
	uint64_t tx_msgs, tx_bytes, tx_inline, tx_bounce, tx_rdv;
	uint64_t rx_msgs, rx_bytes, rx_unexpected;
	uint64_t rx_cma_bytes;	  /* copied by process_vm_readv(2) */
	uint64_t rx_pulled_bytes; /* rendezvous payload through bounce buffers */
	uint64_t rx_local_bytes;  /* rendezvous payload inside this process */
	uint64_t connects, accepts, refusals, quarantines, departures, deaths;
};
const struct sc_counters *sc_ep_counters(const struct sc_ep *ep);

/* ---- peer ------------------------------------------------------------------------------------ */

/*
 * The peer with that address (endpoint form); made on first use, without touching shared memory. Valid
 * until sc_ep_destroy(). -ENOMEM, -EINVAL.
 */
int sc_peer_get(struct sc_ep *ep, const char *addr, struct sc_peer **peer);

const char *sc_peer_address(const struct sc_peer *peer);

/* The endpoint that it is a peer of. */
struct sc_ep *sc_peer_ep(const struct sc_peer *peer);

/* A word of the caller's with each peer, UINT64_MAX at first. */
uint64_t sc_peer_user(const struct sc_peer *peer);
void sc_peer_set_user(struct sc_peer *peer, uint64_t user);

/* ---- messages -------------------------------------------------------------------------------- */

/* Both directions: which matching queue. */
#define SC_TAGGED (1u << 0)
/* No completion when it succeeds. */
#define SC_SILENT (1u << 1)

#define SC_SEND_DATA (1u << 2)	   /* `data` goes with the message */
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
	uint64_t cq_flags;
	uint32_t flags;
};

/*
 * Send a message. The payload must stay untouched until it completes. -EAGAIN: no room just now (ring,
 * window, fence, memory): call sc_ep_poll() and try again; -EMSGSIZE; -ECONNREFUSED, -ECONNRESET,
 * -EHOSTUNREACH...: the peer cannot be had (the log says why), now and later; nothing was sent.
 */
int sc_tx_send(struct sc_ep *ep, struct sc_peer *peer, const struct sc_send *send);

/* What is left of tx_size. */
size_t sc_tx_room(const struct sc_ep *ep);

#define SC_RECV_MULTI (1u << 2)	  /* one buffer (iov_count 1) for many messages */
#define SC_RECV_PEEK (1u << 3)	  /* report a waiting message: completes now, with err ENOMSG if none */
#define SC_RECV_CLAIM (1u << 4)	  /* with PEEK: set it aside for `context`; alone: receive that one */
#define SC_RECV_DISCARD (1u << 5) /* with PEEK or CLAIM: drop it */

struct sc_recv {
	const struct iovec *iov; /* up to SC_IOV_MAX; iov_count 0: a buffer of 0 bytes */
	size_t iov_count;
	struct sc_peer *source; /* NULL: any */
	uint64_t tag;		/* matches send tags equal to it outside `ignore`; 0 if not SC_TAGGED */
	uint64_t ignore;
	void *context;
	uint64_t cq_flags;
	size_t multi_min; /* SC_RECV_MULTI: give the buffer back when fewer bytes are left */
	uint32_t flags;
};

/*
 * Post a receive. -EAGAIN: no memory just now; -EINVAL: CLAIM of a message that was not claimed
 * with this context. A waiting message is received in this call (up to one piece of a large one).
 */
int sc_rx_recv(struct sc_ep *ep, const struct sc_recv *recv);

/*
 * Withdraw the newest receive posted with this context: it completes with err ECANCELED.
 * -ENOENT: none is waiting (matched already, or never posted).
 */
int sc_rx_cancel(struct sc_ep *ep, const void *context);

/* What is left of rx_size. */
size_t sc_rx_room(const struct sc_ep *ep);

#endif
