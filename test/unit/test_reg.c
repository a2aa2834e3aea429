/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_reg: registrations in real segments: what peers see of them, and how the owner, to close one, waits for peers
 * that copy: they let go, die, are stopped, or have only just come. The test has a /dev/shm of its own where that is
 * allowed.
 */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cmocka.h>

#include "clock.h"
#include "core_pair.h"
#include "os/host.h"
#include "link/connect.h"
#include "os/shmfile.h"
#include "rma/reg.h"
#include "shm/memory.h"

#define RW (SC_REG_READ | SC_REG_WRITE)

static struct sc_regtab *tab;
static struct end target;
static uint32_t *released; /* shared with children: counts holders that are about to let go */

static struct sc_ep_attr attr_with(struct sc_regtab *regtab)
{
	struct sc_ep_attr attr = end_attr();

	attr.regtab = regtab;
	return attr;
}

static void open_target(struct end *end)
{
	struct sc_ep_attr attr = attr_with(tab);

	end_open(end, &attr);
}

static int setup(void **state)
{
	watchdog_start(NULL, 0);
	(void)state;
	if (sc_regtab_create(&tab))
		return -1;
	open_target(&target);
	*released = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	end_close(&target);
	sc_regtab_destroy(tab);
	return 0;
}

static int try_open(uint32_t flags, uint64_t key, uint64_t addr, struct sc_reg **reg)
{
	struct iovec range = { (void *)(uintptr_t)addr, 4096 };
	struct sc_reg_attr attr = { .ranges = &range, .range_count = 1, .key = key, .flags = flags };

	return sc_reg_open(tab, &attr, reg);
}

static struct sc_reg *must_open(uint32_t flags, uint64_t key, uint64_t addr)
{
	struct sc_reg *reg = NULL;

	assert_int_equal(try_open(flags, key, addr, &reg), 0);
	return reg;
}

/* Where the registration of that key begins, as a peer of the endpoint finds it; or an error. */
static int64_t find_in(const struct sc_regtab_view *view, uint64_t key)
{
	struct sc_reg_span span;
	struct sc_reg_ref ref;
	struct iovec out;
	uint64_t len = 1;
	int ret = sc_regtab_find(view, key, &ref);

	if (!ret)
		ret = sc_regtab_check(view, &ref, &(struct sc_remote){ 0, 1, 0 }, SC_REG_READ, &span);
	if (!ret)
		ret = sc_regtab_slice(&span, 0, &len, &out, 1);
	return ret < 0 ? ret : (int64_t)(uintptr_t)out.iov_base;
}

static int64_t find(uint64_t key)
{
	return find_in(&target.ep->table, key);
}

/* ---- what is seen where ---------------------------------------------------------------------- */

static void test_open_close(void **state)
{
	struct sc_reg *reg, *silent;
	uint64_t key;

	(void)state;
	/* without rights: a key, and no memory */
	silent = must_open(0, 0, 0x1000);
	assert_int_equal(sc_seg_presence(target.ep->seg)->reg_count, 0);
	assert_int_equal(find(sc_reg_key(silent)), -EKEYREJECTED);
	assert_ptr_equal(sc_regtab_own(tab, sc_reg_key(silent)), silent);

	reg = must_open(RW, 0, 0x2000);
	key = sc_reg_key(reg);
	assert_int_equal(find(key), 0x2000);
	assert_int_equal(sc_reg_close(reg), 0);
	assert_int_equal(find(key), -EKEYREJECTED);
	assert_null(sc_regtab_own(tab, key));
	key = sc_reg_key(silent);
	assert_int_equal(sc_reg_close(silent), 0);
	assert_null(sc_regtab_own(tab, key));
}

static void test_collision(void **state)
{
	struct sc_reg *reg, *other = NULL;

	(void)state;
	reg = must_open(RW | SC_REG_KEY, 5, 0x1000);
	assert_int_equal(sc_reg_key(reg), 5);
	assert_int_equal(try_open(RW | SC_REG_KEY, 5, 0x2000, &other), -ENOKEY);
	assert_int_equal(try_open(SC_REG_KEY, 5, 0x2000, &other), -ENOKEY);
	assert_int_equal(find(5), 0x1000);
	assert_int_equal(sc_reg_close(reg), 0);
	other = must_open(RW | SC_REG_KEY, 5, 0x2000);
	assert_int_equal(find(5), 0x2000);
	assert_int_equal(sc_reg_close(other), 0);
}

/* All endpoints of the domain show it, but for those that do the copies themselves. */
static void test_endpoints(void **state)
{
	struct sc_ep_attr attr = attr_with(tab);
	struct end second, strict;
	struct sc_reg *before, *after;

	(void)state;
	before = must_open(RW | SC_REG_KEY, 1, 0x1000);
	open_target(&second);
	attr.config.strict = true;
	end_open(&strict, &attr);
	assert_int_equal(strict.ep->seg->header.reg_max, 0);
	assert_true(strict.ep->seg->header.capabilities & SC_ABI_CAP_STRICT);
	assert_true(second.ep->seg->header.capabilities & SC_ABI_CAP_RMA);
	after = must_open(RW | SC_REG_KEY, 2, 0x2000);
	for (int i = 0; i < 2; i++) {
		const struct sc_regtab_view *view = i ? &second.ep->table : &target.ep->table;

		assert_int_equal(find_in(view, 1), 0x1000);
		assert_int_equal(find_in(view, 2), 0x2000);
	}
	assert_int_equal(sc_reg_close(before), 0);
	assert_int_equal(find_in(&second.ep->table, 1), -EKEYREJECTED);
	assert_int_equal(find(1), -EKEYREJECTED);
	end_close(&target);
	end_close(&strict);
	assert_int_equal(find_in(&second.ep->table, 2), 0x2000);
	assert_int_equal(sc_reg_close(after), 0);
	assert_int_equal(find_in(&second.ep->table, 2), -EKEYREJECTED);
	end_close(&second);
	/* without any endpoint */
	assert_int_equal(sc_reg_close(must_open(RW, 0, 0x1000)), 0);
}

/* Counters of a registration: peers see that there are some, and tell of what they do. */
static void test_cntrs(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000), *silent = must_open(0, 0, 0x1000);
	struct sc_cntr reads = { 0 }, writes = { 0 };

	(void)state;
	for (unsigned int which = 1; which < 8; which++) {
		struct sc_cntr *r = which & 1 ? &reads : NULL, *w = which & 2 ? &writes : NULL;
		uint32_t seen;

		sc_reg_set_cntrs(reg, r, w);
		sc_reg_set_cntrs(silent, r, w);
		seen = sc_load_acquire_32(&target.ep->table.regs[reg->index].flags);
		assert_int_equal(!!(seen & SC_REG_EVENT), r || w);
		assert_int_equal(!!(silent->flags & SC_REG_EVENT), r || w);
	}
	assert_int_equal(sc_reg_close(reg), 0);
	assert_int_equal(sc_reg_close(silent), 0);
}

/* Ranges without rights are shown to nobody; a table that says it is empty has nothing, whatever its chains. */
static void test_not_shown(void **state)
{
	struct iovec ranges[2] = { { (void *)0x1000, 1 }, { (void *)0x3000, 1 } };
	struct sc_reg_attr two = { .ranges = ranges, .range_count = 2 };
	struct sc_reg *reg;
	uint32_t count;

	(void)state;
	assert_int_equal(sc_reg_open(tab, &two, &reg), 0);
	assert_int_equal(find(sc_reg_key(reg)), -EKEYREJECTED);
	assert_int_equal(sc_seg_presence(target.ep->seg)->range_count, 0);
	assert_int_equal(sc_reg_close(reg), 0);

	reg = must_open(RW | SC_REG_KEY, 1, 0x1000);
	assert_int_equal(find(1), 0x1000);
	count = sc_seg_presence(target.ep->seg)->reg_count;
	sc_store_release_32(&sc_seg_presence(target.ep->seg)->reg_count, 0);
	assert_int_equal(find(1), -EKEYREJECTED);
	sc_store_release_32(&sc_seg_presence(target.ep->seg)->reg_count, count);
	assert_int_equal(sc_reg_close(reg), 0);
}

/* Ranges that are used again: of two vectors the later one may have the earlier ranges. */
static void test_join_after_reuse(void **state)
{
	struct iovec ranges[2] = { { (void *)0x1000, 1 }, { (void *)0x3000, 1 } };
	struct sc_reg_attr two = { .ranges = ranges, .range_count = 2, .flags = RW };
	struct sc_reg *first, *second, *third, *one;
	struct end late;

	(void)state;
	assert_int_equal(sc_reg_open(tab, &two, &first), 0);
	assert_int_equal(sc_reg_open(tab, &two, &second), 0);
	assert_int_equal(sc_reg_close(first), 0);
	one = must_open(RW, 0, 0x5000);
	ranges[0].iov_base = (void *)0x7000;
	assert_int_equal(sc_reg_open(tab, &two, &third), 0);
	assert_true(third->index > second->index && third->first_range < second->first_range);
	open_target(&late);
	assert_int_equal(find_in(&late.ep->table, sc_reg_key(second)), 0x1000);
	assert_int_equal(find_in(&late.ep->table, sc_reg_key(third)), 0x7000);
	end_close(&late);
	assert_int_equal(sc_reg_close(one), 0);
	assert_int_equal(sc_reg_close(second), 0);
	assert_int_equal(sc_reg_close(third), 0);
}

/* An endpoint that comes late shows all that there is. */
static void test_join(void **state)
{
	enum { COUNT = 5000 };
	static struct sc_reg *regs[COUNT];
	static uint64_t keys[COUNT];
	struct iovec ranges[3] = { { (void *)0x1000, 1 }, { (void *)0x3000, 1 }, { (void *)0x5000, 1 } };
	struct sc_reg_attr several = { .ranges = ranges, .range_count = 3, .flags = RW };
	struct end late;

	(void)state;
	for (uint64_t i = 0; i < COUNT; i++) {
		if (i % 10 == 9)
			assert_int_equal(sc_reg_open(tab, &several, &regs[i]), 0);
		else
			regs[i] = must_open((i % 3 ? RW : 0) | (i % 2 ? SC_REG_KEY : 0), i, 0x1000);
		keys[i] = sc_reg_key(regs[i]);
	}
	for (uint64_t i = 0; i < COUNT; i += 4)
		assert_int_equal(sc_reg_close(regs[i]), 0);
	open_target(&late);
	for (uint64_t i = 0; i < COUNT; i++) {
		bool shown = i % 4 && (i % 3 || i % 10 == 9);

		assert_int_equal(find_in(&late.ep->table, keys[i]), shown ? 0x1000 : -EKEYREJECTED);
		assert_int_equal(find(keys[i]), shown ? 0x1000 : -EKEYREJECTED);
	}
	for (uint64_t i = 0; i < COUNT; i++)
		if (i % 4)
			assert_int_equal(sc_reg_close(regs[i]), 0);
	for (uint64_t i = 0; i < COUNT; i++)
		assert_int_equal(find_in(&late.ep->table, keys[i]), -EKEYREJECTED);
	end_close(&late);
}

static void test_hundred_thousand(void **state)
{
	enum { COUNT = 100000 };
	static struct sc_reg *regs[COUNT];
	static uint64_t stale[COUNT];

	(void)state;
	for (int round = 0; round < 3; round++) {
		uint32_t flags = RW | (round == 2 ? SC_REG_KEY : 0);

		for (uint64_t i = 0; i < COUNT; i++)
			regs[i] = must_open(flags, i, 0x1000 + i);
		for (uint64_t i = 0; i < COUNT; i++) {
			assert_int_equal(find(sc_reg_key(regs[i])), 0x1000 + i);
			if (round == 1)
				assert_int_equal(find(stale[i]), -EKEYREJECTED);
			stale[i] = sc_reg_key(regs[i]);
		}
		for (uint64_t i = 0; i < COUNT; i++)
			assert_int_equal(sc_reg_close(regs[i]), 0);
		for (uint64_t i = 0; i < COUNT; i += 100)
			assert_int_equal(find(stale[i]), -EKEYREJECTED);
	}
	assert_true(tab->count <= COUNT + 1); /* the same entries in each round */
}

/* Nothing registered costs nothing, the first registration a page. */
static void test_footprint(void **state)
{
	struct sc_ep_attr none = end_attr(), all = attr_with(tab);
	struct end with, without;
	struct stat st;
	blkcnt_t rest;
	struct sc_reg *reg;

	(void)state;
	end_open(&with, &all);
	end_open(&without, &none);
	assert_return_code(fstat(without.ep->seg->fd, &st), errno);
	rest = st.st_blocks;
	assert_return_code(fstat(with.ep->seg->fd, &st), errno);
	assert_int_equal(st.st_blocks, rest);
	reg = must_open(RW, 0, 0x1000);
	assert_return_code(fstat(with.ep->seg->fd, &st), errno);
	assert_int_equal(st.st_blocks, rest + SC_ABI_PAGE / 512);
	assert_int_equal(sc_reg_close(reg), 0);
	end_close(&with);
	end_close(&without);
}

/* ---- those who copy -------------------------------------------------------------------------- */

/* How long another process holds a registration by its hazard word. */
enum hold {
	HOLD_TILL_CLOSED,  /* until it sees the registration closed; says so, lets go */
	HOLD_CHANGE,	   /* the same, but raises the word again and again, and never lets go */
	HOLD_TILL_CLOSING, /* until it sees the endpoint closed */
	HOLD_TILL_TOLD,
};

struct holder {
	enum hold how;
	char address[SC_ADDR_SIZE];
	uint32_t index; /* of the registration */
	uint32_t word;	/* of the line */
};

static void hold_till(const struct holder *holder, const struct sc_peer *peer)
{
	struct sc_regtab_view view = sc_seg_table(peer->seg);

	if (holder->how == HOLD_TILL_CLOSING)
		while (sc_load_acquire_32(&view.presence->state) != SC_ABI_CLOSED)
			sched_yield();
	else
		while (sc_load_acquire_64(&view.regs[holder->index].tag) & 1)
			sched_yield();
	/* long enough: an owner that does not wait has closed it by then */
	for (int i = 0; i < 100; i++)
		sched_yield();
	__atomic_fetch_add(released, 1, __ATOMIC_SEQ_CST);
}

/* Raises the word until the parent says stop: after each value that a waiting owner sees another one follows. */
static void keep_raising(const struct child *self, uint64_t *word, uint32_t name)
{
	char byte;

	for (uint64_t next = 8; recv(self->down, &byte, 1, MSG_DONTWAIT) < 0; next++) {
		sc_store_release_64(word, next << 32 | name);
		sched_yield();
	}
}

static void hold(struct child *self, void *arg)
{
	const struct holder *holder = arg;
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	struct sc_ep *ep;
	uint64_t *word;

	child_on_its_own();
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_peer_get(ep, holder->address, &peer));
	CHILD_CHECK(!sc_peer_connect(peer));
	word = &sc_seg_slot(peer->seg, peer->out_slot)->hazards.words[holder->word];
	sc_store_relaxed_64(word, 7ull << 32 | (holder->index + 1));
	sc_fence_seq_cst();
	child_tell(self, sc_ep_address(ep));
	if (holder->how == HOLD_TILL_TOLD)
		child_wait(self);
	else
		hold_till(holder, peer);
	if (holder->how == HOLD_CHANGE)
		keep_raising(self, word, holder->index + 1);
	sc_store_release_64(word, 0);
	if (holder->how == HOLD_TILL_CLOSED || holder->how == HOLD_TILL_CLOSING)
		child_wait(self);
	sc_ep_destroy(ep);
}

static struct holder holder_of(enum hold how, const struct sc_reg *reg)
{
	struct holder holder = { .how = how, .index = reg->index };

	memcpy(holder.address, sc_ep_address(target.ep), sizeof(holder.address));
	return holder;
}

static void start_holder(struct child *child, struct holder *holder)
{
	assert_true(child_start(child, hold, holder));
}

/* Closes without a limit of time, since the holder may have to wait for a processor. */
static int close_without_limit(struct sc_reg *reg)
{
	int ret;

	clock_stop();
	ret = sc_reg_close(reg);
	clock_go_on();
	return ret;
}

/* The owner waits for a holder, accepted before or not, with each of its words. */
static void test_released(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2 * SC_ABI_HAZARDS; i++) {
		struct sc_reg *before = must_open(RW, 0, 0x1000), *reg = must_open(RW, 0, 0x1000);
		struct holder holder = holder_of(i == 5 ? HOLD_CHANGE : HOLD_TILL_CLOSED, reg);
		struct child child;

		holder.word = i % SC_ABI_HAZARDS;
		start_holder(&child, &holder);
		if (i < SC_ABI_HAZARDS)
			ends_settle(&target, 1);
		*released = 0;
		assert_int_equal(sc_reg_close(before), 0); /* which nobody holds */
		assert_int_equal(__atomic_load_n(released, __ATOMIC_SEQ_CST), 0);
		assert_int_equal(close_without_limit(reg), 0);
		assert_int_equal(__atomic_load_n(released, __ATOMIC_SEQ_CST), 1);
		assert_int_equal(child_end(&child), 0);
		ends_settle(&target, 1);
	}
}

/* Several processes hold it, one of them through the other endpoint. */
static void test_released_by_several(void **state)
{
	struct sc_reg *reg = must_open(RW | SC_REG_KEY, 3, 0x1000);
	struct holder holders[3];
	struct child children[3];
	struct end second;

	(void)state;
	open_target(&second);
	for (int i = 0; i < 3; i++) {
		holders[i] = holder_of(HOLD_TILL_CLOSED, reg);
		if (i == 2)
			memcpy(holders[i].address, sc_ep_address(second.ep), SC_ADDR_SIZE);
		start_holder(&children[i], &holders[i]);
	}
	assert_int_equal(close_without_limit(reg), 0);
	assert_int_equal(*released, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(child_end(&children[i]), 0);
	end_close(&second);
}

static void stop(const struct child *child)
{
	int status;

	assert_return_code(kill(child->pid, SIGSTOP), errno);
	assert_int_equal(waitpid(child->pid, &status, WUNTRACED), child->pid);
	assert_true(WIFSTOPPED(status));
}

static void test_stopped(void **state)
{
	struct sc_reg *reg = must_open(RW | SC_REG_KEY, 9, 0x1000), *other;
	struct holder holder = holder_of(HOLD_TILL_TOLD, reg);
	uint32_t index = reg->index;
	struct child child;

	(void)state;
	start_holder(&child, &holder);
	ends_settle(&target, 1);
	stop(&child);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(sc_reg_close(reg), -EBUSY);
		assert_int_equal(find(9), -EKEYREJECTED);
		assert_null(sc_regtab_own(tab, 9));
	}
	/* no other registration gets the entry that the stopped process copies under, but one may get its key */
	other = must_open(RW | SC_REG_KEY, 9, 0x2000);
	assert_int_not_equal(other->index, index);
	assert_int_equal(sc_reg_close(reg), -EBUSY);
	assert_int_equal(find(9), 0x2000);
	assert_int_equal(sc_reg_close(other), 0);

	assert_return_code(kill(child.pid, SIGCONT), errno);
	assert_int_equal(child_end(&child), 0);
	assert_int_equal(sc_reg_close(reg), 0);
	other = must_open(RW, 0, 0x1000);
	assert_int_equal(other->index, index);
	assert_int_equal(sc_reg_close(other), 0);
}

/* Killed, running or stopped, accepted or not, buried or not: counts as out, once and for all. */
static void test_killed(void **state)
{
	(void)state;
	for (int i = 0; i < 8; i++) {
		struct sc_reg *reg = must_open(RW, 0, 0x1000);
		struct holder holder = holder_of(HOLD_TILL_TOLD, reg);
		uint32_t index = reg->index;
		struct child child;
		siginfo_t info;

		start_holder(&child, &holder);
		if (i & 1)
			ends_settle(&target, 1);
		if (i & 2) {
			stop(&child);
			assert_int_equal(sc_reg_close(reg), -EBUSY);
		}
		kill(child.pid, SIGKILL);
		if (i & 4)
			child_reap(&child);
		else
			assert_return_code(waitid(P_PID, (id_t)child.pid, &info, WEXITED | WNOWAIT),
					   errno);
		assert_int_equal(sc_reg_close(reg), 0);
		for (uint32_t slot = 0; slot < (uint32_t)i + 1; slot++)
			assert_int_equal((uint32_t)sc_seg_slot(target.ep->seg, slot)->hazards.words[0], 0);
		reg = must_open(RW, 0, 0x1000);
		assert_int_equal(reg->index, index);
		assert_int_equal(sc_reg_close(reg), 0);
		if (!(i & 4))
			child_reap(&child);
	}
}

/* One that runs and never lets go is given up in the end, and asked again in the next call. */
static void test_never_ends(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder holder = holder_of(HOLD_TILL_TOLD, reg);
	struct child child;

	(void)state;
	start_holder(&child, &holder);
	assert_int_equal(sc_reg_close(reg), -EBUSY);
	assert_int_equal(child_end(&child), 0);
	assert_int_equal(sc_reg_close(reg), 0);
}

/* An endpoint closes although a peer is stopped in a copy, and says so. */
static void test_leave_stopped(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder holder = holder_of(HOLD_TILL_TOLD, reg);
	struct child child;

	(void)state;
	start_holder(&child, &holder);
	ends_settle(&target, 1);
	stop(&child);
	assert_int_equal(sc_reg_close(reg), -EBUSY);
	child_log_line[0] = '\0';
	end_close(&target);
	assert_non_null(strstr(child_log_line, "still reports a copy"));
	assert_non_null(strstr(child_log_line, child.line)); /* the peer */
	assert_int_equal(sc_reg_close(reg), 0);
	child_kill(&child);
}

/* One holder dies, one is stopped, one lets go. */
static void test_mixed(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder waits = holder_of(HOLD_TILL_TOLD, reg), lets_go = holder_of(HOLD_TILL_CLOSED, reg);
	struct child dead, stopped, running;

	(void)state;
	start_holder(&dead, &waits);
	start_holder(&running, &lets_go);
	start_holder(&stopped, &waits);
	child_kill(&dead);
	ends_settle(&target, 1);
	stop(&stopped);
	assert_int_equal(sc_reg_close(reg), -EBUSY);
	child_kill(&stopped);
	assert_int_equal(sc_reg_close(reg), 0);
	assert_int_equal(*released, 1);
	assert_int_equal(child_end(&running), 0);
}

static void remove_name(const char *address)
{
	char name[SC_ADDR_NAME_MAX], path[SC_SHMFILE_PATH_MAX];
	struct sc_addr parts;

	assert_int_equal(sc_addr_parse(address, &parts), 0);
	sc_addr_file(&parts, name);
	sc_shmfile_path(name, path);
	assert_return_code(unlink(path), errno);
}

/* A peer that has not been let in, and whose file has lost its name, does not count as dead for that. */
static void test_nameless(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder holder = holder_of(HOLD_TILL_CLOSED, reg);
	const struct sc_host *host;
	struct child child;

	(void)state;
	start_holder(&child, &holder);
	remove_name(child.line);
	assert_int_equal(sc_reg_close(reg), 0);
	assert_int_equal(*released, 1);
	assert_int_equal(child_end(&child), 0);

	reg = must_open(RW, 0, 0x1000);
	holder = holder_of(HOLD_TILL_TOLD, reg);
	start_holder(&child, &holder);
	remove_name(child.line);
	child_kill(&child);
	assert_int_equal(sc_host_get(&host), 0);
	assert_int_equal(sc_reg_close(reg), host->pid_ns == SC_HOST_FIRST_PID_NS ? 0 : -EBUSY);
}

/* The core waits for other threads by sched_yield(): at the next such call a test may act, once. */
static void (*_Atomic meanwhile)(void);

int sched_yield(void)
{
	void (*act)(void) = atomic_exchange(&meanwhile, NULL);

	if (act)
		act();
	return (int)syscall(SYS_sched_yield);
}

static struct child dying[2];
static int dying_count;

static void die(void)
{
	for (int i = 0; i < dying_count; i++)
		child_kill(&dying[i]);
}

/* Not let in, without name, and dead while one of them is waited for: so is the other then. */
static void test_die_meanwhile(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder holder = holder_of(HOLD_TILL_TOLD, reg);
	const struct sc_host *host;

	(void)state;
	for (dying_count = 0; dying_count < 2; dying_count++) {
		start_holder(&dying[dying_count], &holder);
		remove_name(dying[dying_count].line);
	}
	meanwhile = die;
	assert_int_equal(sc_host_get(&host), 0);
	assert_int_equal(sc_reg_close(reg), host->pid_ns == SC_HOST_FIRST_PID_NS ? 0 : -EBUSY);
	assert_true(!meanwhile);
}

/* Let in, and its pid is not to be seen from here: it may be stopped, for what we know it runs. */
static void test_die_unseen(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder holder = holder_of(HOLD_TILL_TOLD, reg);

	(void)state;
	start_holder(&dying[0], &holder);
	dying_count = 1;
	ends_settle(&target, 1);
	sc_list_for (entry, &target.ep->peers) {
		struct sc_peer *peer = sc_list_entry(entry, struct sc_peer, all);

		sc_watch_del(&peer->watch); /* the core's own thread looks at it, too */
		peer->seg->cma_pid = 0;
	}
	stop(&dying[0]);
	meanwhile = die;
	assert_int_equal(sc_reg_close(reg), 0);
	assert_true(!meanwhile);
}

/* A peer that the owner cannot let in for lack of descriptors may copy all the same. */
static void test_not_let_in(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder holder = holder_of(HOLD_TILL_CLOSED, reg);
	struct rlimit before, none;
	struct child child;
	int ret;

	(void)state;
	start_holder(&child, &holder);
	assert_return_code(getrlimit(RLIMIT_NOFILE, &before), errno);
	none = before;
	none.rlim_cur = 0;
	assert_return_code(setrlimit(RLIMIT_NOFILE, &none), errno);
	ret = sc_reg_close(reg);
	assert_return_code(setrlimit(RLIMIT_NOFILE, &before), errno);
	assert_int_equal(ret, 0);
	assert_int_equal(*released, 1);
	assert_int_equal(target.ep->counters.accepts, 0);
	while (!target.ep->counters.accepts) /* it is tried again now and then */
		(void)sc_ep_poll(target.ep);
	assert_int_equal(child_end(&child), 0);
}

/* An endpoint that closes waits as well: nobody looks at its slots after that. */
static void test_leave(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct sc_reg *reg = must_open(RW, 0, 0x1000);
		struct holder holder = holder_of(HOLD_TILL_CLOSING, reg);
		struct child child;

		start_holder(&child, &holder);
		if (i)
			ends_settle(&target, 1);
		*released = 0;
		clock_stop();
		end_close(&target);
		clock_go_on();
		assert_int_equal(*released, 1);
		assert_int_equal(sc_reg_close(reg), 0);
		assert_int_equal(child_end(&child), 0);
		open_target(&target);
	}
}

static void test_leave_dead(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);
	struct holder holder = holder_of(HOLD_TILL_TOLD, reg);
	struct child child;

	(void)state;
	start_holder(&child, &holder);
	child_kill(&child);
	end_close(&target);
	assert_int_equal(sc_reg_close(reg), 0);
}

/* Writes a claim of a slot, and a hazard word into the slot, by hand. */
static void claim_by_hand(uint32_t slot, uint64_t claim, const struct sc_reg *reg)
{
	struct sc_abi_hazards *hazards;

	assert_int_equal(sc_seg_slot_alloc(target.ep->seg, slot), 0);
	hazards = &sc_seg_slot(target.ep->seg, slot)->hazards;
	sc_store_release_64(&hazards->words[0], reg->index + 1);
	sc_store_release_64(&sc_seg_claims(target.ep->seg)[slot], claim);
	sc_add_acq_rel_32(&sc_seg_presence(target.ep->seg)->membership, 1);
}

static void let_go_by_hand(void)
{
	sc_store_release_64(&sc_seg_slot(target.ep->seg, 3)->hazards.words[0], 0);
}

/*
 * A peer that was refused in its claim may have memory there, that it has given itself, and copy: the owner waits for it.
 * Without memory it copies nothing.
 */
static void test_refused(void **state)
{
	const uint64_t claim = SC_ABI_CLAIM_ELSEWHERE | SC_ABI_CLAIM_REFUSED | SC_ABI_PUBLISHED;
	struct sc_reg *reg = must_open(RW, 0, 0x1000);

	(void)state;
	sc_store_release_64(&sc_seg_claims(target.ep->seg)[2], claim);
	target.ep->accepted[0] |= 3ULL << 2; /* the endpoint sets these bits when it refuses, too */
	claim_by_hand(3, claim, reg);
	meanwhile = let_go_by_hand;
	assert_int_equal(sc_reg_close(reg), 0);
	assert_true(!meanwhile);
}

/* The owner refuses a peer without a possible address, and waits for it all the same. */
static void test_nobody(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);

	(void)state;
	claim_by_hand(3, SC_ABI_CLAIM_ELSEWHERE | SC_ABI_PUBLISHED, reg);
	meanwhile = let_go_by_hand;
	assert_int_equal(sc_reg_close(reg), 0);
	assert_true(!meanwhile);
	assert_int_equal(target.ep->counters.refusals, 1);
}

/* A peer that the owner cannot let in, as it cannot give the slot memory, has memory there all the same. */
static void test_no_descriptor(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);

	(void)state;
	claim_by_hand(3, SC_ABI_CLAIM_ELSEWHERE | SC_ABI_PUBLISHED, reg);
	meanwhile = let_go_by_hand;
	if (!core_failing("memory.part", EMFILE))
		skip();
	assert_int_equal(sc_reg_close(reg), 0);
	core_failing(NULL, 0);
	assert_true(!meanwhile);
}

/* At each look of the owner its time is over. */
static void time_passes(void)
{
	__atomic_fetch_add(&clock_stopped_at, (int64_t)SC_REG_WAIT_MS * 1000000, __ATOMIC_RELAXED);
	meanwhile = time_passes;
}

/* The log names a peer that still copies by its address, and shows nothing that is not an address. */
static void test_leave_nobody(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);

	(void)state;
	claim_by_hand(3, SC_ABI_CLAIM_ELSEWHERE | SC_ABI_PUBLISHED, reg);
	strcpy(sc_seg_slot(target.ep->seg, 3)->intro.address, "\033[2Jnobody");
	child_log_line[0] = '\0';
	clock_stop();
	meanwhile = time_passes;
	end_close(&target);
	meanwhile = NULL;
	clock_go_on();
	assert_non_null(strstr(child_log_line, "the peer (no address) still reports a copy"));
	assert_null(strstr(child_log_line, "nobody"));
	assert_int_equal(sc_reg_close(reg), 0);
}

static uint32_t late_name;

static void raise_late(void)
{
	sc_store_relaxed_64(&sc_seg_slot(target.ep->seg, 3)->hazards.words[0], late_name);
}

/* A hazard word that is visible when the registration has been closed, and no earlier, is waited for. */
static void test_raised_at_the_fence(void **state)
{
	struct sc_reg *reg = must_open(RW, 0, 0x1000);

	(void)state;
	claim_by_hand(3, SC_ABI_CLAIM_ELSEWHERE | SC_ABI_PUBLISHED, reg);
	let_go_by_hand();
	late_name = reg->index + 1;
	if (!core_fencing("reg.closed", raise_late))
		skip();
	meanwhile = let_go_by_hand;
	assert_int_equal(sc_reg_close(reg), 0);
	core_failing(NULL, 0);
	assert_true(!meanwhile);
}

static void in_a_child(struct child *self, void *arg)
{
	struct sc_reg *reg = arg, *mine = NULL;
	struct sc_cntr cntr = { 0 };

	(void)self;
	CHILD_CHECK(try_open(RW, 0, 0x1000, &mine) == -EPERM);
	sc_reg_set_cntrs(reg, &cntr, &cntr); /* of its copy: nothing that others see */
	CHILD_CHECK(!sc_reg_close(reg));
	sc_ep_destroy(target.ep);
	sc_regtab_destroy(tab);
}

static void test_forked(void **state)
{
	struct sc_reg *reg = must_open(RW | SC_REG_KEY, 4, 0x1000);

	(void)state;
	assert_int_equal(child_run(in_a_child, reg), 0);
	assert_int_equal(find(4), 0x1000);
	assert_int_equal(sc_reg_close(reg), 0);
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static void know_nobody(struct child *self, void *arg)
{
	struct sc_regtab *mine = NULL;

	(void)self, (void)arg;
	CHILD_CHECK(core_failing("host.dir", EACCES)); /* a child has yet to find out who it is */
	CHILD_CHECK(sc_regtab_create(&mine) == -EACCES);
	core_failing("host.random", EIO);
	CHILD_CHECK(sc_regtab_create(&mine) == -EIO);
	core_failing(NULL, 0);
	CHILD_CHECK(!sc_regtab_create(&mine));
	core_failing("host.random", EIO);
	CHILD_CHECK(sc_regtab_create(&mine) == -EIO);
}

/* One endpoint of two has no memory for it: it is seen in neither. */
static void test_calls_fail(void **state)
{
	struct sc_reg *reg;
	struct end second;

	(void)state;
	if (!core_failing(NULL, 0))
		skip();
	assert_int_equal(child_run(know_nobody, NULL), 0);
	open_target(&second);
	core_failing("memory.table", ENOSPC);
	assert_int_equal(try_open(RW | SC_REG_KEY, 1, 0x1000, &reg), -ENOSPC);
	core_failing_after("memory.table", ENOSPC, 1);
	assert_int_equal(try_open(RW | SC_REG_KEY, 1, 0x1000, &reg), -ENOSPC);
	core_failing("memory.part", EDQUOT); /* as full as for a whole file system */
	assert_int_equal(try_open(RW | SC_REG_KEY, 1, 0x1000, &reg), -ENOSPC);
	core_failing(NULL, 0);
	assert_int_equal(find(1), -EKEYREJECTED);
	assert_int_equal(find_in(&second.ep->table, 1), -EKEYREJECTED);
	reg = must_open(RW | SC_REG_KEY, 1, 0x1000);
	assert_int_equal(find_in(&second.ep->table, 1), 0x1000);
	assert_int_equal(sc_reg_close(reg), 0);
	end_close(&second);
}

/* ---- a full /dev/shm ------------------------------------------------------------------------- */

/* Take all that is left; the descriptor, to give it back by. */
static int take_all(void)
{
	int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct statvfs fs;

	CHILD_CHECK(fd >= 0 && !statvfs("/dev/shm", &fs));
	CHILD_CHECK(!fallocate(fd, 0, 0, (off_t)(fs.f_bavail * fs.f_bsize)));
	return fd;
}

static void fill_up(struct child *self, void *arg)
{
	static struct sc_reg *regs[70000];
	struct sc_ep_attr attr = end_attr();
	struct sc_reg *more = NULL;
	struct sc_ep *ep, *late = NULL;
	int fd, count = 0;

	(void)self;
	(void)arg;
	child_on_its_own();
	if (!child_private_shm("size=4m,mode=1777"))
		_exit(CHILD_SKIPS);
	CHILD_CHECK(!sc_regtab_create(&tab));
	attr.regtab = tab;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!try_open(RW, 0, 0x1000, &regs[count++]));
	fd = take_all();
	/* entries that have memory can be used */
	while (count < 64)
		CHILD_CHECK(!try_open(RW, 0, 0x1000, &regs[count++]));
	for (int i = 0; i < 3; i++) {
		CHILD_CHECK(try_open(RW, 0, 0x1000, &more) == -ENOSPC && !more);
		CHILD_CHECK(try_open(RW | SC_REG_KEY, 5, 0x1000, &more) == -ENOSPC);
	}
	CHILD_CHECK(tab->count == 65);		     /* the last serves each try */
	CHILD_CHECK(!try_open(0, 0, 0x1000, &more)); /* needs none */
	CHILD_CHECK(!sc_reg_close(more));
	for (int i = 0; i < count; i++)
		CHILD_CHECK(find_in(&ep->table, sc_reg_key(regs[i])) == 0x1000);
	/* the claim of a peer that has given its slot no memory: nobody copies there */
	sc_store_release_64(&sc_seg_claims(ep->seg)[3], SC_ABI_CLAIM_ELSEWHERE | SC_ABI_PUBLISHED);
	sc_add_acq_rel_32(&sc_seg_presence(ep->seg)->membership, 1);
	CHILD_CHECK(!sc_reg_close(regs[--count]));
	CHILD_CHECK(!(ep->accepted[0] & 1ULL << 3));
	sc_store_release_64(&sc_seg_claims(ep->seg)[3], 0);
	CHILD_CHECK(!try_open(RW, 0, 0x1000, &regs[count++]));

	/* it goes on where it was; then chains that grow longer, as there is no room for more buckets */
	CHILD_CHECK(!ftruncate(fd, 0));
	CHILD_CHECK(!try_open(RW | SC_REG_KEY, 0, 0x1000, &regs[count++]));
	CHILD_CHECK(sc_seg_table_grow(ep->seg, SC_SEG_REGS, 4096) == 0);
	close(fd);
	fd = take_all();
	for (uint64_t key = 1; key < 4000; key++)
		CHILD_CHECK(!try_open(RW | SC_REG_KEY, key, 0x1000, &regs[count++]));
	CHILD_CHECK(tab->bucket_bits == 10);
	for (uint64_t key = 0; key < 4000; key++)
		CHILD_CHECK(find_in(&ep->table, key) == 0x1000);
	CHILD_CHECK(find_in(&ep->table, 4000) == -EKEYREJECTED);

	/* an endpoint that cannot show it all is none */
	CHILD_CHECK(sc_ep_create(&attr, &late) == -ENOSPC);
	CHILD_CHECK(!ftruncate(fd, 0));
	CHILD_CHECK(!fallocate(fd, 0, 0, (3 << 20) + (512 << 10)));
	CHILD_CHECK(sc_ep_create(&attr, &late) == -ENOSPC && !late);
	CHILD_CHECK(!ftruncate(fd, 0));
	CHILD_CHECK(!sc_ep_create(&attr, &late));
	CHILD_CHECK(find_in(&late->table, 3999) == 0x1000);
	while (count)
		CHILD_CHECK(!sc_reg_close(regs[--count]));
	sc_ep_destroy(late);
	sc_ep_destroy(ep);
	sc_regtab_destroy(tab);
}

static void test_no_space(void **state)
{
	(void)state;
	CHILD_ASSERT(child_run(fill_up, NULL));
}

/* ---- a race ---------------------------------------------------------------------------------- */

/*
 * Threads that copy, in name only, while the owner closes and opens again: each registration has an
 * "address" of its own, and once its close has returned nobody may be copying from there.
 */
enum { ROUNDS = 10000, COPIERS = 2, APPLICATION_KEY = 77 };

static struct {
	uint8_t closed[ROUNDS];
	uint64_t key;
	bool over;
	unsigned long copies;
} race;

static void copy_once(const struct sc_peer *peer, uint64_t count)
{
	struct sc_regtab_view view = sc_seg_table(peer->seg);
	uint64_t *word = &sc_seg_slot(peer->seg, peer->out_slot)->hazards.words[count % SC_ABI_HAZARDS];
	uint64_t key = count % 2 ? APPLICATION_KEY : __atomic_load_n(&race.key, __ATOMIC_ACQUIRE), len = 1;
	struct sc_reg_span span;
	struct sc_reg_ref ref;
	struct iovec out;

	if (sc_regtab_find(&view, key, &ref))
		return;
	sc_store_relaxed_64(word, count << 32 | (ref.index + 1));
	sc_fence_seq_cst();
	if (!sc_regtab_check(&view, &ref, &(struct sc_remote){ 0, 1, 0 }, SC_REG_READ, &span)) {
		uintptr_t at;

		CHILD_CHECK(sc_regtab_slice(&span, 0, &len, &out, 1) == 1);
		at = (uintptr_t)out.iov_base;
		CHILD_CHECK(at < ROUNDS && span.size == at + 1);
		for (int i = 0; i < 20; i++)
			CHILD_CHECK(!__atomic_load_n(&race.closed[at], __ATOMIC_ACQUIRE));
		__atomic_fetch_add(&race.copies, 1, __ATOMIC_RELAXED);
		CHILD_CHECK(!__atomic_load_n(&race.closed[at], __ATOMIC_ACQUIRE));
	}
	sc_store_release_64(word, 0);
}

static void *copier(void *arg)
{
	struct sc_ep_attr attr = end_attr();
	struct sc_peer *peer;
	struct sc_ep *ep;

	(void)arg;
	CHILD_CHECK(!sc_ep_create(&attr, &ep));
	CHILD_CHECK(!sc_peer_get(ep, sc_ep_address(target.ep), &peer));
	CHILD_CHECK(!sc_peer_connect(peer));
	for (uint64_t count = 1; !__atomic_load_n(&race.over, __ATOMIC_ACQUIRE); count++) {
		copy_once(peer, count);
		if (count % 64 == 0)
			sched_yield(); /* fewer processors than threads */
	}
	sc_ep_destroy(ep);
	return NULL;
}

static struct sc_reg *open_round(uint32_t flags, uintptr_t at)
{
	struct iovec range = { (void *)at, at + 1 };
	struct sc_reg_attr attr = {
		.ranges = &range, .range_count = 1, .key = APPLICATION_KEY, .flags = RW | flags
	};
	struct sc_reg *reg = NULL;

	assert_int_equal(sc_reg_open(tab, &attr, &reg), 0);
	return reg;
}

static void test_race(void **state)
{
	pthread_t threads[COPIERS];

	(void)state;
	memset(&race, 0, sizeof(race));
	for (int i = 0; i < COPIERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, copier, NULL), 0);
	for (uintptr_t at = 0; at < ROUNDS; at += 2) {
		struct sc_reg *keyed = open_round(SC_REG_KEY, at), *ours = open_round(0, at + 1);

		__atomic_store_n(&race.key, sc_reg_key(ours), __ATOMIC_RELEASE);
		do /* in the first round, until there is somebody to race with */
			sched_yield();
		while (!__atomic_load_n(&race.copies, __ATOMIC_RELAXED));
		assert_int_equal(sc_reg_close(keyed), 0);
		__atomic_store_n(&race.closed[at], 1, __ATOMIC_RELEASE);
		assert_int_equal(sc_reg_close(ours), 0);
		__atomic_store_n(&race.closed[at + 1], 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&race.over, true, __ATOMIC_RELEASE);
	for (int i = 0; i < COPIERS; i++)
		pthread_join(threads[i], NULL);
	ends_settle(&target, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_open_close),
		TEST(test_collision),
		TEST(test_endpoints),
		TEST(test_cntrs),
		TEST(test_join),
		TEST(test_not_shown),
		TEST(test_join_after_reuse),
		TEST(test_hundred_thousand),
		TEST(test_footprint),
		TEST(test_released),
		TEST(test_released_by_several),
		TEST(test_stopped),
		TEST(test_killed),
		TEST(test_never_ends),
		TEST(test_leave_stopped),
		TEST(test_mixed),
		TEST(test_nameless),
		TEST(test_die_meanwhile),
		TEST(test_die_unseen),
		TEST(test_nobody),
		TEST(test_no_descriptor),
		TEST(test_leave_nobody),
		TEST(test_raised_at_the_fence),
		TEST(test_not_let_in),
		TEST(test_leave),
		TEST(test_leave_dead),
		TEST(test_forked),
		TEST(test_refused),
		TEST(test_calls_fail),
		cmocka_unit_test(test_no_space),
		TEST(test_race),
	};

	sc_log_set(child_log);
	(void)child_private_shm("size=64m,mode=1777");
	released =
		mmap(NULL, sizeof(*released), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (released == MAP_FAILED)
		return 99;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
