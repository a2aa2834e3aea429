/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_unload.c: an application's plug-in loads libfabric by dlopen(3), sends, and unloads it by dlclose(3), without
 * closing anything. Each message whose send has completed is received, and a receive from the sender ends with an error
 * when its process does. This program is not linked with libfabric, so nothing else keeps the library loaded.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define MESSAGES 3
#define LARGEST 32768
#define NAME_SIZE 256

struct end {
	void *library;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	char name[NAME_SIZE];
};

/* In child processes, which load libfabric; an assertion of cmocka there would go on with the parent's tests. */
#define MUST(what)                                                                                        \
	do {                                                                                              \
		if (!(what)) {                                                                            \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what);          \
			abort();                                                                          \
		}                                                                                         \
	} while (0)

static void end_open(struct end *end)
{
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
		       struct fi_info **);
	int (*open_fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	size_t size = NAME_SIZE;
	struct fi_info *hints;

	MUST(!dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD));
	end->library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
	MUST(end->library);
	*(void **)&dupinfo = dlsym(end->library, "fi_dupinfo");
	*(void **)&getinfo = dlsym(end->library, "fi_getinfo");
	*(void **)&open_fabric = dlsym(end->library, "fi_fabric");
	MUST(dupinfo && getinfo && open_fabric);
	hints = dupinfo(NULL);
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	hints->fabric_attr->prov_name = strdup("shmcma");
	MUST(!getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &end->info));
	MUST(!open_fabric(end->info->fabric_attr, &end->fabric, NULL));
	MUST(!fi_domain(end->fabric, end->info, &end->domain, NULL));
	MUST(!fi_av_open(end->domain, &av_attr, &end->av, NULL));
	MUST(!fi_cq_open(end->domain, &cq_attr, &end->cq, NULL));
	MUST(!fi_endpoint(end->domain, end->info, &end->ep, NULL));
	MUST(!fi_ep_bind(end->ep, &end->av->fid, 0));
	MUST(!fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(!fi_enable(end->ep));
	MUST(!fi_getname(&end->ep->fid, end->name, &size));
}

static void end_close(struct end *end)
{
	fi_close(&end->ep->fid);
	fi_close(&end->cq->fid);
	fi_close(&end->av->fid);
	fi_close(&end->domain->fid);
	fi_close(&end->fabric->fid);
	dlclose(end->library);
}

/* Waits for the next completion. Returns 0, or the positive FI_E… of an operation that failed. */
static int await(struct end *end)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t rc;

	while ((rc = fi_cq_read(end->cq, &entry, 1)) == -FI_EAGAIN)
		;
	if (rc == 1)
		return 0;
	MUST(rc == -FI_EAVAIL && fi_cq_readerr(end->cq, &error, 0) == 1);
	return error.err;
}

/* Each side writes a text into the socket, or reads one from it. */
static void tell(int socket, const char text[NAME_SIZE])
{
	MUST(write(socket, text, NAME_SIZE) == NAME_SIZE);
}

static void hear(int socket, char text[NAME_SIZE])
{
	MUST(recv(socket, text, NAME_SIZE, MSG_WAITALL) == NAME_SIZE);
}

static fi_addr_t meet(struct end *end, int socket)
{
	char name[NAME_SIZE];
	fi_addr_t peer;

	tell(socket, end->name);
	hear(socket, name);
	MUST(fi_av_insert(end->av, name, 1, &peer, 0, NULL) == 1);
	return peer;
}

struct plugin {
	size_t size;
	bool daemon;
	bool exits; /* by exit(3), else by _exit(2) */
};

static _Noreturn void send_and_unload(const struct plugin *plugin, int socket)
{
	static char buf[LARGEST];
	struct end end = { 0 };
	char text[NAME_SIZE] = "unloaded";
	fi_addr_t receiver;

	setenv("FI_SHMCMA_DAEMON", plugin->daemon ? "1" : "0", 1);
	end_open(&end);
	receiver = meet(&end, socket);
	for (int i = 0; i < MESSAGES; i++) {
		memset(buf, 'a' + i, plugin->size);
		MUST(!fi_tsend(end.ep, buf, plugin->size, NULL, receiver, (uint64_t)i, NULL));
		MUST(!await(&end));
	}
	MUST(!dlclose(end.library));
	tell(socket, text);
	hear(socket, text);
	if (plugin->exits)
		exit(0);
	_exit(0);
}

static _Noreturn void receive(const struct plugin *plugin)
{
	static char buf[LARGEST], expected[LARGEST];
	struct end end = { 0 };
	char text[NAME_SIZE] = "end";
	int sockets[2], status;
	fi_addr_t sender;
	pid_t pid;

	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
	pid = fork();
	MUST(pid >= 0);
	if (!pid) {
		close(sockets[0]);
		send_and_unload(plugin, sockets[1]);
	}
	close(sockets[1]);
	end_open(&end);
	sender = meet(&end, sockets[0]);
	hear(sockets[0], text);
	for (int i = 0; i < MESSAGES; i++) {
		memset(expected, 'a' + i, plugin->size);
		MUST(!fi_trecv(end.ep, buf, plugin->size, NULL, sender, (uint64_t)i, 0, NULL));
		MUST(!await(&end));
		MUST(!memcmp(buf, expected, plugin->size));
	}
	MUST(!fi_trecv(end.ep, buf, plugin->size, NULL, sender, MESSAGES, 0, NULL));
	tell(sockets[0], text);
	MUST(await(&end) == FI_ECONNRESET);
	MUST(waitpid(pid, &status, 0) == pid && !status);
	end_close(&end);
	exit(0);
}

/*
 * One line, several lines, one bounce buffer, several, the largest eager message. Each case has new processes, because a
 * module that was loaded once stays.
 */
static void test_unload(void **state)
{
	static const size_t sizes[] = { 8, 870, 3000, 20000, LARGEST };

	(void)state;
	for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct plugin plugin = { .size = sizes[i / 4], .daemon = i & 1, .exits = i & 2 };
		pid_t pid;
		int status;

		fflush(NULL);
		pid = fork();
		if (!pid)
			receive(&plugin);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_unload) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
