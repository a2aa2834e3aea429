/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * av.c: address vectors. Any thread.
 *
 * fi_addr_t is the index of an entry, in both types. One call takes the lowest free indices in order, one for each
 * address, even if it is not found: with FI_AV_TABLE the application may count on this. The index of an address that is
 * not found stays free for the next call. The entries: avtable.c.
 *
 * A vector with a name is shared: the process that opens it first is its writer, and also puts each address that it
 * inserts into a directory of the core, under the same index, which is used once.
 *
 * An address is looked up (system calls) before any lock is taken. Lock order: domain, then av.
 */
#include "obj/av.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/node.h"
#include "obj/avset.h"
#include "obj/avtable.h"
#include "obj/eq.h"
#include "obj/peermap.h"
#include "obj/peersrx.h"
#include "wait/lock.h"

#define NONE UINT32_MAX
#define ENTRIES_MAX ((size_t)INT_MAX)
#define NODE_SIZE 256
#define SHARED_MIN 1024	   /* smallest capacity of a shared vector */
#define RX_CTX_BITS_MAX 15 /* see sep.c */

#define INSERT_FLAGS (FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID)

/* ---- insertion ------------------------------------------------------------------------------- */

/* One call: insertion_begin(), insert_one() for each address, insertion_end(). */
struct insertion {
	struct shmcma_av *av;
	struct shmcma_eq *eq; /* asynchronous: the queue of the outcome */
	fi_addr_t *fi_addr;
	uint64_t flags;
	void *context;
	size_t at;	 /* addresses dealt with */
	size_t inserted; /* addresses inserted */
	uint32_t failed; /* indices to give back, chained by entry->next */
	int error;	 /* an error of the event queue */
	int refused;	 /* the error of the last address that is not inserted; 0: all are */
};

static int insertion_begin(struct insertion *insertion, struct shmcma_av *av, fi_addr_t *fi_addr,
			   uint64_t flags, void *context)
{
	*insertion = (struct insertion){
		.av = av, .fi_addr = fi_addr, .flags = flags, .context = context, .failed = NONE
	};
	if (shmcma_av_is_reader(av))
		return -FI_EACCES;
	if (flags & ~INSERT_FLAGS)
		return -FI_EBADFLAGS;
	if (flags & FI_AV_USER_ID && av->flags & FI_AV_USER_ID)
		return -FI_EINVAL; /* such a vector takes identifiers by fi_av_set_user_id() alone */
	if (!fi_addr && (av->type == FI_AV_MAP || flags & FI_AV_USER_ID))
		return -FI_EINVAL;
	if (!(av->flags & FI_EVENT))
		return flags & FI_SYNC_ERR && !context ? -FI_EINVAL : 0;
	if (flags & FI_SYNC_ERR)
		return -FI_EBADFLAGS;
	shmcma_lock(av->domain);
	insertion->eq = av->eq ? av->eq : shmcma_domain_eq(av->domain);
	shmcma_unlock(av->domain);
	return insertion->eq ? 0 : -FI_ENOEQ;
}

static void tell_endpoints_locked(struct shmcma_av *av, fi_addr_t fi_addr)
{
	for (struct shmcma_ep *ep = av->eps; ep; ep = ep->av_next)
		shmcma_ep_forget_peer(ep, fi_addr);
}

/*
 * With FI_AV_USER_ID the application names the sender. Another provider (FI_PEER) uses its last insertion of an address
 * also without: lnx of 2.0 and 2.1.
 */
static void name_locked(const struct insertion *insertion, uint32_t index)
{
	struct shmcma_av *av = insertion->av;

	if (insertion->flags & FI_AV_USER_ID)
		shmcma_av_name_locked(av, index, insertion->fi_addr[insertion->at]);
	else if (shmcma_domain_is_peer(av->domain))
		shmcma_av_name_locked(av, index, shmcma_av_entry_at(av, index)->user);
}

static int store(struct insertion *insertion, const char *given, const char *address, fi_addr_t *fi_addr)
{
	struct shmcma_av *av = insertion->av;
	uint32_t index;
	int ret;

	shmcma_lock(av->domain);
	pthread_mutex_lock(&av->lock);
	ret = shmcma_av_put_locked(av, given, address, &index);
	if (!ret)
		name_locked(insertion, index);
	pthread_mutex_unlock(&av->lock);
	if (!ret) {
		tell_endpoints_locked(av, index);
		*fi_addr = index;
	}
	shmcma_unlock(av->domain);
	return ret;
}

/* Takes an index, if there is one, for an address that is not found, so that later ones of the call do not get it. */
static void skip(struct insertion *insertion)
{
	struct shmcma_av *av = insertion->av;
	uint32_t index;

	pthread_mutex_lock(&av->lock);
	if (!shmcma_av_take_index_locked(av, &index)) {
		shmcma_av_entry_at(av, index)->next = insertion->failed;
		insertion->failed = index;
	}
	pthread_mutex_unlock(&av->lock);
}

static void report_failure(struct insertion *insertion, int error)
{
	if (insertion->eq) {
		struct fi_eq_err_entry entry = { .fid = &insertion->av->fid.fid,
						 .context = insertion->context,
						 .data = insertion->at,
						 .err = error,
						 .prov_errno = error };
		int ret = shmcma_eq_put_err(insertion->eq, &entry);

		if (ret)
			insertion->error = ret;
	} else if (insertion->flags & FI_SYNC_ERR) {
		((int *)insertion->context)[insertion->at] = error;
	}
}

/*
 * Tells whether the address has sent something to an endpoint of the vector. If so, it gets an index even if its
 * endpoint is gone: a receiver inserts it to name a sender that it cannot answer any more.
 */
static bool has_come(struct shmcma_av *av, const char *address)
{
	bool has = false;

	shmcma_lock(av->domain);
	for (struct shmcma_ep *ep = av->eps; ep && !has; ep = ep->av_next)
		has = ep->core && sc_peers_have_heard(ep->core, address);
	shmcma_unlock(av->domain);
	return has;
}

static int find_address(struct shmcma_av *av, const char *given, char address[SC_ADDR_SIZE])
{
	int error = shmcma_error(sc_addr_resolve(given, address));

	if (error != -FI_ECONNREFUSED || sc_addr_kind(given) != SC_ADDR_ENDPOINT || !has_come(av, given))
		return error;
	strcpy(address, given);
	return 0;
}

/*
 * The log tells why the address has no index. The cause of an address of another machine, which another provider inserts
 * (FI_PEER), may be that provider's rule for local peers: lnx compares host names.
 */
static void log_failure(const struct insertion *insertion, const char *given, int error)
{
	shmcma_info(FI_LOG_AV, "address %zu (%s): %s\n", insertion->at, given ? given : "invalid",
		    fi_strerror(-error));
	if (error == -FI_EHOSTUNREACH && shmcma_domain_is_peer(insertion->av->domain))
		shmcma_warn(
			FI_LOG_AV,
			"cannot insert %s: it is no local peer. lnx takes each peer with this host name "
			"for a local one: give each machine or container its own host name, or set "
			"FI_LNX_DISABLE_SHM=1\n",
			given ? given : "an address of another machine");
}

/* `text` is a string of at most shmcma_module.text_size bytes, or NULL with the error. */
static void insert_one(struct insertion *insertion, const char *text, int error)
{
	char address[SC_ADDR_SIZE], own[SC_ADDR_SIZE];
	const char *given = text ? shmcma_address_of(text, own) : NULL;
	fi_addr_t fi_addr = FI_ADDR_NOTAVAIL;

	if (!error)
		error = find_address(insertion->av, given, address);
	if (error)
		skip(insertion);
	else
		error = store(insertion, given, address, &fi_addr);
	if (error) {
		log_failure(insertion, given, error);
		report_failure(insertion, -error);
		insertion->refused = error;
	} else {
		insertion->inserted++;
		if (insertion->flags & FI_SYNC_ERR)
			((int *)insertion->context)[insertion->at] = 0;
	}
	if (insertion->fi_addr)
		insertion->fi_addr[insertion->at] = fi_addr;
	insertion->at++;
}

static void name_to_owners(struct shmcma_av *av)
{
	shmcma_lock(av->domain);
	shmcma_peersrx_name_locked(av);
	shmcma_unlock(av->domain);
}

/*
 * Another provider (FI_PEER) may take 0 for a success: lnx then divides by the number of its addresses. It gets the
 * error.
 */
static int result_of(const struct insertion *insertion)
{
	if (!insertion->inserted && insertion->refused && shmcma_domain_is_peer(insertion->av->domain))
		return insertion->refused;
	return (int)insertion->inserted;
}

static int insertion_end(struct insertion *insertion)
{
	struct shmcma_av *av = insertion->av;
	struct fi_eq_entry entry = { .fid = &av->fid.fid,
				     .context = insertion->context,
				     .data = insertion->inserted };
	int ret;

	pthread_mutex_lock(&av->lock);
	while (insertion->failed != NONE) {
		uint32_t index = insertion->failed;

		insertion->failed = shmcma_av_entry_at(av, index)->next;
		shmcma_av_give_back_locked(av, index);
	}
	pthread_mutex_unlock(&av->lock);
	if (insertion->inserted && shmcma_domain_is_peer(av->domain))
		name_to_owners(av);
	if (!insertion->eq)
		return result_of(insertion);
	ret = shmcma_eq_put(insertion->eq, FI_AV_COMPLETE, &entry);
	return insertion->error ? insertion->error : ret;
}

static void insert_packed(struct insertion *insertion, const char *at, size_t count)
{
	while (insertion->at < count) {
		size_t len = strnlen(at, shmcma_module.text_size);
		bool too_long = len == shmcma_module.text_size;

		insert_one(insertion, too_long ? NULL : at, too_long ? -FI_EINVAL : 0);
		at += too_long ? len : len + 1;
	}
}

/* May read any memory of the process, also memory that is unknown to a sanitizer. */
#define UNCHECKED __attribute__((no_sanitize_address, no_sanitize_thread))

/* Returns the i-th pointer, or NULL: if `strings` is really a short string, this reads beyond its end. */
static UNCHECKED const char *pointer_at(const char *const *strings, size_t i)
{
	size_t size = sizeof(strings[i]);

	return sc_probe_readable(&strings[i], size) == size ? strings[i] : NULL;
}

/* Copies a string up to its NUL. Returns false if there is no NUL within the length of an address. */
static UNCHECKED bool copy_pointed(const char *from, char given[SHMCMA_TEXT_MAX])
{
	size_t there = sc_probe_readable(from, shmcma_module.text_size);

	for (size_t i = 0; i < there; i++) {
		given[i] = from[i];
		if (!given[i])
			return true;
	}
	return false;
}

static void insert_pointed(struct insertion *insertion, const char *const *strings, size_t count)
{
	char given[SHMCMA_TEXT_MAX];

	while (insertion->at < count) {
		bool whole = copy_pointed(pointer_at(strings, insertion->at), given);

		insert_one(insertion, whole ? given : NULL, whole ? 0 : -FI_EINVAL);
	}
}

/*
 * Tells pointers to strings from strings one after the other, each with its NUL. fi_av(3) specifies pointers for
 * FI_ADDR_STR, but fi_getname() returns strings, and callers that gather them from others insert strings: libfabric's
 * tests, MPI libraries. The text that begins an address is no pointer. All other memory is taken for strings.
 */
static bool are_pointers(const void *addr)
{
	return !shmcma_node_is_address(addr) && (uintptr_t)addr % sizeof(char *) == 0 &&
	       sc_probe_readable(pointer_at(addr, 0), 1);
}

SHMCMA_CALL(int, av_insert, struct fid_av *fid, const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags,
	    void *context)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid);
	struct insertion insertion;
	int ret;

	if ((count && !addr) || count > ENTRIES_MAX)
		return -FI_EINVAL;
	ret = insertion_begin(&insertion, av, fi_addr, flags, context);
	if (ret)
		return ret;
	if (count && are_pointers(addr))
		insert_pointed(&insertion, addr, count);
	else
		insert_packed(&insertion, addr, count);
	return insertion_end(&insertion);
}

static void insert_service(struct insertion *insertion, const char *node, const char *service)
{
	char address[SC_ADDR_SIZE];
	int ret = shmcma_node_address(node, service, 0, address);

	/* -FI_ENODATA would tell the caller nothing about the address */
	if (ret == -FI_ENODATA)
		ret = -FI_EHOSTUNREACH;
	insert_one(insertion, ret ? NULL : address, ret);
}

SHMCMA_CALL(int, av_insertsvc, struct fid_av *fid, const char *node, const char *service, fi_addr_t *fi_addr,
	    uint64_t flags, void *context)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid);
	struct insertion insertion;
	int ret;

	if (shmcma_node_is_address(node) == !!service)
		return -FI_EINVAL;
	ret = insertion_begin(&insertion, av, fi_addr, flags, context);
	if (ret)
		return ret;
	insert_service(&insertion, node, service);
	return insertion_end(&insertion);
}

/* Makes the name whose number at the end is larger by `add`: host09 + 2 = host11. */
static int add_to_suffix(const char *name, size_t add, char *out, size_t size)
{
	size_t len = strlen(name);
	size_t digits = 0;
	int made;

	while (digits < len && digits < 18 && isdigit((unsigned char)name[len - 1 - digits]))
		digits++;
	if (!add)
		made = snprintf(out, size, "%s", name);
	else if (!digits)
		return -FI_EINVAL;
	else
		made = snprintf(out, size, "%.*s%0*llu", (int)(len - digits), name, (int)digits,
				strtoull(name + len - digits, NULL, 10) + add);
	return made < 0 || (size_t)made >= size ? -FI_EINVAL : 0;
}

/* Makes the node name that is `add` later; a numeric address counts as one number. */
static int add_to_node(const char *node, size_t add, char *out)
{
	unsigned char ip[sizeof(struct in6_addr)];
	int family = AF_INET;
	size_t bytes = 4;

	if (inet_pton(AF_INET, node, ip) != 1) {
		family = AF_INET6;
		bytes = sizeof(ip);
		if (inet_pton(AF_INET6, node, ip) != 1)
			return add_to_suffix(node, add, out, NODE_SIZE);
	}
	for (size_t i = bytes; i-- && add; add >>= 8) {
		add += ip[i];
		ip[i] = (unsigned char)add;
	}
	return add || !inet_ntop(family, ip, out, NODE_SIZE) ? -FI_EINVAL : 0;
}

static void insert_symmetric(struct insertion *insertion, const char *node, size_t node_add,
			     const char *service, size_t service_add)
{
	char other_node[NODE_SIZE], other_service[SC_ADDR_SIZE];
	int ret = node ? add_to_node(node, node_add, other_node) : 0;

	if (!ret)
		ret = add_to_suffix(service, service_add, other_service, sizeof(other_service));
	if (ret)
		insert_one(insertion, NULL, ret);
	else
		insert_service(insertion, node ? other_node : NULL, other_service);
}

SHMCMA_CALL(int, av_insertsym, struct fid_av *fid, const char *node, size_t nodecnt, const char *service,
	    size_t svccnt, fi_addr_t *fi_addr, uint64_t flags, void *context)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid);
	struct insertion insertion;
	int ret;

	if (!service || shmcma_node_is_address(node) || (!node && nodecnt > 1))
		return -FI_EINVAL;
	if (nodecnt > ENTRIES_MAX || svccnt > ENTRIES_MAX || nodecnt * svccnt > ENTRIES_MAX)
		return -FI_EINVAL;
	ret = insertion_begin(&insertion, av, fi_addr, flags, context);
	if (ret)
		return ret;
	for (size_t i = 0; i < nodecnt; i++)
		for (size_t j = 0; j < svccnt; j++)
			insert_symmetric(&insertion, node, i, service, j);
	return insertion_end(&insertion);
}

/* ---- the other calls ------------------------------------------------------------------------- */

/* Removes an entry; endpoints forget its peer if nothing else refers to it. All locks of the domain are held. */
static void remove_one(struct shmcma_av *av, fi_addr_t fi_addr)
{
	bool removed;

	pthread_mutex_lock(&av->lock);
	removed = shmcma_av_remove_locked(av, fi_addr);
	pthread_mutex_unlock(&av->lock);
	for (struct shmcma_ep *ep = av->eps; removed && ep; ep = ep->av_next)
		shmcma_ep_forget_peer(ep, fi_addr);
}

/* Removes all or nothing. */
SHMCMA_CALL(int, av_remove, struct fid_av *fid, fi_addr_t *fi_addr, size_t count, uint64_t flags)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid);
	int ret = 0;

	if (flags)
		return -FI_EBADFLAGS;
	if (shmcma_av_is_reader(av))
		return -FI_EACCES;
	if (count && !fi_addr)
		return -FI_EINVAL;
	shmcma_lock(av->domain);
	pthread_mutex_lock(&av->lock);
	for (size_t i = 0; i < count && !ret; i++)
		if (!shmcma_av_entry_locked(av, fi_addr[i]))
			ret = -FI_EINVAL;
	pthread_mutex_unlock(&av->lock);
	for (size_t i = 0; i < count && !ret; i++)
		remove_one(av, fi_addr[i]);
	shmcma_unlock(av->domain);
	return ret;
}

SHMCMA_CALL(int, av_lookup, struct fid_av *fid, fi_addr_t fi_addr, void *addr, size_t *addrlen)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid);
	struct shmcma_av_entry *entry;
	size_t room, len;

	if (!addrlen || (*addrlen && !addr))
		return -FI_EINVAL;
	room = *addrlen;
	pthread_mutex_lock(&av->lock);
	entry = shmcma_av_look_up_locked(av, fi_addr);
	if (entry) {
		len = strlen(entry->inserted) + 1;
		if (room)
			memcpy(addr, entry->inserted, room < len ? room : len);
		*addrlen = len;
	}
	pthread_mutex_unlock(&av->lock);
	return entry ? 0 : -FI_EINVAL;
}

/* Completions that are read from now on name the sender so. */
SHMCMA_CALL(int, av_set_user_id, struct fid_av *fid, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid);
	struct shmcma_av_entry *entry;

	if (flags)
		return -FI_EBADFLAGS;
	if (!(av->flags & FI_AV_USER_ID))
		return -FI_EINVAL;
	shmcma_lock(av->domain);
	pthread_mutex_lock(&av->lock);
	entry = shmcma_av_look_up_locked(av, fi_addr);
	if (entry)
		shmcma_av_name_locked(av, (uint32_t)fi_addr, user_id);
	pthread_mutex_unlock(&av->lock);
	for (struct shmcma_ep *ep = av->eps; ep; ep = ep->av_next)
		shmcma_ep_forget_names(ep);
	shmcma_unlock(av->domain);
	return entry ? 0 : -FI_EINVAL;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf, size_t *len)
{
	int chars = (int)strnlen(addr, shmcma_module.text_size - 1);

	if (*len)
		snprintf(buf, *len, "%.*s", chars, (const char *)addr);
	*len = (size_t)chars + 1;
	return buf;
}

static int av_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid.fid);
	struct shmcma_eq *eq;
	int ret = 0;

	if (flags)
		return -FI_EBADFLAGS;
	if (!(av->flags & FI_EVENT)) {
		shmcma_warn(FI_LOG_AV,
			    "an address vector without FI_EVENT reports nothing to an event queue\n");
		return -FI_EINVAL;
	}
	eq = shmcma_eq_get(bfid);
	if (!eq)
		return -FI_EINVAL;
	shmcma_lock(av->domain);
	if (av->eq)
		ret = -FI_EINVAL;
	else
		av->eq = eq;
	shmcma_unlock(av->domain);
	if (ret)
		shmcma_eq_put_ref(eq);
	return ret;
}

static int av_close(struct fid *fid)
{
	struct shmcma_av *av = container_of(fid, struct shmcma_av, fid.fid);

	if (atomic_load(&av->refs))
		return -FI_EBUSY;
	shmcma_object_del(&av->object);
	if (av->eq)
		shmcma_eq_put_ref(av->eq);
	if (av->shared)
		sc_directory_close(av->shared);
	for (size_t i = 0; i < av->chunk_count; i++)
		free(av->chunks[i]);
	free(av->chunks);
	free(av->holes);
	free(av->buckets);
	pthread_mutex_destroy(&av->lock);
	atomic_fetch_sub(&av->domain->refs, 1);
	free(av);
	return 0;
}

static struct fi_ops av_fid_ops = SHMCMA_FID_OPS(av_close, av_bind, shmcma_no_control);

/* A child of fork(2) may still call functions that only make text. */
SHMCMA_FORKED_CALL(int, shmcma_av_set_open, struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set,
		   void *context)

#define OPS(way)                                                                                          \
	{                                                                                                 \
		.size = sizeof(union shmcma_ops_av), .insert = way##av_insert,                            \
		.insertsvc = way##av_insertsvc, .insertsym = way##av_insertsym, .remove = way##av_remove, \
		.lookup = way##av_lookup, .straddr = av_straddr, .av_set = way##shmcma_av_set_open,       \
		.set_user_id = way##av_set_user_id,                                                       \
	}
static union shmcma_ops_av av_ops = OPS(), forked_ops = OPS(forked_);

static void forked(struct fid *fid)
{
	container_of(fid, struct fid_av, fid)->ops = &forked_ops.ops;
}

/* Before API 1.20 there was no FI_AV_USER_ID for a vector. */
static int check_attr(const struct shmcma_domain *domain, const struct fi_av_attr *attr)
{
	uint64_t newer = FI_VERSION_GE(domain->api_version, FI_VERSION(1, 20)) ? FI_AV_USER_ID : 0;

	if (!attr || (unsigned int)attr->type > FI_AV_TABLE)
		return -FI_EINVAL;
	if (attr->flags & ~(FI_EVENT | FI_READ | FI_SYMMETRIC | newer))
		return -FI_EBADFLAGS;
	if (attr->rx_ctx_bits < 0 || attr->rx_ctx_bits > RX_CTX_BITS_MAX) {
		shmcma_warn(FI_LOG_AV, "rx_ctx_bits=%d: 0 to %d are possible\n", attr->rx_ctx_bits,
			    RX_CTX_BITS_MAX);
		return -FI_EINVAL;
	}
	if (attr->flags & FI_READ && !attr->name) /* only a named vector can be opened for reading */
		return -FI_EINVAL;
	return 0;
}

/* Returns why the named vector cannot be opened, and the remedy. */
static const char *why_not_shared(int err)
{
	switch (err) {
	case EINVAL:
		return "no name is but 1 to 51 characters of A-Z a-z 0-9 . _ : @ + -";
	case EADDRINUSE:
		return "a living process inserts there; open it with FI_READ, or choose another name";
	case ENOENT:
		return "no process has opened it to insert, or that process has ended; open it with "
		       "FI_READ after that";
	case EACCES:
		return "its file in /dev/shm is not a regular one of this user with mode 0600";
	case EPROTO:
		return "its file in /dev/shm is not one of this version of shmcma";
	default:
		return fi_strerror(err);
	}
}

/* Does not warn a reader that may only test whether a vector exists, even for an impossible name. */
static void tell_why_not_shared(const struct shmcma_av *av, const char *name, int ret)
{
	static const char format[] = "shared address vector %s: %s\n";

	if (shmcma_av_is_reader(av) && (ret == -ENOENT || ret == -EINVAL))
		shmcma_info(FI_LOG_AV, format, name, why_not_shared(-ret));
	else
		shmcma_warn(FI_LOG_AV, format, name, why_not_shared(-ret));
}

/* Opens the directory of a named vector. -FI_EADDRINUSE: another process inserts there; -FI_ENOENT: none does. */
static int open_shared(struct shmcma_av *av, struct fi_av_attr *attr)
{
	uint32_t capacity = attr->count > SHARED_MIN ? SC_DIRECTORY_MAX : SHARED_MIN;
	int ret;

	if (!attr->name)
		return 0;
	if (attr->count > SHARED_MIN && attr->count < SC_DIRECTORY_MAX)
		capacity = (uint32_t)attr->count;
	ret = shmcma_av_is_reader(av) ? sc_directory_open(attr->name, &av->shared)
			    : sc_directory_create(attr->name, capacity, &av->shared);
	if (ret) {
		tell_why_not_shared(av, attr->name, ret);
		return shmcma_error(ret);
	}
	if (!attr->map_addr) /* indices are the same at any address */
		attr->map_addr = (void *)sc_directory_numbers(av->shared);
	return 0;
}

int shmcma_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av, void *context)
{
	struct shmcma_av *opened;
	int ret = check_attr(container_of(domain, struct shmcma_domain, fid), attr);

	if (ret)
		return ret;
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return -FI_ENOMEM;
	opened->flags = attr->flags;
	ret = open_shared(opened, attr);
	if (ret) {
		free(opened);
		return ret;
	}
	if (attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	opened->fid.fid = (struct fid){ .fclass = FI_CLASS_AV, .context = context, .ops = &av_fid_ops };
	opened->fid.ops = &av_ops.ops;
	opened->domain = container_of(domain, struct shmcma_domain, fid);
	opened->type = attr->type;
	opened->rx_ctx_bits = (unsigned int)attr->rx_ctx_bits;
	opened->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	atomic_fetch_add(&opened->domain->refs, 1);
	shmcma_object_add(&opened->object, &opened->fid.fid, &opened->lock, forked);
	*av = &opened->fid;
	return 0;
}
