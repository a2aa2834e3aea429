/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_newer.c: what versions of libfabric after 1.17 have added to the interface (prov/base/newer.h), through the
 * numbers that these versions give it, as the headers of 1.17 have no names for them.
 *
 * An application that asks for a newer version of the API needs a libfabric of that version. With an older one the test
 * calls the provider itself, as a newer libfabric would: fi_getinfo(3) and fi_fabric(3) are calls of struct fi_provider.
 * The same program runs with a newer libfabric too (test/check-libfabric2.sh), and then goes through it.
 */
#define _GNU_SOURCE 1
#define PAIR_GETINFO newer_getinfo
#define PAIR_FABRIC newer_fabric
#define PAIR_HINTS newer_hints
#include <rdma/fabric.h>
static int newer_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
			 const struct fi_info *hints, struct fi_info **info);
static int newer_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
struct pair_want;
static struct fi_info *newer_hints(const struct pair_want *want);

#include "pair.h"
#include <dlfcn.h>
#include <rdma/providers/fi_prov.h>
#include "../owner.h"

#define HIDDEN (1ULL << 60) /* flag of fi_getinfo by which other providers ask: fi_peer(3) */

#define TAGGED_DIRECTED_RECV (1ULL << 45)
#define TAGGED_MULTI_RECV (1ULL << 46)
#define EXACT_DIRECTED_RECV (1ULL << 48)

static const uint32_t v1_17 = FI_VERSION(1, 17), v1_20 = FI_VERSION(1, 20), v2_0 = FI_VERSION(2, 0),
		      v2_5 = FI_VERSION(2, 5);

/* ---- the loaded libfabric, or the provider itself ---------------------------------------------- */

typedef int getinfo_call(uint32_t version, const char *node, const char *service, uint64_t flags,
			 const struct fi_info *hints, struct fi_info **info);

/* The provider, as libfabric has loaded it. */
static struct fi_provider *provider(void)
{
	struct fi_provider *(*ini)(void);
	struct fi_info *info;
	char path[4096];
	void *module;

	gives(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info), 0);
	fi_freeinfo(info);
	snprintf(path, sizeof(path), "%s/libshmcma-fi.so", getenv("FI_PROVIDER_PATH"));
	module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	must(module);
	*(void **)&ini = dlsym(module, "fi_prov_ini");
	must(ini);
	return ini();
}

/* struct fi_domain_attr of 2.5 */
struct domain_attr {
	unsigned char before[192];
	size_t max_ep_auth_key;
	uint32_t max_group_id;
	uint64_t max_cntr_value, max_err_cntr_value;
};

/* Makes that structure as long as in a newer libfabric, with zeros at the end. */
static void lengthen(struct fi_info *info)
{
	struct domain_attr *longer = calloc(1, sizeof(*longer));

	must(longer);
	memcpy(longer, info->domain_attr, sizeof(*info->domain_attr));
	free(info->domain_attr);
	info->domain_attr = (struct fi_domain_attr *)longer;
}

/* Hints that libfabric has allocated, or that have been lengthened. */
static struct fi_info *newer_hints(const struct pair_want *want)
{
	struct fi_info *hints = pair_hints(want);

	if (FI_VERSION_LT(fi_version(), FI_VERSION(2, 5)))
		lengthen(hints);
	return hints;
}

/* Does as libfabric itself does with the answer of a provider. */
static int provider_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
			    const struct fi_info *hints, struct fi_info **info)
{
	int ret = provider()->getinfo(version, node, service, flags, hints, info);

	for (struct fi_info *each = *info; each; each = each->next) {
		each->fabric_attr->prov_name = strdup("shmcma");
		lengthen(each);
	}
	return ret;
}

/* The symbol that a program has which is built with this version: it takes the whole of newer structures. */
static int newer_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
			 const struct fi_info *hints, struct fi_info **info)
{
	getinfo_call *call;

	if (FI_VERSION_LT(fi_version(), version))
		return provider_getinfo(version, node, service, flags, hints, info);
	*(void **)&call = dlsym(RTLD_DEFAULT, "fi_getinfo");
	must(call);
	return call(version, node, service, flags, hints, info);
}

static int newer_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
	if (FI_VERSION_LT(fi_version(), attr->api_version))
		return provider()->fabric(attr, fabric, context);
	return fi_fabric(attr, fabric, context);
}

/* Returns the answer of fi_getinfo() to hints for these capabilities, 0: none; *caps: the granted ones. */
static int ask(uint32_t version, uint64_t wanted, uint64_t *caps)
{
	struct pair_want want = { .caps = wanted };
	struct fi_info *hints = newer_hints(&want), *info;
	int ret;

	hints->caps = wanted;
	ret = newer_getinfo(version, NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	if (ret)
		return ret;
	if (caps)
		*caps = info->caps;
	fi_freeinfo(info);
	return 0;
}

/* ---- options of endpoints ---------------------------------------------------------------------- */

enum {
	CUDA = 10,
	SHARED_MEMORY,
	MAX_MSG,
	MAX_TAGGED,
	MAX_RMA,
	MAX_ATOMIC,
	INJECT_MSG,
	INJECT_TAGGED,
	INJECT_RMA,
	INJECT_ATOMIC
};

static size_t get_size(struct fid_ep *ep, int option)
{
	size_t size = 0, len = sizeof(size);

	gives(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, option, &size, &len), 0);
	gives(len, sizeof(size));
	return size;
}

static int set_size(struct fid_ep *ep, int option, size_t size)
{
	return fi_setopt(&ep->fid, FI_OPT_ENDPOINT, option, &size, sizeof(size));
}

static void sizes(void)
{
	struct pair pair;
	size_t len = 4;
	char small[4];

	pair_open(&pair, NULL);
	for (int option = MAX_MSG; option <= INJECT_ATOMIC; option++) {
		bool inject = option >= INJECT_MSG;
		size_t most = inject ? pair.info->tx_attr->inject_size : pair.info->ep_attr->max_msg_size;
		size_t offered = get_size(pair.a.ep, option);

		must(offered && offered <= most);
		if (option != MAX_ATOMIC && option != INJECT_ATOMIC)
			gives(offered, most);
		gives(set_size(pair.a.ep, option, offered + 1), -FI_EINVAL);
		gives(get_size(pair.a.ep, option), offered);
		gives(set_size(pair.a.ep, option, 100), 0);
		gives(get_size(pair.a.ep, option), 100);
		gives(get_size(pair.b.ep, option), offered);
		gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, option, small, sizeof(small)),
		      -FI_EINVAL);
		gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, option, NULL, sizeof(size_t)),
		      -FI_EINVAL);
		len = sizeof(small);
		gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, option, small, &len), -FI_ETOOSMALL);
		gives(len, sizeof(size_t));
	}
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, INJECT_ATOMIC + 1, &len, sizeof(len)),
	      -FI_ENOPROTOOPT);
	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, INJECT_ATOMIC + 1, &len, &len), -FI_ENOPROTOOPT);
	pair_close(&pair);
}

static void permitted(void)
{
	struct pair pair;
	bool yes = true, no = false;
	size_t len = sizeof(yes);

	pair_open(&pair, NULL);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, SHARED_MEMORY, &yes, sizeof(yes)), 0);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, SHARED_MEMORY, &no, sizeof(no)), -FI_EOPNOTSUPP);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, SHARED_MEMORY, &len, sizeof(len)), -FI_EINVAL);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, SHARED_MEMORY, NULL, sizeof(yes)), -FI_EINVAL);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, CUDA, &no, sizeof(no)), -FI_EINVAL);
	gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, CUDA, &yes, sizeof(yes)), -FI_EINVAL);
	/* both are for fi_setopt() alone */
	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, SHARED_MEMORY, &yes, &len), -FI_ENOPROTOOPT);
	gives(fi_getopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, CUDA, &yes, &len), -FI_ENOPROTOOPT);
	pair_close(&pair);
}

/* ---- operation tables -------------------------------------------------------------------------- */

/* Calls what newer headers expect behind the end of a table of 1.17, whose size is the table's first member. */
#define BEHIND(table, type)                                                                               \
	do {                                                                                              \
		int (*call)(void *, uint64_t, void *, void *);                                            \
                                                                                                          \
		must((table)->size >= sizeof(type) + sizeof(call));                                       \
		memcpy(&call, (const char *)(table) + sizeof(type), sizeof(call));                        \
		gives(call(NULL, 0, NULL, NULL), -FI_ENOSYS);                                             \
	} while (0)

static void tables(void)
{
	static const enum fi_cq_format formats[] = { FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG,
						     FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED };
	struct fid_ep *srx, *sep, *alias;
	struct fid_cntr *cntr;
	struct fid_stx *stx;
	struct fid_cq *cq;
	struct pair pair;

	pair_open(&pair, NULL);
	BEHIND(pair.domain->ops, struct fi_ops_domain);
	BEHIND(pair.a.ep->ops, struct fi_ops_ep);
	for (int i = 0; i < 4; i++) {
		struct fi_cq_attr attr = { .format = formats[i] };

		gives(fi_cq_open(pair.domain, &attr, &cq, NULL), 0);
		BEHIND(cq->ops, struct fi_ops_cq);
		gives(fi_close(&cq->fid), 0);
	}
	gives(fi_cntr_open(pair.domain, &(struct fi_cntr_attr){ .events = FI_CNTR_EVENTS_COMP }, &cntr,
			   NULL),
	      0);
	BEHIND(cntr->ops, struct fi_ops_cntr);
	gives(fi_close(&cntr->fid), 0);
	gives(fi_ep_alias(pair.a.ep, &alias, FI_TRANSMIT), 0);
	BEHIND(alias->ops, struct fi_ops_ep);
	gives(fi_close(&alias->fid), 0);
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), 0);
	BEHIND(sep->ops, struct fi_ops_ep);
	gives(fi_close(&sep->fid), 0);
	gives(fi_srx_context(pair.domain, NULL, &srx, NULL), 0);
	BEHIND(srx->ops, struct fi_ops_ep);
	gives(fi_close(&srx->fid), 0);
	gives(fi_stx_context(pair.domain, NULL, &stx, NULL), 0);
	BEHIND(stx->ops, struct fi_ops_ep);
	gives(fi_close(&stx->fid), 0);
	pair_close(&pair);
}

/* ---- identifiers of the user ------------------------------------------------------------------- */

/* struct fi_ops_av of 1.20 and later */
struct ops_av {
	unsigned char before[64];
	void *insert_auth_key, *lookup_auth_key;
	int (*set_user_id)(struct fid_av *av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags);
	void *lookup2;
};

static int set_user_id(struct fid_av *av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags)
{
	const struct ops_av *ops = (const struct ops_av *)av->ops;

	gives(av->ops->size, sizeof(*ops));
	return ops->set_user_id(av, fi_addr, user_id, flags);
}

/* The same for what a child of fork(2) has inherited. */
static void tables_of_child(void)
{
	struct pair pair;
	int status;
	pid_t child;

	pair_open(&pair, NULL);
	child = fork();
	must(child >= 0);
	if (!child) {
		BEHIND(pair.domain->ops, struct fi_ops_domain);
		BEHIND(pair.a.ep->ops, struct fi_ops_ep);
		BEHIND(pair.a.cq->ops, struct fi_ops_cq);
		gives(set_user_id(pair.a.av, pair.a.peer, 1, 0), -FI_EPERM);
		_exit(0);
	}
	gives(waitpid(child, &status, 0), child);
	gives(status, 0);
	pair_close(&pair);
}

/* The source that the next message from a to b has there. */
static fi_addr_t source_at_b(struct pair *pair)
{
	char buf[8];

	gives(fi_recv(pair->b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, buf), 0);
	post(pair, fi_inject(pair->a.ep, "12345678", 8, pair->a.peer));
	return pair_done(pair, &pair->b).source;
}

/* Side b gets an address vector with these flags instead of its own. */
static void renew_b(struct pair *pair, uint64_t flags)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = flags };
	size_t len = sizeof(pair->b.name);

	side_close(&pair->b);
	gives(fi_av_open(pair->domain, &attr, &pair->b.av, NULL), 0);
	pair->b.cq = pair_open_cq(pair);
	pair->b.ep = pair_open_ep(pair);
	pair_bind(pair->b.ep, pair->b.cq, pair->b.av);
	gives(fi_enable(pair->b.ep), 0);
	gives(fi_getname(&pair->b.ep->fid, pair->b.name, &len), 0);
	pair_introduce(pair);
}

static void user_ids_with(uint64_t caps)
{
	struct pair_want want = { .version = v1_20, .caps = caps, .strangers = true };
	fi_addr_t id = 9;
	struct pair pair;

	pair_open(&pair, &want);
	must(pair.info->domain_attr->caps & FI_AV_USER_ID);
	renew_b(&pair, FI_AV_USER_ID);
	must(source_at_b(&pair) == FI_ADDR_NOTAVAIL);
	gives(set_user_id(pair.b.av, pair.b.peer, 0x1234567890, 0), 0);
	gives(source_at_b(&pair), 0x1234567890);
	gives(source_at_b(&pair), 0x1234567890);
	gives(set_user_id(pair.b.av, pair.b.peer, 77, 0), 0);
	gives(source_at_b(&pair), 77);
	gives(set_user_id(pair.b.av, pair.b.self, 78, 0), 0);
	gives(source_at_b(&pair), 77);
	/* an address that is there twice has the identifier that was set last */
	id = pair_insert(pair.b.av, pair.a.name);
	gives(source_at_b(&pair), 77);
	gives(set_user_id(pair.b.av, id, 79, 0), 0);
	gives(source_at_b(&pair), 79);
	gives(set_user_id(pair.b.av, pair.b.peer, 77, 0), 0);
	gives(source_at_b(&pair), 77);
	gives(fi_av_remove(pair.b.av, &id, 1, 0), 0);
	/* messages to that peer go by its fi_addr_t as before */
	gives(fi_trecv(pair.a.ep, &id, sizeof(id), NULL, FI_ADDR_UNSPEC, 1, 0, &id), 0);
	post(&pair, fi_tinject(pair.b.ep, &id, sizeof(id), pair.b.peer, 1));
	gives(pair_done(&pair, &pair.a).source, pair.a.peer);

	gives(set_user_id(pair.b.av, 1000, 1, 0), -FI_EINVAL);
	gives(set_user_id(pair.b.av, pair.b.peer, 1, 1ULL << 57), -FI_EBADFLAGS); /* FI_AUTH_KEY */
	gives(fi_av_insert(pair.b.av, pair.a.name, 1, &id, FI_AV_USER_ID, NULL), -FI_EINVAL);
	/* inserted again it has no identifier again */
	gives(fi_av_remove(pair.b.av, &pair.b.peer, 1, 0), 0);
	pair.b.peer = pair_insert(pair.b.av, pair.a.name);
	must(source_at_b(&pair) == FI_ADDR_NOTAVAIL);
	pair_close(&pair);
}

static void user_ids(void)
{
	user_ids_with(FI_MSG | FI_TAGGED | FI_SOURCE | FI_AV_USER_ID);
}

/* A sender that is in the vector and has no identifier yet is no unknown one. */
static void user_ids_and_errors(void)
{
	user_ids_with(FI_MSG | FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR | FI_AV_USER_ID);
}

static void user_ids_refused(void)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_AV_USER_ID };
	struct fid_av *av;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .version = v1_17 });
	gives(fi_av_open(pair.domain, &attr, &av, NULL), -FI_EBADFLAGS);
	gives(set_user_id(pair.a.av, pair.a.peer, 1, 0), -FI_EINVAL); /* opened without the flag */
	pair_close(&pair);
}

/* ---- directed receives ------------------------------------------------------------------------- */

static void not_before(void)
{
	static const uint64_t caps[] = { TAGGED_DIRECTED_RECV, TAGGED_MULTI_RECV, EXACT_DIRECTED_RECV };
	uint64_t granted;

	for (int i = 0; i < 3; i++) {
		gives(ask(v1_17, FI_TAGGED | caps[i], NULL), -FI_ENODATA);
		gives(ask(v2_0, FI_TAGGED | caps[i], &granted), 0);
		must(granted & caps[i]);
		gives(ask(v2_0, FI_TAGGED, &granted), 0);
		must(!(granted & caps[i]));
	}
	gives(ask(v1_17, 0, &granted), 0);
	must(!(granted & (TAGGED_DIRECTED_RECV | TAGGED_MULTI_RECV | EXACT_DIRECTED_RECV)));
	gives(ask(v2_0, 0, &granted), 0);
	must(!(granted & EXACT_DIRECTED_RECV));
}

/* A receive at b, of either kind, that names b itself as its source. Does it take a message from a? */
static bool takes_from_a(struct pair *pair, bool tagged)
{
	static char buf[8];
	bool took;

	gives(kind_recv(tagged, &pair->b, buf, sizeof(buf), pair->b.self, buf), 0);
	post(pair, kind_inject(tagged, &pair->a, "12345678", 8, pair->a.peer));
	for (int i = 0; i < 50; i++)
		pair_progress(pair);
	took = fi_cancel(&pair->b.ep->fid, buf) == -FI_ENOENT;
	if (took) {
		pair_done(pair, &pair->b);
		return true;
	}
	gives(pair_error(pair, &pair->b).err, FI_ECANCELED);
	gives(kind_recv(tagged, &pair->b, buf, sizeof(buf), pair->b.peer, buf), 0);
	pair_done(pair, &pair->b);
	return false;
}

/* Which of the two kinds of receives these capabilities direct, and which need a source. */
static void directed(uint64_t caps, bool plain, bool tagged, bool exact)
{
	struct pair_want want = { .version = v2_0, .caps = FI_MSG | FI_TAGGED | caps };
	static char buf[8];
	struct pair pair;

	pair_open(&pair, &want);
	gives(takes_from_a(&pair, false), !plain);
	gives(takes_from_a(&pair, true), !tagged);
	for (int kind = 0; kind < 2; kind++) {
		struct kind_msg msg = {
			.iov = { { buf, 8 } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buf
		};
		int expected = exact && (kind ? tagged : plain) ? -FI_EINVAL : 0;

		gives(kind_recv(kind, &pair.b, buf, 8, FI_ADDR_UNSPEC, buf), expected);
		gives(kind_recvmsg(kind, &pair.b, &msg, 0), expected);
		gives(kind ? fi_trecvv(pair.b.ep, msg.iov, NULL, 1, FI_ADDR_UNSPEC, 7, 0, buf)
			   : fi_recvv(pair.b.ep, msg.iov, NULL, 1, FI_ADDR_UNSPEC, buf),
		      expected);
		for (int i = 0; i < 3 && !expected; i++) {
			post(&pair, kind_inject(kind, &pair.a, "12345678", 8, pair.a.peer));
			pair_done(&pair, &pair.b);
		}
	}
	pair_close(&pair);
}

static void tagged_directed(void)
{
	directed(TAGGED_DIRECTED_RECV, false, true, false);
}

static void both_directed(void)
{
	directed(FI_DIRECTED_RECV, true, true, false);
}

static void none_directed(void)
{
	directed(0, false, false, false);
}

static void exact(void)
{
	directed(EXACT_DIRECTED_RECV, true, true, true);
}

static void exact_modifies(void)
{
	directed(EXACT_DIRECTED_RECV | FI_DIRECTED_RECV, true, true, true);
}

static void exact_for_tagged(void)
{
	directed(EXACT_DIRECTED_RECV | TAGGED_DIRECTED_RECV, false, true, true);
}

/* ---- one buffer for many tagged messages ------------------------------------------------------- */

/* Messages of 80 bytes into a buffer of 256; the room behind the third is less than the minimum of 64. */
static void expect_packed(struct pair *pair, const uint8_t *buf, uint64_t tag, uint64_t step)
{
	for (unsigned int i = 0; i < 3; i++) {
		uint8_t own[80];
		struct done done;

		pattern_fill(own, 0, sizeof(own), i);
		/* one that does not match: it waits */
		post(pair, fi_tinject(pair->a.ep, own, 1, pair->a.peer, ~tag));
		post(pair, fi_tinject(pair->a.ep, own, sizeof(own), pair->a.peer, tag + i * step));
		done = pair_done(pair, &pair->b);
		must(done.entry.op_context == buf);
		must(done.entry.buf == buf + 80 * i);
		gives(done.entry.len, 80);
		gives(done.entry.tag, tag + i * step);
		gives(done.entry.flags, FI_RECV | FI_TAGGED | (i == 2 ? FI_MULTI_RECV : 0));
		must(pattern_is(buf + 80 * i, 0, 80, i));
	}
	for (unsigned int i = 0; i < 3; i++) {
		uint8_t byte;

		gives(fi_trecv(pair->b.ep, &byte, 1, NULL, FI_ADDR_UNSPEC, ~tag, 0, &byte), 0);
		must(pair_done(pair, &pair->b).entry.op_context == &byte);
	}
}

static void tagged_multi(void)
{
	struct pair_want want = { .version = v2_0, .caps = FI_MSG | FI_TAGGED | TAGGED_MULTI_RECV };
	static uint8_t buf[256];
	struct kind_msg msg = {
		.iov = { { buf, 256 } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buf
	};
	struct pair pair;

	pair_open(&pair, &want);
	gives(kind_recvmsg(true, &pair.b, &msg, FI_MULTI_RECV), 0);
	expect_packed(&pair, buf, 7, 0);
	/* with wildcards, each completion has the tag of its message */
	msg.ignore = 0xff;
	msg.tag = 0x700;
	gives(kind_recvmsg(true, &pair.b, &msg, FI_MULTI_RECV), 0);
	expect_packed(&pair, buf, 0x710, 1);
	/* messages that wait go into it, in their order */
	for (unsigned int i = 0; i < 3; i++)
		post(&pair, fi_tinject(pair.a.ep, buf, 80, pair.a.peer, 0x720 + i));
	for (int i = 0; i < 50; i++)
		pair_progress(&pair);
	gives(kind_recvmsg(true, &pair.b, &msg, FI_MULTI_RECV), 0);
	for (unsigned int i = 0; i < 3; i++)
		gives(pair_done(&pair, &pair.b).entry.tag, 0x720 + i);
	gives(kind_recvmsg(true, &pair.b, &msg, FI_MULTI_RECV | FI_PEEK), -FI_EINVAL);
	/* withdrawn */
	gives(kind_recvmsg(true, &pair.b, &msg, FI_MULTI_RECV), 0);
	gives(fi_cancel(&pair.b.ep->fid, buf), 0);
	must(pair_error(&pair, &pair.b).flags & FI_MULTI_RECV);
	pair_close(&pair);
}

/* As a default flag it is for both kinds of receives, then. */
static void tagged_multi_by_default(void)
{
	struct pair_want want = { .version = v2_0,
				  .caps = FI_MSG | FI_TAGGED | TAGGED_MULTI_RECV,
				  .rx_op_flags = FI_MULTI_RECV };
	static uint8_t buf[256];
	struct pair pair;

	pair_open(&pair, &want);
	gives(fi_trecv(pair.b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, 7, 0, buf), 0);
	expect_packed(&pair, buf, 7, 0);
	pair_close(&pair);
}

static void tagged_multi_refused(void)
{
	struct pair_want want = { .version = v2_0, .caps = FI_MSG | FI_TAGGED };
	static uint8_t buf[256];
	struct kind_msg msg = {
		.iov = { { buf, 256 } }, .iov_count = 1, .addr = FI_ADDR_UNSPEC, .context = buf
	};
	struct pair pair;

	pair_open(&pair, &want);
	gives(kind_recvmsg(true, &pair.b, &msg, FI_MULTI_RECV), -FI_EBADFLAGS);
	pair_close(&pair);
}

/* ---- attributes -------------------------------------------------------------------------------- */

static int tag_format(uint32_t version, uint64_t format)
{
	struct fi_info *hints = newer_hints(&(struct pair_want){ .caps = FI_TAGGED }), *info;
	int ret;

	hints->ep_attr->mem_tag_format = format;
	ret = newer_getinfo(version, NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	if (ret)
		return ret;
	gives(info->ep_attr->mem_tag_format, format);
	fi_freeinfo(info);
	return 0;
}

/* Since 2.0: 1 is FI_TAG_MPI, 2 is FI_TAG_CCL, from 65536 on the value is a mask as before. */
static void tag_formats(void)
{
	for (uint64_t format = 1; format <= 3; format++) {
		gives(tag_format(v1_17, format), 0);
		gives(tag_format(v2_0, format), format <= 2 ? 0 : -FI_ENODATA);
	}
	gives(tag_format(v2_0, 65535), -FI_ENODATA);
	gives(tag_format(v2_0, 65536), 0);
}

/* With the fields of a tag as FI_TAG_MPI has them: 32 bits of tag, 8 of payload, each as a whole equal or ignored. */
static void tag_mpi(void)
{
	struct pair_want want = { .version = v2_0, .caps = FI_MSG | FI_TAGGED };
	const uint64_t ignore_tag = UINT32_MAX, ignore_payload = 0xffULL << 32, tag = 5ULL << 32 | 17;
	struct pair pair;
	char buf[3];

	pair_open_domain(&pair, &want);
	pair.info->ep_attr->mem_tag_format = 1;
	side_open(&pair, &pair.a);
	side_open(&pair, &pair.b);
	pair_introduce(&pair);
	gives(fi_trecv(pair.b.ep, &buf[0], 1, NULL, FI_ADDR_UNSPEC, 6ULL << 32 | 17, ignore_tag, &buf[0]),
	      0);
	gives(fi_trecv(pair.b.ep, &buf[1], 1, NULL, FI_ADDR_UNSPEC, 9ULL << 32 | 17, ignore_payload,
		       &buf[1]),
	      0);
	gives(fi_trecv(pair.b.ep, &buf[2], 1, NULL, FI_ADDR_UNSPEC, 5ULL << 32, ignore_tag, &buf[2]), 0);
	post(&pair, fi_tinject(pair.a.ep, "a", 1, pair.a.peer, tag));
	must(pair_done(&pair, &pair.b).entry.op_context == &buf[1]);
	post(&pair, fi_tinject(pair.a.ep, "b", 1, pair.a.peer, tag));
	must(pair_done(&pair, &pair.b).entry.op_context == &buf[2]);
	post(&pair, fi_tinject(pair.a.ep, "c", 1, pair.a.peer, 6ULL << 32 | 3));
	must(pair_done(&pair, &pair.b).entry.op_context == &buf[0]);
	pair_close(&pair);
}

/* Asks for that many keys of an endpoint. */
static int ask_keys(uint32_t version, size_t keys)
{
	struct fi_info *hints = newer_hints(&(struct pair_want){ .caps = FI_MSG }), *info = NULL;
	int ret;

	((struct domain_attr *)hints->domain_attr)->max_ep_auth_key = keys;
	ret = newer_getinfo(version, NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	fi_freeinfo(info);
	return ret;
}

/* Asks for peer groups up to that one, and for counters up to that value. */
static int ask_domain(uint32_t version, uint32_t groups, uint64_t counts)
{
	struct fi_info *hints = newer_hints(&(struct pair_want){ .caps = FI_MSG }), *info;
	struct domain_attr *asked = (struct domain_attr *)hints->domain_attr;
	int ret;

	asked->max_group_id = groups;
	asked->max_cntr_value = asked->max_err_cntr_value = counts;
	ret = newer_getinfo(version, NULL, NULL, 0, hints, &info);
	fi_freeinfo(hints);
	if (ret)
		return ret;
	if (FI_VERSION_GE(fi_version(), FI_VERSION(2, 5))) {
		const struct domain_attr *got = (const struct domain_attr *)info->domain_attr;

		must(got->max_cntr_value == UINT64_MAX && got->max_err_cntr_value == UINT64_MAX);
		gives(got->max_group_id, 0);
	}
	fi_freeinfo(info);
	return 0;
}

static void domain_attributes(void)
{
	gives(ask_keys(v1_17, 1), 0); /* not a field yet */
	gives(ask_keys(v1_20, 0), 0);
	gives(ask_keys(v1_20, 1), -FI_ENODATA);
	gives(ask_keys(v2_0, 1), -FI_ENODATA);
	gives(ask_domain(v2_0, 0, 0), 0);
	gives(ask_domain(v2_0, 1, 0), -FI_ENODATA);
	gives(ask_domain(v1_17, 1, 0), 0); /* not a field yet */
	gives(ask_domain(v2_5, 0, UINT64_MAX), 0);
	gives(ask_domain(v2_5, 1, 1), -FI_ENODATA);
}

/* ---- error entries ----------------------------------------------------------------------------- */

/* The word behind the entry of 1.17 after an error was read with this version: src_addr, since 1.20. */
static uint64_t word_behind(uint32_t version)
{
	struct error_entry error = { .newer = 42 };
	struct pair_want want = { .version = version };
	struct fi_cq_tagged_entry entry;
	struct pair pair;
	char buf[8];

	pair_open(&pair, &want);
	gives(fi_recv(pair.b.ep, buf, 4, NULL, FI_ADDR_UNSPEC, buf), 0);
	post(&pair, fi_inject(pair.a.ep, buf, 8, pair.a.peer));
	while (fi_cq_read(pair.b.cq, &entry, 1) == -FI_EAGAIN)
		pair_progress(&pair);
	gives(fi_cq_readerr(pair.b.cq, &error.entry, 0), 1);
	gives(error.entry.err, FI_ETRUNC);
	pair_close(&pair);
	return error.newer;
}

static void error_source(void)
{
	gives(word_behind(v1_17), 42);
	must(word_behind(v1_20) == FI_ADDR_NOTAVAIL);
}

/* Side b gets a completion queue of that owner instead of its own. */
static void give_queue_to(struct owner *owner, struct pair *pair)
{
	size_t len = sizeof(pair->b.name);

	side_close(&pair->b);
	owner_init(owner);
	pair->b.av = pair_open_av(pair);
	gives(owner_open_cq(owner, pair->domain, &pair->b.cq), 0);
	pair->b.ep = pair_open_ep(pair);
	pair_bind(pair->b.ep, pair->b.cq, pair->b.av);
	gives(fi_enable(pair->b.ep), 0);
	gives(fi_getname(&pair->b.ep->fid, pair->b.name, &len), 0);
	pair_introduce(pair);
}

/* The tables of objects of another provider. */
static void tables_for_owner(void)
{
	struct pair_want want = { .flags = HIDDEN, .caps = FI_MSG | FI_PEER };
	static struct owner owner;
	struct fid_cntr *cntr;
	struct fid_ep *srx;
	struct fid_cq *cq;
	struct pair pair;

	pair_open(&pair, &want);
	owner_init(&owner);
	gives(owner_open_cq(&owner, pair.domain, &cq), 0);
	BEHIND(cq->ops, struct fi_ops_cq);
	gives(fi_close(&cq->fid), 0);
	gives(owner_open_cntr(&owner, pair.domain, &cntr), 0);
	BEHIND(cntr->ops, struct fi_ops_cntr);
	gives(fi_close(&cntr->fid), 0);
	gives(owner_open_srx(&owner, pair.domain, &srx), 0);
	BEHIND(srx->ops, struct fi_ops_ep);
	gives(fi_close(&srx->fid), 0);
	pair_close(&pair);
}

/* Another provider gets the whole entry, too; the address sanitizer sees a word behind an entry of 1.17. */
static void error_source_for_owner(void)
{
	struct pair_want want = {
		.version = v1_20, .flags = HIDDEN, .caps = FI_MSG | FI_PEER, .strangers = true
	};
	static struct owner owner;
	struct pair pair;
	char buf[8];

	pair_open(&pair, &want);
	give_queue_to(&owner, &pair);
	gives(fi_recv(pair.b.ep, buf, 4, NULL, FI_ADDR_UNSPEC, buf), 0);
	post(&pair, fi_inject(pair.a.ep, "12345678", 8, pair.a.peer));
	while (!owner.done_count)
		pair_progress(&pair);
	gives(owner.done[0].err, FI_ETRUNC);
	must(owner.done[0].context == buf);
	must(owner.done[0].source == pair.b.peer);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(sizes),
		ALONE(permitted),
		ALONE(tables),
		ALONE(tables_of_child),
		ALONE(user_ids),
		ALONE(user_ids_and_errors),
		ALONE(user_ids_refused),
		ALONE(not_before),
		ALONE(tagged_directed),
		ALONE(both_directed),
		ALONE(none_directed),
		ALONE(exact),
		ALONE(exact_modifies),
		ALONE(exact_for_tagged),
		ALONE(tagged_multi),
		ALONE(tagged_multi_by_default),
		ALONE(tagged_multi_refused),
		ALONE(tag_formats),
		ALONE(tag_mpi),
		ALONE(domain_attributes),
		ALONE(error_source),
		ALONE(error_source_for_owner),
		ALONE(tables_for_owner),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
