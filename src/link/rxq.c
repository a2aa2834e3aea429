/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rxq.c: receive queues: where receives are posted and messages wait, of one endpoint or of several.
 *
 * Owns struct sc_rxq and the sources in it. Endpoints that share a queue put their messages into it as each takes them
 * in; the endpoint that first takes in a message for a posted receive gets that receive. A message belongs to the
 * endpoint that has received it (its peer's), and so do the transfer and the completion; a posted receive belongs to no
 * endpoint.
 *
 * A source is a sender, as receives know it: peers of one name (struct sc_ep_name) are one source, on whichever of the
 * endpoints they are. It ends with its last peer, unless a posted receive names it: forget.c, sc_peers_leave_rxq().
 *
 * All of it is private memory: the death of a peer changes nothing here except the peer's state in peer.c.
 */
#include "link/rxq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SOURCES_MIN 16

int sc_rxq_init(struct sc_rxq *rxq, size_t size)
{
	memset(rxq, 0, sizeof(*rxq));
	rxq->size = size;
	sc_slab_init(&rxq->ops, sizeof(struct sc_rx_op));
	sc_list_init(&rxq->claimed);
	sc_list_init(&rxq->eps);
	rxq->sources = calloc(SOURCES_MIN, sizeof(struct sc_source *));
	if (!rxq->sources)
		return -ENOMEM;
	rxq->source_mask = SOURCES_MIN - 1;
	sc_match_init(&rxq->tagged);
	sc_match_init(&rxq->plain);
	return 0;
}

int sc_rxq_create_matched(const struct sc_matcher *matcher, void *arg, struct sc_rxq **rxq)
{
	int ret = sc_rxq_create(0, rxq);

	if (ret)
		return ret;
	(*rxq)->matcher = matcher;
	(*rxq)->matcher_arg = arg;
	return 0;
}

void sc_rxq_fini(struct sc_rxq *rxq)
{
	/* with a matcher: messages whose endpoint has closed */
	sc_list_for_safe (entry, next_entry, &rxq->claimed)
		free(sc_list_entry(entry, struct sc_rx_msg, claimed));
	for (uint32_t i = 0; rxq->sources && i <= rxq->source_mask; i++)
		for (struct sc_source *source = rxq->sources[i], *next; source; source = next) {
			next = source->next;
			free(source);
		}
	free(rxq->sources);
	sc_match_fini(&rxq->plain);
	sc_match_fini(&rxq->tagged);
	sc_slab_fini(&rxq->ops);
}

int sc_rxq_create(size_t size, struct sc_rxq **created)
{
	struct sc_rxq *rxq = malloc(sizeof(*rxq));
	int ret = rxq ? sc_rxq_init(rxq, size) : -ENOMEM;

	if (ret)
		free(rxq);
	else
		*created = rxq;
	return ret;
}

void sc_rxq_destroy(struct sc_rxq *rxq)
{
	sc_rxq_fini(rxq);
	free(rxq);
}

void *sc_rxq_arg(const struct sc_rxq *rxq)
{
	return rxq->matcher_arg;
}

struct sc_rxq *sc_ep_rxq(struct sc_ep *ep)
{
	return ep->rxq;
}

/* Without memory the chains get longer. */
static void grow(struct sc_rxq *rxq)
{
	uint32_t mask = rxq->source_mask * 2 + 1;
	struct sc_source **sources = calloc((size_t)mask + 1, sizeof(struct sc_source *));

	if (!sources)
		return;
	for (uint32_t i = 0; i <= rxq->source_mask; i++)
		for (struct sc_source *source = rxq->sources[i], *next; source; source = next) {
			struct sc_source **chain =
				&sources[sc_addr_hash(source->stem, SC_ADDR_STEM) & mask];

			next = source->next;
			source->next = *chain;
			*chain = source;
		}
	free(rxq->sources);
	rxq->sources = sources;
	rxq->source_mask = mask;
}

static struct sc_source **chain_of(const struct sc_rxq *rxq, const char *addr)
{
	return &rxq->sources[sc_addr_hash(addr, SC_ADDR_STEM) & rxq->source_mask];
}

struct sc_source *sc_rxq_source_find(const struct sc_rxq *rxq, const char *addr)
{
	struct sc_source *source = *chain_of(rxq, addr);

	while (source && memcmp(source->stem, addr, SC_ADDR_STEM))
		source = source->next;
	return source;
}

void sc_rxq_source_free(struct sc_rxq *rxq, struct sc_source *source)
{
	struct sc_source **link = chain_of(rxq, source->stem);

	while (*link != source)
		link = &(*link)->next;
	*link = source->next;
	rxq->source_count--;
	free(source);
}

static size_t mark_named_by(const struct sc_match *queue)
{
	size_t count = 0;

	for (const struct sc_list *at = queue->posted.next; at != &queue->posted; at = at->next, count++) {
		const struct sc_rx_op *op = sc_list_entry(at, struct sc_rx_op, match.all);

		if (op->match.source)
			((struct sc_source *)op->match.source)->named = true;
	}
	return count;
}

size_t sc_rxq_mark_named(struct sc_rxq *rxq)
{
	return mark_named_by(&rxq->tagged) + mark_named_by(&rxq->plain);
}

struct sc_source *sc_rxq_source(struct sc_rxq *rxq, const char *addr)
{
	struct sc_source **chain = chain_of(rxq, addr);
	struct sc_source *source = sc_rxq_source_find(rxq, addr);

	if (source)
		return source;
	source = calloc(1, sizeof(*source));
	if (!source)
		return NULL;
	sc_list_init(&source->peers);
	source->error = SC_SOURCE_UNMET;
	memcpy(source->stem, addr, SC_ADDR_STEM);
	source->next = *chain;
	*chain = source;
	if (++rxq->source_count > rxq->source_mask)
		grow(rxq);
	return source;
}
