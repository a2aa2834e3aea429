/* SPDX-License-Identifier: BSD-2-Clause */
/* attr.h: what the provider offers, and what it grants (attr.c). */
#ifndef SHMCMA_ATTR_H
#define SHMCMA_ATTR_H

#include "base/provider.h"

#define SHMCMA_MEMORY_KINDS (FI_RMA | FI_ATOMIC)
#define SHMCMA_COMM_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define SHMCMA_DOMAIN_CAPS (SHMCMA_COMM_CAPS | FI_SHARED_AV)
#define SHMCMA_PROTOCOL (FI_PROV_SPECIFIC | 0x5343)
#define SHMCMA_PROTOCOL_VERSION 1
#define SHMCMA_ENDPOINTS 65536
#define SHMCMA_MR_KEY_SIZE 8
#define SHMCMA_COUNTERS 65536
#define SHMCMA_MR_COUNT 131072

/* The flags that op_flags of an endpoint may hold. */
#define SHMCMA_TX_OP_FLAGS                                                                                \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |   \
	 FI_MATCH_COMPLETE | FI_TRIGGER)
#define SHMCMA_RX_OP_FLAGS (FI_COMPLETION | FI_MULTI_RECV | FI_TRIGGER)
#define SHMCMA_OFFERS 2
extern const uint64_t shmcma_offers[SHMCMA_OFFERS];

/*
 * Returns the capabilities of an offer that an application gets for its hints, or for the info that it opens an object
 * with: those that it asks for, the modifiers that they imply, and those that it gets unasked.
 */
uint64_t shmcma_granted_caps(const struct fi_info *hints, uint64_t offer);
enum fi_progress shmcma_granted_progress(const struct fi_domain_attr *hint, uint64_t granted);
int shmcma_granted_mr_mode(const struct fi_info *hints, uint32_t version, uint64_t granted);
/* Bytes for which the order of reads and writes is that of their data, too; bytes of data that an error has. */
uint64_t shmcma_ordered_size(uint64_t granted);
size_t shmcma_error_data_size(uint64_t granted);

/* -FI_ENODATA, with the reason logged. */
int shmcma_refuse(const char *what, const char *asked, const char *offered);

/* Do the hints, or the info that an object is opened with, fit the offer; do they fit any? 0, -FI_ENODATA. */
int shmcma_check_offer(uint32_t version, const struct fi_info *hints, uint64_t offer);
int shmcma_check_hints(uint32_t version, const struct fi_info *hints);

/*
 * Fill in the attributes of one direction that an application gets. `hint` has those that it asks for, or is NULL;
 * `attr` and `hint` may be the same structure.
 */
void shmcma_tx_attr_fill(struct fi_tx_attr *attr, const struct fi_tx_attr *hint, uint64_t granted);
void shmcma_rx_attr_fill(struct fi_rx_attr *attr, const struct fi_rx_attr *hint, uint64_t granted);

/*
 * Attributes of a context of an endpoint with these capabilities: as asked for in *attr, completed there.
 * -FI_EINVAL: not supported, with the reason logged.
 */
int shmcma_tx_attr_complete(struct fi_tx_attr *attr, uint64_t caps);
int shmcma_rx_attr_complete(struct fi_rx_attr *attr, uint64_t caps);

#endif
