/* SPDX-License-Identifier: BSD-2-Clause */
/* refuse.h: this process as on an older kernel, which lacks a system call. */
#ifndef REFUSE_H
#define REFUSE_H

#include "pair.h"

#include <errno.h>
#include <stddef.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* The system call is one that this kernel does not have, for this process. */
static inline void refuse(int number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	gives(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	gives(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static inline void without_waitv(void)
{
	refuse(SYS_futex_waitv);
	gives(syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0), -1);
	gives(errno, ENOSYS);
}

#endif
