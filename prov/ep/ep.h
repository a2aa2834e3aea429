/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context.h: the interfaces between ep.c, sep.c and shared.c: scalable endpoints, shared contexts, and the endpoints
 * that have to do with them. All under all locks of the domain unless it says otherwise.
 */
#ifndef SHMCMA_CONTEXT_H
#define SHMCMA_CONTEXT_H

#include "wait/state.h"

/* ---- ep.c ------------------------------------------------------------------------------------ */

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

/* Its operations are what it can do and its state has. */
void shmcma_ep_set_tables(struct shmcma_ep *ep);

/* Its receives are reported when FI_COMPLETION is among their flags. */
void shmcma_ep_set_selective(struct shmcma_ep *ep);

/* Attributes as the application asks for them to what holds. */
size_t shmcma_size_or_default(size_t size);

static inline size_t shmcma_ep_class(const struct shmcma_ep *ep)
{
	return ep->fids->fid.fid.fclass;
}

/* ---- sep.c ----------------------------------------------------------------------------------- */

/* fi_enable() of the scalable endpoint itself. */
int shmcma_sep_enable_locked(struct shmcma_ep *ep);
bool shmcma_sep_is_enabled(const struct shmcma_ep *ep);

/* Of a context: the name that it is to have with the others, and the service it is found under, or NULL. */
const struct sc_ep_name *shmcma_sep_name(const struct shmcma_ep *context);
const char *shmcma_sep_service(const struct shmcma_ep *context);

/* A context is enabled: it takes what is bound to all of them. -FI_EINVAL... */
struct shmcma_av *shmcma_sep_av(const struct shmcma_ep *context);
void shmcma_sep_enabled_locked(struct shmcma_ep *context);

/* The context whose address is that of them all; NULL: it is not enabled. */
struct shmcma_ep *shmcma_sep_first(const struct shmcma_ep *ep);
struct shmcma_ep *shmcma_sep_ep(const struct shmcma_ep *context);

/* It closes: a context, or the scalable endpoint, which has none any more. */
void shmcma_sep_leave_locked(struct shmcma_ep *context);
void shmcma_sep_free(struct shmcma_ep *ep);

/* ---- shared.c -------------------------------------------------------------------------------- */

int shmcma_stx_bind_locked(struct shmcma_ep *ep, struct fid *stx, uint64_t flags);
int shmcma_srx_bind_locked(struct shmcma_ep *ep, struct fid *srx, uint64_t flags);

/* Has it what it is to share, and does that go with its address vector? -FI_EINVAL: no. */
int shmcma_shared_check_locked(const struct shmcma_ep *ep);

/* It has been enabled; it closes. Of that which shares nothing nothing is done. */
void shmcma_shared_enabled_locked(struct shmcma_ep *ep);
void shmcma_shared_leave_locked(struct shmcma_ep *ep);

/* The free part of the transmit size that they share. */
size_t shmcma_stx_room_locked(const struct shmcma_stx *stx);

/* The shared receive context itself closes. */
void shmcma_srx_free(struct shmcma_ep *srx);

/* ---- option.c; and what a domain opens --------------------------------------------------------- */

int shmcma_ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen);
int shmcma_ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen);
int shmcma_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int shmcma_sep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep, void *context);
int shmcma_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
		    void *context);
int shmcma_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **srx,
		    void *context);

#endif
