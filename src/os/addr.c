/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * addr.c: the text of addresses and the file names that belong to them. Pure functions, any thread.
 *
 * An endpoint has one address and one file name, letter for letter: digits are lower-case and their number is fixed, so
 * two texts are equal exactly if they mean the same endpoint. A file name contains only characters that are checked
 * here, and no '/', so no address leads out of the directory.
 */
#include "os/addr.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX_LEN (sizeof(SC_ADDR_PREFIX) - 1)
#define FILE_PREFIX "shmcma-"
#define SERVICE_PREFIX "shmcma.service-"
#define DIRECTORY_PREFIX "shmcma.av-"
#define CALIBRATION_PREFIX "shmcma.calibration-"

#define HOST_DIGITS (SC_HOST_ID_BITS / 4)
#define UID_DIGITS 8
#define PID_DIGITS 8
#define NONCE_DIGITS (2 * SC_ADDR_NONCE)
#define EP_DIGITS 4
/* <uid>-<pid>-<nonce>-<endpoint>, common to addresses and file names */
#define TAIL_LEN (UID_DIGITS + 1 + PID_DIGITS + 1 + NONCE_DIGITS + 1 + EP_DIGITS)
#define SERVICE_MAX (SC_ADDR_SIZE - 1 - PREFIX_LEN)

_Static_assert(PREFIX_LEN + HOST_DIGITS + 1 + TAIL_LEN == SC_ADDR_SIZE - 1, "63 characters");
_Static_assert(PREFIX_LEN + HOST_DIGITS + 1 + TAIL_LEN - EP_DIGITS - 1 == SC_ADDR_STEM,
	       "all but the number");
_Static_assert(sizeof(SERVICE_PREFIX) + 10 + 1 + SERVICE_MAX <= SC_ADDR_NAME_MAX, "file name fits");

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* Takes exactly `digits` digits at *at and moves *at behind them. Stops at the first other character. */
static bool take_hex(const char **at, unsigned int digits, uint64_t *value)
{
	*value = 0;
	while (digits--) {
		int digit = digit_value(**at);

		if (digit < 0)
			return false;
		*value = *value << 4 | (unsigned int)digit;
		++*at;
	}
	return true;
}

static bool take_dash(const char **at)
{
	return *(*at)++ == '-';
}

/* Takes the tail, which must end with the string. */
static bool take_tail(const char *at, struct sc_addr *addr)
{
	uint64_t uid, pid, ep;

	if (!take_hex(&at, UID_DIGITS, &uid) || !take_dash(&at) || !take_hex(&at, PID_DIGITS, &pid) ||
	    !take_dash(&at))
		return false;
	for (unsigned int i = 0; i < SC_ADDR_NONCE; i++) {
		uint64_t byte;

		if (!take_hex(&at, 2, &byte))
			return false;
		addr->nonce[i] = (uint8_t)byte;
	}
	if (!take_dash(&at) || !take_hex(&at, EP_DIGITS, &ep) || *at)
		return false;
	addr->uid = (uint32_t)uid;
	addr->pid = (uint32_t)pid;
	addr->ep = (uint16_t)ep;
	return true;
}

static char *put_hex(char *at, unsigned int digits, uint64_t value)
{
	for (unsigned int i = 0; i < digits; i++)
		at[i] = "0123456789abcdef"[value >> 4 * (digits - 1 - i) & 15];
	return at + digits;
}

/* Formats by hand: sprintf(3) takes a microsecond, and each connection needs several addresses. */
static void format_tail(const struct sc_addr *addr, char *tail)
{
	char *at = put_hex(tail, UID_DIGITS, addr->uid);

	*at++ = '-';
	at = put_hex(at, PID_DIGITS, addr->pid);
	*at++ = '-';
	for (unsigned int i = 0; i < SC_ADDR_NONCE; i++)
		at = put_hex(at, 2, addr->nonce[i]);
	*at++ = '-';
	*put_hex(at, EP_DIGITS, addr->ep) = '\0';
}

uint32_t sc_addr_uid(const struct sc_host *host)
{
	return host->user_ns && host->user_ns != SC_HOST_FIRST_USER_NS ? SC_ADDR_ANY_UID : geteuid();
}

/* Parses what follows the prefix. Each step stops at a NUL, so nothing behind the end of a short string is read. */
static int parse_rest(const char *text, struct sc_addr *addr)
{
	struct sc_addr parsed = { 0 };

	if (!take_hex(&text, HOST_DIGITS, &parsed.host) || !take_dash(&text) || !take_tail(text, &parsed))
		return -EINVAL;
	*addr = parsed;
	return 0;
}

int sc_addr_parse(const char *text, struct sc_addr *addr)
{
	return strncmp(text, SC_ADDR_PREFIX, PREFIX_LEN) ? -EINVAL : parse_rest(text + PREFIX_LEN, addr);
}

void sc_addr_format(const struct sc_addr *addr, char text[SC_ADDR_SIZE])
{
	char *at = put_hex(text + sprintf(text, SC_ADDR_PREFIX), HOST_DIGITS, addr->host);

	*at++ = '-';
	format_tail(addr, at);
}

int sc_addr_context(const char *addr, uint16_t index, char *out)
{
	struct sc_addr parts;

	if (sc_addr_parse(addr, &parts))
		return -EINVAL;
	parts.ep = (uint16_t)(parts.ep + index);
	sc_addr_format(&parts, out);
	return 0;
}

int sc_addr_first(const char *addr, char *out)
{
	struct sc_addr parts;

	if (sc_addr_parse(addr, &parts))
		return -EINVAL;
	parts.ep = 0;
	sc_addr_format(&parts, out);
	return 0;
}

void sc_addr_file(const struct sc_addr *addr, char name[SC_ADDR_NAME_MAX])
{
	format_tail(addr, name + sprintf(name, FILE_PREFIX));
}

int sc_addr_parse_file(const char *name, struct sc_addr *addr)
{
	struct sc_addr parsed = { 0 };

	if (strncmp(name, FILE_PREFIX, sizeof(FILE_PREFIX) - 1))
		return -EINVAL;
	if (!take_tail(name + sizeof(FILE_PREFIX) - 1, &parsed))
		return -EINVAL;
	*addr = parsed;
	return 0;
}

static bool is_service_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("._:@+-", c));
}

/* Accepts 1 to 51 allowed characters. Reads at most one character more. */
static bool is_service_name(const char *name)
{
	size_t len = 0;

	while (len <= SERVICE_MAX && is_service_char(name[len]))
		len++;
	return len && len <= SERVICE_MAX && !name[len];
}

/* Names of different users never collide: the uid is part of them. */
static int user_prefix(const char *kind, uint32_t uid, char prefix[SC_ADDR_NAME_MAX])
{
	return sprintf(prefix, "%s%u-", kind, (unsigned int)uid);
}

static void named_file(const char *kind, const char *of, char name[SC_ADDR_NAME_MAX])
{
	int at = user_prefix(kind, geteuid(), name);

	snprintf(name + at, SC_ADDR_NAME_MAX - (size_t)at, "%s", of);
}

static bool is_named_file(const char *kind, uint32_t uid, const char *name)
{
	char prefix[SC_ADDR_NAME_MAX];
	size_t len;

	if (strncmp(name, kind, strlen(kind)))
		return false;
	len = (size_t)user_prefix(kind, uid, prefix);
	return !strncmp(name, prefix, len) && is_service_name(name + len);
}

int sc_addr_parse_announcement(const char *name, struct sc_addr *addr)
{
	char prefix[SC_ADDR_NAME_MAX];
	size_t len = (size_t)user_prefix(SERVICE_PREFIX, geteuid(), prefix);

	return strncmp(name, prefix, len) ? -EINVAL : parse_rest(name + len, addr);
}

void sc_addr_service_file(const char *service, char name[SC_ADDR_NAME_MAX])
{
	named_file(SERVICE_PREFIX, service, name);
}

int sc_addr_directory_file(const char *directory, char name[SC_ADDR_NAME_MAX])
{
	if (!is_service_name(directory))
		return -EINVAL;
	named_file(DIRECTORY_PREFIX, directory, name);
	return 0;
}

void sc_addr_calibration_file(char name[SC_ADDR_NAME_MAX])
{
	snprintf(name, SC_ADDR_NAME_MAX, CALIBRATION_PREFIX "%u", (unsigned int)geteuid());
}

bool sc_addr_is_calibration_file(const char *name)
{
	return !strncmp(name, CALIBRATION_PREFIX, sizeof(CALIBRATION_PREFIX) - 1);
}

bool sc_addr_is_service_file(const char *name)
{
	return is_named_file(SERVICE_PREFIX, geteuid(), name) ||
	       is_named_file(DIRECTORY_PREFIX, geteuid(), name);
}

bool sc_addr_is_file_of(const char *name, uint32_t uid)
{
	struct sc_addr addr;

	if (!sc_addr_parse_file(name, &addr))
		return addr.uid == uid || addr.uid == SC_ADDR_ANY_UID;
	return is_named_file(SERVICE_PREFIX, uid, name) || is_named_file(DIRECTORY_PREFIX, uid, name);
}

static bool is_foreign(const char *kind, const char *name, uint32_t uid)
{
	uint32_t other;

	if (strncmp(name, kind, strlen(kind)))
		return false;
	other = (uint32_t)strtoul(name + strlen(kind), NULL, 10);
	return other != uid && is_named_file(kind, other, name);
}

bool sc_addr_is_foreign_service_file(const char *name, uint32_t uid)
{
	return is_foreign(SERVICE_PREFIX, name, uid) || is_foreign(DIRECTORY_PREFIX, name, uid);
}

enum sc_addr_kind sc_addr_kind(const char *addr)
{
	struct sc_addr parsed;

	if (!sc_addr_parse(addr, &parsed))
		return SC_ADDR_ENDPOINT;
	if (!strncmp(addr, SC_ADDR_PREFIX, PREFIX_LEN) && is_service_name(addr + PREFIX_LEN))
		return SC_ADDR_SERVICE;
	return SC_ADDR_INVALID;
}

int sc_addr_service(const char *service, char *addr)
{
	char text[SC_ADDR_SIZE];

	if (!is_service_name(service))
		return -EINVAL;
	sprintf(text, SC_ADDR_PREFIX "%s", service);
	if (sc_addr_kind(text) != SC_ADDR_SERVICE)
		return -EINVAL;
	memcpy(addr, text, sizeof(text));
	return 0;
}
