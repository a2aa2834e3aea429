/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ways.c - messages between ranks of one host only, or of two hosts only; check-lnx.sh counts what carries them.
 *
 *   ways local PER_HOST     each rank exchanges messages with each other rank of its host
 *   ways remote PER_HOST    with each rank of another host
 *
 * PER_HOST successive ranks are on one host; the first message of a peer has its host's name. Nothing else goes
 * between ranks: no collective operation, no barrier, so that a provider's counters are those of these messages.
 * Each rank prints how many messages and bytes it has sent.
 */
#include "mpitest.h"

#define NAME 256
#define LARGEST ((size_t)1 << 20)
#define TIMES 4 /* so that what starts the job is little beside it */

static const size_t lengths[] = { 0, 1, 8, 64, 200, 1000, 4096, 16385, 65536, 300001, LARGEST };

static int remote;
static unsigned char *out, *in;
static unsigned long long messages, bytes;

static void exchange(int peer, int tag, size_t length)
{
	MPI_Status status;

	mt_fill(out, length, mt_seed((uint64_t)mt_rank, (uint64_t)peer, (uint64_t)tag));
	mt_clear(in, LARGEST);
	MPI_Sendrecv(out, (int)length, MPI_BYTE, peer, tag, in, (int)LARGEST, MPI_BYTE, peer, tag,
		     MPI_COMM_WORLD, &status);
	MT_STATUS(&status, peer, tag, length);
	MT_LANDED(in, LARGEST, length, mt_seed((uint64_t)peer, (uint64_t)mt_rank, (uint64_t)tag));
	messages++;
	bytes += length;
}

static void compare_names(int peer)
{
	char mine[NAME] = "", theirs[NAME] = "";

	gethostname(mine, sizeof(mine) - 1);
	MPI_Sendrecv(mine, NAME, MPI_CHAR, peer, 0, theirs, NAME, MPI_CHAR, peer, 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	theirs[NAME - 1] = '\0';
	messages++;
	bytes += NAME;
	MT_CHECK((strcmp(mine, theirs) != 0) == remote, "this is \"%s\", rank %d is on \"%s\"", mine, peer,
		 theirs);
}

/* All pairs in an order that keeps no rank waiting: in round r with the rank that makes a sum of r. */
int main(int argc, char **argv)
{
	int per_host = argc > 2 ? atoi(argv[2]) : 0, round, peer;
	size_t i;

	mt_init(&argc, &argv, "ways");
	MT_CHECK(per_host > 0, "ways needs local or remote, and the number of ranks on a host");
	remote = strcmp(argv[1], "remote") == 0;
	mt_enter(argv[1]);
	out = mt_alloc(LARGEST);
	in = mt_alloc(LARGEST);
	for (round = 0; round < mt_size; round++) {
		peer = (round + mt_size - mt_rank) % mt_size;
		if (peer == mt_rank || (peer / per_host != mt_rank / per_host) != remote)
			continue;
		compare_names(peer);
		for (i = 0; i < TIMES * MT_COUNT(lengths); i++)
			exchange(peer, (int)i + 1, lengths[i % MT_COUNT(lengths)]);
	}
	mt_enter("finish");
	MPI_Finalize();
	alarm(0);
	mt_free(out);
	mt_free(in);
	printf("ways: rank %d: %llu messages, %llu bytes, %llu checks passed\n", mt_rank, messages, bytes,
	       mt_checks);
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
