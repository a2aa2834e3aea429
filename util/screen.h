/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * screen.h: pictures on a terminal, by the escape sequences that all terminals know, and keys. Standard output that is
 * no terminal gets the lines alone.
 */
#ifndef UTIL_SCREEN_H
#define UTIL_SCREEN_H

#include <stdbool.h>

/* Takes the terminal, if standard output is one. From here on signals that would end or stop the process are answered
 * in screen_wait(), so that the terminal always gets its former state back. */
void screen_init(void);
bool screen_is_used(void);

/* Gives the terminal back. Returns the signal that has ended screen_wait(); 0: none. */
int screen_fini(void);

/* One picture: a line is cut to the width of the terminal, and lines below its last one are left out. */
void screen_begin(void);
void screen_line(const char *text);
void screen_end(void);

enum { SCREEN_NOTHING = 0, SCREEN_QUIT = -1, SCREEN_REDRAW = -2 };
/* Waits for a key, at most that many seconds. Returns the key or one of the above. */
int screen_wait(double seconds);

#endif
