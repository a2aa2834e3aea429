/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_dropin.c: libshm-fi.so in the place of libfabric's provider shm: it is taken, it answers what shm answers, any
 * text is a name, and the parameters of shm hold. Each test is a process that sets FI_PROVIDER_PATH before libfabric
 * looks. The module is in dropin of the build, beside the directory that FI_PROVIDER_PATH names for the tests.
 */
#define _GNU_SOURCE 1
#define PAIR_GETINFO fi_getinfo
#define PAIR_FABRIC fi_fabric
#define PAIR_HINTS shm_hints
#include <rdma/fabric.h>
struct pair_want;
static struct fi_info *shm_hints(const struct pair_want *want);

#include "pair.h"
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include "../owner.h"

#define HIDDEN (1ULL << 60) /* flag of fi_getinfo by which other providers ask: fi_peer(3) */
#define MODULE "libshm-fi.so"
#define PATH_SIZE 4096
#define TEXT_SIZE 300

static struct fi_info *shm_hints(const struct pair_want *want)
{
	struct fi_info *hints = pair_hints(want);

	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = strdup("shm");
	return hints;
}

/* libfabric takes the module as its users are told to make it; and `also`, a directory, if that is not NULL. */
static void use_module(const char *also)
{
	bool preferred = FI_VERSION_GE(fi_version(), FI_VERSION(2, 0));
	const char *build = getenv("FI_PROVIDER_PATH");
	char path[2 * PATH_SIZE];

	must(build);
	snprintf(path, sizeof(path), "%s%s/../dropin%s%s%s", preferred ? "+" : "", build,
		 preferred ? "/" MODULE : "", also ? ":" : "", also ? also : "");
	setenv("FI_PROVIDER_PATH", path, 1);
	setenv("FI_LOG_PROV", "shm,shmcma", 1);
}

static bool is_loaded(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[PATH_SIZE];
	bool found = false;

	must(maps);
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, MODULE);
	fclose(maps);
	return found;
}

/* ---- which one is taken ------------------------------------------------------------------------ */

static struct fi_info *first_shm(void)
{
	struct fi_info *hints = shm_hints(&(struct pair_want){ .caps = FI_MSG }), *info;

	gives(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	fi_freeinfo(hints);
	must(!strcmp(info->fabric_attr->prov_name, "shm"));
	must(!strcmp(info->fabric_attr->name, "shm"));
	must(!strcmp(info->domain_attr->name, "shm"));
	return info;
}

static void is_taken(void)
{
	struct fi_info *info;

	use_module(NULL);
	info = first_shm();
	must(is_loaded());
	must(info->ep_attr->protocol != FI_PROTO_SHM); /* which libfabric's shm alone speaks */
	fi_freeinfo(info);
}

/* Where nobody has asked for the module, shm is libfabric's. */
static void is_not_taken_unasked(void)
{
	struct fi_info *info = first_shm();

	must(!is_loaded());
	gives(info->ep_attr->protocol, FI_PROTO_SHM);
	fi_freeinfo(info);
}

/* ---- what shm promises ------------------------------------------------------------------------- */

/* The attributes that hints got; a promise is kept if ours are the same or more. */
struct promise {
	int ret;
	uint64_t caps, mode, tx_order, rx_order, tx_comp, rx_comp, tx_op, rx_op, domain_caps, tag_format;
	int mr_mode, threading, control, data, rm, ep_type;
	uint32_t addr_format;
	size_t inject, message, tx_size, rx_size, tx_iov, rx_iov, rma_iov, data_size, key_size, raw, war, waw;
};

struct question {
	struct fi_info *hints;
	uint64_t flags;
	uint32_t version;
};

static struct promise promise_for(const struct question *question)
{
	struct fi_info *info;
	struct promise promise = {
		.ret = fi_getinfo(question->version, NULL, NULL, question->flags, question->hints, &info),
	};

	if (promise.ret)
		return promise;
	promise = (struct promise){
		.caps = info->caps,
		.mode = info->mode,
		.tx_order = info->tx_attr->msg_order,
		.rx_order = info->rx_attr->msg_order,
		.tx_comp = info->tx_attr->comp_order,
		.rx_comp = info->rx_attr->comp_order,
		.tx_op = info->tx_attr->op_flags,
		.rx_op = info->rx_attr->op_flags,
		.domain_caps = info->domain_attr->caps,
		.tag_format = info->ep_attr->mem_tag_format,
		.mr_mode = info->domain_attr->mr_mode,
		.threading = info->domain_attr->threading,
		.control = info->domain_attr->control_progress,
		.data = info->domain_attr->data_progress,
		.rm = info->domain_attr->resource_mgmt,
		.ep_type = info->ep_attr->type,
		.addr_format = info->addr_format,
		.inject = info->tx_attr->inject_size,
		.message = info->ep_attr->max_msg_size,
		.tx_size = info->tx_attr->size,
		.rx_size = info->rx_attr->size,
		.tx_iov = info->tx_attr->iov_limit,
		.rx_iov = info->rx_attr->iov_limit,
		.rma_iov = info->tx_attr->rma_iov_limit,
		.data_size = info->domain_attr->cq_data_size,
		.key_size = info->domain_attr->mr_key_size,
		.raw = info->ep_attr->max_order_raw_size,
		.war = info->ep_attr->max_order_war_size,
		.waw = info->ep_attr->max_order_waw_size,
	};
	fi_freeinfo(info);
	return promise;
}

/* False: there is no n-th question. The second half asks by the newest API that the library has. */
static bool ask(int n, struct question *question)
{
	static const uint64_t caps[] = { 0,
					 FI_MSG,
					 FI_TAGGED,
					 FI_MSG | FI_TAGGED,
					 FI_RMA,
					 FI_ATOMIC,
					 FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV |
						 FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT |
						 FI_LOCAL_COMM,
					 FI_MSG | FI_REMOTE_COMM,
					 FI_MSG | FI_SEND,
					 FI_RMA | FI_READ | FI_REMOTE_WRITE,
					 FI_MSG | FI_TAGGED | FI_PEER,
					 FI_TAGGED | FI_RMA | FI_PEER | FI_AV_USER_ID };
	static const int modes[] = { 0, FI_MR_VIRT_ADDR,
				     FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY, ~3 };
	static const uint64_t orders[] = { 0, FI_ORDER_SAS, FI_ORDER_SAS | FI_ORDER_RAW | FI_ORDER_WAW };
	static const uint64_t comp_orders[] = { 0, 0, FI_ORDER_STRICT };
	const int n_caps = sizeof(caps) / sizeof(caps[0]), n_modes = 4, n_orders = 3;
	const int all = n_caps * n_modes * n_orders;
	struct fi_info *hints;

	if (n >= 4 * all)
		return false;
	hints = shm_hints(&(struct pair_want){ .caps = FI_MSG });
	hints->caps = caps[n % n_caps];
	hints->domain_attr->mr_mode = modes[n / n_caps % n_modes];
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = orders[n / n_caps / n_modes % n_orders];
	hints->rx_attr->comp_order = comp_orders[n / n_caps / n_modes % n_orders];
	*question = (struct question){
		.hints = hints,
		.flags = n / all % 2 ? HIDDEN : 0,
		.version = n / all / 2 ? fi_version() : FI_VERSION(1, 17),
	};
	return true;
}

/* Answers all questions with libfabric's own shm, in a child, to the pipe. */
static void ask_own(int fd)
{
	struct question question;

	setenv("FI_PROVIDER_PATH", "/nonexistent", 1);
	for (int n = 0; ask(n, &question); n++) {
		struct promise promise = promise_for(&question);

		gives(write(fd, &promise, sizeof(promise)), sizeof(promise));
		fi_freeinfo(question.hints);
	}
	_exit(0);
}

/*
 * mr_mode and mode are what the application has to do: ours may be less, or addresses instead of offsets for those that
 * are ready for them. Order between kinds of operations, and of the
 * completions of receives, holds for those that ask for it. libfabric's shm promises the first unasked to those that do
 * without FI_MR_VIRT_ADDR, and that of 1.17 the second to all.
 */
static void compare(int n, const struct question *question, const struct promise *own,
		    const struct promise *ours)
{
	const struct fi_info *hints = question->hints;
	uint64_t order = hints->tx_attr->msg_order;
	bool is_peer = hints->caps & FI_PEER || question->flags & HIDDEN;
	/* not for memory of devices, nor without memory to access, nor unasked for other providers */
	uint64_t others =
		FI_HMEM | (own->caps & (FI_RMA | FI_ATOMIC) ? 0 : FI_RMA_EVENT) | (is_peer ? 0 : FI_PEER);
	int mr_mode = own->mr_mode | (hints->domain_attr->mr_mode & FI_MR_VIRT_ADDR);

	/* where it is offered to everybody, applications take it for a way to other machines */
	must(!((ours->caps | ours->domain_caps) & FI_REMOTE_COMM));
	if (own->ret)
		return;
	gives(ours->ret, 0);
	gives(ours->caps & ours->domain_caps & FI_PEER, is_peer ? FI_PEER : 0);
	dprintf(STDERR_FILENO, "question %d: caps %#llx, %#llx\n", n, (unsigned long long)own->caps,
		(unsigned long long)ours->caps);
	gives(own->caps & ~(ours->caps | others), 0);
	/* FI_AV_USER_ID of a domain means something since 1.20 */
	gives(own->domain_caps & ~(ours->domain_caps | others | FI_AV_USER_ID), 0);
	gives(ours->mode & ~own->mode, 0);
	gives(ours->mr_mode & ~mr_mode, 0);
	gives((order | FI_ORDER_SAS) & own->tx_order & ~ours->tx_order, 0);
	gives((order | FI_ORDER_SAS) & own->rx_order & ~ours->rx_order, 0);
	gives(own->tx_comp & ~ours->tx_comp, 0);
	gives(hints->rx_attr->comp_order & own->rx_comp & ~ours->rx_comp, 0);
	gives(ours->tx_op, own->tx_op);
	gives(ours->rx_op, own->rx_op);
	gives(ours->addr_format, own->addr_format);
	gives(ours->threading, own->threading);
	gives(ours->control, own->control);
	gives(ours->data, own->data);
	gives(ours->rm, own->rm);
	gives(ours->ep_type, own->ep_type);
	gives(ours->tag_format, own->tag_format);
	must(ours->inject >= own->inject);
	must(ours->message >= own->message || ours->message >= PTRDIFF_MAX); /* longer than any buffer */
	must(ours->tx_size >= own->tx_size && ours->rx_size >= own->rx_size);
	must(ours->tx_iov >= own->tx_iov && ours->rx_iov >= own->rx_iov);
	gives(ours->data_size, own->data_size);
	gives(ours->key_size, own->key_size);
	if (own->caps & (FI_RMA | FI_ATOMIC)) {
		must(ours->rma_iov >= own->rma_iov);
		must(ours->raw >= own->raw && ours->war >= own->war && ours->waw >= own->waw);
	}
}

static void promises(void)
{
	struct question question;
	struct promise own;
	int fds[2];
	pid_t child;
	int status;

	gives(pipe(fds), 0);
	child = fork();
	must(child >= 0);
	if (!child) {
		close(fds[0]); /* it ends with the parent */
		ask_own(fds[1]);
	}
	close(fds[1]);
	use_module(NULL);
	for (int n = 0; ask(n, &question); n++) {
		struct promise ours = promise_for(&question);

		gives(read(fds[0], &own, sizeof(own)), sizeof(own));
		compare(n, &question, &own, &ours);
		fi_freeinfo(question.hints);
	}
	gives(waitpid(child, &status, 0), child);
	gives(status, 0);
}

/* FI_REMOTE_COMM is for a user that asks for it by the parameter. */
static void remote_comm(void)
{
	struct fi_info *hints = shm_hints(&(struct pair_want){ .caps = FI_MSG | FI_REMOTE_COMM }), *info;

	use_module(NULL);
	gives(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), 0);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* ---- names ------------------------------------------------------------------------------------- */

/* Opens a pair whose side b has a name of its own. */
static void pair_open_named(struct pair *pair, void *name, size_t size)
{
	pair_open_domain(pair, NULL);
	side_open(pair, &pair->a);
	pair->b.av = pair_open_av(pair);
	pair->b.cq = pair_open_cq(pair);
	pair->b.ep = pair_open_ep(pair);
	pair_bind(pair->b.ep, pair->b.cq, pair->b.av);
	gives(fi_setname(&pair->b.ep->fid, name, size), 0);
	gives(fi_enable(pair->b.ep), 0);
}

/* A pair whose side b has this name, under which a knows it by the other one. */
static void named(const char *name, const char *known_as)
{
	char given[TEXT_SIZE], buf[8];
	struct pair pair;

	strcpy(given, name);
	pair_open_named(&pair, given, strlen(given) + 1);
	pair.a.peer = pair_insert(pair.a.av, known_as);
	gives(fi_recv(pair.b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, buf), 0);
	post(&pair, fi_inject(pair.a.ep, "12345678", 8, pair.a.peer));
	gives(pair_done(&pair, &pair.b).entry.len, 8);
	pair_close(&pair);
}

static void names(void)
{
	char longest[256];

	use_module(NULL);
	named("node:9228", "node:9228");
	named("fi_ns://127.0.0.1:9228", "fi_shm://127.0.0.1:9228"); /* a prefix has no meaning */
	named("fi_shm://1234:0:1", "1234:0:1");
	named("fe80::4dd:97ff:fe9c:1d2b_0001_12345678_03e8",
	      "fe80::4dd:97ff:fe9c:1d2b_0001_12345678_03e8");
	named("a name/with (other) characters", "a name/with (other) characters");
	memset(longest, 'x', sizeof(longest));
	longest[255] = '\0';
	named(longest, longest);
}

/* A node of fi_getinfo() as long as a name may be leads where the name leads, and is shown whole. */
static void long_node(void)
{
	char name[TEXT_SIZE] = "fi_shm://", other[TEXT_SIZE], shown[TEXT_SIZE];
	struct fi_info *hints = shm_hints(&(struct pair_want){ .caps = FI_MSG }), *infos[2];
	const char *texts[] = { name, other };
	char addresses[2][64];
	size_t len = sizeof(shown);
	struct pair pair;

	use_module(NULL);
	memset(name + strlen(name), 'x', 100);
	strcpy(other, name);
	other[strlen(other) - 1] = 'y';
	for (int i = 0; i < 2; i++)
		gives(fi_getinfo(FI_VERSION(1, 17), texts[i], NULL, 0, hints, &infos[i]), 0);
	must(strcmp(infos[0]->dest_addr, infos[1]->dest_addr));
	pair_open_named(&pair, name, strlen(name) + 1);
	texts[1] = infos[0]->dest_addr;
	for (int i = 0; i < 2; i++) {
		size_t size = sizeof(addresses[i]);

		gives(fi_av_lookup(pair.a.av, pair_insert(pair.a.av, texts[i]), addresses[i], &size), 0);
	}
	must(!strncmp(addresses[0], addresses[1], sizeof(addresses[0])));
	must(!strcmp(fi_av_straddr(pair.a.av, name, shown, &len), name));
	gives(len, strlen(name) + 1);
	pair_close(&pair);
	fi_freeinfo(infos[0]);
	fi_freeinfo(infos[1]);
	fi_freeinfo(hints);
}

static void other_names(void)
{
	char name[257], other[256];
	fi_addr_t fi_addr;
	struct pair pair;

	use_module(NULL);
	memset(name, 'x', sizeof(name));
	name[255] = '\0';
	strcpy(other, name);
	other[254] = 'y'; /* differs in its last character alone */
	pair_open_domain(&pair, NULL);
	pair.a.av = pair_open_av(&pair);
	pair.a.cq = pair_open_cq(&pair);
	pair.a.ep = pair_open_ep(&pair);
	pair_bind(pair.a.ep, pair.a.cq, pair.a.av);
	gives(fi_setname(&pair.a.ep->fid, name, sizeof(name) - 1), 0);
	gives(fi_enable(pair.a.ep), 0);
	gives(fi_av_insert(pair.a.av, name, 1, &fi_addr, 0, NULL), 1);
	gives(fi_av_insert(pair.a.av, other, 1, &fi_addr, 0, NULL), 0);
	pair.b.ep = pair_open_ep(&pair);
	name[255] = 'x'; /* of 256 characters */
	gives(fi_setname(&pair.b.ep->fid, name, sizeof(name)), -FI_EINVAL);
	pair_close(&pair);
}

/* As with libfabric's shm: the endpoint returns the name that was set, and peers insert that. */
static void name_returned(void)
{
	char name[] = "a name of any kind", returned[64], buf[8];
	size_t len = sizeof(returned);
	struct pair pair;

	use_module(NULL);
	pair_open_named(&pair, name, sizeof(name));
	gives(fi_getname(&pair.b.ep->fid, returned, &len), 0);
	gives(len, sizeof(name));
	must(!strcmp(returned, name));
	len = 3;
	gives(fi_getname(&pair.b.ep->fid, returned, &len), -FI_ETOOSMALL);
	gives(len, sizeof(name));
	pair.a.peer = pair_insert(pair.a.av, name);
	gives(fi_recv(pair.b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, buf), 0);
	post(&pair, fi_inject(pair.a.ep, "12345678", 8, pair.a.peer));
	gives(pair_done(&pair, &pair.b).entry.len, 8);
	pair_close(&pair);
}

/* ---- parameters -------------------------------------------------------------------------------- */

static void sizes(void)
{
	struct fi_info *info;

	use_module(NULL);
	info = first_shm();
	gives(info->tx_attr->size, 77);
	gives(info->rx_attr->size, 4096);
	fi_freeinfo(info);
}

static void warnings(void)
{
	struct fi_info *info;
	char *text;

	use_module(NULL);
	info = first_shm();
	gives(info->rx_attr->size, 1024);
	fi_freeinfo(info);
	text = pair_log_read(STDERR_FILENO, 0);
	must(strstr(text, "FI_SHM_USE_XPMEM is ignored"));
	must(strstr(text, "FI_SHM_RX_SIZE=777777 is not from 1 to 65536"));
	must(!strstr(text, "FI_SHM_TX_SIZE is ignored"));
	free(text);
}

/* A message of 1 MiB goes by CMA, unless FI_SHM_DISABLE_CMA says no. */
static uint8_t payload[1 << 20];

static void use_module_alone(void)
{
	use_module(NULL);
}

static void sender(struct pair *pair)
{
	pattern_fill(payload, 0, sizeof(payload), 1);
	post(pair, fi_send(pair->a.ep, payload, sizeof(payload), NULL, pair->a.peer, payload));
	pair_done(pair, &pair->a);
}

static void receive(struct pair *pair, bool by_cma)
{
	const char *line;

	gives(fi_recv(pair->a.ep, payload, sizeof(payload), NULL, FI_ADDR_UNSPEC, payload), 0);
	pair_done(pair, &pair->a);
	must(pattern_is(payload, 0, sizeof(payload), 1));
	gives(fi_close(&pair->a.ep->fid), 0);
	pair->a.ep = NULL;
	line = counters_end(&pair_counters);
	gives(counter(line, "rx_pulled_bytes"), by_cma ? 0 : sizeof(payload));
}

static void receiver(struct pair *pair)
{
	receive(pair, true);
}

static void receiver_without_cma(struct pair *pair)
{
	receive(pair, false);
}

#define BOTH_SHM(f, g, environment)                                                                       \
	{                                                                                                 \
		.name = #g, .test_func = pair_both, .initial_state = &(struct pair_test)                  \
		{                                                                                         \
			.first = f, .second = g, .before = use_module_alone, .env = environment           \
		}                                                                                         \
	}

/* ---- libfabric's provider EFA, which uses shm inside a machine -------------------------------------- */

#define EFA_PEERS 128	       /* in its address vector */
#define EFA_ID ((fi_addr_t)77) /* the number of a peer in EFA */
#define EFA_TAG 0x123456789ULL

/* An endpoint of shm under one of EFA. */
struct efa {
	struct owner owner;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_ep *srx, *ep;
};

/* The answer to the hints of EFA. Those of 2.x have FI_PEER and FI_AV_USER_ID as capabilities of the domain. */
static struct fi_info *efa_info(uint64_t domain_caps)
{
	uint32_t library = fi_version(), wanted = FI_VERSION(1, 19);
	struct fi_info *hints = fi_allocinfo(), *info;

	must(hints);
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
		      FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV |
		      FI_LOCAL_COMM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->av_type = FI_AV_TABLE;
	hints->domain_attr->caps = FI_LOCAL_COMM | domain_caps;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->name = strdup("shm");
	hints->fabric_attr->prov_name = strdup("shm");
	hints->ep_attr->type = FI_EP_RDM;
	gives(fi_getinfo(FI_VERSION_LT(library, wanted) ? library : wanted, NULL, NULL, HIDDEN, hints,
			 &info),
	      0);
	fi_freeinfo(hints);
	must(!strcmp(info->fabric_attr->name, "shm"));
	must(info->domain_attr->mr_mode & FI_MR_VIRT_ADDR);
	gives(domain_caps & ~info->domain_attr->caps, 0);
	return info;
}

static void efa_open(struct efa *efa, struct fid_domain *domain, uint64_t domain_caps, const char *name)
{
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .count = EFA_PEERS };
	struct fi_info *info = efa_info(domain_caps); /* for each endpoint again */
	char given[TEXT_SIZE];

	owner_init(&efa->owner);
	gives(fi_av_open(domain, &av_attr, &efa->av, NULL), 0);
	gives(owner_open_cq(&efa->owner, domain, &efa->cq), 0);
	efa->owner.wait_obj = FI_WAIT_UNSPEC; /* as the application asked */
	gives(owner_open_cntr(&efa->owner, domain, &efa->cntr), 0);
	gives(fi_endpoint(domain, info, &efa->ep, NULL), 0);
	gives(fi_ep_bind(efa->ep, &efa->av->fid, 0), 0);
	gives(fi_ep_bind(efa->ep, &efa->cq->fid, FI_TRANSMIT | FI_RECV), 0);
	gives(fi_ep_bind(efa->ep, &efa->cntr->fid, FI_SEND | FI_RECV), 0);
	if (owner_layout() == OWNER_19)
		gives(owner_lend_srx(&efa->owner, domain), 0);
	else
		gives(owner_open_srx(&efa->owner, domain, &efa->srx), 0);
	strcpy(given, name);
	gives(fi_setname(&efa->ep->fid, given, strlen(given) + 1), 0);
	gives(fi_ep_bind(efa->ep, efa->srx ? &efa->srx->fid : &efa->owner.srx.ep.fid, 0), 0);
	gives(fi_enable(efa->ep), 0);
	fi_freeinfo(info);
}

static fi_addr_t efa_insert(struct efa *efa, const char *name)
{
	fi_addr_t addr = EFA_ID;

	gives(fi_av_insert(efa->av, name, 1, &addr, FI_AV_USER_ID, NULL), 1);
	must(addr < EFA_PEERS);
	return addr;
}

/* In the order of EFA of 2.x: its receive context ends before the endpoint. That of 1.x closes none. */
static void efa_close(struct efa *efa)
{
	if (efa->srx)
		gives(fi_close(&efa->srx->fid), 0);
	memset(&efa->owner.srx, 0xa5, sizeof(efa->owner.srx));
	gives(fi_close(&efa->ep->fid), 0);
	gives(fi_close(&efa->cntr->fid), 0);
	gives(fi_close(&efa->cq->fid), 0);
	gives(fi_close(&efa->av->fid), 0);
}

/* A completion there, which succeeds. */
static const struct owner_done *efa_done(struct efa *efa, struct efa *at)
{
	while (at->owner.done_read == at->owner.done_count)
		for (int i = 0; i < 2; i++)
			gives(fi_cq_read(efa[i].cq, NULL, 0), 0);
	gives(at->owner.done[at->owner.done_read].err, 0);
	return &at->owner.done[at->owner.done_read++];
}

/* EFA sends one-sided operations to peers of the same machine to shm, too. */
static void efa_access(struct efa *efa, struct fid_domain *domain, fi_addr_t peer)
{
	uint64_t there[4] = { 1, 2, 3, 4 }, here = 77, addr = (uintptr_t)there, key, one = 1;
	struct fid_mr *mr;

	gives(fi_mr_reg(domain, there, sizeof(there), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 4711, 0, &mr,
			NULL),
	      0);
	key = fi_mr_key(mr);
	gives(fi_write(efa[0].ep, &here, 8, NULL, peer, addr, key, &here), 0);
	must(efa_done(efa, &efa[0])->context == &here);
	gives(there[0], 77);
	gives(fi_writedata(efa[0].ep, &here, 8, NULL, 4712, peer, addr + 8, key, &here), 0);
	must(efa_done(efa, &efa[0])->context == &here);
	gives(efa_done(efa, &efa[1])->data, 4712);
	must(efa[1].owner.done[efa[1].owner.done_read - 1].flags & FI_REMOTE_CQ_DATA);
	gives(there[1], 77);
	gives(fi_read(efa[0].ep, &here, 8, NULL, peer, addr + 16, key, &here), 0);
	must(efa_done(efa, &efa[0])->flags & FI_READ);
	gives(here, 3);
	gives(fi_inject_atomic(efa[0].ep, &one, 1, peer, addr + 24, key, FI_UINT64, FI_SUM), 0);
	gives(fi_fetch_atomic(efa[0].ep, &one, 1, NULL, &here, NULL, peer, addr + 24, key, FI_UINT64,
			      FI_SUM, &one),
	      0);
	must(efa_done(efa, &efa[0])->context == &one);
	gives(here, 5);
	gives(there[3], 6);
	gives(fi_read(efa[0].ep, &here, 8, NULL, peer, addr, key + 1, &here),
	      0); /* no such registration */
	while (efa[0].owner.done_read == efa[0].owner.done_count)
		for (int i = 0; i < 2; i++)
			gives(fi_cq_read(efa[i].cq, NULL, 0), 0);
	must(efa[0].owner.done[efa[0].owner.done_read++].err);
	gives(fi_close(&mr->fid), 0);
}

static void efa_with(uint64_t domain_caps)
{
	/* GID, number and key of the queue pair, user */
	static const char *const names[] = { "fe80::4a5:28ff:fe98:e500_0001_12345678_03e8",
					     "fe80::4a5:28ff:fe98:e500_0002_12345678_03e8" };
	static struct efa efa[2];
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	char buf[8] = "";
	struct iovec iov = { buf, sizeof(buf) };
	fi_addr_t peer;

	use_module(NULL);
	info = efa_info(domain_caps);
	gives(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
	gives(fi_domain(fabric, info, &domain, NULL), 0);
	fi_freeinfo(info);
	for (int i = 0; i < 2; i++)
		efa_open(&efa[i], domain, domain_caps, names[i]);
	peer = efa_insert(&efa[0], names[1]);
	efa_insert(&efa[1], names[0]);
	gives(owner_recv(&efa[1].owner, true, &iov, 1, EFA_ID, EFA_TAG, 0, FI_COMPLETION, buf), 1);
	gives(fi_tsend(efa[0].ep, "1234567", 8, NULL, peer, EFA_TAG, NULL), 0);
	efa_done(efa, &efa[0]);
	efa_done(efa, &efa[1]);
	gives(efa[1].owner.done[0].source, EFA_ID);
	must(efa[1].owner.done[0].context == buf);
	must(!strcmp(buf, "1234567"));
	for (int i = 0; i < 2; i++) {
		gives(fi_cntr_read(efa[i].cntr), 0);
		gives(efa[i].owner.cntr.value, 1);
	}
	efa_access(efa, domain, peer);
	for (int i = 0; i < 2; i++)
		efa_close(&efa[i]);
	gives(fi_close(&domain->fid), 0);
	gives(fi_close(&fabric->fid), 0);
}

/* The hidden flag says it alone. */
static void efa_of_1_x(void)
{
	efa_with(0);
}

static void efa_of_2_x(void)
{
	efa_with(FI_PEER | FI_AV_USER_ID);
}

/* ---- both modules in one process ----------------------------------------------------------------- */

/*
 * They are two copies of one code, and serve each their own users. No copy opens a file of the other one, because that
 * could end the other's lock on it; so their endpoints do not reach each other inside the process.
 */
static void both_modules(void)
{
	char buf[8], build[PATH_SIZE];
	struct pair pair, other;
	struct fi_info *hints;
	fi_addr_t fi_addr;

	snprintf(build, sizeof(build), "%s", getenv("FI_PROVIDER_PATH"));
	use_module(build);
	pair_open(&pair, NULL);
	hints = pair_hints(&pair.want);
	memset(&other, 0, sizeof(other));
	gives(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &other.info), 0);
	fi_freeinfo(hints);
	must(!strcmp(other.info->fabric_attr->prov_name, "shmcma"));
	other.link = -1;
	gives(fi_fabric(other.info->fabric_attr, &other.fabric, NULL), 0);
	gives(fi_domain(other.fabric, other.info, &other.domain, NULL), 0);
	side_open(&other, &other.a);
	side_open(&other, &other.b);
	pair_introduce(&other);
	gives(fi_av_insert(other.a.av, pair.b.name, 1, &fi_addr, 0, NULL), 0);
	gives(fi_av_insert(pair.a.av, other.b.name, 1, &fi_addr, 0, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct pair *each = i ? &other : &pair;

		gives(fi_recv(each->b.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, buf), 0);
		post(each, fi_inject(each->a.ep, "12345678", 8, each->a.peer));
		gives(pair_done(each, &each->b).entry.len, 8);
	}
	pair_close(&other);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(is_taken),
		ALONE(is_not_taken_unasked),
		ALONE(promises),
		ALONE_ENV(remote_comm, "FI_SHMCMA_REMOTE_COMM=1"),
		ALONE(names),
		ALONE(long_node),
		ALONE(other_names),
		ALONE(name_returned),
		ALONE_ENV(sizes, "FI_SHM_TX_SIZE=77 FI_SHM_RX_SIZE=4096"),
		ALONE_ENV(warnings, "FI_SHM_TX_SIZE=77 FI_SHM_RX_SIZE=777777 FI_SHM_USE_XPMEM=1"),
		BOTH_SHM(sender, receiver, NULL),
		BOTH_SHM(sender, receiver_without_cma, "FI_SHM_DISABLE_CMA=1"),
		ALONE(efa_of_1_x),
		ALONE(efa_of_2_x),
		ALONE(both_modules),
	};

	unsetenv("FI_PROVIDER"); /* which names shmcma for all tests */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
