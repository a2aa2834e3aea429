/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_addr: texts of addresses and file names. Every text lies in memory of exactly its size, so that a
 * sanitizer sees a read past its end.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/addr.h"

#define SAMPLE "fi_shmcma://0123456789a-000003e8-0000beef-0011223344556677-00ff"
#define SAMPLE_FILE "shmcma-000003e8-0000beef-0011223344556677-00ff"

static const struct sc_addr sample = {
	.host = 0x0123456789a,
	.uid = 1000,
	.pid = 0xbeef,
	.nonce = { 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77 },
	.ep = 0xff,
};

static void assert_same(const struct sc_addr *a, const struct sc_addr *b)
{
	assert_true(a->host == b->host);
	assert_int_equal(a->uid, b->uid);
	assert_int_equal(a->pid, b->pid);
	assert_memory_equal(a->nonce, b->nonce, sizeof(a->nonce));
	assert_int_equal(a->ep, b->ep);
}

static enum sc_addr_kind kind_of(const char *text, size_t size)
{
	struct sc_addr addr;
	char *copy = malloc(size);
	enum sc_addr_kind kind;

	memcpy(copy, text, size);
	kind = sc_addr_kind(copy);
	assert_int_equal(sc_addr_parse(copy, &addr), kind == SC_ADDR_ENDPOINT ? 0 : -EINVAL);
	free(copy);
	return kind;
}

static enum sc_addr_kind kind(const char *text)
{
	return kind_of(text, strlen(text) + 1);
}

static void test_round_trip(void **state)
{
	struct sc_addr all = { .host = (1ULL << SC_HOST_ID_BITS) - 1, .uid = UINT32_MAX, .pid = UINT32_MAX, .ep = UINT16_MAX }, none = { 0 };
	char text[SC_ADDR_SIZE];
	struct sc_addr back;

	(void)state;
	sc_addr_format(&sample, text);
	assert_string_equal(text, SAMPLE);
	assert_int_equal(strlen(text), SC_ADDR_SIZE - 1);
	assert_int_equal(sc_addr_parse(text, &back), 0);
	assert_same(&back, &sample);

	memset(all.nonce, 0xff, sizeof(all.nonce));
	sc_addr_format(&all, text);
	assert_int_equal(strlen(text), SC_ADDR_SIZE - 1);
	assert_int_equal(sc_addr_parse(text, &back), 0);
	assert_same(&back, &all);

	sc_addr_format(&none, text);
	assert_int_equal(sc_addr_parse(text, &back), 0);
	assert_same(&back, &none);
}

/* One wrong character anywhere: never an endpoint. */
static void test_every_position(void **state)
{
	static const char wrong[] = { 'g', 'A', 'F', '/', ' ', '`', ':', '-', '\x80', '\n', 0 };

	(void)state;
	for (size_t at = 0; at < SC_ADDR_SIZE - 1; at++) {
		for (size_t i = 0; i < sizeof(wrong); i++) {
			char text[] = SAMPLE;

			if (text[at] == wrong[i])
				continue;
			text[at] = wrong[i];
			assert_int_not_equal(kind_of(text, wrong[i] ? sizeof(text) : at + 1),
					     SC_ADDR_ENDPOINT);
		}
	}
}

static void test_lengths(void **state)
{
	char endless[SC_ADDR_SIZE];

	(void)state;
	assert_int_equal(kind(SAMPLE), SC_ADDR_ENDPOINT);
	for (size_t len = 0; len < SC_ADDR_SIZE - 1; len++) {
		char text[] = SAMPLE;

		text[len] = '\0';
		assert_int_not_equal(kind_of(text, len + 1), SC_ADDR_ENDPOINT);
	}
	assert_int_equal(kind(SAMPLE "0"), SC_ADDR_INVALID);
	/* no NUL in the first 64 bytes, none behind them */
	memcpy(endless, SAMPLE "0", sizeof(endless));
	assert_int_equal(kind_of(endless, sizeof(endless)), SC_ADDR_INVALID);
	memset(endless, 'a', sizeof(endless));
	assert_int_equal(kind_of(endless, sizeof(endless)), SC_ADDR_INVALID);
	memcpy(endless, SC_ADDR_PREFIX, strlen(SC_ADDR_PREFIX));
	assert_int_equal(kind_of(endless, sizeof(endless)), SC_ADDR_INVALID);
}

static void test_kinds(void **state)
{
	(void)state;
	assert_int_equal(kind(""), SC_ADDR_INVALID);
	assert_int_equal(kind("fi_shmcma:/"), SC_ADDR_INVALID);
	assert_int_equal(kind("fi_shmcma://"), SC_ADDR_INVALID);
	assert_int_equal(kind("fi_shm://a"), SC_ADDR_INVALID);
	assert_int_equal(kind("FI_SHMCMA://a"), SC_ADDR_INVALID);
	assert_int_equal(kind("fi_shmcma://a"), SC_ADDR_SERVICE);
	assert_int_equal(kind("fi_shmcma://127.0.0.1:9228"), SC_ADDR_SERVICE);
	assert_int_equal(kind("fi_shmcma://.."), SC_ADDR_SERVICE);
	assert_int_equal(kind("fi_shmcma://a/b"), SC_ADDR_INVALID);
	assert_int_equal(kind("fi_shmcma://a b"), SC_ADDR_INVALID);
}

static void test_services(void **state)
{
	char name[54], text[SC_ADDR_SIZE], before[SC_ADDR_SIZE];

	(void)state;
	assert_int_equal(sc_addr_service("9228", text), 0);
	assert_string_equal(text, "fi_shmcma://9228");
	assert_int_equal(sc_addr_service("AZaz09._:@+-", text), 0);
	assert_int_equal(kind(text), SC_ADDR_SERVICE);

	memcpy(before, text, sizeof(text));
	assert_int_equal(sc_addr_service("", text), -EINVAL);
	for (int c = 1; c < 256; c++) {
		char one[2] = { (char)c, '\0' };
		int allowed = c < 128 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
						"0123456789._:@+-",
						c);
		char out[SC_ADDR_SIZE];

		assert_int_equal(sc_addr_service(one, out), allowed ? 0 : -EINVAL);
	}
	memset(name, 'n', sizeof(name));
	name[52] = '\0';
	assert_int_equal(sc_addr_service(name, text), -EINVAL);
	/* a service cannot have a name that reads as the address of an endpoint */
	assert_int_equal(sc_addr_service(&SAMPLE[strlen(SC_ADDR_PREFIX)], text), -EINVAL);
	assert_string_equal(text, before);
	name[51] = '\0';
	assert_int_equal(sc_addr_service(name, text), 0);
	assert_int_equal(strlen(text), SC_ADDR_SIZE - 1);
	assert_int_equal(kind(text), SC_ADDR_SERVICE);
}

static void test_files(void **state)
{
	static const char *const bad[] = {
		"",
		"shmcma-",
		"shmcma-notes",
		"shmcma-000003e8-0000beef-0011223344556677-00f",
		"shmcma-000003e8-0000beef-0011223344556677-00ff0",
		"shmcma-000003e8-0000beef-0011223344556677-00ff ",
		"shmcma-000003E8-0000beef-0011223344556677-00ff",
		"shmcma-000003e8-0000BEEF-0011223344556677-00ff",
		"shmcma_000003e8-0000beef-0011223344556677-00ff",
		"xshmcma-000003e8-0000beef-0011223344556677-00ff",
		"../shmcma-000003e8-0000beef-0011223344556677-00ff",
		"shmcma-000003e8-0000beef-001122334455667-700ff",
		"shmcma-1000-0000beef-0011223344556677-00ff",
	};
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr back, expected = sample;

	(void)state;
	sc_addr_file(&sample, name);
	assert_string_equal(name, SAMPLE_FILE);
	expected.host = 0;
	assert_int_equal(sc_addr_parse_file(name, &back), 0);
	assert_same(&back, &expected);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(sc_addr_parse_file(bad[i], &back), -EINVAL);
}

/* The name of a service's file is an announcement if it holds all of an address, and this user's number. */
static void test_announcement(void **state)
{
	static const char *const bad[] = { "", "a", "0123456789a", "0123456789a-000003e8-0000beef",
					   "0123456789a-000003e8-0000beef-0011223344556677-00ff0" };
	char name[SC_ADDR_NAME_MAX];
	struct sc_addr back;

	(void)state;
	sc_addr_service_file(&SAMPLE[strlen("fi_shmcma://")], name);
	assert_int_equal(sc_addr_parse_announcement(name, &back), 0);
	assert_same(&back, &sample);
	name[strlen("shmcma.service-")] ^= 1; /* another user's */
	assert_int_equal(sc_addr_parse_announcement(name, &back), -EINVAL);
	assert_int_equal(sc_addr_parse_announcement(SAMPLE_FILE, &back), -EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sc_addr_service_file(bad[i], name);
		assert_int_equal(sc_addr_parse_announcement(name, &back), -EINVAL);
	}
}

/* The text of a file's name alone tells which user the file belongs to: 1000 is 0x3e8. */
static void test_users(void **state)
{
	static const struct {
		const char *name;
		bool is_users, is_foreign; /* a foreign service's or directory's */
	} names[] = {
		{ SAMPLE_FILE, true, false },
		{ "shmcma-000003e9-0000beef-0011223344556677-00ff", false, false },
		{ "shmcma-ffffffff-0000beef-0011223344556677-00ff", true, false },
		{ "shmcma-000003e8-notes", false, false },
		{ "shmcma.service-1000-a", true, false },
		{ "shmcma.service-1001-a", false, true },
		{ "shmcma.service-10001-a", false, true },
		{ "shmcma.av-1000-a", true, false },
		{ "shmcma.av-100-a", false, true },
		{ "shmcma.service-1001-", false, false },
		{ "shmcma.service-01001-a", false, false },
		{ "shmcma.calibration-1000", false, false },
		{ "shmcma-0000beef-0011223344556677889-00ff", false, false },
		{ "shmcma-0000beef-00112233445566778899_00ff", false, false },
		{ "shmcma-0000beef-00112233445566778899-00f", false, false },
		{ "shmcma-0000bee-", false, false },
		{ "shmcma-0000beef", false, false },
		{ "", false, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_int_equal(sc_addr_is_file_of(names[i].name, 1000), names[i].is_users);
		assert_int_equal(sc_addr_is_foreign_service_file(names[i].name, 1000),
				 names[i].is_foreign);
	}
}

static void test_service_files(void **state)
{
	char name[SC_ADDR_NAME_MAX], expected[SC_ADDR_NAME_MAX], longest[52];
	struct sc_addr addr;

	(void)state;
	sc_addr_service_file("127.0.0.1:9228", name);
	snprintf(expected, sizeof(expected), "shmcma.service-%u-127.0.0.1:9228", (unsigned int)geteuid());
	assert_string_equal(name, expected);
	assert_true(sc_addr_is_service_file(name));
	assert_int_equal(sc_addr_parse_file(name, &addr), -EINVAL);

	memset(longest, 'n', 51);
	longest[51] = '\0';
	sc_addr_service_file(longest, name);
	assert_true(sc_addr_is_service_file(name));

	snprintf(name, sizeof(name), "shmcma.service-%u-a", (unsigned int)geteuid() + 1);
	assert_false(sc_addr_is_service_file(name));
	snprintf(name, sizeof(name), "shmcma.service-%u-", (unsigned int)geteuid());
	assert_false(sc_addr_is_service_file(name));
	snprintf(name, sizeof(name), "shmcma.service-%u-a/b", (unsigned int)geteuid());
	assert_false(sc_addr_is_service_file(name));
	assert_false(sc_addr_is_service_file("shmcma.service-"));
	assert_false(sc_addr_is_service_file(SAMPLE_FILE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_every_position),
		cmocka_unit_test(test_lengths),	     cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_services),     cmocka_unit_test(test_files),
		cmocka_unit_test(test_users),	     cmocka_unit_test(test_service_files),
		cmocka_unit_test(test_announcement),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
