/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_calibration: the file in which what copies cost on this machine is kept, as any process of the user
 * may have left it; and what was measured, whatever clock and kernel said.
 *
 * Input: the file's bytes; missing ones are 0. It is taken as it is, then with the magic, this boot and
 * kernel and the checksum that belongs to it, so that what is behind those is seen as well. The first 16
 * bytes are two times that copies have taken, too. What is accepted can be written again and is the same;
 * what follows from it is a cost with which every message finds a way.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "calibration.h"
#include "crossover.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                  \
	do {                                                                                              \
		if (!(condition))                                                                         \
			abort();                                                                          \
	} while (0)

static void check_use(const struct sc_calibration *calibration)
{
	struct sc_crossover crossover;
	struct sc_config config;

	sc_config_init(&config);
	sc_calibration_apply(calibration, &config);
	for (int64_t ns = 1; ns < INT64_MAX / 16; ns *= 8) {
		sc_crossover_init(&crossover, config.eager_max, UINT32_MAX);
		sc_crossover_learn(&crossover, &config.rendezvous, 16384, ns);
		CHECK(crossover.eager_max >= SC_CROSSOVER_MIN && crossover.eager_max <= SC_CROSSOVER_MAX);
	}
}

static void check_again(const struct sc_calibration *calibration)
{
	struct sc_abi_calibration file;
	struct sc_calibration again;

	CHECK(!sc_calibration_format(calibration, &file));
	CHECK(!sc_calibration_parse(&file, &again));
	CHECK(again.cma.start == calibration->cma.start && again.cma.per_kib == calibration->cma.per_kib &&
	      again.time == calibration->time);
	check_use(calibration);
}

static void sign(struct sc_abi_calibration *file)
{
	const uint8_t *bytes = (const uint8_t *)file;

	file->checksum = 0xcbf29ce484222325u;
	for (size_t i = 0; i < offsetof(struct sc_abi_calibration, checksum); i++)
		file->checksum = (file->checksum ^ bytes[i]) * 0x100000001b3u;
}

static void parse(const struct sc_abi_calibration *file)
{
	struct sc_calibration calibration;
	int ret = sc_calibration_parse(file, &calibration);

	CHECK(!ret || ret == -EPROTO || ret == -ESTALE);
	if (!ret)
		check_again(&calibration);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct sc_calibration some = { .cma = { 1000, 100 } };
	struct sc_abi_calibration file = { 0 }, ours;
	struct sc_calibration measured = { 0 };
	int64_t times[2];

	memcpy(&file, data, size < sizeof(file) ? size : sizeof(file));
	memcpy(times, &file, sizeof(times));
	parse(&file);
	CHECK(!sc_calibration_format(&some, &ours));
	file.magic = ours.magic;
	sign(&file);
	parse(&file);
	memcpy(file.boot_id, ours.boot_id, sizeof(file.boot_id));
	file.kernel = ours.kernel;
	sign(&file);
	parse(&file);
	if (!sc_calibration_judge(times[0], times[1], &measured.cma))
		check_again(&measured);
	return 0;
}
