/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_HOST_H
#define SC_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <shmcma/core.h>

/* Where all files of the core live: POSIX shared memory of this machine or container. */
#define SC_HOST_DIR "/dev/shm"

/* Bits of struct sc_host.id: as many as an address has room for. Two machines that share them fail later, and as clearly. */
#define SC_HOST_ID_BITS 44

/* The identity of this machine and of this process. */
struct sc_host {
	uint64_t id; /* for addresses: this boot and this /dev/shm, SC_HOST_ID_BITS */
	uint64_t boot_id[2];
	uint64_t pid_ns;     /* inode of /proc/self/ns/pid */
	uint64_t user_ns;    /* of /proc/self/ns/user; 0: not known */
	uint64_t start_time; /* as sc_abi_owner.start_time */
	uint64_t pidfs_ino;  /* 0: kernel without pidfs */
	uint64_t cookie;     /* random, at this address for the whole life of the process */
	pid_t pid;
};

/* sc_host.pid_ns of those outside all containers: the kernel's PROC_PID_INIT_INO. */
#define SC_HOST_FIRST_PID_NS 0xEFFFFFFCu
/* Likewise of user_ns: PROC_USER_INIT_INO. */
#define SC_HOST_FIRST_USER_NS 0xEFFFFFFDu

/*
 * The identity, computed at the first call in each process (a forked child gets its own, with another
 * cookie). Valid for the life of the process. Any thread.
 */
int sc_host_get(const struct sc_host **host);

/*
 * The cookie: the word that tells this process from the one that it was forked from, also where a pid namespace has
 * given both the same pid. 0: sc_host_get() has not been called in it.
 */
uint64_t sc_host_self(void);

/* Fill with random bytes. */
int sc_host_random(void *bytes, size_t size);

/*
 * Does the process with that pid (in this pid namespace) still run, and is it the one of that start time
 * and pidfs inode (0: not known)? True when it cannot be told.
 */
bool sc_host_runs(pid_t pid, uint64_t start_time, uint64_t pidfs_ino);

/*
 * Has the process that had that pid (in this pid namespace) ended, for certain? False when it cannot be told,
 * and as long as another has the pid that its pidfs inode (0: not known) does not tell from it. It touches no
 * memory any more then.
 */
bool sc_host_has_ended(pid_t pid, uint64_t pidfs_ino);

/* A pidfd, or -1 with errno. Its inode, which no other process of this boot has; 0: kernel without pidfs. */
int sc_host_open_pidfd(pid_t pid);
uint64_t sc_host_pidfd_inode(int pidfd);
/* Is that descriptor, which was opened for that pid and had that inode, still what it was? */
bool sc_host_is_pidfd(int fd, pid_t pid, uint64_t inode);

/* Is the process with that pid stopped, by a signal or a debugger? False when it cannot be told. */
bool sc_host_is_stopped(pid_t pid);

#endif
