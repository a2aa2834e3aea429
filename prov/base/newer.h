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

/* An operation of 1.17, under its name. */
#define OP(table, name) __typeof__(((struct table *)NULL)->name) name

union shmcma_ops_av {
	struct {
		size_t size;
		OP(fi_ops_av, insert);
		OP(fi_ops_av, insertsvc);
		OP(fi_ops_av, insertsym);
		OP(fi_ops_av, remove);
		OP(fi_ops_av, lookup);
		OP(fi_ops_av, straddr);
		OP(fi_ops_av, av_set);
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
		OP(fi_ops_cq, read);
		OP(fi_ops_cq, readfrom);
		OP(fi_ops_cq, readerr);
		OP(fi_ops_cq, sread);
		OP(fi_ops_cq, sreadfrom);
		OP(fi_ops_cq, signal);
		OP(fi_ops_cq, strerror);
		shmcma_export_xpu *export_xpu;
	};
	struct fi_ops_cq ops;
};

union shmcma_ops_cntr {
	struct {
		size_t size;
		OP(fi_ops_cntr, read);
		OP(fi_ops_cntr, readerr);
		OP(fi_ops_cntr, add);
		OP(fi_ops_cntr, set);
		OP(fi_ops_cntr, wait);
		OP(fi_ops_cntr, adderr);
		OP(fi_ops_cntr, seterr);
		shmcma_export_xpu *export_xpu;
	};
	struct fi_ops_cntr ops;
};

union shmcma_ops_ep {
	struct {
		size_t size;
		OP(fi_ops_ep, cancel);
		OP(fi_ops_ep, getopt);
		OP(fi_ops_ep, setopt);
		OP(fi_ops_ep, tx_ctx);
		OP(fi_ops_ep, rx_ctx);
		OP(fi_ops_ep, rx_size_left);
		OP(fi_ops_ep, tx_size_left);
		shmcma_export_xpu *export_xpu;
	};
	struct fi_ops_ep ops;
};

union shmcma_ops_domain {
	struct {
		size_t size;
		OP(fi_ops_domain, av_open);
		OP(fi_ops_domain, cq_open);
		OP(fi_ops_domain, endpoint);
		OP(fi_ops_domain, scalable_ep);
		OP(fi_ops_domain, cntr_open);
		OP(fi_ops_domain, poll_open);
		OP(fi_ops_domain, stx_ctx);
		OP(fi_ops_domain, srx_ctx);
		OP(fi_ops_domain, query_atomic);
		OP(fi_ops_domain, query_collective);
		OP(fi_ops_domain, endpoint2);
		int (*xpu_ctx)(struct fid_domain *domain, void *attr, void **xpu, void *context); /* 2.6 */
	};
	struct fi_ops_domain ops;
};

/* `last`: the last operation of 1.17. Headers of a version whose tables are longer: the new calls must be added here. */
#define CHECK(table, last, newest)                                                                        \
	_Static_assert(offsetof(struct fi_##table, last) == offsetof(union shmcma_##table, last),         \
		       #table);                                                                           \
	_Static_assert(sizeof(struct fi_##table) <=                                                       \
			       offsetof(union shmcma_##table, newest) + sizeof(void *),                   \
		       #table)
CHECK(ops_av, av_set, lookup2);
CHECK(ops_cq, strerror, export_xpu);
CHECK(ops_cntr, seterr, export_xpu);
CHECK(ops_ep, tx_size_left, export_xpu);
CHECK(ops_domain, endpoint2, xpu_ctx);
#undef CHECK
#undef OP

#endif
