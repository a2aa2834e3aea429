/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_scalable.c: scalable endpoints as fi_endpoint(3) and fi_av(3) have them: contexts, their bindings and
 * attributes, one name for all, fi_rx_addr(), and data of every kind between contexts.
 *
 * Two scalable endpoints of CONTEXTS contexts each way, in one process; every context has a queue of its own, so
 * that what comes to the wrong one shows.
 */
#include "pair.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#define CONTEXTS 3
#define BITS 2
#define LARGE ((size_t)200000)
#define CAPS (PAIR_CAPS | FI_RMA | FI_ATOMIC | FI_NAMED_RX_CTX)

struct scalable {
	struct fid_ep *sep, *tx[CONTEXTS], *rx[CONTEXTS];
	struct fid_cq *tx_cq[CONTEXTS], *rx_cq[CONTEXTS];
	struct fid_av *av;
	char name[64];
	fi_addr_t peer;
};

struct both {
	struct pair pair;
	struct scalable a, b;
};

static struct fid_av *open_av(struct pair *pair)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .rx_ctx_bits = BITS };
	struct fid_av *av;

	gives(fi_av_open(pair->domain, &attr, &av, NULL), 0);
	return av;
}

static struct fid_ep *open_sep(struct pair *pair)
{
	struct fid_ep *sep;

	pair->info->ep_attr->tx_ctx_cnt = CONTEXTS;
	pair->info->ep_attr->rx_ctx_cnt = CONTEXTS;
	gives(fi_scalable_ep(pair->domain, pair->info, &sep, NULL), 0);
	pair->info->ep_attr->tx_ctx_cnt = 1;
	pair->info->ep_attr->rx_ctx_cnt = 1;
	return sep;
}

static struct fid_ep *tx_open(struct fid_ep *sep, int index)
{
	struct fid_ep *ep;

	gives(fi_tx_context(sep, index, NULL, &ep, NULL), 0);
	return ep;
}

static struct fid_ep *rx_open(struct fid_ep *sep, int index)
{
	struct fid_ep *ep;

	gives(fi_rx_context(sep, index, NULL, &ep, NULL), 0);
	return ep;
}

static void scalable_open(struct pair *pair, struct scalable *all)
{
	size_t len = sizeof(all->name);

	all->av = open_av(pair);
	all->sep = open_sep(pair);
	gives(fi_scalable_ep_bind(all->sep, &all->av->fid, 0), 0);
	gives(fi_enable(all->sep), 0);
	for (int i = 0; i < CONTEXTS; i++) {
		all->tx[i] = tx_open(all->sep, i);
		all->rx[i] = rx_open(all->sep, i);
		all->tx_cq[i] = pair_open_cq(pair);
		all->rx_cq[i] = pair_open_cq(pair);
		gives(fi_ep_bind(all->tx[i], &all->tx_cq[i]->fid, FI_TRANSMIT), 0);
		gives(fi_ep_bind(all->rx[i], &all->rx_cq[i]->fid, FI_RECV), 0);
		gives(fi_enable(all->tx[i]), 0);
		gives(fi_enable(all->rx[i]), 0);
	}
	gives(fi_getname(&all->sep->fid, all->name, &len), 0);
}

static void close_all(struct fid_ep **eps)
{
	for (int i = 0; i < CONTEXTS; i++)
		if (eps[i])
			gives(fi_close(&eps[i]->fid), 0);
}

static void scalable_close(struct scalable *all)
{
	close_all(all->tx);
	close_all(all->rx);
	gives(fi_close(&all->sep->fid), 0);
	for (int i = 0; i < CONTEXTS; i++) {
		gives(fi_close(&all->tx_cq[i]->fid), 0);
		gives(fi_close(&all->rx_cq[i]->fid), 0);
	}
	gives(fi_close(&all->av->fid), 0);
}

static void both_open(struct both *both)
{
	pair_open_domain(&both->pair, &(struct pair_want){ .caps = CAPS });
	scalable_open(&both->pair, &both->a);
	scalable_open(&both->pair, &both->b);
	gives(fi_av_insert(both->a.av, both->a.name, 1, NULL, 0, NULL), 1); /* so that numbers differ */
	both->a.peer = pair_insert(both->a.av, both->b.name);
	both->b.peer = pair_insert(both->b.av, both->a.name);
}

static void both_close(struct both *both)
{
	scalable_close(&both->a);
	scalable_close(&both->b);
	gives(fi_close(&both->pair.domain->fid), 0);
	gives(fi_close(&both->pair.fabric->fid), 0);
	fi_freeinfo(both->pair.info);
}

static void progress(struct both *both)
{
	for (int i = 0; i < CONTEXTS; i++) {
		fi_cq_read(both->a.tx_cq[i], NULL, 0);
		fi_cq_read(both->a.rx_cq[i], NULL, 0);
		fi_cq_read(both->b.tx_cq[i], NULL, 0);
		fi_cq_read(both->b.rx_cq[i], NULL, 0);
	}
}

#define until_taken(both, call)                                                                           \
	do {                                                                                              \
		ssize_t ret_;                                                                             \
		while ((ret_ = (call)) == -FI_EAGAIN)                                                     \
			progress(both);                                                                   \
		gives(ret_, 0);                                                                           \
	} while (0)

static struct done done(struct both *both, struct fid_cq *cq)
{
	struct done done = { .source = 0 };
	ssize_t ret;

	while ((ret = fi_cq_readfrom(cq, &done.entry, 1, &done.source)) == -FI_EAGAIN)
		progress(both);
	gives(ret, 1);
	pair_saw(&done.entry);
	return done;
}

static struct fi_cq_err_entry failed(struct both *both, struct fid_cq *cq)
{
	struct fi_cq_err_entry error = { .err = 0 };
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	while ((ret = fi_cq_read(cq, &entry, 1)) == -FI_EAGAIN)
		progress(both);
	gives(ret, -FI_EAVAIL);
	gives(fi_cq_readerr(cq, &error, 0), 1);
	return error;
}

static void quiet(struct both *both, struct fid_cq *cq)
{
	struct fi_cq_tagged_entry entry;

	for (int i = 0; i < 100; i++) {
		progress(both);
		gives(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
	}
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void test_open(void)
{
	struct pair pair;
	struct fid_ep *sep, *ep;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	pair.info->ep_attr->tx_ctx_cnt = CONTEXTS;
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL),
	      -FI_EINVAL); /* several are for a scalable one */
	pair.info->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), -FI_EINVAL);
	pair.info->ep_attr->tx_ctx_cnt = pair.info->domain_attr->max_ep_tx_ctx + 1;
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), -FI_EINVAL);
	pair.info->ep_attr->tx_ctx_cnt = 0; /* one */
	pair.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), -FI_EINVAL);
	pair.info->ep_attr->rx_ctx_cnt = pair.info->domain_attr->max_ep_rx_ctx;
	gives(fi_scalable_ep(pair.domain, NULL, &sep, NULL), -FI_EINVAL);
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, &pair), 0);
	gives(sep->fid.fclass, FI_CLASS_SEP);
	must(sep->fid.context == &pair);
	gives(fi_tx_context(sep, 1, NULL, &ep, NULL), -FI_EINVAL);
	gives(fi_tx_context(sep, -1, NULL, &ep, NULL), -FI_EINVAL);
	gives(fi_rx_context(sep, (int)pair.info->ep_attr->rx_ctx_cnt, NULL, &ep, NULL), -FI_EINVAL);
	gives(fi_rx_context(sep, -1, NULL, &ep, NULL), -FI_EINVAL);
	gives(fi_rx_context(sep, (int)pair.info->ep_attr->rx_ctx_cnt - 1, NULL, &ep, &sep), 0);
	gives(ep->fid.fclass, FI_CLASS_RX_CTX);
	must(ep->fid.context == &sep);
	gives(fi_close(&ep->fid), 0);
	gives(fi_tx_context(sep, 0, NULL, &ep, NULL), 0);
	gives(ep->fid.fclass, FI_CLASS_TX_CTX);
	gives(fi_close(&sep->fid), -FI_EBUSY);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&sep->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/* A collective operation needs both directions of one endpoint. */
static void test_no_collectives(void)
{
	struct pair pair;
	struct fid_ep *sep;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	pair.info->caps |= FI_COLLECTIVE;
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), -FI_EINVAL);
	pair.info->ep_attr->rx_ctx_cnt = CONTEXTS;
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), -FI_EINVAL);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/* A place is one context's at a time. */
static void test_open_again(void)
{
	struct both both;
	struct fid_ep *ep, *fresh;

	both_open(&both);
	gives(fi_tx_context(both.a.sep, 0, NULL, &ep, NULL), -FI_EBUSY);
	gives(fi_rx_context(both.a.sep, 0, NULL, &ep, NULL), -FI_EBUSY);
	until_taken(&both, fi_send(both.a.tx[1], "x", 1, NULL, both.a.peer, NULL));
	done(&both, both.a.tx_cq[1]);
	gives(fi_close(&both.a.tx[1]->fid), 0);
	both.a.tx[1] = tx_open(both.a.sep, 1);
	gives(fi_ep_bind(both.a.tx[1], &both.a.tx_cq[1]->fid, FI_TRANSMIT), 0);
	gives(fi_enable(both.a.tx[1]), 0);
	until_taken(&both, fi_send(both.a.tx[1], "y", 1, NULL, both.a.peer, NULL));
	done(&both, both.a.tx_cq[1]);
	for (const char *c = "xy"; *c; c++) {
		char buf = 0;
		struct done from;

		gives(fi_recv(both.b.rx[0], &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		from = done(&both, both.b.rx_cq[0]);
		must(buf == *c && from.source == both.b.peer);
	}
	/* one that has never been enabled nobody knows */
	fresh = open_sep(&both.pair);
	ep = rx_open(fresh, 0);
	gives(fi_close(&ep->fid), 0);
	ep = rx_open(fresh, 0);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&fresh->fid), 0);
	both_close(&both);
}

static void rx_enable(struct scalable *all, int i)
{
	all->rx[i] = rx_open(all->sep, i);
	gives(fi_ep_bind(all->rx[i], &all->rx_cq[i]->fid, FI_RECV), 0);
	gives(fi_enable(all->rx[i]), 0);
}

static void rx_close(struct scalable *all, int i)
{
	gives(fi_close(&all->rx[i]->fid), 0);
	all->rx[i] = NULL;
}

#define AGAIN 10

/* A message from a to that receive context of b, and one back to the place it came from. */
static void answered(struct both *both, int i)
{
	char out = (char)('A' + i), buf = 0;
	struct done from;

	until_taken(both, fi_inject(both->a.tx[i], &out, 1, fi_rx_addr(both->a.peer, i, BITS)));
	gives(fi_recv(both->b.rx[i], &buf, 1, NULL, both->b.peer, NULL), 0);
	from = done(both, both->b.rx_cq[i]);
	must(buf == out && from.source == both->b.peer);
}

/* A receive context has its address again, for those who have sent to it before and those who have not. */
static void test_rx_again(void)
{
	struct both both;
	char old[64], name[64];
	size_t len = sizeof(name);

	both_open(&both);
	memcpy(old, both.b.name, sizeof(old));
	for (int n = 0; n < AGAIN; n++)
		for (int i = 0; i < CONTEXTS; i++) {
			if (n % 2)
				answered(&both, i);
			rx_close(&both.b, i);
			if (n % 3 == 1)
				progress(&both); /* the sender knows, or not yet */
			if (n % 4 == 3) { /* and has been told */
				ssize_t ret;

				while ((ret = fi_inject(both.a.tx[i], "x", 1,
							fi_rx_addr(both.a.peer, i, BITS))) == -FI_EAGAIN)
					progress(&both);
				must(ret == -FI_ECONNRESET || ret == -FI_ECONNREFUSED);
			}
			rx_enable(&both.b, i);
			gives(fi_getname(&both.b.sep->fid, name, &len), 0);
			must(!memcmp(name, old, sizeof(name)));
			answered(&both, i);
			answered(&both, (i + 1) % CONTEXTS);
		}
	both_close(&both);
}

#define UNREAD 150 /* acknowledgements, more than a ring has lines */

/* The sender of messages that have been received reads no acknowledgement before the context is opened again. */
static void test_rx_answers_unread(void)
{
	struct fi_cq_tagged_entry entry;
	struct both both;
	char in[8];

	both_open(&both);
	for (int i = 0; i < UNREAD; i++) {
		struct iovec iov = { "x", 1 };
		struct fi_msg msg = { .msg_iov = &iov,
				      .iov_count = 1,
				      .addr = fi_rx_addr(both.a.peer, 1, BITS) };
		ssize_t ret;

		gives(fi_recv(both.b.rx[1], in, sizeof(in), NULL, FI_ADDR_UNSPEC, NULL), 0);
		gives(fi_sendmsg(both.a.tx[1], &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION), 0);
		while ((ret = fi_cq_read(both.b.rx_cq[1], &entry, 1)) == -FI_EAGAIN)
			;
		gives(ret, 1);
	}
	rx_close(&both.b, 1);
	rx_enable(&both.b, 1);
	for (int i = 0; i < UNREAD; i++) {
		ssize_t ret;

		while ((ret = fi_cq_read(both.a.tx_cq[1], &entry, 1)) == -FI_EAGAIN)
			progress(&both);
		if (ret == -FI_EAVAIL) {
			struct fi_cq_err_entry error = { .err = 0 };

			gives(fi_cq_readerr(both.a.tx_cq[1], &error, 0), 1);
			gives(error.err, FI_ECONNRESET);
		}
	}
	answered(&both, 1);
	both_close(&both);
}

/* A context that was not there when it was first sent to. */
static void test_rx_later(void)
{
	struct both both;

	both_open(&both);
	rx_close(&both.b, 1);
	for (int i = 0; i < 3; i++)
		gives(fi_send(both.a.tx[1], "x", 1, NULL, fi_rx_addr(both.a.peer, 1, BITS), NULL),
		      -FI_ECONNREFUSED);
	rx_enable(&both.b, 1);
	answered(&both, 1);
	both_close(&both);
}

/*
 * A message under way to a context that closes ends in an error if nobody has received it, and the next context does
 * not receive it. Small and large, eager and not, from several contexts, in all states of the sender that the next
 * context can find.
 */
static void test_rx_under_way(void)
{
	static uint8_t out[LARGE], in[LARGE];
	struct both both;

	pattern_fill(out, 0, LARGE, 1);
	both_open(&both);
	for (int n = 0; n < 12; n++) {
		size_t size = n % 3 == 0 ? 8 : n % 3 == 1 ? 5000 : LARGE;
		fi_addr_t to = fi_rx_addr(both.a.peer, 1, BITS);
		int last = 0;

		/* with delivery completion: known to have been received, or not */
		for (int i = 0; i < CONTEXTS; i++) {
			struct iovec iov = { &out[0], size };
			struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = to };

			until_taken(&both, fi_sendmsg(both.a.tx[i], &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
		}
		if (n & 1) { /* the first is received, the others wait unmatched */
			gives(fi_recv(both.b.rx[1], in, LARGE, NULL, FI_ADDR_UNSPEC, NULL), 0);
			done(&both, both.b.rx_cq[1]);
			last = 1;
		}
		if (n & 2)
			for (int i = 0; i < 20; i++)
				progress(&both);
		rx_close(&both.b, 1);
		rx_enable(&both.b, 1);
		gives(fi_recv(both.b.rx[1], in, LARGE, NULL, FI_ADDR_UNSPEC, NULL), 0);
		for (int i = 0, good = 0; i < CONTEXTS; i++) {
			struct fi_cq_err_entry error = { .err = 0 };
			struct fi_cq_tagged_entry entry;
			ssize_t ret;

			while ((ret = fi_cq_read(both.a.tx_cq[i], &entry, 1)) == -FI_EAGAIN)
				progress(&both);
			if (ret == -FI_EAVAIL) {
				gives(fi_cq_readerr(both.a.tx_cq[i], &error, 0), 1);
				must(error.err == FI_ECONNRESET);
			} else {
				gives(ret, 1);
				pair_saw(&entry);
				good++;
			}
			must(i + 1 < CONTEXTS || good == last);
		}
		quiet(&both, both.b.rx_cq[1]);
		/* a send of each that comes after */
		for (int i = 0; i < CONTEXTS; i++) {
			struct done got;

			pattern_fill(out, 0, LARGE, (unsigned int)(2 + i));
			until_taken(&both, fi_send(both.a.tx[i], out, size, NULL, to, NULL));
			got = done(&both, both.b.rx_cq[1]);
			must(got.entry.len == size && pattern_is(in, 0, size, (unsigned int)(2 + i)));
			done(&both, both.a.tx_cq[i]);
			if (i + 1 < CONTEXTS)
				gives(fi_recv(both.b.rx[1], in, LARGE, NULL, FI_ADDR_UNSPEC, NULL), 0);
		}
		pattern_fill(out, 0, LARGE, 1);
	}
	both_close(&both);
}

/* ---- binding and enabling -------------------------------------------------------------------- */

/* Each has an address that none had before, and there are so many. */
static void test_many_times(void)
{
	struct pair pair;
	struct fid_ep *sep, *ep;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	sep = open_sep(&pair);
	for (int i = 0; i < 32768; i++) {
		gives(fi_tx_context(sep, i % CONTEXTS, NULL, &ep, NULL), 0);
		gives(fi_close(&ep->fid), 0);
	}
	gives(fi_tx_context(sep, 0, NULL, &ep, NULL), -FI_EADDRNOTAVAIL);
	gives(fi_rx_context(sep, 0, NULL, &ep, NULL), 0);
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&sep->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

static void test_bind(void)
{
	struct pair pair;
	struct fid_ep *sep, *tx, *rx;
	struct fid_cntr *cntr;
	struct fid_eq *eq;
	struct fid_av *av;
	struct fid_cq *cq;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	sep = open_sep(&pair);
	tx = tx_open(sep, 0);
	rx = rx_open(sep, 0);
	av = open_av(&pair);
	cq = pair_open_cq(&pair);
	eq = pair_open_eq(&pair);
	gives(fi_cntr_open(pair.domain, NULL, &cntr, NULL), 0);

	/* the scalable endpoint: an address vector and an event queue, nothing else */
	gives(fi_enable(sep), -FI_ENOAV);
	gives(fi_scalable_ep_bind(sep, &cq->fid, FI_TRANSMIT), -FI_EINVAL);
	gives(fi_scalable_ep_bind(sep, &cntr->fid, FI_SEND), -FI_EINVAL);
	gives(fi_scalable_ep_bind(sep, &av->fid, FI_SEND), -FI_EBADFLAGS);
	gives(fi_scalable_ep_bind(sep, &eq->fid, 0), 0);

	/* contexts: queues and counters of their direction; the address vector comes by itself */
	gives(fi_ep_bind(tx, &av->fid, 0), -FI_EINVAL);
	gives(fi_ep_bind(tx, &cq->fid, FI_RECV), -FI_EINVAL);
	gives(fi_ep_bind(tx, &cq->fid, FI_RECV | FI_TRANSMIT), -FI_EINVAL);
	gives(fi_ep_bind(tx, &cntr->fid, FI_RECV), -FI_EINVAL);
	gives(fi_ep_bind(rx, &cq->fid, FI_TRANSMIT), -FI_EINVAL);
	gives(fi_ep_bind(rx, &cntr->fid, FI_WRITE), -FI_EINVAL);
	gives(fi_enable(tx), -FI_ENOCQ);
	gives(fi_enable(rx), -FI_ENOCQ);
	gives(fi_ep_bind(tx, &cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), 0);
	gives(fi_ep_bind(rx, &cq->fid, FI_RECV), 0);
	gives(fi_ep_bind(tx, &cntr->fid, FI_SEND | FI_WRITE | FI_READ), 0);
	gives(fi_ep_bind(rx, &cntr->fid, FI_RECV), 0);
	gives(fi_enable(tx), -FI_ENOAV);
	gives(fi_enable(rx), -FI_ENOAV);
	gives(fi_scalable_ep_bind(sep, &av->fid, 0), 0);
	gives(fi_scalable_ep_bind(sep, &av->fid, 0), -FI_EINVAL);
	gives(fi_enable(tx), 0); /* before the scalable endpoint, as some do, */
	gives(fi_enable(sep), 0);
	gives(fi_enable(rx), 0); /* or after it */
	gives(fi_enable(sep), -FI_EOPBADSTATE);
	gives(fi_enable(rx), -FI_EOPBADSTATE);
	gives(fi_scalable_ep_bind(sep, &av->fid, 0), -FI_EOPBADSTATE);
	gives(fi_ep_bind(tx, &cntr->fid, FI_SEND), -FI_EOPBADSTATE);

	/* while contexts have it, it stays */
	gives(fi_close(&av->fid), -FI_EBUSY);
	gives(fi_close(&cq->fid), -FI_EBUSY);
	gives(fi_close(&tx->fid), 0);
	gives(fi_close(&rx->fid), 0);
	gives(fi_close(&av->fid), -FI_EBUSY);
	gives(fi_close(&sep->fid), 0);
	gives(fi_close(&av->fid), 0);
	gives(fi_close(&cq->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	gives(fi_close(&eq->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/*
 * A context may be asked for capabilities that the endpoint has in its other direction alone; they mean nothing to it.
 * MPICH asks a receive context for FI_NAMED_RX_CTX, as it has asked the endpoint.
 */
static void test_capabilities(void)
{
	struct pair pair;
	struct fi_tx_attr tx_attr = { .caps = FI_TAGGED | FI_NAMED_RX_CTX | FI_RECV | FI_DIRECTED_RECV };
	struct fi_rx_attr rx_attr = { .caps = FI_TAGGED | FI_NAMED_RX_CTX | FI_SEND | FI_DIRECTED_RECV };
	struct fid_ep *sep, *tx, *rx;

	pair_open_domain(&pair, &(struct pair_want){ .caps = FI_MSG | FI_TAGGED | FI_SEND | FI_RECV |
							     FI_DIRECTED_RECV | FI_NAMED_RX_CTX });
	sep = open_sep(&pair);
	gives(fi_tx_context(sep, 0, &tx_attr, &tx, NULL), 0);
	must(tx_attr.caps & FI_TAGGED && tx_attr.caps & FI_SEND && tx_attr.caps & FI_NAMED_RX_CTX);
	must(!(tx_attr.caps & (FI_MSG | FI_RECV | FI_DIRECTED_RECV)));
	gives(fi_rx_context(sep, 0, &rx_attr, &rx, NULL), 0);
	must(rx_attr.caps & FI_TAGGED && rx_attr.caps & FI_RECV && rx_attr.caps & FI_DIRECTED_RECV);
	must(!(rx_attr.caps & (FI_MSG | FI_SEND | FI_NAMED_RX_CTX)));
	gives(fi_close(&tx->fid), 0);
	gives(fi_close(&rx->fid), 0);
	rx_attr = (struct fi_rx_attr){ .caps = FI_TAGGED | FI_RMA };
	gives(fi_rx_context(sep, 0, &rx_attr, &rx, NULL), -FI_EINVAL);
	rx_attr = (struct fi_rx_attr){ .caps = 0 };
	gives(fi_rx_context(sep, 0, &rx_attr, &rx, NULL), 0);
	must(rx_attr.caps & FI_MSG && rx_attr.caps & FI_TAGGED && !(rx_attr.caps & FI_NAMED_RX_CTX));
	gives(fi_close(&rx->fid), 0);
	gives(fi_close(&sep->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/* A context has a part of what the scalable endpoint has, and says what it got. */
static void test_attributes(void)
{
	struct pair pair;
	struct fi_tx_attr tx_attr = { .caps = FI_TAGGED, .size = 16, .op_flags = FI_DELIVERY_COMPLETE };
	struct fi_rx_attr rx_attr = { .caps = FI_MSG, .size = 32 };
	struct fid_ep *sep, *tx, *rx;
	size_t size, len = sizeof(size);

	pair_open_domain(&pair, &(struct pair_want){ .caps = FI_MSG | FI_TAGGED });
	sep = open_sep(&pair);
	gives(fi_tx_context(sep, 0, &tx_attr, &tx, NULL), 0);
	must(tx_attr.caps & FI_TAGGED && !(tx_attr.caps & FI_MSG));
	must(tx_attr.size >= 16 && tx_attr.inject_size > 0 && tx_attr.iov_limit > 0);
	must(tx_attr.op_flags == FI_DELIVERY_COMPLETE);
	gives(fi_getopt(&tx->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &size, &len), 0);
	must(size == tx_attr.size);
	gives(fi_rx_context(sep, 0, &rx_attr, &rx, NULL), 0);
	must(rx_attr.caps & FI_MSG && !(rx_attr.caps & FI_TAGGED) && rx_attr.size >= 32);
	gives(fi_close(&tx->fid), 0);
	gives(fi_close(&rx->fid), 0);
	tx_attr = (struct fi_tx_attr){ .caps = FI_RMA };
	gives(fi_tx_context(sep, 0, &tx_attr, &tx, NULL), -FI_EINVAL);
	tx_attr = (struct fi_tx_attr){ .op_flags = FI_PEEK };
	gives(fi_tx_context(sep, 0, &tx_attr, &tx, NULL), -FI_EINVAL);
	tx_attr = (struct fi_tx_attr){ .inject_size = 1 << 20 };
	gives(fi_tx_context(sep, 0, &tx_attr, &tx, NULL), -FI_EINVAL);
	rx_attr = (struct fi_rx_attr){ .caps = FI_RMA };
	gives(fi_rx_context(sep, 0, &rx_attr, &rx, NULL), -FI_EINVAL);
	rx_attr = (struct fi_rx_attr){ .iov_limit = 1000 };
	gives(fi_rx_context(sep, 0, &rx_attr, &rx, NULL), -FI_EINVAL);
	gives(fi_close(&sep->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/* ---- what is not there ----------------------------------------------------------------------- */

static void test_missing_direction(void)
{
	struct both both;
	struct fid_ep *alias;
	char buf[8] = "";

	both_open(&both);
	gives(fi_send(both.a.sep, buf, 1, NULL, both.a.peer, NULL), -FI_EOPNOTSUPP);
	gives(fi_recv(both.a.sep, buf, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPNOTSUPP);
	gives(fi_write(both.a.sep, buf, 1, NULL, both.a.peer, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_cancel(&both.a.sep->fid, NULL), -FI_EOPNOTSUPP);
	gives(fi_ep_alias(both.a.sep, &alias, FI_TRANSMIT), -FI_EINVAL);
	gives(fi_recv(both.a.tx[0], buf, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPNOTSUPP);
	gives(fi_trecv(both.a.tx[0], buf, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_send(both.a.rx[0], buf, 1, NULL, both.a.peer, NULL), -FI_EOPNOTSUPP);
	gives(fi_tsend(both.a.rx[0], buf, 1, NULL, both.a.peer, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_read(both.a.rx[0], buf, 1, NULL, both.a.peer, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_tx_context(both.a.tx[0], 0, NULL, &alias, NULL), -FI_ENOSYS);
	gives(fi_rx_context(both.a.rx[0], 0, NULL, &alias, NULL), -FI_ENOSYS);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	gives(fi_rx_size_left(both.a.tx[0]), -FI_EOPNOTSUPP);
	gives(fi_tx_size_left(both.a.rx[0]), -FI_EOPNOTSUPP);
	gives(fi_tx_size_left(both.a.sep), -FI_EOPNOTSUPP);
	must(fi_tx_size_left(both.a.tx[0]) > 0);
	must(fi_rx_size_left(both.a.rx[0]) > 0);
#pragma GCC diagnostic pop
	both_close(&both);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_names(void)
{
	struct pair pair;
	struct scalable all, other;
	char name[64], service[] = "fi_shmcma://test-scalable";
	size_t len = sizeof(name);
	struct fid_ep *sep;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	sep = open_sep(&pair);
	gives(fi_getname(&sep->fid, name, &len), -FI_EOPBADSTATE);
	gives(fi_setname(&sep->fid, service, sizeof(service)), 0);
	len = sizeof(name);
	gives(fi_getname(&sep->fid, name, &len), 0);
	must(!strcmp(name, service));
	all = (struct scalable){ .sep = sep, .av = open_av(&pair) };
	gives(fi_scalable_ep_bind(sep, &all.av->fid, 0), 0);
	all.rx_cq[0] = pair_open_cq(&pair);
	for (int i = 0; i < 2; i++) {
		all.rx[i] = rx_open(sep, i);
		gives(fi_setname(&all.rx[i]->fid, service, sizeof(service)), -FI_EOPNOTSUPP);
		gives(fi_ep_bind(all.rx[i], &all.rx_cq[0]->fid, FI_RECV), 0);
	}
	gives(fi_enable(all.rx[1]), 0);
	gives(fi_enable(all.rx[0]), 0);
	gives(fi_setname(&sep->fid, service, sizeof(service)), -FI_EOPBADSTATE);

	/* one address for all, which the service leads to as well */
	len = sizeof(all.name);
	gives(fi_getname(&sep->fid, all.name, &len), 0);
	for (int i = 0; i < 2; i++) {
		len = sizeof(name);
		gives(fi_getname(&all.rx[i]->fid, name, &len), 0);
		must(!strcmp(name, all.name));
	}
	scalable_open(&pair, &other);
	other.peer = pair_insert(other.av, service);
	must(strcmp(other.name, all.name));
	for (int i = 0; i < 2; i++) {
		struct both both = { .pair = pair, .a = other, .b = other };
		struct fi_cq_tagged_entry entry;
		char buf;

		gives(fi_recv(all.rx[i], &buf, 1, NULL, FI_ADDR_UNSPEC, &all.rx[i]), 0);
		until_taken(&both, fi_inject(other.tx[i], "n", 1, fi_rx_addr(other.peer, i, BITS)));
		while (fi_cq_read(all.rx_cq[0], &entry, 1) != 1)
			progress(&both);
		must(entry.op_context == &all.rx[i]);
	}

	/* without the first of its contexts nobody can be told of it any more */
	gives(fi_close(&all.rx[0]->fid), 0);
	len = sizeof(name);
	gives(fi_getname(&all.rx[1]->fid, name, &len), 0); /* the service again */
	gives(fi_av_insert(other.av, all.name, 1, &other.peer, 0, NULL), 0);
	gives(fi_close(&all.rx[1]->fid), 0);
	gives(fi_close(&sep->fid), 0);
	gives(fi_close(&all.rx_cq[0]->fid), 0);
	gives(fi_close(&all.av->fid), 0);
	scalable_close(&other);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

static void has_name(struct fid_ep *ep, const char *name)
{
	char got[64] = "";
	size_t len = 0;

	gives(fi_getname(&ep->fid, NULL, &len), -FI_ETOOSMALL);
	gives(len, sizeof(got));
	gives(fi_getname(&ep->fid, got, &len), 0);
	must(!strcmp(got, name));
}

/* A scalable endpoint has its address from fi_enable() on, and keeps it when its contexts open and close. */
static void test_name_of_enabled(void)
{
	char service[] = "fi_shmcma://test-scalable-enabled";
	struct pair pair;
	struct scalable all;
	size_t len = 0;

	pair_open_domain(&pair, &(struct pair_want){ .caps = CAPS });
	all = (struct scalable){ .sep = open_sep(&pair), .av = open_av(&pair) };
	gives(fi_getname(&all.sep->fid, NULL, &len), -FI_EOPBADSTATE);
	gives(len, sizeof(all.name));
	gives(fi_setname(&all.sep->fid, service, sizeof(service)), 0);
	gives(fi_scalable_ep_bind(all.sep, &all.av->fid, 0), 0);
	gives(fi_enable(all.sep), 0);
	gives(fi_getname(&all.sep->fid, all.name, &len), 0);
	must(strcmp(all.name, service));
	gives(fi_setname(&all.sep->fid, service, sizeof(service)), -FI_EOPBADSTATE);
	all.rx_cq[0] = pair_open_cq(&pair);
	all.rx[1] = rx_open(all.sep, 1);
	has_name(all.rx[1], all.name);
	rx_enable(&all, 0);
	has_name(all.sep, all.name);
	has_name(all.rx[0], all.name);
	all.peer = pair_insert(all.av, all.name);
	must(pair_insert(all.av, service) != all.peer);
	rx_close(&all, 0);
	has_name(all.sep, all.name);
	rx_close(&all, 1);
	gives(fi_close(&all.sep->fid), 0);
	gives(fi_close(&all.rx_cq[0]->fid), 0);
	gives(fi_close(&all.av->fid), 0);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/* Others insert the address before context 0 is there; until then they come again. */
static void test_insert_of_enabled(void)
{
	struct scalable all;
	struct both both;
	char buf = 0;

	both_open(&both);
	all = (struct scalable){ .sep = open_sep(&both.pair), .av = open_av(&both.pair) };
	gives(fi_scalable_ep_bind(all.sep, &all.av->fid, 0), 0);
	gives(fi_enable(all.sep), 0);
	gives(fi_getname(&all.sep->fid, all.name, &(size_t){ sizeof(all.name) }), 0);
	all.peer = pair_insert(both.a.av, all.name);
	gives(fi_inject(both.a.tx[0], "i", 1, all.peer), -FI_EAGAIN);
	gives(fi_recv(both.a.rx[0], &buf, 1, NULL, all.peer, NULL), -FI_EAGAIN);
	all.rx_cq[0] = pair_open_cq(&both.pair);
	rx_enable(&all, 0);
	gives(fi_recv(all.rx[0], &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	until_taken(&both, fi_inject(both.a.tx[0], "i", 1, all.peer));
	done(&both, all.rx_cq[0]);
	must(buf == 'i');
	/* a context that has closed is waited for no more */
	rx_close(&all, 0);
	gives(fi_av_insert(both.b.av, all.name, 1, NULL, 0, NULL), 0);
	gives(fi_close(&all.sep->fid), 0);
	gives(fi_close(&all.rx_cq[0]->fid), 0);
	gives(fi_close(&all.av->fid), 0);
	both_close(&both);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* From every transmit context to every receive context, of every size; the sender is one and the same. */
static void test_messages(void)
{
	static const size_t sizes[] = { 0, 1, 200, 4096, 32768, 32769, LARGE };
	uint8_t *out = malloc(LARGE), *in = malloc(LARGE);
	struct both both;

	both_open(&both);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (int tx = 0; tx < CONTEXTS; tx++)
			for (int rx = 0; rx < CONTEXTS; rx++) {
				fi_addr_t to = fi_rx_addr(both.a.peer, rx, BITS);
				bool tagged = (tx + rx) & 1;
				struct done from;

				pattern_fill(out, 0, sizes[s], (unsigned int)(tx * 3 + rx));
				if (tagged)
					gives(fi_trecv(both.b.rx[rx], in, sizes[s], NULL, FI_ADDR_UNSPEC,
						       7, 0, in),
					      0);
				else
					gives(fi_recv(both.b.rx[rx], in, sizes[s], NULL, FI_ADDR_UNSPEC,
						      in),
					      0);
				if (tagged)
					until_taken(&both, fi_tsend(both.a.tx[tx], out, sizes[s], NULL, to,
								    7, out));
				else
					until_taken(&both,
						    fi_send(both.a.tx[tx], out, sizes[s], NULL, to, out));
				from = done(&both, both.b.rx_cq[rx]);
				must(from.entry.op_context == in && from.entry.len == sizes[s]);
				gives(from.source, both.b.peer);
				must(pattern_is(in, 0, sizes[s], (unsigned int)(tx * 3 + rx)));
				must(done(&both, both.a.tx_cq[tx]).entry.op_context == out);
			}
	free(out);
	free(in);
	both_close(&both);
}

/* Each in its own queue: a receive that is posted elsewhere is not for it. */
static void test_apart(void)
{
	struct both both;
	char in[CONTEXTS] = "";

	both_open(&both);
	for (int i = 0; i < CONTEXTS; i++)
		gives(fi_recv(both.b.rx[i], &in[i], 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	until_taken(&both, fi_inject(both.a.tx[0], "1", 1, fi_rx_addr(both.a.peer, 1, BITS)));
	done(&both, both.b.rx_cq[1]);
	must(!in[0] && in[1] == '1' && !in[2]);
	quiet(&both, both.b.rx_cq[0]);
	quiet(&both, both.b.rx_cq[2]);
	/* no context named: the first */
	until_taken(&both, fi_inject(both.a.tx[2], "0", 1, both.a.peer));
	done(&both, both.b.rx_cq[0]);
	must(in[0] == '0' && !in[2]);
	both_close(&both);
}

/* A receive from a scalable endpoint takes from all its contexts, with or without a context in the address. */
static void test_directed(void)
{
	struct both both;
	struct scalable other;
	fi_addr_t other_addr, to_other;
	char buf;

	both_open(&both);
	scalable_open(&both.pair, &other);
	other_addr = pair_insert(both.b.av, other.name);
	to_other = pair_insert(other.av, both.b.name);
	for (int i = 0; i < CONTEXTS; i++) {
		struct both with = both;
		struct done from;

		with.a = other;
		gives(fi_recv(both.b.rx[i], &buf, 1, NULL, fi_rx_addr(both.b.peer, i, BITS), NULL), 0);
		until_taken(&with, fi_inject(other.tx[i], "o", 1, fi_rx_addr(to_other, i, BITS)));
		quiet(&both, both.b.rx_cq[i]);
		until_taken(&both, fi_inject(both.a.tx[2 - i], "a", 1, fi_rx_addr(both.a.peer, i, BITS)));
		from = done(&both, both.b.rx_cq[i]);
		must(buf == 'a' && from.source == both.b.peer);
		gives(fi_recv(both.b.rx[i], &buf, 1, NULL, other_addr, NULL), 0);
		from = done(&both, both.b.rx_cq[i]);
		must(buf == 'o' && from.source == other_addr);
	}
	scalable_close(&other);
	both_close(&both);
}

/* It ends when the last context that was heard of has gone, and not before. */
static void test_directed_lost(void)
{
	struct both both;
	char buf;

	both_open(&both);
	for (int i = 0; i < CONTEXTS; i++) {
		until_taken(&both, fi_inject(both.a.tx[i], "x", 1, both.a.peer));
		gives(fi_recv(both.b.rx[0], &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
		done(&both, both.b.rx_cq[0]);
	}
	gives(fi_recv(both.b.rx[0], &buf, 1, NULL, both.b.peer, &buf), 0);
	for (int i = 0; i < CONTEXTS; i++) {
		quiet(&both, both.b.rx_cq[0]);
		gives(fi_close(&both.a.tx[i]->fid), 0);
		both.a.tx[i] = NULL;
	}
	must(failed(&both, both.b.rx_cq[0]).err == FI_ECONNRESET);
	gives(fi_recv(both.b.rx[0], &buf, 1, NULL, both.b.peer, NULL), -FI_ECONNRESET);
	both_close(&both);
}

/* A context that the peer does not have. */
static void test_no_such_context(void)
{
	struct both both;
	char buf;

	both_open(&both);
	gives(fi_send(both.a.tx[0], "x", 1, NULL, fi_rx_addr(both.a.peer, 3, BITS), NULL),
	      -FI_ECONNREFUSED);
	gives(fi_send(both.a.tx[0], "x", 1, NULL, fi_rx_addr(both.a.peer + 1, 1, BITS), NULL), -FI_EINVAL);
	until_taken(&both, fi_inject(both.a.tx[0], "x", 1, fi_rx_addr(both.a.peer, 2, BITS)));
	gives(fi_recv(both.b.rx[2], &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	done(&both, both.b.rx_cq[2]);
	/* an address that is removed goes with all its contexts */
	gives(fi_av_remove(both.a.av, &both.a.peer, 1, 0), 0);
	gives(fi_send(both.a.tx[0], "x", 1, NULL, fi_rx_addr(both.a.peer, 2, BITS), NULL), -FI_EINVAL);
	gives(fi_send(both.a.tx[0], "x", 1, NULL, both.a.peer, NULL), -FI_EINVAL);
	both_close(&both);
}

/* Memory of the peer, by any of its receive contexts. */
static void test_memory(void)
{
	static uint8_t memory[LARGE], out[LARGE], in[LARGE];
	struct both both;
	struct fid_mr *mr;
	uint64_t key, sum = 5, value;

	both_open(&both);
	gives(fi_mr_reg(both.pair.domain, memory, LARGE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 77, 0, &mr,
			NULL),
	      0);
	key = fi_mr_key(mr);
	for (int i = 0; i < CONTEXTS; i++) {
		fi_addr_t to = fi_rx_addr(both.a.peer, i, BITS);

		pattern_fill(out, 0, LARGE, (unsigned int)i);
		until_taken(&both, fi_write(both.a.tx[i], out, LARGE, NULL, to, 0, key, NULL));
		done(&both, both.a.tx_cq[i]);
		must(pattern_is(memory, 0, LARGE, (unsigned int)i));
		until_taken(&both, fi_read(both.a.tx[i], in, LARGE, NULL, to, 0, key, NULL));
		done(&both, both.a.tx_cq[i]);
		must(!memcmp(in, out, LARGE));
		value = 10;
		memcpy(memory, &value, sizeof(value));
		until_taken(&both,
			    fi_atomic(both.a.tx[i], &sum, 1, NULL, to, 0, key, FI_UINT64, FI_SUM, NULL));
		done(&both, both.a.tx_cq[i]);
		/* it is complete when the target is to do it; a read that needs the target comes behind it */
		until_taken(&both, fi_fetch_atomic(both.a.tx[i], NULL, 1, NULL, &value, NULL, to, 0, key,
						   FI_UINT64, FI_ATOMIC_READ, NULL));
		done(&both, both.a.tx_cq[i]);
		must(value == 15);
		until_taken(&both,
			    fi_writedata(both.a.tx[i], out, 8, NULL, (uint64_t)i, to, 0, key, NULL));
		must(done(&both, both.b.rx_cq[i]).entry.data == (uint64_t)i);
		done(&both, both.a.tx_cq[i]);
	}
	gives(fi_close(&mr->fid), 0);
	both_close(&both);
}

/* An ordinary endpoint and a scalable one. */
static void test_with_ordinary(void)
{
	struct both both;
	struct side *side = &both.pair.a;
	fi_addr_t scalable, ordinary;
	struct fid_av *av;
	char buf;

	both_open(&both);
	av = open_av(&both.pair);
	side->cq = pair_open_cq(&both.pair);
	side->ep = pair_open_ep(&both.pair);
	pair_bind(side->ep, side->cq, av);
	gives(fi_enable(side->ep), 0);
	gives(fi_getname(&side->ep->fid, side->name, &(size_t){ sizeof(side->name) }), 0);
	scalable = pair_insert(av, both.b.name);
	ordinary = pair_insert(both.b.av, side->name);
	for (int i = 0; i < CONTEXTS; i++) {
		struct done from;

		gives(fi_inject(side->ep, "o", 1, fi_rx_addr(scalable, i, BITS)), 0);
		gives(fi_recv(both.b.rx[i], &buf, 1, NULL, ordinary, NULL), 0);
		from = done(&both, both.b.rx_cq[i]);
		must(from.source == ordinary && buf == 'o');
		gives(fi_inject(both.b.tx[i], "s", 1, ordinary), 0);
		gives(fi_recv(side->ep, &buf, 1, NULL, scalable, NULL), 0);
		from = pair_done(&both.pair, side);
		must(from.source == scalable && buf == 's');
	}
	/* it has no further context */
	gives(fi_send(both.b.tx[0], "x", 1, NULL, fi_rx_addr(ordinary, 1, BITS), NULL), -FI_ECONNREFUSED);
	gives(fi_close(&side->ep->fid), 0);
	gives(fi_close(&side->cq->fid), 0);
	gives(fi_close(&av->fid), 0);
	both_close(&both);
}

/* In a child nothing of it can be used, and all of it closed; the parent does not notice. */
static void test_fork(void)
{
	struct both both;
	char buf = 0;
	pid_t child;
	int status;

	both_open(&both);
	child = fork();
	must(child >= 0);
	if (!child) {
		struct fid_ep *ep;

		gives(fi_tx_context(both.a.sep, 0, NULL, &ep, NULL), -FI_EPERM);
		gives(fi_rx_context(both.a.sep, 0, NULL, &ep, NULL), -FI_EPERM);
		gives(fi_enable(both.a.sep), -FI_EPERM);
		gives(fi_getname(&both.a.sep->fid, &buf, &(size_t){ 1 }), -FI_EPERM);
		gives(fi_send(both.a.tx[0], "x", 1, NULL, both.a.peer, NULL), -FI_EPERM);
		gives(fi_recv(both.a.rx[0], &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EPERM);
		both_close(&both);
		_exit(0);
	}
	gives(waitpid(child, &status, 0), child);
	gives(status, 0);
	until_taken(&both, fi_inject(both.a.tx[1], "x", 1, fi_rx_addr(both.a.peer, 1, BITS)));
	gives(fi_recv(both.b.rx[1], &buf, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	done(&both, both.b.rx_cq[1]);
	both_close(&both);
}

/* ---- two processes --------------------------------------------------------------------------- */

static void exchange(struct pair *pair, bool first)
{
	struct both both = { .pair = *pair };
	struct scalable *own = &both.a;
	char theirs[64];
	uint8_t *out = malloc(LARGE), *in = malloc(LARGE);

	scalable_open(pair, own);
	pair_exchange(pair->link, own->name, theirs, sizeof(theirs));
	own->peer = pair_insert(own->av, theirs);
	both.b = *own;
	for (int i = 0; i < CONTEXTS; i++) {
		fi_addr_t to = fi_rx_addr(own->peer, CONTEXTS - 1 - i, BITS);

		pattern_fill(out, 0, LARGE, (unsigned int)i + first);
		gives(fi_recv(own->rx[CONTEXTS - 1 - i], in, LARGE, NULL, own->peer, NULL), 0);
		until_taken(&both, fi_send(own->tx[i], out, LARGE, NULL, to, NULL));
		must(done(&both, own->rx_cq[CONTEXTS - 1 - i]).source == own->peer);
		must(pattern_is(in, 0, LARGE, (unsigned int)i + !first));
		done(&both, own->tx_cq[i]);
	}
	pair_meet(pair);
	scalable_close(own);
	free(out);
	free(in);
}

static void test_exchange(struct pair *pair)
{
	exchange(pair, true);
}

static void second_exchange(struct pair *pair)
{
	exchange(pair, false);
}

#define ROUNDS 200

/* One that does nothing but one-sided operations: its receive context has nothing to report, and no queue. */
static void one_sided_open(struct pair *pair, struct scalable *all)
{
	size_t len = sizeof(all->name);

	memset(all, 0, sizeof(*all));
	all->av = open_av(pair);
	all->sep = open_sep(pair);
	gives(fi_scalable_ep_bind(all->sep, &all->av->fid, 0), 0);
	gives(fi_enable(all->sep), 0);
	all->tx[0] = tx_open(all->sep, 0);
	all->rx[0] = rx_open(all->sep, 0);
	all->tx_cq[0] = pair_open_cq(pair);
	gives(fi_ep_bind(all->tx[0], &all->tx_cq[0]->fid, FI_TRANSMIT), 0);
	gives(fi_enable(all->tx[0]), 0);
	gives(fi_enable(all->rx[0]), 0);
	gives(fi_getname(&all->sep->fid, all->name, &len), 0);
}

/* Adds 1 to the peer's word; returns its former value. */
static uint64_t count_up(struct scalable *own, uint64_t key)
{
	struct fi_cq_tagged_entry entry;
	uint64_t one = 1, before = 0;
	ssize_t ret;

	while ((ret = fi_fetch_atomic(own->tx[0], &one, 1, NULL, &before, NULL, own->peer, 0, key,
				      FI_UINT64, FI_SUM, NULL)) == -FI_EAGAIN)
		fi_cq_read(own->tx_cq[0], NULL, 0);
	gives(ret, 0);
	while ((ret = fi_cq_read(own->tx_cq[0], &entry, 1)) == -FI_EAGAIN)
		sched_yield();
	gives(ret, 1);
	pair_saw(&entry);
	return before;
}

/* Atomics are computed by the target's process: while it reads the only queue that it has. */
static void one_sided(struct pair *pair)
{
	static volatile uint64_t word;
	struct scalable own;
	struct fid_mr *mr;
	char theirs[64];

	one_sided_open(pair, &own);
	gives(fi_mr_reg(pair->domain, (const void *)&word, sizeof(word), FI_REMOTE_READ | FI_REMOTE_WRITE,
			0, 77, 0, &mr, NULL),
	      0);
	pair_exchange(pair->link, own.name, theirs, sizeof(theirs));
	own.peer = pair_insert(own.av, theirs);
	for (uint64_t i = 0; i < ROUNDS; i++)
		gives(count_up(&own, fi_mr_key(mr)), i);
	while (word != ROUNDS) {
		fi_cq_read(own.tx_cq[0], NULL, 0);
		sched_yield();
	}
	pair_meet(pair);
	close_all(own.tx);
	close_all(own.rx);
	gives(fi_close(&own.sep->fid), 0);
	gives(fi_close(&own.tx_cq[0]->fid), 0);
	gives(fi_close(&own.av->fid), 0);
	gives(fi_close(&mr->fid), 0);
}

static const struct pair_want wanted = { .caps = CAPS };
static const struct pair_want memory_alone = { .caps = FI_RMA | FI_ATOMIC };

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(test_open),
		ALONE(test_no_collectives),
		ALONE(test_open_again),
		ALONE(test_rx_again),
		ALONE(test_rx_answers_unread),
		ALONE(test_rx_later),
		ALONE(test_rx_under_way),
		ALONE(test_many_times),
		ALONE(test_bind),
		ALONE(test_capabilities),
		ALONE(test_attributes),
		ALONE(test_missing_direction),
		ALONE(test_names),
		ALONE(test_name_of_enabled),
		ALONE(test_insert_of_enabled),
		ALONE(test_messages),
		ALONE(test_apart),
		ALONE(test_directed),
		ALONE(test_directed_lost),
		ALONE(test_no_such_context),
		ALONE(test_memory),
		ALONE(test_with_ordinary),
		ALONE(test_fork),
		{ .name = "test_exchange",
		  .test_func = pair_both,
		  .initial_state = &(struct pair_test){ .first = test_exchange,
							.second = second_exchange,
							.want = &wanted } },
		{ .name = "one_sided",
		  .test_func = pair_both,
		  .initial_state = &(struct pair_test){ .first = one_sided,
							.second = one_sided,
							.want = &memory_alone } },
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
