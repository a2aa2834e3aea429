/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_fork: a process with open objects forks, and the child does all that it may and much that it may not:
 * its calls give a clear error, it ends in every way, and no other process notices its life or its end:
 * the parent's traffic goes on, its names stay. Objects that the child opens itself work.
 *
 * Two ranks that talk all the time; one of them forks, the asking one or the serving one.
 */
#define _GNU_SOURCE 1
#include "talk.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_eq.h>

#define ASKS 0	 /* the rank that asks */
#define SERVES 1 /* and the other */

#define LEFT_NAME 4 /* of what a child has left open */

/* The open objects of a rank, of each class at least one. */
struct open_objects {
	struct talk talk;
	struct fid_eq *eq;
	struct fid_cntr *cntr;
	struct fid_ep *alias;
	struct fid_mr *local;
	char byte;
};

static struct open_objects own;
static pid_t opened_by; /* 0: nothing is open */

/* ---- calls of a child ------------------------------------------------------------------------ */

#define refused(call)                                                                                     \
	do {                                                                                              \
		long refused_rc = (long)(call);                                                           \
		mt_require(refused_rc == -FI_EPERM, "in a child, %s: %ld", #call, refused_rc);            \
	} while (0)

static void call_messages(struct fid_ep *ep, fi_addr_t peer)
{
	struct iovec iov = { &own.byte, 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .addr = peer, .context = &own };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1, .addr = peer, .context = &own };

	refused(fi_send(ep, &own.byte, 1, NULL, peer, &own));
	refused(fi_sendv(ep, &iov, NULL, 1, peer, &own));
	refused(fi_sendmsg(ep, &msg, 0));
	refused(fi_inject(ep, &own.byte, 1, peer));
	refused(fi_senddata(ep, &own.byte, 1, NULL, 0, peer, &own));
	refused(fi_injectdata(ep, &own.byte, 1, 0, peer));
	refused(fi_recv(ep, &own.byte, 1, NULL, peer, &own));
	refused(fi_recvv(ep, &iov, NULL, 1, peer, &own));
	refused(fi_recvmsg(ep, &msg, 0));
	refused(fi_tsend(ep, &own.byte, 1, NULL, peer, 0, &own));
	refused(fi_tsendv(ep, &iov, NULL, 1, peer, 0, &own));
	refused(fi_tsendmsg(ep, &tagged, 0));
	refused(fi_tinject(ep, &own.byte, 1, peer, 0));
	refused(fi_tsenddata(ep, &own.byte, 1, NULL, 0, peer, 0, &own));
	refused(fi_tinjectdata(ep, &own.byte, 1, 0, peer, 0));
	refused(fi_trecv(ep, &own.byte, 1, NULL, peer, 0, 0, &own));
	refused(fi_trecvv(ep, &iov, NULL, 1, peer, 0, 0, &own));
	refused(fi_trecvmsg(ep, &tagged, 0));
}

static void call_one_sided(struct fid_ep *ep, fi_addr_t peer)
{
	struct iovec iov = { &own.byte, 1 };
	struct fi_rma_iov remote = { 0, 1, 0 };
	struct fi_msg_rma msg = { .msg_iov = &iov,
				  .iov_count = 1,
				  .addr = peer,
				  .rma_iov = &remote,
				  .rma_iov_count = 1,
				  .context = &own };
	struct fi_ioc ioc = { &own.byte, 1 };
	struct fi_rma_ioc remote_ioc = { 0, 1, 0 };
	struct fi_msg_atomic atomic = { .msg_iov = &ioc,
					.iov_count = 1,
					.addr = peer,
					.rma_iov = &remote_ioc,
					.rma_iov_count = 1,
					.datatype = FI_UINT8,
					.op = FI_SUM,
					.context = &own };
	size_t count;

	refused(fi_read(ep, &own.byte, 1, NULL, peer, 0, 0, &own));
	refused(fi_readv(ep, &iov, NULL, 1, peer, 0, 0, &own));
	refused(fi_readmsg(ep, &msg, 0));
	refused(fi_write(ep, &own.byte, 1, NULL, peer, 0, 0, &own));
	refused(fi_writev(ep, &iov, NULL, 1, peer, 0, 0, &own));
	refused(fi_writemsg(ep, &msg, 0));
	refused(fi_inject_write(ep, &own.byte, 1, peer, 0, 0));
	refused(fi_writedata(ep, &own.byte, 1, NULL, 0, peer, 0, 0, &own));
	refused(fi_inject_writedata(ep, &own.byte, 1, 0, peer, 0, 0));
	refused(fi_atomic(ep, &own.byte, 1, NULL, peer, 0, 0, FI_UINT8, FI_SUM, &own));
	refused(fi_atomicv(ep, &ioc, NULL, 1, peer, 0, 0, FI_UINT8, FI_SUM, &own));
	refused(fi_atomicmsg(ep, &atomic, 0));
	refused(fi_inject_atomic(ep, &own.byte, 1, peer, 0, 0, FI_UINT8, FI_SUM));
	refused(fi_fetch_atomic(ep, &own.byte, 1, NULL, &own.byte, NULL, peer, 0, 0, FI_UINT8, FI_SUM,
				&own));
	refused(fi_fetch_atomicv(ep, &ioc, NULL, 1, &ioc, NULL, 1, peer, 0, 0, FI_UINT8, FI_SUM, &own));
	refused(fi_fetch_atomicmsg(ep, &atomic, &ioc, NULL, 1, 0));
	refused(fi_compare_atomic(ep, &own.byte, 1, NULL, &own.byte, NULL, &own.byte, NULL, peer, 0, 0,
				  FI_UINT8, FI_CSWAP, &own));
	refused(fi_compare_atomicv(ep, &ioc, NULL, 1, &ioc, NULL, 1, &ioc, NULL, 1, peer, 0, 0, FI_UINT8,
				   FI_CSWAP, &own));
	refused(fi_compare_atomicmsg(ep, &atomic, &ioc, NULL, 1, &ioc, NULL, 1, 0));
	refused(fi_atomicvalid(ep, FI_UINT8, FI_SUM, &count));
	refused(fi_fetch_atomicvalid(ep, FI_UINT8, FI_SUM, &count));
	refused(fi_compare_atomicvalid(ep, FI_UINT8, FI_CSWAP, &count));
}

static void call_endpoint(struct fid_ep *ep)
{
	uint64_t flags = FI_TRANSMIT;
	struct fid_ep *other;
	char name[MT_NAME_SIZE];
	size_t size = sizeof(name);
	struct fi_alias alias = { &(struct fid *){ NULL }, FI_TRANSMIT };
	void *ops;

	refused(fi_cancel(&ep->fid, &own));
	refused(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, &size));
	refused(fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, sizeof(size)));
	refused(fi_tx_context(ep, 0, NULL, &other, NULL));
	refused(fi_rx_context(ep, 0, NULL, &other, NULL));
	refused(ep->ops->rx_size_left(ep));
	refused(ep->ops->tx_size_left(ep));
	refused(fi_setname(&ep->fid, name, size));
	refused(fi_getname(&ep->fid, name, &size));
	refused(fi_getpeer(ep, name, &size));
	refused(fi_connect(ep, name, NULL, 0));
	refused(fi_accept(ep, NULL, 0));
	refused(fi_shutdown(ep, 0));
	refused(fi_enable(ep));
	refused(fi_ep_bind(ep, &own.talk.ep.cq->fid, FI_RECV));
	refused(fi_ep_alias(ep, &other, FI_TRANSMIT));
	refused(fi_control(&ep->fid, FI_ALIAS, &alias));
	refused(fi_control(&ep->fid, FI_GETOPSFLAG, &flags));
	refused(fi_open_ops(&ep->fid, "ops", 0, &ops, NULL));
	refused(fi_set_ops(&ep->fid, "ops", 0, NULL, NULL));
}

static void call_domain(struct fid_domain *domain, struct fi_info *info)
{
	struct fi_atomic_attr atomic_attr;
	struct fi_collective_attr collective_attr = { 0 };
	struct fi_av_attr av_attr = { 0 };
	struct fi_cq_attr cq_attr = { 0 };
	struct fi_cntr_attr cntr_attr = { 0 };
	struct fi_poll_attr poll_attr = { 0 };
	struct fi_mr_attr mr_attr = { 0 };
	struct iovec iov = { &own.byte, 1 };
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct fid_poll *set;
	struct fid_stx *stx;
	struct fid_mr *mr;
	uint64_t word;

	refused(fi_av_open(domain, &av_attr, &av, NULL));
	refused(fi_cq_open(domain, &cq_attr, &cq, NULL));
	refused(fi_cntr_open(domain, &cntr_attr, &cntr, NULL));
	refused(fi_endpoint(domain, info, &ep, NULL));
	refused(fi_endpoint2(domain, info, &ep, 0, NULL));
	refused(fi_scalable_ep(domain, info, &ep, NULL));
	refused(fi_poll_open(domain, &poll_attr, &set));
	refused(fi_stx_context(domain, NULL, &stx, NULL));
	refused(fi_srx_context(domain, NULL, &ep, NULL));
	refused(fi_query_atomic(domain, FI_UINT8, FI_SUM, &atomic_attr, 0));
	refused(fi_query_collective(domain, FI_BARRIER, &collective_attr, 0));
	refused(fi_domain_bind(domain, &own.eq->fid, 0));
	refused(fi_control(&domain->fid, FI_FLUSH_WORK, NULL));
	refused(fi_mr_reg(domain, &own.byte, 1, FI_REMOTE_READ, 0, 1, 0, &mr, NULL));
	refused(fi_mr_regv(domain, &iov, 1, FI_REMOTE_READ, 0, 1, 0, &mr, NULL));
	refused(fi_mr_regattr(domain, &mr_attr, 0, &mr));
	refused(fi_mr_bind(own.talk.mr, &own.cntr->fid, FI_REMOTE_READ));
	refused(fi_mr_enable(own.talk.mr));
	refused(fi_mr_refresh(own.local, &iov, 1, 0));
	refused(fi_mr_raw_attr(own.talk.mr, &word, NULL, &(size_t){ 0 }, 0));
}

static void call_fabric(struct mt_ep *ep)
{
	struct fi_eq_attr eq_attr = { 0 };
	struct fi_wait_attr wait_attr = { 0 };
	struct fid *fids[1] = { &own.eq->fid };
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_pep *pep;
	struct fid_wait *set;

	refused(fi_domain(ep->fabric, ep->info, &domain, NULL));
	refused(fi_domain2(ep->fabric, ep->info, &domain, 0, NULL));
	refused(fi_eq_open(ep->fabric, &eq_attr, &eq, NULL));
	refused(fi_passive_ep(ep->fabric, ep->info, &pep, NULL));
	refused(fi_wait_open(ep->fabric, &wait_attr, &set));
	refused(fi_trywait(ep->fabric, fids, 1));
}

static void call_queues(struct mt_ep *ep)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry cq_error = { 0 };
	struct fi_eq_err_entry eq_error = { 0 };
	struct fi_eq_entry event;
	uint32_t type;
	fi_addr_t addr = 0;
	char text[MT_NAME_SIZE];
	size_t size = sizeof(text);

	refused(fi_cq_read(ep->cq, &entry, 1));
	refused(fi_cq_readfrom(ep->cq, &entry, 1, &addr));
	refused(fi_cq_readerr(ep->cq, &cq_error, 0));
	refused(fi_cq_sread(ep->cq, &entry, 1, NULL, 0));
	refused(fi_cq_sreadfrom(ep->cq, &entry, 1, &addr, NULL, 0));
	refused(fi_cq_signal(ep->cq));
	refused(fi_control(&ep->cq->fid, FI_GETWAIT, &size));
	mt_require(fi_cq_strerror(ep->cq, FI_EINVAL, NULL, text, sizeof(text)), "fi_cq_strerror");
	refused(fi_eq_read(own.eq, &type, &event, sizeof(event), 0));
	refused(fi_eq_readerr(own.eq, &eq_error, 0));
	refused(fi_eq_write(own.eq, FI_NOTIFY, &event, sizeof(event), 0));
	refused(fi_eq_sread(own.eq, &type, &event, sizeof(event), 0, 0));
	mt_require(fi_eq_strerror(own.eq, FI_EINVAL, NULL, text, sizeof(text)), "fi_eq_strerror");
	mt_require(fi_cntr_read(own.cntr) == 3 && fi_cntr_readerr(own.cntr) == 1, "counter");
	refused(fi_cntr_add(own.cntr, 1));
	refused(fi_cntr_adderr(own.cntr, 1));
	refused(fi_cntr_set(own.cntr, 1));
	refused(fi_cntr_seterr(own.cntr, 1));
	refused(fi_cntr_wait(own.cntr, 100, 0));
	refused(fi_av_insert(ep->av, ep->name, 1, &addr, 0, NULL));
	refused(fi_av_insertsvc(ep->av, NULL, "1", &addr, 0, NULL));
	refused(fi_av_insertsym(ep->av, "127.0.0.1", 1, "1", 1, &addr, 0, NULL));
	refused(fi_av_remove(ep->av, &addr, 1, 0));
	refused(fi_av_lookup(ep->av, 0, text, &size));
	refused(fi_av_bind(ep->av, &own.eq->fid, 0));
	size = sizeof(text);
	mt_require(fi_av_straddr(ep->av, ep->name, text, &size), "fi_av_straddr");
}

static void call_everything(void)
{
	struct mt_ep *ep = &own.talk.ep;
	struct fid_ep *both[] = { ep->ep, own.alias };

	for (int i = 0; i < 2; i++) {
		call_messages(both[i], 0);
		call_one_sided(both[i], 0);
		call_endpoint(both[i]);
	}
	call_domain(ep->domain, ep->info);
	call_fabric(ep);
	call_queues(ep);
}

/* ---- open, close ----------------------------------------------------------------------------- */

static void close_own(void)
{
	struct mt_ep *ep = &own.talk.ep;

	mt_must(fi_close(&own.alias->fid));
	mt_must(fi_close(&own.local->fid));
	mt_must(fi_close(&own.talk.mr->fid));
	mt_require(fi_close(&ep->domain->fid) == -FI_EBUSY, "closing a domain in use");
	mt_must(fi_close(&ep->ep->fid));
	mt_must(fi_close(&own.cntr->fid));
	mt_must(fi_close(&ep->cq->fid));
	mt_must(fi_close(&ep->av->fid));
	mt_must(fi_close(&own.eq->fid));
	mt_must(fi_close(&ep->domain->fid));
	mt_must(fi_close(&ep->fabric->fid));
	fi_freeinfo(ep->info);
	talk_free(&own.talk);
}

/* As an application has it that cleans up behind itself, and does not think of its children. */
static void close_at_exit(void)
{
	if (opened_by && opened_by != getpid())
		close_own();
}

static void open_own(const struct mt_open *open)
{
	struct fi_eq_attr eq_attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_MUTEX_COND };
	struct fi_cntr_attr cntr_attr = { 0 };

	atexit(close_at_exit); /* before libfabric has its say: runs after its destructor or before */
	talk_open(&own.talk, open);
	mt_must(fi_eq_open(own.talk.ep.fabric, &eq_attr, &own.eq, NULL));
	mt_must(fi_cntr_open(own.talk.ep.domain, &cntr_attr, &own.cntr, NULL));
	mt_must(fi_cntr_add(own.cntr, 3));
	mt_must(fi_cntr_adderr(own.cntr, 1));
	mt_must(fi_ep_alias(own.talk.ep.ep, &own.alias, FI_TRANSMIT | FI_COMPLETION));
	mt_must(fi_mr_reg(own.talk.ep.domain, &own.byte, 1, FI_SEND, 0, 0, 0, &own.local, NULL));
	opened_by = getpid();
}

static void close_parent(void)
{
	opened_by = 0;
	mt_must(fi_close(&own.alias->fid));
	mt_must(fi_close(&own.local->fid));
	mt_must(fi_close(&own.cntr->fid));
	mt_must(fi_close(&own.eq->fid));
	talk_close(&own.talk);
}

/* ---- what children do ------------------------------------------------------------------------ */

enum ending { BY_RETURN, BY_EXIT, BY_ABORT, BY_TERM, BY_KILL };

struct fork_case {
	const char *name;
	void (*body)(void);
	enum ending ending;
	int refused; /* processes whose calls are refused */
	bool automatic;
	bool any;	     /* the child may end in any way */
	pid_t (*make)(void); /* NULL: fork */
};

/* Opens its own, talks with its parent if that serves, with the other rank in any case. */
static void talk_afresh(void)
{
	struct talk talk;
	fi_addr_t server;

	talk_open(&talk, NULL);
	talk.ep.silent = true;
	talk.half = 1;
	server = talk_friend(&talk, mt_published(&talk.ep, SERVES));
	talk_all(&talk, server);
	talk_close(&talk);
}

/* Its name goes when libfabric's destructor runs. */
static void open_afresh(void)
{
	static struct talk left;

	talk_open(&left, NULL);
	left.half = 1;
	mt_publish(&left.ep, LEFT_NAME);
	talk_all(&left, talk_friend(&left, mt_published(NULL, SERVES)));
}

static void refused_then_afresh(void)
{
	call_everything();
	talk_afresh();
	close_own();
	opened_by = 0;
	talk_afresh();
}

static void close_then_afresh(void)
{
	close_own();
	opened_by = 0;
	talk_afresh();
}

/* Inherited objects are no use to new ones. */
static void mix(void)
{
	struct fi_cntr_attr cntr_attr = { 0 };
	struct fid_cntr *cntr;
	struct fid_ep *ep;
	struct mt_ep fresh;

	mt_open(&fresh, NULL);
	mt_must(fi_endpoint(fresh.domain, fresh.info, &ep, NULL));
	mt_require(fi_ep_bind(ep, &own.talk.ep.cq->fid, FI_RECV) == -FI_EINVAL, "an inherited queue");
	mt_require(fi_ep_bind(ep, &own.talk.ep.av->fid, 0) == -FI_EINVAL, "an inherited address vector");
	mt_require(fi_ep_bind(ep, &own.eq->fid, 0) == -FI_EINVAL, "an inherited event queue");
	mt_require(fi_ep_bind(ep, &own.cntr->fid, FI_SEND) == -FI_EINVAL, "an inherited counter");
	mt_require(fi_domain_bind(fresh.domain, &own.eq->fid, 0) == -FI_EINVAL,
		   "an inherited event queue");
	mt_must(fi_cntr_open(fresh.domain, &cntr_attr, &cntr, NULL));
	mt_must(fi_close(&cntr->fid));
	mt_must(fi_close(&ep->fid));
	fi_close(&fresh.ep->fid);
	fi_close(&fresh.cq->fid);
	fi_close(&fresh.av->fid);
	fi_close(&fresh.domain->fid);
	fi_close(&fresh.fabric->fid);
	fi_freeinfo(fresh.info);
}

static void end_as(enum ending ending)
{
	static const int signals[] = { [BY_TERM] = SIGTERM, [BY_KILL] = SIGKILL };

	switch (ending) {
	case BY_RETURN:
		_exit(0);
	case BY_EXIT:
		exit(0);
	case BY_ABORT:
		abort();
	default:
		kill(getpid(), signals[ending]);
		pause();
	}
}

static bool ended_as(enum ending ending, int status)
{
	switch (ending) {
	case BY_RETURN:
	case BY_EXIT:
		return status == 0;
	case BY_ABORT:
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
	case BY_TERM:
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
	case BY_KILL:
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	}
	return false;
}

static void grandchild(void)
{
	pid_t pid;
	int status;

	call_everything();
	pid = fork();
	mt_require(pid >= 0, "fork");
	if (!pid) {
		call_everything();
		talk_afresh();
		exit(0);
	}
	mt_require(waitpid(pid, &status, 0) == pid && status == 0, "grandchild: status %#x", status);
	talk_afresh();
}

/* The child has objects of its own when it forks: the grandchild has two generations to close. */
static void grandchild_of_both(void)
{
	struct mt_ep fresh;
	uint64_t byte = 0;
	pid_t pid;
	int status;

	mt_open(&fresh, NULL);
	pid = fork();
	mt_require(pid >= 0, "fork");
	if (!pid) {
		refused(fi_cq_read(fresh.cq, &byte, 1));
		refused(fi_cq_read(own.talk.ep.cq, &byte, 1));
		mt_must(fi_close(&fresh.ep->fid));
		exit(0); /* with the parent's to be closed at exit */
	}
	mt_require(waitpid(pid, &status, 0) == pid && status == 0, "grandchild: status %#x", status);
	mt_require(talk_has_file(fresh.name), "its name has gone");
	fi_close(&fresh.ep->fid);
	fi_close(&fresh.cq->fid);
	fi_close(&fresh.av->fid);
	fi_close(&fresh.domain->fid);
	fi_close(&fresh.fabric->fid);
	fi_freeinfo(fresh.info);
}

static void nothing(void)
{
}

/* The file of its parent's service is another process's to it. */
static void ask_the_service(void)
{
	char service[32];
	struct talk talk;

	snprintf(service, sizeof(service), "fork.%d", (int)mt_pid(SERVES));
	talk_open(&talk, NULL);
	talk.ep.silent = true;
	talk.half = 1;
	talk_all(&talk, mt_insert_service(&talk.ep, NULL, service));
	talk_close(&talk);
}

/* Not told that it is a child: it may crash. */
static void call_untold(void)
{
	struct fi_cq_tagged_entry entry;

	(void)fi_tsend(own.talk.ep.ep, &own.byte, 1, NULL, 0, 0, NULL);
	(void)fi_cq_read(own.talk.ep.cq, &entry, 1);
}

static void close_untold(void)
{
	(void)fi_close(&own.talk.mr->fid);
	(void)fi_close(&own.alias->fid);
	(void)fi_close(&own.talk.ep.ep->fid);
}

/* ---- other ways to have a child -------------------------------------------------------------- */

static pid_t by_spawn(void)
{
	char *argv[] = { "true", NULL }, *env[] = { NULL };
	pid_t pid;

	mt_require(posix_spawnp(&pid, "true", NULL, NULL, argv, env) == 0, "posix_spawn");
	return pid;
}

static pid_t by_vfork(void)
{
	char *argv[] = { "true", NULL };
	pid_t pid = vfork();

	if (!pid) {
		execvp("true", argv);
		_exit(1);
	}
	return pid;
}

static pid_t by_vfork_exit(void)
{
	pid_t pid = vfork();

	if (!pid)
		_exit(0);
	return pid;
}

/* No handler of pthread_atfork() is called. */
static pid_t by_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t by_exec(void)
{
	pid_t pid = fork();

	if (!pid) {
		execlp("true", "true", NULL);
		_exit(1);
	}
	return pid;
}

static pid_t by_system(void)
{
	mt_require(system("exit 0") == 0, "system");
	return by_exec();
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int count_lines(const char *word)
{
	off_t size = lseek(STDERR_FILENO, 0, SEEK_END);
	char *text = talk_alloc((size_t)size + 1);
	int count = 0;

	mt_require(pread(STDERR_FILENO, text, (size_t)size, 0) == size, "the log");
	for (char *at = text; (at = strstr(at, word)); at += strlen(word))
		count++;
	free(text);
	return count;
}

static pid_t make_child(const struct fork_case *test)
{
	struct rlimit none = { 0, 0 };
	pid_t pid = test->make ? test->make() : fork();

	mt_require(pid >= 0, "no child: %s", strerror(errno));
	if (pid)
		return pid;
	setrlimit(RLIMIT_CORE, &none);
	signal(SIGTERM, SIG_DFL);
	signal(SIGABRT, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	test->body();
	end_as(test->ending);
	_exit(1);
}

static bool gone(pid_t pid, int *status)
{
	return waitpid(pid, status, WNOHANG) == pid;
}

static void check_child(const struct fork_case *test, int status)
{
	const char *word = "was forked while libfabric objects were open";
	int lines = count_lines(word);

	mt_require(test->any || ended_as(test->ending, status), "the child: status %#x", status);
	mt_require(talk_has_file(own.talk.ep.name), "the parent's name has gone");
	mt_require(test->body != open_afresh || !talk_has_file(mt_published(NULL, LEFT_NAME)),
		   "the child has left its name");
	mt_require(lines == test->refused, "%d lines, not %d, say: %s", lines, test->refused, word);
}

static void asking(const struct fork_case *test, bool forks)
{
	fi_addr_t server = talk_friend(&own.talk, mt_published(&own.talk.ep, SERVES));
	int status;

	talk_all(&own.talk, server);
	if (forks) {
		pid_t pid = make_child(test);

		do
			talk_message(&own.talk, server, 40000);
		while (!gone(pid, &status));
		check_child(test, status);
	} else {
		do
			talk_message(&own.talk, server, 40000);
		while (!atomic_load(mt_flag(0)));
	}
	talk_all(&own.talk, server);
	talk_stop(&own.talk, server);
}

static void serving(const struct fork_case *test, bool forks)
{
	pid_t pid = 0;
	int status;

	talk_listen(&own.talk);
	mt_flag_wait(&own.talk.ep, 1, 1);
	if (forks)
		pid = make_child(test);
	while (talk_serve_one(&own.talk)) {
		if (!pid || !gone(pid, &status))
			continue;
		pid = 0;
		check_child(test, status);
		atomic_store(mt_flag(0), 1);
	}
	mt_require(!pid, "stopped too early");
}

struct fork_arg {
	const struct fork_case *test;
	int forks; /* which rank */
};

static void fork_rank(const void *arg)
{
	const struct fork_arg *param = arg;
	struct mt_open open = { .caps = FI_ATOMIC, .automatic = param->test->automatic };
	char service[32];

	if (mt_rank == SERVES) {
		snprintf(service, sizeof(service), "fork.%d", (int)getpid());
		open.service = service;
		open.flags = FI_SOURCE;
	}
	open_own(&open);
	mt_publish(&own.talk.ep, mt_rank);
	mt_published(&own.talk.ep, !mt_rank);
	atomic_store(mt_flag(1), 1);
	if (mt_rank == ASKS)
		asking(param->test, param->forks == ASKS);
	else
		serving(param->test, param->forks == SERVES);
	mt_barrier(&own.talk.ep);
	close_parent();
}

/* ---- threads --------------------------------------------------------------------------------- */

#define MANY (MT_SANITIZED ? 24 : 60)

static void *ask_for_ever(void *arg)
{
	fi_addr_t server = talk_friend(&own.talk, mt_published(NULL, SERVES));
	_Atomic bool *stop = arg;

	while (!atomic_load(stop))
		talk_all(&own.talk, server);
	talk_stop(&own.talk, server);
	return NULL;
}

/* Children of all kinds in turn, made by one thread while others are in the library. */
static void threads_rank(const void *arg)
{
	static void (*const bodies[])(void) = { nothing, call_everything, close_own, mix };
	static _Atomic bool stop;
	struct mt_open open = { .caps = FI_ATOMIC, .automatic = true };
	pthread_t thread;
	int status;

	(void)arg;
	if (MT_SANITIZED)
		mt_skip("a sanitizer's allocator may be locked by another thread at fork(2)");
	open_own(&open);
	mt_publish(&own.talk.ep, mt_rank);
	mt_published(&own.talk.ep, !mt_rank);
	if (mt_rank == SERVES) {
		talk_serve(&own.talk);
	} else {
		mt_require(pthread_create(&thread, NULL, ask_for_ever, &stop) == 0, "no thread");
		for (int i = 0; i < MANY; i++) {
			pid_t pid = fork();

			mt_require(pid >= 0, "fork");
			if (!pid) {
				bodies[i % 4]();
				if (i % 4 == 2)
					opened_by = 0;
				end_as(i % 8 < 4 ? BY_EXIT : BY_RETURN);
			}
			mt_require(waitpid(pid, &status, 0) == pid && status == 0, "child %d: status %#x",
				   i, status);
		}
		atomic_store(&stop, true);
		pthread_join(thread, NULL);
	}
	mt_barrier(NULL);
	close_parent();
}

/* ---- threads that fork at once --------------------------------------------------------------- */

#define FORKERS_MAX 32
#define FORKS 64    /* of all threads together */
#define SLOW_MS 400 /* the extra time of one fork(2) in SLOW_OF, as in a process of some GB */
#define SLOW_OF 16

static atomic_uint slow_forks;

/* Runs after the provider's handler, since it is registered before. */
static void slow_fork(void)
{
	struct timespec nap = { .tv_nsec = SLOW_MS * 1000000L };

	if (atomic_fetch_add(&slow_forks, 1) % SLOW_OF == 0)
		nanosleep(&nap, NULL);
}

static void exec_true(void)
{
	execlp("true", "true", NULL);
	_exit(1);
}

static void talk_a_little(void)
{
	struct talk talk;

	talk_open(&talk, NULL);
	talk.ep.silent = true;
	talk_message(&talk, talk_friend(&talk, mt_published(NULL, SERVES)), 2000);
	talk_close(&talk);
}

static void close_own_all(void)
{
	close_own();
	opened_by = 0;
}

struct forkers {
	int threads;
	pthread_barrier_t begin;
	_Atomic bool stop;
};

static void *fork_on(void *arg)
{
	static void (*const bodies[])(void) = { nothing, exec_true, close_own_all, talk_a_little };
	static atomic_uint children;
	struct forkers *forkers = arg;
	int status;

	pthread_barrier_wait(&forkers->begin);
	for (int i = 0; i < FORKS / forkers->threads; i++) {
		unsigned int child = atomic_fetch_add(&children, 1);
		pid_t pid = mt_fork();

		mt_require(pid >= 0, "fork");
		if (!pid) {
			bodies[child % 4]();
			_exit(0);
		}
		mt_require(waitpid(pid, &status, 0) == pid && status == 0, "child %u: status %#x", child,
			   status);
	}
	return NULL;
}

static void *open_on(void *arg)
{
	struct forkers *forkers = arg;
	struct mt_open open = { .automatic = true };
	struct mt_ep ep;

	while (!atomic_load(&forkers->stop)) {
		mt_open(&ep, &open);
		mt_close(&ep);
	}
	return NULL;
}

/*
 * Threads fork while one talks and one opens and closes objects. Each fork has all locks in its turn: no child says
 * that it was made without one. Nothing stays locked: all objects close.
 */
static void forkers_rank(const void *arg)
{
	static struct forkers forkers;
	struct mt_open open = { .caps = FI_ATOMIC, .automatic = true };
	pthread_t threads[FORKERS_MAX], talks, opens;

	forkers.threads = *(const int *)arg;
	if (mt_rank == ASKS)
		mt_require(pthread_atfork(slow_fork, NULL, NULL) == 0, "pthread_atfork");
	open_own(&open);
	mt_publish(&own.talk.ep, mt_rank);
	mt_published(&own.talk.ep, !mt_rank);
	if (mt_rank == SERVES) {
		talk_serve(&own.talk);
	} else {
		mt_must(-pthread_barrier_init(&forkers.begin, NULL, (unsigned int)forkers.threads));
		mt_must(-pthread_create(&talks, NULL, ask_for_ever, &forkers.stop));
		mt_must(-pthread_create(&opens, NULL, open_on, &forkers));
		for (int i = 0; i < forkers.threads; i++)
			mt_must(-pthread_create(&threads[i], NULL, fork_on, &forkers));
		for (int i = 0; i < forkers.threads; i++)
			pthread_join(threads[i], NULL);
		atomic_store(&forkers.stop, true);
		pthread_join(opens, NULL);
		pthread_join(talks, NULL);
		mt_require(atomic_load(&slow_forks) >= FORKS, "%u forks", atomic_load(&slow_forks));
		mt_require(!count_lines("was forked while another call held a lock"),
			   "a fork has waited for a lock in vain");
	}
	mt_barrier(NULL);
	close_parent();
}

/* ---- amid a join ----------------------------------------------------------------------------- */

#define JOIN_FORKS 20
#define CHILD_RANK 1

struct joining {
	struct mt_ep ep;
	struct fid_eq *eq;
	struct fid_av_set *set;
	struct fid_mc *mc;
	_Atomic bool stop;
};

static void *read_events(void *arg)
{
	struct joining *joining = arg;
	struct fi_eq_entry entry;
	uint32_t event;

	while (!atomic_load(&joining->stop))
		mt_require(fi_eq_read(joining->eq, &event, &entry, sizeof(entry), 0) == -FI_EAGAIN,
			   "an event");
	return NULL;
}

static void open_joining(struct joining *joining, const struct mt_ep *other)
{
	struct fi_av_set_attr attr = { .start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL };
	struct fi_eq_attr eq_attr = { 0 };
	fi_addr_t addr;

	mt_open(&joining->ep, &(struct mt_open){ .caps = FI_COLLECTIVE });
	mt_must(fi_eq_open(joining->ep.fabric, &eq_attr, &joining->eq, NULL));
	mt_must(fi_domain_bind(joining->ep.domain, &joining->eq->fid, 0));
	mt_must(fi_av_set(joining->ep.av, &attr, &joining->set, NULL));
	mt_must(fi_av_set_insert(joining->set, mt_insert(&joining->ep, joining->ep.name)));
	mt_must(fi_av_set_insert(joining->set, mt_insert(&joining->ep, other->name)));
	mt_must(fi_av_set_addr(joining->set, &addr));
	mt_must(fi_join_collective(joining->ep.ep, addr, joining->set, 0, &joining->mc, NULL));
}

static void close_joining(struct joining *joining)
{
	mt_must(fi_close(&joining->set->fid));
	mt_must(fi_close(&joining->ep.ep->fid));
	mt_must(fi_close(&joining->mc->fid)); /* its join has not ended before */
	mt_must(fi_close(&joining->ep.cq->fid));
	mt_must(fi_close(&joining->ep.av->fid));
	mt_must(fi_close(&joining->ep.domain->fid));
	mt_must(fi_close(&joining->eq->fid));
	mt_must(fi_close(&joining->ep.fabric->fid));
	fi_freeinfo(joining->ep.info);
}

/* A thread reads an event queue, and so polls a join that the other member does not answer: fork(2) finds it in there. */
static void amid_join_rank(const void *arg)
{
	static struct joining joining;
	pthread_t thread;
	struct mt_ep other;
	int status;

	(void)arg;
	mt_open(&other, &(struct mt_open){ .caps = FI_COLLECTIVE });
	open_joining(&joining, &other);
	mt_must(-pthread_create(&thread, NULL, read_events, &joining));
	for (int i = 0; i < JOIN_FORKS; i++) {
		pid_t pid = fork();

		mt_require(pid >= 0, "fork");
		if (!pid) {
			mt_rank = CHILD_RANK;
			close_joining(&joining);
			_exit(0);
		}
		mt_require(waitpid(pid, &status, 0) == pid && status == 0, "child %d: status %#x, %s", i,
			   status, mt_failure(CHILD_RANK));
	}
	atomic_store(&joining.stop, true);
	pthread_join(thread, NULL);
	close_joining(&joining);
	mt_close(&other);
}

/* ---- in the middle of a call ----------------------------------------------------------------- */

/* A pipe that takes no more bytes: a thread that logs stays where it is. */
static int full_pipe(int *reader)
{
	int fds[2];

	mt_require(pipe(fds) == 0, "pipe");
	mt_require(fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0, "fcntl");
	while (write(fds[1], "x", 1) == 1)
		;
	mt_require(fcntl(fds[1], F_SETFL, 0) == 0, "fcntl");
	*reader = fds[0];
	return fds[1];
}

static void *close_and_log(void *ep)
{
	mt_must(fi_close(&((struct fid_ep *)ep)->fid));
	return NULL;
}

static struct joining unended; /* its group is busy */

/* None of the parent's objects is whole; the child can close all of them, and then open and use its own. */
static void torn_child(int log)
{
	dup2(log, STDERR_FILENO);
	call_messages(own.talk.ep.ep, 0);
	mt_must(fi_close(&own.talk.mr->fid));
	mt_must(fi_close(&own.local->fid));
	mt_must(fi_close(&own.alias->fid));
	mt_must(fi_close(&own.talk.ep.ep->fid));
	mt_must(fi_close(&own.cntr->fid));
	mt_must(fi_close(&own.eq->fid));
	mt_must(fi_close(&unended.mc->fid));
	opened_by = 0;
	mix();
	_exit(0);
}

/* A thread holds the domain's lock for as long as we like; fork(2) does not wait for it. */
static void torn_rank(const void *arg)
{
	struct mt_open open = { .caps = FI_ATOMIC, .automatic = true };
	int log = dup(STDERR_FILENO), writer, reader, status;
	char drain[4096];
	pthread_t thread;
	struct mt_ep other;
	struct fid_ep *ep;
	pid_t pid;

	(void)arg;
	/* it would log the files of other tests that it removes, and block on the full pipe with the lock of stderr */
	setenv("FI_SHMCMA_DAEMON", "0", 1);
	open_own(&open);
	mt_must(fi_endpoint(own.talk.ep.domain, own.talk.ep.info, &ep, NULL));
	mt_must(fi_ep_bind(ep, &own.talk.ep.av->fid, 0));
	mt_must(fi_ep_bind(ep, &own.talk.ep.cq->fid, FI_TRANSMIT | FI_RECV));
	mt_must(fi_enable(ep));
	mt_open(&other, &(struct mt_open){ .caps = FI_COLLECTIVE });
	open_joining(&unended, &other);
	writer = full_pipe(&reader);
	dup2(writer, STDERR_FILENO);
	mt_require(pthread_create(&thread, NULL, close_and_log, ep) == 0, "no thread");
	mt_poll_for(NULL, 0.1);
	pid = fork();
	mt_require(pid >= 0, "fork");
	if (!pid)
		torn_child(log);
	mt_require(waitpid(pid, &status, 0) == pid && status == 0, "the child: status %#x", status);
	dup2(log, STDERR_FILENO);
	mt_require(count_lines("was forked while another call held a lock") == 1,
		   "the child says nothing");
	close(writer);
	while (read(reader, drain, sizeof(drain)) > 0)
		;
	pthread_join(thread, NULL);
	mt_insert(&own.talk.ep, own.talk.ep.name);
	close_joining(&unended);
	mt_close(&other);
	close_parent();
}

/* ---- daemon(3) ------------------------------------------------------------------------------- */

#define DAEMON_NAME 3 /* of what its parent has had open */

/* A process of its own, since its first part ends. True: that ended well; flag 2 is for the second one. */
static void daemonize(bool before)
{
	struct talk talk;

	watchdog_start("the parent of daemon(3)", 0);
	if (before)
		mt_require(daemon(1, 1) == 0, "daemon");
	open_own(NULL);
	mt_publish(&own.talk.ep, DAEMON_NAME);
	talk_all(&own.talk, talk_friend(&own.talk, mt_published(NULL, SERVES)));
	if (!before) {
		mt_require(daemon(1, 1) == 0, "daemon");
		watchdog_start("the child of daemon(3)", 0);
		call_everything();
		close_own();
		opened_by = 0;
		talk_open(&talk, NULL);
		talk.ep.silent = true;
		talk_all(&talk, talk_friend(&talk, mt_published(NULL, SERVES)));
		talk_close(&talk);
	} else {
		close_parent();
	}
	atomic_store(mt_flag(2), 1);
	exit(0);
}

static void daemon_rank(const void *arg)
{
	const bool *before = arg;
	struct mt_ep ep;
	pid_t pid;
	int status;

	if (mt_rank == SERVES) {
		open_own(NULL);
		mt_publish(&own.talk.ep, SERVES);
		talk_serve(&own.talk);
		close_parent();
		return;
	}
	pid = fork();
	mt_require(pid >= 0, "fork");
	if (!pid)
		daemonize(*before);
	mt_require(waitpid(pid, &status, 0) == pid && status == 0, "status %#x", status);
	mt_doing("waiting for the daemon");
	mt_flag_wait(NULL, 2, 1);
	/* the next process that opens a domain removes the files of the first part, which has ended */
	open_own(NULL);
	mt_require(!talk_has_file(mt_published(NULL, DAEMON_NAME)), "the name of the dead has stayed");
	ep = own.talk.ep;
	talk_stop(&own.talk, mt_insert(&ep, mt_published(NULL, SERVES)));
	close_parent();
}

/* ---- parent and child with one pid ----------------------------------------------------------- */

/* In a new pid namespace, as its first process. */
static int run_as_first(void (*body)(const void *arg), const void *arg)
{
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		mt_skip("no pid namespaces here: %s", strerror(errno));
	pid = fork();
	mt_require(pid >= 0, "fork: %s", strerror(errno));
	if (!pid) {
		mt_require(getpid() == 1, "not the first");
		body(arg);
		exit(0);
	}
	mt_require(waitpid(pid, &status, 0) == pid, "waitpid");
	return status;
}

static void first_child(const void *arg)
{
	const enum ending *ending = arg;

	call_everything();
	if (*ending == BY_RETURN) {
		close_own();
		opened_by = 0;
	} else {
		opened_by = 0; /* nothing at exit: only what the library does by itself */
	}
	end_as(*ending);
}

static void first_parent(const void *arg)
{
	int status;

	open_own(NULL);
	mt_publish(&own.talk.ep, ASKS);
	status = run_as_first(first_child, arg);
	mt_require(status == 0, "the child with its parent's pid: status %#x", status);
	mt_require(talk_has_file(own.talk.ep.name), "the parent's name has gone");
	talk_serve(&own.talk);
	close_parent();
}

static void one_pid_rank(const void *arg)
{
	int status;

	if (MT_SANITIZED)
		mt_skip("the leak sanitizer does not find itself in /proc");
	if (mt_rank == ASKS) {
		status = run_as_first(first_parent, arg);
		if (WIFEXITED(status) && WEXITSTATUS(status) == MT_SKIP)
			_exit(MT_SKIP);
		mt_require(status == 0, "status %#x", status);
		return;
	}
	open_own(NULL);
	for (int i = 0; i < 3; i++)
		talk_all(&own.talk, talk_friend(&own.talk, mt_published(&own.talk.ep, ASKS)));
	talk_stop(&own.talk, talk_friend(&own.talk, mt_published(&own.talk.ep, ASKS)));
	close_parent();
}

int main(void)
{
	static const bool before = true, after = false;
	static const enum ending by_exit = BY_EXIT, by_close = BY_RETURN;
	static const int two = 2, eight = 8, many = FORKERS_MAX;
	static const struct mt_case more[] = {
		{ .name = "threads", .ranks = 2, .rank = threads_rank },
		{ .name = "two-fork-at-once", .ranks = 2, .rank = forkers_rank, .arg = &two },
		{ .name = "eight-fork-at-once", .ranks = 2, .rank = forkers_rank, .arg = &eight },
		{ .name = "32-fork-at-once", .ranks = 2, .rank = forkers_rank, .arg = &many },
		{ .name = "torn", .ranks = 1, .rank = torn_rank },
		{ .name = "amid-join", .ranks = 1, .rank = amid_join_rank },
		{ .name = "daemon-before", .ranks = 2, .rank = daemon_rank, .arg = &before },
		{ .name = "daemon-after", .ranks = 2, .rank = daemon_rank, .arg = &after },
		{ .name = "one-pid-exit", .ranks = 2, .rank = one_pid_rank, .arg = &by_exit },
		{ .name = "one-pid-close", .ranks = 2, .rank = one_pid_rank, .arg = &by_close },
	};
	static const struct fork_case cases[] = {
		{ .name = "calls", .body = call_everything, .refused = 1 },
		{ .name = "calls-exit", .body = call_everything, .ending = BY_EXIT, .refused = 1 },
		{ .name = "calls-thread", .body = call_everything, .refused = 1, .automatic = true },
		{ .name = "_exit", .body = nothing },
		{ .name = "exit", .body = nothing, .ending = BY_EXIT },
		{ .name = "exit-thread", .body = nothing, .ending = BY_EXIT, .automatic = true },
		{ .name = "abort", .body = nothing, .ending = BY_ABORT },
		{ .name = "SIGTERM", .body = nothing, .ending = BY_TERM },
		{ .name = "SIGKILL", .body = nothing, .ending = BY_KILL },
		{ .name = "fresh", .body = talk_afresh, .ending = BY_EXIT },
		{ .name = "fresh-thread", .body = talk_afresh, .ending = BY_EXIT, .automatic = true },
		{ .name = "fresh-left-open", .body = open_afresh, .ending = BY_EXIT },
		{ .name = "close-then-fresh", .body = close_then_afresh },
		{ .name = "all", .body = refused_then_afresh, .refused = 1, .ending = BY_EXIT },
		{ .name = "mixed", .body = mix },
		{ .name = "grandchild", .body = grandchild, .refused = 2, .ending = BY_EXIT },
		{ .name = "grandchild-of-both", .body = grandchild_of_both, .refused = 1 },
		{ .name = "spawn", .make = by_spawn },
		{ .name = "vfork-exec", .make = by_vfork },
		{ .name = "vfork-exit", .make = by_vfork_exit },
		{ .name = "fork-exec", .make = by_exec },
		{ .name = "system", .make = by_system },
		{ .name = "clone", .body = nothing, .make = by_clone },
		{ .name = "service", .body = ask_the_service },
		{ .name = "clone-calls", .body = call_untold, .any = true, .make = by_clone },
		{ .name = "clone-close", .body = close_untold, .any = true, .make = by_clone },
		{ .name = "clone-exit", .body = nothing, .ending = BY_EXIT, .make = by_clone },
	};
	static struct fork_arg arg;
	char name[64];

	if (MT_SANITIZED) {
		printf("SKIP: a sanitizer's allocator may be locked by another thread at fork(2)\n");
		return 77;
	}
	mt_init("test_fork");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int forks = ASKS; forks <= SERVES; forks++) {
			/* nor may a sanitizer's allocator be locked by another thread at fork(2) */
			if (MT_SANITIZED && (cases[i].any || cases[i].body == grandchild_of_both))
				continue; /* a crash is not a finding there */
			arg = (struct fork_arg){ &cases[i], forks };
			snprintf(name, sizeof(name), "%s-%s", cases[i].name, forks ? "serving" : "asking");
			mt_run(&(struct mt_case){ .name = name,
						  .ranks = 2,
						  .rank = fork_rank,
						  .arg = &arg,
						  .flags = MT_CASE_SHMCMA | MT_CASE_LOSSY });
		}
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		struct mt_case test = more[i];

		test.flags = MT_CASE_SHMCMA | MT_CASE_LOSSY;
		mt_run(&test);
	}
	return mt_end();
}
