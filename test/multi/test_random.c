/* SPDX-License-Identifier: BSD-2-Clause */
/* test_random [seed]: random traffic between 2 to 16 processes, checked against the rules of matching. */
#define _GNU_SOURCE 1
#include "kernels.h"

#define DEFAULT_SEED 20250

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : DEFAULT_SEED;
	/* so many messages of each pair that all fit into the receive queue of a rank */
	static const struct {
		int ranks, phases, messages;
	} sizes[] = { { 1, 6, 200 },  { 2, 20, 180 }, { 3, 12, 140 },
		      { 4, 10, 100 }, { 8, 6, 50 },   { 16, 4, 24 } };

	mt_init("test_random");
	mt_run(&(struct mt_case){ .name = "reference",
				  .ranks = 4,
				  .rank = random_reference_rank,
				  .arg = &(struct random_params){
					  .seed = seed, .phases = 8, .messages = 80, .max = 4096 } });
	printf("test_random: seed %llu\n", (unsigned long long)seed);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct random_params params = {
			.seed = seed + i,
			.phases = MT_SANITIZED ? (sizes[i].phases + 1) / 2 : sizes[i].phases,
			.messages = sizes[i].messages,
			.max = 256 << 10,
		};
		char name[32];
		struct mt_case test = { .name = name,
					.ranks = sizes[i].ranks,
					.deadline = 90,
					.rank = random_rank,
					.arg = &params };

		snprintf(name, sizeof(name), "random-%d", sizes[i].ranks);
		mt_run(&test);
	}
	return mt_end();
}
