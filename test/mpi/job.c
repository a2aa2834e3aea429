/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * job.c - ranks that live until they are killed; run-kill.sh does it.
 *
 *   job talk      messages of all sizes round the ring of ranks, for ever
 *   job sleep     the same once, then nothing any more
 *   job errors    like talk, but a rank that gets an error ends well: another has been killed
 *
 * Each rank says "rank N pid P runs" when it has talked to its neighbours.
 */
#include <mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;
static bool errors;

static const int sizes[] = { 0, 8, 4096, 65536, 1 << 20, 200, 32768, 300000 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LARGEST = 1 << 20 };

static int probe(int other)
{
	MPI_Request request;
	int ret =
		MPI_Isend(NULL, 0, MPI_BYTE, other, 2, MPI_COMM_WORLD, &request); /* received by nobody */

	return ret ? ret : MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/*
 * Sends to both neighbours and receives from both. A receive from a killed rank may never end; so a rank that has
 * waited for a while sends something to see if the neighbours are still there. The first error is returned.
 */
static int talk(int round, unsigned char *out, unsigned char *in[2])
{
	int size = sizes[round % SIZES], left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
	int from[2] = { left, right }, ret = 0, index;
	double patience = MPI_Wtime() + 1;
	MPI_Request requests[4];

	memset(out, (unsigned char)(round + rank), (size_t)size);
	MPI_Irecv(in[0], size, MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[0]);
	MPI_Irecv(in[1], size, MPI_BYTE, right, 1, MPI_COMM_WORLD, &requests[1]);
	ret = MPI_Isend(out, size, MPI_BYTE, right, 0, MPI_COMM_WORLD, &requests[2]);
	if (!ret)
		ret = MPI_Isend(out, size, MPI_BYTE, left, 1, MPI_COMM_WORLD, &requests[3]);
	for (int done = 0, flag; !ret && done < 4; done += !ret && flag) {
		ret = MPI_Testany(4, requests, &index, &flag, MPI_STATUS_IGNORE);
		if (!ret && !flag && errors && MPI_Wtime() > patience) {
			patience = MPI_Wtime() + 1;
			ret = probe(left) | probe(right);
		}
	}
	for (int i = 0; !ret && size && i < 2; i++)
		if (in[i][0] != (unsigned char)(round + from[i]) ||
		    memcmp(in[i], in[i] + 1, (size_t)size - 1)) {
			printf("rank %d: round %d brought wrong bytes of rank %d\n", rank, round, from[i]);
			exit(2);
		}
	return ret;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "talk";
	unsigned char *out = malloc(LARGEST), *in[2] = { malloc(LARGEST), malloc(LARGEST) };
	int round = 0, ret = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (!out || !in[0] || !in[1])
		MPI_Abort(MPI_COMM_WORLD, 3);
	errors = !strcmp(mode, "errors");
	if (errors)
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	while (round < SIZES)
		talk(round++, out, in);
	printf("rank %d pid %d runs\n", rank, (int)getpid());
	fflush(stdout);
	while (!strcmp(mode, "sleep"))
		pause();
	while (!ret)
		ret = talk(round++, out, in);
	printf("rank %d got error %d in round %d\n", rank, ret, round);
	fflush(stdout);
	_exit(0); /* MPI_Finalize() would wait for the dead */
}
