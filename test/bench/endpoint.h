/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint.h: an endpoint of a provider with all that belongs to it, over the public fi_* API. One thread
 * uses it. A call that fails ends the group (must()); a provider without the features that the caller asks for
 * makes the measurement UNAVAILABLE.
 *
 * A subject is "provider" or "provider:variant:variant...". Variants: "strict" (FI_SHMCMA_RMA=strict),
 * "nocma" (FI_SHMCMA_CMA=0), "auto" (asks for automatic progress), "sleep" (poll(2) on the queue's FI_WAIT_FD
 * while it is empty), "sread" (fi_cq_sread).
 */
#ifndef SHMCMA_TEST_BENCH_ENDPOINT_H
#define SHMCMA_TEST_BENCH_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

enum idle { SPINS, SLEEPS, SREADS };

struct endpoint {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer; /* messages go to it and come from it; FI_ADDR_UNSPEC: they come from any sender */
	bool plain;	/* messages have no tags */
	bool automatic; /* asks for automatic progress */
	enum idle idle;
	int wait_fd;		      /* SLEEPS */
	uint64_t sent, received;      /* completions seen */
	uint64_t to_send, to_receive; /* completions owed by what was posted */
};

/* ret is 0 or a negative errno, of libfabric or not. */
void must(const char *what, ssize_t ret);

struct wanted {
	const char *subject;
	uint64_t caps;
	enum fi_threading threading; /* FI_THREAD_UNSPEC: FI_THREAD_DOMAIN */
	size_t receives;	     /* room for so many if the provider has it, else what it has */
};

/* The variants, fi_getinfo; then what is open. In between the caller may change plain and idle. */
void endpoint_find(struct endpoint *endpoint, const struct wanted *wanted);
void endpoint_open(struct endpoint *endpoint, size_t peers);
void endpoint_close(struct endpoint *endpoint);

/* The steps of endpoint_open(), for endpoints that share objects: fabric (unless there is one), domain, addresses */
void endpoint_open_domain(struct endpoint *endpoint, size_t peers);

/* ... a queue for so many completions, and its descriptor; ... */
void endpoint_open_queue(struct endpoint *endpoint, size_t size);

/* ... an endpoint of these. The caller must close each further one itself. */
struct fid_ep *endpoint_open_more(struct endpoint *endpoint);

void endpoint_get_name(struct fid_ep *ep, char *name);
fi_addr_t endpoint_insert(struct endpoint *endpoint, const char *name);

/* Each rank's name is told to all; `peer` is that rank's address. */
void endpoint_connect(struct endpoint *endpoint, int peer);

/* For peers to read and write, under a key of ours where the provider does not choose. 0, or what failed. */
int endpoint_register(struct endpoint *endpoint, void *memory, size_t size, struct fid_mr **mr);

/* Reads completions, up to 16, and counts them. */
void endpoint_poll(struct endpoint *endpoint);
void endpoint_wait_sent(struct endpoint *endpoint);
/* Until no more than so many posted receives are left. */
void endpoint_wait_received(struct endpoint *endpoint, long left);

/* group_barrier() during which the provider makes progress; does not sleep. */
void endpoint_barrier(struct endpoint *endpoint);
void endpoint_idle(void *endpoint);

/*
 * The functions below post a message again until the provider takes it. A message in one fragment that fits the
 * provider's inject_size is injected. Several fragments have one length, except the last, and are `stride` bytes apart.
 */
#define FRAGMENTS_MAX 8
struct message {
	void *buf;
	size_t size;
	size_t fragments, stride; /* fragments 0: one */
	uint64_t tag;
	struct fi_context2 *context;
};

/* Returns how many elements it has written, at least one. */
size_t message_vector(const struct message *message, struct iovec vector[FRAGMENTS_MAX]);

void endpoint_send(struct endpoint *endpoint, const struct message *message);
void endpoint_recv(struct endpoint *endpoint, const struct message *message);

#endif
