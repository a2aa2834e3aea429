/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * info.c: fi_getinfo(3): the offers of this provider, checked against the hints. Any thread.
 *
 * fi_getinfo() returns the attributes that hold. A hint that does not fit is refused with one line at log level info:
 * the attribute, the value asked for, the value offered. The attribute structures are libfabric's and grow with it:
 * they are allocated by it and filled field by field.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/caps.h"
#include "base/node.h"
#include "fabric/fabric.h"

/* ---- what is offered ------------------------------------------------------------------------- */

/* Granted if asked for. */
#define MESSAGE_KINDS (FI_MSG | FI_TAGGED)
#define MEMORY_KINDS (FI_RMA | FI_ATOMIC)
#define PRIMARY_CAPS                                                                                      \
	(MESSAGE_KINDS | MEMORY_KINDS | FI_DIRECTED_RECV | FI_AV_USER_ID | FI_NAMED_RX_CTX | FI_SOURCE_ERR)
/* Limits of the primary ones: where a kind has none, all of its are granted. */
#define MESSAGE_MODIFIERS (FI_SEND | FI_RECV)
#define MEMORY_MODIFIERS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
/* Granted unasked: they cost only those who use them. */
#define SECONDARY_CAPS                                                                                    \
	(FI_MULTI_RECV | FI_SOURCE | FI_FENCE | FI_RMA_EVENT | FI_TRIGGER | FI_LOCAL_COMM | FI_SHARED_AV)
#define COMM_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define DOMAIN_CAPS (COMM_CAPS | FI_SHARED_AV)

#define TX_CAPS                                                                                           \
	(MESSAGE_KINDS | MEMORY_KINDS | FI_SEND | FI_READ | FI_WRITE | FI_FENCE | FI_TRIGGER |            \
	 FI_COLLECTIVE | FI_NAMED_RX_CTX)
#define RX_CAPS                                                                                           \
	(MESSAGE_KINDS | MEMORY_KINDS | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_DIRECTED_RECV |   \
	 FI_MULTI_RECV | FI_SOURCE | FI_SOURCE_ERR | FI_RMA_EVENT | FI_TRIGGER | FI_COLLECTIVE)
/* Of no use without a kind of operation. */
#define ATTENDANT_CAPS (SECONDARY_CAPS | FI_NAMED_RX_CTX | FI_SOURCE_ERR)

/*
 * Sets of capabilities that exclude each other, the best first: one info for each that fits the hints.
 * An unused capability costs an endpoint nothing (the registration table has no memory until something is registered),
 * so a set without one-sided operations gains nothing, and an application that asks for less is granted less.
 * Collectives cost a second endpoint of the core, see group.c. FI_REMOTE_COMM is added for those who have named this
 * provider, see is_named().
 */
static const uint64_t offers[] = {
	PRIMARY_CAPS | MESSAGE_MODIFIERS | MEMORY_MODIFIERS | SECONDARY_CAPS,
	PRIMARY_CAPS | MESSAGE_MODIFIERS | MEMORY_MODIFIERS | SECONDARY_CAPS | FI_COLLECTIVE,
};
#define OFFERS (sizeof(offers) / sizeof(offers[0]))

#define RMA_ORDER (FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW)
#define ATOMIC_ORDER                                                                                      \
	(FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
/* of messages against either */
#define MIXED_ORDER (FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW)
#define MSG_ORDER (FI_ORDER_SAS | RMA_ORDER | ATOMIC_ORDER | SHMCMA_MEMORY_ORDER | MIXED_ORDER)
/*
 * Of completions, to an application that asks for it: a large message is overtaken by a small one behind it, which then
 * waits for it.
 */
#define COMP_ORDER FI_ORDER_STRICT

#define PROTOCOL (FI_PROV_SPECIFIC | 0x5343)
#define PROTOCOL_VERSION 1
/* 64 fields of one bit: every bit of tag and mask counts by itself. */
#define TAG_FORMAT 0xaaaaaaaaaaaaaaaaULL

#define ENDPOINTS 65536
#define MR_KEY_SIZE 8
#define COUNTERS 65536
#define MR_COUNT 131072

/* Since libfabric 1.18: control operations are driven by the calls that drive data. */
#define PROGRESS_CONTROL_UNIFIED 3

/* ---- refusing -------------------------------------------------------------------------------- */

#define TEXT_SIZE 512

static int refuse_number(const char *what, uint64_t asked, uint64_t offered)
{
	shmcma_info(FI_LOG_CORE, "refused: %s: asked for %" PRIu64 ", offered %" PRIu64 "\n", what, asked,
		    offered);
	return -FI_ENODATA;
}

static int refuse_text(const char *what, const char *asked, const char *offered)
{
	shmcma_info(FI_LOG_CORE, "refused: %s: asked for %s, offered %s\n", what, asked, offered);
	return -FI_ENODATA;
}

/* Bits or an enumerator: `asked` and `offered` point to what fi_tostr(3) wants for the type. */
static int refuse_value(const char *what, enum fi_type type, const void *asked, const void *offered)
{
	char asked_text[TEXT_SIZE] = "";
	char offered_text[TEXT_SIZE] = "";

	fi_tostr_r(asked_text, sizeof(asked_text), asked, type);
	fi_tostr_r(offered_text, sizeof(offered_text), offered, type);
	return refuse_text(what, asked_text, offered_text);
}

static int check_bits(const char *what, enum fi_type type, uint64_t asked, uint64_t offered)
{
	uint64_t excess = asked & ~offered;

	return excess ? refuse_value(what, type, &excess, &offered) : 0;
}

static int check_max(const char *what, uint64_t asked, uint64_t offered)
{
	return asked > offered ? refuse_number(what, asked, offered) : 0;
}

/* ---- capabilities ---------------------------------------------------------------------------- */

/*
 * A user that names this provider knows that it stays on one machine, and may have FI_REMOTE_COMM, which some
 * applications ask for out of habit.
 */
static bool is_named(const struct fi_info *hints)
{
	if (shmcma_env.remote_comm)
		return true;
	return hints && hints->fabric_attr && hints->fabric_attr->prov_name &&
	       shmcma_is_listed(hints->fabric_attr->prov_name);
}

static uint64_t offered_caps(const struct fi_info *hints, uint64_t offer)
{
	return is_named(hints) ? offer | FI_REMOTE_COMM : offer;
}

static uint64_t granted_caps(const struct fi_info *hints, uint64_t offered)
{
	uint64_t caps;

	/* an application that asks for nothing does not expect FI_SOURCE_ERR's errors */
	if (!hints || !hints->caps)
		return offered & ~FI_SOURCE_ERR;
	caps = hints->caps | (offered & (SECONDARY_CAPS | COMM_CAPS));
	if (!(hints->caps & (MEMORY_KINDS | FI_RMA_EVENT)))
		caps &= ~FI_RMA_EVENT;
	if (caps & MESSAGE_KINDS && !(caps & MESSAGE_MODIFIERS))
		caps |= MESSAGE_MODIFIERS;
	if (caps & MEMORY_KINDS && !(caps & MEMORY_MODIFIERS))
		caps |= MEMORY_MODIFIERS;
	return caps;
}

/* Of an info that something is opened with: it may say less than what it means, and was granted. */
uint64_t shmcma_granted_caps(const struct fi_info *info)
{
	return granted_caps(info, offered_caps(info, offers[0]));
}

/* One direction of an endpoint: what it may have, and which modifiers are its own. */
struct direction {
	uint64_t caps, messages, memory;
};
static const struct direction transmit = { TX_CAPS, FI_SEND, FI_READ | FI_WRITE };
static const struct direction receive = { RX_CAPS, FI_RECV, FI_REMOTE_READ | FI_REMOTE_WRITE };

/*
 * The part of an endpoint's capabilities that one direction has. A kind that was asked for in the other one
 * alone it does not have, and without any there is nothing.
 */
static uint64_t direction_caps(uint64_t granted, const struct direction *direction)
{
	uint64_t caps = granted & direction->caps;

	if (granted & MESSAGE_MODIFIERS && !(granted & direction->messages))
		caps &= ~(MESSAGE_KINDS | FI_DIRECTED_RECV | FI_MULTI_RECV);
	if (granted & MEMORY_MODIFIERS && !(granted & direction->memory))
		caps &= ~(MEMORY_KINDS | FI_RMA_EVENT);
	if (granted & (MESSAGE_MODIFIERS | MEMORY_MODIFIERS) && !(caps & ~ATTENDANT_CAPS))
		return 0;
	return caps;
}

/* Of that, what was asked for; all if nothing was. */
static uint64_t context_caps(uint64_t granted, uint64_t asked, const struct direction *direction)
{
	uint64_t caps = direction_caps(granted, direction);
	uint64_t taken = (asked & caps) | (caps & SECONDARY_CAPS);

	if (!asked)
		return caps;
	if (asked & MESSAGE_KINDS)
		taken |= caps & direction->messages;
	if (asked & MEMORY_KINDS && !(asked & direction->memory))
		taken |= caps & direction->memory;
	return taken;
}

/* ---- message order --------------------------------------------------------------------------- */

/*
 * The order that always holds, and is returned unasked. Reads and writes of one kind reach a peer's memory as they were
 * posted. Order between kinds holds only for an application that asks for it: RMA and atomics do not wait for each
 * other, as an atomic is done by the peer's processor when it makes progress, and a copy by CMA does not ask for it;
 * nor do messages, which may be taken from their ring long before or after the memory that was posted behind or before
 * them is written. For RMA alone, or atomics alone, the bits of both together hold.
 */
static uint64_t held_order(uint64_t granted)
{
	bool rma = granted & FI_RMA, atomic = granted & FI_ATOMIC;

	return FI_ORDER_SAS | (rma ? RMA_ORDER : 0) | (atomic ? ATOMIC_ORDER : 0) |
	       (rma != atomic ? SHMCMA_MEMORY_ORDER : 0);
}

/* Bytes for which the order of reads and writes is that of their data, too. */
static uint64_t ordered_size(uint64_t granted)
{
	return granted & MEMORY_KINDS ? SIZE_MAX : 0;
}

/* ---- hints, attribute by attribute ----------------------------------------------------------- */

/*
 * Capabilities of a direction: "a subset of those requested of the associated endpoint" (fi_endpoint(3)). A capability
 * of the other direction alone means nothing there, and is not returned.
 */
static int check_tx(const struct fi_tx_attr *hint, uint64_t granted)
{
	if (!hint)
		return 0;
	if (check_bits("tx_attr->caps", FI_TYPE_CAPS, hint->caps, granted & (TX_CAPS | RX_CAPS)) ||
	    check_bits("tx_attr->op_flags", FI_TYPE_OP_FLAGS, hint->op_flags, SHMCMA_TX_OP_FLAGS) ||
	    check_bits("tx_attr->msg_order", FI_TYPE_MSG_ORDER, hint->msg_order, MSG_ORDER) ||
	    check_bits("tx_attr->comp_order", FI_TYPE_MSG_ORDER, hint->comp_order, COMP_ORDER) ||
	    check_max("tx_attr->inject_size", hint->inject_size, SHMCMA_INJECT_SIZE) ||
	    check_max("tx_attr->size", hint->size, SHMCMA_MAX_SIZE) ||
	    check_max("tx_attr->iov_limit", hint->iov_limit, SHMCMA_IOV_LIMIT) ||
	    check_max("tx_attr->rma_iov_limit", hint->rma_iov_limit,
		      granted & MEMORY_KINDS ? SHMCMA_RMA_IOV_LIMIT : 0))
		return -FI_ENODATA;
	return 0;
}

static int check_rx(const struct fi_rx_attr *hint, uint64_t granted)
{
	if (!hint)
		return 0;
	if (check_bits("rx_attr->caps", FI_TYPE_CAPS, hint->caps, granted & (TX_CAPS | RX_CAPS)) ||
	    check_bits("rx_attr->op_flags", FI_TYPE_OP_FLAGS, hint->op_flags, SHMCMA_RX_OP_FLAGS) ||
	    check_bits("rx_attr->msg_order", FI_TYPE_MSG_ORDER, hint->msg_order, MSG_ORDER) ||
	    check_bits("rx_attr->comp_order", FI_TYPE_MSG_ORDER, hint->comp_order, COMP_ORDER) ||
	    check_max("rx_attr->size", hint->size, SHMCMA_MAX_SIZE) ||
	    check_max("rx_attr->iov_limit", hint->iov_limit, SHMCMA_IOV_LIMIT))
		return -FI_ENODATA;
	return 0;
}

static int check_ep_type(const struct fi_ep_attr *hint)
{
	static const enum fi_ep_type offered = FI_EP_RDM;

	if (!hint || hint->type == FI_EP_UNSPEC || hint->type == offered)
		return 0;
	return refuse_value("ep_attr->type", FI_TYPE_EP_TYPE, &hint->type, &offered);
}

static int check_contexts(const char *what, size_t asked)
{
	return asked == FI_SHARED_CONTEXT ? 0 : check_max(what, asked, SHMCMA_CONTEXTS);
}

static int check_ep(const struct fi_ep_attr *hint, uint32_t version, uint64_t granted)
{
	uint64_t ordered = ordered_size(granted);

	if (!hint)
		return 0;
	if (hint->protocol != FI_PROTO_UNSPEC && hint->protocol != PROTOCOL)
		return refuse_number("ep_attr->protocol", hint->protocol, PROTOCOL);
	if (check_max("ep_attr->protocol_version", hint->protocol_version, PROTOCOL_VERSION) ||
	    check_max("ep_attr->max_msg_size", hint->max_msg_size, SC_MESSAGE_MAX) ||
	    check_max("ep_attr->max_order_raw_size", hint->max_order_raw_size, ordered) ||
	    check_max("ep_attr->max_order_war_size", hint->max_order_war_size, ordered) ||
	    check_max("ep_attr->max_order_waw_size", hint->max_order_waw_size, ordered) ||
	    check_contexts("ep_attr->tx_ctx_cnt", hint->tx_ctx_cnt) ||
	    check_contexts("ep_attr->rx_ctx_cnt", hint->rx_ctx_cnt))
		return -FI_ENODATA;
	if (FI_VERSION_GE(version, FI_VERSION(1, 5)) && (hint->auth_key || hint->auth_key_size))
		return refuse_text("ep_attr->auth_key", "a key", "none");
	return 0;
}

static int check_threading(enum fi_threading hint)
{
	switch (hint) {
	case FI_THREAD_UNSPEC:
	case FI_THREAD_SAFE:
	case FI_THREAD_FID:
	case FI_THREAD_DOMAIN:
	case FI_THREAD_COMPLETION:
	case FI_THREAD_ENDPOINT:
		return 0;
	}
	return refuse_number("domain_attr->threading", hint, FI_THREAD_SAFE);
}

/*
 * Control operations are over when their call returns, so they progress in any way that is asked for; for fi_join
 * there is the thread (domain.c).
 * Data moves when the application calls, or by a thread if that is asked for.
 */
static int check_progress(const struct fi_domain_attr *hint)
{
	if ((unsigned int)hint->control_progress > PROGRESS_CONTROL_UNIFIED)
		return refuse_number("domain_attr->control_progress", hint->control_progress,
				     FI_PROGRESS_MANUAL);
	if ((unsigned int)hint->data_progress > FI_PROGRESS_MANUAL)
		return refuse_number("domain_attr->data_progress", hint->data_progress,
				     FI_PROGRESS_MANUAL);
	return 0;
}

/* With FI_SHMCMA_RMA=strict a target that computes is reached by a thread alone. */
static enum fi_progress granted_progress(const struct fi_domain_attr *hint, uint64_t granted)
{
	if (hint && hint->data_progress)
		return hint->data_progress;
	return shmcma_env.config.strict && granted & MEMORY_KINDS ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
}

/*
 * mr_mode tells what the application is ready to do for registration. Nothing of it is needed here: remote
 * addresses can be offsets and keys the application's own, and an application that is ready for anything (FI_MR_LOCAL,
 * FI_MR_ENDPOINT...) is asked for nothing. An application that names bits of basic registration alone means them, and
 * gets virtual addresses and keys of ours: these are never the same twice, so a stale key is told from a new one. The
 * two values from before 1.5 stand alone and come back as they are.
 */
static int check_mr_mode(int hint, uint32_t version)
{
	static const int offered = SHMCMA_MR_MODES;

	if (hint == FI_MR_UNSPEC || hint == FI_MR_BASIC || hint == FI_MR_SCALABLE)
		return 0;
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)) || hint & (FI_MR_BASIC | FI_MR_SCALABLE))
		return refuse_value("domain_attr->mr_mode", FI_TYPE_MR_MODE, &hint, &offered);
	return 0;
}

static int granted_mr_mode(const struct fi_info *hints, uint32_t version, uint64_t granted)
{
	int hint = hints && hints->domain_attr ? hints->domain_attr->mr_mode : FI_MR_UNSPEC;

	if (hint == FI_MR_BASIC || hint == FI_MR_SCALABLE)
		return hint;
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)))
		return FI_MR_SCALABLE;
	if (!(granted & MEMORY_KINDS) || hint & ~(SHMCMA_MR_MODES | FI_MR_ALLOCATED))
		return 0;
	return hint & SHMCMA_MR_MODES;
}

static int check_domain_counts(const struct fi_domain_attr *hint)
{
	if (check_max("domain_attr->mr_key_size", hint->mr_key_size, MR_KEY_SIZE) ||
	    check_max("domain_attr->cq_data_size", hint->cq_data_size, SHMCMA_CQ_DATA_SIZE) ||
	    check_max("domain_attr->cq_cnt", hint->cq_cnt, ENDPOINTS) ||
	    check_max("domain_attr->ep_cnt", hint->ep_cnt, ENDPOINTS) ||
	    check_max("domain_attr->tx_ctx_cnt", hint->tx_ctx_cnt, ENDPOINTS) ||
	    check_max("domain_attr->rx_ctx_cnt", hint->rx_ctx_cnt, ENDPOINTS) ||
	    check_max("domain_attr->max_ep_tx_ctx", hint->max_ep_tx_ctx, SHMCMA_CONTEXTS) ||
	    check_max("domain_attr->max_ep_rx_ctx", hint->max_ep_rx_ctx, SHMCMA_CONTEXTS) ||
	    check_max("domain_attr->max_ep_stx_ctx", hint->max_ep_stx_ctx, ENDPOINTS) ||
	    check_max("domain_attr->max_ep_srx_ctx", hint->max_ep_srx_ctx, ENDPOINTS))
		return -FI_ENODATA;
	return 0;
}

/* Of errors, only that of an unknown source has data: its address. */
static size_t error_data_size(uint64_t granted)
{
	return granted & FI_SOURCE_ERR ? SC_ADDR_SIZE : 0;
}

/* Fields that came with API version 1.5. */
static int check_domain_1_5(const struct fi_domain_attr *hint, uint64_t offered, uint64_t granted)
{
	if (check_max("domain_attr->cntr_cnt", hint->cntr_cnt, COUNTERS) ||
	    check_max("domain_attr->mr_iov_limit", hint->mr_iov_limit, SC_REG_RANGES_MAX) ||
	    check_bits("domain_attr->caps", FI_TYPE_CAPS, hint->caps, offered & DOMAIN_CAPS) ||
	    check_max("domain_attr->max_err_data", hint->max_err_data, error_data_size(granted)) ||
	    check_max("domain_attr->mr_cnt", hint->mr_cnt, MR_COUNT))
		return -FI_ENODATA;
	if (hint->auth_key || hint->auth_key_size)
		return refuse_text("domain_attr->auth_key", "a key", "none");
	return 0;
}

static int check_domain(const struct fi_domain_attr *hint, uint32_t version, uint64_t offered,
			uint64_t granted)
{
	if (!hint)
		return 0;
	if (hint->name && strcasecmp(hint->name, SHMCMA_NAME))
		return refuse_text("domain_attr->name", hint->name, SHMCMA_NAME);
	if ((unsigned int)hint->resource_mgmt > FI_RM_ENABLED)
		return refuse_number("domain_attr->resource_mgmt", hint->resource_mgmt, FI_RM_ENABLED);
	if ((unsigned int)hint->av_type > FI_AV_TABLE)
		return refuse_number("domain_attr->av_type", hint->av_type, FI_AV_TABLE);
	if (check_threading(hint->threading) || check_progress(hint) ||
	    check_mr_mode(hint->mr_mode, version) || check_domain_counts(hint))
		return -FI_ENODATA;
	return FI_VERSION_LT(version, FI_VERSION(1, 5)) ? 0 : check_domain_1_5(hint, offered, granted);
}

static int check_fabric(const struct fi_fabric_attr *hint)
{
	if (!hint)
		return 0;
	if (hint->name && strcasecmp(hint->name, SHMCMA_NAME))
		return refuse_text("fabric_attr->name", hint->name, SHMCMA_NAME);
	return check_max("fabric_attr->prov_version", hint->prov_version, SHMCMA_VERSION);
}

static int check_offer(uint32_t version, const struct fi_info *hints, uint64_t offer)
{
	static const uint32_t format = FI_ADDR_STR;
	uint64_t offered, granted;

	if (!hints)
		return 0;
	/* first, as utility providers ask for other types with every application's call */
	if (check_ep_type(hints->ep_attr))
		return -FI_ENODATA;
	offered = offered_caps(hints, offer);
	granted = granted_caps(hints, offered);
	if (check_bits("caps", FI_TYPE_CAPS, hints->caps, offered))
		return -FI_ENODATA;
	if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != format)
		return refuse_value("addr_format", FI_TYPE_ADDR_FORMAT, &hints->addr_format, &format);
	if (hints->handle)
		return refuse_text("handle", "a handle", "none");
	/*
	 * before 1.7 there was no such field, and libfabric hands us the info that an application opens with as it is
	 */
	if (FI_VERSION_GE(version, FI_VERSION(1, 7)) && hints->nic)
		return refuse_text("nic", "a network interface", "none");
	if (check_fabric(hints->fabric_attr) ||
	    check_domain(hints->domain_attr, version, offered, granted) ||
	    check_ep(hints->ep_attr, version, granted) || check_tx(hints->tx_attr, granted) ||
	    check_rx(hints->rx_attr, granted))
		return -FI_ENODATA;
	return 0;
}

/*
 * An application that asks for capabilities gets one answer: the same capabilities with collectives are no second one.
 */
static bool is_more(const struct fi_info *hints, uint64_t offer)
{
	return hints && hints->caps && offer & FI_COLLECTIVE && !(hints->caps & FI_COLLECTIVE);
}

/*
 * A fabric or domain in hints is one that is open. An info that an object is opened with is not checked: they may have
 * been closed since.
 */
static int check_opened(const struct fi_info *hints)
{
	const struct fid_fabric *fabric = hints && hints->fabric_attr ? hints->fabric_attr->fabric : NULL;
	const struct fid_domain *domain = hints && hints->domain_attr ? hints->domain_attr->domain : NULL;

	if (fabric && !shmcma_fabric_find(fabric))
		return refuse_text("fabric_attr->fabric", "a fabric that is not open here",
				   "those opened here");
	if (domain && !shmcma_domain_find(domain, fabric))
		return refuse_text("domain_attr->domain", "a domain that is not open here",
				   fabric ? "those of the fabric that is asked for" : "those opened here");
	return 0;
}

int shmcma_check_hints(uint32_t version, const struct fi_info *hints)
{
	for (size_t i = 0; i < OFFERS; i++)
		if (!check_offer(version, hints, offers[i]))
			return 0;
	return -FI_ENODATA;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static uint64_t at_least(uint64_t hint, uint64_t offered)
{
	return hint > offered ? hint : offered;
}

static void fill_tx(struct fi_tx_attr *attr, const struct fi_tx_attr *hint, uint64_t granted)
{
	attr->caps = context_caps(granted, hint ? hint->caps : 0, &transmit);
	attr->msg_order = held_order(granted) | (hint ? hint->msg_order : 0);
	attr->comp_order = hint && hint->comp_order ? COMP_ORDER : FI_ORDER_NONE;
	attr->op_flags = hint ? hint->op_flags : 0;
	attr->inject_size = SHMCMA_INJECT_SIZE;
	attr->size = at_least(hint ? hint->size : 0, SHMCMA_DEFAULT_SIZE);
	attr->iov_limit = SHMCMA_IOV_LIMIT;
	attr->rma_iov_limit = granted & MEMORY_KINDS ? SHMCMA_RMA_IOV_LIMIT : 0;
}

static void fill_rx(struct fi_rx_attr *attr, const struct fi_rx_attr *hint, uint64_t granted)
{
	attr->caps = context_caps(granted, hint ? hint->caps : 0, &receive);
	attr->msg_order = held_order(granted) | (hint ? hint->msg_order : 0);
	attr->comp_order = hint && hint->comp_order ? COMP_ORDER : FI_ORDER_NONE;
	attr->op_flags = hint ? hint->op_flags : 0;
	attr->size = at_least(hint ? hint->size : 0, SHMCMA_DEFAULT_SIZE);
	attr->iov_limit = SHMCMA_IOV_LIMIT;
}

/* tclass, the last, is let be: it is younger than these calls. */
int shmcma_tx_attr_complete(struct fi_tx_attr *attr, uint64_t caps)
{
	if (check_tx(attr, caps))
		return -FI_EINVAL;
	fill_tx(attr, attr, caps);
	return 0;
}

int shmcma_rx_attr_complete(struct fi_rx_attr *attr, uint64_t caps)
{
	if (check_rx(attr, caps))
		return -FI_EINVAL;
	fill_rx(attr, attr, caps);
	return 0;
}

static void fill_ep(struct fi_ep_attr *attr, const struct fi_ep_attr *hint, uint64_t granted)
{
	attr->type = FI_EP_RDM;
	attr->protocol = PROTOCOL;
	attr->protocol_version = PROTOCOL_VERSION;
	attr->max_msg_size = SC_MESSAGE_MAX;
	attr->max_order_raw_size = ordered_size(granted);
	attr->max_order_war_size = ordered_size(granted);
	attr->max_order_waw_size = ordered_size(granted);
	/* any division of 64 bits will do */
	attr->mem_tag_format = hint && hint->mem_tag_format ? hint->mem_tag_format : TAG_FORMAT;
	attr->tx_ctx_cnt = hint && hint->tx_ctx_cnt ? hint->tx_ctx_cnt : 1;
	attr->rx_ctx_cnt = hint && hint->rx_ctx_cnt ? hint->rx_ctx_cnt : 1;
}

static int fill_domain(struct fi_domain_attr *attr, const struct fi_domain_attr *hint, uint64_t granted,
		       int mr_mode, const struct fid_fabric *fabric)
{
	attr->name = strdup(SHMCMA_NAME);
	if (!attr->name)
		return -FI_ENOMEM;
	if (hint && hint->domain)
		attr->domain = hint->domain;
	else if (fabric)
		attr->domain = shmcma_domain_find(NULL, fabric);
	attr->threading = hint && hint->threading ? hint->threading : FI_THREAD_SAFE;
	attr->control_progress =
		hint && hint->control_progress ? hint->control_progress : FI_PROGRESS_MANUAL;
	attr->data_progress = granted_progress(hint, granted);
	attr->resource_mgmt = FI_RM_ENABLED;
	attr->av_type = hint ? hint->av_type : FI_AV_UNSPEC;
	attr->mr_mode = mr_mode;
	attr->mr_key_size = MR_KEY_SIZE;
	attr->cq_data_size = SHMCMA_CQ_DATA_SIZE;
	attr->cq_cnt = ENDPOINTS;
	attr->ep_cnt = ENDPOINTS;
	attr->tx_ctx_cnt = ENDPOINTS;
	attr->rx_ctx_cnt = ENDPOINTS;
	attr->max_ep_tx_ctx = SHMCMA_CONTEXTS;
	attr->max_ep_rx_ctx = SHMCMA_CONTEXTS;
	attr->max_ep_stx_ctx = ENDPOINTS;
	attr->max_ep_srx_ctx = ENDPOINTS;
	attr->cntr_cnt = COUNTERS;
	attr->mr_iov_limit = SC_REG_RANGES_MAX;
	attr->caps = granted & DOMAIN_CAPS;
	attr->max_err_data = error_data_size(granted);
	attr->mr_cnt = MR_COUNT;
	attr->tclass = hint ? hint->tclass : FI_TC_UNSPEC;
	return 0;
}

/* Of a domain that is asked for its own, of others the one that is asked for, or the first that is open. */
static struct fid_fabric *fabric_of(const struct fi_info *hints)
{
	const struct fid_domain *domain = hints && hints->domain_attr ? hints->domain_attr->domain : NULL;

	if (domain)
		return &container_of(domain, struct shmcma_domain, fid)->fabric->fid;
	return shmcma_fabric_find(hints && hints->fabric_attr ? hints->fabric_attr->fabric : NULL);
}

static int fill_fabric(struct fi_fabric_attr *attr, const struct fi_info *hints, uint32_t version)
{
	/* prov_name is libfabric's to fill in */
	attr->name = strdup(SHMCMA_NAME);
	if (!attr->name)
		return -FI_ENOMEM;
	attr->fabric = fabric_of(hints);
	attr->prov_version = SHMCMA_VERSION;
	attr->api_version = version;
	return 0;
}

/* The endpoint's own address and that of its peer; an empty string: not given. */
struct addresses {
	char source[SC_ADDR_SIZE], destination[SC_ADDR_SIZE];
};

static int fill_address(const char *address, void **out, size_t *len)
{
	if (!*address)
		return 0;
	*out = strdup(address);
	*len = strlen(address) + 1;
	return *out ? 0 : -FI_ENOMEM;
}

static struct fi_info *make_info(uint32_t version, const struct fi_info *hints, uint64_t offer,
				 const struct addresses *addresses)
{
	uint64_t granted = granted_caps(hints, offered_caps(hints, offer));
	struct fi_info *info = fi_allocinfo();

	if (!info)
		return NULL;
	info->caps = granted;
	info->addr_format = FI_ADDR_STR;
	fill_tx(info->tx_attr, hints ? hints->tx_attr : NULL, granted);
	info->tx_attr->tclass = hints && hints->tx_attr ? hints->tx_attr->tclass : FI_TC_UNSPEC;
	fill_rx(info->rx_attr, hints ? hints->rx_attr : NULL, granted);
	fill_ep(info->ep_attr, hints ? hints->ep_attr : NULL, granted);
	if (fill_fabric(info->fabric_attr, hints, version) ||
	    fill_domain(info->domain_attr, hints ? hints->domain_attr : NULL, granted,
			granted_mr_mode(hints, version, granted), info->fabric_attr->fabric) ||
	    fill_address(addresses->source, &info->src_addr, &info->src_addrlen) ||
	    fill_address(addresses->destination, &info->dest_addr, &info->dest_addrlen)) {
		fi_freeinfo(info);
		return NULL;
	}
	return info;
}

/* ---- node, service, addresses in the hints --------------------------------------------------- */

static int hinted_source(const struct fi_info *hints, char *source)
{
	char service[SC_ADDR_SIZE];

	if (!hints || !hints->src_addr)
		return 0;
	if (!hints->src_addrlen)
		return refuse_text("src_addr", "an address of no length", SC_ADDR_PREFIX "...");
	if (shmcma_source_service(hints, service))
		return refuse_text("src_addr", "this address", SC_ADDR_PREFIX "<service>");
	if (*service)
		sc_addr_service(service, source);
	return 0;
}

static int hinted_destination(const struct fi_info *hints, char *destination)
{
	enum sc_addr_kind kind;

	if (!hints || !hints->dest_addr)
		return 0;
	if (!hints->dest_addrlen)
		return refuse_text("dest_addr", "an address of no length", SC_ADDR_PREFIX "...");
	if (shmcma_address_copy(hints->dest_addr, hints->dest_addrlen, destination, &kind) ||
	    kind == SC_ADDR_INVALID)
		return refuse_text("dest_addr", "this address", SC_ADDR_PREFIX "...");
	return 0;
}

/* Says on which machine, but names no endpoint there. */
static bool is_host_alone(const char *node, const char *service)
{
	return node && !service && !shmcma_node_is_address(node);
}

/* FI_SOURCE: node and service say where the endpoint is to be. */
static int named_source(const char *node, const char *service, uint64_t flags, char *source)
{
	int ret;

	if (!node && !service) {
		shmcma_info(FI_LOG_CORE, "FI_SOURCE with neither node nor service\n");
		return -FI_EINVAL;
	}
	if (is_host_alone(node, service))
		return shmcma_node_is_here(node, flags) ? 0 : -FI_ENODATA;
	if (node && !service && !strcmp(node, SHMCMA_ADDR_ANY))
		return 0;
	ret = shmcma_node_address(node, service, flags, source);
	if (!ret && sc_addr_kind(source) == SC_ADDR_ENDPOINT)
		ret = refuse_text("node", "a second endpoint at an endpoint's own address", "services");
	return ret;
}

static int find_addresses(const char *node, const char *service, uint64_t flags,
			  const struct fi_info *hints, struct addresses *addresses)
{
	int ret;

	strcpy(addresses->source, SHMCMA_ADDR_ANY);
	addresses->destination[0] = '\0';
	ret = flags & FI_SOURCE ? named_source(node, service, flags, addresses->source)
				: hinted_source(hints, addresses->source);
	if (ret)
		return ret;
	if (flags & FI_SOURCE || (!node && !service))
		return hinted_destination(hints, addresses->destination);
	/* a host without a service asks whether the host can be reached; there is no destination address to return */
	if (is_host_alone(node, service))
		return shmcma_node_is_here(node, flags) ? 0 : -FI_ENODATA;
	return shmcma_node_address(node, service, flags, addresses->destination);
}

/* ---- fi_getinfo ------------------------------------------------------------------------------ */

/* Bits 58 and up are libfabric's own: it asks for a provider to put a utility provider on top of. */
#define LAYERING_FLAGS (~0ULL << 58)
/* Since libfabric 2.1: look again for what there is. There is always the same. */
#define RESCAN (1ULL << 35)

static int check_flags(uint64_t flags)
{
	if (flags & LAYERING_FLAGS)
		return refuse_text("flags", "an endpoint to put another provider on",
				   "endpoints for applications");
	if (flags & ~(FI_NUMERICHOST | FI_PROV_ATTR_ONLY | FI_SOURCE | RESCAN)) {
		shmcma_info(FI_LOG_CORE, "unknown flags %#" PRIx64 "\n", flags);
		return -FI_EBADFLAGS;
	}
	return 0;
}

int shmcma_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		   const struct fi_info *hints, struct fi_info **info)
{
	struct addresses addresses;
	struct fi_info **last = info;
	int ret = check_flags(flags);

	*info = NULL;
	if (ret)
		return ret;
	if (flags & FI_PROV_ATTR_ONLY) {
		*info = fi_allocinfo();
		if (!*info)
			return -FI_ENOMEM;
		(*info)->fabric_attr->prov_version = SHMCMA_VERSION;
		return 0;
	}
	/* first, as it is the cheaper question: a node may have to be looked up in the network */
	ret = shmcma_check_hints(version, hints);
	if (!ret)
		ret = check_opened(hints);
	if (!ret)
		ret = find_addresses(node, service, flags, hints, &addresses);
	if (ret)
		return ret;
	for (size_t i = 0; i < OFFERS; i++) {
		if (is_more(hints, offers[i]) || check_offer(version, hints, offers[i]))
			continue;
		*last = make_info(version, hints, offers[i], &addresses);
		if (!*last) {
			fi_freeinfo(*info);
			*info = NULL;
			return -FI_ENOMEM;
		}
		last = &(*last)->next;
	}
	return *info ? 0 : -FI_ENODATA;
}
