/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pingpong.c - latency of 8 bytes and bandwidth of 1 MiB between ranks 0 and 1.
 *
 * A demonstration, no part of the tests: it prints times and asserts none. Latency is half of
 * a round trip; bandwidth that of a stream of messages, WINDOW of them in flight, from buffers
 * that are used again and again. Each figure is the median of ROUNDS rounds.
 */
#include "mpitest.h"

enum {
	ROUNDS = 11,
	TRIPS = 2000,
	SMALL = 8,
	WINDOW = 8,
	STREAM = 64,
	LARGE = 1024 * 1024,
};

static void round_trips(unsigned char *buffer)
{
	int other = 1 - mt_rank, i;

	for (i = 0; i < TRIPS; i++) {
		if (mt_rank == 0)
			MPI_Send(buffer, SMALL, MPI_BYTE, other, 0, MPI_COMM_WORLD);
		MPI_Recv(buffer, SMALL, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (mt_rank == 1)
			MPI_Send(buffer, SMALL, MPI_BYTE, other, 0, MPI_COMM_WORLD);
	}
}

/* STREAM messages from rank 0; an empty one comes back when the last has arrived. */
static void stream(unsigned char *buffers)
{
	MPI_Request requests[WINDOW];
	int base, i;

	for (base = 0; base < STREAM; base += WINDOW) {
		for (i = 0; i < WINDOW; i++) {
			if (mt_rank == 0)
				MPI_Isend(buffers + (size_t)i * LARGE, LARGE, MPI_BYTE, 1, 0,
					  MPI_COMM_WORLD, &requests[i]);
			else
				MPI_Irecv(buffers + (size_t)i * LARGE, LARGE, MPI_BYTE, 0, 0,
					  MPI_COMM_WORLD, &requests[i]);
		}
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	}
	if (mt_rank == 0)
		MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	else
		MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Seconds of one call, the median; a first call warms up. */
static double median(void (*run)(unsigned char *), unsigned char *buffer)
{
	double times[ROUNDS];
	int i;

	run(buffer);
	for (i = 0; i < ROUNDS; i++) {
		times[i] = MPI_Wtime();
		run(buffer);
		times[i] = MPI_Wtime() - times[i];
	}
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	return times[ROUNDS / 2];
}

static void measure(void)
{
	unsigned char *buffers = mt_alloc((size_t)WINDOW * LARGE);
	double latency, bandwidth;
	int i;

	if (mt_rank == 0)
		mt_fill(buffers, SMALL, 1);
	latency = median(round_trips, buffers) / TRIPS / 2 * 1e6;
	MT_PATTERN(buffers, SMALL, 1);
	for (i = 0; i < WINDOW && mt_rank == 0; i++)
		mt_fill(buffers + (size_t)i * LARGE, LARGE, mt_seed(2, (uint64_t)i, 0));
	bandwidth = (double)STREAM * LARGE / median(stream, buffers) / 1e9;
	for (i = 0; i < WINDOW; i++)
		MT_PATTERN(buffers + (size_t)i * LARGE, LARGE, mt_seed(2, (uint64_t)i, 0));
	if (mt_rank == 0) {
		printf("latency      8 B  %8.2f us one way\n", latency);
		printf("bandwidth  1 MiB  %8.2f GB/s\n", bandwidth);
	}
	mt_free(buffers);
}

int main(int argc, char **argv)
{
	mt_init(&argc, &argv, "pingpong");
	MT_CHECK(mt_size >= 2, "needs two ranks");
	if (mt_rank < 2)
		measure();
	MPI_Finalize();
	return EXIT_SUCCESS;
}
