/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * slab.h: the operations of an endpoint, private memory, named by an index and a generation.
 *
 * A peer gets the id of an operation and echoes it; sc_slab_find() refuses an invented id and the id of an ended
 * operation. An operation whose id no peer gets, the usual case, has none. Objects never move. Each begins with
 * struct sc_slab_object.
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

/* Returns an object with the bytes of its last use; NULL: no memory. */
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

/* Returns the id of an object in use, valid until the object is put back. */
static inline uint64_t sc_slab_id(void *object_)
{
	struct sc_slab_object *object = object_;

	object->generation |= 1;
	return (uint64_t)object->generation << 32 | object->index;
}

/* Tells whether the object still has that id: it has not been put back since. */
static inline bool sc_slab_has_id(const void *object_, uint64_t id)
{
	const struct sc_slab_object *object = object_;

	return object->generation == id >> 32;
}

/* Returns the number of objects in use; walks all others. */
uint32_t sc_slab_used(const struct sc_slab *slab);

/* Returns the object of that id; NULL: there is none. */
void *sc_slab_find(const struct sc_slab *slab, uint64_t id);

#endif
