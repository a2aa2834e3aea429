/* SPDX-License-Identifier: BSD-2-Clause */
/* attr.h: what the provider offers, and what it grants (attr.c). */
#ifndef SHMCMA_ATTR_H
#define SHMCMA_ATTR_H

#include "base/provider.h"

#define SHMCMA_MEMORY_KINDS (FI_RMA | FI_ATOMIC)
#define SHMCMA_COMM_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
/* FI_PEER: lnx asks for it as a capability of the endpoint, EFA as one of the domain. */
#define SHMCMA_DOMAIN_CAPS (SHMCMA_COMM_CAPS | FI_SHARED_AV | FI_AV_USER_ID | FI_PEER)
#define SHMCMA_PROTOCOL (1U << 31 | 0x5343) /* the highest bit: of this provider alone */
#define SHMCMA_PROTOCOL_VERSION 1
#define SHMCMA_ENDPOINTS 65536
#define SHMCMA_MR_KEY_SIZE 8
#define SHMCMA_COUNTERS 65536
#define SHMCMA_MR_COUNT 131072

/* The flags that are allowed in op_flags of an endpoint. */
#define SHMCMA_TX_OP_FLAGS                                                                                \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |   \
	 FI_MATCH_COMPLETE | FI_TRIGGER)
#define SHMCMA_RX_OP_FLAGS (FI_COMPLETION | FI_MULTI_RECV | FI_TRIGGER)
#define SHMCMA_OFFERS 3
extern const uint64_t shmcma_offers[SHMCMA_OFFERS];

/*
 * Returns the capabilities of an offer that an application gets for its hints, or for the info that it opens an object
 * with: those that it asks for, the modifiers that these imply, and those that are granted unasked.
 */
uint64_t shmcma_granted_caps(uint32_t version, const struct fi_info *hints, uint64_t offer);
enum fi_progress shmcma_granted_progress(const struct fi_domain_attr *hint, uint64_t granted);
int shmcma_granted_mr_mode(const struct fi_info *hints, uint32_t version, uint64_t granted);
/*
 * Return the bytes up to which the order of reads and writes is also the order of their data; the size of error data.
 */
uint64_t shmcma_ordered_size(uint64_t granted);
size_t shmcma_error_data_size(uint64_t granted);

/* Returns the name of fabric and domain. */
const char *shmcma_name_of(uint64_t caps);

/* Logs the reason. Returns -FI_ENODATA. */
int shmcma_refuse(const char *what, const char *asked, const char *offered);

/* Check hints, or the info that an object is opened with, against one offer; against all offers. 0, -FI_ENODATA. */
int shmcma_check_offer(uint32_t version, const struct fi_info *hints, uint64_t offer);
int shmcma_check_hints(uint32_t version, const struct fi_info *hints);

/*
 * Fill in the attributes that an application gets for one direction. `hint` has the attributes that it asks for, or is
 * NULL; `attr` and `hint` may be the same structure.
 */
void shmcma_tx_attr_fill(struct fi_tx_attr *attr, const struct fi_tx_attr *hint, uint64_t granted);
void shmcma_rx_attr_fill(struct fi_rx_attr *attr, const struct fi_rx_attr *hint, uint64_t granted);

/*
 * Complete *attr, which has the attributes asked for, for a context of an endpoint with these capabilities. -FI_EINVAL:
 * not supported; the reason is logged.
 */
int shmcma_tx_attr_complete(struct fi_tx_attr *attr, uint64_t caps);
int shmcma_rx_attr_complete(struct fi_rx_attr *attr, uint64_t caps);

#endif
