/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * state.h: the private memory of an endpoint, shared by the files that work on it: peer, and all that
 * test/check-includes.sh has above it.
 *
 * Nothing here is seen by another process. One thread at a time uses an endpoint and everything below it.
 *
 * A peer's life, written by sc_peer_set_link() and sc_peer_set_feed() of peer.h alone:
 *
 *   link (what we write to it)       NONE --connected--> UP --closed, refused, broken--> DOWN
 *                                    NONE --cannot be connected to, is known to have gone--> DOWN
 *   feed (what it writes to us)      NONE --accepted--> UP --departed, died, vanished--> DRAINING --read--> DONE
 *                                    UP --lost, broken rules--> DONE
 *                                    DRAINING --it had vanished, and has departed or died--> DRAINING
 *
 * Once both have ended, and nothing refers to the peer any more, it is forgotten: forget.c.
 *
 * A process that comes back has another address and so is another peer. An endpoint of this one's can come back
 * under the same address: DOWN and DONE become NONE then, once all has ended that there was with the last one
 * (sc_peer_renew()).
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

/* The registration that the earlier pieces of a request were done under; tag 0: none yet. */
struct sc_reg_use {
	uint64_t key, tag;
};

/* Can we copy from a peer's memory, by CMA? Asked when it is first wanted: a system call, and a process's lock. */
enum sc_reach { SC_REACH_NO, SC_REACH_YES, SC_REACH_UNKNOWN };

/* Can a peer copy from our memory? It says so in the answer to the first put that needs it. */
enum sc_fetch { SC_FETCH_UNKNOWN, SC_FETCH_ASKED, SC_FETCH_YES, SC_FETCH_NO };

/*
 * A sender, as receives name it: all peers of one name, see struct sc_ep_name. Made with the first of its peers, it
 * goes with the last of them, or with the queue.
 */
struct sc_source {
	struct sc_source *next; /* hash chain */
	struct sc_list peers;	/* sc_peer.of_source */
	bool named;		/* by a posted receive, in one pass of forget.c */
	uint32_t met;		/* of its peers, those that are connected and not lost */
	int error; /* SC_SOURCE_UNMET; or negative errno: of the last that was lost, or could not be connected to, */
	const struct sc_peer *lost; /* which is this one; NULL: it is there no more */
	char stem[SC_ADDR_STEM];
};

/* Where receives are posted and messages wait: of one endpoint, or of several that share it; see rxq.c. */
struct sc_rxq {
	struct sc_match tagged, plain; /* sources are struct sc_source */
	struct sc_slab ops;	       /* sc_rx_op */
	size_t size;
	struct sc_list claimed;	    /* sc_rx_msg */
	struct sc_list eps;	    /* sc_ep.of_rxq: the first reports what no message ends */
	struct sc_source **sources; /* by stem */
	uint32_t source_mask, source_count;
};

/* A copy that a peer does, and this side along with it, as the joiner; see xfer.h. */
struct sc_xfer {
	struct sc_share share;
	struct sc_peer *peer;
	struct sc_list of_ep; /* SC_WORK_JOINED */
	bool pull;	      /* this side reads the peer's memory, else it writes there */
	bool memory;	      /* of a registration, of this key, from this address on; else at `ours` */
	uint64_t key, addr, tag;
	const struct iovec *ours, *theirs;
	size_t ours_count, theirs_count;
};

/* Operations of a kind that are posted without a poll between. */
struct sc_burst {
	uint32_t count;
	uint32_t poll; /* the last one before them */
};

/* Buffers that may come back with a message, oldest first; see hold.h. */
struct sc_returnables {
	uint16_t bufs[SC_ABI_RETURN_BUFS];
	uint32_t count;
};

/* Such of a peer's that are held, oldest first. */
struct sc_hold {
	uint16_t bufs[SC_ABI_RETURN_BUFS];
	uint32_t count;
	uint32_t poll;	      /* in which the last was read */
	uint64_t behind;      /* lines of the ring up to and with its record */
	struct sc_list of_ep; /* sc_ep.holding: there are some */
};

/*
 * The parts of struct sc_peer, by use. The files named in the comment of a part write it. `listed` is the place of the
 * peer in the list of work of that kind, see enum sc_work.
 */

/* bounce.c, record.c: buffers of ours that the peer reads. */
struct sc_peer_bounce {
	struct sc_loans loans;
	struct sc_returnables returnables; /* of those */
	struct sc_fill fill;
	struct sc_list borrower; /* sc_ep.borrowers: has loans */
	uint64_t looked_at;	 /* tx.head when buffers were short last, */
	uint32_t looks;		 /* and how often since it was there */
	bool is_behind;		 /* it had more than the last message to read when last asked; see bounce.c */
	uint32_t rendezvous;	 /* not acknowledged yet, of messages that could be eager */
	struct sc_burst burst;	 /* of such messages */
};

/* turn.h, fence.h: the order of what is sent. */
struct sc_peer_order {
	uint64_t line, units; /* behind the messages of so many units; see fence.h, */
	uint64_t fence;	      /* as this: records unread before it have to come first; 0: none */
	uint64_t taken;	      /* it has taken all before this line, as its answers show */
	struct sc_list turns; /* sc_turn.of_peer: oldest first */
	struct sc_turn *turn; /* of what is being posted */
};

/* reply.c: answers to the peer. */
struct sc_peer_reply {
	struct sc_list waiting; /* sc_reply: found the ring full */
	struct sc_list listed;	/* SC_WORK_REPLYING: there are some, or were */
	uint32_t count;
};

/* rma.c, request.c: one-sided operations of ours. */
struct sc_peer_rma {
	struct sc_list queued;	/* sc_rma_op.of_peer: have records to write, oldest first */
	struct sc_list waiting; /* sc_rma_op.of_peer: all written, answers to come */
	uint32_t requests;	/* records that are to be answered */
	uint32_t gets;		/* of those, gets */
	uint32_t fars;		/* and puts that it copies from our memory */
	uint32_t pending;	/* operations in these lists, and in those of batch, delegate and assist */
	struct sc_list listed;	/* SC_WORK_RMA_BUSY: has some queued */
	uint64_t hazard_count;	/* in the high bits of hazard words */
	struct sc_reg_use unreachable; /* the last registration that CMA did not reach all of; tag 0: none */
	struct sc_burst burst;
	bool streamed;	     /* the burst before that was a stream */
	enum sc_fetch fetch; /* can the peer read our memory? */
};

/* direct.c: such operations that are put off, to be copied in one call. */
struct sc_peer_batch {
	struct sc_list ops;    /* sc_rma_op.of_peer: oldest first */
	struct sc_list listed; /* SC_WORK_BATCHING: has some */
	size_t bytes;
	uint32_t count;
};

/* delegate.c: such operations that the peer may do. */
struct sc_peer_delegate {
	struct sc_list ops;    /* sc_rma_op.of_peer: oldest first */
	struct sc_list listed; /* SC_WORK_DELEGATED: has some */
	uint32_t first, end;   /* their numbers */
	uint32_t ours;	       /* from this one on they are withdrawn */
	uint32_t withdrawn;    /* as the claim has it */
	uint32_t looks;	       /* in vain, for the oldest */
	uint32_t spared;       /* operations to come that are not delegated: it did not take the last */
	uint32_t alone;	       /* how many of them it was the last time */
	uint64_t answers_read; /* of its gets in buffers, as it sees it */
};

/* taker.c: operations of the peer's that are delegated to us. */
struct sc_peer_taker {
	uint32_t seen;		 /* in its ring */
	uint32_t taken;		 /* as the claim has it */
	uint32_t told;		 /* of those, as delegated_done has it */
	struct sc_loans answers; /* buffers that gets were answered in, at the number of the answer */
	uint64_t answer_count;	 /* such gets so far */
};

/* target.c: requests of the peer's. */
struct sc_peer_target {
	struct sc_list ops;    /* sc_target_op.of_peer: not answered yet, oldest first */
	struct sc_list listed; /* SC_WORK_SERVING: has some */
	uint32_t count;
	struct { /* the put under way, in several records */
		sc_abi_op op;
		struct sc_reg_use use;
		uint64_t moved; /* bytes */
		int error;	/* negative errno, or 0 */
	} put;
};

/* assist.c: large puts and gets that both sides copy. */
struct sc_peer_assist {
	struct sc_list ops;    /* sc_rma_op.of_peer: ours, oldest first; the peer assists with that */
	struct sc_list listed; /* SC_WORK_ASKING: has some */
	struct sc_xfer xfer;   /* the last one of the peer's that it shared */
	struct iovec there;    /* its memory */
};

/* xfer.c: copies that this side has shared with the peer. */
struct sc_peer_xfer {
	uint32_t opened;     /* one bit for each share that we have opened */
	uint32_t generation; /* of the last, 0: there was none */
	uint32_t missed_index,
		missed_generation; /* of one that it had not come to when the copy was over; 0: none */
	uint32_t looks;		   /* in vain, for the last chunks of its */
	uint64_t seen;		   /* given up: when it was last seen to run, nanoseconds; and how often */
	uint32_t runs;
	bool copies_not; /* it has said that it cannot copy along */
};

/* deliver.c, transfer.c, waiting.c, ack.c: messages of the peer's. */
struct sc_peer_recv {
	struct sc_list transfers; /* sc_rx_op.of_peer: matched, payload on its way */
	struct sc_list copying;	  /* sc_rx_op.pulling: CMA does it, oldest first */
	struct sc_list listed;	  /* SC_WORK_PULLING: `copying` has some */
	struct sc_list waiting;	  /* sc_rx_msg.of_peer: unmatched, oldest first */
	uint64_t units_held;	  /* of messages that wait unmatched */
	uint32_t lent;		  /* read in its buffers since it was last told, bytes */
	/* a message in parts, of which the first is here: its receive, or, as long as there is none, it */
	struct sc_rx_op *arriving_op;
	struct sc_rx_msg *arriving;
	struct sc_list fenced; /* sc_fenced: acknowledgements that wait for those before them */
	uint32_t fenced_count;
	uint64_t arrivals; /* messages that have had to wait so far */
};

/* Bytes that a processor loads at once; a larger line does no harm. */
#define SC_CACHE_LINE 64

struct sc_peer {
	/* Each send reads these, and of `tx` all that is before its `head`: two cache lines. */
	_Alignas(SC_CACHE_LINE) struct sc_ep *ep;
	struct sc_seg *seg;		  /* NULL: not attached */
	uint64_t units_sent, units_limit; /* see sc_abi_consumer.window */
	struct sc_burst two_lines;	  /* of messages in records of two lines */
	enum sc_link link;
	enum sc_feed feed;
	int error;		    /* negative errno once link is DOWN */
	uint32_t out_slot, in_slot; /* in its segment, in ours */
	uint32_t inbound_index;	    /* place in sc_ep.inbound */
	struct sc_ring_tx tx;

	/* Each receive reads these. */
	struct sc_ring_rx rx;
	struct sc_source *source; /* in the receive queue of `ep` */
	uint64_t units_back;	  /* returned to the peer so far */
	struct sc_peer_recv recv;

	struct sc_peer_bounce bounce;
	struct sc_hold hold;	  /* buffers of its that have been read */
	enum sc_reach can_return; /* may we write to its buffers? */
	struct sc_peer_order order;
	struct sc_list ops; /* sc_tx_op.of_peer: pending sends, oldest first, */
	uint32_t op_count;  /* so many */
	struct sc_peer_reply reply;
	struct sc_peer_xfer xfer;
	struct sc_peer_rma rma;
	struct sc_peer_batch batch;
	struct sc_peer_delegate delegate;
	struct sc_peer_assist assist;
	struct sc_peer_target target;
	struct sc_peer_taker taker;

	/* peer.c: how it is found, watched and let go */
	struct sc_peer *next;	  /* hash chain */
	struct sc_list all;	  /* sc_ep.peers, .absent or .leaving */
	bool present;		  /* the first of these */
	struct sc_list of_source; /* sc_source.peers */
	bool met;		  /* counted there */
	bool named;		  /* by a completion, in one pass of forget.c */
	uint32_t users;		  /* sc_peer_get() less sc_peer_put() */
	uint64_t user;
	enum sc_reach can_read; /* see sc_peer_can_read() */
	bool writes_fail;	/* to its memory, by CMA, though it can be read */
	bool unread;		/* we close and it has messages to read in our segment */
	bool left;     /* it had gone before it was attached, and left messages in its segment */
	bool vanished; /* nobody has its address any more, and nothing has proven yet that it has gone */
	bool told;     /* that it is lost has been logged for a send */
	bool full;     /* one of the two had no place free for the other: that can be tried again */
	struct sc_watch watch; /* of `seg` */
	struct sc_cma cma;
	struct sc_list doubted;	   /* SC_WORK_DOUBTED */
	struct sc_list ending;	   /* SC_WORK_ENDING: pending operations are to be failed */
	struct sc_list unanswered; /* SC_WORK_UNANSWERED: connected, not accepted yet */
	dev_t dev;		   /* the file of the last segment, 0: there was none */
	ino_t ino;
	char address[SC_ADDR_SIZE];
};

static_assert(offsetof(struct sc_peer, tx) + offsetof(struct sc_ring_tx, head) == 2 * SC_CACHE_LINE,
	      "each send reads two cache lines of a peer");

/* Of an operation whose completion waits for those before it, see turn.c. */
struct sc_turn {
	struct sc_slab_object slab;
	struct sc_list of_peer; /* sc_peer.order.turns */
	bool ended, silent;
	struct sc_comp comp;
};

/* A pending send. */
enum sc_tx_state {
	SC_TX_PUBLISHED, /* record written, waiting for the acknowledgement or a pull */
	SC_TX_PUSHING,	 /* the receiver asked for the payload in pieces */
	SC_TX_PUSHED,	 /* all pieces written, waiting for the acknowledgement */
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
	void *copy;  /* injected payload kept here, else NULL */
	uint64_t to; /* pushing: the receiver's operation */
	bool unreadable; /* pushing: nothing, as it could not be read */
	size_t push_size, pushed;
	struct sc_xfer xfer; /* published: the receiver shares the copy, of_ep */
	size_t iov_count;
	struct iovec iov[SC_IOV_MAX];
	struct iovec segments[SC_ABI_RDV_SEGMENTS]; /* of xfer: the receiver's memory */
};

/* Requests of ours that a peer has not answered. */
#define SC_RMA_REQUESTS_MAX 64

/* A one-sided operation that is not over in the call; see rma.c. */
enum sc_rma_kind {
	SC_RMA_PUT,
	SC_RMA_GET,
	SC_RMA_ATOMIC,
	SC_RMA_NOTE, /* it is done; the peer is to be told */
};

struct sc_rma_op {
	struct sc_slab_object slab;
	enum sc_rma_kind kind;
	enum sc_event event; /* the counter event */
	uint32_t flags;	     /* SC_SILENT... */
	struct sc_peer *peer;
	struct sc_list of_peer; /* sc_peer.batch, .delegate, .assist or .rma has it in a list */
	struct sc_turn *turn;	/* or NULL */
	void *context;
	struct sc_cntr *cntr;
	uint32_t cq_flags;
	uint64_t data;
	size_t size;	  /* bytes */
	size_t begun;	  /* bytes that records have been written for */
	size_t moved;	  /* bytes that have been answered for */
	size_t got;	  /* get through bounce buffers: bytes of the record that is being answered */
	bool started;	  /* a record has been written */
	bool far;	  /* put: the peer copies from our memory */
	bool again;	  /* it has said that it cannot */
	uint32_t answers; /* to come */
	int error;	  /* negative errno of the first that went wrong */
	uint64_t at;	  /* line of the ring, since the first: of its record (delegated), or behind it */
	uint32_t line;	  /* and its first line */
	struct sc_share share; /* assisted: with the peer, under this: */
	struct sc_reg_ref ref;
	uint8_t *copy;	  /* atomic: operands, then values to compare with; inject: the payload */
	enum sc_atomic_kind atomic_kind;
	enum sc_atomic_type atomic_type;
	enum sc_atomic_code atomic_code;
	size_t iov_count, remote_count;
	struct iovec iov[SC_IOV_MAX]; /* source of a put, destination of a get, results of an atomic */
	struct sc_remote remote[SC_REMOTE_MAX];
};

/* A peer's get, or the result of its atomic, that is not answered yet; see target.c. */
struct sc_target_op {
	struct sc_list of_peer;
	sc_abi_op op;
	uint64_t key, addr; /* get */
	struct sc_reg_use use;
	uint64_t size, done; /* bytes */
	bool result;
	bool bounced; /* get: goes through bounce buffers, */
	bool fault;   /* as the kernel does not store to the peer's memory */
	bool event;   /* get: to be counted */
	uint32_t segment_count;
	union {
		struct iovec segments[SC_ABI_RDV_SEGMENTS]; /* get: of the peer's memory */
		uint8_t values[SC_ABI_RESULT_FIRST + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES];
	};
};

/* An answer that waits for room in a ring. */
struct sc_reply {
	struct sc_list of_peer;
	enum sc_abi_kind kind;
	uint32_t size;
	uint64_t words[7];
};

/*
 * The acknowledgement of a fenced message that was received before others that its sender had sent
 * earlier: fi_cq(3) has it tell of those as well.
 */
struct sc_fenced {
	struct sc_list of_peer;
	uint64_t arrival; /* of the fenced message */
	sc_abi_op op;
	uint64_t moved;
};

/*
 * Of sc_rx_op.flags, besides SC_*: it has several buffers, a counter of its own, or is for several messages. Of others
 * the counter, the capacity and the number of buffers may not be set before sc_rxop_settle(): a message that is
 * short needs none of them. The receiver of an answer sees it when all stores before it have been made, so a call makes
 * few: docs/MEASUREMENTS.md, "Stores of a call".
 */
#define SC_RX_FULL (1u << 30)

/* A posted receive, then its transfer. */
struct sc_rx_op {
	struct sc_slab_object slab;
	struct sc_match_recv match;
	uint32_t flags, cq_flags;
	void *context;
	struct sc_cntr *cntr;
	struct sc_peer *peer; /* of a transfer: its sender; else NULL, in the slab, too */
	size_t capacity; /* of iov, bytes; multi-receive: bytes left */
	size_t iov_count;
	struct iovec iov[SC_IOV_MAX];

	/* multi-receive */
	size_t multi_min;
	struct sc_rx_op *multi; /* transfer into a multi-receive buffer: the posted one */
	uint32_t multi_transfers;

	/* transfer of a message that comes in parts, or as a rendezvous */
	struct sc_list of_peer;
	struct sc_list pulling; /* sc_peer.recv.copying, while CMA does it */
	struct sc_share share;	/* sharing: with its sender */
	bool unshared;		/* for good */
	bool proven;		/* sharing: whose memory was read last */
	int failed;		/* sharing: negative errno, once the sender has ended too */
	bool over;		/* only reported when those before it have been, */
	int outcome;		/* with this: negative errno or 0 */
	uint64_t fence;		/* arrival of a fenced message, 0: not fenced */
	sc_abi_op message;	/* the sender's operation; 0: it does not wait */
	uint64_t size;		/* of the message */
	size_t want, done;	/* bytes to move, moved; of one in parts, that have come */
	uint64_t tag, data;
	uint32_t comp_flags;
	uint32_t segment_count;
	struct iovec segments[SC_ABI_RDV_SEGMENTS];
};

/* An unexpected message. */
struct sc_rx_msg {
	struct sc_match_msg match;
	struct sc_list claimed; /* sc_rxq.claimed */
	struct sc_list of_peer; /* sc_peer.recv.waiting */
	uint64_t arrival;
	const void *claim; /* context it was claimed with */
	struct sc_peer *peer;
	enum sc_abi_kind kind;
	uint32_t flags; /* SC_ABI_F_* */
	uint64_t data;
	sc_abi_op op;
	uint64_t size, units;
	uint64_t arrived; /* bytes; while it arrives it is in no queue */
	uint32_t segment_count;
	/* payload (inline, bounce), or the segments (rendezvous) */
	union {
		uint8_t bytes[1];
		struct iovec segments[1];
	};
};


/* The kinds of work that polls go on with, in the order of a poll. Each has a list in struct sc_ep; its entries: */
enum sc_work {
	SC_WORK_UNANSWERED, /* sc_peer: connected, not accepted yet */
	SC_WORK_PULLING,    /* sc_peer: payload by CMA */
	SC_WORK_REPLYING,   /* sc_peer: answers that found its ring full */
	SC_WORK_PUSHING,    /* sc_tx_op: payload in pieces */
	SC_WORK_JOINED,	    /* sc_xfer: copies of peers that we share */
	SC_WORK_DELEGATED,   /* sc_peer: puts and gets are delegated */
	SC_WORK_BATCHING,   /* sc_peer: puts and gets are put off */
	SC_WORK_RMA_BUSY,   /* sc_peer: one-sided operations with records to write */
	SC_WORK_SERVING,    /* sc_peer: requests of its are not answered yet */
	SC_WORK_ASKING,	    /* sc_peer: assists with a put or get, or is asked to next */
	SC_WORK_ENDING,	    /* sc_peer: lost, and what was in flight with it is to end */
	SC_WORK_DOUBTED,    /* sc_peer: may be to move to another list of peers, see forget.c */
	SC_WORK_COUNT
};

struct sc_ep {
	struct sc_config config;
	struct sc_comp_ring *tx_cq, *rx_cq;
	struct sc_cntr *cntrs[SC_EVENTS]; /* each one's; NULL: nobody counts */
	struct sc_regtab *regtab;
	struct sc_list of_regtab;    /* its endpoints */
	struct sc_regtab_view table; /* as our peers see it, in our segment */
	struct sc_seg *seg;
	struct sc_service *service;
	struct sc_pool pool;
	struct sc_list borrowers; /* sc_peer: may have buffers that it has read */
	struct sc_list holding;	  /* sc_peer: some of its buffers are held, for longest first */
	uint32_t buf_shift;	  /* log2 of the bounce buffer size */
	struct sc_counters counters;

	struct sc_rxq *rxq, own_rxq; /* the one in use, which may be its own */
	struct sc_list of_rxq;
	uint32_t rx_silent; /* SC_SILENT, or 0: all receives are reported */
	struct sc_slab tx_ops;
	size_t tx_size;
	uint32_t short_end;  /* payloads smaller than this go the short way, see tx.c; bytes */
	uint32_t buffer_end; /* and these fit one bounce buffer */
	uint64_t line_end;   /* those of peers likewise, see fast.h */
	uint64_t window_step; /* units given back to a peer before it is told */
	uint32_t order;	     /* SC_ORDER_* */
	struct sc_slab turns;
	uint32_t turns_taken;

	uint32_t membership;	  /* last seen */
	struct sc_peer **inbound; /* peers whose rings are polled; the busy ones first */
	uint32_t inbound_count, inbound_busy, inbound_cursor, inbound_victim;

	struct sc_slab rma_ops;
	struct sc_probe memory; /* of ours, that peers use just now */
	struct sc_list work[SC_WORK_COUNT];

	struct sc_list peers;	/* sc_peer: there is a segment, a slot, or something under way */
	struct sc_list absent;	/* sc_peer: nothing of that, not yet or not any more; no review looks at them */
	struct sc_list leaving; /* sc_peer: such as are to be forgotten, see forget.c; */
	uint32_t leaving_fresh; /* so many since the last pass, */
	uint32_t leaving_step;	/* which the next one waits for */
	struct sc_departed *heard; /* NULL: nobody has been forgotten yet */
	bool (*knows)(void *arg, const char *addr); /* see struct sc_ep_attr */
	void *knows_arg;
	struct sc_list *watched; /* of `peers`: whose life was asked for last */
	struct sc_list *glanced; /* and whose word of life was looked at */
	uint32_t polls, watch_mask;
	bool idle; /* the last poll found nothing to do, and nothing has been begun since that polls go on with */
	uint32_t due;	       /* of `work`: a bit for each list that may have entries, 1 << SC_WORK_* */
	uint32_t vain;	       /* times in a row that sc_ep_rest() has seen what polls then did not take */
	bool wants_room;       /* a record or a buffer found none; until asked for in sc_ep_rest() */
	bool pushed_back;      /* a send did, until asked for by sc_ep_was_refused() */
	bool alone;	       /* no thread of the daemon's looks after our peers */
	bool barrier;	       /* sleepers of this process can see what others store, see wake.c */
	struct sc_sleep armed; /* as the last sleeper has left it, */
	int64_t armed_at;      /* and when, ns */
	int64_t watched_at;    /* when a sleeper has looked after the peers, while `alone` */
	struct sc_bell bell;
	struct sc_peer **peer_table; /* by address */
	uint32_t peer_table_mask, peer_count;
	uint64_t accepted[SC_ABI_SLOTS_MAX / 64]; /* slots of ours that have been dealt with */
	bool refused; /* owners of claims among these may have been refused, or given up */
	/* for each slot: the errno why its claimer could not be let in yet; 0: it could, or there is no claim */
	uint8_t *later;
	int64_t later_at; /* when that is tried again; 0: nobody waits for it */
};

/* One more of a burst. Returns how many were before it. */
static inline uint32_t sc_burst_add(struct sc_burst *burst, const struct sc_ep *ep)
{
	if (burst->poll != ep->polls)
		burst->count = 0;
	burst->poll = ep->polls;
	return burst->count++;
}

/* Something has been begun that polls go on with: its entry is in that list from now on, if it is not already. */
static inline void sc_ep_begin(struct sc_ep *ep, enum sc_work work, struct sc_list *entry)
{
	if (sc_list_empty(entry))
		sc_list_append(&ep->work[work], entry);
	ep->due |= 1u << work;
	ep->idle = false;
}

/* An operation with these flags has ended; `cntr` is its own, see core.h, `error` a negative errno or 0. */
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
