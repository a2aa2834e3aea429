/* SPDX-License-Identifier: BSD-2-Clause */
/* settings.h: the variables of the environment by which MPI and OpenSHMEM libraries take the provider. */
#ifndef UTIL_SETTINGS_H
#define UTIL_SETTINGS_H

struct setting {
	const char *name, *value;
};

/* They end with a name of NULL. The last two have the one-sided operations of Open MPI 4, and of those after it. */
extern const struct setting settings_of_all[], settings_of_openmpi_4[], settings_of_openmpi_5[];

/*
 * Asks the launcher. Returns the major version of Open MPI; 0: it is not of Open MPI, or there is none; -1: it has neither
 * told a version nor ended its output for SETTINGS_PATIENCE seconds.
 */
#define SETTINGS_PATIENCE 60
int settings_openmpi_version(const char *launcher);

/* Show the findings: whether variables keep Open MPI, and MPICH, from the provider. A variable that is not set does not. */
void settings_check_openmpi(void);
void settings_check_mpich(void);

#endif
