/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * faults.c: known faults of Open MPI, each beside the call that does without it. README's table of troubles names them,
 * and test/trouble/run-trouble.sh runs them.
 *
 *	faults issend-mprobe   a synchronous send that a matched probe receives: never complete
 *	faults issend-probe    the same with MPI_Probe and MPI_Recv: complete
 *	faults cancel          a send is cancelled: a crash
 *	faults keep            the same send is received
 *	faults swap            MPI_Compare_and_swap in a window of MPI_Win_allocate
 *
 * Two ranks. The status is 0 if the call did what MPI says, 3 if the send is not complete although rank 1 has received it
 * and ROUNDS later messages were answered.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS 200
#define TAG 1
#define LATER 2

static int rank;
static char large[1 << 20];

static void probe_and_receive(int matched)
{
	int value;

	if (matched) {
		MPI_Message message;

		MPI_Mprobe(0, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
		MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
	} else {
		MPI_Probe(0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Recv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	printf("rank 1 has received %d\n", value);
}

static void issend(int matched)
{
	MPI_Request request = MPI_REQUEST_NULL;
	int value = 7, complete = 0;

	if (rank == 0)
		MPI_Issend(&value, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request);
	else
		probe_and_receive(matched);
	for (int i = 0; i < ROUNDS; i++) {
		int note = i;

		MPI_Sendrecv_replace(&note, 1, MPI_INT, !rank, LATER, !rank, LATER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 0 && !complete)
			MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
	}
	if (rank == 0) {
		printf("the synchronous send is %s after %d answers\n", complete ? "complete" : "not complete", ROUNDS);
		fflush(stdout);
		if (!complete)
			MPI_Abort(MPI_COMM_WORLD, 3);
	}
}

static void large_send(int cancel)
{
	MPI_Request request;
	MPI_Status status;

	if (rank == 1 && !cancel)
		MPI_Recv(large, sizeof(large), MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 1)
		return;
	MPI_Isend(large, sizeof(large), MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &request);
	if (cancel)
		MPI_Cancel(&request);
	MPI_Wait(&request, &status);
	printf("the send has ended\n");
}

static int compare_and_swap(void)
{
	long *word, one = 1, zero = 0, before = 5;
	MPI_Win window;

	MPI_Win_allocate(sizeof(*word), sizeof(*word), MPI_INFO_NULL, MPI_COMM_WORLD, (void *)&word, &window);
	*word = 0;
	MPI_Win_lock_all(0, window);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Compare_and_swap(&one, &zero, &before, MPI_LONG, !rank, 0, window);
	MPI_Win_flush_all(window);
	MPI_Win_unlock_all(window);
	MPI_Barrier(MPI_COMM_WORLD);
	printf("rank %d swapped %ld for %ld\n", rank, before, *word);
	MPI_Win_free(&window);
	return before != 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int status = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!strncmp(what, "issend-", 7))
		issend(!strcmp(what, "issend-mprobe"));
	else if (!strcmp(what, "cancel") || !strcmp(what, "keep"))
		large_send(!strcmp(what, "cancel"));
	else if (!strcmp(what, "swap"))
		status = compare_and_swap();
	else
		status = 2;
	MPI_Finalize();
	return status;
}
