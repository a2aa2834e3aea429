/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * abi.h: every byte that another process sees, and nothing else.
 *
 * One endpoint owns one segment, a file in POSIX shared memory:
 *
 *   0      +-----------------------------------------------+
 *          | header          immutable once the file has   |
 *          |                 its name                      |
 *   1024   | presence        owner's state, membership,    |
 *          |                 sizes of the table            |
 *   4096   +-----------------------------------------------+
 *          | claims[slots]   8 bytes a slot                |
 *          +-----------------------------------------------+
 *   slots  | slot 0          one connected peer: its name, |
 *          | ...             how far its ring is read, and |
 *          | slot n-1        the ring it writes            |
 *          +-----------------------------------------------+
 *   pool   | bounce buffers  lent by the owner to peers    |
 *   table  +-----------------------------------------------+
 *          | buckets         of application keys           |
 *          | registrations   64 bytes each                 |
 *          | ranges          of those that have several    |
 *          +-----------------------------------------------+
 *
 * Header, claims and a few bounce buffers have memory from the start. The first page of a slot gets its memory
 * (fallocate) when a peer takes it, the other page when its ring grows, pool and table as they grow. So an unused part
 * costs only address space.
 *
 * The writers: the owner writes the header (once), its presence, the pool, the table, each slot's consumer line, its
 * reports of chunks, and its answers to gets into their lines of the ring. A peer writes the claim, the introduction,
 * the hazards, the chunks, the delegation, the count of answers and the ring of the one slot that it has claimed; it
 * writes a message into buffers of the pool that it was lent for that, and adds to the membership count. Both sides
 * change the claims of chunks and of delegated operations, and presence.sleep (compare and swap). When one side has
 * gone, the other one writes for it: presence.state, presence.unread, the hazards. A process that reads a word of
 * another process loads it once, checks it, and uses the copy.
 *
 * The header has all figures that an attacher needs (geometry). An attacher never uses its own configuration for the
 * memory of another process.
 */
#ifndef SHMCMA_ABI_H
#define SHMCMA_ABI_H

#include <stdint.h>

#define SC_ABI_MAGIC 0x414d434d48534353ULL /* "SCSHMCMA", little endian */
#define SC_ABI_MAJOR 1
#define SC_ABI_MINOR 0

#define SC_ABI_PAGE 4096
#define SC_ABI_LINE 64
#define SC_ABI_ADDR_SIZE 64 /* 63 characters and NUL */

#define SC_ABI_PART_ORDER 1 /* order of the parts, as drawn above */
#define SC_ABI_SLOTS_MAX 1024
#define SC_ABI_SLOT_SIZE 8192
#define SC_ABI_SLOT_FIRST 4096 /* bytes of it that have memory from the start, */
#define SC_ABI_RING_FIRST 55   /* and lines of the ring in there; */
#define SC_ABI_RING_LINES 119  /* of all, once it has grown: SC_ABI_CONTINUE */
#define SC_ABI_BUFS_MAX 4096
#define SC_ABI_BUF_SIZE_MAX (1u << 20)

/* The capabilities of an endpoint, in sc_abi_header.capabilities. */
#define SC_ABI_CAP_TAGGED (1u << 0)
#define SC_ABI_CAP_MSG (1u << 1)
#define SC_ABI_CAP_RMA (1u << 2)
#define SC_ABI_CAP_STRICT (1u << 3) /* no peer may access its memory: it serves requests itself */
#define SC_ABI_CAP_EVENTS (1u << 4) /* it counts accesses to its memory: each needs an SC_ABI_NOTE */
#define SC_ABI_CAP_BARRIER (1u << 5) /* its stores take part in membarrier(2) of others, see wake.c */

/* The process that has made a file: other processes prove by this whether it lives, see owner.c. */
struct sc_abi_owner {
	uint64_t boot_id[2];
	uint64_t start_time;  /* field 22 of /proc/self/stat, clock ticks since boot */
	uint64_t pid_ns;      /* inode of /proc/self/ns/pid */
	uint64_t pidfs_ino;   /* inode of a pidfd of it, 0: kernel without pidfs */
	int32_t pid;	      /* in its own namespace */
	int32_t cma_tid;      /* thread to name in process_vm_readv(2) */
	uint64_t cookie_addr; /* in its address space */
	uint64_t cookie;
};

struct sc_abi_header {
	uint64_t magic;
	uint16_t major, minor;
	uint32_t layout; /* SC_ABI_LAYOUT of the writer */
	uint64_t length; /* bytes of the file */

	/* geometry: offsets and sizes in bytes from the start of the file */
	uint32_t claims_offset, slot_count;
	uint64_t pool_offset;
	uint32_t buf_size, buf_count;
	uint64_t slots_offset;
	uint32_t slot_size, ring_lines;

	uint64_t nonce[2];
	struct sc_abi_owner owner;
	uint32_t capabilities, pad;
	uint64_t window; /* units (SC_ABI_UNITS) that a peer may leave unmatched here */

	/* the registration table: sizes in entries */
	uint64_t table_offset;
	uint32_t reg_max, range_max;

	char address[SC_ABI_ADDR_SIZE];

	/*
	 * Private memory of the owner, for the command shmcma: struct sc_counters of core.h, at this address in the
	 * owner's address space, of that many bytes; and `free_bufs_offset` bytes from there, in 32 bits, the number of bounce
	 * buffers that have memory and are not lent. 0: none. No endpoint reads it.
	 */
	uint64_t counters_addr;
	uint32_t counters_size;
	int32_t free_bufs_offset;
};

/*
 * sc_abi_presence.membership: CAME: a peer has published a claim here. CHANGED: a peer has departed, closed, or given
 * up the connection. If only the lower half has changed, the owner looks at the claims alone. (When the lower half
 * overflows, the owner looks once more than it has to.)
 */
#define SC_ABI_CAME 1u
#define SC_ABI_CHANGED (1u << 16)

/*
 * sc_abi_presence.state. An owner that closes takes OPEN to CLOSED. A process that proves the death of the owner's
 * process takes OPEN to ENDED (compare and swap), for all processes that have the segment attached. A peer that finds
 * anything but OPEN writes nothing more there.
 */
enum sc_abi_state { SC_ABI_OPEN = 1, SC_ABI_CLOSED = 2, SC_ABI_ENDED = 3 };

/* At SC_ABI_PRESENCE; the only changing part of the first page. */
struct sc_abi_presence {
	uint32_t state;	     /* enum sc_abi_state, written by the owner, after its death by any process */
	uint32_t membership; /* + SC_ABI_CAME or SC_ABI_CHANGED (atomic add, by any process) */
	uint32_t buf_count;  /* bounce buffers that have memory, the first ones; only grows */
	uint32_t unread;     /* CLOSED: claims marked UNREAD; a peer that takes it to 0 removes the name */

	/* of the registration table; see struct sc_abi_reg */
	uint32_t reg_count;   /* registrations that have memory, whether in use or not */
	uint32_t range_count; /* ranges that have memory */
	uint32_t bucket_bits; /* log2 of the buckets in use, 0: none */
	uint32_t chains;      /* odd while buckets or chains change, another even number after it */

	/* the kernel's list of words of life: an address in the owner's memory, which no other process uses */
	uint64_t life_next;
	/*
	 * The word of life, a robust futex of a thread of the owner: the tid of that thread, or 0: no such thread. When
	 * the process ends, or execs, the kernel adds SC_ABI_LIFE_ENDED before another process can get the pid. A
	 * process that sees a tid needs no slower proof that the pid still is the owner's. Any process may have
	 * scribbled on the word. So it proves a death only if the life lock is free as well, and the process with that
	 * pid does not let its memory be read.
	 */
	uint32_t life;
	uint32_t counting; /* not 0: a registration counts accesses (SC_REG_EVENT), or did */

	/*
	 * The sleepers that wait for writes of others: SC_ABI_SLEEP_* flags, and a count of armings and wakes, see
	 * wake.c. A process that has written something looks at the flag for that; the low half is the futex to wake.
	 */
	uint64_t sleep;
	uint64_t pad[9];
};
#define SC_ABI_SLEEP_ASLEEP 1ULL /* for records, claims, answers, all that the sleeper takes in */
#define SC_ABI_SLEEP_ROOM 2ULL	 /* and for lines and buffers that are given back */
#define SC_ABI_SLEEP_FLAGS 3ULL
#define SC_ABI_LIFE_TID 0x3fffffffu   /* FUTEX_TID_MASK */
#define SC_ABI_LIFE_ENDED 0x40000000u /* FUTEX_OWNER_DIED */
#define SC_ABI_PRESENCE 1024

/*
 * A claim: 0 free, else the claimant's ticket in the high bits and its progress in the low 3.
 * ticket: pid (31 bits) and 29 bits of its nonce. The pid is one of the owner's namespace, unless ELSEWHERE (the
 * highest bit) says that it is of another: then a claimant that is not visible under that pid may live all the same.
 * The claimant goes 0 -> CLAIMED (compare and swap) -> PUBLISHED -> DEPARTED (plain stores), or from CLAIMED back to 0.
 * The owner returns the claim to 0 from DEPARTED, or from any of the three once the claimant is dead.
 * DEPARTED with UNREAD: messages in this slot have their payload in the claimant's bounce buffers, and the claimant did
 * not see itself accepted; its segment keeps its name, so that the owner can attach it. Once the owner has closed,
 * either side removes UNREAD (compare and swap) and takes 1 from the claimant's sc_abi_presence.unread.
 */
enum sc_abi_claim { SC_ABI_CLAIMED = 1, SC_ABI_PUBLISHED = 2, SC_ABI_DEPARTED = 3 };
#define SC_ABI_CLAIM_STATE 3ULL
#define SC_ABI_CLAIM_UNREAD 4ULL  /* with DEPARTED */
#define SC_ABI_CLAIM_REFUSED 4ULL /* with PUBLISHED; by the owner: it could not even answer in the slot */
#define SC_ABI_CLAIM_BITS 7ULL
#define SC_ABI_CLAIM_ELSEWHERE (1ULL << 63)
#define SC_ABI_TICKET(pid, nonce)                                                                         \
	((uint64_t)(uint32_t)(pid) << 32 | ((uint32_t)(nonce) & ~(uint32_t)SC_ABI_CLAIM_BITS))
#define SC_ABI_CLAIM_TICKET(claim) ((claim) & ~(SC_ABI_CLAIM_BITS | SC_ABI_CLAIM_ELSEWHERE))

/* The owner's answer to a connection, in sc_abi_consumer.answer. */
enum sc_abi_answer { SC_ABI_PENDING = 0, SC_ABI_ACCEPTED = 1, SC_ABI_REFUSED = 2, SC_ABI_BROKEN = 3 };

/*
 * One line of a ring. A record is one or more lines, the last of the ring followed by the first.
 * `ctl` of the first line publishes the record; every line's ctl carries the lap in its top byte, so
 * a line left from an earlier lap is never taken for a record, whatever the payload holds.
 *
 *   0        8        16                                       56       64
 *   +--------+--------+----------------------------------------+--------+
 *   | tag    | data   | payload, 40 bytes                      | ctl    |  first line
 *   +--------+--------+----------------------------------------+--------+
 *   | payload, 56 bytes                                        | ctl    |  further lines
 *   +----------------------------------------------------------+--------+
 *
 * With SC_ABI_F_ACK the operation takes words[2] and the payload of the first line is 32 bytes.
 */
struct sc_abi_line {
	union {
		uint8_t bytes[56];
		uint64_t words[7];
	};
	uint64_t ctl;
};
#define SC_ABI_LINE_BYTES 56

/*
 * ctl:  63..56 lap (1 or 2, alternating; 0 never written)
 *       55..48 kind       (enum sc_abi_kind)
 *       47..40 flags      (SC_ABI_F_*)
 *       39..32 lines      (of the record, 1..SC_ABI_RECORD_LINES)
 *       31..0  size       (of the message, bytes; SC_ABI_RDV: number of segments; SC_ABI_CONTINUE: where)
 */
#define SC_ABI_CTL_LAP_SHIFT 56
#define SC_ABI_CTL_KIND_SHIFT 48
#define SC_ABI_CTL_FLAGS_SHIFT 40
#define SC_ABI_CTL_LINES_SHIFT 32
#define SC_ABI_RECORD_LINES 16

enum sc_abi_kind {
	SC_ABI_INLINE = 1, /* a message, payload in the record */
	SC_ABI_BOUNCE = 2, /* a message, payload in bounce buffers of the sender, or in one of the receiver's */
	SC_ABI_RDV = 3,	   /* a message, payload in the sender's memory: struct sc_abi_rdv follows */
	SC_ABI_ACK = 4,	   /* to the sender: operation ended, struct sc_abi_ack */
	SC_ABI_PULL = 5,   /* to the sender: send the payload through bounce buffers, struct sc_abi_pull */
	SC_ABI_PIECE = 6,  /* answer to SC_ABI_PULL, or more of a bounce message, struct sc_abi_piece */

	/* One-sided requests, to the process whose memory it is, and their answers. */
	SC_ABI_PUT = 7, /* bytes in the writer's memory, struct sc_abi_far; bounced: struct sc_abi_put */
	SC_ABI_GET = 8, /* bytes to the writer's memory, struct sc_abi_far */
	SC_ABI_ATOMIC = 9, /* struct sc_abi_atomic, operands follow */
	SC_ABI_NOTE = 10,   /* something has been done to your memory, struct sc_abi_note */
	SC_ABI_DONE = 11,   /* answer: ended, struct sc_abi_ack */
	SC_ABI_GOT = 12,    /* answer: bytes in bounce buffers, struct sc_abi_got */
	SC_ABI_RESULT = 13, /* answer: former values, struct sc_abi_result, values follow */

	SC_ABI_SHARE = 14,	  /* to the other side of a copy: it may copy along, struct sc_abi_share */
	SC_ABI_DELEGATE_PUT = 15, /* a put that either side may do, struct sc_abi_delegate, bytes follow */
	SC_ABI_DELEGATE_GET = 16, /* a get of that kind, struct sc_abi_delegate, answered in its lines */

	SC_ABI_CONTINUE = 17, /* the next records are elsewhere, see SC_ABI_IN_RING */
	SC_ABI_KIND_MAX = SC_ABI_CONTINUE,
};

#define SC_ABI_F_TAGGED (1u << 0) /* message is for the tagged queue */
#define SC_ABI_F_DATA (1u << 1)	  /* words[1] is the sender's immediate data */
#define SC_ABI_F_ACK (1u << 2) /* inline, bounce: SC_ABI_ACK, words[2] = operation; put, atomic: SC_ABI_DONE */
#define SC_ABI_F_FENCE (1u << 3) /* with F_ACK, and rendezvous: after all earlier messages of the pair */
#define SC_ABI_F_EVENT (1u << 4) /* note; put, get, atomic: the last of an operation: count it */
#define SC_ABI_F_KEYED                                                                                    \
	(1u << 7) /* the same four: the last one under its key: count it for the registration alone */
#define SC_ABI_F_RETURNABLE                                                                               \
	(1u << 4) /* bounce, piece, delegated put: its one buffer may come back, by F_RETURNED */
#define SC_ABI_F_BOUNCED (1u << 5) /* put, delegated put: its bytes are in buffers; delegated get: they are to be */
#define SC_ABI_F_PARTS (1u << 6) /* bounce: one full buffer of it, SC_ABI_PIECEs follow with the others */
#define SC_ABI_F_RETURNED                                                                                 \
	(1u << 7) /* the same three: its one buffer is the reader's own, which comes back */
#define SC_ABI_F_MEMORY (1u << 0) /* share: of a put or get */
#define SC_ABI_F_PUT (1u << 1)	  /* with F_MEMORY: of a put */

/*
 * An operation of the writer, opaque to the other side, which echoes it. Low 32 bits: index; high 32 bits: generation.
 */
typedef uint64_t sc_abi_op;

/* Bounce buffers that a record can name. Each but the last one in use is full. */
#define SC_ABI_RECORD_BUFS 16
_Static_assert((uint64_t)2 * SC_ABI_RECORD_BUFS * SC_ABI_BUF_SIZE_MAX <= UINT32_MAX,
	       "bytes in the buffers of a record, and sums with them, fit 32 bits");

/* Number of buffers that may come back with messages at a time. */
#define SC_ABI_RETURN_BUFS 8

/*
 * SC_ABI_BOUNCE: buffers of the writer, lent to the reader until its `head` has passed the record.
 *
 * With SC_ABI_F_RETURNABLE the record names one buffer; at that time only buffers of the same message are lent this
 * way. While its head has not passed the record, the reader may write a message of its own, or a part of one, into the
 * buffer. The record of such a message has SC_ABI_F_RETURNED, and at most TAGGED, DATA and PARTS besides; the record of
 * a part has no other flag. Each such record names one buffer, in the order in which they were lent; it may pass over
 * some. Once it has been read, it gives back its buffer and all that were lent before, as a head behind their records
 * would. SC_ABI_DELEGATE_PUT with SC_ABI_F_BOUNCED has the same two flags. If its writer withdraws a put with
 * SC_ABI_F_RETURNED, the record gives nothing back when it is read; the buffer is in use until the put is done.
 */
struct sc_abi_bounce {
	uint64_t tag, data;
	sc_abi_op op; /* with SC_ABI_F_ACK */
	uint16_t bufs[SC_ABI_RECORD_BUFS];
};

struct sc_abi_segment {
	uint64_t addr; /* in the sender's address space */
	uint64_t len;  /* bytes */
};

/* SC_ABI_RDV: its first line; the segments fill the further lines, three to a line. */
struct sc_abi_rdv {
	uint64_t tag, data;
	sc_abi_op op;
	uint64_t size; /* sum of the segments, bytes */
	struct sc_abi_segment first;
	uint64_t pad;
};
#define SC_ABI_RDV_PER_LINE 3
#define SC_ABI_RDV_SEGMENTS 16
/* Lines of a record with `count` segments, uint32_t, at least one. */
#define SC_ABI_SEGMENT_LINES(count) (1 + ((count) + SC_ABI_RDV_PER_LINE - 2) / SC_ABI_RDV_PER_LINE)

/* SC_ABI_ACK: the other side has ended with this operation. */
struct sc_abi_ack {
	sc_abi_op op;
	uint64_t moved; /* bytes */
	int32_t status; /* 0 or a positive errno */
	uint32_t pad[9];
};

/*
 * SC_ABI_PULL: send `size` bytes from the start of the message as SC_ABI_PIECEs for `to`. `fault`: the kernel did not
 * let the receiver read this payload (memfd_secret(2), a device's memory, or nothing is mapped there); this says
 * nothing of other payloads. If the sender cannot read it either, it answers with a piece of 0 bytes, which ends the
 * message.
 */
struct sc_abi_pull {
	sc_abi_op op; /* of the sender of the message */
	sc_abi_op to; /* of its receiver, echoed in each piece */
	uint64_t size;
	uint32_t fault; /* 0, 1 */
	uint32_t pad0;
	uint64_t pad[3];
};

/*
 * SC_ABI_PIECE: `size` (in ctl) bytes at `offset` of the message, in bounce buffers. The message is one that was pulled
 * or, with `to` 0, the last one with SC_ABI_F_PARTS, before there is another. With SC_ABI_F_RETURNED `to` is 0.
 */
struct sc_abi_piece {
	sc_abi_op to;
	uint64_t offset, pad;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
};

/*
 * SC_ABI_CONTINUE: ctl's size says where the next records are.
 *
 * SC_ABI_IN_BUFFER: in this bounce buffer of the writer, because the ring is full and its reader does not look. The
 * lines of the buffer, all 0 so far, are used like a ring in its first lap, from the first line to the last at most.
 * The reader writes nothing to them, so they hold no SC_ABI_DELEGATE_GET. A buffer that is no longer than the longest
 * record is not used so.
 *
 * SC_ABI_IN_RING: in the ring. An SC_ABI_CONTINUE in a buffer leads back to the line behind the one by which the
 * records left the ring. In the ring it says that the ring has all its lines from here on, which have memory.
 *
 * An SC_ABI_CONTINUE that stands in a buffer gives that buffer back.
 */
#define SC_ABI_IN_RING 0
#define SC_ABI_IN_BUFFER(buf) ((uint32_t)(buf) + 1)

/*
 * SC_ABI_SHARE: the writer has begun a copy of `size` bytes in chunks, and the reader may copy some of them. struct
 * sc_abi_chunks `index` of the writer's slot, in the reader's segment, says which side copies which chunk.
 *
 * Of a message, which the writer receives by rendezvous: from the memory of the reader's operation `op`, from its
 * start, into `first` and further segments of the writer. They fill the further lines as in SC_ABI_RDV; ctl's size is
 * their number.
 * With SC_ABI_F_MEMORY: of a put (SC_ABI_F_PUT) from the writer's memory at `there` to `addr` under `key`, or of a get
 * in the other direction.
 */
struct sc_abi_share {
	uint64_t size;
	uint32_t unused, chunk; /* SC_ABI_PAGEs of a chunk; the last may be shorter */
	uint32_t generation, index;
	union {
		struct {
			sc_abi_op op;
			struct sc_abi_segment first;
			uint64_t pad;
		} message;
		struct {
			uint64_t key, addr;
			uint64_t tag; /* of the registration, see struct sc_abi_reg */
			uint64_t there;
		} memory;
	};
};

/*
 * SC_ABI_PUT with SC_ABI_F_BOUNCED: `size` (in ctl) bytes to `addr` under `key`. A longer put has several such records;
 * the last one has SC_ABI_F_ACK, and one answer (SC_ABI_DONE) covers them all. With SC_ABI_F_DATA in the last one the
 * owner's application gets `data` when all are done.
 */
#define SC_ABI_PUT_BUFS 12
struct sc_abi_put {
	sc_abi_op op;
	uint64_t key, addr, data;
	uint16_t bufs[SC_ABI_PUT_BUFS];
};

/*
 * SC_ABI_PUT without SC_ABI_F_BOUNCED, and SC_ABI_GET: the first line. Further segments of the writer's memory fill the
 * further lines as in SC_ABI_RDV; ctl's size is their number. Answers: SC_ABI_DONE; for a get through bounce buffers
 * SC_ABI_GOTs before it. SC_ABI_DONE to such a put with EOPNOTSUPP: not possible, use SC_ABI_F_BOUNCED; with EFAULT:
 * not of this memory, use SC_ABI_F_BOUNCED for it. A put with SC_ABI_F_DATA: as with SC_ABI_F_BOUNCED.
 */
struct sc_abi_far {
	sc_abi_op op;
	uint64_t key, addr;
	uint64_t size; /* sum of the segments, bytes */
	struct sc_abi_segment first;
	uint64_t data; /* put */
};

/*
 * SC_ABI_ATOMIC: ctl's size is the number of bytes of operands that follow (first all operands, then all values to
 * compare with), 24 of them in the first line. Answer: SC_ABI_RESULT if it fetches and succeeds, else SC_ABI_DONE, unless
 * SC_ABI_F_ACK is missing: the initiator waits for no answer.
 */
struct sc_abi_atomic {
	sc_abi_op op;
	uint64_t key, addr;
	uint8_t kind, type, code; /* enum sc_atomic_kind, sc_atomic_type, sc_atomic_code of core.h */
	uint8_t pad;
	uint32_t count; /* elements */
	uint8_t operands[24];
};
#define SC_ABI_ATOMIC_FIRST 24

/*
 * SC_ABI_NOTE: with SC_ABI_F_DATA the owner's application gets `data`; with SC_ABI_F_EVENT the owner counts it;
 * with SC_ABI_F_KEYED only the registration does, and the notes of other keys follow.
 * `number`: of the delegated operation of which it tells, which was withdrawn; else of the next one that is delegated.
 */
struct sc_abi_note {
	uint64_t data, key, len;
	uint32_t access; /* SC_REG_READ or SC_REG_WRITE of core.h: the kind of access */
	uint32_t number;
	uint32_t pad[6];
};

/*
 * SC_ABI_GOT: `size` (in ctl) bytes at `offset` of what a get asked for. `fault`: the kernel did not let the writer of
 * this record store them at their place, as in sc_abi_pull.
 */
struct sc_abi_got {
	sc_abi_op op;
	uint64_t offset;
	uint32_t fault; /* 0, 1 */
	uint32_t pad;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
};

/* SC_ABI_RESULT: ctl's size is the bytes of former values that follow, 48 in the first line. */
struct sc_abi_result {
	sc_abi_op op;
	uint8_t values[48];
};
#define SC_ABI_RESULT_FIRST 48

/*
 * SC_ABI_DELEGATE_PUT: `size` (in ctl) bytes to `addr` under `key`, 32 of them in the first line, or with
 * SC_ABI_F_BOUNCED all in buffers. See struct sc_abi_delegation. With SC_ABI_F_DATA the owner's application gets
 * `data`; the owner counts the put in any case.
 *
 * SC_ABI_DELEGATE_GET: `size` (in ctl) bytes from `addr` under `key`. The peer that takes it answers in the record. It
 * writes the bytes over all but `ended` and the ctl words, 48 of them in the first line; or, with SC_ABI_F_BOUNCED, it
 * puts them into bounce buffers of its own and writes the numbers of these. Then it writes `ended`. The writer of
 * the record reuses its lines only after it has seen `ended` or has withdrawn the get, whatever `head` says. The buffers
 * are lent until struct sc_abi_answers says that they have been read.
 */
struct sc_abi_delegate {
	union {
		uint64_t data;	/* put */
		uint64_t ended; /* get: 0; by the ring's reader: 1 + a positive errno, or 1 */
	};
	uint64_t key, addr;
	uint16_t bufs[SC_ABI_RECORD_BUFS]; /* get: by the ring's reader; a put that is not bounced: bytes */
};
#define SC_ABI_DELEGATE_PUT_FIRST 32
#define SC_ABI_DELEGATE_GET_FIRST 48

/* First line of a slot, written by the claimant before it publishes the claim. */
struct sc_abi_intro {
	char address[SC_ABI_ADDR_SIZE]; /* of the claimant's own segment */
};

/*
 * Second line, written by the owner (the ring's reader). All counts are monotonic.
 * head: lines read. Bounce buffers named in lines before it are the sender's again.
 * window: units returned; the sender may have sc_abi_header.window more outstanding. A message costs SC_ABI_UNITS(bytes
 * the receiver must keep) until it is matched.
 * delegated_done: 1 + the number of the last delegated put that was taken and has ended, or of a get after it, which
 * the owner reports now and then. delegated_errors[number % SC_ABI_DELEGATED]: the result of the put, a positive errno
 * or 0. See struct sc_abi_delegation.
 * place: where in the ring the line number `head` is, for the command shmcma. It changes only when the reader leaves
 * the usual order of lines: see SC_ABI_PLACE. No endpoint reads it.
 */
#define SC_ABI_DELEGATED 32
struct sc_abi_consumer {
	uint64_t head;
	uint64_t window;
	uint32_t answer; /* enum sc_abi_answer */
	int32_t reason;	 /* positive errno with REFUSED and BROKEN */
	uint32_t delegated_done, place;
	uint8_t delegated_errors[SC_ABI_DELEGATED];
};

/*
 * sc_abi_consumer.place. 0: the ring has its first lines, in the order from the first record on. SC_ABI_PLACE_BUFFER:
 * the reader is in a bounce buffer of the writer. Else SC_ABI_PLACE, with the lines of the ring and a line number
 * modulo twice as many: that number was, or would have been, line 0 of lap 1.
 */
#define SC_ABI_PLACE(lines, base) ((uint32_t)(lines) << 16 | (uint32_t)(base))
#define SC_ABI_PLACE_LINES(place) ((uint32_t)(place) >> 16)
#define SC_ABI_PLACE_BASE(place) ((uint32_t)(place)&0xffffu)
#define SC_ABI_PLACE_BUFFER UINT32_MAX

/* 64 bytes a unit, 512 bytes for the entry itself */
#define SC_ABI_UNITS(bytes) (((uint64_t)(bytes) + 63) / 64 + 8)

/*
 * Third line, written by the claimant: the registrations of the owner under which it copies. Low 32 bits: index of the
 * registration + 1, 0: none; high 32 bits: a count of the claimant. Once the claimant is dead the owner may clear the
 * words. SC_ABI_HAZARD_OP: memory that an operation of the owner names.
 */
#define SC_ABI_HAZARDS 8
#define SC_ABI_HAZARD_OP UINT32_MAX
struct sc_abi_hazards {
	uint64_t words[SC_ABI_HAZARDS];
};

/*
 * Fourth to seventh line: copies that the claimant has begun and the owner may share, some at a time; see share.h.
 * claim, changed by both (compare and swap): generation (32 bits), chunks taken from the front by the claimant
 * (16), from the back by the owner (16).
 * done, written by the owner: generation (32), chunks that it has copied (16), a positive errno (16) if it copies no
 * more.
 */
#define SC_ABI_SHARES 16
#define SC_ABI_CHUNKS_MAX 65535
struct sc_abi_chunks {
	uint64_t claim, done;
};

/*
 * Eighth line: the word that decides which side does a put or get that the claimant delegates. These operations have
 * numbers, from 0 on in the order of the ring, modulo 2^32. An operation is open until it is taken and has ended, or is
 * withdrawn and done; at most SC_ABI_DELEGATED operations are open at once. Both sides change claim by compare and swap:
 *
 *   low 32 bits    1 + the number of the last operation that the owner has taken
 *   high 32 bits   1 + the number of the last operation that was delegated when the claimant last withdrew some, or more
 *
 * A withdrawal takes back the operations that are not taken: at that moment, their numbers are below the high half and
 * not below the low half. The owner passes over these operations.
 *
 * done: written by the claimant. All withdrawn operations before this number are done. If the claimant dies or departs,
 * the owner does the withdrawn puts from this number on.
 */
struct sc_abi_delegation {
	uint64_t claim;
	uint32_t done;
	uint32_t pad[13];
};

/*
 * Ninth line, written by the claimant: the number of SC_ABI_DELEGATE_GETs with SC_ABI_F_BOUNCED that have ended, with
 * success or error, and whose buffers the claimant does not read any more.
 */
struct sc_abi_answers {
	uint64_t read;
	uint64_t pad[7];
};

struct sc_abi_slot {
	struct sc_abi_intro intro;
	struct sc_abi_consumer consumer;
	struct sc_abi_hazards hazards;
	struct sc_abi_chunks chunks[SC_ABI_SHARES];
	struct sc_abi_delegation delegation;
	struct sc_abi_answers answers;
	struct sc_abi_line ring[SC_ABI_RING_LINES];
};

/*
 * The registration table, the memory of the owner that peers may read and write. Three parts, one after the other from
 * table_offset on; there are none if reg_max is 0:
 *
 *   buckets        SC_ABI_TABLE_BUCKETS bytes: tables of 2^b buckets, each at byte 4 << b; the one with
 *                  b = presence.bucket_bits is in use. A bucket is index + 1 of a registration, or 0
 *   registrations  reg_max of struct sc_abi_reg; the first presence.reg_count have memory
 *   ranges         range_max of struct sc_abi_segment; the first presence.range_count have memory
 *
 * A part without memory must not be touched, not even read. The owner gives memory first, then raises the count.
 *
 * A key that the owner has made has the registration's index in its low SC_ABI_KEY_INDEX_BITS, then a generation of
 * SC_ABI_KEY_GENERATION_BITS, then random bits. Any other 64 bits are an application's key; the registration is in the
 * chain of bucket SC_ABI_BUCKET(key, b). A reader tries the index first, then the chain, for at most reg_count steps.
 * If it found nothing and presence.chains was odd or has changed, it knows nothing.
 *
 * tag: 0 never used; odd: in use; even: closed. It only grows, so a process that holds on to the registration uses it
 * as a generation (64 bits do not wrap). The other fields except next, and SC_REG_EVENT among the flags, change only
 * while the tag is even and no hazard word names the entry:
 *
 *   opened   fields, then tag (release), then the chain
 *   closed   tag, then the chain, a full fence, then a look at the hazard words; once they are gone the entry
 *            may be used again
 *   used     hazard word, a full fence, tag, fields, copy, tag again, hazard word (release)
 *
 * A remote address is an offset into the ranges, one after the other, from `base` on.
 */
#define SC_ABI_REGS_MAX 131072
#define SC_ABI_RANGES_MAX 65536
#define SC_ABI_BUCKET_BITS_MAX 17
#define SC_ABI_TABLE_BUCKETS (8ULL << SC_ABI_BUCKET_BITS_MAX)
#define SC_ABI_TABLE_SIZE(regs, ranges)                                                                   \
	((regs) ? SC_ABI_TABLE_BUCKETS + (uint64_t)(regs) * sizeof(struct sc_abi_reg) +                   \
			  (uint64_t)(ranges) * sizeof(struct sc_abi_segment)                              \
		: 0)

#define SC_ABI_KEY_INDEX_BITS 17
#define SC_ABI_KEY_GENERATION_BITS 32
/* bits: 1 to SC_ABI_BUCKET_BITS_MAX */
#define SC_ABI_BUCKET(key, bits) ((uint32_t)((uint64_t)(key)*0x9e3779b97f4a7c15ULL >> (64 - (bits))))

struct sc_abi_reg {
	uint64_t tag;
	uint64_t key;
	uint64_t base;	      /* remote address of its first byte */
	uint64_t size;	      /* bytes, all ranges */
	uint64_t addr;	      /* one range: where it is in the owner's address space */
	uint32_t range_count; /* more than one: they are in the ranges' part, */
	uint32_t first_range; /* from here on */
	uint32_t flags;	      /* SC_REG_READ, SC_REG_WRITE, SC_REG_EVENT of core.h */
	uint32_t next;	      /* of the bucket's chain: index + 1, or 0 */
	uint64_t pad;
};

/*
 * A service name: a file of its own that holds the address of its endpoint, published and reaped as a
 * segment is.
 */
#define SC_ABI_SERVICE_MAGIC 0x53564d4348534353ULL
struct sc_abi_service {
	uint64_t magic;
	uint64_t pad[7];
	char address[SC_ABI_ADDR_SIZE];
};

/*
 * A directory: addresses by number, from one writer to any reader. A file of its own, published and reaped as a service
 * is:
 *
 *   0     this header
 *   128   numbers[capacity]    a number's own value once it has its address, UINT64_MAX while it has none
 *   ...   addresses[capacity]  SC_ABI_ADDR_SIZE each
 *
 * The writer writes an address before its number (release), once: no number gets another address later. An address that
 * is taken out loses its number. Only the first `count` numbers can have an address. Each change of the format changes
 * the magic.
 */
#define SC_ABI_DIRECTORY_MAGIC 0x3152494443534853ULL
#define SC_ABI_DIRECTORY_MAX 65536
struct sc_abi_directory {
	uint64_t magic;
	uint32_t capacity, count;
	struct sc_abi_owner owner; /* the writer */
	uint64_t pad[6];
};
#define SC_ABI_DIRECTORY_SIZE(capacity)                                                                   \
	(sizeof(struct sc_abi_directory) + (uint64_t)(capacity) * (sizeof(uint64_t) + SC_ABI_ADDR_SIZE))

/*
 * The cost of copies on this machine, for all processes of a user in this boot. A file of its own, published like a
 * service; it stays when its maker ends. It is never written again: another file takes its place. Each change of the
 * format changes the magic.
 */
#define SC_ABI_CALIBRATION_MAGIC 0x32304c4143534853ULL
struct sc_abi_calibration {
	uint64_t magic;
	uint64_t boot_id[2];
	uint64_t machine; /* a hash of the kernel's release and version, and of the processor's signature */
	int64_t time;	  /* when it was measured last, seconds since 1970 */
	uint32_t cma_start, cma_per_kib;    /* as in sc_calibration */
	uint32_t near_per_kib, far_per_kib; /* likewise */
	uint32_t rounds, pad;
	uint64_t checksum;		    /* FNV-1a of all before it */
};

/* Each file has this byte locked (POSIX write lock, one byte) as long as its owner lives. */
#define SC_ABI_LIFE_BYTE 0

#define SC_ABI_AT(type, field, offset)                                                                    \
	_Static_assert(__builtin_offsetof(struct type, field) == (offset), #type "." #field)
#define SC_ABI_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)

SC_ABI_AT(sc_abi_owner, start_time, 16);
SC_ABI_AT(sc_abi_owner, pid_ns, 24);
SC_ABI_AT(sc_abi_owner, pidfs_ino, 32);
SC_ABI_AT(sc_abi_owner, pid, 40);
SC_ABI_AT(sc_abi_owner, cma_tid, 44);
SC_ABI_AT(sc_abi_owner, cookie_addr, 48);
SC_ABI_AT(sc_abi_owner, cookie, 56);
SC_ABI_SIZE(sc_abi_owner, 64);
SC_ABI_AT(sc_abi_header, magic, 0);
SC_ABI_AT(sc_abi_header, major, 8);
SC_ABI_AT(sc_abi_header, layout, 12);
SC_ABI_AT(sc_abi_header, length, 16);
SC_ABI_AT(sc_abi_header, claims_offset, 24);
SC_ABI_AT(sc_abi_header, slot_count, 28);
SC_ABI_AT(sc_abi_header, pool_offset, 32);
SC_ABI_AT(sc_abi_header, buf_size, 40);
SC_ABI_AT(sc_abi_header, buf_count, 44);
SC_ABI_AT(sc_abi_header, slots_offset, 48);
SC_ABI_AT(sc_abi_header, slot_size, 56);
SC_ABI_AT(sc_abi_header, ring_lines, 60);
SC_ABI_AT(sc_abi_header, nonce, 64);
SC_ABI_AT(sc_abi_header, owner, 80);
SC_ABI_AT(sc_abi_header, capabilities, 144);
SC_ABI_AT(sc_abi_header, window, 152);
SC_ABI_AT(sc_abi_header, table_offset, 160);
SC_ABI_AT(sc_abi_header, reg_max, 168);
SC_ABI_AT(sc_abi_header, range_max, 172);
SC_ABI_AT(sc_abi_header, address, 176);
SC_ABI_AT(sc_abi_header, counters_addr, 240);
SC_ABI_AT(sc_abi_header, counters_size, 248);
SC_ABI_SIZE(sc_abi_header, 256);
SC_ABI_AT(sc_abi_presence, state, 0);
SC_ABI_AT(sc_abi_presence, membership, 4);
SC_ABI_AT(sc_abi_presence, buf_count, 8);
SC_ABI_AT(sc_abi_presence, unread, 12);
SC_ABI_AT(sc_abi_presence, reg_count, 16);
SC_ABI_AT(sc_abi_presence, range_count, 20);
SC_ABI_AT(sc_abi_presence, bucket_bits, 24);
SC_ABI_AT(sc_abi_presence, chains, 28);
SC_ABI_AT(sc_abi_presence, life_next, 32);
SC_ABI_AT(sc_abi_presence, life, 40);
SC_ABI_AT(sc_abi_presence, sleep, 48);
SC_ABI_SIZE(sc_abi_presence, 128);
SC_ABI_AT(sc_abi_line, ctl, 56);
SC_ABI_SIZE(sc_abi_line, 64);
SC_ABI_SIZE(sc_abi_bounce, 56);
SC_ABI_AT(sc_abi_bounce, op, 16);
SC_ABI_AT(sc_abi_bounce, bufs, 24);
SC_ABI_SIZE(sc_abi_rdv, 56);
SC_ABI_AT(sc_abi_rdv, op, 16);
SC_ABI_AT(sc_abi_rdv, size, 24);
SC_ABI_AT(sc_abi_rdv, first, 32);
SC_ABI_SIZE(sc_abi_ack, 56);
SC_ABI_AT(sc_abi_ack, moved, 8);
SC_ABI_AT(sc_abi_ack, status, 16);
SC_ABI_SIZE(sc_abi_pull, 56);
SC_ABI_AT(sc_abi_pull, to, 8);
SC_ABI_AT(sc_abi_pull, size, 16);
SC_ABI_AT(sc_abi_pull, fault, 24);
SC_ABI_SIZE(sc_abi_piece, 56);
SC_ABI_AT(sc_abi_piece, offset, 8);
SC_ABI_AT(sc_abi_piece, bufs, 24);
SC_ABI_SIZE(sc_abi_share, 56);
SC_ABI_AT(sc_abi_share, chunk, 12);
SC_ABI_AT(sc_abi_share, generation, 16);
SC_ABI_AT(sc_abi_share, message.first, 32);
SC_ABI_AT(sc_abi_share, memory.tag, 40);
SC_ABI_SIZE(sc_abi_put, 56);
SC_ABI_AT(sc_abi_put, addr, 16);
SC_ABI_AT(sc_abi_put, data, 24);
SC_ABI_AT(sc_abi_put, bufs, 32);
SC_ABI_SIZE(sc_abi_far, 56);
SC_ABI_AT(sc_abi_far, size, 24);
SC_ABI_AT(sc_abi_far, first, 32);
SC_ABI_AT(sc_abi_far, data, 48);
SC_ABI_SIZE(sc_abi_atomic, 56);
SC_ABI_AT(sc_abi_atomic, kind, 24);
SC_ABI_AT(sc_abi_atomic, count, 28);
SC_ABI_AT(sc_abi_atomic, operands, 32);
SC_ABI_SIZE(sc_abi_note, 56);
SC_ABI_AT(sc_abi_note, access, 24);
SC_ABI_AT(sc_abi_note, number, 28);
SC_ABI_SIZE(sc_abi_got, 56);
SC_ABI_AT(sc_abi_got, bufs, 24);
SC_ABI_SIZE(sc_abi_result, 56);
SC_ABI_AT(sc_abi_result, values, 8);
SC_ABI_SIZE(sc_abi_delegate, 56);
SC_ABI_AT(sc_abi_delegate, key, 8);
SC_ABI_AT(sc_abi_delegate, bufs, 24);
SC_ABI_SIZE(sc_abi_delegation, 64);
SC_ABI_AT(sc_abi_delegation, done, 8);
SC_ABI_SIZE(sc_abi_answers, 64);
SC_ABI_SIZE(sc_abi_reg, 64);
SC_ABI_AT(sc_abi_reg, key, 8);
SC_ABI_AT(sc_abi_reg, base, 16);
SC_ABI_AT(sc_abi_reg, size, 24);
SC_ABI_AT(sc_abi_reg, addr, 32);
SC_ABI_AT(sc_abi_reg, range_count, 40);
SC_ABI_AT(sc_abi_reg, first_range, 44);
SC_ABI_AT(sc_abi_reg, flags, 48);
SC_ABI_AT(sc_abi_reg, next, 52);
SC_ABI_SIZE(sc_abi_hazards, 64);
SC_ABI_SIZE(sc_abi_chunks, 16);
SC_ABI_SIZE(sc_abi_intro, 64);
SC_ABI_SIZE(sc_abi_consumer, 64);
SC_ABI_AT(sc_abi_consumer, window, 8);
SC_ABI_AT(sc_abi_consumer, answer, 16);
SC_ABI_AT(sc_abi_consumer, reason, 20);
SC_ABI_AT(sc_abi_consumer, delegated_done, 24);
SC_ABI_AT(sc_abi_consumer, place, 28);
SC_ABI_AT(sc_abi_consumer, delegated_errors, 32);
SC_ABI_AT(sc_abi_slot, consumer, 64);
SC_ABI_AT(sc_abi_slot, hazards, 128);
SC_ABI_AT(sc_abi_slot, chunks, 192);
SC_ABI_AT(sc_abi_slot, delegation, 448);
SC_ABI_AT(sc_abi_slot, answers, 512);
SC_ABI_AT(sc_abi_slot, ring, 576);
SC_ABI_AT(sc_abi_slot, ring[SC_ABI_RING_FIRST], SC_ABI_SLOT_FIRST);
SC_ABI_SIZE(sc_abi_slot, SC_ABI_SLOT_SIZE);
SC_ABI_AT(sc_abi_service, address, 64);
SC_ABI_SIZE(sc_abi_service, 128);
SC_ABI_AT(sc_abi_calibration, boot_id, 8);
SC_ABI_AT(sc_abi_calibration, machine, 24);
SC_ABI_AT(sc_abi_calibration, time, 32);
SC_ABI_AT(sc_abi_calibration, cma_start, 40);
SC_ABI_AT(sc_abi_calibration, cma_per_kib, 44);
SC_ABI_AT(sc_abi_calibration, near_per_kib, 48);
SC_ABI_AT(sc_abi_calibration, far_per_kib, 52);
SC_ABI_AT(sc_abi_calibration, rounds, 56);
SC_ABI_AT(sc_abi_calibration, checksum, 64);
SC_ABI_SIZE(sc_abi_calibration, 72);
SC_ABI_AT(sc_abi_directory, capacity, 8);
SC_ABI_AT(sc_abi_directory, count, 12);
SC_ABI_AT(sc_abi_directory, owner, 16);
SC_ABI_SIZE(sc_abi_directory, 128);

/* Counts the incompatible changes that the sizes below do not show. */
#define SC_ABI_REVISION 6

/*
 * A hash of the sizes and of some offsets. It does not see every change: then raise SC_ABI_REVISION. Both sides compare
 * it for equality.
 */
#define SC_ABI_LAYOUT                                                                                     \
	((uint32_t)(sizeof(struct sc_abi_header) * 31 + sizeof(struct sc_abi_slot) * 17 +                 \
		    SC_ABI_RING_LINES * 13 + SC_ABI_KIND_MAX * 7 + SC_ABI_RDV_SEGMENTS * 5 +              \
		    sizeof(struct sc_abi_rdv) * 3 + SC_ABI_RECORD_BUFS * 2 + SC_ABI_MAJOR +               \
		    sizeof(struct sc_abi_reg) * 19 + SC_ABI_BUCKET_BITS_MAX * 23 +                        \
		    SC_ABI_KEY_INDEX_BITS * 29 + SC_ABI_HAZARDS * 37 + SC_ABI_DELEGATED * 41 +            \
		    (uint32_t)SC_ABI_SLEEP_FLAGS * 43 +                                                   \
		    (uint32_t)__builtin_offsetof(struct sc_abi_presence, buf_count) * 47 +                \
		    (uint32_t)__builtin_offsetof(struct sc_abi_share, memory.there) * 53 +                \
		    SC_ABI_F_RETURNED * 59 +                                                              \
		    SC_ABI_PART_ORDER * 61 +                                                              \
		    SC_ABI_RING_FIRST * 71 + SC_ABI_CHANGED * 73 +                                        \
		    (uint32_t)__builtin_offsetof(struct sc_abi_pull, fault) * 79 +                        \
		    SC_ABI_F_BOUNCED * 83 + SC_ABI_REVISION * 89))

#endif
