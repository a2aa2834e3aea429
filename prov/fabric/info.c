/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * info.c: fi_getinfo(3): returns the attributes of each offer that fits the hints (attr.c). Any thread.
 */
#include "fabric/fabric.h"

#include <inttypes.h>
#include <string.h>
#include "base/attr.h"
#include "base/node.h"
#include "base/peerowner.h"

/* 64 fields of one bit: each bit of tag and mask can be used alone. */
#define TAG_FORMAT 0xaaaaaaaaaaaaaaaaULL

/* ---- open objects ---------------------------------------------------------------------------- */

/* Tells whether another provider has opened it for itself (FI_PEER). */
static bool is_peer(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_FABRIC
		       ? atomic_load(&container_of(fid, struct shmcma_fabric, fid.fid)->is_peer)
		       : shmcma_domain_is_peer(container_of(fid, struct shmcma_domain, fid.fid));
}

/*
 * Returns `fid` if it is an open object of this provider and of this class; with fid NULL, the oldest open object of
 * the class that an application has opened. For domains, `fabric` must also match, unless it is NULL. Else NULL. Each of
 * these structures begins with its fid.
 */
static struct fid *find(size_t fclass, const struct fid *fid, const struct fid_fabric *fabric)
{
	struct shmcma_object *each;
	struct fid *found;

	shmcma_lists_lock();
	for (each = shmcma_objects_locked(); each; each = each->next)
		if (each->fid->fclass == fclass && !shmcma_is_forked(each->fid) &&
		    (fid ? fid == each->fid : !is_peer(each->fid)) &&
		    (!fabric ||
		     fabric == &container_of(each->fid, struct shmcma_domain, fid.fid)->fabric->fid))
			break;
	found = each ? each->fid : NULL;
	shmcma_lists_unlock();
	return found;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void fill_ep(struct fi_ep_attr *attr, const struct fi_ep_attr *hint, uint64_t granted)
{
	attr->type = FI_EP_RDM;
	attr->protocol = SHMCMA_PROTOCOL;
	attr->protocol_version = SHMCMA_PROTOCOL_VERSION;
	attr->max_msg_size = SC_MESSAGE_MAX;
	attr->max_order_raw_size = shmcma_ordered_size(granted);
	attr->max_order_war_size = shmcma_ordered_size(granted);
	attr->max_order_waw_size = shmcma_ordered_size(granted);
	/* any format is possible */
	attr->mem_tag_format = hint && hint->mem_tag_format ? hint->mem_tag_format : TAG_FORMAT;
	attr->tx_ctx_cnt = hint && hint->tx_ctx_cnt ? hint->tx_ctx_cnt : 1;
	attr->rx_ctx_cnt = hint && hint->rx_ctx_cnt ? hint->rx_ctx_cnt : 1;
}

/* A progress of data that is for both kinds of operations decides where there is no hint of its own. */
static enum fi_progress control_progress(const struct fi_domain_attr *hint)
{
	if (hint && hint->control_progress)
		return hint->control_progress;
	if (hint && (unsigned int)hint->data_progress == SHMCMA_PROGRESS_CONTROL_UNIFIED)
		return hint->data_progress;
	return shmcma_module.control_progress;
}

static int fill_domain(struct fi_domain_attr *attr, const struct fi_domain_attr *hint, uint64_t granted,
		       int mr_mode, const struct fid_fabric *fabric)
{
	attr->name = strdup(shmcma_name_of(granted));
	if (!attr->name)
		return -FI_ENOMEM;
	if (hint && hint->domain)
		attr->domain = hint->domain;
	else if (fabric)
		attr->domain = (struct fid_domain *)find(FI_CLASS_DOMAIN, NULL, fabric);
	attr->threading = hint && hint->threading ? hint->threading : FI_THREAD_SAFE;
	attr->control_progress = control_progress(hint);
	attr->data_progress = shmcma_granted_progress(hint, granted);
	attr->resource_mgmt = FI_RM_ENABLED;
	attr->av_type = hint ? hint->av_type : FI_AV_UNSPEC;
	attr->mr_mode = mr_mode;
	attr->mr_key_size = SHMCMA_MR_KEY_SIZE;
	attr->cq_data_size = SHMCMA_CQ_DATA_SIZE;
	attr->cq_cnt = SHMCMA_ENDPOINTS;
	attr->ep_cnt = SHMCMA_ENDPOINTS;
	attr->tx_ctx_cnt = SHMCMA_ENDPOINTS;
	attr->rx_ctx_cnt = SHMCMA_ENDPOINTS;
	attr->max_ep_tx_ctx = SHMCMA_CONTEXTS;
	attr->max_ep_rx_ctx = SHMCMA_CONTEXTS;
	attr->max_ep_stx_ctx = SHMCMA_ENDPOINTS;
	attr->max_ep_srx_ctx = SHMCMA_ENDPOINTS;
	attr->cntr_cnt = SHMCMA_COUNTERS;
	attr->mr_iov_limit = SC_REG_RANGES_MAX;
	attr->max_err_data = shmcma_error_data_size(granted);
	attr->mr_cnt = SHMCMA_MR_COUNT;
	attr->tclass = hint ? hint->tclass : FI_TC_UNSPEC;
	return 0;
}

/* That FI_AV_USER_ID is one of a domain came with 1.20; a user of libfabric's shm asks for it with 1.19. */
static uint64_t domain_caps(uint32_t version, const struct fi_domain_attr *hint, uint64_t granted)
{
	bool asked = hint && hint->caps & FI_AV_USER_ID;
	uint64_t caps = granted & SHMCMA_DOMAIN_CAPS & ~FI_AV_USER_ID;

	return asked || FI_VERSION_GE(version, FI_VERSION(1, 20)) ? caps | FI_AV_USER_ID : caps;
}

/* Fields behind those of libfabric 1.17, if the loaded one has them. */
static void fill_newer(struct fi_domain_attr *attr)
{
	struct shmcma_domain_attr *newer = (struct shmcma_domain_attr *)attr;

	if (FI_VERSION_GE(fi_version(), FI_VERSION(2, 5)))
		newer->max_cntr_value = newer->max_err_cntr_value = UINT64_MAX;
}

/* Returns the fabric of the domain in the hints; else the fabric in the hints; else the one opened first. */
static struct fid_fabric *fabric_of(const struct fi_info *hints)
{
	const struct fid_domain *domain = hints && hints->domain_attr ? hints->domain_attr->domain : NULL;
	const struct fid_fabric *fabric;

	if (domain)
		return &container_of(domain, struct shmcma_domain, fid)->fabric->fid;
	fabric = hints && hints->fabric_attr ? hints->fabric_attr->fabric : NULL;
	return (struct fid_fabric *)find(FI_CLASS_FABRIC, fabric ? &fabric->fid : NULL, NULL);
}

static int fill_fabric(struct fi_fabric_attr *attr, const struct fi_info *hints, uint32_t version,
		       uint64_t granted)
{
	/* libfabric fills in prov_name */
	attr->name = strdup(shmcma_name_of(granted));
	if (!attr->name)
		return -FI_ENOMEM;
	attr->fabric = fabric_of(hints);
	attr->prov_version = shmcma_provider.version;
	attr->api_version = version;
	return 0;
}

/* The endpoint's own address and its peer's; an empty string: not given. */
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
	uint64_t granted = shmcma_granted_caps(version, hints, offer);
	struct fi_info *info = fi_allocinfo();

	if (!info)
		return NULL;
	info->caps = granted;
	info->addr_format = FI_ADDR_STR;
	shmcma_tx_attr_fill(info->tx_attr, hints ? hints->tx_attr : NULL, granted);
	info->tx_attr->tclass = hints && hints->tx_attr ? hints->tx_attr->tclass : FI_TC_UNSPEC;
	shmcma_rx_attr_fill(info->rx_attr, hints ? hints->rx_attr : NULL, granted);
	fill_ep(info->ep_attr, hints ? hints->ep_attr : NULL, granted);
	if (fill_fabric(info->fabric_attr, hints, version, granted) ||
	    fill_domain(info->domain_attr, hints ? hints->domain_attr : NULL, granted,
			shmcma_granted_mr_mode(hints, version, granted), info->fabric_attr->fabric) ||
	    fill_address(addresses->source, &info->src_addr, &info->src_addrlen) ||
	    fill_address(addresses->destination, &info->dest_addr, &info->dest_addrlen)) {
		fi_freeinfo(info);
		return NULL;
	}
	info->domain_attr->caps = domain_caps(version, hints ? hints->domain_attr : NULL, granted);
	fill_newer(info->domain_attr);
	return info;
}

/* ---- node, service, addresses in the hints --------------------------------------------------- */

static int hinted_source(const struct fi_info *hints, char *source)
{
	char service[SC_ADDR_SIZE];

	if (!hints || !hints->src_addr)
		return 0;
	if (!hints->src_addrlen)
		return shmcma_refuse("src_addr", "an address of no length", SC_ADDR_PREFIX "...");
	if (shmcma_source_service(hints, service))
		return shmcma_refuse("src_addr", "this address", SC_ADDR_PREFIX "<service>");
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
		return shmcma_refuse("dest_addr", "an address of no length", SC_ADDR_PREFIX "...");
	if (shmcma_address_copy(hints->dest_addr, hints->dest_addrlen, destination, &kind) ||
	    kind == SC_ADDR_INVALID)
		return shmcma_refuse("dest_addr", "this address", SC_ADDR_PREFIX "...");
	return 0;
}

/* Tells whether node and service name a machine but no endpoint on it. */
static bool is_host_alone(const char *node, const char *service)
{
	return node && !service && !shmcma_node_is_address(node);
}

/* FI_SOURCE: node and service name the new endpoint. */
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
		ret = shmcma_refuse("node", "a second endpoint at an endpoint's own address", "services");
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
	/*
	 * a host without a service: the application asks whether the host can be reached; no destination address is
	 * returned
	 */
	if (is_host_alone(node, service))
		return shmcma_node_is_here(node, flags) ? 0 : -FI_ENODATA;
	return shmcma_node_address(node, service, flags, addresses->destination);
}

/* ---- fi_getinfo ------------------------------------------------------------------------------ */

/* Bits 58 and up belong to libfabric: it wants an endpoint for a utility provider on top. */
#define LAYERING_FLAGS (~0ULL << 58)
/* One of them: a provider such as lnx, which uses others as its peers (FI_PEER), wants infos that it does not show. */
#define HIDDEN (1ULL << 60)
/* Since libfabric 2.1: look again for devices. The answer is always the same here. */
#define RESCAN (1ULL << 35)

/* Since API 1.5 a domain has capabilities. */
static bool asks_for_peer(uint32_t version, const struct fi_info *hints)
{
	if (!hints)
		return false;
	return hints->caps & FI_PEER || (FI_VERSION_GE(version, FI_VERSION(1, 5)) && hints->domain_attr &&
					 hints->domain_attr->caps & FI_PEER);
}

/*
 * Tells whether the caller is another provider that shares its objects with this one: fi_peer(3). It asks for FI_PEER and
 * sets the flag. In the place of libfabric's shm either is enough: EFA up to 1.22 sets the flag alone, and a provider
 * outside of libfabric does not know the flag. The flag alone is enough for each version of the API: shm from 1.17 to 2.6
 * does not look at FI_PEER where another provider opens such an object in a domain.
 */
static bool is_for_peer(uint32_t version, uint64_t flags, const struct fi_info *hints)
{
	bool asks = asks_for_peer(version, hints), hidden = flags & HIDDEN;

	return shmcma_module.is_shm ? asks || hidden : asks && hidden;
}

static int check_flags(uint32_t version, uint64_t flags, const struct fi_info *hints)
{
	bool peer = is_for_peer(version, flags, hints);

	if (peer && !shmcma_owner_is_known())
		return -FI_ENODATA;
	flags &= peer ? ~HIDDEN : ~0ULL;
	if (flags & LAYERING_FLAGS)
		return shmcma_refuse("flags", "an endpoint to put another provider on",
				   "endpoints for applications");
	if (flags & ~(FI_NUMERICHOST | FI_PROV_ATTR_ONLY | FI_SOURCE | RESCAN)) {
		shmcma_info(FI_LOG_CORE, "unknown flags %#" PRIx64 "\n", flags);
		return -FI_EBADFLAGS;
	}
	return 0;
}

/*
 * An application that asks for capabilities gets one info, without a second one that only adds collectives. Another
 * provider gets one info, and applications get none of these: lnx opens a domain for each.
 */
static bool is_more(uint32_t version, uint64_t flags, const struct fi_info *hints, uint64_t offer)
{
	if (is_for_peer(version, flags, hints) != !!(offer & FI_PEER))
		return true;
	return hints && hints->caps && offer & FI_COLLECTIVE && !(hints->caps & FI_COLLECTIVE);
}

/*
 * A fabric or domain in hints must be open. The info that an object is opened with is not checked for this, because
 * they may have been closed since.
 */
static int check_opened(const struct fi_info *hints)
{
	const struct fid_fabric *fabric = hints && hints->fabric_attr ? hints->fabric_attr->fabric : NULL;
	const struct fid_domain *domain = hints && hints->domain_attr ? hints->domain_attr->domain : NULL;

	if (fabric && !find(FI_CLASS_FABRIC, &fabric->fid, NULL))
		return shmcma_refuse("fabric_attr->fabric", "a fabric that is not open here",
				   "those opened here");
	if (domain && !find(FI_CLASS_DOMAIN, &domain->fid, fabric))
		return shmcma_refuse("domain_attr->domain", "a domain that is not open here",
				   fabric ? "those of the fabric that is asked for" : "those opened here");
	return 0;
}

int shmcma_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
		   const struct fi_info *hints, struct fi_info **info)
{
	struct addresses addresses;
	struct fi_info **last = info;
	int ret = check_flags(version, flags, hints);

	*info = NULL;
	if (ret)
		return ret;
	if (flags & FI_PROV_ATTR_ONLY) {
		*info = fi_allocinfo();
		if (!*info)
			return -FI_ENOMEM;
		(*info)->fabric_attr->prov_version = shmcma_provider.version;
		return 0;
	}
	/* first, because it is cheaper: a node may need a look-up in the network */
	ret = shmcma_check_hints(version, hints);
	if (!ret)
		ret = check_opened(hints);
	if (!ret && sc_host_check())
		ret = -FI_ENODATA; /* while the application can take another provider */
	if (!ret)
		ret = find_addresses(node, service, flags, hints, &addresses);
	if (ret)
		return ret;
	for (size_t i = 0; i < SHMCMA_OFFERS; i++) {
		if (is_more(version, flags, hints, shmcma_offers[i]) ||
		    shmcma_check_offer(version, hints, shmcma_offers[i]))
			continue;
		*last = make_info(version, hints, shmcma_offers[i], &addresses);
		if (!*last) {
			fi_freeinfo(*info);
			*info = NULL;
			return -FI_ENOMEM;
		}
		last = &(*last)->next;
	}
	return *info ? 0 : -FI_ENODATA;
}
