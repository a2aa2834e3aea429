/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ring.h: one direction of one pair: a single writer, a single reader, 64-byte lines.
 *
 * The writer fills the lines of a record and publishes it by one release store of the first line's ctl;
 * the reader takes it by one acquire load. Each line's ctl holds the lap (1, 2, 1, 2, ...) in its top byte,
 * and every line is written once in each lap, so a line that has not been written in this lap never looks
 * like a record (a line's first lap finds 0).
 *
 * The reader gives lines back by storing `head` in the consumer line, now and then; the writer looks at it
 * only when it seems to be out of lines. It may hold on to lines all the same (`held`): the writer has yet to read the
 * answers that the reader has written into them (delegate.c).
 *
 *   R1 release, sc_ring_store():  record bytes before its ctl      pairs with  R1' sc_ring_peek()
 *   R2 release, sc_ring_publish(): bytes read before head          pairs with  R2' sc_ring_refresh()
 *
 * A ring begins with the lines that are in its slot's first page, and has the others as well once it has been full, or
 * busy (sc_ring_grow()). Both sides must wrap at the same place: so a record says that it has grown, in order, as all
 * records; and the writer says so when nothing is unread of the lap before, which would stand in the way of a longer
 * one. That is so in the end of each lap: before a record that reaches the ring's end there is room for it only if no
 * line of the lap before is unread. models/grow.pml.
 *
 * A ring whose reader does not look overflows into bounce buffers of its writer's: the records go on there, one buffer
 * after the other, and in the ring again once the reader has come as far as that: then all of the ring is free.
 * record.c decides; a record says so, in order, as all records. models/overflow.pml.
 *
 * If the writer dies before R1 the record was never there; nothing else is shared. If the reader dies
 * the writer runs out of lines. Each side keeps its own position privately: a word that the other writes is used after
 * a check only (a head outside [the last one, tail] is -EPROTO). That a line has been read may be known sooner
 * otherwise: a record that answers it says so (sc_ring_learn()).
 */
#ifndef SC_RING_H
#define SC_RING_H

#include <stdbool.h>
#include <string.h>
#include <shmcma/abi.h>
#include "base/atomic.h"
#include "base/fault.h"
#include "os/wake.h"

/* Lines in which records stand one behind the other, the ring's or a buffer's, and how far one side is in them. */
struct sc_ring_place {
	struct sc_abi_line *lines, *last; /* the first one, NULL: not connected; and the last */
	struct sc_abi_line *next;	  /* where the next record begins */
	uint64_t lap;			  /* at its place in ctl */
	uint32_t count;			  /* of lines */
};

/* The writer's side. */
struct sc_ring_tx {
	struct sc_ring_place at;
	uint64_t tail, limit; /* lines written; those before this one may be written */
	uint64_t *sleep;      /* the reader's, see wake.h */
	uint64_t head;	      /* lines that may be written again: */
	uint64_t known, held; /* those known to be read, before this one, which must not be as yet */
	uint64_t said;	      /* lines read as the reader's own word has it, which may be older */
	uint32_t room;	      /* lines that may be unread at a time, 0: it is to grow */
	uint32_t grows_after; /* times without room until it is to */
	struct sc_abi_consumer *consumer;
	struct sc_ring_place left; /* it has overflowed: where it resumes; else no lines */
	uint64_t since;		   /* lines written when it overflowed, or resumed, the last time */
	uint16_t overflow;	   /* number of the buffer that it has overflowed into */
	uint32_t stuck;		   /* times without room since the reader has come */
	uint64_t stuck_at;	   /* so far */
};

/* The reader's side. */
struct sc_ring_rx {
	struct sc_ring_place at;
	uint64_t head, published; /* lines read; as far as the writer has been told */
	uint64_t window;	  /* the value of consumer->window */
	struct sc_abi_consumer *consumer;
	struct sc_ring_place left; /* as in sc_ring_tx */
};

/* One is left, for the record that says that the ring has grown, or overflows. */
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

/* The line behind this one. */
static inline struct sc_abi_line *sc_ring_next(const struct sc_ring_place *at, const struct sc_abi_line *line)
{
	return line == at->last ? at->lines : (struct sc_abi_line *)line + 1;
}

/*
 * So many lines may be unread at a time, of those since it resumed. 0: it is to grow, or has overflowed, and each record
 * looks for room in another way until then.
 */
static inline void sc_ring_set_room(struct sc_ring_tx *tx, uint32_t room)
{
	uint64_t from = tx->head > tx->since ? tx->head : tx->since;

	tx->room = room;
	tx->limit = room ? from + room : 0;
}

/* It is known that the reader has read the lines before `head`, which is no further than the tail. */
static inline void sc_ring_learn(struct sc_ring_tx *tx, uint64_t head)
{
	if (head > tx->known)
		tx->known = head;
	tx->head = tx->known < tx->held ? tx->known : tx->held;
	sc_ring_set_room(tx, tx->room);
}

/* Learn how far the reader is, of its own word. -EPROTO: it cannot be there. */
int sc_ring_refresh(struct sc_ring_tx *tx);

static inline bool sc_ring_has_room(const struct sc_ring_tx *tx, uint32_t lines)
{
	return tx->tail + lines <= tx->limit;
}

/* The same of one that is to grow, and may not yet. */
static inline bool sc_ring_has_room_yet(const struct sc_ring_tx *tx, uint32_t lines)
{
	return tx->tail - tx->head + lines < tx->at.count;
}

/* May it grow now? */
static inline bool sc_ring_may_grow(const struct sc_ring_tx *tx)
{
	return tx->at.count == SC_ABI_RING_FIRST && tx->tail - tx->head <= (uint64_t)(tx->at.next - tx->at.lines);
}

/* It has grown: the writer's next record is to say so (SC_ABI_CONTINUE). */
static inline void sc_ring_grow(struct sc_ring_tx *tx)
{
	tx->at.count = SC_ABI_RING_LINES;
	tx->at.last = tx->at.lines + SC_ABI_RING_LINES - 1;
	sc_ring_set_room(tx, SC_RING_ROOM);
}

/* The reader has come to that record, and not released it. */
static inline void sc_ring_grown(struct sc_ring_rx *rx)
{
	rx->at.count = SC_ABI_RING_LINES;
	rx->at.last = rx->at.lines + SC_ABI_RING_LINES - 1;
}

/* Has it overflowed? */
static inline bool sc_ring_overflows(const struct sc_ring_tx *tx)
{
	return tx->left.lines;
}

/* Is there room for such a record, with a line left for the one that leaves this buffer? */
static inline bool sc_ring_overflow_has_room(const struct sc_ring_tx *tx, uint32_t lines)
{
	return lines <= (uint64_t)(tx->at.last - tx->at.next);
}

/* Has the reader come to the first buffer, so that the ring may be written again? */
static inline bool sc_ring_may_resume(const struct sc_ring_tx *tx)
{
	return tx->head >= tx->since;
}

/* May records go on in so many lines? The reader goes around once at most for each. */
static inline bool sc_ring_may_overflow(uint32_t lines)
{
	return lines > SC_ABI_RECORD_LINES;
}

/*
 * The writer has written an SC_ABI_CONTINUE: further records go to these lines, which are cleared. And the reader has
 * come to it, and released it.
 */
void sc_ring_overflow(struct sc_ring_tx *tx, struct sc_abi_line *lines, uint32_t count);
void sc_ring_overflowed(struct sc_ring_rx *rx, struct sc_abi_line *lines, uint32_t count);

/* Likewise, further records go to the ring again. */
void sc_ring_resume(struct sc_ring_tx *tx);
void sc_ring_resumed(struct sc_ring_rx *rx);

/* The line to begin a record in; the caller has made sure of room and goes on by sc_ring_next(). */
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

/* Publish the record of `lines` lines that begins at the reserved one, `first`. Its reader is still to be woken. */
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
	/* R1 release: pairs with R1' in sc_ring_peek() */
	sc_store_release_64(&first->ctl, ctl);
	(void)SC_FAULT("ring.committed");
}

/* Take `lines` lines, so many behind the next record's first, from the reader's cache: they will be written soon. */
static inline void sc_ring_fetch_to_write(const struct sc_ring_tx *tx, uint32_t ahead, uint32_t lines)
{
	for (struct sc_abi_line *line = tx->at.next + ahead; lines--; line++)
		sc_fetch_to_write(line > tx->at.last ? line - tx->at.count : line);
}

static inline void sc_ring_wake(const struct sc_ring_tx *tx)
{
	sc_wake(tx->sleep, SC_ABI_SLEEP_ASLEEP);
}

/* Both. */
static inline void sc_ring_commit(struct sc_ring_tx *tx, uint64_t ctl, uint32_t lines)
{
	sc_ring_store(tx, sc_ring_reserve(tx), ctl, lines);
	sc_ring_wake(tx);
}

/* Where the next record begins. */
static inline struct sc_abi_line *sc_ring_first(const struct sc_ring_rx *rx)
{
	return rx->at.next;
}

/* The ctl of the next record, which begins in this line; 0: none. */
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

/* The ctl of the record behind the one at the head, which is `lines` long; 0: none yet. Only a hint. */
static inline uint64_t sc_ring_peek_next(const struct sc_ring_rx *rx, uint32_t lines)
{
	const struct sc_abi_line *line = rx->at.next + lines;
	bool wraps = line > rx->at.last;
	/* nothing else of it is read */
	uint64_t ctl = sc_load_relaxed_64(&(wraps ? line - rx->at.count : line)->ctl);
	uint64_t lap = wraps ? rx->at.lap ^ SC_RING_LAP_TURN : rx->at.lap;

	return (ctl ^ lap) >> SC_ABI_CTL_LAP_SHIFT ? 0 : ctl;
}

/* Tell the writer how far this side is; `window` goes with it. */
static inline void sc_ring_publish(struct sc_ring_rx *rx, uint64_t window)
{
	sc_store_relaxed_64(&rx->consumer->window, window); /* ordered by the next; a count of its own */
	(void)SC_FAULT("ring.window");
	/* R2 release: pairs with R2' in sc_ring_refresh() */
	sc_store_release_64(&rx->consumer->head, rx->head);
	(void)SC_FAULT("ring.head");
	rx->published = rx->head;
	rx->window = window;
}

/* Done with the record at the head. */
static inline void sc_ring_release(struct sc_ring_rx *rx, uint32_t lines)
{
	rx->head += lines;
	rx->at.next += lines;
	if (rx->at.next > rx->at.last) {
		rx->at.next -= rx->at.count;
		rx->at.lap ^= SC_RING_LAP_TURN;
	}
}

/* Lines ahead that are fetched, and the most for one record. */
#define SC_RING_AHEAD 12
#define SC_RING_FETCHED 3

static inline void sc_ring_fetch_one(const struct sc_ring_rx *rx, uint32_t ahead)
{
	const struct sc_abi_line *line = rx->at.next + ahead;

	__builtin_prefetch(line > rx->at.last ? line - rx->at.count : line);
}

/*
 * An inline record of `lines` has been released: of a stream of such there are more written than have come here, and
 * each would be waited for when it is looked at. So as many lines further on are fetched now. Longer records, and those
 * that name buffers, only take lines from their writer (docs/MEASUREMENTS.md, "Lines fetched by the reader"). No
 * loop, as compilers take out one that does nothing else.
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

/* memcpy(3) of what fits a line, in the open: a call costs more than the copy. */
static inline void sc_line_copy(void *to_, const void *from_, uint32_t size)
{
	const uint8_t *from = from_;
	uint8_t *to = to_;

	if (size == 8) {
		memcpy(to, from, 8);
	} else if (size >= 16) { /* the last 16 overlap those before */
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
		memcpy(to, from, 4);
		memcpy(to + size - 4, from + size - 4, 4);
	} else if (size) {
		to[0] = from[0];
		to[size / 2] = from[size / 2];
		to[size - 1] = from[size - 1];
	}
}

/* A compiler that is free to makes calls of these, and so gives more registers away to be saved. */
#define SC_RING_INLINE static inline __attribute__((always_inline))

void sc_lines_write_slow(const struct sc_ring_place *at, struct sc_abi_line *first, uint32_t here, const void *from,
			 uint32_t size);
void sc_lines_read_slow(const struct sc_ring_place *at, const struct sc_abi_line *first, uint32_t here, void *to,
			uint32_t size);

/*
 * Write / read `size` bytes in the lines of a record: the last `here` bytes of the first line, then whole lines. Two in
 * the open as well: with the call and a loop 64 B take a thirtieth longer one way.
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

/* Lines of a record with `size` such bytes. */
static inline uint32_t sc_lines_count(uint32_t here, uint32_t size)
{
	return size <= here ? 1 : 1 + (size - here + SC_ABI_LINE_BYTES - 1) / SC_ABI_LINE_BYTES;
}

/* Bytes of payload that the first line of an inline record holds. */
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
