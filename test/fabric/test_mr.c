/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_mr: fi_mr(3): every call, flag and mode of registering memory. A second endpoint of the same process shows
 * by fi_read and fi_write which accesses a peer has.
 */
#include "onesided.h"

#include <limits.h>
#include <sys/wait.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_eq.h>

#define BOTH_WAYS (FI_REMOTE_READ | FI_REMOTE_WRITE)
#define MODES_1_5                                                                                         \
	(FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |                   \
	 FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT | FI_MR_HMEM | FI_MR_COLLECTIVE)

static void open_mode(struct pair *pair, int mr_mode, uint32_t version)
{
	pair_open(pair,
		  &(struct pair_want){ .caps = ONESIDED_CAPS, .mr_mode = mr_mode, .version = version });
}

/* a reads one byte of registered memory; returns the error of that, or 0. */
static int probe(struct pair *pair, uint64_t addr, uint64_t key, uint8_t expected)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	uint8_t byte = (uint8_t)~expected;
	ssize_t ret;

	post(pair, fi_read(pair->a.ep, &byte, 1, NULL, pair->a.peer, addr, key, NULL));
	while ((ret = fi_cq_read(pair->a.cq, &entry, 1)) == -FI_EAGAIN)
		pair_progress(pair);
	if (ret == 1) {
		gives(byte, expected);
		return 0;
	}
	gives(ret, -FI_EAVAIL);
	gives(fi_cq_readerr(pair->a.cq, &error, 0), 1);
	return error.err;
}

static uint64_t base_of(const struct pair *pair, const void *buf)
{
	return pair_is_virtual(pair) ? (uintptr_t)buf : 0;
}

/* ---- modes ----------------------------------------------------------------------------------- */

/* How a mode that was offered is used: the keys, the addresses, and whether fi_mr_enable is needed. */
static void check_mode(int offered, uint32_t version)
{
	struct fid_mr *first, *second;
	uint8_t buf[256];
	struct pair pair;

	open_mode(&pair, offered, version);
	pattern_fill(buf, 0, sizeof(buf), 3);
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 77, 0, &first, buf), 0);
	gives(first->fid.fclass, FI_CLASS_MR);
	must(first->fid.context == buf);
	must(fi_mr_key(first) != FI_KEY_NOTAVAIL);
	gives(fi_mr_enable(first), 0); /* not needed, as no such mode was granted */
	if (pair_makes_keys(&pair)) {
		/* the requested key is ignored */
		gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 77, 0, &second, NULL), 0);
		must(fi_mr_key(first) != fi_mr_key(second));
		gives(fi_close(&second->fid), 0);
	} else {
		gives(fi_mr_key(first), 77);
		gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 77, 0, &second, NULL),
		      -FI_ENOKEY);
	}
	gives(probe(&pair, base_of(&pair, buf), fi_mr_key(first), buf[0]), 0);
	gives(probe(&pair, base_of(&pair, buf) + 255, fi_mr_key(first), buf[255]), 0);
	gives(probe(&pair, base_of(&pair, buf) + 256, fi_mr_key(first), 0), FI_EINVAL);
	gives(fi_close(&first->fid), 0);
	pair_close(&pair);
}

static void test_modes(void)
{
	for (int mode = 0; mode < 1 << 12; mode += FI_MR_LOCAL)
		if (!(mode & (mode - 1)) || mode == ONESIDED_MODE || mode == MODES_1_5)
			check_mode(mode, FI_VERSION(1, 17));
	check_mode(FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, FI_VERSION(1, 5));
	check_mode(FI_MR_BASIC, FI_VERSION(1, 17));
	check_mode(FI_MR_SCALABLE, FI_VERSION(1, 17));
}

static void test_modes_of_old(void)
{
	check_mode(FI_MR_UNSPEC, FI_VERSION(1, 4));
	check_mode(FI_MR_BASIC, FI_VERSION(1, 4));
	check_mode(FI_MR_SCALABLE, FI_VERSION(1, 4));
	check_mode(FI_MR_BASIC, FI_VERSION(1, 0));
}

/* ---- attributes ------------------------------------------------------------------------------ */

static void test_access(void)
{
	static const uint64_t bits[] = { FI_SEND,  FI_RECV,	   FI_READ,
					 FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE };
	uint8_t buf[64] = { 1 };
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	for (unsigned int set = 0; set < 1u << 6; set++) {
		uint64_t access = 0;

		for (int i = 0; i < 6; i++)
			access |= set >> i & 1 ? bits[i] : 0;
		gives(fi_mr_reg(pair.domain, buf, sizeof(buf), access, 0, 0, 0, &mr, NULL), 0);
		(void)fi_mr_desc(mr);
		if (access & BOTH_WAYS)
			gives(probe(&pair, (uintptr_t)buf, fi_mr_key(mr), buf[0]),
			      access & FI_REMOTE_READ ? 0 : FI_EACCES);
		else
			must(fi_mr_key(mr) == FI_KEY_NOTAVAIL);
		gives(fi_close(&mr->fid), 0);
	}
	for (int bit = 0; bit < 64; bit++) {
		uint64_t access = 1ULL << bit;

		if (!(access & (FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_COLLECTIVE | BOTH_WAYS)))
			gives(fi_mr_reg(pair.domain, buf, sizeof(buf), access | FI_SEND, 0, 0, 0, &mr,
					NULL),
			      -FI_EINVAL);
	}
	pair_close(&pair);
}

static void test_flags(void)
{
	struct fi_mr_attr attr = { .iov_count = 1, .access = BOTH_WAYS };
	uint8_t buf[64] = { 7 };
	struct iovec iov = { buf, sizeof(buf) };
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	/* some say that the attributes hold something else than mr_iov, which may be no pointer to read from */
	attr.mr_iov = (void *)(uintptr_t)16;
	for (int bit = 0; bit < 64; bit++) {
		uint64_t flags = 1ULL << bit;

		if (flags == FI_RMA_EVENT)
			continue;
		gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 0, flags, &mr, NULL),
		      -FI_EBADFLAGS);
		gives(fi_mr_regv(pair.domain, &iov, 1, BOTH_WAYS, 0, 0, flags, &mr, NULL), -FI_EBADFLAGS);
		gives(fi_mr_regattr(pair.domain, &attr, flags, &mr), -FI_EBADFLAGS);
	}
	/* FI_MR_RMA_EVENT is not the mode, so it is open at once */
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 0, FI_RMA_EVENT, &mr, NULL), 0);
	gives(probe(&pair, (uintptr_t)buf, fi_mr_key(mr), buf[0]), 0);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

static void test_arguments(void)
{
	struct fi_mr_attr attr = { .access = FI_SEND };
	uint8_t buf[64];
	struct iovec iov = { buf, sizeof(buf) };
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, 0, 0);
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 1, 5, 0, &mr, NULL), -FI_EINVAL);
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), FI_SEND, 1, 5, 0, &mr, NULL), -FI_EINVAL);
	gives(fi_mr_regv(pair.domain, NULL, 1, BOTH_WAYS, 0, 5, 0, &mr, NULL), -FI_EINVAL);
	gives(fi_mr_regv(pair.domain, &iov, 0, BOTH_WAYS, 0, 5, 0, &mr, NULL), -FI_EINVAL);
	gives(fi_mr_regattr(pair.domain, NULL, 0, &mr), -FI_EINVAL);
	gives(fi_mr_regattr(pair.domain, &attr, 0, &mr), -FI_EINVAL);
	attr.mr_iov = &iov;
	attr.iov_count = 1;
	attr.context = &iov;
	gives(fi_mr_regattr(pair.domain, &attr, 0, &mr), 0);
	must(mr->fid.context == &iov);
	gives(fi_close(&mr->fid), 0);
	attr.offset = 4096;
	gives(fi_mr_regattr(pair.domain, &attr, 0, &mr), -FI_EINVAL);
	/* a key that could not be told from none */
	gives(fi_mr_reg(pair.domain, buf, 1, BOTH_WAYS, 0, FI_KEY_NOTAVAIL, 0, &mr, NULL),
	      -FI_EKEYREJECTED);
	/* a failed one has left nothing behind */
	gives(fi_mr_reg(pair.domain, buf, 1, BOTH_WAYS, 0, 5, 0, &mr, NULL), 0);
	gives(fi_close(&pair.domain->fid), -FI_EBUSY);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

/* A struct fi_mr_attr of an application of that version, `size` bytes: the memory behind it must not be read. */
static void *attr_at_end(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(map != MAP_FAILED);
	gives(mprotect(map + page, page, PROT_NONE), 0);
	return map + page - size;
}

static void check_attr_size(uint32_t version, size_t size)
{
	static uint8_t buf[64] = { 9 };
	static const struct iovec iov = { buf, sizeof(buf) };
	struct fi_mr_attr *attr = attr_at_end(size);
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, FI_MR_BASIC, version);
	attr->mr_iov = &iov;
	attr->iov_count = 1;
	attr->access = BOTH_WAYS;
	attr->context = buf;
	gives(fi_mr_regattr(pair.domain, attr, 0, &mr), 0);
	gives(probe(&pair, (uintptr_t)buf, fi_mr_key(mr), buf[0]), 0);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

static void test_attr_versions(void)
{
	check_attr_size(FI_VERSION(1, 4), offsetof(struct fi_mr_attr, auth_key_size));
	check_attr_size(FI_VERSION(1, 5), offsetof(struct fi_mr_attr, iface));
	check_attr_size(FI_VERSION(1, 8), offsetof(struct fi_mr_attr, iface));
	check_attr_size(FI_VERSION(1, 17), sizeof(struct fi_mr_attr));
}

static void check_attr_refused(uint32_t version, const struct fi_mr_attr *attr, int error)
{
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, FI_MR_BASIC, version);
	gives(fi_mr_regattr(pair.domain, attr, 0, &mr), error);
	if (!error)
		gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

/* Nobody has asked for FI_HMEM, so no kind of memory is named: what is registered is mapped like any other. */
static void test_attr_interface(void)
{
	static const uint32_t versions[] = { FI_VERSION(1, 8), FI_VERSION(1, 9), FI_VERSION(1, 17) };
	uint8_t buf[64] = { 7 };
	struct iovec iov = { buf, sizeof(buf) };
	struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = BOTH_WAYS };
	struct fid_mr *mr;
	struct pair pair;

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		open_mode(&pair, FI_MR_BASIC, versions[i]);
		for (int iface = FI_HMEM_SYSTEM; iface <= FI_HMEM_SYNAPSEAI + 1; iface++) {
			attr.iface = iface;
			attr.device.reserved = UINT64_MAX;
			gives(fi_mr_regattr(pair.domain, &attr, 0, &mr), 0);
			gives(probe(&pair, (uintptr_t)buf, fi_mr_key(mr), buf[0]), 0);
			gives(fi_close(&mr->fid), 0);
		}
		pair_close(&pair);
	}
}

static void test_attr_refused(void)
{
	uint8_t buf[64], secret[8] = { 0 };
	struct iovec iov = { buf, sizeof(buf) };
	struct fi_mr_attr attr = { .mr_iov = &iov, .iov_count = 1, .access = BOTH_WAYS };

	attr.auth_key = secret;
	attr.auth_key_size = sizeof(secret);
	check_attr_refused(FI_VERSION(1, 17), &attr, -FI_EOPNOTSUPP);
	check_attr_refused(FI_VERSION(1, 5), &attr, -FI_EOPNOTSUPP);
	check_attr_refused(FI_VERSION(1, 4), &attr, 0);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void test_empty(void)
{
	uint8_t buf[16] = { 1 };
	struct iovec iov[3] = { { buf, 0 }, { buf + 4, 4 }, { buf, 0 } };
	struct region region;
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	region_open(&pair, &region, buf, 0, BOTH_WAYS);
	gives(probe(&pair, (uintptr_t)buf, region.remote.key, 0), FI_EINVAL);
	post(&pair,
	     fi_write(pair.a.ep, NULL, 0, NULL, pair.a.peer, (uintptr_t)buf, region.remote.key, buf));
	must(pair_done(&pair, &pair.a).entry.op_context == buf);
	region_close(&region);
	region_open(&pair, &region, NULL, 0, BOTH_WAYS);
	gives(probe(&pair, 0, region.remote.key, 0), FI_EINVAL);
	region_close(&region);
	/* empty ranges among others are as if they were not there */
	region_openv(&pair, &region, iov, 3, BOTH_WAYS);
	gives(probe(&pair, (uintptr_t)buf + 4, region.remote.key, buf[4]), 0);
	gives(probe(&pair, (uintptr_t)buf + 8, region.remote.key, 0), FI_EINVAL);
	gives(probe(&pair, (uintptr_t)buf, region.remote.key, 0), FI_EINVAL);
	region_close(&region);
	pair_close(&pair);
}

/* All there is; memory can be mapped later. */
static void test_whole_address_space(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t on_stack = 17;
	uint8_t *later;
	struct region region;
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	region_open(&pair, &region, NULL, SIZE_MAX, BOTH_WAYS);
	gives(probe(&pair, (uintptr_t)&on_stack, region.remote.key, 17), 0);
	later = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(later != MAP_FAILED);
	later[5] = 99;
	gives(probe(&pair, (uintptr_t)later + 5, region.remote.key, 99), 0);
	region_close(&region);
	pair_close(&pair);
	/* by offset that is the same */
	open_mode(&pair, 0, 0);
	region_open(&pair, &region, NULL, SIZE_MAX, FI_REMOTE_READ);
	gives(probe(&pair, (uintptr_t)&on_stack, region.remote.key, 17), 0);
	region_close(&region);
	pair_close(&pair);
}

static void test_too_much(void)
{
	struct iovec two[2] = { { NULL, SIZE_MAX }, { NULL, SIZE_MAX } };
	uint8_t byte;
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	gives(fi_mr_reg(pair.domain, &byte, SIZE_MAX, BOTH_WAYS, 0, 0, 0, &mr, NULL), -FI_EINVAL);
	gives(fi_mr_reg(pair.domain, (void *)UINTPTR_MAX, 2, BOTH_WAYS, 0, 0, 0, &mr, NULL), -FI_EINVAL);
	gives(fi_mr_regv(pair.domain, two, 2, BOTH_WAYS, 0, 0, 0, &mr, NULL), -FI_EINVAL);
	pair_close(&pair);
}

/* As many ranges as there may be, not in the order of their addresses, one more, and the same by address. */
static void check_many_ranges(int mode)
{
	enum { LEN = 48 };
	struct iovec *iov;
	struct region region;
	struct fid_mr *mr;
	struct pair pair;
	uint8_t *buf;
	size_t limit;

	open_mode(&pair, mode, 0);
	limit = pair.info->domain_attr->mr_iov_limit;
	must(limit >= 256);
	iov = calloc(limit + 1, sizeof(*iov));
	buf = malloc(limit * LEN);
	must(iov && buf);
	pattern_fill(buf, 0, limit * LEN, 11);
	for (size_t i = 0; i <= limit; i++)
		iov[i] = (struct iovec){ buf + (limit - 1 - i % limit) * LEN, LEN };
	gives(fi_mr_regv(pair.domain, iov, limit + 1, BOTH_WAYS, 0, 1, 0, &mr, NULL), -FI_EINVAL);
	gives(fi_mr_regv(pair.domain, iov, limit + 1, FI_SEND, 0, 1, 0, &mr, NULL), -FI_EINVAL);
	region_openv(&pair, &region, iov, limit, BOTH_WAYS);
	memset(iov, 0, sizeof(*iov) * limit); /* the vector is the caller's again */
	for (size_t i = 0; i < limit; i += 37)
		for (size_t j = 0; j < LEN; j += 13)
			gives(probe(&pair, region.remote.addr + i * LEN + j, region.remote.key,
				    buf[(limit - 1 - i) * LEN + j]),
			      0);
	gives(probe(&pair, region.remote.addr + limit * LEN, region.remote.key, 0), FI_EINVAL);
	region_close(&region);
	free(iov);
	free(buf);
	pair_close(&pair);
}

static void test_many_ranges(void)
{
	check_many_ranges(0);
	check_many_ranges(ONESIDED_MODE);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void test_application_keys(void)
{
	static const uint64_t keys[] = { 0, 1, UINT32_MAX, 1ULL << 32, INT64_MAX, UINT64_MAX - 1 };
	enum { KEYS = sizeof(keys) / sizeof(keys[0]) };
	struct fid_mr *mrs[KEYS], *mr;
	uint8_t buf[KEYS];
	struct pair pair;

	open_mode(&pair, 0, 0);
	for (int i = 0; i < KEYS; i++) {
		buf[i] = (uint8_t)(100 + i);
		gives(fi_mr_reg(pair.domain, buf + i, 1, BOTH_WAYS, 0, keys[i], 0, &mrs[i], NULL), 0);
		must(fi_mr_key(mrs[i]) == keys[i]);
	}
	for (int i = 0; i < KEYS; i++) {
		gives(probe(&pair, 0, keys[i], buf[i]), 0);
		gives(fi_mr_reg(pair.domain, buf, 1, FI_REMOTE_READ, 0, keys[i], 0, &mr, NULL),
		      -FI_ENOKEY);
	}
	/* those for local use need none, and take none */
	gives(fi_mr_reg(pair.domain, buf, 1, FI_SEND, 0, keys[0], 0, &mr, NULL), 0);
	gives(fi_close(&mr->fid), 0);
	/* once closed, a key can be had again */
	gives(fi_close(&mrs[2]->fid), 0);
	gives(probe(&pair, 0, keys[2], 0), FI_EKEYREJECTED);
	gives(fi_mr_reg(pair.domain, buf, 1, BOTH_WAYS, 0, keys[2], 0, &mrs[2], NULL), 0);
	gives(probe(&pair, 0, keys[2], buf[0]), 0);
	for (int i = 0; i < KEYS; i++)
		gives(fi_close(&mrs[i]->fid), 0);
	pair_close(&pair);
}

/* The same memory, registered again and again: no key comes twice, and none of those closed is good. */
static void test_stale_keys(void)
{
	enum { TIMES = 1000 };
	static uint64_t old[TIMES];
	uint8_t buf[8] = { 42 };
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	for (int i = 0; i < TIMES; i++) {
		gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 0, 0, &mr, NULL), 0);
		old[i] = fi_mr_key(mr);
		gives(probe(&pair, (uintptr_t)buf, old[i], 42), 0);
		if (i) {
			must(old[i] != old[i - 1]);
			gives(probe(&pair, (uintptr_t)buf, old[i - 1], 0), FI_EKEYREJECTED);
			gives(probe(&pair, (uintptr_t)buf, old[i / 2], 0), FI_EKEYREJECTED);
		}
		gives(fi_close(&mr->fid), 0);
	}
	pair_close(&pair);
}

#define MANY 100000

static void check_many(int mode)
{
	static struct fid_mr *mrs[MANY];
	static uint8_t buf[MANY];
	struct pair pair;

	open_mode(&pair, mode, 0);
	must(pair.info->domain_attr->mr_cnt >= MANY);
	for (size_t i = 0; i < MANY; i++) {
		buf[i] = (uint8_t)(i * 7);
		gives(fi_mr_reg(pair.domain, buf + i, 1, BOTH_WAYS, 0, i * 3, 0, &mrs[i], NULL), 0);
	}
	for (size_t i = 0; i < MANY; i += 97)
		gives(probe(&pair, base_of(&pair, buf + i), fi_mr_key(mrs[i]), buf[i]), 0);
	/* neither in order nor in reverse */
	for (size_t i = 0; i < MANY; i++)
		gives(fi_close(&mrs[i * 7919 % MANY]->fid), 0);
	pair_close(&pair);
}

static void test_many(void)
{
	check_many(ONESIDED_MODE);
	check_many(0);
}

/* ---- raw keys -------------------------------------------------------------------------------- */

static void check_raw(int mode)
{
	uint8_t buf[32] = { 0, 0, 0, 5 }, raw[16];
	uint64_t base = 1, key = 1;
	size_t size = 0;
	struct fid_mr *mr;
	struct pair pair;

	open_mode(&pair, mode | FI_MR_RAW, 0);
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 1234, 0, &mr, NULL), 0);
	gives(fi_mr_raw_attr(mr, &base, NULL, &size, 0), -FI_ETOOSMALL);
	gives(size, pair.info->domain_attr->mr_key_size);
	size = 7;
	gives(fi_mr_raw_attr(mr, &base, raw, &size, 0), -FI_ETOOSMALL);
	size = sizeof(raw);
	gives(fi_mr_raw_attr(mr, &base, raw, &size, FI_MORE), -FI_EBADFLAGS);
	gives(fi_mr_raw_attr(mr, &base, NULL, &size, 0), -FI_EINVAL);
	size = sizeof(raw);
	gives(fi_mr_raw_attr(mr, &base, raw, &size, 0), 0);
	gives(size, 8);
	gives(base, base_of(&pair, buf));

	gives(fi_mr_map_raw(pair.domain, base, raw, 7, &key, 0), -FI_EINVAL);
	gives(fi_mr_map_raw(pair.domain, base, NULL, size, &key, 0), -FI_EINVAL);
	gives(fi_mr_map_raw(pair.domain, base, raw, size, NULL, 0), -FI_EINVAL);
	gives(fi_mr_map_raw(pair.domain, base, raw, size, &key, FI_MORE), -FI_EBADFLAGS);
	gives(fi_mr_map_raw(pair.domain, base, raw, size, &key, 0), 0);
	gives(probe(&pair, base + 3, key, 5), 0);
	gives(fi_mr_unmap_key(pair.domain, key), 0);
	gives(fi_close(&mr->fid), 0);
	/* nothing that a peer could use */
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), FI_SEND, 0, 1234, 0, &mr, NULL), 0);
	size = sizeof(raw);
	gives(fi_mr_raw_attr(mr, &base, raw, &size, 0), -FI_ENOKEY);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

static void test_raw(void)
{
	check_raw(0);
	check_raw(ONESIDED_MODE);
	check_raw(FI_MR_VIRT_ADDR);
}

/* ---- refresh, control ------------------------------------------------------------------------ */

/* Pages may come, go and change under a registration; to say so is allowed in any mode. */
static void test_refresh(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *map = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec part = { map, 64 };
	struct region region;
	struct pair pair;

	must(map != MAP_FAILED);
	open_mode(&pair, ONESIDED_MODE, 0);
	region_open(&pair, &region, map, page, BOTH_WAYS);
	map[1] = 4;
	gives(probe(&pair, (uintptr_t)map + 1, region.remote.key, 4), 0);
	must(mmap(map, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	     map);
	map[1] = 5;
	gives(fi_mr_refresh(region.mr, NULL, 0, 0), 0);
	gives(fi_mr_refresh(region.mr, &part, 1, 0), 0);
	gives(fi_mr_refresh(region.mr, NULL, 1, 0), -FI_EINVAL);
	gives(fi_mr_refresh(region.mr, &part, 1, FI_MORE), -FI_EBADFLAGS);
	gives(probe(&pair, (uintptr_t)map + 1, region.remote.key, 5), 0);
	gives(fi_control(&region.mr->fid, FI_REFRESH, NULL), -FI_EINVAL);
	gives(fi_control(&region.mr->fid, FI_GET_RAW_MR, NULL), -FI_EINVAL);
	gives(fi_control(&region.mr->fid, FI_GETFIDFLAG, NULL), -FI_ENOSYS);
	gives(fi_control(&pair.domain->fid, FI_MAP_RAW_MR, NULL), -FI_EINVAL);
	gives(fi_control(&pair.domain->fid, FI_UNMAP_KEY, NULL), -FI_EINVAL);
	region_close(&region);
	pair_close(&pair);
}

/* ---- counters -------------------------------------------------------------------------------- */

static struct fid_cntr *open_cntr(struct fid_domain *domain)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *cntr;

	gives(fi_cntr_open(domain, &attr, &cntr, NULL), 0);
	return cntr;
}

static void put_byte(struct pair *pair, const struct remote *remote, uint8_t value)
{
	post(pair, fi_write(pair->a.ep, &value, 1, NULL, pair->a.peer, remote->addr, remote->key, NULL));
	pair_done(pair, &pair->a);
}

static void wait_cntr(struct pair *pair, struct fid_cntr *cntr, uint64_t value)
{
	while (fi_cntr_read(cntr) < value)
		pair_progress(pair);
	gives(fi_cntr_read(cntr), value);
	gives(fi_cntr_readerr(cntr), 0);
}

static void test_bind_arguments(void)
{
	struct fid_domain *other;
	struct fid_cntr *cntr, *stranger;
	struct region region;
	uint8_t buf[8];
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	gives(fi_domain(pair.fabric, pair.info, &other, NULL), 0);
	cntr = open_cntr(pair.domain);
	stranger = open_cntr(other);
	region_open(&pair, &region, buf, sizeof(buf), BOTH_WAYS);
	gives(fi_mr_bind(region.mr, &cntr->fid, 0), -FI_EBADFLAGS);
	for (int bit = 0; bit < 64; bit++)
		if (!(BOTH_WAYS >> bit & 1))
			gives(fi_mr_bind(region.mr, &cntr->fid, 1ULL << bit | FI_REMOTE_WRITE),
			      -FI_EBADFLAGS);
	gives(fi_mr_bind(region.mr, NULL, FI_REMOTE_WRITE), -FI_EINVAL);
	gives(fi_mr_bind(region.mr, &pair.a.cq->fid, 0), -FI_EINVAL);
	gives(fi_mr_bind(region.mr, &pair.domain->fid, 0), -FI_EINVAL);
	gives(fi_mr_bind(region.mr, &stranger->fid, FI_REMOTE_WRITE), -FI_EINVAL);
	gives(fi_close(&stranger->fid), 0);
	gives(fi_close(&other->fid), 0);
	/* an endpoint may be named in any mode; its flags are 0 */
	gives(fi_mr_bind(region.mr, &pair.b.ep->fid, 0), 0);
	gives(fi_mr_bind(region.mr, &pair.b.ep->fid, FI_REMOTE_WRITE), -FI_EBADFLAGS);

	gives(fi_mr_bind(region.mr, &cntr->fid, FI_REMOTE_WRITE), 0);
	gives(fi_mr_bind(region.mr, &cntr->fid, FI_REMOTE_WRITE), -FI_EINVAL); /* it has one */
	gives(fi_close(&cntr->fid), -FI_EBUSY);
	gives(fi_mr_bind(region.mr, &cntr->fid, FI_REMOTE_READ), 0);
	region_close(&region);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

/* Bound after the memory was registered, as is allowed without FI_MR_RMA_EVENT. */
static void test_bind_later(void)
{
	struct fid_cntr *writes, *reads;
	struct region region, other;
	uint8_t buf[8] = { 3 }, other_buf[8];
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	writes = open_cntr(pair.domain);
	reads = open_cntr(pair.domain);
	region_open(&pair, &region, buf, sizeof(buf), BOTH_WAYS);
	region_open(&pair, &other, other_buf, sizeof(other_buf), BOTH_WAYS);
	put_byte(&pair, &region.remote, 3);
	gives(fi_mr_bind(region.mr, &writes->fid, FI_REMOTE_WRITE), 0);
	gives(fi_cntr_read(writes), 0);
	put_byte(&pair, &region.remote, 4);
	wait_cntr(&pair, writes, 1);
	gives(buf[0], 4);
	gives(fi_mr_bind(region.mr, &reads->fid, FI_REMOTE_READ), 0);
	gives(probe(&pair, region.remote.addr, region.remote.key, 4), 0);
	wait_cntr(&pair, reads, 1);
	/* accesses to other memory are not counted here */
	put_byte(&pair, &other.remote, 4);
	pair_quiet(&pair, &pair.a);
	gives(fi_cntr_read(writes), 1);
	gives(fi_cntr_read(reads), 1);
	region_close(&region);
	region_close(&other);
	gives(fi_close(&writes->fid), 0);
	gives(fi_close(&reads->fid), 0);
	pair_close(&pair);
}

static void fetch_one(struct pair *pair, const struct region *region, enum fi_op op,
		      const uint64_t *operand, uint64_t *got)
{
	post(pair, fi_fetch_atomic(pair->a.ep, operand, 1, NULL, got, NULL, pair->a.peer,
				   region->remote.addr, region->remote.key, FI_UINT64, op, NULL));
	pair_done(pair, &pair->a);
}

/* One by one, as all that waits for the counter of writes has to hear of each that may have changed something. */
static void test_count_atomics(void)
{
	struct fid_cntr *writes, *reads, *both;
	struct region region, other;
	uint64_t word = 5, other_word = 5, one = 1, got;
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	writes = open_cntr(pair.domain);
	reads = open_cntr(pair.domain);
	both = open_cntr(pair.domain);
	region_open(&pair, &region, &word, sizeof(word), BOTH_WAYS);
	region_open(&pair, &other, &other_word, sizeof(other_word), BOTH_WAYS);
	gives(fi_mr_bind(region.mr, &writes->fid, FI_REMOTE_WRITE), 0);
	gives(fi_mr_bind(region.mr, &reads->fid, FI_REMOTE_READ), 0);
	gives(fi_mr_bind(other.mr, &both->fid, BOTH_WAYS), 0);

	post(&pair, fi_atomic(pair.a.ep, &one, 1, NULL, pair.a.peer, region.remote.addr, region.remote.key,
			      FI_UINT64, FI_SUM, NULL));
	pair_done(&pair, &pair.a);
	wait_cntr(&pair, writes, 1);
	gives(fi_cntr_read(reads), 0);
	/* changes it and brings back what it was: a write, and a read */
	fetch_one(&pair, &region, FI_SUM, &one, &got);
	wait_cntr(&pair, writes, 2);
	gives(fi_cntr_read(reads), 1);
	gives(got, 6);
	post(&pair, fi_compare_atomic(pair.a.ep, &one, 1, NULL, &got, NULL, &got, NULL, pair.a.peer,
				      region.remote.addr, region.remote.key, FI_UINT64, FI_MSWAP, NULL));
	pair_done(&pair, &pair.a);
	wait_cntr(&pair, writes, 3);
	gives(fi_cntr_read(reads), 2);
	/* changes nothing */
	fetch_one(&pair, &region, FI_ATOMIC_READ, NULL, &got);
	wait_cntr(&pair, reads, 3);
	gives(fi_cntr_read(writes), 3);
	/* a counter for both counts it once */
	fetch_one(&pair, &other, FI_SUM, &one, &got);
	wait_cntr(&pair, both, 1);
	pair_quiet(&pair, &pair.a);
	gives(fi_cntr_read(both), 1);
	region_close(&region);
	region_close(&other);
	gives(fi_close(&writes->fid), 0);
	gives(fi_close(&reads->fid), 0);
	gives(fi_close(&both->fid), 0);
	pair_close(&pair);
}

/* An operation on two regions counts once in each. */
static void test_count_both(void)
{
	struct access access = { .iov_count = 1, .remote_count = 2 };
	uint64_t words[2] = { 0 }, out[2] = { 7, 8 };
	struct fid_cntr *cntrs[2];
	struct region regions[2];
	struct pair pair;

	open_mode(&pair, ONESIDED_MODE, 0);
	for (int i = 0; i < 2; i++) {
		cntrs[i] = open_cntr(pair.domain);
		region_open(&pair, &regions[i], &words[i], sizeof(words[i]), BOTH_WAYS);
		gives(fi_mr_bind(regions[i].mr, &cntrs[i]->fid, BOTH_WAYS), 0);
		access.remote[i] = (struct fi_rma_iov){ regions[i].remote.addr, sizeof(words[i]),
							regions[i].remote.key };
	}
	access.peer = pair.a.peer;
	access.iov[0] = (struct iovec){ out, sizeof(out) };
	for (uint64_t turn = 0; turn < 4; turn++) {
		post(&pair, access_post(&pair.a, &access, turn % 2 == 0, FI_COMPLETION));
		pair_done(&pair, &pair.a);
		for (int i = 0; i < 2; i++)
			wait_cntr(&pair, cntrs[i], turn + 1);
		pair_quiet(&pair, &pair.a);
		for (int i = 0; i < 2; i++)
			gives(fi_cntr_read(cntrs[i]), turn + 1);
		must(words[0] == 7 && words[1] == 8);
	}
	for (int i = 0; i < 2; i++) {
		region_close(&regions[i]);
		gives(fi_close(&cntrs[i]->fid), 0);
	}
	pair_close(&pair);
}

/* ---- regions that begin disabled -------------------------------------------------------------- */

/* The application asks for a mode that was not granted, in the info that it opens the domain with. */
static void open_forced(struct pair *pair, int mode)
{
	open_mode(pair, ONESIDED_MODE, 0);
	side_close(&pair->a);
	side_close(&pair->b);
	gives(fi_close(&pair->domain->fid), 0);
	pair->info->domain_attr->mr_mode |= mode;
	gives(fi_domain(pair->fabric, pair->info, &pair->domain, NULL), 0);
	side_open(pair, &pair->a);
	side_open(pair, &pair->b);
	pair_introduce(pair);
}

static void test_enable_rma_event(void)
{
	uint8_t buf[64] = { 8 }, raw[8];
	uint64_t base;
	size_t size = sizeof(raw);
	struct fid_cntr *cntr;
	struct remote remote;
	struct fid_mr *mr;
	struct pair pair;

	open_forced(&pair, FI_MR_RMA_EVENT);
	cntr = open_cntr(pair.domain);
	/* without the flag nothing is different */
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 0, 0, &mr, NULL), 0);
	gives(probe(&pair, (uintptr_t)buf, fi_mr_key(mr), 8), 0);
	gives(fi_mr_enable(mr), 0);
	gives(fi_close(&mr->fid), 0);

	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 0, FI_RMA_EVENT, &mr, NULL), 0);
	must(fi_mr_key(mr) == FI_KEY_NOTAVAIL);
	gives(fi_mr_raw_attr(mr, &base, raw, &size, 0), -FI_ENOKEY);
	gives(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_WRITE), 0);
	gives(fi_mr_enable(mr), 0);
	must(fi_mr_key(mr) != FI_KEY_NOTAVAIL);
	gives(fi_mr_bind(mr, &cntr->fid, FI_REMOTE_READ), -FI_EOPBADSTATE);
	gives(fi_mr_enable(mr), 0);
	remote = (struct remote){ (uintptr_t)buf, sizeof(buf), fi_mr_key(mr) };
	put_byte(&pair, &remote, 9);
	wait_cntr(&pair, cntr, 1);
	gives(buf[0], 9);
	gives(fi_close(&mr->fid), 0);

	/* one that was never enabled */
	gives(fi_mr_reg(pair.domain, buf, sizeof(buf), BOTH_WAYS, 0, 0, FI_RMA_EVENT, &mr, NULL), 0);
	gives(fi_mr_bind(mr, &cntr->fid, BOTH_WAYS), 0);
	gives(fi_close(&mr->fid), 0);
	gives(fi_close(&cntr->fid), 0);
	pair_close(&pair);
}

static void test_enable_endpoint(void)
{
	uint8_t buf[64] = { 8 };
	struct iovec iov[2] = { { buf + 32, 32 }, { buf, 32 } };
	struct fid_domain *other;
	struct fid_ep *stranger;
	struct fid_mr *mr;
	struct pair pair;

	open_forced(&pair, FI_MR_ENDPOINT);
	gives(fi_domain(pair.fabric, pair.info, &other, NULL), 0);
	gives(fi_endpoint(other, pair.info, &stranger, NULL), 0);
	gives(fi_mr_regv(pair.domain, iov, 2, BOTH_WAYS, 0, 0, 0, &mr, NULL), 0);
	memset(iov, 0, sizeof(iov));
	must(fi_mr_key(mr) == FI_KEY_NOTAVAIL);
	gives(fi_mr_enable(mr), -FI_EOPBADSTATE); /* bound to none */
	gives(fi_mr_bind(mr, &stranger->fid, 0), -FI_EINVAL);
	gives(fi_mr_bind(mr, &pair.b.ep->fid, 0), 0);
	gives(fi_mr_enable(mr), 0);
	gives(probe(&pair, (uintptr_t)buf + 32 + 32, fi_mr_key(mr), 8), 0);
	gives(fi_mr_bind(mr, &pair.b.ep->fid, 0), -FI_EOPBADSTATE);
	gives(fi_close(&mr->fid), 0);
	gives(fi_close(&stranger->fid), 0);
	gives(fi_close(&other->fid), 0);
	pair_close(&pair);
}

/* ---- lives ----------------------------------------------------------------------------------- */

/* Memory registered before there is an endpoint is accessible through each endpoint that comes. */
static void test_before_endpoint(void)
{
	uint8_t buf[8] = { 6 };
	struct region region;
	struct pair pair;

	pair_open_domain(&pair, &(struct pair_want){ .caps = ONESIDED_CAPS, .mr_mode = ONESIDED_MODE });
	region_open(&pair, &region, buf, sizeof(buf), BOTH_WAYS);
	side_open(&pair, &pair.a);
	side_open(&pair, &pair.b);
	pair_introduce(&pair);
	gives(probe(&pair, region.remote.addr, region.remote.key, 6), 0);
	side_close(&pair.b);
	memset(&pair.b, 0, sizeof(pair.b));
	side_open(&pair, &pair.b);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	gives(probe(&pair, region.remote.addr, region.remote.key, 6), 0);
	/* and longer than the endpoints */
	side_close(&pair.a);
	side_close(&pair.b);
	gives(fi_close(&pair.domain->fid), -FI_EBUSY);
	region_close(&region);
	gives(fi_close(&pair.domain->fid), 0);
	gives(fi_close(&pair.fabric->fid), 0);
	fi_freeinfo(pair.info);
}

/* The memory that one domain has registered is not accessible through the endpoints of another. */
static void test_two_domains(void)
{
	uint8_t buf[8] = { 6 }, other_buf[8] = { 7 };
	struct region region, other;
	struct pair pair, second;

	open_mode(&pair, 0, 0);
	open_mode(&second, 0, 0);
	region_next_key = 1;
	region_open(&pair, &region, buf, sizeof(buf), BOTH_WAYS);
	region_next_key = 1;
	region_open(&second, &other, other_buf, sizeof(other_buf), BOTH_WAYS);
	gives(probe(&pair, 0, 1, 6), 0);
	gives(probe(&second, 0, 1, 7), 0);
	region_close(&other);
	gives(probe(&second, 0, 1, 0), FI_EKEYREJECTED);
	gives(probe(&pair, 0, 1, 6), 0);
	region_close(&region);
	pair_close(&second);
	pair_close(&pair);
}

/* A child closes what it has inherited: its parent's registration stays. */
static void test_fork_and_close(void)
{
	uint8_t buf[8] = { 6 };
	struct region region;
	struct pair pair;
	int status;
	pid_t child;

	open_mode(&pair, ONESIDED_MODE, 0);
	region_open(&pair, &region, buf, sizeof(buf), BOTH_WAYS);
	child = fork();
	must(child >= 0);
	if (!child)
		_exit(fi_close(&region.mr->fid) ? 1 : 0);
	gives(waitpid(child, &status, 0), child);
	gives(status, 0);
	gives(probe(&pair, region.remote.addr, region.remote.key, 6), 0);
	region_close(&region);
	gives(probe(&pair, region.remote.addr, region.remote.key, 0), FI_EKEYREJECTED);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(test_modes),
		ALONE(test_modes_of_old),
		ALONE(test_access),
		ALONE(test_flags),
		ALONE(test_arguments),
		ALONE(test_attr_versions),
		ALONE(test_attr_interface),
		ALONE(test_attr_refused),
		ALONE(test_empty),
		ALONE(test_whole_address_space),
		ALONE(test_too_much),
		ALONE(test_many_ranges),
		ALONE(test_application_keys),
		ALONE(test_stale_keys),
		ALONE(test_many),
		ALONE_ENV(test_stale_keys, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(test_many_ranges, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(test_access, "FI_SHMCMA_RMA=strict"),
		ALONE(test_raw),
		ALONE(test_refresh),
		ALONE(test_bind_arguments),
		ALONE(test_bind_later),
		ALONE(test_count_atomics),
		ALONE(test_count_both),
		ALONE_ENV(test_count_both, "FI_SHMCMA_RMA=strict"),
		ALONE_ENV(test_bind_later, "FI_SHMCMA_RMA=strict"),
		ALONE(test_enable_rma_event),
		ALONE(test_enable_endpoint),
		ALONE(test_before_endpoint),
		ALONE(test_two_domains),
		ALONE(test_fork_and_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
