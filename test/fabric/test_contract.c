/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_contract.c: what CONTRACT.md says of whole families: applications of each API version with the structures
 * of their time, hooks that libfabric puts over us, fi_tostr(3), and every command, option and flag that there
 * could be, of every object: known ones are other tests' affair, all others are refused with one code.
 */
#include "pair.h"

#include <dlfcn.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_trigger.h>

#define CAPS (PAIR_CAPS | FI_RMA | FI_ATOMIC | FI_TRIGGER | FI_COLLECTIVE)
#define LARGE 200000
#define KEY 77

static uint8_t out[LARGE], in[LARGE], memory[LARGE];

/* ---- traffic --------------------------------------------------------------------------------- */

static void messages(struct pair *pair, bool tagged, size_t len)
{
	struct done done;

	pattern_fill(out, 0, len, (unsigned int)len + tagged);
	gives(kind_recv(tagged, &pair->b, in, len, FI_ADDR_UNSPEC, in), 0);
	post(pair, kind_send(tagged, &pair->a, out, len, pair->a.peer, out));
	done = pair_done(pair, &pair->b);
	must(done.entry.op_context == in && done.entry.len == len && done.source == pair->b.peer);
	must(pattern_is(in, 0, len, (unsigned int)len + tagged));
	must(pair_done(pair, &pair->a).entry.op_context == out);
}

static void one_sided(struct pair *pair)
{
	uint64_t operand = 3, addr, key;
	struct fid_mr *mr;

	gives(fi_mr_reg(pair->domain, memory, LARGE, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr,
			NULL),
	      0);
	key = fi_mr_key(mr);
	addr = 0;
	pattern_fill(out, 0, LARGE, 5);
	post(pair, fi_write(pair->a.ep, out, LARGE, NULL, pair->a.peer, addr, key, out));
	must(pair_done(pair, &pair->a).entry.op_context == out);
	must(pattern_is(memory, 0, LARGE, 5));
	post(pair, fi_read(pair->a.ep, in, LARGE, NULL, pair->a.peer, addr, key, in));
	must(pair_done(pair, &pair->a).entry.op_context == in);
	must(pattern_is(in, 0, LARGE, 5));
	memset(memory, 0, 8);
	post(pair,
	     fi_atomic(pair->a.ep, &operand, 1, NULL, pair->a.peer, addr, key, FI_UINT64, FI_SUM, out));
	must(pair_done(pair, &pair->a).entry.op_context == out);
	while (memory[0] != 3) /* it is complete when the target is to do it */
		pair_progress(pair);
	gives(fi_close(&mr->fid), 0);
}

static void traffic(struct pair *pair)
{
	static const size_t lens[] = { 8, 5000, LARGE };

	for (size_t i = 0; i < 3; i++) {
		messages(pair, false, lens[i]);
		messages(pair, true, lens[i]);
	}
	one_sided(pair);
}

/* ---- API versions ---------------------------------------------------------------------------- */

/* From 1.0 on: objects, messages, one-sided operations. Before 1.5 mr_mode is one of two values. */
static void api_versions(void)
{
	for (uint32_t minor = 0; minor <= 17; minor++) {
		struct pair_want want = { .caps = CAPS & ~FI_COLLECTIVE, .version = FI_VERSION(1, minor) };
		struct pair pair;

		pair_open(&pair, &want);
		gives(pair.fabric->api_version, want.version);
		gives(pair.info->domain_attr->mr_mode, minor < 5 ? FI_MR_SCALABLE : 0);
		traffic(&pair);
		pair_close(&pair);
	}
}

/*
 * A copy of the first `size` bytes, behind which there is no memory, but for bytes that make no sense where it has
 * to begin earlier to be aligned. Kept to the end of the process.
 */
static void *at_edge(const void *from, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), align = _Alignof(struct fi_info);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *copy = pages + page - (size + align - 1) / align * align;

	must(pages != MAP_FAILED);
	gives(mprotect(pages + page, page, PROT_NONE), 0);
	memset(copy, 0xa5, (size_t)(pages + page - copy));
	return memcpy(copy, from, size);
}

/* With structures that end where those of that version did (libfabric's src/abi_1_0.c). */
static struct fi_info *of_old(const struct fi_info *info, uint32_t version)
{
	bool first = version < FI_VERSION(1, 5);
	struct fi_info *old =
		at_edge(info, version < FI_VERSION(1, 7) ? offsetof(struct fi_info, nic) : sizeof(*info));

	old->tx_attr = at_edge(info->tx_attr, offsetof(struct fi_tx_attr, tclass));
	old->rx_attr = at_edge(info->rx_attr, sizeof(*info->rx_attr));
	old->ep_attr = at_edge(info->ep_attr, first ? offsetof(struct fi_ep_attr, auth_key_size)
						    : sizeof(*info->ep_attr));
	old->domain_attr = at_edge(info->domain_attr, first ? offsetof(struct fi_domain_attr, cntr_cnt)
							    : offsetof(struct fi_domain_attr, tclass));
	old->fabric_attr = at_edge(info->fabric_attr, first ? offsetof(struct fi_fabric_attr, api_version)
							    : sizeof(*info->fabric_attr));
	return old;
}

/* The structures of such an application reach us as they are: we read no member that they do not have. */
static void old_structures(void)
{
	static const uint32_t minors[] = { 0, 4, 5, 6, 7 };

	for (size_t i = 0; i < sizeof(minors) / sizeof(minors[0]); i++) {
		struct pair_want want = { .caps = CAPS & ~FI_COLLECTIVE,
					  .version = FI_VERSION(1, minors[i]) };
		struct fid_ep *sep, *context, *srx;
		struct fi_info *whole, *old;
		struct fid_stx *stx;
		struct pair pair;

		pair_open_domain(&pair, &want);
		gives(fi_close(&pair.domain->fid), 0);
		whole = pair.info;
		pair.info = old = of_old(whole, want.version);
		gives(fi_domain(pair.fabric, old, &pair.domain, NULL), 0);
		side_open(&pair, &pair.a);
		side_open(&pair, &pair.b);
		pair_introduce(&pair);
		traffic(&pair);
		gives(fi_scalable_ep(pair.domain, old, &sep, NULL), 0);
		gives(fi_tx_context(sep, 0, old->tx_attr, &context, NULL), 0);
		gives(fi_close(&context->fid), 0);
		gives(fi_rx_context(sep, 0, old->rx_attr, &context, NULL), 0);
		gives(fi_close(&context->fid), 0);
		gives(fi_close(&sep->fid), 0);
		gives(fi_stx_context(pair.domain, old->tx_attr, &stx, NULL), 0);
		gives(fi_close(&stx->fid), 0);
		gives(fi_srx_context(pair.domain, old->rx_attr, &srx, NULL), 0);
		gives(fi_close(&srx->fid), 0);
		pair.info = whole;
		pair_close(&pair);
	}
}

/* An application that was linked when libfabric's ABI was an older one calls these. */
struct abi {
	const char *symbols, *fabric_symbols;
	uint32_t version;
};

static void *symbol(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_DEFAULT, name, version);

	must(found);
	return found;
}

static void speak_by(const struct abi *abi)
{
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
		       const struct fi_info *hints, struct fi_info **info);
	int (*fabric)(struct fi_fabric_attr * attr, struct fid_fabric * *fabric, void *context);
	void (*freeinfo)(struct fi_info * info);
	struct pair pair = { .want = { .caps = CAPS & ~FI_COLLECTIVE }, .link = -1 };
	struct fi_info *hints = pair_hints(&pair.want);

	*(void **)&getinfo = symbol("fi_getinfo", abi->symbols);
	*(void **)&freeinfo = symbol("fi_freeinfo", abi->symbols);
	*(void **)&fabric = symbol("fi_fabric", abi->fabric_symbols);
	gives(getinfo(abi->version, NULL, NULL, 0, hints, &pair.info), 0);
	fi_freeinfo(hints);
	gives(fabric(pair.info->fabric_attr, &pair.fabric, NULL), 0);
	gives(fi_domain(pair.fabric, pair.info, &pair.domain, NULL), 0);
	side_open(&pair, &pair.a);
	side_open(&pair, &pair.b);
	pair_introduce(&pair);
	traffic(&pair);
	freeinfo(pair.info);
	pair.info = NULL;
	pair_close(&pair);
}

static void old_abis(void)
{
	static const struct abi abis[] = {
		{ "FABRIC_1.0", "FABRIC_1.0", FI_VERSION(1, 0) },
		{ "FABRIC_1.0", "FABRIC_1.0", FI_VERSION(1, 4) },
		{ "FABRIC_1.1", "FABRIC_1.1", FI_VERSION(1, 5) },
		{ "FABRIC_1.2", "FABRIC_1.1", FI_VERSION(1, 7) },
		{ "FABRIC_1.3", "FABRIC_1.1", FI_VERSION(1, 17) },
	};

	for (size_t i = 0; i < sizeof(abis) / sizeof(abis[0]); i++)
		speak_by(&abis[i]);
}

/* ---- hooks ----------------------------------------------------------------------------------- */

/* Is the table `ops` in this library? */
static bool is_of(const void *ops, const char *library)
{
	Dl_info info;

	must(dladdr(ops, &info));
	return strstr(info.dli_fname, library);
}

/*
 * Between libfabric and the C library: the perf hook counts instructions, and does not come where they cannot be
 * counted, as in a virtual machine. So it gets a counter of ours, a page such as the kernel's: with an index while
 * it is opened, and without from then on, which makes it read `offset` and leave the processor alone.
 */
static struct perf_event_mmap_page *counter_page;

static int counter_open(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("counter", MFD_CLOEXEC);

	gives(ftruncate(fd, (off_t)page), 0);
	counter_page = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(counter_page != MAP_FAILED);
	counter_page->index = 1;
	return fd;
}

/* syscall(2), of six arguments whether or not the caller has so many. */
__attribute__((visibility("default"))) long any_syscall(long number, long a, long b, long c, long d, long e,
							long f) __asm__("syscall");

long any_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	static long (*real)(long number, ...);

	if (number == SYS_perf_event_open)
		return counter_open();
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	return real(number, a, b, c, d, e, f);
}

/* Events and counters, and calls that a hook hands through. */
static void other_calls(struct pair *pair)
{
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_entry entry;
	struct fid_cntr *cntr;
	struct fid_ep *alias = NULL;
	char name[64];
	struct fid_av *av;
	struct fid_eq *eq;
	uint32_t event;
	fi_addr_t addr;
	size_t len = sizeof(name);

	gives(fi_eq_open(pair->fabric, &eq_attr, &eq, NULL), 0);
	gives(fi_av_open(pair->domain, &av_attr, &av, NULL), 0);
	gives(fi_av_bind(av, &eq->fid, 0), 0);
	gives(fi_av_insert(av, pair->a.name, 1, &addr, 0, NULL), 0);
	gives(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), sizeof(entry));
	gives(event, FI_AV_COMPLETE);
	gives(fi_av_lookup(av, addr, name, &len), 0);
	gives(strcmp(name, pair->a.name), 0);
	gives(fi_close(&av->fid), 0);
	gives(fi_close(&eq->fid), 0);
	gives(fi_cntr_open(pair->domain, &cntr_attr, &cntr, NULL), 0);
	gives(fi_cntr_read(cntr), 0);
	gives(fi_cntr_wait(cntr, 0, 0), 0);
	gives(fi_close(&cntr->fid), 0);
	gives(fi_ep_alias(pair->a.ep, &alias, FI_TRANSMIT | FI_DELIVERY_COMPLETE), 0);
	gives(fi_close(&alias->fid), 0);
	gives(fi_cq_readerr(pair->a.cq, &(struct fi_cq_err_entry){ .err = 0 }, 0), -FI_EAGAIN);
}

/* The hook of that name is one of those that the environment asks for. */
static bool asked_for(const char *hook)
{
	return strstr(getenv("FI_HOOK"), hook);
}

/* The debug hook wants FI_THREAD_DOMAIN. */
static void hooked(void)
{
	const struct pair_want want = { .caps = CAPS & ~FI_COLLECTIVE, .threading = FI_THREAD_DOMAIN };
	struct pair pair;

	pair_open(&pair, &want);
	gives(counter_page != NULL, asked_for("perf"));
	if (counter_page)
		counter_page->index = 0;
	must(is_of(pair.domain->ops, "libfabric.so"));
	must(is_of(pair.a.ep->msg, "libfabric.so"));
	traffic(&pair);
	other_calls(&pair);
	pair_close(&pair);
}

static void not_hooked(void)
{
	struct pair pair;

	pair_open(&pair, NULL);
	must(is_of(pair.domain->ops, "libshmcma-fi.so"));
	pair_close(&pair);
}

/* ---- fi_tostr -------------------------------------------------------------------------------- */

/* Is the name in the text, with nothing that could belong to a name before and behind it? */
static bool names(const char *text, const char *name)
{
	const char *word = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
	size_t len = strlen(name);

	for (const char *at = text; (at = strstr(at, name)); at++)
		if ((at == text || !strchr(word, at[-1])) && (!at[len] || !strchr(word, at[len])))
			return true;
	return false;
}

#define NAMED(value)                                                                                      \
	{                                                                                                 \
#value, value                                                                             \
	}
struct named {
	const char *name;
	uint64_t value;
};

static void check_bits(const char *text, uint64_t bits, const struct named *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		gives(names(text, all[i].name), !!(bits & all[i].value));
}

static const struct named caps_named[] = {
	NAMED(FI_MSG),	      NAMED(FI_RMA),	      NAMED(FI_TAGGED),	     NAMED(FI_ATOMIC),
	NAMED(FI_MULTICAST),  NAMED(FI_COLLECTIVE),   NAMED(FI_READ),	     NAMED(FI_WRITE),
	NAMED(FI_RECV),	      NAMED(FI_SEND),	      NAMED(FI_REMOTE_READ), NAMED(FI_REMOTE_WRITE),
	NAMED(FI_MULTI_RECV), NAMED(FI_TRIGGER),      NAMED(FI_FENCE),	     NAMED(FI_VARIABLE_MSG),
	NAMED(FI_LOCAL_COMM), NAMED(FI_REMOTE_COMM),  NAMED(FI_SHARED_AV),   NAMED(FI_RMA_EVENT),
	NAMED(FI_SOURCE),     NAMED(FI_NAMED_RX_CTX), NAMED(FI_HMEM),	     NAMED(FI_DIRECTED_RECV),
};
#define CAPS_NAMED (sizeof(caps_named) / sizeof(caps_named[0]))

static const struct named orders_named[] = {
	NAMED(FI_ORDER_RAR),	    NAMED(FI_ORDER_RAW),	NAMED(FI_ORDER_RAS),
	NAMED(FI_ORDER_WAR),	    NAMED(FI_ORDER_WAW),	NAMED(FI_ORDER_WAS),
	NAMED(FI_ORDER_SAR),	    NAMED(FI_ORDER_SAW),	NAMED(FI_ORDER_SAS),
	NAMED(FI_ORDER_RMA_RAR),    NAMED(FI_ORDER_RMA_RAW),	NAMED(FI_ORDER_RMA_WAR),
	NAMED(FI_ORDER_RMA_WAW),    NAMED(FI_ORDER_ATOMIC_RAR), NAMED(FI_ORDER_ATOMIC_RAW),
	NAMED(FI_ORDER_ATOMIC_WAR), NAMED(FI_ORDER_ATOMIC_WAW),
};
#define ORDERS_NAMED (sizeof(orders_named) / sizeof(orders_named[0]))

/* The line of the text that has this key, of which there may be several: the first behind `section`. */
static const char *line_of(const char *text, const char *section, const char *key)
{
	static char line[1024];
	const char *at = strstr(text, section);

	must(at);
	at = strstr(at, key);
	must(at);
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at + strlen(key));
	line[strcspn(line, "\n")] = '\0';
	return line;
}

static void check_number(const char *text, const char *section, const char *key, uint64_t value)
{
	char want[64];

	snprintf(want, sizeof(want), "%llu", (unsigned long long)value);
	if (strcmp(line_of(text, section, key), want))
		pair_fail(__FILE__, __LINE__, key, strtoll(line_of(text, section, key), NULL, 0),
			  (long long)value);
}

#define NUMBER(section, field) check_number(text, #section ":", #field ": ", info->field)
#define OF(attr, field) check_number(text, "fi_" #attr ":", " " #field ": ", info->attr->field)
#define IS(section, key, value) gives(strcmp(line_of(text, section, key), value), 0)

static int times_in(const char *text, const char *word)
{
	int count = 0;

	for (const char *at = text; (at = strstr(at, word)); at++)
		count++;
	return count;
}

/* Tells whether libfabric has a word for that level of thread safety: from 2.0 on it has none for two of them. */
static bool has_word(enum fi_threading threading)
{
	return FI_MAJOR(fi_version()) < 2 ||
	       (threading != FI_THREAD_FID && threading != FI_THREAD_ENDPOINT);
}

/* From 1.21 on libfabric has no word for a protocol of a provider's own either; it has one for everything else. */
static void check_text(const struct fi_info *info)
{
	int nameless =
		FI_VERSION_GE(fi_version(), FI_VERSION(1, 21)) + !has_word(info->domain_attr->threading);
	static char text[16384];

	must(fi_tostr_r(text, sizeof(text), info, FI_TYPE_INFO) == text);
	gives(times_in(text, "Unknown"), nameless);
	check_bits(line_of(text, "fi_info:", "caps: "), info->caps, caps_named, CAPS_NAMED);
	check_bits(line_of(text, "fi_tx_attr:", "caps: "), info->tx_attr->caps, caps_named, CAPS_NAMED);
	check_bits(line_of(text, "fi_rx_attr:", "caps: "), info->rx_attr->caps, caps_named, CAPS_NAMED);
	check_bits(line_of(text, "fi_domain_attr:", " caps: "), info->domain_attr->caps, caps_named,
		   CAPS_NAMED);
	check_bits(line_of(text, "fi_tx_attr:", "msg_order: "), info->tx_attr->msg_order, orders_named,
		   ORDERS_NAMED);
	check_bits(line_of(text, "fi_rx_attr:", "msg_order: "), info->rx_attr->msg_order, orders_named,
		   ORDERS_NAMED);
	IS("fi_info:", "addr_format: ", "FI_ADDR_STR");
	IS("fi_info:", "src_addr: ", info->src_addr ? (char *)info->src_addr : "(null)");
	IS("fi_info:", "dest_addr: ", info->dest_addr ? (char *)info->dest_addr : "(null)");
	NUMBER(fi_info, src_addrlen);
	NUMBER(fi_info, dest_addrlen);
	OF(tx_attr, inject_size);
	OF(tx_attr, size);
	OF(tx_attr, iov_limit);
	OF(tx_attr, rma_iov_limit);
	OF(rx_attr, size);
	OF(rx_attr, iov_limit);
	IS("fi_ep_attr:", "type: ", "FI_EP_RDM");
	IS("fi_ep_attr:", "protocol: ", nameless ? "Unknown" : "Provider specific");
	OF(ep_attr, max_msg_size);
	OF(ep_attr, msg_prefix_size);
	OF(domain_attr, mr_key_size);
	OF(domain_attr, cq_data_size);
	OF(domain_attr, ep_cnt);
	OF(domain_attr, mr_cnt);
	IS("fi_domain_attr:", " name: ", "shmcma");
	IS("fi_domain_attr:", "threading: ", fi_tostr(&info->domain_attr->threading, FI_TYPE_THREADING));
	IS("fi_domain_attr:", "resource_mgmt: ", "FI_RM_ENABLED");
	IS("fi_fabric_attr:", " name: ", "shmcma");
	IS("fi_fabric_attr:", "prov_name: ", "shmcma");
}

/* Every value that can be asked for comes back under its name. */
static void tostr_infos(void)
{
	static const char *const threads[] = { "FI_THREAD_UNSPEC",     "FI_THREAD_SAFE",
					       "FI_THREAD_FID",	       "FI_THREAD_DOMAIN",
					       "FI_THREAD_COMPLETION", "FI_THREAD_ENDPOINT" };
	static const uint64_t caps[] = { FI_MSG, CAPS, FI_RMA | FI_REMOTE_READ, FI_TAGGED | FI_SEND };
	static const int modes[] = { 0, FI_MR_BASIC, FI_MR_SCALABLE, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY };

	for (int i = 0; i < 4; i++)
		for (int threading = FI_THREAD_UNSPEC; threading <= FI_THREAD_ENDPOINT; threading++) {
			struct pair_want want = { .caps = caps[i],
						  .threading = threading,
						  .mr_mode = modes[i] };
			struct fi_info *hints = pair_hints(&want), *list;

			gives(fi_getinfo(FI_VERSION(1, 17), NULL, "9", i & 1 ? FI_SOURCE : 0, hints,
					 &list),
			      0);
			for (struct fi_info *info = list; info; info = info->next) {
				check_text(info);
				if (threading && has_word(threading))
					gives(strcmp(fi_tostr(&info->domain_attr->threading,
							      FI_TYPE_THREADING),
						     threads[threading]),
					      0);
			}
			fi_freeinfo(list);
			fi_freeinfo(hints);
		}
}

/* Of a completion every flag has a name, and none is missing. */
static void tostr_completions(void)
{
	char text[256];
	struct pair pair;
	struct done done;

	pair_open(&pair, NULL);
	gives(fi_trecv(pair.b.ep, in, 8, NULL, FI_ADDR_UNSPEC, 7, 0, in), 0);
	gives(fi_tsenddata(pair.a.ep, out, 8, NULL, 1, pair.a.peer, 7, out), 0);
	done = pair_done(&pair, &pair.b);
	fi_tostr_r(text, sizeof(text), &done.entry.flags, FI_TYPE_CQ_EVENT_FLAGS);
	must(names(text, "FI_RECV") && names(text, "FI_TAGGED") && names(text, "FI_REMOTE_CQ_DATA"));
	must(!names(text, "FI_SEND") && !names(text, "FI_MSG"));
	pair_done(&pair, &pair.a);
	pair_close(&pair);
}

/* ---- every object ---------------------------------------------------------------------------- */

enum object {
	FABRIC,
	DOMAIN,
	EQ,
	WAIT,
	CQ,
	CNTR,
	POLL,
	AV,
	AV_SET,
	MR,
	STX,
	SRX,
	SEP,
	TX_CTX,
	RX_CTX,
	EP,
	ALIAS,
	OBJECTS
};

struct all {
	struct pair pair;
	struct fid *fids[OBJECTS];
	struct fid_eq *eq;
	struct fid_wait *wait;
	struct fid_cq *cq;
	struct fid_cntr *cntr;
	struct fid_poll *poll;
	struct fid_av *av;
	struct fid_av_set *set;
	struct fid_mr *mr;
	struct fid_stx *stx;
	struct fid_ep *srx, *sep, *tx, *rx, *ep, *alias;
};

#define KEEP(object, name) all->fids[object] = &all->name->fid

/* A scalable endpoint has no collective operations. */
static struct fid_ep *sep_open(const struct pair *pair)
{
	struct fi_info *info = fi_dupinfo(pair->info);
	struct fid_ep *sep;

	must(info);
	info->caps &= ~FI_COLLECTIVE;
	info->tx_attr->caps &= ~FI_COLLECTIVE;
	info->rx_attr->caps &= ~FI_COLLECTIVE;
	gives(fi_scalable_ep(pair->domain, info, &sep, NULL), 0);
	fi_freeinfo(info);
	return sep;
}

/* pair.a is enabled, ep is not. */
static void all_open(struct all *all)
{
	static const struct pair_want want = { .caps = CAPS };
	struct fi_wait_attr wait_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_eq_attr eq_attr = { .flags = FI_WRITE, .wait_obj = FI_WAIT_FD };
	struct fi_cq_attr cq_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_FD };
	struct fi_poll_attr poll_attr = { 0 };
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fi_av_set_attr set_attr = { .flags = FI_UNIVERSE };
	struct pair *pair = &all->pair;

	pair_open(pair, &want);
	gives(fi_eq_open(pair->fabric, &eq_attr, &all->eq, NULL), 0);
	gives(fi_wait_open(pair->fabric, &wait_attr, &all->wait), 0);
	gives(fi_cq_open(pair->domain, &cq_attr, &all->cq, NULL), 0);
	gives(fi_cntr_open(pair->domain, &cntr_attr, &all->cntr, NULL), 0);
	gives(fi_poll_open(pair->domain, &poll_attr, &all->poll), 0);
	gives(fi_av_open(pair->domain, &av_attr, &all->av, NULL), 0);
	gives(fi_av_bind(all->av, &all->eq->fid, 0), 0);
	gives(fi_av_set(pair->a.av, &set_attr, &all->set, NULL), 0);
	gives(fi_mr_reg(pair->domain, memory, 64, FI_REMOTE_WRITE, 0, KEY, 0, &all->mr, NULL), 0);
	gives(fi_stx_context(pair->domain, NULL, &all->stx, NULL), 0);
	gives(fi_srx_context(pair->domain, NULL, &all->srx, NULL), 0);
	all->sep = sep_open(pair);
	gives(fi_tx_context(all->sep, 0, NULL, &all->tx, NULL), 0);
	gives(fi_rx_context(all->sep, 0, NULL, &all->rx, NULL), 0);
	gives(fi_endpoint(pair->domain, pair->info, &all->ep, NULL), 0);
	gives(fi_ep_alias(all->ep, &all->alias, FI_TRANSMIT), 0);
	KEEP(FABRIC, pair.fabric);
	KEEP(DOMAIN, pair.domain);
	KEEP(EQ, eq);
	KEEP(WAIT, wait);
	KEEP(CQ, cq);
	KEEP(CNTR, cntr);
	KEEP(POLL, poll);
	KEEP(AV, av);
	KEEP(AV_SET, set);
	KEEP(MR, mr);
	KEEP(STX, stx);
	KEEP(SRX, srx);
	KEEP(SEP, sep);
	KEEP(TX_CTX, tx);
	KEEP(RX_CTX, rx);
	KEEP(EP, ep);
	KEEP(ALIAS, alias);
}

/* The last that was opened first, but what is bound to something before that. */
static void all_close(struct all *all)
{
	for (int object = ALIAS; object > DOMAIN; object--)
		if (object != EQ)
			gives(fi_close(all->fids[object]), 0);
	gives(fi_close(&all->eq->fid), 0);
	pair_close(&all->pair);
}

/* The commands that each object knows, as bits of their numbers; all others are -FI_ENOSYS. */
#define COMMAND(name) (1u << (name))
#define WAIT_COMMANDS (COMMAND(FI_GETWAIT) | COMMAND(FI_GETWAITOBJ))
#define EP_COMMANDS                                                                                       \
	(COMMAND(FI_ENABLE) | COMMAND(FI_GETOPSFLAG) | COMMAND(FI_SETOPSFLAG) | COMMAND(FI_ALIAS))
static const unsigned int commands[OBJECTS] = {
	[DOMAIN] = COMMAND(FI_MAP_RAW_MR) | COMMAND(FI_UNMAP_KEY) | COMMAND(FI_QUEUE_WORK) |
		   COMMAND(FI_CANCEL_WORK) | COMMAND(FI_FLUSH_WORK),
	[EQ] = WAIT_COMMANDS,
	[WAIT] = WAIT_COMMANDS,
	[CQ] = WAIT_COMMANDS,
	[CNTR] = WAIT_COMMANDS | COMMAND(FI_GETOPSFLAG) | COMMAND(FI_SETOPSFLAG),
	[MR] = COMMAND(FI_ENABLE) | COMMAND(FI_REFRESH) | COMMAND(FI_GET_RAW_MR),
	[SRX] = EP_COMMANDS,
	[SEP] = EP_COMMANDS,
	[TX_CTX] = EP_COMMANDS,
	[RX_CTX] = EP_COMMANDS,
	[EP] = EP_COMMANDS,
	[ALIAS] = EP_COMMANDS,
};

static void control_commands(void)
{
	uint64_t argument[64] = { 0 };
	struct fid *exported;
	struct all all;

	all_open(&all);
	for (int object = 0; object < OBJECTS; object++) {
		struct fid *fid = all.fids[object];

		for (int command = -2; command <= FI_EXPORT_FID + 2; command++)
			if (command < 0 || command >= 31 || !(commands[object] >> command & 1))
				gives(fi_control(fid, command, argument), -FI_ENOSYS);
		gives(fi_control(fid, 1000000, argument), -FI_ENOSYS);
		gives(fi_get_val(fid, 1, argument), -FI_ENOSYS);
		gives(fi_set_val(fid, (int)(1 | FI_PROV_SPECIFIC), argument), -FI_ENOSYS);
		gives(fi_export_fid(fid, 0, &exported, NULL), -FI_ENOSYS);
	}
	all_close(&all);
}

/* Tables of operations by name: there are none, of any object. */
static void open_and_set_ops(void)
{
	struct all all;
	void *ops;

	all_open(&all);
	for (int object = 0; object < OBJECTS; object++) {
		gives(fi_open_ops(all.fids[object], "shmcma", 0, &ops, NULL), -FI_ENOSYS);
		gives(fi_set_ops(all.fids[object], FI_SET_OPS_HMEM_OVERRIDE, 0, &ops, NULL), -FI_ENOSYS);
	}
	all_close(&all);
}

/* An object prints as an address and what it is. */
static void tostr_objects(void)
{
	static const char *const what[OBJECTS] = {
		[FABRIC] = "fabric",
		[DOMAIN] = "domain",
		[EQ] = "event queue",
		[WAIT] = "wait set",
		[CQ] = "completion queue",
		[CNTR] = "counter",
		[POLL] = "poll set",
		[AV] = "address vector",
		[AV_SET] = "address vector set",
		[MR] = "memory region",
		[STX] = "shared transmit context",
		[SRX] = "shared receive context",
		[SEP] = "scalable endpoint",
		[TX_CTX] = "transmit context",
		[RX_CTX] = "receive context",
		[EP] = "endpoint",
		[ALIAS] = "endpoint",
	};
	char text[128], want[128];
	struct all all;

	all_open(&all);
	for (int object = 0; object < OBJECTS; object++) {
		snprintf(want, sizeof(want), "fid: %p shmcma %s\n", (void *)all.fids[object],
			 what[object]);
		must(fi_tostr_r(text, sizeof(text), all.fids[object], FI_TYPE_FID) == text);
		if (strcmp(text, want))
			dprintf(STDERR_FILENO, "\"%s\", not \"%s\"\n", text, want);
		gives(strcmp(text, want), 0);
		must(fi_tostr_r(text, 8, all.fids[object], FI_TYPE_FID) == text);
		gives(strlen(text), 7); /* cut, and closed by a NUL */
	}
	all_close(&all);
}

/* ---- every option ---------------------------------------------------------------------------- */

static bool is_option(int name, bool set)
{
	if (name == FI_OPT_MIN_MULTI_RECV || name == FI_OPT_FI_HMEM_P2P)
		return true;
	return !set && (name == FI_OPT_TX_SIZE || name == FI_OPT_RX_SIZE);
}

/* Options of later versions of libfabric, which test_newer asks for. */
static bool is_newer(int name)
{
	return name > FI_OPT_XPU_TRIGGER && name <= FI_OPT_XPU_TRIGGER + 10;
}

/* The error of fi_getopt for an option without a value. */
static int no_option(bool here, int name)
{
	return here && name == FI_OPT_XPU_TRIGGER ? -FI_EOPNOTSUPP : -FI_ENOPROTOOPT;
}

static void check_options(struct fid *fid, bool any)
{
	static const int odd[] = { FI_OPT_EFA_RNR_RETRY, -1, 1 << 30 };
	uint64_t value[8] = { 0 };
	size_t len;

	for (int name = -2; name < 64; name++)
		for (int level = 0; level < 3; level++) {
			bool here = any && level == FI_OPT_ENDPOINT;

			if (here && is_newer(name))
				continue;

			len = sizeof(value);
			if (!here || !is_option(name, false))
				gives(fi_getopt(fid, level, name, value, &len), no_option(here, name));
			else
				gives(fi_getopt(fid, level, name, value, &len), 0);
			if (!here || !is_option(name, true))
				gives(fi_setopt(fid, level, name, value, sizeof(size_t)), -FI_ENOPROTOOPT);
		}
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		gives(fi_getopt(fid, FI_OPT_ENDPOINT, odd[i], value, &len), -FI_ENOPROTOOPT);
	if (!any)
		return;
	len = 1;
	gives(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, value, &len), -FI_ETOOSMALL);
	gives(len, sizeof(size_t));
	gives(fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, NULL, &len), -FI_EINVAL);
	gives(fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, 1), -FI_EINVAL);
	gives(fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, NULL, sizeof(size_t)), -FI_EINVAL);
}

static void options(void)
{
	static const enum object with[] = { EP, ALIAS, SEP, TX_CTX, RX_CTX, SRX };
	struct all all;

	all_open(&all);
	for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++)
		check_options(all.fids[with[i]], true);
	check_options(all.fids[STX], false);
	all_close(&all);
}

/* The value of each mode of FI_OPT_FI_HMEM_P2P. */
static void option_p2p(void)
{
	static const struct {
		int mode, ret;
	} modes[] = {
		{ FI_HMEM_P2P_ENABLED, -FI_EOPNOTSUPP },   { FI_HMEM_P2P_REQUIRED, -FI_EOPNOTSUPP },
		{ FI_HMEM_P2P_PREFERRED, -FI_EOPNOTSUPP }, { FI_HMEM_P2P_DISABLED, 0 },
		{ FI_HMEM_P2P_DISABLED + 1, -FI_EINVAL },  { -1, -FI_EINVAL },
	};
	struct pair pair;

	pair_open(&pair, NULL);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		gives(fi_setopt(&pair.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &modes[i].mode,
				sizeof(int)),
		      modes[i].ret);
	pair_close(&pair);
}

/* ---- every flag ------------------------------------------------------------------------------ */

/* Each bit that is not among the known ones, as `flag`, makes the call give the error. */
#define UNKNOWN(known, call, error)                                                                       \
	for (uint64_t flag = 1; flag; flag <<= 1)                                                         \
		if (!(flag & (known)))                                                                    \
	gives(call, error)

#define ACCESSES (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

static void flags_of_opening(void)
{
	struct pair *pair;
	struct all all;

	all_open(&all);
	pair = &all.pair;
	UNKNOWN(FI_AFFINITY | FI_PEER,
		fi_cq_open(pair->domain, &(struct fi_cq_attr){ .flags = flag }, &all.cq, NULL),
		-FI_EBADFLAGS);
	gives(fi_cq_open(pair->domain, &(struct fi_cq_attr){ .flags = FI_PEER }, &all.cq, NULL), -FI_EINVAL);
	UNKNOWN(FI_WRITE | FI_AFFINITY,
		fi_eq_open(pair->fabric, &(struct fi_eq_attr){ .flags = flag }, &all.eq, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(FI_PEER, fi_cntr_open(pair->domain, &(struct fi_cntr_attr){ .flags = flag }, &all.cntr, NULL),
		-FI_EBADFLAGS);
	gives(fi_cntr_open(pair->domain, &(struct fi_cntr_attr){ .flags = FI_PEER }, &all.cntr, NULL),
	      -FI_EINVAL);
	UNKNOWN(0, fi_poll_open(pair->domain, &(struct fi_poll_attr){ .flags = flag }, &all.poll),
		-FI_EBADFLAGS);
	UNKNOWN(0,
		fi_wait_open(pair->fabric, &(struct fi_wait_attr){ .wait_obj = FI_WAIT_FD, .flags = flag },
			     &all.wait),
		-FI_EBADFLAGS);
	UNKNOWN(FI_EVENT | FI_READ | FI_SYMMETRIC,
		fi_av_open(pair->domain, &(struct fi_av_attr){ .flags = flag }, &all.av, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(FI_UNIVERSE | 0x1ffULL << 40,
		fi_av_set(pair->a.av,
			  &(struct fi_av_set_attr){ .flags = flag, .start_addr = FI_ADDR_NOTAVAIL },
			  &all.set, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(FI_PEER, fi_domain2(pair->fabric, pair->info, &pair->domain, flag, NULL), -FI_EBADFLAGS);
	UNKNOWN(FI_PEER, fi_endpoint2(pair->domain, pair->info, &all.ep, flag, NULL), -FI_EBADFLAGS);
	gives(fi_domain2(pair->fabric, pair->info, &pair->domain, FI_PEER, NULL), -FI_ENOSYS);
	gives(fi_endpoint2(pair->domain, pair->info, &all.ep, FI_PEER, NULL), -FI_ENOSYS);
	UNKNOWN(FI_RMA_EVENT, fi_mr_reg(pair->domain, memory, 8, FI_SEND, 0, 0, flag, &all.mr, NULL),
		-FI_EBADFLAGS);
	all_close(&all);
}

static void flags_of_binding(void)
{
	struct pair *pair;
	struct all all;

	all_open(&all);
	pair = &all.pair;
	UNKNOWN(FI_REG_MR, fi_domain_bind(pair->domain, &all.eq->fid, flag), -FI_EBADFLAGS);
	gives(fi_domain_bind(pair->domain, &all.eq->fid, FI_REG_MR), -FI_ENOSYS);
	UNKNOWN(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION,
		fi_ep_bind(all.ep, &all.cq->fid, flag | FI_RECV), -FI_EBADFLAGS);
	UNKNOWN(FI_SEND | FI_RECV | ACCESSES, fi_ep_bind(all.ep, &all.cntr->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_ep_bind(all.ep, &pair->a.av->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_ep_bind(all.ep, &all.eq->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_scalable_ep_bind(all.sep, &pair->a.av->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_av_bind(all.av, &all.eq->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(FI_REMOTE_READ | FI_REMOTE_WRITE, fi_mr_bind(all.mr, &all.cntr->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_mr_bind(all.mr, &all.ep->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_poll_add(all.poll, &all.cq->fid, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_poll_del(all.poll, &all.cq->fid, flag), -FI_EBADFLAGS);
	gives(fi_import_fid(&pair->fabric->fid, &all.eq->fid, 0), -FI_ENOSYS);
	all_close(&all);
}

static void flags_of_queues_and_vectors(void)
{
	fi_addr_t addrs[1] = { 0 };
	struct fi_eq_err_entry eq_error = { .err = 0 };
	struct fi_cq_err_entry cq_error = { .err = 0 };
	struct fi_collective_attr collective = { .op = FI_NOOP, .datatype = FI_VOID };
	struct fi_atomic_attr atomic;
	struct fi_eq_entry entry = { .data = 0 };
	struct pair *pair;
	uint32_t event;
	struct all all;

	all_open(&all);
	pair = &all.pair;
	UNKNOWN(FI_PEEK, fi_eq_read(all.eq, &event, &entry, sizeof(entry), flag), -FI_EBADFLAGS);
	UNKNOWN(FI_PEEK, fi_eq_sread(all.eq, &event, &entry, sizeof(entry), 0, flag), -FI_EBADFLAGS);
	UNKNOWN(FI_PEEK, fi_eq_readerr(all.eq, &eq_error, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_eq_write(all.eq, FI_NOTIFY, &entry, sizeof(entry), flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_cq_readerr(all.cq, &cq_error, flag), -FI_EBADFLAGS);
	UNKNOWN(FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID,
		fi_av_insert(pair->a.av, pair->b.name, 1, addrs, flag, NULL), -FI_EBADFLAGS);
	UNKNOWN(FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID,
		fi_av_insertsvc(pair->a.av, "127.0.0.1", "9", addrs, flag, NULL), -FI_EBADFLAGS);
	UNKNOWN(FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID,
		fi_av_insertsym(pair->a.av, "127.0.0.1", 1, "9", 1, addrs, flag, NULL), -FI_EBADFLAGS);
	UNKNOWN(0, fi_av_remove(pair->a.av, addrs, 1, flag), -FI_EBADFLAGS);
	UNKNOWN(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED,
		fi_query_atomic(pair->domain, FI_UINT64, FI_SUM, &atomic, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_query_collective(pair->domain, FI_BARRIER, &collective, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_mr_refresh(all.mr, NULL, 0, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_mr_raw_attr(all.mr, NULL, (uint8_t *)addrs, &(size_t){ 8 }, flag), -FI_EBADFLAGS);
	UNKNOWN(0, fi_mr_map_raw(pair->domain, 0, (uint8_t *)addrs, 8, addrs, flag), -FI_EBADFLAGS);
	all_close(&all);
}

#define COMPLETIONS (FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)
#define SENDING (COMPLETIONS | FI_INJECT | FI_MATCH_COMPLETE | FI_TRIGGER | FI_MORE | FI_FENCE)
#define RECEIVING                                                                                         \
	(FI_COMPLETION | FI_TRANSMIT_COMPLETE | FI_MORE | FI_PEEK | FI_CLAIM | FI_DISCARD | FI_TRIGGER)
#define READING (COMPLETIONS | FI_MORE | FI_FENCE | FI_TRIGGER)

static void flags_of_data_calls(void)
{
	struct iovec iov = { out, 8 };
	struct fi_ioc ioc = { out, 1 };
	struct fi_rma_iov rma_iov = { 0, 8, KEY };
	struct fi_rma_ioc rma_ioc = { 0, 1, KEY };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	struct fi_msg_tagged tagged = { .msg_iov = &iov, .iov_count = 1 };
	struct fi_msg_rma rma = {
		.msg_iov = &iov, .iov_count = 1, .rma_iov = &rma_iov, .rma_iov_count = 1
	};
	struct fi_msg_atomic atomic = {
		.msg_iov = &ioc,
		.iov_count = 1,
		.rma_iov = &rma_ioc,
		.rma_iov_count = 1,
		.datatype = FI_UINT64,
		.op = FI_SUM,
	};
	struct pair pair;
	struct fid_ep *ep;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	ep = pair.a.ep;
	msg.addr = tagged.addr = rma.addr = atomic.addr = pair.a.peer;
	UNKNOWN(SENDING | FI_REMOTE_CQ_DATA, fi_sendmsg(ep, &msg, flag), -FI_EBADFLAGS);
	UNKNOWN(SENDING | FI_REMOTE_CQ_DATA, fi_tsendmsg(ep, &tagged, flag), -FI_EBADFLAGS);
	UNKNOWN(RECEIVING | FI_MULTI_RECV, fi_recvmsg(ep, &msg, flag), -FI_EBADFLAGS);
	UNKNOWN(RECEIVING, fi_trecvmsg(ep, &tagged, flag), -FI_EBADFLAGS);
	UNKNOWN(READING, fi_readmsg(ep, &rma, flag), -FI_EBADFLAGS);
	UNKNOWN(READING | FI_INJECT | FI_REMOTE_CQ_DATA, fi_writemsg(ep, &rma, flag), -FI_EBADFLAGS);
	UNKNOWN(SENDING, fi_atomicmsg(ep, &atomic, flag), -FI_EBADFLAGS);
	UNKNOWN(SENDING, fi_fetch_atomicmsg(ep, &atomic, &ioc, NULL, 1, flag), -FI_EBADFLAGS);
	UNKNOWN(SENDING, fi_compare_atomicmsg(ep, &atomic, &ioc, NULL, 1, &ioc, NULL, 1, flag),
		-FI_EBADFLAGS);
	pair_quiet(&pair, &pair.a);
	pair_close(&pair);
}

/* Of the collective calls, all are checked before the group is looked for. */
static void flags_of_collectives(void)
{
	struct fi_collective_addr group = { .set = NULL };
	struct fi_msg_collective msg = { .coll = FI_BARRIER };
	struct pair pair;
	struct fid_ep *ep;
	struct fid_mc *mc;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	ep = pair.a.ep;
	UNKNOWN(FI_COLLECTIVE | FI_SEND | FI_RECV, fi_join(ep, &group, flag | FI_COLLECTIVE, &mc, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(FI_COLLECTIVE, fi_join(ep, pair.b.name, flag, &mc, NULL), -FI_ENOSYS);
	UNKNOWN(COMPLETIONS, fi_barrier2(ep, 0, flag, NULL), -FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, fi_broadcast(ep, out, 1, NULL, 0, 0, FI_UINT8, flag, NULL), -FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, fi_alltoall(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, flag, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, fi_allgather(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, flag, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, fi_allreduce(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, FI_SUM, flag, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS,
		fi_reduce_scatter(ep, out, 1, NULL, in, NULL, 0, FI_UINT8, FI_SUM, flag, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, fi_reduce(ep, out, 1, NULL, in, NULL, 0, 0, FI_UINT8, FI_SUM, flag, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, fi_scatter(ep, out, 1, NULL, in, NULL, 0, 0, FI_UINT8, flag, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, fi_gather(ep, out, 1, NULL, in, NULL, 0, 0, FI_UINT8, flag, NULL),
		-FI_EBADFLAGS);
	UNKNOWN(COMPLETIONS, ep->collective->msg(ep, &msg, NULL, NULL, 0, flag), -FI_EBADFLAGS);
	pair_close(&pair);
}

/* Memory registered for collectives: our mr_mode never asks for that, but an application may do it. */
static void collective_access(void)
{
	struct pair pair;
	struct fid_mr *mr;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS, .mr_mode = FI_MR_COLLECTIVE });
	gives(pair.info->domain_attr->mr_mode, 0);
	gives(fi_mr_reg(pair.domain, memory, 8, FI_SEND | FI_RECV | FI_COLLECTIVE, 0, 0, 0, &mr, NULL), 0);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

/* ---- what data calls do not look at ---------------------------------------------------------- */

/* No mode asks for FI_CONTEXT: a context is a number, behind which there may be nothing. */
static void contexts_untouched(void)
{
	void *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct fid_mr *mr;
	struct pair pair;

	must(nowhere != MAP_FAILED);
	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_mr_reg(pair.domain, memory, LARGE, FI_REMOTE_WRITE, 0, KEY, 0, &mr, nowhere), 0);
	for (int tagged = 0; tagged < 2; tagged++)
		for (size_t len = 8; len <= LARGE; len *= 25) {
			gives(kind_recv(tagged, &pair.b, in, len, FI_ADDR_UNSPEC, nowhere), 0);
			post(&pair, kind_send(tagged, &pair.a, out, len, pair.a.peer, nowhere));
			must(pair_done(&pair, &pair.b).entry.op_context == nowhere);
			must(pair_done(&pair, &pair.a).entry.op_context == nowhere);
			post(&pair,
			     fi_write(pair.a.ep, out, len, NULL, pair.a.peer, 0, fi_mr_key(mr), nowhere));
			must(pair_done(&pair, &pair.a).entry.op_context == nowhere);
		}
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

static void described_messages(struct pair *pair, void *desc, void **descs)
{
	struct iovec send = { out, 8 }, recv = { in, 8 };
	struct fi_msg to = { &send, descs, 1, pair->a.peer, out, 0 },
		      from = { &recv, descs, 1, FI_ADDR_UNSPEC, in, 0 };
	struct fi_msg_tagged tagged_to = { &send, descs, 1, pair->a.peer, 7, 0, out, 0 };
	struct fi_msg_tagged tagged_from = { &recv, descs, 1, FI_ADDR_UNSPEC, 7, 0, in, 0 };
	struct fid_ep *a = pair->a.ep, *b = pair->b.ep;

	gives(fi_recv(b, in, 8, desc, FI_ADDR_UNSPEC, in), 0);
	gives(fi_recvv(b, &recv, descs, 1, FI_ADDR_UNSPEC, in), 0);
	gives(fi_recvmsg(b, &from, 0), 0);
	gives(fi_recv(b, in, 8, desc, FI_ADDR_UNSPEC, in), 0);
	gives(fi_trecv(b, in, 8, desc, FI_ADDR_UNSPEC, 7, 0, in), 0);
	gives(fi_trecvv(b, &recv, descs, 1, FI_ADDR_UNSPEC, 7, 0, in), 0);
	gives(fi_trecvmsg(b, &tagged_from, 0), 0);
	gives(fi_trecv(b, in, 8, desc, FI_ADDR_UNSPEC, 7, 0, in), 0);
	gives(fi_send(a, out, 8, desc, pair->a.peer, out), 0);
	gives(fi_sendv(a, &send, descs, 1, pair->a.peer, out), 0);
	gives(fi_sendmsg(a, &to, 0), 0);
	gives(fi_senddata(a, out, 8, desc, 1, pair->a.peer, out), 0);
	gives(fi_tsend(a, out, 8, desc, pair->a.peer, 7, out), 0);
	gives(fi_tsendv(a, &send, descs, 1, pair->a.peer, 7, out), 0);
	gives(fi_tsendmsg(a, &tagged_to, 0), 0);
	gives(fi_tsenddata(a, out, 8, desc, 1, pair->a.peer, 7, out), 0);
	for (int i = 0; i < 8; i++) {
		must(pair_done(pair, &pair->b).entry.op_context == in);
		must(pair_done(pair, &pair->a).entry.op_context == out);
	}
}

static void described_accesses(struct pair *pair, void *desc, void **descs)
{
	struct iovec iov = { in, 8 };
	struct fi_ioc ioc = { out, 1 }, result = { in, 1 };
	struct fi_rma_iov remote = { 0, 8, KEY };
	struct fi_rma_ioc remote_ioc = { 0, 1, KEY };
	fi_addr_t peer = pair->a.peer;
	struct fi_msg_rma msg = { &iov, descs, 1, peer, &remote, 1, in, 0 };
	struct fi_msg_atomic atomic = { &ioc, descs, 1, peer, &remote_ioc, 1, FI_UINT64, FI_SUM, in, 0 };
	struct fi_msg_atomic swap = { &ioc, descs, 1, peer, &remote_ioc, 1, FI_UINT64, FI_CSWAP, in, 0 };
	struct fid_ep *ep = pair->a.ep;

	gives(fi_read(ep, in, 8, desc, peer, 0, KEY, in), 0);
	gives(fi_readv(ep, &iov, descs, 1, peer, 0, KEY, in), 0);
	gives(fi_readmsg(ep, &msg, 0), 0);
	gives(fi_write(ep, in, 8, desc, peer, 0, KEY, in), 0);
	gives(fi_writev(ep, &iov, descs, 1, peer, 0, KEY, in), 0);
	gives(fi_writemsg(ep, &msg, 0), 0);
	gives(fi_atomic(ep, out, 1, desc, peer, 0, KEY, FI_UINT64, FI_SUM, in), 0);
	gives(fi_atomicv(ep, &ioc, descs, 1, peer, 0, KEY, FI_UINT64, FI_SUM, in), 0);
	gives(fi_atomicmsg(ep, &atomic, 0), 0);
	gives(fi_fetch_atomic(ep, out, 1, desc, in, desc, peer, 0, KEY, FI_UINT64, FI_SUM, in), 0);
	gives(fi_fetch_atomicmsg(ep, &atomic, &result, descs, 1, 0), 0);
	gives(fi_compare_atomicmsg(ep, &swap, &ioc, descs, 1, &result, descs, 1, 0), 0);
	for (int i = 0; i < 12; i++)
		must(pair_done(pair, &pair->a).entry.op_context == in);
}

/* Memory needs no registration for local use, so descriptors may be anything. */
static void descriptors_ignored(void)
{
	void *desc = (void *)1, *descs[2] = { (void *)1, (void *)2 };
	struct fid_mr *mr;
	struct pair pair;

	pair_open(&pair, &(struct pair_want){ .caps = CAPS });
	gives(fi_mr_reg(pair.domain, memory, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL),
	      0);
	described_messages(&pair, desc, descs);
	described_accesses(&pair, desc, descs);
	gives(fi_close(&mr->fid), 0);
	pair_close(&pair);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* One endpoint, whose group is itself. */
static struct fid_eq *alone_open(struct pair *pair)
{
	struct side *side = &pair->a;
	size_t len = sizeof(side->name);
	struct fid_eq *eq;

	pair_open_domain(pair, &(struct pair_want){ .caps = CAPS });
	eq = pair_open_eq(pair);
	side->av = pair_open_av(pair);
	side->cq = pair_open_cq(pair);
	side->ep = pair_open_ep(pair);
	gives(fi_ep_bind(side->ep, &eq->fid, 0), 0);
	pair_bind(side->ep, side->cq, side->av);
	gives(fi_enable(side->ep), 0);
	gives(fi_getname(&side->ep->fid, side->name, &len), 0);
	side->self = pair_insert(side->av, side->name);
	return eq;
}

static void alone_close(struct pair *pair, struct fid_eq *eq)
{
	side_close(&pair->a);
	gives(fi_close(&eq->fid), 0);
	pair->a = (struct side){ .ep = NULL };
	pair_close(pair);
}

static struct fid_mc *group_join(struct pair *pair, struct fid_eq *eq, uint64_t set_flags)
{
	struct fi_av_set_attr attr = { .flags = FI_UNIVERSE | set_flags };
	struct fi_eq_entry entry;
	struct fid_av_set *set;
	struct fid_mc *mc;
	uint32_t event;

	gives(fi_av_set(pair->a.av, &attr, &set, NULL), 0);
	gives(fi_join_collective(pair->a.ep, FI_ADDR_NOTAVAIL, set, 0, &mc, NULL), 0);
	gives(fi_close(&set->fid), 0);
	gives(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	gives(event, FI_JOIN_COMPLETE);
	return mc;
}

static ssize_t collective(struct pair *pair, enum fi_collective_op what, fi_addr_t group)
{
	struct fid_ep *ep = pair->a.ep;
	fi_addr_t root = pair->a.self;

	switch (what) {
	case FI_BARRIER:
		return fi_barrier(ep, group, in);
	case FI_BROADCAST:
		return fi_broadcast(ep, out, 8, NULL, group, root, FI_UINT8, 0, in);
	case FI_ALLTOALL:
		return fi_alltoall(ep, out, 8, NULL, in, NULL, group, FI_UINT8, 0, in);
	case FI_ALLREDUCE:
		return fi_allreduce(ep, out, 8, NULL, in, NULL, group, FI_UINT8, FI_SUM, 0, in);
	case FI_ALLGATHER:
		return fi_allgather(ep, out, 8, NULL, in, NULL, group, FI_UINT8, 0, in);
	case FI_REDUCE_SCATTER:
		return fi_reduce_scatter(ep, out, 8, NULL, in, NULL, group, FI_UINT8, FI_SUM, 0, in);
	case FI_REDUCE:
		return fi_reduce(ep, out, 8, NULL, in, NULL, group, root, FI_UINT8, FI_SUM, 0, in);
	case FI_SCATTER:
		return fi_scatter(ep, out, 8, NULL, in, NULL, group, root, FI_UINT8, 0, in);
	case FI_GATHER:
		return fi_gather(ep, out, 8, NULL, in, NULL, group, root, FI_UINT8, 0, in);
	}
	return -FI_EOTHER;
}

/* A set made for one of the collectives: its group does that one and no other. */
static void collective_sets(void)
{
	static const uint64_t sets[] = {
		[FI_BARRIER] = FI_BARRIER_SET,	   [FI_BROADCAST] = FI_BROADCAST_SET,
		[FI_ALLTOALL] = FI_ALLTOALL_SET,   [FI_ALLREDUCE] = FI_ALLREDUCE_SET,
		[FI_ALLGATHER] = FI_ALLGATHER_SET, [FI_REDUCE_SCATTER] = FI_REDUCE_SCATTER_SET,
		[FI_REDUCE] = FI_REDUCE_SET,	   [FI_SCATTER] = FI_SCATTER_SET,
		[FI_GATHER] = FI_GATHER_SET,
	};
	struct pair pair;
	struct fid_eq *eq = alone_open(&pair);

	pattern_fill(out, 0, 8, 9);
	for (int what = FI_BARRIER; what <= FI_GATHER; what++) {
		struct fid_mc *mc = group_join(&pair, eq, sets[what]);

		for (int other = FI_BARRIER; other <= FI_GATHER; other++)
			gives(collective(&pair, other, fi_mc_addr(mc)),
			      other == what ? 0 : -FI_EOPNOTSUPP);
		gives(pair_done(&pair, &pair.a).entry.flags & FI_COLLECTIVE, FI_COLLECTIVE);
		if (what != FI_BARRIER && what != FI_BROADCAST)
			must(pattern_is(in, 0, 8, 9));
		memset(in, 0, 8);
		gives(fi_close(&mc->fid), 0);
	}
	alone_close(&pair, eq);
}

/* A group is an object, too, not only an address; fi_ops_collective.msg, for which 1.17 has no call. */
static void group_object(void)
{
	struct fi_ioc from[2] = { { out, 8 }, { out, 8 } }, to[2] = { { in, 8 }, { in, 8 } };
	struct fi_msg_collective msg = { .msg_iov = from,
					 .iov_count = 1,
					 .coll = FI_ALLREDUCE,
					 .datatype = FI_UINT8,
					 .op = FI_SUM,
					 .context = in };
	uint64_t argument[64] = { 0 };
	char text[128];
	struct pair pair;
	struct fid_eq *eq = alone_open(&pair);
	struct fid_mc *mc = group_join(&pair, eq, 0);
	struct fi_ops_collective *ops = pair.a.ep->collective;

	gives(mc->fid.fclass, FI_CLASS_MC);
	must(strstr(fi_tostr_r(text, sizeof(text), &mc->fid, FI_TYPE_FID), " shmcma group\n"));
	for (int command = 0; command <= FI_EXPORT_FID + 2; command++)
		gives(fi_control(&mc->fid, command, argument), -FI_ENOSYS);
	msg.coll_addr = fi_mc_addr(mc);
	msg.root_addr = pair.a.self;
	pattern_fill(out, 0, 8, 3);
	gives(ops->msg(pair.a.ep, &msg, to, NULL, 1, 0), 0);
	must(pair_done(&pair, &pair.a).entry.op_context == in && pattern_is(in, 0, 8, 3));
	gives(ops->msg(pair.a.ep, &msg, to, NULL, 2, 0), -FI_EINVAL);
	msg.iov_count = 2;
	gives(ops->msg(pair.a.ep, &msg, to, NULL, 1, 0), -FI_EINVAL);
	msg.iov_count = 1;
	msg.coll = FI_GATHER + 1;
	gives(ops->msg(pair.a.ep, &msg, to, NULL, 1, 0), -FI_EOPNOTSUPP);
	gives(fi_close(&mc->fid), 0);
	alone_close(&pair, eq);
}

/* ---- a wait set and a signal ----------------------------------------------------------------- */

static atomic_bool woken;

static void ignore(int number)
{
	(void)number;
}

static void *interrupt(void *thread)
{
	while (!atomic_load(&woken)) {
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return NULL;
}

static void wait_interrupted(void)
{
	struct sigaction action = { .sa_handler = ignore };
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	pthread_t self = pthread_self(), other;
	struct fid_wait *set;
	struct pair pair;

	pair_open(&pair, NULL);
	gives(sigaction(SIGUSR1, &action, NULL), 0);
	gives(fi_wait_open(pair.fabric, &attr, &set), 0);
	gives(pthread_create(&other, NULL, interrupt, &self), 0);
	gives(fi_wait(set, -1), -FI_EINTR);
	atomic_store(&woken, true);
	gives(pthread_join(other, NULL), 0);
	gives(fi_close(&set->fid), 0);
	pair_close(&pair);
}

/* ---- FI_SOURCE_ERR --------------------------------------------------------------------------- */

static struct fi_cq_err_entry stranger_error(struct pair *pair, void *room, size_t size)
{
	struct fi_cq_err_entry error = { .err_data = room, .err_data_size = size };
	struct fi_cq_tagged_entry entry;
	fi_addr_t source;
	ssize_t ret;

	while ((ret = fi_cq_readfrom(pair->b.cq, &entry, 1, &source)) == -FI_EAGAIN)
		pair_progress(pair);
	gives(ret, -FI_EAVAIL);
	gives(fi_cq_readerr(pair->b.cq, &error, 0), 1);
	gives(error.err, FI_EADDRNOTAVAIL);
	gives(error.prov_errno, FI_EADDRNOTAVAIL);
	gives(error.olen, 0);
	gives(fi_cq_readerr(pair->b.cq, &error, 0), -FI_EAGAIN);
	return error;
}

/* b knows itself alone, until it has inserted what an error says of the sender. */
static void unknown_source(void)
{
	struct pair_want want = { .caps = PAIR_CAPS | FI_SOURCE_ERR, .strangers = true };
	struct fi_cq_tagged_entry entries[4];
	struct fi_cq_err_entry error;
	fi_addr_t sources[4];
	struct pair pair;
	char room[64];

	pair_open(&pair, &want);
	must(pair.info->caps & FI_SOURCE_ERR);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	pair.b.self = pair_insert(pair.b.av, pair.b.name);
	pattern_fill(out, 0, 8, 1);
	gives(fi_trecv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, 7, 0, in), 0);
	gives(fi_tsenddata(pair.a.ep, out, 8, NULL, 5, pair.a.peer, 7, out), 0);
	error = stranger_error(&pair, NULL, 0);
	must(error.op_context == in && error.len == 8 && error.tag == 7 && error.data == 5);
	gives(error.flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
	must(pattern_is(in, 0, 8, 1));
	gives(error.err_data_size, 64);
	gives(strcmp(error.err_data, pair.a.name), 0);

	/* with room of its own, and too little */
	for (size_t size = 64; size; size = size == 64 ? 20 : 0) {
		memset(room, 'x', sizeof(room));
		gives(fi_recv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
		gives(fi_send(pair.a.ep, out, 8, NULL, pair.a.peer, out), 0);
		error = stranger_error(&pair, room, size);
		must(error.err_data == room);
		gives(error.err_data_size, size);
		gives(memcmp(room, pair.a.name, size == 64 ? strlen(pair.a.name) + 1 : size), 0);
		must(size == 64 || room[size] == 'x');
	}

	/* between others, which are told as ever */
	for (uintptr_t i = 1; i <= 3; i++) {
		struct side *from = i == 2 ? &pair.a : &pair.b;

		gives(fi_trecv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, i, 0, (void *)i), 0);
		gives(fi_tinject(from->ep, out, 8, i == 2 ? pair.a.peer : pair.b.self, i), 0);
	}
	for (int seen = 0; seen < 3;) {
		ssize_t ret = fi_cq_readfrom(pair.b.cq, entries, 4, sources);

		if (ret == -FI_EAVAIL) {
			must(stranger_error(&pair, NULL, 0).op_context == (void *)2);
			seen++;
		}
		for (ssize_t i = 0; i < ret; i++, seen++)
			must(sources[i] == pair.b.self && entries[i].op_context != (void *)2);
	}

	/* there is no error for a reader that does not ask for the source, nor for one that knows it */
	gives(fi_recv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(pair.a.ep, out, 8, pair.a.peer), 0);
	while (fi_cq_read(pair.b.cq, entries, 4) != 1)
		pair_progress(&pair);
	must(entries[0].op_context == in);
	pair.b.peer = pair_insert(pair.b.av, pair.a.name);
	gives(fi_recv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(pair.a.ep, out, 8, pair.a.peer), 0);
	while (fi_cq_readfrom(pair.b.cq, entries, 4, sources) != 1)
		pair_progress(&pair);
	gives(sources[0], pair.b.peer);
	pair_close(&pair);
}

/* Before 1.5 there is no err_data_size: the address is in memory of ours. */
static void unknown_source_1_4(void)
{
	struct pair_want want = { .caps = PAIR_CAPS | FI_SOURCE_ERR,
				  .strangers = true,
				  .version = FI_VERSION(1, 4) };
	struct fi_cq_err_entry error = { .err_data_size = 99 };
	struct fi_cq_tagged_entry entry;
	struct pair pair;
	fi_addr_t source;
	ssize_t ret;

	pair_open(&pair, &want);
	pair.a.peer = pair_insert(pair.a.av, pair.b.name);
	gives(fi_recv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(pair.a.ep, out, 8, pair.a.peer), 0);
	while ((ret = fi_cq_readfrom(pair.b.cq, &entry, 1, &source)) == -FI_EAGAIN)
		pair_progress(&pair);
	gives(ret, -FI_EAVAIL);
	gives(fi_cq_readerr(pair.b.cq, &error, 0), 1);
	gives(error.err_data_size, 99);
	gives(strcmp(error.err_data, pair.a.name), 0);
	pair_close(&pair);
}

/* The address is that of the scalable endpoint, whatever context has sent. */
static void unknown_source_scalable(void)
{
	struct pair_want want = { .caps = PAIR_CAPS | FI_SOURCE_ERR, .strangers = true };
	struct fid_ep *sep, *tx, *rx;
	struct fi_cq_err_entry error;
	struct pair pair;
	char name[64];
	size_t len = sizeof(name);

	pair_open(&pair, &want);
	gives(fi_scalable_ep(pair.domain, pair.info, &sep, NULL), 0);
	gives(fi_scalable_ep_bind(sep, &pair.a.av->fid, 0), 0);
	gives(fi_rx_context(sep, 0, NULL, &rx, NULL), 0);
	gives(fi_ep_bind(rx, &pair.a.cq->fid, FI_RECV), 0);
	gives(fi_tx_context(sep, 0, NULL, &tx, NULL), 0);
	gives(fi_ep_bind(tx, &pair.a.cq->fid, FI_TRANSMIT), 0);
	gives(fi_enable(sep), 0);
	gives(fi_enable(rx), 0);
	gives(fi_enable(tx), 0);
	gives(fi_getname(&sep->fid, name, &len), 0);
	gives(fi_recv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(tx, out, 8, pair_insert(pair.a.av, pair.b.name)), 0);
	error = stranger_error(&pair, NULL, 0);
	if (strcmp(error.err_data, name))
		dprintf(STDERR_FILENO, "%s, not %s\n", (char *)error.err_data, name);
	gives(strcmp(error.err_data, name), 0);
	/* and there it can be answered */
	gives(fi_recv(rx, in, 64, NULL, FI_ADDR_UNSPEC, out), 0);
	gives(fi_inject(pair.b.ep, out, 8, pair_insert(pair.b.av, error.err_data)), 0);
	while (fi_cq_read(pair.a.cq, NULL, 0) == -FI_EAGAIN)
		pair_progress(&pair);
	gives(fi_close(&tx->fid), 0);
	gives(fi_close(&rx->fid), 0);
	gives(fi_close(&sep->fid), 0);
	pair_close(&pair);
}

/*
 * The sender is gone when its message is read: the address in the error can be inserted all the same, and an answer to
 * it fails. An address from which nothing has come cannot be inserted.
 */
static void check_gone_stranger(struct pair *pair, const char *name)
{
	struct fi_cq_err_entry error = stranger_error(pair, NULL, 0);
	fi_addr_t peer = FI_ADDR_NOTAVAIL;
	fi_addr_t source;
	struct fi_cq_tagged_entry entry;
	char other[64];
	ssize_t ret;

	gives(strcmp(error.err_data, name), 0);
	strcpy(other, name);
	other[57] = other[57] == '0' ? '1' : '0'; /* of the nonce, before "-0000" */
	gives(fi_av_insert(pair->b.av, other, 1, &peer, 0, NULL), 0);
	peer = pair_insert(pair->b.av, error.err_data);
	/* sends to a sender succeed until its death has been noticed */
	while ((ret = fi_inject(pair->b.ep, out, 8, peer)) == 0 || ret == -FI_EAGAIN)
		gives(fi_cq_read(pair->b.cq, NULL, 0), -FI_EAGAIN);
	gives(ret, -FI_ECONNRESET);
	/* the next message of the same sender has a source */
	gives(fi_recv(pair->b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
	while ((ret = fi_cq_readfrom(pair->b.cq, &entry, 1, &source)) == -FI_EAGAIN)
		pair_progress(pair);
	gives(ret, 1);
	gives(source, peer);
	/* an endpoint of another vector has heard nothing of it */
	gives(fi_av_insert(pair->a.av, name, 1, &peer, 0, NULL), 0);
}

static const struct pair_want gone_want = { .caps = PAIR_CAPS | FI_SOURCE_ERR, .strangers = true };

static void unknown_source_gone(void)
{
	struct side third;
	struct pair pair;

	pair_open(&pair, &gone_want);
	side_open(&pair, &third);
	third.peer = pair_insert(third.av, pair.b.name);
	gives(fi_recv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
	gives(fi_inject(third.ep, out, 8, third.peer), 0);
	gives(fi_inject(third.ep, out, 8, third.peer), 0);
	side_close(&third);
	check_gone_stranger(&pair, third.name);
	pair_close(&pair);
}

static void unknown_source_dead(void)
{
	int there[2], back[2];
	char name[64];
	struct pair pair;
	pid_t pid;

	gives(pipe(there) || pipe(back), 0);
	pid = fork();
	must(pid >= 0);
	if (!pid) {
		pair_end_with_parent();
		gives(read(there[0], name, sizeof(name)), sizeof(name));
		pair_open(&pair, &gone_want);
		pair.a.peer = pair_insert(pair.a.av, name);
		gives(fi_inject(pair.a.ep, out, 8, pair.a.peer), 0);
		gives(fi_inject(pair.a.ep, out, 8, pair.a.peer), 0);
		gives(write(back[1], pair.a.name, sizeof(name)), sizeof(name));
		raise(SIGKILL);
	}
	pair_open(&pair, &gone_want);
	gives(fi_recv(pair.b.ep, in, 64, NULL, FI_ADDR_UNSPEC, in), 0);
	gives(write(there[1], pair.b.name, sizeof(name)), sizeof(name));
	gives(read(back[0], name, sizeof(name)), sizeof(name));
	gives(waitpid(pid, NULL, 0), pid);
	check_gone_stranger(&pair, name);
	pair_close(&pair);
}

/* ---- libfabric's own ------------------------------------------------------------------------- */

static int imported_lines, imported_warnings;

static int import_enabled(const struct fi_provider *prov, enum fi_log_level level,
			  enum fi_log_subsys subsys, uint64_t flags)
{
	(void)prov, (void)level, (void)subsys, (void)flags;
	return 1;
}

static int import_ready(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
			uint64_t flags, uint64_t *showtime)
{
	(void)prov, (void)level, (void)subsys, (void)flags, (void)showtime;
	return 1;
}

static void import_log(const struct fi_provider *prov, enum fi_log_level level, enum fi_log_subsys subsys,
		       const char *func, int line, const char *msg)
{
	(void)subsys, (void)func, (void)line;
	imported_lines += !strcmp(prov->name, "shmcma") && strstr(msg, "flags");
	imported_warnings += !strcmp(prov->name, "shmcma") && level == FI_LOG_WARN;
}

static int open_named(struct pair *pair, const char *name, uint64_t flags)
{
	struct fi_av_attr attr = { .name = name, .flags = flags };
	struct fid_av *av;

	return fi_av_open(pair->domain, &attr, &av, NULL);
}

/*
 * An application that takes libfabric's log for itself gets our lines. The question whether a shared address vector
 * exists gives no warning: MPICH asks it, with a name that no vector can have.
 */
static void imported_log(void)
{
	static struct fi_ops_log ops = { .enabled = import_enabled,
					 .ready = import_ready,
					 .log = import_log };
	static struct fi_ops fid_ops = { .size = sizeof(fid_ops) };
	static struct fid_logging log = { .fid = { .ops = &fid_ops }, .ops = &ops };
	struct fid_cntr *cntr;
	struct pair pair;

	pair_open(&pair, NULL);
	gives(fi_import_log(FI_VERSION(1, 17), 0, &log), 0);
	gives(fi_cntr_open(pair.domain, &(struct fi_cntr_attr){ .flags = 1 }, &cntr, NULL), -FI_EBADFLAGS);
	gives(imported_lines, 1);
	gives(imported_warnings, 1);
	gives(open_named(&pair, "FI_NAMED_AV_0\n", FI_READ), -FI_EINVAL);
	gives(open_named(&pair, "of-nobody", FI_READ), -FI_ENOENT);
	gives(imported_warnings, 1);
	gives(open_named(&pair, "FI_NAMED_AV_0\n", 0), -FI_EINVAL);
	gives(imported_warnings, 2);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(api_versions),
		ALONE(old_structures),
		ALONE(old_abis),
		ALONE_ENV(hooked, "FI_HOOK=ofi_hook_debug"),
		ALONE_ENV(hooked, "FI_HOOK=ofi_hook_perf"),
		ALONE_ENV(hooked, "FI_HOOK=ofi_hook_perf;ofi_hook_debug"),
		ALONE(not_hooked),
		ALONE(tostr_infos),
		ALONE(tostr_completions),
		ALONE(tostr_objects),
		ALONE(control_commands),
		ALONE(open_and_set_ops),
		ALONE(options),
		ALONE(option_p2p),
		ALONE(flags_of_opening),
		ALONE(flags_of_binding),
		ALONE(flags_of_queues_and_vectors),
		ALONE(flags_of_data_calls),
		ALONE(flags_of_collectives),
		ALONE(collective_access),
		ALONE(contexts_untouched),
		ALONE(descriptors_ignored),
		ALONE(collective_sets),
		ALONE(group_object),
		ALONE(wait_interrupted),
		ALONE(unknown_source),
		ALONE(unknown_source_1_4),
		ALONE(unknown_source_scalable),
		ALONE(unknown_source_gone),
		ALONE(unknown_source_dead),
		ALONE(imported_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
