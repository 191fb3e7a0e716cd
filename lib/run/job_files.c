/* Makes setups, and loads a job's files. */
#include "run/job_files.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/file.h"
#include "job/set.h"
#include "model/safetensors.h"
#include "trace/reader.h"
#include "wire/bfp.h"
#include "wire/block_map.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the setup of lanes --- */

/* Aligns the tensors in the flat vector as model.block demands. */
static int
align_tensors(const struct fal_job *job, struct fal_model *m, const char *file,
	      struct fal_diag *diag)
{
	if (job->block == FAL_JOB_BLOCK_TENSOR && fal_model_align(m, FAL_BLOCK) < 0)
		return fal_diag_set(diag, FAL_ELIMIT,
				    "%s: with model.block = tensor more than 2^31 values",
				    file);
	return FAL_OK;
}

int
fal_setup_parse(const struct fal_setup_text *job, const struct fal_setup_text *model,
		struct fal_job *out, struct fal_model **m, struct fal_diag *diag)
{
	int err = fal_job_parse(job->name, job->p, job->n, out, diag);
	if (err == FAL_OK)
		err = fal_model_parse(model->name, model->p, model->n, m, diag);
	if (err == FAL_OK)
		err = align_tensors(out, *m, model->name, diag);
	return err == FAL_OK ? fal_job_set_ranges(out, *m, diag) : err;
}

int
fal_setup_init(struct fal_setup *s, const struct fal_setup_text *job,
	       const struct fal_setup_text *model, struct fal_diag *diag)
{
	int err = fal_setup_parse(job, model, &s->job, &s->model, diag);
	const struct fal_part *part = &s->manifest.train;
	const uint32_t has = fal_part_channels(part);
	if (err == FAL_OK && s->job.channels != 1 && s->job.channels != has)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "data.mean lists %u channel%s, a sample has %u",
				   s->job.channels, fal_text_plural(s->job.channels),
				   has);
	if (err == FAL_OK && s->job.format == FAL_JOB_FORMAT_TEXT &&
	    (part->dtype != FAL_U8 || part->values != s->job.window + 1))
		err = fal_diag_set(diag, FAL_EINVAL,
				   "data.window is %u, but a sample has %u of %s",
				   s->job.window, part->values,
				   fal_dtype_name(part->dtype));
	if (err == FAL_OK) {
		err = fal_norm_init(&s->norm, s->job.channels, s->job.mean, s->job.std);
		if (err < 0)
			fal_diag_set(diag, err, "%s", fal_strerror(err));
	}
	s->test_order = (struct fal_order){ .n = s->manifest.test.n };
	if (err < 0)
		fal_setup_free(s);
	return err;
}

void
fal_setup_free(struct fal_setup *s)
{
	fal_epoch_release(s->epoch);
	fal_order_free(&s->test_order);
	fal_manifest_free(&s->manifest);
	fal_model_free(s->model);
	fal_job_free(&s->job);
	*s = (struct fal_setup){ 0 };
}

struct fal_epoch *
fal_setup_epoch(struct fal_setup *s, uint32_t number)
{
	const struct fal_grid grid = fal_job_grid(&s->job, s->manifest.train.n);
	const struct fal_order_opts opts = {
		.seed = s->job.seed,
		.epoch = number,
		.n = s->manifest.train.n,
		.per_chunk = s->manifest.train.per_chunk,
		.shuffle = s->job.partition != FAL_JOB_PARTITION_SHARED
				   ? FAL_SHUFFLE_PARTS
			   : s->job.shuffle == FAL_JOB_SHUFFLE_FULL ? FAL_SHUFFLE_FULL
								    : FAL_SHUFFLE_WINDOW,
		.grid = &grid,
		.labels = s->manifest.train.labels,
	};
	if (s->epoch == NULL || s->epoch->number != number) {
		struct fal_epoch *e = fal_xcalloc(1, sizeof(*e));
		if (fal_order_init(&e->order, &opts) < 0)
			fal_out_of_memory();
		e->number = number;
		e->refs = 1;
		fal_epoch_release(s->epoch);
		s->epoch = e;
	}
	s->epoch->refs++;
	return s->epoch;
}

void
fal_epoch_release(struct fal_epoch *e)
{
	assert(e == NULL || e->refs > 0);
	if (e == NULL || --e->refs > 0)
		return;
	fal_order_free(&e->order);
	free(e);
}

uint64_t
fal_setup_bytes(const struct fal_setup *s)
{
	return fal_part_bytes(&s->manifest.train) + fal_part_bytes(&s->manifest.test) +
	       2 * (uint64_t)s->manifest.train.n * sizeof(uint32_t);
}

struct fal_places
fal_setup_places(const struct fal_setup *s, uint64_t clock, uint32_t task)
{
	const struct fal_grid g = fal_job_grid(&s->job, s->manifest.train.n);
	const uint64_t clocks = fal_grid_epoch_clocks(&g);
	struct fal_places p = { .epoch = (uint32_t)(clock / clocks) };
	if (task >= fal_grid_tasks(&g, clock))
		return p;
	p.first = (uint32_t)(clock % clocks * g.batch) +
		  fal_grid_samples_before(&g, clock, task);
	p.count = fal_grid_range_samples(&g, clock, task, 1);
	return p;
}

struct fal_places
fal_setup_test_places(const struct fal_setup *s, uint32_t task)
{
	const uint64_t first = (uint64_t)task * s->job.task, n = s->manifest.test.n;
	struct fal_places p = { 0 };
	if (first >= n)
		return p;
	p.first = (uint32_t)first;
	p.count = n - first < s->job.task ? (uint32_t)(n - first) : s->job.task;
	return p;
}

/* ---- the files --- */

enum { TEXT_MAX = 1 << 20 }; /* bytes of a job or model file */

/* Applies an assignment to the job text. */
static int
override_key(struct fal_files *j, const char *path, const char *assignment,
	     struct fal_diag *diag)
{
	struct fal_buf changed = { 0 };
	int err = fal_job_override(path, (const char *)j->job_text.p, j->job_text.n,
				   assignment, &changed, diag);
	fal_buf_free(&j->job_text);
	j->job_text = changed;
	return err;
}

/* Sets the key of a file's hash in the job text, or compares the hash with `demanded`,
 * the key's value in the text. */
static int
put_hash(struct fal_files *j, const char *path, const char *key, const char *demanded,
	 const char *file, const char *hex, struct fal_diag *diag)
{
	char set[2 * FAL_HASH_BYTES + 32];
	snprintf(set, sizeof(set), "%s=%s", key, hex);
	if (demanded == NULL)
		return override_key(j, path, set, diag);
	return strcmp(hex, demanded) == 0
		       ? FAL_OK
		       : fal_diag_set(diag, FAL_EINVAL, "%s: its %s is %s, not %s", file,
				      strstr(key, "sha256") != NULL ? "SHA-256" : "hash",
				      hex, key);
}

/* Sets `diag` to the fault `why`, which begins with a key. */
static int
refuse_key(const struct fal_files *j, const char *path, int err, const char *why,
	   struct fal_diag *diag)
{
	return fal_diag_set(diag, err, "%s: %s", fal_job_diag_name(&j->set, why, path),
			    why);
}

/* Reads the first parameters.  Without model.file, first reads the tensors' names and
 * shapes. */
static int
read_tensors(struct fal_files *j, const char *file, const struct fal_buf *bytes,
	     struct fal_diag *diag)
{
	const struct fal_safetensors f = fal_job_tensors(&j->job, file, bytes);
	int err = FAL_OK;
	if (j->model == NULL) {
		err = fal_safetensors_model(&f, &j->model, diag);
		if (err == FAL_OK)
			err = fal_safetensors_header(j->model, &j->model_text);
		if (err == FAL_OK)
			err = align_tensors(&j->job, j->model, file, diag);
	}
	if (err < 0)
		return err;
	if (j->init == NULL)
		j->init = fal_calloc_aligned(j->model->params, sizeof(float));
	if (j->init == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	err = fal_safetensors_get(&f, j->model, j->init, diag);
	for (uint32_t i = 0; err == FAL_OK && i < j->model->tensors; i++) {
		const struct fal_tensor *t = &j->model->tensor[i];
		for (uint64_t k = 0; k < t->count; k++)
			if (!isfinite(j->init[t->offset + k]))
				return fal_diag_set(diag, FAL_ENONFINITE,
						    "%s: value %llu of tensor '%s' is "
						    "not finite",
						    f.name, (unsigned long long)k,
						    FAL_QUOTE(t->name));
	}
	return err;
}

/* Loads the first weights and sets `key` of the job text to the SHA-256 of their file. */
static int
load_weights(struct fal_files *j, const char *path, const char *file, const char *key,
	     const char *demanded, char hex[static 2 * FAL_HASH_BYTES + 1],
	     struct fal_diag *diag)
{
	enum { HEADER = 2 << 20 };
	uint8_t sum[FAL_HASH_BYTES];
	struct fal_buf bytes = { 0 };
	int err = fal_cli_read(file, FAL_MODEL_MAX_FLOATS * sizeof(float) + HEADER,
			       &bytes, diag);
	if (err == FAL_OK)
		err = read_tensors(j, file, &bytes, diag);
	fal_sha256(bytes.p, bytes.n, sum);
	fal_hex(sum, sizeof(sum), hex);
	if (err == FAL_OK)
		err = put_hash(j, path, key, demanded, file, hex, diag);
	fal_buf_free(&bytes);
	return err;
}

const char fal_files_skip_from[] = "";

static int
load_model(struct fal_files *j, const char *path, const char *from, struct fal_diag *diag)
{
	const struct fal_job *job = &j->job;
	char *file = job->model != NULL ? fal_job_path(path, job->model) : NULL;
	char *init = job->init != NULL ? fal_job_path(path, job->init) : NULL;
	int err = FAL_OK;
	if (file != NULL) {
		err = fal_cli_read(file, TEXT_MAX, &j->model_text, diag);
		if (err == FAL_OK)
			err = fal_model_parse(file, (const char *)j->model_text.p,
					      j->model_text.n, &j->model, diag);
		if (err == FAL_OK)
			err = align_tensors(&j->job, j->model, file, diag);
	}
	if (file != NULL && err == FAL_OK) {
		uint8_t sum[FAL_HASH_BYTES];
		char hex[2 * FAL_HASH_BYTES + 1];
		fal_sha256(j->model_text.p, j->model_text.n, sum);
		fal_hex(sum, sizeof(sum), hex);
		err = put_hash(j, path, "model.file-sha256", job->model_sha256, file, hex,
			       diag);
	}
	if (err == FAL_OK && init != NULL)
		err = load_weights(j, path, init, "model.init-sha256", job->init_sha256,
				   j->init_hex, diag);
	if (err == FAL_OK && from == NULL && job->from_sha256 != NULL) {
		err = fal_diag_set(diag, FAL_EINVAL,
				   "%s: model.from-sha256: --from is to name the file "
				   "with the SHA-256 %s",
				   fal_job_diag_name(&j->set, "model.from-sha256:", path),
				   job->from_sha256);
	} else if (err == FAL_OK && from != NULL && from != fal_files_skip_from) {
		j->from_file = from;
		err = load_weights(j, path, from, "model.from-sha256", job->from_sha256,
				   j->from, diag);
	}
	free(file);
	free(init);
	struct fal_diag why = { "" };
	if (err == FAL_OK && (err = fal_job_set_ranges(&j->job, j->model, &why)) < 0)
		refuse_key(j, path, err, why.text, diag);
	return err;
}

/* Checks that the layers of the model, if it has layers, take these samples. */
static int
check_set(const struct fal_files *j, const char *path, const struct fal_set *set,
	  struct fal_diag *diag)
{
	const struct fal_model *m = j->model;
	if (m->layers == 0 || set->n == 0)
		return FAL_OK;
	if (j->job.format == FAL_JOB_FORMAT_TEXT || j->job.format == FAL_JOB_FORMAT_INDEX)
		return refuse_key(
			j, path, FAL_EINVAL,
			"data.format is for trainers alone: model.init instead of "
			"model.file",
			diag);
	if (set->values == m->inputs)
		return FAL_OK;
	const struct fal_job *job = &j->job;
	const bool test = set == &j->test, idx = job->format == FAL_JOB_FORMAT_IDX;
	char *file = fal_job_path(path, idx && test ? job->test_images
					: idx       ? job->train_images
					: test      ? job->test
						    : job->train);
	int err = fal_diag_set(diag, FAL_EINVAL,
			       "%s: samples of %u value%s, but the model takes %u", file,
			       set->values, fal_text_plural(set->values), m->inputs);
	free(file);
	return err;
}

static int
load_data(struct fal_files *j, const char *path, struct fal_diag *diag)
{
	const struct fal_load files = { .job = &j->job,
					.job_file = path,
					.classes = j->model->classes };
	struct fal_diag why = { "" };
	int err = fal_load_sets(&files, &j->train, &j->test, diag);
	if (err == FAL_OK)
		err = check_set(j, path, &j->train, diag);
	if (err == FAL_OK)
		err = check_set(j, path, &j->test, diag);
	if (err < 0)
		return err;
	err = fal_job_set_samples(&j->job, j->train.n, &why);
	if (err < 0)
		return refuse_key(j, path, err, why.text, diag);
	err = fal_manifest_build(&j->train, j->test.n > 0 ? &j->test : NULL,
				 &j->manifest);
	if (err == FAL_EINVAL)
		return fal_diag_set(diag, err,
				    "%s: training and test data differ in shape", path);
	if (err < 0)
		return err;
	const uint32_t has = fal_part_channels(&j->manifest.train);
	if (j->job.channels != 1 && j->job.channels != has)
		return fal_diag_set(
			diag, FAL_EINVAL,
			"%s: data.mean or data.std lists %u channel%s, a sample has "
			"%u",
			fal_job_diag_name(&j->set, "data.mean:",
					  fal_job_diag_name(&j->set, "data.std:", path)),
			j->job.channels, fal_text_plural(j->job.channels), has);
	if (j->job.partition == FAL_JOB_PARTITION_LABEL_SKEW &&
	    fal_manifest_add_labels(&j->manifest, &j->train) < 0)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	fal_manifest_encode(&j->manifest, &j->manifest_bytes);
	return j->manifest_bytes.err;
}

static void
hash_text(const struct fal_buf *text, char hex[static 2 * FAL_HASH_BYTES + 1])
{
	uint8_t digest[FAL_HASH_BYTES];
	fal_hash(text->p, text->n, digest);
	fal_hex(digest, sizeof(digest), hex);
}

/* Sets the hashes of both sets in the job text; trainers with their own data have none.
 */
static int
put_data_hashes(struct fal_files *j, const char *path, struct fal_diag *diag)
{
	const struct fal_manifest set[] = { { .train = j->manifest.train },
					    { .train = j->manifest.test } };
	static const char *const key[] = { "data.train-hash", "data.test-hash" };
	const char *const demanded[] = { j->job.train_hash, j->job.test_hash };
	int err = FAL_OK;
	for (size_t i = 0; i < 2 && set[i].train.chunks > 0 && err == FAL_OK; i++) {
		struct fal_buf bytes = { 0 };
		char hex[2 * FAL_HASH_BYTES + 1];
		const char *name;
		fal_files_hash_kind(j, key[i], &name);
		char *file = fal_job_path(path, name);
		fal_manifest_encode(&set[i], &bytes);
		hash_text(&bytes, hex);
		err = bytes.err < 0
			      ? bytes.err
			      : put_hash(j, path, key[i], demanded[i], file, hex, diag);
		free(file);
		fal_buf_free(&bytes);
	}
	return err;
}

const char *
fal_files_weights_hash(const struct fal_files *j)
{
	return j->from[0] != '\0' ? j->from : j->init_hex;
}

const char *
fal_files_hash_kind(const struct fal_files *j, const char *key, const char **file)
{
	const struct fal_job *job = &j->job;
	const bool idx = job->format == FAL_JOB_FORMAT_IDX;
	const struct {
		const char *key, *kind, *file;
	} inputs[] = {
		{ "model.file-sha256", "net", job->model },
		{ "model.init-sha256", "init", job->init },
		{ "model.from-sha256", "init",
		  j->from_file != NULL ? j->from_file : "--from" },
		{ "data.hash", "data", "data of trainers" },
		{ "data.train-hash", "data", idx ? job->train_images : job->train },
		{ "data.test-hash", "data", idx ? job->test_images : job->test },
	};
	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++)
		if (strcmp(inputs[i].key, key) == 0) {
			*file = inputs[i].file != NULL ? inputs[i].file : "none";
			return inputs[i].kind;
		}
	return NULL;
}

bool
fal_files_is_path(const char *key)
{
	static const char *const keys[] = { "model.file",        "model.init",
					    "data.train",        "data.test",
					    "data.train-images", "data.train-labels",
					    "data.test-images",  "data.test-labels",
					    "schedule.file" };
	size_t i = sizeof(keys) / sizeof(keys[0]);
	while (i > 0 && strcmp(keys[i - 1], key) != 0)
		i--;
	return i > 0;
}

/* Appends the setting unless it may change when the job continues from its state. */
static int
add_lasting_key(void *arg, const char *key, const char *none, const char *value)
{
	const struct fal_files no_files = { 0 };
	struct fal_buf *out = arg;
	(void)none;
	if (strcmp(key, "job.epochs") != 0 && !fal_files_is_path(key) &&
	    fal_files_hash_kind(&no_files, key, &none) == NULL)
		fal_put_fmt(out, "%s=%s\n", key, value);
	return out->err;
}

int
fal_files_hash(struct fal_files *j)
{
	const struct fal_buf none = { 0 };
	struct fal_buf lasting = { 0 }, shapes = { 0 };
	char hex[2 * FAL_HASH_BYTES + 1];
	int err = fal_job_diff(&none, &j->job_text, add_lasting_key, &lasting);
	for (uint32_t i = 0; i < j->model->tensors; i++)
		fal_put_bytes(&shapes, j->model->tensor[i].dim,
			      sizeof(j->model->tensor[i].dim));
	err = err < 0 ? err : lasting.err < 0 ? lasting.err : shapes.err;
	hash_text(&lasting, j->lasting_hex);
	hash_text(&shapes, hex);
	snprintf(j->sizes, sizeof(j->sizes),
		 "%u and %u samples, %llu weights of shapes %.16s", j->train.n, j->test.n,
		 (unsigned long long)j->model->values, hex);
	fal_buf_free(&lasting);
	fal_buf_free(&shapes);
	fal_hash(j->job_text.p, j->job_text.n, j->hash);
	fal_hex(j->hash, FAL_HASH_BYTES, j->hash_hex);
	hash_text(&j->model_text, j->model_hex);
	hash_text(&j->manifest_bytes, j->data_hex);
	return err;
}

/* Applies the assignments, parses the job text, and loads the files that the text names.
 */
static int
load_job_files(struct fal_files *j, const char *path, const char *from,
	       struct fal_diag *diag)
{
	int err = FAL_OK;
	for (size_t i = 0; i < j->set.n && err == FAL_OK; i++) {
		struct fal_diag why = { "" };
		err = override_key(j, path, j->set.v[i], &why);
		if (err < 0)
			fal_diag_set(diag, err, "%s%s",
				     err == FAL_EINVAL ? "--set: " : "", why.text);
	}
	struct fal_problems all = { .diag = diag, .more = &j->problems };
	if (err < 0 ||
	    (err = fal_job_parse_set(path, (const char *)j->job_text.p, j->job_text.n,
				     &j->set, &j->job, &all)) < 0 ||
	    (err = load_model(j, path, from, diag)) < 0 ||
	    (err = load_data(j, path, diag)) < 0 ||
	    (err = put_data_hashes(j, path, diag)) < 0 ||
	    (err = fal_job_make_canonical(&j->job_text)) < 0)
		return err;
	return FAL_OK;
}

/* Loads the table of the schedule, a line with the factor of each update's rate, and sets
 * its hash in the job text. */
static int
load_table(struct fal_files *j, const char *path, struct fal_diag *diag)
{
	enum { TABLE_MAX = 64 << 20 }; /* bytes */
	if (j->job.table == NULL)
		return FAL_OK;
	char *file = fal_job_path(path, j->job.table);
	struct fal_buf text = { 0 };
	uint8_t sum[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	int err = fal_cli_read(file, TABLE_MAX, &text, diag);
	if (err == FAL_OK) {
		fal_sha256(text.p, text.n, sum);
		fal_hex(sum, sizeof(sum), hex);
		err = put_hash(j, path, "schedule.file-sha256", j->job.table_sha256, file,
			       hex, diag);
	}
	fal_put_u8(&text, '\0');
	if (err == FAL_OK)
		err = text.err;
	/* A factor and the end of its line take two bytes at least. */
	const uint64_t updates = j->job.schedule.total, lines_max = text.n / 2 + 1;
	uint64_t n = 0;
	double factor;
	if (err == FAL_OK)
		j->job.factors = fal_xcalloc(updates < lines_max ? updates : lines_max,
					     sizeof(float));
	char *rest = (char *)text.p;
	for (char *line; err == FAL_OK && n < updates &&
			 (line = strsep(&rest, "\n")) != NULL &&
			 (rest != NULL || *line);) {
		if (fal_parse_double(line, 0, 1e6, &factor) == FAL_OK)
			j->job.factors[n++] = (float)factor;
		else
			err = fal_diag_set(diag, FAL_EINVAL,
					   "%s:%" PRIu64 ": '%s' is not a factor in "
					   "0..1000000",
					   file, n + 1, FAL_QUOTE(line));
	}
	if (err == FAL_OK && n < updates)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "%s: %" PRIu64 " factor%s, the job has %" PRIu64
				   " update%s",
				   file, n, fal_text_plural(n), updates,
				   fal_text_plural(updates));
	if (err == FAL_OK) {
		j->job.schedule.factor = j->job.factors;
		j->job.schedule.factors = n;
	}
	fal_buf_free(&text);
	free(file);
	return err;
}

/* Loads the placement file: a line with the number of blocks for each shard. */
static int
load_placement(struct fal_files *j, const char *path, struct fal_diag *diag)
{
	if (j->job.placement != FAL_JOB_PLACEMENT_FILE)
		return FAL_OK;
	char *file = fal_job_path(path, j->job.placement_file);
	struct fal_buf text = { 0 };
	int err = fal_cli_read(file, TEXT_MAX, &text, diag);
	fal_put_u8(&text, '\0');
	if (err == FAL_OK)
		err = text.err;
	const uint32_t blocks = fal_blocks(j->model->params);
	uint64_t n, all = 0;
	char *rest = (char *)text.p;
	for (char *line; err == FAL_OK && (line = strsep(&rest, "\n")) != NULL &&
			 (rest != NULL || *line);) {
		if (j->placed_n == FAL_SHARDS_MAX ||
		    fal_parse_u64(line, 0, blocks, &n) < 0) {
			err = fal_diag_set(diag, FAL_EINVAL,
					   "%s:%u: '%s': not a shard's number of blocks, "
					   "of %u; at most %d shards",
					   file, j->placed_n + 1, FAL_QUOTE(line), blocks,
					   FAL_SHARDS_MAX);
			break;
		}
		j->placed[j->placed_n++] = (uint32_t)n;
		all += n;
	}
	if (err == FAL_OK && all != blocks)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "%s: %" PRIu64 " block%s in all, the model has %u",
				   file, all, fal_text_plural(all), blocks);
	fal_buf_free(&text);
	free(file);
	return err;
}

int
fal_files_load(struct fal_files *j, const char *path, const char *from,
	       const char *const *set, size_t n_set, struct fal_diag *diag)
{
	*j = (struct fal_files){ .set = { set, n_set } };
	int err = fal_cli_read(path, TEXT_MAX, &j->job_text, diag);
	if (err == FAL_OK)
		err = load_job_files(j, path, from, diag);
	if (err == FAL_OK)
		err = load_table(j, path, diag);
	if (err == FAL_OK)
		err = fal_files_hash(j);
	return err == FAL_OK ? load_placement(j, path, diag) : err;
}

int
fal_files_load_text(struct fal_files *j, const char *path, const char *from,
		    const struct fal_buf *text, struct fal_diag *diag)
{
	*j = (struct fal_files){ 0 };
	fal_put_bytes(&j->job_text, text->p, text->n);
	int err = j->job_text.err;
	if (err == FAL_OK)
		err = load_job_files(j, path, from, diag);
	return err < 0 ? err : fal_files_hash(j);
}

void
fal_files_free(struct fal_files *j)
{
	fal_manifest_free(&j->manifest);
	fal_set_free(&j->train);
	fal_set_free(&j->test);
	fal_model_free(j->model);
	free(j->init);
	fal_job_free(&j->job);
	fal_buf_free(&j->problems);
	fal_buf_free(&j->job_text);
	fal_buf_free(&j->model_text);
	fal_buf_free(&j->manifest_bytes);
}

int
fal_files_make_setup(const struct fal_files *j, struct fal_setup *out,
		     struct fal_diag *diag)
{
	const struct fal_setup_text job = { "job", j->job_text.p, j->job_text.n };
	const struct fal_setup_text model = { "model", j->model_text.p, j->model_text.n };
	int err = fal_manifest_parse(j->manifest_bytes.p, j->manifest_bytes.n,
				     &out->manifest);
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err))
		       : fal_setup_init(out, &job, &model, diag);
}

uint64_t
fal_files_data_bytes(const struct fal_files *j)
{
	return fal_part_bytes(&j->manifest.train) + fal_part_bytes(&j->manifest.test);
}

uint32_t
fal_files_clock_tasks(const struct fal_files *j)
{
	const struct fal_grid g = fal_job_grid(&j->job, j->train.n);
	return fal_grid_tasks_max(&g);
}

/* Counts the blocks of each place when the job begins.  Lines of the placement file
 * beyond `places` count for the last place. */
static void
count_blocks(const struct fal_files *j, uint32_t places, uint32_t *count)
{
	const uint32_t blocks = fal_blocks(j->model->params);
	for (uint32_t i = 0; i < places; i++)
		count[i] = j->placed_n > 0 ? j->placed[i]
					   : fal_map_first(blocks, places, i + 1) -
						     fal_map_first(blocks, places, i);
	for (uint32_t i = places; i < j->placed_n; i++)
		count[places - 1] += j->placed[i];
}

void
fal_files_make_place_line(const struct fal_files *j, uint32_t places,
			  struct fal_line_place *out)
{
	const uint32_t blocks = fal_blocks(j->model->params);
	uint32_t count[FAL_SHARDS_MAX], b = 0;
	uint32_t *shard = fal_xcalloc(blocks, sizeof(*shard));
	*out = (struct fal_line_place){ .rule = j->placed_n > 0 ? FAL_TRACE_FILE
								: FAL_TRACE_BLOCKS,
					.places = places,
					.blocks = blocks,
					.shard = shard };
	count_blocks(j, places, count);
	for (uint32_t i = 0; i < places; i++) {
		for (uint32_t end = b + count[i]; b < end; b++)
			shard[b] = out->shards;
		out->shards += count[i] > 0;
	}
}

void
fal_place_line_free(struct fal_line_place *p)
{
	free((void *)(uintptr_t)p->shard);
}

void
fal_files_make_map(const struct fal_files *j, uint32_t places, struct fal_map *out,
		   uint32_t before[FAL_SHARDS_MAX + 1])
{
	uint32_t count[FAL_SHARDS_MAX], first = 0;
	count_blocks(j, places, count);
	*out = (struct fal_map){ .epoch = 1 };
	for (uint32_t i = 0; i < places; i++) {
		before[i] = out->shards;
		if (count[i] > 0)
			out->of[out->shards++] = (struct fal_extent){ first, count[i] };
		first += count[i];
	}
	before[places] = out->shards;
}

struct fal_shard_conf
fal_files_shard_conf(const struct fal_job *job, const struct fal_model *m, uint32_t tasks)
{
	return (struct fal_shard_conf){ .n = m->params,
					.tasks = tasks,
					.bits = job->push_bits,
					.optim = job->optim,
					.checksums = job->audit == FAL_JOB_AUDIT_SUMS };
}

struct fal_shard_set_conf
fal_files_shard_set_conf(const struct fal_files *j, uint32_t shards)
{
	return (struct fal_shard_set_conf){
		.shards = shards,
		.each = fal_files_shard_conf(&j->job, j->model, fal_files_clock_tasks(j))
	};
}

struct fal_shard_set *
fal_files_new_shard_set(const struct fal_files *j, const struct fal_shard_set_conf *conf)
{
	float *drawn = NULL;
	if (j->init == NULL) {
		drawn = fal_xcalloc_aligned(j->model->params, sizeof(*drawn));
		fal_model_init(j->model, j->job.seed, drawn);
	}
	struct fal_shard_set *set =
		fal_shard_set_new(conf, drawn != NULL ? drawn : j->init);
	free(drawn);
	return set;
}
