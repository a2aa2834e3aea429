/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_alias.c: fi_ep_alias() flag by flag: what an alias posts has its default flags, and what the endpoint it is
 * made of posts has not. Also of contexts. How aliases are opened, bound and closed: test_ep.c.
 */
#include "pair.h"
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>

#define CAPS (PAIR_CAPS | FI_RMA | FI_TRIGGER)

static uint8_t out[100000], in[100000];

static struct fid_ep *alias_of(struct fid_ep *ep, uint64_t flags)
{
	struct fid_ep *alias;

	gives(fi_ep_alias(ep, &alias, flags), 0);
	must(alias != ep);
	gives(alias->fid.fclass, ep->fid.fclass);
	return alias;
}

static void take(struct pair *pair, struct side *side, size_t len)
{
	gives(fi_recv(side->ep, in, len, NULL, FI_ADDR_UNSPEC, in), 0);
	must(pair_done(pair, side).entry.op_context == in);
}

/* ---- transmit -------------------------------------------------------------------------------- */

/* Only a's progress, so that the other side does not do anything. */
static void quiet_alone(struct side *side)
{
	struct fi_cq_tagged_entry entry;

	for (int i = 0; i < 100; i++)
		gives(fi_cq_read(side->cq, &entry, 1), -FI_EAGAIN);
}

/* The buffer is the application's again when the call returns. */
static void test_inject(void)
{
	struct fid_ep *alias;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	alias = alias_of(pair.a.ep, FI_TRANSMIT | FI_INJECT);
	for (size_t len = 1; len <= pair.info->tx_attr->inject_size; len = len * 3 + 5) {
		pattern_fill(out, 0, len, 1);
		post(&pair, fi_send(alias, out, len, NULL, pair.a.peer, out));
		memset(out, 0, len);
		must(pair_done(&pair, &pair.a).entry.op_context == out); /* it is no fi_inject() */
		take(&pair, &pair.b, len);
		must(pattern_is(in, 0, len, 1));
	}
	gives(fi_send(alias, out, pair.info->tx_attr->inject_size + 1, NULL, pair.a.peer, NULL),
	      -FI_EMSGSIZE);
	post(&pair, fi_send(pair.a.ep, out, pair.info->tx_attr->inject_size + 1, NULL, pair.a.peer, NULL));
	take(&pair, &pair.b, sizeof(in));
	pair_done(&pair, &pair.a);
	gives(fi_close(&alias->fid), 0);
	pair_close(&pair);
}

/* Complete without the receiver's doing anything, as the endpoint's own. */
static void test_inject_and_transmit_complete(void)
{
	static const uint64_t flags[] = { FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE };
	struct fid_ep *alias;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	for (int i = 0; i < 2; i++) {
		struct fi_cq_tagged_entry entry;

		alias = alias_of(pair.a.ep, FI_TRANSMIT | flags[i]);
		gives(fi_send(alias, out, 1, NULL, pair.a.peer, NULL), 0);
		gives(fi_cq_read(pair.a.cq, &entry, 1), 1);
		take(&pair, &pair.b, 1);
		gives(fi_close(&alias->fid), 0);
	}
	pair_close(&pair);
}

/* Complete when the message is received, or matched; the endpoint's own before that. */
static void test_delivery_and_match_complete(void)
{
	static const uint64_t flags[] = { FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE };
	struct fid_ep *alias;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	for (int i = 0; i < 2; i++) {
		struct fi_cq_tagged_entry entry;

		alias = alias_of(pair.a.ep, FI_TRANSMIT | flags[i]);
		gives(fi_tsend(alias, out, 1, NULL, pair.a.peer, 1, &alias), 0);
		quiet_alone(&pair.a);
		gives(fi_tsend(pair.a.ep, out, 1, NULL, pair.a.peer, 2, &pair), 0);
		gives(fi_cq_read(pair.a.cq, &entry, 1), 1);
		must(entry.op_context == &pair);
		gives(fi_trecv(pair.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, 2, 0, NULL), 0);
		pair_done(&pair, &pair.b);
		pair_quiet(&pair, &pair.a); /* taken in, but not matched */
		gives(fi_trecv(pair.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL), 0);
		pair_done(&pair, &pair.b);
		must(pair_done(&pair, &pair.a).entry.op_context == &alias);
		gives(fi_close(&alias->fid), 0);
	}
	pair_close(&pair);
}

/* Of an endpoint with selective completion; calls with flags of their own have these and no others. */
static void test_completion(void)
{
	struct pair_want want = { .caps = CAPS, .tx_bind = FI_SELECTIVE_COMPLETION };
	struct iovec iov = { out, 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	struct fid_ep *alias;
	struct pair pair;

	pair_open(&pair, &want);
	msg.addr = pair.a.peer;
	alias = alias_of(pair.a.ep, FI_TRANSMIT | FI_COMPLETION);
	gives(fi_send(pair.a.ep, out, 1, NULL, pair.a.peer, NULL), 0);
	gives(fi_sendmsg(alias, &msg, 0), 0);
	gives(fi_inject(alias, out, 1, pair.a.peer), 0);
	for (int i = 0; i < 3; i++)
		take(&pair, &pair.b, 1);
	pair_quiet(&pair, &pair.a);
	gives(fi_send(alias, out, 1, NULL, pair.a.peer, &alias), 0);
	take(&pair, &pair.b, 1);
	must(pair_done(&pair, &pair.a).entry.op_context == &alias);
	gives(fi_close(&alias->fid), 0);
	pair_close(&pair);
}

static void test_trigger(void)
{
	struct fi_triggered_context context = { .event_type = FI_TRIGGER_THRESHOLD };
	struct fid_ep *alias;
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_cntr_open(pair.domain, NULL, &cntr, NULL), 0);
	context.trigger.threshold.cntr = cntr;
	context.trigger.threshold.threshold = 1;
	alias = alias_of(pair.a.ep, FI_TRANSMIT | FI_TRIGGER);
	gives(fi_send(alias, out, 1, NULL, pair.a.peer, NULL), -FI_EINVAL);
	gives(fi_send(alias, out, 1, NULL, pair.a.peer, &context), 0);
	gives(fi_send(pair.a.ep, out, 2, NULL, pair.a.peer, &pair), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == &pair);
	take(&pair, &pair.b, 2);
	pair_quiet(&pair, &pair.a);
	gives(fi_cntr_add(cntr, 1), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == &context);
	take(&pair, &pair.b, 1);
	gives(fi_close(&alias->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/* One-sided calls have them as well. */
static void test_memory(void)
{
	struct pair_want want = { .caps = CAPS, .tx_bind = FI_SELECTIVE_COMPLETION };
	static uint8_t memory[64];
	struct fid_ep *alias;
	struct fid_mr *mr;
	struct pair pair;

	pair_open(&pair, &want);
	gives(fi_mr_reg(pair.domain, memory, sizeof(memory), FI_REMOTE_WRITE, 0, 5, 0, &mr, NULL), 0);
	alias = alias_of(pair.a.ep, FI_TRANSMIT | FI_COMPLETION | FI_INJECT);
	post(&pair, fi_write(pair.a.ep, out, 8, NULL, pair.a.peer, 0, fi_mr_key(mr), NULL));
	pattern_fill(out, 0, 8, 9);
	post(&pair, fi_write(alias, out, 8, NULL, pair.a.peer, 8, fi_mr_key(mr), &alias));
	memset(out, 0, 8);
	must(pair_done(&pair, &pair.a).entry.op_context == &alias);
	pair_quiet(&pair, &pair.a);
	must(pattern_is(memory + 8, 0, 8, 9));
	gives(fi_close(&alias->fid), 0);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

/* ---- receive --------------------------------------------------------------------------------- */

static void test_multi_recv(void)
{
	struct fid_ep *alias;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	alias = alias_of(pair.b.ep, FI_RECV | FI_MULTI_RECV);
	gives(fi_recv(alias, in, 1000, NULL, FI_ADDR_UNSPEC, &alias), 0);
	for (size_t i = 0; i < 3; i++) {
		struct done got;

		post(&pair, fi_send(pair.a.ep, out, 100, NULL, pair.a.peer, NULL));
		got = pair_done(&pair, &pair.b);
		must(got.entry.op_context == &alias && got.entry.buf == in + i * 100);
		pair_done(&pair, &pair.a);
	}
	gives(fi_cancel(&alias->fid, &alias), 0); /* either handle will do */
	must(pair_error(&pair, &pair.b).err == FI_ECANCELED);
	gives(fi_recv(pair.b.ep, in, 1000, NULL, FI_ADDR_UNSPEC, &pair), 0);
	post(&pair, fi_send(pair.a.ep, out, 100, NULL, pair.a.peer, NULL));
	pair_done(&pair, &pair.a);
	must(pair_done(&pair, &pair.b).entry.op_context == &pair);
	gives(fi_cancel(&pair.b.ep->fid, &pair), -FI_ENOENT);
	gives(fi_close(&alias->fid), 0);
	pair_close(&pair);
}

static void test_recv_completion(void)
{
	struct pair_want want = { .caps = CAPS, .rx_bind = FI_SELECTIVE_COMPLETION };
	struct fid_ep *alias;
	struct pair pair;

	pair_open(&pair, &want);
	alias = alias_of(pair.b.ep, FI_RECV | FI_COMPLETION);
	gives(fi_recv(pair.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, NULL), 0);
	gives(fi_recv(alias, in, 1, NULL, FI_ADDR_UNSPEC, &alias), 0);
	for (int i = 0; i < 2; i++) {
		gives(fi_send(pair.a.ep, out, 1, NULL, pair.a.peer, NULL), 0);
		pair_done(&pair, &pair.a);
	}
	must(pair_done(&pair, &pair.b).entry.op_context == &alias);
	pair_quiet(&pair, &pair.b);
	gives(fi_close(&alias->fid), 0);
	pair_close(&pair);
}

/* ---- contexts -------------------------------------------------------------------------------- */

static void test_scalable(void)
{
	struct fid_ep *sep, *tx, *rx, *alias;
	struct fi_cq_tagged_entry entry;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), 0);
	gives(fi_scalable_ep_bind(sep, &pair.a.av->fid, 0), 0);
	gives(fi_tx_context(sep, 0, NULL, &tx, NULL), 0);
	gives(fi_rx_context(sep, 0, NULL, &rx, NULL), 0);
	gives(fi_ep_bind(tx, &pair.a.cq->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION), 0);
	gives(fi_ep_bind(rx, &pair.a.cq->fid, FI_RECV), 0);
	alias = alias_of(tx, FI_TRANSMIT | FI_COMPLETION); /* before it is enabled, too */
	gives(fi_enable(tx), 0);
	gives(fi_enable(rx), 0);
	gives(fi_enable(sep), 0);
	gives(fi_send(tx, out, 1, NULL, pair.a.peer, tx), 0);
	gives(fi_send(alias, out, 1, NULL, pair.a.peer, alias), 0);
	gives(fi_recv(alias, in, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPNOTSUPP);
	take(&pair, &pair.b, 1);
	take(&pair, &pair.b, 1);
	must(pair_done(&pair, &pair.a).entry.op_context == alias);
	gives(fi_cq_read(pair.a.cq, &entry, 1), -FI_EAGAIN);
	gives(fi_close(&tx->fid), -FI_EBUSY);
	gives(fi_close(&alias->fid), 0);
	gives(fi_close(&tx->fid), 0);
	gives(fi_close(&rx->fid), 0);
	gives(fi_close(&sep->fid), 0);
	pair_close(&pair);
}

static void test_shared(void)
{
	struct fid_ep *srx, *alias, *ep;
	struct pair pair;
	char name[64];
	fi_addr_t to;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_srx_context(pair.domain, NULL, &srx, NULL), 0);
	alias = alias_of(srx, FI_RECV | FI_MULTI_RECV);
	pair.info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
	ep = pair_open_ep(&pair);
	pair_bind(ep, pair.b.cq, pair.b.av);
	gives(fi_ep_bind(ep, &srx->fid, 0), 0);
	gives(fi_enable(ep), 0);
	gives(fi_getname(&ep->fid, name, &(size_t){ sizeof(name) }), 0);
	to = pair_insert(pair.a.av, name);
	gives(fi_recv(alias, in, 1000, NULL, FI_ADDR_UNSPEC, alias), 0);
	for (int i = 0; i < 2; i++) {
		gives(fi_inject(pair.a.ep, out, 1, to), 0);
		must(pair_done(&pair, &pair.b).entry.op_context == alias);
	}
	gives(fi_close(&ep->fid), 0);
	gives(fi_close(&srx->fid), -FI_EBUSY);
	gives(fi_close(&alias->fid), 0);
	gives(fi_close(&srx->fid), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(test_inject),
		ALONE(test_inject_and_transmit_complete),
		ALONE(test_delivery_and_match_complete),
		ALONE(test_completion),
		ALONE(test_trigger),
		ALONE(test_memory),
		ALONE(test_multi_recv),
		ALONE(test_recv_completion),
		ALONE(test_scalable),
		ALONE(test_shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
