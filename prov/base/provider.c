/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * provider.c: the structure by which libfabric knows the provider, and the parameters of the environment. Both are
 * written once, before any object is opened (init.c); eager_max may change later (shmcma_calibrate()).
 */
#include "base/provider.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define INLINE_LIMIT 872 /* bytes that a record of 16 lines holds beside its control part */
#define BUFS_LIMIT 4096
#define BUFS_PER_MESSAGE 16

/* Writable: libfabric keeps its own state in `context`, and init.c puts in the calls. */
struct fi_provider shmcma_provider = {
	.version = SHMCMA_VERSION,
	.name = SHMCMA_NAME,
};

struct shmcma_env shmcma_env;

struct size_param {
	const char *name;
	uint32_t *value;
	size_t min, max;
	size_t unit; /* the value must be a multiple of this */
	const char *help;
};

/* Accepts decimal, octal and hexadecimal (0x) numbers with blanks around them. */
static bool is_number(const char *text, uintmax_t *value)
{
	char *end;

	text += strspn(text, " \t");
	*value = strtoumax(text, &end, 0); /* UINTMAX_MAX: out of range */
	return isdigit((unsigned char)*text) && !end[strspn(end, " \t")];
}

/* Tells whether the parameter is given. It is read as a string, because libfabric reads 32k as 32 and a word as 0. */
static bool read_size(const struct size_param *param)
{
	uintmax_t value;
	char *text;

	fi_param_define(&shmcma_provider, param->name, FI_PARAM_STRING, "%s (default: %u)", param->help,
			*param->value);
	if (fi_param_get_str(&shmcma_provider, param->name, &text))
		return false;
	if (!is_number(text, &value))
		shmcma_warn(FI_LOG_CORE, "FI_SHMCMA parameter %s=%s is not a number: using %u\n",
			    param->name, text, *param->value);
	else if (value < param->min || value > param->max || value % param->unit)
		shmcma_warn(FI_LOG_CORE,
			    "FI_SHMCMA parameter %s=%s is not from %zu to %zu in steps of %zu: using %u\n",
			    param->name, text, param->min, param->max, param->unit, *param->value);
	else
		*param->value = (uint32_t)value;
	return true;
}

static bool read_bool(const char *name, bool value, const char *help)
{
	int given;
	int ret;

	fi_param_define(&shmcma_provider, name, FI_PARAM_BOOL, "%s (default: %s)", help,
			value ? "yes" : "no");
	ret = fi_param_get_bool(&shmcma_provider, name, &given);
	if (!ret)
		return given;
	if (ret != -FI_ENODATA)
		shmcma_warn(FI_LOG_CORE, "FI_SHMCMA parameter %s is neither yes nor no: using %s\n", name,
			    value ? "yes" : "no");
	return value;
}

/* A parameter with several words as values; words[usual] is the default. `words` ends with NULL. */
struct choice {
	const char *name, *help;
	const char *const *words;
	unsigned int usual;
};

static unsigned int read_choice(const struct choice *param)
{
	const char *usual = param->words[param->usual];
	char *given, all[64] = "";

	fi_param_define(&shmcma_provider, param->name, FI_PARAM_STRING, "%s (default: %s)", param->help,
			usual);
	if (fi_param_get_str(&shmcma_provider, param->name, &given))
		return param->usual;
	for (unsigned int i = 0; param->words[i]; i++) {
		if (!strcasecmp(given, param->words[i]))
			return i;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "",
			 param->words[i]);
	}
	shmcma_warn(FI_LOG_CORE, "FI_SHMCMA parameter %s=%s is none of %s: using %s\n", param->name, given,
		    all, usual);
	return param->usual;
}

/* Tells whether peers must not touch registered memory. */
static bool read_strict(void)
{
	static const char *const words[] = { "trusted", "strict", NULL };

	return read_choice(&(struct choice){
		"rma",
		"How peers access registered memory: trusted, they copy by themselves after they have checked the "
		"registration; strict, this process checks and copies for them, in a thread of its own",
		words, 0 });
}

static enum sc_fill_way read_fill(void)
{
	static const char *const words[] = { [SC_FILL_CACHED] = "cached",
					     [SC_FILL_STREAMED] = "streamed",
					     [SC_FILL_TRIED] = "tried",
					     NULL };

	return (enum sc_fill_way)read_choice(&(struct choice){
		"fill",
		"How shared buffers are filled: cached, by plain stores; streamed, past the processor's caches; tried, "
		"whichever turns out to be best for each peer",
		words, SC_FILL_TRIED });
}

static enum shmcma_yield_mode read_yield(void)
{
	static const char *const words[] = { [SHMCMA_YIELD_AUTO] = "auto",
					     [SHMCMA_YIELD_NEVER] = "never",
					     [SHMCMA_YIELD_ALWAYS] = "always",
					     NULL };

	return (enum shmcma_yield_mode)read_choice(&(struct choice){
		"yield",
		"When a caller that polls in vain lets other processes run on its processor: auto, while more "
		"processes have endpoints here than there are processors for them; never; always",
		words, SHMCMA_YIELD_AUTO });
}

bool shmcma_is_listed(const char *list)
{
	while (*list) {
		size_t len = strcspn(list, ",;");

		if (len == strlen(SHMCMA_NAME) && !strncasecmp(list, SHMCMA_NAME, len))
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}

/* FI_PROVIDER=shmcma,...: the user wants this provider. A list after ^ names unwanted providers. */
static bool is_named_in_environment(void)
{
	const char *list = getenv("FI_PROVIDER");

	return list && *list != '^' && shmcma_is_listed(list);
}

void shmcma_env_read(void)
{
	struct sc_config *config = &shmcma_env.config;

	sc_config_init(config);
	config->cma = read_bool(
		"cma", config->cma,
		"Copy large messages straight between processes (cross memory attach). Without it they go through "
		"shared buffers.");
	config->daemon = read_bool("daemon", config->daemon,
				   "Have a thread that finds out at once about the death of other processes and "
				   "removes what they leave. Without it that is found by polling.");
	config->scan =
		read_bool("scan", config->scan,
			  "Have that thread look twice a second whether processes that are no peers have ended, and "
			  "every 30 seconds through /dev/shm for what it may have missed.");
	config->calibrate =
		read_bool("calibrate", true,
			  "Choose between the ways of a message by what they cost on this machine. That thread "
			  "measures it in a millisecond, once for each boot, for processes to come. Without it a "
			  "usual cost is taken.");
	config->strict = read_strict();
	config->fill = read_fill();
	shmcma_env.yield = read_yield();
	shmcma_env.remote_comm = read_bool("remote_comm", false,
					   "Offer FI_REMOTE_COMM to everybody. Addresses of other machines are "
					   "refused all the same, when they are inserted. Without it FI_REMOTE_COMM "
					   "is offered to those who name this provider in their hints or in "
					   "FI_PROVIDER.") ||
				 is_named_in_environment();

	read_size(&(struct size_param){ "peers", &config->slots, 1, 1024, 1,
					"How many peers may connect to an endpoint, 1 to 1024" });
	read_size(&(struct size_param){ "bounce_size", &config->buf_size, 256, 1 << 20, 64,
					"Bytes of one of an endpoint's shared buffers: a power of two" });
	if (config->buf_size & (config->buf_size - 1)) {
		struct sc_config defaults;

		sc_config_init(&defaults);
		shmcma_warn(FI_LOG_CORE,
			    "FI_SHMCMA parameter bounce_size=%u is not a power of two: using %u\n",
			    config->buf_size, defaults.buf_size);
		config->buf_size = defaults.buf_size;
	}
	read_size(&(struct size_param){ "bounce_count", &config->buf_count, 2, BUFS_LIMIT, 1,
					"How many shared buffers an endpoint has, 2 to 4096" });
	read_size(&(struct size_param){
		"inline_max", &config->inline_max, 0, INLINE_LIMIT, 1,
		"Largest message, in bytes, that travels inside its record, up to 872" });
	if (config->eager_max > config->buf_size * BUFS_PER_MESSAGE)
		config->eager_max = config->buf_size * BUFS_PER_MESSAGE;
	shmcma_env.calibrated = !read_size(&(struct size_param){
		"eager_max", &config->eager_max, 0, (size_t)config->buf_size * BUFS_PER_MESSAGE, 1,
		"Largest message, in bytes, that goes through shared buffers without asking its receiver, up to 16 "
		"buffers. Without it a default that may be changed by what has been measured on this machine" });
	shmcma_env.calibrated &= config->calibrate;
	config->eager_adapts = shmcma_env.calibrated && config->fill == SC_FILL_TRIED;
	config->calibrate &= config->cma;
	read_size(&(struct size_param){
		"share_min", &config->share_min, 1, UINT32_MAX, 1,
		"Smallest message, in bytes, that its sender helps the receiver to copy" });
}

/* If the costs are not known yet, the daemon's thread measures them, for later processes. */
void shmcma_calibrate(void)
{
	struct sc_config *config = &shmcma_env.config;
	struct sc_calibration calibration;
	uint32_t before = config->eager_max;

	if (!shmcma_env.calibrated || sc_calibration_load(&calibration))
		return;
	config->calibrate = false;
	sc_calibration_apply(&calibration, config);
	if (config->eager_max != before)
		shmcma_info(FI_LOG_CORE,
			    "by what copies cost on this machine eager_max is %u (shmcma-tune)\n",
			    config->eager_max);
}

