/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * types.c - MPI derived datatypes, sent as one type and received as another.
 *
 * Each type under test is a `struct shape`: the MPI datatype, and beside it, worked out without
 * MPI, the byte offset of each basic element. Data is a stream of basic elements; place() puts
 * the stream where a shape says. A received buffer is compared whole with the buffer that
 * place() makes, so elements in a wrong place and bytes written into a gap both show.
 */
#include "mpitest.h"

#define TAG 3
#define MOST_ELEMENTS 64 /* in one item of a shape */

static MPI_Comm comm;
static uint64_t turn;

/* ---- shapes ---- */

struct basic {
	const char *name;
	MPI_Datatype mpi;
	size_t size;
};

static const struct basic basics[] = {
	{ "byte", MPI_BYTE, 1 },
	{ "int", MPI_INT, sizeof(int) },
	{ "double", MPI_DOUBLE, sizeof(double) },
};

struct shape {
	const char *name;
	MPI_Datatype mpi;
	int n;				 /* basic elements in one item */
	ptrdiff_t offset[MOST_ELEMENTS]; /* of each, in bytes */
	ptrdiff_t extent;		 /* from one item to the next */
};

/* `length` elements in a row, the first at `at`, both counted in elements. */
static void shape_run(struct shape *shape, const struct basic *basic, int at, int length)
{
	int i;

	for (i = 0; i < length; i++)
		shape->offset[shape->n++] = (ptrdiff_t)basic->size * (at + i);
}

static void shape_commit(struct shape *shape, const char *name)
{
	MPI_Aint low, extent;
	ptrdiff_t least = shape->offset[0];
	int i, size;

	MPI_Type_commit(&shape->mpi);
	MPI_Type_size(shape->mpi, &size);
	MPI_Type_get_extent(shape->mpi, &low, &extent);
	shape->name = name;
	shape->extent = extent;
	for (i = 1; i < shape->n; i++)
		if (shape->offset[i] < least)
			least = shape->offset[i];
	MPI_Type_get_true_extent(shape->mpi, &low, &extent);
	MT_CHECK(low == least, "%s: true lower bound %td, expected %td", name, (ptrdiff_t)low, least);
	MT_CHECK(size % shape->n == 0, "%s: size %d of %d elements", name, size, shape->n);
}

static void make_plain(struct shape *shape, const struct basic *basic)
{
	MPI_Type_dup(basic->mpi, &shape->mpi);
	shape_run(shape, basic, 0, 1);
	shape_commit(shape, "dup");
}

static void make_contiguous(struct shape *shape, const struct basic *basic)
{
	MPI_Type_contiguous(5, basic->mpi, &shape->mpi);
	shape_run(shape, basic, 0, 5);
	shape_commit(shape, "contiguous");
}

static void make_vector(struct shape *shape, const struct basic *basic)
{
	int i;

	MPI_Type_vector(4, 3, 7, basic->mpi, &shape->mpi);
	for (i = 0; i < 4; i++)
		shape_run(shape, basic, i * 7, 3);
	shape_commit(shape, "vector");
}

static void make_scattered(struct shape *shape, const struct basic *basic)
{
	int i;

	MPI_Type_vector(16, 1, 2, basic->mpi, &shape->mpi);
	for (i = 0; i < 16; i++)
		shape_run(shape, basic, i * 2, 1);
	shape_commit(shape, "vector of single elements");
}

static void make_hvector(struct shape *shape, const struct basic *basic)
{
	int i;

	MPI_Type_create_hvector(3, 2, (MPI_Aint)(5 * basic->size), basic->mpi, &shape->mpi);
	for (i = 0; i < 3; i++)
		shape_run(shape, basic, i * 5, 2);
	shape_commit(shape, "hvector");
}

static void make_backwards(struct shape *shape, const struct basic *basic)
{
	int i;

	MPI_Type_create_hvector(4, 2, -(MPI_Aint)(3 * basic->size), basic->mpi, &shape->mpi);
	for (i = 0; i < 4; i++)
		shape_run(shape, basic, -3 * i, 2);
	shape_commit(shape, "hvector with a negative stride");
}

static void make_indexed(struct shape *shape, const struct basic *basic)
{
	static const int lengths[] = { 2, 0, 5, 1, 3 }, places[] = { 9, 4, 0, 7, 14 };
	int i;

	MPI_Type_indexed(5, lengths, places, basic->mpi, &shape->mpi);
	for (i = 0; i < 5; i++)
		shape_run(shape, basic, places[i], lengths[i]);
	shape_commit(shape, "indexed");
}

static void make_hindexed(struct shape *shape, const struct basic *basic)
{
	static const int lengths[] = { 1, 4, 2 }, places[] = { 12, 2, 8 };
	MPI_Aint bytes[3];
	int i;

	for (i = 0; i < 3; i++) {
		bytes[i] = (MPI_Aint)basic->size * places[i];
		shape_run(shape, basic, places[i], lengths[i]);
	}
	MPI_Type_create_hindexed(3, lengths, bytes, basic->mpi, &shape->mpi);
	shape_commit(shape, "hindexed");
}

static void make_indexed_block(struct shape *shape, const struct basic *basic)
{
	static const int places[] = { 15, 3, 9, 0 };
	int i;

	MPI_Type_create_indexed_block(4, 2, places, basic->mpi, &shape->mpi);
	for (i = 0; i < 4; i++)
		shape_run(shape, basic, places[i], 2);
	shape_commit(shape, "indexed block");
}

static void make_struct(struct shape *shape, const struct basic *basic)
{
	static const int lengths[] = { 3, 2, 1 }, places[] = { 0, 5, 10 };
	MPI_Datatype pair, members[3];
	MPI_Aint bytes[3];
	int i;

	/* The middle member is a pair with a hole: elements 5 and 7, then 8 and 10... */
	MPI_Type_vector(2, 1, 2, basic->mpi, &pair);
	for (i = 0; i < 3; i++) {
		bytes[i] = (MPI_Aint)basic->size * places[i] * (i == 2 ? 2 : 1);
		members[i] = i == 1 ? pair : basic->mpi;
	}
	shape_run(shape, basic, 0, 3);
	for (i = 0; i < 2; i++) {
		shape_run(shape, basic, 5 + 3 * i, 1);
		shape_run(shape, basic, 7 + 3 * i, 1);
	}
	shape_run(shape, basic, 20, 1);
	MPI_Type_create_struct(3, lengths, bytes, members, &shape->mpi);
	MPI_Type_free(&pair);
	shape_commit(shape, "struct");
}

static void make_subarray(struct shape *shape, const struct basic *basic)
{
	static const int whole[] = { 5, 6 }, part[] = { 3, 2 }, start[] = { 1, 3 };
	int row;

	MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, basic->mpi, &shape->mpi);
	for (row = 0; row < 3; row++)
		shape_run(shape, basic, (1 + row) * 6 + 3, 2);
	shape_commit(shape, "subarray");
}

static void make_subarray3(struct shape *shape, const struct basic *basic)
{
	static const int whole[] = { 4, 3, 5 }, part[] = { 2, 2, 3 }, start[] = { 1, 0, 2 };
	int plane, column;

	/* Fortran order: the first index runs fastest. */
	MPI_Type_create_subarray(3, whole, part, start, MPI_ORDER_FORTRAN, basic->mpi, &shape->mpi);
	for (plane = 0; plane < 3; plane++)
		for (column = 0; column < 2; column++)
			shape_run(shape, basic, ((2 + plane) * 3 + column) * 4 + 1, 2);
	shape_commit(shape, "subarray of three dimensions");
}

static void make_resized(struct shape *shape, const struct basic *basic)
{
	MPI_Datatype inner;

	MPI_Type_contiguous(3, basic->mpi, &inner);
	MPI_Type_create_resized(inner, -(MPI_Aint)basic->size, (MPI_Aint)(6 * basic->size), &shape->mpi);
	MPI_Type_free(&inner);
	shape_run(shape, basic, 0, 3);
	shape_commit(shape, "resized");
}

static void make_nested(struct shape *shape, const struct basic *basic)
{
	static const int lengths[] = { 1, 2 }, places[] = { 3, 0 };
	MPI_Datatype inner, padded;
	int i;

	/* A vector of (an index of elements 3, 0, 1, made 5 long). */
	MPI_Type_indexed(2, lengths, places, basic->mpi, &inner);
	MPI_Type_create_resized(inner, 0, (MPI_Aint)(5 * basic->size), &padded);
	MPI_Type_vector(3, 2, 3, padded, &shape->mpi);
	MPI_Type_free(&inner);
	MPI_Type_free(&padded);
	for (i = 0; i < 6; i++) {
		int at = (i / 2 * 3 + i % 2) * 5;

		shape_run(shape, basic, at + 3, 1);
		shape_run(shape, basic, at, 2);
	}
	shape_commit(shape, "nested");
}

static void (*const makers[])(struct shape *shape, const struct basic *basic) = {
	make_plain,	make_contiguous, make_vector,	make_scattered,	    make_hvector,
	make_backwards, make_indexed,	 make_hindexed, make_indexed_block, make_struct,
	make_subarray,	make_subarray3,	 make_resized,	make_nested,
};

#define SHAPES MT_COUNT(makers)

static struct shape shapes[SHAPES];

static void shapes_init(const struct basic *basic)
{
	size_t i;

	memset(shapes, 0, sizeof(shapes));
	for (i = 0; i < SHAPES; i++)
		makers[i](&shapes[i], basic);
}

static void shapes_fini(void)
{
	size_t i;

	for (i = 0; i < SHAPES; i++)
		MPI_Type_free(&shapes[i].mpi);
}

/* ---- buffers of a shape ---- */

struct region {
	unsigned char *base;   /* of the memory */
	unsigned char *origin; /* the address for MPI calls */
	size_t length;
};

/* Memory that `items` items of a shape fit in, cleared. */
static void region_init(struct region *region, const struct shape *shape, size_t items,
			const struct basic *basic)
{
	ptrdiff_t low = 0, high = 0, span = items ? ((ptrdiff_t)items - 1) * shape->extent : 0;
	int i;

	for (i = 0; i < shape->n; i++) {
		ptrdiff_t first = shape->offset[i], last = first + span;

		if ((first < last ? first : last) < low)
			low = first < last ? first : last;
		if ((first > last ? first : last) + (ptrdiff_t)basic->size > high)
			high = (first > last ? first : last) + (ptrdiff_t)basic->size;
	}
	region->length = (size_t)(high - low);
	region->base = mt_alloc(region->length);
	region->origin = region->base - low;
	mt_clear(region->base, region->length);
}

static void region_fini(struct region *region)
{
	mt_free(region->base);
}

/* Put the stream's first `elements` basic elements where the shape has them. */
static void place(const struct shape *shape, const struct basic *basic, unsigned char *origin,
		  const unsigned char *stream, size_t elements)
{
	size_t item, at = 0;
	int i;

	for (item = 0; at < elements; item++) {
		unsigned char *to = origin + (ptrdiff_t)item * shape->extent;

		for (i = 0; i < shape->n && at < elements; i++, at++)
			memcpy(to + shape->offset[i], stream + at * basic->size, basic->size);
	}
}

/* A region received into holds `elements` of the stream and is otherwise untouched. */
static void region_check(int line, const struct region *got, const struct shape *shape, size_t items,
			 const struct basic *basic, const unsigned char *stream, size_t elements)
{
	struct region expected;
	size_t i;

	region_init(&expected, shape, items, basic);
	place(shape, basic, expected.origin, stream, elements);
	mt_checks++;
	if (memcmp(expected.base - MT_GUARD, got->base - MT_GUARD, got->length + 2 * MT_GUARD)) {
		for (i = 0; expected.base[i] == got->base[i] && i < got->length; i++)
			;
		mt_fail(line, "%s of %s: byte %zu of %zu is 0x%02x, expected 0x%02x", shape->name,
			basic->name, i, got->length, got->base[i], expected.base[i]);
	}
	region_fini(&expected);
}

static size_t items_for(const struct shape *shape, size_t elements)
{
	return (elements + (size_t)shape->n - 1) / (size_t)shape->n;
}

/* ---- each shape to each shape ---- */

static unsigned char *stream_of(int rank, size_t elements, const struct basic *basic)
{
	unsigned char *stream = mt_alloc(elements * basic->size);

	mt_fill(stream, elements * basic->size, mt_seed(turn, (uint64_t)rank, 1));
	return stream;
}

/*
 * Around the ring: send at least `elements` as whole items of one shape, receive them as items
 * of another, of which the last may be filled in part.
 */
static void exchange(const struct shape *sent_as, const struct shape *got_as, const struct basic *basic,
		     size_t elements)
{
	int to = (mt_rank + 1) % mt_size, from = (mt_rank + mt_size - 1) % mt_size, count, whole;
	size_t sent_items = items_for(sent_as, elements);
	size_t total = sent_items * (size_t)sent_as->n, got_items = items_for(got_as, total);
	unsigned char *out = stream_of(mt_rank, total, basic), *in = stream_of(from, total, basic);
	struct region sent, got;
	MPI_Request requests[2];
	MPI_Status statuses[2];

	region_init(&sent, sent_as, sent_items, basic);
	region_init(&got, got_as, got_items, basic);
	place(sent_as, basic, sent.origin, out, total);
	if (turn % 2)
		MPI_Irecv(got.origin, (int)got_items, got_as->mpi, from, TAG, comm, &requests[0]);
	if (turn % 3)
		MPI_Isend(sent.origin, (int)sent_items, sent_as->mpi, to, TAG, comm, &requests[1]);
	else
		MPI_Issend(sent.origin, (int)sent_items, sent_as->mpi, to, TAG, comm, &requests[1]);
	if (turn % 2 == 0)
		MPI_Irecv(got.origin, (int)got_items, got_as->mpi, from, TAG, comm, &requests[0]);
	MPI_Waitall(2, requests, statuses);

	MPI_Get_elements(&statuses[0], got_as->mpi, &count);
	MT_CHECK((size_t)count == total, "%s to %s: %d elements of %zu", sent_as->name, got_as->name,
		 count, total);
	MPI_Get_count(&statuses[0], got_as->mpi, &count);
	whole = total % (size_t)got_as->n ? MPI_UNDEFINED : (int)got_items;
	MT_CHECK(count == whole, "%s to %s: %d items, expected %d", sent_as->name, got_as->name, count,
		 whole);
	region_check(__LINE__, &got, got_as, got_items, basic, in, total);
	region_fini(&sent);
	region_fini(&got);
	mt_free(out);
	mt_free(in);
}

static void all_to_all_shapes(const struct basic *basic)
{
	static const size_t elements[] = { 1, 12, 100, 1000, 5000 };
	size_t a, b, i;

	for (a = 0; a < SHAPES; a++)
		for (b = 0; b < SHAPES; b++)
			for (i = 0; i < MT_COUNT(elements); i++, turn++)
				exchange(&shapes[a], &shapes[b], basic, elements[i]);
}

static void large_shapes(const struct basic *basic)
{
	size_t a;

	for (a = 0; a < SHAPES; a++, turn++) {
		exchange(&shapes[a], &shapes[(a + 5) % SHAPES], basic, 40000);
		exchange(&shapes[a], &shapes[(a + 3) % SHAPES], basic, 400000);
	}
}

/* ---- pack and unpack ---- */

static void packed(const struct basic *basic)
{
	int to = (mt_rank + 1) % mt_size, from = (mt_rank + mt_size - 1) % mt_size;
	int room, bytes, position;
	size_t s, items, total;

	for (s = 0; s < SHAPES; s++, turn++) {
		const struct shape *shape = &shapes[s];
		struct region mine, got;
		unsigned char *out, *in, *wire, *arrived;
		MPI_Status status;

		items = 1 + mt_mix(turn) % 700;
		total = items * (size_t)shape->n;
		bytes = (int)(total * basic->size);
		out = stream_of(mt_rank, total, basic);
		in = stream_of(from, total, basic);
		region_init(&mine, shape, items, basic);
		region_init(&got, shape, items, basic);
		place(shape, basic, mine.origin, out, total);
		MPI_Pack_size((int)items, shape->mpi, comm, &room);
		MT_CHECK(room >= bytes, "room of %d for %d bytes", room, bytes);
		wire = mt_alloc((size_t)room);
		arrived = mt_alloc((size_t)room);

		/* Packed here, unpacked there. */
		position = 0;
		MPI_Pack(mine.origin, (int)items, shape->mpi, wire, room, &position, comm);
		MT_CHECK(position == bytes, "packed %d bytes of %d", position, bytes);
		MPI_Sendrecv(wire, position, MPI_PACKED, to, TAG, arrived, room, MPI_PACKED, from, TAG,
			     comm, &status);
		position = 0;
		MPI_Unpack(arrived, bytes, &position, got.origin, (int)items, shape->mpi, comm);
		region_check(__LINE__, &got, shape, items, basic, in, total);

		/* Packed here, received there as the type; and the other way round. */
		mt_clear(got.base, got.length);
		MPI_Sendrecv(wire, bytes, MPI_PACKED, to, TAG, got.origin, (int)items, shape->mpi, from,
			     TAG, comm, &status);
		region_check(__LINE__, &got, shape, items, basic, in, total);
		mt_clear(got.base, got.length);
		MPI_Sendrecv(mine.origin, (int)items, shape->mpi, to, TAG, arrived, room, MPI_PACKED, from,
			     TAG, comm, &status);
		position = 0;
		MPI_Unpack(arrived, bytes, &position, got.origin, (int)items, shape->mpi, comm);
		region_check(__LINE__, &got, shape, items, basic, in, total);

		mt_free(wire);
		mt_free(arrived);
		mt_free(out);
		mt_free(in);
		region_fini(&mine);
		region_fini(&got);
	}
}

/* Different things one behind the other in one message. */
static void packed_mix(void)
{
	enum { DOUBLES = 500, TEXT = 33 };
	int to = (mt_rank + 1) % mt_size, from = (mt_rank + mt_size - 1) % mt_size;
	int position = 0, end, i, number = 4711 + mt_rank;
	double values[DOUBLES];
	char text[TEXT];
	unsigned char *wire = mt_alloc(8192), *arrived = mt_alloc(8192);

	for (i = 0; i < DOUBLES; i++)
		values[i] = mt_rank + i / 8.0;
	snprintf(text, sizeof(text), "rank %d", mt_rank);
	MPI_Pack(&number, 1, MPI_INT, wire, 8192, &position, comm);
	MPI_Pack(values, DOUBLES, MPI_DOUBLE, wire, 8192, &position, comm);
	MPI_Pack(text, TEXT, MPI_CHAR, wire, 8192, &position, comm);
	end = position;
	MPI_Sendrecv(wire, position, MPI_PACKED, to, TAG, arrived, 8192, MPI_PACKED, from, TAG, comm,
		     MPI_STATUS_IGNORE);
	position = 0;
	MPI_Unpack(arrived, 8192, &position, &number, 1, MPI_INT, comm);
	MPI_Unpack(arrived, 8192, &position, values, DOUBLES, MPI_DOUBLE, comm);
	MPI_Unpack(arrived, 8192, &position, text, TEXT, MPI_CHAR, comm);
	MT_CHECK(position == end, "unpacked %d bytes of %d", position, end);
	MT_CHECK(number == 4711 + from, "number %d", number);
	for (i = 0; i < DOUBLES; i++)
		MT_CHECK(values[i] == from + i / 8.0, "value %d is %g", i, values[i]);
	snprintf((char *)wire, TEXT, "rank %d", from);
	MT_CHECK(strcmp(text, (char *)wire) == 0, "text \"%s\"", text);
	mt_free(wire);
	mt_free(arrived);
}

static void packed_external(const struct basic *basic)
{
	int to = (mt_rank + 1) % mt_size, from = (mt_rank + mt_size - 1) % mt_size;
	size_t s, items = 50, total;

	for (s = 0; s < SHAPES; s++, turn++) {
		const struct shape *shape = &shapes[s];
		struct region mine, got;
		unsigned char *out, *in, *wire, *arrived;
		MPI_Aint room, position = 0;

		total = items * (size_t)shape->n;
		out = stream_of(mt_rank, total, basic);
		in = stream_of(from, total, basic);
		region_init(&mine, shape, items, basic);
		region_init(&got, shape, items, basic);
		place(shape, basic, mine.origin, out, total);
		MPI_Pack_external_size("external32", (int)items, shape->mpi, &room);
		wire = mt_alloc((size_t)room);
		arrived = mt_alloc((size_t)room);
		MPI_Pack_external("external32", mine.origin, (int)items, shape->mpi, wire, room,
				  &position);
		MPI_Sendrecv(wire, (int)position, MPI_BYTE, to, TAG, arrived, (int)room, MPI_BYTE, from,
			     TAG, comm, MPI_STATUS_IGNORE);
		position = 0;
		MPI_Unpack_external("external32", arrived, room, &position, got.origin, (int)items,
				    shape->mpi);
		region_check(__LINE__, &got, shape, items, basic, in, total);
		mt_free(wire);
		mt_free(arrived);
		mt_free(out);
		mt_free(in);
		region_fini(&mine);
		region_fini(&got);
	}
}

/* ---- a record of different basic types ---- */

struct record {
	char tag;
	double value;
	int32_t numbers[3];
	int16_t pair[2];
	char tail[5];
};

/* The same members at other places, as a receiver with another structure has them. */
struct mirrored {
	char tail[5];
	int16_t pair[2];
	int64_t not_sent;
	int32_t numbers[3];
	double value;
	char tag;
};

enum { MEMBERS = 5 };

static MPI_Datatype record_type(const MPI_Aint *places, size_t extent)
{
	static const int lengths[MEMBERS] = { 1, 1, 3, 2, 5 };
	MPI_Datatype members[MEMBERS] = { MPI_CHAR, MPI_DOUBLE, MPI_INT32_T, MPI_INT16_T, MPI_CHAR };
	MPI_Datatype inner, type;

	MPI_Type_create_struct(MEMBERS, lengths, places, members, &inner);
	MPI_Type_create_resized(inner, 0, (MPI_Aint)extent, &type);
	MPI_Type_commit(&type);
	MPI_Type_free(&inner);
	return type;
}

static void record_fill(struct record *record, int rank, int number)
{
	memset(record, 0, sizeof(*record));
	mt_fill(&record->tag, sizeof(record->tag), mt_seed((uint64_t)rank, (uint64_t)number, 1));
	record->value = rank * 1e6 + number / 4.0;
	mt_fill(record->numbers, sizeof(record->numbers), mt_seed((uint64_t)rank, (uint64_t)number, 2));
	mt_fill(record->pair, sizeof(record->pair), mt_seed((uint64_t)rank, (uint64_t)number, 3));
	mt_fill(record->tail, sizeof(record->tail), mt_seed((uint64_t)rank, (uint64_t)number, 4));
}

static int record_is(const struct record *record, const struct mirrored *mirrored)
{
	return record->tag == mirrored->tag && record->value == mirrored->value &&
	       !memcmp(record->numbers, mirrored->numbers, sizeof(record->numbers)) &&
	       !memcmp(record->pair, mirrored->pair, sizeof(record->pair)) &&
	       !memcmp(record->tail, mirrored->tail, sizeof(record->tail));
}

static void records(void)
{
	static const MPI_Aint plain[MEMBERS] = {
		offsetof(struct record, tag),	  offsetof(struct record, value),
		offsetof(struct record, numbers), offsetof(struct record, pair),
		offsetof(struct record, tail),
	};
	static const MPI_Aint other[MEMBERS] = {
		offsetof(struct mirrored, tag),	    offsetof(struct mirrored, value),
		offsetof(struct mirrored, numbers), offsetof(struct mirrored, pair),
		offsetof(struct mirrored, tail),
	};
	static const int counts[] = { 1, 7, 200, 3000, 50000 };
	int to = (mt_rank + 1) % mt_size, from = (mt_rank + mt_size - 1) % mt_size, i;
	MPI_Datatype sent_as = record_type(plain, sizeof(struct record));
	MPI_Datatype got_as = record_type(other, sizeof(struct mirrored));
	size_t c;

	for (c = 0; c < MT_COUNT(counts); c++) {
		struct record *sent = calloc((size_t)counts[c], sizeof(*sent)), expected;
		struct mirrored *got = calloc((size_t)counts[c], sizeof(*got));

		MT_CHECK(sent && got, "no memory");
		for (i = 0; i < counts[c]; i++)
			record_fill(&sent[i], mt_rank, i);
		for (i = 0; i < counts[c]; i++)
			got[i].not_sent = -i;
		MPI_Sendrecv(sent, counts[c], sent_as, to, TAG, got, counts[c], got_as, from, TAG, comm,
			     MPI_STATUS_IGNORE);
		for (i = 0; i < counts[c]; i++) {
			record_fill(&expected, from, i);
			MT_CHECK(record_is(&expected, &got[i]), "record %d of %d", i, counts[c]);
			MT_CHECK(got[i].not_sent == -i, "record %d: a gap was written to", i);
		}
		free(sent);
		free(got);
	}
	MPI_Type_free(&sent_as);
	MPI_Type_free(&got_as);
}

/* Pieces of memory that have nothing to do with each other, by absolute address. */
static void absolute(void)
{
	enum { PIECES = 5, PIECE = 9000 };
	int to = (mt_rank + 1) % mt_size, from = (mt_rank + mt_size - 1) % mt_size, i;
	int out_lengths[PIECES], in_lengths[PIECES];
	MPI_Aint out_at[PIECES], in_at[PIECES];
	unsigned char *out[PIECES], *in[PIECES];
	MPI_Datatype sent_as, got_as;

	for (i = 0; i < PIECES; i++) {
		out[i] = mt_alloc(PIECE);
		in[i] = mt_alloc(PIECE);
		mt_clear(in[i], PIECE);
		mt_fill(out[i], PIECE, mt_seed(21, (uint64_t)mt_rank, (uint64_t)i));
		out_lengths[i] = in_lengths[i] = i % 2 ? PIECE : 17;
		MPI_Get_address(out[i], &out_at[i]);
		MPI_Get_address(in[i], &in_at[i]);
	}
	MPI_Type_create_hindexed(PIECES, out_lengths, out_at, MPI_BYTE, &sent_as);
	MPI_Type_create_hindexed(PIECES, in_lengths, in_at, MPI_BYTE, &got_as);
	MPI_Type_commit(&sent_as);
	MPI_Type_commit(&got_as);
	MPI_Sendrecv(MPI_BOTTOM, 1, sent_as, to, TAG, MPI_BOTTOM, 1, got_as, from, TAG, comm,
		     MPI_STATUS_IGNORE);
	for (i = 0; i < PIECES; i++) {
		MT_LANDED(in[i], PIECE, (size_t)in_lengths[i], mt_seed(21, (uint64_t)from, (uint64_t)i));
		mt_free(out[i]);
		mt_free(in[i]);
	}
	MPI_Type_free(&sent_as);
	MPI_Type_free(&got_as);
}

/* ---- collectives whose ranks name different types ---- */

static void mixed_bcast(const struct basic *basic)
{
	size_t root, items, elements, s;

	for (s = 0; s < SHAPES; s++) {
		for (root = 0; root < (size_t)mt_size; root++, turn++) {
			const struct shape *shape = &shapes[(s + (size_t)mt_rank) % SHAPES];
			unsigned char *stream;
			struct region region;
			size_t rank;

			/* Whole items for everybody: the product of all the item sizes. */
			for (elements = 1, rank = 0; rank < (size_t)mt_size && rank < 3; rank++)
				elements *= (size_t)shapes[(s + rank) % SHAPES].n;
			if (mt_rank >= 3)
				shape = &shapes[s % SHAPES];
			items = elements / (size_t)shape->n;
			stream = stream_of((int)root, elements, basic);
			region_init(&region, shape, items, basic);
			if ((size_t)mt_rank == root)
				place(shape, basic, region.origin, stream, elements);
			MPI_Bcast(region.origin, (int)items, shape->mpi, (int)root, comm);
			region_check(__LINE__, &region, shape, items, basic, stream, elements);
			region_fini(&region);
			mt_free(stream);
		}
	}
}

/* Transpose a distributed matrix: rows sent, columns received, all by datatypes. */
static void transpose(void)
{
	enum { BLOCK = 48 };
	int n = BLOCK * mt_size, row, column;
	int32_t *rows = calloc((size_t)BLOCK * (size_t)n, sizeof(*rows));
	int32_t *columns = calloc((size_t)BLOCK * (size_t)n, sizeof(*columns));
	MPI_Datatype strip, sent_as, one, spaced, got_as, next;

	MT_CHECK(rows && columns, "no memory");
	for (row = 0; row < BLOCK; row++)
		for (column = 0; column < n; column++)
			rows[row * n + column] = (mt_rank * BLOCK + row) * n + column;
	/* Out: a block of BLOCK x BLOCK of my rows, row by row. */
	MPI_Type_vector(BLOCK, BLOCK, n, MPI_INT32_T, &strip);
	MPI_Type_create_resized(strip, 0, BLOCK * (MPI_Aint)sizeof(int32_t), &sent_as);
	/* In: the same block, each row of it a column here. */
	MPI_Type_vector(BLOCK, 1, n, MPI_INT32_T, &one);
	MPI_Type_create_resized(one, 0, (MPI_Aint)sizeof(int32_t), &spaced);
	MPI_Type_contiguous(BLOCK, spaced, &next);
	MPI_Type_create_resized(next, 0, BLOCK * (MPI_Aint)sizeof(int32_t), &got_as);
	MPI_Type_commit(&sent_as);
	MPI_Type_commit(&got_as);
	MPI_Alltoall(rows, 1, sent_as, columns, 1, got_as, comm);
	for (row = 0; row < BLOCK; row++)
		for (column = 0; column < n; column++)
			MT_CHECK(columns[row * n + column] == column * n + mt_rank * BLOCK + row,
				 "row %d, column %d holds %d", row, column,
				 (int)columns[row * n + column]);
	MPI_Type_free(&strip);
	MPI_Type_free(&sent_as);
	MPI_Type_free(&one);
	MPI_Type_free(&spaced);
	MPI_Type_free(&next);
	MPI_Type_free(&got_as);
	free(rows);
	free(columns);
}

/* ---- the program ---- */

static void with_each_basic(const char *name, void (*run)(const struct basic *basic))
{
	size_t i;

	if (!mt_section(name))
		return;
	for (i = 0; i < MT_COUNT(basics); i++) {
		shapes_init(&basics[i]);
		run(&basics[i]);
		shapes_fini();
	}
}

int main(int argc, char **argv)
{
	mt_init(&argc, &argv, "types");
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	with_each_basic("each shape to each shape", all_to_all_shapes);
	with_each_basic("large messages", large_shapes);
	with_each_basic("pack and unpack", packed);
	with_each_basic("external32", packed_external);
	with_each_basic("bcast with a type of one's own", mixed_bcast);
	if (mt_section("different things packed together"))
		packed_mix();
	if (mt_section("records"))
		records();
	if (mt_section("absolute addresses"))
		absolute();
	if (mt_section("transpose"))
		transpose();
	MPI_Comm_free(&comm);
	return mt_done();
}
