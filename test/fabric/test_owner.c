/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_owner.c: fi_peer(3): another provider, the owner, shares its completion queue, counter and receive context with
 * shmcma; libfabric's lnx is such a provider. Here the owner is test/owner.h, and opens the objects through the public
 * calls.
 *
 * The structures that both share have several layouts, by the version of libfabric. This program has an fi_version() of
 * its own, which the provider finds before libfabric's, and repeats all tests with a version of each layout.
 *
 * `near` is the endpoint with the owner's objects; `far` is a usual endpoint that sends to it. Both are in this process,
 * except where the sender is to die.
 */
#define _GNU_SOURCE 1
#include "fabric.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "../owner.h"

#define HIDDEN (1ULL << 60) /* flag of fi_getinfo by which such providers ask */
#define LAYERED (1ULL << 59)
#define CAPS (FI_MSG | FI_TAGGED | FI_PEER | FI_AV_USER_ID)
#define FAR_NAME ((fi_addr_t)4711) /* the number of the far endpoint in the owner */
#define TAG 0x1234567890abcdefULL
#define DATA 0xfedcba98ULL
#define LARGE ((size_t)300000)

struct near {
	struct owner owner;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_ep *srx, *ep;
	char name[TF_NAME_SIZE];
	fi_addr_t far; /* to send to */
};

struct both {
	struct near near;
	struct tf far;
	fi_addr_t near_addr; /* in far's address vector */
	unsigned char out[LARGE], in[LARGE];
};

static struct both *both; /* of the running test */
static bool lends;	  /* the owner binds its own receive context */

/* ---- open and close ---------------------------------------------------------------------------- */

static int near_info(uint64_t flags, uint64_t caps, enum fi_progress progress, struct fi_info **info)
{
	struct fi_info *hints = tf_hints();
	int ret;

	hints->caps = caps;
	hints->domain_attr->data_progress = progress;
	ret = fi_getinfo(TF_VERSION, NULL, NULL, flags, hints, info);
	fi_freeinfo(hints);
	return ret;
}

static void near_open_fabric(struct near *near)
{
	owner_init(&near->owner);
	tf_ok(near_info(HIDDEN, CAPS, FI_PROGRESS_UNSPEC, &near->info));
	tf_ok(fi_fabric(near->info->fabric_attr, &near->fabric, NULL));
}

static void near_open_domain(struct near *near)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };

	tf_ok(fi_domain(near->fabric, near->info, &near->domain, NULL));
	tf_ok(fi_av_open(near->domain, &attr, &near->av, NULL));
	tf_ok(owner_open_cq(&near->owner, near->domain, &near->cq));
	tf_ok(owner_open_cntr(&near->owner, near->domain, &near->cntr));
	if (lends)
		tf_ok(owner_lend_srx(&near->owner, near->domain));
	else
		tf_ok(owner_open_srx(&near->owner, near->domain, &near->srx));
}

static void near_open_ep(struct near *near, uint64_t selective)
{
	size_t len = sizeof(near->name);

	tf_ok(fi_endpoint(near->domain, near->info, &near->ep, NULL));
	tf_ok(fi_ep_bind(near->ep, &near->av->fid, 0));
	tf_ok(fi_ep_bind(near->ep, &near->cq->fid, FI_TRANSMIT | FI_RECV | selective));
	tf_ok(fi_ep_bind(near->ep, &near->cntr->fid, FI_SEND | FI_RECV));
	tf_ok(fi_ep_bind(near->ep, lends ? &near->owner.srx.ep.fid : &near->srx->fid, 0));
	tf_ok(fi_enable(near->ep));
	tf_ok(fi_getname(&near->ep->fid, near->name, &len));
}

static int insert_far(const char *name)
{
	both->near.far = FAR_NAME;
	return fi_av_insert(both->near.av, name, 1, &both->near.far, FI_AV_USER_ID, NULL);
}

static void open_both(uint64_t selective)
{
	tf_open(&both->far, NULL);
	near_open_fabric(&both->near);
	near_open_domain(&both->near);
	near_open_ep(&both->near, selective);
	both->near_addr = tf_insert(&both->far, both->near.name);
	for (size_t i = 0; i < LARGE; i++)
		both->out[i] = (unsigned char)(i * 7 + 3);
}

static int setup(void **state)
{
	(void)state;
	both = calloc(1, sizeof(*both));
	open_both(0);
	tf_expect(insert_far(both->far.name), 1);
	return 0;
}

/* The same, and the owner does not know the far endpoint. */
static int setup_stranger(void **state)
{
	(void)state;
	both = calloc(1, sizeof(*both));
	open_both(0);
	return 0;
}

static int setup_selective(void **state)
{
	(void)state;
	both = calloc(1, sizeof(*both));
	open_both(FI_SELECTIVE_COMPLETION);
	tf_expect(insert_far(both->far.name), 1);
	return 0;
}

/* An owner that closes no receive context, if the version that runs has such owners. */
static int setup_lends(void **state)
{
	lends = owner_layout() == OWNER_19;
	return setup(state);
}

static void near_close_ep(struct near *near)
{
	TF_CLOSE(near->ep);
	near->ep = NULL;
}

static void near_close_domain(struct near *near)
{
	TF_CLOSE(near->srx);
	TF_CLOSE(near->cntr);
	TF_CLOSE(near->cq);
	TF_CLOSE(near->av);
	TF_CLOSE(near->domain);
	TF_CLOSE(near->fabric);
	fi_freeinfo(near->info);
}

static void near_close(struct near *near)
{
	near_close_ep(near);
	near_close_domain(near);
}

static int teardown(void **state)
{
	(void)state;
	near_close(&both->near);
	tf_close(&both->far);
	free(both);
	lends = false;
	return 0;
}

/* ---- progress ---------------------------------------------------------------------------------- */

static void near_poll(void)
{
	tf_expect(fi_cq_read(both->near.cq, NULL, 0), 0);
}

/* Polls both, if the far one is in this process, and takes its completions, which all succeed. */
static void poll_both(void)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	near_poll();
	if (!both->far.ep)
		return;
	ret = fi_cq_read(both->far.tx_cq, &entry, 1);
	assert_true(ret == 1 || ret == -FI_EAGAIN);
	ret = fi_cq_read(both->far.rx_cq, &entry, 1);
	assert_true(ret == 1 || ret == -FI_EAGAIN);
}

static const struct owner_done *next_done(void)
{
	struct owner *owner = &both->near.owner;

	while (owner->done_read == owner->done_count)
		poll_both();
	return &owner->done[owner->done_read++];
}

/* The oldest message that waits with the owner. */
static struct owner_entry *next_waiting(bool tagged)
{
	while (!both->near.owner.waiting[tagged].first)
		poll_both();
	return both->near.owner.waiting[tagged].first;
}

static void far_send(bool tagged, size_t len, bool data)
{
	const struct iovec iov = { both->out, len };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = both->near_addr, .tag = TAG, .data = DATA
	};
	struct fi_msg plain = { .msg_iov = &iov, .iov_count = 1, .addr = both->near_addr, .data = DATA };
	uint64_t flags = data ? FI_REMOTE_CQ_DATA : 0;
	ssize_t ret;

	while ((ret = tagged ? fi_tsendmsg(both->far.ep, &msg, flags)
			     : fi_sendmsg(both->far.ep, &plain, flags)) == -FI_EAGAIN)
		poll_both();
	tf_ok(ret);
}

/* Posts the receive of `len` bytes, in two pieces. The result of owner_recv(). */
static int near_recv(bool tagged, size_t len, fi_addr_t source, uint64_t flags, void *context)
{
	const struct iovec iov[2] = { { both->in, len / 3 }, { both->in + len / 3, len - len / 3 } };

	memset(both->in, 0xee, LARGE);
	return owner_recv(&both->near.owner, tagged, iov, 2, source, tagged ? TAG : 0, 0, flags, context);
}

static void came_whole(const struct owner_done *done, bool tagged, size_t len, bool data, void *context)
{
	tf_expect(done->err, 0);
	assert_ptr_equal(done->context, context);
	assert_ptr_equal(done->buf, both->in); /* where the owner's receive begins */
	assert_int_equal(done->flags,
			 FI_RECV | (tagged ? FI_TAGGED : FI_MSG) | (data ? FI_REMOTE_CQ_DATA : 0));
	assert_int_equal(done->len, len);
	assert_int_equal(done->source, FAR_NAME);
	if (tagged)
		assert_int_equal(done->tag, TAG);
	if (data)
		assert_int_equal(done->data, DATA);
	assert_memory_equal(both->in, both->out, len);
	assert_int_equal(both->near.owner.entries, 0);
}

/* Open MPI inserts an address again, and posts its receives for the new one. */
static void test_inserted_again(void **state)
{
	fi_addr_t again = FAR_NAME + 1;

	(void)state;
	tf_expect(near_recv(true, 8, FAR_NAME, FI_COMPLETION, NULL), 1);
	far_send(true, 8, false);
	assert_int_equal(next_done()->source, FAR_NAME);
	tf_expect(fi_av_insert(both->near.av, both->far.name, 1, &again, FI_AV_USER_ID, NULL), 1);
	tf_expect(near_recv(true, 8, FAR_NAME + 1, FI_COMPLETION, NULL), 1);
	far_send(true, 8, false);
	assert_int_equal(next_done()->source, FAR_NAME + 1);
	/* lnx of 2.0 and 2.1 gives no identifier */
	tf_expect(fi_av_insert(both->near.av, both->far.name, 1, &again, 0, NULL), 1);
	tf_expect(near_recv(true, 8, again, FI_COMPLETION, NULL), 1);
	far_send(true, 8, false);
	assert_int_equal(next_done()->source, again);
}

/* Inline, a bounce buffer, several of them, rendezvous. */
static const size_t sizes[] = { 0, 8, 200, 4096, 20000, LARGE };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* ---- fi_getinfo and opening --------------------------------------------------------------------- */

static void test_info(void **state)
{
	struct fi_info *info;

	(void)state;
	tf_ok(near_info(HIDDEN, CAPS, FI_PROGRESS_UNSPEC, &info));
	assert_null(info->next); /* lnx opens a domain for each */
	assert_string_equal(info->fabric_attr->name, "shm");
	assert_string_equal(info->domain_attr->name, "shm");
	assert_true((info->caps & CAPS) == CAPS);
	assert_true(info->domain_attr->caps & FI_PEER);
	assert_int_equal(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
	assert_int_equal(info->rx_attr->iov_limit, 4);
	fi_freeinfo(info);
	tf_expect(near_info(0, CAPS, FI_PROGRESS_UNSPEC, &info), -FI_ENODATA);
	tf_expect(near_info(HIDDEN, FI_TAGGED, FI_PROGRESS_UNSPEC, &info), -FI_ENODATA);
	tf_expect(near_info(HIDDEN | LAYERED, CAPS, FI_PROGRESS_UNSPEC, &info), -FI_ENODATA);
	tf_expect(near_info(HIDDEN, CAPS, FI_PROGRESS_AUTO, &info),
		  -FI_ENODATA); /* a thread calls no owner */
}

/* A provider may ask for FI_PEER as a capability of the domain alone, as EFA does. */
static void test_info_domain(void **state)
{
	struct fi_info *hints = tf_hints(), *info;

	(void)state;
	hints->caps = FI_TAGGED;
	hints->domain_attr->caps = FI_PEER;
	tf_expect(fi_getinfo(TF_VERSION, NULL, NULL, 0, hints, &info), -FI_ENODATA);
	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, HIDDEN, hints, &info));
	assert_null(info->next);
	assert_true(info->caps & info->domain_attr->caps & FI_PEER);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* An application sees no domain that another provider has opened for itself. */
static void test_not_shown(void **state)
{
	struct fi_info *hints = tf_hints(), *info;

	(void)state;
	hints->fabric_attr->fabric = both->near.fabric;
	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, 0, hints, &info));
	assert_ptr_equal(info->fabric_attr->fabric, both->near.fabric);
	assert_null(info->domain_attr->domain);
	fi_freeinfo(info);
	hints->fabric_attr->fabric = NULL; /* it is not to be freed */
	fi_freeinfo(hints);
}

static void shows_none(void)
{
	struct fi_info *info = tf_getinfo(NULL);

	assert_null(info->fabric_attr->fabric);
	assert_null(info->domain_attr->domain);
	fi_freeinfo(info);
}

/* The owner opens its fabric and domain for itself: fi_getinfo() shows them to nobody, however old they are. */
static void test_info_open(void **state)
{
	struct near near;
	struct tf own;
	struct fi_info *info;

	(void)state;
	near_open_fabric(&near);
	shows_none();
	near_open_domain(&near);
	shows_none();
	tf_open_domain(&own, NULL);
	info = tf_getinfo(NULL);
	assert_ptr_equal(info->fabric_attr->fabric, own.fabric);
	assert_ptr_equal(info->domain_attr->domain, own.domain);
	fi_freeinfo(info);
	tf_close(&own);
	near_close_domain(&near);
}

/* Only a domain with FI_PEER has such objects, and they need an object of the owner. */
static void test_open(void **state)
{
	struct near *near = &both->near;
	struct fi_cq_attr cq_attr = { .flags = FI_PEER };
	struct fi_cntr_attr cntr_attr = { .flags = FI_PEER };
	struct fi_rx_attr rx_attr = { .op_flags = FI_PEER };
	struct owner other;
	struct fid_cntr *cntr;
	struct fid_cq *cq;
	struct fid_ep *srx;

	(void)state;
	owner_init(&other);
	tf_expect(owner_open_cq(&other, both->far.domain, &cq), -FI_EINVAL);
	tf_expect(owner_open_cntr(&other, both->far.domain, &cntr), -FI_EINVAL);
	tf_expect(owner_open_srx(&other, both->far.domain, &srx), -FI_EINVAL);
	assert_null(other.srx.peer_ops);
	tf_expect(fi_cq_open(near->domain, &cq_attr, &cq, NULL), -FI_EINVAL);
	tf_expect(fi_cntr_open(near->domain, &cntr_attr, &cntr, NULL), -FI_EINVAL);
	tf_expect(fi_srx_context(near->domain, &rx_attr, &srx, NULL), -FI_EINVAL);
	other.srx.ops = &(size_t){ sizeof(size_t) };
	tf_expect(owner_open_srx(&other, near->domain, &srx), -FI_EINVAL);
}

/* The owner may hand on what its application asks for, unless that is a wait object: the owner waits. */
static void test_open_wait(void **state)
{
	static const enum fi_wait_obj none[] = { FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD },
				      some[] = { FI_WAIT_SET, FI_WAIT_FD, FI_WAIT_MUTEX_COND,
						 FI_WAIT_POLLFD };
	struct fid_domain *domain = both->near.domain;
	struct owner other;
	struct fid_cntr *cntr;
	struct fid_cq *cq;

	(void)state;
	owner_init(&other);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		other.wait_obj = none[i];
		tf_ok(owner_open_cq(&other, domain, &cq));
		tf_expect(fi_cq_read(cq, NULL, 0), 0);
		tf_expect(fi_trywait(both->near.fabric, (struct fid *[]){ &cq->fid }, 1), -FI_EINVAL);
		TF_CLOSE(cq);
		tf_ok(owner_open_cntr(&other, domain, &cntr));
		tf_expect(fi_cntr_read(cntr), 0);
		tf_expect(fi_trywait(both->near.fabric, (struct fid *[]){ &cntr->fid }, 1), -FI_EINVAL);
		TF_CLOSE(cntr);
	}
	for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		other.wait_obj = some[i];
		tf_expect(owner_open_cq(&other, domain, &cq), -FI_EINVAL);
		tf_expect(owner_open_cntr(&other, domain, &cntr), -FI_EINVAL);
	}
}

/* The application reads and waits at the owner's objects. */
static void test_other_reads(void **state)
{
	struct near *near = &both->near;
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error;
	fi_addr_t source;

	(void)state;
	tf_expect(fi_cq_read(near->cq, &entry, 1), -FI_ENOSYS);
	tf_expect(fi_cq_readfrom(near->cq, &entry, 1, &source), -FI_ENOSYS);
	tf_expect(fi_cq_readerr(near->cq, &error, 0), -FI_ENOSYS);
	tf_expect(fi_cq_sread(near->cq, &entry, 1, NULL, 0), -FI_ENOSYS);
	tf_expect(fi_cq_sreadfrom(near->cq, &entry, 1, &source, NULL, 0), -FI_ENOSYS);
	tf_expect(fi_cq_signal(near->cq), -FI_ENOSYS);
	tf_expect(fi_cntr_set(near->cntr, 1), -FI_ENOSYS);
	tf_expect(fi_cntr_add(near->cntr, 1), -FI_ENOSYS);
	tf_expect(fi_cntr_wait(near->cntr, 1, 0), -FI_ENOSYS);
	tf_expect(fi_cntr_readerr(near->cntr), 0);
	tf_expect(fi_recv(near->ep, both->in, 8, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPNOTSUPP);
	tf_expect(fi_trecv(near->srx, both->in, 8, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_EOPNOTSUPP);
	tf_expect(fi_cancel(&near->ep->fid, NULL), -FI_ENOENT);
}

/* The receives of the owner complete in its queue. */
static void test_needs_cq(void **state)
{
	struct near *near = &both->near;
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_cq *cq;

	(void)state;
	near_close_ep(near);
	tf_ok(fi_cq_open(near->domain, &attr, &cq, NULL));
	tf_ok(fi_endpoint(near->domain, near->info, &near->ep, NULL));
	tf_ok(fi_ep_bind(near->ep, &near->av->fid, 0));
	tf_ok(fi_ep_bind(near->ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	tf_ok(fi_ep_bind(near->ep, &near->srx->fid, 0));
	tf_expect(fi_ep_bind(near->ep, &near->srx->fid, 0), -FI_EINVAL);
	tf_expect(fi_enable(near->ep), -FI_ENOCQ);
	near_close_ep(near);
	TF_CLOSE(cq);
}

/* ---- messages ------------------------------------------------------------------------------------ */

static void test_expected(void **state)
{
	(void)state;
	for (int i = 0; i < 4 * (int)SIZES; i++) {
		bool tagged = i & 1, data = i & 2;
		size_t len = sizes[i / 4];

		tf_expect(near_recv(tagged, len, FAR_NAME, FI_COMPLETION, &both->in), 1);
		far_send(tagged, len, data);
		came_whole(next_done(), tagged, len, data, &both->in);
	}
}

static void test_unexpected(void **state)
{
	(void)state;
	for (int i = 0; i < 4 * (int)SIZES; i++) {
		bool tagged = i & 1, data = i & 2;
		size_t len = sizes[i / 4];
		struct owner_entry *entry;

		far_send(tagged, len, data);
		entry = next_waiting(tagged);
		assert_int_equal(entry->head->addr, FAR_NAME);
		assert_int_equal(entry->head->size, len);
		assert_int_equal(!!(entry->tail->flags & FI_REMOTE_CQ_DATA), data);
		if (data && entry->data)
			assert_int_equal(*entry->data, DATA);
		tf_ok(near_recv(tagged, len, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in));
		came_whole(next_done(), tagged, len, data, &both->in);
	}
}

/* Messages wait, and are received in another order. */
static void test_many(void **state)
{
	enum { COUNT = 40 };
	struct iovec iov = { both->in, sizeof(uint64_t) };

	(void)state;
	for (uint64_t i = 0; i < COUNT; i++)
		while (fi_tinject(both->far.ep, &i, sizeof(i), both->near_addr, i) == -FI_EAGAIN)
			poll_both();
	while (both->near.owner.entries < COUNT)
		poll_both();
	for (uint64_t i = COUNT; i-- > 0;) {
		const struct owner_done *done;

		tf_ok(owner_recv(&both->near.owner, true, &iov, 1, FAR_NAME, i, 0, FI_COMPLETION, &iov));
		done = next_done();
		tf_expect(done->err, 0);
		assert_memory_equal(both->in, &i, sizeof(i));
	}
	assert_int_equal(both->near.owner.entries, 0);
}

static void test_discard(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2 * SIZES; i++) {
		bool tagged = i & 1;

		far_send(tagged, sizes[i / 2], false);
		next_waiting(tagged);
		tf_ok(owner_discard(&both->near.owner, tagged));
		assert_int_equal(both->near.owner.entries, 0);
	}
	/* nothing is left of them: the next message comes, and it alone */
	tf_expect(near_recv(true, 8, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in), 1);
	far_send(true, 8, false);
	came_whole(next_done(), true, 8, false, &both->in);
	assert_int_equal(both->near.owner.done_count, 1);
}

static void test_truncated(void **state)
{
	(void)state;
	for (size_t i = 1; i < 2 * SIZES; i++) {
		size_t len = sizes[i / 2], room = len / 2;
		const struct owner_done *done;

		if (!len)
			continue;
		if (i & 1) {
			tf_expect(near_recv(true, room, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in), 1);
			far_send(true, len, false);
		} else {
			far_send(true, len, false);
			next_waiting(true);
			tf_ok(near_recv(true, room, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in));
		}
		done = next_done();
		tf_expect(done->err, FI_ETRUNC);
		assert_ptr_equal(done->context, &both->in);
		assert_int_equal(done->flags, FI_RECV | FI_TAGGED);
		assert_int_equal(done->len, room);
		assert_int_equal(done->olen, len - room);
		assert_int_equal(done->source, FAR_NAME);
		assert_memory_equal(both->in, both->out, room);
		assert_int_equal(both->in[room], 0xee);
		assert_int_equal(both->near.owner.entries, 0);
	}
}

/* The owner sets FI_COMPLETION in the receives that it wants reported. */
static void test_selective(void **state)
{
	(void)state;
	tf_expect(near_recv(true, 8, FI_ADDR_UNSPEC, 0, NULL), 1);
	far_send(true, 8, false);
	while (both->near.owner.entries)
		poll_both();
	assert_memory_equal(both->in, both->out, 8);
	tf_expect(near_recv(true, 8, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in), 1);
	far_send(true, 8, false);
	came_whole(next_done(), true, 8, false, &both->in);
	assert_int_equal(both->near.owner.done_count, 1);
}

/* ---- the owner's functions are called by reads alone ---------------------------------------------- */

static void test_sends(void **state)
{
	struct near *near = &both->near;
	const struct owner_done *done;
	ssize_t ret;

	(void)state;
	far_send(true, 8, false); /* it waits in the ring of the near endpoint */
	tf_ok(fi_tsend(near->ep, both->out, 8, NULL, near->far, TAG, &near->ep));
	do { /* until there is no room, which makes another endpoint poll */
		ret = fi_tinject(near->ep, both->out, 8, near->far, TAG);
	} while (!ret);
	tf_expect(ret, -FI_EAGAIN);
	assert_int_equal(near->owner.calls, 0);
	done = next_done();
	tf_expect(done->err, 0);
	assert_ptr_equal(done->context, &near->ep);
	assert_int_equal(done->flags, FI_SEND | FI_TAGGED);
	next_waiting(true);
	tf_ok(owner_discard(&near->owner, true));
}

static struct fid_mr *registered;

static void register_here(void)
{
	tf_ok(fi_mr_reg(both->near.domain, both->in, LARGE, FI_RECV, 0, 1, 0, &registered, NULL));
}

/* lnx registers the memory of a receive when it is asked for the receive. */
static void test_registers(void **state)
{
	(void)state;
	both->near.owner.asked = register_here;
	tf_expect(near_recv(true, 8, FAR_NAME, FI_COMPLETION, &both->in), 1);
	far_send(true, 8, false);
	came_whole(next_done(), true, 8, false, &both->in);
	TF_CLOSE(registered);
}

/* A completion that the owner does not take stays, and comes with a later read. */
static void test_refused(void **state)
{
	struct owner *owner = &both->near.owner;
	unsigned calls;

	(void)state;
	owner->refuses = true;
	tf_expect(near_recv(true, 8, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in), 1);
	far_send(true, 8, false);
	for (calls = owner->calls;
	     owner->calls < calls + 5;) /* get_tag once, then write again and again */
		poll_both();
	assert_int_equal(owner->done_count, 0);
	assert_int_equal(owner->entries, 1);
	owner->refuses = false;
	came_whole(next_done(), true, 8, false, &both->in);
}

/* A message that the owner cannot keep stays in the ring, whatever its way, and the next poll asks again. */
static void test_not_kept(void **state)
{
	struct owner *owner = &both->near.owner;

	(void)state;
	for (size_t i = 0; i < SIZES; i++) {
		unsigned calls = owner->calls;

		owner->unfit = true;
		far_send(true, sizes[i], false);
		while (owner->calls < calls + 6)
			poll_both();
		assert_null(owner->waiting[1].first);
		assert_int_equal(owner->entries, 0);
		owner->unfit = false;
		next_waiting(true);
		tf_ok(near_recv(true, sizes[i], FAR_NAME, FI_COMPLETION, &both->in));
		came_whole(next_done(), true, sizes[i], false, &both->in);
	}
}

static void test_counter(void **state)
{
	struct near *near = &both->near;

	(void)state;
	for (uint64_t i = 1; i <= 3; i++) {
		tf_expect(near_recv(true, 8, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in), 1);
		far_send(true, 8, false);
		came_whole(next_done(), true, 8, false, &both->in);
		assert_int_equal(near->owner.cntr.value,
				 i - 1); /* only a read of the counter counts there */
		tf_expect(fi_cntr_read(near->cntr), 0);
		assert_int_equal(near->owner.cntr.value, i);
	}
	tf_expect(near_recv(true, 4, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in), 1);
	far_send(true, 8, false);
	while (!near->owner.cntr.errors)
		tf_expect(fi_cntr_read(near->cntr), 0);
	assert_int_equal(near->owner.cntr.errors, 1);
	assert_int_equal(near->owner.cntr.value, 3);
	tf_expect(next_done()->err, FI_ETRUNC);
}

/* ---- the log --------------------------------------------------------------------------------------- */

/* Between log_begin() and log_end() stderr goes to `fd`. */
struct log {
	int fd, err;
};

static struct log log_begin(void)
{
	struct log log = { .fd = memfd_create("stderr", 0), .err = dup(STDERR_FILENO) };

	assert_true(log.fd >= 0 && log.err >= 0);
	dup2(log.fd, STDERR_FILENO);
	return log;
}

static void log_end(struct log *log, const char *expected)
{
	char text[4096];
	ssize_t size;

	dup2(log->err, STDERR_FILENO);
	size = pread(log->fd, text, sizeof(text) - 1, 0);
	assert_true(size >= 0);
	text[size] = '\0';
	if (!strstr(text, expected))
		fail_msg("no line with \"%s\" in: %s", expected, text);
	close(log->fd);
	close(log->err);
}

/* ---- names of sources ------------------------------------------------------------------------------ */

static void test_stranger(void **state)
{
	struct owner_entry *entry;

	(void)state;
	far_send(true, 8, false);
	entry = next_waiting(true);
	assert_int_equal(entry->head->addr, FI_ADDR_UNSPEC);
	tf_expect(insert_far(both->far.name), 1);
	if (owner_layout() == OWNER_17) /* the provider has no call to give it */
		entry->head->addr = FAR_NAME;
	assert_int_equal(entry->head->addr, FAR_NAME);
	tf_ok(near_recv(true, 8, FAR_NAME, FI_COMPLETION, &both->in));
	came_whole(next_done(), true, 8, false, &both->in);
}

/* lnx takes 0 for a success, and divides by the number of addresses. */
static void test_insertion(void **state)
{
	char name[TF_NAME_SIZE], *host;

	(void)state;
	strcpy(name, both->far.name);
	host = &name[sizeof(TF_PREFIX) - 1];
	*host = *host == '0' ? '1' : '0'; /* of another machine */
	tf_expect(insert_far(name), -FI_EHOSTUNREACH);
	assert_int_equal(both->near.far, FI_ADDR_NOTAVAIL);
}

/* A line tells what to do about two containers with one host name, which lnx takes for one machine. */
static void test_insertion_log(void **state)
{
	struct log log = log_begin();

	test_insertion(state);
	log_end(&log, "give each machine or container its own host name, or set FI_LNX_DISABLE_SHM=1");
}

/* ---- the end of one side ---------------------------------------------------------------------------- */

/* The near endpoint closes while messages wait with the owner, and while one is received. */
static void test_close_ep(void **state)
{
	struct near *near = &both->near;
	struct owner_entry *large, *last;

	(void)state;
	far_send(true, 8, false);
	next_waiting(true);
	far_send(true, 16, false);
	far_send(true, LARGE, false);
	while (near->owner.entries < 3)
		poll_both();
	large = near->owner.waiting[true].first->next->next;
	owner_remove(&near->owner.waiting[true], large);
	large->iov[0] = (struct iovec){ both->in, LARGE };
	large->tail->count = 1;
	large->tail->flags |= FI_COMPLETION;
	large->tail->context = &large;
	tf_ok(near->owner.srx.peer_ops->start_tag(large)); /* nothing polls after this */
	near_close_ep(near);
	assert_int_equal(near->owner.entries, 2);
	assert_int_equal(near->owner.done_count, 1);
	assert_ptr_equal(near->owner.done[0].context, &large);
	if (near->owner.done[0].err)
		tf_expect(near->owner.done[0].err, FI_ECANCELED);
	tf_ok(owner_discard(&near->owner, true));
	last = near->owner.waiting[true].first;
	tf_expect(near_recv(true, 16, FI_ADDR_UNSPEC, FI_COMPLETION, NULL), -FI_ENOTCONN);
	assert_int_equal(near->owner.entries, 1); /* it stays the owner's */
	free(last);
}

/* The context closes with messages that its owner has not returned. */
static void test_close_srx(void **state)
{
	struct near *near = &both->near;

	(void)state;
	for (size_t i = 0; i < SIZES; i++)
		far_send(i & 1, sizes[i], false);
	while (near->owner.entries < (int)SIZES)
		poll_both();
	near_close_ep(near);
	TF_CLOSE(near->srx);
	near->srx = NULL;
	for (int tagged = 0; tagged < 2; tagged++)
		while (near->owner.waiting[tagged].first) {
			struct owner_entry *entry = near->owner.waiting[tagged].first;

			owner_remove(&near->owner.waiting[tagged], entry);
			free(entry);
		}
	near_poll();
	tf_expect(fi_cntr_read(near->cntr), 0);
}

/*
 * EFA of 2.x closes the context first, and frees its own context and all entries; EFA of 1.x frees them and closes
 * none. A message is in transfer, another one has not been looked at.
 */
static void close_without_owner(struct near *near)
{
	struct owner_entry *large;
	unsigned int calls;

	far_send(true, 8, false);
	next_waiting(true);
	tf_ok(owner_discard(&near->owner, true));
	far_send(true, LARGE, false);
	large = next_waiting(true);
	owner_remove(&near->owner.waiting[true], large);
	owner_fill(large, &(struct iovec){ both->in, LARGE }, 1, FI_COMPLETION, &large);
	tf_ok(large->head->srx->peer_ops->start_tag(large));
	far_send(true, 8, false);
	if (near->srx)
		TF_CLOSE(near->srx);
	near->srx = NULL;
	memset(&near->owner.srx, 0xa5, sizeof(near->owner.srx));
	free(large);
	calls = near->owner.calls;
	near_close_ep(near);
	assert_int_equal(near->owner.calls, calls);
	assert_int_equal(near->owner.done_count, 0);
}

static void test_close_srx_first(void **state)
{
	struct fid_ep *alias = NULL;

	(void)state;
	if (both->near.srx) {
		tf_ok(fi_ep_alias(both->near.srx, &alias, FI_RECV));
		tf_expect(fi_close(&both->near.srx->fid), -FI_EBUSY);
		TF_CLOSE(alias);
	}
	close_without_owner(&both->near);
}

/*
 * The table of functions in the owner's own context stays, and EFA of 1.19 and 1.20 discards messages when the endpoint
 * has ended. Other versions refuse a context that is none of ours.
 */
static void test_lends(void **state)
{
	struct owner owner;

	if (lends) {
		assert_null(both->near.owner.srx.peer_ops->start_tag);
		test_unexpected(state);
		far_send(true, 8, false);
		next_waiting(true);
		near_close_ep(&both->near);
		tf_ok(owner_discard(&both->near.owner, true));
		return;
	}
	owner_init(&owner);
	near_close_ep(&both->near);
	tf_ok(fi_endpoint(both->near.domain, both->near.info, &both->near.ep, NULL));
	tf_expect(fi_ep_bind(both->near.ep, &owner.srx.ep.fid, 0), -FI_EINVAL);
}

/* Receives that have ended, and that the owner has not taken yet, are given to it before the endpoint is gone. */
static void test_close_unread(void **state)
{
	struct near *near = &both->near;

	(void)state;
	near->owner.refuses = true;
	tf_expect(near_recv(true, 8, FI_ADDR_UNSPEC, FI_COMPLETION, &both->in), 1);
	far_send(true, 8, false);
	while (near->owner.calls < 3)
		poll_both();
	near_close_ep(near);
	assert_int_equal(near->owner.entries, 0);
	near->owner.refuses = false;
	near_poll();
	assert_int_equal(near->owner.done_count, 0);
}

/* A process of its own sends messages and waits to be killed. */
static void sender(const char *name)
{
	fi_addr_t to;
	struct tf t;
	static char out[LARGE];

	tf_open(&t, NULL);
	to = tf_insert(&t, name);
	puts(t.name);
	fflush(stdout);
	tf_expect(getchar(), 'g');
	tf_ok(fi_tsend(t.ep, out, 16, NULL, to, TAG, NULL));
	tf_ok(fi_tsend(t.ep, out, LARGE, NULL, to, TAG, NULL));
	for (;;) {
		struct fi_cq_tagged_entry entry;

		(void)fi_cq_read(t.tx_cq, &entry, 1);
		(void)fi_cq_read(t.rx_cq, &entry, 1);
	}
}

/* The sender dies while its messages wait with the owner: what has come whole is received, the rest fails. */
static void test_death(void **state)
{
	(void)state;
	struct near *near = &both->near;
	const struct owner_done *done;
	char name[TF_NAME_SIZE + 1];
	int to[2], from[2], status;
	pid_t child;

	assert_int_equal(pipe(to) | pipe(from), 0);
	child = fork();
	if (!child) {
		dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		close(to[1]);
		execl("/proc/self/exe", "test_owner", near->name, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	for (size_t got = 0; got < TF_NAME_SIZE;) {
		ssize_t ret = read(from[0], name + got, TF_NAME_SIZE - got);

		assert_true(ret > 0);
		got += (size_t)ret;
	}
	name[TF_NAME_SIZE - 1] = '\0';
	tf_expect(insert_far(name), 1);
	assert_int_equal(write(to[1], "g", 1), 1);
	while (near->owner.entries < 2)
		near_poll();
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	tf_ok(near_recv(true, 16, FAR_NAME, FI_COMPLETION, &both->in));
	done = next_done();
	tf_expect(done->err, 0);
	assert_int_equal(done->len, 16);
	tf_ok(near_recv(true, LARGE, FAR_NAME, FI_COMPLETION, &both->in));
	done = next_done();
	tf_expect(done->err, FI_ECONNRESET);
	assert_ptr_equal(done->context, &both->in);
	assert_int_equal(near->owner.entries, 0);
	close(to[1]);
	close(from[0]);
}

/* A child closes what it has inherited, and does not wait for a lock of the parent. */
static void test_forked(void **state)
{
	struct near *near = &both->near;
	struct fid *inherited[] = { &near->ep->fid, &near->srx->fid,	&near->cntr->fid,  &near->cq->fid,
				    &near->av->fid, &near->domain->fid, &near->fabric->fid };
	int status;
	pid_t child;

	(void)state;
	child = fork();
	if (!child) {
		watchdog_start("the child of test_forked", 0);
		for (size_t i = 0; i < sizeof(inherited) / sizeof(inherited[0]); i++)
			if (fi_close(inherited[i]))
				_exit(1);
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- a strict target ------------------------------------------------------------------------------- */

static int threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	int count = 0;

	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* FI_SHMCMA_RMA=strict gives a domain a thread, such as the far one; but no thread may call an owner. */
static void test_strict(void **state)
{
	static struct near other;
	struct fi_info *info;
	int count = threads();

	(void)state;
	assert_int_equal(both->far.info->domain_attr->data_progress, FI_PROGRESS_AUTO);
	tf_ok(near_info(HIDDEN, CAPS | FI_RMA, FI_PROGRESS_UNSPEC, &info));
	assert_int_equal(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
	fi_freeinfo(info);
	near_open_fabric(&other);
	near_open_domain(&other);
	near_open_ep(&other, 0);
	assert_int_equal(threads(), count);
	near_close(&other);
	far_send(true, 8, false);
	assert_int_equal(both->near.owner.calls, 0);
	tf_expect(near_recv(true, 8, FAR_NAME, FI_COMPLETION, &both->in), 1);
	came_whole(next_done(), true, 8, false, &both->in);
}

/* ---- the near endpoint alone in its process --------------------------------------------------------- */

static void open_near(void)
{
	both = calloc(1, sizeof(*both));
	near_open_fabric(&both->near);
	near_open_domain(&both->near);
	near_open_ep(&both->near, 0);
}

static void close_near(void)
{
	near_close(&both->near);
	free(both);
}

/* An owner that has one thread keeps one, and its polls find the death of a sender. Runs first in its process. */
static void test_one_thread(void **state)
{
	int count = threads();

	if (count > 1) {
		print_message("needs a build without a sanitizer that has threads of its own\n");
		skip();
	}
	open_near();
	assert_int_equal(threads(), count);
	test_death(state);
	assert_int_equal(threads(), count);
	close_near();
}

static void *sleep_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

/* In a process with several threads the endpoint starts the thread that finds deaths. */
static void test_more_threads(void **state)
{
	pthread_t sleeper;
	int count;

	(void)state;
	assert_int_equal(pthread_create(&sleeper, NULL, sleep_for_ever, NULL), 0);
	count = threads();
	open_near();
	assert_int_equal(threads(), count + 1);
	close_near();
}

/* ---- the versions of libfabric --------------------------------------------------------------------- */

static uint32_t pretended; /* 0: the true one */

/* In the place of libfabric's. */
__attribute__((visibility("default"))) uint32_t fi_version(void)
{
	uint32_t (*library)(void);

	if (pretended)
		return pretended;
	*(void **)&library = dlsym(RTLD_NEXT, "fi_version");
	return library();
}

/* The layout of a version behind the last known one is unknown: another provider gets no info, and a line says why. */
static void test_unknown(void **state)
{
	struct log log = log_begin();
	struct fi_info *info;

	(void)state;
	tf_expect(near_info(HIDDEN, CAPS, FI_PROGRESS_UNSPEC, &info), -FI_ENODATA);
	log_end(&log, "libfabric 2.7 may have other structures");
}

static int run_unknown(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_unknown) };

	setenv("FI_LOG_LEVEL", "warn", 1);
	return cmocka_run_group_tests_name("an unknown layout", tests, NULL, NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static int run_elsewhere(void)
{
	const struct CMUnitTest tests[] = { TEST(test_insertion_log) };

	setenv("FI_LOG_LEVEL", "warn", 1);
	return cmocka_run_group_tests_name("a peer of another machine", tests, NULL, NULL);
}

static int run_strict(void)
{
	const struct CMUnitTest tests[] = { TEST(test_strict) };

	setenv("FI_SHMCMA_RMA", "strict", 1);
	return cmocka_run_group_tests_name("FI_SHMCMA_RMA=strict", tests, NULL, NULL);
}

static int run_near(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_thread),
		cmocka_unit_test(test_more_threads),
	};

	return cmocka_run_group_tests_name("the near endpoint alone", tests, NULL, NULL);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_info),
		TEST(test_info_domain),
		TEST(test_not_shown),
		cmocka_unit_test(test_info_open),
		TEST(test_open),
		TEST(test_open_wait),
		TEST(test_other_reads),
		TEST(test_needs_cq),
		TEST(test_expected),
		TEST(test_unexpected),
		TEST(test_many),
		TEST(test_discard),
		TEST(test_truncated),
		cmocka_unit_test_setup_teardown(test_selective, setup_selective, teardown),
		TEST(test_sends),
		TEST(test_registers),
		TEST(test_refused),
		TEST(test_not_kept),
		TEST(test_counter),
		cmocka_unit_test_setup_teardown(test_stranger, setup_stranger, teardown),
		TEST(test_insertion),
		TEST(test_inserted_again),
		TEST(test_close_ep),
		TEST(test_close_srx),
		TEST(test_close_srx_first),
		TEST(test_close_unread),
		cmocka_unit_test_setup_teardown(test_lends, setup_lends, teardown),
		cmocka_unit_test_setup_teardown(test_close_srx_first, setup_lends, teardown),
		TEST(test_death),
		TEST(test_forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The provider looks at the version once, so each runs in a process of its own. */
static int run_as(uint32_t version, int (*tests)(void))
{
	int status;
	pid_t child = fork();

	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pretended = version;
		exit(tests());
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 1;
	if (status)
		fprintf(stderr, "failed with libfabric %u.%u\n", FI_MAJOR(version), FI_MINOR(version));
	return !!status;
}

int main(int argc, char **argv)
{
	if (argc == 2)
		sender(argv[1]);
	/* not 2.5, whose larger attributes an older library does not allocate */
	return run_as(0, run) | run_as(0, run_strict) | run_as(0, run_near) | run_as(0, run_elsewhere) |
	       run_as(FI_VERSION(1, 19), run) | run_as(FI_VERSION(2, 0), run) |
	       run_as(FI_VERSION(2, 3), run) | run_as(FI_VERSION(2, 7), run_unknown);
}
