/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_domain: fabric and domain objects, fi_fabric(3) and fi_domain(3): open, bind, close in every
 * order, and what is not there says so.
 */
#include "fabric.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>

static struct tf t;

static int setup(void **state)
{
	(void)state;
	tf_open_domain(&t, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tf_close(&t);
	return 0;
}

/* ---- fabric ---------------------------------------------------------------------------------- */

static void test_fabric(void **state)
{
	struct fi_info *info = tf_getinfo(NULL);
	struct fid_fabric *fabric;
	int context;

	(void)state;
	tf_ok(fi_fabric(info->fabric_attr, &fabric, &context));
	assert_int_equal(fabric->fid.fclass, FI_CLASS_FABRIC);
	assert_ptr_equal(fabric->fid.context, &context);
	assert_int_equal(fabric->api_version, TF_VERSION);
	tf_ok(fi_close(&fabric->fid));
	info->fabric_attr->name[0] = 'x';
	tf_expect(fi_fabric(info->fabric_attr, &fabric, NULL), -FI_ENODATA);
	fi_freeinfo(info);
}

static void test_fabric_unused_calls(void **state)
{
	struct fid *fids[1] = { &t.domain->fid };
	struct fid_pep *pep;
	void *ops;

	(void)state;
	tf_expect(fi_passive_ep(t.fabric, t.info, &pep, NULL), -FI_ENOSYS);
	tf_ok(fi_trywait(t.fabric, fids, 0));
	tf_expect(fi_trywait(t.fabric, fids, 1), -FI_EINVAL); /* nothing to wait for */
	tf_expect(fi_open_ops(&t.fabric->fid, "ops", 0, &ops, NULL), -FI_ENOSYS);
	tf_expect(fi_set_ops(&t.fabric->fid, "ops", 0, NULL, NULL), -FI_ENOSYS);
	tf_expect(fi_control(&t.fabric->fid, FI_ENABLE, NULL), -FI_ENOSYS);
	tf_expect(t.fabric->fid.ops->bind(&t.fabric->fid, &t.domain->fid, 0), -FI_ENOSYS);
}

/* An object in use cannot be closed, and is unharmed by the attempt. */
static void test_busy(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_NONE);
	struct fid_av *av;
	struct fid_cq *cq;
	struct tf all;

	(void)state;
	tf_expect(fi_close(&t.fabric->fid), -FI_EBUSY);
	av = tf_open_av(&t, FI_AV_TABLE, 0);
	tf_expect(fi_close(&t.domain->fid), -FI_EBUSY);
	tf_ok(fi_close(&av->fid));
	cq = tf_open_cq(&t, FI_CQ_FORMAT_CONTEXT);
	tf_expect(fi_close(&t.domain->fid), -FI_EBUSY);
	tf_ok(fi_close(&cq->fid));
	tf_ok(fi_close(&t.domain->fid));
	/* the event queue is still open */
	tf_expect(fi_close(&t.fabric->fid), -FI_EBUSY);
	tf_ok(fi_close(&eq->fid));
	tf_ok(fi_domain(t.fabric, t.info, &t.domain, NULL));

	tf_open(&all, NULL);
	tf_expect(fi_close(&all.fabric->fid), -FI_EBUSY);
	tf_expect(fi_close(&all.domain->fid), -FI_EBUSY);
	tf_expect(fi_close(&all.av->fid), -FI_EBUSY);
	tf_expect(fi_close(&all.tx_cq->fid), -FI_EBUSY);
	tf_expect(fi_close(&all.rx_cq->fid), -FI_EBUSY);
	tf_insert(&all, all.name);
	tf_close(&all);
}

/*
 * A forked child has no use of its parent's objects, but may close them and may end in any way: it takes
 * nothing of its parent's with it.
 */
static void check_child(bool closes)
{
	int status;
	struct tf all;
	pid_t child;

	tf_open(&all, NULL);
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		if (closes)
			_exit(fi_close(&all.ep->fid) ? 1 : 0);
		exit(0); /* through the destructors */
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	tf_insert(&all, all.name);
	tf_close(&all);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("child: signal %d, status %d", WTERMSIG(status), WEXITSTATUS(status));
}

static void test_fork_and_exit(void **state)
{
	(void)state;
	check_child(false);
}

static void test_fork_and_close(void **state)
{
	(void)state;
	check_child(true);
}

/* ---- domain ---------------------------------------------------------------------------------- */

static void test_domain(void **state)
{
	struct fid_domain *domains[20];
	int context;

	(void)state;
	for (int i = 0; i < 20; i++) {
		tf_ok(fi_domain(t.fabric, t.info, &domains[i], &context));
		assert_int_equal(domains[i]->fid.fclass, FI_CLASS_DOMAIN);
		assert_ptr_equal(domains[i]->fid.context, &context);
	}
	/* neither in order nor in reverse */
	for (int i = 0; i < 20; i++)
		tf_ok(fi_close(&domains[i * 7 % 20]->fid));
}

/* Each threading model, with and without the fields an application may leave out. */
static void test_domain_attributes(void **state)
{
	struct fid_domain *domain;
	struct fi_info *info = fi_dupinfo(t.info);
	struct fi_info bare = { .domain_attr = info->domain_attr };

	(void)state;
	for (int threading = FI_THREAD_UNSPEC; threading <= FI_THREAD_ENDPOINT; threading++) {
		info->domain_attr->threading = threading;
		tf_ok(fi_domain(t.fabric, info, &domain, NULL));
		tf_ok(fi_close(&domain->fid));
		tf_ok(fi_domain(t.fabric, &bare, &domain, NULL));
		tf_ok(fi_close(&domain->fid));
	}
	tf_expect(fi_domain(t.fabric, NULL, &domain, NULL), -FI_EINVAL);
	bare.domain_attr = NULL;
	tf_expect(fi_domain(t.fabric, &bare, &domain, NULL), -FI_EINVAL);

	/* attributes that were never granted */
	info->domain_attr->threading = FI_THREAD_SAFE;
	info->domain_attr->data_progress = 77;
	tf_expect(fi_domain(t.fabric, info, &domain, NULL), -FI_ENODATA);
	info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	info->caps |= FI_MULTICAST;
	tf_expect(fi_domain(t.fabric, info, &domain, NULL), -FI_ENODATA);
	info->caps &= ~FI_MULTICAST;
	info->domain_attr->name[0] = 'x';
	tf_expect(fi_domain(t.fabric, info, &domain, NULL), -FI_ENODATA);
	fi_freeinfo(info);
}

static void test_flags(void **state)
{
	struct fid_domain *domain;
	struct fid_ep *ep;

	(void)state;
	tf_ok(fi_domain2(t.fabric, t.info, &domain, 0, NULL));
	tf_ok(fi_endpoint2(domain, t.info, &ep, 0, NULL));
	tf_ok(fi_close(&ep->fid));
	tf_expect(fi_endpoint2(domain, t.info, &ep, FI_PEER, NULL), -FI_ENOSYS);
	tf_expect(fi_endpoint2(domain, t.info, &ep, FI_MORE, NULL), -FI_EBADFLAGS);
	tf_ok(fi_close(&domain->fid));
	tf_expect(fi_domain2(t.fabric, t.info, &domain, FI_PEER, NULL), -FI_ENOSYS);
	tf_expect(fi_domain2(t.fabric, t.info, &domain, FI_MORE, NULL), -FI_EBADFLAGS);
}

static void test_bind(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, 0, FI_WAIT_NONE);
	struct fid_domain *domain;

	(void)state;
	tf_ok(fi_domain(t.fabric, t.info, &domain, NULL));
	tf_expect(fi_domain_bind(domain, &t.fabric->fid, 0), -FI_EINVAL);
	tf_expect(fi_domain_bind(domain, NULL, 0), -FI_EINVAL);
	tf_expect(fi_domain_bind(domain, &eq->fid, FI_REG_MR), -FI_ENOSYS);
	tf_expect(fi_domain_bind(domain, &eq->fid, FI_MORE), -FI_EBADFLAGS);
	tf_ok(fi_domain_bind(domain, &eq->fid, 0));
	tf_expect(fi_domain_bind(domain, &eq->fid, 0), -FI_EINVAL);
	tf_expect(fi_close(&eq->fid), -FI_EBUSY);
	tf_ok(fi_close(&domain->fid));
	tf_ok(fi_close(&eq->fid));
}

/* Without modifiers all of them are meant (fi_getinfo(3)), also where an info that was granted them does not say so. */
static void test_implied_capabilities(void **state)
{
	struct fi_info *hints = tf_hints();
	struct fid_stx *stx;
	struct fid_ep *ep;
	struct tf messages;

	(void)state;
	hints->caps = FI_MSG;
	memset(&messages, 0, sizeof(messages));
	messages.info = tf_getinfo(hints);
	fi_freeinfo(hints);
	messages.info->caps = FI_MSG;
	tf_ok(fi_fabric(messages.info->fabric_attr, &messages.fabric, NULL));
	tf_ok(fi_domain(messages.fabric, messages.info, &messages.domain, NULL));
	tf_ok(fi_endpoint(messages.domain, messages.info, &ep, NULL));
	tf_ok(fi_close(&ep->fid));
	tf_ok(fi_scalable_ep(messages.domain, messages.info, &ep, NULL));
	tf_ok(fi_close(&ep->fid));
	tf_ok(fi_stx_context(messages.domain, messages.info->tx_attr, &stx, NULL));
	tf_ok(fi_close(&stx->fid));
	tf_ok(fi_srx_context(messages.domain, messages.info->rx_attr, &ep, NULL));
	tf_ok(fi_close(&ep->fid));
	tf_close(&messages);
}

/* The event queue of the domain stands in for one of the address vector. */
static void test_default_event_queue(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, 0, FI_WAIT_NONE);
	struct fi_eq_entry entry;
	struct fid_av *av;
	uint32_t event;
	int context;

	(void)state;
	av = tf_open_av(&t, FI_AV_TABLE, FI_EVENT);
	tf_expect(fi_av_insert(av, NULL, 0, NULL, 0, &context), -FI_ENOEQ);
	tf_ok(fi_domain_bind(t.domain, &eq->fid, 0));
	tf_ok(fi_av_insert(av, NULL, 0, NULL, 0, &context));
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	assert_int_equal(event, FI_AV_COMPLETE);
	assert_ptr_equal(entry.fid, &av->fid);
	assert_ptr_equal(entry.context, &context);
	tf_ok(fi_close(&av->fid));
	/* the domain lets go of its queue when it is closed */
	tf_ok(fi_close(&t.domain->fid));
	tf_ok(fi_close(&eq->fid));
	tf_ok(fi_domain(t.fabric, t.info, &t.domain, NULL));
}

static void test_domain_unused_calls(void **state)
{
	struct fi_collective_attr collective;
	void *ops;

	(void)state;
	tf_expect(fi_query_collective(t.domain, FI_BARRIER, &collective, 0), -FI_EOPNOTSUPP);
	tf_expect(fi_open_ops(&t.domain->fid, "ops", 0, &ops, NULL), -FI_ENOSYS);
	tf_expect(fi_set_ops(&t.domain->fid, FI_SET_OPS_HMEM_OVERRIDE, 0, NULL, NULL), -FI_ENOSYS);
	tf_expect(fi_control(&t.domain->fid, FI_BACKLOG, NULL), -FI_ENOSYS);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fabric),
		cmocka_unit_test(test_fabric_unused_calls),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_fork_and_exit),
		cmocka_unit_test(test_fork_and_close),
		cmocka_unit_test(test_domain),
		cmocka_unit_test(test_domain_attributes),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_bind),
		cmocka_unit_test(test_implied_capabilities),
		cmocka_unit_test(test_default_event_queue),
		cmocka_unit_test(test_domain_unused_calls),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
