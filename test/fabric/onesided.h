/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * onesided.h: registered memory and accesses to it, over pair.h.
 *
 * A scenario is a function that accesses a target's memory through a struct stage, and is told neither whether the
 * target is another process nor how its memory is registered:
 *
 *	SCENARIO(f)            in one process, between its two endpoints, and from one endpoint to itself
 *	                       (f alone, f self); between two, and there without CMA and with a strict target
 *	SCENARIO_PASSIVE(f)    between two processes, the target blocked in poll(2) for all the time
 *	SCENARIO_MODE(f, m, v) between two processes, with mr_mode m of API version v
 *
 * The target's memory is mapped by both, at different addresses, so that a scenario can look at what it has done
 * without asking the provider.
 */
#ifndef ONESIDED_H
#define ONESIDED_H

#include "pair.h"

#include <rdma/fi_rma.h>

#define ONESIDED_CAPS (PAIR_CAPS | FI_RMA | FI_ATOMIC | FI_RMA_EVENT)
#define ONESIDED_MODE (FI_MR_VIRT_ADDR | FI_MR_PROV_KEY)

static inline bool pair_is_virtual(const struct pair *pair)
{
	int mode = pair->info->domain_attr->mr_mode;

	return mode == FI_MR_BASIC || mode & FI_MR_VIRT_ADDR;
}

static inline bool pair_makes_keys(const struct pair *pair)
{
	int mode = pair->info->domain_attr->mr_mode;

	return mode == FI_MR_BASIC || mode & FI_MR_PROV_KEY;
}

/* ---- registered memory ----------------------------------------------------------------------- */

/* How a peer names a range of memory. */
struct remote {
	uint64_t addr, len, key;
};

struct region {
	struct fid_mr *mr;
	struct remote remote;
};

/* Application keys are not to repeat. */
static uint64_t region_next_key = 0x5000;

static inline void region_openv(struct pair *pair, struct region *region, const struct iovec *iov,
				size_t count, uint64_t access)
{
	uint64_t key = region_next_key++;

	gives(fi_mr_regv(pair->domain, iov, count, access, 0, key, 0, &region->mr, NULL), 0);
	region->remote.key = fi_mr_key(region->mr);
	must(region->remote.key != FI_KEY_NOTAVAIL);
	if (!pair_makes_keys(pair))
		must(region->remote.key == key);
	region->remote.addr = pair_is_virtual(pair) ? (uintptr_t)iov[0].iov_base : 0;
	region->remote.len = 0;
	for (size_t i = 0; i < count; i++)
		region->remote.len += iov[i].iov_len;
}

static inline void region_open(struct pair *pair, struct region *region, void *buf, size_t len,
			       uint64_t access)
{
	struct iovec iov = { buf, len };

	region_openv(pair, region, &iov, 1, access);
}

static inline void region_close(struct region *region)
{
	gives(fi_close(&region->mr->fid), 0);
}

/* Both exchange what they have registered. */
static inline struct remote region_exchange(struct pair *pair, const struct region *region)
{
	static const struct remote none;
	struct remote remote;

	pair_exchange(pair->link, region ? &region->remote : &none, &remote, sizeof(remote));
	return remote;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The arguments of fi_readmsg and fi_writemsg. */
struct access {
	struct iovec iov[16];
	size_t iov_count;
	struct fi_rma_iov remote[16];
	size_t remote_count;
	fi_addr_t peer;
	uint64_t data;
	void *context;
};

static inline ssize_t access_post(struct side *side, const struct access *access, bool write,
				  uint64_t flags)
{
	struct fi_msg_rma msg = {
		.msg_iov = access->iov,
		.iov_count = access->iov_count,
		.addr = access->peer,
		.rma_iov = access->remote,
		.rma_iov_count = access->remote_count,
		.context = access->context,
		.data = access->data,
	};

	return write ? fi_writemsg(side->ep, &msg, flags) : fi_readmsg(side->ep, &msg, flags);
}

/* ---- stage ----------------------------------------------------------------------------------- */

#define STAGE_LEN (2 << 20)
#define STAGE_EDGE 4096 /* mapped before and behind what is registered, and not to be touched */

struct stage {
	struct pair *pair;
	struct side *side;    /* the initiator's */
	fi_addr_t peer;	      /* the target */
	struct remote target; /* STAGE_LEN bytes, all of them to be read and written */
	uint8_t *seen;	      /* the same bytes, mapped here */
};

struct onesided_test {
	struct pair_test test;
	void (*scenario)(struct stage *stage);
	bool self, passive;
};

/* Memory that the processes of a test share; made by the first who maps it, or before they are made. */
static int stage_fd = -1;

static inline uint8_t *stage_map(void)
{
	uint8_t *map;

	if (stage_fd < 0) {
		stage_fd = memfd_create("target", 0);
		must(stage_fd >= 0);
		gives(ftruncate(stage_fd, STAGE_LEN + 2 * STAGE_EDGE), 0);
	}
	map = mmap(NULL, STAGE_LEN + 2 * STAGE_EDGE, PROT_READ | PROT_WRITE, MAP_SHARED, stage_fd, 0);
	must(map != MAP_FAILED);
	memset(map, 0xee, STAGE_EDGE);
	memset(map + STAGE_EDGE + STAGE_LEN, 0xee, STAGE_EDGE);
	return map + STAGE_EDGE;
}

/* Nothing was written next to the target's memory. */
static inline void stage_check_edges(const uint8_t *target)
{
	for (size_t i = 0; i < STAGE_EDGE; i++) {
		must(target[-1 - (ptrdiff_t)i] == 0xee);
		must(target[STAGE_LEN + i] == 0xee);
	}
}

static inline const struct onesided_test *onesided_current(void)
{
	return (const struct onesided_test *)((const char *)pair_current -
					      offsetof(struct onesided_test, test));
}

static inline struct pair_want onesided_want(void)
{
	struct pair_want want = { .caps = ONESIDED_CAPS, .mr_mode = ONESIDED_MODE };

	return pair_current->want ? *pair_current->want : want;
}

static inline void stage_alone(void)
{
	const struct onesided_test *test = onesided_current();
	struct pair_want want = onesided_want();
	struct region region;
	struct stage stage;
	struct pair pair;
	uint8_t *memory;

	pair_open(&pair, &want);
	memory = stage_map();
	region_open(&pair, &region, memory, STAGE_LEN, FI_REMOTE_READ | FI_REMOTE_WRITE);
	stage = (struct stage){ .pair = &pair,
				.side = &pair.a,
				.peer = test->self ? pair.a.self : pair.a.peer,
				.target = region.remote,
				.seen = stage_map() };
	test->scenario(&stage);
	pair_quiet(&pair, &pair.a);
	stage_check_edges(memory);
	region_close(&region);
	pair_close(&pair);
}

static inline void stage_initiator(struct pair *pair)
{
	struct stage stage = { .pair = pair, .side = &pair->a, .peer = pair->a.peer };

	/* so that the same mapping is elsewhere in the other process */
	must(mmap(NULL, 3 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
	stage.seen = stage_map();
	stage.target = region_exchange(pair, NULL);
	onesided_current()->scenario(&stage);
	pair_quiet(pair, &pair->a);
	pair_meet(pair);
}

static inline void stage_target(struct pair *pair)
{
	struct pollfd other = { .fd = pair->link, .events = POLLIN };
	uint8_t *memory = stage_map();
	struct region region;

	region_open(pair, &region, memory, STAGE_LEN, FI_REMOTE_READ | FI_REMOTE_WRITE);
	region_exchange(pair, &region);
	if (onesided_current()->passive)
		while (poll(&other, 1, -1) != 1)
			;
	pair_meet(pair);
	stage_check_edges(memory);
	region_close(&region);
}

/* The memory is there before the processes are. */
static inline void stage_both(void **state)
{
	stage_fd = -1;
	stage_map();
	pair_both(state);
	close(stage_fd);
	stage_fd = -1;
}

static const struct pair_want onesided_usual = { .caps = ONESIDED_CAPS, .mr_mode = ONESIDED_MODE };

#define ONESIDED(label, how, ...)                                                                         \
	{                                                                                                 \
		.name = label, .test_func = how, .initial_state = &(struct onesided_test)                 \
		{                                                                                         \
			__VA_ARGS__                                                                       \
		}                                                                                         \
	}
#define SCENARIO_ALONE(f) ONESIDED(#f " alone", pair_alone, .test.alone = stage_alone, .scenario = f)
#define SCENARIO_SELF(f)                                                                                  \
	ONESIDED(#f " self", pair_alone, .test.alone = stage_alone, .scenario = f, .self = true)
#define SCENARIO_BOTH(f, label, environment, wanted)                                                      \
	ONESIDED(#f " both" label, stage_both, .test.first = stage_initiator,                             \
		 .test.second = stage_target, .test.want = wanted, .test.env = environment,               \
		 .scenario = f)
#define SCENARIO(f)                                                                                       \
	SCENARIO_ALONE(f), SCENARIO_SELF(f), SCENARIO_BOTH(f, "", NULL, &onesided_usual),                 \
		SCENARIO_BOTH(f, " CMA=0", "FI_SHMCMA_CMA=0", &onesided_usual),                           \
		SCENARIO_BOTH(f, " strict", "FI_SHMCMA_RMA=strict", &onesided_usual),                     \
		SCENARIO_BOTH(f, " strict CMA=0", "FI_SHMCMA_RMA=strict FI_SHMCMA_CMA=0",                 \
			      &onesided_usual)
#define SCENARIO_PASSIVE(f)                                                                               \
	ONESIDED(#f " passive", stage_both, .test.first = stage_initiator, .test.second = stage_target,   \
		 .test.want = &onesided_usual, .scenario = f, .passive = true)
#define SCENARIO_MODE(f, mode, api)                                                                       \
	SCENARIO_BOTH(f, " " #mode " " #api, NULL,                                                        \
		      (&(struct pair_want){ .caps = ONESIDED_CAPS, .mr_mode = mode, .version = api }))

#endif
