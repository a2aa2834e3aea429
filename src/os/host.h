/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SC_HOST_H
#define SC_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <shmcma/core.h>

/* The directory of all files of the core: POSIX shared memory of this machine or container. */
#define SC_HOST_DIR "/dev/shm"

/*
 * Bits of struct sc_host.id; an address has no room for more. If two machines have one id, a later check fails as
 * clearly.
 */
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

/* sc_host.pid_ns of a process outside all containers: the kernel's PROC_PID_INIT_INO. */
#define SC_HOST_FIRST_PID_NS 0xEFFFFFFCu
/* The same for user_ns: PROC_USER_INIT_INO. */
#define SC_HOST_FIRST_USER_NS 0xEFFFFFFDu

/*
 * Returns the identity. The first call in each process computes it (a forked child gets its own, with another cookie).
 * Valid for the life of the process. Any thread.
 */
int sc_host_get(const struct sc_host **host);

/*
 * Returns the cookie. It tells this process from its parent, even if a pid namespace gave both the same pid. 0: this
 * process has not called sc_host_get().
 */
uint64_t sc_host_self(void);

/* Fills `bytes` with random bytes. */
int sc_host_random(void *bytes, size_t size);

/*
 * Tells whether the process with that pid (in this pid namespace) still runs and has that start time and pidfs inode
 * (0: not known). True if the kernel does not tell.
 */
bool sc_host_runs(pid_t pid, uint64_t start_time, uint64_t pidfs_ino);

/*
 * Tells whether the process that had that pid (in this pid namespace) has certainly ended; it then accesses no memory
 * any more. False if the kernel does not tell, or if another process has the pid now and its pidfs inode (0: not known)
 * does not show that.
 */
bool sc_host_has_ended(pid_t pid, uint64_t pidfs_ino);

/*
 * Visits the threads of a process (in this pid namespace) until `visit` returns another value than 0, which it returns. 0:
 * all were visited; -ENOENT: there is no such process; negative errno: the kernel does not name all of them.
 */
int sc_host_threads(pid_t pid, int (*visit)(pid_t tid, void *arg), void *arg);

/*
 * Tells whether a thread of that process (in this pid namespace) runs or is ready to run. True if the kernel does not tell,
 * and for processes with many threads. Takes some microseconds for each of up to 16 threads.
 */
bool sc_host_is_running(pid_t pid);

/*
 * sc_host_open_pidfd() returns a pidfd, or -1 with errno. sc_host_pidfd_inode() returns its inode, which no other
 * process of this boot has; 0: kernel without pidfs.
 */
int sc_host_open_pidfd(pid_t pid);
uint64_t sc_host_pidfd_inode(int pidfd);
/* Tells whether the descriptor, opened for that pid and with that inode, still is that pidfd. */
bool sc_host_is_pidfd(int fd, pid_t pid, uint64_t inode);

/* Tells whether a signal or a debugger has stopped the process. False if the kernel does not tell. */
bool sc_host_is_stopped(pid_t pid);

#endif
