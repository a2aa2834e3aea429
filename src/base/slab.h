/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slab.h: operations of an endpoint, private memory, named by an index and a generation.
 *
 * A peer is given the id of an operation and echoes it; sc_slab_find() tells an id that was made up or is
 * of an operation that has ended. One that no peer is told of, as most are, has none. Objects never move. Each begins
 * with struct sc_slab_object.
 */
#ifndef SC_SLAB_H
#define SC_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sc_slab_object {
	uint32_t index;
	uint32_t generation; /* odd: in use, and has an id */
	struct sc_slab_object *next_free;
};

struct sc_slab {
	struct sc_slab_object *free;
	void **chunks;
	size_t object_size; /* bytes */
	uint32_t chunk_count;
};

void sc_slab_init(struct sc_slab *slab, size_t object_size);
void sc_slab_fini(struct sc_slab *slab);

void *sc_slab_get_slow(struct sc_slab *slab);

/* NULL: no memory. The object's bytes are those of its last use. */
static inline void *sc_slab_get(struct sc_slab *slab)
{
	struct sc_slab_object *object = slab->free;

	if (!object)
		return sc_slab_get_slow(slab);
	slab->free = object->next_free;
	return object;
}

static inline void sc_slab_put(struct sc_slab *slab, void *object_)
{
	struct sc_slab_object *object = object_;

	if (__builtin_expect(object->generation & 1, 0))
		object->generation++;
	object->next_free = slab->free;
	slab->free = object;
}

/* The id of an object in use, from now on until it is put back. */
static inline uint64_t sc_slab_id(void *object_)
{
	struct sc_slab_object *object = object_;

	object->generation |= 1;
	return (uint64_t)object->generation << 32 | object->index;
}

/* Is it, or has it been put back since it was given that id? */
static inline bool sc_slab_has_id(const void *object_, uint64_t id)
{
	const struct sc_slab_object *object = object_;

	return object->generation == id >> 32;
}

/* Objects in use; looks at all that are not. */
uint32_t sc_slab_used(const struct sc_slab *slab);

/* The object of that id, NULL if there is none. */
void *sc_slab_find(const struct sc_slab *slab, uint64_t id);

#endif
