/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_shared_ctx.c: shared contexts as fi_endpoint(3) has them: several endpoints that receive by one queue, or
 * send with one transmit size.
 *
 * MEMBERS endpoints share both contexts; `pair.b` is an endpoint of its own that talks to them.
 */
#include "pair.h"

#define MEMBERS 3
#define LARGE ((size_t)200000)
#define CAPS (FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE)

struct shared {
	struct pair pair; /* b alone is open */
	struct fid_stx *stx;
	struct fid_ep *srx;
	struct fid_av *av;
	struct side members[MEMBERS];	 /* with queues of their own; av is the shared one */
	fi_addr_t of_member[MEMBERS], b; /* in b's address vector; b in theirs */
};

/* An endpoint that is to share; bound to nothing. */
static struct fid_ep *member_open(struct pair *pair, bool tx, bool rx)
{
	struct fid_ep *ep;

	pair->info->ep_attr->tx_ctx_cnt = tx ? FI_SHARED_CONTEXT : 1;
	pair->info->ep_attr->rx_ctx_cnt = rx ? FI_SHARED_CONTEXT : 1;
	gives(fi_endpoint(pair->domain, pair->info, &ep, NULL), 0);
	pair->info->ep_attr->tx_ctx_cnt = 1;
	pair->info->ep_attr->rx_ctx_cnt = 1;
	return ep;
}

static void bind_queues(struct shared *all, struct side *side)
{
	gives(fi_ep_bind(side->ep, &all->av->fid, 0), 0);
	gives(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | all->pair.want.tx_bind), 0);
	gives(fi_ep_bind(side->ep, &side->cq->fid, FI_RECV | all->pair.want.rx_bind), 0);
}

static void member_enable(struct shared *all, struct side *side)
{
	size_t len = sizeof(side->name);

	side->ep = member_open(&all->pair, true, true);
	side->cq = pair_open_cq(&all->pair);
	bind_queues(all, side);
	gives(fi_ep_bind(side->ep, &all->stx->fid, 0), 0);
	gives(fi_ep_bind(side->ep, &all->srx->fid, 0), 0);
	gives(fi_enable(side->ep), 0);
	gives(fi_getname(&side->ep->fid, side->name, &len), 0);
}

static void shared_open(struct shared *all, const struct pair_want *want)
{
	memset(all, 0, sizeof(*all));
	pair_open_domain(&all->pair, want);
	gives(fi_stx_context(all->pair.domain, all->pair.info->tx_attr, &all->stx, NULL), 0);
	gives(fi_srx_context(all->pair.domain, all->pair.info->rx_attr, &all->srx, NULL), 0);
	all->av = pair_open_av(&all->pair);
	side_open(&all->pair, &all->pair.b);
	all->b = pair_insert(all->av, all->pair.b.name);
	for (int i = 0; i < MEMBERS; i++) {
		member_enable(all, &all->members[i]);
		all->of_member[i] = pair_insert(all->pair.b.av, all->members[i].name);
	}
}

static void member_close(struct side *side)
{
	gives(fi_close(&side->ep->fid), 0);
	gives(fi_close(&side->cq->fid), 0);
	side->ep = NULL;
	side->cq = NULL;
}

static void shared_close(struct shared *all)
{
	for (int i = 0; i < MEMBERS; i++)
		if (all->members[i].ep)
			member_close(&all->members[i]);
	gives(fi_close(&all->srx->fid), 0);
	gives(fi_close(&all->stx->fid), 0);
	gives(fi_close(&all->av->fid), 0);
	pair_close(&all->pair);
}

static void progress(struct shared *all)
{
	side_progress(&all->pair.b);
	for (int i = 0; i < MEMBERS; i++)
		side_progress(&all->members[i]);
}

static struct done done(struct shared *all, struct side *side)
{
	struct done done = { .source = 0 };
	ssize_t ret;

	while ((ret = fi_cq_readfrom(side->cq, &done.entry, 1, &done.source)) == -FI_EAGAIN)
		progress(all);
	gives(ret, 1);
	pair_saw(&done.entry);
	return done;
}

static struct fi_cq_err_entry failed(struct shared *all, struct side *side)
{
	struct fi_cq_err_entry error = { .err = 0 };
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	while ((ret = fi_cq_read(side->cq, &entry, 1)) == -FI_EAGAIN)
		progress(all);
	gives(ret, -FI_EAVAIL);
	gives(fi_cq_readerr(side->cq, &error, 0), 1);
	return error;
}

static void quiet(struct shared *all, struct side *side)
{
	struct fi_cq_tagged_entry entry;

	for (int i = 0; i < 100; i++) {
		progress(all);
		gives(fi_cq_read(side->cq, &entry, 1), -FI_EAGAIN);
	}
}

#define until_taken(all, call)                                                                            \
	do {                                                                                              \
		ssize_t ret_;                                                                             \
		while ((ret_ = (call)) == -FI_EAGAIN)                                                     \
			progress(all);                                                                    \
		gives(ret_, 0);                                                                           \
	} while (0)

/* From b to a member, which takes it in. */
static void send_to(struct shared *all, int member, const void *buf, size_t len)
{
	until_taken(all, fi_send(all->pair.b.ep, buf, len, NULL, all->of_member[member], NULL));
	must(done(all, &all->pair.b).entry.flags & FI_SEND);
}

/* ---- opening, binding, closing --------------------------------------------------------------- */

static void test_open(void)
{
	struct fi_tx_attr tx_attr = { .caps = FI_TAGGED, .size = 10 };
	struct fi_rx_attr rx_attr = { .caps = FI_TAGGED, .size = 20 };
	struct pair pair;
	struct fid_stx *stx;
	struct fid_ep *srx;
	size_t size, len = sizeof(size);

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_stx_context(pair.domain, NULL, &stx, &pair), 0);
	gives(stx->fid.fclass, FI_CLASS_STX_CTX);
	must(stx->fid.context == &pair);
	gives(stx->ops->cancel(&stx->fid, NULL), -FI_EOPNOTSUPP);
	gives(stx->ops->getopt(&stx->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &size, &len), -FI_ENOPROTOOPT);
	gives(stx->ops->setopt(&stx->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &size, len), -FI_ENOPROTOOPT);
	gives(stx->fid.ops->bind(&stx->fid, &pair.domain->fid, 0), -FI_ENOSYS);
	gives(fi_control(&stx->fid, FI_ENABLE, NULL), -FI_ENOSYS);
	gives(fi_close(&stx->fid), 0);
	gives(fi_stx_context(pair.domain, &tx_attr, &stx, NULL), 0);
	must(tx_attr.size >= 10 && tx_attr.inject_size > 0);
	gives(fi_close(&stx->fid), 0);
	tx_attr = (struct fi_tx_attr){ .caps = FI_RMA };
	gives(fi_stx_context(pair.domain, &tx_attr, &stx, NULL), -FI_EINVAL);

	gives(fi_srx_context(pair.domain, NULL, &srx, &pair), 0);
	gives(srx->fid.fclass, FI_CLASS_SRX_CTX);
	must(srx->fid.context == &pair);
	gives(fi_close(&srx->fid), 0);
	gives(fi_srx_context(pair.domain, &rx_attr, &srx, NULL), 0);
	must(rx_attr.size >= 20 && rx_attr.iov_limit > 0);
	gives(fi_enable(srx), 0); /* it is already */
	gives(fi_close(&srx->fid), 0);
	rx_attr = (struct fi_rx_attr){ .op_flags = FI_INJECT };
	gives(fi_srx_context(pair.domain, &rx_attr, &srx, NULL), -FI_EINVAL);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

static void test_bind(void)
{
	struct pair pair;
	struct fid_ep *srx, *tagged_srx, *ep, *plain, *other;
	struct fid_stx *stx, *tagged_stx;
	struct fi_tx_attr tx_attr = { .caps = FI_TAGGED };
	struct fi_rx_attr rx_attr = { .caps = FI_TAGGED };
	struct fid_av *av, *second_av;
	struct fid_domain *domain;
	struct fid_cq *cq;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_stx_context(pair.domain, NULL, &stx, NULL), 0);
	gives(fi_srx_context(pair.domain, NULL, &srx, NULL), 0);
	gives(fi_stx_context(pair.domain, &tx_attr, &tagged_stx, NULL), 0);
	gives(fi_srx_context(pair.domain, &rx_attr, &tagged_srx, NULL), 0);
	av = pair_open_av(&pair);
	second_av = pair_open_av(&pair);
	cq = pair_open_cq(&pair);
	ep = member_open(&pair, true, true);
	plain = pair_open_ep(&pair);
	pair_bind(ep, cq, av);

	/* an endpoint that has not asked to share cannot; nothing can be bound to a shared context */
	gives(fi_ep_bind(plain, &stx->fid, 0), -FI_EINVAL);
	gives(fi_ep_bind(plain, &srx->fid, 0), -FI_EINVAL);
	gives(fi_ep_bind(srx, &cq->fid, FI_RECV), -FI_EINVAL);
	gives(fi_ep_bind(srx, &av->fid, 0), -FI_EINVAL);
	/* an endpoint that has asked to share has to, once */
	gives(fi_enable(ep), -FI_EINVAL);
	gives(fi_ep_bind(ep, &stx->fid, FI_SEND), -FI_EBADFLAGS);
	gives(fi_ep_bind(ep, &srx->fid, FI_RECV), -FI_EBADFLAGS);
	gives(fi_ep_bind(ep, &tagged_stx->fid, 0), -FI_EINVAL); /* it has not all that the endpoint has */
	gives(fi_ep_bind(ep, &tagged_srx->fid, 0), -FI_EINVAL);
	gives(fi_ep_bind(ep, &stx->fid, 0), 0);
	gives(fi_ep_bind(ep, &stx->fid, 0), -FI_EINVAL);
	gives(fi_enable(ep), -FI_EINVAL);
	gives(fi_ep_bind(ep, &srx->fid, 0), 0);
	gives(fi_ep_bind(ep, &srx->fid, 0), -FI_EINVAL);
	gives(fi_enable(ep), 0);
	gives(fi_ep_bind(ep, &srx->fid, 0), -FI_EOPBADSTATE);
	/* of another domain */
	gives(fi_domain(pair.fabric, pair.info, &domain, NULL), 0);
	pair.info->ep_attr->tx_ctx_cnt = pair.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	gives(fi_endpoint(domain, pair.info, &other, NULL), 0);
	gives(fi_ep_bind(other, &stx->fid, 0), -FI_EINVAL);
	gives(fi_ep_bind(other, &srx->fid, 0), -FI_EINVAL);
	gives(fi_close(&other->fid), 0);
	gives(fi_close(&domain->fid), 0);
	/* all of a shared receive context have one address vector */
	other = member_open(&pair, false, true);
	pair_bind(other, cq, second_av);
	gives(fi_ep_bind(other, &srx->fid, 0), 0);
	gives(fi_enable(other), -FI_EINVAL);
	/* one may share in one direction alone; the context stays as long as anybody has it */
	gives(fi_close(&stx->fid), -FI_EBUSY);
	gives(fi_close(&srx->fid), -FI_EBUSY);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&stx->fid), 0);
	gives(fi_enable(other), 0);
	gives(fi_close(&srx->fid), -FI_EBUSY);
	gives(fi_close(&other->fid), 0);
	gives(fi_close(&srx->fid), 0);
	gives(fi_close(&tagged_stx->fid), 0);
	gives(fi_close(&tagged_srx->fid), 0);
	gives(fi_close(&plain->fid), 0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&av->fid), 0);
	gives(fi_close(&second_av->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/* A shared receive context receives, its endpoints do not by themselves. */
static void test_what_it_has(void)
{
	struct shared all;
	char buf[8] = "";

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	gives(fi_send(all.srx, buf, 1, NULL, all.b, NULL), -FI_EOPNOTSUPP);
	gives(fi_tsend(all.srx, buf, 1, NULL, all.b, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_recv(all.members[0].ep, buf, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPNOTSUPP);
	gives(fi_trecv(all.members[0].ep, buf, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_getname(&all.srx->fid, buf, &(size_t){ sizeof(buf) }), -FI_EOPBADSTATE);
	gives(fi_setname(&all.srx->fid, buf, sizeof(buf)), -FI_EINVAL);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	gives(fi_tx_size_left(all.srx), -FI_EOPNOTSUPP);
	gives(fi_rx_size_left(all.members[0].ep), -FI_EOPNOTSUPP);
#pragma GCC diagnostic pop
	shared_close(&all);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A message to any member takes the posted receives in order; the receive completes at that member. */
static void test_any_member(void)
{
	static const size_t sizes[] = { 1, 300, 40000, LARGE };
	uint8_t *out = malloc(LARGE), *in = malloc(LARGE);
	struct shared all;

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	for (size_t s = 0; s < 4; s++)
		for (int i = 0; i < 2 * MEMBERS; i++) {
			struct side *member = &all.members[i % MEMBERS];
			bool late = i < MEMBERS;
			struct done from;

			pattern_fill(out, 0, sizes[s], (unsigned int)i);
			if (!late)
				gives(fi_recv(all.srx, in, sizes[s], NULL, FI_ADDR_UNSPEC, &in), 0);
			until_taken(&all, fi_send(all.pair.b.ep, out, sizes[s], NULL,
						  all.of_member[i % MEMBERS], NULL));
			for (int j = 0; late && j < 50; j++)
				progress(&all);
			if (late)
				gives(fi_recv(all.srx, in, sizes[s], NULL, FI_ADDR_UNSPEC, &in), 0);
			from = done(&all, member);
			must(from.entry.op_context == &in && from.entry.len == sizes[s]);
			must(from.source == all.b);
			must(pattern_is(in, 0, sizes[s], (unsigned int)i));
			done(&all, &all.pair.b);
		}
	free(out);
	free(in);
	shared_close(&all);
}

/* Messages that wait are matched in the order in which they came, at any member. */
static void test_order(void)
{
	struct shared all;
	char in[3 * MEMBERS] = "";

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	for (int i = 0; i < 3 * MEMBERS; i++) {
		char out = (char)('a' + i);

		send_to(&all, i % MEMBERS, &out, 1);
		for (int j = 0; j < 20; j++)
			side_progress(&all.members[i % MEMBERS]);
	}
	for (int i = 0; i < 3 * MEMBERS; i++) {
		gives(fi_recv(all.srx, &in[i], 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		done(&all, &all.members[i % MEMBERS]);
		must(in[i] == 'a' + i);
	}
	shared_close(&all);
}

/* By tag and by source, whichever endpoint it comes to. */
static void test_directed(void)
{
	struct shared all;
	struct side other = { .ep = NULL };
	fi_addr_t from_other, to_member;
	char buf;

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	side_open(&all.pair, &other);
	from_other = pair_insert(all.av, other.name);
	to_member = pair_insert(other.av, all.members[1].name);
	gives(fi_trecv(all.srx, &buf, 1, NULL, from_other, 5, 0, &other), 0);
	gives(fi_trecv(all.srx, &buf, 1, NULL, all.b, 6, 0, &all), 0);
	gives(fi_tinject(all.pair.b.ep, "b", 1, all.of_member[1], 5), 0);
	gives(fi_tinject(all.pair.b.ep, "B", 1, all.of_member[2], 6), 0);
	must(done(&all, &all.members[2]).entry.op_context == &all && buf == 'B');
	quiet(&all, &all.members[1]);
	gives(fi_tinject(other.ep, "o", 1, to_member, 5), 0);
	must(done(&all, &all.members[1]).entry.op_context == &other && buf == 'o');
	gives(fi_trecv(all.srx, &buf, 1, NULL, FI_ADDR_UNSPEC, 0, ~0ull, NULL), 0);
	must(done(&all, &all.members[1]).entry.tag == 5 && buf == 'b');
	gives(fi_trecv(all.srx, &buf, 1, NULL, 99, 5, 0, NULL), -FI_EINVAL);
	/* a receive from a source that all members have lost ends */
	gives(fi_trecv(all.srx, &buf, 1, NULL, from_other, 7, 0, &other), 0);
	side_close(&other);
	must(failed(&all, &all.members[0]).err == FI_ECONNRESET);
	shared_close(&all);
}

/* Without any endpoint there is nothing that an address could mean. */
static void test_before_enable(void)
{
	struct shared all;
	struct pair pair;
	struct fid_ep *srx;
	char buf = 0;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_srx_context(pair.domain, NULL, &srx, NULL), 0);
	gives(fi_recv(srx, &buf, 1, NULL, 0, NULL), -FI_EOPBADSTATE);
	gives(fi_recv(srx, &buf, 1, NULL, FI_ADDR_UNSPEC, &buf), 0);
	gives(fi_cancel(&srx->fid, &srx), -FI_ENOENT);
	gives(fi_cancel(&srx->fid, &buf), 0); /* and nobody can be told */
	gives(fi_recv(srx, &buf, 1, NULL, FI_ADDR_UNSPEC, &buf), 0);
	gives(fi_close(&srx->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);

	/* a receive that is posted before any endpoint exists serves the one that comes */
	memset(&all, 0, sizeof(all));
	pair_open_domain(&all.pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_stx_context(all.pair.domain, NULL, &all.stx, NULL), 0);
	gives(fi_srx_context(all.pair.domain, NULL, &all.srx, NULL), 0);
	gives(fi_recv(all.srx, &buf, 1, NULL, FI_ADDR_UNSPEC, &buf), 0);
	all.av = pair_open_av(&all.pair);
	side_open(&all.pair, &all.pair.b);
	member_enable(&all, &all.members[0]);
	all.of_member[0] = pair_insert(all.pair.b.av, all.members[0].name);
	send_to(&all, 0, "x", 1);
	must(done(&all, &all.members[0]).entry.op_context == &buf && buf == 'x');
	shared_close(&all);
}

/* ---- cancel, peek, room ---------------------------------------------------------------------- */

static void test_cancel(void)
{
	struct shared all;
	char buf;

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	gives(fi_recv(all.srx, &buf, 1, NULL, FI_ADDR_UNSPEC, &buf), 0);
	gives(fi_cancel(&all.members[1].ep->fid, &buf), -FI_ENOENT); /* it was posted elsewhere */
	gives(fi_cancel(&all.srx->fid, &buf), 0);
	must(failed(&all, &all.members[0]).err == FI_ECANCELED);
	gives(fi_cancel(&all.srx->fid, &buf), -FI_ENOENT);
	shared_close(&all);
}

static void test_peek(void)
{
	struct shared all;
	struct fi_msg_tagged msg = { .addr = FI_ADDR_UNSPEC, .tag = 3, .context = &all };
	struct fi_cq_err_entry error;
	char buf;

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	gives(fi_trecvmsg(all.srx, &msg, FI_PEEK), 0);
	error = failed(&all, &all.members[0]);
	must(error.err == FI_ENOMSG && error.op_context == &all);
	until_taken(&all, fi_tinject(all.pair.b.ep, "p", 1, all.of_member[2], 3));
	for (int i = 0; i < 50; i++)
		progress(&all);
	gives(fi_trecvmsg(all.srx, &msg, FI_PEEK | FI_CLAIM), 0);
	must(done(&all, &all.members[2]).entry.len == 1);
	pair_seen.peeks += 2;
	msg.msg_iov = &(struct iovec){ &buf, 1 };
	msg.iov_count = 1;
	gives(fi_trecvmsg(all.srx, &msg, FI_CLAIM), 0);
	done(&all, &all.members[2]);
	must(buf == 'p');
	shared_close(&all);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void test_room(void)
{
	struct shared all;
	ssize_t rx, tx;
	char buf;
	static uint8_t big[LARGE];

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	rx = fi_rx_size_left(all.srx);
	must(rx > 1);
	gives(fi_recv(all.srx, &buf, 1, NULL, FI_ADDR_UNSPEC, &buf), 0);
	gives(fi_rx_size_left(all.srx), rx - 1);
	send_to(&all, 1, "x", 1);
	done(&all, &all.members[1]);
	gives(fi_rx_size_left(all.srx), rx);

	/* one size for all: what one has outstanding the others have not */
	tx = fi_tx_size_left(all.members[0].ep);
	must(tx > 2);
	gives(fi_tx_size_left(all.members[1].ep), tx);
	until_taken(&all, fi_send(all.members[0].ep, big, LARGE, NULL, all.b, NULL));
	until_taken(&all, fi_send(all.members[2].ep, big, LARGE, NULL, all.b, NULL));
	for (int i = 0; i < MEMBERS; i++)
		gives(fi_tx_size_left(all.members[i].ep), tx - 2);
	for (int i = 0; i < 2; i++) {
		gives(fi_recv(all.pair.b.ep, big, LARGE, NULL, FI_ADDR_UNSPEC, NULL), 0);
		done(&all, &all.pair.b);
	}
	done(&all, &all.members[0]);
	done(&all, &all.members[2]);
	gives(fi_tx_size_left(all.members[1].ep), tx);
	shared_close(&all);
}
#pragma GCC diagnostic pop

/* ---- completions ----------------------------------------------------------------------------- */

/* Selective completion is of the endpoint that the message comes to, and the operation's flags. */
static void test_selective(void)
{
	struct shared all;
	struct iovec iov;
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC };
	char buf[4] = "";

	shared_open(&all, &(struct pair_want){ .caps = CAPS, .rx_bind = FI_SELECTIVE_COMPLETION });
	gives(fi_recv(all.srx, &buf[0], 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	iov = (struct iovec){ &buf[1], 1 };
	gives(fi_recvmsg(all.srx, &msg, FI_COMPLETION), 0);
	iov = (struct iovec){ &buf[2], 1 };
	gives(fi_recvmsg(all.srx, &msg, 0), 0);
	for (int i = 0; i < 3; i++) {
		until_taken(&all, fi_inject(all.pair.b.ep, &"xyz"[i], 1, all.of_member[0]));
		if (i == 1)
			done(&all, &all.members[0]);
		else
			quiet(&all, &all.members[0]);
	}
	must(!strcmp(buf, "xyz"));
	shared_close(&all);
}

static void test_counted(void)
{
	struct shared all = { .b = 0 };
	struct side *member = &all.members[0];
	struct fid_cntr *cntr;
	char buf;

	pair_open_domain(&all.pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_cntr_open(all.pair.domain, NULL, &cntr, NULL), 0);
	gives(fi_stx_context(all.pair.domain, NULL, &all.stx, NULL), 0);
	gives(fi_srx_context(all.pair.domain, NULL, &all.srx, NULL), 0);
	all.av = pair_open_av(&all.pair);
	side_open(&all.pair, &all.pair.b);
	member->ep = member_open(&all.pair, false, true);
	member->cq = pair_open_cq(&all.pair);
	bind_queues(&all, member);
	gives(fi_ep_bind(member->ep, &cntr->fid, FI_RECV), 0);
	gives(fi_ep_bind(member->ep, &all.srx->fid, 0), 0);
	gives(fi_enable(member->ep), 0);
	gives(fi_getname(&member->ep->fid, member->name, &(size_t){ sizeof(member->name) }), 0);
	all.of_member[0] = pair_insert(all.pair.b.av, member->name);
	gives(fi_recv(all.srx, &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	send_to(&all, 0, "c", 1);
	done(&all, member);
	gives(fi_cntr_read(cntr), 1);
	member_close(member);
	gives(fi_close(&cntr->fid), 0);
	shared_close(&all);
}

/* ---- multi-receive --------------------------------------------------------------------------- */

/* One buffer takes the messages to all members; the member whose message fills it gives it back. */
static void test_multi_recv(void)
{
	struct shared all;
	uint8_t buf[3000], out[1000];
	struct iovec iov = { buf, sizeof(buf) };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = &all };
	size_t min = sizeof(out);

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	gives(fi_setopt(&all.srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min, sizeof(min)), 0);
	gives(fi_recvmsg(all.srx, &msg, FI_MULTI_RECV), 0);
	for (int i = 0; i < MEMBERS; i++) {
		struct done got;

		pattern_fill(out, 0, sizeof(out), (unsigned int)i);
		send_to(&all, i, out, sizeof(out));
		got = done(&all, &all.members[i]);
		must(got.entry.op_context == &all && got.entry.buf == buf + (size_t)i * sizeof(out));
		must(pattern_is(got.entry.buf, 0, sizeof(out), (unsigned int)i));
		must(!(got.entry.flags & FI_MULTI_RECV) == (i < MEMBERS - 1));
	}
	shared_close(&all);
}

/* ---- an endpoint goes, the context stays ----------------------------------------------------- */

static void test_member_closes(void)
{
	struct shared all;
	char buf[2] = "";

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	/* a message that nobody has received goes with the endpoint that it came to, others stay */
	send_to(&all, 0, "x", 1);
	send_to(&all, 1, "y", 1);
	for (int i = 0; i < 50; i++)
		progress(&all);
	member_close(&all.members[0]);
	gives(fi_recv(all.srx, buf, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	done(&all, &all.members[1]);
	must(buf[0] == 'y');
	/* posted receives stay, and complete at the members that are left */
	gives(fi_recv(all.srx, buf, 1, NULL, FI_ADDR_UNSPEC, &buf[0]), 0);
	gives(fi_recv(all.srx, buf, 1, NULL, FI_ADDR_UNSPEC, &buf[1]), 0);
	member_close(&all.members[1]);
	send_to(&all, 2, "z", 1);
	must(done(&all, &all.members[2]).entry.op_context == &buf[0] && buf[0] == 'z');
	gives(fi_cancel(&all.srx->fid, &buf[1]), 0);
	must(failed(&all, &all.members[2]).err == FI_ECANCELED);
	shared_close(&all);
}

/* A large message on its way into a buffer of the context: the buffer is the application's again. */
static void test_member_closes_amid(void)
{
	static uint8_t out[8 << 20], in[8 << 20];
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { .err = 0 };
	struct shared all;
	ssize_t ret;

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	gives(fi_recv(all.srx, in, sizeof(in), NULL, FI_ADDR_UNSPEC, &in), 0);
	until_taken(&all, fi_send(all.pair.b.ep, out, sizeof(out), NULL, all.of_member[0], NULL));
	while (!(ret = fi_cq_read(all.members[0].cq, NULL, 0)) || ret == -FI_EAGAIN) {
		ssize_t left;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
		left = fi_rx_size_left(all.srx);
#pragma GCC diagnostic pop
		if (left == (ssize_t)all.pair.info->rx_attr->size)
			break; /* it is matched */
	}
	gives(fi_close(&all.members[0].ep->fid), 0);
	ret = fi_cq_read(all.members[0].cq, &entry, 1);
	if (ret == -FI_EAVAIL) {
		gives(fi_cq_readerr(all.members[0].cq, &error, 0), 1);
		must(error.op_context == &in && error.err == FI_ECANCELED);
	} else {
		gives(ret, 1);
		must(entry.op_context == &in);
	}
	gives(fi_close(&all.members[0].cq->fid), 0);
	all.members[0].ep = NULL;
	shared_close(&all);
}

/* In a child nothing of it can be used, and all of it closed; the parent does not notice. */
static void test_fork(void)
{
	struct shared all;
	char buf = 0;
	pid_t child;
	int status;

	shared_open(&all, &(struct pair_want){ .caps = CAPS });
	gives(fi_recv(all.srx, &buf, 1, NULL, FI_ADDR_UNSPEC, &buf), 0);
	child = fork();
	must(child >= 0);
	if (!child) {
		gives(fi_recv(all.srx, &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EPERM);
		gives(fi_cancel(&all.srx->fid, &buf), -FI_EPERM);
		gives(all.stx->ops->cancel(&all.stx->fid, NULL), -FI_EPERM);
		gives(fi_send(all.members[0].ep, &buf, 1, NULL, all.b, NULL), -FI_EPERM);
		shared_close(&all);
		_exit(0);
	}
	gives(waitpid(child, &status, 0), child);
	gives(status, 0);
	send_to(&all, 1, "f", 1);
	must(done(&all, &all.members[1]).entry.op_context == &buf && buf == 'f');
	shared_close(&all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(test_open),
		ALONE(test_bind),
		ALONE(test_what_it_has),
		ALONE(test_any_member),
		ALONE_ENV(test_any_member, "FI_SHMCMA_CMA=0"),
		ALONE(test_order),
		ALONE(test_directed),
		ALONE(test_before_enable),
		ALONE(test_cancel),
		ALONE(test_peek),
		ALONE(test_room),
		ALONE(test_selective),
		ALONE(test_counted),
		ALONE(test_multi_recv),
		ALONE(test_member_closes),
		ALONE(test_member_closes_amid),
		ALONE_ENV(test_member_closes_amid, "FI_SHMCMA_CMA=0"),
		ALONE(test_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
