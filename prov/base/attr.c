/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * attr.c: what the provider offers, and whether hints, or the info that an object is opened with, ask for more. Any
 * thread.
 *
 * A hint that does not fit is refused, with one log line at level info: the attribute, the value asked for, the value
 * offered. The attribute structures grow with libfabric: libfabric allocates them, and they are filled field by field.
 */
#include "base/attr.h"

#include <inttypes.h>
#include <strings.h>
#include "base/newer.h"
#include "base/peerowner.h"
#include "base/param.h"

/* ---- what is offered ------------------------------------------------------------------------- */

/* Granted on request. */
#define MESSAGE_KINDS (FI_MSG | FI_TAGGED)
#define PRIMARY_CAPS                                                                                      \
	(MESSAGE_KINDS | SHMCMA_MEMORY_KINDS | FI_DIRECTED_RECV | FI_AV_USER_ID | FI_NAMED_RX_CTX | FI_SOURCE_ERR)
/* Modifiers of the primary capabilities. A kind without any modifier gets all of its modifiers. */
#define MESSAGE_MODIFIERS (FI_SEND | FI_RECV)
#define MEMORY_MODIFIERS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)
/* Granted unasked: they cost nothing until they are used. */
#define SECONDARY_CAPS                                                                                    \
	(FI_MULTI_RECV | FI_SOURCE | FI_FENCE | FI_RMA_EVENT | FI_TRIGGER | FI_LOCAL_COMM | FI_SHARED_AV)

#define TX_CAPS                                                                                           \
	(MESSAGE_KINDS | SHMCMA_MEMORY_KINDS | FI_SEND | FI_READ | FI_WRITE | FI_FENCE | FI_TRIGGER |            \
	 FI_COLLECTIVE | FI_NAMED_RX_CTX)
#define RX_CAPS                                                                                           \
	(MESSAGE_KINDS | SHMCMA_MEMORY_KINDS | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE |               \
	 FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE | FI_SOURCE_ERR | FI_RMA_EVENT | FI_TRIGGER |       \
	 FI_COLLECTIVE | SHMCMA_CAPS_2_0)
/* Useless without a kind of operation. */
#define ATTENDANT_CAPS (SECONDARY_CAPS | FI_NAMED_RX_CTX | FI_SOURCE_ERR)

/*
 * Sets of capabilities that exclude each other, the best first. Each set that fits the hints gives one info. An unused
 * capability costs an endpoint nothing (the registration table has no memory until something is registered), so a set
 * without one-sided operations would gain nothing. An application that asks for less is granted less. Collectives cost
 * a second endpoint of the core, see group.c. The last set is for other providers, see peerowner.h. Users that name this
 * provider are also offered FI_REMOTE_COMM, see is_named().
 */
const uint64_t shmcma_offers[SHMCMA_OFFERS] = {
	PRIMARY_CAPS | MESSAGE_MODIFIERS | MEMORY_MODIFIERS | SECONDARY_CAPS,
	PRIMARY_CAPS | MESSAGE_MODIFIERS | MEMORY_MODIFIERS | SECONDARY_CAPS | FI_COLLECTIVE,
	(PRIMARY_CAPS & ~FI_SOURCE_ERR) | MESSAGE_MODIFIERS | MEMORY_MODIFIERS | SECONDARY_CAPS | FI_PEER,
};

#define RMA_ORDER (FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW)
#define ATOMIC_ORDER                                                                                      \
	(FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
/* order between messages and RMA or atomics */
#define MIXED_ORDER (FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW)
#define MSG_ORDER (FI_ORDER_SAS | RMA_ORDER | ATOMIC_ORDER | SHMCMA_MEMORY_ORDER | MIXED_ORDER)
/*
 * Order of completions, granted on request: a small message that overtakes a large one then waits for it.
 */
#define COMP_ORDER FI_ORDER_STRICT

/* ---- refusing -------------------------------------------------------------------------------- */

#define TEXT_SIZE 512

static int refuse_number(const char *what, uint64_t asked, uint64_t offered)
{
	shmcma_info(FI_LOG_CORE, "refused: %s: asked for %" PRIu64 ", offered %" PRIu64 "\n", what, asked,
		    offered);
	return -FI_ENODATA;
}

int shmcma_refuse(const char *what, const char *asked, const char *offered)
{
	shmcma_info(FI_LOG_CORE, "refused: %s: asked for %s, offered %s\n", what, asked, offered);
	return -FI_ENODATA;
}

/* Bits or an enumerator: `asked` and `offered` point to the value in the form that fi_tostr(3) needs. */
static int refuse_value(const char *what, enum fi_type type, const void *asked, const void *offered)
{
	char asked_text[TEXT_SIZE] = "";
	char offered_text[TEXT_SIZE] = "";

	fi_tostr_r(asked_text, sizeof(asked_text), asked, type);
	fi_tostr_r(offered_text, sizeof(offered_text), offered, type);
	return shmcma_refuse(what, asked_text, offered_text);
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
 * A user that names this provider knows that it stays on one machine. So FI_REMOTE_COMM may be granted, which some
 * applications ask for out of habit.
 */
static bool is_named(const struct fi_info *hints)
{
	if (shmcma_env.remote_comm)
		return true;
	return shmcma_module.name_is_remote && hints && hints->fabric_attr &&
	       hints->fabric_attr->prov_name && shmcma_is_listed(hints->fabric_attr->prov_name);
}

const char *shmcma_name_of(uint64_t caps)
{
	return caps & FI_PEER ? SHMCMA_PEER_NAME : shmcma_provider.name;
}

/*
 * lnx of libfabric 2.0 and 2.1 asks shm for FI_HMEM, whatever its application asks for. It has device memory registered
 * before it uses it, and the registration is refused (mr.c).
 */
static uint64_t hmem_of(uint64_t offer)
{
	uint32_t library = fi_version();
	bool asks = library >= FI_VERSION(2, 0) && library < FI_VERSION(2, 2);

	return offer & FI_PEER && shmcma_module.is_shm && asks ? FI_HMEM : 0;
}

static uint64_t offered_caps(uint32_t version, const struct fi_info *hints, uint64_t offer)
{
	return offer | hmem_of(offer) | (is_named(hints) ? FI_REMOTE_COMM : 0) |
	       (FI_VERSION_GE(version, FI_VERSION(2, 0)) ? SHMCMA_CAPS_2_0 : 0);
}

static uint64_t granted_caps(const struct fi_info *hints, uint64_t offered)
{
	uint64_t caps;

	/* an application that asks for nothing does not expect the errors that these two bring */
	if (!hints || !hints->caps)
		return offered & ~(FI_SOURCE_ERR | SHMCMA_EXACT_DIRECTED_RECV);
	caps = hints->caps | (offered & (SECONDARY_CAPS | SHMCMA_COMM_CAPS | FI_PEER));
	if (!(hints->caps & (SHMCMA_MEMORY_KINDS | FI_RMA_EVENT)))
		caps &= ~FI_RMA_EVENT;
	if (caps & MESSAGE_KINDS && !(caps & MESSAGE_MODIFIERS))
		caps |= MESSAGE_MODIFIERS;
	if (caps & SHMCMA_MEMORY_KINDS && !(caps & MEMORY_MODIFIERS))
		caps |= MEMORY_MODIFIERS;
	return caps;
}

uint64_t shmcma_granted_caps(uint32_t version, const struct fi_info *hints, uint64_t offer)
{
	return granted_caps(hints, offered_caps(version, hints, offer));
}

/* One direction of an endpoint: its possible capabilities, and its own modifiers. */
struct direction {
	uint64_t caps, messages, memory;
};
static const struct direction transmit = { TX_CAPS, FI_SEND, FI_READ | FI_WRITE };
static const struct direction receive = { RX_CAPS, FI_RECV, FI_REMOTE_READ | FI_REMOTE_WRITE };

/*
 * Returns the capabilities that one direction of an endpoint has. A kind that was asked for in the other direction only
 * is left out; without any kind nothing is left.
 */
static uint64_t direction_caps(uint64_t granted, const struct direction *direction)
{
	uint64_t caps = granted & direction->caps;

	if (granted & MESSAGE_MODIFIERS && !(granted & direction->messages))
		caps &= ~(MESSAGE_KINDS | FI_DIRECTED_RECV | FI_MULTI_RECV | SHMCMA_CAPS_2_0);
	if (granted & MEMORY_MODIFIERS && !(granted & direction->memory))
		caps &= ~(SHMCMA_MEMORY_KINDS | FI_RMA_EVENT);
	if (granted & (MESSAGE_MODIFIERS | MEMORY_MODIFIERS) && !(caps & ~ATTENDANT_CAPS))
		return 0;
	return caps;
}

/* Returns the part of these that was asked for; all, if nothing was asked for. */
static uint64_t context_caps(uint64_t granted, uint64_t asked, const struct direction *direction)
{
	uint64_t caps = direction_caps(granted, direction);
	uint64_t taken = (asked & caps) | (caps & SECONDARY_CAPS);

	if (!asked)
		return caps;
	if (asked & MESSAGE_KINDS)
		taken |= caps & direction->messages;
	if (asked & SHMCMA_MEMORY_KINDS && !(asked & direction->memory))
		taken |= caps & direction->memory;
	return taken;
}

/* ---- message order --------------------------------------------------------------------------- */

/*
 * Returns the order that always holds, also unasked. Reads and writes of one kind reach the peer's memory in the order
 * in which they were posted. Order between kinds holds only on request. RMA and atomics do not wait for each other: the
 * peer's processor does an atomic when the peer makes progress, and a copy by CMA does not wait for that. Nor do
 * messages: the receiver may take a message long before an earlier put is written, or long after a later one. If only
 * RMA, or only atomics, are granted, the order bits of both together hold too.
 */
static uint64_t held_order(uint64_t granted)
{
	bool rma = granted & FI_RMA, atomic = granted & FI_ATOMIC;

	return FI_ORDER_SAS | (rma ? RMA_ORDER : 0) | (atomic ? ATOMIC_ORDER : 0) |
	       (rma != atomic ? SHMCMA_MEMORY_ORDER : 0);
}

uint64_t shmcma_ordered_size(uint64_t granted)
{
	return granted & SHMCMA_MEMORY_KINDS ? SIZE_MAX : 0;
}

/* ---- hints, attribute by attribute ----------------------------------------------------------- */

/*
 * Capabilities of a direction: "a subset of those requested of the associated endpoint" (fi_endpoint(3)). A capability
 * that only the other direction has is accepted, has no meaning, and is not returned.
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
		      granted & SHMCMA_MEMORY_KINDS ? SHMCMA_RMA_IOV_LIMIT : 0))
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

/* Since 2.0 a small number is a format, of which later versions may have more. */
static int check_tag_format(uint64_t format, uint32_t version)
{
	if (FI_VERSION_LT(version, FI_VERSION(2, 0)) || format >= SHMCMA_TAG_MAX_FORMAT)
		return 0;
	return check_max("ep_attr->mem_tag_format", format, SHMCMA_TAG_CCL);
}

static int check_contexts(const char *what, size_t asked, size_t offered)
{
	return asked == FI_SHARED_CONTEXT ? 0 : check_max(what, asked, offered);
}

/* A context of a scalable endpoint has one direction, and a collective operation needs both. */
static int check_context_counts(const struct fi_ep_attr *hint, uint64_t granted)
{
	if (granted & FI_COLLECTIVE)
		return check_contexts("ep_attr->tx_ctx_cnt, with FI_COLLECTIVE", hint->tx_ctx_cnt, 1) ||
		       check_contexts("ep_attr->rx_ctx_cnt, with FI_COLLECTIVE", hint->rx_ctx_cnt, 1);
	return check_contexts("ep_attr->tx_ctx_cnt", hint->tx_ctx_cnt, SHMCMA_CONTEXTS) ||
	       check_contexts("ep_attr->rx_ctx_cnt", hint->rx_ctx_cnt, SHMCMA_CONTEXTS);
}

static int check_ep(const struct fi_ep_attr *hint, uint32_t version, uint64_t granted)
{
	uint64_t ordered = shmcma_ordered_size(granted);

	if (!hint)
		return 0;
	if (hint->protocol != FI_PROTO_UNSPEC && hint->protocol != SHMCMA_PROTOCOL)
		return refuse_number("ep_attr->protocol", hint->protocol, SHMCMA_PROTOCOL);
	if (check_max("ep_attr->protocol_version", hint->protocol_version, SHMCMA_PROTOCOL_VERSION) ||
	    check_max("ep_attr->max_msg_size", hint->max_msg_size, SC_MESSAGE_MAX) ||
	    check_max("ep_attr->max_order_raw_size", hint->max_order_raw_size, ordered) ||
	    check_max("ep_attr->max_order_war_size", hint->max_order_war_size, ordered) ||
	    check_max("ep_attr->max_order_waw_size", hint->max_order_waw_size, ordered) ||
	    check_tag_format(hint->mem_tag_format, version) || check_context_counts(hint, granted))
		return -FI_ENODATA;
	if (FI_VERSION_GE(version, FI_VERSION(1, 5)) && (hint->auth_key || hint->auth_key_size))
		return shmcma_refuse("ep_attr->auth_key", "a key", "none");
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
 * Control operations are complete when their call returns, so any control progress asked for holds; for fi_join there
 * is the thread (domain.c). Data moves when the application calls, or by a thread on request. From libfabric 2.0 on the
 * field `progress`, for both kinds of operations, is data_progress under another name.
 */
static int check_progress(const struct fi_domain_attr *hint, uint64_t offered)
{
	if (offered & FI_PEER && hint->data_progress == FI_PROGRESS_AUTO)
		return refuse_number("domain_attr->data_progress, with FI_PEER", hint->data_progress,
				     FI_PROGRESS_MANUAL);
	if ((unsigned int)hint->control_progress > SHMCMA_PROGRESS_CONTROL_UNIFIED)
		return refuse_number("domain_attr->control_progress", hint->control_progress,
				     FI_PROGRESS_MANUAL);
	if ((unsigned int)hint->data_progress > SHMCMA_PROGRESS_CONTROL_UNIFIED)
		return refuse_number("domain_attr->data_progress", hint->data_progress,
				     FI_PROGRESS_MANUAL);
	return 0;
}

/* With FI_SHMCMA_RMA=strict only a thread serves requests while the target computes. */
enum fi_progress shmcma_granted_progress(const struct fi_domain_attr *hint, uint64_t granted)
{
	if (hint && hint->data_progress)
		return hint->data_progress;
	return shmcma_env.config.strict && granted & SHMCMA_MEMORY_KINDS && !(granted & FI_PEER)
		       ? FI_PROGRESS_AUTO
		       : FI_PROGRESS_MANUAL;
}

/*
 * mr_mode tells what the application is ready to do for registration. The provider needs none of it: remote addresses
 * can be offsets, and the application can choose keys. So an application that is ready for anything (FI_MR_LOCAL,
 * FI_MR_ENDPOINT...) is asked for nothing. An application that names only bits of basic registration gets them: virtual
 * addresses, and keys of the library. Such a key never comes twice, so a stale key does not pass for a new one. The two
 * values from before 1.5 stand alone and come back as they are.
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

int shmcma_granted_mr_mode(const struct fi_info *hints, uint32_t version, uint64_t granted)
{
	int hint = hints && hints->domain_attr ? hints->domain_attr->mr_mode : FI_MR_UNSPEC;

	if (hint == FI_MR_BASIC || hint == FI_MR_SCALABLE)
		return hint;
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)))
		return FI_MR_SCALABLE;
	if (!(granted & SHMCMA_MEMORY_KINDS) || hint & ~(SHMCMA_MR_MODES | FI_MR_ALLOCATED))
		return 0;
	return hint & shmcma_module.mr_modes;
}

static int check_domain_counts(const struct fi_domain_attr *hint)
{
	if (check_max("domain_attr->mr_key_size", hint->mr_key_size, SHMCMA_MR_KEY_SIZE) ||
	    check_max("domain_attr->cq_data_size", hint->cq_data_size, SHMCMA_CQ_DATA_SIZE) ||
	    check_max("domain_attr->cq_cnt", hint->cq_cnt, SHMCMA_ENDPOINTS) ||
	    check_max("domain_attr->ep_cnt", hint->ep_cnt, SHMCMA_ENDPOINTS) ||
	    check_max("domain_attr->tx_ctx_cnt", hint->tx_ctx_cnt, SHMCMA_ENDPOINTS) ||
	    check_max("domain_attr->rx_ctx_cnt", hint->rx_ctx_cnt, SHMCMA_ENDPOINTS) ||
	    check_max("domain_attr->max_ep_tx_ctx", hint->max_ep_tx_ctx, SHMCMA_CONTEXTS) ||
	    check_max("domain_attr->max_ep_rx_ctx", hint->max_ep_rx_ctx, SHMCMA_CONTEXTS) ||
	    check_max("domain_attr->max_ep_stx_ctx", hint->max_ep_stx_ctx, SHMCMA_ENDPOINTS) ||
	    check_max("domain_attr->max_ep_srx_ctx", hint->max_ep_srx_ctx, SHMCMA_ENDPOINTS))
		return -FI_ENODATA;
	return 0;
}

/* Only the error of an unknown source has data: the address of the source. */
size_t shmcma_error_data_size(uint64_t granted)
{
	return granted & FI_SOURCE_ERR ? SC_ADDR_SIZE : 0;
}

/* Fields that came with API version 1.5. */
static int check_domain_1_5(const struct fi_domain_attr *hint, uint64_t offered, uint64_t granted)
{
	if (check_max("domain_attr->cntr_cnt", hint->cntr_cnt, SHMCMA_COUNTERS) ||
	    check_max("domain_attr->mr_iov_limit", hint->mr_iov_limit, SC_REG_RANGES_MAX) ||
	    check_bits("domain_attr->caps", FI_TYPE_CAPS, hint->caps, offered & SHMCMA_DOMAIN_CAPS) ||
	    check_max("domain_attr->max_err_data", hint->max_err_data, shmcma_error_data_size(granted)) ||
	    check_max("domain_attr->mr_cnt", hint->mr_cnt, SHMCMA_MR_COUNT))
		return -FI_ENODATA;
	if (hint->auth_key || hint->auth_key_size)
		return shmcma_refuse("domain_attr->auth_key", "a key", "none");
	return 0;
}

/*
 * Keys of endpoints, with API 1.20: there are none. Groups of peers, with 2.0: each address belongs to group 0 alone.
 * Counters have all values, so any hint fits.
 */
static int check_domain_newer(const struct fi_domain_attr *hint, uint32_t version)
{
	const struct shmcma_domain_attr *newer = (const struct shmcma_domain_attr *)hint;

	if (FI_VERSION_GE(version, FI_VERSION(1, 20)) &&
	    check_max("domain_attr->max_ep_auth_key", newer->max_ep_auth_key, 0))
		return -FI_ENODATA;
	return FI_VERSION_LT(version, FI_VERSION(2, 0))
		       ? 0
		       : check_max("domain_attr->max_group_id", newer->max_group_id, 0);
}

static int check_domain(const struct fi_domain_attr *hint, uint32_t version, uint64_t offered,
			uint64_t granted)
{
	if (!hint)
		return 0;
	if (hint->name && strcasecmp(hint->name, shmcma_name_of(offered)))
		return shmcma_refuse("domain_attr->name", hint->name, shmcma_name_of(offered));
	if ((unsigned int)hint->resource_mgmt > FI_RM_ENABLED)
		return refuse_number("domain_attr->resource_mgmt", hint->resource_mgmt, FI_RM_ENABLED);
	if ((unsigned int)hint->av_type > FI_AV_TABLE)
		return refuse_number("domain_attr->av_type", hint->av_type, FI_AV_TABLE);
	if (check_threading(hint->threading) || check_progress(hint, offered) ||
	    check_mr_mode(hint->mr_mode, version) || check_domain_counts(hint) ||
	    check_domain_newer(hint, version))
		return -FI_ENODATA;
	return FI_VERSION_LT(version, FI_VERSION(1, 5)) ? 0 : check_domain_1_5(hint, offered, granted);
}

static int check_fabric(const struct fi_fabric_attr *hint, uint64_t offered)
{
	if (!hint)
		return 0;
	if (hint->name && strcasecmp(hint->name, shmcma_name_of(offered)))
		return shmcma_refuse("fabric_attr->name", hint->name, shmcma_name_of(offered));
	return check_max("fabric_attr->prov_version", hint->prov_version, shmcma_provider.version);
}

int shmcma_check_offer(uint32_t version, const struct fi_info *hints, uint64_t offer)
{
	static const uint32_t format = FI_ADDR_STR;
	uint64_t offered, granted;

	if (!hints)
		return 0;
	/* first, because utility providers ask for other types with every call of an application */
	if (check_ep_type(hints->ep_attr))
		return -FI_ENODATA;
	offered = offered_caps(version, hints, offer);
	granted = granted_caps(hints, offered);
	if (check_bits("caps", FI_TYPE_CAPS, hints->caps, offered))
		return -FI_ENODATA;
	if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != format)
		return refuse_value("addr_format", FI_TYPE_ADDR_FORMAT, &hints->addr_format, &format);
	if (hints->handle)
		return shmcma_refuse("handle", "a handle", "none");
	/* the field came with API 1.7; libfabric passes the info of an older application unchanged */
	if (FI_VERSION_GE(version, FI_VERSION(1, 7)) && hints->nic)
		return shmcma_refuse("nic", "a network interface", "none");
	if (check_fabric(hints->fabric_attr, offered) ||
	    check_domain(hints->domain_attr, version, offered, granted) ||
	    check_ep(hints->ep_attr, version, granted) || check_tx(hints->tx_attr, granted) ||
	    check_rx(hints->rx_attr, granted))
		return -FI_ENODATA;
	return 0;
}

int shmcma_check_hints(uint32_t version, const struct fi_info *hints)
{
	for (size_t i = 0; i < SHMCMA_OFFERS; i++)
		if (!shmcma_check_offer(version, hints, shmcma_offers[i]))
			return 0;
	return -FI_ENODATA;
}

/* ---- attributes of one direction -------------------------------------------------------------- */

static size_t iov_limit(uint64_t granted)
{
	return granted & FI_PEER ? SHMCMA_PEER_IOV_LIMIT : SHMCMA_IOV_LIMIT;
}

static uint64_t at_least(uint64_t hint, uint64_t offered)
{
	return hint > offered ? hint : offered;
}

void shmcma_tx_attr_fill(struct fi_tx_attr *attr, const struct fi_tx_attr *hint, uint64_t granted)
{
	attr->caps = context_caps(granted, hint ? hint->caps : 0, &transmit);
	attr->msg_order = held_order(granted) | (hint ? hint->msg_order : 0);
	attr->comp_order = hint && hint->comp_order ? COMP_ORDER : FI_ORDER_NONE;
	attr->op_flags = hint ? hint->op_flags : 0;
	attr->inject_size = SHMCMA_INJECT_SIZE;
	attr->size = at_least(hint ? hint->size : 0, shmcma_env.tx_size);
	attr->iov_limit = iov_limit(granted);
	attr->rma_iov_limit = granted & SHMCMA_MEMORY_KINDS ? SHMCMA_RMA_IOV_LIMIT : 0;
}

void shmcma_rx_attr_fill(struct fi_rx_attr *attr, const struct fi_rx_attr *hint, uint64_t granted)
{
	attr->caps = context_caps(granted, hint ? hint->caps : 0, &receive);
	attr->msg_order = held_order(granted) | (hint ? hint->msg_order : 0);
	attr->comp_order = hint && hint->comp_order ? COMP_ORDER : FI_ORDER_NONE;
	attr->op_flags = hint ? hint->op_flags : 0;
	attr->size = at_least(hint ? hint->size : 0, shmcma_env.rx_size);
	attr->iov_limit = iov_limit(granted);
}

/* tclass, the last field, stays as it is: it is younger than these calls. */
int shmcma_tx_attr_complete(struct fi_tx_attr *attr, uint64_t caps)
{
	if (check_tx(attr, caps))
		return -FI_EINVAL;
	shmcma_tx_attr_fill(attr, attr, caps);
	return 0;
}

int shmcma_rx_attr_complete(struct fi_rx_attr *attr, uint64_t caps)
{
	if (check_rx(attr, caps))
		return -FI_EINVAL;
	shmcma_rx_attr_fill(attr, attr, caps);
	return 0;
}
