/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * json.h: writes one JSON document to standard output. Each function takes the key of the value; NULL in an array and
 * for the document itself. The text of strings may be any bytes: those outside of printable ASCII are escaped, as the
 * characters of these numbers, because a name that another process wrote need not be UTF-8.
 */
#ifndef UTIL_JSON_H
#define UTIL_JSON_H

#include <stdbool.h>
#include <stdint.h>

void json_open_object(const char *key);
void json_close_object(void);
void json_open_array(const char *key);
void json_close_array(void);

/* value NULL: null */
void json_string(const char *key, const char *value);
void json_number(const char *key, int64_t value);
void json_count(const char *key, uint64_t value);
void json_real(const char *key, double value);

#endif
