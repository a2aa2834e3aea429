/* SPDX-License-Identifier: BSD-2-Clause */
/* test_list: order, removal anywhere, removal while walking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/list.h"

struct item {
	int value;
	struct sc_list link;
};

static void fill(struct sc_list *head, struct item *items, int count)
{
	sc_list_init(head);
	for (int i = 0; i < count; i++) {
		items[i].value = i;
		sc_list_append(head, &items[i].link);
	}
}

/* The values in the order of the list, as decimal digits; both ways round. */
static void check(const struct sc_list *head, long digits)
{
	long forward = 0, backward = 0, unit = 1;

	sc_list_for (pos, (struct sc_list *)head)
		forward = forward * 10 + sc_list_entry(pos, struct item, link)->value;
	for (const struct sc_list *pos = head->prev; pos != head; pos = pos->prev, unit *= 10)
		backward += unit * sc_list_entry(pos, struct item, link)->value;
	assert_int_equal(forward, digits);
	assert_int_equal(backward, digits);
	assert_int_equal(sc_list_empty(head), head->next == head);
}

static void test_empty(void **state)
{
	struct sc_list head;
	int visits = 0;

	(void)state;
	sc_list_init(&head);
	assert_true(sc_list_empty(&head));
	sc_list_for (pos, &head)
		visits++;
	sc_list_for_safe (pos, tmp, &head)
		visits++;
	assert_int_equal(visits, 0);
}

static void test_append(void **state)
{
	struct sc_list head;
	struct item items[5];

	(void)state;
	fill(&head, items, 5);
	assert_false(sc_list_empty(&head));
	check(&head, 1234);
	assert_ptr_equal(sc_list_entry(head.next, struct item, link), &items[0]);
	assert_ptr_equal(sc_list_entry(head.prev, struct item, link), &items[4]);
}

static void test_remove(void **state)
{
	struct sc_list head;
	struct item items[6];

	(void)state;
	fill(&head, items, 6);
	sc_list_remove(&items[3].link);
	check(&head, 1245);
	sc_list_remove(&items[5].link);
	check(&head, 124);
	sc_list_remove(&items[0].link);
	sc_list_remove(&items[1].link);
	check(&head, 24);
	sc_list_append(&head, &items[3].link);
	check(&head, 243);
	sc_list_remove(&items[2].link);
	sc_list_remove(&items[4].link);
	sc_list_remove(&items[3].link);
	assert_true(sc_list_empty(&head));
}

/* A removed entry is a list of its own: removing it again harms nothing. */
static void test_remove_twice(void **state)
{
	struct sc_list head;
	struct item items[3];

	(void)state;
	fill(&head, items, 3);
	sc_list_remove(&items[1].link);
	assert_true(sc_list_empty(&items[1].link));
	sc_list_remove(&items[1].link);
	check(&head, 2);
	assert_false(sc_list_empty(&head));
}

static void test_remove_while_walking(void **state)
{
	struct sc_list head;
	struct item items[8];
	int visits = 0;

	(void)state;
	fill(&head, items, 8);
	sc_list_for_safe (pos, tmp, &head) {
		struct item *item = sc_list_entry(pos, struct item, link);

		assert_int_equal(item->value, visits++);
		if (item->value % 2)
			sc_list_remove(pos);
	}
	assert_int_equal(visits, 8);
	check(&head, 246);
	sc_list_for_safe (pos, tmp, &head)
		sc_list_remove(pos);
	assert_true(sc_list_empty(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_append),
		cmocka_unit_test(test_remove),
		cmocka_unit_test(test_remove_twice),
		cmocka_unit_test(test_remove_while_walking),
	};

	return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
