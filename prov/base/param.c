/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * param.c: reads the parameters of the environment, once, before any object is opened. Only eager_max changes later
 * (shmcma_calibrate()).
 *
 * libfabric would read 32k as 32, and a word as 0. So this file reads numbers as strings.
 *
 * The names begin with FI_SHMCMA_ in each module. libfabric makes such a name of a provider's name, so these parameters
 * are defined as parameters of libfabric itself, which have none.
 */
#define _GNU_SOURCE 1
#include "base/param.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/provider.h"

#define PREFIX "FI_SHMCMA_"
#define NAME_MAX_ 32 /* characters of a variable's name, with the end */
#define PARAMS_MAX 32

/* The names of the parameters that have been read. */
static const char *known[PARAMS_MAX];
static unsigned int known_count;

struct variable {
	char name[NAME_MAX_];
};

static struct variable variable_of(const char *param)
{
	struct variable variable = { PREFIX };
	size_t len = strlen(PREFIX);

	for (; *param && len + 1 < sizeof(variable.name); param++)
		variable.name[len++] = (char)toupper((unsigned char)*param);
	return variable;
}

/* The name of a variable as libfabric's calls take it: without FI_. */
static const char *libfabrics(const struct variable *variable)
{
	return variable->name + strlen("FI_");
}

/* Tells libfabric of the parameter, and of its default. */
static void define(const char *param, enum fi_param_type type, const char *help, const char *usual)
{
	const struct variable variable = variable_of(param);

	assert(known_count < PARAMS_MAX);
	known[known_count++] = param;
	fi_param_define(NULL, libfabrics(&variable), type, "shmcma: %s (default: %s)", help, usual);
}

/* Returns the value of the parameter; NULL: it is not set, or empty. */
static const char *value_of(const char *param)
{
	const char *text = getenv(variable_of(param).name);

	return text && text[strspn(text, " \t")] ? text : NULL;
}

/* A number from min to max, a multiple of `unit`; k, m and g behind it stand for KiB, MiB and GiB. */
struct size_param {
	const char *name; /* in lower case, without FI_SHMCMA_ */
	const char *help;
	size_t min, max, unit;
	bool power; /* a power of two */
	size_t at;  /* of the number in struct sc_config */
};
#define AT(field) offsetof(struct sc_config, field)

/* Stores the number to its field, which has the default before. Returns whether a good value was set. */
static bool param_size(const struct size_param *param)
{
	uint32_t *value = (uint32_t *)((char *)&shmcma_env.config + param->at);
	const struct variable variable = variable_of(param->name);
	const char *text;
	uint64_t number;
	char usual[16];

	snprintf(usual, sizeof(usual), "%" PRIu32, *value);
	define(param->name, FI_PARAM_STRING, param->help, usual);
	text = value_of(param->name);
	if (!text)
		return false;
	if (!sc_size_parse(text, &number)) {
		shmcma_warn(FI_LOG_CORE, "%s=%s is not a number: using %s\n", variable.name, text, usual);
	} else if (number < param->min || number > param->max || number % param->unit) {
		shmcma_warn(FI_LOG_CORE, "%s=%s is not from %zu to %zu in steps of %zu: using %s\n",
			    variable.name, text, param->min, param->max, param->unit, usual);
	} else if (param->power && number & (number - 1)) {
		shmcma_warn(FI_LOG_CORE, "%s=%s is not a power of two: using %s\n", variable.name, text,
			    usual);
	} else {
		*value = (uint32_t)number;
		return true;
	}
	return false;
}

static bool param_bool(const char *name, bool usual, const char *help)
{
	const struct variable variable = variable_of(name);
	const char *word = usual ? "yes" : "no";
	int given;

	define(name, FI_PARAM_BOOL, help, word);
	if (!value_of(name))
		return usual;
	if (!fi_param_get_bool(NULL, libfabrics(&variable), &given))
		return given;
	shmcma_warn(FI_LOG_CORE, "%s=%s is neither yes nor no: using %s\n", variable.name, value_of(name),
		    word);
	return usual;
}

/* Returns the index of one of several words, in any case. `words` ends with NULL; `usual`: the index of the default. */
static unsigned int param_choice(const char *name, const char *const *words, unsigned int usual,
				 const char *help)
{
	const char *text;
	char all[64] = "";

	define(name, FI_PARAM_STRING, help, words[usual]);
	text = value_of(name);
	if (!text)
		return usual;
	for (unsigned int i = 0; words[i]; i++) {
		if (!strcasecmp(text, words[i]))
			return i;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "", words[i]);
	}
	shmcma_warn(FI_LOG_CORE, "%s=%s is none of %s: using %s\n", variable_of(name).name, text, all,
		    words[usual]);
	return usual;
}

/* Returns the text, which is never freed; NULL: it is not set. */
static const char *param_text(const char *name, const char *help)
{
	const char *text;

	define(name, FI_PARAM_STRING, help, "none");
	text = value_of(name);
	return text ? strdup(text) : NULL;
}

/* ---- names that are no parameter's ----------------------------------------------------------- */

static unsigned int least(unsigned int a, unsigned int b, unsigned int c)
{
	unsigned int less = a < b ? a : b;

	return less < c ? less : c;
}

/* Characters to put in, take out or change, to make one word of the other (Levenshtein), in any case. */
static unsigned int distance(const char *from, size_t len, const char *to)
{
	unsigned int row[NAME_MAX_ + 1];
	size_t to_len = strnlen(to, NAME_MAX_);

	for (size_t j = 0; j <= to_len; j++)
		row[j] = (unsigned int)j;
	for (size_t i = 0; i < len; i++) {
		unsigned int diagonal = row[0];

		row[0] = (unsigned int)i + 1;
		for (size_t j = 0; j < to_len; j++) {
			bool other = tolower((unsigned char)from[i]) != tolower((unsigned char)to[j]);
			unsigned int above = row[j + 1];

			row[j + 1] = least(above + 1, row[j] + 1, diagonal + other);
			diagonal = above;
		}
	}
	return row[to_len];
}

/* `name`: what follows the prefix, `len` characters. */
static void check_name(const char *name, size_t len)
{
	const char *nearest = known[0];

	for (unsigned int i = 0; i < known_count; i++) {
		if (strlen(known[i]) == len &&
		    !strncmp(variable_of(known[i]).name + strlen(PREFIX), name, len))
			return;
		if (distance(name, len, known[i]) < distance(name, len, nearest))
			nearest = known[i];
	}
	shmcma_warn(FI_LOG_CORE,
		    "%s%.*s is no parameter and is ignored; did you mean %s? fi_shmcma(7) lists them\n",
		    PREFIX, (int)len, name, variable_of(nearest).name);
}

static void check_names(void)
{
	for (char **variable = environ; variable && *variable; variable++)
		if (!strncmp(*variable, PREFIX, strlen(PREFIX))) {
			const char *name = *variable + strlen(PREFIX);

			check_name(name, strcspn(name, "="));
		}
}

/* ---- the parameters --------------------------------------------------------------------------- */

#define INLINE_LIMIT 872 /* bytes that a record of 16 lines holds beside its control part */
#define BUFS_PER_MESSAGE 16

struct shmcma_env shmcma_env = { .tx_size = SHMCMA_DEFAULT_SIZE, .rx_size = SHMCMA_DEFAULT_SIZE };

static const struct size_param sizes[] = {
	{ "peers", "How many peers may connect to an endpoint, 1 to 1024", 1, 1024, 1, false, AT(slots) },
	{ "bounce_size", "Bytes of one of an endpoint's shared buffers: a power of two, 256 to 1m", 256,
	  1 << 20, 64, true, AT(buf_size) },
	{ "bounce_count", "How many shared buffers an endpoint has, 2 to 4096", 2, 4096, 1, false,
	  AT(buf_count) },
	{ "inline_max", "Largest message, in bytes, that travels inside its record, up to 872", 0,
	  INLINE_LIMIT, 1, false, AT(inline_max) },
	{ "share_min", "Smallest message, in bytes, that its sender helps the receiver to copy", 1,
	  UINT32_MAX, 1, false, AT(share_min) },
};

static void read_choices(struct sc_config *config)
{
	static const char *const rma[] = { "trusted", "strict", NULL };
	static const char *const fill[] = { [SC_FILL_CACHED] = "cached",
					    [SC_FILL_STREAMED] = "streamed",
					    [SC_FILL_TRIED] = "tried",
					    NULL };
	static const char *const yield[] = {
		[SC_CROWD_ASKED] = "auto", [SC_CROWD_NEVER] = "never", [SC_CROWD_ALWAYS] = "always", NULL
	};

	config->strict = param_choice(
		"rma", rma, 0,
		"How peers access registered memory: trusted, they copy by themselves after they have "
		"checked the registration; strict, this process checks and copies for them, in a thread "
		"of its own");
	config->fill = (enum sc_fill_way)param_choice(
		"fill", fill, SC_FILL_TRIED,
		"How shared buffers are filled: cached, by plain stores; streamed, past the processor's "
		"caches; tried, whichever turns out to be best for each peer");
	config->crowd = (enum sc_crowd)param_choice(
		"yield", yield, SC_CROWD_ASKED,
		"When a caller that polls in vain lets other processes run on its processor, one side "
		"copies a large message alone, and a message of up to eager_max bytes goes through shared "
		"buffers: auto, while more processes with endpoints want to run here than there are "
		"processors for them; never; always");
}

/* FI_PROVIDER=shmcma,...: the user wants this provider. A list after ^ names unwanted providers. */
static bool is_named_in_environment(void)
{
	const char *list = getenv("FI_PROVIDER");

	return shmcma_module.name_is_remote && list && *list != '^' && shmcma_is_listed(list);
}

void shmcma_env_read(void)
{
	struct size_param eager_max = {
		.name = "eager_max",
		.help = "Largest message, in bytes, that goes through shared buffers without asking its "
			"receiver, up to 16 buffers. Without it a default that may be changed by what has "
			"been measured on this machine",
		.unit = 1,
		.at = AT(eager_max),
	};
	struct sc_config *config = &shmcma_env.config;

	sc_config_init(config);
	shmcma_module_init(&shmcma_env);
	config->cma = param_bool("cma", config->cma,
				 "Copy large messages straight between processes (cross memory "
				 "attach). Without it they go through shared buffers.");
	config->daemon =
		param_bool("daemon", config->daemon,
			   "Have a thread that finds out at once about the death of other processes and "
			   "removes what they leave. Without it that is found by polling.");
	config->scan = param_bool(
		"scan", config->scan,
		"Have that thread look twice a second whether processes that are no peers have ended, and "
		"every 30 seconds through /dev/shm for what it may have missed.");
	config->calibrate = param_bool(
		"calibrate", true,
		"Choose between the ways of a message by what they cost on this machine. That thread "
		"measures it for processes to come, sixteen times a millisecond for each boot. Without it "
		"a usual cost is taken.");
	read_choices(config);
	shmcma_env.remote_comm =
		param_bool("remote_comm", false,
			   "Offer FI_REMOTE_COMM to everybody. Addresses of other machines are "
			   "refused all the same, when they are inserted. Without it FI_REMOTE_COMM "
			   "is offered to those who name this provider in their hints or in "
			   "FI_PROVIDER.") ||
		is_named_in_environment();

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		(void)param_size(&sizes[i]);
	eager_max.max = (size_t)config->buf_size * BUFS_PER_MESSAGE;
	if (config->eager_max > eager_max.max)
		config->eager_max = (uint32_t)eager_max.max;
	shmcma_env.calibrated = !param_size(&eager_max) && config->calibrate;
	config->eager_adapts = shmcma_env.calibrated && config->fill == SC_FILL_TRIED;
	config->calibrate &= config->cma;
	shmcma_env.stats = param_text(
		"stats", "Where an endpoint that closes writes what it has carried: stderr, or the "
			 "beginning of the name of a file; a dot and the pid follow");
	check_names();
}

/* The daemon's thread measures costs that are not known well yet, for processes to come. */
void shmcma_calibrate(void)
{
	struct sc_config *config = &shmcma_env.config;
	struct sc_calibration calibration;
	uint32_t before = config->eager_max;

	if (!shmcma_env.calibrated || sc_calibration_load(&calibration))
		return;
	config->calibrate &= calibration.rounds < SC_CALIBRATION_ROUNDS;
	sc_calibration_apply(&calibration, config);
	if (config->eager_max != before)
		shmcma_info(FI_LOG_CORE,
			    "by what copies cost on this machine eager_max is %u (shmcma tune)\n",
			    config->eager_max);
}
