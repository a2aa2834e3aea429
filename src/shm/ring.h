/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring.h: a ring of 64-byte lines, from a single writer to a single reader.
 *
 * The writer fills the lines of a record and publishes it by one release store of the first line's ctl. The reader
 * takes it by one acquire load. The ctl of each line has the lap (1, 2, 1, 2, ...) in its top byte, and every line is
 * written once in each lap. So a line not yet written in this lap never looks like a record (at first it is 0).
 *
 * The reader gives lines back by storing `head` in the consumer line, now and then. The writer loads `head` only when
 * lines or buffers seem to be short, or when it has to know how far the reader is. It keeps lines from `held` on,
 * although they are read: it has not read yet what the reader has answered in them, or may read a payload back
 * (delegate.c).
 *
 *   R1 release, sc_ring_store():  record bytes before its ctl      pairs with  R1' sc_ring_peek_at()
 *   R2 release, sc_ring_publish(): bytes read before head          pairs with  R2' sc_ring_refresh()
 *
 * At first a ring has the lines in the first page of its slot. It gets the others once it has been full, or busy
 * (sc_ring_grow()). Both sides must wrap at the same place, so a record tells the reader of the growth, in order like
 * every record. The writer sends it when no line of the lap before is unread: such a line would be in the way. This is
 * so at the end of each lap: a record that reaches the end of the ring has room only then. models/grow.pml.
 *
 * A full ring whose reader does not look overflows into bounce buffers of the writer: the next records go into one
 * buffer after the other. When the reader has come to the first buffer, all of the ring is free, and the records go
 * there again. record.c decides; a record tells the reader, in order. models/overflow.pml.
 *
 * If the writer dies before R1, the record does not exist; nothing else is shared. If the reader dies, the writer runs
 * out of lines. Each side keeps its own position in private memory, and checks a word of the other side before use (a
 * head outside [the last one, tail] is -EPROTO). An answer to a record also tells that the record has been read,
 * perhaps sooner than `head` does (sc_ring_learn()).
 */
#ifndef SC_RING_H
#define SC_RING_H

#include <stdbool.h>
#include <string.h>
#include <shmcma/abi.h>
#include "base/atomic.h"
#include "base/fault.h"
#include "os/wake.h"

/* Lines with records one after the other, of the ring or of a buffer, and the position of one side in them. */
struct sc_ring_place {
	struct sc_abi_line *lines, *last; /* first line, NULL: not connected; last line */
	struct sc_abi_line *next;	  /* the next record begins here */
	uint64_t lap;			  /* the lap of `next`, shifted as in ctl */
	uint32_t count;
};

/* The writer's side. */
struct sc_ring_tx {
	struct sc_ring_place at;
	uint64_t tail, limit; /* lines written; lines before this one may be written */
	uint64_t *sleep;      /* the reader's sleep word, see wake.h */
	uint64_t head;	      /* lines that may be written again: the lower of the next two */
	uint64_t known, held; /* lines known to be read; lines from here on are in use although read */
	uint64_t said;	      /* lines read by the reader's last `head`; may be less than `known` */
	uint32_t room;	      /* lines that may be unread at a time; 0: see sc_ring_set_room() */
	uint32_t grows_after; /* times without room until growing is tried again */
	struct sc_abi_consumer *consumer;
	struct sc_ring_place left; /* overflowed: where the ring resumes; else without lines */
	uint64_t since;		   /* lines written at the last overflow or resumption */
	uint16_t overflow;	   /* number of the buffer that takes the records now */
	uint32_t stuck;		   /* times without room while `head` was `stuck_at` */
	uint64_t stuck_at;
};

/* The reader's side. */
struct sc_ring_rx {
	struct sc_ring_place at;
	uint64_t head, published; /* lines read; the head that the writer sees */
	uint64_t window;	  /* the last value of consumer->window */
	struct sc_abi_consumer *consumer;
	struct sc_ring_place left; /* as in sc_ring_tx */
};

/* One line stays free for the record that says that the ring grows or overflows. */
#define SC_RING_FIRST_ROOM (SC_ABI_RING_FIRST - 1)
#define SC_RING_ROOM (SC_ABI_RING_LINES - 1)

/* Laps are 1 and 2. */
#define SC_RING_LAP_FIRST (1ULL << SC_ABI_CTL_LAP_SHIFT)
#define SC_RING_LAP_TURN (3ULL << SC_ABI_CTL_LAP_SHIFT)

static inline struct sc_ring_place sc_ring_begin(struct sc_abi_line *lines, uint32_t count)
{
	return (struct sc_ring_place){ lines, lines + count - 1, lines, SC_RING_LAP_FIRST, count };
}

static inline void sc_ring_tx_init(struct sc_ring_tx *tx, struct sc_abi_slot *slot)
{
	*tx = (struct sc_ring_tx){ .at = sc_ring_begin(slot->ring, SC_ABI_RING_FIRST),
				   .limit = SC_RING_FIRST_ROOM,
				   .held = UINT64_MAX,
				   .room = SC_RING_FIRST_ROOM,
				   .consumer = &slot->consumer,
				   .sleep = &sc_wake_nobody };
}

static inline void sc_ring_rx_init(struct sc_ring_rx *rx, struct sc_abi_slot *slot)
{
	*rx = (struct sc_ring_rx){ .at = sc_ring_begin(slot->ring, SC_ABI_RING_FIRST),
				   .consumer = &slot->consumer };
}

static inline struct sc_abi_line *sc_ring_next(const struct sc_ring_place *at, const struct sc_abi_line *line)
{
	return line == at->last ? at->lines : (struct sc_abi_line *)line + 1;
}

/* Returns the first line that may be unread in the ring itself: lines before the last resumption are not in it. */
static inline uint64_t sc_ring_from(const struct sc_ring_tx *tx)
{
	return tx->head > tx->since ? tx->head : tx->since;
}

/*
 * Sets the number of lines that may be unread at a time; lines before the last resumption do not count. 0: the ring is
 * going to grow or has overflowed, so each record has to look for room by the slow path.
 */
static inline void sc_ring_set_room(struct sc_ring_tx *tx, uint32_t room)
{
	tx->room = room;
	tx->limit = room ? sc_ring_from(tx) + room : 0;
}

/* The reader is known to have read the lines before `head`, which is not above the tail. */
static inline void sc_ring_learn(struct sc_ring_tx *tx, uint64_t head)
{
	if (head > tx->known)
		tx->known = head;
	tx->head = tx->known < tx->held ? tx->known : tx->held;
	sc_ring_set_room(tx, tx->room);
}

/* Loads the reader's head. -EPROTO: it is out of range. */
int sc_ring_refresh(struct sc_ring_tx *tx);

static inline bool sc_ring_has_room(const struct sc_ring_tx *tx, uint32_t lines)
{
	return tx->tail + lines <= tx->limit;
}

/* The same for a ring that is going to grow and may not grow yet. */
static inline bool sc_ring_has_room_yet(const struct sc_ring_tx *tx, uint32_t lines)
{
	return tx->tail - sc_ring_from(tx) + lines < tx->at.count;
}

/* Tells whether a ring of the first length may grow now: no line of the lap before is unread. */
static inline bool sc_ring_may_grow(const struct sc_ring_tx *tx)
{
	return tx->tail - tx->head <= (uint64_t)(tx->at.next - tx->at.lines);
}

/* The writer's ring grows. The writer's next record must say so (SC_ABI_CONTINUE). */
static inline void sc_ring_grow(struct sc_ring_tx *tx)
{
	tx->at.count = SC_ABI_RING_LINES;
	tx->at.last = tx->at.lines + SC_ABI_RING_LINES - 1;
	sc_ring_set_room(tx, SC_RING_ROOM);
}

/* The reader's ring grows: the reader has come to that record and has not released it yet. */
static inline void sc_ring_grown(struct sc_ring_rx *rx)
{
	rx->at.count = SC_ABI_RING_LINES;
	rx->at.last = rx->at.lines + SC_ABI_RING_LINES - 1;
}

static inline bool sc_ring_overflows(const struct sc_ring_tx *tx)
{
	return tx->left.lines;
}

/* Tells whether the buffer has space for the record, and a line for the record that leaves the buffer. */
static inline bool sc_ring_overflow_has_room(const struct sc_ring_tx *tx, uint32_t lines)
{
	return lines <= (uint64_t)(tx->at.last - tx->at.next);
}

/* Tells whether the reader has come to the first buffer, so that the ring may be written again. */
static inline bool sc_ring_may_resume(const struct sc_ring_tx *tx)
{
	return tx->head >= tx->since;
}

/* Tells whether a buffer of `lines` is large enough to overflow into: each record then wraps once at most. */
static inline bool sc_ring_may_overflow(uint32_t lines)
{
	return lines > SC_ABI_RECORD_LINES;
}

/*
 * After the writer has written an SC_ABI_CONTINUE, the next records go to these lines, which are cleared. The reader
 * calls the second function when it has released that record.
 */
void sc_ring_overflow(struct sc_ring_tx *tx, struct sc_abi_line *lines, uint32_t count);
void sc_ring_overflowed(struct sc_ring_rx *rx, struct sc_abi_line *lines, uint32_t count);

/* The same for the way back to the ring. */
void sc_ring_resume(struct sc_ring_tx *tx);
void sc_ring_resumed(struct sc_ring_rx *rx);

/* Returns the first line of the next record. The caller has made sure of room and goes on by sc_ring_next(). */
static inline struct sc_abi_line *sc_ring_reserve(const struct sc_ring_tx *tx)
{
	return tx->at.next;
}

static inline uint64_t sc_ring_ctl(enum sc_abi_kind kind, uint32_t flags, uint32_t lines, uint32_t size)
{
	return (uint64_t)kind << SC_ABI_CTL_KIND_SHIFT | (uint64_t)flags << SC_ABI_CTL_FLAGS_SHIFT |
	       (uint64_t)lines << SC_ABI_CTL_LINES_SHIFT | size;
}

static inline void sc_ring_advance(struct sc_ring_tx *tx)
{
	if (tx->at.next++ == tx->at.last) {
		tx->at.next = tx->at.lines;
		tx->at.lap ^= SC_RING_LAP_TURN;
	}
}

/* Publishes the record that begins at `first`, the reserved line. The caller must still wake the reader. */
static inline void sc_ring_store(struct sc_ring_tx *tx, struct sc_abi_line *first, uint64_t ctl,
				 uint32_t lines)
{
	ctl |= tx->at.lap;
	tx->tail += lines;
	for (; __builtin_expect(lines > 1, 0); lines--) {
		sc_ring_advance(tx);
		tx->at.next->ctl = tx->at.lap;
		(void)SC_FAULT("ring.line");
	}
	sc_ring_advance(tx);
	/* R1 release: pairs with R1' in sc_ring_peek_at() */
	sc_store_release_64(&first->ctl, ctl);
	(void)SC_FAULT("ring.committed");
}

/* Fetches `lines` lines from the reader's cache, `ahead` lines behind `next`: they are written soon. */
static inline void sc_ring_fetch_to_write(const struct sc_ring_tx *tx, uint32_t ahead, uint32_t lines)
{
	for (struct sc_abi_line *line = tx->at.next + ahead; lines--; line++)
		sc_fetch_to_write(line > tx->at.last ? line - tx->at.count : line);
}

static inline void sc_ring_wake(const struct sc_ring_tx *tx)
{
	sc_wake(tx->sleep, SC_ABI_SLEEP_ASLEEP);
}

static inline void sc_ring_commit(struct sc_ring_tx *tx, uint64_t ctl, uint32_t lines)
{
	sc_ring_store(tx, sc_ring_reserve(tx), ctl, lines);
	sc_ring_wake(tx);
}

static inline struct sc_abi_line *sc_ring_first(const struct sc_ring_rx *rx)
{
	return rx->at.next;
}

/* Returns the ctl of the next record, which begins in the line `first`; 0: there is none. */
static inline uint64_t sc_ring_peek_at(const struct sc_ring_rx *rx, const struct sc_abi_line *first)
{
	/* R1' acquire: pairs with R1 in sc_ring_store() */
	uint64_t ctl = sc_load_acquire_64(&first->ctl);

	if ((ctl ^ rx->at.lap) >> SC_ABI_CTL_LAP_SHIFT)
		return 0;
	if (!ctl)
		__builtin_unreachable(); /* no lap is 0 */
	return ctl;
}

static inline uint64_t sc_ring_peek(const struct sc_ring_rx *rx)
{
	return sc_ring_peek_at(rx, sc_ring_first(rx));
}

/* Returns the ctl of the record behind the next one, which has `lines` lines; 0: none yet. Only a hint. */
static inline uint64_t sc_ring_peek_next(const struct sc_ring_rx *rx, uint32_t lines)
{
	const struct sc_abi_line *line = rx->at.next + lines;
	bool wraps = line > rx->at.last;
	/* relaxed: nothing else of that record is read */
	uint64_t ctl = sc_load_relaxed_64(&(wraps ? line - rx->at.count : line)->ctl);
	uint64_t lap = wraps ? rx->at.lap ^ SC_RING_LAP_TURN : rx->at.lap;

	return (ctl ^ lap) >> SC_ABI_CTL_LAP_SHIFT ? 0 : ctl;
}

/*
 * The reader publishes in consumer->place where the line number `head` is, for the command shmcma: after the ring has
 * grown, and after an overflow has begun or ended.
 */
void sc_ring_show_place(const struct sc_ring_rx *rx);

/* Tells the writer how far the reader is, and the reader's `window`. */
static inline void sc_ring_publish(struct sc_ring_rx *rx, uint64_t window)
{
	sc_store_relaxed_64(&rx->consumer->window, window); /* relaxed: R2 orders it; a count of its own */
	(void)SC_FAULT("ring.window");
	/* R2 release: pairs with R2' in sc_ring_refresh() */
	sc_store_release_64(&rx->consumer->head, rx->head);
	(void)SC_FAULT("ring.head");
	rx->published = rx->head;
	rx->window = window;
}

/* Releases the next record. */
static inline void sc_ring_release(struct sc_ring_rx *rx, uint32_t lines)
{
	rx->head += lines;
	rx->at.next += lines;
	if (rx->at.next > rx->at.last) {
		rx->at.next -= rx->at.count;
		rx->at.lap ^= SC_RING_LAP_TURN;
	}
}

/* The distance at which the reader fetches lines, and the most lines for one record. */
#define SC_RING_AHEAD 12
#define SC_RING_FETCHED 3

static inline void sc_ring_fetch_one(const struct sc_ring_rx *rx, uint32_t ahead)
{
	const struct sc_abi_line *line = rx->at.next + ahead;

	__builtin_prefetch(line > rx->at.last ? line - rx->at.count : line);
}

/*
 * The reader has released a record of `lines` with its payload. In a stream of such records more lines are written than
 * have come to this cache, and the reader would wait for each. So it fetches as many lines further on. For longer records,
 * and those that name buffers, this would only take lines from the writer (docs/MEASUREMENTS.md, "Lines fetched by the
 * reader"). There is no loop, because compilers remove a loop that only prefetches.
 */
static inline void sc_ring_fetch(struct sc_ring_rx *rx, uint32_t lines)
{
	if (lines > SC_RING_FETCHED)
		return;
	sc_ring_fetch_one(rx, SC_RING_AHEAD);
	if (lines > 1)
		sc_ring_fetch_one(rx, SC_RING_AHEAD + 1);
	if (lines > 2)
		sc_ring_fetch_one(rx, SC_RING_AHEAD + 2);
}

static inline enum sc_abi_kind sc_ctl_kind(uint64_t ctl)
{
	return (enum sc_abi_kind)(uint8_t)(ctl >> SC_ABI_CTL_KIND_SHIFT);
}

static inline uint32_t sc_ctl_flags(uint64_t ctl)
{
	return (uint8_t)(ctl >> SC_ABI_CTL_FLAGS_SHIFT);
}

static inline uint32_t sc_ctl_lines(uint64_t ctl)
{
	return (uint8_t)(ctl >> SC_ABI_CTL_LINES_SHIFT);
}

static inline uint32_t sc_ctl_size(uint64_t ctl)
{
	return (uint32_t)ctl;
}

/*
 * memcpy(3) of at most a line. A call would cost more than the copy. It stores a word of 1, 2, 4 or 8 bytes once: a
 * thread of the application may wait for such a word in registered memory, and change it then.
 */
static inline void sc_line_copy(void *to_, const void *from_, uint32_t size)
{
	const uint8_t *from = from_;
	uint8_t *to = to_;

	if (size == 8) {
		memcpy(to, from, 8);
	} else if (size >= 16) { /* the last copy overlaps the others */
		if (size > 32)
			memcpy(to + 16, from + 16, 16);
		if (size > 48)
			memcpy(to + 32, from + 32, 16);
		memcpy(to, from, 16);
		memcpy(to + size - 16, from + size - 16, 16);
	} else if (size > 8) {
		memcpy(to, from, 8);
		memcpy(to + size - 8, from + size - 8, 8);
	} else if (size >= 4) {
		if (size > 4)
			memcpy(to + size - 4, from + size - 4, 4);
		memcpy(to, from, 4);
	} else if (size >= 2) {
		if (size > 2)
			to[2] = from[2];
		memcpy(to, from, 2);
	} else if (size) {
		to[0] = from[0];
	}
}

/* Without the attribute compilers may call these functions, and more registers have to be saved. */
#define SC_RING_INLINE static inline __attribute__((always_inline))

void sc_lines_write_slow(const struct sc_ring_place *at, struct sc_abi_line *first, uint32_t here, const void *from,
			 uint32_t size);
void sc_lines_read_slow(const struct sc_ring_place *at, const struct sc_abi_line *first, uint32_t here, void *to,
			uint32_t size);

/*
 * Write and read `size` bytes in the lines of a record: the last `here` bytes of the first line, then whole lines. Two
 * lines are inline too: a call and a loop make 64 B a thirtieth slower one way.
 */
SC_RING_INLINE void sc_lines_write(const struct sc_ring_place *at, struct sc_abi_line *first, uint32_t here,
				   const void *from, uint32_t size)
{
	if (size <= here) {
		sc_line_copy(first->bytes + SC_ABI_LINE_BYTES - here, from, size);
	} else if (size <= here + SC_ABI_LINE_BYTES) {
		sc_line_copy(sc_ring_next(at, first)->bytes, (const uint8_t *)from + here, size - here);
		(void)SC_FAULT("ring.second_line");
		sc_line_copy(first->bytes + SC_ABI_LINE_BYTES - here, from, here);
	} else {
		sc_lines_write_slow(at, first, here, from, size);
	}
	(void)SC_FAULT("ring.payload_end");
}

SC_RING_INLINE void sc_lines_read(const struct sc_ring_place *at, const struct sc_abi_line *first, uint32_t here,
				  void *to, uint32_t size)
{
	if (size <= here) {
		sc_line_copy(to, first->bytes + SC_ABI_LINE_BYTES - here, size);
	} else if (size <= here + SC_ABI_LINE_BYTES) {
		sc_line_copy(to, first->bytes + SC_ABI_LINE_BYTES - here, here);
		sc_line_copy((uint8_t *)to + here, sc_ring_next(at, first)->bytes, size - here);
	} else {
		sc_lines_read_slow(at, first, here, to, size);
	}
}

/* Lines of a record with `size` bytes of payload, at most `here` of them in the first line. */
static inline uint32_t sc_lines_count(uint32_t here, uint32_t size)
{
	return size <= here ? 1 : 1 + (size - here + SC_ABI_LINE_BYTES - 1) / SC_ABI_LINE_BYTES;
}

/* Bytes of payload in the first line of an inline record. */
static inline uint32_t sc_inline_first(uint32_t flags)
{
	return flags & SC_ABI_F_ACK ? 32 : 40;
}

/* Lines of an inline record. */
static inline uint32_t sc_inline_lines(uint32_t flags, uint32_t size)
{
	return sc_lines_count(sc_inline_first(flags), size);
}

#define SC_INLINE_MAX (32 + (SC_ABI_RECORD_LINES - 1) * SC_ABI_LINE_BYTES)

/* Write / read the payload of an inline record. */
SC_RING_INLINE void sc_inline_write(const struct sc_ring_place *at, struct sc_abi_line *first, uint32_t flags,
				    const uint8_t *from, uint32_t size)
{
	sc_lines_write(at, first, sc_inline_first(flags), from, size);
}

SC_RING_INLINE void sc_inline_read(const struct sc_ring_place *at, const struct sc_abi_line *first, uint32_t flags,
				   uint8_t *to, uint32_t size)
{
	sc_lines_read(at, first, sc_inline_first(flags), to, size);
}

#endif
