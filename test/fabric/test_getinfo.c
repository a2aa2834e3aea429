/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_getinfo: fi_getinfo(3), attribute by attribute: which values are offered, granted and refused.
 *
 * Tests that depend on the environment run in processes of their own: this program again, with the name of
 * a scene as its argument.
 */
#define _GNU_SOURCE 1
#include "fabric.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <strings.h>
#include <glob.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/providers/fi_prov.h>

#define MESSAGES (FI_MSG | FI_TAGGED)
#define DIRECTIONS (FI_SEND | FI_RECV)
#define MEMORY (FI_RMA | FI_ATOMIC)
#define INITIATE (FI_READ | FI_WRITE)
#define BE_TARGET (FI_REMOTE_READ | FI_REMOTE_WRITE)
#define ACCESSES (INITIATE | BE_TARGET)
#define SECONDARY                                                                                         \
	(FI_MULTI_RECV | FI_SOURCE | FI_FENCE | FI_RMA_EVENT | FI_TRIGGER | FI_LOCAL_COMM |               \
	 FI_REMOTE_COMM | FI_SHARED_AV)
#define GRANTABLE                                                                                         \
	(MESSAGES | MEMORY | FI_DIRECTED_RECV | FI_AV_USER_ID | FI_NAMED_RX_CTX | FI_COLLECTIVE |          \
	 FI_SOURCE_ERR | DIRECTIONS | ACCESSES | SECONDARY)

#define TX_ONLY (FI_SEND | INITIATE | FI_FENCE | FI_NAMED_RX_CTX)
#define RX_ONLY (FI_RECV | BE_TARGET | FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE | FI_RMA_EVENT)
#define TX_GRANTABLE (MESSAGES | MEMORY | TX_ONLY | FI_TRIGGER | FI_COLLECTIVE)
#define RX_GRANTABLE (MESSAGES | MEMORY | RX_ONLY | FI_SOURCE_ERR | FI_TRIGGER | FI_COLLECTIVE)

#define CONTEXTS 256 /* of a scalable endpoint, each kind */

#define RMA_ORDER (FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR | FI_ORDER_RMA_WAW)
#define ATOMIC_ORDER                                                                                      \
	(FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define MEMORY_ORDER (FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW)
#define MIXED_ORDER (FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW)

/* ---- asking ---------------------------------------------------------------------------------- */

static struct fi_info *hints;

static int setup(void **state)
{
	(void)state;
	hints = tf_hints();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fi_freeinfo(hints);
	hints = NULL;
	return 0;
}

static struct fi_info *ask(void)
{
	return tf_getinfo(hints);
}

static void accepted(void)
{
	fi_freeinfo(ask());
}

static void refused_for(uint32_t version)
{
	struct fi_info *info = (struct fi_info *)(uintptr_t)1;

	tf_expect(fi_getinfo(version, NULL, NULL, 0, hints, &info), -FI_ENODATA);
	assert_null(info);
}

static void refused(void)
{
	refused_for(TF_VERSION);
}

/* The field is granted up to `max` and refused beyond. */
#define CHECK_MAX(field, max)                                                                             \
	do {                                                                                              \
		hints->field = (max);                                                                     \
		accepted();                                                                               \
		hints->field = (size_t)(max) + 1;                                                         \
		refused();                                                                                \
		hints->field = SIZE_MAX;                                                                  \
		refused();                                                                                \
		hints->field = 0;                                                                         \
	} while (0)

/* Some of its own, or those that it shares, as asked for. */
#define CHECK_CONTEXTS(field)                                                                             \
	do {                                                                                              \
		static const size_t fit[] = { 1, 2, CONTEXTS, FI_SHARED_CONTEXT };                        \
                                                                                                          \
		for (size_t fit_ = 0; fit_ < 4; fit_++) {                                                 \
			struct fi_info *info_;                                                            \
                                                                                                          \
			hints->field = fit[fit_];                                                         \
			info_ = ask();                                                                    \
			assert_true(info_->field == fit[fit_]);                                           \
			fi_freeinfo(info_);                                                               \
		}                                                                                         \
		hints->field = CONTEXTS + 1;                                                              \
		refused();                                                                                \
		hints->field = SIZE_MAX - 1;                                                              \
		refused();                                                                                \
		hints->field = 0;                                                                         \
	} while (0)

/* ---- what is offered ------------------------------------------------------------------------- */

static void check_default(const struct fi_info *info)
{
	assert_true(info->caps & FI_MSG);
	assert_true(info->caps & FI_TAGGED);
	assert_int_equal(info->caps & (MEMORY | ACCESSES), MEMORY | ACCESSES);
	assert_int_equal(info->caps & (FI_RMA_EVENT | FI_TRIGGER), FI_RMA_EVENT | FI_TRIGGER);
	assert_true(info->caps & FI_LOCAL_COMM);
	assert_int_equal(info->caps & ~GRANTABLE, 0);
	assert_int_equal(info->mode, 0);
	assert_int_equal(info->addr_format, FI_ADDR_STR);
	assert_string_equal(info->src_addr, TF_PREFIX);
	assert_int_equal(info->src_addrlen, sizeof(TF_PREFIX));
	assert_null(info->dest_addr);
	assert_int_equal(info->dest_addrlen, 0);
	assert_null(info->handle);
	assert_null(info->nic);

	assert_int_equal(info->tx_attr->caps & ~info->caps, 0);
	assert_int_equal(info->rx_attr->caps & ~info->caps, 0);
	assert_int_equal(info->tx_attr->caps, TX_GRANTABLE & ~FI_COLLECTIVE);
	assert_int_equal(info->rx_attr->caps, RX_GRANTABLE & ~(FI_COLLECTIVE | FI_SOURCE_ERR));
	assert_int_equal(info->tx_attr->mode | info->rx_attr->mode, 0);
	assert_int_equal(info->tx_attr->op_flags | info->rx_attr->op_flags, 0);
	assert_int_equal(info->tx_attr->msg_order, FI_ORDER_SAS | RMA_ORDER | ATOMIC_ORDER);
	assert_int_equal(info->rx_attr->msg_order, FI_ORDER_SAS | RMA_ORDER | ATOMIC_ORDER);
	assert_int_equal(info->tx_attr->comp_order | info->rx_attr->comp_order, FI_ORDER_NONE);
	assert_true(info->tx_attr->inject_size >= 4096);
	assert_true(info->tx_attr->iov_limit >= 8);
	assert_true(info->rx_attr->iov_limit >= 8);
	assert_true(info->tx_attr->rma_iov_limit >= 8);
	assert_true(info->tx_attr->size && info->rx_attr->size);

	assert_int_equal(info->ep_attr->type, FI_EP_RDM);
	assert_true(info->ep_attr->protocol & FI_PROV_SPECIFIC);
	assert_true(info->ep_attr->max_msg_size > 1ULL << 32);
	assert_int_equal(info->ep_attr->msg_prefix_size, 0);
	assert_true(info->ep_attr->max_order_raw_size == SIZE_MAX);
	assert_true(info->ep_attr->max_order_war_size == SIZE_MAX);
	assert_true(info->ep_attr->max_order_waw_size == SIZE_MAX);
	assert_int_equal(info->ep_attr->tx_ctx_cnt, 1);
	assert_int_equal(info->ep_attr->rx_ctx_cnt, 1);
	assert_int_equal(info->ep_attr->auth_key_size, 0);
	assert_null(info->ep_attr->auth_key);

	assert_string_equal(info->domain_attr->name, TF_PROVIDER);
	assert_int_equal(info->domain_attr->threading, FI_THREAD_SAFE);
	assert_int_equal(info->domain_attr->control_progress, FI_PROGRESS_MANUAL);
	assert_int_equal(info->domain_attr->data_progress, FI_PROGRESS_MANUAL);
	assert_int_equal(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
	assert_int_equal(info->domain_attr->av_type, FI_AV_UNSPEC);
	assert_int_equal(info->domain_attr->cq_data_size, 8);
	assert_int_equal(info->domain_attr->mr_key_size, 8);
	assert_true(info->domain_attr->mr_iov_limit >= 256);
	assert_true(info->domain_attr->mr_cnt >= 100000);
	assert_true(info->domain_attr->cntr_cnt >= 1024);
	assert_int_equal(info->domain_attr->mode, 0);
	assert_int_equal(info->domain_attr->max_ep_tx_ctx, CONTEXTS);
	assert_int_equal(info->domain_attr->max_ep_rx_ctx, CONTEXTS);
	assert_true(info->domain_attr->max_ep_stx_ctx > 1);
	assert_true(info->domain_attr->max_ep_srx_ctx > 1);
	assert_int_equal(info->domain_attr->caps, info->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV));

	assert_string_equal(info->fabric_attr->name, TF_PROVIDER);
	assert_string_equal(info->fabric_attr->prov_name, TF_PROVIDER);
	assert_true(info->fabric_attr->prov_version);
}

static const struct fi_info *find_own(const struct fi_info *list)
{
	while (list && strcmp(list->fabric_attr->prov_name, TF_PROVIDER))
		list = list->next;
	return list;
}

static void test_no_hints(void **state)
{
	struct fi_info *list;

	(void)state;
	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, 0, NULL, &list));
	assert_non_null(find_own(list));
	check_default(find_own(list));
	fi_freeinfo(list);
}

static void test_name_only(void **state)
{
	struct fi_info *info = ask();

	(void)state;
	check_default(info);
	assert_int_equal(info->fabric_attr->api_version, TF_VERSION);
	fi_freeinfo(info);
}

/* Empty hints, and hints without any attribute structure. */
static void test_bare_hints(void **state)
{
	struct fi_info bare = { 0 };
	struct fi_info *empty = fi_allocinfo();
	struct fi_info *list;

	(void)state;
	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, 0, &bare, &list));
	check_default(find_own(list));
	fi_freeinfo(list);
	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, 0, empty, &list));
	check_default(find_own(list));
	fi_freeinfo(list);
	fi_freeinfo(empty);
}

static void test_versions(void **state)
{
	static const uint32_t versions[] = { 0,
					     FI_VERSION(1, 0),
					     FI_VERSION(1, 4),
					     FI_VERSION(1, 5),
					     FI_VERSION(1, 11),
					     FI_VERSION(1, 17) };
	struct fi_info *info;

	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		tf_ok(fi_getinfo(versions[i], NULL, NULL, 0, hints, &info));
		check_default(info);
		assert_int_equal(info->fabric_attr->api_version, versions[i]);
		assert_int_equal(info->domain_attr->mr_mode,
				 versions[i] < FI_VERSION(1, 5) ? FI_MR_SCALABLE : 0);
		fi_freeinfo(info);
	}
	tf_ok(fi_getinfo(fi_version(), NULL, NULL, 0, hints, &info));
	fi_freeinfo(info);
	tf_expect(fi_getinfo(fi_version() + 1, NULL, NULL, 0, hints, &info), -FI_ENOSYS);
}

/* An info that fi_getinfo has given is accepted again, as hints and by the calls that open objects. */
static void test_answer_as_hints(void **state)
{
	struct fi_info *first = ask();
	struct fi_info *second = tf_getinfo(first);
	struct tf t;

	(void)state;
	check_default(second);
	assert_int_equal(first->caps, second->caps);
	assert_int_equal(first->tx_attr->caps, second->tx_attr->caps);
	assert_int_equal(first->rx_attr->caps, second->rx_attr->caps);
	tf_open(&t, second);
	tf_close(&t);
	fi_freeinfo(second);
	fi_freeinfo(first);
}

/* ---- capabilities ---------------------------------------------------------------------------- */

static void check_direction(uint64_t got, uint64_t asked, uint64_t kinds, bool has)
{
	assert_int_equal(got & kinds, has ? asked & kinds : 0);
}

static void check_caps(uint64_t asked)
{
	struct fi_info *info;
	uint64_t granted, tx, rx;

	hints->caps = asked;
	info = ask();
	granted = asked;
	if (asked & MESSAGES && !(asked & DIRECTIONS))
		granted |= DIRECTIONS;
	if (asked & MEMORY && !(asked & ACCESSES))
		granted |= ACCESSES;
	assert_int_equal(info->caps & granted, granted);
	assert_int_equal(info->caps & ~granted & ~SECONDARY, 0);
	if (!(asked & (MEMORY | FI_RMA_EVENT)))
		assert_int_equal(info->caps & FI_RMA_EVENT, 0);
	tx = info->tx_attr->caps;
	rx = info->rx_attr->caps;
	assert_int_equal(tx & ~(info->caps & TX_GRANTABLE), 0);
	assert_int_equal(rx & ~(info->caps & RX_GRANTABLE), 0);
	/* kinds that are modified at all are there only where a modifier says so */
	if (granted & DIRECTIONS) {
		check_direction(tx, granted, MESSAGES, granted & FI_SEND);
		check_direction(rx, granted, MESSAGES | FI_DIRECTED_RECV, granted & FI_RECV);
	}
	if (granted & ACCESSES) {
		check_direction(tx, granted, MEMORY, granted & INITIATE);
		check_direction(rx, granted, MEMORY, granted & BE_TARGET);
	}
	if (tx & MESSAGES)
		assert_true(tx & FI_SEND);
	if (rx & MESSAGES)
		assert_true(rx & FI_RECV);
	if (tx & MEMORY)
		assert_int_equal(tx & INITIATE, granted & INITIATE);
	if (rx & MEMORY)
		assert_int_equal(rx & BE_TARGET, granted & BE_TARGET);
	fi_freeinfo(info);
}

/* Every combination of what can be had; of the secondary ones, one each of the kinds that there are. */
static void test_caps_granted(void **state)
{
	static const uint64_t bits[] = { FI_MSG,	FI_TAGGED,   FI_RMA,	       FI_ATOMIC,
					 FI_READ,	FI_WRITE,    FI_REMOTE_READ,   FI_REMOTE_WRITE,
					 FI_SEND,	FI_RECV,     FI_DIRECTED_RECV, FI_AV_USER_ID,
					 FI_MULTI_RECV, FI_RMA_EVENT, FI_SOURCE_ERR };
	const unsigned int count = sizeof(bits) / sizeof(bits[0]);

	(void)state;
	for (unsigned int set = 1; set < 1u << count; set++) {
		uint64_t asked = 0;

		for (unsigned int i = 0; i < count; i++)
			asked |= set >> i & 1 ? bits[i] : 0;
		check_caps(asked);
	}
	for (unsigned int bit = 0; bit < 64; bit++)
		if (SECONDARY >> bit & 1)
			check_caps(FI_MSG | FI_RMA | 1ULL << bit);
	check_caps(SECONDARY);
}

/* Each bit alone and together with messages. */
static void test_caps_refused(void **state)
{
	(void)state;
	for (unsigned int bit = 0; bit < 64; bit++) {
		if (GRANTABLE >> bit & 1)
			continue;
		hints->caps = 1ULL << bit;
		refused();
		hints->caps |= FI_MSG | FI_TAGGED;
		refused();
	}
}

static void test_context_caps(void **state)
{
	struct fi_info *info;

	(void)state;
	/* a part of what the endpoint was asked for */
	hints->caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
	hints->tx_attr->caps = FI_TAGGED;
	hints->rx_attr->caps = FI_MSG | FI_RECV;
	info = ask();
	assert_int_equal(info->tx_attr->caps & (FI_MSG | FI_TAGGED | FI_SEND), FI_TAGGED | FI_SEND);
	assert_int_equal(info->rx_attr->caps & (FI_MSG | FI_TAGGED | FI_RECV | FI_DIRECTED_RECV),
			 FI_MSG | FI_RECV);
	fi_freeinfo(info);
	/* more than that */
	hints->caps = FI_MSG;
	refused();
	hints->tx_attr->caps = 0;
	hints->rx_attr->caps = FI_TAGGED;
	refused();
	/* of the other direction: it means nothing */
	hints->caps = 0;
	hints->tx_attr->caps = FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV;
	hints->rx_attr->caps = FI_TAGGED | FI_SEND | FI_RECV | FI_FENCE;
	info = ask();
	assert_int_equal(info->tx_attr->caps & (MESSAGES | FI_SEND | FI_RECV | FI_MULTI_RECV),
			 FI_MSG | FI_SEND);
	assert_int_equal(info->rx_attr->caps & (MESSAGES | FI_SEND | FI_RECV | FI_FENCE),
			 FI_TAGGED | FI_RECV);
	fi_freeinfo(info);
	/* of none */
	hints->rx_attr->caps = FI_LOCAL_COMM;
	refused();
	hints->rx_attr->caps = 0;
	hints->tx_attr->caps = FI_SHARED_AV;
	refused();
	hints->tx_attr->caps = FI_MSG | FI_SEND | FI_FENCE;
	accepted();
}

static void test_context_caps_memory(void **state)
{
	struct fi_info *info;

	(void)state;
	/* without modifiers, those that the endpoint was granted */
	hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
	hints->tx_attr->caps = FI_RMA;
	hints->rx_attr->caps = FI_ATOMIC | FI_REMOTE_READ;
	info = ask();
	assert_int_equal(info->tx_attr->caps & (MESSAGES | MEMORY | ACCESSES), FI_RMA | INITIATE);
	assert_int_equal(info->rx_attr->caps & (MESSAGES | MEMORY | ACCESSES), FI_ATOMIC | FI_REMOTE_READ);
	fi_freeinfo(info);
	hints->caps |= FI_WRITE | FI_REMOTE_READ;
	info = ask();
	assert_int_equal(info->tx_attr->caps & (MEMORY | ACCESSES), FI_RMA | FI_WRITE);
	fi_freeinfo(info);
	/* capabilities that the endpoint does not have */
	hints->tx_attr->caps = FI_RMA | FI_READ;
	refused();
	hints->tx_attr->caps = FI_RMA | FI_REMOTE_WRITE;
	refused();
	hints->tx_attr->caps = FI_RMA | FI_WRITE;
	accepted();
	hints->rx_attr->caps = FI_RMA | FI_REMOTE_WRITE;
	refused();
	hints->rx_attr->caps = FI_RMA | FI_REMOTE_READ | FI_RMA_EVENT;
	accepted();
	/* an endpoint for messages alone has nothing of it */
	hints->tx_attr->caps = hints->rx_attr->caps = 0;
	hints->caps = FI_MSG;
	info = ask();
	assert_int_equal((info->caps | info->tx_attr->caps | info->rx_attr->caps) & (MEMORY | ACCESSES),
			 0);
	assert_int_equal(info->caps & FI_RMA_EVENT, 0);
	assert_int_equal(info->tx_attr->rma_iov_limit, 0);
	assert_int_equal(info->ep_attr->max_order_raw_size, 0);
	fi_freeinfo(info);
	hints->tx_attr->rma_iov_limit = 1;
	refused();
	hints->tx_attr->rma_iov_limit = 0;
	hints->ep_attr->max_order_waw_size = 1;
	refused();
}

/* Modes are what the application can live with: no reason to refuse, and none is needed. */
static void test_mode(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->mode = hints->tx_attr->mode = hints->rx_attr->mode = hints->domain_attr->mode = ~0ULL;
	info = ask();
	check_default(info);
	fi_freeinfo(info);
}

/* ---- transmit, receive, endpoint ------------------------------------------------------------- */

static void test_op_flags(void **state)
{
	static const uint64_t tx = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE |
				   FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_TRIGGER;
	static const uint64_t rx = FI_COMPLETION | FI_MULTI_RECV | FI_TRIGGER;
	struct fi_info *info;

	(void)state;
	hints->tx_attr->op_flags = tx;
	hints->rx_attr->op_flags = rx;
	info = ask();
	assert_int_equal(info->tx_attr->op_flags, tx);
	assert_int_equal(info->rx_attr->op_flags, rx);
	fi_freeinfo(info);
	for (unsigned int bit = 0; bit < 64; bit++) {
		hints->tx_attr->op_flags = 1ULL << bit;
		hints->rx_attr->op_flags = 0;
		if (tx >> bit & 1)
			accepted();
		else
			refused();
		hints->tx_attr->op_flags = 0;
		hints->rx_attr->op_flags = 1ULL << bit;
		if (rx >> bit & 1)
			accepted();
		else
			refused();
	}
}

static uint64_t order_for(uint64_t caps, uint64_t order)
{
	struct fi_info *info;
	uint64_t granted;

	hints->caps = caps;
	hints->tx_attr->msg_order = order;
	hints->rx_attr->msg_order = order;
	info = ask();
	granted = info->tx_attr->msg_order;
	assert_int_equal(info->rx_attr->msg_order, granted);
	assert_int_equal(granted & order, order);
	fi_freeinfo(info);
	return granted;
}

static void order_refused(uint64_t caps, uint64_t order)
{
	hints->caps = caps;
	for (unsigned int bit = 0; bit < 64; bit++) {
		if (!(order >> bit & 1))
			continue;
		hints->rx_attr->msg_order = 0;
		hints->tx_attr->msg_order = 1ULL << bit;
		refused();
		hints->tx_attr->msg_order = 0;
		hints->rx_attr->msg_order = 1ULL << bit;
		refused();
	}
	hints->rx_attr->msg_order = 0;
}

static void test_order(void **state)
{
	const uint64_t all = MEMORY_ORDER | MIXED_ORDER | RMA_ORDER | ATOMIC_ORDER | FI_ORDER_SAS;

	(void)state;
	assert_int_equal(FI_ORDER_STRICT & ~all, 0);
	/* orders that cost nothing are granted always, the others on demand */
	assert_int_equal(order_for(0, 0), FI_ORDER_SAS | RMA_ORDER | ATOMIC_ORDER);
	assert_int_equal(order_for(FI_MSG, 0), FI_ORDER_SAS);
	assert_int_equal(order_for(FI_TAGGED, all), all);
	assert_int_equal(order_for(FI_RMA, 0), FI_ORDER_SAS | RMA_ORDER | MEMORY_ORDER);
	assert_int_equal(order_for(FI_RMA, all), all);
	assert_int_equal(order_for(FI_ATOMIC, 0), FI_ORDER_SAS | ATOMIC_ORDER | MEMORY_ORDER);
	assert_int_equal(order_for(FI_RMA | FI_ATOMIC, 0), FI_ORDER_SAS | RMA_ORDER | ATOMIC_ORDER);
	assert_int_equal(order_for(FI_RMA | FI_MSG, all), all);
	assert_int_equal(order_for(FI_RMA | FI_ATOMIC | FI_TAGGED, all), all);
	assert_int_equal(order_for(0, FI_ORDER_SAW) & MIXED_ORDER, FI_ORDER_SAW);
	assert_int_equal(order_for(FI_RMA | FI_ATOMIC, FI_ORDER_WAW) & MEMORY_ORDER, FI_ORDER_WAW);
	/* orders that do not exist */
	order_refused(FI_MSG, ~all);
	order_refused(0, ~all);
	hints->caps = 0;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = 0;
	for (int i = 0; i < 4; i++) {
		struct fi_info *info;

		hints->tx_attr->comp_order = i & 1 ? FI_ORDER_STRICT : FI_ORDER_NONE;
		hints->rx_attr->comp_order = i & 2 ? FI_ORDER_STRICT : FI_ORDER_NONE;
		info = ask();
		assert_int_equal(info->tx_attr->comp_order, hints->tx_attr->comp_order);
		assert_int_equal(info->rx_attr->comp_order, hints->rx_attr->comp_order);
		fi_freeinfo(info);
	}
	hints->rx_attr->comp_order = FI_ORDER_DATA;
	refused();
	hints->rx_attr->comp_order = FI_ORDER_STRICT | FI_ORDER_DATA;
	refused();
}

static void test_sizes(void **state)
{
	struct fi_info *info = ask();

	(void)state;
	CHECK_MAX(tx_attr->inject_size, info->tx_attr->inject_size);
	CHECK_MAX(tx_attr->size, 65536);
	CHECK_MAX(tx_attr->iov_limit, info->tx_attr->iov_limit);
	CHECK_MAX(tx_attr->rma_iov_limit, info->tx_attr->rma_iov_limit);
	CHECK_MAX(rx_attr->size, 65536);
	CHECK_MAX(rx_attr->iov_limit, info->rx_attr->iov_limit);
	CHECK_MAX(ep_attr->max_msg_size, info->ep_attr->max_msg_size);
	CHECK_CONTEXTS(ep_attr->tx_ctx_cnt);
	CHECK_CONTEXTS(ep_attr->rx_ctx_cnt);
	hints->ep_attr->max_order_raw_size = SIZE_MAX;
	accepted();
	hints->ep_attr->max_order_war_size = SIZE_MAX;
	accepted();
	hints->ep_attr->max_order_waw_size = SIZE_MAX;
	accepted();
	fi_freeinfo(info);

	hints->tx_attr->size = 1;
	hints->rx_attr->size = 30000;
	hints->rx_attr->total_buffered_recv = 1 << 30; /* may be ignored */
	info = ask();
	assert_true(info->tx_attr->size >= 1);
	assert_true(info->rx_attr->size >= 30000);
	fi_freeinfo(info);
}

static void test_ep_type(void **state)
{
	(void)state;
	hints->ep_attr->type = FI_EP_RDM;
	accepted();
	hints->ep_attr->type = FI_EP_MSG;
	refused();
	hints->ep_attr->type = FI_EP_DGRAM;
	refused();
	hints->ep_attr->type = FI_EP_SOCK_STREAM;
	refused();
	hints->ep_attr->type = 77;
	refused();
}

static void test_protocol(void **state)
{
	struct fi_info *info = ask();

	(void)state;
	hints->ep_attr->protocol = info->ep_attr->protocol;
	hints->ep_attr->protocol_version = info->ep_attr->protocol_version;
	accepted();
	hints->ep_attr->protocol_version++;
	refused();
	hints->ep_attr->protocol_version = 0;
	hints->ep_attr->protocol = FI_PROTO_SHM;
	refused();
	fi_freeinfo(info);
}

static void test_tag_format(void **state)
{
	static const uint64_t formats[] = { 0x007000007fffffff, 0x30ff, 1, ~0ULL, 0xaaaaaaaaaaaaaaaa,
					    0x5555555555555555 };
	struct fi_info *info = ask();

	(void)state;
	assert_int_equal(info->ep_attr->mem_tag_format >> 63, 1); /* all 64 bits */
	fi_freeinfo(info);
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		hints->ep_attr->mem_tag_format = formats[i];
		info = ask();
		assert_true(info->ep_attr->mem_tag_format == formats[i]);
		fi_freeinfo(info);
	}
}

/* A context has one direction, and a collective operation needs both. */
static void test_collective_contexts(void **state)
{
	static const size_t counts[] = { 1, FI_SHARED_CONTEXT };
	struct fi_info *info;

	(void)state;
	hints->caps = FI_MSG | FI_COLLECTIVE;
	for (int i = 0; i < 2; i++) {
		hints->ep_attr->tx_ctx_cnt = hints->ep_attr->rx_ctx_cnt = counts[i];
		accepted();
	}
	hints->ep_attr->tx_ctx_cnt = 2;
	refused();
	hints->ep_attr->tx_ctx_cnt = 1;
	hints->ep_attr->rx_ctx_cnt = 2;
	refused();
	hints->caps = 0;
	info = ask();
	assert_true(!(info->caps & FI_COLLECTIVE) && !info->next);
	fi_freeinfo(info);
}

static void test_auth_key(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->ep_attr->auth_key = calloc(1, 8);
	hints->ep_attr->auth_key_size = 8;
	refused();
	/* the field is younger than that */
	tf_ok(fi_getinfo(FI_VERSION(1, 4), NULL, NULL, 0, hints, &info));
	fi_freeinfo(info);
	free(hints->ep_attr->auth_key);
	hints->ep_attr->auth_key = NULL;
	hints->ep_attr->auth_key_size = 0;

	hints->domain_attr->auth_key = calloc(1, 8);
	hints->domain_attr->auth_key_size = 8;
	refused();
}

static void test_traffic_class(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->tx_attr->tclass = FI_TC_LOW_LATENCY;
	hints->domain_attr->tclass = FI_TC_BULK_DATA;
	info = ask();
	assert_int_equal(info->tx_attr->tclass, FI_TC_LOW_LATENCY);
	assert_int_equal(info->domain_attr->tclass, FI_TC_BULK_DATA);
	fi_freeinfo(info);
}

/* ---- domain, fabric -------------------------------------------------------------------------- */

static void test_threading(void **state)
{
	(void)state;
	for (int threading = FI_THREAD_SAFE; threading <= FI_THREAD_ENDPOINT; threading++) {
		struct fi_info *info;

		hints->domain_attr->threading = threading;
		info = ask();
		assert_int_equal(info->domain_attr->threading, threading);
		fi_freeinfo(info);
	}
	hints->domain_attr->threading = 77;
	refused();
}

static void test_progress(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	accepted();
	hints->domain_attr->control_progress = FI_PROGRESS_AUTO;
	info = ask();
	assert_int_equal(info->domain_attr->control_progress, FI_PROGRESS_AUTO);
	fi_freeinfo(info);
	hints->domain_attr->control_progress = 77;
	refused();
	hints->domain_attr->control_progress = 0;
	hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	info = ask();
	assert_int_equal(info->domain_attr->data_progress, FI_PROGRESS_AUTO);
	fi_freeinfo(info);
	hints->domain_attr->data_progress = 77;
	refused();
}

/*
 * Calls that drive data also drive control operations (libfabric 2.x): 3. There the field `progress` shares its place with
 * data_progress, and implies manual progress.
 */
static void test_progress_unified(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->domain_attr->data_progress = 3;
	info = ask();
	assert_int_equal(info->domain_attr->data_progress, 3);
	assert_int_equal(info->domain_attr->control_progress, 3);
	fi_freeinfo(info);
	hints->domain_attr->control_progress = FI_PROGRESS_AUTO;
	info = ask();
	assert_int_equal(info->domain_attr->data_progress, 3);
	assert_int_equal(info->domain_attr->control_progress, FI_PROGRESS_AUTO);
	fi_freeinfo(info);
	hints->domain_attr->control_progress = 0;
	hints->domain_attr->data_progress = 4;
	refused();
}

static void test_resource_and_av(void **state)
{
	(void)state;
	hints->domain_attr->resource_mgmt = FI_RM_DISABLED;
	accepted();
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	accepted();
	hints->domain_attr->resource_mgmt = 77;
	refused();
	hints->domain_attr->resource_mgmt = 0;
	for (int type = FI_AV_UNSPEC; type <= FI_AV_TABLE; type++) {
		struct fi_info *info;

		hints->domain_attr->av_type = type;
		info = ask();
		assert_int_equal(info->domain_attr->av_type, type);
		fi_freeinfo(info);
	}
	hints->domain_attr->av_type = 77;
	refused();
}

static int mr_mode_for(uint32_t version, int mode)
{
	struct fi_info *info;
	int granted;

	hints->domain_attr->mr_mode = mode;
	if (fi_getinfo(version, NULL, NULL, 0, hints, &info))
		return -1;
	granted = info->domain_attr->mr_mode;
	fi_freeinfo(info);
	return granted;
}

/* An application that accepts other modes, too, has to keep none; one that names only basic ones gets them. */
static void test_mr_mode(void **state)
{
	static const int used = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	static const int basic = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED;

	(void)state;
	for (int mode = 0; mode < 1 << 12; mode += FI_MR_LOCAL)
		assert_int_equal(mr_mode_for(TF_VERSION, mode), mode & ~basic ? 0 : mode & used);
	assert_int_equal(mr_mode_for(FI_VERSION(1, 5), basic), used);
	assert_int_equal(mr_mode_for(TF_VERSION, 1 << 20 | FI_MR_PROV_KEY), 0);
	assert_int_equal(mr_mode_for(TF_VERSION, FI_MR_BASIC), FI_MR_BASIC);
	assert_int_equal(mr_mode_for(TF_VERSION, FI_MR_SCALABLE), FI_MR_SCALABLE);
	assert_int_equal(mr_mode_for(TF_VERSION, FI_MR_BASIC | FI_MR_LOCAL), -1);
	assert_int_equal(mr_mode_for(TF_VERSION, FI_MR_SCALABLE | FI_MR_VIRT_ADDR), -1);
	assert_int_equal(mr_mode_for(TF_VERSION, FI_MR_BASIC | FI_MR_SCALABLE), -1);
	assert_int_equal(mr_mode_for(FI_VERSION(1, 4), FI_MR_UNSPEC), FI_MR_SCALABLE);
	assert_int_equal(mr_mode_for(FI_VERSION(1, 4), FI_MR_BASIC), FI_MR_BASIC);
	assert_int_equal(mr_mode_for(FI_VERSION(1, 4), FI_MR_SCALABLE), FI_MR_SCALABLE);
	assert_int_equal(mr_mode_for(FI_VERSION(1, 4), FI_MR_VIRT_ADDR), -1);
	assert_int_equal(mr_mode_for(FI_VERSION(1, 4), FI_MR_LOCAL), -1);
	/* the mode bit that FI_MR_LOCAL was before */
	hints->mode = FI_LOCAL_MR;
	assert_int_equal(mr_mode_for(FI_VERSION(1, 4), FI_MR_BASIC), FI_MR_BASIC);
	/* where no memory is accessed there is nothing to say */
	hints->caps = FI_TAGGED;
	assert_int_equal(mr_mode_for(TF_VERSION, used), 0);
	assert_int_equal(mr_mode_for(TF_VERSION, FI_MR_BASIC), FI_MR_BASIC);
	hints->caps = FI_TAGGED | FI_ATOMIC;
	assert_int_equal(mr_mode_for(TF_VERSION, used), used);
}

static void test_domain_numbers(void **state)
{
	struct fi_info *info = ask();

	(void)state;
	CHECK_MAX(domain_attr->mr_key_size, info->domain_attr->mr_key_size);
	CHECK_MAX(domain_attr->cq_data_size, info->domain_attr->cq_data_size);
	CHECK_MAX(domain_attr->cq_cnt, info->domain_attr->cq_cnt);
	CHECK_MAX(domain_attr->ep_cnt, info->domain_attr->ep_cnt);
	CHECK_MAX(domain_attr->tx_ctx_cnt, info->domain_attr->tx_ctx_cnt);
	CHECK_MAX(domain_attr->rx_ctx_cnt, info->domain_attr->rx_ctx_cnt);
	CHECK_MAX(domain_attr->max_ep_tx_ctx, CONTEXTS);
	CHECK_MAX(domain_attr->max_ep_rx_ctx, CONTEXTS);
	CHECK_MAX(domain_attr->max_ep_stx_ctx, info->domain_attr->max_ep_stx_ctx);
	CHECK_MAX(domain_attr->max_ep_srx_ctx, info->domain_attr->max_ep_srx_ctx);
	CHECK_MAX(domain_attr->cntr_cnt, info->domain_attr->cntr_cnt);
	CHECK_MAX(domain_attr->mr_iov_limit, info->domain_attr->mr_iov_limit);
	CHECK_MAX(domain_attr->mr_cnt, info->domain_attr->mr_cnt);
	CHECK_MAX(domain_attr->max_err_data, info->domain_attr->max_err_data);
	fi_freeinfo(info);
	/* an unknown sender's address is the only data of an error */
	hints->caps = FI_MSG | FI_SOURCE_ERR;
	info = ask();
	assert_int_equal(info->domain_attr->max_err_data, TF_NAME_SIZE);
	CHECK_MAX(domain_attr->max_err_data, info->domain_attr->max_err_data);
	fi_freeinfo(info);
}

static void test_domain_caps(void **state)
{
	(void)state;
	hints->domain_attr->caps = FI_LOCAL_COMM;
	accepted();
	hints->domain_attr->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
	accepted();
	hints->domain_attr->caps = FI_SHARED_AV;
	accepted();
	hints->domain_attr->caps = FI_MSG;
	refused();
	/* before 1.5 there was no such field */
	hints->domain_attr->caps = FI_MSG;
	assert_int_equal(mr_mode_for(FI_VERSION(1, 4), 0), FI_MR_SCALABLE);
}

static void test_names(void **state)
{
	(void)state;
	hints->domain_attr->name = strdup(TF_PROVIDER);
	hints->fabric_attr->name = strdup(TF_PROVIDER);
	accepted();
	hints->domain_attr->name[0] = 'S';
	hints->fabric_attr->name[0] = 'S';
	accepted();
	hints->domain_attr->name[0] = 'x';
	refused();
	hints->domain_attr->name[0] = 's';
	hints->fabric_attr->name[0] = 'x';
	refused();
	hints->fabric_attr->name[0] = 's';
	hints->fabric_attr->prov_version = FI_VERSION(0, 1);
	accepted();
	hints->fabric_attr->prov_version = FI_VERSION(9, 9);
	refused();
}

/* Objects that are open are reported, and a hint for one finds it. */
static void test_open_objects(void **state)
{
	struct fid_domain stranger = { .fid.fclass = FI_CLASS_DOMAIN };
	struct fid_fabric alien = { .fid.fclass = FI_CLASS_FABRIC };
	struct fi_info *info;
	struct tf first, second;
	struct fid_ep *ep;

	(void)state;
	tf_open_domain(&first, NULL);
	tf_open_domain(&second, NULL);
	info = ask();
	assert_ptr_equal(info->fabric_attr->fabric, first.fabric);
	assert_ptr_equal(info->domain_attr->domain, first.domain);
	fi_freeinfo(info);

	hints->fabric_attr->fabric = second.fabric;
	info = ask();
	assert_ptr_equal(info->fabric_attr->fabric, second.fabric);
	assert_ptr_equal(info->domain_attr->domain, second.domain);
	fi_freeinfo(info);
	hints->domain_attr->domain = second.domain;
	accepted();
	hints->domain_attr->domain = first.domain; /* of the other fabric */
	refused();
	hints->fabric_attr->fabric = NULL;
	hints->domain_attr->domain = second.domain;
	info = ask();
	assert_ptr_equal(info->fabric_attr->fabric, second.fabric);
	assert_ptr_equal(info->domain_attr->domain, second.domain);
	hints->domain_attr->domain = &stranger;
	refused();
	hints->domain_attr->domain = NULL;
	hints->fabric_attr->fabric = &alien;
	refused();
	tf_close(&second);
	/* the info that names the closed objects can open others */
	assert_int_equal(fi_fabric(info->fabric_attr, &second.fabric, NULL), 0);
	assert_int_equal(fi_domain(second.fabric, info, &second.domain, NULL), 0);
	assert_int_equal(fi_endpoint(second.domain, info, &ep, NULL), 0);
	assert_int_equal(fi_close(&ep->fid), 0);
	assert_int_equal(fi_scalable_ep(second.domain, info, &ep, NULL), 0);
	assert_int_equal(fi_close(&ep->fid), 0);
	assert_int_equal(fi_close(&second.domain->fid), 0);
	assert_int_equal(fi_close(&second.fabric->fid), 0);
	fi_freeinfo(info);
	tf_close(&first);

	hints->fabric_attr->fabric = NULL;
	info = ask();
	assert_null(info->fabric_attr->fabric);
	assert_null(info->domain_attr->domain);
	fi_freeinfo(info);
}

static int nic_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

static int nic_close(struct fid *fid)
{
	(void)fid;
	return 0;
}

static void test_handle_and_nic(void **state)
{
	/* newer libraries make a copy of the hints, by these */
	struct fi_ops ops = { .size = sizeof(ops), .close = nic_close, .control = nic_control };
	struct fid_nic nic = { .fid = { .fclass = FI_CLASS_NIC, .ops = &ops } };
	struct fid handle = { .fclass = FI_CLASS_PEP };

	(void)state;
	hints->handle = &handle;
	refused();
	hints->handle = NULL;
	hints->nic = &nic;
	refused();
	hints->nic = NULL;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void test_addr_format(void **state)
{
	(void)state;
	hints->addr_format = FI_ADDR_STR;
	accepted();
	for (uint32_t format = FI_FORMAT_UNSPEC + 1; format < 30; format++) {
		hints->addr_format = format;
		if (format != FI_ADDR_STR)
			refused();
	}
}

/* src_addr and dest_addr of the answer; NULL: none. A NULL source: the whole answer is a refusal. */
static void check_node(const char *node, const char *service, uint64_t flags, const char *source,
		       const char *destination)
{
	struct fi_info *info = NULL;
	int ret = fi_getinfo(TF_VERSION, node, service, flags, hints, &info);

	if (!source) {
		tf_expect(ret, -FI_ENODATA);
		return;
	}
	tf_ok(ret);
	assert_string_equal(info->src_addr, source);
	assert_int_equal(info->src_addrlen, strlen(source) + 1);
	if (destination) {
		assert_string_equal(info->dest_addr, destination);
		assert_int_equal(info->dest_addrlen, strlen(destination) + 1);
	} else {
		assert_null(info->dest_addr);
		assert_int_equal(info->dest_addrlen, 0);
	}
	fi_freeinfo(info);
}

#define ANY TF_PREFIX
#define ENDPOINT_ADDR TF_PREFIX "0123456789a-000003e8-00000001-0011223344556677-0000"

static void test_source(void **state)
{
	char host[256];

	(void)state;
	check_node(NULL, "9228", FI_SOURCE, TF_PREFIX "9228", NULL);
	check_node("localhost", "9228", FI_SOURCE, TF_PREFIX "9228", NULL);
	check_node("127.0.0.1", "9228", FI_SOURCE, TF_PREFIX "9228", NULL);
	check_node("127.0.0.1", "9228", FI_SOURCE | FI_NUMERICHOST, TF_PREFIX "9228", NULL);
	check_node("0.0.0.0", "9228", FI_SOURCE, TF_PREFIX "9228", NULL);
	check_node("::1", "9228", FI_SOURCE | FI_NUMERICHOST, TF_PREFIX "9228", NULL);
	assert_int_equal(gethostname(host, sizeof(host)), 0);
	check_node(host, "9228", FI_SOURCE, TF_PREFIX "9228", NULL);
	check_node("localhost", NULL, FI_SOURCE, ANY, NULL);
	check_node(TF_PREFIX "name.of:a@service", NULL, FI_SOURCE, TF_PREFIX "name.of:a@service", NULL);
	check_node(TF_PREFIX, NULL, FI_SOURCE, ANY, NULL);

	check_node(NULL, NULL, FI_SOURCE, NULL, NULL);
	check_node(TF_PREFIX "a", "b", FI_SOURCE, NULL, NULL);
	check_node(TF_PREFIX "a b", NULL, FI_SOURCE, NULL, NULL);
	check_node(ENDPOINT_ADDR, NULL, FI_SOURCE, NULL, NULL);
	check_node("192.0.2.1", "9228", FI_SOURCE | FI_NUMERICHOST, NULL, NULL);
	check_node("192.0.2.1", NULL, FI_SOURCE | FI_NUMERICHOST, NULL, NULL);
	check_node("2001:db8::1", "9228", FI_SOURCE | FI_NUMERICHOST, NULL, NULL);
	check_node("localhost", "9228", FI_SOURCE | FI_NUMERICHOST, NULL, NULL);
	check_node(NULL, "a/b", FI_SOURCE, NULL, NULL);
	check_node(NULL, "", FI_SOURCE, NULL, NULL);
	check_node(NULL, "123456789012345678901234567890123456789012345678901", FI_SOURCE,
		   TF_PREFIX "123456789012345678901234567890123456789012345678901", NULL);
	check_node(NULL, "1234567890123456789012345678901234567890123456789012", FI_SOURCE, NULL, NULL);
}

static void test_destination(void **state)
{
	(void)state;
	check_node("127.0.0.1", "9228", 0, ANY, TF_PREFIX "9228");
	check_node(NULL, "9228", 0, ANY, TF_PREFIX "9228");
	check_node(TF_PREFIX "9228", NULL, 0, ANY, TF_PREFIX "9228");
	check_node(ENDPOINT_ADDR, NULL, 0, ANY, ENDPOINT_ADDR);
	/* a host that can be reached, but no endpoint there to have an address of */
	check_node("localhost", NULL, 0, ANY, NULL);
	check_node("127.0.0.1", NULL, FI_NUMERICHOST, ANY, NULL);
	check_node("192.0.2.1", NULL, FI_NUMERICHOST, NULL, NULL);
	check_node("localhost", NULL, FI_NUMERICHOST, NULL, NULL);
	check_node(TF_PREFIX, NULL, 0, NULL, NULL);
	check_node(TF_PREFIX "9228", "9228", 0, NULL, NULL);
	check_node("192.0.2.1", "9228", FI_NUMERICHOST, NULL, NULL);
}

static void set_addr(void **addr, size_t *len, const char *text)
{
	free(*addr);
	*addr = text ? strdup(text) : NULL;
	*len = text ? strlen(text) + 1 : 0;
}

#define SET_SRC(text) set_addr(&hints->src_addr, &hints->src_addrlen, text)
#define SET_DEST(text) set_addr(&hints->dest_addr, &hints->dest_addrlen, text)

static void test_hinted_addresses(void **state)
{
	(void)state;
	SET_SRC(TF_PREFIX "here");
	SET_DEST(TF_PREFIX "there");
	check_node(NULL, NULL, 0, TF_PREFIX "here", TF_PREFIX "there");
	/* node and service say the destination: the hint is ignored */
	check_node(NULL, "9228", 0, TF_PREFIX "here", TF_PREFIX "9228");
	/* they say the source */
	check_node(NULL, "9228", FI_SOURCE, TF_PREFIX "9228", TF_PREFIX "there");
	/* the length need not count the NUL */
	hints->dest_addrlen--;
	check_node(NULL, NULL, 0, TF_PREFIX "here", TF_PREFIX "there");
	hints->dest_addrlen = 0;
	check_node(NULL, NULL, 0, NULL, NULL);

	SET_DEST(ENDPOINT_ADDR);
	check_node(NULL, NULL, 0, TF_PREFIX "here", ENDPOINT_ADDR);
	SET_DEST("fi_shm://1234");
	check_node(NULL, NULL, 0, NULL, NULL);
	SET_DEST(TF_PREFIX);
	check_node(NULL, NULL, 0, NULL, NULL);
	SET_DEST(ENDPOINT_ADDR "0");
	check_node(NULL, NULL, 0, NULL, NULL);
	SET_DEST(NULL);

	hints->src_addrlen = 0;
	check_node(NULL, NULL, 0, NULL, NULL);
	SET_SRC(ANY);
	check_node(NULL, NULL, 0, ANY, NULL);
	SET_SRC("rubbish");
	check_node(NULL, NULL, 0, NULL, NULL);
	/* ignored */
	check_node(NULL, "9228", FI_SOURCE, TF_PREFIX "9228", NULL);
	/* nobody gets another's address, nor its own again */
	SET_SRC(ENDPOINT_ADDR);
	check_node(NULL, NULL, 0, NULL, NULL);
}

/* ---- flags, as the provider gets them -------------------------------------------------------- */

static struct fi_provider *provider(void)
{
	const char *directory = getenv("FI_PROVIDER_PATH");
	struct fi_provider *(*entry)(void);
	char path[4096];
	void *module;

	if (!directory)
		skip();
	accepted(); /* libfabric has loaded it */
	snprintf(path, sizeof(path), "%s/lib" TF_PROVIDER "-fi.so", directory);
	module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	if (!module)
		fail_msg("%s", dlerror());
	*(void **)&entry = dlsym(module, "fi_prov_ini");
	assert_non_null(entry);
	return entry();
}

static int call_provider(uint64_t flags)
{
	struct fi_info *info = (struct fi_info *)(uintptr_t)1;
	int ret = provider()->getinfo(TF_VERSION, NULL, "9228", flags, hints, &info);

	if (ret)
		assert_null(info);
	else
		fi_freeinfo(info);
	return ret;
}

static void test_flags(void **state)
{
	(void)state;
	tf_ok(call_provider(0));
	tf_ok(call_provider(FI_SOURCE));
	tf_ok(call_provider(FI_SOURCE | FI_NUMERICHOST));
	for (unsigned int bit = 0; bit < 64; bit++) {
		uint64_t flag = 1ULL << bit;

		if (bit >= 58) /* libfabric asks for something to put a utility provider on */
			tf_expect(call_provider(flag), -FI_ENODATA);
		else if (!(flag & (FI_SOURCE | FI_NUMERICHOST | FI_PROV_ATTR_ONLY | 1ULL << 35)))
			tf_expect(call_provider(flag), -FI_EBADFLAGS);
	}
}

static void test_provider_structure(void **state)
{
	struct fi_provider *own = provider();

	(void)state;
	assert_string_equal(own->name, TF_PROVIDER);
	assert_int_equal(own->fi_version, fi_version());
	assert_non_null(own->fabric);
	assert_non_null(own->cleanup);
	assert_ptr_equal(own, provider());
}

static void test_attributes_only(void **state)
{
	struct fi_info *list, *info;
	unsigned int seen = 0;

	(void)state;
	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, FI_PROV_ATTR_ONLY, NULL, &list));
	for (info = list; info; info = info->next)
		if (!strcmp(info->fabric_attr->prov_name, TF_PROVIDER)) {
			assert_true(info->fabric_attr->prov_version);
			seen++;
		}
	assert_int_equal(seen, 1);
	fi_freeinfo(list);
	/* with another flag the provider is asked itself */
	tf_ok(provider()->getinfo(TF_VERSION, NULL, NULL, FI_PROV_ATTR_ONLY | FI_NUMERICHOST, hints,
				  &info));
	assert_non_null(info);
	assert_null(info->next);
	assert_int_equal(info->caps, 0);
	fi_freeinfo(info);
}

/* ---- what MPI libraries ask for -------------------------------------------------------------- */

/* Open MPI's mtl, 4.1 and 5.0. */
static void test_open_mpi_mtl(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->caps = FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	tf_ok(fi_getinfo(FI_VERSION(1, 5), NULL, NULL, 0, hints, &info));
	assert_int_equal(info->domain_attr->threading, FI_THREAD_DOMAIN);
	assert_int_equal(info->caps & hints->caps, hints->caps);
	fi_freeinfo(info);

	hints->domain_attr->av_type = FI_AV_MAP;
	hints->domain_attr->cq_data_size = 4;
	hints->domain_attr->mr_mode = FI_MR_ALLOCATED;
	hints->caps |= FI_MSG;
	tf_ok(fi_getinfo(TF_VERSION, NULL, NULL, 0, hints, &info));
	assert_int_equal(info->caps & hints->caps, hints->caps);
	fi_freeinfo(info);
	/* it asks for this first, and then goes on */
	hints->caps |= FI_HMEM;
	hints->domain_attr->mr_mode |= FI_MR_HMEM;
	refused();
}

/* Its btl, 4.1, for one-sided operations: no messages. */
static void test_open_mpi_btl(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->caps = FI_RMA | FI_ATOMIC;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->domain_attr->threading = FI_THREAD_UNSPEC;
	hints->ep_attr->type = FI_EP_RDM;
	tf_ok(fi_getinfo(FI_VERSION(1, 5), NULL, NULL, 0, hints, &info));
	assert_int_equal(info->caps & (MEMORY | ACCESSES), MEMORY | ACCESSES);
	assert_int_equal(info->caps & MESSAGES, 0);
	assert_int_equal(info->domain_attr->mr_mode, FI_MR_PROV_KEY | FI_MR_VIRT_ADDR);
	assert_int_equal(info->domain_attr->mr_key_size, 8);
	fi_freeinfo(info);
}

/* MPICH 4.0, ch4:ofi. */
static void test_mpich(void **state)
{
	struct fi_info *info;

	(void)state;
	hints->caps = MESSAGES | MEMORY | ACCESSES | DIRECTIONS | FI_MULTI_RECV | FI_LOCAL_COMM |
		      FI_RMA_EVENT | FI_SOURCE | FI_DIRECTED_RECV;
	hints->mode = FI_CONTEXT | FI_ASYNC_IOV | FI_RX_CQ_DATA | FI_CONTEXT2;
	hints->addr_format = FI_FORMAT_UNSPEC;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS | ATOMIC_ORDER;
	hints->ep_attr->type = FI_EP_RDM;
	hints->ep_attr->mem_tag_format = 0x007000007fffffff;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->av_type = FI_AV_TABLE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->cq_data_size = 4;
	info = ask();
	assert_int_equal(info->caps & hints->caps, hints->caps);
	assert_int_equal(info->domain_attr->mr_mode, 0);
	fi_freeinfo(info);
}

/* MPICH's first question: which libfabric is this? */
static void test_mpich_first_question(void **state)
{
	struct fi_info *list;

	(void)state;
	tf_ok(fi_getinfo(FI_VERSION(0, 0), NULL, NULL, 0, NULL, &list));
	assert_non_null(find_own(list));
	fi_freeinfo(list);
}

/* ---- in processes of their own --------------------------------------------------------------- */

/* Runs this program for the scene with an environment; returns its stderr. */
static char *play(const char *scene, const char *const *environment, int *status)
{
	static char text[1 << 16];
	size_t len = 0;
	ssize_t got;
	int ends[2];
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		unsetenv("FI_PROVIDER");
		for (; *environment; environment++)
			putenv((char *)(uintptr_t)*environment);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl("/proc/self/exe", "test_getinfo", scene, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	while (len < sizeof(text) - 1 && (got = read(ends[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)got;
	text[len] = '\0';
	close(ends[0]);
	while (waitpid(child, status, 0) < 0)
		assert_int_equal(errno, EINTR);
	assert_true(WIFEXITED(*status));
	*status = WEXITSTATUS(*status);
	return text;
}

static int has_own(const struct fi_info *question)
{
	struct fi_info *list = NULL;
	int found;

	if (fi_getinfo(TF_VERSION, NULL, NULL, 0, question, &list))
		return 0;
	found = !!find_own(list);
	fi_freeinfo(list);
	return found;
}

/* 0 or 1: FI_REMOTE_COMM is offered unasked, by endpoint and domain alike; 100: nothing is offered. */
static int offers_remote(const struct fi_info *question)
{
	struct fi_info *list = NULL;
	const struct fi_info *own;
	int result = 100;

	if (fi_getinfo(TF_VERSION, NULL, NULL, 0, question, &list))
		return result;
	own = find_own(list);
	if (own) {
		result = !!(own->caps & FI_REMOTE_COMM);
		if (result != !!(own->domain_attr->caps & FI_REMOTE_COMM))
			result = 101;
	}
	fi_freeinfo(list);
	return result;
}

/* Bit 0: offered unasked; 1: granted when asked; 2: granted if the hints name the provider. */
static int scene_remote(void)
{
	struct fi_info *question = fi_allocinfo();
	int result = offers_remote(question);

	question->caps = FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM;
	result |= has_own(question) ? 2 : 0;
	question->fabric_attr->prov_name = strdup(TF_PROVIDER);
	result |= has_own(question) ? 4 : 0;
	fi_freeinfo(question);
	return result;
}

static int play_remote(const char *setting)
{
	const char *environment[] = { setting, NULL };
	int status;

	play("remote", environment, &status);
	return status;
}

static void test_remote_comm(void **state)
{
	(void)state;
	assert_int_equal(play_remote(NULL), 4);
	assert_int_equal(play_remote("FI_SHMCMA_REMOTE_COMM=1"), 7);
	assert_int_equal(play_remote("FI_SHMCMA_REMOTE_COMM=0"), 4);
	assert_int_equal(play_remote("FI_SHMCMA_REMOTE_COMM=rubbish"), 4);
	assert_int_equal(play_remote("FI_PROVIDER=tcp,shmcma"), 7);
	assert_int_equal(play_remote("FI_PROVIDER=shmcma"), 7);
	assert_int_equal(play_remote("FI_PROVIDER=^udp"), 4);
	assert_int_equal(play_remote("FI_PROVIDER=^shmcma"), 100);
}

/* No utility provider has put itself on top of this one, whatever the type of endpoint. */
static int scene_layers(void)
{
	struct fi_info *question = fi_allocinfo();
	struct fi_info *list;
	int own = 0;

	for (int type = FI_EP_UNSPEC; type <= FI_EP_RDM; type++) {
		question->ep_attr->type = type;
		if (fi_getinfo(TF_VERSION, NULL, NULL, 0, question, &list))
			continue;
		for (struct fi_info *info = list; info; info = info->next) {
			if (!strncasecmp(info->fabric_attr->prov_name, TF_PROVIDER ";",
					 strlen(TF_PROVIDER) + 1))
				return 1;
			own += !strcmp(info->fabric_attr->prov_name, TF_PROVIDER);
		}
		fi_freeinfo(list);
	}
	fi_freeinfo(question);
	return own == 4 ? 0 : 2; /* UNSPEC and RDM, without and with collectives */
}

static void test_no_layers(void **state)
{
	const char *environment[] = { NULL };
	int status;

	(void)state;
	play("layers", environment, &status);
	assert_int_equal(status, 0);
}

static int scene_refusals(void)
{
	struct fi_info *question = fi_allocinfo();

	question->fabric_attr->prov_name = strdup(TF_PROVIDER);
	question->ep_attr->type = FI_EP_DGRAM;
	if (has_own(question))
		return 1;
	question->ep_attr->type = FI_EP_RDM;
	question->caps = FI_MSG | FI_MULTICAST;
	if (has_own(question))
		return 1;
	question->caps = 0;
	question->tx_attr->inject_size = 1234567;
	if (has_own(question))
		return 1;
	fi_freeinfo(question);
	return 0;
}

static void test_reasons(void **state)
{
	const char *environment[] = { "FI_LOG_LEVEL=info", NULL };
	const char *text;
	int status;

	(void)state;
	text = play("refusals", environment, &status);
	assert_int_equal(status, 0);
	assert_non_null(strstr(text, "refused: ep_attr->type: asked for FI_EP_DGRAM, offered FI_EP_RDM"));
	assert_non_null(strstr(text, "refused: caps: asked for FI_MULTICAST, offered FI_MSG"));
	assert_non_null(strstr(text, "refused: tx_attr->inject_size: asked for 1234567, offered 4096"));
}

static const char *const good_parameters[] = {
	"FI_SHMCMA_PEERS=1024",	    "FI_SHMCMA_BOUNCE_SIZE=8192",
	"FI_SHMCMA_BOUNCE_COUNT=2", "FI_SHMCMA_INLINE_MAX=0",
	"FI_SHMCMA_EAGER_MAX=0",    "FI_SHMCMA_CMA=0",
	"FI_SHMCMA_REMOTE_COMM=0",  "FI_SHMCMA_RMA=trusted",
	"FI_SHMCMA_FILL=Streamed",  "FI_SHMCMA_YIELD=Never",
	"FI_LOG_LEVEL=warn",	    NULL,
};

static const char *const bad_parameters[] = {
	"FI_SHMCMA_PEERS=1025",
	"FI_SHMCMA_BOUNCE_SIZE=1000",
	"FI_SHMCMA_BOUNCE_COUNT=1",
	"FI_SHMCMA_INLINE_MAX=5000",
	"FI_SHMCMA_EAGER_MAX=4294967296",
	"FI_SHMCMA_CMA=perhaps",
	"FI_SHMCMA_REMOTE_COMM=rubbish",
	"FI_SHMCMA_RMA=friendly",
	"FI_SHMCMA_FILL=warm",
	"FI_SHMCMA_YIELD=sometimes",
	"FI_LOG_LEVEL=warn",
	NULL,
};

static const char *const more_bad_parameters[] = {
	"FI_SHMCMA_PEERS=many",
	"FI_SHMCMA_BOUNCE_SIZE=3072",
	"FI_SHMCMA_BOUNCE_COUNT=-1",
	"FI_LOG_LEVEL=warn",
	NULL,
};

static void check_warned(const char *text, const char *warning)
{
	if (!strstr(text, warning))
		fail_msg("no \"%s\" in: %s", warning, text);
}

/* A text that only begins with a number is no number, nor is a number that is too large. */
static const char *const worse_parameters[] = {
	"FI_SHMCMA_PEERS=1e9",
	"FI_SHMCMA_BOUNCE_COUNT=16 buffers",
	"FI_SHMCMA_INLINE_MAX=1k",
	"FI_SHMCMA_EAGER_MAX=32kb",
	"FI_SHMCMA_SHARE_MIN=99999999999999999999999",
	"FI_LOG_LEVEL=warn",
	NULL,
};

static const char *const unknown_parameters[] = {
	"FI_SHMCMA_EAGERMAX=1",
	"FI_SHMCMA_cma=0",
	"FI_SHMCMA_BOUNCE_SIZES=8192",
	"FI_SHMCMA_VERBOSITY=3",
	"FI_SHMCMA_=1",
	"FI_SHMCMA_PEERS=5",
	"FI_LOG_LEVEL=warn",
	NULL,
};

static const char *const odd_parameters[] = {
	"FI_SHMCMA_PEERS=0x10",	    "FI_SHMCMA_BOUNCE_COUNT= 64 ",
	"FI_SHMCMA_BOUNCE_SIZE=8k", "FI_SHMCMA_EAGER_MAX=128K",
	"FI_SHMCMA_SHARE_MIN=1g",   "FI_SHMCMA_INLINE_MAX=", /* as if it were not set */
	"FI_SHMCMA_CMA=",	    "FI_SHMCMA_RMA= ",
	"FI_LOG_LEVEL=warn",	    NULL,
};

/* A parameter out of range is warned about and has its default. */
static void test_parameters(void **state)
{
	const char *text;
	int status;

	(void)state;
	text = play("remote", good_parameters, &status);
	assert_int_equal(status, 4);
	if (strstr(text, ":" TF_PROVIDER ":"))
		fail_msg("%s", text);

	text = play("remote", bad_parameters, &status);
	assert_int_equal(status, 4);
	check_warned(text, "FI_SHMCMA_PEERS=1025 is not from 1 to 1024");
	check_warned(text, "FI_SHMCMA_BOUNCE_SIZE=1000 is not");
	check_warned(text, "FI_SHMCMA_BOUNCE_COUNT=1 is not");
	check_warned(text, "FI_SHMCMA_INLINE_MAX=5000 is not");
	check_warned(text, "FI_SHMCMA_EAGER_MAX=4294967296 is not");
	check_warned(text, "FI_SHMCMA_CMA=perhaps is neither yes nor no");
	check_warned(text, "FI_SHMCMA_REMOTE_COMM=rubbish is neither yes nor no");
	check_warned(text, "FI_SHMCMA_RMA=friendly is none of trusted, strict: using trusted");
	check_warned(text, "FI_SHMCMA_FILL=warm is none of cached, streamed, tried: using tried");
	check_warned(text, "FI_SHMCMA_YIELD=sometimes is none of auto, never, always: using auto");

	text = play("remote", more_bad_parameters, &status);
	assert_int_equal(status, 4);
	check_warned(text, "FI_SHMCMA_PEERS");
	check_warned(text, "FI_SHMCMA_BOUNCE_SIZE=3072 is not a power of two");
	check_warned(text, "FI_SHMCMA_BOUNCE_COUNT");

	text = play("remote", worse_parameters, &status);
	assert_int_equal(status, 4);
	check_warned(text, "FI_SHMCMA_PEERS=1e9 is not a number: using 1024");
	check_warned(text, "FI_SHMCMA_BOUNCE_COUNT=16 buffers is not a number: using 88");
	check_warned(text, "FI_SHMCMA_INLINE_MAX=1k is not from 0 to 872 in steps of 1: using 872");
	check_warned(text, "FI_SHMCMA_EAGER_MAX=32kb is not a number: using 32768");
	check_warned(text, "FI_SHMCMA_SHARE_MIN=99999999999999999999999 is not from 1 to 4294967295");

	text = play("remote", unknown_parameters, &status);
	assert_int_equal(status, 4);
	check_warned(
		text,
		"FI_SHMCMA_EAGERMAX is no parameter and is ignored; did you mean FI_SHMCMA_EAGER_MAX?");
	check_warned(text, "FI_SHMCMA_cma is no parameter and is ignored; did you mean FI_SHMCMA_CMA?");
	check_warned(text, "FI_SHMCMA_BOUNCE_SIZES is no parameter and is ignored; did you mean "
			   "FI_SHMCMA_BOUNCE_SIZE?");
	check_warned(text, "FI_SHMCMA_VERBOSITY is no parameter and is ignored;");
	check_warned(text, "FI_SHMCMA_ is no parameter and is ignored;");
	assert_null(strstr(text, "FI_SHMCMA_PEERS is no"));

	text = play("remote", odd_parameters, &status);
	assert_int_equal(status, 4);
	if (strstr(text, ":" TF_PROVIDER ":"))
		fail_msg("%s", text);
}

/* Data progress of the default answer, of one without one-sided operations, and of one that asks for manual. */
static int scene_progress(void)
{
	static const uint64_t caps[] = { 0, FI_TAGGED, FI_RMA };
	struct fi_info *question = tf_hints();
	struct fi_info *list;
	int result = 0;

	for (int i = 0; i < 3; i++) {
		question->caps = caps[i];
		question->domain_attr->data_progress = i == 2 ? FI_PROGRESS_MANUAL : FI_PROGRESS_UNSPEC;
		if (fi_getinfo(TF_VERSION, NULL, NULL, 0, question, &list))
			return 100;
		result |= (int)list->domain_attr->data_progress << 2 * i;
		fi_freeinfo(list);
	}
	fi_freeinfo(question);
	return result;
}

/* A strict target serves its peers itself: by a thread, unless the application says that it will. */
static void test_progress_strict(void **state)
{
	const char *strict[] = { "FI_SHMCMA_RMA=strict", NULL };
	const char *trusted[] = { "FI_SHMCMA_RMA=Trusted", NULL };
	int status;

	(void)state;
	play("progress", strict, &status);
	assert_int_equal(status, FI_PROGRESS_AUTO | FI_PROGRESS_MANUAL << 2 | FI_PROGRESS_MANUAL << 4);
	play("progress", trusted, &status);
	assert_int_equal(status, FI_PROGRESS_MANUAL | FI_PROGRESS_MANUAL << 2 | FI_PROGRESS_MANUAL << 4);
}

/* They show in fi_info -e. */
static void test_parameters_listed(void **state)
{
	static const char *const names[] = { "cma",	  "remote_comm", "inline_max",
					     "eager_max", "bounce_size", "bounce_count",
					     "peers",	  "rma",	 "calibrate" };
	struct fi_param *params;
	int count;

	(void)state;
	accepted();
	tf_ok(fi_getparams(&params, &count));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char name[64];
		int seen = 0;

		snprintf(name, sizeof(name), "FI_" TF_PROVIDER "_%s", names[i]);
		for (int j = 0; j < count; j++)
			seen += !strcasecmp(params[j].name, name);
		assert_int_equal(seen, 1);
	}
	fi_freeparams(params);
}

/* ---- calibration ----------------------------------------------------------------------------- */

/* FNV-1a */
static uint64_t hash(const void *bytes, size_t size, uint64_t from)
{
	for (size_t i = 0; i < size; i++)
		from = (from ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
	return from;
}

static uint64_t hash_machine(void)
{
	struct utsname name;
	uint64_t from = 0xcbf29ce484222325u;

	uname(&name);
	from = hash(name.version, strlen(name.version), hash(name.release, strlen(name.release), from));
#ifdef __x86_64__
	unsigned int signature, unused[3];

	__cpuid(1, signature, unused[0], unused[1], unused[2]);
	from = hash(&signature, sizeof(signature), from);
#endif
	return from;
}

static bool read_boot_id(uint64_t id[2])
{
	char text[64] = "", digits[33] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC), count = 0;
	ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	for (ssize_t i = 0; i < got && count < 32; i++)
		if (text[i] != '-')
			digits[count++] = text[i];
	if (fd >= 0)
		close(fd);
	return count == 32 && sscanf(digits, "%16" SCNx64 "%16" SCNx64, &id[0], &id[1]) == 2;
}

/* As a process of this user would have left it that found process_vm_readv(2) to take 50 us. In abi.h's order. */
static bool put_calibration(uint32_t rounds, char path[64])
{
	struct {
		uint64_t magic, boot_id[2], machine;
		int64_t time;
		uint32_t cma_start, cma_per_kib, near_per_kib, far_per_kib, rounds, pad;
		uint64_t checksum;
	} file = { .magic = 0x32304c4143534853u,
		   .machine = hash_machine(),
		   .cma_start = 50000,
		   .cma_per_kib = 80,
		   .near_per_kib = 50,
		   .far_per_kib = 150,
		   .rounds = rounds };
	bool done;
	int fd;

	snprintf(path, 64, "/dev/shm/shmcma.calibration-%u", (unsigned int)geteuid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || !read_boot_id(file.boot_id))
		return false;
	file.checksum = hash(&file, sizeof(file) - sizeof(file.checksum), 0xcbf29ce484222325u);
	done = write(fd, &file, sizeof(file)) == sizeof(file) && !fchmod(fd, 0600);
	close(fd);
	return done;
}

/* 77: this process gets no /dev/shm of its own. */
static int own_shm(void)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777"))
		return 77;
	return 0;
}

static int scene_calibrated(void)
{
	char path[64];
	struct tf t;

	if (own_shm())
		return 77;
	if (!put_calibration(16, path))
		return 1;
	memset(&t, 0, sizeof(t));
	tf_open(&t, NULL);
	tf_close(&t);
	return 0;
}

/* Another file takes the place of one that has seen one measurement. */
static int scene_measured_again(void)
{
	struct stat before, now;
	char path[64];
	struct tf t;

	if (own_shm())
		return 77;
	if (!put_calibration(1, path) || stat(path, &before))
		return 1;
	memset(&t, 0, sizeof(t));
	tf_open(&t, NULL);
	while (stat(path, &now) || now.st_ino == before.st_ino)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	tf_close(&t);
	return 0;
}

/* The default follows from the calibration of the machine; a value from the user stands. */
static void test_calibrated(void **state)
{
	static const char *const known[] = { "FI_LOG_LEVEL=info", "FI_SHMCMA_CALIBRATE=1", NULL };
	static const char *const unwanted[] = { "FI_LOG_LEVEL=info", "FI_SHMCMA_CALIBRATE=0", NULL };
	static const char *const given[] = { "FI_LOG_LEVEL=info", "FI_SHMCMA_CALIBRATE=1",
					     "FI_SHMCMA_EAGER_MAX=1024", NULL };
	static const char *const filled[] = { "FI_LOG_LEVEL=info", "FI_SHMCMA_CALIBRATE=1",
					      "FI_SHMCMA_FILL=cached", NULL };
	static const char *const *const others[] = { unwanted, given, filled };
	static const char line[] = "by what copies cost on this machine eager_max is";
	const char *text;
	int status;

	(void)state;
	text = play("calibrated", known, &status);
	if (status == 77)
		skip();
	assert_int_equal(status, 0);
	check_warned(text, "by what copies cost on this machine eager_max is 65536");
	for (int i = 0; i < 3; i++) {
		text = play("calibrated", others[i], &status);
		assert_int_equal(status, 0);
		if (strstr(text, line))
			fail_msg("%s", text);
	}
}

/* The thread of a process that finds a calibration goes on with it, until there are enough measurements. */
static void test_measured_again(void **state)
{
	static const char *const known[] = { "FI_SHMCMA_CALIBRATE=1", NULL };
	int status;

	(void)state;
#ifndef __x86_64__
	skip(); /* perhaps without streamed copies, which a measurement needs */
#endif
	(void)play("measured-again", known, &status);
	if (status == 77)
		skip();
	assert_int_equal(status, 0);
}

/* In a mount namespace of its own: no file can be made in /dev/shm, or a tmpfs on /dev hides it. */
static bool spoil_dir(const char *scene)
{
	bool missing = !strcmp(scene, "missing"), read_only = !strcmp(scene, "read-only");

	return !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("tmpfs", missing ? "/dev" : "/dev/shm", "tmpfs",
		      MS_NOSUID | MS_NODEV | (read_only ? MS_RDONLY : 0), "mode=755") &&
	       (strcmp(scene, "unwritable") != 0 || !setuid(65534));
}

static int scene_no_dir(const char *scene)
{
	struct fi_info *hints = fi_allocinfo();
	int result;

	if (!spoil_dir(scene))
		return 77;
	hints->fabric_attr->prov_name = strdup(TF_PROVIDER);
	result = has_own(hints) + 2 * has_own(hints);
	fi_freeinfo(hints);
	return result;
}

/* The provider is not offered where it could not make an endpoint, and says once why. */
static void test_no_dir(void **state)
{
	static const char *const environment[] = { "FI_LOG_LEVEL=warn", NULL };
	static const char *const scenes[][2] = { { "read-only", "Read-only file system" },
						 { "unwritable", "Permission denied" },
						 { "missing", "No such file or directory" } };
	static const char line[] = "no endpoint can be made in /dev/shm: ";

	(void)state;
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		int status;
		const char *text = play(scenes[i][0], environment, &status), *at;

		if (status == 77)
			skip();
		assert_int_equal(status, 0);
		at = strstr(text, line);
		assert_non_null(at);
		check_warned(at, scenes[i][1]);
		assert_null(strstr(at + sizeof(line), line));
	}
}

/* An endpoint sends itself a message of 5 bytes, and closes. */
static int scene_stats(void)
{
	struct fi_cq_tagged_entry done; /* the largest of the formats */
	char out[5] = "five", in[5];
	fi_addr_t self;
	struct tf t;

	memset(&t, 0, sizeof(t));
	tf_open(&t, NULL);
	self = tf_insert(&t, t.name);
	tf_ok(fi_trecv(t.ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	tf_ok(fi_tsend(t.ep, out, sizeof(out), NULL, self, 1, NULL));
	for (int i = 0; i < 2;)
		i += (fi_cq_read(t.tx_cq, &done, 1) == 1) + (fi_cq_read(t.rx_cq, &done, 1) == 1);
	tf_close(&t);
	return 0;
}

/* An endpoint that closes tells in words what it has carried, where the user says. */
static void test_stats(void **state)
{
	char to_file[64] = "FI_SHMCMA_STATS=", name[48] = "/tmp/shmcma-stats.XXXXXX", found[64] = "",
	     block[4096];
	const char *const on_stderr[] = { "FI_SHMCMA_STATS=stderr", NULL }, *const in_file[] = { to_file,
												 NULL };
	const char *const nowhere[] = { "FI_SHMCMA_STATS=/no/such/directory/x", "FI_LOG_LEVEL=warn",
					NULL };
	const char *const in_log[] = { "FI_LOG_LEVEL=info", NULL };
	const char *text;
	int status, fd;
	ssize_t got;
	glob_t files;

	(void)state;
	text = play("stats", in_log, &status);
	assert_int_equal(status, 0);
	check_warned(text, "shmcma: counters: tx_msgs=1 ");
	check_warned(text,
		     "shmcma: sent 1 messages (1 in records, 0 in bounce buffers, 0 by rendezvous), 5 B; "
		     "received ");

	text = play("stats", on_stderr, &status);
	assert_int_equal(status, 0);
	check_warned(text, "fi_shmcma://");
	check_warned(text, "1  messages sent\n");
	check_warned(text, "5  bytes in them\n");
	assert_null(strstr(text, "peers that died"));

	fd = mkstemp(name);
	assert_true(fd >= 0);
	strcat(to_file, name);
	(void)play("stats", in_file, &status);
	assert_int_equal(status, 0);
	snprintf(found, sizeof(found), "%s.*", name);
	assert_int_equal(glob(found, 0, NULL, &files), 0);
	assert_int_equal(files.gl_pathc, 1);
	close(fd);
	fd = open(files.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	got = read(fd, block, sizeof(block) - 1);
	assert_true(got > 0);
	block[got] = '\0';
	check_warned(block, "1  messages sent\n");
	close(fd);
	unlink(files.gl_pathv[0]);
	unlink(name);
	globfree(&files);

	text = play("stats", nowhere, &status);
	assert_int_equal(status, 0);
	check_warned(text, "FI_SHMCMA_STATS=/no/such/directory/x: cannot write to /no/such/directory/x.");
}

static int run_scene(const char *scene)
{
	if (!strcmp(scene, "remote"))
		return scene_remote();
	if (!strcmp(scene, "layers"))
		return scene_layers();
	if (!strcmp(scene, "refusals"))
		return scene_refusals();
	if (!strcmp(scene, "progress"))
		return scene_progress();
	if (!strcmp(scene, "calibrated"))
		return scene_calibrated();
	if (!strcmp(scene, "measured-again"))
		return scene_measured_again();
	if (!strcmp(scene, "stats"))
		return scene_stats();
	if (!strcmp(scene, "read-only") || !strcmp(scene, "unwritable") || !strcmp(scene, "missing"))
		return scene_no_dir(scene);
	return 126;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		TEST(test_no_hints),
		TEST(test_name_only),
		TEST(test_bare_hints),
		TEST(test_versions),
		TEST(test_answer_as_hints),
		TEST(test_caps_granted),
		TEST(test_caps_refused),
		TEST(test_context_caps),
		TEST(test_context_caps_memory),
		TEST(test_mode),
		TEST(test_op_flags),
		TEST(test_order),
		TEST(test_sizes),
		TEST(test_ep_type),
		TEST(test_protocol),
		TEST(test_tag_format),
		TEST(test_collective_contexts),
		TEST(test_auth_key),
		TEST(test_traffic_class),
		TEST(test_threading),
		TEST(test_progress),
		TEST(test_progress_unified),
		TEST(test_resource_and_av),
		TEST(test_mr_mode),
		TEST(test_domain_numbers),
		TEST(test_domain_caps),
		TEST(test_names),
		TEST(test_open_objects),
		TEST(test_handle_and_nic),
		TEST(test_addr_format),
		TEST(test_source),
		TEST(test_destination),
		TEST(test_hinted_addresses),
		TEST(test_flags),
		TEST(test_provider_structure),
		TEST(test_attributes_only),
		TEST(test_open_mpi_mtl),
		TEST(test_open_mpi_btl),
		TEST(test_mpich),
		TEST(test_mpich_first_question),
		TEST(test_remote_comm),
		TEST(test_no_layers),
		TEST(test_reasons),
		TEST(test_parameters),
		TEST(test_parameters_listed),
		TEST(test_progress_strict),
		TEST(test_calibrated),
		TEST(test_measured_again),
		TEST(test_no_dir),
		TEST(test_stats),
	};

	if (argc > 1)
		return run_scene(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
