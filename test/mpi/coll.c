/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coll.c - MPI collectives, blocking and nonblocking, with and without MPI_IN_PLACE.
 *
 * Two families. A *mover* (bcast, gather, alltoall, ...) carries patterned bytes, whatever the
 * datatype, and every byte of the result is compared, gaps included. A *reducer* computes on
 * small numbers that all types hold exactly, so the result is known to the bit; one operation
 * does not commute, which checks the order of the ranks too.
 */
#include "mpitest.h"

#include <time.h>

enum flags { NONBLOCKING = 1, IN_PLACE = 2 };

/* Call a collective or wait for its nonblocking twin. */
#define RUN(flags, blocking, starting, ...)                                                               \
	do {                                                                                              \
		if ((flags)&NONBLOCKING) {                                                                \
			MPI_Request run_request;                                                          \
			starting(__VA_ARGS__, &run_request);                                              \
			MPI_Wait(&run_request, MPI_STATUS_IGNORE);                                        \
		} else {                                                                                  \
			blocking(__VA_ARGS__);                                                            \
		}                                                                                         \
	} while (0)

static MPI_Comm comm;
static uint64_t turn; /* counts calls, the same on all ranks: no two use the same bytes */

/* ---- datatypes ---- */

struct type {
	const char *name;
	MPI_Datatype mpi;
	size_t size;
	int integer;
	void (*put)(void *array, size_t at, int64_t value);
};

#define PUT(name, ctype)                                                                                  \
	static void put_##name(void *array, size_t at, int64_t value)                                     \
	{                                                                                                 \
		((ctype *)array)[at] = (ctype)value;                                                      \
	}

PUT(int8, int8_t)
PUT(int16, int16_t)
PUT(int32, int32_t)
PUT(int64, int64_t)
PUT(uint8, uint8_t)
PUT(uint16, uint16_t)
PUT(uint32, uint32_t)
PUT(uint64, uint64_t)
PUT(float, float)
PUT(double, double)

static const struct type types[] = {
	{ "int", MPI_INT, sizeof(int32_t), 1, put_int32 },
	{ "double", MPI_DOUBLE, sizeof(double), 0, put_double },
	{ "uint8", MPI_UINT8_T, sizeof(uint8_t), 1, put_uint8 },
	{ "int64", MPI_INT64_T, sizeof(int64_t), 1, put_int64 },
	{ "float", MPI_FLOAT, sizeof(float), 0, put_float },
	{ "int8", MPI_INT8_T, sizeof(int8_t), 1, put_int8 },
	{ "int16", MPI_INT16_T, sizeof(int16_t), 1, put_int16 },
	{ "uint16", MPI_UINT16_T, sizeof(uint16_t), 1, put_uint16 },
	{ "uint32", MPI_UINT32_T, sizeof(uint32_t), 1, put_uint32 },
	{ "uint64", MPI_UINT64_T, sizeof(uint64_t), 1, put_uint64 },
};

/* ---- movers ---- */

struct job {
	size_t count;
	const struct type *type;
	int root, flags;
};

static size_t job_bytes(const struct job *job)
{
	return job->count * job->type->size;
}

static uint64_t block_seed(int from, int to)
{
	return mt_seed(turn, (uint64_t)from, (uint64_t)to);
}

static void do_bcast(const struct job *job)
{
	size_t bytes = job_bytes(job);
	unsigned char *buffer = mt_alloc(bytes);

	mt_clear(buffer, bytes);
	if (mt_rank == job->root)
		mt_fill(buffer, bytes, block_seed(job->root, 0));
	RUN(job->flags, MPI_Bcast, MPI_Ibcast, buffer, (int)job->count, job->type->mpi, job->root, comm);
	MT_LANDED(buffer, bytes, bytes, block_seed(job->root, 0));
	mt_free(buffer);
}

/* Equal blocks: seed_of(i) is the sender of block i, `to` the rank that reads them. */
static void blocks_landed(const struct job *job, const unsigned char *buffer, int to)
{
	size_t bytes = job_bytes(job), total = bytes * (size_t)mt_size;
	int i;

	for (i = 0; i < mt_size; i++)
		MT_PATTERN(buffer + (size_t)i * bytes, bytes, block_seed(i, to));
	mt_untouched(__LINE__, buffer - MT_GUARD, buffer, "before the blocks");
	mt_untouched(__LINE__, buffer + total, buffer + total + MT_GUARD, "behind the blocks");
}

static void do_gather(const struct job *job)
{
	size_t bytes = job_bytes(job);
	unsigned char *one = mt_alloc(bytes), *all = mt_alloc(bytes * (size_t)mt_size);
	int in_place = mt_rank == job->root && (job->flags & IN_PLACE);
	void *from = one;

	mt_clear(all, bytes * (size_t)mt_size);
	if (in_place)
		from = MPI_IN_PLACE;
	mt_fill(in_place ? all + (size_t)mt_rank * bytes : one, bytes, block_seed(mt_rank, 0));
	RUN(job->flags, MPI_Gather, MPI_Igather, from, (int)job->count, job->type->mpi, all,
	    (int)job->count, job->type->mpi, job->root, comm);
	if (mt_rank == job->root)
		blocks_landed(job, all, 0);
	mt_free(one);
	mt_free(all);
}

static void do_scatter(const struct job *job)
{
	size_t bytes = job_bytes(job);
	unsigned char *one = mt_alloc(bytes), *all = mt_alloc(bytes * (size_t)mt_size);
	void *to = one;
	int i;

	mt_clear(one, bytes);
	for (i = 0; i < mt_size && mt_rank == job->root; i++)
		mt_fill(all + (size_t)i * bytes, bytes, block_seed(job->root, i));
	if (mt_rank == job->root && (job->flags & IN_PLACE))
		to = MPI_IN_PLACE;
	RUN(job->flags, MPI_Scatter, MPI_Iscatter, all, (int)job->count, job->type->mpi, to,
	    (int)job->count, job->type->mpi, job->root, comm);
	if (to != MPI_IN_PLACE)
		MT_LANDED(one, bytes, bytes, block_seed(job->root, mt_rank));
	mt_free(one);
	mt_free(all);
}

static void do_allgather(const struct job *job)
{
	size_t bytes = job_bytes(job);
	unsigned char *one = mt_alloc(bytes), *all = mt_alloc(bytes * (size_t)mt_size);
	void *from = one;

	mt_clear(all, bytes * (size_t)mt_size);
	if (job->flags & IN_PLACE)
		from = MPI_IN_PLACE;
	mt_fill(job->flags & IN_PLACE ? all + (size_t)mt_rank * bytes : one, bytes,
		block_seed(mt_rank, 0));
	RUN(job->flags, MPI_Allgather, MPI_Iallgather, from, (int)job->count, job->type->mpi, all,
	    (int)job->count, job->type->mpi, comm);
	blocks_landed(job, all, 0);
	mt_free(one);
	mt_free(all);
}

static void do_alltoall(const struct job *job)
{
	size_t bytes = job_bytes(job);
	unsigned char *sent = mt_alloc(bytes * (size_t)mt_size);
	unsigned char *got = mt_alloc(bytes * (size_t)mt_size);
	int in_place = job->flags & IN_PLACE;
	int i;

	mt_clear(got, bytes * (size_t)mt_size);
	for (i = 0; i < mt_size; i++)
		mt_fill((in_place ? got : sent) + (size_t)i * bytes, bytes, block_seed(mt_rank, i));
	RUN(job->flags, MPI_Alltoall, MPI_Ialltoall, in_place ? MPI_IN_PLACE : sent, (int)job->count,
	    job->type->mpi, got, (int)job->count, job->type->mpi, comm);
	blocks_landed(job, got, mt_rank);
	mt_free(sent);
	mt_free(got);
}

/* ---- movers with a layout of unequal blocks and gaps ---- */

struct layout {
	int *counts, *places;
	size_t total; /* elements, gaps included */
};

/* Elements that `from` has for `to`: unequal, and for some pairs none. */
static int uneven(const struct job *job, int from, int to)
{
	size_t share = (size_t)((from + 2 * to) % mt_size) + 1;

	if ((turn + (uint64_t)from + (uint64_t)to) % 5 == 0)
		return 0;
	return (int)((job->count * share + (size_t)mt_size - 1) / (size_t)mt_size);
}

/*
 * The blocks that `rank` has for each peer, or gets from each, with gaps of up to two elements.
 * In gatherv, scatterv and allgatherv a rank's block is what it would have for rank 0.
 */
static void layout_init(struct layout *layout, const struct job *job, int rank, int sending)
{
	int i, at = 0;

	layout->counts = calloc((size_t)mt_size, sizeof(int));
	layout->places = calloc((size_t)mt_size, sizeof(int));
	MT_CHECK(layout->counts && layout->places, "no memory");
	for (i = 0; i < mt_size; i++) {
		at += i % 3;
		layout->counts[i] = sending ? uneven(job, rank, i) : uneven(job, i, rank);
		layout->places[i] = at;
		at += layout->counts[i];
	}
	layout->total = (size_t)at;
}

static void layout_fini(struct layout *layout)
{
	free(layout->counts);
	free(layout->places);
}

/* Each block holds its sender's pattern, the gaps hold nothing. */
static void layout_landed(const struct layout *layout, const struct job *job, const unsigned char *buffer,
			  const uint64_t *seeds)
{
	const unsigned char *free_from = buffer - MT_GUARD;
	size_t size = job->type->size;
	int i;

	for (i = 0; i < mt_size; i++) {
		const unsigned char *block = buffer + (size_t)layout->places[i] * size;
		size_t bytes = (size_t)layout->counts[i] * size;

		mt_untouched(__LINE__, free_from, block, "between two blocks");
		MT_PATTERN(block, bytes, seeds[i]);
		free_from = block + bytes;
	}
	mt_untouched(__LINE__, free_from, buffer + layout->total * size + MT_GUARD,
		     "behind the last block");
}

static uint64_t *seeds_of(int to)
{
	uint64_t *seeds = calloc((size_t)mt_size, sizeof(*seeds));
	int i;

	MT_CHECK(seeds, "no memory");
	for (i = 0; i < mt_size; i++)
		seeds[i] = block_seed(i, to);
	return seeds;
}

static void do_gatherv(const struct job *job)
{
	size_t size = job->type->size;
	int mine = uneven(job, mt_rank, 0);
	int in_place = mt_rank == job->root && (job->flags & IN_PLACE);
	uint64_t *seeds = seeds_of(0);
	struct layout layout;
	unsigned char *one = mt_alloc((size_t)mine * size), *all;

	layout_init(&layout, job, 0, 0);
	all = mt_alloc(layout.total * size);
	mt_clear(all, layout.total * size);
	mt_fill(in_place ? all + (size_t)layout.places[mt_rank] * size : one, (size_t)mine * size,
		block_seed(mt_rank, 0));
	RUN(job->flags, MPI_Gatherv, MPI_Igatherv, in_place ? MPI_IN_PLACE : one, mine, job->type->mpi,
	    all, layout.counts, layout.places, job->type->mpi, job->root, comm);
	if (mt_rank == job->root)
		layout_landed(&layout, job, all, seeds);
	mt_free(one);
	mt_free(all);
	layout_fini(&layout);
	free(seeds);
}

static void do_scatterv(const struct job *job)
{
	size_t size = job->type->size;
	int mine = uneven(job, mt_rank, 0);
	struct layout layout;
	unsigned char *one = mt_alloc((size_t)mine * size), *all;
	void *to = one;
	int i;

	layout_init(&layout, job, 0, 0);
	all = mt_alloc(layout.total * size);
	for (i = 0; i < mt_size; i++)
		mt_fill(all + (size_t)layout.places[i] * size, (size_t)layout.counts[i] * size,
			block_seed(job->root, i));
	mt_clear(one, (size_t)mine * size);
	if (mt_rank == job->root && (job->flags & IN_PLACE))
		to = MPI_IN_PLACE;
	RUN(job->flags, MPI_Scatterv, MPI_Iscatterv, all, layout.counts, layout.places, job->type->mpi, to,
	    mine, job->type->mpi, job->root, comm);
	if (to != MPI_IN_PLACE)
		MT_LANDED(one, (size_t)mine * size, (size_t)mine * size, block_seed(job->root, mt_rank));
	mt_free(one);
	mt_free(all);
	layout_fini(&layout);
}

static void do_allgatherv(const struct job *job)
{
	size_t size = job->type->size;
	int mine = uneven(job, mt_rank, 0);
	int in_place = job->flags & IN_PLACE;
	uint64_t *seeds = seeds_of(0);
	struct layout layout;
	unsigned char *one = mt_alloc((size_t)mine * size), *all;

	layout_init(&layout, job, 0, 0);
	all = mt_alloc(layout.total * size);
	mt_clear(all, layout.total * size);
	mt_fill(in_place ? all + (size_t)layout.places[mt_rank] * size : one, (size_t)mine * size,
		block_seed(mt_rank, 0));
	RUN(job->flags, MPI_Allgatherv, MPI_Iallgatherv, in_place ? MPI_IN_PLACE : one, mine,
	    job->type->mpi, all, layout.counts, layout.places, job->type->mpi, comm);
	layout_landed(&layout, job, all, seeds);
	mt_free(one);
	mt_free(all);
	layout_fini(&layout);
	free(seeds);
}

static void fill_outgoing(const struct layout *layout, const struct job *job, unsigned char *buffer)
{
	int i;

	for (i = 0; i < mt_size; i++)
		mt_fill(buffer + (size_t)layout->places[i] * job->type->size,
			(size_t)layout->counts[i] * job->type->size, block_seed(mt_rank, i));
}

static void do_alltoallv(const struct job *job)
{
	size_t size = job->type->size;
	uint64_t *seeds = seeds_of(mt_rank);
	struct layout out, in;
	unsigned char *sent, *got;

	layout_init(&out, job, mt_rank, 1);
	layout_init(&in, job, mt_rank, 0);
	sent = mt_alloc(out.total * size);
	got = mt_alloc(in.total * size);
	mt_clear(got, in.total * size);
	fill_outgoing(&out, job, sent);
	RUN(job->flags, MPI_Alltoallv, MPI_Ialltoallv, sent, out.counts, out.places, job->type->mpi, got,
	    in.counts, in.places, job->type->mpi, comm);
	layout_landed(&in, job, got, seeds);
	mt_free(sent);
	mt_free(got);
	layout_fini(&out);
	layout_fini(&in);
	free(seeds);
}

/* The arguments of alltoallw for one direction. */
struct w_args {
	int *counts, *bytes_at;
	MPI_Datatype *types;
};

/* Every other pair of ranks exchanges one item of a type that holds the whole block. */
static void w_init(struct w_args *w, const struct layout *layout, const struct job *job, int odd)
{
	int i;

	w->counts = calloc((size_t)mt_size, sizeof(int));
	w->bytes_at = calloc((size_t)mt_size, sizeof(int));
	w->types = calloc((size_t)mt_size, sizeof(MPI_Datatype));
	MT_CHECK(w->counts && w->bytes_at && w->types, "no memory");
	for (i = 0; i < mt_size; i++) {
		w->bytes_at[i] = layout->places[i] * (int)job->type->size;
		w->counts[i] = layout->counts[i];
		w->types[i] = job->type->mpi;
		if ((mt_rank + i) % 2 != odd)
			continue;
		MPI_Type_contiguous(layout->counts[i], job->type->mpi, &w->types[i]);
		MPI_Type_commit(&w->types[i]);
		w->counts[i] = 1;
	}
}

static void w_fini(struct w_args *w, const struct job *job)
{
	int i;

	for (i = 0; i < mt_size; i++)
		if (w->types[i] != job->type->mpi)
			MPI_Type_free(&w->types[i]);
	free(w->counts);
	free(w->bytes_at);
	free(w->types);
}

static void do_alltoallw(const struct job *job)
{
	size_t size = job->type->size;
	uint64_t *seeds = seeds_of(mt_rank);
	struct layout out, in;
	struct w_args w_out, w_in;
	unsigned char *sent, *got;

	layout_init(&out, job, mt_rank, 1);
	layout_init(&in, job, mt_rank, 0);
	w_init(&w_out, &out, job, 0);
	w_init(&w_in, &in, job, 1);
	sent = mt_alloc(out.total * size);
	got = mt_alloc(in.total * size);
	mt_clear(got, in.total * size);
	fill_outgoing(&out, job, sent);
	RUN(job->flags, MPI_Alltoallw, MPI_Ialltoallw, sent, w_out.counts, w_out.bytes_at, w_out.types,
	    got, w_in.counts, w_in.bytes_at, w_in.types, comm);
	layout_landed(&in, job, got, seeds);
	mt_free(sent);
	mt_free(got);
	w_fini(&w_out, job);
	w_fini(&w_in, job);
	layout_fini(&out);
	layout_fini(&in);
	free(seeds);
}

enum { ROOTED = 1, CAN_BE_IN_PLACE = 2 };

struct mover {
	const char *name;
	void (*run)(const struct job *job);
	int traits;
};

static const struct mover movers[] = {
	{ "bcast", do_bcast, ROOTED },
	{ "gather", do_gather, ROOTED | CAN_BE_IN_PLACE },
	{ "gatherv", do_gatherv, ROOTED | CAN_BE_IN_PLACE },
	{ "scatter", do_scatter, ROOTED | CAN_BE_IN_PLACE },
	{ "scatterv", do_scatterv, ROOTED | CAN_BE_IN_PLACE },
	{ "allgather", do_allgather, CAN_BE_IN_PLACE },
	{ "allgatherv", do_allgatherv, CAN_BE_IN_PLACE },
	{ "alltoall", do_alltoall, CAN_BE_IN_PLACE },
	{ "alltoallv", do_alltoallv, 0 },
	{ "alltoallw", do_alltoallw, 0 },
};

static const size_t counts[] = { 1, 3, 17, 128, 1000, 4096, 16384, 65536, 1048576 };

/* All types up to 1,000 elements, then the first two, and at 1 Mi elements the first. */
static size_t types_at(size_t count)
{
	return count <= 1000 ? MT_COUNT(types) : count <= 65536 ? 2 : 1;
}

static void mover_run(const struct mover *mover)
{
	struct job job;
	size_t c, t;
	int root_step, roots;

	for (c = 0; c < MT_COUNT(counts); c++) {
		job.count = counts[c];
		roots = mover->traits & ROOTED ? mt_size : 1;
		root_step = job.count > 4096 && roots > 1 ? mt_size - 1 : 1; /* first and last */
		for (t = 0; t < types_at(job.count); t++) {
			job.type = &types[t];
			for (job.root = 0; job.root < roots; job.root += root_step) {
				for (job.flags = 0; job.flags < 4; job.flags++) {
					if ((job.flags & IN_PLACE) && !(mover->traits & CAN_BE_IN_PLACE))
						continue;
					turn++;
					mover->run(&job);
				}
			}
		}
	}
}

/* ---- reducers ---- */

enum arithmetic { SUM, PROD, MAX, MIN, BAND, BOR, BXOR, LAND, LOR, LXOR };

struct op {
	MPI_Op mpi;
	enum arithmetic arithmetic;
	int integer_only;
};

static const struct op ops[] = {
	{ MPI_SUM, SUM, 0 },   { MPI_MAX, MAX, 0 },   { MPI_PROD, PROD, 0 }, { MPI_MIN, MIN, 0 },
	{ MPI_BXOR, BXOR, 1 }, { MPI_BAND, BAND, 1 }, { MPI_BOR, BOR, 1 },   { MPI_LAND, LAND, 1 },
	{ MPI_LOR, LOR, 1 },   { MPI_LXOR, LXOR, 1 },
};

/*
 * No result may overflow the smallest type: overflow is not defined, and Open MPI saturates
 * 8-bit sums where the processor has an instruction for it.
 */
static int64_t operand(const struct op *op, int rank, size_t at)
{
	uint64_t drawn = mt_mix(turn * 131 + (uint64_t)rank * 31 + at * 1000003);

	switch (op->arithmetic) {
	case SUM:
		return (int64_t)(drawn % (uint64_t)(127 / mt_size + 1));
	case PROD:
		return rank < 6 ? 1 + (int64_t)(drawn % 2) : 1;
	case LAND:
	case LOR:
	case LXOR:
		return (int64_t)(drawn % 3);
	default:
		return (int64_t)(drawn % 128);
	}
}

static int64_t combine(const struct op *op, int64_t a, int64_t b)
{
	switch (op->arithmetic) {
	case SUM:
		return a + b;
	case PROD:
		return a * b;
	case MAX:
		return a > b ? a : b;
	case MIN:
		return a < b ? a : b;
	case BAND:
		return a & b;
	case BOR:
		return a | b;
	case BXOR:
		return a ^ b;
	case LAND:
		return a && b;
	case LOR:
		return a || b;
	default:
		return !a != !b;
	}
}

struct sums {
	const struct op *op;
	const struct type *type;
	size_t count;
	int root, flags;
};

/* Operands of this rank from element `at` on. */
static void sums_put(const struct sums *sums, void *to)
{
	size_t i;

	for (i = 0; i < sums->count; i++)
		sums->type->put(to, i, operand(sums->op, mt_rank, i));
}

/* `count` results at `got` are those of ranks 0 to last, for elements `first` and on. */
static void sums_check(int line, const struct sums *sums, const void *got, size_t first, size_t count,
		       int last)
{
	size_t size = sums->type->size, i;
	int64_t expected, value;
	int rank;

	mt_checks++;
	for (i = 0; i < count; i++) {
		expected = operand(sums->op, 0, first + i);
		for (rank = 1; rank <= last; rank++)
			expected = combine(sums->op, expected, operand(sums->op, rank, first + i));
		sums->type->put(&value, 0, expected);
		if (memcmp(&value, (const unsigned char *)got + i * size, size) != 0)
			mt_fail(line, "%s: op %d: element %zu of %zu is wrong, root %d, flags %d",
				sums->type->name, (int)sums->op->arithmetic, i, count, sums->root,
				sums->flags);
	}
}

/* The result buffer of `count` elements: cleared, or holding the operands when in place. */
static unsigned char *result_alloc(const struct sums *sums, size_t count, int in_place)
{
	size_t room = sums->count > count ? sums->count : count;
	unsigned char *result = mt_alloc(room * sums->type->size);

	mt_clear(result, room * sums->type->size);
	if (in_place)
		sums_put(sums, result);
	return result;
}

static void result_free(const struct sums *sums, unsigned char *result)
{
	mt_untouched(__LINE__, result - MT_GUARD, result, "before a result");
	mt_untouched(__LINE__, result + sums->count * sums->type->size,
		     result + sums->count * sums->type->size + MT_GUARD, "behind a result");
	mt_free(result);
}

static void do_reduce(const struct sums *sums, void *mine)
{
	int in_place = mt_rank == sums->root && (sums->flags & IN_PLACE);
	unsigned char *result = result_alloc(sums, sums->count, in_place);

	RUN(sums->flags, MPI_Reduce, MPI_Ireduce, in_place ? MPI_IN_PLACE : mine, result, (int)sums->count,
	    sums->type->mpi, sums->op->mpi, sums->root, comm);
	if (mt_rank == sums->root)
		sums_check(__LINE__, sums, result, 0, sums->count, mt_size - 1);
	result_free(sums, result);
}

static void do_allreduce(const struct sums *sums, void *mine)
{
	int in_place = sums->flags & IN_PLACE;
	unsigned char *result = result_alloc(sums, sums->count, in_place);

	RUN(sums->flags, MPI_Allreduce, MPI_Iallreduce, in_place ? MPI_IN_PLACE : mine, result,
	    (int)sums->count, sums->type->mpi, sums->op->mpi, comm);
	sums_check(__LINE__, sums, result, 0, sums->count, mt_size - 1);
	result_free(sums, result);
}

static void do_scan(const struct sums *sums, void *mine)
{
	int in_place = sums->flags & IN_PLACE;
	unsigned char *result = result_alloc(sums, sums->count, in_place);

	RUN(sums->flags, MPI_Scan, MPI_Iscan, in_place ? MPI_IN_PLACE : mine, result, (int)sums->count,
	    sums->type->mpi, sums->op->mpi, comm);
	sums_check(__LINE__, sums, result, 0, sums->count, mt_rank);
	result_free(sums, result);
}

static void do_exscan(const struct sums *sums, void *mine)
{
	int in_place = sums->flags & IN_PLACE;
	unsigned char *result = result_alloc(sums, sums->count, in_place);

	RUN(sums->flags, MPI_Exscan, MPI_Iexscan, in_place ? MPI_IN_PLACE : mine, result, (int)sums->count,
	    sums->type->mpi, sums->op->mpi, comm);
	if (mt_rank > 0) /* rank 0's result is undefined */
		sums_check(__LINE__, sums, result, 0, sums->count, mt_rank - 1);
	result_free(sums, result);
}

/* Unequal shares of sums->count; the last rank takes the rest. */
static void do_reduce_scatter(const struct sums *sums, void *mine)
{
	int in_place = sums->flags & IN_PLACE, i;
	unsigned char *result = result_alloc(sums, sums->count, in_place);
	int *shares = calloc((size_t)mt_size, sizeof(int));
	size_t first = 0, left = sums->count;

	MT_CHECK(shares, "no memory");
	for (i = 0; i < mt_size; i++) {
		shares[i] = i == mt_size - 1 ? (int)left : (int)(left / (size_t)(2 + i % 2));
		left -= (size_t)shares[i];
		if (i < mt_rank)
			first += (size_t)shares[i];
	}
	RUN(sums->flags, MPI_Reduce_scatter, MPI_Ireduce_scatter, in_place ? MPI_IN_PLACE : mine, result,
	    shares, sums->type->mpi, sums->op->mpi, comm);
	sums_check(__LINE__, sums, result, first, (size_t)shares[mt_rank], mt_size - 1);
	result_free(sums, result);
	free(shares);
}

static void do_reduce_scatter_block(const struct sums *sums, void *mine)
{
	int in_place = sums->flags & IN_PLACE;
	unsigned char *result = result_alloc(sums, sums->count, in_place);
	size_t share = sums->count / (size_t)mt_size;

	RUN(sums->flags, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block,
	    in_place ? MPI_IN_PLACE : mine, result, (int)share, sums->type->mpi, sums->op->mpi, comm);
	sums_check(__LINE__, sums, result, share * (size_t)mt_rank, share, mt_size - 1);
	result_free(sums, result);
}

struct reducer {
	const char *name;
	void (*run)(const struct sums *sums, void *mine);
	int rooted;
};

static const struct reducer reducers[] = {
	{ "reduce", do_reduce, 1 },
	{ "allreduce", do_allreduce, 0 },
	{ "scan", do_scan, 0 },
	{ "exscan", do_exscan, 0 },
	{ "reduce_scatter", do_reduce_scatter, 0 },
	{ "reduce_scatter_block", do_reduce_scatter_block, 0 },
};

static void reducer_flags(const struct reducer *reducer, struct sums *sums)
{
	unsigned char *mine = mt_alloc(sums->count * sums->type->size);

	for (sums->flags = 0; sums->flags < 4; sums->flags++) {
		turn++;
		sums_put(sums, mine);
		reducer->run(sums, mine);
	}
	mt_free(mine);
}

/* Every operation on every type while it is cheap, fewer of both as sizes grow. */
static void reducer_run(const struct reducer *reducer)
{
	struct sums sums;
	size_t c, o, t, few_ops;

	for (c = 0; c < MT_COUNT(counts); c++) {
		sums.count = counts[c];
		few_ops = sums.count <= 128 ? MT_COUNT(ops) : sums.count <= 65536 ? 2 : 1;
		for (t = 0; t < types_at(sums.count); t++) {
			for (o = 0; o < few_ops; o++) {
				sums.type = &types[t];
				sums.op = &ops[o];
				if (sums.op->integer_only && !sums.type->integer)
					continue;
				sums.root = reducer->rooted ? (int)((c + t + o) % (size_t)mt_size) : 0;
				reducer_flags(reducer, &sums);
			}
		}
	}
}

/* ---- operations on pairs ---- */

/* x -> a * x + b, modulo 2^32; composing two does not commute. */
struct affine {
	uint32_t a, b;
};

static struct affine affine_after(struct affine first, struct affine second)
{
	struct affine both = { first.a * second.a, first.a * second.b + first.b };

	return both;
}

static void affine_op(void *in, void *inout, int *count, MPI_Datatype *type)
{
	struct affine *left = in, *right = inout;
	int i;

	(void)type;
	for (i = 0; i < *count; i++)
		right[i] = affine_after(left[i], right[i]);
}

static struct affine affine_of(int rank, size_t at)
{
	uint64_t drawn = mt_seed(turn, (uint64_t)rank, at);
	struct affine one = { (uint32_t)drawn | 1, (uint32_t)(drawn >> 32) };

	return one;
}

static void affine_check(int line, const struct affine *got, size_t count, int last)
{
	struct affine expected;
	size_t i;
	int rank;

	mt_checks++;
	for (i = 0; i < count; i++) {
		expected = affine_of(0, i);
		for (rank = 1; rank <= last; rank++)
			expected = affine_after(expected, affine_of(rank, i));
		if (memcmp(&expected, &got[i], sizeof(expected)) != 0)
			mt_fail(line, "element %zu of %zu was combined in the wrong order", i, count);
	}
}

static void affine_once(size_t count, int flags, MPI_Datatype type, MPI_Op op)
{
	struct affine *mine = calloc(count, sizeof(*mine)), *got = calloc(count, sizeof(*got));
	int root = (int)(turn % (uint64_t)mt_size);
	size_t i;

	MT_CHECK(mine && got, "no memory");
	for (i = 0; i < count; i++)
		mine[i] = affine_of(mt_rank, i);
	RUN(flags, MPI_Reduce, MPI_Ireduce, mine, got, (int)count, type, op, root, comm);
	if (mt_rank == root)
		affine_check(__LINE__, got, count, mt_size - 1);
	RUN(flags, MPI_Allreduce, MPI_Iallreduce, mine, got, (int)count, type, op, comm);
	affine_check(__LINE__, got, count, mt_size - 1);
	RUN(flags, MPI_Scan, MPI_Iscan, mine, got, (int)count, type, op, comm);
	affine_check(__LINE__, got, count, mt_rank);
	RUN(flags, MPI_Exscan, MPI_Iexscan, mine, got, (int)count, type, op, comm);
	if (mt_rank > 0)
		affine_check(__LINE__, got, count, mt_rank - 1);
	free(mine);
	free(got);
}

static void noncommutative(void)
{
	static const size_t sizes[] = { 1, 10, 500, 5000, 100000 };
	MPI_Datatype type;
	MPI_Op op;
	size_t i;

	MPI_Type_contiguous(2, MPI_UINT32_T, &type);
	MPI_Type_commit(&type);
	MPI_Op_create(affine_op, 0, &op);
	for (i = 0; i < 4 * MT_COUNT(sizes); i++) {
		turn++;
		affine_once(sizes[i / 4], (int)(i % 2), type, op);
	}
	MPI_Op_free(&op);
	MPI_Type_free(&type);
}

struct ranked {
	double value;
	int rank;
};

/* The largest and smallest value with the lowest rank that has it. */
static void maxloc_minloc(void)
{
	enum { ELEMENTS = 700 };
	struct ranked mine[ELEMENTS], highest[ELEMENTS], lowest[ELEMENTS];
	int i, rank, high, low;

	memset(mine, 0, sizeof(mine));
	turn++;
	for (i = 0; i < ELEMENTS; i++) {
		mine[i].value = (double)(mt_seed(turn, (uint64_t)mt_rank, (uint64_t)i) % 4);
		mine[i].rank = mt_rank;
	}
	MPI_Allreduce(mine, highest, ELEMENTS, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
	MPI_Allreduce(mine, lowest, ELEMENTS, MPI_DOUBLE_INT, MPI_MINLOC, comm);
	for (i = 0; i < ELEMENTS; i++) {
		uint64_t most = 0, least = 4;

		high = low = 0;
		for (rank = 0; rank < mt_size; rank++) {
			uint64_t value = mt_seed(turn, (uint64_t)rank, (uint64_t)i) % 4;

			if (rank == 0 || value > most) {
				most = value;
				high = rank;
			}
			if (value < least) {
				least = value;
				low = rank;
			}
		}
		MT_CHECK(highest[i].value == (double)most && highest[i].rank == high,
			 "MAXLOC: element %d is %g of rank %d", i, highest[i].value, highest[i].rank);
		MT_CHECK(lowest[i].value == (double)least && lowest[i].rank == low,
			 "MINLOC: element %d is %g of rank %d", i, lowest[i].value, lowest[i].rank);
	}
}

/* ---- barrier ---- */

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Nobody leaves before the last has come; the clock is the machine's, so it is one for all. */
static void barriers(void)
{
	enum { ROUNDS = 60 };
	double times[2], last_in, first_out;
	int round;

	for (round = 0; round < ROUNDS; round++) {
		if (round % mt_size == mt_rank)
			nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
		times[0] = now();
		if (round % 2) {
			MPI_Request request;

			MPI_Ibarrier(comm, &request);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else {
			MPI_Barrier(comm);
		}
		times[1] = now();
		MPI_Allreduce(&times[0], &last_in, 1, MPI_DOUBLE, MPI_MAX, comm);
		MPI_Allreduce(&times[1], &first_out, 1, MPI_DOUBLE, MPI_MIN, comm);
		MT_CHECK(first_out >= last_in, "round %d: a rank left %g s before the last came", round,
			 last_in - first_out);
	}
}

/* ---- many nonblocking collectives at once ---- */

enum { FLIGHTS = 12, FLIGHT_KINDS = 5, FLIGHT_BYTES = 30000 };

struct flight {
	unsigned char *out, *in;
	uint64_t sum_in, sum_out;
	size_t bytes;
};

/* Collectives of one communicator are told apart by their order alone: the same everywhere. */
static void flight_start(struct flight *flight, int number, MPI_Comm on, MPI_Request *request)
{
	int root = number % mt_size, bytes = (int)flight->bytes, i;

	mt_clear(flight->in, flight->bytes * (size_t)mt_size);
	switch (number % FLIGHT_KINDS) {
	case 0:
		flight->sum_out = mt_seed((uint64_t)number, (uint64_t)mt_rank, turn) >> 8;
		MPI_Iallreduce(&flight->sum_out, &flight->sum_in, 1, MPI_UINT64_T, MPI_SUM, on, request);
		break;
	case 1:
		if (mt_rank == root)
			mt_fill(flight->in, flight->bytes, block_seed(number, 0));
		MPI_Ibcast(flight->in, bytes, MPI_BYTE, root, on, request);
		break;
	case 2:
		mt_fill(flight->out, flight->bytes, block_seed(mt_rank, number));
		MPI_Iallgather(flight->out, bytes, MPI_BYTE, flight->in, bytes, MPI_BYTE, on, request);
		break;
	case 3:
		for (i = 0; i < mt_size; i++)
			mt_fill(flight->out + (size_t)i * flight->bytes, flight->bytes,
				block_seed(mt_rank * 1000 + i, number));
		MPI_Ialltoall(flight->out, bytes, MPI_BYTE, flight->in, bytes, MPI_BYTE, on, request);
		break;
	default:
		MPI_Ibarrier(on, request);
		break;
	}
}

static void flight_check(const struct flight *flight, int number)
{
	uint64_t expected = 0;
	int i;

	switch (number % FLIGHT_KINDS) {
	case 0:
		for (i = 0; i < mt_size; i++)
			expected += mt_seed((uint64_t)number, (uint64_t)i, turn) >> 8;
		MT_CHECK(flight->sum_in == expected, "collective %d: wrong sum", number);
		break;
	case 1:
		MT_LANDED(flight->in, flight->bytes * (size_t)mt_size, flight->bytes,
			  block_seed(number, 0));
		break;
	case 2:
	case 3:
		for (i = 0; i < mt_size; i++)
			MT_PATTERN(flight->in + (size_t)i * flight->bytes, flight->bytes,
				   number % FLIGHT_KINDS == 2 ? block_seed(i, number)
							      : block_seed(i * 1000 + mt_rank, number));
		break;
	default:
		break;
	}
}

static void overlapping(void)
{
	enum { ROUNDS = 20 };
	struct flight flights[2 * FLIGHTS];
	MPI_Request requests[2 * FLIGHTS];
	MPI_Comm other;
	int i, round;

	MPI_Comm_dup(comm, &other);
	for (i = 0; i < 2 * FLIGHTS; i++) {
		flights[i].out = mt_alloc((size_t)FLIGHT_BYTES * (size_t)mt_size);
		flights[i].in = mt_alloc((size_t)FLIGHT_BYTES * (size_t)mt_size);
	}
	for (round = 0; round < ROUNDS; round++) {
		turn++;
		for (i = 0; i < 2 * FLIGHTS; i++) {
			flights[i].bytes =
				(size_t)(mt_seed(turn, (uint64_t)i, 3) % (i % 2 ? 200 : FLIGHT_BYTES)) + 1;
			flight_start(&flights[i], i, i % 3 ? comm : other, &requests[i]);
		}
		/* Not in the order of the start. */
		for (i = 2 * FLIGHTS - 1; i >= FLIGHTS; i--)
			MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		MPI_Waitall(FLIGHTS, requests, MPI_STATUSES_IGNORE);
		for (i = 0; i < 2 * FLIGHTS; i++)
			flight_check(&flights[i], i);
	}
	for (i = 0; i < 2 * FLIGHTS; i++) {
		mt_free(flights[i].out);
		mt_free(flights[i].in);
	}
	MPI_Comm_free(&other);
}

/* ---- the program ---- */

struct section {
	const char *name;
	void (*run)(void);
};

static const struct section sections[] = {
	{ "barrier", barriers },
	{ "operation that does not commute", noncommutative },
	{ "maxloc and minloc", maxloc_minloc },
	{ "overlapping nonblocking collectives", overlapping },
};

int main(int argc, char **argv)
{
	size_t i;

	mt_init(&argc, &argv, "coll");
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (i = 0; i < MT_COUNT(movers); i++)
		if (mt_section(movers[i].name))
			mover_run(&movers[i]);
	for (i = 0; i < MT_COUNT(reducers); i++)
		if (mt_section(reducers[i].name))
			reducer_run(&reducers[i]);
	for (i = 0; i < MT_COUNT(sections); i++)
		if (mt_section(sections[i].name))
			sections[i].run();
	MPI_Comm_free(&comm);
	return mt_done();
}
