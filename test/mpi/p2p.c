/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * p2p.c - MPI point-to-point in every mode, every byte compared.
 *
 * A section is a function; main() lists them. Most run between rank pairs in both directions,
 * so they need two ranks; an odd last rank has no partner and takes part in the ring sections
 * only. Control messages (go, flag) travel on `ctl`, so that a wildcard receive on the
 * communicator under test can never catch one.
 */
#include "mpitest.h"

#define KIB ((size_t)1024)
#define MIB (KIB * KIB)
#define LARGEST (16 * MIB)
#define TAG 7

static MPI_Comm comm, ctl;
static unsigned char *out, *in;

typedef int send_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int isend_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

enum mode { STANDARD, SYNCHRONOUS, READY, BUFFERED, MODES };

static send_fn *const send_in[MODES] = { MPI_Send, MPI_Ssend, MPI_Rsend, MPI_Bsend };
static isend_fn *const isend_in[MODES] = { MPI_Isend, MPI_Issend, MPI_Irsend, MPI_Ibsend };
static isend_fn *const init_in[MODES] = {
	MPI_Send_init,
	MPI_Ssend_init,
	MPI_Rsend_init,
	MPI_Bsend_init,
};

/* ---- helpers ---- */

static void go_to(int rank)
{
	MPI_Send(NULL, 0, MPI_BYTE, rank, 1, ctl);
}

static void go_from(int rank)
{
	MPI_Recv(NULL, 0, MPI_BYTE, rank, 1, ctl, MPI_STATUS_IGNORE);
}

static void isend(const void *buffer, size_t length, int to, int tag, MPI_Request *request)
{
	MPI_Isend(buffer, (int)length, MPI_BYTE, to, tag, comm, request);
}

static void irecv(void *buffer, size_t length, int from, int tag, MPI_Request *request)
{
	MPI_Irecv(buffer, (int)length, MPI_BYTE, from, tag, comm, request);
}

/* The partner of a pair, or MPI_PROC_NULL for an odd rank at the end. */
static int partner(void)
{
	int other = mt_rank ^ 1;

	return other < mt_size ? other : MPI_PROC_NULL;
}

/* Run body(from, to) in this rank's pair, once in each direction. */
static void both_ways(void (*body)(int from, int to))
{
	int low = mt_rank & ~1;

	if (partner() == MPI_PROC_NULL)
		return;
	body(low, low + 1);
	body(low + 1, low);
}

/* ---- every size in every mode ---- */

enum timing { POSTED, LATE, RACING };

struct transfer {
	int from, to;
	size_t length;
	enum mode mode;
	enum timing timing;
	int nonblocking;
};

static uint64_t transfer_seed(const struct transfer *t)
{
	return mt_seed((uint64_t)t->from << 32 | (uint64_t)t->to, t->length,
		       (uint64_t)t->mode << 8 | (uint64_t)t->timing << 4 | (uint64_t)t->nonblocking);
}

static void transfer_send(const struct transfer *t)
{
	unsigned char *buffer = out + t->length % 8;
	MPI_Request request = MPI_REQUEST_NULL;

	mt_fill(buffer, t->length, transfer_seed(t));
	if (t->timing == POSTED)
		go_from(t->to);
	if (t->nonblocking)
		isend_in[t->mode](buffer, (int)t->length, MPI_BYTE, t->to, TAG, comm, &request);
	else
		send_in[t->mode](buffer, (int)t->length, MPI_BYTE, t->to, TAG, comm);
	if (t->timing == LATE)
		go_to(t->to);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void transfer_receive(const struct transfer *t)
{
	unsigned char *buffer = in + (t->length + 3) % 8;
	MPI_Request request;
	MPI_Status status;

	mt_clear(buffer, t->length);
	if (t->timing == LATE)
		go_from(t->from);
	irecv(buffer, t->length, t->from, TAG, &request);
	if (t->timing == POSTED)
		go_to(t->from);
	MPI_Wait(&request, &status);
	MT_STATUS(&status, t->from, TAG, t->length);
	MT_LANDED(buffer, t->length, t->length, transfer_seed(t));
}

static void transfer(const struct transfer *t)
{
	if (mt_rank == t->from)
		transfer_send(t);
	else
		transfer_receive(t);
}

/*
 * A blocking send may wait for its receive, and ready mode needs it: so not every timing.
 * Buffered sends wait for nobody; each has a word from the receiver before or behind it, or
 * they would pile up in the attached buffer.
 */
static int transfer_legal(const struct transfer *t)
{
	if (t->mode == READY)
		return t->timing == POSTED;
	if (t->mode == BUFFERED)
		return t->timing != RACING;
	return t->timing != LATE || t->nonblocking;
}

static void every_mode(int from, int to, size_t length)
{
	struct transfer t = { .from = from, .to = to, .length = length };
	int mode, timing;

	for (mode = 0; mode < MODES; mode++) {
		for (timing = POSTED; timing <= RACING; timing++) {
			t.mode = (enum mode)mode;
			t.timing = (enum timing)timing;
			for (t.nonblocking = 0; t.nonblocking < 2; t.nonblocking++)
				if (transfer_legal(&t))
					transfer(&t);
		}
	}
}

static void small_sizes(int from, int to)
{
	size_t length;

	every_mode(from, to, 0);
	for (length = 1; length <= 300; length += 2)
		every_mode(from, to, length);
	for (length = 8; length <= 4 * KIB; length *= 2) {
		every_mode(from, to, length - 1);
		every_mode(from, to, length);
		every_mode(from, to, length + 1);
	}
}

static void medium_sizes(int from, int to)
{
	size_t length;

	for (length = 8 * KIB; length <= 512 * KIB; length *= 2) {
		every_mode(from, to, length - 1);
		every_mode(from, to, length);
		every_mode(from, to, length + 1);
	}
}

static void large_sizes(int from, int to)
{
	every_mode(from, to, MIB - 1);
	every_mode(from, to, MIB);
	every_mode(from, to, MIB + 1);
	every_mode(from, to, 3 * MIB + 4093);
	every_mode(from, to, LARGEST);
}

/* ---- ring: each ordered pair of ranks, itself included ---- */

static void sendrecv_ring(void)
{
	static const size_t lengths[] = { 0, 1, 64, 200, 1000, 4096, 8193, 40000, 300001, MIB };
	int distance;
	size_t i;

	for (distance = 0; distance < mt_size; distance++) {
		int to = (mt_rank + distance) % mt_size;
		int from = (mt_rank + mt_size - distance) % mt_size;

		for (i = 0; i < MT_COUNT(lengths); i++) {
			/* The two lengths of one exchange differ from rank to rank. */
			size_t sent = lengths[(i + (size_t)mt_rank) % MT_COUNT(lengths)];
			size_t got = lengths[(i + (size_t)from) % MT_COUNT(lengths)];
			MPI_Status status;

			mt_fill(out, sent, mt_seed(i, (uint64_t)mt_rank, (uint64_t)to));
			mt_clear(in, MIB);
			MPI_Sendrecv(out, (int)sent, MPI_BYTE, to, TAG, in, (int)MIB, MPI_BYTE, from, TAG,
				     comm, &status);
			MT_STATUS(&status, from, TAG, got);
			MT_LANDED(in, MIB, got, mt_seed(i, (uint64_t)from, (uint64_t)mt_rank));

			mt_fill(in, lengths[i], mt_seed(100 + i, (uint64_t)mt_rank, 0));
			MPI_Sendrecv_replace(in, (int)lengths[i], MPI_BYTE, to, TAG, from, TAG, comm,
					     &status);
			MT_STATUS(&status, from, TAG, lengths[i]);
			MT_PATTERN(in, lengths[i], mt_seed(100 + i, (uint64_t)from, 0));
		}
	}
}

static void proc_null(void)
{
	MPI_Request requests[2];
	MPI_Status status;
	int flag = 0;

	mt_clear(in, 100);
	MPI_Send(out, 100, MPI_BYTE, MPI_PROC_NULL, TAG, comm);
	MPI_Recv(in, 100, MPI_BYTE, MPI_PROC_NULL, TAG, comm, &status);
	MT_STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
	isend(out, 100, MPI_PROC_NULL, TAG, &requests[0]);
	irecv(in, 100, MPI_PROC_NULL, TAG, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	MPI_Iprobe(MPI_PROC_NULL, TAG, comm, &flag, &status);
	MT_CHECK(flag, "a probe of MPI_PROC_NULL found nothing");
	MT_LANDED(in, 100, 0, 0);
}

static void to_self(void)
{
	static const size_t lengths[] = { 0, 1, 64, 255, 4097, 16384, 65536, MIB, LARGEST };
	MPI_Request request;
	MPI_Status status;
	int mode, posted;
	size_t i;

	for (i = 0; i < 2 * MT_COUNT(lengths) * MODES; i++) {
		size_t length = lengths[i / (2 * MODES)];

		mode = (int)(i / 2 % MODES);
		posted = (int)(i % 2);
		mt_fill(out, length, mt_seed(i, (uint64_t)mt_rank, 5));
		mt_clear(in, length);
		if (posted) {
			irecv(in, length, mt_rank, TAG, &request);
			send_in[mode](out, (int)length, MPI_BYTE, mt_rank, TAG, comm);
			MPI_Wait(&request, &status);
		} else if (mode != READY) {
			isend_in[mode](out, (int)length, MPI_BYTE, mt_rank, TAG, comm, &request);
			MPI_Probe(mt_rank, MPI_ANY_TAG, comm, &status);
			MT_STATUS(&status, mt_rank, TAG, length);
			MPI_Recv(in, (int)length, MPI_BYTE, MPI_ANY_SOURCE, TAG, comm, &status);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else {
			continue;
		}
		MT_STATUS(&status, mt_rank, TAG, length);
		MT_LANDED(in, length, length, mt_seed(i, (uint64_t)mt_rank, 5));
	}
}

/* ---- persistent requests ---- */

enum { ROUNDS = 12, PERSISTENT_LENGTHS = 6 };

static const size_t persistent_length[PERSISTENT_LENGTHS] = { 0, 33, 512, 5000, 20000, 200000 };

static uint64_t persistent_seed(int round, int mode, int which)
{
	return mt_seed((uint64_t)round, (uint64_t)mode, (uint64_t)which);
}

static void persistent_init(int i, unsigned char *buffer, int to, MPI_Request *request)
{
	int length = (int)persistent_length[i % PERSISTENT_LENGTHS];

	init_in[i / PERSISTENT_LENGTHS](buffer, length, MPI_BYTE, to, i, comm, request);
}

static void persistent_send(int to)
{
	MPI_Request requests[MODES * PERSISTENT_LENGTHS];
	unsigned char *buffers[MODES * PERSISTENT_LENGTHS];
	int i, round;

	for (i = 0; i < MODES * PERSISTENT_LENGTHS; i++) {
		buffers[i] = mt_alloc(persistent_length[i % PERSISTENT_LENGTHS]);
		persistent_init(i, buffers[i], to, &requests[i]);
	}
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < MODES * PERSISTENT_LENGTHS; i++) {
			mt_fill(buffers[i], persistent_length[i % PERSISTENT_LENGTHS],
				persistent_seed(round, i / PERSISTENT_LENGTHS, i));
			/*
			 * Open MPI 4.1, over any transport, sends stale bytes when a
			 * persistent buffered send is started again: so start it once.
			 */
			if (i / PERSISTENT_LENGTHS == BUFFERED && round > 0) {
				MPI_Request_free(&requests[i]);
				persistent_init(i, buffers[i], to, &requests[i]);
			}
		}
		go_from(to);
		MPI_Startall(MODES * PERSISTENT_LENGTHS, requests);
		MPI_Waitall(MODES * PERSISTENT_LENGTHS, requests, MPI_STATUSES_IGNORE);
	}
	for (i = 0; i < MODES * PERSISTENT_LENGTHS; i++) {
		MPI_Request_free(&requests[i]);
		mt_free(buffers[i]);
	}
}

static void persistent_receive(int from)
{
	MPI_Request requests[MODES * PERSISTENT_LENGTHS];
	MPI_Status statuses[MODES * PERSISTENT_LENGTHS];
	unsigned char *buffers[MODES * PERSISTENT_LENGTHS];
	int i, round;

	for (i = 0; i < MODES * PERSISTENT_LENGTHS; i++) {
		size_t length = persistent_length[i % PERSISTENT_LENGTHS];

		buffers[i] = mt_alloc(length);
		MPI_Recv_init(buffers[i], (int)length, MPI_BYTE, i % 3 ? from : MPI_ANY_SOURCE, i, comm,
			      &requests[i]);
	}
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < MODES * PERSISTENT_LENGTHS; i++)
			mt_clear(buffers[i], persistent_length[i % PERSISTENT_LENGTHS]);
		MPI_Startall(MODES * PERSISTENT_LENGTHS, requests);
		go_to(from);
		MPI_Waitall(MODES * PERSISTENT_LENGTHS, requests, statuses);
		for (i = 0; i < MODES * PERSISTENT_LENGTHS; i++) {
			size_t length = persistent_length[i % PERSISTENT_LENGTHS];

			MT_STATUS(&statuses[i], from, i, length);
			MT_LANDED(buffers[i], length, length,
				  persistent_seed(round, i / PERSISTENT_LENGTHS, i));
		}
	}
	for (i = 0; i < MODES * PERSISTENT_LENGTHS; i++) {
		MPI_Request_free(&requests[i]);
		mt_free(buffers[i]);
	}
}

static void persistent(int from, int to)
{
	if (mt_rank == from)
		persistent_send(to);
	else
		persistent_receive(from);
}

/* ---- probes ---- */

static const size_t probe_lengths[] = { 0, 1, 64, 300, 4096, 8193, 65536, MIB };

enum { PROBE_WAYS = 6 };

/* Learn of the next message in one of several ways, and receive it. */
static void probe_one(int way, int from, int tag, size_t length)
{
	int source = way % 2 ? MPI_ANY_SOURCE : from;
	MPI_Request request;
	MPI_Message message = MPI_MESSAGE_NULL;
	MPI_Status status;
	int flag;

	mt_clear(in, length);
	switch (way / 2) {
	case 0:
		MPI_Probe(source, tag, comm, &status);
		MT_STATUS(&status, from, tag, length);
		/* A probe takes nothing away: a second one finds the same message. */
		for (flag = 0; !flag;)
			MPI_Iprobe(source, MPI_ANY_TAG, comm, &flag, &status);
		MT_STATUS(&status, from, tag, length);
		MPI_Recv(in, (int)length, MPI_BYTE, from, tag, comm, &status);
		break;
	case 1:
		MPI_Mprobe(source, tag, comm, &message, &status);
		MT_STATUS(&status, from, tag, length);
		MPI_Mrecv(in, (int)length, MPI_BYTE, &message, &status);
		break;
	default:
		for (flag = 0; !flag;)
			MPI_Improbe(source, way == 4 ? tag : MPI_ANY_TAG, comm, &flag, &message, &status);
		MT_STATUS(&status, from, tag, length);
		MPI_Imrecv(in, (int)length, MPI_BYTE, &message, &request);
		MPI_Wait(&request, &status);
		break;
	}
	MT_CHECK(message == MPI_MESSAGE_NULL, "a message handle outlived its receive");
	MT_STATUS(&status, from, tag, length);
	MT_LANDED(in, length, length, mt_seed((uint64_t)way, (uint64_t)tag, length));
}

static void probes(int from, int to)
{
	MPI_Status status;
	int way, flag, tag;
	size_t i;

	if (mt_rank == to) {
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status);
		MT_CHECK(!flag, "a probe found a message that nobody sent");
		go_to(from);
	} else {
		go_from(to);
	}
	for (way = 0; way < PROBE_WAYS; way++) {
		for (i = 0; i < MT_COUNT(probe_lengths); i++) {
			tag = (int)i + 20;
			if (mt_rank == from) {
				mt_fill(out, probe_lengths[i],
					mt_seed((uint64_t)way, (uint64_t)tag, probe_lengths[i]));
				/* Open MPI 4.1's mtl/ofi forgets to tell a synchronous sender
				 * that its message went to MPI_Mrecv: none of those there. */
				send_in[way < 2 ? SYNCHRONOUS : STANDARD](out, (int)probe_lengths[i],
									  MPI_BYTE, to, tag, comm);
			} else {
				probe_one(way, from, tag, probe_lengths[i]);
			}
		}
	}
}

/* Messages taken by MPI_Mprobe are out of the queue; the later ones move up. */
static void matched_probes(int from, int to)
{
	enum { MESSAGES = 12 };
	static const size_t step = 3000;
	MPI_Request requests[MESSAGES];
	MPI_Message taken[MESSAGES];
	MPI_Status status;
	unsigned char *buffers[MESSAGES];
	int i, flag;

	if (mt_rank == from) {
		for (i = 0; i < MESSAGES; i++) {
			buffers[i] = mt_alloc((size_t)i * step);
			mt_fill(buffers[i], (size_t)i * step, mt_seed(9, (uint64_t)i, 0));
			isend(buffers[i], (size_t)i * step, to, TAG, &requests[i]);
		}
		MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
		for (i = 0; i < MESSAGES; i++)
			mt_free(buffers[i]);
		return;
	}
	for (i = 0; i < MESSAGES; i += 2) {
		MPI_Mprobe(from, TAG, comm, &taken[i], &status);
		MT_STATUS(&status, from, TAG, (size_t)i * step);
		mt_clear(in, (size_t)(i + 1) * step);
		MPI_Recv(in, (i + 1) * (int)step, MPI_BYTE, from, TAG, comm, &status);
		MT_STATUS(&status, from, TAG, (size_t)(i + 1) * step);
		MT_LANDED(in, (size_t)(i + 1) * step, (size_t)(i + 1) * step,
			  mt_seed(9, (uint64_t)i + 1, 0));
	}
	MPI_Iprobe(from, TAG, comm, &flag, MPI_STATUS_IGNORE);
	MT_CHECK(!flag, "a probe found a message that a matched probe had taken");
	for (i = MESSAGES - 2; i >= 0; i -= 2) {
		mt_clear(in, (size_t)i * step);
		MPI_Mrecv(in, i * (int)step, MPI_BYTE, &taken[i], &status);
		MT_STATUS(&status, from, TAG, (size_t)i * step);
		MT_LANDED(in, (size_t)i * step, (size_t)i * step, mt_seed(9, (uint64_t)i, 0));
	}
}

/* ---- cancelled receives ---- */

static void cancel_unmatched(int from, int to)
{
	enum { POSTS = 60 };
	static const size_t length = 777;
	MPI_Request requests[POSTS];
	MPI_Status status;
	int i, cancelled;

	if (mt_rank == from) {
		go_from(to);
		for (i = 0; i < POSTS; i++) {
			mt_fill(out, length, mt_seed(11, (uint64_t)i, 0));
			MPI_Send(out, (int)length, MPI_BYTE, to, i, comm);
		}
		return;
	}
	for (i = 0; i < POSTS; i++) {
		mt_clear(in + (size_t)i * 1024, length);
		irecv(in + (size_t)i * 1024, length, i % 2 ? from : MPI_ANY_SOURCE, i, &requests[i]);
	}
	for (i = 0; i < POSTS; i += 3) {
		MPI_Cancel(&requests[i]);
		MPI_Wait(&requests[i], &status);
		MPI_Test_cancelled(&status, &cancelled);
		MT_CHECK(cancelled, "receive %d was not cancelled, though nothing was sent", i);
	}
	go_to(from);
	for (i = 0; i < POSTS; i++) {
		unsigned char *buffer = in + (size_t)i * 1024;

		if (i % 3 == 0) {
			/* The cancelled receive must not have caught the message. */
			MPI_Recv(out, (int)length, MPI_BYTE, from, i, comm, &status);
			MT_STATUS(&status, from, i, length);
			MT_PATTERN(out, length, mt_seed(11, (uint64_t)i, 0));
			MT_LANDED(buffer, length, 0, 0);
		} else {
			MPI_Wait(&requests[i], &status);
			MPI_Test_cancelled(&status, &cancelled);
			MT_CHECK(!cancelled, "receive %d says it was cancelled", i);
			MT_STATUS(&status, from, i, length);
			MT_LANDED(buffer, length, length, mt_seed(11, (uint64_t)i, 0));
		}
	}
}

/* A cancel that races with the message: cancelled or received, never both, never neither. */
static void cancel_racing(int from, int to)
{
	enum { TRIES = 300 };
	static const size_t lengths[] = { 16, 2000, 50000 };
	MPI_Request request;
	MPI_Status status;
	int i, cancelled;

	for (i = 0; i < TRIES; i++) {
		size_t length = lengths[(size_t)i % MT_COUNT(lengths)];

		if (mt_rank == from) {
			mt_fill(out, length, mt_seed(12, (uint64_t)i, 0));
			MPI_Send(out, (int)length, MPI_BYTE, to, TAG, comm);
			continue;
		}
		mt_clear(in, length);
		irecv(in, length, from, TAG, &request);
		MPI_Cancel(&request);
		MPI_Wait(&request, &status);
		MPI_Test_cancelled(&status, &cancelled);
		if (cancelled) {
			MT_LANDED(in, length, 0, 0);
			MPI_Recv(in, (int)length, MPI_BYTE, from, TAG, comm, &status);
		}
		MT_STATUS(&status, from, TAG, length);
		MT_LANDED(in, length, length, mt_seed(12, (uint64_t)i, 0));
	}
}

/* ---- matching against a model ---- */

enum { MATCHES = 24, MATCH_TAGS = 3, MATCH_ROUNDS = 150, MATCH_ROOM = 48 * 1024 };

struct post {
	int source, tag, message;
};

struct match_plan {
	struct post posts[MATCHES];
	int tags[MATCHES];
	size_t lengths[MATCHES];
	int taken[MATCHES];
};

/*
 * Both ranks draw the same plan. One sender, messages and receives in order: the result of
 * MPI's matching then does not depend on timing, and the first fitting receive is it.
 */
static void match_plan_draw(struct match_plan *plan, uint64_t seed, int from)
{
	static const size_t lengths[] = { 0, 8, 100, 1000, 4097, 9000, 20000, 40000 };
	int m, p;

	for (p = 0; p < MATCHES; p++) {
		plan->posts[p].source = mt_random(&seed, 2) ? from : MPI_ANY_SOURCE;
		plan->posts[p].tag = (int)mt_random(&seed, MATCH_TAGS + 1);
		if (plan->posts[p].tag == MATCH_TAGS)
			plan->posts[p].tag = MPI_ANY_TAG;
		plan->posts[p].message = -1;
	}
	for (m = 0; m < MATCHES; m++) {
		plan->tags[m] = (int)mt_random(&seed, MATCH_TAGS);
		plan->lengths[m] = lengths[mt_random(&seed, MT_COUNT(lengths))];
		plan->taken[m] = 0;
		for (p = 0; p < MATCHES && !plan->taken[m]; p++) {
			struct post *post = &plan->posts[p];

			if (post->message < 0 &&
			    (post->tag == MPI_ANY_TAG || post->tag == plan->tags[m])) {
				post->message = m;
				plan->taken[m] = 1;
			}
		}
	}
}

static void match_send(const struct match_plan *plan, int round, int to)
{
	MPI_Request requests[MATCHES];
	int m;

	for (m = 0; m < MATCHES; m++)
		mt_fill(out + m * MATCH_ROOM, plan->lengths[m], mt_seed(13, (uint64_t)round, (uint64_t)m));
	if (round % 3 == POSTED)
		go_from(to);
	for (m = 0; m < MATCHES; m++)
		isend_in[m % 5 == 4 ? SYNCHRONOUS : STANDARD](out + m * MATCH_ROOM, (int)plan->lengths[m],
							      MPI_BYTE, to, plan->tags[m], comm,
							      &requests[m]);
	if (round % 3 == LATE)
		go_to(to);
	MPI_Waitall(MATCHES, requests, MPI_STATUSES_IGNORE);
}

static void match_receive(const struct match_plan *plan, int round, int from)
{
	MPI_Request requests[MATCHES];
	MPI_Status status;
	int m, p, cancelled;

	for (p = 0; p < MATCHES; p++)
		mt_clear(in + p * MATCH_ROOM, MATCH_ROOM - 2 * MT_GUARD);
	if (round % 3 == LATE)
		go_from(from);
	for (p = 0; p < MATCHES; p++)
		irecv(in + p * MATCH_ROOM, MATCH_ROOM - 2 * MT_GUARD, plan->posts[p].source,
		      plan->posts[p].tag, &requests[p]);
	if (round % 3 == POSTED)
		go_to(from);
	for (p = 0; p < MATCHES; p++) {
		m = plan->posts[p].message;
		if (m < 0)
			MPI_Cancel(&requests[p]);
		MPI_Wait(&requests[p], &status);
		MPI_Test_cancelled(&status, &cancelled);
		MT_CHECK(cancelled == (m < 0), "round %d: receive %d: cancelled %d, expected %d", round, p,
			 cancelled, m < 0);
		if (m < 0)
			continue;
		MT_STATUS(&status, from, plan->tags[m], plan->lengths[m]);
		MT_LANDED(in + p * MATCH_ROOM, MATCH_ROOM - 2 * MT_GUARD, plan->lengths[m],
			  mt_seed(13, (uint64_t)round, (uint64_t)m));
	}
	/* The messages that no receive has taken are still there, in order. */
	for (m = 0; m < MATCHES; m++) {
		if (plan->taken[m])
			continue;
		mt_clear(in, MATCH_ROOM);
		MPI_Recv(in, MATCH_ROOM, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
		MT_STATUS(&status, from, plan->tags[m], plan->lengths[m]);
		MT_LANDED(in, MATCH_ROOM, plan->lengths[m], mt_seed(13, (uint64_t)round, (uint64_t)m));
	}
}

static void matching(int from, int to)
{
	struct match_plan plan;
	int round;

	for (round = 0; round < MATCH_ROUNDS; round++) {
		match_plan_draw(&plan, mt_seed((uint64_t)round, (uint64_t)from, 14), from);
		if (mt_rank == from) {
			match_send(&plan, round, to);
			go_from(to); /* or the next round's messages meet this one's receives */
		} else {
			match_receive(&plan, round, from);
			go_to(from);
		}
	}
}

/* ---- wildcards with several senders ---- */

enum { FAN_MESSAGES = 400, FAN_ROOM = 20000 };

static size_t fan_length(int source, int number)
{
	return (size_t)(mt_seed(15, (uint64_t)source, (uint64_t)number) %
			(number % 10 == 0 ? FAN_ROOM : 300));
}

static void fan_send(int root)
{
	int i;

	for (i = 0; i < FAN_MESSAGES; i++) {
		size_t length = fan_length(mt_rank, i);

		mt_fill(out, length, mt_seed((uint64_t)mt_rank, (uint64_t)i, (uint64_t)root));
		MPI_Send(out, (int)length, MPI_BYTE, root, i, comm);
	}
}

/* From each source in its order, whatever the order between sources. */
static void fan_receive(int root)
{
	int *next = calloc((size_t)mt_size, sizeof(*next));
	MPI_Status status;
	int i;

	MT_CHECK(next, "no memory");
	for (i = 0; i < FAN_MESSAGES * (mt_size - 1); i++) {
		int source;

		mt_clear(in, FAN_ROOM);
		MPI_Recv(in, FAN_ROOM, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
		source = status.MPI_SOURCE;
		MT_CHECK(source >= 0 && source < mt_size && source != root, "source %d", source);
		MT_STATUS(&status, source, next[source], fan_length(source, next[source]));
		MT_LANDED(in, FAN_ROOM, fan_length(source, next[source]),
			  mt_seed((uint64_t)source, (uint64_t)next[source], (uint64_t)root));
		next[source]++;
	}
	free(next);
}

static void fan_in(void)
{
	int root;

	for (root = 0; root < mt_size; root++) {
		if (mt_rank == root)
			fan_receive(root);
		else
			fan_send(root);
		MPI_Barrier(ctl);
	}
}

/* ---- wait and test for any, some, all ---- */

enum { WAITERS = 48, WAIT_ROOM = 24 * 1024, COMPLETIONS = 6 };

/* Wait for what one of the six calls reports; the indices it gives, or 0 when all are done. */
static int complete_some(int way, MPI_Request *requests, int *indices, MPI_Status *statuses)
{
	int done = 0, flag = 0, i;

	switch (way) {
	case 0:
		MPI_Waitany(WAITERS, requests, &indices[0], &statuses[0]);
		return indices[0] == MPI_UNDEFINED ? 0 : 1;
	case 1:
		MPI_Waitsome(WAITERS, requests, &done, indices, statuses);
		return done == MPI_UNDEFINED ? 0 : done;
	case 2:
		while (!flag)
			MPI_Testany(WAITERS, requests, &indices[0], &flag, &statuses[0]);
		return indices[0] == MPI_UNDEFINED ? 0 : 1;
	case 3:
		while (!done)
			MPI_Testsome(WAITERS, requests, &done, indices, statuses);
		return done == MPI_UNDEFINED ? 0 : done;
	case 4:
		while (!flag)
			MPI_Testall(WAITERS, requests, &flag, statuses);
		break;
	default:
		MPI_Waitall(WAITERS, requests, statuses);
		break;
	}
	for (i = 0; i < WAITERS; i++)
		indices[i] = i;
	return WAITERS;
}

static void waits_receive(int way, int from)
{
	MPI_Request requests[WAITERS];
	MPI_Status statuses[WAITERS];
	int indices[WAITERS], seen[WAITERS] = { 0 };
	int total = 0, done, i;

	for (i = 0; i < WAITERS; i++) {
		mt_clear(in + i * WAIT_ROOM, WAIT_ROOM - 2 * MT_GUARD);
		irecv(in + i * WAIT_ROOM, WAIT_ROOM - 2 * MT_GUARD, from, i, &requests[i]);
	}
	while (total < WAITERS) {
		done = complete_some(way, requests, indices, statuses);
		MT_CHECK(done > 0 && total + done <= WAITERS, "%d completions after %d of %d", done, total,
			 WAITERS);
		for (i = 0; i < done; i++) {
			int at = indices[i];
			size_t length = (size_t)at * 499;

			MT_CHECK(at >= 0 && at < WAITERS && !seen[at],
				 "completion of request %d is out of range or a second one", at);
			seen[at] = 1;
			MT_STATUS(&statuses[i], from, at, length);
			MT_LANDED(in + at * WAIT_ROOM, WAIT_ROOM - 2 * MT_GUARD, length,
				  mt_seed(16, (uint64_t)way, (uint64_t)at));
			MT_CHECK(requests[at] == MPI_REQUEST_NULL, "request %d is not null", at);
		}
		total += done;
	}
	if (way < 4)
		MT_CHECK(complete_some(way, requests, indices, statuses) == 0,
			 "completions with no request left");
}

static void waits_send(int way, int to)
{
	MPI_Request requests[WAITERS];
	MPI_Status statuses[WAITERS];
	int indices[WAITERS];
	int i, total = 0;

	for (i = 0; i < WAITERS; i++) {
		int tag = (i * 29 + way) % WAITERS; /* 29 and 48 have no common factor */

		mt_fill(out + i * WAIT_ROOM, (size_t)tag * 499, mt_seed(16, (uint64_t)way, (uint64_t)tag));
		isend(out + i * WAIT_ROOM, (size_t)tag * 499, to, tag, &requests[i]);
	}
	while (total < WAITERS)
		total += complete_some(way, requests, indices, statuses);
	MT_CHECK(total == WAITERS, "%d send completions of %d", total, WAITERS);
}

static void waits(int from, int to)
{
	int way;

	for (way = 0; way < COMPLETIONS; way++) {
		if (mt_rank == from)
			waits_send(way, to);
		else
			waits_receive(way, from);
	}
}

/* ---- truncation ---- */

static void expect_truncated(int code)
{
	int class = MPI_SUCCESS;

	MPI_Error_class(code, &class);
	MT_CHECK(class == MPI_ERR_TRUNCATE, "error class %d, expected MPI_ERR_TRUNCATE (%d)", class,
		 MPI_ERR_TRUNCATE);
}

struct cut {
	size_t sent, room;
};

static void truncated_receive(int from, const struct cut *cut, enum timing timing)
{
	MPI_Request request;
	MPI_Status status;

	mt_clear(in, cut->room);
	if (timing == LATE)
		go_from(from);
	irecv(in, cut->room, from, TAG, &request);
	if (timing == POSTED)
		go_to(from);
	if (cut->sent % 2) {
		expect_truncated(MPI_Wait(&request, &status));
	} else {
		status.MPI_ERROR = MPI_SUCCESS;
		int code = MPI_Waitall(1, &request, &status);

		expect_truncated(code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : code);
	}
	mt_untouched(__LINE__, in + cut->room, in + cut->room + MT_GUARD, "behind a cut message");
	mt_untouched(__LINE__, in - MT_GUARD, in, "before a cut message");
}

/* A message longer than its receive is an error at the receiver; later messages are not harmed. */
static void truncation(int from, int to)
{
	static const struct cut cuts[] = {
		{ 1, 0 },	{ 100, 99 },	{ 101, 0 },	  { 200, 64 },		{ 1001, 100 },
		{ 5000, 4096 }, { 5001, 100 },	{ 20000, 8192 },  { 70001, 1000 },	{ 100000, 99999 },
		{ MIB, 4096 },	{ MIB + 1, 0 }, { MIB, MIB - 1 }, { 5 * MIB, 3 * MIB },
	};
	MPI_Request request;
	MPI_Status status;
	size_t i;

	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (i = 0; i < 2 * MT_COUNT(cuts); i++) {
		const struct cut *cut = &cuts[i / 2];
		enum timing timing = i % 2 ? LATE : POSTED;

		if (mt_rank == from) {
			if (timing == POSTED)
				go_from(to);
			isend(out, cut->sent, to, TAG, &request);
			if (timing == LATE)
				go_to(to);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			mt_fill(out, cut->sent, mt_seed(17, i, 0));
			MPI_Send(out, (int)cut->sent, MPI_BYTE, to, TAG, comm);
		} else {
			truncated_receive(from, cut, timing);
			mt_clear(in, cut->sent);
			MT_CHECK(MPI_Recv(in, (int)cut->sent, MPI_BYTE, from, TAG, comm, &status) ==
					 MPI_SUCCESS,
				 "error in the receive after a cut one");
			MT_STATUS(&status, from, TAG, cut->sent);
			MT_LANDED(in, cut->sent, cut->sent, mt_seed(17, i, 0));
		}
	}
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

/* ---- order ---- */

/* Messages of all sizes do not overtake each other, whatever way each of them takes. */
static void ordering(int from, int to)
{
	enum { MESSAGES = 600, WINDOW = 40, ROOM = 72 * 1024 };
	static const size_t lengths[] = { 8, 40000, 0, 3000, 64, 70000, 300, 12000, 1 };
	MPI_Request requests[WINDOW];
	int base, i;

	for (base = 0; base < MESSAGES; base += WINDOW) {
		for (i = 0; i < WINDOW; i++) {
			size_t length = lengths[(size_t)(base + i) % MT_COUNT(lengths)];
			uint64_t seed = mt_seed(18, (uint64_t)(base + i), 0);

			if (mt_rank == from) {
				mt_fill(out + i * ROOM, length, seed);
				isend(out + i * ROOM, length, to, TAG, &requests[i]);
			} else {
				mt_clear(in + i * ROOM, length);
				irecv(in + i * ROOM, length, from, TAG, &requests[i]);
			}
		}
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		for (i = 0; i < WINDOW && mt_rank == to; i++) {
			size_t length = lengths[(size_t)(base + i) % MT_COUNT(lengths)];

			MT_LANDED(in + i * ROOM, length, length, mt_seed(18, (uint64_t)(base + i), 0));
		}
	}
}

/* ---- floods of messages that nobody has posted a receive for ---- */

enum { FLOOD = 2000 };

static const size_t flood_lengths[] = { 64, 4096, 40960 };

static uint64_t flood_seed(int source, size_t length, int number)
{
	return mt_seed((uint64_t)source, length, (uint64_t)number);
}

/* FLOOD nonblocking sends, each message with its own number as the tag. */
static unsigned char *flood_start(int to, size_t length, MPI_Request *requests)
{
	unsigned char *buffers = mt_alloc(FLOOD * length);
	int i;

	for (i = 0; i < FLOOD; i++) {
		mt_fill(buffers + (size_t)i * length, length, flood_seed(mt_rank, length, i));
		isend(buffers + (size_t)i * length, length, to, i, &requests[i]);
	}
	return buffers;
}

static void flood_receive(int from, size_t length, int backwards)
{
	MPI_Status status;
	int i;

	for (i = 0; i < FLOOD; i++) {
		int number = backwards ? FLOOD - 1 - i : i;

		mt_clear(in, length);
		MPI_Recv(in, (int)length, MPI_BYTE, from, backwards ? number : MPI_ANY_TAG, comm, &status);
		MT_STATUS(&status, from, number, length);
		MT_LANDED(in, length, length, flood_seed(from, length, number));
	}
}

/*
 * `first` floods `second`, which first waits for a word from `third`, which waits for one from
 * `first`: no receive for the flood is posted before all of it was sent. With two ranks, the
 * third is the first.
 */
static void flood_around(int first, size_t length)
{
	int second = (first + 1) % mt_size;
	int third = (first + 2) % mt_size;
	MPI_Request requests[FLOOD];
	unsigned char *buffers;

	if (mt_rank == first) {
		buffers = flood_start(second, length, requests);
		go_to(third == first ? second : third);
		MPI_Waitall(FLOOD, requests, MPI_STATUSES_IGNORE);
		mt_free(buffers);
	} else if (mt_rank == second) {
		go_from(third);
		flood_receive(first, length, first % 2);
	} else if (mt_rank == third) {
		go_from(first);
		go_to(second);
	}
}

/* Two ranks flood each other, and only then begin to receive. */
static void flood_exchange(int other, size_t length)
{
	MPI_Request requests[FLOOD];
	unsigned char *buffers;

	if (other == MPI_PROC_NULL)
		return;
	buffers = flood_start(other, length, requests);
	MPI_Sendrecv(NULL, 0, MPI_BYTE, other, 1, NULL, 0, MPI_BYTE, other, 1, ctl, MPI_STATUS_IGNORE);
	flood_receive(other, length, mt_rank % 2);
	MPI_Waitall(FLOOD, requests, MPI_STATUSES_IGNORE);
	mt_free(buffers);
}

static void floods(void)
{
	size_t i;
	int first;

	for (i = 0; i < MT_COUNT(flood_lengths); i++) {
		for (first = 0; first < mt_size; first++) {
			flood_around(first, flood_lengths[i]);
			MPI_Barrier(ctl);
		}
		flood_exchange(partner(), flood_lengths[i]);
		MPI_Barrier(ctl);
	}
}

/* ---- everything at once ---- */

enum { STORM_ROUNDS = 30, STORM_MESSAGES = 20, STORM_ROOM = 100 * 1024 };

static size_t storm_length(int round, int from, int to, int number)
{
	static const unsigned limits[] = { 100, 100, 300, 5000, 20000, STORM_ROOM - 2 * MT_GUARD };
	uint64_t state = mt_seed((uint64_t)round, (uint64_t)from * 1000 + (uint64_t)to, (uint64_t)number);

	return mt_random(&state, limits[mt_random(&state, MT_COUNT(limits))]);
}

static uint64_t storm_seed(int round, int from, int to, int number)
{
	return mt_seed((uint64_t)round * 100 + (uint64_t)number, (uint64_t)from, (uint64_t)to);
}

/* Every rank to every rank, several messages of random size, in all modes but ready. */
static void storm(void)
{
	static const enum mode modes[] = { STANDARD, SYNCHRONOUS, BUFFERED };
	int messages = mt_size * STORM_MESSAGES;
	MPI_Request *requests = calloc((size_t)messages * 2, sizeof(MPI_Request));
	unsigned char *sent = mt_alloc((size_t)messages * STORM_ROOM);
	unsigned char *got = mt_alloc((size_t)messages * STORM_ROOM);
	int round, i;

	MT_CHECK(requests, "no memory");
	for (round = 0; round < STORM_ROUNDS; round++) {
		for (i = 0; i < messages; i++) {
			int peer = (mt_rank + i) % mt_size;
			unsigned char *buffer = got + (size_t)i * STORM_ROOM;

			mt_clear(buffer, STORM_ROOM - 2 * MT_GUARD);
			irecv(buffer, STORM_ROOM - 2 * MT_GUARD, peer, i / mt_size, &requests[i]);
		}
		for (i = 0; i < messages; i++) {
			int peer = (mt_rank + i) % mt_size;
			unsigned char *buffer = sent + (size_t)i * STORM_ROOM;
			size_t length = storm_length(round, mt_rank, peer, i / mt_size);

			mt_fill(buffer, length, storm_seed(round, mt_rank, peer, i / mt_size));
			isend_in[modes[(i + round) % 3]](buffer, (int)length, MPI_BYTE, peer, i / mt_size,
							 comm, &requests[messages + i]);
		}
		MPI_Waitall(messages * 2, requests, MPI_STATUSES_IGNORE);
		for (i = 0; i < messages; i++) {
			int peer = (mt_rank + i) % mt_size;

			MT_LANDED(got + (size_t)i * STORM_ROOM, STORM_ROOM - 2 * MT_GUARD,
				  storm_length(round, peer, mt_rank, i / mt_size),
				  storm_seed(round, peer, mt_rank, i / mt_size));
		}
	}
	mt_free(sent);
	mt_free(got);
	free(requests);
}

/* ---- the program ---- */

struct section {
	const char *name;
	void (*pair)(int from, int to);
	void (*all)(void);
};

static const struct section sections[] = {
	{ "small sizes in every mode", small_sizes, NULL },
	{ "medium sizes in every mode", medium_sizes, NULL },
	{ "large sizes in every mode", large_sizes, NULL },
	{ "sendrecv around the ring", NULL, sendrecv_ring },
	{ "MPI_PROC_NULL", NULL, proc_null },
	{ "messages to self", NULL, to_self },
	{ "persistent requests", persistent, NULL },
	{ "probes", probes, NULL },
	{ "matched probes", matched_probes, NULL },
	{ "cancel of unmatched receives", cancel_unmatched, NULL },
	{ "cancel against arrival", cancel_racing, NULL },
	{ "matching against a model", matching, NULL },
	{ "wildcards with several senders", NULL, fan_in },
	{ "wait and test any, some, all", waits, NULL },
	{ "truncation", truncation, NULL },
	{ "order over sizes", ordering, NULL },
	{ "unexpected floods", NULL, floods },
	{ "all to all storm", NULL, storm },
};

int main(int argc, char **argv)
{
	size_t room = 5 * LARGEST, i; /* four of the largest buffered sends, and a rest */
	void *buffered;

	mt_init(&argc, &argv, "p2p");
	MT_CHECK(mt_size >= 2, "needs two ranks");
	out = mt_alloc(LARGEST);
	in = mt_alloc(LARGEST);
	buffered = malloc(room);
	MT_CHECK(buffered, "no memory");
	MPI_Buffer_attach(buffered, (int)room);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_dup(MPI_COMM_WORLD, &ctl);
	for (i = 0; i < MT_COUNT(sections); i++) {
		if (!mt_section(sections[i].name))
			continue;
		if (sections[i].pair)
			both_ways(sections[i].pair);
		else
			sections[i].all();
	}
	MPI_Buffer_detach(&buffered, &(int){ 0 });
	free(buffered);
	MPI_Comm_free(&ctl);
	MPI_Comm_free(&comm);
	mt_free(in);
	mt_free(out);
	return mt_done();
}
