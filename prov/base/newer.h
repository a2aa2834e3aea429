/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * newer.h: what later versions of libfabric have added to the headers of 1.17, under names of its own, each with the version
 * that it comes from. The provider is built with the headers of any version from 1.17 on, and one module runs with all.
 *
 * A bit or field has its new meaning for an application that asks for an API version as new as that (the argument of
 * fi_getinfo(3), fid_fabric.api_version): some bits meant something else before, and older structures end before the
 * field. A structure that libfabric has allocated is as long as those of its own version, fi_version(3).
 */
#ifndef SHMCMA_NEWER_H
#define SHMCMA_NEWER_H

#include <stddef.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

/* ---- capabilities, since 2.0 ------------------------------------------------------------------ */

#define SHMCMA_TAGGED_DIRECTED_RECV (1ULL << 45) /* in 1.17 a flag of registrations */
#define SHMCMA_TAGGED_MULTI_RECV (1ULL << 46)	 /* the same */
#define SHMCMA_EXACT_DIRECTED_RECV (1ULL << 48)	 /* in 1.17 FI_VARIABLE_MSG */
#define SHMCMA_CAPS_2_0                                                                                   \
	(SHMCMA_TAGGED_DIRECTED_RECV | SHMCMA_TAGGED_MULTI_RECV | SHMCMA_EXACT_DIRECTED_RECV)

/* ---- tag formats, since 2.0: small numbers instead of a mask ---------------------------------- */

#define SHMCMA_TAG_CCL 2		   /* the highest known; 1 is FI_TAG_MPI */
#define SHMCMA_TAG_MAX_FORMAT (1ULL << 16) /* from here on a mask */

/* ---- progress, since 1.18: calls that drive data also drive control operations ------------------ */

#define SHMCMA_PROGRESS_CONTROL_UNIFIED 3

/* ---- options of endpoints, behind FI_OPT_XPU_TRIGGER, 9 --------------------------------------- */

enum {
	SHMCMA_OPT_CUDA_API_PERMITTED = 10, /* bool; 1.18 */
	SHMCMA_OPT_SHARED_MEMORY_PERMITTED, /* bool; 1.21 */
	SHMCMA_OPT_MAX_MSG_SIZE,	    /* size_t, like those that follow; 1.22 */
	SHMCMA_OPT_MAX_TAGGED_SIZE,
	SHMCMA_OPT_MAX_RMA_SIZE,
	SHMCMA_OPT_MAX_ATOMIC_SIZE,
	SHMCMA_OPT_INJECT_MSG_SIZE,
	SHMCMA_OPT_INJECT_TAGGED_SIZE,
	SHMCMA_OPT_INJECT_RMA_SIZE,
	SHMCMA_OPT_INJECT_ATOMIC_SIZE,
	SHMCMA_OPT_SIZES =
		SHMCMA_OPT_INJECT_ATOMIC_SIZE - SHMCMA_OPT_MAX_MSG_SIZE + 1, /* how many these are */
};
_Static_assert(FI_OPT_XPU_TRIGGER == 9, "options of 1.17");

/* ---- structures: what follows those of 1.17 --------------------------------------------------- */

/* struct fi_domain_attr */
struct shmcma_domain_attr {
	unsigned char before[192];
	size_t max_ep_auth_key;	     /* 1.20 */
	uint32_t max_group_id;	     /* 2.0 */
	uint64_t max_cntr_value;     /* 2.5 */
	uint64_t max_err_cntr_value; /* 2.5 */
};
_Static_assert(offsetof(struct fi_domain_attr, tclass) == 184, "fi_domain_attr of 1.17");
_Static_assert(offsetof(struct shmcma_domain_attr, max_group_id) == 200, "max_group_id");
_Static_assert(offsetof(struct shmcma_domain_attr, max_err_cntr_value) == 216, "max_err_cntr_value");

/* struct fi_cq_err_entry */
struct shmcma_cq_err_entry {
	unsigned char before[80];
	fi_addr_t src_addr; /* 1.20 */
};
_Static_assert(offsetof(struct fi_cq_err_entry, err_data_size) == 72, "fi_cq_err_entry of 1.17");

/* An entry of this provider's own: it has all fields, whatever headers it is compiled with. */
union shmcma_any_err_entry {
	struct fi_cq_err_entry entry;
	struct shmcma_cq_err_entry newer;
};

/* ---- operation tables -------------------------------------------------------------------------- */

/*
 * Some calls of newer headers do not look at the size of a table before they call what they expect behind its end. So
 * the tables are as long as those of the newest version known here, whichever headers this is built with. `ops` is the
 * table as those headers know it.
 */

union shmcma_ops_av {
	struct {
		size_t size;
		int (*insert)(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr,
			      uint64_t flags, void *context);
		int (*insertsvc)(struct fid_av *av, const char *node, const char *service,
				 fi_addr_t *fi_addr, uint64_t flags, void *context);
		int (*insertsym)(struct fid_av *av, const char *node, size_t nodecnt, const char *service,
				 size_t svccnt, fi_addr_t *fi_addr, uint64_t flags, void *context);
		int (*remove)(struct fid_av *av, fi_addr_t *fi_addr, size_t count, uint64_t flags);
		int (*lookup)(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen);
		const char *(*straddr)(struct fid_av *av, const void *addr, char *buf, size_t *len);
		int (*av_set)(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **av_set,
			      void *context);
		/* 1.20; the calls look whether there is a function */
		int (*insert_auth_key)(struct fid_av *av, const void *key, size_t size, fi_addr_t *fi_addr,
				       uint64_t flags);
		int (*lookup_auth_key)(struct fid_av *av, fi_addr_t fi_addr, void *key, size_t *size);
		int (*set_user_id)(struct fid_av *av, fi_addr_t fi_addr, fi_addr_t user_id,
				   uint64_t flags);
		/* 2.6; the call looks whether there is a function */
		int (*lookup2)(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *len,
			       uint64_t flags, void *xpu);
	};
	struct fi_ops_av ops;
};

/* 2.6. The fid is the first member of the object, and the last argument points to a structure of the object's kind. */
typedef int shmcma_export_xpu(struct fid *fid, uint64_t flags, void *xpu);

union shmcma_ops_cq {
	struct {
		size_t size;
		ssize_t (*read)(struct fid_cq *cq, void *buf, size_t count);
		ssize_t (*readfrom)(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr);
		ssize_t (*readerr)(struct fid_cq *cq, struct fi_cq_err_entry *buf, uint64_t flags);
		ssize_t (*sread)(struct fid_cq *cq, void *buf, size_t count, const void *cond,
				 int timeout);
		ssize_t (*sreadfrom)(struct fid_cq *cq, void *buf, size_t count, fi_addr_t *src_addr,
				     const void *cond, int timeout);
		int (*signal)(struct fid_cq *cq);
		const char *(*strerror)(struct fid_cq *cq, int prov_errno, const void *err_data, char *buf,
					size_t len);
		shmcma_export_xpu *export_xpu;
	};
	struct fi_ops_cq ops;
};

union shmcma_ops_cntr {
	struct {
		size_t size;
		uint64_t (*read)(struct fid_cntr *cntr);
		uint64_t (*readerr)(struct fid_cntr *cntr);
		int (*add)(struct fid_cntr *cntr, uint64_t value);
		int (*set)(struct fid_cntr *cntr, uint64_t value);
		int (*wait)(struct fid_cntr *cntr, uint64_t threshold, int timeout);
		int (*adderr)(struct fid_cntr *cntr, uint64_t value);
		int (*seterr)(struct fid_cntr *cntr, uint64_t value);
		shmcma_export_xpu *export_xpu;
	};
	struct fi_ops_cntr ops;
};

union shmcma_ops_ep {
	struct {
		size_t size;
		ssize_t (*cancel)(struct fid *fid, void *context);
		int (*getopt)(struct fid *fid, int level, int optname, void *optval, size_t *optlen);
		int (*setopt)(struct fid *fid, int level, int optname, const void *optval, size_t optlen);
		int (*tx_ctx)(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
			      struct fid_ep **tx_ep, void *context);
		int (*rx_ctx)(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
			      struct fid_ep **rx_ep, void *context);
		ssize_t (*rx_size_left)(struct fid_ep *ep);
		ssize_t (*tx_size_left)(struct fid_ep *ep);
		shmcma_export_xpu *export_xpu;
	};
	struct fi_ops_ep ops;
};

union shmcma_ops_domain {
	struct {
		size_t size;
		int (*av_open)(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
			       void *context);
		int (*cq_open)(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
			       void *context);
		int (*endpoint)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
				void *context);
		int (*scalable_ep)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep,
				   void *context);
		int (*cntr_open)(struct fid_domain *domain, struct fi_cntr_attr *attr,
				 struct fid_cntr **cntr, void *context);
		int (*poll_open)(struct fid_domain *domain, struct fi_poll_attr *attr,
				 struct fid_poll **pollset);
		int (*stx_ctx)(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
			       void *context);
		int (*srx_ctx)(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
			       void *context);
		int (*query_atomic)(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
				    struct fi_atomic_attr *attr, uint64_t flags);
		int (*query_collective)(struct fid_domain *domain, enum fi_collective_op coll,
					struct fi_collective_attr *attr, uint64_t flags);
		int (*endpoint2)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
				 uint64_t flags, void *context);
		int (*xpu_ctx)(struct fid_domain *domain, void *attr, void **xpu, void *context); /* 2.6 */
	};
	struct fi_ops_domain ops;
};

/* Headers of a version whose tables are longer: the new calls must be added here. */
_Static_assert(sizeof(struct fi_ops_av) <= offsetof(union shmcma_ops_av, lookup2) + sizeof(void *),
	       "fi_ops_av");
_Static_assert(sizeof(struct fi_ops_cq) <= offsetof(union shmcma_ops_cq, export_xpu) + sizeof(void *),
	       "fi_ops_cq");
_Static_assert(sizeof(struct fi_ops_cntr) <= offsetof(union shmcma_ops_cntr, export_xpu) + sizeof(void *),
	       "fi_ops_cntr");
_Static_assert(sizeof(struct fi_ops_ep) <= offsetof(union shmcma_ops_ep, export_xpu) + sizeof(void *),
	       "fi_ops_ep");
_Static_assert(sizeof(struct fi_ops_domain) <= offsetof(union shmcma_ops_domain, xpu_ctx) + sizeof(void *),
	       "fi_ops_domain");
_Static_assert(offsetof(struct fi_ops_av, av_set) == offsetof(union shmcma_ops_av, av_set), "fi_ops_av");
_Static_assert(offsetof(struct fi_ops_cq, strerror) == offsetof(union shmcma_ops_cq, strerror),
	       "fi_ops_cq");
_Static_assert(offsetof(struct fi_ops_cntr, seterr) == offsetof(union shmcma_ops_cntr, seterr),
	       "fi_ops_cntr");
_Static_assert(offsetof(struct fi_ops_ep, tx_size_left) == offsetof(union shmcma_ops_ep, tx_size_left),
	       "fi_ops_ep");
_Static_assert(offsetof(struct fi_ops_domain, endpoint2) == offsetof(union shmcma_ops_domain, endpoint2),
	       "fi_ops_domain");

#endif
