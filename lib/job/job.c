/* The job file: a table of keys, the checks of each value, the checks between values, and
 * the defaults. */
#include "job/job.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "job/ini.h"
#include "wire/bfp.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOB_AT(key_member) offsetof(struct fal_job, key_member)

/* A text during parsing. */
struct job_parser {
	const char *name;
	const struct fal_job_assignments *set;
	struct fal_job *job;
	unsigned *line;         /* of each key; 0: the text lacks the key */
	uint32_t mean_n, std_n; /* entries of the lists */
	struct fal_problems *problems;
};

enum key_type {
	TEXT,     /* char *, of min..max bytes */
	NAME,     /* as TEXT, in UTF-8 for JSON, and without / for the state folder */
	HASH,     /* char *, of 64 digits */
	U64,      /* uint64_t */
	U32,      /* uint32_t */
	DOUBLE,   /* double */
	FLOAT,    /* float */
	PERCENT,  /* double, followed by % */
	CHOICE,   /* an enum, by `choices` */
	LIST,     /* float[FAL_JOB_CHANNELS], with commas */
	SCHEME,   /* struct fal_rule */
	METRICS,  /* struct fal_metric_names */
	PLACEMENT /* as CHOICE, or file:PATH */
};

struct key {
	const char *section, *name;
	enum key_type type;
	size_t at; /* offset in struct fal_job */
	double min, max;
	const char *choices; /* words, in the order of the enum's values */
	bool is_required;
};

#define KEY(s, n, t, f, lo, hi, ...) \
	{ .section = s,              \
	  .name = n,                 \
	  .type = t,                 \
	  .at = JOB_AT(f),           \
	  .min = lo,                 \
	  .max = hi,                 \
	  __VA_ARGS__ }
#define REQUIRED .is_required = true

/* clang-format off */
static const struct key keys[] = {
	KEY("job", "name", NAME, name, 1, 64, REQUIRED),
	KEY("job", "seed", U64, seed, 0, 0x1p64, REQUIRED),
	KEY("job", "epochs", U32, epochs, 1, 1e6, REQUIRED),
	KEY("job", "numerics", CHOICE, numerics, 0, 0, .choices = "portable fast"),
	KEY("job", "nonfinite", CHOICE, nonfinite, 0, 0, .choices = "stop skip"),
	KEY("job", "eval", CHOICE, eval, 0, 0, .choices = "epoch end never"),
	KEY("job", "patience", U32, patience, 1, 1e6),
	KEY("job", "metrics", METRICS, metrics, 0, 0),
	KEY("job", "audit", CHOICE, audit, 0, 0, .choices = "claims sums"),
	KEY("job", "hashes", U32, hashes, 1, 1e6),
	KEY("job", "task-hashes", CHOICE, task_hashes, 0, 0, .choices = "no yes"),
	KEY("job", "placement", PLACEMENT, placement, 0, 0, .choices = "blocks psld file:PATH"),
	KEY("job", "verify", PERCENT, verify, 0, 100),
	KEY("model", "file", TEXT, model, 1, FAL_INI_LINE),
	KEY("model", "file-sha256", HASH, model_sha256, 64, 64),
	KEY("model", "init", TEXT, init, 1, FAL_INI_LINE),
	KEY("model", "init-sha256", HASH, init_sha256, 64, 64),
	KEY("model", "from-sha256", HASH, from_sha256, 64, 64),
	KEY("model", "block", CHOICE, block, 0, 0, .choices = "vector tensor"),
	KEY("model", "freeze", TEXT, freeze, 1, FAL_INI_LINE),
	KEY("model", "buffers", TEXT, buffers, 1, FAL_INI_LINE),
	KEY("model", "buffer-momentum", DOUBLE, optim.buffer_momentum, 0, 1),
	KEY("data", "format", CHOICE, format, 0, 0,
	    .choices = "idx npy safetensors csv tsv text cifar10 cifar100 index", REQUIRED),
	KEY("data", "train-images", TEXT, train_images, 1, FAL_INI_LINE),
	KEY("data", "train", TEXT, train, 1, FAL_INI_LINE),
	KEY("data", "train-labels", TEXT, train_labels, 1, FAL_INI_LINE),
	KEY("data", "test-images", TEXT, test_images, 1, FAL_INI_LINE),
	KEY("data", "test", TEXT, test, 1, FAL_INI_LINE),
	KEY("data", "test-labels", TEXT, test_labels, 1, FAL_INI_LINE),
	KEY("data", "features", TEXT, features, 1, FAL_INI_LINE),
	KEY("data", "label", TEXT, label, 1, FAL_INI_LINE),
	KEY("data", "target", CHOICE, target, 0, 0, .choices = "class value"),
	KEY("data", "window", U32, window, 1, (1 << 20) - 2),
	KEY("data", "hash", HASH, data_hash, 64, 64),
	KEY("data", "train-hash", HASH, train_hash, 64, 64),
	KEY("data", "test-hash", HASH, test_hash, 64, 64),
	KEY("data", "samples", U32, samples, 0, 0x1p31),
	KEY("data", "test-samples", U32, test_samples, 0, 0x1p31),
	KEY("data", "shuffle", CHOICE, shuffle, 0, 0, .choices = "window full"),
	KEY("data", "partition", CHOICE, partition, 0, 0, .choices = "shared worker label-skew"),
	KEY("data", "parts", U32, parts, 1, 1 << 20),
	KEY("data", "mean", LIST, mean, -1e6, 1e6),
	KEY("data", "std", LIST, std, 1e-6, 1e6),
	KEY("batch", "size", U32, batch, 1, 1 << 20, REQUIRED),
	KEY("batch", "task", U32, task, 1, 1 << 20),
	KEY("batch", "tail", DOUBLE, tail, 0, 1),
	KEY("batch", "tail-task", U32, tail_task, 1, 1 << 20),
	KEY("verify", "stop", CHOICE, verify_stop, 0, 0, .choices = "no yes"),
	KEY("push", "bits", U32, push_bits, 8, FAL_BFP_P),
	KEY("optimizer", "kind", CHOICE, optim.kind, 0, 0,
	    .choices = "sgd momentum nesterov adagrad adamw", REQUIRED),
	KEY("optimizer", "lr", DOUBLE, schedule.lr, 1e-12, 1000, REQUIRED),
	KEY("optimizer", "momentum", FLOAT, optim.momentum, 0, 0.9999),
	KEY("optimizer", "momentum-per", CHOICE, momentum_per, 0, 0,
	    .choices = "worker server"),
	KEY("optimizer", "beta1", DOUBLE, optim.beta1, 0, 0.9999),
	KEY("optimizer", "beta2", DOUBLE, optim.beta2, 0, 0.999999),
	KEY("optimizer", "eps", FLOAT, optim.eps, 1e-20, 1),
	KEY("optimizer", "weight-decay", FLOAT, optim.weight_decay, 0, 1),
	KEY("optimizer", "decay", CHOICE, decay, 0, 0, .choices = "coupled decoupled"),
	KEY("optimizer", "lr-scale", TEXT, lr_scale, 1, FAL_INI_LINE),
	KEY("optimizer", "decay-scale", TEXT, decay_scale, 1, FAL_INI_LINE),
	KEY("optimizer", "clip", DOUBLE, optim.clip, 0, 1e30),
	KEY("optimizer", "ema", DOUBLE, optim.ema, 0, 0.999999),
	KEY("schedule", "kind", CHOICE, schedule.kind, 0, 0,
	    .choices = "constant step cosine table"),
	KEY("schedule", "file", TEXT, table, 1, FAL_INI_LINE),
	KEY("schedule", "file-sha256", HASH, table_sha256, 64, 64),
	KEY("schedule", "warmup", U64, schedule.warmup, 0, 1e9),
	KEY("schedule", "every", U64, schedule.every, 0, 1e9),
	KEY("schedule", "gamma", DOUBLE, schedule.gamma, 1e-6, 1),
	KEY("schedule", "min-lr", DOUBLE, schedule.min_lr, 0, 1000),
	KEY("sync", "scheme", SCHEME, rule, 0, 0, REQUIRED),
	KEY("sync", "clones", CHOICE, clones, 0, 0, .choices = "yes no"),
	KEY("sync", "lanes.start", U32, lanes_start, 0, 4096),
	KEY("state", "clocks", U32, state_clocks, 0, 1e9),
	KEY("state", "seconds", DOUBLE, state_seconds, 0, 1e9),
	KEY("state", "keep", U32, state_keep, 1, 1000),
	KEY("state", "best", CHOICE, state_best, 0, 0, .choices = "no yes"),
};
/* clang-format on */
#define KEYS (sizeof(keys) / sizeof(keys[0]))

static bool
is_text_key(size_t i)
{
	return keys[i].type == TEXT || keys[i].type == NAME || keys[i].type == HASH;
}

/* Returns the key's index, or KEYS. */
static size_t
find_key(const char *section, const char *name)
{
	size_t i = 0;
	while (i < KEYS &&
	       (strcmp(keys[i].section, section) != 0 || strcmp(keys[i].name, name) != 0))
		i++;
	return i;
}

/* Returns the index of the key that sets the member at this offset. */
static size_t
key_of_member(size_t at)
{
	size_t i = 0;
	while (keys[i].at != at)
		i++;
	return i;
}

const char *
fal_job_diag_name(const struct fal_job_assignments *set, const char *what,
		  const char *name)
{
	for (size_t i = 0; i < set->n; i++) {
		const size_t n = strcspn(set->v[i], "=");
		if (strncmp(what, set->v[i], n) == 0 &&
		    (what[n] == ':' || what[n] == ' '))
			return "--set";
	}
	return name;
}

/* Adds a problem of a line (0: of the whole text).  Returns as fal_problems_add. */
__attribute__((format(printf, 4, 5))) static int
refuse_job_line(const struct job_parser *p, unsigned line, int err, const char *fmt, ...)
{
	char text[sizeof(struct fal_diag)];
	struct fal_diag d;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	const char *from = fal_job_diag_name(p->set, text, p->name);
	if (line == 0 || from != p->name)
		fal_diag_set(&d, 0, "%s: %s", from, text);
	else
		fal_diag_set(&d, 0, "%s:%u: %s", from, line, text);
	return fal_problems_add(p->problems, err, d.text);
}

/* Adds a problem of key i: "NAME:LINE: section.key: what". */
static int
refuse_key_at(const struct job_parser *p, size_t i, int err, const char *what)
{
	return refuse_job_line(p, p->line[i], err, "%s.%s: %s", keys[i].section,
			       keys[i].name, what);
}

/* As refuse_key_at, about the value of key i. */
static int
refuse_key_value(const struct job_parser *p, size_t i, const char *value,
		 const char *what)
{
	struct fal_diag d;
	fal_diag_set(&d, 0, "'%s' %s", FAL_QUOTE(value), what);
	return refuse_key_at(p, i, FAL_EINVAL, d.text);
}

/* Reports the result `err` of fal_parse_… for a number. */
static int
check_number(const struct job_parser *p, size_t i, const char *value, int err)
{
	if (err == 0)
		return FAL_OK;
	if (err != FAL_ELIMIT)
		return refuse_key_value(p, i, value,
					keys[i].type == U64 || keys[i].type == U32
						? "is not a whole number"
						: "is not a number");
	struct fal_diag range;
	fal_diag_set(&range, 0, "is not in %.10g..%.10g", keys[i].min, keys[i].max);
	return refuse_key_value(p, i, value, range.text);
}

/* Returns the member of key i. */
static void *
key_member(struct job_parser *p, size_t i)
{
	return (char *)p->job + keys[i].at;
}

static int
set_job_number(struct job_parser *p, size_t i, const char *value)
{
	const struct key *k = &keys[i];
	void *to = key_member(p, i);
	uint64_t whole = 0;
	double real = 0;
	char number[32];
	int err;

	if (k->type == PERCENT) {
		const size_t n = strlen(value);
		if (n < 2 || n > sizeof(number) || value[n - 1] != '%')
			return refuse_key_value(p, i, value, "is not a number with %");
		snprintf(number, sizeof(number), "%.*s", (int)n - 1, value);
		value = number;
	}
	if (k->type == U64 || k->type == U32) {
		uint64_t max = k->max < 0x1p64 ? (uint64_t)k->max : UINT64_MAX;
		err = fal_parse_u64(value, (uint64_t)k->min, max, &whole);
	} else {
		err = fal_parse_double(value, k->min, k->max, &real);
	}
	err = check_number(p, i, value, err);
	if (err < 0)
		return err;
	if (k->type == U64)
		*(uint64_t *)to = whole;
	else if (k->type == U32)
		*(uint32_t *)to = (uint32_t)whole;
	else if (k->type == DOUBLE || k->type == PERCENT)
		*(double *)to = real;
	else
		*(float *)to = (float)real;
	return FAL_OK;
}

static int
set_job_text(struct job_parser *p, size_t i, const char *value)
{
	size_t n = strlen(value);
	uint8_t hash[32];
	if (n == 0)
		return refuse_key_at(p, i, FAL_EINVAL, "is empty");
	if (keys[i].type == HASH && fal_unhex(value, sizeof(hash), hash) < 0)
		return refuse_key_at(p, i, FAL_EINVAL, "is not 64 digits of 0-9a-f");
	if (keys[i].type == NAME && strchr(value, '/') != NULL)
		return refuse_key_value(p, i, value,
					"has a /, but names the state folder");
	if ((double)n > keys[i].max)
		return refuse_key_value(p, i, value, "is too long");
	if (keys[i].type == NAME && !fal_text_is_utf8(value))
		return refuse_key_value(p, i, value, "is not UTF-8");
	*(char **)key_member(p, i) = fal_xstrdup(value);
	return FAL_OK;
}

static int
set_job_choice(struct job_parser *p, size_t i, const char *value)
{
	const char *word = keys[i].choices;
	const size_t n = strlen(value);
	for (unsigned k = 0; *word != '\0'; k++, word += strspn(word, " ")) {
		const size_t len = strcspn(word, " ");
		if (len == n && memcmp(word, value, n) == 0) {
			*(unsigned *)key_member(p, i) = k;
			return FAL_OK;
		}
		word += len;
	}
	struct fal_diag all;
	fal_diag_set(&all, 0, "is not one of %s", keys[i].choices);
	return refuse_key_value(p, i, value, all.text);
}

static int
set_job_list(struct job_parser *p, size_t i, const char *value)
{
	float *list = key_member(p, i);
	uint32_t *count = keys[i].at == JOB_AT(mean) ? &p->mean_n : &p->std_n;
	char copy[FAL_INI_LINE + 1];
	snprintf(copy, sizeof(copy), "%s", value);

	for (char *rest = copy, *item; (item = strsep(&rest, ",")) != NULL;) {
		item += strspn(item, " \t");
		for (size_t n = strlen(item); n > 0 && strchr(" \t", item[n - 1]);)
			item[--n] = '\0';
		if (*count == FAL_JOB_CHANNELS)
			return refuse_key_value(p, i, value, "lists too many channels");
		double v;
		int err = fal_parse_double(item, keys[i].min, keys[i].max, &v);
		if (err < 0)
			return check_number(p, i, item, err);
		list[(*count)++] = (float)v;
	}
	return FAL_OK;
}

static int
set_job_metrics(struct job_parser *p, size_t i, const char *value)
{
	char copy[FAL_INI_LINE + 1], *rest = NULL;
	snprintf(copy, sizeof(copy), "%s", value);
	for (char *name = strtok_r(copy, " \t", &rest); name != NULL;
	     name = strtok_r(NULL, " \t", &rest)) {
		const char *fault = fal_metric_add_name(key_member(p, i), name);
		if (fault != NULL)
			return refuse_key_value(p, i, name, fault);
	}
	return *value != '\0' ? FAL_OK : refuse_key_at(p, i, FAL_EINVAL, "is empty");
}

enum { HINT_TEXT = 320 }; /* the names of the largest section */

/* Returns "; did you mean 'SECTION.KEY'?" with the most similar key, of this section if
 * possible; if no key is similar, the keys of the section; "": there is no such section.
 */
static const char *
hint_key(const char *section, const char *key, char out[static HINT_TEXT])
{
	struct fal_similar is = { .word = key };
	const struct key *best = NULL;
	for (int others = 0; others < 2 && best == NULL; others++)
		for (const struct key *k = keys; k < keys + KEYS; k++)
			if ((strcmp(k->section, section) != 0) == others &&
			    fal_similar_try(&is, k->name))
				best = k;
	*out = '\0';
	if (best != NULL)
		snprintf(out, HINT_TEXT, "; did you mean '%s.%s'?", best->section,
			 best->name);
	size_t n = 0;
	for (const struct key *k = keys; k < keys + KEYS && best == NULL; k++)
		if (strcmp(k->section, section) == 0 && n < HINT_TEXT)
			n += (size_t)snprintf(out + n, HINT_TEXT - n, "%s %s",
					      n == 0 ? "; its section has" : "", k->name);
	return out;
}

static int
on_job_entry(void *user, const char *section, const char *key, const char *value,
	     unsigned line)
{
	struct job_parser *p = user;
	char hint[HINT_TEXT];
	struct fal_similar is = { .word = section };
	size_t known = 0;
	for (; known < KEYS && strcmp(keys[known].section, section) != 0; known++)
		fal_similar_try(&is, keys[known].section);
	if (*section == '\0' && p->problems->n == 0)
		return refuse_job_line(p, line, FAL_EFORMAT,
				       "'%s' stands before any section",
				       key != NULL ? FAL_QUOTE(key) : "");
	/* One message is enough for all entries without a section, and for all entries of
	 * an unknown section. */
	if (known == KEYS && key == NULL)
		return refuse_job_line(p, line, FAL_EFORMAT, "[%s]: no such section%s",
				       FAL_QUOTE(section), fal_similar_hint(&is, hint));
	if (known == KEYS || key == NULL)
		return FAL_OK;
	size_t i = find_key(section, key);
	if (i == KEYS)
		return refuse_job_line(p, line, FAL_EFORMAT, "%s.%s: no such key%s",
				       section, FAL_QUOTE(key),
				       hint_key(section, key, hint));
	if (p->line[i] != 0)
		return refuse_job_line(
			p, line, FAL_EFORMAT,
			"%s.%s: '%s' is a second value, line %u has the first", section,
			key, FAL_QUOTE(value), p->line[i]);
	p->line[i] = line;
	if (is_text_key(i))
		return set_job_text(p, i, value);
	if (keys[i].type == SCHEME) {
		struct fal_diag why;
		const int err = fal_rule_parse(value, key_member(p, i), &why);
		return err < 0 ? refuse_key_at(p, i, err, why.text) : FAL_OK;
	}
	if (keys[i].type == PLACEMENT && strncmp(value, "file:", 5) == 0 &&
	    value[5] != '\0') {
		p->job->placement = FAL_JOB_PLACEMENT_FILE;
		p->job->placement_file = fal_xstrdup(value + 5);
		return FAL_OK;
	}
	if (keys[i].type == CHOICE || keys[i].type == PLACEMENT)
		return set_job_choice(p, i, value);
	if (keys[i].type == LIST)
		return set_job_list(p, i, value);
	if (keys[i].type == METRICS)
		return set_job_metrics(p, i, value);
	return set_job_number(p, i, value);
}

/* Does the text have the key that sets the member at this offset? */
static bool
job_has(const struct job_parser *p, size_t at)
{
	return p->line[key_of_member(at)] != 0;
}

/* As refuse_key_at, about the key of that member. */
static int
job_refuse(const struct job_parser *p, size_t at, int err, const char *what)
{
	return refuse_key_at(p, key_of_member(at), err, what);
}

/* ---- checks between values, and defaults ------------------------------------------- */

/* Sets of formats, for the rules about keys. */
enum {
	IDX = 1 << FAL_JOB_FORMAT_IDX,
	NPY = 1 << FAL_JOB_FORMAT_NPY,
	TENSORS = 1 << FAL_JOB_FORMAT_SAFETENSORS,
	TABLE = 1 << FAL_JOB_FORMAT_CSV | 1 << FAL_JOB_FORMAT_TSV,
	TEXTS = 1 << FAL_JOB_FORMAT_TEXT,
	CIFAR100 = 1 << FAL_JOB_FORMAT_CIFAR100,
	CIFAR = 1 << FAL_JOB_FORMAT_CIFAR10 | CIFAR100,
	FILES = NPY | TENSORS | TABLE | TEXTS | CIFAR
};

/* Checks the demands of data.format on the keys that name files and on the contents of
 * these files. */
static int
check_files(const struct job_parser *p)
{
	const struct fal_job *job = p->job;
	const unsigned format = 1u << job->format;
	const bool has_test = job->eval != FAL_JOB_EVAL_NEVER || fal_job_has_test(job) ||
			      job->test_labels != NULL;
	const struct {
		size_t at;
		unsigned formats,
			optional; /* that allow the key; that do not require it */
		bool is_test;
	} rules[] = {
		{ JOB_AT(train_images), IDX, 0, false },
		{ JOB_AT(train), FILES, 0, false },
		{ JOB_AT(train_labels), IDX | NPY, 0, false },
		{ JOB_AT(test_images), IDX, 0, true },
		{ JOB_AT(test), FILES, 0, true },
		{ JOB_AT(test_labels), IDX | NPY, 0, true },
		{ JOB_AT(features), TENSORS, 0, false },
		{ JOB_AT(label), TENSORS | TABLE | CIFAR100, CIFAR100, false },
		{ JOB_AT(target), NPY | TENSORS | TABLE, NPY | TENSORS | TABLE, false },
		{ JOB_AT(window), TEXTS, 0, false },
		{ JOB_AT(train_hash), IDX | FILES, IDX | FILES, false },
		{ JOB_AT(test_hash), IDX | FILES, IDX | FILES, true },
	};
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const size_t at = rules[i].at;
		const bool is_required =
			(rules[i].formats & ~rules[i].optional & format) != 0 &&
			(has_test || !rules[i].is_test);
		int err = FAL_OK;
		if (job_has(p, at) && (rules[i].formats & format) == 0)
			err = job_refuse(p, at, FAL_EINVAL,
					 "is not for this data.format");
		else if (is_required && !job_has(p, at))
			err = job_refuse(p, at,
					 rules[i].is_test ? FAL_EINVAL : FAL_EFORMAT,
					 rules[i].is_test
						 ? "missing (job.eval = never needs none)"
						 : "missing");
		if (err < 0)
			return err;
	}
	return FAL_OK;
}

/* Refuses a scheme with steps outside the server if a key demands steps in the server. */
static int
check_local_steps(const struct job_parser *p)
{
	const char *key = fal_job_server_only_key(p->job);
	struct fal_diag d;
	if (key == NULL || !fal_rule_has_local_steps(&p->job->rule))
		return FAL_OK;
	fal_diag_set(&d, 0, "takes steps outside the server, which %s is not for", key);
	return job_refuse(p, JOB_AT(rule), FAL_EINVAL, d.text);
}

/* A rule that values must keep together: whether the job breaks the rule, which key gets
 * the blame, and the text of the message. */
struct job_rule {
	bool is_broken;
	size_t at;
	const char *what;
};

/* Reports the broken rules. */
static int
check_rules(const struct job_parser *p, const struct job_rule *rules, size_t n)
{
	int err = FAL_OK;
	for (size_t i = 0; i < n && err == FAL_OK; i++)
		if (rules[i].is_broken)
			err = job_refuse(p, rules[i].at, FAL_EINVAL, rules[i].what);
	return err;
}

/* Checks the keys of model and data against each other. */
static int
check_model_keys(const struct job_parser *p)
{
	const struct fal_job *job = p->job;
	const char *label = job->label;
	const bool by_index = job->format == FAL_JOB_FORMAT_INDEX;
	const bool test = job->eval != FAL_JOB_EVAL_NEVER;
	const bool values = job->target == FAL_JOB_TARGET_VALUE;
	const bool shared = job->partition == FAL_JOB_PARTITION_SHARED;
	const bool shuffles = job_has(p, JOB_AT(shuffle));
	const struct job_rule rules[] = {
		{ job->model == NULL && job->init == NULL, JOB_AT(model),
		  "missing, and so is model.init" },
		{ job->init_sha256 != NULL && job->init == NULL, JOB_AT(init_sha256),
		  "does nothing without model.init" },
		{ job->model_sha256 != NULL && job->model == NULL, JOB_AT(model_sha256),
		  "does nothing without model.file" },
		{ !test && job->state_best == FAL_JOB_BEST_YES, JOB_AT(state_best),
		  "does nothing for job.eval = never" },
		{ job->patience > 0 && (job->eval != FAL_JOB_EVAL_EPOCH ||
					job->state_best != FAL_JOB_BEST_YES),
		  JOB_AT(patience), "needs state.best = yes and job.eval = epoch" },
		{ by_index && job->samples == 0, JOB_AT(samples),
		  "missing (data.format = index needs it)" },
		{ by_index && test && job->test_samples == 0, JOB_AT(test_samples),
		  "missing (job.eval = never needs none)" },
		{ label != NULL && job->format == FAL_JOB_FORMAT_CIFAR100 &&
			  strcmp(label, "fine") != 0 && strcmp(label, "coarse") != 0,
		  JOB_AT(label), "is not fine or coarse" },
		{ (by_index || job->format == FAL_JOB_FORMAT_TEXT) &&
			  (p->mean_n > 0 || p->std_n > 0),
		  p->mean_n > 0 ? JOB_AT(mean) : JOB_AT(std),
		  "does nothing for this data.format" },
		{ (by_index || job->format == FAL_JOB_FORMAT_TEXT) &&
			  job->partition == FAL_JOB_PARTITION_LABEL_SKEW,
		  JOB_AT(partition), "'label-skew' needs labels" },
		{ values && job->model != NULL, JOB_AT(target),
		  "'value' is only for a job without model.file: its layers classify" },
		{ values && job->partition == FAL_JOB_PARTITION_LABEL_SKEW,
		  JOB_AT(partition), "'label-skew' needs labels that are classes" },
		{ job->buffers != NULL && job->model != NULL, JOB_AT(buffers),
		  "are only for a job without model.file" },
		{ job->buffers == NULL && job_has(p, JOB_AT(optim.buffer_momentum)),
		  JOB_AT(optim.buffer_momentum), "does nothing without model.buffers" },
		{ p->mean_n != 0 && p->std_n != 0 && p->mean_n != p->std_n, JOB_AT(std),
		  "lists other channels than data.mean" },
		{ shared && job->parts != 0, JOB_AT(parts),
		  "does nothing for data.partition = shared" },
		{ !shared && job->parts == 0, JOB_AT(parts),
		  "missing (data.partition = shared needs none)" },
		{ !shared && shuffles, JOB_AT(shuffle),
		  "is only for data.partition = shared" },
	};
	return check_rules(p, rules, sizeof(rules) / sizeof(rules[0]));
}

/* Checks the keys of batch, optimiser and schedule against each other. */
static int
check_steps(const struct job_parser *p)
{
	const struct fal_job *job = p->job;
	const enum fal_optim_kind kind = job->optim.kind;
	const bool has_momentum = kind == FAL_MOMENTUM || kind == FAL_NESTEROV;
	const bool adam = kind == FAL_ADAMW;
	const bool steps = job->schedule.kind == FAL_STEP;
	const bool cosine = job->schedule.kind == FAL_COSINE;
	const bool table = job->schedule.kind == FAL_TABLE;
	const struct job_rule rules[] = {
		{ job->task > job->batch, JOB_AT(task), "is more than batch.size" },
		{ job->tail > 0 && job->buffers != NULL, JOB_AT(tail),
		  "is not for a job with model.buffers: their values are those of a "
		  "task" },
		{ job->tail_task > 0 && job_has(p, JOB_AT(tail)) && job->tail <= 0,
		  JOB_AT(tail_task), "does nothing without batch.tail" },
		{ has_momentum && job->optim.momentum <= 0, JOB_AT(optim.momentum),
		  "must be above 0 for this optimizer.kind" },
		{ !has_momentum && job->optim.momentum > 0, JOB_AT(optim.momentum),
		  "does nothing for this optimizer.kind" },
		{ !has_momentum && job_has(p, JOB_AT(momentum_per)), JOB_AT(momentum_per),
		  "does nothing for this optimizer.kind" },
		{ !adam && job_has(p, JOB_AT(optim.beta1)), JOB_AT(optim.beta1),
		  "is only for optimizer.kind = adamw" },
		{ !adam && job_has(p, JOB_AT(optim.beta2)), JOB_AT(optim.beta2),
		  "is only for optimizer.kind = adamw" },
		{ !adam && kind != FAL_ADAGRAD && job_has(p, JOB_AT(optim.eps)),
		  JOB_AT(optim.eps), "is only for optimizer.kind = adagrad or adamw" },
		{ job->optim.weight_decay <= 0 && job_has(p, JOB_AT(decay)),
		  JOB_AT(decay), "does nothing without optimizer.weight-decay" },
		{ adam && job_has(p, JOB_AT(decay)) &&
			  job->decay == FAL_JOB_DECAY_COUPLED,
		  JOB_AT(decay), "'coupled' is not for optimizer.kind = adamw" },
		{ job->verify <= 0 && job->verify_stop == FAL_JOB_VERIFY_STOP_YES,
		  JOB_AT(verify_stop), "does nothing without job.verify" },
		{ job->optim.weight_decay <= 0 && job->decay_scale != NULL,
		  JOB_AT(decay_scale), "does nothing without optimizer.weight-decay" },
		{ table && job->table == NULL, JOB_AT(table),
		  "missing (schedule.kind = table needs it)" },
		{ !table && job->table != NULL, JOB_AT(table),
		  "is only for schedule.kind = table" },
		{ !table && job->table_sha256 != NULL, JOB_AT(table_sha256),
		  "is only for schedule.kind = table" },
		{ table && job->schedule.warmup > 0, JOB_AT(schedule.warmup),
		  "is not for schedule.kind = table, whose factors may rise" },
		{ steps && job->schedule.every == 0, JOB_AT(schedule.every),
		  "must be above 0 for schedule.kind = step" },
		{ !steps && job->schedule.every != 0, JOB_AT(schedule.every),
		  "is only for schedule.kind = step" },
		{ steps && job->schedule.gamma >= 1, JOB_AT(schedule.gamma),
		  "must be below 1 for schedule.kind = step" },
		{ !steps && job->schedule.gamma < 1, JOB_AT(schedule.gamma),
		  "is only for schedule.kind = step" },
		{ !cosine && job->schedule.min_lr > 0, JOB_AT(schedule.min_lr),
		  "is only for schedule.kind = cosine" },
		{ job->schedule.min_lr > job->schedule.lr, JOB_AT(schedule.min_lr),
		  "is more than optimizer.lr" },
	};
	return check_rules(p, rules, sizeof(rules) / sizeof(rules[0]));
}

enum { TASKS_MAX = 4096 }; /* of a clock with a tail */

/* Returns the least batch.tail-task with which a full clock has at most TASKS_MAX tasks.
 */
static uint32_t
least_tail_task(const struct fal_job *job)
{
	struct fal_grid g = fal_job_grid(job, job->batch);
	while (g.tail_task < g.task && fal_grid_tasks(&g, 0) > TASKS_MAX)
		g.tail_task++;
	return g.tail_task;
}

/* Sets the defaults other than 0 of keys that the text lacks. */
static void
set_defaults(const struct job_parser *p)
{
	struct fal_job *job = p->job;
	job->channels = p->mean_n > p->std_n ? p->mean_n : p->std_n;
	if (job->channels == 0)
		job->channels = 1;
	if (!job_has(p, JOB_AT(state_seconds)) && !job_has(p, JOB_AT(state_clocks)))
		job->state_seconds = 60;
	if (job->state_keep == 0)
		job->state_keep = 2;
	for (uint32_t i = p->std_n; i < FAL_JOB_CHANNELS; i++)
		job->std[i] = 1;
	if (job->partition == FAL_JOB_PARTITION_SHARED)
		job->parts = 1;
	if (job->push_bits == FAL_BFP_P)
		job->push_bits = 0;
	struct fal_optim *o = &job->optim;
	if (o->kind == FAL_ADAMW && !job_has(p, JOB_AT(optim.beta1)))
		o->beta1 = 0.9;
	if (o->kind == FAL_ADAMW && !job_has(p, JOB_AT(optim.beta2)))
		o->beta2 = 0.999;
	if (job->buffers != NULL && !job_has(p, JOB_AT(optim.buffer_momentum)))
		o->buffer_momentum = 0.1;
	if (!job_has(p, JOB_AT(optim.eps)))
		o->eps = o->kind == FAL_ADAMW ? 1e-8f : 1e-10f;
	o->decoupled = o->kind == FAL_ADAMW || job->decay == FAL_JOB_DECAY_DECOUPLED;
	o->one_momentum = job->momentum_per == FAL_JOB_MOMENTUM_SERVER;
	if (job->task == 0) {
		const uint32_t least = job->buffers != NULL ? FAL_JOB_STATISTICS : 8;
		job->task = job->batch / 64 > least ? job->batch / 64 : least;
		if (job->task > job->batch)
			job->task = job->batch;
	}
	/* Small tasks are useless if each part of the data belongs to a worker; a
	 * trainer's gradients may depend on the size of a task; and a user who divides a
	 * clock into a few large tasks wants large tasks. */
	enum { TASKS_MIN = 8 }; /* of a clock */
	const bool has_tail = job->model != NULL && job->batch / job->task >= TASKS_MIN &&
			      job->partition == FAL_JOB_PARTITION_SHARED;
	if (!job_has(p, JOB_AT(tail)) && (has_tail || job_has(p, JOB_AT(tail_task))))
		job->tail = 0.25;
	if (job->tail_task == 0) {
		job->tail_task = job->task / 4 > 1 ? job->task / 4 : 1;
		job->tail_task = least_tail_task(job);
	}
	if (job->tail <= 0 || job->tail_task == job->task) {
		job->tail = 0;
		job->tail_task = job->task;
	}
}

/* ---- whole texts ------------------------------------------------------------------- */

int
fal_job_parse(const char *name, const char *text, size_t n, struct fal_job *out,
	      struct fal_diag *diag)
{
	const struct fal_job_assignments none = { NULL, 0 };
	struct fal_problems first = { .diag = diag };
	return fal_job_parse_set(name, text, n, &none, out, &first);
}

int
fal_job_parse_set(const char *name, const char *text, size_t n,
		  const struct fal_job_assignments *set, struct fal_job *out,
		  struct fal_problems *problems)
{
	struct fal_job job = { .schedule.gamma = 1 };
	unsigned line[KEYS] = { 0 };
	struct job_parser p = {
		.name = name, .set = set, .job = &job, .line = line, .problems = problems
	};

	int err = fal_ini_read(name, text, n, on_job_entry, &p, problems);
	/* An unknown line may mean the missing key. */
	const bool is_sure = err == FAL_OK && problems->err != FAL_EFORMAT;
	for (size_t i = 0; i < KEYS && is_sure && err == FAL_OK; i++)
		if (keys[i].is_required && line[i] == 0)
			err = refuse_key_at(&p, i, FAL_EFORMAT, "missing");
	/* Rules between values need all values. */
	if (problems->err == FAL_OK && (err = check_files(&p)) == FAL_OK &&
	    (err = check_model_keys(&p)) == FAL_OK && (err = check_steps(&p)) == FAL_OK &&
	    (err = check_local_steps(&p)) == FAL_OK && problems->err == FAL_OK) {
		set_defaults(&p);
		const uint32_t least = least_tail_task(&job);
		struct fal_diag many;
		fal_diag_set(&many, 0, "makes more than %d tasks of a clock; %u does not",
			     TASKS_MAX, least);
		if (job.tail_task > job.task)
			job_refuse(&p, JOB_AT(tail_task), FAL_EINVAL,
				   "is more than batch.task");
		else if (job.tail > 0 && least != job.tail_task)
			job_refuse(&p, JOB_AT(tail_task), FAL_EINVAL, many.text);
	}
	if (problems->err < 0) {
		fal_job_free(&job);
		return problems->err;
	}
	*out = job;
	return FAL_OK;
}

void
fal_job_free(struct fal_job *job)
{
	if (job == NULL)
		return;
	for (size_t i = 0; i < KEYS; i++)
		if (is_text_key(i))
			free(*(char **)(void *)((char *)job + keys[i].at));
	free(job->placement_file);
	free(job->factors);
	free(job->ranges);
	*job = (struct fal_job){ 0 };
}

bool
fal_job_has_test(const struct fal_job *job)
{
	return job->test_images != NULL || job->test != NULL ||
	       (job->format == FAL_JOB_FORMAT_INDEX && job->test_samples > 0);
}

bool
fal_job_hashes_tasks(const struct fal_job *job)
{
	return job->task_hashes == FAL_JOB_TASK_HASHES_YES || job->verify > 0;
}

struct fal_grid
fal_job_grid(const struct fal_job *job, uint32_t n)
{
	return (struct fal_grid){ .samples = n,
				  .batch = job->batch,
				  .task = job->task,
				  .epochs = job->epochs,
				  .parts = job->parts,
				  .tail_task = job->tail_task,
				  .tail = job->tail };
}

int
fal_job_set_samples(struct fal_job *job, uint32_t n, struct fal_diag *diag)
{
	const struct fal_grid g = fal_job_grid(job, n);
	uint64_t total = fal_grid_clocks(&g);
	if (job->schedule.warmup > total)
		return fal_diag_set(
			diag, FAL_EINVAL,
			"schedule.warmup: '%ju' is more than the %ju update%s of the job",
			job->schedule.warmup, total, fal_text_plural(total));
	for (uint32_t i = 0; i < job->parts; i++)
		if (fal_grid_part_first_task(&g, 0, i) ==
		    fal_grid_part_first_task(&g, 0, i + 1))
			return fal_diag_set(
				diag, FAL_EINVAL,
				"data.parts: '%u' leaves a part without one of "
				"the %u task%s of a clock",
				job->parts, fal_grid_tasks(&g, 0),
				fal_text_plural(fal_grid_tasks(&g, 0)));
	struct fal_diag why;
	int err = fal_rule_check_grid(&job->rule, &g, &why);
	if (err < 0)
		return fal_diag_set(diag, err, "sync.scheme: %s", why.text);
	job->schedule.total = total;
	return FAL_OK;
}

int
fal_job_override(const char *name, const char *text, size_t n, const char *assignment,
		 struct fal_buf *out, struct fal_diag *diag)
{
	char copy[2 * FAL_INI_LINE];
	if (strlen(assignment) >= sizeof(copy))
		return fal_diag_set(diag, FAL_EINVAL, "'%s' is too long",
				    FAL_QUOTE(assignment));
	snprintf(copy, sizeof(copy), "%s", assignment);

	char *value = copy, *section = strsep(&value, "=");
	char *key = section;
	section = strsep(&key, ".");
	if (value == NULL || key == NULL)
		return fal_diag_set(diag, FAL_EINVAL, "'%s' is not section.key=value",
				    FAL_QUOTE(assignment));
	char hint[HINT_TEXT];
	if (find_key(section, key) == KEYS)
		return fal_diag_set(diag, FAL_EINVAL, "%s.%s: no such key%s",
				    FAL_QUOTE(section), FAL_QUOTE(key),
				    hint_key(section, key, hint));
	/* The line must not become too long. */
	if (strlen(key) + strlen(" = ") + strlen(value) > FAL_INI_LINE)
		return fal_diag_set(diag, FAL_EINVAL, "%s.%s: '%s' is too long", section,
				    key, FAL_QUOTE(value));
	for (const char *p = value; *p != '\0'; p++)
		if (fal_ini_is_control(*p))
			return fal_diag_set(
				diag, FAL_EINVAL,
				"%s.%s: '%s' has a character that no value has", section,
				key, FAL_QUOTE(value));
	value += strspn(value, " \t");
	if (*value != '"' && value[fal_ini_value_length(value)] != '\0')
		return fal_diag_set(
			diag, FAL_EINVAL,
			"%s.%s: '%s' begins a comment, unless in double quotes", section,
			key, FAL_QUOTE(value));
	const struct fal_ini_entry e = { section, key, value };
	return fal_ini_set(name, text, n, &e, out, diag);
}

/* The values of two texts, by key, as written. */
struct job_values {
	char *v[2][KEYS];
	size_t text;
};

static int
job_values_add(void *arg, const char *section, const char *key, const char *value,
	       unsigned line)
{
	struct job_values *t = arg;
	const size_t i = key != NULL ? find_key(section, key) : KEYS;
	(void)line;
	if (i == KEYS || t->v[t->text][i] != NULL)
		return FAL_OK;
	t->v[t->text][i] = fal_xstrdup(value);
	return FAL_OK;
}

int
fal_job_diff(const struct fal_buf *a, const struct fal_buf *b,
	     int (*on_key)(void *arg, const char *key, const char *in_a,
			   const char *in_b),
	     void *arg)
{
	struct job_values t = { 0 };
	const struct fal_buf *text[] = { a, b };
	struct fal_problems first = { 0 };
	int err = FAL_OK, n = 0;
	for (; t.text < 2 && err == FAL_OK; t.text++)
		err = fal_ini_read("job", (const char *)text[t.text]->p, text[t.text]->n,
				   job_values_add, &t, &first);
	for (size_t i = 0; i < KEYS && err == FAL_OK; i++) {
		const char *x = t.v[0][i], *y = t.v[1][i];
		char key[32];
		snprintf(key, sizeof(key), "%s.%s", keys[i].section, keys[i].name);
		if ((x == NULL) == (y == NULL) && (x == NULL || strcmp(x, y) == 0))
			continue;
		n++;
		err = on_key(arg, key, x, y);
	}
	for (size_t i = 0; i < KEYS; i++) {
		free(t.v[0][i]);
		free(t.v[1][i]);
	}
	return err < 0 ? err : n;
}

int
fal_job_make_canonical(struct fal_buf *text)
{
	struct job_values t = { 0 };
	struct fal_problems first = { 0 };
	struct fal_buf out = { 0 };
	const char *section = "";
	const int err = fal_ini_read("job", (const char *)text->p, text->n,
				     job_values_add, &t, &first);
	for (size_t i = 0; i < KEYS; i++) {
		const char *v = t.v[0][i];
		if (v == NULL)
			continue;
		const size_t n = strlen(v);
		const bool is_quoted = n > 0 && (v[fal_ini_value_length(v)] != '\0' ||
						 strchr(" \t", v[0]) != NULL ||
						 strchr(" \t", v[n - 1]) != NULL);
		if (strcmp(section, keys[i].section) != 0)
			fal_put_fmt(&out, "[%s]\n", keys[i].section);
		section = keys[i].section;
		fal_put_fmt(&out, is_quoted ? "%s = \"%s\"\n" : "%s = %s\n", keys[i].name,
			    v);
		free(t.v[0][i]);
	}
	fal_buf_free(text);
	*text = out;
	return err < 0 ? err : out.err;
}

char *
fal_job_path(const char *job_file, const char *path)
{
	const char *slash = strrchr(job_file, '/');
	const int dir = *path == '/' || slash == NULL ? 0 : (int)(slash - job_file) + 1;
	return fal_xprintf("%.*s%s", dir, job_file, path);
}

/* ---- tensors that gradients do not step -------------------------------------------- */

/* A key whose patterns, separated by blanks, match such tensors. */
struct tensor_patterns {
	const char *key, *text; /* NULL: none */
	enum fal_range_rule rule;
	bool is_lax; /* a pattern may match no tensor: some match ignored tensors */
};

bool
fal_job_is_buffer(const void *job, const char *name)
{
	const char *patterns = ((const struct fal_job *)job)->buffers;
	char copy[FAL_INI_LINE + 1], *rest = NULL;
	snprintf(copy, sizeof(copy), "%s", patterns != NULL ? patterns : "");
	for (char *p = strtok_r(copy, " \t", &rest); p != NULL;
	     p = strtok_r(NULL, " \t", &rest))
		if (fnmatch(p, name, 0) == 0)
			return true;
	return false;
}

struct fal_safetensors
fal_job_tensors(const struct fal_job *job, const char *name, const struct fal_buf *bytes)
{
	return (struct fal_safetensors){ name, bytes->p, bytes->n, fal_job_is_buffer,
					 job };
}

const char *
fal_job_server_only_key(const struct fal_job *job)
{
	if (job->buffers != NULL)
		return "model.buffers";
	if (job->push_bits != 0)
		return "push.bits";
	return job->nonfinite == FAL_JOB_NONFINITE_SKIP ? "job.nonfinite = skip" : NULL;
}

static int
report_no_match(const struct tensor_patterns *k, const char *pattern,
		struct fal_diag *diag)
{
	return fal_diag_set(diag, FAL_EINVAL, "model.%s: '%s' names no tensor", k->key,
			    FAL_QUOTE(pattern));
}

/* Marks the tensors that the key matches with 1 + rule. */
static int
mark_tensors(const struct fal_model *m, const struct tensor_patterns *k, uint8_t *marks,
	     struct fal_diag *diag)
{
	char copy[FAL_INI_LINE + 1], *rest = NULL;
	uint32_t all = 0;
	if (k->text == NULL)
		return FAL_OK;
	snprintf(copy, sizeof(copy), "%s", k->text);
	for (char *p = strtok_r(copy, " \t", &rest); p != NULL;
	     p = strtok_r(NULL, " \t", &rest)) {
		uint32_t n = 0;
		for (uint32_t i = 0; i < m->tensors; i++)
			if (fnmatch(p, m->tensor[i].name, 0) == 0) {
				marks[i] = (uint8_t)(1 + k->rule);
				n++;
			}
		if (n == 0 && !k->is_lax)
			return report_no_match(k, p, diag);
		all += n;
	}
	return all > 0 ? FAL_OK : report_no_match(k, k->text, diag);
}

/* The scales of a tensor. */
struct tensor_scales {
	float lr, decay;
};

/* Sets a scale, at this offset of struct tensor_scales, of the tensors that each
 * "PATTERN=FACTOR" of the text matches; the last one counts. */
static int
set_scales(const struct fal_model *m, const char *key, const char *text, size_t at,
	   struct tensor_scales *scales, struct fal_diag *diag)
{
	char copy[FAL_INI_LINE + 1], *rest = NULL;
	snprintf(copy, sizeof(copy), "%s", text != NULL ? text : "");
	for (char *p = strtok_r(copy, " \t", &rest); p != NULL;
	     p = strtok_r(NULL, " \t", &rest)) {
		char *factor = strrchr(p, '=');
		double x;
		uint32_t n = 0;
		if (factor == NULL || fal_parse_double(factor + 1, 0, 1000, &x) < 0)
			return fal_diag_set(diag, FAL_EINVAL,
					    "optimizer.%s: '%s' is not PATTERN=FACTOR, "
					    "with a factor in 0..1000",
					    key, FAL_QUOTE(p));
		*factor = '\0';
		for (uint32_t i = 0; i < m->tensors; i++)
			if (fnmatch(p, m->tensor[i].name, 0) == 0) {
				*(float *)(void *)((char *)&scales[i] + at) = (float)x;
				n++;
			}
		if (n == 0)
			return fal_diag_set(diag, FAL_EINVAL,
					    "optimizer.%s: '%s' names no tensor", key,
					    FAL_QUOTE(p));
	}
	return FAL_OK;
}

/* Makes the ranges of tensors that are marked or scaled, one for neighbours with the same
 * rule; returns the number of marked elements. */
static uint64_t
make_ranges(const struct fal_model *m, const uint8_t *marks,
	    const struct tensor_scales *scales, struct fal_optim *o,
	    struct fal_range *range)
{
	uint64_t all = 0;
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		const struct tensor_scales own = scales[i];
		struct fal_range next = { .first = t->offset, .count = t->count };
		if (marks[i] != 0) {
			next.rule = (enum fal_range_rule)(marks[i] - 1);
			all += t->count;
		} else if (own.lr < 1 || own.lr > 1 || own.decay < 1 || own.decay > 1) {
			next.rule = FAL_RANGE_SCALED;
			next.lr_scale = own.lr;
			next.decay_scale = own.decay;
		} else {
			continue;
		}
		struct fal_range *last = o->ranges > 0 ? &range[o->ranges - 1] : NULL;
		if (last != NULL && last->rule == next.rule &&
		    last->lr_scale == next.lr_scale &&
		    last->decay_scale == next.decay_scale &&
		    last->first + last->count == next.first)
			last->count += next.count;
		else
			range[o->ranges++] = next;
	}
	return all;
}

int
fal_job_set_ranges(struct fal_job *job, const struct fal_model *m, struct fal_diag *diag)
{
	/* A frozen buffer stays frozen. */
	const struct tensor_patterns key[] = {
		{ "buffers", job->buffers, FAL_RANGE_EMA, true },
		{ "freeze", job->freeze, FAL_RANGE_FROZEN, false },
	};
	uint32_t frozen = 0;
	for (uint32_t i = 0; i < m->tensors; i++)
		frozen += m->tensor[i].frozen;
	if (job->freeze == NULL && job->buffers == NULL && job->lr_scale == NULL &&
	    job->decay_scale == NULL && frozen == 0)
		return FAL_OK;
	uint8_t *marks = fal_xcalloc(m->tensors, 1);
	struct fal_range *range = fal_xcalloc(m->tensors, sizeof(*range));
	struct tensor_scales *scales = fal_xcalloc(m->tensors, sizeof(*scales));
	for (uint32_t i = 0; i < m->tensors; i++)
		scales[i] = (struct tensor_scales){ 1, 1 };
	int err = set_scales(m, "lr-scale", job->lr_scale,
			     offsetof(struct tensor_scales, lr), scales, diag);
	if (err == FAL_OK)
		err = set_scales(m, "decay-scale", job->decay_scale,
				 offsetof(struct tensor_scales, decay), scales, diag);
	for (size_t k = 0; k < sizeof(key) / sizeof(key[0]) && err == FAL_OK; k++)
		err = mark_tensors(m, &key[k], marks, diag);
	for (uint32_t i = 0; i < m->tensors && err == FAL_OK; i++)
		if (m->tensor[i].frozen)
			marks[i] = 1 + FAL_RANGE_FROZEN;
	if (err == FAL_OK &&
	    make_ranges(m, marks, scales, &job->optim, range) == m->values)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "model.%s: '%s' leaves nothing to train",
				   job->freeze != NULL    ? "freeze"
				   : job->buffers != NULL ? "buffers"
							  : "init",
				   FAL_QUOTE(job->freeze != NULL    ? job->freeze
					     : job->buffers != NULL ? job->buffers
								    : job->init));
	free(marks);
	free(scales);
	if (err < 0) {
		job->optim.ranges = 0;
		free(range);
		return err;
	}
	job->ranges = range;
	job->optim.range = range;
	return FAL_OK;
}
