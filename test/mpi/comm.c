/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * comm.c - MPI communicators, groups and topologies, with traffic on every one.
 *
 * A communicator is tested by all_pairs(): each of its ranks sends to each, sizes mixed, and the
 * bytes name the communicator, the sender and the receiver. A message that leaks from one
 * communicator into another therefore shows.
 */
#include "mpitest.h"

#define TAG 5
#define ROOM 12000
#define HOST_NAME 256

static size_t length_of(uint64_t name, int from, int to)
{
	static const unsigned limits[] = { 1, 80, 80, 300, 5000, ROOM };
	uint64_t state = mt_seed(name, (uint64_t)from, (uint64_t)to);

	return mt_random(&state, limits[mt_random(&state, MT_COUNT(limits))]);
}

static uint64_t bytes_of(uint64_t name, int from, int to)
{
	return mt_seed(~name, (uint64_t)from, (uint64_t)to);
}

/* ---- traffic ---- */

struct traffic {
	int peers;
	MPI_Request *requests;	 /* receives, then sends */
	unsigned char *out, *in; /* ROOM and guards for each peer */
};

static unsigned char *slot(unsigned char *buffers, int peer)
{
	return buffers + (size_t)peer * (ROOM + 2 * MT_GUARD);
}

static void traffic_init(struct traffic *traffic, int peers)
{
	traffic->peers = peers;
	traffic->requests = calloc((size_t)peers * 2, sizeof(MPI_Request));
	traffic->out = mt_alloc((size_t)peers * (ROOM + 2 * MT_GUARD));
	traffic->in = mt_alloc((size_t)peers * (ROOM + 2 * MT_GUARD));
	MT_CHECK(traffic->requests, "no memory");
}

static void traffic_post(struct traffic *traffic, MPI_Comm comm)
{
	int peer;

	for (peer = 0; peer < traffic->peers; peer++) {
		mt_clear(slot(traffic->in, peer), ROOM);
		MPI_Irecv(slot(traffic->in, peer), ROOM, MPI_BYTE, peer, TAG, comm,
			  &traffic->requests[peer]);
	}
}

/* `from` is what the bytes call the sender: its rank, or for two-sided groups more than that. */
static void traffic_send(struct traffic *traffic, MPI_Comm comm, uint64_t name, int from)
{
	int peer;

	for (peer = 0; peer < traffic->peers; peer++) {
		size_t length = length_of(name, from, peer);

		mt_fill(slot(traffic->out, peer), length, bytes_of(name, from, peer));
		MPI_Isend(slot(traffic->out, peer), (int)length, MPI_BYTE, peer, TAG, comm,
			  &traffic->requests[traffic->peers + peer]);
	}
}

/* `offset` is added to a source's rank to have the name its sender used. */
static void traffic_check(struct traffic *traffic, uint64_t name, int me, int offset)
{
	int peer;

	MPI_Waitall(traffic->peers * 2, traffic->requests, MPI_STATUSES_IGNORE);
	for (peer = 0; peer < traffic->peers; peer++)
		MT_LANDED(slot(traffic->in, peer), ROOM, length_of(name, peer + offset, me),
			  bytes_of(name, peer + offset, me));
}

static void traffic_fini(struct traffic *traffic)
{
	mt_free(traffic->out);
	mt_free(traffic->in);
	free(traffic->requests);
}

static void all_pairs(MPI_Comm comm, uint64_t name)
{
	struct traffic traffic;
	int me, peers, sum, expected;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &peers);
	traffic_init(&traffic, peers);
	traffic_post(&traffic, comm);
	traffic_send(&traffic, comm, name, me);
	traffic_check(&traffic, name, me, 0);
	traffic_fini(&traffic);

	me += 10;
	MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, comm);
	expected = peers * (peers - 1) / 2 + 10 * peers;
	MT_CHECK(sum == expected, "sum %d, expected %d", sum, expected);
}

static void expect_compare(int line, MPI_Comm a, MPI_Comm b, int expected)
{
	int result;

	MPI_Comm_compare(a, b, &result);
	mt_checks++;
	if (result != expected)
		mt_fail(line, "MPI_Comm_compare says %d, expected %d", result, expected);
}

/* ---- sections ---- */

static void duplicates(void)
{
	MPI_Comm first, second, third;
	MPI_Request request;

	MPI_Comm_dup(MPI_COMM_WORLD, &first);
	MPI_Comm_dup(first, &second);
	MPI_Comm_idup(second, &third, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	expect_compare(__LINE__, MPI_COMM_WORLD, first, MPI_CONGRUENT);
	expect_compare(__LINE__, first, third, MPI_CONGRUENT);
	expect_compare(__LINE__, second, second, MPI_IDENT);
	all_pairs(MPI_COMM_WORLD, 1);
	all_pairs(first, 2);
	MPI_Comm_free(&first);
	all_pairs(second, 3);
	all_pairs(third, 4);
	MPI_Comm_free(&third);
	MPI_Comm_free(&second);
	all_pairs(MPI_COMM_SELF, 5 + (uint64_t)mt_rank);
}

/* How many there are, and which is the first. */
static int ranks_of_this_host(int *first)
{
	char *names = calloc((size_t)mt_size, HOST_NAME), mine[HOST_NAME] = "";
	int count = 0, rank;

	MT_CHECK(names, "no memory");
	gethostname(mine, sizeof(mine) - 1);
	MPI_Allgather(mine, HOST_NAME, MPI_CHAR, names, HOST_NAME, MPI_CHAR, MPI_COMM_WORLD);
	for (rank = mt_size - 1; rank >= 0; rank--) {
		if (memcmp(names + (size_t)rank * HOST_NAME, mine, HOST_NAME) != 0)
			continue;
		*first = rank;
		count++;
	}
	free(names);
	return count;
}

static void splits(void)
{
	MPI_Comm part;
	int colors, rank, size, mine, expected;

	for (colors = 1; colors <= mt_size + 1; colors++) {
		/* Keys turn the order of ranks around. */
		mine = mt_rank % colors;
		MPI_Comm_split(MPI_COMM_WORLD, mine, -mt_rank, &part);
		MPI_Comm_rank(part, &rank);
		MPI_Comm_size(part, &size);
		expected = mine < mt_size ? (mt_size - 1 - mine) / colors + 1 : 0;
		MT_CHECK(size == expected, "%d colours: size %d, expected %d", colors, size, expected);
		MT_CHECK(rank == size - 1 - mt_rank / colors, "%d colours: rank %d", colors, rank);
		all_pairs(part, mt_seed(30, (uint64_t)colors, (uint64_t)mine));
		MPI_Comm_free(&part);
	}
	MPI_Comm_split(MPI_COMM_WORLD, mt_rank == 0 ? MPI_UNDEFINED : 1, 0, &part);
	MT_CHECK((part == MPI_COMM_NULL) == (mt_rank == 0), "a split without rank 0");
	if (part != MPI_COMM_NULL) {
		all_pairs(part, 31);
		MPI_Comm_free(&part);
	}
	/* The ranks of one host share its memory. Without check-lnx.sh all ranks run on one host. */
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &part);
	MPI_Comm_size(part, &size);
	expected = ranks_of_this_host(&mine);
	MT_CHECK(size == expected, "%d ranks share memory, %d have this host's name", size, expected);
	if (expected == mt_size)
		expect_compare(__LINE__, MPI_COMM_WORLD, part, MPI_CONGRUENT);
	all_pairs(part, mt_seed(32, (uint64_t)mine, 0));
	MPI_Comm_free(&part);
}

static void expect_group(int line, MPI_Group group, const int *ranks, int count)
{
	MPI_Group world;
	int size, i, *in_group, *in_world;

	MPI_Group_size(group, &size);
	mt_checks++;
	if (size != count)
		mt_fail(line, "group of %d ranks, expected %d", size, count);
	in_group = calloc((size_t)count + 1, sizeof(int));
	in_world = calloc((size_t)count + 1, sizeof(int));
	MT_CHECK(in_group && in_world, "no memory");
	for (i = 0; i < count; i++)
		in_group[i] = i;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_translate_ranks(group, count, in_group, world, in_world);
	for (i = 0; i < count; i++)
		if (in_world[i] != ranks[i])
			mt_fail(line, "rank %d of a group is %d, expected %d", i, in_world[i], ranks[i]);
	MPI_Group_free(&world);
	free(in_group);
	free(in_world);
}

static void groups(void)
{
	MPI_Group world, front, back, all, some;
	MPI_Comm comm;
	int *ranks = calloc((size_t)mt_size, sizeof(int)), range[1][3], i, result;
	int half = (mt_size + 1) / 2;

	MT_CHECK(ranks, "no memory");
	for (i = 0; i < mt_size; i++)
		ranks[i] = i;
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, half, ranks, &front);
	MPI_Group_excl(world, half - 1, ranks, &back); /* shares one rank with the front */
	expect_group(__LINE__, front, ranks, half);
	expect_group(__LINE__, back, ranks + half - 1, mt_size - half + 1);
	MPI_Group_union(front, back, &all);
	MPI_Group_compare(all, world, &result);
	MT_CHECK(result == MPI_IDENT, "union of both halves: %d", result);
	MPI_Group_free(&all);
	MPI_Group_intersection(front, back, &some);
	expect_group(__LINE__, some, ranks + half - 1, 1);
	MPI_Group_free(&some);
	MPI_Group_difference(world, front, &some);
	expect_group(__LINE__, some, ranks + half, mt_size - half);
	MPI_Group_free(&some);

	/* All but the first, backwards. */
	range[0][0] = mt_size - 1;
	range[0][1] = 1;
	range[0][2] = -1;
	MPI_Group_range_incl(world, 1, range, &some);
	MPI_Comm_create(MPI_COMM_WORLD, some, &comm);
	MT_CHECK((comm == MPI_COMM_NULL) == (mt_rank == 0), "a communicator without rank 0");
	if (comm != MPI_COMM_NULL) {
		MPI_Comm_rank(comm, &result);
		MT_CHECK(result == mt_size - 1 - mt_rank, "rank %d", result);
		all_pairs(comm, 40);
		MPI_Comm_free(&comm);
	}
	MPI_Group_free(&some);

	/* Made by its members alone. */
	if (mt_rank < half) {
		MPI_Comm_create_group(MPI_COMM_WORLD, front, 77, &comm);
		all_pairs(comm, 41);
		MPI_Comm_free(&comm);
	}
	MPI_Group_free(&front);
	MPI_Group_free(&back);
	MPI_Group_free(&world);
	free(ranks);
}

/* ---- intercommunicators ---- */

struct sides {
	MPI_Comm local, inter;
	int side, rank, size, remote_size;
};

/* Even ranks on one side, odd ones on the other. */
static void sides_init(struct sides *sides)
{
	sides->side = mt_rank % 2;
	MPI_Comm_split(MPI_COMM_WORLD, sides->side, 0, &sides->local);
	MPI_Comm_rank(sides->local, &sides->rank);
	MPI_Comm_size(sides->local, &sides->size);
	MPI_Intercomm_create(sides->local, 0, MPI_COMM_WORLD, 1 - sides->side, 99, &sides->inter);
	MPI_Comm_remote_size(sides->inter, &sides->remote_size);
}

static void sides_fini(struct sides *sides)
{
	MPI_Comm_free(&sides->inter);
	MPI_Comm_free(&sides->local);
}

/* Every rank to every rank of the other side; the bytes tell the two sides' ranks apart. */
static void inter_pairs(const struct sides *sides, MPI_Comm inter, uint64_t name)
{
	struct traffic traffic;

	traffic_init(&traffic, sides->remote_size);
	traffic_post(&traffic, inter);
	traffic_send(&traffic, inter, name, sides->rank + 1000 * sides->side);
	traffic_check(&traffic, name, sides->rank, 1000 * (1 - sides->side));
	traffic_fini(&traffic);
}

static void inter_collectives(const struct sides *sides)
{
	int value, expected, i, side, root;
	int *all = calloc((size_t)mt_size, sizeof(int)), *mine = calloc((size_t)mt_size, sizeof(int));

	MT_CHECK(all && mine, "no memory");
	MPI_Barrier(sides->inter);
	/* Each side's sum arrives on the other. */
	MPI_Allreduce(&mt_rank, &value, 1, MPI_INT, MPI_SUM, sides->inter);
	for (expected = 0, i = 1 - sides->side; i < mt_size; i += 2)
		expected += i;
	MT_CHECK(value == expected, "sum of the other side %d, expected %d", value, expected);

	MPI_Allgather(&mt_rank, 1, MPI_INT, all, 1, MPI_INT, sides->inter);
	for (i = 0; i < sides->remote_size; i++)
		MT_CHECK(all[i] == 2 * i + 1 - sides->side, "gathered %d from %d", all[i], i);

	for (i = 0; i < sides->remote_size; i++)
		mine[i] = mt_rank * 100 + i;
	MPI_Alltoall(mine, 1, MPI_INT, all, 1, MPI_INT, sides->inter);
	for (i = 0; i < sides->remote_size; i++)
		MT_CHECK(all[i] == (2 * i + 1 - sides->side) * 100 + sides->rank, "got %d from %d", all[i],
			 i);

	/* From the first rank of each side to all of the other. */
	for (side = 0; side < 2; side++) {
		root = sides->side != side ? 0 : sides->rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
		value = sides->side == side ? 500 + side : 0;
		MPI_Bcast(&value, 1, MPI_INT, root, sides->inter);
		MT_CHECK(value == 500 + side, "broadcast of side %d gave %d", side, value);
	}
	free(all);
	free(mine);
}

static void intercommunicators(void)
{
	struct sides sides;
	MPI_Comm merged, twin;
	MPI_Group group;
	int flag, size, rank;

	sides_init(&sides);
	MPI_Comm_test_inter(sides.inter, &flag);
	MT_CHECK(flag, "not an intercommunicator");
	MT_CHECK(sides.size + sides.remote_size == mt_size, "sides of %d and %d", sides.size,
		 sides.remote_size);
	MPI_Comm_remote_group(sides.inter, &group);
	MPI_Group_size(group, &size);
	MT_CHECK(size == sides.remote_size, "remote group of %d", size);
	MPI_Group_free(&group);
	inter_pairs(&sides, sides.inter, 50);
	inter_collectives(&sides);

	MPI_Comm_dup(sides.inter, &twin);
	inter_pairs(&sides, twin, 51);
	inter_pairs(&sides, sides.inter, 52);
	MPI_Comm_free(&twin);

	MPI_Intercomm_merge(sides.inter, sides.side == 0, &merged); /* odd ranks come first */
	MPI_Comm_size(merged, &size);
	MPI_Comm_rank(merged, &rank);
	MT_CHECK(size == mt_size, "merged to %d ranks", size);
	MT_CHECK(rank == sides.rank + (sides.side == 0 ? sides.remote_size : 0), "merged rank %d", rank);
	all_pairs(merged, 53);
	MPI_Comm_free(&merged);
	sides_fini(&sides);
}

/* ---- topologies ---- */

/* Pass a block one step along each dimension, both ways, and check whose it is. */
static void shift_all(MPI_Comm grid, int dimensions, int me)
{
	unsigned char *out = mt_alloc(ROOM), *in = mt_alloc(ROOM);
	int dimension, step, from, to;
	MPI_Status status;

	for (dimension = 0; dimension < dimensions; dimension++) {
		for (step = -1; step <= 1; step += 2) {
			uint64_t name = mt_seed(60, (uint64_t)dimension, (uint64_t)(step + 1));

			MPI_Cart_shift(grid, dimension, step, &from, &to);
			mt_fill(out, ROOM, bytes_of(name, me, 0));
			mt_clear(in, ROOM);
			MPI_Sendrecv(out, ROOM, MPI_BYTE, to, TAG, in, ROOM, MPI_BYTE, from, TAG, grid,
				     &status);
			MT_STATUS(&status, from, from == MPI_PROC_NULL ? MPI_ANY_TAG : TAG,
				  from == MPI_PROC_NULL ? 0 : ROOM);
			MT_LANDED(in, ROOM, from == MPI_PROC_NULL ? 0 : ROOM, bytes_of(name, from, 0));
		}
	}
	mt_free(out);
	mt_free(in);
}

/*
 * Each rank sends a block to each neighbour, in one call. The block from a neighbour is the one that it
 * sent in our direction; if both neighbours are one rank, only the direction tells its two blocks apart.
 */
static void neighbours(MPI_Comm grid, int dimensions, int me, int nonblocking)
{
	enum { BLOCK = 2500 };
	int count = 2 * dimensions, i, from, to, *next = calloc((size_t)count, sizeof(int));
	unsigned char *out = mt_alloc((size_t)count * BLOCK), *in = mt_alloc((size_t)count * BLOCK);
	MPI_Request request;

	MT_CHECK(next, "no memory");
	for (i = 0; i < dimensions; i++) {
		MPI_Cart_shift(grid, i, 1, &from, &to);
		next[2 * i] = from;
		next[2 * i + 1] = to;
	}
	for (i = 0; i < count; i++)
		mt_fill(out + i * BLOCK, BLOCK, mt_seed(61, (uint64_t)me, (uint64_t)i));
	mt_clear(in, (size_t)count * BLOCK);
	if (nonblocking) {
		MPI_Ineighbor_alltoall(out, BLOCK, MPI_BYTE, in, BLOCK, MPI_BYTE, grid, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else {
		MPI_Neighbor_alltoall(out, BLOCK, MPI_BYTE, in, BLOCK, MPI_BYTE, grid);
	}
	for (i = 0; i < count; i++) {
		if (next[i] == MPI_PROC_NULL)
			mt_untouched(__LINE__, in + i * BLOCK, in + (i + 1) * BLOCK,
				     "of a neighbour that is not there");
		else
			MT_PATTERN(in + i * BLOCK, BLOCK,
				   mt_seed(61, (uint64_t)next[i], (uint64_t)(i ^ 1)));
	}
	mt_fill(out, BLOCK, mt_seed(62, (uint64_t)me, 0));
	mt_clear(in, (size_t)count * BLOCK);
	MPI_Neighbor_allgather(out, BLOCK, MPI_BYTE, in, BLOCK, MPI_BYTE, grid);
	for (i = 0; i < count; i++)
		if (next[i] != MPI_PROC_NULL)
			MT_PATTERN(in + i * BLOCK, BLOCK, mt_seed(62, (uint64_t)next[i], 0));
	free(next);
	mt_free(out);
	mt_free(in);
}

static void cartesian(void)
{
	MPI_Comm grid, line;
	int dimensions, periodic, me, i, size;

	for (dimensions = 1; dimensions <= 3; dimensions++) {
		for (periodic = 0; periodic < 2; periodic++) {
			int shape[3] = { 0 }, wrap[3], place[3], keep[3] = { 0 }, back;

			for (i = 0; i < 3; i++)
				wrap[i] = periodic;
			MPI_Dims_create(mt_size, dimensions, shape);
			MPI_Cart_create(MPI_COMM_WORLD, dimensions, shape, wrap, 1, &grid);
			MPI_Comm_rank(grid, &me);
			MPI_Cart_coords(grid, me, dimensions, place);
			MPI_Cart_rank(grid, place, &back);
			MT_CHECK(back == me, "place of rank %d belongs to rank %d", me, back);
			shift_all(grid, dimensions, me);
			/*
			 * Where a dimension is one or two long and wraps, both neighbours are
			 * one rank: MPI before 4.0 did not say which block is whose.
			 */
			for (i = 0; i < dimensions && !(periodic && shape[i] <= 2); i++)
				;
			if (i == dimensions)
				neighbours(grid, dimensions, me, periodic);
			all_pairs(grid, mt_seed(63, (uint64_t)dimensions, (uint64_t)periodic));

			keep[0] = 1;
			MPI_Cart_sub(grid, keep, &line);
			MPI_Comm_size(line, &size);
			MT_CHECK(size == shape[0], "line of %d, expected %d", size, shape[0]);
			place[0] = 0; /* a line is named by its first rank */
			MPI_Cart_rank(grid, place, &back);
			all_pairs(line, mt_seed(64, (uint64_t)dimensions, (uint64_t)back));
			MPI_Comm_free(&line);
			MPI_Comm_free(&grid);
		}
	}
}

/* A graph in which each rank tells the two behind it, and itself. */
static void distributed_graph(void)
{
	enum { DEGREE = 3, BLOCK = 700 };
	static const int weights[DEGREE] = { 1, 1, 1 };
	int sources[DEGREE], targets[DEGREE], counts[DEGREE], places[DEGREE], i;
	unsigned char *out = mt_alloc(DEGREE * BLOCK), *in = mt_alloc(DEGREE * BLOCK);
	MPI_Comm graph;

	if (mt_size < DEGREE) {
		mt_free(out);
		mt_free(in);
		return;
	}
	for (i = 0; i < DEGREE; i++) {
		targets[i] = (mt_rank + i) % mt_size;
		sources[i] = (mt_rank + mt_size - i) % mt_size;
		counts[i] = BLOCK - i * 100;
		places[i] = i * BLOCK;
		mt_fill(out + places[i], (size_t)counts[i], mt_seed(65, (uint64_t)mt_rank, (uint64_t)i));
	}
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, DEGREE, sources, weights, DEGREE, targets, weights,
				       MPI_INFO_NULL, 0, &graph);
	mt_clear(in, DEGREE * BLOCK);
	MPI_Neighbor_alltoallv(out, counts, places, MPI_BYTE, in, counts, places, MPI_BYTE, graph);
	for (i = 0; i < DEGREE; i++) {
		MT_PATTERN(in + places[i], (size_t)counts[i],
			   mt_seed(65, (uint64_t)sources[i], (uint64_t)i));
		mt_untouched(__LINE__, in + places[i] + counts[i], in + (i + 1) * BLOCK,
			     "behind a neighbour's block");
	}
	all_pairs(graph, 66);
	MPI_Comm_free(&graph);
	mt_free(out);
	mt_free(in);
}

/* ---- many at once ---- */

enum { MANY = 200 };

/* A fifth of them are halves of the ranks, a fifth reversed, the rest duplicates. */
static void many_init(MPI_Comm *many)
{
	int i;

	for (i = 0; i < MANY; i++) {
		if (i % 5 == 3)
			MPI_Comm_split(MPI_COMM_WORLD, mt_rank % 2, mt_rank, &many[i]);
		else if (i % 5 == 4)
			MPI_Comm_split(MPI_COMM_WORLD, 0, -mt_rank, &many[i]);
		else
			MPI_Comm_dup(i < 5 ? MPI_COMM_WORLD : many[i / 25 * 5], &many[i]);
	}
}

/* The two halves of a split share its index; the bytes tell them apart. */
static uint64_t many_name(int i)
{
	return mt_seed(70, (uint64_t)i, i % 5 == 3 ? (uint64_t)(mt_rank % 2) : 2);
}

static void many_at_once(void)
{
	MPI_Comm *many = calloc(MANY, sizeof(*many));
	struct traffic *traffic = calloc(MANY, sizeof(*traffic));
	int i, round, rank, size;

	MT_CHECK(many && traffic, "no memory");
	many_init(many);
	for (i = 0; i < MANY; i++) {
		MPI_Comm_size(many[i], &size);
		traffic_init(&traffic[i], size);
	}
	for (round = 0; round < 2; round++) {
		/*
		 * Same tag, same ranks: the communicator alone says which is which. In the
		 * second round the messages come before the receives.
		 */
		for (i = MANY - 1; i >= 0 && round == 0; i--)
			traffic_post(&traffic[i], many[i]);
		for (i = 0; i < MANY; i++) {
			MPI_Comm_rank(many[i], &rank);
			traffic_send(&traffic[i], many[i], many_name(i), rank);
		}
		for (i = MANY - 1; i >= 0 && round == 1; i--)
			traffic_post(&traffic[i], many[i]);
		for (i = 0; i < MANY; i++) {
			int at = i * 7 % MANY;

			MPI_Comm_rank(many[at], &rank);
			traffic_check(&traffic[at], many_name(at), rank, 0);
		}
	}
	for (i = 0; i < MANY; i++) {
		all_pairs(many[i], many_name(i) + 1);
		traffic_fini(&traffic[i]);
		MPI_Comm_free(&many[i]);
	}
	free(many);
	free(traffic);
}

/* A wildcard receive on one communicator takes nothing from another. */
static void wildcards_stay_inside(void)
{
	enum { COMMS = 8 };
	int to = (mt_rank + 1) % mt_size, from = (mt_rank + mt_size - 1) % mt_size, i;
	unsigned char *out[COMMS], *in = mt_alloc(ROOM);
	MPI_Comm comms[COMMS];
	MPI_Request requests[COMMS];
	MPI_Status status;

	for (i = 0; i < COMMS; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
		out[i] = mt_alloc(ROOM);
	}
	for (i = 0; i < COMMS; i++) {
		size_t length = length_of(71, mt_rank, i);

		mt_fill(out[i], length, bytes_of(71, mt_rank, i));
		MPI_Isend(out[i], (int)length, MPI_BYTE, to, 100 - i, comms[i], &requests[i]);
	}
	for (i = COMMS - 1; i >= 0; i--) {
		mt_clear(in, ROOM);
		MPI_Recv(in, ROOM, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], &status);
		MT_STATUS(&status, from, 100 - i, length_of(71, from, i));
		MT_LANDED(in, ROOM, length_of(71, from, i), bytes_of(71, from, i));
	}
	MPI_Waitall(COMMS, requests, MPI_STATUSES_IGNORE);
	for (i = 0; i < COMMS; i++) {
		MPI_Comm_free(&comms[i]);
		mt_free(out[i]);
	}
	mt_free(in);
}

/* Communicators come and go; leftovers of one must not reach the next one. */
static void come_and_go(void)
{
	enum { TIMES = 300 };
	MPI_Comm comm;
	int i;

	for (i = 0; i < TIMES; i++) {
		if (i % 3)
			MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		else
			MPI_Comm_split(MPI_COMM_WORLD, 0, (i + mt_rank) % mt_size, &comm);
		all_pairs(comm, mt_seed(72, (uint64_t)i, 0));
		MPI_Comm_free(&comm);
	}
}

/* Freed while messages are under way on it: they arrive all the same. */
static void freed_under_way(void)
{
	struct traffic traffic;
	MPI_Comm comm;
	int i;

	for (i = 0; i < 20; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		traffic_init(&traffic, mt_size);
		traffic_post(&traffic, comm);
		traffic_send(&traffic, comm, 80 + (uint64_t)i, mt_rank);
		MPI_Comm_free(&comm);
		traffic_check(&traffic, 80 + (uint64_t)i, mt_rank, 0);
		traffic_fini(&traffic);
	}
}

/* ---- the program ---- */

struct section {
	const char *name;
	void (*run)(void);
};

static const struct section sections[] = {
	{ "duplicates", duplicates },
	{ "splits", splits },
	{ "groups", groups },
	{ "intercommunicators", intercommunicators },
	{ "Cartesian grids", cartesian },
	{ "distributed graph", distributed_graph },
	{ "200 communicators at once", many_at_once },
	{ "wildcards stay inside", wildcards_stay_inside },
	{ "come and go", come_and_go },
	{ "freed under way", freed_under_way },
};

int main(int argc, char **argv)
{
	size_t i;

	mt_init(&argc, &argv, "comm");
	MT_CHECK(mt_size >= 2, "needs two ranks");
	for (i = 0; i < MT_COUNT(sections); i++)
		if (mt_section(sections[i].name))
			sections[i].run();
	return mt_done();
}
