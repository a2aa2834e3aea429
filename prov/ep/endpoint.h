/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint.h: endpoints, scalable endpoints and shared contexts: calls between the files of this directory, and calls by
 * which a domain opens these objects. With all locks of the domain, unless a comment says otherwise.
 */
#ifndef SHMCMA_ENDPOINT_H
#define SHMCMA_ENDPOINT_H

#include "obj/avtable.h"

/* The data that the contexts of a scalable endpoint share (sep.c). */
struct shmcma_sep {
	struct shmcma_ep *ep;
	struct fi_info *info;
	struct sc_ep_name name;
	char address[SC_ADDR_SIZE]; /* since it is enabled; else "" */
	struct sc_service *announced; /* that address, until the context with number 0 closes */
	bool enabled;
	size_t rx_count, tx_count;
	uint16_t tx_opened;	     /* transmit contexts opened so far */
	struct shmcma_ep *first;     /* the context with number 0, while it is enabled */
	struct shmcma_ep **tx, **rx; /* NULL: not open */
};

/* A shared transmit context (shared.c). */
struct shmcma_stx {
	struct fid_stx fid;
	struct shmcma_domain *domain;
	struct shmcma_locked locked;
	shmcma_refs refs; /* endpoints that are bound to it */
	uint64_t caps;
	uint64_t order, comp_order; /* of messages, of completions */
	size_t size;
	struct shmcma_ep *users; /* enabled endpoints, by stx_next */
	struct shmcma_object object;
};

/* ---- endpoint.c ------------------------------------------------------------------------------ */

/* -FI_EINVAL: no endpoint of this info may be opened; the reason is logged. Without the lock. */
int shmcma_ep_check_info(const struct shmcma_domain *domain, const struct fi_info *info);

/*
 * Creates an endpoint of that class from a checked info: disabled, unknown to other threads. Then follows
 * shmcma_ep_show(), which does not fail, or shmcma_ep_discard(). Without the lock.
 */
int shmcma_ep_create(struct shmcma_domain *domain, const struct fi_info *info, size_t fclass,
		     void *context, struct shmcma_ep **ep);
void shmcma_ep_show(struct shmcma_ep *ep, struct fid_ep **out);
void shmcma_ep_discard(struct shmcma_ep *ep);

/* The size that holds if the application asks for this one. */
size_t shmcma_size_or_default(size_t size, size_t usual);

static inline size_t shmcma_ep_class(const struct shmcma_ep *ep)
{
	return ep->fids->fid.fid.fclass;
}

/* ---- cm.c ------------------------------------------------------------------------------------ */

extern struct fi_ops_cm shmcma_cm_ops, shmcma_forked_cm_ops;

/*
 * Keeps the text that has named the endpoint, in the place of shm, whose fi_getname() returns it. `text` has `len`
 * bytes, perhaps without a NUL. -FI_ENOMEM.
 */
int shmcma_ep_keep_name(struct shmcma_ep *ep, const char *text, size_t len);

/* ---- tables.c -------------------------------------------------------------------------------- */

/* Sets the operation tables by capabilities and state. */
void shmcma_ep_set_tables(struct shmcma_ep *ep);
/* The same in a child of fork(2): every call is refused. */
void shmcma_ep_set_forked_tables(struct fid_ep *ep);

/* Tell whether it can send, or receive, messages of that kind: FI_MSG or FI_TAGGED. */
bool shmcma_ep_sends(const struct shmcma_ep *ep, uint64_t kind);
bool shmcma_ep_receives(const struct shmcma_ep *ep, uint64_t kind);

/* ---- option.c -------------------------------------------------------------------------------- */

int shmcma_ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen);
int shmcma_ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen);

/* Computes the flags of its fids for the data calls. */
void shmcma_ep_set_flags(struct shmcma_ep *ep);
/*
 * Operation flags of one direction, FI_TRANSMIT or FI_RECV in `flags`. The first call does not set the data calls'
 * flags.
 */
int shmcma_ep_put_op_flags(struct shmcma_ep_fid *fid, uint64_t flags);
int shmcma_ep_set_op_flags(struct shmcma_ep_fid *fid, const uint64_t *flags);
int shmcma_ep_get_op_flags(const struct shmcma_ep_fid *fid, uint64_t *flags);

/* ---- bind.c ---------------------------------------------------------------------------------- */

int shmcma_ep_bind_locked(struct shmcma_ep *ep, struct fid *object, uint64_t flags);
void shmcma_ep_join_av(struct shmcma_ep *ep, struct shmcma_av *av);
/* Makes reads of the objects that it is bound to poll it. -FI_ENOMEM: perhaps of some only. */
int shmcma_ep_polled_by_all(struct shmcma_ep *ep);
void shmcma_ep_polled_by_none(struct shmcma_ep *ep);
/* Tells whether it is bound to the contexts that it must share, with the right address vector. -FI_EINVAL: no. */
int shmcma_ep_check_shared_locked(const struct shmcma_ep *ep);
/* Called when it has been enabled. */
void shmcma_ep_join_shared_locked(struct shmcma_ep *ep);
/* Before its core is destroyed. Its event queue stays. */
void shmcma_ep_unbind_locked(struct shmcma_ep *ep);

/* ---- what a domain opens: endpoint.c, sep.c, shared.c ----------------------------------------- */

int shmcma_ep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep, void *context);
int shmcma_sep_open(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep, void *context);
int shmcma_stx_open(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
		    void *context);
/* Before the domain closes: ends the contexts of shmcma_domain.lent. Nothing uses them any more. Without the lock. */
void shmcma_ep_end_lent(struct shmcma_domain *domain);
int shmcma_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **srx,
		    void *context);

#endif
