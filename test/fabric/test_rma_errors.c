/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_rma_errors: one-sided operations that cannot be: each ends in one completion, with the code that says
 * why; no byte moves that was not allowed to, and what comes afterwards is not disturbed. Among them two
 * faults of libfabric's shm: a wrong key that is found out too late or not at all, and one probe for all peers.
 *
 * As in test_rma, the scenarios run to oneself, inside one process, and between two: directly, without CMA,
 * and with a target that serves its peers itself.
 */
#include "onesided.h"

#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

#define NOBODY 65534

/* Sizes that go different ways. */
static const size_t lens[] = { 1, 8, 300, 4096, 20000, 200000 };
#define LENS (sizeof(lens) / sizeof(lens[0]))
#define LONGEST 200000

/* ---- checks ---------------------------------------------------------------------------------- */

/* The reason in words: what went wrong is named by one of them. */
static const char *word_of(int error)
{
	switch (error) {
	case FI_EKEYREJECTED:
		return "key";
	case FI_EACCES:
		return "denied";
	case FI_EINVAL:
		return "bounds";
	case FI_EIO:
		return "mapped";
	case FI_ECONNRESET:
		return "peer";
	default:
		return "?";
	}
}

static struct fi_cq_err_entry expect_error(struct pair *pair, struct side *side, void *context, int error)
{
	struct fi_cq_err_entry got = pair_error(pair, side);
	char text[200];

	gives(got.err, error);
	must(got.op_context == context);
	must(got.flags & FI_RMA && got.flags & (FI_READ | FI_WRITE));
	must(got.prov_errno);
	must(fi_cq_strerror(side->cq, got.prov_errno, got.err_data, text, sizeof(text)) == text);
	must(strcasestr(text, word_of(error)));
	return got;
}

/* A memory fault, and whose memory it is said to be. */
static struct fi_cq_err_entry expect_fault(struct pair *pair, struct side *side, void *context, const char *whose)
{
	struct fi_cq_err_entry got = expect_error(pair, side, context, FI_EIO);

	must(strstr(fi_cq_strerror(side->cq, got.prov_errno, got.err_data, NULL, 0), whose));
	return got;
}

#define REGISTERED "the target's registered memory"
#define LOCAL "the initiator's local buffer"

/* A good access in both directions: all is as before. */
static void check_sound(struct stage *stage)
{
	uint8_t out[100], in[100];
	struct side *side = stage->side;
	uint64_t addr = stage->target.addr + 7, key = stage->target.key;

	pattern_fill(out, 0, sizeof(out), 77);
	post(stage->pair, fi_write(side->ep, out, sizeof(out), NULL, stage->peer, addr, key, out));
	must(pair_done(stage->pair, side).entry.op_context == out);
	post(stage->pair, fi_read(side->ep, in, sizeof(in), NULL, stage->peer, addr, key, in));
	must(pair_done(stage->pair, side).entry.op_context == in);
	must(!memcmp(in, out, sizeof(in)));
	must(pattern_is(stage->seen + 7, 0, sizeof(out), 77));
	memset(stage->seen, 0xee, 200);
}

/* One write and one read of [addr, addr + len) under key, neither of which moves a byte. */
static void check_refused(struct stage *stage, uint64_t addr, size_t len, uint64_t key, int error)
{
	uint8_t *buf = guarded_alloc(len);
	struct side *side = stage->side;

	memset(buf, 0xdd, len);
	post(stage->pair, fi_write(side->ep, buf, len, NULL, stage->peer, addr, key, buf));
	gives(expect_error(stage->pair, side, buf, error).olen, 0);
	post(stage->pair, fi_read(side->ep, buf, len, NULL, stage->peer, addr, key, buf));
	gives(expect_error(stage->pair, side, buf, error).olen, 0);
	must(bytes_are(buf, len, 0xdd));
	must(guarded_intact(buf, len));
	must(bytes_are(stage->seen, STAGE_LEN, 0xee));
	guarded_free(buf);
}

/*
 * The same where only the first `within` bytes are open for it: the error tells how many bytes were moved, and not one
 * more was.
 */
static void check_cut_off(struct stage *stage, uint64_t offset, size_t len, size_t within)
{
	uint8_t *buf = guarded_alloc(len);
	struct side *side = stage->side;
	uint64_t addr = stage->target.addr + offset, key = stage->target.key;
	size_t moved;

	memset(buf, 0x99, len);
	post(stage->pair, fi_write(side->ep, buf, len, NULL, stage->peer, addr, key, buf));
	moved = expect_error(stage->pair, side, buf, FI_EINVAL).olen;
	must(moved <= within);
	must(bytes_are(stage->seen, offset, 0xee));
	must(bytes_are(stage->seen + offset, moved, 0x99));
	must(bytes_are(stage->seen + offset + moved, STAGE_LEN - offset - moved, 0xee));
	memset(stage->seen + offset, 0xee, moved);
	post(stage->pair, fi_read(side->ep, buf, len, NULL, stage->peer, addr, key, buf));
	moved = expect_error(stage->pair, side, buf, FI_EINVAL).olen;
	must(moved <= within);
	must(bytes_are(buf, moved, 0xee));
	must(bytes_are(buf + moved, len - moved, 0x99));
	must(guarded_intact(buf, len));
	guarded_free(buf);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void test_wrong_key(struct stage *stage)
{
	uint64_t key = stage->target.key;
	const uint64_t keys[] = { key + 1,	    key - 1, key ^ 1ULL << 63, key ^ 1ULL << 32,
				  key ^ 1ULL << 17, ~key,    UINT64_MAX,       0 };

	memset(stage->seen, 0xee, STAGE_LEN);
	for (size_t i = 0; i < LENS; i++)
		for (size_t j = 0; j < sizeof(keys) / sizeof(keys[0]); j++) {
			if (keys[j] == key)
				continue;
			check_refused(stage, stage->target.addr, lens[i], keys[j], FI_EKEYREJECTED);
		}
	check_sound(stage);
	/* an access of nothing needs a key as well */
	check_refused(stage, stage->target.addr, 0, key + 1, FI_EKEYREJECTED);
	/* one of several */
	for (size_t i = 0; i < LENS; i++) {
		uint8_t *buf = guarded_alloc(lens[i]);
		struct access access = { .iov = { { buf, lens[i] } },
					 .iov_count = 1,
					 .remote = { { stage->target.addr, lens[i] / 2, key + 1 },
						     { stage->target.addr, lens[i] - lens[i] / 2, key } },
					 .remote_count = 2,
					 .peer = stage->peer,
					 .context = buf };

		if (lens[i] < 2)
			access.remote[1].key = key + 1;
		for (int write = 0; write < 2; write++) {
			post(stage->pair, access_post(stage->side, &access, write, 0));
			expect_error(stage->pair, stage->side, buf, FI_EKEYREJECTED);
		}
		guarded_free(buf);
	}
	memset(stage->seen, 0xee, STAGE_LEN);
	check_sound(stage);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void test_bounds(struct stage *stage)
{
	uint64_t addr = stage->target.addr, key = stage->target.key;

	memset(stage->seen, 0xee, STAGE_LEN);
	for (size_t i = 0; i < LENS; i++) {
		size_t len = lens[i];

		/* one byte too far, on both sides; then all of it */
		check_refused(stage, addr - 1, len, key, FI_EINVAL);
		check_cut_off(stage, STAGE_LEN - len + 1, len, len - 1);
		check_refused(stage, addr + STAGE_LEN, len, key, FI_EINVAL);
		check_refused(stage, addr - len, len, key, FI_EINVAL);
		check_refused(stage, addr ^ 1ULL << 63, len, key, FI_EINVAL);
		/* address and length that go round */
		check_refused(stage, UINT64_MAX - len / 2, len, key, FI_EINVAL);
		check_refused(stage, UINT64_MAX, len, key, FI_EINVAL);
	}
	check_refused(stage, addr + STAGE_LEN + 1, 0, key, FI_EINVAL);
	check_sound(stage);
}

/* More than there is, from memory that is there. */
static void test_too_long(struct stage *stage)
{
	uint8_t *buf = malloc(STAGE_LEN + 1);
	struct side *side = stage->side;

	must(buf);
	memset(buf, 0xdd, STAGE_LEN + 1);
	memset(stage->seen, 0xee, STAGE_LEN);
	post(stage->pair, fi_write(side->ep, buf, STAGE_LEN + 1, NULL, stage->peer, stage->target.addr,
				   stage->target.key, buf));
	expect_error(stage->pair, side, buf, FI_EINVAL);
	post(stage->pair, fi_read(side->ep, buf, STAGE_LEN + 1, NULL, stage->peer, stage->target.addr,
				  stage->target.key, buf));
	expect_error(stage->pair, side, buf, FI_EINVAL);
	check_sound(stage);
	free(buf);
}

/* ---- in silence ------------------------------------------------------------------------------ */

/* Those that complete in silence do not fail in silence; data that goes with a failed write does not arrive. */
static void test_injected(struct stage *stage)
{
	struct side *side = stage->side;
	uint64_t addr = stage->target.addr, key = stage->target.key + 1;

	memset(stage->seen, 0xee, STAGE_LEN);
	for (size_t i = 0; i < LENS && lens[i] <= 4096; i++) {
		uint8_t *buf = guarded_alloc(lens[i]);

		post(stage->pair, fi_inject_write(side->ep, buf, lens[i], stage->peer, addr, key));
		expect_error(stage->pair, side, side->ep->fid.context, FI_EKEYREJECTED);
		post(stage->pair, fi_inject_writedata(side->ep, buf, lens[i], 5, stage->peer, addr, key));
		expect_error(stage->pair, side, side->ep->fid.context, FI_EKEYREJECTED);
		post(stage->pair,
		     fi_writedata(side->ep, buf, lens[i], NULL, 5, stage->peer, addr, key, buf));
		expect_error(stage->pair, side, buf, FI_EKEYREJECTED);
		guarded_free(buf);
	}
	if (stage->pair->b.ep) {
		pair_quiet(stage->pair, &stage->pair->b);
		pair_quiet(stage->pair, &stage->pair->a);
	}
	must(bytes_are(stage->seen, STAGE_LEN, 0xee));
	check_sound(stage);
}

/* Writes `len` bytes at the start of the target's memory, with an empty range in front of them or behind them. */
static void write_with_empty(struct stage *stage, uint8_t *buf, size_t len, struct fi_rma_iov empty,
			     bool behind)
{
	const struct fi_rma_iov full = { .addr = stage->target.addr,
					 .len = len,
					 .key = stage->target.key };
	const struct fi_rma_iov ranges[] = { behind ? full : empty, behind ? empty : full };
	const struct iovec iov = { buf, len };
	const struct fi_msg_rma msg = { .msg_iov = &iov,
					.iov_count = 1,
					.addr = stage->peer,
					.rma_iov = ranges,
					.rma_iov_count = 2,
					.context = buf };

	post(stage->pair, fi_writemsg(stage->side->ep, &msg, 0));
}

/* An empty range is no access, whatever its key. If all are empty, the last one's key counts. */
static void test_empty_ranges(struct stage *stage)
{
	const struct fi_rma_iov wrong = { .addr = stage->target.addr, .key = stage->target.key + 1 };
	struct side *side = stage->side;

	for (size_t i = 0; i < LENS; i++)
		for (int behind = 0; behind < 2; behind++) {
			uint8_t *buf = guarded_alloc(lens[i]);

			pattern_fill(buf, 0, lens[i], i);
			memset(stage->seen, 0xee, STAGE_LEN);
			write_with_empty(stage, buf, lens[i], wrong, behind);
			must(pair_done(stage->pair, side).entry.op_context == buf);
			must(pattern_is(stage->seen, 0, lens[i], i));
			must(bytes_are(stage->seen + lens[i], STAGE_LEN - lens[i], 0xee));
			write_with_empty(stage, buf, 0, wrong, behind);
			if (behind)
				expect_error(stage->pair, side, buf, FI_EKEYREJECTED);
			else
				must(pair_done(stage->pair, side).entry.op_context == buf);
			guarded_free(buf);
		}
	memset(stage->seen, 0xee, STAGE_LEN);
	check_sound(stage);
}

/* Errors and successes of many operations under way at once: each is told once, as it is. */
static void test_mixed(struct stage *stage)
{
	enum { OPS = 400, LEN = 4000 };
	static uint8_t ended[OPS];
	uint8_t *buf = guarded_alloc(LEN);
	struct side *side = stage->side;

	memset(ended, 0, sizeof(ended));
	memset(buf, 0x11, LEN);
	for (int i = 0; i < OPS; i++) {
		size_t len = i % 3 ? (size_t)i : LEN;
		uint64_t key = stage->target.key + (i % 5 == 0);
		uint64_t addr = stage->target.addr + (i % 7 == 0 ? STAGE_LEN : 0);

		post(stage->pair, fi_write(side->ep, buf, len, NULL, stage->peer, addr, key, &ended[i]));
	}
	for (int i = 0; i < OPS; i++) {
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry error = { 0 };
		ssize_t ret;
		int op;

		while ((ret = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
			pair_progress(stage->pair);
		if (ret == -FI_EAVAIL) {
			gives(fi_cq_readerr(side->cq, &error, 0), 1);
			op = (int)((uint8_t *)error.op_context - ended);
			if (op % 5 == 0)
				gives(error.err, FI_EKEYREJECTED);
			else
				gives(error.err, FI_EINVAL);
			must(op % 5 == 0 || op % 7 == 0);
		} else {
			gives(ret, 1);
			pair_saw(&entry);
			op = (int)((uint8_t *)entry.op_context - ended);
			/* nothing of nothing, at the end, is within */
			must(op % 5 && (op % 7 || (op % 3 && op == 0)));
		}
		must(op >= 0 && op < OPS);
		gives(ended[op]++, 0);
	}
	guarded_free(buf);
	memset(stage->seen, 0xee, STAGE_LEN);
	check_sound(stage);
}

/* ---- two processes with a target that has more to it ------------------------------------------ */

/* The target shows four keys: one for reads, one for writes, two of memory with missing or protected pages. */
struct shown {
	struct remote readable, writable, holed, guarded;
};

#define PAGE 4096
#define BEFORE (3 * PAGE)

static void exchange_shown(struct pair *pair, struct shown *shown)
{
	struct shown other;

	pair_exchange(pair->link, shown, &other, sizeof(other));
	*shown = other;
}

static void one_error(struct pair *pair, bool write, const struct remote *remote, size_t len, int error)
{
	uint8_t *buf = guarded_alloc(len);
	struct side *side = &pair->a;

	memset(buf, 0xdd, len);
	if (write)
		post(pair, fi_write(side->ep, buf, len, NULL, side->peer, remote->addr, remote->key, buf));
	else
		post(pair, fi_read(side->ep, buf, len, NULL, side->peer, remote->addr, remote->key, buf));
	gives(expect_error(pair, side, buf, error).olen, 0);
	must(bytes_are(buf, len, 0xdd));
	must(guarded_intact(buf, len));
	guarded_free(buf);
}

static void one_success(struct pair *pair, bool write, const struct remote *remote, size_t len)
{
	uint8_t *buf = guarded_alloc(len);
	struct side *side = &pair->a;

	memset(buf, 0x66, len);
	if (write)
		post(pair, fi_write(side->ep, buf, len, NULL, side->peer, remote->addr, remote->key, buf));
	else
		post(pair, fi_read(side->ep, buf, len, NULL, side->peer, remote->addr, remote->key, buf));
	must(pair_done(pair, side).entry.op_context == buf);
	guarded_free(buf);
}

/* Bytes before the bad page may move, and are told; none behind it. */
static void check_hole(struct pair *pair, bool write, const struct remote *remote, size_t from, size_t len)
{
	uint8_t *buf = guarded_alloc(len);
	struct side *side = &pair->a;
	struct fi_cq_err_entry error;

	memset(buf, write ? 0x99 : 0xdd, len);
	if (write)
		post(pair, fi_write(side->ep, buf, len, NULL, side->peer, remote->addr + from, remote->key,
				    buf));
	else
		post(pair,
		     fi_read(side->ep, buf, len, NULL, side->peer, remote->addr + from, remote->key, buf));
	error = expect_fault(pair, side, buf, REGISTERED);
	must(error.olen <= BEFORE - from);
	if (!write) {
		must(bytes_are(buf, error.olen, 0x77));
		must(bytes_are(buf + (BEFORE - from), len - (BEFORE - from), 0xdd));
	}
	must(guarded_intact(buf, len));
	guarded_free(buf);
}

static void access_initiator(struct pair *pair)
{
	struct shown shown = { .readable.len = 0 };

	exchange_shown(pair, &shown);
	for (size_t i = 0; i < LENS; i++) {
		if (lens[i] > shown.readable.len)
			continue;
		one_error(pair, true, &shown.readable, lens[i], FI_EACCES);
		one_success(pair, false, &shown.readable, lens[i]);
		one_error(pair, false, &shown.writable, lens[i], FI_EACCES);
		one_success(pair, true, &shown.writable, lens[i]);
	}
	/* of nothing, too */
	one_error(pair, true, &shown.readable, 0, FI_EACCES);
	one_error(pair, false, &shown.writable, 0, FI_EACCES);
	for (int write = 0; write < 2; write++) {
		check_hole(pair, write, &shown.holed, 0, 5 * PAGE);
		check_hole(pair, write, &shown.holed, BEFORE - 1, 2);
		check_hole(pair, write, &shown.holed, BEFORE, 8);
		check_hole(pair, write, &shown.holed, BEFORE - 100, 2 * PAGE);
	}
	check_hole(pair, true, &shown.guarded, 0, 5 * PAGE);
	check_hole(pair, true, &shown.guarded, BEFORE - 3, 8);
	check_hole(pair, true, &shown.guarded, BEFORE + 1, 8);
	one_success(pair, false, &shown.guarded, 5 * PAGE); /* to be read it is as good as any */
	one_success(pair, true, &shown.writable, LONGEST);
	pair_meet(pair);
	pair_quiet(pair, &pair->a);
}

/*
 * The fourth of them is not to be touched, or not to be written. Nothing less than a mapping keeps it so: a hole is filled
 * by the next page that anybody in this process maps.
 */
static uint8_t *pages(size_t count, int protection)
{
	uint8_t *map =
		mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(map != MAP_FAILED);
	memset(map, 0x77, count * PAGE);
	gives(mprotect(map + BEFORE, PAGE, protection), 0);
	return map;
}

/* The same within one process, where the copy is a plain one. */
static void test_not_there(struct stage *stage)
{
	uint8_t *holed = pages(5, PROT_NONE), *guarded = pages(5, PROT_READ);
	struct region regions[2];

	region_open(stage->pair, &regions[0], holed, 5 * PAGE, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_open(stage->pair, &regions[1], guarded, 5 * PAGE, FI_REMOTE_READ | FI_REMOTE_WRITE);
	for (int write = 0; write < 2; write++) {
		check_hole(stage->pair, write, &regions[0].remote, BEFORE, 8);
		check_hole(stage->pair, write, &regions[0].remote, BEFORE - 1, 2);
	}
	check_hole(stage->pair, true, &regions[1].remote, BEFORE + 1, 8);
	one_success(stage->pair, false, &regions[1].remote, 5 * PAGE);
	must(bytes_are(guarded + BEFORE, 2 * PAGE, 0x77));
	must(bytes_are(holed + BEFORE + PAGE, PAGE, 0x77));
	for (int i = 0; i < 2; i++)
		region_close(&regions[i]);
	munmap(holed, 5 * PAGE);
	munmap(guarded, 5 * PAGE);
}

static void access_target(struct pair *pair)
{
	uint8_t *readable = guarded_alloc(LONGEST), *writable = guarded_alloc(LONGEST);
	uint8_t *holed = pages(5, PROT_NONE), *guarded = pages(5, PROT_READ);
	struct region regions[4];
	struct shown shown;

	memset(readable, 0x77, LONGEST);
	region_open(pair, &regions[0], readable, LONGEST, FI_REMOTE_READ);
	region_open(pair, &regions[1], writable, LONGEST, FI_REMOTE_WRITE);
	region_open(pair, &regions[2], holed, 5 * PAGE, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_open(pair, &regions[3], guarded, 5 * PAGE, FI_REMOTE_READ | FI_REMOTE_WRITE);
	shown = (struct shown){ regions[0].remote, regions[1].remote, regions[2].remote,
				regions[3].remote };
	exchange_shown(pair, &shown);
	pair_meet(pair);
	must(bytes_are(readable, LONGEST, 0x77));
	must(guarded_intact(readable, LONGEST));
	must(bytes_are(writable, LONGEST, 0x66));
	must(guarded_intact(writable, LONGEST));
	must(bytes_are(guarded + BEFORE, 2 * PAGE, 0x77)); /* the page and what is behind it */
	must(bytes_are(holed + BEFORE + PAGE, PAGE, 0x77));
	pair_quiet(pair, &pair->a);
	for (int i = 0; i < 4; i++)
		region_close(&regions[i]);
	guarded_free(readable);
	guarded_free(writable);
}

/* ---- our own memory -------------------------------------------------------------------------- */

/* Pages of a copy that the kernel does: a smaller one may go through shared memory, and a fault is a signal there. */
#define LARGE 16

/*
 * A part of the initiator's own buffer is missing: an error as well, when the kernel copies. The target may already
 * have copied a part behind it.
 */
static void local_fault(struct pair *pair)
{
	struct remote remote = region_exchange(pair, NULL);
	uint8_t *holed = pages(LARGE, PROT_NONE), *guarded = pages(LARGE, PROT_READ);
	struct side *side = &pair->a;

	for (int i = 0; i < 10; i++) {
		post(pair, fi_write(side->ep, holed, LARGE * PAGE, NULL, side->peer, remote.addr, remote.key,
				    holed));
		must(expect_fault(pair, side, holed, LOCAL).olen <= BEFORE);
		post(pair, fi_read(side->ep, guarded, LARGE * PAGE, NULL, side->peer, remote.addr, remote.key,
				   guarded));
		must(expect_fault(pair, side, guarded, LOCAL).olen <= BEFORE);
		must(bytes_are(guarded + BEFORE, PAGE, 0x77));
		post(pair,
		     fi_write(side->ep, guarded, LARGE * PAGE, NULL, side->peer, remote.addr, remote.key, &i));
		must(pair_done(pair, side).entry.op_context == &i);
	}
	pair_meet(pair);
}

static void local_fault_target(struct pair *pair)
{
	struct region region;
	uint8_t *buf = guarded_alloc(LARGE * PAGE);

	region_open(pair, &region, buf, LARGE * PAGE, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &region);
	pair_meet(pair);
	must(guarded_intact(buf, LARGE * PAGE));
	region_close(&region);
	guarded_free(buf);
}

/* ---- closed before, closed meanwhile ----------------------------------------------------------- */

static void closed_initiator(struct pair *pair)
{
	static uint8_t buf[LONGEST];

	for (size_t i = 0; i < LENS; i++) {
		struct remote remote = region_exchange(pair, NULL);

		memset(buf, 0x66, lens[i]);
		one_success(pair, true, &remote, lens[i]);
		pair_meet(pair);
		pair_meet(pair); /* it is closed now, and something else is there */
		one_error(pair, true, &remote, lens[i], FI_EKEYREJECTED);
		one_error(pair, false, &remote, lens[i], FI_EKEYREJECTED);
		pair_meet(pair);
	}
}

/* The same address is registered anew: the old key is of no use. */
static void closed_target(struct pair *pair)
{
	size_t room = (LONGEST + PAGE) / PAGE * PAGE;
	uint8_t *map = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct region region, second;

	must(map != MAP_FAILED);
	for (size_t i = 0; i < LENS; i++) {
		region_open(pair, &region, map, room, FI_REMOTE_READ | FI_REMOTE_WRITE);
		region_exchange(pair, &region);
		pair_meet(pair);
		must(bytes_are(map, lens[i], 0x66));
		region_close(&region);
		must(mmap(map, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			  0) == map);
		memset(map, 0x44, room);
		region_open(pair, &second, map, room, FI_REMOTE_READ | FI_REMOTE_WRITE);
		pair_meet(pair);
		pair_meet(pair);
		must(bytes_are(map, room, 0x44));
		region_close(&second);
	}
}

/*
 * In memory that both have: the key that is open just now. The target closes it at any time; an access then
 * either succeeds or fails with FI_EKEYREJECTED, and after fi_close no byte changes.
 */
struct board {
	_Atomic uint64_t addr, key, len;
	_Atomic uint64_t good, refused; /* the results of the accesses */
	atomic_bool over;
};
static struct board *board;

#define RACE_ROUNDS 1000

/* Its keys stay closed for ever when it has failed. */
static bool other_has_ended(const struct pair *pair)
{
	struct pollfd other = { .fd = pair->link };

	return poll(&other, 1, 0) == 1 && other.revents & POLLHUP;
}

static void race_initiator(struct pair *pair)
{
	static uint8_t buf[LONGEST];
	struct side *side = &pair->a;

	memset(buf, 0x99, sizeof(buf));
	for (unsigned int i = 0; !atomic_load(&board->over); i++) {
		struct fi_cq_tagged_entry entry;
		struct fi_cq_err_entry error = { 0 };
		size_t len = lens[i % LENS];
		ssize_t ret;

		must(i % 64 || !other_has_ended(pair));
		post(pair, fi_write(side->ep, buf, len, NULL, side->peer, atomic_load(&board->addr),
				    atomic_load(&board->key), buf));
		while ((ret = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
			;
		if (ret == 1) {
			pair_saw(&entry);
			atomic_fetch_add(&board->good, 1);
			continue;
		}
		gives(ret, -FI_EAVAIL);
		gives(fi_cq_readerr(side->cq, &error, 0), 1);
		gives(error.err, FI_EKEYREJECTED);
		atomic_fetch_add(&board->refused, 1);
	}
	pair_quiet(pair, side);
	pair_meet(pair);
}

/* Each outcome is seen at least once, or there was no race. */
static void race_see(struct pair *pair, _Atomic uint64_t *outcome)
{
	while (!atomic_load(outcome)) {
		must(!other_has_ended(pair));
		side_progress(&pair->a);
	}
}

static void race_target(struct pair *pair)
{
	uint8_t *memory = malloc(LONGEST);

	must(memory);
	for (int round = 0; round < RACE_ROUNDS; round++) {
		struct region region;

		region_open(pair, &region, memory, LONGEST, FI_REMOTE_WRITE);
		atomic_store(&board->addr, region.remote.addr);
		atomic_store(&board->key, region.remote.key);
		for (int i = 0; i < 1 + round % 40; i++)
			side_progress(&pair->a);
		if (round % 7 == 0)
			sched_yield();
		race_see(pair, &board->good);
		region_close(&region);
		memset(memory, 0x33, LONGEST);
		for (int i = 0; i < 5; i++)
			side_progress(&pair->a);
		if (round % 3 == 0)
			sched_yield();
		race_see(pair, &board->refused);
		must(bytes_are(memory, LONGEST, 0x33));
	}
	atomic_store(&board->over, true);
	pair_meet(pair);
	free(memory);
}

static void race_both(void **state)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(board != MAP_FAILED);
	pair_both(state);
	munmap(board, sizeof(*board));
}

/* ---- death ----------------------------------------------------------------------------------- */

/* A process of our own that is a target and nothing else, until it is killed. */
struct victim {
	pid_t pid;
	int link;
	char name[64];
	struct remote remote;
};

static void be_victim(int link)
{
	static uint8_t memory[1 << 20];
	struct region region;
	struct victim self;
	struct pair pair;

	watchdog_start("a victim", 0);
	pair_open_domain(&pair, &onesided_usual);
	side_open(&pair, &pair.a);
	region_open(&pair, &region, memory, sizeof(memory), FI_REMOTE_READ | FI_REMOTE_WRITE);
	memcpy(self.name, pair.a.name, sizeof(self.name));
	self.remote = region.remote;
	gives(write(link, &self, sizeof(self)), sizeof(self));
	for (;;)
		side_progress(&pair.a);
}

static void victim_start(struct victim *victim)
{
	int fds[2];
	pid_t pid;

	gives(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	pid = fork();
	must(pid >= 0);
	if (!pid) {
		pair_end_with_parent();
		close(fds[0]);
		be_victim(fds[1]);
	}
	close(fds[1]);
	gives(recv(fds[0], victim, sizeof(*victim), MSG_WAITALL), sizeof(*victim));
	victim->pid = pid;
	victim->link = fds[0];
}

static void victim_end(struct victim *victim)
{
	gives(kill(victim->pid, SIGKILL), 0);
	gives(waitpid(victim->pid, NULL, 0), victim->pid);
	close(victim->link);
}

/* The next completion, error or not; false: none comes for a while. */
static bool any_completion(struct pair *pair, int *error, void **context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failed = { 0 };
	ssize_t ret = -FI_EAGAIN;

	for (int i = 0; i < 20000 && ret == -FI_EAGAIN; i++)
		ret = fi_cq_read(pair->a.cq, &entry, 1);
	if (ret == -FI_EAGAIN)
		return false;
	*error = 0;
	*context = entry.op_context;
	if (ret == -FI_EAVAIL) {
		gives(fi_cq_readerr(pair->a.cq, &failed, 0), 1);
		*error = failed.err;
		*context = failed.op_context;
	} else {
		gives(ret, 1);
		pair_saw(&entry);
	}
	return true;
}

static void dead_target(void)
{
	static uint8_t buf[1 << 20];
	struct victim victim;
	struct pair pair;
	void *context;
	ssize_t ret;
	int error;

	victim_start(&victim);
	pair_open_domain(&pair, &onesided_usual);
	side_open(&pair, &pair.a);
	pair.a.peer = pair_insert(pair.a.av, victim.name);
	one_success(&pair, true, &victim.remote, 1000);
	one_success(&pair, false, &victim.remote, sizeof(buf));
	victim_end(&victim);
	/* until it is noticed, which the first access does, each one that was taken fails */
	for (int i = 0; i < 5; i++) {
		ret = fi_write(pair.a.ep, buf, 1000, NULL, pair.a.peer, victim.remote.addr,
			       victim.remote.key, buf);
		if (ret) {
			gives(ret, -FI_ECONNRESET);
			continue;
		}
		must(any_completion(&pair, &error, &context));
		gives(error, FI_ECONNRESET);
		must(context == buf);
	}
	gives(fi_read(pair.a.ep, buf, 8, NULL, pair.a.peer, victim.remote.addr, victim.remote.key, buf),
	      -FI_ECONNRESET);
	gives(fi_inject_write(pair.a.ep, buf, 8, pair.a.peer, victim.remote.addr, victim.remote.key),
	      -FI_ECONNRESET);
	must(!any_completion(&pair, &error, &context));
	pair_close(&pair);
}

/* Killed while it is stopped with requests unanswered: each ends, once. Direct accesses do not need it. */
static void dead_while_asked(void)
{
	enum { OPS = 50 };
	static uint8_t bufs[OPS][20000], ended[OPS];
	int posted = 0, errors = 0, successes = 0, error;
	struct victim victim;
	struct pair pair;
	void *context;

	victim_start(&victim);
	pair_open_domain(&pair, &onesided_usual);
	side_open(&pair, &pair.a);
	pair.a.peer = pair_insert(pair.a.av, victim.name);
	one_success(&pair, true, &victim.remote, 1000);
	gives(kill(victim.pid, SIGSTOP), 0);
	gives(waitpid(victim.pid, NULL, WUNTRACED), victim.pid); /* until it has stopped */
	for (int i = 0; i < OPS; i++) {
		uint64_t addr = victim.remote.addr, key = victim.remote.key;
		ssize_t ret = i % 2 ? fi_write(pair.a.ep, bufs[i], i % 3 ? 8 : sizeof(bufs[i]), NULL,
					       pair.a.peer, addr, key, &ended[i])
				    : fi_read(pair.a.ep, bufs[i], i % 3 ? 8 : sizeof(bufs[i]), NULL,
					      pair.a.peer, addr, key, &ended[i]);

		if (ret == -FI_EAGAIN)
			continue;
		gives(ret, 0);
		posted++;
	}
	must(posted);
	victim_end(&victim);
	while (any_completion(&pair, &error, &context)) {
		int op = (int)((uint8_t *)context - ended);

		must(op >= 0 && op < OPS);
		gives(ended[op]++, 0);
		if (error)
			gives(error, FI_ECONNRESET);
		errors += !!error;
		successes += !error;
	}
	gives(errors + successes, posted);
	if (strstr(pair_current->env ? pair_current->env : "", "strict"))
		gives(errors, posted);
	pair_close(&pair);
}

/* ---- one probe for each peer and direction ---------------------------------------------------- */

/* Without privilege, which would be let into any memory; the module is loaded before, where it may lie. */
static void become_nobody(void)
{
	struct fi_info *info;

	gives(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info), 0);
	fi_freeinfo(info);
	if (!geteuid() && (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY)))
		_exit(PAIR_SKIP);
	prctl(PR_SET_DUMPABLE, 1);
}

/* May the memory of the other be read, by the kernel's rules? */
static bool may_read(pid_t pid, const void *addr)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { (void *)(uintptr_t)addr, 1 };

	return process_vm_readv(pid, &to, 1, &from, 1, 0) == 1;
}

static void both_ways(struct pair *pair, bool shut)
{
	enum { LEN = 100000 };
	static uint8_t memory[LEN], out[LEN], in[LEN];
	struct {
		pid_t pid;
		const void *addr;
	} self = { getpid(), memory }, other;
	struct region region;
	struct remote remote;
	const char *line;

	prctl(PR_SET_DUMPABLE, !shut);
	pair_exchange(pair->link, &self, &other, sizeof(self));
	/* shut: the other is open; open: the other is shut, or there is nothing to be seen here */
	if (may_read(other.pid, other.addr) != shut)
		_exit(PAIR_SKIP);
	region_open(pair, &region, memory, LEN, FI_REMOTE_READ | FI_REMOTE_WRITE);
	remote = region_exchange(pair, &region);
	for (unsigned int i = 0; i < 50; i++) {
		size_t len = i % 3 ? i * 7 : LEN;

		pattern_fill(out, 0, len, i);
		post(pair,
		     fi_write(pair->a.ep, out, len, NULL, pair->a.peer, remote.addr, remote.key, out));
		pair_done(pair, &pair->a);
		post(pair, fi_read(pair->a.ep, in, len, NULL, pair->a.peer, remote.addr, remote.key, in));
		pair_done(pair, &pair->a);
		must(pattern_is(in, 0, len, i));
	}
	one_error(pair, true, &(struct remote){ remote.addr, 0, remote.key + 1 }, 1000, FI_EKEYREJECTED);
	pair_meet(pair);
	region_close(&region);
	side_close(&pair->a);
	memset(&pair->a, 0, sizeof(pair->a));
	line = counters_end(&pair_counters);
	/* a process that may access the other's memory does so; one that may not sends requests */
	must(shut == (counter(line, "rma_direct_bytes") > 0));
	must(shut == (counter(line, "rma_requests") == 0));
}

static void shut_side(struct pair *pair)
{
	both_ways(pair, true);
}

static void open_side(struct pair *pair)
{
	both_ways(pair, false);
}

#define TWO(how, f, g, label, environment)                                                                \
	ONESIDED(#f label, how, .test.first = f, .test.second = g, .test.want = &onesided_usual,          \
		 .test.env = environment)
#define EVERYWHERE(how, f, g)                                                                             \
	TWO(how, f, g, "", NULL), TWO(how, f, g, " CMA=0", "FI_SHMCMA_CMA=0"),                            \
		TWO(how, f, g, " strict", "FI_SHMCMA_RMA=strict"),                                        \
		TWO(how, f, g, " strict CMA=0", "FI_SHMCMA_RMA=strict FI_SHMCMA_CMA=0")

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENARIO(test_wrong_key),
		SCENARIO(test_bounds),
		SCENARIO(test_too_long),
		SCENARIO(test_injected),
		SCENARIO(test_empty_ranges),
		SCENARIO(test_mixed),
		SCENARIO_PASSIVE(test_wrong_key),
		SCENARIO_MODE(test_wrong_key, 0, FI_VERSION(1, 17)),
		SCENARIO_MODE(test_bounds, 0, FI_VERSION(1, 17)),
		SCENARIO_MODE(test_bounds, FI_MR_BASIC, FI_VERSION(1, 4)),
		EVERYWHERE(pair_both, access_initiator, access_target),
		SCENARIO_ALONE(test_not_there),
		TWO(pair_both, local_fault, local_fault_target, "", NULL),
		EVERYWHERE(pair_both, closed_initiator, closed_target),
		EVERYWHERE(race_both, race_initiator, race_target),
		ALONE(dead_target),
		ALONE_ENV(dead_target, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(dead_target, "FI_SHMCMA_CMA=0"),
		ALONE(dead_while_asked),
		ALONE_ENV(dead_while_asked, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(dead_while_asked, "FI_SHMCMA_CMA=0"),
		ONESIDED("open_side shut_side", pair_both, .test.first = shut_side,
			 .test.second = open_side, .test.before = become_nobody,
			 .test.want = &onesided_usual),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
