/* The job file: one table of keys, and what each takes by itself. */
#include "job/priv.h"

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
	NAME,    /* the same in UTF-8, as it is written down in JSON, and with no /, as it
		    names the state folder */
	HASH,    /* char *, of 64 digits */
	U64,     /* uint64_t */
	U32,     /* uint32_t */
	DOUBLE,  /* double */
	FLOAT,   /* float */
	PERCENT, /* double, with a % behind */
	CHOICE,  /* an enum, by `choices` */
	LIST,    /* float[FAL_JOB_CHANNELS], comma between */
	SCHEME,  /* struct fal_rule */
	PLACEMENT /* as CHOICE, or a file's name */
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

#define KEY(s, n, t, f, lo, hi, ...) \
	{ .section = s,              \
	  .name = n,                 \
	  .type = t,                 \
	  .at = JOB_AT(f),           \
	  .min = lo,                 \
	  .max = hi,                 \
	  __VA_ARGS__ }
#define CHOICES(...)                       \
	.choices = (const struct choice[]) \
	{                                  \
		__VA_ARGS__, { NULL, 0 }   \
	}
#define NEEDED .needed = true

/* clang-format off: a table reads as one. */
static const struct key keys[] = {
	KEY("job", "name", NAME, name, 1, 64, NEEDED),
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
	KEY("job", "placement", PLACEMENT, placement, 0, 0,
	    CHOICES({ "blocks", FAL_JOB_PLACEMENT_BLOCKS },
		    { "psld", FAL_JOB_PLACEMENT_PSLD },
		    { "file:PATH", FAL_JOB_PLACEMENT_FILE })),
	KEY("job", "verify", PERCENT, verify, 0, 100),
	KEY("model", "file", TEXT, model, 1, FAL_INI_LINE),
	KEY("model", "file-sha256", HASH, model_sha256, 64, 64),
	KEY("model", "init", TEXT, init, 1, FAL_INI_LINE),
	KEY("model", "init-sha256", HASH, init_sha256, 64, 64),
	KEY("model", "from-sha256", HASH, from_sha256, 64, 64),
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
	KEY("data", "hash", HASH, data_hash, 64, 64),
	KEY("data", "train-hash", HASH, train_hash, 64, 64),
	KEY("data", "test-hash", HASH, test_hash, 64, 64),
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
	KEY("verify", "stop", CHOICE, verify_stop, 0, 0,
	    CHOICES({ "no", FAL_JOB_VERIFY_STOP_NO },
		    { "yes", FAL_JOB_VERIFY_STOP_YES })),
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

static bool
is_text(size_t i)
{
	return keys[i].type == TEXT || keys[i].type == NAME || keys[i].type == HASH;
}

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

const char *
fal_job_origin(const struct fal_job_set *set, const char *what, const char *name)
{
	for (size_t i = 0; i < set->n; i++) {
		const size_t n = strcspn(set->v[i], "=");
		if (strncmp(what, set->v[i], n) == 0 &&
		    (what[n] == ':' || what[n] == ' '))
			return "--set";
	}
	return name;
}

/* A diagnosis about key i: "NAME:LINE: section.key: what". */
static int
refuse(const struct job_read *p, size_t i, int err, const char *what)
{
	struct fal_diag d;
	fal_diag_set(&d, err, "%s.%s: %s", keys[i].section, keys[i].name, what);
	const char *from = fal_job_origin(p->set, d.text, p->name);
	if (p->line[i] == 0 || from != p->name)
		return fal_diag_set(p->diag, err, "%s: %s", from, d.text);
	return fal_diag_set(p->diag, err, "%s:%u: %s", from, p->line[i], d.text);
}

/* As refuse(), about the value of key i. */
static int
refuse_value(const struct job_read *p, size_t i, const char *value, const char *what)
{
	struct fal_diag d;
	fal_diag_set(&d, 0, "'%s' %s", FAL_QUOTE(value), what);
	return refuse(p, i, FAL_EINVAL, d.text);
}

/* The verdict on a number that fal_parse_… judged with `err`. */
static int
judge_number(const struct job_read *p, size_t i, const char *value, int err)
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
field(struct job_read *p, size_t i)
{
	return (char *)p->job + keys[i].at;
}

static int
set_number(struct job_read *p, size_t i, const char *value)
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
set_text(struct job_read *p, size_t i, const char *value)
{
	size_t n = strlen(value);
	uint8_t hash[32];
	if (n == 0)
		return refuse(p, i, FAL_EINVAL, "is empty");
	if (keys[i].type == HASH && fal_unhex(value, sizeof(hash), hash) < 0)
		return refuse(p, i, FAL_EINVAL, "is not 64 digits of 0-9a-f");
	if (keys[i].type == NAME && strchr(value, '/') != NULL)
		return refuse_value(p, i, value, "has a /, but names the state folder");
	if ((double)n > keys[i].max)
		return refuse_value(p, i, value, "is too long");
	if (keys[i].type == NAME && !fal_text_is_utf8(value))
		return refuse_value(p, i, value, "is not UTF-8");
	char *copy = fal_strdup(value);
	if (copy == NULL)
		return refuse(p, i, FAL_ENOMEM, fal_strerror(FAL_ENOMEM));
	*(char **)field(p, i) = copy;
	return FAL_OK;
}

static int
set_scheme(struct job_read *p, size_t i, const char *value)
{
	struct fal_diag why;
	int err = fal_rule_parse(value, field(p, i), &why);
	return err < 0 ? refuse(p, i, err, why.text) : FAL_OK;
}

static int
set_choice(struct job_read *p, size_t i, const char *value)
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
set_placement(struct job_read *p, size_t i, const char *value)
{
	static const char prefix[] = "file:";
	const size_t n = sizeof(prefix) - 1;
	if (strncmp(value, prefix, n) != 0 || value[n] == '\0')
		return set_choice(p, i, value);
	p->job->placement = FAL_JOB_PLACEMENT_FILE;
	p->job->placement_file = fal_strdup(value + n);
	return p->job->placement_file != NULL
		       ? FAL_OK
		       : refuse(p, i, FAL_ENOMEM, fal_strerror(FAL_ENOMEM));
}

static int
set_list(struct job_read *p, size_t i, const char *value)
{
	float *list = field(p, i);
	uint32_t *count = keys[i].at == JOB_AT(mean) ? &p->mean_n : &p->std_n;
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
	struct job_read *p = user;
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
	if (is_text(i))
		return set_text(p, i, value);
	if (keys[i].type == SCHEME)
		return set_scheme(p, i, value);
	if (keys[i].type == CHOICE)
		return set_choice(p, i, value);
	if (keys[i].type == PLACEMENT)
		return set_placement(p, i, value);
	if (keys[i].type == LIST)
		return set_list(p, i, value);
	return set_number(p, i, value);
}

bool
job_has(const struct job_read *p, size_t at)
{
	return p->line[key_at(at)] != 0;
}

int
job_refuse(const struct job_read *p, size_t at, int err, const char *what)
{
	return refuse(p, key_at(at), err, what);
}

int
fal_job_parse(const char *name, const char *text, size_t n, struct fal_job *out,
	      struct fal_diag *diag)
{
	const struct fal_job_set none = { NULL, 0 };
	return fal_job_parse_set(name, text, n, &none, out, diag);
}

int
fal_job_parse_set(const char *name, const char *text, size_t n,
		  const struct fal_job_set *set, struct fal_job *out,
		  struct fal_diag *diag)
{
	struct fal_job job = { .schedule.gamma = 1 };
	unsigned line[KEYS] = { 0 };
	struct job_read p = {
		.name = name, .set = set, .job = &job, .line = line, .diag = diag
	};

	int err = fal_ini_read(name, text, n, on_entry, &p, diag);
	for (size_t i = 0; i < KEYS && err == FAL_OK; i++)
		if (keys[i].needed && line[i] == 0)
			err = refuse(&p, i, FAL_EFORMAT, "missing");
	if (err == FAL_OK)
		err = job_judge(&p);
	if (err < 0) {
		fal_job_free(&job);
		return err;
	}
	job_fill(&p);
	*out = job;
	return FAL_OK;
}

void
fal_job_free(struct fal_job *job)
{
	for (size_t i = 0; job != NULL && i < KEYS; i++)
		if (is_text(i))
			free(*(char **)(void *)((char *)job + keys[i].at));
	if (job == NULL)
		return;
	free(job->placement_file);
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
	/* Or a line of the text would be too long. */
	if (strlen(key) + strlen(" = ") + strlen(value) > FAL_INI_LINE)
		return fal_diag_set(diag, FAL_EINVAL, "%s.%s: '%s' is too long", section,
				    key, FAL_QUOTE(value));
	/* What would begin a comment or another line, or is refused in each. */
	bool odd = strchr(value, ';') != NULL;
	for (const char *p = value; *p != '\0'; p++)
		odd |= fal_ini_is_control(*p);
	if (odd)
		return fal_diag_set(diag, FAL_EINVAL,
				    "%s.%s: '%s' has a character that no value has",
				    section, key, FAL_QUOTE(value));
	const struct fal_ini_entry e = { section, key, value };
	return fal_ini_set(name, text, n, &e, out, diag);
}

/* The values of two texts, by key, as they are written. */
struct job_values {
	char *v[2][KEYS];
	size_t text;
};

static int
job_values_add(void *arg, const char *section, const char *key, const char *value,
	       unsigned line)
{
	struct job_values *t = arg;
	const size_t i = key != NULL ? find(section, key) : KEYS;
	(void)line;
	if (i == KEYS || t->v[t->text][i] != NULL)
		return FAL_OK;
	t->v[t->text][i] = fal_strdup(value);
	return t->v[t->text][i] != NULL ? FAL_OK : FAL_ENOMEM;
}

int
fal_job_differ(const struct fal_buf *a, const struct fal_buf *b,
	       int (*on_key)(void *arg, const char *key, const char *in_a,
			     const char *in_b),
	       void *arg)
{
	struct job_values t = { 0 };
	const struct fal_buf *text[] = { a, b };
	int err = FAL_OK, n = 0;
	for (; t.text < 2 && err == FAL_OK; t.text++)
		err = fal_ini_read("job", (const char *)text[t.text]->p, text[t.text]->n,
				   job_values_add, &t, NULL);
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

char *
fal_job_path(const char *job_file, const char *path)
{
	const char *slash = strrchr(job_file, '/');
	const int dir = *path == '/' || slash == NULL ? 0 : (int)(slash - job_file) + 1;
	return fal_xprintf("%.*s%s", dir, job_file, path);
}
