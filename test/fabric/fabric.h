/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric.h: opening and closing libfabric objects in tests. Everything is for one provider; a call that
 * fails ends the test with its error. Header only, so that a test program is one file.
 *
 *   struct tf t;
 *   tf_open(&t, NULL);          all objects, endpoint enabled, its own address in t.name
 *   ...
 *   tf_close(&t);               each object that is open, and the endpoints before what they use
 */
#ifndef TEST_FABRIC_H
#define TEST_FABRIC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "../watchdog.h"
#include "older.h"

#define TF_PROVIDER "shmcma"
#define TF_PREFIX "fi_shmcma://"
#define TF_VERSION FI_VERSION(1, 17)
#define TF_NAME_SIZE 64

/* The objects of a test; NULL: not open. */
struct tf {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_av *av;
	struct fid_cq *tx_cq, *rx_cq;
	struct fid_ep *ep;
	char name[TF_NAME_SIZE];
};

#define tf_expect(call, expected)                                                                         \
	do {                                                                                              \
		long tf_got = (long)(call);                                                               \
		long tf_expected = (long)(expected);                                                      \
                                                                                                          \
		if (tf_got != tf_expected)                                                                \
			fail_msg("%s: %ld (%s), not %ld (%s)", #call, tf_got,                             \
				 tf_got < 0 ? fi_strerror((int)-tf_got) : "", tf_expected,                \
				 tf_expected < 0 ? fi_strerror((int)-tf_expected) : "");                  \
	} while (0)

#define tf_ok(call) tf_expect(call, 0)

/* Hints that name the provider and ask for nothing else. */
static inline struct fi_info *tf_hints(void)
{
	struct fi_info *hints = fi_allocinfo();

	assert_non_null(hints);
	hints->fabric_attr->prov_name = strdup(TF_PROVIDER);
	assert_non_null(hints->fabric_attr->prov_name);
	return hints;
}

/* The first answer to the hints, which stay the caller's; NULL: the default ones. */
static inline struct fi_info *tf_getinfo(const struct fi_info *hints)
{
	struct fi_info *own = hints ? NULL : tf_hints();
	struct fi_info *info;

	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, 0, hints ? hints : own, &info));
	fi_freeinfo(own);
	return info;
}

/* Info, fabric and domain. The limits of the watchdog begin anew. */
static inline void tf_open_domain(struct tf *t, const struct fi_info *hints)
{
	watchdog_start(NULL, 0);
	memset(t, 0, sizeof(*t));
	t->info = tf_getinfo(hints);
	tf_ok(fi_fabric(t->info->fabric_attr, &t->fabric, t));
	tf_ok(fi_domain(t->fabric, t->info, &t->domain, t));
}

static inline struct fid_eq *tf_open_eq(struct tf *t, uint64_t flags, enum fi_wait_obj wait_obj)
{
	struct fi_eq_attr attr = { .flags = flags, .wait_obj = wait_obj };
	struct fid_eq *eq;

	tf_ok(fi_eq_open(t->fabric, &attr, &eq, t));
	return eq;
}

static inline struct fid_cq *tf_open_cq(struct tf *t, enum fi_cq_format format)
{
	struct fi_cq_attr attr = { .format = format };
	struct fid_cq *cq;

	tf_ok(fi_cq_open(t->domain, &attr, &cq, t));
	return cq;
}

static inline struct fid_av *tf_open_av(struct tf *t, enum fi_av_type type, uint64_t flags)
{
	struct fi_av_attr attr = { .type = type, .flags = flags };
	struct fid_av *av;

	tf_ok(fi_av_open(t->domain, &attr, &av, t));
	return av;
}

/* An endpoint of t->info on t's queues and address vector; its address into name[TF_NAME_SIZE]. */
static inline struct fid_ep *tf_open_ep(struct tf *t, char *name)
{
	size_t len = TF_NAME_SIZE;
	struct fid_ep *ep;

	tf_ok(fi_endpoint(t->domain, t->info, &ep, t));
	tf_ok(fi_ep_bind(ep, &t->av->fid, 0));
	tf_ok(fi_ep_bind(ep, &t->tx_cq->fid, FI_TRANSMIT));
	tf_ok(fi_ep_bind(ep, &t->rx_cq->fid, FI_RECV));
	tf_ok(fi_enable(ep));
	if (name) {
		tf_ok(fi_getname(&ep->fid, name, &len));
		assert_true(len <= TF_NAME_SIZE);
		assert_int_equal(len, strlen(name) + 1);
	}
	return ep;
}

/* Everything; the completion queues are of the tagged format, the address vector is a table. */
static inline void tf_open(struct tf *t, const struct fi_info *hints)
{
	tf_open_domain(t, hints);
	t->av = tf_open_av(t, FI_AV_TABLE, 0);
	t->tx_cq = tf_open_cq(t, FI_CQ_FORMAT_TAGGED);
	t->rx_cq = tf_open_cq(t, FI_CQ_FORMAT_TAGGED);
	t->ep = tf_open_ep(t, t->name);
}

static inline void tf_close_fid(struct fid *fid)
{
	if (fid)
		tf_ok(fi_close(fid));
}

#define TF_CLOSE(object) tf_close_fid((object) ? &(object)->fid : NULL)

static inline void tf_close(struct tf *t)
{
	TF_CLOSE(t->ep);
	TF_CLOSE(t->tx_cq);
	TF_CLOSE(t->rx_cq);
	TF_CLOSE(t->av);
	TF_CLOSE(t->domain);
	TF_CLOSE(t->eq);
	TF_CLOSE(t->fabric);
	fi_freeinfo(t->info);
	memset(t, 0, sizeof(*t));
}

/* One address into the address vector of t. */
static inline fi_addr_t tf_insert(struct tf *t, const char *name)
{
	fi_addr_t fi_addr = FI_ADDR_NOTAVAIL;

	tf_expect(fi_av_insert(t->av, name, 1, &fi_addr, 0, NULL), 1);
	assert_true(fi_addr != FI_ADDR_NOTAVAIL);
	return fi_addr;
}

#endif
