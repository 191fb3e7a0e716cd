/* A job's files, judged and in memory: what falcon-ps serves, and whoever checks it. */
#ifndef FAL_RUN_FILES_H
#define FAL_RUN_FILES_H

#include "base/buf.h"
#include "base/err.h"
#include "data/chunk.h"
#include "data/set.h"
#include "job/job.h"
#include "model/model.h"
#include "sec/hash.h"
#include "shard/rack.h"
#include "trace/writer.h"

#define FAL_FILES_SIZES 128

struct fal_files {
	struct fal_job_set set; /* of fal_files_load */
	struct fal_job job;
	struct fal_model *model;
	float *init; /* model->params; NULL: they are drawn */
	/* SHA-256 of the weights model.init and `from`; "": none */
	char init_hex[2 * FAL_HASH_BYTES + 1], from[2 * FAL_HASH_BYTES + 1];
	const char *from_file;      /* borrowed; NULL: none */
	struct fal_set train, test; /* test.n 0: none */
	struct fal_manifest manifest;
	/* What workers get: the effective job text, which has the hashes of net, weights
	 * and data (fal_files_input); the model's, or names and shapes; the manifest. */
	struct fal_buf job_text, model_text, manifest_bytes;
	uint8_t hash[FAL_HASH_BYTES]; /* of the job text */
	/* The same, and those of the two others, in digits. */
	char hash_hex[2 * FAL_HASH_BYTES + 1];
	/* Of all keys but job.epochs, and the names and hashes of net, weights and data.
	 */
	char lasting_hex[2 * FAL_HASH_BYTES + 1];
	char sizes[FAL_FILES_SIZES]; /* of data and model, for a person, too */
	char model_hex[2 * FAL_HASH_BYTES + 1], data_hex[2 * FAL_HASH_BYTES + 1];
	/* Blocks of each shard, by the placement's file; placed_n 0: there is none. */
	uint32_t placed[FAL_SHARDS_MAX], placed_n;
};

/* Reads the job file `path`, applies the assignments `set` ("section.key=value"), then
 * reads model and data, and the weights to begin with from the file `from`, if that is
 * not NULL.  On error `diag` names file, line and value.  Free with
 * fal_files_free in each case. */
int fal_files_load(struct fal_files *j, const char *path, const char *from,
		   const char *const *set, size_t n_set, struct fal_diag *diag);
/* The same of an effective text (copied), whose names begin where `path` lies. */
int fal_files_take(struct fal_files *j, const char *path, const char *from,
		   const struct fal_buf *text, struct fal_diag *diag);
/* Computes the hashes of all texts.  FAL_EFORMAT, FAL_ENOMEM. */
int fal_files_hash(struct fal_files *j);
/* SHA-256 of the weights that it begins with; "": they are drawn. */
const char *fal_files_init(const struct fal_files *j);
/* Is this key of the job the hash of a file?  Its kind, "net", "init" or "data", as
 * falcon-ps
 * --accept-change takes it, and the file's name to *file; else NULL. */
const char *fal_files_input(const struct fal_files *j, const char *key,
			    const char **file);
/* Is this key the name of a file whose hash the text has, if there is one? */
bool fal_files_is_path(const char *key);
void fal_files_free(struct fal_files *j);

/* What all shards of a job have in common, whose clocks are of `tasks` at most. */
struct fal_shard_conf fal_files_shard_conf(const struct fal_job *job,
					   const struct fal_model *m, uint32_t tasks);

/* What all racks of the job have in common; and a rack with the parameters that the job
 * begins with, NULL when out of memory. */
struct fal_rack_conf fal_files_rack_conf(const struct fal_files *j, uint32_t shards);
struct fal_rack *fal_files_rack(const struct fal_files *j,
				const struct fal_rack_conf *conf);

/* Each of so many places, at most FAL_SHARDS_MAX, has one range of blocks, in their
 * order, as many as the placement's file says, or else an even part; those that have a
 * block are the job's shards.  `before` gets, for each place and behind the last, how
 * many shards there are of those before it. */
void fal_files_map(const struct fal_files *j, uint32_t places, struct fal_map *out,
		   uint32_t before[FAL_SHARDS_MAX + 1]);
/* The same as the trace tells it, but for the map's number.  FAL_ENOMEM. */
int fal_files_place(const struct fal_files *j, uint32_t places,
		    struct fal_line_place *out);
void fal_files_place_free(struct fal_line_place *p);

/* Tasks of a whole clock: K; and samples of a full one. */
uint32_t fal_files_tasks(const struct fal_files *j);
uint32_t fal_files_full(const struct fal_files *j);

/* Bytes of all samples with their labels: of all chunks. */
uint64_t fal_files_data(const struct fal_files *j);

#endif
