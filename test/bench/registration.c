/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registration.c: fi_mr_reg and fi_close of 4 KiB, one after the other: alone, and with OTHERS open.
 */
#include <stdlib.h>

#include "endpoint.h"
#include "group.h"
#include "kinds.h"
#include "repeat.h"

#define OTHERS 100000

struct registration {
	struct endpoint endpoint;
	void *memory;
};

static void register_one(struct registration *r, struct fid_mr **mr)
{
	if (endpoint_register(&r->endpoint, r->memory, 4096, mr))
		finish(UNAVAILABLE, "fi_mr_reg", "no more of them");
}

static bool rounds(void *arg, long count)
{
	struct fid_mr *mr;

	while (count--) {
		register_one(arg, &mr);
		must("fi_close(mr)", fi_close(&mr->fid));
	}
	return true;
}

static void measure(const struct task *task, int others)
{
	static struct registration r;
	struct repeat repeat = { .rounds = rounds, .arg = &r, .alone = true };
	struct fid_mr **mrs = buffer((size_t)others * sizeof(struct fid_mr *));

	r.memory = buffer(4096);
	endpoint_find(&r.endpoint,
		      &(struct wanted){ task->subject, FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC,
					FI_THREAD_DOMAIN, 0 });
	endpoint_open(&r.endpoint, 2);
	for (int i = 0; i < others; i++)
		register_one(&r, &mrs[i]);
	group_sample(REGISTRATION, others, repeat_time(&repeat).seconds);
	for (int i = 0; i < others; i++)
		must("fi_close(mr)", fi_close(&mrs[i]->fid));
	endpoint_close(&r.endpoint);
	free(mrs);
}

void registration_alone(const struct task *task)
{
	measure(task, 0);
}

void registration_among_many(const struct task *task)
{
	measure(task, OTHERS);
}
