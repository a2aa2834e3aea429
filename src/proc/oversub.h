/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_OVERSUB_H
#define SC_OVERSUB_H

/* sc_oversub_is_here() looks anew soon: this process has met another one. Any thread. */
void sc_oversub_look_soon(void);

#endif
