/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm.c: fi_cm(3): the names of an endpoint. An endpoint of type RDM has no connections. A call takes all locks
 * of the domain.
 */
#include "ep/endpoint.h"

#include <stdlib.h>
#include <string.h>
#include "base/node.h"
#include "base/provider.h"
#include "coll/coll.h"
#include "wait/lock.h"

static struct shmcma_ep *ep_of(struct fid *fid)
{
	return container_of(fid, struct shmcma_ep_fid, fid.fid)->ep;
}

/*
 * Returns the address of the endpoint, "" before it has one. Contexts of a scalable endpoint have the address of the
 * scalable endpoint: that of the context with number 0, which is known before that context is enabled.
 */
static const char *address_of(const struct shmcma_ep *ep)
{
	const struct shmcma_ep *first = ep->sep ? ep->sep->first : ep;

	if (first && first->core)
		return sc_ep_address(first->core);
	return ep->sep ? ep->sep->address : "";
}

/* Tells whether the application may name it. */
static bool has_name(const struct shmcma_ep *ep)
{
	return shmcma_ep_class(ep) == FI_CLASS_EP || shmcma_ep_class(ep) == FI_CLASS_SEP;
}

int shmcma_ep_keep_name(struct shmcma_ep *ep, const char *text, size_t len)
{
	char *copy = NULL;

	if (shmcma_module.is_shm && ep->name[0]) {
		copy = strndup(text, len);
		if (!copy)
			return -FI_ENOMEM;
	}
	free(ep->given);
	ep->given = copy;
	return 0;
}

/* The application may choose a service until the endpoint is enabled, but never the endpoint's own address. */
SHMCMA_CALL(int, ep_setname, fid_t fid, void *addr, size_t addrlen)
{
	struct shmcma_ep *ep = ep_of(fid);
	enum sc_addr_kind kind;
	char copy[SC_ADDR_SIZE];
	int ret;

	if (!addr || !addrlen)
		return -FI_EINVAL;
	ret = shmcma_address_copy(addr, addrlen, copy, &kind);
	if (ret)
		return ret;
	if (kind == SC_ADDR_ENDPOINT)
		return -FI_EADDRNOTAVAIL;
	if (!has_name(ep))
		return -FI_EOPNOTSUPP;
	shmcma_lock(ep->domain);
	if (*address_of(ep))
		ret = -FI_EOPBADSTATE;
	else if (kind == SC_ADDR_SERVICE)
		strcpy(ep->name, copy + strlen(SC_ADDR_PREFIX));
	else
		ep->name[0] = '\0'; /* any name: fi_enable chooses it */
	if (!ret)
		ret = shmcma_ep_keep_name(ep, addr, addrlen);
	shmcma_unlock(ep->domain);
	return ret;
}

static int copy_name(const char *name, size_t size, void *addr, size_t *addrlen)
{
	size_t room = *addrlen;

	*addrlen = size;
	if (!name[0])
		return -FI_EOPBADSTATE;
	if (room && !addr)
		return -FI_EINVAL;
	if (room)
		memcpy(addr, name, room < size ? room : size);
	return room < size ? -FI_ETOOSMALL : 0;
}

/* All addresses have one length, so that an application can pack them at a constant stride; but not names of shm. */
SHMCMA_CALL(int, ep_getname, fid_t fid, void *addr, size_t *addrlen)
{
	struct shmcma_ep *ep = ep_of(fid);
	const struct shmcma_ep *chosen = ep->sep ? ep->sep->ep : ep;
	char address[SC_ADDR_SIZE] = "";
	int ret;

	if (!addrlen)
		return -FI_EINVAL;
	shmcma_lock(ep->domain);
	strcpy(address, address_of(ep));
	if (!address[0] && chosen->name[0])
		sc_addr_service(chosen->name, address);
	ret = ep->given ? copy_name(ep->given, strlen(ep->given) + 1, addr, addrlen)
			: copy_name(address, sizeof(address), addr, addrlen);
	shmcma_unlock(ep->domain);
	return ret;
}

/* An endpoint of type RDM has no connections; as elsewhere in libfabric, -FI_ENOSYS. */
SHMCMA_UNABLE(cm_getpeer, -FI_ENOSYS, struct fid_ep *ep, void *addr, size_t *addrlen)
SHMCMA_UNABLE(cm_connect, -FI_ENOSYS, struct fid_ep *ep, const void *addr, const void *param,
	      size_t paramlen)
SHMCMA_UNABLE(cm_listen, -FI_ENOSYS, struct fid_pep *pep)
SHMCMA_UNABLE(cm_accept, -FI_ENOSYS, struct fid_ep *ep, const void *param, size_t paramlen)
SHMCMA_UNABLE(cm_reject, -FI_ENOSYS, struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen)
SHMCMA_UNABLE(cm_shutdown, -FI_ENOSYS, struct fid_ep *ep, uint64_t flags)

SHMCMA_FORKED_CALL(int, shmcma_join, struct fid_ep *ep, const void *addr, uint64_t flags,
		   struct fid_mc **mc, void *context)

#define CM_OPS(way)                                                                                       \
	{                                                                                                 \
		.size = sizeof(struct fi_ops_cm), .setname = way##ep_setname, .getname = way##ep_getname, \
		.getpeer = way##cm_getpeer, .connect = way##cm_connect, .listen = way##cm_listen,         \
		.accept = way##cm_accept, .reject = way##cm_reject, .shutdown = way##cm_shutdown,         \
		.join = way##shmcma_join,                                                                 \
	}
struct fi_ops_cm shmcma_cm_ops = CM_OPS(), shmcma_forked_cm_ops = CM_OPS(forked_);
