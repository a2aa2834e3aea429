/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * provider.h: the provider as libfabric sees it: name, limits, log, error codes (provider.c).
 *
 * The same code makes two modules of libfabric: libshmcma-fi.so is the provider shmcma, and libshm-fi.so takes the place
 * of libfabric's shm, under its name. Each module has one file of its own (shmcma.c, shm.c), with shmcma_provider,
 * shmcma_module and shmcma_module_init().
 */
#ifndef SHMCMA_PROVIDER_H
#define SHMCMA_PROVIDER_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <shmcma/core.h>

#define SHMCMA_IOV_LIMIT 8
#define SHMCMA_RMA_IOV_LIMIT SC_REMOTE_MAX
#define SHMCMA_INJECT_SIZE SC_INJECT_MAX
#define SHMCMA_DEFAULT_SIZE 1024 /* tx and rx size without hints */
#define SHMCMA_MAX_SIZE 65536
#define SHMCMA_CQ_DATA_SIZE 8
#define SHMCMA_CONTEXTS 256 /* contexts of each kind in a scalable endpoint */
/* The registration modes that the provider uses if the application is ready for them. */
#define SHMCMA_MR_MODES (FI_MR_VIRT_ADDR | FI_MR_PROV_KEY)
/* Order of RMA and atomics, among themselves and against each other. */
#define SHMCMA_MEMORY_ORDER (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)
#define SHMCMA_MULTI_MIN 64 /* the default of FI_OPT_MIN_MULTI_RECV */

/* The object whose member this is. Headers of libfabric 1.17 have it, later ones do not. */
#ifndef container_of
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#endif

/* libfabric keeps its own state in `context`, and init.c puts in the calls. The name is also that of fabric and domain. */
extern struct fi_provider shmcma_provider;

#define SHMCMA_TEXT_MAX 256

/* A module differs from the other one in these answers, too. */
struct shmcma_module {
	/* A user that names the provider asks for FI_REMOTE_COMM by that. */
	bool name_is_remote;
	/* Any text is the name of an endpoint, and need not have the form of an address: see shmcma_address_of(). */
	bool names_are_free;
	/* Other providers take it for libfabric's shm: see hmem_of() in attr.c, is_for_peer() in info.c. */
	bool is_shm;
	size_t text_size; /* the most bytes of an address from the application, with its NUL; up to SHMCMA_TEXT_MAX */
	enum fi_progress control_progress; /* without hints */
	int mr_modes; /* of SHMCMA_MR_MODES those that it uses if the application is ready for them */
};
extern const struct shmcma_module shmcma_module;

struct shmcma_env;
/* Puts what the module sets by itself into the provider and into the parameters, which have their defaults. Called once. */
void shmcma_module_init(struct shmcma_env *env);

#define shmcma_warn(subsys, ...) FI_WARN(&shmcma_provider, subsys, __VA_ARGS__)
#define shmcma_info(subsys, ...) FI_INFO(&shmcma_provider, subsys, __VA_ARGS__)

/* Tells whether a list such as "a;b" or "a,b" names this provider. */
bool shmcma_is_listed(const char *list);

/*
 * Returns libfabric's code for an error of the core, both negative. The core uses errno; libfabric lacks some of its
 * values.
 */
static inline int shmcma_error(int error)
{
	switch (error) {
	case -EUSERS:
		return -FI_EBUSY; /* all slots of the peer are taken; libfabric has no EUSERS */
	case -EPROTO:
		return -FI_ECONNABORTED; /* the peer breaks the protocol, or is of another version */
	case -SC_EFAULT_RECEIVER:
		return -FI_EFAULT;
	case -SC_EIO_INITIATOR:
		return -FI_EIO;
	case -ENOKEY:
		return -FI_ENOKEY; /* another number than errno's */
	default:
		return error;
	}
}

#endif
