/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_addr: texts of addresses and names of files, as a peer, an application or a directory has them.
 *
 * Each is in memory of exactly its size: SC_ADDR_SIZE bytes for an address, which need not end in a zero byte; the
 * bytes of the input for a name. If the library takes a text for an address, the text is the same letter by letter
 * when the library formats it again, and it names no file outside the directory.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "os/addr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                  \
	do {                                                                                              \
		if (!(condition))                                                                         \
			abort();                                                                          \
	} while (0)

static void check_name(const char *name)
{
	CHECK(memchr(name, '\0', SC_ADDR_NAME_MAX));
	CHECK(name[0] && !strchr(name, '/') && name[0] != '.');
}

static void parse_address(const uint8_t *data, size_t size)
{
	char *text = calloc(1, SC_ADDR_SIZE), again[SC_ADDR_SIZE], name[SC_ADDR_NAME_MAX];
	struct sc_addr addr, of_file;

	CHECK(text);
	memcpy(text, data, size < SC_ADDR_SIZE ? size : SC_ADDR_SIZE);
	switch (sc_addr_kind(text)) {
	case SC_ADDR_ENDPOINT:
		CHECK(!sc_addr_parse(text, &addr));
		sc_addr_format(&addr, again);
		CHECK(!memcmp(text, again, SC_ADDR_SIZE));
		sc_addr_file(&addr, name);
		check_name(name);
		CHECK(!sc_addr_parse_file(name, &of_file));
		CHECK(of_file.uid == addr.uid && of_file.pid == addr.pid && of_file.ep == addr.ep);
		CHECK(sc_addr_is_file_of(name, addr.uid) && sc_addr_is_file_of(name, ~addr.uid) == (addr.uid == SC_ADDR_ANY_UID));
		CHECK(!memcmp(of_file.nonce, addr.nonce, sizeof(addr.nonce)));
		break;
	case SC_ADDR_SERVICE:
		CHECK(sc_addr_parse(text, &addr));
		CHECK(!sc_addr_service(text + sizeof(SC_ADDR_PREFIX) - 1, again));
		CHECK(!strcmp(text, again));
		sc_addr_service_file(text + sizeof(SC_ADDR_PREFIX) - 1, name);
		check_name(name);
		CHECK(sc_addr_is_service_file(name) && sc_addr_parse_file(name, &addr));
		break;
	default:
		CHECK(sc_addr_parse(text, &addr));
	}
	free(text);
}

static void parse_name(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), addr[SC_ADDR_SIZE], name[SC_ADDR_NAME_MAX];
	struct sc_addr parts;

	CHECK(text);
	memcpy(text, data, size);
	text[size] = '\0';
	if (!sc_addr_parse_file(text, &parts)) {
		sc_addr_file(&parts, name);
		CHECK(!strcmp(text, name));
	}
	if (!sc_addr_parse_announcement(text, &parts))
		CHECK(sc_addr_is_service_file(text));
	if (sc_addr_is_service_file(text))
		check_name(text);
	if (!sc_addr_service(text, addr))
		CHECK(sc_addr_kind(addr) == SC_ADDR_SERVICE);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	parse_address(data, size);
	parse_name(data, size);
	return 0;
}
