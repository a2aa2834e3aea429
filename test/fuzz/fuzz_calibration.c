/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_calibration: the file that keeps the cost of copies on this machine, with any content that a process of the
 * user may have left; and the measured times, with any value that clock and kernel can give.
 *
 * Input: the file's bytes; missing ones are 0. It is taken as it is, then with the magic, this boot and
 * machine and the checksum that belongs to it, so that what is behind those is seen as well. The first 32
 * bytes are four times that copies have taken, too. An accepted calibration can be written again and is the same;
 * the values that follow from it are within bounds.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proc/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                                  \
	do {                                                                                              \
		if (!(condition))                                                                         \
			abort();                                                                          \
	} while (0)

static void check_use(const struct sc_calibration *calibration)
{
	struct sc_config config;
	uint32_t least, most;

	sc_config_init(&config);
	sc_calibration_limits(calibration, &least, &most);
	CHECK(least >= 8192 && least <= most && most <= 65536);
	sc_calibration_apply(calibration, &config);
	CHECK(config.eager_max >= least && config.eager_max <= most);
}

static void check_again(const struct sc_calibration *calibration)
{
	struct sc_abi_calibration file;
	struct sc_calibration again;

	CHECK(!sc_calibration_format(calibration, &file));
	CHECK(!sc_calibration_parse(&file, &again));
	CHECK(again.cma_start == calibration->cma_start && again.cma_per_kib == calibration->cma_per_kib &&
	      again.near_per_kib == calibration->near_per_kib &&
	      again.far_per_kib == calibration->far_per_kib && again.time == calibration->time &&
	      again.rounds == calibration->rounds);
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
	static const struct sc_calibration some = { 1000, 100, 50, 150, 0, 1 };
	struct sc_abi_calibration file = { 0 }, ours;
	struct sc_calibration measured = { 0 };
	struct sc_calibration_times times;

	memcpy(&file, data, size < sizeof(file) ? size : sizeof(file));
	memcpy(&times, &file, sizeof(times));
	parse(&file);
	CHECK(!sc_calibration_format(&some, &ours));
	file.magic = ours.magic;
	sign(&file);
	parse(&file);
	memcpy(file.boot_id, ours.boot_id, sizeof(file.boot_id));
	file.machine = ours.machine;
	sign(&file);
	parse(&file);
	if (!sc_calibration_judge(&times, &measured))
		check_again(&measured);
	return 0;
}
