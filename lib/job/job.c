/* The job file: one table of keys, then the rules between them. */
#include "job/job.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "job/ini.h"
#include "wire/bfp.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type {
	TEXT,    /* char *, of min..max bytes */
	U64,     /* uint64_t */
	U32,     /* uint32_t */
	DOUBLE,  /* double */
	FLOAT,   /* float */
	PERCENT, /* double, with a % behind */
	CHOICE,  /* an enum, by `choices` */
	LIST,    /* float[FAL_JOB_CHANNELS], comma between */
	SCHEME   /* struct fal_rule */
};

struct choice {
	const char *text; /* NULL ends the list */
	unsigned value;
};

struct key {
	const char *section, *name;
	enum type type;
	size_t at; /* offset in struct fal_job */
	double min, max;
	const struct choice *choices;
	bool needed;
};

#define AT(field) offsetof(struct fal_job, field)
#define KEY(s, n, t, f, lo, hi, ...)                                                   \
	{                                                                              \
		.section = s, .name = n, .type = t, .at = AT(f), .min = lo, .max = hi, \
		__VA_ARGS__                                                            \
	}
#define CHOICES(...)                       \
	.choices = (const struct choice[]) \
	{                                  \
		__VA_ARGS__,               \
		{                          \
			NULL, 0            \
		}                          \
	}
#define NEEDED .needed = true

/* clang-format off: a table reads as one. */
static const struct key keys[] = {
	KEY("job", "name", TEXT, name, 1, 64, NEEDED),
	KEY("job", "seed", U64, seed, 0, 0x1p64, NEEDED),
	KEY("job", "epochs", U32, epochs, 1, 1e6, NEEDED),
	KEY("job", "numerics", CHOICE, numerics, 0, 0,
	    CHOICES({ "fast", FAL_JOB_NUMERICS_FAST },
		    { "portable", FAL_JOB_NUMERICS_PORTABLE },
		    { "require", FAL_JOB_NUMERICS_REQUIRE })),
	KEY("job", "nonfinite", CHOICE, nonfinite, 0, 0,
	    CHOICES({ "stop", FAL_JOB_NONFINITE_STOP },
		    { "skip", FAL_JOB_NONFINITE_SKIP })),
	KEY("job", "eval", CHOICE, eval, 0, 0,
	    CHOICES({ "epoch", FAL_JOB_EVAL_EPOCH }, { "end", FAL_JOB_EVAL_END },
		    { "never", FAL_JOB_EVAL_NEVER })),
	KEY("job", "audit", CHOICE, audit, 0, 0,
	    CHOICES({ "claims", FAL_JOB_AUDIT_CLAIMS }, { "sums", FAL_JOB_AUDIT_SUMS })),
	KEY("job", "hashes", U32, hashes, 1, 1e6),
	KEY("job", "task-hashes", CHOICE, task_hashes, 0, 0,
	    CHOICES({ "no", FAL_JOB_TASK_HASHES_NO },
		    { "yes", FAL_JOB_TASK_HASHES_YES })),
	KEY("job", "placement", CHOICE, placement, 0, 0,
	    CHOICES({ "static:blocks", FAL_PLACE_BLOCKS },
		    { "static:mxnet", FAL_PLACE_MXNET },
		    { "static:byteps", FAL_PLACE_BYTEPS },
		    { "static:tensorflow", FAL_PLACE_TENSORFLOW },
		    { "psld", FAL_JOB_PLACEMENT_PSLD })),
	KEY("job", "verify", PERCENT, verify, 0, 100),
	KEY("model", "file", TEXT, model, 1, FAL_INI_LINE),
	KEY("model", "init", TEXT, init, 1, FAL_INI_LINE),
	KEY("model", "init-sha256", TEXT, init_sha256, 1, FAL_INI_LINE),
	KEY("model", "from-sha256", TEXT, from_sha256, 1, FAL_INI_LINE),
	KEY("model", "block", CHOICE, block, 0, 0,
	    CHOICES({ "vector", FAL_JOB_BLOCK_VECTOR },
		    { "tensor", FAL_JOB_BLOCK_TENSOR })),
	KEY("model", "freeze", TEXT, freeze, 1, FAL_INI_LINE),
	KEY("model", "buffers", TEXT, buffers, 1, FAL_INI_LINE),
	KEY("model", "buffer-momentum", DOUBLE, optim.buffer_momentum, 0, 1),
	KEY("data", "format", CHOICE, format, 0, 0,
	    CHOICES({ "idx", FAL_JOB_FORMAT_IDX }, { "npy", FAL_JOB_FORMAT_NPY },
		    { "safetensors", FAL_JOB_FORMAT_SAFETENSORS },
		    { "csv", FAL_JOB_FORMAT_CSV }, { "tsv", FAL_JOB_FORMAT_TSV },
		    { "text", FAL_JOB_FORMAT_TEXT },
		    { "cifar10", FAL_JOB_FORMAT_CIFAR10 },
		    { "cifar100", FAL_JOB_FORMAT_CIFAR100 },
		    { "index", FAL_JOB_FORMAT_INDEX }),
	    NEEDED),
	KEY("data", "train-images", TEXT, train_images, 1, FAL_INI_LINE),
	KEY("data", "train", TEXT, train, 1, FAL_INI_LINE),
	KEY("data", "train-labels", TEXT, train_labels, 1, FAL_INI_LINE),
	KEY("data", "test-images", TEXT, test_images, 1, FAL_INI_LINE),
	KEY("data", "test", TEXT, test, 1, FAL_INI_LINE),
	KEY("data", "test-labels", TEXT, test_labels, 1, FAL_INI_LINE),
	KEY("data", "features", TEXT, features, 1, FAL_INI_LINE),
	KEY("data", "label", TEXT, label, 1, FAL_INI_LINE),
	KEY("data", "target", CHOICE, target, 0, 0,
	    CHOICES({ "class", FAL_JOB_TARGET_CLASS },
		    { "value", FAL_JOB_TARGET_VALUE })),
	KEY("data", "window", U32, window, 1, (1 << 20) - 2),
	KEY("data", "hash", TEXT, data_hash, 1, FAL_INI_LINE),
	KEY("data", "samples", U32, samples, 0, 0x1p31),
	KEY("data", "test-samples", U32, test_samples, 0, 0x1p31),
	KEY("data", "shuffle", CHOICE, shuffle, 0, 0,
	    CHOICES({ "window", FAL_JOB_SHUFFLE_WINDOW },
		    { "full", FAL_JOB_SHUFFLE_FULL })),
	KEY("data", "partition", CHOICE, partition, 0, 0,
	    CHOICES({ "shared", FAL_JOB_PARTITION_SHARED },
		    { "worker", FAL_JOB_PARTITION_WORKER },
		    { "label-skew", FAL_JOB_PARTITION_LABEL_SKEW })),
	KEY("data", "parts", U32, parts, 1, 1 << 20),
	KEY("data", "mean", LIST, mean, -1e6, 1e6),
	KEY("data", "std", LIST, std, 1e-6, 1e6),
	KEY("batch", "size", U32, batch, 1, 1 << 20, NEEDED),
	KEY("batch", "task", U32, task, 1, 1 << 20),
	KEY("push", "bits", U32, push_bits, 8, FAL_BFP_P),
	KEY("optimizer", "kind", CHOICE, optim.kind, 0, 0,
	    CHOICES({ "sgd", FAL_SGD }, { "momentum", FAL_MOMENTUM },
		    { "nesterov", FAL_NESTEROV }, { "adagrad", FAL_ADAGRAD },
		    { "adamw", FAL_ADAMW }),
	    NEEDED),
	KEY("optimizer", "lr", DOUBLE, schedule.lr, 1e-12, 1000, NEEDED),
	KEY("optimizer", "momentum", FLOAT, optim.momentum, 0, 0.9999),
	KEY("optimizer", "beta1", DOUBLE, optim.beta1, 0, 0.9999),
	KEY("optimizer", "beta2", DOUBLE, optim.beta2, 0, 0.999999),
	KEY("optimizer", "eps", FLOAT, optim.eps, 1e-20, 1),
	KEY("optimizer", "weight-decay", FLOAT, optim.weight_decay, 0, 1),
	KEY("optimizer", "decay", CHOICE, decay, 0, 0,
	    CHOICES({ "coupled", FAL_JOB_DECAY_COUPLED },
		    { "decoupled", FAL_JOB_DECAY_DECOUPLED })),
	KEY("optimizer", "clip", DOUBLE, optim.clip, 0, 1e30),
	KEY("optimizer", "ema", DOUBLE, optim.ema, 0, 0.999999),
	KEY("schedule", "kind", CHOICE, schedule.kind, 0, 0,
	    CHOICES({ "constant", FAL_CONSTANT }, { "step", FAL_STEP },
		    { "cosine", FAL_COSINE })),
	KEY("schedule", "warmup", U64, schedule.warmup, 0, 1e9),
	KEY("schedule", "every", U64, schedule.every, 0, 1e9),
	KEY("schedule", "gamma", DOUBLE, schedule.gamma, 1e-6, 1),
	KEY("schedule", "min-lr", DOUBLE, schedule.min_lr, 0, 1000),
	KEY("sync", "scheme", SCHEME, rule, 0, 0, NEEDED),
	KEY("sync", "clones", CHOICE, clones, 0, 0,
	    CHOICES({ "yes", FAL_JOB_CLONES_YES }, { "no", FAL_JOB_CLONES_NO })),
	KEY("sync", "lanes.start", U32, lanes_start, 0, 4096),
	KEY("state", "clocks", U32, state_clocks, 0, 1e9),
	KEY("state", "seconds", DOUBLE, state_seconds, 0, 1e9),
	KEY("state", "keep", U32, state_keep, 1, 1000),
	KEY("state", "best", CHOICE, state_best, 0, 0,
	    CHOICES({ "no", FAL_JOB_BEST_NO }, { "yes", FAL_JOB_BEST_YES })),
};
/* clang-format on */
#define KEYS (sizeof(keys) / sizeof(keys[0]))

struct parser {
	const char *name;
	struct fal_job *job;
	unsigned line[KEYS];    /* where each key stands; 0 for nowhere */
	uint32_t mean_n, std_n; /* entries of the lists */
	struct fal_diag *diag;
};

/* The key's index, or KEYS. */
static size_t
find(const char *section, const char *name)
{
	size_t i = 0;
	while (i < KEYS &&
	       (strcmp(keys[i].section, section) != 0 || strcmp(keys[i].name, name) != 0))
		i++;
	return i;
}

/* The index of the key that sets the field at this offset. */
static size_t
key_at(size_t at)
{
	size_t i = 0;
	while (keys[i].at != at)
		i++;
	return i;
}

static bool
known_section(const char *section)
{
	for (size_t i = 0; i < KEYS; i++)
		if (strcmp(keys[i].section, section) == 0)
			return true;
	return false;
}

/* A diagnosis about key i: "NAME:LINE: section.key: what". */
static int
refuse(const struct parser *p, size_t i, int err, const char *what)
{
	const struct key *k = &keys[i];
	if (p->line[i] == 0)
		return fal_diag_set(p->diag, err, "%s: %s.%s: %s", p->name, k->section,
				    k->name, what);
	return fal_diag_set(p->diag, err, "%s:%u: %s.%s: %s", p->name, p->line[i],
			    k->section, k->name, what);
}

/* As refuse(), about the value of key i. */
static int
refuse_value(const struct parser *p, size_t i, const char *value, const char *what)
{
	struct fal_diag d;
	fal_diag_set(&d, 0, "'%s' %s", FAL_QUOTE(value), what);
	return refuse(p, i, FAL_EINVAL, d.text);
}

/* The verdict on a number that fal_parse_… judged with `err`. */
static int
judge_number(const struct parser *p, size_t i, const char *value, int err)
{
	if (err == 0)
		return FAL_OK;
	if (err != FAL_ELIMIT)
		return refuse_value(p, i, value,
				    keys[i].type == U64 || keys[i].type == U32
					    ? "is not a whole number"
					    : "is not a number");
	struct fal_diag range;
	fal_diag_set(&range, 0, "is not in %.10g..%.10g", keys[i].min, keys[i].max);
	return refuse_value(p, i, value, range.text);
}

/* Where key i's value goes. */
static void *
field(struct parser *p, size_t i)
{
	return (char *)p->job + keys[i].at;
}

static int
set_number(struct parser *p, size_t i, const char *value)
{
	const struct key *k = &keys[i];
	void *to = field(p, i);
	uint64_t whole = 0;
	double real = 0;
	char number[32];
	int err;

	if (k->type == PERCENT) {
		const size_t n = strlen(value);
		if (n < 2 || n > sizeof(number) || value[n - 1] != '%')
			return refuse_value(p, i, value, "is not a number with %");
		snprintf(number, sizeof(number), "%.*s", (int)n - 1, value);
		value = number;
	}
	if (k->type == U64 || k->type == U32) {
		uint64_t max = k->max < 0x1p64 ? (uint64_t)k->max : UINT64_MAX;
		err = fal_parse_u64(value, (uint64_t)k->min, max, &whole);
	} else {
		err = fal_parse_double(value, k->min, k->max, &real);
	}
	err = judge_number(p, i, value, err);
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
set_text(struct parser *p, size_t i, const char *value)
{
	size_t n = strlen(value);
	if (n == 0)
		return refuse(p, i, FAL_EINVAL, "is empty");
	if ((double)n > keys[i].max)
		return refuse_value(p, i, value, "is too long");
	char *copy = fal_strdup(value);
	if (copy == NULL)
		return refuse(p, i, FAL_ENOMEM, fal_strerror(FAL_ENOMEM));
	*(char **)field(p, i) = copy;
	return FAL_OK;
}

static int
set_scheme(struct parser *p, size_t i, const char *value)
{
	struct fal_diag why;
	int err = fal_rule_parse(value, field(p, i), &why);
	return err < 0 ? refuse(p, i, err, why.text) : FAL_OK;
}

static int
set_choice(struct parser *p, size_t i, const char *value)
{
	char all[128] = "is not one of";
	size_t n = strlen(all);
	for (const struct choice *c = keys[i].choices; c->text != NULL; c++) {
		if (strcmp(c->text, value) == 0) {
			*(unsigned *)field(p, i) = c->value;
			return FAL_OK;
		}
		n += (size_t)snprintf(all + n, sizeof(all) - n, " %s", c->text);
		assert(n < sizeof(all));
	}
	return refuse_value(p, i, value, all);
}

static int
set_list(struct parser *p, size_t i, const char *value)
{
	float *list = field(p, i);
	uint32_t *count = keys[i].at == AT(mean) ? &p->mean_n : &p->std_n;
	char copy[FAL_INI_LINE + 1];
	snprintf(copy, sizeof(copy), "%s", value);

	for (char *rest = copy, *item; (item = strsep(&rest, ",")) != NULL;) {
		item += strspn(item, " \t");
		for (size_t n = strlen(item); n > 0 && strchr(" \t", item[n - 1]);)
			item[--n] = '\0';
		if (*count == FAL_JOB_CHANNELS)
			return refuse_value(p, i, value, "lists too many channels");
		double v;
		int err = fal_parse_double(item, keys[i].min, keys[i].max, &v);
		if (err < 0)
			return judge_number(p, i, item, err);
		list[(*count)++] = (float)v;
	}
	return FAL_OK;
}

static int
on_entry(void *user, const char *section, const char *key, const char *value,
	 unsigned line)
{
	struct parser *p = user;
	if (!known_section(section)) {
		if (*section == '\0')
			return fal_diag_set(p->diag, FAL_EFORMAT,
					    "%s:%u: '%s' stands before any section",
					    p->name, line,
					    key != NULL ? FAL_QUOTE(key) : "");
		return fal_diag_set(p->diag, FAL_EFORMAT, "%s:%u: [%s]: no such section",
				    p->name, line, FAL_QUOTE(section));
	}
	if (key == NULL)
		return FAL_OK;
	size_t i = find(section, key);
	if (i == KEYS)
		return fal_diag_set(p->diag, FAL_EFORMAT, "%s:%u: %s.%s: no such key",
				    p->name, line, section, FAL_QUOTE(key));
	if (p->line[i] != 0)
		return fal_diag_set(p->diag, FAL_EFORMAT,
				    "%s:%u: %s.%s: '%s' is a second value, line %u has "
				    "the first",
				    p->name, line, section, key, FAL_QUOTE(value),
				    p->line[i]);
	p->line[i] = line;
	if (keys[i].type == TEXT)
		return set_text(p, i, value);
	if (keys[i].type == SCHEME)
		return set_scheme(p, i, value);
	if (keys[i].type == CHOICE)
		return set_choice(p, i, value);
	if (keys[i].type == LIST)
		return set_list(p, i, value);
	return set_number(p, i, value);
}

static bool
is_set(const struct parser *p, size_t at)
{
	return p->line[key_at(at)] != 0;
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

/* Which formats have a key, and of these those that can do without it. */
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

/* What data.format demands of the keys that name files and what is in them. */
static int
check_files(const struct parser *p)
{
	const struct fal_job *job = p->job;
	const unsigned format = 1u << job->format;
	const bool test = job->eval != FAL_JOB_EVAL_NEVER || fal_job_has_test(job) ||
			  job->test_labels != NULL;
	const struct {
		size_t at;
		unsigned of, without;
		bool test;
	} rules[] = {
		{ AT(train_images), IDX, 0, false },
		{ AT(train), FILES, 0, false },
		{ AT(train_labels), IDX | NPY, 0, false },
		{ AT(test_images), IDX, 0, true },
		{ AT(test), FILES, 0, true },
		{ AT(test_labels), IDX | NPY, 0, true },
		{ AT(features), TENSORS, 0, false },
		{ AT(label), TENSORS | TABLE | CIFAR100, CIFAR100, false },
		{ AT(target), NPY | TENSORS | TABLE, NPY | TENSORS | TABLE, false },
		{ AT(window), TEXTS, 0, false },
	};
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		const size_t at = rules[i].at;
		const bool needed = (rules[i].of & ~rules[i].without & format) != 0 &&
				    (test || !rules[i].test);
		if (is_set(p, at) && (rules[i].of & format) == 0)
			return refuse(p, key_at(at), FAL_EINVAL,
				      "is not for this data.format");
		if (needed && !is_set(p, at))
			return refuse(p, key_at(at),
				      rules[i].test ? FAL_EINVAL : FAL_EFORMAT,
				      rules[i].test
					      ? "missing (job.eval = never needs none)"
					      : "missing");
	}
	return FAL_OK;
}

/* What only the server can do is not for schemes whose steps are made elsewhere. */
static int
check_local(const struct parser *p)
{
	const char *key = fal_job_server_only(p->job);
	struct fal_diag d;
	if (key == NULL || !fal_rule_local(&p->job->rule))
		return FAL_OK;
	fal_diag_set(&d, 0, "takes steps outside the server, which %s is not for", key);
	return refuse(p, key_at(AT(rule)), FAL_EINVAL, d.text);
}

static bool
is_hash(const char *s)
{
	uint8_t hash[32];
	return fal_unhex(s, sizeof(hash), hash) == FAL_OK;
}

/* What one value demands of another. */
static int
check(struct parser *p)
{
	const struct fal_job *job = p->job;
	for (size_t i = 0; i < KEYS; i++)
		if (keys[i].needed && p->line[i] == 0)
			return refuse(p, i, FAL_EFORMAT, "missing");

	int err = check_files(p);
	if (err < 0)
		return err;
	const char *from = job->from_sha256;
	const char *sum = job->init_sha256, *hash = job->data_hash, *fine = job->label;
	const bool by_index = job->format == FAL_JOB_FORMAT_INDEX;
	const bool test = job->eval != FAL_JOB_EVAL_NEVER;
	const bool values = job->target == FAL_JOB_TARGET_VALUE;
	const bool shared = job->partition == FAL_JOB_PARTITION_SHARED;
	const bool shuffles = is_set(p, AT(shuffle));
	const enum fal_optim_kind kind = job->optim.kind;
	const bool moves = kind == FAL_MOMENTUM || kind == FAL_NESTEROV;
	const bool adam = kind == FAL_ADAMW;
	const bool steps = job->schedule.kind == FAL_STEP;
	const bool cosine = job->schedule.kind == FAL_COSINE;
	const struct {
		bool wrong;
		size_t at;
		const char *what;
	} rules[] = {
		{ job->model == NULL && job->init == NULL, AT(model),
		  "missing, and so is model.init" },
		{ sum != NULL && job->init == NULL, AT(init_sha256),
		  "does nothing without model.init" },
		{ sum != NULL && !is_hash(sum), AT(init_sha256),
		  "is not 64 digits of 0-9a-f" },
		{ from != NULL && !is_hash(from), AT(from_sha256),
		  "is not 64 digits of 0-9a-f" },
		{ !test && job->state_best == FAL_JOB_BEST_YES, AT(state_best),
		  "does nothing for job.eval = never" },
		{ by_index && job->samples == 0, AT(samples),
		  "missing (data.format = index needs it)" },
		{ by_index && test && job->test_samples == 0, AT(test_samples),
		  "missing (job.eval = never needs none)" },
		{ fine != NULL && job->format == FAL_JOB_FORMAT_CIFAR100 &&
			  strcmp(fine, "fine") != 0 && strcmp(fine, "coarse") != 0,
		  AT(label), "is not fine or coarse" },
		{ hash != NULL && !is_hash(hash), AT(data_hash),
		  "is not 64 digits of 0-9a-f" },
		{ (by_index || job->format == FAL_JOB_FORMAT_TEXT) &&
			  (p->mean_n > 0 || p->std_n > 0),
		  p->mean_n > 0 ? AT(mean) : AT(std),
		  "does nothing for this data.format" },
		{ (by_index || job->format == FAL_JOB_FORMAT_TEXT) &&
			  job->partition == FAL_JOB_PARTITION_LABEL_SKEW,
		  AT(partition), "'label-skew' needs labels" },
		{ values && job->model != NULL, AT(target),
		  "'value' is only for a job without model.file: its layers classify" },
		{ values && job->partition == FAL_JOB_PARTITION_LABEL_SKEW, AT(partition),
		  "'label-skew' needs labels that are classes" },
		{ job->buffers != NULL && job->model != NULL, AT(buffers),
		  "are only for a job without model.file" },
		{ job->buffers == NULL && is_set(p, AT(optim.buffer_momentum)),
		  AT(optim.buffer_momentum), "does nothing without model.buffers" },
		{ p->mean_n != 0 && p->std_n != 0 && p->mean_n != p->std_n, AT(std),
		  "lists other channels than data.mean" },
		{ shared && job->parts != 0, AT(parts),
		  "does nothing for data.partition = shared" },
		{ !shared && job->parts == 0, AT(parts),
		  "missing (data.partition = shared needs none)" },
		{ !shared && shuffles, AT(shuffle),
		  "is only for data.partition = shared" },
		{ job->task > job->batch, AT(task), "is more than batch.size" },
		{ moves && job->optim.momentum <= 0, AT(optim.momentum),
		  "must be above 0 for this optimizer.kind" },
		{ !moves && job->optim.momentum > 0, AT(optim.momentum),
		  "does nothing for this optimizer.kind" },
		{ !adam && is_set(p, AT(optim.beta1)), AT(optim.beta1),
		  "is only for optimizer.kind = adamw" },
		{ !adam && is_set(p, AT(optim.beta2)), AT(optim.beta2),
		  "is only for optimizer.kind = adamw" },
		{ !adam && kind != FAL_ADAGRAD && is_set(p, AT(optim.eps)), AT(optim.eps),
		  "is only for optimizer.kind = adagrad or adamw" },
		{ job->optim.weight_decay <= 0 && is_set(p, AT(decay)), AT(decay),
		  "does nothing without optimizer.weight-decay" },
		{ adam && is_set(p, AT(decay)) && job->decay == FAL_JOB_DECAY_COUPLED,
		  AT(decay), "'coupled' is not for optimizer.kind = adamw" },
		{ steps && job->schedule.every == 0, AT(schedule.every),
		  "must be above 0 for schedule.kind = step" },
		{ !steps && job->schedule.every != 0, AT(schedule.every),
		  "is only for schedule.kind = step" },
		{ steps && job->schedule.gamma >= 1, AT(schedule.gamma),
		  "must be below 1 for schedule.kind = step" },
		{ !steps && job->schedule.gamma < 1, AT(schedule.gamma),
		  "is only for schedule.kind = step" },
		{ !cosine && job->schedule.min_lr > 0, AT(schedule.min_lr),
		  "is only for schedule.kind = cosine" },
		{ job->schedule.min_lr > job->schedule.lr, AT(schedule.min_lr),
		  "is more than optimizer.lr" },
	};
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (rules[i].wrong)
			return refuse(p, key_at(rules[i].at), FAL_EINVAL, rules[i].what);
	return check_local(p);
}

/* Values of the keys that the text does not have, where 0 is not it. */
static void
set_defaults(struct parser *p)
{
	struct fal_job *job = p->job;
	job->channels = p->mean_n > p->std_n ? p->mean_n : p->std_n;
	if (job->channels == 0)
		job->channels = 1;
	if (!is_set(p, AT(state_seconds)) && !is_set(p, AT(state_clocks)))
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
	if (o->kind == FAL_ADAMW && !is_set(p, AT(optim.beta1)))
		o->beta1 = 0.9;
	if (o->kind == FAL_ADAMW && !is_set(p, AT(optim.beta2)))
		o->beta2 = 0.999;
	if (job->buffers != NULL && !is_set(p, AT(optim.buffer_momentum)))
		o->buffer_momentum = 0.1;
	if (!is_set(p, AT(optim.eps)))
		o->eps = o->kind == FAL_ADAMW ? 1e-8f : 1e-10f;
	o->decoupled = o->kind == FAL_ADAMW || job->decay == FAL_JOB_DECAY_DECOUPLED;
	if (job->task == 0) {
		job->task = job->batch / 64 > 8 ? job->batch / 64 : 8;
		if (job->task > job->batch)
			job->task = job->batch;
	}
}

int
fal_job_parse(const char *name, const char *text, size_t n, struct fal_job *out,
	      struct fal_diag *diag)
{
	struct fal_job job = { .schedule.gamma = 1 };
	struct parser p = { .name = name, .job = &job, .diag = diag };

	int err = fal_ini_read(name, text, n, on_entry, &p, diag);
	if (err == 0)
		err = check(&p);
	if (err < 0) {
		fal_job_free(&job);
		return err;
	}
	set_defaults(&p);
	*out = job;
	return FAL_OK;
}

void
fal_job_free(struct fal_job *job)
{
	for (size_t i = 0; job != NULL && i < KEYS; i++)
		if (keys[i].type == TEXT)
			free(*(char **)(void *)((char *)job + keys[i].at));
	if (job == NULL)
		return;
	free(job->ranges);
	*job = (struct fal_job){ 0 };
}

struct fal_grid
fal_job_grid(const struct fal_job *job, uint32_t n)
{
	return (struct fal_grid){ .samples = n,
				  .batch = job->batch,
				  .task = job->task,
				  .epochs = job->epochs,
				  .parts = job->parts };
}

int
fal_job_bind(struct fal_job *job, uint32_t n, struct fal_diag *diag)
{
	const struct fal_grid g = fal_job_grid(job, n);
	uint64_t total = fal_grid_clocks(&g);
	if (job->schedule.warmup > total)
		return fal_diag_set(diag, FAL_EINVAL,
				    "schedule.warmup: '%" PRIu64
				    "' is more than the %" PRIu64 " update%s of the job",
				    job->schedule.warmup, total, fal_text_s(total));
	uint32_t tasks = fal_grid_tasks(&g, 0);
	if (job->parts > tasks)
		return fal_diag_set(diag, FAL_EINVAL,
				    "data.parts: '%" PRIu32 "' is more than the %" PRIu32
				    " task%s of a clock",
				    job->parts, tasks, fal_text_s(tasks));
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
	if (find(section, key) == KEYS)
		return fal_diag_set(diag, FAL_EINVAL, "%s.%s: no such key",
				    FAL_QUOTE(section), FAL_QUOTE(key));
	/* What would begin a comment or another line. */
	if (strpbrk(value, ";\n\r") != NULL)
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s.%s: '%s' has a character that no value has",
				    section, key, FAL_QUOTE(value));
	const struct fal_ini_entry e = { section, key, value };
	return fal_ini_set(name, text, n, &e, out, diag);
}

char *
fal_job_path(const char *job_file, const char *path)
{
	const char *slash = strrchr(job_file, '/');
	if (*path == '/' || slash == NULL)
		return fal_strdup(path);
	size_t dir = (size_t)(slash - job_file) + 1;
	char *out = FAL_TRY(MALLOC, NULL, malloc(dir + strlen(path) + 1));
	if (out != NULL) {
		memcpy(out, job_file, dir);
		strcpy(out + dir, path);
	}
	return out;
}
