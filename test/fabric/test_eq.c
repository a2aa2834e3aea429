/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_eq: event queues, fi_eq(3). Error events come from an address vector, the only source there is.
 */
#include "fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BAD_ADDR TF_PREFIX "nobody.has.this.name"
#define ROOM ((size_t)1 << 20) /* events a queue takes whatever its size */

static struct tf t;

static int setup(void **state)
{
	(void)state;
	tf_open_domain(&t, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	tf_close(&t);
	return 0;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void nap(int ms)
{
	poll(NULL, 0, ms);
}

static void write_event(struct fid_eq *eq, uint32_t type, uint64_t number)
{
	struct fi_eq_entry entry = { .fid = &t.domain->fid,
				     .context = (void *)(uintptr_t)number,
				     .data = number * 3 };

	tf_expect(fi_eq_write(eq, type, &entry, sizeof(entry), 0), sizeof(entry));
}

static void check_event(struct fid_eq *eq, uint64_t flags, uint32_t type, uint64_t number)
{
	struct fi_eq_entry entry = { 0 };
	uint32_t event = ~0u;

	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), flags), sizeof(entry));
	assert_int_equal(event, type);
	assert_ptr_equal(entry.fid, &t.domain->fid);
	assert_int_equal((uintptr_t)entry.context, number);
	assert_int_equal(entry.data, number * 3);
}

static void check_empty(struct fid_eq *eq)
{
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry;
	uint32_t event;

	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAGAIN);
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), FI_PEEK), -FI_EAGAIN);
	tf_expect(fi_eq_readerr(eq, &error, 0), -FI_EAGAIN);
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_with(struct fi_eq_attr attr)
{
	struct fid_eq *eq;
	int ret = fi_eq_open(t.fabric, &attr, &eq, &attr);

	if (ret)
		return ret;
	assert_int_equal(eq->fid.fclass, FI_CLASS_EQ);
	assert_ptr_equal(eq->fid.context, &attr);
	return fi_close(&eq->fid);
}

static void test_open(void **state)
{
	struct fid_eq *eq;

	(void)state;
	for (size_t size = 0; size <= 1 << 17; size = size * 2 + 1)
		tf_ok(open_with((struct fi_eq_attr){ .size = size, .wait_obj = FI_WAIT_UNSPEC }));
	tf_ok(open_with((struct fi_eq_attr){ .flags = FI_WRITE }));
	tf_ok(open_with((struct fi_eq_attr){ .flags = FI_AFFINITY, .signaling_vector = 1 }));
	tf_expect(open_with((struct fi_eq_attr){ .flags = FI_READ }), -FI_EBADFLAGS);
	tf_expect(open_with((struct fi_eq_attr){ .flags = 1ULL << 63 }), -FI_EBADFLAGS);
	tf_ok(open_with((struct fi_eq_attr){ .wait_obj = FI_WAIT_NONE }));
	tf_ok(open_with((struct fi_eq_attr){ .wait_obj = FI_WAIT_FD }));
	tf_ok(open_with((struct fi_eq_attr){ .wait_obj = FI_WAIT_MUTEX_COND }));
	tf_ok(open_with((struct fi_eq_attr){ .wait_obj = FI_WAIT_YIELD }));
	tf_expect(open_with((struct fi_eq_attr){ .wait_obj = FI_WAIT_SET }), -FI_EINVAL);
	tf_ok(open_with((struct fi_eq_attr){ .wait_obj = FI_WAIT_POLLFD }));
	tf_expect(open_with((struct fi_eq_attr){ .wait_obj = 77 }), -FI_EINVAL);
	tf_expect(fi_eq_open(t.fabric, NULL, &eq, NULL), -FI_EINVAL);
}

static void test_no_descriptor(void **state)
{
	struct rlimit old, none;
	int ret;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ret = open_with((struct fi_eq_attr){ .wait_obj = FI_WAIT_FD });
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	tf_expect(ret, -FI_EMFILE);
}

static void test_close_unread(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_FD);

	(void)state;
	for (int i = 0; i < 100; i++)
		write_event(eq, FI_NOTIFY, 1);
	tf_ok(fi_close(&eq->fid));
}

static void test_close_bound(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, 0, FI_WAIT_NONE);
	struct fid_av *av = tf_open_av(&t, FI_AV_TABLE, FI_EVENT);

	(void)state;
	tf_ok(fi_av_bind(av, &eq->fid, 0));
	tf_expect(fi_close(&eq->fid), -FI_EBUSY);
	tf_ok(fi_close(&av->fid));
	tf_ok(fi_close(&eq->fid));
}

/* ---- write and read -------------------------------------------------------------------------- */

static void test_write_read(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_NONE);

	(void)state;
	check_empty(eq);
	for (uint64_t i = 0; i < 1000; i++)
		write_event(eq, (uint32_t)i, i);
	for (uint64_t i = 0; i < 1000; i++) {
		check_event(eq, FI_PEEK, (uint32_t)i, i);
		check_event(eq, FI_PEEK, (uint32_t)i, i);
		check_event(eq, 0, (uint32_t)i, i);
	}
	check_empty(eq);
	tf_ok(fi_close(&eq->fid));
}

/* Events of any length; one that does not fit the buffer stays. */
static void test_lengths(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_NONE);
	unsigned char out[5000], in[5000];
	uint32_t event;

	(void)state;
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (unsigned char)(i * 7);
	for (size_t len = 0; len <= sizeof(out); len += 625) {
		tf_expect(fi_eq_write(eq, 5, out, len, 0), len);
		if (len)
			tf_expect(fi_eq_read(eq, &event, in, len - 1, 0), -FI_ETOOSMALL);
		memset(in, 0, sizeof(in));
		tf_expect(fi_eq_read(eq, &event, in, sizeof(in), FI_PEEK), len);
		tf_expect(fi_eq_read(eq, &event, in, len, 0), len);
		assert_int_equal(event, 5);
		assert_memory_equal(in, out, len);
	}
	check_empty(eq);
	tf_ok(fi_close(&eq->fid));
}

static void test_flags(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_FD);
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry = { 0 };
	uint32_t event;

	(void)state;
	tf_expect(fi_eq_write(eq, 0, &entry, sizeof(entry), FI_MORE), -FI_EBADFLAGS);
	tf_expect(fi_eq_write(eq, 0, NULL, sizeof(entry), 0), -FI_EINVAL);
	tf_expect(fi_eq_write(eq, 0, &entry, SIZE_MAX, 0), -FI_EINVAL);
	write_event(eq, 0, 0);
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), FI_CLAIM), -FI_EBADFLAGS);
	tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), 0, FI_CLAIM), -FI_EBADFLAGS);
	tf_expect(fi_eq_readerr(eq, &error, FI_CLAIM), -FI_EBADFLAGS);
	tf_ok(fi_close(&eq->fid));

	eq = tf_open_eq(&t, 0, FI_WAIT_FD);
	tf_expect(fi_eq_write(eq, 0, &entry, sizeof(entry), 0), -FI_ENOSYS);
	tf_ok(fi_close(&eq->fid));
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* An address that nobody has: an error, and behind it the end of the insertion. */
static struct fid_av *open_failing_av(struct fid_eq *eq)
{
	struct fid_av *av = tf_open_av(&t, FI_AV_TABLE, FI_EVENT);

	tf_ok(fi_av_bind(av, &eq->fid, 0));
	return av;
}

static void fail_insertion(struct fid_av *av, void *context)
{
	tf_ok(fi_av_insert(av, BAD_ADDR, 1, NULL, 0, context));
}

static void test_errors(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_FD);
	struct fid_av *av = open_failing_av(eq);
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry;
	char buffer[64], small[5];
	uint32_t event;
	int context;

	(void)state;
	write_event(eq, FI_NOTIFY, 9);
	fail_insertion(av, &context);
	/* out of band: nothing is read while there is an error */
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), -FI_EAVAIL);
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), FI_PEEK), -FI_EAVAIL);
	tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), -FI_EAVAIL);
	tf_expect(fi_eq_readerr(eq, &error, FI_PEEK), sizeof(error));
	memset(&error, 0, sizeof(error));
	tf_expect(fi_eq_readerr(eq, &error, 0), sizeof(error));
	assert_ptr_equal(error.fid, &av->fid);
	assert_ptr_equal(error.context, &context);
	assert_int_equal(error.data, 0);
	assert_int_equal(error.err, FI_ECONNREFUSED);
	assert_null(error.err_data);
	assert_int_equal(error.err_data_size, 0);
	tf_expect(fi_eq_readerr(eq, &error, 0), -FI_EAGAIN);

	check_event(eq, 0, FI_NOTIFY, 9);
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	assert_int_equal(event, FI_AV_COMPLETE);
	assert_int_equal(entry.data, 0);

	/* a buffer for more about the error, which there is not, stays where it is */
	fail_insertion(av, NULL);
	error.err_data = buffer;
	error.err_data_size = sizeof(buffer);
	tf_expect(fi_eq_readerr(eq, &error, 0), sizeof(error));
	assert_ptr_equal(error.err_data, buffer);
	assert_int_equal(error.err_data_size, 0);

	assert_string_equal(fi_eq_strerror(eq, error.prov_errno, NULL, NULL, 0),
			    fi_strerror(FI_ECONNREFUSED));
	fi_eq_strerror(eq, error.prov_errno, NULL, buffer, sizeof(buffer));
	assert_string_equal(buffer, fi_strerror(FI_ECONNREFUSED));
	fi_eq_strerror(eq, error.prov_errno, NULL, small, sizeof(small));
	assert_int_equal(strlen(small), sizeof(small) - 1);
	tf_ok(fi_close(&av->fid));
	tf_ok(fi_close(&eq->fid));
}

/* Full: the application's own events are refused; one that cannot be refused is lost, and that shows. */
static void test_overrun(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_FD);
	struct fid_av *av = open_failing_av(eq);
	struct fi_eq_err_entry error = { 0 };
	uint32_t event, number;

	(void)state;
	for (number = 0; number < ROOM; number++)
		tf_expect(fi_eq_write(eq, 1, &number, sizeof(number), 0), sizeof(number));
	tf_expect(fi_eq_write(eq, 1, &number, sizeof(number), 0), -FI_EAGAIN);
	tf_expect(fi_eq_read(eq, &event, &number, sizeof(number), 0), sizeof(number));
	tf_expect(fi_eq_write(eq, 1, &number, sizeof(number), 0), sizeof(number));

	tf_expect(fi_av_insert(av, BAD_ADDR, 1, NULL, 0, NULL), -FI_EOVERRUN);
	tf_expect(fi_eq_write(eq, 1, &number, sizeof(number), 0), -FI_EOVERRUN);
	for (size_t i = 0; i < ROOM; i++)
		tf_expect(fi_eq_read(eq, &event, &number, sizeof(number), 0), sizeof(number));
	tf_expect(fi_eq_read(eq, &event, &number, sizeof(number), 0), -FI_EOVERRUN);
	tf_expect(fi_eq_sread(eq, &event, &number, sizeof(number), -1, 0), -FI_EOVERRUN);
	tf_expect(fi_eq_readerr(eq, &error, 0), sizeof(error));
	assert_int_equal(error.err, FI_EOVERRUN);
	tf_expect(fi_eq_write(eq, 1, &number, sizeof(number), 0), -FI_EOVERRUN);
	tf_ok(fi_close(&av->fid));
	tf_ok(fi_close(&eq->fid));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void test_sread(void **state)
{
	static const enum fi_wait_obj objects[] = { FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND,
						    FI_WAIT_YIELD };
	struct fi_eq_entry entry;
	uint32_t event;

	(void)state;
	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
		struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, objects[i]);
		int64_t begin = now_ms();

		tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), 50, 0), -FI_EAGAIN);
		assert_true(now_ms() - begin >= 50);
		tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), 0, 0), -FI_EAGAIN);
		write_event(eq, 3, 4);
		tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, FI_PEEK), sizeof(entry));
		tf_expect(fi_eq_sread(eq, &event, &entry, 1, -1, 0), -FI_ETOOSMALL);
		tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), sizeof(entry));
		assert_int_equal(event, 3);
		assert_int_equal(entry.data, 12);
		tf_ok(fi_close(&eq->fid));
	}
}

static void test_sread_without_wait_object(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_NONE);
	struct fi_eq_entry entry;
	uint32_t event;
	int fd;

	(void)state;
	tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), 10, 0), -FI_EINVAL);
	tf_expect(fi_control(&eq->fid, FI_GETWAIT, &fd), -FI_ENODATA);
	tf_ok(fi_close(&eq->fid));
}

static void *write_later(void *eq)
{
	nap(50);
	write_event(eq, 7, 8);
	return NULL;
}

/* One event, many waiters: each event goes to one of them. */
static void *read_one(void *eq)
{
	struct fi_eq_entry entry;
	uint32_t event;

	return (void *)(intptr_t)fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0);
}

static void test_sread_woken(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_UNSPEC);
	pthread_t writer, readers[4];
	struct fi_eq_entry entry;
	uint32_t event;
	void *result;

	(void)state;
	assert_int_equal(pthread_create(&writer, NULL, write_later, eq), 0);
	tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), sizeof(entry));
	assert_int_equal(event, 7);
	pthread_join(writer, NULL);

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&readers[i], NULL, read_one, eq), 0);
	for (int i = 0; i < 4; i++) {
		nap(5);
		write_event(eq, 1, 1);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(readers[i], &result);
		assert_int_equal((intptr_t)result, sizeof(entry));
	}
	check_empty(eq);
	tf_ok(fi_close(&eq->fid));
}

static void on_signal(int number)
{
	(void)number;
}

static atomic_bool interrupted;

/* Until the thread has been interrupted where it sleeps. */
static void *signal_often(void *thread)
{
	watchdog_await_by(interrupted, (pthread_kill(*(pthread_t *)thread, SIGUSR1), nap(1)));
	return NULL;
}

static void test_sread_signaled(void **state)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_UNSPEC);
	pthread_t self = pthread_self(), sender;
	struct fi_eq_entry entry;
	uint32_t event;

	(void)state;
	sigaction(SIGUSR1, &action, NULL);
	assert_int_equal(pthread_create(&sender, NULL, signal_often, &self), 0);
	tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), -FI_EAGAIN);
	interrupted = true;
	pthread_join(sender, NULL);
	tf_ok(fi_close(&eq->fid));
}

static int is_readable(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	return poll(&wait, 1, 0);
}

/* The descriptor is readable, and fi_trywait says no, exactly while there is something. */
static void check_wait(struct fid_eq *eq, int fd, int something)
{
	struct fid *fid = &eq->fid;

	assert_int_equal(is_readable(fd), something);
	tf_expect(fi_trywait(t.fabric, &fid, 1), something ? -FI_EAGAIN : 0);
}

static void test_descriptor(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_FD);
	struct fid_av *av = open_failing_av(eq);
	struct fi_eq_err_entry error = { 0 };
	struct fi_eq_entry entry;
	enum fi_wait_obj object;
	uint32_t event;
	int fd = -1;

	(void)state;
	tf_ok(fi_control(&eq->fid, FI_GETWAIT, &fd));
	tf_ok(fi_control(&eq->fid, FI_GETWAITOBJ, &object));
	assert_int_equal(object, FI_WAIT_FD);
	tf_expect(fi_control(&eq->fid, FI_GETWAIT, NULL), -FI_EINVAL);
	tf_expect(fi_control(&eq->fid, FI_ENABLE, &fd), -FI_ENOSYS);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);

	check_wait(eq, fd, 0);
	write_event(eq, 1, 1);
	check_wait(eq, fd, 1);
	write_event(eq, 1, 2);
	check_event(eq, FI_PEEK, 1, 1);
	check_wait(eq, fd, 1);
	check_event(eq, 0, 1, 1);
	check_wait(eq, fd, 1);
	check_event(eq, 0, 1, 2);
	check_wait(eq, fd, 0);

	fail_insertion(av, NULL);
	check_wait(eq, fd, 1);
	tf_expect(fi_eq_readerr(eq, &error, 0), sizeof(error));
	check_wait(eq, fd, 1);
	tf_expect(fi_eq_read(eq, &event, &entry, sizeof(entry), 0), sizeof(entry));
	check_wait(eq, fd, 0);
	tf_ok(fi_close(&av->fid));
	tf_ok(fi_close(&eq->fid));
}

/* The application waits on the condition itself, and may use the queue while it holds the mutex. */
static void test_condition(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_MUTEX_COND);
	struct fid *fid = &eq->fid;
	struct fi_mutex_cond wait;
	pthread_t writer;

	(void)state;
	tf_ok(fi_control(&eq->fid, FI_GETWAIT, &wait));
	pthread_mutex_lock(wait.mutex);
	assert_int_equal(pthread_create(&writer, NULL, write_later, eq), 0);
	while (!fi_trywait(t.fabric, &fid, 1))
		pthread_cond_wait(wait.cond, wait.mutex);
	check_event(eq, 0, 7, 8);
	pthread_mutex_unlock(wait.mutex);
	pthread_join(writer, NULL);
	tf_ok(fi_close(&eq->fid));
}

static void *write_many(void *eq)
{
	for (uint64_t i = 0; i < 20000; i++)
		write_event(eq, 1, i);
	return NULL;
}

/* Two writers, one reader asleep in between: nothing is lost, nothing is slept through. */
static void test_threads(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, FI_WRITE, FI_WAIT_UNSPEC);
	pthread_t writers[2];
	struct fi_eq_entry entry;
	uint64_t sum = 0;
	uint32_t event;

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&writers[i], NULL, write_many, eq), 0);
	for (int i = 0; i < 40000; i++) {
		tf_expect(fi_eq_sread(eq, &event, &entry, sizeof(entry), -1, 0), sizeof(entry));
		sum += entry.data;
	}
	assert_int_equal(sum, 2 * 3 * (19999ULL * 20000 / 2));
	for (int i = 0; i < 2; i++)
		pthread_join(writers[i], NULL);
	check_empty(eq);
	tf_ok(fi_close(&eq->fid));
}

static void test_unused_calls(void **state)
{
	struct fid_eq *eq = tf_open_eq(&t, 0, FI_WAIT_NONE);
	void *ops;

	(void)state;
	tf_expect(fi_open_ops(&eq->fid, "ops", 0, &ops, NULL), -FI_ENOSYS);
	tf_expect(fi_set_ops(&eq->fid, "ops", 0, NULL, NULL), -FI_ENOSYS);
	tf_expect(eq->fid.ops->bind(&eq->fid, &t.domain->fid, 0), -FI_ENOSYS);
	tf_ok(fi_close(&eq->fid));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_no_descriptor),
		cmocka_unit_test(test_close_unread),
		cmocka_unit_test(test_close_bound),
		cmocka_unit_test(test_write_read),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_overrun),
		cmocka_unit_test(test_sread),
		cmocka_unit_test(test_sread_without_wait_object),
		cmocka_unit_test(test_sread_woken),
		cmocka_unit_test(test_sread_signaled),
		cmocka_unit_test(test_descriptor),
		cmocka_unit_test(test_condition),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_unused_calls),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
