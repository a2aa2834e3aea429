/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * state.h: the private memory of an endpoint, shared by peer.c and all modules above it (test/check-includes.sh). No other
 * process sees any of this. One thread at a time uses an endpoint and everything below it.
 *
 * A peer has two states. peer_init() writes NONE to both; sc_peer_set_link() and sc_peer_set_feed() of peer.h write the
 * others:
 *
 *   link (what we write)             NONE --connected--> UP --closed, refused, broken--> DOWN
 *                                    NONE --cannot be connected to, is known to have gone--> DOWN
 *   feed (what the peer writes)      NONE --accepted--> UP --departed, died, vanished--> DRAINING --read--> DONE
 *                                    UP --lost, broken rules--> DONE
 *                                    DRAINING --it had vanished, and has departed or died--> DRAINING
 *
 * Once both have ended, and nothing refers to the peer any more, forget.c frees it.
 *
 * A process that starts again has another address, and so is another peer. An endpoint that is opened again can have
 * the same address: DOWN and DONE become NONE then, once everything with the last one has ended (sc_peer_renew()).
 */
#ifndef SC_STATE_H
#define SC_STATE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <shmcma/core.h>
#include "os/cma.h"
#include "base/comp_ring.h"
#include "proc/rescue.h"
#include "proc/watch.h"
#include "shm/fill.h"
#include "base/list.h"
#include "base/match.h"
#include "os/probe.h"
#include "shm/pool.h"
#include "shm/regtab.h"
#include "shm/ring.h"
#include "shm/seg.h"
#include "proc/service.h"
#include "shm/share.h"
#include "base/slab.h"

enum sc_link { SC_LINK_NONE, SC_LINK_UP, SC_LINK_DOWN };
enum sc_feed { SC_FEED_NONE, SC_FEED_UP, SC_FEED_DRAINING, SC_FEED_DONE };

/* The registration under which earlier pieces of a request were done; tag 0: none yet. */
struct sc_reg_use {
	uint64_t key, tag;
};

/* States whether CMA can read a peer's memory. The first try costs a system call, and a lock of the process. */
enum sc_reach { SC_REACH_NO, SC_REACH_YES, SC_REACH_UNKNOWN };

/* States whether a peer can copy from our memory. Its answer to the first put that needs that says so. */
enum sc_fetch { SC_FETCH_UNKNOWN, SC_FETCH_ASKED, SC_FETCH_YES, SC_FETCH_NO };

/*
 * A sender, as receives name it: all peers of one name, see struct sc_ep_name. It begins with the first of its peers,
 * and ends with the last, or with the queue.
 */
struct sc_source {
	struct sc_source *next; /* hash chain */
	struct sc_list peers;	/* sc_peer.of_source */
	bool named;		/* a posted receive names it, in one pass of sc_rxq_mark_named() */
	uint32_t met;		/* its peers that are connected and not lost */
	int error; /* SC_SOURCE_UNMET; 0; or negative errno of the last peer that was lost or not reached: */
	struct sc_peer *lost; /* that peer; NULL: it is freed */
	char stem[SC_ADDR_STEM];
};

/* Where receives are posted and messages wait, for one endpoint or for several that share it; see rxq.c. */
struct sc_rxq {
	struct sc_match tagged, plain; /* sources are struct sc_source */
	struct sc_slab ops;	       /* sc_rx_op */
	size_t size;
	struct sc_list claimed;	    /* sc_rx_msg */
	struct sc_list eps;	    /* sc_ep.of_rxq: the first reports receives that no message ends */
	struct sc_source **sources; /* by stem */
	uint32_t source_mask, source_count;
	const struct sc_matcher *matcher; /* posts the receives, see core.h; NULL: they are posted here */
	void *matcher_arg;
};

/* A copy that a peer has opened and this side has joined; see xfer.h. */
struct sc_xfer {
	struct sc_share share;
	struct sc_peer *peer;
	struct sc_list of_ep; /* SC_WORK_JOINED */
	bool pull;	      /* this side reads the peer's memory; else it writes there */
	bool memory;	      /* our memory is that of `key`, from `addr` on; else `ours` */
	uint64_t key, addr, tag;
	const struct iovec *ours, *theirs;
	size_t ours_count, theirs_count;
};

/* Operations of one kind that are posted without a poll between them. */
struct sc_burst {
	uint32_t count;
	uint32_t poll; /* the last poll before them */
};

/* Our buffers that may come back with a message or put, oldest first; see hold.h. */
struct sc_returnables {
	uint16_t bufs[SC_ABI_RETURN_BUFS];
	uint32_t count;
	bool pinned;	 /* one of them has the payload of a put of the peer that is withdrawn, */
	uint32_t number; /* this one */
};

/* A peer's buffers that are held, oldest first; see hold.h. */
struct sc_hold {
	uint16_t bufs[SC_ABI_RETURN_BUFS];
	uint32_t count;
	uint32_t poll;	      /* the poll in which the last was read */
	uint64_t behind;      /* lines of the ring up to the end of its record */
	struct sc_list of_ep; /* sc_ep.holding: `bufs` has some */
};

/* A poll continues these kinds of work, in this order. sc_ep.work has a list for each; a comment names its entries. */
enum sc_work {
	SC_WORK_UNANSWERED, /* sc_peer: connected, not accepted yet; or full, and a receive waits for it */
	SC_WORK_PULLING,    /* sc_peer: `recv.copying` has some: payload is copied by CMA */
	SC_WORK_REPLYING,   /* sc_peer: `reply.waiting` has some, or had */
	SC_WORK_PUSHING,    /* sc_tx_op: payload is sent in pieces */
	SC_WORK_JOINED,	    /* sc_xfer: copies of peers that this side has joined */
	SC_WORK_DELEGATED,  /* sc_peer: has delegated puts and gets */
	SC_WORK_BATCHING,   /* sc_peer: `batch.ops` has some: put off */
	SC_WORK_RMA_BUSY,   /* sc_peer: `rma.queued` has some: records to write */
	SC_WORK_SERVING,    /* sc_peer: `target.ops` has some: not answered yet */
	SC_WORK_ASKING,	    /* sc_peer: `assist.ops` has some: it assists, or will be asked next */
	SC_WORK_ENDING,	    /* sc_peer: lost; its operations have to end */
	SC_WORK_DOUBTED,    /* sc_peer: may have to move to another list of peers, see forget.c */
	SC_WORK_COUNT
};

/* The parts of struct sc_peer. The comment of each part names the files that write it. */

/* bounce.c, record.c: our buffers that the peer reads. */
struct sc_peer_bounce {
	struct sc_loans loans;
	struct sc_returnables returnables; /* loans that may come back with a message */
	struct sc_fill fill;
	struct sc_list borrower; /* sc_ep.borrowers: the peer has loans */
	uint64_t head_seen;	 /* tx.head when buffers were last short, */
	uint32_t head_reads;	 /* and how often they were short at that head */
	bool is_behind;		 /* the peer had more than the last message to read; see record.h */
	uint32_t rendezvous;	 /* rendezvous not acknowledged yet, of messages that could be eager */
	struct sc_burst burst;	 /* such messages */
};

/* turn.h, fence.h: the order of operations to the peer. */
struct sc_peer_order {
	uint64_t line;	      /* messages up to `units`, atomics without an answer are before it: fence.h */
	uint64_t units;
	uint64_t fence;	      /* records unread before this line come first; 0: no fence */
	uint64_t taken;	      /* all lines before this one are taken, as answers show */
	struct sc_list turns; /* sc_turn.of_peer: oldest first */
	struct sc_turn *turn; /* of the operation that is being posted */
};

/* reply.c: answers to the peer. */
struct sc_peer_reply {
	struct sc_list waiting; /* sc_reply: answers that found the ring full */
	uint32_t count;
};

/* rma.c, request.c: our one-sided operations. */
struct sc_peer_rma {
	struct sc_list queued;	/* sc_rma_op.of_peer: with records to write, oldest first */
	struct sc_list waiting; /* sc_rma_op.of_peer: all records written, answers to come */
	uint32_t requests;	/* records that the peer has not answered */
	uint32_t gets, fars; /* the gets among them, and the puts that the peer copies from our memory */
	uint32_t pending;	/* operations in these lists, and of batch, delegate and assist */
	uint32_t undone; /* puts and gets of `queued` and `waiting`: this process does no later one */
	uint32_t hazard_count;	       /* in the high bits of hazard words */
	struct sc_reg_use unreachable; /* the last one that CMA did not reach all of; tag 0: none */
	struct sc_burst burst;	       /* puts and gets */
	struct sc_burst unanswered;    /* atomics without an answer */
	uint32_t copy_cost;	       /* of our last large copies, picoseconds a byte; 0: none */
	bool streamed;	     /* the burst before this one was a stream */
	enum sc_fetch fetch; /* whether the peer can read our memory */
};

/* direct.c: our one-sided operations that are put off, and copied in one system call. */
struct sc_peer_batch {
	struct sc_list ops; /* sc_rma_op.of_peer: oldest first */
	size_t bytes;
	uint32_t count;
};

/*
 * A delegated operation that has not ended. Its record holds the payload of a put, or names the buffers that do; the
 * peer's memory that it is for is in the rescue.
 */
struct sc_delegated {
	uint64_t at; /* lines of the ring before its record */
	uint32_t flags, cq_flags;
	struct sc_rma_op *op; /* of a get, or of a put from several pieces */
	/* if there is none: */
	const void *buf; /* the payload, unless it was injected */
	void *context;
	struct sc_cntr *cntr;
	struct sc_turn *turn; /* or NULL */
	uint64_t data;
};

/* delegate.c: our one-sided operations that the peer may do. */
struct sc_peer_delegate {
	struct sc_delegated *open; /* SC_ABI_DELEGATED of them, by number; NULL: nothing delegated yet */
	bool plain;	       /* `open` is there, and no order binds puts to this peer; */
	bool injects;	       /* and injected ones may be delegated to it */
	uint32_t first, end;   /* their numbers: from `first`, before `end` */
	uint32_t ours;	       /* operations from this number on are withdrawn */
	uint32_t withdrawn;    /* that half of the claim */
	uint32_t unrescuable;  /* before this number: operations that the daemon's thread leaves; */
	uint32_t rescuable;    /* those that it may do; */
	uint32_t awaited;	  /* those that are not injected */
	uint32_t rescued;	  /* withdrawn operations, the oldest, that the daemon's thread has done */
	struct sc_rescue *rescue; /* NULL: as `open` */
	uint32_t polls;		  /* polls in vain for the oldest */
	uint32_t pause;	       /* the next operations, not delegated as the peer did not take the last */
	uint32_t alone;	       /* the value of `pause` the last time */
	uint64_t answers_read; /* answers in the peer's buffers that are read; the peer sees this */
};

/* A put that the peer has withdrawn, and this process has passed over. */
struct sc_passed {
	struct sc_ring_place at; /* its record is the next one */
	uint64_t ctl;		 /* 0: it has ended */
	uint32_t number;
};

/* taker.c: the peer's operations that are delegated to us. */
struct sc_peer_taker {
	uint32_t seen;		 /* operations seen in the ring */
	uint32_t taken;		 /* operations taken: that half of the claim */
	uint32_t reported;	 /* operations counted in delegated_done */
	uint32_t failed;	 /* the words of delegated_errors that are not 0, a bit each */
	bool unreported;	 /* puts have ended since `reported` was stored */
	struct sc_loans answers; /* buffers that answer gets, lent at the answer's number */
	uint64_t answer_count;	 /* such answers so far */
	struct sc_passed *passed; /* SC_ABI_DELEGATED puts, by number; NULL: none was withdrawn yet */
};

/* target.c: the peer's requests. */
struct sc_peer_target {
	struct sc_list ops; /* sc_target_op.of_peer: not answered yet, oldest first */
	uint32_t count;
	struct { /* the current put, if it has several records */
		sc_abi_op op;
		struct sc_reg_use use;
		uint64_t moved; /* bytes */
		int error;	/* negative errno, or 0 */
	} put;
	sc_abi_op failed_get, failed_atomic; /* of several requests, one of which has failed; 0: none */
	bool lost; /* an atomic that is complete for the peer was not done: logged */
};

/* assist.c: large puts and gets that both sides copy. */
struct sc_peer_assist {
	struct sc_list ops;    /* sc_rma_op.of_peer: ours; the peer assists with the oldest */
	struct sc_xfer xfer;   /* the last copy that the peer has shared */
	struct iovec there;    /* the peer's memory */
};

/* xfer.c: copies that this side shares with the peer, as the opener. */
struct sc_peer_xfer {
	uint32_t opened;     /* one bit for each open share */
	uint32_t generation; /* of the last share; 0: none yet */
	uint32_t missed_index,
		missed_generation; /* of a share that the peer had not come to in time; 0: none */
	uint32_t polls;		   /* polls in vain for the peer's last chunks */
	uint64_t seen;		   /* given up: when this side last checked that the peer runs (ns), */
	uint32_t runs;		   /* and how often in a row it ran */
	bool copies_not; /* the peer has said that it cannot copy along */
};

/* deliver.c, transfer.c, waiting.c, ack.c: the peer's messages. */
struct sc_peer_recv {
	struct sc_list transfers; /* sc_rx_op.of_peer: matched, payload on its way */
	struct sc_list copying;	  /* sc_rx_op.pulling: copied by CMA, oldest first */
	struct sc_list waiting;	  /* sc_rx_msg.of_peer: unmatched, oldest first */
	uint64_t units_held;	  /* of the messages that wait */
	uint32_t lent;		  /* bytes read in the peer's buffers since the last publish */
	/* a message in parts whose first part is here: its receive, or the message if it has none yet */
	struct sc_rx_op *arriving_op;
	struct sc_rx_msg *arriving;
	struct sc_list fenced; /* sc_fenced: acknowledgements that wait for earlier ones */
	uint32_t fenced_count;
	uint64_t arrivals; /* messages that have waited for a receive so far */
};

/* Bytes that a processor loads at once; a larger line does no harm. */
#define SC_CACHE_LINE 64

struct sc_peer {
	/* Each send reads these and the fields of `tx` before `head`: two cache lines. */
	_Alignas(SC_CACHE_LINE) struct sc_ep *ep;
	struct sc_seg *seg;		  /* NULL: not attached */
	uint64_t units_sent, units_limit; /* see sc_abi_consumer.window */
	struct sc_burst two_lines;	  /* messages in records of two lines */
	enum sc_link link;
	enum sc_feed feed;
	int error;		    /* negative errno once link is DOWN */
	uint32_t out_slot, in_slot; /* in the peer's segment, in ours */
	uint32_t inbound_index;	    /* place in sc_ep.inbound */
	struct sc_ring_tx tx;

	/* Each receive reads these. */
	struct sc_ring_rx rx;
	struct sc_source *source; /* in the receive queue of `ep` */
	uint64_t units_back;	  /* units returned to the peer so far */
	struct sc_peer_recv recv;

	struct sc_peer_bounce bounce;
	struct sc_hold hold;	  /* buffers of the peer that have been read */
	enum sc_reach can_return; /* whether we may write to the peer's buffers */
	struct sc_peer_order order;
	struct sc_list ops; /* sc_tx_op.of_peer: pending sends, oldest first */
	uint32_t op_count;  /* their number */
	struct sc_peer_reply reply;
	struct sc_peer_xfer xfer;
	struct sc_peer_rma rma;
	struct sc_peer_batch batch;
	struct sc_peer_delegate delegate;
	struct sc_peer_assist assist;
	struct sc_peer_target target;
	struct sc_peer_taker taker;

	/* peer.c: how the peer is watched and freed; peertable.c: `next` */
	struct sc_peer *next;	  /* hash chain */
	struct sc_list all;	  /* sc_ep.peers, .absent or .leaving */
	bool present;		  /* it is in sc_ep.peers */
	struct sc_list of_source; /* sc_source.peers */
	bool met;		  /* sc_source.met counts it */
	bool departed;		  /* forgotten, and made again from its address in departed.c */
	bool ended;		  /* it had closed or died when this endpoint parted from it */
	bool named;		  /* a completion names it, in one pass of forget.c */
	uint32_t users;		  /* sc_peer_get() less sc_peer_put() */
	uint64_t user;		  /* UINT64_MAX: none */
	struct sc_list of_users;  /* sc_ep.with_user */
	enum sc_reach can_read; /* see sc_peer_can_read() */
	bool has_come;		/* see sc_peer_has_come() */
	bool writes_fail;	/* CMA cannot write the peer's memory, but can read it */
	bool unread;		/* we close, and the peer has messages to read in our segment */
	bool left;     /* it had gone before it was attached, and left messages in its segment */
	bool vanished; /* no endpoint has its address; nothing proves yet that it has gone */
	bool loss_logged; /* the loss has been logged for a send */
	bool full;     /* one side had no free slot; the other can try again */
	int64_t answers_at; /* when a poll tries again to connect for an answer; 0: no record waits for that */
	struct sc_watch watch; /* of `seg` */
	struct sc_cma cma;
	struct sc_list work[SC_WORK_COUNT]; /* in those lists of sc_ep.work that have peers */
	dev_t dev;		   /* the file of the last segment; 0: none */
	ino_t ino;
	char address[SC_ADDR_SIZE];
};

static_assert(offsetof(struct sc_peer, tx) + offsetof(struct sc_ring_tx, head) == 2 * SC_CACHE_LINE,
	      "each send reads two cache lines of a peer");

/* The turn of an operation: its completion waits for earlier ones, see turn.c. */
struct sc_turn {
	struct sc_slab_object slab;
	struct sc_list of_peer; /* sc_peer.order.turns */
	bool ended, silent;
	struct sc_comp comp;
};

/* A pending send. */
enum sc_tx_state {
	SC_TX_PUBLISHED, /* record written; acknowledgement or pull to come */
	SC_TX_PUSHING,	 /* the receiver asked for the payload in pieces */
	SC_TX_PUSHED,	 /* all pieces written; acknowledgement to come */
};

struct sc_tx_op {
	struct sc_slab_object slab;
	enum sc_tx_state state;
	uint32_t flags;
	struct sc_peer *peer;
	struct sc_list of_peer;
	struct sc_list pushing; /* SC_WORK_PUSHING */
	struct sc_turn *turn;	/* or NULL */
	void *context;
	struct sc_cntr *cntr;
	uint32_t cq_flags;
	uint64_t tag, data;
	size_t size;
	void *copy;  /* copy of an injected payload; else NULL */
	uint64_t to; /* pushing: the receiver's operation */
	bool unreadable; /* pushing: no payload, because it cannot be read */
	size_t push_size, pushed;
	struct sc_xfer xfer; /* published: the copy that the receiver shares, in SC_WORK_JOINED */
	size_t iov_count;
	struct iovec iov[SC_IOV_MAX];
	struct iovec segments[SC_ABI_RDV_SEGMENTS]; /* of `xfer`: the receiver's memory */
};

/* The most requests to one peer that wait for their answers. */
#define SC_RMA_REQUESTS_MAX 64

/* A one-sided operation that outlives the call that posts it; see rma.c. */
enum sc_rma_kind {
	SC_RMA_PUT,
	SC_RMA_GET,
	SC_RMA_ATOMIC,
	SC_RMA_NOTE, /* it is done; a record must tell the peer */
};

struct sc_rma_op {
	struct sc_slab_object slab;
	enum sc_rma_kind kind;
	enum sc_event event; /* the counter event */
	uint32_t flags;	     /* SC_SILENT... */
	struct sc_peer *peer;
	struct sc_list of_peer; /* in a list of sc_peer.batch, .assist or .rma, or delegated and in none */
	struct sc_turn *turn;	/* or NULL */
	void *context;
	struct sc_cntr *cntr;
	uint32_t cq_flags;
	uint64_t data;
	size_t size;	  /* bytes */
	size_t begun;	  /* bytes that have their records; note: ranges */
	size_t moved;	  /* bytes that the peer has answered */
	size_t got;	  /* get through bounce buffers: bytes of the record that is being answered */
	bool far;	  /* put: the peer copies from our memory */
	bool again;	  /* the peer has answered that it cannot */
	uint32_t answers; /* answers to come */
	int error;	  /* negative errno of the first failure */
	uint64_t at;	  /* lines of the ring up to the end of its record */
	uint32_t number;  /* note: see struct sc_abi_note */
	struct sc_share share; /* assisted: shared with the peer, under `ref`; */
	struct sc_reg_ref ref;
	bool heard; /* the peer's application must hear of it */
	/* atomic: operands, then values to compare with; injected put that is withdrawn, or a request that waits: payload */
	uint8_t *copy;
	enum sc_atomic_kind atomic_kind;
	enum sc_atomic_type atomic_type;
	enum sc_atomic_code atomic_code;
	size_t iov_count, remote_count;
	struct iovec iov[SC_IOV_MAX]; /* source of a put, destination of a get, results of an atomic */
	struct sc_remote remote[SC_REMOTE_MAX];
};

/* A peer's get, or the result of its atomic operation, that is not answered yet; see target.c. */
struct sc_target_op {
	struct sc_list of_peer;
	sc_abi_op op;
	uint64_t key, addr; /* get */
	struct sc_reg_use use;
	uint64_t size, done; /* bytes */
	bool result;
	bool bounced; /* get: goes through bounce buffers */
	bool fault;   /* get: because the kernel does not store to the peer's memory */
	uint32_t flags; /* get: of its record */
	uint32_t segment_count;
	union {
		struct iovec segments[SC_ABI_RDV_SEGMENTS]; /* get: the peer's memory */
		uint8_t values[SC_ABI_RESULT_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES];
	};
};

/* An answer that waits for space in a ring. */
struct sc_reply {
	struct sc_list of_peer;
	enum sc_abi_kind kind;
	uint64_t words[7];
};

/*
 * The acknowledgement of a fenced message that ended before earlier messages of its sender. It waits for those, as
 * fi_cq(3) lets it tell of them, too.
 */
struct sc_fenced {
	struct sc_list of_peer;
	uint64_t arrival; /* of the fenced message */
	sc_abi_op op;
	uint64_t moved;
};

/*
 * In sc_rx_op.flags, besides SC_*: the receive has several buffers, or its own counter, or is for several messages.
 * Without it `cntr`, `capacity` and `iov_count` may be unset until sc_rxop_settle(): a short message does not need
 * them, and fewer stores make an answer visible earlier: docs/MEASUREMENTS.md, "Stores of a call".
 */
#define SC_RX_FULL (1u << 30)

/* A transfer goes through these states in this order. It may pass over some of them. */
enum sc_rx_state {
	SC_RX_ARRIVING, /* it has begun; of an eager message in parts more may come */
	SC_RX_COPYING,	/* this process copies by CMA: it is in sc_peer.recv.copying */
	SC_RX_ASKED,	/* the sender has been asked for the payload in pieces */
	SC_RX_OVER,	/* it has ended, and is reported once those before it are */
};

/* A posted receive, and then its transfer. */
struct sc_rx_op {
	struct sc_slab_object slab;
	struct sc_match_recv match;
	uint32_t flags, cq_flags;
	void *context;
	struct sc_cntr *cntr;
	struct sc_peer *peer; /* transfer: its sender; else NULL, also in the slab */
	size_t capacity;      /* bytes of iov; multi-receive: bytes left */
	size_t iov_count;
	struct iovec iov[SC_IOV_MAX];

	/* multi-receive */
	size_t multi_min;
	struct sc_rx_op *multi; /* transfer into a multi-receive buffer: the posted receive */
	uint32_t multi_transfers;

	/* transfer of a message in parts, or of a rendezvous */
	struct sc_list of_peer;
	struct sc_list pulling; /* sc_peer.recv.copying, while CMA copies */
	struct sc_share share;	/* sharing: the copy with the sender */
	bool unshared;		/* the copy stays unshared */
	bool proven;		/* sharing: the last read was proven */
	enum sc_rx_state state; /* of the transfer */
	int outcome;		/* with this result: negative errno or 0 */
	uint64_t fence;		/* arrival of a fenced message; 0: not fenced */
	sc_abi_op message;	/* the sender's operation; 0: the sender does not wait */
	uint64_t size;		/* of the message */
	size_t want, done;	/* bytes to move, moved; of a message in parts, bytes that have come */
	uint64_t tag, data;
	uint32_t comp_flags;
	uint32_t segment_count;
	struct iovec segments[SC_ABI_RDV_SEGMENTS];
};

/* A message that waits for its receive. */
struct sc_rx_msg {
	struct sc_match_msg match;
	struct sc_list claimed; /* sc_rxq.claimed */
	struct sc_list of_peer; /* sc_peer.recv.waiting */
	uint64_t arrival;
	union {
		const void *claim;  /* the context that has claimed it */
		struct sc_rxq *rxq; /* with a matcher: the queue, also when the endpoint has closed */
	};
	struct sc_peer *peer; /* with a matcher, NULL: the endpoint has closed */
	bool dropped;	      /* with a matcher: discarded, and not freed before its last part has come */
	bool lost;	      /* with a matcher: a part is missing, and the peer is lost */
	enum sc_abi_kind kind;
	uint32_t flags; /* SC_ABI_F_* */
	uint64_t data;
	sc_abi_op op;
	uint64_t size, units;
	uint64_t arrived; /* bytes; a message that is still arriving is in no queue */
	uint32_t segment_count;
	/* payload (inline, bounce), or the segments (rendezvous) */
	union {
		uint8_t bytes[1];
		struct iovec segments[1];
	};
};

struct sc_ep {
	struct sc_config config;
	struct sc_comp_ring *tx_cq, *rx_cq;
	struct sc_cntr *cntrs[SC_EVENTS]; /* by event; NULL: not counted */
	struct sc_regtab *regtab;
	struct sc_list of_regtab;    /* entry in the list of its endpoints */
	struct sc_regtab_view table; /* the table in our segment, as our peers see it */
	struct sc_seg *seg;
	struct sc_service *service;
	struct sc_pool pool;
	struct sc_list borrowers; /* sc_peer: may have buffers that it has read */
	struct sc_list holding;	  /* sc_peer: some of its buffers are held; the longest first */
	uint32_t buf_shift;	  /* log2 of the bounce buffer size */
	struct sc_counters counters;

	struct sc_rxq *rxq, own_rxq; /* the one in use; the endpoint's own */
	struct sc_list of_rxq;
	uint32_t rx_silent; /* SC_SILENT; or 0: all receives are reported */
	struct sc_slab tx_ops;
	size_t tx_size;
	uint32_t short_end;   /* bytes: smaller payloads go the short way, see tx.c, */
	uint32_t buffer_end;  /* smaller ones fit one bounce buffer */
	uint64_t line_end;    /* received ones likewise, see fast.h */
	uint64_t window_step; /* units returned to a peer before the endpoint tells it */
	uint32_t order;	      /* SC_ORDER_* */
	struct sc_slab turns;
	uint32_t turns_taken;

	uint32_t membership;	  /* last reviewed */
	bool waits;		  /* some claims here were put off at the last look */
	struct sc_peer **inbound; /* peers whose rings are polled; busy ones first */
	uint32_t inbound_count, inbound_cursor, inbound_victim;

	struct sc_slab rma_ops;
	struct sc_probe_brief memory; /* our memory that peers use in this poll */
	struct sc_list work[SC_WORK_COUNT];

	struct sc_list peers;	   /* sc_peer: attached, or with a slot, or with something under way */
	struct sc_list absent;	   /* sc_peer: nothing of that now; no review looks at them */
	struct sc_list leaving;	   /* sc_peer: to be freed, see forget.c */
	uint32_t leaving_fresh;	   /* peers in it since the last pass */
	uint32_t leaving_step;	   /* peers that the next pass waits for */
	struct sc_departed *heard; /* NULL: no peer has been forgotten yet */
	uint32_t (*release)(void *arg, struct sc_peer *peer); /* see struct sc_ep_attr */
	void *release_arg;
	struct sc_list with_user; /* sc_peer.of_users: peers with a word of the caller */
	struct sc_list *watched; /* in `peers`: the peer last asked whether it lives */
	struct sc_list *life_checked; /* in `peers`: the peer whose word of life was last looked at */
	uint32_t polls, watch_mask;
	bool idle;	  /* the last poll found nothing to do, and no work for polls has begun since */
	uint32_t due;	  /* bits, 1 << SC_WORK_*: lists of `work` that may have entries */
	uint32_t vain;	  /* times in a row that sc_ep_rest() saw work that polls then did not take */
	bool wants_room;  /* a record or buffer found no space; until sc_ep_rest() asks */
	bool alone;	  /* no thread of the daemon watches our peers */
	bool closes, reopens; /* sc_ep_destroy() has begun; see struct sc_ep_attr */
	bool barrier;	  /* sleepers of this process see stores of others, see wake.c */
	uint64_t refusals;     /* posts that were refused with -EAGAIN */
	struct sc_sleep armed; /* as the last sleeper has left it, */
	int64_t armed_at;      /* and when, ns */
	int64_t watched_at;    /* when a sleeper has last watched the peers, while `alone` */
	struct sc_bell bell;
	struct sc_peer **peer_table; /* by address */
	uint32_t peer_table_mask, peer_count;
	uint64_t accepted[SC_ABI_SLOTS_MAX / 64]; /* our slots whose claim is accepted or refused */
	bool refused; /* some of these claims may belong to peers that were refused or given up */
	/* for each slot: the errno that keeps its claimant out for now; 0: none, or no claim */
	uint8_t *later;
	int64_t later_at; /* when the endpoint tries again; 0: no claimant waits */
};

/* Adds one to a burst. Returns how many came before it. */
static inline uint32_t sc_burst_add(struct sc_burst *burst, const struct sc_ep *ep)
{
	if (burst->poll != ep->polls)
		burst->count = 0;
	burst->poll = ep->polls;
	return burst->count++;
}

/* After so many operations without a poll, others are likely to follow. */
#define SC_BURST_STREAM_MIN 4

/* Tells whether the last operation was one of a stream. */
static inline bool sc_burst_is_stream(const struct sc_burst *burst)
{
	return burst->count > SC_BURST_STREAM_MIN;
}

/* Begins work that polls continue: puts its entry into that list, if it is in none. */
static inline void sc_ep_begin(struct sc_ep *ep, enum sc_work work, struct sc_list *entry)
{
	if (sc_list_empty(entry))
		sc_list_append(&ep->work[work], entry);
	ep->due |= 1u << work;
	ep->idle = false;
}

/* The same for work whose entry is the peer. */
static inline void sc_peer_begin(struct sc_peer *peer, enum sc_work work)
{
	sc_ep_begin(peer->ep, work, &peer->work[work]);
}

/* Tells whether an operation that is delegated to the peer has not ended, as far as is known. */
static inline bool sc_peer_has_delegated(const struct sc_peer *peer)
{
	return peer->delegate.first != peer->delegate.end;
}

/* Tells whether the oldest of these is withdrawn. */
static inline bool sc_peer_has_withdrawn(const struct sc_peer *peer)
{
	return peer->delegate.first == peer->delegate.ours && sc_peer_has_delegated(peer);
}

/* Counts an operation that has ended; `cntr` is its own, see core.h, `error` a negative errno or 0. */
static inline void sc_ep_count(struct sc_ep *ep, enum sc_event event, struct sc_cntr *cntr, uint32_t flags,
			       int error)
{
	struct sc_cntr *own = ep->cntrs[event];

	if (__builtin_expect(cntr && cntr != own, 0)) {
		sc_cntr_add(error ? &cntr->errors : &cntr->value, 1);
		if (flags & SC_SILENT)
			return;
	}
	if (__builtin_expect(own != NULL, 0))
		sc_cntr_add(error ? &own->errors : &own->value, 1);
}

static inline struct sc_match *sc_rxq_queue(struct sc_rxq *rxq, bool tagged)
{
	return tagged ? &rxq->tagged : &rxq->plain;
}

static inline bool sc_ep_shares_rxq(const struct sc_ep *ep)
{
	return ep->rxq != &ep->own_rxq;
}

#endif
