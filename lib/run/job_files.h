/* A job's files: the setup that lanes compute with, and the checked files that falcon-ps
 * serves and falcon-stat recomputes. */
#ifndef FAL_RUN_JOB_FILES_H
#define FAL_RUN_JOB_FILES_H

#include "crypto/hash.h"
#include "job/chunk.h"
#include "job/job.h"
#include "job/order.h"
#include "job/set.h"
#include "model/model.h"
#include "server/shard_set.h"
#include "trace/writer.h"
#include "wire/msg.h"

/* ---- the setup of lanes --- */

/* The order of one epoch, with a count of its users. */
struct fal_epoch {
	struct fal_order order;
	uint32_t number;
	unsigned refs;
};

/* A job's three texts, parsed and checked against each other: the constants that lanes
 * compute with. */
struct fal_setup {
	struct fal_job job;
	struct fal_model *model;
	struct fal_manifest manifest;
	struct fal_norm norm;
	struct fal_order test_order;
	struct fal_epoch *epoch; /* the epoch last requested, or NULL */
};

/* A text, borrowed, and its name in a diagnosis. */
struct fal_setup_text {
	const char *name;
	const void *p;
	size_t n;
};

/* Parses the job and its model, aligns the tensors as model.block demands, and finds the
 * tensors that the job names.  The caller frees both results, after an error as well.
 * Errors of the parsers, with `diag`. */
int fal_setup_parse(const struct fal_setup_text *job, const struct fal_setup_text *model,
		    struct fal_job *out, struct fal_model **m, struct fal_diag *diag);

/* Makes the rest of `s`, whose manifest the caller has set; an error frees the manifest
 * as well.  Free with fal_setup_free.  Errors of the parsers; FAL_EINVAL (data that do
 * not fit data.mean or data.window); each with `diag`. */
int fal_setup_init(struct fal_setup *s, const struct fal_setup_text *job,
		   const struct fal_setup_text *model, struct fal_diag *diag);
void fal_setup_free(struct fal_setup *s); /* `s` is {0} again */

/* Returns the order of epoch `number`; the caller ends the use with fal_epoch_release. */
struct fal_epoch *fal_setup_epoch(struct fal_setup *s, uint32_t number);
void fal_epoch_release(struct fal_epoch *e);

/* Returns the bytes of all samples with their labels and of two orders of epochs. */
uint64_t fal_setup_bytes(const struct fal_setup *s);

/* The places of a task's samples in the order of the epoch, or of the test set; count 0:
 * no such task. */
struct fal_places {
	uint32_t epoch, first, count;
};
struct fal_places fal_setup_places(const struct fal_setup *s, uint64_t clock,
				   uint32_t task);
struct fal_places fal_setup_test_places(const struct fal_setup *s, uint32_t task);

/* ---- the files --- */

#define FAL_FILES_SIZES 128

struct fal_files {
	struct fal_job_assignments set; /* the assignments of fal_files_load */
	struct fal_job job;
	struct fal_model *model;
	float *init; /* model->params floats; NULL: the parameters are drawn */
	/* SHA-256 of the weights model.init and `from`; "": none */
	char init_hex[2 * FAL_HASH_BYTES + 1], from[2 * FAL_HASH_BYTES + 1];
	const char *from_file;      /* borrowed; NULL: none */
	struct fal_set train, test; /* test.n 0: none */
	struct fal_manifest manifest;
	/* The texts for workers: the effective job text, which has the hashes of net,
	 * weights and data (fal_files_hash_kind); the model file, or names and shapes;
	 * the manifest. */
	struct fal_buf job_text, model_text, manifest_bytes;
	/* Hashes of the three texts. */
	uint8_t hash[FAL_HASH_BYTES]; /* of the job text */
	char hash_hex[2 * FAL_HASH_BYTES + 1], model_hex[2 * FAL_HASH_BYTES + 1],
		data_hex[2 * FAL_HASH_BYTES + 1];
	/* The hash of the keys that must not change while the job continues: all except
	 * job.epochs and the names and hashes of net, weights and data. */
	char lasting_hex[2 * FAL_HASH_BYTES + 1];
	char sizes[FAL_FILES_SIZES]; /* of data and model, readable */
	struct fal_buf problems;     /* after an error: the further ones, each a line */
	/* Blocks of each shard, from the placement file; placed_n 0: no such file. */
	uint32_t placed[FAL_SHARDS_MAX], placed_n;
};

/* Reads the job file `path`, applies the assignments `set` ("section.key=value"), and
 * reads model, data and, unless `from` is NULL, the first weights from the file `from`.
 * On error `diag` names file, line and value.  Free with fal_files_free in any case. */
int fal_files_load(struct fal_files *j, const char *path, const char *from,
		   const char *const *set, size_t n_set, struct fal_diag *diag);
/* As fal_files_load, from an effective text (copied) whose paths are relative to the
 * folder of `path`, without placement file and schedule.file.  With `from` =
 * fal_files_skip_from the weights of model.from-sha256 are not read. */
extern const char fal_files_skip_from[];
int fal_files_load_text(struct fal_files *j, const char *path, const char *from,
			const struct fal_buf *text, struct fal_diag *diag);
/* Computes all hashes and the sizes.  FAL_EFORMAT, FAL_ENOMEM. */
int fal_files_hash(struct fal_files *j);
/* Returns the SHA-256 of the first weights; "": the weights are drawn. */
const char *fal_files_weights_hash(const struct fal_files *j);
/* If `key` is the hash of a file, returns the file's kind for falcon-ps --accept-change
 * ("net", "init" or "data") and its name in `*file`; else NULL. */
const char *fal_files_hash_kind(const struct fal_files *j, const char *key,
				const char **file);
/* Is `key` the path of a file whose hash the effective text has as well? */
bool fal_files_is_path(const char *key);
void fal_files_free(struct fal_files *j);

/* Makes the setup of lanes from the job's texts.  Errors of fal_setup_init. */
int fal_files_make_setup(const struct fal_files *j, struct fal_setup *out,
			 struct fal_diag *diag);

/* Returns the settings common to all shards of a job with at most `tasks` tasks a clock.
 */
struct fal_shard_conf fal_files_shard_conf(const struct fal_job *job,
					   const struct fal_model *m, uint32_t tasks);

/* Returns the settings of a set of `shards` shards. */
struct fal_shard_set_conf fal_files_shard_set_conf(const struct fal_files *j,
						   uint32_t shards);
/* Makes a set of shards with the job's first parameters; NULL: out of memory. */
struct fal_shard_set *fal_files_new_shard_set(const struct fal_files *j,
					      const struct fal_shard_set_conf *conf);

/* Maps the blocks to `places` places (at most FAL_SHARDS_MAX), each with one range, in
 * order: as many blocks as the placement file says, or else equal parts.  The places with
 * blocks are the job's shards.  Sets before[i] to the number of shards among the first i
 * places. */
void fal_files_make_map(const struct fal_files *j, uint32_t places, struct fal_map *out,
			uint32_t before[FAL_SHARDS_MAX + 1]);
/* Makes the trace line of that map, without the map's number; free the line with
 * fal_place_line_free. */
void fal_files_make_place_line(const struct fal_files *j, uint32_t places,
			       struct fal_line_place *out);
void fal_place_line_free(struct fal_line_place *p);

/* Returns the most tasks of a clock. */
uint32_t fal_files_clock_tasks(const struct fal_files *j);

/* Returns the bytes of all chunks: of all samples with their labels. */
uint64_t fal_files_data_bytes(const struct fal_files *j);

#endif
