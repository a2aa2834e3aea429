/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * osc.c - MPI one-sided: windows, operations and synchronisation, every byte compared.
 *
 * A section is a function; main() lists them. Each has windows of its own. `ctl` carries the barriers and
 * words between ranks. A window's memory has guard bytes on either side of the part that is used, and they
 * are in the window: what is written outside the range named is seen.
 *
 * Everybody's target is the next rank, unless a section says otherwise. Accumulates are compared with a
 * reference written here, over values whose result does not depend on the order.
 *
 * A target may need to call MPI before an operation on it ends (a transport without help of its own), so
 * no section waits for an operation on a rank that waits for something else than MPI.
 */
#include "mpitest.h"

#include <complex.h>
#include <stdbool.h>

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)
#define LARGEST (8 * MIB)

static MPI_Comm comm, ctl;
static int next, last;
static unsigned char *out, *in;

/* ---- windows ---- */

enum memory { CREATED, ALLOCATED, DYNAMIC, MEMORIES };

static const char *const memory_names[MEMORIES] = { "created", "allocated", "dynamic" };

struct window {
	MPI_Win win;
	enum memory memory;
	size_t room;	      /* bytes between the guards */
	unsigned char *whole; /* guard, room, guard; all of it is exposed */
	unsigned char *base;  /* behind the first guard */
	MPI_Aint *at;	      /* DYNAMIC: each rank's `whole` */
	int unit;
};

static void window_open(struct window *w, enum memory memory, size_t room, int unit)
{
	MPI_Aint bytes = (MPI_Aint)(room + 2 * MT_GUARD), mine;

	memset(w, 0, sizeof(*w));
	w->memory = memory;
	w->room = room;
	w->unit = memory == DYNAMIC ? 1 : unit;
	if (memory == ALLOCATED) {
		MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, comm, &w->whole, &w->win);
	} else {
		w->whole = malloc((size_t)bytes);
		MT_CHECK(w->whole, "no memory for %zu bytes", room);
		if (memory == CREATED)
			MPI_Win_create(w->whole, bytes, unit, MPI_INFO_NULL, comm, &w->win);
		else
			MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &w->win);
	}
	if (memory == DYNAMIC) {
		MPI_Win_attach(w->win, w->whole, bytes);
		w->at = malloc((size_t)mt_size * sizeof(*w->at));
		MT_CHECK(w->at, "no memory");
		MPI_Get_address(w->whole, &mine);
		MPI_Allgather(&mine, 1, MPI_AINT, w->at, 1, MPI_AINT, comm);
	}
	w->base = w->whole + MT_GUARD;
	mt_clear(w->base, room);
	MPI_Barrier(ctl);
}

static void window_close(struct window *w)
{
	MPI_Barrier(ctl);
	if (w->memory == DYNAMIC)
		MPI_Win_detach(w->win, w->whole);
	MPI_Win_free(&w->win);
	MT_CHECK(w->win == MPI_WIN_NULL, "a freed window is not MPI_WIN_NULL");
	if (w->memory != ALLOCATED)
		free(w->whole);
	free(w->at);
}

/* The displacement of a byte of rank's room; a multiple of the unit. */
static MPI_Aint there(const struct window *w, int rank, size_t byte)
{
	MPI_Aint at = (MPI_Aint)(byte + MT_GUARD);

	return w->memory == DYNAMIC ? MPI_Aint_add(w->at[rank], at) : at / w->unit;
}

static void put(const struct window *w, const void *from, size_t length, int rank, size_t byte)
{
	MPI_Put(from, (int)length, MPI_BYTE, rank, there(w, rank, byte), (int)length, MPI_BYTE, w->win);
}

static void get(const struct window *w, void *to, size_t length, int rank, size_t byte)
{
	MPI_Get(to, (int)length, MPI_BYTE, rank, there(w, rank, byte), (int)length, MPI_BYTE, w->win);
}

/* Everybody's operations so far are done and seen; inside lock_all. */
static void settle(const struct window *w)
{
	MPI_Win_flush_all(w->win);
	MPI_Win_sync(w->win);
	MPI_Barrier(ctl);
	MPI_Win_sync(w->win);
}

/* ---- one epoch: access to `next`, exposure to `last` ---- */

enum sync { FENCE, PSCW, SHARED, EXCLUSIVE, ALL, SYNCS };

static const char *const sync_names[SYNCS] = { "fence", "post and start", "shared lock", "exclusive lock",
					       "lock of all" };

static MPI_Group group_of(int rank)
{
	MPI_Group all, one;

	MPI_Comm_group(comm, &all);
	MPI_Group_incl(all, 1, &rank, &one);
	MPI_Group_free(&all);
	return one;
}

static void epoch_begin(const struct window *w, enum sync sync)
{
	MPI_Group from, to;

	switch (sync) {
	case FENCE:
		MPI_Win_fence(0, w->win);
		break;
	case PSCW:
		from = group_of(last);
		to = group_of(next);
		MPI_Win_post(from, 0, w->win);
		MPI_Win_start(to, 0, w->win);
		MPI_Group_free(&from);
		MPI_Group_free(&to);
		break;
	case SHARED:
		MPI_Win_lock(MPI_LOCK_SHARED, next, 0, w->win);
		break;
	case EXCLUSIVE:
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, w->win);
		break;
	default:
		MPI_Win_lock_all(0, w->win);
	}
}

/* When this returns, the operations of rank `last` on our window are complete. */
static void epoch_end(const struct window *w, enum sync sync)
{
	switch (sync) {
	case FENCE:
		MPI_Win_fence(0, w->win);
		return;
	case PSCW:
		MPI_Win_complete(w->win);
		MPI_Win_wait(w->win);
		return;
	case SHARED:
	case EXCLUSIVE:
		MPI_Win_unlock(next, w->win);
		break;
	default:
		MPI_Win_unlock_all(w->win);
	}
	MPI_Barrier(ctl);
	/* the window's private copy, where there is one, is made the same by a lock */
	MPI_Win_lock(MPI_LOCK_SHARED, mt_rank, 0, w->win);
	MPI_Win_unlock(mt_rank, w->win);
}

/* ---- every size ---- */

static uint64_t transfer_seed(int from, enum memory memory, enum sync sync, size_t length)
{
	return mt_seed((uint64_t)from, (uint64_t)memory << 8 | (uint64_t)sync, length);
}

static void one_size(const struct window *w, enum sync sync, size_t length)
{
	size_t shift = length % 8;

	mt_fill(out + shift, length, transfer_seed(mt_rank, w->memory, sync, length));
	MPI_Barrier(ctl);
	epoch_begin(w, sync);
	put(w, out + shift, length, next, shift);
	epoch_end(w, sync);
	mt_pattern(__LINE__, w->base + shift, length, transfer_seed(last, w->memory, sync, length));
	mt_untouched(__LINE__, w->whole, w->base + shift, "before what was put");
	mt_untouched(__LINE__, w->base + shift + length, w->base + w->room + MT_GUARD,
		     "behind what was put");

	mt_clear(in, length);
	MPI_Barrier(ctl);
	epoch_begin(w, sync);
	get(w, in, length, next, shift);
	epoch_end(w, sync);
	MT_LANDED(in, length, length, transfer_seed(mt_rank, w->memory, sync, length));
	MPI_Barrier(ctl);
	memset(w->base, MT_FREE_BYTE, length + shift);
}

static void small_sizes(void)
{
	static const size_t lengths[] = {
		0, 1, 3, 8, 64, 255, 1000, 4095, 4096, 4097, 8192, 16385, 65536
	};
	struct window w;
	int memory, sync;
	size_t i;

	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, 65536 + 8, 1);
		for (sync = 0; sync < SYNCS; sync++) {
			if (getenv("MPITEST_VERBOSE") && mt_rank == 0)
				fprintf(stderr, "  %s, %s\n", memory_names[memory], sync_names[sync]);
			for (i = 0; i < MT_COUNT(lengths); i++)
				one_size(&w, (enum sync)sync, lengths[i]);
		}
		window_close(&w);
	}
}

static void large_sizes(void)
{
	static const size_t lengths[] = { 128 * KIB + 1, 512 * KIB - 1, MIB, 3 * MIB + 4093, LARGEST };
	struct window w;
	int memory, sync = 0;
	size_t i;

	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, LARGEST + 8, 1);
		for (i = 0; i < MT_COUNT(lengths); i++)
			one_size(&w, (enum sync)(sync++ % SYNCS), lengths[i]);
		window_close(&w);
	}
}

/* ---- many operations in one epoch, everybody to everybody ---- */

#define STORM_OPS 24
#define STORM_ROOM ((size_t)40 * KIB)

static size_t storm_length(int round, int from, int to, int op)
{
	uint64_t state = mt_seed((uint64_t)round, (uint64_t)from << 16 | (uint64_t)to, (uint64_t)op);
	unsigned kind = mt_random(&state, 8);

	return mt_random(&state, kind == 0 ? (unsigned)STORM_ROOM : kind < 4 ? 4000 : 64);
}

static uint64_t storm_seed(int round, int from, int to, int op)
{
	return mt_seed((uint64_t)from << 32 | (uint64_t)to, (uint64_t)round, (uint64_t)op);
}

/* Where rank `from` puts its operation in everybody's window. */
static size_t storm_at(int from, int op)
{
	return ((size_t)from * STORM_OPS + (size_t)op) * STORM_ROOM;
}

static void storm_epoch(const struct window *w, int round, bool fence, bool begin)
{
	if (fence)
		MPI_Win_fence(begin ? MPI_MODE_NOPRECEDE : MPI_MODE_NOSUCCEED, w->win);
	else if (begin)
		MPI_Win_lock_all(round % 3 ? 0 : MPI_MODE_NOCHECK, w->win);
	else
		MPI_Win_unlock_all(w->win);
	if (!fence)
		MPI_Barrier(ctl);
}

static void storm_check(const struct window *w, int round)
{
	int from, op;

	for (from = 0; from < mt_size; from++)
		for (op = 0; op < STORM_OPS; op++) {
			unsigned char *at = w->base + storm_at(from, op);
			size_t length = storm_length(round, from, mt_rank, op);

			mt_pattern(__LINE__, at, length, storm_seed(round, from, mt_rank, op));
			mt_untouched(__LINE__, at + length, at + STORM_ROOM, "behind what was put");
		}
}

static void storm_round(const struct window *w, unsigned char *buffer, int round)
{
	bool fence = round % 2;
	int to, op;

	memset(w->base, MT_FREE_BYTE, w->room);
	MPI_Barrier(ctl);
	storm_epoch(w, round, fence, true);
	for (op = 0; op < STORM_OPS; op++)
		for (to = 0; to < mt_size; to++) {
			unsigned char *from = buffer + storm_at(to, op);
			size_t length = storm_length(round, mt_rank, to, op);

			mt_fill(from, length, storm_seed(round, mt_rank, to, op));
			put(w, from, length, to, storm_at(mt_rank, op));
		}
	storm_epoch(w, round, fence, false);
	storm_check(w, round);

	memset(buffer, MT_FREE_BYTE, w->room);
	MPI_Barrier(ctl);
	storm_epoch(w, round, fence, true);
	for (op = 0; op < STORM_OPS; op++)
		for (to = 0; to < mt_size; to++)
			get(w, buffer + storm_at(to, op), storm_length(round, mt_rank, to, op), to,
			    storm_at(mt_rank, op));
	storm_epoch(w, round, fence, false);
	for (op = 0; op < STORM_OPS; op++)
		for (to = 0; to < mt_size; to++) {
			unsigned char *at = buffer + storm_at(to, op);
			size_t length = storm_length(round, mt_rank, to, op);

			mt_pattern(__LINE__, at, length, storm_seed(round, mt_rank, to, op));
			mt_untouched(__LINE__, at + length, at + STORM_ROOM, "behind what was got");
		}
	MPI_Barrier(ctl);
}

static void storm(void)
{
	size_t room = (size_t)mt_size * STORM_OPS * STORM_ROOM;
	unsigned char *buffer = malloc(room);
	struct window w;
	int round;

	MT_CHECK(buffer, "no memory");
	for (round = 0; round < 6; round++) {
		window_open(&w, (enum memory)(round % MEMORIES), room, 1);
		storm_round(&w, buffer, round);
		window_close(&w);
	}
	free(buffer);
}

/* ---- flushes ---- */

static void tell(int rank)
{
	MPI_Send(NULL, 0, MPI_BYTE, rank, 1, ctl);
}

static void hear(int rank)
{
	MPI_Recv(NULL, 0, MPI_BYTE, rank, 1, ctl, MPI_STATUS_IGNORE);
}

/* After a flush of the put a word suffices: the epoch stays open. */
static void flush_put(const struct window *w, int round)
{
	size_t length = (size_t)(round * round * 37 % 30000);
	uint64_t seed = mt_seed(1, (uint64_t)round, (uint64_t)mt_rank);

	mt_fill(out, length, seed);
	put(w, out, length, next, 0);
	if (round % 4 >= 2) { /* complete here: the buffer is ours again, the target may not have it yet */
		if (round % 4 == 2)
			MPI_Win_flush_local(next, w->win);
		else
			MPI_Win_flush_local_all(w->win);
		memset(out, 0, length);
	}
	if (round % 2)
		MPI_Win_flush_all(w->win);
	else
		MPI_Win_flush(next, w->win);
	tell(next);
	hear(last);
	MPI_Win_sync(w->win);
	MT_LANDED(w->base, w->room, length, mt_seed(1, (uint64_t)round, (uint64_t)last));

	/* a get is complete here after any flush */
	mt_clear(in, length);
	get(w, in, length, next, 0);
	if (round % 2)
		MPI_Win_flush_local(next, w->win);
	else
		MPI_Win_flush(next, w->win);
	MT_LANDED(in, length, length, seed);
	MPI_Barrier(ctl);
	memset(w->base, MT_FREE_BYTE, length);
	MPI_Win_sync(w->win);
	MPI_Barrier(ctl);
}

static void flushes(void)
{
	struct window w;
	int memory, round;

	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, 30000, 1);
		MPI_Win_lock_all(0, w.win);
		for (round = 0; round < 40; round++)
			flush_put(&w, round);
		MPI_Win_unlock_all(w.win);
		window_close(&w);
	}
}

/* ---- operations with requests ---- */

#define REQUESTS 12
#define REQUEST_ROOM ((size_t)70000)

static size_t request_length(int round, int op)
{
	uint64_t state = mt_seed(5, (uint64_t)round, (uint64_t)op);

	return mt_random(&state, op % 3 ? 2000 : (unsigned)REQUEST_ROOM);
}

static void end_requests(MPI_Request *requests, int count, int round)
{
	int flag = 0, i;

	if (round % 3 == 0) {
		MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	} else if (round % 3 == 1) {
		while (!flag)
			MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE);
	} else {
		for (i = count; i-- > 0;)
			MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
	}
	for (i = 0; i < count; i++)
		MT_CHECK(requests[i] == MPI_REQUEST_NULL, "request %d of %d is left", i, count);
}

static void request_round(const struct window *w, int round)
{
	MPI_Request requests[REQUESTS];
	int i;

	memset(w->base, MT_FREE_BYTE, w->room);
	settle(w);
	for (i = 0; i < REQUESTS; i++) {
		size_t length = request_length(round, i), at = (size_t)i * REQUEST_ROOM;

		mt_fill(out + at, length, mt_seed((uint64_t)mt_rank, (uint64_t)round, (uint64_t)i));
		MPI_Rput(out + at, (int)length, MPI_BYTE, next, there(w, next, at), (int)length, MPI_BYTE,
			 w->win, &requests[i]);
	}
	end_requests(requests, REQUESTS, round);
	memset(out, 0, REQUESTS * REQUEST_ROOM);
	settle(w);
	for (i = 0; i < REQUESTS; i++) {
		size_t length = request_length(round, i);
		unsigned char *at = w->base + (size_t)i * REQUEST_ROOM;

		mt_pattern(__LINE__, at, length, mt_seed((uint64_t)last, (uint64_t)round, (uint64_t)i));
		mt_untouched(__LINE__, at + length, at + REQUEST_ROOM, "behind what was put");
	}
	memset(in, MT_FREE_BYTE, REQUESTS * REQUEST_ROOM);
	for (i = 0; i < REQUESTS; i++) {
		size_t length = request_length(round, i), at = (size_t)i * REQUEST_ROOM;

		MPI_Rget(in + at, (int)length, MPI_BYTE, next, there(w, next, at), (int)length, MPI_BYTE,
			 w->win, &requests[i]);
	}
	end_requests(requests, REQUESTS, round + 1);
	for (i = 0; i < REQUESTS; i++) {
		size_t length = request_length(round, i);
		unsigned char *at = in + (size_t)i * REQUEST_ROOM;

		mt_pattern(__LINE__, at, length, mt_seed((uint64_t)mt_rank, (uint64_t)round, (uint64_t)i));
		mt_untouched(__LINE__, at + length, at + REQUEST_ROOM, "behind what was got");
	}
	settle(w);
}

/* Raccumulate and Rget_accumulate by everybody to everybody: a sum, and each former value a sum so far. */
static void request_sums(const struct window *w, int round)
{
	enum { COUNT = 300 };
	long *mine = (long *)w->base, ones[COUNT], former[COUNT];
	MPI_Request requests[64];
	int i, k;

	for (i = 0; i < COUNT; i++)
		ones[i] = i + 1;
	memset(w->base, 0, sizeof(ones));
	settle(w);
	for (i = 0; i < mt_size && i < 32; i++) {
		int to = (mt_rank + i) % mt_size;

		MPI_Raccumulate(ones, COUNT, MPI_LONG, to, there(w, to, 0), COUNT, MPI_LONG, MPI_SUM,
				w->win, &requests[i]);
	}
	end_requests(requests, i, round);
	MPI_Rget_accumulate(ones, COUNT, MPI_LONG, former, COUNT, MPI_LONG, next, there(w, next, 0), COUNT,
			    MPI_LONG, MPI_SUM, w->win, &requests[0]);
	end_requests(requests, 1, round);
	for (k = 0; k < COUNT; k++)
		MT_CHECK(former[k] % (k + 1) == 0 && former[k] >= 0 &&
				 former[k] <= (long)(k + 1) * mt_size,
			 "element %d was %ld, no sum of %d", k, former[k], k + 1);
	settle(w);
	for (k = 0; k < COUNT; k++)
		MT_CHECK(mine[k] == (long)(k + 1) * (mt_size + 1), "element %d is %ld, not %ld", k,
			 mine[k], (long)(k + 1) * (mt_size + 1));
	settle(w);
}

static void request_operations(void)
{
	struct window w;
	int memory, round;

	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, REQUESTS * REQUEST_ROOM, 1);
		MPI_Win_lock_all(0, w.win);
		for (round = 0; round < 3; round++) {
			request_round(&w, round);
			request_sums(&w, round);
		}
		MPI_Win_unlock_all(w.win);
		window_close(&w);
	}
}

/* ---- accumulate: the reference ---- */

enum op { MAX, MIN, SUM, PROD, LAND, LOR, LXOR, BAND, BOR, BXOR, MAXLOC, MINLOC, REPLACE, OPS };

#define ARITHMETIC (1u << MAX | 1u << MIN | 1u << SUM | 1u << PROD | 1u << REPLACE)
#define LOGICAL (1u << LAND | 1u << LOR | 1u << LXOR | 1u << REPLACE)
#define BITWISE (1u << BAND | 1u << BOR | 1u << BXOR | 1u << REPLACE)
#define LOCATING (1u << MAXLOC | 1u << MINLOC | 1u << REPLACE)

static const struct {
	MPI_Op op;
	const char *name;
} ops[OPS] = {
	[MAX] = { (MPI_Op)&ompi_mpi_op_max, "MAX" },
	[MIN] = { (MPI_Op)&ompi_mpi_op_min, "MIN" },
	[SUM] = { (MPI_Op)&ompi_mpi_op_sum, "SUM" },
	[PROD] = { (MPI_Op)&ompi_mpi_op_prod, "PROD" },
	[LAND] = { (MPI_Op)&ompi_mpi_op_land, "LAND" },
	[LOR] = { (MPI_Op)&ompi_mpi_op_lor, "LOR" },
	[LXOR] = { (MPI_Op)&ompi_mpi_op_lxor, "LXOR" },
	[BAND] = { (MPI_Op)&ompi_mpi_op_band, "BAND" },
	[BOR] = { (MPI_Op)&ompi_mpi_op_bor, "BOR" },
	[BXOR] = { (MPI_Op)&ompi_mpi_op_bxor, "BXOR" },
	[MAXLOC] = { (MPI_Op)&ompi_mpi_op_maxloc, "MAXLOC" },
	[MINLOC] = { (MPI_Op)&ompi_mpi_op_minloc, "MINLOC" },
	[REPLACE] = { (MPI_Op)&ompi_mpi_op_replace, "REPLACE" },
};

/*
 * A type: value number n (small, so that all results are exact in any order), an operation on one element,
 * and whether two are the same.
 */
struct type {
	MPI_Datatype type;
	const char *name;
	size_t size;
	unsigned ops;
	void (*set)(void *at, unsigned n);
	void (*apply)(enum op op, void *to, const void *from);
	bool (*same)(const void *a, const void *b);
};

#define SAME(name, ctype)                                                                                 \
	static bool same_##name(const void *a, const void *b)                                             \
	{                                                                                                 \
		ctype x, y;                                                                               \
                                                                                                          \
		memcpy(&x, a, sizeof(x));                                                                 \
		memcpy(&y, b, sizeof(y));                                                                 \
		return x == y;                                                                            \
	}
#define SET(name, ctype, value)                                                                           \
	static void set_##name(void *at, unsigned n)                                                      \
	{                                                                                                 \
		ctype x = (ctype)(value);                                                                 \
                                                                                                          \
		memcpy(at, &x, sizeof(x));                                                                \
	}
#define APPLY(name, ctype, cases)                                                                         \
	static void apply_##name(enum op op, void *to, const void *from)                                  \
	{                                                                                                 \
		ctype a, b;                                                                               \
                                                                                                          \
		memcpy(&a, to, sizeof(a));                                                                \
		memcpy(&b, from, sizeof(b));                                                              \
		switch (op) {                                                                             \
			cases;                                                                            \
		case REPLACE:                                                                             \
			a = b;                                                                            \
			break;                                                                            \
		default:                                                                                  \
			mt_fail(__LINE__, "no such operation for this type");                             \
		}                                                                                         \
		memcpy(to, &a, sizeof(a));                                                                \
	}
#define ONE(code, value)                                                                                  \
	case code:                                                                                        \
		a = value;                                                                                \
		break

#define ORDERED(ctype)                                                                                    \
	ONE(MAX, a > b ? a : b);                                                                          \
	ONE(MIN, a < b ? a : b);                                                                          \
	ONE(SUM, (ctype)(a + b));                                                                         \
	ONE(PROD, (ctype)(a * b))
#define TRUTHS                                                                                            \
	ONE(LAND, a &&b);                                                                                 \
	ONE(LOR, a || b);                                                                                 \
	ONE(LXOR, !a != !b)
#define BITS(ctype)                                                                                       \
	ONE(BAND, (ctype)(a & b));                                                                        \
	ONE(BOR, (ctype)(a | b));                                                                         \
	ONE(BXOR, (ctype)(a ^ b))

#define INTEGER(name, ctype)                                                                              \
	SAME(name, ctype)                                                                                 \
	SET(name, ctype, n * 2654435761u >> 28)                                                           \
	APPLY(name, ctype, ORDERED(ctype); TRUTHS; BITS(ctype))
#define FLOATING(name, ctype)                                                                             \
	SAME(name, ctype)                                                                                 \
	SET(name, ctype, 1 + (n * 2654435761u >> 29))                                                     \
	APPLY(name, ctype, ORDERED(ctype))
#define COMPLEX(name, ctype)                                                                              \
	SAME(name, ctype)                                                                                 \
	SET(name, ctype, 1 + (n * 2654435761u >> 30) + (n % 3) * I)                                       \
	APPLY(name, ctype, ONE(SUM, a + b); ONE(PROD, a * b))

/* clang-format off */
INTEGER(schar, signed char)
INTEGER(uchar, unsigned char)
INTEGER(short, short)
INTEGER(ushort, unsigned short)
INTEGER(int, int)
INTEGER(unsigned, unsigned)
INTEGER(long, long)
INTEGER(ulong, unsigned long)
INTEGER(llong, long long)
INTEGER(ullong, unsigned long long)
FLOATING(float, float)
FLOATING(double, double)
FLOATING(ldouble, long double)
COMPLEX(fcomplex, float complex)
COMPLEX(dcomplex, double complex)
SAME(bool, bool)
SET(bool, bool, n * 2654435761u >> 31)
APPLY(bool, bool, TRUTHS)
/* clang-format on */

#define PAIR(name, ctype)                                                                                 \
	struct pair_##name {                                                                              \
		ctype value;                                                                              \
		int index;                                                                                \
	};                                                                                                \
	static bool same_pair_##name(const void *a, const void *b)                                        \
	{                                                                                                 \
		struct pair_##name x, y;                                                                  \
                                                                                                          \
		memcpy(&x, a, sizeof(x));                                                                 \
		memcpy(&y, b, sizeof(y));                                                                 \
		return x.value == y.value && x.index == y.index;                                          \
	}                                                                                                 \
	static void set_pair_##name(void *at, unsigned n)                                                 \
	{                                                                                                 \
		struct pair_##name x;                                                                     \
                                                                                                          \
		memset(&x, 0, sizeof(x));                                                                 \
		x.value = (ctype)(n * 2654435761u >> 30);                                                 \
		x.index = (int)(n * 40503u >> 3 & 0xff);                                                  \
		memcpy(at, &x, sizeof(x));                                                                \
	}                                                                                                 \
	static void apply_pair_##name(enum op op, void *to, const void *from)                             \
	{                                                                                                 \
		struct pair_##name a, b;                                                                  \
                                                                                                          \
		memcpy(&a, to, sizeof(a));                                                                \
		memcpy(&b, from, sizeof(b));                                                              \
		if (op == REPLACE || (op == MAXLOC && b.value > a.value) ||                               \
		    (op == MINLOC && b.value < a.value) || (b.value == a.value && b.index < a.index))     \
			a = b;                                                                            \
		memcpy(to, &a, sizeof(a));                                                                \
	}

PAIR(float, float)
PAIR(double, double)
PAIR(long, long)
PAIR(int, int)
PAIR(short, short)

#define ANY_INTEGER (ARITHMETIC | LOGICAL | BITWISE)
#define TYPE(object, name, ctype, allowed)                                                                \
	{                                                                                                 \
		(MPI_Datatype) & ompi_mpi_##object, #object, sizeof(ctype), allowed, set_##name,          \
			apply_##name, same_##name                                                         \
	}

static const struct type types[] = {
	TYPE(signed_char, schar, signed char, ANY_INTEGER),
	TYPE(unsigned_char, uchar, unsigned char, ANY_INTEGER),
	TYPE(short, short, short, ANY_INTEGER),
	TYPE(unsigned_short, ushort, unsigned short, ANY_INTEGER),
	TYPE(int, int, int, ANY_INTEGER),
	TYPE(unsigned, unsigned, unsigned, ANY_INTEGER),
	TYPE(long, long, long, ANY_INTEGER),
	TYPE(unsigned_long, ulong, unsigned long, ANY_INTEGER),
	TYPE(long_long_int, llong, long long, ANY_INTEGER),
	TYPE(unsigned_long_long, ullong, unsigned long long, ANY_INTEGER),
	TYPE(byte, uchar, unsigned char, BITWISE),
	TYPE(aint, long, MPI_Aint, ARITHMETIC),
	TYPE(float, float, float, ARITHMETIC),
	TYPE(double, double, double, ARITHMETIC),
	TYPE(long_double, ldouble, long double, ARITHMETIC),
	TYPE(c_float_complex, fcomplex, float complex, 1u << SUM | 1u << PROD | 1u << REPLACE),
	TYPE(c_double_complex, dcomplex, double complex, 1u << SUM | 1u << PROD | 1u << REPLACE),
	TYPE(c_bool, bool, bool, LOGICAL),
	TYPE(float_int, pair_float, struct pair_float, LOCATING),
	TYPE(double_int, pair_double, struct pair_double, LOCATING),
	TYPE(long_int, pair_long, struct pair_long, LOCATING),
	TYPE(2int, pair_int, struct pair_int, LOCATING),
	TYPE(short_int, pair_short, struct pair_short, LOCATING),
};

/* ---- accumulate ---- */

#define ELEMENTS 97 /* of the many; one more stands apart for single elements */

struct job {
	const struct window *w;
	const struct type *type;
	enum op op;
	unsigned salt;
};

static unsigned value_number(const struct job *job, int from, int to, unsigned at)
{
	return (unsigned)mt_seed(job->salt, (uint64_t)from << 8 | (uint64_t)to, at);
}

static void set_all(const struct job *job, unsigned char *at, int from, int to)
{
	unsigned i;

	for (i = 0; i <= ELEMENTS; i++)
		job->type->set(at + i * job->type->size, value_number(job, from, to, i));
}

static void apply_all(const struct job *job, unsigned char *at, int from, int to, unsigned elements)
{
	unsigned char operand[sizeof(long double) * 2];
	unsigned i;

	for (i = 0; i < elements; i++) {
		job->type->set(operand, value_number(job, from, to, i));
		job->type->apply(job->op, at + i * job->type->size, operand);
	}
}

static void compare(int line, const struct job *job, const unsigned char *got, const unsigned char *want,
		    unsigned elements)
{
	unsigned i;

	mt_checks++;
	for (i = 0; i < elements; i++)
		if (!job->type->same(got + i * job->type->size, want + i * job->type->size))
			mt_fail(line, "%s of %s: element %u is wrong", ops[job->op].name, job->type->name,
				i);
}

/*
 * Open MPI 4.1 itself cannot do some accumulates. osc/pt2pt knows no pairs of value and index. osc/rdma writes behind
 * its buffer for types with holes, takes complex numbers of 8 bytes for integers, and hands operations on one
 * element to transports that do not have them (btl/ofi aborts, others do nothing). mpirun puts the component that the
 * user asked for into the environment.
 */
static bool component_is(const char *name)
{
	const char *component = getenv("OMPI_MCA_osc");

	return component && strcmp(component, name) == 0;
}

static bool can_accumulate(const struct type *type)
{
	int bytes;

	MPI_Type_size(type->type, &bytes);
	if (component_is("rdma"))
		return (size_t)bytes == type->size;
	return !(type->ops & 1u << MINLOC) || !component_is("pt2pt");
}

static bool can_fetch(const struct job *job)
{
	if (!component_is("rdma"))
		return true;
	return job->type->type != MPI_C_FLOAT_COMPLEX &&
	       (1u << job->op & (1u << SUM | 1u << PROD | 1u << MINLOC | 1u << MAXLOC | 1u << REPLACE));
}

/* osc/rdma gives the transport no key to swap longs in memory that it can reach itself: a crash. */
static bool can_swap(enum memory memory, int rank)
{
	return (memory != ALLOCATED && rank != mt_rank) || !component_is("rdma");
}

/* The initial contents of a rank's window. */
#define INITIAL 200

static void accumulate_begin(const struct job *job, unsigned char *expected)
{
	set_all(job, job->w->base, INITIAL, mt_rank);
	set_all(job, expected, INITIAL, mt_rank);
	settle(job->w);
}

static void accumulate_end(const struct job *job, const unsigned char *expected)
{
	settle(job->w);
	compare(__LINE__, job, job->w->base, expected, ELEMENTS + 1);
	settle(job->w);
}

/* From everybody onto everybody; replacing, from one only. */
static void accumulate_to_all(const struct job *job, unsigned char *operands, unsigned char *expected)
{
	bool replace = job->op == REPLACE;
	size_t row = (ELEMENTS + 1) * job->type->size;
	int i;

	accumulate_begin(job, expected);
	for (i = 0; i < mt_size; i++) {
		if (replace && i != next)
			continue;
		set_all(job, operands + (size_t)i * row, mt_rank, i);
		MPI_Accumulate(operands + (size_t)i * row, ELEMENTS, job->type->type, i,
			       there(job->w, i, 0), ELEMENTS, job->type->type, ops[job->op].op,
			       job->w->win);
	}
	for (i = 0; i < mt_size; i++)
		if (!replace || i == last)
			apply_all(job, expected, i, mt_rank, ELEMENTS);
	accumulate_end(job, expected);
}

/* The single element behind the others; `held` is what the next rank's window holds, `expected` ours. */
static void fetch_and_op(const struct job *job, unsigned char *operands, unsigned char *held,
			 unsigned char *expected)
{
	size_t one = ELEMENTS * job->type->size;
	unsigned char former[2 * sizeof(long double)];

	MPI_Fetch_and_op(operands + one, former, job->type->type, next, there(job->w, next, one),
			 ops[job->op].op, job->w->win);
	MPI_Win_flush(next, job->w->win);
	MT_CHECK(job->type->same(former, held + one), "fetch_and_op, %s of %s: the former value is wrong",
		 ops[job->op].name, job->type->name);
	job->type->apply(job->op, held + one, operands + one);
	MPI_Fetch_and_op(NULL, former, job->type->type, next, there(job->w, next, one), MPI_NO_OP,
			 job->w->win);
	MPI_Win_flush(next, job->w->win);
	MT_CHECK(job->type->same(former, held + one), "fetch_and_op, %s of %s: the new value is wrong",
		 ops[job->op].name, job->type->name);
	set_all(job, operands, last, mt_rank);
	job->type->apply(job->op, expected + one, operands + one);
}

/* A get-accumulate returns the content of the next rank's window from before the operation. */
static void get_accumulate(const struct job *job, unsigned char *operands, unsigned char *expected)
{
	unsigned char former[(ELEMENTS + 1) * 2 * sizeof(long double)];
	unsigned char held[(ELEMENTS + 1) * 2 * sizeof(long double)];

	accumulate_begin(job, expected);
	set_all(job, operands, mt_rank, next);
	set_all(job, held, INITIAL, next);
	memset(former, 0, sizeof(former));
	MPI_Get_accumulate(operands, ELEMENTS, job->type->type, former, ELEMENTS, job->type->type, next,
			   there(job->w, next, 0), ELEMENTS, job->type->type, ops[job->op].op,
			   job->w->win);
	MPI_Win_flush(next, job->w->win);
	compare(__LINE__, job, former, held, ELEMENTS);
	apply_all(job, held, mt_rank, next, ELEMENTS);
	apply_all(job, expected, last, mt_rank, ELEMENTS);
	/* without an operation: an atomic read */
	memset(former, 0, sizeof(former));
	MPI_Get_accumulate(NULL, 0, job->type->type, former, ELEMENTS, job->type->type, next,
			   there(job->w, next, 0), ELEMENTS, job->type->type, MPI_NO_OP, job->w->win);
	MPI_Win_flush_local(next, job->w->win);
	compare(__LINE__, job, former, held, ELEMENTS);

	if (can_fetch(job))
		fetch_and_op(job, operands, held, expected);
	accumulate_end(job, expected);
}

static void accumulates(void)
{
	size_t row = (ELEMENTS + 1) * 2 * sizeof(long double);
	unsigned char *operands = malloc(row * (size_t)mt_size), *expected = malloc(row);
	struct window w;
	size_t t;
	int op;

	MT_CHECK(operands && expected, "no memory");
	window_open(&w, CREATED, row, 1);
	MPI_Win_lock_all(0, w.win);
	for (t = 0; t < MT_COUNT(types); t++)
		for (op = 0; op < OPS; op++) {
			struct job job = { &w, &types[t], (enum op)op,
					   (unsigned)(t * OPS) + (unsigned)op };

			if (!(types[t].ops & 1u << op) || !can_accumulate(&types[t]))
				continue;
			accumulate_to_all(&job, operands, expected);
			get_accumulate(&job, operands, expected);
		}
	MPI_Win_unlock_all(w.win);
	window_close(&w);
	free(operands);
	free(expected);
}

/* Sums of many elements, in each kind of window and epoch. */
static void large_accumulates(void)
{
	enum { COUNT = 400000 };
	int *operand = malloc(COUNT * sizeof(int)), *mine, memory, sync, i;
	struct window w;

	MT_CHECK(operand, "no memory");
	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, COUNT * sizeof(int), 1);
		mine = (int *)w.base;
		for (sync = memory; sync < SYNCS; sync += 2) {
			for (i = 0; i < COUNT; i++) {
				mine[i] = i;
				operand[i] = mt_rank + 7 * i;
			}
			MPI_Barrier(ctl);
			epoch_begin(&w, (enum sync)sync);
			MPI_Accumulate(operand, COUNT, MPI_INT, next, there(&w, next, 0), COUNT, MPI_INT,
				       MPI_SUM, w.win);
			epoch_end(&w, (enum sync)sync);
			mt_checks++;
			for (i = 0; i < COUNT; i++)
				if (mine[i] != last + 8 * i)
					mt_fail(__LINE__, "%s: element %d is %d, not %d", sync_names[sync],
						i, mine[i], last + 8 * i);
			MPI_Barrier(ctl);
		}
		window_close(&w);
	}
	free(operand);
}

/* ---- compare and swap ---- */

#define SWAP(name, ctype, datatype)                                                                       \
	static void swap_##name(const struct window *w)                                                   \
	{                                                                                                 \
		ctype *mine = (ctype *)w->base, right, wrong, fresh, former = 0, i;                       \
                                                                                                          \
		for (i = 0; i < 10; i++) {                                                                \
			mine[0] = (ctype)(mt_rank + i);                                                   \
			mine[1] = mine[2] = (ctype)77;                                                    \
			settle(w);                                                                        \
			right = (ctype)(next + i);                                                        \
			wrong = (ctype)(next + i + 1);                                                    \
			fresh = (ctype)(100 + mt_rank);                                                   \
			MPI_Compare_and_swap(&fresh, &wrong, &former, datatype, next, there(w, next, 0),  \
					     w->win);                                                     \
			MPI_Win_flush(next, w->win);                                                      \
			MT_CHECK(former == right, #name ": the former value is wrong");                   \
			former = 0;                                                                       \
			MPI_Compare_and_swap(&fresh, &right, &former, datatype, next, there(w, next, 0),  \
					     w->win);                                                     \
			MPI_Win_flush(next, w->win);                                                      \
			MT_CHECK(former == right, #name ": the former value is wrong");                   \
			settle(w);                                                                        \
			MT_CHECK(mine[0] == (ctype)(100 + last), #name " was not swapped");               \
			MT_CHECK(mine[1] == 77 && mine[2] == 77, #name ": neighbours were overwritten");  \
			settle(w);                                                                        \
		}                                                                                         \
	}

/* clang-format off */
SWAP(schar, signed char, MPI_SIGNED_CHAR)
SWAP(byte, unsigned char, MPI_BYTE)
SWAP(short, short, MPI_SHORT)
SWAP(int, int, MPI_INT)
SWAP(unsigned, unsigned, MPI_UNSIGNED)
SWAP(long, long, MPI_LONG)
SWAP(ulong, unsigned long, MPI_UNSIGNED_LONG)
SWAP(int64, int64_t, MPI_INT64_T)
/* clang-format on */

static void swaps(void)
{
	struct window w;
	int memory;

	for (memory = 0; memory < MEMORIES; memory++) {
		if (!can_swap((enum memory)memory, next))
			continue;
		window_open(&w, (enum memory)memory, 64, 1);
		MPI_Win_lock_all(0, w.win);
		swap_schar(&w);
		swap_byte(&w);
		swap_short(&w);
		swap_int(&w);
		swap_unsigned(&w);
		swap_long(&w);
		swap_ulong(&w);
		swap_int64(&w);
		MPI_Win_unlock_all(w.win);
		window_close(&w);
	}
}

/* ---- contention ---- */

#define TURNS 120

/* Everybody's tickets together are 0, 1, 2 ... each once; -1 is none. */
static void check_tickets(const long *tickets)
{
	long all = (long)TURNS * mt_size, given = 0, i;
	long *gathered = malloc((size_t)all * sizeof(long));
	char *seen = calloc((size_t)all, 1);

	MT_CHECK(gathered && seen, "no memory");
	MPI_Gather(tickets, TURNS, MPI_LONG, gathered, TURNS, MPI_LONG, 0, ctl);
	for (i = 0; mt_rank == 0 && i < all; i++) {
		if (gathered[i] == -1)
			continue;
		given++;
		MT_CHECK(gathered[i] >= 0 && gathered[i] < all, "ticket %ld of %ld", gathered[i], all);
		MT_CHECK(!seen[gathered[i]]++, "ticket %ld was given twice", gathered[i]);
	}
	for (i = 0; i < given; i++)
		MT_CHECK(seen[i], "ticket %ld was not given", i);
	free(gathered);
	free(seen);
}

static void count_by_fetching(const struct window *w)
{
	long tickets[TURNS], one = 1;
	int i;

	for (i = 0; i < TURNS; i++) {
		MPI_Fetch_and_op(&one, &tickets[i], MPI_LONG, 0, there(w, 0, 0), MPI_SUM, w->win);
		MPI_Win_flush(0, w->win);
	}
	check_tickets(tickets);
}

static void count_by_swapping(const struct window *w)
{
	long tickets[TURNS], guess = 0, former, fresh;
	int i;

	for (i = 0; i < TURNS; i++)
		tickets[i] = -1;
	for (i = 0; i < TURNS && can_swap(w->memory, 0); i++)
		for (;; guess = former) {
			fresh = guess + 1;
			MPI_Compare_and_swap(&fresh, &guess, &former, MPI_LONG, 0, there(w, 0, 8), w->win);
			MPI_Win_flush(0, w->win);
			if (former != guess)
				continue;
			tickets[i] = guess;
			guess = fresh;
			break;
		}
	check_tickets(tickets);
}

/* So many swaps all have made on rank 0, asked there. */
static long swapped(const struct window *w)
{
	if (can_swap(w->memory, 0))
		return (long)TURNS * mt_size;
	return w->memory == ALLOCATED ? 0 : (long)TURNS * (mt_size - 1);
}

/* Nothing atomic but the lock. */
static void count_under_lock(const struct window *w)
{
	long tickets[TURNS], value;
	int i;

	for (i = 0; i < TURNS; i++) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, w->win);
		MPI_Get(&value, 1, MPI_LONG, 0, there(w, 0, 16), 1, MPI_LONG, w->win);
		MPI_Win_flush(0, w->win);
		tickets[i] = value++;
		MPI_Put(&value, 1, MPI_LONG, 0, there(w, 0, 16), 1, MPI_LONG, w->win);
		MPI_Win_unlock(0, w->win);
	}
	check_tickets(tickets);
}

/* Everybody adds to a vector on everybody, some without waiting in between. */
static void add_vectors(const struct window *w)
{
	enum { COUNT = 64 };
	long ones[COUNT], *mine = (long *)(w->base + 64);
	int i, to;

	for (i = 0; i < COUNT; i++)
		ones[i] = 1;
	for (i = 0; i < TURNS; i++) {
		for (to = 0; to < mt_size; to++)
			MPI_Accumulate(ones, COUNT, MPI_LONG, to, there(w, to, 64), COUNT, MPI_LONG,
				       MPI_SUM, w->win);
		if (i % 8 == 0)
			MPI_Win_flush_all(w->win);
	}
	settle(w);
	for (i = 0; i < COUNT; i++)
		MT_CHECK(mine[i] == (long)TURNS * mt_size, "element %d is %ld of %ld", i, mine[i],
			 (long)TURNS * mt_size);
}

static void contention(void)
{
	struct window w;
	int memory;

	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, 64 + 64 * sizeof(long), 1);
		memset(w.base, 0, w.room);
		MPI_Barrier(ctl);
		MPI_Win_lock_all(0, w.win);
		settle(&w);
		count_by_fetching(&w);
		count_by_swapping(&w);
		add_vectors(&w);
		MPI_Win_unlock_all(w.win);
		MPI_Barrier(ctl);
		count_under_lock(&w);
		MPI_Barrier(ctl);
		MPI_Win_lock(MPI_LOCK_SHARED, mt_rank, 0, w.win);
		MT_CHECK(mt_rank || ((long *)w.base)[0] == (long)TURNS * mt_size, "the first count");
		MT_CHECK(mt_rank || ((long *)w.base)[1] == swapped(&w), "the second count");
		MT_CHECK(mt_rank || ((long *)w.base)[2] == (long)TURNS * mt_size, "the third count");
		MPI_Win_unlock(mt_rank, w.win);
		window_close(&w);
	}
}

/* ---- derived datatypes ---- */

#define ROWS 60
#define COLUMNS 40

struct layout {
	const char *name;
	MPI_Datatype type;
	int elements; /* ints in one */
};

/* The ints of a matrix of ROWS by COLUMNS that a layout names, in its order. */
static int layout_at(const char *name, int i)
{
	if (strcmp(name, "column") == 0)
		return i * COLUMNS + 3;
	if (strcmp(name, "blocks") == 0)
		return i / 5 * 11 + i % 5;
	if (strcmp(name, "indexed") == 0)
		return i / 3 * 17 + i % 3 + (i / 3 % 2 ? 4 : 0);
	if (strcmp(name, "subarray") == 0)
		return (5 + i / 8) * COLUMNS + 20 + i % 8;
	return i;
}

static void make_layouts(struct layout *layouts)
{
	int lengths[20], places[20], sizes[2] = { ROWS, COLUMNS }, part[2] = { 15, 8 },
				     from[2] = { 5, 20 };
	int i;

	layouts[0] = (struct layout){ "plain", MPI_DATATYPE_NULL, 60 };
	MPI_Type_contiguous(60, MPI_INT, &layouts[0].type);
	layouts[1] = (struct layout){ "column", MPI_DATATYPE_NULL, 60 };
	MPI_Type_vector(60, 1, COLUMNS, MPI_INT, &layouts[1].type);
	/* a vector starts at its first element: the third column by a displacement */
	for (i = 0; i < 20; i++) {
		lengths[i] = 3;
		places[i] = i * 17 + (i % 2 ? 4 : 0);
	}
	layouts[2] = (struct layout){ "blocks", MPI_DATATYPE_NULL, 60 };
	MPI_Type_vector(12, 5, 11, MPI_INT, &layouts[2].type);
	layouts[3] = (struct layout){ "indexed", MPI_DATATYPE_NULL, 60 };
	MPI_Type_indexed(20, lengths, places, MPI_INT, &layouts[3].type);
	layouts[4] = (struct layout){ "subarray", MPI_DATATYPE_NULL, 120 };
	MPI_Type_create_subarray(2, sizes, part, from, MPI_ORDER_C, MPI_INT, &layouts[4].type);
	for (i = 0; i < 5; i++)
		MPI_Type_commit(&layouts[i].type);
}

/* Two of the smaller fill a subarray; others are alike. */
static int fits(const struct layout *a, const struct layout *b)
{
	return a->elements == b->elements;
}

static size_t first_int(const struct layout *l)
{
	return strcmp(l->name, "column") == 0 ? 3 : 0;
}

/* One operation from layout `a` here to layout `b` there, then back by a get. */
static void move_layouts(const struct window *w, const struct layout *a, const struct layout *b, bool add)
{
	int *matrix = (int *)w->base, local[ROWS * COLUMNS], back[ROWS * COLUMNS], want[ROWS * COLUMNS], i;
	MPI_Aint at = there(w, next, first_int(b) * sizeof(int));

	for (i = 0; i < ROWS * COLUMNS; i++) {
		matrix[i] = want[i] = -i;
		local[i] = 100000 * (mt_rank + 1) + i;
		back[i] = -1;
	}
	settle(w);
	if (add)
		MPI_Accumulate(local + first_int(a), 1, a->type, next, at, 1, b->type, MPI_SUM, w->win);
	else
		MPI_Put(local + first_int(a), 1, a->type, next, at, 1, b->type, w->win);
	settle(w);
	for (i = 0; i < a->elements; i++) {
		int value = 100000 * (last + 1) + layout_at(a->name, i),
		    *to = &want[layout_at(b->name, i)];

		*to = add ? *to + value : value;
	}
	mt_checks++;
	for (i = 0; i < ROWS * COLUMNS; i++)
		if (matrix[i] != want[i])
			mt_fail(__LINE__, "%s to %s: element %d is %d, not %d", a->name, b->name, i,
				matrix[i], want[i]);
	MPI_Get(back + first_int(a), 1, a->type, next, at, 1, b->type, w->win);
	MPI_Win_flush(next, w->win);
	for (i = 0; i < ROWS * COLUMNS; i++)
		want[i] = -1;
	for (i = 0; i < a->elements; i++) {
		int value = local[layout_at(a->name, i)];

		want[layout_at(a->name, i)] = add ? value - layout_at(b->name, i) : value;
	}
	mt_checks++;
	for (i = 0; i < ROWS * COLUMNS; i++)
		if (back[i] != want[i])
			mt_fail(__LINE__, "%s from %s: element %d is %d, not %d", a->name, b->name, i,
				back[i], want[i]);
	settle(w);
}

/* A structure with a hole, whose hole must stay as it is. */
static void move_structures(const struct window *w)
{
	struct item {
		char letter;
		int hole;
		double number;
	} items[50], *mine = (struct item *)w->base;
	int lengths[2] = { 1, 1 }, i;
	MPI_Aint places[2] = { offsetof(struct item, letter), offsetof(struct item, number) };
	MPI_Datatype parts[2] = { MPI_CHAR, MPI_DOUBLE }, bare, type;

	MPI_Type_create_struct(2, lengths, places, parts, &bare);
	MPI_Type_create_resized(bare, 0, sizeof(struct item), &type);
	MPI_Type_commit(&type);
	for (i = 0; i < 50; i++) {
		items[i] = (struct item){ (char)(i + mt_rank), 1, i * 0.5 + mt_rank };
		mine[i] = (struct item){ 0, 4711, 0 };
	}
	settle(w);
	MPI_Put(items, 50, type, next, there(w, next, 0), 50, type, w->win);
	settle(w);
	for (i = 0; i < 50; i++)
		MT_CHECK(mine[i].letter == (char)(i + last) && mine[i].hole == 4711 &&
				 mine[i].number == i * 0.5 + last,
			 "structure %d is wrong", i);
	settle(w);
	MPI_Type_free(&type);
	MPI_Type_free(&bare);
}

static void derived_types(void)
{
	struct layout layouts[5];
	struct window w;
	int memory, a, b;

	make_layouts(layouts);
	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, ROWS * COLUMNS * sizeof(int), 1);
		MPI_Win_lock_all(0, w.win);
		for (a = 0; a < 5; a++)
			for (b = 0; b < 5; b++)
				if (fits(&layouts[a], &layouts[b])) {
					move_layouts(&w, &layouts[a], &layouts[b], false);
					move_layouts(&w, &layouts[a], &layouts[b], true);
				}
		move_structures(&w);
		MPI_Win_unlock_all(w.win);
		window_close(&w);
	}
	for (a = 0; a < 5; a++)
		MPI_Type_free(&layouts[a].type);
}

/* ---- displacement units ---- */

static void units(void)
{
	static const int sizes[] = { 1, 2, 4, 8, 32, 64 };
	struct window w;
	int memory, k;
	size_t i;

	for (memory = 0; memory < DYNAMIC; memory++)
		for (i = 0; i < MT_COUNT(sizes); i++) {
			/* each rank another: the target's counts */
			int mine = sizes[(i + (size_t)mt_rank) % MT_COUNT(sizes)];
			int theirs = sizes[(i + (size_t)next) % MT_COUNT(sizes)];

			window_open(&w, (enum memory)memory, 4096, mine);
			for (k = 0; k < 64; k += 9) {
				mt_fill(out, 40, mt_seed(3, (uint64_t)mt_rank, (uint64_t)k));
				MPI_Win_fence(0, w.win);
				MPI_Put(out, 40, MPI_BYTE, next,
					(MT_GUARD + 64 * (MPI_Aint)(k / 9)) / theirs, 40, MPI_BYTE, w.win);
				MPI_Win_fence(0, w.win);
				mt_pattern(__LINE__, w.base + 64 * (k / 9), 40,
					   mt_seed(3, (uint64_t)last, (uint64_t)k));
				mt_untouched(__LINE__, w.base + 64 * (k / 9) + 40, w.base + w.room,
					     "behind");
			}
			window_close(&w);
		}
}

/* ---- post, start, complete, wait ---- */

static void pscw_pair(const struct window *w, int round)
{
	MPI_Group neighbour = group_of(mt_rank ^ 1);
	int done = 0;

	mt_fill(out, 5000, mt_seed(9, (uint64_t)round, (uint64_t)mt_rank));
	if ((round ^ mt_rank) & 1) { /* origin of this round */
		MPI_Win_start(neighbour, 0, w->win);
		put(w, out, 5000, mt_rank ^ 1, 0);
		MPI_Win_complete(w->win);
	} else {
		memset(w->base, MT_FREE_BYTE, w->room);
		MPI_Win_post(neighbour, 0, w->win);
		if (round % 4 < 2) {
			MPI_Win_wait(w->win);
		} else {
			while (!done)
				MPI_Win_test(w->win, &done);
		}
		MT_LANDED(w->base, w->room, 5000, mt_seed(9, (uint64_t)round, (uint64_t)(mt_rank ^ 1)));
	}
	MPI_Group_free(&neighbour);
}

/* Everybody to everybody else, by groups; and one to all. */
static void pscw_all(const struct window *w, int round)
{
	MPI_Group all, others;
	int i;

	MPI_Comm_group(comm, &all);
	MPI_Group_excl(all, 1, &mt_rank, &others);
	memset(w->base, MT_FREE_BYTE, w->room);
	MPI_Barrier(ctl); /* then no origin has to wait for a post: NOCHECK is allowed after another */
	MPI_Win_post(others, 0, w->win);
	if (round % 2)
		MPI_Barrier(ctl);
	MPI_Win_start(others, round % 2 ? MPI_MODE_NOCHECK : 0, w->win);
	for (i = 0; i < mt_size; i++) {
		unsigned char *from = out + (size_t)i * 1000;

		mt_fill(from, 900, mt_seed(10, (uint64_t)round << 8 | (uint64_t)mt_rank, (uint64_t)i));
		if (i != mt_rank)
			put(w, from, 900, i, (size_t)mt_rank * 1000);
	}
	MPI_Win_complete(w->win);
	MPI_Win_wait(w->win);
	for (i = 0; i < mt_size; i++)
		if (i != mt_rank)
			mt_pattern(__LINE__, w->base + i * 1000, 900,
				   mt_seed(10, (uint64_t)round << 8 | (uint64_t)i, (uint64_t)mt_rank));
	mt_untouched(__LINE__, w->base + mt_rank * 1000, w->base + mt_rank * 1000 + 1000, "of our own");
	MPI_Group_free(&others);
	MPI_Group_free(&all);
}

static void pscw(void)
{
	size_t room = 1000 * (size_t)(mt_size > 8 ? mt_size : 8);
	struct window w;
	int memory, round;

	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, room, 1);
		for (round = 0; round < 16; round++)
			if ((mt_rank ^ 1) < mt_size)
				pscw_pair(&w, round);
		MPI_Barrier(ctl);
		/* Open MPI 4.1's osc/rdma loses posts that are told not to be checked */
		for (round = 0; round < 8; round += 2)
			pscw_all(&w, round);
		window_close(&w);
	}
}

/* ---- fences with assertions ---- */

static void fences(void)
{
	struct window w;
	int memory, round;

	for (memory = 0; memory < MEMORIES; memory++) {
		window_open(&w, (enum memory)memory, 3000, 1);
		MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSTORE, w.win);
		for (round = 0; round < 20; round++) {
			size_t length = (size_t)round * 150;
			uint64_t seed = mt_seed(11, (uint64_t)round, (uint64_t)mt_rank);

			mt_fill(out, length, seed);
			put(&w, out, length, next, 0);
			MPI_Win_fence(MPI_MODE_NOSTORE, w.win);
			MT_LANDED(w.base, w.room, length, mt_seed(11, (uint64_t)round, (uint64_t)last));
			mt_clear(in, length);
			get(&w, in, length, next, 0);
			MPI_Win_fence(MPI_MODE_NOPUT, w.win);
			MT_LANDED(in, length, length, seed);
		}
		MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win);
		window_close(&w);
	}
}

/* ---- dynamic windows: several regions, attached and detached ---- */

#define REGIONS 6

static void attach_round(MPI_Win win, int round)
{
	MPI_Aint mine[REGIONS], theirs[REGIONS];
	unsigned char *regions[REGIONS];
	int i;

	for (i = 0; i < REGIONS; i++) {
		size_t length = (size_t)1 << (6 + 2 * i);

		regions[i] = mt_alloc(length);
		MPI_Win_attach(win, regions[i], (MPI_Aint)length);
		MPI_Get_address(regions[i], &mine[i]);
	}
	MPI_Sendrecv(mine, REGIONS, MPI_AINT, last, 2, theirs, REGIONS, MPI_AINT, next, 2, ctl,
		     MPI_STATUS_IGNORE);
	MPI_Win_lock(round % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, next, 0, win);
	for (i = 0; i < REGIONS; i++) {
		size_t length = (size_t)1 << (6 + 2 * i);

		mt_fill(out + length, length,
			mt_seed(12, (uint64_t)round << 8 | (uint64_t)i, (uint64_t)mt_rank));
		MPI_Put(out + length, (int)length, MPI_BYTE, next, theirs[i], (int)length, MPI_BYTE, win);
	}
	MPI_Win_unlock(next, win);
	MPI_Barrier(ctl);
	MPI_Win_lock(MPI_LOCK_SHARED, mt_rank, 0, win);
	for (i = 0; i < REGIONS; i++) {
		size_t length = (size_t)1 << (6 + 2 * i);

		MT_LANDED(regions[i], length, length,
			  mt_seed(12, (uint64_t)round << 8 | (uint64_t)i, (uint64_t)last));
	}
	MPI_Win_unlock(mt_rank, win);
	MPI_Barrier(ctl);
	for (i = 0; i < REGIONS; i++) {
		MPI_Win_detach(win, regions[(i * 5 + round) % REGIONS]);
		mt_free(regions[(i * 5 + round) % REGIONS]);
	}
	MPI_Barrier(ctl);
}

static void attachments(void)
{
	MPI_Win win;
	int round;

	MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &win);
	for (round = 0; round < 10; round++)
		attach_round(win, round);
	MPI_Win_free(&win);
}

/* ---- windows themselves ---- */

static void attributes(const struct window *w, int unit)
{
	int flag = 0, *model, *flavor, *width, size;
	MPI_Aint *bytes;
	MPI_Group group;
	void *base;

	MPI_Win_get_attr(w->win, MPI_WIN_BASE, &base, &flag);
	MT_CHECK(flag && base == w->whole, "MPI_WIN_BASE");
	MPI_Win_get_attr(w->win, MPI_WIN_SIZE, &bytes, &flag);
	MT_CHECK(flag && (size_t)*bytes == w->room + 2 * MT_GUARD, "MPI_WIN_SIZE");
	MPI_Win_get_attr(w->win, MPI_WIN_DISP_UNIT, &width, &flag);
	MT_CHECK(flag && *width == unit, "MPI_WIN_DISP_UNIT");
	MPI_Win_get_attr(w->win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag);
	MT_CHECK(flag && *flavor ==
				 (w->memory == CREATED ? MPI_WIN_FLAVOR_CREATE : MPI_WIN_FLAVOR_ALLOCATE),
		 "MPI_WIN_CREATE_FLAVOR");
	MPI_Win_get_attr(w->win, MPI_WIN_MODEL, &model, &flag);
	MT_CHECK(flag && (*model == MPI_WIN_UNIFIED || *model == MPI_WIN_SEPARATE), "MPI_WIN_MODEL");
	MPI_Win_get_group(w->win, &group);
	MPI_Group_size(group, &size);
	MT_CHECK(size == mt_size, "the group of the window has %d members", size);
	MPI_Group_free(&group);
}

/* Windows over parts of the ranks, several at once, and a window in which only rank 0 has memory. */
static void several_windows(void)
{
	enum { MANY = 8 };
	struct window many[MANY];
	long value, got, *cell = NULL;
	MPI_Win lone;
	int i;

	for (i = 0; i < MANY; i++)
		window_open(&many[i], (enum memory)(i % 2), 64, 8);
	for (i = 0; i < MANY; i++) {
		attributes(&many[i], 8);
		MPI_Win_lock_all(0, many[i].win);
	}
	for (i = 0; i < MANY; i++) {
		value = mt_rank * 100 + i;
		MPI_Put(&value, 1, MPI_LONG, next, there(&many[i], next, 8), 1, MPI_LONG, many[i].win);
		MPI_Win_flush_local(next, many[i].win);
	}
	for (i = 0; i < MANY; i++)
		settle(&many[i]);
	for (i = 0; i < MANY; i++)
		MT_CHECK(((long *)many[i].base)[1] == last * 100 + i, "window %d has %ld", i,
			 ((long *)many[i].base)[1]);
	for (i = 0; i < MANY; i++) {
		MPI_Win_unlock_all(many[i].win);
		window_close(&many[i]);
	}

	if (mt_rank == 0)
		cell = calloc(1, sizeof(*cell));
	MPI_Win_create(cell, cell ? sizeof(*cell) : 0, sizeof(*cell), MPI_INFO_NULL, comm, &lone);
	MPI_Win_fence(0, lone);
	value = mt_rank + 1;
	MPI_Accumulate(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, lone);
	MPI_Win_fence(0, lone);
	MPI_Get(&got, 1, MPI_LONG, 0, 0, 1, MPI_LONG, lone);
	MPI_Win_fence(0, lone);
	MT_CHECK(got == (long)mt_size * (mt_size + 1) / 2, "the sum is %ld", got);
	/* to nobody */
	MPI_Put(&value, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, lone);
	MPI_Get(&got, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, lone);
	MPI_Accumulate(&value, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, MPI_SUM, lone);
	MPI_Win_fence(0, lone);
	MT_CHECK(got == (long)mt_size * (mt_size + 1) / 2, "a get from nobody wrote");
	MPI_Win_free(&lone);
	free(cell);
}

static void one_part(MPI_Comm part)
{
	long cell = -1, value = mt_rank;
	int rank, size;
	MPI_Win win;

	MPI_Comm_rank(part, &rank);
	MPI_Comm_size(part, &size);
	MPI_Win_create(&cell, sizeof(cell), 1, MPI_INFO_NULL, part, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&value, 1, MPI_LONG, (rank + 1) % size, 0, 1, MPI_LONG, win);
	MPI_Win_fence(0, win);
	/* the ranks of a part are in the reverse order: from the next higher of ours, or the lowest */
	value = mt_rank + 2 < mt_size ? mt_rank + 2 : mt_rank % 2;
	MT_CHECK(cell == value, "%ld put, not %ld", cell, value);
	MPI_Win_free(&win);
}

/*
 * Windows over the even and over the odd ranks, one after the other: osc/rdma of Open MPI 4.1 has one file
 * for windows of the same number, and the second one loses it.
 */
static void parts(void)
{
	MPI_Comm part;
	int turn;

	MPI_Comm_split(comm, mt_rank % 2, -mt_rank, &part);
	for (turn = 0; turn < 2; turn++) {
		if (mt_rank % 2 == turn)
			one_part(part);
		MPI_Barrier(ctl);
	}
	MPI_Comm_free(&part);
}

/* ---- the program ---- */

static const struct {
	const char *name;
	void (*run)(void);
} sections[] = {
	{ "put and get, small", small_sizes },
	{ "put and get, large", large_sizes },
	{ "many at once", storm },
	{ "flushes", flushes },
	{ "requests", request_operations },
	{ "accumulate of every type", accumulates },
	{ "accumulate, large", large_accumulates },
	{ "compare and swap", swaps },
	{ "contention", contention },
	{ "derived types", derived_types },
	{ "displacement units", units },
	{ "post and start", pscw },
	{ "fences", fences },
	{ "attach and detach", attachments },
	{ "several windows", several_windows },
	{ "windows of parts", parts },
};

int main(int argc, char **argv)
{
	size_t i;

	mt_init(&argc, &argv, "osc");
	MT_CHECK(mt_size >= 2 && mt_size < INITIAL, "needs two ranks");
	next = (mt_rank + 1) % mt_size;
	last = (mt_rank + mt_size - 1) % mt_size;
	out = mt_alloc(LARGEST);
	in = mt_alloc(LARGEST);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_dup(MPI_COMM_WORLD, &ctl);
	for (i = 0; i < MT_COUNT(sections); i++)
		if (mt_section(sections[i].name))
			sections[i].run();
	MPI_Comm_free(&ctl);
	MPI_Comm_free(&comm);
	mt_free(in);
	mt_free(out);
	return mt_done();
}
