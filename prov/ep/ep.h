/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ep.h: endpoints, scalable endpoints and shared contexts: the calls between the files of this room, and what a domain
 * opens. All under all locks of the domain unless it says otherwise.
 */
#ifndef SHMCMA_EP_H
#define SHMCMA_EP_H

#include "obj/avtable.h"

/* The part that the contexts of a scalable endpoint have in common (sep.c). */
struct shmcma_sep {
	struct shmcma_ep *ep;
	struct fi_info *info;
	struct sc_ep_name name;
	bool enabled;
	size_t rx_count, tx_count;
	uint16_t tx_opened;	 /* transmit contexts so far */
	struct shmcma_ep *first; /* that has number 0, while it is enabled */
	struct shmcma_ep **tx, **rx; /* NULL: not open */
};

/* A shared transmit context (shared.c). */
struct shmcma_stx {
	struct fid_stx fid;
	struct shmcma_domain *domain;
	struct shmcma_locked locked;
	shmcma_refs refs; /* endpoints bound to it */
	uint64_t caps;
	uint64_t order, comp_order; /* of messages, of completions */
	size_t size;
	struct shmcma_ep *users; /* that are enabled, by stx_next */
	struct shmcma_object object;
};

/* ---- endpoint.c ------------------------------------------------------------------------------ */

/* May an endpoint of this info be opened? -FI_EINVAL: no, with the reason logged. Without the lock. */
int shmcma_ep_check_info(const struct shmcma_domain *domain, const struct fi_info *info);

/*
 * A new one of that class, of a checked info: disabled, known to nobody. Then shmcma_ep_show(), which does not
 * fail, or shmcma_ep_discard(). Without the lock.
 */
int shmcma_ep_create(struct shmcma_domain *domain, const struct fi_info *info, size_t fclass,
		     void *context, struct shmcma_ep **ep);
void shmcma_ep_show(struct shmcma_ep *ep, struct fid_ep **out);
void shmcma_ep_discard(struct shmcma_ep *ep);

/* Attributes as the application asks for them to what holds. */
size_t shmcma_size_or_default(size_t size);

static inline size_t shmcma_ep_class(const struct shmcma_ep *ep)
{
	return ep->fids->fid.fid.fclass;
}

/* ---- tables.c -------------------------------------------------------------------------------- */

/* Its operations are what it can do and its state has. */
void shmcma_ep_set_tables(struct shmcma_ep *ep);
/* In a child of fork(2): it has none. */
void shmcma_ep_set_forked_tables(struct fid_ep *ep);

/* Can it send, or receive, messages of that kind, FI_MSG or FI_TAGGED? */
bool shmcma_ep_sends(const struct shmcma_ep *ep, uint64_t kind);
bool shmcma_ep_receives(const struct shmcma_ep *ep, uint64_t kind);

/* ---- option.c -------------------------------------------------------------------------------- */

int shmcma_ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen);
int shmcma_ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen);

/* The flags of its fids, ready-made for the data calls. */
void shmcma_ep_set_flags(struct shmcma_ep *ep);
/* Its receives are reported when FI_COMPLETION is among their flags. */
void shmcma_ep_set_selective(struct shmcma_ep *ep);
/* One direction's op flags; `flags` names it by FI_TRANSMIT or FI_RECV. The first call makes nothing ready. */
int shmcma_ep_put_op_flags(struct shmcma_ep_fid *fid, uint64_t flags);
int shmcma_ep_set_op_flags(struct shmcma_ep_fid *fid, const uint64_t *flags);
int shmcma_ep_get_op_flags(const struct shmcma_ep_fid *fid, uint64_t *flags);

/* ---- bind.c ---------------------------------------------------------------------------------- */

int shmcma_ep_bind_locked(struct shmcma_ep *ep, struct fid *object, uint64_t flags);
void shmcma_ep_join_av(struct shmcma_ep *ep, struct shmcma_av *av);
/* Reads of the objects that it is bound to poll it. -FI_ENOMEM: of some perhaps. */
int shmcma_ep_polled_by_all(struct shmcma_ep *ep);
void shmcma_ep_polled_by_none(struct shmcma_ep *ep);
/* Has it what it is to share, and does that go with its address vector? -FI_EINVAL: no. */
int shmcma_ep_check_shared_locked(const struct shmcma_ep *ep);
/* It has been enabled. */
void shmcma_ep_join_shared_locked(struct shmcma_ep *ep);
/* It closes, before its core does. Its event queue stays. */
void shmcma_ep_unbind_locked(struct shmcma_ep *ep);

/* ---- what a domain opens: endpoint.c, sep.c, shared.c ----------------------------------------- */

int shmcma_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int shmcma_sep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep, void *context);
int shmcma_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx, void *context);
int shmcma_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **srx, void *context);

#endif
