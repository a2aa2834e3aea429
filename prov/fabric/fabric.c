/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric.c: the fabric object. Any thread.
 */
#include "fabric/fabric.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/peerowner.h"
#include "obj/eq.h"
#include "wait/wait.h"

SHMCMA_UNABLE(no_passive_ep, -FI_ENOSYS, struct fid_fabric *fabric, struct fi_info *info,
	      struct fid_pep **pep, void *context)

static struct shmcma_wait *wait_of(struct fid *fid)
{
	switch (fid->fclass) {
	case FI_CLASS_EQ:
		return shmcma_eq_wait(fid);
	case FI_CLASS_CQ:
		return &container_of(fid, struct shmcma_cq, fid.fid)->wait;
	case FI_CLASS_CNTR:
		return &container_of(fid, struct shmcma_cntr, fid.fid)->wait;
	case FI_CLASS_WAIT:
		return &container_of(fid, struct shmcma_wait_set, fid.fid)->wait;
	default:
		return NULL;
	}
}

/* Checks, before the application sleeps on wait objects, that none of them has anything to read. */
SHMCMA_CALL(int, fabric_trywait, struct fid_fabric *fabric, struct fid **fids, int count)
{
	for (int i = 0; i < count; i++) {
		struct shmcma_wait *wait = wait_of(fids[i]);
		int ret = -FI_EINVAL;

		if (shmcma_is_forked(fids[i]))
			ret = shmcma_forked();
		else if (wait)
			ret = wait->ops->try(wait, count == 1);

		if (ret)
			return ret;
	}
	return 0;
}

SHMCMA_CALL(int, fabric_domain2, struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain,
	    uint64_t flags, void *context)
{
	int ret = shmcma_check_peer_flags("fi_domain2", flags);

	return ret ? ret : shmcma_domain_open(fabric, info, domain, context);
}

static int fabric_close(struct fid *fid)
{
	struct shmcma_fabric *fabric = container_of(fid, struct shmcma_fabric, fid.fid);

	if (atomic_load(&fabric->refs))
		return -FI_EBUSY;
	shmcma_object_del(&fabric->object);
	free(fabric);
	return 0;
}

static struct fi_ops fabric_fid_ops = SHMCMA_FID_OPS(fabric_close, shmcma_no_bind, shmcma_no_control);

SHMCMA_FORKED_CALL(int, shmcma_domain_open, struct fid_fabric *fabric, struct fi_info *info,
		   struct fid_domain **domain, void *context)
SHMCMA_FORKED_CALL(int, shmcma_eq_open, struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
		   void *context)
SHMCMA_FORKED_CALL(int, shmcma_wait_open, struct fid_fabric *fabric, struct fi_wait_attr *attr,
		   struct fid_wait **waitset)

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_fabric), .domain = way##shmcma_domain_open,                  \
		.passive_ep = way##no_passive_ep, .eq_open = way##shmcma_eq_open,                         \
		.wait_open = way##shmcma_wait_open, .trywait = way##fabric_trywait,                       \
		.domain2 = way##fabric_domain2,                                                           \
	}
static struct fi_ops_fabric fabric_ops = OPS(), forked_ops = OPS(forked_);

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_fabric, fid)->ops = &forked_ops;
}

int shmcma_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	struct shmcma_fabric *opened;

	if (attr->name && strcasecmp(attr->name, shmcma_provider.name) &&
	    strcmp(attr->name, SHMCMA_PEER_NAME)) {
		shmcma_info(FI_LOG_FABRIC, "fabric %s: there is only %s\n", attr->name,
			    shmcma_provider.name);
		return -FI_ENODATA;
	}
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -FI_ENOMEM;
	opened->fid.fid = (struct fid){ .fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid_ops };
	opened->fid.ops = &fabric_ops;
	opened->fid.api_version = attr->api_version;
	/* under the name of shm an application has that name, too: there the first domain tells (domain.c) */
	opened->is_peer = !shmcma_module.is_shm && attr->name && !strcmp(attr->name, SHMCMA_PEER_NAME);
	shmcma_object_add(&opened->object, &opened->fid.fid, NULL, forked);
	*fabric = &opened->fid;
	return 0;
}
