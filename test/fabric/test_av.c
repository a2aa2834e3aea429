/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_av: address vectors, fi_av(3). Two endpoints of this process have the good addresses; bad ones
 * are of every kind that there is.
 */
#include "fabric.h"

#include <ctype.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVICE "test-av"
#define MANY 5000

static struct tf t;
static struct fid_ep *service_eps[3];
static char service[TF_NAME_SIZE]; /* of this process: SERVICE, pid, and 8 */
static char service_addr[3][TF_NAME_SIZE];
static char other_name[TF_NAME_SIZE]; /* of service_eps[0] */

/* Endpoints under three names that end in consecutive numbers: ...8, ...9, ...10. */
static struct fid_ep *open_service(unsigned int number)
{
	struct fi_info *info = fi_dupinfo(t.info);
	struct tf named = t;
	struct fid_ep *ep;

	snprintf(service_addr[number], TF_NAME_SIZE, "%s%s-%ld-%u", TF_PREFIX, SERVICE, (long)getpid(),
		 8 + number);
	free(info->src_addr);
	info->src_addr = strdup(service_addr[number]);
	info->src_addrlen = strlen(service_addr[number]) + 1;
	named.info = info;
	ep = tf_open_ep(&named, number ? NULL : other_name);
	fi_freeinfo(info);
	return ep;
}

static int setup(void **state)
{
	(void)state;
	tf_open(&t, NULL);
	for (unsigned int i = 0; i < 3; i++)
		service_eps[i] = open_service(i);
	strcpy(service, service_addr[0] + strlen(TF_PREFIX));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		tf_ok(fi_close(&service_eps[i]->fid));
	tf_close(&t);
	return 0;
}

/* The vector in use; t.av belongs to the endpoints. */
static struct fid_av *av;

static int open_table(void **state)
{
	(void)state;
	av = tf_open_av(&t, FI_AV_TABLE, 0);
	return 0;
}

static int close_table(void **state)
{
	(void)state;
	if (av)
		tf_ok(fi_close(&av->fid));
	av = NULL;
	return 0;
}

static fi_addr_t insert(const char *name)
{
	fi_addr_t fi_addr = 77;

	tf_expect(fi_av_insert(av, name, 1, &fi_addr, 0, NULL), 1);
	return fi_addr;
}

static void check_lookup(fi_addr_t fi_addr, const char *name)
{
	char found[TF_NAME_SIZE] = "";
	size_t len = sizeof(found);

	tf_ok(fi_av_lookup(av, fi_addr, found, &len));
	assert_int_equal(len, strlen(name) + 1);
	assert_string_equal(found, name);
}

static void check_absent(fi_addr_t fi_addr)
{
	char found[TF_NAME_SIZE];
	size_t len = sizeof(found);

	tf_expect(fi_av_lookup(av, fi_addr, found, &len), -FI_EINVAL);
}

/* Strings one behind the other, as fi_av_insert wants them. */
static void *pack(const char *const *names, size_t count)
{
	char *packed = malloc(count * TF_NAME_SIZE + 1);
	char *at = packed;

	assert_non_null(packed);
	for (size_t i = 0; i < count; i++)
		at = stpcpy(at, names[i]) + 1;
	return packed;
}

/* An address of the right form that is not this one: one digit changed. */
static void change_digit(char *name, size_t at)
{
	assert_true(isxdigit((unsigned char)name[at]));
	name[at] = name[at] == '0' ? '1' : '0';
}

#define HOST_AT (sizeof(TF_PREFIX) - 1)
#define NONCE_AT (HOST_AT + 16 + 1 + 8 + 1)

/* The address of an endpoint whose process has ended. */
static void make_dead_name(char *name)
{
	int ends[2];
	int status;
	pid_t child;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		/* a new process, as a forked one has no use of its parent's objects; it closes nothing */
		dup2(ends[1], STDOUT_FILENO);
		execl("/proc/self/exe", "test_av", "die", (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	memset(name, 0, TF_NAME_SIZE);
	assert_int_equal(read(ends[0], name, TF_NAME_SIZE), TF_NAME_SIZE);
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

static int scene_die(void)
{
	struct tf own;

	tf_open(&own, NULL);
	if (write(STDOUT_FILENO, own.name, TF_NAME_SIZE) != TF_NAME_SIZE)
		return 1;
	_exit(0);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int open_with(struct fi_av_attr attr)
{
	struct fid_av *opened;
	int ret = fi_av_open(t.domain, &attr, &opened, &attr);

	if (ret)
		return ret;
	assert_int_equal(opened->fid.fclass, FI_CLASS_AV);
	assert_ptr_equal(opened->fid.context, &attr);
	assert_true(attr.type == FI_AV_MAP || attr.type == FI_AV_TABLE);
	return fi_close(&opened->fid);
}

static void test_open(void **state)
{
	(void)state;
	tf_ok(open_with((struct fi_av_attr){ .type = FI_AV_UNSPEC }));
	tf_ok(open_with((struct fi_av_attr){ .type = FI_AV_MAP, .count = 1 }));
	tf_ok(open_with((struct fi_av_attr){ .type = FI_AV_TABLE, .count = SIZE_MAX, .ep_per_node = 9 }));
	tf_ok(open_with((struct fi_av_attr){ .flags = FI_EVENT }));
	tf_ok(open_with((struct fi_av_attr){ .flags = FI_SYMMETRIC }));
	tf_ok(open_with((struct fi_av_attr){ .map_addr = &t })); /* ignored without a name */
	tf_expect(open_with((struct fi_av_attr){ .type = 3 }), -FI_EINVAL);
	tf_ok(open_with((struct fi_av_attr){ .rx_ctx_bits = 1 }));
	tf_ok(open_with((struct fi_av_attr){ .rx_ctx_bits = 15 }));
	tf_expect(open_with((struct fi_av_attr){ .rx_ctx_bits = 16 }), -FI_EINVAL);
	tf_expect(open_with((struct fi_av_attr){ .rx_ctx_bits = -1 }), -FI_EINVAL);
	tf_expect(open_with((struct fi_av_attr){ .flags = FI_READ }), -FI_EINVAL);
	tf_expect(open_with((struct fi_av_attr){ .flags = FI_MORE }), -FI_EBADFLAGS);
	tf_expect(fi_av_open(t.domain, NULL, &av, NULL), -FI_EINVAL);
	av = NULL;
}

static void test_bind(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, 0, FI_WAIT_NONE);
	struct fid_av *event_av = tf_open_av(&t, FI_AV_TABLE, FI_EVENT);

	(void)state;
	tf_expect(fi_av_bind(av, &eq->fid, 0), -FI_EINVAL);
	tf_expect(fi_av_bind(event_av, &t.tx_cq->fid, 0), -FI_EINVAL);
	tf_expect(fi_av_bind(event_av, NULL, 0), -FI_EINVAL);
	tf_expect(fi_av_bind(event_av, &eq->fid, FI_MORE), -FI_EBADFLAGS);
	tf_ok(fi_av_bind(event_av, &eq->fid, 0));
	tf_expect(fi_av_bind(event_av, &eq->fid, 0), -FI_EINVAL);
	tf_ok(fi_close(&event_av->fid));
	tf_ok(fi_close(&eq->fid));
}

static void test_close_bound(void **state)
{
	(void)state;
	tf_expect(fi_close(&t.av->fid), -FI_EBUSY);
}

/* ---- insert ---------------------------------------------------------------------------------- */

static void check_type(enum fi_av_type type)
{
	const char *names[2] = { t.name, other_name };
	void *packed = pack(names, 2);
	fi_addr_t fi_addr[2] = { 77, 77 };

	close_table(NULL);
	av = tf_open_av(&t, type, 0);
	tf_expect(fi_av_insert(av, packed, 2, fi_addr, 0, NULL), 2);
	assert_true(fi_addr[0] != fi_addr[1]);
	check_lookup(fi_addr[0], t.name);
	check_lookup(fi_addr[1], other_name);
	if (type == FI_AV_TABLE) {
		assert_int_equal(fi_addr[0], 0);
		assert_int_equal(fi_addr[1], 1);
	}
	tf_expect(fi_av_insert(av, packed, 2, fi_addr, FI_MORE, NULL), 2);
	tf_expect(fi_av_insert(av, packed, 0, fi_addr, 0, NULL), 0);
	tf_expect(fi_av_insert(av, NULL, 0, NULL, 0, NULL), type == FI_AV_MAP ? -FI_EINVAL : 0);
	free(packed);
}

static void test_insert(void **state)
{
	(void)state;
	check_type(FI_AV_UNSPEC);
	check_type(FI_AV_MAP);
	check_type(FI_AV_TABLE);
}

static void test_insert_arguments(void **state)
{
	fi_addr_t fi_addr = 77;
	struct fid_av *map = tf_open_av(&t, FI_AV_MAP, 0);

	(void)state;
	tf_expect(fi_av_insert(av, NULL, 1, &fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insert(av, t.name, SIZE_MAX, &fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insert(av, t.name, 1, &fi_addr, FI_SYNC_ERR, NULL), -FI_EINVAL);
	tf_expect(fi_av_insert(av, t.name, 1, NULL, FI_AV_USER_ID, NULL), -FI_EINVAL);
	tf_expect(fi_av_insert(map, t.name, 1, NULL, 0, NULL), -FI_EINVAL);
	for (unsigned int bit = 0; bit < 64; bit++) {
		uint64_t flag = 1ULL << bit;

		if (!(flag & (FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID)))
			tf_expect(fi_av_insert(av, t.name, 1, &fi_addr, flag, NULL), -FI_EBADFLAGS);
	}
	/* nothing was inserted by all that */
	assert_int_equal(insert(t.name), 0);
	tf_ok(fi_close(&map->fid));
}

/* With a table the application may count for itself. */
static void test_insert_without_result(void **state)
{
	const char *names[3] = { t.name, other_name, t.name };
	void *packed = pack(names, 3);

	(void)state;
	tf_expect(fi_av_insert(av, packed, 3, NULL, 0, NULL), 3);
	for (fi_addr_t i = 0; i < 3; i++)
		check_lookup(i, names[i]);
	check_absent(3);
	free(packed);
}

/* As MPI libraries have it: a stride of 64 bytes, which is the length of an address. */
static void test_insert_stride(void **state)
{
	char packed[2][TF_NAME_SIZE];
	fi_addr_t fi_addr[2];

	(void)state;
	memcpy(packed[0], t.name, TF_NAME_SIZE);
	memcpy(packed[1], other_name, TF_NAME_SIZE);
	assert_int_equal(strlen(t.name), TF_NAME_SIZE - 1);
	tf_expect(fi_av_insert(av, packed, 2, fi_addr, 0, NULL), 2);
	check_lookup(fi_addr[1], other_name);
}

/* As fi_av(3) has it: an array of pointers to strings, of which each may be wrong by itself. */
static void test_insert_pointers(void **state)
{
	long page = sysconf(_SC_PAGESIZE);
	char *pages =
		mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *last = pages + page - TF_NAME_SIZE, long_one[2 * TF_NAME_SIZE];
	const char *names[] = { t.name,		  last, "rubbish", long_one, NULL, pages + page,
				pages + page - 3, "",	other_name };
	const char *const firsts[] = { t.name, "rubbish", long_one, pages + page - 3 };
	enum { COUNT = sizeof(names) / sizeof(names[0]) };
	fi_addr_t fi_addr[COUNT];
	int errors[COUNT];

	(void)state;
	assert_true(pages != MAP_FAILED);
	assert_int_equal(mprotect(pages + page, (size_t)page, PROT_NONE), 0);
	strcpy(last, other_name); /* up to the end of what is there */
	tf_expect(fi_av_insert(av, names, 2, NULL, 0, NULL), 2);
	check_lookup(0, t.name);
	check_lookup(1, other_name);
	memset(pages + page - 3, 'x', 3); /* has no end there */
	memset(long_one, 'x', sizeof(long_one));
	names[1] = TF_PREFIX "nobody.has.this.name";
	for (int first = 0; first < 4; first++) {
		names[0] = firsts[first];
		memset(errors, 0x55, sizeof(errors));
		tf_expect(fi_av_insert(av, names, COUNT, fi_addr, FI_SYNC_ERR, errors), first ? 1 : 2);
		assert_int_equal(errors[0], first ? FI_EINVAL : 0);
		assert_int_equal(errors[1], FI_ECONNREFUSED);
		for (int i = 2; i < COUNT - 1; i++)
			assert_int_equal(errors[i], FI_EINVAL);
		assert_int_equal(errors[COUNT - 1], 0);
		check_lookup(fi_addr[COUNT - 1], other_name);
	}
	assert_int_equal(munmap(pages, 2 * (size_t)page), 0);
}

/* Neither strings nor pointers: an error for each, and what is not there is not looked at. */
static void test_insert_garbage(void **state)
{
	enum { WORDS = 8, PAGE = 65536 };
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int errors[8 * WORDS];
	unsigned int seed = 77;

	(void)state;
	assert_true(pages != MAP_FAILED);
	assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
	for (int round = 0; round < 2000; round++) {
		char *end = pages + PAGE, *at = end - 8 * (1 + rand_r(&seed) % WORDS);
		int count = 0;

		/* strings of few bytes each, up to the end of what is there; the first word may look like a pointer */
		for (char *byte = at; byte < end; byte++)
			*byte = rand_r(&seed) % 3 ? (char)rand_r(&seed) : 0;
		if (round % 2) {
			char *pointer = round % 4 == 1 ? pages + rand_r(&seed) % (2 * PAGE) : t.name + 1;

			memcpy(at, &pointer, sizeof(pointer));
		}
		end[-1] = 0;
		for (char *byte = at; byte < end; byte++)
			count += !*byte;
		memset(errors, 0, sizeof(errors));
		tf_expect(fi_av_insert(av, at, (size_t)count, NULL, FI_SYNC_ERR, errors), 0);
		for (int i = 0; i < count; i++)
			assert_int_equal(errors[i], FI_EINVAL);
	}
	assert_int_equal(munmap(pages, 2 * PAGE), 0);
}

/* Every kind of address that cannot be had, between good ones, with the error of each. */
static void test_sync_errors(void **state)
{
	char foreign[TF_NAME_SIZE], unknown[TF_NAME_SIZE], dead[TF_NAME_SIZE];
	const char *names[10];
	int expected[10] = { 0 };
	fi_addr_t fi_addr[10];
	int errors[10];
	void *packed;

	(void)state;
	strcpy(foreign, t.name);
	change_digit(foreign, HOST_AT);
	strcpy(unknown, t.name);
	change_digit(unknown, NONCE_AT);
	make_dead_name(dead);

	names[0] = t.name;
	names[1] = foreign, expected[1] = FI_EHOSTUNREACH;
	names[2] = unknown, expected[2] = FI_ECONNREFUSED;
	names[3] = other_name;
	names[4] = "", expected[4] = FI_EINVAL;
	names[5] = "rubbish", expected[5] = FI_EINVAL;
	names[6] = dead, expected[6] = FI_ECONNREFUSED;
	names[7] = TF_PREFIX "nobody.has.this.name", expected[7] = FI_ECONNREFUSED;
	names[8] = TF_PREFIX "../../../etc/passwd", expected[8] = FI_EINVAL;
	names[9] = service_addr[0];
	packed = pack(names, 10);

	memset(errors, 0x55, sizeof(errors));
	tf_expect(fi_av_insert(av, packed, 10, fi_addr, FI_SYNC_ERR, errors), 3);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(errors[i], expected[i]);
		if (expected[i]) {
			assert_true(fi_addr[i] == FI_ADDR_NOTAVAIL);
			check_absent((fi_addr_t)i);
		} else {
			/* a failure does not move those behind it */
			assert_int_equal(fi_addr[i], i);
			check_lookup(fi_addr[i], names[i]);
		}
	}
	/* an entry that failed has left its number free */
	assert_int_equal(insert(t.name), 1);
	assert_int_equal(insert(t.name), 2);
	assert_int_equal(insert(t.name), 4);
	for (int i = 5; i <= 8; i++)
		assert_int_equal(insert(other_name), i);
	assert_int_equal(insert(t.name), 10);
	free(packed);
}

static void test_too_long(void **state)
{
	char packed[2 * TF_NAME_SIZE];
	fi_addr_t fi_addr[2];
	int errors[2];

	(void)state;
	/* no NUL within the length of an address: the next one is taken to be behind that */
	memset(packed, 'x', TF_NAME_SIZE);
	strcpy(packed + TF_NAME_SIZE, t.name);
	tf_expect(fi_av_insert(av, packed, 2, fi_addr, FI_SYNC_ERR, errors), 1);
	assert_int_equal(errors[0], FI_EINVAL);
	assert_int_equal(errors[1], 0);
	assert_int_equal(fi_addr[1], 1);
}

/* The same address twice: two entries, each of which can go without the other. */
static void test_duplicates(void **state)
{
	fi_addr_t first = insert(t.name), second = insert(t.name);

	(void)state;
	assert_int_equal(first, 0);
	assert_int_equal(second, 1);
	tf_ok(fi_av_remove(av, &first, 1, 0));
	check_absent(first);
	check_lookup(second, t.name);
	assert_int_equal(insert(other_name), 0);
}

static void test_remove(void **state)
{
	fi_addr_t fi_addr[4] = { insert(t.name), insert(other_name), insert(t.name), insert(other_name) };
	fi_addr_t absent[2] = { 0, 4 };
	fi_addr_t twice[2] = { 2, 2 };

	(void)state;
	tf_expect(fi_av_remove(av, fi_addr, 1, FI_MORE), -FI_EBADFLAGS);
	tf_expect(fi_av_remove(av, NULL, 1, 0), -FI_EINVAL);
	tf_ok(fi_av_remove(av, NULL, 0, 0));
	/* all or nothing */
	tf_expect(fi_av_remove(av, absent, 2, 0), -FI_EINVAL);
	check_lookup(0, t.name);
	absent[1] = FI_ADDR_NOTAVAIL;
	tf_expect(fi_av_remove(av, absent, 2, 0), -FI_EINVAL);
	tf_ok(fi_av_remove(av, twice, 2, 0));
	check_absent(2);
	tf_ok(fi_av_remove(av, fi_addr, 2, 0));
	tf_expect(fi_av_remove(av, fi_addr, 1, 0), -FI_EINVAL);
	check_absent(0);
	check_absent(1);
	check_lookup(3, other_name);
	/* lowest unused first */
	assert_int_equal(insert(t.name), 0);
	assert_int_equal(insert(t.name), 1);
	assert_int_equal(insert(t.name), 2);
	assert_int_equal(insert(t.name), 4);
}

/* Removed and inserted again, in random order, against a plain list of what is in. */
static void test_random_order(void **state)
{
	enum { SLOTS = 700 };
	static unsigned char in[SLOTS];
	unsigned int seed = 12345;

	(void)state;
	memset(in, 0, sizeof(in));
	for (int step = 0; step < 20000; step++) {
		unsigned int lowest = 0;

		seed = seed * 1103515245 + 12345;
		if (seed >> 16 & 1) {
			fi_addr_t victim = (seed >> 17) % SLOTS;

			tf_expect(fi_av_remove(av, &victim, 1, 0), in[victim] ? 0 : -FI_EINVAL);
			in[victim] = 0;
			continue;
		}
		while (lowest < SLOTS && in[lowest])
			lowest++;
		if (lowest < SLOTS) {
			assert_int_equal(insert(step & 1 ? t.name : other_name), lowest);
			in[lowest] = 1;
		}
	}
}

static void test_many(void **state)
{
	static fi_addr_t fi_addr[MANY];
	const char **names = calloc(MANY, sizeof(*names));
	void *packed;

	(void)state;
	assert_non_null(names);
	for (int i = 0; i < MANY; i++)
		names[i] = i % 3 ? t.name : other_name;
	packed = pack(names, MANY);
	tf_expect(fi_av_insert(av, packed, MANY, fi_addr, 0, NULL), MANY);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(fi_addr[i], i);
		check_lookup(fi_addr[i], names[i]);
	}
	tf_ok(fi_av_remove(av, fi_addr, MANY, 0));
	for (int i = 0; i < MANY; i++)
		check_absent(fi_addr[i]);
	tf_expect(fi_av_insert(av, packed, MANY, NULL, 0, NULL), MANY);
	check_lookup(MANY - 1, names[MANY - 1]);
	free(packed);
	free(names);
}

/* Returns its argument if something fails. */
static void *insert_some(void *failed)
{
	for (int i = 0; i < 500; i++) {
		fi_addr_t fi_addr;

		if (fi_av_insert(av, i & 1 ? t.name : other_name, 1, &fi_addr, 0, NULL) != 1)
			return failed;
		if (i % 3 == 0 && fi_av_remove(av, &fi_addr, 1, 0))
			return failed;
	}
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[4];
	void *failed;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, insert_some, threads), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
}

/* ---- node and service ------------------------------------------------------------------------ */

static void check_service(const char *node, const char *name, int error)
{
	fi_addr_t fi_addr = 77;
	int status = 77;

	tf_expect(fi_av_insertsvc(av, node, name, &fi_addr, FI_SYNC_ERR, &status), error ? 0 : 1);
	assert_int_equal(status, error);
	assert_true((fi_addr == FI_ADDR_NOTAVAIL) == !!error);
	if (!error) {
		check_lookup(fi_addr, service_addr[0]);
		tf_ok(fi_av_remove(av, &fi_addr, 1, 0));
	}
}

static void test_insertsvc(void **state)
{
	char host[256];
	fi_addr_t fi_addr;

	(void)state;
	assert_int_equal(gethostname(host, sizeof(host)), 0);
	check_service("127.0.0.1", service, 0);
	check_service("localhost", service, 0);
	check_service(host, service, 0);
	check_service(NULL, service, 0);
	check_service(service_addr[0], NULL, 0);
	check_service("192.0.2.1", service, FI_EHOSTUNREACH);
	check_service(NULL, "nobody.has.this.name", FI_ECONNREFUSED);
	check_service(NULL, "a/b", FI_EINVAL);

	tf_expect(fi_av_insertsvc(av, t.name, NULL, &fi_addr, 0, NULL), 1);
	check_lookup(fi_addr, t.name);
	tf_expect(fi_av_insertsvc(av, "localhost", NULL, &fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insertsvc(av, NULL, NULL, &fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insertsvc(av, t.name, service, &fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insertsvc(av, NULL, service, &fi_addr, FI_PEEK, NULL), -FI_EBADFLAGS);
	tf_expect(fi_av_insertsvc(av, NULL, service, NULL, 0, NULL), 1);
}

/* The destination that fi_getinfo gives can be inserted as it is, and fi_av_lookup gives it back. */
static void test_destination(void **state)
{
	struct fi_info *hints = tf_hints();
	struct fi_info *info;

	(void)state;
	tf_ok(fi_getinfo(TF_VERSION, "127.0.0.1", service, 0, hints, &info));
	check_lookup(insert(info->dest_addr), service_addr[0]);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

static void test_insertsym(void **state)
{
	fi_addr_t fi_addr[6];
	int errors[6];

	(void)state;
	/* services in order, 8 9 10 */
	tf_expect(fi_av_insertsym(av, "127.0.0.1", 1, service, 3, fi_addr, FI_SYNC_ERR, errors), 3);
	for (int i = 0; i < 3; i++)
		check_lookup(fi_addr[i], service_addr[i]);
	/* all services of a node before the next node; 127.0.0.0/8 is all here */
	tf_expect(fi_av_insertsym(av, "127.0.0.255", 2, service, 3, fi_addr, FI_SYNC_ERR, errors), 6);
	for (int i = 0; i < 6; i++)
		check_lookup(fi_addr[i], service_addr[i % 3]);
	tf_expect(fi_av_insertsym(av, NULL, 1, service, 3, fi_addr, 0, NULL), 3);
	tf_expect(fi_av_insertsym(av, "localhost", 1, service, 3, NULL, 0, NULL), 3);

	/* beyond: 127.0.0.1 is here, 128.0.0.0 is not; the fourth service does not exist */
	tf_expect(fi_av_insertsym(av, "127.255.255.255", 2, service, 1, fi_addr, FI_SYNC_ERR, errors), 1);
	assert_int_equal(errors[0], 0);
	assert_int_equal(errors[1], FI_EHOSTUNREACH);
	tf_expect(fi_av_insertsym(av, NULL, 1, service, 4, fi_addr, FI_SYNC_ERR, errors), 3);
	assert_int_equal(errors[3], FI_ECONNREFUSED);
	assert_true(fi_addr[3] == FI_ADDR_NOTAVAIL);
	/* names without a number have no next one */
	tf_expect(fi_av_insertsym(av, "localhost", 2, service, 1, fi_addr, FI_SYNC_ERR, errors), 1);
	assert_int_equal(errors[1], FI_EINVAL);
	tf_expect(fi_av_insertsym(av, NULL, 1, "name", 2, fi_addr, FI_SYNC_ERR, errors), 0);
	assert_int_equal(errors[0], FI_ECONNREFUSED);
	assert_int_equal(errors[1], FI_EINVAL);
	tf_expect(fi_av_insertsym(av, "255.255.255.255", 2, service, 1, fi_addr, FI_SYNC_ERR, errors), 0);
	assert_int_equal(errors[1], FI_EINVAL);

	tf_expect(fi_av_insertsym(av, "127.0.0.1", 0, service, 3, fi_addr, 0, NULL), 0);
	tf_expect(fi_av_insertsym(av, "127.0.0.1", 1, service, 0, fi_addr, 0, NULL), 0);
	tf_expect(fi_av_insertsym(av, "127.0.0.1", 1, NULL, 1, fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insertsym(av, t.name, 1, service, 1, fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insertsym(av, NULL, 2, service, 1, fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insertsym(av, "127.0.0.1", SIZE_MAX, service, 2, fi_addr, 0, NULL), -FI_EINVAL);
	tf_expect(fi_av_insertsym(av, "127.0.0.1", 1, service, 1, fi_addr, FI_PEEK, NULL), -FI_EBADFLAGS);
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct fid_eq *eq;

static int open_events(void **state)
{
	(void)state;
	eq = tf_open_eq(&t, 0, FI_WAIT_UNSPEC);
	av = tf_open_av(&t, FI_AV_TABLE, FI_EVENT);
	return 0;
}

static int close_events(void **state)
{
	close_table(state);
	tf_ok(fi_close(&eq->fid));
	return 0;
}

static void check_complete(void *context, uint64_t inserted)
{
	struct fi_eq_entry entry;
	uint32_t event;

	tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), sizeof(entry));
	assert_int_equal(event, FI_AV_COMPLETE);
	assert_ptr_equal(entry.fid, &av->fid);
	assert_ptr_equal(entry.context, context);
	assert_int_equal(entry.data, inserted);
}

static void check_failed(void *context, uint64_t index, int err)
{
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry;
	uint32_t event;

	tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), -FI_EAVAIL);
	tf_expect(fi_eq_readerr(eq, &error, 0), sizeof(error));
	assert_ptr_equal(error.fid, &av->fid);
	assert_ptr_equal(error.context, context);
	assert_int_equal(error.data, index);
	assert_int_equal(error.err, err);
}

static void test_events(void **state)
{
	const char *names[4] = { TF_PREFIX "nobody.has.this.name", t.name, "rubbish", other_name };
	void *packed = pack(names, 4);
	struct fi_eq_entry entry;
	fi_addr_t fi_addr[4];
	int first, second;
	uint32_t event;
	int errors[4];

	(void)state;
	tf_expect(fi_av_insert(av, packed, 4, fi_addr, 0, &first), -FI_ENOEQ);
	tf_expect(fi_av_insertsvc(av, NULL, service, fi_addr, 0, &first), -FI_ENOEQ);
	tf_expect(fi_av_insertsym(av, NULL, 1, service, 1, fi_addr, 0, &first), -FI_ENOEQ);
	tf_ok(fi_av_bind(av, &eq->fid, 0));
	tf_expect(fi_close(&eq->fid), -FI_EBUSY);
	tf_expect(fi_av_insert(av, packed, 4, fi_addr, FI_SYNC_ERR, errors), -FI_EBADFLAGS);

	tf_ok(fi_av_insert(av, packed, 4, fi_addr, 0, &first));
	check_failed(&first, 0, FI_ECONNREFUSED);
	check_failed(&first, 2, FI_EINVAL);
	check_complete(&first, 2);
	assert_true(fi_addr[0] == FI_ADDR_NOTAVAIL && fi_addr[2] == FI_ADDR_NOTAVAIL);
	check_lookup(fi_addr[1], t.name);
	check_lookup(fi_addr[3], other_name);

	tf_ok(fi_av_insertsvc(av, NULL, service, fi_addr, FI_MORE, &first));
	tf_ok(fi_av_insertsym(av, NULL, 1, service, 3, NULL, 0, &second));
	check_complete(&first, 1);
	check_complete(&second, 3);
	tf_ok(fi_av_insert(av, packed, 0, fi_addr, 0, &first));
	check_complete(&first, 0);
	/* all fail: still one event for the end */
	tf_ok(fi_av_insertsvc(av, NULL, "nobody.has.this.name", fi_addr, 0, &second));
	check_failed(&second, 0, FI_ECONNREFUSED);
	check_complete(&second, 0);
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
	free(packed);
}

/* ---- lookup and text ------------------------------------------------------------------------- */

static void test_lookup(void **state)
{
	fi_addr_t fi_addr = insert(t.name);
	char found[100];
	size_t len;

	(void)state;
	for (size_t size = 0; size < sizeof(found); size++) {
		size_t copied = size < TF_NAME_SIZE ? size : TF_NAME_SIZE;

		memset(found, '#', sizeof(found));
		len = size;
		tf_ok(fi_av_lookup(av, fi_addr, found, &len));
		assert_int_equal(len, TF_NAME_SIZE);
		assert_memory_equal(found, t.name, copied);
		if (copied < sizeof(found))
			assert_int_equal(found[copied], '#');
	}
	/* how long it is can be asked without a buffer */
	len = 0;
	tf_ok(fi_av_lookup(av, fi_addr, NULL, &len));
	assert_int_equal(len, TF_NAME_SIZE);
	tf_expect(fi_av_lookup(av, fi_addr, NULL, &len), -FI_EINVAL);
	tf_expect(fi_av_lookup(av, fi_addr, found, NULL), -FI_EINVAL);
	check_absent(1);
	check_absent(FI_ADDR_NOTAVAIL);
	check_absent(1ULL << 32);
}

static void check_text(const char *addr, size_t len_expected)
{
	char text[100];
	size_t len;

	for (size_t size = 0; size < sizeof(text); size++) {
		memset(text, '#', sizeof(text));
		len = size;
		assert_ptr_equal(fi_av_straddr(av, addr, text, &len), text);
		assert_int_equal(len, len_expected + 1);
		if (!size) {
			assert_int_equal(text[0], '#');
			continue;
		}
		assert_int_equal(strlen(text), size - 1 < len_expected ? size - 1 : len_expected);
		assert_memory_equal(text, addr, strlen(text));
	}
}

static void test_straddr(void **state)
{
	char endless[TF_NAME_SIZE];

	(void)state;
	check_text(t.name, TF_NAME_SIZE - 1);
	check_text(service_addr[0], strlen(service_addr[0]));
	check_text("", 0);
	memset(endless, 'x', sizeof(endless));
	check_text(endless, sizeof(endless) - 1);
}

/* ---- who sent it ----------------------------------------------------------------------------- */

static void finish(struct fid_cq *cq, fi_addr_t *source)
{
	struct fi_cq_tagged_entry entry;
	ssize_t ret;

	do
		ret = fi_cq_readfrom(cq, &entry, 1, source);
	while (ret == -FI_EAGAIN);
	tf_expect(ret, 1);
}

/* A message from the first service's endpoint to t.ep; how its source is named there. */
static fi_addr_t source_of_message(void)
{
	static fi_addr_t to = FI_ADDR_NOTAVAIL;
	fi_addr_t source;
	char buf[8];

	if (to == FI_ADDR_NOTAVAIL)
		to = tf_insert(&t, t.name);
	tf_ok(fi_recv(t.ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC, NULL));
	tf_ok(fi_send(service_eps[0], "message", 8, NULL, to, NULL));
	finish(t.tx_cq, NULL);
	finish(t.rx_cq, &source);
	assert_memory_equal(buf, "message", 8);
	return source;
}

static void test_source(void **state)
{
	fi_addr_t addrs[3], id = 0x1234567890, again;

	(void)state;
	assert_true(source_of_message() == FI_ADDR_NOTAVAIL);
	addrs[0] = tf_insert(&t, other_name);
	assert_int_equal(source_of_message(), addrs[0]);
	/* the lowest, under whichever name it was inserted */
	addrs[1] = tf_insert(&t, service_addr[0]);
	addrs[2] = tf_insert(&t, other_name);
	assert_int_equal(source_of_message(), addrs[0]);
	tf_ok(fi_av_remove(t.av, &addrs[0], 1, 0));
	assert_int_equal(source_of_message(), addrs[1]);
	again = tf_insert(&t, other_name);
	assert_int_equal(again, addrs[0]);
	assert_int_equal(source_of_message(), again);
	tf_ok(fi_av_remove(t.av, addrs, 3, 0));
	assert_true(source_of_message() == FI_ADDR_NOTAVAIL);

	/* the application's own name for it */
	again = id;
	tf_expect(fi_av_insert(t.av, other_name, 1, &again, FI_AV_USER_ID, NULL), 1);
	assert_int_equal(again, addrs[0]);
	assert_true(source_of_message() == id);
	tf_ok(fi_av_remove(t.av, &again, 1, 0));
	assert_true(source_of_message() == FI_ADDR_NOTAVAIL);
}

/* An address with several identifiers: the newest names the sender, and when its entry goes, the one before. */
static void test_source_ids(void **state)
{
	fi_addr_t ids[4] = { 0x40, 0x30, 0x20, 0x10 }, addrs[4];

	(void)state;
	addrs[0] = tf_insert(&t, other_name);
	for (size_t i = 1; i < 4; i++) {
		addrs[i] = ids[i];
		tf_expect(fi_av_insert(t.av, i == 2 ? service_addr[0] : other_name, 1, &addrs[i],
				       FI_AV_USER_ID, NULL),
			  1);
		assert_true(source_of_message() == ids[i]);
	}
	tf_ok(fi_av_remove(t.av, &addrs[2], 1, 0));
	assert_true(source_of_message() == ids[3]);
	/* at a lower index than the one before */
	addrs[2] = ids[0];
	tf_expect(fi_av_insert(t.av, other_name, 1, &addrs[2], FI_AV_USER_ID, NULL), 1);
	assert_true(source_of_message() == ids[0]);
	assert_true(addrs[2] < addrs[3]);
	tf_ok(fi_av_remove(t.av, &addrs[2], 1, 0));
	assert_true(source_of_message() == ids[3]);
	tf_ok(fi_av_remove(t.av, &addrs[3], 1, 0));
	assert_true(source_of_message() == ids[1]);
	tf_ok(fi_av_remove(t.av, &addrs[1], 1, 0));
	assert_int_equal(source_of_message(), addrs[0]);
}

static void test_unused_calls(void **state)
{
	void *ops;

	(void)state;
	tf_expect(fi_open_ops(&av->fid, "ops", 0, &ops, NULL), -FI_ENOSYS);
	tf_expect(fi_control(&av->fid, FI_ENABLE, NULL), -FI_ENOSYS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_table, close_table)

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		TEST(test_bind),
		cmocka_unit_test(test_close_bound),
		TEST(test_insert),
		TEST(test_insert_arguments),
		TEST(test_insert_without_result),
		TEST(test_insert_stride),
		TEST(test_insert_pointers),
		TEST(test_insert_garbage),
		TEST(test_sync_errors),
		TEST(test_too_long),
		TEST(test_duplicates),
		TEST(test_remove),
		TEST(test_random_order),
		TEST(test_many),
		TEST(test_threads),
		TEST(test_insertsvc),
		TEST(test_destination),
		TEST(test_insertsym),
		cmocka_unit_test_setup_teardown(test_events, open_events, close_events),
		TEST(test_lookup),
		TEST(test_straddr),
		cmocka_unit_test(test_source),
		cmocka_unit_test(test_source_ids),
		TEST(test_unused_calls),
	};

	if (argc > 1 && !strcmp(argv[1], "die"))
		return scene_die();
	return cmocka_run_group_tests(tests, setup, teardown);
}
