/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peerowner.h: fi_peer(3): another provider, the owner, shares its completion queue, counter or receive context with
 * this provider (peerowner.c). These functions call the owner's. They take no lock; peersrx.c says which locks their
 * callers hold.
 */
#ifndef SHMCMA_PEEROWNER_H
#define SHMCMA_PEEROWNER_H

#include <stdbool.h>
#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include "base/newer.h"

/*
 * The name of fabric and domain where another provider uses this one. libfabric's lnx knows by the name of the fabric
 * which provider reaches the peers of its own machine.
 */
#define SHMCMA_PEER_NAME "shm"
/* The elements of a vector there: lnx has space for as many, and takes no info that offers more. */
#define SHMCMA_PEER_IOV_LIMIT 4

/*
 * The structures of fi_peer(3). They are no stable part of libfabric: a program has them from the headers that it is
 * built with, so these are copies. The entry of a receive has several layouts, see peerowner.c.
 */
struct shmcma_cq_owner {
	struct fid fid;
	const struct shmcma_cq_owner_ops *ops;
};

struct shmcma_cntr_owner {
	struct fid fid;
	const struct shmcma_cntr_owner_ops *ops;
};

struct shmcma_rx_entry; /* the owner's; struct fi_peer_rx_entry */

struct shmcma_srx_peer_ops {
	size_t size;
	int (*start_msg)(struct shmcma_rx_entry *entry);
	int (*start_tag)(struct shmcma_rx_entry *entry);
	int (*discard_msg)(struct shmcma_rx_entry *entry);
	int (*discard_tag)(struct shmcma_rx_entry *entry);
};

struct shmcma_srx_owner {
	struct fid_ep fid;
	const void *ops; /* by layout, see peerowner.c */
	struct shmcma_srx_peer_ops *peer_ops;
};

/* The context with which the owner opens one of these objects. */
struct shmcma_owner_context {
	size_t size;
	void *object;
};

/* Tells whether the layout of this libfabric's structures is known. If not, a log line says so. */
bool shmcma_owner_is_known(void);

/*
 * Returns the object of the owner in the context of an opening call. NULL: there is none, or the layout is not known; a
 * log line says so.
 */
void *shmcma_owner_object(const char *call, const struct shmcma_owner_context *context);

/*
 * Tells whether the other provider opens a receive context only to say that it will bind its own one: EFA of libfabric
 * 1.19 to 1.22, whose shm knows nothing else. It leaves the size of `context` 0.
 */
bool shmcma_owner_lends(const struct shmcma_owner_context *context);

/* Tells whether a receive context has all functions of this layout. If not, a log line says so. */
bool shmcma_owner_matches(const struct shmcma_srx_owner *owner);

/* ---- completion queue, counter ---------------------------------------------------------------- */

/* Negative: the owner does not take the completion now. */
ssize_t shmcma_owner_write(struct shmcma_cq_owner *owner, const struct fi_cq_tagged_entry *entry,
			   fi_addr_t source);
/* The owner reads as many bytes of the entry as its own version has. */
ssize_t shmcma_owner_write_error(struct shmcma_cq_owner *owner, const union shmcma_any_err_entry *error);

void shmcma_owner_count(struct shmcma_cntr_owner *owner, bool error);

/* ---- receive context -------------------------------------------------------------------------- */

/* Asks for the receive of a message. 0; -FI_ENOENT: there is none, and *entry is for shmcma_owner_queue(); others. */
int shmcma_owner_get(struct shmcma_srx_owner *owner, bool tagged, fi_addr_t source, size_t size,
		     uint64_t tag, struct shmcma_rx_entry **entry);
/* The message waits. Its entry gets a pointer that shmcma_entry_message() returns. */
int shmcma_owner_queue(struct shmcma_srx_owner *owner, bool tagged, struct shmcma_rx_entry *entry,
		       void *message);
void shmcma_owner_free(struct shmcma_srx_owner *owner, struct shmcma_rx_entry *entry);
/* Lets the owner ask `get` for the source of each entry that has none. */
void shmcma_owner_name(struct shmcma_srx_owner *owner, fi_addr_t (*get)(struct shmcma_rx_entry *entry));

void *shmcma_entry_message(const struct shmcma_rx_entry *entry);
void *shmcma_entry_context(const struct shmcma_rx_entry *entry);
uint64_t shmcma_entry_flags(const struct shmcma_rx_entry *entry);
const struct iovec *shmcma_entry_iov(const struct shmcma_rx_entry *entry, size_t *count);
/* Writes what is known of a message that waits. */
void shmcma_entry_describe(struct shmcma_rx_entry *entry, size_t size, bool has_data, uint64_t data);

#endif
