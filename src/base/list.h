/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list.h: a doubly linked list in private memory. The head is an entry of the same type.
 */
#ifndef SC_LIST_H
#define SC_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sc_list {
	struct sc_list *next, *prev;
};

#define sc_list_entry(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define sc_list_for(pos, head) for (struct sc_list *pos = (head)->next; pos != (head); pos = pos->next)

/* The entry may be removed in the body. */
#define sc_list_for_safe(pos, tmp, head)                                                                  \
	for (struct sc_list *pos = (head)->next, *tmp = pos->next; pos != (head);                         \
	     pos = tmp, tmp = pos->next)

static inline void sc_list_init(struct sc_list *head)
{
	head->next = head->prev = head;
}

static inline bool sc_list_empty(const struct sc_list *head)
{
	return head->next == head;
}

static inline void sc_list_append(struct sc_list *head, struct sc_list *entry)
{
	entry->prev = head->prev;
	entry->next = head;
	head->prev->next = entry;
	head->prev = entry;
}

static inline void sc_list_prepend(struct sc_list *head, struct sc_list *entry)
{
	sc_list_append(head->next, entry);
}

/* Afterwards the entry is in no list, but its pointers are unchanged. */
static inline void sc_list_unlink(struct sc_list *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

static inline void sc_list_remove(struct sc_list *entry)
{
	sc_list_unlink(entry);
	entry->next = entry->prev = entry;
}

#endif
