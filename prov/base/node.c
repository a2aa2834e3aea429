/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * node.c: turns node and service of fi_getinfo(3) and fi_av(3) into an address. Any thread.
 *
 * All endpoints are on this machine, so a node can only mean "here": no node, a loopback address, the host's name, or
 * an address of one of its interfaces. The service is the endpoint's name.
 */
#include "base/node.h"

#include <ifaddrs.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/provider.h"

#define HOST_NAME_SIZE 256
#define SCHEME_END "://"

static bool is_own_form(const char *text)
{
	return !strncmp(text, SC_ADDR_PREFIX, strlen(SC_ADDR_PREFIX));
}

bool shmcma_node_is_address(const char *node)
{
	return node && (is_own_form(node) || (shmcma_module.names_are_free && strstr(node, SCHEME_END)));
}

/* Makes the address of a name that is no service name: it is too long, or has other characters. */
static void hashed_address(const char *name, char *out)
{
	uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */
	char service[SC_ADDR_SIZE];

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3ULL;
	snprintf(service, sizeof(service), "name-%016" PRIx64, hash);
	(void)sc_addr_service(service, out);
}

const char *shmcma_address_of(const char *text, char *out)
{
	const char *name;

	if (!shmcma_module.names_are_free || is_own_form(text))
		return text;
	name = strstr(text, SCHEME_END);
	name = name ? name + strlen(SCHEME_END) : text;
	if (sc_addr_service(name, out))
		hashed_address(name, out);
	return out;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
				  &((const struct sockaddr_in6 *)b)->sin6_addr);
}

/* Loopback and wildcard addresses are here on any machine. */
static bool is_always_here(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET) {
		uint32_t ip = ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr);

		return ip >> 24 == IN_LOOPBACKNET || ip == INADDR_ANY;
	}
	if (addr->sa_family == AF_INET6) {
		const struct in6_addr *ip = &((const struct sockaddr_in6 *)addr)->sin6_addr;

		return IN6_IS_ADDR_LOOPBACK(ip) || IN6_IS_ADDR_UNSPECIFIED(ip);
	}
	return false;
}

static bool is_of_interface(const struct sockaddr *addr, const struct ifaddrs *interfaces)
{
	if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
		return false;
	for (; interfaces; interfaces = interfaces->ifa_next)
		if (interfaces->ifa_addr && same_host(addr, interfaces->ifa_addr))
			return true;
	return false;
}

static bool is_own_name(const char *node)
{
	char host[HOST_NAME_SIZE];

	if (!strcasecmp(node, "localhost"))
		return true;
	if (gethostname(host, sizeof(host)))
		return false;
	host[sizeof(host) - 1] = '\0';
	return !strcasecmp(node, host);
}

bool shmcma_node_is_here(const char *node, uint64_t flags)
{
	struct addrinfo hints = { .ai_flags = flags & FI_NUMERICHOST ? AI_NUMERICHOST : 0,
				  .ai_socktype = SOCK_STREAM };
	struct ifaddrs *interfaces = NULL;
	struct addrinfo *found;
	bool here = false;
	int ret;

	if (!(flags & FI_NUMERICHOST) && is_own_name(node))
		return true;
	ret = getaddrinfo(node, NULL, &hints, &found);
	if (ret) {
		shmcma_info(FI_LOG_CORE, "node %s: %s\n", node, gai_strerror(ret));
		return false;
	}
	if (getifaddrs(&interfaces))
		interfaces = NULL;
	for (struct addrinfo *each = found; each && !here; each = each->ai_next)
		here = is_always_here(each->ai_addr) || is_of_interface(each->ai_addr, interfaces);
	if (interfaces)
		freeifaddrs(interfaces);
	freeaddrinfo(found);
	if (!here)
		shmcma_info(FI_LOG_CORE,
			    "node %s is not this machine, beyond which nobody can be reached\n", node);
	return here;
}

int shmcma_address_copy(const void *addr, size_t addrlen, char *out, enum sc_addr_kind *kind)
{
	size_t size = shmcma_module.text_size, len = strnlen(addr, addrlen < size ? addrlen : size);
	char text[SHMCMA_TEXT_MAX + 1] = "", own[SC_ADDR_SIZE];
	const char *address;

	memcpy(text, addr, len);
	address = shmcma_address_of(text, own);
	if (len == size || strlen(address) >= SC_ADDR_SIZE) {
		shmcma_info(FI_LOG_CORE, "address of more than %zu characters\n", size - 1);
		return -FI_EINVAL;
	}
	strcpy(out, address);
	*kind = sc_addr_kind(out);
	if (*kind != SC_ADDR_INVALID)
		return 0;
	if (strcmp(out, SHMCMA_ADDR_ANY)) {
		shmcma_info(FI_LOG_CORE, "\"%s\" is not an address of this provider\n", out);
		return -FI_EINVAL;
	}
	out[0] = '\0';
	return 0;
}

int shmcma_source_service(const struct fi_info *info, char *name)
{
	char address[SC_ADDR_SIZE];
	enum sc_addr_kind kind;
	int ret;

	name[0] = '\0';
	if (!info->src_addr)
		return 0;
	ret = shmcma_address_copy(info->src_addr, info->src_addrlen, address, &kind);
	if (ret)
		return ret;
	if (kind == SC_ADDR_ENDPOINT) {
		shmcma_info(FI_LOG_CORE, "source address %s: an endpoint's own address cannot be chosen\n",
			    address);
		return -FI_EADDRNOTAVAIL;
	}
	if (kind == SC_ADDR_SERVICE)
		strcpy(name, address + strlen(SC_ADDR_PREFIX));
	return 0;
}

int shmcma_node_address(const char *node, const char *service, uint64_t flags, char *out)
{
	if (shmcma_node_is_address(node)) {
		enum sc_addr_kind kind;

		if (service) {
			shmcma_info(FI_LOG_CORE, "node %s is an address, service %s is one too many\n",
				    node, service);
			return -FI_EINVAL;
		}
		if (shmcma_address_copy(node, shmcma_module.text_size, out, &kind) ||
		    kind == SC_ADDR_INVALID)
			return -FI_EINVAL;
		return 0;
	}
	if (!service) {
		shmcma_info(FI_LOG_CORE, "node %s without a service names no endpoint\n",
			    node ? node : "(none)");
		return -FI_EINVAL;
	}
	if (node && !shmcma_node_is_here(node, flags))
		return -FI_ENODATA;
	if (sc_addr_service(service, out)) {
		shmcma_info(FI_LOG_CORE,
			    "service \"%s\": not 1 to 51 of the characters A-Z a-z 0-9 . _ : @ + -\n",
			    service);
		return -FI_EINVAL;
	}
	return 0;
}
