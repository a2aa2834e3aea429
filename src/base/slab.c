/* SPDX-License-Identifier: BSD-2-Clause */
/* slab.c: a slab grows by chunks and never shrinks. See slab.h. */
#include "base/slab.h"

#include <stdlib.h>

#define CHUNK_OBJECTS 64

void sc_slab_init(struct sc_slab *slab, size_t object_size)
{
	*slab = (struct sc_slab){ .object_size = (object_size + 15) & ~(size_t)15 };
}

void sc_slab_fini(struct sc_slab *slab)
{
	for (uint32_t i = 0; i < slab->chunk_count; i++)
		free(slab->chunks[i]);
	free(slab->chunks);
	*slab = (struct sc_slab){ 0 };
}

static struct sc_slab_object *object_at(const struct sc_slab *slab, uint32_t index)
{
	char *chunk = slab->chunks[index / CHUNK_OBJECTS];

	return (struct sc_slab_object *)(chunk + index % CHUNK_OBJECTS * slab->object_size);
}

void *sc_slab_get_slow(struct sc_slab *slab)
{
	uint32_t first = slab->chunk_count * CHUNK_OBJECTS;
	void **chunks;
	void *chunk;

	if (first > UINT32_MAX - CHUNK_OBJECTS)
		return NULL;
	chunks = realloc(slab->chunks, (slab->chunk_count + 1) * sizeof(*chunks));
	if (!chunks)
		return NULL;
	slab->chunks = chunks;
	chunk = calloc(CHUNK_OBJECTS, slab->object_size);
	if (!chunk)
		return NULL;
	slab->chunks[slab->chunk_count++] = chunk;
	for (uint32_t i = CHUNK_OBJECTS; i-- > 0;) {
		struct sc_slab_object *object = object_at(slab, first + i);

		object->index = first + i;
		object->next_free = slab->free;
		slab->free = object;
	}
	return sc_slab_get(slab);
}

uint32_t sc_slab_used(const struct sc_slab *slab)
{
	uint32_t used = slab->chunk_count * CHUNK_OBJECTS;

	for (const struct sc_slab_object *object = slab->free; object; object = object->next_free)
		used--;
	return used;
}

void *sc_slab_find(const struct sc_slab *slab, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct sc_slab_object *object;

	if (index / CHUNK_OBJECTS >= slab->chunk_count)
		return NULL;
	object = object_at(slab, index);
	return object->generation == id >> 32 && object->generation & 1 ? object : NULL;
}
