/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_shared_av.c: address vectors with a name, as fi_av(3) has them: one process inserts, others read.
 */
#include "pair.h"
#include <signal.h>
#include <rdma/fi_collective.h>

#define NAME "test_shared_av"

static int av_open(struct pair *pair, struct fi_av_attr attr, struct fid_av **av)
{
	return fi_av_open(pair->domain, &attr, av, NULL);
}

static struct fid_av *writer_open(struct pair *pair, const char *name)
{
	struct fid_av *av;

	gives(av_open(pair, (struct fi_av_attr){ .type = FI_AV_TABLE, .name = name }, &av), 0);
	return av;
}

static struct fid_av *reader_open(struct pair *pair, const char *name, const fi_addr_t **numbers)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .name = name, .flags = FI_READ };
	struct fid_av *av;

	gives(fi_av_open(pair->domain, &attr, &av, NULL), 0);
	must(attr.map_addr);
	*numbers = attr.map_addr;
	return av;
}

static void test_open(void)
{
	struct fi_av_attr attr = { .name = NAME };
	const fi_addr_t *numbers;
	struct fid_av *av, *other;
	struct pair pair;
	fi_addr_t addr = 0;

	pair_open(&pair, NULL);
	gives(av_open(&pair, (struct fi_av_attr){ .flags = FI_READ }, &av), -FI_EINVAL);
	gives(av_open(&pair, (struct fi_av_attr){ .name = NAME, .flags = FI_READ }, &av), -FI_ENOENT);
	gives(av_open(&pair, (struct fi_av_attr){ .name = "a/b" }, &av), -FI_EINVAL);
	gives(av_open(&pair, (struct fi_av_attr){ .name = "" }, &av), -FI_EINVAL);
	gives(fi_av_open(pair.domain, &attr, &av, NULL), 0);
	must(attr.map_addr && attr.type == FI_AV_TABLE);
	gives(av_open(&pair, (struct fi_av_attr){ .name = NAME }, &other), -FI_EADDRINUSE);
	other = reader_open(&pair, NAME, &numbers);
	/* a vector that is open for reading can do nothing else */
	gives(fi_av_insert(other, pair.a.name, 1, &addr, 0, NULL), -FI_EACCES);
	gives(fi_av_insertsvc(other, NULL, "x", &addr, 0, NULL), -FI_EACCES);
	gives(fi_av_remove(other, &addr, 1, 0), -FI_EACCES);
	gives(fi_close(&av->fid), 0);
	/* the name has gone, open vectors have not */
	gives(av_open(&pair, (struct fi_av_attr){ .name = NAME, .flags = FI_READ }, &av), -FI_ENOENT);
	must(numbers[0] == FI_ADDR_NOTAVAIL);
	av = writer_open(&pair, NAME);
	gives(fi_close(&av->fid), 0);
	gives(fi_close(&other->fid), 0);
	pair_close(&pair);
}

/* Numbers are the same for all; the number of a removed address is not given to another. */
static void test_numbers(void)
{
	char name[64];
	const fi_addr_t *numbers;
	struct fid_av *writer, *reader;
	fi_addr_t addr[3];
	struct pair pair;
	size_t len = sizeof(name);

	pair_open(&pair, NULL);
	writer = writer_open(&pair, NAME);
	reader = reader_open(&pair, NAME, &numbers);
	gives(fi_av_lookup(reader, 0, name, &len), -FI_EINVAL);
	addr[0] = pair_insert(writer, pair.a.name);
	gives(fi_av_insert(writer, "fi_shmcma://nobody", 1, &addr[1], 0, NULL), 0);
	addr[1] = pair_insert(writer, pair.b.name);
	must(addr[0] == 0 && numbers[0] == addr[0] && numbers[1] == addr[1] && addr[1] == 1);
	must(numbers[2] == FI_ADDR_NOTAVAIL);
	len = sizeof(name);
	gives(fi_av_lookup(reader, addr[1], name, &len), 0);
	must(!strcmp(name, pair.b.name));
	gives(fi_av_lookup(reader, 2, name, &len), -FI_EINVAL);
	gives(fi_av_remove(writer, &addr[0], 1, 0), 0);
	must(numbers[0] == FI_ADDR_NOTAVAIL);
	addr[2] = pair_insert(writer, pair.a.name);
	must(addr[2] == 2 && numbers[2] == 2);
	len = sizeof(name);
	gives(fi_av_lookup(reader, addr[2], name, &len), 0);
	must(!strcmp(name, pair.a.name));
	gives(fi_close(&reader->fid), 0);
	gives(fi_close(&writer->fid), 0);
	pair_close(&pair);
}

/* As many as were announced, or a thousand; then there is no room. */
static void test_full(void)
{
	struct fid_av *av;
	struct pair pair;
	fi_addr_t addr;

	pair_open(&pair, NULL);
	gives(av_open(&pair, (struct fi_av_attr){ .name = NAME, .count = 1500 }, &av), 0);
	for (int i = 0; i < 1500; i++)
		must(pair_insert(av, pair.a.name) == (fi_addr_t)i);
	gives(fi_av_insert(av, pair.a.name, 1, &addr, 0, NULL), 0);
	must(addr == FI_ADDR_NOTAVAIL);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
}

/* An address that cannot be had takes no number where there is none: the next one would get it. */
static void test_full_and_dead(void)
{
	enum { ROOM = 1024, DEAD = 100 };
	char name[64], dead[DEAD * sizeof("fi_shmcma://nobody")];
	const fi_addr_t *numbers;
	struct fid_av *av, *reader;
	fi_addr_t addr[DEAD];
	struct pair pair;
	size_t len;

	pair_open(&pair, NULL);
	av = writer_open(&pair, NAME);
	reader = reader_open(&pair, NAME, &numbers);
	for (int i = 0; i < DEAD; i++)
		memcpy(dead + i * sizeof("fi_shmcma://nobody"), "fi_shmcma://nobody",
		       sizeof("fi_shmcma://nobody"));
	must(pair_insert(av, pair.a.name) == 0);
	for (int i = 1; i < ROOM - 1; i++)
		must(pair_insert(av, pair.b.name) == (fi_addr_t)i);
	/* the last number is tried by the first of them, and stays free */
	gives(fi_av_insert(av, dead, DEAD, addr, 0, NULL), 0);
	must(pair_insert(av, pair.b.name) == ROOM - 1);
	gives(fi_av_insert(av, dead, DEAD, addr, 0, NULL), 0);
	for (int i = 0; i < DEAD; i++) {
		gives(fi_av_insert(av, pair.b.name, 1, &addr[i], 0, NULL), 0);
		must(addr[i] == FI_ADDR_NOTAVAIL);
	}
	for (fi_addr_t i = 0; i < ROOM; i++) {
		must(numbers[i] == i);
		len = sizeof(name);
		gives(fi_av_lookup(reader, i, name, &len), 0);
		must(!strcmp(name, i ? pair.b.name : pair.a.name));
	}
	len = sizeof(name);
	gives(fi_av_lookup(reader, ROOM, name, &len), -FI_EINVAL);
	gives(fi_close(&reader->fid), 0);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
}

/* A set of a vector that is open for reading has the addresses that the owner has inserted, also if no call has used them. */
static void test_sets(void)
{
	const struct fi_av_set_attr all = { .flags = FI_UNIVERSE },
				    second = { .start_addr = 1, .end_addr = 5, .stride = 1 },
				    *attrs[] = { &all, &second };
	const fi_addr_t *numbers;
	struct fid_av *writer, *reader;
	struct fid_av_set *set;
	struct pair pair;

	pair_open(&pair, NULL);
	writer = writer_open(&pair, NAME);
	gives(pair_insert(writer, pair.a.name), 0);
	gives(pair_insert(writer, pair.b.name), 1);
	for (fi_addr_t first = 0; first < 2; first++) {
		struct fi_av_set_attr attr = *attrs[first];

		reader = reader_open(&pair, NAME, &numbers);
		gives(fi_av_set(reader, &attr, &set, NULL), 0);
		gives(fi_av_set_remove(set, 0), first ? -FI_EINVAL : 0);
		gives(fi_av_set_remove(set, 1), 0);
		gives(fi_close(&set->fid), 0);
		gives(fi_close(&reader->fid), 0);
	}
	gives(fi_close(&writer->fid), 0);
	pair_close(&pair);
}

/* ---- two processes --------------------------------------------------------------------------- */

/* The first inserts both endpoints, before the other opens it and after, and goes on when it has closed. */
static void test_two(struct pair *pair)
{
	struct fid_av *av = writer_open(pair, NAME);
	char theirs[64], name[64];
	size_t len = sizeof(name);

	gives(fi_av_lookup(pair->a.av, pair->a.peer, theirs, &len), 0);
	gives(pair_insert(av, theirs), 0);
	pair_meet(pair); /* opened there */
	pair_meet(pair);
	gives(pair_insert(av, pair->a.name), 1);
	pair_meet(pair);
	/* a message from an endpoint that knows us by the shared vector alone */
	gives(fi_recv(pair->a.ep, name, sizeof(name), NULL, FI_ADDR_UNSPEC, name), 0);
	must(pair_done(pair, &pair->a).entry.len == 5);
	pair_meet(pair);
	gives(fi_close(&av->fid), 0);
	pair_meet(pair);
}

static void second_two(struct pair *pair)
{
	const fi_addr_t *numbers;
	struct fid_av *av;
	struct side side;
	char name[64];
	size_t len = sizeof(name);

	pair_meet(pair);
	av = reader_open(pair, NAME, &numbers);
	must(numbers[0] == 0);
	gives(fi_av_lookup(av, 0, name, &len), 0);
	must(!strcmp(name, pair->a.name));
	len = sizeof(name);
	gives(fi_av_lookup(av, 1, name, &len), -FI_EINVAL);
	pair_meet(pair);
	pair_meet(pair); /* one more there */
	must(numbers[1] == 1);
	side = (struct side){ .cq = pair_open_cq(pair), .ep = pair_open_ep(pair) };
	pair_bind(side.ep, side.cq, av);
	gives(fi_enable(side.ep), 0);
	gives(fi_send(side.ep, "hello", 5, NULL, numbers[1], NULL), 0);
	pair_done(pair, &side);
	/* messages from those in it are named by it */
	gives(fi_getname(&side.ep->fid, side.name, &(size_t){ sizeof(side.name) }), 0);
	gives(fi_inject(pair->a.ep, "x", 1, pair_insert(pair->a.av, side.name)), 0);
	gives(fi_recv(side.ep, name, sizeof(name), NULL, FI_ADDR_UNSPEC, NULL), 0);
	must(pair_done(pair, &side).source == 0);
	pair_meet(pair);
	pair_meet(pair); /* closed there: what is known stays */
	len = sizeof(name);
	gives(fi_av_lookup(av, 0, name, &len), 0);
	side.av = av;
	side_close(&side);
}

/* The writer is killed: the name is free again. */
static void test_killed(void)
{
	struct fid_av *av;
	struct pair pair;
	int fds[2], status;
	pid_t child;
	char byte;

	gives(pipe(fds), 0);
	child = fork();
	must(child >= 0);
	if (!child) {
		pair_end_with_parent();
		pair_open(&pair, NULL);
		writer_open(&pair, NAME);
		gives(write(fds[1], "x", 1), 1);
		for (;;)
			pause();
	}
	gives(read(fds[0], &byte, 1), 1);
	pair_open(&pair, NULL);
	gives(av_open(&pair, (struct fi_av_attr){ .name = NAME }, &av), -FI_EADDRINUSE);
	gives(kill(child, SIGKILL), 0);
	gives(waitpid(child, &status, 0), child);
	av = writer_open(&pair, NAME);
	gives(fi_close(&av->fid), 0);
	pair_close(&pair);
}

/* A child that has inherited one takes nothing from it. */
static void test_fork(void)
{
	const fi_addr_t *numbers;
	struct fid_av *writer, *reader;
	struct pair pair;
	int status;
	pid_t child;

	pair_open(&pair, NULL);
	writer = writer_open(&pair, NAME);
	reader = reader_open(&pair, NAME, &numbers);
	child = fork();
	must(child >= 0);
	if (!child) {
		fi_addr_t addr;

		gives(fi_av_insert(writer, pair.a.name, 1, &addr, 0, NULL), -FI_EPERM);
		gives(fi_close(&reader->fid), 0);
		gives(fi_close(&writer->fid), 0);
		_exit(0);
	}
	gives(waitpid(child, &status, 0), child);
	gives(status, 0);
	gives(pair_insert(writer, pair.a.name), 0);
	must(numbers[0] == 0);
	gives(fi_close(&reader->fid), 0);
	reader = reader_open(&pair, NAME, &numbers);
	must(numbers[0] == 0);
	gives(fi_close(&reader->fid), 0);
	gives(fi_close(&writer->fid), 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(test_open),	   ALONE(test_numbers),	       ALONE(test_full),
		ALONE(test_full_and_dead), BOTH(test_two, second_two), ALONE(test_killed),
		ALONE(test_fork),	   ALONE(test_sets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
