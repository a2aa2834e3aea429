/* SPDX-License-Identifier: BSD-2-Clause */
/* test_cq.c: fi_cq(3), call by call. */
#include "pair.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

static char out[64], in[64];

/* One message from a to b; the contexts of both operations are the buffers. */
static void message(struct pair *pair, bool tagged, uint64_t data)
{
	struct kind_msg msg = {
		.iov = { { out, 10 } }, .iov_count = 1, .addr = pair->a.peer, .data = data, .context = out
	};

	gives(kind_recv(tagged, &pair->b, in, sizeof(in), FI_ADDR_UNSPEC, in), 0);
	post(pair, kind_sendmsg(tagged, &pair->a, &msg, data ? FI_REMOTE_CQ_DATA : 0));
}

/* ---- open ------------------------------------------------------------------------------------ */

static int open_with(struct pair *pair, const struct fi_cq_attr *wanted)
{
	struct fi_cq_attr attr = *wanted;
	struct fid_cq *cq;
	int ret = fi_cq_open(pair->domain, &attr, &cq, &attr);

	if (!ret) {
		gives(cq->fid.fclass, FI_CLASS_CQ);
		must(cq->fid.context == &attr);
		gives(fi_close(&cq->fid), 0);
	}
	return ret;
}

static void open_attributes(void)
{
	struct fid_cq *cq;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	for (int format = FI_CQ_FORMAT_UNSPEC; format <= FI_CQ_FORMAT_TAGGED; format++)
		gives(open_with(&pair, &(struct fi_cq_attr){ .format = format }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .format = FI_CQ_FORMAT_TAGGED + 1 }), -FI_EINVAL);
	gives(open_with(&pair, &(struct fi_cq_attr){ .format = -1 }), -FI_EINVAL);

	for (size_t size = 0; size < 100000; size = size * 3 + 1)
		gives(open_with(&pair, &(struct fi_cq_attr){ .size = size }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .size = SIZE_MAX }), 0);

	gives(open_with(&pair, &(struct fi_cq_attr){ .flags = FI_AFFINITY, .signaling_vector = 1 }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .flags = FI_PEEK }), -FI_EBADFLAGS);
	gives(open_with(&pair, &(struct fi_cq_attr){ .flags = 1ULL << 63 }), -FI_EBADFLAGS);

	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_UNSPEC }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_YIELD }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_UNSPEC,
						     .wait_cond = FI_CQ_COND_THRESHOLD }),
	      0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_UNSPEC, .wait_cond = 7 }),
	      -FI_EINVAL);
	/* ignored without a wait object */
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_NONE, .wait_cond = 7 }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_FD }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_MUTEX_COND }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_SET }),
	      -FI_EINVAL); /* none given */
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = FI_WAIT_POLLFD }), 0);
	gives(open_with(&pair, &(struct fi_cq_attr){ .wait_obj = 99 }), -FI_EINVAL);

	gives(fi_cq_open(pair.domain, NULL, &cq, NULL), 0);
	gives(fi_close(&pair.domain->fid), -FI_EBUSY);
	gives(fi_close(&cq->fid), 0);
	pair_close(&pair);
}

static void control(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_YIELD };
	enum fi_wait_obj wait_obj = FI_WAIT_NONE;
	void *object;
	struct pair pair;

	pair_open(&pair, &want);
	gives(fi_control(&pair.a.cq->fid, FI_GETWAITOBJ, &wait_obj), 0);
	gives(wait_obj, FI_WAIT_YIELD);
	gives(fi_control(&pair.a.cq->fid, FI_GETWAIT, &object), -FI_ENODATA);
	gives(fi_control(&pair.a.cq->fid, FI_BACKLOG, &object), -FI_ENOSYS);
	pair_close(&pair);
}

static void close_while_bound(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_close(&pair.a.cq->fid), -FI_EBUSY);
	gives(fi_close(&pair.a.ep->fid), 0);
	pair.a.ep = NULL;
	gives(fi_close(&pair.a.cq->fid), 0);
	pair.a.cq = NULL;
	pair_close(&pair);
}

/* ---- read ------------------------------------------------------------------------------------ */

static void nothing_to_read(void)
{
	struct fi_cq_err_entry error = { .err = 1 };
	struct fi_cq_tagged_entry entries[2];
	fi_addr_t sources[2];
	struct pair pair;
	struct fid_cq *unbound;

	pair_open(&pair, NULL);
	gives(fi_cq_read(pair.a.cq, entries, 2), -FI_EAGAIN);
	gives(fi_cq_read(pair.a.cq, NULL, 0), -FI_EAGAIN);
	gives(fi_cq_readfrom(pair.a.cq, entries, 2, sources), -FI_EAGAIN);
	gives(fi_cq_readerr(pair.a.cq, &error, 0), -FI_EAGAIN);
	gives(error.err, 1);
	unbound = pair_open_cq(&pair);
	gives(fi_cq_read(unbound, entries, 2), -FI_EAGAIN);
	gives(fi_close(&unbound->fid), 0);
	pair_close(&pair);
}

/* Each format gets its fields and not a byte more. */
static void check_format(enum fi_cq_format format, size_t size, bool tagged)
{
	struct pair_want want = { .format = format };
	union {
		struct fi_cq_tagged_entry entry;
		uint8_t bytes[2 * sizeof(struct fi_cq_tagged_entry)];
	} got;
	struct pair pair;
	ssize_t ret;

	pair_open(&pair, &want);
	message(&pair, tagged, 0x1122334455667788);
	memset(&got, 0x5a, sizeof(got));
	while ((ret = fi_cq_read(pair.b.cq, &got, 1)) == -FI_EAGAIN)
		pair_progress(&pair);
	gives(ret, 1);
	for (size_t i = size; i < sizeof(got); i++)
		gives(got.bytes[i], 0x5a);
	must(got.entry.op_context == in);
	if (size >= sizeof(struct fi_cq_msg_entry)) {
		gives(got.entry.flags, kind_cq_flags(tagged, FI_RECV) | FI_REMOTE_CQ_DATA);
		gives(got.entry.len, 10);
	}
	if (size >= sizeof(struct fi_cq_data_entry))
		gives(got.entry.data, 0x1122334455667788);
	if (size >= sizeof(struct fi_cq_tagged_entry) && tagged)
		gives(got.entry.tag, 7);
	gives(fi_cq_read(pair.a.cq, &got, 1), 1);
	must(got.entry.op_context == out);
	if (size >= sizeof(struct fi_cq_msg_entry))
		gives(got.entry.flags, kind_cq_flags(tagged, FI_SEND));
	pair_close(&pair);
}

static void formats(void)
{
	for (int tagged = 0; tagged < 2; tagged++) {
		check_format(FI_CQ_FORMAT_CONTEXT, sizeof(struct fi_cq_entry), tagged);
		check_format(FI_CQ_FORMAT_MSG, sizeof(struct fi_cq_msg_entry), tagged);
		check_format(FI_CQ_FORMAT_DATA, sizeof(struct fi_cq_data_entry), tagged);
		check_format(FI_CQ_FORMAT_TAGGED, sizeof(struct fi_cq_tagged_entry), tagged);
	}
}

/* The format of its own choice has the smallest entries, which any reader has room for. */
static void format_unspecified(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_UNSPEC };
	struct {
		struct fi_cq_entry entries[4];
		uint64_t guard;
	} got = { .guard = 0x5a5a5a5a5a5a5a5a };
	struct pair pair;
	struct fid_ep *ep;
	struct fid_cq *cq;

	pair_open(&pair, NULL);
	gives(fi_cq_open(pair.domain, &attr, &cq, NULL), 0);
	ep = pair_open_ep(&pair);
	pair_bind(ep, cq, pair.a.av);
	gives(fi_enable(ep), 0);
	for (uintptr_t i = 0; i < 4; i++)
		gives(fi_send(ep, out, 1, NULL, pair.a.peer, (void *)(i + 1)), 0);
	gives(fi_cq_read(cq, got.entries, 4), 4);
	for (uintptr_t i = 0; i < 4; i++)
		must(got.entries[i].op_context == (void *)(i + 1));
	gives(got.guard, 0x5a5a5a5a5a5a5a5a);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&cq->fid), 0);
	pair_close(&pair);
}

static void in_order_and_counted(void)
{
	struct fi_cq_tagged_entry entries[16];
	struct pair pair;
	uintptr_t next = 1;

	pair_open(&pair, NULL);
	for (uintptr_t i = 1; i <= 10; i++)
		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, (void *)i), 0);
	for (int i = 0; i < 10; i++)
		post(&pair, fi_inject(pair.a.ep, out, 3, pair.a.peer));
	for (size_t ask = 1; next <= 10; ask++) {
		ssize_t got = fi_cq_read(pair.b.cq, entries, ask);

		gives(got, next + ask - 1 <= 10 ? ask : 10 - next + 1);
		for (ssize_t i = 0; i < got; i++)
			must(entries[i].op_context == (void *)next++);
	}
	gives(fi_cq_read(pair.b.cq, entries, 16), -FI_EAGAIN);
	pair_close(&pair);
}

/* A read of no entries drives progress and takes nothing. */
static void count_of_zero(void)
{
	struct fi_cq_tagged_entry entry;
	struct pair pair;
	ssize_t ret;

	pair_open(&pair, NULL);
	pattern_fill(out, 0, 10, 1);
	message(&pair, false, 0);
	do {
		ret = fi_cq_read(pair.b.cq, NULL, 0);
		must(ret == -FI_EAGAIN || ret == 0);
	} while (ret);
	must(pattern_is(in, 0, 10, 1));
	gives(fi_cq_read(pair.b.cq, NULL, 0), 0);
	gives(fi_cq_read(pair.b.cq, &entry, 1), 1);
	gives(fi_cq_read(pair.b.cq, NULL, 0), -FI_EAGAIN);
	pair_close(&pair);
}

/* A queue that always has something: what else is under way gets there all the same. */
static void never_empty(void)
{
	struct fi_cq_tagged_entry entry = { 0 };
	struct pair pair;
	int reads = 0;

	pair_open(&pair, NULL);
	gives(fi_recv(pair.a.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	post(&pair, fi_inject(pair.b.ep, out, 3, pair.b.peer));
	must(pair_done(&pair, &pair.a).entry.op_context == in);
	message(&pair, false, 0);
	must(pair_done(&pair, &pair.a).entry.op_context == out);
	must(pair_done(&pair, &pair.b).entry.op_context == in);
	gives(fi_recv(pair.a.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(pair.b.ep, out, 3, pair.b.peer), 0);
	gives(fi_send(pair.a.ep, out, 3, NULL, pair.a.peer, out), 0);
	do {
		must(reads++ < 64);
		gives(fi_send(pair.a.ep, out, 3, NULL, pair.a.peer, out), 0);
		gives(fi_cq_read(pair.a.cq, &entry, 1), 1);
	} while (entry.op_context != in);
	pair_close(&pair);
}

/* More completions than the queue was opened for. */
static void grows(void)
{
	enum { MESSAGES = 3000 };
	struct pair_want want = { .cq_size = 16, .rx_size = MESSAGES };
	struct fi_cq_tagged_entry entry;
	struct pair pair;

	pair_open(&pair, &want);
	for (uintptr_t i = 1; i <= MESSAGES; i++) {
		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, (void *)i), 0);
		post(&pair, fi_inject(pair.a.ep, out, 3, pair.a.peer));
	}
	for (uintptr_t i = 1; i <= MESSAGES; i++) {
		gives(fi_cq_read(pair.b.cq, &entry, 1), 1);
		must(entry.op_context == (void *)i);
	}
	pair_close(&pair);
}

static void several_endpoints(void)
{
	enum { ENDPOINTS = 9 };
	struct fi_cq_tagged_entry entries[ENDPOINTS];
	struct fid_ep *eps[ENDPOINTS];
	struct pair pair;
	size_t got = 0, sum = 0;

	pair_open(&pair, NULL);
	for (uintptr_t i = 0; i < ENDPOINTS; i++) {
		size_t len = 64;
		char name[64];

		eps[i] = pair_open_ep(&pair);
		pair_bind(eps[i], pair.b.cq, pair.b.av);
		gives(fi_enable(eps[i]), 0);
		gives(fi_getname(&eps[i]->fid, name, &len), 0);
		gives(fi_recv(eps[i], in, sizeof(in), NULL, FI_ADDR_UNSPEC, (void *)(i + 1)), 0);
		post(&pair, fi_inject(pair.a.ep, out, 3, pair_insert(pair.a.av, name)));
	}
	while (got < ENDPOINTS) {
		ssize_t ret = fi_cq_read(pair.b.cq, entries, ENDPOINTS);

		pair_progress(&pair);
		if (ret == -FI_EAGAIN)
			continue;
		must(ret > 0);
		got += (size_t)ret;
		for (ssize_t i = 0; i < ret; i++)
			sum += (uintptr_t)entries[i].op_context;
	}
	gives(sum, ENDPOINTS * (ENDPOINTS + 1) / 2);
	for (int i = 0; i < ENDPOINTS; i++)
		gives(fi_close(&eps[i]->fid), 0);
	pair_close(&pair);
}

/* ---- source ---------------------------------------------------------------------------------- */

static void source_of_received(void)
{
	struct pair pair;
	struct done done;

	pair_open(&pair, NULL);
	message(&pair, true, 0);
	done = pair_done(&pair, &pair.b);
	gives(done.source, pair.b.peer);
	done = pair_done(&pair, &pair.a);
	gives(done.source, FI_ADDR_NOTAVAIL); /* a send has none */

	gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_inject(pair.b.ep, out, 1, pair.b.self), 0);
	gives(pair_done(&pair, &pair.b).source, pair.b.self);
	pair_close(&pair);
}

static void source_unknown_then_known(void)
{
	struct pair_want want = { .strangers = true };
	fi_addr_t addr, again;
	struct pair pair;

	pair_open(&pair, &want);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	message(&pair, false, 0);
	gives(pair_done(&pair, &pair.b).source, FI_ADDR_NOTAVAIL);

	pair_insert(pair.b.av, pair.b.name);
	addr = pair_insert(pair.b.av, pair.a.name);
	for (int i = 0; i < 3; i++) {
		message(&pair, false, 0);
		gives(pair_done(&pair, &pair.b).source, addr);
	}
	/* the same address once more: its first number stays; that one removed: the other */
	again = pair_insert(pair.b.av, pair.a.name);
	must(again != addr);
	message(&pair, false, 0);
	gives(pair_done(&pair, &pair.b).source, addr);
	gives(fi_av_remove(pair.b.av, &addr, 1, 0), 0);
	message(&pair, false, 0);
	gives(pair_done(&pair, &pair.b).source, again);
	gives(fi_av_remove(pair.b.av, &again, 1, 0), 0);
	message(&pair, false, 0);
	gives(pair_done(&pair, &pair.b).source, FI_ADDR_NOTAVAIL);
	pair_close(&pair);
}

/* One queue, two endpoints with address vectors of their own: each source by its endpoint's vector. */
static void source_by_endpoint(void)
{
	struct fid_ep *ep;
	struct fid_av *av;
	char name[64];
	size_t len = sizeof(name);
	struct pair pair;
	fi_addr_t addr;

	pair_open(&pair, NULL);
	av = pair_open_av(&pair);
	for (int i = 0; i < 5; i++)
		pair_insert(av, pair.b.name);
	addr = pair_insert(av, pair.a.name);
	ep = pair_open_ep(&pair);
	pair_bind(ep, pair.b.cq, av);
	gives(fi_enable(ep), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	must(addr != pair.b.peer);

	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
	post(&pair, fi_inject(pair.a.ep, out, 3, pair_insert(pair.a.av, name)));
	gives(pair_done(&pair, &pair.b).source, addr);
	message(&pair, false, 0);
	gives(pair_done(&pair, &pair.b).source, pair.b.peer);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
}

/* Completions outlive their endpoint, without the source, whose peers went with it. */
static void read_after_close(void)
{
	struct pair pair;
	struct done done;

	pair_open(&pair, NULL);
	message(&pair, true, 5);
	while (fi_cq_read(pair.b.cq, NULL, 0))
		pair_progress(&pair);
	gives(fi_close(&pair.b.ep->fid), 0);
	pair.b.ep = NULL;
	done = pair_done(&pair, &pair.b);
	must(done.entry.op_context == in);
	gives(done.entry.data, 5);
	gives(done.source, FI_ADDR_NOTAVAIL);
	pair_close(&pair);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Good, bad, good: in that order, and each kind by its own call. */
static void errors_in_turn(void)
{
	struct fi_cq_tagged_entry entries[4];
	struct fi_cq_err_entry error = { .err = 0 };
	struct pair pair;

	pair_open(&pair, NULL);
	for (uintptr_t i = 1; i <= 3; i++) {
		gives(fi_trecv(pair.b.ep, in, i == 2 ? 4 : 64, NULL, FI_ADDR_UNSPEC, 7, 0, (void *)i), 0);
		post(&pair, fi_tinject(pair.a.ep, out, 10, pair.a.peer, 7));
	}
	while (fi_cq_read(pair.b.cq, NULL, 0) == -FI_EAGAIN)
		pair_progress(&pair);
	gives(fi_cq_readerr(pair.b.cq, &error, 0), -FI_EAGAIN);
	gives(fi_cq_read(pair.b.cq, entries, 4), 1);
	must(entries[0].op_context == (void *)1);
	gives(fi_cq_read(pair.b.cq, entries, 4), -FI_EAVAIL);
	gives(fi_cq_read(pair.b.cq, entries, 4), -FI_EAVAIL);
	gives(fi_cq_read(pair.b.cq, NULL, 0), -FI_EAVAIL);
	gives(fi_cq_readerr(pair.b.cq, &error, FI_PEEK), -FI_EBADFLAGS);
	gives(fi_cq_readerr(pair.b.cq, &error, 0), 1);
	must(error.op_context == (void *)2);
	gives(error.err, FI_ETRUNC);
	gives(error.len, 4);
	gives(error.olen, 6);
	gives(error.tag, 7);
	gives(error.flags, FI_RECV | FI_TAGGED);
	gives(fi_cq_readerr(pair.b.cq, &error, 0), -FI_EAGAIN);
	gives(fi_cq_read(pair.b.cq, entries, 4), 1);
	must(entries[0].op_context == (void *)3);
	pair_close(&pair);
}

/* A message that cannot be copied has not been cut, also if the buffer is too short; one without room has been cut. */
static void failed_is_not_cut(void)
{
	static char large[1 << 20];
	const size_t rooms[] = { sizeof(large), 100, 0 };
	void *nowhere = mmap(NULL, sizeof(large), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pair pair;

	must(nowhere != MAP_FAILED);
	pair_open(&pair, NULL);
	for (size_t i = 0; i < 6; i++) {
		size_t room = rooms[i / 2];
		struct iovec iov = { large, room };
		struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC };
		struct fi_cq_err_entry error;

		gives(fi_recvmsg(pair.b.ep, &msg, room && i & 1 ? FI_MULTI_RECV : 0), 0);
		post(&pair, fi_send(pair.a.ep, nowhere, sizeof(large), NULL, pair.a.peer, NULL));
		error = pair_error(&pair, &pair.b);
		if (!room) {
			gives(error.err, FI_ETRUNC);
			gives(error.olen, sizeof(large));
			pair_done(&pair, &pair.a);
			continue;
		}
		gives(error.err, FI_EFAULT);
		gives(error.len, 0);
		gives(error.olen, 0);
		gives(pair_error(&pair, &pair.a).err, FI_EFAULT);
	}
	gives(munmap(nowhere, sizeof(large)), 0);
	pair_close(&pair);
}

/* Five messages that arrive at once, the second with data, the fourth cut: whatever a read has room for, in order. */
static void arrive_together(size_t room)
{
	struct fi_cq_tagged_entry entries[6];
	struct fi_cq_err_entry error = { .err = 0 };
	uintptr_t got = 0;
	struct pair pair;
	ssize_t ret;

	pair_open(&pair, NULL);
	for (uintptr_t i = 1; i <= 5; i++) {
		gives(fi_trecv(pair.b.ep, in, i == 4 ? 4 : 64, NULL, FI_ADDR_UNSPEC, i, 0, (void *)i), 0);
		if (i == 2)
			post(&pair, fi_tinjectdata(pair.a.ep, out, 10, 99, pair.a.peer, i));
		else
			post(&pair, fi_tinject(pair.a.ep, out, 10, pair.a.peer, i));
	}
	while (got < 5) {
		memset(entries, 0xa5, sizeof(entries));
		ret = fi_cq_read(pair.b.cq, entries, room);
		if (ret == -FI_EAGAIN)
			continue;
		if (ret == -FI_EAVAIL) {
			gives(got++, 3);
			gives(fi_cq_readerr(pair.b.cq, &error, 0), 1);
			must(error.op_context == (void *)4);
			gives(error.err, FI_ETRUNC);
			gives(error.olen, 6);
			continue;
		}
		must(ret > 0 && ret <= (ssize_t)room);
		for (ssize_t i = 0; i < ret; i++) {
			must(entries[i].op_context == (void *)++got);
			gives(entries[i].tag, got);
			gives(entries[i].len, 10);
			must(!entries[i].buf);
			gives(entries[i].flags, FI_RECV | FI_TAGGED | (got == 2 ? FI_REMOTE_CQ_DATA : 0));
			must(got != 2 || entries[i].data == 99);
		}
		gives(entries[ret].tag, 0xa5a5a5a5a5a5a5a5);
	}
	gives(fi_cq_read(pair.b.cq, entries, room), -FI_EAGAIN);
	pair_close(&pair);
}

static void arriving_together(void)
{
	for (size_t room = 1; room <= 5; room++)
		arrive_together(room);
}

static void make_error(struct pair *pair)
{
	gives(fi_recv(pair->b.ep, in, 4, NULL, FI_ADDR_UNSPEC, in), 0);
	post(pair, fi_inject(pair->a.ep, out, 10, pair->a.peer));
	while (fi_cq_read(pair->b.cq, NULL, 0) != -FI_EAVAIL)
		pair_progress(pair);
}

/* Nothing behind the entry as of libfabric 1.17 is written; a buffer for error data stays the caller's. */
static void error_entry(void)
{
	struct {
		struct fi_cq_err_entry entry;
		uint8_t guard[64];
	} got;
	char room[16] = "untouched";
	struct pair pair;

	pair_open(&pair, NULL);
	for (int with_room = 0; with_room < 2; with_room++) {
		make_error(&pair);
		memset(&got, 0x5a, sizeof(got));
		got.entry.err_data = room;
		got.entry.err_data_size = with_room ? sizeof(room) : 0;
		gives(fi_cq_readerr(pair.b.cq, &got.entry, 0), 1);
		gives(got.entry.err, FI_ETRUNC);
		must(got.entry.err_data == (with_room ? room : NULL));
		gives(got.entry.err_data_size, 0);
		gives(strcmp(room, "untouched"), 0);
		for (size_t i = 0; i < sizeof(got.guard); i++)
			gives(got.guard[i], 0x5a);
	}
	pair_close(&pair);
}

/* Before 1.5 the entry had no err_data_size. */
static void error_entry_1_4(void)
{
	struct pair_want want = { .version = FI_VERSION(1, 4) };
	struct fi_cq_err_entry error;
	struct pair pair;

	pair_open(&pair, &want);
	make_error(&pair);
	memset(&error, 0x5a, sizeof(error));
	gives(fi_cq_readerr(pair.b.cq, &error, 0), 1);
	gives(error.err, FI_ETRUNC);
	must(!error.err_data);
	gives(error.err_data_size, 0x5a5a5a5a5a5a5a5a);
	pair_close(&pair);
}

static void error_text(void)
{
	char buf[8], large[256] = "";
	const char *text;
	struct pair pair;

	pair_open(&pair, NULL);
	text = fi_cq_strerror(pair.a.cq, FI_ETRUNC, NULL, NULL, 0);
	must(text && *text);
	gives(strcmp(fi_cq_strerror(pair.a.cq, FI_ETRUNC, NULL, large, sizeof(large)), text), 0);
	gives(strcmp(large, text), 0);
	memset(buf, 0x5a, sizeof(buf));
	must(fi_cq_strerror(pair.a.cq, FI_ETRUNC, NULL, buf, 6));
	gives(strlen(buf), 5);
	gives(strncmp(buf, text, 5), 0);
	gives(buf[6], 0x5a);
	must(fi_cq_strerror(pair.a.cq, 12345678, NULL, NULL, 0));
	must(fi_cq_strerror(pair.a.cq, -1, NULL, NULL, 0));
	pair_close(&pair);
}

static size_t memory_used(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	must(file);
	gives(fscanf(file, "%lu", &pages), 1);
	fclose(file);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* An endpoint whose receive queue overruns, and the event queue of the endpoint or of its domain. */
struct overrun {
	struct pair pair;
	struct fid_cq *rx_cq;
	struct fid_ep *ep;
	struct fid_eq *eq;
	fi_addr_t self;
	size_t sent;
};

static void overrun_open(struct overrun *over, bool by_domain, enum fi_wait_obj obj)
{
	struct fi_eq_attr attr = { .wait_obj = obj };
	char name[64];
	size_t len = sizeof(name);

	if (SANITIZED)
		exit(PAIR_SKIP); /* a sanitizer's memory has no limit */
	/* the provider's thread would map an arena of its own, 128 MiB for a moment, at any time from now on */
	must(mallopt(M_ARENA_MAX, 1));
	pair_open(&over->pair, NULL);
	over->rx_cq = pair_open_cq(&over->pair);
	gives(fi_eq_open(over->pair.fabric, &attr, &over->eq, NULL), 0);
	over->ep = pair_open_ep(&over->pair);
	gives(fi_ep_bind(over->ep, &over->pair.a.cq->fid, FI_TRANSMIT), 0);
	gives(fi_ep_bind(over->ep, &over->rx_cq->fid, FI_RECV), 0);
	gives(fi_ep_bind(over->ep, &over->pair.a.av->fid, 0), 0);
	if (!by_domain)
		gives(fi_ep_bind(over->ep, &over->eq->fid, 0), 0);
	gives(fi_enable(over->ep), 0);
	gives(fi_getname(&over->ep->fid, name, &len), 0);
	over->self = pair_insert(over->pair.a.av, name);
	if (by_domain)
		gives(fi_domain_bind(over->pair.domain, &over->eq->fid, 0), 0);
}

/* Sends messages without a read of the queue, until there is no memory for more completions. */
static void overrun_fill(struct overrun *over)
{
	struct fid_cq *tx_cq = over->pair.a.cq;
	struct rlimit limit, tight;
	ssize_t ret;

	gives(getrlimit(RLIMIT_AS, &limit), 0);
	tight = limit;
	tight.rlim_cur = memory_used() + (24 << 20);
	gives(setrlimit(RLIMIT_AS, &tight), 0);
	for (over->sent = 0; over->sent < 2000000; over->sent++) {
		gives(fi_recv(over->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
		while ((ret = fi_inject(over->ep, out, 1, over->self)) == -FI_EAGAIN)
			fi_cq_read(tx_cq, NULL, 0);
		gives(ret, 0);
		fi_cq_read(tx_cq, NULL, 0);
	}
	gives(setrlimit(RLIMIT_AS, &limit), 0);
}

/* The event queue has the error once. */
static void overrun_told(struct overrun *over)
{
	struct fi_eq_err_entry error = { .err = 0 };
	uint32_t event;

	gives(fi_eq_read(over->eq, &event, &error, sizeof(error), 0), -FI_EAVAIL);
	gives(fi_eq_readerr(over->eq, &error, 0), sizeof(error));
	gives(error.err, FI_EOVERRUN);
	must(error.fid == &over->rx_cq->fid);
	gives(fi_eq_read(over->eq, &event, &error, sizeof(error), 0), -FI_EAGAIN);
}

static void overrun_close(struct overrun *over)
{
	gives(fi_close(&over->ep->fid), 0);
	gives(fi_close(&over->rx_cq->fid), 0);
	side_close(&over->pair.a);
	side_close(&over->pair.b);
	gives(fi_close(&over->pair.domain->fid), 0);
	gives(fi_close(&over->eq->fid), 0);
	gives(fi_close(&over->pair.fabric->fid), 0);
	fi_freeinfo(over->pair.info);
}

/*
 * No memory to grow: what was queued can be read, then every read gives an overrun error; the event queue
 * of the endpoint, or of its domain, hears of it.
 */
static void overrun_reported(bool by_domain)
{
	struct fi_cq_err_entry error = { .err = 0 };
	struct fi_cq_tagged_entry entry;
	struct overrun over;
	ssize_t ret;
	size_t read;

	overrun_open(&over, by_domain, FI_WAIT_NONE);
	overrun_fill(&over);
	for (read = 0; (ret = fi_cq_read(over.rx_cq, &entry, 1)) == 1; read++)
		;
	must(read >= 1024 && read < over.sent);
	for (int i = 0; i < 3; i++) {
		gives(ret, -FI_EAVAIL);
		gives(fi_cq_readerr(over.rx_cq, &error, 0), 1);
		gives(error.err, FI_EOVERRUN);
		must(!error.op_context);
		ret = fi_cq_read(over.rx_cq, &entry, 1);
	}
	overrun_told(&over);
	overrun_close(&over);
}

static void overrun(void)
{
	overrun_reported(false);
}

static void overrun_told_to_domain(void)
{
	overrun_reported(true);
}

struct overrun_reader {
	struct fid_cq *cq;
	atomic_int tid;
	atomic_bool ended;
};

static void *read_to_the_overrun(void *arg)
{
	struct overrun_reader *reader = arg;
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	reader->tid = gettid();
	while ((ret = fi_cq_read(reader->cq, &entry, 1)) == 1)
		;
	gives(ret, -FI_EAVAIL);
	reader->ended = true;
	return NULL;
}

/*
 * A thread finds the overrun and signals the event queue, whose mutex another thread holds. That one reads the queue
 * that has overrun, and goes on to wait for the event.
 */
static void overrun_beside_a_holder(void)
{
	struct overrun_reader reader = { 0 };
	struct fi_cq_tagged_entry entry;
	struct fi_mutex_cond condition;
	struct overrun over;
	pthread_t thread;

	overrun_open(&over, false, FI_WAIT_MUTEX_COND);
	overrun_fill(&over);
	reader.cq = over.rx_cq;
	gives(fi_control(&over.eq->fid, FI_GETWAIT, &condition), 0);
	gives(pthread_mutex_lock(condition.mutex), 0);
	gives(fi_trywait(over.pair.fabric, &(struct fid *){ &over.eq->fid }, 1), 0);
	gives(pthread_create(&thread, NULL, read_to_the_overrun, &reader), 0);
	while (!reader.ended && !(reader.tid && pair_is_asleep(reader.tid)))
		usleep(1000);
	gives(fi_cq_read(over.rx_cq, &entry, 1), -FI_EAVAIL);
	gives(pthread_cond_wait(condition.cond, condition.mutex), 0);
	gives(pthread_mutex_unlock(condition.mutex), 0);
	gives(pthread_join(thread, NULL), 0);
	overrun_told(&over);
	overrun_close(&over);
}

/* ---- blocking reads -------------------------------------------------------------------------- */

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void no_blocking_without_wait_object(void)
{
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_cq_sread(pair.a.cq, &entry, 1, NULL, 10), -FI_ENOSYS);
	gives(fi_cq_sreadfrom(pair.a.cq, &entry, 1, &source, NULL, 10), -FI_ENOSYS);
	gives(fi_cq_signal(pair.a.cq), -FI_ENOSYS);
	pair_close(&pair);
}

static void blocking_read(enum fi_wait_obj wait_obj)
{
	struct pair_want want = { .wait_obj = wait_obj };
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;
	size_t threshold = 1;
	struct pair pair;
	long start;

	pair_open(&pair, &want);
	start = milliseconds();
	gives(fi_cq_sread(pair.b.cq, &entry, 1, NULL, 50), -FI_EAGAIN);
	must(milliseconds() - start >= 49);
	gives(fi_cq_sread(pair.b.cq, &entry, 1, NULL, 0), -FI_EAGAIN);

	message(&pair, true, 0);
	gives(fi_cq_sreadfrom(pair.b.cq, &entry, 1, &source, NULL, -1), 1);
	must(entry.op_context == in);
	gives(source, pair.b.peer);
	message(&pair, true, 0);
	gives(fi_cq_sread(pair.b.cq, &entry, 1, &threshold, -1), 1);

	make_error(&pair);
	gives(fi_cq_sread(pair.b.cq, &entry, 1, NULL, -1), -FI_EAVAIL);
	pair_error(&pair, &pair.b);
	pair_close(&pair);
}

static void blocking_reads(void)
{
	blocking_read(FI_WAIT_UNSPEC);
	blocking_read(FI_WAIT_YIELD);
}

static void *signal_later(void *cq)
{
	usleep(50000);
	gives(fi_cq_signal(cq), 0);
	return NULL;
}

static void signaled(void)
{
	struct pair_want want = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_tagged_entry entry;
	pthread_t thread;
	struct pair pair;

	pair_open(&pair, &want);
	gives(pthread_create(&thread, NULL, signal_later, pair.a.cq), 0);
	gives(fi_cq_sread(pair.a.cq, &entry, 1, NULL, -1), -FI_EAGAIN);
	gives(pthread_join(thread, NULL), 0);
	/* before the wait: the next one ends at once, only that one */
	gives(fi_cq_signal(pair.a.cq), 0);
	gives(fi_cq_sread(pair.a.cq, &entry, 1, NULL, -1), -FI_EAGAIN);
	gives(fi_cq_sread(pair.a.cq, &entry, 1, NULL, 20), -FI_EAGAIN);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(open_attributes),
		ALONE(control),
		ALONE(close_while_bound),
		ALONE(nothing_to_read),
		ALONE(formats),
		ALONE(format_unspecified),
		ALONE(in_order_and_counted),
		ALONE(count_of_zero),
		ALONE(never_empty),
		ALONE(grows),
		ALONE(several_endpoints),
		ALONE(source_of_received),
		ALONE(source_unknown_then_known),
		ALONE(source_by_endpoint),
		ALONE(read_after_close),
		ALONE(errors_in_turn),
		ALONE(failed_is_not_cut),
		ALONE(arriving_together),
		ALONE(error_entry),
		ALONE(error_entry_1_4),
		ALONE(error_text),
		ALONE(overrun),
		ALONE(overrun_told_to_domain),
		ALONE(overrun_beside_a_holder),
		ALONE(no_blocking_without_wait_object),
		ALONE(blocking_reads),
		ALONE(signaled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
