/* SPDX-License-Identifier: BSD-2-Clause */
/* test_ep.c: fi_endpoint(3) and fi_cm(3), call by call; data calls only as far as the state decides. */
#include "pair.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>

static char out[64], in[64];

#define close_fid(object) gives(fi_close(&(object)->fid), 0)

/* ---- open ------------------------------------------------------------------------------------ */

static void open_attributes(void)
{
	struct fid_ep *ep;
	struct pair pair;
	int context;

	pair_open_domain(&pair, NULL);
	gives(fi_endpoint(pair.domain, pair.info, &ep, &context), 0);
	gives(ep->fid.fclass, FI_CLASS_EP);
	must(ep->fid.context == &context);
	gives(fi_close(&pair.domain->fid), -FI_EBUSY);
	close_fid(ep);

	gives(fi_endpoint(pair.domain, NULL, &ep, NULL), -FI_EINVAL);
	pair.info->ep_attr->type = FI_EP_MSG;
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), -FI_EINVAL);
	pair.info->ep_attr->type = FI_EP_DGRAM;
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), -FI_EINVAL);
	pair.info->ep_attr->type = FI_EP_RDM;
	pair.info->caps |= FI_MULTICAST;
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), -FI_EINVAL);
	pair.info->caps &= ~FI_MULTICAST;
	pair.info->tx_attr->op_flags = FI_COMMIT_COMPLETE;
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), -FI_EINVAL);
	pair.info->tx_attr->op_flags = 0;
	pair.info->rx_attr->op_flags = FI_INJECT;
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), -FI_EINVAL);
	pair.info->rx_attr->op_flags = 0;
	pair.info->tx_attr->size = SIZE_MAX;
	gives(fi_endpoint(pair.domain, pair.info, &ep, NULL), -FI_EINVAL);
	pair_close(&pair);
}

/* ---- bind ------------------------------------------------------------------------------------ */

static void bind_cq(void)
{
	static const struct {
		uint64_t flags;
		int result;
	} cases[] = {
		{ FI_TRANSMIT, 0 },
		{ FI_RECV, 0 },
		{ FI_TRANSMIT | FI_RECV, 0 },
		{ FI_TRANSMIT | FI_SELECTIVE_COMPLETION, 0 },
		{ FI_RECV | FI_SELECTIVE_COMPLETION, 0 },
		{ FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION, 0 },
		{ 0, -FI_EINVAL },
		{ FI_SELECTIVE_COMPLETION, -FI_EINVAL },
		{ FI_TRANSMIT | FI_READ, -FI_EBADFLAGS },
		{ FI_RECV | FI_REMOTE_WRITE, -FI_EBADFLAGS },
		{ FI_TRANSMIT | 1ULL << 62, -FI_EBADFLAGS },
		{ FI_COMPLETION, -FI_EBADFLAGS },
	};
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fid_ep *ep = pair_open_ep(&pair);
		struct fid_cq *cq = pair_open_cq(&pair);

		gives(fi_ep_bind(ep, &cq->fid, cases[i].flags), cases[i].result);
		gives(fi_close(&cq->fid), cases[i].result ? 0 : -FI_EBUSY);
		close_fid(ep);
		if (!cases[i].result)
			close_fid(cq);
	}
	pair_close(&pair);
}

/* One queue for each direction. */
static void bind_cq_again(void)
{
	static const uint64_t both = FI_TRANSMIT | FI_RECV;
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, NULL);
	for (uint64_t first = 1; first <= 3; first++)
		for (uint64_t second = 1; second <= 3; second++)
			for (int same = 0; same < 2; same++) {
				struct fid_cq *other = same ? pair.a.cq : pair.b.cq;

				ep = pair_open_ep(&pair);
				gives(fi_ep_bind(ep, &pair.a.cq->fid, first * FI_RECV & both), 0);
				gives(fi_ep_bind(ep, &other->fid, second * FI_RECV & both),
				      first & second ? -FI_EINVAL : 0);
				close_fid(ep);
			}
	pair_close(&pair);
}

/* An address vector or an event queue: one, without flags, and busy until the endpoint is closed. */
static void bind_one(struct pair *pair, struct fid *object, struct fid *other)
{
	struct fid_ep *ep = pair_open_ep(pair);

	gives(fi_ep_bind(ep, object, FI_SEND), -FI_EBADFLAGS);
	gives(fi_ep_bind(ep, object, 0), 0);
	gives(fi_ep_bind(ep, object, 0), -FI_EINVAL);
	gives(fi_ep_bind(ep, other, 0), -FI_EINVAL);
	gives(fi_close(object), -FI_EBUSY);
	gives(fi_close(other), 0);
	close_fid(ep);
	gives(fi_close(object), 0);
}

static void bind_av_and_eq(void)
{
	struct pair pair;

	pair_open_domain(&pair, NULL);
	bind_one(&pair, &pair_open_av(&pair)->fid, &pair_open_av(&pair)->fid);
	bind_one(&pair, &pair_open_eq(&pair)->fid, &pair_open_eq(&pair)->fid);
	pair_close(&pair);
}

static void bind_others(void)
{
	struct fid fake = { .fclass = FI_CLASS_CNTR };
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, NULL);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &fake, FI_SEND), -FI_EINVAL);
	gives(fi_ep_bind(ep, &pair.domain->fid, 0), -FI_EINVAL);
	gives(fi_ep_bind(ep, &pair.a.ep->fid, 0), -FI_EINVAL);
	fake.fclass = FI_CLASS_STX_CTX;
	gives(fi_ep_bind(ep, &fake, 0), -FI_EINVAL);
	gives(ep->fid.ops->bind(&ep->fid, NULL, 0), -FI_EINVAL);
	close_fid(ep);
	pair_close(&pair);
}

static void bind_of_another_domain(void)
{
	struct pair pair, other;
	struct fid_ep *ep;

	pair_open(&pair, NULL);
	pair_open(&other, NULL);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &other.a.cq->fid, FI_RECV), -FI_EINVAL);
	gives(fi_ep_bind(ep, &other.a.av->fid, 0), -FI_EINVAL);
	close_fid(ep);
	pair_close(&other);
	pair_close(&pair);
}

/* Memory needs no endpoint: the call succeeds for memory of the domain, at any time, and changes nothing. */
static void bind_memory(void)
{
	struct fid_mr *mr, *foreign;
	struct pair pair, other;
	struct fid_ep *ep;
	char buf[8];

	pair_open(&pair, NULL);
	pair_open(&other, NULL);
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL), 0);
	gives(fi_mr_reg(other.domain, buf, sizeof(buf), FI_REMOTE_WRITE, 0, 1, 0, &foreign, NULL), 0);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &mr->fid, 0), 0);
	gives(fi_ep_bind(ep, &mr->fid, FI_REMOTE_WRITE), -FI_EBADFLAGS);
	gives(fi_ep_bind(ep, &foreign->fid, 0), -FI_EINVAL);
	gives(fi_ep_bind(pair.a.ep, &mr->fid, 0), 0);
	gives(fi_ep_bind(pair.a.ep, &foreign->fid, 0), -FI_EINVAL);
	close_fid(mr);
	close_fid(foreign);
	close_fid(ep);
	pair_close(&other);
	pair_close(&pair);
}

static void bind_after_enable(void)
{
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct pair pair;

	pair_open(&pair, NULL);
	eq = pair_open_eq(&pair);
	cq = pair_open_cq(&pair);
	gives(fi_ep_bind(pair.a.ep, &cq->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
	gives(fi_ep_bind(pair.a.ep, &pair.b.av->fid, 0), -FI_EOPBADSTATE);
	gives(fi_ep_bind(pair.a.ep, &eq->fid, 0), -FI_EOPBADSTATE);
	close_fid(eq);
	close_fid(cq);
	pair_close(&pair);
}

/* ---- enable ---------------------------------------------------------------------------------- */

static int enable_with(struct pair *pair, uint64_t cq_flags, bool av)
{
	struct fid_ep *ep = pair_open_ep(pair);
	int ret;

	if (cq_flags)
		gives(fi_ep_bind(ep, &pair->a.cq->fid, cq_flags), 0);
	if (av)
		gives(fi_ep_bind(ep, &pair->a.av->fid, 0), 0);
	ret = fi_enable(ep);
	if (!ret)
		gives(fi_enable(ep), -FI_EOPBADSTATE);
	close_fid(ep);
	return ret;
}

static void enable(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	gives(enable_with(&pair, FI_TRANSMIT | FI_RECV, true), 0);
	gives(enable_with(&pair, FI_TRANSMIT | FI_RECV, false), -FI_ENOAV);
	gives(enable_with(&pair, FI_TRANSMIT, true), -FI_ENOCQ);
	gives(enable_with(&pair, FI_RECV, true), -FI_ENOCQ);
	gives(enable_with(&pair, 0, true), -FI_ENOCQ);
	pair_close(&pair);
}

/* It fails for want of a queue, gets one, and works. */
static void enable_in_the_end(void)
{
	struct pair pair;
	struct fid_ep *ep;

	pair_open(&pair, NULL);
	ep = pair_open_ep(&pair);
	gives(fi_enable(ep), -FI_ENOCQ);
	gives(fi_ep_bind(ep, &pair.a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	gives(fi_enable(ep), -FI_ENOAV);
	gives(fi_ep_bind(ep, &pair.a.av->fid, 0), 0);
	gives(fi_enable(ep), 0);
	gives(fi_inject(ep, out, 1, pair.a.self), 0);
	close_fid(ep);
	pair_close(&pair);
}

/* One direction only: needs no queue for the other, whose calls say that they are not had. */
static void one_direction(void)
{
	struct pair_want want = { .caps = FI_MSG | FI_TAGGED | FI_SEND };
	struct pair pair, other;
	struct done done;
	fi_addr_t addr;

	pair_open(&other, NULL);
	pair_open_domain(&pair, &want);
	pair.a.cq = pair_open_cq(&pair);
	pair.a.av = pair_open_av(&pair);
	pair.a.ep = pair_open_ep(&pair);
	gives(fi_ep_bind(pair.a.ep, &pair.a.cq->fid, FI_TRANSMIT), 0);
	gives(fi_ep_bind(pair.a.ep, &pair.a.av->fid, 0), 0);
	gives(fi_enable(pair.a.ep), 0);
	addr = pair_insert(pair.a.av, other.a.name);
	gives(fi_recv(pair.a.ep, in, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPNOTSUPP);
	gives(fi_trecv(pair.a.ep, in, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_recv(other.a.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_send(pair.a.ep, out, 1, NULL, addr, NULL), 0);
	done = pair_done(&other, &other.a);
	must(done.entry.op_context == in);
	pair_close(&pair);

	want.caps = FI_TAGGED | FI_RECV;
	pair_open_domain(&pair, &want);
	pair.a.cq = pair_open_cq(&pair);
	pair.a.av = pair_open_av(&pair);
	pair.a.ep = pair_open_ep(&pair);
	gives(fi_ep_bind(pair.a.ep, &pair.a.cq->fid, FI_RECV), 0);
	gives(fi_ep_bind(pair.a.ep, &pair.a.av->fid, 0), 0);
	gives(fi_enable(pair.a.ep), 0);
	gives(fi_tsend(pair.a.ep, out, 1, NULL, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_tinject(pair.a.ep, out, 1, 0, 0), -FI_EOPNOTSUPP);
	gives(fi_recv(pair.a.ep, in, 1, NULL, FI_ADDR_UNSPEC, NULL), -FI_EOPNOTSUPP);
	gives(fi_trecv(pair.a.ep, in, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), 0);
	pair_close(&pair);
	pair_close(&other);
}

/* Every data call of a kind of message gives `result`. */
static void all_msg(struct fid_ep *ep, ssize_t result)
{
	struct iovec iov = { out, 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };

	gives(fi_recv(ep, in, 1, NULL, FI_ADDR_UNSPEC, NULL), result);
	gives(fi_recvv(ep, &iov, NULL, 1, FI_ADDR_UNSPEC, NULL), result);
	gives(fi_recvmsg(ep, &msg, 0), result);
	gives(fi_send(ep, out, 1, NULL, 0, NULL), result);
	gives(fi_sendv(ep, &iov, NULL, 1, 0, NULL), result);
	gives(fi_sendmsg(ep, &msg, 0), result);
	gives(fi_inject(ep, out, 1, 0), result);
	gives(fi_senddata(ep, out, 1, NULL, 1, 0, NULL), result);
	gives(fi_injectdata(ep, out, 1, 1, 0), result);
}

static void all_tagged(struct fid_ep *ep, ssize_t result)
{
	struct iovec iov = { out, 1 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1 };

	gives(fi_trecv(ep, in, 1, NULL, FI_ADDR_UNSPEC, 0, 0, NULL), result);
	gives(fi_trecvv(ep, &iov, NULL, 1, FI_ADDR_UNSPEC, 0, 0, NULL), result);
	gives(fi_trecvmsg(ep, &msg, 0), result);
	gives(fi_tsend(ep, out, 1, NULL, 0, 0, NULL), result);
	gives(fi_tsendv(ep, &iov, NULL, 1, 0, 0, NULL), result);
	gives(fi_tsendmsg(ep, &msg, 0), result);
	gives(fi_tinject(ep, out, 1, 0, 0), result);
	gives(fi_tsenddata(ep, out, 1, NULL, 1, 0, 0, NULL), result);
	gives(fi_tinjectdata(ep, out, 1, 1, 0, 0), result);
}

static void before_enable(void)
{
	struct pair pair;
	struct fid_ep *ep;

	pair_open_domain(&pair, NULL);
	ep = pair_open_ep(&pair);
	all_msg(ep, -FI_EOPBADSTATE);
	all_tagged(ep, -FI_EOPBADSTATE);
	gives(fi_cancel(&ep->fid, in), -FI_EOPBADSTATE);
	gives(ep->ops->tx_size_left(ep), -FI_EOPBADSTATE);
	gives(ep->ops->rx_size_left(ep), -FI_EOPBADSTATE);
	close_fid(ep);
	pair_close(&pair);
}

static void without_capability(void)
{
	struct pair_want msg_only = { .caps = FI_MSG }, tagged_only = { .caps = FI_TAGGED };
	struct pair pair;
	struct fid_ep *ep;

	pair_open(&pair, &msg_only);
	all_tagged(pair.a.ep, -FI_EOPNOTSUPP);
	ep = pair_open_ep(&pair);
	all_tagged(ep, -FI_EOPNOTSUPP);
	all_msg(ep, -FI_EOPBADSTATE);
	close_fid(ep);
	pair_close(&pair);
	pair_open(&pair, &tagged_only);
	all_msg(pair.a.ep, -FI_EOPNOTSUPP);
	gives(fi_read(pair.a.ep, in, 1, NULL, 0, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_write(pair.a.ep, out, 1, NULL, 0, 0, 0, NULL), -FI_EOPNOTSUPP);
	gives(fi_atomic(pair.a.ep, out, 1, NULL, 0, 0, 0, FI_UINT8, FI_SUM, NULL), -FI_EOPNOTSUPP);
	pair_close(&pair);
}

/* ---- close ----------------------------------------------------------------------------------- */

static void close_in_wrong_order(void)
{
	struct fid_eq *eq;
	struct pair pair;
	struct fid_ep *ep;

	pair_open(&pair, NULL);
	eq = pair_open_eq(&pair);
	ep = pair_open_ep(&pair);
	gives(fi_ep_bind(ep, &eq->fid, 0), 0);
	gives(fi_close(&eq->fid), -FI_EBUSY);
	gives(fi_close(&pair.a.av->fid), -FI_EBUSY);
	gives(fi_close(&pair.a.cq->fid), -FI_EBUSY);
	gives(fi_close(&pair.domain->fid), -FI_EBUSY);
	gives(fi_close(&pair.fabric->fid), -FI_EBUSY);
	/* all that was refused still works */
	gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	post(&pair, fi_inject(pair.a.ep, out, 1, pair.a.peer));
	must(pair_done(&pair, &pair.b).entry.op_context == in);
	close_fid(ep);
	close_fid(eq);
	pair_close(&pair);
}

/* Operations that are pending are dropped without a completion (fi_endpoint(3)). */
static void close_with_operations_pending(void)
{
	struct fi_cq_tagged_entry entry;
	size_t len = 4 << 20;
	char *large = calloc(1, len);
	struct pair pair;

	pair_open(&pair, NULL);
	for (int i = 0; i < 10; i++)
		gives(fi_recv(pair.a.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_tsend(pair.a.ep, large, len, NULL, pair.a.peer, 1, large), 0);
	gives(fi_close(&pair.a.ep->fid), 0);
	pair.a.ep = NULL;
	for (int i = 0; i < 100; i++)
		gives(fi_cq_read(pair.a.cq, &entry, 1), -FI_EAGAIN);
	pair_close(&pair);
	free(large);
}

/* ---- alias and default flags ----------------------------------------------------------------- */

static uint64_t op_flags(struct fid_ep *ep, uint64_t direction)
{
	uint64_t flags = direction;

	gives(fi_control(&ep->fid, FI_GETOPSFLAG, &flags), 0);
	return flags;
}

static int set_op_flags(struct fid_ep *ep, uint64_t flags)
{
	return fi_control(&ep->fid, FI_SETOPSFLAG, &flags);
}

static void default_flags(void)
{
	struct pair_want want = { .tx_op_flags = FI_DELIVERY_COMPLETE, .rx_op_flags = FI_COMPLETION };
	uint64_t flags;
	struct pair pair;

	pair_open(&pair, &want);
	gives(op_flags(pair.a.ep, FI_TRANSMIT), FI_DELIVERY_COMPLETE);
	gives(op_flags(pair.a.ep, FI_RECV), FI_COMPLETION);
	flags = 0;
	gives(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, &flags), -FI_EINVAL);
	flags = FI_TRANSMIT | FI_RECV;
	gives(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, &flags), -FI_EINVAL);
	gives(set_op_flags(pair.a.ep, FI_TRANSMIT | FI_INJECT | FI_COMPLETION), 0);
	gives(op_flags(pair.a.ep, FI_TRANSMIT), FI_INJECT | FI_COMPLETION);
	gives(op_flags(pair.a.ep, FI_RECV), FI_COMPLETION);
	gives(set_op_flags(pair.a.ep, FI_RECV), 0);
	gives(op_flags(pair.a.ep, FI_RECV), 0);
	gives(set_op_flags(pair.a.ep, FI_INJECT), -FI_EINVAL);
	gives(set_op_flags(pair.a.ep, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
	gives(set_op_flags(pair.a.ep, FI_TRANSMIT | FI_COMMIT_COMPLETE), -FI_EBADFLAGS);
	gives(set_op_flags(pair.a.ep, FI_TRANSMIT | FI_MULTI_RECV), -FI_EBADFLAGS);
	gives(set_op_flags(pair.a.ep, FI_RECV | FI_INJECT), -FI_EBADFLAGS);
	gives(op_flags(pair.a.ep, FI_TRANSMIT), FI_INJECT | FI_COMPLETION);
	pair_close(&pair);
}

static void control(void)
{
	struct pair pair;
	void *arg = NULL;

	pair_open(&pair, NULL);
	gives(fi_control(&pair.a.ep->fid, FI_BACKLOG, &arg), -FI_ENOSYS);
	gives(fi_control(&pair.a.ep->fid, FI_GETWAIT, &arg), -FI_ENOSYS);
	gives(fi_control(&pair.a.ep->fid, FI_GETFIDFLAG, &arg), -FI_ENOSYS);
	gives(fi_control(&pair.a.ep->fid, 12345, &arg), -FI_ENOSYS);
	gives(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, NULL), -FI_EINVAL);
	pair_close(&pair);
}

/* An alias sends through the same endpoint with flags of its own. */
static void alias(void)
{
	struct pair_want want = { .tx_bind = FI_SELECTIVE_COMPLETION, .tx_op_flags = FI_COMPLETION };
	struct fid_ep *silent = NULL, *loud = NULL;
	struct pair pair;

	pair_open(&pair, &want);
	gives(fi_ep_alias(pair.a.ep, &silent, FI_TRANSMIT), 0);
	gives(fi_ep_alias(silent, &loud, FI_TRANSMIT | FI_COMPLETION), 0);
	gives(silent->fid.fclass, FI_CLASS_EP);
	gives(op_flags(silent, FI_TRANSMIT), 0);
	gives(op_flags(loud, FI_TRANSMIT), FI_COMPLETION);
	for (int i = 0; i < 3; i++)
		gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_send(silent, out, 1, NULL, pair.a.peer, &pair), 0);
	gives(fi_send(pair.a.ep, out, 1, NULL, pair.a.peer, out), 0);
	gives(fi_send(loud, out, 1, NULL, pair.a.peer, in), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == out);
	must(pair_done(&pair, &pair.a).entry.op_context == in);
	pair_quiet(&pair, &pair.a);
	for (int i = 0; i < 3; i++)
		gives(pair_done(&pair, &pair.b).source, pair.b.peer);

	/* setting the flags of one leaves the others alone */
	gives(set_op_flags(silent, FI_TRANSMIT | FI_COMPLETION), 0);
	gives(set_op_flags(pair.a.ep, FI_TRANSMIT), 0);
	gives(op_flags(loud, FI_TRANSMIT), FI_COMPLETION);
	gives(fi_recv(pair.b.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_send(silent, out, 1, NULL, pair.a.peer, in), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == in);

	gives(fi_close(&pair.a.ep->fid), -FI_EBUSY);
	close_fid(silent);
	gives(fi_close(&pair.a.ep->fid), -FI_EBUSY);
	close_fid(loud);
	pair_close(&pair);
}

static void alias_flags(void)
{
	struct fid_ep *alias = NULL;
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_ep_alias(pair.a.ep, &alias, 0), -FI_EINVAL);
	gives(fi_ep_alias(pair.a.ep, &alias, FI_COMPLETION), -FI_EINVAL);
	gives(fi_ep_alias(pair.a.ep, &alias, FI_TRANSMIT | FI_RECV), -FI_EINVAL);
	gives(fi_ep_alias(pair.a.ep, &alias, FI_TRANSMIT | FI_MULTICAST), -FI_EBADFLAGS);
	gives(fi_ep_alias(pair.a.ep, &alias, FI_RECV | FI_DELIVERY_COMPLETE), -FI_EBADFLAGS);
	gives(fi_ep_alias(pair.a.ep, &alias, FI_RECV | FI_COMPLETION), 0);
	close_fid(alias);
	pair_close(&pair);
}

/* Made before its endpoint is enabled: enabled with it, by either. */
static void alias_before_enable(void)
{
	struct fid_ep *ep, *alias = NULL;
	struct pair pair;

	pair_open(&pair, NULL);
	ep = pair_open_ep(&pair);
	gives(fi_ep_alias(ep, &alias, FI_TRANSMIT), 0);
	gives(fi_inject(alias, out, 1, pair.a.self), -FI_EOPBADSTATE);
	gives(fi_ep_bind(ep, &pair.a.cq->fid, FI_TRANSMIT | FI_RECV), 0);
	gives(fi_ep_bind(alias, &pair.a.av->fid, 0), 0);
	gives(fi_enable(alias), 0);
	gives(fi_enable(ep), -FI_EOPBADSTATE);
	gives(fi_inject(alias, out, 1, pair.a.self), 0);
	gives(fi_inject(ep, out, 1, pair.a.self), 0);
	close_fid(alias);
	close_fid(ep);
	pair_close(&pair);
}

/* ---- options --------------------------------------------------------------------------------- */

static void options(void)
{
	static const int none[] = { FI_OPT_CM_DATA_SIZE,
				    FI_OPT_BUFFERED_MIN,
				    FI_OPT_BUFFERED_LIMIT,
				    FI_OPT_SEND_BUF_SIZE,
				    FI_OPT_RECV_BUF_SIZE,
				    99,
				    -1 };
	struct pair_want want = { .tx_size = 100, .rx_size = 200 };
	struct fi_trigger_xpu xpu = { .count = 0, .iface = FI_HMEM_CUDA };
	size_t value = 0, len;
	struct pair pair;

	pair_open(&pair, &want);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		len = sizeof(value);
		gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, none[i], &value, &len), -FI_ENOPROTOOPT);
		gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, none[i], &value, sizeof(value)),
		      -FI_ENOPROTOOPT);
	}
	len = sizeof(xpu);
	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_XPU_TRIGGER, &xpu, &len), -FI_EOPNOTSUPP);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_XPU_TRIGGER, &xpu, sizeof(xpu)),
	      -FI_ENOPROTOOPT);
	len = sizeof(value);
	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT + 1, FI_OPT_MIN_MULTI_RECV, &value, &len),
	      -FI_ENOPROTOOPT);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT + 1, FI_OPT_MIN_MULTI_RECV, &value,
			sizeof(value)),
	      -FI_ENOPROTOOPT);

	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &value, &len), 0);
	gives(value, 100);
	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_RX_SIZE, &value, &len), 0);
	gives(value, 200);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &value, sizeof(value)),
	      -FI_ENOPROTOOPT);
	pair_close(&pair);
}

static void option_min_multi_recv(void)
{
	size_t value = 12345, len = sizeof(value);
	struct fid_ep *ep;
	struct pair pair;

	pair_open_domain(&pair, NULL);
	ep = pair_open_ep(&pair);
	gives(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof(value)), 0);
	value = 0;
	gives(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len), 0);
	gives(value, 12345);
	gives(len, sizeof(value));
	len = 4;
	gives(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len), -FI_ETOOSMALL);
	gives(len, sizeof(value));
	gives(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL, &len), -FI_EINVAL);
	gives(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, NULL), -FI_EINVAL);
	gives(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 4), -FI_EINVAL);
	gives(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL, sizeof(value)),
	      -FI_EINVAL);
	close_fid(ep);
	pair_close(&pair);
}

/* There is no device memory: peer to peer can be kept off, not on. */
static void option_hmem(void)
{
	int mode = -1;
	size_t len = sizeof(mode);
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, &len), 0);
	gives(mode, FI_HMEM_P2P_DISABLED);
	gives(len, sizeof(mode));
	for (mode = FI_HMEM_P2P_ENABLED; mode <= FI_HMEM_P2P_DISABLED; mode++)
		gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, sizeof(mode)),
		      mode == FI_HMEM_P2P_DISABLED ? 0 : -FI_EOPNOTSUPP);
	mode = 77;
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &mode, sizeof(mode)),
	      -FI_EINVAL);
	pair_close(&pair);
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *unique_service(void)
{
	static char name[64];

	snprintf(name, sizeof(name), "fi_shmcma://test_ep.%d", (int)getpid());
	return name;
}

static void name_of_enabled(void)
{
	char name[80], truncated[80];
	size_t len = sizeof(name);
	struct pair pair;

	pair_open(&pair, NULL);
	memset(name, 0x5a, sizeof(name));
	gives(fi_getname(&pair.a.ep->fid, name, &len), 0);
	gives(len, 64);
	gives(name[63], 0);
	gives(name[64], 0x5a);
	gives(strncmp(name, "fi_shmcma://", 12), 0);
	must(strcmp(name, pair.b.name) != 0);

	memset(truncated, 0x5a, sizeof(truncated));
	len = 20;
	gives(fi_getname(&pair.a.ep->fid, truncated, &len), -FI_ETOOSMALL);
	gives(len, 64);
	gives(memcmp(truncated, name, 20), 0);
	gives(truncated[20], 0x5a);
	len = 0;
	gives(fi_getname(&pair.a.ep->fid, NULL, &len), -FI_ETOOSMALL);
	gives(len, 64);
	gives(fi_getname(&pair.a.ep->fid, NULL, &len), -FI_EINVAL);
	len = 63;
	gives(fi_getname(&pair.a.ep->fid, truncated, &len), -FI_ETOOSMALL);
	gives(fi_setname(&pair.a.ep->fid, (void *)unique_service(), 64), -FI_EOPBADSTATE);
	pair_close(&pair);
}

static void name_before_enable(void)
{
	char other_scheme[] = "tcp://localhost", not_a_name[] = "fi_shmcma://a b";
	char name[64], other[64], service[64];
	size_t len = sizeof(name);
	struct fid_ep *ep;
	struct pair pair;

	pair_open(&pair, NULL);
	strcpy(service, unique_service());
	ep = pair_open_ep(&pair);
	gives(fi_getname(&ep->fid, name, &len), -FI_EOPBADSTATE);
	gives(fi_setname(&ep->fid, service, 0), -FI_EINVAL);
	gives(fi_setname(&ep->fid, NULL, 64), -FI_EINVAL);
	gives(fi_setname(&ep->fid, other_scheme, sizeof(other_scheme)), -FI_EINVAL);
	gives(fi_setname(&ep->fid, not_a_name, sizeof(not_a_name)), -FI_EINVAL);
	gives(fi_setname(&ep->fid, pair.a.name, 64), -FI_EADDRNOTAVAIL);
	gives(fi_getname(&ep->fid, name, &len), -FI_EOPBADSTATE);

	gives(fi_setname(&ep->fid, service, strlen(service) + 1), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	gives(len, 64);
	gives(strcmp(name, service), 0);

	pair_bind(ep, pair.a.cq, pair.a.av);
	gives(fi_enable(ep), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	must(strcmp(name, service) != 0); /* its own, which anybody can insert */

	/* under both names it is the same endpoint */
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_recv(ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(pair.b.ep, out, 1, pair_insert(pair.b.av, service)), 0);
	gives(fi_inject(pair.b.ep, out, 1, pair_insert(pair.b.av, name)), 0);
	pair_done(&pair, &pair.a);
	pair_done(&pair, &pair.a);
	len = sizeof(other);
	gives(fi_getname(&ep->fid, other, &len), 0);
	gives(strcmp(name, other), 0);
	close_fid(ep);
	pair_close(&pair);
}

/* A name that a live endpoint has: refused, and its owner is not harmed; free once it is closed. */
static void name_in_use(void)
{
	struct fid_ep *owner, *second;
	char service[64];
	struct pair pair;
	fi_addr_t addr;

	pair_open(&pair, NULL);
	strcpy(service, unique_service());
	owner = pair_open_ep(&pair);
	gives(fi_setname(&owner->fid, service, sizeof(service)), 0);
	pair_bind(owner, pair.a.cq, pair.a.av);
	gives(fi_enable(owner), 0);
	second = pair_open_ep(&pair);
	gives(fi_setname(&second->fid, service, sizeof(service)), 0);
	pair_bind(second, pair.b.cq, pair.b.av);
	for (int i = 0; i < 3; i++)
		gives(fi_enable(second), -FI_EADDRINUSE);
	addr = pair_insert(pair.b.av, service);
	gives(fi_recv(owner, in, sizeof(in), NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(pair.b.ep, out, 1, addr), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == in);
	close_fid(owner);
	gives(fi_enable(second), 0);
	close_fid(second);
	pair_close(&pair);
}

/* The name can come with the info: fi_getinfo with a service and FI_SOURCE. */
static void name_by_info(void)
{
	struct pair_want want = { .caps = FI_MSG };
	char service[16], name[64];
	size_t len = sizeof(name);
	struct fi_info *hints = pair_hints(&want), *info;
	struct fid_ep *ep;
	struct pair pair;

	snprintf(service, sizeof(service), "%d", 10000 + (int)getpid() % 50000);
	pair_open(&pair, NULL);
	gives(fi_getinfo(FI_VERSION(1, 17), NULL, service, FI_SOURCE, hints, &info), 0);
	gives(fi_endpoint(pair.domain, info, &ep, NULL), 0);
	gives(fi_getname(&ep->fid, name, &len), 0);
	gives(strncmp(name, "fi_shmcma://", 12), 0);
	gives(strcmp(name, info->src_addr), 0);
	close_fid(ep);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	pair_close(&pair);
}

static void no_connections(void)
{
	struct fid_pep *pep = NULL;
	size_t len = sizeof(in);
	struct pair pair;
	struct fid_mc *mc;

	pair_open(&pair, NULL);
	gives(fi_getpeer(pair.a.ep, in, &len), -FI_ENOSYS);
	gives(fi_connect(pair.a.ep, pair.b.name, NULL, 0), -FI_ENOSYS);
	gives(fi_accept(pair.a.ep, NULL, 0), -FI_ENOSYS);
	gives(fi_shutdown(pair.a.ep, 0), -FI_ENOSYS);
	gives(fi_join(pair.a.ep, pair.b.name, 0, &mc, NULL), -FI_ENOSYS);
	gives(pair.a.ep->cm->listen(pep), -FI_ENOSYS);
	gives(pair.a.ep->cm->reject(pep, NULL, NULL, 0), -FI_ENOSYS);
	gives(pair.a.ep->ops->tx_ctx(pair.a.ep, 0, NULL, NULL, NULL), -FI_ENOSYS);
	gives(pair.a.ep->ops->rx_ctx(pair.a.ep, 0, NULL, NULL, NULL), -FI_ENOSYS);
	pair_close(&pair);
}

/* ---- cancel, room ---------------------------------------------------------------------------- */

static void cancel(bool tagged)
{
	struct fi_cq_err_entry error;
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_cancel(&pair.a.ep->fid, in), -FI_ENOENT);
	gives(kind_recv(tagged, &pair.a, in, sizeof(in), FI_ADDR_UNSPEC, in), 0);
	gives(kind_recv(tagged, &pair.a, in, sizeof(in), FI_ADDR_UNSPEC, out), 0);
	gives(kind_recv(tagged, &pair.a, in, sizeof(in), FI_ADDR_UNSPEC, in), 0);
	/* two have that context: one of them goes */
	gives(fi_cancel(&pair.a.ep->fid, in), 0);
	error = pair_error(&pair, &pair.a);
	gives(error.err, FI_ECANCELED);
	must(error.op_context == in);
	gives(error.flags, kind_cq_flags(tagged, FI_RECV));
	gives(error.len, 0);
	gives(fi_cancel(&pair.a.ep->fid, in), 0);
	gives(pair_error(&pair, &pair.a).err, FI_ECANCELED);
	gives(fi_cancel(&pair.a.ep->fid, in), -FI_ENOENT);

	/* the third is still there, and once matched beyond recall */
	post(&pair, kind_inject(tagged, &pair.b, "x", 2, pair.b.peer));
	must(pair_done(&pair, &pair.a).entry.op_context == out);
	gives(fi_cancel(&pair.a.ep->fid, out), -FI_ENOENT);
	pair_quiet(&pair, &pair.a);
	pair_close(&pair);
}

static void cancel_msg(void)
{
	cancel(false);
}

static void cancel_tagged(void)
{
	cancel(true);
}

/* A canceled receive takes no message, and its buffer is not written. */
static void cancel_then_receive(void)
{
	char first[8] = "first", second[8] = "second";
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_recv(pair.a.ep, first, 8, NULL, FI_ADDR_UNSPEC, first), 0);
	gives(fi_recv(pair.a.ep, second, 8, NULL, FI_ADDR_UNSPEC, second), 0);
	gives(fi_cancel(&pair.a.ep->fid, first), 0);
	post(&pair, fi_inject(pair.b.ep, "message", 8, pair.b.peer));
	gives(pair_error(&pair, &pair.a).err, FI_ECANCELED);
	must(pair_done(&pair, &pair.a).entry.op_context == second);
	gives(strcmp(second, "message"), 0);
	gives(strcmp(first, "first"), 0);
	pair_close(&pair);
}

static void size_left(void)
{
	struct pair_want want = { .tx_size = 16, .rx_size = 8 };
	struct pair pair;

	pair_open(&pair, &want);
	gives(pair.a.ep->ops->tx_size_left(pair.a.ep), 16);
	gives(pair.a.ep->ops->rx_size_left(pair.a.ep), 8);
	for (int i = 0; i < 8; i++)
		gives(fi_recv(pair.a.ep, in, 1, NULL, FI_ADDR_UNSPEC, in), 0);
	gives(pair.a.ep->ops->rx_size_left(pair.a.ep), 0);
	gives(fi_cancel(&pair.a.ep->fid, in), 0);
	gives(pair.a.ep->ops->rx_size_left(pair.a.ep), 1);
	/* a lower bound: more are taken */
	for (int i = 0; i < 8; i++)
		gives(fi_trecv(pair.a.ep, in, 1, NULL, FI_ADDR_UNSPEC, 0, 0, in), 0);
	gives(pair.a.ep->ops->rx_size_left(pair.a.ep), 0);
	pair_close(&pair);
}

/* A peer that does not look takes fewer sends than there is transmit size left: then it is -FI_EAGAIN, for a while. */
static void size_left_unread(void)
{
	struct pair pair;
	ssize_t ret = 0;
	int sent = 0;

	pair_open(&pair, NULL);
	must(pair.a.ep->ops->tx_size_left(pair.a.ep) >= 1024);
	for (; !ret && sent < 1024; sent += !ret)
		ret = fi_inject(pair.a.ep, out, 1, pair.a.peer);
	must(sent > 0);
	gives(ret, -FI_EAGAIN);
	must(pair.a.ep->ops->tx_size_left(pair.a.ep) > 0);
	for (int i = 0; i < sent; i++) {
		gives(fi_recv(pair.b.ep, in, 1, NULL, FI_ADDR_UNSPEC, in), 0);
		gives(pair_done(&pair, &pair.b).entry.len, 1);
	}
	post(&pair, fi_inject(pair.a.ep, out, 1, pair.a.peer));
	pair_close(&pair);
}

/* ---- report ---------------------------------------------------------------------------------- */

/* At close one line at level info has all counters; other tests read it to prove who carried the data. */
static void counters_line(void)
{
	static const char *const zero[] = {
		"tx_bounce",	 "tx_rdv",	 "rx_msgs",	    "rx_bytes",
		"rx_unexpected", "rx_cma_bytes", "rx_pulled_bytes", "rx_local_bytes",
		"refusals",	 "quarantines",	 "deaths",	    "tx_overflows",
	};
	struct counters counters;
	struct pair pair;
	const char *line;

	counters_begin(&counters);
	pair_open(&pair, NULL);
	for (int i = 0; i < 3; i++)
		gives(fi_inject(pair.a.ep, out, 3, pair.a.peer), 0);
	gives(fi_close(&pair.a.ep->fid), 0);
	pair.a.ep = NULL;
	line = counters_end(&counters);
	gives(counter(line, "tx_msgs"), 3);
	gives(counter(line, "tx_bytes"), 9);
	gives(counter(line, "tx_inline"), 3);
	gives(counter(line, "connects"), 1);
	for (size_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
		gives(counter(line, zero[i]), 0);
	counter(line, "accepts");
	counter(line, "departures");
	must(!strstr(line + strlen(line) + 1, "shmcma: counters: ")); /* one line */
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(open_attributes),
		ALONE(bind_cq),
		ALONE(bind_cq_again),
		ALONE(bind_av_and_eq),
		ALONE(bind_others),
		ALONE(bind_of_another_domain),
		ALONE(bind_memory),
		ALONE(bind_after_enable),
		ALONE(enable),
		ALONE(enable_in_the_end),
		ALONE(one_direction),
		ALONE(before_enable),
		ALONE(without_capability),
		ALONE(close_in_wrong_order),
		ALONE(close_with_operations_pending),
		ALONE(default_flags),
		ALONE(control),
		ALONE(alias),
		ALONE(alias_flags),
		ALONE(alias_before_enable),
		ALONE(options),
		ALONE(option_min_multi_recv),
		ALONE(option_hmem),
		ALONE(name_of_enabled),
		ALONE(name_before_enable),
		ALONE(name_in_use),
		ALONE(name_by_info),
		ALONE(no_connections),
		ALONE(cancel_msg),
		ALONE(cancel_tagged),
		ALONE(cancel_then_receive),
		ALONE(size_left),
		ALONE(size_left_unread),
		ALONE(counters_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
