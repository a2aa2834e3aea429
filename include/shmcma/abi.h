/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * abi.h: every byte that another process sees, and nothing else.
 *
 * One endpoint owns one segment, a file in POSIX shared memory:
 *
 *   0      +-----------------------------------------------+
 *          | header          immutable once the file has   |
 *          |                 its name                      |
 *   1024   | presence        owner's state, membership     |
 *   4096   +-----------------------------------------------+
 *          | claims[slots]   8 bytes a slot                |
 *          +-----------------------------------------------+
 *   pool   | bounce buffers  lent by the owner to peers    |
 *          +-----------------------------------------------+
 *   slots  | slot 0          one connected peer: who it    |
 *          | ...             is, how far its ring is read, |
 *          | slot n-1        the ring it writes            |
 *          +-----------------------------------------------+
 *
 * Header, claims and pool have memory from the start. A slot gets its memory (fallocate) when a peer
 * takes it, so an idle slot costs nothing but address space.
 *
 * Who writes what: the owner writes the header (once), its presence state, the pool, and each slot's
 * consumer line. A peer writes the claim, the introduction and the ring of the one slot it has claimed,
 * and adds to the membership count. Whoever reads a word that another process writes loads it once,
 * checks it, and uses the copy.
 *
 * Figures that an attacher needs (geometry) are in the header; an attacher never uses its own
 * configuration for another's memory.
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

#define SC_ABI_SLOTS_MAX 1024
#define SC_ABI_SLOT_SIZE 8192
#define SC_ABI_RING_LINES 124
#define SC_ABI_BUFS_MAX 4096

/* What an endpoint can do, in sc_abi_header.capabilities. */
#define SC_ABI_CAP_TAGGED (1u << 0)
#define SC_ABI_CAP_MSG (1u << 1)

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

	/* the owner */
	uint64_t nonce[2];
	uint64_t boot_id[2];
	uint64_t start_time; /* field 22 of /proc/self/stat, clock ticks since boot */
	uint64_t pid_ns;     /* inode of /proc/self/ns/pid */
	uint64_t pidfs_ino;  /* inode of a pidfd of the owner, 0: kernel without pidfs */
	int32_t pid;         /* in the owner's own namespace */
	int32_t cma_tid;     /* thread to name in process_vm_readv(2) */
	uint64_t cookie_addr; /* in the owner's address space */
	uint64_t cookie;
	uint32_t capabilities, pad;
	uint64_t window; /* SC units a peer may have unmatched here, see sc_abi_consumer.window */

	char address[SC_ABI_ADDR_SIZE];
};

/* sc_abi_presence.state */
enum sc_abi_state { SC_ABI_OPEN = 1, SC_ABI_CLOSED = 2 };

/* At SC_ABI_PRESENCE; the only changing part of the first page. */
struct sc_abi_presence {
	uint32_t state;      /* enum sc_abi_state, written by the owner */
	uint32_t membership; /* +1 (atomic add, by anybody) when a claim or a peer's state has changed */
	uint32_t asleep;     /* reserved: owner sleeps and wants to be woken */
	uint32_t unread;     /* CLOSED: claims marked UNREAD; who takes it to 0 removes the name */
	uint32_t pad[12];
};
#define SC_ABI_PRESENCE 1024

/*
 * A claim: 0 free, else the claimant's ticket in the high bits and its progress in the low 3.
 * ticket: pid (32 bits) and 29 bits of its nonce; with the pid it finds the claimant's file.
 * The claimant goes 0 -> CLAIMED (compare and swap) -> PUBLISHED -> DEPARTED (plain stores), or from CLAIMED
 * back to 0; the owner returns it to 0 from DEPARTED, or from CLAIMED once the claimant is dead.
 * DEPARTED with UNREAD: messages in this slot have their payload in the claimant's bounce buffers, and
 * it did not see itself accepted; its segment keeps its name for the owner to attach it.
 */
enum sc_abi_claim { SC_ABI_CLAIMED = 1, SC_ABI_PUBLISHED = 2, SC_ABI_DEPARTED = 3 };
#define SC_ABI_CLAIM_STATE 3ULL
#define SC_ABI_CLAIM_UNREAD 4ULL  /* with DEPARTED */
#define SC_ABI_CLAIM_REFUSED 4ULL /* with PUBLISHED; by the owner: it could not even answer in the slot */
#define SC_ABI_CLAIM_BITS 7ULL

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
 *       31..0  size       (of the message, bytes; SC_ABI_RDV: number of segments)
 */
#define SC_ABI_CTL_LAP_SHIFT 56
#define SC_ABI_CTL_KIND_SHIFT 48
#define SC_ABI_CTL_FLAGS_SHIFT 40
#define SC_ABI_CTL_LINES_SHIFT 32
#define SC_ABI_RECORD_LINES 16

enum sc_abi_kind {
	SC_ABI_INLINE = 1, /* a message, payload in the record */
	SC_ABI_BOUNCE = 2, /* a message, payload in bounce buffers of the sender */
	SC_ABI_RDV = 3,    /* a message, payload in the sender's memory: struct sc_abi_rdv follows */
	SC_ABI_ACK = 4,    /* to the sender: operation ended, struct sc_abi_ack */
	SC_ABI_PULL = 5,   /* to the sender: send the payload through bounce buffers, struct sc_abi_pull */
	SC_ABI_PIECE = 6,  /* answer to SC_ABI_PULL, struct sc_abi_piece */
	SC_ABI_KIND_MAX = SC_ABI_PIECE,
};

#define SC_ABI_F_TAGGED (1u << 0) /* message is for the tagged queue */
#define SC_ABI_F_DATA (1u << 1)   /* words[1] is the sender's immediate data */
#define SC_ABI_F_ACK (1u << 2)    /* inline, bounce: the sender wants an SC_ABI_ACK; words[2] = operation */
#define SC_ABI_F_FENCE (1u << 3) /* with F_ACK, and rendezvous: after all earlier messages of the pair */

/*
 * An operation of the writer, opaque to the other side, which echoes it. low 32 bits: index, high 32
 * bits: generation.
 */
typedef uint64_t sc_abi_op;

/* Bounce buffers that a record can name. Each but the last it needs is full. */
#define SC_ABI_RECORD_BUFS 16

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

/* SC_ABI_ACK: the other side has ended with this operation. */
struct sc_abi_ack {
	sc_abi_op op;
	uint64_t moved;  /* bytes */
	int32_t status;  /* 0 or a positive errno */
	uint32_t pad[9];
};

/* SC_ABI_PULL: send `size` bytes from the start of the message as SC_ABI_PIECEs for `to`. */
struct sc_abi_pull {
	sc_abi_op op; /* of the sender of the message */
	sc_abi_op to; /* of its receiver, echoed in each piece */
	uint64_t size;
	uint64_t pad[4];
};

/* SC_ABI_PIECE: `size` (in ctl) bytes at `offset` of the message, in bounce buffers. */
struct sc_abi_piece {
	sc_abi_op to;
	uint64_t offset;
	int32_t status; /* positive errno: the payload cannot be had, the operation ends */
	uint32_t pad;
	uint16_t bufs[SC_ABI_RECORD_BUFS];
};

/* First line of a slot, written by the claimant before it publishes the claim. */
struct sc_abi_intro {
	char address[SC_ABI_ADDR_SIZE]; /* of the claimant's own segment */
};

/*
 * Second line, written by the owner (the ring's reader). All counts are monotonic.
 * head: lines read. Bounce buffers named in lines before it are the sender's again.
 * window: units returned; the sender may have sc_abi_header.window more outstanding. A message costs
 * SC_ABI_UNITS(bytes the receiver must keep) until it is matched.
 */
struct sc_abi_consumer {
	uint64_t head;
	uint64_t window;
	uint32_t answer; /* enum sc_abi_answer */
	int32_t reason;  /* positive errno with REFUSED and BROKEN */
	uint64_t pad[5];
};

/* 64 bytes a unit, 512 bytes for the entry itself */
#define SC_ABI_UNITS(bytes) (((uint64_t)(bytes) + 63) / 64 + 8)

struct sc_abi_slot {
	struct sc_abi_intro intro;
	struct sc_abi_consumer consumer;
	uint8_t reserved[128]; /* doorbell, one-sided hazard words */
	struct sc_abi_line ring[SC_ABI_RING_LINES];
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

/* Both are locked at this byte (POSIX write lock, one byte) for as long as the owner lives. */
#define SC_ABI_LIFE_BYTE 0

#define SC_ABI_AT(type, field, offset) \
	_Static_assert(__builtin_offsetof(struct type, field) == (offset), #type "." #field)
#define SC_ABI_SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)

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
SC_ABI_AT(sc_abi_header, boot_id, 80);
SC_ABI_AT(sc_abi_header, start_time, 96);
SC_ABI_AT(sc_abi_header, pid_ns, 104);
SC_ABI_AT(sc_abi_header, pidfs_ino, 112);
SC_ABI_AT(sc_abi_header, pid, 120);
SC_ABI_AT(sc_abi_header, cma_tid, 124);
SC_ABI_AT(sc_abi_header, cookie_addr, 128);
SC_ABI_AT(sc_abi_header, cookie, 136);
SC_ABI_AT(sc_abi_header, capabilities, 144);
SC_ABI_AT(sc_abi_header, window, 152);
SC_ABI_AT(sc_abi_header, address, 160);
SC_ABI_SIZE(sc_abi_header, 224);
SC_ABI_AT(sc_abi_presence, state, 0);
SC_ABI_AT(sc_abi_presence, membership, 4);
SC_ABI_AT(sc_abi_presence, asleep, 8);
SC_ABI_AT(sc_abi_presence, unread, 12);
SC_ABI_SIZE(sc_abi_presence, 64);
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
SC_ABI_SIZE(sc_abi_piece, 56);
SC_ABI_AT(sc_abi_piece, offset, 8);
SC_ABI_AT(sc_abi_piece, status, 16);
SC_ABI_AT(sc_abi_piece, bufs, 24);
SC_ABI_SIZE(sc_abi_intro, 64);
SC_ABI_SIZE(sc_abi_consumer, 64);
SC_ABI_AT(sc_abi_consumer, window, 8);
SC_ABI_AT(sc_abi_consumer, answer, 16);
SC_ABI_AT(sc_abi_consumer, reason, 20);
SC_ABI_AT(sc_abi_slot, consumer, 64);
SC_ABI_AT(sc_abi_slot, ring, 256);
SC_ABI_SIZE(sc_abi_slot, SC_ABI_SLOT_SIZE);
SC_ABI_AT(sc_abi_service, address, 64);
SC_ABI_SIZE(sc_abi_service, 128);

/*
 * Changes with every incompatible change of the structures above: sizes folded together. Both sides
 * compare it for equality.
 */
#define SC_ABI_LAYOUT                                                                                     \
	((uint32_t)(sizeof(struct sc_abi_header) * 31 + sizeof(struct sc_abi_slot) * 17 +                 \
		    SC_ABI_RING_LINES * 13 + SC_ABI_KIND_MAX * 7 + SC_ABI_RDV_SEGMENTS * 5 +              \
		    sizeof(struct sc_abi_rdv) * 3 + SC_ABI_RECORD_BUFS * 2 + SC_ABI_MAJOR))

#endif
