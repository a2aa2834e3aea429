/* SPDX-License-Identifier: BSD-2-Clause */
/* endpoint.c: see endpoint.h. Called by processes of a group. */
#include "endpoint.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "group.h"

#define QUEUE_SIZE 1024
#define BATCH 16 /* completions read at once */

void must(const char *what, ssize_t ret)
{
	if (ret)
		finish(FAILED, what, fi_strerror((int)-ret));
}

/* ---- opening ----------------------------------------------------------------------------------- */

static void choose_variant(struct endpoint *endpoint, const char *variant)
{
	if (strcmp(variant, "strict") == 0)
		setenv("FI_SHMCMA_RMA", "strict", 1);
	else if (strcmp(variant, "nocma") == 0)
		setenv("FI_SHMCMA_CMA", "0", 1);
	else if (strcmp(variant, "auto") == 0)
		endpoint->automatic = true;
	else if (strcmp(variant, "sleep") == 0)
		endpoint->idle = SLEEPS;
	else if (strcmp(variant, "sread") == 0)
		endpoint->idle = SREADS;
	else
		finish(UNAVAILABLE, variant, "no such variant");
}

/* Of "provider:variant:variant" the provider, which libfabric frees; the variants go to where they work. */
static char *choose_provider(struct endpoint *endpoint, const char *subject)
{
	char *copy = strdup(subject), *save, *variant;

	if (!copy)
		finish(FAILED, "provider", "no memory");
	strtok_r(copy, ":", &save);
	while ((variant = strtok_r(NULL, ":", &save)))
		choose_variant(endpoint, variant);
	return copy;
}

static struct fi_info *make_hints(struct endpoint *endpoint, const struct wanted *wanted)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		finish(FAILED, "fi_allocinfo", "no memory");
	hints->caps = wanted->caps;
	if (wanted->caps & FI_RMA)
		hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = wanted->threading ? wanted->threading : FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->size = wanted->receives;
	hints->fabric_attr->prov_name = choose_provider(endpoint, wanted->subject);
	hints->domain_attr->data_progress = endpoint->automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
	return hints;
}

void endpoint_find(struct endpoint *endpoint, const struct wanted *wanted)
{
	struct fi_info *hints;
	int ret;

	memset(endpoint, 0, sizeof(*endpoint));
	unsetenv("FI_PROVIDER"); /* it is named by the subject */
	hints = make_hints(endpoint, wanted);
	ret = fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &endpoint->info);
	if (ret == -FI_ENODATA && wanted->receives) {
		hints->rx_attr->size = 0;
		ret = fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &endpoint->info);
	}
	fi_freeinfo(hints);
	if (ret == -FI_ENODATA)
		finish(UNAVAILABLE, "fi_getinfo", fi_strerror(-ret));
	must("fi_getinfo", ret);
}

struct fid_ep *endpoint_open_more(struct endpoint *endpoint)
{
	struct fid_ep *ep = NULL;

	must("fi_endpoint", fi_endpoint(endpoint->domain, endpoint->info, &ep, NULL));
	must("fi_ep_bind", fi_ep_bind(ep, &endpoint->av->fid, 0));
	must("fi_ep_bind", fi_ep_bind(ep, &endpoint->cq->fid, FI_TRANSMIT | FI_RECV));
	must("fi_enable", fi_enable(ep));
	return ep;
}

/* A queue that cannot be slept on makes only those measurements impossible. */
void endpoint_open_queue(struct endpoint *endpoint, size_t size)
{
	struct fi_cq_attr attr = { .size = size, .format = FI_CQ_FORMAT_TAGGED };
	int ret;

	attr.wait_obj = endpoint->idle == SLEEPS   ? FI_WAIT_FD
			: endpoint->idle == SREADS ? FI_WAIT_UNSPEC
						   : FI_WAIT_NONE;
	ret = fi_cq_open(endpoint->domain, &attr, &endpoint->cq, NULL);
	if (ret && endpoint->idle != SPINS)
		finish(UNAVAILABLE, "fi_cq_open with a wait object", fi_strerror(-ret));
	must("fi_cq_open", ret);
	if (endpoint->idle == SLEEPS)
		must("FI_GETWAIT", fi_control(&endpoint->cq->fid, FI_GETWAIT, &endpoint->wait_fd));
}

void endpoint_open_domain(struct endpoint *endpoint, size_t peers)
{
	struct fi_av_attr attr = { .count = peers, .type = endpoint->info->domain_attr->av_type };

	if (!endpoint->fabric)
		must("fi_fabric", fi_fabric(endpoint->info->fabric_attr, &endpoint->fabric, NULL));
	must("fi_domain", fi_domain(endpoint->fabric, endpoint->info, &endpoint->domain, NULL));
	must("fi_av_open", fi_av_open(endpoint->domain, &attr, &endpoint->av, NULL));
}

void endpoint_open(struct endpoint *endpoint, size_t peers)
{
	endpoint_open_domain(endpoint, peers);
	endpoint_open_queue(endpoint, QUEUE_SIZE);
	endpoint->ep = endpoint_open_more(endpoint);
}

void endpoint_close(struct endpoint *endpoint)
{
	must("fi_close(ep)", fi_close(&endpoint->ep->fid));
	must("fi_close(cq)", fi_close(&endpoint->cq->fid));
	must("fi_close(av)", fi_close(&endpoint->av->fid));
	must("fi_close(domain)", fi_close(&endpoint->domain->fid));
	must("fi_close(fabric)", fi_close(&endpoint->fabric->fid));
	fi_freeinfo(endpoint->info);
}

void endpoint_get_name(struct fid_ep *ep, char *name)
{
	size_t length = NAME_MAX_BYTES;

	must("fi_getname", fi_getname(&ep->fid, name, &length));
}

fi_addr_t endpoint_insert(struct endpoint *endpoint, const char *name)
{
	fi_addr_t address = FI_ADDR_UNSPEC;

	if (fi_av_insert(endpoint->av, name, 1, &address, 0, NULL) != 1)
		finish(FAILED, "fi_av_insert", "the peer's address was refused");
	return address;
}

void endpoint_connect(struct endpoint *endpoint, int peer)
{
	endpoint_get_name(endpoint->ep, group_name(me.rank));
	endpoint_barrier(endpoint);
	endpoint->peer = endpoint_insert(endpoint, group_name(peer));
}

int endpoint_register(struct endpoint *endpoint, void *memory, size_t size, struct fid_mr **mr)
{
	static uint64_t key;

	return fi_mr_reg(endpoint->domain, memory, size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, ++key, 0, mr,
			 NULL);
}

/* ---- completions ------------------------------------------------------------------------------- */

static void rest(struct endpoint *endpoint)
{
	struct pollfd wait = { .fd = endpoint->wait_fd, .events = POLLIN };
	struct fid *fid = &endpoint->cq->fid;

	if (fi_trywait(endpoint->fabric, &fid, 1) == 0)
		(void)poll(&wait, 1, -1);
}

static void nothing_read(struct endpoint *endpoint, ssize_t ret)
{
	struct fi_cq_err_entry error;

	if (ret == -FI_EAGAIN) {
		if (endpoint->idle == SLEEPS)
			rest(endpoint);
		else if (me.crowded || cpus.count < 2)
			sched_yield();
		return;
	}
	if (ret != -FI_EAVAIL)
		must("fi_cq_read", ret);
	memset(&error, 0, sizeof(error));
	fi_cq_readerr(endpoint->cq, &error, 0);
	finish(FAILED, "completion", fi_strerror(error.err));
}

void endpoint_poll(struct endpoint *endpoint)
{
	struct fi_cq_tagged_entry entries[BATCH];
	ssize_t n = endpoint->idle == SREADS ? fi_cq_sread(endpoint->cq, entries, BATCH, NULL, -1)
					     : fi_cq_read(endpoint->cq, entries, BATCH);

	if (n < 0)
		nothing_read(endpoint, n);
	for (ssize_t i = 0; i < n; i++) {
		if (entries[i].flags & (FI_RECV | FI_REMOTE_CQ_DATA))
			endpoint->received++;
		else
			endpoint->sent++;
	}
}

void endpoint_wait_sent(struct endpoint *endpoint)
{
	while (endpoint->sent < endpoint->to_send)
		endpoint_poll(endpoint);
}

void endpoint_wait_received(struct endpoint *endpoint, long left)
{
	while (endpoint->received + left < endpoint->to_receive)
		endpoint_poll(endpoint);
}

/* The caller waits for more than the queue: a poll that does not sleep. */
void endpoint_idle(void *arg)
{
	struct endpoint *endpoint = arg;
	enum idle idle = endpoint->idle;

	endpoint->idle = SPINS;
	endpoint_poll(endpoint);
	endpoint->idle = idle;
}

void endpoint_barrier(struct endpoint *endpoint)
{
	group_barrier(endpoint_idle, endpoint);
}

/* ---- messages ---------------------------------------------------------------------------------- */

size_t message_vector(const struct message *message, struct iovec vector[FRAGMENTS_MAX])
{
	size_t count = message->fragments ? message->fragments : 1, length = message->size / count;

	for (size_t i = 0; i < count; i++)
		vector[i] = (struct iovec){ (char *)message->buf + i * message->stride, length };
	vector[count - 1].iov_len += message->size % count;
	return count;
}

static ssize_t try_sendv(struct endpoint *endpoint, const struct message *message)
{
	struct iovec vector[FRAGMENTS_MAX];
	size_t count = message_vector(message, vector);

	if (endpoint->plain)
		return fi_sendv(endpoint->ep, vector, NULL, count, endpoint->peer, message->context);
	return fi_tsendv(endpoint->ep, vector, NULL, count, endpoint->peer, message->tag,
			 message->context);
}

static ssize_t try_recvv(struct endpoint *endpoint, const struct message *message)
{
	struct iovec vector[FRAGMENTS_MAX];
	size_t count = message_vector(message, vector);

	if (endpoint->plain)
		return fi_recvv(endpoint->ep, vector, NULL, count, endpoint->peer, message->context);
	return fi_trecvv(endpoint->ep, vector, NULL, count, endpoint->peer, message->tag, 0,
			 message->context);
}

static ssize_t try_inject(struct endpoint *endpoint, const struct message *message)
{
	if (endpoint->plain)
		return fi_inject(endpoint->ep, message->buf, message->size, endpoint->peer);
	return fi_tinject(endpoint->ep, message->buf, message->size, endpoint->peer, message->tag);
}

static ssize_t try_send(struct endpoint *endpoint, const struct message *message)
{
	if (message->fragments)
		return try_sendv(endpoint, message);
	if (endpoint->plain)
		return fi_send(endpoint->ep, message->buf, message->size, NULL, endpoint->peer,
			       message->context);
	return fi_tsend(endpoint->ep, message->buf, message->size, NULL, endpoint->peer, message->tag,
			message->context);
}

static ssize_t try_recv(struct endpoint *endpoint, const struct message *message)
{
	if (message->fragments)
		return try_recvv(endpoint, message);
	if (endpoint->plain)
		return fi_recv(endpoint->ep, message->buf, message->size, NULL, endpoint->peer,
			       message->context);
	return fi_trecv(endpoint->ep, message->buf, message->size, NULL, endpoint->peer, message->tag, 0,
			message->context);
}

void endpoint_send(struct endpoint *endpoint, const struct message *message)
{
	bool inject = !message->fragments && message->size <= endpoint->info->tx_attr->inject_size;
	ssize_t ret;

	while ((ret = inject ? try_inject(endpoint, message) : try_send(endpoint, message)) == -FI_EAGAIN)
		endpoint_idle(endpoint);
	must(inject ? "inject" : "send", ret);
	endpoint->to_send += !inject;
}

void endpoint_recv(struct endpoint *endpoint, const struct message *message)
{
	ssize_t ret;

	while ((ret = try_recv(endpoint, message)) == -FI_EAGAIN)
		endpoint_idle(endpoint);
	must("receive", ret);
	endpoint->to_receive++;
}
